//! Processors, I/O APICs and nearness domains: MADT (ACPI 6.5, 5.2.12) and SRAT (5.2.16).
//!
//! Key types: [`Processor`], [`IoApic`], [`MemoryRange`].
//!
//! Invariant: a processor is listed once, also where firmware lists it in both forms, and only if
//! it is enabled.

use super::{Machine, aligned, array_at, records, u32_at, u64_at};
use crate::addr::PhysAddr;

/// Where the records of the two tables begin.
const MADT_RECORDS: usize = 44;
const SRAT_RECORDS: usize = 48;
/// Flag of a record of either table: what it describes can be used.
const ENABLED: u32 = 1;
/// APIC ids that name no processor but all of them, in the two forms.
const BROADCAST: u32 = 0xff;
const BROADCAST_X2APIC: u32 = 0xffff_ffff;

/// A processor (a hardware thread) that can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// Id of its local APIC.
    pub apic_id: u32,
    /// Its nearness domain, where firmware says so.
    pub domain: Option<u32>,
}

/// An I/O APIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoApic {
    /// Its registers.
    pub registers: PhysAddr,
    /// The number of its first input among all.
    pub first_input: u32,
}

/// A range of memory and its nearness domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryRange {
    /// Where it begins.
    pub start: PhysAddr,
    /// Its length.
    pub bytes: u64,
    /// Its domain.
    pub domain: u32,
}

impl Machine {
    pub(super) fn add_madt(&mut self, table: &[u8]) {
        for (kind, record) in records(table, MADT_RECORDS) {
            match kind {
                0 => self.add_processor(local_apic(record), BROADCAST),
                1 => self.io_apics.extend(io_apic(record)),
                9 => self.add_processor(local_x2apic(record), BROADCAST_X2APIC),
                _ => {}
            }
        }
        self.processors.sort_unstable_by_key(|one| one.apic_id);
        let listed = self.processors.len();
        self.processors.dedup_by_key(|one| one.apic_id);
        self.listed_twice += listed - self.processors.len();
    }

    /// Adds a processor by its id and flags; `all` is the id that is no processor's.
    fn add_processor(&mut self, listed: Option<(u32, u32)>, all: u32) {
        match listed {
            Some((apic_id, flags)) if flags & ENABLED != 0 && apic_id != all => {
                self.processors.push(Processor {
                    apic_id,
                    domain: None,
                });
            }
            Some(_) => self.disabled += 1,
            None => {}
        }
    }

    pub(super) fn add_srat(&mut self, table: &[u8]) {
        for (kind, record) in records(table, SRAT_RECORDS) {
            match kind {
                0 => self.nearness.extend(affinity(record)),
                1 => self.memory.extend(memory_range(record)),
                2 => self.nearness.extend(x2apic_affinity(record)),
                _ => {}
            }
        }
    }

    /// Tells each processor its domain, when all tables are read.
    pub(super) fn join_domains(&mut self) {
        let mut nearness = core::mem::take(&mut self.nearness);
        nearness.sort_unstable();
        for processor in &mut self.processors {
            let found = nearness.binary_search_by_key(&processor.apic_id, |&(id, _)| id);
            processor.domain = found.ok().map(|index| nearness[index].1);
        }
    }
}

/// APIC id and flags of a processor.
fn local_apic(record: &[u8]) -> Option<(u32, u32)> {
    Some((u32::from(*record.get(3)?), u32_at(record, 4)?))
}

fn local_x2apic(record: &[u8]) -> Option<(u32, u32)> {
    Some((u32_at(record, 4)?, u32_at(record, 8)?))
}

fn io_apic(record: &[u8]) -> Option<IoApic> {
    Some(IoApic {
        registers: aligned(u64::from(u32_at(record, 4)?))?,
        first_input: u32_at(record, 8)?,
    })
}

/// APIC id and domain; the domain's bytes are in two places.
fn affinity(record: &[u8]) -> Option<(u32, u32)> {
    let [_, _, low, apic_id] = array_at(record, 0)?;
    let [second, third, fourth] = array_at(record, 9)?;
    let domain = u32::from_le_bytes([low, second, third, fourth]);
    (u32_at(record, 4)? & ENABLED != 0).then_some((u32::from(apic_id), domain))
}

fn x2apic_affinity(record: &[u8]) -> Option<(u32, u32)> {
    let of = (u32_at(record, 8)?, u32_at(record, 4)?);
    (u32_at(record, 12)? & ENABLED != 0).then_some(of)
}

fn memory_range(record: &[u8]) -> Option<MemoryRange> {
    let range = MemoryRange {
        start: PhysAddr::try_new(u64_at(record, 8)?)?,
        bytes: u64_at(record, 16)?,
        domain: u32_at(record, 2)?,
    };
    (u32_at(record, 28)? & ENABLED != 0 && range.bytes > 0).then_some(range)
}
