use crate::call::run;
use crate::{Combine, Error, World};

/// Numbers of ranks: one, powers of two, and between them.
const SIZES: [u32; 9] = [1, 2, 3, 4, 5, 7, 8, 13, 16];
/// Numbers of values: none, fewer than ranks, below and above where large begins.
const COUNTS: [usize; 6] = [0, 1, 5, 100, 4_096, 10_001];

fn value(rank: u32, index: usize) -> u64 {
    (u64::from(rank) << 40) + index as u64 * 3
}

fn values(rank: u32, count: usize) -> Vec<u64> {
    (0..count).map(|index| value(rank, index)).collect()
}

#[test]
fn a_broadcast_brings_the_roots_values_everywhere() {
    for size in SIZES {
        for count in COUNTS {
            let root = (count as u32 + size / 2) % size;
            let all = run(size, |world| {
                let mut data = values(world.rank(), count);
                world.broadcast(root, &mut data).unwrap();
                data
            });
            for data in all {
                assert_eq!(data, values(root, count), "{size} ranks, {count} values");
            }
        }
    }
}

#[test]
fn reductions_are_what_one_rank_would_compute() {
    let ways = [
        Combine::Sum,
        Combine::Minimum,
        Combine::Maximum,
        Combine::Product,
    ];
    for size in SIZES {
        for (count, how) in COUNTS.into_iter().zip(ways.into_iter().cycle()) {
            let root = (count as u32 + 1) % size;
            let expected: Vec<u64> = (0..count)
                .map(|index| {
                    let all = (0..size).map(|rank| value(rank, index));
                    match how {
                        Combine::Sum => all.sum(),
                        Combine::Product => all.fold(1, u64::wrapping_mul),
                        Combine::Minimum => all.min().unwrap(),
                        Combine::Maximum => all.max().unwrap(),
                    }
                })
                .collect();
            let results = run(size, |world| {
                let (mut one, mut all) = (values(world.rank(), count), values(world.rank(), count));
                world.reduce(how, root, &mut one).unwrap();
                world.all_reduce(how, &mut all).unwrap();
                (one, all)
            });
            for (rank, (one, all)) in (0..).zip(results) {
                assert_eq!(all, expected, "{how:?}, {size} ranks, {count} values");
                match rank == root {
                    true => assert_eq!(one, expected),
                    false => assert_eq!(one, values(rank, count), "changed"),
                }
            }
        }
    }
}

#[test]
fn messages_of_any_rank_say_whose_they_are() {
    for size in [1, 2, 5] {
        run(size, |world| {
            if world.rank() > 0 {
                let me = world.rank();
                world.send(0, 100 + me, &[u64::from(me); 3]).unwrap();
                return world.barrier().unwrap();
            }
            let mut ranks: Vec<u32> = (1..size)
                .map(|_| {
                    let mut into = [0_u64; 5];
                    let got = world.receive_any(None, None, &mut into).unwrap();
                    assert_eq!((got.tag, got.count), (100 + got.rank, 3));
                    assert_eq!(into, [1, 1, 1, 0, 0].map(|one| one * u64::from(got.rank)));
                    got.rank
                })
                .collect();
            ranks.sort_unstable();
            assert!(ranks.into_iter().eq(1..size));
            world.barrier().unwrap();
        });
    }
}

#[test]
fn all_ranks_get_the_same_bits_of_a_floating_point_sum() {
    for size in SIZES {
        for count in [3, 9_000] {
            let results = run(size, |world| {
                let term = |index: usize| 1.0 / (f64::from(world.rank()) + 1.1 + index as f64);
                let mut sums: Vec<f64> = (0..count).map(term).collect();
                world.all_reduce(Combine::Sum, &mut sums).unwrap();
                sums.into_iter().map(f64::to_bits).collect::<Vec<_>>()
            });
            assert!(
                results.iter().all(|result| *result == results[0]),
                "{size} ranks"
            );
        }
    }
}

#[test]
fn blocks_go_from_each_rank_to_each() {
    for size in SIZES {
        run(size, |world| {
            let me = world.rank();
            let send: Vec<u32> = (0..size).flat_map(|to| [me, to, 7]).collect();
            let mut receive = vec![0; send.len()];
            world.all_to_all(&send, &mut receive).unwrap();
            let expected: Vec<u32> = (0..size).flat_map(|from| [from, me, 7]).collect();
            assert_eq!(receive, expected);
            // Rank a sends a * b mod 5 values to rank b.
            let length = |from: u32, to: u32| (from * to % 5) as usize;
            let to: Vec<usize> = (0..size).map(|to| length(me, to)).collect();
            let from: Vec<usize> = (0..size).map(|from| length(from, me)).collect();
            let send: Vec<u32> = (0..size)
                .flat_map(|to| vec![me * 1000 + to; length(me, to)])
                .collect();
            let mut receive = vec![0; from.iter().sum()];
            world.all_to_all_v(&send, &to, &mut receive, &from).unwrap();
            let expected: Vec<u32> = (0..size)
                .flat_map(|from| vec![from * 1000 + me; length(from, me)])
                .collect();
            assert_eq!(receive, expected);
        });
    }
}

#[test]
fn gather_and_scatter_are_each_others_inverse() {
    for size in SIZES {
        let root = size / 2;
        run(size, |world| {
            let mine = [world.rank(), 100 + world.rank()];
            let all: Vec<u32> = (0..size).flat_map(|rank| [rank, 100 + rank]).collect();
            let mut gathered = match world.rank() == root {
                true => vec![0; all.len()],
                false => Vec::new(),
            };
            world.gather(root, &mine, &mut gathered).unwrap();
            if world.rank() == root {
                assert_eq!(gathered, all);
            }
            let mut back = [0; 2];
            world.scatter(root, &gathered, &mut back).unwrap();
            assert_eq!(back, mine);
            let mut everywhere = vec![0; all.len()];
            world.all_gather(&mine, &mut everywhere).unwrap();
            assert_eq!(everywhere, all);
        });
    }
}

#[test]
fn messages_of_one_tag_arrive_in_order_and_others_do_not_meet() {
    run(2, |world| {
        let other = 1 - world.rank();
        let (first, second, third) = ([1_u8], [2_u8], [3_u8]);
        let (mut a, mut b, mut c) = ([0_u8], [0_u8], [0_u8]);
        world
            .scope(|scope| {
                scope.send(other, 5, &first).map(drop)?;
                scope.send(other, 6, &third).map(drop)?;
                scope.send(other, 5, &second).map(drop)?;
                let late = scope.receive(other, 6, &mut c)?;
                let early = scope.receive(other, 5, &mut a)?;
                scope.receive(other, 5, &mut b).map(drop)?;
                let late = scope.wait(late)?;
                assert_eq!((late.rank, late.tag, late.count), (other, 6, 1));
                scope.wait(early).map(drop)
            })
            .unwrap();
        assert_eq!((a, b, c), (first, second, third));
    });
}

#[test]
fn a_shorter_message_leaves_the_rest_and_a_longer_one_is_an_error() {
    run(2, |world| {
        if world.rank() == 0 {
            world.send(1, 1, &[1_u16, 2]).unwrap();
            world.send(1, 2, &[1_u16, 2]).unwrap();
        } else {
            let mut into = [9_u16; 3];
            assert_eq!(world.receive(0, 1, &mut into).unwrap().count, 2);
            assert_eq!(into, [1, 2, 9]);
            let mut into = [9_u16];
            assert_eq!(
                world.receive(0, 2, &mut into),
                Err(Error::TooLong {
                    bytes: 4,
                    rank: 0,
                    tag: 2
                })
            );
        }
    });
}

#[test]
fn misuse_is_an_error() {
    run(3, |world| {
        let mut data = [0_u8; 4];
        assert_eq!(world.send(3, 0, &data), Err(Error::Invalid));
        assert_eq!(world.receive(u32::MAX, 0, &mut data), Err(Error::Invalid));
        assert_eq!(world.broadcast(3, &mut data), Err(Error::Invalid));
        assert_eq!(world.all_to_all(&[0_u8; 4], &mut data), Err(Error::Invalid));
        let counts = [1, 2, 3];
        let unfit = world.all_to_all_v(&[0_u8; 5], &counts, &mut data, &[1, 1, 1]);
        assert_eq!(unfit, Err(Error::Invalid));
        let huge = [usize::MAX, 2, 0];
        let unfit = world.all_to_all_v(&[0_u8; 5], &huge, &mut data, &[1, 1, 1]);
        assert_eq!(unfit, Err(Error::Invalid));
        assert_eq!(
            world.gather(0, &[1_u8; 2], &mut data).is_err(),
            world.rank() == 0
        );
        // The others took part in the gather: so does rank 0, to end it.
        if world.rank() == 0 {
            world.gather(0, &[1_u8; 2], &mut [0; 6]).unwrap();
        }
    });
    assert_eq!(World::new(), Err(Error::NotHearth));
}

#[test]
fn a_rank_that_has_ended_is_named() {
    run(4, |world| {
        if world.rank() == 2 {
            return;
        }
        assert_eq!(world.receive(2, 1, &mut [0_u8]), Err(Error::Lost(2)));
        assert_eq!(world.barrier(), Err(Error::Lost(2)));
        // The others go on.
        let others = [0, 1, 3];
        let at = others
            .iter()
            .position(|&rank| rank == world.rank())
            .unwrap();
        let (next, previous) = (others[(at + 1) % 3], others[(at + 2) % 3]);
        let mut into = [0];
        world
            .send_receive((next, &[world.rank()]), (previous, &mut into), 1)
            .unwrap();
        assert_eq!(into, [previous]);
    });
}

#[test]
fn a_scope_that_fails_leaves_nothing_outstanding() {
    run(1, |world| {
        let mut into = [0_u8; 3];
        let result: Result<(), Error> = world.scope(|scope| {
            scope.receive(0, 1, &mut into).map(drop)?;
            Err(Error::Cancelled)
        });
        assert_eq!(result, Err(Error::Cancelled));
        let tested = world.scope(|scope| {
            let request = scope.receive(0, 7, &mut into)?;
            let Err(request) = scope.test(request)? else {
                panic!("nothing was sent");
            };
            scope.send(0, 7, &[1_u8, 2]).map(drop)?;
            scope.wait(request)
        });
        assert_eq!(tested.unwrap().count, 2);
    });
}

#[test]
fn operations_are_taken_as_they_finish() {
    const COUNT: u32 = 5;
    run(2, |world| {
        if world.rank() == 0 {
            for tag in (0..COUNT).rev() {
                world.send(1, tag, &[tag]).unwrap();
            }
            return;
        }
        let mut into = [[0_u32]; COUNT as usize];
        let mut tags = Vec::new();
        world
            .scope(|scope| {
                let mut requests = Vec::new();
                for (tag, into) in (0..).zip(&mut into) {
                    requests.push(scope.receive(0, tag, into)?);
                }
                while let Some((_, received)) = scope.wait_any(&mut requests)? {
                    tags.push(received.tag);
                }
                Ok(())
            })
            .unwrap();
        tags.sort_unstable();
        assert_eq!(tags, [0, 1, 2, 3, 4]);
        assert_eq!(into, [[0], [1], [2], [3], [4]]);
    });
}

/// Each rank's error, once all that live have one; who has none yet when the time is over has
/// `None`.
fn errors_at_once(
    size: u32,
    ends: Option<u32>,
    act: impl Fn(World) -> Result<(), Error> + Sync,
) -> Vec<Option<Result<(), Error>>> {
    let told = std::sync::Mutex::new(vec![None; size as usize]);
    run(size, |world| {
        let me = world.rank();
        if ends == Some(me) {
            return;
        }
        let result = act(world);
        told.lock().unwrap()[me as usize] = Some(result);
        // A rank that has its error goes on: nobody must need its end to get one.
        for _ in 0..500 {
            let told = told.lock().unwrap();
            if (0..size).all(|rank| ends == Some(rank) || told[rank as usize].is_some()) {
                return;
            }
            drop(told);
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    });
    told.into_inner().unwrap()
}

#[test]
fn all_ranks_of_a_collective_hear_at_once_who_is_lost() {
    for (size, lost) in [(5, 3), (5, 4), (8, 1), (13, 9), (13, 0)] {
        for count in [1, 100, 9_000] {
            let told = errors_at_once(size, Some(lost), |world| {
                world.all_reduce(Combine::Sum, &mut vec![1_u64; count])
            });
            for (rank, told) in (0..).zip(told) {
                let wanted = (rank != lost).then_some(Err(Error::Lost(lost)));
                assert_eq!(told, wanted, "rank {rank} of {size}, {count} values");
            }
            let told = errors_at_once(size, Some(lost), |world| {
                world.reduce(Combine::Sum, size - 1, &mut vec![1_u64; count])
            });
            for (rank, told) in (0..).zip(told) {
                let wanted = (rank != lost).then_some(Err(Error::Lost(lost)));
                assert_eq!(told, wanted, "rank {rank} of {size}, {count} values");
            }
        }
    }
    // In a broadcast those that get the data by way of the lost rank.
    let told = errors_at_once(8, Some(4), |world| world.broadcast(0, &mut [1_u64; 3]));
    assert_eq!(told[5..], [Some(Err(Error::Lost(4))); 3]);
}

#[test]
fn lengths_that_differ_are_an_error_of_every_rank() {
    // Values of the others and of one, of 8 bytes: both go by messages, one by exchanges, both.
    for (count, other) in [
        (100, 99),
        (100, 0),
        (1, 100),
        (5_000, 2_500),
        (2_500, 5_000),
        (5_000, 6_000),
        (5_000, 0),
    ] {
        for (size, odd) in [(2, 1), (5, 3), (5, 0), (5, 4), (8, 6)] {
            let mine = |world: World| match world.rank() == odd {
                true => vec![1_u64; other],
                false => vec![1_u64; count],
            };
            let case = format!("{count} values, {other} at rank {odd} of {size}");
            let reduced = errors_at_once(size, None, |world| {
                let first = world.all_reduce(Combine::Sum, &mut mine(world));
                // Nothing is left that the next one takes for its own.
                let mut sum = [u64::from(world.rank()); 2];
                world.all_reduce(Combine::Sum, &mut sum).unwrap();
                assert_eq!(sum, [u64::from(size * (size - 1) / 2); 2]);
                let mut sums = vec![1_u64; 5_000];
                world.all_reduce(Combine::Sum, &mut sums).unwrap();
                assert!(sums.iter().all(|&sum| sum == u64::from(size)));
                first
            });
            for (rank, told) in reduced.into_iter().enumerate() {
                assert!(
                    matches!(told, Some(Err(Error::Mismatch(_)))),
                    "all_reduce: rank {rank}: {told:?}, {case}"
                );
            }
            let reduced = errors_at_once(size, None, |world| {
                world.reduce(Combine::Sum, 0, &mut mine(world))
            });
            for (rank, told) in reduced.into_iter().enumerate() {
                assert!(
                    matches!(told, Some(Err(Error::Mismatch(_)))),
                    "reduce: rank {rank}: {told:?}, {case}"
                );
            }
            let root = 0;
            let sent = errors_at_once(size, None, |world| {
                let first = world.broadcast(root, &mut mine(world));
                let mut data = [u64::from(world.rank()) + 1];
                world.broadcast(root, &mut data).unwrap();
                let mut large = vec![u64::from(world.rank()); 5_000];
                world.broadcast(size - 1, &mut large).unwrap();
                assert!(large.iter().all(|&value| value == u64::from(size - 1)) && data == [1]);
                first
            });
            let from_root = if odd == root { other } else { count };
            for (rank, told) in (0..).zip(sent) {
                let is_other = (rank == odd) != (odd == root);
                let fails = match from_root * 8 < 32 * 1024 {
                    // Who has it has it.
                    true => is_other,
                    false => true,
                };
                match fails {
                    true => assert!(
                        matches!(told, Some(Err(Error::Mismatch(_)))),
                        "broadcast: rank {rank}: {told:?}, {case}"
                    ),
                    false => assert!(
                        told.is_some_and(|told| rank != root || told.is_ok()),
                        "broadcast: rank {rank}, {case}"
                    ),
                }
            }
        }
    }
}

#[test]
fn a_message_is_looked_at_kept_let_go_and_received() {
    let results = run(3, |world| {
        if world.rank() > 0 {
            world.send(0, 7, &[world.rank(); 3])?;
            return world.send_synchronous(0, 8, &[world.rank()]);
        }
        assert_eq!(world.try_probe(Some(1), Some(9))?, None);
        let found = world.probe(Some(2), None)?;
        assert_eq!((found.rank, found.tag, found.bytes), (2, 7, 12));
        let message = world.claim(Some(2), Some(7))?;
        assert_eq!(message.found(), found);
        assert!(world.try_claim(Some(2), Some(7))?.is_none());
        drop(message);
        let message = world.claim(Some(2), Some(7))?;
        let mut values = [0_u32; 4];
        let received = message.receive(&mut values)?;
        assert_eq!((received.rank, received.tag, received.count), (2, 7, 3));
        assert_eq!(values, [2, 2, 2, 0]);
        // One that does not fit is gone.
        let message = world.claim(Some(1), Some(7))?;
        let error = message.receive(&mut values[..1]).unwrap_err();
        assert!(matches!(
            error,
            Error::TooLong {
                bytes: 12,
                rank: 1,
                tag: 7
            }
        ));
        assert!(world.try_probe(Some(1), Some(7))?.is_none());
        for _ in 0..2 {
            world.receive_any(None, Some(8), &mut values[..1])?;
        }
        // Nobody is left.
        assert!(matches!(world.probe(None, None), Err(Error::Lost(_))));
        Ok(())
    });
    assert_eq!(results, [Ok(()); 3]);
}
