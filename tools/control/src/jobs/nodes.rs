//! The nodes as the queue sees them: which are in service, which job each has, which are drained.
//!
//! Key types: [`Nodes`], [`NodeError`]. Neighbours: `hearth_alloc::machine` holds what jobs have,
//! `queueing` gives nodes out, `lifecycle` takes them back.
//!
//! Invariants: a node is in service for the queue if it is up, no old job is stuck on it and nobody
//! has drained it; a node has one job at most.

use std::collections::{BTreeMap, BTreeSet};

use hearth_alloc::machine::{Machine, UnitError};
use hearth_alloc::placement::published::unit_size;
use hearth_alloc::topology::Topology;
use netstack::ids::JobId;

use super::absent::Absence;
use super::attempt;
use crate::api::types::Drained;
use crate::hostlist;
use crate::nodes::NODES_MAX;

/// Longest reason for draining a node, in bytes.
const REASON_MAX: usize = 256;

/// Why a node was not drained or put back into service.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum NodeError {
    /// Whoever asks may not.
    #[error(transparent)]
    Denied(#[from] crate::principal::Denied),
    /// Nodes that do not exist.
    #[error("unknown nodes: {0}; `hearth nodes` lists the nodes")]
    Unknown(String),
    /// None named.
    #[error("name at least one node, as in n3 or n[0-7]")]
    NoNodes,
    /// No reason, or one too long for tables.
    #[error("say why in 1 to {REASON_MAX} bytes, as in --reason \"bad memory\"")]
    Reason,
    /// An odd name of who drains them.
    #[error("{0:?} is not the name of a user; use 1 to 32 letters, digits, and - _ . @")]
    By(String),
    /// Some were not drained.
    #[error("not drained: {0}; `hearth nodes` shows which are")]
    NotDrained(String),
}

/// What is known of a node beside what jobs have of it.
#[derive(Debug, Clone, Default)]
struct Node {
    up: bool,
    /// It was up since this run of control began.
    heard: bool,
    /// It went since somebody asked it to.
    left: bool,
    /// It goes now since somebody asked it to.
    leaves: bool,
    /// The job that is over for control, and not for the node.
    stuck: Option<JobId>,
    drained: Option<Drained>,
    /// Cores that it has for programs; 0: not known.
    cores: u16,
    /// Jobs that failed because of it since one last ended there by itself.
    failures: u32,
    /// When its kernel panicked lately, in microseconds of the control clock.
    panics_us: Vec<u64>,
}

/// All nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    /// What jobs have, and what is free.
    pub(super) machine: Machine,
    /// The nodes that the tree has; none: one at every place.
    places: Option<BTreeSet<u32>>,
    known: BTreeMap<u32, Node>,
}

impl Nodes {
    /// Nodes in this tree, or on one switch, given out in units of so many; 0: by the rule. Of the
    /// tree only these places are some node's, if they are named: a unit with an empty place would
    /// never be free as a whole, so units are one node then.
    pub(super) fn new(
        topology: Option<Topology>,
        places: Option<BTreeSet<u32>>,
        unit: u32,
    ) -> Result<Self, UnitError> {
        let most = NODES_MAX as u64;
        let flat = || Topology::new(&[NODES_MAX as u32]).expect("one switch is a tree");
        let topology = topology.unwrap_or_else(flat);
        let topology = match topology.nodes() > most {
            true => topology.with_nodes(most).expect("fewer than it has"),
            false => topology,
        };
        let has_holes = places
            .as_ref()
            .is_some_and(|places| (places.len() as u64) < topology.nodes());
        let unit = match unit {
            0 if has_holes => 1,
            0 => unit_size(&topology),
            unit => unit,
        };
        let mut machine = Machine::new(topology, unit)?;
        for node in 0..u32::try_from(machine.nodes()).expect("at most 32,768") {
            machine.set_in_service(node, false);
        }
        let known = BTreeMap::new();
        Ok(Nodes {
            machine,
            places,
            known,
        })
    }

    /// Makes a node known.
    pub(super) fn know(&mut self, node: u32) {
        self.known.entry(node).or_default();
    }

    /// A node says how many cores it has.
    pub(super) fn set_cores(&mut self, node: u32, cores: u16) {
        self.known.entry(node).or_default().cores = cores;
    }

    /// Cores of a node that has been heard.
    pub(super) fn cores(&self, node: u32) -> Option<u16> {
        let cores = self.known.get(&node)?.cores;
        (cores > 0).then_some(cores)
    }

    /// Whether it can have so many cores: it has, or was not heard.
    pub(super) fn may_have_cores(&self, node: u32, wanted: u16) -> bool {
        self.cores(node).is_none_or(|cores| cores >= wanted)
    }

    /// Nodes with a place that are known to have fewer cores; none where none are wanted.
    pub(super) fn with_fewer_cores(&self, wanted: u16) -> impl Iterator<Item = u32> + '_ {
        self.with_place()
            .filter(move |node| !self.may_have_cores(*node, wanted))
    }

    /// Whether there is such a node.
    pub(super) fn knows(&self, node: u32) -> bool {
        self.known.contains_key(&node)
    }

    /// The numbers of all nodes, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.known.keys().copied()
    }

    /// Whether the tree has a place for it.
    pub(super) fn has_place(&self, node: u32) -> bool {
        let is_named = |places: &BTreeSet<u32>| places.contains(&node);
        (node as usize) < self.machine.nodes() && self.places.as_ref().is_none_or(is_named)
    }

    /// How many nodes the tree has.
    pub(super) fn places(&self) -> usize {
        let named = self.places.as_ref().map(BTreeSet::len);
        named.unwrap_or_else(|| self.machine.nodes())
    }

    /// How many nodes are known that jobs can have.
    pub(super) fn count(&self) -> usize {
        self.known
            .keys()
            .filter(|node| self.has_place(**node))
            .count()
    }

    /// Those of `nodes` that are not known, or have no place.
    pub(super) fn unknown(&self, nodes: &[u32]) -> Vec<u32> {
        let is_known = |node: &u32| self.knows(*node) && self.has_place(*node);
        let unknown = nodes.iter().copied().filter(|node| !is_known(node));
        sorted(unknown.collect())
    }

    /// A node was heard of, or is not any more.
    pub(super) fn set_up(&mut self, node: u32, up: bool) {
        let known = self.known.entry(node).or_default();
        known.up = up;
        known.heard |= up;
        // One that was asked to leave and then is lost has not left in good order.
        known.left = !up && known.leaves;
        known.leaves = false;
        if !up {
            known.stuck = None;
        }
        self.refresh(node);
    }

    /// A node that is not up, or goes now, was asked to leave.
    pub(super) fn note_left(&mut self, node: u32) {
        let known = self.known.entry(node).or_default();
        known.left = true;
        known.leaves = true;
    }

    /// Whether it is known and was never up in this run of control.
    pub(super) fn is_unheard(&self, node: u32) -> bool {
        self.known.get(&node).is_some_and(|known| !known.heard)
    }

    /// The nodes with a place that are so.
    pub(super) fn those_unheard(&self) -> impl Iterator<Item = u32> + '_ {
        self.with_place().filter(|node| self.is_unheard(*node))
    }

    /// How many these are.
    pub(super) fn unheard(&self) -> usize {
        self.those_unheard().count()
    }

    /// The job of a node, if it has one.
    pub(super) fn job_of(&self, node: u32) -> Option<u64> {
        let stuck = || self.known.get(&node)?.stuck.map(attempt::number);
        self.machine.job_of(node).or_else(stuck)
    }

    /// Whether `job` is what a node has; `present`: that is the job's present attempt.
    pub(super) fn has(&self, node: u32, job: JobId, present: bool) -> bool {
        let stuck = self.known.get(&node).and_then(|known| known.stuck);
        let is_its = self.machine.job_of(node) == Some(attempt::number(job));
        stuck == Some(job) || (present && is_its)
    }

    /// A node does not have `job` any more; `present`: that is the job's present attempt.
    pub(super) fn free(&mut self, node: u32, job: JobId, present: bool) {
        let known = self.known.entry(node).or_default();
        if known.stuck == Some(job) {
            known.stuck = None;
            self.refresh(node);
        } else if present && self.machine.job_of(node) == Some(attempt::number(job)) {
            self.machine.release_node(attempt::number(job), node);
        }
    }

    /// A job of an earlier run of control has these nodes, which are not in service yet.
    pub(super) fn adopt(&mut self, job: u64, nodes: &[u32]) {
        for node in nodes {
            self.machine.set_in_service(*node, true);
        }
        self.machine.take(job, nodes);
        for node in nodes {
            self.refresh(*node);
        }
    }

    /// Whether an earlier run of control can have given these nodes to a job: there are such nodes
    /// in the tree, and no other job has them.
    pub(super) fn can_adopt(&self, nodes: impl IntoIterator<Item = u32>) -> bool {
        let is_there = |node: u32| {
            self.knows(node) && self.has_place(node) && self.machine.job_of(node).is_none()
        };
        nodes.into_iter().all(is_there)
    }

    /// A job is over for control and not for one of its nodes, which stays out of service until it
    /// says so.
    pub(super) fn stick(&mut self, node: u32, job: JobId) {
        self.free(node, job, true);
        self.known.entry(node).or_default().stuck = Some(job);
        self.refresh(node);
    }

    /// A job failed because of a node: how often in a row by now.
    pub(super) fn failed(&mut self, node: u32) -> u32 {
        let known = self.known.entry(node).or_default();
        known.failures = known.failures.saturating_add(1);
        known.failures
    }

    /// The kernel of a node has panicked: how often within so many microseconds.
    pub(super) fn panicked(&mut self, node: u32, now_us: u64, within_us: u64) -> usize {
        let panics = &mut self.known.entry(node).or_default().panics_us;
        panics.retain(|at_us| now_us.saturating_sub(*at_us) < within_us);
        panics.push(now_us);
        panics.len()
    }

    /// A rank ended by itself on a node.
    pub(super) fn worked(&mut self, node: u32) {
        if let Some(known) = self.known.get_mut(&node) {
            known.failures = 0;
        }
    }

    /// Why a node gets no jobs, if somebody wanted that.
    pub(super) fn drained(&self, node: u32) -> Option<&Drained> {
        self.known.get(&node)?.drained.as_ref()
    }

    /// Drains a node, or puts it back.
    pub(super) fn set_drained(&mut self, node: u32, drained: Option<Drained>) {
        let known = self.known.entry(node).or_default();
        known.failures = 0;
        known.panics_us.clear();
        known.drained = drained;
        self.refresh(node);
    }

    /// Looks at nodes that are to be drained.
    ///
    /// # Errors
    /// [`NodeError`].
    pub(super) fn check(&self, nodes: &[u32], reason: Option<&str>) -> Result<(), NodeError> {
        if nodes.is_empty() {
            return Err(NodeError::NoNodes);
        }
        let unknown: Vec<u32> = nodes
            .iter()
            .copied()
            .filter(|node| !self.knows(*node))
            .collect();
        if !unknown.is_empty() {
            return Err(NodeError::Unknown(hostlist::format(&sorted(unknown))));
        }
        let Some(reason) = reason else {
            let is_not = |node: &u32| self.drained(*node).is_none();
            let not: Vec<u32> = nodes.iter().copied().filter(is_not).collect();
            return match not.is_empty() {
                true => Ok(()),
                false => Err(NodeError::NotDrained(hostlist::format(&sorted(not)))),
            };
        };
        match (1..=REASON_MAX).contains(&reason.trim().len()) {
            true => Ok(()),
            false => Err(NodeError::Reason),
        }
    }

    /// All known nodes with a place, for [`absent::told`].
    pub(super) fn with_place(&self) -> impl Iterator<Item = u32> + '_ {
        let known = self.known.keys().copied();
        known.filter(|node| self.has_place(*node))
    }

    /// Why a node is not in service; none: it is.
    pub(super) fn absence(&self, node: u32) -> Option<Absence> {
        let Some(known) = self.known.get(&node) else {
            return Some(Absence::Unheard);
        };
        let absence = match known {
            // To one that is not up, `hearth resume` brings nothing.
            Node {
                up: true,
                drained: Some(_),
                ..
            } => Absence::Drained,
            Node { up: true, .. } => Absence::Stuck,
            Node { left: true, .. } => Absence::Left,
            Node { heard: true, .. } => Absence::Lost,
            _ => Absence::Unheard,
        };
        (!self.machine.is_in_service(node)).then_some(absence)
    }

    /// The nodes in service.
    pub(super) fn those_in_service(&self) -> impl Iterator<Item = u32> + '_ {
        let known = self.known.keys().copied();
        known.filter(|node| self.machine.is_in_service(*node))
    }

    /// How many nodes are in service.
    pub(super) fn in_service(&self) -> usize {
        self.those_in_service().count()
    }

    /// All free nodes.
    pub(super) fn free_nodes(&self) -> impl Iterator<Item = u32> + '_ {
        let known = self.known.keys().copied();
        known.filter(|node| self.machine.is_free(*node))
    }

    fn refresh(&mut self, node: u32) {
        if !self.has_place(node) {
            return;
        }
        let known = &self.known[&node];
        let in_service = known.up && known.stuck.is_none() && known.drained.is_none();
        self.machine.set_in_service(node, in_service);
    }
}

/// Nodes in the order of their numbers.
pub(super) fn sorted(mut nodes: Vec<u32>) -> Vec<u32> {
    nodes.sort_unstable();
    nodes
}
