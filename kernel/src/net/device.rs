//! A network card as smoltcp's device.
//!
//! Key type: [`CardDevice`]. Frames are not copied here: a received one is parsed in the card's
//! buffer, a sent one is written there. Neighbours: [`super::cards`], smoltcp's interface.

use core::net::Ipv4Addr;

use smoltcp::phy::{self, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

use super::RECEIVE_BURST;
use super::cards::Cards;
use super::peer::PeerDatagram;
use super::sockets::ARP_BYTES;
use super::strangers::Strangers;
use crate::drivers::nic::{FRAME_MAX, Nic, Transmit};

/// Where the sender's hardware address stands in a frame.
const SOURCE: core::ops::Range<usize> = 6..12;

/// The card in use behind smoltcp's device trait.
pub struct CardDevice {
    cards: Cards,
    source: [u8; 6],
    /// A frame that comes before those of the card: what the stack is told.
    told: Option<[u8; ARP_BYTES]>,
    strangers: Strangers,
}

impl CardDevice {
    /// Wraps started cards.
    pub fn new(cards: Cards) -> Self {
        Self {
            cards,
            source: [0; 6],
            told: None,
            strangers: Strangers::default(),
        }
    }

    /// Drops the DHCP messages of `server` for a while.
    pub fn ignore_dhcp(&mut self, server: Ipv4Addr, now: netstack::time::Instant) {
        self.strangers.ignore(server, now);
    }

    /// Has the stack receive this next; the card must have room to send a frame.
    pub fn tell(&mut self, frame: [u8; ARP_BYTES]) {
        self.told = Some(frame);
    }

    /// Hardware address of the sender of the frame received last.
    pub fn source(&self) -> [u8; 6] {
        self.source
    }

    /// The datagram that waits next, if it is one of peers for `own`; [`Self::pass`] goes on.
    pub fn look_for_peer(&mut self, own: Ipv4Addr) -> Option<PeerDatagram<'_>> {
        PeerDatagram::find(self.card_mut().look()?, own)
    }

    /// Throws the frame away that was looked at.
    pub fn pass(&mut self) {
        self.card_mut().pass();
    }

    /// The card in use.
    pub fn card(&self) -> &dyn Nic {
        self.cards.current()
    }

    /// The card in use, to change its state.
    pub fn card_mut(&mut self) -> &mut dyn Nic {
        self.cards.current_mut()
    }

    /// All cards.
    pub fn cards(&self) -> &Cards {
        &self.cards
    }

    /// All cards, to choose another.
    pub fn cards_mut(&mut self) -> &mut Cards {
        &mut self.cards
    }
}

impl phy::Device for CardDevice {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, now: Instant) -> Option<(Received<'_>, Room<'_>)> {
        if self.told.is_some() {
            let room = self.cards.current_mut().transmit()?;
            return Some((Received::Told(self.told.take()?), Room(room)));
        }
        let (frame, room) = self.cards.current_mut().receive()?;
        if let Some(source) = frame.get(SOURCE) {
            self.source.copy_from_slice(source);
        }
        let now = netstack::time::Instant::from_micros(now.total_micros() as u64);
        // smoltcp passes over a frame of no bytes.
        let frame = if self.strangers.sent(frame, now) {
            &[]
        } else {
            frame
        };
        Some((Received::Frame(frame), Room(room)))
    }

    fn transmit(&mut self, _now: Instant) -> Option<Room<'_>> {
        self.card_mut().transmit().map(Room)
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME_MAX;
        capabilities.max_burst_size = Some(RECEIVE_BURST);
        capabilities
    }
}

/// A received frame.
pub enum Received<'a> {
    /// In the card's buffer.
    Frame(&'a [u8]),
    /// See [`CardDevice::tell`].
    Told([u8; ARP_BYTES]),
}

impl phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        match self {
            Self::Frame(frame) => f(frame),
            Self::Told(frame) => f(&frame),
        }
    }
}

/// Room to send one frame.
pub struct Room<'a>(&'a mut dyn Transmit);

impl phy::TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut f = Some(f);
        let mut result = None;
        self.0.send(len, &mut |frame| {
            let f = f.take().expect("a card fills a frame once");
            result = Some(f(frame));
        });
        result.expect("a card fills every frame")
    }
}
