//! What is lost when an exchange or a barrier begins: nothing later shows that it was.

use super::*;
use crate::exchange::message::{BlockId, Data, Item, Pull};

/// What a rank asks others for now.
fn pulls(net: &mut Net, rank: usize) -> Vec<Pull> {
    let (endpoint, memory) = (&mut net.ranks[rank], &mut net.memory[rank]);
    let all = core::iter::from_fn(|| endpoint.poll_packet(net.now, 1, memory));
    let items = all.filter_map(|(_, packet)| match packet.body {
        Body::Control(items) => Some(items),
        _ => None,
    });
    let pulls = items.flatten().filter_map(|item| match item {
        Item::Pull { pull, .. } => Some(pull),
        _ => None,
    });
    pulls.collect()
}

/// A packet of the block of rank 1 for rank 0, which has so many.
fn comes(net: &mut Net, number: u32, packets: u32) {
    let data = Data {
        block: BlockId::Exchange(0, 0),
        first: number,
        packets: 1,
        tail: PACKET as u16,
        is_last: number + 1 == packets,
    };
    let body = Body::Data(data);
    let from = Rank(1);
    let bytes = [0; PACKET];
    let packet = Packet { from, body };
    net.ranks[0].handle_packet(net.now, packet, Some(&bytes), &mut net.memory[0]);
}

#[test]
fn a_long_block_is_asked_for_though_the_word_that_it_begins_was_lost() {
    // The second one ends within the first pull.
    for packets in [300, 40] {
        let mut net = Net::new(2, Scheme::Default, 0, 1);
        let op = exchange(&mut net, |_, _| u64::from(packets) * PACKET as u64).remove(0);
        net.post(0, op);
        assert_eq!(pulls(&mut net, 0), []);
        net.now += Micros(100);
        comes(&mut net, 0, packets);
        // What goes unasked at first is not asked for, and the rest is at once: twice, since nobody
        // knows yet how long an answer takes.
        let asked = pulls(&mut net, 0);
        let [first, again, ..] = asked[..] else {
            panic!("{asked:?}");
        };
        assert_eq!(first, again);
        assert!((2..=64).contains(&first.first), "{first:?}");
        // Once an answer has come pulls are said once, and in the end nothing is under way.
        let mut serials = Vec::new();
        for number in 1..packets {
            net.now += Micros(12);
            comes(&mut net, number, packets);
            let all = pulls(&mut net, 0);
            if number > first.first {
                serials.extend(all.iter().map(|pull| pull.serial));
            }
        }
        let said = serials.len();
        serials.dedup();
        assert_eq!(serials.len(), said, "said twice");
        assert_eq!(serials.is_empty(), packets == 40);
        let rank = &net.ranks[0];
        assert_eq!(rank.counters().packets_received, u64::from(packets));
        assert_eq!(rank.counters().duplicates, 0);
        assert_eq!(
            (rank.footprint().inbound, rank.footprint().under_way),
            (0, 0)
        );
    }
}

#[test]
fn a_packet_far_behind_the_beginning_takes_no_more_credit_than_a_pull() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    let op = exchange(&mut net, |_, _| 400 * PACKET as u64).remove(0);
    net.post(0, op);
    comes(&mut net, 300, 400);
    assert!(net.ranks[0].footprint().under_way <= 64);
    assert_eq!(net.ranks[0].counters().packets_received, 0);
}

#[test]
fn a_token_that_is_lost_is_asked_for_within_a_moment() {
    for lost in 0..2 {
        let mut net = Net::new(2, Scheme::Default, 0, 1);
        for rank in 0..2 {
            net.post(
                rank,
                Op::Barrier {
                    among: Among::all(0),
                },
            );
        }
        net.send_all();
        assert_eq!(net.flights.len(), 2);
        net.flights.remove(lost);
        net.run(1, Micros::from_secs(1));
        // The token is nearly as long under way as the answer of a short block; a window at both
        // ends takes 3 ms.
        let most = Micros(1_000) + FLIGHT.saturating_mul(3);
        assert!(net.now <= Instant::ZERO + most, "{}", net.now);
    }
}
