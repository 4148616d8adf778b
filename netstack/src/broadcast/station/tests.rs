//! What a station sends, and when it wants to be asked for it.

use super::*;
use crate::broadcast::FRAGMENT;
use crate::broadcast::cast::Consent;
use crate::broadcast::message::{Answer, Blocks, WantedBlock, Wants};
use crate::broadcast::tests::{KEY, Memory, RATE, content, mesh_of, object, peer};
use crate::time::Micros;

/// Fragments that a node's card has room for, and those of a block of 64 KiB.
const CREDIT: u32 = 96;
const BLOCK: u32 = (1_u32 << 16).div_ceil(FRAGMENT as u32);

const START: Instant = Instant::from_micros(1_000_000);

/// Member 0 of 8, in so many casts of ten blocks of that size each.
fn station(casts: u64, block_log2: u8, consent: Consent, memory: &mut Memory) -> Station {
    let mut station = Station::new(peer(0), KEY, Some(RATE), 1, START);
    station.set_credit(CREDIT);
    let (object, _) = object(&content(10 << block_log2, 3), block_log2);
    for id in (1..=casts).map(CastId) {
        let setup = mesh_of(object.clone(), 8).into();
        station.add(Cast::new(id, setup, MemberIndex(0), START, 16, RATE));
        let mut have = |_| consent == Consent::Serving;
        station.with(START, id, memory, |cast, io| {
            cast.accept(consent, &mut have, io);
        });
    }
    station
}

/// A member says something to a cast, or sends it a whole block.
fn hear(station: &mut Station, memory: &mut Memory, cast: CastId, from: u32, message: Message) {
    let packet = Packet {
        cast,
        from: MemberIndex(from),
        mac: peer(from).mac,
        message,
    };
    assert!(station.deliver(START, peer(from).addr, packet, None, memory));
}

/// The blocks that are asked for now.
fn requested(station: &mut Station, now: Instant, memory: &mut Memory) -> Vec<(CastId, u32)> {
    let mut requested = Vec::new();
    while let Some((_, packet)) = station.poll_message(now, memory) {
        if let Message::Request(wants) = &packet.message {
            requested.extend(wants.iter().map(|want| (packet.cast, want.block)));
        }
    }
    requested
}

/// Two casts that have asked for a block each, which is all that they may, and a link that has just
/// been used up.
fn asked(memory: &mut Memory) -> (Station, Vec<(CastId, u32)>) {
    let mut station = station(2, 16, Consent::Given, memory);
    let asked = requested(&mut station, START, memory);
    assert_eq!(asked.len() as u32 * BLOCK, CREDIT);
    station.link.charge(START, 1 << 17);
    let next = station.poll_timeout().expect("requests have deadlines");
    assert!(next > station.link.ready_at(), "there is nothing to send");
    (station, asked)
}

#[test]
fn a_block_that_comes_while_the_link_is_busy_makes_room_for_the_next() {
    let memory = &mut Memory::default();
    let (mut station, asked) = asked(memory);
    let (cast, block) = asked[0];
    let data = Message::Data {
        block,
        fragments: u64::MAX,
        held: Micros::ZERO,
        sealed: false,
    };
    hear(&mut station, memory, cast, 1, data);
    assert!(station.poll_message(START, memory).is_none());
    let ready = station.link.ready_at();
    assert_eq!(station.poll_timeout(), Some(ready));
    let next = requested(&mut station, ready, memory);
    assert_eq!(next.len(), 1, "{next:?}");
    assert_eq!(next[0].0, cast);
}

#[test]
fn a_cast_that_ends_while_the_link_is_busy_leaves_its_share_to_the_others() {
    let memory = &mut Memory::default();
    let (mut station, asked) = asked(memory);
    station.forget(asked[0].0);
    let ready = station.link.ready_at();
    assert_eq!(station.poll_timeout(), Some(ready));
    let next = requested(&mut station, ready, memory);
    assert_eq!(next.len(), 1, "{next:?}");
    assert_eq!(next[0].0, asked[1].0);
}

#[test]
fn an_answer_does_not_wait_where_no_train_is_left() {
    for whole_messages in [true, false] {
        let memory = &mut Memory::default();
        let mut station = station(1, 13, Consent::Serving, memory);
        while station.poll_message(START, memory).is_some() {}
        let mut wants = Wants::default();
        wants.push(WantedBlock {
            block: 8,
            fragments: u64::MAX,
            ..WantedBlock::default()
        });
        hear(&mut station, memory, CastId(1), 5, Message::Request(wants));
        assert_eq!(station.casts[0].serve.ready(), 1);
        station.casts[0].have.remove(8);
        let mut out = [0; crate::MAX_DATAGRAM];
        let (to, packet) = if whole_messages {
            station.poll_message(START, memory).expect("the answer")
        } else {
            let sent = station.poll_transmit(START, &mut out, memory);
            let (to, length) = sent.expect("the answer");
            let mut reader = Envelopes::new(&KEY.casts_key(), to.addr, START);
            let sender = station.me.addr;
            let read = wire::parse(&mut reader, START, sender, &out[..length]);
            let (packet, _) = read.expect("it is whole");
            (to, packet)
        };
        let answer = Message::Answer {
            answer: Answer::NotHere,
            blocks: Blocks::one(8),
        };
        assert_eq!((to, packet.message), (peer(5), answer));
        assert!(station.poll_message(START, memory).is_none());
    }
}

#[test]
fn questions_of_others_keep_nobody_from_asking_and_from_sending_data() {
    let memory = &mut Memory::default();
    let mut station = station(1, 13, Consent::Given, memory);
    station.casts[0].have.insert(8);
    let mut wants = Wants::default();
    wants.push(WantedBlock {
        block: 8,
        fragments: u64::MAX,
        ..WantedBlock::default()
    });
    hear(&mut station, memory, CastId(1), 5, Message::Request(wants));
    let mut trains = 0;
    for step in 0..4 * u64::from(MESSAGES_IN_A_ROW) {
        // There is always an answer to be sent.
        for number in 0..2 {
            hear(
                &mut station,
                memory,
                CastId(1),
                3,
                Message::Probe { number },
            );
        }
        let now = START + Micros(step * 100);
        let (_, packet) = station.poll_message(now, memory).expect("an answer");
        trains += u32::from(matches!(packet.message, Message::Data { .. }));
    }
    assert_eq!(trains, 1);
    assert!(
        station.casts[0].pull.len() > 0,
        "it has asked for something"
    );
}

#[test]
fn what_is_told_of_a_cast_that_a_member_has_forgotten_is_not_taken() {
    let memory = &mut Memory::default();
    let report = || {
        Message::Report(alloc::sync::Arc::new(crate::broadcast::message::Report {
            number: 7,
            boot: crate::ids::BootEpoch(0),
            done: Vec::new(),
            failed: Vec::new(),
            corrupt: Vec::new(),
            all: true,
        }))
    };
    let answer = |station: &mut Station, memory: &mut Memory, me: MemberIndex| {
        let packet = Packet {
            cast: CastId(1),
            from: MemberIndex(4),
            mac: peer(4).mac,
            message: report(),
        };
        station.stray(peer(4).addr, &packet, me);
        let sent = station.poll_message(START, memory);
        sent.map(|(_, packet)| packet.message)
    };
    let mut booted = station(0, 16, Consent::Given, memory);
    let me = MemberIndex(0);
    assert_eq!(answer(&mut booted, memory, me), Some(Message::Unknown));
    // Of one that is over nobody waits for anything, and the source knows which are not.
    let taken = Some(Message::ReportAck { number: 7 });
    let source = MemberIndex::SOURCE;
    assert_eq!(answer(&mut booted, memory, source), taken);
    booted
        .ended
        .push_back((CastId(1), EndReason::Abandoned, me));
    assert_eq!(answer(&mut booted, memory, me), Some(Message::Unknown));
    booted.ended.push_back((CastId(1), EndReason::Finished, me));
    assert_eq!(answer(&mut booted, memory, me), taken);
}
