//! `bench packet`: what a packet between ranks costs two nodes, in instructions.
//!
//! Neighbours: the kernel's test `packet-cost` counts (`kernel/src/ktest/packets.rs`): two ranks in
//! one kernel, each with an engine, a stack and a card, on one wire. QEMU's clock counts
//! instructions (`-icount shift=0`: one tick of the time-stamp counter an instruction). What the
//! processor waits is not counted, since only turns count in which a datagram came or went.
//!
//! Cases: `exchange`, a full packet of data with what control it needs; `message`, one of 8 bytes
//! with its acknowledgement; both once more through smoltcp's sockets; `parts`, what of a full
//! packet is tag and copy; `cast`, a datagram of data that a node takes and one that it serves;
//! `page`, a fragment of a page that a node takes, and what asking for it costs; `linux`, a
//! datagram through sockets and the loopback device of a Linux guest.
//!
//! Invariant: the figures are those of a test that passed.

use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

use super::linux::Linux;
use super::{Goal, Report, Row};
use crate::build;
use crate::test::kernel;
use crate::workspace::Workspace;

const TEST: &str = "packet-cost";
/// The case of the peer, and the memory of its machine.
const LINUX: &str = "linux";
const LINUX_MIB: u32 = 128;
/// Instructions of a full packet of an exchange, sent and received; ADR 39 has the parts.
const PAIR_MOST: f64 = 12_000.0;
/// Cases, and the figures of each.
const CASES: &[(&str, &[&str])] = &[
    ("exchange", &["pair", "seal", "send", "receive", "open"]),
    ("message", &["pair", "seal", "send", "receive", "open"]),
    (
        "exchange-smoltcp",
        &["pair", "seal", "send", "receive", "open"],
    ),
    (
        "message-smoltcp",
        &["pair", "seal", "send", "receive", "open"],
    ),
    ("cast", &["take", "serve"]),
    ("page", &["take", "ask"]),
    ("parts", &["tag", "tag_of_32", "copy"]),
];

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    if report.wants(LINUX) {
        on_linux(workspace, report)?;
    }
    let wanted: Vec<_> = CASES
        .iter()
        .filter(|(case, _)| report.wants(case))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    // The image may be of an earlier state of the kernel.
    let built = build::run(workspace, &build::Options::kernel_tests())?;
    ensure!(
        built == ExitCode::SUCCESS,
        "the kernel's tests do not build"
    );
    report.progress(&format!("the kernel's test {TEST}"));
    let lines = kernel::console_of(workspace, TEST)?;
    for (case, metrics) in wanted {
        for metric in *metrics {
            let value = lines.iter().find_map(|line| figure_of(line, case, metric));
            let value = value.with_context(|| format!("the test printed no {metric} of {case}"))?;
            let unit = "instructions";
            report.row(match (*case, *metric) {
                ("exchange", "pair") => {
                    Row::goal(case, metric, value, unit, Goal::AtMost(PAIR_MOST))
                }
                _ => Row::context(case, metric, value, unit),
            });
        }
    }
    Ok(())
}

/// What a program on Linux counts of itself.
fn on_linux(workspace: &Workspace, report: &mut Report) -> Result<()> {
    build::programs::build(workspace)?;
    report.progress("Linux under -icount");
    let linux = Linux::prepare(workspace.target())?;
    let script = "$bb ip link set lo up\n/bin/udp-cost\n$bb poweroff -f\n";
    let program = workspace.programs().join("udp-cost");
    let initrd = linux.initramfs("packet", script, &[&program])?;
    let said = linux.counted(&initrd, LINUX_MIB)?;
    for metric in ["full", "short"] {
        let value = said.lines().find_map(|line| figure_of(line, LINUX, metric));
        let value = value.with_context(|| format!("the program printed no {metric}: {said}"))?;
        report.row(Row::context(LINUX, metric, value, "instructions"));
    }
    Ok(())
}

/// A figure of a case, of its line.
fn figure_of(line: &str, case: &str, metric: &str) -> Option<f64> {
    let (_, rest) = line.split_once("packet-cost ")?;
    let mut words = rest.split_whitespace();
    let is_its = words.next() == Some(case);
    let mut words = words.filter(|_| is_its);
    words.find_map(|word| word.strip_prefix(metric)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_of_a_line_is_found() {
        let line = "packet-cost parts tag=1290 tag_of_32=320 copy=200";
        assert_eq!(figure_of(line, "parts", "tag"), Some(1_290.0));
        assert_eq!(figure_of(line, "parts", "tag_of_32"), Some(320.0));
        assert_eq!(figure_of(line, "parts", "of"), None);
        assert_eq!(figure_of(line, "exchange", "tag"), None);
        assert_eq!(figure_of("parts tag=1", "parts", "tag"), None);
    }
}
