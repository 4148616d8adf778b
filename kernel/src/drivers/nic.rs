//! What the network stack needs of a network card.
//!
//! Key types: [`Nic`] and its transmit half [`Transmit`]. Implemented by `virtio::net`; used by
//! `net::device`. Frames are Ethernet frames without checksum, at most [`FRAME_MAX`] bytes.
//!
//! Invariant: a card raises no interrupt unless [`Nic::set_interrupts`] switched it on, so a
//! program that computes is never disturbed by traffic. What a frame held is cleared when its buffer goes back to the
//! card, and when one that was sent is found to be, at the latest in the next [`Nic::receive`].

/// Longest Ethernet frame, without checksum: 1,500 bytes of payload and a 14-byte header.
pub const FRAME_MAX: usize = 1514;

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

    /// Traffic so far.
    fn counters(&self) -> Counters;
}
