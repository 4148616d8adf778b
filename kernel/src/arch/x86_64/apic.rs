//! The local APIC: registers in memory (xAPIC), or as model-specific registers where firmware left
//! it in x2APIC mode (Intel SDM volume 3A, chapters 11.4 and 11.12).
//!
//! Processors of 2022 and later may forbid to leave x2APIC mode, and ids above 255 exist there
//! only; so the mode stays what firmware chose.
//!
//! Neighbours: [`super::timer`] uses its timer; a driver that sends interrupts by message (MSI-X)
//! asks for [`id`]. `kernel_core::apic` has what can be tested without one.
//!
//! Invariant: only the timer, the error-free spurious vector and messages to vectors from
//! `interrupts::allocate` can interrupt; the local lines are masked except NMI.

use core::ptr::NonNull;

use kernel_core::apic::{self, Mode};
use raw_cpuid::cpuid;
use spin::Once;
use volatile::VolatilePtr;
use x86_64::registers::model_specific::Msr;

use super::interrupts::{SPURIOUS_VECTOR, TIMER_VECTOR};

const BASE_MSR: u32 = 0x1b;

const REGISTERS_BYTES: u64 = 4096;
const ID: u32 = 0x20;
const VERSION: u32 = 0x30;
const TASK_PRIORITY: u32 = 0x80;
const END_OF_INTERRUPT: u32 = 0xb0;
const SPURIOUS: u32 = 0xf0;
const IN_SERVICE: u32 = 0x100;
const COMMAND_LOW: u32 = 0x300;
const COMMAND_HIGH: u32 = 0x310;
const LVT_TIMER: u32 = 0x320;
const LVT_THERMAL: u32 = 0x330;
const LVT_PERFORMANCE: u32 = 0x340;
const LVT_LINT0: u32 = 0x350;
const LVT_LINT1: u32 = 0x360;
const LVT_ERROR: u32 = 0x370;
const TIMER_INITIAL: u32 = 0x380;
const TIMER_CURRENT: u32 = 0x390;
const TIMER_DIVIDE: u32 = 0x3e0;

const LVT_MASKED: u32 = 1 << 16;
const LVT_NMI: u32 = 4 << 8;
const SOFTWARE_ENABLE: u32 = 1 << 8;
/// Divide by 16: the longest one-shot is then at least 10 s on today's CPUs.
const DIVIDE_BY_16: u32 = 0b0011;

/// How the registers are reached.
enum Access {
    /// In memory, mapped here.
    Memory(NonNull<u8>),
    /// As model-specific registers.
    Msr,
}

// SAFETY: the pointer is to device registers that exist as long as the machine runs.
unsafe impl Send for Access {}
// SAFETY: each core reaches its own APIC by them; every access is one volatile load or store, or
// one instruction.
unsafe impl Sync for Access {}

static ACCESS: Once<Access> = Once::new();

fn access() -> &'static Access {
    ACCESS.get().expect("apic::init has not run")
}

fn pointer(base: NonNull<u8>, register: u32) -> VolatilePtr<'static, u32> {
    debug_assert!(u64::from(register) < REGISTERS_BYTES && register.is_multiple_of(16));
    // SAFETY: `base` maps the whole page of registers; the offset is one of the constants above,
    // inside the page and aligned. Reading and writing 32 bits is how they are used.
    unsafe { VolatilePtr::new(base.add(register as usize).cast()) }
}

fn read(register: u32) -> u32 {
    match access() {
        Access::Memory(base) => pointer(*base, register).read(),
        // SAFETY: in x2APIC mode every register above can be read, but for the two that only take
        // a value, which nobody reads.
        Access::Msr => unsafe { Msr::new(apic::msr(register)).read() as u32 },
    }
}

fn write(register: u32, value: u32) {
    match access() {
        Access::Memory(base) => pointer(*base, register).write(value),
        // SAFETY: in x2APIC mode every register above can be written, but for the id and the
        // current count, which nobody writes. It sends no interrupt to code that is not ready.
        Access::Msr => unsafe { Msr::new(apic::msr(register)).write(u64::from(value)) },
    }
}

/// Enables the boot core's APIC in the mode in which firmware left it. Panics on a machine without
/// one.
pub fn init() {
    assert!(cpuid!(1).edx >> 9 & 1 == 1, "this CPU has no local APIC");
    // SAFETY: the CPU has an APIC, so it has this register.
    let (mode, base) = apic::enabled(unsafe { Msr::new(BASE_MSR).read() });
    // SAFETY: as above; the mode is the one it is in, or xAPIC where it was off.
    unsafe { Msr::new(BASE_MSR).write(base) };
    ACCESS.call_once(|| match mode {
        Mode::X2apic => Access::Msr,
        Mode::Xapic(registers) => Access::Memory(super::map_registers(registers, REGISTERS_BYTES)),
    });
    set_up();
    let id = own_id();
    assert!(
        id <= apic::MESSAGE_ID_MAX,
        "the boot processor's APIC id {id} is above {}, where no card's message reaches it: let \
         firmware give it a lower one",
        apic::MESSAGE_ID_MAX
    );
    debug!("cpu", "local APIC {id} in {mode} mode");
}

/// Enables the APIC of another core, in the boot core's mode.
pub(super) fn init_other() {
    let mut msr = Msr::new(BASE_MSR);
    // SAFETY: every core has this register; x2APIC mode is entered from xAPIC mode, where the boot
    // core's APIC is in it and so every APIC has it.
    unsafe {
        let (_, base) = apic::enabled(msr.read());
        msr.write(base);
        if matches!(access(), Access::Msr) {
            msr.write(base | apic::BASE_X2APIC);
        }
    }
    set_up();
}

/// Masks what may not interrupt, and lets the rest.
fn set_up() {
    write(LVT_TIMER, LVT_MASKED | u32::from(TIMER_VECTOR));
    for (line, register) in [
        (apic::LINE_THERMAL, LVT_THERMAL),
        (apic::LINE_PERFORMANCE, LVT_PERFORMANCE),
    ] {
        // A register that is not there is a fault in x2APIC mode.
        if apic::has_line(read(VERSION), line) {
            write(register, LVT_MASKED);
        }
    }
    write(LVT_LINT0, LVT_MASKED);
    write(LVT_LINT1, LVT_NMI);
    write(LVT_ERROR, LVT_MASKED);
    write(TIMER_DIVIDE, DIVIDE_BY_16);
    write(TIMER_INITIAL, 0);
    write(TASK_PRIORITY, 0);
    write(SPURIOUS, SOFTWARE_ENABLE | u32::from(SPURIOUS_VECTOR));
}

fn own_id() -> u32 {
    match access() {
        Access::Memory(_) => read(ID) >> 24,
        Access::Msr => read(ID),
    }
}

/// Identity of this CPU's APIC: the destination of messages (MSI address bits 12 to 19).
pub fn id() -> u8 {
    own_id() as u8
}

pub(super) fn end_of_interrupt() {
    write(END_OF_INTERRUPT, 0);
}

/// Whether the APIC waits for the end of an interrupt with this vector.
pub(super) fn is_in_service(vector: u8) -> bool {
    let register = IN_SERVICE + u32::from(vector / 32) * 16;
    read(register) >> (vector % 32) & 1 == 1
}

/// Starts the timer: one interrupt after `ticks`, at least one.
pub(super) fn start_timer(ticks: u32) {
    write(LVT_TIMER, u32::from(TIMER_VECTOR));
    write(TIMER_INITIAL, ticks.max(1));
}

/// Starts the timer with its interrupt masked, for calibration.
pub(super) fn start_timer_masked() {
    write(LVT_TIMER, LVT_MASKED | u32::from(TIMER_VECTOR));
    write(TIMER_INITIAL, u32::MAX);
}

/// Stops the timer.
pub(super) fn stop_timer() {
    write(LVT_TIMER, LVT_MASKED | u32::from(TIMER_VECTOR));
    write(TIMER_INITIAL, 0);
}

/// Ticks until the timer fires.
pub(super) fn timer_ticks_left() -> u32 {
    read(TIMER_CURRENT)
}

/// What one core sends another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// An interrupt.
    Interrupt(u8),
    /// A non-maskable interrupt.
    Nmi,
    /// Reset, to wait for [`Message::Start`].
    Init,
    /// Begin in real mode, at this page below 1 MiB.
    Start(u8),
}

impl Message {
    /// Its lower half of the command register (Intel SDM volume 3A, 11.6.1).
    const fn command(self) -> u32 {
        const LEVEL_ASSERT: u32 = 1 << 14;
        LEVEL_ASSERT
            | match self {
                Self::Interrupt(vector) => vector as u32,
                Self::Nmi => LVT_NMI,
                Self::Init => 5 << 8,
                Self::Start(page) => 6 << 8 | page as u32,
            }
    }
}

/// Sends a message to the core whose APIC has this id.
pub(super) fn send_to(id: u32, message: Message) {
    send((destination(id), message.command()));
}

/// This core's APIC id as it is in the tables of firmware.
pub fn this_id() -> u32 {
    own_id()
}

fn destination(id: u32) -> u32 {
    match access() {
        Access::Memory(_) => id << 24,
        Access::Msr => id,
    }
}

/// Sends an NMI to this CPU; for tests.
#[cfg(feature = "ktest")]
pub fn send_nmi_to_self() {
    send(nmi_to_self());
}

/// Sends an interrupt of any vector to this CPU, as a device that firmware left at work would.
#[cfg(feature = "ktest")]
pub fn send_to_self(vector: u8) {
    send_to(own_id(), Message::Interrupt(vector));
}

fn send((high, low): (u32, u32)) {
    /// Looks at an APIC that is still sending; it takes a few bus cycles.
    const LOOKS_MAX: u32 = 100_000;
    const PENDING: u32 = 1 << 12;
    match access() {
        Access::Memory(_) => {
            for _ in 0..LOOKS_MAX {
                if read(COMMAND_LOW) & PENDING == 0 {
                    break;
                }
                core::hint::spin_loop();
            }
            write(COMMAND_HIGH, high);
            write(COMMAND_LOW, low);
        }
        // SAFETY: the command register of x2APIC mode is one of 64 bits. What is sent goes to a
        // core of this kernel, which has a gate for every vector, or starts one. The fence has the
        // receiver see what was written before (Intel SDM volume 3A, 11.12.3).
        Access::Msr => unsafe {
            core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags));
            Msr::new(apic::msr(COMMAND_LOW)).write(u64::from(high) << 32 | u64::from(low));
        },
    }
}

/// The two halves of the command that sends an NMI to this CPU, for a test that sends it from
/// ring 3: high half first, at offsets 0x310 and 0x300 of the page at [`physical_address`].
#[cfg(feature = "ktest")]
pub fn nmi_to_self() -> (u32, u32) {
    (destination(own_id()), Message::Nmi.command())
}

/// Where the registers lie in xAPIC mode.
#[cfg(feature = "ktest")]
pub fn physical_address() -> kernel_core::addr::PhysAddr {
    // SAFETY: the CPU has an APIC (`init`), so it has this register.
    kernel_core::addr::PhysAddr::new(unsafe { Msr::new(BASE_MSR).read() } & apic::BASE_ADDRESS)
}
