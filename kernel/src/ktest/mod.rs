//! Tests run inside the kernel: `hearth.test=NAME` runs one in place of the agent.
//!
//! A test ends with the line `HEARTH-TEST ok NAME` or `HEARTH-TEST FAILED NAME: why` and leaves
//! QEMU by `isa-debug-exit` with a status of its own for each; the runner on the host (`tests/`)
//! wants line and status, so a kernel that hangs or resets has failed. `hearth.test=list` prints
//! the names.
//!
//! Invariant: one boot runs one test, so a test may leave the machine as it likes.

mod clock;
mod memory;
mod ring3;
mod sandbox;

use alloc::string::String;

use crate::{arch, console};

/// Why a test failed.
type Outcome = Result<(), String>;

/// A test and its name.
type Test = (&'static str, fn() -> Outcome);

const TESTS: &[Test] = &[
    ("paging", memory::paging),
    ("null-page", memory::null_page),
    ("write-xor-execute", memory::write_xor_execute),
    ("no-execute", memory::no_execute),
    ("stack-guard", memory::stack_guard),
    ("interrupt-stack-guard", memory::interrupt_stack_guard),
    ("scrub", memory::scrub),
    ("heap", memory::heap),
    ("user-memory", memory::user_memory_is_out_of_reach),
    ("round-trip", ring3::round_trip),
    ("user-faults", ring3::faults),
    ("user-flags", ring3::flags),
    ("user-isolation", ring3::isolation),
    ("sysret-guard", ring3::sysret_guard),
    ("fpu", ring3::fpu),
    ("bases", ring3::segment_bases),
    ("timer", clock::timer),
    ("idle", clock::idle_is_tickless),
    ("compute", clock::compute_is_tickless),
    ("nmi", clock::nmi),
    ("entropy", clock::entropy),
    ("panic", panics),
    ("stack-overflow", overflows),
];

/// Fails the test with a message unless the condition holds.
macro_rules! check {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(alloc::format!($($text)*));
        }
    };
}
use check;

/// Runs the named test and leaves.
pub fn run(name: &str) -> ! {
    if name == "list" {
        for (name, _) in TESTS {
            console::raw(format_args!("HEARTH-TEST name {name}\n"));
        }
        console::raw(format_args!("HEARTH-TEST ok list\n"));
        arch::succeed();
    }
    let outcome = match TESTS.iter().find(|(known, _)| *known == name) {
        Some((_, test)) => test(),
        None => Err(String::from("no such test")),
    };
    match outcome {
        Ok(()) => {
            console::raw(format_args!("HEARTH-TEST ok {name}\n"));
            arch::succeed()
        }
        Err(why) => {
            console::raw(format_args!("HEARTH-TEST FAILED {name}: {why}\n"));
            arch::fail()
        }
    }
}

/// The runner wants the report and the status for failure.
fn panics() -> Outcome {
    info!("test", "this line belongs into the report");
    panic!("on purpose")
}

/// The runner wants a report that names the guard page, printed on the page fault's own stack.
fn overflows() -> Outcome {
    memory::overflow(0);
    Ok(())
}
