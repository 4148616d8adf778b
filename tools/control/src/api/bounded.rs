//! How many connections the API has: over the unix socket one more waits until one ends; over TCP
//! it ends the slowest of its address (`hearth_boot::http_server`).
//!
//! Key types: [`Bounded`], [`limits`], [`Held`], [`Peer`]. Neighbours: `serve` puts them around the
//! API's listeners; `monitor::stream` asks for [`Peer::hurry`].
//!
//! Invariants: connections over TCP and over the unix socket have bounds of their own, so that
//! nobody on the network can keep the operator out; a connection that was told to hurry and takes
//! nothing for [`PATIENCE`] ends.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use hearth_boot::http_server::Limits;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;

use super::places::{self, Place, Places};

/// Most connections over the unix socket: two for each of 4,096 jobs.
const UNIX_MAX: usize = 8_192;
/// Most connections over TCP: browsers and scripts that watch.
const TCP_MAX: usize = 1_024;

/// How long a client that was told to hurry may take nothing.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that the system holds for a client over TCP: so few that one that takes nothing is soon
/// found out.
const SEND_BUFFER: usize = 32 * 1024;

/// Raises the system's limit of open files as far as it goes: before anything is opened.
pub fn raise_limit() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // Else it stays, and there is room for fewer connections.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Connections over the unix socket and over TCP that the system's limit of open files has room
/// for.
pub fn limits() -> (usize, usize) {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1_024, 1_024));
    let files = usize::try_from(soft).unwrap_or(usize::MAX);
    // The rest is for program files, sockets of the boot service and logs.
    (UNIX_MAX.min(files / 2), TCP_MAX.min(files / 8))
}

/// A listener with a bound.
#[derive(Debug)]
pub struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
    /// How these are shared among users.
    users: Places,
}

impl<L> Bounded<L> {
    /// At most `connections` at a time.
    pub fn new(listener: L, connections: usize) -> Self {
        Bounded {
            listener,
            places: Arc::new(Semaphore::new(connections)),
            users: Places::new(nix::unistd::geteuid().as_raw(), connections),
        }
    }
}

/// Who connects over TCP: from one address so many that a proxy before many browsers works.
pub fn tcp_limits(connections: usize) -> Limits {
    Limits {
        connections,
        per_address: connections / 2,
        // Streams of events go on for as long as somebody reads them.
        life: Duration::MAX,
    }
}

/// Has what a client over TCP does not take be held here and not in the system.
pub fn little_buffer(listener: &TcpListener) {
    // The listener's connections begin with its buffers. Without them such clients are found out
    // later.
    drop(SockRef::from(listener).set_send_buffer_size(SEND_BUFFER));
}

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    hurry: Arc<AtomicBool>,
}

impl Peer {
    /// From now on the connection ends when nothing was taken for [`PATIENCE`].
    pub fn hurry(&self) {
        self.hurry.store(true, Ordering::Relaxed);
    }
}

/// A connection whose user the system may know.
pub trait OfUser {
    /// The number of its user.
    fn user(&self) -> Option<u32>;

    /// Says that there is no place for it, as far as that goes without waiting.
    fn refuse(&self);
}

impl OfUser for UnixStream {
    fn user(&self) -> Option<u32> {
        self.peer_cred().ok().map(|of| of.uid())
    }

    fn refuse(&self) {
        // Whoever does not get it sees the connection end.
        drop(SockRef::from(self).send(places::REFUSAL));
    }
}

impl<L: Listener<Io: OfUser>> Listener for Bounded<L> {
    type Io = Placed<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        loop {
            let (io, address) = self.listener.accept().await;
            // Whom the system does not name is refused later, with words.
            match self.users.enter(io.user().unwrap_or(u32::MAX)) {
                Some(of_user) => return (Placed(io, place, of_user), address),
                None => io.refuse(),
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// Who is at the other end of a connection over the unix socket.
#[derive(Debug, Clone, Copy)]
pub struct LocalPeer {
    /// The numbers of its user and group; none where the system does not say.
    pub user: Option<(u32, u32)>,
}

impl Connected<IncomingStream<'_, Bounded<UnixListener>>> for LocalPeer {
    fn connect_info(stream: IncomingStream<'_, Bounded<UnixListener>>) -> Self {
        let credentials = stream.io().0.peer_cred();
        LocalPeer {
            user: credentials.ok().map(|of| (of.uid(), of.gid())),
        }
    }
}

/// A connection that keeps its place until it ends.
#[derive(Debug)]
pub struct Placed<I>(
    I,
    #[expect(dead_code, reason = "held")] OwnedSemaphorePermit,
    #[expect(dead_code, reason = "held")] Place,
);

impl<I: AsyncRead + Unpin> AsyncRead for Placed<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Placed<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

/// A connection that ends when its client was told to hurry and takes nothing.
#[derive(Debug)]
pub struct Held<I> {
    io: I,
    patience: Duration,
    hurry: Arc<AtomicBool>,
    /// Until when the client may go on taking nothing; `None`: it takes what comes.
    waits: Option<Pin<Box<Sleep>>>,
}

impl Held<TcpStream> {
    /// A connection over TCP, and who is at its other end.
    pub fn new(stream: TcpStream, address: SocketAddr) -> (Self, Peer) {
        let hurry = Arc::<AtomicBool>::default();
        let peer = Peer {
            address: address.ip(),
            hurry: hurry.clone(),
        };
        let held = Held {
            io: stream,
            patience: PATIENCE,
            hurry,
            waits: None,
        };
        (held, peer)
    }
}

impl<I> Held<I> {
    /// What came of a write, or an error if the client has taken nothing for too long.
    fn taken<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() || !self.hurry.load(Ordering::Relaxed) {
            self.waits = None;
            return written;
        }
        let patience = self.patience;
        let waits = self
            .waits
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(patience)));
        waits.as_mut().poll(context).map(|()| {
            let text = "the client has taken nothing for too long";
            Err(io::Error::new(io::ErrorKind::TimedOut, text))
        })
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Held<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Held<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.taken(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn one_more_connection_waits_for_a_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let mut bounded = Bounded::new(UnixListener::bind(&path).unwrap(), 1);
        let _clients = (
            UnixStream::connect(&path).await.unwrap(),
            UnixStream::connect(&path).await.unwrap(),
        );
        let (first, _) = bounded.accept().await;
        let waits = tokio::time::timeout(Duration::from_millis(50), bounded.accept());
        assert!(waits.await.is_err());
        drop(first);
        bounded.accept().await;
    }

    #[tokio::test]
    async fn who_takes_nothing_for_too_long_loses_the_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        little_buffer(&listener);
        let piece = [0; 4_096];
        // One that reads, one that does not, and one that does not and was not told to.
        for (reads, hurries) in [(true, true), (false, true), (false, false)] {
            let mut client = TcpStream::connect(address).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            let (mut held, peer) = Held::new(stream, peer);
            held.patience = Duration::from_millis(100);
            if hurries {
                peer.hurry();
            }
            let reading = tokio::spawn(async move {
                let mut taken = [0; 65_536];
                while reads && client.read(&mut taken).await.unwrap() > 0 {}
                tokio::time::sleep(Duration::from_secs(60)).await;
            });
            let written = async {
                // More than both ends hold.
                for _ in 0..10_000 {
                    held.write_all(&piece).await?;
                }
                Ok::<_, io::Error>(())
            };
            let written = tokio::time::timeout(Duration::from_secs(5), written);
            match (reads, hurries, written.await) {
                (true, _, Ok(Ok(()))) | (false, false, Err(_)) => {}
                (false, true, Ok(Err(error))) => {
                    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                }
                other => panic!("{other:?}"),
            }
            reading.abort();
        }
    }
}
