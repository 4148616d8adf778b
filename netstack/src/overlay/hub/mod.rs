//! A process and its children: taking them, hearing them, noticing that they are lost.
//!
//! Key type: [`Hub`]. A communication process has one, and the front end. Neighbours: the child's
//! side is [`super::uplink`].
//!
//! - `building`: tells the children to be what is below them.
//! - `reducing`: streams, open ticks, what is passed on.
//! - `leaving`: the tree is taken down.
//!
//! A child reports once a second by itself, and is lost when it was silent for [`LOST_AFTER`].
//! Nobody asks it, so it has no [`crate::transport::liveness`], which takes nobody for dead that
//! was not asked. A hub that was itself not running for [`STALL`] begins to wait anew.
//!
//! Invariant: what a hub keeps is bounded, in links ([`Room::children`]) and in bytes of open ticks
//! ([`Room::ticks`]); see [`super::room`].

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::clock::Clock;
use super::message::{
    Attach, AttachAck, AttachAnswer, Beat, Candidate, CensusEntry, MAX_CANDIDATES, Message,
    Process, Standing,
};
use super::metric::OverlayMetric;
use super::room::{CHILD_BYTES, STREAM_BYTES};
use super::section::Section;
use super::stream::StreamId;
use super::uplink::Io;
use super::{BEAT_EVERY, CENSUS_EVERY, LOST_AFTER, RETRY_FIRST, RETRY_SLOWEST, STALL};
use crate::broadcast::Peer;
use crate::ids::BootEpoch;
use crate::time::{Instant, Micros};
use crate::transport::retry::Backoff;
use crate::wire::field::Reader;

mod building;
mod leaving;
mod reducing;
#[cfg(test)]
mod tests;

pub(super) use building::Transfer;
pub(super) use leaving::Leaving;
pub(super) use reducing::{Flushed, Values};

use reducing::Stream;

/// How much a hub may keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Most children.
    pub children: usize,
    /// Most bytes of ticks that are open, or to be passed on.
    pub ticks: usize,
}

impl Room {
    /// Of a communication process in a node's kernel.
    pub const OF_CP: Room = Room {
        children: super::MAX_CHILDREN,
        ticks: super::room::TICKS_BYTES,
    };
    /// Of a front end, which has a whole machine.
    pub const OF_FRONT_END: Room = Room {
        children: super::MAX_FRONT_END_CHILDREN,
        ticks: usize::MAX,
    };
}

/// BEATs until candidates are told again: a little more often than a census is taken.
const KIN_EVERY: u32 = 8;
const TELLING: Backoff = Backoff::new(RETRY_FIRST, RETRY_SLOWEST);

/// A set of small numbers: the places of children.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Marks(Vec<u64>);

impl Marks {
    fn set(&mut self, index: u16) {
        let word = usize::from(index) / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (index % 64);
    }

    fn clear(&mut self, index: u16) {
        if let Some(word) = self.0.get_mut(usize::from(index) / 64) {
            *word &= !(1 << (index % 64));
        }
    }

    fn add(&mut self, other: &Marks) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, more) in self.0.iter_mut().zip(&other.0) {
            *own |= more;
        }
    }

    fn has(&self, index: u16) -> bool {
        self.0
            .get(usize::from(index) / 64)
            .is_some_and(|word| word & 1 << (index % 64) != 0)
    }

    /// The lowest number that is not in it.
    fn first_free(&self) -> u16 {
        let word = self
            .0
            .iter()
            .position(|word| *word != u64::MAX)
            .unwrap_or(self.0.len());
        let bit = self.0.get(word).map_or(0, |word| word.trailing_ones());
        (word * 64) as u16 + bit as u16
    }
}

/// Bytes of a child's record, without the streams that it knows.
#[cfg(test)]
pub(super) const CHILD_SIZE: usize = size_of::<Child>();

/// A child.
#[derive(Clone, Debug)]
pub(super) struct Child {
    peer: Peer,
    boot: BootEpoch,
    index: u16,
    height: u8,
    standing: Standing,
    received: u64,
    heard_at: Instant,
    beats: u32,
    /// Streams it knows, with the version.
    known: Vec<(StreamId, u32)>,
    tell_at: Instant,
    tells: u32,
    taken: bool,
}

impl Child {
    /// It is lost when it falls silent.
    fn must_report(&self) -> bool {
        !self.standing.quiet && !self.taken
    }

    fn entry(&self, process: Process, parent: Process, gone: bool) -> CensusEntry {
        CensusEntry {
            process,
            boot: self.boot,
            parent,
            link: self.standing.link,
            gone,
            last: self.taken,
            own: false,
            earlier: false,
            refused: false,
            quiet: self.standing.quiet,
            height: self.height,
            back_ends: self
                .standing
                .back_ends
                .saturating_add(self.standing.quiet_below),
            submitted: self.standing.submitted,
            dropped: self.standing.dropped,
            handed: self.standing.handed,
            received: self.received,
            lag_us: self.standing.lag_us,
        }
    }
}

/// How many processes there are below a hub.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Below {
    /// Back ends, but for the quiet ones.
    pub back_ends: u32,
    /// Back ends that send nothing until their job ends.
    pub quiet: u32,
    /// Communication processes.
    pub cps: u32,
}

impl Below {
    /// All back ends that have a parent.
    pub fn attached(&self) -> u32 {
        self.back_ends.saturating_add(self.quiet)
    }
}

/// Sums over the children, which cannot overflow: the children are few.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    back_ends: u64,
    quiet: u64,
    cps: u64,
}

impl Sums {
    fn add(&mut self, standing: &Standing) {
        self.back_ends += u64::from(standing.back_ends);
        self.quiet += u64::from(standing.quiet_below);
        self.cps += u64::from(standing.cps);
    }

    fn remove(&mut self, standing: &Standing) {
        self.back_ends -= u64::from(standing.back_ends);
        self.quiet -= u64::from(standing.quiet_below);
        self.cps -= u64::from(standing.cps);
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Hub {
    me: Process,
    height: u8,
    room: Room,
    children: BTreeMap<Process, Child>,
    /// Sums of what they say of processes below.
    sums: Sums,
    /// No child that must report was heard before: until it is long ago, nobody needs to look at
    /// all of them.
    heard_floor: Instant,
    /// Every child knows every stream as it is.
    all_know: bool,
    places: Marks,
    transfers: Vec<Transfer>,
    streams: Vec<Stream>,
    /// Bytes of open ticks and of what is to be passed on.
    held: usize,
    /// Where the children's turns begin, in 65,536ths of a round.
    pub shift: u16,
    /// Where children go when this process is lost.
    pub kin: Vec<Candidate>,
    next_census: Instant,
    acted_at: Instant,
    /// Ticks that are to be passed on.
    flushed: VecDeque<Flushed>,
    /// News of children for the front end.
    pub entries: VecDeque<CensusEntry>,
    /// Samples given up here.
    pub dropped: u64,
    /// From the begin of the last tick until it was passed on.
    pub lag_us: u32,
    /// When the last ticks began that were passed on, and the most that one of them took here
    /// beyond its slowest child.
    level: (u64, u32),
    /// Ticks passed on.
    pub forwarded: u64,
    pub leaving: Option<Leaving>,
}

impl Hub {
    pub fn new(me: Process, height: u8, room: Room, io: &mut Io<'_>) -> Self {
        Hub {
            me,
            height,
            room,
            held: 0,
            level: (0, 0),
            children: BTreeMap::new(),
            sums: Sums::default(),
            heard_floor: io.now,
            all_know: false,
            places: Marks::default(),
            transfers: Vec::new(),
            streams: Vec::new(),
            shift: 0,
            kin: Vec::new(),
            next_census: io.now + io.rng.jitter(CENSUS_EVERY),
            acted_at: io.now,
            flushed: VecDeque::new(),
            entries: VecDeque::new(),
            dropped: 0,
            lag_us: 0,
            forwarded: 0,
            leaving: None,
        }
    }

    pub fn me(&self) -> Process {
        self.me
    }

    pub fn height(&self) -> u8 {
        self.height
    }

    pub fn children(&self) -> usize {
        self.children.len()
    }

    pub fn has_child(&self, process: Process) -> bool {
        self.children.contains_key(&process)
    }

    /// Children it can still take.
    pub fn room(&self) -> u16 {
        match self.leaving {
            None => self
                .room
                .children
                .saturating_sub(self.children.len())
                .min(usize::from(u16::MAX)) as u16,
            Some(_) => 0,
        }
    }

    /// Processes below.
    pub fn below(&self) -> Below {
        let whole = |sum: u64| sum.min(u64::from(u32::MAX)) as u32;
        Below {
            back_ends: whole(self.sums.back_ends),
            quiet: whole(self.sums.quiet),
            cps: whole(self.sums.cps),
        }
    }

    /// What is kept, in entries: links, transfers, ticks, values to be passed on.
    pub fn kept(&self) -> usize {
        self.children.len() + self.transfers.len() + self.open_ticks() + self.flushed.len()
    }

    /// Bytes that are held, as counted against the bounds of [`super::room`].
    pub fn bytes(&self) -> usize {
        let lists = self.transfers.iter().map(Transfer::bytes);
        self.held
            + self.children.len() * CHILD_BYTES
            + self.streams.len() * STREAM_BYTES
            + lists.sum::<usize>()
    }

    /// The next tick, or part of one, that is to be passed on.
    pub fn next_flushed(&mut self) -> Option<Flushed> {
        let flushed = self.flushed.pop_front()?;
        self.held -= flushed.held;
        Some(flushed)
    }

    /// A child asks to be taken. `open`: this process has a parent, or will have its first.
    pub fn attach(
        &mut self,
        io: &mut Io<'_>,
        from: (Process, BootEpoch, Peer),
        attach: Attach,
        clock: &Clock,
        open: bool,
    ) {
        let (process, boot, peer) = from;
        let known = self.children.get(&process);
        let repeated =
            known.is_some_and(|child| child.boot == boot && child.standing.link == attach.link);
        let overtaken =
            known.is_some_and(|child| child.boot == boot && child.standing.link > attach.link);
        if overtaken {
            return;
        }
        let answer = if repeated {
            AttachAnswer::Taken
        } else if attach.height >= self.height {
            AttachAnswer::NotBelow
        } else if self.leaving.is_some() {
            AttachAnswer::Gone
        } else if !open || clock.overlay(io.now).is_none() {
            AttachAnswer::Loose
        } else if known.is_none() && self.children.len() >= self.room.children {
            AttachAnswer::Full
        } else {
            self.take_child(io, from, attach);
            AttachAnswer::Taken
        };
        let child = self
            .children
            .get(&process)
            .filter(|_| answer == AttachAnswer::Taken);
        let ack = AttachAck {
            link: attach.link,
            answer,
            index: child.map_or(0, |child| child.index),
            shift: self.shift,
            echo: attach.time,
            overlay: clock.overlay(io.now).unwrap_or(0),
            trip_us: clock.trip_us(),
            kin: child.map_or_else(Vec::new, |_| self.kin.clone()),
        };
        io.send(self.me, (process, peer), Message::AttachAck(ack));
    }

    fn take_child(
        &mut self,
        io: &mut Io<'_>,
        (process, boot, peer): (Process, BootEpoch, Peer),
        attach: Attach,
    ) {
        if self.children.contains_key(&process) {
            self.lose_child(io, process);
        }
        let index = self.places.first_free();
        self.places.set(index);
        let below = u32::from(attach.height == 0 && !attach.quiet);
        let quiet_below = u32::from(attach.height == 0 && attach.quiet);
        let child = Child {
            peer,
            boot,
            index,
            height: attach.height,
            standing: Standing {
                link: attach.link,
                quiet: attach.quiet,
                room: attach.room,
                back_ends: below,
                quiet_below,
                cps: u32::from(attach.height > 0),
                ..Standing::default()
            },
            received: 0,
            heard_at: io.now,
            beats: 0,
            known: Vec::new(),
            tell_at: io.now,
            tells: 0,
            taken: false,
        };
        // One that had another parent before: the front end is to know soon where it is now.
        if attach.moved {
            self.tell_of(io, child.entry(process, self.me, false));
        }
        self.sums.add(&child.standing);
        self.all_know = false;
        self.children.insert(process, child);
        self.transfers
            .retain(|transfer| transfer.child() != process || !transfer.is_done());
    }

    /// A child is gone: its last word goes to the front end, and nobody waits for it.
    fn lose_child(&mut self, io: &mut Io<'_>, process: Process) {
        if let Some(child) = self.children.remove(&process) {
            self.sums.remove(&child.standing);
            self.places.clear(child.index);
            self.forget_place(io.now, child.index);
            self.tell_of(io, child.entry(process, self.me, true));
        }
    }

    /// Something is to be told to the front end soon. Twice as much as there may be children finds
    /// room.
    fn tell_of(&mut self, io: &mut Io<'_>, entry: CensusEntry) {
        match self.entries.len() < 2 * self.room.children {
            true => self.entries.push_back(entry),
            false => io.count(OverlayMetric::Overflowed, 1),
        }
    }

    /// A child reports. Strangers are told that they are none of this process's.
    pub fn report(
        &mut self,
        io: &mut Io<'_>,
        (process, boot, peer): (Process, BootEpoch, Peer),
        (standing, sections): (Standing, &[u8]),
        clock: &Clock,
    ) {
        let own = |child: &&mut Child| child.boot == boot && child.standing.link == standing.link;
        let closed = self.is_closed();
        let Some(child) = self.children.get_mut(&process).filter(own) else {
            let message = Message::Detach {
                link: standing.link,
            };
            return io.send(self.me, (process, peer), message);
        };
        child.heard_at = io.now;
        if closed {
            // Its figures are told already: what comes now is lost on the way, and counts when the
            // child tells of the link.
            return;
        }
        let index = child.index;
        let turned = child.standing.quiet != standing.quiet;
        hear(child, standing, &mut self.sums);
        let mut reader = Reader::new(sections);
        let mut samples = 0;
        while !reader.clone().rest().is_empty() {
            let Ok(section) = Section::parse(&mut reader) else {
                io.count(OverlayMetric::BadSections, 1);
                break;
            };
            samples += u64::from(section.samples());
            self.reduce(io, section, (process, index), clock);
        }
        let me = self.me;
        let news = self.children.get_mut(&process).and_then(|child| {
            child.received += samples;
            turned.then(|| child.entry(process, me, false))
        });
        // Whoever plans is to know soon where silence is wanted.
        if let Some(entry) = news {
            self.tell_of(io, entry);
        }
        if standing.answer {
            self.beat(io, process, standing, clock);
        }
    }

    fn beat(&mut self, io: &mut Io<'_>, process: Process, standing: Standing, clock: &Clock) {
        let Some(overlay) = clock.overlay(io.now) else {
            return;
        };
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        let news = child.beats.is_multiple_of(KIN_EVERY);
        child.beats += 1;
        let (peer, height, received) = (child.peer, child.height, child.received);
        let (kin, siblings) = match news {
            true => (self.kin.clone(), self.siblings_of(io, process, height)),
            false => (Vec::new(), Vec::new()),
        };
        let beat = Beat {
            link: standing.link,
            echo: standing.time,
            overlay,
            trip_us: clock.trip_us(),
            received,
            kin,
            siblings,
        };
        io.send(self.me, (process, peer), Message::Beat(beat));
    }

    /// Other children that could take those of a child, from a random place on.
    fn siblings_of(&self, io: &mut Io<'_>, process: Process, height: u8) -> Vec<Candidate> {
        if height == 0 || self.children.len() < 2 {
            return Vec::new();
        }
        let begin = io.rng.below(self.children.len() as u64) as usize;
        let others = self
            .children
            .iter()
            .cycle()
            .skip(begin)
            .take(self.children.len());
        let usable = others.filter(|(other, child)| {
            **other != process && child.height > 0 && child.standing.room > 0
        });
        usable
            .take(MAX_CANDIDATES - 1)
            .map(|(process, child)| Candidate {
                process: *process,
                peer: child.peer,
                height: child.height,
                room: child.standing.room,
            })
            .collect()
    }

    /// A child has heard of a stream.
    pub fn stream_ack(&mut self, io: &mut Io<'_>, process: Process, id: StreamId, version: u32) {
        let Some(child) = self.children.get_mut(&process) else {
            return;
        };
        child.heard_at = io.now;
        if self.streams.iter().all(|stream| !stream.is(id)) {
            return;
        }
        self.all_know = false;
        child.known.retain(|(known, _)| *known != id);
        child.known.push((id, version));
        child.tells = 0;
        self.forget_closed();
    }

    /// Passes the children's figures to the front end.
    pub fn take_census(&mut self) {
        let me = self.me;
        // Nothing more is taken of those that have not answered either.
        let closed = self.is_closed();
        let entries = self.children.iter().map(|(process, child)| CensusEntry {
            last: child.taken || closed,
            ..child.entry(*process, me, false)
        });
        self.entries.extend(entries);
    }

    /// It takes no values any more: what its children handed up is told.
    fn is_closed(&self) -> bool {
        (self.leaving.as_ref()).is_some_and(|leaving| leaving.below_down)
    }

    /// The process ends, in time or not: what it holds is given up, and its children's figures are
    /// final.
    pub fn end(&mut self) {
        if !self.is_closed() {
            let me = self.me;
            let entries = self.children.iter().map(|(process, child)| CensusEntry {
                last: true,
                ..child.entry(*process, me, false)
            });
            self.entries.extend(entries);
        }
        self.give_up();
    }

    /// Acts on what is due.
    pub fn tick(&mut self, io: &mut Io<'_>, clock: &Clock) {
        // A process that was not running blames nobody for its own silence.
        let pause = io.now.saturating_since(self.acted_at);
        if pause >= STALL {
            for child in self.children.values_mut() {
                child.heard_at = (child.heard_at + pause).min(io.now);
            }
        }
        self.acted_at = io.now;
        self.lose_silent(io);
        self.continue_transfers(io);
        self.tell_streams(io);
        self.flush_due(io, clock);
        if self.next_census <= io.now {
            self.next_census = io.now + CENSUS_EVERY;
            self.take_census();
        }
        self.continue_leaving(io);
    }

    fn lose_silent(&mut self, io: &mut Io<'_>) {
        let now = io.now;
        if now.saturating_since(self.heard_floor) <= Micros(patience().0 / 2) {
            return;
        }
        let silent = |child: &Child| {
            child.must_report() && now.saturating_since(child.heard_at) > patience()
        };
        let lost: Vec<Process> = (self.children.iter())
            .filter(|(_, child)| silent(child))
            .map(|(process, _)| *process)
            .collect();
        for process in lost {
            io.count(OverlayMetric::ChildrenLost, 1);
            self.lose_child(io, process);
        }
        let left = self.children.values().filter(|child| child.must_report());
        self.heard_floor = left.map(|child| child.heard_at).fold(now, Instant::min);
    }

    /// When to act next, or `at` if that is earlier.
    pub fn deadline(&self, mut at: Instant) -> Instant {
        if !self.flushed.is_empty() || !self.entries.is_empty() {
            return Instant::ZERO;
        }
        if !self.children.is_empty() {
            at = at.min(self.next_census);
        }
        // Who does not look for long cannot tell a child's silence from its own.
        let look_at = self.acted_at + BEAT_EVERY;
        if look_at < at && self.children.values().any(Child::must_report) {
            at = look_at;
        }
        let silent_at = |heard_at: Instant| heard_at + patience() + Micros(1);
        if silent_at(self.heard_floor) < at {
            let children = self.children.values().filter(|child| child.must_report());
            at = children.fold(at, |at, child| at.min(silent_at(child.heard_at)));
        }
        if !self.all_know {
            let lacking = self
                .children
                .values()
                .filter(|child| self.lacks_stream(child));
            at = lacking.fold(at, |at, child| at.min(child.tell_at));
        }
        at = self
            .transfers
            .iter()
            .map(Transfer::deadline)
            .fold(at, Instant::min);
        at = self.tick_deadline(at);
        match &self.leaving {
            Some(leaving) => at.min(leaving.deadline()),
            None => at,
        }
    }
}

/// How long a child may be silent: it reports once a second, and asks more often when it hears
/// nothing.
fn patience() -> Micros {
    LOST_AFTER
}

fn hear(child: &mut Child, standing: Standing, sums: &mut Sums) {
    let old = child.standing;
    sums.remove(&old);
    sums.add(&standing);
    child.standing = Standing {
        handed: standing.handed.max(old.handed),
        submitted: standing.submitted.max(old.submitted),
        dropped: standing.dropped.max(old.dropped),
        ..standing
    };
}
