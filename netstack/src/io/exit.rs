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
    /// Faults served with a page of the program file.
    pub faults_file: u64,
    /// Faults served with a zero page.
    pub faults_anonymous: u64,
    /// Pages asked for because a fault needed them.
    pub pages_asked: u64,
    /// Pages read ahead.
    pub pages_read_ahead: u64,
    /// Pages read ahead that were then used.
    pub pages_read_ahead_used: u64,
    /// Bytes of program file received.
    pub bytes_loaded: u64,
    /// Most frames of memory in use at once.
    pub frames_peak: u64,
    /// Frames scrubbed after the end.
    pub frames_scrubbed: u64,
    /// Interrupts taken in user mode.
    pub interrupts_user: InterruptCounts,
    /// Interrupts taken in the kernel on the job's behalf.
    pub interrupts_idle: InterruptCounts,
    /// System calls the node does not have: (number, count), at most [`MAX_UNKNOWN_CALLS`].
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
            faults_file: 0,
            faults_anonymous: 0,
            pages_asked: 0,
            pages_read_ahead: 0,
            pages_read_ahead_used: 0,
            bytes_loaded: 0,
            frames_peak: 0,
            frames_scrubbed: 0,
            interrupts_user: InterruptCounts::default(),
            interrupts_idle: InterruptCounts::default(),
            unknown_calls: Vec::new(),
        }
    }
}
