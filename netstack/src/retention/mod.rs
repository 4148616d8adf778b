//! Warm relaunch: what a node keeps of a program after its end, and how the control node knows.
//! These are the messages; both forms of the method are in `kernel/core/src/retention`.
//!
//! - The policy ([`Retention`]) comes with every LAUNCH.
//! - RETAIN, before a LAUNCH, is the retain message of the published method ("Retaining
//!   executable pages between launches", the steps on the compute node): keep this program's
//!   pages, drop every other program's. It belongs to its job and is void once a later RETAIN or
//!   LAUNCH has been taken.
//! - DROP gives warm programs back. Its ids rise within a session; a repeated one is only
//!   answered again.
//! - HOLDINGS tells the control node, unasked, what a node holds: numbered reports, one under way
//!   at a time, repeated until acknowledged. A session begins with a report of everything.
//!
//! The module `node` is the node's side of DROP and HOLDINGS, `control` the control node's; RETAIN
//! is a step of a launch and so in [`crate::job`].
//!
//! Invariant: once everything under way has arrived, the control node's view of a node is what
//! the node said last with [`crate::node::Endpoint::hold`] and `unhold`, whatever was lost,
//! repeated or reordered, and whichever side was restarted.

pub(crate) mod control;
pub(crate) mod node;

use crate::ids::ProgramId;

/// Most programs a node may hold at once: each report to the control node is about these, and a
/// cluster of 16,384 nodes then needs at most a million rows.
pub const HOLDINGS_MAX: usize = 64;
/// Most changes in one HOLDINGS: 24 of 40 bytes each fit a datagram with room to spare.
pub const CHANGES_MAX: usize = 24;

/// What a node is to do about the pages of a program: before its launch, and after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Whether the launch may or must use what the node holds.
    pub reuse: Reuse,
    /// What is held after the end.
    pub keep: Keep,
    /// Keep read-only pages that are not executable, too (the published method's wider variant).
    pub read_only: bool,
    /// Keep the pristine contents of touched data pages, read-only, copied on the first write.
    pub pristine: bool,
    /// When the contents of held pages are compared with the program's page hashes.
    pub verify: Verify,
    /// Most pages of 4 KiB that all warm programs of the node may have; 0: the node's default.
    pub limit_pages: u32,
}

impl Retention {
    /// Use nothing that is held and hold nothing.
    pub const NOTHING: Retention = Retention {
        reuse: Reuse::Forbid,
        keep: Keep::Nothing,
        read_only: false,
        pristine: false,
        verify: Verify::Never,
        limit_pages: 0,
    };
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            reuse: Reuse::Allow,
            keep: Keep::Warm,
            read_only: true,
            pristine: true,
            verify: Verify::Sample,
            limit_pages: 0,
        }
    }
}

/// Whether a launch uses the pages that its node holds of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Reuse {
    /// If it holds any.
    Allow = 0,
    /// No: what the node holds of the program is dropped first.
    Forbid = 1,
    /// It must: a node that holds none refuses with
    /// [`crate::job::RefusalCode::NotWarm`].
    Require = 2,
}

/// What a node holds after the end of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Keep {
    /// Nothing of this program.
    Nothing = 0,
    /// This program and no other (the published method).
    Published = 1,
    /// This program and others, least recently used dropped first.
    Warm = 2,
}

/// When a held page is compared with the program's page hashes before it is trusted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Verify {
    /// Never.
    Never = 0,
    /// A few pages after each run.
    Sample = 1,
    /// All pages before each warm launch.
    Always = 2,
}

/// What a node holds of one program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The program.
    pub program: ProgramId,
    /// Pages of 4 KiB held in all, pristine ones included.
    pub pages: u32,
    /// Of these, pristine contents of data pages.
    pub pristine: u32,
}

impl Reuse {
    pub(crate) fn from_wire(raw: u8) -> Option<Self> {
        [Reuse::Allow, Reuse::Forbid, Reuse::Require]
            .into_iter()
            .find(|value| *value as u8 == raw)
    }
}

impl Keep {
    pub(crate) fn from_wire(raw: u8) -> Option<Self> {
        [Keep::Nothing, Keep::Published, Keep::Warm]
            .into_iter()
            .find(|value| *value as u8 == raw)
    }
}

impl Verify {
    pub(crate) fn from_wire(raw: u8) -> Option<Self> {
        [Verify::Never, Verify::Sample, Verify::Always]
            .into_iter()
            .find(|value| *value as u8 == raw)
    }
}
