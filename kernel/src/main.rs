//! The Hearth node kernel: one program, as one rank or several, on all cores.
//!
//! | module | purpose |
//! |---|---|
//! | [`platform`] | what firmware's tables say about the machine |
//! | [`boot`] | what the boot stub said: command line, version, entry time |
//! | [`console`], [`panic`] | console (serial port, screen) with levels, log ring, last words |
//! | [`arch`] | CPU tables, traps, timer, ring 3, idle: everything specific to x86-64 |
//! | [`mm`] | frames, page tables, heap, stacks |
//! | [`time`] | microseconds since the image was entered; sleeping until then |
//! | [`smp`] | starts the other cores |
//! | [`drivers`], [`net`] | PCI and network cards; smoltcp above them |
//! | [`monitor`] | what the node counts about itself, for the overlay |
//! | [`exchange`] | the data that ranks of a job exchange |
//! | [`shipping`] | calls on files that an I/O service carries out |
//! | [`process`] | programs: loading, faults, system calls |
//! | [`agent`] | the node's part of the protocol: joins, obeys, reports |
//! | `ktest` | tests run inside the kernel in place of the agent (`hearth.test=NAME`); feature `ktest` only |
//!
//! Invariant: one core at a time does the kernel's work, and runs to completion: interrupts are off
//! in ring 0 except where a core sleeps (docs/adr/0005-kernel-runs-to-completion.md).
#![no_std]
#![no_main]

extern crate alloc;

#[macro_use]
mod console;

mod agent;
mod arch;
mod boot;
mod drivers;
mod exchange;
#[cfg(feature = "ktest")]
mod ktest;
mod mm;
mod monitor;
mod net;
mod panic;
mod platform;
mod process;
mod shipping;
mod smp;
mod time;

use bootloader_api::BootInfo;
use bootloader_api::config::{BootloaderConfig, Mapping};
use kernel_core::cmdline::Console;

/// What the kernel asks of the boot stub.
static BOOTLOADER_CONFIG: BootloaderConfig = {
    let mut config = BootloaderConfig::new_default();
    config.mappings.physical_memory = Some(Mapping::FixedAddress(mm::layout::PHYSICAL_MAP));
    config.kernel_stack_size = 64 * 1024;
    config
};

bootloader_api::entry_point!(start, config = &BOOTLOADER_CONFIG);

/// First Rust code, on the stub's stack and page tables.
fn start(info: &'static mut BootInfo) -> ! {
    let entered = arch::tsc();
    console::init();
    arch::init_tables(panic::exception);
    drivers::pci::silence();
    boot::copy(info, entered);
    mm::init(info, start_on_own_stack)
}

/// Goes on with the kernel's own page tables and a stack with a guard page.
extern "C" fn start_on_own_stack() -> ! {
    mm::finish();
    let facts = boot::init();
    panic::set_reboots(facts.options.reboots);
    console::configure(&facts.options);
    if !facts.options.scrub {
        stop_scrubbing();
    }
    platform::init(facts.rsdp);
    if facts.options.console != Console::None {
        platform::move_console();
        console::show(facts.options.console, facts.framebuffer.as_ref());
    }
    arch::init(platform::machine(), mm::map_mmio);
    time::init(facts.entry_tsc);
    boot::report();
    platform::report();
    mm::report();
    smp::start(platform::machine(), facts.options.cores);
    if let Some(name) = &facts.options.test {
        #[cfg(feature = "ktest")]
        ktest::run(name);
        #[cfg(not(feature = "ktest"))]
        warn!(
            "boot",
            "hearth.test={name}: this image has no tests, hearth-test.efi has; starting as a node"
        );
    }
    agent::run(facts)
}

/// `hearth.scrub=off`, for the test that sees that scrubbing matters.
fn stop_scrubbing() {
    #[cfg(feature = "ktest")]
    {
        mm::frames().disable_scrubbing_for_test();
        warn!(
            "boot",
            "hearth.scrub=off: programs see what earlier ones left in memory; for tests only"
        );
    }
    #[cfg(not(feature = "ktest"))]
    warn!(
        "boot",
        "hearth.scrub=off: this image always scrubs, only hearth-test.efi can leave it out"
    );
}
