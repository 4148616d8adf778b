//! How the overlay stands, for the API and the page.
//!
//! Key type: [`View`]. Invariant: a copy; nothing here refers to the control state.

use netstack::overlay::{
    Acc, MetricId, MetricKind, OverlayMetric, Process, ProfileMetric, Reduced, Scope, StreamId,
    StreamSpec,
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
    /// `sum`, `concat`, ...
    pub filter: String,
    /// Its period in milliseconds.
    pub period_ms: f64,
    /// The job that it ends with.
    pub job: Option<u64>,
    /// Names of its metrics.
    pub metrics: Vec<String>,
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
    /// Their sum, least or most.
    pub value: Option<f64>,
    /// Classes: value, how many, and one of them.
    pub classes: Vec<(i64, u32, u32)>,
    /// Buckets of a histogram.
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
    let filter = format!("{:?}", spec.filter);
    let filter = filter.split('(').next().unwrap_or_default();
    let metrics = spec.metrics.iter();
    StreamView {
        stream: id.0,
        filter: filter.to_lowercase(),
        period_ms: ms(spec.period),
        job: match spec.scope {
            Scope::Job(job) => Some(crate::jobs::attempt::number(job)),
            _ => None,
        },
        metrics: metrics.map(|metric| shown_name(*metric)).collect(),
        tick: asked.map_or(0, |asked| asked.tick),
        covers: asked.map_or(0, |asked| asked.covers),
        ticks: asked.map_or(0, |asked| asked.ticks),
        values: asked.map_or_else(Vec::new, |asked| {
            asked.values.iter().map(value_view).collect()
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
    let found = tables
        .iter()
        .flat_map(|table| table.iter())
        .find(|def| def.id == metric);
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
    let buckets = ProfileMetric::FIRST + ProfileMetric::Buckets as u16;
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

/// The metric of a name, as [`name_of`] gives it, or of a number.
pub fn metric_of(name: &str) -> Option<MetricId> {
    if let Ok(number) = name.parse() {
        return Some(MetricId(number));
    }
    let all = (1..=u16::MAX).map(MetricId);
    all.into_iter().find(|metric| {
        let found = name_of(*metric);
        found.is_some_and(|(known, _)| known == name)
    })
}

/// The names of all metrics, but for those of single system calls and parts of a program's text: of each of these one.
pub fn names() -> Vec<String> {
    let all = (1..=u16::MAX).filter_map(|number| described(MetricId(number)));
    let names: Vec<String> = all.map(|described| described.name).collect();
    let mut last_family = "";
    let mut shown = Vec::new();
    for name in &names {
        let families = ["hearth_call_", "hearth_profile_bucket_"];
        let family = families.into_iter().find(|family| name.starts_with(family));
        let family = family.unwrap_or_default();
        if family.is_empty() || family != last_family {
            shown.push(name.clone());
        }
        last_family = family;
    }
    shown
}

fn value_view(acc: &Acc) -> ValueView {
    let mut view = ValueView {
        count: acc.count,
        ..ValueView::default()
    };
    match &acc.reduced {
        Some(Reduced::Total(sum)) => view.value = Some(*sum as f64),
        Some(Reduced::Least(value) | Reduced::Most(value)) => view.value = Some(*value as f64),
        Some(Reduced::Classes { classes, .. }) => {
            let class =
                |class: &netstack::overlay::Class| (class.value, class.count, class.example.0);
            view.classes = classes.iter().map(class).collect();
        }
        Some(Reduced::Buckets(buckets)) => view.buckets = buckets.clone(),
        None => {}
    }
    view
}
