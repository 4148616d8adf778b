//! What must hold between two steps: everything in memory is what it should be, every frame has one
//! program, the sums add up, and control knows what is held.

use super::machine::{File, Sim};
use super::world::{Running, World};
use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::fault;
use crate::frames::{Owner, State};
use crate::objects::ObjectId;
use crate::pagehash::PAGE_BYTES;
use crate::paging::entry::{Class, Protection};
use crate::paging::{Leaf, PageSize, PageTable};
use crate::phys::PhysMem;
use crate::retention::{Change, ProgramId, Resident, frames_of};
use std::collections::BTreeMap;
use std::vec::Vec;

impl World {
    /// Everything that must hold between two steps.
    pub fn check(&mut self) {
        let frames = &self.sim.frames;
        frames.check_tags().unwrap();
        if self.running.is_none() {
            frames.check_idle(self.warm.pages()).unwrap();
        }
        self.sim.check_kernel();
        let mut owned: BTreeMap<PhysAddr, Owner> = BTreeMap::new();
        let mut own = |frame, owner| {
            assert_eq!(
                owned.insert(frame, owner),
                None,
                "{frame:?} is reachable twice"
            );
            assert_eq!(frames.state(frame).1, owner);
        };
        let mut retained = 0;
        for file in &self.files {
            let Some(entry) = self.warm.get(&file.id) else {
                continue;
            };
            let leaves = leaves(&self.sim, entry.table());
            for leaf in &leaves {
                assert_eq!(leaf.size, PageSize::Small);
                assert!(!leaf.dirty && !leaf.accessed && !leaf.attributes.ahead);
                let segment = file.image.segment_at(leaf.page.as_u64()).unwrap();
                assert_eq!(leaf.attributes.class, segment.class);
                let shown = fault::shown(segment.class, segment.protection);
                assert_eq!(leaf.attributes.protection, shown);
                assert_ne!(shown, Protection::ReadWrite);
                for (frame, page) in frames_of(leaf).zip(leaf.page.as_u64() >> 12..) {
                    own(frame, entry.owner());
                    assert_eq!(frames.state(frame).0, State::Retained);
                    assert!(
                        read(&self.sim, frame) == original(file, page),
                        "page {page:#x}"
                    );
                }
            }
            assert_eq!(leaves.iter().map(pages_of).sum::<u64>(), entry.pages());
            retained += entry.pages();
            assert_eq!(entry.tables(), entry.table().tables(&self.sim.mem));
        }
        assert_eq!(frames.usage().retained, retained);
        let mut user = 0;
        if let Some(running) = &self.running {
            let file = &self.files[running.file];
            let owner = running.memory.owner();
            self.sim.check_remembered(running.memory.table());
            let (mut added, mut warm, mut large) = (0, 0, 0);
            for leaf in leaves(&self.sim, running.memory.table()) {
                if leaf.attributes.class == Class::Object {
                    assert_eq!(frames.state(leaf.frame).0, State::Object);
                    let page = leaf.page.as_u64() >> 12;
                    running.check(&self.sim, file, &leaf, (page, leaf.frame));
                    continue;
                }
                for (frame, page) in frames_of(&leaf).zip(leaf.page.as_u64() >> 12..) {
                    own(frame, owner);
                    match frames.state(frame).0 {
                        State::Retained => warm += 1,
                        _ => added += 1,
                    }
                    running.check(&self.sim, file, &leaf, (page, frame));
                }
                large += u64::from(leaf.size == PageSize::Large);
            }
            user += added + warm;
            assert_eq!(running.memory.pages_large(), large);
            let tables = running.memory.table().tables(&self.sim.mem);
            assert_eq!(running.memory.tables(), tables);
            assert_eq!(running.memory.charged(), (added, warm));
            for &(page, frame) in running.memory.aside() {
                own(frame, owner);
                user += 1;
                let page = page.as_u64() >> 12;
                assert!(
                    read(&self.sim, frame) == original(file, page),
                    "page {page:#x}"
                );
            }
        }
        assert_eq!(frames.usage().user, user, "frames of no program");
        self.check_pages_for_others();
        self.check_told();
    }

    /// What can be given to others is what the file has, wherever it is.
    fn check_pages_for_others(&self) {
        let objects = &self.sim.objects;
        assert_eq!(self.sim.frames.usage().object, objects.pages());
        for (index, file) in self.files.iter().enumerate() {
            let running = self
                .running
                .as_ref()
                .filter(|running| running.file == index);
            let resident = running.map(|running| {
                let memory = &running.memory;
                Resident::new(memory.image(), memory.table())
            });
            for page in 0..file.pages() {
                let id = ObjectId(file.id.0);
                let stored = objects.page(&self.sim.mem, &id, page);
                let warm = self.warm.get(&file.id);
                let warm = warm.and_then(|warm| warm.page_of_file(&self.sim.mem, page));
                let runs = resident.as_ref().and_then(|r| r.page(&self.sim.mem, page));
                for frame in [stored, warm, runs].into_iter().flatten() {
                    assert!(
                        read(&self.sim, frame) == file.page(page),
                        "page {page} of the file"
                    );
                }
            }
        }
    }

    /// Control knows what is held.
    pub fn check_told(&mut self) {
        while let Some(change) = self.warm.next_change() {
            match change {
                Change::Holds(holding) => self.told.insert(holding.program, holding.pages),
                Change::Dropped(program) => self.told.remove(&program),
            };
        }
        let mut held: BTreeMap<ProgramId, u64> = self
            .warm
            .holdings()
            .map(|holding| (holding.program, holding.pages))
            .collect();
        if let Some(running) = &self.running
            && running.memory.pages_reused() > 0
        {
            held.insert(*running.memory.program_id(), running.memory.pages_reused());
        }
        assert_eq!(self.told, held);
    }

    /// What is free holds nothing of anybody.
    pub fn check_clean(&mut self) {
        self.sim.frames.scrub(&mut self.sim.mem, u64::MAX);
        let free: Vec<_> = self.sim.frames_in(State::Free).collect();
        assert!(free.iter().all(|&frame| self.sim.mem.is_zero(frame)));
        self.sim.frames.check_tags().unwrap();
    }
}

impl Running {
    /// What one page of an entry of the table must be.
    pub fn check(&self, sim: &Sim, file: &File, leaf: &Leaf, (page, frame): (u64, PhysAddr)) {
        assert!(
            read(sim, frame) == self.expected(file, page),
            "page {page:#x}"
        );
        if leaf.attributes.protection == Protection::ReadWrite {
            assert_eq!(sim.frames.state(frame).0, State::User, "page {page:#x}");
            assert_eq!(leaf.attributes.class, Class::Private);
        }
    }
}

/// What a page of the image holds at first.
pub fn original(file: &File, page: u64) -> Vec<u8> {
    let mut contents = std::vec![0; PAGE_BYTES];
    let at = page << 12;
    let segment = file.image.segment_at(at);
    if let Some(segment) = segment.filter(|segment| at < segment.file_end) {
        let bytes = (segment.file_end - at).min(PAGE_SIZE) as usize;
        let offset = (segment.offset + (at - segment.start)) as usize;
        contents[..bytes].copy_from_slice(&file.bytes[offset..][..bytes]);
    }
    contents
}

fn read(sim: &Sim, frame: PhysAddr) -> Vec<u8> {
    let mut contents = std::vec![0; PAGE_BYTES];
    sim.mem.read(frame, &mut contents);
    contents
}

fn pages_of(leaf: &Leaf) -> u64 {
    leaf.size.bytes() / PAGE_SIZE
}

fn leaves(sim: &Sim, table: PageTable) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let last = VirtAddr::new(USER_END - 1);
    table.for_each(&sim.mem, VirtAddr::new(0), last, |leaf| leaves.push(leaf));
    leaves
}
