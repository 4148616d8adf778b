//! Conservative backfill: every job has a reservation, and a job may go before others if it delays
//! none of them.
//!
//! The *profile* says how many units will be free from when on, if every running job takes all its
//! time. Each job in order is put to the earliest time at which it fits for as long as it may run,
//! and taken out of the profile there; those put to now start. The profile is made anew in every
//! pass, so that what ended early lets everything move up.
//!
//! Only the first [`RESERVATIONS_MAX`] jobs get reservations: each makes the profile longer, and
//! the work for a job grows with it. Jobs behind these start when they delay no reservation.
//!
//! A job that is tied to certain nodes starts if the units that it breaks are nobody's. One that
//! waits has no reservation that is told: it keeps its nodes, and they are out of the profile until
//! its time is over, which is counted from when all jobs before it have ended that can still take
//! any node ([`coming`](super::coming)).
//!
//! Key function: [`run`]. Neighbours: [`super`], [`super::coming`].
//!
//! Invariant: no job starts that would take units which an earlier job has reserved.

use super::coming::{Coming, Taken};
use super::pass::Pass;
use super::{JobNumber, Reason, Time};
use crate::placement::{Given, Placing, Wish};

/// Most reservations in one pass; bounds a pass over thousands of queued jobs to a few
/// milliseconds.
pub(super) const RESERVATIONS_MAX: usize = 500;

/// Free units over time.
struct Profile {
    /// From when on, how many; the first is now, times rise.
    steps: Vec<(Time, usize)>,
}

/// A plan in the making.
struct Plan {
    coming: Coming,
    /// The same as the first job with a reservation that is not tied sees it: nodes that jobs
    /// behind it keep are not kept from it. None before there is one.
    seen_by_first: Option<Coming>,
    profile: Profile,
    /// When all jobs so far that have a reservation and are not tied have ended: until then they
    /// can have any node.
    settled: Time,
    /// What starts has ended by then.
    deadline: Time,
    reservations: usize,
    /// A job waits that is not tied.
    is_behind: bool,
}

/// Runs the pass.
pub(super) fn run(pass: &mut Pass) {
    let coming = Coming::new(pass);
    let mut plan = Plan {
        profile: Profile::new(pass.now, &coming),
        coming,
        seen_by_first: None,
        settled: pass.now,
        deadline: Time::MAX,
        reservations: 0,
        is_behind: false,
    };
    for number in pass.candidates.clone() {
        let is_full = plan.reservations >= RESERVATIONS_MAX;
        if is_full && !pass.fits(number) || pass.end_of(number) > plan.deadline {
            continue;
        }
        if !pass.is_within_limits(number) {
            continue;
        }
        if pass.is_tied(number) {
            plan.add_tied(pass, number);
            continue;
        }
        let units = pass.machine.units_for(pass.job(number).count);
        let span = pass.job(number).walltime.unwrap_or(Time::MAX).max(1);
        let latest = if is_full { pass.now } else { Time::MAX - 1 };
        let Some(start) = plan.profile.earliest(units, span, latest) else {
            if plan.add_small(pass, number) || is_full {
                continue;
            }
            // It waits for jobs without a time limit: nothing goes before it.
            pass.wait(number, Reason::Nodes);
            return;
        };
        plan.profile
            .reserve(start, start.saturating_add(span), units);
        if start == pass.now
            && let Some(given) = pass.choose(number)
        {
            plan.start(pass, number, given);
            continue;
        }
        plan.settled = plan.settled.max(start.saturating_add(span));
        plan.wait(pass, number, start);
        plan.reservations += 1;
    }
}

impl Plan {
    /// Starts a job whose units are out of the profile.
    fn start(&mut self, pass: &mut Pass, number: JobNumber, given: Given) {
        let end = pass.end_of(number);
        self.coming.take(&given.nodes, end);
        if let Some(first) = &mut self.seen_by_first {
            first.take(&given.nodes, end);
        }
        pass.start(number, given);
        pass.queue.counters.backfilled += u64::from(self.is_behind);
    }

    /// Starts a job on these nodes if the units that it breaks are nobody's for its time; else they
    /// are given back.
    fn try_start(&mut self, pass: &mut Pass, number: JobNumber, given: Given) -> Option<Given> {
        let coming = self.seen_by_first.as_ref().unwrap_or(&self.coming);
        let taken = coming.taken_by(&given.nodes, pass.end_of(number));
        if !self.profile.has(&taken) {
            return Some(given);
        }
        self.profile.take(&taken);
        self.start(pass, number, given);
        None
    }

    /// A job waits until a time at the latest.
    fn wait(&mut self, pass: &mut Pass, number: JobNumber, start: Time) {
        pass.note_reservation(number, start);
        let reason = if self.is_behind {
            Reason::Priority
        } else {
            Reason::Nodes
        };
        pass.wait(number, reason);
        self.is_behind = true;
        if self.seen_by_first.is_none() {
            self.seen_by_first = Some(self.coming.clone());
        }
    }

    /// A job that is tied to certain nodes starts, or keeps them. Jobs before it can have them
    /// first, whichever they take: it is counted on having them when all of these have ended.
    fn add_tied(&mut self, pass: &mut Pass, number: JobNumber) {
        let mut reason = Reason::Nodes;
        if let Some(given) = pass.choose(number) {
            if self.try_start(pass, number, given).is_none() {
                return;
            }
            reason = Reason::Priority;
        }
        pass.wait(number, reason);
        let taken = self.coming.tie(pass, number, self.settled);
        self.profile.take(&taken);
        pass.keep_nodes_of(number);
    }

    /// A job for which no unit is left at any time starts on a part of a unit that is never wholly
    /// free, or waits for it; then what starts behind it has ended by then. Whether there is such a
    /// part.
    fn add_small(&mut self, pass: &mut Pass, number: JobNumber) -> bool {
        let count = pass.job(number).count;
        if count >= pass.machine.unit() || pass.placing == Placing::Published {
            return false;
        }
        let Some((time, unit)) = self.coming.part(count as usize) else {
            return false;
        };
        if time <= pass.now {
            let held = (pass.warm)(pass.job(number));
            let wish = Wish {
                job: number,
                count,
                warm: &held,
            };
            let given = pass.placing.part_of(pass.machine, &wish, unit);
            return self.try_start(pass, number, given).is_none();
        }
        if self.reservations >= RESERVATIONS_MAX {
            return false;
        }
        self.wait(pass, number, time);
        self.deadline = self.deadline.min(time);
        self.reservations = RESERVATIONS_MAX;
        true
    }
}

impl Profile {
    fn new(now: Time, coming: &Coming) -> Self {
        let mut free_at = coming.units();
        free_at.sort_unstable();
        let mut steps = vec![(now, 0)];
        for at in free_at {
            if at == Time::MAX {
                break;
            }
            let &(time, free) = steps.last().expect("now");
            if at == time {
                steps.last_mut().expect("now").1 += 1;
            } else {
                steps.push((at, free + 1));
            }
        }
        Profile { steps }
    }

    /// Whether all of these units are free.
    fn has(&self, taken: &Taken) -> bool {
        let nexts = self.steps.iter().skip(1).map(|(time, _)| *time);
        let nexts = nexts.chain([Time::MAX]);
        self.steps.iter().zip(nexts).all(|(&(time, free), next)| {
            let here = taken
                .iter()
                .filter(|((from, to), _)| *from < next && time < *to);
            here.map(|(_, units)| units).sum::<usize>() <= free
        })
    }

    /// Takes them out of the profile.
    fn take(&mut self, taken: &Taken) {
        for (&(from, to), &units) in taken {
            self.reserve(from, to, units);
        }
    }

    /// The earliest time, not after `latest`, from which so many units are free for so long.
    fn earliest(&self, units: usize, span: Time, latest: Time) -> Option<Time> {
        let mut start: Option<Time> = None;
        for &(time, free) in &self.steps {
            if start.is_some_and(|start| start.saturating_add(span) <= time) {
                return start;
            }
            if free < units {
                start = None;
            } else if start.is_none() {
                if time > latest {
                    return None;
                }
                start = Some(time);
            }
        }
        start
    }

    /// Takes units out of the profile.
    fn reserve(&mut self, start: Time, end: Time, units: usize) {
        let first = self.split(start);
        let last = self.split(end);
        for (_, free) in &mut self.steps[first..last] {
            // A tied job keeps nodes that jobs before it have reserved as a number: they are
            // counted twice.
            *free = free.saturating_sub(units);
        }
    }

    /// The step that begins at a time; made if there is none.
    fn split(&mut self, time: Time) -> usize {
        let place = self.steps.partition_point(|(at, _)| *at < time);
        if self.steps.get(place).is_none_or(|(at, _)| *at != time) {
            let free = self.steps[place - 1].1;
            self.steps.insert(place, (time, free));
        }
        place
    }
}
