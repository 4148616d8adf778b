//! Casts over a wire in memory: real datagrams and real hashes, a delay, and loss from a seed.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::hashes::{Blake3, Hash, Hasher, Lists};
use super::*;
use crate::ids::NodeId;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::wire::key::Key;

mod addresses;
mod credit;
mod rates;

pub(super) const KEY: Key = Key(*b"key of the tests");
/// Gigabit Ethernet.
pub(super) const RATE: u64 = 125_000_000;
const DELAY: Micros = Micros(20);

#[derive(Default)]
pub(super) struct Memory {
    parts: BTreeMap<(CastId, Part), Vec<u8>>,
    /// Members for which there is room; None: any number.
    members_room: Option<u32>,
}

impl Hasher for Memory {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash {
        Blake3.subtree(first_byte, bytes, root)
    }

    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
        Blake3.merge(left, right, root)
    }
}

impl Store for Memory {
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let Some(bytes) = self.parts.get(&(cast, part)) else {
            return false;
        };
        out.copy_from_slice(&bytes[at..at + out.len()]);
        true
    }

    fn write(&mut self, cast: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom> {
        let twice = self.parts.insert((cast, part), bytes.to_vec());
        assert!(twice.is_none(), "{part:?} was delivered twice");
        Ok(())
    }

    fn members_room(&mut self) -> u32 {
        self.members_room.unwrap_or(u32::MAX)
    }
}

pub(super) fn peer(node: u32) -> Peer {
    Peer {
        addr: SocketAddrV4::new(Ipv4Addr::from(0x0a00_0000 + node), 7118),
        mac: [2, 0, 0, 0, (node >> 8) as u8, node as u8],
    }
}

pub(super) const CONTROL: u32 = 0xffff;

pub(super) fn content(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..length).map(|_| rng.next_u64() as u8).collect()
}

/// An object of these bytes, and all its parts.
pub(super) fn object(bytes: &[u8], block_log2: u8) -> (Object, Lists) {
    Object::describe(bytes, block_log2, &mut Memory::default()).expect("the object is small")
}

/// A cast of this object to so many members that serve each other, and know one another's
/// addresses.
pub(super) fn mesh_of(object: Object, members: u32) -> message::Setup {
    message::Setup {
        object,
        purpose: Purpose::Program,
        job: None,
        scheme: Scheme::Mesh,
        members,
        holders: 0,
        rate: RATE,
        start: 1,
        control: peer(CONTROL),
        roster_id: 1,
        roster: (0..members).map(peer).collect(),
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Flight {
    at: Instant,
    number: u64,
    from: u32,
    to: u32,
    bytes: Vec<u8>,
}

struct Net {
    now: Instant,
    source: Source,
    source_memory: Memory,
    members: Vec<Option<(Member, Memory)>>,
    flights: BTreeSet<Flight>,
    number: u64,
    rng: Rng,
    /// In a thousand.
    loss: u64,
    /// Datagrams overtake one another by up to so many microseconds.
    jitter: u64,
    /// Somebody on the wire changes fragments of this node in one of so many cases.
    forger: Option<(u32, u64)>,
    /// Somebody else sends every datagram that is no data again to whom it was for, up to so many
    /// microseconds later, this node from its own address.
    recorder: Option<(u32, u64)>,
    warm: Vec<u32>,
    /// Nodes that have no room for a cast of more members than one.
    full: Vec<u32>,
    source_events: Vec<SourceEvent>,
    member_events: Vec<Vec<MemberEvent>>,
    contents: BTreeMap<CastId, (Object, Vec<u8>)>,
}

impl Net {
    fn new(nodes: u32, seed: u64, loss: u64) -> Self {
        let source = SourceConfig {
            me: peer(CONTROL),
            key: KEY,
            rate: RATE,
            seed,
            limits: source::Limits::default(),
        };
        let mut net = Net {
            now: Instant::from_micros(1),
            source: Source::new(source, Instant::ZERO),
            source_memory: Memory::default(),
            members: Vec::new(),
            flights: BTreeSet::new(),
            number: 0,
            rng: Rng::new(seed),
            loss,
            jitter: 20,
            forger: None,
            recorder: None,
            warm: Vec::new(),
            full: Vec::new(),
            source_events: Vec::new(),
            member_events: (0..nodes).map(|_| Vec::new()).collect(),
            contents: BTreeMap::new(),
        };
        for node in 0..nodes {
            net.members.push(None);
            net.boot(node);
        }
        net
    }

    fn boot(&mut self, node: u32) {
        let config = MemberConfig {
            node: NodeId(node),
            boot: crate::ids::BootEpoch(0),
            me: peer(node),
            control: None,
            key: KEY,
            rate: 0,
            buffers: 32,
            credit: 0,
            members: u32::from(self.full.contains(&node)),
            seed: u64::from(node),
        };
        let member = Member::new(config, self.now);
        self.members[node as usize] = Some((member, Memory::default()));
    }

    fn cast(&mut self, id: u64, bytes: &[u8], block_log2: u8, scheme: Scheme) {
        self.cast_at(id, bytes, block_log2, scheme, RATE);
    }

    fn cast_at(&mut self, id: u64, bytes: &[u8], block_log2: u8, scheme: Scheme, rate: u64) {
        let id = CastId(id);
        let (object, lists) = object(bytes, block_log2);
        let hold = |memory: &mut Memory| {
            for n in 0..object.list_blocks() {
                let list = lists.block(n).expect("the list exists").to_vec();
                memory.parts.insert((id, Part::List(n)), list);
            }
            for (n, block) in bytes.chunks(1 << block_log2).enumerate() {
                let part = Part::Data(n as u32);
                memory.parts.insert((id, part), block.to_vec());
            }
        };
        hold(&mut self.source_memory);
        for node in &self.warm {
            if let Some((_, memory)) = &mut self.members[*node as usize] {
                hold(memory);
            }
        }
        let members = (0..self.members.len() as u32)
            .map(|node| (NodeId(node), peer(node), self.warm.contains(&node)))
            .collect();
        self.contents.insert(id, (object.clone(), bytes.to_vec()));
        let spec = CastSpec {
            id,
            object,
            purpose: Purpose::Program,
            job: None,
            members,
            scheme,
            rate,
        };
        self.source.cast(self.now, spec).expect("the cast begins");
    }

    fn send(&mut self, from: u32, to: Peer, mut bytes: Vec<u8>) {
        if self.rng.below(1000) < self.loss {
            return;
        }
        let data = bytes[3] == crate::wire::datagram::Kind::CastData as u8;
        if let Some((forged, one_in)) = self.forger
            && forged == from
            && data
            && self.rng.below(one_in) == 0
        {
            *bytes.last_mut().expect("it is not empty") ^= 1;
        }
        let to = to.addr.ip().to_bits() - 0x0a00_0000;
        if let Some((from, within)) = self.recorder.filter(|_| !data) {
            for _ in 0..2 {
                self.number += 1;
                self.flights.insert(Flight {
                    at: self.now + DELAY + Micros(self.rng.below(within)),
                    number: self.number,
                    from,
                    to,
                    bytes: bytes.clone(),
                });
            }
        }
        self.number += 1;
        self.flights.insert(Flight {
            at: self.now + DELAY + Micros(self.rng.below(self.jitter.max(1))),
            number: self.number,
            from,
            to,
            bytes,
        });
    }

    fn drain(&mut self) {
        let mut buffer = [0; crate::MAX_DATAGRAM];
        let now = self.now;
        while let Some((to, length)) =
            (self.source).poll_transmit(now, &mut buffer, &mut self.source_memory)
        {
            self.send(CONTROL, to, buffer[..length].to_vec());
        }
        while let Some(event) = self.source.poll_event() {
            self.source_events.push(event);
        }
        for node in 0..self.members.len() {
            let Some((mut member, mut memory)) = self.members[node].take() else {
                continue;
            };
            loop {
                while let Some(event) = member.poll_event() {
                    if let MemberEvent::Announced { cast, .. } = event {
                        let mut have = |part| memory.parts.contains_key(&(cast, part));
                        member.accept(now, cast, Want::All, &mut have);
                    }
                    self.member_events[node].push(event);
                }
                match member.poll_transmit(now, &mut buffer, &mut memory) {
                    Some((to, length)) => {
                        self.send(node as u32, to, buffer[..length].to_vec());
                    }
                    None => break,
                }
            }
            self.members[node] = Some((member, memory));
        }
    }

    /// One step; false when nothing is under way.
    fn step(&mut self) -> bool {
        self.drain();
        let members = self.members.iter().flatten();
        let timers = members.filter_map(|(member, _)| member.poll_timeout());
        let timers = timers.chain(self.source.poll_timeout());
        let flight = self.flights.first().map(|flight| flight.at);
        let Some(next) = timers.chain(flight).min() else {
            return false;
        };
        self.now = next.max(self.now + Micros(1));
        while let Some(flight) = self.flights.first() {
            if flight.at > self.now {
                break;
            }
            let flight = self.flights.pop_first().expect("there is one");
            let from = peer(flight.from).addr;
            if flight.to == CONTROL {
                let memory = &mut self.source_memory;
                (self.source).handle_datagram(self.now, from, &flight.bytes, memory);
            } else if let Some(Some((member, memory))) = self.members.get_mut(flight.to as usize) {
                member.handle_datagram(self.now, from, &flight.bytes, memory);
            }
        }
        true
    }

    /// Until nothing is under way. Gives the time.
    fn run(&mut self) -> Instant {
        let end = self.now + Micros::from_secs(120);
        while self.step() {
            assert!(
                self.now < end,
                "the cast does not end: {:?}",
                self.source_events.last()
            );
        }
        self.now
    }

    fn run_until(&mut self, mut stop: impl FnMut(&Net) -> bool) {
        while !stop(self) {
            assert!(self.step(), "nothing is under way");
        }
    }

    fn complete_at(&self, node: u32, cast: u64) -> bool {
        let event = MemberEvent::Complete { cast: CastId(cast) };
        self.member_events[node as usize].contains(&event)
    }

    fn check(&self, node: u32, cast: u64) {
        let id = CastId(cast);
        assert!(self.complete_at(node, cast), "node {node} is not complete");
        let (object, bytes) = &self.contents[&id];
        let (_, memory) = self.members[node as usize].as_ref().expect("it lives");
        for (n, block) in bytes.chunks(object.block_bytes()).enumerate() {
            assert_eq!(
                memory
                    .parts
                    .get(&(id, Part::Data(n as u32)))
                    .map(Vec::as_slice),
                Some(block)
            );
        }
    }

    fn finished(&self, cast: u64) -> bool {
        self.source_events
            .iter()
            .any(|event| matches!(event, SourceEvent::Finished { cast: id, .. } if id.0 == cast))
    }

    fn nothing_left(&self) {
        assert_eq!(self.source.footprint(), Footprint::default());
        for (member, _) in self.members.iter().flatten() {
            assert_eq!(member.footprint(), Footprint::default());
            assert_eq!(member.poll_timeout(), None);
        }
    }
}

/// Casts 1 MB to 100 nodes, of which these have no room; how long it took until the source had
/// heard that from each of them, and until the others had all of it.
fn cast_beside_full(scheme: Scheme, full: &[u32]) -> (Instant, Instant) {
    let mut net = Net::new(100, 1, 0);
    for node in full {
        net.full.push(*node);
        net.boot(*node);
    }
    net.cast(1, &content(1_000_000, 7), 13, scheme);
    let has_heard = |net: &Net| {
        let refused = |node: &u32| SourceEvent::MemberFailed {
            cast: CastId(1),
            node: NodeId(*node),
            reason: MemberFailure::Reported(FailReason::NoRoom),
        };
        let mut full = full.iter();
        full.all(|node| net.source_events.contains(&refused(node)))
    };
    net.run_until(has_heard);
    let heard = net.now;
    let others: Vec<u32> = (0..100).filter(|node| !full.contains(node)).collect();
    net.run_until(|net| others.iter().all(|node| net.complete_at(*node, 1)));
    let complete = net.now;
    net.run();
    assert!(net.finished(1));
    others.iter().for_each(|node| net.check(*node, 1));
    let mut full = full.iter();
    assert!(full.all(|node| net.member_events[*node as usize].is_empty()));
    net.nothing_left();
    (heard, complete)
}

#[test]
fn nodes_without_room_say_so_at_once_and_hold_up_nobody() {
    // A child of the source, with 4 to 7 and 20 to 35 below it; a child of another one; one with
    // nobody below it.
    let full = [0, 8, 60];
    for scheme in [Scheme::Auto, Scheme::DoubleTree] {
        let (_, alone) = cast_beside_full(scheme.clone(), &[]);
        let (heard, complete) = cast_beside_full(scheme.clone(), &full);
        assert!(heard < Instant::from_micros(1_000), "{scheme:?}: {heard:?}");
        let most = 3 * alone.as_micros();
        assert!(
            complete.as_micros() < most,
            "{scheme:?}: {complete:?} {alone:?}"
        );
    }
}

/// Casts 2 MB to a mesh of 8; how long it took, as a ratio to the limit, and which share of the
/// fragments came twice.
fn mesh(jitter: u64) -> (f64, f64) {
    let mut net = Net::new(8, 1, 0);
    net.jitter = jitter;
    let bytes = content(2_000_000, 7);
    net.cast(1, &bytes, 13, Scheme::Mesh);
    net.run_until(|net| (0..8).all(|node| net.complete_at(node, 1)));
    let limit = 2_000_000 * 1460 / 1366 * 1_000_000 / RATE;
    let ratio = net.now.as_micros() as f64 / limit as f64;
    net.run();
    (0..8).for_each(|node| net.check(node, 1));
    assert!(net.finished(1));
    net.nothing_left();
    let members = net.members.iter().flatten();
    let counters = members.map(|(member, _)| member.counters());
    let (twice, all) = counters.fold((0, 0), |(twice, all), counters| {
        (twice + counters.duplicates, all + counters.fragments)
    });
    (ratio, twice as f64 / all as f64)
}

#[test]
fn a_mesh_gets_everything_in_little_more_than_the_time_of_one_link() {
    let (ratio, twice) = mesh(0);
    assert!(ratio < 1.2, "{ratio}");
    assert!(
        twice == 0.0,
        "{twice} came twice although nothing was lost or overtaken"
    );
    // Where datagrams overtake one another a block under way may look lost.
    let (ratio, twice) = mesh(20);
    assert!(ratio < 1.2, "{ratio}");
    assert!(twice <= 0.005, "{twice}");
}

/// What it takes to cast to so many nodes, in microseconds; somebody records what is sent and sends
/// it again from elsewhere.
fn time_beside_a_recorder(nodes: u32, recorder: Option<(u32, u64)>) -> u64 {
    let mut net = Net::new(nodes, 5, 0);
    net.recorder = recorder;
    let bytes = content(300 << 10, 4);
    net.cast(1, &bytes, 14, Scheme::Auto);
    let all = |net: &Net| (0..nodes).all(|node| net.complete_at(node, 1));
    net.run_until(all);
    (0..nodes).for_each(|node| net.check(node, 1));
    net.now.as_micros()
}

#[test]
fn what_is_sent_again_from_another_address_neither_stops_nor_slows_a_cast() {
    for nodes in [4, 24, 80] {
        let alone = time_beside_a_recorder(nodes, None);
        for within in [100, 50_000] {
            let beside = time_beside_a_recorder(nodes, Some((nodes + 7, within)));
            assert!(
                beside * 20 <= alone * 21,
                "{nodes} nodes: {beside} us instead of {alone}"
            );
        }
    }
}

#[test]
fn data_from_another_address_than_its_sender_has_is_counted_and_dropped() {
    let mut net = Net::new(4, 9, 0);
    net.cast(1, &content(400_000, 9), 13, Scheme::Mesh);
    let stranger = peer(77).addr;
    let until = net.now + Micros::from_millis(2);
    while net.now < until {
        assert!(net.step());
        let now = net.now;
        let (member, memory) = net.members[1].as_mut().expect("it was booted");
        for block in 0..16 {
            // A number that no member has, and one whose address is another.
            for from in [MemberIndex(4_000), MemberIndex(2)] {
                let packet = Packet {
                    cast: CastId(1),
                    from,
                    mac: [0; 6],
                    message: Message::Data {
                        block,
                        fragments: 1,
                        held: Micros::ZERO,
                        sealed: false,
                    },
                };
                member.handle_message(now, stranger, packet, Some(&[7; FRAGMENT]), memory);
            }
        }
    }
    net.run();
    net.check(1, 1);
    let (member, _) = net.members[1].as_ref().expect("it was booted");
    assert!(member.counters().bad > 0, "{:?}", member.counters());
    assert_eq!(member.counters().corrupt, 0);
}

#[test]
fn who_changes_data_on_the_wire_makes_nobody_suspected() {
    for scheme in [Scheme::Mesh, Scheme::Published(PublishedOptions::default())] {
        let mut net = Net::new(6, 11, 0);
        net.forger = Some((2, 8));
        net.cast(1, &content(900_000, 11), 13, scheme);
        net.run();
        (0..6).for_each(|node| net.check(node, 1));
        let corrupt = net.members.iter().flatten();
        let corrupt: u64 = corrupt.map(|(member, _)| member.counters().corrupt).sum();
        assert!(corrupt > 0, "node 2 has sent something");
        let named = |event: &&SourceEvent| matches!(event, SourceEvent::CorruptSender { .. });
        assert_eq!(net.source_events.iter().find(named), None);
    }
}

/// Trains that the source sends when node 0 asks it again for a block that it has, so much later.
fn trains_when_asked_again(after: Option<Micros>) -> u64 {
    let mut net = Net::new(2, 5, 0);
    net.cast(1, &content(1_500_000, 5), 13, Scheme::Mesh);
    let held = |net: &Net, block| {
        let (member, _) = net.members[0].as_ref().expect("it was booted");
        member.holds(CastId(1), block)
    };
    // The list comes first: data block 19 is block 20, of row 0.
    net.run_until(|net| held(net, 19));
    if let Some(after) = after {
        let until = net.now + after;
        net.run_until(|net| net.now >= until);
        let mut wants = message::Wants::default();
        wants.push(message::WantedBlock {
            block: 20,
            fragments: net.contents[&CastId(1)].0.fragments(20),
            ..message::WantedBlock::default()
        });
        let packet = Packet {
            cast: CastId(1),
            from: MemberIndex(0),
            mac: peer(0).mac,
            message: Message::Request(wants),
        };
        net.source
            .handle_message(net.now, peer(0).addr, packet, &mut net.source_memory);
    }
    net.run();
    net.check(0, 1);
    net.source.counters().trains
}

#[test]
fn a_block_that_may_be_on_its_way_is_not_sent_again() {
    let trains = trains_when_asked_again(None);
    assert_eq!(trains_when_asked_again(Some(Micros(100))), trains);
    // Thirty times what a block takes: it must have been lost.
    assert_eq!(trains_when_asked_again(Some(Micros(2_100))), trains + 1);
}

/// How many blocks node 0 has stored before this one, which a program begins to wait for after 40.
fn stored_before(scheme: Scheme, nodes: u32, block: u32, waits: bool) -> usize {
    let mut net = Net::new(nodes, 3, 0);
    net.cast(1, &content(1_500_000, 3), 13, scheme);
    let stored = |net: &Net| -> Vec<u32> {
        let of = |event: &MemberEvent| match event {
            MemberEvent::Stored { block, .. } => Some(*block),
            _ => None,
        };
        net.member_events[0].iter().filter_map(of).collect()
    };
    net.run_until(|net| stored(net).len() >= 40);
    assert!(!stored(&net).contains(&block), "{block} came too early");
    if waits {
        let now = net.now;
        let (member, _) = net.members[0].as_mut().expect("it was booted");
        member.want(now, CastId(1), block);
    }
    net.run();
    (0..nodes).for_each(|node| net.check(node, 1));
    net.nothing_left();
    let place = stored(&net).iter().position(|other| *other == block);
    place.expect("it came")
}

#[test]
fn a_block_that_a_program_waits_for_goes_before_others() {
    // Asked for already, and in the source's queue behind a dozen others of this node and three
    // times as many of others.
    let place = stored_before(published::direct(), 4, 58, false);
    assert!(place > 50, "{place}");
    let place = stored_before(published::direct(), 4, 58, true);
    assert!(place < 46, "{place}");
    // Not asked for, and not where it is asked for either: its head asks the source for it.
    let place = stored_before(Scheme::Mesh, 8, 150, false);
    assert!(place > 130, "{place}");
    let place = stored_before(Scheme::Mesh, 8, 150, true);
    assert!(place < 60, "{place}");
}

#[test]
fn a_plan_that_no_node_could_keep_is_refused() {
    let mut net = Net::new(8, 4, 0);
    let bytes = content(400_000, 4);
    let huge = PublishedOptions {
        sizes: Some(published::header::Sizes::Equal(
            published::header::MAX_CHUNKS,
        )),
        deal: published::header::Deal::Rounds(published::header::MAX_ROUNDS),
        ..PublishedOptions::default()
    };
    // 8 nodes and 49 blocks: little however often each is dealt.
    net.cast(1, &bytes, 13, Scheme::Published(huge.clone()));
    net.run();
    (0..8).for_each(|node| net.check(node, 1));
    let (mut object, _) = object(&bytes, 13);
    object.bytes = 60 << 20;
    object.tops = alloc::vec![[0; 32]; object.top_count() as usize];
    let members = (0..4_000).map(|node| (NodeId(node), peer(node), false));
    let spec = CastSpec {
        id: CastId(2),
        object,
        purpose: Purpose::Program,
        job: None,
        members: members.collect(),
        scheme: Scheme::Published(huge.clone()),
        rate: RATE,
    };
    assert_eq!(net.source.cast(net.now, spec), Err(CastError::BadScheme));
    // A member that is told of such a cast says so, and keeps no plan of it.
    let (object, _) = self::object(&content(4 << 20, 5), 12);
    let setup = message::Setup {
        object,
        purpose: Purpose::Program,
        job: None,
        scheme: Scheme::Published(PublishedOptions { fan_out: 1, ..huge }),
        members: 4_000,
        holders: 0,
        rate: RATE,
        start: 1,
        control: peer(CONTROL),
        roster_id: 7,
        roster: Vec::new(),
    };
    let announce = Packet {
        cast: CastId(3),
        from: MemberIndex::SOURCE,
        mac: [0; 6],
        message: Message::Announce {
            index: MemberIndex(5),
            number: 1,
            clock: 1,
            leaf: false,
            setup: alloc::sync::Arc::new(setup),
        },
    };
    let now = net.now;
    let (member, memory) = net.members[5].as_mut().expect("it was booted");
    member.handle_message(now, peer(CONTROL).addr, announce, None, memory);
    let failed = MemberEvent::Failed {
        cast: CastId(3),
        reason: FailReason::Invalid,
    };
    assert_eq!(member.poll_event(), Some(failed));
    let report = core::iter::from_fn(|| member.poll_message(now, memory)).find_map(
        |(_, packet)| match packet.message {
            Message::Report(report) => Some(report),
            _ => None,
        },
    );
    let report = report.expect("it reports");
    assert_eq!(report.failed, [(MemberIndex(5), FailReason::Invalid)]);
}
