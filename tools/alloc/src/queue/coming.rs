//! When each node comes free for a job, if everything takes all its time: what a reservation is
//! made of.
//!
//! A node that a job has comes free when the job's time is over, and never if it is to leave
//! service then or has left. A job that is tied to certain nodes ([`super::Tie`]) and waits keeps
//! those of them that are free, and each of the others as it comes free. So jobs behind it have
//! none of them before it has run:
//! - One that names nodes starts when the last of them comes free, and all of them are free again
//!   when its time is over.
//! - One that wants nodes that hold its program starts when enough of these are free, at the
//!   latest. Which it takes is open until then (something may end early), so it counts as having
//!   all of them until its time is over. In units of one node only numbers count: there those that
//!   it leaves come free when it starts, as far as no other tied job behind it wants them.
//! - So does one that may have all nodes but some, once those that it must have are free, too.
//!
//! Nodes are kept from now on, so that what is free once stays free: the time from which enough
//! nodes are free needs no look at how long they are wanted.
//!
//! A pass looks at [`LOOKED_AT_MAX`] nodes of tied jobs; the nodes of jobs behind that never come
//! free for it.
//!
//! Key type: [`Coming`]. Neighbours: [`super::easy`] and [`super::conservative`] reserve with it.
//!
//! Invariant: no node is said to come free before it does, as long as every job ends by its time
//! and no job comes to stand before those that are looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::pass::Pass;
use super::{Held, JobNumber, Tie, Time};

/// Most nodes of tied jobs that one pass looks at; bounds it to some milliseconds.
pub(super) const LOOKED_AT_MAX: usize = 1 << 17;

/// Not known, or never.
const NEVER: Time = Time::MAX;

/// So many units are not free from one time to another that would be.
pub(super) type Taken = BTreeMap<(Time, Time), usize>;

/// When each node comes free.
#[derive(Clone)]
pub(super) struct Coming {
    unit: usize,
    /// By node.
    at: Vec<Time>,
    /// The last tied job that wants it, by node; from 1. Empty without one.
    last: Vec<u32>,
    /// Tied jobs so far.
    tied: u32,
    spares: Vec<Spare>,
    looked_at: usize,
    /// Sets of holders that never come free, behind the bound.
    lost: BTreeMap<*const BTreeSet<u32>, Held>,
    /// Nor does any node, behind the bound.
    is_lost: bool,
}

/// Holders of a program of which a waiting job takes some: each counts as taken.
#[derive(Clone)]
struct Spare {
    /// Which of the tied jobs.
    tied: u32,
    /// The holders, and when each comes free if the job takes others; the first to come free first.
    nodes: Vec<(Time, u32)>,
    /// How many it takes.
    count: usize,
}

impl Coming {
    /// Of the nodes as they are, with what runs. Those that the pass keeps are free until they are
    /// tied ([`Coming::tie`]).
    pub fn new(pass: &Pass) -> Self {
        let nodes = 0..pass.machine.nodes() as u32;
        let free = |node| match pass.machine.is_in_service(node) {
            true => pass.now,
            false => NEVER,
        };
        let mut at: Vec<Time> = nodes.map(free).collect();
        for &node in &pass.kept {
            at[node as usize] = pass.now;
        }
        for (number, nodes) in pass.machine.jobs() {
            let running = pass.queue.running.get(&number);
            let end = running.and_then(|running| running.ends_by);
            // A job whose time is over ends in a moment.
            let end = end.unwrap_or(NEVER).max(pass.now.saturating_add(1));
            for &node in nodes {
                let at = &mut at[node as usize];
                *at = end.max(*at);
            }
        }
        Coming {
            unit: pass.machine.unit() as usize,
            at,
            last: Vec::new(),
            tied: 0,
            spares: Vec::new(),
            looked_at: 0,
            lost: BTreeMap::new(),
            is_lost: false,
        }
    }

    /// A job that is tied to certain nodes waits, with all behind it, and starts at `not_before` or
    /// later. What that takes of units.
    pub fn tie(&mut self, pass: &Pass, number: JobNumber, not_before: Time) -> Taken {
        let job = pass.job(number);
        let count = job.count as usize;
        let held;
        let nodes: Vec<u32> = match &job.tie {
            Tie::None => return Taken::new(),
            Tie::Named(nodes) => {
                let mut nodes = nodes.clone();
                nodes.sort_unstable();
                nodes
            }
            Tie::Warm => {
                held = (pass.warm)(job);
                let set = Rc::as_ptr(&held);
                if self.lost.contains_key(&set) {
                    return Taken::new();
                }
                if self.looked_at >= LOOKED_AT_MAX {
                    self.lost.insert(set, held.clone());
                }
                let is_there = |node: &u32| (*node as usize) < self.at.len();
                held.iter().copied().filter(is_there).collect()
            }
            Tie::Among { .. } if self.is_lost => return Taken::new(),
            Tie::Among { without, .. } => {
                self.is_lost = self.looked_at >= LOOKED_AT_MAX;
                let all = 0..self.at.len() as u32;
                let is_lost = self.is_lost;
                all.filter(|node| is_lost || !without.contains(node))
                    .collect()
            }
        };
        let is_looked_at = self.looked_at < LOOKED_AT_MAX;
        self.looked_at += nodes.len();
        let mut times: Vec<Time> = nodes.iter().map(|node| self.at[*node as usize]).collect();
        let start = if is_looked_at && (1..=times.len()).contains(&count) {
            let (_, start, _) = times.select_nth_unstable(count - 1);
            not_before.max(*start).max(self.all_of(&job.tie))
        } else {
            NEVER
        };
        self.tied += 1;
        if start < NEVER && nodes.len() > count && self.unit == 1 {
            let from = |node: u32| start.max(self.at[node as usize]);
            let mut nodes: Vec<(Time, u32)> =
                nodes.iter().map(|node| (from(*node), *node)).collect();
            nodes.sort_unstable();
            let tied = self.tied;
            self.spares.push(Spare { tied, nodes, count });
        }
        let walltime = job.walltime.unwrap_or(NEVER).max(1);
        self.keep(&nodes, start.saturating_add(walltime))
    }

    /// When those are free that a job must have.
    fn all_of(&self, tie: &Tie) -> Time {
        let Tie::Among { with, .. } = tie else {
            return Time::MIN;
        };
        let at = |node: &u32| self.at.get(*node as usize).copied().unwrap_or(NEVER);
        with.iter().map(at).max().unwrap_or(Time::MIN)
    }

    /// What a job that starts now on these nodes (in order) and ends at a time takes of units: of
    /// each that it breaks, from when it would come free.
    pub fn taken_by(&self, nodes: &[u32], end: Time) -> Taken {
        let mut taken = Taken::new();
        for nodes in nodes.chunk_by(|a, b| self.unit_of(*a) == self.unit_of(*b)) {
            let at = self.unit(self.unit_of(nodes[0]));
            if at < end {
                *taken.entry((at, end)).or_default() += 1;
            }
        }
        taken
    }

    /// A job starts now on these nodes, and ends at a time.
    pub fn take(&mut self, nodes: &[u32], end: Time) {
        for &node in nodes {
            let at = &mut self.at[node as usize];
            *at = end.max(*at);
        }
    }

    /// When each unit is wholly free, by unit.
    pub fn units(&self) -> Vec<Time> {
        let units = self.at.len().div_ceil(self.unit);
        (0..units).map(|unit| self.unit(unit)).collect()
    }

    /// The times at which units come free, in order: what jobs leave of the holders of their
    /// programs counted once.
    pub fn times_of_units(&self) -> Vec<Time> {
        let mut times = self.units();
        for spare in &self.spares {
            // Without those that a job behind it wants, too.
            let is_spare = |node: u32| self.last[node as usize] == spare.tied;
            let nodes = spare.nodes.iter().filter(|(_, node)| is_spare(*node));
            for &(from, node) in nodes.skip(spare.count) {
                times[node as usize] = from;
            }
        }
        times.sort_unstable();
        times
    }

    /// When so many nodes of one unit are free together, of the units that are never wholly free,
    /// and of which.
    pub fn part(&self, count: usize) -> Option<(Time, usize)> {
        let units = 0..self.at.len().div_ceil(self.unit);
        let broken = units.filter(|unit| self.unit(*unit) == NEVER);
        let part = |unit: usize| {
            let mut times = self.nodes_of(unit).to_vec();
            times.sort_unstable();
            let &at = times.get(count.checked_sub(1)?)?;
            (at < NEVER).then_some((at, unit))
        };
        broken.filter_map(part).min()
    }

    /// The time at which a unit is wholly free. One with fewer nodes than others never is.
    fn unit(&self, unit: usize) -> Time {
        let nodes = self.nodes_of(unit);
        if nodes.len() < self.unit {
            return NEVER;
        }
        nodes.iter().copied().max().unwrap_or(NEVER)
    }

    fn unit_of(&self, node: u32) -> usize {
        node as usize / self.unit
    }

    fn nodes_of(&self, unit: usize) -> &[Time] {
        let first = unit * self.unit;
        &self.at[first..(first + self.unit).min(self.at.len())]
    }

    /// Nodes (in order) come free at a time or later; what that takes of units.
    fn keep(&mut self, nodes: &[u32], until: Time) -> Taken {
        self.last.resize(self.at.len(), 0);
        let mut taken = Taken::new();
        for nodes in nodes.chunk_by(|a, b| *a as usize / self.unit == *b as usize / self.unit) {
            let unit = self.unit_of(nodes[0]);
            let before = self.unit(unit);
            for &node in nodes {
                let at = &mut self.at[node as usize];
                *at = until.max(*at);
                self.last[node as usize] = self.tied;
            }
            let after = self.unit(unit);
            if before < after {
                *taken.entry((before, after)).or_default() += 1;
            }
        }
        taken
    }
}
