//! EASY backfill: the first job that does not fit has a reservation, and others may go before it
//! if they do not delay that.
//!
//! The reservation is the *shadow time*: the earliest time at which enough will be free if every
//! running job takes all its time. It is counted in what is really given out: in units, which are
//! free again when the last of their jobs has ended, not in nodes. What will be free then and is
//! more than the first job takes is *extra*. A job may go before it if it fits now and either ends
//! by the shadow time or takes no more than the extra units. A job that is tied to certain nodes
//! takes the units that it breaks, of those that will be free then; any other as many as it needs
//! (a small one counts as one unit, though it may find one that others break already).
//!
//! The others are tried the shortest first: by the time they may run, then in their order. That is
//! a known variant of EASY (Tsafrir, Etsion and Feitelson, 2007, where it goes with predicted run
//! times); on the trace of a real year it takes a fifth off the mean wait. The plain order can be
//! had as well, for comparison. Nothing starves by that: the first job has its reservation, and
//! every job becomes the first (see [`super`]).
//!
//! The first job is the first that is not tied to certain nodes. One before it that is keeps those
//! of its nodes that are free, and has all of them until its time is over: the first job is counted
//! on nothing of that ([`coming`](super::coming)).
//!
//! A first job smaller than a unit is counted on a whole one. Where none will ever be wholly free
//! (nodes of each are out of service) it is counted on the first part that is large enough, and
//! only what ends by then goes before it.
//!
//! Where the first job waits for jobs without a time limit there is no such time, and nothing goes
//! before it: else it could wait for ever.
//!
//! Key function: [`run`]. Neighbour: [`super`].
//!
//! Invariant: as long as no job comes to stand before it and all nodes stay in service, the first
//! job starts no later than the shadow time of every pass before. Programs that nodes drop while a
//! job waits for nodes that hold its program are the exception: that job then waits for longer than
//! was foreseen.

use super::coming::Coming;
use super::pass::{Pass, Tied};
use super::{JobNumber, Tie, Time};
use crate::placement::Placing;

/// When the first job will start at the latest, and what will be free beside it.
struct Shadow {
    time: Time,
    /// Units.
    extra: usize,
    /// When each unit comes free, by unit.
    units: Vec<Time>,
}

impl Shadow {
    /// Units that a job which runs on beyond the shadow time takes of those that are free by then.
    fn units_broken_by(&self, pass: &Pass, nodes: &[u32]) -> usize {
        let units = units_of(pass, nodes);
        units.filter(|unit| self.units[*unit] <= self.time).count()
    }
}

/// The units of nodes that stand in order, each once.
fn units_of(pass: &Pass, nodes: &[u32]) -> impl Iterator<Item = usize> {
    let unit_of = |node: &u32| pass.machine.unit_of(*node);
    let runs = nodes.chunk_by(move |a, b| unit_of(a) == unit_of(b));
    runs.map(move |run| unit_of(&run[0]))
}

/// In which order others are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// Those that may run for the shortest time.
    ShortestFirst,
    /// As they stand in the queue.
    InOrder,
}

/// Runs the pass.
pub(super) fn run(pass: &mut Pass, order: Others) {
    let Some(first) = pass.start_in_order(Tied::KeepsItsNodes) else {
        return;
    };
    let mut shadow = shadow(pass, pass.candidates[first]);
    pass.note_reservation(pass.candidates[first], shadow.time);
    if shadow.time == Time::MAX {
        return;
    }
    let mut others = pass.candidates.split_off(first + 1);
    if order == Others::ShortestFirst {
        others.sort_by_cached_key(|number| pass.end_of(*number));
    }
    for number in others {
        if pass.machine.free_units() == 0 && !pass.machine.has_busy_unit_for(1) {
            return;
        }
        if !pass.fits(number) {
            continue;
        }
        let end = pass.end_of(number);
        let ends_in_time = end <= shadow.time;
        let job = pass.job(number);
        let units = pass.machine.units_for(job.count);
        // One that names nodes can take fewer, of units that others break already, or more.
        let is_too_large = units > shadow.extra && !matches!(job.tie, Tie::Named(_));
        if !ends_in_time && is_too_large || !pass.is_within_limits(number) {
            continue;
        }
        let Some(given) = pass.choose(number) else {
            continue;
        };
        if !ends_in_time {
            let units = match pass.is_tied(number) {
                true => shadow.units_broken_by(pass, &given.nodes),
                false => units,
            };
            if units > shadow.extra {
                continue;
            }
            shadow.extra -= units;
            for unit in units_of(pass, &given.nodes) {
                shadow.units[unit] = end.max(shadow.units[unit]);
            }
        }
        pass.start(number, given);
        pass.queue.counters.backfilled += 1;
    }
}

/// The reservation of a job that does not fit now.
fn shadow(pass: &Pass, number: JobNumber) -> Shadow {
    let count = pass.job(number).count;
    let wanted = pass.machine.units_for(count);
    let mut coming = Coming::new(pass);
    for &tied in &pass.tied {
        coming.tie(pass, tied, pass.now);
    }
    let times = coming.times_of_units();
    let time = times.get(wanted - 1).copied().unwrap_or(Time::MAX);
    if time < Time::MAX {
        let by_then = times.partition_point(|at| *at <= time);
        return Shadow {
            time,
            extra: by_then - wanted,
            units: coming.units(),
        };
    }
    // No unit will be wholly free; a small job may find a part of one. What goes before it has
    // ended by then.
    let is_small = count < pass.machine.unit() && pass.placing != Placing::Published;
    let part = is_small.then(|| coming.part(count as usize)).flatten();
    Shadow {
        time: part.map_or(Time::MAX, |(time, _)| time),
        extra: 0,
        units: vec![pass.now; coming.units().len()],
    }
}

#[cfg(test)]
impl super::Queue {
    /// For tests: the job that the pass which is over has a reservation for, and its shadow time.
    pub(super) fn reservation(
        &mut self,
        now: Time,
        machine: &mut super::Machine,
        placing: super::Placing,
    ) -> Option<(JobNumber, Time)> {
        let candidates = self.candidates(now, machine, placing, &|_| Default::default());
        let first = *candidates.first()?;
        let pass = Pass {
            candidates,
            queue: self,
            machine,
            placing,
            warm: &|_| Default::default(),
            now,
            kept: Vec::new(),
            tied: Vec::new(),
            kept_sets: std::collections::BTreeMap::new(),
            starts: Vec::new(),
        };
        Some((first, shadow(&pass, first).time))
    }
}
