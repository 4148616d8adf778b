//! What firmware's tables say about this machine.
//!
//! Neighbours: `kernel_core::acpi` reads the tables, the boot stub has found their root, `mm` gives
//! a window to them. `arch` takes clocks and I/O APICs from [`machine`], `console` the serial port
//! that [`move_console`] finds.
//!
//! Invariant: a machine without tables, or with damaged ones, starts all the same.

use kernel_core::acpi::{self, Machine, Register};
use kernel_core::addr::PhysAddr;
use spin::Once;

use crate::console;
use crate::mm::FirmwareWindow;

static MACHINE: Once<Machine> = Once::new();
/// Where nothing is known.
static UNKNOWN: Machine = Machine::UNKNOWN;

/// Reads the tables that the root pointer at `root` leads to. Needs the heap.
pub fn init(root: Option<u64>) {
    let Some(root) = root.and_then(PhysAddr::try_new) else {
        warn!(
            "acpi",
            "firmware has no tables; clocks and console are the old ones"
        );
        return;
    };
    match acpi::read(root, &mut FirmwareWindow::default()) {
        Ok(machine) => {
            MACHINE.call_once(|| machine);
        }
        Err(error) => warn!("acpi", "firmware's tables cannot be read: {error}"),
    }
}

/// What the tables say; nothing before [`init`].
pub fn machine() -> &'static Machine {
    MACHINE.get().unwrap_or(&UNKNOWN)
}

/// Has the log go where firmware's console goes, if that is a serial port.
pub fn move_console() {
    let Some(console) = machine().console else {
        return;
    };
    match console.register {
        Register::Port(place) => console::move_to(place, console.baud),
        Register::Memory(at) => debug!("acpi", "firmware's serial port at {at:?} has no driver"),
    }
}

/// Logs it.
pub fn report() {
    let machine = machine();
    for signature in &machine.damaged {
        let name = signature.escape_ascii();
        warn!("acpi", "firmware's table {name} is damaged and not used");
    }
    if machine.disabled + machine.listed_twice > 0 {
        info!(
            "acpi",
            "left out of firmware's list of processors: {} that are disabled, {} that are there twice",
            machine.disabled,
            machine.listed_twice
        );
    }
    debug!(
        "acpi",
        "{} processors, {} I/O APICs, {} ranges of memory with a domain, {} PCI windows",
        machine.processors.len(),
        machine.io_apics.len(),
        machine.memory.len(),
        machine.config_windows.len()
    );
}
