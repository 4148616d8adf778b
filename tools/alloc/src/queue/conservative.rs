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
//! Key function: [`run`]. Neighbour: [`super`].
//!
//! Invariant: no job starts that would take units which an earlier job has reserved.

use super::pass::Pass;
use super::{Reason, Time};

/// Most reservations in one pass; bounds a pass over thousands of queued jobs to a few
/// milliseconds.
pub(super) const RESERVATIONS_MAX: usize = 500;

/// Free units over time.
struct Profile {
    /// From when on, how many; the first is now, times rise.
    steps: Vec<(Time, usize)>,
}

/// Runs the pass.
pub(super) fn run(pass: &mut Pass) {
    let mut profile = Profile::new(pass);
    let mut reservations = 0;
    let mut is_behind = false;
    for number in pass.candidates.clone() {
        let is_full = reservations >= RESERVATIONS_MAX;
        if is_full && !pass.fits(number) {
            continue;
        }
        if !pass.is_within_limits(number) {
            continue;
        }
        if pass.is_tied(number) && pass.choose(number).is_none() {
            pass.wait(number, Reason::Nodes);
            let kept = pass.keep_nodes_of(number);
            profile.reserve(pass.now, Time::MAX, kept);
            continue;
        }
        let units = pass.machine.units_for(pass.job(number).count);
        let span = pass.job(number).walltime.unwrap_or(Time::MAX).max(1);
        let latest = if is_full { pass.now } else { Time::MAX - 1 };
        let Some(start) = profile.earliest(units, span, latest) else {
            if is_full {
                continue;
            }
            // It waits for jobs without a time limit: nothing goes before it.
            pass.wait(number, Reason::Nodes);
            return;
        };
        if start == pass.now
            && let Some(given) = pass.choose(number)
        {
            profile.reserve(start, span, units);
            pass.start(number, given);
            pass.queue.counters.backfilled += u64::from(is_behind);
            continue;
        }
        profile.reserve(start, span, units);
        pass.note_reservation(number, start);
        pass.wait(
            number,
            if is_behind {
                Reason::Priority
            } else {
                Reason::Nodes
            },
        );
        is_behind = true;
        reservations += 1;
    }
}

impl Profile {
    fn new(pass: &Pass) -> Self {
        let mut free_at = pass.units_free_at();
        free_at.sort_unstable();
        let mut steps = vec![(pass.now, 0)];
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
    fn reserve(&mut self, start: Time, span: Time, units: usize) {
        let end = start.saturating_add(span);
        let first = self.split(start);
        let last = self.split(end);
        for (_, free) in &mut self.steps[first..last] {
            // A tied job keeps nodes that were reserved as a number.
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
