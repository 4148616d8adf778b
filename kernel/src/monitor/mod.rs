//! What the node counts about itself beyond what its parts keep for their own use.
//!
//! Key types: [`Program`], what a running program has cost so far, published by its process
//! whenever the kernel may look at the network on its behalf; [`collector::Sources`], which reads
//! any metric of `netstack::overlay::NodeMetric`.
//!
//! | module | purpose |
//! |---|---|
//! | [`collector`] | from metric numbers to values |
//! | [`profile`] | the auxiliary service process that samples a program's instruction pointer |
//!
//! Neighbours: `process` publishes here, `agent::overlay` reads.
//!
//! Invariant: counting costs a running program a few instructions a system call and nothing else;
//! there is no text here, names and units are known to the control node alone.

pub mod collector;
pub mod profile;

use core::sync::atomic::{AtomicU64, Ordering};

use kernel_core::interrupts::Class;
use kernel_core::program::Faults;
use netstack::ids::LocalRank;
use netstack::overlay::MetricId;
use netstack::vitals::InterruptCounts;
use spin::Mutex;

/// Counters that a program can have.
pub const PROGRAM_COUNTERS: usize = hearth_abi::monitor::COUNTERS_MAX as usize;

/// Ranks of a node.
const RANKS: usize = netstack::RANKS_PER_NODE_MAX as usize;

/// System calls by place (`MetricId::call_index`). The kernel runs one thing at a time, so these
/// need no exclusive access.
static CALLS: [AtomicU64; MetricId::CALLS] = [const { AtomicU64::new(0) }; MetricId::CALLS];

/// What programs have cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Program {
    /// Time-stamp counts spent in ring 3.
    pub user_counts: u64,
    /// System calls made.
    pub system_calls: u64,
    /// Faults by what served them.
    pub faults: Faults,
    /// Threads it has.
    pub threads: u64,
}

impl Program {
    const NONE: Self = Self {
        user_counts: 0,
        system_calls: 0,
        faults: Faults::NONE,
        threads: 0,
    };

    fn plus(&self, other: &Self) -> Self {
        let (a, b) = (&self.faults, &other.faults);
        Self {
            user_counts: self.user_counts + other.user_counts,
            system_calls: self.system_calls + other.system_calls,
            faults: Faults {
                code: a.code + b.code,
                readonly: a.readonly + b.readonly,
                data: a.data + b.data,
                zero: a.zero + b.zero,
                stack: a.stack + b.stack,
                held: a.held + b.held,
                copy: a.copy + b.copy,
                stale: a.stale + b.stale,
            },
            threads: self.threads + other.threads,
        }
    }
}

struct State {
    /// Of programs that have ended.
    ended: Program,
    /// Of those that run, by local rank.
    running: [Program; RANKS],
    /// Values that the running program has set.
    counters: [Option<i64>; PROGRAM_COUNTERS],
}

static STATE: Mutex<State> = Mutex::new(State {
    ended: Program::NONE,
    running: [Program::NONE; RANKS],
    counters: [None; PROGRAM_COUNTERS],
});

/// Counts a system call by its number.
#[inline]
pub fn count_call(number: u64) {
    if let Some(index) = MetricId::call_index(number) {
        CALLS[index].fetch_add(1, Ordering::Relaxed);
    }
}

/// The program of a rank has cost this much so far.
pub fn publish(rank: LocalRank, program: Program) {
    STATE.lock().running[rank.index()] = program;
}

/// What the running program had cost when it said so last.
#[cfg(feature = "ktest")]
pub fn running() -> Program {
    STATE.lock().running[0]
}

/// The program of a rank has ended: what it cost stays.
pub fn end_program(rank: LocalRank, program: Program) {
    let mut state = STATE.lock();
    let program = Program {
        threads: 0,
        ..program
    };
    state.ended = state.ended.plus(&program);
    state.running[rank.index()] = Program::NONE;
}

/// What the last program set, and where it was, is forgotten: it has been told.
pub fn clear_counters() {
    STATE.lock().counters = [None; PROGRAM_COUNTERS];
    profile::end_program();
}

/// Sets a counter of the running program. False: there is no such counter.
pub fn set_counter(index: u64, value: i64) -> bool {
    let mut state = STATE.lock();
    let place = usize::try_from(index)
        .ok()
        .and_then(|index| state.counters.get_mut(index));
    place.map(|place| *place = Some(value)).is_some()
}

/// What all programs of this boot have cost.
fn total() -> Program {
    let state = STATE.lock();
    let running = state.running.iter();
    running.fold(state.ended, |sum, program| sum.plus(program))
}

fn counter(index: usize) -> Option<i64> {
    *STATE.lock().counters.get(index)?
}

fn calls(index: usize) -> Option<i64> {
    i64::try_from(CALLS.get(index)?.load(Ordering::Relaxed)).ok()
}

/// Interrupts by class in the form in which they are reported.
pub fn interrupt_counts(counts: &[u64; Class::ALL.len()]) -> InterruptCounts {
    let of = |class: Class| counts[class as usize];
    InterruptCounts {
        heartbeat: of(Class::Heartbeat),
        time_limit: of(Class::TimeLimit),
        monitor: of(Class::Monitor),
        nic: of(Class::Nic),
        cast: of(Class::Cast),
        spurious: of(Class::Spurious),
    }
}
