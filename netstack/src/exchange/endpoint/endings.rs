//! How an endpoint ends, and what it does when another rank does.
//!
//! Neighbours: [`super`] has the operations, `receiving` hears of ends, `liveness` finds out.
//!
//! Invariant: what fails names a rank that has a part in it, and that was lost or has taken back
//! its part.

use alloc::vec::Vec;

use super::super::group::Together;
use super::super::io::Io;
use super::super::message::{ALL_STEPS, BlockId, Item, Loss, Why};
use super::super::{Among, BufferId, Error, OpId, PostError};
use super::losses::Sure;
use super::{BARRIER_WITHIN, Endpoint, find};
use crate::ids::Rank;
use crate::time::Instant;

impl Endpoint {
    /// What it was made with.
    #[cfg(test)]
    pub(in crate::exchange) fn config(&self) -> super::super::Config {
        self.config
    }

    /// The caller knows that a rank is lost.
    pub fn fail(&mut self, now: Instant, rank: Rank) {
        self.lose(now, Loss::of(rank), self.config.me);
        self.settle(now);
    }

    pub(super) fn lose(&mut self, now: Instant, loss: Loss, told_by: Rank) {
        let (me, size, rank) = (self.config.me, self.config.size, loss.rank);
        if rank == me || rank.0 >= size {
            return;
        }
        let sure = match (loss.has_ended, told_by == rank) {
            (false, _) => Sure::Dead,
            (true, true) => Sure::Ended,
            (true, false) => Sure::Heard,
        };
        let before = self.lost.add(now, loss, sure);
        if before >= Some(sure) {
            return;
        }
        if before < Some(Sure::Ended) && sure >= Sure::Ended {
            // Of one that has ended well no message is missed, unless nothing can come any more.
            let fails_any = self.lost.of_any(size).is_some();
            if self.messages.lose(rank, fails_any, io!(self, now)) {
                self.lost.tell(rank);
            }
        }
        let io = io!(self, now);
        (self.exchanges.iter_mut()).for_each(|exchange| exchange.hurry(rank, io));
        if before.is_some() && sure < Sure::Dead {
            return;
        }
        // Others hear of it from this rank, in as many steps as the number of ranks has binary
        // digits.
        let mut step = 1;
        while step < size {
            let to = Rank(((u64::from(me.0) + u64::from(step)) % u64::from(size)) as u32);
            if to != rank && to != told_by {
                self.outbox.push(to, Item::Lost(loss));
            }
            step *= 2;
        }
    }

    /// What still needs a rank whose node does not answer fails. One whose program has ended may
    /// have done its part, and is asked.
    pub(super) fn fail_without_lost(&mut self, now: Instant) {
        let Some(since) = self.lost.dead_since() else {
            return;
        };
        for exchange in &mut self.exchanges {
            if let Some(rank) = self.lost.first_dead(|rank| exchange.needs(rank)) {
                let named = self.lost.named(rank, |rank| exchange.has_part(rank));
                exchange.fail(Error::RankLost(named));
            }
        }
        // One that all have reached is over by then.
        let is_late = now >= since + BARRIER_WITHIN;
        for barrier in self.barriers.iter_mut().filter(|b| b.result().is_none()) {
            let awaited = barrier.waits_for();
            let dead = match self.lost.sure(awaited) {
                Some(Sure::Dead) => Some(awaited),
                _ if is_late => self.lost.first_dead(|rank| barrier.has(rank)),
                _ => None,
            };
            if let Some(dead) = dead {
                let named = self.lost.named(dead, |rank| barrier.has(rank));
                barrier.fail(Error::RankLost(named));
            }
        }
    }

    /// A posted receive waits for a message behind others that nobody receives and that fill the
    /// room there is: a program that waits for nothing else waits for ever.
    pub fn is_stuck(&self, op: OpId) -> bool {
        self.messages.incoming.is_stuck(op)
    }

    /// The program gives memory for messages that wait: a buffer of so many bytes, which is this
    /// endpoint's from now on and in none that was given before. Each message takes 64 bytes of it
    /// and its own, up to [`super::super::SHORT`], once the room here is used. At most so many
    /// messages wait in all such memory: each takes some here, too.
    pub fn add_room(&mut self, buffer: BufferId, bytes: u64, most: usize) {
        self.messages.incoming.add_room(buffer, bytes, most);
    }

    /// As many messages wait to be received as there is room for; else no receive is stuck.
    pub fn is_full(&self) -> bool {
        self.messages.incoming.is_full()
    }

    /// The program has ended, and its memory is not touched any more: what is posted is cancelled,
    /// and peers that wait for this rank hear that it has ended. The endpoint goes on answering for
    /// what was done before, and sends what it has copied: whoever was late, or missed the last
    /// answer, asks for it. It is kept as long as there is room for it; once it is forgotten its
    /// peers take this rank for lost.
    ///
    /// `is_well`: the program has ended by itself and without an error. Ranks that wait for a
    /// message of any rank go on waiting then.
    pub fn leave(&mut self, now: Instant, is_well: bool) {
        if self.left {
            return;
        }
        (self.left, self.is_well) = (true, is_well);
        let me = self.config.me;
        // Who is ready for what this rank has not begun, and does not begin any more.
        let early = core::mem::take(&mut self.early);
        for (context, number, rank) in early.into_keys() {
            self.tell_ended_exchange(rank, (context, number));
        }
        let mut waiting = self.early_reports.clear();
        while !self.exchanges.is_empty() {
            let exchange = &self.exchanges[0];
            let id = (exchange.context, exchange.number);
            let partners: Vec<Rank> = exchange.waits_for(0).filter(|rank| *rank != me).collect();
            self.remove_exchange(0, true);
            for rank in partners {
                self.tell_ended_exchange(rank, id);
            }
        }
        while !self.barriers.is_empty() {
            waiting.push(self.remove_barrier(0, true).waits_for());
        }
        // Who has a message of this rank to come hears of the end afterwards, when it asks.
        waiting.retain(|rank| *rank != me && !self.messages.has_for(*rank));
        for rank in waiting {
            self.tell_left(rank);
        }
        self.early_tokens.clear();
        let loss = self.own_loss();
        self.messages.leave(loss, io!(self, now));
        self.settle(now);
    }

    /// The program has ended.
    pub fn has_left(&self) -> bool {
        self.left
    }

    /// Tells a rank that an exchange will not have this rank's part, because its program has ended.
    pub(super) fn tell_ended_exchange(&mut self, to: Rank, (context, number): (u16, u32)) {
        self.tell_left(to);
        let fault = Item::Fault {
            context,
            number,
            rank: self.config.me,
            why: Why::Lost,
            bytes: None,
        };
        self.outbox.push(to, fault);
    }

    /// Tells a rank that the program has ended, and because of whom.
    pub(super) fn tell_left(&mut self, to: Rank) {
        // It has a message to come, and hears of the end after that.
        if self.messages.has_for(to) {
            return;
        }
        let cause = self.cause.and_then(|rank| self.lost.loss(rank));
        for loss in cause.into_iter().chain([self.own_loss()]) {
            self.outbox.push(to, Item::Lost(loss));
        }
    }

    /// The end of this rank's program, as others hear of it.
    fn own_loss(&self) -> Loss {
        Loss {
            rank: self.config.me,
            cause: self.cause.filter(|rank| self.lost.has(*rank)),
            has_ended: true,
            is_well: self.is_well,
        }
    }

    /// The rank that is lost, as the program was told last.
    pub fn told_lost(&self) -> Option<Rank> {
        self.cause
    }

    /// This rank takes no part in an all-to-all of a group, because of `why`: it counts as
    /// begun and failed, and ranks that need this one in it hear of the reason. That needs no room,
    /// so it can be done where the exchange cannot be posted.
    ///
    /// # Errors
    /// There is no such context, group or rank; nothing has changed then.
    pub fn sit_out(&mut self, among: &Among, why: Error) -> Result<(), PostError> {
        if reason(why).is_none_or(|(rank, _)| rank.0 >= self.config.size) {
            return Err(PostError::BadRank);
        }
        self.check_among(among)?;
        self.skip_exchange(among, why);
        Ok(())
    }

    /// Counts an exchange that this rank does not begin. Who has said that it is ready waits for
    /// this rank, and hears at once.
    pub(super) fn skip_exchange(&mut self, among: &Among, why: Error) {
        let signature = self.members(among).signature(Together::Exchange);
        let (id, early) = self.begin_number(among, signature);
        self.numbers.spoil(id.0, id.1);
        self.numbers.note_fault(id, why, None);
        let reports = early.reports.into_iter();
        let reports = reports.filter(|(_, step)| *step != ALL_STEPS);
        let waiting: Vec<Rank> = (early.ready.into_iter())
            .map(|(rank, _)| rank)
            .chain(reports.map(|(rank, _)| rank))
            .collect();
        for rank in waiting {
            self.tell_spoiled(rank, id);
        }
    }

    /// Tells a rank that an exchange has failed here, and why: whose part was at fault.
    pub(super) fn tell_spoiled(&mut self, to: Rank, (context, number): (u16, u32)) {
        let fault = self.numbers.fault((context, number));
        let fault = fault.and_then(|(error, bytes)| Some((reason(error)?, bytes)));
        // With what this rank had for each other in it, so that who asks sees for itself whether
        // this one is at fault.
        if let Some(((rank, why), bytes)) = fault {
            self.tell_if_lost(to, rank, why);
            let fault = Item::Fault {
                context,
                number,
                rank,
                why,
                bytes,
            };
            self.outbox.push(to, fault);
        } else if self.left {
            // Its program ended during the exchange. To refuse as well would read as if it had
            // withdrawn from it alone.
            return self.tell_ended_exchange(to, (context, number));
        }
        let block = BlockId::Exchange(context, number);
        self.outbox.push(to, Item::Refuse { block, gone: true });
    }

    fn tell_if_lost(&mut self, to: Rank, rank: Rank, why: Why) {
        if let Some(loss) = self.lost.loss(rank).filter(|_| why == Why::Lost) {
            self.outbox.push(to, Item::Lost(loss));
        }
    }

    /// Tells a rank that a barrier has failed here, and because of whom.
    pub(super) fn tell_broken(&mut self, to: Rank, (context, number): (u16, u32)) {
        let fault = self.numbers.fault((context, number));
        let (rank, why) = match fault.and_then(|(error, _)| reason(error)) {
            Some(reason) => reason,
            None if self.left => {
                self.tell_left(to);
                (self.config.me, Why::Lost)
            }
            None => (self.config.me, Why::Withdrawn),
        };
        self.tell_if_lost(to, rank, why);
        let broken = Item::Broken {
            context,
            number,
            rank,
            why,
        };
        self.outbox.push(to, broken);
    }

    /// A barrier has failed at another rank, which says why.
    pub(super) fn told_broken(&mut self, from: Rank, id: (u16, u32), fault: (Rank, Why)) {
        let Some(error) = self.error_of(from, fault) else {
            self.counters.bad += 1;
            return;
        };
        let mut barriers = self.barriers.iter_mut();
        let Some(barrier) = barriers.find(|barrier| barrier.id() == id) else {
            // It is not said again.
            if let Error::Other(rank) = error
                && let Some(early) = self.early_token(from, id)
            {
                early.broken = Some(rank);
            }
            return;
        };
        if barrier.has(from) {
            barrier.fail(match error {
                Error::RankLost(rank) => {
                    Error::RankLost(self.lost.named(rank, |rank| barrier.has(rank)))
                }
                other => other,
            });
        }
    }

    /// An exchange that this rank needs another in has failed there, which says why.
    pub(super) fn told_fault(
        &mut self,
        from: Rank,
        id: (u16, u32),
        fault: (Rank, Why),
        bytes: Option<u64>,
    ) {
        let Some(error) = self.error_of(from, fault) else {
            self.counters.bad += 1;
            return;
        };
        if let Some(exchange) = find(&mut self.exchanges, id).filter(|e| e.has(from)) {
            let error = match error {
                Error::RankLost(rank) => {
                    Error::RankLost(self.lost.named(rank, |rank| exchange.has_part(rank)))
                }
                other => other,
            };
            exchange.failed_there(from, error, bytes);
        }
    }

    /// What fails here when an operation has failed at another rank because of this one's part;
    /// none where there is no such rank.
    fn error_of(&self, from: Rank, (rank, why): (Rank, Why)) -> Option<Error> {
        if rank.0 >= self.config.size {
            return None;
        }
        Some(match why {
            // What fails at both ends is the other's.
            Why::Length if rank == self.config.me => Error::SizeMismatch { rank: from },
            Why::Other if rank == self.config.me => Error::Other(from),
            _ if rank == self.config.me => Error::Withdrawn(from),
            Why::Length => Error::SizeMismatch { rank },
            Why::Withdrawn => Error::Withdrawn(rank),
            Why::Other => Error::Other(rank),
            Why::Lost => Error::RankLost(rank),
        })
    }
}

/// The rank that is at fault when an exchange fails with this error, and what it has done; none
/// where it is not another's part.
pub(in crate::exchange) fn reason(error: Error) -> Option<(Rank, Why)> {
    match error {
        Error::SizeMismatch { rank } => Some((rank, Why::Length)),
        Error::Withdrawn(rank) => Some((rank, Why::Withdrawn)),
        Error::Other(rank) => Some((rank, Why::Other)),
        Error::RankLost(rank) => Some((rank, Why::Lost)),
        Error::Truncated { .. } | Error::Gone => None,
    }
}
