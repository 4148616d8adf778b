//! The part of BLAKE3 that the page-hash list needs, in portable code: the crate of that name brings
//! 300 KB of vector code, which a kernel cannot use, into every boot image.
//!
//! Source: O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2.2 to
//! 2.5 (plain hashing; no keys, no extended output). Neighbours: [`super`]; its tests hold this
//! against the crate.
//!
//! Invariant: the same value as the crate's, for every input and every subtree.

use super::Hash;

/// Bytes of a chunk, a leaf of the tree.
pub const CHUNK_BYTES: usize = 1024;
/// Bytes of a block, the input of one compression.
const BLOCK_BYTES: usize = 64;

/// Words of a chaining value.
type Words = [u32; 8];

const INITIAL: Words = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];
/// Order of a message's words in the next round.
const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
const ROUNDS: usize = 7;

const CHUNK_START: u32 = 1 << 0;
const CHUNK_END: u32 = 1 << 1;
const PARENT: u32 = 1 << 2;
const ROOT: u32 = 1 << 3;

/// What a value is for: the root of the tree is marked, all other nodes give chaining values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A node below the root.
    Inside,
    /// The root: the value is the hash of the whole input.
    Root,
}

impl Place {
    const fn flag(self) -> u32 {
        match self {
            Self::Inside => 0,
            Self::Root => ROOT,
        }
    }
}

/// The value of a subtree over `bytes`, whose first chunk is number `chunk` of the whole input: any
/// number of bytes that the tree has under one node, so at most a power of two of whole chunks that
/// `chunk` is a multiple of, or the end of the input.
pub fn subtree(bytes: &[u8], chunk: u64, place: Place) -> Hash {
    bytes_of(tree(bytes, chunk, place))
}

/// The value of the node over two subtrees.
pub fn parent(left: &Hash, right: &Hash, place: Place) -> Hash {
    bytes_of(join(words_of(left), words_of(right), place))
}

/// Bytes that lie under the left of the two nodes below the one over `bytes` bytes, more than a
/// chunk: the largest power of two of chunks that leaves something for the right.
pub const fn left_bytes(bytes: u64) -> u64 {
    let chunks = (bytes - 1) / CHUNK_BYTES as u64;
    (1 << chunks.ilog2()) * CHUNK_BYTES as u64
}

fn tree(bytes: &[u8], chunk: u64, place: Place) -> Words {
    if bytes.len() <= CHUNK_BYTES {
        return leaf(bytes, chunk, place);
    }
    let (left, right) = bytes.split_at(left_bytes(bytes.len() as u64) as usize);
    let middle = chunk + (left.len() / CHUNK_BYTES) as u64;
    let left = tree(left, chunk, Place::Inside);
    join(left, tree(right, middle, Place::Inside), place)
}

/// A chunk, at most [`CHUNK_BYTES`], number `chunk` of the input.
fn leaf(bytes: &[u8], chunk: u64, place: Place) -> Words {
    let mut value = INITIAL;
    let blocks = bytes.len().div_ceil(BLOCK_BYTES).max(1);
    for index in 0..blocks {
        let rest = &bytes[index * BLOCK_BYTES..];
        let rest = &rest[..rest.len().min(BLOCK_BYTES)];
        let mut block = [0; BLOCK_BYTES];
        block[..rest.len()].copy_from_slice(rest);
        let mut flags = 0;
        if index == 0 {
            flags |= CHUNK_START;
        }
        if index == blocks - 1 {
            flags |= CHUNK_END | place.flag();
        }
        value = compress(&value, &words(&block), chunk, rest.len() as u32, flags);
    }
    value
}

fn join(left: Words, right: Words, place: Place) -> Words {
    let mut message = [0; 16];
    message[..8].copy_from_slice(&left);
    message[8..].copy_from_slice(&right);
    let flags = PARENT | place.flag();
    compress(&INITIAL, &message, 0, BLOCK_BYTES as u32, flags)
}

/// The compression function, of whose output the first half is kept.
fn compress(value: &Words, message: &[u32; 16], counter: u64, bytes: u32, flags: u32) -> Words {
    let mut state = [0; 16];
    state[..8].copy_from_slice(value);
    state[8..12].copy_from_slice(&INITIAL[..4]);
    state[12] = counter as u32;
    state[13] = (counter >> 32) as u32;
    state[14] = bytes;
    state[15] = flags;
    let mut message = *message;
    for _ in 0..ROUNDS {
        round(&mut state, &message);
        message = PERMUTATION.map(|from| message[from]);
    }
    core::array::from_fn(|index| state[index] ^ state[index + 8])
}

fn round(state: &mut [u32; 16], message: &[u32; 16]) {
    // Columns, then diagonals.
    const MIXED: [[usize; 4]; 8] = [
        [0, 4, 8, 12],
        [1, 5, 9, 13],
        [2, 6, 10, 14],
        [3, 7, 11, 15],
        [0, 5, 10, 15],
        [1, 6, 11, 12],
        [2, 7, 8, 13],
        [3, 4, 9, 14],
    ];
    for (at, pair) in MIXED.iter().zip(message.as_chunks::<2>().0) {
        mix(state, *at, *pair);
    }
}

/// The quarter round of ChaCha with two words of the message.
#[inline(always)]
fn mix(state: &mut [u32; 16], [a, b, c, d]: [usize; 4], [x, y]: [u32; 2]) {
    state[a] = state[a].wrapping_add(state[b]).wrapping_add(x);
    state[d] = (state[d] ^ state[a]).rotate_right(16);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_right(12);
    state[a] = state[a].wrapping_add(state[b]).wrapping_add(y);
    state[d] = (state[d] ^ state[a]).rotate_right(8);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_right(7);
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks::<4>();
    core::array::from_fn(|index| u32::from_le_bytes(words[index]))
}

fn words_of(hash: &Hash) -> Words {
    words(hash)
}

fn bytes_of(words: Words) -> Hash {
    let mut bytes = [0; 32];
    for (out, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
        *out = word.to_le_bytes();
    }
    bytes
}
