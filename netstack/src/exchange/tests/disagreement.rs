//! Ranks that disagree about an exchange or a barrier: about who takes part, what it is, how long
//! its blocks are, or which one it is. Each of them gets an error, and none waits for ever.

use super::super::OpId;
use super::endings::failed;
use super::groups::{SCHEMES, among, post_equal};
use super::*;

/// What a rank posts.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    /// An exchange of these ranks, with blocks of so many bytes, as the one of this number.
    Exchange(&'a [u32], u64, u32),
    /// A barrier of these ranks.
    Barrier(&'a [u32], u32),
}

/// Each rank posts its part; those that come later do so after a while. Gives their operations.
fn post(net: &mut Net, parts: &[Part<'_>], late: usize) -> Vec<OpId> {
    let mut ops = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        if at == late {
            net.go_on(Micros::from_millis(30));
        }
        let (me, events) = (at as u32, net.events[at].len());
        match *part {
            Part::Exchange(ranks, bytes, number) => {
                let who = among(3, ranks, number);
                ops.push(post_equal_of(net, &who, ranks, me, bytes));
            }
            Part::Barrier(ranks, number) => {
                let among = among(3, ranks, number);
                ops.push(net.post(me, Op::Barrier { among }));
            }
        }
        assert_eq!(net.events[at].len(), events);
    }
    ops
}

fn post_equal_of(net: &mut Net, who: &Among, ranks: &[u32], me: u32, bytes: u64) -> OpId {
    let buffers = &mut net.memory[me as usize].0;
    let place = buffers.len();
    let length = ranks.len() * bytes as usize;
    buffers.extend([vec![me as u8; length], vec![0; length]]);
    let side = |buffer| Side {
        buffer: BufferId(buffer as u64),
        layout: Layout::Equal { bytes },
    };
    let op = Op::AllToAll {
        among: who.clone(),
        send: side(place),
        receive: side(place + 1),
    };
    net.post(me, op)
}

/// Every rank whose part is not in order with the others' has an error that names one of the other
/// ranks, within a second; those of which `may_be_done` is true may be done instead.
fn check(parts: &[Part<'_>], may_be_done: impl Fn(usize) -> bool) {
    for scheme in SCHEMES {
        for loss in [0, 10] {
            for late in 0..=parts.len() {
                let mut net = Net::new(parts.len() as u32, scheme, loss, late as u64);
                let ops = post(&mut net, parts, late);
                net.go_on(Micros::from_secs(2));
                let note = std::format!("{scheme:?}, {loss} %, late {late}: {parts:?}");
                for (rank, op) in ops.into_iter().enumerate() {
                    let events = &net.events[rank];
                    match events[..] {
                        [Event::Done { .. }] if may_be_done(rank) => {}
                        [
                            Event::Failed {
                                op: of,
                                error: Error::Other(other),
                            },
                        ] => {
                            assert!(of == op && other.0 as usize != rank, "{note}: {events:?}");
                        }
                        _ => panic!("rank {rank} has {events:?}; {note}"),
                    }
                    let kept = net.ranks[rank].footprint();
                    assert_eq!((kept.ops, kept.inbound, kept.grants), (0, 0, 0), "{note}");
                }
                // The context goes on where all agree again.
                net.events.iter_mut().for_each(Vec::clear);
                let all: Vec<u32> = (0..parts.len() as u32).collect();
                for rank in &all {
                    let among = among(3, &all, 50);
                    net.post(*rank, Op::Barrier { among });
                }
                net.go_on(Micros::from_secs(2));
                assert_done(&net);
                assert!(net.events.iter().all(|events| events.len() == 1), "{note}");
            }
        }
    }
}

#[test]
fn ranks_that_name_other_groups_fail() {
    let (all, turned): (&[u32], &[u32]) = (&[0, 1, 2], &[2, 1, 0]);
    for bytes in [300, 40_000] {
        let turned = Part::Exchange(turned, bytes, 0);
        let all = Part::Exchange(all, bytes, 0);
        // Two that agree may be done with what they have for each other before they hear of it,
        // but not with what they have for the third.
        check(&[all, all, turned], |_| false);
    }
    check(
        &[
            Part::Barrier(all, 0),
            Part::Barrier(turned, 0),
            Part::Barrier(all, 0),
        ],
        |_| false,
    );
}

#[test]
fn groups_that_overlap_fail() {
    for bytes in [300, 40_000] {
        let (left, right) = (
            Part::Exchange(&[0, 1], bytes, 0),
            Part::Exchange(&[1, 2], bytes, 0),
        );
        // Rank 0 needs rank 1, which does something with rank 2.
        let mut net = Net::new(3, Scheme::Default, 0, bytes);
        let ops = post(&mut net, &[left, right, right], 3);
        net.go_on(Micros::from_secs(2));
        assert_eq!(net.events[0], [failed(ops[0], Error::Other(Rank(1)))]);
        assert!(
            net.events[1..]
                .iter()
                .all(|events| matches!(events[..], [Event::Done { .. }]))
        );
    }
    // A rank that the group of another lacks is told so, and its group goes on.
    check(
        &[
            Part::Barrier(&[0, 1], 0),
            Part::Barrier(&[0, 1], 0),
            Part::Barrier(&[1, 2, 0], 0),
        ],
        |rank| rank < 2,
    );
}

#[test]
fn an_exchange_meets_no_barrier() {
    let all: &[u32] = &[0, 1, 2];
    for bytes in [300, 40_000] {
        let exchange = Part::Exchange(all, bytes, 0);
        check(&[exchange, Part::Barrier(all, 0), exchange], |_| false);
        check(
            &[Part::Barrier(all, 0), exchange, Part::Barrier(all, 0)],
            |_| false,
        );
    }
    // One that has nothing to exchange is done at once.
    check(
        &[
            Part::Exchange(all, 0, 0),
            Part::Barrier(all, 0),
            Part::Barrier(all, 0),
        ],
        |rank| rank == 0,
    );
}

#[test]
fn ranks_at_other_numbers_fail() {
    let all: &[u32] = &[0, 1, 2];
    for number in [1, 5, 40] {
        for bytes in [300, 40_000] {
            let [first, other] = [0, number].map(|number| Part::Exchange(all, bytes, number));
            check(&[first, other, other], |_| false);
            check(&[first, first, other], |_| false);
        }
        let [first, other] = [0, number].map(|number| Part::Barrier(all, number));
        check(&[first, other, other], |_| false);
        check(&[other, first, first], |_| false);
    }
}

#[test]
fn lengths_that_differ_fail_whichever_begins_first() {
    for scheme in SCHEMES {
        for (mine, theirs) in [(300, 400), (40_000, 300), (40_000, 50_000), (0, 300)] {
            for late in 0..2 {
                let mut net = Net::new(2, scheme, 0, late as u64);
                let ranks: &[u32] = &[0, 1];
                let parts = [mine, theirs].map(|bytes| Part::Exchange(ranks, bytes, 0));
                let ops = post(&mut net, &parts, late);
                net.go_on(Micros::from_secs(2));
                for rank in 0..2_usize {
                    let error = Error::SizeMismatch {
                        rank: Rank(1 - rank as u32),
                    };
                    let is_nothing = [mine, theirs][rank] == 0;
                    match net.events[rank][..] {
                        [Event::Done { .. }] if is_nothing => {}
                        [event] => assert_eq!(event, failed(ops[rank], error), "{scheme:?}"),
                        _ => panic!("rank {rank} has {:?}", net.events[rank]),
                    }
                }
            }
        }
    }
}

#[test]
fn what_all_agree_upon_is_done_though_others_were_passed_over() {
    for scheme in SCHEMES {
        let mut net = Net::new(3, scheme, 0, 9);
        for number in [0, 3, 20, 21] {
            net.events.iter_mut().for_each(Vec::clear);
            post_equal(&mut net, &among(3, &[0, 1, 2], number), &[0, 1, 2], 3_000);
            net.go_on(Micros::from_millis(200));
            assert_done(&net);
            assert!(net.events.iter().all(|events| events.len() == 1));
        }
    }
}
