//! Interrupt vectors, their classes, and how often each class came.
//!
//! Classes and what they may interrupt: docs/adr/0004-interrupt-classes.md. A handler does nothing
//! but count and acknowledge; whoever waits looks at the device itself.
//!
//! Invariant: a class is counted where it came, in ring 3 or in idle; there is no third place,
//! since interrupts are off everywhere else.

pub use kernel_core::interrupts::{Class, Counts, Place};

use spin::Mutex;
use x86_64::instructions::port::Port;

use super::trap::FIRST_INTERRUPT;
use super::{apic, timer};

/// Vectors 32 to 47: where the legacy controllers are parked. All their lines are masked, but a
/// spurious one can still come.
const LEGACY_FIRST: u8 = FIRST_INTERRUPT;
/// The APIC timer.
pub const TIMER_VECTOR: u8 = 48;
/// First vector for devices.
const DEVICE_FIRST: u8 = 49;
/// What one core sends another to have it look at what has changed.
pub(super) const KICK_VECTOR: u8 = 62;
/// The APIC's spurious interrupt; old CPUs want the low four bits set.
pub const SPURIOUS_VECTOR: u8 = 63;

struct State {
    /// Class of device vector `DEVICE_FIRST + i`.
    devices: [Option<Class>; (KICK_VECTOR - DEVICE_FIRST) as usize],
    /// A program that runs now may be interrupted by the card, for a broadcast.
    for_cast: bool,
    counts: Counts,
    /// An interrupt came that nobody asked for, and has been logged.
    stray_is_logged: bool,
}

static STATE: Mutex<State> = Mutex::new(State {
    devices: [None; (KICK_VECTOR - DEVICE_FIRST) as usize],
    for_cast: false,
    counts: Counts::new(),
    stray_is_logged: false,
});

/// Reserves a vector for a device whose interrupts are of `class`. Panics when all
/// are taken: the kernel drives far fewer devices than there are vectors.
pub fn allocate(class: Class) -> u8 {
    let mut state = STATE.lock();
    let index = state
        .devices
        .iter()
        .position(Option::is_none)
        .expect("no interrupt vector left");
    state.devices[index] = Some(class);
    DEVICE_FIRST + index as u8
}

/// Says whether the card may interrupt programs from now on, because a broadcast wants it: its
/// interrupts are then of [`Class::Cast`] in ring 3.
pub fn set_for_cast(on: bool) {
    STATE.lock().for_cast = on;
}

/// Interrupts since start, by class and place.
pub fn counts() -> Counts {
    STATE.lock().counts
}

/// Counts an interrupt and acknowledges it at the APIC; returns its class.
pub(super) fn acknowledge(vector: u8, place: Place) -> Class {
    let expected = match vector {
        TIMER_VECTOR => Some(timer::fired()),
        KICK_VECTOR => Some(Class::Kick),
        DEVICE_FIRST..KICK_VECTOR => {
            let state = STATE.lock();
            match state.devices[usize::from(vector - DEVICE_FIRST)] {
                Some(Class::Nic) if state.for_cast && place == Place::User => Some(Class::Cast),
                class => class,
            }
        }
        _ => None,
    };
    let class = expected.unwrap_or(Class::Spurious);
    STATE.lock().counts.count(class, place);
    if expected.is_some() {
        apic::end_of_interrupt();
    } else {
        pass_stray(vector);
    }
    class
}

/// An interrupt that nobody asked for. One of the parked controllers, or spurious at the APIC,
/// wants no acknowledgement; one that firmware left on its way does, or no other would come.
fn pass_stray(vector: u8) {
    if !apic::is_in_service(vector) {
        return;
    }
    apic::end_of_interrupt();
    if !core::mem::replace(&mut STATE.lock().stray_is_logged, true) {
        warn!(
            "cpu",
            "interrupt {vector} came, which no device was given: left over from firmware, ignored; \
             others like it are counted as spurious"
        );
    }
}

/// Moves the two legacy interrupt controllers away from the exceptions and masks all their lines
/// (Intel 8259A data sheet: ICW1 to ICW4, then OCW1).
pub(super) fn mask_legacy() {
    const COMMAND: [u16; 2] = [0x20, 0xa0];
    const DATA: [u16; 2] = [0x21, 0xa1];
    const CASCADE: [u8; 2] = [4, 2];
    for index in 0..2 {
        // SAFETY: the ports are those of the 8259A controllers on every PC; the kernel uses no
        // interrupt of theirs.
        unsafe {
            let mut data = Port::<u8>::new(DATA[index]);
            Port::<u8>::new(COMMAND[index]).write(0x11);
            data.write(LEGACY_FIRST + 8 * index as u8);
            data.write(CASCADE[index]);
            data.write(1);
            data.write(0xff);
        }
    }
}
