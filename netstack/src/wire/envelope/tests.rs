//! Envelopes of stations: what is opened, by whom, how often, and after a restart.

use super::*;
use crate::ids::{BootEpoch, NodeId};
use crate::wire::datagram::Kind;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use proptest::prelude::*;

const KEY: Key = Key([7; 16]);

fn addr(station: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, station), 7118)
}

fn at(millis: u64) -> Instant {
    Instant::ZERO + Micros::from_millis(millis)
}

fn of(station: u8, now: Instant) -> Envelopes {
    Envelopes::new(&KEY, addr(station), now)
}

fn sealed(from: &mut Envelopes, now: Instant, to: u8, payload: &[u8]) -> Vec<u8> {
    let header = Header {
        kind: Kind::CastProbe,
        node: NodeId(3),
        epoch: BootEpoch(4),
        seq: 0,
    };
    let mut out = [0; MAX_DATAGRAM];
    let length = from.seal(now, addr(to), header, &mut out, |writer| {
        writer.bytes(payload);
    });
    out[..length].to_vec()
}

#[test]
fn a_datagram_is_opened_once_and_by_nobody_else() {
    let now = at(5);
    let datagram = sealed(&mut of(1, now), now, 2, b"what");
    let mut receiver = of(2, now);
    let (header, payload) = receiver.open(now, addr(1), &datagram).unwrap();
    assert_eq!((header.kind, payload), (Kind::CastProbe, &b"what"[..]));
    let again = receiver.open(now, addr(1), &datagram);
    assert_eq!(again, Err(Error::Replayed));
    // Sent on to another, or said to be another's.
    assert_eq!(of(3, now).open(now, addr(1), &datagram), Err(Error::BadTag));
    assert_eq!(of(2, now).open(now, addr(4), &datagram), Err(Error::BadTag));
    let mut other = Envelopes::new(&Key([8; 16]), addr(2), now);
    assert_eq!(other.open(now, addr(1), &datagram), Err(Error::BadTag));
    assert_eq!(other.peers(), 0, "nothing is kept of it");
}

#[test]
fn the_same_said_again_is_another_datagram() {
    let now = at(5);
    let (mut sender, mut receiver) = (of(1, now), of(2, now));
    let said: Vec<_> = (0..40)
        .map(|_| sealed(&mut sender, now, 2, b"again"))
        .collect();
    for datagram in said.iter().rev() {
        assert!(receiver.open(now, addr(1), datagram).is_ok());
    }
    for datagram in &said {
        let again = receiver.open(now, addr(1), datagram);
        assert_eq!(again, Err(Error::Replayed));
    }
}

#[test]
fn numbers_never_come_again_after_a_restart() {
    let mut receiver = of(2, at(0));
    let mut last = 0;
    // Starts again and again, sometimes at once; its clock is a little behind each time.
    for start in [10, 11, 12, 900, 2_000, 2_001, 90_000] {
        let mut sender = of(1, at(0));
        sender.begin_at(at(7), at(start).as_micros());
        for _ in 0..100 {
            let datagram = sealed(&mut sender, at(7), 2, b"");
            let (header, _) = receiver.open(at(start), addr(1), &datagram).unwrap();
            assert!(header.seq > last, "{start}: {} after {last}", header.seq);
            last = header.seq;
        }
    }
}

#[test]
fn who_was_started_again_takes_nothing_of_before() {
    let (mut sender, before) = (of(1, at(0)), of(2, at(0)));
    let old: Vec<_> = (0..10)
        .map(|second| sealed(&mut sender, at(second * 1_000), 2, b"old"))
        .collect();
    drop(before);
    let mut receiver = of(2, at(0));
    receiver.begin_at(at(20_000), at(20_000).as_micros());
    for datagram in &old {
        let opened = receiver.open(at(20_001), addr(1), datagram);
        assert_eq!(opened, Err(Error::Replayed));
    }
    let new = sealed(&mut sender, at(20_001), 2, b"new");
    assert!(receiver.open(at(20_001), addr(1), &new).is_ok());
}

#[test]
fn what_is_forgotten_is_not_opened_again() {
    let mut receiver = of(2, at(0));
    receiver.most = 8;
    let mut all = Vec::new();
    for step in 0..100_u64 {
        let now = at(step * 2_000);
        let station = 10 + step as u8;
        let datagram = sealed(&mut of(station, at(0)), now, 2, b"");
        assert!(
            receiver.open(now, addr(station), &datagram).is_ok(),
            "{step}"
        );
        all.push((station, datagram));
        assert!(receiver.peers() <= 8);
    }
    for (station, datagram) in &all {
        let again = receiver.open(at(300_000), addr(*station), datagram);
        assert_eq!(again, Err(Error::Replayed), "{station}");
    }
}

#[test]
fn numbers_to_a_forgotten_peer_go_on() {
    let (mut sender, mut receiver) = (of(1, at(0)), of(2, at(0)));
    sender.most = 4;
    let mut last = 0;
    for round in 0..50 {
        // Its clock stands still: the count alone has to do.
        let datagram = sealed(&mut sender, at(0), 2, b"");
        let (header, _) = receiver.open(at(0), addr(1), &datagram).unwrap();
        assert!(header.seq > last, "{round}");
        last = header.seq;
        for other in 3..7 {
            sealed(&mut sender, at(0), other, b"");
        }
    }
}

#[test]
fn a_number_far_ahead_keeps_nobody_out() {
    let mut receiver = of(2, at(0));
    receiver.most = 4;
    let mut liar = of(9, at(0));
    liar.set_time(at(0), u64::MAX / 2);
    let datagram = sealed(&mut liar, at(1), 2, b"");
    assert!(receiver.open(at(1), addr(9), &datagram).is_ok());
    for station in 20..40 {
        let now = at(u64::from(station) * 2_000);
        let datagram = sealed(&mut of(station, at(0)), now, 2, b"");
        assert!(receiver.open(now, addr(station), &datagram).is_ok());
    }
}

proptest! {
    #[test]
    fn whatever_is_changed_it_does_not_open(payload in prop::collection::vec(any::<u8>(), 0..200), place: prop::sample::Index, bit in 0u32..8, cut: prop::sample::Index) {
        let now = at(5);
        let mut datagram = sealed(&mut of(1, now), now, 2, &payload);
        let mut receiver = of(2, now);
        let short = cut.index(datagram.len());
        prop_assert!(receiver.open(now, addr(1), &datagram[..short]).is_err());
        let place = place.index(datagram.len());
        datagram[place] ^= 1 << bit;
        prop_assert!(receiver.open(now, addr(1), &datagram).is_err());
        prop_assert_eq!(receiver.peers(), 0);
        datagram[place] ^= 1 << bit;
        prop_assert!(receiver.open(now, addr(1), &datagram).is_ok());
    }
}
