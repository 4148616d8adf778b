//! What is measured of every node: one table of names, units, kinds and where the value comes from.
//!
//! Key items: [`declared`], [`values`]. A new line here is a new column in the store, on the page, in
//! `/metrics` and in `hearth top`; nothing else needs to know.
//!
//! Invariant: names and meanings never change; a metric that means something else gets another name.

use hearth_monitor::Metric;
use netstack::vitals::Vitals;

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

/// One line of the table.
struct Declared {
    metric: fn(&str, &str, f64, &str) -> Metric,
    name: &'static str,
    unit: &'static str,
    scale: f64,
    help: &'static str,
    value: fn(&Known) -> Option<i64>,
}

const fn gauge(
    name: &'static str,
    unit: &'static str,
    scale: f64,
    help: &'static str,
    value: fn(&Known) -> Option<i64>,
) -> Declared {
    let metric = Metric::gauge;
    Declared {
        metric,
        name,
        unit,
        scale,
        help,
        value,
    }
}

const fn counter(
    name: &'static str,
    unit: &'static str,
    scale: f64,
    help: &'static str,
    value: fn(&Known) -> Option<i64>,
) -> Declared {
    let metric = Metric::counter;
    Declared {
        metric,
        name,
        unit,
        scale,
        help,
        value,
    }
}

/// As the store has it; what is above is cut off, which takes a count of 292,000 years of microseconds.
fn stored(value: u64) -> Option<i64> {
    Some(i64::try_from(value).unwrap_or(i64::MAX))
}

/// Microseconds, as seconds.
const MICRO: f64 = 1e-6;
/// Pages, as bytes.
const PAGE: f64 = 4096.0;

#[rustfmt::skip]
const TABLE: &[Declared] = &[
    gauge("hearth_node_busy_ratio", "ratio", MICRO, "Share of its time that the node was not halted.",
        |known| known.busy_ppm),
    gauge("hearth_node_memory_used_bytes", "bytes", 1.0, "Memory in use.",
        |known| stored(known.vitals.memory_used)),
    gauge("hearth_node_memory_free_bytes", "bytes", 1.0, "Memory that is free.",
        |known| stored(known.vitals.memory_free)),
    gauge("hearth_node_has_job", "", 1.0, "1 while the node has a job.",
        |known| Some(known.has_job.into())),
    gauge("hearth_node_warm_programs", "", 1.0, "Programs that the node keeps for their next launch.",
        |known| stored(known.warm_programs)),
    gauge("hearth_node_warm_bytes", "bytes", PAGE, "Memory of the programs that the node keeps.",
        |known| stored(known.warm_pages)),
    gauge("hearth_node_heartbeat_age_seconds", "seconds", MICRO, "Time since the node was heard.",
        |known| stored(known.silent_us)),
    gauge("hearth_node_uptime_seconds", "seconds", MICRO, "Time since the node's kernel began.",
        |known| stored(known.vitals.uptime_us)),
    counter("hearth_node_idle_seconds_total", "seconds", MICRO, "Time that the node spent halted.",
        |known| stored(known.vitals.idle_us)),
    counter("hearth_node_user_heartbeat_interrupts_total", "", 1.0, "Timer interrupts of a running program, for heartbeats.",
        |known| stored(known.vitals.interrupts_user.heartbeat)),
    counter("hearth_node_user_time_limit_interrupts_total", "", 1.0, "Timer interrupts of a running program, for its time limit.",
        |known| stored(known.vitals.interrupts_user.time_limit)),
    counter("hearth_node_user_monitor_interrupts_total", "", 1.0, "Timer interrupts of a running program, for its own monitoring period.",
        |known| stored(known.vitals.interrupts_user.monitor)),
    counter("hearth_node_user_nic_interrupts_total", "", 1.0, "Network interrupts of a running program that waits for the network.",
        |known| stored(known.vitals.interrupts_user.nic)),
    counter("hearth_node_user_cast_interrupts_total", "", 1.0, "Interrupts of a running program, for a cast.",
        |known| stored(known.vitals.interrupts_user.cast)),
    counter("hearth_node_user_spurious_interrupts_total", "", 1.0, "Interrupts of a running program that nobody asked for.",
        |known| stored(known.vitals.interrupts_user.spurious)),
    counter("hearth_node_idle_heartbeat_interrupts_total", "", 1.0, "Timer interrupts outside programs, for heartbeats.",
        |known| stored(known.vitals.interrupts_idle.heartbeat)),
    counter("hearth_node_idle_nic_interrupts_total", "", 1.0, "Network interrupts outside programs.",
        |known| stored(known.vitals.interrupts_idle.nic)),
    counter("hearth_node_idle_cast_interrupts_total", "", 1.0, "Interrupts outside programs, for a cast.",
        |known| stored(known.vitals.interrupts_idle.cast)),
    counter("hearth_node_idle_spurious_interrupts_total", "", 1.0, "Interrupts outside programs that nobody asked for.",
        |known| stored(known.vitals.interrupts_idle.spurious)),
    counter("hearth_node_cast_blocks_received_total", "", 1.0, "Blocks of casts received, checked and kept.",
        |known| stored(known.vitals.casts.blocks_in)),
    counter("hearth_node_cast_blocks_sent_total", "", 1.0, "Blocks of casts sent to others.",
        |known| stored(known.vitals.casts.blocks_out)),
    counter("hearth_node_cast_blocks_corrupt_total", "", 1.0, "Blocks of casts that were not what their hash says.",
        |known| stored(known.vitals.casts.corrupt)),
    counter("hearth_node_cast_duplicates_total", "", 1.0, "Fragments of casts that were there already.",
        |known| stored(known.vitals.casts.duplicates)),
];

/// All metrics of a node, in the order of [`values`].
pub fn declared() -> Vec<Metric> {
    let metric = |line: &Declared| (line.metric)(line.name, line.unit, line.scale, line.help);
    TABLE.iter().map(metric).collect()
}

/// A node's values, as the store has them.
pub fn values(known: &Known) -> Vec<Option<i64>> {
    TABLE.iter().map(|line| (line.value)(known)).collect()
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
        assert_eq!(values(&Known::default()).len(), metrics.len());
    }
}
