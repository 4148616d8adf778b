//! Titled, timed steps and the summary at their end.
//!
//! Key types: [`Steps`], [`Outcome`]. Neighbours: `build`, `test`, `demo`, which run their parts
//! through it so that one failing part neither hides nor stops the others.
//!
//! Invariant: every step that was started appears in the summary with its outcome.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed(String),
    /// Not run because something it needs failed before; counts as failed.
    Blocked(String),
}

struct Finished {
    title: String,
    outcome: Outcome,
    time: Duration,
    checks: Option<Checks>,
}

/// What a step counted inside itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Checks {
    pub passed: u64,
    pub failed: u64,
}

/// A list of steps, run one after the other.
pub struct Steps {
    finished: Vec<Finished>,
    started: Instant,
}

impl Steps {
    pub fn new() -> Self {
        Self {
            finished: Vec::new(),
            started: Instant::now(),
        }
    }

    /// Runs one step; returns whether it passed. Later steps run in any case unless the caller
    /// decides otherwise.
    pub fn run(&mut self, title: &str, body: impl FnOnce() -> Result<()>) -> bool {
        self.run_counting(title, || body().map(|()| None))
    }

    /// As [`Steps::run`], for a step that counts checks inside itself.
    pub fn run_counting(
        &mut self,
        title: &str,
        body: impl FnOnce() -> Result<Option<Checks>>,
    ) -> bool {
        eprintln!("==> {title}");
        let started = Instant::now();
        let result = body();
        let time = started.elapsed();
        let (outcome, checks) = match result {
            Ok(checks) if checks.is_some_and(|checks| checks.failed > 0) => {
                let failed = checks.map_or(0, |checks| checks.failed);
                (Outcome::Failed(format!("{failed} checks failed")), checks)
            }
            Ok(checks) => (Outcome::Passed, checks),
            Err(error) => (Outcome::Failed(format!("{error:#}")), None),
        };
        match &outcome {
            Outcome::Passed => eprintln!("    ok, {}", seconds(time)),
            Outcome::Failed(reason) | Outcome::Blocked(reason) => {
                eprintln!("    FAILED after {}: {reason}", seconds(time));
            }
        }
        let passed = outcome == Outcome::Passed;
        self.finished.push(Finished {
            title: title.to_owned(),
            outcome,
            time,
            checks,
        });
        passed
    }

    /// Records a step that cannot run because `reason`.
    pub fn blocked(&mut self, title: &str, reason: &str) {
        eprintln!("==> {title}\n    not run: {reason}");
        self.finished.push(Finished {
            title: title.to_owned(),
            outcome: Outcome::Blocked(reason.to_owned()),
            time: Duration::ZERO,
            checks: None,
        });
    }

    /// Prints a table of all steps to standard error.
    pub fn print_summary(&self) {
        let width = self
            .finished
            .iter()
            .map(|step| step.title.chars().count())
            .max()
            .unwrap_or(0);
        eprintln!();
        for step in &self.finished {
            let word = match step.outcome {
                Outcome::Passed => "ok",
                Outcome::Failed(_) => "FAILED",
                Outcome::Blocked(_) => "not run",
            };
            let checks = match step.checks {
                Some(checks) => format!("  {} of {}", checks.passed, checks.passed + checks.failed),
                None => String::new(),
            };
            let time = seconds(step.time);
            eprintln!("  {:<width$}  {word:<7}  {time:>8}{checks}", step.title);
        }
        eprintln!(
            "  {:<width$}  {:<7}  {:>8}",
            "all",
            "",
            seconds(self.started.elapsed())
        );
        for step in &self.finished {
            if let Outcome::Failed(reason) | Outcome::Blocked(reason) = &step.outcome {
                eprintln!("  {}: {}", step.title, reason.lines().next().unwrap_or(""));
            }
        }
    }

    /// Steps passed and failed; a step that counts inside itself adds its checks instead of one.
    pub fn totals(&self) -> Checks {
        let mut totals = Checks::default();
        for step in &self.finished {
            match (&step.outcome, step.checks) {
                (_, Some(checks)) => {
                    totals.passed += checks.passed;
                    totals.failed += checks.failed;
                }
                (Outcome::Passed, None) => totals.passed += 1,
                (Outcome::Failed(_) | Outcome::Blocked(_), None) => totals.failed += 1,
            }
        }
        totals
    }

    /// Whether every step passed.
    pub fn all_passed(&self) -> bool {
        self.finished
            .iter()
            .all(|step| step.outcome == Outcome::Passed)
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_count_failed_and_blocked_steps() {
        let mut steps = Steps::new();
        assert!(steps.run("good", || Ok(())));
        assert!(!steps.run("bad", || anyhow::bail!("no")));
        steps.blocked("later", "needs bad");
        assert!(!steps.run_counting("counted", || Ok(Some(Checks {
            passed: 3,
            failed: 2
        }))));
        assert_eq!(
            steps.totals(),
            Checks {
                passed: 4,
                failed: 4
            }
        );
        assert!(!steps.all_passed());
    }
}
