//! What an operation acts on: the parts of the endpoint that all operations share.
//!
//! Neighbours: [`super::endpoint`] lends it to the operations.
//!
//! Invariant: an operation reaches nothing of the endpoint but this.

use super::Counters;
use super::credit::Credit;
use super::grants::Grants;
use super::message::{BlockId, Item, Pull};
use super::outbox::Outbox;
use crate::ids::Rank;
use crate::rng::Rng;
use crate::time::Instant;

/// What an operation acts on.
pub(super) struct Io<'a> {
    pub now: Instant,
    pub me: Rank,
    pub outbox: &'a mut Outbox,
    pub grants: &'a mut Grants,
    pub credit: &'a mut Credit,
    pub counters: &'a mut Counters,
    pub rng: &'a mut Rng,
}

impl Io<'_> {
    /// So many packets are asked for again.
    pub(super) fn count_again(&mut self, again: u32) {
        if again > 0 {
            self.counters.asked_again += u64::from(again);
            self.credit.lost();
        }
    }

    /// Asks a sender for packets. Where packets are lost, a pull that no later one would show to be
    /// lost is said twice.
    pub(super) fn say_pull(&mut self, from: Rank, block: BlockId, pull: Pull) {
        self.outbox.push(from, Item::Pull { block, pull });
        if pull.tell && self.credit.is_lossy() {
            self.outbox.push(from, Item::Pull { block, pull });
        }
    }

    /// Asks for packets of a block that does not come unasked. As long as this rank has not seen
    /// how long an answer takes that is said twice: that it was lost would be seen late.
    pub(super) fn say_pull_of_long(&mut self, from: Rank, block: BlockId, pull: Pull) {
        if self.credit.is_new() {
            self.outbox.push(from, Item::Pull { block, pull });
        }
        self.say_pull(from, block, pull);
    }
}
