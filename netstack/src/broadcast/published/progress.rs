//! What is here, by chunks.
//!
//! Invariant: a chunk counts as held when all its data blocks and all its list blocks are here.

use core::ops::Range;

use alloc::vec::Vec;

use crate::broadcast::bitmap::Bitmap;
use crate::broadcast::hashes::{LIST_ENTRIES, Object};
use crate::broadcast::plan::View;
use crate::rng::Rng;

/// The chunks of an object and how much of each lacks.
#[derive(Debug)]
pub(super) struct Chunks {
    lists: u32,
    /// First data block of each chunk, and their number at the end.
    bounds: Vec<u32>,
    /// Data blocks of each chunk that are not here.
    missing: Vec<u32>,
    /// Chunks of which blocks lack, in no order.
    lacking: Vec<u32>,
    /// Where each chunk is in `lacking`.
    position: Vec<u32>,
}

/// Not in the list of lacking chunks.
const NOWHERE: u32 = u32::MAX;

impl Chunks {
    /// Nothing is here. `bounds` as [`crate::broadcast::published::header::Sizes::bounds`] gives
    /// them.
    pub(super) fn new(object: &Object, bounds: Vec<u32>) -> Self {
        let missing: Vec<u32> = bounds.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let all = 0..missing.len() as u32;
        Chunks {
            lists: object.list_blocks(),
            bounds,
            missing,
            lacking: all.clone().collect(),
            position: all.collect(),
        }
    }

    /// Number of chunks.
    pub(super) fn count(&self) -> u32 {
        self.missing.len() as u32
    }

    /// Bytes of a chunk with its list blocks, as one link carries them.
    pub(super) fn bytes(&self, chunk: u32, object: &Object) -> u64 {
        let parts = self.list_range(chunk).chain(self.data_range(chunk));
        parts.map(|block| object.length(block) as u64).sum()
    }

    /// Counts anew what is here.
    pub(super) fn recount(&mut self, have: &Bitmap) {
        self.lacking.clear();
        for chunk in 0..self.count() {
            let lacking = self.data_range(chunk);
            let missing = lacking.filter(|block| !have.contains(*block)).count();
            self.missing[chunk as usize] = missing as u32;
            self.position[chunk as usize] = NOWHERE;
            if missing > 0 || !self.lists_here(chunk, have) {
                self.position[chunk as usize] = self.lacking.len() as u32;
                self.lacking.push(chunk);
            }
        }
    }

    /// A block came. Gives the chunk that is complete with it; with a list block several may be,
    /// and the caller asks [`Chunks::is_held`] where it matters.
    pub(super) fn arrived(&mut self, block: u32, have: &Bitmap) -> Option<u32> {
        if block < self.lists {
            for at in (0..self.lacking.len()).rev() {
                self.settle(self.lacking[at], have);
            }
            return None;
        }
        let chunk = self.chunk_of(block);
        let missing = &mut self.missing[chunk as usize];
        *missing = missing.saturating_sub(1);
        self.settle(chunk, have).then_some(chunk)
    }

    /// Takes a chunk off the list if it is complete.
    fn settle(&mut self, chunk: u32, have: &Bitmap) -> bool {
        let position = self.position[chunk as usize];
        let complete = self.missing[chunk as usize] == 0 && self.lists_here(chunk, have);
        if position == NOWHERE || !complete {
            return false;
        }
        self.lacking.swap_remove(position as usize);
        if let Some(moved) = self.lacking.get(position as usize) {
            self.position[*moved as usize] = position;
        }
        self.position[chunk as usize] = NOWHERE;
        true
    }

    fn lists_here(&self, chunk: u32, have: &Bitmap) -> bool {
        self.list_range(chunk).all(|list| have.contains(list))
    }

    /// All of the chunk is here.
    pub(super) fn is_held(&self, chunk: u32) -> bool {
        self.position[chunk as usize] == NOWHERE
    }

    /// Chunks that lack, in no order.
    pub(super) fn lacking(&self) -> &[u32] {
        &self.lacking
    }

    /// The chunk of a block; for a list block the first chunk that needs it.
    pub(super) fn chunk_of(&self, block: u32) -> u32 {
        let data = match block.checked_sub(self.lists) {
            Some(data) => data,
            None => block * LIST_ENTRIES,
        };
        let after = self.bounds.partition_point(|first| *first <= data);
        (after as u32).clamp(1, self.count()) - 1
    }

    /// Whether the block is a list block.
    pub(super) fn is_list(&self, block: u32) -> bool {
        block < self.lists
    }

    /// The last block of a chunk, which is asked for last.
    pub(super) fn last_block(&self, chunk: u32) -> u32 {
        self.lists + self.bounds[chunk as usize + 1] - 1
    }

    /// The next block to ask for to have the chunk, its list blocks first. `cursor` says where the
    /// last one was found, and is moved; what was given up before it is found after the end.
    pub(super) fn next_block(&self, chunk: u32, cursor: &mut u32, view: &View<'_>) -> Option<u32> {
        let data = self.data_range(chunk);
        let start = (*cursor).clamp(data.start, data.end);
        let mut blocks = self
            .list_range(chunk)
            .chain(start..data.end)
            .chain(data.start..start);
        let found = blocks.find(|block| view.lacks(*block))?;
        *cursor = found;
        Some(found)
    }

    /// How many blocks of the chunk are asked for at present, up to `most`.
    pub(super) fn asked(&self, chunk: u32, most: usize, view: &View<'_>) -> usize {
        let blocks = self.list_range(chunk).chain(self.data_range(chunk));
        blocks
            .filter(|block| view.asked.contains(*block))
            .take(most)
            .count()
    }

    /// A random order of looking at the chunks that lack: where to begin.
    pub(super) fn any_lacking(&self, rng: &mut Rng) -> usize {
        rng.below(self.lacking.len() as u64) as usize
    }

    /// Block numbers of a chunk's data.
    fn data_range(&self, chunk: u32) -> Range<u32> {
        let chunk = chunk as usize;
        self.lists + self.bounds[chunk]..self.lists + self.bounds[chunk + 1]
    }

    /// Block numbers of the lists that a chunk is checked against.
    fn list_range(&self, chunk: u32) -> Range<u32> {
        if self.lists == 0 {
            return 0..0;
        }
        let chunk = chunk as usize;
        let last = self.bounds[chunk + 1] - 1;
        self.bounds[chunk] / LIST_ENTRIES..last / LIST_ENTRIES + 1
    }
}
