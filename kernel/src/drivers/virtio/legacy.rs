//! The transport of virtio cards from before version 1.0: registers in I/O ports.
//!
//! Key type: [`LegacyTransport`]. Hypervisors with an old configuration offer nothing else.
//! Registers: Virtual I/O Device (VIRTIO) specification 1.2, section 4.1.4.10. Neighbours:
//! `transport` is the one of newer cards, `net` drives either.
//!
//! Invariant: no event of the device but a filled receive buffer has an interrupt vector.

use virtio_drivers::transport::pci::bus::{BarInfo, PciRoot};
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{Error, PAGE_SIZE, PhysAddr as DeviceAddr, Result};
use x86_64::instructions::port::{Port, PortRead, PortWrite};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::transport::{Doorbell, Doorbells, NO_VECTOR, reset_done};
use crate::drivers::pci::{Function, PortAccess};

const DEVICE_FEATURES: u16 = 0x00;
const DRIVER_FEATURES: u16 = 0x04;
const QUEUE_PAGE: u16 = 0x08;
const QUEUE_SIZE: u16 = 0x0c;
const QUEUE_SELECT: u16 = 0x0e;
const QUEUE_NOTIFY: u16 = 0x10;
const STATUS: u16 = 0x12;
const INTERRUPT_STATUS: u16 = 0x13;
/// The next two exist, and the configuration begins behind them, while MSI-X is on.
const CONFIG_VECTOR: u16 = 0x14;
const QUEUE_VECTOR: u16 = 0x16;
const CONFIG: u16 = 0x14;
const CONFIG_WITH_MSIX: u16 = 0x18;
/// Ports of a device: the registers above and the configuration of a network card.
const PORTS: u32 = 0x20;

/// Ports of one device.
#[derive(Debug)]
pub struct LegacyTransport {
    base: u16,
    /// The queue that interrupts, when the device has MSI-X.
    interrupting_queue: Option<u16>,
}

impl LegacyTransport {
    /// The transport of `function`; `None` where it has no such ports. `interrupting_queue` gets
    /// MSI-X table entry 0.
    pub fn find(
        root: &mut PciRoot<PortAccess>,
        function: &Function,
        interrupting_queue: Option<u16>,
    ) -> Option<Self> {
        match root.bar_info(function.address, 0) {
            Ok(Some(BarInfo::IO { address, size })) if address != 0 && size >= PORTS => {
                Some(Self {
                    base: u16::try_from(address).ok()?,
                    interrupting_queue,
                })
            }
            _ => None,
        }
    }

    fn read<T: PortRead>(&self, register: u16) -> T {
        // SAFETY: the ports belong to the device, by its base address register; a read has no
        // effect on memory.
        unsafe { Port::new(self.base + register).read() }
    }

    fn write<T: PortWrite>(&self, register: u16, value: T) {
        // SAFETY: the ports belong to the device; the rings that it is told of are memory of
        // `mm::dma_alloc` by the contract of the `Hal`.
        unsafe { Port::new(self.base + register).write(value) }
    }

    /// The port of a byte of the configuration.
    fn config(&self, offset: usize) -> u16 {
        let start = match self.interrupting_queue {
            Some(_) => CONFIG_WITH_MSIX,
            None => CONFIG,
        };
        start + offset as u16
    }

    fn set_vector(&self, register: u16, vector: u16) {
        self.write(register, vector);
        if self.read::<u16>(register) != vector {
            warn!("net", "card refused interrupt entry {vector}");
        }
    }
}

impl Doorbells for LegacyTransport {
    fn doorbell(&self, queue: u16) -> Doorbell {
        Doorbell::port(self.base + QUEUE_NOTIFY, queue)
    }
}

impl Transport for LegacyTransport {
    fn device_type(&self) -> DeviceType {
        DeviceType::Network
    }

    fn read_device_features(&mut self) -> u64 {
        u64::from(self.read::<u32>(DEVICE_FEATURES))
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.write(DRIVER_FEATURES, driver_features as u32);
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.write(QUEUE_SELECT, queue);
        u32::from(self.read::<u16>(QUEUE_SIZE))
    }

    fn notify(&mut self, queue: u16) {
        self.doorbell(queue).ring();
    }

    fn get_status(&self) -> DeviceStatus {
        DeviceStatus::from_bits_truncate(u32::from(self.read::<u8>(STATUS)))
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.write(STATUS, status.bits() as u8);
        if status.is_empty() {
            reset_done(|| self.get_status().is_empty());
        }
    }

    fn set_guest_page_size(&mut self, _guest_page_size: u32) {}

    fn requires_legacy_layout(&self) -> bool {
        true
    }

    fn queue_set(
        &mut self,
        queue: u16,
        _size: u32,
        descriptors: DeviceAddr,
        _driver_area: DeviceAddr,
        _device_area: DeviceAddr,
    ) {
        self.write(QUEUE_SELECT, queue);
        if let Some(interrupting) = self.interrupting_queue {
            self.set_vector(CONFIG_VECTOR, NO_VECTOR);
            let vector = if queue == interrupting { 0 } else { NO_VECTOR };
            self.set_vector(QUEUE_VECTOR, vector);
        }
        let page = descriptors / PAGE_SIZE as u64;
        self.write(QUEUE_PAGE, u32::try_from(page).expect("rings below 16 TiB"));
    }

    fn queue_unset(&mut self, queue: u16) {
        self.write(QUEUE_SELECT, queue);
        self.write(QUEUE_PAGE, 0u32);
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        self.write(QUEUE_SELECT, queue);
        self.read::<u32>(QUEUE_PAGE) != 0
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        InterruptStatus::from_bits_truncate(u32::from(self.read::<u8>(INTERRUPT_STATUS)))
    }

    fn read_config_generation(&self) -> u32 {
        0
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        let mut value = T::new_zeroed();
        for (at, byte) in value.as_mut_bytes().iter_mut().enumerate() {
            *byte = self.read(self.config(offset + at));
        }
        Ok(value)
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        _offset: usize,
        _value: T,
    ) -> Result<()> {
        Err(Error::Unsupported)
    }
}
