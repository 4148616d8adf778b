//! The node's network cards: one is in use, the others stand by.
//!
//! Key type: [`Cards`]. Which card is in use, and for how long, is `kernel_core::nic::choice`'s
//! decision. A card that stands by is started and quiet: what it receives waits in its ring until
//! that is full. Neighbours: `drivers::start_cards` makes them, [`super::Stack`] says when there is
//! something to choose, `drivers::last_resort` is told which card is in use.
//!
//! Invariant: there is a card in use, and no other one interrupts.

use alloc::vec;
use alloc::vec::Vec;

use kernel_core::nic::choice::{Choice, Port};
use netstack::time::Instant;

use crate::drivers::last_resort;
use crate::drivers::nic::Nic;

/// The cards.
pub struct Cards {
    cards: Vec<&'static mut dyn Nic>,
    choice: Choice,
}

impl Cards {
    /// Chooses one of `cards`, the one with the address `boot` before others. Panics without any.
    pub fn new(cards: Vec<&'static mut dyn Nic>, boot: Option<[u8; 6]>, now: Instant) -> Self {
        let choice = Choice::new(&ports(&cards), boot, now.as_micros());
        let mut this = Self { cards, choice };
        this.register();
        this
    }

    /// The card in use.
    pub fn current(&self) -> &dyn Nic {
        &*self.cards[self.choice.current()]
    }

    /// The card in use, to change its state.
    pub fn current_mut(&mut self) -> &mut dyn Nic {
        &mut *self.cards[self.choice.current()]
    }

    /// When [`Self::next`] is to be called while the card in use leads nowhere; `None` where there
    /// is no other.
    pub fn deadline(&self) -> Option<Instant> {
        let deadline = Instant::from_micros(self.choice.deadline());
        (self.cards.len() > 1).then_some(deadline)
    }

    /// Takes another card into use if the turn of this one is over; whether it did.
    pub fn next(&mut self, now: Instant) -> bool {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return false;
        }
        self.current_mut().set_interrupts(false);
        let ports = ports(&self.cards);
        let is_other = self.choice.next(&ports, now.as_micros()).is_some();
        if is_other {
            self.register();
        }
        is_other
    }

    /// The card in use has got an address or lost it.
    pub fn renew(&mut self, now: Instant) {
        self.choice.renew(now.as_micros());
    }

    /// Stops all cards for good.
    pub fn quiesce(&mut self) {
        for card in &mut self.cards {
            card.quiesce();
        }
    }

    fn register(&mut self) {
        last_resort::register(&mut self.cards[self.choice.current()]);
    }
}

impl From<&'static mut dyn Nic> for Cards {
    /// The only card.
    fn from(card: &'static mut dyn Nic) -> Self {
        Self::new(vec![card], None, Instant::ZERO)
    }
}

fn ports(cards: &[&'static mut dyn Nic]) -> Vec<Port> {
    let port = |card: &&'static mut dyn Nic| Port {
        mac: card.mac(),
        link: card.has_link(),
    };
    cards.iter().map(port).collect()
}
