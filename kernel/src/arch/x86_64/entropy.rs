//! Random numbers for boot epochs, protocol seeds, AT_RANDOM and getrandom.
//!
//! They come of a keyed generator ([`kernel_core::random`]), which is fed here: with RDRAND where
//! the CPU has it, always with the jitter of the time-stamp counter around port reads, and by
//! [`feed`] with the keys that the node gets from the control node. Without RDRAND the first
//! numbers of a boot, its epoch among them, are as good as the jitter; those that programs get are
//! as good as the node's key, which others can know who read the boot network.
//!
//! Invariant: no number is given out before the generator was fed.

use kernel_core::random::Generator;
use spin::Mutex;
use x86_64::instructions::port::Port;
use x86_64::instructions::random::RdRand;

use super::{cpu, tsc};

/// Attempts before RDRAND is taken for broken (Intel's DRNG guide: ten).
const RDRAND_TRIES: u32 = 10;
/// Numbers of RDRAND of one feeding: a key's bits twice.
const RDRAND_NUMBERS: usize = 8;
/// Samples of the counter at the start, and each time that the generator is fed later: one has at
/// least a bit that nobody knows, also under emulation.
const FIRST_SAMPLES: usize = 64;
const LATER_SAMPLES: usize = 8;

static GENERATOR: Mutex<Option<Generator>> = Mutex::new(None);

/// 64 random bits.
pub fn random_u64() -> u64 {
    let mut bytes = [0; 8];
    fill(&mut bytes);
    u64::from_le_bytes(bytes)
}

/// Fills `out` with random bytes.
pub fn fill(out: &mut [u8]) {
    with_generator(|generator| {
        if generator.wants_feed() {
            feed_machine(generator);
        }
        generator.fill(out);
    });
}

/// Has what comes depend on `secret`, too, at most [`kernel_core::random::FEED_BYTES`], and forgets
/// what was given out. An empty one will do for the latter.
pub fn feed(secret: &[u8]) {
    with_generator(|generator| {
        generator.feed(secret);
        feed_machine(generator);
    });
}

fn with_generator<R>(act: impl FnOnce(&mut Generator) -> R) -> R {
    let mut generator = GENERATOR.lock();
    act(generator.get_or_insert_with(|| {
        let mut first = Generator::new(jitter::<FIRST_SAMPLES>().as_flattened());
        feed_machine(&mut first);
        first
    }))
}

/// Feeds the generator with what the machine has.
fn feed_machine(generator: &mut Generator) {
    let mut numbers = [[0; 8]; RDRAND_NUMBERS + LATER_SAMPLES];
    let (by_cpu, samples) = numbers.split_at_mut(RDRAND_NUMBERS);
    by_cpu.fill_with(|| rdrand().unwrap_or_default().to_le_bytes());
    samples.copy_from_slice(&jitter::<LATER_SAMPLES>());
    generator.feed(numbers.as_flattened());
}

fn rdrand() -> Option<u64> {
    if !cpu::features().rdrand {
        return None;
    }
    let source = RdRand::new()?;
    (0..RDRAND_TRIES).find_map(|_| source.get_u64())
}

/// The time-stamp counter around reads of a device.
fn jitter<const SAMPLES: usize>() -> [[u8; 8]; SAMPLES] {
    /// Line status of COM1: a slow device register that may be read at any time.
    const SLOW_PORT: u16 = 0x3fd;
    core::array::from_fn(|_| {
        // SAFETY: reading the line status loses at most an error bit that nobody looks at.
        let _: u8 = unsafe { Port::new(SLOW_PORT).read() };
        tsc().to_le_bytes()
    })
}
