//! Random numbers for boot epochs, protocol seeds and AT_RANDOM.
//!
//! From RDRAND where the CPU has it, always mixed with the time-stamp counter; without RDRAND from
//! the jitter of the counter around port reads. Enough to tell boots and sessions apart; keys do
//! not come from here but with the personality.

use core::sync::atomic::{AtomicU64, Ordering};

use x86_64::instructions::port::Port;
use x86_64::instructions::random::RdRand;

use super::{cpu, tsc};

/// Attempts before RDRAND is taken for broken (Intel's DRNG guide: ten).
const RDRAND_TRIES: u32 = 10;
/// Jitter samples folded into the first number on a CPU without RDRAND.
const JITTER_SAMPLES: u32 = 64;

static POOL: AtomicU64 = AtomicU64::new(0);

/// 64 random bits.
pub fn random_u64() -> u64 {
    let fresh = rdrand().unwrap_or_else(jitter) ^ tsc();
    let pool = mix(POOL.load(Ordering::Relaxed).wrapping_add(fresh));
    POOL.store(pool, Ordering::Relaxed);
    mix(pool ^ fresh.rotate_left(32))
}

/// Fills `out` with random bytes.
pub fn fill(out: &mut [u8]) {
    for chunk in out.chunks_mut(8) {
        chunk.copy_from_slice(&random_u64().to_le_bytes()[..chunk.len()]);
    }
}

fn rdrand() -> Option<u64> {
    if !cpu::features().rdrand {
        return None;
    }
    let source = RdRand::new()?;
    (0..RDRAND_TRIES).find_map(|_| source.get_u64())
}

fn jitter() -> u64 {
    /// Line status of COM1: a slow device register that may be read at any time.
    const SLOW_PORT: u16 = 0x3fd;
    let samples = match POOL.load(Ordering::Relaxed) {
        0 => JITTER_SAMPLES,
        _ => 1,
    };
    (0..samples).fold(0, |sum: u64, _| {
        let before = tsc();
        // SAFETY: reading the line status loses at most an error bit that nobody looks at.
        let _: u8 = unsafe { Port::new(SLOW_PORT).read() };
        mix(sum ^ (tsc().wrapping_sub(before)) ^ before << 20)
    })
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, 2014).
fn mix(mut value: u64) -> u64 {
    value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
