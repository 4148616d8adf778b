//! Values of streams, live and afterwards: what the overlay reduced on the way, as it was stored.
//!
//! | request | answer |
//! |---|---|
//! | `GET /v1/monitor/streams[?from=MS][&to=MS]` | [`Streams`]: of which streams there are values |
//! | `GET /v1/monitor/reduced?stream=NAME[&from=MS][&to=MS]` | [`ReducedSeries`] |
//! | `GET /v1/monitor/reduced?stream=NAME&format=csv` | the same as CSV |
//!
//! Invariant: values are in base units; counts are counts here, not rates, since what a stream
//! covers can change from tick to tick, and says so.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::{Json, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use hearth_monitor::{Reduction, StreamInfo, csv};
use serde::{Deserialize, Serialize};

use super::{MetricInfo, Question, ask, missing};
use crate::api::Refusal;
use crate::monitor::Monitor;

/// Query of both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamsQuery {
    stream: Option<String>,
    from: Option<u64>,
    to: Option<u64>,
    format: Option<String>,
}

impl StreamsQuery {
    fn question(&self) -> Question {
        Question {
            metric: None,
            metrics: None,
            nodes: None,
            from: self.from,
            to: self.to,
            points: None,
            level: Some("tick".into()),
        }
    }
}

/// A stream with stored values.
#[derive(Debug, Serialize)]
pub struct StoredStream {
    /// Its name, as `hearth overlay --json` has it; `sums` are the sums over all nodes.
    name: String,
    /// What its values are.
    metrics: Vec<MetricInfo>,
    /// The first tick of the days asked, in milliseconds since 1970.
    from_ms: u64,
    /// The last one.
    to_ms: u64,
    /// How many there are.
    ticks: u64,
}

/// What `GET /v1/monitor/streams` answers.
#[derive(Debug, Serialize)]
pub struct Streams {
    /// By name.
    streams: Vec<StoredStream>,
}

/// What `GET /v1/monitor/reduced` answers.
#[derive(Debug, Serialize)]
pub struct ReducedSeries {
    /// What the values are.
    metrics: Vec<MetricInfo>,
    /// When the ticks began, in milliseconds since 1970.
    at_ms: Vec<u64>,
    /// Nodes in each.
    covers: Vec<u32>,
    /// Nodes that were attached then.
    nodes: Vec<u32>,
    /// By metric: the values in base units, one for each tick; `null`: no data.
    values: Vec<Vec<Option<f64>>>,
}

/// Streams of the days of a time of which there are values.
#[utoipa::path(get, path = "/v1/monitor/streams", tag = "monitor", params(("from" = Option<u64>, Query, description = "Milliseconds since 1970"), ("to" = Option<u64>, Query, description = "Milliseconds since 1970")), responses((status = 200, body = Object)))]
pub async fn streams(
    State(monitor): State<Arc<Monitor>>,
    Query(query): Query<StreamsQuery>,
) -> Result<Json<Streams>, Refusal> {
    let checked = query.question().check(&monitor)?;
    let found = ask(&monitor, checked.dir, move |reader| {
        reader.streams(checked.span)
    });
    let shown = |info: StreamInfo| StoredStream {
        name: info.name,
        metrics: info.metrics.iter().map(MetricInfo::from).collect(),
        from_ms: info.from_ms,
        to_ms: info.to_ms,
        ticks: info.ticks,
    };
    let streams = found.await?.into_iter().map(shown).collect();
    Ok(Json(Streams { streams }))
}

/// What a stream was reduced to over time.
#[utoipa::path(get, path = "/v1/monitor/reduced", tag = "monitor", params(("stream" = String, Query, description = "Name of a stream"), ("from" = Option<u64>, Query, description = "Milliseconds since 1970"), ("to" = Option<u64>, Query, description = "Milliseconds since 1970"), ("format" = Option<String>, Query, description = "json (default) or csv")), responses((status = 200, body = Object), (status = 400, body = crate::api::types::ErrorBody), (status = 404, body = crate::api::types::ErrorBody)))]
pub async fn reduced(
    State(monitor): State<Arc<Monitor>>,
    Query(query): Query<StreamsQuery>,
) -> Result<Response, Refusal> {
    let as_csv = match query.format.as_deref() {
        None | Some("json") => false,
        Some("csv") => true,
        Some(_) => return Err(Refusal::bad_request("`format` is json or csv")),
    };
    let name = match query.stream.as_deref() {
        None | Some("") => return Err(missing("stream", "GET /v1/monitor/streams")),
        Some(name) => name.to_string(),
    };
    let checked = query.question().check(&monitor)?;
    let asked = name.clone();
    let found = ask(&monitor, checked.dir, move |reader| {
        reader.reduced(&asked, checked.span)
    });
    let Some(found) = found.await? else {
        let text = format!(
            "no stream {name:?} has values in the files of that time; `GET /v1/monitor/streams` lists those that have"
        );
        return Err(Refusal::new(StatusCode::NOT_FOUND, "no-such-stream", text));
    };
    if as_csv {
        let head = [
            (header::CONTENT_TYPE, "text/csv; charset=utf-8"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        return Ok((head, csv_of(&found)).into_response());
    }
    let ticks = &found.ticks;
    let of_metric = |place: usize| {
        let scale = found.metrics[place].scale;
        let value = move |value: Option<i64>| value.map(|value| csv::scaled(value as f64, scale));
        let values = ticks.iter().map(|tick| tick.values.get(place).copied());
        values.map(|stored| value(stored.flatten())).collect()
    };
    Ok(Json(ReducedSeries {
        metrics: found.metrics.iter().map(MetricInfo::from).collect(),
        at_ms: ticks.iter().map(|tick| tick.at_ms).collect(),
        covers: ticks.iter().map(|tick| tick.covers).collect(),
        nodes: ticks.iter().map(|tick| tick.nodes).collect(),
        values: (0..found.metrics.len()).map(of_metric).collect(),
    })
    .into_response())
}

fn csv_of(found: &Reduction) -> String {
    let mut text = "time,covers,nodes".to_string();
    for metric in &found.metrics {
        let _ = write!(text, ",{}", csv::field(&metric.name));
    }
    text += "\r\n";
    for tick in &found.ticks {
        let _ = write!(
            text,
            "{},{},{}",
            csv::time(tick.at_ms),
            tick.covers,
            tick.nodes
        );
        for (metric, value) in found.metrics.iter().zip(&tick.values) {
            text.push(',');
            if let Some(value) = value {
                let _ = write!(text, "{}", csv::scaled(*value as f64, metric.scale));
            }
        }
        text += "\r\n";
    }
    text
}
