//! Which nodes that stay lost are due for a reset, and when it is given up.
//!
//! Key type: [`Watch`]. Neighbours: a task of the control node tells it what is seen and does what
//! is due; `hearth node reset` makes it forget what it has tried.
//!
//! Invariants: a node is reset at most [`RESETS_MAX`] times until it has been up for [`SETTLED`];
//! where too many are lost at once none is reset, because the network is what has failed.

use std::collections::BTreeMap;
use std::time::Duration;

/// Most resets of a node that does not come back for good.
pub const RESETS_MAX: u32 = 3;

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
    /// This reset of the node, counted from 1.
    Reset {
        /// The node.
        node: u32,
        /// Which one of [`RESETS_MAX`].
        attempt: u32,
    },
    /// The node is left for somebody: all resets were in vain.
    GiveUp(u32),
    /// So many nodes are lost at once that none is reset.
    TooMany(usize),
}

/// A node that is lost, or was a little while ago.
#[derive(Debug)]
struct Case {
    /// Since when it is as it is: lost, reset in vain, or up again.
    since: Duration,
    is_up: bool,
    resets: u32,
    given_up: bool,
}

/// Looks after nodes that are lost. Times are since any beginning that stays the same.
#[derive(Debug)]
pub struct Watch {
    /// How long a node is lost before it is reset.
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
                is_up: false,
                resets: 0,
                given_up: false,
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
        if passed < self.after || too_many || case.given_up {
            return None;
        }
        if case.resets >= RESETS_MAX {
            case.given_up = true;
            return Some(Due::GiveUp(node));
        }
        case.resets += 1;
        case.since = now;
        Some(Due::Reset {
            node,
            attempt: case.resets,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: u64 = 300;

    fn at(watch: &mut Watch, seconds: u64, seen: &[(u32, Seen)]) -> Vec<Due> {
        watch.step(Duration::from_secs(seconds), seen)
    }

    fn watch() -> Watch {
        Watch::new(Duration::from_secs(AFTER))
    }

    #[test]
    fn a_node_that_stays_lost_is_reset_three_times_and_then_left() {
        let mut watch = watch();
        let seen = [(0, Seen::Up), (1, Seen::Lost)];
        let due: Vec<(u64, Due)> = (0..5_000)
            .flat_map(|second| {
                let due = at(&mut watch, second, &seen);
                due.into_iter().map(move |due| (second, due))
            })
            .collect();
        let reset = |attempt| Due::Reset { node: 1, attempt };
        let wanted = [
            (300, reset(1)),
            (600, reset(2)),
            (900, reset(3)),
            (1_200, Due::GiveUp(1)),
        ];
        assert_eq!(due, wanted);
        // Somebody resets it by hand: it begins anew.
        watch.forget(1);
        assert!(at(&mut watch, 5_000, &seen).is_empty());
        assert_eq!(at(&mut watch, 5_300, &seen), [reset(1)]);
    }

    #[test]
    fn one_that_comes_back_for_a_moment_is_not_reset_for_ever() {
        let mut watch = watch();
        let mut resets = 0;
        for second in 0..20_000 {
            // Up for 100 seconds in every 500.
            let seen = match second % 500 {
                0..100 => Seen::Up,
                _ => Seen::Lost,
            };
            let due = at(&mut watch, second, &[(1, seen)]);
            resets += due.iter().filter(|due| **due != Due::GiveUp(1)).count();
        }
        assert_eq!(resets, 3);
        // Up for long: what was tried is forgotten.
        for second in 20_000..20_601 {
            assert!(at(&mut watch, second, &[(1, Seen::Up)]).is_empty());
        }
        assert!(at(&mut watch, 20_700, &[(1, Seen::Lost)]).is_empty());
        let due = at(&mut watch, 21_000, &[(1, Seen::Lost)]);
        assert_eq!(
            due,
            [Due::Reset {
                node: 1,
                attempt: 1
            }]
        );
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
