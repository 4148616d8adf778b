//! Who is gone: a rank that something is waited for and that does not answer.
//!
//! The endpoint of a node answers whatever its program does, but a node that computes looks at its network only about
//! once a second. So silence counts from [`QUIET`] on: the rank is asked, again and again, and after [`DEAD`] it is lost.
//!
//! Neighbour: [`super::endpoint`] says who is waited for and when somebody was heard.
//!
//! Invariant: nobody is lost without having been asked at least [`MIN_ASKED`] times.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ids::Rank;
use crate::time::{Instant, Micros};

/// How often it is looked at.
const INTERVAL: Micros = Micros::from_millis(250);
/// Silence after which a rank is asked.
pub(super) const QUIET: Micros = Micros::from_millis(750);
/// Silence after which it is lost: more than three times what a node that computes takes to look at its network.
pub(super) const DEAD: Micros = Micros::from_millis(4_000);
/// Questions that it does not answer before it is lost.
pub(super) const MIN_ASKED: u32 = 5;
/// Most ranks that are watched at a time: an operation waits for few of them at first.
const MAX_WATCHED: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Watch {
    heard: Instant,
    asked: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Liveness {
    watched: BTreeMap<Rank, Watch>,
    next: Instant,
}

/// What to do about a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask it whether it is there.
    Ask(Rank),
    /// It is lost.
    Lost(Rank),
}

impl Liveness {
    pub(super) fn new() -> Self {
        Liveness {
            watched: BTreeMap::new(),
            next: Instant::FAR_FUTURE,
        }
    }

    /// Something came from a rank.
    pub(super) fn heard(&mut self, rank: Rank, now: Instant) {
        if let Some(watch) = self.watched.get_mut(&rank) {
            *watch = Watch {
                heard: now,
                asked: 0,
            };
        }
    }

    /// Something is waited for from now on, if it was not yet.
    pub(super) fn start(&mut self, now: Instant) {
        if self.next == Instant::FAR_FUTURE {
            self.next = now + INTERVAL;
        }
    }

    /// When [`Liveness::tick`] is due.
    pub(super) fn deadline(&self) -> Instant {
        self.next
    }

    /// Looks at those that are waited for: nobody means that nothing is under way.
    pub(super) fn tick(
        &mut self,
        now: Instant,
        waited_for: impl Iterator<Item = Rank>,
    ) -> Vec<Verdict> {
        // A loop that was late itself has heard nobody: that is no silence of theirs.
        let late = now.saturating_since(self.next);
        let before = core::mem::take(&mut self.watched);
        for rank in waited_for {
            if self.watched.len() < MAX_WATCHED {
                let watch = before.get(&rank).copied();
                let mut watch = watch.unwrap_or(Watch {
                    heard: now,
                    asked: 0,
                });
                if late > INTERVAL {
                    watch.heard = (watch.heard + late).min(now);
                }
                self.watched.insert(rank, watch);
            }
        }
        self.next = match self.watched.is_empty() {
            true => Instant::FAR_FUTURE,
            false => now + INTERVAL,
        };
        let mut verdicts = Vec::new();
        for (rank, watch) in &mut self.watched {
            let silence = now.saturating_since(watch.heard);
            if silence >= DEAD && watch.asked >= MIN_ASKED {
                verdicts.push(Verdict::Lost(*rank));
            } else if silence >= QUIET {
                watch.asked += 1;
                verdicts.push(Verdict::Ask(*rank));
            }
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_rank_is_asked_and_then_lost() {
        let mut liveness = Liveness::new();
        let mut now = Instant::ZERO;
        liveness.start(now);
        let (mut asked, mut lost_at) = (0, None);
        while lost_at.is_none() && now < Instant::from_micros(10_000_000) {
            now = liveness.deadline();
            // Rank 2 answers.
            for verdict in liveness.tick(now, [Rank(1), Rank(2)].into_iter()) {
                match verdict {
                    Verdict::Ask(rank) => {
                        asked += u32::from(rank == Rank(1));
                        liveness.heard(Rank(2), now);
                    }
                    Verdict::Lost(rank) => {
                        assert_eq!(rank, Rank(1));
                        lost_at = Some(now);
                    }
                }
            }
        }
        assert!(asked >= MIN_ASKED);
        let lost_at = lost_at.unwrap().as_micros();
        assert!((4_000_000..=4_500_000).contains(&lost_at), "{lost_at}");
        assert_eq!(liveness.tick(now, core::iter::empty()), []);
        assert_eq!(liveness.deadline(), Instant::FAR_FUTURE);
    }
}
