//! Machines and the network between them, in virtual time: what is under way, what waits where, and
//! when who looks.
//!
//! - [`fabric`]: links, network cards, ports and trunks of a fat tree, and what goes wrong on them.
//! - [`air`]: what is under way. [`queue`]: events by time. [`clock`]: what machines go by.
//! - [`attacker`]: who says datagrams again and flips bits. [`digest`]: what two runs of one setup
//!   share.
//!
//! With thousands of machines nearly all time is spent waiting for the memory of one after the
//! other. So what reaches a machine whose card is full stays in its inbox until the card takes
//! something, where [`Net::is_lazy`]: the machine cannot act on it before. It is then taken with
//! the time at which it came.
//!
//! Key types: [`Net`], [`Host`], [`Load`]. Neighbours: [`crate::world`] takes its events,
//! the services of [`crate::world::Service`] send.
//!
//! Invariant: nothing of a protocol is here; machines are numbered, the control node is the last.

pub mod air;
pub mod attacker;
pub mod clock;
pub mod digest;
pub mod fabric;
pub mod queue;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use netstack::broadcast::{self, Peer};
use netstack::ids::BootEpoch;
use netstack::rng::Rng;
use netstack::time::Instant;
use netstack::wire::key::Key;
use netstack::{MAX_DATAGRAM, NODE_PORT, exchange};

use crate::setup::{PAUSE_EVERY_NS, PAUSE_NS, Setup};
use crate::world::Action;
use air::{Air, Flight};
use attacker::{Attack, Attacker};
use clock::Clock;
use digest::{DIGEST, fold};
use fabric::{Arrival, Fabric, Train};
use queue::Queue;

/// No wake-up is under way, or no such time.
pub const NEVER: u64 = u64::MAX;
/// No flight.
const NONE: u32 = u32::MAX;
/// Node addresses begin here, so that none ends in 0.0.
const FIRST_ADDRESS: u32 = 0x0a00_0100;
/// Datagrams that wait at a machine that does not look.
const SOCKET_QUEUE: u32 = 256;
/// How far clocks are apart at most, where they are: in microseconds, and parts per million.
const OFFSET_MOST_US: u64 = 900_000_000;
/// See [`OFFSET_MOST_US`].
const DRIFT_MOST_PPM: u64 = 50;
/// Lines of the trace kept for the report of a failure.
const TRACE: usize = 60;

/// Where a machine is reached; the control node has the number after the last. Addresses follow one
/// another, as the control node gives them; network cards are of one maker, in no order.
pub fn peer(node: u32) -> Peer {
    let [_, a, b, c] = (node.wrapping_mul(0x9e_3779) & 0xff_ffff).to_be_bytes();
    Peer {
        addr: SocketAddrV4::new(Ipv4Addr::from(FIRST_ADDRESS + node), NODE_PORT),
        mac: [0x52, 0x54, 7, a, b, c],
    }
}

/// The machine with this address.
pub fn node_of(addr: SocketAddrV4) -> u32 {
    addr.ip().to_bits().wrapping_sub(FIRST_ADDRESS)
}

/// The key of a run of the control node for what nodes say to one another.
pub fn key(boot: u64) -> Key {
    let mut bytes = *b"simulated peers.";
    bytes[15] = boot as u8;
    Key(bytes)
}

/// What travels.
#[derive(Clone)]
pub enum Load {
    /// A datagram, as it is on the wire.
    Datagram(Box<[u8]>),
    /// A message of a cast without its bytes, its datagrams as one.
    Cast(broadcast::Packet),
    /// Packets of an exchange without their bytes.
    Exchange(exchange::Packet),
}

/// Something that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Event {
    /// A flight is at a switch.
    Arrive(u32),
    /// A flight that an attacker has sent is at its machine.
    Again(u32),
    /// Something has reached this machine.
    Deliver(u32),
    /// A machine wants to be asked.
    Wake(u32),
    /// An action is due.
    Act(u32),
}

/// A flight with its place in an inbox.
pub struct Letter {
    /// When it reaches its destination, once it has passed the port there.
    at: u64,
    /// The flight behind it in the inbox.
    next: u32,
    load: Load,
}

/// Flights that have passed the port of a machine and are not taken yet, in the order of their
/// times.
#[derive(Clone, Copy)]
struct Inbox {
    first: u32,
    last: u32,
    length: u32,
}

/// A machine.
pub struct Host {
    /// It is switched on.
    pub is_on: bool,
    /// Times that it was switched on.
    pub boots: u64,
    /// What it goes by.
    pub clock: Clock,
    /// It stands still: it receives no more than its queue holds, and does nothing.
    pub stopped: bool,
    /// It is told to compute: it looks at the network once a second.
    pub computes: bool,
    /// It computes: when it looks at the network next.
    pub look_at: Option<u64>,
    /// Its first pause; others follow.
    pause_at: u64,
    /// Most datagrams that wait for it.
    pub inbox_most: u32,
    /// What it needs for a datagram, in nanoseconds; 0: it takes all that is there at once.
    pub service_ns: u64,
    free_at: u64,
    /// It does not look at what comes.
    is_away: bool,
    /// What came before is taken with this time: it did not look before.
    looks_from: u64,
    inbox: Inbox,
    wake_at: u64,
    /// The place of the wake-up among the events of its time.
    wake_order: u64,
    /// An event for it is in the queue; else the one of `timer_at` brings it there.
    wake_queued: bool,
    /// When an event for one of its deadlines comes, past ones included: one is enough.
    timer_at: u64,
}

/// See the module.
pub struct Net {
    /// What the run is made of.
    pub setup: Arc<Setup>,
    /// The network.
    pub fabric: Fabric,
    /// The machines.
    pub hosts: Vec<Host>,
    /// A number that two runs of one setup share.
    pub digest: u64,
    /// Events taken.
    pub events: u64,
    /// Datagrams that found the queue of a machine full.
    pub inbox_overflows: u64,
    /// Actions that have not happened yet.
    pub actions_left: usize,
    /// Where engines write datagrams.
    pub buffer: Box<[u8; MAX_DATAGRAM]>,
    /// What reaches a machine whose card is full waits.
    pub is_lazy: bool,
    now: u64,
    queue: Queue<Event>,
    air: Air<Letter>,
    attacker: Attacker,
    actions: Vec<Action>,
    trace: Option<VecDeque<String>>,
}

/// Width of the event queue's slots: with many machines there are many events in a nanosecond.
fn slot_width_log2(setup: &Setup) -> u32 {
    match (setup.nodes, setup.is_slow_motion()) {
        (_, true) => 12,
        (0..64, _) => 8,
        (64..1024, _) => 6,
        (1024..4096, _) => 4,
        _ => 2,
    }
}

impl Net {
    /// A network on which nothing has happened yet, of machines that are off.
    ///
    /// # Errors
    /// A text that says what is wrong with the setup.
    pub fn new(setup: Arc<Setup>) -> Result<Self, String> {
        let mut fabric = Fabric::new(setup.wiring.clone(), setup.nodes, setup.seed)?;
        fabric.set_noise(setup.noise);
        fabric.set_limiters(setup.limiters);
        fabric.set_fast(setup.nodes, setup.control_factor);
        for &node in &setup.slow {
            fabric.set_slow(node, crate::setup::SLOW_FACTOR);
        }
        let mut clocks = Rng::new(setup.seed ^ 0x636c_6f63_6b73);
        let mut pauses = Rng::new(setup.seed ^ 0x7061_7573_6573);
        let hosts = (0..=setup.nodes).map(|_| Host {
            is_on: false,
            boots: 0,
            clock: match setup.clocks {
                false => Clock::default(),
                true => Clock {
                    offset_us: clocks.below(OFFSET_MOST_US) as i64,
                    least: Instant::ZERO,
                    drift_ppm: clocks.below(DRIFT_MOST_PPM + 1) as u32,
                },
            },
            stopped: false,
            computes: false,
            look_at: None,
            pause_at: match setup.pauses {
                false => NEVER,
                true => pauses.below(PAUSE_EVERY_NS),
            },
            inbox_most: u32::MAX,
            service_ns: 0,
            free_at: 0,
            is_away: false,
            looks_from: 0,
            inbox: Inbox {
                first: NONE,
                last: NONE,
                length: 0,
            },
            wake_at: NEVER,
            wake_order: 0,
            wake_queued: false,
            timer_at: NEVER,
        });
        Ok(Net {
            fabric,
            hosts: hosts.collect(),
            digest: DIGEST,
            events: 0,
            inbox_overflows: 0,
            actions_left: 0,
            buffer: Box::new([0; MAX_DATAGRAM]),
            is_lazy: false,
            now: 0,
            queue: Queue::new(slot_width_log2(&setup)),
            air: Air::new(),
            attacker: Attacker::new(setup.attack, setup.seed, setup.nodes + 1),
            actions: Vec::new(),
            trace: setup.jobs.is_some().then(VecDeque::new),
            setup,
        })
    }

    /// The time, in nanoseconds.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// The number of the control node.
    pub fn control(&self) -> u32 {
        self.setup.nodes
    }

    /// What the clock of a machine shows.
    pub fn clock(&self, host: u32) -> Instant {
        self.clock_at(host, self.now)
    }

    /// What the clock of a machine shows at a time in nanoseconds.
    pub fn clock_at(&self, host: u32, at: u64) -> Instant {
        self.hosts[host as usize].clock.at(at)
    }

    /// The boot that a machine has, or had last.
    pub fn boot(&self, host: u32) -> BootEpoch {
        BootEpoch((u64::from(host) << 16) + self.hosts[host as usize].boots)
    }

    /// Whether a machine is on.
    pub fn is_on(&self, host: u32) -> bool {
        self.hosts[host as usize].is_on
    }

    /// Whether a machine is on, goes on, and is reached.
    pub fn lives(&self, host: u32) -> bool {
        self.is_on(host) && !self.hosts[host as usize].stopped && self.fabric.is_reached(host)
    }

    /// Has something happen.
    pub fn schedule(&mut self, at: u64, action: Action) {
        self.actions.push(action);
        self.actions_left += usize::from(action.counts());
        let number = (self.actions.len() - 1) as u32;
        self.queue.push(at, Event::Act(number));
    }

    /// What happens now.
    pub fn action(&mut self, number: u32) -> Action {
        let action = self.actions[number as usize];
        self.actions_left -= usize::from(action.counts());
        action
    }

    /// Takes the next event; it is its time then.
    pub fn pop(&mut self) -> Option<Event> {
        let (at, event) = self.queue.pop()?;
        self.now = self.now.max(at);
        self.events += 1;
        Some(event)
    }

    /// A machine is switched on, with nothing in its memory.
    pub fn switch_on(&mut self, host: u32) {
        let machine = &mut self.hosts[host as usize];
        machine.is_on = true;
        machine.boots += 1;
        (machine.stopped, machine.computes) = (false, false);
        machine.look_at = None;
    }

    /// Notes a line for the report of a failure, of runs whose trace is kept.
    pub fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE {
                trace.pop_front();
            }
            let line = format!("{:.6} {}", self.now as f64 / 1e9, line());
            trace.push_back(line);
        }
    }

    /// The last lines of the trace.
    pub fn trace(&mut self) -> Vec<String> {
        self.trace.take().unwrap_or_default().into()
    }

    /// Sends from one machine to another.
    pub fn send(&mut self, from: u32, to: u32, train: Train, load: Load) {
        if to > self.control() && self.setup.attack.is_on() {
            // Nobody has the address from which an attacker spoke.
            return;
        }
        assert!(to <= self.control(), "n{from} sends to nowhere");
        let (train, first, again) = self.fabric.send(self.now, from, to, train);
        if self.trace.is_some()
            && let Load::Datagram(bytes) = &load
        {
            let kind = bytes[3];
            let lost = if first.is_some() { "" } else { ", lost" };
            self.note(|| format!("n{from} to n{to}, kind {kind}{lost}"));
        }
        for said in self.attacker.again(from) {
            let number = self.take_off(said.from, to, train, load.clone());
            self.queue
                .push(self.now + said.after_ns, Event::Again(number));
        }
        let copy = again.map(|at| (at, load.clone()));
        let first = first.map(|at| (at, load));
        for (at, mut load) in first.into_iter().chain(copy) {
            if let Load::Datagram(bytes) = &mut load {
                self.attacker.flip(bytes);
            }
            let number = self.take_off(from, to, train, load);
            self.queue.push(at, Event::Arrive(number));
        }
    }

    fn take_off(&mut self, from: u32, to: u32, train: Train, load: Load) -> u32 {
        let load = Letter {
            at: NEVER,
            next: NONE,
            load,
        };
        self.air.take_off(Flight {
            from,
            to,
            train,
            load,
        })
    }

    /// A flight is at a switch; the machine that it has reached now.
    pub fn arrive(&mut self, number: u32) -> Option<u32> {
        match self.air.arrive(&mut self.fabric, self.now, number) {
            Arrival::Now => self.put_in(number, self.now),
            Arrival::At(at) => self.put_in(number, at),
            Arrival::Passes(at) => {
                self.queue.push(at, Event::Arrive(number));
                None
            }
            Arrival::Never => None,
        }
    }

    /// A flight has passed the port of its destination, whose link has brought all of it at `at`.
    /// The machine, if that is now.
    pub fn put_in(&mut self, number: u32, at: u64) -> Option<u32> {
        let at = at.max(self.now);
        let flight = self.air.get_mut(number).expect("in the air");
        flight.load.at = at;
        let node = flight.to;
        let host = &mut self.hosts[node as usize];
        let is_away = host.stopped || host.look_at.is_some();
        let most = host.inbox_most.min(match is_away {
            true => SOCKET_QUEUE,
            false => u32::MAX,
        });
        if host.inbox.length >= most {
            self.inbox_overflows += 1;
            self.air.land(number);
            return None;
        }
        host.inbox.length += 1;
        let last = std::mem::replace(&mut host.inbox.last, number);
        match self.air.get_mut(last) {
            Some(last) => last.load.next = number,
            None => host.inbox.first = number,
        }
        if at <= self.now {
            return Some(node);
        }
        if !self.is_busy(node, at) {
            self.queue.push(at, Event::Deliver(node));
        }
        None
    }

    /// Whether a machine, as far as is known, has a full card at this time, and is woken later when
    /// it has room: what reaches it by then can wait. The control node is always asked at once, for
    /// its user acts on what it says.
    pub fn is_busy(&self, node: u32, at: u64) -> bool {
        self.is_lazy && node != self.control() && self.fabric.card_takes_at(node) > at
    }

    /// Takes what has reached a machine before this time and is next: from whom, what is left of
    /// it, when it is taken, and what it is.
    pub fn take_next(&mut self, node: u32, before: u64) -> Option<(u32, Train, u64, Load)> {
        let first = self.hosts[node as usize].inbox.first;
        let flight = self.air.get(first)?;
        if flight.load.at >= before {
            return None;
        }
        let flight = self.air.land(first);
        let host = &mut self.hosts[node as usize];
        host.inbox.length -= 1;
        host.inbox.first = flight.load.next;
        if host.inbox.first == NONE {
            host.inbox.last = NONE;
        }
        let at = flight.load.at.max(host.looks_from);
        let ends = u64::from(flight.from) << 32 | u64::from(node);
        let mark = match &flight.load.load {
            Load::Datagram(bytes) => {
                let words = bytes.chunks(8).map(|word| {
                    let mut bytes = [0; 8];
                    bytes[..word.len()].copy_from_slice(word);
                    u64::from_le_bytes(bytes)
                });
                words.fold(0, fold)
            }
            Load::Cast(_) | Load::Exchange(_) => flight.train.datagrams,
        };
        // A sum, whatever the order in which machines are looked at.
        let seen = [at, ends, mark].into_iter().fold(DIGEST, fold);
        self.digest = self.digest.wrapping_add(seen);
        Some((flight.from, flight.train, at, flight.load.load))
    }

    /// Whether a machine takes what has arrived now. If it does not, all that comes meanwhile is
    /// taken at the time at which it looks again.
    pub fn looks(&mut self, node: u32) -> bool {
        let (now, pause) = (self.now, self.paused_until(node));
        let look = self.hosts[node as usize].look_at.filter(|at| *at > now);
        if let Some(at) = pause.max(look) {
            self.wake_by(node, at, false);
        }
        let host = &mut self.hosts[node as usize];
        let is_away = pause.is_some() || host.stopped || look.is_some();
        if std::mem::replace(&mut host.is_away, is_away) && !is_away {
            host.looks_from = now;
        }
        !is_away
    }

    /// A machine that needs time for each datagram takes the next only then.
    pub fn busy_until(&mut self, node: u32) -> Option<u64> {
        let host = &mut self.hosts[node as usize];
        if host.free_at > self.now {
            return Some(host.free_at);
        }
        host.free_at = self.now + host.service_ns;
        None
    }

    /// Something waits at a machine that is there by now.
    pub fn has_waiting(&self, node: u32) -> bool {
        let first = self.hosts[node as usize].inbox.first;
        (self.air.get(first)).is_some_and(|flight| flight.load.at <= self.now)
    }

    /// When a machine goes on, if it pauses now.
    pub fn paused_until(&self, node: u32) -> Option<u64> {
        let first = self.hosts[node as usize].pause_at;
        let into = self.now.checked_sub(first)? % PAUSE_EVERY_NS;
        (into < PAUSE_NS).then(|| self.now - into + PAUSE_NS)
    }

    /// A wake-up of a machine is due; whether it counts.
    pub fn wakes(&mut self, node: u32) -> bool {
        let host = &mut self.hosts[node as usize];
        let timer = host.timer_at == self.now;
        if timer {
            host.timer_at = NEVER;
        }
        if host.wake_at == self.now {
            host.wake_at = NEVER;
            return true;
        }
        if timer && host.wake_at != NEVER && !host.wake_queued {
            // It was put off meanwhile.
            host.wake_queued = true;
            host.timer_at = host.wake_at;
            let (at, order) = (host.wake_at, host.wake_order);
            self.queue.push_as(at, order, Event::Wake(node));
        }
        false
    }

    /// Has a machine woken, if it is not before that. Of its deadlines, nearly all of which are put
    /// off again and again, one is in the queue at a time.
    pub fn wake_by(&mut self, node: u32, at: u64, deadline: bool) {
        let at = at.max(self.now);
        let host = &mut self.hosts[node as usize];
        if at >= host.wake_at {
            return;
        }
        host.wake_at = at;
        host.wake_order = self.queue.order();
        host.wake_queued = at == host.timer_at || !deadline || at < host.timer_at;
        if at == host.timer_at || !host.wake_queued {
            return;
        }
        if deadline {
            host.timer_at = at;
        }
        let order = host.wake_order;
        self.queue.push_as(at, order, Event::Wake(node));
    }

    /// From now on nobody on the wire does anything.
    pub fn silence_attacker(&mut self) {
        self.attacker = Attacker::new(Attack::default(), 0, 0);
    }

    /// Has a machine asked at once: something was begun there.
    pub fn ask(&mut self, node: u32) {
        self.wake_by(node, self.now, false);
    }
}
