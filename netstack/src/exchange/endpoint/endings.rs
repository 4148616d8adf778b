//! How an endpoint ends, and what it does when another rank does.
//!
//! Neighbours: [`super`] has the operations, `receiving` hears of ends, `liveness` finds out.
//!
//! Invariant: what a lost rank makes fail names the rank that was lost first.

use alloc::vec::Vec;

use super::super::alltoall::Io;
use super::super::message::{ALL_STEPS, BlockId, Item, Why};
use super::super::numbers::Line;
use super::super::{Error, MAX_CONTEXTS, OpId, PostError};
use super::{BARRIER_WITHIN, Endpoint, find};
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
        (self.exchanges.iter_mut()).for_each(|exchange| exchange.hurry(rank, io));
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

    /// As many messages wait to be received as there is room for; else no receive is stuck.
    pub fn is_full(&self) -> bool {
        self.letters.incoming.is_full()
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
        waiting.extend(self.early_reports.clear());
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

    /// This rank takes no part in its next all-to-all of a context, because of `why`: it counts as begun and failed, and ranks that need this
    /// one in it hear of the reason. That needs no room, so it can be done where the exchange cannot be posted.
    ///
    /// # Errors
    /// There is no such context, or no such rank; nothing has changed then.
    pub fn sit_out(&mut self, now: Instant, context: u32, why: Error) -> Result<(), PostError> {
        if context >= MAX_CONTEXTS {
            return Err(PostError::BadContext);
        }
        if reason(why).is_none_or(|(rank, _)| rank.0 >= self.config.size) {
            return Err(PostError::BadRank);
        }
        self.skip_exchange(now, context as u16, Some(why));
        Ok(())
    }

    /// Counts an exchange that this rank does not begin. Who has said that it is ready waits for this rank, and hears at once.
    pub(super) fn skip_exchange(&mut self, now: Instant, context: u16, why: Option<Error>) {
        let number = self.numbers.begin(context, Line::Exchanges);
        let id = (context, number);
        self.numbers.spoil(context, Line::Exchanges, number);
        if let Some(why) = why {
            self.numbers.note_fault(id, why, None);
        }
        self.linger(now);
        let reports = self.early_reports.take(id).into_iter();
        let reports = reports.filter(|(_, step)| *step != ALL_STEPS);
        let waiting: Vec<Rank> = (self.take_early(id).into_iter())
            .map(|(rank, _)| rank)
            .chain(reports.map(|(rank, _)| rank))
            .collect();
        for rank in waiting {
            self.tell_spoiled(rank, id);
        }
    }

    /// Tells a rank that an exchange has failed here, and why: whom this rank has lost, and whose part was at fault.
    pub(super) fn tell_spoiled(&mut self, to: Rank, (context, number): (u16, u32)) {
        if let Some(lost) = self.first_lost {
            self.outbox.push(to, Item::Lost(lost));
        }
        // With what this rank had for each other in it, so that who asks sees for itself whether this one is at fault.
        if let Some((error, bytes)) = self.numbers.fault((context, number))
            && let Some((rank, why)) = reason(error)
        {
            let fault = Item::Fault {
                context,
                number,
                rank,
                why,
                bytes,
            };
            self.outbox.push(to, fault);
        }
        let block = BlockId::Exchange(context, number);
        self.outbox.push(to, Item::Refuse { block, gone: true });
    }

    /// An exchange that this rank needs another in has failed there, which says why.
    pub(super) fn told_fault(
        &mut self,
        from: Rank,
        id: (u16, u32),
        (rank, why): (Rank, Why),
        bytes: Option<u64>,
    ) {
        if rank.0 >= self.config.size {
            self.counters.bad += 1;
            return;
        }
        let error = match why {
            // What fails at both ends is the other's.
            Why::Length if rank == self.config.me => Error::SizeMismatch { rank: from },
            _ if rank == self.config.me => Error::Withdrawn(from),
            Why::Length => Error::SizeMismatch { rank },
            Why::Withdrawn => Error::Withdrawn(rank),
            Why::Lost => Error::RankLost(rank),
        };
        if let Some(exchange) = find(&mut self.exchanges, id) {
            exchange.failed_there(from, error, bytes);
        }
    }
}

/// The rank that is at fault when an exchange fails with this error, and what it has done; none where it is not another's part.
pub(in crate::exchange) fn reason(error: Error) -> Option<(Rank, Why)> {
    match error {
        Error::SizeMismatch { rank } => Some((rank, Why::Length)),
        Error::Withdrawn(rank) => Some((rank, Why::Withdrawn)),
        Error::RankLost(rank) => Some((rank, Why::Lost)),
        Error::Truncated { .. } | Error::Gone => None,
    }
}
