//! How the overlay stands, for the API and the page.
//!
//! Key type: [`View`]. Invariant: a copy; nothing here refers to the control state.

use std::collections::HashMap;
use std::sync::LazyLock;

use netstack::overlay::{
    Acc, Filter, MetricId, MetricKind, OverlayMetric, Process, ProfileMetric, Reduced, Scope,
    StreamId, StreamSpec, Sync,
};
use netstack::time::{Instant, Micros};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Asked, Overlay, State};

/// The monitoring overlay.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct View {
    /// `collecting`, `standing`, `renewing`, `down` or `off`.
    pub state: String,
    /// Nodes that said hello.
    pub nodes: u32,
    /// Back ends of the plan.
    pub planned: u32,
    /// Back ends attached.
    pub attached: u32,
    /// Of these, those whose job wants silence: nobody waits for them.
    pub quiet: u32,
    /// Of the plan, those whose leaf is on their own node.
    pub local: u32,
    /// Communication processes of the plan.
    pub cps: u32,
    /// Most children of a process.
    pub fan_out: u32,
    /// Levels between a back end and control.
    pub height: u8,
    /// From the decision to build until every back end was attached, in milliseconds.
    pub built_ms: Option<f64>,
    /// From the word to take the tree down until it was, in milliseconds.
    pub taken_down_ms: Option<f64>,
    /// Every process.
    pub processes: Vec<ProcessView>,
    /// Streams that are open.
    pub streams: Vec<StreamView>,
    /// The last streams that ended, with their last values.
    pub ended: Vec<StreamView>,
    /// Sums over all nodes.
    pub totals: TotalsView,
    /// What was sent, arrived and was lost.
    pub books: BooksView,
    /// Processes that were lost since the tree stands.
    pub losses: Vec<LossView>,
    /// The last ticks of the sums: from a tick's begin until control had it.
    pub delays: Vec<Delay>,
    /// What each node keeps for the overlay by its last heartbeat: 0 when the tree is down.
    pub kept: Vec<KeptView>,
    /// What control itself keeps: links, ticks, messages.
    pub kept_here: u32,
    /// The front end's counters by name.
    pub counters: std::collections::BTreeMap<String, u64>,
}

/// A process of the tree.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessView {
    /// Its name: `n3` for a node's back end, `n3:1` for a communication process.
    pub name: String,
    /// Its node.
    pub node: u32,
    /// 0 for a back end.
    pub slot: u8,
    /// Its parent's name; `fe` is control.
    pub parent: String,
    /// 0 for a back end.
    pub height: u8,
    /// Children as far as known.
    pub children: u32,
    /// Back ends below.
    pub back_ends: u32,
    /// From the begin of the last tick until it passed it on, in microseconds.
    pub lag_us: u32,
    /// Its parent lost it.
    pub gone: bool,
    /// Time since values of it arrived, in milliseconds; back ends only.
    pub age_ms: Option<f64>,
    /// The tick of these values.
    pub tick: Option<u64>,
}

/// A stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct StreamView {
    /// Its number.
    pub stream: u16,
    /// The name by which its values are in the files; empty: they are not kept.
    #[serde(default)]
    pub name: String,
    /// `sum`, `concat`, ...
    pub filter: String,
    /// Its period in milliseconds.
    pub period_ms: f64,
    /// The job that it ends with.
    pub job: Option<u64>,
    /// Its nodes as a hostlist; empty: all, or those of the job.
    pub nodes: String,
    /// `timeout`, `all` or `none`.
    pub sync: String,
    /// How long a process waits for each level below it, in milliseconds.
    pub hold_ms: f64,
    /// Names of its metrics.
    pub metrics: Vec<String>,
    /// Bounds of a histogram: bucket *i* has values up to bound *i* and above the one before.
    #[serde(default)]
    pub bounds: Vec<i64>,
    /// The last tick; only of streams that somebody asked for.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Ticks that have arrived.
    pub ticks: u64,
    /// For reduced streams: how many back ends are in each value, and what is known of them.
    pub values: Vec<ValueView>,
    /// For concat: the newest values of each node.
    pub rows: Vec<RowView>,
}

/// A reduced value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ValueView {
    /// Back ends in it.
    pub count: u32,
    /// Their sum, mean, least or most, as the filter says.
    pub value: Option<f64>,
    /// For avg: their sum, of which `value` is the share of each.
    #[serde(default)]
    pub sum: Option<f64>,
    /// Classes: value, how many back ends have it, and the lowest of these.
    pub classes: Vec<(i64, u32, u32)>,
    /// Back ends whose values have no class any more.
    #[serde(default)]
    pub other: u32,
    /// Back ends in each bucket of a histogram.
    pub buckets: Vec<u32>,
}

/// Values of a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct RowView {
    /// The node.
    pub node: u32,
    /// In the order of the stream's metrics.
    pub values: Vec<Option<i64>>,
}

/// Sums over all nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TotalsView {
    /// The tick.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Back ends attached then.
    pub attached: u32,
    /// Name and sum; system calls by the name of the call.
    pub sums: Vec<(String, f64)>,
}

/// The books, in samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BooksView {
    /// Submitted by back ends.
    pub sent: u64,
    /// Values that arrived.
    pub stored: u64,
    /// Reduced into these.
    pub filtered: u64,
    /// Lost on links.
    pub lost_link: u64,
    /// Given up by processes.
    pub lost_dropped: u64,
    /// On their way, or died with a process.
    pub missing: u64,
    /// Arrived though nobody said that they were sent.
    pub unheard: u64,
    /// Nothing is missing, and nothing arrived that nobody sent: so it is when a tree is down of which no process died.
    pub settled: bool,
}

/// A loss.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct LossView {
    /// Who.
    pub process: String,
    /// All that it was the parent of on other nodes.
    pub children: u32,
    /// Of these, those that have no other parent yet.
    #[serde(default)]
    pub orphans: u32,
    /// When it was told, in milliseconds ago.
    pub ago_ms: f64,
    /// From then until all of these had another parent.
    pub mended_ms: Option<f64>,
}

/// How long a tick took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Delay {
    /// The tick.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Back ends attached then.
    pub attached: u32,
    /// From its begin until control had it, in microseconds.
    pub handed_us: u64,
    /// Of this, what it took in control beyond the slowest process below, or beyond the wait for one that was late.
    #[serde(default)]
    pub level_us: u64,
}

/// What a node keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptView {
    /// The node.
    pub node: u32,
    /// Roles, links, messages, values, timers.
    pub kept: u32,
    /// Time since it said so, in milliseconds.
    pub age_ms: u64,
}

fn ms(span: Micros) -> f64 {
    span.as_micros() as f64 / 1e3
}

impl Overlay {
    /// How it stands.
    pub fn view(&self, now: Instant, endpoint: &netstack::control::Endpoint) -> View {
        let status = self.front.status();
        let state = match self.state {
            _ if !self.config.enabled => "off",
            State::Collecting => "collecting",
            State::Standing => "standing",
            State::Renewing => "renewing",
            State::Down => "down",
        };
        let books = self.front.books();
        let kept = endpoint.nodes().map(|node| KeptView {
            node: node.node.0,
            kept: node.vitals.overlay_kept,
            age_ms: now.saturating_since(node.last_heard).as_micros() / 1_000,
        });
        let counters = OverlayMetric::DEFS.iter().enumerate().map(|(index, def)| {
            let value = self.front.counters().get(index);
            (def.open_metrics_name(), value)
        });
        View {
            state: state.to_string(),
            nodes: status.nodes,
            planned: status.planned,
            attached: status.back_ends,
            quiet: status.quiet,
            local: status.local,
            cps: status.cps_planned,
            fan_out: self.layout.fan_out,
            height: status.height,
            built_ms: self.up_after.map(ms),
            taken_down_ms: self
                .down_after
                .and_then(|(begun, over)| Some(ms(over?.saturating_since(begun)))),
            processes: self.processes(now),
            streams: self.streams(),
            ended: self
                .ended
                .iter()
                .map(|(id, asked)| stream_view(*id, &asked.spec, Some(asked)))
                .collect(),
            totals: self.totals_view(),
            books: BooksView {
                sent: books.sent,
                stored: books.stored,
                filtered: books.filtered,
                lost_link: books.lost_link,
                lost_dropped: books.lost_dropped,
                missing: books.missing,
                unheard: books.unheard,
                settled: books.is_settled(),
            },
            losses: self.losses_view(now),
            delays: self.delays.iter().copied().collect(),
            kept: kept.collect(),
            kept_here: status.kept,
            counters: counters.collect(),
        }
    }

    fn processes(&self, now: Instant) -> Vec<ProcessView> {
        let all = self.front.processes();
        let mut children: std::collections::BTreeMap<Process, u32> = Default::default();
        for view in all.values().filter(|view| !view.gone) {
            *children.entry(view.parent).or_default() += 1;
        }
        let shown = all.iter().map(|(process, view)| {
            let row = self.rows.get(&process.node).filter(|_| process.slot == 0);
            ProcessView {
                name: process.to_string(),
                node: process.node.0,
                slot: process.slot,
                parent: view.parent.to_string(),
                height: view.height,
                children: children.get(process).copied().unwrap_or(0),
                back_ends: view.back_ends,
                lag_us: view.lag_us,
                gone: view.gone,
                age_ms: row.map(|row| ms(now.saturating_since(row.at))),
                tick: row.map(|row| row.tick),
            }
        });
        shown.collect()
    }

    fn streams(&self) -> Vec<StreamView> {
        let streams = self.front.streams().iter();
        streams
            .map(|(id, spec)| stream_view(*id, spec, self.asked.get(id)))
            .collect()
    }

    fn totals_view(&self) -> TotalsView {
        let totals = self.totals.shown();
        let named = |(metric, sum): &(MetricId, i128)| {
            let (name, scale) = name_of(*metric)?;
            Some((name, *sum as f64 / f64::from(scale)))
        };
        TotalsView {
            tick: totals.tick,
            covers: totals.covers,
            attached: totals.attached,
            sums: totals.sums.iter().filter_map(named).collect(),
        }
    }

    fn losses_view(&self, now: Instant) -> Vec<LossView> {
        let view = |loss: &super::Loss| LossView {
            process: loss.process.to_string(),
            children: u32::try_from(loss.children).unwrap_or(u32::MAX),
            orphans: u32::try_from(loss.orphans.len()).unwrap_or(u32::MAX),
            ago_ms: ms(now.saturating_since(loss.at)),
            mended_ms: loss
                .mended
                .map(|mended| ms(mended.saturating_since(loss.at))),
        };
        self.losses.iter().map(view).collect()
    }

    /// Nodes whose rows are known, for tests.
    #[cfg(test)]
    pub fn known(&self) -> Vec<netstack::ids::NodeId> {
        self.rows.keys().copied().collect()
    }
}

fn stream_view(id: StreamId, spec: &StreamSpec, asked: Option<&Asked>) -> StreamView {
    let rows = asked.into_iter().flat_map(|asked| &asked.rows);
    let row = |(node, values): (&netstack::ids::NodeId, &Vec<Option<i64>>)| RowView {
        node: node.0,
        values: values.clone(),
    };
    let bounds = match &spec.filter {
        Filter::Histogram(bounds) => bounds.clone(),
        _ => Vec::new(),
    };
    let metrics = spec.metrics.iter();
    let kept = asked.and_then(|asked| asked.kept.as_ref());
    StreamView {
        stream: id.0,
        name: kept.map_or_else(String::new, |(name, _)| name.to_string()),
        filter: word_of(&spec.filter).to_string(),
        bounds,
        period_ms: ms(spec.period),
        job: match spec.scope {
            Scope::Job(job) => Some(crate::jobs::attempt::number(job)),
            _ => None,
        },
        nodes: match &spec.scope {
            Scope::Nodes(ranges) => {
                let nodes = ranges.iter().flat_map(|(first, last)| first.0..=last.0);
                crate::hostlist::format(&nodes.collect::<Vec<_>>())
            }
            _ => String::new(),
        },
        sync: match spec.sync {
            Sync::TimeOut => "timeout",
            Sync::WaitAll => "all",
            Sync::None => "none",
        }
        .into(),
        hold_ms: ms(spec.hold),
        metrics: metrics.map(|metric| shown_name(*metric)).collect(),
        tick: asked.map_or(0, |asked| asked.tick),
        covers: asked.map_or(0, |asked| asked.covers),
        ticks: asked.map_or(0, |asked| asked.ticks),
        values: asked.map_or_else(Vec::new, |asked| {
            let value = |acc| value_view(acc, &spec.filter);
            asked.values.iter().map(value).collect()
        }),
        rows: rows.map(row).collect(),
    }
}

/// A metric as people and other systems see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Described {
    /// Its name in base units.
    pub name: String,
    /// Whether it only grows.
    pub counter: bool,
    /// Its base unit; empty for plain counts.
    pub unit: &'static str,
    /// Raw units in one base unit.
    pub scale: u32,
    /// One sentence.
    pub help: String,
}

/// What is known of a metric by its number.
pub fn described(metric: MetricId) -> Option<Described> {
    let tables = [
        &netstack::overlay::NodeMetric::DEFS[..],
        &OverlayMetric::DEFS,
        &netstack::overlay::NetworkMetric::DEFS,
        &ProfileMetric::DEFS,
    ];
    // Parts of a program's text have numbers in their names, the first one too.
    let buckets = ProfileMetric::FIRST + ProfileMetric::Buckets as u16;
    let found = tables
        .iter()
        .flat_map(|table| table.iter())
        .find(|def| def.id == metric && metric.0 != buckets);
    if let Some(def) = found {
        return Some(Described {
            name: def.open_metrics_name(),
            counter: def.kind == MetricKind::Counter,
            unit: def.unit.suffix().trim_start_matches('_'),
            scale: def.unit.scale(),
            help: format!("{}.", def.help),
        });
    }
    let count = |name: String, counter: bool, help: String| Described {
        name,
        counter,
        unit: "",
        scale: 1,
        help,
    };
    if let Some(part) = metric.0.checked_sub(buckets)
        && usize::from(part) < ProfileMetric::BUCKETS
    {
        let name = format!("hearth_profile_bucket_{part}_total");
        let parts = ProfileMetric::BUCKETS;
        let help =
            format!("Samples in part {part} of the {parts} equal parts of the text, from 0.");
        return Some(count(name, true, help));
    }
    if let Some(index) = metric.0.checked_sub(MetricId::FIRST_PROGRAM) {
        let known = u64::from(index) < hearth_abi::monitor::COUNTERS_MAX;
        let help = format!("Counter {index} of the program.");
        return known.then(|| count(format!("hearth_program_counter_{index}"), false, help));
    }
    let index = metric.0.checked_sub(MetricId::FIRST_CALL)?;
    let number = match u64::from(index) {
        index @ 0..512 => index,
        index => index - 512 + 4096,
    };
    let name = hearth_abi::sysno::name(number)?.to_lowercase();
    let help = format!("Times that programs called {name}, over all nodes.");
    Some(count(format!("hearth_call_{name}_total"), true, help))
}

/// The name of a metric in base units, and raw units in one of these.
pub fn name_of(metric: MetricId) -> Option<(String, u32)> {
    described(metric).map(|described| (described.name, described.scale))
}

/// The name of a metric, or its number where it has none.
fn shown_name(metric: MetricId) -> String {
    name_of(metric).map_or_else(|| metric.0.to_string(), |(name, _)| name)
}

/// All metrics by their names.
static BY_NAME: LazyLock<HashMap<String, MetricId>> = LazyLock::new(|| {
    let all = (1..=u16::MAX).rev().map(MetricId);
    let named = |metric| Some((name_of(metric)?.0, metric));
    all.filter_map(named).collect()
});

/// The metric of a name, as [`name_of`] gives it, or of a number.
pub fn metric_of(name: &str) -> Option<MetricId> {
    match name.parse() {
        Ok(number) => Some(MetricId(number)),
        Err(_) => BY_NAME.get(name).copied(),
    }
}

/// Families of metrics of which one line says the names: what all begin with, what is between, and what they end with.
const FAMILIES: [(&str, &str); 3] = [
    ("hearth_call_", "_total"),
    ("hearth_profile_bucket_", "_total"),
    ("hearth_program_counter_", ""),
];

/// The names of all metrics, in lines, as errors have them.
static NAMES: LazyLock<String> = LazyLock::new(|| listed().join("\n  "));

/// The names of all metrics, a line for each; those of single system calls, parts of a program's text and counters of
/// programs together in one line each.
pub fn names() -> &'static str {
    &NAMES
}

fn listed() -> Vec<String> {
    let all = (1..=u16::MAX).filter_map(|number| described(MetricId(number)));
    let mut of_families: [Vec<String>; FAMILIES.len()] = Default::default();
    let mut lines = Vec::new();
    for name in all.map(|described| described.name) {
        let inside = |(begin, end): &(&str, &str)| {
            let rest = name.strip_prefix(begin)?.strip_suffix(end)?;
            Some(rest.to_string())
        };
        let family = FAMILIES.iter().position(|family| inside(family).is_some());
        match family {
            Some(family) => of_families[family].extend(inside(&FAMILIES[family])),
            None => lines.push(name),
        }
    }
    for ((begin, end), members) in FAMILIES.iter().zip(of_families) {
        let numbers = members.iter().all(|member| member.parse::<u32>().is_ok());
        let members = match (numbers, &members[..]) {
            (true, [first, .., last]) => format!("{first} to {last}"),
            _ => members.join(", "),
        };
        lines.push(format!("{begin}X{end} with X one of {members}"));
    }
    lines
}

/// The word for a filter.
fn word_of(filter: &Filter) -> &'static str {
    match filter {
        Filter::Sum => "sum",
        Filter::Min => "min",
        Filter::Max => "max",
        Filter::Avg => "avg",
        Filter::Concat => "concat",
        Filter::Classes => "classes",
        Filter::Histogram(_) => "histogram",
    }
}

/// The filter of a word; `bounds` are those of a histogram.
///
/// # Errors
/// Which filters there are, or that another one has no bounds.
pub fn filter_of(word: &str, bounds: Vec<i64>) -> Result<Filter, String> {
    let plain = [
        Filter::Sum,
        Filter::Min,
        Filter::Max,
        Filter::Avg,
        Filter::Concat,
        Filter::Classes,
    ];
    if word == word_of(&Filter::Histogram(Vec::new())) {
        return Ok(Filter::Histogram(bounds));
    }
    let found = plain.into_iter().find(|filter| word_of(filter) == word);
    match found {
        Some(_) if !bounds.is_empty() => Err(format!(
            "only a histogram has bounds, not {word}: leave them out, or take the filter histogram"
        )),
        Some(filter) => Ok(filter),
        None => Err(format!(
            "there is no filter {word:?}; there are sum, min, max, avg, concat, classes, histogram"
        )),
    }
}

fn value_view(acc: &Acc, filter: &Filter) -> ValueView {
    let mut view = ValueView {
        count: acc.count,
        ..ValueView::default()
    };
    match &acc.reduced {
        Some(Reduced::Total(sum)) if *filter == Filter::Avg => {
            view.sum = Some(*sum as f64);
            view.value = acc.mean_millionths().map(|mean| mean as f64 / 1e6);
        }
        Some(Reduced::Total(sum)) => view.value = Some(*sum as f64),
        Some(Reduced::Least(value) | Reduced::Most(value)) => view.value = Some(*value as f64),
        Some(Reduced::Classes { classes, other }) => {
            view.other = *other;
            let class =
                |class: &netstack::overlay::Class| (class.value, class.count, class.example.0);
            view.classes = classes.iter().map(class).collect();
        }
        Some(Reduced::Buckets(buckets)) => view.buckets = buckets.clone(),
        None => {}
    }
    view
}

#[cfg(test)]
mod tests {
    use netstack::ids::NodeId;

    use super::*;

    fn reduced(filter: &Filter, values: &[i64]) -> ValueView {
        let mut acc = Acc::default();
        for (node, value) in (0..).zip(values) {
            assert!(acc.merge(Acc::of(filter, NodeId(node), *value)));
        }
        value_view(&acc, filter)
    }

    #[test]
    fn avg_is_the_mean_with_the_sum_and_the_number_beside_it() {
        let values = [2_000_000, 2_000_001, 2_000_005, 1];
        let mean = reduced(&Filter::Avg, &values);
        assert_eq!(
            (mean.value, mean.sum, mean.count),
            (Some(1_500_001.75), Some(6_000_007.0), 4)
        );
        let sum = reduced(&Filter::Sum, &values);
        assert_eq!((sum.value, sum.sum), (Some(6_000_007.0), None));
        assert_eq!(reduced(&Filter::Avg, &[]).value, None);
    }

    #[test]
    fn filters_have_words_and_only_a_histogram_has_bounds() {
        for word in ["sum", "min", "max", "avg", "concat", "classes"] {
            assert_eq!(word_of(&filter_of(word, Vec::new()).unwrap()), word);
            assert!(filter_of(word, vec![1]).unwrap_err().contains("bounds"));
        }
        let histogram = filter_of("histogram", vec![1, 2]).unwrap();
        assert_eq!(histogram, Filter::Histogram(vec![1, 2]));
        assert!(filter_of("mean", Vec::new()).unwrap_err().contains("avg"));
    }

    #[test]
    fn every_name_that_is_listed_is_one_that_is_known() {
        let listed = names();
        for number in 1..=u16::MAX {
            let Some((name, _)) = name_of(MetricId(number)) else {
                continue;
            };
            assert_eq!(metric_of(&name), Some(MetricId(number)), "{name}");
            let of_family = FAMILIES.iter().any(|(begin, _)| name.starts_with(begin));
            assert!(of_family || listed.contains(&name), "{name}");
        }
        for words in [
            "hearth_call_X_total with X one of read, write,",
            "hearth_profile_bucket_X_total with X one of 0 to 55",
            "hearth_program_counter_X with X one of 0 to 15",
        ] {
            assert!(listed.contains(words), "{words} is missing in\n{listed}");
        }
    }
}
