//! Messages that have met their receives and come by being pulled: from a few at a time, the others
//! in the order in which they were matched.
//!
//! Neighbours: [`super::incoming`] matches them, [`super::inbound`] is one on its way.
//!
//! Invariant: what a packet, a pull or a look at the clock costs does not grow with the number of
//! messages that wait for their turn.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::OpId;
use super::credit::Waits;
use super::inbound::Inbound;
use super::io::Io;
use super::message::{BlockId, Item};
use super::posted::Receiving;
use crate::ids::Rank;
use crate::time::Instant;

/// Messages that are pulled at a time.
const ACTIVE: usize = 2;
/// Messages that are gone and may stand in the queue, beside as many as are there.
const GONE_MAX: usize = 64;

/// A message that is pulled, or is to be.
#[derive(Debug)]
pub(super) struct Transfer {
    pub receiving: Receiving,
    pub tag: u32,
    pub bytes: u64,
    pub inbound: Inbound,
}

/// Whose message it is, and its number.
type Id = (Rank, u32);

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Transfers {
    all: BTreeMap<Id, Transfer>,
    ops: BTreeMap<OpId, Id>,
    /// Those of which packets were asked for.
    begun: BTreeSet<Id>,
    /// The others, in their order; some may be gone.
    queued: VecDeque<Id>,
}

impl Transfers {
    pub(super) fn insert(&mut self, id: Id, transfer: Transfer) {
        self.ops.insert(transfer.receiving.op, id);
        self.all.insert(id, transfer);
        self.queued.push_back(id);
    }

    pub(super) fn has(&self, id: Id) -> bool {
        self.all.contains_key(&id)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Transfer> {
        self.all.get_mut(&id)
    }

    /// Takes one away, and gives back its credit.
    pub(super) fn remove(&mut self, id: Id, io: &mut Io<'_>) -> Option<Transfer> {
        let transfer = self.all.remove(&id)?;
        self.ops.remove(&transfer.receiving.op);
        io.credit.change(transfer.inbound.outstanding(), 0);
        self.begun.remove(&id);
        // Those that are gone are passed over, as long as they are not most.
        if self.queued.len() > 2 * self.all.len() + GONE_MAX {
            self.queued.retain(|id| self.all.contains_key(id));
        }
        Some(transfer)
    }

    /// The message that an operation receives.
    pub(super) fn of_op(&self, op: OpId) -> Option<Id> {
        self.ops.get(&op).copied()
    }

    /// Numbers of the messages of a sender.
    pub(super) fn numbers(&self, sender: Rank) -> Vec<u32> {
        let of = self.all.range((sender, 0)..=(sender, u32::MAX));
        of.map(|((_, number), _)| *number).collect()
    }

    /// Whose messages they are, in the order of ranks; some stand there often.
    pub(super) fn senders(&self) -> impl Iterator<Item = Rank> {
        self.all.keys().map(|(sender, _)| *sender)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Asks for packets, as far as the credit goes. What exchanges have asked for of later rounds
    /// takes nothing from messages.
    pub(super) fn pull(&mut self, io: &mut Io<'_>) {
        let outstanding = |id: &Id| self.all[id].inbound.outstanding();
        let (mut active, mut used) = (0, 0);
        for packets in self
            .begun
            .iter()
            .map(outstanding)
            .filter(|packets| *packets > 0)
        {
            active += 1;
            used += packets;
        }
        for id in &self.begun {
            if let Some(transfer) = self.all.get_mut(id) {
                transfer.pull(*id, (&mut active, &mut used), io);
            }
        }
        while let Some(&id) = self.queued.front() {
            let Some(transfer) = self.all.get_mut(&id) else {
                self.queued.pop_front();
                continue;
            };
            if !transfer.pull(id, (&mut active, &mut used), io) {
                return;
            }
            self.queued.pop_front();
            self.begun.insert(id);
        }
    }

    /// When something is due.
    pub(super) fn deadline(&self, waits: Waits) -> Instant {
        let begun = self.begun.iter().filter_map(|id| self.all.get(id));
        let deadlines = begun.filter_map(|transfer| transfer.inbound.deadline(waits));
        deadlines.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Does what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        let waits = io.credit.waits();
        for id in &self.begun {
            let Some(Transfer { inbound, .. }) = self.all.get_mut(id) else {
                continue;
            };
            if inbound.deadline(waits).is_some_and(|at| at <= io.now) {
                let before = inbound.outstanding();
                if let Some(pull) = inbound.time_out(io.now, waits) {
                    let block = BlockId::Message(id.1);
                    io.outbox.push(id.0, Item::Pull { block, pull });
                }
                io.credit.change(before, inbound.outstanding());
            }
        }
    }
}

impl Transfer {
    /// Asks for packets of this one, where `active` are under way with `used` packets; false when
    /// it did not.
    fn pull(
        &mut self,
        (sender, number): Id,
        (active, used): (&mut usize, &mut u32),
        io: &mut Io<'_>,
    ) -> bool {
        let inbound = &mut self.inbound;
        let before = inbound.outstanding();
        if before == 0 && *active >= ACTIVE {
            return false;
        }
        let wants = inbound.wants();
        let each = io.credit.each();
        let most = wants
            .min(each.saturating_sub(before))
            .min(io.credit.total().saturating_sub(*used))
            .min(io.credit.room());
        let worth = io.credit.worth().min(each);
        let is_worth = most >= worth || most == wants || inbound.has_lost();
        if most == 0 || !is_worth {
            return false;
        }
        let Some((pull, again)) = inbound.ask(io.now, most, true) else {
            return false;
        };
        *active += usize::from(before == 0);
        io.count_again(again);
        io.credit.asked(io.now, sender, pull.first);
        io.credit.change(before, inbound.outstanding());
        *used += inbound.outstanding() - before;
        let block = BlockId::Message(number);
        io.outbox.push(sender, Item::Pull { block, pull });
        true
    }
}
