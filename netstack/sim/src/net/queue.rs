//! The event queue: a wheel of short time slots, with a heap for what lies beyond it.
//!
//! A run of 16,512 nodes has some hundred million events, a hundred thousand of them waiting at any
//! time and nearly all within a few tens of microseconds. A slot takes such an event without
//! comparing it with any other; only the slot that is due is sorted. Timers that lie further away
//! wait in a heap until the wheel comes to them. No event allocates: chunks of a few entries live
//! in a slab.
//!
//! Key type: [`Queue`]. Neighbour: [`super::Net`] pops from it.
//!
//! Invariant: events come out in the order of their times; of equal times the one whose number of
//! order is smaller comes first. The order is a function of the pushes alone.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Slots of the wheel: a power of two, and a multiple of 64 * 64 for the two levels of bitmaps.
const SLOTS: usize = 1 << 16;
/// End of a list of chunks.
const NONE: u32 = u32::MAX;
/// Entries of a chunk: with them it fills three lines of the cache.
const CHUNK: usize = 7;

/// An event, its time and its place among the events of that time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry<T> {
    at: u64,
    order: u64,
    item: T,
}

/// A few entries of one slot: read together, where a list of single ones would wait for memory at
/// each.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Chunk<T> {
    length: u32,
    next: u32,
    entries: [Entry<T>; CHUNK],
}

/// Events by time, in nanoseconds.
pub struct Queue<T> {
    /// Binary logarithm of a slot's width in nanoseconds.
    width_log2: u32,
    /// Number of the slot that is open, counted from time 0.
    open: u64,
    /// What is in the open slot and what was pushed for a time before: latest first.
    current: Vec<Entry<T>>,
    heads: Vec<u32>,
    chunks: Vec<Chunk<T>>,
    free: u32,
    /// A bit for every slot that is not empty, and a bit for every word of these.
    occupied: Vec<u64>,
    summary: Vec<u64>,
    in_wheel: usize,
    far: BinaryHeap<Reverse<Entry<T>>>,
    /// Orders given out.
    orders: u64,
}

impl<T: Copy + Ord> Queue<T> {
    /// An empty queue. Slots of `2^width_log2` ns: a few events should fall into one.
    pub fn new(width_log2: u32) -> Self {
        Queue {
            width_log2,
            open: 0,
            current: Vec::new(),
            heads: vec![NONE; SLOTS],
            chunks: Vec::new(),
            free: NONE,
            occupied: vec![0; SLOTS / 64],
            summary: vec![0; SLOTS / 64 / 64],
            in_wheel: 0,
            far: BinaryHeap::new(),
            orders: 0,
        }
    }

    /// Adds an event after all that were pushed for its time. A time that has passed means "now".
    pub fn push(&mut self, at: u64, item: T) {
        let order = self.order();
        self.push_as(at, order, item);
    }

    /// The place that an event pushed now has among those of its time.
    pub fn order(&mut self) -> u64 {
        self.orders += 1;
        self.orders
    }

    /// Adds an event with a place that was taken before with [`Queue::order`].
    pub fn push_as(&mut self, at: u64, order: u64, item: T) {
        let entry = Entry { at, order, item };
        let slot = at >> self.width_log2;
        if slot <= self.open {
            self.push_now(entry);
        } else if slot - self.open < SLOTS as u64 {
            self.push_near(slot, entry);
        } else {
            self.far.push(Reverse(entry));
        }
    }

    /// Takes the next event and its time.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.current.is_empty() {
            self.turn()?;
        }
        self.current.pop().map(|entry| (entry.at, entry.item))
    }

    /// Events that wait.
    pub fn len(&self) -> usize {
        self.current.len() + self.in_wheel + self.far.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn push_now(&mut self, entry: Entry<T>) {
        let place = (self.current)
            .partition_point(|other| (other.at, other.order) > (entry.at, entry.order));
        self.current.insert(place, entry);
    }

    fn push_near(&mut self, slot: u64, entry: Entry<T>) {
        let index = slot as usize % SLOTS;
        self.in_wheel += 1;
        let head = self.heads[index];
        if let Some(chunk) = self.chunks.get_mut(head as usize)
            && (chunk.length as usize) < CHUNK
        {
            chunk.entries[chunk.length as usize] = entry;
            chunk.length += 1;
            return;
        }
        let chunk = Chunk {
            entries: [entry; CHUNK],
            length: 1,
            next: head,
        };
        self.heads[index] = match self.chunks.get_mut(self.free as usize) {
            Some(room) => {
                let place = self.free;
                self.free = room.next;
                *room = chunk;
                place
            }
            None => {
                self.chunks.push(chunk);
                (self.chunks.len() - 1) as u32
            }
        };
        self.occupied[index / 64] |= 1 << (index % 64);
        self.summary[index / 64 / 64] |= 1 << (index / 64 % 64);
    }

    /// Opens the next slot that has something in it.
    fn turn(&mut self) -> Option<()> {
        if self.in_wheel == 0 {
            let Reverse(first) = self.far.peek()?;
            self.open = first.at >> self.width_log2;
            self.come_near();
            if !self.current.is_empty() {
                return Some(());
            }
        }
        let from = (self.open + 1) as usize % SLOTS;
        let index = self.next_occupied(from).expect("the wheel is not empty");
        self.open += 1 + (index + SLOTS - from) as u64 % SLOTS as u64;
        let mut next = std::mem::replace(&mut self.heads[index], NONE);
        while let Some(chunk) = self.chunks.get_mut(next as usize) {
            let entries = &chunk.entries[..chunk.length as usize];
            self.current.extend_from_slice(entries);
            self.in_wheel -= entries.len();
            let here = next;
            next = std::mem::replace(&mut chunk.next, self.free);
            self.free = here;
        }
        self.occupied[index / 64] &= !(1 << (index % 64));
        if self.occupied[index / 64] == 0 {
            self.summary[index / 64 / 64] &= !(1 << (index / 64 % 64));
        }
        (self.current).sort_unstable_by_key(|entry| Reverse((entry.at, entry.order)));
        self.come_near();
        Some(())
    }

    /// Moves what the wheel has come to from the heap.
    fn come_near(&mut self) {
        let horizon = self.open + SLOTS as u64;
        while let Some(&Reverse(entry)) = self.far.peek() {
            let slot = entry.at >> self.width_log2;
            if slot >= horizon {
                return;
            }
            self.far.pop();
            if slot <= self.open {
                self.push_now(entry);
            } else {
                self.push_near(slot, entry);
            }
        }
    }

    /// The first slot with something in it from `from` on, around the wheel.
    fn next_occupied(&self, from: usize) -> Option<usize> {
        let word = from / 64;
        let first = self.occupied[word] & (u64::MAX << (from % 64));
        if first != 0 {
            return Some(word * 64 + first.trailing_zeros() as usize);
        }
        let words = self.occupied.len();
        let word = self
            .next_word(word + 1, words)
            .or_else(|| self.next_word(0, word + 1))?;
        Some(word * 64 + self.occupied[word].trailing_zeros() as usize)
    }

    /// The first word of the bitmap in `from..to` that is not 0.
    fn next_word(&self, from: usize, to: usize) -> Option<usize> {
        let mut word = from;
        while word < to {
            let rest = self.summary[word / 64] & (u64::MAX << (word % 64));
            if rest != 0 {
                let found = word / 64 * 64 + rest.trailing_zeros() as usize;
                return (found < to).then_some(found);
            }
            word = (word / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netstack::rng::Rng;

    #[test]
    fn events_come_in_the_order_of_their_times() {
        for width_log2 in [0, 2, 6, 12] {
            let mut queue = Queue::new(width_log2);
            let mut rng = Rng::new(u64::from(width_log2));
            let (mut now, mut waiting, mut number) = (0, 0_u32, 0_u32);
            for step in 0..200_000_u32 {
                if waiting == 0 || (step < 150_000 && rng.below(2) == 0) {
                    // Near, at once, and far beyond the wheel.
                    let ahead = match rng.below(8) {
                        0 => 0,
                        1 => rng.below(1 << 32),
                        _ => rng.below(30_000),
                    };
                    queue.push(now + ahead, number);
                    number += 1;
                    waiting += 1;
                } else {
                    let (at, _) = queue.pop().unwrap();
                    assert!(at >= now, "{at} after {now}");
                    now = at;
                    waiting -= 1;
                }
                assert_eq!(queue.len(), waiting as usize);
            }
        }
    }

    #[test]
    fn of_equal_times_the_first_pushed_comes_first() {
        let mut queue = Queue::new(4);
        for number in 0..100 {
            queue.push(1_000, number);
        }
        for number in 0..50 {
            assert_eq!(queue.pop(), Some((1_000, number)));
        }
        // Into the slot that is open already, one of them with a place taken before the other's.
        let before = queue.order();
        queue.push(1_000, 101);
        queue.push_as(1_000, before, 100);
        for number in 50..102 {
            assert_eq!(queue.pop(), Some((1_000, number)));
        }
        assert_eq!(queue.pop(), None);
        assert!(queue.is_empty());
    }
}
