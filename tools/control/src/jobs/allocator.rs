//! Which nodes a job gets.
//!
//! Key types: [`Allocator`] (the seam), [`FewestHops`] (the policy in service: the free nodes with
//! the fewest hops between them, warm ones among equals). Neighbours: `jobs` calls it for each
//! queued job, in order; `hearth_alloc` does the arithmetic.
//!
//! Invariant: an allocator only ever answers with nodes it was shown as free, as many as asked
//! for, each once; the runner asserts that.

use std::collections::{BTreeMap, BTreeSet};

use hearth_alloc::exact;
use hearth_alloc::topology::Topology;

use crate::hostlist;

/// What a job asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Want {
    /// Number of nodes, one rank on each.
    pub ranks: u32,
    /// These nodes and no others; rank i on the i-th.
    pub nodes: Option<Vec<u32>>,
    /// Only nodes that hold its program.
    pub warm_only: bool,
}

/// Nodes that hold a job's program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WarmNodes {
    /// In service.
    pub held: BTreeSet<u32>,
    /// Out of service, and held it when they were last heard.
    pub away: BTreeSet<u32>,
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
    /// Only warm nodes are wanted and there are not enough: waiting does not help.
    Cold(String),
}

impl Wait {
    /// The reason for people.
    pub fn reason(&self) -> &str {
        match self {
            Wait::Busy(reason) | Wait::Absent(reason) | Wait::Cold(reason) => reason,
        }
    }
}

/// A policy that places jobs.
pub trait Allocator: Send {
    /// Chooses nodes for `want`, in rank order; `warm` are the nodes that hold the job's program.
    ///
    /// # Errors
    /// [`Wait`]: not now, and why.
    fn allocate(
        &mut self,
        want: &Want,
        nodes: &BTreeMap<u32, Candidate>,
        warm: &WarmNodes,
    ) -> Result<Vec<u32>, Wait>;
}

/// Takes the free nodes with the fewest hops between them; among equals the most warm ones, then
/// those that break up the least free space, then the lowest numbers.
#[derive(Debug)]
pub struct FewestHops {
    topology: Topology,
}

impl FewestHops {
    /// For nodes in this tree. Without a tree all nodes are on one switch
    /// ([`Topology::flat`]): then every choice has the same hops.
    pub fn new(topology: Topology) -> Self {
        FewestHops { topology }
    }
}

impl Allocator for FewestHops {
    fn allocate(
        &mut self,
        want: &Want,
        nodes: &BTreeMap<u32, Candidate>,
        warm: &WarmNodes,
    ) -> Result<Vec<u32>, Wait> {
        if want.warm_only {
            check_warm(want, nodes, warm)?;
        }
        if let Some(named) = &want.nodes {
            return allocate_named(named, nodes);
        }
        let usable = |node: &u32| !want.warm_only || warm.held.contains(node);
        let free: Vec<exact::Candidate> = nodes
            .iter()
            .filter(|(node, found)| **found == Candidate::Free && usable(node))
            .map(|(node, _)| exact::Candidate {
                node: *node,
                warm: warm.held.contains(node),
            })
            .collect();
        exact::place(&self.topology, &free, want.ranks as usize)
            .map(|placement| placement.nodes)
            .ok_or_else(|| too_few(want, nodes, free.len()))
    }
}

/// Why `want` cannot have its nodes, of which `free` are free.
fn too_few(want: &Want, nodes: &BTreeMap<u32, Candidate>, free: usize) -> Wait {
    let ranks = want.ranks as usize;
    if want.warm_only {
        return Wait::Busy(format!("{ranks} warm nodes needed, {free} free"));
    }
    let absent = those(nodes, Candidate::Absent);
    let up = nodes.len() - absent.len();
    if up >= ranks {
        return Wait::Busy(format!("{ranks} nodes needed, {free} free"));
    }
    let mut reason = format!("{ranks} nodes needed, {up} in service");
    if !absent.is_empty() {
        reason = format!("{reason}, {} not", hostlist::format(&absent));
    }
    Wait::Absent(reason)
}

/// Whether enough nodes in service hold the program; busy ones will be free.
fn check_warm(want: &Want, nodes: &BTreeMap<u32, Candidate>, warm: &WarmNodes) -> Result<(), Wait> {
    let in_service = |node: &&u32| !matches!(nodes.get(node), None | Some(Candidate::Absent));
    let advice = "run it once without --warm-only";
    if let Some(named) = &want.nodes {
        let held = |node: &&u32| warm.held.contains(node);
        let mut cold: Vec<u32> = named.iter().filter(|node| !held(node)).copied().collect();
        cold.sort_unstable();
        if cold.iter().all(|node| warm.away.contains(node)) {
            // None, or `allocate_named` says that they are not in service.
            return Ok(());
        }
        return Err(Wait::Cold(format!(
            "{} of the {} nodes named hold the program warm, {} not; {advice}",
            named.len() - cold.len(),
            named.len(),
            hostlist::format(&cold)
        )));
    }
    let held: Vec<u32> = warm.held.iter().filter(in_service).copied().collect();
    if held.len() >= want.ranks as usize {
        return Ok(());
    }
    let which = match held.len() {
        0 => "no node holds the program warm".to_string(),
        1 => format!(
            "1 node holds the program warm ({})",
            hostlist::format(&held)
        ),
        many => format!(
            "{many} nodes hold the program warm ({})",
            hostlist::format(&held)
        ),
    };
    let short = format!("{} warm nodes needed, but {which}", want.ranks);
    if held.len() + warm.away.len() >= want.ranks as usize {
        let away: Vec<u32> = warm.away.iter().copied().collect();
        let list = hostlist::format(&away);
        return Err(Wait::Absent(format!(
            "{short}; {list} did and is not in service"
        )));
    }
    Err(Wait::Cold(format!(
        "{short}; {advice}, or use a smaller -n"
    )))
}

fn those(nodes: &BTreeMap<u32, Candidate>, state: Candidate) -> Vec<u32> {
    nodes
        .iter()
        .filter(|(_, found)| **found == state)
        .map(|(node, _)| *node)
        .collect()
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
        let list = hostlist::format(&absent);
        return Err(Wait::Absent(format!("{list} not in service")));
    }
    let busy = those(|found| found == Some(&Candidate::Busy));
    if !busy.is_empty() {
        return Err(Wait::Busy(format!("{} busy", hostlist::format(&busy))));
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

    fn want(ranks: u32, nodes: Option<Vec<u32>>) -> Want {
        Want {
            ranks,
            nodes,
            warm_only: false,
        }
    }

    fn ask(want: &Want, warm: &[u32]) -> Result<Vec<u32>, Wait> {
        FewestHops::new(Topology::flat()).allocate(want, &cluster(), &holding(warm, &[]))
    }

    fn holding(held: &[u32], away: &[u32]) -> WarmNodes {
        WarmNodes {
            held: held.iter().copied().collect(),
            away: away.iter().copied().collect(),
        }
    }

    #[test]
    fn the_lowest_free_nodes_are_taken_on_one_switch() {
        assert_eq!(ask(&want(2, None), &[]), Ok(vec![1, 3]));
        assert_eq!(ask(&want(3, None), &[]), Ok(vec![1, 3, 4]));
    }

    #[test]
    fn hops_come_first_and_warm_nodes_among_equals() {
        assert_eq!(ask(&want(1, None), &[4]), Ok(vec![4]));
        assert_eq!(ask(&want(2, None), &[0, 4]), Ok(vec![1, 4]));
        let tree = Topology::new(&[2, 4]).unwrap();
        let mut allocator = FewestHops::new(tree);
        let mut place = |ranks, warm: &[u32]| {
            allocator.allocate(&want(ranks, None), &cluster(), &holding(warm, &[]))
        };
        assert_eq!(place(1, &[]), Ok(vec![1]));
        assert_eq!(place(1, &[3]), Ok(vec![3]));
        assert_eq!(
            place(2, &[4]),
            Ok(vec![1, 4]),
            "no two free nodes share a switch"
        );
    }

    #[test]
    fn busy_and_absent_nodes_are_told_apart() {
        let ask = |ranks, nodes| ask(&want(ranks, nodes), &[]);
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
        assert_eq!(ask(&want(2, Some(vec![4, 1])), &[]), Ok(vec![4, 1]));
    }

    #[test]
    fn warm_only_waits_for_busy_nodes_but_not_for_cold_ones() {
        let only = |ranks, nodes| Want {
            warm_only: true,
            ..want(ranks, nodes)
        };
        assert_eq!(ask(&only(1, None), &[3]), Ok(vec![3]));
        let busy = Wait::Busy("2 warm nodes needed, 1 free".into());
        assert_eq!(ask(&only(2, None), &[0, 3]), Err(busy));
        let text = |answer: Result<Vec<u32>, Wait>| match answer {
            Err(Wait::Cold(text)) => text,
            other => panic!("{other:?}"),
        };
        // n2 is not in service, whatever it held.
        let few = text(ask(&only(3, None), &[0, 2, 3]));
        assert!(few.starts_with("3 warm nodes needed, but 2 nodes"), "{few}");
        assert!(
            few.contains("n[0,3]") && few.contains("--warm-only"),
            "{few}"
        );
        assert!(text(ask(&only(1, None), &[])).contains("no node holds"));
        let named = text(ask(&only(2, Some(vec![4, 1])), &[1]));
        assert!(
            named.starts_with("1 of the 2 nodes named") && named.contains("n4 not"),
            "{named}"
        );
        assert_eq!(ask(&only(1, Some(vec![4])), &[4]), Ok(vec![4]));
    }

    #[test]
    fn warm_only_waits_for_nodes_that_held_the_program_and_are_away() {
        let only = |ranks, nodes| Want {
            warm_only: true,
            ..want(ranks, nodes)
        };
        let ask = |want: &Want, warm: &WarmNodes| {
            FewestHops::new(Topology::flat()).allocate(want, &cluster(), warm)
        };
        let Err(Wait::Absent(text)) = ask(&only(2, None), &holding(&[3], &[2])) else {
            panic!("n2 may come back")
        };
        assert!(
            text.contains("n3") && text.contains("n2 did and is not in service"),
            "{text}"
        );
        let cold = ask(&only(3, None), &holding(&[3], &[2]));
        assert!(matches!(cold, Err(Wait::Cold(_))), "{cold:?}");
        let named = ask(&only(2, Some(vec![2, 3])), &holding(&[3], &[2]));
        assert_eq!(named, Err(Wait::Absent("n2 not in service".into())));
    }
}
