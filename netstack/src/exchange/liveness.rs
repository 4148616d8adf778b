//! Who is gone: a rank that something is waited for and that does not answer.
//!
//! The endpoint of a node answers whatever its program does, but a node that computes looks at its
//! network only about once a second. So silence counts from [`QUIET`] on: the rank is asked, again
//! and again, and after [`DEAD`] it is lost. Each question has a number drawn at random that its
//! answer must have: what somebody recorded and sends again proves nothing, so whoever is heard of,
//! but has not answered for [`PROVEN`], is asked too.
//!
//! A few ranks are watched at a time. Where more are waited for they take turns: they are asked at
//! once, and whoever answers makes room for the next.
//!
//! An adapter over [`crate::transport::liveness`].
//!
//! Neighbour: [`super::endpoint`] says who is waited for and when somebody was heard.
//!
//! Invariant: nobody is lost without having been asked at least [`MIN_ASKED`] times, and whoever is
//! waited for and dead is lost in the end.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::ids::Rank;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::liveness::{self, Patience, Presence};
use crate::transport::retry::LOOKS;

/// A node that computes looks at its network so often, and answers then.
pub(super) const COMPUTES: Micros = LOOKS;
/// How often it is looked at: four times while somebody computes.
pub(super) const INTERVAL: Micros = Micros(COMPUTES.0 / 4);
/// Silence after which a rank is asked: before one that computes would have answered by itself.
const QUIET: Micros = Micros(COMPUTES.0 * 3 / 4);
/// Time after which a rank is asked that is heard of, but has not answered: what somebody records
/// and says again hides a death for no longer than the silence before one takes.
const PROVEN: Micros = Micros(COMPUTES.0 * 3);
/// Silence after which a rank is lost: it would have looked three times, and be late a fourth.
const DEAD: Micros = Micros(COMPUTES.0 * 4);
/// Questions that it does not answer before it is lost. Where one datagram in ten is lost, so are
/// as many questions, or answers to them, once in 4,000 times: 0.19^5.
const MIN_ASKED: u32 = 5;
/// See [`liveness`].
const PATIENCE: Patience = Patience::new(QUIET, INTERVAL, MIN_ASKED, DEAD);
/// Most ranks that are watched at a time: with four questions a second to each they cost 256
/// datagrams a second.
pub(super) const MAX_WATCHED: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Watch {
    /// It has answered, or is watched since.
    proven: Instant,
    /// Something came from it; once it was asked nothing but the answer counts.
    presence: Presence,
    question: u32,
}

impl Watch {
    fn new(now: Instant) -> Self {
        Watch {
            proven: now,
            presence: Presence::new(now),
            question: 0,
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Liveness {
    watched: BTreeMap<Rank, Watch>,
    /// Whose turn it is where not all can be watched.
    turn: u32,
    next: Instant,
}

/// What to do about a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask it whether it is there: the number of the question.
    Ask(Rank, u32),
    /// It is lost.
    Lost(Rank),
}

impl Liveness {
    pub(super) fn new() -> Self {
        Liveness {
            watched: BTreeMap::new(),
            turn: 0,
            next: Instant::FAR_FUTURE,
        }
    }

    /// Something came from a rank.
    pub(super) fn heard(&mut self, rank: Rank, now: Instant) {
        if let Some(watch) = self.watched.get_mut(&rank)
            && !watch.presence.is_asked()
        {
            watch.presence.heard(now);
        }
    }

    /// A rank has answered a question.
    pub(super) fn answered(&mut self, rank: Rank, question: u32, now: Instant) {
        if let Some(watch) = self.watched.get_mut(&rank)
            && watch.presence.is_asked()
            && watch.question == question
        {
            *watch = Watch::new(now);
        }
    }

    /// Ranks that were asked and have not answered.
    pub(super) fn asked(&self) -> impl Iterator<Item = Rank> {
        let watched = self.watched.iter();
        let asked = watched.filter(|(_, watch)| watch.presence.is_asked());
        asked.map(|(rank, _)| *rank)
    }

    /// Nothing is waited for from these any more: that they have ended is no loss.
    pub(super) fn forget(&mut self, ranks: &[Rank]) {
        self.watched.retain(|rank, _| !ranks.contains(rank));
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
        rng: &mut Rng,
    ) -> Vec<Verdict> {
        // A loop that was late itself has heard nobody: that is no silence of theirs.
        let late = now.saturating_since(self.next);
        let mut before = core::mem::take(&mut self.watched);
        if late > INTERVAL {
            for watch in before.values_mut() {
                watch.presence.excuse(late, now);
                watch.proven = (watch.proven + late).min(now);
            }
        }
        let is_crowded = self.choose(now, &before, waited_for);
        self.next = match self.watched.is_empty() {
            true => Instant::FAR_FUTURE,
            false => now + INTERVAL,
        };
        let mut verdicts = Vec::new();
        for (rank, watch) in &mut self.watched {
            let is_proven = now < watch.proven + PROVEN;
            match watch.presence.verdict(now, &PATIENCE) {
                liveness::Verdict::Dead => verdicts.push(Verdict::Lost(*rank)),
                liveness::Verdict::Wait if is_proven && !is_crowded => {}
                liveness::Verdict::Ask | liveness::Verdict::Wait => {
                    if !watch.presence.is_asked() {
                        watch.question = rng.next_u64() as u32;
                    }
                    watch.presence.asked(now);
                    verdicts.push(Verdict::Ask(*rank, watch.question));
                }
            }
        }
        verdicts
    }

    /// Who is watched until the next look: those that were asked and have not answered, and of the
    /// others that are waited for the next ones by their number. Returns whether there was no room
    /// for all.
    fn choose(
        &mut self,
        now: Instant,
        before: &BTreeMap<Rank, Watch>,
        waited_for: impl Iterator<Item = Rank>,
    ) -> bool {
        let asked = before.iter();
        let asked = asked.filter(|(_, watch)| watch.presence.is_asked());
        let asked: BTreeMap<Rank, Watch> = asked.map(|(rank, watch)| (*rank, *watch)).collect();
        let room = MAX_WATCHED - asked.len();
        let mut chosen = BTreeMap::new();
        let (mut any, mut is_crowded) = (false, false);
        for rank in waited_for {
            any = true;
            if !asked.contains_key(&rank) {
                chosen.insert(rank.0.wrapping_sub(self.turn), rank);
                if chosen.len() > room {
                    chosen.pop_last();
                    is_crowded = true;
                }
            }
        }
        if !any {
            return false;
        }
        if is_crowded && let Some((_, last)) = chosen.last_key_value() {
            self.turn = last.0 + 1;
        }
        self.watched = asked;
        let fresh = chosen.into_values();
        self.watched.extend(fresh.map(|rank| {
            let watch = before.get(&rank).copied();
            (rank, watch.unwrap_or(Watch::new(now)))
        }));
        is_crowded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Watches these ranks until one is lost or the time is over. `answers`: does this rank answer?
    fn watch(
        ranks: core::ops::Range<u32>,
        most: Micros,
        mut answers: impl FnMut(&mut Liveness, Rank, u32, Instant),
    ) -> (Option<(Rank, Instant)>, u32) {
        let (mut liveness, mut rng) = (Liveness::new(), Rng::new(1));
        let mut now = Instant::ZERO;
        let mut asked = 0;
        liveness.start(now);
        while now < Instant::ZERO + most {
            now = liveness.deadline();
            for verdict in liveness.tick(now, ranks.clone().map(Rank), &mut rng) {
                match verdict {
                    Verdict::Ask(rank, question) => {
                        asked += 1;
                        answers(&mut liveness, rank, question, now);
                    }
                    Verdict::Lost(rank) => return (Some((rank, now)), asked),
                }
            }
        }
        (None, asked)
    }

    #[test]
    fn a_silent_rank_is_asked_and_then_lost() {
        // Rank 2 answers.
        let (lost, asked) = watch(
            1..3,
            Micros::from_secs(10),
            |liveness, rank, question, now| {
                if rank == Rank(2) {
                    liveness.answered(rank, question, now);
                }
            },
        );
        assert!(asked >= MIN_ASKED);
        let (rank, at) = lost.unwrap();
        assert_eq!(rank, Rank(1));
        let at = at.as_micros();
        assert!((4_000_000..=4_500_000).contains(&at), "{at}");
        let mut liveness = Liveness::new();
        let nobody = core::iter::empty();
        assert_eq!(liveness.tick(Instant::ZERO, nobody, &mut Rng::new(1)), []);
        assert_eq!(liveness.deadline(), Instant::FAR_FUTURE);
    }

    #[test]
    fn old_answers_prove_nothing() {
        let mut first = None;
        let (lost, _) = watch(
            1..2,
            Micros::from_secs(20),
            |liveness, rank, question, now| {
                // The first question is answered; somebody has kept more such answers, and much
                // else, and sends that on from time to time.
                let old = *first.get_or_insert(question);
                liveness.answered(rank, old, now);
                liveness.heard(rank, now);
            },
        );
        let (_, at) = lost.expect("it is dead");
        assert!(at < Instant::ZERO + Micros::from_secs(10), "{at}");
    }

    #[test]
    fn many_that_are_waited_for_do_not_hide_one_that_is_dead() {
        for dead in [0, 70, 999] {
            let (lost, _) = watch(
                0..1000,
                Micros::from_secs(15),
                |liveness, rank, question, now| {
                    if rank != Rank(dead) {
                        liveness.answered(rank, question, now);
                    }
                },
            );
            assert_eq!(lost.map(|(rank, _)| rank), Some(Rank(dead)));
        }
    }

    #[test]
    fn who_is_heard_is_asked_seldom() {
        let (mut liveness, mut rng) = (Liveness::new(), Rng::new(1));
        liveness.start(Instant::ZERO);
        let mut asked = 0;
        for step in 0..120 {
            let now = Instant::ZERO + Micros::from_millis(step * 250);
            liveness.heard(Rank(1), now);
            for verdict in liveness.tick(now, core::iter::once(Rank(1)), &mut rng) {
                let Verdict::Ask(rank, question) = verdict else {
                    panic!("it is alive");
                };
                asked += 1;
                liveness.answered(rank, question, now);
            }
        }
        assert!((8..=11).contains(&asked), "{asked}");
    }
}
