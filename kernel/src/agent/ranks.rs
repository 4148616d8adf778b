//! What the node has of each of its ranks beside what arrives for them from the control node: their
//! part in the exchange, their calls on files, the pages that others may be given of them.
//!
//! Key type: [`Seats`], one [`Seat`] for each local rank. Seats stay when a job ends, since the
//! exchange answers for ranks that have ended. Neighbours: `agent::node` moves datagrams,
//! `process` asks through `process::services`.
//!
//! Invariant: there is at least one seat; a datagram reaches the seat whose port it came to.

use alloc::vec::Vec;

use kernel_core::addr::{PhysAddr, VirtAddr};
use netstack::ids::{JobId, LocalRank};
use netstack::time::Instant;
use netstack::wire::key::Key;

use crate::exchange::{Exchange, TABLE_WITHIN};
use crate::mm::DirectMap;
use crate::net::peer::PeerDatagram;
use crate::process::services::Running;
use crate::shipping::Shipping;

/// What the node has of one of its ranks.
pub struct Seat {
    /// The data that it exchanges with other ranks.
    pub exchange: Exchange,
    /// Its calls on files, where its job has a service for them.
    pub shipping: Option<Shipping>,
    /// Its program, as far as others may read its pages.
    pub running: Option<Running>,
    /// The network was looked at since its process asked last.
    pub polled: bool,
}

impl Seat {
    fn new() -> Self {
        Self {
            exchange: Exchange::new(TABLE_WITHIN),
            shipping: None,
            running: None,
            polled: false,
        }
    }
}

/// The seats of a node.
pub struct Seats {
    seats: Vec<Seat>,
}

impl Seats {
    /// One seat.
    pub fn new() -> Self {
        Self {
            seats: Vec::from([Seat::new()]),
        }
    }

    /// Sees to it that there are so many at least.
    pub fn make_room(&mut self, ranks: u16) {
        while self.seats.len() < usize::from(ranks) {
            self.seats.push(Seat::new());
        }
    }

    /// How many there are.
    pub fn count(&self) -> u16 {
        self.seats.len() as u16
    }

    /// One of them.
    pub fn of_mut(&mut self, rank: LocalRank) -> &mut Seat {
        &mut self.seats[rank.index()]
    }

    /// All of them, in the order of local ranks.
    pub fn iter(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter()
    }

    /// All of them with their ranks, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (LocalRank, &mut Seat)> {
        (0..).map(LocalRank).zip(&mut self.seats)
    }

    /// The node was told to launch a job with so many ranks here, all of which share `key`.
    pub fn launched(&mut self, job: JobId, key: Key, ranks: u16) {
        self.make_room(ranks);
        for seat in &mut self.seats[..usize::from(ranks)] {
            seat.exchange.launched(job, key);
        }
    }

    /// Gives the rank whose port it came to a datagram of another rank.
    pub fn handle_datagram(&mut self, now: Instant, arrived: &PeerDatagram<'_>) {
        if let Some(seat) = self.seats.get_mut(arrived.to.index()) {
            seat.exchange.handle_datagram(now, arrived);
        }
    }

    /// A datagram of the service for files; it says for which rank.
    pub fn handle_file_datagram(&mut self, now: Instant, datagram: &[u8]) {
        let shipping = self
            .seats
            .iter_mut()
            .filter_map(|seat| seat.shipping.as_mut());
        shipping.for_each(|shipping| shipping.handle_datagram(now, datagram));
    }

    /// Whether anything has come for a rank since this was asked last.
    pub fn take_news(&mut self) -> bool {
        let news = self.seats.iter_mut().map(|seat| {
            let shipped = seat.shipping.as_mut().is_some_and(Shipping::take_news);
            seat.exchange.take_news() | shipped
        });
        news.fold(false, |any, one| any | one)
    }

    /// When a call on files has something to send.
    pub fn files_timeout(&self) -> Option<Instant> {
        let shipping = self.seats.iter().filter_map(|seat| seat.shipping.as_ref());
        shipping.filter_map(Shipping::poll_timeout).min()
    }

    /// The program that runs, as far as others may read its pages: that of the first rank that has
    /// one.
    pub fn running(&self) -> Option<&Running> {
        self.seats.iter().find_map(|seat| seat.running.as_ref())
    }

    /// The frame of a page of the program that another rank than this one has, as the file has it.
    pub fn page_beside(&self, rank: LocalRank, page: VirtAddr) -> Option<PhysAddr> {
        let others = (0..).map(LocalRank).zip(&self.seats);
        let others = others.filter(|(other, _)| *other != rank);
        let mut running = others.filter_map(|(_, seat)| seat.running.as_ref());
        running.find_map(|running| running.resident.page_at(&DirectMap, page))
    }

    /// Every process is to look what has come for it.
    pub fn set_polled(&mut self) {
        self.seats.iter_mut().for_each(|seat| seat.polled = true);
    }

    /// A process is to look what has come for it.
    pub fn set_polled_of(&mut self, rank: LocalRank) {
        if let Some(seat) = self.seats.get_mut(rank.index()) {
            seat.polled = true;
        }
    }

    /// Whether a rank has operations with others under way.
    pub fn is_active(&self) -> bool {
        self.seats.iter().any(|seat| seat.exchange.is_active())
    }

    /// Whether no process is to look what has come for it, and no rank has operations under way.
    pub fn are_quiet(&self) -> bool {
        let is_quiet = |seat: &Seat| !seat.polled && !seat.exchange.is_active();
        self.seats.iter().all(is_quiet)
    }

    /// Packets asked for again since the node started.
    pub fn asked_again(&self) -> u64 {
        self.seats
            .iter()
            .map(|seat| seat.exchange.asked_again())
            .sum()
    }
}
