//! What was written is what is read; what nobody wrote is refused, and panics nothing.

use std::string::String;
use std::vec;
use std::vec::Vec;

use proptest::collection::vec as vec_of;
use proptest::prelude::*;

use super::*;
use crate::MAX_DATAGRAM;
use crate::broadcast::published::estimate::Presence;
use crate::broadcast::published::header::{
    Deal, MAX_CHOSEN, MAX_CHUNKS, MAX_ROUNDS, MAX_RUNS, Sizes,
};
use crate::broadcast::published::{Choice, Policy};
use crate::broadcast::{Object, PublishedOptions, Purpose, Scheme};
use crate::ids::JobId;
use crate::wire::key::Key;
use crate::wire::tag;

const KEY: Key = Key(*b"what nodes share");

fn peer() -> impl Strategy<Value = Peer> {
    (any::<[u8; 4]>(), 1_u16.., any::<[u8; 6]>()).prop_map(|(ip, port, mac)| Peer {
        addr: SocketAddrV4::new(ip.into(), port),
        mac,
    })
}

/// Objects of all sizes, with hashes of nothing.
fn object() -> impl Strategy<Value = Object> {
    let log2 = 12_u8..=16;
    (any::<[u8; 32]>(), log2, any::<prop::sample::Index>()).prop_map(|(id, block_log2, size)| {
        let mut object = Object {
            id,
            bytes: size.index((1 << 13 << block_log2) + 1) as u64,
            block_log2,
            tops: Vec::new(),
        };
        object.tops = vec![id; object.top_count() as usize];
        object
    })
}

fn purpose() -> impl Strategy<Value = Purpose> {
    prop_oneof![
        Just(Purpose::Program),
        "[^/\0]{1,32}"
            .prop_filter("a directory", |name| name != "." && name != "..")
            .prop_map(|name| Purpose::File { name }),
        (1_u64..).prop_map(|job| Purpose::Table { job: JobId(job) }),
        (1_u64..).prop_map(|job| Purpose::Read { job: JobId(job) }),
    ]
}

prop_compose! {
    fn published()(
        fan_out: u32, layers: u8, sizes in 0_u8..3, chunks in 1..=MAX_CHUNKS,
        runs in vec_of((1_u16.., 1_u16..), 0..=MAX_RUNS),
        deal in 0_u8..3, chosen in vec_of(any::<u16>(), 1..=MAX_CHOSEN), rounds in 1..=MAX_ROUNDS,
        choices in (0..2, 0_usize..3), flags: (bool, bool),
    ) -> PublishedOptions {
        PublishedOptions {
            fan_out,
            layers,
            sizes: match sizes {
                0 => None,
                1 => Some(Sizes::Equal(chunks)),
                _ => Some(Sizes::Given(runs)),
            },
            deal: match deal {
                0 => Deal::Cyclic,
                1 => Deal::Chosen(chosen),
                _ => Deal::Rounds(rounds),
            },
            policy: if choices.0 == 0 { Policy::ChunkFirst } else { Policy::NodeFirst },
            choice: [Choice::Random, Choice::Middle, Choice::Highest][choices.1],
            presence: if flags.0 { Presence::Always } else { Presence::Served },
            fallback: flags.1,
        }
    }
}

fn scheme() -> impl Strategy<Value = Scheme> {
    prop_oneof![
        any::<u32>().prop_map(|n1| Scheme::Grid { n1 }),
        Just(Scheme::Mesh),
        Just(Scheme::DoubleTree),
        published().prop_map(Scheme::Published),
    ]
}

prop_compose! {
    fn setup()(
        object in object(), purpose in purpose(), scheme in scheme(), job: Option<u64>,
        large in 1..=crate::broadcast::MAX_MEMBERS, roster in vec_of(peer(), 0..=100),
        inline: bool, holders in any::<prop::sample::Index>(),
        numbers: [u64; 2], rate in 1_u64.., control in peer(),
    ) -> Setup {
        let mut setup = Setup {
            object, purpose, scheme,
            job: job.filter(|job| *job > 0).map(JobId),
            members: if inline { roster.len().max(1) as u32 } else { large },
            holders: 0,
            rate,
            start: numbers[0],
            control,
            roster_id: numbers[1],
            roster: if inline { roster } else { Vec::new() },
        };
        setup.holders = holders.index(setup.members as usize + 1) as u32;
        if !announce_fits(&setup) {
            setup.roster.clear();
        }
        setup
    }
}

fn standing() -> impl Strategy<Value = Standing> {
    prop_oneof![
        Just(Standing::Child),
        Just(Standing::Elsewhere),
        Just(Standing::NoRoom)
    ]
}

fn blocks() -> impl Strategy<Value = Blocks> {
    some_of(any::<u32>())
}

fn pages() -> impl Strategy<Value = Blocks> {
    some_of(0..MAX_PAGES)
}

fn some_of(numbers: impl Strategy<Value = u32>) -> impl Strategy<Value = Blocks> {
    vec_of(numbers, 1..=4).prop_map(|items| {
        let mut blocks = Blocks::default();
        assert!(items.into_iter().all(|block| blocks.push(block)));
        blocks
    })
}

fn wants() -> impl Strategy<Value = Wants> {
    let wanted = (any::<u32>(), 1_u64..1 << 48);
    vec_of(wanted, 1..=4).prop_map(|items| {
        let mut wants = Wants::default();
        for (block, fragments) in items {
            assert!(wants.push(WantedBlock {
                block,
                fragments,
                urgent: fragments & 2 != 0,
                sealed: fragments & 4 != 0,
            }));
        }
        wants
    })
}

fn reason() -> impl Strategy<Value = FailReason> {
    prop::sample::select(vec![
        FailReason::NoRoom,
        FailReason::Refused,
        FailReason::TimedOut,
        FailReason::Dead,
        FailReason::Invalid,
    ])
}

prop_compose! {
    fn report()(
        number: u32, boot: u64, all: bool,
        done in vec_of((0_u32..1 << 17, 0_u32..1 << 17), 0..=MAX_RANGES),
        failed in vec_of((any::<u32>().prop_map(MemberIndex), reason()), 0..=MAX_NAMED),
        corrupt in vec_of((any::<u32>().prop_map(MemberIndex), any::<u32>()), 0..=MAX_NAMED),
    ) -> Report {
        let done = done.into_iter().map(|(a, b)| Range { first: a.min(b), last: a.max(b) });
        let boot = BootEpoch(boot);
        Report { number, boot, all, done: done.collect(), failed, corrupt }
    }
}

fn message() -> impl Strategy<Value = Message> {
    let answer = prop::sample::select(vec![
        Answer::Parked,
        Answer::Queued,
        Answer::Busy,
        Answer::NotHere,
    ]);
    let end = prop::sample::select(vec![EndReason::Finished, EndReason::Cancelled]);
    prop_oneof![
        (
            setup(),
            any::<u32>(),
            any::<(u64, bool)>(),
            any::<prop::sample::Index>()
        )
            .prop_map(|(setup, number, (clock, leaf), index)| Message::Announce {
                index: MemberIndex(index.index(crate::broadcast::MAX_MEMBERS as usize) as u32),
                number,
                clock,
                leaf,
                setup: Arc::new(setup),
            }),
        (any::<u32>(), standing())
            .prop_map(|(number, standing)| Message::AnnounceAck { number, standing }),
        any::<u32>().prop_map(|number| Message::Probe { number }),
        Just(Message::Unknown),
        pages().prop_map(|pages| Message::RosterRead { pages }),
        (0..MAX_PAGES, vec_of(peer(), 1..=64)).prop_map(|(page, peers)| Message::RosterPage {
            page,
            peers: peers.into()
        }),
        wants().prop_map(Message::Request),
        (answer, blocks()).prop_map(|(answer, blocks)| Message::Answer { answer, blocks }),
        blocks().prop_map(Message::Cancel),
        report().prop_map(|report| Message::Report(Arc::new(report))),
        any::<u32>().prop_map(|number| Message::ReportAck { number }),
        (any::<u32>(), end).prop_map(|(number, reason)| Message::End { number, reason }),
        any::<u32>().prop_map(|number| Message::EndAck { number }),
    ]
}

prop_compose! {
    fn sealed()(cast: u64, from: u32, mac: [u8; 6], message in message()) -> Packet {
        Packet { cast: CastId(cast), from: MemberIndex(from), mac, message }
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
fn read(bytes: &[u8]) -> Result<(Packet, Option<&[u8]>), Error> {
    parse(&mut station(2), Instant::ZERO, addr(1), bytes)
}

fn written(packet: &Packet) -> Vec<u8> {
    let mut out = [0; MAX_DATAGRAM];
    let length = emit(&mut station(1), Instant::ZERO, addr(2), packet, &mut out);
    out[..length].to_vec()
}

/// Seals bytes as the payload of a message, as if a node had been taken over.
fn forged(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = [0; MAX_DATAGRAM];
    let header = Header {
        kind: Kind::from_wire(kind).expect("the kinds are contiguous"),
        node: NodeId(1),
        epoch: BootEpoch(2),
        seq: 0,
    };
    let payload = &payload[..payload.len().min(MAX_PAYLOAD)];
    let length = station(1).seal(Instant::ZERO, addr(2), header, &mut out, |w| {
        w.bytes(payload);
    });
    out[..length].to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn messages_read_as_written(packet in sealed()) {
        let bytes = written(&packet);
        prop_assert_eq!(bytes.len(), packet.message.wire_bytes());
        prop_assert!(is_cast(&bytes));
        prop_assert_eq!(read(&bytes), Ok((packet, None)));
    }

    #[test]
    fn a_message_cut_or_lengthened_is_refused(packet in sealed(), cut in any::<prop::sample::Index>()) {
        let bytes = written(&packet);
        let payload = &bytes[HEADER_LEN..bytes.len() - tag::LEN];
        let cut = cut.index(payload.len());
        prop_assert!(read(&forged(bytes[3], &payload[..cut])).is_err());
        let mut longer = payload.to_vec();
        longer.push(0);
        if longer.len() <= MAX_PAYLOAD {
            prop_assert!(read(&forged(bytes[3], &longer)).is_err());
        }
    }

    #[test]
    fn a_message_of_another_key_is_refused(packet in sealed()) {
        let bytes = written(&packet);
        let mut other = Envelopes::new(&Key([0; 16]), addr(2), Instant::ZERO);
        let read = parse(&mut other, Instant::ZERO, addr(1), &bytes);
        prop_assert_eq!(read, Err(Error::BadTag));
    }

    #[test]
    fn data_reads_as_written(
        cast: u64, from: u32, block: u32, fragment in 0_u8..48, held in 0_u64..1 << 25, data in vec_of(any::<u8>(), 1..=FRAGMENT),
    ) {
        let mut out = [0; MAX_DATAGRAM];
        let piece = Piece { block, fragment, held: Micros(held) };
        let length = emit_data(CastId(cast), MemberIndex(from), piece, data.len(), &mut out, |to| {
            to.copy_from_slice(&data);
            true
        });
        let held = Micros(held).min(MAX_HELD);
        let message = Message::Data { block, fragments: 1 << fragment, held, sealed: false };
        let length = length.expect("there was data");
        prop_assert!(is_cast(&out[..length]));
        prop_assert_eq!(length, data.len() + message.wire_bytes());
        let (packet, fragment) = read(&out[..length]).expect("it is well-formed");
        let expected = Packet { cast: CastId(cast), from: MemberIndex(from), mac: [0; 6], message };
        prop_assert_eq!(packet, expected);
        prop_assert_eq!(fragment, Some(&data[..]));
        for cut in [0, 3, HEADER_LEN - 1, HEADER_LEN, length - 1] {
            prop_assert!(read(&out[..cut]).is_err());
        }
        prop_assert!(read(&out[..length + 1]).is_err());
    }

    #[test]
    fn sealed_data_reads_as_written_and_as_nothing_else(
        cast: u64, from: u32, mac: [u8; 6], block: u32, fragment in 0_u8..48, held in 0_u64..1 << 24,
        data in vec_of(any::<u8>(), 1..=FRAGMENT), (at, bit) in (any::<prop::sample::Index>(), 0..8_u8),
    ) {
        let mut out = [0; MAX_DATAGRAM];
        let piece = Piece { block, fragment, held: Micros(held) };
        let mut of = Envelopes::new(&KEY, addr(1), Instant::ZERO);
        let seal = (&mut of, Instant::ZERO, addr(2));
        let sender = (MemberIndex(from), mac);
        let length = emit_sealed_data(seal, CastId(cast), sender, piece, data.len(), &mut out, |to| {
            to.copy_from_slice(&data);
            true
        });
        let length = length.expect("there was data");
        let (held, fragments) = (Micros(held), 1 << fragment);
        let message = Message::Data { block, fragments, held, sealed: true };
        prop_assert!(is_cast(&out[..length]));
        prop_assert_eq!(length, data.len() + message.wire_bytes());
        let (packet, fragment) = read(&out[..length]).expect("it is well-formed");
        let expected = Packet { cast: CastId(cast), from: MemberIndex(from), mac, message };
        prop_assert_eq!(packet, expected);
        prop_assert_eq!(fragment, Some(&data[..]));
        out[at.index(length)] ^= 1_u8 << bit;
        prop_assert!(read(&out[..length]).is_err());
    }

    #[test]
    fn forged_payloads_panic_nothing(kind in 64_u8..79, bytes in vec_of(any::<u8>(), 0..300)) {
        let _ = read(&forged(kind, &bytes));
        let _ = read(&bytes);
    }

    #[test]
    fn mutated_messages_keep_their_bounds(
        packet in sealed(), changes in vec_of((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let bytes = written(&packet);
        let mut payload = bytes[HEADER_LEN..bytes.len() - tag::LEN].to_vec();
        for (at, value) in changes {
            let at = at.index(payload.len());
            payload[at] = value;
        }
        // What is taken can be said again, and so keeps the bounds that writing asserts.
        if let Ok((packet, None)) = read(&forged(bytes[3], &payload)) {
            prop_assert_eq!(&written(&packet)[HEADER_LEN..bytes.len() - tag::LEN], &payload[..]);
        }
    }
}

fn small_setup() -> Setup {
    let peer = Peer {
        addr: SocketAddrV4::new([10, 117, 0, 1].into(), 7117),
        mac: [2; 6],
    };
    Setup {
        object: Object {
            id: [7; 32],
            bytes: 5,
            block_log2: 13,
            tops: vec![[7; 32]],
        },
        purpose: Purpose::Program,
        job: None,
        scheme: Scheme::Mesh,
        members: 2,
        holders: 0,
        rate: 1,
        start: 0,
        control: peer,
        roster_id: 9,
        roster: vec![peer; 2],
    }
}

fn reads(change: impl FnOnce(&mut Setup)) -> bool {
    let mut setup = small_setup();
    change(&mut setup);
    let packet = Packet {
        cast: CastId(1),
        from: MemberIndex::SOURCE,
        mac: [0; 6],
        message: Message::Announce {
            index: MemberIndex(0),
            number: 1,
            clock: 1,
            leaf: false,
            setup: Arc::new(setup),
        },
    };
    read(&written(&packet)).is_ok()
}

#[test]
fn announcements_that_make_no_sense_are_refused() {
    assert!(reads(|_| {}));
    assert!(!reads(|setup| setup.members = 0));
    assert!(!reads(|setup| setup.members = 3), "not its roster");
    assert!(!reads(|setup| setup.holders = 3));
    assert!(!reads(|setup| setup.rate = 0));
    assert!(!reads(|setup| setup.object.block_log2 = 17));
    assert!(!reads(|setup| setup.object.bytes = 1 << 40));
    assert!(!reads(|setup| setup.object.tops.clear()));
    assert!(!reads(|setup| {
        setup.roster.clear();
        setup.members = crate::broadcast::MAX_MEMBERS + 1;
    }));
}

#[test]
fn the_largest_announcement_fits_without_its_roster() {
    let mut setup = small_setup();
    setup.object = Object {
        id: [1; 32],
        bytes: 64 << 20,
        block_log2: 13,
        tops: vec![[1; 32]; 32],
    };
    setup.purpose = Purpose::File {
        name: String::from_utf8(vec![b'x'; 128]).expect("it is ASCII"),
    };
    setup.roster = vec![setup.control; 100];
    setup.members = 100;
    assert!(!announce_fits(&setup));
    setup.roster.clear();
    assert!(announce_fits(&setup));
    assert!(reads(|small| *small = setup));
}

#[test]
fn other_datagrams_are_not_of_casts() {
    assert!(!is_cast(b""));
    assert!(!is_cast(b"HR\x01\x01"));
    assert!(!is_cast(b"XX\x01\x40"));
    assert!(is_cast(b"HR\x01\x40"));
    // Sealed with the key of casts, but not a message of casts.
    assert_eq!(read(&forged(1, &[0; 50])), Err(Error::BadKind(1)));
    // DATA with a tag is no DATA.
    assert_eq!(read(&forged(73, &[0; 50])), Err(Error::BadKind(73)));
}
