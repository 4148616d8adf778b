//! What firmware's ACPI tables say about a machine, as far as it is data and no program (AML).
//!
//! Key types: [`Machine`], all that was found; [`FirmwareMemory`], through which tables are read,
//! with a fake for tests. Layouts: ACPI Specification 6.5, chapter 5.2; the tables that it only
//! names are cited where they are read. Neighbours: the boot stub finds the root pointer (RSDP),
//! `kernel::platform` reads, and tells drivers and `arch` what they need.
//!
//! Invariant: whatever memory holds, no more than [`TABLES_MAX`] tables of [`TABLE_MAX`] bytes are
//! read, and a table counts only if its length and its checksum are right. Registers in memory are
//! aligned.

mod processors;
#[cfg(test)]
mod tests;
mod timers;

use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

pub use processors::{IoApic, MemoryRange, Processor};
pub use timers::PmTimer;

use crate::addr::PhysAddr;

/// Most tables that are looked at; servers have 30 to 60.
pub const TABLES_MAX: usize = 256;
/// Longest table that is read: a MADT or SRAT of a thousand processors has 24 KiB.
pub const TABLE_MAX: usize = 64 * 1024;

const ROOT_SIGNATURE: [u8; 8] = *b"RSD PTR ";
/// Length of the root pointer of ACPI 1.0, and that of later versions.
const ROOT_OLD_BYTES: usize = 20;
const ROOT_BYTES: usize = 36;
const HEADER_BYTES: usize = 36;
/// Address spaces of a generic address structure.
const SPACE_MEMORY: u8 = 0;
const SPACE_PORTS: u8 = 1;

/// Read access to the memory in which firmware left its tables.
pub trait FirmwareMemory {
    /// Fills `out` from physical address `at` on; whether that could be read.
    fn read(&mut self, at: PhysAddr, out: &mut [u8]) -> bool;
}

/// What the tables say. All of it may be missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Processors that can be used, each once, by rising APIC id (MADT).
    pub processors: Vec<Processor>,
    /// Records of processors that cannot be used.
    pub disabled: usize,
    /// Records of processors that another one has named.
    pub listed_twice: usize,
    /// I/O APICs (MADT).
    pub io_apics: Vec<IoApic>,
    /// Memory and the nearness domain it belongs to (SRAT).
    pub memory: Vec<MemoryRange>,
    /// PCI configuration space in memory (MCFG).
    pub config_windows: Vec<ConfigWindow>,
    /// The serial port that firmware's console uses (SPCR).
    pub console: Option<SerialConsole>,
    /// The registers of the high-precision event timer (HPET).
    pub hpet: Option<PhysAddr>,
    /// The power management timer (FADT).
    pub pm_timer: Option<PmTimer>,
    /// Signatures of tables that are there and damaged.
    pub damaged: Vec<[u8; 4]>,
    /// APIC ids and their domains, until all tables are read (SRAT).
    nearness: Vec<(u32, u32)>,
}

/// Where a register is; in memory at a multiple of four.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Register {
    /// At a port.
    Port(u16),
    /// In memory.
    Memory(PhysAddr),
}

/// Configuration space of some buses of a PCI segment, 1 MiB for each bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigWindow {
    /// Where that of bus 0 would begin.
    pub base: PhysAddr,
    /// Segment (group of 256 buses).
    pub segment: u16,
    /// First bus.
    pub first_bus: u8,
    /// Last bus.
    pub last_bus: u8,
}

/// A serial port compatible with the 16550.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SerialConsole {
    /// Its first register.
    pub register: Register,
    /// Its speed; `None` for what firmware has set.
    pub baud: Option<u32>,
}

/// Why there are no tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcpiError {
    /// What the boot stub found is no root pointer.
    NoRoot,
    /// The root pointer leads to no intact list of tables.
    NoList,
}

/// Reads the tables that the root pointer at `root` leads to.
///
/// # Errors
/// There is no list of tables. A damaged table is no error, but listed as such.
pub fn read(root: PhysAddr, memory: &mut impl FirmwareMemory) -> Result<Machine, AcpiError> {
    let (wide, narrow) = list_addresses(root, memory).ok_or(AcpiError::NoRoot)?;
    let list = |at: Option<u64>, signature: [u8; 4], memory: &mut _| {
        let at = PhysAddr::try_new(at?)?;
        let (found, length) = header(at, memory)?;
        (found == signature).then(|| table(at, length, memory))?
    };
    let (list, width) = match list(wide, *b"XSDT", memory) {
        Some(list) => (list, 8),
        None => (list(narrow, *b"RSDT", memory).ok_or(AcpiError::NoList)?, 4),
    };
    let mut machine = Machine::UNKNOWN;
    for entry in list[HEADER_BYTES..].chunks_exact(width).take(TABLES_MAX) {
        let mut bytes = [0; 8];
        bytes[..width].copy_from_slice(entry);
        let at = PhysAddr::try_new(u64::from_le_bytes(bytes));
        if let Some((at, (signature, length))) = at.and_then(|at| Some((at, header(at, memory)?))) {
            machine.add(signature, || table(at, length, memory));
        }
    }
    machine.join_domains();
    Ok(machine)
}

impl fmt::Display for AcpiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoRoot => "their root pointer is damaged",
            Self::NoList => "the list of them is damaged",
        })
    }
}

impl Machine {
    /// One of which nothing is known.
    pub const UNKNOWN: Self = Self {
        processors: Vec::new(),
        disabled: 0,
        listed_twice: 0,
        io_apics: Vec::new(),
        memory: Vec::new(),
        config_windows: Vec::new(),
        console: None,
        hpet: None,
        pm_timer: None,
        damaged: Vec::new(),
        nearness: Vec::new(),
    };

    /// Adds what a table says, if it is one that matters here; `read` gets its bytes.
    fn add(&mut self, signature: [u8; 4], read: impl FnOnce() -> Option<Vec<u8>>) {
        let parse = match &signature {
            b"APIC" => Self::add_madt,
            b"SRAT" => Self::add_srat,
            b"MCFG" => Self::add_mcfg,
            b"SPCR" => Self::add_spcr,
            b"HPET" => Self::add_hpet,
            b"FACP" => Self::add_fadt,
            _ => return,
        };
        match read() {
            Some(table) => parse(self, &table),
            None => self.damaged.push(signature),
        }
    }

    /// PCI Firmware Specification 3.3, section 4.1.2.
    fn add_mcfg(&mut self, table: &[u8]) {
        let entries = table.get(44..).unwrap_or_default();
        for entry in entries.chunks_exact(16) {
            let window = || {
                Some(ConfigWindow {
                    base: PhysAddr::try_new(u64_at(entry, 0)?)?,
                    segment: u16_at(entry, 8)?,
                    first_bus: entry[10],
                    last_bus: entry[11],
                })
            };
            self.config_windows.extend(window());
        }
    }

    /// Serial Port Console Redirection Table (Microsoft), revision 1.08.
    fn add_spcr(&mut self, table: &[u8]) {
        /// Interface types of the 16550: in full, a subset, and with a width of its registers.
        const COMPATIBLE: [u8; 3] = [0x00, 0x01, 0x12];
        let console = || {
            let kind = *table.get(HEADER_BYTES)?;
            let register = generic_address(table, 40)?;
            let baud = match *table.get(58)? {
                3 => Some(9_600),
                4 => Some(19_200),
                6 => Some(57_600),
                7 => Some(115_200),
                _ => None,
            };
            COMPATIBLE
                .contains(&kind)
                .then_some(SerialConsole { register, baud })
        };
        self.console = self.console.or_else(console);
    }
}

/// Addresses of the lists of tables that the root pointer has: of the one with entries of 64 bits,
/// of the one with 32.
fn list_addresses(
    root: PhysAddr,
    memory: &mut impl FirmwareMemory,
) -> Option<(Option<u64>, Option<u64>)> {
    let mut bytes = [0; ROOT_BYTES];
    if !memory.read(root, &mut bytes[..ROOT_OLD_BYTES])
        || bytes[..8] != ROOT_SIGNATURE
        || sum(&bytes[..ROOT_OLD_BYTES]) != 0
    {
        return None;
    }
    let narrow = u32_at(&bytes, 16).map(u64::from);
    let is_wide = bytes[15] >= 2 && memory.read(root, &mut bytes) && sum(&bytes) == 0;
    let wide = is_wide.then(|| u64_at(&bytes, 24)).flatten();
    let is_set = |address: &u64| *address != 0;
    Some((wide.filter(is_set), narrow.filter(is_set)))
}

/// Signature and length of the table at `at`.
fn header(at: PhysAddr, memory: &mut impl FirmwareMemory) -> Option<([u8; 4], usize)> {
    let mut bytes = [0; HEADER_BYTES];
    if at.as_u64() == 0 || !memory.read(at, &mut bytes) {
        return None;
    }
    let length = usize::try_from(u32_at(&bytes, 4)?).ok()?;
    Some((*bytes.first_chunk()?, length))
}

/// The bytes of a table; `None` when length or checksum are wrong.
fn table(at: PhysAddr, length: usize, memory: &mut impl FirmwareMemory) -> Option<Vec<u8>> {
    if !(HEADER_BYTES..=TABLE_MAX).contains(&length) {
        return None;
    }
    PhysAddr::try_new(at.as_u64() + length as u64)?;
    let mut bytes = vec![0; length];
    (memory.read(at, &mut bytes) && sum(&bytes) == 0).then_some(bytes)
}

/// The address of registers of 32 bits, if it can be one.
fn aligned(address: u64) -> Option<PhysAddr> {
    PhysAddr::try_new(address).filter(|at| at.is_aligned(4))
}

/// The register that a generic address structure names, if it is one that the kernel can reach.
fn generic_address(table: &[u8], at: usize) -> Option<Register> {
    let address = u64_at(table, at + 4).filter(|&address| address != 0)?;
    match *table.get(at)? {
        SPACE_MEMORY => aligned(address).map(Register::Memory),
        SPACE_PORTS => u16::try_from(address).ok().map(Register::Port),
        _ => None,
    }
}

/// The records of a table from `first` on: kind and bytes, kind and length included.
fn records(table: &[u8], first: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = table.get(first..).unwrap_or_default();
    core::iter::from_fn(move || {
        let &[kind, length, ..] = rest else {
            return None;
        };
        // A record of no length would be met for ever.
        let (record, following) = rest.split_at_checked(usize::from(length).max(2))?;
        rest = following;
        Some((kind, record))
    })
}

fn sum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, &byte| sum.wrapping_add(byte))
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}
