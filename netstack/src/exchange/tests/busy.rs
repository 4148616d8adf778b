//! A scheme in which who comes to a busy receiver tries again: a receiver that serves somebody else
//! says so, and is asked again later and later.

use super::super::envelope::Envelopes;
use super::super::message::{Body, Item, Packet};
use super::super::wire;
use super::*;

/// Bytes of the block that rank 0 has for rank 1, and about how long it takes.
const BYTES: u64 = 60_000;
const TAKES: Micros = Micros(480);

/// How long rank 0 is quiet that has told rank 1 that it is ready, and then hears so many times
/// that rank 1 is busy.
fn quiet_after(busy: u32, seed: u64) -> Micros {
    let mut other = envelopes(Rank(1), 2);
    let mut net = Net::new(2, compared::RETRY, 0, seed);
    let op = exchange(&mut net, |_, _| BYTES).remove(0);
    net.post(0, op);
    let mut out = [0; crate::MAX_DATAGRAM];
    let mut is_ready = |net: &mut Net, other: &mut Envelopes| {
        let mut told = false;
        let (rank, memory) = (&mut net.ranks[0], &mut net.memory[0]);
        while let Some((_, length)) = rank.poll_transmit(net.now, &mut out, memory) {
            let (packet, _) = wire::parse(other, &out[..length]).expect("it is ours");
            if let Body::Control(items) = packet.body {
                told |= items.iter().any(|item| matches!(item, Item::Ready { .. }));
            }
        }
        told
    };
    assert!(is_ready(&mut net, &mut other));
    let mut datagram = [0; crate::MAX_DATAGRAM];
    for _ in 0..busy {
        let item = Item::Busy {
            context: 0,
            number: 0,
        };
        let packet = Packet {
            from: Rank(1),
            body: Body::Control(vec![item]),
        };
        let length = wire::emit(&mut other, Rank(0), &packet, &mut datagram);
        let length = length.expect("no data");
        net.ranks[0].handle_datagram(net.now, &datagram[..length], &mut net.memory[0]);
    }
    let begin = net.now;
    loop {
        let next = net.ranks[0].poll_timeout().expect("it waits for an answer");
        net.now = next.max(net.now + Micros(1));
        if is_ready(&mut net, &mut other) {
            return net.now.saturating_since(begin);
        }
    }
}

#[test]
fn a_receiver_that_is_busy_is_asked_again_after_a_random_time_that_doubles() {
    for busy in 1..=5_u32 {
        let middle = TAKES.0 << busy;
        let quiet: Vec<u64> = (0..20).map(|seed| quiet_after(busy, seed).0).collect();
        for quiet in &quiet {
            // Half as long to half as long again; the block has headers besides.
            let bounds = middle / 2..middle * 8 / 5;
            assert!(bounds.contains(quiet), "{busy} times: {quiet} us");
        }
        let (least, most) = (quiet.iter().min(), quiet.iter().max());
        assert!(most > least, "it is random: {quiet:?}");
    }
    let without: Vec<u64> = (0..20).map(|seed| quiet_after(0, seed).0).collect();
    assert!(
        without.iter().all(|quiet| *quiet == without[0]),
        "{without:?}"
    );
}
