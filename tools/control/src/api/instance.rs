//! Which cluster a request is meant for.
//!
//! A client that waits may sleep for hours. Meanwhile its cluster may be taken down, and another
//! one made with the same name, at the same socket, which numbers its jobs from 1 as well. So every
//! answer says which cluster gives it, and a client sends that with its later requests: those that
//! are meant for another cluster are refused.
//!
//! Key function: [`check`]. Neighbours: `client` sends the header; the number comes from the store.
//!
//! Invariant: a request that names another cluster changes nothing and reads nothing.

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Refusal;

/// The header with the number of the cluster, of requests and of answers.
pub const HEADER: &str = "hearth-instance";

/// The stable word of a refusal.
pub const OTHER: &str = "another-cluster";

/// Lets a request through that is meant for this cluster, or for any.
pub async fn check(State(own): State<HeaderValue>, request: Request, next: Next) -> Response {
    let meant = request.headers().get(HEADER);
    let mut answer = match meant.is_none_or(|meant| *meant == own) {
        true => next.run(request).await,
        false => Refusal::new(
            StatusCode::GONE,
            OTHER,
            "this is another cluster: the one that this command began with was taken down, and its jobs with it; begin again",
        )
        .into_response(),
    };
    answer.headers_mut().insert(HEADER, own);
    answer
}
