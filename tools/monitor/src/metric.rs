//! What a column of values means.
//!
//! Invariant: names are data. They come from programs on the nodes later, so whoever writes them
//! into SQL, CSV, OpenMetrics or a page escapes them there.

/// Whether a value is a level or a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A level: bytes in use, a ratio.
    Gauge,
    /// A count that only grows, until its node boots again: shown as a rate.
    Counter,
}

/// One metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// Its name, with the base unit last and `_total` for counters:
    /// `hearth_node_idle_seconds_total`.
    pub name: String,
    /// The base unit: `seconds`, `bytes`, `ratio`; empty for plain counts.
    pub unit: String,
    /// One sentence for people.
    pub help: String,
    /// Level or count.
    pub kind: Kind,
    /// What a stored 1 is worth in the base unit: 1e-6 where microseconds are stored for seconds.
    pub scale: f64,
}

impl Metric {
    /// A level.
    pub fn gauge(name: &str, unit: &str, scale: f64, help: &str) -> Self {
        Metric {
            name: name.into(),
            unit: unit.into(),
            help: help.into(),
            kind: Kind::Gauge,
            scale,
        }
    }

    /// A count.
    pub fn counter(name: &str, unit: &str, scale: f64, help: &str) -> Self {
        Metric {
            kind: Kind::Counter,
            ..Metric::gauge(name, unit, scale, help)
        }
    }
}
