//! What a member has asked for: window, time-outs, repeats, reassembly, checks.
//!
//! A request is *sent* until its peer shows a sign of life: data (*flowing*), PARKED or QUEUED
//! (*waiting*). Sent and flowing requests fill the window; waiting ones are credit for a push and
//! do not. A request is given to somebody else when nothing is heard in time (RFC 6298's estimator
//! over the time to the first sign, and what the scheme says is normal), or when so many later ones
//! arrived that its turn must have passed. Fragments of a train that are missing are asked for
//! again from the same peer.
//!
//! Lost requests cost little: whoever asks a peer for something names again what it asked that peer
//! for long before its turn, and a block that came before one of a smaller number from the same
//! peer says that the request for that one was lost. At the end, when the scheme has nothing more
//! to ask for, nobody waits for one peer where another one is idle: every wait is short then.
//!
//! Invariant: no more blocks are asked for than there are reassembly buffers, and no more fragments
//! than the station may have on their way. What comes though nobody was asked for it, or not any
//! more, has half of the buffers at most, and gives them to what is asked for.

mod answering;
mod asked;
mod link;
mod receiving;
mod repeating;
#[cfg(test)]
mod tests;
mod waiting;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::net::SocketAddrV4;

use super::way::COVERED;
use super::{Cast, Consent, Io};
use crate::broadcast::bitmap::Bitmap;
use crate::broadcast::message::{
    Blocks, MAX_LISTED, MemberIndex, Message, PAGE_PEERS, WantedBlock, Wants,
};
use crate::broadcast::pace::Pace;
use crate::broadcast::plan::{Next, Trouble};
use crate::broadcast::suspects::Suspicion;
use crate::broadcast::{FRAGMENT, LIST_BYTES, MAX_MEMBERS, Part};
use crate::time::{Instant, Micros};
use crate::transport::rtt::LONGEST;
use crate::transport::window;
use asked::{Asked, State};
use link::Link;

/// Requests without a sign of life, or flowing: half of what the port of a switch holds with blocks
/// of 8 KiB, and enough for a round trip of ten block times. A longer one is covered by
/// [`super::way`].
pub(in crate::broadcast) const WINDOW: u32 = 16;
/// The same for a member to which blocks come slowly, requests that wait for their turn included:
/// what is sent to it at once must fit its port. Blocks of 8 KiB take 88 KB, a third of a port of
/// 256 KB.
const NARROW_WINDOW: u32 = COVERED as u32;
/// Blocks that may be asked for at a time, waiting ones included: more than two of every row of the
/// largest grid, which has 363.
pub(super) const MAX_ASKED: usize = 1024;
/// Buffers where the user names no number: two blocks of each of the 128 rows of a grid of 16,512.
const USUAL_BUFFERS: usize = 256;
/// Faults of programs that wait to be asked for: one of each rank of a node.
const MAX_WANTED: usize = crate::RANKS_PER_NODE_MAX as usize;
/// First guess of the time to the first sign of life, in block times: that of a server whom four
/// others have asked for a window each.
const FIRST_GUESS: u64 = 4 * WINDOW as u64;
/// A train that stopped in the middle is given so many block times, a window, and one that is
/// complete but for holes so many: the block behind it shows that nothing more comes.
const STALLED: u64 = WINDOW as u64;
const HOLES: u64 = 2;
/// Block times until a peer that did not know the cast is asked again, and how often it is.
const UNKNOWN_AGAIN: u64 = 24;
const UNKNOWN_TRIES: u8 = 40;
/// Doublings of that time, one for each peer that was asked in vain.
const MAX_UNKNOWN_BACKOFF: u32 = 8;
/// It is the end when so many times what lacks has arrived.
const LAST_SHARE: u32 = 16;
/// Attempts at the end after which a peer that says nothing is left alone: where one datagram in a
/// hundred is lost, request or answer, two are in vain once in 2,500 times.
const LAST_ATTEMPTS: u8 = 2;
/// A block that is expected so many blocks before or after now may be on its way, which takes
/// [`COVERED`] there and as many back: it is not named again.
const MAYBE_COMING: u32 = 2 * COVERED as u32;
/// Whoever is farther away than this, in blocks, is not taken for slow before it is measured.
const FAR: u32 = 14;
/// The least of the window and of what may be asked for where many casts share them: the blocks
/// that one message names.
const LEAST_WINDOW: u32 = window::LEAST;
const LEAST_ASKED: usize = MAX_LISTED;
/// As long as nothing at all was heard the others may be this far away, there and back: before, no
/// request is taken for lost.
const FARTHEST: Micros = Micros::from_millis(20);
/// Doublings of the time-out.
const MAX_BACKOFF: u32 = 5;
/// Members that are silent are left alone for so many times what a request may wait, at first;
/// those that are late for so many.
const SILENT_FOR: u64 = 16;
const LATE_FOR: u64 = 2;
/// A request may be late by this part of all blocks that have arrived.
const LATE_SHARE: u32 = 32;
/// Every so many blocks late ones are looked for: twice in a window.
const LOOK_EVERY: u32 = WINDOW / 2;

const _: () = assert!(MAX_ASKED > 2 * (MAX_MEMBERS.isqrt() as usize + 1));

/// Fragments, and those of the whole block.
#[derive(Clone, Copy, Debug)]
struct Share {
    fragments: u32,
    of: u32,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pull {
    /// Block numbers of `entries`, apart for a fast search.
    blocks: Vec<u32>,
    entries: Vec<Asked>,
    pub(super) asked: Bitmap,
    in_window: u32,
    /// Entries of what nobody was asked for.
    unasked: usize,
    /// Requests that wait for their turn at a peer that has the block.
    queued: u32,
    /// How fast blocks come here.
    link: Link,
    /// The scheme has nothing left to ask for.
    last: bool,
    /// The soonest sign of life so far, in microseconds.
    soonest: u64,
    /// Blocks that have arrived and were checked.
    arrived: u32,
    looked: u32,
    /// Most blocks that are asked for, and what bounds them: the scheme, and the buffers.
    limit: usize,
    most: usize,
    buffers: usize,
    window: u32,
    /// Fragments that are asked for and not here, and as many as there may be when another block is
    /// asked for.
    under_way: u32,
    most_under_way: u32,
    /// The most that a block has.
    block_fragments: u32,
    crowd: u32,
    farther: u32,
    wanted: VecDeque<u32>,
    spare: Vec<Vec<u8>>,
    next_deadline: Instant,
    /// The planner has something to ask.
    eager: bool,
    wait: Instant,
    smoothed: u64,
    variation: u64,
}

impl Pull {
    /// For so many blocks of `block_bytes` bytes, if full, and so many buffers (0: the usual
    /// number).
    pub(super) fn new(blocks: u32, block_bytes: u64, buffers: u32, pace: Pace) -> Self {
        let guess = pace.blocks(FIRST_GUESS).0;
        let buffers = match buffers {
            0 => USUAL_BUFFERS,
            buffers => (buffers as usize).min(MAX_ASKED),
        };
        Pull {
            blocks: Vec::new(),
            entries: Vec::new(),
            asked: Bitmap::new(blocks),
            unasked: 0,
            in_window: 0,
            queued: 0,
            link: Link::new(block_bytes),
            last: false,
            soonest: u64::MAX,
            arrived: 0,
            looked: 0,
            limit: buffers,
            most: usize::MAX,
            buffers,
            window: WINDOW,
            under_way: 0,
            most_under_way: u32::MAX,
            block_fragments: (block_bytes.max(LIST_BYTES as u64)).div_ceil(FRAGMENT as u64) as u32,
            crowd: 1,
            farther: 0,
            wanted: VecDeque::new(),
            spare: Vec::new(),
            next_deadline: Instant::FAR_FUTURE,
            eager: false,
            wait: Instant::FAR_FUTURE,
            smoothed: guess,
            variation: guess / 2,
        }
    }

    pub(super) fn wake(&mut self) {
        self.eager = true;
        self.last = false;
    }

    pub(super) fn clear(&mut self) {
        let length = self.asked.length();
        self.blocks = Vec::new();
        self.entries = Vec::new();
        self.asked = Bitmap::new(length);
        self.unasked = 0;
        self.in_window = 0;
        self.queued = 0;
        self.under_way = 0;
        self.last = false;
        self.spare = Vec::new();
        self.wanted.clear();
        self.eager = false;
        self.wait = Instant::FAR_FUTURE;
        self.next_deadline = Instant::FAR_FUTURE;
    }

    pub(super) fn deadline(&self) -> Instant {
        self.next_deadline.min(self.wait)
    }

    /// Another request may be made.
    fn is_eager(&self) -> bool {
        self.eager && self.has_room()
    }

    fn has_room(&self) -> bool {
        let room = if self.link.narrow {
            let farther = u64::from(self.farther) / self.link.slowdown;
            let window = NARROW_WINDOW / self.crowd + farther as u32;
            self.in_window + self.queued < window.max(LEAST_WINDOW)
        } else {
            self.in_window < self.window
        };
        // The list that others wait for does not wait for them in turn: they are not under way, and
        // the limit was higher once.
        let waiting = |entry: &&Asked| entry.state == State::Unchecked && !entry.unasked;
        let here = match self.wanted.is_empty() {
            true => 0,
            false => self.entries.iter().filter(waiting).count(),
        };
        let room = room && self.under_way + self.block_fragments <= self.most_under_way;
        room && self.asked_for() - here < self.limit && self.asked_for() < self.buffers
    }

    /// The scheme never has more under way.
    pub(super) fn bound(&mut self, most: u32) {
        self.most = most.max(WINDOW) as usize;
        self.stretch(self.farther, self.crowd);
    }

    /// So many blocks more than usual may be on their way, and so many casts share what may.
    pub(super) fn stretch(&mut self, farther: u32, crowd: u32) {
        if farther > FAR && self.link.is_new() {
            // Whether blocks come slowly is not known before they come as fast as they can.
            self.link.narrow = false;
        }
        self.farther = farther;
        self.crowd = crowd;
        self.window = ((WINDOW + farther) / crowd).max(LEAST_WINDOW);
        let most = self.most.saturating_add(farther as usize).min(self.buffers);
        self.limit = (most / crowd as usize).max(LEAST_ASKED).min(self.buffers);
    }

    /// No block is asked for that would bring more fragments than this under way. What arrives
    /// makes room for others by itself.
    pub(crate) fn set_most_under_way(&mut self, fragments: u32) {
        self.most_under_way = fragments;
    }

    /// Fragments that are asked for and not here.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// The most that a block has.
    pub(crate) fn block_fragments(&self) -> u32 {
        self.block_fragments
    }

    /// Nothing is under way, and the scheme may have something to ask for.
    fn begins_anew(&self) -> bool {
        self.eager && self.under_way == 0
    }

    /// A block that is asked for now comes after those that are asked for.
    fn next_expected(&self) -> u32 {
        self.arrived + self.asked_for() as u32
    }

    /// Blocks of which something is here, or asked for.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Blocks asked for.
    fn asked_for(&self) -> usize {
        self.entries.len() - self.unasked
    }

    /// Blocks that occupy memory.
    pub(crate) fn buffers(&self) -> usize {
        let entries = self.entries.iter();
        entries.filter(|entry| !entry.bytes.is_empty()).count()
    }

    fn find(&self, block: u32) -> Option<usize> {
        self.blocks.iter().position(|asked| *asked == block)
    }

    fn set_state(&mut self, at: usize, state: State) {
        let entry = &mut self.entries[at];
        self.in_window -= u32::from(entry.fills_window());
        self.queued -= u32::from(entry.state == State::QUEUED);
        self.queued += u32::from(state == State::QUEUED);
        entry.state = state;
        self.in_window += u32::from(entry.fills_window());
    }

    fn set_deadline(&mut self, at: usize, deadline: Instant) {
        self.entries[at].deadline = deadline;
        self.next_deadline = self.next_deadline.min(deadline);
    }

    fn insert(&mut self, block: u32, entry: Asked) {
        self.next_deadline = self.next_deadline.min(entry.deadline);
        self.in_window += u32::from(entry.fills_window());
        self.under_way += entry.under_way();
        match entry.unasked {
            true => self.unasked += 1,
            false => _ = self.asked.insert(block),
        }
        self.blocks.push(block);
        self.entries.push(entry);
    }

    /// What is missing of a block has changed.
    fn set_missing(&mut self, at: usize, missing: u64) {
        let entry = &mut self.entries[at];
        self.under_way -= entry.under_way();
        entry.missing = missing;
        self.under_way += entry.under_way();
    }

    fn remove(&mut self, at: usize) -> Asked {
        let block = self.blocks.swap_remove(at);
        let mut entry = self.entries.swap_remove(at);
        match entry.unasked {
            true => self.unasked -= 1,
            false => _ = self.asked.remove(block),
        }
        self.in_window -= u32::from(entry.fills_window());
        self.queued -= u32::from(entry.state == State::QUEUED);
        self.under_way -= entry.under_way();
        let bytes = core::mem::take(&mut entry.bytes);
        if bytes.capacity() > 0 {
            self.spare.push(bytes);
        }
        self.eager = true;
        entry
    }

    /// A block is asked for: what came of it by itself goes, which may be anybody's, and so do
    /// others of that kind if their room is needed.
    fn make_room(&mut self, block: u32) {
        while self.unasked > 0 {
            let needed = self.entries.len() >= self.limit;
            let entries = self.blocks.iter().zip(&self.entries);
            let mut unasked = entries.enumerate().filter(|(_, (_, entry))| entry.unasked);
            let Some((at, _)) = unasked.find(|(_, (other, _))| needed || **other == block) else {
                return;
            };
            self.remove(at);
        }
    }

    /// The entry of a block that was asked for.
    fn find_asked(&self, block: u32) -> Option<usize> {
        self.find(block).filter(|at| !self.entries[*at].unasked)
    }

    /// A first sign of life came after so long (RFC 6298).
    fn sample(&mut self, time: Micros) {
        let time = time.min(LONGEST).0;
        if self.soonest == u64::MAX && time > self.timeout().0 {
            // The guess was far too short.
            self.smoothed = time;
            self.variation = time / 2;
        }
        self.soonest = self.soonest.min(time);
        self.variation = (3 * self.variation + self.smoothed.abs_diff(time)) / 4;
        self.smoothed = (7 * self.smoothed + time) / 8;
    }

    /// How long to wait for a sign of life where nothing else is known.
    fn timeout(&self) -> Micros {
        Micros(self.smoothed + 4 * self.variation).min(LONGEST)
    }
}

impl Cast {
    /// Makes requests as the planner says, as far as the window has room. True if any were made.
    pub(crate) fn make_requests(&mut self, io: &mut Io<'_>) -> bool {
        let before = io.outbox.len();
        let mut batch: Option<(MemberIndex, Wants)> = None;
        while self.pull.eager && self.may_ask() {
            let wanted = self.next_wanted(io);
            let next = match wanted {
                Some(next) => next,
                // There was room for what is wanted alone, and it is here or asked for.
                None if !self.may_ask() => break,
                None => self.plan(io.now, io.rng, |planner, view| planner.next(view)),
            };
            let urgent = wanted.is_some();
            let (block, from, early) = match next {
                Next::Ask { block, from, early } => (block, from, early),
                Next::Wait(at) => {
                    self.pull.eager = false;
                    self.pull.wait = at;
                    break;
                }
                Next::Idle => {
                    self.pull.eager = false;
                    self.pull.wait = Instant::FAR_FUTURE;
                    self.last_ones(io);
                    break;
                }
            };
            let fragments = self.setup.object.fragments(block);
            let follows = batch
                .as_ref()
                .is_some_and(|(to, wants)| *to == from && !wants.is_full());
            let mut state = self.address(from, io);
            let mut deadline = io.now + self.sign_timeout(block, from, 0);
            if early > 0 && follows && state == State::Sent {
                state = State::Waiting { queued: false };
                deadline = io.now + self.wait_timeout() + self.blocks(early.into());
            }
            self.pull.make_room(block);
            let entry = Asked {
                expected: self.pull.next_expected() + early,
                deadline,
                urgent,
                ..Asked::new(from, state, fragments, io.now)
            };
            self.pull.insert(block, entry);
            if state == State::Unsent {
                continue;
            }
            let want = WantedBlock {
                block,
                fragments,
                urgent,
                sealed: false,
            };
            let joined = match &mut batch {
                Some((to, wants)) if *to == from => wants.push(want),
                _ => false,
            };
            if !joined {
                self.flush(batch.take(), io);
                let mut wants = Wants::default();
                wants.push(want);
                batch = Some((from, wants));
            }
        }
        self.flush(batch, io);
        if self.pull.arrived - self.pull.looked >= LOOK_EVERY {
            self.pull.looked = self.pull.arrived;
            self.look_for_late(io);
        }
        io.outbox.len() > before
    }

    /// Another request may be made.
    pub(crate) fn is_eager(&self) -> bool {
        self.consent == Consent::Given && self.pull.is_eager()
    }

    /// A block could be asked for if other casts had less under way.
    pub(crate) fn is_starving(&self) -> bool {
        self.begins_anew() && self.pull.block_fragments > self.pull.most_under_way
    }

    /// Its next block would be the only one that is under way.
    pub(crate) fn begins_anew(&self) -> bool {
        self.consent == Consent::Given && self.pull.begins_anew()
    }

    /// Another cast needs the room: gives up the request that was made last of those of which
    /// nothing has come. The scheme names the block again. False if there is none.
    pub(crate) fn give_way(&mut self, io: &mut Io<'_>) -> bool {
        let is_idle = |entry: &Asked| {
            entry.sender.is_none() && !matches!(entry.state, State::Flowing | State::Unchecked)
        };
        let entries = self.pull.entries.iter().enumerate();
        let idle = entries.filter(|(_, entry)| is_idle(entry));
        let Some((at, _)) = idle.max_by_key(|(_, entry)| entry.expected) else {
            return false;
        };
        let block = self.pull.blocks[at];
        let entry = self.pull.remove(at);
        if entry.urgent && self.pull.wanted.len() < MAX_WANTED {
            self.pull.wanted.push_front(block);
        }
        if entry.state != State::Unsent {
            self.send(entry.from, Message::Cancel(Blocks::one(block)), io);
        }
        io.counters.moved += 1;
        true
    }

    /// One of those that were asked for blocks.
    pub(super) fn asked_at(&self, is_it: impl Fn(&MemberIndex) -> bool) -> Option<MemberIndex> {
        let entries = self.pull.entries.iter();
        entries.map(|entry| entry.from).find(is_it)
    }

    /// The member is known to have this address.
    pub(crate) fn is_at(&self, member: MemberIndex, addr: SocketAddrV4) -> bool {
        let peer = self.roster.get(member);
        peer.is_some_and(|peer| peer.addr == addr)
    }

    fn may_ask(&self) -> bool {
        self.consent == Consent::Given && self.pull.has_room()
    }

    fn flush(&mut self, batch: Option<(MemberIndex, Wants)>, io: &mut Io<'_>) {
        if let Some((to, mut wants)) = batch {
            self.remind(to, &mut wants, io.now);
            io.counters.requests += 1;
            self.send(to, Message::Request(wants), io);
        }
    }

    /// Whether a request to this member can be sent; asks for its address if not.
    fn address(&mut self, member: MemberIndex, io: &mut Io<'_>) -> State {
        if self.roster.get(member).is_some() {
            return State::Sent;
        }
        self.need_page(member.0 / PAGE_PEERS, io);
        State::Unsent
    }

    /// A page of the roster came.
    pub(super) fn send_unsent(&mut self, io: &mut Io<'_>) {
        for at in 0..self.pull.entries.len() {
            let entry = &self.pull.entries[at];
            if entry.state == State::Unsent && self.roster.get(entry.from).is_some() {
                self.repeat(at, entry.from, io);
            }
        }
    }

    /// Sends the request of an entry (again), to `to`.
    fn repeat(&mut self, at: usize, to: MemberIndex, io: &mut Io<'_>) {
        let block = self.pull.blocks[at];
        let state = self.address(to, io);
        let attempt = u32::from(self.pull.entries[at].attempt);
        let timeout = self.sign_timeout(block, to, attempt);
        self.pull.set_state(at, state);
        self.pull.set_deadline(at, io.now + timeout);
        let expected = self.pull.next_expected();
        let entry = &mut self.pull.entries[at];
        entry.from = to;
        entry.told = false;
        entry.at = io.now;
        entry.expected = expected;
        let want = entry.wanted(block);
        if state == State::Sent {
            let mut wants = Wants::default();
            wants.push(want);
            self.flush(Some((to, wants)), io);
        }
    }

    /// A fault goes first. Its list is asked for before it.
    fn next_wanted(&mut self, io: &mut Io<'_>) -> Option<Next> {
        while let Some(block) = self.pull.wanted.pop_front() {
            if self.have.contains(block) || self.pull.asked.contains(block) {
                continue;
            }
            // The scheme's own choice for this block; attempt 0 has no trouble behind it.
            let from = self.plan(io.now, io.rng, |planner, view| {
                planner.instead(view, block, MemberIndex::SOURCE, Trouble::Busy, 0)
            });
            return Some(Next::Ask {
                block,
                from: from.unwrap_or(MemberIndex::SOURCE),
                early: 0,
            });
        }
        None
    }

    /// A program waits for this data block, and for the list that it is checked against.
    pub(crate) fn want(&mut self, data_block: u32, io: &mut Io<'_>) {
        let object = &self.setup.object;
        let list = object.list_of(data_block);
        let list = list.map(|list| object.block_of(Part::List(list)));
        let block = object.block_of(Part::Data(data_block));
        for block in list.into_iter().chain([block]) {
            self.want_block(block, io);
        }
    }

    /// A program waits for this block, here or where it was asked for. One that is asked for
    /// already is asked for again at once: its holder serves it before all others, and wants it
    /// itself if it is not there yet.
    pub(super) fn want_block(&mut self, block: u32, io: &mut Io<'_>) {
        if block >= self.have.length() || self.have.contains(block) || !self.lacks() {
            return;
        }
        if let Some(at) = self.pull.find_asked(block) {
            let entry = &mut self.pull.entries[at];
            let first = !core::mem::replace(&mut entry.urgent, true);
            if first && matches!(entry.state, State::Sent | State::Waiting { .. }) {
                let mut wants = Wants::default();
                wants.push(entry.wanted(block));
                let from = entry.from;
                io.counters.requests += 1;
                self.send(from, Message::Request(wants), io);
            }
            return;
        }
        if self.pull.wanted.len() < MAX_WANTED && !self.pull.wanted.contains(&block) {
            self.pull.wanted.push_back(block);
            self.pull.eager = true;
        }
    }

    pub(super) fn pull_tick(&mut self, io: &mut Io<'_>) {
        if self.pull.wait <= io.now {
            self.pull.wait = Instant::FAR_FUTURE;
            self.pull.eager = true;
        }
        if self.pull.next_deadline > io.now {
            return;
        }
        let mut at = 0;
        while at < self.pull.entries.len() {
            if self.pull.entries[at].deadline <= io.now && self.expired(at, io) {
                continue;
            }
            at += 1;
        }
        let deadlines = self.pull.entries.iter().map(|entry| entry.deadline);
        self.pull.next_deadline = deadlines.min().unwrap_or(Instant::FAR_FUTURE);
    }

    /// True if the entry is gone (another one took its place).
    fn expired(&mut self, at: usize, io: &mut Io<'_>) -> bool {
        let running_out = self.is_running_out(io.now);
        let entry = &mut self.pull.entries[at];
        let from = entry.from;
        match entry.state {
            State::Flowing if entry.unasked => {
                self.pull.remove(at);
                true
            }
            State::Flowing => {
                entry.repeats = entry.repeats.saturating_add(1);
                io.counters.repeated += 1;
                if entry.repeats > 3 {
                    return self.trouble(at, Trouble::Silent, io);
                }
                let sender = entry.sender.unwrap_or(from);
                self.repeat(at, sender, io);
                false
            }
            State::Unknown if entry.repeats > UNKNOWN_TRIES || running_out => {
                self.suspect(from, Suspicion::Gone, io);
                self.trouble(at, Trouble::Silent, io)
            }
            // Somebody whose address is known, perhaps.
            State::Unsent => self.trouble(at, Trouble::NotHere, io),
            State::Unknown => {
                self.repeat(at, from, io);
                false
            }
            State::Sent if self.pull.soonest == u64::MAX && io.now < entry.at + FARTHEST => {
                // Nobody was heard yet: everybody may be far away.
                let waited = io.now.saturating_since(entry.at);
                self.pull.set_deadline(at, io.now + waited);
                false
            }
            State::Sent if self.pull.last => {
                if entry.attempt < LAST_ATTEMPTS {
                    return self.trouble(at, Trouble::Late, io);
                }
                self.suspect(from, Suspicion::Gone, io);
                self.trouble(at, Trouble::Silent, io)
            }
            State::Sent if entry.may_repeat() && !running_out => {
                // The request or its answer may be lost.
                entry.repeats += 1;
                io.counters.repeated += 1;
                self.ask_again(at, io);
                false
            }
            State::Sent => {
                io.counters.repeated += 1;
                self.suspect(from, Suspicion::Gone, io);
                self.trouble(at, Trouble::Silent, io)
            }
            State::Waiting { queued } => {
                if queued {
                    self.suspect(from, Suspicion::Late, io);
                }
                self.trouble(at, Trouble::Late, io)
            }
            State::Unchecked => {
                self.still_unchecked(at, io);
                false
            }
        }
    }

    fn suspect(&mut self, member: MemberIndex, of: Suspicion, io: &mut Io<'_>) {
        let times = match of {
            Suspicion::Gone => SILENT_FOR,
            Suspicion::Late => LATE_FOR,
        };
        let wait = self.wait_timeout().saturating_mul(times);
        self.suspects.strike(io.now, member, wait, of);
    }

    /// A request came to nothing: somebody else is asked. True if the entry is gone.
    fn trouble(&mut self, at: usize, trouble: Trouble, io: &mut Io<'_>) -> bool {
        let block = self.pull.blocks[at];
        let attempt = self.next_attempt(at, io.now);
        let entry = &mut self.pull.entries[at];
        entry.attempt = attempt;
        entry.repeats = 0;
        let (from, attempt) = (entry.from, u32::from(entry.attempt));
        let instead = self.plan(io.now, io.rng, |planner, view| {
            planner.instead(view, block, from, trouble, attempt)
        });
        if matches!(trouble, Trouble::Silent | Trouble::Late) {
            self.learn_others(io);
        }
        if matches!(trouble, Trouble::Silent | Trouble::Late) && instead != Some(from) {
            io.counters.moved += 1;
            self.send(from, Message::Cancel(Blocks::one(block)), io);
        }
        match instead {
            Some(to) if to == from && trouble != Trouble::Silent => {
                // Nobody else: ask again after a while.
                let timeout = self.sign_timeout(block, to, attempt.min(MAX_BACKOFF));
                self.pull.set_state(at, State::Waiting { queued: false });
                self.pull.entries[at].expected = self.pull.next_expected();
                self.pull.set_deadline(at, io.now + timeout);
                if trouble == Trouble::Late {
                    self.repeat(at, to, io);
                }
                false
            }
            Some(to) => {
                self.repeat(at, to, io);
                false
            }
            None => {
                self.pull.remove(at);
                true
            }
        }
    }

    /// A block that others miss: it is fetched without its usual server.
    pub(super) fn fetch_instead(&mut self, block: u32, io: &mut Io<'_>) {
        if !self.lacks() {
            return;
        }
        match self.pull.find_asked(block) {
            Some(at) => {
                let entry = &self.pull.entries[at];
                let idle = matches!(entry.state, State::Sent | State::Waiting { .. });
                if idle && !entry.from.is_source() {
                    self.trouble(at, Trouble::Late, io);
                }
            }
            None if self.pull.wanted.len() < MAX_WANTED && !self.pull.wanted.contains(&block) => {
                self.pull.wanted.push_back(block);
                self.pull.eager = true;
            }
            None => {}
        }
    }
}
