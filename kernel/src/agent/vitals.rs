//! What the node tells about itself with each heartbeat.
//!
//! Neighbours: `agent::node` sends it; `mm`, `arch` and `time` keep the counts.

use netstack::ids::JobId;
use netstack::time::{Instant, Micros};
use netstack::vitals::{CastVitals, Vitals};

use crate::monitor::interrupt_counts;
use crate::{arch, mm, time};

/// State of the node now. `joined`: when it was first welcomed, and how long it had slept by then.
/// `overlay_kept`: what the overlay keeps.
pub fn vitals(
    job: Option<JobId>,
    joined: Option<(Instant, Micros)>,
    casts: CastVitals,
    overlay_kept: u32,
) -> Vitals {
    let memory = mm::stats();
    let interrupts = arch::interrupts::counts();
    let (joined_us, joined_idle_us) =
        joined.map_or((0, 0), |(at, idle)| (at.as_micros(), idle.as_micros()));
    Vitals {
        uptime_us: time::now().as_micros(),
        idle_us: time::mean_slept().as_micros(),
        memory_free: memory.free_bytes,
        memory_used: memory.total_bytes - memory.free_bytes,
        job,
        unscrubbed: !memory.scrubs,
        interrupts_user: interrupt_counts(&interrupts.user),
        interrupts_idle: interrupt_counts(&interrupts.idle),
        casts,
        overlay_kept,
        hardware_errors: u32::try_from(arch::machine_check::corrected()).unwrap_or(u32::MAX),
        joined_us,
        joined_idle_us,
    }
}
