//! Cards with rings of descriptors, as Intel's and Realtek's are.
//!
//! Key types: [`Rings`], the memory of a card, which becomes a card; [`StartError`]. What the
//! descriptors say is `kernel_core::nic::ring`'s. Neighbours: `intel`, `realtek`,
//! [`super::ring_card`], [`super::dma`].
//!
//! Invariant: ring and buffers of one half have the same numbers.

use alloc::boxed::Box;
use core::fmt;

use kernel_core::addr::PhysAddr;
use kernel_core::nic::ring::{DESCRIPTOR_BYTES, Format, ReceiveRing, TransmitRing};
use kernel_core::nic::{Controller, Place, Signal};

use virtio_drivers::transport::pci::bus::{BarInfo, PciRoot};

use super::dma::{Pool, Words};
use super::mmio::Registers;
use super::nic::Nic;
use super::pci::{Function, PortAccess};
use super::ring_card::{ReceiveQueue, RingCard, TransmitQueue};

/// Receive buffers that are given back before the card is told: each time costs a write across the
/// bus, which under a hypervisor is an exit. Of 256 buffers the card still has 239 at least.
const TELL_EVERY: usize = 16;

/// Why a card could not be started.
#[derive(Debug)]
pub enum StartError<E> {
    /// A base address register leads nowhere.
    NoRegisters,
    /// Not enough contiguous memory for its buffers.
    NoMemory,
    /// The card itself.
    Card(E),
}

impl<E: fmt::Display> fmt::Display for StartError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRegisters => f.write_str(
                "the firmware gave its registers no address; is it switched off in the setup?",
            ),
            Self::NoMemory => f.write_str("no contiguous memory for its buffers"),
            Self::Card(error) => error.fmt(f),
        }
    }
}

/// Maps the first `bytes` bytes of registers behind a base address register.
pub fn map_registers<E>(
    root: &mut PciRoot<PortAccess>,
    function: &Function,
    bar: u8,
    bytes: usize,
) -> Result<Registers, StartError<E>> {
    match root.bar_info(function.address, bar) {
        Ok(Some(BarInfo::Memory { address, size, .. })) if address != 0 && size >= bytes as u64 => {
            Ok(Registers::map(PhysAddr::new(address), bytes))
        }
        _ => Err(StartError::NoRegisters),
    }
}

/// The rings of a card and their buffers.
pub struct Rings<F> {
    receive: (ReceiveRing<F, Words>, Pool),
    transmit: (TransmitRing<F, Words>, Pool),
}

impl<F: Format + Copy + Send + 'static> Rings<F> {
    /// Allocates rings of so many entries; `None` without enough contiguous memory that the card
    /// reaches.
    pub fn new(format: F, receive: usize, transmit: usize) -> Option<Self> {
        let bits = F::ADDRESS_BITS;
        let words = |entries| Words::new(entries * DESCRIPTOR_BYTES, bits);
        let (received, to_send) = (Pool::new(receive, bits)?, Pool::new(transmit, bits)?);
        let receive = ReceiveRing::new(format, words(receive)?, received.address());
        let transmit = TransmitRing::new(format, words(transmit)?, to_send.address());
        Some(Self {
            receive: (receive, received),
            transmit: (transmit, to_send),
        })
    }

    /// Where the card finds the ring to receive.
    pub fn receive(&self) -> Place {
        self.receive.0.memory()
    }

    /// Where the card finds the ring to send.
    pub fn transmit(&self) -> Place {
        self.transmit.0.memory()
    }

    /// The card, which `controller` has started on these rings, and which interrupts by `signal`.
    pub fn into_card<C>(self, mac: [u8; 6], controller: C, signal: Signal) -> Box<dyn Nic>
    where
        C: Controller + Clone + Send + 'static,
    {
        let sending = Sending {
            controller: controller.clone(),
            ring: self.transmit.0,
        };
        let receiving = Receiving {
            controller,
            ring: self.receive.0,
            untold: 0,
            tail: 0,
        };
        Box::new(RingCard::new(
            mac,
            (receiving, self.receive.1, F::SPARE),
            (sending, self.transmit.1),
            signal != Signal::None,
        ))
    }
}

/// The receiving half.
struct Receiving<C, F> {
    controller: C,
    ring: ReceiveRing<F, Words>,
    /// Buffers that the card was not told of.
    untold: usize,
    tail: usize,
}

impl<C: Controller + Send, F: Format + Send> ReceiveQueue for Receiving<C, F> {
    const HEADER: usize = 0;

    /// Buffers go back in order: where one is spare, it is the one of the time before.
    fn post(&mut self, _slot: usize, _buffers: &mut Pool) {
        self.tail = self.ring.post();
        self.untold += 1;
    }

    fn tell(&mut self) {
        if self.untold >= TELL_EVERY {
            self.controller.offer(self.tail);
            self.untold = 0;
        }
    }

    fn take(&mut self, _buffers: &mut Pool) -> Option<(usize, usize)> {
        let taken = self.ring.take()?;
        Some((taken.slot, taken.bytes))
    }

    fn is_ready(&self) -> bool {
        self.ring.is_ready()
    }

    fn set_interrupts(&mut self, on: bool) {
        self.controller.set_interrupts(on);
    }

    fn has_link(&self) -> bool {
        self.controller.has_link()
    }

    fn quiesce(&mut self) {
        if !self.controller.stop() {
            warn!("net", "card did not finish its reset");
        }
    }
}

/// The sending half.
struct Sending<C, F> {
    controller: C,
    ring: TransmitRing<F, Words>,
}

impl<C: Controller + Send, F: Format + Send> TransmitQueue for Sending<C, F> {
    const HEADER: usize = 0;

    fn free(&self) -> Option<usize> {
        self.ring.free()
    }

    fn send(&mut self, slot: usize, buffers: &mut Pool) {
        // What is added is zero: the buffer holds nothing else.
        let bytes = buffers.used(slot).len().max(F::SHORTEST);
        self.controller.send(self.ring.send(bytes));
    }

    fn reclaim(&mut self, _buffers: &mut Pool) -> Option<usize> {
        self.ring.reclaim()
    }
}
