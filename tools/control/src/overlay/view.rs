//! How the overlay stands, for the API and the page.
//!
//! Key type: [`View`]. Neighbour: [`super::catalogue`], which names metrics and knows their units.
//!
//! Invariants: a copy; nothing here refers to the control state. Values and bounds are in base
//! units.

use netstack::overlay::{
    Acc, Filter, MetricId, OverlayMetric, Process, Reduced, Scope, StreamId, StreamSpec, Sync,
};
use netstack::time::{Instant, Micros};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::catalogue::{self, Described};
use super::recent::TickSoFar;
use super::{Asked, Overlay, State};
use crate::near;

/// State of an overlay that the configuration switched off.
pub const OFF: &str = "off";
/// State of one whose tree stands.
pub const STANDING: &str = "standing";
/// State of one that somebody took down.
pub const DOWN: &str = "down";

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
    /// Bounds of a histogram, in the unit of its metrics: bucket *i* has values up to bound *i* and
    /// above the one before.
    #[serde(default)]
    pub bounds: Vec<f64>,
    /// The last tick, or, of a stream that has ended, the last of those that cover most; only of
    /// streams that somebody asked for.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Ticks that have arrived.
    pub ticks: u64,
    /// Control opened it for itself: it cannot be closed, and its values are elsewhere.
    #[serde(default)]
    pub always: bool,
    /// For reduced streams: how many back ends are in each value, and what is known of them.
    pub values: Vec<ValueView>,
    /// For concat: the newest values of each node.
    pub rows: Vec<RowView>,
}

/// A reduced value, in the unit that the metric's name says.
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
    pub classes: Vec<(f64, u32, u32)>,
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
    /// In the order of the stream's metrics, in the units that their names say.
    pub values: Vec<Option<f64>>,
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
    /// Nothing is missing, and nothing arrived that nobody sent: so it is when a tree is down of
    /// which no process died.
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
    /// Of this, what it took in control beyond the slowest process below, or beyond the wait for
    /// one that was late.
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
    /// `collecting`, `standing`, `renewing`, `down` or `off`.
    pub fn state_word(&self) -> &'static str {
        match self.state {
            _ if !self.config.enabled => OFF,
            State::Collecting => "collecting",
            State::Standing => STANDING,
            State::Renewing => "renewing",
            State::Down => DOWN,
        }
    }

    /// How it stands.
    pub fn view(&self, now: Instant, endpoint: &netstack::control::Endpoint) -> View {
        let status = self.front.status();
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
            state: self.state_word().to_string(),
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
                .map(|(id, asked)| stream_view(*id, &asked.spec, Some(asked), asked.result()))
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
            .map(|(id, spec)| {
                let asked = self.asked.get(id);
                stream_view(*id, spec, asked, asked.and_then(Asked::newest))
            })
            .collect()
    }

    fn totals_view(&self) -> TotalsView {
        let totals = self.totals.shown();
        let named = |(metric, sum): &(MetricId, i128)| {
            let described = catalogue::described(*metric)?;
            let sum = described.in_base_units(*sum as f64);
            Some((described.name.clone(), sum))
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

/// A stream, with the tick of it that is shown.
fn stream_view(
    id: StreamId,
    spec: &StreamSpec,
    asked: Option<&Asked>,
    shown: Option<&TickSoFar>,
) -> StreamView {
    // Looked up once for all nodes.
    let metrics = spec.metrics.iter();
    let described: Vec<_> = metrics
        .map(|metric| catalogue::described(*metric))
        .collect();
    let rows = asked.into_iter().flat_map(|asked| &asked.rows);
    let rows = rows.map(|(node, (_, values))| {
        let value = |(described, value): (&Option<&Described>, &Option<i64>)| {
            let raw = (*value)? as f64;
            Some(described.map_or(raw, |described| described.in_base_units(raw)))
        };
        RowView {
            node: node.0,
            values: described.iter().zip(values).map(value).collect(),
        }
    });
    // All metrics of a histogram have one unit.
    let bounds = match (&spec.filter, spec.metrics.first()) {
        (Filter::Histogram(bounds), Some(metric)) => {
            let shown = |raw: &i64| catalogue::in_base_units(*metric, *raw as f64);
            bounds.iter().map(shown).collect()
        }
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
        metrics: metrics
            .map(|metric| catalogue::shown_name(*metric))
            .collect(),
        tick: shown.map_or(0, |shown| shown.tick),
        covers: shown.map_or(0, |shown| shown.covers),
        ticks: asked.map_or(0, Asked::ticks),
        always: asked.is_none(),
        values: shown.map_or_else(Vec::new, |shown| {
            let value = |(metric, acc): (&MetricId, &Acc)| value_view(*metric, acc, &spec.filter);
            spec.metrics.iter().zip(&shown.values).map(value).collect()
        }),
        rows: rows.collect(),
    }
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

/// The filter of a word; `bounds`, in the unit of `metrics`, are those of a histogram.
///
/// # Errors
/// Which filters there are, that another one has no bounds, or what is wrong with these.
pub fn filter_of(word: &str, bounds: &[f64], metrics: &[MetricId]) -> Result<Filter, String> {
    let plain = [
        Filter::Sum,
        Filter::Min,
        Filter::Max,
        Filter::Avg,
        Filter::Concat,
        Filter::Classes,
    ];
    let histogram = word_of(&Filter::Histogram(Vec::new()));
    if word == histogram {
        return catalogue::raw_bounds(bounds, metrics).map(Filter::Histogram);
    }
    let found = plain.iter().find(|filter| word_of(filter) == word);
    match found {
        Some(_) if !bounds.is_empty() => Err(format!(
            "only a histogram has bounds, not {word}: leave them out, or take the filter histogram"
        )),
        Some(filter) => Ok(filter.clone()),
        None => {
            let words: Vec<&str> = plain.iter().map(word_of).chain([histogram]).collect();
            let near = near::did_you_mean(word, words.iter().copied());
            let words = words.join(", ");
            let word = near::quoted(word);
            Err(format!(
                "there is no filter {word}{near}; there are {words}"
            ))
        }
    }
}

/// What became of a metric, in its base unit.
fn value_view(metric: MetricId, acc: &Acc, filter: &Filter) -> ValueView {
    let shown = |raw: f64| catalogue::in_base_units(metric, raw);
    let mut view = ValueView {
        count: acc.count,
        ..ValueView::default()
    };
    match &acc.reduced {
        Some(Reduced::Total(sum)) if *filter == Filter::Avg => {
            view.sum = Some(shown(*sum as f64));
            view.value = acc.mean_millionths().map(|mean| shown(mean as f64) / 1e6);
        }
        Some(Reduced::Total(sum)) => view.value = Some(shown(*sum as f64)),
        Some(Reduced::Least(value) | Reduced::Most(value)) => {
            view.value = Some(shown(*value as f64));
        }
        Some(Reduced::Classes { classes, other }) => {
            view.other = *other;
            let class = |class: &netstack::overlay::Class| {
                (shown(class.value as f64), class.count, class.example.0)
            };
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
    use netstack::overlay::NodeMetric;
    use netstack::overlay::TickBody;
    use netstack::time::Micros;

    use super::*;

    fn merged(filter: &Filter, values: &[i64]) -> Acc {
        let mut acc = Acc::default();
        for (node, value) in (0..).zip(values) {
            assert!(acc.merge(Acc::of(filter, NodeId(node), *value)));
        }
        acc
    }

    fn reduced(filter: &Filter, values: &[i64]) -> ValueView {
        value_view(NodeMetric::MemoryUsed.id(), &merged(filter, values), filter)
    }

    /// How a stream of uptimes is shown, of which nodes sent 83.25 s and twice 624.650925 s.
    fn of_uptimes(filter: Filter) -> StreamView {
        let metrics = vec![NodeMetric::Uptime.id()];
        let values = [83_250_000, 624_650_925, 624_650_925];
        let spec = StreamSpec::new(metrics, filter.clone(), Micros::from_secs(1));
        let mut asked = Asked::new(StreamId(3), spec.clone());
        let body = match filter {
            Filter::Concat => {
                let row = |(node, value): (u32, &i64)| netstack::overlay::Row {
                    node: NodeId(node),
                    node_time_us: 0,
                    values: vec![Some(*value)],
                };
                TickBody::Rows((0..).zip(&values).map(row).collect())
            }
            filter => TickBody::Reduced(vec![merged(&filter, &values)]),
        };
        let taken = asked.take(netstack::overlay::TickValue {
            stream: StreamId(3),
            tick: 7,
            covers: 3,
            attached: 3,
            ends: true,
            at: Instant::ZERO,
            values: body,
        });
        assert!(taken.is_ok());
        stream_view(StreamId(3), &spec, Some(&asked), asked.newest())
    }

    #[test]
    fn values_and_bounds_are_in_the_unit_that_the_name_says() {
        let value = |filter| of_uptimes(filter).values[0].value.unwrap();
        assert_eq!(value(Filter::Max), 624.650925);
        assert_eq!(value(Filter::Min), 83.25);
        assert_eq!(value(Filter::Sum), 1332.55185);
        assert_eq!(value(Filter::Avg), 444.18395);
        assert_eq!(of_uptimes(Filter::Avg).values[0].sum, Some(1332.55185));
        let classes = of_uptimes(Filter::Classes).values.remove(0).classes;
        assert_eq!(classes, [(83.25, 1, 0), (624.650925, 2, 1)]);
        let rows = of_uptimes(Filter::Concat).rows;
        assert_eq!(rows[0].values, [Some(83.25)]);
        // What was asked for in seconds is compared in what nodes send, and shown in seconds.
        let filter = filter_of("histogram", &[100.0, 1000.0], &[NodeMetric::Uptime.id()]);
        let shown = of_uptimes(filter.unwrap());
        assert_eq!(shown.values[0].buckets, [1, 2, 0]);
        assert_eq!(shown.bounds, [100.0, 1000.0]);
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
        let metrics = [NodeMetric::MemoryUsed.id()];
        for word in ["sum", "min", "max", "avg", "concat", "classes"] {
            assert_eq!(word_of(&filter_of(word, &[], &metrics).unwrap()), word);
            let error = filter_of(word, &[1.0], &metrics).unwrap_err();
            assert!(error.contains("bounds"), "{error}");
        }
        let histogram = filter_of("histogram", &[1.0, 2.0], &metrics).unwrap();
        assert_eq!(histogram, Filter::Histogram(vec![1, 2]));
        let error = filter_of("histogramm", &[], &metrics).unwrap_err();
        assert!(
            error.contains("did you mean histogram?") && error.contains("avg"),
            "{error}"
        );
    }
}
