//! The monitoring overlay over HTTP: how it stands, further streams, taking the tree down and having it made.
//!
//! Invariant: what a request names is looked up before the lock of the control state is taken, and no more of it than a stream
//! can have.

use axum::extract::{Json, Path, State};
use axum::http::StatusCode;
use netstack::overlay::stream::MAX_METRICS;
use netstack::overlay::{MetricId, Scope, StreamError, StreamSpec, Sync};
use netstack::time::{Instant, Micros};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, Refusal};
use crate::overlay::Overlay;
use crate::overlay::view::{self, View};

/// A stream that somebody asks for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamRequest {
    /// Metrics by name, as `hearth_node_memory_used_bytes`, or by number in decimal digits. The refusal of an unknown name
    /// lists all names.
    pub metrics: Vec<String>,
    /// `sum`, `min`, `max`, `avg`, `concat`, `classes` or `histogram`.
    pub filter: String,
    /// Bounds of a histogram, rising; other filters have none.
    #[serde(default)]
    pub bounds: Vec<i64>,
    /// Time between two ticks in milliseconds, 10 to 3600000.
    pub period_ms: u64,
    /// The nodes of this job only, until it ends.
    #[serde(default)]
    pub job: Option<u64>,
    /// These nodes only, as a hostlist of at most eight ranges; not together with `job`.
    #[serde(default)]
    pub nodes: Option<String>,
    /// When a process passes a tick on: `timeout` (when all below have sent it, at the latest after the hold for each level below;
    /// the default), `all` (when all that live have) or `none` (as it comes).
    #[serde(default)]
    pub sync: Option<String>,
    /// The hold in milliseconds, at most the period; 50 by default, or the period if that is shorter.
    #[serde(default)]
    pub hold_ms: Option<u64>,
}

/// The number of a stream.
#[derive(Debug, Clone, Copy, Serialize, Deserialize, ToSchema)]
pub struct StreamOpened {
    /// It.
    pub stream: u16,
}

/// How the overlay stands
///
/// The tree process by process, streams, books, losses, delays of the last ticks.
#[utoipa::path(get, path = "/v1/overlay", tag = "monitor", responses((status = 200, body = View)))]
pub async fn get(State(api): State<Api>) -> Json<View> {
    let now = api.shared.now();
    let core = api.shared.lock();
    Json(core.overlay.view(now, &core.endpoint))
}

/// Take the tree down
///
/// Until it is brought up again; the page shows what heartbeats say meanwhile.
#[utoipa::path(post, path = "/v1/overlay/down", tag = "monitor", responses((status = 200, body = View)))]
pub async fn down(State(api): State<Api>) -> Json<View> {
    changed(&api, |overlay, now| overlay.take_down(now))
}

/// Have a tree made again
#[utoipa::path(post, path = "/v1/overlay/up", tag = "monitor", responses((status = 200, body = View)))]
pub async fn up(State(api): State<Api>) -> Json<View> {
    changed(&api, |overlay, now| overlay.bring_up(now))
}

/// Changes the overlay and says how it stands then.
fn changed(api: &Api, change: impl FnOnce(&mut Overlay, Instant)) -> Json<View> {
    let now = api.shared.now();
    let mut core = api.shared.lock();
    change(&mut core.overlay, now);
    let view = core.overlay.view(now, &core.endpoint);
    drop(core);
    api.shared.kick();
    Json(view)
}

/// Open a stream
///
/// Its values are in the answers of `GET /v1/overlay`. A job's stream ends with the job.
#[utoipa::path(post, path = "/v1/overlay/streams", tag = "monitor", request_body = StreamRequest,
    responses((status = 200, body = StreamOpened), (status = 400, body = super::types::ErrorBody), (status = 404, body = super::types::ErrorBody), (status = 409, body = super::types::ErrorBody)))]
pub async fn open(
    State(api): State<Api>,
    Json(request): Json<StreamRequest>,
) -> Result<Json<StreamOpened>, Refusal> {
    let (job, mut spec) = wanted(request)?;
    let now = api.shared.now();
    let mut core = api.shared.lock();
    if let Some(job) = job {
        let known = core
            .runner
            .get(job)
            .map_err(|error| Refusal::new(StatusCode::NOT_FOUND, "no-such-job", error))?;
        if known.state.is_final() {
            let text = format!(
                "job {job} is over, and its nodes send nothing for it any more: what was kept of it is in `GET /v1/monitor/csv`"
            );
            return Err(Refusal::new(StatusCode::CONFLICT, "job-over", text));
        }
        // The job as its nodes know it in this attempt.
        spec.scope = Scope::Job(crate::jobs::attempt::on_nodes(job, known.restarts));
    }
    let opened = core.overlay.open(now, spec).map_err(Refusal::bad_request)?;
    drop(core);
    api.shared.kick();
    Ok(Json(StreamOpened { stream: opened.0 }))
}

/// Close a stream
#[utoipa::path(post, path = "/v1/overlay/streams/{stream}/close", tag = "monitor", params(("stream" = u16, Path, description = "Its number")),
    responses((status = 200, body = View), (status = 404, body = super::types::ErrorBody)))]
pub async fn close(State(api): State<Api>, Path(stream): Path<u16>) -> Result<Json<View>, Refusal> {
    let stream = netstack::overlay::StreamId(stream);
    let mut known = false;
    let view = changed(&api, |overlay, now| known = overlay.close(now, stream));
    match known {
        true => Ok(view),
        false => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            "no-such-stream",
            "nobody asked for a stream of this number; `hearth overlay` lists them",
        )),
    }
}

/// The job whose nodes a request is about, if it names one, and the stream that it wants, of all other nodes that it names.
fn wanted(request: StreamRequest) -> Result<(Option<u64>, StreamSpec), Refusal> {
    let scope = match (request.job, &request.nodes) {
        (_, None) => Scope::All,
        (None, Some(list)) => {
            crate::overlay::layout::nodes_scope(list).map_err(Refusal::bad_request)?
        }
        (Some(_), Some(_)) => {
            return Err(Refusal::bad_request(
                "a stream is of a job or of nodes: leave one of them out",
            ));
        }
    };
    let filter = view::filter_of(&request.filter, request.bounds).map_err(Refusal::bad_request)?;
    if request.metrics.len() > MAX_METRICS {
        let error = StreamError::Metrics(request.metrics.len());
        return Err(Refusal::bad_request(error));
    }
    let metrics: Result<Vec<MetricId>, Refusal> = request.metrics.iter().map(metric).collect();
    let mut spec = StreamSpec {
        scope,
        sync: sync(request.sync.as_deref()).map_err(Refusal::bad_request)?,
        ..StreamSpec::new(metrics?, filter, Micros::from_millis(request.period_ms))
    };
    if let Some(hold_ms) = request.hold_ms {
        spec.hold = Micros::from_millis(hold_ms);
    }
    Ok((request.job, spec))
}

/// The metric that a request names.
fn metric(name: &String) -> Result<MetricId, Refusal> {
    let known = view::metric_of(name).filter(|metric| view::name_of(*metric).is_some());
    known.ok_or_else(|| {
        let names = view::names();
        Refusal::bad_request(format!(
            "there is no metric {name:?}; there are:\n  {names}"
        ))
    })
}

fn sync(name: Option<&str>) -> Result<Sync, String> {
    Ok(match name {
        None | Some("timeout") => Sync::TimeOut,
        Some("all") => Sync::WaitAll,
        Some("none") => Sync::None,
        Some(name) => {
            return Err(format!(
                "there is no synchronisation {name:?}; there are timeout, all, none"
            ));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(metrics: &[&str]) -> StreamRequest {
        StreamRequest {
            metrics: metrics.iter().map(|name| name.to_string()).collect(),
            filter: "sum".into(),
            bounds: Vec::new(),
            period_ms: 1_000,
            job: None,
            nodes: None,
            sync: None,
            hold_ms: None,
        }
    }

    fn refused(request: StreamRequest) -> String {
        wanted(request).unwrap_err().body.error
    }

    #[test]
    fn names_are_looked_up_and_no_more_than_a_stream_can_have() {
        let (job, spec) = wanted(request(&["hearth_program_counter_0", "1"])).unwrap();
        let counter = MetricId(MetricId::FIRST_PROGRAM);
        assert_eq!(
            (job, spec.metrics, spec.scope),
            (None, vec![counter, MetricId(1)], Scope::All)
        );
        assert!(refused(request(&["nonsense"])).contains("hearth_call_X_total"));
        // As many as fit into a body; none of them is looked up.
        let error = refused(request(&["nonsense"; 38_000]));
        assert!(
            error.contains("38000 metrics: a stream has 1 to 64"),
            "{error}"
        );
    }

    #[test]
    fn times_that_are_too_long_for_the_type_are_refused() {
        let metrics = ["hearth_node_uptime_seconds"];
        for (period_ms, hold_ms) in [
            (18_446_744_073_709_562, None),
            (u64::MAX, None),
            (1_000, Some(18_446_744_073_709_552)),
            (1_000, Some(u64::MAX)),
        ] {
            let request = StreamRequest {
                period_ms,
                hold_ms,
                ..request(&metrics)
            };
            let (_, spec) = wanted(request).unwrap();
            assert!(spec.check().is_err(), "{period_ms} {hold_ms:?}");
        }
    }
}
