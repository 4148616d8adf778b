//! What was written is what is read; what nobody wrote is refused, and panics nothing.

use std::vec;
use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;
use crate::MAX_DATAGRAM;
use crate::overlay::filter::Filter;
use crate::overlay::metric::MetricId;
use crate::overlay::stream::{Scope, StreamSpec, Sync};
use crate::time::Micros;
use crate::wire::key::Key;

const KEY: Key = Key(*b"what nodes share");

fn peer() -> impl Strategy<Value = Peer> {
    (any::<[u8; 4]>(), 1_u16.., any::<[u8; 6]>()).prop_map(|(ip, port, mac)| Peer {
        addr: SocketAddrV4::new(ip.into(), port),
        mac,
    })
}

fn process() -> impl Strategy<Value = Process> {
    prop_oneof![
        Just(Process::FRONT_END),
        (0..u32::MAX, 0..=MAX_CPS).prop_map(|(node, slot)| Process {
            node: NodeId(node),
            slot
        }),
    ]
}

fn candidate() -> impl Strategy<Value = Candidate> {
    (process(), peer(), 1..=MAX_HEIGHT, any::<u16>()).prop_map(|(process, peer, height, room)| {
        Candidate {
            process,
            peer,
            height,
            room,
        }
    })
}

fn candidates() -> impl Strategy<Value = Vec<Candidate>> {
    vec_of(candidate(), 0..=MAX_CANDIDATES)
}

prop_compose! {
    fn standing()(
        link: u32, time: u64, answer: bool, quiet: bool, room: u16, back_ends: u32, cps: u32,
        handed: u64, submitted: u64, dropped: u64, lag_us: u32,
    ) -> Standing {
        Standing { link, time, answer, quiet, room, back_ends, quiet_below: cps / 2, cps, handed, submitted, dropped, lag_us }
    }
}

prop_compose! {
    fn entry()(
        names in (process(), process()), boot: u64, link: u32, flags: (bool, bool, bool, bool, bool, bool), height in 0..=MAX_HEIGHT,
        counts: (u32, u64, u64, u64, u64, u32),
    ) -> CensusEntry {
        CensusEntry {
            process: names.0, boot: BootEpoch(boot), parent: names.1, link, gone: flags.0, last: flags.1, own: flags.3, refused: flags.4,
            quiet: flags.2, earlier: flags.5, height, back_ends: counts.0, submitted: counts.1, dropped: counts.2,
            handed: counts.3, received: counts.4, lag_us: counts.5,
        }
    }
}

fn scope() -> impl Strategy<Value = Scope> {
    let range =
        (any::<u32>(), any::<u32>()).prop_map(|(a, b)| (NodeId(a.min(b)), NodeId(a.max(b))));
    prop_oneof![
        Just(Scope::All),
        vec_of(range, 1..=8).prop_map(Scope::Nodes),
        (1_u64..).prop_map(|job| Scope::Job(JobId(job))),
    ]
}

fn filter() -> impl Strategy<Value = Filter> {
    prop_oneof![
        Just(Filter::Sum),
        Just(Filter::Min),
        Just(Filter::Max),
        Just(Filter::Avg),
        Just(Filter::Concat),
        Just(Filter::Classes),
        proptest::collection::btree_set(any::<i64>(), 1..16)
            .prop_map(|bounds| { Filter::Histogram(bounds.into_iter().collect()) }),
    ]
}

prop_compose! {
    fn spec()(
        metrics in vec_of(any::<u16>(), 1..40), filter in filter(), sync in 0_usize..3,
        period in 10_000_u64..3_600_000_000, hold in 1_u64..10_000, scope in scope(),
    ) -> StreamSpec {
        StreamSpec {
            metrics: metrics.into_iter().map(MetricId).collect(),
            filter, sync: [Sync::WaitAll, Sync::TimeOut, Sync::None][sync],
            period: Micros(period), hold: Micros(hold), scope,
        }
    }
}

prop_compose! {
    fn build()(
        parent in candidate(), height in 0_u8..8, part in 0_u16..100, more in 1_u16..100,
        entries in vec_of((1..=MAX_HEIGHT, 0_u8..8, process(), peer()), 0..=BUILD_ENTRIES),
    ) -> Build {
        let height = height.min(parent.height - 1);
        let entries = entries.into_iter().filter(|(_, own, ..)| *own < height);
        Build {
            parent, height, part, parts: part + more,
            entries: entries.map(|(depth, height, process, peer)| BuildEntry { depth, height, process, peer }).collect(),
        }
    }
}

fn message() -> impl Strategy<Value = Message> {
    prop_oneof![
        (
            any::<bool>(),
            0..=MAX_CPS,
            any::<u32>(),
            any::<u64>(),
            any::<[i64; 4]>()
        )
            .prop_map(
                |(back_end, cps, auxiliary, job, factors)| Message::Hello(Hello {
                    back_end,
                    cps,
                    auxiliary,
                    job: JobId::from_wire(job),
                    factors: factors.map(Fixed),
                })
            ),
        (0_usize..3, candidates()).prop_map(|(state, candidates)| Message::HelloAck {
            state: [TreeState::Waiting, TreeState::Up, TreeState::Down][state],
            candidates,
        }),
        build().prop_map(Message::Build),
        any::<(u16, bool)>().prop_map(|(next, refused)| Message::BuildAck { next, refused }),
        (
            any::<u32>(),
            0..=MAX_HEIGHT,
            any::<u16>(),
            any::<bool>(),
            any::<bool>(),
            any::<u64>()
        )
            .prop_map(
                |(link, height, room, quiet, moved, time)| Message::Attach(Attach {
                    link,
                    height,
                    room,
                    quiet,
                    moved,
                    time
                })
            ),
        (
            any::<(u32, u16, u16, u64, u64, u32)>(),
            0_usize..5,
            candidates()
        )
            .prop_map(|(numbers, answer, kin)| {
                let answers = [
                    AttachAnswer::Taken,
                    AttachAnswer::Full,
                    AttachAnswer::NotBelow,
                    AttachAnswer::Loose,
                    AttachAnswer::Gone,
                ];
                let (link, index, shift, echo, overlay, trip_us) = numbers;
                Message::AttachAck(AttachAck {
                    link,
                    answer: answers[answer],
                    index,
                    shift,
                    echo,
                    overlay,
                    trip_us,
                    kin,
                })
            }),
        (standing(), vec_of(any::<u8>(), 0..=SECTIONS_ROOM))
            .prop_map(|(standing, sections)| Message::Report { standing, sections }),
        (
            any::<(u32, u64, u64, u32, u64)>(),
            candidates(),
            candidates()
        )
            .prop_map(|(numbers, kin, siblings)| {
                let (link, echo, overlay, trip_us, received) = numbers;
                Message::Beat(Beat {
                    link,
                    echo,
                    overlay,
                    trip_us,
                    received,
                    kin,
                    siblings,
                })
            }),
        (any::<(u16, u32)>(), proptest::option::of(spec())).prop_map(|((id, version), spec)| {
            Message::Stream {
                id: StreamId(id),
                version,
                spec,
            }
        }),
        any::<(u16, u32)>().prop_map(|(id, version)| Message::StreamAck {
            id: StreamId(id),
            version
        }),
        any::<u32>().prop_map(|link| Message::Detach { link }),
        Just(Message::TakeDown),
        standing().prop_map(|standing| Message::Taken { standing }),
        (any::<u32>(), vec_of(entry(), 1..=CENSUS_ENTRIES))
            .prop_map(|(number, entries)| Message::Census { number, entries }),
        any::<u32>().prop_map(|number| Message::CensusAck { number }),
    ]
}

prop_compose! {
    fn packet()(
        from in process(), boot: u64, mac: [u8; 6], to_slot in 0..=MAX_CPS, tree: u64, message in message(),
    ) -> Packet {
        Packet { from, boot: BootEpoch(boot), mac, to_slot, tree: TreeEpoch(tree), message }
    }
}

/// A station that has sealed and opened nothing.
fn station(number: u8) -> Envelopes {
    Envelopes::new(&KEY, addr(number), Instant::ZERO)
}

fn addr(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new([10, 0, 0, number].into(), 7118)
}

/// What station 2 makes of a datagram of station 1.
fn read(bytes: &[u8]) -> Result<Packet, Error> {
    parse(&mut station(2), Instant::ZERO, addr(1), bytes)
}

fn written(packet: &Packet) -> Vec<u8> {
    let mut out = [0; MAX_DATAGRAM];
    let length = emit(&mut station(1), Instant::ZERO, addr(2), packet, &mut out);
    out[..length].to_vec()
}

proptest! {
    #[test]
    fn what_is_written_is_read(packet in packet()) {
        let bytes = written(&packet);
        prop_assert!(is_overlay(&bytes) && bytes.len() <= MAX_FRAME);
        prop_assert_eq!(read(&bytes), Ok(packet));
    }

    #[test]
    fn a_changed_byte_is_noticed(packet in packet(), at: prop::sample::Index, bit in 0_u8..8) {
        let mut bytes = written(&packet);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(read(&bytes).is_err());
    }

    /// As if a node's kernel had been taken over: the seal is right, the payload anything.
    #[test]
    fn no_payload_panics(kind in 96_u8..112, payload in vec_of(any::<u8>(), 0..300), prefix: bool) {
        let mut out = [0; MAX_DATAGRAM];
        let Ok(kind) = Kind::from_wire(kind) else { return Ok(()) };
        let header = Header { kind, node: NodeId(1), epoch: BootEpoch(1), seq: 0 };
        let length = station(1).seal(Instant::ZERO, addr(2), header, &mut out, |writer| {
            if prefix {
                writer.bytes(&[0; PREFIX_LEN]);
            }
            writer.bytes(&payload);
        });
        if let Ok(packet) = read(&out[..length]) {
            prop_assert_eq!(written(&packet), &out[..length]);
        }
    }
}

#[test]
fn lists_at_their_limits_fit_a_frame() {
    let somewhere = Peer {
        addr: SocketAddrV4::new([10, 0, 0, 1].into(), 7118),
        mac: [1; 6],
    };
    let candidate = Candidate {
        process: Process::FRONT_END,
        peer: somewhere,
        height: 8,
        room: 1,
    };
    let full = vec![candidate; MAX_CANDIDATES];
    let entry = BuildEntry {
        depth: 1,
        height: 0,
        process: Process::back_end(NodeId(1)),
        peer: somewhere,
    };
    let spec = StreamSpec {
        scope: Scope::Nodes(vec![(NodeId(0), NodeId(1)); 8]),
        ..StreamSpec::new(
            vec![MetricId(1); 64],
            Filter::Histogram((0..15).collect()),
            Micros::from_secs(1),
        )
    };
    let messages = [
        Message::Build(Build {
            parent: candidate,
            height: 7,
            part: 0,
            parts: 1,
            entries: vec![entry; BUILD_ENTRIES],
        }),
        Message::Beat(Beat {
            link: 1,
            echo: 0,
            overlay: 0,
            trip_us: 0,
            received: 0,
            kin: full.clone(),
            siblings: full,
        }),
        Message::Census {
            number: 1,
            entries: vec![CensusEntry::default(); CENSUS_ENTRIES],
        },
        Message::Report {
            standing: Standing::default(),
            sections: vec![0; SECTIONS_ROOM],
        },
        Message::Stream {
            id: StreamId(1),
            version: 1,
            spec: Some(spec),
        },
    ];
    for message in messages {
        let packet = Packet {
            from: Process::FRONT_END,
            boot: BootEpoch(1),
            mac: [0; 6],
            to_slot: 0,
            tree: TreeEpoch(1),
            message,
        };
        assert_eq!(read(&written(&packet)), Ok(packet));
    }
}

/// The lengths that docs/protocol.md states: of lists, without an entry.
#[test]
fn payloads_are_as_long_as_documented() {
    let document = include_str!("../../../../docs/protocol.md");
    let standing = Standing::default();
    let parent = Candidate {
        process: Process::FRONT_END,
        peer: Peer {
            addr: SocketAddrV4::new([10, 0, 0, 1].into(), 7118),
            mac: [1; 6],
        },
        height: 2,
        room: 1,
    };
    let hello = Hello {
        back_end: true,
        cps: 1,
        auxiliary: 0,
        job: None,
        factors: [Fixed::ZERO; 4],
    };
    let attach = Attach {
        link: 1,
        height: 0,
        room: 0,
        quiet: false,
        moved: false,
        time: 0,
    };
    let ack = AttachAck {
        link: 1,
        answer: AttachAnswer::Taken,
        index: 0,
        shift: 1,
        echo: 0,
        overlay: 0,
        trip_us: 0,
        kin: Vec::new(),
    };
    let beat = Beat {
        link: 1,
        echo: 0,
        overlay: 0,
        trip_us: 0,
        received: 0,
        kin: Vec::new(),
        siblings: Vec::new(),
    };
    let build = Build {
        parent,
        height: 0,
        part: 0,
        parts: 1,
        entries: Vec::new(),
    };
    let id = StreamId(1);
    let messages = [
        Message::Hello(hello),
        Message::HelloAck {
            state: TreeState::Waiting,
            candidates: Vec::new(),
        },
        Message::Build(build),
        Message::BuildAck {
            next: 1,
            refused: false,
        },
        Message::Attach(attach),
        Message::AttachAck(ack),
        Message::Report {
            standing,
            sections: Vec::new(),
        },
        Message::Beat(beat),
        Message::Stream {
            id,
            version: 1,
            spec: None,
        },
        Message::StreamAck { id, version: 1 },
        Message::Detach { link: 1 },
        Message::TakeDown,
        Message::Taken { standing },
        Message::Census {
            number: 1,
            entries: Vec::new(),
        },
        Message::CensusAck { number: 1 },
    ];
    for message in messages {
        let kind = kind_of(&message) as u8;
        let packet = Packet {
            from: Process::FRONT_END,
            boot: BootEpoch(1),
            mac: [0; 6],
            to_slot: 0,
            tree: TreeEpoch(1),
            message,
        };
        let length = written(&packet).len() - OVERHEAD;
        let begin = std::format!("| {kind} | OVERLAY_");
        let line = document.lines().find(|line| line.starts_with(&begin));
        let line = line.unwrap_or_else(|| panic!("kind {kind} is not in the table of kinds"));
        let cell = line.trim_end_matches(" |").rsplit("| ").next().unwrap();
        let stated = cell.split(' ').next().unwrap();
        assert_eq!(stated, std::format!("{length}"), "{line}");
    }
}
