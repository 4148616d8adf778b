//! Realtek's RTL8139C+, in the mode that gives the chip its plus: rings of descriptors in place of
//! one buffer.
//!
//! Key types: [`Card`], its registers; [`Format`], its descriptors. Registers and descriptors:
//! RTL8139C(L)+ datasheet, sections 5 and 8. It interrupts by a line only, so it is polled.
//! Neighbours: [`super::ring`], `kernel::drivers::realtek`.
//!
//! Invariant: after [`Card::stop`], and before [`Card::start`], the card neither reads nor writes
//! memory; every wait for it has a limit.

use core::fmt;

use super::ring::{self, Descriptor, Filled};
use super::{BUFFER_BYTES, Controller, NarrowBus, Place};

/// Vendor and device id, and the first revision with this mode.
pub const VENDOR: u16 = 0x10ec;
pub const DEVICE: u16 = 0x8139;
pub const REVISION: u8 = 0x20;
/// Bytes of registers.
pub const REGISTER_BYTES: usize = 0x100;
/// Most entries of a ring.
pub const ENTRIES: usize = 64;

/// Hardware address (IDR0 to IDR5).
const ADDRESS_LOW: usize = 0x00;
const ADDRESS_HIGH: usize = 0x04;
/// Ring to send (TNPDS).
const TRANSMIT_RING: usize = 0x20;
/// Command (CR): reset, receiver on, transmitter on.
const COMMAND: usize = 0x37;
const COMMAND_RESET: u8 = 1 << 4;
const COMMAND_ON: u8 = 1 << 3 | 1 << 2;
/// Interrupts to let through, and those that are pending (IMR, ISR).
const INTERRUPT_MASK: usize = 0x3c;
/// Transmit configuration (TCR): the usual gap, bursts of 2 KiB.
const TRANSMIT_CONFIG: usize = 0x40;
const TRANSMIT_USUAL: u32 = 3 << 24 | 7 << 8;
/// Receive configuration (RCR): own address and broadcasts, bursts without limit, whole frames.
const RECEIVE_CONFIG: usize = 0x44;
const RECEIVE_USUAL: u32 = 7 << 13 | 7 << 8 | 1 << 3 | 1 << 1;
/// Access to the configuration (9346CR).
const LOCK: usize = 0x50;
const LOCK_OPEN: u8 = 0xc0;
/// Media status (MSR): the port has no link.
const MEDIA: usize = 0x58;
const MEDIA_NO_LINK: u8 = 1 << 2;
/// Asks the card to look at its ring to send (TPPoll).
const POLL: usize = 0xd9;
const POLL_NORMAL: u8 = 1 << 6;
/// Command of the plus mode (CPCR): both rings, whole cache lines.
const PLUS_COMMAND: usize = 0xe0;
const PLUS_ON: u16 = 1 << 3 | 1 << 1 | 1 << 0;
/// Ring to receive (RDSAR).
const RECEIVE_RING: usize = 0xe4;

/// Wait for a reset: steps of 100 microseconds, 100 milliseconds in all.
const STEP_MICROS: u32 = 100;
const STEPS: u32 = 1000;
const GONE: u32 = u32::MAX;

/// The descriptor is the card's.
const OWN: u32 = 1 << 31;
/// The ring begins anew behind this descriptor.
const WRAP: u32 = 1 << 30;
const FIRST: u32 = 1 << 29;
const LAST: u32 = 1 << 28;
/// Errors of a received frame: any, too short, wrong checksum.
const DAMAGED: u32 = 1 << 20 | 1 << 19 | 1 << 18;
const BYTES: u32 = 0x1fff;
/// Checksum behind a received frame, which is counted.
const CHECKSUM_BYTES: usize = 4;

/// Why a card could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// All registers read as ones, or it did not come back from a reset.
    Reset,
    /// It has no hardware address.
    NoAddress,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reset => "it did not come back from a reset; switch the machine off and on",
            Self::NoAddress => "it has no hardware address; is its EEPROM programmed?",
        })
    }
}

/// The registers of a card that was reset.
#[derive(Clone, Debug)]
pub struct Card<B>(B);

impl<B: NarrowBus> Card<B> {
    /// Resets the card and reads its hardware address.
    pub fn open(bus: B) -> Result<(Self, [u8; 6]), Error> {
        let this = Self(bus);
        if this.0.read(ADDRESS_LOW) == GONE || !this.stop() {
            return Err(Error::Reset);
        }
        let [a, b, c, d] = this.0.read(ADDRESS_LOW).to_le_bytes();
        let [e, f, ..] = this.0.read(ADDRESS_HIGH).to_le_bytes();
        let mac = [a, b, c, d, e, f];
        match super::is_station(mac) {
            true => Ok((this, mac)),
            false => Err(Error::NoAddress),
        }
    }

    /// Starts the card on two rings, the one to receive without buffers.
    pub fn start(&self, receive: Place, transmit: Place) {
        let bus = &self.0;
        bus.write_u8(LOCK, LOCK_OPEN);
        bus.write_u16(PLUS_COMMAND, PLUS_ON);
        self.set_ring(RECEIVE_RING, receive);
        self.set_ring(TRANSMIT_RING, transmit);
        bus.write_u8(COMMAND, COMMAND_ON);
        bus.write(TRANSMIT_CONFIG, TRANSMIT_USUAL);
        bus.write(RECEIVE_CONFIG, RECEIVE_USUAL);
        bus.write_u8(LOCK, 0);
    }

    fn set_ring(&self, ring: usize, (address, _bytes): Place) {
        self.0.write(ring + 4, (address >> 32) as u32);
        self.0.write(ring, address as u32);
    }
}

impl<B: NarrowBus> Controller for Card<B> {
    /// The card looks at the descriptors themselves.
    fn offer(&self, _tail: usize) {}

    fn send(&self, _tail: usize) {
        self.0.write_u8(POLL, POLL_NORMAL);
    }

    fn has_link(&self) -> bool {
        self.0.read_u8(MEDIA) & MEDIA_NO_LINK == 0
    }

    /// It has no messages, and its line leads to no interrupt of this kernel.
    fn set_interrupts(&self, _on: bool) {}

    fn stop(&self) -> bool {
        self.0.write_u16(INTERRUPT_MASK, 0);
        self.0.write_u8(COMMAND, COMMAND_RESET);
        self.0.wait(STEP_MICROS, STEPS, |bus| {
            bus.read_u8(COMMAND) & COMMAND_RESET == 0
        })
    }
}

/// The descriptors.
#[derive(Clone, Copy, Debug)]
pub struct Format;

impl Format {
    fn descriptor(status: u32, bytes: usize, address: u64, wraps: bool) -> Descriptor {
        let wrap = if wraps { WRAP } else { 0 };
        let status = status | OWN | wrap | bytes as u32 & BYTES;
        [status, 0, address as u32, (address >> 32) as u32]
    }
}

impl ring::Format for Format {
    // Each descriptor says whose it is.
    const SPARE: usize = 0;
    // Descriptors have room for 64, but longer addresses go to memory by dual address cycles, which
    // are a choice of their own (CPCR) and of few boards of the time.
    const ADDRESS_BITS: u32 = 32;
    // Shorter ones are not padded by the card.
    const SHORTEST: usize = 60;

    fn receive_status(&self) -> usize {
        0
    }

    fn transmit_status(&self) -> usize {
        0
    }

    fn offer(&self, address: u64, wraps: bool) -> Descriptor {
        Self::descriptor(0, BUFFER_BYTES, address, wraps)
    }

    fn is_filled(&self, status: u32) -> bool {
        status & OWN == 0
    }

    fn filled(&self, descriptor: &Descriptor) -> Filled {
        let status = descriptor[0];
        Filled {
            bytes: ((status & BYTES) as usize).saturating_sub(CHECKSUM_BYTES),
            first: status & FIRST != 0,
            last: status & LAST != 0,
            damaged: status & DAMAGED != 0,
        }
    }

    fn frame(&self, address: u64, bytes: usize, wraps: bool) -> Descriptor {
        Self::descriptor(FIRST | LAST, bytes, address, wraps)
    }

    fn is_sent(&self, status: u32) -> bool {
        status & OWN == 0
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use proptest::prelude::*;

    use super::ring::Format as _;
    use super::*;
    use crate::nic::Bus;

    /// Registers that stay as they are written, but for a reset.
    #[derive(Clone)]
    struct Model {
        bytes: Rc<RefCell<[u8; REGISTER_BYTES]>>,
        resets: bool,
        paused: Rc<Cell<u64>>,
    }

    impl Model {
        fn new(resets: bool) -> Self {
            let mut bytes = [0; REGISTER_BYTES];
            bytes[..6].copy_from_slice(&[0x52, 0x54, 0, 7, 0, 9]);
            Self {
                bytes: Rc::new(RefCell::new(bytes)),
                resets,
                paused: Rc::default(),
            }
        }

        fn get<const N: usize>(&self, offset: usize) -> [u8; N] {
            *self.bytes.borrow()[offset..].first_chunk().unwrap()
        }

        fn set(&self, offset: usize, value: &[u8]) {
            self.bytes.borrow_mut()[offset..][..value.len()].copy_from_slice(value);
        }
    }

    impl Bus for Model {
        fn read(&self, offset: usize) -> u32 {
            u32::from_le_bytes(self.get(offset))
        }

        fn write(&self, offset: usize, value: u32) {
            self.set(offset, &value.to_le_bytes());
        }

        fn pause(&self, micros: u32) {
            self.paused.set(self.paused.get() + u64::from(micros));
        }
    }

    impl NarrowBus for Model {
        fn read_u8(&self, offset: usize) -> u8 {
            self.get::<1>(offset)[0]
        }

        fn write_u8(&self, offset: usize, value: u8) {
            let is_reset = offset == COMMAND && value == COMMAND_RESET;
            self.set(offset, &[if is_reset && self.resets { 0 } else { value }]);
        }

        fn write_u16(&self, offset: usize, value: u16) {
            self.set(offset, &value.to_le_bytes());
        }
    }

    #[test]
    fn a_card_is_opened_and_started() {
        let model = Model::new(true);
        let (card, mac) = Card::open(model.clone()).unwrap();
        assert_eq!(mac, [0x52, 0x54, 0, 7, 0, 9]);
        card.start((0x1_2345_6700, 1024), (0x8900, 1024));
        assert_eq!(model.read(RECEIVE_RING), 0x2345_6700);
        assert_eq!(model.read(RECEIVE_RING + 4), 1);
        assert_eq!(model.read(TRANSMIT_RING), 0x8900);
        assert_eq!(model.read_u8(COMMAND), COMMAND_ON);
        assert_eq!(model.read_u8(LOCK), 0);
        assert!(card.has_link());
        model.write_u8(MEDIA, MEDIA_NO_LINK);
        assert!(!card.has_link());
    }

    #[test]
    fn a_card_that_does_not_answer_is_an_error_within_a_second() {
        let model = Model::new(false);
        assert_eq!(Card::open(model.clone()).err(), Some(Error::Reset));
        assert!((1..1_000_000).contains(&model.paused.get()));
        model.bytes.borrow_mut().fill(0xff);
        assert_eq!(Card::open(model).err(), Some(Error::Reset));
        let model = Model::new(true);
        model.bytes.borrow_mut().fill(0);
        assert_eq!(Card::open(model).err(), Some(Error::NoAddress));
    }

    /// The ring of a card, which it may write at any time.
    struct Memory(Rc<RefCell<[u32; 4 * ring::DESCRIPTOR_WORDS]>>);

    impl crate::nic::Dma for Memory {
        fn address(&self) -> u64 {
            0
        }

        fn words(&self) -> usize {
            self.0.borrow().len()
        }

        fn read(&self, word: usize) -> u32 {
            self.0.borrow()[word]
        }

        fn write(&self, word: usize, value: u32) {
            self.0.borrow_mut()[word] = value;
        }
    }

    proptest! {
        /// A card that writes what it likes: all buffers can be its own, each once.
        #[test]
        fn a_hostile_card_costs_frames_only(
            steps in prop::collection::vec((0..3u8, 0..16usize, any::<u32>()), 1..200),
        ) {
            let words = Rc::new(RefCell::new([0; 4 * ring::DESCRIPTOR_WORDS]));
            let mut driver = ring::ReceiveRing::new(Format, Memory(words.clone()), 0);
            let mut of_card = [false; 4];
            for (step, word, value) in steps {
                match step {
                    0 => words.borrow_mut()[word] = value,
                    1 => if let Some(taken) = driver.take() {
                        assert!(taken.bytes <= crate::nic::FRAME_MAX);
                        assert!(core::mem::replace(&mut of_card[taken.slot], false));
                    },
                    _ => if driver.has_room() {
                        let slot = driver.unposted();
                        assert!(!core::mem::replace(&mut of_card[slot], true));
                        driver.post();
                    },
                }
            }
        }
    }

    #[test]
    fn descriptors_say_whose_they_are() {
        let offered = Format.offer(0x1_0000_2000, true);
        assert_eq!(offered, [0xc000_0800, 0, 0x2000, 1]);
        assert!(!Format.is_filled(offered[0]));
        let good = FIRST | LAST | 64;
        let wanted = Filled {
            bytes: 60,
            first: true,
            last: true,
            damaged: false,
        };
        assert_eq!(Format.filled(&[good, 0, 0, 0]), wanted);
        assert!(Format.filled(&[good | 1 << 18, 0, 0, 0]).damaged);
        // Shorter than a checksum.
        assert_eq!(Format.filled(&[3, 0, 0, 0]).bytes, 0);
        let sent = Format.frame(0x3000, 60, false);
        assert_eq!(sent, [0xb000_003c, 0, 0x3000, 0]);
        assert!(!Format.is_sent(sent[0]) && Format.is_sent(sent[0] & !OWN));
    }
}
