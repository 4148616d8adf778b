//! What a node tells about itself with each heartbeat.

use crate::ids::JobId;

/// Interrupts taken, by class. The kernel keeps one set for user mode and one for idle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptCounts {
    /// Heartbeat deadlines, at most one a second.
    pub heartbeat: u64,
    /// The job's time limit.
    pub time_limit: u64,
    /// The user's own monitoring period.
    pub monitor: u64,
    /// Network adapter; only while somebody waits.
    pub nic: u64,
    /// Network adapter or timer, for a broadcast that is not finished.
    pub cast: u64,
    /// Anything that nobody asked for.
    pub spurious: u64,
}

/// What broadcasts have moved through a node since its start, in blocks (data and hash lists).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CastVitals {
    /// Received, checked and kept.
    pub blocks_in: u64,
    /// Sent to others, in full.
    pub blocks_out: u64,
    /// Received and not what their hash says.
    pub corrupt: u64,
    /// Fragments received that were there already.
    pub duplicates: u64,
}

/// State of a node, sent with the next heartbeat. Times count from the kernel's entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    /// Microseconds since the kernel's entry.
    pub uptime_us: u64,
    /// Microseconds of these spent halted.
    pub idle_us: u64,
    /// Microseconds from the kernel's entry to the first WELCOME; 0 before.
    pub joined_us: u64,
    /// Microseconds of these spent halted.
    pub joined_idle_us: u64,
    /// Bytes of free memory.
    pub memory_free: u64,
    /// Bytes of memory in use.
    pub memory_used: u64,
    /// The job the node has, launched or running.
    pub job: Option<JobId>,
    /// The node does not scrub memory between programs (`hearth.scrub=off`, for tests).
    pub unscrubbed: bool,
    /// Interrupts taken while a program ran.
    pub interrupts_user: InterruptCounts,
    /// Interrupts taken while the node was idle or in the kernel.
    pub interrupts_idle: InterruptCounts,
    /// Broadcasts.
    pub casts: CastVitals,
    /// What the node keeps for the overlay: roles, links, messages, values, timers. 0 when the tree
    /// is down.
    pub overlay_kept: u32,
    /// Errors of the node's hardware that it has corrected since the kernel's entry.
    pub hardware_errors: u32,
}

/// Milestones of a boot as the kernel measured them, sent with HELLO. Zero: not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootTimings {
    /// Microseconds from the kernel's entry to its DHCP lease.
    pub entry_to_dhcp_us: u64,
    /// Microseconds from the kernel's entry to its first HELLO.
    pub entry_to_hello_us: u64,
    /// Microseconds of the time to HELLO spent halted.
    pub idle_us: u64,
    /// Microseconds from the stub's first instruction to the kernel's entry.
    pub stub_us: u64,
}
