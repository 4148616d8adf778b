//! What is measured of every node: names, units, kinds and where each value comes from.
//!
//! Two tables of one form (`netstack::counters!`): what nodes count ([`NodeMetric`], the same definitions that the kernel
//! counts by), and what control itself knows of a node ([`ControlMetric`]). A new line in one of them is a new column in
//! the store, on the page, in `/metrics` and in `hearth top`; nothing else needs to know.
//!
//! Key items: [`declared`], [`values`]. Values of nodes come through the overlay; what a heartbeat says too is taken from
//! there while they do not.
//!
//! Invariant: names and meanings never change; a metric that means something else gets another name.

use hearth_monitor::Metric;
use netstack::overlay::{MetricDef, MetricKind, NodeMetric, Unit};
use netstack::vitals::Vitals;

netstack::counters! {
    /// What control knows of a node by itself. The numbers are not on any wire.
    pub enum ControlMetric from 0x7000 {
        Busy: "hearth_node_busy", Gauge, Ratio, "Share of its time that the node was not halted";
        HasJob: "hearth_node_has_job", Gauge, Count, "1 while the node has a job";
        WarmPrograms: "hearth_node_warm_programs", Gauge, Count, "Programs that the node keeps for their next launch";
        Warm: "hearth_node_warm", Gauge, Bytes, "Memory of the programs that the node keeps";
        HeartbeatAge: "hearth_node_heartbeat_age", Gauge, Seconds, "Time since the node was heard";
    }
}

/// Bytes of a page.
const PAGE_BYTES: u64 = 4096;

/// What control knows of a node, beside its heartbeat.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// The last heartbeat.
    pub vitals: Vitals,
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

/// All metrics of a node, in the order of [`values`].
pub fn declared() -> Vec<Metric> {
    defs().map(metric).collect()
}

/// As the store has it; what is above is cut off, which takes a count of 292,000 years of microseconds.
fn stored(value: u64) -> Option<i64> {
    Some(i64::try_from(value).unwrap_or(i64::MAX))
}

/// A node's values, as the store has them. `row`: what came through the overlay, in the order of [`NodeMetric`] and then more,
/// if that is fresh.
pub fn values(known: &Known, row: Option<&[Option<i64>]>) -> Vec<Option<i64>> {
    let own = [
        known.busy_ppm,
        Some(known.has_job.into()),
        stored(known.warm_programs),
        stored(known.warm_pages.saturating_mul(PAGE_BYTES)),
        stored(known.silent_us),
    ];
    let of_node: Vec<Option<i64>> = match row.and_then(|row| row.get(..NodeMetric::COUNT)) {
        Some(row) => row.to_vec(),
        None => heartbeat(&known.vitals),
    };
    own.into_iter().chain(of_node).collect()
}

/// What a heartbeat says of [`NodeMetric`].
fn heartbeat(vitals: &Vitals) -> Vec<Option<i64>> {
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
        (NodeMetric::Job, vitals.job.map_or(0, |job| job.0)),
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
        assert_eq!(values(&Known::default(), None).len(), metrics.len());
    }

    #[test]
    fn the_overlay_s_values_go_before_those_of_heartbeats() {
        let known = Known {
            vitals: Vitals {
                memory_used: 7,
                ..Vitals::default()
            },
            ..Known::default()
        };
        let place = ControlMetric::COUNT + NodeMetric::MemoryUsed as usize;
        assert_eq!(values(&known, None)[place], Some(7));
        let row = vec![Some(9); NodeMetric::COUNT];
        assert_eq!(values(&known, Some(&row))[place], Some(9));
        assert_eq!(values(&known, Some(&row[1..]))[place], Some(7));
    }
}
