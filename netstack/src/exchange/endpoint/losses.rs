//! The ranks that are lost, in the order in which this one heard of it.
//!
//! A rank is lost because its node is, or because its program has ended: well, or because it was told of another that was lost
//! before. In that case the other is the one to name, if an operation would have needed it.
//!
//! Neighbour: `endings` fills it, and says what becomes of operations.
//!
//! Invariant: a rank that an operation has nothing to do with is not named for it.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::message::Loss;
use crate::ids::Rank;
use crate::time::Instant;

#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Because of whose loss its program ended.
    cause: Option<Rank>,
    /// A receive from any rank has failed for it.
    is_told: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Losses {
    ranks: BTreeMap<Rank, Lost>,
    /// The same ranks, the first that was lost first: it is looked at with every packet.
    order: Vec<Rank>,
    /// When the first was lost.
    first_at: Instant,
}

impl Losses {
    /// A rank is lost, which this one has not heard before. `is_told`: a receive from any rank has failed for it.
    pub(super) fn add(&mut self, now: Instant, loss: Loss, is_told: bool) {
        if self.order.is_empty() {
            self.first_at = now;
        }
        let lost = Lost {
            cause: loss.cause,
            is_told,
        };
        if self.ranks.insert(loss.rank, lost).is_none() {
            self.order.push(loss.rank);
        }
    }

    /// Somebody knows because of whom a rank ended of which that was not known.
    pub(super) fn learn(&mut self, loss: Loss) {
        if let Some(lost) = self.ranks.get_mut(&loss.rank) {
            lost.cause = lost.cause.or(loss.cause);
        }
    }

    pub(super) fn has(&self, rank: Rank) -> bool {
        self.ranks.contains_key(&rank)
    }

    /// What is known of a rank that is lost.
    pub(super) fn loss(&self, rank: Rank) -> Option<Loss> {
        let cause = self.ranks.get(&rank)?.cause;
        Some(Loss { rank, cause })
    }

    /// The first that was lost.
    pub(super) fn earliest(&self) -> Option<Loss> {
        self.loss(*self.order.first()?)
    }

    /// When that was.
    pub(super) fn first_at(&self) -> Instant {
        self.first_at
    }

    /// The first that was lost of those that are needed.
    pub(super) fn first(&self, needs: impl Fn(Rank) -> bool) -> Option<Rank> {
        self.order.iter().copied().find(|rank| needs(*rank))
    }

    /// Whom to name where this rank is needed: the one because of which it ended, if that has a part in the operation.
    pub(super) fn named(&self, rank: Rank, has_part: impl Fn(Rank) -> bool) -> Rank {
        let cause = self.ranks.get(&rank).and_then(|lost| lost.cause);
        let cause = cause.filter(|cause| self.has(*cause) && has_part(*cause));
        cause.unwrap_or(rank)
    }

    /// For whose sake a receive from any of so many ranks fails now: once for each rank, so that a program that expects ranks
    /// to end can go on; always where nobody is left.
    pub(super) fn of_any(&self, size: u32) -> Option<Rank> {
        let is_alone = self.ranks.len() + 1 == size as usize;
        let mut lost = self.ranks.iter();
        lost.find(|(_, lost)| is_alone || !lost.is_told)
            .map(|(rank, _)| *rank)
    }

    /// A receive from any rank has failed for this one.
    pub(super) fn tell(&mut self, rank: Rank) {
        if let Some(lost) = self.ranks.get_mut(&rank) {
            lost.is_told = true;
        }
    }
}
