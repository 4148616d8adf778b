//! Newtypes for numbers that must not be confused with one another.

use core::fmt;

/// A node of the cluster, as the operator counts them: `n0` is `NodeId(0)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

/// A rank of a job, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// The number of a rank among those of its job that share a node, from 0 in the order of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRank(pub u16);

/// A job. Unique over the life of a cluster; 0 is reserved for "no job" on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// A program: the BLAKE3 hash of its ELF file.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProgramId(pub [u8; 32]);

/// One boot of one node: a number the kernel draws at random when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootEpoch(pub u64);

/// One run of the control node: a number it draws at random when it starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ControlEpoch(pub u64);

/// One broadcast of one object to one set of members. Given by the control node, rising over its
/// restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CastId(pub u64);

/// A page request of one node; unique within a boot of that node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// An I/O call of one rank, counted from 1 in the order of submission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

impl LocalRank {
    /// That of a rank alone on its node, or of the first of several.
    pub const FIRST: LocalRank = LocalRank(0);

    /// As an index into a table of a node's ranks.
    pub fn index(self) -> usize {
        self.0.into()
    }

    /// The first `count` of them.
    pub fn first(count: u16) -> impl DoubleEndedIterator<Item = LocalRank> {
        (0..count).map(LocalRank)
    }
}

impl Rank {
    /// The rank so many behind this one.
    pub fn plus(self, local: LocalRank) -> Rank {
        Rank(self.0 + u32::from(local.0))
    }
}

impl JobId {
    /// "No job" on the wire.
    pub(crate) const NONE: JobId = JobId(0);

    /// The wire form of an optional job.
    pub(crate) fn to_wire(job: Option<JobId>) -> u64 {
        job.unwrap_or(JobId::NONE).0
    }

    /// The meaning of a job number on the wire.
    pub(crate) fn from_wire(raw: u64) -> Option<JobId> {
        (raw != JobId::NONE.0).then_some(JobId(raw))
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for CastId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for BootEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for ControlEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Display for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ProgramId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProgramId({self})")
    }
}
