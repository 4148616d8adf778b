//! The HTTP server of the boot network: serves a router to machines nobody knows yet, within limits.
//!
//! Invariant: no machine can hold a connection for ever or take all of them.

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Connections at one time: a thousand machines switched on together, with some that hang.
const MAX_CONNECTIONS: usize = 1_024;
/// How long a client may take to send its request: firmware sends it at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest life of a connection: the largest file served at 1 MB/s takes about nine minutes.
const CONNECTION_LIMIT: Duration = Duration::from_secs(900);
/// Pause when the system has no more sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves until the task that runs it is ended; its connections end with it.
pub(crate) async fn serve(listener: TcpListener, router: Router) {
    let free = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // Taken first: further machines wait in the listener's queue, where firmware repeats its SYN.
        let Ok(permit) = free.clone().acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, peer)) => {
                let router = router.clone();
                connections.spawn(async move {
                    let _permit = permit;
                    if timeout(CONNECTION_LIMIT, connection(stream, peer, router))
                        .await
                        .is_err()
                    {
                        tracing::debug!(%peer, "boot HTTP connection ended: it lasted too long");
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "boot HTTP: no connection accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, router: Router) {
    // Scripts and images go out in few large writes: delaying the last one gains nothing.
    let _ = stream.set_nodelay(true);
    let router = router.layer(Extension(ConnectInfo(peer)));
    let service = TowerToHyperService::new(router);
    let result = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = result {
        tracing::debug!(%peer, %error, "boot HTTP connection broke");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn start() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let peer = |ConnectInfo(peer): ConnectInfo<SocketAddr>| async move { peer.to_string() };
        tokio::spawn(serve(listener, Router::new().route("/peer", get(peer))));
        address
    }

    #[tokio::test]
    async fn requests_know_their_machine() {
        let address = start().await;
        let mut stream = TcpStream::connect(address).await.unwrap();
        let own = stream.local_addr().unwrap().to_string();
        let request = b"GET /peer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with(&own), "{answer}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_says_nothing_is_let_go() {
        let address = start().await;
        let mut silent = TcpStream::connect(address).await.unwrap();
        silent.write_all(b"GET /peer HT").await.unwrap();
        let begin = tokio::time::Instant::now();
        let mut answer = Vec::new();
        // The paused clock runs ahead to the next deadline while everybody waits.
        let _ = silent.read_to_end(&mut answer).await;
        assert!(begin.elapsed() >= REQUEST_TIMEOUT);
        assert!(begin.elapsed() < CONNECTION_LIMIT);
    }
}
