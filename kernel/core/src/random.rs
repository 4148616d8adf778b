//! Random numbers of the kernel: a keyed generator and what is fed to it.
//!
//! Key type: [`Generator`], ChaCha20 under a key of 256 bits. Feeding makes a new key of the old
//! generator's output and of what is fed, by BLAKE3: whoever lacks one of the two knows nothing of
//! what comes. So it does no harm to feed what others may know, and one good source is enough.
//!
//! Neighbours: `kernel::arch::entropy` feeds it: the processor's random numbers, the jitter of the
//! counter, and the node's keys from the control node.
//!
//! Invariant: what was given out, and the key that it came from, cannot be found in the generator
//! after the next feeding.

use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::pagehash::blake3::{self, Place};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes that are fed at once at most: with the old key they are a chunk of BLAKE3.
pub const FEED_BYTES: usize = blake3::CHUNK_BYTES - LABEL.len() - KEY_BYTES;
/// Tells this use of BLAKE3 from all others.
const LABEL: &[u8; 32] = b"hearth kernel random generator 1";
/// Bytes given out after which the generator wants to be fed, so that what is known of it once does
/// not last.
const WANTS_AFTER_BYTES: u64 = 1 << 20;

/// Makes random numbers of what it was fed.
#[derive(Debug)]
pub struct Generator {
    stream: ChaCha20Rng,
    /// Bytes given out since it was fed.
    given: u64,
}

impl Generator {
    /// One that knows nothing but these bytes.
    pub fn new(first: &[u8]) -> Self {
        Self::of_key(&[0; KEY_BYTES], first)
    }

    fn of_key(old: &[u8; KEY_BYTES], fed: &[u8]) -> Self {
        let mut input = [0; blake3::CHUNK_BYTES];
        let mut length = 0;
        for part in [&LABEL[..], old, fed] {
            input[length..length + part.len()].copy_from_slice(part);
            length += part.len();
        }
        let key = blake3::subtree(&input[..length], 0, Place::Root);
        input.fill(0);
        core::hint::black_box(&mut input);
        let mut stream = ChaCha20Rng::from_seed(key);
        // Makes a stock now, when there is time for it.
        stream.next_u64();
        Self { stream, given: 0 }
    }

    /// Takes in more that others may not know, at most [`FEED_BYTES`].
    pub fn feed(&mut self, bytes: &[u8]) {
        let mut old = [0; KEY_BYTES];
        self.stream.fill_bytes(&mut old);
        *self = Self::of_key(&old, bytes);
    }

    /// Whether so much was given out that it should be fed.
    pub fn wants_feed(&self) -> bool {
        self.given >= WANTS_AFTER_BYTES
    }

    /// Fills `out` with random bytes.
    pub fn fill(&mut self, out: &mut [u8]) {
        self.stream.fill_bytes(out);
        self.given += out.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(generator: &mut Generator) -> [u8; 64] {
        let mut out = [0; 64];
        generator.fill(&mut out);
        out
    }

    #[test]
    fn the_same_feed_gives_the_same_numbers_and_no_other_does() {
        let of = |first: &[u8], fed: &[u8]| {
            let mut generator = Generator::new(first);
            generator.feed(fed);
            drawn(&mut generator)
        };
        let known = of(b"first", b"second");
        assert_eq!(known, of(b"first", b"second"));
        for (first, fed) in [
            (&b"other"[..], &b"second"[..]),
            (b"first", b"other"),
            (b"firsts", b"econd"),
        ] {
            assert_ne!(known, of(first, fed), "{first:?} {fed:?}");
        }
        let mut generator = Generator::new(&[7; FEED_BYTES]);
        assert_ne!(drawn(&mut generator), drawn(&mut generator));
    }

    #[test]
    fn a_feed_of_nothing_is_a_new_key() {
        let mut generator = Generator::new(b"first");
        let (key, given) = (generator.stream.get_seed(), drawn(&mut generator));
        generator.feed(b"");
        assert_ne!(generator.stream.get_seed(), key);
        assert_ne!(drawn(&mut generator), given);
    }

    #[test]
    fn it_wants_to_be_fed_after_a_mebibyte() {
        let mut generator = Generator::new(b"");
        let mut out = [0; 1 << 12];
        for _ in 0..WANTS_AFTER_BYTES / out.len() as u64 {
            assert!(!generator.wants_feed());
            generator.fill(&mut out);
        }
        assert!(generator.wants_feed());
        generator.feed(b"");
        assert!(!generator.wants_feed());
    }

    #[test]
    fn bits_are_even() {
        let mut generator = Generator::new(b"");
        let mut out = [0; 1 << 16];
        generator.fill(&mut out);
        let ones: u32 = out.iter().map(|byte| byte.count_ones()).sum();
        let even = out.len() as u32 * 4;
        assert!(ones.abs_diff(even) < even / 100, "{ones} of {}", 2 * even);
    }
}
