//! Rings of descriptors in memory that driver and card share.
//!
//! Key types: [`ReceiveRing`], [`TransmitRing`]; [`Format`] is what a card's descriptors look like.
//! Descriptor and buffer of the same number belong together for good: a ring is used in order, so
//! the number of a buffer is the driver's own count and never comes from the card. Neighbours:
//! [`super::intel1g`] tells the card about rings, `kernel::drivers` owns the buffers.
//!
//! Invariant: a buffer is the card's from [`ReceiveRing::post`] or [`TransmitRing::send`] until
//! [`ReceiveRing::take`] or [`TransmitRing::reclaim`] gives it back; lengths never exceed
//! [`FRAME_MAX`].

use core::sync::atomic::{Ordering, fence};

use super::{BUFFER_BYTES, Dma, FRAME_MAX};

/// Words of a descriptor; all cards driven here have descriptors of 16 bytes.
pub const DESCRIPTOR_WORDS: usize = 4;
/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = DESCRIPTOR_WORDS * 4;

/// The words of a descriptor.
pub type Descriptor = [u32; DESCRIPTOR_WORDS];

/// What a card says of a descriptor it has filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Bytes in the buffer, without the frame's checksum.
    pub bytes: usize,
    /// The frame begins in this buffer.
    pub first: bool,
    /// The frame ends in this buffer.
    pub last: bool,
    /// The card found the frame damaged.
    pub damaged: bool,
}

/// What the descriptors of a card look like.
pub trait Format {
    /// Descriptors that the driver must keep back, so that a full ring differs from an empty one.
    const SPARE: usize;
    /// Bits of the addresses that the card reaches.
    const ADDRESS_BITS: u32;
    /// Bytes of the shortest frame that the card can be given, without checksum.
    const SHORTEST: usize;

    /// The word that says whether the card is done with a descriptor to receive: it is read first,
    /// and written last.
    fn receive_status(&self) -> usize;
    /// The same of a descriptor to send.
    fn transmit_status(&self) -> usize;

    /// A descriptor that offers the buffer at `address`; `wraps` in the last one of the ring.
    fn offer(&self, address: u64, wraps: bool) -> Descriptor;
    /// Whether the card has filled the buffer, by the status word.
    fn is_filled(&self, status: u32) -> bool;
    /// What it says of it.
    fn filled(&self, descriptor: &Descriptor) -> Filled;
    /// A descriptor that sends one frame of `bytes` bytes at `address`.
    fn frame(&self, address: u64, bytes: usize, wraps: bool) -> Descriptor;
    /// Whether the card has sent the frame, by the status word.
    fn is_sent(&self, status: u32) -> bool;
}

/// A received frame, or what is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The buffer.
    pub slot: usize,
    /// Bytes of the frame; 0 when it is damaged, too long, or in several buffers.
    pub bytes: usize,
}

/// Descriptors in shared memory.
#[derive(Debug)]
struct Descriptors<F, D> {
    format: F,
    memory: D,
    entries: usize,
    /// Where the card sees the buffers, one behind the other.
    buffers: u64,
}

impl<F: Format, D: Dma> Descriptors<F, D> {
    fn new(format: F, memory: D, buffers: u64) -> Self {
        let entries = memory.words() / DESCRIPTOR_WORDS;
        assert!(entries > F::SPARE, "a ring of {entries} descriptors");
        Self {
            format,
            memory,
            entries,
            buffers,
        }
    }

    fn buffer(&self, slot: usize) -> u64 {
        self.buffers + (slot * BUFFER_BYTES) as u64
    }

    fn wraps(&self, slot: usize) -> bool {
        slot + 1 == self.entries
    }

    fn word(&self, slot: usize, word: usize) -> u32 {
        self.memory.read(slot * DESCRIPTOR_WORDS + word)
    }

    /// Writes a descriptor, the word at `last` when all else of it and of its buffer is there.
    fn write(&self, slot: usize, descriptor: &Descriptor, last: usize) {
        let first = slot * DESCRIPTOR_WORDS;
        for (word, &value) in descriptor.iter().enumerate() {
            if word != last {
                self.memory.write(first + word, value);
            }
        }
        fence(Ordering::Release);
        self.memory.write(first + last, descriptor[last]);
    }

    /// The entry `count` behind `slot`.
    fn behind(&self, slot: usize, count: usize) -> usize {
        (slot + count) % self.entries
    }
}

/// The ring of buffers that a card fills.
#[derive(Debug)]
pub struct ReceiveRing<F, D> {
    ring: Descriptors<F, D>,
    /// The entry that the card fills next, or has filled.
    next: usize,
    /// Entries from `next` on that are the card's.
    posted: usize,
    /// Buffers are thrown away until one ends a frame.
    skipping: bool,
}

impl<F: Format, D: Dma> ReceiveRing<F, D> {
    /// A ring of as many descriptors as `memory` holds, with nothing posted; the card sees the
    /// buffers from `buffers` on.
    pub fn new(format: F, memory: D, buffers: u64) -> Self {
        Self {
            ring: Descriptors::new(format, memory, buffers),
            next: 0,
            posted: 0,
            skipping: false,
        }
    }

    /// Whether [`Self::post`] can give the card one more buffer.
    pub fn has_room(&self) -> bool {
        self.posted < self.ring.entries - F::SPARE
    }

    /// Where the card sees the ring, and its bytes.
    pub fn memory(&self) -> (u64, usize) {
        let bytes = self.ring.entries * DESCRIPTOR_BYTES;
        (self.ring.memory.address(), bytes)
    }

    /// Gives the card the next buffer; the entry behind it, which the card is told. Panics unless
    /// [`Self::has_room`].
    pub fn post(&mut self) -> usize {
        assert!(self.has_room(), "no entry for a buffer");
        let slot = self.ring.behind(self.next, self.posted);
        let format = &self.ring.format;
        let offer = format.offer(self.ring.buffer(slot), self.ring.wraps(slot));
        self.ring.write(slot, &offer, format.receive_status());
        self.posted += 1;
        self.ring.behind(slot, 1)
    }

    /// The buffer that [`Self::post`] gives next.
    pub fn unposted(&self) -> usize {
        self.ring.behind(self.next, self.posted)
    }

    /// Whether [`Self::take`] gives something.
    pub fn is_ready(&self) -> bool {
        let format = &self.ring.format;
        self.posted > 0 && format.is_filled(self.ring.word(self.next, format.receive_status()))
    }

    /// Takes the next buffer that the card has filled.
    pub fn take(&mut self) -> Option<Taken> {
        if self.posted == 0 {
            return None;
        }
        let slot = self.next;
        let status_word = self.ring.format.receive_status();
        let status = self.ring.word(slot, status_word);
        if !self.ring.format.is_filled(status) {
            return None;
        }
        fence(Ordering::Acquire);
        let mut descriptor = [0; DESCRIPTOR_WORDS];
        for (word, value) in descriptor.iter_mut().enumerate() {
            *value = match word == status_word {
                true => status,
                false => self.ring.word(slot, word),
            };
        }
        self.next = self.ring.behind(slot, 1);
        self.posted -= 1;
        let filled = self.ring.format.filled(&descriptor);
        let bytes = self.usable(&filled);
        Some(Taken { slot, bytes })
    }

    /// Bytes of a frame that is whole in its one buffer; 0 for all else.
    fn usable(&mut self, filled: &Filled) -> usize {
        let in_part = core::mem::replace(&mut self.skipping, !filled.last);
        let whole = filled.first && filled.last && !in_part;
        match whole && !filled.damaged && filled.bytes <= FRAME_MAX {
            true => filled.bytes,
            false => 0,
        }
    }
}

/// The ring of frames that a card sends.
#[derive(Debug)]
pub struct TransmitRing<F, D> {
    ring: Descriptors<F, D>,
    /// The oldest entry that is the card's.
    oldest: usize,
    /// Entries from `oldest` on that are the card's.
    pending: usize,
}

impl<F: Format, D: Dma> TransmitRing<F, D> {
    /// A ring of as many descriptors as `memory` holds, with nothing to send; the card sees the
    /// buffers from `buffers` on.
    pub fn new(format: F, memory: D, buffers: u64) -> Self {
        Self {
            ring: Descriptors::new(format, memory, buffers),
            oldest: 0,
            pending: 0,
        }
    }

    /// Where the card sees the ring, and its bytes.
    pub fn memory(&self) -> (u64, usize) {
        let bytes = self.ring.entries * DESCRIPTOR_BYTES;
        (self.ring.memory.address(), bytes)
    }

    /// The buffer to fill next; `None` while all are the card's.
    pub fn free(&self) -> Option<usize> {
        let is_free = self.pending < self.ring.entries - F::SPARE;
        is_free.then(|| self.ring.behind(self.oldest, self.pending))
    }

    /// Sends `bytes` bytes of the buffer that [`Self::free`] gave; the entry behind it, which the
    /// card is told. Panics when there is none, or with more than [`FRAME_MAX`] bytes.
    pub fn send(&mut self, bytes: usize) -> usize {
        assert!(bytes <= FRAME_MAX, "frame of {bytes} bytes");
        let slot = self.free().expect("a free buffer was made sure of");
        let (address, wraps) = (self.ring.buffer(slot), self.ring.wraps(slot));
        let format = &self.ring.format;
        let frame = format.frame(address, bytes, wraps);
        self.ring.write(slot, &frame, format.transmit_status());
        self.pending += 1;
        self.ring.behind(slot, 1)
    }

    /// Takes a buffer back whose frame was sent.
    pub fn reclaim(&mut self) -> Option<usize> {
        if self.pending == 0 {
            return None;
        }
        let slot = self.oldest;
        let format = &self.ring.format;
        let status = self.ring.word(slot, format.transmit_status());
        if !format.is_sent(status) {
            return None;
        }
        fence(Ordering::Acquire);
        self.oldest = self.ring.behind(slot, 1);
        self.pending -= 1;
        Some(slot)
    }
}
