//! A number that two runs of one setup share.
//!
//! Invariant: the order of what is folded in counts.

/// Where digests begin: the offset of FNV-1a.
pub const DIGEST: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, a word at a time.
pub fn fold(digest: u64, word: u64) -> u64 {
    (digest ^ word)
        .wrapping_mul(0x0100_0000_01b3)
        .rotate_left(23)
}
