//! Timers of known frequency that the time-stamp counter is measured against: the high-precision
//! event timer (HPET), the power management timer (ACPI), channel 2 of the 8254.
//!
//! Key type: [`Reference`]. Sources: IA-PC HPET Specification 1.0a, chapter 2; ACPI 6.5, 4.8.3.3;
//! Intel 8254 data sheet. Neighbours: [`super::clock`] measures, `kernel::platform` knows which of
//! them firmware names.
//!
//! Invariant: a timer that was started here interrupts nobody and is stopped again.

use core::ptr::NonNull;

use kernel_core::acpi::{PmTimer, Register};
use kernel_core::addr::PhysAddr;
use kernel_core::clock::hpet_hz;
use volatile::VolatilePtr;
use x86_64::instructions::port::Port;

const PM_TIMER_HZ: u64 = 3_579_545;
/// Reads of the power management timer until three follow each other: some chip sets (PIIX4,
/// ICH4) give a wrong value when it is read while it counts.
const PM_TIMER_READS: u32 = 4;

const HPET_BYTES: u64 = 1024;
const HPET_CAPABILITIES: usize = 0x00;
const HPET_PERIOD: usize = 0x04;
const HPET_CONFIGURATION: usize = 0x10;
const HPET_COUNTER: usize = 0xf0;
const HPET_COMPARATORS: usize = 0x100;
const HPET_COMPARATOR_BYTES: usize = 0x20;
const HPET_ENABLE: u32 = 1;
/// Configuration of a comparator: interrupts through the I/O APIC, and by message.
const HPET_INTERRUPTS: u32 = 1 << 2 | 1 << 14;

const PIT_HZ: u64 = 1_193_182;
const PIT_CHANNEL_2: u16 = 0x42;
const PIT_COMMAND: u16 = 0x43;
const CONTROL_B: u16 = 0x61;
const GATE_2: u8 = 1 << 0;
const SPEAKER: u8 = 1 << 1;
const OUT_2: u8 = 1 << 5;

/// A timer that counts.
pub enum Reference {
    /// The high-precision event timer.
    Hpet(Hpet),
    /// The power management timer.
    PmTimer {
        /// Its register.
        place: Place,
        /// Bits that count.
        bits: u32,
    },
    /// Channel 2 of the 8254, which runs out after 55 ms.
    Pit,
}

/// A register of 32 bits that can be read.
pub enum Place {
    /// At a port.
    Port(u16),
    /// In memory, mapped here.
    Memory(NonNull<u8>),
}

impl Reference {
    /// The HPET at an address, `None` if what is there is none.
    pub fn hpet(registers: PhysAddr) -> Option<Self> {
        Hpet::open(registers).map(Self::Hpet)
    }

    /// The power management timer that firmware names.
    pub fn pm_timer(timer: PmTimer) -> Self {
        let place = match timer.register {
            Register::Port(port) => Place::Port(port),
            Register::Memory(at) => {
                Place::Memory(super::map_registers(at, size_of::<u32>() as u64))
            }
        };
        let bits = timer.bits;
        Self::PmTimer { place, bits }
    }

    /// Its name in the log.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Hpet(_) => "HPET",
            Self::PmTimer { .. } => "ACPI timer",
            Self::Pit => "8254 timer",
        }
    }

    /// Its frequency.
    pub const fn hz(&self) -> u64 {
        match self {
            Self::Hpet(hpet) => hpet.hz,
            Self::PmTimer { .. } => PM_TIMER_HZ,
            Self::Pit => PIT_HZ,
        }
    }

    /// Bits that count.
    pub const fn bits(&self) -> u32 {
        match self {
            Self::Hpet(_) => 32,
            Self::PmTimer { bits, .. } => *bits,
            Self::Pit => 16,
        }
    }

    /// Has it count, the 8254 from zero.
    pub fn start(&self) {
        match self {
            Self::Hpet(hpet) => hpet.start(),
            Self::PmTimer { .. } => {}
            Self::Pit => start_pit(),
        }
    }

    /// Ends what [`Self::start`] began.
    pub fn stop(&self) {
        if let Self::Hpet(hpet) = self {
            hpet.write(HPET_CONFIGURATION, 0);
        }
    }

    /// Ticks, counting up.
    pub fn read(&self) -> u32 {
        match self {
            Self::Hpet(hpet) => hpet.read(HPET_COUNTER),
            Self::PmTimer { place, .. } => read_pm_timer(place),
            Self::Pit => u32::from(u16::MAX - latch_pit()),
        }
    }

    /// Whether it has counted to its end since it was started, so that a reading says nothing.
    pub fn ran_out(&self) -> bool {
        // SAFETY: reading the port changes nothing.
        matches!(self, Self::Pit) && unsafe { Port::<u8>::new(CONTROL_B).read() } & OUT_2 != 0
    }
}

/// The registers of an HPET, mapped.
pub struct Hpet {
    base: NonNull<u8>,
    hz: u64,
}

impl Hpet {
    fn open(registers: PhysAddr) -> Option<Self> {
        let base = super::map_registers(registers, HPET_BYTES);
        let mut this = Self { base, hz: 0 };
        this.hz = hpet_hz(this.read(HPET_PERIOD))?;
        Some(this)
    }

    /// Counts with every interrupt off, also those of the timers whose place it may take.
    fn start(&self) {
        self.write(HPET_CONFIGURATION, 0);
        let comparators = (self.read(HPET_CAPABILITIES) >> 8 & 0x1f) as usize + 1;
        for at in (0..comparators).map(|one| HPET_COMPARATORS + one * HPET_COMPARATOR_BYTES) {
            if at + HPET_COMPARATOR_BYTES <= HPET_BYTES as usize {
                self.write(at, self.read(at) & !HPET_INTERRUPTS);
            }
        }
        self.write(HPET_CONFIGURATION, HPET_ENABLE);
    }

    fn pointer(&self, offset: usize) -> VolatilePtr<'_, u32> {
        assert!(offset.is_multiple_of(4) && offset < HPET_BYTES as usize);
        // SAFETY: the registers that firmware's table names are mapped for good, and the offset
        // was checked.
        unsafe { VolatilePtr::new(self.base.add(offset).cast()) }
    }

    fn read(&self, offset: usize) -> u32 {
        self.pointer(offset).read()
    }

    fn write(&self, offset: usize, value: u32) {
        self.pointer(offset).write(value);
    }
}

fn read_pm_timer(place: &Place) -> u32 {
    let read = || match place {
        // SAFETY: reading the timer's register changes nothing.
        Place::Port(port) => unsafe { Port::<u32>::new(*port).read() },
        // SAFETY: the register that firmware's table names, aligned, mapped for good.
        Place::Memory(at) => unsafe { at.cast::<u32>().as_ptr().read_volatile() },
    };
    let (mut first, mut second) = (read(), read());
    for _ in 0..PM_TIMER_READS {
        let third = read();
        if first <= second && second <= third {
            return second;
        }
        (first, second) = (second, third);
    }
    second
}

/// Starts channel 2 in mode 0, counting down from 65,535, its output not on the speaker.
fn start_pit() {
    // SAFETY: channel 2 of the 8254 and the speaker gate are used by nobody else.
    unsafe {
        let mut control = Port::<u8>::new(CONTROL_B);
        let old = control.read();
        control.write(old & !(GATE_2 | SPEAKER));
        Port::<u8>::new(PIT_COMMAND).write(0b1011_0000);
        let mut channel = Port::<u8>::new(PIT_CHANNEL_2);
        channel.write(0xff);
        channel.write(0xff);
        control.write(old & !SPEAKER | GATE_2);
    }
}

fn latch_pit() -> u16 {
    // SAFETY: as in `start_pit`; the latch command freezes the two bytes read next.
    unsafe {
        Port::<u8>::new(PIT_COMMAND).write(0b1000_0000);
        let mut channel = Port::<u8>::new(PIT_CHANNEL_2);
        let low = channel.read();
        let high = channel.read();
        u16::from_le_bytes([low, high])
    }
}
