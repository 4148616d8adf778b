//! How far a compilation is and how long the rest takes, from what cargo says.
//!
//! Key type: [`Progress`]. Neighbours: [`super::plan`] says what there is to do; [`super`] shows
//! the line. Times are durations since the start, so that tests need no clock.
//!
//! Invariant: the estimate is made of crates that were compiled. Those that were there already
//! count as done and say nothing about speed.

use std::time::Duration;

use serde::Deserialize;

use super::plan::{Plan, Target, Unit};

/// No estimate before a compilation has run for so long and has done a twentieth of its work.
const NO_ESTIMATE_BEFORE: Duration = Duration::from_secs(10);
const NO_ESTIMATE_BELOW: f64 = 0.05;
/// Crates that are named as being compiled.
const MAX_NAMED: usize = 3;
/// What cargo says it does to a package that it begins with.
const BEGINNINGS: [&str; 2] = ["Compiling", "Checking"];
/// What it says besides, and what nobody needs to read.
const NOISE: [&str; 6] = [
    "Downloaded",
    "Executable",
    "Finished",
    "Fresh",
    "Locking",
    "Running",
];

/// A compilation under way.
#[derive(Debug)]
pub struct Progress {
    plan: Plan,
    planned: usize,
    done: usize,
    /// Work that is left, and that was done since the start.
    left: u64,
    compiled: u64,
    /// When the last crate was done.
    last_at: Duration,
    /// Packages under way, in the order in which they began.
    current: Vec<String>,
}

/// A message of cargo's.
#[derive(Deserialize)]
struct Message {
    reason: String,
    #[serde(default)]
    package_id: String,
    target: Option<Target>,
    #[serde(default)]
    profile: Profile,
    #[serde(default)]
    fresh: bool,
}

#[derive(Default, Deserialize)]
struct Profile {
    test: bool,
}

impl Progress {
    pub fn new(plan: Plan) -> Self {
        let crates = plan.0.values().flat_map(|package| package.crates.values());
        Self {
            planned: crates.clone().count(),
            left: crates.sum(),
            plan,
            done: 0,
            compiled: 0,
            last_at: Duration::ZERO,
            current: Vec::new(),
        }
    }

    /// Takes a line of cargo's; returns whether it is no more than progress. Other lines are for
    /// people to read.
    pub fn take(&mut self, line: &str, now: Duration) -> bool {
        if line.starts_with('{')
            && let Ok(message) = serde_json::from_str::<Message>(line)
        {
            self.take_message(message, now);
            return true;
        }
        let mut words = line.split_whitespace();
        let is_status = line.starts_with(' ');
        match words.next() {
            Some(word) if is_status && BEGINNINGS.contains(&word) => {
                let name = words.next().unwrap_or_default().to_owned();
                if !self.current.contains(&name) {
                    self.current.push(name);
                }
                true
            }
            Some(word) => is_status && NOISE.contains(&word),
            None => true,
        }
    }

    fn take_message(&mut self, message: Message, now: Duration) {
        let Some(target) = message
            .target
            .filter(|_| message.reason == "compiler-artifact")
        else {
            return;
        };
        let unit = Unit {
            kind: target.kind.into_iter().next().unwrap_or_default(),
            name: target.name,
            has_tests: message.profile.test,
        };
        let Some(package) = self.plan.0.get_mut(&message.package_id) else {
            return;
        };
        // One that is compiled a second time, for build scripts, is struck off already.
        let Some(work) = package.crates.remove(&unit) else {
            return;
        };
        if package.crates.is_empty() {
            self.current.retain(|name| *name != package.name);
        }
        self.done += 1;
        self.left -= work;
        if !message.fresh {
            self.compiled += work;
            self.last_at = now;
        }
    }

    /// How long the rest takes at the speed so far.
    fn time_left(&self, now: Duration) -> Option<Duration> {
        let (compiled, left) = (self.compiled as f64, self.left as f64);
        let is_enough = compiled > 0.0 && compiled >= (compiled + left) * NO_ESTIMATE_BELOW;
        if now < NO_ESTIMATE_BEFORE || !is_enough {
            return None;
        }
        let of_the_rest = self.last_at.mul_f64(left / compiled);
        // The crates under way have had the time since then.
        Some(of_the_rest.saturating_sub(now - self.last_at))
    }

    /// The state in one line.
    pub fn line(&self, now: Duration) -> String {
        let mut text = match self.planned {
            0 => format!("compiling for {}", clock(now)),
            planned => format!(
                "compiled {} of {planned} crates in {}",
                self.done,
                clock(now)
            ),
        };
        if let Some(left) = self.time_left(now) {
            match left.as_secs().div_ceil(60) {
                0 | 1 => text.push_str(", a minute left or less"),
                minutes => text.push_str(&format!(", about {minutes} minutes left")),
            }
        }
        // Those that began last are what the compiler is at.
        let last = self.current.iter().rev().take(MAX_NAMED);
        let names: Vec<&str> = last.map(String::as_str).collect();
        if !names.is_empty() {
            text.push_str(&format!("; now {}", names.join(", ")));
        }
        text
    }

    /// Crates that are done, and that were planned.
    #[cfg(test)]
    pub fn done_and_planned(&self) -> (usize, usize) {
        (self.done, self.planned)
    }
}

/// `M:SS`.
fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::plan::Package;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn library(name: &str) -> Unit {
        Unit {
            kind: "lib".to_owned(),
            name: name.to_owned(),
            has_tests: false,
        }
    }

    /// Packages of one library each, with the work that each is.
    fn plan(packages: &[(&str, u64)]) -> Plan {
        let planned = packages.iter().map(|&(name, work)| {
            let package = Package {
                name: name.to_owned(),
                crates: [(library(name), work)].into(),
            };
            (name.to_owned(), package)
        });
        Plan(planned.collect())
    }

    fn artifact(name: &str, fresh: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"{name}","target":{{"kind":["lib"],"name":"{name}","src_path":"/x"}},"profile":{{"test":false}},"fresh":{fresh}}}"#
        )
    }

    #[test]
    fn crates_are_counted_and_the_rest_is_estimated_by_its_work() {
        let mut progress = Progress::new(plan(&[("a", 1), ("b", 1), ("large", 8)]));
        assert!(progress.take("   Compiling a v1.0.0", at(0)));
        assert!(progress.take("   Compiling large v0.1.0 (/x)", at(0)));
        assert_eq!(
            progress.line(at(5)),
            "compiled 0 of 3 crates in 0:05; now large, a"
        );
        assert!(progress.take(&artifact("a", false), at(30)));
        assert!(progress.take(&artifact("b", false), at(60)));
        // Two tenths took a minute: eight take four.
        let expected = "compiled 2 of 3 crates in 1:00, about 4 minutes left; now large";
        assert_eq!(progress.line(at(60)), expected);
        // It shrinks while the last crate is compiled, and never below nothing.
        let expected = "compiled 2 of 3 crates in 3:10, about 2 minutes left; now large";
        assert_eq!(progress.line(at(190)), expected);
        assert!(progress.line(at(900)).contains("a minute left or less"));
        progress.take(&artifact("large", false), at(400));
        assert!(
            progress
                .line(at(400))
                .starts_with("compiled 3 of 3 crates in 6:40")
        );
    }

    #[test]
    fn crates_that_were_there_say_nothing_about_speed() {
        let mut progress = Progress::new(plan(&[("a", 90), ("b", 5), ("c", 5)]));
        progress.take(&artifact("a", true), at(1));
        assert_eq!(progress.line(at(20)), "compiled 1 of 3 crates in 0:20");
        progress.take(&artifact("b", false), at(200));
        assert!(progress.line(at(200)).contains("about 4 minutes left"));
    }

    #[test]
    fn what_is_not_in_the_plan_changes_nothing() {
        let mut progress = Progress::new(plan(&[("a", 1)]));
        for line in [&artifact("unknown", false), &artifact("a", false)] {
            assert!(progress.take(line, at(20)));
            assert!(progress.take(line, at(20)));
        }
        assert_eq!(progress.done_and_planned(), (1, 1));
        let unplanned = Progress::new(Plan::default());
        assert_eq!(unplanned.line(at(90)), "compiling for 1:30");
    }

    #[test]
    fn warnings_and_errors_are_shown_and_status_is_not() {
        let mut progress = Progress::new(Plan::default());
        for line in [
            "",
            "    Finished `dev` profile in 2 s",
            "  Downloaded serde v1",
        ] {
            assert!(progress.take(line, at(1)), "{line}");
        }
        for line in [
            "warning: unused variable: `x`",
            " --> src/lib.rs:1:1",
            "  Downloading crates ...",
            "{ not a message",
            "error: could not compile",
            "Compiling is what this message is about",
        ] {
            assert!(!progress.take(line, at(1)), "{line}");
        }
    }
}
