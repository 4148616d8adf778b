//! Streams and their open ticks: values of the children are merged until a tick is passed on.
//!
//! A tick is passed on when every child that is waited for has sent it, when its time is up
//! ([`Sync`]), or when its place is needed. What comes later goes on as well, as a further value of
//! the same tick with its own number of back ends: it is merged above, or by the front end.
//!
//! Invariant: every sample taken in is passed on once, or counted as dropped.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::{Hub, Marks, TELLING};
use crate::overlay::STAGGER;
use crate::overlay::clock::Clock;
use crate::overlay::filter::{Acc, Filter};
use crate::overlay::message::{Message, Process};
use crate::overlay::metric::OverlayMetric;
use crate::overlay::room;
use crate::overlay::section::{self, Body, ROWS_ROOM, Row, Section};
use crate::overlay::stream::{MAX_STREAMS, Scope, StreamId, StreamSpec, Sync};
use crate::overlay::uplink::Io;
use crate::time::{Instant, Micros};

/// Ticks of a stream that are open at a time.
pub const MAX_OPEN_TICKS: usize = 4;
/// Streams that are remembered, those included that were closed and not everybody knows it.
const MAX_REMEMBERED: usize = 2 * MAX_STREAMS;
/// How long values that come too late wait for others: half of the stagger, within which the other
/// half of the late ones come.
const LATE_HOLD: Micros = Micros(STAGGER.0 / 2);
/// Bytes of the marks of a tick's children, with what a block of the heap takes.
const MARKS_BYTES: usize = crate::overlay::MAX_CHILDREN / 8 + 64;
/// A tick number that lies further ahead of the clock is not believed.
const AHEAD: u64 = 2;

/// The values of a tick.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::overlay) enum Values {
    Reduced(Vec<Acc>),
    Rows(Vec<Row>),
}

/// A tick, or part of one, that is to be passed on.
#[derive(Clone, Debug)]
pub(in crate::overlay) struct Flushed {
    pub stream: StreamId,
    pub tick: u64,
    pub covers: u32,
    pub filter: Filter,
    pub metrics: u8,
    /// No more of it is expected.
    pub ends: bool,
    pub values: Values,
    /// Bytes that it holds, by [`room`].
    pub held: usize,
}

#[derive(Clone, Debug)]
struct Tick {
    number: u64,
    covers: u32,
    values: Values,
    /// Bytes of the rows as they are sent.
    bytes: usize,
    /// Bytes that it holds, by [`room`].
    held: usize,
    reported: Marks,
    /// From its begin until the last child so far had submitted it or passed it on, by that child.
    slowest_us: u32,
    /// Every child that is waited for has sent it.
    complete: bool,
    /// When it is passed on at the latest.
    deadline: Instant,
    /// It was passed on before: this is the rest.
    late: bool,
}

/// A stream.
#[derive(Clone, Debug)]
pub(in crate::overlay) struct Stream {
    id: StreamId,
    version: u32,
    /// None: it is closed.
    spec: Option<StreamSpec>,
    ticks: VecDeque<Tick>,
    /// Ticks up to this one were passed on.
    passed: Option<u64>,
    /// Children that sent the last tick, where not all take part.
    active: Marks,
}

impl Stream {
    /// It has this number.
    pub(super) fn is(&self, id: StreamId) -> bool {
        self.id == id
    }
}

impl Hub {
    /// Opens or closes a stream, if this is news.
    pub fn set_stream(
        &mut self,
        now: Instant,
        id: StreamId,
        version: u32,
        spec: Option<StreamSpec>,
    ) -> bool {
        if let Some(at) = self.streams.iter().position(|stream| stream.id == id) {
            if self.streams[at].version >= version {
                return false;
            }
            while let Some(tick) = self.streams[at].ticks.pop_front() {
                self.pass_on(at, tick);
            }
            let stream = &mut self.streams[at];
            (stream.version, stream.spec) = (version, spec);
        } else {
            if self.streams.len() >= MAX_REMEMBERED {
                // The oldest of those that are closed is forgotten: who still sends it is told so
                // later.
                let closed = self.streams.iter().position(|stream| stream.spec.is_none());
                match closed {
                    Some(at) => drop(self.streams.remove(at)),
                    None => return false,
                }
            }
            self.streams.push(Stream {
                id,
                version,
                spec,
                ticks: VecDeque::new(),
                passed: None,
                active: Marks::default(),
            });
        }
        self.all_know = false;
        for child in self.children.values_mut() {
            child.tell_at = now;
            child.tells = 0;
        }
        self.forget_closed();
        true
    }

    /// Number of streams that are open.
    pub fn open_streams(&self) -> usize {
        self.streams
            .iter()
            .filter(|stream| stream.spec.is_some())
            .count()
    }

    /// The parent does not know this stream: what is open of it is passed on, and it is forgotten.
    pub fn forget_stream(&mut self, id: StreamId) {
        if let Some(at) = self.streams.iter().position(|stream| stream.id == id) {
            while let Some(tick) = self.streams[at].ticks.pop_front() {
                self.pass_on(at, tick);
            }
            self.streams.remove(at);
        }
    }

    /// Closed streams that everybody knows to be closed are forgotten.
    pub(super) fn forget_closed(&mut self) {
        let children = &self.children;
        self.streams.retain(|stream| {
            let known = |known: &[(StreamId, u32)]| known.contains(&(stream.id, stream.version));
            stream.spec.is_some() || children.values().any(|child| !known(&child.known))
        });
    }

    pub(super) fn lacks_stream(&self, child: &super::Child) -> bool {
        let lacks = |stream: &Stream| !child.known.contains(&(stream.id, stream.version));
        self.streams.iter().any(lacks)
    }

    pub(super) fn tell_streams(&mut self, io: &mut Io<'_>) {
        if self.all_know {
            return;
        }
        self.all_know = !self.children.values().any(|child| self.lacks_stream(child));
        if self.all_know {
            return;
        }
        let me = self.me;
        let streams = &self.streams;
        for (process, child) in &mut self.children {
            if child.tell_at > io.now || child.taken {
                continue;
            }
            let lacks = |stream: &&Stream| !child.known.contains(&(stream.id, stream.version));
            let mut told = false;
            for stream in streams.iter().filter(lacks) {
                told = true;
                let message = Message::Stream {
                    id: stream.id,
                    version: stream.version,
                    spec: stream.spec.clone(),
                };
                io.send(me, (*process, child.peer), message);
            }
            if told {
                child.tell_at = io.now + TELLING.wait_for_answer(child.tells, io.rng);
                child.tells = child.tells.saturating_add(1);
                child
                    .known
                    .retain(|(id, _)| streams.iter().any(|stream| stream.id == *id));
            }
        }
    }

    /// Merges a section of the child with this place.
    pub(super) fn reduce(
        &mut self,
        io: &mut Io<'_>,
        section: Section,
        (process, index): (Process, u16),
        clock: &Clock,
    ) {
        let samples = section.samples();
        let found = self
            .streams
            .iter()
            .position(|stream| stream.id == section.stream);
        if found.is_none()
            && let Some(child) = self.children.get(&process)
        {
            let message = Message::Stream {
                id: section.stream,
                version: 0,
                spec: None,
            };
            io.send(self.me, (process, child.peer), message);
        }
        let Some(at) = found.filter(|at| self.fits(*at, &section)) else {
            self.dropped += u64::from(samples);
            io.count(OverlayMetric::Dropped, samples.into());
            return;
        };
        let number = section.tick;
        let Some(place) = self.tick_place(io, at, (number, &section.body), clock) else {
            self.dropped += u64::from(samples);
            io.count(OverlayMetric::OverBound, samples.into());
            return;
        };
        let lag_us = self
            .children
            .get(&process)
            .map(|child| child.standing.lag_us);
        let tick = &mut self.streams[at].ticks[place];
        let covers = match &section.body {
            Body::Reduced(0, _) => section.covers,
            Body::Reduced(..) => 0,
            Body::Rows(rows) => rows.len() as u32,
        };
        if section.last {
            tick.reported.set(index);
            tick.slowest_us = tick.slowest_us.max(lag_us.unwrap_or(0));
        }
        match (section.body, &mut tick.values) {
            (Body::Reduced(first, theirs), Values::Reduced(ours)) => {
                tick.covers = tick.covers.saturating_add(covers);
                for (ours, theirs) in ours.iter_mut().skip(first.into()).zip(theirs) {
                    if !ours.merge(theirs) {
                        io.count(OverlayMetric::BadSections, 1);
                    }
                }
            }
            (Body::Rows(rows), Values::Rows(_)) => self.merge_rows(at, place, rows),
            _ => {}
        }
        if section.last && self.is_complete(at, place) {
            let tick = &mut self.streams[at].ticks[place];
            (tick.deadline, tick.complete) = (io.now, true);
            self.pass_in_order(at, io.now);
        }
    }

    /// Of a stream that waits for all: whoever has sent a tick sends nothing more of those before
    /// it, so with one that is whole these are passed on too, the oldest first. None is left behind
    /// to take the place of a later one.
    fn pass_in_order(&mut self, at: usize, now: Instant) {
        let spec = self.streams[at].spec.as_ref();
        if spec.is_none_or(|spec| spec.sync != Sync::WaitAll) {
            return;
        }
        let whole = |place: &usize| self.is_complete(at, *place);
        let Some(last) = (0..self.streams[at].ticks.len()).rev().find(whole) else {
            return;
        };
        for place in 0..=last {
            let complete = self.is_complete(at, place);
            let tick = &mut self.streams[at].ticks[place];
            (tick.deadline, tick.complete) = (tick.deadline.min(now), complete);
        }
    }

    /// The section is of this stream as it is.
    fn fits(&self, at: usize, section: &Section) -> bool {
        let Some(spec) = &self.streams[at].spec else {
            return false;
        };
        let metrics = spec.metrics.len();
        let inside = match &section.body {
            Body::Reduced(first, accs) => {
                let same = accs.iter().all(|acc| match (&acc.reduced, &spec.filter) {
                    (
                        Some(crate::overlay::Reduced::Buckets(buckets)),
                        Filter::Histogram(bounds),
                    ) => buckets.len() == bounds.len() + 1,
                    _ => true,
                });
                same && usize::from(*first) + accs.len() <= metrics
            }
            Body::Rows(rows) => rows.iter().all(|row| row.values.len() == metrics),
        };
        inside && spec.filter.code() == section.filter
    }

    /// The place of a tick among the open ones, with room for what is to be merged into it; it is
    /// opened if need be. None: there is no room.
    fn tick_place(
        &mut self,
        io: &mut Io<'_>,
        at: usize,
        (number, body): (u64, &Body),
        clock: &Clock,
    ) -> Option<usize> {
        let more = match body {
            Body::Rows(rows) => rows.iter().map(room::row_bytes).sum(),
            Body::Reduced(..) => 0,
        };
        let mut ticks = self.streams[at].ticks.iter();
        if let Some(place) = ticks.position(|tick| tick.number == number) {
            return self.has_room(more).then_some(place);
        }
        let spec = self.streams[at].spec.as_ref()?;
        let held = room::tick_bytes(spec, size_of::<Tick>() + MARKS_BYTES);
        if !self.has_room(held + more) {
            return None;
        }
        self.held += held;
        if self.streams[at].ticks.len() >= MAX_OPEN_TICKS
            && let Some(oldest) = self.streams[at].ticks.pop_front()
        {
            io.count(OverlayMetric::Forced, 1);
            self.note_lag(io, at, &oldest, clock);
            self.pass_on(at, oldest);
            // Who takes part is known better now: those behind it may have been whole for long.
            self.pass_in_order(at, io.now);
        }
        let height = u64::from(self.height);
        let stream = &mut self.streams[at];
        let passed = stream.passed.is_some_and(|passed| number <= passed);
        let spec = stream.spec.as_ref().expect("only open streams have ticks");
        // Where nothing is waited for, nothing is late.
        let late = passed && spec.sync != Sync::None;
        let deadline = match spec.sync {
            Sync::None => io.now,
            _ if late => io.now + LATE_HOLD,
            Sync::TimeOut => io.now + spec.hold.saturating_mul(height),
            Sync::WaitAll => Instant::FAR_FUTURE,
        };
        let values = match spec.filter {
            Filter::Concat => Values::Rows(Vec::new()),
            _ => Values::Reduced(vec![Acc::default(); spec.metrics.len()]),
        };
        if late {
            io.count(OverlayMetric::Late, 1);
        }
        let place = stream.ticks.partition_point(|tick| tick.number < number);
        let tick = Tick {
            number,
            covers: 0,
            values,
            bytes: 0,
            held,
            reported: Marks::default(),
            slowest_us: 0,
            complete: false,
            deadline,
            late,
        };
        stream.ticks.insert(place, tick);
        Some(place)
    }

    fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.room.ticks.saturating_sub(self.held)
    }

    /// Rows are passed on as soon as a frame is full; one is kept back, for the end of the tick.
    fn merge_rows(&mut self, at: usize, place: usize, new: Vec<Row>) {
        for row in new {
            let size = section::row_bytes(&row);
            let tick = &mut self.streams[at].ticks[place];
            let full = tick.bytes + size > ROWS_ROOM;
            let Values::Rows(rows) = &mut tick.values else {
                return;
            };
            let ready = if full {
                core::mem::take(rows)
            } else {
                Vec::new()
            };
            let memory = room::row_bytes(&row);
            rows.push(row);
            tick.covers += 1;
            tick.bytes += size;
            tick.held += memory;
            self.held += memory;
            if full {
                tick.bytes = size;
                let covers = ready.len() as u32;
                tick.covers -= covers;
                // What it takes to be open stays with the tick.
                let held = ready.iter().map(room::row_bytes).sum();
                tick.held -= held;
                let number = tick.number;
                self.queue(at, (number, covers, held), Values::Rows(ready), false);
            }
        }
    }

    /// Everybody that is waited for has sent it.
    fn is_complete(&self, at: usize, place: usize) -> bool {
        let stream = &self.streams[at];
        let tick = &stream.ticks[place];
        let all = matches!(
            stream.spec.as_ref().map(|spec| &spec.scope),
            Some(Scope::All)
        );
        if !all && stream.active == Marks::default() {
            return false;
        }
        self.children.values().all(|child| {
            let wanted = match all {
                true => child.standing.back_ends > 0 && !child.standing.quiet,
                false => stream.active.has(child.index),
            };
            !wanted || tick.reported.has(child.index)
        })
    }

    /// Nobody waits for a child that had this place.
    pub(super) fn forget_place(&mut self, now: Instant, index: u16) {
        for at in 0..self.streams.len() {
            self.streams[at].active.clear(index);
            for place in 0..self.streams[at].ticks.len() {
                self.streams[at].ticks[place].reported.clear(index);
                if self.is_complete(at, place) {
                    let tick = &mut self.streams[at].ticks[place];
                    (tick.deadline, tick.complete) = (Instant::ZERO, true);
                }
            }
            self.pass_in_order(at, now);
        }
    }

    pub(super) fn flush_due(&mut self, io: &mut Io<'_>, clock: &Clock) {
        for at in 0..self.streams.len() {
            let mut place = 0;
            while let Some(tick) = self.streams[at].ticks.get(place) {
                if tick.deadline > io.now {
                    place += 1;
                    continue;
                }
                if let Some(tick) = self.streams[at].ticks.remove(place) {
                    if !tick.late {
                        self.note_lag(io, at, &tick, clock);
                    }
                    self.pass_on(at, tick);
                }
            }
        }
    }

    /// Passes on all that is open.
    pub(super) fn flush_all(&mut self) {
        for at in 0..self.streams.len() {
            while let Some(tick) = self.streams[at].ticks.pop_front() {
                self.pass_on(at, tick);
            }
        }
    }

    /// Gives up all that is open, or was to be passed on.
    pub(super) fn give_up(&mut self) {
        let open = self
            .streams
            .iter_mut()
            .flat_map(|stream| stream.ticks.drain(..));
        let open: u64 = open.map(|tick| u64::from(tick.covers)).sum();
        let passed = self.flushed.drain(..);
        let passed: u64 = passed.map(|flushed| u64::from(flushed.covers)).sum();
        self.dropped += open + passed;
        self.held = 0;
    }

    /// Notes how late a tick is passed on, and how much of that is this process's: what it took
    /// beyond its slowest child, or beyond the wait for one that did not send it in time.
    fn note_lag(&mut self, io: &mut Io<'_>, at: usize, tick: &Tick, clock: &Clock) {
        let stream = &mut self.streams[at];
        let (Some(overlay), Some(spec)) = (clock.overlay(io.now), &stream.spec) else {
            return;
        };
        let begin = tick.number.saturating_mul(spec.period.0);
        if tick.number > overlay / spec.period.0 + AHEAD {
            return;
        }
        stream.passed = stream.passed.max(Some(tick.number));
        self.lag_us = overlay.saturating_sub(begin).min(u64::from(u32::MAX)) as u32;
        self.forwarded += 1;
        let own = match tick.complete {
            true => self.lag_us.saturating_sub(tick.slowest_us),
            false => {
                let beyond = io.now.saturating_since(tick.deadline).as_micros();
                beyond.min(u64::from(u32::MAX)) as u32
            }
        };
        let most = match self.level.0 == begin {
            true => self.level.1.max(own),
            false => own,
        };
        self.level = (begin, most);
        io.counters
            .set(OverlayMetric::Level as usize, u64::from(most));
    }

    fn pass_on(&mut self, at: usize, tick: Tick) {
        let stream = &mut self.streams[at];
        if !tick.late {
            stream.active = tick.reported;
        } else if (stream.spec.as_ref()).is_some_and(|spec| spec.sync == Sync::WaitAll) {
            // One that is always later than the others takes part too.
            stream.active.add(&tick.reported);
        }
        let empty = match &tick.values {
            Values::Reduced(accs) => tick.covers == 0 && accs.iter().all(|acc| acc.count == 0),
            Values::Rows(rows) => rows.is_empty(),
        };
        match empty {
            false => self.queue(at, (tick.number, tick.covers, tick.held), tick.values, true),
            true => self.held -= tick.held,
        }
    }

    /// Puts a tick, the back ends it covers and the bytes it holds among those to be passed on.
    fn queue(
        &mut self,
        at: usize,
        (tick, covers, held): (u64, u32, usize),
        values: Values,
        ends: bool,
    ) {
        let stream = &self.streams[at];
        let Some(spec) = &stream.spec else {
            self.dropped += u64::from(covers);
            self.held -= held;
            return;
        };
        self.flushed.push_back(Flushed {
            stream: stream.id,
            tick,
            covers,
            filter: spec.filter.clone(),
            metrics: spec.metrics.len() as u8,
            ends,
            values,
            held,
        });
    }

    pub(super) fn open_ticks(&self) -> usize {
        self.streams.iter().map(|stream| stream.ticks.len()).sum()
    }

    pub(in crate::overlay) fn tick_deadline(&self, at: Instant) -> Instant {
        let ticks = self.streams.iter().flat_map(|stream| &stream.ticks);
        ticks.map(|tick| tick.deadline).fold(at, Instant::min)
    }
}

impl Flushed {
    /// As sections for the parent.
    pub fn encode(self, out: &mut impl FnMut(section::Encoded)) {
        match self.values {
            Values::Reduced(accs) => {
                section::encode_reduced(
                    (self.stream, self.tick, self.covers),
                    &self.filter,
                    &accs,
                    out,
                );
            }
            Values::Rows(mut rows) => {
                while !rows.is_empty() {
                    out(section::encode_rows(
                        (self.stream, self.tick),
                        self.metrics,
                        &mut rows,
                        self.ends,
                    ));
                }
            }
        }
    }
}
