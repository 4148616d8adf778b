//! The frame allocator: who owns which frame of memory, and what is in it.
//!
//! One 16-bit tag per frame says its [`State`] and owner; the table of tags lies in memory that
//! the kernel sets aside at start (2 bytes per 4,096, zero-filled). Frames are found by a scan
//! from a hint, lowest address first, so that what a program gets is the same from run to run.
//!
//! Frames of a program that stay between two launches are [`State::Retained`]. A launch takes all
//! of a program's retained frames at once ([`FrameAllocator::borrow`]): their tags stay as they are
//! and only the sums move, so that it costs the same however many they are. Such frames count as
//! the program's own until they are claimed (for being given back, or retained anew).
//!
//! Neighbours: `kernel::mm` owns the one instance; [`crate::paging`] takes its tables from it;
//! [`crate::retention`] decides which frames stay with a program, which is why a frame has an owner
//! and not only a state.
//!
//! Invariant: every frame given out is zero-filled; a frame that anybody has used is scrubbed
//! between two owners, and [`FrameAllocator::check`] proves by the counters that none was missed.

mod ahead;
mod deferred;
mod frame;

use crate::addr::{PAGE_SIZE, PhysAddr};
use crate::phys::PhysMem;
pub use deferred::{Deferring, Freed};
pub use frame::Frame;

/// What a frame is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum State {
    /// Not memory, or memory the kernel does not manage.
    Absent = 0,
    /// Memory as firmware left it: never given out, contents unknown.
    Raw = 1,
    /// Scrubbed and ready to be given out.
    Free = 2,
    /// In use by the kernel (page tables, buffers).
    Kernel = 3,
    /// In use by a program.
    User = 4,
    /// Given back and not yet scrubbed.
    Dirty = 5,
    /// Holds a page of a program's file between launches, or of the running one it was kept for.
    Retained = 6,
    /// Holds a page of an object of the node's store ([`crate::objects`]); programs at most read
    /// it.
    Object = 7,
}

/// The program a frame belongs to; [`Owner::KERNEL`] for the kernel's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner(u16);

impl Owner {
    /// The kernel itself.
    pub const KERNEL: Self = Self(0);
    /// Largest number of a program: what fits beside the state in a tag.
    pub const MAX: u16 = (1 << 12) - 1;

    /// Owner number `number`, 1 to [`Owner::MAX`].
    pub const fn program(number: u16) -> Self {
        assert!(number > 0 && number <= Self::MAX, "no such owner");
        Self(number)
    }
}

/// What the allocator has done since start, in frames. `check` relates them to the states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Given out, in total.
    pub allocated: u64,
    /// Of these, frames that had an earlier owner.
    pub reused: u64,
    /// Given back.
    pub freed: u64,
    /// Cleared after an owner gave them back.
    pub scrubbed: u64,
    /// Requests that found no frame.
    pub refused: u64,
    /// Kept for a later launch, in total.
    pub retained: u64,
    /// Of these, taken by a launch.
    pub borrowed: u64,
    /// Of these, given back without one.
    pub discarded: u64,
}

/// How many frames are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Frames under management.
    pub total: u64,
    /// See [`State::Raw`].
    pub raw: u64,
    /// See [`State::Free`].
    pub free: u64,
    /// See [`State::Kernel`].
    pub kernel: u64,
    /// See [`State::User`]; with the frames that a program was launched on.
    pub user: u64,
    /// See [`State::Dirty`].
    pub dirty: u64,
    /// See [`State::Retained`]; without those of running programs.
    pub retained: u64,
    /// See [`State::Object`].
    pub object: u64,
}

impl Usage {
    /// Frames that can be given out.
    pub fn available(&self) -> u64 {
        self.raw + self.free + self.dirty
    }
}

/// Gives out frames and takes them back.
pub struct FrameAllocator {
    /// Tag of frame `first + i` at index i.
    tags: &'static mut [u16],
    first: u64,
    usage: Usage,
    counters: Counters,
    /// No available frame lies below this index.
    hint: usize,
    /// No dirty frame lies below this index.
    dirty_hint: usize,
    /// Where the search for frames in a row begins: behind those that were found last.
    row_hint: usize,
    /// Frames tagged as retained that a running program has: counted as its own.
    borrowed: u64,
    /// Frames that are given back when all cores have forgotten them.
    deferred: deferred::List,
    scrub: bool,
}

impl FrameAllocator {
    /// Bytes of tags needed for memory from `start` to `end`.
    pub const fn table_bytes(start: PhysAddr, end: PhysAddr) -> u64 {
        (end.frame_number() - start.frame_number()) * 2
    }

    /// An allocator for the frames from `base` on, one for every tag; all are [`State::Absent`]
    /// until [`FrameAllocator::add_region`]. The tags must be zero.
    pub fn new(base: PhysAddr, tags: &'static mut [u16]) -> Self {
        assert!(base.is_aligned(PAGE_SIZE));
        assert!(tags.iter().all(|&tag| tag == 0), "frame table not cleared");
        Self {
            first: base.frame_number(),
            hint: tags.len(),
            dirty_hint: tags.len(),
            row_hint: 0,
            tags,
            usage: Usage::default(),
            counters: Counters::default(),
            borrowed: 0,
            deferred: deferred::List::EMPTY,
            scrub: true,
        }
    }

    /// Takes the whole frames between `start` and `end` under management as [`State::Raw`].
    /// Frame 0 is left out: address 0 must never be a valid frame. Returns the number added;
    /// frames that were added before are left as they are.
    pub fn add_region(&mut self, start: PhysAddr, end: PhysAddr) -> u64 {
        let from = start.as_u64().div_ceil(PAGE_SIZE).max(self.first).max(1);
        let to = end.frame_number().min(self.first + self.tags.len() as u64);
        let mut added = 0;
        for number in from..to.max(from) {
            let index = (number - self.first) as usize;
            if self.state_at(index) == State::Absent {
                self.set(index, State::Raw, Owner::KERNEL);
                added += 1;
            }
        }
        added
    }

    /// Gives out one zero-filled frame: for `Owner::KERNEL` as [`State::Kernel`], else as
    /// [`State::User`]. `None` when memory is used up (counted).
    pub fn alloc(&mut self, mem: &mut impl PhysMem, owner: Owner) -> Option<Frame> {
        self.alloc_as(mem, in_use_by(owner), owner)
    }

    /// Gives out one zero-filled frame for an object of the node's store. `None` when memory is
    /// used up (counted).
    pub fn alloc_object(&mut self, mem: &mut impl PhysMem) -> Option<Frame> {
        self.alloc_as(mem, State::Object, Owner::KERNEL)
    }

    fn alloc_as(&mut self, mem: &mut impl PhysMem, state: State, owner: Owner) -> Option<Frame> {
        let Some(index) = self.next_available() else {
            self.hint = self.tags.len();
            self.counters.refused += 1;
            return None;
        };
        self.hint = index;
        self.give(mem, index, state, owner);
        self.hint = index + 1;
        Some(Frame::given(self.address(index)))
    }

    /// The frame that is given out next.
    fn next_available(&self) -> Option<usize> {
        (self.hint..self.tags.len()).find(|&index| self.is_available(index))
    }

    /// Gives out `count` zero-filled frames in a row (device buffers, large pages), the first at a
    /// multiple of `align` bytes (a power of two, at least a page).
    pub fn alloc_contiguous(
        &mut self,
        mem: &mut impl PhysMem,
        count: u64,
        align: u64,
        owner: Owner,
    ) -> Option<PhysAddr> {
        assert!(count > 0 && align.is_power_of_two() && align >= PAGE_SIZE);
        let count = count as usize;
        let Some(start) = self.next_row(count, align) else {
            self.counters.refused += 1;
            return None;
        };
        for index in start..start + count {
            self.give(mem, index, in_use_by(owner), owner);
        }
        self.row_hint = start + count;
        Some(self.address(start))
    }

    /// The frames in a row that are given out next.
    fn next_row(&self, count: usize, align: u64) -> Option<usize> {
        let from = self.row_hint.max(self.hint);
        let found = self.find_row(from, self.tags.len(), count, align);
        // What lies before may have been given back since.
        let end = (from + count).min(self.tags.len());
        found.or_else(|| self.find_row(self.hint, end, count, align))
    }

    /// The first `count` available frames in a row between two indices, at a multiple of `align`.
    fn find_row(&self, from: usize, to: usize, count: usize, align: u64) -> Option<usize> {
        let step = (align / PAGE_SIZE) as usize;
        // A number of frames, not of bytes.
        let number = self.first as usize + from;
        let mut start = from + (number.next_multiple_of(step) - number);
        while start + count <= to {
            // From the end: what is taken there spares the look at all before it.
            match (start..start + count).rfind(|&index| !self.is_available(index)) {
                Some(taken) => start += (taken + 1 - start).next_multiple_of(step),
                None => return Some(start),
            }
        }
        None
    }

    /// Takes a frame back; it is [`State::Dirty`] until scrubbed. Panics when nobody has it, or
    /// when it is retained: then it is claimed first, or discarded.
    pub fn free(&mut self, frame: Frame) {
        self.free_at(frame.into_entry());
    }

    /// Takes frames in a row back, which no entry has.
    pub fn free_contiguous(&mut self, first: PhysAddr, count: u64) {
        (0..count).for_each(|index| self.free_at(first.offset(index * PAGE_SIZE)));
    }

    fn free_at(&mut self, frame: PhysAddr) {
        let index = self.index(frame);
        let state = self.state_at(index);
        assert!(
            matches!(state, State::Kernel | State::User | State::Object),
            "{frame:?} freed while {state:?}"
        );
        self.set(index, State::Dirty, Owner::KERNEL);
        self.counters.freed += 1;
    }

    /// Keeps a program's frame for a later launch. Panics when no program has it.
    pub fn retain(&mut self, frame: PhysAddr) {
        let index = self.index(frame);
        let (state, owner) = self.state(frame);
        assert!(state == State::User, "{frame:?} retained while {state:?}");
        self.set(index, State::Retained, owner);
        self.counters.retained += 1;
    }

    /// A program that is launched on `count` retained frames, all those of one owner, borrows them.
    pub fn borrow(&mut self, count: u64) {
        assert!(
            count <= self.usage.retained,
            "more frames than are retained"
        );
        self.usage.retained -= count;
        self.usage.user += count;
        self.borrowed += count;
        self.counters.borrowed += count;
    }

    /// Hands a frame of an object's page to the program whose file the object is: nothing in it is
    /// a secret to its new owner, so it is not scrubbed. Panics when it is no object's.
    pub fn adopt(&mut self, frame: &Frame, owner: Owner) {
        let frame = frame.address();
        let index = self.index(frame);
        let (state, _) = self.state(frame);
        assert!(state == State::Object, "{frame:?} adopted while {state:?}");
        assert!(owner != Owner::KERNEL, "adopted by no program");
        self.set(index, State::User, owner);
    }

    /// Makes a frame that a program has borrowed an ordinary one of its own. Returns whether it was
    /// borrowed.
    pub fn take(&mut self, frame: PhysAddr) -> bool {
        let index = self.index(frame);
        let (state, owner) = self.state(frame);
        if state != State::Retained {
            return false;
        }
        assert!(self.borrowed > 0, "{frame:?} belongs to no running program");
        self.borrowed -= 1;
        // Counted as the program's since it was borrowed.
        self.tags[index] = State::User as u16 | owner.0 << 4;
        true
    }

    /// Takes back a retained frame that no program was launched on; it is [`State::Dirty`] until
    /// scrubbed.
    pub fn discard(&mut self, frame: PhysAddr) {
        let index = self.index(frame);
        let state = self.state_at(index);
        assert!(
            state == State::Retained && self.usage.retained > 0,
            "{frame:?} discarded while {state:?}"
        );
        self.set(index, State::Dirty, Owner::KERNEL);
        self.counters.freed += 1;
        self.counters.discarded += 1;
    }

    /// Scrubs up to `limit` dirty frames; returns how many. All are clean when the result is
    /// below `limit`.
    pub fn scrub(&mut self, mem: &mut impl PhysMem, limit: u64) -> u64 {
        let mut done = 0;
        while done < limit && self.usage.dirty > 0 {
            let index = self.dirty_hint;
            if self.state_at(index) == State::Dirty {
                self.clean(mem, index);
                self.set(index, State::Free, Owner::KERNEL);
                done += 1;
            }
            self.dirty_hint = index + 1;
        }
        done
    }

    /// Switches scrubbing between programs off, so that a test can see that it matters. Never
    /// otherwise. The kernel's own frames are still cleared.
    pub fn disable_scrubbing_for_test(&mut self) {
        self.scrub = false;
    }

    /// Where the frames end that are managed, or could be.
    pub fn end(&self) -> PhysAddr {
        self.address(self.tags.len())
    }

    /// State and owner of a frame.
    pub fn state(&self, frame: PhysAddr) -> (State, Owner) {
        let number = frame.frame_number();
        match number.checked_sub(self.first) {
            Some(index) if index < self.tags.len() as u64 => {
                let index = index as usize;
                (self.state_at(index), Owner(self.tags[index] >> 4))
            }
            _ => (State::Absent, Owner::KERNEL),
        }
    }

    /// Whether frames are scrubbed between programs.
    pub fn scrubs(&self) -> bool {
        self.scrub
    }

    /// Frames by state.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Frames that can be given out.
    pub fn available(&self) -> u64 {
        self.usage.available()
    }

    /// Work done since start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Frames that belong to a program now, retained or in use. Scans the table: for tests and
    /// reports.
    pub fn owned_by(&self, owner: Owner) -> u64 {
        let tags = [State::User, State::Retained].map(|state| state as u16 | owner.0 << 4);
        let owned = self.tags.iter().filter(|found| tags.contains(found));
        owned.count() as u64
    }

    /// Whether the counters add up: every frame given out was raw or scrubbed, every frame given
    /// back is dirty or was scrubbed, every frame retained is so still, was launched on or was
    /// discarded. The error names the sum that does not hold.
    pub fn check(&self) -> Result<(), &'static str> {
        let (c, u) = (&self.counters, &self.usage);
        let held = u.kernel + u.user + u.retained + u.object;
        let checks = [
            (
                u.total == u.available() + held,
                "total = available + kernel + user + retained + object",
            ),
            (
                c.retained == c.borrowed + c.discarded + u.retained,
                "retained = borrowed + discarded + still retained",
            ),
            (self.borrowed <= u.user, "borrowed <= user"),
            (c.allocated == c.freed + held, "allocated = freed + in use"),
            (c.freed == c.scrubbed + u.dirty, "freed = scrubbed + dirty"),
            (c.scrubbed == c.reused + u.free, "scrubbed = reused + free"),
            (
                c.allocated - c.reused == u.total - u.raw,
                "first used = total - raw",
            ),
        ];
        match checks.iter().find(|(holds, _)| !holds) {
            Some((_, what)) => Err(what),
            None => Ok(()),
        }
    }

    /// [`FrameAllocator::check`] while no program is there: none has a frame, and `retained` are
    /// kept.
    pub fn check_idle(&self, retained: u64) -> Result<(), &'static str> {
        match (
            self.usage.user,
            self.borrowed,
            self.usage.retained == retained,
        ) {
            (0, 0, true) => self.check(),
            (0, 0, false) => Err("retained = pages of warm programs"),
            _ => Err("no program, no frame of one"),
        }
    }

    /// [`FrameAllocator::check`], and the tags of all frames against the sums. Scans the table: for
    /// tests.
    pub fn check_tags(&self) -> Result<(), &'static str> {
        let count = |state: State| {
            let tagged = self.tags.iter().filter(|&&tag| tag & 15 == state as u16);
            tagged.count() as u64
        };
        let u = &self.usage;
        let sums = [
            (State::Raw, u.raw, "tags of raw frames"),
            (State::Free, u.free, "tags of free frames"),
            (State::Kernel, u.kernel, "tags of the kernel's frames"),
            (
                State::User,
                u.user - self.borrowed,
                "tags of programs' frames",
            ),
            (State::Dirty, u.dirty, "tags of dirty frames"),
            (
                State::Retained,
                u.retained + self.borrowed,
                "tags of retained frames",
            ),
            (State::Object, u.object, "tags of objects' frames"),
        ];
        match sums.iter().find(|&&(state, sum, _)| count(state) != sum) {
            Some((_, _, what)) => Err(what),
            None => self.check(),
        }
    }

    fn give(&mut self, mem: &mut impl PhysMem, index: usize, state: State, owner: Owner) {
        let frame = self.address(index);
        match self.state_at(index) {
            State::Raw => mem.zero_frame(frame),
            State::Dirty => {
                self.clean(mem, index);
                self.counters.reused += 1;
            }
            State::Free => self.counters.reused += 1,
            state => panic!("{frame:?} given out while {state:?}"),
        }
        if !self.scrub && owner == Owner::KERNEL {
            // A page table must be empty also in the test that shows scrubbing matters.
            mem.zero_frame(frame);
        }
        self.set(index, state, owner);
        self.counters.allocated += 1;
    }

    fn clean(&mut self, mem: &mut impl PhysMem, index: usize) {
        if self.scrub {
            mem.zero_frame(self.address(index));
        }
        self.counters.scrubbed += 1;
    }

    fn is_available(&self, index: usize) -> bool {
        matches!(
            self.state_at(index),
            State::Raw | State::Free | State::Dirty
        )
    }

    fn state_at(&self, index: usize) -> State {
        match self.tags[index] & 15 {
            0 => State::Absent,
            1 => State::Raw,
            2 => State::Free,
            3 => State::Kernel,
            4 => State::User,
            5 => State::Dirty,
            6 => State::Retained,
            7 => State::Object,
            other => panic!("frame table damaged: state {other}"),
        }
    }

    fn set(&mut self, index: usize, state: State, owner: Owner) {
        let old = self.state_at(index);
        if let Some(count) = self.count_of(old) {
            *count -= 1;
        } else {
            self.usage.total += 1;
        }
        if let Some(count) = self.count_of(state) {
            *count += 1;
        }
        self.tags[index] = state as u16 | owner.0 << 4;
        if self.is_available(index) {
            self.hint = self.hint.min(index);
        }
        if state == State::Dirty {
            self.dirty_hint = self.dirty_hint.min(index);
        }
    }

    fn count_of(&mut self, state: State) -> Option<&mut u64> {
        match state {
            State::Absent => None,
            State::Raw => Some(&mut self.usage.raw),
            State::Free => Some(&mut self.usage.free),
            State::Kernel => Some(&mut self.usage.kernel),
            State::User => Some(&mut self.usage.user),
            State::Dirty => Some(&mut self.usage.dirty),
            State::Retained => Some(&mut self.usage.retained),
            State::Object => Some(&mut self.usage.object),
        }
    }

    fn index(&self, frame: PhysAddr) -> usize {
        assert!(frame.is_aligned(PAGE_SIZE));
        let index = frame.frame_number().checked_sub(self.first);
        let index = index.expect("frame below memory") as usize;
        assert!(index < self.tags.len(), "frame above memory");
        index
    }

    fn address(&self, index: usize) -> PhysAddr {
        PhysAddr::new((self.first + index as u64) * PAGE_SIZE)
    }
}

/// The state of a frame that `owner` has.
const fn in_use_by(owner: Owner) -> State {
    match owner {
        Owner::KERNEL => State::Kernel,
        _ => State::User,
    }
}

#[cfg(test)]
mod tests;
