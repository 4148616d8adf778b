//! Timer, idle, interrupts by class.

use super::sandbox::Sandbox;
use super::{Outcome, check};
use crate::arch::interrupts::{self, Class, Counts};
use crate::arch::user::Trap;
use crate::arch::{apic, entropy, test_programs, trap, tsc};
use crate::time::{self, Micros};

/// Longest stall of the virtual machine that a test forgives: host load, not the kernel.
const FORGIVEN: Micros = Micros::from_millis(500);
/// Seconds of computing in [`compute_is_tickless`].
const COMPUTE_SECONDS: u64 = 10;

/// The one-shot timer fires once, not early, and the clock agrees with it.
pub fn timer() -> Outcome {
    for millis in [1, 5, 20, 100] {
        let before = interrupts::counts();
        let start = time::now();
        let span = Micros::from_millis(millis);
        let mut wakes = 0;
        while time::now() < start + span {
            time::sleep_until(start + span);
            wakes += 1;
        }
        let slept = time::now().saturating_since(start);
        let counted = interrupts::counts().since(&before);
        check!(
            slept.as_micros() < span.as_micros() + FORGIVEN.as_micros(),
            "{millis} ms took {slept}"
        );
        // The two clocks are calibrated apart, so the timer may be early by a little, once.
        check!(
            (1..=3).contains(&wakes),
            "{millis} ms took {wakes} wake-ups"
        );
        check!(
            counted.idle[Class::Heartbeat as usize] == wakes,
            "{wakes} wake-ups counted as {counted}"
        );
    }
    Ok(())
}

/// An idle second sees one interrupt: its end.
pub fn idle_is_tickless() -> Outcome {
    let before = interrupts::counts();
    let (start, idle_before) = (time::now(), time::slept());
    let end = start + Micros::from_secs(1);
    while time::now() < end {
        time::sleep_until(end);
    }
    let counted = interrupts::counts().since(&before);
    let total: u64 = counted.idle.iter().sum();
    check!(
        (1..=3).contains(&total) && counted.user_total() == 0,
        "an idle second saw {counted}"
    );
    let asleep = time::slept().as_micros() - idle_before.as_micros();
    check!(asleep > 900_000, "asleep for {asleep} us of a second");
    Ok(())
}

/// Ten seconds of computing see one heartbeat a second and nothing else.
pub fn compute_is_tickless() -> Outcome {
    let mut sandbox = Sandbox::new(test_programs::spin())?;
    let before = interrupts::counts();
    let start = time::now();
    let end = start + Micros::from_secs(COMPUTE_SECONDS);
    while time::now() < end {
        time::arm(time::now() + Micros::from_secs(1), Class::Heartbeat);
        let trap = sandbox.run();
        check!(
            matches!(trap, Trap::Interrupt { .. }),
            "computing ended with {trap:?}"
        );
    }
    let counted: Counts = interrupts::counts().since(&before);
    info!("test", "{COMPUTE_SECONDS} s of computing: {counted}");
    let beats = counted.user[Class::Heartbeat as usize];
    check!(
        (1..=COMPUTE_SECONDS + 1).contains(&beats) && counted.user_total() == beats,
        "{COMPUTE_SECONDS} s of computing saw {counted}"
    );
    // The loop counts its rounds in rbx: it must have run, not slept.
    check!(
        sandbox.context.rbx > 1_000_000,
        "the program did {} rounds",
        sandbox.context.rbx
    );
    Ok(())
}

/// A non-maskable interrupt comes with interrupts off, is counted, and everything goes on.
pub fn nmi() -> Outcome {
    let before = trap::nmi_count();
    for _ in 0..3 {
        apic::send_nmi_to_self();
        let until = time::now() + Micros::from_millis(50);
        let sent = trap::nmi_count();
        while trap::nmi_count() == sent && time::now() < until {
            core::hint::spin_loop();
        }
    }
    let seen = trap::nmi_count() - before;
    // Delivery is at once, but may come before the counter is read above.
    check!(seen == 3, "{seen} of 3 non-maskable interrupts seen");
    Ok(())
}

/// Random numbers differ, and so do their halves.
pub fn entropy() -> Outcome {
    let mut last = tsc();
    for _ in 0..1_000 {
        let next = entropy::random_u64();
        check!(
            next != last && next as u32 != (next >> 32) as u32,
            "random numbers repeat: {next:#x}"
        );
        last = next;
    }
    let mut bytes = [0; 29];
    entropy::fill(&mut bytes);
    check!(bytes.iter().any(|&byte| byte != 0), "nothing was filled in");
    Ok(())
}
