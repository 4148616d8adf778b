//! The event loop of a simulated cast: stations, the network between them, faults, in virtual time.
//!
//! A station's engine is asked for the next message whenever its card has room, after something
//! arrived and at the time it named itself; never otherwise. The control node is the station with
//! the number after the last node.
//!
//! With thousands of nodes nearly all time is spent waiting for the memory of one node after the
//! other. So what reaches a node whose card is full stays in its inbox until the card takes
//! something: the node cannot act on it before. It is then taken with the time at which it came.
//!
//! Key type: [`World`]. Neighbours: [`super::setup`] says what happens, [`super::operator`] plays
//! the control node's user, [`super::check`] what must hold, [`super::summary`] what comes out.
//!
//! Invariant: nothing but the setup decides what happens; two runs give the same digest.

use std::sync::Arc;

use netstack::MAX_DATAGRAM;
use netstack::broadcast::Message;
use netstack::rng::Rng;
use netstack::time::Instant;

use super::fabric::{Arrival, Fabric, Train};
use super::operator::Operator;
use super::progress::Progress;
use super::queue::Queue;
use super::setup::{Fault, HEARTBEATS_NS, Payload, Setup};
use super::shelf::Content;
use super::station::{Clock, Load, MemberSetup, NEVER, Station, key, node_of, peer};
use super::summary::{Summary, Traffic};
use super::{check, content, wire};
use crate::air::{Air, Flight};
use crate::attacker::Attacker;
use crate::digest::{DIGEST, fold};

/// Width of the event queue's slots: with many nodes there are many events in a nanosecond.
fn slot_width_log2(nodes: u32) -> u32 {
    match nodes {
        0..64 => 8,
        64..1024 => 6,
        1024..4096 => 4,
        _ => 2,
    }
}

/// Until when after a restart of the control node its nodes have heard of it.
const HEARS_NS: u64 = 50_000_000;
/// How long a node keeps what it has of casts of an earlier run of the control node, as its kernel
/// does.
const LAPSE_NS: u64 = 60_000_000_000;
/// How far the clocks of stations are apart at most, where they are: in microseconds, and parts per
/// million.
const OFFSET_MOST_US: u64 = 900_000_000;
/// See [`OFFSET_MOST_US`].
const DRIFT_MOST_PPM: u64 = 50;
/// Virtual time after the end of the last cast for everything to come to rest.
const REST_NS: u64 = 120_000_000_000;
/// Messages that a station may send at one point of time: far more than its card takes.
const MESSAGES_AT_ONCE: u32 = 100_000;

/// Why a run failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// When, in nanoseconds.
    pub at_ns: u64,
}

/// Something that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A flight is at a switch.
    Arrive(u32),
    /// A flight is at this station.
    Deliver(u32),
    /// A station wants to be asked.
    Wake(u32),
    /// A flight that an attacker has sent is at its station.
    Again(u32),
    /// An action is due.
    Act(u32),
}

/// A message under way.
struct Letter {
    /// When it reaches its destination, once it has passed the port there.
    at: u64,
    /// The flight behind it in the inbox.
    next: u32,
    load: Load,
}

/// No flight.
const NONE: u32 = u32::MAX;

/// Flights that have passed the port of a station and are not taken yet, in the order of their
/// times.
#[derive(Clone, Copy)]
struct Inbox {
    first: u32,
    last: u32,
}

const EMPTY: Inbox = Inbox {
    first: NONE,
    last: NONE,
};

/// What happens from outside, or because of it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// A cast begins.
    Cast(usize),
    /// A cast is cancelled.
    Cancel(usize),
    /// Something from outside.
    Fault(Fault),
    /// The control node misses the heartbeats of a node, unless it was on again since.
    Missed(u32, u64),
    /// The control node has a node join a cast.
    Join(usize, u32),
    /// A node hears of the control node's new run.
    Hear(u32),
    /// A node gives up what it has of casts of an earlier run, unless it has started again since.
    Lapse(u32, u64),
}

/// A simulated network of nodes and the casts on it.
pub struct World {
    pub(super) setup: Setup,
    pub(super) contents: Arc<Vec<Content>>,
    pub(super) stations: Vec<Station>,
    pub(super) operator: Operator,
    pub(super) fabric: Fabric,
    pub(super) traffic: Traffic,
    pub(super) digest: u64,
    pub(super) events: u64,
    now: u64,
    queue: Queue<Event>,
    air: Air<Letter>,
    attacker: Attacker,
    inboxes: Vec<Inbox>,
    actions: Vec<Action>,
    actions_left: usize,
    progress: Progress,
    buffer: Box<[u8; MAX_DATAGRAM]>,
}

impl World {
    /// A network on which nothing has happened yet.
    ///
    /// # Errors
    /// A text that says what is wrong with the setup.
    pub fn new(setup: Setup) -> Result<Self, String> {
        check::plans(&setup)?;
        let contents = Arc::new(content::make_all(&setup)?);
        let mut fabric = Fabric::new(setup.wiring.clone(), setup.nodes, setup.seed)?;
        fabric.set_noise(setup.noise);
        for &node in &setup.slow {
            fabric.set_slow(node, super::setup::SLOW_FACTOR);
        }
        let stations = (0..=setup.nodes).map(|_| Station::new(&contents)).collect();
        let mut world = World {
            operator: Operator::new(&setup, &contents),
            progress: Progress::new(&setup, &contents),
            contents,
            stations,
            fabric,
            traffic: Traffic::default(),
            digest: DIGEST,
            events: 0,
            now: 0,
            queue: Queue::new(slot_width_log2(setup.nodes)),
            air: Air::new(),
            attacker: Attacker::new(setup.attack, setup.seed, setup.nodes + 1),
            inboxes: vec![EMPTY; setup.nodes as usize + 1],
            actions: Vec::new(),
            actions_left: 0,
            buffer: Box::new([0; MAX_DATAGRAM]),
            setup,
        };
        if world.setup.clocks {
            let mut rng = Rng::new(world.setup.seed ^ 0x636c_6f63_6b73);
            for station in &mut world.stations {
                station.clock = Clock {
                    offset_us: rng.below(OFFSET_MOST_US),
                    drift_ppm: rng.below(DRIFT_MOST_PPM + 1) as u32,
                };
            }
        }
        world.boot_source();
        for node in 0..world.setup.nodes {
            world.boot_member(node);
        }
        for plan in 0..world.setup.casts.len() {
            let (at, cancel) = (
                world.setup.casts[plan].at_ns,
                world.setup.casts[plan].cancel_ns,
            );
            for &node in &world.setup.casts[plan].warm {
                world.stations[node as usize].shelf.fill(plan);
            }
            world.schedule(at, Action::Cast(plan));
            if let Some(at) = cancel {
                world.schedule(at, Action::Cancel(plan));
            }
        }
        for index in 0..world.setup.faults.len() {
            let (at, fault) = world.setup.faults[index];
            world.schedule(at, Action::Fault(fault));
        }
        Ok(world)
    }

    /// Runs to the end: all casts over and everything at rest, or the deadline passed, or a check
    /// failed.
    ///
    /// # Errors
    /// What was found.
    pub fn run(mut self) -> Result<Summary, Failure> {
        let checked = (self.run_to_rest())
            .and_then(|()| check::end(&self))
            .and_then(|()| check::tables(&self));
        match checked {
            Ok(looked_up) => Ok(Summary::of(&self, looked_up)),
            Err(what) => Err(Failure {
                what,
                at_ns: self.now,
            }),
        }
    }

    fn run_to_rest(&mut self) -> Result<(), String> {
        let mut rest_until = None;
        while let Some((at, event)) = self.queue.pop() {
            self.now = self.now.max(at);
            self.events += 1;
            if self.events.is_multiple_of(1 << 16) {
                self.progress.tell(self.now, &self.stations, self.events);
            }
            if self.now > self.setup.deadline_ns {
                return Err(format!(
                    "not done by the deadline: {}",
                    check::missing(self)
                ));
            }
            self.step(event)?;
            if self.operator.is_over() && self.actions_left == 0 {
                let until = *rest_until.get_or_insert(self.now + REST_NS);
                if self.now > until {
                    break;
                }
            } else {
                rest_until = None;
            }
        }
        if self.operator.is_over() && self.actions_left == 0 {
            Ok(())
        } else {
            Err(format!(
                "nothing will ever happen again: {}",
                check::missing(self)
            ))
        }
    }

    /// The number of the control node's station.
    pub(super) fn control(&self) -> u32 {
        self.setup.nodes
    }

    /// What the clock of a station shows.
    pub(super) fn clock_of(&self, station: u32) -> Instant {
        self.stations[station as usize].clock.at(self.now)
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn schedule(&mut self, at: u64, action: Action) {
        self.actions.push(action);
        self.actions_left += 1;
        let number = (self.actions.len() - 1) as u32;
        self.queue.push(at, Event::Act(number));
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrive(number) => match self.air.arrive(&mut self.fabric, self.now, number) {
                Arrival::Now => self.put_in(number, self.now),
                Arrival::At(at) => self.put_in(number, at),
                Arrival::Passes(at) => {
                    self.queue.push(at, Event::Arrive(number));
                    Ok(())
                }
                Arrival::Never => Ok(()),
            },
            Event::Deliver(node) => self.deliver(node),
            Event::Again(number) => self.put_in(number, self.now),
            Event::Wake(node) => self.wake(node),
            Event::Act(number) => {
                self.actions_left -= 1;
                // What happens from outside finds everybody up to date.
                for node in 0..self.setup.nodes {
                    self.take_in(node, self.now)?;
                }
                self.act(self.actions[number as usize])
            }
        }
    }

    /// An event for a station's wake-up came.
    fn wake(&mut self, node: u32) -> Result<(), String> {
        let station = &mut self.stations[node as usize];
        let timer = station.timer_at == self.now;
        if timer {
            station.timer_at = NEVER;
        }
        if station.wake_at == self.now {
            station.wake_at = NEVER;
            self.take_in(node, self.now)?;
            return self.drive(node);
        }
        if timer && station.wake_at != NEVER && !station.wake_queued {
            // It was put off meanwhile.
            station.wake_queued = true;
            station.timer_at = station.wake_at;
            let (at, order) = (station.wake_at, station.wake_order);
            self.queue.push_as(at, order, Event::Wake(node));
        }
        Ok(())
    }

    /// Has a station woken, if it is not before that. Of its deadlines, nearly all of which are put
    /// off again and again, one is in the queue at a time.
    fn wake_by(&mut self, node: u32, at: u64, deadline: bool) {
        let station = &mut self.stations[node as usize];
        if at >= station.wake_at {
            return;
        }
        station.wake_at = at;
        station.wake_order = self.queue.order();
        station.wake_queued = at == station.timer_at || !deadline || at < station.timer_at;
        if at == station.timer_at || !station.wake_queued {
            return;
        }
        if deadline {
            station.timer_at = at;
        }
        let order = station.wake_order;
        self.queue.push_as(at, order, Event::Wake(node));
    }

    /// A flight has passed the port of its destination, whose link has brought all of it at `at`.
    fn put_in(&mut self, number: u32, at: u64) -> Result<(), String> {
        let flight = self.air.get_mut(number).expect("in the air");
        flight.load.at = at;
        let node = flight.to;
        let inbox = &mut self.inboxes[node as usize];
        let last = std::mem::replace(&mut inbox.last, number);
        match self.air.get_mut(last) {
            Some(last) => last.load.next = number,
            None => inbox.first = number,
        }
        if at <= self.now {
            return self.deliver(node);
        }
        if !self.is_busy(node, at) {
            self.queue.push(at, Event::Deliver(node));
        }
        Ok(())
    }

    /// Whether a station, as far as is known, has a full card at this time, and is woken later when
    /// it has room: what reaches it by then can wait. The control node is always asked at once, for
    /// its user acts on what it says, and with several casts nodes are: their shares are compared
    /// in the middle of a run.
    fn is_busy(&self, node: u32, at: u64) -> bool {
        node != self.control()
            && self.setup.casts.len() == 1
            && self.fabric.card_takes_at(node) > at
    }

    /// Something has reached a station.
    fn deliver(&mut self, node: u32) -> Result<(), String> {
        if self.is_busy(node, self.now) {
            return Ok(());
        }
        self.take_in(node, self.now + 1)?;
        self.drive(node)
    }

    /// Gives a station what has reached it before this time.
    fn take_in(&mut self, node: u32, before: u64) -> Result<(), String> {
        loop {
            let first = self.inboxes[node as usize].first;
            match self.air.get(first) {
                Some(flight) if flight.load.at < before => {}
                _ => return Ok(()),
            }
            let flight = self.air.land(first);
            let inbox = &mut self.inboxes[node as usize];
            inbox.first = flight.load.next;
            if inbox.first == NONE {
                inbox.last = NONE;
            }
            self.take(flight)?;
        }
    }

    /// Gives a station a flight.
    fn take(&mut self, flight: Flight<Letter>) -> Result<(), String> {
        let Letter { at, mut load, .. } = flight.load;
        let delivered = self.traffic.delivered_fragments;
        let to_control = flight.to == self.control();
        let station = &mut self.stations[flight.to as usize];
        if station.engine.is_none() {
            return Ok(());
        }
        let mark = match &mut load {
            Load::Message(packet) => {
                if let Message::Data {
                    block, fragments, ..
                } = &mut packet.message
                {
                    *fragments = flight.train.datagrams;
                    self.traffic.delivered_fragments += u64::from(fragments.count_ones());
                    u64::from(*block) << 32 ^ *fragments
                } else {
                    0
                }
            }
            Load::Datagram(bytes) => {
                let is_data = wire::data_payload(bytes).is_some();
                self.traffic.delivered_fragments += u64::from(is_data);
                let bytes = bytes.iter();
                bytes.fold(0, |sum, &byte| fold(sum, u64::from(byte)))
            }
        };
        if to_control && self.traffic.delivered_fragments == delivered {
            self.traffic.count_at_control();
        }
        let ends = u64::from(flight.from) << 32 | u64::from(flight.to);
        let words = [at, ends, mark];
        // A sum, whatever the order in which stations are looked at.
        let seen = words.into_iter().fold(DIGEST, fold);
        self.digest = self.digest.wrapping_add(seen);
        let now = station.clock.at(at);
        station.handle(now, peer(flight.from).addr, load);
        self.drain_events(flight.to, at)
    }

    /// Lets a station act: takes its events, sends what its card takes, and notes when to come
    /// back.
    pub(super) fn drive(&mut self, node: u32) -> Result<(), String> {
        let now = self.clock_of(node);
        let mut sent = 0;
        loop {
            self.drain_events(node, self.now)?;
            let takes_at = self.fabric.card_takes_at(node);
            if takes_at > self.now {
                self.wake_by(node, takes_at, false);
                return Ok(());
            }
            if !self.send_next(node, now) {
                // The last question may have brought events.
                self.drain_events(node, self.now)?;
                if let Some(at) = self.deadline_of(node) {
                    self.wake_by(node, at, true);
                }
                return Ok(());
            }
            sent += 1;
            if sent > MESSAGES_AT_ONCE {
                return Err(format!("n{node} never stops sending"));
            }
        }
    }

    /// When a station that has nothing to send wants to be asked again.
    fn deadline_of(&self, node: u32) -> Option<u64> {
        let station = &self.stations[node as usize];
        let due = station.clock.when(station.poll_timeout()?);
        // What is due now and still gave nothing is asked for in the next microsecond.
        let soonest = (self.now / 1000 + 1) * 1000;
        Some(due.max(soonest))
    }

    fn drain_events(&mut self, node: u32, at: u64) -> Result<(), String> {
        if node == self.setup.nodes {
            return self.source_events();
        }
        self.member_events(node, at)
    }

    /// Sends the next message of a station; false when it has none.
    fn send_next(&mut self, node: u32, now: Instant) -> bool {
        let from_control = node == self.control();
        let station = &mut self.stations[node as usize];
        let (to, train, load) = match self.setup.payload {
            Payload::Virtual => {
                let Some((to, packet)) = station.poll_message(now) else {
                    return false;
                };
                let plan = self.operator.plan_of(packet.cast);
                let object = plan.map(|plan| &self.contents[plan].object);
                let train = self.traffic.charge(from_control, &packet, object);
                (to, train, Load::Message(packet))
            }
            Payload::Real => {
                let Some((to, length)) = station.poll_datagram(now, &mut self.buffer[..]) else {
                    return false;
                };
                let bytes = &self.buffer[..length];
                let train = self.traffic.charge_datagram(from_control, bytes);
                (to, train, Load::Datagram(bytes.into()))
            }
        };
        let to = node_of(to.addr);
        if to > self.setup.nodes && self.setup.attack.is_on() {
            // Nobody has the address from which an attacker spoke.
            return true;
        }
        assert!(to <= self.setup.nodes, "n{node} sends to nowhere");
        self.launch(node, to, train, load);
        true
    }

    fn launch(&mut self, from: u32, to: u32, train: Train, load: Load) {
        let (train, first, again) = self.fabric.send(self.now, from, to, train);
        for said in self.attacker.again(from) {
            let number = self.take_off(said.from, to, train, clone_load(&load));
            self.queue
                .push(self.now + said.after_ns, Event::Again(number));
        }
        let Some(first) = first else {
            return;
        };
        let copy = again.map(|at| (at, clone_load(&load)));
        for (at, mut load) in [(first, load)].into_iter().chain(copy) {
            if let Load::Datagram(bytes) = &mut load {
                self.attacker.flip(bytes);
            }
            let number = self.take_off(from, to, train, load);
            self.queue.push(at, Event::Arrive(number));
        }
    }

    fn take_off(&mut self, from: u32, to: u32, train: Train, load: Load) -> u32 {
        let letter = Letter {
            at: NEVER,
            next: NONE,
            load,
        };
        self.air.take_off(Flight {
            from,
            to,
            train,
            load: letter,
        })
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        match action {
            Action::Fault(fault) => self.inflict(fault)?,
            Action::Hear(node) => self.hear_of_control(node),
            Action::Lapse(node, boots) => {
                let station = &mut self.stations[node as usize];
                if station.engine.is_some() && station.boots == boots {
                    station.shelf.lapse();
                }
            }
            other => self.operate(other)?,
        }
        Ok(())
    }

    fn inflict(&mut self, fault: Fault) -> Result<(), String> {
        match fault {
            Fault::Die(node) => {
                let station = &mut self.stations[node as usize];
                if station.engine.take().is_some() {
                    let boots = station.boots;
                    self.schedule(self.now + HEARTBEATS_NS, Action::Missed(node, boots));
                }
            }
            Fault::Restart(node) => {
                self.stations[node as usize].engine = None;
                self.boot_member(node);
                self.rejoin(node);
            }
            Fault::Join { cast, node } => self.operate(Action::Join(cast, node))?,
            Fault::Part(node, part) => {
                self.fabric.set_part(node, part);
                if part == 0 {
                    self.rejoin(node);
                    self.hear_of_control(node);
                }
            }
            Fault::CrashControl => {
                self.stations[self.setup.nodes as usize].engine = None;
                self.operator.crash();
            }
            Fault::RestartControl => {
                self.boot_source();
                let mut rng = Rng::new(self.setup.seed ^ self.now);
                for node in 0..self.setup.nodes {
                    let at = self.now + rng.below(HEARS_NS);
                    self.schedule(at, Action::Hear(node));
                }
                self.recast()?;
            }
            Fault::Noise(noise) => self.fabric.set_noise(noise),
            Fault::Corrupt(node) => self.stations[node as usize].shelf.corrupt = true,
        }
        Ok(())
    }

    fn boot_member(&mut self, node: u32) {
        let setup = MemberSetup {
            control: peer(self.control()),
            key: key(self.stations[self.setup.nodes as usize].boots),
            time: self.clock_of(self.control()).as_micros(),
            buffers: self.setup.buffers,
            members: self.setup.members_most(node),
            seed: self.setup.seed,
        };
        let now = self.clock_of(node);
        let key_of = self.stations[self.setup.nodes as usize].boots;
        let station = &mut self.stations[node as usize];
        station.boot_member(&self.contents, node, setup, now);
        station.key_of = key_of;
    }

    fn boot_source(&mut self) {
        let control = self.control();
        let now = self.clock_of(control);
        let (rate, seed) = (self.setup.wiring.rate / 8, self.setup.seed);
        let station = &mut self.stations[control as usize];
        let key = key(station.boots + 1);
        station.boot_source(control, key, rate, seed, now);
        for plan in 0..self.setup.casts.len() {
            station.shelf.fill(plan);
        }
    }

    /// A node hears of the present run of the control node and gets its key.
    pub(super) fn hear_of_control(&mut self, node: u32) {
        let boots = self.stations[self.setup.nodes as usize].boots;
        if !self.lives(node) || self.stations[node as usize].key_of == boots {
            return;
        }
        let time = self.clock_of(self.control()).as_micros();
        let now = self.clock_of(node);
        let station = &mut self.stations[node as usize];
        station.key_of = boots;
        if let Some(member) = station.member() {
            member.set_key(now, key(boots));
            member.begin_at(now, time);
            station.shelf.forget_casts();
        }
        for plan in 0..self.operator.runs.len() {
            if self.operator.runs[plan].cancelled {
                self.stations[node as usize].shelf.drop_part(plan);
            }
        }
        // A cast of the new run goes on with what is here, if its announcement comes before it is
        // cancelled.
        let boots = self.stations[node as usize].boots;
        self.schedule(self.now + LAPSE_NS, Action::Lapse(node, boots));
        self.rejoin(node);
    }
}

fn clone_load(load: &Load) -> Load {
    match load {
        Load::Message(packet) => Load::Message(packet.clone()),
        Load::Datagram(bytes) => Load::Datagram(bytes.clone()),
    }
}
