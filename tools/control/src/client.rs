//! Requests to a control node over its unix socket.
//!
//! Key types: [`Client`], [`RequestError`]. Neighbours: every command that asks control; `api`
//! answers.
//!
//! Invariant: one connection a request, so that the end of a streaming request (output, standard
//! input) is seen by control as the end of that stream and of nothing else.

use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::types::ErrorBody;

/// A request body: whole or streamed.
pub type Body = UnsyncBoxBody<Bytes, std::io::Error>;

/// Largest answer that is read as one JSON document.
const ANSWER_MAX_BYTES: usize = 256 * 1024 * 1024;

/// Why a request was not answered as hoped.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// The control node does not answer.
    #[error("the control node at {path} does not answer ({source}); has it ended?")]
    Connect {
        /// Its socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
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
    /// The stable word of a refusal.
    pub fn code(&self) -> Option<&str> {
        match self {
            RequestError::Refused(body) => Some(&body.code),
            _ => None,
        }
    }
}

/// Asks one control node.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the control node that listens at `socket`.
    pub fn new(socket: PathBuf) -> Self {
        Client { socket }
    }

    /// GET of a JSON document.
    ///
    /// # Errors
    /// [`RequestError`].
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, RequestError> {
        read_json(self.send(Method::GET, path, empty()).await?).await
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
        let connect = |source| RequestError::Connect {
            path: self.socket.clone(),
            source,
        };
        let stream = tokio::net::UnixStream::connect(&self.socket)
            .await
            .map_err(connect)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| RequestError::Broken(error.to_string()))?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, "localhost")
            .header(hyper::header::CONTENT_TYPE, "application/json");
        if let Some(bytes) = bytes {
            request = request.header(hyper::header::CONTENT_LENGTH, bytes);
        }
        let request = request
            .body(body)
            .expect("path and headers are well-formed");
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| RequestError::Broken(error.to_string()))?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(refusal(response).await)
        }
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
