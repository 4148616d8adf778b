//! Programs of compilers that check themselves: what they ask of the kernel is what C libraries
//! make of it.
//!
//! Neighbours: the same programs run in the end-to-end scenarios, against a real control node.
//!
//! Invariant: every program that the runner must hand over exits with 0 and says that all was well.

use alloc::format;
use alloc::string::String;

use netstack::io::ExitStatus;

use super::control::FakeControl;
use super::program::{expect, run};
use super::{Outcome, check};
use crate::arch::given_files;

/// Programs of one thread, each with its C library.
pub fn check_themselves() -> Outcome {
    run_each(&["resources", "musl-resources", "signals", "musl-signals"])
}

/// Programs of many threads.
pub fn threads() -> Outcome {
    run_each(&["threads", "musl-threads"])
}

/// Pipes, event counters and epolls; memory as run times of languages manage it; shared memory
/// objects.
pub fn channels() -> Outcome {
    run_each(&["pipes", "musl-pipes", "mappings", "musl-mappings"])?;
    run_each(&["shared-memory", "musl-shared-memory"])
}

/// Threads of other languages, OpenMP and rayon: with a team of one thread a core, and with more.
pub fn languages() -> Outcome {
    run_each(&[
        "rust-threads",
        "cpp-threads",
        "rayon",
        "omp-c",
        "omp-cpp",
        "omp-fortran",
    ])?;
    let teams = ["omp-c", "omp-cpp", "omp-fortran"];
    run_with(&teams, &[b"OMP_NUM_THREADS=7"])
}

/// Go.
pub fn goroutines() -> Outcome {
    run_each(&["goroutines"])
}

fn run_each(programs: &[&str]) -> Outcome {
    run_with(programs, &[])
}

fn run_with(programs: &[&str], environment: &[&[u8]]) -> Outcome {
    for &name in programs {
        let file = given_files::read(name);
        let file = file.ok_or(format!("no file {name} was given with -fw_cfg"))?;
        let mut control = FakeControl::new(file);
        control.set_environment(environment);
        let exit = run(&mut control)?;
        let output = String::from_utf8_lossy(&control.output(1)).into_owned();
        expect(&exit.report, ExitStatus::Exited(0))
            .map_err(|why| format!("{name}: {output}{:?} {why}", exit.text))?;
        check!(output.ends_with(": ok\n"), "{name} wrote {output:?}");
        let unknown = &exit.report.unknown_calls;
        info!("test", "{name}: calls that are not there: {unknown:?}");
    }
    Ok(())
}
