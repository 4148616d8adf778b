//! Machine-check banks: switched on at the start, read once in a while, and when the processor
//! stops the kernel for an error that it could not correct.
//!
//! Neighbours: `kernel_core::machine_check` says what a bank means; the agent calls
//! [`poll_if_due`]; `trap` calls [`stop`].
//!
//! Invariant: a bank is cleared once it was read, so that every error is reported once.

use core::sync::atomic::{AtomicU64, Ordering};

use kernel_core::machine_check::{BANKS_MAX, Bank, Record};
use netstack::time::{Instant, Micros};
use raw_cpuid::cpuid;
use x86_64::registers::model_specific::Msr;

use super::cpu;

const CAPABILITIES: u32 = 0x179;
const CONTROL: u32 = 0x17b;
const HAS_CONTROL: u64 = 1 << 8;
/// CPUID 1, EDX: the banks are those of the architecture.
const ARCHITECTURAL: u32 = 1 << 14;

/// Time between two looks at the banks; each holds its first error until then.
const POLL_PERIOD: Micros = Micros::from_secs(60);

/// When to look next, in microseconds.
static NEXT_POLL_US: AtomicU64 = AtomicU64::new(0);
/// Errors that were corrected, since the start.
static CORRECTED: AtomicU64 = AtomicU64::new(0);

fn read(register: u32) -> u64 {
    // SAFETY: callers name registers that the capabilities say are there; reading changes nothing.
    unsafe { Msr::new(register).read() }
}

fn write(register: u32, value: u64) {
    // SAFETY: callers name registers that the capabilities say are there, and write all ones to
    // controls and zero to states, which every bank takes. A machine check that it causes has a
    // handler.
    unsafe { Msr::new(register).write(value) }
}

/// How many banks there are.
fn banks() -> u8 {
    let is_there = cpu::features().machine_check && cpuid!(1).edx & ARCHITECTURAL != 0;
    match is_there {
        true => (read(CAPABILITIES) as u8).min(BANKS_MAX),
        false => 0,
    }
}

/// Reports what this core's banks found before this boot, and has each report what it finds.
pub fn init() {
    let banks = banks();
    if banks == 0 {
        return;
    }
    for record in records() {
        warn!("cpu", "hardware error before this boot: {record}");
    }
    if read(CAPABILITIES) & HAS_CONTROL != 0 {
        write(CONTROL, u64::MAX);
    }
    for bank in first_controlled()..banks {
        write(Bank::new(bank).control, u64::MAX);
    }
    debug!("cpu", "{banks} machine-check banks");
}

/// Bank 0 of Intel's family 6 before model 0x1a belongs to firmware.
fn first_controlled() -> u8 {
    let signature = cpuid!(1).eax;
    let family = signature >> 8 & 0xf;
    let model = signature >> 4 & 0xf | signature >> 12 & 0xf0;
    u8::from(family == 6 && model < 0x1a)
}

/// Takes what the banks hold.
fn records() -> impl Iterator<Item = Record> {
    (0..banks()).filter_map(|number| {
        let bank = Bank::new(number);
        let record = Record::new(number, read(bank.status), || read(bank.address))?;
        write(bank.status, 0);
        Some(record)
    })
}

/// Does [`poll`] if it is time for it.
pub fn poll_if_due(now: Instant) {
    if now < Instant::from_micros(NEXT_POLL_US.load(Ordering::Relaxed)) {
        return;
    }
    NEXT_POLL_US.store((now + POLL_PERIOD).as_micros(), Ordering::Relaxed);
    poll();
}

/// Logs and counts errors that hardware has corrected since the last look.
pub fn poll() {
    for record in records() {
        warn!("cpu", "hardware error: {record}");
        CORRECTED.fetch_add(1, Ordering::Relaxed);
    }
}

/// Errors that [`poll`] has seen.
pub fn corrected() -> u64 {
    CORRECTED.load(Ordering::Relaxed)
}

/// The processor cannot go on: says why.
pub(super) fn stop(rip: u64) -> ! {
    let mut first = None;
    for record in records() {
        error!("cpu", "hardware error: {record}");
        first = first.or(Some(record));
    }
    match first {
        Some(record) => panic!("machine check at {rip:#x}: {record}"),
        None => panic!("machine check at {rip:#x}, and no bank says why"),
    }
}

/// Has a bank hold an error, as only emulated processors allow.
#[cfg(feature = "ktest")]
pub fn pretend(bank: u8, status: u64, address: u64) {
    write(Bank::new(bank).address, address);
    write(Bank::new(bank).status, status);
}
