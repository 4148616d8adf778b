//! PCI configuration space over the ports 0xCF8/0xCFC, and the scan of the bus.
//!
//! Key types: [`PortAccess`], the `ConfigurationAccess` the virtio crate needs; [`Function`], one
//! function found by [`scan`]. The ports exist on every PC chipset and need no ACPI table, unlike
//! the memory-mapped mechanism. Neighbours: `msix` and `virtio` read capabilities through here.
//!
//! Invariant: address and data port are used together without an interrupt between them; the
//! kernel runs with interrupts off, so no lock is needed.

use core::fmt;

use alloc::vec::Vec;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};
use x86_64::instructions::port::Port;

/// PCI base class of network controllers.
pub const CLASS_NETWORK: u8 = 0x02;

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
/// Configuration address bit that opens the data port.
const CONFIG_ENABLE: u32 = 1 << 31;

/// Most buses the scan visits. A compute node has a root bus and a few bridges; the bound keeps a
/// machine whose bridges point at each other from being scanned for ever.
const MAX_BUSES: usize = 64;
const DEVICES_PER_BUS: u8 = 32;
const FUNCTIONS_PER_DEVICE: u8 = 8;
/// Bit of the header type register that announces more functions than function 0.
const HEADER_MULTI_FUNCTION: u8 = 0x80;
const HEADER_BRIDGE: u8 = 0x01;
/// What configuration space reads as where there is no device.
const NO_DEVICE: u32 = 0xffff_ffff;

const REGISTER_ID: u8 = 0x00;
const REGISTER_CLASS: u8 = 0x08;
const REGISTER_HEADER: u8 = 0x0c;
const REGISTER_BRIDGE_BUSES: u8 = 0x18;

/// Configuration access by the two ports; reaches the first 256 bytes of each function.
#[derive(Debug, Clone, Copy)]
pub struct PortAccess;

impl PortAccess {
    fn select(function: DeviceFunction, register: u8) {
        assert!(function.valid() && register.is_multiple_of(4));
        let address = CONFIG_ENABLE
            | u32::from(function.bus) << 16
            | u32::from(function.device) << 11
            | u32::from(function.function) << 8
            | u32::from(register);
        // SAFETY: the address port only chooses what the data port shows; it has no effect on
        // memory.
        unsafe { Port::<u32>::new(CONFIG_ADDRESS).write(address) };
    }
}

impl ConfigurationAccess for PortAccess {
    fn read_word(&self, device_function: DeviceFunction, register_offset: u8) -> u32 {
        Self::select(device_function, register_offset);
        // SAFETY: reading configuration space has no effect on memory.
        unsafe { Port::<u32>::new(CONFIG_DATA).read() }
    }

    fn write_word(&mut self, device_function: DeviceFunction, register_offset: u8, data: u32) {
        Self::select(device_function, register_offset);
        // SAFETY: callers write only the command register, base address registers they restore,
        // and the control word of a capability; DMA that follows is confined by the drivers.
        unsafe { Port::<u32>::new(CONFIG_DATA).write(data) };
    }

    unsafe fn unsafe_clone(&self) -> Self {
        Self
    }
}

/// One function on a PCI bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Function {
    /// Bus, device and function number.
    pub address: DeviceFunction,
    /// Vendor id.
    pub vendor: u16,
    /// Device id.
    pub device: u16,
    /// Base class.
    pub class: u8,
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            vendor,
            device,
            ..
        } = self;
        write!(f, "{vendor:04x}:{device:04x} at {address}")
    }
}

/// A root to pass to the virtio crate's PCI functions.
pub fn root() -> PciRoot<PortAccess> {
    PciRoot::new(PortAccess)
}

/// All functions on the buses reachable from bus 0 through bridges, in bus order.
pub fn scan() -> Vec<Function> {
    let mut functions = Vec::new();
    let mut buses = alloc::vec![0u8];
    let mut next = 0;
    while let Some(&bus) = buses.get(next) {
        next += 1;
        for device in 0..DEVICES_PER_BUS {
            scan_device(bus, device, &mut functions, &mut buses);
        }
    }
    functions
}

fn scan_device(bus: u8, device: u8, functions: &mut Vec<Function>, buses: &mut Vec<u8>) {
    for function in 0..FUNCTIONS_PER_DEVICE {
        let address = DeviceFunction {
            bus,
            device,
            function,
        };
        let id = PortAccess.read_word(address, REGISTER_ID);
        if id == NO_DEVICE {
            if function == 0 {
                return;
            }
            continue;
        }
        functions.push(Function {
            address,
            vendor: id as u16,
            device: (id >> 16) as u16,
            class: (PortAccess.read_word(address, REGISTER_CLASS) >> 24) as u8,
        });
        let header = (PortAccess.read_word(address, REGISTER_HEADER) >> 16) as u8;
        if header & !HEADER_MULTI_FUNCTION == HEADER_BRIDGE {
            let secondary = (PortAccess.read_word(address, REGISTER_BRIDGE_BUSES) >> 8) as u8;
            if !buses.contains(&secondary) && buses.len() < MAX_BUSES {
                buses.push(secondary);
            }
        }
        if function == 0 && header & HEADER_MULTI_FUNCTION == 0 {
            return;
        }
    }
}
