//! Words of memory at which threads wait for each other (futex).
//!
//! | item | what it is |
//! |---|---|
//! | [`Queues`] | who waits at which word of a process |
//! | [`Command`], [`WakeOp`] | what a call asks for |
//! | [`robust`] | what becomes of the mutexes of a thread that ends |
//!
//! Neighbours: `kernel::process` reads and changes the words, and makes threads ready that are
//! woken ([`crate::threads`]).
//!
//! Invariant: a thread waits at one word at most, so that as many wait as there are threads at
//! most. Those of one word are woken in the order in which they came.

mod command;
pub mod robust;

use alloc::vec::Vec;

use crate::threads::Tid;
pub use command::{Command, Timeout, WakeOp, check_address};

#[derive(Clone, Copy, Debug)]
struct Waiter {
    address: u64,
    tid: Tid,
    bitset: u32,
}

/// The threads of a process that wait at words of its memory.
#[derive(Debug, Default)]
pub struct Queues {
    /// In the order in which they came to their word.
    waiters: Vec<Waiter>,
}

impl Queues {
    /// Nobody waits.
    pub const fn new() -> Self {
        Self {
            waiters: Vec::new(),
        }
    }

    /// A thread waits at the word at `address` from now on, for wakers with a bit of `bitset`.
    ///
    /// # Panics
    /// Where it waits at a word already.
    pub fn wait(&mut self, address: u64, tid: Tid, bitset: u32) {
        assert!(!self.holds(tid), "{tid:?} waits at a word already");
        self.waiters.push(Waiter {
            address,
            tid,
            bitset,
        });
    }

    /// Whether a thread waits: it was neither woken nor cancelled.
    pub fn holds(&self, tid: Tid) -> bool {
        self.waiters.iter().any(|waiter| waiter.tid == tid)
    }

    /// Wakes the first `count` that wait at a word with a bit of `bitset`: `woken` hears of each.
    /// The answer is how many they are.
    pub fn wake(
        &mut self,
        address: u64,
        count: u32,
        bitset: u32,
        mut woken: impl FnMut(Tid),
    ) -> u32 {
        let mut done = 0;
        self.waiters.retain(|waiter| {
            let meets = waiter.address == address && waiter.bitset & bitset != 0;
            let is_woken = meets && done < count;
            if is_woken {
                done += 1;
                woken(waiter.tid);
            }
            !is_woken
        });
        done
    }

    /// Wakes the first `wake` that wait at `from`, `woken` hears of each, and has the `requeue`
    /// behind them wait at `to`, behind those who do. The answer is how many are either.
    pub fn requeue(
        &mut self,
        from: u64,
        to: u64,
        (wake, requeue): (u32, u32),
        woken: impl FnMut(Tid),
    ) -> u32 {
        let done = self.wake(from, wake, u32::MAX, woken);
        let here = |waiter: &&Waiter| waiter.address == from;
        let moving = self.waiters.iter().filter(here).count();
        let moving = moving.min(requeue as usize);
        // Those who go from a word to itself keep their places.
        if from != to {
            self.move_first(from, to, moving);
        }
        done + moving as u32
    }

    /// Ends the wait of a thread; `false` where it had been woken before.
    pub fn cancel(&mut self, tid: Tid) -> bool {
        let index = self.waiters.iter().position(|waiter| waiter.tid == tid);
        index.map(|index| self.waiters.remove(index)).is_some()
    }

    /// How many wait.
    pub const fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    pub const fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Puts the first `count` of a word behind all who wait, at another.
    fn move_first(&mut self, from: u64, to: u64, count: usize) {
        let before = self.waiters.len();
        let mut copied = 0;
        for index in 0..before {
            let waiter = self.waiters[index];
            if waiter.address == from && copied < count {
                copied += 1;
                self.waiters.push(Waiter {
                    address: to,
                    ..waiter
                });
            }
        }
        let mut left = count;
        self.waiters.retain(|waiter| {
            let goes = waiter.address == from && left > 0;
            left -= usize::from(goes);
            !goes
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: u32 = u32::MAX;
    const A: u64 = 0x1000;
    const B: u64 = 0x2000;

    fn tid(number: u64) -> Tid {
        Tid::new(number).unwrap()
    }

    fn wake(queues: &mut Queues, address: u64, count: u32, bitset: u32) -> Vec<u32> {
        let mut woken = Vec::new();
        let done = queues.wake(address, count, bitset, |tid| woken.push(tid.number()));
        assert_eq!(done as usize, woken.len());
        woken
    }

    /// Threads 1 to `count` wait at `A`.
    fn waiting(count: u64) -> Queues {
        let mut queues = Queues::new();
        for number in 1..=count {
            queues.wait(A, tid(number), ANY);
        }
        queues
    }

    #[test]
    fn who_came_first_is_woken_first() {
        let mut queues = waiting(3);
        queues.wait(B, tid(4), ANY);
        queues.wait(A, tid(5), ANY);
        assert_eq!(wake(&mut queues, A, 2, ANY), [1, 2]);
        assert_eq!(wake(&mut queues, A, u32::MAX, ANY), [3, 5]);
        assert_eq!(wake(&mut queues, A, 1, ANY), []);
        assert_eq!(queues.len(), 1);
        assert!(queues.holds(tid(4)) && !queues.holds(tid(1)));
    }

    #[test]
    fn a_waker_meets_those_with_a_bit_in_common() {
        let mut queues = Queues::new();
        for (number, bitset) in [(1, 1), (2, 2), (3, 3), (4, 4)] {
            queues.wait(A, tid(number), bitset);
        }
        assert_eq!(wake(&mut queues, A, 9, 2), [2, 3]);
        assert_eq!(wake(&mut queues, A, 9, 2), []);
        assert_eq!(wake(&mut queues, A, 9, ANY), [1, 4]);
    }

    #[test]
    fn a_wait_ends_by_waking_or_by_cancelling() {
        let mut queues = waiting(2);
        assert_eq!(wake(&mut queues, A, 1, ANY), [1]);
        assert!(!queues.cancel(tid(1)), "it was woken");
        assert!(queues.cancel(tid(2)));
        assert!(queues.is_empty() && !queues.cancel(tid(2)));
    }

    #[test]
    #[should_panic(expected = "waits at a word already")]
    fn a_thread_waits_at_one_word() {
        let mut queues = waiting(1);
        queues.wait(B, tid(1), ANY);
    }

    #[test]
    fn a_requeue_wakes_some_and_moves_others() {
        let mut queues = Queues::new();
        queues.wait(B, tid(9), ANY);
        for number in 1..=5 {
            queues.wait(A, tid(number), 4);
        }
        queues.wait(B, tid(8), ANY);
        let mut woken = Vec::new();
        let done = queues.requeue(A, B, (1, 3), |tid| woken.push(tid.number()));
        assert_eq!((done, woken), (4, vec![1]));
        // Behind those who were there, in their order, with their bits.
        assert_eq!(wake(&mut queues, B, 9, 3), [9, 8]);
        assert_eq!(wake(&mut queues, B, 9, ANY), [2, 3, 4]);
        assert_eq!(wake(&mut queues, A, 9, ANY), [5]);
    }

    #[test]
    fn a_requeue_of_none_or_of_all() {
        let mut queues = waiting(3);
        assert_eq!(queues.requeue(A, B, (0, 0), |_| unreachable!()), 0);
        assert_eq!(queues.requeue(B, A, (1, 1), |_| unreachable!()), 0);
        assert_eq!(
            queues.requeue(A, B, (0, i32::MAX as u32), |_| unreachable!()),
            3
        );
        assert_eq!(wake(&mut queues, B, 9, ANY), [1, 2, 3]);
        // To itself: they are counted, and keep their order.
        let mut queues = waiting(4);
        let mut woken = Vec::new();
        assert_eq!(queues.requeue(A, A, (1, 2), |tid| woken.push(tid)), 3);
        assert_eq!(woken, [tid(1)]);
        assert_eq!(wake(&mut queues, A, 9, ANY), [2, 3, 4]);
    }

    proptest! {
        /// As queues of which each is kept by itself.
        #[test]
        fn queues_are_first_in_first_out(
            steps in prop::collection::vec((0..4u8, 0..3usize, 0..3usize, 0..4u32, 1..9u64), 1..80)
        ) {
            let mut queues = Queues::new();
            let mut model: [Vec<u32>; 3] = Default::default();
            for (step, at, to, count, number) in steps {
                let mut woken = Vec::new();
                let note = |tid: Tid| woken.push(tid.number());
                let address = |index: usize| 4 * index as u64;
                let first = model[at].len().min(count as usize);
                match step {
                    0 if !queues.holds(tid(number)) => {
                        queues.wait(address(at), tid(number), ANY);
                        model[at].push(number as u32);
                    }
                    0 => prop_assert!(model.iter().flatten().any(|n| u64::from(*n) == number)),
                    1 => {
                        queues.wake(address(at), count, ANY, note);
                        let expected: Vec<u32> = model[at].drain(..first).collect();
                        prop_assert_eq!(woken, expected);
                    }
                    2 => {
                        queues.requeue(address(at), address(to), (count, count), note);
                        let expected: Vec<u32> = model[at].drain(..first).collect();
                        prop_assert_eq!(woken, expected);
                        if at != to {
                            let second = model[at].len().min(count as usize);
                            let moved: Vec<u32> = model[at].drain(..second).collect();
                            model[to].extend(moved);
                        }
                    }
                    _ => {
                        let was = model.iter().flatten().any(|n| u64::from(*n) == number);
                        prop_assert_eq!(queues.cancel(tid(number)), was);
                        for queue in &mut model {
                            queue.retain(|n| u64::from(*n) != number);
                        }
                    }
                }
                prop_assert_eq!(queues.len(), model.iter().map(Vec::len).sum::<usize>());
            }
            for (at, queue) in model.iter().enumerate() {
                let mut woken = Vec::new();
                queues.wake(4 * at as u64, u32::MAX, ANY, |tid| woken.push(tid.number()));
                prop_assert_eq!(&woken, queue);
            }
        }
    }
}
