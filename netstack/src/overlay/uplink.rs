//! A process and its parent: attaching, reporting, noticing that the parent is lost, and finding
//! another.
//!
//! Key type: [`Uplink`]. A back end has one, and each communication process. Neighbours: the
//! parent's side is [`super::hub`].
//!
//! A parent is lost after [`LOST_AFTER`] without a word and [`ASKS_LEAST`] questions in vain: who
//! was not running itself asks first. Then another is drawn among the known candidates, at random
//! with weights of room, depth and proximity; only a process that is higher counts, so a process
//! never attaches into its own subtree. When none is left, the node says HELLO again.
//!
//! Source: the overlay method, practice: a lost communication process.
//!
//! Invariant: each sample given to an uplink is handed up once or counted as dropped. Of a link
//! that is over the front end hears how much was handed up on it: what its parent does not know of
//! is lost.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::clock::Clock;
use super::message::{
    Attach, AttachAck, AttachAnswer, Beat, CENSUS_ENTRIES, Candidate, CensusEntry, CensusKey,
    Message, Packet, Process, Standing, TreeEpoch,
};
use super::metric::OverlayMetric;
use super::outbox::Outbox;
use super::room::{CENSUS_BYTES, MAX_CENSUS, MAX_PENDING, PENDING_BYTES};
use super::section::Encoded;
use super::wire::SECTIONS_ROOM;
use super::{
    ASK_AGAIN, ASKS_LEAST, BEAT_EVERY, BEAT_LATE, CLOCK_EVERY, LOST_AFTER, RETRY_FIRST,
    RETRY_SLOWEST, STAGGER,
};
use crate::broadcast::Peer;
use crate::ids::BootEpoch;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::liveness::{Patience, Presence};
use crate::transport::retry::Backoff;

/// Attempts to attach to one candidate: as many as questions before a parent is lost.
const ATTACH_TRIES: u32 = ASKS_LEAST;
/// How soon a census message is repeated: its parent answers at once, within a fifth of what is
/// assumed of a message.
const CENSUS_AGAIN: Micros = Micros(RETRY_FIRST.0 / 5);
/// Its slowest repetition: half a beat.
const CENSUS_SLOWEST: Micros = Micros(BEAT_EVERY.0 / 2);
/// How soon a parent hears that the number of processes below has changed: those of half a stagger
/// together.
const TELL_WITHIN: Micros = Micros(STAGGER.0 / 2);

/// The golden ratio and the reciprocal of the plastic number as fractions of 65,536. The multiples
/// of either, without their whole part, lie evenly in a round however many there are, so nobody
/// needs to know that.
///
/// Source: Knuth, The Art of Computer Programming 3, section 6.4, theorem S (three distances).
const TURN_OF_CHILD: u16 = 40_503;
const TURN_OF_PARENT: u16 = 49_471;

/// What a process has with its parent.
const PATIENCE: Patience = Patience::new(BEAT_EVERY, ASK_AGAIN, ASKS_LEAST, LOST_AFTER);
const ATTACHING: Backoff = Backoff::new(RETRY_FIRST, RETRY_SLOWEST);
const CENSUS: Backoff = Backoff::new(CENSUS_AGAIN, CENSUS_SLOWEST);

/// What a process needs of its node to act.
pub(super) struct Io<'a> {
    pub now: Instant,
    pub me: Peer,
    pub boot: BootEpoch,
    pub tree: TreeEpoch,
    pub outbox: &'a mut Outbox,
    pub rng: &'a mut Rng,
    pub counters: &'a mut super::metric::Counters<{ OverlayMetric::COUNT }>,
}

impl Io<'_> {
    /// Sends a message. When too many wait it is dropped: everything that matters is repeated.
    pub fn send(&mut self, from: Process, to: (Process, Peer), message: Message) {
        let packet = Packet {
            from,
            boot: self.boot,
            mac: self.me.mac,
            to_slot: to.0.slot,
            tree: self.tree,
            message,
        };
        if !self.outbox.push(to.1, packet) {
            self.count(OverlayMetric::Overflowed, 1);
        }
    }

    pub fn count(&mut self, metric: OverlayMetric, more: u64) {
        self.counters.add(metric as usize, more);
    }
}

/// The link to a parent.
#[derive(Clone, Debug)]
struct Link {
    parent: Candidate,
    number: u32,
    /// Place among the parent's children.
    index: u16,
    /// Where the turns of the parent's children begin, in 65,536ths of a round.
    shift: u16,
    presence: Presence,
    ask_at: Instant,
    /// When values went to it last.
    values_at: Option<Instant>,
    handed: u64,
}

#[derive(Clone, Debug)]
enum State {
    Loose,
    Attaching {
        to: Candidate,
        number: u32,
        tries: u32,
        at: Instant,
    },
    Up(Link),
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Uplink {
    me: Process,
    height: u8,
    state: State,
    next_link: u32,
    kin: Vec<Candidate>,
    /// Candidates that did not take it since it was attached last.
    tried: Vec<Process>,
    pending: VecDeque<Encoded>,
    census: BTreeMap<CensusKey, CensusEntry>,
    /// The census message under way: its number, what is in it, attempts.
    under_way: Option<(u32, Vec<CensusEntry>, u32)>,
    census_at: Instant,
    census_number: u32,
    pub clock: Clock,
    /// Samples given up here.
    pub dropped: u64,
    was_up: bool,
    /// The parent knows since when nothing will be said: nothing is asked either.
    mute: bool,
    quiet_since: Option<u64>,
    /// Processes below as the parent was told last.
    told: (u32, u32, u32),
    tell_at: Instant,
}

/// Processes below, as a parent is told of them.
fn below_of(standing: &Standing) -> (u32, u32, u32) {
    (standing.back_ends, standing.quiet_below, standing.cps)
}

/// What a parent told, for the owner of the uplink.
pub(super) enum Told {
    /// Attached.
    Attached,
    /// News of candidates and of the siblings.
    Siblings(Vec<Candidate>),
    Nothing,
}

impl Uplink {
    /// Its links are numbered from `next_link` on: in a boot of the node no number comes twice.
    pub fn new(me: Process, height: u8, next_link: u32, now: Instant) -> Self {
        Uplink {
            me,
            height,
            state: State::Loose,
            next_link,
            kin: Vec::new(),
            tried: Vec::new(),
            pending: VecDeque::new(),
            census: BTreeMap::new(),
            under_way: None,
            census_at: now,
            census_number: 0,
            clock: Clock::default(),
            dropped: 0,
            was_up: false,
            mute: false,
            quiet_since: None,
            told: (0, 0, 0),
            tell_at: Instant::FAR_FUTURE,
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Takes children: it has a parent, or will get its first.
    pub fn is_open(&self) -> bool {
        self.is_up() || !self.was_up
    }

    /// Has nobody to attach to.
    pub fn is_stranded(&self) -> bool {
        matches!(self.state, State::Loose) && self.choices().next().is_none()
    }

    pub fn parent(&self) -> Option<Candidate> {
        match &self.state {
            State::Up(link) => Some(link.parent),
            _ => None,
        }
    }

    /// This process's turn within `round`, over which the back ends of a tree spread what they
    /// send.
    pub fn turn(&self, round: Micros) -> Micros {
        let State::Up(link) = &self.state else {
            return Micros::ZERO;
        };
        let turn = link
            .shift
            .wrapping_add(link.index.wrapping_mul(TURN_OF_CHILD));
        Micros(round.0.saturating_mul(turn.into()) >> 16)
    }

    /// Where the turns of its own children begin: elsewhere than those of its siblings' children.
    pub fn shift_below(&self) -> u16 {
        match &self.state {
            State::Up(link) => link
                .shift
                .wrapping_add(link.index.wrapping_mul(TURN_OF_PARENT)),
            _ => 0,
        }
    }

    /// The number of its next link.
    pub fn next_link(&self) -> u32 {
        self.next_link
    }

    /// The process ends: what waits for a parent is given up. What the front end has not heard for
    /// certain is given, with the last word of the link.
    pub fn end(&mut self, io: &mut Io<'_>) -> BTreeMap<CensusKey, CensusEntry> {
        let waiting = self.pending.drain(..);
        self.dropped += waiting
            .map(|section| u64::from(section.samples))
            .sum::<u64>();
        self.lose(io);
        core::mem::take(&mut self.census)
    }

    /// Nothing waits: neither values nor figures.
    pub fn is_drained(&self) -> bool {
        self.pending.is_empty() && self.census.is_empty() && self.under_way.is_none()
    }

    pub fn queued(&self) -> usize {
        self.pending.len() + self.census.len()
    }

    /// Bytes that wait, as counted against the bound of the process.
    pub fn bytes(&self) -> usize {
        self.pending.len() * (PENDING_BYTES / MAX_PENDING)
            + self.census.len() * (CENSUS_BYTES / MAX_CENSUS)
    }

    /// Attaches to this process, unless it has a parent or is at it.
    pub fn attach_to(&mut self, io: &mut Io<'_>, parent: Candidate) {
        if matches!(self.state, State::Loose) && parent.height > self.height {
            self.ask(io, parent);
        }
    }

    /// Learns of candidates that the front end names.
    pub fn offer(&mut self, candidates: &[Candidate]) {
        self.tried.clear();
        self.learn_kin(candidates);
    }

    fn learn_kin(&mut self, candidates: &[Candidate]) {
        let usable = candidates
            .iter()
            .filter(|kin| kin.height > self.height && kin.process != self.me);
        let kin: Vec<Candidate> = usable.copied().collect();
        if !kin.is_empty() {
            self.kin = kin;
        }
    }

    fn choices(&self) -> impl Iterator<Item = &Candidate> {
        self.kin
            .iter()
            .filter(|kin| !self.tried.contains(&kin.process))
    }

    /// Draws a candidate: weight is room times depth times proximity. The front end comes last.
    fn choose(&self, rng: &mut Rng) -> Option<Candidate> {
        let weight = |kin: &Candidate| match kin.process {
            Process::FRONT_END => 0,
            process => {
                let depth = match kin.height - self.height {
                    1 => 4,
                    2 => 2,
                    _ => 1,
                };
                let near = match process.node.0.abs_diff(self.me.node.0) {
                    0 => 8,
                    1..32 => 3,
                    32..1024 => 2,
                    _ => 1,
                };
                u64::from(kin.room.clamp(1, 64)) * depth * near
            }
        };
        let total: u64 = self.choices().map(weight).sum();
        if total == 0 {
            return self.choices().next().copied();
        }
        let mut drawn = rng.below(total);
        for kin in self.choices() {
            match drawn.checked_sub(weight(kin)) {
                Some(left) => drawn = left,
                None => return Some(*kin),
            }
        }
        None
    }

    fn ask(&mut self, io: &mut Io<'_>, to: Candidate) {
        let number = self.next_link;
        self.next_link += 1;
        self.state = State::Attaching {
            to,
            number,
            tries: 0,
            at: io.now,
        };
    }

    /// Gives values to send. Without a parent they wait, within bounds: the oldest are dropped for
    /// the newest.
    pub fn push(&mut self, section: Encoded) {
        if self.pending.len() >= MAX_PENDING
            && let Some(oldest) = self.pending.pop_front()
        {
            self.dropped += u64::from(oldest.samples);
        }
        self.pending.push_back(section);
    }

    /// Gives an entry of the census to send.
    pub fn push_census(&mut self, io: &mut Io<'_>, entry: CensusEntry) {
        let key = entry.key();
        if self.census.len() >= MAX_CENSUS && !self.census.contains_key(&key) {
            io.count(OverlayMetric::Overflowed, 1);
            return;
        }
        self.census.insert(key, entry);
    }

    /// Gives words about links that are over to send, of this node's roles or of their children;
    /// gives how many found no room.
    pub fn take_words(&mut self, words: impl IntoIterator<Item = CensusEntry>) -> u64 {
        let mut refused = 0;
        for word in words {
            match self.census.len() < MAX_CENSUS {
                true => drop(self.census.entry(word.key()).or_insert(word)),
                false => refused += 1,
            }
        }
        refused
    }

    /// Acts on what is due. `standing` is what the owner says of itself.
    pub fn tick(&mut self, io: &mut Io<'_>, standing: Standing) {
        self.note_changes(io, &standing);
        if matches!(self.state, State::Loose)
            && let Some(next) = self.choose(io.rng)
        {
            self.ask(io, next);
        }
        if let State::Attaching {
            to,
            number,
            tries,
            at,
        } = &mut self.state
            && *at <= io.now
        {
            if *tries >= ATTACH_TRIES {
                let process = to.process;
                self.tried.push(process);
                self.state = State::Loose;
                return self.tick(io, standing);
            }
            let attach = Attach {
                link: *number,
                height: self.height,
                room: standing.room,
                quiet: standing.quiet,
                moved: self.was_up,
                time: io.now.as_micros(),
            };
            let to = (to.process, to.peer);
            *at = io.now + ATTACHING.wait_for_answer(*tries, io.rng);
            *tries += 1;
            io.send(self.me, to, Message::Attach(attach));
        }
        let State::Up(link) = &self.state else {
            return;
        };
        let dead_at = link.presence.dead_at(&PATIENCE);
        if dead_at.is_some_and(|at| at <= io.now) && !self.mute {
            let parent = link.parent.process;
            io.count(OverlayMetric::ParentsLost, 1);
            self.lose(io);
            self.tried.push(parent);
            return self.tick(io, standing);
        }
        self.report(io, standing);
        self.tell_census(io);
    }

    /// What the parent should know soon: that silence begins or ends, how many processes are below.
    fn note_changes(&mut self, io: &mut Io<'_>, standing: &Standing) {
        if standing.quiet != self.quiet_since.is_some() {
            self.quiet_since = standing.quiet.then_some(io.now.as_micros());
            self.mute = false;
            if let State::Up(link) = &mut self.state {
                link.ask_at = io.now;
            }
        }
        if self.told != below_of(standing) {
            self.tell_at = self.tell_at.min(io.now + TELL_WITHIN);
        }
    }

    /// The link is over; what waited waits on. The parent may be asked again.
    fn lose(&mut self, io: &mut Io<'_>) {
        self.tried.clear();
        if let State::Up(link) = &self.state {
            let parent = link.parent;
            let word = CensusEntry {
                process: self.me,
                boot: io.boot,
                parent: parent.process,
                link: link.number,
                own: true,
                height: self.height,
                handed: link.handed,
                ..CensusEntry::default()
            };
            if word.handed > 0 {
                self.push_census(io, word);
            }
            self.kin.retain(|kin| kin.process != parent.process);
            self.kin.insert(0, parent);
        }
        if let Some((_, entries, _)) = self.under_way.take() {
            for entry in entries {
                self.census.entry(entry.key()).or_insert(entry);
            }
        }
        self.state = State::Loose;
    }

    /// Sends what waits, in as few frames as possible, and asks for an answer when that is due.
    fn report(&mut self, io: &mut Io<'_>, base: Standing) {
        loop {
            let State::Up(link) = &mut self.state else {
                return;
            };
            let due = link.ask_at <= io.now && !self.mute;
            if self.pending.is_empty() && !due && self.tell_at > io.now {
                return;
            }
            self.told = below_of(&base);
            self.tell_at = Instant::FAR_FUTURE;
            let mut sections = Vec::new();
            while let Some(next) = self.pending.front()
                && sections.len() + next.bytes.len() <= SECTIONS_ROOM
            {
                link.handed += u64::from(next.samples);
                sections.extend_from_slice(&next.bytes);
                self.pending.pop_front();
            }
            if !sections.is_empty() {
                link.values_at = Some(io.now);
            }
            // A question that is nearly due goes with the values: one message less.
            let answer = !self.mute && link.ask_at <= io.now + Micros(BEAT_EVERY.0 / 4);
            if answer {
                link.presence.asked(io.now);
                link.ask_at = io.now + ASK_AGAIN;
            }
            let standing = Standing {
                link: link.number,
                time: io.now.as_micros(),
                answer,
                handed: link.handed,
                ..base
            };
            let to = (link.parent.process, link.parent.peer);
            io.send(self.me, to, Message::Report { standing, sections });
        }
    }

    /// The last standing of the link, for TAKEN.
    pub fn last_standing(&self, now: Instant, base: Standing) -> Option<Standing> {
        let State::Up(link) = &self.state else {
            return None;
        };
        Some(Standing {
            link: link.number,
            time: now.as_micros(),
            handed: link.handed,
            ..base
        })
    }

    fn tell_census(&mut self, io: &mut Io<'_>) {
        let State::Up(link) = &self.state else {
            return;
        };
        if self.under_way.is_none() && !self.census.is_empty() {
            let mut entries = Vec::new();
            while entries.len() < CENSUS_ENTRIES
                && let Some((_, entry)) = self.census.pop_first()
            {
                entries.push(entry);
            }
            self.census_number += 1;
            self.under_way = Some((self.census_number, entries, 0));
            self.census_at = io.now;
        }
        if let Some((number, entries, tries)) = &mut self.under_way
            && self.census_at <= io.now
        {
            self.census_at = io.now + CENSUS.wait_for_answer(*tries, io.rng);
            *tries += 1;
            let message = Message::Census {
                number: *number,
                entries: entries.clone(),
            };
            io.send(self.me, (link.parent.process, link.parent.peer), message);
        }
    }

    /// Takes a message from above.
    pub fn attach_ack(&mut self, io: &mut Io<'_>, from: Process, ack: AttachAck) -> Told {
        let State::Attaching { to, number, .. } = &self.state else {
            return Told::Nothing;
        };
        if to.process != from || *number != ack.link {
            return Told::Nothing;
        }
        let to = *to;
        if ack.answer != AttachAnswer::Taken {
            self.tried.push(from);
            self.state = State::Loose;
            return Told::Nothing;
        }
        io.count(OverlayMetric::Attached, 1);
        let told = (ack.overlay, ack.trip_us);
        self.clock.learn(io.now, ack.echo, told);
        let ask_every = match self.clock.is_settled() {
            true => BEAT_EVERY,
            false => CLOCK_EVERY,
        };
        self.state = State::Up(Link {
            parent: to,
            number: ack.link,
            index: ack.index,
            shift: ack.shift,
            presence: Presence::new(io.now),
            ask_at: io.now + io.rng.jitter(ask_every),
            values_at: None,
            handed: 0,
        });
        self.was_up = true;
        self.mute = self.quiet_since.is_some();
        // What a parent takes for granted of a new child.
        self.told = match (self.height, self.mute) {
            (0, false) => (1, 0, 0),
            (0, true) => (0, 1, 0),
            _ => (0, 0, 1),
        };
        self.tell_at = Instant::FAR_FUTURE;
        self.tried.clear();
        self.learn_kin(&ack.kin);
        Told::Attached
    }

    pub fn beat(&mut self, io: &mut Io<'_>, from: Process, beat: Beat) -> Told {
        let State::Up(link) = &mut self.state else {
            return Told::Nothing;
        };
        if link.parent.process != from || link.number != beat.link {
            return Told::Nothing;
        }
        link.presence.heard(io.now);
        // The next question is to go with the next values. So all children of a parent are as far
        // when it is lost.
        let with_values = link.values_at.map(|at| at + BEAT_EVERY + BEAT_LATE);
        let recent = with_values.filter(|at| *at > io.now + BEAT_LATE);
        self.clock
            .learn(io.now, beat.echo, (beat.overlay, beat.trip_us));
        link.ask_at = match self.clock.is_settled() {
            true => recent.unwrap_or(io.now + BEAT_EVERY),
            false => io.now + io.rng.jitter(CLOCK_EVERY),
        };
        self.mute = self.quiet_since.is_some_and(|since| since <= beat.echo);
        self.learn_kin(&beat.kin);
        Told::Siblings(beat.siblings)
    }

    /// The parent says that there is no such link.
    pub fn detached(&mut self, io: &mut Io<'_>, from: Process, number: u32) {
        if let State::Up(link) = &self.state
            && link.parent.process == from
            && link.number == number
        {
            io.count(OverlayMetric::Detached, 1);
            self.lose(io);
        }
    }

    pub fn census_ack(&mut self, number: u32) {
        if self
            .under_way
            .as_ref()
            .is_some_and(|(own, ..)| *own == number)
        {
            self.under_way = None;
        }
    }

    /// This link is with that parent.
    pub fn is_linked(&self, from: Process) -> bool {
        self.parent().is_some_and(|parent| parent.process == from)
    }

    /// When to act next.
    pub fn deadline(&self) -> Instant {
        match &self.state {
            State::Loose if self.choices().next().is_some() => Instant::ZERO,
            State::Loose => Instant::FAR_FUTURE,
            State::Attaching { at, .. } => *at,
            State::Up(_) if !self.pending.is_empty() => Instant::ZERO,
            State::Up(link) => {
                let ask_at = if self.mute {
                    Instant::FAR_FUTURE
                } else {
                    link.ask_at
                };
                let mut at = ask_at.min(self.tell_at);
                let dead_at = link.presence.dead_at(&PATIENCE);
                if let Some(dead_at) = dead_at.filter(|_| !self.mute) {
                    at = at.min(dead_at);
                }
                if self.under_way.is_some() {
                    at = at.min(self.census_at);
                } else if !self.census.is_empty() {
                    at = Instant::ZERO;
                }
                at
            }
        }
    }
}
