//! A rank that has done its part and ended is no loss to those that come later, whatever was lost
//! on the way.

use super::endings::{failed, pair};
use super::*;

/// All datagrams that are under way to a rank are lost, and those of the next while.
fn deafen(net: &mut Net, rank: usize, time: Micros) {
    net.flights.retain(|(_, to, _)| *to != rank);
    net.dead[rank] = true;
    net.go_on(time);
    net.dead[rank] = false;
}

fn all_done(net: &Net, ranks: core::ops::Range<usize>, note: &str) {
    for rank in ranks {
        let events = &net.events[rank];
        let is_done = events
            .iter()
            .all(|event| matches!(event, Event::Done { .. }));
        assert!(
            is_done && events.len() == 1,
            "rank {rank}, {note}: {events:?}"
        );
    }
}

#[test]
fn a_barrier_that_all_have_reached_is_done_for_a_rank_that_stood_still_while_all_others_ended() {
    for size in [2, 3, 5, 8, 16] {
        for late in 0..size as usize {
            let mut net = Net::new(size, Scheme::Default, 0, u64::from(size));
            for rank in 0..size {
                net.post(
                    rank,
                    Op::Barrier {
                        among: Among::all(0),
                    },
                );
            }
            // The late one has said all it had to say in the first stages only where others ask;
            // its node stands still when the barrier is half way, for longer than others take to
            // call a rank lost.
            net.go_on(Micros(60));
            let began = net.now;
            deafen(&mut net, late, Micros::from_secs(1));
            for rank in (0..size as usize).filter(|rank| *rank != late) {
                if !net.events[rank].is_empty() {
                    let now = net.now;
                    net.ranks[rank].leave(now, false);
                }
            }
            deafen(&mut net, late, Micros::from_secs(2));
            net.go_on(Micros::from_secs(2));
            for rank in 0..size as usize {
                let now = net.now;
                net.ranks[rank].leave(now, false);
            }
            net.go_on(Micros::from_secs(3));
            all_done(
                &net,
                0..size as usize,
                &std::format!("{size} ranks, {late} late, {began:?}"),
            );
        }
    }
}

#[test]
fn an_exchange_whose_last_answers_were_lost_is_done_though_its_partners_have_ended() {
    for bytes in [0, 900, 60_000] {
        for seed in 0..20 {
            let mut net = Net::new(4, Scheme::Default, 0, seed);
            let ops = exchange(&mut net, |_, _| bytes);
            for (rank, op) in (0..).zip(ops) {
                net.post(rank, op);
            }
            // Whoever is done ends at once, and half of what it says is lost on the way.
            let mut rng = Rng::new(seed);
            for _ in 0..4_000 {
                net.go_on(Micros(500));
                net.flights.retain(|_| rng.below(2) == 0);
                for rank in 0..4 {
                    if !net.events[rank].is_empty() {
                        let now = net.now;
                        net.ranks[rank].leave(now, false);
                    }
                }
            }
            net.go_on(Micros::from_secs(5));
            all_done(&net, 0..4, &std::format!("{bytes} bytes, seed {seed}"));
        }
    }
}

#[test]
fn a_message_that_was_received_was_sent_though_its_receiver_has_ended_since() {
    let mut net = pair(60_000, 0);
    net.post(0, send(1, 1, 0, 60_000));
    net.post(1, receive(0, 1, 0, 60_000));
    while net.events[1].is_empty() {
        net.go_on(Micros(100));
        // What the receiver says of the end of it is lost.
        if !net.events[1].is_empty() {
            net.flights.clear();
        }
    }
    let now = net.now;
    net.ranks[1].leave(now, false);
    net.go_on(Micros::from_secs(5));
    all_done(&net, 0..2, "the acknowledgement was lost");
}

#[test]
fn a_rank_that_ended_without_its_part_fails_those_that_need_it_soon() {
    for size in [2, 5, 16] {
        let mut net = Net::new(size, Scheme::Default, 0, 7);
        let now = net.now;
        net.ranks[1].leave(now, false);
        let ops = exchange(&mut net, |_, _| 5_000);
        for rank in (0..size).filter(|rank| *rank != 1) {
            net.post(rank, ops[rank as usize].clone());
            net.post(
                rank,
                Op::Barrier {
                    among: Among::all(3),
                },
            );
        }
        net.go_on(Micros::from_secs(2));
        for rank in (0..size as usize).filter(|rank| *rank != 1) {
            let lost = Error::RankLost(Rank(1));
            let mut events = net.events[rank].clone();
            events.sort_by_key(|event| match event {
                Event::Done { op, .. } | Event::Failed { op, .. } => *op,
            });
            assert_eq!(
                events,
                [failed(OpId(0), lost), failed(OpId(1), lost)],
                "rank {rank} of {size}"
            );
        }
    }
}

#[test]
fn contexts_are_bounded_whatever_a_program_does_in_them() {
    let mut net = pair(8, 0);
    let (barrier, nothing) = (
        |context| Op::Barrier {
            among: Among::all(context),
        },
        Layout::Equal { bytes: 0 },
    );
    let side = Side {
        buffer: BufferId(0),
        layout: nothing,
    };
    let all = |context| Op::AllToAll {
        among: Among::all(context),
        send: side.clone(),
        receive: side.clone(),
    };
    let most = MAX_CONTEXTS_USED as u32;
    for context in 0..MAX_CONTEXTS {
        let (rank, memory) = (&mut net.ranks[0], &mut net.memory[0]);
        let sat_out = rank.sit_out(&Among::all(context), Error::RankLost(Rank(1)));
        let taken = rank.post(net.now, barrier(context), memory);
        if context < most {
            sat_out.unwrap();
            rank.cancel(net.now, taken.unwrap(), &mut Buffers::default());
        } else {
            assert_eq!(sat_out, Err(PostError::TooManyContexts));
            assert_eq!(taken, Err(PostError::TooManyContexts));
            let taken = rank.post(net.now, all(context), memory);
            assert_eq!(taken, Err(PostError::TooManyContexts));
        }
    }
    // Those that it has used it may use again.
    let (rank, memory) = (&mut net.ranks[0], &mut net.memory[0]);
    rank.post(net.now, barrier(most - 1), memory).unwrap();
    rank.post(net.now, all(0), memory).unwrap();
}
