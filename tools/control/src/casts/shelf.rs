//! Where the source of casts reads what it sends.
//!
//! Key types: [`Shelf`] (a `netstack::broadcast::Store`), [`Content`]. Neighbours: `casts` puts
//! things there and takes them away; `hosted::send` has one with a single file.
//!
//! Invariant: a read takes at most one block from the file, which the system has in memory as a
//! rule (it was hashed a moment ago): the loop is not held up.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use netstack::broadcast::{Hash, Hasher, NoRoom, Part, Store};
use netstack::ids::CastId;

use super::object::{Blake3, Described};
use crate::programs::Program;

/// Blocks of one cast kept in memory: what is on its way to several nodes at the same time.
const CACHED_BLOCKS: usize = 16;

/// Where the bytes are.
#[derive(Debug, Clone)]
pub enum Content {
    /// In the program cache.
    Cached(Program),
    /// In a file.
    File(Arc<File>),
    /// In memory.
    Bytes(Arc<[u8]>),
}

impl Content {
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        match self {
            Content::Cached(program) => program.read_exact_at(offset, out),
            Content::File(file) => file.read_exact_at(out, offset),
            Content::Bytes(bytes) => {
                let from = usize::try_from(offset).unwrap_or(usize::MAX);
                let there = bytes.get(from..).and_then(|rest| rest.get(..out.len()));
                let there = there.ok_or(std::io::ErrorKind::UnexpectedEof)?;
                out.copy_from_slice(there);
                Ok(())
            }
        }
    }
}

#[derive(Debug)]
struct Open {
    described: Arc<Described>,
    content: Content,
    /// Data blocks read last, the newest at the end.
    cache: VecDeque<(u32, Vec<u8>)>,
}

/// Everything that is being cast.
#[derive(Debug, Default)]
pub struct Shelf {
    open: BTreeMap<CastId, Open>,
}

impl Shelf {
    /// Puts something on the shelf.
    pub fn put(&mut self, cast: CastId, described: Arc<Described>, content: Content) {
        let cache = VecDeque::new();
        let open = Open {
            described,
            content,
            cache,
        };
        self.open.insert(cast, open);
    }

    /// Takes it away again.
    pub fn remove(&mut self, cast: CastId) {
        self.open.remove(&cast);
    }

    /// What is on it.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

impl Open {
    /// Data block `index`, from the cache or the file.
    fn block(&mut self, index: u32) -> Option<&[u8]> {
        let known = self.cache.iter().position(|(cached, _)| *cached == index);
        let at = match known {
            Some(at) => at,
            None => {
                let object = &self.described.object;
                if index >= object.data_blocks() {
                    return None;
                }
                let mut bytes = match self.cache.len() {
                    CACHED_BLOCKS => self.cache.pop_front().expect("it is full").1,
                    _ => Vec::new(),
                };
                bytes.resize(object.data_bytes(index), 0);
                let offset = u64::from(index) << object.block_log2;
                if let Err(error) = self.content.read(offset, &mut bytes) {
                    tracing::error!("reading a file that is being cast: {error}");
                    return None;
                }
                self.cache.push_back((index, bytes));
                self.cache.len() - 1
            }
        };
        self.cache.get(at).map(|(_, bytes)| &bytes[..])
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

impl Store for Shelf {
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let Some(open) = self.open.get_mut(&cast) else {
            return false;
        };
        let block = match part {
            Part::List(index) => open.described.lists.block(index),
            Part::Data(index) => open.block(index),
        };
        let found = block.and_then(|block| block.get(at..)?.get(..out.len()));
        found.map(|found| out.copy_from_slice(found)).is_some()
    }

    fn write(&mut self, _cast: CastId, _part: Part, _bytes: &[u8]) -> Result<(), NoRoom> {
        Err(NoRoom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_read_and_nothing_beyond() {
        let bytes: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
        let described = Arc::new(Described::of_bytes(&bytes).unwrap());
        let object = described.object.clone();
        let mut shelf = Shelf::default();
        let cast = CastId(7);
        shelf.put(cast, described, Content::Bytes(bytes.clone().into()));
        let mut out = vec![0; 1000];
        // Twice, and backwards: from the cache too.
        for index in (0..object.data_blocks()).chain((0..object.data_blocks()).rev()) {
            let length = object.data_bytes(index);
            let part = Part::Data(index);
            let out = &mut out[..length.min(1000)];
            assert!(shelf.read(cast, part, length - out.len(), out));
            let end = (index as usize) * object.block_bytes() + length;
            assert_eq!(*out, bytes[end - out.len()..end]);
            assert!(!shelf.read(cast, part, length - out.len() + 1, out));
        }
        assert!(shelf.read(cast, Part::List(0), 0, &mut out[..32]));
        assert!(!shelf.read(cast, Part::Data(object.data_blocks()), 0, &mut out[..1]));
        assert!(!shelf.read(CastId(8), Part::Data(0), 0, &mut out[..1]));
        shelf.remove(cast);
        assert!(shelf.is_empty());
    }
}
