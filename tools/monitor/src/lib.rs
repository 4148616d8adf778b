//! What nodes counted, tick by tick: stored while it arrives, read by the same queries then and
//! later.
//!
//! | module | purpose |
//! |---|---|
//! | [`metric`] | what a column of values means: name, unit, kind, scale |
//! | [`pack`] | a node's values of one tick as bytes: differences as variable-length integers |
//! | [`rollup`] | min, max, sum and count over a minute and an hour |
//! | `day` | one SQLite file: a day of one cluster, in UTC |
//! | [`writer`] | taking ticks in: one transaction a tick |
//! | [`reader`] | queries: a series, the values of one instant, rows for export |
//! | `rows` | rows of a table, a batch at a time |
//! | [`keep`] | limits by age and size; moving the write-ahead logs into the files |
//! | [`csv`] | export for spreadsheets |
//! | [`openmetrics`] | the text format that monitoring systems read |
//!
//! Values are integers; a metric says what one of them is worth ([`Metric::scale`]), so sums are
//! exact and nothing is lost by packing. A tick is an instant in milliseconds since 1970 at which a
//! node's values were taken: [`Writer::append`] takes `(tick, node, values)` from whatever collects
//! them, and values that a tree of nodes has reduced on the way, with how many nodes they cover.
//!
//! Invariants: what arrives never waits for a checkpoint, a deletion or a reader; what is too old
//! goes as whole files, never as rows; a file stands alone (it holds the names of its columns); a
//! crash loses no committed tick and no roll-up, since roll-ups can be made again from the ticks.

pub mod csv;
mod day;
mod error;
pub mod keep;
pub mod metric;
pub mod openmetrics;
pub mod pack;
pub mod reader;
pub mod rollup;
mod rows;
pub mod streams;
pub mod writer;

pub use error::MonitorError;
pub use keep::{Limits, keep};
pub use metric::{Kind, Metric};
pub use reader::{Level, Point, Reader, Span};
pub use rollup::Rollup;
pub use streams::{ReducedTick, Reduction, StreamInfo};
pub use writer::{Appended, Reduced, Sample, Writer};

/// Nodes have numbers below this: 20 bits of a row's key.
pub const NODES_MAX: u32 = 1 << NODE_BITS;
/// Bits of a row's key that hold the node.
const NODE_BITS: u32 = 20;
/// Most metrics in a file; a bound for what a damaged row can make a reader allocate.
pub const METRICS_MAX: usize = 1_024;

/// Milliseconds of a minute.
pub const MINUTE_MS: u64 = 60_000;
/// Milliseconds of an hour.
pub const HOUR_MS: u64 = 3_600_000;
/// Milliseconds of a day.
pub const DAY_MS: u64 = 86_400_000;
