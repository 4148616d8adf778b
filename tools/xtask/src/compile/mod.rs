//! Compiling with cargo, shown while it goes on.
//!
//! Purpose: [`run`] has cargo compile and tells how far it is: a line in a terminal, a line every
//! quarter of a minute elsewhere. Key types: [`plan::Plan`] (the crates that a command compiles),
//! [`progress::Progress`] (which of them are done, how long the rest takes). Neighbours: `build`
//! and `test` compile through [`run`], `demo` through `build`.
//!
//! Invariant: what is compiled does not depend on the plan. A plan that is wrong, or that could
//! not be made, costs only the estimate.

mod plan;
mod progress;

use std::io::{IsTerminal, Write};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::limited;
use crate::workspace::Workspace;

use plan::{Metadata, Plan};
use progress::Progress;

/// One command of cargo ends within this time, the whole workspace with its tests from nothing on
/// two processors that are shared with others included.
const LIMIT: Duration = Duration::from_secs(2_700);
/// How often the line in a terminal is written anew.
const REDRAW: Duration = Duration::from_millis(250);
/// How often a line is written where there is no terminal.
const LINE_PERIOD: Duration = Duration::from_secs(15);
/// Longest line in a terminal: a longer one would wrap, and could not be written over.
const MAX_LINE_CHARS: usize = 79;

/// Runs a command of cargo that compiles: `build`, `rustc`, `clippy`, `test --no-run`.
///
/// # Errors
/// It could not be started, failed, or did not end; what cargo says of it has been shown.
pub fn run(workspace: &Workspace, arguments: &[&str]) -> Result<()> {
    static METADATA: OnceLock<Option<Metadata>> = OnceLock::new();
    let metadata = METADATA.get_or_init(|| Metadata::of(workspace).ok());
    let plan = metadata
        .as_ref()
        .map(|metadata| Plan::of(metadata, arguments));
    follow(workspace, arguments, plan.unwrap_or_default()).map(|_| ())
}

fn follow(workspace: &Workspace, arguments: &[&str], plan: Plan) -> Result<Progress> {
    let (task, rest) = arguments.split_first().context("a command of cargo")?;
    let mut command = workspace.cargo();
    command.args([task, "--message-format=json-render-diagnostics"]);
    command.args(rest);
    let mut display = Display::new(plan);
    let finished = limited::watch(&mut command, LIMIT, &mut |line| display.tell(line));
    display.clear();
    finished?.expect_success(&format!("cargo {}", arguments.join(" ")))?;
    Ok(display.progress)
}

/// Shows what cargo says, and between times how far it is.
struct Display {
    progress: Progress,
    began: Instant,
    shown: Duration,
    is_terminal: bool,
}

impl Display {
    fn new(plan: Plan) -> Self {
        Self {
            progress: Progress::new(plan),
            began: Instant::now(),
            shown: Duration::ZERO,
            is_terminal: std::io::stderr().is_terminal(),
        }
    }

    /// Takes a line of cargo's, or the news that there is none.
    fn tell(&mut self, line: Option<&str>) {
        let now = self.began.elapsed();
        if let Some(line) = line
            && !self.progress.take(line, now)
        {
            self.clear();
            let _ = writeln!(std::io::stderr(), "    {line}");
        }
        let period = if self.is_terminal {
            REDRAW
        } else {
            LINE_PERIOD
        };
        if now - self.shown < period {
            return;
        }
        self.shown = now;
        let text = format!("    {}", self.progress.line(now));
        let mut output = std::io::stderr();
        let _ = if self.is_terminal {
            let text: String = text.chars().take(MAX_LINE_CHARS).collect();
            write!(output, "\r\x1b[K{text}").and_then(|()| output.flush())
        } else {
            writeln!(output, "{text}")
        };
    }

    /// Takes the line off a terminal.
    fn clear(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn file(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A package that needs another one, in a workspace of their own.
    fn two_packages(root: &Path) {
        let package = |name: &str| {
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n")
        };
        let needs = "[dependencies]\nlower = { path = \"lower\" }\n[workspace]\n";
        file(root, "Cargo.toml", &(package("upper") + needs));
        file(root, "src/lib.rs", "pub use lower::one;");
        file(root, "src/main.rs", "fn main() {}");
        file(root, "tests/whole.rs", "");
        file(root, "lower/Cargo.toml", &package("lower"));
        file(root, "lower/src/lib.rs", "pub fn one() {}");
    }

    #[test]
    fn every_crate_that_cargo_compiles_is_in_the_plan() {
        let root = tempfile::tempdir().unwrap();
        two_packages(root.path());
        let workspace = Workspace::at(root.path());
        let target = format!("--target-dir={}", workspace.target().display());
        for (arguments, crates) in [
            (&["build"][..], 3),
            // The library and the program once more, each with its tests, and `tests/whole.rs`.
            (&["test", "--no-run"], 6),
        ] {
            let arguments = [arguments, &["--offline", &target]].concat();
            let plan = Plan::of(&Metadata::of(&workspace).unwrap(), &arguments);
            let progress = follow(&workspace, &arguments, plan).unwrap();
            assert_eq!(
                progress.done_and_planned(),
                (crates, crates),
                "{arguments:?}"
            );
        }
    }

    #[test]
    fn a_crate_that_does_not_compile_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        two_packages(root.path());
        file(root.path(), "lower/src/lib.rs", "pub fn two() {}");
        let workspace = Workspace::at(root.path());
        let target = format!("--target-dir={}", workspace.target().display());
        let error = run(&workspace, &["build", "--offline", &target]).unwrap_err();
        assert!(error.to_string().contains("cargo build"), "{error}");
    }
}
