//! Short blocks, which go unasked, and ranks that begin late.

use super::*;

/// Eight ranks with blocks of so many bytes, of which rank 0 begins 5 ms late; it has ended, and
/// what was sent is counted.
fn one_is_late(bytes: u64, loss: u64, seed: u64) -> (Net, u64) {
    let mut net = Net::new(8, Scheme::Default, loss, seed);
    let ops = exchange(&mut net, |_, _| bytes);
    for rank in 1..8 {
        net.post(rank, ops[rank as usize].clone());
    }
    net.go_on(Micros::from_millis(5));
    net.post(0, ops[0].clone());
    net.run(1, Micros::from_secs(20));
    assert_done(&net);
    check_received(&net, &ops);
    let sent = net.ranks.iter().map(|rank| rank.counters().packets_sent);
    let sent = sent.sum();
    (net, sent)
}

#[test]
fn a_short_block_goes_once_to_a_rank_that_has_not_begun_and_once_when_it_asks() {
    for packets in 1..=4 {
        let (net, sent) = one_is_late(packets * PACKET as u64 - 9, 0, packets);
        assert_eq!(sent, packets * (8 * 7 + 7));
        let again: u64 = net.ranks[1..]
            .iter()
            .map(|rank| rank.counters().duplicates)
            .sum();
        assert_eq!(again, 0);
    }
}

#[test]
fn a_long_block_does_not_go_to_a_rank_that_has_not_begun() {
    let (net, _) = one_is_late(90_000, 0, 1);
    // What goes unasked to the first receiver of each.
    let duplicates = net.ranks[0].counters().duplicates;
    assert!(duplicates <= 24, "{duplicates}");
}

#[test]
fn a_late_rank_gets_its_blocks_whatever_is_lost() {
    for seed in 0..40 {
        one_is_late(1_000, 10, seed);
        one_is_late(5_000, 40, seed);
    }
}

#[test]
fn a_short_block_is_sent_again_only_where_it_was_lost() {
    // The receiver has not said that it came: it is asked.
    for seed in 0..10 {
        let net = {
            let mut net = Net::new(16, Scheme::Default, 5, seed);
            let ops = exchange(&mut net, |_, _| 1_000);
            for (rank, op) in ops.iter().enumerate() {
                net.post(rank as u32, op.clone());
            }
            net.run(1, Micros::from_secs(5));
            assert_done(&net);
            check_received(&net, &ops);
            net
        };
        let again: u64 = net
            .ranks
            .iter()
            .map(|rank| rank.counters().duplicates)
            .sum();
        assert!(again <= 2, "seed {seed}: {again}");
    }
}

#[test]
fn short_blocks_that_are_missing_do_not_wait_for_a_long_message() {
    const LONG: u64 = 8_000_000;
    let mut net = Net::new(8, Scheme::Default, 0, 1);
    let ops = exchange(&mut net, |_, _| 1_000);
    for rank in [0, 1] {
        net.memory[rank].0.push(vec![7; LONG as usize]);
    }
    net.post(0, receive(1, 3, 2, LONG));
    net.post(1, send(0, 3, 2, LONG));
    for rank in 1..8 {
        net.post(rank, ops[rank as usize].clone());
    }
    net.go_on(Micros::from_millis(2));
    assert!(net.events[0].is_empty(), "the message is too short");
    let late = net.post(0, ops[0].clone());
    net.run(1, Micros::from_secs(5));
    assert!(
        matches!(&net.events[0][0], Event::Done { op, .. } if *op == late),
        "{:?}",
        net.events[0]
    );
}
