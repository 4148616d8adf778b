//! One launch of a program and the report of it: what each rank's node says of faults, pages and
//! bytes.
//!
//! Key type: [`Launched`]. Neighbours: [`crate::warm`] and [`crate::witnesses`] compare launches.
//!
//! Invariant: a field that the report does not have is an error, never a zero.

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::command::Finished;

/// A job that ended, with its report.
pub struct Launched {
    /// What the command printed.
    pub finished: Finished,
    report: Value,
}

impl Launched {
    /// `hearth run FLAGS PROGRAM -- ARGUMENTS` with a report.
    pub fn run(
        cluster: &Cluster,
        flags: &[&str],
        program: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let path = cluster.scratch("report.json");
        // Of an earlier launch; a job that is refused writes none.
        if std::fs::exists(&path)? {
            std::fs::remove_file(&path)?;
        }
        let report = format!("--report={path}");
        let mut words = vec!["run", report.as_str()];
        words.extend(flags);
        words.extend([program, "--"]);
        words.extend(arguments);
        let finished = cluster.hearth(&words)?;
        let report = match std::fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).context("the report is no JSON")?,
            Err(error) => bail!(
                "no report of {program} ({error}); exit code {}: {}",
                finished.code(),
                finished.err()
            ),
        };
        Ok(Self { finished, report })
    }

    /// As [`Launched::run`], for a program that must exit with status 0.
    pub fn good(
        cluster: &Cluster,
        flags: &[&str],
        program: &str,
        arguments: &[&str],
    ) -> Result<Self> {
        let launched = Self::run(cluster, flags, program, arguments)?;
        ensure!(
            launched.finished.code() == 0,
            "{program} ended with {}: {}{}",
            launched.finished.code(),
            launched.finished.out(),
            launched.finished.err()
        );
        Ok(launched)
    }

    fn ranks(&self) -> Result<&[Value]> {
        self.report["ranks"]
            .as_array()
            .map(Vec::as_slice)
            .with_context(|| format!("no ranks in {}", self.report))
    }

    /// Which ranks found the program on their nodes.
    pub fn warm(&self) -> Result<Vec<bool>> {
        self.ranks()?
            .iter()
            .map(|rank| {
                rank["warm"]
                    .as_bool()
                    .with_context(|| format!("rank does not say whether it was warm: {rank}"))
            })
            .collect()
    }

    /// A count, as `/faults/code`, summed over the ranks.
    pub fn sum(&self, pointer: &str) -> Result<u64> {
        let mut sum = 0;
        for rank in self.ranks()? {
            sum += rank
                .pointer(pointer)
                .and_then(Value::as_u64)
                .with_context(|| format!("the report of a rank has no {pointer}: {rank}"))?;
        }
        Ok(sum)
    }

    /// Every rank found the program, took no fault on code or read-only data, and fetched nothing
    /// of the file.
    pub fn expect_warm(&self, what: &str) -> Result<()> {
        ensure!(
            self.warm()?.iter().all(|&warm| warm),
            "{what}: not warm on every node: {}",
            self.report
        );
        for nothing in [
            "/faults/code",
            "/faults/readonly",
            "/loaded_bytes",
            "/wire/bytes",
            "/wire/requests",
        ] {
            let count = self.sum(nothing)?;
            ensure!(
                count == 0,
                "{what}: warm, but {nothing} is {count}: {}",
                self.report
            );
        }
        ensure!(
            self.sum("/retained/reused")? > 0,
            "{what}: warm, but no page was used again: {}",
            self.report
        );
        Ok(())
    }

    /// No rank found the program; each fetched it, page by page or with a cast.
    pub fn expect_cold(&self, what: &str) -> Result<()> {
        ensure!(
            self.warm()?.iter().all(|&warm| !warm),
            "{what}: warm where it must be cold: {}",
            self.report
        );
        let by_demand = self.sum("/loaded_bytes")? > 0 && self.sum("/wire/bytes")? > 0;
        ensure!(
            self.sum("/faults/code")? > 0 && (by_demand || self.sum("/cast/pages")? > 0),
            "{what}: cold, but nothing was fetched or touched: {}",
            self.report
        );
        Ok(())
    }

    /// The whole report, for messages.
    pub fn report(&self) -> &Value {
        &self.report
    }
}
