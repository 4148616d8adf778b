//! The nodes of a machine and what jobs hold of them, in scheduling units.
//!
//! A unit is some nodes of one leaf switch (the publication's *scheduling unit*), and what is
//! given to jobs of a unit's size or more; with units of one node, nodes are. A unit is *free*
//! (all its nodes are), *allocated* (none is), or *busy* (some are). The publication does not say
//! what becomes of units when a job ends; here a unit's state follows from its nodes, so that a
//! unit without a job is free again and one with some job is busy. A node out of service is
//! nobody's and not free.
//!
//! Key type: [`Machine`]. Neighbours: [`crate::placement`] chooses nodes, and has the publication's
//! rule for the size of a unit; [`crate::queue`] decides which job may have some.
//!
//! Invariant: a node belongs to at most one job, and the counts by unit say what the nodes say.

use std::collections::BTreeMap;

use crate::topology::Topology;

/// What a unit is to the next job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitState {
    /// All its nodes are free.
    Free,
    /// Some of its nodes are free.
    Busy,
    /// None of its nodes is free.
    Allocated,
}

/// What a node is to the next job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Free,
    Out,
    /// Has this job; out of service once that has ended, if so marked.
    Job {
        id: u64,
        is_leaving: bool,
    },
}

/// Why units of this size are not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "units of {unit} nodes do not fill leaf switches of {leaf}; use a divisor of {leaf}, or leave \
     the size to the rule"
)]
pub struct UnitError {
    unit: u32,
    leaf: u32,
}

/// Nodes, and what jobs hold of them.
#[derive(Debug, Clone)]
pub struct Machine {
    topology: Topology,
    units: Topology,
    unit: u32,
    nodes: Vec<Node>,
    /// Free nodes by unit.
    free_in: Vec<u32>,
    /// Units by how many of their nodes are free.
    by_free: Vec<usize>,
    /// Nodes by job, in the order of their numbers.
    jobs: BTreeMap<u64, Vec<u32>>,
    /// Nodes of no use: out of service.
    out: usize,
}

impl Machine {
    /// A machine with all nodes of the tree free.
    ///
    /// # Errors
    /// [`UnitError`]: the unit does not divide the leaf width.
    ///
    /// # Panics
    /// When the tree has no end ([`Topology::flat`]): say how many nodes there are.
    pub fn new(topology: Topology, unit: u32) -> Result<Self, UnitError> {
        let leaf = topology.leaf_width();
        if unit == 0 || !leaf.is_multiple_of(unit) {
            return Err(UnitError { unit, leaf });
        }
        let nodes = usize::try_from(topology.nodes()).expect("as many as fit into memory");
        assert!(nodes < u32::MAX as usize, "a machine has a number of nodes");
        let units = nodes.div_ceil(unit as usize);
        let mut free_in = vec![unit; units];
        let last = nodes as u32 % unit;
        if last > 0 {
            free_in[units - 1] = last;
        }
        let mut by_free = vec![0; unit as usize + 1];
        for &free in &free_in {
            by_free[free as usize] += 1;
        }
        Ok(Machine {
            units: topology.in_units(unit),
            topology,
            unit,
            nodes: vec![Node::Free; nodes],
            free_in,
            by_free,
            jobs: BTreeMap::new(),
            out: 0,
        })
    }

    /// The tree of the nodes.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The tree of the units.
    pub fn unit_topology(&self) -> &Topology {
        &self.units
    }

    /// Nodes in a unit.
    pub fn unit(&self) -> u32 {
        self.unit
    }

    /// Nodes there are, in service or not.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Nodes out of service that no job has.
    pub fn out_of_service(&self) -> usize {
        self.out
    }

    /// Units that a job of so many nodes gets.
    pub fn units_for(&self, count: u32) -> usize {
        count.div_ceil(self.unit) as usize
    }

    /// The unit of a node.
    pub fn unit_of(&self, node: u32) -> usize {
        (node / self.unit) as usize
    }

    /// The state of a unit.
    pub fn unit_state(&self, unit: usize) -> UnitState {
        match self.free_in[unit] {
            0 => UnitState::Allocated,
            free if free == self.unit => UnitState::Free,
            _ => UnitState::Busy,
        }
    }

    /// Free nodes by unit.
    pub fn free_in_units(&self) -> &[u32] {
        &self.free_in
    }

    /// The free nodes of a unit, in the order of their numbers.
    pub fn free_nodes_of(&self, unit: usize) -> impl Iterator<Item = u32> + '_ {
        let first = unit as u32 * self.unit;
        let nodes = first..(first + self.unit).min(self.nodes.len() as u32);
        nodes.filter(|&node| self.is_free(node))
    }

    /// Units all of whose nodes are free.
    pub fn free_units(&self) -> usize {
        self.by_free[self.unit as usize]
    }

    /// Whether there is a busy unit with at least so many free nodes.
    pub fn has_busy_unit_for(&self, count: u32) -> bool {
        let counts = self.by_free.get(count as usize..self.unit as usize);
        counts.is_some_and(|units| units.iter().any(|&units| units > 0))
    }

    /// Whether there is a busy unit with exactly so many free nodes.
    pub fn has_busy_unit_of(&self, count: u32) -> bool {
        count < self.unit && self.by_free[count as usize] > 0
    }

    /// Whether a node is free; one that is not there is not.
    pub fn is_free(&self, node: u32) -> bool {
        self.nodes.get(node as usize) == Some(&Node::Free)
    }

    /// Whether a node is there, in service and stays so.
    pub fn is_in_service(&self, node: u32) -> bool {
        let node = self.nodes.get(node as usize);
        node.is_some_and(|node| !is_lost(*node))
    }

    /// How many nodes are free.
    pub fn free_nodes(&self) -> usize {
        let by_free = self.by_free.iter().zip(0..);
        by_free.map(|(units, free)| units * free).sum()
    }

    /// The job that has a node.
    pub fn job_of(&self, node: u32) -> Option<u64> {
        match self.nodes.get(node as usize)? {
            Node::Job { id, .. } => Some(*id),
            Node::Free | Node::Out => None,
        }
    }

    /// The nodes of a job, in the order of their numbers.
    pub fn nodes_of(&self, job: u64) -> &[u32] {
        self.jobs.get(&job).map_or(&[], Vec::as_slice)
    }

    /// The jobs with nodes.
    pub fn jobs(&self) -> impl Iterator<Item = (u64, &[u32])> {
        self.jobs
            .iter()
            .map(|(job, nodes)| (*job, nodes.as_slice()))
    }

    /// Nodes that jobs have.
    pub fn nodes_in_use(&self) -> usize {
        self.jobs.values().map(Vec::len).sum()
    }

    /// Gives nodes to a job.
    ///
    /// # Panics
    /// When one of them is not free, or the job has some already.
    pub fn take(&mut self, job: u64, nodes: &[u32]) {
        for &node in nodes {
            assert!(self.is_free(node), "n{node} is given to one job at a time");
            self.nodes[node as usize] = Node::Job {
                id: job,
                is_leaving: false,
            };
            self.change_free(node, false);
        }
        let mut nodes = nodes.to_vec();
        nodes.sort_unstable();
        let before = self.jobs.insert(job, nodes);
        assert!(before.is_none(), "job {job} has nodes already");
    }

    /// Takes its nodes from a job that has ended. They are free again, or out of service.
    pub fn release(&mut self, job: u64) {
        for node in self.jobs.remove(&job).unwrap_or_default() {
            self.give_back(job, node);
        }
    }

    /// Takes one of its nodes from a job, which keeps the others.
    ///
    /// # Panics
    /// When the job does not have it.
    pub fn release_node(&mut self, job: u64, node: u32) {
        let nodes = self.jobs.get_mut(&job).expect("the job has nodes");
        let place = nodes.binary_search(&node).expect("the job has this node");
        nodes.remove(place);
        if nodes.is_empty() {
            self.jobs.remove(&job);
        }
        self.give_back(job, node);
    }

    fn give_back(&mut self, job: u64, node: u32) {
        let is_leaving = match self.nodes[node as usize] {
            Node::Job { id, is_leaving } if id == job => is_leaving,
            other => unreachable!("n{node} of job {job} is {other:?}"),
        };
        if is_leaving {
            self.nodes[node as usize] = Node::Out;
            self.out += 1;
        } else {
            self.nodes[node as usize] = Node::Free;
            self.change_free(node, true);
        }
    }

    /// Puts a node into service or takes it out; one with a job leaves when that has ended.
    pub fn set_in_service(&mut self, node: u32, is_in: bool) {
        match (&mut self.nodes[node as usize], is_in) {
            (Node::Job { is_leaving, .. }, _) => *is_leaving = !is_in,
            (state @ Node::Out, true) => {
                *state = Node::Free;
                self.out -= 1;
                self.change_free(node, true);
            }
            (state @ Node::Free, false) => {
                *state = Node::Out;
                self.out += 1;
                self.change_free(node, false);
            }
            (Node::Out, false) | (Node::Free, true) => {}
        }
    }

    /// Units that could be free if no job ran: all of their nodes are in service.
    pub fn usable_units(&self) -> usize {
        if self.out == 0 {
            return self.nodes.len() / self.unit as usize;
        }
        let is_usable = |nodes: &&[Node]| {
            nodes.len() == self.unit as usize && !nodes.iter().any(|node| is_lost(*node))
        };
        self.nodes
            .chunks(self.unit as usize)
            .filter(is_usable)
            .count()
    }

    /// Nodes in service, whether jobs have them or not.
    pub fn nodes_in_service(&self) -> usize {
        self.nodes.iter().filter(|node| !is_lost(**node)).count()
    }

    /// Nodes in service by unit, whether jobs have them or not.
    pub fn in_service_of_units(&self) -> impl Iterator<Item = u32> + '_ {
        let units = self.nodes.chunks(self.unit as usize);
        units.map(|nodes| nodes.iter().filter(|node| !is_lost(**node)).count() as u32)
    }

    fn change_free(&mut self, node: u32, is_more: bool) {
        let unit = self.unit_of(node);
        let free = &mut self.free_in[unit];
        self.by_free[*free as usize] -= 1;
        *free = if is_more { *free + 1 } else { *free - 1 };
        self.by_free[*free as usize] += 1;
    }
}

fn is_lost(node: Node) -> bool {
    matches!(
        node,
        Node::Out
            | Node::Job {
                is_leaving: true,
                ..
            }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(tree: &str, unit: u32) -> Machine {
        Machine::new(tree.parse().unwrap(), unit).unwrap()
    }

    #[test]
    fn units_follow_their_nodes() {
        let mut machine = machine("4x2", 4);
        assert_eq!((machine.free_units(), machine.units_for(5)), (2, 2));
        machine.take(1, &[0, 1]);
        assert_eq!(machine.unit_state(0), UnitState::Busy);
        assert!(machine.has_busy_unit_for(2) && !machine.has_busy_unit_for(3));
        machine.take(2, &[3, 2]);
        assert_eq!(machine.unit_state(0), UnitState::Allocated);
        machine.take(3, &[4]);
        assert!(machine.has_busy_unit_of(3) && !machine.has_busy_unit_of(2));
        assert!(!machine.has_busy_unit_of(4) && !machine.has_busy_unit_for(4));
        machine.release(1);
        assert_eq!(machine.unit_state(0), UnitState::Busy);
        machine.release(2);
        assert_eq!(machine.unit_state(0), UnitState::Free);
        assert_eq!(machine.nodes_of(3), [4]);
        machine.release(7);
    }

    #[test]
    fn nodes_out_of_service_are_not_free_and_those_with_a_job_leave_later() {
        let mut machine = machine("4x2", 2);
        machine.set_in_service(1, false);
        machine.set_in_service(1, false);
        assert_eq!((machine.free_units(), machine.usable_units()), (3, 3));
        assert_eq!(machine.unit_state(0), UnitState::Busy);
        machine.take(1, &[4, 5]);
        machine.set_in_service(4, false);
        assert_eq!((machine.out_of_service(), machine.usable_units()), (1, 2));
        machine.release(1);
        assert_eq!((machine.out_of_service(), machine.free_units()), (2, 2));
        machine.set_in_service(4, true);
        machine.set_in_service(1, true);
        assert_eq!((machine.out_of_service(), machine.free_units()), (0, 4));
    }

    #[test]
    fn a_partly_filled_tree_and_a_unit_that_does_not_fit() {
        let tree: Topology = "4x2".parse().unwrap();
        let machine = Machine::new(tree.clone().with_nodes(7).unwrap(), 2).unwrap();
        assert_eq!((machine.free_units(), machine.nodes()), (3, 7));
        assert_eq!(machine.unit_state(3), UnitState::Busy);
        let error = Machine::new(tree, 3).unwrap_err().to_string();
        assert!(error.contains("units of 3 nodes do not fill leaf switches of 4"));
    }

    #[test]
    #[should_panic(expected = "one job at a time")]
    fn no_node_is_given_out_twice() {
        let mut machine = machine("4x2", 1);
        machine.take(1, &[0]);
        machine.take(2, &[0]);
    }
}
