//! Broadcasts from the wire to the store and back: the engine's source and another member on the
//! far end of a card's wire, this node's [`Casts`] on the near one. In virtual time.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use kernel_core::cmdline::PeerPath;
use kernel_core::objects::{Kept, ObjectId, Objects, Spec};
use kernel_core::pagehash;
use kernel_core::retention::WarmTable;
use netstack::broadcast::hashes::{Hasher, Lists};
use netstack::broadcast::{
    CastSpec, Limits, Member, MemberConfig, MemberEvent, NoRoom, Object, Part, Peer, Purpose,
    Scheme, Source, SourceConfig, SourceEvent, Store, Want,
};
use netstack::ids::{BootEpoch, CastId, JobId, NodeId};
use netstack::time::{Instant, Micros};
use netstack::wire::key::Key;
use smoltcp::wire::Ipv4Cidr;

use super::control::FakeControl;
use super::warm::{large_file, run};
use super::wire::{CARD_MAC, Wire};
use super::{Outcome, check};
use crate::agent::cast::store::Places;
use crate::agent::cast::{BUFFERS, CREDIT, Casts};
use crate::arch::test_programs::TOUCHED_PAGES;
use crate::arch::{self, entropy};
use crate::drivers::nic::FRAME_MAX;
use crate::mm::{self, DirectMap};
use crate::net::frame::UdpFrame;
use crate::net::{self, Arrival, Stack};
use crate::process::services::CastPage;

const NODE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 1), netstack::NODE_PORT);
const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 2), netstack::NODE_PORT);
const CONTROL: SocketAddrV4 =
    SocketAddrV4::new(Ipv4Addr::new(10, 117, 0, 1), netstack::CONTROL_PORT);
const CONTROL_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const KEY: Key = Key(*b"key of the tests");
/// 100 Mbit/s.
const RATE: u64 = 12_500_000;
const CAST: CastId = CastId(7);
const JOB: JobId = JobId(3);
const OTHER_JOB: JobId = JobId(99);
/// Virtual time a cast may take here, and each wait of the loop at most.
const PATIENCE: Micros = Micros::from_secs(120);

/// An object of the far end, in memory.
struct Far {
    bytes: Vec<u8>,
    lists: Lists,
    block_log2: u8,
    /// Blocks of data that were written, and how often one was read.
    held: Vec<bool>,
    reads: u64,
}

impl Far {
    fn new(bytes: &[u8], held: bool) -> Result<(Object, Self), String> {
        let described = Object::describe(bytes, 13, &mut Portable);
        let (object, lists) = described.map_err(|error| format!("{error}"))?;
        let far = Self {
            bytes: bytes.to_vec(),
            lists,
            block_log2: 13,
            held: vec![held; object.data_blocks() as usize],
            reads: 0,
        };
        Ok((object, far))
    }
}

struct Portable;

impl Hasher for Portable {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> [u8; 32] {
        pagehash::subtree(first_byte, bytes, root)
    }
    fn merge(&mut self, left: &[u8; 32], right: &[u8; 32], root: bool) -> [u8; 32] {
        pagehash::parent(left, right, root)
    }
}

impl Hasher for Far {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> [u8; 32] {
        Portable.subtree(first_byte, bytes, root)
    }
    fn merge(&mut self, left: &[u8; 32], right: &[u8; 32], root: bool) -> [u8; 32] {
        Portable.merge(left, right, root)
    }
}

impl Store for Far {
    fn read(&mut self, _: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let from = match part {
            Part::List(n) => self.lists.block(n).unwrap_or_default(),
            Part::Data(n) if self.held[n as usize] => {
                &self.bytes[(n as usize) << self.block_log2..]
            }
            Part::Data(_) => return false,
        };
        self.reads += u64::from(matches!(part, Part::Data(_)) && at == 0);
        out.copy_from_slice(&from[at..at + out.len()]);
        true
    }

    fn write(&mut self, _: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom> {
        if let Part::Data(n) = part {
            let at = (n as usize) << self.block_log2;
            assert!(
                &self.bytes[at..at + bytes.len()] == bytes,
                "block {n} is another"
            );
            self.held[n as usize] = true;
        }
        Ok(())
    }
}

/// Bytes that only datagrams of data have.
const FULL: usize = 1_000;

/// What a node did for a cast: datagrams of data that it took and served, and the instructions, all
/// other datagrams of the cast included.
#[derive(Clone, Copy, Default)]
struct Counts {
    taking: u64,
    taken: u64,
    serving: u64,
    served: u64,
}

/// This node, the source, another member, and the wire between them.
struct Bench {
    now: Instant,
    stack: Stack,
    wire: Wire,
    casts: Casts,
    objects: Objects,
    warm: WarmTable,
    source: Source,
    dealer: Far,
    other: Option<(Member, Far)>,
    counts: Counts,
    events: Vec<SourceEvent>,
}

impl Bench {
    fn new(dealer: Far, warm: WarmTable) -> Self {
        let (wire, card) = Wire::new();
        let config = net::Config {
            wants_personality: false,
            address: Some((Ipv4Cidr::new(*NODE.ip(), 16), None)),
            version: "1.2.3",
            boot_epoch: 1,
            peers: PeerPath::Direct,
        };
        let now = Instant::from_micros(1_000);
        let mut stack = Stack::new(card, &config, now);
        stack.set_control(CONTROL);
        let mut objects = Objects::new(Objects::default_limit(mm::frames().usage().total));
        let mut casts = Casts::default();
        casts.join(member(NODE, CARD_MAC), now, &mut objects);
        let source = SourceConfig {
            me: Peer {
                addr: CONTROL,
                mac: CONTROL_MAC,
            },
            key: KEY,
            rate: RATE,
            seed: 1,
            limits: Limits::default(),
        };
        Self {
            now,
            stack,
            wire,
            casts,
            objects,
            warm,
            source: Source::new(source, now),
            dealer,
            other: None,
            counts: Counts::default(),
            events: Vec::new(),
        }
    }

    fn cast(&mut self, object: &Object, purpose: Purpose, holds: bool) -> Outcome {
        let peer = |addr, mac| Peer { addr, mac };
        let mut members = vec![(NodeId(1), peer(NODE, CARD_MAC), holds)];
        if self.other.is_some() {
            members.push((NodeId(2), peer(OTHER, OTHER_MAC), false));
        }
        let spec = CastSpec {
            id: CAST,
            object: object.clone(),
            purpose,
            job: Some(JOB),
            members,
            scheme: Scheme::Auto,
            rate: 0,
        };
        let begun = self.source.cast(self.now, spec);
        begun.map_err(|error| format!("{error}"))
    }

    /// Moves what is due in all directions, then time to the next deadline.
    fn turn(&mut self) {
        let now = self.now;
        let mut buffer = [0; netstack::MAX_DATAGRAM];
        while let Some((peer, length)) =
            self.source
                .poll_transmit(now, &mut buffer, &mut self.dealer)
        {
            self.carry((CONTROL, CONTROL_MAC), peer, &buffer[..length]);
        }
        if let Some((mut member, mut far)) = self.other.take() {
            let mut sent = Vec::new();
            while let Some((peer, length)) = member.poll_transmit(now, &mut buffer, &mut far) {
                sent.push((peer, buffer[..length].to_vec()));
            }
            while let Some(event) = member.poll_event() {
                if let MemberEvent::Announced { cast, .. } = event {
                    member.accept(now, cast, Want::All, &mut |_| false);
                }
            }
            self.other = Some((member, far));
            for (peer, bytes) in sent {
                self.carry((OTHER, OTHER_MAC), peer, &bytes);
            }
        }
        self.node(&mut buffer);
        while let Some(frame) = self.wire.take_frame() {
            let target: [u8; 6] = [frame[0], frame[1], frame[2], frame[3], frame[4], frame[5]];
            let addr = if target == CONTROL_MAC {
                CONTROL
            } else {
                OTHER
            };
            self.counts.served += u64::from(frame.len() > FULL);
            self.arrive(NODE, addr, &frame[42..]);
        }
        while let Some(event) = self.source.poll_event() {
            self.events.push(event);
        }
        let other = self
            .other
            .as_ref()
            .and_then(|(member, _)| member.poll_timeout());
        let due = [self.source.poll_timeout(), self.casts.poll_timeout(), other];
        let due = due.into_iter().flatten().min();
        let least = now + Micros(20);
        self.now = due.map_or(least, |due| due.max(least).min(now + Micros::from_secs(1)));
    }

    /// What the node does when a frame has come or a deadline has passed.
    fn node(&mut self, buffer: &mut [u8]) {
        let now = self.now;
        let Self {
            stack,
            casts,
            objects,
            warm,
            wire,
            counts,
            ..
        } = self;
        let mut places = Places {
            objects,
            warm,
            running: None,
        };
        let mut more = true;
        while more {
            more = stack.poll(now, &mut |arrival| {
                if let Arrival::Peer(arrived) = arrival {
                    let began = arch::tsc();
                    casts.handle_datagram(now, arrived.from, arrived.bytes, &mut places);
                    counts.taking += arch::tsc() - began;
                    counts.taken += u64::from(arrived.bytes.len() > FULL);
                }
            });
        }
        casts.take_events(now, &mut places, &|job| job == JOB);
        let (began, sent) = (arch::tsc(), wire.sent());
        casts.transmit(now, stack, buffer, &mut places);
        if wire.sent() > sent {
            counts.serving += arch::tsc() - began;
        }
        casts.take_events(now, &mut places, &|job| job == JOB);
    }

    /// Takes a datagram of the far end to whom it is for.
    fn carry(&mut self, (from, mac): (SocketAddrV4, [u8; 6]), to: Peer, bytes: &[u8]) {
        if to.addr != NODE {
            self.arrive(from, to.addr, bytes);
            return;
        }
        let mut frame = [0; FRAME_MAX];
        let length = UdpFrame {
            source_mac: mac,
            target_mac: to.mac,
            source: from,
            target: to.addr,
        }
        .emit_unsummed(bytes, &mut frame);
        self.wire.put_frame(&frame[..length]);
    }

    fn arrive(&mut self, from: SocketAddrV4, to: SocketAddrV4, bytes: &[u8]) {
        match (to == CONTROL, &mut self.other) {
            (true, _) => self
                .source
                .handle_datagram(self.now, from, bytes, &mut self.dealer),
            (false, Some((member, far))) => member.handle_datagram(self.now, from, bytes, far),
            (false, None) => {}
        }
    }

    fn run_until(&mut self, done: impl Fn(&Self) -> bool) -> Outcome {
        let end = self.now + PATIENCE;
        while !done(self) {
            check!(self.now < end, "not done in time: {:?}", self.events);
            self.turn();
        }
        Ok(())
    }

    fn finished(&self) -> bool {
        let is = |event: &SourceEvent| matches!(event, SourceEvent::Finished { .. });
        self.events.iter().any(is)
    }

    /// Nothing is under way and nothing more is due: the node would sleep.
    fn is_quiet(&self) -> bool {
        !self.casts.is_active() && self.casts.poll_timeout().is_none()
    }

    fn check_frames(&self) -> Outcome {
        let frames = mm::frames();
        frames.check()?;
        let usage = frames.usage();
        check!(usage.object == self.objects.pages(), "{usage:?}");
        Ok(())
    }
}

fn member(addr: SocketAddrV4, mac: [u8; 6]) -> MemberConfig {
    MemberConfig {
        node: NodeId(1),
        boot: BootEpoch(0),
        me: Peer { addr, mac },
        control: None,
        key: KEY,
        rate: 0,
        buffers: BUFFERS,
        credit: CREDIT,
        members: 0,
        seed: u64::from(mac[5]),
    }
}

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 4096) as u8).collect()
}

/// An image arrives whole and is checked; nothing is under way when all have it, and its pages can
/// be had. What is cast as a connection table, or because ranks read it, is its job's, and goes
/// with it.
pub fn receive() -> Outcome {
    let bytes = content(300_001);
    let [table, read] = [Purpose::Table { job: JOB }, Purpose::Read { job: JOB }];
    for purpose in [Purpose::Program, table.clone(), read] {
        let (object, dealer) = Far::new(&bytes, true)?;
        let mut bench = Bench::new(dealer, WarmTable::new(0));
        bench.cast(&object, purpose.clone(), false)?;
        bench.run_until(Bench::finished)?;
        let id = ObjectId(object.id);
        check!(bench.objects.is_complete(&id), "{:?}", bench.events);
        let mut found = vec![0; bytes.len()];
        check!(
            bench.objects.read_bytes(&DirectMap, &id, 0, &mut found) && found == bytes,
            "it is not what was cast"
        );
        check!(
            bench.casts.page(&id, 3, &bench.objects) == CastPage::Here,
            "a page that is here cannot be had"
        );
        bench.run_until(Bench::is_quiet)?;
        let vitals = bench.casts.vitals();
        check!(
            vitals.blocks_in == u64::from(object.blocks()) && vitals.corrupt == 0,
            "{vitals:?}"
        );
        bench.check_frames()?;
        if purpose == Purpose::Program {
            bench
                .objects
                .drop_object(&mut crate::mm::Hardware::new(), &id);
            continue;
        }
        let is_table = bench.casts.tables().of(JOB).is_some();
        check!(is_table == (purpose == table), "{purpose:?} as a table");
        bench.casts.close_job(OTHER_JOB, &mut bench.objects);
        check!(bench.objects.is_complete(&id), "{purpose:?} of another job");
        bench.casts.close_job(JOB, &mut bench.objects);
        check!(
            bench.objects.is_empty(),
            "{purpose:?} of a job that is over"
        );
        bench.check_frames()?;
    }
    read_beside_a_program(&bytes)
}

/// An image that was here before ranks read a file of the same bytes outlives their job.
fn read_beside_a_program(bytes: &[u8]) -> Outcome {
    let (object, dealer) = Far::new(bytes, true)?;
    let mut bench = Bench::new(dealer, WarmTable::new(0));
    let id = ObjectId(object.id);
    let spec = Spec::new(id, object.bytes, object.block_log2, Kept::Image);
    let machine = &mut crate::mm::Hardware::new();
    let made = bench.objects.create(machine, spec);
    check!(made.is_ok(), "no place for an image");
    bench.cast(&object, Purpose::Read { job: JOB }, false)?;
    bench.run_until(Bench::finished)?;
    bench.casts.close_job(JOB, &mut bench.objects);
    check!(bench.objects.is_complete(&id), "it went with the job");
    bench.objects.drop_object(machine, &id);
    bench.check_frames()
}

/// What a cast costs a node that gets it and gives it on, in instructions by datagram of data: to
/// take one, with its hash and its place in the store, and to serve one, but for frame and card.
pub fn cost() -> Result<(u64, u64), String> {
    const TIMES: u64 = 64;
    let bytes = content(600_000);
    let (object, dealer) = Far::new(&bytes, true)?;
    let (_, empty) = Far::new(&bytes, false)?;
    let mut bench = Bench::new(dealer, WarmTable::new(0));
    let mut config = member(OTHER, OTHER_MAC);
    config.node = NodeId(2);
    bench.other = Some((Member::new(config, bench.now), empty));
    bench.cast(&object, Purpose::Program, false)?;
    bench.run_until(Bench::finished)?;
    let counts = bench.counts;
    check!(
        counts.taken > 100 && counts.served > 100,
        "{} taken, {} served",
        counts.taken,
        counts.served
    );
    // The test's wire is no card: what it takes is left out.
    let (began, datagram) = (arch::tsc(), [7; netstack::MAX_DATAGRAM]);
    for _ in 0..TIMES {
        bench.stack.send_peer(OTHER, OTHER_MAC, &datagram);
    }
    let frame = (arch::tsc() - began) / TIMES;
    let served = (counts.serving / counts.served).saturating_sub(frame);
    Ok((counts.taking / counts.taken, served))
}

/// A cast that is cancelled midway, or is refused for want of memory, leaves nothing.
pub fn unfinished() -> Outcome {
    let (object, dealer) = Far::new(&content(600_000), true)?;
    let mut bench = Bench::new(dealer, WarmTable::new(0));
    bench.cast(&object, Purpose::File { name: "f".into() }, false)?;
    bench.run_until(|bench| bench.objects.pages() > 50)?;
    let id = ObjectId(object.id);
    let last = object.bytes / 4096;
    check!(
        bench.casts.page(&id, last, &bench.objects) == CastPage::Coming,
        "the last page is not on its way"
    );
    bench.source.cancel(bench.now, CAST);
    bench.run_until(Bench::is_quiet)?;
    check!(bench.objects.is_empty(), "{:?}", bench.objects);
    bench.check_frames()?;

    let limit = 4096 * 100;
    let (object, dealer) = Far::new(&content(limit + 1), true)?;
    let mut bench = Bench::new(dealer, WarmTable::new(0));
    bench.objects = Objects::new(100);
    bench.cast(&object, Purpose::File { name: "f".into() }, false)?;
    bench.run_until(Bench::finished)?;
    let failed = |event: &SourceEvent| matches!(event, SourceEvent::MemberFailed { .. });
    check!(bench.events.iter().any(failed), "{:?}", bench.events);
    check!(bench.objects.is_empty(), "{:?}", bench.objects);
    bench.run_until(Bench::is_quiet)?;
    bench.check_frames()
}

/// A new run of the control node ends casts; what came of them goes after a while.
pub fn replaced() -> Outcome {
    let (object, dealer) = Far::new(&content(600_000), true)?;
    let mut bench = Bench::new(dealer, WarmTable::new(0));
    bench.cast(&object, Purpose::Program, false)?;
    bench.run_until(|bench| bench.objects.pages() > 50)?;
    let mut config = member(NODE, CARD_MAC);
    config.key = Key(*b"another of these");
    bench.casts.join(config, bench.now, &mut bench.objects);
    check!(!bench.casts.is_active(), "casts of the old run go on");
    check!(bench.objects.pages() > 50, "what came was dropped at once");
    let mut buffer = [0; netstack::MAX_DATAGRAM];
    while let Some(due) = bench.casts.poll_timeout() {
        bench.now = bench.now.max(due);
        bench.node(&mut buffer);
    }
    check!(bench.objects.is_empty(), "{:?}", bench.objects);
    bench.check_frames()
}

/// A warm node takes part as a holder: it receives nothing and gives its program's pages to
/// another, so that the control node sends less.
pub fn warm_node_serves() -> Outcome {
    let mut control = FakeControl::warming(large_file(TOUCHED_PAGES, 1));
    run(&mut control)?;
    let image = control.file().to_vec();
    let (object, dealer) = Far::new(&image, true)?;
    let (_, empty) = Far::new(&image, false)?;
    let warm = core::mem::replace(&mut control.warm, WarmTable::new(0));
    let mut bench = Bench::new(dealer, warm);
    let mut config = member(OTHER, OTHER_MAC);
    config.node = NodeId(2);
    bench.other = Some((Member::new(config, bench.now), empty));
    bench.cast(&object, Purpose::Program, true)?;
    bench.run_until(Bench::finished)?;
    let far = bench.other.as_ref().map(|(_, far)| far);
    let held = far.map_or(0, |far| far.held.iter().filter(|held| **held).count());
    check!(held == object.data_blocks() as usize, "{held} blocks came");
    check!(bench.objects.is_empty(), "{:?}", bench.objects);
    let served = bench.casts.vitals().blocks_out;
    let dealt = bench.dealer.reads;
    check!(
        served > 0 && dealt < u64::from(object.data_blocks()),
        "the warm node sent {served} blocks, the source {dealt}"
    );
    bench.check_frames()?;
    bench
        .warm
        .drop_program(&mut crate::mm::Hardware::new(), None);
    Ok(())
}

/// Datagrams of peers' kinds that nobody sealed, or that were damaged, change nothing.
pub fn hostile() -> Outcome {
    const DATAGRAMS: usize = 2_000;
    let bytes = content(200_000);
    let (object, dealer) = Far::new(&bytes, true)?;
    let mut bench = Bench::new(dealer, WarmTable::new(0));
    bench.cast(&object, Purpose::Program, false)?;
    let other = Peer {
        addr: NODE,
        mac: CARD_MAC,
    };
    for round in 0..DATAGRAMS {
        let mut datagram = [0; netstack::MAX_DATAGRAM];
        entropy::fill(&mut datagram);
        let length = 28 + usize::from(datagram[0]) * 5;
        datagram[..4].copy_from_slice(&[b'H', b'R', 1, 64 + (round % 16) as u8]);
        if round % 2 == 0 {
            // Names the cast that is under way.
            datagram[8..16].copy_from_slice(&CAST.0.to_be_bytes());
        }
        bench.carry((OTHER, OTHER_MAC), other, &datagram[..length]);
        if round % 20 == 0 {
            bench.turn();
        }
    }
    bench.run_until(Bench::finished)?;
    let id = ObjectId(object.id);
    let mut found = vec![0; bytes.len()];
    check!(
        bench.objects.read_bytes(&DirectMap, &id, 0, &mut found) && found == bytes,
        "it is not what was cast"
    );
    check!(bench.objects.len() == 1, "{:?}", bench.objects);
    bench.check_frames()
}
