//! What is told while the tests run, and the table at their end.
//!
//! Key type: [`Report`]. Neighbour: [`super::schedule`], whose outcomes these are.
//!
//! Invariant: every task is in the table, and what did not run counts as failed.

use std::time::{Duration, Instant};

use super::checks::Checks;
use super::schedule::{Done, Kind, Outcome};

/// The run as it is told.
pub struct Report {
    begun: Instant,
}

/// What one part came to.
#[derive(Debug, Default, PartialEq, Eq)]
struct Row {
    title: &'static str,
    compiled: Option<Duration>,
    ran: Option<Duration>,
    checks: Checks,
    remarks: Vec<String>,
}

impl Report {
    pub fn begin() -> Self {
        Self {
            begun: Instant::now(),
        }
    }

    /// Tells that a task has begun, or what came of it after how long.
    pub fn tell<K>(&self, title: &str, kind: Kind, done: Option<(&Outcome<K>, Duration)>) {
        let at = self.begun.elapsed().as_secs();
        let at = format!("{}:{:02}", at / 60, at % 60);
        let what = match kind {
            Kind::Compiles => "compiling",
            Kind::Runs => "running",
        };
        match done {
            None => eprintln!("==> {at} {title}: {what}"),
            Some((Outcome::Passed(_), time)) => {
                eprintln!("==> {at} {title}: {what} ok, {}", seconds(time));
            }
            Some((Outcome::Failed(_, reason), time)) => {
                eprintln!(
                    "==> {at} {title}: {what} FAILED after {}: {reason}",
                    seconds(time)
                );
            }
            Some((Outcome::NotRun(_), _)) => {
                eprintln!("==> {at} {title}: not {what}, since what it needs has failed");
            }
        }
    }

    /// Prints the table; the sum of all checks.
    pub fn end<K: Copy>(&self, done: &[Done<K>], title: impl Fn(K) -> &'static str) -> Checks {
        let rows = rows(done, title);
        let width = rows.iter().map(|row| row.title.chars().count());
        let width = width.max().unwrap_or(0).max("part".len());
        eprintln!(
            "\n  {:<width$}  {:>9}  {:>9}  {:>6}  {:>6}",
            "part", "compiling", "running", "passed", "failed"
        );
        let mut totals = Checks::default();
        for row in &rows {
            let time = |time: Option<Duration>| time.map_or("-".into(), seconds);
            let (passed, failed) = (row.checks.passed, row.checks.failed);
            eprintln!(
                "  {:<width$}  {:>9}  {:>9}  {passed:>6}  {failed:>6}",
                row.title,
                time(row.compiled),
                time(row.ran)
            );
            totals.passed += passed;
            totals.failed += failed;
        }
        let (passed, failed) = (totals.passed, totals.failed);
        let time = seconds(self.begun.elapsed());
        eprintln!(
            "  {:<width$}  {:>9}  {time:>9}  {passed:>6}  {failed:>6}",
            "all", ""
        );
        for (row, remark) in rows
            .iter()
            .flat_map(|row| row.remarks.iter().map(move |r| (row, r)))
        {
            eprintln!("  {}: {remark}", row.title);
        }
        // What a reader of the last lines alone needs.
        for (row, what) in rows
            .iter()
            .flat_map(|row| row.checks.what_failed.iter().map(move |w| (row, w)))
        {
            eprintln!("\n  {}:", row.title);
            what.lines().for_each(|line| eprintln!("    {line}"));
        }
        totals
    }
}

/// One row for each part, in the order in which they were done.
fn rows<K: Copy>(done: &[Done<K>], title: impl Fn(K) -> &'static str) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for done in done {
        let title = title(done.name);
        let at = rows.iter().position(|row| row.title == title);
        let at = at.unwrap_or_else(|| {
            rows.push(Row {
                title,
                ..Row::default()
            });
            rows.len() - 1
        });
        rows[at].add(done);
    }
    rows
}

impl Row {
    fn add<K>(&mut self, done: &Done<K>) {
        let time = match done.kind {
            Kind::Compiles => &mut self.compiled,
            Kind::Runs => &mut self.ran,
        };
        *time = Some(done.time);
        match &done.outcome {
            Outcome::Passed(Some(checks)) => {
                self.checks.passed += checks.passed;
            }
            Outcome::Passed(None) => self.checks.passed += 1,
            Outcome::Failed(checks, reason) => {
                let checks = checks.clone().unwrap_or_default();
                self.checks.passed += checks.passed;
                self.checks.failed += checks.failed.max(1);
                self.checks.what_failed.extend(checks.what_failed);
                let reason = reason.lines().next().unwrap_or_default();
                self.remarks.push(format!("failed: {reason}"));
            }
            Outcome::NotRun(_) => {
                self.checks.failed += 1;
                self.remarks
                    .push("not run: what it needs has failed".into());
            }
        }
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_compiles_and_runs_has_one_row_and_what_did_not_run_has_failed() {
        let second = Duration::from_secs(1);
        let done = |name, kind, outcome| Done {
            name,
            kind,
            outcome,
            time: second,
        };
        let some_failed = Checks {
            passed: 3,
            failed: 2,
            what_failed: vec!["y: no".into()],
        };
        let all = [
            done("a", Kind::Compiles, Outcome::Passed(None)),
            done("b", Kind::Runs, Outcome::NotRun("c")),
            done(
                "a",
                Kind::Runs,
                Outcome::Failed(Some(some_failed), "x".into()),
            ),
            done("d", Kind::Runs, Outcome::Failed(None, "no\nmore".into())),
        ];
        let rows = rows(&all, |name| name);
        assert_eq!(rows.len(), 3);
        assert_eq!(
            (rows[0].compiled, rows[0].ran),
            (Some(second), Some(second))
        );
        assert_eq!((rows[0].checks.passed, rows[0].checks.failed), (4, 2));
        assert_eq!(rows[0].checks.what_failed, ["y: no"]);
        assert_eq!((rows[1].checks.failed, rows[2].checks.failed), (1, 1));
        assert_eq!(rows[2].remarks, ["failed: no"]);
        let totals = Report::begin().end(&all, |name| name);
        assert_eq!((totals.passed, totals.failed), (4, 4));
    }
}
