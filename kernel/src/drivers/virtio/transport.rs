//! The virtio crate's PCI transport with what a tickless node needs on top.
//!
//! Key types: [`MsixTransport`], [`Doorbell`]. The first gives one queue an MSI-X vector and every
//! other queue none, notifies a queue with one register write instead of three accesses, and waits
//! for a reset to finish. Register layout: Virtual I/O Device (VIRTIO) specification 1.2, section
//! 4.1.4. Neighbours: `drivers::msi`, `net`.
//!
//! Invariant: no event of the device but a filled receive buffer has an interrupt vector.

use kernel_core::addr::PhysAddr;
use virtio_drivers::transport::pci::bus::{ConfigurationAccess, PCI_CAP_ID_VNDR, PciRoot};
use virtio_drivers::transport::pci::{
    PciTransport, VIRTIO_PCI_CAP_COMMON_CFG, VIRTIO_PCI_CAP_NOTIFY_CFG,
};
use virtio_drivers::transport::{DeviceStatus, DeviceType, InterruptStatus, Transport};
use virtio_drivers::{PhysAddr as DeviceAddr, Result};
use x86_64::instructions::port::Port;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::hal::KernelHal;
use super::net::StartError;
use crate::drivers::mmio::Registers;
use crate::drivers::pci::{Function, PortAccess};

/// Offsets in the common configuration structure, section 4.1.4.3.
const MSIX_CONFIG: usize = 0x10;
const QUEUE_SELECT: usize = 0x16;
const QUEUE_MSIX_VECTOR: usize = 0x1a;
const QUEUE_NOTIFY_OFF: usize = 0x1e;
const COMMON_BYTES: usize = 0x38;
/// "This event raises no interrupt", section 4.1.4.3.
pub const NO_VECTOR: u16 = 0xffff;

/// Queues of a network card without multiqueue: receive and transmit.
const QUEUES: usize = 2;
/// Reads of the status register until a reset must have finished; far more than any device took,
/// each read being a bus access of about a microsecond.
const RESET_READS: usize = 100_000;

/// PCI transport with one MSI-X vector for one queue.
#[derive(Debug)]
pub struct MsixTransport {
    inner: PciTransport,
    common: Registers,
    notify: Registers,
    notify_multiplier: usize,
    notify_offset: [usize; QUEUES],
    /// The queue that interrupts, when the device has MSI-X.
    interrupting_queue: Option<u16>,
}

impl MsixTransport {
    /// Opens the transport of `function`. `interrupting_queue` gets MSI-X table entry 0.
    pub fn new(
        root: &mut PciRoot<PortAccess>,
        function: &Function,
        interrupting_queue: Option<u16>,
    ) -> core::result::Result<Self, StartError> {
        let common = Structure::find(root, function, VIRTIO_PCI_CAP_COMMON_CFG)?;
        let notify = Structure::find(root, function, VIRTIO_PCI_CAP_NOTIFY_CFG)?;
        let inner = PciTransport::new::<KernelHal, _>(root, function.address)
            .map_err(StartError::Transport)?;
        if common.len < COMMON_BYTES {
            return Err(StartError::NoStructure(VIRTIO_PCI_CAP_COMMON_CFG));
        }
        let multiplier = PortAccess.read_word(function.address, notify.capability + 16);
        Ok(Self {
            inner,
            common: Registers::map(common.phys, common.len),
            notify: Registers::map(notify.phys, notify.len),
            notify_multiplier: multiplier as usize,
            notify_offset: [0; QUEUES],
            interrupting_queue,
        })
    }
}

impl Doorbells for MsixTransport {
    fn doorbell(&self, queue: u16) -> Doorbell {
        let register = DoorbellRegister::Memory {
            notify: self.notify.clone(),
            offset: self.notify_offset[usize::from(queue)],
        };
        Doorbell { register, queue }
    }
}

/// A transport that has a [`Doorbell`] for each queue.
pub trait Doorbells {
    /// The doorbell of a queue that was set up.
    fn doorbell(&self, queue: u16) -> Doorbell;
}

/// The register by which a queue's device is notified.
#[derive(Debug)]
pub struct Doorbell {
    register: DoorbellRegister,
    queue: u16,
}

#[derive(Debug)]
enum DoorbellRegister {
    Memory { notify: Registers, offset: usize },
    Port(u16),
}

impl Doorbell {
    /// A doorbell that is an I/O port of the device.
    pub fn port(port: u16, queue: u16) -> Self {
        let register = DoorbellRegister::Port(port);
        Self { register, queue }
    }

    /// Tells the device that there are new buffers in the queue.
    pub fn ring(&self) {
        match &self.register {
            DoorbellRegister::Memory { notify, offset } => notify.write(*offset, self.queue),
            // SAFETY: the port is the device's own, and only has it look at a ring that it knows.
            DoorbellRegister::Port(port) => unsafe { Port::new(*port).write(self.queue) },
        }
    }
}

/// Waits for the end of a reset, section 4.1.4.3.2: the status reads zero then.
pub fn reset_done(mut is_done: impl FnMut() -> bool) {
    if !(0..RESET_READS).any(|_| is_done()) {
        warn!("net", "card did not finish its reset");
    }
}

/// Where a virtio structure lies in a function's memory.
struct Structure {
    capability: u8,
    phys: PhysAddr,
    len: usize,
}

impl Structure {
    fn find(
        root: &mut PciRoot<PortAccess>,
        function: &Function,
        kind: u8,
    ) -> core::result::Result<Self, StartError> {
        let missing = StartError::NoStructure(kind);
        let capability = root
            .capabilities(function.address)
            .find(|c| c.id == PCI_CAP_ID_VNDR && (c.private_header >> 8) as u8 == kind)
            .ok_or(missing)?
            .offset;
        let missing = StartError::NoStructure(kind);
        let word = |at: u8| PortAccess.read_word(function.address, capability + at);
        let (bar, offset, len) = (word(4) as u8, word(8), word(12));
        let (base, size) = root
            .bar_info(function.address, bar)
            .ok()
            .flatten()
            .and_then(|info| info.memory_address_size())
            .ok_or(missing)?;
        if base == 0 || u64::from(offset) + u64::from(len) > size || !offset.is_multiple_of(4) {
            return Err(StartError::NoStructure(kind));
        }
        Ok(Self {
            capability,
            phys: PhysAddr::new(base + u64::from(offset)),
            len: len as usize,
        })
    }
}

impl Transport for MsixTransport {
    fn device_type(&self) -> DeviceType {
        self.inner.device_type()
    }

    fn read_device_features(&mut self) -> u64 {
        self.inner.read_device_features()
    }

    fn write_driver_features(&mut self, driver_features: u64) {
        self.inner.write_driver_features(driver_features);
    }

    fn max_queue_size(&mut self, queue: u16) -> u32 {
        self.inner.max_queue_size(queue)
    }

    fn notify(&mut self, queue: u16) {
        self.doorbell(queue).ring();
    }

    fn get_status(&self) -> DeviceStatus {
        self.inner.get_status()
    }

    fn set_status(&mut self, status: DeviceStatus) {
        self.inner.set_status(status);
        if status.is_empty() {
            reset_done(|| self.inner.get_status().is_empty());
        }
    }

    fn set_guest_page_size(&mut self, guest_page_size: u32) {
        self.inner.set_guest_page_size(guest_page_size);
    }

    fn requires_legacy_layout(&self) -> bool {
        self.inner.requires_legacy_layout()
    }

    fn queue_set(
        &mut self,
        queue: u16,
        size: u32,
        descriptors: DeviceAddr,
        driver_area: DeviceAddr,
        device_area: DeviceAddr,
    ) {
        self.common.write(QUEUE_SELECT, queue);
        if let Some(interrupting) = self.interrupting_queue {
            let vector = if queue == interrupting { 0 } else { NO_VECTOR };
            self.common.write(QUEUE_MSIX_VECTOR, vector);
            self.common.write(MSIX_CONFIG, NO_VECTOR);
            if self.common.read::<u16>(QUEUE_MSIX_VECTOR) != vector {
                warn!(
                    "net",
                    "card refused interrupt entry {vector} for queue {queue}"
                );
            }
        }
        let notify_off: u16 = self.common.read(QUEUE_NOTIFY_OFF);
        self.notify_offset[usize::from(queue)] = usize::from(notify_off) * self.notify_multiplier;
        self.inner
            .queue_set(queue, size, descriptors, driver_area, device_area);
    }

    fn queue_unset(&mut self, queue: u16) {
        self.inner.queue_unset(queue);
    }

    fn queue_used(&mut self, queue: u16) -> bool {
        self.inner.queue_used(queue)
    }

    fn ack_interrupt(&mut self) -> InterruptStatus {
        self.inner.ack_interrupt()
    }

    fn read_config_generation(&self) -> u32 {
        self.inner.read_config_generation()
    }

    fn read_config_space<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T> {
        self.inner.read_config_space(offset)
    }

    fn write_config_space<T: IntoBytes + Immutable>(
        &mut self,
        offset: usize,
        value: T,
    ) -> Result<()> {
        self.inner.write_config_space(offset, value)
    }
}
