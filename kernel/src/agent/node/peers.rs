//! What the node sends to other nodes: casts and the exchange share the card's transmit ring. What
//! ranks of one node send each other goes by memory.
//!
//! Neighbours: `agent::cast` and `exchange` say what is to be sent, [`super`] when to look.
//!
//! Invariant: neither keeps the other from sending, however much it has.

use core::net::SocketAddrV4;

use netstack::ids::{LocalRank, Rank};
use netstack::node::Endpoint;
use netstack::time::Instant;

use super::{Mailbox, Node};
use crate::agent::cast::store::Places;
use crate::exchange::PeerLookup;
use crate::net;
use crate::net::peer::PeerDatagram;

/// Datagrams to peers that one [`Node::send_due`] hands to the card: a ring full. What is left is
/// due at once, after a look at what has arrived.
const PEER_SENDS_MAX: usize = 256;
/// Of these, datagrams of the exchange that go before those of casts in every second turn. Casts
/// may have more to send than the card takes, and a node that answers nobody is lost to its job.
const EXCHANGE_FIRST: usize = 1;
/// How often the ranks of a node have their turn while they have datagrams for each other: what is
/// left then is due at once.
const LOCAL_ROUNDS: usize = 4;

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
            running: self.seats.running(),
        };
        let pages = self.endpoint.as_ref().map_or(0, Endpoint::page_fragments);
        self.casts.leave_room(pages);
        let (stack, buffer) = (&mut self.stack, &mut self.buffer);
        self.ring_full |= self.casts.transmit(now, stack, buffer, &mut places);
        self.transmit_exchange(now, PEER_SENDS_MAX - EXCHANGE_FIRST);
    }

    /// Hands the card so many datagrams of the exchange at most, of each rank in turn. Those for a
    /// rank of this node are handed to it.
    fn transmit_exchange(&mut self, now: Instant, most: usize) {
        let ranks = self.mailbox.as_ref().map_or(1, Mailbox::ranks);
        for _ in 0..LOCAL_ROUNDS {
            let mut handed_over = false;
            for local in LocalRank::first(self.seats.count()) {
                handed_over |= self.transmit_exchange_of(now, local, ranks, most);
            }
            if !handed_over {
                break;
            }
        }
    }

    /// The same of one rank, of so many on this node; whether another one of them got any.
    fn transmit_exchange_of(
        &mut self,
        now: Instant,
        local: LocalRank,
        ranks: u16,
        most: usize,
    ) -> bool {
        let (stack, buffer, seats) = (&mut self.stack, &mut self.buffer, &mut self.seats);
        let (tables, objects) = (self.casts.tables(), &self.objects);
        let exchange = &mut seats.of_mut(local).exchange;
        let job = exchange.job().filter(|job| tables.of(*job).is_some());
        if let Some(rate) = job.and_then(|job| tables.rate(job)) {
            // The ranks of a node share its link.
            exchange.set_link(now, rate / u64::from(ranks));
        }
        if let Some(job) = job.filter(|_| !exchange.knows_leaf()) {
            exchange.set_leaf(tables.leaf(job, objects).unwrap_or(0));
        }
        let look_up = job.map(|job| move |rank: Rank| tables.entry(job, rank, objects));
        let table = look_up
            .as_ref()
            .map(|look_up| look_up as &dyn Fn(Rank) -> PeerLookup);
        let own = stack.address().map(|own| own.address());
        let mut handed_over = false;
        for _ in 0..most {
            let exchange = &mut seats.of_mut(local).exchange;
            if !stack.can_send_peer() {
                let due = exchange.poll_timeout(table.is_some());
                self.ring_full |= due.is_some_and(|at| at <= now);
                break;
            }
            let Some((to, length)) = exchange.poll_transmit(now, buffer, table) else {
                break;
            };
            let datagram = &buffer[..length];
            match netstack::rank_of_port(to.address.port()) {
                Some(other) if own == Some(*to.address.ip()) => {
                    let arrived = PeerDatagram {
                        from: SocketAddrV4::new(*to.address.ip(), netstack::rank_port(local)),
                        mac: stack.mac(),
                        to: other,
                        bytes: datagram,
                    };
                    seats.handle_datagram(now, &arrived);
                    seats.set_polled_of(other);
                    handed_over = true;
                }
                _ => {
                    stack.send_peer_as(local, to.address, to.mac, datagram);
                }
            }
        }
        handed_over
    }

    /// When casts and the exchange must be looked after; with a full transmit ring not at once.
    pub(super) fn peers_timeout(&self, now: Instant) -> Option<Instant> {
        let tables = self.casts.tables();
        let exchange = self.seats.iter().filter_map(|seat| {
            let has_table = |job| tables.of(job).is_some();
            seat.exchange
                .poll_timeout(seat.exchange.job().is_some_and(has_table))
        });
        let due = exchange.chain(self.casts.poll_timeout()).min()?;
        Some(match self.ring_full {
            true => due.max(now + net::TRANSMIT_RETRY),
            false => due,
        })
    }
}
