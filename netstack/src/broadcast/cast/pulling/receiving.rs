//! Blocks that arrive: fragments are put together, checked against the object's hash tree and
//! stored.
//!
//! Neighbour: [`super`] keeps the table of what was asked for.
//!
//! Invariant: nothing is stored, and so nothing served, whose hash was not checked.

use alloc::vec::Vec;

use super::asked::Sign;
use super::{Asked, HOLES, STALLED, Share, State};
use crate::broadcast::cast::serving::Train;
use crate::broadcast::cast::{Cast, CastEvent, Consent, Io};
use crate::broadcast::event::FailReason;
use crate::broadcast::message::{MAX_HELD, MemberIndex};
use crate::broadcast::plan::Trouble;
use crate::broadcast::suspects::Suspicion;
use crate::broadcast::{FRAGMENT, LIST_ENTRIES, Part};
use crate::time::Micros;

impl Cast {
    /// A train, or one fragment with its bytes.
    pub(crate) fn receive(&mut self, train: Train, bytes: Option<&[u8]>, io: &mut Io<'_>) {
        let Train {
            to: from,
            block,
            fragments,
            held,
            sealed,
        } = train;
        let all = self.setup.object.fragments(block);
        let fragments = fragments & all;
        if fragments == 0 || !self.fits(block, fragments, bytes) {
            io.counters.bad += 1;
            return;
        }
        io.counters.fragments += u64::from(fragments.count_ones());
        let bytes_of = self.setup.object.bytes_of(block, fragments);
        self.pull.link.brought(bytes_of);
        if self.have.contains(block) || self.consent != Consent::Given {
            io.counters.duplicates += u64::from(fragments.count_ones());
            return;
        }
        let Some(at) = self
            .pull
            .find(block)
            .or_else(|| self.unasked(from, block, io))
        else {
            io.counters.no_buffer += u64::from(fragments.count_ones());
            return;
        };
        let entry = &self.pull.entries[at];
        if entry.doubted && !(sealed && entry.from == from) {
            io.counters.duplicates += u64::from(fragments.count_ones());
            return;
        }
        let share = Share {
            fragments: fragments.count_ones(),
            of: all.count_ones(),
        };
        let gap = io.now.saturating_since(*io.last_data);
        *io.last_data = io.now;
        let idle = self.pull.link.was_idle(gap, self.pace, share);
        let entry = &mut self.pull.entries[at];
        let new = entry.missing & fragments;
        io.counters.duplicates += u64::from((fragments & !new).count_ones());
        if new == 0 {
            return;
        }
        let missing = entry.missing & !new;
        entry.mixed |= entry.sender.is_some_and(|sender| sender != from);
        entry.sender = Some(from);
        // From somebody else, who was asked before, it is no answer to this request.
        let first_sign = entry.state == State::Sent
            && (entry.attempt, entry.repeats) == (0, 0)
            && entry.from == from
            && !entry.doubted;
        if first_sign {
            let waited = io.now.saturating_since(entry.at);
            // Behind others' blocks on this link it says nothing about the way, and nothing does
            // that was held for longer than the request is old: it answers one before it.
            let says = held < MAX_HELD && held <= waited && idle;
            let held = says.then_some(held);
            entry.sign = Some(Sign { waited, held });
        }
        if let Some(bytes) = bytes {
            if entry.bytes.is_empty() {
                entry.bytes = self.pull.spare.pop().unwrap_or_default();
                entry.bytes.resize(self.setup.object.length(block), 0);
            }
            let start = new.trailing_zeros() as usize * FRAGMENT;
            entry.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        }
        self.pull.set_missing(at, missing);
        if missing == 0 {
            let (crowd, last) = (self.pull.crowd, self.pull.last);
            self.pull.link.count_whole(io.now, self.pace, crowd, last);
            self.whole(at, bytes.is_some(), io);
            return;
        }
        self.pull.set_state(at, State::Flowing);
        // The last fragment of the train is here: what is missing before it is lost.
        let last = 63 - fragments.leading_zeros();
        let wait = if missing >> last == 0 {
            self.blocks(HOLES)
        } else {
            self.blocks(STALLED) + Micros(2 * self.pull.smoothed)
        };
        self.pull.set_deadline(at, io.now + wait);
    }

    fn fits(&self, block: u32, fragments: u64, bytes: Option<&[u8]>) -> bool {
        block < self.have.length()
            && bytes.is_none_or(|bytes| {
                let index = fragments.trailing_zeros();
                fragments.count_ones() == 1
                    && bytes.len() == self.setup.object.fragment_length(block, index)
            })
    }

    /// Data that was not asked for, or not any more: taken if there is room, within half of the
    /// buffers. Anybody can send it.
    fn unasked(&mut self, from: MemberIndex, block: u32, io: &mut Io<'_>) -> Option<usize> {
        let most = self.pull.limit / 2;
        if self.pull.unasked >= most || self.pull.entries.len() >= self.pull.limit {
            return None;
        }
        let fragments = self.setup.object.fragments(block);
        let entry = Asked {
            attempt: 1,
            expected: self.pull.next_expected(),
            deadline: io.now + self.blocks(STALLED),
            unasked: true,
            ..Asked::new(from, State::Flowing, fragments, io.now)
        };
        self.pull.insert(block, entry);
        Some(self.pull.entries.len() - 1)
    }

    /// All fragments of an entry are here.
    fn whole(&mut self, at: usize, real: bool, io: &mut Io<'_>) {
        let block = self.pull.blocks[at];
        if real {
            match self.check(at, io) {
                Some(true) => {}
                Some(false) => return self.corrupt(at, io),
                None => return self.lacks_list(at, io),
            }
        }
        let part = self.setup.object.part(block);
        let bytes = &self.pull.entries[at].bytes;
        if io.store.write(self.id, part, bytes).is_err() {
            self.fail(FailReason::NoRoom, io);
            return;
        }
        let expected = self.pull.entries[at].expected;
        let late = (self.pull.arrived).saturating_sub(expected.saturating_add(self.way.skew()));
        let entry = self.pull.remove(at);
        if let Some(sign) = entry.sign {
            self.pull.sample(sign.waited);
            if let Some(held) = sign.held {
                self.way.sample(sign.waited.saturating_sub(held));
            }
        }
        let late = (entry.attempt == 0).then_some(late);
        self.have.insert(block);
        self.progressed = io.now;
        io.counters.stored += 1;
        self.pull.arrived += 1;
        if self.pull.arrived > 1 {
            self.way.settle(self.pull.link.block, self.pace);
            self.pull.stretch(self.way.blocks(), self.way.crowd());
        }
        let from = entry.sender.unwrap_or(entry.from);
        self.suspects.clear(io.now, from);
        self.plan(io.now, io.rng, |planner, view| {
            planner.arrived(view, block, from, late);
        });
        if let Part::Data(data) = part {
            self.event(CastEvent::Stored(data), io);
        }
        self.serve_block(block, io);
        if entry.repeats == 0 {
            self.overtaken(from, block, entry.at, io);
        }
        if let Part::List(list) = part
            && real
        {
            self.check_waiting(list, io);
        }
        self.check_complete(io);
    }

    /// Whether an entry's bytes are right; None: their list is not here.
    fn check(&self, at: usize, io: &mut Io<'_>) -> Option<bool> {
        let block = self.pull.blocks[at];
        let bytes = &self.pull.entries[at].bytes;
        let object = &self.setup.object;
        match object.part(block) {
            Part::List(list) => Some(object.verify_list(list, bytes, io.store)),
            Part::Data(data) => {
                let mut hash = [0; 32];
                if let Some(list) = object.list_of(data) {
                    let list_block = object.block_of(Part::List(list));
                    let at = (data % LIST_ENTRIES) as usize * 32;
                    let here = self.have.contains(list_block)
                        && io.store.read(self.id, Part::List(list), at, &mut hash);
                    if !here {
                        return None;
                    }
                } else {
                    hash = *object.tops.get(data as usize)?;
                }
                let first = u64::from(data) << object.block_log2;
                let root = object.data_blocks() == 1;
                Some(io.store.subtree(first, bytes, root) == hash)
            }
        }
    }

    /// A block is here, its list is not: it waits, unless its buffer is needed for the list.
    fn lacks_list(&mut self, at: usize, io: &mut Io<'_>) {
        if let Some(list) = self.list_block_of(self.pull.blocks[at]) {
            // If it was here, the store has it no more.
            self.have.remove(list);
            self.want_first(list);
        }
        if self.pull.asked_for() >= self.pull.limit {
            io.counters.no_buffer += 1;
            self.pull.remove(at);
            return;
        }
        let timeout = self.wait_timeout();
        self.pull.set_state(at, State::Unchecked);
        self.pull.set_deadline(at, io.now + timeout);
        self.pull.eager = true;
    }

    /// The block with the list that a data block is checked against.
    fn list_block_of(&self, block: u32) -> Option<u32> {
        let object = &self.setup.object;
        let Part::Data(data) = object.part(block) else {
            return None;
        };
        let list = object.list_of(data)?;
        Some(object.block_of(Part::List(list)))
    }

    /// Blocks cannot be checked without this list: unless it is asked for already nothing is asked
    /// for before it.
    fn want_first(&mut self, list: u32) {
        let wanted = &mut self.pull.wanted;
        if !self.pull.asked.contains(list) && !wanted.contains(&list) {
            wanted.push_front(list);
        }
        self.pull.eager = true;
    }

    /// A block still waits for its list. Whoever was asked for it may have been given up.
    pub(super) fn still_unchecked(&mut self, at: usize, io: &mut Io<'_>) {
        if let Some(list) = self.list_block_of(self.pull.blocks[at])
            && !self.have.contains(list)
        {
            self.want_first(list);
        }
        let timeout = self.wait_timeout();
        self.pull.set_deadline(at, io.now + timeout);
    }

    /// A list came: blocks that waited for it are checked.
    fn check_waiting(&mut self, list: u32, io: &mut Io<'_>) {
        let object = &self.setup.object;
        let waiting: Vec<u32> = (self.pull.blocks.iter().zip(&self.pull.entries))
            .filter(|(_, entry)| entry.state == State::Unchecked)
            .map(|(block, _)| *block)
            .filter(|block| match object.part(*block) {
                Part::Data(data) => object.list_of(data) == Some(list),
                Part::List(_) => false,
            })
            .collect();
        for block in waiting {
            if let Some(at) = self.pull.find(block) {
                self.whole(at, true, io);
            }
        }
    }

    /// A block was wrong. Anybody may have sent some of it: whoever was asked is asked once more,
    /// for datagrams that are sealed, and nothing but those counts from then on. If those are wrong
    /// too their sender is to blame, and somebody else is asked.
    fn corrupt(&mut self, at: usize, io: &mut Io<'_>) {
        io.counters.corrupt += 1;
        let block = self.pull.blocks[at];
        let fragments = self.setup.object.fragments(block);
        let entry = &mut self.pull.entries[at];
        if entry.unasked {
            self.pull.remove(at);
            return;
        }
        let sealed = core::mem::replace(&mut entry.doubted, true);
        let blamed = entry.sender.filter(|_| sealed && !entry.mixed);
        let from = entry.from;
        entry.sender = None;
        entry.mixed = false;
        entry.sign = None;
        self.pull.set_missing(at, fragments);
        if !sealed {
            self.repeat(at, from, io);
            return;
        }
        if let Some(sender) = blamed {
            self.spread.corrupt(sender);
            self.suspect(sender, Suspicion::Gone, io);
        }
        self.trouble(at, Trouble::Corrupt, io);
    }
}
