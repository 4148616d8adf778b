//! `hearth top`: the cluster in a terminal: nodes as a grid and as a table, jobs, events.
//!
//! Key types: [`Options`], [`View`] (what is shown, apart from the terminal). Neighbours:
//! `api::monitor` answers once a second, as [`asking`] hears; [`draw`] draws.
//!
//! Invariants: names from outside are shown without control characters; the terminal is as before
//! at the end, however it ends, but for SIGKILL, and as far as it takes anything; keys are taken
//! whatever control does.

mod asking;
mod draw;

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use ratatui::crossterm::event::{self, Event as Input, KeyCode, KeyEventKind};

use asking::{Heard, Hearing};

use super::{Global, block_on, exit, named, print_json, print_text, table};
use crate::api::monitor::{MetricInfo, NodeView, Now};
use crate::client::Client;
use crate::{clock, hostlist, near, output};

/// Seconds from which a time is shown as minutes and seconds.
const SPAN_FROM_S: f64 = 60.0;

/// Options of `hearth top`.
#[derive(Debug, Args)]
pub struct Options {
    /// The metric shown, or a part of its name.
    #[arg(long, default_value = "hearth_node_busy_ratio", value_name = "NAME")]
    metric: String,
    /// Order of the table: node, state, job or value.
    #[arg(long, default_value = "node", value_enum)]
    sort: Order,
    /// Only these nodes.
    #[arg(long, value_name = "LIST")]
    nodes: Option<String>,
    /// Print the table once and end.
    #[arg(long)]
    once: bool,
}

/// Order of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    /// By number.
    Node,
    /// By state, then number.
    State,
    /// By job; nodes without one last.
    Job,
    /// The largest value first; no data last.
    Value,
}

impl Order {
    fn next(self) -> Self {
        match self {
            Order::Node => Order::State,
            Order::State => Order::Job,
            Order::Job => Order::Value,
            Order::Value => Order::Node,
        }
    }
}

/// The metric that says how many cores a node has.
const CORES: &str = "hearth_node_cores";
/// Longest wait for a key; then the screen is looked at again.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// What is shown.
#[derive(Debug)]
struct View {
    now: Now,
    /// Place of the metric.
    metric: usize,
    order: Order,
    /// First row of the table.
    top: usize,
    wanted: Option<Vec<u32>>,
    /// Why there is no newer picture.
    trouble: Option<String>,
}

/// Runs the command; its exit status.
///
/// # Errors
/// What keeps it from running.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<u8> {
    let client = global.client()?;
    let wanted = named::nodes_if(global, options.nodes.as_deref())?;
    let now = ask(&client)?;
    let metric = find(&now.metrics, &options.metric)?;
    known(&now, wanted.as_deref().unwrap_or_default())?;
    let mut view = View {
        now,
        metric,
        order: options.sort,
        top: 0,
        wanted,
        trouble: None,
    };
    if global.json {
        let wanted = view.wanted.clone();
        let keep = |node: &NodeView| {
            wanted
                .as_ref()
                .is_none_or(|wanted| wanted.contains(&node.node))
        };
        view.now.nodes.retain(keep);
        print_json(&view.now)?;
        return Ok(exit::DONE);
    }
    if options.once {
        print_text(&view.text())?;
        return Ok(exit::DONE);
    }
    if !std::io::stdout().is_terminal() {
        bail!("this is not a terminal; use `hearth top --once` or `hearth top --json`");
    }
    let hearing = Hearing::begin(client).context("cannot ask the control node")?;
    let mut terminal = ratatui::try_init().context("cannot use this terminal")?;
    let _restored = Restored;
    watch(&mut terminal, &hearing, &mut view)
}

/// Gives the terminal back as it was.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        drop(ratatui::try_restore());
    }
}

/// Whether all nodes that the command line names are there.
fn known(now: &Now, wanted: &[u32]) -> anyhow::Result<()> {
    let mut there: Vec<u32> = now.nodes.iter().map(|node| node.node).collect();
    there.sort_unstable();
    match hostlist::unknown(wanted.iter().copied(), &there) {
        None => Ok(()),
        Some(text) => bail!("{text}"),
    }
}

fn ask(client: &Client) -> anyhow::Result<Now> {
    block_on(async { Ok(client.get("/v1/monitor/now").await?) })
}

/// The metric whose name is, or else contains, `name`.
fn find(metrics: &[MetricInfo], name: &str) -> anyhow::Result<usize> {
    let exact = metrics.iter().position(|metric| metric.name == name);
    let part = || metrics.iter().position(|metric| metric.name.contains(name));
    let known = || {
        let names = metrics.iter().map(|metric| metric.name.as_str());
        let near = near::did_you_mean(name, names);
        let name = near::quoted(name);
        format!("no metric is called {name}{near}; `hearth top --json` lists all, as `metrics`")
    };
    exact
        .or_else(part)
        .ok_or_else(|| exit::Usage(known()).into())
}

/// Until a key or a signal ends it; the exit status.
fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    hearing: &Hearing,
    view: &mut View,
) -> anyhow::Result<u8> {
    loop {
        terminal.draw(|frame| draw::draw(frame, view))?;
        if event::poll(KEY_WAIT)?
            && let Input::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let control_c = key.modifiers.contains(event::KeyModifiers::CONTROL)
                && key.code == KeyCode::Char('c');
            if control_c || !view.key(key.code) {
                return Ok(exit::DONE);
            }
        }
        while let Some(heard) = hearing.next() {
            match heard {
                Heard::Picture(now) => (view.now, view.trouble) = (*now, None),
                // A control node that starts again is waited for; the old picture stays.
                Heard::Trouble(trouble) => view.trouble = Some(trouble),
                Heard::Signal(number) => return Ok(exit::by_signal(number)),
            }
            view.metric = view.metric.min(view.now.metrics.len().saturating_sub(1));
        }
    }
}

impl View {
    /// Acts on a key; `false`: the end.
    fn key(&mut self, key: KeyCode) -> bool {
        let last = self.now.nodes.len().saturating_sub(1);
        let metrics = self.now.metrics.len().max(1);
        match key {
            KeyCode::Char('q') | KeyCode::Esc => return false,
            KeyCode::Char('s') => self.order = self.order.next(),
            KeyCode::Char('m') | KeyCode::Right => self.metric = (self.metric + 1) % metrics,
            KeyCode::Char('M') | KeyCode::Left => {
                self.metric = (self.metric + metrics - 1) % metrics
            }
            KeyCode::Down | KeyCode::Char('j') => self.top = (self.top + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.top = self.top.saturating_sub(1),
            KeyCode::PageDown => self.top = (self.top + 20).min(last),
            KeyCode::PageUp => self.top = self.top.saturating_sub(20),
            KeyCode::Home => self.top = 0,
            KeyCode::End => self.top = last,
            _ => {}
        }
        true
    }

    /// The metric shown.
    fn metric(&self) -> Option<&MetricInfo> {
        self.now.metrics.get(self.metric)
    }

    /// A node's value of it.
    fn value(&self, node: &NodeView) -> Option<f64> {
        node.values.get(self.metric).copied().flatten()
    }

    /// The cores of a node, `-` where they are not known.
    fn cores(&self, node: &NodeView) -> String {
        let place = self.now.metrics.iter().position(|m| m.name == CORES);
        table::or_dash(place.and_then(|place| node.values.get(place).copied().flatten()))
    }

    /// The nodes shown, in their order.
    fn rows(&self) -> Vec<&NodeView> {
        let wanted = |node: &&NodeView| {
            let wanted = self.wanted.as_ref();
            wanted.is_none_or(|wanted| wanted.contains(&node.node))
        };
        let mut rows: Vec<&NodeView> = self.now.nodes.iter().filter(wanted).collect();
        match self.order {
            Order::Node => {}
            Order::State => rows.sort_by_key(|node| node.health),
            Order::Job => rows.sort_by_key(|node| node.job.unwrap_or(u64::MAX)),
            Order::Value => {
                let value = |node: &NodeView| self.value(node).unwrap_or(f64::NEG_INFINITY);
                rows.sort_by(|a, b| value(b).total_cmp(&value(a)));
            }
        }
        rows
    }

    /// The strip of counts.
    fn strip(&self) -> String {
        let counts = self.now.healths.iter().filter(|(_, count)| **count > 0);
        let counts: Vec<String> = counts
            .map(|(word, count)| format!("{count} {word}"))
            .collect();
        let loss = self.now.loss * 100.0;
        let drained = self.now.nodes.iter().filter(|node| node.drained.is_some());
        let drained = match drained.count() {
            0 => String::new(),
            count => format!(" ({count} drained)"),
        };
        format!(
            "{}{drained}; {}; loss {loss:.1} %",
            if counts.is_empty() {
                "no nodes".into()
            } else {
                counts.join(", ")
            },
            output::count(self.now.active_jobs, "job")
        )
    }

    /// Everything as text, for `--once`.
    fn text(&self) -> String {
        let metric = self.metric();
        let name = metric.map_or("VALUE", |metric| metric.name.as_str());
        let mut rows = table::new(&["NODE", "STATE", "CORES", "JOB", name]);
        for node in self.rows() {
            rows.add_row([
                crate::output::plain(&node.name),
                state(node),
                self.cores(node),
                table::or_dash(node.job),
                metric.map_or_else(String::new, |metric| shown(self.value(node), metric)),
            ]);
        }
        format!("{}\n{}", self.strip(), table::text(&rows))
    }
}

/// How a node does, and whether it gets jobs.
fn state(node: &NodeView) -> String {
    let drained = if node.drained.is_some() {
        ", drained"
    } else {
        ""
    };
    format!("{}{drained}", node.health.word())
}

/// Whether values are shares of the whole, up to 1: ratios, and seconds a second.
fn is_share(metric: &MetricInfo) -> bool {
    metric.unit == "ratio" || metric.unit == "seconds" && metric.counter
}

/// A value in the words of its metric.
fn shown(value: Option<f64>, metric: &MetricInfo) -> String {
    let Some(value) = value else {
        return "no data".into();
    };
    if is_share(metric) {
        return format!("{:.1} %", value * 100.0);
    }
    if metric.unit == "seconds" && value >= SPAN_FROM_S {
        return clock::span(value as u64);
    }
    let unit = match metric.unit.as_str() {
        "bytes" => "B",
        "seconds" => "s",
        other => other,
    };
    // Memory is measured in MiB, a link in MB/s.
    let is_size = metric.unit == "bytes" && !metric.counter;
    let (factor, prefixes) = match is_size {
        true => (1_024.0, ["Ki", "Mi", "Gi", "Ti"]),
        false => (1_000.0, ["k", "M", "G", "T"]),
    };
    let (mut rest, mut prefix) = (value, "");
    for next in prefixes {
        if rest.abs() < factor {
            break;
        }
        (rest, prefix) = (rest / factor, next);
    }
    let rate = if metric.counter { "/s" } else { "" };
    let digits = if rest.fract() == 0.0 { 0 } else { 2 };
    format!("{rest:.digits$} {prefix}{unit}{rate}")
        .trim_end()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::picture::Health;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn view(nodes: u32) -> View {
        let metric = MetricInfo {
            name: "hearth_node_memory_used_bytes".into(),
            unit: "bytes".into(),
            help: "Memory in use.".into(),
            counter: false,
        };
        let node = |number: u32| NodeView {
            node: number,
            name: if number == 1 {
                "n1\x1b[31m".into()
            } else {
                hostlist::name(number)
            },
            health: if number == 2 {
                Health::Lost
            } else {
                Health::Idle
            },
            job: (number == 3).then_some(7),
            mac: String::new(),
            address: None,
            drained: (number == 3).then(|| "disk\x1b".into()),
            counters: Vec::new(),
            values: vec![(number != 2).then_some(f64::from(number << 20))],
        };
        View {
            now: Now {
                at_ms: 1,
                read_ms: None,
                version: "0".into(),
                tree: vec![4, 2],
                metrics: vec![metric],
                nodes: (0..nodes).map(node).collect(),
                healths: std::iter::once(("idle".to_string(), 7)).collect(),
                loss: 0.0,
                jobs: Vec::new(),
                active_jobs: 0,
                events: Vec::new(),
                acknowledged: Vec::new(),
                trouble: None,
                lost_ticks: 0,
            },
            metric: 0,
            order: Order::Node,
            top: 0,
            wanted: None,
            trouble: None,
        }
    }

    #[test]
    fn the_table_says_no_data_apart_from_zero_and_no_control_characters() {
        let text = view(4).text();
        assert!(text.contains("no data") && text.contains("0 B"), "{text}");
        assert!(text.contains("3 MiB") && !text.contains('\x1b'), "{text}");
        assert!(
            text.contains("idle, drained") && text.contains("(1 drained)"),
            "{text}"
        );
    }

    #[test]
    fn nodes_have_the_number_of_their_cores() {
        let mut view = view(2);
        view.now.metrics.push(MetricInfo {
            name: CORES.into(),
            unit: String::new(),
            help: String::new(),
            counter: false,
        });
        view.now.nodes[1].values.push(Some(12.0));
        let cores = |node: usize| view.cores(&view.now.nodes[node]);
        assert_eq!((cores(0).as_str(), cores(1).as_str()), ("-", "12"));
        assert!(view.text().contains("CORES"), "{}", view.text());
    }

    #[test]
    fn nodes_that_are_not_there_are_named() {
        let view = view(4);
        assert!(known(&view.now, &[0, 3]).is_ok());
        let error = known(&view.now, &[1, 98, 99]).unwrap_err().to_string();
        assert!(error.contains("are no nodes n[98-99];"), "{error}");
        // As the table of exit statuses has it: no such nodes.
        assert_eq!(exit::of_error(&anyhow::anyhow!(error)), exit::CONTROL);
    }

    #[test]
    fn shares_are_drawn_as_shares_of_the_whole() {
        let mut view = view(2);
        view.now.metrics[0].unit = "seconds".into();
        view.now.metrics[0].counter = true;
        view.now.nodes[0].values = vec![Some(0.002)];
        view.now.nodes[1].values = vec![Some(0.001)];
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw::draw(frame, &view)).unwrap();
        let screen = terminal.backend().to_string();
        // The lowest step above nothing, and not the highest for the largest.
        assert!(screen.contains("▁▁") && !screen.contains('█'), "{screen}");
    }

    #[test]
    fn long_times_are_spans() {
        let metric = MetricInfo {
            name: "hearth_node_uptime_seconds".into(),
            unit: "seconds".into(),
            help: "Time since boot.".into(),
            counter: false,
        };
        assert_eq!(shown(Some(2.5), &metric), "2.50 s");
        assert_eq!(shown(Some(3_723.9), &metric), "1:02:03");
    }

    #[test]
    fn memory_is_in_mebibytes_and_rates_are_in_megabytes() {
        let bytes = |counter| MetricInfo {
            name: String::new(),
            unit: "bytes".into(),
            help: String::new(),
            counter,
        };
        assert_eq!(shown(Some(1.5 * 1_048_576.0), &bytes(false)), "1.50 MiB");
        assert_eq!(shown(Some(1_023.0), &bytes(false)), "1023 B");
        assert_eq!(shown(Some(5_800_000.0), &bytes(true)), "5.80 MB/s");
    }

    #[test]
    fn orders_put_what_is_missing_last() {
        let mut view = view(4);
        view.order = Order::Value;
        let numbers = |view: &View| view.rows().iter().map(|node| node.node).collect::<Vec<_>>();
        assert_eq!(numbers(&view), [3, 1, 0, 2]);
        assert!(view.key(KeyCode::Char('s')) && view.order == Order::Node);
        view.order = Order::Job;
        assert_eq!(numbers(&view), [3, 0, 1, 2]);
        assert!(!view.key(KeyCode::Char('q')));
    }

    #[test]
    fn a_screen_of_any_size_is_drawn() {
        for (width, height) in [(80, 24), (1, 1), (20, 5), (200, 60)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            for nodes in [0, 4, 1_024] {
                let view = view(nodes);
                terminal.draw(|frame| draw::draw(frame, &view)).unwrap();
            }
        }
        let mut terminal = Terminal::new(TestBackend::new(100, 30)).unwrap();
        let view = view(8);
        terminal.draw(|frame| draw::draw(frame, &view)).unwrap();
        let screen = terminal.backend().to_string();
        for words in [
            "n3",
            "lost",
            "no data",
            "3 MiB",
            "hearth_node_memory_used_bytes",
        ] {
            assert!(screen.contains(words), "{words} is missing in\n{screen}");
        }
    }
}
