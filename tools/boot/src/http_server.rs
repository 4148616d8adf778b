//! An HTTP server for networks where anybody may connect: it serves a router within limits.
//!
//! Key types: [`Limits`], [`serve`]. Neighbours: [`crate::service`] serves the boot network with
//! it, and the control node its interface over TCP.
//!
//! Invariants: no client can hold a connection that says nothing for ever, and none can keep others
//! out: one connection too many ends the slowest of its address, or of all.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// How long a client may take to send the head of its request: firmware sends it at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What one server may hold.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Connections at one time.
    pub connections: usize,
    /// Of these, from one address.
    pub per_address: usize,
    /// Longest life of a connection.
    pub life: Duration,
}

/// Serves until the task that runs it is ended; its connections end with it. `connect` makes of a
/// connection what is read and written, and the router for it.
pub async fn serve<I>(
    listener: TcpListener,
    limits: Limits,
    connect: impl Fn(TcpStream, SocketAddr) -> (I, Router) + Send,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let table = Arc::new(Table::new(limits));
    let mut connections = JoinSet::new();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Scripts and images go out in few large writes: delaying the last one gains
                // nothing.
                let _ = stream.set_nodelay(true);
                let place = table.admit(peer.ip());
                let (io, router) = connect(stream, peer);
                connections.spawn(async move {
                    let ended = place.0.clone();
                    tokio::select! {
                        served = timeout(limits.life, connection(io, router, &place)) => {
                            if served.is_err() {
                                tracing::debug!(%peer, "HTTP connection ended: it lasted too long");
                            }
                        }
                        () = ended.end.notified() => {
                            tracing::debug!(%peer, "HTTP connection ended: it was the slowest of too many");
                        }
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "HTTP: no connection accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection<I>(io: I, router: Router, place: &Place)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(router);
    let service = service_fn(|request| {
        place.0.asked();
        routes.call(request)
    });
    let result = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(io), service)
        .await;
    if let Err(error) = result {
        tracing::debug!(peer = %place.0.address, %error, "HTTP connection broke");
    }
}

/// A connection that is open.
#[derive(Debug)]
struct Open {
    number: u64,
    address: IpAddr,
    began: Instant,
    /// When the last whole request came.
    asked: Mutex<Option<Instant>>,
    end: Notify,
}

impl Open {
    fn asked(&self) {
        *self.asked.lock().expect("no panic while held") = Some(Instant::now());
    }

    /// The least goes first: who has not sent a request, and waits for longest with that; then who
    /// sent the last one longest ago.
    fn speed(&self) -> (bool, Instant) {
        let asked = *self.asked.lock().expect("no panic while held");
        (asked.is_some(), asked.unwrap_or(self.began))
    }
}

/// The connections that are open.
#[derive(Debug)]
struct Table {
    limits: Limits,
    open: Mutex<(u64, BTreeMap<u64, Arc<Open>>)>,
}

/// A place in the table; it is free again when this is dropped.
#[derive(Debug)]
struct Place(Arc<Open>, Arc<Table>);

impl Table {
    fn new(limits: Limits) -> Self {
        Table {
            limits,
            open: Mutex::default(),
        }
    }

    /// Takes a connection, and ends another one if that is one too many.
    fn admit(self: &Arc<Self>, address: IpAddr) -> Place {
        let mut guard = self.open.lock().expect("no panic while held");
        let (next, open) = &mut *guard;
        let of_address = |open: &BTreeMap<u64, Arc<Open>>| {
            let same = open.values().filter(|of| of.address == address);
            same.cloned().collect::<Vec<_>>()
        };
        let same = of_address(open);
        let crowd: Vec<Arc<Open>> = match same.len() >= self.limits.per_address {
            true => same,
            false if open.len() >= self.limits.connections => open.values().cloned().collect(),
            false => Vec::new(),
        };
        if let Some(slowest) = crowd.iter().min_by_key(|of| of.speed()) {
            open.remove(&slowest.number);
            slowest.end.notify_one();
        }
        *next += 1;
        let taken = Arc::new(Open {
            number: *next,
            address,
            began: Instant::now(),
            asked: Mutex::new(None),
            end: Notify::new(),
        });
        open.insert(taken.number, taken.clone());
        Place(taken, self.clone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.1.open.lock().expect("no panic while held");
        open.1.remove(&self.0.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Extension;
    use axum::extract::ConnectInfo;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LIMITS: Limits = Limits {
        connections: 6,
        per_address: 4,
        life: Duration::from_secs(900),
    };
    const HALF: &[u8] = b"GET /peer HT";
    const WHOLE: &[u8] = b"GET /peer HTTP/1.1\r\nHost: x\r\n\r\n";

    async fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
        let router = Router::new().route("/peer", get(peer));
        let connect = move |stream, peer| {
            let router = router
                .clone()
                .layer(Extension(ConnectInfo::<SocketAddr>(peer)));
            (stream, router)
        };
        tokio::spawn(serve(listener, LIMITS, connect));
        address
    }

    /// A connection from another address of this machine, which has said `words`.
    async fn connected(from: &str, to: SocketAddr, words: &[u8]) -> TcpStream {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(to).await.unwrap();
        stream.write_all(words).await.unwrap();
        stream
    }

    async fn answer(stream: &mut TcpStream) -> String {
        let mut answer = vec![0; 4_096];
        let length = stream.read(&mut answer).await.unwrap_or(0);
        String::from_utf8_lossy(&answer[..length]).to_string()
    }

    #[tokio::test]
    async fn requests_know_their_machine() {
        let address = start().await;
        let mut stream = connected("127.0.0.1", address, WHOLE).await;
        let own = stream.local_addr().unwrap().to_string();
        let answer = answer(&mut stream).await;
        assert!(answer.ends_with(&own), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_says_nothing_is_let_go() {
        let address = start().await;
        let mut silent = connected("127.0.0.1", address, HALF).await;
        let begin = Instant::now();
        let mut answer = Vec::new();
        // The paused clock runs ahead to the next deadline while everybody waits.
        let _ = silent.read_to_end(&mut answer).await;
        assert!(begin.elapsed() >= REQUEST_TIMEOUT);
        assert!(begin.elapsed() < LIMITS.life);
    }

    /// Half requests, renewed for ever, from one address and from many.
    #[tokio::test]
    async fn slow_connections_keep_nobody_out() {
        let address = start().await;
        let mut working = connected("127.0.0.9", address, WHOLE).await;
        assert!(answer(&mut working).await.starts_with("HTTP/1.1 200"));
        let mut slow = Vec::new();
        for from in ["127.0.0.1", "127.0.0.2", "127.0.0.3"] {
            for _ in 0..50 {
                slow.push(connected(from, address, HALF).await);
            }
            // One from the same address gets through, and one from another.
            for from in [from, "127.0.0.8"] {
                let mut honest = connected(from, address, WHOLE).await;
                let said = answer(&mut honest).await;
                assert!(said.starts_with("HTTP/1.1 200"), "{from}: {said:?}");
            }
        }
        // Who had a request answered kept the connection.
        working.write_all(WHOLE).await.unwrap();
        assert!(answer(&mut working).await.starts_with("HTTP/1.1 200"));
        assert_eq!(answer(&mut slow[0]).await, "", "the oldest was ended");
    }
}
