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

/// A packet of the block of rank 1 for rank 0.
fn comes(net: &mut Net, number: u32) {
    let data = Data {
        block: BlockId::Exchange(0, 0),
        first: number,
        packets: 1,
        tail: PACKET as u16,
        is_last: false,
    };
    let body = Body::Data(data);
    let from = Rank(1);
    let bytes = [0; PACKET];
    let packet = Packet { from, body };
    net.ranks[0].handle_packet(net.now, packet, Some(&bytes), &mut net.memory[0]);
}

#[test]
fn a_long_block_is_asked_for_though_the_word_that_it_begins_was_lost() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    let op = exchange(&mut net, |_, _| 100 * PACKET as u64).remove(0);
    net.post(0, op);
    assert_eq!(pulls(&mut net, 0), []);
    net.now += Micros(100);
    comes(&mut net, 0);
    // What goes unasked at first is not asked for, and the rest is at once: twice, since nobody knows yet how long an answer takes.
    let asked = pulls(&mut net, 0);
    let [first, again, ..] = asked[..] else {
        panic!("{asked:?}");
    };
    assert_eq!(first, again);
    assert!((2..=64).contains(&first.first), "{first:?}");
    let numbers = asked.iter().flat_map(|pull| {
        let bits = (0..64).filter(|bit| pull.packets >> bit & 1 == 1);
        bits.map(|bit| pull.first + bit)
    });
    let mut numbers: Vec<u32> = numbers.collect();
    numbers.dedup();
    let begin = first.first;
    assert!(numbers.iter().all(|number| *number >= begin));
    // Once an answer has come pulls are said once.
    for number in 1..=begin {
        net.now += Micros(12);
        comes(&mut net, number);
    }
    let mut last = None;
    for number in begin + 1..70 {
        net.now += Micros(12);
        comes(&mut net, number);
        for pull in pulls(&mut net, 0) {
            assert_ne!(last, Some(pull.serial), "said twice");
            last = Some(pull.serial);
        }
    }
    assert!(last.is_some());
}

#[test]
fn a_token_that_is_lost_is_asked_for_within_a_moment() {
    for lost in 0..2 {
        let mut net = Net::new(2, Scheme::Default, 0, 1);
        for rank in 0..2 {
            net.post(rank, Op::Barrier { context: 0 });
        }
        net.send_all();
        assert_eq!(net.flights.len(), 2);
        net.flights.remove(lost);
        net.run(1, Micros::from_secs(1));
        // The token is nearly as long under way as the answer of a short block; a window at both ends takes 3 ms.
        let most = Micros(1_000) + FLIGHT.saturating_mul(3);
        assert!(net.now <= Instant::ZERO + most, "{}", net.now);
    }
}
