//! [`retain`] against a plain model, a map from page to frame: random tables of small and large
//! pages, frames mapped by several entries and several tables, writable through any of them.

use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::frames::{FrameAllocator, Owner, State};
use crate::paging::entry::{Attributes, Class, Protection};
use crate::paging::{Leaf, PageSize, PageTable};
use crate::phys::{FakeMemory, PhysMem};
use crate::retention::{Variant, retain};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeSet;
use std::vec::Vec;

const BASE: PhysAddr = PhysAddr::new(LARGE_PAGE_SIZE);
/// Runs of frames that large pages map.
const RUNS: u64 = 2;
const IN_RUN: u64 = LARGE_PAGE_SIZE / PAGE_SIZE;
/// Frames that only small pages map.
const SINGLE: u64 = 12;
/// With room for page tables.
const FRAMES: u64 = RUNS * IN_RUN + 120;
/// Small pages: on both sides of a boundary between two tables.
const SMALL: VirtAddr = VirtAddr::new(0x40_0000 - 8 * PAGE_SIZE);
const LARGE: VirtAddr = VirtAddr::new(0x4000_0000);

/// Memory that counts how often each frame is cleared.
struct Counting {
    inner: FakeMemory,
    cleared: Vec<u32>,
}

impl PhysMem for Counting {
    fn read_u64(&self, at: PhysAddr) -> u64 {
        self.inner.read_u64(at)
    }
    fn write_u64(&mut self, at: PhysAddr, value: u64) {
        self.inner.write_u64(at, value);
    }
    fn change_u64(&mut self, at: PhysAddr, change: impl Fn(u64) -> u64) -> u64 {
        self.inner.change_u64(at, change)
    }
    fn zero_frame(&mut self, frame: PhysAddr) {
        self.cleared[number(frame) as usize] += 1;
        self.inner.zero_frame(frame);
    }
    fn read(&self, at: PhysAddr, out: &mut [u8]) {
        self.inner.read(at, out);
    }
    fn write(&mut self, at: PhysAddr, bytes: &[u8]) {
        self.inner.write(at, bytes);
    }
}

/// An entry to be made: the frame is a pick among all, the slot among the pages of its size.
#[derive(Clone, Debug)]
struct Plan {
    table: usize,
    large: bool,
    slot: u64,
    frame: u64,
    protection: Protection,
    class: Class,
    written: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let protection = prop_oneof![
        1 => Just(Protection::None),
        3 => Just(Protection::Read),
        2 => Just(Protection::ReadWrite),
        4 => Just(Protection::ReadExecute),
    ];
    let class = prop_oneof![
        1 => Just(Class::Private),
        2 => Just(Class::FileRead),
        3 => Just(Class::FileExecute),
        1 => Just(Class::FileData),
    ];
    let place = (0usize..3, prop::bool::weighted(0.2), 0u64..16);
    // Few different frames, so that many are shared; some inside the runs of large pages.
    let frame = prop_oneof![
        4 => RUNS * IN_RUN..RUNS * IN_RUN + SINGLE,
        1 => (0..RUNS, 0u64..3).prop_map(|(run, at)| run * IN_RUN + at * 200),
    ];
    (place, frame, protection, class, prop::bool::weighted(0.05)).prop_map(
        |((table, large, slot), frame, protection, class, written)| Plan {
            table,
            large,
            slot,
            frame,
            protection,
            class,
            written,
        },
    )
}

fn number(frame: PhysAddr) -> u64 {
    (frame.as_u64() - BASE.as_u64()) / PAGE_SIZE
}

fn numbers(leaf: &Leaf) -> std::ops::Range<u64> {
    let first = number(leaf.frame);
    first..first + leaf.size.bytes() / PAGE_SIZE
}

fn leaves(mem: &Counting, table: PageTable) -> Vec<Leaf> {
    let mut leaves = Vec::new();
    let last = VirtAddr::new(USER_END - 1);
    table.for_each(mem, VirtAddr::new(0), last, |leaf| leaves.push(leaf));
    leaves
}

struct Scene {
    mem: Counting,
    frames: FrameAllocator,
    tables: Vec<PageTable>,
}

/// Programs' frames with contents of their own, and tables that map them as planned.
fn scene(plans: &[Plan], borrowed: &[bool]) -> Scene {
    let mut mem = Counting {
        inner: FakeMemory::new(BASE, FRAMES),
        cleared: std::vec![0; FRAMES as usize],
    };
    let tags = Box::leak(std::vec![0; FRAMES as usize].into_boxed_slice());
    let mut frames = FrameAllocator::new(BASE, tags);
    frames.add_region(BASE, BASE.offset(FRAMES * PAGE_SIZE));
    for at in 0..RUNS * IN_RUN + SINGLE {
        let owner = Owner::program(1 + (at / 7 % 3) as u16);
        let frame = frames.alloc(&mut mem, owner).unwrap().into_entry();
        assert_eq!(number(frame), at);
        mem.inner.fill(frame, at as u8 | 1);
    }
    let borrowed: BTreeSet<u64> = (0..)
        .zip(borrowed)
        .filter(|(_, borrowed)| **borrowed)
        .map(|(at, _)| at)
        .collect();
    for &at in &borrowed {
        frames.retain(BASE.offset(at * PAGE_SIZE));
    }
    frames.borrow(borrowed.len() as u64);
    let tables: Vec<PageTable> = (0..3)
        .map(|_| PageTable::new(&mut mem, &mut frames).unwrap())
        .collect();
    for plan in plans {
        let table = tables[plan.table];
        let (page, size, frame) = match plan.large {
            true => {
                let run = plan.frame / IN_RUN % RUNS * LARGE_PAGE_SIZE;
                let page = LARGE.offset(plan.slot % 4 * LARGE_PAGE_SIZE);
                (page, PageSize::Large, BASE.offset(run))
            }
            false => {
                let page = SMALL.offset(plan.slot * PAGE_SIZE);
                (page, PageSize::Small, BASE.offset(plan.frame * PAGE_SIZE))
            }
        };
        let attributes = Attributes::user(plan.protection, plan.class);
        if table
            .map(&mut mem, &mut frames, page, frame, size, attributes)
            .is_ok()
            && plan.protection != Protection::None
        {
            table.note_use(&mut mem, page, plan.written);
        }
    }
    frames.check_tags().unwrap();
    mem.cleared.fill(0);
    Scene {
        mem,
        frames,
        tables,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    #[test]
    fn agrees_with_the_model(
        plans in proptest::collection::vec(plan(), 0..40),
        borrowed in proptest::collection::vec(prop::bool::weighted(0.3), (RUNS * IN_RUN + SINGLE) as usize),
        narrow in any::<bool>(),
    ) {
        let Scene { mut mem, mut frames, tables } = scene(&plans, &borrowed);
        let variant = match narrow {
            true => Variant::ExecutableOnly,
            false => Variant::ReadOnlyToo,
        };
        // The model: sets of frames.
        let all: Vec<Vec<Leaf>> = tables.iter().map(|&table| leaves(&mem, table)).collect();
        let mapped: BTreeSet<u64> = all.iter().flatten().flat_map(numbers).collect();
        let writable = |leaf: &&Leaf| leaf.attributes.protection == Protection::ReadWrite || leaf.dirty;
        let written: BTreeSet<u64> = all.iter().flatten().filter(writable).flat_map(numbers).collect();
        let wanted = |leaf: &&Leaf| match leaf.attributes.class {
            Class::FileExecute => true,
            Class::FileRead | Class::FileData => !narrow,
            Class::Private | Class::Object | Class::SharedMemory => false,
        };
        let clean = |leaf: &&Leaf| numbers(leaf).all(|frame| !written.contains(&frame));
        let kept: Vec<Leaf> = all[0].iter().filter(wanted).filter(clean).copied().collect();
        let stay: BTreeSet<u64> = kept.iter().flat_map(numbers).collect();
        let tags: Vec<(State, Owner)> =
            (0..FRAMES).map(|at| frames.state(BASE.offset(at * PAGE_SIZE))).collect();

        let before = frames.counters();
        let classified = retain(&mut mem, &mut frames, &tables[1..], tables[0], variant);
        prop_assert_eq!(frames.check_tags(), Ok(()));
        let given_back = mapped.difference(&stay).count() as u64;
        let private = |at: &u64| *at < RUNS * IN_RUN + SINGLE;
        let dirty = (0..FRAMES).filter(private)
            .filter(|at| frames.state(BASE.offset(at * PAGE_SIZE)).0 == State::Dirty).count() as u64;
        prop_assert_eq!(dirty, given_back);
        while frames.scrub(&mut mem, 100) == 100 {}
        prop_assert_eq!(frames.check_tags(), Ok(()));

        // The table holds what stays, as it was, and nothing else.
        prop_assert_eq!(leaves(&mem, tables[0]), kept.clone());
        let pages = |leaves: &[Leaf]| leaves.iter().map(|leaf| leaf.size.bytes() / PAGE_SIZE).sum::<u64>();
        prop_assert_eq!(classified.kept, pages(&kept));
        prop_assert_eq!(classified.kept + classified.removed, pages(&all.concat()));
        prop_assert_eq!(classified.dropped, 2);
        prop_assert_eq!(frames.usage().kernel, tables[0].tables(&mem));
        for at in (0..FRAMES).filter(private) {
            let frame = BASE.offset(at * PAGE_SIZE);
            let (state, owner) = frames.state(frame);
            let mut byte = [0];
            mem.read(frame, &mut byte);
            if !mapped.contains(&at) {
                // Of a program that is none of these.
                prop_assert_eq!((state, owner), tags[at as usize]);
                prop_assert_eq!((byte[0], mem.cleared[at as usize]), (at as u8 | 1, 0));
            } else if stay.contains(&at) {
                prop_assert_eq!((state, owner), (State::Retained, tags[at as usize].1));
                prop_assert_eq!((byte[0], mem.cleared[at as usize]), (at as u8 | 1, 0));
            } else {
                prop_assert_eq!(state, State::Free);
                prop_assert_eq!(mem.cleared[at as usize], 1, "cleared once");
                prop_assert!(mem.inner.is_zero(frame));
            }
        }
        let counters = frames.counters();
        prop_assert_eq!(counters.retained - before.retained, stay.len() as u64);
        prop_assert_eq!(frames.usage().retained, stay.len() as u64);
        // What no table maps is still in use by whoever has it.
        let (all, mapped) = (RUNS * IN_RUN + SINGLE, mapped.len() as u64);
        prop_assert_eq!(frames.usage().user, all - mapped);
        let tables = counters.freed - before.freed - given_back;
        prop_assert_eq!(counters.scrubbed - before.scrubbed, given_back + tables);
    }
}
