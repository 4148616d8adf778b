//! Watching the cluster over HTTP: the page, its stream, questions to the files, `/metrics`.
//!
//! | request | answer |
//! |---|---|
//! | `GET /`, `GET /web/FILE` | the page ([`page`]) |
//! | `GET /v1/monitor/stream?metric=NAME[&node=N]` | server-sent events ([`stream`]) |
//! | `GET /v1/monitor/now` | [`Now`]: every node with all its values |
//! | `GET /v1/monitor/series?metric=NAME[&nodes=LIST][&from=MS][&to=MS][&points=N]` | [`Series`] |
//! | `GET /v1/monitor/nodes?metric=NAME[&nodes=LIST][&from=MS][&to=MS][&points=N]` | [`ByNode`] |
//! | `GET /v1/monitor/at?metric=NAME&time=MS[&node=N]` | [`At`]: what was known at an instant of the past |
//! | `GET /v1/monitor/csv?[metrics=A,B][&nodes=LIST][&from=MS][&to=MS][&level=tick,minute,hour]` | the same as CSV ([`export`]) |
//! | `GET /v1/monitor/streams`, `GET /v1/monitor/reduced?stream=NAME` | values of streams ([`streams`]) |
//! | `POST /v1/monitor/acknowledge` | takes [`Acknowledge`] |
//! | `GET /metrics` | OpenMetrics |
//!
//! Times are milliseconds since 1970. Neighbours: `crate::monitor`, `hearth_monitor`.
//!
//! Invariants: questions to the files run outside the async threads, a few at a time, each with a
//! bound on its time to wait and its values; downloads, whose clients may sleep, have places of
//! their own. Nothing here takes the lock of the control state.

pub mod export;
pub mod page;
pub mod stream;
pub mod streams;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{Json, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Extension, Router};
use hearth_monitor::reader::{Nodes, VALUES_MAX};
use hearth_monitor::{DAY_MS, Kind, Level, Metric, MonitorError, Reader, Span, csv, openmetrics};
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Refusal;
use crate::blocking;
use crate::monitor::picture::{Health, JobNow, NodeNow, Picture, SLOW_AFTER_US, STALE_AFTER_US};
use crate::monitor::{Monitor, Shown, metrics};
use crate::principal::{By, Denied};
use crate::{hostlist, near};

/// Span of a question that does not say: a quarter of an hour.
const SPAN_MS: u64 = 900_000;
/// Points of an answer that does not say.
const POINTS: u64 = 600;
/// Most points of an answer, but for hours; a question can ask for 1 to so many.
const POINTS_MAX: u64 = 5_000;
/// How long a question waits until others are answered.
const ASK_WAIT: Duration = Duration::from_secs(10);
/// Longest span of a question.
const SPAN_MAX_MS: u64 = 400 * DAY_MS;
/// How far back [`at`] looks for a node's last value: as long as a node is not stale, and a tick
/// more for rates.
const AT_AGE_MS: u64 = 5_000;
/// Events that one request can acknowledge.
const ACKNOWLEDGE_MAX: usize = 1_000;

/// All routes.
pub fn router(monitor: Arc<Monitor>) -> Router {
    let (routes, _) = described().split_for_parts();
    routes.with_state(monitor)
}

/// All routes, with their descriptions but for the page's own.
pub fn described() -> OpenApiRouter<Arc<Monitor>> {
    OpenApiRouter::new()
        .route("/", get(page::index))
        .route("/web/{file}", get(page::file))
        .routes(routes!(open_metrics))
        .routes(routes!(now))
        .routes(routes!(stream::stream))
        .routes(routes!(series))
        .routes(routes!(by_node))
        .routes(routes!(at))
        .routes(routes!(streams::streams))
        .routes(routes!(streams::reduced))
        .routes(routes!(export::export))
        .routes(routes!(acknowledge))
}

/// A metric, as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricInfo {
    /// Its name.
    pub name: String,
    /// Base unit; empty for plain counts.
    pub unit: String,
    /// One sentence.
    pub help: String,
    /// Whether it is a count; its values are rates a second then.
    pub counter: bool,
}

impl From<&Metric> for MetricInfo {
    fn from(metric: &Metric) -> Self {
        MetricInfo {
            name: metric.name.clone(),
            unit: metric.unit.clone(),
            help: metric.help.clone(),
            counter: metric.kind == Kind::Counter,
        }
    }
}

/// A node, as clients see it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    /// Its number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// How it does.
    pub health: Health,
    /// Its job.
    pub job: Option<u64>,
    /// MAC address.
    pub mac: String,
    /// Address of its control traffic.
    pub address: Option<String>,
    /// Why it gets no jobs, if it is drained.
    #[serde(default)]
    pub drained: Option<String>,
    /// Counters that its program has set, by their numbers; empty without any.
    #[serde(default)]
    pub counters: Vec<Option<i64>>,
    /// Its values by the order of the metrics, in base units, counters as rates; `null`: no data.
    pub values: Vec<Option<f64>>,
}

/// What `GET /v1/monitor/now` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Milliseconds since 1970 at which the oldest of the nodes' values were read; `null`: they are
    /// those of heartbeats.
    #[serde(default)]
    pub read_ms: Option<u64>,
    /// Version of control.
    pub version: String,
    /// Widths of the fat tree from the leaves up; empty: one switch.
    pub tree: Vec<u32>,
    /// What is measured.
    pub metrics: Vec<MetricInfo>,
    /// Nodes by number.
    pub nodes: Vec<NodeView>,
    /// How many nodes do how.
    pub healths: BTreeMap<String, usize>,
    /// Share of the control datagrams of the last minute that were repetitions.
    pub loss: f64,
    /// Jobs by number: those that are not over, and the last that are.
    pub jobs: Vec<JobNow>,
    /// Jobs that are not over.
    pub active_jobs: usize,
    /// The newest events.
    pub events: Vec<crate::events::Event>,
    /// Numbers of events that somebody has acknowledged.
    pub acknowledged: Vec<u64>,
    /// Why values are not kept at present.
    pub trouble: Option<String>,
    /// Ticks that the files lack.
    pub lost_ticks: u64,
}

/// How many nodes do how, by word.
pub fn healths(shown: &Shown) -> BTreeMap<String, usize> {
    let words = Health::ALL.map(|health| health.word().to_string());
    words.into_iter().zip(shown.picture.healths()).collect()
}

/// Every node with all its values, jobs and the newest events.
#[utoipa::path(get, path = "/v1/monitor/now", tag = "monitor", responses((status = 200, body = Object)))]
async fn now(State(monitor): State<Arc<Monitor>>) -> Json<Now> {
    let shown = monitor.now();
    let picture = &shown.picture;
    let node = |(node, values): (&NodeNow, &Vec<Option<f64>>)| NodeView {
        node: node.node,
        name: hostlist::name(node.node),
        health: node.health,
        job: node.job,
        mac: node.mac.clone(),
        address: node.address.clone(),
        drained: node.drained.clone(),
        counters: node.counters.clone(),
        values: values.clone(),
    };
    let (trouble, lost_ticks) = monitor.trouble();
    Json(Now {
        at_ms: picture.at_ms,
        read_ms: picture.read_ms,
        version: monitor.setup().version.clone(),
        tree: monitor.setup().tree.clone(),
        metrics: monitor.metrics().iter().map(MetricInfo::from).collect(),
        nodes: picture.nodes.iter().zip(&shown.values).map(node).collect(),
        healths: healths(&shown),
        loss: shown.loss,
        jobs: picture.jobs.clone(),
        active_jobs: picture.active_jobs,
        events: picture.events.clone(),
        acknowledged: monitor.acknowledged.all(),
        trouble,
        lost_ticks,
    })
}

/// Query of the questions to the files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    metric: Option<String>,
    metrics: Option<String>,
    nodes: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
    points: Option<u64>,
    level: Option<String>,
}

/// A question that was checked.
#[derive(Debug)]
struct Checked {
    dir: PathBuf,
    nodes: Option<Vec<u32>>,
    span: Span,
    level: Level,
}

impl Checked {
    fn nodes(&self) -> Nodes<'_> {
        self.nodes.as_deref().map_or(Nodes::All, Nodes::Only)
    }

    /// Refuses nodes that there are not, and were not in the time that is asked about: nothing is
    /// kept of them. Looks in `place`; without one, in one of those of questions.
    async fn there(
        self,
        monitor: &Arc<Monitor>,
        place: Option<&Place>,
    ) -> Result<Checked, Refusal> {
        let mut known: Vec<u32> = numbers(&monitor.now().picture);
        let named = self.nodes.iter().flatten().copied();
        let strange: Vec<u32> = named
            .filter(|node| known.binary_search(node).is_err())
            .collect();
        if strange.is_empty() {
            return Ok(self);
        }
        let place = match place {
            Some(place) => place.clone(),
            None => for_question(monitor).await?,
        };
        let (span, wanted) = (self.span, strange.clone());
        let kept = ask_in(monitor, place, self.dir.clone(), move |reader| {
            reader.kept(span, &wanted)
        });
        known.extend(kept.await?);
        known.sort_unstable();
        match hostlist::unknown(strange, &known) {
            Some(text) => {
                let text = format!("{text}, and nothing is kept of others in that time");
                Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-nodes", text))
            }
            None => Ok(self),
        }
    }
}

/// The numbers of the nodes in a picture, ascending.
fn numbers(picture: &Picture) -> Vec<u32> {
    let mut numbers: Vec<u32> = picture.nodes.iter().map(|node| node.node).collect();
    numbers.sort_unstable();
    numbers
}

impl Question {
    fn check(&self, monitor: &Monitor) -> Result<Checked, Refusal> {
        let Some(dir) = monitor.dir() else {
            let text =
                "this control node keeps no metrics: it was started without a state directory";
            return Err(Refusal::new(StatusCode::NOT_FOUND, "no-history", text));
        };
        let to_ms = self.to.unwrap_or(monitor.now().picture.at_ms + 1);
        let from_ms = self.from.unwrap_or(to_ms.saturating_sub(SPAN_MS));
        let span = Span { from_ms, to_ms };
        if to_ms <= from_ms || to_ms - from_ms > SPAN_MAX_MS {
            let text =
                "`from` and `to` are milliseconds since 1970, `from` first, at most 400 days apart";
            return Err(Refusal::bad_request(text));
        }
        let points = self.points.unwrap_or(POINTS);
        if !(1..=POINTS_MAX).contains(&points) {
            let text = format!("`points` is 1 to {POINTS_MAX}, not {points}");
            return Err(Refusal::bad_request(text));
        }
        let level = match self.level.as_deref() {
            None => Level::within(span, points),
            Some("tick") => Level::Tick,
            Some("minute") => Level::Minute,
            Some("hour") => Level::Hour,
            Some(_) => return Err(Refusal::bad_request("`level` is tick, minute or hour")),
        };
        let nodes = match self.nodes.as_deref() {
            None | Some("") => None,
            Some(list) => {
                let mut nodes = monitor.hosts().list(list).map_err(Refusal::bad_request)?;
                nodes.sort_unstable();
                nodes.dedup();
                Some(nodes)
            }
        };
        Ok(Checked {
            dir: dir.to_path_buf(),
            nodes,
            span,
            level,
        })
    }

    /// For an answer that is made in memory: refuses a level that is too fine for the span.
    fn bounded(self, monitor: &Monitor) -> Result<Checked, Refusal> {
        let checked = self.check(monitor)?;
        let Span { from_ms, to_ms } = checked.span;
        let points = (to_ms - from_ms) / checked.level.step_ms();
        if points > POINTS_MAX && checked.level != Level::Hour {
            let text = format!(
                "{points} points of level {} are more than {POINTS_MAX}: ask for a shorter time or a coarser level, or for CSV",
                checked.level.word()
            );
            return Err(Refusal::bad_request(text));
        }
        Ok(checked)
    }

    fn one(&self, monitor: &Monitor) -> Result<Metric, Refusal> {
        if self.metrics.is_some() {
            let text = "this question is about one metric: name it with `metric`, not `metrics`";
            return Err(Refusal::bad_request(text));
        }
        match self.metric.as_deref() {
            None | Some("") => Err(missing("metric", "GET /v1/monitor/now")),
            Some(name) => pick(monitor, name),
        }
    }

    fn several(&self, monitor: &Monitor) -> Result<Vec<Metric>, Refusal> {
        if self.metric.is_some() {
            let text = "name metrics with `metrics`, separated by commas, not with `metric`";
            return Err(Refusal::bad_request(text));
        }
        match self.metrics.as_deref() {
            None | Some("") => Ok(monitor.metrics().to_vec()),
            Some(names) => {
                let mut picked: Vec<Metric> = Vec::new();
                for name in names.split(',') {
                    let metric = pick(monitor, name)?;
                    if picked.iter().any(|known| known.name == metric.name) {
                        let text = format!("`metrics` names {name} twice; name each once");
                        return Err(Refusal::bad_request(text));
                    }
                    picked.push(metric);
                }
                Ok(picked)
            }
        }
    }
}

/// A question without what it is about; `lists` says what there is.
fn missing(parameter: &str, lists: &str) -> Refusal {
    Refusal::bad_request(format!(
        "the parameter `{parameter}` is missing; `{lists}` lists what it can be"
    ))
}

fn pick(monitor: &Monitor, name: &str) -> Result<Metric, Refusal> {
    place_of(monitor, name).map(|place| monitor.metrics()[place].clone())
}

/// The place of a metric among all.
fn place_of(monitor: &Monitor, name: &str) -> Result<usize, Refusal> {
    monitor.metric(name).ok_or_else(|| {
        let names = monitor.metrics().iter().map(|metric| metric.name.as_str());
        let near = near::did_you_mean(name, names);
        let name = near::quoted(name);
        let text = format!("no metric is called {name}{near}; `GET /v1/monitor/now` lists them");
        Refusal::new(StatusCode::NOT_FOUND, "no-such-metric", text)
    })
}

/// The right to read the files, for as long as somebody holds it.
type Place = Arc<OwnedSemaphorePermit>;

/// A place for a question, when there is one.
async fn for_question(monitor: &Monitor) -> Result<Place, Refusal> {
    let place = monitor.questions.clone().acquire_owned();
    let place = tokio::time::timeout(ASK_WAIT, place).await;
    let busy = "other questions to the files take long: ask again later, or for a shorter time";
    let place = place.map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "busy", busy))?;
    Ok(Arc::new(place.expect("the semaphore is never closed")))
}

/// Runs a question to the files in `dir`, when there is a place.
async fn ask<T: Send + 'static>(
    monitor: &Arc<Monitor>,
    dir: PathBuf,
    question: impl FnOnce(&Reader) -> Result<T, MonitorError> + Send + 'static,
) -> Result<T, Refusal> {
    let place = for_question(monitor).await?;
    ask_in(monitor, place, dir, question).await
}

/// Runs a question to the files in `dir` outside the async threads, in `place`. Files that it finds
/// to be damaged are told as events.
async fn ask_in<T: Send + 'static>(
    monitor: &Arc<Monitor>,
    place: Place,
    dir: PathBuf,
    question: impl FnOnce(&Reader) -> Result<T, MonitorError> + Send + 'static,
) -> Result<T, Refusal> {
    let telling = monitor.clone();
    let answer = blocking::run(move || {
        let _place = place;
        let reader = Reader::new(&dir);
        let answer = question(&reader);
        telling.tell_damaged(&reader.damaged());
        answer
    });
    answer.await.map_err(|error| match error {
        MonitorError::TooMuch(_) => Refusal::bad_request(error),
        _ => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "store-failed", error),
    })
}

/// What `GET /v1/monitor/series` answers.
#[derive(Debug, Serialize)]
pub struct Series {
    /// `tick`, `minute` or `hour`.
    level: &'static str,
    /// Milliseconds since 1970.
    at_ms: Vec<u64>,
    /// The smallest value of any node.
    min: Vec<f64>,
    /// The mean.
    mean: Vec<f64>,
    /// The largest.
    max: Vec<f64>,
    /// Nodes that each point covers.
    nodes: Vec<u32>,
    /// Days whose files are damaged: what could not be read of them is missing.
    damaged: Vec<String>,
}

/// The days of files, as `2026-11-22`.
fn days(paths: &[PathBuf]) -> Vec<String> {
    let stems = paths.iter().filter_map(|path| path.file_stem());
    stems
        .map(|stem| stem.to_string_lossy().into_owned())
        .collect()
}

/// One metric over time, over all nodes together.
#[utoipa::path(get, path = "/v1/monitor/series", tag = "monitor", params(("metric" = String, Query, description = "Name of a metric"), ("nodes" = Option<String>, Query, description = "A node list; none: all"), ("from" = Option<u64>, Query, description = "Milliseconds since 1970"), ("to" = Option<u64>, Query, description = "Milliseconds since 1970"), ("points" = Option<u64>, Query, description = "At most so many: 1 to 5000, 600 by default", minimum = 1, maximum = 5000), ("level" = Option<String>, Query, description = "tick, minute or hour")), responses((status = 200, body = Object)))]
async fn series(
    State(monitor): State<Arc<Monitor>>,
    Query(question): Query<Question>,
) -> Result<Json<Series>, Refusal> {
    let metric = question.one(&monitor)?;
    let checked = question.bounded(&monitor)?.there(&monitor, None).await?;
    let level = checked.level.word();
    let points = ask(&monitor, checked.dir.clone(), move |reader| {
        let points = reader.series(&metric, checked.level, checked.span, checked.nodes())?;
        Ok((points, days(&reader.damaged())))
    });
    let (points, damaged) = points.await?;
    Ok(Json(Series {
        level,
        damaged,
        at_ms: points.iter().map(|point| point.at_ms).collect(),
        min: points.iter().map(|point| point.min).collect(),
        mean: points.iter().map(|point| point.mean).collect(),
        max: points.iter().map(|point| point.max).collect(),
        nodes: points.iter().map(|point| point.nodes).collect(),
    }))
}

/// What `GET /v1/monitor/nodes` answers.
#[derive(Debug, Serialize)]
pub struct ByNode {
    /// `tick`, `minute` or `hour`.
    level: &'static str,
    /// Milliseconds between two steps.
    step_ms: u64,
    /// By the node's number: pairs of time and value.
    nodes: BTreeMap<u32, Vec<(u64, f64)>>,
    /// Days whose files are damaged: what could not be read of them is missing.
    damaged: Vec<String>,
}

/// One metric over time, node by node.
#[utoipa::path(get, path = "/v1/monitor/nodes", tag = "monitor", params(("metric" = String, Query, description = "Name of a metric"), ("nodes" = Option<String>, Query, description = "A node list; none: all"), ("from" = Option<u64>, Query, description = "Milliseconds since 1970"), ("to" = Option<u64>, Query, description = "Milliseconds since 1970"), ("points" = Option<u64>, Query, description = "At most so many: 1 to 5000, 600 by default", minimum = 1, maximum = 5000), ("level" = Option<String>, Query, description = "tick, minute or hour")), responses((status = 200, body = Object)))]
async fn by_node(
    State(monitor): State<Arc<Monitor>>,
    Query(mut question): Query<Question>,
) -> Result<Json<ByNode>, Refusal> {
    let metric = question.one(&monitor)?;
    // All nodes together have as many values as an answer may.
    let nodes = match question.nodes.as_deref() {
        None | Some("") => monitor.now().picture.nodes.len(),
        Some(list) => {
            let nodes = monitor.hosts().list(list);
            nodes.map_err(Refusal::bad_request)?.len()
        }
    };
    let room = (VALUES_MAX / nodes.max(1)) as u64;
    // More than any question can ask for is refused as such.
    let fewer = |points: u64| match points <= POINTS_MAX {
        true => points.min(room),
        false => points,
    };
    question.points = Some(question.points.map_or(POINTS.min(room), fewer));
    let checked = question.bounded(&monitor)?.there(&monitor, None).await?;
    let level = checked.level;
    let answer = ask(&monitor, checked.dir.clone(), move |reader| {
        let nodes = reader.by_node(&metric, checked.level, checked.span, checked.nodes())?;
        Ok((nodes, days(&reader.damaged())))
    });
    let (nodes, damaged) = answer.await?;
    Ok(Json(ByNode {
        level: level.word(),
        step_ms: level.step_ms(),
        nodes,
        damaged,
    }))
}

/// Query of `GET /v1/monitor/at`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AtQuery {
    time: u64,
    metric: String,
    node: Option<u32>,
}

/// What `GET /v1/monitor/at` answers: what was known of the nodes then, of each what came last in
/// the five seconds before, as long as it was not stale.
#[derive(Debug, Default, Serialize)]
pub struct At {
    /// By the node's number: the value in its base unit, counters as rates.
    values: BTreeMap<u32, f64>,
    /// By the node's number: how it did, as a letter as in the stream: idle, busy or slow. Others
    /// had not been heard for longer than that, or were not there.
    letters: BTreeMap<u32, char>,
    /// By the node's number: its job.
    jobs: BTreeMap<u32, u64>,
    /// All values of the node that was asked for, in the order of the metrics.
    all: Option<Vec<Option<f64>>>,
    /// Days whose files are damaged: what could not be read of them is missing.
    damaged: Vec<String>,
}

/// How a node did at `time`, in milliseconds since 1970, by its newest row of then: `has_job`, and
/// how long it had been `silent`, in seconds, at the time of that row, which is shown until the
/// next tick. `None`: it was stale by then, or the row does not say.
fn health_then(time: u64, at_ms: u64, has_job: Option<f64>, silent: Option<f64>) -> Option<Health> {
    let missed_ms = time
        .saturating_sub(at_ms)
        .saturating_sub(Level::Tick.step_ms());
    let silent_us = silent.unwrap_or(0.0) * 1e6 + missed_ms as f64 * 1e3;
    Some(match has_job? {
        _ if silent_us > STALE_AFTER_US as f64 => return None,
        _ if silent_us > SLOW_AFTER_US as f64 => Health::Slow,
        has_job if has_job > 0.0 => Health::Busy,
        _ => Health::Idle,
    })
}

/// Values of one moment of the past.
#[utoipa::path(get, path = "/v1/monitor/at", tag = "monitor", params(("time" = u64, Query, description = "Milliseconds since 1970"), ("metric" = String, Query, description = "Name of a metric"), ("node" = Option<u32>, Query, description = "A node of which all values come")), responses((status = 200, body = Object)))]
async fn at(
    State(monitor): State<Arc<Monitor>>,
    Query(query): Query<AtQuery>,
) -> Result<Json<At>, Refusal> {
    let metric = pick(&monitor, &query.metric)?;
    let question = Question {
        metric: None,
        metrics: None,
        nodes: None,
        from: Some(query.time.saturating_sub(AT_AGE_MS)),
        to: Some(query.time.saturating_add(1)),
        points: None,
        level: Some("tick".into()),
    };
    let mut checked = question.check(&monitor)?;
    checked.nodes = query.node.map(|node| vec![node]);
    let dir = checked.there(&monitor, None).await?.dir;
    let declared = monitor.metrics().to_vec();
    let AtQuery { time, node, .. } = query;
    let answer = ask(&monitor, dir, move |reader| {
        let [has_job, job, silent] = metrics::of_state();
        let metrics = [metric, has_job, job, silent];
        let mut answer = At::default();
        let mut stale = BTreeSet::new();
        for (node, shown) in reader.shown_at(time, AT_AGE_MS, &metrics, Nodes::All)? {
            let values = shown.values;
            let Some(health) = health_then(time, shown.at_ms, values[1], values[3]) else {
                stale.insert(node);
                continue;
            };
            answer.letters.insert(node, health.letter());
            if let Some(value) = values[0] {
                answer.values.insert(node, value);
            }
            if let Some(job) = values[2].filter(|job| *job > 0.0) {
                answer.jobs.insert(node, job as u64);
            }
        }
        if let Some(node) = node.filter(|node| !stale.contains(node)) {
            let mut of_node = reader.shown_at(time, AT_AGE_MS, &declared, Nodes::Only(&[node]))?;
            answer.all = of_node.remove(&node).map(|shown| shown.values);
        }
        answer.damaged = days(&reader.damaged());
        Ok(answer)
    });
    Ok(Json(answer.await?))
}

/// What `POST /v1/monitor/acknowledge` takes.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Acknowledge {
    /// Numbers of events.
    events: Vec<u64>,
}

/// Note that somebody has seen these events.
#[utoipa::path(post, path = "/v1/monitor/acknowledge", tag = "monitor", request_body = Acknowledge, responses((status = 200, body = Vec<u64>), (status = 404, body = crate::api::types::ErrorBody)))]
async fn acknowledge(
    State(monitor): State<Arc<Monitor>>,
    Extension(by): Extension<By>,
    Json(request): Json<Acknowledge>,
) -> Result<Json<Vec<u64>>, Refusal> {
    if request.events.len() > ACKNOWLEDGE_MAX {
        let text = format!("at most {ACKNOWLEDGE_MAX} events at a time");
        return Err(Refusal::bad_request(text));
    }
    let newest = monitor.setup().newest_event.load(Ordering::Relaxed);
    let strange = |number: &&u64| !(1..=newest).contains(*number);
    if let Some(number) = request.events.iter().find(strange) {
        let there = match newest {
            0 => "nothing has happened yet".to_string(),
            newest => format!("they have the numbers 1 to {newest}"),
        };
        let text = format!(
            "there is no event {number}; {there} (`GET /v1/events`), and none of these was noted"
        );
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-event", text));
    }
    let monitor = blocking::run(move || {
        let operator = by.operator()?;
        if let Err(error) = monitor.acknowledged.add(&operator, &request.events) {
            tracing::warn!("acknowledged events are kept in memory only: {error}");
        }
        Ok::<_, Denied>(monitor)
    });
    let monitor = monitor.await?;
    Ok(Json(monitor.acknowledged.all()))
}

/// The present values as OpenMetrics, for Prometheus.
#[utoipa::path(get, path = "/metrics", tag = "monitor", responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn open_metrics(State(monitor): State<Arc<Monitor>>) -> Response {
    let shown = monitor.now();
    let picture = &shown.picture;
    let mut text = openmetrics::Text::default();
    let (_, lost) = monitor.trouble();
    text.family("hearth_nodes", Kind::Gauge, "", "Nodes by how they do.");
    for (word, count) in healths(&shown) {
        text.sample(&[("state", &word)], count as f64);
    }
    text.family(
        "hearth_jobs_active",
        Kind::Gauge,
        "",
        "Jobs that are not over.",
    );
    text.sample(&[], picture.active_jobs as f64);
    text.family(
        "hearth_control_datagrams_sent_total",
        Kind::Counter,
        "",
        "Control datagrams sent.",
    );
    text.sample(&[], picture.sent as f64);
    text.family(
        "hearth_control_datagrams_repeated_total",
        Kind::Counter,
        "",
        "Control datagrams sent again because no answer came.",
    );
    text.sample(&[], picture.repeated as f64);
    text.family(
        "hearth_monitor_lost_ticks_total",
        Kind::Counter,
        "",
        "Ticks that the files lack.",
    );
    text.sample(&[], lost as f64);
    // Counters of programs come by their names, below.
    let of_node = &monitor.metrics()[..crate::monitor::metrics::OF_NODE];
    for (place, metric) in of_node.iter().enumerate() {
        text.family(&metric.name, metric.kind, &metric.unit, &metric.help);
        for node in &picture.nodes {
            if let Some(Some(value)) = node.values.get(place) {
                let value = csv::scaled(*value as f64, metric.scale);
                text.sample(&[("node", &hostlist::name(node.node))], value);
            }
        }
    }
    further_metrics(&mut text, picture);
    let head = [(header::CONTENT_TYPE, openmetrics::CONTENT_TYPE)];
    (head, text.finish()).into_response()
}

/// What not every node has: drained marks, sums over all nodes, values of further collectors,
/// counters of programs.
fn further_metrics(text: &mut openmetrics::Text, picture: &Picture) {
    let help = "1 for a node that gets no jobs.";
    text.family("hearth_node_drained", Kind::Gauge, "", help);
    for node in &picture.nodes {
        let value = f64::from(u8::from(node.drained.is_some()));
        text.sample(&[("node", &hostlist::name(node.node))], value);
    }
    for further in &picture.further {
        let kind = match further.counter {
            true => Kind::Counter,
            false => Kind::Gauge,
        };
        text.family(&further.name, kind, &further.unit, &further.help);
        for (of, value) in &further.values {
            match of {
                Some((label, of)) => text.sample(&[(label, of)], *value),
                None => text.sample(&[], *value),
            }
        }
    }
    let nodes = picture
        .nodes
        .iter()
        .filter(|node| !node.counters.is_empty());
    let nodes: Vec<&NodeNow> = nodes.collect();
    if nodes.is_empty() {
        return;
    }
    let help = "Counters that programs set, by the names that they gave them.";
    text.family("hearth_program_counter", Kind::Gauge, "", help);
    for node in nodes {
        let (name, job) = (hostlist::name(node.node), node.job.unwrap_or(0).to_string());
        let job_now = picture.jobs.iter().find(|known| Some(known.id) == node.job);
        for (index, value) in node.counters.iter().enumerate() {
            if let Some(value) = value {
                let given = job_now.and_then(|job| job.counters.get(index));
                let counter = given.cloned().unwrap_or_else(|| index.to_string());
                let labels = [("node", &name[..]), ("job", &job), ("counter", &counter)];
                text.sample(&labels, *value as f64);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_of_the_past_is_judged_by_the_age_of_its_last_row() {
        const ROW: u64 = 1_000_000;
        let then = |after_ms: u64, has_job: f64, silent: f64| {
            health_then(ROW + after_ms, ROW, Some(has_job), Some(silent))
        };
        assert_eq!(then(0, 0.0, 0.1), Some(Health::Idle));
        assert_eq!(then(999, 1.0, 1.9), Some(Health::Busy));
        assert_eq!(then(0, 0.0, 2.6), Some(Health::Slow));
        // Nothing came in the ticks after that row.
        assert_eq!(then(2_900, 1.0, 0.9), Some(Health::Slow));
        assert_eq!(then(4_200, 1.0, 0.9), None);
        assert_eq!(health_then(ROW, ROW, None, Some(0.1)), None);
    }
}
