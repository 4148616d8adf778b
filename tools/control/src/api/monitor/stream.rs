//! The page's stream: server-sent events (WHATWG HTML, "Server-sent events").
//!
//! First a `snapshot` with everything the page shows of one metric; then a `tick` every second with
//! what can have changed. A reader that falls behind, or nodes that come and go, bring a new
//! `snapshot`.
//!
//! | field | in | meaning |
//! |---|---|---|
//! | `at` | both | milliseconds since 1970 |
//! | `v` | both | the metric's value of each node in the snapshot's order; `null`: no data |
//! | `h` | both | a letter for each node: idle, busy, slow, stale (t), lost, left (x), awaited (w), absent |
//! | `all` | both | all values of the node asked for |
//! | `read` | both | milliseconds since 1970 at which the oldest of the values were read; `null`: they are those of heartbeats |
//! | `d` | both | why nodes get no jobs, by number; in a tick only when that changed |
//! | `counters` | both | what programs count, by the number of the node; absent when no program does |
//! | `strip` | both | how many nodes do how, `loss`, `active` jobs, `trouble` of the store |
//! | `jobs`, `job`, `events`, `seen` | both | jobs, the job of each node, newest events, acknowledged ones; in a tick only when they changed |
//! | `cluster`, `version`, `started`, `tree`, `metrics`, `nodes` | snapshot | what does not change from second to second |
//!
//! Invariants: a stream holds one frame; what it misses it does not get later. One address cannot
//! have all places (`monitor::viewers`); over TCP a client that takes nothing for half a minute
//! loses its connection, and its place with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{ConnectInfo, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::{MetricInfo, healths, place_of};
use crate::api::Refusal;
use crate::api::bounded::Peer;
use crate::hostlist;
use crate::monitor::picture::Picture;
use crate::monitor::viewers::{Full, STREAMS_MAX, STREAMS_OF_ONE_MAX};
use crate::monitor::{Monitor, Shown};

/// Query of `GET /v1/monitor/stream`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamQuery {
    metric: String,
    node: Option<u32>,
}

/// Server-sent events: a snapshot, then a tick each second.
#[utoipa::path(get, path = "/v1/monitor/stream", tag = "monitor", params(("metric" = String, Query, description = "Name of a metric"), ("node" = Option<u32>, Query, description = "A node of which all values come")), responses((status = 200, body = String, content_type = "text/event-stream")))]
pub async fn stream(
    State(monitor): State<Arc<Monitor>>,
    Query(query): Query<StreamQuery>,
    request: Request,
) -> Result<Response, Refusal> {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let place = place_of(&monitor, &query.metric)?;
    let address = peer.map(|ConnectInfo(peer)| peer.address);
    let permit = monitor.viewers.enter(address).map_err(|full| {
        let text = match full {
            Full::All => format!("{STREAMS_MAX} pages are open already: close one"),
            Full::OfAddress => {
                format!("{STREAMS_OF_ONE_MAX} pages of this address are open already: close one")
            }
        };
        Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-streams", text)
    })?;
    if let Some(ConnectInfo(peer)) = peer {
        peer.hurry();
    }
    let viewer = Viewer {
        ticks: monitor.subscribe(),
        monitor,
        place,
        node: query.node,
        sent: None,
        seen: Vec::new(),
    };
    let frames =
        futures_util::stream::unfold((viewer, permit), |(mut viewer, permit)| async move {
            let frame = viewer.next().await?;
            Some((Ok::<_, std::convert::Infallible>(frame), (viewer, permit)))
        });
    let head = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    Ok((head, Body::from_stream(frames)).into_response())
}

struct Viewer {
    monitor: Arc<Monitor>,
    ticks: Receiver<Arc<Shown>>,
    place: usize,
    node: Option<u32>,
    /// What the page has; `None`: nothing yet.
    sent: Option<Arc<Shown>>,
    seen: Vec<u64>,
}

impl Viewer {
    /// The next frame; `None` when control ends.
    async fn next(&mut self) -> Option<String> {
        let shown = match &self.sent {
            None => self.monitor.now(),
            Some(_) => match self.ticks.recv().await {
                Ok(shown) => shown,
                Err(RecvError::Lagged(_)) => {
                    self.sent = None;
                    self.monitor.now()
                }
                Err(RecvError::Closed) => return None,
            },
        };
        let same_nodes = |sent: &Arc<Shown>| {
            let (old, new) = (&sent.picture.nodes, &shown.picture.nodes);
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| old.node == new.node)
        };
        if !self.sent.as_ref().is_some_and(same_nodes) {
            self.sent = None;
        }
        let word = if self.sent.is_none() {
            "snapshot"
        } else {
            "tick"
        };
        let body = Value::Object(self.body(&shown));
        self.sent = Some(shown);
        // JSON has no line ends of its own, so it is one line of data.
        Some(format!("event: {word}\ndata: {body}\n\n"))
    }

    fn body(&mut self, shown: &Shown) -> Map<String, Value> {
        let picture = &shown.picture;
        let mut body = Map::new();
        let mut put = |name: &str, value: Value| drop(body.insert(name.into(), value));
        put("at", json!(picture.at_ms));
        put("read", json!(picture.read_ms));
        let values = shown.values.iter();
        put(
            "v",
            values
                .map(|values| json!(values[self.place].map(rounded)))
                .collect(),
        );
        let letters: String = picture
            .nodes
            .iter()
            .map(|node| node.health.letter())
            .collect();
        put("h", json!(letters));
        let (trouble, _) = self.monitor.trouble();
        let strip = json!({
            "healths": healths(shown), "loss": shown.loss, "active": picture.active_jobs, "trouble": trouble,
        });
        put("strip", strip);
        let place = |number: u32| picture.nodes.iter().position(|node| node.node == number);
        if let Some(place) = self.node.and_then(place) {
            put("all", json!(shown.values[place]));
        }
        let counting = picture
            .nodes
            .iter()
            .filter(|node| !node.counters.is_empty());
        let counting: Map<String, Value> = counting
            .map(|node| (node.node.to_string(), json!(node.counters)))
            .collect();
        if !counting.is_empty() {
            put("counters", Value::Object(counting));
        }
        let sent = self.sent.as_deref().map(|sent| &sent.picture);
        if sent.is_none_or(|sent| drained(sent) != drained(picture)) {
            put("d", json!(drained(picture)));
        }
        if sent.is_none_or(|sent| sent.jobs != picture.jobs) {
            put("jobs", json!(picture.jobs));
        }
        if sent.is_none_or(|sent| of_nodes(sent) != of_nodes(picture)) {
            put("job", json!(of_nodes(picture)));
        }
        let newest = |picture: &crate::monitor::picture::Picture| {
            picture.events.last().map(|event| event.seq)
        };
        if sent.is_none_or(|sent| newest(sent) != newest(picture)) {
            put("events", json!(picture.events));
        }
        let seen = self.monitor.acknowledged.all();
        if sent.is_none() || seen != self.seen {
            put("seen", json!(seen));
            self.seen = seen;
        }
        if sent.is_none() {
            let setup = self.monitor.setup();
            put("cluster", json!(setup.cluster));
            put("version", json!(setup.version));
            put("started", json!(setup.started_unix_us / 1_000));
            put("tree", json!(setup.tree));
            put("metric", json!(self.monitor.metrics()[self.place].name));
            let metrics: Vec<MetricInfo> = self
                .monitor
                .metrics()
                .iter()
                .map(MetricInfo::from)
                .collect();
            put("metrics", json!(metrics));
            let node = |node: &crate::monitor::picture::NodeNow| {
                json!({
                    "n": node.node, "name": hostlist::name(node.node), "mac": node.mac, "address": node.address,
                })
            };
            put("nodes", picture.nodes.iter().map(node).collect());
        }
        body
    }
}

/// The nodes' jobs.
fn of_nodes(picture: &Picture) -> Vec<Option<u64>> {
    picture.nodes.iter().map(|node| node.job).collect()
}

/// Why nodes get no jobs.
fn drained(picture: &Picture) -> BTreeMap<u32, &str> {
    let nodes = picture.nodes.iter();
    nodes
        .filter_map(|node| Some((node.node, node.drained.as_deref()?)))
        .collect()
}

/// Six digits: more than a colour or a line shows, and shorter to send.
fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let digits = 5 - value.abs().log10().floor() as i32;
    if !(-15..=15).contains(&digits) {
        return value;
    }
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits_are_enough() {
        for (value, short) in [
            (0.123_456_789, 0.123_457),
            (1_234_567.0, 1_234_570.0),
            (-2.0, -2.0),
        ] {
            assert!((rounded(value) - short).abs() < short.abs() * 1e-9);
        }
        assert_eq!(rounded(0.0), 0.0);
    }
}
