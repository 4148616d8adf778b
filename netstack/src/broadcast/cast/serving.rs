//! What others wait for here: requests for blocks that are not here yet (parked), and requests
//! whose turn has not come.
//!
//! DATA itself is the answer to a request. One that has waited for longer than is normal in the
//! scheme is answered PARKED or QUEUED, so that its asker knows that it is kept.
//!
//! Invariant: a request is kept once, in one slot; the order of service is the scheme's.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::pulling::WINDOW;
use super::way::COVERED;
use super::{Cast, Consent, Io};
use crate::broadcast::message::{Answer, Blocks, MemberIndex, Wants};
use crate::broadcast::plan::Service;
use crate::time::{Instant, Micros};

/// Block times after which a request that waits is answered, over what the scheme says is normal:
/// two times the way there and back that a window covers, in either direction.
pub(super) const KEPT_WAITING: u64 = 4 * COVERED;
/// Requests kept for one cast: those of a row's children, or of a column, several blocks each; at
/// the source those of the first layer.
pub(super) const MAX_WAITS: usize = 4096;
/// Trains that are remembered (more where the others are far away), and for how many block times
/// they may be on their way: against a block that is only named again, and against one that is
/// asked for again.
const MAX_SENT: usize = 4 * WINDOW as usize;
const REMINDED: u64 = KEPT_WAITING;
const REPEATED: u64 = 24;
/// The place of a request that a program waits for; a scheme's own order begins there at most.
const URGENT: u64 = 0;
/// No request is for this block.
const FREE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Wait {
    asker: MemberIndex,
    /// When it came.
    since: Instant,
    /// Tells uses of a slot apart.
    generation: u32,
    fragments: u64,
    ready: bool,
    answered: bool,
    /// A program waits for it.
    urgent: bool,
    /// What is sent is to be sealed.
    sealed: bool,
}

/// A train to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Train {
    pub to: MemberIndex,
    pub block: u32,
    pub fragments: u64,
    /// How long its request waited.
    pub held: Micros,
    /// In datagrams that are sealed.
    pub sealed: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Serve {
    /// Block numbers of `waits`, apart for a fast search; [`FREE`] where there is none.
    blocks: Vec<u32>,
    waits: Vec<Wait>,
    free: Vec<u32>,
    /// Requests whose block is here: order, slot, generation.
    ready: BinaryHeap<Reverse<(u64, u32, u32)>>,
    ready_count: usize,
    /// Slots and generations in the order of arrival, until answered.
    unanswered: VecDeque<(Instant, u32, u32)>,
    /// The last trains, and when they were sent.
    sent: VecDeque<(Instant, MemberIndex, u32)>,
}

impl Serve {
    /// Requests that wait for their block.
    pub(crate) fn parked(&self) -> usize {
        self.blocks.len() - self.free.len() - self.ready_count
    }

    /// Requests that wait for their turn.
    pub(crate) fn ready(&self) -> usize {
        self.ready_count
    }

    pub(super) fn clear(&mut self) {
        *self = Serve::default();
    }

    fn find(&self, block: u32, asker: MemberIndex) -> Option<usize> {
        let slots = self.blocks.iter().enumerate();
        let mut same = slots.filter(|(_, kept)| **kept == block);
        same.find(|(at, _)| self.waits[*at].asker == asker)
            .map(|(at, _)| at)
    }

    fn is_current(&self, slot: u32, generation: u32) -> bool {
        let wait = &self.waits[slot as usize];
        wait.generation == generation && self.blocks[slot as usize] != FREE
    }

    fn keep(&mut self, now: Instant, block: u32, asker: MemberIndex, fragments: u64) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.blocks.push(FREE);
            self.waits.push(Wait {
                asker,
                since: now,
                generation: 0,
                fragments: 0,
                ready: false,
                answered: false,
                urgent: false,
                sealed: false,
            });
            self.blocks.len() as u32 - 1
        });
        self.blocks[slot as usize] = block;
        let wait = &mut self.waits[slot as usize];
        wait.asker = asker;
        wait.since = now;
        wait.generation = wait.generation.wrapping_add(1);
        wait.fragments = fragments;
        wait.ready = false;
        wait.answered = false;
        wait.urgent = false;
        wait.sealed = false;
        let generation = wait.generation;
        self.unanswered.push_back((now, slot, generation));
        slot
    }

    fn release(&mut self, slot: u32) {
        self.not_ready(slot);
        self.blocks[slot as usize] = FREE;
        self.free.push(slot);
        // What is stale goes when nothing can refer to it.
        if self.ready_count == 0 {
            self.ready.clear();
        }
        if self.free.len() == self.blocks.len() {
            self.ready.clear();
            self.unanswered.clear();
        }
        while let Some((_, slot, generation)) = self.unanswered.front() {
            if self.is_current(*slot, *generation) {
                break;
            }
            self.unanswered.pop_front();
        }
    }

    fn make_ready(&mut self, slot: u32, order: u64) {
        let wait = &mut self.waits[slot as usize];
        if !wait.ready {
            wait.ready = true;
            self.ready_count += 1;
            let order = if wait.urgent { URGENT } else { order };
            self.ready.push(Reverse((order, slot, wait.generation)));
        }
    }

    /// What is asked for in this slot is not to be sent now.
    fn not_ready(&mut self, slot: u32) {
        let wait = &mut self.waits[slot as usize];
        self.ready_count -= usize::from(wait.ready);
        wait.ready = false;
    }

    /// A program waits for what is asked for in this slot: it goes before all others, now or when
    /// it is here.
    fn hurry(&mut self, slot: u32) {
        let wait = &mut self.waits[slot as usize];
        if !core::mem::replace(&mut wait.urgent, true) && wait.ready {
            // What is in the queue for it already finds the slot in other use, or free.
            self.ready.push(Reverse((URGENT, slot, wait.generation)));
        }
    }

    pub(super) fn cancel(&mut self, asker: MemberIndex, blocks: &Blocks) {
        for block in blocks.as_slice() {
            if let Some(slot) = self.find(*block, asker) {
                self.release(slot as u32);
            }
        }
    }

    pub(super) fn cancel_all(&mut self, asker: MemberIndex) {
        for slot in 0..self.blocks.len() {
            if self.blocks[slot] != FREE && self.waits[slot].asker == asker {
                self.release(slot as u32);
            }
        }
    }

    /// Notes a train that is sent; of those before it so many are remembered at most.
    fn sent(&mut self, now: Instant, asker: MemberIndex, block: u32, most: usize) {
        while self.sent.len() >= most {
            self.sent.pop_front();
        }
        self.sent.push_back((now, asker, block));
    }

    /// When the oldest request is due for an answer; set by [`Cast::serve_tick`]'s rule.
    fn oldest(&self) -> Option<Instant> {
        self.unanswered.front().map(|(at, ..)| *at)
    }
}

impl Cast {
    /// The whole block was sent to this member a moment ago: its request crossed the data.
    fn is_on_its_way(
        &self,
        asker: MemberIndex,
        block: u32,
        fragments: u64,
        place: usize,
        now: Instant,
    ) -> bool {
        let all = self.setup.object.fragments(block);
        let slots = if place > 0 { REMINDED } else { REPEATED };
        let lately = self.shared(slots) + self.way.beyond();
        let mut sent = (self.serve.sent.iter().rev()).take_while(|(at, ..)| *at + lately > now);
        fragments == all
            && all.count_ones() > 1
            && sent.any(|(_, to, sent)| *to == asker && *sent == block)
    }

    fn answer_after(&self) -> Micros {
        let normal = u64::from(self.planner.kept_waiting());
        self.shared(KEPT_WAITING + normal)
    }

    /// The time of so many blocks, as many as there are casts that share the link.
    pub(super) fn shared(&self, count: u64) -> Micros {
        let crowd = u64::from(self.way.crowd());
        self.pace.blocks(count.saturating_mul(crowd))
    }

    pub(super) fn serving_deadline(&self) -> Instant {
        match self.serve.oldest() {
            Some(at) => at + self.answer_after(),
            None => Instant::FAR_FUTURE,
        }
    }

    /// REQUEST.
    pub(super) fn requested(&mut self, asker: MemberIndex, wants: &Wants, io: &mut Io<'_>) {
        if self.consent == Consent::Out {
            for want in wants.iter() {
                self.answer(asker, Answer::NotHere, Blocks::one(want.block), io);
            }
            return;
        }
        for (place, want) in wants.iter().enumerate() {
            let block = want.block;
            if block >= self.have.length() || asker == self.me {
                io.counters.bad += 1;
                continue;
            }
            let fragments = want.fragments & self.setup.object.fragments(block);
            let here = self.have.contains(block);
            let service = self.plan(io.now, io.rng, |planner, view| {
                planner.service(view, asker, block)
            });
            let parks = service == Service::WhenHere && self.consent != Consent::Serving;
            if service == Service::Refuse || (!here && !parks) || fragments == 0 {
                self.answer(asker, Answer::NotHere, Blocks::one(block), io);
                continue;
            }
            if let Some(slot) = self.serve.find(block, asker) {
                // Asked again: the newest request says what is missing. The first block of a
                // message wants to know; the others are only named again in case that their first
                // request was lost.
                let wait = &mut self.serve.waits[slot];
                wait.fragments = fragments;
                wait.sealed |= want.sealed;
                let ready = wait.ready;
                if !here && !want.urgent {
                    self.stand_in(asker, block, io);
                }
                if want.urgent {
                    self.serve.hurry(slot as u32);
                    if !here {
                        self.want_block(block, io);
                    }
                }
                if place > 0 {
                    continue;
                }
                let answer = if ready {
                    Answer::Queued
                } else {
                    Answer::Parked
                };
                self.answer(asker, answer, Blocks::one(block), io);
                continue;
            }
            // What is to be sealed was not sent so before: the asker has just found it wrong.
            if here && !want.sealed && self.is_on_its_way(asker, block, fragments, place, io.now) {
                continue;
            }
            if self.serve.blocks.len() - self.serve.free.len() >= MAX_WAITS {
                self.answer(asker, Answer::Busy, Blocks::one(block), io);
                continue;
            }
            let slot = self.serve.keep(io.now, block, asker, fragments);
            // Only for the first is a sign of life expected: the others are credits.
            self.serve.waits[slot as usize].answered = place > 0;
            self.serve.waits[slot as usize].urgent = want.urgent;
            self.serve.waits[slot as usize].sealed = want.sealed;
            if want.urgent && !here {
                self.want_block(block, io);
            }
            match here {
                true if self.roster.is_proven(asker) => {
                    let order = self.planner.order(block, asker);
                    self.serve.make_ready(slot, order);
                }
                false if !want.urgent => self.stand_in(asker, block, io),
                // When it has answered from where it says that it is, or when the block is here.
                _ => {}
            }
        }
    }

    /// Fetches a block for others who miss its usual server.
    fn stand_in(&mut self, asker: MemberIndex, block: u32, io: &mut Io<'_>) {
        let stands_in = self.plan(io.now, io.rng, |planner, view| {
            planner.stands_in(view, asker, block)
        });
        if stands_in {
            self.fetch_instead(block, io);
        }
    }

    /// A block came: those that wait for it are served.
    pub(super) fn serve_block(&mut self, block: u32, _io: &mut Io<'_>) {
        for slot in 0..self.serve.blocks.len() {
            if self.serve.blocks[slot] == block
                && self.roster.is_proven(self.serve.waits[slot].asker)
            {
                let order = self.planner.order(block, self.serve.waits[slot].asker);
                self.serve.make_ready(slot as u32, order);
            }
        }
    }

    /// Members have proved where they are: what waits here for them is served.
    pub(super) fn serve_proven(&mut self, whose: impl Fn(MemberIndex) -> bool) {
        for slot in 0..self.serve.blocks.len() {
            let block = self.serve.blocks[slot];
            let asker = self.serve.waits[slot].asker;
            let is_here = block != FREE && self.have.contains(block);
            if is_here && whose(asker) && self.roster.is_proven(asker) {
                let order = self.planner.order(block, asker);
                self.serve.make_ready(slot as u32, order);
            }
        }
    }

    /// The scheme's own planner is there: requests that came before it are kept only where it keeps
    /// them.
    pub(super) fn judge_parked(&mut self, io: &mut Io<'_>) {
        for slot in 0..self.serve.blocks.len() {
            let block = self.serve.blocks[slot];
            if block == FREE {
                continue;
            }
            let asker = self.serve.waits[slot].asker;
            let service = self.plan(io.now, io.rng, |planner, view| {
                planner.service(view, asker, block)
            });
            let here = self.have.contains(block);
            if service == Service::Refuse || (service == Service::IfHere && !here) {
                self.serve.release(slot as u32);
                self.answer(asker, Answer::NotHere, Blocks::one(block), io);
            }
        }
    }

    /// After the user said what is here.
    pub(super) fn serve_what_is_here(&mut self, io: &mut Io<'_>) {
        for slot in 0..self.serve.blocks.len() {
            let block = self.serve.blocks[slot];
            if block == FREE {
                continue;
            }
            if self.have.contains(block) {
                self.serve_block(block, io);
            } else if self.consent == Consent::Serving {
                let asker = self.serve.waits[slot].asker;
                self.serve.release(slot as u32);
                self.answer(asker, Answer::NotHere, Blocks::one(block), io);
            }
        }
    }

    /// The next train to send.
    pub(crate) fn next_train(&mut self, io: &mut Io<'_>) -> Option<Train> {
        let now = io.now;
        while let Some(Reverse((_, slot, generation))) = self.serve.ready.pop() {
            if !self.serve.is_current(slot, generation) {
                continue;
            }
            let wait = self.serve.waits[slot as usize];
            let block = self.serve.blocks[slot as usize];
            // It is somewhere else now, as it seems: when it has proved that, it is ready again.
            if !self.roster.is_proven(wait.asker) {
                self.serve.not_ready(slot);
                continue;
            }
            self.serve.release(slot);
            if self.have.contains(block) {
                let remembered = MAX_SENT + self.way.blocks() as usize;
                self.serve.sent(now, wait.asker, block, remembered);
                return Some(Train {
                    to: wait.asker,
                    block,
                    fragments: wait.fragments,
                    held: now.saturating_since(wait.since),
                    sealed: wait.sealed,
                });
            }
            // It was here when the request became ready, and is gone.
            self.answer(wait.asker, Answer::NotHere, Blocks::one(block), io);
        }
        None
    }

    /// The store does not have a block that was here.
    pub(crate) fn not_held(&mut self, train: Train, io: &mut Io<'_>) {
        // A holder that fetches nothing may have the block again later (its pages are on the move
        // while a program begins or ends).
        if self.consent == Consent::Given && !self.me.is_source() {
            self.have.remove(train.block);
            if !self.spread.mine_done {
                self.pull.wake();
            }
        }
        self.answer(train.to, Answer::NotHere, Blocks::one(train.block), io);
    }

    pub(super) fn serve_tick(&mut self, io: &mut Io<'_>) {
        let after = self.answer_after();
        let mut batch: Option<(MemberIndex, Answer, Blocks)> = None;
        while let Some((at, slot, generation)) = self.serve.unanswered.front().copied() {
            let current = self.serve.is_current(slot, generation);
            if current && at + after > io.now {
                break;
            }
            self.serve.unanswered.pop_front();
            let wait = &mut self.serve.waits[slot as usize];
            if !current || wait.answered {
                continue;
            }
            wait.answered = true;
            let answer = if wait.ready {
                Answer::Queued
            } else {
                Answer::Parked
            };
            let asker = wait.asker;
            let block = self.serve.blocks[slot as usize];
            let joined = match &mut batch {
                Some((to, what, blocks)) if *to == asker && *what == answer => blocks.push(block),
                _ => false,
            };
            if !joined {
                if let Some((to, what, blocks)) = batch.take() {
                    self.answer(to, what, blocks, io);
                }
                batch = Some((asker, answer, Blocks::one(block)));
            }
        }
        if let Some((to, what, blocks)) = batch {
            self.answer(to, what, blocks, io);
        }
    }
}
