//! The node's side of the protocol: joins control, obeys its commands, reports.
//!
//! Neighbours: `main` ends in [`run`]; the panic handler calls [`report_panic`] last.

use crate::boot::BootFacts;

/// Joins control and serves until the machine is switched off.
pub fn run(_boot: &'static BootFacts) -> ! {
    info!("agent", "nothing to do yet");
    crate::arch::halt()
}

/// Tells control that this node is about to stop. Best effort, within 100 ms; never panics.
pub fn report_panic(_text: &str) {}
