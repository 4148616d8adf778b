//! A node with its programs, and the steps of their lives carried out.

use super::checks::original;
use super::machine::{File, KERNEL_PAGE, Sim, serve, touch};
use super::steps::{Spot, Step};
use crate::addr::{PAGE_SIZE, PhysAddr};
use crate::fault::{Access, Cause};
use crate::frames::{Frame, Owner};
use crate::loader::layout;
use crate::objects::{InUse, Kept, ObjectId, Objects, Part, Spec};
use crate::pagehash::PAGE_BYTES;
use crate::phys::PhysMem;
use crate::program::{Fetch, Memory, UserSlice};
use crate::retention::{Policy, ProgramId, ROOM_FRAMES, Retained, WarmTable};
use crate::space::{FileMap, Kind, MapRequest};
use hearth_abi::linux::map;
use std::collections::BTreeMap;
use std::vec::Vec;

/// Where programs map memory of their own.
const MAPPED: u64 = 0x7_0000;
/// The file that jobs are given: two pages and a part of a third.
const GIVEN: ObjectId = ObjectId([0x77; 32]);
const GIVEN_BYTES: u64 = 2 * PAGE_SIZE + 700;

/// What is in the file that jobs are given.
fn given() -> Vec<u8> {
    (0..GIVEN_BYTES).map(|at| (at / 5) as u8 | 1).collect()
}

/// A program that runs.
pub struct Running {
    pub file: usize,
    pub policy: Policy,
    pub memory: Memory,
    pub under_way: Vec<Fetch>,
    /// Pages that hold something else than the file or zeros, by number.
    pub written: BTreeMap<u64, Vec<u8>>,
}

pub struct World {
    pub sim: Sim,
    pub files: [File; 3],
    pub warm: WarmTable,
    pub running: Option<Running>,
    /// What control has been told.
    pub told: BTreeMap<ProgramId, u64>,
    /// Frames that the kernel took.
    pub squeezed: Vec<Frame>,
    pub owners: u16,
    /// The file that jobs are given stays while one may have it mapped.
    given: Option<InUse>,
}

impl World {
    /// A machine of so many frames, and files that its programs may be.
    pub fn new(frames: u64, files: [File; 3]) -> Self {
        let mut sim = Sim::new(frames);
        let mut objects = std::mem::replace(&mut sim.objects, Objects::new(0));
        let spec = Spec::new(GIVEN, GIVEN_BYTES, 12, Kept::File);
        objects.create(&mut sim, spec).unwrap();
        for (block, data) in (0..).zip(given().chunks(4096)) {
            objects
                .write(&mut sim, &GIVEN, Part::Data(block), data)
                .unwrap();
        }
        let given = objects.hold(&GIVEN);
        sim.objects = objects;
        Self {
            sim,
            given,
            files,
            warm: WarmTable::new(frames / 2),
            running: None,
            told: BTreeMap::new(),
            squeezed: Vec::new(),
            owners: 0,
        }
    }

    pub fn launch(&mut self, file: usize, policy: Policy, limit: u64) {
        let sim = &mut self.sim;
        self.warm.keep_room(sim, ROOM_FRAMES);
        let memory = match self.warm.take(&self.files[file].id) {
            Some(retained) => Memory::relaunch(sim, retained, limit, policy),
            None => {
                let owner = loop {
                    self.owners = self.owners % Owner::MAX + 1;
                    let owner = Owner::program(self.owners);
                    if !self.warm.owns(owner) {
                        break owner;
                    }
                };
                let program = self.files[file].program();
                let kernel = sim.kernel;
                match Memory::new(sim, program, kernel, owner, limit, policy) {
                    Ok(memory) => memory,
                    // Not even a frame for its table.
                    Err(_) => return,
                }
            }
        };
        let mut memory = memory;
        let given = self.given.as_ref().unwrap();
        memory.set_files(std::vec![sim.objects.index(given)]);
        sim.forget_all();
        self.running = Some(Running {
            file,
            policy,
            memory,
            under_way: Vec::new(),
            written: BTreeMap::new(),
        });
    }

    pub fn end(&mut self) {
        let Some(Running {
            file,
            policy,
            memory,
            ..
        }) = self.running.take()
        else {
            return;
        };
        self.sim.forget_all();
        let id = self.files[file].id;
        let (retained, counts) = memory.retire(&mut self.sim, &policy);
        assert_eq!(counts.kept, retained.as_ref().map_or(0, Retained::pages));
        assert_eq!(
            counts.kept,
            counts.kept_code + counts.kept_readonly + counts.kept_data
        );
        assert!(counts.kept <= policy.limit_pages);
        // Every page of the file that was in memory is kept or is not.
        let read = counts.readahead;
        let came = counts.reused + read.asked + read.ahead + read.cast;
        assert_eq!(came, counts.kept + counts.discarded);
        self.warm.restore(&mut self.sim, &id, retained);
        self.check_hashes(file);
    }

    /// Every page that is kept of a program has the hash it should have.
    pub fn check_hashes(&self, file: usize) {
        let file = &self.files[file];
        let Some(entry) = self.warm.get(&file.id) else {
            return;
        };
        let mut contents = [0; PAGE_BYTES];
        entry.for_each_page(&self.sim.mem, |page| {
            let length = entry.contents(&self.sim.mem, &page, &mut contents).unwrap();
            assert!(
                file.hashes.check(page.index(), &contents[..length]),
                "{page:?}"
            );
        });
    }

    /// One access of the program.
    pub fn access(&mut self, at: u64, access: Access) -> Option<PhysAddr> {
        self.with_running(at, access, |sim, running, file| {
            let (memory, under_way) = (&mut running.memory, &mut running.under_way);
            touch(sim, memory, file, under_way, (at, access), &mut |_| ())
        })
    }

    /// Lets `act` make an access possible; the program ends when memory is used up.
    pub fn with_running<R>(
        &mut self,
        at: u64,
        access: Access,
        act: impl FnOnce(&mut Sim, &mut Running, &File) -> Result<R, Cause>,
    ) -> Option<R> {
        let running = self.running.as_mut()?;
        self.sim.keep_room();
        self.warm.keep_room(&mut self.sim, ROOM_FRAMES);
        let allowed = running.memory.space().find(at).is_some_and(|region| {
            let beyond = matches!(region.kind, Kind::Object { file_end, .. } if at >= file_end);
            region.kind != Kind::Guard && !beyond && access.allowed_by(region.protection)
        });
        let file = &self.files[running.file];
        match act(&mut self.sim, running, file) {
            Ok(result) => {
                assert!(allowed, "{access:?} of {at:#x} was possible");
                Some(result)
            }
            Err(Cause::OutOfMemory) => {
                self.end();
                None
            }
            Err(cause) => {
                assert!(!allowed, "{access:?} of {at:#x}: {cause:?}");
                None
            }
        }
    }

    /// The page of a spot.
    pub fn page(&self, spot: Spot) -> u64 {
        match spot {
            Spot::Page(page) => page,
            Spot::Kernel(index) => KERNEL_PAGE.as_u64() / PAGE_SIZE + index,
            Spot::Mapped(index) => MAPPED + index,
            Spot::Stack(index) => layout::STACK_TOP / PAGE_SIZE - 1 - index,
            Spot::Image {
                segment,
                index,
                from_end,
            } => {
                let file = self.running.as_ref().map_or(0, |running| running.file);
                let segment = &self.files[file].image.segments[segment];
                match from_end {
                    true => segment.end / PAGE_SIZE - index,
                    false => segment.start / PAGE_SIZE + index - 1,
                }
            }
        }
    }

    pub fn step(&mut self, step: &Step) {
        let at = |world: &Self, spot, offset| world.page(spot) * PAGE_SIZE + offset;
        match *step {
            Step::Launch {
                file,
                policy,
                limit,
            } => {
                self.end();
                self.launch(file, policy, limit);
            }
            Step::Touch {
                spot,
                offset,
                access,
            } => {
                let at = at(self, spot, offset);
                if let Some(place) = self.access(at, access) {
                    let mut byte = [0];
                    self.sim.mem.read(place, &mut byte);
                    let running = self.running.as_ref().unwrap();
                    let expected = running.expected(&self.files[running.file], at >> 12);
                    assert_eq!(byte[0], expected[at as usize % PAGE_BYTES]);
                }
            }
            Step::Write { spot, offset, byte } => {
                let at = at(self, spot, offset);
                if let Some(place) = self.access(at, Access::Write) {
                    self.sim.mem.write(place, &[byte]);
                    let running = self.running.as_mut().unwrap();
                    running.write(&self.files[running.file], at, byte);
                }
            }
            Step::KernelRead {
                spot,
                offset,
                length,
            } => self.copy(at(self, spot, offset), length, None),
            Step::KernelWrite {
                spot,
                offset,
                length,
                byte,
            } => self.copy(at(self, spot, offset), length, Some(byte)),
            Step::Drop { file } => {
                let program = file.map(|file| self.files[file].id);
                self.warm.drop_program(&mut self.sim, program.as_ref());
            }
            Step::RetainOnly { file, variant } => {
                let id = self.files[file].id;
                let pages = self.warm.retain_only(&mut self.sim, &id, variant);
                assert_eq!(pages, self.warm.pages());
            }
            Step::Limit { pages } => self.warm.set_limit(&mut self.sim, pages),
            Step::Damage { file, pick } => self.damage(file, pick),
            Step::Squeeze { available } => self.squeeze(available),
            Step::Scrub { limit } => {
                self.sim.frames.scrub(&mut self.sim.mem, limit);
            }
            Step::Cast {
                file,
                block_log2,
                blocks,
                kept,
            } => self.cast(file, block_log2, blocks, kept),
            Step::End => self.end(),
            _ => self.call(step),
        }
    }

    /// A step that is a call of the running program, or something that arrives for it.
    pub fn call(&mut self, step: &Step) {
        let page = match *step {
            Step::Hold { spot, .. }
            | Step::Map { spot, .. }
            | Step::MapFile { spot, .. }
            | Step::Unmap { spot, .. }
            | Step::Protect { spot, .. }
            | Step::Discard { spot, .. } => self.page(spot),
            _ => 0,
        };
        let Some(running) = self.running.as_mut() else {
            return;
        };
        let (sim, memory) = (&mut self.sim, &mut running.memory);
        let file = &self.files[running.file];
        let bytes = |pages: u64| pages * PAGE_SIZE;
        match *step {
            Step::Arrive { pick, lost } => {
                if running.under_way.is_empty() {
                    return;
                }
                let fetch = running.under_way.remove(pick % running.under_way.len());
                match lost {
                    true => memory.abandon(&fetch),
                    false => memory.install(sim, &fetch, file.read(&fetch)).unwrap(),
                }
            }
            Step::Hold { pages, .. } => {
                let mut at = bytes(page);
                let end = at + bytes(pages);
                // As the kernel does it: one after the other.
                for fetch in running.under_way.drain(..) {
                    memory.install(sim, &fetch, file.read(&fetch)).unwrap();
                }
                while let Some(fetch) = memory.plan_hold(sim, at, end) {
                    memory.install(sim, &fetch, file.read(&fetch)).unwrap();
                    at = fetch.end();
                }
            }
            Step::Map { pages, prot, .. } => {
                let request = MapRequest {
                    address: bytes(page),
                    length: bytes(pages),
                    protection: prot,
                    flags: map::PRIVATE | map::ANONYMOUS | map::FIXED,
                    fd: -1,
                };
                if memory.mmap(sim, request).is_ok() {
                    running.forget(page, pages);
                }
            }
            Step::MapFile {
                pages, prot, from, ..
            } => {
                let request = MapRequest {
                    address: bytes(page),
                    length: bytes(pages),
                    protection: prot,
                    flags: map::PRIVATE | map::FIXED,
                    fd: 3,
                };
                let shown = FileMap {
                    file: 0,
                    bytes: GIVEN_BYTES,
                    offset: bytes(from),
                };
                if memory.mmap_file(sim, request, shown).is_ok() {
                    running.forget(page, pages);
                }
            }
            Step::Unmap { pages, .. } => {
                if memory.munmap(sim, bytes(page), bytes(pages)).is_ok() {
                    running.forget(page, pages);
                }
            }
            Step::Protect { pages, prot, .. } => {
                let _ = memory.mprotect(sim, bytes(page), bytes(pages), prot);
            }
            Step::Discard { pages, .. } => {
                if memory.discard(sim, bytes(page), bytes(pages)).is_ok() {
                    running.forget(page, pages);
                }
            }
            Step::Break { bytes } => {
                let start = memory.image().end();
                let before = memory.brk(sim, 0).div_ceil(PAGE_SIZE);
                let after = memory.brk(sim, start + bytes).div_ceil(PAGE_SIZE);
                running.forget(after, before.saturating_sub(after));
            }
            _ => unreachable!("not a call: {step:?}"),
        }
    }

    /// A system call that reads or writes the program's memory.
    pub fn copy(&mut self, at: u64, length: usize, byte: Option<u8>) {
        let Ok(slice) = UserSlice::new(at, length as u64) else {
            return;
        };
        let mut out = std::vec![byte.unwrap_or(0); length];
        let mut done = 0;
        let complete = loop {
            let Some(running) = self.running.as_mut() else {
                return;
            };
            let result = match byte {
                Some(_) => running.memory.copy_to(&mut self.sim, slice, &out, done),
                None => running
                    .memory
                    .copy_from(&mut self.sim, slice, &mut out, done),
            };
            let Err(missing) = result else { break true };
            done = missing.done;
            let access = byte.map_or(Access::Read, |_| Access::Write);
            // The CPU has seen no fault: what it remembers it goes on to use.
            let served = self.with_running(missing.address, access, |sim, running, file| {
                let (memory, under_way) = (&mut running.memory, &mut running.under_way);
                let fault = (missing.address, access);
                serve(sim, memory, file, under_way, fault, &mut |_| ())
            });
            if served.is_none() {
                break false;
            }
        };
        let Some(running) = self.running.as_mut() else {
            return;
        };
        let file = &self.files[running.file];
        let copied = if complete { length } else { done };
        for (at, index) in (at..).zip(0..copied) {
            match byte {
                Some(byte) => running.write(file, at, byte),
                None => {
                    let expected = running.expected(file, at >> 12)[at as usize % PAGE_BYTES];
                    assert_eq!(out[index], expected, "{at:#x}");
                }
            }
        }
    }

    /// A broadcast brings blocks of a file, into the object that is there or a new one.
    pub fn cast(&mut self, file: usize, block_log2: u8, blocks: u64, kept: Kept) {
        let file = &self.files[file];
        let id = ObjectId(file.id.0);
        let sim = &mut self.sim;
        let mut objects = std::mem::replace(&mut sim.objects, Objects::new(0));
        if kept == Kept::File && objects.find(&id).is_some() {
            // Dropped, as a file is by its user.
            objects.drop_object(sim, &id);
        } else {
            let bytes = file.bytes.len() as u64;
            let created = objects.create(sim, Spec::new(id, bytes, block_log2, kept));
            let size = objects.find(&id).map(|view| 1 << view.block_log2);
            assert!(created.is_err() || size == Some(1 << block_log2));
            for (block, data) in (0..).zip(file.bytes.chunks(size.unwrap_or(bytes as usize))) {
                if blocks >> (block % 64) & 1 != 0 {
                    let _ = objects.write(sim, &id, Part::Data(block), data);
                }
            }
        }
        sim.objects = objects;
    }

    /// Nothing of what broadcasts brought is kept.
    pub fn drop_objects(&mut self) {
        let mut objects = std::mem::replace(&mut self.sim.objects, Objects::new(0));
        self.given = None;
        let all: Vec<_> = objects.iter().map(|(id, _)| id).collect();
        for id in all {
            objects.drop_object(&mut self.sim, &id);
        }
        assert_eq!(objects.pages(), 0);
        self.sim.objects = objects;
    }

    /// A bit of a warm page flips: its hash tells, and the page goes.
    pub fn damage(&mut self, file: usize, pick: u64) {
        let file = &self.files[file];
        let sim = &mut self.sim;
        let Some(entry) = self.warm.get(&file.id) else {
            return;
        };
        let page = entry.page(&sim.mem, pick % entry.pages()).unwrap();
        let mut contents = [0; PAGE_BYTES];
        let length = entry.contents(&sim.mem, &page, &mut contents).unwrap();
        assert!(file.hashes.check(page.index(), &contents[..length]));
        let at = pick % page.bytes;
        let damaged = [contents[at as usize] ^ 4];
        sim.mem.write(page.frame.offset(at), &damaged);
        let length = entry.contents(&sim.mem, &page, &mut contents).unwrap();
        assert!(!file.hashes.check(page.index(), &contents[..length]));
        let pages = self.warm.discard_page(sim, &file.id, page.page);
        assert!(pages == 1 || pages == 512);
        assert_eq!(self.warm.discard_page(sim, &file.id, page.page), 0);
    }

    /// The kernel takes frames, or gives them back.
    pub fn squeeze(&mut self, available: u64) {
        let sim = &mut self.sim;
        for frame in self.squeezed.drain(..) {
            sim.frames.free(frame);
        }
        while sim.frames.usage().available() > available {
            let frame = sim.frames.alloc(&mut sim.mem, Owner::KERNEL);
            self.squeezed.push(frame.unwrap());
        }
    }
}

impl Running {
    /// What a page should hold.
    pub fn expected(&self, file: &File, page: u64) -> Vec<u8> {
        if let Some(written) = self.written.get(&page) {
            return written.clone();
        }
        match self
            .memory
            .space()
            .find(page << 12)
            .map(|region| region.kind)
        {
            Some(Kind::File { .. }) => original(file, page),
            Some(Kind::Object { shift, .. }) => {
                let from = (page << 12).wrapping_add(shift) as usize;
                let rest = given().split_off(from.min(GIVEN_BYTES as usize));
                let mut contents: Vec<u8> = rest.into_iter().take(PAGE_BYTES).collect();
                contents.resize(PAGE_BYTES, 0);
                contents
            }
            _ => std::vec![0; PAGE_BYTES],
        }
    }

    pub fn write(&mut self, file: &File, at: u64, byte: u8) {
        let contents = self.expected(file, at >> 12);
        let contents = self.written.entry(at >> 12).or_insert(contents);
        contents[at as usize % PAGE_BYTES] = byte;
    }

    pub fn forget(&mut self, page: u64, pages: u64) {
        self.written
            .retain(|at, _| !(page..page + pages).contains(at));
    }
}
