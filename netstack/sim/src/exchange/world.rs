//! The event loop of a simulated exchange: ranks, the network between them, pauses, deaths, in
//! virtual time.
//!
//! A rank's endpoint is asked for the next datagram whenever its card has room, after something
//! arrived and at the time it named itself; never otherwise, and not while its node pauses.
//!
//! Invariant: nothing but the setup decides what happens; two runs give the same digest.

use netstack::MAX_DATAGRAM;
use netstack::exchange::message::Data;
use netstack::exchange::wire::DATA_OVERHEAD;
use netstack::exchange::{
    Among, Body, Config, Endpoint, Error, Event, Footprint, Group, Op, PACKET, Packet, Side,
};
use netstack::ids::{JobId, Rank};
use netstack::rng::Rng;
use netstack::time::Instant;
use netstack::wire::datagram::Kind;
use netstack::wire::key::Key;

use super::memory::{RECEIVED, RankMemory, SENT};
use super::setup::{PAUSE_EVERY_NS, PAUSE_NS, Setup};
use super::summary::{Summary, Traffic};
use crate::air::{Air, Flight};
use crate::attacker::Attacker;
use crate::broadcast::fabric::{Arrival, Fabric, Train, frame_bytes};
use crate::broadcast::queue::Queue;
use crate::digest::{DIGEST, fold};

/// No wake-up is under way, or no such time.
pub const NEVER: u64 = u64::MAX;
/// Virtual time after the end for everything to come to rest.
const REST_NS: u64 = 2_000_000_000;
/// A rank that dies is named by all others within this time.
const LOST_NS: u64 = 8_000_000_000;
/// What tc charges for a datagram beyond its bytes: headers of Ethernet, IPv4 and UDP.
pub const LIMITER_HEADERS: u32 = 14 + 20 + 8;
/// Datagrams that a rank may send at one point of time: far more than its card takes.
const DATAGRAMS_AT_ONCE: u32 = 100_000;

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
enum Due {
    /// A flight is at a switch.
    Arrive(u32),
    /// A flight is at its destination.
    Deliver(u32),
    /// A rank wants to be asked.
    Wake(u32),
    /// A rank begins.
    Begin(u32),
    /// A rank dies.
    Die(u32),
}

/// What is under way.
#[derive(Clone)]
enum Load {
    Packet(Packet),
    Datagram(Box<[u8]>),
}

/// A rank.
pub(super) struct Station {
    pub endpoint: Endpoint,
    pub memory: RankMemory,
    pub alive: bool,
    wake_at: u64,
    /// Its first pause; others follow.
    pause_at: u64,
    /// Exchanges that are done.
    pub done: u32,
    pub done_at: u64,
    /// The rank that is lost, as it says, and when it said so.
    pub lost: Option<(Rank, u64)>,
}

/// Ranks on a network.
pub struct World {
    pub(super) setup: Setup,
    pub(super) stations: Vec<Station>,
    pub(super) fabric: Fabric,
    pub(super) traffic: Traffic,
    pub(super) digest: u64,
    pub(super) events: u64,
    /// Ranks that have not died.
    living: u32,
    now: u64,
    queue: Queue<Due>,
    air: Air<Load>,
    attacker: Attacker,
    buffer: Box<[u8; MAX_DATAGRAM]>,
}

impl World {
    /// A network on which nothing has happened yet.
    ///
    /// # Errors
    /// A text that says what is wrong with the setup.
    pub fn new(setup: Setup) -> Result<Self, String> {
        if !(2..=65_536).contains(&setup.ranks) {
            return Err("--p is 2 to 65,536".into());
        }
        let mut fabric = Fabric::new(setup.wiring.clone(), setup.ranks, setup.seed)?;
        fabric.set_noise(setup.noise);
        fabric.set_limiters(setup.limiters);
        let mut rng = Rng::new(setup.seed ^ 0x7061_7573_6573);
        let stations = (0..setup.ranks)
            .map(|me| station(&setup, me, &mut rng))
            .collect();
        let mut world = World {
            stations,
            fabric,
            traffic: Traffic::default(),
            digest: DIGEST,
            events: 0,
            living: setup.ranks,
            now: 0,
            queue: Queue::new(if setup.ranks < 256 { 8 } else { 6 }),
            air: Air::new(),
            attacker: Attacker::new(setup.attack, setup.seed, setup.ranks),
            buffer: Box::new([0; MAX_DATAGRAM]),
            setup,
        };
        for rank in 0..world.setup.ranks {
            let is_late = world.setup.late.contains(&rank);
            let at = if is_late { world.setup.late_ns } else { 0 };
            world.queue.push(at, Due::Begin(rank));
        }
        for index in 0..world.setup.deaths.len() {
            let (at, rank) = world.setup.deaths[index];
            world.queue.push(at, Due::Die(rank));
        }
        Ok(world)
    }

    /// Runs to the end: all exchanges over and everything at rest.
    ///
    /// # Errors
    /// What was found.
    pub fn run(mut self) -> Result<Summary, Failure> {
        match self.run_to_rest().and_then(|()| self.check_end()) {
            Ok(()) => Ok(Summary::of(&self)),
            Err(what) => Err(Failure {
                what,
                at_ns: self.now,
            }),
        }
    }

    fn run_to_rest(&mut self) -> Result<(), String> {
        let mut rest_until = None;
        while let Some((at, due)) = self.queue.pop() {
            self.now = self.now.max(at);
            self.events += 1;
            if self.now > self.setup.deadline_ns {
                return Err(format!("not done by the deadline: {}", self.missing()));
            }
            self.step(due)?;
            if self.is_over(due) && self.now > *rest_until.get_or_insert(self.now + REST_NS) {
                break;
            }
        }
        match self.missing() {
            missing if missing.is_empty() => Ok(()),
            missing => Err(format!("nothing will ever happen again: {missing}")),
        }
    }

    /// Every living rank is done. Asked only when a rank may just have become so.
    fn is_over(&self, due: Due) -> bool {
        matches!(due, Due::Wake(_) | Due::Deliver(_)) && self.traffic.finished >= self.living
    }

    fn missing(&self) -> String {
        let is_missing = |station: &Station| {
            station.alive && station.done < self.setup.times && station.lost.is_none()
        };
        let missing = self
            .stations
            .iter()
            .enumerate()
            .filter(|(_, station)| is_missing(station));
        missing
            .take(8)
            .map(|(rank, station)| {
                format!(
                    "rank {rank} has {} of {} packets; ",
                    station.memory.written(),
                    station.memory.packets()
                )
            })
            .collect()
    }

    fn check_end(&self) -> Result<(), String> {
        for (rank, station) in self.stations.iter().enumerate() {
            if let Some(violation) = station.memory.violations.first() {
                return Err(format!("rank {rank}: {violation}"));
            }
            if !station.alive {
                continue;
            }
            match station.lost {
                None if station.memory.written() != station.memory.packets() => {
                    return Err(format!(
                        "rank {rank} is done and has not received everything"
                    ));
                }
                None => {}
                Some((lost, at)) => {
                    let death = self.setup.deaths.iter().find(|(_, dead)| *dead == lost.0);
                    let Some((died_at, _)) = death else {
                        return Err(format!(
                            "rank {rank} says that rank {lost} is lost, which lives"
                        ));
                    };
                    if at > died_at + LOST_NS {
                        return Err(format!(
                            "rank {rank} took {} ns to say that rank {lost} is lost",
                            at - died_at
                        ));
                    }
                }
            }
            let kept = station.endpoint.footprint();
            if kept != Footprint::default() {
                return Err(format!("rank {rank} keeps {kept:?} when all is over"));
            }
        }
        Ok(())
    }

    fn step(&mut self, due: Due) -> Result<(), String> {
        match due {
            Due::Arrive(number) => match self.air.arrive(&mut self.fabric, self.now, number) {
                Arrival::Now => self.deliver(number),
                Arrival::At(at) => {
                    self.queue.push(at, Due::Deliver(number));
                    Ok(())
                }
                Arrival::Passes(at) => {
                    self.queue.push(at, Due::Arrive(number));
                    Ok(())
                }
                Arrival::Never => Ok(()),
            },
            Due::Deliver(number) => self.deliver(number),
            Due::Wake(rank) => {
                let station = &mut self.stations[rank as usize];
                if station.wake_at != self.now || !station.alive {
                    return Ok(());
                }
                station.wake_at = NEVER;
                self.drive(rank)
            }
            Due::Begin(rank) => self.begin(rank),
            Due::Die(rank) => {
                let station = &mut self.stations[rank as usize];
                let lived = core::mem::replace(&mut station.alive, false);
                // Only the living are waited for, so only they count, and a death once.
                let is_done = station.done == self.setup.times || station.lost.is_some();
                self.traffic.finished -= u32::from(lived && is_done);
                self.living -= u32::from(lived);
                Ok(())
            }
        }
    }

    fn clock(&self) -> Instant {
        Instant::from_micros(self.now / 1000)
    }

    fn begin(&mut self, rank: u32) -> Result<(), String> {
        let now = self.clock();
        let station = &mut self.stations[rank as usize];
        if !station.alive {
            return Ok(());
        }
        station.memory.clear();
        let ranks = self.setup.group_of(rank);
        let (send, receive) = station.memory.layouts(&ranks);
        let group = match self.setup.groups {
            1 => Group::All,
            _ => Group::listed(ranks.into_iter().map(Rank).collect()).expect("a group"),
        };
        let side = |buffer, layout| Side { buffer, layout };
        let op = Op::AllToAll {
            among: Among {
                group,
                ..Among::all(0)
            },
            send: side(SENT, send),
            receive: side(RECEIVED, receive),
        };
        if let Err(error) = station.endpoint.post(now, op, &mut station.memory) {
            let lost = self
                .setup
                .deaths
                .first()
                .map_or(Rank(rank), |(_, dead)| Rank(*dead));
            if error != netstack::exchange::PostError::Lost(lost) {
                return Err(format!("rank {rank} cannot begin: {error:?}"));
            }
            station.lost = Some((lost, self.now));
            self.traffic.finished += 1;
        }
        self.drive(rank)
    }

    /// When the node of a rank goes on, if it pauses now.
    fn paused_until(&self, rank: u32) -> Option<u64> {
        let first = self.stations[rank as usize].pause_at;
        let into = self.now.checked_sub(first)? % PAUSE_EVERY_NS;
        (self.setup.pauses && into < PAUSE_NS).then(|| self.now - into + PAUSE_NS)
    }

    fn deliver(&mut self, number: u32) -> Result<(), String> {
        let to = self.air.get(number).expect("in the air").to;
        if let Some(at) = self.paused_until(to) {
            self.queue.push(at, Due::Deliver(number));
            return Ok(());
        }
        let mut flight = self.air.land(number);
        if !self.stations[to as usize].alive {
            return Ok(());
        }
        self.digest = fold(self.digest, self.now);
        self.digest = fold(self.digest, u64::from(flight.from) << 32 | u64::from(to));
        self.digest = fold(self.digest, flight.train.datagrams);
        let now = self.clock();
        let station = &mut self.stations[to as usize];
        match &mut flight.load {
            Load::Datagram(bytes) => {
                station
                    .endpoint
                    .handle_datagram(now, bytes, &mut station.memory);
            }
            Load::Packet(packet) => {
                if let Body::Data(data) = &mut packet.body {
                    keep(data, flight.train.datagrams);
                }
                let Load::Packet(packet) = flight.load else {
                    return Ok(());
                };
                station
                    .endpoint
                    .handle_packet(now, packet, None, &mut station.memory);
            }
        }
        self.drive(to)
    }

    /// Lets a rank act: takes its events, sends what its card takes, and notes when to come back.
    fn drive(&mut self, rank: u32) -> Result<(), String> {
        let now = self.clock();
        let mut sent = 0;
        let wake = loop {
            self.drain_events(rank)?;
            if let Some(at) = self.paused_until(rank) {
                break Some(at);
            }
            let takes_at = self.fabric.card_takes_at(rank);
            if takes_at > self.now {
                break Some(takes_at);
            }
            if !self.send_next(rank, now) {
                self.drain_events(rank)?;
                break self.deadline_of(rank);
            }
            sent += 1;
            if sent > DATAGRAMS_AT_ONCE {
                return Err(format!("rank {rank} never stops sending"));
            }
        };
        if let Some(at) = wake {
            let station = &mut self.stations[rank as usize];
            if at < station.wake_at {
                station.wake_at = at;
                self.queue.push(at, Due::Wake(rank));
            }
        }
        Ok(())
    }

    fn deadline_of(&self, rank: u32) -> Option<u64> {
        let due = self.stations[rank as usize].endpoint.poll_timeout()?;
        // What is due now and still gave nothing is asked for in the next microsecond.
        let soonest = (self.now / 1000 + 1) * 1000;
        Some(due.as_micros().saturating_mul(1000).max(soonest))
    }

    fn drain_events(&mut self, rank: u32) -> Result<(), String> {
        while let Some(event) = self.stations[rank as usize].endpoint.poll_event() {
            let station = &mut self.stations[rank as usize];
            match event {
                Event::Done { .. } => {
                    if station.memory.written() != station.memory.packets() {
                        return Err(format!(
                            "rank {rank} is done and has not received everything"
                        ));
                    }
                    station.done += 1;
                    station.done_at = self.now;
                    if station.done == self.setup.times {
                        self.traffic.finished += 1;
                    } else {
                        self.queue.push(self.now, Due::Begin(rank));
                    }
                }
                Event::Failed {
                    error: Error::RankLost(lost),
                    ..
                } => {
                    station.lost = Some((lost, self.now));
                    self.traffic.finished += 1;
                }
                Event::Failed { error, .. } => return Err(format!("rank {rank}: {error}")),
            }
        }
        Ok(())
    }

    /// Sends the next datagram of a rank; false when it has none.
    fn send_next(&mut self, rank: u32, now: Instant) -> bool {
        let station = &mut self.stations[rank as usize];
        let (to, train, load) = if self.setup.real {
            let polled =
                station
                    .endpoint
                    .poll_transmit(now, &mut self.buffer[..], &mut station.memory);
            let Some((to, length)) = polled else {
                return false;
            };
            let bytes = &self.buffer[..length];
            let is_data = bytes[3] == Kind::ExchangeData as u8;
            let datagram = Box::from(bytes);
            let wire = self.frame(length as u32);
            let train = self.traffic.charge(is_data, 1, wire);
            (to, train, Load::Datagram(datagram))
        } else {
            let Some((to, packet)) =
                station
                    .endpoint
                    .poll_packet(now, self.setup.train, &mut station.memory)
            else {
                return false;
            };
            let (packets, wire) = match &packet.body {
                Body::Data(data) => (data.packets, self.data_wire(data)),
                _ => (1, self.frame(packet.wire_bytes() as u32)),
            };
            let is_data = matches!(packet.body, Body::Data(_));
            let train = self.traffic.charge(is_data, packets, wire);
            (to, train, Load::Packet(packet))
        };
        assert!(to.0 < self.setup.ranks, "rank {rank} sends to nowhere");
        self.launch(rank, to.0, train, load);
        true
    }

    /// What a datagram of this many bytes takes of a link.
    fn frame(&self, datagram: u32) -> u32 {
        match self.setup.limiters {
            true => datagram + LIMITER_HEADERS,
            false => frame_bytes(datagram),
        }
    }

    /// What packets of a block take of a link.
    fn data_wire(&self, data: &Data) -> u32 {
        let full = data.packets.count_ones() - 1;
        let frame = |bytes: usize| self.frame((bytes + DATA_OVERHEAD) as u32);
        full * frame(PACKET) + frame(data.tail.into())
    }

    fn launch(&mut self, from: u32, to: u32, train: Train, load: Load) {
        let (train, first, again) = self.fabric.send(self.now, from, to, train);
        let copy = |load| Flight {
            from,
            to,
            train,
            load,
        };
        for said in self.attacker.again(from) {
            let number = self.air.take_off(copy(load.clone()));
            let at = self.now + said.after_ns;
            self.queue.push(at, Due::Deliver(number));
        }
        for at in again.into_iter().chain(first) {
            let mut load = load.clone();
            if let Load::Datagram(bytes) = &mut load {
                self.attacker.flip(bytes);
            }
            let number = self.air.take_off(copy(load));
            self.queue.push(at, Due::Arrive(number));
        }
    }
}

fn station(setup: &Setup, me: u32, rng: &mut Rng) -> Station {
    let sent: Vec<u64> = (0..setup.ranks)
        .map(|to| setup.block_bytes(me, to))
        .collect();
    let received: Vec<u64> = (0..setup.ranks)
        .map(|from| setup.block_bytes(from, me))
        .collect();
    let told = |figure: u64| if setup.untold { 0 } else { figure };
    let queue_bytes = setup.wiring.queue_bytes.min(u64::from(u32::MAX));
    let config = Config {
        job: JobId(1),
        epoch: 1,
        me: Rank(me),
        size: setup.ranks,
        key: Key(*b"simulated ranks."),
        rate: told(setup.wiring.rate / 8),
        port_buffer: told(queue_bytes) as u32,
        leaf: if setup.knows_leaves {
            setup.wiring.tree[0]
        } else {
            0
        },
        scheme: setup.scheme,
        eager_bytes: 0,
        seed: setup.seed,
    };
    let mut endpoint = Endpoint::new(config, Instant::ZERO);
    if setup.knows_leaves {
        endpoint.set_core(setup.core());
    }
    Station {
        endpoint,
        memory: RankMemory::new(me, &sent, &received),
        alive: true,
        wake_at: NEVER,
        pause_at: rng.below(PAUSE_EVERY_NS),
        done: 0,
        done_at: 0,
        lost: None,
    }
}

/// Takes the packets out that did not come.
fn keep(data: &mut Data, packets: u64) {
    let lost_last = packets.leading_zeros() != data.packets.leading_zeros();
    data.packets = packets;
    if lost_last {
        data.tail = PACKET as u16;
        data.is_last = false;
    }
}
