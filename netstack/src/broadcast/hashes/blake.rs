//! [`Hasher`] by the BLAKE3 crate, for the control node, the simulator and tests: it uses what
//! vector instructions there are. A kernel has no use for them and brings a hash function of its
//! own.

use blake3::hazmat::{HasherExt as _, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::{Hash, Hasher};

/// BLAKE3 by the `blake3` crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Blake3;

impl Hasher for Blake3 {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash {
        if root {
            return *blake3::hash(bytes).as_bytes();
        }
        let mut hasher = blake3::Hasher::new();
        hasher.set_input_offset(first_byte).update(bytes);
        hasher.finalize_non_root()
    }

    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
        if root {
            *merge_subtrees_root(left, right, Mode::Hash).as_bytes()
        } else {
            merge_subtrees_non_root(left, right, Mode::Hash)
        }
    }
}
