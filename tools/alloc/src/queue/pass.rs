//! One scheduling pass: what the policies have in common.
//!
//! Key type: [`Pass`]. Neighbours: the policies.
//!
//! Invariant: nodes that a pass keeps from jobs are free again when it is over.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::{Held, Job, JobNumber, Queue, Reason, Start, Tie, Time};
use crate::machine::Machine;
use crate::placement::exact::{self, Preference};
use crate::placement::{Given, Placing, Wish};

/// What a job means for those behind it that is tied to nodes of which some are not free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tied {
    /// They wait.
    HoldsUp,
    /// They go on without the nodes that it is tied to.
    KeepsItsNodes,
}

/// One scheduling pass.
pub(super) struct Pass<'a> {
    pub(super) queue: &'a mut Queue,
    pub(super) machine: &'a mut Machine,
    pub(super) placing: Placing,
    pub(super) warm: &'a dyn Fn(&Job) -> Held,
    pub(super) now: Time,
    /// Jobs that may start, in order.
    pub(super) candidates: Vec<JobNumber>,
    /// Free nodes taken out of service for this pass: jobs that are tied to them wait for others.
    pub(super) kept: Vec<u32>,
    /// The jobs that keep them, in order.
    pub(super) tied: Vec<JobNumber>,
    /// Sets of holders of which all that was free is kept: they have none for another job.
    pub(super) kept_sets: BTreeMap<*const BTreeSet<u32>, Held>,
    pub(super) starts: Vec<Start>,
}

impl Pass<'_> {
    pub(super) fn job(&self, number: JobNumber) -> &Job {
        &self.queue.waiting[&number].job
    }

    pub(super) fn is_tied(&self, number: JobNumber) -> bool {
        self.job(number).tie != Tie::None
    }

    pub(super) fn wait(&mut self, number: JobNumber, reason: Reason) {
        let waiting = self.queue.waiting.get_mut(&number);
        waiting.expect("queued").reason = reason;
    }

    /// Notes when a job starts at the latest.
    pub(super) fn note_reservation(&mut self, number: JobNumber, time: Time) {
        let waiting = self.queue.waiting.get_mut(&number);
        waiting.expect("queued").reserved = (time != Time::MAX).then_some(time);
    }

    /// Whether the machine has nodes for a job; of one that is tied to some, whether it may.
    pub(super) fn fits(&self, number: JobNumber) -> bool {
        let job = self.job(number);
        match &job.tie {
            Tie::None => self.placing.fits(self.machine, job.count),
            Tie::Named(nodes) => nodes.iter().all(|node| self.machine.is_free(*node)),
            Tie::Warm => self.machine.free_nodes() >= job.count as usize,
            Tie::Among { with, .. } => {
                self.machine.free_nodes() >= job.count as usize
                    && with.iter().all(|node| self.machine.is_free(*node))
            }
        }
    }

    /// Whether its user may have it; else it says why it waits, and others may go before it.
    pub(super) fn is_within_limits(&mut self, number: JobNumber) -> bool {
        self.is_within_limits_beside(number, &[])
    }

    /// Whether its user may have it if these jobs start, too.
    pub(super) fn is_within_limits_beside(
        &mut self,
        number: JobNumber,
        others: &[JobNumber],
    ) -> bool {
        let limit = self.queue.limit_beside(self.job(number), others);
        if let Some(reason) = limit {
            self.wait(number, reason);
        }
        limit.is_none()
    }

    /// Nodes for a job, if it fits.
    pub(super) fn choose(&self, number: JobNumber) -> Option<Given> {
        let job = self.job(number);
        if !self.fits(number) {
            return None;
        }
        match &job.tie {
            Tie::None => {
                let wish = Wish {
                    job: number,
                    count: job.count,
                    warm: &(self.warm)(job),
                };
                self.placing.choose(self.machine, &wish)
            }
            Tie::Named(nodes) => {
                let mut nodes = nodes.clone();
                nodes.sort_unstable();
                Some(Given {
                    nodes,
                    certificate: None,
                })
            }
            Tie::Warm => self.choose_warm(job),
            Tie::Among { with, without } => self.choose_among(job, with, without),
        }
    }

    /// The fewest hops among the free nodes that a job may have, with those that it must have.
    fn choose_among(&self, job: &Job, with: &[u32], without: &BTreeSet<u32>) -> Option<Given> {
        let nodes = 0..self.machine.nodes() as u32;
        let can_have = |node: &u32| self.machine.is_free(*node) && !without.contains(node);
        let must_have: BTreeSet<u32> = with.iter().copied().collect();
        let free: Vec<exact::Candidate> = nodes
            .filter(can_have)
            .map(|node| exact::Candidate {
                node,
                warm: must_have.contains(&node),
            })
            .collect();
        // All of these are free and no more than it has nodes: the choice with the most of them has
        // all.
        let all_of_them = Preference::WarmFirst;
        let topology = self.machine.topology();
        let placement = exact::place_with(topology, &free, job.count as usize, all_of_them)?;
        debug_assert_eq!(placement.warm, with.len(), "all that it must have");
        Some(Given {
            nodes: placement.nodes,
            certificate: Some(placement.certificate),
        })
    }

    /// The fewest hops among the free nodes that hold a job's program.
    fn choose_warm(&self, job: &Job) -> Option<Given> {
        let held = (self.warm)(job);
        if self.kept_sets.contains_key(&Rc::as_ptr(&held)) {
            return None;
        }
        let is_free = |node: &u32| self.machine.is_in_service(*node) && self.machine.is_free(*node);
        let free = held.iter().copied().filter(is_free);
        let free: Vec<exact::Candidate> = free
            .map(|node| exact::Candidate { node, warm: true })
            .collect();
        let placement = exact::place(self.machine.topology(), &free, job.count as usize)?;
        Some(Given {
            nodes: placement.nodes,
            certificate: Some(placement.certificate),
        })
    }

    /// Keeps the free ones of the nodes that a job is tied to for it.
    pub(super) fn keep_nodes_of(&mut self, number: JobNumber) {
        self.tied.push(number);
        let nodes: Vec<u32> = match &self.job(number).tie {
            Tie::None => return,
            Tie::Named(nodes) => nodes.clone(),
            Tie::Warm => {
                let held = (self.warm)(self.job(number));
                let set = Rc::as_ptr(&held);
                if self.kept_sets.insert(set, held.clone()).is_some() {
                    return;
                }
                held.iter().copied().collect()
            }
            // Nothing is left that it could keep.
            Tie::Among { .. } if self.machine.free_nodes() == 0 => return,
            Tie::Among { without, .. } => {
                let nodes = 0..self.machine.nodes() as u32;
                nodes.filter(|node| !without.contains(node)).collect()
            }
        };
        for node in nodes {
            if self.machine.is_in_service(node) && self.machine.is_free(node) {
                self.machine.set_in_service(node, false);
                self.kept.push(node);
            }
        }
    }

    /// Starts a job on these nodes.
    pub(super) fn start(&mut self, number: JobNumber, given: Given) {
        let job = self.queue.take_out(number).expect("queued");
        self.machine.take(number, &given.nodes);
        self.queue.run(&job, self.now);
        let kept = self.kept.clone();
        self.starts.push(Start { job, given, kept });
    }

    /// Starts jobs in order until one does not fit; its place in the order.
    pub(super) fn start_in_order(&mut self, tied: Tied) -> Option<usize> {
        for place in 0..self.candidates.len() {
            let number = self.candidates[place];
            if !self.is_within_limits(number) {
                continue;
            }
            if let Some(given) = self.choose(number) {
                self.start(number, given);
                continue;
            }
            self.wait(number, Reason::Nodes);
            if tied == Tied::HoldsUp || !self.is_tied(number) {
                return Some(place);
            }
            self.keep_nodes_of(number);
        }
        None
    }

    /// The pass is over; what it started.
    pub(super) fn end(self) -> Vec<Start> {
        for node in self.kept {
            self.machine.set_in_service(node, true);
        }
        self.starts
    }

    /// When a job that starts now has ended, at the latest.
    pub(super) fn end_of(&self, number: JobNumber) -> Time {
        let walltime = self.job(number).walltime;
        walltime.map_or(Time::MAX, |walltime| self.now.saturating_add(walltime))
    }
}
