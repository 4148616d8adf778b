//! Which nodes a job gets.
//!
//! Key types: [`Allocator`] (the seam where fat-tree allocation comes in), [`FirstFree`] (the
//! lowest free numbers). Neighbours: `jobs` calls it for each queued job, in order.
//!
//! Invariant: an allocator only ever answers with nodes it was shown as free, as many as asked
//! for, each once; the runner asserts that.

use std::collections::BTreeMap;

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Number of nodes, one rank on each.
    pub ranks: u32,
    /// These nodes and no others; rank i on the i-th.
    pub nodes: Option<Vec<u32>>,
}

/// A node as the allocator sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidate {
    /// In service without a job.
    Free,
    /// In service with a job; will be free.
    Busy,
    /// Known, not in service.
    Absent,
}

/// Why a job cannot have nodes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wait {
    /// Other jobs have them: jobs behind this one wait as well (first come, first served).
    Busy(String),
    /// They are not in service: jobs behind this one may go ahead.
    Absent(String),
}

impl Wait {
    /// The reason for people.
    pub fn reason(&self) -> &str {
        match self {
            Wait::Busy(reason) | Wait::Absent(reason) => reason,
        }
    }
}

/// A policy that places jobs.
pub trait Allocator: Send {
    /// Chooses nodes for `want`, in rank order.
    ///
    /// # Errors
    /// [`Wait`]: not now, and why.
    fn allocate(&mut self, want: &Want, nodes: &BTreeMap<u32, Candidate>)
    -> Result<Vec<u32>, Wait>;
}

/// Takes the free nodes with the lowest numbers.
#[derive(Debug, Default)]
pub struct FirstFree;

impl Allocator for FirstFree {
    fn allocate(
        &mut self,
        want: &Want,
        nodes: &BTreeMap<u32, Candidate>,
    ) -> Result<Vec<u32>, Wait> {
        if let Some(named) = &want.nodes {
            return allocate_named(named, nodes);
        }
        let of = |state| {
            nodes
                .iter()
                .filter(move |(_, found)| **found == state)
                .map(|(n, _)| *n)
        };
        let ranks = want.ranks as usize;
        let free: Vec<u32> = of(Candidate::Free).take(ranks).collect();
        if free.len() == ranks {
            return Ok(free);
        }
        let up = of(Candidate::Free).count() + of(Candidate::Busy).count();
        if up < ranks {
            let absent: Vec<u32> = of(Candidate::Absent).collect();
            let mut reason = format!("{ranks} nodes needed, {up} in service");
            if !absent.is_empty() {
                reason = format!("{reason}, {} not", crate::hostlist::format(&absent));
            }
            return Err(Wait::Absent(reason));
        }
        let free = of(Candidate::Free).count();
        Err(Wait::Busy(format!("{ranks} nodes needed, {free} free")))
    }
}

fn allocate_named(named: &[u32], nodes: &BTreeMap<u32, Candidate>) -> Result<Vec<u32>, Wait> {
    let those = |wanted: fn(Option<&Candidate>) -> bool| {
        let mut list: Vec<u32> = named
            .iter()
            .copied()
            .filter(|node| wanted(nodes.get(node)))
            .collect();
        list.sort_unstable();
        list
    };
    let absent = those(|found| matches!(found, None | Some(Candidate::Absent)));
    if !absent.is_empty() {
        let list = crate::hostlist::format(&absent);
        return Err(Wait::Absent(format!("{list} not in service")));
    }
    let busy = those(|found| found == Some(&Candidate::Busy));
    if !busy.is_empty() {
        return Err(Wait::Busy(format!(
            "{} busy",
            crate::hostlist::format(&busy)
        )));
    }
    Ok(named.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> BTreeMap<u32, Candidate> {
        use Candidate::{Absent, Busy, Free};
        BTreeMap::from([(0, Busy), (1, Free), (2, Absent), (3, Free), (4, Free)])
    }

    fn ask(ranks: u32, nodes: Option<Vec<u32>>) -> Result<Vec<u32>, Wait> {
        FirstFree.allocate(&Want { ranks, nodes }, &cluster())
    }

    #[test]
    fn the_lowest_free_nodes_are_taken() {
        assert_eq!(ask(2, None), Ok(vec![1, 3]));
        assert_eq!(ask(3, None), Ok(vec![1, 3, 4]));
    }

    #[test]
    fn busy_and_absent_nodes_are_told_apart() {
        assert_eq!(
            ask(4, None),
            Err(Wait::Busy("4 nodes needed, 3 free".into()))
        );
        assert_eq!(
            ask(5, None),
            Err(Wait::Absent("5 nodes needed, 4 in service, n2 not".into()))
        );
        assert_eq!(ask(2, Some(vec![0, 1])), Err(Wait::Busy("n0 busy".into())));
        assert_eq!(
            ask(3, Some(vec![7, 0, 2])),
            Err(Wait::Absent("n[2,7] not in service".into()))
        );
    }

    #[test]
    fn named_nodes_keep_their_order() {
        assert_eq!(ask(2, Some(vec![4, 1])), Ok(vec![4, 1]));
    }
}
