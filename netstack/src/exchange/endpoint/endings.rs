//! How an endpoint ends, and what it does when another rank does.
//!
//! Neighbours: [`super`] has the operations, `receiving` hears of ends, `liveness` finds out.
//!
//! Invariant: what a lost rank makes fail names the rank that was lost first.

use alloc::vec::Vec;

use super::super::alltoall::Io;
use super::super::message::Item;
use super::super::{Error, OpId};
use super::{BARRIER_WITHIN, Endpoint};
use crate::ids::Rank;
use crate::time::Instant;

impl Endpoint {
    /// The caller knows that a rank is lost.
    pub fn fail(&mut self, now: Instant, rank: Rank) {
        self.lose(now, rank, self.config.me);
        self.settle(now);
    }

    pub(super) fn lose(&mut self, now: Instant, rank: Rank, told_by: Rank) {
        let (me, size) = (self.config.me, self.config.size);
        if rank == me || rank.0 >= size || self.lost.contains_key(&rank) {
            return;
        }
        // Others hear of it from this rank, in as many steps as the number of ranks has binary digits.
        let mut step = 1;
        while step < size {
            let to = Rank(((u64::from(me.0) + u64::from(step)) % u64::from(size)) as u32);
            if to != rank && to != told_by {
                self.outbox.push(to, Item::Lost(rank));
            }
            step *= 2;
        }
        let io = io!(self, now);
        (self.exchanges.iter_mut()).for_each(|exchange| exchange.hurry(io));
        let told = self.letters.lose(rank, io);
        self.lost.insert(rank, told);
        if self.first_lost.is_none() {
            (self.first_lost, self.first_lost_at) = (Some(rank), now);
        }
    }

    /// What still needs a rank that is lost fails, with the first that was lost: whoever waits for a rank in which it failed
    /// hears the same from that. A rank that had done its part and ended is no loss.
    pub(super) fn fail_without_lost(&mut self, now: Instant) {
        let Some(first) = self.first_lost else {
            return;
        };
        let me = self.config.me;
        for exchange in &mut self.exchanges {
            if self.lost.keys().any(|rank| exchange.needs(*rank)) {
                exchange.fail(Error::RankLost(first));
            }
        }
        // One that all have reached is over by then.
        let is_late = now >= self.first_lost_at + BARRIER_WITHIN;
        for barrier in self.barriers.iter_mut().filter(|b| b.result().is_none()) {
            if is_late || self.lost.contains_key(&barrier.waits_for(me)) {
                barrier.fail(Error::RankLost(first));
            }
        }
    }

    /// A posted receive waits for a message behind others that nobody receives and that fill the room there is: a program that waits
    /// for nothing else waits for ever.
    pub fn is_stuck(&self, op: OpId) -> bool {
        self.letters.incoming.is_stuck(op)
    }

    /// The program has ended: what is posted is cancelled, and peers that wait for this rank hear that it is gone. The
    /// endpoint goes on until it is [`Endpoint::drained`].
    pub fn leave(&mut self, now: Instant) {
        if self.left {
            return;
        }
        self.left = true;
        let me = self.config.me;
        let mut waiting: Vec<Rank> = self.early.keys().map(|&(.., rank)| rank).collect();
        while !self.exchanges.is_empty() {
            waiting.extend(self.exchanges[0].waits_for(0));
            self.remove_exchange(0, true);
        }
        while !self.barriers.is_empty() {
            waiting.push(self.remove_barrier(0, true).waits_for(me));
        }
        // Who has a message of this rank to come hears of the end afterwards, when it asks.
        waiting.retain(|rank| *rank != me && !self.letters.has_for(*rank));
        for rank in waiting {
            self.tell_left(rank);
        }
        self.early.clear();
        self.early_tokens.clear();
        self.letters.leave(io!(self, now));
        self.linger(now);
        self.settle(now);
    }

    /// Tells a rank that the program has ended, and first of whom it had lost before.
    pub(super) fn tell_left(&mut self, to: Rank) {
        for lost in self.first_lost.into_iter().chain([self.config.me]) {
            self.outbox.push(to, Item::Lost(lost));
        }
    }

    /// The rank that was lost first.
    pub fn first_lost(&self) -> Option<Rank> {
        self.first_lost
    }

    /// Why an exchange that has failed here has: that rank's part, and what this rank had for each other in it, so that who asks
    /// sees for itself whether this one is at fault.
    pub(super) fn tell_fault(&mut self, to: Rank, (context, number): (u16, u32)) {
        let Some((error, bytes)) = self.numbers.fault((context, number)) else {
            return;
        };
        let (rank, withdrawn) = match error {
            Error::SizeMismatch { rank } => (rank, false),
            Error::Withdrawn(rank) => (rank, true),
            _ => return,
        };
        if let Some(bytes) = bytes {
            self.outbox.push(
                to,
                Item::Ready {
                    context,
                    number,
                    bytes,
                    pushed: 0,
                },
            );
        }
        self.outbox.push(
            to,
            Item::Fault {
                context,
                number,
                rank,
                withdrawn,
            },
        );
    }
}
