//! What a cast of a run is made of.
//!
//! Invariant: the n-th plan of a setup is the n-th cast.

use netstack::broadcast::Scheme;

/// One cast.
#[derive(Clone, Debug)]
pub struct CastPlan {
    /// When it begins, in nanoseconds.
    pub at_ns: u64,
    /// Length of the object.
    pub bytes: u64,
    /// Binary logarithm of the block size; None: what fits the object and the number of members.
    pub block_log2: Option<u8>,
    /// How it spreads.
    pub scheme: Scheme,
    /// Bits a second that each station sends of it at most; None: the link's.
    pub rate: Option<u64>,
    /// It is the connection table of a job with so many ranks; `bytes` is its length.
    pub table: Option<u32>,
    /// Who gets it, by number of the node.
    pub members: Vec<u32>,
    /// Which of them hold it from the start.
    pub warm: Vec<u32>,
    /// When it is cancelled.
    pub cancel_ns: Option<u64>,
}

impl CastPlan {
    /// Bytes to these nodes, at once.
    pub fn new(members: Vec<u32>, bytes: u64, scheme: Scheme) -> Self {
        CastPlan {
            at_ns: 0,
            bytes,
            block_log2: None,
            scheme,
            rate: None,
            table: None,
            members,
            warm: Vec::new(),
            cancel_ns: None,
        }
    }

    /// Whether it makes sense among so many nodes.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, nodes: u32) -> Result<(), String> {
        if self.rate == Some(0) {
            return Err("a cast has a rate".into());
        }
        if self.bytes == 0 {
            return Err("a cast has 1 byte or more".into());
        }
        if (self.members.iter().chain(&self.warm)).any(|&node| node >= nodes) {
            return Err("a member of a cast is no node".into());
        }
        Ok(())
    }
}
