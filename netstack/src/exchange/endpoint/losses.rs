//! The ranks that are lost, in the order in which this one heard of it, and how sure that is.
//!
//! A rank is lost because its node does not answer, or because its program has ended. A program
//! that has ended may have done its part in what is under way here, and its node answers for it:
//! what this rank needs of it fails only when it says so, or does not answer any more. Where a
//! program ended because it was told of another lost rank, that other is the one to name, if an
//! operation would have needed it.
//!
//! Neighbour: `endings` fills it, and says what becomes of operations.
//!
//! Invariant: a rank that an operation has nothing to do with is not named for it; what is known of
//! a rank only becomes surer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::message::Loss;
use crate::ids::Rank;
use crate::time::Instant;

/// How sure it is that nothing comes of a rank any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Sure {
    /// Others say that its program has ended. It begins nothing any more, but may still have
    /// messages for this rank.
    Heard,
    /// It has said so itself, and has no message for this rank.
    Ended,
    /// Its node does not answer: nothing comes of it at all.
    Dead,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    sure: Sure,
    /// Because of whose loss its program ended.
    cause: Option<Rank>,
    /// A receive from any rank has failed for it.
    is_told: bool,
    /// Its program has ended well.
    is_well: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(in crate::exchange) struct Losses {
    ranks: BTreeMap<Rank, Lost>,
    /// The same ranks, the first that was lost first.
    order: Vec<Rank>,
    /// Those whose nodes do not answer, the first first: they are looked at with every packet.
    dead: Vec<Rank>,
    /// When the first of these was lost.
    dead_at: Instant,
}

impl Losses {
    /// Something is heard of a lost rank. Gives how sure its loss was before.
    pub(super) fn add(&mut self, now: Instant, loss: Loss, sure: Sure) -> Option<Sure> {
        let before = self.sure(loss.rank);
        if before.is_none() {
            self.order.push(loss.rank);
        }
        if sure == Sure::Dead && before != Some(Sure::Dead) {
            if self.dead.is_empty() {
                self.dead_at = now;
            }
            self.dead.push(loss.rank);
        }
        let lost = self.ranks.entry(loss.rank).or_insert(Lost {
            sure,
            cause: loss.cause,
            is_told: false,
            is_well: false,
        });
        lost.sure = lost.sure.max(sure);
        lost.is_well |= loss.is_well;
        lost.cause = lost.cause.or(loss.cause);
        before
    }

    /// How sure the loss of a rank is; none where nothing is known of one.
    pub(super) fn sure(&self, rank: Rank) -> Option<Sure> {
        Some(self.ranks.get(&rank)?.sure)
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.ranks.contains_key(&rank)
    }

    /// No message comes of this rank any more.
    pub(in crate::exchange) fn is_silent(&self, rank: Rank) -> bool {
        self.sure(rank).is_some_and(|sure| sure >= Sure::Ended)
    }

    /// What is known of a rank that is lost, as others are told.
    pub(super) fn loss(&self, rank: Rank) -> Option<Loss> {
        let &Lost {
            sure,
            cause,
            is_well,
            ..
        } = self.ranks.get(&rank)?;
        Some(Loss {
            rank,
            cause,
            has_ended: sure < Sure::Dead,
            is_well: is_well && sure < Sure::Dead,
        })
    }

    /// The first that was lost.
    pub(super) fn earliest(&self) -> Option<Loss> {
        self.loss(*self.order.first()?)
    }

    /// The first whose program has ended and whose node answers, as far as is known, of those that
    /// are needed.
    pub(super) fn earliest_ended(&self, needs: impl Fn(Rank) -> bool) -> Option<Rank> {
        let mut order = self.order.iter().copied();
        order.find(|rank| self.sure(*rank) < Some(Sure::Dead) && needs(*rank))
    }

    /// When the first rank was lost whose node did not answer.
    pub(super) fn dead_since(&self) -> Option<Instant> {
        self.dead.first().map(|_| self.dead_at)
    }

    /// The first that was lost of those that are needed.
    pub(super) fn first(&self, needs: impl Fn(Rank) -> bool) -> Option<Rank> {
        self.order.iter().copied().find(|rank| needs(*rank))
    }

    /// The first whose node did not answer of those that are needed.
    pub(super) fn first_dead(&self, needs: impl Fn(Rank) -> bool) -> Option<Rank> {
        self.dead.iter().copied().find(|rank| needs(*rank))
    }

    /// Whom to name where this rank is needed: the one because of which it ended, if that has a
    /// part in the operation.
    pub(super) fn named(&self, rank: Rank, has_part: impl Fn(Rank) -> bool) -> Rank {
        let cause = self.ranks.get(&rank).and_then(|lost| lost.cause);
        let cause = cause.filter(|cause| self.has(*cause) && has_part(*cause));
        cause.unwrap_or(rank)
    }

    /// For whose sake a receive from any of so many ranks fails now: once for each rank that is
    /// lost, so that a program that expects that can go on, and for none that has ended well;
    /// always where nobody is left.
    pub(super) fn of_any(&self, size: u32) -> Option<Rank> {
        let silent = || {
            self.ranks
                .iter()
                .filter(|(_, lost)| lost.sure >= Sure::Ended)
        };
        let is_alone = silent().count() + 1 == size as usize;
        silent()
            .find(|(_, lost)| is_alone || !lost.is_told && !lost.is_well)
            .map(|(rank, _)| *rank)
    }

    /// A receive from any rank has failed for this one.
    pub(super) fn tell(&mut self, rank: Rank) {
        if let Some(lost) = self.ranks.get_mut(&rank) {
            lost.is_told = true;
        }
    }
}
