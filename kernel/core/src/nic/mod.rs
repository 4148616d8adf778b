//! Network cards: what of their drivers needs no hardware.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ring`] | rings of descriptors, for every card that has them |
//! | [`intel1g`] | Intel's one-gigabit family: registers, models, start and stop |
//! | [`rtl8139`] | Realtek's RTL8139C+ |
//! | [`choice`] | which of several cards the node uses |
//! | [`driver`] | which driver a card has |
//!
//! Key types: [`Bus`], the registers of a card; [`Dma`], memory that driver and card share;
//! [`Controller`], a card that runs. The
//! kernel implements them by device registers and frames, the tests by a model of a card that may
//! answer anything. Neighbours: `kernel::drivers` owns the buffers and finds the card.
//!
//! Invariant: nothing that a card says is an index, and no wait depends on a card alone: a card
//! that answers nonsense costs frames, never the kernel.

pub mod choice;
pub mod driver;
pub mod intel1g;
pub mod ring;
pub mod rtl8139;

use core::fmt;

/// The registers of a card, at offsets in bytes.
///
/// Every access is one load or store of that width, in program order.
pub trait Bus {
    /// Reads 32 bits.
    fn read(&self, offset: usize) -> u32;
    /// Writes 32 bits.
    fn write(&self, offset: usize, value: u32);
    /// Waits so many microseconds.
    fn pause(&self, micros: u32);

    /// Asks `done` every `step` microseconds, `tries` times at most; whether it was true.
    fn wait(&self, step: u32, tries: u32, done: impl Fn(&Self) -> bool) -> bool {
        for _ in 0..tries {
            if done(self) {
                return true;
            }
            self.pause(step);
        }
        done(self)
    }
}

/// The registers of a card that has narrower ones, too.
pub trait NarrowBus: Bus {
    /// Reads 8 bits.
    fn read_u8(&self, offset: usize) -> u8;
    /// Writes 8 bits.
    fn write_u8(&self, offset: usize, value: u8);
    /// Writes 16 bits.
    fn write_u16(&self, offset: usize, value: u16);
}

/// A card that was started on two rings.
pub trait Controller {
    /// Tells it that receive buffers up to the entry before `tail` are its own.
    fn offer(&self, tail: usize);
    /// Tells it to send the frames up to the entry before `tail`.
    fn send(&self, tail: usize);
    /// Whether the port has a link.
    fn has_link(&self) -> bool;
    /// Lets received frames interrupt, or not. A frame that came before does not interrupt any
    /// more. After switching off, an interrupt that the card has sent has arrived.
    fn set_interrupts(&self, on: bool);
    /// Stops all transfers and interrupts by a reset; whether the card came back from it.
    fn stop(&self) -> bool;
}

/// Where a ring lies, as the card is told: its address and bytes.
pub type Place = (u64, usize);

/// Memory that driver and card both read and write, in 32-bit words.
///
/// Every access is one load or store, in program order.
pub trait Dma {
    /// Where the card sees its first byte.
    fn address(&self) -> u64;
    /// Its length in words.
    fn words(&self) -> usize;
    /// Reads a word.
    fn read(&self, word: usize) -> u32;
    /// Writes a word.
    fn write(&self, word: usize, value: u32);
}

/// How a card tells that a frame has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A message by entry 0 of its MSI-X table.
    Msix,
    /// A plain message (MSI).
    Msi,
    /// Not at all: it must be polled.
    None,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Msix => "MSI-X",
            Self::Msi => "MSI",
            Self::None => "polled",
        })
    }
}

/// Whether a hardware address is that of a single card.
pub fn is_station(mac: [u8; 6]) -> bool {
    mac != [0; 6] && mac[0] & 1 == 0
}

/// Whether a card with addresses of so many bits reaches all of these bytes of memory.
pub fn reaches(bits: u32, address: u64, bytes: u64) -> bool {
    let beyond = 1_u64.checked_shl(bits).unwrap_or(u64::MAX);
    address.checked_add(bytes).is_some_and(|end| end <= beyond)
}

/// Longest Ethernet frame, without checksum: 1,500 bytes of payload and a 14-byte header.
pub const FRAME_MAX: usize = 1514;
/// Bytes of one buffer: a full frame and what some cards put before or behind it, rounded up so
/// that two buffers fill a page and none crosses one.
pub const BUFFER_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_reaches_what_its_addresses_can_say() {
        const GIB: u64 = 1 << 30;
        assert!(reaches(32, 0, 4 * GIB) && reaches(32, 4 * GIB - 4096, 4096));
        assert!(!reaches(32, 4 * GIB - 4096, 4097) && !reaches(32, 4 * GIB, 1));
        assert!(reaches(64, 4 * GIB, 4096) && reaches(64, u64::MAX - 1, 1));
        assert!(!reaches(32, u64::MAX, 2));
    }
}
