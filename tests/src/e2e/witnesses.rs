//! Faults and bytes as others saw them: QEMU's log of exceptions and the counters of the node's
//! tap.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::command;
use crate::launched::Launched;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "faults-and-bytes-by-others",
        boot: Boot::Traced,
        run: others,
    },
    Scenario {
        name: "cores-compute-undisturbed",
        boot: Boot::Traced,
        run: undisturbed,
    },
    Scenario {
        name: "kernel-under-a-debugger",
        boot: Boot::Traced,
        run: debugger,
    },
];

/// What a job without a program on the wire may move: launch, acknowledgements, a line of output,
/// the exit report, reports of what is held, and heartbeats; in both directions, with all headers.
const JOB_BYTES_MOST: u64 = 6_000;

/// Cores of the node.
const TRACED_CORES: usize = 4;

/// Page faults of ring 3 by what was touched, as QEMU's processor took them.
#[derive(Debug, Default)]
struct Faults {
    code: u64,
    readonly: u64,
    other: u64,
}

/// Loadable segments of a program that are not writable: first address, end, executable or not.
struct Segments(Vec<(u64, u64, bool)>);

impl Segments {
    /// Reads the program headers of an `ET_EXEC` file.
    fn read(path: &str) -> Result<Self> {
        let (load, execute, write) = (1, 1, 2);
        let bytes = fs::read(path)?;
        let word = |at: usize, size: usize| -> Result<u64> {
            let part = bytes.get(at..at + size).context("a short ELF file")?;
            Ok(part.iter().rev().fold(0, |sum, &b| sum << 8 | u64::from(b)))
        };
        ensure!(word(16, 2)? == 2, "{path} is not linked to fixed addresses");
        let (table, count) = (word(32, 8)? as usize, word(56, 2)? as usize);
        let mut segments = Vec::new();
        for header in (0..count).map(|index| table + index * 56) {
            let (kind, flags) = (word(header, 4)?, word(header + 4, 4)?);
            if kind == load && flags & write == 0 {
                let (start, size) = (word(header + 16, 8)?, word(header + 40, 8)?);
                segments.push((start & !0xfff, start + size, flags & execute != 0));
            }
        }
        Ok(Self(segments))
    }

    /// Counts the page faults (vector 14) of ring 3 in a part of QEMU's log. A line of an exception
    /// looks like ` 17: v=0e e=0014 i=0 cpl=3 IP=0033:0000000000401650 pc=... SP=...
    /// CR2=0000000000401650`.
    fn count(&self, log: &str) -> Result<Faults> {
        const FETCH: u64 = 0x10;
        let mut faults = Faults::default();
        for line in log.lines() {
            if !line.contains(" v=0e ") || !line.contains(" cpl=3 ") {
                continue;
            }
            let field = |name: &str| -> Result<u64> {
                let text = line
                    .split_whitespace()
                    .find_map(|word| word.strip_prefix(name))
                    .with_context(|| format!("no {name} in {line:?}"))?;
                u64::from_str_radix(text, 16).with_context(|| format!("{name} in {line:?}"))
            };
            let (error, address) = (field("e=")?, field("CR2=")?);
            let segment = self
                .0
                .iter()
                .find(|(start, end, _)| (*start..*end).contains(&address));
            match segment {
                Some((_, _, true)) => faults.code += 1,
                Some((_, _, false)) => faults.readonly += 1,
                None => faults.other += 1,
            }
            ensure!(
                error & FETCH == 0 || matches!(segment, Some((_, _, true))),
                "an instruction was fetched outside of the program's code: {line:?}"
            );
        }
        Ok(faults)
    }
}

/// The log of the node's exceptions, beside that of its console.
fn trace(cluster: &Cluster) -> Result<PathBuf> {
    Ok(cluster.serial_log("n0")?.with_extension("trace"))
}

/// Bytes that the node's tap has carried in both directions, as the host counted them.
fn tap_bytes(cluster: &Cluster) -> Result<u64> {
    let (received, sent) = cluster.interface_bytes("n0")?;
    Ok(received + sent)
}

/// A launch with what the others saw meanwhile.
struct Watched {
    launched: Launched,
    faults: Faults,
    bytes: u64,
}

fn watched(cluster: &Cluster, flags: &[&str], program: &str) -> Result<Watched> {
    let (log, segments) = (trace(cluster)?, Segments::read(program)?);
    let (begin, bytes) = (fs::metadata(&log)?.len() as usize, tap_bytes(cluster)?);
    let launched = Launched::good(cluster, flags, program, &[])?;
    cluster.all_nodes_idle()?;
    let bytes = tap_bytes(cluster)? - bytes;
    let all = fs::read(&log)?;
    let part = all.get(begin..).context("the log became shorter")?;
    let faults = segments.count(&String::from_utf8_lossy(part))?;
    Ok(Watched {
        launched,
        faults,
        bytes,
    })
}

/// Programs that are launched cold, and how many read-only pages of each a call touches before the
/// program does: the kernel brings them in while it copies, which raises no exception, and counts
/// them. The C library of hello-c asks `readlink` for a path that stands in one; musl-hello touches
/// all of its pages itself. Both numbers are the same in every run.
const COLD: [(&str, u64); 2] = [("musl-hello", 0), ("hello-c", 2)];

/// Cold launches: the node reports the faults that QEMU's processor took, to the last one.
fn cold(cluster: &Cluster, name: &str, by_calls: u64) -> Result<()> {
    let cold = watched(cluster, &["--cold"], &cluster.program(name))?;
    cold.launched.expect_cold("first")?;
    // A page that had come ahead of its fault counts as held, whatever segment it is of.
    let fault = |kind: &str| cold.launched.sum(&format!("/faults/{kind}"));
    let (code, readonly, held) = (fault("code")?, fault("readonly")?, fault("held")?);
    let seen = cold.faults.code + cold.faults.readonly;
    ensure!(
        code <= cold.faults.code && seen + by_calls == code + readonly + held,
        "{name}: QEMU saw {:?}, and calls touch {by_calls} pages; the node reports {code} of code, {readonly} of what \
         is read only and {held} of pages that were there: {}",
        cold.faults,
        cold.launched.report()
    );
    let wire = cold.launched.sum("/wire/bytes")?;
    ensure!(
        (wire..wire + JOB_BYTES_MOST).contains(&cold.bytes),
        "{name}: the tap carried {} bytes, the node reports {wire} for the program",
        cold.bytes
    );
    Ok(())
}

fn others(cluster: &Cluster) -> Result<()> {
    for (name, by_calls) in COLD {
        cold(cluster, name, by_calls)?;
    }
    let program = cluster.program("hello-c");
    // After the first warm run the node asks for the list of page hashes, 32 bytes a page, to
    // verify a few pages.
    let list = fs::metadata(&program)?.len() / 4096 * 32;
    for round in 0..3 {
        let most = JOB_BYTES_MOST + if round == 0 { list + list / 8 } else { 0 };
        let warm = watched(cluster, &[], &program)?;
        warm.launched.expect_warm("again")?;
        ensure!(
            warm.faults.code == 0 && warm.faults.readonly == 0,
            "warm launch {round}: QEMU saw {:?}",
            warm.faults
        );
        ensure!(
            warm.faults.other > 0,
            "warm launch {round}: QEMU saw no fault at all, not even of the stack"
        );
        ensure!(
            warm.bytes < most,
            "warm launch {round}: the tap carried {} bytes",
            warm.bytes
        );
    }
    Ok(())
}

/// An interrupt or exception as QEMU's log has it.
struct Entry {
    /// The task register's base: each core has one of its own.
    core: u64,
    /// Whether it interrupted the program, not the kernel.
    of_program: bool,
    /// The instruction that it interrupted.
    instruction: u64,
    /// The address of the core's last page fault.
    fault: u64,
}

/// All entries into the kernel by interrupt or exception, in the order of the log. They are read
/// from the dumps of registers, each of which QEMU writes whole; the lines before them, which have
/// the vectors, are written in parts, and those of two cores may be mixed.
fn entries(log: &str) -> Result<Vec<Entry>> {
    let hex = |text: &str| u64::from_str_radix(text, 16).with_context(|| format!("{text:?}"));
    let mut entries = Vec::new();
    let (mut instruction, mut of_program, mut core) = (0, false, 0);
    for line in log.lines() {
        let words = || line.split_whitespace();
        let word = |name: &str| words().find_map(|word| word.strip_prefix(name));
        if let Some(address) = word("RIP=") {
            instruction = hex(address)?;
            of_program = word("CPL=") == Some("3");
        } else if line.starts_with("TR =") {
            core = hex(words().nth(2).context("a TR without a base")?)?;
        } else if line.starts_with("CR0=") {
            entries.push(Entry {
                core,
                of_program,
                instruction,
                fault: hex(word("CR2=").context("no CR2")?)?,
            });
        }
    }
    Ok(entries)
}

/// Where the program was interrupted on a core between its first touches of two pages; `None` when
/// it never touched them in that order. What comes while the kernel still serves the first touch
/// interrupts the kernel and not the program.
fn between(entries: &[Entry], first: u64, last: u64) -> Option<Vec<u64>> {
    let touches = |at: u64| move |entry: &Entry| entry.of_program && entry.fault & !0xfff == at;
    let begin = entries.iter().position(touches(first))?;
    let own: Vec<&Entry> = entries[begin + 1..]
        .iter()
        .filter(|entry| entry.core == entries[begin].core && entry.of_program)
        .collect();
    let end = own.iter().position(|entry| touches(last)(entry))?;
    Some(own[..end].iter().map(|entry| entry.instruction).collect())
}

/// Nothing at all interrupts a program on the cores that have no part in the node's own work; on
/// the boot core it is the heartbeat. Neither where threads compute each for itself, nor where they
/// share loops and wait for each other.
fn undisturbed(cluster: &Cluster) -> Result<()> {
    computes(cluster, "noise", "400")?;
    computes(cluster, "omp-stream", "1")?;
    computes(cluster, "omp-matrix", "1")
}

fn computes(cluster: &Cluster, name: &str, argument: &str) -> Result<()> {
    let log = trace(cluster)?;
    let start = fs::metadata(&log)?.len() as usize;
    let done = cluster
        .hearth(&["run", "-n", "1", &cluster.program(name), "--", argument])?
        .expect_code(0)?;
    let log = fs::read(&log)?;
    let entries = entries(&String::from_utf8_lossy(&log[start..]))?;
    let mut cores = 0;
    for line in done.out().lines().filter(|line| line.contains(": core ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "core", core, first, last, _] = words[..] else {
            anyhow::bail!("the program printed {line:?}");
        };
        let address = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
        let came = between(&entries, address(first)?, address(last)?)
            .with_context(|| format!("core {core} is not in QEMU's log"))?;
        crate::figure(
            name,
            &format!("entries_core_{core}"),
            came.len() as f64,
            "interrupts",
        );
        ensure!(
            core == "0" || came.is_empty(),
            "{name}: core {core} was interrupted while it computed, at {came:x?}"
        );
        // About one a second, for some seconds.
        ensure!(
            core != "0" || came.len() < 60,
            "the boot core was interrupted {} times, at {came:x?}",
            came.len()
        );
        cores += 1;
    }
    ensure!(cores == TRACED_CORES, "the program ran on {cores} cores");
    Ok(())
}

/// What `hearth up --gdb` prints: a debugger finds the kernel's functions and its state, and the
/// node goes on behind it.
fn debugger(cluster: &Cluster) -> Result<()> {
    let machines = cluster.json(&["list", "--machines"])?;
    let socket = machines[0]["debugger"].as_str().context("no debugger")?;
    let symbols = cluster.built("symbols/kernel");
    let symbols = format!("symbol-file {symbols} -o 0xffffffff80000000");
    let target = format!("target remote {socket}");
    let commands = [&*symbols, &*target, "backtrace", "info line *$pc", "detach"];
    let mut arguments = vec!["--batch", "--nx"];
    for command in commands {
        arguments.extend(["-ex", command]);
    }
    let done = command::run("gdb".as_ref(), &arguments, &[], LIMIT)?.expect_code(0)?;
    let out = done.out();
    ensure!(
        out.contains("idle.rs") && out.contains("agent/mod.rs"),
        "the debugger does not find an idle kernel:\n{out}\n{}",
        done.err()
    );
    let hello = cluster.program("hello-c");
    cluster
        .hearth(&["run", "-n", "1", &hello])?
        .expect_code(0)?;
    Ok(())
}
