//! What the fuzz targets do with their input. `cargo xtask fuzz node` (or `control`, `personality`,
//! `cast`, `exchange`, `files`) runs one.
//!
//! An endpoint's input is a list of records: one byte of mode, one of kind, two of length
//! (little-endian), then so many bytes. Mode 0 delivers the bytes as they are, mode 1 as the
//! payload of a datagram sealed with the session's key (as if the other side had been taken over),
//! mode 2 lets time pass, mode 3 has the node hold a program or drop it, mode 4 has the control
//! node ask it to, any other lets the endpoints send. The only thing asked of the endpoints is that
//! they neither panic nor stop.

mod exchange;
mod files;

pub use exchange::attack_exchange;
pub use files::attack_files;

use std::net::{Ipv4Addr, SocketAddrV4};

use netstack::broadcast;
use netstack::broadcast::published::header::Sizes;
use netstack::control::Limits;
use netstack::ids::{BootEpoch, CastId, ControlEpoch, JobId, NodeId, ProgramId, Rank};
use netstack::job::{JobSpec, PlaceSpec, StartMode};
use netstack::join::Timing;
use netstack::page::{Object, PageRequest};
use netstack::personality::Personality;
use netstack::retention::{HOLDINGS_MAX, Holding, Retention};
use netstack::time::{Instant, Micros};
use netstack::vitals::BootTimings;
use netstack::wire::datagram::{self, Header, Kind, MAX_PAYLOAD, Packet};
use netstack::wire::join::Welcome;
use netstack::wire::envelope::Envelopes;
use netstack::wire::key::{Direction, Key};
use netstack::{MAX_DATAGRAM, NODE_PORT, control, node};

const SECRET: [u8; 16] = *b"a secret to fuzz";
const NODE: NodeId = NodeId(3);
const EPOCH: BootEpoch = BootEpoch(5);
const MAC: [u8; 6] = [0x52, 0x54, 0, 7, 0, 3];
const ADDR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 1, 3), NODE_PORT);
const JOB: JobId = JobId(1);

/// A joined node and control node with a launched job, and the session's keys.
struct Pair {
    node: node::Endpoint,
    control: control::Endpoint,
    now: Instant,
    to_node: Key,
    to_control: Key,
}

impl Pair {
    fn new() -> Self {
        let key = Key(SECRET).node_key(1, MAC, EPOCH, NODE);
        let personality = Personality {
            node: NODE,
            control_addr: [10, 117, 0, 1],
            control_port: netstack::CONTROL_PORT,
            http_port: 7180,
            tree_height: 0,
            place: [0; 4],
            key_id: 1,
            key,
            name: "n3".into(),
        };
        let now = Instant::from_micros(1);
        let mut node = node::Endpoint::new(
            node::Config {
                personality,
                mac: MAC,
                boot_epoch: EPOCH,
                lab_key: false,
                version: [0; 16],
                build_id: [0; 20],
                memory_bytes: 0,
                cores: 1,
                seed: 1,
                timings: BootTimings::default(),
            },
            now,
        );
        let mut control = control::Endpoint::new(control::Config {
            cluster_secret: SECRET,
            key_id: 1,
            version: [0; 16],
            accept_lab_keys: false,
            control_epoch: ControlEpoch(1),
            peer_key: Key([7; 16]),
            seed: 1,
            timing: Timing::default(),
            limits: Limits::default(),
        });
        let mut out = [0; MAX_DATAGRAM];
        let hello = node
            .poll_transmit(now, &mut out)
            .expect("a node says HELLO");
        control.handle_datagram(now, ADDR, &out[..hello]);
        let (_, length) = control
            .poll_transmit(now, &mut out)
            .expect("control says WELCOME");
        let packet = Packet::new_checked(&out[..length]).expect("it is well-formed");
        let payload = packet
            .open(&key.join_key(Direction::ToNode))
            .expect("it is sealed");
        let session = Welcome::parse(payload).expect("it is a WELCOME").session;
        node.handle_datagram(now, &out[..length]);
        let mut pair = Pair {
            node,
            control,
            now,
            to_node: key.session_key(Direction::ToNode, session),
            to_control: key.session_key(Direction::ToControl, session),
        };
        pair.settle();
        let spec = JobSpec {
            job: JOB,
            submitted_us: 1,
            places: vec![PlaceSpec {
                node: NODE,
                ranks: 1,
                launch_block: [0; 10].into(),
                retain: false,
                files: None,
            }],
            program: ProgramId([0; 32]),
            program_bytes: 100_000,
            time_limit_us: 0,
            monitor_period_us: 0,
            memory_limit: 0,
            retention: Retention::default(),
            start: StartMode::OnCommand,
            cores: 0,
            core_bytes: 0,
        };
        pair.control.launch(pair.now, spec).expect("the node is up");
        pair.settle();
        let request = PageRequest {
            job: JOB,
            object: Object::Program,
            offset: 0,
            length: 32_768,
            demand: true,
        };
        pair.node
            .request_pages(pair.now, request)
            .expect("there is room");
        pair
    }

    /// Exchanges datagrams until both are silent; what comes out of the events is dropped.
    fn settle(&mut self) {
        let mut out = [0; MAX_DATAGRAM];
        for _ in 0..1000 {
            let up = self.node.poll_transmit(self.now, &mut out);
            if let Some(length) = up {
                self.control.handle_datagram(self.now, ADDR, &out[..length]);
            }
            let down = self.control.poll_transmit(self.now, &mut out);
            if let Some((_, length)) = down {
                self.node.handle_datagram(self.now, &out[..length]);
            }
            self.drain();
            if up.is_none() && down.is_none() {
                return;
            }
        }
        panic!("the endpoints never come to rest");
    }

    /// What comes out is dropped, but for the answers that the node owes.
    fn drain(&mut self) {
        while let Some(event) = self.node.poll_event() {
            match event {
                node::Event::Retain { job, .. } => self.node.retain_result(self.now, job, 7),
                node::Event::Drop { id, .. } => self.node.drop_result(self.now, id, 7, false),
                _ => {}
            }
        }
        while self.control.poll_event().is_some() {}
    }

    /// The node holds program `number` if it is even, and drops the one before it if not.
    fn hold(&mut self, number: u8) {
        let program = ProgramId([(number / 2) % HOLDINGS_MAX as u8; 32]);
        if number.is_multiple_of(2) {
            let holding = Holding {
                program,
                pages: number.into(),
                pristine: 0,
            };
            self.node.hold(self.now, holding);
        } else {
            self.node.unhold(self.now, program);
        }
    }
}

/// Delivers the records of `input`; `deliver` takes a datagram, `key` seals them.
fn attack(input: &[u8], mut pair: Pair, key: Key, deliver: impl Fn(&mut Pair, &[u8])) {
    let mut rest = input;
    let mut seq = 1_000;
    while let Some((&[mode, kind, low, high], tail)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(tail.len());
        let (bytes, tail) = tail.split_at(length);
        rest = tail;
        match mode {
            0 => deliver(&mut pair, bytes),
            1 => {
                let Ok(kind) = Kind::from_wire(kind) else {
                    continue;
                };
                seq += 1;
                let header = Header {
                    kind,
                    node: NODE,
                    epoch: EPOCH,
                    seq,
                };
                let mut out = [0; MAX_DATAGRAM];
                let payload = &bytes[..bytes.len().min(MAX_PAYLOAD)];
                let length = datagram::emit(header, Some(&key), &mut out, |writer| {
                    writer.bytes(payload);
                });
                deliver(&mut pair, &out[..length]);
            }
            2 => pair.now += Micros(u64::from(kind) * 50_000),
            3 => pair.hold(kind),
            4 => {
                let program = (kind != 0).then_some(ProgramId([kind; 32]));
                // Refused once the node is gone, or too much waits.
                let _ = pair.control.drop_program(pair.now, NODE, program);
            }
            _ => pair.settle(),
        }
        pair.drain();
    }
    pair.settle();
}

/// Hostile datagrams into a node's endpoint.
pub fn attack_node(input: &[u8]) {
    let pair = Pair::new();
    let key = pair.to_node;
    attack(input, pair, key, |pair, bytes| {
        pair.node.handle_datagram(pair.now, bytes)
    });
}

/// Hostile datagrams into the control node's endpoint.
pub fn attack_control(input: &[u8]) {
    let pair = Pair::new();
    let key = pair.to_control;
    attack(input, pair, key, |pair, bytes| {
        pair.control.handle_datagram(pair.now, ADDR, bytes)
    });
}

/// Bytes into the parsers of what comes before a node has a session.
pub fn parse_personality(input: &[u8]) {
    if let Ok(personality) = Personality::parse(input) {
        assert_eq!(personality.emit().as_deref(), Ok(input));
    }
    let _ = netstack::job::launch_block::parse(input);
}

/// A wire between the stations of a cast: what one sends the others get at once.
struct Cast {
    source: broadcast::Source,
    members: Vec<broadcast::Member>,
    shelf: Shelf,
    now: Instant,
}

/// Holds nothing that is received, and gives zeros.
struct Shelf;

impl broadcast::Hasher for Shelf {
    fn subtree(&mut self, _: u64, bytes: &[u8], _: bool) -> broadcast::Hash {
        [bytes.first().copied().unwrap_or(0); 32]
    }

    fn merge(&mut self, left: &broadcast::Hash, _: &broadcast::Hash, _: bool) -> broadcast::Hash {
        *left
    }
}

impl broadcast::Store for Shelf {
    fn read(&mut self, _: CastId, _: broadcast::Part, _: usize, out: &mut [u8]) -> bool {
        out.fill(0);
        true
    }

    fn write(&mut self, _: CastId, _: broadcast::Part, _: &[u8]) -> Result<(), broadcast::NoRoom> {
        Ok(())
    }
}

/// Where station `number` of a cast is; 0 is the control node.
fn station(number: u8) -> broadcast::Peer {
    broadcast::Peer {
        addr: SocketAddrV4::new(Ipv4Addr::new(10, 117, 2, number), NODE_PORT),
        mac: [2, 0, 0, 0, 0, number],
    }
}

impl Cast {
    /// Five members of a cast of zeros, by this scheme.
    fn new(scheme: broadcast::Scheme) -> Self {
        let now = Instant::from_micros(1);
        let key = Key(SECRET);
        let mut source = broadcast::Source::new(
            broadcast::SourceConfig {
                me: station(0),
                key,
                rate: 125_000_000,
                seed: 1,
                limits: broadcast::Limits::default(),
            },
            now,
        );
        let members = (1..=5).map(|number| {
            let config = broadcast::MemberConfig {
                node: NodeId(number.into()),
                boot: BootEpoch(0),
                me: station(number),
                control: Some(station(0)),
                key,
                rate: 0,
                buffers: 0,
                credit: 0,
                members: 0,
                seed: number.into(),
            };
            broadcast::Member::new(config, now)
        });
        let (object, _) =
            broadcast::Object::describe(&[0; 100_000], 12, &mut Shelf).expect("it is small");
        let spec = broadcast::CastSpec {
            id: CastId(1),
            object,
            purpose: broadcast::Purpose::Program,
            job: None,
            members: (1..=5)
                .map(|n| (NodeId(n.into()), station(n), false))
                .collect(),
            scheme,
            rate: 125_000_000,
        };
        let members = members.collect();
        source.cast(now, spec).expect("it is in order");
        let mut cast = Cast {
            source,
            members,
            shelf: Shelf,
            now,
        };
        cast.settle();
        cast
    }

    fn deliver(&mut self, from: SocketAddrV4, to: u8, datagram: &[u8]) {
        let Cast {
            source,
            members,
            shelf,
            now,
        } = self;
        match members.get_mut(usize::from(to).wrapping_sub(1)) {
            Some(member) => member.handle_datagram(*now, from, datagram, shelf),
            None => source.handle_datagram(*now, from, datagram, shelf),
        }
    }

    /// Carries what the stations have to say for a while, and answers announcements.
    fn settle(&mut self) {
        let mut out = [0; MAX_DATAGRAM];
        for _ in 0..200 {
            let mut sent = Vec::new();
            let source = &mut self.source;
            while source.poll_event().is_some() {}
            if let Some((to, length)) = source.poll_transmit(self.now, &mut out, &mut self.shelf) {
                sent.push((0, to, out[..length].to_vec()));
            }
            for (number, member) in (1..).zip(&mut self.members) {
                while let Some(event) = member.poll_event() {
                    if let broadcast::MemberEvent::Announced { cast, .. } = event {
                        member.accept(self.now, cast, broadcast::Want::All, &mut |_| false);
                    }
                }
                let next = member.poll_transmit(self.now, &mut out, &mut self.shelf);
                sent.extend(next.map(|(to, length)| (number, to, out[..length].to_vec())));
            }
            if sent.is_empty() {
                return;
            }
            for (from, to, bytes) in sent {
                self.deliver(station(from).addr, to.addr.ip().octets()[3], &bytes);
            }
        }
    }
}

/// Hostile datagrams into the stations of a cast. Records as above: mode 0 delivers bytes as they
/// are, mode 1 as the payload of a message that another station has sealed, mode 2 lets time pass,
/// mode 3 as the fragment of a block, any other lets the stations speak. The first byte chooses the
/// scheme, the low bits of a record's mode above these the station.
pub fn attack_cast(input: &[u8]) {
    let Some((&first, mut rest)) = input.split_first() else {
        return;
    };
    let mut cast = Cast::new(match first % 6 {
        0 => broadcast::Scheme::Auto,
        1 => broadcast::Scheme::Grid { n1: 2 },
        2 => broadcast::Scheme::DoubleTree,
        3 => broadcast::Scheme::Published(broadcast::PublishedOptions::default()),
        // One chunk down a tree of two layers, or from the source to each.
        other => broadcast::Scheme::Published(broadcast::PublishedOptions {
            fan_out: 2,
            layers: if other == 4 { 2 } else { 1 },
            sizes: Some(Sizes::Equal(1)),
            ..broadcast::PublishedOptions::default()
        }),
    });
    let mut sealed = 0;
    while let Some((&[mode, kind, low, high], tail)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(tail.len());
        let (bytes, tail) = tail.split_at(length);
        rest = tail;
        let (to, from) = (mode >> 2 & 7, mode >> 5);
        let mut out = [0; MAX_DATAGRAM];
        match mode % 4 {
            0 => cast.deliver(station(from).addr, to, bytes),
            1 => {
                let Ok(kind) = Kind::from_wire(kind) else {
                    continue;
                };
                let header = Header {
                    kind,
                    node: NodeId(u32::from(from).wrapping_sub(1)),
                    epoch: BootEpoch(1),
                    seq: 0,
                };
                let payload = &bytes[..bytes.len().min(MAX_PAYLOAD)];
                // Each is later than the one before, so that none counts as sent again.
                sealed += 1;
                let at = Instant::from_micros(sealed << 30);
                let key = Key(SECRET).casts_key();
                let mut sender = Envelopes::new(&key, station(from).addr, at);
                let receiver = station(to).addr;
                let length = sender.seal(at, receiver, header, &mut out, |writer| {
                    writer.bytes(payload);
                });
                cast.deliver(station(from).addr, to, &out[..length]);
            }
            2 => cast.now += Micros(u64::from(kind) * 500),
            _ => {
                let data = &bytes[..bytes.len().min(broadcast::FRAGMENT)];
                let sender = broadcast::MemberIndex(u32::from(from).wrapping_sub(1));
                let piece = broadcast::wire::Piece {
                    block: u32::from(kind),
                    fragment: low % 4,
                    held: Micros(u64::from(low) * 100),
                };
                let length = broadcast::wire::emit_data(
                    CastId(1),
                    sender,
                    piece,
                    data.len(),
                    &mut out,
                    |to| {
                        to.copy_from_slice(data);
                        true
                    },
                );
                if let Some(length) = length {
                    cast.deliver(station(from).addr, to, &out[..length]);
                }
            }
        }
        cast.settle();
    }
}

/// Bytes into the lookups of a connection table.
pub fn look_up(input: &[u8]) {
    let mut read = broadcast::table::reader(input);
    if let Some(table) = broadcast::table::Table::open(input.len() as u64, &mut read) {
        for rank in [
            0,
            1,
            table.ranks() / 2,
            table.ranks().wrapping_sub(1),
            u32::MAX,
        ] {
            let _ = table.entry(Rank(rank), &mut read);
        }
    }
}
