//! Who wants a cast, and what becomes of it when somebody does not any more.
//!
//! A content has one cast at a time, so clients and jobs that want it on other nodes join the one that is under way.
//! Each may leave again: the cast goes on for the others, and is cancelled with the last of them.
//!
//! Neighbours: `api::casts` (clients), `for_jobs` (jobs).
//!
//! Invariants: who leaves takes no node from another; a node that nobody wants it on any more lets go of it at the end
//! of the cast, if it did not hold it before.

use std::collections::BTreeSet;

use netstack::time::Instant;

use super::cast::{Asker, Cast, Fate, What};
use super::order::{NotUnderWay, Order, Refused};
use super::{CASTS_ON_NODE_MAX, Casts};

impl Casts {
    /// The number of a client's request.
    pub fn next_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// An order for a content that is being cast joins that cast; its number.
    ///
    /// # Errors
    /// It is to be cast in another way.
    pub(super) fn join(&mut self, now: Instant, id: u64, order: &Order) -> Result<u64, Refused> {
        let cast = self.under_way.get_mut(&id).expect("found by its number");
        let same_scheme = order.scheme.is_none_or(|scheme| scheme == cast.scheme);
        let same_rate = order.rate.is_none_or(|rate| rate == cast.rate);
        if !same_scheme || !same_rate {
            return Err(Refused::OtherTerms {
                name: cast.what.name(),
                id,
                scheme: cast.scheme.word(),
                rate: cast.rate,
            });
        }
        // It is not one job's alone any more, which is what its protocol and the store are told.
        cast.belongs_to_many(order.what.job());
        let wanted = cast.askers.entry(order.asker).or_default();
        wanted.extend(order.nodes.iter().copied());
        cast.unwanted.retain(|node| !order.nodes.contains(node));
        self.add_nodes(now, id, &order.nodes, order.patient);
        Ok(id)
    }

    /// Somebody does not want a cast any more. Whether it goes on, for others.
    ///
    /// # Errors
    /// There is no such cast, or it is over.
    pub fn withdraw(
        &mut self,
        now: Instant,
        id: u64,
        asker: Asker,
        why: &str,
    ) -> Result<bool, NotUnderWay> {
        let Some(cast) = self.under_way.get_mut(&id) else {
            return self.cancel(now, id, why).map(|()| false);
        };
        let Some(nodes) = cast.askers.remove(&asker) else {
            // Of an earlier run of control, or withdrawn before.
            if cast.askers.is_empty() {
                self.cancel(now, id, why)?;
            }
            return Ok(self
                .under_way
                .get(&id)
                .is_some_and(|cast| cast.cancelled.is_none()));
        };
        if cast.askers.is_empty() {
            self.cancel(now, id, why)?;
            return Ok(false);
        }
        cast.leave(&nodes);
        self.write_down(id);
        self.end_if_settled(now, id);
        self.changed();
        Ok(true)
    }

    /// Whether a cast has to wait: one of the nodes that lack it has a part in as many as it takes. What jobs have cast does not
    /// wait, since they do.
    pub(super) fn is_held_up(&self, cast: &Cast) -> bool {
        cast.what.is_file()
            && cast.those(|fate| *fate == Fate::Coming).iter().any(|node| {
                let others = self.under_way.values();
                let on_it = others.filter(|other| {
                    other.wire.is_some() && other.id != cast.id && other.nodes.contains_key(node)
                });
                on_it.count() >= CASTS_ON_NODE_MAX
            })
    }

    /// Casts that had to wait for others to end are announced, as far as there is room for them now.
    pub(super) fn announce_next(&mut self, now: Instant) {
        let waits = |cast: &&Cast| {
            let coming = cast.nodes.values().any(|fate| *fate == Fate::Coming);
            cast.wire.is_none()
                && cast.cancelled.is_none()
                && cast.holds_until_us.is_none()
                && coming
        };
        let waiting: Vec<u64> = self
            .under_way
            .values()
            .filter(waits)
            .map(|cast| cast.id)
            .collect();
        for id in waiting {
            self.announce_late(now, id);
            self.end_if_settled(now, id);
        }
    }
}

impl Cast {
    /// It is this job's and others'.
    fn belongs_to_many(&mut self, joins: Option<u64>) {
        if let What::File { job, .. } = &mut self.what
            && *job != joins
        {
            *job = None;
        }
    }

    /// Takes out the nodes on which nobody else wants it.
    fn leave(&mut self, nodes: &BTreeSet<u32>) {
        for node in nodes {
            if self.askers.values().any(|wanted| wanted.contains(node)) {
                continue;
            }
            let fate = self.nodes.remove(node);
            if matches!(fate, Some(Fate::Coming | Fate::Done)) {
                self.unwanted.insert(*node);
            }
        }
    }
}
