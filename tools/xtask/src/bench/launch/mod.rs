//! `bench launch`: what it costs to start a program, cold and warm, beside a Linux node.
//!
//! Cases: `PROGRAM/NODES/cold` (the nodes hold nothing of the program), `/warm` (they ran it
//! before), `/warm-50` (and 50 other programs since: one launch, figures of that one; all of them
//! are still held), and `linux/PROGRAM/NODES/cold`, `/warm`: a Linux node that fetches the same
//! file over the same links into tmpfs and runs it. Beyond these, at one node: `/cold-large`,
//! `/warm-large` (text in 2 MiB frames), `/warm-never` and `/warm-always` (retained pages are not
//! verified, or every one is; else it is a sample after the run).
//!
//! Each figure comes from one of two kinds of machine. *Timed*: links limited to [`RATE`], clocks
//! run; milliseconds, bytes, faults. *Counted*: `-icount shift=0`, links as fast as they go;
//! instructions.
//!
//! | metric | is |
//! |---|---|
//! | `code_faults`, `readonly_faults` | page faults in executable and in read-only segments, sum of the ranks |
//! | `data_faults` | page faults in writable segments that came from the file |
//! | `program_bytes` | bytes of the program's file that travelled; `wire_bytes` with all headers, both directions |
//! | `launch_ms`, `exit_ms` | from dispatch at the control node to the first instruction, and to the exit, of the last rank |
//! | `launch_instructions`, `exit_instructions` | of a node, from the launch message's arrival; halted time is not counted |
//! | `launch_wait_us` | of these, the time a node was halted: what it waited for another message. A warm launch is one message and its acknowledgement, so it waits for none |
//! | `wire_ratio` | `exit_ms` over the time that the touched bytes of all ranks need on the control node's link; where the program's source says what it touches, that is taken, else what the nodes count |
//!
//! On Linux: `launch_ms` is fetch, fork and exec (cold), or fork and exec (warm), to the first
//! instruction.
//!
//! Neighbours: [`peer`] is the Linux node, [`hearth`] the Hearth node, [`figures`] reads what they
//! report.
//!
//! Invariant: goals compare with a Linux node measured in the same run.

mod figures;
mod hearth;
mod peer;

use std::collections::BTreeMap;

use anyhow::{Context, Result};

pub use figures::Figures;

use super::linux::Linux;
use super::{Report, ready};
use crate::workspace::Workspace;
use hearth::Clock;
use peer::Launched;

/// Rate of every link of the timed clusters: far below what an emulated node can take in.
const RATE: &str = "50mbit";
/// The same in bytes a millisecond.
const RATE_BYTES_PER_MS: f64 = 50e6 / 8.0 / 1000.0;
/// Numbers of nodes.
const NODE_COUNTS: [usize; 2] = [1, 8];
/// Share of Linux's fork and exec that a warm launch may take.
const SHARE_MOST: f64 = 0.1;
/// Most time for the bytes that were touched, as a multiple of what the link needs for them.
const WIRE_RATIO_MOST: f64 = 1.1;
/// Launches of other programs before `warm-50`.
const OTHERS: usize = 50;

/// A program to launch.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Program {
    /// Its part of a case's name.
    name: &'static str,
    /// Its file under `programs/`.
    file: &'static str,
    arguments: &'static [&'static str],
    /// Bytes of its text that it executes, where the source says so: then its cold launch is
    /// limited by the link.
    touched_bytes: Option<f64>,
}

const fn program(name: &'static str, file: &'static str) -> Program {
    Program {
        name,
        file,
        arguments: &[],
        touched_bytes: None,
    }
}

/// What `tests/programs/musl-bigtext.c` executes of itself in pages, 4,096 of 4 KiB; its library
/// comes on top.
const TEXT_BYTES: f64 = 16.0 * 1024.0 * 1024.0;

/// 16 MiB of text of which all is executed, and of which a twentieth is.
const TEXT_ALL: Program = Program {
    arguments: &["100"],
    touched_bytes: Some(TEXT_BYTES),
    ..program("text-16m-all", "musl-bigtext")
};
const TEXT_FEW: Program = Program {
    arguments: &["5"],
    ..program("text-16m-5", "musl-bigtext")
};

/// Programs of one file stand in the order of what they touch, so that a warm launch finds its
/// pages.
const PROGRAMS: [Program; 6] = [
    program("musl-hello", "musl-hello"),
    program("glibc-hello", "hello-c"),
    program("rust-hello", "hello-rust"),
    program("compute", "compute"),
    TEXT_FEW,
    TEXT_ALL,
];

/// What is asked of the nodes beside the defaults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    /// No retained page is verified.
    VerifyNever,
    /// Every retained page is verified before the program starts.
    VerifyAlways,
}

impl Variant {
    const ALL: [Variant; 2] = [Self::VerifyNever, Self::VerifyAlways];

    /// What it adds to `cold` and `warm` in a case's name.
    fn suffix(self) -> &'static str {
        match self {
            Self::VerifyNever => "-never",
            Self::VerifyAlways => "-always",
        }
    }

    /// Flags of `hearth run`.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::VerifyNever => &["--verify", "never"],
            Self::VerifyAlways => &["--verify", "always"],
        }
    }

    /// Programs that show the difference.
    fn programs(self) -> &'static [Program] {
        &[PROGRAMS[1], TEXT_ALL]
    }
}

/// What was measured of Linux in this run, by program, on a machine whose clock counts
/// instructions: the goals of warm launches.
#[derive(Debug, Default)]
struct Yardstick {
    counted: BTreeMap<&'static str, Launched>,
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    // The one-minute average before anything is measured: what others do with the processors.
    let load = ready(workspace, report)?;
    let mut yardstick = Yardstick::default();
    let linux = Linux::prepare(workspace.target())?;
    let wants_warm = |report: &Report, program: &Program, count: usize| {
        hearth::kinds(*program, count)
            .iter()
            .filter(|kind| kind.starts_with("warm"))
            .any(|kind| report.wants(&hearth::case(*program, count, kind)))
    };
    let wants_linux = |report: &Report, program: &Program, count: usize| {
        ["cold", "warm"]
            .iter()
            .any(|kind| report.wants(&format!("linux/{}/{count}/{kind}", program.name)))
    };
    let counted: Vec<Program> = PROGRAMS
        .into_iter()
        .filter(|program| {
            wants_linux(report, program, 1)
                || NODE_COUNTS
                    .iter()
                    .any(|&count| wants_warm(report, program, count))
        })
        .collect();
    if !counted.is_empty() {
        report.progress("Linux under -icount");
        yardstick.counted = peer::counted(workspace, &linux, &counted)?;
        peer::counted_rows(report, &yardstick.counted);
    }
    for count in NODE_COUNTS {
        let timed: Vec<Program> = PROGRAMS
            .into_iter()
            .filter(|program| wants_linux(report, program, count))
            .collect();
        if !timed.is_empty() {
            let launched = peer::timed(workspace, report, &linux, count, &timed)?;
            peer::timed_rows(report, count, &launched);
        }
    }
    for count in NODE_COUNTS {
        for clock in [Clock::Counted, Clock::Timed] {
            hearth::measure(workspace, report, clock, count, &yardstick, load)?;
        }
    }
    Ok(())
}

/// A figure of a line of `KEY=VALUE` words.
fn figure(line: &str, key: &str) -> Result<f64> {
    line.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.parse().ok())
        .with_context(|| format!("no figure {key} in {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_name() {
        let line = "LINUX-LAUNCHED label=x first_us=12.5 bad=0";
        assert_eq!(figure(line, "first_us").unwrap(), 12.5);
        assert_eq!(figure(line, "bad").unwrap(), 0.0);
        assert!(figure(line, "exit_us").is_err());
    }

    #[test]
    fn programs_of_one_file_stand_in_the_order_of_their_share() {
        let shares: Vec<u32> = PROGRAMS
            .iter()
            .filter(|program| program.file == TEXT_ALL.file)
            .map(|program| program.arguments[0].parse().unwrap())
            .collect();
        assert!(shares.is_sorted());
    }
}
