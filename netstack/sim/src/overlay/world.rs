//! The event loop of a simulated overlay.
//!
//! A run: nodes start within a second, say hello; the front end makes the tree and opens the
//! streams; values flow while faults happen; the front end takes the tree down; what must hold is
//! checked.
//!
//! Key type: [`World`]. Neighbours: [`super::check`], [`super::summary`].
//!
//! Invariant: events are taken in the order of time, and a run is a function of its setup.

use netstack::ids::NodeId;
use netstack::overlay::{
    FrontEnd, FrontEndConfig, FrontEndEvent, NodeEvent, OverlayMetric, Part, Process, StreamId,
    TreeEpoch,
};
use netstack::rng::Rng;
use netstack::time::Instant;

use super::check;
use super::setup::{BUILD_NS, DOWN_NS, Fault, LOOK_NS, REST_NS, SETTLING_NS, Setup};
use super::station::Station;
use super::summary::{Figures, Summary};
use super::truth::Truth;
use crate::air::{Air, Flight};
use crate::attacker::Attacker;
use crate::broadcast::fabric::{Arrival, Fabric, Noise, Train, frame_bytes};
use crate::broadcast::queue::Queue;
use crate::broadcast::station::{Clock, NEVER, key, node_of, peer};
use crate::digest::{DIGEST, fold};

/// Messages of one station in one moment, beyond which something runs in a circle.
const MESSAGES_AT_ONCE: u32 = 200_000;
/// How soon control hears heartbeats of a node that goes on.
const BACK_NS: u64 = 1_000_000_000;
/// When another tree is made after a node has refused a process.
const REFUSED_NS: u64 = 1_500_000_000;
/// Binary logarithm of a queue slot in nanoseconds.
const SLOT_LOG2: u32 = 12;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrive(u32),
    Deliver(u32),
    Wake(u32),
    Act(u32),
}

#[derive(Clone, Copy)]
enum Action {
    Start(u32),
    Build,
    /// Another tree, of the nodes that live.
    Rebuild,
    Fault(Fault),
    /// Control hears the heartbeats of a node again.
    Back(u32),
    Open(usize),
    Close(usize),
    /// The figures of the flow begin.
    Measure,
    TakeDown,
    /// Taking down should be over.
    Down,
    /// The last tree is taken down, in which nodes told what they had no tree for.
    Settled,
    End,
}

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// What was found.
    pub what: String,
    /// When, in nanoseconds.
    pub at_ns: u64,
}

/// A run.
pub struct World {
    pub(super) setup: Setup,
    now: u64,
    queue: Queue<Event>,
    air: Air<Box<[u8]>>,
    attacker: Attacker,
    actions: Vec<Action>,
    pub(super) fabric: Fabric,
    pub(super) stations: Vec<Station>,
    pub(super) front: FrontEnd,
    front_wake: u64,
    /// By their places in [`Setup::specs`].
    pub(super) streams: Vec<Option<StreamId>>,
    /// The tree is taken down to be made anew.
    replanning: bool,
    pub(super) truth: Truth,
    pub(super) figures: Figures,
    /// Where each process hangs, as it said last: index by node, slot.
    parents: Vec<[Option<Process>; 5]>,
    /// Ticks that each process has passed on.
    forwarded: Vec<[u64; 5]>,
    rng: Rng,
    over: bool,
    buffer: Box<[u8; netstack::MAX_DATAGRAM]>,
    digest: u64,
}

impl World {
    /// A run that has not begun.
    ///
    /// # Errors
    /// The setup makes no sense.
    pub fn new(setup: Setup) -> Result<Self, String> {
        setup.check()?;
        let mut rng = Rng::new(setup.seed ^ 0x6f76_6572_6c61_7921);
        let mut fabric = Fabric::new(setup.wiring.clone(), setup.nodes, setup.seed)?;
        fabric.set_noise(setup.noise);
        let mut clock = || match setup.clocks {
            false => Clock::default(),
            true => Clock {
                offset_us: rng.below(900_000_000),
                drift_ppm: rng.below(51) as u32,
            },
        };
        let stations = (0..setup.nodes)
            .map(|node| Station::new(node, clock()))
            .collect();
        let config = FrontEndConfig {
            me: peer(setup.nodes),
            key: key(1),
            tree_base: TreeEpoch(1 << 32),
            seed: setup.seed,
        };
        let nodes = setup.nodes as usize;
        let mut world = World {
            now: 0,
            queue: Queue::new(SLOT_LOG2),
            air: Air::new(),
            attacker: Attacker::new(setup.attack, setup.seed, setup.nodes + 1),
            actions: Vec::new(),
            fabric,
            stations,
            front: FrontEnd::new(config, Instant::ZERO),
            front_wake: NEVER,
            streams: Vec::new(),
            replanning: false,
            truth: Truth::default(),
            figures: Figures::default(),
            parents: vec![[None; 5]; nodes],
            forwarded: vec![[0; 5]; nodes],
            rng,
            over: false,
            buffer: Box::new([0; netstack::MAX_DATAGRAM]),
            digest: DIGEST,
            setup,
        };
        world.plan();
        Ok(world)
    }

    fn plan(&mut self) {
        for node in 0..self.setup.nodes {
            let at = self.rng.below(200_000_000);
            self.schedule(at, Action::Start(node));
        }
        self.schedule(BUILD_NS, Action::Build);
        self.schedule(BUILD_NS + 3_000_000_000, Action::Measure);
        let faults = self.setup.faults.clone();
        let last = faults
            .iter()
            .map(|&(at, _)| at + REST_NS)
            .max()
            .unwrap_or(0);
        for (at, fault) in faults {
            self.schedule(BUILD_NS + at, Action::Fault(fault));
        }
        for (place, (at, _)) in (self.setup.streams.len()..).zip(self.setup.opens.clone()) {
            self.schedule(BUILD_NS + at, Action::Open(place));
        }
        for (at, stream) in self.setup.closes.clone() {
            self.schedule(BUILD_NS + at, Action::Close(stream));
        }
        let end = BUILD_NS + self.setup.flow_ns.max(last);
        self.schedule(end, Action::TakeDown);
        self.schedule(end + DOWN_NS, Action::Down);
        let mut over = end + DOWN_NS;
        if self.setup.settle {
            self.schedule(over + 1, Action::Fault(Fault::Noise(Noise::default())));
            self.schedule(over + 2, Action::Rebuild);
            self.schedule(over + SETTLING_NS, Action::Settled);
            over += SETTLING_NS;
        }
        self.schedule(over + REST_NS, Action::End);
    }

    fn schedule(&mut self, at: u64, action: Action) {
        self.actions.push(action);
        self.queue
            .push(at, Event::Act(self.actions.len() as u32 - 1));
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// What was found.
    pub fn run(mut self) -> Result<Summary, Failure> {
        match self.run_to_end() {
            Ok(()) => Ok(Summary::of(&self)),
            Err(what) => Err(Failure {
                what,
                at_ns: self.now,
            }),
        }
    }

    fn run_to_end(&mut self) -> Result<(), String> {
        while let Some((at, event)) = self.queue.pop() {
            self.now = self.now.max(at);
            self.figures.events += 1;
            if self.setup.progress && self.figures.events.is_multiple_of(1 << 20) {
                eprintln!(
                    "{:.3} s, {} events",
                    self.now as f64 / 1e9,
                    self.figures.events
                );
            }
            self.step(event)?;
            if self.over {
                break;
            }
        }
        check::end(self)
    }

    pub(super) fn now(&self) -> u64 {
        self.now
    }

    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    fn step(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Arrive(number) => match self.air.arrive(&mut self.fabric, self.now, number) {
                Arrival::Now => self.deliver(number),
                Arrival::At(at) => {
                    self.queue.push(at, Event::Deliver(number));
                    Ok(())
                }
                Arrival::Passes(at) => {
                    self.queue.push(at, Event::Arrive(number));
                    Ok(())
                }
                Arrival::Never => Ok(()),
            },
            Event::Deliver(number) => self.deliver(number),
            Event::Wake(station) => {
                let now = self.now;
                let wake = self.wake_of(station);
                if *wake != now {
                    return Ok(());
                }
                *wake = NEVER;
                self.drive(station)
            }
            Event::Act(number) => self.act(self.actions[number as usize]),
        }
    }

    fn wake_of(&mut self, station: u32) -> &mut u64 {
        match self.stations.get_mut(station as usize) {
            Some(station) => &mut station.wake_at,
            None => &mut self.front_wake,
        }
    }

    fn deliver(&mut self, number: u32) -> Result<(), String> {
        let flight = self.air.land(number);
        let from = peer(flight.from).addr;
        self.digest = fold(self.digest, self.now);
        self.digest = fold(
            self.digest,
            u64::from(flight.from) << 32 | u64::from(flight.to),
        );
        let Some(station) = self.stations.get_mut(flight.to as usize) else {
            self.front
                .handle_datagram(Instant::from_micros(self.now / 1000), from, &flight.load);
            return self.drive(flight.to);
        };
        if station.stopped || station.look_at.is_some() {
            station.keep(flight.from, flight.load);
            return Ok(());
        }
        let Some(node) = &mut station.node else {
            return Ok(());
        };
        node.handle_datagram(station.clock.at(self.now), from, &flight.load);
        self.drive(flight.to)
    }

    /// Lets a station act: sends what its card takes, and notes when to come back.
    fn drive(&mut self, station: u32) -> Result<(), String> {
        if self
            .stations
            .get(station as usize)
            .is_some_and(|station| station.stopped || station.node.is_none())
        {
            return Ok(());
        }
        if let Some(look_at) = self.look_at(station) {
            if look_at > self.now {
                self.wake(station, look_at);
                return Ok(());
            }
            // Half of them read their values before they look at what has arrived.
            if station.is_multiple_of(2) {
                while self.fabric.card_takes_at(station) <= self.now && self.send_next(station) {}
            }
            self.take_waiting(station);
        }
        let mut sent = 0;
        let wake = loop {
            let takes_at = self.fabric.card_takes_at(station);
            if takes_at > self.now {
                break Some(takes_at);
            }
            if !self.send_next(station) {
                break self.deadline_of(station);
            }
            sent += 1;
            if sent > MESSAGES_AT_ONCE {
                return Err(format!("n{station} never stops sending"));
            }
        };
        self.take_events(station)?;
        let wake = match self.look_at(station) {
            // It looks on while its card is full.
            Some(_) if wake.is_some_and(|at| at <= self.now) => wake,
            Some(_) => {
                let next = self.now + LOOK_NS;
                self.stations[station as usize].look_at = Some(next);
                Some(next)
            }
            None => wake,
        };
        if let Some(at) = wake {
            self.wake(station, at);
        }
        Ok(())
    }

    fn wake(&mut self, station: u32, at: u64) {
        let now = self.now;
        let known = self.wake_of(station);
        if at < *known || *known <= now {
            *known = at;
            self.queue.push(at, Event::Wake(station));
        }
    }

    fn look_at(&self, station: u32) -> Option<u64> {
        self.stations.get(station as usize)?.look_at
    }

    /// A node takes what has arrived while it did not look.
    fn take_waiting(&mut self, node: u32) {
        let station = &mut self.stations[node as usize];
        let now = station.clock.at(self.now);
        let waiting = std::mem::take(&mut station.waiting);
        if let Some(machine) = &mut station.node {
            for (from, bytes) in waiting {
                machine.handle_datagram(now, peer(from).addr, &bytes);
            }
        }
    }

    fn deadline_of(&self, station: u32) -> Option<u64> {
        let due = match self.stations.get(station as usize) {
            Some(station) => station.clock.when(station.node.as_ref()?.poll_timeout()?),
            None => self.front.poll_timeout()?.as_micros() * 1000,
        };
        // What is due now and gave nothing is asked for in the next microsecond.
        Some(due.max((self.now / 1000 + 1) * 1000))
    }

    fn send_next(&mut self, station: u32) -> bool {
        let sent = match self.stations.get_mut(station as usize) {
            Some(station) => {
                let now = station.clock.at(self.now);
                station.gauges.now_us = self.now / 1000;
                let gauges = &mut station.gauges;
                station
                    .node
                    .as_mut()
                    .and_then(|node| node.poll_transmit(now, &mut self.buffer[..], gauges))
            }
            None => self
                .front
                .poll_transmit(Instant::from_micros(self.now / 1000), &mut self.buffer[..]),
        };
        let Some((to, length)) = sent else {
            return false;
        };
        let bytes: Box<[u8]> = self.buffer[..length].into();
        let to = node_of(to.addr);
        if to > self.setup.nodes && self.setup.attack.is_on() {
            // Nobody has the address from which an attacker spoke.
            return true;
        }
        assert!(to <= self.setup.nodes, "n{station} sends to nowhere");
        let train = Train {
            datagrams: 1,
            wire: frame_bytes(length as u32),
            sent_in: 0,
            passed: 0,
        };
        let (train, first, again) = self.fabric.send(self.now, station, to, train);
        let copy = |from, load| Flight {
            from,
            to,
            train,
            load,
        };
        for at in first.into_iter().chain(again) {
            let mut load = bytes.clone();
            self.attacker.flip(&mut load);
            let number = self.air.take_off(copy(station, load));
            self.queue.push(at, Event::Arrive(number));
        }
        for again in self.attacker.again(station) {
            let number = self.air.take_off(copy(again.from, bytes.clone()));
            let at = self.now + again.after_ns;
            self.queue.push(at, Event::Deliver(number));
        }
        true
    }

    fn take_events(&mut self, station: u32) -> Result<(), String> {
        let now = self.now;
        if station == self.setup.nodes {
            while let Some(event) = self.front.poll_event() {
                self.front_event(event)?;
            }
            return Ok(());
        }
        let index = station as usize;
        let Some(node) = &mut self.stations[index].node else {
            return Ok(());
        };
        while let Some(event) = node.poll_event() {
            match event {
                NodeEvent::Attached { slot, parent } => {
                    self.parents[index][usize::from(slot)] = Some(parent);
                    self.figures.attached(now, station, slot);
                }
                NodeEvent::RoleTaken { slot, .. } => self.forwarded[index][usize::from(slot)] = 0,
                NodeEvent::RoleEnded { slot } => self.parents[index][usize::from(slot)] = None,
            }
        }
        let Some(period) = self.setup.streams.first().map(|spec| spec.period.0) else {
            return Ok(());
        };
        for status in node.status() {
            let known = &mut self.forwarded[index][usize::from(status.slot)];
            if status.forwarded > *known {
                *known = status.forwarded;
                self.figures
                    .lag(status.height, now, u64::from(status.lag_us), period);
            }
        }
        Ok(())
    }

    fn front_event(&mut self, event: FrontEndEvent) -> Result<(), String> {
        match event {
            FrontEndEvent::Tick(value) => {
                let opened = |id: &Option<StreamId>| *id == Some(value.stream);
                let at = self.streams.iter().position(opened);
                let spec = at.and_then(|at| self.setup.specs().nth(at));
                self.truth
                    .take(&value, spec, self.setup.dedicated..self.setup.nodes)?;
                if let Some(spec) = spec {
                    let begin = value.tick * spec.period.0;
                    let lag = value.at.as_micros().saturating_sub(begin);
                    self.figures.arrived(lag, &value);
                }
            }
            FrontEndEvent::TreeUp { after, .. } => self.figures.build_us = Some(after.0),
            FrontEndEvent::TreeDown if self.replanning => {
                self.replanning = false;
                self.schedule(self.now + 1, Action::Rebuild);
            }
            FrontEndEvent::TreeDown => {
                self.figures.down_at.get_or_insert(self.now);
            }
            // As control does: those that refuse at the same time are told together.
            FrontEndEvent::Refused { .. } => {
                let at = self.now + REFUSED_NS;
                self.schedule(at, Action::Fault(Fault::Replan));
            }
            FrontEndEvent::Lost { .. } => self.figures.lost_told += 1,
            FrontEndEvent::Hello { .. } | FrontEndEvent::Closed { .. } => {}
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), String> {
        let at = Instant::from_micros(self.now / 1000);
        match action {
            Action::Start(node) => {
                self.start(node);
                self.drive(node)
            }
            Action::Build => {
                self.front
                    .build(at, &self.setup.layout)
                    .map_err(|error| error.to_string())?;
                self.figures.status = self.front.status();
                self.streams = vec![None; self.setup.specs().count()];
                (0..self.setup.streams.len()).try_for_each(|place| self.open(place))?;
                self.drive(self.setup.nodes)
            }
            Action::Rebuild => self.rebuild(),
            Action::Back(node) => {
                if self.lives(node) {
                    self.front.welcome_back(at, NodeId(node));
                    self.drive(self.setup.nodes)?;
                }
                // The one word that it is told may be lost: control looks every second.
                if self.front.away().any(|away| away == NodeId(node)) {
                    self.schedule(self.now + BACK_NS, Action::Back(node));
                }
                Ok(())
            }
            Action::Open(place) => {
                self.open(place)?;
                self.drive(self.setup.nodes)
            }
            Action::Close(stream) => {
                if let Some(stream) = self.streams[stream] {
                    self.front.close(at, stream);
                }
                self.drive(self.setup.nodes)
            }
            Action::Measure => {
                self.figures.begin(self.now, self.fabric.tally);
                Ok(())
            }
            Action::Fault(fault) => self.inflict(fault),
            Action::TakeDown => {
                check::before_down(self)?;
                self.figures.end(self.now, self.fabric.tally);
                self.figures.down_from = self.now;
                self.front.take_down(at);
                self.drive(self.setup.nodes)
            }
            Action::Down => {
                self.figures.left_over = check::left_over(self);
                Ok(())
            }
            Action::Settled => {
                self.front.take_down(at);
                self.drive(self.setup.nodes)
            }
            Action::End => {
                self.over = true;
                Ok(())
            }
        }
    }

    fn open(&mut self, place: usize) -> Result<(), String> {
        let at = Instant::from_micros(self.now / 1000);
        let spec = self.setup.specs().nth(place).expect("it is planned");
        let id = self.front.open(at, spec.clone());
        self.streams[place] = Some(id.map_err(|error| error.to_string())?);
        Ok(())
    }

    /// Takes the tree down, to make another of those that live.
    fn replan(&mut self) -> Result<(), String> {
        if self.front.is_standing() && !self.replanning {
            self.replanning = true;
            let at = Instant::from_micros(self.now / 1000);
            self.front.take_down(at);
            self.drive(self.setup.nodes)?;
        }
        Ok(())
    }

    /// Another tree of those that live; those whose programs compute host as little as may be.
    fn rebuild(&mut self) -> Result<(), String> {
        let at = Instant::from_micros(self.now / 1000);
        let parts: Vec<Part> = (0..self.setup.nodes)
            .map(|node| match self.lives(node) {
                false => Part::None,
                true if self.look_at(node).is_some() => Part::BackEnd,
                true => Part::Any,
            })
            .collect();
        if parts.iter().all(|part| *part == Part::None) {
            return Ok(());
        }
        let part = &mut |node: NodeId| parts[node.0 as usize];
        let plan = self.front.build_among(at, &self.setup.layout, part);
        plan.map_err(|error| error.to_string())?;
        self.drive(self.setup.nodes)
    }

    fn start(&mut self, node: u32) {
        let (seed, front) = (self.setup.seed, self.setup.nodes);
        let back_end = node >= self.setup.dedicated;
        let station = &mut self.stations[node as usize];
        let now = station.clock.at(self.now);
        station.start(seed, (front, self.now / 1000), back_end, now);
    }

    /// A node that goes off is put on the books of the truth.
    fn switch_off(&mut self, node: u32) {
        let station = &mut self.stations[node as usize];
        let boot = station.boot();
        if let Some(machine) = station.node.take() {
            self.truth.dead.insert((node, boot), machine.submitted());
            self.figures.kills += 1;
        }
        let hangs =
            |parent: &Option<Process>| parent.is_some_and(|parent| parent.node == NodeId(node));
        for (child, parents) in (0_u32..).zip(&self.parents) {
            if child == node || self.stations[child as usize].node.is_none() {
                continue;
            }
            let orphans = (0_u8..).zip(parents).filter(|(_, parent)| hangs(parent));
            for (slot, _) in orphans {
                self.figures.orphaned(self.now, child, slot);
            }
        }
        self.parents[node as usize] = [None; 5];
        self.forwarded[node as usize] = [0; 5];
        self.figures.forget(node);
    }

    fn inflict(&mut self, fault: Fault) -> Result<(), String> {
        self.figures.last_fault = self.now;
        match fault {
            Fault::Kill(node) => self.switch_off(node),
            Fault::KillCp(number) => {
                if let Some(node) = self.host_of(number) {
                    self.switch_off(node);
                }
            }
            Fault::Restart(node) => {
                self.switch_off(node);
                self.truth.restarts += 1;
                self.start(node);
                self.drive(node)?;
            }
            Fault::Stop(node) => self.stations[node as usize].stopped = true,
            Fault::Continue(node) => {
                self.stations[node as usize].stopped = false;
                self.take_waiting(node);
                self.drive(node)?;
                self.schedule(self.now + BACK_NS, Action::Back(node));
            }
            Fault::Compute(node) => {
                self.stations[node as usize].look_at = Some(self.now);
                self.drive(node)?;
            }
            Fault::Idle(node) => {
                self.stations[node as usize].look_at = None;
                self.take_waiting(node);
                self.drive(node)?;
            }
            Fault::Tight(node) => {
                if let Some(machine) = &mut self.stations[node as usize].node {
                    machine.offer(0);
                }
            }
            Fault::Replan => self.replan()?,
            Fault::Part(node, part) => self.fabric.set_part(node, part),
            Fault::Noise(noise) => self.fabric.set_noise(noise),
        }
        Ok(())
    }

    /// A node with a communication process: the one that is number `number` in the order of nodes.
    fn host_of(&self, number: u32) -> Option<u32> {
        let mut hosts = (0..self.setup.nodes).filter(|&node| {
            let machine = self.stations[node as usize].node.as_ref();
            machine.is_some_and(|machine| machine.status().any(|status| status.slot > 0))
        });
        hosts.nth(number as usize)
    }

    /// A node is on, goes on, and is reached.
    pub(super) fn lives(&self, node: u32) -> bool {
        let station = &self.stations[node as usize];
        station.node.is_some() && !station.stopped && self.fabric.part(node) == 0
    }

    /// Sum of a counter over all nodes that are on.
    pub(super) fn total(&self, metric: OverlayMetric) -> u64 {
        let nodes = self
            .stations
            .iter()
            .filter_map(|station| station.node.as_ref());
        nodes.map(|node| node.counters().get(metric as usize)).sum()
    }
}
