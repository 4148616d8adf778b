//! Descriptors of the family: legacy ones on the older half, advanced ones on the newer.
//!
//! Key type: [`Format`]. Layouts: 8254x manual sections 3.2.3 and 3.3.3; 82576 datasheet sections
//! 7.1.5 and 7.2.2.
//!
//! Invariant: a descriptor that is given to the card does not say that the card is done with it.

use crate::nic::ring::{self, Descriptor, Filled};

/// The card is done with the descriptor.
const DONE: u32 = 1 << 0;
/// The frame ends in this buffer.
const END: u32 = 1 << 1;
/// Errors in the status of a legacy descriptor: all but of the checksums of IP and TCP.
const LEGACY_DAMAGED: u32 = 0x97 << 8;
/// Errors in the status of an advanced descriptor: of the frame as such.
const ADVANCED_DAMAGED: u32 = 1 << 31;
/// Commands: end of frame, with checksum, report when sent.
const SEND: u32 = 0x0b << 24;
/// The same in an advanced descriptor of data.
const SEND_ADVANCED: u32 = 0x2b << 24 | 3 << 20;
/// Where an advanced descriptor has the bytes of the whole frame.
const PAYLOAD_SHIFT: u32 = 14;

/// The descriptors of a card.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Advanced ones.
    pub advanced: bool,
}

impl ring::Format for Format {
    // Head and tail are equal in an empty ring.
    const SPARE: usize = 1;
    const ADDRESS_BITS: u32 = 64;
    // The card pads what is shorter than a frame may be.
    const SHORTEST: usize = 17;

    fn receive_status(&self) -> usize {
        match self.advanced {
            true => 2,
            false => 3,
        }
    }

    fn transmit_status(&self) -> usize {
        3
    }

    fn offer(&self, address: u64, _wraps: bool) -> Descriptor {
        [address as u32, (address >> 32) as u32, 0, 0]
    }

    fn is_filled(&self, status: u32) -> bool {
        status & DONE != 0
    }

    fn filled(&self, descriptor: &Descriptor) -> Filled {
        let [_, _, third, fourth] = *descriptor;
        let (bytes, status, damaged) = match self.advanced {
            true => (fourth, third, ADVANCED_DAMAGED),
            false => (third, fourth, LEGACY_DAMAGED),
        };
        Filled {
            bytes: (bytes & 0xffff) as usize,
            // Not said: the first after the end of another.
            first: true,
            last: status & END != 0,
            damaged: status & damaged != 0,
        }
    }

    fn frame(&self, address: u64, bytes: usize, _wraps: bool) -> Descriptor {
        let (low, high, bytes) = (address as u32, (address >> 32) as u32, bytes as u32);
        match self.advanced {
            true => [low, high, bytes | SEND_ADVANCED, bytes << PAYLOAD_SHIFT],
            false => [low, high, bytes | SEND, 0],
        }
    }

    fn is_sent(&self, status: u32) -> bool {
        status & DONE != 0
    }
}
