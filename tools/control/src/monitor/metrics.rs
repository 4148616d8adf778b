//! What is measured of every node: names, units, kinds and where each value comes from.
//!
//! Two tables of one form (`netstack::counters!`): what nodes count ([`NodeMetric`], the same
//! definitions that the kernel counts by), and what control itself knows of a node
//! ([`ControlMetric`]). A new line in one of them is a new column in the store, on the page, in
//! `/metrics` and in `hearth top`; nothing else needs to know.
//!
//! After them come the counters that programs set, by number: what they are called is a matter of
//! the job.
//!
//! Key items: [`declared`], [`values`]. Values of nodes come through the overlay ([`row`]); what a
//! heartbeat says too is taken from there while they do not ([`heartbeat`]); [`super::newest`] says
//! which.
//!
//! Invariants: names and meanings never change; a metric that means something else gets another
//! name. A job has the number that people know, not that of its attempt.

use hearth_monitor::Metric;
use netstack::ids::JobId;
use netstack::overlay::{MetricDef, MetricId, MetricKind, NodeMetric, Unit};
use netstack::vitals::Vitals;

use crate::jobs::attempt;

netstack::counters! {
    /// What control knows of a node by itself. The numbers are not on any wire.
    pub enum ControlMetric from 0x7000 {
        Busy: "hearth_node_busy", Gauge, Ratio, "Share of time the CPU was busy";
        HasJob: "hearth_node_has_job", Gauge, Count, "1 while the node has a job";
        WarmPrograms: "hearth_node_warm_programs", Gauge, Count, "Programs that the node keeps for their next launch";
        Warm: "hearth_node_warm", Gauge, Bytes, "Memory of the programs that the node keeps";
        HeartbeatAge: "hearth_node_heartbeat_age", Gauge, Seconds, "Time since the control node last heard from the node";
        Cores: "hearth_node_cores", Gauge, Count, "Cores that the node has for programs";
    }
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// What control knows of a node, beside its heartbeat.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// Parts in a million of the time between the last two heartbeats that it was not halted.
    pub busy_ppm: Option<i64>,
    /// Microseconds since it was heard.
    pub silent_us: u64,
    /// Whether it has a job.
    pub has_job: bool,
    /// Programs it keeps for their next launch.
    pub warm_programs: u64,
    /// Pages of 4 KiB of these.
    pub warm_pages: u64,
    /// Cores it has for programs.
    pub cores: u16,
}

fn defs() -> impl Iterator<Item = &'static MetricDef> {
    ControlMetric::DEFS.iter().chain(&NodeMetric::DEFS)
}

fn metric(def: &MetricDef) -> Metric {
    let make = match def.kind {
        MetricKind::Counter => Metric::counter,
        MetricKind::Gauge => Metric::gauge,
    };
    let unit = match def.unit {
        Unit::Count => "",
        Unit::Bytes => "bytes",
        Unit::Seconds => "seconds",
        Unit::Ratio => "ratio",
    };
    let scale = 1.0 / f64::from(def.unit.scale());
    make(
        &def.open_metrics_name(),
        unit,
        scale,
        &format!("{}.", def.help),
    )
}

/// Metrics that are not counters of a program: these are the first.
pub const OF_NODE: usize = ControlMetric::COUNT + NodeMetric::COUNT;

/// All metrics of a node, in the order of [`values`].
pub fn declared() -> Vec<Metric> {
    let of_program = (0..MetricId::PROGRAM).map(|index| {
        let name = format!("hearth_program_counter_{index}");
        let help =
            format!("Counter {index} of the program on the node, as the program has set it.");
        Metric::gauge(&name, "", 1.0, &help)
    });
    defs().map(metric).chain(of_program).collect()
}

/// Those that say how a node did: whether it had a job, which one, and how long it had been silent.
pub fn of_state() -> [Metric; 3] {
    let defs = [
        &ControlMetric::DEFS[ControlMetric::HasJob as usize],
        &NodeMetric::DEFS[NodeMetric::Job as usize],
        &ControlMetric::DEFS[ControlMetric::HeartbeatAge as usize],
    ];
    defs.map(metric)
}

/// As the store has it; what is above is cut off, which takes a count of 292,000 years of
/// microseconds.
fn stored(value: u64) -> Option<i64> {
    Some(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A node's values, as the store has them. `of_node`: those of [`NodeMetric`]; `of_program`: what
/// its program has set, empty for nothing.
pub fn values(
    known: &Known,
    of_node: Vec<Option<i64>>,
    of_program: &[Option<i64>],
) -> Vec<Option<i64>> {
    let own = [
        known.busy_ppm,
        Some(known.has_job.into()),
        stored(known.warm_programs),
        stored(known.warm_pages.saturating_mul(PAGE_BYTES)),
        stored(known.silent_us),
        stored(known.cores.into()),
    ];
    joined(own, of_node, of_program)
}

/// Values of a node of which nothing new had come, with what came of it afterwards, of that
/// instant.
pub fn with_late(
    values: &[Option<i64>],
    of_node: Vec<Option<i64>>,
    of_program: &[Option<i64>],
) -> Vec<Option<i64>> {
    let own = values.iter().copied().take(ControlMetric::COUNT);
    joined(own, of_node, of_program)
}

fn joined(
    own: impl IntoIterator<Item = Option<i64>>,
    of_node: Vec<Option<i64>>,
    of_program: &[Option<i64>],
) -> Vec<Option<i64>> {
    let set = of_program.iter().copied().chain(std::iter::repeat(None));
    let of_node = own.into_iter().chain(of_node);
    of_node.chain(set.take(MetricId::PROGRAM)).collect()
}

/// Of a node of which nothing new has come: what control itself knows of it at that instant, of
/// [`values`].
pub fn of_control(values: &[Option<i64>]) -> Vec<Option<i64>> {
    let own = values.iter().take(ControlMetric::COUNT);
    let mut own: Vec<Option<i64>> = own.copied().collect();
    // That is made of what the node says.
    if let Some(busy) = own.get_mut(ControlMetric::Busy as usize) {
        *busy = None;
    }
    own.resize(values.len(), None);
    own
}

/// A job as the store has it; 0: none.
fn job(known_to_nodes: Option<JobId>) -> Option<i64> {
    stored(known_to_nodes.map_or(0, attempt::number))
}

/// What a row of the overlay, in the order of [`NodeMetric`] and then more, says of [`NodeMetric`];
/// `None` for one that is too short.
pub fn row(row: &[Option<i64>]) -> Option<Vec<Option<i64>>> {
    let mut values = row.get(..NodeMetric::COUNT)?.to_vec();
    let place = &mut values[NodeMetric::Job as usize];
    *place = place.and_then(|number| job(u64::try_from(number).ok().map(JobId)));
    Some(values)
}

/// What a heartbeat says of [`NodeMetric`].
pub fn heartbeat(vitals: &Vitals) -> Vec<Option<i64>> {
    let (user, idle, casts) = (
        &vitals.interrupts_user,
        &vitals.interrupts_idle,
        &vitals.casts,
    );
    let mut values = vec![None; NodeMetric::COUNT];
    let said = [
        (NodeMetric::Uptime, vitals.uptime_us),
        (NodeMetric::TimeIdle, vitals.idle_us),
        (NodeMetric::MemoryUsed, vitals.memory_used),
        (NodeMetric::MemoryFree, vitals.memory_free),
        (NodeMetric::UserHeartbeatInterrupts, user.heartbeat),
        (NodeMetric::UserTimeLimitInterrupts, user.time_limit),
        (NodeMetric::UserMonitorInterrupts, user.monitor),
        (NodeMetric::UserNicInterrupts, user.nic),
        (NodeMetric::UserCastInterrupts, user.cast),
        (NodeMetric::UserSpuriousInterrupts, user.spurious),
        (NodeMetric::IdleHeartbeatInterrupts, idle.heartbeat),
        (NodeMetric::IdleNicInterrupts, idle.nic),
        (NodeMetric::IdleCastInterrupts, idle.cast),
        (NodeMetric::IdleSpuriousInterrupts, idle.spurious),
        (NodeMetric::CastBlocksReceived, casts.blocks_in),
        (NodeMetric::CastBlocksSent, casts.blocks_out),
        (NodeMetric::CastBlocksCorrupt, casts.corrupt),
        (NodeMetric::CastDuplicates, casts.duplicates),
    ];
    for (metric, value) in said {
        values[metric as usize] = stored(value);
    }
    values[NodeMetric::Job as usize] = job(vitals.job);
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use hearth_monitor::Kind;

    #[test]
    fn names_say_what_they_are() {
        let metrics = declared();
        let mut names: Vec<&str> = metrics.iter().map(|metric| metric.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), metrics.len(), "a name is there twice");
        for metric in &metrics {
            assert_eq!(metric.name, hearth_monitor::openmetrics::name(&metric.name));
            assert_eq!(
                metric.kind == Kind::Counter,
                metric.name.ends_with("_total")
            );
            let base = metric.name.trim_end_matches("_total");
            assert!(
                base.ends_with(&metric.unit),
                "{} without its unit",
                metric.name
            );
            assert!(metric.help.ends_with('.'), "{}", metric.name);
        }
        let of_node = heartbeat(&Vitals::default());
        let none = values(&Known::default(), of_node.clone(), &[]);
        assert_eq!(none.len(), metrics.len());
        assert_eq!(none[OF_NODE..], [None; MetricId::PROGRAM]);
        let set = values(&Known::default(), of_node, &[Some(-7), None, Some(9)]);
        assert_eq!(set.len(), metrics.len());
        assert_eq!(set[OF_NODE..OF_NODE + 3], [Some(-7), None, Some(9)]);
        assert_eq!(metrics[OF_NODE].name, "hearth_program_counter_0");
    }

    #[test]
    fn a_job_s_number_is_its_own_whatever_the_attempt() {
        let place = NodeMetric::Job as usize;
        let vitals = |job| Vitals {
            job,
            ..Vitals::default()
        };
        let again = attempt::on_nodes(7, 33);
        assert_eq!(heartbeat(&vitals(Some(again)))[place], Some(7));
        assert_eq!(heartbeat(&vitals(None))[place], Some(0));
        let mut values = vec![Some(1); NodeMetric::COUNT + 2];
        values[place] = Some(again.0 as i64);
        let values = row(&values).unwrap();
        assert_eq!((values.len(), values[place]), (NodeMetric::COUNT, Some(7)));
        assert_eq!(row(&values[1..]), None);
    }
}
