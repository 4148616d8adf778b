//! Requests that the framework itself refuses: a path, a query or a body that cannot be read as
//! what a handler takes. It says so in plain text; here that gets the form of all other errors.
//!
//! Neighbour: [`super::router`] puts this around all routes.
//!
//! Invariant: the status stays, but that of a body which is JSON and not what a handler takes: that
//! is a bad request (400) like one that is no JSON. An answer that has a form already is not
//! touched.

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;

use super::Refusal;

/// Longest text of the framework that is told, in bytes: it repeats what it could not read.
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
    let said = start_of(content).await;
    let code = match status {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "bad-content-type",
        StatusCode::PAYLOAD_TOO_LARGE => "too-large",
        _ if status.is_server_error() => {
            return Refusal::new(status, "internal", said).into_response();
        }
        _ => "bad-request",
    };
    let status = match status {
        StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
        status => status,
    };
    let text = format!("{said}; GET /openapi.json says what this path takes");
    Refusal::new(status, code, text).into_response()
}

/// The text, or as much of it as is told.
async fn start_of(content: Body) -> String {
    let mut text = Vec::new();
    let mut pieces = content.into_data_stream();
    while let Some(Ok(piece)) = pieces.next().await {
        text.extend_from_slice(&piece[..piece.len().min(TEXT_MAX - text.len())]);
        if text.len() == TEXT_MAX {
            text.extend_from_slice(b"...");
            break;
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(status: StatusCode, text: String) -> (StatusCode, serde_json::Value) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        runtime.block_on(async {
            let answer = in_form((status, text).into_response()).await;
            let status = answer.status();
            let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await;
            (status, serde_json::from_slice(&body.unwrap()).unwrap())
        })
    }

    #[test]
    fn a_failure_of_the_control_node_is_not_blamed_on_the_request() {
        let (status, body) = told(StatusCode::INTERNAL_SERVER_ERROR, "broken".to_string());
        assert_eq!(
            (status, &body["code"]),
            (StatusCode::INTERNAL_SERVER_ERROR, &"internal".into())
        );
        assert_eq!(body["error"], "broken");
    }

    #[test]
    fn a_body_of_another_shape_is_a_bad_request() {
        let (status, body) = told(StatusCode::UNPROCESSABLE_ENTITY, "missing field".into());
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(body["code"], "bad-request");
    }

    #[test]
    fn a_long_text_is_cut_and_not_lost() {
        let (_, body) = told(StatusCode::BAD_REQUEST, "x".repeat(3 * TEXT_MAX));
        let text = body["error"].as_str().unwrap();
        assert_eq!(
            (&body["code"], text.matches('x').count() > TEXT_MAX - 1),
            (&"bad-request".into(), true)
        );
        assert!(text.contains("x...; GET /openapi.json"), "{}", text.len());
    }
}
