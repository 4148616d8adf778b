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
        eprintln!("==> {title}");
        let started = Instant::now();
        let result = body();
        let time = started.elapsed();
        let outcome = match result {
            Ok(()) => Outcome::Passed,
            Err(error) => Outcome::Failed(format!("{error:#}")),
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
            let time = seconds(step.time);
            eprintln!("  {:<width$}  {word:<7}  {time:>8}", step.title);
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

    /// How many steps failed or could not run.
    pub fn failed(&self) -> usize {
        let is_bad = |step: &&Finished| step.outcome != Outcome::Passed;
        self.finished.iter().filter(is_bad).count()
    }
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_and_blocked_steps_are_counted() {
        let mut steps = Steps::new();
        assert!(steps.run("good", || Ok(())));
        assert_eq!(steps.failed(), 0);
        assert!(!steps.run("bad", || anyhow::bail!("no")));
        steps.blocked("later", "needs bad");
        assert_eq!(steps.failed(), 2);
    }
}
