//! Control items that wait to be sent; those to one rank share a datagram.
//!
//! Invariant: bounded. What finds no room is dropped: everything that is said here is said again
//! when it is missed.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::message::{Item, MAX_ITEMS};
use crate::ids::Rank;

/// Most items that wait.
const MAX_QUEUED: usize = 8192;
/// Items that are looked at for more to the same rank: of two full datagrams.
const LOOK_AHEAD: usize = 2 * MAX_ITEMS;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Outbox {
    items: VecDeque<(Rank, Item)>,
}

impl Outbox {
    /// Adds an item.
    pub(super) fn push(&mut self, to: Rank, item: Item) {
        if self.items.len() < MAX_QUEUED && self.items.try_reserve(1).is_ok() {
            self.items.push_back((to, item));
        }
    }

    /// Takes the items of the next datagram.
    pub(super) fn pop(&mut self) -> Option<(Rank, Vec<Item>)> {
        let (to, first) = self.items.pop_front()?;
        let mut items = alloc::vec![first];
        let mut at = 0;
        while at < self.items.len().min(LOOK_AHEAD) && items.len() < MAX_ITEMS {
            // What is said twice shall not be lost twice.
            if self.items[at].0 == to && !items.contains(&self.items[at].1) {
                items.extend(self.items.remove(at).map(|(_, item)| item));
            } else {
                at += 1;
            }
        }
        Some((to, items))
    }

    /// Items that wait.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}
