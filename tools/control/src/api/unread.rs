//! Requests that the framework itself refuses: a path, a query or a body that cannot be read as what a handler takes. It
//! says so in plain text; here that gets the form of all other errors.
//!
//! Neighbour: [`super::router`] puts this around all routes.
//!
//! Invariant: the status stays; an answer that has a form already is not touched.

use axum::body::{self, Body};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::Refusal;

/// Longest text of the framework.
const TEXT_MAX: usize = 16 * 1024;

/// An answer, with an error in plain text as an [`super::types::ErrorBody`].
pub async fn in_form(answer: Response) -> Response {
    let status = answer.status();
    let kind = answer.headers().get(header::CONTENT_TYPE);
    let is_text = kind.is_some_and(|kind: &HeaderValue| kind.as_bytes().starts_with(b"text/plain"));
    if !is_text || !(status.is_client_error() || status.is_server_error()) {
        return answer;
    }
    let (_, content): (_, Body) = answer.into_parts();
    let text = body::to_bytes(content, TEXT_MAX).await.unwrap_or_default();
    let code = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "bad-content-type",
        StatusCode::PAYLOAD_TOO_LARGE => "too-large",
        _ => "bad-request",
    };
    let said = String::from_utf8_lossy(&text);
    let text = format!("{said}; GET /openapi.json says what this path takes");
    Refusal::new(status, code, text).into_response()
}
