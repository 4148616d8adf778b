//! What sessions and jobs of a run are made of.
//!
//! Invariant: a run is a function of its setup.

use super::program::Plan;

/// Nodes that join, and the jobs that run on them.
#[derive(Clone, Debug)]
pub struct Jobs {
    /// Datagrams that the control node's socket holds.
    pub control_inbox: u32,
    /// Time the control node needs for a datagram, in nanoseconds.
    pub control_service_ns: u64,
    /// Pages of programs that have ended that each node holds at most.
    pub warm_pages: u32,
    /// The jobs.
    pub plans: Vec<Plan>,
}

impl Default for Jobs {
    fn default() -> Self {
        Jobs {
            control_inbox: 256,
            control_service_ns: 10_000,
            warm_pages: 4096,
            plans: Vec::new(),
        }
    }
}

impl Jobs {
    /// Whether it makes sense among so many nodes.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self, nodes: u32) -> Result<(), String> {
        let mut places = self.plans.iter().flat_map(|plan| &plan.nodes);
        match places.any(|node| node.0 >= nodes) {
            true => Err("a job has a rank on a node that there is not".into()),
            false => Ok(()),
        }
    }
}
