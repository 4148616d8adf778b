//! Calls that wait for a worker: those of all ranks in turn.
//!
//! Invariant: a rank has at most [`MOST_RUNNING`] calls at the worker, however slow they are; the
//! worker has threads for the calls of others meanwhile.

use std::collections::{BTreeMap, VecDeque};

use netstack::ids::Rank;

/// Calls of one rank that a worker has at a time. Two ranks whose disk does not answer leave half
/// of a worker's threads to the others.
pub const MOST_RUNNING: usize = 4;

/// Calls that a worker has not been given yet.
#[derive(Debug, Default)]
pub struct Queue {
    ranks: BTreeMap<Rank, Calls>,
    /// Ranks that have a call waiting and may have one more running, each once.
    ready: VecDeque<Rank>,
}

#[derive(Debug, Default)]
struct Calls {
    waiting: VecDeque<Vec<u8>>,
    running: usize,
}

impl Calls {
    fn is_ready(&self) -> bool {
        !self.waiting.is_empty() && self.running < MOST_RUNNING
    }
}

impl Queue {
    /// A call of a rank, as a packet.
    pub fn push(&mut self, rank: Rank, packet: Vec<u8>) {
        let calls = self.ranks.entry(rank).or_default();
        let was_ready = calls.is_ready();
        calls.waiting.push_back(packet);
        if !was_ready && calls.is_ready() {
            self.ready.push_back(rank);
        }
    }

    /// The call that the worker is to have next.
    pub fn front(&self) -> Option<&[u8]> {
        let calls = self.ranks.get(self.ready.front()?)?;
        calls.waiting.front().map(Vec::as_slice)
    }

    /// The worker has what [`Self::front`] is.
    pub fn pop(&mut self) {
        let Some(rank) = self.ready.pop_front() else {
            return;
        };
        let Some(calls) = self.ranks.get_mut(&rank) else {
            return;
        };
        calls.waiting.pop_front();
        calls.running += 1;
        if calls.is_ready() {
            self.ready.push_back(rank);
        }
    }

    /// The worker has carried a call of this rank out.
    pub fn done(&mut self, rank: Rank) {
        let Some(calls) = self.ranks.get_mut(&rank) else {
            return;
        };
        let was_ready = calls.is_ready();
        calls.running = calls.running.saturating_sub(1);
        if !was_ready && calls.is_ready() {
            self.ready.push_back(rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(queue: &mut Queue, most: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < most
            && let Some(packet) = queue.front()
        {
            all.push(packet[0]);
            queue.pop();
        }
        all
    }

    #[test]
    fn ranks_take_turns_and_none_takes_every_thread() {
        let mut queue = Queue::default();
        for number in 0..10 {
            queue.push(Rank(0), vec![number]);
        }
        queue.push(Rank(1), vec![100]);
        queue.push(Rank(2), vec![200]);
        // Four of rank 0, and the others in between.
        assert_eq!(taken(&mut queue, 99), [0, 100, 200, 1, 2, 3]);
        queue.push(Rank(1), vec![101]);
        assert_eq!(taken(&mut queue, 99), [101]);
        queue.done(Rank(0));
        queue.done(Rank(0));
        assert_eq!(taken(&mut queue, 99), [4, 5]);
        for _ in 0..4 {
            queue.done(Rank(0));
        }
        assert_eq!(taken(&mut queue, 99), [6, 7, 8, 9]);
        assert_eq!(queue.front(), None);
    }
}
