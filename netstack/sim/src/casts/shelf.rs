//! What a simulated node keeps of the objects that are cast to it, and what the checker holds
//! against it.
//!
//! Key types: [`Content`], an object of the run, and [`Shelf`], the [`Store`] of one node. A shelf
//! compares every block with what was cast the moment it is stored, and counts what may never
//! happen: a block delivered twice, wrong bytes, a block of a cast that the node does not take part
//! in.
//!
//! Invariant: what a shelf says it holds was written by the engine, or was there from the start.

use std::sync::Arc;

use netstack::broadcast::hashes::Blake3;
use netstack::broadcast::{
    CastId, HASH_BYTES, Hash, Hasher, LIST_BYTES, NoRoom, Object, Part, Store,
};

/// Violations kept for the report of a failure; more than a few say nothing new.
const VIOLATIONS: usize = 8;

/// An object of the run.
#[derive(Debug)]
pub struct Content {
    /// How it is known and cut.
    pub object: Object,
    /// All blocks one after the other, list blocks first; empty when the payload is virtual.
    pub blocks: Vec<u8>,
}

impl Content {
    /// Bytes before block number `block` in [`Content::blocks`].
    fn offset(&self, block: u32) -> usize {
        let lists = self.object.list_blocks();
        if block < lists {
            return block as usize * LIST_BYTES;
        }
        // All lists together: a value for every data block, where there are lists.
        let values = match lists {
            0 => 0,
            _ => self.object.data_blocks() as usize * HASH_BYTES,
        };
        values + (block - lists) as usize * self.object.block_bytes()
    }

    /// The bytes of a block.
    pub fn block(&self, block: u32) -> &[u8] {
        let begin = self.offset(block);
        &self.blocks[begin..begin + self.object.length(block)]
    }
}

/// One object on a shelf.
struct Item {
    content: usize,
    /// A bit for every block that is held.
    have: Box<[u64]>,
    held: u32,
}

/// A cast that the node was told of.
struct Open {
    cast: CastId,
    content: usize,
    /// A bit for every block that was held when the cast began here, or that it brought: it may not
    /// bring it (again). Two casts of one object at once may both bring a block.
    seen: Box<[u64]>,
}

/// All objects of one node.
pub struct Shelf {
    contents: Arc<Vec<Content>>,
    items: Vec<Item>,
    casts: Vec<Open>,
    /// This node's memory gives wrong bytes.
    pub corrupt: bool,
    /// What may never happen and did.
    pub violations: Vec<String>,
    /// Blocks stored.
    pub stored: u64,
    /// Fragments of these.
    pub fragments: u64,
}

impl Shelf {
    /// An empty shelf.
    pub fn new(contents: Arc<Vec<Content>>) -> Self {
        Shelf {
            contents,
            items: Vec::new(),
            casts: Vec::new(),
            corrupt: false,
            violations: Vec::new(),
            stored: 0,
            fragments: 0,
        }
    }

    /// Makes room for the object of a cast; what is there of it already stays.
    pub fn open(&mut self, cast: CastId, content: usize) {
        self.casts.retain(|open| open.cast != cast);
        let seen = match self.item(content) {
            Some(item) => item.have.clone(),
            None => {
                let blocks = self.contents[content].object.blocks() as usize;
                let have: Box<[u64]> = vec![0; blocks.div_ceil(64)].into();
                self.items.push(Item {
                    content,
                    have: have.clone(),
                    held: 0,
                });
                have
            }
        };
        self.casts.push(Open {
            cast,
            content,
            seen,
        });
    }

    /// Puts a whole object on the shelf.
    pub fn fill(&mut self, content: usize) {
        let blocks = self.contents[content].object.blocks();
        let mut have = vec![u64::MAX; blocks.div_ceil(64) as usize];
        if let Some(last) = have.last_mut().filter(|_| !blocks.is_multiple_of(64)) {
            *last = (1 << (blocks % 64)) - 1;
        }
        self.items.retain(|item| item.content != content);
        self.items.push(Item {
            content,
            have: have.into(),
            held: blocks,
        });
    }

    /// Forgets a cast, and what is there of its object unless it is whole.
    pub fn close(&mut self, cast: CastId) {
        let Some(at) = self.casts.iter().position(|open| open.cast == cast) else {
            return;
        };
        let content = self.casts.remove(at).content;
        if !self.is_whole(content) && !self.casts.iter().any(|open| open.content == content) {
            self.items.retain(|item| item.content != content);
        }
    }

    /// Forgets all casts; what is there of their objects stays.
    pub fn forget_casts(&mut self) {
        self.casts.clear();
    }

    /// Takes what is there of an object away.
    pub fn drop_part(&mut self, content: usize) {
        if !self.is_whole(content) {
            self.items.retain(|item| item.content != content);
        }
    }

    /// Takes away what is there of objects of which no cast is known: what came in an earlier run
    /// of the control node.
    pub fn lapse(&mut self) {
        for content in 0..self.contents.len() {
            if !self.casts.iter().any(|open| open.content == content) {
                self.drop_part(content);
            }
        }
    }

    /// Whether a block is held.
    pub fn has(&self, content: usize, block: u32) -> bool {
        self.item(content)
            .is_some_and(|item| item.have[block as usize / 64] >> (block % 64) & 1 != 0)
    }

    /// Reads bytes of an object, which may lie in several blocks, all of `out`. False: they are not
    /// all here.
    pub fn read_at(&self, content: usize, offset: u64, mut out: &mut [u8]) -> bool {
        let whole = &self.contents[content];
        if whole.blocks.is_empty() {
            return false;
        }
        let mut offset = offset;
        while !out.is_empty() {
            let data = u32::try_from(offset >> whole.object.block_log2).unwrap_or(u32::MAX);
            if data >= whole.object.data_blocks() {
                return false;
            }
            let block = whole.object.block_of(Part::Data(data));
            let at = (offset - (u64::from(data) << whole.object.block_log2)) as usize;
            let here = whole.block(block).get(at..).unwrap_or_default();
            let length = here.len().min(out.len());
            if length == 0 || !self.has(content, block) {
                return false;
            }
            let (front, rest) = out.split_at_mut(length);
            front.copy_from_slice(&here[..length]);
            out = rest;
            offset += length as u64;
        }
        true
    }

    /// Blocks held of an object.
    pub fn held(&self, content: usize) -> u32 {
        self.item(content).map_or(0, |item| item.held)
    }

    /// Whether all of an object is there.
    pub fn is_whole(&self, content: usize) -> bool {
        self.item(content)
            .is_some_and(|item| item.held == self.contents[content].object.blocks())
    }

    /// Objects of which a part is there.
    pub fn parts(&self) -> usize {
        (self.items.iter())
            .filter(|item| item.held != self.contents[item.content].object.blocks())
            .count()
    }

    /// The object that a cast is of.
    fn content_of(&self, cast: CastId) -> Option<usize> {
        let open = self.casts.iter().find(|open| open.cast == cast)?;
        Some(open.content)
    }

    fn item(&self, content: usize) -> Option<&Item> {
        self.items.iter().find(|item| item.content == content)
    }

    fn violation(&mut self, what: String) {
        if self.violations.len() < VIOLATIONS {
            self.violations.push(what);
        }
    }
}

impl Store for Shelf {
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let Some(index) = self.content_of(cast) else {
            return false;
        };
        let content = &self.contents[index];
        let block = content.object.block_of(part);
        if !self.has(index, block) || content.blocks.is_empty() {
            return false;
        }
        let Some(bytes) = content.block(block).get(at..at + out.len()) else {
            return false;
        };
        out.copy_from_slice(bytes);
        if self.corrupt && matches!(part, Part::Data(_)) {
            out[0] ^= 1;
        }
        true
    }

    fn write(&mut self, cast: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom> {
        let Some(index) = self.content_of(cast) else {
            self.violation(format!(
                "{part:?} stored for {cast:?}, which is unknown here"
            ));
            return Err(NoRoom);
        };
        let content = &self.contents[index];
        let block = content.object.block_of(part);
        if block >= content.object.blocks() {
            self.violation(format!("{part:?} of {cast:?} is beyond the end"));
            return Err(NoRoom);
        }
        let right = content.blocks.is_empty() || content.block(block) == bytes;
        self.stored += 1;
        self.fragments += u64::from(content.object.fragments(block).count_ones());
        let Some(item) = self.items.iter_mut().find(|item| item.content == index) else {
            self.violation(format!("{part:?} of {cast:?} stored after it was dropped"));
            return Err(NoRoom);
        };
        let (word, bit) = (block as usize / 64, 1 << (block % 64));
        item.held += u32::from(item.have[word] & bit == 0);
        item.have[word] |= bit;
        let open = self.casts.iter_mut().find(|open| open.cast == cast);
        let seen = &mut open.expect("it is one of these").seen[word];
        if std::mem::replace(seen, *seen | bit) & bit != 0 {
            self.violation(format!("{part:?} of {cast:?} delivered twice"));
        }
        if !right {
            self.violation(format!("{part:?} of {cast:?} stored with wrong bytes"));
        }
        Ok(())
    }
}

impl Hasher for Shelf {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash {
        Blake3.subtree(first_byte, bytes, root)
    }

    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
        Blake3.merge(left, right, root)
    }
}
