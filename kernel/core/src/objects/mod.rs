//! Objects in the node's memory: bytes known by their BLAKE3 hash, in frames of their own.
//!
//! What a cast brings to a node is kept here: files that a program reads or maps as `/with/NAME`,
//! and images of programs. An object arrives in *blocks* (verified by the caller) and takes a frame
//! for each page when it arrives; the hash lists of its blocks are kept with it, so that a node
//! that holds an object can serve it on.
//!
//! | item | what it is |
//! |---|---|
//! | [`Objects`] | the store: limits, who goes when memory is short |
//! | [`Part`] | a list block or a data block |
//! | [`InUse`] | holds an object: it stays while one of these lives |
//! | [`FrameIndex`] | page number to frame, for mappings and reads |
//!
//! A file stays until it is dropped; an image goes when a running program needs the memory, the one
//! that was used least recently first.
//!
//! Neighbours: `agent` writes what a cast brings and drops what ends; [`crate::program`] maps pages
//! of files as [`Class::Object`](crate::paging::entry::Class), read-only; [`crate::frames`] counts
//! the frames as [`State::Object`](crate::frames::State).
//!
//! Invariant: a frame in the store holds what its block's hash says, or zeros while the block is
//! not there; nobody maps it writable; nothing of an object goes while it is in use.

mod index;
mod shape;

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::addr::{PAGE_SIZE, PhysAddr};
use crate::frames::{Frame, FrameAllocator};
use crate::phys::PhysMem;
use crate::program::Machine;
use crate::retention::ROOM_FRAMES;
pub use index::FrameIndex;
use shape::Shape;
pub use shape::{
    BLOCK_LOG2, Kept, LIST_ENTRIES, LISTS_MAX, NoRoom, ObjectId, Part, Refused, Spec, View,
    WriteError,
};

/// Objects of a node at most: as many files as one job may name, and as many images.
pub const OBJECTS_MAX: usize = 128;
/// Holds an object. While one of these lives the object stays.
#[derive(Clone, Debug)]
pub struct InUse {
    id: ObjectId,
    _token: Arc<()>,
}

impl InUse {
    /// Which object.
    pub fn id(&self) -> &ObjectId {
        &self.id
    }
}

/// What became of an object that was to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Pages given back.
    pub pages: u64,
    /// It is in use, and goes when it is not any more ([`Objects::sweep`]).
    pub in_use: bool,
}

#[derive(Debug)]
struct Object {
    id: ObjectId,
    shape: Shape,
    kept: Kept,
    index: FrameIndex,
    /// Which parts have arrived: lists, then data blocks.
    arrived: Vec<u64>,
    /// Data blocks that have arrived.
    blocks: u64,
    /// Frames it has, without those of its index.
    pages: u64,
    /// Frames of data that it has.
    data_pages: u64,
    /// Frames it will take yet, for which room was found.
    promised: u64,
    used_at: u64,
    /// It goes when it is not in use any more.
    doomed: bool,
    token: Arc<()>,
}

impl Object {
    fn has(&self, mark: usize) -> bool {
        self.arrived[mark / 64] & 1 << (mark % 64) != 0
    }

    /// Notes that a part has arrived.
    fn note(&mut self, part: Part, mark: usize) {
        let new = !self.has(mark);
        self.arrived[mark / 64] |= 1 << (mark % 64);
        self.blocks += u64::from(new && matches!(part, Part::Data(_)));
        if self.is_complete() {
            self.promised = 0;
        }
    }

    fn is_complete(&self) -> bool {
        self.blocks == self.shape.blocks()
    }

    fn is_in_use(&self) -> bool {
        Arc::strong_count(&self.token) > 1
    }
}

/// The objects of a node.
#[derive(Debug)]
pub struct Objects {
    /// In no order.
    list: Vec<Object>,
    /// Frames of all of them.
    pages: u64,
    /// Counts uses, the clock of the objects.
    uses: u64,
    limit_pages: u64,
}

impl Objects {
    /// No object yet; `limit_pages` is the most pages to hold.
    pub const fn new(limit_pages: u64) -> Self {
        Self {
            list: Vec::new(),
            pages: 0,
            uses: 0,
            limit_pages,
        }
    }

    /// The limit of a node with this much memory: half of it, so that programs can count on the
    /// rest.
    pub const fn default_limit(total_frames: u64) -> u64 {
        total_frames / 2
    }

    /// Makes a place for an object that is going to arrive. Images that are not in use go for it,
    /// the least recently used first.
    pub fn create<M: Machine>(&mut self, machine: &mut M, spec: Spec) -> Result<(), Refused> {
        let shape = spec.shape();
        if !shape.is_sound() {
            return Err(Refused::BadShape);
        }
        self.sweep(machine);
        if self.position(&spec.id).is_some() {
            return Err(Refused::Exists);
        }
        if self.list.len() >= OBJECTS_MAX && self.drop_oldest(machine).is_none() {
            return Err(Refused::TooMany);
        }
        let promised = spec.missing_pages.min(shape.data_pages()) + shape.list_pages();
        let needed = promised + FrameIndex::tables(shape.pages());
        let mut room = self.room(machine);
        while room < needed {
            if self.drop_oldest(machine).is_none() {
                return Err(Refused::NoRoom(no_room(needed, room)));
            }
            room = self.room(machine);
        }
        let words = (shape.lists() + shape.blocks()).div_ceil(64) as usize;
        let mut arrived = Vec::new();
        let index = machine.with(|mem, frames| FrameIndex::new(mem, frames, shape.pages()));
        let heap = arrived.try_reserve_exact(words).is_ok() && self.list.try_reserve(1).is_ok();
        let Some(index) = index.filter(|_| heap) else {
            if let Some(index) = index {
                machine.with(|mem, frames| index.free(mem, frames));
            }
            return Err(Refused::NoRoom(no_room(needed, 0)));
        };
        arrived.resize(words, 0);
        self.uses += 1;
        self.list.push(Object {
            id: spec.id,
            shape,
            kept: spec.kept,
            index,
            arrived,
            blocks: 0,
            pages: 0,
            data_pages: 0,
            promised,
            used_at: self.uses,
            doomed: false,
            token: Arc::new(()),
        });
        Ok(())
    }

    /// Keeps a part that has arrived. The caller has checked it against its hash. One that is here
    /// already stays as it is; pages that were taken of it are filled again.
    pub fn write<M: Machine>(
        &mut self,
        machine: &mut M,
        id: &ObjectId,
        part: Part,
        bytes: &[u8],
    ) -> Result<(), WriteError> {
        let object = self.find_mut(id).ok_or(WriteError::NoSuchPart)?;
        let place = object.shape.place(part);
        let (mark, first, length) = place.ok_or(WriteError::NoSuchPart)?;
        if bytes.len() != length {
            return Err(WriteError::NoSuchPart);
        }
        let (index, pages) = (object.index, length.div_ceil(PAGE_SIZE as usize) as u64);
        let here = |page| index.frame(machine.mem(), page).is_some();
        if object.has(mark) && (first..first + pages).all(here) {
            return Ok(());
        }
        let (added, filled) = machine.with(|mem, frames| {
            let mut added = 0;
            for (page, data) in (first..).zip(bytes.chunks(PAGE_SIZE as usize)) {
                let frame = match index.frame(mem, page) {
                    Some(frame) => frame,
                    None => match add_frame(mem, frames, &index, page) {
                        Some(frame) => {
                            added += 1;
                            frame
                        }
                        None => return (added, false),
                    },
                };
                mem.write(frame, data);
            }
            (added, true)
        });
        object.pages += added;
        object.promised = object.promised.saturating_sub(added);
        if matches!(part, Part::Data(_)) {
            object.data_pages += added;
        }
        if filled {
            object.note(part, mark);
        }
        self.pages += added;
        match filled {
            true => Ok(()),
            false => Err(WriteError::NoRoom(no_room(pages, 0))),
        }
    }

    /// Notes that a data block need not arrive: what it holds is kept elsewhere on this node.
    pub fn assume(&mut self, id: &ObjectId, block: u32) {
        let part = Part::Data(block);
        if let Some(object) = self.find_mut(id)
            && let Some((mark, ..)) = object.shape.place(part)
        {
            object.note(part, mark);
        }
    }

    /// Copies bytes of a part from offset `at` in it; `false` when it is not here, not to the last
    /// page of what is asked for.
    pub fn read(
        &self,
        mem: &impl PhysMem,
        id: &ObjectId,
        part: Part,
        at: usize,
        out: &mut [u8],
    ) -> bool {
        let Some(object) = self.get(id) else {
            return false;
        };
        let Some((mark, first, length)) = object.shape.place(part) else {
            return false;
        };
        let inside = at.checked_add(out.len()).is_some_and(|end| end <= length);
        inside && object.has(mark) && copy_out(mem, &object.index, first, at as u64, out)
    }

    /// Copies bytes of the object; `false` when one of its blocks is missing there, or the object
    /// ends before.
    pub fn read_bytes(
        &self,
        mem: &impl PhysMem,
        id: &ObjectId,
        offset: u64,
        out: &mut [u8],
    ) -> bool {
        let Some(object) = self.get(id) else {
            return false;
        };
        let Some(end) = offset.checked_add(out.len() as u64) else {
            return false;
        };
        if end > object.shape.bytes {
            return false;
        }
        let lists = object.shape.lists();
        let blocks = offset >> object.shape.block_log2..end.div_ceil(1 << object.shape.block_log2);
        let arrived = blocks
            .into_iter()
            .all(|block| object.has((lists + block) as usize));
        arrived && copy_out(mem, &object.index, 0, offset, out)
    }

    /// The frame of a page of data that has arrived and is here.
    pub fn page(&self, mem: &impl PhysMem, id: &ObjectId, page: u64) -> Option<PhysAddr> {
        let object = self.get(id)?;
        if page >= object.shape.data_pages() {
            return None;
        }
        let block = (page * PAGE_SIZE) >> object.shape.block_log2;
        let arrived = object.has((object.shape.lists() + block) as usize);
        arrived.then(|| object.index.frame(mem, page)).flatten()
    }

    /// Takes a page of data out of an image: its frame is not the store's any more, and the
    /// caller's to adopt or free. Pages of files stay.
    pub fn take(&mut self, mem: &mut impl PhysMem, id: &ObjectId, page: u64) -> Option<Frame> {
        self.page(mem, id, page)?;
        let object = self
            .find_mut(id)
            .filter(|object| object.kept == Kept::Image)?;
        let frame = object.index.take(mem, page)?;
        object.pages -= 1;
        object.data_pages -= 1;
        self.pages -= 1;
        Some(frame)
    }

    /// Whether a part has arrived.
    pub fn has(&self, id: &ObjectId, part: Part) -> bool {
        self.get(id).is_some_and(|object| {
            let place = object.shape.place(part);
            place.is_some_and(|(mark, ..)| object.has(mark))
        })
    }

    /// Whether all of its data has arrived.
    pub fn is_complete(&self, id: &ObjectId) -> bool {
        self.get(id).is_some_and(Object::is_complete)
    }

    /// What is known of an object; `None` when it is not here.
    pub fn find(&self, id: &ObjectId) -> Option<View> {
        self.get(id).map(view)
    }

    /// All objects, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (ObjectId, View)> + '_ {
        self.list.iter().map(|object| (object.id, view(object)))
    }

    /// Holds an object; `None` when it is not here, or about to go.
    pub fn hold(&mut self, id: &ObjectId) -> Option<InUse> {
        self.uses += 1;
        let now = self.uses;
        let object = self.find_mut(id).filter(|object| !object.doomed)?;
        object.used_at = now;
        Some(InUse {
            id: *id,
            _token: object.token.clone(),
        })
    }

    /// Where the pages of an object are, to be used while it is held.
    pub fn index(&self, held: &InUse) -> FrameIndex {
        let object = self.get(&held.id);
        object.expect("an object in use is here").index
    }

    /// Says anew what an object is kept for.
    pub fn keep_as(&mut self, id: &ObjectId, kept: Kept) {
        if let Some(object) = self.find_mut(id) {
            object.kept = kept;
            object.doomed = false;
        }
    }

    /// Drops an object, at once or when it is not in use any more.
    pub fn drop_object<M: Machine>(&mut self, machine: &mut M, id: &ObjectId) -> Dropped {
        let Some(index) = self.position(id) else {
            return Dropped::default();
        };
        if self.list[index].is_in_use() {
            self.list[index].doomed = true;
            return Dropped {
                pages: 0,
                in_use: true,
            };
        }
        Dropped {
            pages: self.remove(machine, index),
            in_use: false,
        }
    }

    /// Drops what was to go and is not in use any more; returns the pages. To be called when a job
    /// has ended.
    pub fn sweep<M: Machine>(&mut self, machine: &mut M) -> u64 {
        let goes = |object: &Object| object.doomed && !object.is_in_use();
        let mut pages = 0;
        while let Some(index) = self.list.iter().position(goes) {
            pages += self.remove(machine, index);
        }
        pages
    }

    /// Makes room for a running program or the kernel: drops images that are not in use, least
    /// recently used first, while fewer than `least` frames are available. Returns the pages.
    pub fn keep_room<M: Machine>(&mut self, machine: &mut M, least: u64) -> u64 {
        let mut pages = 0;
        while !self.list.is_empty() && available(machine) < least {
            match self.drop_oldest(machine) {
                Some(dropped) => pages += dropped,
                None => break,
            }
        }
        pages
    }

    /// Frames of all objects, without those of their indexes.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Bytes of memory that files hold.
    pub fn file_bytes(&self) -> u64 {
        let files = self.list.iter().filter(|object| object.kept == Kept::File);
        files.map(|object| object.pages * PAGE_SIZE).sum()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Frames that a new object may take, with what is promised to others left alone.
    fn room<M: Machine>(&self, machine: &mut M) -> u64 {
        let promised: u64 = self.list.iter().map(|object| object.promised).sum();
        let free = available(machine).saturating_sub(ROOM_FRAMES + promised);
        let allowed = self.limit_pages.saturating_sub(self.pages + promised);
        free.min(allowed)
    }

    /// Drops the image that was used least recently and is not in use.
    fn drop_oldest<M: Machine>(&mut self, machine: &mut M) -> Option<u64> {
        let unused = |object: &Object| object.kept == Kept::Image && !object.is_in_use();
        let unused = self
            .list
            .iter()
            .zip(0..)
            .filter(|(object, _)| unused(object));
        let (_, index) = unused.min_by_key(|(object, _)| object.used_at)?;
        Some(self.remove(machine, index))
    }

    fn remove<M: Machine>(&mut self, machine: &mut M, index: usize) -> u64 {
        let object = self.list.swap_remove(index);
        assert!(!object.is_in_use(), "an object in use was dropped");
        let freed = machine.with(|mem, frames| object.index.free(mem, frames));
        assert_eq!(
            freed, object.pages,
            "frames of an object that were not counted"
        );
        self.pages -= freed;
        freed
    }

    fn position(&self, id: &ObjectId) -> Option<usize> {
        self.list.iter().position(|object| object.id == *id)
    }

    fn get(&self, id: &ObjectId) -> Option<&Object> {
        self.list.iter().find(|object| object.id == *id)
    }

    fn find_mut(&mut self, id: &ObjectId) -> Option<&mut Object> {
        self.list.iter_mut().find(|object| object.id == *id)
    }
}

fn view(object: &Object) -> View {
    let complete = object.is_complete();
    View {
        bytes: object.shape.bytes,
        block_log2: object.shape.block_log2,
        kept: object.kept,
        blocks: object.blocks,
        complete,
        whole: complete && object.data_pages == object.shape.data_pages(),
        in_use: object.is_in_use(),
    }
}

fn available<M: Machine>(machine: &mut M) -> u64 {
    machine.with(|_, frames| frames.available())
}

/// A new frame for a page. Leaves what running programs and the kernel need at once.
fn add_frame(
    mem: &mut impl PhysMem,
    frames: &mut FrameAllocator,
    index: &FrameIndex,
    page: u64,
) -> Option<PhysAddr> {
    if frames.available() < ROOM_FRAMES / 2 {
        return None;
    }
    let frame = frames.alloc_object(mem)?;
    match index.put(mem, frames, page, frame) {
        Ok(address) => Some(address),
        Err(frame) => {
            frames.free(frame);
            None
        }
    }
}

/// Copies bytes from `offset` behind the first page on; `false` when a page has no frame.
fn copy_out(
    mem: &impl PhysMem,
    index: &FrameIndex,
    first: u64,
    offset: u64,
    out: &mut [u8],
) -> bool {
    let mut done = 0;
    while done < out.len() {
        let at = offset + done as u64;
        let Some(frame) = index.frame(mem, first + at / PAGE_SIZE) else {
            return false;
        };
        let inside = at % PAGE_SIZE;
        let length = ((PAGE_SIZE - inside) as usize).min(out.len() - done);
        mem.read(frame.offset(inside), &mut out[done..done + length]);
        done += length;
    }
    true
}

fn no_room(needed_pages: u64, available_pages: u64) -> NoRoom {
    NoRoom {
        needed_bytes: needed_pages * PAGE_SIZE,
        available_bytes: available_pages * PAGE_SIZE,
    }
}

#[cfg(test)]
mod tests;
