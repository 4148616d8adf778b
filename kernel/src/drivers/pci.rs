//! PCI configuration space over the ports 0xCF8/0xCFC, and the scan of all buses.
//!
//! Key types: [`PortAccess`], the `ConfigurationAccess` the virtio crate needs; [`Function`], one
//! function found by [`scan`]. The ports exist on every PC chipset and need no ACPI table, unlike
//! the memory-mapped mechanism. Neighbours: `kernel_core::pci` decides what is looked at and what
//! is switched off; `msix` and `virtio` read capabilities through here.
//!
//! Invariant: address and data port are used together without an interrupt between them; the
//! kernel runs with interrupts off, so no lock is needed.

use core::fmt;

use alloc::vec::Vec;
use kernel_core::pci::{self, Address, Buses, ConfigSpace, REGISTER_CLASS, REGISTER_ID};
use spin::Once;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, DeviceFunction, PciRoot};
use x86_64::instructions::port::Port;

/// PCI base class of network controllers.
pub const CLASS_NETWORK: u8 = 0x02;

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
/// Configuration address bit that opens the data port.
const CONFIG_ENABLE: u32 = 1 << 31;

/// The buses on which [`silence`] found something.
static BUSES: Once<Buses> = Once::new();

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

impl ConfigSpace for PortAccess {
    fn read(&self, at: Address, register: u8) -> u32 {
        self.read_word(device_function(at), register)
    }

    fn write(&mut self, at: Address, register: u8, value: u32) {
        self.write_word(device_function(at), register, value);
    }
}

fn device_function(at: Address) -> DeviceFunction {
    DeviceFunction {
        bus: at.bus,
        device: at.device,
        function: at.function,
    }
}

/// Takes bus mastering and interrupts by message from all devices but bridges, so that nothing
/// that firmware left at work writes to memory: before memory is used, and without a heap. A
/// driver gives its device back what it needs.
pub fn silence() {
    let mut active = 0;
    let buses = pci::find_buses(&mut PortAccess, |config, at| {
        active += u32::from(pci::silence(config, at));
    });
    BUSES.call_once(|| buses);
    debug!("pci", "{active} devices were active and have been silenced");
}

/// All functions in the order of their buses. What [`silence`] did not see is not there.
pub fn scan() -> Vec<Function> {
    let mut functions = Vec::new();
    for bus in BUSES.get().copied().unwrap_or_default().iter() {
        pci::for_each_function(&mut PortAccess, bus, |config, at| {
            let id = config.read(at, REGISTER_ID);
            functions.push(Function {
                address: device_function(at),
                vendor: id as u16,
                device: (id >> 16) as u16,
                class: (config.read(at, REGISTER_CLASS) >> 24) as u8,
            });
        });
    }
    functions
}
