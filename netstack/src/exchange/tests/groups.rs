//! Exchanges and barriers between some ranks of a job: rows and columns at once, numbers that go on
//! in another group, losses and datagrams of ranks that have no part.

use proptest::prelude::*;

use super::super::message::{BlockId, Body, Data, Item, Packet};
use super::endings::failed;
use super::*;

pub(super) const SCHEMES: [Scheme; 3] = [
    Scheme::Default,
    Scheme::Published {
        active: Active::All,
    },
    Scheme::Published {
        active: Active::Given(2),
    },
];

fn group(ranks: &[u32]) -> Group {
    Group::listed(ranks.iter().copied().map(Rank).collect()).expect("a group")
}

pub(super) fn among(context: u32, ranks: &[u32], number: u32) -> Among {
    Among {
        context,
        group: group(ranks),
        number,
    }
}

/// Gives each rank of a list two more buffers, what it sends and where it receives, and posts an
/// exchange of these with blocks of equal length. Gives the number of the first buffer.
pub(super) fn post_equal(net: &mut Net, who: &Among, ranks: &[u32], bytes: u64) -> Vec<usize> {
    let mut places = Vec::new();
    for &me in ranks {
        let buffers = &mut net.memory[me as usize].0;
        let place = buffers.len();
        let sent = ranks
            .iter()
            .flat_map(|&to| (0..bytes).map(move |at| byte(me, to, at)))
            .collect();
        buffers.extend([sent, vec![0; ranks.len() * bytes as usize]]);
        let side = |buffer| Side {
            buffer: BufferId(buffer as u64),
            layout: Layout::Equal { bytes },
        };
        let op = Op::AllToAll {
            among: who.clone(),
            send: side(place),
            receive: side(place + 1),
        };
        net.post(me, op);
        places.push(place);
    }
    places
}

fn check_equal(net: &Net, ranks: &[u32], bytes: u64, places: &[usize]) {
    for (&me, place) in ranks.iter().zip(places) {
        let wanted: Vec<u8> = ranks
            .iter()
            .flat_map(|&from| (0..bytes).map(move |at| byte(from, me, at)))
            .collect();
        assert!(net.memory[me as usize].0[place + 1] == wanted, "rank {me}");
    }
}

/// A grid of ranks: its rows exchange in one context and its columns in another, all at once, and
/// then meet in barriers.
fn rows_and_columns((rows, columns): (u32, u32), scheme: Scheme, loss: u64, bytes: u64) {
    let mut net = Net::new(rows * columns, scheme, loss, bytes);
    // A row is named from its end, so that places are not in the order of ranks.
    let row = |row: u32| -> Vec<u32> { (0..columns).rev().map(|at| row * columns + at).collect() };
    let column = |column: u32| -> Vec<u32> { (0..rows).map(|at| at * columns + column).collect() };
    let all: Vec<(u32, Vec<u32>)> = (0..rows)
        .map(|at| (1, row(at)))
        .chain((0..columns).map(|at| (2, column(at))))
        .collect();
    let mut places = Vec::new();
    for (context, ranks) in &all {
        places.push(post_equal(
            &mut net,
            &among(*context, ranks, 0),
            ranks,
            bytes,
        ));
    }
    net.run(2, Micros::from_secs(30));
    for (context, ranks) in &all {
        for &rank in ranks {
            let among = among(*context, ranks, 0);
            net.post(rank, Op::Barrier { among });
        }
    }
    net.run(4, Micros::from_secs(30));
    assert_done(&net);
    for ((_, ranks), places) in all.iter().zip(&places) {
        check_equal(&net, ranks, bytes, places);
    }
}

#[test]
fn rows_and_columns_exchange_at_once() {
    for scheme in SCHEMES {
        for loss in [0, 10] {
            rows_and_columns((3, 4), scheme, loss, 700);
            rows_and_columns((2, 3), scheme, loss, 20_011);
        }
        rows_and_columns((1, 5), scheme, 5, 3_000);
    }
}

#[test]
fn a_barrier_waits_for_its_ranks_and_for_no_others() {
    let mut net = Net::new(5, Scheme::Default, 0, 1);
    let ranks = [4, 1, 2];
    for rank in [4, 1] {
        let among = among(3, &ranks, 0);
        net.post(rank, Op::Barrier { among });
    }
    net.go_on(Micros::from_secs(1));
    assert!(net.events.iter().all(Vec::is_empty), "{:?}", net.events);
    let among = among(3, &ranks, 0);
    net.post(2, Op::Barrier { among });
    net.go_on(Micros::from_secs(1));
    let ends: Vec<usize> = net.events.iter().map(Vec::len).collect();
    assert_eq!(ends, [0, 1, 1, 0, 1]);
    assert_done(&net);
}

/// A context is used by one group, and then by another, some of whose ranks were in the first: with
/// the number that all have agreed upon they meet.
#[test]
fn a_context_goes_on_in_another_group() {
    for scheme in SCHEMES {
        let mut net = Net::new(4, scheme, 0, 2);
        for round in 1..=3 {
            post_equal(&mut net, &among(0, &[0, 1], 0), &[0, 1], 100);
            net.go_on(Micros::from_millis(50));
            assert_eq!(net.events[0].len(), round);
        }
        let ranks = [1, 2, 3];
        let places = post_equal(&mut net, &among(0, &ranks, 3), &ranks, 5_000);
        net.go_on(Micros::from_secs(1));
        check_equal(&net, &ranks, 5_000, &places);
        for rank in ranks {
            let among = among(0, &ranks, 7);
            net.post(rank, Op::Barrier { among });
        }
        net.go_on(Micros::from_secs(1));
        assert_done(&net);
        let ends: Vec<usize> = net.events.iter().map(Vec::len).collect();
        assert_eq!(ends, [3, 5, 2, 2]);
    }
}

#[test]
fn who_is_no_part_of_a_group_is_refused() {
    let mut net = Net::new(4, Scheme::Default, 0, 3);
    let mut post = |rank: usize, among: Among| {
        let memory = &mut net.memory[rank];
        net.ranks[rank].post(net.now, Op::Barrier { among }, memory)
    };
    assert_eq!(post(0, among(0, &[1, 2], 0)), Err(PostError::BadGroup));
    assert_eq!(post(0, among(0, &[0, 4], 0)), Err(PostError::BadGroup));
    assert!(post(0, among(0, &[0], 5)).is_ok());
    assert_eq!(post(0, among(0, &[0], 5)), Err(PostError::BadNumber));
    assert_eq!(post(0, among(0, &[0], 1 << 24)), Err(PostError::BadNumber));
    // A layout has a block for each of the group.
    let op = |parts: usize| Op::AllToAll {
        among: among(0, &[0, 3], 0),
        send: Side {
            buffer: BufferId(0),
            layout: Layout::Parts(vec![Part::default(); parts]),
        },
        receive: Side {
            buffer: BufferId(0),
            layout: Layout::Parts(vec![Part::default(); parts]),
        },
    };
    let mut post = |op| net.ranks[0].post(net.now, op, &mut net.memory[0]);
    assert_eq!(post(op(4)), Err(PostError::BadLayout));
    assert!(post(op(2)).is_ok());
}

#[test]
fn a_lost_rank_fails_the_groups_that_it_is_in_and_no_others() {
    for scheme in SCHEMES {
        let mut net = Net::new(6, scheme, 0, 4);
        let (with, without) = ([5, 0, 1], [2, 3, 4]);
        net.dead[5] = true;
        post_equal(&mut net, &among(0, &with, 0), &with, 60_000);
        post_equal(&mut net, &among(0, &without, 0), &without, 60_000);
        for rank in [0, 1, 2, 3, 4] {
            let ranks = if rank < 2 { &with } else { &without };
            let among = among(1, ranks, 0);
            net.post(rank, Op::Barrier { among });
        }
        net.go_on(Micros::from_secs(20));
        for (rank, events) in net.events.iter().take(5).enumerate() {
            assert_eq!(events.len(), 2, "rank {rank}: {events:?}");
            for event in events {
                match (rank < 2, event) {
                    (true, Event::Failed { op, error }) => {
                        assert_eq!(failed(*op, *error), failed(*op, Error::RankLost(Rank(5))));
                    }
                    (false, Event::Done { .. }) => {}
                    (_, event) => panic!("rank {rank}: {event:?}"),
                }
            }
        }
        // Groups without it begin, others are refused.
        let mut post =
            |among| net.ranks[0].post(net.now, Op::Barrier { among }, &mut net.memory[0]);
        assert_eq!(post(Among::all(1)), Err(PostError::Lost(Rank(5))));
        assert_eq!(post(among(1, &with, 0)), Err(PostError::Lost(Rank(5))));
        assert!(post(among(1, &[0, 1], 0)).is_ok());
    }
}

#[test]
fn datagrams_of_others_change_nothing() {
    for scheme in SCHEMES {
        let mut net = Net::new(5, scheme, 0, 5);
        let ranks = [3, 0, 1];
        let places = post_equal(&mut net, &among(0, &ranks, 0), &ranks, 30_000);
        let (context, number) = (0, 0);
        let block = BlockId::Exchange(context, number);
        let items = |signature| {
            vec![
                Item::Ready {
                    context,
                    number,
                    bytes: 9,
                    pushed: 0,
                    signature,
                },
                Item::WhoIsReady {
                    context,
                    number,
                    signature,
                },
                Item::Got { block, signature },
                Item::Refuse { block, gone: true },
                Item::Busy { context, number },
                Item::Noted { context, number },
                Item::ToMaster {
                    context,
                    number,
                    step: 0,
                    signature,
                },
                Item::FromMaster {
                    context,
                    number,
                    step: 1,
                    place: 0,
                    count: 1,
                    to: Rank(0),
                    signature,
                },
                Item::Fault {
                    context,
                    number,
                    rank: Rank(4),
                    why: super::super::message::Why::Lost,
                    bytes: None,
                },
            ]
        };
        let data = Data {
            block,
            first: 0,
            packets: 1,
            tail: 9,
            is_last: true,
        };
        let bodies = [items(0), items(77)].map(Body::Control);
        for body in bodies.into_iter().chain([Body::Data(data)]) {
            for rank in ranks {
                let packet = Packet {
                    from: Rank(4),
                    body: body.clone(),
                };
                let memory = &mut net.memory[rank as usize];
                net.ranks[rank as usize].handle_packet(net.now, packet, Some(&[1; 9]), memory);
            }
        }
        net.go_on(Micros::from_secs(5));
        assert_done(&net);
        check_equal(&net, &ranks, 30_000, &places);
        assert!(net.ranks[0].counters().bad >= 9, "they were not looked at");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ranks are dealt into groups that share a context; each group exchanges blocks of a length of
    /// its own, over a network that loses datagrams.
    #[test]
    fn groups_that_share_a_context_do_not_meet(
        groups in prop::collection::vec(0u32..4, 1..14), loss in 0u64..15, seed in any::<u64>(),
        scheme in 0usize..3, lengths in prop::array::uniform4(0u64..9_000),
    ) {
        let mut net = Net::new(groups.len() as u32, SCHEMES[scheme], loss, seed);
        let mut posted = Vec::new();
        for (number, length) in (0..4).zip(lengths) {
            let ranks = (0..groups.len()).filter(|&rank| groups[rank] == number);
            let mut ranks: Vec<u32> = ranks.map(|rank| rank as u32).collect();
            if ranks.is_empty() {
                continue;
            }
            let by = seed as usize % ranks.len();
            ranks.rotate_left(by);
            let places = post_equal(&mut net, &among(7, &ranks, 0), &ranks, length);
            posted.push((ranks, length, places));
        }
        net.run(1, Micros::from_secs(30));
        assert_done(&net);
        for (ranks, length, places) in posted {
            check_equal(&net, &ranks, length, &places);
        }
    }
}
