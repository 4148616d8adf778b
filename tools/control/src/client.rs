//! Requests to a control node, over its unix socket or over the network with TLS.
//!
//! Key types: [`Client`], [`Remote`], [`RequestError`]. Neighbours: every command that asks
//! control; `tls` makes connections safe, `api` answers.
//!
//! Invariants: what follows the first answer is meant for the cluster that gave it
//! (`api::instance`); one connection a request, so that the end of a streaming request (output,
//! standard input) is seen by control as the end of that stream and of nothing else.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::api::instance;
use crate::api::types::ErrorBody;
use crate::tls::{self, Fingerprint};

/// A request body: whole or streamed.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Largest answer that is read as one JSON document.
const ANSWER_MAX_BYTES: usize = 256 * 1024 * 1024;

/// How long a question waits for the next control node when one has died over it, and how often it
/// asks.
const RETURN_LIMIT: Duration = Duration::from_secs(10);
const RETURN_PAUSE: Duration = Duration::from_millis(200);

/// How long the answer to a question may take to begin, and one that is a document to end. Only
/// questions: control answers them at once, while what it is asked to do takes as long as it takes.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The control node does not answer.
    #[error("the control node at {place} does not answer ({reason}); has it ended?")]
    Connect {
        /// Its socket or address.
        place: String,
        /// What the system said; no `source`, which would be printed again.
        reason: std::io::Error,
    },
    /// The name of its machine is not known.
    #[error(
        "the machine of {place} is not known by this name ({reason}); compare it, or give the address (--host, HEARTH_HOST)"
    )]
    Unknown {
        /// The name, with its port.
        place: String,
        /// What the system said; no `source`, which would be printed again.
        reason: std::io::Error,
    },
    /// Whoever answers at that address is not the control node that is known.
    #[error("no safe connection to the control node at {place}: {reason}")]
    NotSafe {
        /// The address.
        place: String,
        /// Why, and what to do.
        reason: String,
    },
    /// There is no control node, and none will come: the cluster is gone with its folder.
    #[error("the cluster was taken down, and its jobs with it: {} is gone", .0.display())]
    TakenDown(PathBuf),
    /// The connection broke.
    #[error("the connection to the control node broke: {0}; has it ended?")]
    Broken(String),
    /// Control says no.
    #[error("{}", .0.error)]
    Refused(ErrorBody),
    /// The answer is not what this version expects.
    #[error(
        "the control node's answer was not understood: {0}; is it of another version? Compare with `hearth version`"
    )]
    Answer(String),
}

impl RequestError {
    /// Whether the control node has gone, as it does for a moment when it starts again.
    pub fn is_gone(&self) -> bool {
        matches!(
            self,
            RequestError::Connect { .. } | RequestError::Unknown { .. } | RequestError::Broken(_)
        )
    }

    /// The stable word of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            RequestError::Refused(body) => Some(&body.code),
            _ => None,
        }
    }
}

/// A control node elsewhere, and by what it is asked.
#[derive(Clone)]
pub struct Remote {
    /// `HOST:PORT`.
    pub host: String,
    /// The token.
    pub token: String,
    /// By what its certificate is known.
    pub fingerprint: Fingerprint,
}

impl fmt::Debug for Remote {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Remote");
        shown.field("host", &self.host);
        shown.finish_non_exhaustive()
    }
}

/// How a control node is reached.
#[derive(Debug, Clone)]
enum Way {
    Socket(PathBuf),
    Network(Remote),
}

/// Asks one control node.
#[derive(Debug, Clone)]
pub struct Client {
    way: Way,
    answer_limit: Duration,
    /// The cluster that answered first: what follows is meant for that one and no other.
    instance: Arc<OnceLock<HeaderValue>>,
}

impl Client {
    /// A client of the control node that listens at `socket`.
    pub fn new(socket: PathBuf) -> Self {
        Client::by(Way::Socket(socket))
    }

    /// A client of a control node on another machine.
    pub fn remote(remote: Remote) -> Self {
        Client::by(Way::Network(remote))
    }

    fn by(way: Way) -> Self {
        Client {
            way,
            answer_limit: ANSWER_LIMIT,
            instance: Arc::default(),
        }
    }

    /// GET of a JSON document. It changes nothing, so where the control node dies over it the next
    /// one is asked, if it is there in time.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        let begun = Instant::now();
        let mut has_died = false;
        loop {
            let answer = match self.send(Method::GET, path, empty()).await {
                Ok(response) => self.in_time(read_json(response)).await,
                Err(error) => Err(error),
            };
            has_died |= matches!(answer, Err(RequestError::Broken(_)));
            match answer {
                Err(error) if has_died && error.is_gone() && begun.elapsed() < RETURN_LIMIT => {}
                answer => return answer,
            }
            tokio::time::sleep(RETURN_PAUSE).await;
        }
    }

    /// POST of a JSON document, answered by another.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        value: &impl Serialize,
    ) -> Result<T, RequestError> {
        let json = serde_json::to_vec(value).expect("plain data");
        read_json(self.send(Method::POST, path, whole(json)).await?).await
    }

    /// Any request; the answer is checked for refusal and its body left to the caller.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Body,
    ) -> Result<Response<Incoming>, RequestError> {
        self.exchange(method, path, body, None).await
    }

    /// As [`Client::send`], for a streamed body whose size is known.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn send_sized(
        &self,
        method: Method,
        path: &str,
        body: Body,
        bytes: u64,
    ) -> Result<Response<Incoming>, RequestError> {
        self.exchange(method, path, body, Some(bytes)).await
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Body,
        bytes: Option<u64>,
    ) -> Result<Response<Incoming>, RequestError> {
        let stream = AnswerFirst {
            stream: self.connect().await?,
            broken: false,
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| RequestError::Broken(error.to_string()))?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, self.host())
            .header(hyper::header::CONTENT_TYPE, "application/json");
        if let Some(bytes) = bytes {
            request = request.header(hyper::header::CONTENT_LENGTH, bytes);
        }
        if let Way::Network(remote) = &self.way {
            let bearer = format!("Bearer {}", remote.token);
            request = request.header(hyper::header::AUTHORIZATION, bearer);
        }
        if let Some(instance) = self.instance.get() {
            request = request.header(instance::HEADER, instance);
        }
        let request = request
            .body(body)
            .expect("path and headers are well-formed");
        let is_question = *request.method() == Method::GET;
        let answer = async {
            let answer = sender.send_request(request).await;
            answer.map_err(|error| RequestError::Broken(error.to_string()))
        };
        let response = match is_question {
            true => self.in_time(answer).await?,
            false => answer.await?,
        };
        if let Some(instance) = response.headers().get(instance::HEADER) {
            self.instance.get_or_init(|| instance.clone());
        }
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(response).await)
        }
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, RequestError> {
        let remote = match &self.way {
            Way::Socket(socket) => {
                let stream = UnixStream::connect(socket).await;
                let stream = stream.map_err(|reason| self.not_connected(socket, reason))?;
                return Ok(Box::new(stream));
            }
            Way::Network(remote) => remote,
        };
        let place = || remote.host.clone();
        let connecting = async {
            let addresses = tokio::net::lookup_host(&remote.host).await;
            let addresses = addresses.map_err(|reason| RequestError::Unknown {
                place: place(),
                reason,
            })?;
            let addresses: Vec<_> = addresses.collect();
            let stream = TcpStream::connect(&addresses[..]).await;
            let stream = stream.map_err(|reason| RequestError::Connect {
                place: place(),
                reason,
            })?;
            // Requests are small, and each waits for its answer.
            let _ = stream.set_nodelay(true);
            let connector = tls::connector(remote.fingerprint);
            let stream = connector.connect(tls::server_name(), stream).await;
            stream.map_err(|error| match is_end(&error) {
                true => RequestError::Broken(error.to_string()),
                false => RequestError::NotSafe {
                    place: place(),
                    reason: tls::why(&error),
                },
            })
        };
        Ok(Box::new(self.in_time(connecting).await?))
    }

    fn host(&self) -> &str {
        match &self.way {
            Way::Socket(_) => "localhost",
            Way::Network(remote) => &remote.host,
        }
    }

    /// Why nobody answers. A control node that starts again leaves the folder of its socket; a
    /// cluster that is taken down does not.
    fn not_connected(&self, socket: &Path, reason: io::Error) -> RequestError {
        let folder = socket.parent();
        match folder.filter(|folder| self.instance.get().is_some() && !folder.exists()) {
            Some(folder) => RequestError::TakenDown(folder.to_path_buf()),
            None => RequestError::Connect {
                place: socket.display().to_string(),
                reason,
            },
        }
    }

    /// A part of an answer to a question, in time: a control node that hangs still takes
    /// connections.
    async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        let late = |_| {
            let limit = self.answer_limit.as_secs_f32();
            RequestError::Broken(format!(
                "it runs, but has not answered for {limit} s; its log may say why"
            ))
        };
        let answer = tokio::time::timeout(self.answer_limit, answer);
        answer.await.map_err(late)?
    }
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A connection whose end shows on the reading side alone. Control may answer and close before it
/// has read the whole body, when the disk is full for one; hyper would give up at the failed write
/// and never read the answer, which is there.
struct AnswerFirst {
    stream: Box<dyn Stream>,
    /// Nothing can be written any more: writing waits for ever, reading ends with the connection.
    broken: bool,
}

impl AnswerFirst {
    fn written(&mut self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match result {
            Poll::Ready(Err(error)) if is_end(&error) => {
                self.broken = true;
                Poll::Pending
            }
            other => other,
        }
    }
}

fn is_end(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

impl AsyncRead for AnswerFirst {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for AnswerFirst {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.broken {
            return Poll::Pending;
        }
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.written(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// No body.
pub fn empty() -> Body {
    whole(Vec::new())
}

/// A body of known bytes.
pub fn whole(bytes: Vec<u8>) -> Body {
    Full::new(Bytes::from(bytes))
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body that is read from `reader` while it is sent.
pub fn streamed(reader: impl tokio::io::AsyncRead + Send + 'static) -> Body {
    use futures_util::StreamExt;
    let stream = tokio_util::io::ReaderStream::new(reader);
    http_body_util::StreamBody::new(stream.map(|piece| piece.map(hyper::body::Frame::data)))
        .boxed_unsync()
}

async fn read_json<T: DeserializeOwned>(response: Response<Incoming>) -> Result<T, RequestError> {
    let body = http_body_util::Limited::new(response.into_body(), ANSWER_MAX_BYTES)
        .collect()
        .await
        .map_err(|error| RequestError::Broken(error.to_string()))?;
    serde_json::from_slice(&body.to_bytes())
        .map_err(|error| RequestError::Answer(error.to_string()))
}

async fn refusal(response: Response<Incoming>) -> RequestError {
    let status: StatusCode = response.status();
    match read_json::<ErrorBody>(response).await {
        Ok(body) => RequestError::Refused(body),
        Err(_) => RequestError::Answer(format!("HTTP status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixListener;

    use super::*;

    /// Asks a server that ends the connection, after `answer`, before the body is written.
    fn ask_one_that_closes(answer: &'static str) -> RequestError {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (closed, wait) = std::sync::mpsc::channel();
        let (begins, begun) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // An answer before the request is one to nothing.
            begun.recv().unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            drop(stream);
            closed.send(()).unwrap();
        });
        // The one thread of the runtime stands still until then, so nothing is read before the
        // write has failed.
        let pieces = (0..64).map(move |number| {
            if number == 0 {
                begins.send(()).unwrap();
                wait.recv().unwrap();
            }
            Ok(hyper::body::Frame::data(Bytes::from(vec![0; 65536])))
        });
        let body = http_body_util::StreamBody::new(futures_util::stream::iter(pieces));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = Client::new(socket);
        let send = client.send_sized(Method::PUT, "/v1/x", body.boxed_unsync(), 64 * 65536);
        let result = runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_secs(20), send).await
        });
        server.join().unwrap();
        result.expect("an end within the limit").unwrap_err()
    }

    #[test]
    fn an_answer_is_read_though_the_body_could_not_be_written() {
        let error = ask_one_that_closes(concat!(
            "HTTP/1.1 507 Insufficient Storage\r\ncontent-length: 39\r\n",
            "connection: close\r\n\r\n",
            r#"{"error":"disk is full","code":"store"}"#
        ));
        assert_eq!(error.to_string(), "disk is full");
    }

    #[test]
    fn a_question_is_asked_again_when_the_control_node_died_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let path = socket.clone();
        let server = std::thread::spawn(move || {
            drop(listener.accept().unwrap());
            drop(listener);
            // For a moment there is none.
            std::fs::remove_file(&path).unwrap();
            std::thread::sleep(RETURN_PAUSE * 2);
            let (mut stream, _) = UnixListener::bind(&path).unwrap().accept().unwrap();
            // An answer that comes before its question is none.
            assert!(std::io::Read::read(&mut stream, &mut [0; 1024]).unwrap() > 0);
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\n7";
            stream.write_all(answer.as_bytes()).unwrap();
            // Read until the client closes, so that nothing is reset before it has the answer.
            drop(std::io::copy(&mut stream, &mut std::io::sink()));
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let answer: Result<u32, RequestError> = runtime.block_on(Client::new(socket).get("/v1/x"));
        assert_eq!(answer.unwrap(), 7);
        drop(runtime);
        server.join().unwrap();
    }

    /// Answers each request with the number of a cluster; gives the numbers that were asked for.
    fn answer_as(listener: &UnixListener, instance: &str) -> Option<String> {
        use std::io::Read;
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\nhearth-instance: {instance}\r\ncontent-length: 1\r\nconnection: close\r\n\r\n7"
        );
        stream.write_all(answer.as_bytes()).unwrap();
        drop(std::io::copy(&mut stream, &mut std::io::sink()));
        let request = String::from_utf8(request).unwrap().to_lowercase();
        let line = request
            .lines()
            .find_map(|line| line.strip_prefix("hearth-instance: "));
        line.map(str::to_string)
    }

    #[test]
    fn a_client_asks_the_cluster_that_answered_first_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let mut answers = ["one", "two", "two"].into_iter();
            let first = answer_as(&listener, answers.next().unwrap());
            let rest: Vec<_> = answers.map(|own| answer_as(&listener, own)).collect();
            (first, rest)
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let client = Client::new(socket);
        for _ in 0..3 {
            let answer: Result<u32, RequestError> = runtime.block_on(client.clone().get("/v1/x"));
            assert_eq!(answer.unwrap(), 7);
        }
        drop(runtime);
        let (first, rest) = server.join().unwrap();
        assert_eq!(first, None);
        assert_eq!(rest, [Some("one".to_string()), Some("one".to_string())]);
    }

    #[test]
    fn a_cluster_that_is_gone_with_its_folder_is_told_from_a_control_node_that_starts() {
        let root = tempfile::tempdir().unwrap();
        let run = root.path().join("run");
        std::fs::create_dir(&run).unwrap();
        let client = Client::new(run.join("control.sock"));
        client
            .instance
            .set(HeaderValue::from_static("one"))
            .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let ask = || runtime.block_on(client.get::<u32>("/v1/x")).unwrap_err();
        assert!(ask().is_gone(), "it may come back");
        std::fs::remove_dir(&run).unwrap();
        let error = ask();
        assert!(
            !error.is_gone() && error.to_string().contains("taken down"),
            "{error}"
        );
    }

    #[test]
    fn a_question_to_a_control_node_that_hangs_has_a_limit() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        // It takes connections, as the system does for a program that is stopped, and says nothing.
        let _listener = UnixListener::bind(&socket).unwrap();
        let client = Client {
            answer_limit: Duration::from_millis(50),
            ..Client::new(socket)
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let asks = client.send(Method::GET, "/v1/x", empty());
        let answer = runtime.block_on(async {
            tokio::time::timeout(std::time::Duration::from_secs(20), asks).await
        });
        let error = answer.expect("an end within the limit").unwrap_err();
        assert!(
            error.to_string().contains("has not answered for 0.05 s"),
            "{error}"
        );
    }

    #[test]
    fn an_end_without_an_answer_is_told() {
        let error = ask_one_that_closes("");
        assert!(matches!(error, RequestError::Broken(_)), "{error}");
    }
}
