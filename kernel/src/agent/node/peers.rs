//! What the node sends to other nodes: casts and the exchange share the card's transmit ring.
//!
//! Neighbours: `agent::cast` and `agent::exchange` say what is to be sent, [`super`] when to look.
//!
//! Invariant: neither keeps the other from sending, however much it has.

use netstack::ids::Rank;
use netstack::node::Endpoint;
use netstack::time::Instant;

use super::Node;
use crate::agent::cast::store::Places;
use crate::agent::services::PeerLookup;
use crate::net;

/// Datagrams to peers that one [`Node::send_due`] hands to the card: a ring full. What is left is
/// due at once, after a look at what has arrived.
const PEER_SENDS_MAX: usize = 256;
/// Of these, datagrams of the exchange that go before those of casts in every second turn. Casts
/// may have more to send than the card takes, and a node that answers nobody is lost to its job.
const EXCHANGE_FIRST: usize = 1;

impl Node {
    /// Stops the network cards for good.
    pub fn quiesce(&mut self) {
        self.stack.quiesce();
    }

    /// Hands the card what the exchange and casts have to send, as far as its ring has room. Where
    /// that is for one datagram at a time they take turns.
    pub(super) fn transmit_to_peers(&mut self, now: Instant) {
        self.ring_full = false;
        self.exchange_leads = !self.exchange_leads;
        if self.exchange_leads {
            self.transmit_exchange(now, EXCHANGE_FIRST);
        }
        let mut places = Places {
            objects: &mut self.objects,
            warm: &mut self.warm,
            running: self.running.as_ref(),
        };
        let pages = self.endpoint.as_ref().map_or(0, Endpoint::page_fragments);
        self.casts.leave_room(pages);
        let (stack, buffer) = (&mut self.stack, &mut self.buffer);
        self.ring_full |= self.casts.transmit(now, stack, buffer, &mut places);
        self.transmit_exchange(now, PEER_SENDS_MAX - EXCHANGE_FIRST);
    }

    /// Hands the card so many datagrams of the exchange at most.
    fn transmit_exchange(&mut self, now: Instant, most: usize) {
        let (stack, buffer) = (&mut self.stack, &mut self.buffer);
        let (tables, objects) = (self.casts.tables(), &self.objects);
        let job = self.exchange.job().filter(|job| tables.of(*job).is_some());
        if let Some(rate) = job.and_then(|job| tables.rate(job)) {
            self.exchange.set_link(now, rate);
        }
        if let Some(job) = job.filter(|_| !self.exchange.knows_leaf()) {
            self.exchange
                .set_leaf(tables.leaf(job, objects).unwrap_or(0));
        }
        let look_up = job.map(|job| move |rank: Rank| tables.entry(job, rank, objects));
        let table = look_up
            .as_ref()
            .map(|look_up| look_up as &dyn Fn(Rank) -> PeerLookup);
        for _ in 0..most {
            if !stack.can_send_peer() {
                let due = self.exchange.poll_timeout(table.is_some());
                self.ring_full |= due.is_some_and(|at| at <= now);
                break;
            }
            let Some((to, length)) = self.exchange.poll_transmit(now, buffer, table) else {
                break;
            };
            stack.send_peer(to.address, to.mac, &buffer[..length]);
        }
    }

    /// When casts and the exchange must be looked after; with a full transmit ring not at once.
    pub(super) fn peers_timeout(&self, now: Instant) -> Option<Instant> {
        let job = self.exchange.job();
        let has_table = job.is_some_and(|job| self.casts.tables().of(job).is_some());
        let exchange = self.exchange.poll_timeout(has_table);
        let dues = [self.casts.poll_timeout(), exchange];
        let due = dues.into_iter().flatten().min()?;
        Some(match self.ring_full {
            true => due.max(now + net::TRANSMIT_RETRY),
            false => due,
        })
    }
}
