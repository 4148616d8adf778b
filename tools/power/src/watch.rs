//! Which nodes that stay lost are due for a reset, and when it is given up.
//!
//! Key type: [`Watch`]. Neighbours: a task of the control node tells it what is seen, does what is
//! due and reports what came of it; `hearth node reset` makes it forget what it has tried.
//!
//! Each reset gives the machine twice the time that the one before gave it: the firmware of some
//! takes longer than any limit that finds a dead node soon.
//!
//! Invariants: a node is reset at most [`RESETS_MAX`] times until it has been up for [`SETTLED`],
//! and not tried again after [`FAILURES_MAX`] resets in a row that could not be carried out; of one
//! node no more than one reset is under way; where too many are lost at once none is reset, because
//! the network is what has failed.

use std::collections::BTreeMap;
use std::time::Duration;

/// Most resets of a node that does not come back for good.
pub const RESETS_MAX: u32 = 3;

/// Most resets in a row that could not be carried out: the board, or the way to it, is broken.
pub const FAILURES_MAX: u32 = 3;

/// A node that was up for so long is well: what was tried before is forgotten.
pub const SETTLED: Duration = Duration::from_secs(600);

/// Lost nodes of which each is taken for its own trouble; of more, see [`TOO_MANY_SHARE`].
const FEW: usize = 3;

/// More than one in so many nodes lost: their switch, their power or the control node's own cable.
const TOO_MANY_SHARE: usize = 4;

/// How a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seen {
    /// It is in touch.
    Up,
    /// It was, and is not.
    Lost,
    /// Nobody waits for it: it left, is drained, was switched off, or was never there.
    NotWanted,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// This reset of the node, counted from 1; [`Watch::report`] is owed.
    Reset {
        /// The node.
        node: u32,
        /// Which one of [`RESETS_MAX`].
        attempt: u32,
    },
    /// The node is left for somebody.
    GiveUp {
        /// The node.
        node: u32,
        /// Resets that were in vain.
        resets: u32,
        /// Resets in a row that could not be carried out, if that is why.
        failures: u32,
    },
    /// So many nodes are lost at once that none is reset.
    TooMany(usize),
}

/// What came of a reset that was due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The machine was reset.
    Done,
    /// It could not be.
    Failed,
    /// It was not tried: just before, the node was not lost any more, or not wanted.
    NotNeeded,
}

/// A node that is lost, or was a little while ago.
#[derive(Debug, Default)]
struct Case {
    /// Since when it is as it is: lost, reset in vain, or up again.
    since: Duration,
    is_up: bool,
    resets: u32,
    /// Resets in a row that could not be carried out.
    failures: u32,
    /// A reset is under way.
    is_due: bool,
    given_up: bool,
}

/// Looks after nodes that are lost. Times are since any beginning that stays the same.
#[derive(Debug)]
pub struct Watch {
    /// How long a node is lost before it is reset for the first time.
    after: Duration,
    cases: BTreeMap<u32, Case>,
    /// Too many are lost, which has been told.
    held: bool,
}

impl Watch {
    /// Nodes that are lost for so long are due.
    pub fn new(after: Duration) -> Self {
        Watch {
            after,
            cases: BTreeMap::new(),
            held: false,
        }
    }

    /// Somebody has switched a node: whatever was tried begins anew.
    pub fn forget(&mut self, node: u32) {
        self.cases.remove(&node);
    }

    /// What came of the reset of a node.
    pub fn report(&mut self, now: Duration, node: u32, outcome: Outcome) {
        let Some(case) = self.cases.get_mut(&node) else {
            return;
        };
        case.is_due = false;
        match outcome {
            Outcome::Done => (case.resets, case.failures) = (case.resets + 1, 0),
            Outcome::Failed => case.failures += 1,
            Outcome::NotNeeded => return,
        }
        if !case.is_up {
            case.since = now;
        }
    }

    /// What is due now that all nodes are `seen` so.
    pub fn step(&mut self, now: Duration, seen: &[(u32, Seen)]) -> Vec<Due> {
        let lost = seen.iter().filter(|(_, seen)| *seen == Seen::Lost).count();
        let wanted = seen
            .iter()
            .filter(|(_, seen)| *seen != Seen::NotWanted)
            .count();
        let too_many = lost > FEW.max(wanted / TOO_MANY_SHARE);
        let mut due: Vec<Due> = seen
            .iter()
            .filter_map(|&(node, seen)| self.look_at(now, node, seen, too_many))
            .collect();
        if too_many && !self.held {
            due.push(Due::TooMany(lost));
        }
        self.held = too_many;
        due
    }

    fn look_at(&mut self, now: Duration, node: u32, seen: Seen, too_many: bool) -> Option<Due> {
        let case = match seen {
            Seen::Lost => self.cases.entry(node).or_insert(Case {
                since: now,
                ..Case::default()
            }),
            Seen::Up => self.cases.get_mut(&node)?,
            Seen::NotWanted => {
                self.cases.remove(&node);
                return None;
            }
        };
        let is_up = seen == Seen::Up;
        if case.is_up != is_up {
            (case.is_up, case.since) = (is_up, now);
        }
        let passed = now.saturating_sub(case.since);
        if is_up {
            if passed >= SETTLED {
                self.cases.remove(&node);
            }
            return None;
        }
        // At most RESETS_MAX doublings.
        let patience = self.after.saturating_mul(1 << case.resets);
        let is_broken = case.failures >= FAILURES_MAX;
        let is_early = passed < patience && !is_broken;
        if is_early || too_many || case.given_up || case.is_due {
            return None;
        }
        if case.resets >= RESETS_MAX || is_broken {
            case.given_up = true;
            return Some(Due::GiveUp {
                node,
                resets: case.resets,
                failures: case.failures,
            });
        }
        case.is_due = true;
        Some(Due::Reset {
            node,
            attempt: case.resets + 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: u64 = 300;

    /// What is due; resets are carried out at once.
    fn at(watch: &mut Watch, seconds: u64, seen: &[(u32, Seen)]) -> Vec<Due> {
        ends(watch, seconds, seen, Outcome::Done)
    }

    /// What is due; all resets end so.
    fn ends(watch: &mut Watch, seconds: u64, seen: &[(u32, Seen)], outcome: Outcome) -> Vec<Due> {
        let now = Duration::from_secs(seconds);
        let due = watch.step(now, seen);
        for due in &due {
            if let Due::Reset { node, .. } = due {
                watch.report(now, *node, outcome);
            }
        }
        due
    }

    fn watch() -> Watch {
        Watch::new(Duration::from_secs(AFTER))
    }

    const SEEN: [(u32, Seen); 2] = [(0, Seen::Up), (1, Seen::Lost)];

    fn reset(attempt: u32) -> Due {
        Due::Reset { node: 1, attempt }
    }

    /// What is due in these seconds, and when.
    fn over(watch: &mut Watch, seconds: std::ops::Range<u64>, outcome: Outcome) -> Vec<(u64, Due)> {
        let due = |second| {
            let due = ends(watch, second, &SEEN, outcome);
            due.into_iter()
                .map(move |due| (second, due))
                .collect::<Vec<_>>()
        };
        seconds.flat_map(due).collect()
    }

    #[test]
    fn a_node_that_stays_lost_is_reset_three_times_and_then_left() {
        let mut watch = watch();
        let given_up = Due::GiveUp {
            node: 1,
            resets: 3,
            failures: 0,
        };
        // Each time it has twice as long for its start.
        let wanted = [
            (300, reset(1)),
            (900, reset(2)),
            (2_100, reset(3)),
            (4_500, given_up),
        ];
        assert_eq!(over(&mut watch, 0..9_000, Outcome::Done), wanted);
        // Somebody resets it by hand: it begins anew.
        watch.forget(1);
        assert!(at(&mut watch, 9_000, &SEEN).is_empty());
        assert_eq!(at(&mut watch, 9_300, &SEEN), [reset(1)]);
    }

    #[test]
    fn resets_that_fail_are_counted_apart_and_end() {
        let mut watch = watch();
        let given_up = Due::GiveUp {
            node: 1,
            resets: 0,
            failures: 3,
        };
        let wanted = [
            (300, reset(1)),
            (600, reset(1)),
            (900, reset(1)),
            (901, given_up),
        ];
        assert_eq!(over(&mut watch, 0..9_000, Outcome::Failed), wanted);
        // One in between that is carried out makes good for those before.
        let mut watch = super::tests::watch();
        over(&mut watch, 0..700, Outcome::Failed);
        assert_eq!(over(&mut watch, 700..901, Outcome::Done), [(900, reset(1))]);
        let later = over(&mut watch, 901..2_200, Outcome::Failed);
        assert_eq!(later, [(1_500, reset(2)), (2_100, reset(2))]);
    }

    #[test]
    fn of_one_node_one_reset_is_under_way_and_one_that_was_not_needed_does_not_count() {
        let mut watch = watch();
        let step = |watch: &mut Watch, second| watch.step(Duration::from_secs(second), &SEEN);
        assert!(step(&mut watch, 0).is_empty());
        assert_eq!(step(&mut watch, 300), [reset(1)]);
        assert!((301..2_000).all(|second| step(&mut watch, second).is_empty()));
        watch.report(Duration::from_secs(2_000), 1, Outcome::NotNeeded);
        assert_eq!(step(&mut watch, 2_000), [reset(1)]);
        watch.report(Duration::from_secs(2_000), 7, Outcome::Done);
    }

    #[test]
    fn one_that_comes_back_for_a_moment_is_not_reset_for_ever() {
        let mut watch = watch();
        let mut resets = 0;
        for second in 0..60_000 {
            // Up for 100 seconds in every 3,000.
            let seen = match second % 3_000 {
                0..100 => Seen::Up,
                _ => Seen::Lost,
            };
            let due = at(&mut watch, second, &[(1, seen)]);
            resets += due
                .iter()
                .filter(|due| matches!(due, Due::Reset { .. }))
                .count();
        }
        assert_eq!(resets, 3);
        // Up for long: what was tried is forgotten.
        for second in 60_000..60_601 {
            assert!(at(&mut watch, second, &[(1, Seen::Up)]).is_empty());
        }
        assert!(at(&mut watch, 60_700, &[(1, Seen::Lost)]).is_empty());
        assert_eq!(at(&mut watch, 61_000, &[(1, Seen::Lost)]), [reset(1)]);
    }

    #[test]
    fn one_that_is_lost_for_less_or_is_not_wanted_is_left_alone() {
        let mut watch = watch();
        for second in 0..3_000 {
            let short = match second % 300 {
                299 => Seen::Up,
                _ => Seen::Lost,
            };
            let seen = [(0, short), (1, Seen::NotWanted)];
            assert_eq!(at(&mut watch, second, &seen), [], "{second}");
        }
    }

    #[test]
    fn where_many_are_lost_at_once_the_network_is_not_answered_by_resets() {
        let mut watch = watch();
        let seen = |lost: u32| -> Vec<(u32, Seen)> {
            let how = |node| match node < lost {
                true => Seen::Lost,
                false => Seen::Up,
            };
            (0..16).map(|node| (node, how(node))).collect()
        };
        assert_eq!(at(&mut watch, 0, &seen(5)), [Due::TooMany(5)]);
        assert!((1..400).all(|second| at(&mut watch, second, &seen(5)).is_empty()));
        // The switch is back, and four nodes are not: each is reset.
        let due = at(&mut watch, 400, &seen(4));
        assert_eq!(due.len(), 4);
        assert!(matches!(
            due[0],
            Due::Reset {
                node: 0,
                attempt: 1
            }
        ));
    }
}
