//! One station of a simulated cast: a node with its [`Member`] or the control node with its
//! [`Source`], what it stores, and when it wants to be woken.
//!
//! Neighbours: [`super::world`] drives them; [`super::shelf`] is their memory.
//!
//! Invariant: nothing of the protocol is here: a station passes on what the engine says.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

use netstack::NODE_PORT;
use netstack::broadcast::{
    Footprint, Member, MemberConfig, Packet, Peer, Source, SourceConfig, source,
};
use netstack::ids::{BootEpoch, NodeId};
use netstack::time::Instant;
use netstack::wire::key::Key;

use super::shelf::{Content, Shelf};

/// No wake-up is under way.
pub const NEVER: u64 = u64::MAX;
/// Node addresses begin here, so that none ends in 0.0.
const FIRST_ADDRESS: u32 = 0x0a00_0100;

/// Where a node is reached; the control node has the number after the last. Addresses follow one
/// another, as the control node gives them; network cards are of one maker, in no order.
pub fn peer(node: u32) -> Peer {
    let [_, a, b, c] = (node.wrapping_mul(0x9e_3779) & 0xff_ffff).to_be_bytes();
    Peer {
        addr: SocketAddrV4::new(Ipv4Addr::from(FIRST_ADDRESS + node), NODE_PORT),
        mac: [0x52, 0x54, 7, a, b, c],
    }
}

/// The node with this address.
pub fn node_of(addr: SocketAddrV4) -> u32 {
    addr.ip().to_bits().wrapping_sub(FIRST_ADDRESS)
}

/// The key of a run of the control node.
pub fn key(boot: u64) -> Key {
    let mut bytes = *b"simulated peers.";
    bytes[15] = boot as u8;
    Key(bytes)
}

/// What an engine is asked to send.
pub enum Load {
    /// A message, its datagrams as one.
    Message(Packet),
    /// A datagram.
    Datagram(Box<[u8]>),
}

/// The engine of a station.
pub enum Engine {
    /// A node's.
    Member(Box<Member>),
    /// The control node's.
    Source(Box<Source>),
}

/// A station's clock: it began at another time than the others', and runs a little faster or
/// slower.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// What it shows at time 0, in microseconds.
    pub offset_us: u64,
    /// Parts per million that it is fast.
    pub drift_ppm: u32,
}

impl Clock {
    /// What it shows at a time in nanoseconds.
    pub fn at(self, now: u64) -> Instant {
        let ahead = u128::from(now) * u128::from(self.drift_ppm) / 1_000_000;
        Instant::from_micros(self.offset_us + (now + ahead as u64) / 1000)
    }

    /// The first time, in nanoseconds, at which it shows this; 0 if that was before the run.
    pub fn when(self, shown: Instant) -> u64 {
        let since = shown.as_micros().saturating_sub(self.offset_us);
        let fast = u128::from(since) * 1_000_000_000;
        let slow = fast.div_ceil(1_000_000 + u128::from(self.drift_ppm));
        slow.min(u64::MAX.into()) as u64
    }
}

/// A node or the control node.
pub struct Station {
    /// None while it is off.
    pub engine: Option<Engine>,
    /// Its memory.
    pub shelf: Shelf,
    /// When it is woken.
    pub wake_at: u64,
    /// The place of that among the events of its time.
    pub wake_order: u64,
    /// An event for it is in the queue; else the one of `timer_at` brings it there.
    pub wake_queued: bool,
    /// When an event for one of its deadlines comes, past ones included: one is enough.
    pub timer_at: u64,
    /// Times that it was switched on.
    pub boots: u64,
    /// The run of the control node whose key it has.
    pub key_of: u64,
    /// What it goes by.
    pub clock: Clock,
}

impl Station {
    /// A station that is off.
    pub fn new(contents: &Arc<Vec<Content>>) -> Self {
        Station {
            engine: None,
            shelf: Shelf::new(Arc::clone(contents)),
            wake_at: NEVER,
            wake_order: 0,
            wake_queued: false,
            timer_at: NEVER,
            boots: 0,
            key_of: 0,
            clock: Clock::default(),
        }
    }

    /// Switches a node on, with nothing in its memory.
    pub fn boot_member(
        &mut self,
        contents: &Arc<Vec<Content>>,
        node: u32,
        config: MemberSetup,
        now: Instant,
    ) {
        self.shelf = Shelf::new(Arc::clone(contents));
        self.boots += 1;
        let time = config.time;
        let config = MemberConfig {
            node: NodeId(node),
            boot: BootEpoch(self.boots),
            me: peer(node),
            control: Some(config.control),
            key: config.key,
            rate: 0,
            buffers: config.buffers,
            credit: 0,
            members: config.members,
            seed: config.seed ^ (u64::from(node) << 20) ^ self.boots,
        };
        let mut member = Member::new(config, now);
        member.begin_at(now, time);
        self.engine = Some(Engine::Member(Box::new(member)));
    }

    /// Switches the control node on.
    pub fn boot_source(&mut self, node: u32, key: Key, rate: u64, seed: u64, now: Instant) {
        self.boots += 1;
        let config = SourceConfig {
            me: peer(node),
            key,
            rate,
            seed: seed ^ self.boots,
            limits: source::Limits::default(),
        };
        self.engine = Some(Engine::Source(Box::new(Source::new(config, now))));
    }

    /// The source, if this is the control node and it is on.
    pub fn source(&mut self) -> Option<&mut Source> {
        match &mut self.engine {
            Some(Engine::Source(source)) => Some(source),
            _ => None,
        }
    }

    /// The member, if this is a node and it is on.
    pub fn member(&mut self) -> Option<&mut Member> {
        match &mut self.engine {
            Some(Engine::Member(member)) => Some(member),
            _ => None,
        }
    }

    /// Takes what came.
    pub fn handle(&mut self, now: Instant, from: SocketAddrV4, load: Load) {
        let shelf = &mut self.shelf;
        match (&mut self.engine, load) {
            (Some(Engine::Member(member)), Load::Message(packet)) => {
                member.handle_message(now, from, packet, None, shelf);
            }
            (Some(Engine::Member(member)), Load::Datagram(bytes)) => {
                member.handle_datagram(now, from, &bytes, shelf);
            }
            (Some(Engine::Source(source)), Load::Message(packet)) => {
                source.handle_message(now, from, packet, shelf);
            }
            (Some(Engine::Source(source)), Load::Datagram(bytes)) => {
                source.handle_datagram(now, from, &bytes, shelf);
            }
            (None, _) => {}
        }
    }

    /// What it sends next, as messages.
    pub fn poll_message(&mut self, now: Instant) -> Option<(Peer, Packet)> {
        match &mut self.engine {
            Some(Engine::Member(member)) => member.poll_message(now, &mut self.shelf),
            Some(Engine::Source(source)) => source.poll_message(now, &mut self.shelf),
            None => None,
        }
    }

    /// What it sends next, as a datagram.
    pub fn poll_datagram(&mut self, now: Instant, out: &mut [u8]) -> Option<(Peer, usize)> {
        match &mut self.engine {
            Some(Engine::Member(member)) => member.poll_transmit(now, out, &mut self.shelf),
            Some(Engine::Source(source)) => source.poll_transmit(now, out, &mut self.shelf),
            None => None,
        }
    }

    /// When it wants to be asked again.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.engine.as_ref()? {
            Engine::Member(member) => member.poll_timeout(),
            Engine::Source(source) => source.poll_timeout(),
        }
    }

    /// What its engine keeps.
    pub fn footprint(&self) -> Footprint {
        match &self.engine {
            Some(Engine::Member(member)) => member.footprint(),
            Some(Engine::Source(source)) => source.footprint(),
            None => Footprint::default(),
        }
    }
}

/// What a node is told when it is switched on.
#[derive(Clone)]
pub struct MemberSetup {
    /// The control node.
    pub control: Peer,
    /// The key of its run.
    pub key: Key,
    /// What time it is there, in microseconds.
    pub time: u64,
    /// Reassembly buffers.
    pub buffers: u32,
    /// Members that all its casts may have together; 0: any number.
    pub members: u32,
    /// Seed of the run.
    pub seed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_what_it_was_asked_to_wait_for() {
        let clock = Clock {
            offset_us: 77_000_000,
            drift_ppm: 40,
        };
        for now in [0, 999, 1_000, 123_456_789, 900_000_000_000] {
            let shown = clock.at(now);
            assert!(clock.when(shown) <= now, "{now}");
            let next = shown + netstack::time::Micros(1);
            assert_eq!(clock.at(clock.when(next)), next);
        }
        assert_eq!(clock.when(Instant::ZERO), 0);
    }

    #[test]
    fn a_node_is_found_by_its_address() {
        for node in [0, 1, 255, 256, 16_512, 131_071] {
            assert_eq!(node_of(peer(node).addr), node);
        }
    }
}
