//! The published method on a network that loses datagrams: ranks without blocks, late ones, dead
//! ones, and the order in which ranks are active.

use super::endings::failed;
use super::*;
use crate::rng::Rng;
use proptest::prelude::*;

const SCHEME: fn(u32) -> Scheme = |active| Scheme::Published {
    active: Active::Given(active),
};

#[test]
fn ranks_without_blocks_are_done_too() {
    for size in [1, 2, 5, 8] {
        for (active, loss) in [(0, 0), (1, 0), (2, 20), (3, 40)] {
            let mut net = Net::new(size, SCHEME(active), loss, u64::from(size));
            let ops = exchange(&mut net, |_, _| 0);
            for round in 1..=3 {
                for (rank, op) in ops.iter().enumerate() {
                    net.post(rank as u32, op.clone());
                }
                net.run(round, Micros::from_secs(20));
            }
            assert_done(&net);
            net.check_nothing_is_kept();
        }
    }
}

#[test]
fn a_step_of_many_targets_is_not_done_before_they_are_all_known() {
    // 39 targets are in three datagrams.
    for seed in 0..6 {
        run_exchange(40, SCHEME(1), 20 + seed, |_, _| 600);
    }
}

#[test]
fn a_rank_that_sits_out_fails_those_that_wait_for_the_master() {
    let why = Error::Withdrawn(Rank(3));
    for loss in [0, 20] {
        // Rank 3 has a block to receive only, as in a broadcast.
        let mut net = Net::new(4, SCHEME(0), loss, 7);
        let ops = exchange(&mut net, |from, _| if from == 0 { 9_000 } else { 0 });
        let posted = [0, 1, 2].map(|me| (me, net.post(me, ops[me as usize].clone())));
        net.ranks[3].sit_out(&Among::all(0), why).unwrap();
        net.go_on(Micros::from_secs(20));
        for (me, op) in posted {
            assert_eq!(net.events[me as usize][..], [failed(op, why)], "rank {me}");
        }
    }
}

#[test]
fn a_gather_and_a_scatter_are_done() {
    for root in [0, 3] {
        run_exchange(5, SCHEME(2), 10, |_, to| if to == root { 5_000 } else { 0 });
        run_exchange(
            5,
            SCHEME(0),
            10,
            |from, _| if from == root { 5_000 } else { 0 },
        );
    }
}

#[test]
fn nobody_waits_for_a_late_master_who_has_nothing_to_do_with_it() {
    let mut net = Net::new(6, SCHEME(0), 0, 3);
    // Ranks 4 and 5 have no blocks at all.
    let ops = exchange(
        &mut net,
        |from, to| if from.max(to) < 4 { 9_000 } else { 0 },
    );
    for rank in 1..6 {
        net.post(rank, ops[rank as usize].clone());
    }
    net.go_on(Micros::from_millis(300));
    let done: Vec<usize> = net.events.iter().map(Vec::len).collect();
    assert_eq!(done, [0, 0, 0, 0, 1, 1]);
    // They may end: that is no loss.
    for rank in [4, 5] {
        net.ranks[rank].leave(net.now, false);
        net.dead[rank] = true;
    }
    net.post(0, ops[0].clone());
    net.run(1, Micros::from_secs(1));
    assert_done(&net);
    check_received(&net, &ops);
}

#[test]
fn ranks_are_active_in_the_order_in_which_they_finish() {
    // The first finishes last in one case: it is the master, and keeps what it hears until then.
    for order in [[0, 1, 5, 4, 3, 2], [4, 2, 5, 1, 3, 0]] {
        let mut net = Net::new(6, SCHEME(2), 0, 1);
        let ops = exchange(&mut net, |_, _| 30_000);
        let mut first_sent = Vec::new();
        let mut look = |net: &mut Net, micros: u64| {
            for _ in 0..micros / 50 {
                net.go_on(Micros(50));
                for rank in 0..6 {
                    let sent = net.ranks[rank as usize].counters().packets_sent;
                    if sent > 0 && !first_sent.contains(&rank) {
                        first_sent.push(rank);
                    }
                }
            }
        };
        for rank in order {
            net.post(rank, ops[rank as usize].clone());
            look(&mut net, 20_000);
        }
        look(&mut net, 200_000);
        assert!(net.events.iter().all(|events| events.len() == 1));
        assert_done(&net);
        check_received(&net, &ops);
        for (found, expected) in first_sent.chunks_mut(2).zip(order.chunks(2)) {
            found.sort_unstable();
            let mut expected = expected.to_vec();
            expected.sort_unstable();
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_dead_master_is_named_though_its_own_blocks_have_come() {
    // The master exchanges with nobody; the others wait for its word.
    let mut net = Net::new(5, SCHEME(2), 0, 1);
    let ops = exchange(
        &mut net,
        |from, to| if from.min(to) > 0 { 9_000 } else { 0 },
    );
    net.dead[0] = true;
    let posted: Vec<OpId> = (1..5)
        .map(|me| net.post(me, ops[me as usize].clone()))
        .collect();
    net.run(1, Micros::from_secs(20));
    for (events, op) in net.events[1..].iter().zip(posted) {
        assert_eq!(events[..], [failed(op, Error::RankLost(Rank(0)))]);
    }
}

#[test]
fn a_dead_rank_that_the_master_waits_for_is_named_by_all() {
    // Rank 3 exchanges with rank 4 only, and dies before it begins.
    let mut net = Net::new(5, SCHEME(0), 0, 1);
    let ops = exchange(&mut net, |from, to| match from.max(to) {
        3 => 0,
        _ => 9_000,
    });
    net.dead[3] = true;
    let others = [0, 1, 2, 4];
    let posted = others.map(|me| (me, net.post(me, ops[me as usize].clone())));
    net.run(1, Micros::from_secs(20));
    for (me, op) in posted {
        let events = &net.events[me as usize];
        assert_eq!(events[..], [failed(op, Error::RankLost(Rank(3)))]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_blocks_of_any_ranks_at_any_time(
        size in 1u32..9,
        active in 0u32..10,
        loss in 0u64..30,
        zeros in 0u64..101,
        times in 1usize..4,
        seed: u64,
    ) {
        let mut rng = Rng::new(seed);
        let mut net = Net::new(size, SCHEME(active), loss, seed);
        let lengths: Vec<u64> = (0..size * size)
            .map(|_| if rng.below(100) < zeros { 0 } else { 1 + rng.below(12_000) })
            .collect();
        let ops = exchange(&mut net, |from, to| lengths[(from * size + to) as usize]);
        let mut order: Vec<u32> = (0..size).collect();
        for place in (1..order.len()).rev() {
            order.swap(place, rng.below(place as u64 + 1) as usize);
        }
        // A rank may be several exchanges ahead of one that is late.
        for rank in order {
            for _ in 0..times {
                net.post(rank, ops[rank as usize].clone());
            }
            net.go_on(Micros(1 + rng.below(30_000)));
        }
        net.run(times, Micros::from_secs(60));
        assert_done(&net);
        check_received(&net, &ops);
        net.check_nothing_is_kept();
    }
}

/// A rank that has nothing to send waits to hear that the master knows. When the master's node does
/// not answer, the rank needs nothing more of it and is done.
#[test]
fn who_has_nothing_to_send_is_done_when_the_master_is_lost() {
    let scheme = Scheme::Published {
        active: Active::All,
    };
    let mut net = Net::new(3, scheme, 0, 8);
    let ops = exchange(&mut net, |_, _| 0);
    net.dead[0] = true;
    net.post(1, ops[1].clone());
    net.go_on(Micros::from_secs(20));
    assert!(
        matches!(net.events[1][..], [Event::Done { .. }]),
        "{:?}",
        net.events[1]
    );
}
