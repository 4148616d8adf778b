//! Small clusters that join, with random jobs and faults, drawn from a seed.
//!
//! Neighbour: [`super::Family`].
//!
//! Invariant: a seed means the same run until this file changes.

use netstack::rng::Rng;
use netstack::time::Micros;

use crate::jobs::program::Weight;
use crate::scenario::{
    LIGHT, at_ms, cluster, cut_off, drops, jobs_of, outages, random_plans, share_programs,
};
use crate::setup::{Fault, Setup};

/// The run of a seed.
pub fn setup(seed: u64) -> Setup {
    let mut rng = Rng::new(seed.wrapping_mul(0x9e37_79b9) ^ 0x0073_7761_726d);
    let nodes = 1 + rng.below(6) as usize;
    let loss = rng.below(16) as u32;
    let spread = Micros(rng.below(3_000_000));
    let (mut setup, _) = cluster(seed, nodes, loss, spread);
    setup.wiring.latency_ns = 1000 * (20 + rng.below(5_000));
    setup.noise.jitter_ns = 1000 * rng.below(3_000);
    setup.noise.reorder_ns = 1000 * rng.below(100_000);
    if rng.below(3) == 0 {
        let rate = 8 * (1_000_000 + rng.below(10_000_000));
        (setup.wiring.rate, setup.control_factor) = (rate, (10_000_000_000 / rate) as u32);
        setup.wiring.queue_bytes = 20_000 + rng.below(100_000);
    }
    let count = rng.below(7);
    let weight = Weight {
        write: 1 + rng.below(40_000),
        ..LIGHT
    };
    jobs_of(&mut setup).plans = random_plans(&mut rng, nodes, count, weight);
    if rng.below(2) == 0 {
        let programs = 1 + rng.below(3) as usize;
        share_programs(&mut rng, &mut jobs_of(&mut setup).plans, programs);
        jobs_of(&mut setup).warm_pages = rng.below(200) as u32;
        let count = rng.below(6);
        drops(&mut rng, &mut setup, count, 3);
    }
    for plan in &mut jobs_of(&mut setup).plans {
        plan.refused = rng.below(10) == 0;
        if rng.below(4) == 0 {
            plan.cancel_after = Some(Micros(rng.below(6_000_000)));
        }
        if rng.below(3) == 0 {
            plan.reader_rate = 5_000 + rng.below(100_000);
        }
    }
    match rng.below(6) {
        0 => outages(&mut rng, &mut setup, 3, (Fault::Die, Fault::Boot)),
        1 => outages(&mut rng, &mut setup, 3, (cut_off, Fault::Mend)),
        2 => outages(&mut rng, &mut setup, 3, (Fault::Leave, Fault::Boot)),
        3 => outages(&mut rng, &mut setup, 3, (Fault::AskLeave, Fault::Boot)),
        4 => {
            let begin = 500 + rng.below(10_000);
            setup.faults.push((at_ms(begin), Fault::CrashControl));
            setup
                .faults
                .push((at_ms(begin + rng.below(9_000)), Fault::RestartControl));
        }
        _ => {}
    }
    setup
}
