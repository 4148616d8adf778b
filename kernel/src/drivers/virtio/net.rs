//! The virtio network card.
//!
//! Key type: [`VirtioNet`], a [`Nic`]. Rings and features are the virtio crate's; this module owns
//! the buffers and keeps the card quiet. Modern (PCI id 0x1041) and transitional (0x1000) cards
//! are both driven through their modern registers. Neighbours: `transport`, `buffers`, `msix`.
//!
//! Invariant: every receive buffer is either posted to the card or is the one frame handed out;
//! every transmit buffer is either in the free list or owned by the card until it is reclaimed.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

use virtio_drivers::device::net::VirtIONetRaw;
use virtio_drivers::transport::Transport;
use virtio_drivers::transport::pci::bus::Command;
use virtio_drivers::transport::pci::{VIRTIO_VENDOR_ID, VirtioPciError};

use super::buffers::{Pool, SLOT_BYTES};
use super::hal::KernelHal;
use super::transport::MsixTransport;
use crate::arch;
use crate::drivers::msix;
use crate::drivers::nic::{Counters, FRAME_MAX, Nic, Transmit};
use crate::drivers::pci::{self, Function};

const TRANSITIONAL_NET: u16 = 0x1000;
const MODERN_NET: u16 = 0x1041;
const QUEUE_RECEIVE: u16 = 0;
const FEATURE_MAC: u64 = 1 << 5;
const FEATURE_VERSION_1: u64 = 1 << 32;

/// Entries of each ring. While a program computes nobody empties the receive ring, so it must hold
/// what may be on its way: the answers to all page requests of a node, 8 of 26 fragments each
/// (`netstack::page`), and one frame from each of 32 children and the parent in the fan-out tree:
/// 8 * 26 + 33 = 241. A power of two, and the number that virtio cards commonly offer at most.
pub const RING_ENTRIES: usize = 256;
/// Transmit buffers: one message and one retransmission to each of 32 children. Fewer than ring
/// entries, because the card empties this queue by itself; with the receive buffers the card takes
/// (256 + 64) * 2 KiB = 640 KiB, 2 % of a 32 MB guest.
pub const TRANSMIT_BUFFERS: usize = 64;
/// Virtio header before each frame, section 5.1.6 (with `num_buffers`).
const HEADER_BYTES: usize = 12;

const _: () = assert!(RING_ENTRIES.is_power_of_two() && TRANSMIT_BUFFERS <= RING_ENTRIES);
const _: () =
    assert!(netstack::page::MAX_REQUESTS * netstack::page::MAX_FRAGMENTS + 33 <= RING_ENTRIES);
const _: () = assert!(HEADER_BYTES + FRAME_MAX <= SLOT_BYTES);

/// Marks a ring entry that holds no buffer.
const NO_SLOT: u16 = u16::MAX;

type Card = VirtIONetRaw<KernelHal, MsixTransport, RING_ENTRIES>;

/// Why a card could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The PCI transport could not be opened.
    Transport(VirtioPciError),
    /// The function lacks a virtio structure of this type, as a legacy-only card does.
    NoStructure(u8),
    /// The card does not offer this feature bit.
    NoFeature(u64),
    /// Not enough contiguous memory for its buffers.
    NoMemory,
    /// The rings could not be set up.
    Rings(virtio_drivers::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "opening its registers: {error}"),
            Self::NoStructure(kind) => write!(
                f,
                "no usable virtio 1.0 structure {kind}; a legacy-only card needs disable-modern=off"
            ),
            Self::NoFeature(bit) => write!(f, "does not offer virtio feature {bit:#x}"),
            Self::NoMemory => f.write_str("no contiguous memory for its buffers"),
            Self::Rings(error) => write!(f, "setting up its rings: {error}"),
        }
    }
}

/// Whether this driver serves `function`.
pub fn is_supported(function: &Function) -> bool {
    function.vendor == VIRTIO_VENDOR_ID && matches!(function.device, TRANSITIONAL_NET | MODERN_NET)
}

/// A started virtio network card.
pub struct VirtioNet {
    receive_buffers: Pool,
    /// Slot posted under each receive ring token.
    receive_slots: [u16; RING_ENTRIES],
    /// Slot of the frame handed out last, to be posted again.
    lent: Option<u16>,
    interrupts: bool,
    half: TransmitHalf,
}

/// The card itself and its transmit buffers; apart from [`VirtioNet`] so that a received frame and
/// room to answer it can be borrowed together.
struct TransmitHalf {
    card: Box<Card>,
    buffers: Pool,
    free: Vec<u16>,
    slots: [u16; RING_ENTRIES],
    lengths: [u16; TRANSMIT_BUFFERS],
    counters: Counters,
}

impl VirtioNet {
    /// Starts the card: features, rings, interrupt vector, receive buffers.
    pub fn start(function: &Function) -> Result<Self, StartError> {
        let mut root = pci::root();
        root.set_command(
            function.address,
            Command::MEMORY_SPACE | Command::BUS_MASTER | Command::INTERRUPT_DISABLE,
        );
        let table = msix::Table::find(&mut root, function);
        if let Some(table) = &table {
            table.enable(
                arch::interrupts::allocate(arch::interrupts::Class::Nic),
                arch::apic::id(),
            );
        } else {
            warn!(
                "net",
                "card {function} has no MSI-X; a waiting node polls it"
            );
        }
        let queue = table.as_ref().map(|_| QUEUE_RECEIVE);
        let mut transport = MsixTransport::new(&mut root, function, queue)?;
        let features = transport.read_device_features();
        for needed in [FEATURE_VERSION_1, FEATURE_MAC] {
            if features & needed == 0 {
                return Err(StartError::NoFeature(needed));
            }
        }
        // Boxed at once: the crate keeps both rings' descriptors in the value, 16 KiB.
        let mut card = Box::new(Card::new(transport).map_err(StartError::Rings)?);
        card.disable_interrupts();
        let mut this = Self {
            receive_buffers: Pool::new(RING_ENTRIES).ok_or(StartError::NoMemory)?,
            receive_slots: [NO_SLOT; RING_ENTRIES],
            lent: None,
            interrupts: table.is_some(),
            half: TransmitHalf {
                card,
                buffers: Pool::new(TRANSMIT_BUFFERS).ok_or(StartError::NoMemory)?,
                free: (0..TRANSMIT_BUFFERS as u16).collect(),
                slots: [NO_SLOT; RING_ENTRIES],
                lengths: [0; TRANSMIT_BUFFERS],
                counters: Counters::default(),
            },
        };
        for slot in 0..RING_ENTRIES as u16 {
            this.post(slot);
        }
        let kind = match function.device {
            TRANSITIONAL_NET => "transitional",
            _ => "modern",
        };
        info!("net", "virtio card {function} ({kind})");
        Ok(this)
    }

    /// Gives a receive buffer to the card.
    fn post(&mut self, slot: u16) {
        let buffer = self.receive_buffers.slot(usize::from(slot));
        // SAFETY: the buffer belongs to the pool, which lives as long as the card, and is not
        // touched until `take` gets its token back.
        let token = unsafe { self.half.card.receive_begin(buffer) }
            .expect("a receive buffer for every ring entry");
        self.receive_slots[usize::from(token)] = slot;
    }

    /// Takes one completed receive buffer from the ring: its slot, offset and length of the frame.
    fn take(&mut self) -> Option<(u16, usize, usize)> {
        let token = self.half.card.poll_receive()?;
        let slot = self
            .receive_slots
            .get(usize::from(token))
            .copied()
            .filter(|&slot| slot != NO_SLOT)
            .unwrap_or_else(|| panic!("network card completed receive entry {token} not posted"));
        self.receive_slots[usize::from(token)] = NO_SLOT;
        let buffer = self.receive_buffers.slot(usize::from(slot));
        // SAFETY: this is the buffer that `post` gave under this token.
        let done = unsafe { self.half.card.receive_complete(token, buffer) };
        let (offset, len) = match done {
            Ok((offset, len)) if offset + len <= HEADER_BYTES + FRAME_MAX => (offset, len),
            // Shorter than its header, or longer than any frame: a frame of no bytes.
            _ => (0, 0),
        };
        Some((slot, offset, len))
    }
}

impl Nic for VirtioNet {
    fn mac(&self) -> [u8; 6] {
        self.half.card.mac_address()
    }

    fn receive(&mut self) -> Option<(&[u8], &mut dyn Transmit)> {
        if let Some(slot) = self.lent.take() {
            self.post(slot);
        }
        if !self.half.has_room() {
            return None;
        }
        // Bounded: each round takes one of the ring's entries away until the next call.
        for _ in 0..RING_ENTRIES {
            let (slot, offset, len) = self.take()?;
            if len == 0 {
                self.half.counters.receive_errors += 1;
                self.post(slot);
                continue;
            }
            self.lent = Some(slot);
            self.half.counters.received += 1;
            let frame = &self.receive_buffers.slot(usize::from(slot))[offset..offset + len];
            return Some((frame, &mut self.half));
        }
        None
    }

    fn transmit(&mut self) -> Option<&mut dyn Transmit> {
        if !self.half.has_room() {
            self.half.counters.transmit_full += 1;
            return None;
        }
        Some(&mut self.half)
    }

    fn has_received(&mut self) -> bool {
        self.half.card.poll_receive().is_some()
    }

    fn set_interrupts(&mut self, on: bool) {
        if on {
            self.half.card.enable_interrupts();
            // The flag must be visible to the card before the ring is looked at once more;
            // otherwise a frame that arrives in between would neither be seen nor interrupt.
            fence(Ordering::SeqCst);
        } else {
            self.half.card.disable_interrupts();
        }
    }

    fn interrupts(&self) -> bool {
        self.interrupts
    }

    fn counters(&self) -> Counters {
        self.half.counters
    }
}

impl TransmitHalf {
    /// Reclaims buffers the card has sent when none is free, and says whether one is.
    fn has_room(&mut self) -> bool {
        if self.free.is_empty() {
            self.reclaim();
        }
        !self.free.is_empty()
    }

    fn reclaim(&mut self) {
        while let Some(token) = self.card.poll_transmit() {
            let slot = self
                .slots
                .get(usize::from(token))
                .copied()
                .filter(|&slot| slot != NO_SLOT)
                .unwrap_or_else(|| panic!("network card completed send entry {token} not posted"));
            self.slots[usize::from(token)] = NO_SLOT;
            let len = usize::from(self.lengths[usize::from(slot)]);
            let buffer = &self.buffers.slot(usize::from(slot))[..len];
            // SAFETY: this is the buffer that `send` gave under this token.
            unsafe { self.card.transmit_complete(token, buffer) }
                .expect("the token was taken from the used ring");
            self.free.push(slot);
        }
    }
}

impl Transmit for TransmitHalf {
    fn send(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) {
        assert!(len <= FRAME_MAX, "frame of {len} bytes");
        let slot = self.free.pop().expect("a transmit buffer was made sure of");
        let buffer = &mut self.buffers.slot(usize::from(slot))[..HEADER_BYTES + len];
        let header = self
            .card
            .fill_buffer_header(buffer)
            .expect("the buffer is longer than a header");
        assert_eq!(header, HEADER_BYTES, "modern header");
        fill(&mut buffer[HEADER_BYTES..]);
        // SAFETY: the buffer belongs to the pool, which lives as long as the card, and is not
        // touched until `reclaim` gets its token back.
        let token = unsafe { self.card.transmit_begin(buffer) }
            .expect("the ring has an entry for every transmit buffer");
        self.slots[usize::from(token)] = slot;
        self.lengths[usize::from(slot)] = (HEADER_BYTES + len) as u16;
        self.counters.transmitted += 1;
    }
}
