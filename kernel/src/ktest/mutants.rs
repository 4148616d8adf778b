//! Programs of compilers with damage in their files: whatever becomes of them, the node survives,
//! accounts for every frame and runs the next program.
//!
//! The control node looks at a file's headers before it gives it to nodes; the one here does not. A
//! *seed* is [`MUTANTS`] mutants of the files that the runner hands over:
//! `hearth.test=mutants:SEED` runs one seed, `mutants:FROM-TO` several.
//!
//! Neighbours: `kernel_core::loader` has the same for its parser alone, on the host.
//!
//! Invariant: a mutant depends on its seed and the files, and on nothing else.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use netstack::retention::Retention;
use netstack::rng::Rng;

use super::control::FakeControl;
use super::program::hello_world;
use super::{Outcome, check};
use crate::arch::given_files;
use crate::mm;
use crate::mm::Hardware;
use crate::process;

/// Mutants of a seed.
const MUTANTS: u64 = 100;
/// Seeds of a run that names none.
const SEEDS: (u64, u64) = (0, 1);
/// Of these so many must start in the mean, or the mutations are too coarse to test more than the
/// parser.
const LEAST_STARTED: u64 = 30;
/// The files, as the runner calls them: a static program of musl's and one of glibc's, one that is
/// position-independent, and one without a C library.
const FILES: [&str; 4] = ["musl-hello", "hello-c", "pie-hello", "bare-frames"];
/// Bytes in which a file has its headers.
const HEADERS: u64 = 0x400;
/// Time that a mutant has.
const TIME_LIMIT_US: u64 = 50_000;
/// Mutants after which a program without damage runs.
const GOOD_EVERY: u64 = 25;

/// A number that is likely to be on the edge of something.
fn edge(rng: &mut Rng) -> u64 {
    let random = rng.next_u64();
    match random >> 61 {
        0 => 0,
        1 => u64::MAX - random % 0x2000,
        2 => 1 << (random % 64),
        3 => random % 0x100 * 0x1000,
        4 => random % 0x1_0000,
        5 => (1 << 47) - random % 0x4000,
        _ => random,
    }
}

/// Damages a file in one to four places, half of them in its headers.
fn damage(file: &mut [u8], rng: &mut Rng) {
    let length = file.len() as u64;
    for _ in 0..1 + rng.below(4) {
        let within = match rng.below(2) {
            0 => length.min(HEADERS),
            _ => length,
        };
        let at = rng.below(within) as usize;
        match rng.below(4) {
            0 => file[at] ^= 1 << rng.below(8),
            1 => file[at] = rng.next_u64() as u8,
            2 => {
                let at = (at & !7).min(file.len() - 8);
                file[at..at + 8].copy_from_slice(&edge(rng).to_le_bytes());
            }
            _ => {
                let to = (at + 1 + rng.below(64) as usize).min(file.len());
                file[at..to].fill_with(|| rng.next_u64() as u8);
            }
        }
    }
}

/// Runs one mutant, some of them twice, and kept warm in between; returns whether it started.
fn run(mut file: Vec<u8>, rng: &mut Rng) -> Result<bool, String> {
    damage(&mut file, rng);
    let before = mm::frames_beside_heap();
    let mut control = FakeControl::new(file);
    control.time_limit_us = TIME_LIMIT_US;
    control.tick_us = TIME_LIMIT_US / 4;
    control.input = rng.next_u64().to_le_bytes().to_vec();
    let again = rng.below(4) == 0;
    if again {
        control.retention = Retention::default();
    }
    let mut started = false;
    for _ in 0..1 + u64::from(again) {
        let launch = control.launch();
        if let Ok(prepared) = process::prepare(&launch, &mut control) {
            prepared.run_alone(&mut control);
            started = true;
        }
        control.again();
    }
    control.warm.drop_program(&mut Hardware::new(), None);
    process::scrub(|| ());
    let (after, usage) = (mm::frames_beside_heap(), mm::frames().usage());
    check!(
        after == before && usage.user == 0 && usage.retained == 0,
        "{before} frames of the kernel, then {after}, {usage:?}"
    );
    mm::frames().check()?;
    mm::frames().check_tags()?;
    Ok(started)
}

/// Runs seeds, see the module.
pub fn seeds() -> Outcome {
    let (first, last) = super::range().unwrap_or(SEEDS);
    let mut files = Vec::new();
    for name in FILES {
        let file = given_files::read(name);
        files.push(file.ok_or(format!("no file {name} was given with -fw_cfg"))?);
    }
    let mut started = 0;
    for seed in first..last {
        for mutant in 0..MUTANTS {
            let mut rng = Rng::new(seed * MUTANTS + mutant);
            let file = files[rng.below(files.len() as u64) as usize].clone();
            let ran = run(file, &mut rng);
            started +=
                u64::from(ran.map_err(|why| format!("seed {seed}, mutant {mutant}: {why}"))?);
            if mutant % GOOD_EVERY == GOOD_EVERY - 1 {
                hello_world()
                    .map_err(|why| format!("after mutant {mutant} of seed {seed}: {why}"))?;
            }
        }
    }
    let all = (last - first) * MUTANTS;
    info!("test", "{started} of {all} mutants have started");
    check!(
        started * MUTANTS >= all * LEAST_STARTED,
        "only {started} of {all} have started"
    );
    Ok(())
}
