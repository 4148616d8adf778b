//! Collective operations of which a part fails: whoever has begun hears why, and the next operation
//! is as good as any.

use std::sync::Mutex;
use std::time::Duration;

use super::COLLECTIVE;
use super::messages::{Kind, Messages};
use crate::call::{Shortage, lack, run};
use crate::{Combine, Error, World};

/// Values of 8 bytes that go by exchanges.
const MANY: usize = 9_000;
/// Requests of the program of which none ever finishes.
const IDLE: usize = hearth_abi::exchange::OUTSTANDING_MAX as usize - 1;

/// What each rank's `act` gives; no rank ends before all have it, but one that is `ended`.
fn results(
    size: u32,
    ended: Option<u32>,
    act: impl Fn(World) -> Result<(), Error> + Sync,
) -> Vec<Option<Result<(), Error>>> {
    let told = Mutex::new(vec![None; size as usize]);
    run(size, |world| {
        let me = world.rank();
        let result = act(world);
        if ended == Some(me) {
            return;
        }
        told.lock().unwrap()[me as usize] = Some(result);
        let missing = || {
            let told = told.lock().unwrap();
            (0..size).any(|rank| ended != Some(rank) && told[rank as usize].is_none())
        };
        // Nobody must need the end of another to get its own.
        for _ in 0..1_000 {
            if !missing() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("not all have heard: {:?}", told.lock().unwrap());
    });
    told.into_inner().unwrap()
}

/// All ranks but one swap blocks: the exchanges of all must have the same number.
fn swap_blocks_without(world: World, left_out: Option<u32>) {
    let (me, size) = (world.rank(), world.size());
    let counts: Vec<usize> = (0..size)
        .map(|rank| usize::from(left_out != Some(rank)))
        .collect();
    let others = || (0..size).filter(|rank| left_out != Some(*rank));
    let send: Vec<u32> = others().map(|to| me * 100 + to).collect();
    let mut receive = vec![0; send.len()];
    let swapped = world.all_to_all_v(&send, &counts, &mut receive, &counts);
    assert_eq!(swapped, Ok(()), "rank {me}");
    let expected: Vec<u32> = others().map(|from| from * 100 + me).collect();
    assert_eq!(receive, expected, "rank {me}");
}

#[test]
fn a_large_broadcast_names_the_lost_rank_everywhere_and_the_others_go_on() {
    for (size, root, lost) in [(8, 0, 4), (8, 0, 7), (8, 5, 0), (5, 1, 2), (4, 0, 2)] {
        let told = results(size, Some(lost), |world| {
            if world.rank() == lost {
                return Ok(());
            }
            // All know that it has ended, the root too.
            assert_eq!(world.receive(lost, 1, &mut [0_u8]), Err(Error::Lost(lost)));
            let result = world.broadcast(root, &mut vec![1_u64; MANY]);
            swap_blocks_without(world, Some(lost));
            result
        });
        for (rank, told) in (0..).zip(told) {
            let wanted = (rank != lost).then_some(Err(Error::Lost(lost)));
            assert_eq!(
                told, wanted,
                "rank {rank} of {size}, root {root}, lost {lost}"
            );
        }
    }
}

#[test]
fn exchanges_count_alike_when_a_rank_dies_between_two_messages() {
    let told = results(4, Some(0), |world| {
        if world.rank() == 0 {
            let bytes = ((MANY * size_of::<u64>()) as u64).to_le_bytes();
            return Messages::new(world, Kind::Reduce).swap(1, true, &bytes, &mut [0; 8]);
        }
        let result = world.all_reduce(Combine::Sum, &mut vec![1_u64; MANY]);
        swap_blocks_without(world, Some(0));
        result
    });
    assert_eq!(told[1..], [Some(Err(Error::Lost(0))); 3]);
}

#[test]
fn exchanges_count_alike_when_a_rank_has_no_room_for_its_message() {
    let stuck = |world: World, rank: u32| {
        if world.rank() == rank {
            lack(Shortage::Stuck(Duration::from_millis(50)));
        }
    };
    let told = results(8, None, |world| {
        stuck(world, 4);
        let result = world.broadcast(0, &mut vec![1_u64; MANY]);
        swap_blocks_without(world, None);
        result
    });
    for (rank, told) in told.into_iter().enumerate() {
        let wanted = if rank == 4 {
            Error::TooMany
        } else {
            Error::Withdrawn(4)
        };
        assert_eq!(told, Some(Err(wanted)), "rank {rank}");
    }
    let told = results(6, None, |world| {
        stuck(world, 3);
        let result = world.all_reduce(Combine::Sum, &mut vec![1_u64; MANY]);
        swap_blocks_without(world, None);
        result
    });
    for (rank, told) in told.into_iter().enumerate() {
        let wanted = if rank == 3 {
            Error::TooMany
        } else {
            Error::Withdrawn(3)
        };
        assert_eq!(told, Some(Err(wanted)), "rank {rank}");
    }
}

#[test]
fn an_exchange_that_cannot_be_posted_counts_all_the_same() {
    for poor in [0, 3] {
        let told = results(4, None, |world| {
            lack(Shortage::Exchanges(world.rank() == poor));
            let result = world.broadcast(0, &mut vec![1_u64; MANY]);
            let reduced = world.all_reduce(Combine::Sum, &mut vec![1_u64; MANY]);
            assert_eq!(result, reduced, "rank {}", world.rank());
            lack(Shortage::Exchanges(false));
            swap_blocks_without(world, None);
            result
        });
        for (rank, told) in (0..).zip(told) {
            let wanted = match rank == poor {
                true => Error::NoMemory,
                false => Error::Withdrawn(poor),
            };
            assert_eq!(told, Some(Err(wanted)), "rank {rank}");
        }
    }
}

/// Runs `act` with so many requests outstanding.
fn with_idle(world: World, act: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
    let mut rooms = vec![[0_u8]; IDLE];
    let mut result = Ok(());
    let other = (world.rank() + 1) % world.size();
    let ended: Result<(), Error> = world.scope(|scope| {
        for room in &mut rooms {
            scope.receive(other, 99, room).map(drop)?;
        }
        result = act();
        Err(Error::Cancelled)
    });
    assert_eq!(ended, Err(Error::Cancelled));
    result
}

#[test]
fn one_free_request_is_enough_to_send_to_all_in_turn() {
    for size in [3, 5, 8] {
        let told = results(size, None, |world| {
            let mut data = [u64::from(world.rank()); 100];
            let result = match world.rank() {
                0 => with_idle(world, || world.broadcast(0, &mut data)),
                _ => world.broadcast(0, &mut data),
            };
            assert_eq!(data, [0; 100], "rank {}", world.rank());
            result
        });
        assert!(told.iter().all(|told| *told == Some(Ok(()))), "{told:?}");
    }
}

#[test]
fn who_waits_for_a_rank_without_requests_hears_of_it() {
    let told = results(4, None, |world| {
        let mut data = [1_u64; 100];
        match world.rank() {
            0 => with_idle(world, || world.all_reduce(Combine::Sum, &mut data)),
            _ => world.all_reduce(Combine::Sum, &mut data),
        }
    });
    // Two requests are needed. Rank 1 may have the message, and with rank 3 all that it needs.
    assert_eq!(told[0], Some(Err(Error::TooMany)));
    assert_eq!(told[2], Some(Err(Error::Withdrawn(0))), "{told:?}");
}

#[test]
fn who_waits_for_its_message_to_be_taken_hears_that_the_other_has_given_up() {
    // 2,000 bytes: longer than what is copied.
    let told = results(2, None, |world| {
        if world.rank() == 1 {
            lack(Shortage::Stuck(Duration::from_millis(100)));
        }
        world.all_reduce(Combine::Sum, &mut [1_u64; 250])
    });
    assert_eq!(told[0], Some(Err(Error::Withdrawn(1))));
    assert_eq!(told[1], Some(Err(Error::TooMany)));
}

#[test]
fn a_reason_is_found_by_a_rank_that_comes_late() {
    let told = results(4, None, |world| {
        match world.rank() {
            // There is no room for copies, so nothing has left when these ranks give up waiting.
            0 | 1 => lack(Shortage::Copies),
            2 => std::thread::sleep(Duration::from_millis(2_500)),
            _ => {}
        }
        let count = if world.rank() == 0 { 50 } else { 100 };
        world.all_reduce(Combine::Sum, &mut vec![1_u64; count])
    });
    for (rank, told) in told.into_iter().enumerate() {
        let is_told = matches!(told, Some(Err(Error::Mismatch(_))));
        assert!(is_told, "rank {rank}: {told:?}");
    }
}

#[test]
fn a_reason_that_nobody_has_read_is_not_one_of_a_later_operation() {
    // So many operations later their numbers have the same low bits.
    const LATER: u32 = 4_096;
    let sums = run(2, |world| {
        let unequal = world.all_reduce(Combine::Sum, &mut vec![1_u64; 1 + world.rank() as usize]);
        assert_eq!(unequal, Err(Error::Mismatch(1 - world.rank())));
        // Rank 0 reads nothing of rank 1 in these.
        for _ in 1..LATER {
            world.broadcast(0, &mut [0_u8]).unwrap();
        }
        let mut sum = [world.rank() + 1];
        world.all_reduce(Combine::Sum, &mut sum).map(|()| sum)
    });
    assert_eq!(sums, [Ok([3]); 2]);
}

#[test]
fn a_reason_that_may_not_stay_is_taken_back() {
    let sums = run(2, |world| {
        if world.rank() == 0 {
            // Its reason does not leave before somebody reads it, and as many stay as may.
            lack(Shortage::Copies);
            lack(Shortage::Stays);
        }
        let unequal = world.all_reduce(Combine::Sum, &mut vec![1_u64; 1 + world.rank() as usize]);
        assert_eq!(unequal, Err(Error::Mismatch(1 - world.rank())));
        if world.rank() == 1 {
            std::thread::sleep(Duration::from_millis(1_500));
        }
        let mut sum = [world.rank() + 1];
        world.all_reduce(Combine::Sum, &mut sum).map(|()| sum)
    });
    // That nothing is left outstanding is looked at when a rank ends.
    assert_eq!(sums, [Ok([3]); 2]);
}

#[test]
fn rows_and_columns_of_a_grid_exchange() {
    for (rows, columns) in [(1, 1), (2, 2), (2, 3), (3, 2)] {
        run(rows * columns, |world| {
            let (row, column) = (world.rank() / columns, world.rank() % columns);
            let of_row: Vec<u32> = (0..columns).rev().map(|at| row * columns + at).collect();
            let of_column: Vec<u32> = (0..rows).map(|at| at * columns + column).collect();
            for (ranks, context) in [(&of_row, 1), (&of_column, 2)] {
                let group = world.group(ranks, context).unwrap();
                let send: Vec<u32> = ranks.iter().map(|to| world.rank() * 100 + to).collect();
                let mut receive = vec![0; ranks.len()];
                group.all_to_all(&send, &mut receive).unwrap();
                let wanted = ranks.iter().map(|from| from * 100 + world.rank());
                assert!(receive.into_iter().eq(wanted));
                group.barrier().unwrap();
                assert_eq!(
                    group.all_to_all(&[0_u8; 7], &mut [0_u8; 6]),
                    Err(Error::Invalid)
                );
            }
            let other = [world.rank() + 1];
            assert_eq!(world.group(&other, 1).err(), Some(Error::Invalid));
            assert_eq!(world.group(&of_row, COLLECTIVE).err(), Some(Error::Invalid));
            assert_eq!(world.group(&of_row, 0).err(), Some(Error::Invalid));
        });
    }
}
