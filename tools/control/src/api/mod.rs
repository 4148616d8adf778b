//! The HTTP API of control: JSON over a unix socket (full rights) and TCP (see [`auth`]).
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/status` | [`types::Status`] |
//! | `GET /v1/nodes` | list of [`types::NodeInfo`] |
//! | `POST /v1/nodes/NUMBER/leave` | it was asked to leave |
//! | `GET /v1/jobs[?all=true[&before=ID][&limit=N]]` | list of [`types::JobInfo`], by number; `all`: jobs that are over too, the newest `limit` |
//! | `GET /v1/jobs/ID` | [`types::JobInfo`] |
//! | `POST /v1/jobs` | takes [`types::JobRequest`], answers [`types::JobAccepted`] |
//! | `GET /v1/jobs/ID/output` | stream of [`types::Frame`], one a line; ending it ends the job |
//! | `POST /v1/jobs/ID/stdin` | standard input of rank 0, as the body |
//! | `POST /v1/jobs/ID/cancel` | takes [`types::CancelRequest`] |
//! | `GET /v1/programs` | list of [`types::ProgramInfo`] |
//! | `POST /v1/drop` | takes [`types::DropRequest`], answers [`types::DropAnswer`] |
//! | `GET /v1/casts` | [`types::CastsInfo`]: files that nodes hold, casts |
//! | `POST /v1/casts` | takes [`types::CastRequest`], answers [`types::CastAccepted`] |
//! | `GET /v1/casts/ID[?wait_ms=N]` | [`types::CastInfo`]; waits so long for news |
//! | `POST /v1/casts/ID/cancel` | takes [`types::CancelRequest`] |
//! | `POST /v1/casts/drop` | takes [`types::FileDropRequest`], answers [`types::DropAnswer`] |
//! | `GET /v1/programs/HASH`, `PUT /v1/programs/HASH` | is it here; here it is (files that are cast too) |
//! | `GET /v1/events[?after=N][&limit=M]` | list of `events::Event`, by number; with `limit` from as far back as the store goes |
//! | `GET /v1/timeline` | list of [`types::BootTimeline`] |
//!
//! Every error answer has an [`types::ErrorBody`]. Neighbours: `control::Shared` (all state),
//! `client` and the web page (callers).
//!
//! Invariant: handlers hold the control state only to compute; they wait outside it.

pub mod auth;
pub mod bounded;
mod casts;
mod jobs;
mod lists;
mod nodes;
mod past;
mod programs;
pub mod types;
pub mod warm;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};

use crate::clock::Clock;
use crate::control::Shared;

/// Largest JSON request body, in bytes: a launch block's worth of arguments and environment in
/// base64, several times over.
const REQUEST_MAX_BYTES: usize = 1024 * 1024;

/// What handlers need.
#[derive(Clone)]
pub struct Api {
    /// The control state.
    pub shared: Arc<Shared>,
    /// The boot service, if it runs.
    pub boot: Option<Arc<hearth_boot::Service>>,
    /// What `GET /v1/status` says, without counters.
    pub status: Arc<types::Status>,
    /// Protocol time, to date what the endpoint reports.
    pub clock: Clock,
}

/// All routes, without access control.
pub fn router(api: Api) -> Router {
    Router::new()
        .route("/v1/status", get(lists::status))
        .route("/v1/nodes", get(lists::nodes))
        .route("/v1/nodes/{node}/leave", post(nodes::leave))
        .route("/v1/events", get(past::events))
        .route("/v1/timeline", get(lists::timeline))
        .route("/v1/jobs", get(past::jobs).post(jobs::submit))
        .route("/v1/jobs/{id}", get(past::job))
        .route("/v1/jobs/{id}/output", get(jobs::output))
        .route("/v1/jobs/{id}/stdin", post(jobs::stdin))
        .route("/v1/jobs/{id}/cancel", post(jobs::cancel))
        .route("/v1/programs", get(warm::programs))
        .route("/v1/drop", post(warm::drop_programs))
        .route("/v1/casts", get(casts::list).post(casts::begin))
        .route("/v1/casts/drop", post(casts::drop_file))
        .route("/v1/casts/{id}", get(casts::get))
        .route("/v1/casts/{id}/cancel", post(casts::cancel))
        .route(
            "/v1/programs/{hash}",
            get(programs::exists).put(programs::put),
        )
        .fallback(|| async {
            Refusal::new(
                StatusCode::NOT_FOUND,
                "no-such-path",
                "there is nothing at this path",
            )
        })
        .layer(axum::extract::DefaultBodyLimit::max(REQUEST_MAX_BYTES))
        .with_state(api)
}

/// An error answer.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    body: types::ErrorBody,
}

impl Refusal {
    /// An answer with `status`, a stable word and a sentence.
    pub fn new(status: StatusCode, code: &str, error: impl ToString) -> Self {
        let body = types::ErrorBody {
            code: code.to_string(),
            error: error.to_string(),
        };
        Refusal { status, body }
    }

    /// The stable word.
    #[cfg(test)]
    fn code(&self) -> &str {
        &self.body.code
    }

    fn bad_request(error: impl ToString) -> Self {
        Refusal::new(StatusCode::BAD_REQUEST, "bad-request", error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.status, axum::Json(self.body)).into_response()
    }
}
