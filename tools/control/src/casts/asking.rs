//! Who wants a cast, and what becomes of it when somebody does not any more.
//!
//! A content has one cast at a time, so clients and jobs that want it on other nodes join the one
//! that is under way. Each may leave again: the cast goes on for the others, and is cancelled with
//! the last of them.
//!
//! Neighbours: `api::casts` (clients), `for_jobs` (jobs).
//!
//! Invariants: who leaves takes no node from another (those who asked an earlier run of control are
//! one to this); a node that nobody wants it on any more lets go of it at the end of the cast, if
//! it did not hold it before.

use std::collections::BTreeSet;

use netstack::time::Instant;

use super::Casts;
use super::cast::{Asker, Cast, Fate, What};
use super::order::{NotUnderWay, Order, Refused};
use crate::clock;
use crate::programs::Hash;

/// Clients and jobs that wait for one content at once.
const ASKERS_MAX: usize = 1024;

impl Casts {
    /// The number of a client's request.
    pub fn next_request(&mut self) -> u64 {
        self.next_request += 1;
        self.next_request
    }

    /// An order for a content that is being cast joins that cast.
    pub(super) fn join(&mut self, now: Instant, id: u64, order: &Order) {
        let Some(cast) = self.under_way.get_mut(&id) else {
            return;
        };
        // It is not one job's alone any more, which is what its protocol and the store are told.
        cast.belongs_to_many(order.what.job());
        cast.make_place();
        let wanted = cast.askers.entry(order.asker).or_default();
        wanted.extend(order.nodes.iter().copied());
        for node in &order.nodes {
            // This cast has brought it there, and takes it back where it is cancelled.
            let again = cast.unwanted.remove(node);
            if again && self.files.holds(*node, &cast.described.object.id) {
                cast.nodes.insert(*node, Fate::Done);
            }
        }
        self.add_nodes(now, id, &order.nodes, order.patient);
    }

    /// Nodes do not let go of a file at the end of a cast that was cancelled: somebody wants it
    /// there.
    pub(super) fn spare(&mut self, nodes: &[u32], object: &Hash) {
        let mut again = None;
        for cast in self.under_way.values_mut() {
            if cast.described.object.id == *object && cast.cancelled.is_some() {
                cast.spared.extend(nodes);
                cast.unwanted.retain(|node| !nodes.contains(node));
                again = Some((cast.what.name(), cast.described.object.bytes));
            }
        }
        // Its name went when the cast was cancelled. Where another content has taken it, this one
        // goes without.
        if let Some((name, bytes)) = again
            && self.files.names_of(object).is_empty()
        {
            let _ = self.files.name(&name, *object, bytes, clock::unix_us());
        }
    }

    /// Whether a cast under way has brought a file to this node, and could take it back.
    pub(super) fn is_given(&self, node: u32, object: &Hash) -> bool {
        self.under_way.values().any(|cast| {
            let done = cast.nodes.get(&node) == Some(&Fate::Done);
            let is_it = cast.what.is_file() && cast.described.object.id == *object;
            is_it && cast.cancelled.is_none() && (done || cast.unwanted.contains(&node))
        })
    }

    /// Jobs that wait for a file have it perhaps, though others still wait for it.
    pub(super) fn hear(&mut self, now: Instant, id: u64) {
        if let Some(cast) = self.under_way.get(&id) {
            let vain = self.waits.heard(cast, false, &mut self.outcomes);
            self.take_back(now, vain);
        }
    }

    /// Jobs wait in vain: their other casts are for nobody.
    pub(super) fn take_back(&mut self, now: Instant, vain: Vec<(u64, BTreeSet<u64>)>) {
        for (job, casts) in vain {
            for id in casts {
                // Cannot fail but where it is over.
                let _ = self.withdraw(now, id, Asker::Job(job), "its job has ended");
            }
        }
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
        let own = cast.askers.remove(&asker);
        // Who asked an earlier run of control has a number of that run.
        let earlier = matches!(asker, Asker::Request(number) if number < self.first_request);
        let nodes = own.or_else(|| {
            let earlier = earlier.then_some(Asker::Earlier)?;
            cast.askers.remove(&earlier)
        });
        if cast.askers.is_empty() {
            self.cancel(now, id, why)?;
            return Ok(false);
        }
        let goes_on = cast.cancelled.is_none();
        cast.leave(&nodes.unwrap_or_default());
        // Those that go on have it already: nothing more is to be sent.
        if let Some(wire) = cast.wire.filter(|_| cast.is_settled()) {
            self.source.cancel(now, wire);
        }
        self.write_down(id);
        self.end_if_settled(now, id);
        self.announce_next(now);
        self.changed();
        Ok(goes_on)
    }
}

impl Cast {
    /// Whether an order for the same content can join it.
    ///
    /// # Errors
    /// It is to be cast in another way, or too many want it.
    pub(super) fn can_be_joined(&self, order: &Order) -> Result<(), Refused> {
        let same_scheme = order.scheme.is_none_or(|scheme| scheme == self.scheme);
        let same_rate = order.rate.is_none_or(|rate| rate == self.rate);
        if !same_scheme || !same_rate {
            return Err(Refused::OtherTerms {
                name: self.what.name(),
                id: self.id,
                scheme: self.scheme.word(),
                rate: self.rate,
            });
        }
        let waiting = || {
            let askers = self.askers.values();
            askers.filter(|nodes| !self.has_served(nodes)).count()
        };
        if self.askers.len() >= ASKERS_MAX && waiting() >= ASKERS_MAX {
            return Err(Refused::TooManyAskers(ASKERS_MAX, self.id));
        }
        Ok(())
    }

    /// None of these nodes is waited for.
    fn has_served(&self, nodes: &BTreeSet<u32>) -> bool {
        let waits = |node| matches!(self.nodes.get(node), Some(Fate::Coming | Fate::Absent));
        !nodes.iter().any(waits)
    }

    /// Where there are as many askers as there can be, those that have it are one from now on.
    fn make_place(&mut self) {
        if self.askers.len() < ASKERS_MAX {
            return;
        }
        let askers = std::mem::take(&mut self.askers);
        for (asker, nodes) in askers {
            let asker = match self.has_served(&nodes) {
                true => Asker::Served,
                false => asker,
            };
            self.askers.entry(asker).or_default().extend(nodes);
        }
    }

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
            if self.held_up.remove(node) {
                continue;
            }
            // One that failed may have got all of it without having been heard.
            if matches!(fate, Some(Fate::Coming | Fate::Done | Fate::Failed(_))) {
                self.unwanted.insert(*node);
            }
        }
    }
}
