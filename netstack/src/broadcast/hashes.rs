//! What a block must be: an object's blocks are subtrees of its own BLAKE3 tree, so a block is
//! checked by itself, on arrival, and every byte is hashed once.
//!
//! ```text
//! id (BLAKE3 of the object)
//!   = merge of the tops, at most 32, which ride in the announcement
//!       top = merge of a list block: the chaining values of 256 consecutive data blocks
//!           value = BLAKE3 subtree of a data block
//! ```
//!
//! An object of at most [`DIRECT_BLOCKS`] blocks has no list blocks: its tops are the values of
//! the blocks themselves.
//!
//! Key types: [`Object`] (what an announcement says), [`Lists`] (what its list blocks hold),
//! [`Builder`] (makes both). Neighbours: the engine checks with [`Object::check`],
//! [`Object::verify_list`] and [`Object::verify_block`]; the hash function itself comes from
//! outside by [`Hasher`], since a kernel has one of its own; with the feature `blake3` there is the
//! crate's.
//!
//! Invariant: what these three accept is part of the object with that id, whoever sent it.

use alloc::vec::Vec;

#[cfg(any(test, feature = "blake3"))]
mod blake;
#[cfg(any(test, feature = "blake3"))]
pub use blake::Blake3;

/// Bytes of a hash or chaining value.
pub const HASH_BYTES: usize = 32;
/// Data blocks that one list block covers: with blocks of 8 KiB its 8 KiB describe 2 MiB.
pub const LIST_ENTRIES: u32 = 256;
/// Most tops of an object: 1 KiB of an announcement.
pub const MAX_TOPS: usize = 32;
/// Up to so many blocks the tops are the blocks' own values: a small object needs no list first.
pub const DIRECT_BLOCKS: u32 = 8;
/// Smallest block, 4 KiB, as a power of two: three full datagrams, and a page.
pub const MIN_BLOCK_LOG2: u8 = 12;
/// Largest block, 64 KiB, as a power of two: its 48 datagrams fit a bitmap of 64 bits.
pub const MAX_BLOCK_LOG2: u8 = 16;
/// Largest object: 512 MiB, what [`MAX_TOPS`] lists of the largest blocks describe.
pub const MAX_OBJECT_BYTES: u64 = (MAX_TOPS as u64 * LIST_ENTRIES as u64) << MAX_BLOCK_LOG2;

/// A hash of a whole object or a chaining value of a part of it.
pub type Hash = [u8; HASH_BYTES];

const _: () = assert!(LIST_ENTRIES.is_power_of_two() && DIRECT_BLOCKS as usize <= MAX_TOPS);

/// BLAKE3, as the tree's two kinds of nodes.
pub trait Hasher {
    /// The chaining value of the subtree over `bytes`, which begin at byte `first_byte` of the
    /// object; with `root` the hash of an object that has no more than these bytes.
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash;
    /// The chaining value of the node over two subtrees; with `root` the hash of the object.
    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash;
}

/// A broadcast's object: what is known of it before any of its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// BLAKE3 of its bytes.
    pub id: Hash,
    /// Its size in bytes.
    pub bytes: u64,
    /// Size of a block as a power of two, [`MIN_BLOCK_LOG2`] to [`MAX_BLOCK_LOG2`].
    pub block_log2: u8,
    /// The values of the subtrees that the list blocks describe (of the blocks themselves up to
    /// [`DIRECT_BLOCKS`]), in order.
    pub tops: Vec<Hash>,
}

/// Why no object is as described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectError {
    /// The size of a block is out of range.
    BlockSize,
    /// The object is larger than [`MAX_TOPS`] lists of its blocks describe.
    TooLarge,
    /// The number of tops does not fit the size.
    Tops,
    /// The tops do not merge to the id.
    Hash,
}

impl core::fmt::Display for ObjectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            ObjectError::BlockSize => "the size of a block is not between 4 KiB and 64 KiB",
            ObjectError::TooLarge => {
                "the object is larger than its blocks allow: 512 MiB with 64 KiB"
            }
            ObjectError::Tops => "the list of hashes does not fit the size of the object",
            ObjectError::Hash => "the list of hashes is not that of the object",
        })
    }
}

impl core::error::Error for ObjectError {}

/// Blocks of an ordinary object: 8 KiB, as a power of two. A request moves six full datagrams, and
/// the blocks' list weighs 0.4 % of the object.
const USUAL_BLOCK_LOG2: u8 = 13;
/// Below this size, what one list of usual blocks describes, blocks of 4 KiB: more of them, so that
/// small data at many nodes does not wait for whole blocks.
const SMALL_BYTES: u64 = (LIST_ENTRIES as u64) << USUAL_BLOCK_LOG2;

/// The size of a block for an object of so many bytes, as a power of two; None for more than any
/// object has.
pub fn usual_block_log2(bytes: u64) -> Option<u8> {
    let least = match bytes < SMALL_BYTES {
        true => MIN_BLOCK_LOG2,
        false => USUAL_BLOCK_LOG2,
    };
    block_log2_for(bytes, least)
}

/// The smallest size of a block, at least `least`, with which an object of so many bytes can be
/// described; None when there is none.
fn block_log2_for(bytes: u64, least: u8) -> Option<u8> {
    (least.max(MIN_BLOCK_LOG2)..=MAX_BLOCK_LOG2).find(|log2| bytes <= largest(*log2))
}

/// The largest object with blocks of this size.
const fn largest(block_log2: u8) -> u64 {
    (MAX_TOPS as u64 * LIST_ENTRIES as u64) << block_log2
}

impl Object {
    /// The description of bytes that are at hand.
    pub fn describe(
        bytes: &[u8],
        block_log2: u8,
        hasher: &mut (impl Hasher + ?Sized),
    ) -> Result<(Object, Lists), ObjectError> {
        let mut builder = Builder::new(bytes.len() as u64, block_log2)?;
        for block in bytes.chunks(1 << block_log2) {
            builder.push(block, hasher);
        }
        Ok(builder.finish(hasher))
    }

    /// Bytes of a full block.
    pub fn block_bytes(&self) -> usize {
        1 << self.block_log2
    }

    /// Number of data blocks.
    pub fn data_blocks(&self) -> u32 {
        (self.bytes >> self.block_log2) as u32
            + u32::from(self.bytes & ((1 << self.block_log2) - 1) != 0)
    }

    /// Number of list blocks.
    pub fn list_blocks(&self) -> u32 {
        match self.data_blocks() {
            0..=DIRECT_BLOCKS => 0,
            many => many.div_ceil(LIST_ENTRIES),
        }
    }

    /// Bytes of data block `index`, which there must be.
    pub fn data_bytes(&self, index: u32) -> usize {
        let first = u64::from(index) << self.block_log2;
        assert!(first < self.bytes, "the object has no block {index}");
        (self.bytes - first).min(self.block_bytes() as u64) as usize
    }

    /// Bytes of list block `index`, which there must be.
    pub fn list_bytes(&self, index: u32) -> usize {
        assert!(index < self.list_blocks(), "the object has no list {index}");
        let before = index * LIST_ENTRIES;
        (self.data_blocks() - before).min(LIST_ENTRIES) as usize * HASH_BYTES
    }

    /// The list block that describes data block `index`; None when the tops do.
    pub fn list_of(&self, index: u32) -> Option<u32> {
        (self.list_blocks() > 0).then_some(index / LIST_ENTRIES)
    }

    /// Number of tops that an object of this size has.
    pub fn top_count(&self) -> u32 {
        match self.list_blocks() {
            0 => self.data_blocks(),
            lists => lists,
        }
    }

    /// Whether the sizes are in range and there are as many tops as they ask for. Nothing else may
    /// be asked of an object from the network before this was.
    pub fn check_size(&self) -> Result<(), ObjectError> {
        check_size(self.bytes, self.block_log2)?;
        if self.tops.len() != self.top_count() as usize {
            return Err(ObjectError::Tops);
        }
        Ok(())
    }

    /// Whether the description fits together: sizes in range and the tops those of this id.
    pub fn check(&self, hasher: &mut (impl Hasher + ?Sized)) -> Result<(), ObjectError> {
        self.check_size()?;
        if self.root(hasher) != self.id {
            return Err(ObjectError::Hash);
        }
        Ok(())
    }

    /// Whether `bytes` are list block `index`. False also for a list that there is not.
    pub fn verify_list(
        &self,
        index: u32,
        bytes: &[u8],
        hasher: &mut (impl Hasher + ?Sized),
    ) -> bool {
        let Some(top) = self.tops.get(index as usize) else {
            return false;
        };
        if index >= self.list_blocks() || bytes.len() != self.list_bytes(index) {
            return false;
        }
        let (entries, _) = bytes.as_chunks::<HASH_BYTES>();
        merge(entries, self.tops.len() == 1, hasher) == *top
    }

    /// Whether `bytes` are data block `index`, by `list`, the bytes of its list block, which were
    /// verified (not looked at where there are no lists). False also for a block that there is not.
    pub fn verify_block(
        &self,
        index: u32,
        bytes: &[u8],
        list: &[u8],
        hasher: &mut (impl Hasher + ?Sized),
    ) -> bool {
        if index >= self.data_blocks() || bytes.len() != self.data_bytes(index) {
            return false;
        }
        let expected = match self.list_of(index) {
            None => self.tops.get(index as usize),
            Some(_) => list.as_chunks().0.get((index % LIST_ENTRIES) as usize),
        };
        expected.is_some_and(|expected| {
            let first = u64::from(index) << self.block_log2;
            hasher.subtree(first, bytes, self.data_blocks() == 1) == *expected
        })
    }

    /// The id that the tops give.
    fn root(&self, hasher: &mut (impl Hasher + ?Sized)) -> Hash {
        match &self.tops[..] {
            [] => hasher.subtree(0, &[], true),
            // The value of the only subtree is made as that of the root.
            [only] => *only,
            many => merge(many, true, hasher),
        }
    }
}

fn check_size(bytes: u64, block_log2: u8) -> Result<(), ObjectError> {
    if !(MIN_BLOCK_LOG2..=MAX_BLOCK_LOG2).contains(&block_log2) {
        return Err(ObjectError::BlockSize);
    }
    if bytes > largest(block_log2) {
        return Err(ObjectError::TooLarge);
    }
    Ok(())
}

/// The value of the node over these subtrees, at least one, all as large as the first but the last.
/// A node's left side is the largest power of two of them that leaves something for the right.
/// Source: "BLAKE3: one function, fast everywhere", 2.1.
fn merge(values: &[Hash], root: bool, hasher: &mut (impl Hasher + ?Sized)) -> Hash {
    if let [only] = values {
        return *only;
    }
    let left = 1 << (values.len() - 1).ilog2();
    let (left, right) = values.split_at(left);
    let left = merge(left, false, hasher);
    let right = merge(right, false, hasher);
    hasher.merge(&left, &right, root)
}

/// The contents of an object's list blocks: the value of every data block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    values: Vec<Hash>,
}

impl Lists {
    /// The bytes of list block `index`; None when there is no such list.
    pub fn block(&self, index: u32) -> Option<&[u8]> {
        if self.values.len() <= DIRECT_BLOCKS as usize {
            return None;
        }
        let list = self
            .values
            .chunks(LIST_ENTRIES as usize)
            .nth(index as usize);
        list.map(|values| values.as_flattened())
    }

    /// The value of data block `index`.
    pub fn value(&self, index: u32) -> Option<&Hash> {
        self.values.get(index as usize)
    }
}

/// Makes the description of an object from its blocks, in their order.
#[derive(Debug)]
pub struct Builder {
    object: Object,
    values: Vec<Hash>,
}

impl Builder {
    /// For an object of `bytes` bytes.
    pub fn new(bytes: u64, block_log2: u8) -> Result<Self, ObjectError> {
        check_size(bytes, block_log2)?;
        let object = Object {
            id: [0; HASH_BYTES],
            bytes,
            block_log2,
            tops: Vec::new(),
        };
        let values = Vec::with_capacity(object.data_blocks() as usize);
        Ok(Builder { object, values })
    }

    /// Bytes of the block that comes next; None when all have come.
    pub fn next_bytes(&self) -> Option<usize> {
        let next = self.values.len() as u32;
        (next < self.object.data_blocks()).then(|| self.object.data_bytes(next))
    }

    /// Takes the next block: exactly [`Builder::next_bytes`] bytes.
    pub fn push(&mut self, block: &[u8], hasher: &mut (impl Hasher + ?Sized)) {
        assert_eq!(self.next_bytes(), Some(block.len()), "not the next block");
        let first = (self.values.len() as u64) << self.object.block_log2;
        let root = self.object.data_blocks() == 1;
        self.values.push(hasher.subtree(first, block, root));
    }

    /// The description, once every block has come.
    pub fn finish(mut self, hasher: &mut (impl Hasher + ?Sized)) -> (Object, Lists) {
        assert_eq!(self.next_bytes(), None, "blocks are missing");
        let lists = self.object.list_blocks();
        self.object.tops = match lists {
            0 => self.values.clone(),
            _ => (self.values.chunks(LIST_ENTRIES as usize))
                .map(|values| merge(values, lists == 1, hasher))
                .collect(),
        };
        self.object.id = self.object.root(hasher);
        let values = self.values;
        (self.object, Lists { values })
    }
}

#[cfg(test)]
mod tests;
