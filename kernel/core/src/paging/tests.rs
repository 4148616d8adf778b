//! Page tables against a plain model: a map from page to frame and protection.

use super::entry::Class;
use super::*;
use crate::phys::FakeMemory;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

const FRAMES: u64 = 64;

/// Tables from a fixed set of frames; knows which are in use.
struct Tables {
    free: BTreeSet<u64>,
}

impl Tables {
    fn new() -> (FakeMemory, Self) {
        let free = (1..FRAMES).collect();
        (FakeMemory::new(PhysAddr::new(0), FRAMES), Self { free })
    }

    fn used(&self) -> u64 {
        FRAMES - 1 - self.free.len() as u64
    }
}

impl TableSource<FakeMemory> for Tables {
    fn alloc_table(&mut self, mem: &mut FakeMemory) -> Option<PhysAddr> {
        let frame = PhysAddr::new(self.free.pop_first()? * PAGE_SIZE);
        mem.zero_frame(frame);
        Some(frame)
    }

    fn free_table(&mut self, table: PhysAddr) {
        assert!(
            self.free.insert(table.frame_number()),
            "table given back twice"
        );
    }
}

const ALL: [Protection; 4] = [
    Protection::None,
    Protection::Read,
    Protection::ReadWrite,
    Protection::ReadExecute,
];

fn user(protection: Protection) -> Attributes {
    Attributes::user(protection, Class::Private)
}

#[test]
fn no_entry_is_writable_and_executable() {
    for from in ALL {
        for to in ALL {
            for attributes in [
                Attributes::kernel(from),
                Attributes::user(from, Class::FileExecute),
            ] {
                let leaf = Entry::leaf(PhysAddr::new(0x1000), PageSize::Small, attributes);
                for bits in [leaf.bits(), leaf.with_protection(to).bits()] {
                    assert!(bits & 2 == 0 || bits >> 63 == 1, "{bits:#x}");
                }
                assert_eq!(leaf.with_protection(to).attributes().protection, to);
            }
        }
    }
}

#[test]
fn entries_have_the_bits_of_the_manual() {
    let frame = PhysAddr::new(0xab_c000);
    let leaf = |attributes| Entry::leaf(frame, PageSize::Small, attributes).bits();
    assert_eq!(leaf(user(Protection::ReadExecute)), 0xab_c005);
    assert_eq!(leaf(user(Protection::ReadWrite)), 0x8000_0000_00ab_c007);
    assert_eq!(leaf(user(Protection::Read)), 0x8000_0000_00ab_c005);
    assert_eq!(leaf(Attributes::device()), 0x8000_0000_00ab_c11b);
    assert_eq!(leaf(user(Protection::None)) & 1, 0);
    let large = Entry::leaf(
        PhysAddr::new(0x20_0000),
        PageSize::Large,
        Attributes::kernel(Protection::ReadWrite),
    );
    assert_eq!(large.bits(), 0x8000_0000_0020_0183);
}

#[test]
fn a_page_that_becomes_writable_loses_its_class() {
    let (mut mem, mut tables) = Tables::new();
    let table = PageTable::new(&mut mem, &mut tables).unwrap();
    let page = VirtAddr::new(0x40_0000);
    let attributes = Attributes::user(Protection::Read, Class::FileRead);
    let frame = PhysAddr::new(0x5000);
    table
        .map(
            &mut mem,
            &mut tables,
            page,
            frame,
            PageSize::Small,
            attributes,
        )
        .unwrap();
    let leaf = table
        .protect(&mut mem, page, Protection::ReadWrite)
        .unwrap();
    assert_eq!(leaf.attributes.class, Class::Private);
    let leaf = table.protect(&mut mem, page, Protection::Read).unwrap();
    assert_eq!(leaf.attributes.class, Class::Private);
}

#[test]
fn what_must_not_be_mapped_is_refused() {
    let (mut mem, mut tables) = Tables::new();
    let table = PageTable::new(&mut mem, &mut tables).unwrap();
    let frame = PhysAddr::new(0x20_0000);
    let kernel = VirtAddr::new(0xffff_c000_0000_0000);
    let attributes = user(Protection::Read);
    let mut map = |page, frame, size, attributes| {
        table.map(&mut mem, &mut tables, page, frame, size, attributes)
    };
    let small = PageSize::Small;
    assert_eq!(
        map(VirtAddr::new(0), frame, small, attributes),
        Err(MapError::NullPage)
    );
    assert_eq!(
        map(kernel, frame, small, attributes),
        Err(MapError::WrongHalf)
    );
    let own = Attributes::kernel(Protection::Read);
    assert_eq!(
        map(VirtAddr::new(0x1000), frame, small, own),
        Err(MapError::WrongHalf)
    );
    assert_eq!(
        map(VirtAddr::new(0x1001), frame, small, attributes),
        Err(MapError::Misaligned)
    );
    let page = VirtAddr::new(0x20_1000);
    assert_eq!(
        map(page, frame, PageSize::Large, attributes),
        Err(MapError::Misaligned)
    );
    assert_eq!(map(page, frame, small, attributes), Ok(()));
    assert_eq!(
        map(page, frame, small, attributes),
        Err(MapError::AlreadyMapped)
    );
    let large = VirtAddr::new(0x20_0000);
    assert_eq!(
        map(large, frame, PageSize::Large, attributes),
        Err(MapError::AlreadyMapped)
    );
    let large = VirtAddr::new(0x40_0000);
    assert_eq!(map(large, frame, PageSize::Large, attributes), Ok(()));
    let inside = VirtAddr::new(0x40_3000);
    assert_eq!(
        map(inside, frame, small, attributes),
        Err(MapError::AlreadyMapped)
    );
    let found = table.translate(&mem, VirtAddr::new(0x5f_ffff)).unwrap();
    assert_eq!((found.page, found.size), (large, PageSize::Large));
    let physical = table.physical(&mem, VirtAddr::new(0x40_3123));
    assert_eq!(physical, Some(frame.offset(0x3123)));
}

#[test]
fn running_out_of_frames_leaves_no_table_behind() {
    let (mut mem, mut tables) = Tables::new();
    let table = PageTable::new(&mut mem, &mut tables).unwrap();
    for left in 0..3 {
        let spare: Vec<u64> = tables.free.iter().copied().skip(left).collect();
        tables.free.retain(|frame| !spare.contains(frame));
        let page = VirtAddr::new(0x1234_5678_9000);
        let frame = PhysAddr::new(0x1000);
        let result = table.map(
            &mut mem,
            &mut tables,
            page,
            frame,
            PageSize::Small,
            user(Protection::Read),
        );
        assert_eq!(result, Err(MapError::OutOfFrames));
        tables.free.extend(spare);
        assert_eq!(tables.used(), 1, "with {left} frames");
    }
}

#[test]
fn programs_share_the_kernel_half() {
    let (mut mem, mut tables) = Tables::new();
    let kernel = PageTable::new(&mut mem, &mut tables).unwrap();
    let heap = VirtAddr::new(0xffff_c000_0000_0000);
    kernel
        .prepare_kernel_half(&mut mem, &mut tables, &[heap.table_index(4)])
        .unwrap();
    let program = PageTable::new(&mut mem, &mut tables).unwrap();
    program.share_kernel_half(&mut mem, kernel);
    let own = Attributes::kernel(Protection::ReadWrite);
    let frame = PhysAddr::new(0x7000);
    kernel
        .map(&mut mem, &mut tables, heap, frame, PageSize::Small, own)
        .unwrap();
    assert_eq!(program.physical(&mem, heap), Some(frame));
    kernel.unmap(&mut mem, &mut tables, heap).unwrap();
    // The shared table stays although it is empty, and destroying the program leaves it alone.
    program.destroy(&mut mem, &mut tables);
    assert_eq!(tables.used(), 2);
    kernel
        .map(&mut mem, &mut tables, heap, frame, PageSize::Small, own)
        .unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Map {
        page: usize,
        frame: u64,
        protection: usize,
    },
    Unmap {
        page: usize,
    },
    Protect {
        page: usize,
        protection: usize,
    },
    UnmapRange {
        first: usize,
        last: usize,
    },
}

/// Pages that share tables at every level, and some that share none.
const PAGES: [u64; 12] = [
    0x1000,
    0x2000,
    0x1f_f000,
    0x20_0000,
    0x40_0000,
    0x3fff_f000,
    0x4000_0000,
    0x7f_ffff_f000,
    0x80_0000_0000,
    0x5555_5555_4000,
    0x7fff_ffff_e000,
    0x7fff_ffff_f000,
];

fn step() -> impl Strategy<Value = Step> {
    let page = 0..PAGES.len();
    let protection = 0..ALL.len();
    prop_oneof![
        4 => (page.clone(), 1u64..50, protection.clone())
            .prop_map(|(page, frame, protection)| Step::Map { page, frame, protection }),
        2 => page.clone().prop_map(|page| Step::Unmap { page }),
        2 => (page.clone(), protection)
            .prop_map(|(page, protection)| Step::Protect { page, protection }),
        1 => (page.clone(), page)
            .prop_map(|(a, b)| Step::UnmapRange { first: a.min(b), last: a.max(b) }),
    ]
}

/// Tables that the pages of the model need, root included.
fn tables_needed(model: &BTreeMap<u64, (u64, Protection)>) -> u64 {
    let mut needed = BTreeSet::new();
    for page in model.keys() {
        for shift in [39, 30, 21] {
            needed.insert((shift, page >> shift));
        }
    }
    needed.len() as u64 + 1
}

proptest! {
    #[test]
    fn agrees_with_the_model(steps in proptest::collection::vec(step(), 0..80)) {
        let (mut mem, mut tables) = Tables::new();
        let table = PageTable::new(&mut mem, &mut tables).unwrap();
        let mut model: BTreeMap<u64, (u64, Protection)> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Map { page, frame, protection } => {
                    let (page, protection) = (PAGES[page], ALL[protection]);
                    let at = PhysAddr::new(frame * PAGE_SIZE);
                    let attributes = user(protection);
                    let page_at = VirtAddr::new(page);
                    let result =
                        table.map(&mut mem, &mut tables, page_at, at, PageSize::Small, attributes);
                    if let std::collections::btree_map::Entry::Vacant(slot) = model.entry(page) {
                        prop_assert_eq!(result, Ok(()));
                        slot.insert((frame, protection));
                    } else {
                        prop_assert_eq!(result, Err(MapError::AlreadyMapped));
                    }
                }
                Step::Unmap { page } => {
                    let result = table.unmap(&mut mem, &mut tables, VirtAddr::new(PAGES[page]));
                    let expected = model.remove(&PAGES[page]);
                    prop_assert_eq!(
                        result.map(|leaf| leaf.frame.frame_number()).ok(),
                        expected.map(|(frame, _)| frame)
                    );
                }
                Step::Protect { page, protection } => {
                    let page = PAGES[page];
                    let result = table.protect(&mut mem, VirtAddr::new(page), ALL[protection]);
                    prop_assert_eq!(result.is_ok(), model.contains_key(&page));
                    if let Some(entry) = model.get_mut(&page) {
                        entry.1 = ALL[protection];
                    }
                }
                Step::UnmapRange { first, last } => {
                    let (first, last) = (PAGES[first], PAGES[last]);
                    let mut removed = Vec::new();
                    let start = VirtAddr::new(first);
                    let end = VirtAddr::new(last + PAGE_SIZE - 1);
                    let (before, mut present) = (tables.used(), false);
                    let remembered =
                        table.unmap_range(&mut mem, &mut tables, start, end, |_, leaf| {
                            removed.push(leaf.page.as_u64());
                            present |= leaf.attributes.protection != Protection::None;
                        });
                    prop_assert_eq!(remembered, present || tables.used() < before);
                    let expected: Vec<u64> = model.range(first..=last).map(|(&at, _)| at).collect();
                    prop_assert_eq!(removed, expected);
                    model.retain(|&page, _| page < first || page > last);
                }
            }
            prop_assert_eq!(tables.used(), tables_needed(&model));
        }
        let mut found = BTreeMap::new();
        let last = VirtAddr::new(crate::addr::USER_END - 1);
        table.for_each(&mem, VirtAddr::new(0), last, |leaf| {
            let entry = (leaf.frame.frame_number(), leaf.attributes.protection);
            found.insert(leaf.page.as_u64(), entry);
        });
        prop_assert_eq!(found, model);
    }
}

#[test]
fn a_large_page_becomes_small_ones_in_order() {
    let (mut mem, mut tables) = Tables::new();
    let table = PageTable::new(&mut mem, &mut tables).unwrap();
    let base = VirtAddr::new(3 * LARGE_PAGE_SIZE);
    let run = PhysAddr::new(5 * LARGE_PAGE_SIZE);
    let data = Attributes::user(Protection::ReadWrite, Class::Private);
    assert!(!table.has_last_table(&mem, base));
    let size = PageSize::Large;
    table
        .map(&mut mem, &mut tables, base, run, size, data)
        .unwrap();
    assert_eq!((tables.used(), table.tables(&mem)), (3, 3));
    let last = base.offset((ENTRIES - 1) * PAGE_SIZE);
    let leaf = table.translate(&mem, last).unwrap();
    assert_eq!((leaf.page, leaf.frame), (base, run));
    assert_eq!((leaf.size, leaf.attributes), (PageSize::Large, data));
    assert!(!table.has_last_table(&mem, base));
    let large = table.replace(&mut mem, last, run, data);
    assert_eq!(large, Err(MapError::Misaligned));
    // Every small page is as it was, and was used if the large one was.
    table.note_use(&mut mem, base, false);
    table.demote(&mut mem, &mut tables, base).unwrap();
    assert_eq!(tables.used(), 4);
    assert!(table.has_last_table(&mem, base));
    for index in 0..ENTRIES {
        let leaf = table.translate(&mem, base.offset(index * PAGE_SIZE));
        let leaf = leaf.unwrap();
        assert_eq!(leaf.frame, run.offset(index * PAGE_SIZE));
        assert_eq!((leaf.size, leaf.attributes), (PageSize::Small, data));
        assert!(leaf.accessed && !leaf.dirty);
    }
    let again = table.demote(&mut mem, &mut tables, base);
    assert_eq!(again, Err(MapError::Misaligned));
}

#[test]
fn a_split_without_a_frame_changes_nothing() {
    let (mut mem, mut tables) = Tables::new();
    let table = PageTable::new(&mut mem, &mut tables).unwrap();
    let page = VirtAddr::new(LARGE_PAGE_SIZE);
    let (run, size) = (PhysAddr::new(0), PageSize::Large);
    let attributes = user(Protection::Read);
    table
        .map(&mut mem, &mut tables, page, run, size, attributes)
        .unwrap();
    tables.free.clear();
    let split = table.demote(&mut mem, &mut tables, page);
    assert_eq!(split, Err(MapError::OutOfFrames));
    assert_eq!(table.translate(&mem, page).unwrap().size, PageSize::Large);
}

#[test]
fn a_huge_page_maps_a_gibibyte_and_no_page_inside_it() {
    let (mut mem, mut tables) = Tables::new();
    let table = PageTable::new(&mut mem, &mut tables).unwrap();
    let page = VirtAddr::new(0xffff_8000_4000_0000);
    let (frame, attributes) = (
        PhysAddr::new(1 << 30),
        Attributes::kernel(Protection::ReadWrite),
    );
    let mut map =
        |page, frame, size| table.map(&mut mem, &mut tables, page, frame, size, attributes);
    assert_eq!(
        map(page, frame.offset(LARGE_PAGE_SIZE), PageSize::Huge),
        Err(MapError::Misaligned)
    );
    map(page, frame, PageSize::Huge).unwrap();
    let inside = page.offset(LARGE_PAGE_SIZE);
    assert_eq!(
        map(inside, frame, PageSize::Large),
        Err(MapError::AlreadyMapped)
    );
    let leaf = table.translate(&mem, page.offset(0x1234_5678)).unwrap();
    assert_eq!(
        (leaf.page, leaf.frame, leaf.size),
        (page, frame, PageSize::Huge)
    );
    let physical = table.physical(&mem, page.offset(0x1234_5678));
    assert_eq!(physical, Some(frame.offset(0x1234_5678)));
    assert_eq!(table.unmap(&mut mem, &mut tables, inside).unwrap(), leaf);
    assert_eq!(table.translate(&mem, page), None);
}

/// Memory in which another core writes to a page just after each look at its entry: the CPU sets
/// the bits of use in the entry that it finds then.
struct Busy {
    memory: FakeMemory,
    watched: PhysAddr,
    /// Looks from now on are followed by a use.
    is_used: std::cell::Cell<bool>,
}

impl Busy {
    const USED: u64 = 1 << 5 | 1 << 6;

    fn entry(&self) -> u64 {
        let used = u64::from(self.is_used.get()) * Self::USED;
        self.memory.read_u64(self.watched) | used
    }
}

impl PhysMem for Busy {
    fn read_u64(&self, at: PhysAddr) -> u64 {
        let bits = self.memory.read_u64(at);
        if at == self.watched {
            self.is_used.set(true);
        }
        bits
    }
    fn write_u64(&mut self, at: PhysAddr, value: u64) {
        if at == self.watched {
            // What the other core has noted is lost.
            self.is_used.set(false);
        }
        self.memory.write_u64(at, value);
    }
    fn change_u64(&mut self, at: PhysAddr, change: impl Fn(u64) -> u64) -> u64 {
        if at != self.watched {
            return self.memory.change_u64(at, change);
        }
        let old = self.entry();
        self.is_used.set(false);
        self.memory.write_u64(at, change(old));
        old
    }
    fn zero_frame(&mut self, frame: PhysAddr) {
        self.memory.zero_frame(frame);
    }
    fn read(&self, at: PhysAddr, out: &mut [u8]) {
        self.memory.read(at, out);
    }
    fn write(&mut self, at: PhysAddr, bytes: &[u8]) {
        self.memory.write(at, bytes);
    }
}

impl TableSource<Busy> for Tables {
    fn alloc_table(&mut self, mem: &mut Busy) -> Option<PhysAddr> {
        self.alloc_table(&mut mem.memory)
    }
    fn free_table(&mut self, table: PhysAddr) {
        TableSource::<FakeMemory>::free_table(self, table);
    }
}

/// A table with one page of data, whose entry another core uses.
fn busy(size: PageSize) -> (Busy, Tables, PageTable, VirtAddr) {
    let (mut memory, mut tables) = Tables::new();
    let table = PageTable::new(&mut memory, &mut tables).unwrap();
    let (page, frame) = (VirtAddr::new(0x4000_0000), PhysAddr::new(LARGE_PAGE_SIZE));
    let data = user(Protection::ReadWrite);
    table
        .map(&mut memory, &mut tables, page, frame, size, data)
        .unwrap();
    let (watched, _) = table.find(&memory, page).unwrap();
    let is_used = std::cell::Cell::new(false);
    let busy = Busy {
        memory,
        watched,
        is_used,
    };
    (busy, tables, table, page)
}

#[test]
fn what_another_core_notes_while_an_entry_changes_is_not_lost() {
    let is_noted = |mem: &Busy| {
        let bits = mem.memory.read_u64(mem.watched);
        bits & Busy::USED == Busy::USED
    };
    let (mut mem, _, table, page) = busy(PageSize::Small);
    table.protect(&mut mem, page, Protection::Read).unwrap();
    assert!(is_noted(&mem));
    let (mut mem, _, table, page) = busy(PageSize::Small);
    table.protect_range(&mut mem, page, page, |_| Some(Protection::None));
    assert!(is_noted(&mem));
    let (mut mem, _, table, page) = busy(PageSize::Small);
    let (frame, copy) = (PhysAddr::new(0x9000), user(Protection::Read));
    let old = table.replace(&mut mem, page, frame, copy).unwrap();
    assert!(old.accessed && old.dirty);
    let (mut mem, mut tables, table, page) = busy(PageSize::Large);
    table.demote(&mut mem, &mut tables, page).unwrap();
    for index in 0..ENTRIES {
        let small = page.offset(index * PAGE_SIZE);
        let leaf = table.translate(&mem.memory, small).unwrap();
        assert!(leaf.accessed && leaf.dirty, "{index}");
    }
}
