//! What firmware leaves behind: devices at work, open interrupts, tables, timers. The runner makes
//! the machines, some of them without parts that others have.

use core::sync::atomic::{AtomicU64, Ordering};

use kernel_core::acpi::Register;
use kernel_core::pci::{Address, ConfigSpace, REGISTER_COMMAND};
use kernel_core::threads::Core;

use super::sandbox::Sandbox;
use super::{Outcome, check, clock};
use crate::arch::interrupts::{self, Class};
use crate::arch::user::Trap;
use crate::arch::{self, apic, ioapic, machine_check, probe, test_programs};
use crate::drivers::pci::{self, Function, PortAccess};
use crate::platform;
use crate::time::{self, Micros};

const BUS_MASTER: u32 = 1 << 2;
const CLASS_BRIDGE: u8 = 0x06;
/// A vector that no device is given.
const STRAY: u8 = 0xd1;

fn address(function: &Function) -> Address {
    let at = function.address;
    Address {
        bus: at.bus,
        device: at.device,
        function: at.function,
    }
}

/// Words of a function that say what it may do by itself: its command register, the first words of
/// its MSI and MSI-X capabilities with the bit that enables each.
fn switches(function: &Function) -> impl Iterator<Item = (u8, u32)> {
    let root = pci::root();
    let capabilities = root.capabilities(function.address);
    let messages = capabilities.filter_map(|capability| match capability.id {
        0x05 => Some((capability.offset, 1 << 16)),
        0x11 => Some((capability.offset, 1 << 31)),
        _ => None,
    });
    let messages: alloc::vec::Vec<_> = messages.collect();
    [(REGISTER_COMMAND, BUS_MASTER)].into_iter().chain(messages)
}

/// Devices that master the bus or may interrupt by message are silenced; bridges go on.
pub fn devices_are_silenced() -> Outcome {
    let functions = pci::scan();
    let (mut endpoints, mut by_message) = (0, 0);
    for function in &functions {
        for (register, bit) in switches(function) {
            let word = PortAccess.read(address(function), register);
            check!(
                word & bit == 0 || function.class == CLASS_BRIDGE,
                "{function} starts with register {register:#x} at {word:#x}"
            );
            PortAccess.write(address(function), register, word | bit);
            by_message += u32::from(register != REGISTER_COMMAND);
        }
        endpoints += u32::from(function.class != CLASS_BRIDGE);
    }
    check!(endpoints >= 3 && by_message >= 3, "{functions:?}");
    let is_bridge = |function: &&Function| function.class == CLASS_BRIDGE;
    let masters = |function: &Function| {
        PortAccess.read(address(function), REGISTER_COMMAND) & BUS_MASTER != 0
    };
    let bridges = functions.iter().filter(is_bridge);
    let before = bridges.clone().filter(|bridge| masters(bridge)).count();
    pci::silence();
    for function in &functions {
        for (register, bit) in switches(function) {
            let word = PortAccess.read(address(function), register);
            let is_bridge = function.class == CLASS_BRIDGE;
            check!(
                word & bit == 0 || is_bridge,
                "{function}: register {register:#x} holds {word:#x}"
            );
        }
    }
    let after = bridges.filter(|bridge| masters(bridge)).count();
    check!(
        after == before && after > 0,
        "{after} of {before} bridges master the bus"
    );
    Ok(())
}

/// Stray interrupts that came within a while of idling.
fn strays_while_idle() -> u64 {
    let before = interrupts::counts();
    let end = time::now() + Micros::from_millis(300);
    while time::now() < end {
        time::sleep_until(end);
    }
    interrupts::counts().since(&before).idle[Class::Spurious as usize]
}

/// An input that firmware left open interrupts the kernel until it is masked.
pub fn io_apic_is_masked() -> Outcome {
    /// The 8254's channel 0, which the firmware of PCs leaves ticking 18 times a second.
    const TICK_INPUT: u32 = 2;
    let io_apics = &platform::machine().io_apics;
    let [io_apic] = &io_apics[..] else {
        return Err(alloc::format!("{io_apics:?}"));
    };
    let seen = strays_while_idle();
    check!(seen == 0, "{seen} stray interrupts while all is masked");
    ioapic::Registers::map(io_apic).write_input(TICK_INPUT, STRAY.into());
    let seen = strays_while_idle();
    check!(seen >= 2, "an open input was seen {seen} times");
    ioapic::mask(io_apics);
    let seen = strays_while_idle();
    check!(seen == 0, "{seen} stray interrupts of a masked input");
    Ok(())
}

/// An interrupt that nobody asked for is counted, at any vector and in either place, and the next
/// one comes.
pub fn stray_interrupts() -> Outcome {
    let vectors = [32, 47, 61, 64, STRAY, 255];
    for vector in vectors {
        apic::send_to_self(vector);
        let seen = strays_while_idle();
        check!(seen == 1, "interrupt {vector} was counted {seen} times");
    }
    let mut sandbox = Sandbox::new(test_programs::spin())?;
    apic::send_to_self(STRAY);
    let trap = sandbox.run();
    check!(
        matches!(
            trap,
            Trap::Interrupt {
                class: Class::Spurious
            }
        ),
        "a stray interrupt ended with {trap:?}"
    );
    time::arm(time::now() + Micros::from_millis(10), Class::Heartbeat);
    let trap = sandbox.run();
    check!(
        matches!(
            trap,
            Trap::Interrupt {
                class: Class::Heartbeat
            }
        ),
        "after a stray interrupt the timer gave {trap:?}"
    );
    Ok(())
}

/// The console is where firmware's is: the runner reads no other port.
pub fn console_moved() -> Outcome {
    check!(
        platform::machine().console.is_some(),
        "firmware names no console"
    );
    Ok(())
}

/// An error that hardware has corrected is counted once.
pub fn machine_check() -> Outcome {
    check!(machine_check::corrected() == 0, "errors before the test");
    machine_check::poll();
    machine_check::pretend(5, 0x8c00_0040_0001_0091, 0x1234_5000);
    machine_check::poll();
    machine_check::poll();
    let seen = machine_check::corrected();
    check!(seen == 1, "one error was counted {seen} times");
    Ok(())
}

/// The runner wants a report that says what was found.
pub fn machine_check_stops() -> Outcome {
    machine_check::pretend(5, 0xbc00_0040_0001_0091, 0x1234_5000);
    probe::raise_machine_check();
    Ok(())
}

/// What the tables of QEMU's machine with PCI Express say.
pub fn tables() -> Outcome {
    let machine = platform::machine();
    let processors: alloc::vec::Vec<_> = machine.processors.iter().map(|one| one.apic_id).collect();
    check!(processors == [0], "processors {processors:?}");
    check!(machine.io_apics.len() == 1, "{:?}", machine.io_apics);
    let timer = machine.pm_timer.map(|timer| timer.register);
    check!(timer == Some(Register::Port(0x608)), "{machine:?}");
    check!(
        machine.hpet.map(|at| at.as_u64()) == Some(0xfed0_0000),
        "{machine:?}"
    );
    let window = machine.config_windows.first();
    check!(
        window.is_some_and(|window| window.last_bus == 255),
        "{machine:?}"
    );
    check!(machine.damaged.is_empty(), "damaged: {:?}", machine.damaged);
    Ok(())
}

/// Without tables the kernel starts and knows nothing.
pub fn no_tables() -> Outcome {
    let machine = platform::machine();
    check!(
        machine.processors.is_empty() && machine.hpet.is_none(),
        "{machine:?}"
    );
    clock::timer()
}

/// All timers of a machine that has them say the same of the time-stamp counter.
pub fn clocks_agree() -> Outcome {
    let measured = arch::clock::by_each_timer(platform::machine());
    check!(measured.len() == 3, "{measured:?}");
    let (_, first) = measured[0];
    let differs = |&(_, hz): &(_, u64)| hz.abs_diff(first) > first / 50;
    check!(!measured.iter().any(differs), "{measured:?}");
    Ok(())
}

fn clock_is(name: &str) -> Outcome {
    let source = arch::clock::source();
    check!(source == name, "the clock was measured by {source}");
    clock::timer()
}

/// The HPET is taken before others, and serves where there is no 8254.
pub fn clock_is_hpet() -> Outcome {
    clock_is("HPET")
}

/// The ACPI timer serves where there is neither HPET nor 8254.
pub fn clock_is_acpi_timer() -> Outcome {
    clock_is("ACPI timer")
}

/// The 8254 serves where firmware has no tables.
pub fn clock_is_8254() -> Outcome {
    clock_is("8254 timer")
}

/// The runner wants a report that says what to do; reached only where there was a clock.
pub fn no_clock() -> Outcome {
    Err(alloc::format!(
        "the clock was measured by {}",
        arch::clock::source()
    ))
}

/// Processors that are disabled, listed twice or not there do no harm: the others work, those that
/// are listed behind one that is not there, too.
pub fn cores_left_out() -> Outcome {
    let machine = platform::machine();
    let ids: alloc::vec::Vec<_> = machine.processors.iter().map(|one| one.apic_id).collect();
    check!(ids == [0, 1, 2, 3, 4, 5, 6, 77], "processors {ids:?}");
    let left_out = (machine.disabled, machine.listed_twice);
    check!(left_out == (1, 1), "{left_out:?} disabled and twice");
    let cores = arch::cores::count();
    check!(cores == 6, "{cores} cores work");
    // Each has a number of its own.
    let came = AtomicU64::new(0);
    let work = |core: Core| {
        came.fetch_add(1 << (8 * core.number()), Ordering::SeqCst);
    };
    arch::cores::scope(&work, || work(Core::BOOT));
    let came = came.into_inner();
    check!(came == 0x0101_0101_0101, "{came:#x}: work done, by core");
    Ok(())
}
