//! Streams: which metrics of which nodes flow up the tree, how often and how reduced.
//!
//! Several streams are open at a time. A tick is a period of the overlay's clock, which all
//! processes estimate ([`super::clock`]): tick *k* begins at *k* periods, so that no process has to
//! agree with another on when a stream began.

use alloc::vec::Vec;
use core::fmt;

use super::filter::{Filter, MAX_BUCKETS};
use super::metric::MetricId;
use crate::ids::{JobId, NodeId};
use crate::time::Micros;

/// Most streams at a time.
pub const MAX_STREAMS: usize = 8;
/// Most metrics of a stream.
pub const MAX_METRICS: usize = 64;
/// Most ranges of nodes that a stream names.
pub const MAX_RANGES: usize = 8;
/// Bytes that one tick of a stream may take in a process: metrics times what the filter keeps of
/// each.
pub const MAX_TICK_BYTES: usize = 16 * 1024;
/// Shortest period.
pub const PERIOD_LEAST: Micros = Micros::from_millis(10);
/// Longest period.
pub const PERIOD_MOST: Micros = Micros::from_secs(3600);
/// How long a process waits for its children, for each level below it, unless told otherwise.
pub const HOLD: Micros = Micros::from_millis(50);

/// An open stream. Numbers are not used again soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u16);

/// When a process passes a tick on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// When all children that live have sent it. Other streams and later ticks go on; four ticks
    /// behind, it is passed on nevertheless.
    WaitAll,
    /// The same, but no later than `hold` for each level below.
    TimeOut,
    /// At once: every child's values go on as they come.
    None,
}

/// Whose values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every back end's.
    All,
    /// Those of nodes in one of these ranges, both ends included.
    Nodes(Vec<(NodeId, NodeId)>),
    /// Those of the nodes of a job, while they have it.
    Job(JobId),
}

impl Scope {
    /// A node takes part.
    pub fn includes(&self, node: NodeId, job: Option<JobId>) -> bool {
        match self {
            Scope::All => true,
            Scope::Nodes(ranges) => {
                (ranges.iter()).any(|(first, last)| (first..=last).contains(&&node))
            }
            Scope::Job(wanted) => job == Some(*wanted),
        }
    }
}

/// What a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSpec {
    /// The metrics, in the order of their values. A node that does not have one sends nothing for
    /// it.
    pub metrics: Vec<MetricId>,
    /// How values are reduced.
    pub filter: Filter,
    /// When they are passed on.
    pub sync: Sync,
    /// Time between two ticks.
    pub period: Micros,
    /// For [`Sync::TimeOut`]: the wait for each level below a process.
    pub hold: Micros,
    /// Whose values.
    pub scope: Scope,
}

/// Why a stream cannot be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// No metric, or more than [`MAX_METRICS`].
    Metrics(usize),
    /// One tick would take more memory in a process than it may.
    Costly {
        /// What it would take, in bytes.
        bytes: usize,
    },
    /// The period is out of range.
    Period,
    /// The hold is zero or longer than the period.
    Hold,
    /// The bounds of the histogram do not rise, or are too many or none.
    Bounds,
    /// No range of nodes, more than [`MAX_RANGES`], or one that ends before it begins.
    Ranges,
    /// [`MAX_STREAMS`] are open.
    Full,
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StreamError::Metrics(count) => {
                write!(f, "{count} metrics: a stream has 1 to {MAX_METRICS}")
            }
            StreamError::Costly { bytes } => write!(
                f,
                "a tick would take {bytes} bytes in each process, {MAX_TICK_BYTES} is the most: take fewer metrics"
            ),
            StreamError::Period => write!(f, "the period is {PERIOD_LEAST} to {PERIOD_MOST}"),
            StreamError::Hold => {
                f.write_str("the hold is more than 0 and no longer than the period")
            }
            StreamError::Bounds => {
                write!(f, "a histogram has 1 to {} bounds, rising", MAX_BUCKETS - 1)
            }
            StreamError::Ranges => write!(
                f,
                "name 1 to {MAX_RANGES} ranges of nodes, each from low to high"
            ),
            StreamError::Full => write!(f, "{MAX_STREAMS} streams are open: close one first"),
        }
    }
}

impl core::error::Error for StreamError {}

impl StreamSpec {
    /// A stream of all nodes with time-out.
    pub fn new(metrics: Vec<MetricId>, filter: Filter, period: Micros) -> Self {
        StreamSpec {
            metrics,
            filter,
            sync: Sync::TimeOut,
            period,
            hold: HOLD.min(period),
            scope: Scope::All,
        }
    }

    /// Whether it can be opened.
    ///
    /// # Errors
    /// What is out of bounds.
    pub fn check(&self) -> Result<(), StreamError> {
        if !(1..=MAX_METRICS).contains(&self.metrics.len()) {
            return Err(StreamError::Metrics(self.metrics.len()));
        }
        if !self.filter.is_sound() {
            return Err(StreamError::Bounds);
        }
        let bytes = self.metrics.len() * self.filter.cost();
        if bytes > MAX_TICK_BYTES {
            return Err(StreamError::Costly { bytes });
        }
        if !(PERIOD_LEAST..=PERIOD_MOST).contains(&self.period) {
            return Err(StreamError::Period);
        }
        if self.hold == Micros::ZERO || self.hold > self.period {
            return Err(StreamError::Hold);
        }
        match &self.scope {
            Scope::Nodes(ranges)
                if ranges.is_empty()
                    || ranges.len() > MAX_RANGES
                    || ranges.iter().any(|(first, last)| first > last) =>
            {
                Err(StreamError::Ranges)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use std::string::ToString;

    fn metrics(count: u16) -> Vec<MetricId> {
        (1..=count).map(MetricId).collect()
    }

    #[test]
    fn what_cannot_be_opened_says_why() {
        let good = || StreamSpec::new(metrics(32), Filter::Sum, Micros::from_secs(1));
        assert_eq!(good().check(), Ok(()));
        let broken = |change: fn(&mut StreamSpec), expected: &str| {
            let mut spec = good();
            change(&mut spec);
            let error = spec.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        broken(|spec| spec.metrics.clear(), "0 metrics");
        broken(|spec| spec.metrics = metrics(65), "65 metrics");
        broken(
            |spec| (spec.metrics, spec.filter) = (metrics(64), Filter::Classes),
            "take fewer metrics",
        );
        broken(
            |spec| spec.period = Micros(9_999),
            "the period is 0.010000 s",
        );
        broken(|spec| spec.hold = Micros::from_secs(2), "the hold");
        broken(
            |spec| spec.filter = Filter::Histogram(vec![]),
            "1 to 15 bounds",
        );
        broken(
            |spec| spec.scope = Scope::Nodes(vec![(NodeId(3), NodeId(2))]),
            "ranges of nodes",
        );
    }

    #[test]
    fn scopes() {
        let some = Scope::Nodes(vec![(NodeId(1), NodeId(3)), (NodeId(7), NodeId(7))]);
        let inside: Vec<u32> = (0..10)
            .filter(|n| some.includes(NodeId(*n), None))
            .collect();
        assert_eq!(inside, [1, 2, 3, 7]);
        assert!(Scope::Job(JobId(4)).includes(NodeId(0), Some(JobId(4))));
        assert!(!Scope::Job(JobId(4)).includes(NodeId(0), Some(JobId(5))));
        assert!(!Scope::Job(JobId(4)).includes(NodeId(0), None));
    }
}
