//! One station of a simulated cast: a node with its [`Member`] or the control node with its
//! [`Source`], and what it stores.
//!
//! Neighbours: [`super::Casts`] drives them; [`super::shelf`] is their memory.
//!
//! Invariant: nothing of the protocol is here: a station passes on what the engine says.

use std::net::SocketAddrV4;
use std::sync::Arc;

use netstack::broadcast::{
    Footprint, Member, MemberConfig, Packet, Peer, Source, SourceConfig, source,
};
use netstack::ids::{BootEpoch, NodeId};
use netstack::time::Instant;
use netstack::wire::key::Key;

use super::shelf::{Content, Shelf};
use crate::net::{Load, peer};

/// The engine of a station.
pub enum Engine {
    /// A node's.
    Member(Box<Member>),
    /// The control node's.
    Source(Box<Source>),
}

/// A node or the control node.
pub struct Station {
    /// None while it is off.
    pub engine: Option<Engine>,
    /// Its memory.
    pub shelf: Shelf,
    /// The run of the control node whose key it has.
    pub key_of: u64,
}

impl Station {
    /// A station that is off.
    pub fn new(contents: &Arc<Vec<Content>>) -> Self {
        Station {
            engine: None,
            shelf: Shelf::new(Arc::clone(contents)),
            key_of: 0,
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
        let time = config.time;
        let config = MemberConfig {
            node: NodeId(node),
            boot: config.boot,
            me: peer(node),
            control: Some(peer(config.control)),
            key: config.key,
            rate: 0,
            buffers: config.buffers,
            credit: 0,
            members: config.members,
            seed: config.seed ^ (u64::from(node) << 20) ^ config.boot.0,
        };
        let mut member = Member::new(config, now);
        member.begin_at(now, time);
        self.engine = Some(Engine::Member(Box::new(member)));
    }

    /// Switches the control node on.
    pub fn boot_source(&mut self, node: u32, key: Key, rate: u64, seed: u64, now: Instant) {
        let config = SourceConfig {
            me: peer(node),
            key,
            rate,
            seed,
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
            (Some(Engine::Member(member)), Load::Cast(packet)) => {
                member.handle_message(now, from, packet, None, shelf);
            }
            (Some(Engine::Member(member)), Load::Datagram(bytes)) => {
                member.handle_datagram(now, from, &bytes, shelf);
            }
            (Some(Engine::Source(source)), Load::Cast(packet)) => {
                source.handle_message(now, from, packet, shelf);
            }
            (Some(Engine::Source(source)), Load::Datagram(bytes)) => {
                source.handle_datagram(now, from, &bytes, shelf);
            }
            (None, _) | (_, Load::Exchange(_)) => {}
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
    pub control: u32,
    /// Its own boot.
    pub boot: BootEpoch,
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
