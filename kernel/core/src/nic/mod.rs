//! Network cards: what of their drivers needs no hardware.
//!
//! | module | what it holds |
//! |---|---|
//! | [`ring`] | rings of descriptors, for every card that has them |
//! | [`intel1g`] | Intel's one-gigabit family: registers, models, start and stop |
//! | [`choice`] | which of several cards the node uses |
//!
//! Key types: [`Bus`], the registers of a card; [`Dma`], memory that driver and card share. The
//! kernel implements them by device registers and frames, the tests by a model of a card that may
//! answer anything. Neighbours: `kernel::drivers` owns the buffers and finds the card.
//!
//! Invariant: nothing that a card says is an index, and no wait depends on a card alone: a card
//! that answers nonsense costs frames, never the kernel.

pub mod choice;
pub mod intel1g;
pub mod ring;

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

/// Whether a hardware address is that of a single card.
pub fn is_station(mac: [u8; 6]) -> bool {
    mac != [0; 6] && mac[0] & 1 == 0
}

/// Longest Ethernet frame, without checksum: 1,500 bytes of payload and a 14-byte header.
pub const FRAME_MAX: usize = 1514;
/// Bytes of one buffer: a full frame and what some cards put before or behind it, rounded up so
/// that two buffers fill a page and none crosses one.
pub const BUFFER_BYTES: usize = 2048;
