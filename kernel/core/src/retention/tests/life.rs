//! Whole lives of programs, in any order: cold and warm launches, what programs do to their memory,
//! ends of every kind, eviction and drops. After each step everything that is in memory is compared
//! with what should be there, and every frame has one program.

use super::machine::{File, Sim, file, serve, touch};
use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::fault::{self, Access, Cause};
use crate::frames::{Owner, State};
use crate::loader::layout;
use crate::pagehash::PAGE_BYTES;
use crate::paging::entry::{Class, Protection};
use crate::paging::{Leaf, PageTable};
use crate::phys::PhysMem;
use crate::program::{Fetch, Memory, UserSlice};
use crate::retention::{Change, Policy, ProgramId, Retained, Variant, WarmTable};
use crate::space::{Kind, MapRequest};
use hearth_abi::linux::{map, prot};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

const FRAMES: u64 = 1024;
/// Pages around the image that programs touch, and where they map memory of their own.
const IMAGE: std::ops::Range<u64> = 0x3ff..0x43f;
const MAPPED: u64 = 0x7_0000;

/// A place that is likely to be touched more than once.
#[derive(Clone, Copy, Debug)]
enum Spot {
    /// A page of a segment of the running program, counted from its start or its end; the one
    /// before the first, or the one behind the last, among them.
    Image {
        segment: usize,
        index: u64,
        from_end: bool,
    },
    /// A page that programs map for themselves.
    Mapped(u64),
    /// A page of the stack, counted from its end.
    Stack(u64),
}

#[derive(Clone, Debug)]
enum Step {
    Launch {
        file: usize,
        policy: Policy,
        limit: u64,
    },
    Touch {
        spot: Spot,
        offset: u64,
        access: Access,
    },
    Write {
        spot: Spot,
        offset: u64,
        byte: u8,
    },
    KernelRead {
        spot: Spot,
        offset: u64,
        length: usize,
    },
    KernelWrite {
        spot: Spot,
        offset: u64,
        length: usize,
        byte: u8,
    },
    Arrive {
        pick: usize,
        lost: bool,
    },
    Hold {
        spot: Spot,
        pages: u64,
    },
    Map {
        spot: Spot,
        pages: u64,
        prot: u64,
    },
    Unmap {
        spot: Spot,
        pages: u64,
    },
    Protect {
        spot: Spot,
        pages: u64,
        prot: u64,
    },
    Discard {
        spot: Spot,
        pages: u64,
    },
    Break {
        bytes: u64,
    },
    End,
    Damage {
        file: usize,
        pick: u64,
    },
    Drop {
        file: Option<usize>,
    },
    RetainOnly {
        file: usize,
        variant: Variant,
    },
    Limit {
        pages: u64,
    },
    Squeeze {
        available: u64,
    },
    Scrub {
        limit: u64,
    },
}

fn policy() -> impl Strategy<Value = Policy> {
    let weighted = prop::bool::weighted;
    let limit = prop_oneof![4 => Just(u64::MAX), 1 => 0u64..12];
    (weighted(0.9), weighted(0.8), weighted(0.8), limit).prop_map(
        |(keep, read_only, pristine, limit_pages)| Policy {
            keep,
            variant: match read_only {
                true => Variant::ReadOnlyToo,
                false => Variant::ExecutableOnly,
            },
            pristine,
            large_text: false,
            limit_pages,
        },
    )
}

fn spot() -> impl Strategy<Value = Spot> {
    let image = (0usize..4, 0u64..4, any::<bool>());
    prop_oneof![
        12 => image.prop_map(|(segment, index, from_end)| Spot::Image { segment, index, from_end }),
        1 => (0u64..4).prop_map(Spot::Mapped),
        1 => (0u64..3).prop_map(Spot::Stack),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let file = || prop_oneof![3 => Just(0), 2 => Just(1), 1 => Just(2usize)];
    let place = || (spot(), 0..PAGE_SIZE);
    let range = || (spot(), 1u64..4);
    let prot = || {
        prop_oneof![
            1 => Just(prot::NONE),
            1 => Just(prot::READ),
            2 => Just(prot::READ | prot::WRITE),
            1 => Just(prot::READ | prot::EXEC),
        ]
    };
    let access = prop_oneof![Just(Access::Read), Just(Access::Execute)];
    let limit = prop_oneof![9 => Just(u64::MAX), 1 => 4 * PAGE_SIZE..40 * PAGE_SIZE];
    let narrow = |narrow| match narrow {
        true => Variant::ExecutableOnly,
        false => Variant::ReadOnlyToo,
    };
    prop_oneof![
        4 => (file(), policy(), limit)
            .prop_map(|(file, policy, limit)| Step::Launch { file, policy, limit }),
        16 => (place(), access)
            .prop_map(|((spot, offset), access)| Step::Touch { spot, offset, access }),
        12 => (place(), 1u8..)
            .prop_map(|((spot, offset), byte)| Step::Write { spot, offset, byte }),
        3 => (place(), 1usize..9000)
            .prop_map(|((spot, offset), length)| Step::KernelRead { spot, offset, length }),
        4 => (place(), 1usize..9000, 1u8..)
            .prop_map(|((spot, offset), length, byte)| Step::KernelWrite { spot, offset, length, byte }),
        3 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(pick, lost)| Step::Arrive { pick, lost }),
        2 => range().prop_map(|(spot, pages)| Step::Hold { spot, pages }),
        1 => (range(), prot())
            .prop_map(|((spot, pages), prot)| Step::Map { spot, pages, prot }),
        1 => range().prop_map(|(spot, pages)| Step::Unmap { spot, pages }),
        5 => (range(), prot())
            .prop_map(|((spot, pages), prot)| Step::Protect { spot, pages, prot }),
        3 => range().prop_map(|(spot, pages)| Step::Discard { spot, pages }),
        1 => (0u64..0x6000).prop_map(|bytes| Step::Break { bytes }),
        3 => Just(Step::End),
        1 => (file(), any::<u64>()).prop_map(|(file, pick)| Step::Damage { file, pick }),
        1 => proptest::option::of(file()).prop_map(|file| Step::Drop { file }),
        1 => (file(), any::<bool>())
            .prop_map(move |(file, is)| Step::RetainOnly { file, variant: narrow(is) }),
        1 => prop_oneof![1 => Just(0), 1 => 5u64..60, 3 => Just(FRAMES)].prop_map(|pages| Step::Limit { pages }),
        1 => prop_oneof![200u64..600, Just(FRAMES)].prop_map(|available| Step::Squeeze { available }),
        2 => (0u64..200).prop_map(|limit| Step::Scrub { limit }),
    ]
}

/// A program that runs.
struct Running {
    file: usize,
    policy: Policy,
    memory: Memory,
    under_way: Vec<Fetch>,
    /// Pages that hold something else than the file or zeros, by number.
    written: BTreeMap<u64, Vec<u8>>,
}

struct World {
    sim: Sim,
    files: [File; 3],
    warm: WarmTable,
    running: Option<Running>,
    /// What control has been told.
    told: BTreeMap<ProgramId, u64>,
    /// Frames that the kernel took.
    squeezed: Vec<PhysAddr>,
    owners: u16,
}

impl World {
    fn new() -> Self {
        Self {
            sim: Sim::new(FRAMES),
            files: [
                file(1, 3, 1, 2, PAGE_SIZE, 2),
                file(2, 20, 3, 3, 0x456, 1),
                file(3, 30, 9, 8, 1, 4),
            ],
            warm: WarmTable::new(FRAMES / 2),
            running: None,
            told: BTreeMap::new(),
            squeezed: Vec::new(),
            owners: 0,
        }
    }

    fn launch(&mut self, file: usize, policy: Policy, limit: u64) {
        let sim = &mut self.sim;
        self.warm.keep_room(sim);
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
        sim.forget_all();
        self.running = Some(Running {
            file,
            policy,
            memory,
            under_way: Vec::new(),
            written: BTreeMap::new(),
        });
    }

    fn end(&mut self) {
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
        self.warm.put_back(&mut self.sim, &id, retained);
        self.check_hashes(file);
    }

    /// Every page that is kept of a program has the hash it should have.
    fn check_hashes(&self, file: usize) {
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
    fn access(&mut self, at: u64, access: Access) -> Option<PhysAddr> {
        self.with_running(at, access, |sim, running, file| {
            let (memory, under_way) = (&mut running.memory, &mut running.under_way);
            touch(sim, memory, file, under_way, (at, access), &mut |_| ())
        })
    }

    /// Lets `act` make an access possible; the program ends when memory is used up.
    fn with_running<R>(
        &mut self,
        at: u64,
        access: Access,
        act: impl FnOnce(&mut Sim, &mut Running, &File) -> Result<R, Cause>,
    ) -> Option<R> {
        let running = self.running.as_mut()?;
        self.warm.keep_room(&mut self.sim);
        let allowed = running.memory.space().find(at).is_some_and(|region| {
            region.kind != Kind::Guard && access.allowed_by(region.protection)
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
    fn page(&self, spot: Spot) -> u64 {
        match spot {
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

    fn step(&mut self, step: &Step) {
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
            Step::End => self.end(),
            _ => self.call(step),
        }
    }

    /// A step that is a call of the running program, or something that arrives for it.
    fn call(&mut self, step: &Step) {
        let page = match *step {
            Step::Hold { spot, .. }
            | Step::Map { spot, .. }
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
    fn copy(&mut self, at: u64, length: usize, byte: Option<u8>) {
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

    /// A bit of a warm page flips: its hash tells, and the page goes.
    fn damage(&mut self, file: usize, pick: u64) {
        let file = &self.files[file];
        let sim = &mut self.sim;
        let Some(entry) = self.warm.get_mut(&file.id) else {
            return;
        };
        let page = entry.page(&sim.mem, pick % entry.pages()).unwrap();
        let mut contents = [0; PAGE_BYTES];
        let length = entry.contents(&sim.mem, &page, &mut contents).unwrap();
        assert!(file.hashes.check(page.index(), &contents[..length]));
        let at = pick % page.bytes;
        sim.mem
            .write(page.frame.offset(at), &[contents[at as usize] ^ 4]);
        let length = entry.contents(&sim.mem, &page, &mut contents).unwrap();
        assert!(!file.hashes.check(page.index(), &contents[..length]));
        assert_eq!(entry.discard_page(sim, page.page), 1);
        assert_eq!(entry.discard_page(sim, page.page), 0);
        self.warm.pages_changed(sim, &file.id);
    }

    /// The kernel takes frames, or gives them back.
    fn squeeze(&mut self, available: u64) {
        let sim = &mut self.sim;
        for frame in self.squeezed.drain(..) {
            sim.frames.free(frame);
        }
        while sim.frames.usage().available() > available {
            let frame = sim.frames.alloc(&mut sim.mem, Owner::KERNEL);
            self.squeezed.push(frame.unwrap());
        }
    }

    /// Everything that must hold between two steps.
    fn check(&mut self) {
        let frames = &self.sim.frames;
        frames.check_tags().unwrap();
        assert!(self.warm.pages() <= FRAMES);
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
                own(leaf.frame, entry.owner());
                assert_eq!(frames.state(leaf.frame).0, State::Retained);
                retained += 1;
                assert!(!leaf.dirty && !leaf.accessed && !leaf.attributes.ahead);
                let segment = file.image.segment_at(leaf.page.as_u64()).unwrap();
                assert_eq!(leaf.attributes.class, segment.class);
                let shown = fault::shown(segment.class, segment.protection);
                assert_eq!(leaf.attributes.protection, shown);
                assert_ne!(shown, Protection::ReadWrite);
                let page = leaf.page.as_u64() >> 12;
                assert!(
                    read(&self.sim, leaf.frame) == original(file, page),
                    "page {page:#x}"
                );
            }
            assert_eq!(leaves.len() as u64, entry.pages());
            assert_eq!(entry.tables(), entry.table().tables(&self.sim.mem));
        }
        assert_eq!(frames.usage().retained, retained);
        let mut user = 0;
        if let Some(running) = &self.running {
            let file = &self.files[running.file];
            let owner = running.memory.owner();
            self.sim.check_remembered(running.memory.table());
            let (mut added, mut warm) = (0, 0);
            for leaf in leaves(&self.sim, running.memory.table()) {
                own(leaf.frame, owner);
                user += 1;
                match frames.state(leaf.frame).0 {
                    State::Retained => warm += 1,
                    _ => added += 1,
                }
                running.check(&self.sim, file, &leaf);
            }
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
        self.check_told();
    }

    /// Control knows what is held.
    fn check_told(&mut self) {
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
    fn check_clean(&mut self) {
        self.sim.frames.scrub(&mut self.sim.mem, u64::MAX);
        let free: Vec<_> = self.sim.frames_in(State::Free).collect();
        assert!(free.iter().all(|&frame| self.sim.mem.is_zero(frame)));
        self.sim.frames.check_tags().unwrap();
    }
}

impl Running {
    /// What a page should hold.
    fn expected(&self, file: &File, page: u64) -> Vec<u8> {
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
            _ => std::vec![0; PAGE_BYTES],
        }
    }

    fn write(&mut self, file: &File, at: u64, byte: u8) {
        let contents = self.expected(file, at >> 12);
        let contents = self.written.entry(at >> 12).or_insert(contents);
        contents[at as usize % PAGE_BYTES] = byte;
    }

    fn forget(&mut self, page: u64, pages: u64) {
        self.written
            .retain(|at, _| !(page..page + pages).contains(at));
    }

    /// What one entry of the table must be.
    fn check(&self, sim: &Sim, file: &File, leaf: &Leaf) {
        let page = leaf.page.as_u64() >> 12;
        let Protection::ReadWrite = leaf.attributes.protection else {
            assert!(
                read(sim, leaf.frame) == self.expected(file, page),
                "page {page:#x}"
            );
            return;
        };
        assert_eq!(
            sim.frames.state(leaf.frame).0,
            State::User,
            "page {page:#x}"
        );
        assert_eq!(leaf.attributes.class, Class::Private);
        assert!(
            read(sim, leaf.frame) == self.expected(file, page),
            "page {page:#x}"
        );
    }
}

/// What a page of the image holds at first.
fn original(file: &File, page: u64) -> Vec<u8> {
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

fn leaves(sim: &Sim, table: PageTable) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let last = VirtAddr::new(USER_END - 1);
    table.for_each(&sim.mem, VirtAddr::new(0), last, |leaf| leaves.push(leaf));
    leaves
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn frames_have_one_program_and_hold_what_they_should(
        steps in proptest::collection::vec(step(), 1..160)
    ) {
        let mut world = World::new();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.end();
        world.check();
        world.check_clean();
        world.warm.drop_program(&mut world.sim, None);
        world.squeeze(FRAMES);
        world.check();
        world.check_clean();
        let usage = world.sim.frames.usage();
        prop_assert_eq!((usage.kernel, usage.user, usage.retained), (1, 0, 0));
    }

    /// The goal of it all: what was touched once is there at the next launch.
    #[test]
    fn a_warm_launch_that_touches_the_same_pages_fetches_nothing(
        which in 0usize..3,
        touches in proptest::collection::vec((IMAGE, 0usize..3), 1..60),
        others in proptest::collection::vec(0usize..3, 0..3),
    ) {
        let mut world = World::new();
        let mut files = BTreeSet::new();
        let mut rounds = std::vec![which];
        rounds.extend(others);
        rounds.push(which);
        for file in rounds {
            let warm = !files.insert(file);
            world.launch(file, Policy::default(), u64::MAX);
            let running = world.running.as_mut().unwrap();
            let (mut fetched, mut code) = (0, 0);
            for &(page, access) in &touches {
                let access = [Access::Read, Access::Write, Access::Execute][access];
                let at = page * PAGE_SIZE + 7;
                let before = running.memory.faults();
                let mut count = |_: &Fetch| fetched += 1;
                let (sim, file) = (&mut world.sim, &world.files[file]);
                let memory = &mut running.memory;
                let place = touch(sim, memory, file, &mut running.under_way, (at, access), &mut count);
                if let (Ok(place), Access::Write) = (place, access) {
                    sim.mem.write(place, &[9]);
                    running.write(file, at, 9);
                }
                let after = running.memory.faults();
                let text = file.image.segment_at(at).is_some_and(|s| s.class == Class::FileExecute);
                // Also not one that needs no fetch.
                code += u64::from(text && before != after && place.is_ok());
            }
            if warm {
                prop_assert_eq!((fetched, code), (0, 0));
                let faults = running.memory.faults();
                prop_assert_eq!((faults.file(), faults.held), (0, 0));
            }
            world.check();
            world.end();
            world.check();
        }
    }
}
