//! How a program ended, and what it cost.

use alloc::vec::Vec;

use crate::vitals::InterruptCounts;

/// System calls that the node does not have: how many different numbers a report can name.
pub const MAX_UNKNOWN_CALLS: usize = 16;

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// It called exit with this code.
    Exited(u8),
    /// It was ended by this signal: a fault, a cancel or the time limit.
    Signal(u8),
    /// The node could not go on with it (no page within the limit, ...); the text is in the
    /// report that precedes this.
    Failed,
}

impl ExitStatus {
    /// The exit status as a shell shows it: the code, or 128 + the signal, or 125 when the node
    /// failed it.
    pub fn as_shell_status(self) -> u8 {
        match self {
            ExitStatus::Exited(code) => code,
            ExitStatus::Signal(signal) => 128u8.saturating_add(signal),
            ExitStatus::Failed => 125,
        }
    }
}

/// How a program ended, and what it cost. Counts are of this job on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitReport {
    /// How it ended.
    pub status: ExitStatus,
    /// Microseconds spent in user mode.
    pub user_us: u64,
    /// Microseconds from start to end.
    pub wall_us: u64,
    /// System calls made.
    pub system_calls: u64,
    /// The node held pages of the program when it was launched.
    pub warm: bool,
    /// Pages that the launch found mapped from earlier runs.
    pub pages_reused: u64,
    /// Pages held after the end.
    pub pages_kept: u64,
    /// Pages of the program file given back at the end, or before the launch.
    pub pages_discarded: u64,
    /// Pages that failed their hash and were given back.
    pub pages_damaged: u64,
    /// Pages of page tables at the end.
    pub table_pages: u64,
    /// Frames of 2 MiB that held text at the end.
    pub pages_large: u64,
    /// Faults that fetched a page of an executable segment.
    pub faults_code: u64,
    /// Faults that fetched a page of a segment that is only read.
    pub faults_readonly: u64,
    /// Faults that fetched a page of a writable segment.
    pub faults_data: u64,
    /// Faults served with a zero page, the stack's excepted.
    pub faults_zero: u64,
    /// Faults on the stack.
    pub faults_stack: u64,
    /// Faults on the program file that found the page in memory.
    pub faults_held: u64,
    /// Faults that copied a data page that was in memory.
    pub faults_copy: u64,
    /// Requests sent for the program file ([`crate::page::PageTraffic::requests`]).
    pub program_requests: u64,
    /// Fragments received of it ([`crate::page::PageTraffic::fragments`]).
    pub program_fragments: u64,
    /// Bytes of both on the wire ([`crate::page::PageTraffic::wire_bytes`]).
    pub program_wire_bytes: u64,
    /// Microseconds from the arrival of LAUNCH until the program was ready.
    pub launch_us: u64,
    /// Microseconds from the arrival of LAUNCH to the first instruction.
    pub first_us: u64,
    /// The same in counts of the processor's clock.
    pub first_counts: u64,
    /// From the arrival of LAUNCH to the end, in counts of the processor's clock.
    pub exit_counts: u64,
    /// Pages asked for because a fault needed them.
    pub pages_asked: u64,
    /// Pages read ahead.
    pub pages_read_ahead: u64,
    /// Pages read ahead that were then used.
    pub pages_read_ahead_used: u64,
    /// Bytes of program file received.
    pub bytes_loaded: u64,
    /// Pages of the program file taken from what a broadcast had brought.
    pub pages_from_cast: u64,
    /// Faults on the program file that these pages served: no request was made.
    pub faults_from_cast: u64,
    /// Of these, faults that had to wait for a block on its way.
    pub faults_awaited: u64,
    /// Messages to other ranks, and to itself, that the program has sent.
    pub messages_sent: u64,
    /// Their bytes.
    pub message_bytes: u64,
    /// All-to-all exchanges that it has taken part in.
    pub exchanges: u64,
    /// Most frames of memory in use at once.
    pub frames_peak: u64,
    /// Frames scrubbed after the end.
    pub frames_scrubbed: u64,
    /// Interrupts taken in user mode.
    pub interrupts_user: InterruptCounts,
    /// Interrupts taken in the kernel on the job's behalf.
    pub interrupts_idle: InterruptCounts,
    /// System calls the node does not carry out: (number, count), at most [`MAX_UNKNOWN_CALLS`].
    pub unknown_calls: Vec<(u32, u32)>,
}

impl ExitReport {
    /// A report with `status` and all counts zero.
    pub fn new(status: ExitStatus) -> Self {
        ExitReport {
            status,
            user_us: 0,
            wall_us: 0,
            system_calls: 0,
            warm: false,
            pages_reused: 0,
            pages_kept: 0,
            pages_discarded: 0,
            pages_damaged: 0,
            table_pages: 0,
            pages_large: 0,
            faults_code: 0,
            faults_readonly: 0,
            faults_data: 0,
            faults_zero: 0,
            faults_stack: 0,
            faults_held: 0,
            faults_copy: 0,
            program_requests: 0,
            program_fragments: 0,
            program_wire_bytes: 0,
            launch_us: 0,
            first_us: 0,
            first_counts: 0,
            exit_counts: 0,
            pages_asked: 0,
            pages_read_ahead: 0,
            pages_read_ahead_used: 0,
            bytes_loaded: 0,
            pages_from_cast: 0,
            faults_from_cast: 0,
            faults_awaited: 0,
            messages_sent: 0,
            message_bytes: 0,
            exchanges: 0,
            frames_peak: 0,
            frames_scrubbed: 0,
            interrupts_user: InterruptCounts::default(),
            interrupts_idle: InterruptCounts::default(),
            unknown_calls: Vec::new(),
        }
    }
}
