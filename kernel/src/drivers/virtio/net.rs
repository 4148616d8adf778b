//! The virtio network card.
//!
//! Key function: [`start`]. The rings are the virtio crate's; this module keeps the card quiet.
//! The crate's `VirtIONet` is not used because it ties both rings to one
//! size, interrupts for sent frames too, and negotiates the event index. Modern (PCI id 0x1041)
//! and transitional (0x1000) cards are both driven through their modern registers, cards that have
//! none through the legacy ones. Device and
//! rings: Virtual I/O Device (VIRTIO) specification 1.2, sections 2.7, 3.1 and 5.1. Neighbours:
//! `transport`, `legacy`, `drivers::{ring_card, dma, msi}`.
//!
//! Invariant: a ring token stands for one buffer, from posting it to taking it back.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

use bitflags::bitflags;
use kernel_core::nic::driver::VIRTIO_TRANSITIONAL;
use kernel_core::nic::{BUFFER_BYTES, Signal};
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::VirtioPciError;
use virtio_drivers::transport::pci::bus::Command;
use virtio_drivers::transport::{DeviceStatus, Transport};

use super::hal::KernelHal;
use super::legacy::LegacyTransport;
use super::transport::{Doorbell, Doorbells, MsixTransport};
use crate::drivers::dma::Pool;
use crate::drivers::msi::{self, Wanted};
use crate::drivers::nic::{FRAME_MAX, Nic, RECEIVE_ENTRIES, TRANSMIT_ENTRIES};
use crate::drivers::pci::{self, Function};
use crate::drivers::ring_card::{ReceiveQueue, RingCard, TransmitQueue};

const QUEUE_RECEIVE: u16 = 0;
const QUEUE_TRANSMIT: u16 = 1;

bitflags! {
    /// Features of cards.
    ///
    /// Not the event index: with it a device ignores the flag by which this kernel keeps the card
    /// quiet. Not indirect descriptors: every frame is one buffer. No offloads: the frames are
    /// small and checksums cheap beside what a program costs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Features: u64 {
        /// The device has a hardware address.
        const MAC = 1 << 5;
        /// A frame may have several buffers; on a legacy card it is this that gives frames the
        /// same header as on others. No frame is longer than one buffer.
        const MERGED_BUFFERS = 1 << 15;
        /// The device says whether it has a link.
        const STATUS = 1 << 16;
        /// The device follows version 1 of the specification.
        const VERSION_1 = 1 << 32;
    }
}

/// Virtio header before each frame, section 5.1.6 (with `num_buffers`); all zero without offloads.
const HEADER_BYTES: usize = 12;
/// Where the hardware address stands in the device configuration, section 5.1.4.
const CONFIG_MAC: usize = 0;

/// Where its link state stands, if it has one, and the bit of a link.
const CONFIG_STATUS: usize = 6;
const STATUS_LINK: u16 = 1;

const _: () = assert!(HEADER_BYTES + FRAME_MAX <= BUFFER_BYTES);

/// Entries of both rings of the legacy cards that are driven: QEMU's number, and that of most
/// clouds.
const LEGACY_ENTRIES: usize = RECEIVE_ENTRIES;

/// Marks a ring entry that holds no buffer.
const NO_SLOT: u16 = u16::MAX;

type Queue<const ENTRIES: usize> = Box<VirtQueue<KernelHal, ENTRIES>>;

impl Features {
    /// What a card with the registers of version 1 must have, the status aside.
    const MODERN: Self = Self::MAC.union(Self::STATUS).union(Self::VERSION_1);
    /// The same of a legacy card.
    const LEGACY: Self = Self::MAC.union(Self::STATUS).union(Self::MERGED_BUFFERS);
}

/// Why a card could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The PCI transport could not be opened.
    Transport(VirtioPciError),
    /// The function lacks a virtio structure of this type, and legacy ports as well.
    NoStructure(u8),
    /// The card does not offer or accept the features needed.
    Features(u64),
    /// The card has no readable hardware address.
    NoAddress(virtio_drivers::Error),
    /// Not enough contiguous memory for its buffers.
    NoMemory,
    /// A legacy card wants a ring of another size.
    RingSize(u32),
    /// The rings could not be set up.
    Rings(virtio_drivers::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Transport(error) => write!(f, "opening its registers: {error}"),
            Self::NoStructure(kind) => write!(
                f,
                "it has neither virtio 1.0 structure {kind} nor the ports of a legacy card"
            ),
            Self::Features(common) => {
                write!(f, "of the virtio features needed it has only {common:#x}")
            }
            Self::NoAddress(error) => write!(f, "reading its hardware address: {error}"),
            Self::NoMemory => f.write_str("no contiguous memory for its buffers"),
            Self::RingSize(entries) => write!(
                f,
                "it is a legacy card with rings of {entries} entries, not {LEGACY_ENTRIES}; \
                 have the hypervisor offer virtio 1.0"
            ),
            Self::Rings(error) => write!(f, "setting up its rings: {error}"),
        }
    }
}

/// Starts the card: features, rings, interrupts by `best` at most, receive buffers.
pub fn start(function: &Function, best: Signal) -> Result<Box<dyn Nic>, StartError> {
    let mut root = pci::root();
    root.set_command(
        function.address,
        Command::IO_SPACE
            | Command::MEMORY_SPACE
            | Command::BUS_MASTER
            | Command::INTERRUPT_DISABLE,
    );
    let wanted = Wanted {
        msix: true,
        msi: false,
    };
    let signal = msi::enable(&mut root, function, wanted.at_most(best));
    let interrupting = (signal == Signal::Msix).then_some(QUEUE_RECEIVE);
    let (kind, started) = match MsixTransport::new(&mut root, function, interrupting) {
        Ok(transport) => {
            let features = Features::MODERN;
            let kind = match function.device {
                VIRTIO_TRANSITIONAL => "transitional",
                _ => "modern",
            };
            (
                kind,
                run::<_, TRANSMIT_ENTRIES>(transport, features, signal),
            )
        }
        Err(error) => {
            let transport =
                LegacyTransport::find(&mut root, function, interrupting).ok_or(error)?;
            let features = Features::LEGACY;
            (
                "legacy",
                run::<_, LEGACY_ENTRIES>(transport, features, signal),
            )
        }
    };
    info!("net", "virtio card {function} ({kind}, {signal})");
    started
}

/// Starts a card whose ring to send has `SEND` entries.
fn run<T, const SEND: usize>(
    mut transport: T,
    features: Features,
    signal: Signal,
) -> Result<Box<dyn Nic>, StartError>
where
    T: Transport + Doorbells + Send + 'static,
{
    let features = negotiate(&mut transport, features)?;
    let mac = transport
        .read_consistent(|| transport.read_config_space::<[u8; 6]>(CONFIG_MAC))
        .map_err(StartError::NoAddress)?;
    let mut receive = queue::<_, RECEIVE_ENTRIES>(&mut transport, QUEUE_RECEIVE)?;
    let mut transmit = queue::<_, SEND>(&mut transport, QUEUE_TRANSMIT)?;
    receive.set_dev_notify(false);
    transmit.set_dev_notify(false);
    let buffers = |slots| Pool::new(slots, 64).ok_or(StartError::NoMemory);
    let (received, to_send) = (buffers(RECEIVE_ENTRIES)?, buffers(TRANSMIT_ENTRIES)?);
    transport.finish_init();
    let sending = Sending {
        doorbell: transport.doorbell(QUEUE_TRANSMIT),
        queue: transmit,
        free: (0..TRANSMIT_ENTRIES as u16).collect(),
        slots: [NO_SLOT; SEND],
    };
    let receiving = Receiving {
        doorbell: transport.doorbell(QUEUE_RECEIVE),
        queue: receive,
        slots: [NO_SLOT; RECEIVE_ENTRIES],
        has_status: features.contains(Features::STATUS),
        transport,
    };
    let card = RingCard::new(
        mac,
        (receiving, received, 0),
        (sending, to_send),
        signal != Signal::None,
    );
    Ok(Box::new(card))
}

/// Whether the card wants to hear of what was put on the ring.
///
/// The fence keeps the look at the card's flag behind the ring's new index: a card on another
/// processor that stops looking at the index meanwhile would never hear of it (section 2.7.13.4.1).
fn wants_notice<const ENTRIES: usize>(queue: &Queue<ENTRIES>) -> bool {
    fence(Ordering::SeqCst);
    queue.should_notify()
}

/// Resets the card and agrees on the features, sections 3.1.1 and 2.2.
fn negotiate<T: Transport>(transport: &mut T, wanted: Features) -> Result<Features, StartError> {
    let common = transport.begin_init(wanted);
    let accepted = transport.get_status().contains(DeviceStatus::FEATURES_OK);
    if !common.contains(wanted - Features::STATUS) || !accepted {
        transport.set_status(DeviceStatus::FAILED);
        return Err(StartError::Features(common.bits()));
    }
    Ok(common)
}

/// Sets up one ring. Not inlined: the crate builds the ring's 8 KiB of descriptors on the stack.
#[inline(never)]
fn queue<T: Transport, const ENTRIES: usize>(
    transport: &mut T,
    index: u16,
) -> Result<Queue<ENTRIES>, StartError> {
    // The size of a legacy ring is the card's to choose.
    let entries = transport.max_queue_size(index);
    if transport.requires_legacy_layout() && entries != ENTRIES as u32 {
        return Err(StartError::RingSize(entries));
    }
    VirtQueue::new(transport, index, false, false)
        .map(Box::new)
        .map_err(StartError::Rings)
}

/// Takes the slot posted under `token`. Panics when there is none: the card is broken, and going
/// on would hand one buffer to two owners.
fn take_slot(slots: &mut [u16], token: u16) -> usize {
    match slots.get_mut(usize::from(token)) {
        Some(slot) if *slot != NO_SLOT => usize::from(core::mem::replace(slot, NO_SLOT)),
        _ => panic!("network card completed ring entry {token}, which was not posted"),
    }
}

/// The receiving half.
struct Receiving<T> {
    transport: T,
    doorbell: Doorbell,
    queue: Queue<RECEIVE_ENTRIES>,
    /// Buffer posted under each ring token.
    slots: [u16; RECEIVE_ENTRIES],
    /// The card says whether it has a link.
    has_status: bool,
}

impl<T: Transport + Send> ReceiveQueue for Receiving<T> {
    const HEADER: usize = HEADER_BYTES;

    fn post(&mut self, slot: usize, buffers: &mut Pool) {
        let buffer = buffers.slot(slot);
        // SAFETY: the buffer belongs to the pool, which lives as long as the card, and is not
        // touched until `take` gets its token back.
        let token = unsafe { self.queue.add(&[], &mut [buffer]) }
            .expect("a ring entry for every receive buffer");
        self.slots[usize::from(token)] = slot as u16;
    }

    /// Tells the card about posted buffers, if it wants to know: it ran out of them.
    fn tell(&mut self) {
        if wants_notice(&self.queue) {
            self.doorbell.ring();
        }
    }

    fn take(&mut self, buffers: &mut Pool) -> Option<(usize, usize)> {
        let token = self.queue.peek_used()?;
        let slot = take_slot(&mut self.slots, token);
        let buffer = buffers.slot(slot);
        // SAFETY: this is the buffer that `post` gave under this token.
        let written = unsafe { self.queue.pop_used(token, &[], &mut [buffer]) }
            .expect("the token was taken from the used ring");
        Some((slot, (written as usize).saturating_sub(HEADER_BYTES)))
    }

    fn is_ready(&self) -> bool {
        self.queue.can_pop()
    }

    fn set_interrupts(&mut self, on: bool) {
        self.queue.set_dev_notify(on);
        // The flag must be visible to the card before the caller looks at the ring once more;
        // otherwise a frame that arrives in between would neither be seen nor interrupt.
        fence(Ordering::SeqCst);
    }

    fn has_link(&self) -> bool {
        let status = self.transport.read_config_space::<u16>(CONFIG_STATUS);
        !self.has_status || status.is_ok_and(|status| status & STATUS_LINK != 0)
    }

    fn quiesce(&mut self) {
        self.transport.set_status(DeviceStatus::empty());
    }
}

/// The sending half.
struct Sending<const ENTRIES: usize> {
    doorbell: Doorbell,
    queue: Queue<ENTRIES>,
    free: Vec<u16>,
    /// Buffer posted under each ring token.
    slots: [u16; ENTRIES],
}

impl<const ENTRIES: usize> TransmitQueue for Sending<ENTRIES> {
    // It stays as it was when the buffer was cleared: without offloads it is all zero.
    const HEADER: usize = HEADER_BYTES;

    fn free(&self) -> Option<usize> {
        self.free.last().map(|&slot| usize::from(slot))
    }

    fn send(&mut self, slot: usize, buffers: &mut Pool) {
        let free = self.free.pop();
        assert_eq!(free, Some(slot as u16), "the buffer that was free");
        // SAFETY: the buffer belongs to the pool, which lives as long as the card, and is not
        // touched until `reclaim` gets its token back.
        let token = unsafe { self.queue.add(&[buffers.used(slot)], &mut []) }
            .expect("the ring has an entry for every transmit buffer");
        self.slots[usize::from(token)] = slot as u16;
        if wants_notice(&self.queue) {
            self.doorbell.ring();
        }
    }

    fn reclaim(&mut self, buffers: &mut Pool) -> Option<usize> {
        let token = self.queue.peek_used()?;
        let slot = take_slot(&mut self.slots, token);
        // SAFETY: this is the buffer that `send` gave under this token.
        unsafe { self.queue.pop_used(token, &[buffers.used(slot)], &mut []) }
            .expect("the token was taken from the used ring");
        self.free.push(slot as u16);
        Some(slot)
    }
}
