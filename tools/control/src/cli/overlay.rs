//! `hearth overlay`: the monitoring tree, its streams, its end.
//!
//! Neighbours: `api::overlay` answers. Invariant: without a word behind it, it changes nothing.

use clap::{Args, Subcommand};

use super::{Global, block_on, print_json, print_text, table};
use crate::api::overlay::{StreamOpened, StreamRequest};
use crate::output;
use crate::overlay::view::{ProcessView, StreamView, ValueView, View};

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
    /// Close a stream that was opened.
    Close {
        /// Its number.
        #[arg(value_name = "STREAM")]
        stream: u16,
    },
}

/// Options of `hearth overlay open`.
#[derive(Debug, Args)]
struct OpenOptions {
    /// Metrics by name or number, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', required = true)]
    metrics: Vec<String>,
    /// How values are reduced: sum, min, max, avg, concat, classes, histogram.
    #[arg(long, default_value = "sum", value_name = "FILTER")]
    filter: String,
    /// Bounds of a histogram, rising, separated by commas.
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    bounds: Vec<i64>,
    /// Time between two ticks in milliseconds; below 1000 a computing program is interrupted for each.
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    period: u64,
    /// Only the nodes of this job, until it ends.
    #[arg(long, value_name = "JOB")]
    job: Option<u64>,
    /// Only these nodes, at most eight ranges.
    #[arg(long, value_name = "LIST", conflicts_with = "job")]
    nodes: Option<String>,
    /// When a tick is passed on: timeout, all or none.
    #[arg(long, default_value = "timeout", value_name = "HOW")]
    sync: String,
    /// How long a process waits for each level below it, in milliseconds [default: 50, or the period if that is shorter].
    #[arg(long, value_name = "MS")]
    hold: Option<u64>,
}

/// Does what the command line says.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    let client = global.client()?;
    let view: View = match options.action {
        None => block_on(async { Ok(client.get("/v1/overlay").await?) })?,
        Some(Action::Down) => block_on(async { Ok(client.post("/v1/overlay/down", &()).await?) })?,
        Some(Action::Up) => block_on(async { Ok(client.post("/v1/overlay/up", &()).await?) })?,
        Some(Action::Open(options)) => {
            let request = request(options);
            let opened: StreamOpened =
                block_on(async { Ok(client.post("/v1/overlay/streams", &request).await?) })?;
            return match global.json {
                true => print_json(&opened),
                false => print_text(&format!("stream {}\n", opened.stream)),
            };
        }
        Some(Action::Close { stream }) => {
            let path = format!("/v1/overlay/streams/{stream}/close");
            block_on(async { Ok(client.post(&path, &()).await?) })?
        }
    };
    match global.json {
        true => print_json(&view),
        false => print_text(&text(&view)),
    }
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
        "{}: {} of {} nodes attached, {} communication processes between them and control, fan-out {}\n",
        view.state, view.attached, view.planned, view.cps, view.fan_out
    );
    let books = &view.books;
    let lost = books.lost_link + books.lost_dropped + books.missing;
    text += &format!(
        "samples: {} sent = {} stored + {} reduced + {lost} lost or on their way",
        books.sent, books.stored, books.filtered
    );
    text += &match books.unheard {
        0 => "\n".to_string(),
        unheard => format!(" - {unheard} that are there before their nodes have said so\n"),
    };
    if !view.processes.is_empty() {
        let headings = ["PROCESS", "PARENT", "LEVEL", "CHILDREN", "NODES", "LAG"];
        let mut shown = table::new(&headings);
        for process in &view.processes {
            shown.add_row(row(process));
        }
        text += &format!("\n{}", table::text(&shown));
    }
    for stream in view.streams.iter().filter(|stream| stream.ticks > 0) {
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
    let mut text = format!(
        "\nstream {}{ended}, {}, every {} ms, tick {} of {} nodes{kept}\n",
        stream.stream, stream.filter, stream.period_ms, stream.tick, stream.covers
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
            .map(|value| value.map_or("-".to_string(), |value| value.to_string()))
            .collect();
        text += &format!("  n{}: {}\n", row.node, values.join(" "));
    }
    text
}

/// A reduced value in words.
fn value_text(value: &ValueView, bounds: &[i64]) -> String {
    if !value.classes.is_empty() {
        let class = |(value, count, example): &(i64, u32, u32)| match count {
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
    fn classes_and_buckets_are_said_in_words() {
        let classes = ValueView {
            count: 9,
            classes: vec![(1_417_216, 3, 2), (1_421_312, 1, 5)],
            other: 5,
            ..ValueView::default()
        };
        assert_eq!(
            value_text(&classes, &[]),
            "1417216 on 3 nodes, n2 among them; 1421312 on n5; other values on 5 nodes"
        );
        let buckets = ValueView {
            count: 6,
            buckets: vec![0, 1, 5],
            ..ValueView::default()
        };
        assert_eq!(
            value_text(&buckets, &[-5, 10]),
            "up to -5: 0 nodes; above -5 up to 10: 1 node; above 10: 5 nodes"
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
