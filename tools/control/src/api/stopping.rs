//! Ending the control node by request: `hearth stop`.
//!
//! Neighbours: `serve` waits for the request as for a signal; `jobs::Runner` starts nothing any
//! more.
//!
//! Invariant: no job ends because control does. Jobs that run go on, jobs that wait do so again
//! after the next start.

use axum::Extension;
use axum::extract::{Json, State};

use super::types::{StopReply, StopRequest};
use super::{Api, Refusal};
use crate::control::Stop;
use crate::principal::By;

/// End the control node; jobs go on without it.
///
/// With `drain` no job starts from now on, and control ends when none has nodes any more. Asked
/// again, it says what it waits for.
#[utoipa::path(post, path = "/v1/stop", tag = "control", request_body = StopRequest, responses((status = 200, body = StopReply)))]
pub async fn stop(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<StopRequest>,
) -> Result<Json<StopReply>, Refusal> {
    let (running, waiting) = api.shared.lock().runner.active();
    let stop = match request.drain {
        true => Stop::Drained,
        false => Stop::Now,
    };
    api.shared.ask_to_stop(&by.operator()?, stop);
    Ok(Json(StopReply {
        pid: api.status.pid,
        running,
        waiting,
    }))
}
