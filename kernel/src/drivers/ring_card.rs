//! A network card made of two rings of buffers, as all cards driven here are.
//!
//! Key types: [`RingCard`], a [`Nic`]; [`ReceiveQueue`] and [`TransmitQueue`], what a driver adds.
//! Neighbours: `virtio::net` and `intel` implement the queues, [`super::dma`] has the buffers.
//!
//! Invariant: every receive buffer is either the card's, or is the one frame looked at, or the one
//! handed out; every transmit buffer is either free or the card's. A buffer that is given to the
//! card to receive, or is free to send with, holds no bytes of an earlier frame.

use super::dma::Pool;
use super::nic::{Counters, FRAME_MAX, Nic, Transmit};
use kernel_core::nic::BUFFER_BYTES;

/// The receiving half of a driver, and what concerns the card as a whole.
pub trait ReceiveQueue: Send {
    /// Bytes that the card puts before each frame.
    const HEADER: usize;

    /// Gives the card the buffer `slot`, which is clear, or one that was given back before it.
    fn post(&mut self, slot: usize, buffers: &mut Pool);
    /// Tells the card about buffers that were given, if that is due.
    fn tell(&mut self);
    /// Takes a buffer that the card has filled: which one, and the bytes of its frame, 0 for what
    /// is no frame.
    fn take(&mut self, buffers: &mut Pool) -> Option<(usize, usize)>;
    /// Whether [`Self::take`] gives something.
    fn is_ready(&self) -> bool;
    /// See [`Nic::set_interrupts`].
    fn set_interrupts(&mut self, on: bool);
    /// See [`Nic::has_link`].
    fn has_link(&self) -> bool;
    /// See [`Nic::quiesce`].
    fn quiesce(&mut self);
}

/// The sending half of a driver.
pub trait TransmitQueue: Send {
    /// Bytes, all zero, that the card wants before each frame.
    const HEADER: usize;

    /// The buffer to fill next; `None` while all are the card's.
    fn free(&self) -> Option<usize>;
    /// Sends the used bytes of the buffer that [`Self::free`] gave.
    fn send(&mut self, slot: usize, buffers: &mut Pool);
    /// Takes a buffer back that the card has sent.
    fn reclaim(&mut self, buffers: &mut Pool) -> Option<usize>;
}

/// A started card.
pub struct RingCard<R, T> {
    mac: [u8; 6],
    receive: R,
    buffers: Pool,
    /// Buffer of the frame handed out last, to be given back.
    lent: Option<usize>,
    /// Buffer of a frame that was looked at and not taken.
    looked_at: Option<usize>,
    interrupts: bool,
    half: TransmitHalf<T>,
}

/// What sending needs; apart from [`RingCard`] so that a received frame and room to answer it can
/// be borrowed together.
struct TransmitHalf<T> {
    queue: T,
    buffers: Pool,
    counters: Counters,
}

impl<R: ReceiveQueue, T: TransmitQueue> RingCard<R, T> {
    /// Makes a card of queues, each with its buffers, and gives the card those to receive, but for
    /// `spare` of them. It can interrupt if `interrupts`.
    pub fn new(
        mac: [u8; 6],
        (receive, buffers, spare): (R, Pool, usize),
        (queue, transmit_buffers): (T, Pool),
        interrupts: bool,
    ) -> Self {
        let posted = buffers.slots() - spare;
        let mut this = Self {
            mac,
            receive,
            buffers,
            lent: None,
            looked_at: None,
            interrupts,
            half: TransmitHalf {
                queue,
                buffers: transmit_buffers,
                counters: Counters::default(),
            },
        };
        for slot in 0..posted {
            this.receive.post(slot, &mut this.buffers);
        }
        this.receive.tell();
        this
    }

    /// The buffer of the next frame of possible length.
    fn next(&mut self) -> Option<usize> {
        if let Some(looked_at) = self.looked_at.take() {
            return Some(looked_at);
        }
        // Bounded: a card cannot have filled more than all buffers.
        for _ in 0..self.buffers.slots() {
            let (slot, bytes) = self.receive.take(&mut self.buffers)?;
            if (1..=FRAME_MAX).contains(&bytes) {
                self.buffers.set_used(slot, R::HEADER + bytes);
                return Some(slot);
            }
            self.half.counters.receive_errors += 1;
            self.buffers.set_used(slot, BUFFER_BYTES);
            self.give_back(slot);
        }
        None
    }

    /// Gives the buffer handed out last back to the card.
    fn take_back(&mut self) {
        if let Some(slot) = self.lent.take() {
            self.give_back(slot);
        }
    }

    fn give_back(&mut self, slot: usize) {
        self.buffers.clear(slot);
        self.receive.post(slot, &mut self.buffers);
        self.receive.tell();
    }

    fn count_received(&mut self, slot: usize) {
        let bytes = self.buffers.used(slot).len() - R::HEADER;
        self.half.counters.received += 1;
        self.half.counters.received_bytes += bytes as u64;
    }
}

impl<R: ReceiveQueue, T: TransmitQueue> Nic for RingCard<R, T> {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn look(&mut self) -> Option<&[u8]> {
        self.take_back();
        let slot = self.next()?;
        self.looked_at = Some(slot);
        Some(&self.buffers.used(slot)[R::HEADER..])
    }

    fn pass(&mut self) {
        if let Some(slot) = self.looked_at.take() {
            self.lent = Some(slot);
            self.count_received(slot);
        }
    }

    fn receive(&mut self) -> Option<(&[u8], &mut dyn Transmit)> {
        self.take_back();
        if !self.half.has_room() {
            return None;
        }
        let slot = self.next()?;
        self.lent = Some(slot);
        self.count_received(slot);
        Some((&self.buffers.used(slot)[R::HEADER..], &mut self.half))
    }

    fn transmit(&mut self) -> Option<&mut dyn Transmit> {
        if !self.half.has_room() {
            self.half.counters.transmit_full += 1;
            return None;
        }
        Some(&mut self.half)
    }

    fn has_received(&mut self) -> bool {
        self.looked_at.is_some() || self.receive.is_ready()
    }

    fn set_interrupts(&mut self, on: bool) {
        self.receive.set_interrupts(on);
    }

    fn interrupts(&self) -> bool {
        self.interrupts
    }

    fn has_link(&self) -> bool {
        self.receive.has_link()
    }

    fn quiesce(&mut self) {
        self.receive.quiesce();
    }

    fn counters(&self) -> Counters {
        self.half.counters
    }
}

impl<T: TransmitQueue> TransmitHalf<T> {
    /// Reclaims buffers that the card has sent, and says whether one is free.
    fn has_room(&mut self) -> bool {
        while let Some(slot) = self.queue.reclaim(&mut self.buffers) {
            self.buffers.clear(slot);
        }
        self.queue.free().is_some()
    }
}

impl<T: TransmitQueue> Transmit for TransmitHalf<T> {
    fn send(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) {
        assert!(len <= FRAME_MAX, "frame of {len} bytes");
        let slot = self.queue.free().expect("a free buffer was made sure of");
        self.buffers.set_used(slot, T::HEADER + len);
        fill(&mut self.buffers.used(slot)[T::HEADER..]);
        self.queue.send(slot, &mut self.buffers);
        self.counters.transmitted += 1;
        self.counters.transmitted_bytes += len as u64;
    }
}
