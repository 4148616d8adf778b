//! `hearth overlay`: the monitoring tree, its streams, its end.
//!
//! Neighbours: `api::overlay` answers, with numbers in the units that the metrics' names say.
//!
//! Invariants: without a word behind it, it changes nothing; what changes something says in a line
//! what it did.

use clap::{Args, Subcommand};

use super::{Global, block_on, print_json, print_text, table};
use crate::api::overlay::{FILTER, PERIOD_MS, StreamOpened, StreamRequest};
use crate::output;
use crate::overlay::catalogue::{self, MetricRow};
use crate::overlay::view::{self, ProcessView, StreamView, ValueView, View};

/// Options of `hearth overlay`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Option<Action>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Take the tree down; nodes keep nothing of it.
    Down,
    /// Have the tree made again.
    Up,
    /// Open a further stream; `hearth overlay` shows its values.
    Open(OpenOptions),
    /// List the metrics that streams can have, with the units of their values.
    Metrics,
    /// Close a stream that was opened; its last values stay to be seen.
    Close {
        /// Its number, as `hearth overlay` shows it.
        #[arg(value_name = "STREAM")]
        stream: u16,
    },
}

/// Options of `hearth overlay open`.
#[derive(Debug, Args)]
struct OpenOptions {
    /// Metrics by name or number, each once, separated by commas; `hearth overlay metrics` lists
    /// them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    metrics: Vec<String>,
    /// How values are reduced: sum, min, max, avg, concat, classes, histogram.
    #[arg(long, default_value = FILTER, value_name = "FILTER")]
    filter: String,
    /// Bounds of a histogram, rising, at most 15, separated by commas, in the unit that the
    /// metrics' names say: of seconds 0.5,10.
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = finite
    )]
    bounds: Vec<f64>,
    /// Time between two ticks in milliseconds, 10 to 3600000; below 1000 a computing program is
    /// interrupted for each.
    #[arg(long, default_value_t = PERIOD_MS, value_name = "MS")]
    period: u64,
    /// Only the nodes of this job, until it ends.
    #[arg(long, value_name = "JOB", value_parser = super::queue::job_number)]
    job: Option<u64>,
    /// Only these nodes, at most eight ranges.
    #[arg(long, value_name = "LIST", conflicts_with = "job")]
    nodes: Option<String>,
    /// When a tick is passed on: timeout, all or none.
    #[arg(long, default_value = "timeout", value_name = "HOW")]
    sync: String,
    /// How long a process waits for each level below it, in milliseconds [default: 50, or the
    /// period if that is shorter].
    #[arg(long, value_name = "MS")]
    hold: Option<u64>,
}

/// A number that JSON has.
fn finite(text: &str) -> Result<f64, &'static str> {
    let number: Option<f64> = text.parse().ok();
    (number.filter(|number| number.is_finite())).ok_or("write numbers, as in 0.5,10,100")
}

/// Does what the command line says.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    let client = global.client()?;
    match options.action {
        None => {
            let view: View = block_on(async { Ok(client.get("/v1/overlay").await?) })?;
            told(global, &view, || text(&view))
        }
        Some(Action::Down) => {
            let path = "/v1/overlay/down";
            let view: View = block_on(async { Ok(client.post(path, &()).await?) })?;
            told(global, &view, || down_text(&view).to_string())
        }
        Some(Action::Up) => {
            let path = "/v1/overlay/up";
            let view: View = block_on(async { Ok(client.post(path, &()).await?) })?;
            told(global, &view, || up_text(&view).to_string())
        }
        Some(Action::Metrics) => {
            let path = "/v1/overlay/metrics";
            let metrics: Vec<MetricRow> = block_on(async { Ok(client.get(path).await?) })?;
            told(global, &metrics, || metrics_text(&metrics))
        }
        Some(Action::Open(options)) => {
            let (path, request) = ("/v1/overlay/streams", request(options));
            let opened: StreamOpened = block_on(async { Ok(client.post(path, &request).await?) })?;
            if let Some(remark) = opened_remark(&opened) {
                output::say_line(remark);
            }
            told(global, &opened, || format!("stream {}\n", opened.stream))
        }
        Some(Action::Close { stream }) => {
            let path = format!("/v1/overlay/streams/{stream}/close");
            let view: View = block_on(async { Ok(client.post(&path, &()).await?) })?;
            told(global, &view, || closed_text(&view, stream))
        }
    }
}

/// Prints an answer: as JSON, or what `text` makes of it.
fn told(
    global: &Global,
    answer: &impl serde::Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    match global.json {
        true => print_json(answer),
        false => print_text(&text()),
    }
}

/// What is left of a stream that was closed.
fn closed_text(view: &View, stream: u16) -> String {
    let ended = view.ended.iter().rev().find(|ended| ended.stream == stream);
    match ended.is_some_and(|ended| ended.ticks > 0) {
        true => format!("stream {stream} is closed; `hearth overlay` shows its last values\n"),
        false => format!("stream {stream} is closed; it had no values yet\n"),
    }
}

/// What became of the wish for no tree.
fn down_text(view: &View) -> &'static str {
    match &view.state[..] {
        view::OFF => {
            "there is no tree: it is switched off in the configuration of the control node\n"
        }
        _ => {
            "the tree is taken down; streams are kept, and go on when `hearth overlay up` has it made again\n"
        }
    }
}

/// What became of the wish for a tree.
fn up_text(view: &View) -> &'static str {
    match &view.state[..] {
        view::STANDING => "the tree stands\n",
        _ => "a tree is about to be made; `hearth overlay` shows it\n",
    }
}

/// Why a stream that was opened has no values yet.
fn opened_remark(opened: &StreamOpened) -> Option<&'static str> {
    match &opened.state[..] {
        // A control node of before says nothing.
        view::STANDING | "" => None,
        view::DOWN => Some(
            "the tree is down: the stream is kept, and begins when `hearth overlay up` has it made again",
        ),
        _ => Some("no tree stands yet: the stream is kept, and begins with it (`hearth overlay`)"),
    }
}

/// Metrics with their units: those of single calls, parts of a program's text and counters of
/// programs in a line each.
fn metrics_text(metrics: &[MetricRow]) -> String {
    let (alone, families) = catalogue::folded(metrics);
    let mut shown = table::new(&["NUMBER", "METRIC", "UNIT", "WHAT"]);
    for metric in alone {
        let unit = Some(metric.unit.clone()).filter(|unit| !unit.is_empty());
        shown.add_row([
            metric.number.to_string(),
            metric.name.clone(),
            table::or_dash(unit),
            metric.help.clone(),
        ]);
    }
    let mut text = table::text(&shown);
    for family in families {
        text += &format!("\n{family}\n");
    }
    text
}

fn request(options: OpenOptions) -> StreamRequest {
    StreamRequest {
        metrics: options.metrics,
        filter: options.filter,
        bounds: options.bounds,
        period_ms: options.period,
        job: options.job,
        nodes: options.nodes,
        sync: Some(options.sync),
        hold_ms: options.hold,
    }
}

fn text(view: &View) -> String {
    let mut text = format!(
        "{}: {} of {} attached, {} between them and control, fan-out {}\n",
        view.state,
        view.attached,
        output::count(view.planned, "node"),
        output::count_of(view.cps, "communication process", "communication processes"),
        view.fan_out
    );
    let books = &view.books;
    let lost = books.lost_link + books.lost_dropped + books.missing;
    text += &format!(
        "samples: {} sent = {} stored + {} reduced + {lost} lost or on their way",
        books.sent, books.stored, books.filtered
    );
    text += &match books.unheard {
        0 => "\n".to_string(),
        unheard => format!(" - {unheard} that came before the count of their node\n"),
    };
    if !view.processes.is_empty() {
        let headings = ["PROCESS", "PARENT", "LEVEL", "CHILDREN", "NODES", "LAG"];
        let mut shown = table::new(&headings);
        for process in &view.processes {
            shown.add_row(row(process));
        }
        text += &format!("\n{}", table::text(&shown));
    }
    let own = view.streams.iter().filter(|stream| stream.always).count();
    if own > 0 {
        let own = output::count(own, "stream");
        text += &format!("\n{own} for the page, /metrics and what the configuration says\n");
    }
    for stream in view.streams.iter().filter(|stream| !stream.always) {
        text += &stream_text(stream, "");
    }
    for stream in &view.ended {
        text += &stream_text(stream, " has ended");
    }
    text
}

fn row(process: &ProcessView) -> Vec<String> {
    let lag = match process.gone {
        true => "lost".to_string(),
        false => format!("{:.1} ms", f64::from(process.lag_us) / 1e3),
    };
    vec![
        process.name.clone(),
        process.parent.clone(),
        process.height.to_string(),
        process.children.to_string(),
        process.back_ends.to_string(),
        lag,
    ]
}

fn stream_text(stream: &StreamView, ended: &str) -> String {
    let kept = match &stream.name[..] {
        "" => String::new(),
        name => format!(", kept as {name}"),
    };
    let tick = match stream.ticks {
        0 => "no tick yet".to_string(),
        _ => format!(
            "tick {} of {}",
            stream.tick,
            output::count(stream.covers, "node")
        ),
    };
    let of = match (stream.job, &stream.nodes[..]) {
        (Some(job), _) => format!(" of job {job}"),
        (None, "") => String::new(),
        (None, nodes) => format!(" of {nodes}"),
    };
    let sync = match &stream.sync[..] {
        "" | "timeout" => String::new(),
        sync => format!(", passed on: {sync}"),
    };
    let mut text = format!(
        "\nstream {}{ended}, {}{of}, every {} ms{sync}, {tick}{kept}\n",
        stream.stream, stream.filter, stream.period_ms
    );
    for (name, value) in stream.metrics.iter().zip(&stream.values) {
        let shown = value_text(value, &stream.bounds);
        let nodes = output::count(value.count, "node");
        text += &format!("  {name}: {shown} ({nodes})\n");
    }
    for row in &stream.rows {
        let values: Vec<String> = row
            .values
            .iter()
            .map(|value| table::or_dash(*value))
            .collect();
        text += &format!("  n{}: {}\n", row.node, values.join(" "));
    }
    text
}

/// A reduced value in words.
fn value_text(value: &ValueView, bounds: &[f64]) -> String {
    if !value.classes.is_empty() {
        let class = |(value, count, example): &(f64, u32, u32)| match count {
            1 => format!("{value} on n{example}"),
            count => format!("{value} on {count} nodes, n{example} among them"),
        };
        let mut classes: Vec<String> = value.classes.iter().map(class).collect();
        if value.other > 0 {
            let nodes = output::count(value.other, "node");
            classes.push(format!("other values on {nodes}"));
        }
        return classes.join("; ");
    }
    if !value.buckets.is_empty() {
        let bucket = |(index, count): (usize, &u32)| {
            let above = index.checked_sub(1).and_then(|index| bounds.get(index));
            let range = match (above, bounds.get(index)) {
                (None, Some(to)) => format!("up to {to}"),
                (Some(above), Some(to)) => format!("above {above} up to {to}"),
                (Some(above), None) => format!("above {above}"),
                (None, None) => "all".to_string(),
            };
            format!("{range}: {}", output::count(*count, "node"))
        };
        let buckets: Vec<String> = value.buckets.iter().enumerate().map(bucket).collect();
        return buckets.join("; ");
    }
    value
        .value
        .map_or_else(|| "no data".to_string(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_open_is_listed_before_its_first_tick_and_what_is_always_open_is_not() {
        let stream = |stream, always| StreamView {
            stream,
            always,
            filter: "sum".into(),
            period_ms: 1_000.0,
            ..StreamView::default()
        };
        let view = View {
            state: view::DOWN.into(),
            attached: 1,
            planned: 1,
            cps: 1,
            streams: vec![
                stream(1, true),
                stream(3, false),
                StreamView {
                    job: Some(7),
                    sync: "all".into(),
                    ..stream(4, false)
                },
                StreamView {
                    nodes: "n[0-1]".into(),
                    ..stream(5, false)
                },
            ],
            ..View::default()
        };
        let text = text(&view);
        assert!(
            text.contains("stream 3, sum, every 1000 ms, no tick yet\n"),
            "{text}"
        );
        assert!(!text.contains("stream 1,"), "{text}");
        for line in [
            "\n1 stream for the page, /metrics",
            "\nstream 4, sum of job 7, every 1000 ms, passed on: all, no tick yet\n",
            "\nstream 5, sum of n[0-1], every",
        ] {
            assert!(text.contains(line), "{line:?} is missing in\n{text}");
        }
        assert!(
            text.starts_with("down: 1 of 1 node attached, 1 communication process between them"),
            "{text}"
        );
    }

    #[test]
    fn a_stream_without_a_tick_leaves_no_values_to_be_seen() {
        let ended = |stream, ticks| StreamView {
            stream,
            ticks,
            ..StreamView::default()
        };
        let view = View {
            ended: vec![ended(3, 2), ended(4, 0)],
            ..View::default()
        };
        assert!(closed_text(&view, 3).contains("its last values"));
        for without in [4, 5] {
            assert!(closed_text(&view, without).contains("no values yet"));
        }
    }

    #[test]
    fn bounds_can_begin_below_zero() {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            options: OpenOptions,
        }
        let parse = |bounds: &str| {
            let line = ["x", "--metrics", "a", "--bounds", bounds, "--job", "3"];
            <Line as clap::Parser>::try_parse_from(line).map(|line| line.options)
        };
        let options = parse("-5,100").unwrap();
        assert_eq!((options.bounds, options.job), (vec![-5.0, 100.0], Some(3)));
        assert_eq!(parse("-5").unwrap().bounds, [-5.0]);
        assert!(parse("--sync").is_err());
    }

    #[test]
    fn who_opens_a_stream_is_told_why_it_has_no_values_yet() {
        let remark = |state: &str| {
            opened_remark(&StreamOpened {
                stream: 3,
                state: state.into(),
            })
        };
        assert_eq!(remark("standing"), None);
        assert!(remark("down").unwrap().contains("`hearth overlay up`"));
        assert!(remark("renewing").unwrap().contains("no tree stands yet"));
    }

    #[test]
    fn metrics_are_listed_with_units_and_in_few_lines() {
        let text = metrics_text(&catalogue::all());
        let uptime = text
            .lines()
            .find(|line| line.contains(" hearth_node_uptime_seconds "));
        assert!(
            uptime.is_some_and(|line| line.contains(" seconds ")),
            "{text}"
        );
        assert!(
            text.contains("\nhearth_program_counter_X with X one of 0 to 15\n"),
            "{text}"
        );
        assert!(text.lines().count() < 120, "{}", text.lines().count());
    }

    #[test]
    fn classes_and_buckets_are_said_in_words() {
        let classes = ValueView {
            count: 9,
            classes: vec![(1_417_216.0, 3, 2), (0.25, 1, 5)],
            other: 5,
            ..ValueView::default()
        };
        assert_eq!(
            value_text(&classes, &[]),
            "1417216 on 3 nodes, n2 among them; 0.25 on n5; other values on 5 nodes"
        );
        let buckets = ValueView {
            count: 6,
            buckets: vec![0, 1, 5],
            ..ValueView::default()
        };
        assert_eq!(
            value_text(&buckets, &[-5.0, 0.5]),
            "up to -5: 0 nodes; above -5 up to 0.5: 1 node; above 0.5: 5 nodes"
        );
        let mean = ValueView {
            count: 4,
            value: Some(2.5),
            sum: Some(10.0),
            ..ValueView::default()
        };
        assert_eq!(value_text(&mean, &[]), "2.5");
        assert_eq!(value_text(&ValueView::default(), &[]), "no data");
    }
}
