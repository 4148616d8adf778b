//! The Hearth nodes: launches of every program cold, warm, and warm after other programs.
//!
//! Key type: [`Clock`]. Neighbours: `figures` reads the reports; `peer` measured the goals.
//!
//! Invariant: a launch that was to be warm and was not, or the reverse, is an error and no figure.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::cluster::Cluster;
use super::super::{Goal, LOAD_MOST, Report, Row};
use super::figures::Figures;
use super::{
    OTHERS, PROGRAMS, Program, RATE, RATE_BYTES_PER_MS, SHARE_MOST, TEXT_ALL, Variant,
    WIRE_RATIO_MOST, Yardstick,
};
use crate::workspace::Workspace;

const CLUSTER: &str = "bench-launch";
/// Memory of a node: 16 MiB of text, what a small cluster holds of the other programs, and room.
const MEMORY: &str = "128M";
/// Cold launches of which medians are taken, unless they take long.
const COLD_RUNS: usize = 3;
/// No more cold launches after this.
const COLD_LIMIT: Duration = Duration::from_secs(5);
/// What nodes need for telling control what they hold, and for scrubbing the frames of a few pages.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// What idle nodes need for scrubbing 16 MiB: they do some at each heartbeat, one a second.
const SCRUB_TIME: Duration = Duration::from_millis(1_500);
/// Warm launches of which medians are taken.
const WARM_RUNS: usize = 5;
/// A warm launch waits for nothing: what rounding to microseconds leaves.
const WAIT_US_MOST: f64 = 1.0;
/// The program of which [`OTHERS`] variants are made.
const OTHER: &str = "musl-hello";

/// What the machines' clocks count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clock {
    /// Instructions; links as fast as they go.
    Counted,
    /// Time; links limited.
    Timed,
}

/// The nodes of one case, and where figures go.
struct Bench<'a, 'b> {
    report: &'a mut Report<'b>,
    yardstick: &'a Yardstick,
    clock: Clock,
    count: usize,
    cluster: Cluster,
    programs: PathBuf,
    /// For reports and for the other programs.
    folder: tempfile::TempDir,
    /// Round trip on a link of the timed cluster.
    round_trip_ms: f64,
    /// What others did with the processors before this benchmark.
    load: f64,
}

/// Measures every case of `count` nodes that was asked for, with one kind of clock.
pub fn measure(
    workspace: &Workspace,
    report: &mut Report,
    clock: Clock,
    count: usize,
    yardstick: &Yardstick,
    load: f64,
) -> Result<()> {
    let programs: Vec<Program> = PROGRAMS
        .into_iter()
        .filter(|program| {
            let kinds = kinds(*program, count);
            kinds
                .iter()
                .any(|kind| report.wants(&case(*program, count, kind)))
        })
        .collect();
    if programs.is_empty() {
        return Ok(());
    }
    let options: &[&str] = match clock {
        Clock::Counted => &["--icount"],
        Clock::Timed => &["--rate", RATE],
    };
    report.progress(&format!("{count} nodes, {clock:?}: power on"));
    let cluster = Cluster::up(
        workspace,
        CLUSTER,
        count,
        &[&["--direct", "--memory", MEMORY], options].concat(),
    )?;
    let round_trip_ms = match clock {
        Clock::Counted => 0.0,
        Clock::Timed => cluster.round_trip_ms()?,
    };
    let mut bench = Bench {
        report,
        yardstick,
        clock,
        count,
        cluster,
        programs: workspace.programs(),
        folder: tempfile::tempdir().context("making a folder for reports")?,
        round_trip_ms,
        load,
    };
    bench.all(&programs)?;
    bench.cluster.down()
}

/// The kinds of launches of a program: the parts after its name and the number of nodes.
pub fn kinds(program: Program, count: usize) -> Vec<String> {
    let mut kinds: Vec<String> = ["cold", "warm", "warm-50"].map(str::to_owned).to_vec();
    for variant in variants(program, count) {
        kinds.extend(["cold", "warm"].map(|kind| format!("{kind}{}", variant.suffix())));
    }
    kinds
}

fn variants(program: Program, count: usize) -> impl Iterator<Item = Variant> {
    Variant::ALL
        .into_iter()
        .filter(move |variant| count == 1 && variant.programs().contains(&program))
}

/// The name of a case.
pub fn case(program: Program, count: usize, kind: &str) -> String {
    format!("{}/{count}/{kind}", program.name)
}

impl Bench<'_, '_> {
    fn wants(&self, program: Program, kind: &str) -> bool {
        self.report.wants(&case(program, self.count, kind))
    }

    fn all(&mut self, programs: &[Program]) -> Result<()> {
        if self.clock == Clock::Timed {
            let case = format!("links/{}", self.count);
            let row = Row::context(&case, "round_trip_ms", self.round_trip_ms, "ms");
            self.report.row(row);
        }
        for &program in programs {
            for variant in variants(program, self.count) {
                self.cold_and_warm(program, Some(variant))?;
            }
            // Last, so that it is what `warm-50` finds.
            self.cold_and_warm(program, None)?;
        }
        if programs
            .iter()
            .any(|&program| self.wants(program, "warm-50"))
        {
            self.others()?;
            for &program in programs {
                if self.wants(program, "warm-50") {
                    // The next launch would not follow the others any more.
                    let warm = self.warm(program, &[], 1)?;
                    self.rows(program, "warm-50", warm);
                }
            }
        }
        Ok(())
    }

    fn cold_and_warm(&mut self, program: Program, variant: Option<Variant>) -> Result<()> {
        let suffix = variant.map_or("", Variant::suffix);
        let flags = variant.map_or(&[][..], Variant::flags);
        let (cold, warm) = (format!("cold{suffix}"), format!("warm{suffix}"));
        let wants_cold = self.wants(program, &cold);
        let wants_warm =
            self.wants(program, &warm) || (variant.is_none() && self.wants(program, "warm-50"));
        if !wants_cold && !wants_warm {
            return Ok(());
        }
        self.report.progress(&format!(
            "{} nodes, {:?}: {}{suffix}",
            self.count, self.clock, program.name
        ));
        let figures = self.cold(program, flags, wants_cold)?;
        if wants_cold {
            self.rows(program, &cold, figures);
        }
        if self.wants(program, &warm) {
            let figures = self.warm(program, flags, WARM_RUNS)?;
            self.rows(program, &warm, figures);
        }
        Ok(())
    }

    /// Cold launches; a single one if their figures are not wanted.
    fn cold(&self, program: Program, flags: &[&str], is_wanted: bool) -> Result<Figures> {
        let began = Instant::now();
        let runs = if is_wanted { COLD_RUNS } else { 1 };
        let mut launches = Vec::new();
        while launches.is_empty() || (launches.len() < runs && began.elapsed() < COLD_LIMIT) {
            self.forget(program);
            let launch = self.launch(program, &[flags, &["--cold"]].concat())?;
            ensure!(
                !launch.is_warm,
                "{} was warm in spite of --cold",
                program.name
            );
            launches.push(launch);
        }
        Ok(Figures::typical(&launches))
    }

    /// Has the nodes drop a program, so that dropping it is no part of a cold launch.
    fn forget(&self, program: Program) {
        let path = self.programs.join(program.file);
        std::thread::sleep(SETTLE_TIME);
        // A program that control does not know is not held either.
        let known = self.cluster.run(&["drop", &path.to_string_lossy()]).is_ok();
        if known {
            let is_large = program.file == TEXT_ALL.file;
            std::thread::sleep(if is_large { SCRUB_TIME } else { SETTLE_TIME });
        }
    }

    /// Warm launches; all nodes hold the program.
    fn warm(&self, program: Program, flags: &[&str], runs: usize) -> Result<Figures> {
        let mut launches = Vec::new();
        for _ in 0..runs {
            let launch = self.launch(program, flags)?;
            ensure!(launch.is_warm, "{} was not warm everywhere", program.name);
            launches.push(launch);
        }
        Ok(Figures::typical(&launches))
    }

    /// Launches other programs: different files, though small ones.
    fn others(&mut self) -> Result<()> {
        self.report.progress(&format!(
            "{} nodes, {:?}: {OTHERS} other programs",
            self.count, self.clock
        ));
        let original = fs::read(self.programs.join(OTHER)).context("reading a program")?;
        for index in 0..OTHERS {
            let mut bytes = original.clone();
            // Bytes behind the file's end change nothing but its hash.
            bytes.extend(index.to_le_bytes());
            let path = self.folder.path().join("other");
            fs::write(&path, bytes)?;
            self.run(&path, &[], &[])?;
        }
        Ok(())
    }

    fn launch(&self, program: Program, flags: &[&str]) -> Result<Figures> {
        let path = self.programs.join(program.file);
        let text = self.run(&path, program.arguments, flags)?;
        Figures::parse(&text).with_context(|| format!("the report of {}", program.name))
    }

    /// Runs a program on all nodes; its report.
    fn run(&self, path: &Path, arguments: &[&str], flags: &[&str]) -> Result<String> {
        let report = self.folder.path().join("report.json");
        let to_report = format!("--report={}", report.display());
        let (count, path) = (self.count.to_string(), path.to_string_lossy());
        let mut words = vec!["run", "-n", &count, "--no-input", &to_report];
        words.extend(flags);
        words.extend([&*path, "--"]);
        words.extend(arguments);
        self.cluster.run(&words)?;
        fs::read_to_string(&report).context("reading the report")
    }

    /// Gives the figures of a case out, with their goals.
    fn rows(&mut self, program: Program, kind: &str, figures: Figures) {
        if !self.wants(program, kind) {
            return;
        }
        let case = case(program, self.count, kind);
        let is_warm = kind.starts_with("warm");
        let rows = match self.clock {
            Clock::Counted => self.counted_rows(program, &case, is_warm, &figures),
            Clock::Timed => self.timed_rows(program, &case, is_warm, &figures),
        };
        for row in rows {
            self.report.row(row);
        }
    }

    fn counted_rows(
        &self,
        program: Program,
        case: &str,
        is_warm: bool,
        figures: &Figures,
    ) -> Vec<Row> {
        let unit = "instructions";
        let first = figures.launch_ticks;
        let linux = self.yardstick.counted.get(program.name);
        // Whoever wants every page verified before the start pays for it.
        let has_goal = is_warm && !case.ends_with(Variant::VerifyAlways.suffix());
        let mut rows = vec![
            match (has_goal, linux) {
                (true, Some(linux)) => {
                    let goal = Goal::AtMost((linux.first_ticks * SHARE_MOST).floor());
                    Row::goal(case, "launch_instructions", first, unit, goal)
                }
                (true, None) => {
                    let reason = "Linux was not measured in this run".to_owned();
                    Row::refused(case, "launch_instructions", unit, reason)
                }
                (false, _) => Row::context(case, "launch_instructions", first, unit),
            },
            Row::context(case, "exit_instructions", figures.exit_ticks, unit),
        ];
        // A tick is a nanosecond on these machines.
        let wait_us = (figures.node_launch_us - first / 1000.0).max(0.0);
        rows.push(if has_goal {
            let goal = Goal::AtMost(WAIT_US_MOST);
            Row::goal(case, "launch_wait_us", wait_us, "us", goal)
        } else {
            Row::context(case, "launch_wait_us", wait_us, "us")
        });
        rows
    }

    fn timed_rows(
        &self,
        program: Program,
        case: &str,
        is_warm: bool,
        figures: &Figures,
    ) -> Vec<Row> {
        let count = |metric: &str, value, unit, has_goal: bool| match has_goal {
            true => Row::goal(case, metric, value, unit, Goal::AtMost(0.0)),
            false => Row::context(case, metric, value, unit),
        };
        let mut rows = vec![
            count("code_faults", figures.code_faults, "faults", is_warm),
            count(
                "readonly_faults",
                figures.readonly_faults,
                "faults",
                is_warm,
            ),
            count("data_faults", figures.data_faults, "faults", false),
            count("program_bytes", figures.program_bytes, "bytes", is_warm),
            count("wire_bytes", figures.wire_bytes, "bytes", is_warm),
        ];
        rows.push(Row::context(case, "launch_ms", figures.launch_ms, "ms"));
        rows.push(Row::context(case, "exit_ms", figures.exit_ms, "ms"));
        if !is_warm {
            // What all ranks touched goes over the control node's own link.
            let known = program.touched_bytes.map(|bytes| bytes * self.count as f64);
            let wire_ms = known.unwrap_or(figures.touched_bytes) / RATE_BYTES_PER_MS;
            let ratio = figures.exit_ms / wire_ms;
            rows.push(match known {
                Some(_) => self.unless_loaded(case, "wire_ratio", ratio, "ratio", WIRE_RATIO_MOST),
                None => Row::context(case, "wire_ratio", ratio, "ratio"),
            });
        }
        if program == TEXT_ALL {
            rows.push(Row::context(
                case,
                "table_pages",
                figures.table_pages,
                "pages",
            ));
            rows.push(Row::context(
                case,
                "large_pages",
                figures.large_pages,
                "pages",
            ));
        }
        rows
    }

    /// A figure made of times, with its goal; refused when other work had the processors.
    fn unless_loaded(
        &self,
        case: &str,
        metric: &str,
        value: f64,
        unit: &'static str,
        most: f64,
    ) -> Row {
        let busy = (self.load > LOAD_MOST).then(|| {
            format!(
                "load average {} before the first power-on: other work had the processors",
                self.load
            )
        });
        Row::time(case, metric, value, unit, Some(most), busy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_measured_at_one_node() {
        assert!(kinds(TEXT_ALL, 1).contains(&"warm-never".to_owned()));
        assert_eq!(kinds(TEXT_ALL, 8), ["cold", "warm", "warm-50"]);
        assert_eq!(case(TEXT_ALL, 8, "cold"), "text-16m-all/8/cold");
    }
}
