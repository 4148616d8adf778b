//! The monitoring overlay over HTTP: how it stands, further streams, taking the tree down and
//! having it made.
//!
//! Neighbours: `crate::overlay` does it; `catalogue` there knows metrics and units, so that numbers
//! in requests and answers are in the units that the metrics' names say.
//!
//! Invariant: what a request names is looked up before the lock of the control state is taken, and
//! no more of it than a stream can have.

use axum::Extension;
use axum::extract::{Json, Path, State};
use axum::http::StatusCode;
use netstack::ids::NodeId;
use netstack::overlay::filter::MAX_BUCKETS;
use netstack::overlay::stream::{MAX_METRICS, MAX_STREAMS, PERIOD_LEAST, PERIOD_MOST};
use netstack::overlay::{MetricId, Scope, StreamError, StreamSpec, Sync};
use netstack::time::{Instant, Micros};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Api, Refusal};
use crate::control::Core;
use crate::overlay::catalogue::{self, MetricRow};
use crate::overlay::view::{self, View};
use crate::overlay::{Overlay, layout};
use crate::principal::By;
use crate::{hostlist, near};

/// Filter of a stream whose request does not say.
pub const FILTER: &str = "sum";
/// Period of a stream whose request does not say, in milliseconds.
pub const PERIOD_MS: u64 = 1_000;

/// For the description of [`StreamRequest`].
fn filter_unsaid() -> String {
    FILTER.to_string()
}

/// The same.
fn period_unsaid() -> u64 {
    PERIOD_MS
}

/// A stream that somebody asks for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StreamRequest {
    /// Metrics by name, as `hearth_node_memory_used_bytes`, or by number in decimal digits, each
    /// once. `GET /v1/overlay/metrics` lists them.
    pub metrics: Vec<String>,
    /// `sum` (the default), `min`, `max`, `avg`, `concat`, `classes` or `histogram`.
    #[serde(default = "filter_unsaid")]
    #[schema(default = filter_unsaid)]
    pub filter: String,
    /// Bounds of a histogram, rising, 1 to 15, in the unit that the metrics' names say; other
    /// filters have none.
    #[serde(default)]
    pub bounds: Vec<f64>,
    /// Time between two ticks in milliseconds, 10 to 3600000; 1000 by default.
    #[serde(default = "period_unsaid")]
    #[schema(default = period_unsaid)]
    pub period_ms: u64,
    /// The nodes of this job only, until it ends.
    #[serde(default)]
    pub job: Option<u64>,
    /// These nodes only, as a hostlist of at most eight ranges of nodes that there are; not
    /// together with `job`.
    #[serde(default)]
    pub nodes: Option<String>,
    /// When a process passes a tick on: `timeout` (when all below have sent it, at the latest after
    /// the hold for each level below; the default), `all` (when all that live have) or `none` (as
    /// it comes).
    #[serde(default)]
    pub sync: Option<String>,
    /// The hold in milliseconds, at most the period; 50 by default, or the period if that is
    /// shorter.
    #[serde(default)]
    pub hold_ms: Option<u64>,
}

/// A stream that was opened.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct StreamOpened {
    /// Its number.
    pub stream: u16,
    /// State of the overlay: `standing`, or why no values come yet: `collecting` or `renewing` (a
    /// tree is about to be made) or `down` (somebody took it down). The stream is there then, and
    /// begins with the next tree.
    pub state: String,
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
pub async fn down(
    State(api): State<Api>,
    Extension(by): Extension<By>,
) -> Result<Json<View>, Refusal> {
    let operator = by.operator()?;
    Ok(changed(&api, |overlay, now| {
        overlay.take_down(&operator, now);
    }))
}

/// Have a tree made again
#[utoipa::path(post, path = "/v1/overlay/up", tag = "monitor", responses((status = 200, body = View), (status = 409, body = super::types::ErrorBody)))]
pub async fn up(
    State(api): State<Api>,
    Extension(by): Extension<By>,
) -> Result<Json<View>, Refusal> {
    let operator = by.operator()?;
    switched_on(&api.shared.lock())?;
    Ok(changed(&api, |overlay, now| {
        overlay.bring_up(&operator, now)
    }))
}

/// Metrics that streams can have
///
/// By number, with the unit of their values.
#[utoipa::path(get, path = "/v1/overlay/metrics", tag = "monitor", responses((status = 200, body = Vec<MetricRow>)))]
pub async fn metrics() -> Json<Vec<MetricRow>> {
    Json(catalogue::all())
}

/// Refuses what nothing can come of where the configuration has no overlay.
fn switched_on(core: &Core) -> Result<(), Refusal> {
    match core.overlay.state_word() {
        view::OFF => Err(Refusal::new(
            StatusCode::CONFLICT,
            "overlay-off",
            "this control node has no monitoring tree: set `enabled = true` in [overlay] of its configuration and start it again",
        )),
        _ => Ok(()),
    }
}

/// Changes the overlay and says how it stands then.
fn changed(api: &Api, change: impl FnOnce(&mut Overlay, Instant)) -> Json<View> {
    let now = api.shared.now();
    let mut core = api.shared.lock();
    change(&mut core.overlay, now);
    core.settle(now);
    let view = core.overlay.view(now, &core.endpoint);
    drop(core);
    api.shared.kick();
    Json(view)
}

/// Open a stream
///
/// Its values are in the answers of `GET /v1/overlay`. A job's stream ends with the job. While no
/// tree stands it is kept, and begins with the next one.
#[utoipa::path(post, path = "/v1/overlay/streams", tag = "monitor", request_body = StreamRequest,
    responses((status = 200, body = StreamOpened), (status = 400, body = super::types::ErrorBody), (status = 404, body = super::types::ErrorBody), (status = 409, body = super::types::ErrorBody)))]
pub async fn open(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Json(request): Json<StreamRequest>,
) -> Result<Json<StreamOpened>, Refusal> {
    let operator = by.operator()?;
    let nodes = api.nodes_if(request.nodes.as_deref())?;
    let (job, mut spec) = wanted(request, nodes)?;
    let now = api.shared.now();
    let mut core = api.shared.lock();
    switched_on(&core)?;
    if let Scope::Nodes(ranges) = &spec.scope {
        there_are(&core, ranges)?;
    }
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
    let opened = core.overlay.open(&operator, now, spec).map_err(refused)?;
    let state = core.overlay.state_word().to_string();
    // It is written down before anybody counts on it.
    core.settle(now);
    drop(core);
    api.shared.kick();
    Ok(Json(StreamOpened {
        stream: opened.0,
        state,
    }))
}

/// Refuses nodes that there are not.
fn there_are(core: &Core, ranges: &[(NodeId, NodeId)]) -> Result<(), Refusal> {
    let wanted = ranges.iter().flat_map(|(first, last)| first.0..=last.0);
    match hostlist::unknown(wanted, &core.known_nodes()) {
        Some(text) => Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-nodes", text)),
        None => Ok(()),
    }
}

/// Why a stream cannot be opened, in the words of the request.
fn refused(error: StreamError) -> Refusal {
    let text = match error {
        StreamError::Period => format!(
            "the period is {} to {} milliseconds",
            PERIOD_LEAST.as_micros() / 1_000,
            PERIOD_MOST.as_micros() / 1_000
        ),
        StreamError::Hold => {
            "the hold is 1 millisecond or more, and no longer than the period".to_string()
        }
        StreamError::Bounds => format!(
            "a histogram has 1 to {} bounds, each larger than the one before: `--bounds 1,10,100`, or `bounds` in a request",
            MAX_BUCKETS - 1
        ),
        StreamError::Full => {
            let text = format!(
                "{MAX_STREAMS} streams are open, which is the most, those of control and of its configuration among them: `hearth overlay close STREAM` closes one, `hearth overlay` lists those that somebody has opened"
            );
            return Refusal::new(StatusCode::CONFLICT, "too-many-streams", text);
        }
        error => error.to_string(),
    };
    Refusal::bad_request(text)
}

/// Close a stream
#[utoipa::path(post, path = "/v1/overlay/streams/{stream}/close", tag = "monitor", params(("stream" = u16, Path, description = "Its number")),
    responses((status = 200, body = View), (status = 404, body = super::types::ErrorBody)))]
pub async fn close(
    State(api): State<Api>,
    Extension(by): Extension<By>,
    Path(stream): Path<u16>,
) -> Result<Json<View>, Refusal> {
    let operator = by.operator()?;
    let stream = netstack::overlay::StreamId(stream);
    let mut known = false;
    let view = changed(&api, |overlay, now| {
        known = overlay.close(&operator, now, stream)
    });
    match known {
        true => Ok(view),
        false => {
            let text = format!(
                "nobody has opened stream {}, or it has ended; `hearth overlay` lists those that can be closed",
                stream.0
            );
            Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-stream", text))
        }
    }
}

/// The job whose nodes a request is about, if it names one, and the stream that it wants, of all
/// other `nodes` that it names.
fn wanted(
    request: StreamRequest,
    nodes: Option<Vec<u32>>,
) -> Result<(Option<u64>, StreamSpec), Refusal> {
    let scope = match (request.job, nodes) {
        (_, None) => Scope::All,
        (None, Some(nodes)) => layout::nodes_scope(nodes),
        (Some(_), Some(_)) => {
            return Err(Refusal::bad_request(
                "a stream is of a job or of nodes: leave one of them out",
            ));
        }
    };
    if request.metrics.len() > MAX_METRICS {
        let error = StreamError::Metrics(request.metrics.len());
        return Err(Refusal::bad_request(error));
    }
    let metrics = metrics_of(&request.metrics).map_err(Refusal::bad_request)?;
    let filter = view::filter_of(&request.filter, &request.bounds, &metrics);
    let filter = filter.map_err(Refusal::bad_request)?;
    let mut spec = StreamSpec {
        scope,
        sync: sync(request.sync.as_deref()).map_err(Refusal::bad_request)?,
        ..StreamSpec::new(metrics, filter, Micros::from_millis(request.period_ms))
    };
    if let Some(hold_ms) = request.hold_ms {
        spec.hold = Micros::from_millis(hold_ms);
    }
    Ok((request.job, spec))
}

/// The metrics that a request names, each once.
fn metrics_of(names: &[String]) -> Result<Vec<MetricId>, String> {
    let mut metrics: Vec<MetricId> = Vec::with_capacity(names.len());
    for name in names {
        let metric = catalogue::wanted(name)?;
        if metrics.contains(&metric) {
            let name = catalogue::shown_name(metric);
            return Err(format!("{name} is named twice; name each metric once"));
        }
        metrics.push(metric);
    }
    Ok(metrics)
}

fn sync(name: Option<&str>) -> Result<Sync, String> {
    Ok(match name {
        None | Some("timeout") => Sync::TimeOut,
        Some("all") => Sync::WaitAll,
        Some("none") => Sync::None,
        Some(name) => {
            let words = ["timeout", "all", "none"];
            let near = near::did_you_mean(name, words.into_iter());
            let name = near::quoted(name);
            return Err(format!(
                "there is no synchronisation {name}{near}; there are timeout, all, none"
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
        wanted(request, None).unwrap_err().body.error
    }

    #[test]
    fn names_are_looked_up_and_no_more_than_a_stream_can_have() {
        let (job, spec) = wanted(request(&["hearth_program_counter_0", "1"]), None).unwrap();
        let counter = MetricId(MetricId::FIRST_PROGRAM);
        assert_eq!(
            (job, spec.metrics, spec.scope),
            (None, vec![counter, MetricId(1)], Scope::All)
        );
        assert!(refused(request(&["nonsense"])).contains("`hearth overlay metrics`"));
        let twice = refused(request(&["hearth_node_uptime_seconds", "2", "1"]));
        assert!(
            twice.contains("hearth_node_uptime_seconds is named twice"),
            "{twice}"
        );
        // A name as long as a body is compared with nothing, and not repeated.
        let long = "x".repeat(1_000_000);
        let error = refused(request(&[&long[..]; 64]));
        assert!(error.len() < 300, "{} bytes", error.len());
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
            let (_, spec) = wanted(request, None).unwrap();
            assert!(spec.check().is_err(), "{period_ms} {hold_ms:?}");
        }
    }
}
