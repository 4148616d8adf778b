//! Where the blocks of a broadcast are on this node: in the store of objects, or among the pages of
//! a program that runs or is warm.
//!
//! Key types: [`Places`], everything that may hold a page; [`CastStore`], the [`Store`] that the
//! engine reads and writes. Neighbours: `kernel_core::objects`, `kernel_core::retention`.
//!
//! Invariant: a block is given to others only out of frames that nobody can have written since they
//! were filled; each byte that arrives is hashed once, by the engine's order.

use alloc::vec::Vec;

use kernel_core::addr::{PAGE_SIZE, PhysAddr};
use kernel_core::objects::{self, ObjectId, Objects, Spec};
use kernel_core::pagehash;
use kernel_core::phys::PhysMem;
use kernel_core::retention::{ProgramId, ROOM_FRAMES, WarmTable};
use netstack::broadcast::hashes::Hasher;
use netstack::broadcast::{self, NoRoom, Store};
use netstack::ids::CastId;

use super::{Entry, Kind};
use crate::mm::Hardware;
use crate::mm::{self, DirectMap};
use crate::process::services::Running;

/// Everything on the node that may hold a page of an object.
pub struct Places<'a> {
    /// The store.
    pub objects: &'a mut Objects,
    /// Programs between two launches.
    pub warm: &'a mut WarmTable,
    /// The program that runs.
    pub running: Option<&'a Running>,
}

impl Places<'_> {
    /// The frame that holds a page of an object as it is in the file.
    pub fn page(&self, id: &ObjectId, page: u64) -> Option<PhysAddr> {
        let stored = self.objects.page(&DirectMap, id, page);
        stored.or_else(|| self.resident(id, page))
    }

    /// Whether pages of this program are held, running or warm.
    pub fn is_warm(&self, id: &ObjectId) -> bool {
        let program = ProgramId(id.0);
        let running = |running: &&Running| running.program == program && running.warm;
        self.running.filter(running).is_some() || self.warm.get(&program).is_some()
    }

    /// Makes a place for an object, at the cost of programs that are only warm.
    pub fn create(&mut self, spec: Spec) -> Result<(), objects::Refused> {
        let machine = &mut Hardware::new();
        let most = Objects::default_limit(mm::frames().usage().total) * PAGE_SIZE;
        let mut before = None;
        loop {
            let refused = match self.objects.create(machine, spec) {
                Err(objects::Refused::NoRoom(no_room)) => no_room,
                other => return other,
            };
            // Where memory is not what is short, dropping programs is in vain.
            let more = before.is_none_or(|before| refused.available_bytes > before)
                && refused.needed_bytes <= most;
            before = Some(refused.available_bytes);
            if !more || self.warm.drop_oldest(machine).is_none() {
                return Err(objects::Refused::NoRoom(refused));
            }
        }
    }

    fn resident(&self, id: &ObjectId, page: u64) -> Option<PhysAddr> {
        let program = ProgramId(id.0);
        match self.running {
            Some(running) if running.program == program => running.resident.page(&DirectMap, page),
            _ => self.warm.get(&program)?.page_of_file(&DirectMap, page),
        }
    }

    /// Copies bytes of an object from `at` on, page by page; `false` when one is not here.
    fn read_pages(&self, id: &ObjectId, at: u64, out: &mut [u8]) -> bool {
        let mut done = 0;
        while done < out.len() {
            let from = at + done as u64;
            let Some(frame) = self.page(id, from / PAGE_SIZE) else {
                return false;
            };
            let inside = from % PAGE_SIZE;
            let length = ((PAGE_SIZE - inside) as usize).min(out.len() - done);
            DirectMap.read(frame.offset(inside), &mut out[done..done + length]);
            done += length;
        }
        true
    }
}

/// What the engine reads and writes.
pub struct CastStore<'a, 'b> {
    /// The casts that this node has a part in.
    pub entries: &'a Vec<Entry>,
    /// Where their blocks are.
    pub places: &'a mut Places<'b>,
}

impl CastStore<'_, '_> {
    fn entry(&self, cast: CastId) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.cast == cast)
    }
}

impl Store for CastStore<'_, '_> {
    fn read(&mut self, cast: CastId, part: broadcast::Part, at: usize, out: &mut [u8]) -> bool {
        let Some(entry) = self.entry(cast) else {
            return false;
        };
        let (id, block_log2) = (entry.id, entry.block_log2);
        match part {
            broadcast::Part::List(n) => {
                let part = objects::Part::List(n);
                self.places.objects.read(&DirectMap, &id, part, at, out)
            }
            broadcast::Part::Data(n) => {
                let at = (u64::from(n) << block_log2) + at as u64;
                self.places.read_pages(&id, at, out)
            }
        }
    }

    fn write(&mut self, cast: CastId, part: broadcast::Part, bytes: &[u8]) -> Result<(), NoRoom> {
        let entry = self.entry(cast).ok_or(NoRoom)?;
        let (id, kind) = (entry.id, entry.kind);
        let machine = &mut Hardware::new();
        // A block must not fail for want of memory that only warm programs have. One of a file that
        // ranks read may: they read it from its service then.
        if !matches!(kind, Kind::Read(_)) {
            self.places.warm.keep_room(machine, ROOM_FRAMES);
        }
        let written = self
            .places
            .objects
            .write(machine, &id, part_of(part), bytes);
        written.map_err(|_| NoRoom)
    }

    fn members_room(&mut self) -> u32 {
        super::members_room()
    }
}

impl Hasher for CastStore<'_, '_> {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> [u8; 32] {
        pagehash::subtree(first_byte, bytes, root)
    }

    fn merge(&mut self, left: &[u8; 32], right: &[u8; 32], root: bool) -> [u8; 32] {
        pagehash::parent(left, right, root)
    }
}

/// A part as the store of objects names it.
pub const fn part_of(part: broadcast::Part) -> objects::Part {
    match part {
        broadcast::Part::List(n) => objects::Part::List(n),
        broadcast::Part::Data(n) => objects::Part::Data(n),
    }
}
