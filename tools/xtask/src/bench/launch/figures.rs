//! What `hearth run --report=FILE` says of a launch, put together over the ranks of the job.
//!
//! Key type: [`Figures`]. Neighbours: `hearth` runs the jobs; the control node's API types name the
//! fields.
//!
//! Invariant: a field that is not there is an error, never a zero.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Bytes of a page.
const PAGE_BYTES: f64 = 4096.0;

/// One launch of a program on all its nodes. Counts are sums of the ranks, times and instructions
/// those of the last.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Every rank found the program retained.
    pub is_warm: bool,
    pub code_faults: f64,
    pub readonly_faults: f64,
    pub data_faults: f64,
    /// Bytes of the program's file that came.
    pub program_bytes: f64,
    /// The same with requests, headers and repetitions, both directions.
    pub wire_bytes: f64,
    /// Bytes of the file's pages that the program needed.
    pub touched_bytes: f64,
    /// From dispatch to the first instruction, in milliseconds of the control node's clock.
    pub launch_ms: f64,
    /// From dispatch to the exit.
    pub exit_ms: f64,
    /// From the launch message's arrival to the first instruction, in ticks of the time-stamp
    /// counter.
    pub launch_ticks: f64,
    /// ... to the exit.
    pub exit_ticks: f64,
    /// From the launch message's arrival to the first instruction, in microseconds of the node's
    /// clock.
    pub node_launch_us: f64,
    pub table_pages: f64,
    pub large_pages: f64,
}

impl Figures {
    /// Reads the report of one job.
    pub fn parse(report: &str) -> Result<Self> {
        let report: Value = serde_json::from_str(report).context("the report is no JSON")?;
        let ranks = report["ranks"]
            .as_array()
            .context("the report has no ranks")?;
        let mut all: Option<Self> = None;
        for rank in ranks {
            let one = Self::of_rank(rank)?;
            all = Some(all.map_or(one, |all| all.and(one)));
        }
        all.context("the report has no rank")
    }

    fn of_rank(rank: &Value) -> Result<Self> {
        let value = |path: &str| -> Result<f64> {
            rank.pointer(path)
                .and_then(Value::as_f64)
                .with_context(|| format!("the report of a rank has no {path}: {rank}"))
        };
        let Some(is_warm) = rank["warm"].as_bool() else {
            bail!("the report of a rank does not say whether it was warm: {rank}");
        };
        Ok(Self {
            is_warm,
            code_faults: value("/faults/code")?,
            readonly_faults: value("/faults/readonly")?,
            data_faults: value("/faults/data")?,
            program_bytes: value("/loaded_bytes")?,
            wire_bytes: value("/wire/bytes")?,
            touched_bytes: (value("/pages/asked")? + value("/pages/used")?) * PAGE_BYTES,
            launch_ms: value("/first_ms")?,
            exit_ms: value("/exit_ms")?,
            launch_ticks: value("/first_counts")?,
            exit_ticks: value("/exit_counts")?,
            node_launch_us: value("/node_first_us")?,
            table_pages: value("/table_pages")?,
            large_pages: value("/large_pages")?,
        })
    }

    fn and(self, other: Self) -> Self {
        Self {
            is_warm: self.is_warm && other.is_warm,
            code_faults: self.code_faults + other.code_faults,
            readonly_faults: self.readonly_faults + other.readonly_faults,
            data_faults: self.data_faults + other.data_faults,
            program_bytes: self.program_bytes + other.program_bytes,
            wire_bytes: self.wire_bytes + other.wire_bytes,
            touched_bytes: self.touched_bytes + other.touched_bytes,
            launch_ms: self.launch_ms.max(other.launch_ms),
            exit_ms: self.exit_ms.max(other.exit_ms),
            launch_ticks: self.launch_ticks.max(other.launch_ticks),
            exit_ticks: self.exit_ticks.max(other.exit_ticks),
            node_launch_us: self.node_launch_us.max(other.node_launch_us),
            table_pages: self.table_pages + other.table_pages,
            large_pages: self.large_pages + other.large_pages,
        }
    }

    /// Several launches of the same kind as one: the worst of the counts, the medians of times and
    /// instructions.
    pub fn typical(launches: &[Self]) -> Self {
        let most = |field: fn(&Self) -> f64| launches.iter().map(field).fold(0.0, f64::max);
        let middle = |field: fn(&Self) -> f64| super::super::median(launches.iter().map(field));
        Self {
            is_warm: launches.iter().all(|launch| launch.is_warm),
            code_faults: most(|launch| launch.code_faults),
            readonly_faults: most(|launch| launch.readonly_faults),
            data_faults: most(|launch| launch.data_faults),
            program_bytes: most(|launch| launch.program_bytes),
            wire_bytes: most(|launch| launch.wire_bytes),
            touched_bytes: middle(|launch| launch.touched_bytes),
            launch_ms: middle(|launch| launch.launch_ms),
            exit_ms: middle(|launch| launch.exit_ms),
            launch_ticks: middle(|launch| launch.launch_ticks),
            exit_ticks: middle(|launch| launch.exit_ticks),
            node_launch_us: middle(|launch| launch.node_launch_us),
            table_pages: most(|launch| launch.table_pages),
            large_pages: most(|launch| launch.large_pages),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(first_ms: f64) -> Value {
        serde_json::json!({ "ranks": [
            { "warm": true, "faults": { "code": 1, "readonly": 2, "data": 3 }, "loaded_bytes": 4096,
              "wire": { "bytes": 5000 }, "pages": { "asked": 1, "used": 2 }, "first_ms": 1.5, "exit_ms": 4,
              "first_counts": 100, "exit_counts": 200, "node_first_us": 7, "table_pages": 4, "large_pages": 0 },
            { "warm": false, "faults": { "code": 10, "readonly": 20, "data": 30 }, "loaded_bytes": 0,
              "wire": { "bytes": 0 }, "pages": { "asked": 0, "used": 0 }, "first_ms": first_ms, "exit_ms": 3,
              "first_counts": 90, "exit_counts": 210, "node_first_us": 9, "table_pages": 4, "large_pages": 0 },
        ] })
    }

    #[test]
    fn ranks_are_put_together() {
        let figures = Figures::parse(&report(2.5).to_string()).unwrap();
        assert!(!figures.is_warm);
        assert_eq!(figures.code_faults, 11.0);
        assert_eq!(figures.touched_bytes, 3.0 * PAGE_BYTES);
        assert_eq!((figures.launch_ms, figures.exit_ms), (2.5, 4.0));
        assert_eq!((figures.launch_ticks, figures.exit_ticks), (100.0, 210.0));
    }

    #[test]
    fn a_missing_field_is_an_error_that_names_it() {
        let mut missing = report(2.5);
        missing["ranks"][1]["faults"]
            .as_object_mut()
            .unwrap()
            .remove("code");
        let error = Figures::parse(&missing.to_string()).unwrap_err();
        assert!(error.to_string().contains("/faults/code"), "{error}");
    }

    #[test]
    fn the_worst_count_and_the_middle_time_are_typical() {
        let launches: Vec<Figures> = [9.0, 1.0, 2.0]
            .map(|ms| {
                let mut one = Figures::parse(&report(ms).to_string()).unwrap();
                one.code_faults = ms;
                one
            })
            .to_vec();
        let typical = Figures::typical(&launches);
        assert_eq!(typical.code_faults, 9.0);
        assert_eq!(typical.launch_ms, 2.0);
    }
}
