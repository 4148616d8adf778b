//! Intel's one-gigabit family: 8254x (e1000), 82571 to 82583 (e1000e), 82576 to I350 (igb), I225
//! and I226 (igc).
//!
//! Key types: [`Card`], the registers of one card; [`Model`], how it differs from the others;
//! [`Format`], its descriptors. One queue each way, every frame in one buffer, no offloads.
//! Register facts: "PCI/PCI-X Family of Gigabit Ethernet Controllers Software Developer's Manual"
//! (8254x), and the datasheets of 82574, 82576 and I225. Neighbours: [`super::ring`],
//! `kernel::drivers::intel`.
//!
//! Invariant: after [`Card::stop`], and before [`Card::start`], the card neither reads nor writes
//! memory and raises no interrupt; every wait for it has a limit.

mod format;
mod models;
mod registers;
#[cfg(test)]
mod tests;

use core::fmt;

use self::registers as reg;
use super::{Bus, Controller, Place, Signal};
pub use format::Format;
pub use models::{MODELS, Model, Proof, VENDOR, model};

/// Bytes of registers that are used; the first base address register has at least 128 KiB.
pub const REGISTER_BYTES: usize = 0x2_0000;

/// Wait for a reset or for the last transfers: steps of 100 microseconds, 100 milliseconds in all.
/// The manuals name some milliseconds for either.
const STEP_MICROS: u32 = 100;
const STEPS: u32 = 1000;
/// Wait before a card that is being reset is asked for the first time.
const RESET_MICROS: u32 = 10;
/// What every register of a card reads as that is not there any more.
const GONE: u32 = u32::MAX;

/// Why a card could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// All registers read as ones.
    Gone,
    /// It did not come back from a reset.
    Reset,
    /// It has no hardware address.
    NoAddress,
    /// It did not switch a queue on.
    Queue,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "its registers read as ones; is it powered and in its slot?",
            Self::Reset => "it did not come back from a reset; switch the machine off and on",
            Self::NoAddress => "it has no hardware address; is its EEPROM programmed?",
            Self::Queue => "it did not switch its queues on; switch the machine off and on",
        })
    }
}

/// The registers of a card that was reset.
#[derive(Clone, Debug)]
pub struct Card<B> {
    bus: B,
    model: &'static Model,
    /// The causes that [`Self::set_interrupts`] lets through.
    causes: u32,
}

impl<B: Bus> Card<B> {
    /// Stops and resets the card, and reads its hardware address.
    pub fn open(bus: B, model: &'static Model) -> Result<(Self, [u8; 6]), Error> {
        if bus.read(reg::STATUS) == GONE {
            return Err(Error::Gone);
        }
        let before = address(&bus);
        let this = Self {
            bus,
            model,
            causes: 0,
        };
        if !this.stop() {
            return Err(Error::Reset);
        }
        // The reset loads the address from the EEPROM. What firmware has set comes second.
        let mac = address(&this.bus).or(before).ok_or(Error::NoAddress)?;
        this.set_address(mac);
        Ok((this, mac))
    }

    /// Starts the card on two rings without buffers. Interrupts, which arrive by `signal`, are
    /// off.
    pub fn start(&mut self, receive: Place, transmit: Place, signal: Signal) -> Result<(), Error> {
        self.bring_link_up();
        for entry in 0..reg::MULTICAST_ENTRIES {
            self.bus.write(reg::MULTICAST_TABLE + 4 * entry, 0);
        }
        self.route(signal);
        let (bus, model) = (&self.bus, self.model);
        self.set_ring(model.receive_ring, receive);
        self.set_ring(model.transmit_ring, transmit);
        if model.advanced {
            let kind = reg::SPLIT_ONE_BUFFER | reg::SPLIT_2_KIB;
            bus.write(model.receive_ring + reg::RING_SPLIT, kind);
            self.enable_queue(model.receive_ring)?;
            self.enable_queue(model.transmit_ring)?;
        } else {
            bus.write(reg::RECEIVE_DELAY, 0);
            bus.write(reg::TRANSMIT_GAP, reg::TRANSMIT_GAP_COPPER);
            if model.express {
                let control = model.transmit_ring + reg::RING_CONTROL;
                bus.write(control, bus.read(control) | reg::RING_COUNT_DESCRIPTORS);
            }
        }
        bus.write(reg::TRANSMIT_CONTROL, reg::TRANSMIT_ON);
        bus.write(reg::RECEIVE_CONTROL, reg::RECEIVE_ON);
        Ok(())
    }

    fn bring_link_up(&self) {
        let forced = reg::CONTROL_NO_MASTER
            | reg::CONTROL_INVERT_LOSS
            | reg::CONTROL_FORCE_SPEED
            | reg::CONTROL_FORCE_DUPLEX
            | reg::CONTROL_VLAN;
        let mut control = self.bus.read(reg::CONTROL) & !forced | reg::CONTROL_LINK_UP;
        if !self.model.express {
            control |= reg::CONTROL_DETECT_SPEED;
        }
        self.bus.write(reg::CONTROL, control);
        // The newer PHYs may have been left without power; one that has a link is left alone.
        if self.model.advanced && !self.has_link() {
            self.bus.write(reg::PHY, reg::PHY_NEGOTIATE);
        }
    }

    /// Has received frames interrupt by `signal` once they may.
    fn route(&mut self, signal: Signal) {
        self.causes = match signal {
            Signal::None => 0,
            Signal::Msi => reg::CAUSE_RECEIVED,
            Signal::Msix => {
                self.bus.write(reg::VECTORS, reg::VECTORS_RECEIVE_0);
                reg::CAUSE_RECEIVE_QUEUE_0
            }
        };
        if self.model.advanced {
            self.bus.write(reg::GENERAL_INTERRUPT, 0);
        } else {
            self.bus.write(reg::INTERRUPT_THROTTLE, 0);
        }
    }

    fn set_ring(&self, ring: usize, (address, bytes): Place) {
        self.bus.write(ring + reg::RING_ADDRESS, address as u32);
        let high = (address >> 32) as u32;
        self.bus.write(ring + reg::RING_ADDRESS_HIGH, high);
        self.bus.write(ring + reg::RING_LENGTH, bytes as u32);
        self.bus.write(ring + reg::RING_HEAD, 0);
        self.bus.write(ring + reg::RING_TAIL, 0);
    }

    fn enable_queue(&self, ring: usize) -> Result<(), Error> {
        let register = ring + reg::RING_CONTROL;
        let control = self.bus.read(register) | reg::RING_ENABLE;
        self.bus.write(register, control);
        let is_on = self.bus.wait(STEP_MICROS, STEPS, |bus| {
            bus.read(register) & reg::RING_ENABLE != 0
        });
        is_on.then_some(()).ok_or(Error::Queue)
    }

    fn set_address(&self, mac: [u8; 6]) {
        let [a, b, c, d, e, f] = mac;
        self.bus
            .write(reg::ADDRESS_LOW, u32::from_le_bytes([a, b, c, d]));
        let high = u32::from_le_bytes([e, f, 0, 0]) | reg::ADDRESS_VALID;
        self.bus.write(reg::ADDRESS_HIGH, high);
    }
}

impl<B: Bus> Controller for Card<B> {
    fn stop(&self) -> bool {
        let bus = &self.bus;
        bus.write(reg::INTERRUPT_MASK_CLEAR, u32::MAX);
        bus.write(reg::RECEIVE_CONTROL, 0);
        bus.write(reg::TRANSMIT_CONTROL, reg::TRANSMIT_PAD_SHORT);
        let control = bus.read(reg::CONTROL);
        if self.model.express {
            // Transfers under way are to end before the reset, or they may hang the bus.
            bus.write(reg::CONTROL, control | reg::CONTROL_NO_MASTER);
            bus.wait(STEP_MICROS, STEPS, |bus| {
                bus.read(reg::STATUS) & reg::STATUS_MASTER == 0
            });
        }
        bus.write(reg::CONTROL, control | reg::CONTROL_RESET);
        bus.pause(RESET_MICROS);
        let is_back = bus.wait(STEP_MICROS, STEPS, |bus| {
            let control = bus.read(reg::CONTROL);
            let high = bus.read(reg::ADDRESS_HIGH);
            control != GONE && control & reg::CONTROL_RESET == 0 && high & reg::ADDRESS_VALID != 0
        });
        bus.write(reg::INTERRUPT_MASK_CLEAR, u32::MAX);
        bus.read(reg::INTERRUPT_CAUSE);
        is_back
    }

    fn offer(&self, tail: usize) {
        let register = self.model.receive_ring + reg::RING_TAIL;
        self.bus.write(register, tail as u32);
    }

    fn send(&self, tail: usize) {
        let register = self.model.transmit_ring + reg::RING_TAIL;
        self.bus.write(register, tail as u32);
    }

    fn has_link(&self) -> bool {
        let status = self.bus.read(reg::STATUS);
        status != GONE && status & reg::STATUS_LINK != 0
    }

    fn set_interrupts(&self, on: bool) {
        if on {
            self.bus.write(reg::INTERRUPT_CAUSE, self.causes);
            self.bus.write(reg::INTERRUPT_MASK_SET, self.causes);
        } else {
            self.bus.write(reg::INTERRUPT_MASK_CLEAR, u32::MAX);
        }
        // The answer to a read comes behind every write of the driver, and every frame and message
        // of the card, before it: whoever looks at the ring now sees all frames whose cause was
        // cleared, and after switching off no interrupt comes any more.
        self.bus.read(reg::STATUS);
    }
}

/// The hardware address that the card listens to; `None` where it is none of a single card.
fn address<B: Bus>(bus: &B) -> Option<[u8; 6]> {
    let [a, b, c, d] = bus.read(reg::ADDRESS_LOW).to_le_bytes();
    let high = bus.read(reg::ADDRESS_HIGH);
    let [e, f, ..] = high.to_le_bytes();
    let mac = [a, b, c, d, e, f];
    let is_valid = high & reg::ADDRESS_VALID != 0 && super::is_station(mac);
    is_valid.then_some(mac)
}
