//! Tags of datagrams at the rate of a link: a universal hash of all bytes, then a pseudorandom
//! function of its short result, of the datagram's number and of who says it to whom.
//!
//! ```text
//! NH(m)  = sum over i of (m[2i] + k[2i]) * (m[2i+1] + k[2i+1])   words of 64 bits, sum mod 2^128
//! tag    = SipHash-2-4(k', NH(m) | number u64 | bytes of m u64 | nonce)
//! ```
//!
//! A message is taken as words of 64 bits, little-endian, with zeros up to a multiple of 16 bytes;
//! so its length is in the second step. Two different messages of one length have the same NH with
//! a probability of at most 2^-64, whoever chose them, because the words of `k` are secret. The
//! result never leaves here but through SipHash.
//!
//! Source: Black, Halevi, Krawczyk, Krovetz, Rogaway: UMAC: Fast and Secure Message Authentication
//! (1999), NH with words of 64 bits; RFC 4418 is the same with words of 32. Number and hash go
//! through one function, instead of the sum of a pad and a hash: Black and Cochran, MAC
//! Reforgeability (2009), WMAC.
//! What else there is: `docs/adr/0039-tags-of-ranks-are-a-universal-hash.md`.
//!
//! Invariant: a tag that was made once says nothing about another one, even where a number was
//! used twice; the time that it takes depends on the length alone.

use alloc::boxed::Box;

use siphasher::sip::SipHasher24;

use super::key::Key;
use crate::MAX_DATAGRAM;

/// Bytes of a tag.
pub const LEN: usize = 8;
/// Bytes that one multiplication takes.
const BLOCK: usize = 16;
/// Words of the longest nonce.
const MAX_NONCE: usize = 2;
/// Blocks of the longest message.
const BLOCKS: usize = MAX_DATAGRAM.div_ceil(BLOCK);

/// The keys of both steps: the words for every block, and the key of the function.
#[derive(Clone)]
pub struct TagKey {
    words: Box<[[u64; 2]]>,
    outer: SipHasher24,
}

impl core::fmt::Debug for TagKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TagKey(..)")
    }
}

impl TagKey {
    /// Derives them from a key that is used for nothing else.
    pub fn new(key: &Key) -> Self {
        let words = |block: usize| {
            let number = (block as u32).to_le_bytes();
            split(key.mac(&[b"hearth NH words\0", &number]))
        };
        TagKey {
            words: (0..BLOCKS).map(words).collect(),
            outer: SipHasher24::new_with_key(&key.mac(&[b"hearth tag key\0\0"])),
        }
    }

    /// The tag of a message of at most [`MAX_DATAGRAM`] bytes.
    /// The nonce, who says it to whom, has one word or two.
    pub fn tag<const N: usize>(&self, message: &[u8], number: u64, nonce: [u64; N]) -> [u8; LEN] {
        const { assert!(N <= MAX_NONCE) };
        let hash = self.hash(message);
        let mut short = [0; 32 + 8 * MAX_NONCE];
        short[..16].copy_from_slice(&hash.to_le_bytes());
        short[16..24].copy_from_slice(&number.to_le_bytes());
        short[24..32].copy_from_slice(&(message.len() as u64).to_le_bytes());
        for (room, word) in short[32..].chunks_exact_mut(8).zip(nonce) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        self.outer.hash(&short[..32 + 8 * N]).to_le_bytes()
    }

    /// Whether this is its tag; how long that takes does not tell where they differ.
    pub fn verify<const N: usize>(
        &self,
        message: &[u8],
        number: u64,
        nonce: [u64; N],
        tag: &[u8; LEN],
    ) -> bool {
        let expected = u64::from_le_bytes(self.tag(message, number, nonce));
        core::hint::black_box(expected ^ u64::from_le_bytes(*tag)) == 0
    }

    /// NH.
    fn hash(&self, message: &[u8]) -> u128 {
        assert!(message.len() <= MAX_DATAGRAM, "longer than any datagram");
        let (blocks, rest) = message.as_chunks::<BLOCK>();
        let mut sum = 0_u128;
        for (block, key) in blocks.iter().zip(&*self.words) {
            sum = sum.wrapping_add(product(*block, *key));
        }
        if !rest.is_empty() {
            let mut last = [0; BLOCK];
            last[..rest.len()].copy_from_slice(rest);
            sum = sum.wrapping_add(product(last, self.words[blocks.len()]));
        }
        sum
    }
}

/// Two words of 64 bits.
fn split(bytes: [u8; BLOCK]) -> [u64; 2] {
    let both = u128::from_le_bytes(bytes);
    [both as u64, (both >> 64) as u64]
}

fn product(block: [u8; BLOCK], key: [u64; 2]) -> u128 {
    let [low, high] = split(block);
    u128::from(low.wrapping_add(key[0])) * u128::from(high.wrapping_add(key[1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn key() -> TagKey {
        TagKey::new(&Key(core::array::from_fn(|at| at as u8)))
    }

    /// NH as it is written above, word by word.
    fn by_definition(key: &TagKey, message: &[u8]) -> u128 {
        let mut padded = message.to_vec();
        padded.resize(message.len().next_multiple_of(16), 0);
        let word = |at: usize| u64::from_le_bytes(padded[8 * at..8 * at + 8].try_into().unwrap());
        (0..padded.len() / 16).fold(0, |sum, block| {
            let [first, second] = key.words[block];
            let one = u128::from(word(2 * block).wrapping_add(first));
            let other = u128::from(word(2 * block + 1).wrapping_add(second));
            sum.wrapping_add(one.wrapping_mul(other))
        })
    }

    proptest! {
        #[test]
        fn it_is_what_the_module_says(message in prop::collection::vec(any::<u8>(), 0..=MAX_DATAGRAM), number: u64, nonce: u64) {
            let key = key();
            let hash = by_definition(&key, &message);
            let parts = [
                &hash.to_le_bytes()[..],
                &number.to_le_bytes(),
                &(message.len() as u64).to_le_bytes(),
                &nonce.to_le_bytes(),
            ].concat();
            let expected = key.outer.hash(&parts).to_le_bytes();
            prop_assert_eq!(key.tag(&message, number, [nonce]), expected);
            prop_assert!(key.verify(&message, number, [nonce], &expected));
        }

        #[test]
        fn every_bit_counts(message in prop::collection::vec(any::<u8>(), 1..=MAX_DATAGRAM), at: prop::sample::Index, bit in 0u32..8, number: u64, nonce: u64, flip in 0u32..64) {
            let key = key();
            let tag = key.tag(&message, number, [nonce]);
            let mut other = message.clone();
            other[at.index(message.len())] ^= 1 << bit;
            prop_assert!(!key.verify(&other, number, [nonce], &tag));
            prop_assert!(!key.verify(&message, number ^ 1 << flip, [nonce], &tag));
            prop_assert!(!key.verify(&message, number, [nonce ^ 1 << flip], &tag));
            let both = [flip.into(), nonce];
            let tag_of_both = key.tag(&message, number, both);
            prop_assert!(!key.verify(&message, number, [both[1], both[0]], &tag_of_both) || both[0] == both[1]);
            prop_assert!(!key.verify(&message, number, [nonce], &tag_of_both));
            let mut wrong = tag;
            wrong[flip as usize / 8] ^= 1 << (flip % 8);
            prop_assert!(!key.verify(&message, number, [nonce], &wrong));
        }
    }

    #[test]
    fn zeros_at_the_end_are_part_of_a_message() {
        let key = key();
        let mut tags: Vec<_> = (0..=64)
            .map(|length| key.tag(&vec![0; length], 1, [0]))
            .collect();
        tags.sort_unstable();
        tags.dedup();
        assert_eq!(tags.len(), 65);
    }

    #[test]
    fn keys_of_blocks_differ() {
        let mut words: Vec<u64> = key().words.iter().flatten().copied().collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 2 * BLOCKS);
        let other = TagKey::new(&Key([1; 16]));
        assert_ne!(other.tag(b"one", 1, [0]), key().tag(b"one", 1, [0]));
    }
}
