//! The functions on a machine's PCI buses, and how those that firmware left at work are silenced.
//!
//! Key types: [`ConfigSpace`], access to configuration space with a fake for tests; [`Buses`], the
//! buses on which something was found. Registers: PCI Local Bus Specification 3.0, chapter 6.
//! Neighbours: `kernel::drivers::pci` has the ports, and calls [`find_buses`] and [`silence`].
//!
//! A machine with several sockets has several root buses, which no bridge leads to and only AML
//! names. So every bus is looked at, except those that a bridge claims and leaves empty.
//!
//! Invariant: whatever configuration space holds, a scan reads every function once at most, and
//! every list of capabilities has an end.

#[cfg(test)]
mod tests;

/// Register of vendor and device.
pub const REGISTER_ID: u8 = 0x00;
/// Register of command (low half) and status (high half).
pub const REGISTER_COMMAND: u8 = 0x04;
/// Register of the class, in the highest byte.
pub const REGISTER_CLASS: u8 = 0x08;
const REGISTER_HEADER: u8 = 0x0c;
const REGISTER_BRIDGE_BUSES: u8 = 0x18;
const REGISTER_CAPABILITIES: u8 = 0x34;

/// What configuration space reads as where there is no device.
const NO_DEVICE: u32 = 0xffff_ffff;
/// Bit of the header type that announces more functions than function 0.
const HEADER_MULTI_FUNCTION: u8 = 0x80;
const HEADER_BRIDGE: u8 = 0x01;
/// Base class of bridges: to the processor, to other PCI buses, to ISA.
const CLASS_BRIDGE: u8 = 0x06;

const COMMAND_BUS_MASTER: u32 = 1 << 2;
/// The status half of the register clears bits that are written as one.
const COMMAND_HALF: u32 = 0xffff;
const STATUS_CAPABILITIES: u32 = 1 << 20;
/// MSI: enabled, in the first word of the capability.
const CAPABILITY_MSI: u8 = 0x05;
const MSI_ENABLE: u32 = 1 << 16;
/// MSI-X: enabled, in the first word of the capability.
const CAPABILITY_MSIX: u8 = 0x11;
const MSIX_ENABLE: u32 = 1 << 31;
/// The 192 bytes behind the header hold this many capabilities of four bytes at most.
const CAPABILITIES_MAX: usize = 48;
const CAPABILITIES_FIRST: u8 = 0x40;

const DEVICES_PER_BUS: u8 = 32;
const FUNCTIONS_PER_DEVICE: u8 = 8;

/// Where a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Bus.
    pub bus: u8,
    /// Device, below 32.
    pub device: u8,
    /// Function, below 8.
    pub function: u8,
}

/// The first 256 bytes of the configuration space of every function.
pub trait ConfigSpace {
    /// Reads a register, a multiple of four; all ones where there is no function.
    fn read(&self, at: Address, register: u8) -> u32;
    /// Writes a register, a multiple of four.
    fn write(&mut self, at: Address, register: u8, value: u32);
}

/// A set of buses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Buses([u64; 4]);

impl Buses {
    /// No bus.
    pub const NONE: Self = Self([0; 4]);

    fn insert(&mut self, bus: u8) {
        self.0[usize::from(bus / 64)] |= 1 << (bus % 64);
    }

    fn contains(&self, bus: u8) -> bool {
        self.0[usize::from(bus / 64)] >> (bus % 64) & 1 == 1
    }

    /// Its buses in rising order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).filter(move |&bus| self.contains(bus))
    }
}

/// Looks at all buses, and calls `visit` with each function; the buses that have any.
pub fn find_buses<C: ConfigSpace>(config: &mut C, mut visit: impl FnMut(&mut C, Address)) -> Buses {
    let mut found = Buses::NONE;
    // Behind a bridge: whether a bus is there is for another bridge to say.
    let (mut claimed, mut secondary) = (Buses::NONE, Buses::NONE);
    for bus in 0..=u8::MAX {
        if claimed.contains(bus) && !secondary.contains(bus) {
            continue;
        }
        for_each_function(config, bus, |config, at| {
            found.insert(bus);
            visit(config, at);
            if let Some((first, last)) = bridge_buses(config, at) {
                secondary.insert(first);
                (first..=last).for_each(|bus| claimed.insert(bus));
            }
        });
    }
    found
}

/// Calls `visit` with each function on one bus.
pub fn for_each_function<C: ConfigSpace>(
    config: &mut C,
    bus: u8,
    mut visit: impl FnMut(&mut C, Address),
) {
    for device in 0..DEVICES_PER_BUS {
        for function in 0..FUNCTIONS_PER_DEVICE {
            let at = Address {
                bus,
                device,
                function,
            };
            let there = config.read(at, REGISTER_ID) != NO_DEVICE;
            if there {
                visit(config, at);
            }
            // Without function 0 there is no device.
            if function == 0 && !(there && header(config, at) & HEADER_MULTI_FUNCTION != 0) {
                break;
            }
        }
    }
}

fn header(config: &impl ConfigSpace, at: Address) -> u8 {
    (config.read(at, REGISTER_HEADER) >> 16) as u8
}

/// The buses behind a bridge that firmware has set up: they follow the bridge's own.
fn bridge_buses(config: &impl ConfigSpace, at: Address) -> Option<(u8, u8)> {
    if header(config, at) & !HEADER_MULTI_FUNCTION != HEADER_BRIDGE {
        return None;
    }
    let [_, secondary, subordinate, _] = config.read(at, REGISTER_BRIDGE_BUSES).to_le_bytes();
    (at.bus < secondary && secondary <= subordinate).then_some((secondary, subordinate))
}

/// Takes bus mastering and interrupts by message from a function, unless it is a bridge; whether
/// it had any of them. Bridges need bus mastering for what is behind them.
pub fn silence(config: &mut impl ConfigSpace, at: Address) -> bool {
    if (config.read(at, REGISTER_CLASS) >> 24) as u8 == CLASS_BRIDGE {
        return false;
    }
    let status_and_command = config.read(at, REGISTER_COMMAND);
    let mut was_active = false;
    if status_and_command & COMMAND_BUS_MASTER != 0 {
        let command = status_and_command & COMMAND_HALF & !COMMAND_BUS_MASTER;
        config.write(at, REGISTER_COMMAND, command);
        was_active = true;
    }
    if status_and_command & STATUS_CAPABILITIES == 0 {
        return was_active;
    }
    let mut next = config.read(at, REGISTER_CAPABILITIES) as u8;
    for _ in 0..CAPABILITIES_MAX {
        let offset = next & !3;
        if offset < CAPABILITIES_FIRST {
            break;
        }
        let word = config.read(at, offset);
        let [id, following, ..] = word.to_le_bytes();
        let enable = match id {
            CAPABILITY_MSI => MSI_ENABLE,
            CAPABILITY_MSIX => MSIX_ENABLE,
            _ => 0,
        };
        if word & enable != 0 {
            config.write(at, offset, word & !enable);
            was_active = true;
        }
        next = following;
    }
    was_active
}
