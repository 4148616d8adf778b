//! Which rank is named when an operation fails: one that it needs, not one that has ended well
//! before.

use super::endings::failed;
use super::*;

/// An exchange between the ranks below `among`, with nothing for the others.
fn among(net: &mut Net, among: u32, bytes: u64) -> Vec<Op> {
    exchange(net, move |from, to| match from.max(to) < among {
        true => bytes,
        false => 0,
    })
}

fn from_any() -> Op {
    Op::Receive {
        from: None,
        context: 1,
        tag: None,
        buffer: BufferId(1),
        capacity: 10,
    }
}

/// Four ranks, of which the last has ended well; all have heard of it, because rank 0 waited for a
/// message of any.
fn one_has_ended(seed: u64) -> (Net, Vec<Op>) {
    let mut net = Net::new(4, Scheme::Default, 0, seed);
    let ops = among(&mut net, 3, 60_000);
    let any = net.post(0, from_any());
    net.go_on(Micros::from_millis(10));
    let now = net.now;
    net.ranks[3].leave(now, false);
    net.go_on(Micros::from_secs(1));
    net.dead[3] = true;
    assert_eq!(net.events[0], [failed(any, Error::RankLost(Rank(3)))]);
    net.events[0].clear();
    for rank in 0..3 {
        // Every rank knows: no barrier of all can be any more.
        let memory = &mut net.memory[rank];
        let barrier = net.ranks[rank].post(
            net.now,
            Op::Barrier {
                among: Among::all(9),
            },
            memory,
        );
        assert_eq!(barrier, Err(PostError::Lost(Rank(3))), "rank {rank}");
    }
    (net, ops)
}

#[test]
fn a_rank_that_dies_is_named_though_another_has_ended_before() {
    for seed in 0..4 {
        let (mut net, ops) = one_has_ended(seed);
        for rank in 0..3 {
            net.post(rank, ops[rank as usize].clone());
        }
        net.go_on(Micros(30 * seed));
        net.dead[2] = true;
        net.go_on(Micros::from_secs(7));
        for (rank, op) in ops.iter().take(2).enumerate() {
            let events = &net.events[rank];
            let is_named = matches!(
                events[..],
                [Event::Failed {
                    error: Error::RankLost(Rank(2)),
                    ..
                }]
            );
            assert!(is_named, "rank {rank}, seed {seed}: {events:?}");
            // So it is when the next one is posted.
            let memory = &mut net.memory[rank];
            let again = net.ranks[rank].post(net.now, op.clone(), memory);
            assert_eq!(again, Err(PostError::Lost(Rank(2))), "rank {rank}");
        }
    }
}

#[test]
fn a_rank_that_takes_back_its_part_is_named_though_another_has_ended_before() {
    for (seed, first) in [(1, true), (2, false)] {
        let (mut net, ops) = one_has_ended(seed);
        let cancel = |net: &mut Net| {
            let op = net.post(1, ops[1].clone());
            let now = net.now;
            net.ranks[1].cancel(now, op, &mut net.memory[1]);
        };
        if first {
            cancel(&mut net);
        }
        for rank in [0, 2] {
            net.post(rank, ops[rank as usize].clone());
        }
        if !first {
            net.go_on(Micros::from_millis(5));
            cancel(&mut net);
        }
        net.go_on(Micros::from_secs(2));
        for rank in [0, 2] {
            let events = &net.events[rank];
            let is_told = matches!(
                events[..],
                [Event::Failed {
                    error: Error::Withdrawn(Rank(1)),
                    ..
                }]
            );
            assert!(is_told, "rank {rank}, first {first}: {events:?}");
        }
    }
}

#[test]
fn who_ends_because_of_another_names_that_one() {
    // Rank 0 needs ranks 1 and 2, which need rank 3; that dies, and rank 1, which was told, ends.
    let mut net = Net::new(4, Scheme::Default, 0, 3);
    let ops = exchange(&mut net, |_, _| 60_000);
    for rank in [1, 2] {
        net.post(rank, ops[rank as usize].clone());
    }
    net.dead[3] = true;
    net.go_on(Micros::from_secs(6));
    for rank in [1, 2] {
        let events = &net.events[rank];
        assert_eq!(events[..], [failed(OpId(0), Error::RankLost(Rank(3)))]);
        let now = net.now;
        net.ranks[rank].leave(now, false);
    }
    // Whoever comes late, and has heard nothing, hears of the one that died.
    let late = Endpoint::new(net.ranks[0].config(), net.now);
    net.ranks[0] = late;
    net.post(0, ops[0].clone());
    net.go_on(Micros::from_millis(500));
    let named = failed(OpId(0), Error::RankLost(Rank(3)));
    assert_eq!(net.events[0], [named], "{:?}", net.events[0]);
}

#[test]
fn a_barrier_that_was_taken_back_names_its_rank_to_those_behind_it() {
    for size in [3, 5, 8] {
        let mut net = Net::new(size, Scheme::Default, 0, 1);
        let op = net.post(
            1,
            Op::Barrier {
                among: Among::all(0),
            },
        );
        let now = net.now;
        net.ranks[1].cancel(now, op, &mut net.memory[1]);
        for rank in (0..size).filter(|rank| *rank != 1 && *rank != size - 1) {
            net.post(
                rank,
                Op::Barrier {
                    among: Among::all(0),
                },
            );
        }
        net.go_on(Micros::from_millis(50));
        // The last one ends: it has no part in what rank 1 did before.
        net.post(
            size - 1,
            Op::Barrier {
                among: Among::all(0),
            },
        );
        net.go_on(Micros::from_secs(2));
        // Rank 1 had said that it came, and said no more: some may be through.
        let others = (0..size as usize).filter(|rank| *rank != 1);
        let events: Vec<&Event> = others.flat_map(|rank| &net.events[rank]).collect();
        let named = failed(OpId(0), Error::Withdrawn(Rank(1)));
        let is_right = |event: &&Event| **event == named || matches!(event, Event::Done { .. });
        assert_eq!(events.len(), size as usize - 1);
        assert!(events.iter().all(is_right), "{size} ranks: {events:?}");
        assert!(events.contains(&&named));
    }
}

#[test]
fn what_was_acknowledged_of_a_rank_that_has_ended_is_received() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    net.memory[0] = Buffers(vec![vec![0; 8]]);
    let short = |number: u32| {
        let body = Body::Short {
            offer: message::Offer {
                number,
                context: 0,
                tag: number,
                bytes: 8,
            },
            payload: vec![number as u8 + 1; 8].into_boxed_slice(),
        };
        let from = Rank(1);
        Packet { from, body }
    };
    let receive = |tag| Op::Receive {
        from: Some(Rank(1)),
        context: 0,
        tag: Some(tag),
        buffer: BufferId(0),
        capacity: 8,
    };
    // The second message comes first, then word of the end, then the first, which was lost and is
    // repeated.
    let arrives = |net: &mut Net, number| {
        net.ranks[0].handle_packet(net.now, short(number), None, &mut net.memory[0]);
        net.send_all();
    };
    arrives(&mut net, 1);
    net.ranks[0].fail(net.now, Rank(1));
    arrives(&mut net, 0);
    for tag in [0, 1] {
        net.post(0, receive(tag));
        net.send_all();
        assert_eq!(net.memory[0].0[0], [tag as u8 + 1; 8]);
    }
    let is_done = |event: &Event| matches!(event, Event::Done { .. });
    assert!(net.events[0].iter().all(is_done), "{:?}", net.events[0]);
}

#[test]
fn who_asks_a_rank_that_ended_in_the_midst_of_an_exchange_hears_that_it_is_lost() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    let ops = exchange(&mut net, |_, _| 60_000);
    for rank in [0, 1] {
        net.post(rank, ops[rank as usize].clone());
    }
    net.go_on(Micros(100));
    let now = net.now;
    net.ranks[1].leave(now, false);
    // What it says by itself is lost.
    while net.ranks[1]
        .poll_packet(now, 1, &mut net.memory[1])
        .is_some()
    {}
    net.flights.clear();
    net.go_on(Micros::from_secs(2));
    let named = failed(OpId(0), Error::RankLost(Rank(1)));
    assert_eq!(net.events[0], [named], "{:?}", net.events[0]);
}

#[test]
fn a_barrier_that_all_have_reached_is_done_though_a_token_is_lost_and_its_sender_computes() {
    let mut net = Net::new(4, Scheme::Default, 0, 1);
    for rank in 1..4 {
        net.post(
            rank,
            Op::Barrier {
                among: Among::all(0),
            },
        );
    }
    net.go_on(Micros::from_millis(1));
    net.post(
        0,
        Op::Barrier {
            among: Among::all(0),
        },
    );
    net.send_all();
    net.flights.retain(|(_, to, _)| *to != 1);
    net.go_on(Micros(200));
    assert_eq!(
        [0, 1, 2, 3].map(|rank| net.events[rank].len()),
        [1, 0, 1, 0]
    );
    // Rank 0 computes, and rank 2 ends.
    let now = net.now;
    net.ranks[2].leave(now, false);
    (net.dead[0], net.dead[2]) = (true, true);
    for rank in [1, 3] {
        net.ranks[rank].fail(now, Rank(2));
    }
    net.go_on(Micros::from_millis(1_200));
    net.dead[0] = false;
    net.go_on(Micros::from_millis(500));
    for rank in [1, 3] {
        let events = &net.events[rank];
        assert!(matches!(events[..], [Event::Done { .. }]), "{events:?}");
    }
}
