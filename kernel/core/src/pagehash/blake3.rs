//! The part of BLAKE3 that the page-hash list needs, in portable code: the crate of that name
//! brings some 175 KB of vector code, which a kernel cannot use, into every boot image.
//!
//! Source: O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast everywhere", 2.2
//! to 2.5 (plain hashing; no keys, no extended output). Neighbours: [`super`]; its tests hold this
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
/// Which word of the message comes where in each round.
const SCHEDULE: [[usize; 16]; ROUNDS] = schedule();

const fn schedule() -> [[usize; 16]; ROUNDS] {
    let mut schedule = [[0; 16]; ROUNDS];
    let mut at = 0;
    while at < ROUNDS * 16 {
        let (round, word) = (at / 16, at % 16);
        schedule[round][word] = match round {
            0 => word,
            _ => schedule[round - 1][PERMUTATION[word]],
        };
        at += 1;
    }
    schedule
}

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

/// The quarter round of ChaCha with two words of the message.
macro_rules! mix {
    ($a:ident $b:ident $c:ident $d:ident, $x:expr, $y:expr) => {
        $a = $a.wrapping_add($b).wrapping_add($x);
        $d = ($d ^ $a).rotate_right(16);
        $c = $c.wrapping_add($d);
        $b = ($b ^ $c).rotate_right(12);
        $a = $a.wrapping_add($b).wrapping_add($y);
        $d = ($d ^ $a).rotate_right(8);
        $c = $c.wrapping_add($d);
        $b = ($b ^ $c).rotate_right(7);
    };
}

/// The compression function, of whose output the first half is kept. The rounds are written out,
/// with a constant schedule and the state in locals: 14 instructions a byte instead of 37 in a
/// loop.
fn compress(value: &Words, m: &[u32; 16], counter: u64, bytes: u32, flags: u32) -> Words {
    let &[
        mut v0,
        mut v1,
        mut v2,
        mut v3,
        mut v4,
        mut v5,
        mut v6,
        mut v7,
    ] = value;
    let [mut v8, mut v9, mut v10, mut v11, ..] = INITIAL;
    let (mut v12, mut v13) = (counter as u32, (counter >> 32) as u32);
    let (mut v14, mut v15) = (bytes, flags);
    macro_rules! rounds {
        ($($round:literal)*) => { $(
            const { assert!($round < ROUNDS) };
            // Columns, then diagonals.
            mix!(v0 v4 v8 v12, m[SCHEDULE[$round][0]], m[SCHEDULE[$round][1]]);
            mix!(v1 v5 v9 v13, m[SCHEDULE[$round][2]], m[SCHEDULE[$round][3]]);
            mix!(v2 v6 v10 v14, m[SCHEDULE[$round][4]], m[SCHEDULE[$round][5]]);
            mix!(v3 v7 v11 v15, m[SCHEDULE[$round][6]], m[SCHEDULE[$round][7]]);
            mix!(v0 v5 v10 v15, m[SCHEDULE[$round][8]], m[SCHEDULE[$round][9]]);
            mix!(v1 v6 v11 v12, m[SCHEDULE[$round][10]], m[SCHEDULE[$round][11]]);
            mix!(v2 v7 v8 v13, m[SCHEDULE[$round][12]], m[SCHEDULE[$round][13]]);
            mix!(v3 v4 v9 v14, m[SCHEDULE[$round][14]], m[SCHEDULE[$round][15]]);
        )* };
    }
    rounds!(0 1 2 3 4 5 6);
    [
        v0 ^ v8,
        v1 ^ v9,
        v2 ^ v10,
        v3 ^ v11,
        v4 ^ v12,
        v5 ^ v13,
        v6 ^ v14,
        v7 ^ v15,
    ]
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
