//! What the network stack needs of a network card.
//!
//! Key types: [`Nic`] and its transmit half [`Transmit`]. Implemented by `ring_card`; used by
//! `net::cards`. Frames are Ethernet frames without checksum, at most [`FRAME_MAX`] bytes.
//!
//! Invariant: a card raises no interrupt unless [`Nic::set_interrupts`] switched it on, so a
//! program that computes is never disturbed by traffic. What a frame held is cleared when its
//! buffer goes back to the card, and when one that was sent is found to be, at the latest in the
//! next [`Nic::receive`].

pub use kernel_core::nic::FRAME_MAX;

/// Entries of a receive ring. While a program computes nobody empties it, so it must hold what may
/// be on its way: the answers to all page requests of a node, 8 of 24 fragments each
/// (`netstack::page`), and one frame from each of 32 children and the parent in the fan-out tree:
/// 8 * 24 + 33 = 225; or what casts have asked for beside fewer of these (`agent::cast`). A power
/// of two, and the number that virtio cards commonly offer at most.
pub const RECEIVE_ENTRIES: usize = 256;
/// Entries of a transmit ring: one message and one retransmission to each of 32 children. The
/// card empties this ring by itself. With the receive buffers a card takes (256 + 64) * 2 KiB =
/// 640 KiB, 2 % of a 32 MB guest.
pub const TRANSMIT_ENTRIES: usize = 64;

const _: () =
    assert!(netstack::page::MAX_REQUESTS * netstack::page::MAX_FRAGMENTS + 33 <= RECEIVE_ENTRIES);

/// What a card has done since it was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames handed to the stack.
    pub received: u64,
    /// Frames handed to the card.
    pub transmitted: u64,
    /// Bytes of the frames handed to the stack.
    pub received_bytes: u64,
    /// Bytes of the frames handed to the card.
    pub transmitted_bytes: u64,
    /// Received frames dropped: of impossible length.
    pub receive_errors: u64,
    /// Times the stack wanted to send and every transmit buffer was in use.
    pub transmit_full: u64,
}

/// The transmit half of a card.
pub trait Transmit {
    /// Sends one frame of `len` bytes that `fill` writes.
    ///
    /// Panics when `len` exceeds [`FRAME_MAX`] or no buffer is free; the holder got it from
    /// [`Nic::receive`] or [`Nic::transmit`], which made sure of one.
    fn send(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8]));
}

/// A network card.
pub trait Nic: Send {
    /// The card's hardware address.
    fn mac(&self) -> [u8; 6];

    /// Looks at the next received frame, which [`Self::receive`] or another look gives again until
    /// [`Self::pass`]. `None` when nothing was received.
    fn look(&mut self) -> Option<&[u8]>;

    /// Takes the frame that [`Self::look`] gave and throws it away.
    fn pass(&mut self);

    /// Takes the next received frame, together with room to answer it.
    ///
    /// `None` when nothing was received or no transmit buffer is free. The frame's buffer goes
    /// back to the card at the next call.
    fn receive(&mut self) -> Option<(&[u8], &mut dyn Transmit)>;

    /// Room to send one frame; `None` while every transmit buffer is in use.
    fn transmit(&mut self) -> Option<&mut dyn Transmit>;

    /// Whether a received frame waits to be taken.
    fn has_received(&mut self) -> bool;

    /// Switches the receive interrupt on or off.
    ///
    /// After switching on, [`Self::has_received`] must be asked once more before waiting: a frame
    /// that arrived before raises no interrupt.
    fn set_interrupts(&mut self, on: bool);

    /// Whether the card can interrupt at all; where it cannot, a waiting node must poll it.
    fn interrupts(&self) -> bool;

    /// Whether the port has a link, as far as the card knows: one that cannot tell says yes.
    fn has_link(&self) -> bool;

    /// Stops the card for good: from now on it neither reads nor writes memory, nor interrupts.
    fn quiesce(&mut self);

    /// Traffic so far.
    fn counters(&self) -> Counters;
}
