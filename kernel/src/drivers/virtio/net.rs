//! The virtio network card.
//!
//! Key type: [`VirtioNet`], a [`Nic`]. The rings are the virtio crate's; this module owns the
//! buffers and keeps the card quiet. Its `VirtIONet` is not used because it ties both rings to one
//! size, interrupts for sent frames too, and negotiates the event index. Modern (PCI id 0x1041)
//! and transitional (0x1000) cards are both driven through their modern registers. Device and
//! rings: Virtual I/O Device (VIRTIO) specification 1.2, sections 2.7, 3.1 and 5.1. Neighbours:
//! `transport`, `buffers`, `msix`.
//!
//! Invariant: every receive buffer is either posted to the card, or is the one frame looked at, or
//! the one handed out;
//! every transmit buffer is either in the free list or owned by the card until it is reclaimed. A buffer that is posted to
//! receive, or is free to send with, holds no bytes of an earlier frame.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{Ordering, fence};

use bitflags::bitflags;
use kernel_core::cards;
use virtio_drivers::queue::VirtQueue;
use virtio_drivers::transport::pci::VirtioPciError;
use virtio_drivers::transport::pci::bus::Command;
use virtio_drivers::transport::{DeviceStatus, Transport};

use super::buffers::{Pool, SLOT_BYTES};
use super::hal::KernelHal;
use super::transport::MsixTransport;
use crate::arch;
use crate::drivers::msix;
use crate::drivers::nic::{Counters, FRAME_MAX, Nic, Transmit};
use crate::drivers::pci::{self, Function};

const TRANSITIONAL_NET: u16 = 0x1000;
const QUEUE_RECEIVE: u16 = 0;
const QUEUE_TRANSMIT: u16 = 1;

bitflags! {
    /// The features negotiated, all of them required.
    ///
    /// Not the event index: with it a device ignores the flag by which this kernel keeps the card
    /// quiet. Not indirect descriptors: every frame is one buffer. No offloads: the frames are
    /// small and checksums cheap beside what a program costs.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct Features: u64 {
        /// The device has a hardware address.
        const MAC = 1 << 5;
        /// The device follows version 1 of the specification.
        const VERSION_1 = 1 << 32;
    }
}

/// Entries of the receive ring. While a program computes nobody empties it, so it must hold what
/// may be on its way: the answers to all page requests of a node, 8 of 24 fragments each
/// (`netstack::page`), and one frame from each of 32 children and the parent in the fan-out tree:
/// 8 * 24 + 33 = 225; or what casts have asked for beside fewer of these (`agent::cast`). A power
/// of two, and the number that virtio cards commonly offer at most.
pub const RECEIVE_ENTRIES: usize = 256;
/// Entries of the transmit ring: one message and one retransmission to each of 32 children. The
/// card empties this ring by itself. With the receive buffers the card takes (256 + 64) * 2 KiB =
/// 640 KiB, 2 % of a 32 MB guest.
const TRANSMIT_ENTRIES: usize = 64;
/// Virtio header before each frame, section 5.1.6 (with `num_buffers`); all zero without offloads.
const HEADER_BYTES: usize = 12;
/// Where the hardware address stands in the device configuration, section 5.1.4.
const CONFIG_MAC: usize = 0;

const _: () =
    assert!(netstack::page::MAX_REQUESTS * netstack::page::MAX_FRAGMENTS + 33 <= RECEIVE_ENTRIES);
const _: () = assert!(HEADER_BYTES + FRAME_MAX <= SLOT_BYTES);

/// Marks a ring entry that holds no buffer.
const NO_SLOT: u16 = u16::MAX;

type Queue<const ENTRIES: usize> = Box<VirtQueue<KernelHal, ENTRIES>>;

/// Why a card could not be started.
#[derive(Debug)]
pub enum StartError {
    /// The PCI transport could not be opened.
    Transport(VirtioPciError),
    /// The function lacks a virtio structure of this type, as a legacy-only card does.
    NoStructure(u8),
    /// The card does not offer or accept the features needed.
    Features(u64),
    /// The card has no readable hardware address.
    NoAddress(virtio_drivers::Error),
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
                "no virtio 1.0 structure {kind}: legacy-only cards are not driven (QEMU: leave out \
                 disable-modern=on)"
            ),
            Self::Features(common) => {
                write!(f, "of the virtio features needed it has only {common:#x}")
            }
            Self::NoAddress(error) => write!(f, "reading its hardware address: {error}"),
            Self::NoMemory => f.write_str("no contiguous memory for its buffers"),
            Self::Rings(error) => write!(f, "setting up its rings: {error}"),
        }
    }
}

/// Whether this driver serves `function`.
pub fn is_supported(function: &Function) -> bool {
    let card = cards::find(function.vendor, function.device);
    card.is_some_and(|card| card.driver == cards::Driver::Virtio)
}

/// A started virtio network card.
pub struct VirtioNet {
    mac: [u8; 6],
    queue: Queue<RECEIVE_ENTRIES>,
    buffers: Pool,
    /// Slot posted under each ring token.
    slots: [u16; RECEIVE_ENTRIES],
    /// Slot and length of the frame handed out last, to be posted again.
    lent: Option<(u16, usize)>,
    /// Slot and length of a frame that was looked at and not taken.
    looked_at: Option<(u16, usize)>,
    interrupts: bool,
    transmit: TransmitHalf,
}

/// What sending needs; apart from [`VirtioNet`] so that a received frame and room to answer it can
/// be borrowed together.
struct TransmitHalf {
    transport: MsixTransport,
    queue: Queue<TRANSMIT_ENTRIES>,
    buffers: Pool,
    free: Vec<u16>,
    /// Slot posted under each ring token.
    slots: [u16; TRANSMIT_ENTRIES],
    /// Bytes posted of each slot.
    lengths: [u16; TRANSMIT_ENTRIES],
    counters: Counters,
}

impl VirtioNet {
    /// Starts the card: features, rings, interrupt vector, receive buffers.
    pub fn start(function: &Function) -> Result<Box<Self>, StartError> {
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
        let interrupting = table.as_ref().map(|_| QUEUE_RECEIVE);
        let mut transport = MsixTransport::new(&mut root, function, interrupting)?;
        negotiate(&mut transport)?;
        let mac = transport
            .read_consistent(|| transport.read_config_space::<[u8; 6]>(CONFIG_MAC))
            .map_err(StartError::NoAddress)?;
        let mut receive = queue::<RECEIVE_ENTRIES>(&mut transport, QUEUE_RECEIVE)?;
        let mut transmit = queue::<TRANSMIT_ENTRIES>(&mut transport, QUEUE_TRANSMIT)?;
        receive.set_dev_notify(false);
        transmit.set_dev_notify(false);
        let mut this = Box::new(Self {
            mac,
            queue: receive,
            buffers: Pool::new(RECEIVE_ENTRIES).ok_or(StartError::NoMemory)?,
            slots: [NO_SLOT; RECEIVE_ENTRIES],
            lent: None,
            looked_at: None,
            interrupts: table.is_some(),
            transmit: TransmitHalf {
                transport,
                queue: transmit,
                buffers: Pool::new(TRANSMIT_ENTRIES).ok_or(StartError::NoMemory)?,
                free: (0..TRANSMIT_ENTRIES as u16).collect(),
                slots: [NO_SLOT; TRANSMIT_ENTRIES],
                lengths: [0; TRANSMIT_ENTRIES],
                counters: Counters::default(),
            },
        });
        this.transmit.transport.finish_init();
        for slot in 0..RECEIVE_ENTRIES as u16 {
            this.post(slot);
        }
        this.tell_posted();
        let kind = match function.device {
            TRANSITIONAL_NET => "transitional",
            _ => "modern",
        };
        info!("net", "virtio card {function} ({kind})");
        Ok(this)
    }

    /// Puts a receive buffer on the ring.
    fn post(&mut self, slot: u16) {
        let buffer = self.buffers.slot(usize::from(slot));
        // SAFETY: the buffer belongs to the pool, which lives as long as the card, and is not
        // touched until `take` gets its token back.
        let token = unsafe { self.queue.add(&[], &mut [buffer]) }
            .expect("a ring entry for every receive buffer");
        self.slots[usize::from(token)] = slot;
    }

    /// Tells the card about posted buffers, if it wants to know: it ran out of them.
    fn tell_posted(&mut self) {
        if self.queue.should_notify() {
            self.transmit.transport.notify(QUEUE_RECEIVE);
        }
    }

    /// Takes one completed receive buffer from the ring: its slot and the length of the frame,
    /// zero for an impossible one.
    fn take(&mut self) -> Option<(u16, usize)> {
        let token = self.queue.peek_used()?;
        let slot = take_slot(&mut self.slots, token);
        let buffer = self.buffers.slot(usize::from(slot));
        // SAFETY: this is the buffer that `post` gave under this token.
        let written = unsafe { self.queue.pop_used(token, &[], &mut [buffer]) }
            .expect("the token was taken from the used ring");
        let len = (written as usize).saturating_sub(HEADER_BYTES);
        Some((slot, if len <= FRAME_MAX { len } else { 0 }))
    }

    /// The next frame of possible length: its slot and length.
    fn next(&mut self) -> Option<(u16, usize)> {
        if let Some(looked_at) = self.looked_at.take() {
            return Some(looked_at);
        }
        // Bounded: a card cannot have completed more than all entries.
        for _ in 0..RECEIVE_ENTRIES {
            let (slot, len) = self.take()?;
            if len > 0 {
                return Some((slot, len));
            }
            self.transmit.counters.receive_errors += 1;
            self.buffers.slot(usize::from(slot)).fill(0);
            self.post(slot);
        }
        None
    }

    /// Gives the buffer handed out last back to the card.
    fn take_back(&mut self) {
        if let Some((slot, len)) = self.lent.take() {
            self.frame_mut(slot, len).fill(0);
            self.post(slot);
            self.tell_posted();
        }
    }

    fn frame_mut(&mut self, slot: u16, len: usize) -> &mut [u8] {
        &mut self.buffers.slot(usize::from(slot))[HEADER_BYTES..HEADER_BYTES + len]
    }
}

/// Resets the card and agrees on the features, sections 3.1.1 and 2.2.
fn negotiate(transport: &mut MsixTransport) -> Result<(), StartError> {
    let common = transport.begin_init(Features::all());
    let accepted = transport.get_status().contains(DeviceStatus::FEATURES_OK);
    if common != Features::all() || !accepted {
        transport.set_status(DeviceStatus::FAILED);
        return Err(StartError::Features(common.bits()));
    }
    Ok(())
}

/// Sets up one ring. Not inlined: the crate builds the ring's 8 KiB of descriptors on the stack.
#[inline(never)]
fn queue<const ENTRIES: usize>(
    transport: &mut MsixTransport,
    index: u16,
) -> Result<Queue<ENTRIES>, StartError> {
    VirtQueue::new(transport, index, false, false)
        .map(Box::new)
        .map_err(StartError::Rings)
}

/// Takes the slot posted under `token`. Panics when there is none: the card is broken, and going
/// on would hand one buffer to two owners.
fn take_slot(slots: &mut [u16], token: u16) -> u16 {
    match slots.get_mut(usize::from(token)) {
        Some(slot) if *slot != NO_SLOT => core::mem::replace(slot, NO_SLOT),
        _ => panic!("network card completed ring entry {token}, which was not posted"),
    }
}

impl Nic for VirtioNet {
    fn mac(&self) -> [u8; 6] {
        self.mac
    }

    fn look(&mut self) -> Option<&[u8]> {
        self.take_back();
        let (slot, len) = self.next()?;
        self.looked_at = Some((slot, len));
        Some(self.frame_mut(slot, len))
    }

    fn pass(&mut self) {
        if let Some((slot, len)) = self.looked_at.take() {
            self.lent = Some((slot, len));
            self.transmit.counters.received += 1;
            self.transmit.counters.received_bytes += len as u64;
        }
    }

    fn receive(&mut self) -> Option<(&[u8], &mut dyn Transmit)> {
        self.take_back();
        if !self.transmit.has_room() {
            return None;
        }
        let (slot, len) = self.next()?;
        self.lent = Some((slot, len));
        self.transmit.counters.received += 1;
        self.transmit.counters.received_bytes += len as u64;
        let frame = &self.buffers.slot(usize::from(slot))[HEADER_BYTES..HEADER_BYTES + len];
        Some((frame, &mut self.transmit))
    }

    fn transmit(&mut self) -> Option<&mut dyn Transmit> {
        if !self.transmit.has_room() {
            self.transmit.counters.transmit_full += 1;
            return None;
        }
        Some(&mut self.transmit)
    }

    fn has_received(&mut self) -> bool {
        self.looked_at.is_some() || self.queue.can_pop()
    }

    fn set_interrupts(&mut self, on: bool) {
        self.queue.set_dev_notify(on);
        // The flag must be visible to the card before the caller looks at the ring once more;
        // otherwise a frame that arrives in between would neither be seen nor interrupt.
        fence(Ordering::SeqCst);
    }

    fn interrupts(&self) -> bool {
        self.interrupts
    }

    fn counters(&self) -> Counters {
        self.transmit.counters
    }
}

impl TransmitHalf {
    /// Reclaims buffers the card has sent, and says whether one is free.
    fn has_room(&mut self) -> bool {
        self.reclaim();
        !self.free.is_empty()
    }

    fn reclaim(&mut self) {
        while let Some(token) = self.queue.peek_used() {
            let slot = take_slot(&mut self.slots, token);
            let len = usize::from(self.lengths[usize::from(slot)]);
            let buffer = &mut self.buffers.slot(usize::from(slot))[..len];
            // SAFETY: this is the buffer that `send` gave under this token.
            unsafe { self.queue.pop_used(token, &[buffer], &mut []) }
                .expect("the token was taken from the used ring");
            buffer.fill(0);
            self.free.push(slot);
        }
    }
}

impl Transmit for TransmitHalf {
    fn send(&mut self, len: usize, fill: &mut dyn FnMut(&mut [u8])) {
        assert!(len <= FRAME_MAX, "frame of {len} bytes");
        let slot = self.free.pop().expect("a transmit buffer was made sure of");
        let buffer = &mut self.buffers.slot(usize::from(slot))[..HEADER_BYTES + len];
        let (header, frame) = buffer.split_at_mut(HEADER_BYTES);
        header.fill(0);
        fill(frame);
        // SAFETY: the buffer belongs to the pool, which lives as long as the card, and is not
        // touched until `reclaim` gets its token back.
        let token = unsafe { self.queue.add(&[buffer], &mut []) }
            .expect("the ring has an entry for every transmit buffer");
        self.slots[usize::from(token)] = slot;
        self.lengths[usize::from(slot)] = (HEADER_BYTES + len) as u16;
        self.counters.transmitted += 1;
        self.counters.transmitted_bytes += len as u64;
        if self.queue.should_notify() {
            self.transport.notify(QUEUE_TRANSMIT);
        }
    }
}
