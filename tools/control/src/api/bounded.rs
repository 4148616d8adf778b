//! A listener that holds at most so many connections: one more waits until one ends.
//!
//! Key types: [`Bounded`], [`limits`]. Neighbour: `serve` puts it around the API's listeners.
//!
//! Invariant: connections over TCP and over the unix socket have bounds of their own, so that
//! nobody on the network can keep the operator out.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::serve::Listener;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most connections over the unix socket: two for each of 4,096 jobs.
const UNIX_MAX: usize = 8_192;
/// Most connections over TCP: browsers and scripts that watch.
const TCP_MAX: usize = 1_024;

/// Connections over the unix socket and over TCP that the system's limit of open files has room
/// for; raises that limit as far as it goes.
pub fn limits() -> (usize, usize) {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1_024, 1_024));
    let raised = setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok();
    let files = usize::try_from(if raised { hard } else { soft }).unwrap_or(usize::MAX);
    // The rest is for program files, sockets of the boot service and logs.
    (UNIX_MAX.min(files / 2), TCP_MAX.min(files / 8))
}

/// A listener with a bound.
#[derive(Debug)]
pub struct Bounded<L> {
    listener: L,
    places: Arc<Semaphore>,
}

impl<L> Bounded<L> {
    /// At most `connections` at a time.
    pub fn new(listener: L, connections: usize) -> Self {
        Bounded {
            listener,
            places: Arc::new(Semaphore::new(connections)),
        }
    }
}

impl<L: Listener> Listener for Bounded<L> {
    type Io = Held<L::Io>;
    type Addr = L::Addr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        let (io, address) = self.listener.accept().await;
        (Held { io, _place: place }, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

/// A connection that keeps its place until it ends.
#[derive(Debug)]
pub struct Held<I> {
    io: I,
    _place: OwnedSemaphorePermit,
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
        Pin::new(&mut self.io).poll_write(context, bytes)
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
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn one_more_connection_waits_for_a_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut bounded = Bounded::new(listener, 1);
        let _clients = (
            TcpStream::connect(address).await.unwrap(),
            TcpStream::connect(address).await.unwrap(),
        );
        let (first, _) = bounded.accept().await;
        let waits = tokio::time::timeout(std::time::Duration::from_millis(50), bounded.accept());
        assert!(waits.await.is_err());
        drop(first);
        bounded.accept().await;
    }
}
