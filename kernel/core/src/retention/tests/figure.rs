//! The figure of the publication: processes P0 and P1 and a retain message for P0.

use crate::addr::{PAGE_SIZE, PhysAddr, VirtAddr};
use crate::frames::{FrameAllocator, Owner, State};
use crate::paging::entry::{Attributes, Class, Protection};
use crate::paging::{PageSize, PageTable};
use crate::phys::FakeMemory;
use crate::retention::{Classified, Variant, retain};
use std::boxed::Box;
use std::vec::Vec;

/// Frames 0 to 7 of the figure are the first eight of memory; page tables come behind them.
const BASE: PhysAddr = PhysAddr::new(0x10_0000);
const FRAMES: u64 = 64;
/// Page 0 of the figure.
const PAGES: VirtAddr = VirtAddr::new(0x40_0000);

struct Figure {
    mem: FakeMemory,
    frames: FrameAllocator,
    p0: PageTable,
    p1: PageTable,
}

fn frame(number: u64) -> PhysAddr {
    BASE.offset(number * PAGE_SIZE)
}

fn page(number: u64) -> VirtAddr {
    PAGES.offset(number * PAGE_SIZE)
}

/// Both processes have run; `third` is what page 3 of P0 is.
fn figure(third: (Protection, Class)) -> Figure {
    let mut mem = FakeMemory::new(BASE, FRAMES);
    let tags = Box::leak(std::vec![0; FRAMES as usize].into_boxed_slice());
    let mut frames = FrameAllocator::new(BASE, tags);
    frames.add_region(BASE, frame(FRAMES));
    let execute = (Protection::ReadExecute, Class::FileExecute);
    let data = (Protection::ReadWrite, Class::Private);
    let p0 = [
        (0, 1, execute),
        (1, 4, execute),
        (2, 3, data),
        (3, 7, third),
    ];
    let p1 = [(0, 0, data), (1, 2, execute), (2, 5, data), (3, 6, data)];
    let owner = |number| match p0.iter().any(|&(_, of_p0, _)| of_p0 == number) {
        true => Owner::program(1),
        false => Owner::program(2),
    };
    for number in 0..8 {
        let given = frames.alloc(&mut mem, owner(number)).unwrap().into_entry();
        assert_eq!(given, frame(number));
        mem.fill(given, 0x10 + number as u8);
    }
    let mut table = |pages: [(u64, u64, (Protection, Class)); 4]| {
        let table = PageTable::new(&mut mem, &mut frames).unwrap();
        for (at, number, (protection, class)) in pages {
            let (size, attributes) = (PageSize::Small, Attributes::user(protection, class));
            let (page, frame) = (page(at), frame(number));
            let mapped = table.map(&mut mem, &mut frames, page, frame, size, attributes);
            mapped.unwrap();
        }
        table
    };
    let (p0, p1) = (table(p0), table(p1));
    Figure {
        mem,
        frames,
        p0,
        p1,
    }
}

impl Figure {
    fn retain(&mut self, variant: Variant) -> Classified {
        let tables_before = self.frames.usage().kernel;
        let Self {
            mem,
            frames,
            p0,
            p1,
        } = self;
        let classified = retain(mem, frames, &[*p1], *p0, variant);
        frames.check_tags().unwrap();
        // P1's tables of four levels are gone.
        assert_eq!(frames.usage().kernel, tables_before - 4);
        while frames.scrub(mem, 3) == 3 {}
        frames.check_tags().unwrap();
        classified
    }

    /// Page and frame of each entry of P0, by the figure's numbers.
    fn entries(&self) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        self.p0.for_each(&self.mem, page(0), page(3), |leaf| {
            let page = (leaf.page.as_u64() - PAGES.as_u64()) / PAGE_SIZE;
            entries.push((page, (leaf.frame.as_u64() - BASE.as_u64()) / PAGE_SIZE));
        });
        entries
    }

    fn is_free_and_zero(&self, number: u64) -> bool {
        self.frames.state(frame(number)).0 == State::Free && self.mem.is_zero(frame(number))
    }
}

#[test]
fn p0_keeps_what_nobody_wrote_and_p1_is_gone() {
    let mut figure = figure((Protection::ReadExecute, Class::FileExecute));
    let classified = figure.retain(Variant::ReadOnlyToo);
    let expected = Classified {
        kept: 3,
        removed: 5,
        dropped: 1,
    };
    assert_eq!(classified, expected);
    assert_eq!(figure.entries(), [(0, 1), (1, 4), (3, 7)]);
    // Entry 2 is invalid, frame 3 is zero; P1's frames are free and zero, the executable one too.
    assert_eq!(figure.p0.translate(&figure.mem, page(2)), None);
    for number in [3, 0, 2, 5, 6] {
        assert!(figure.is_free_and_zero(number), "frame {number}");
    }
    // Launching P0 again faults on none of 0, 1, 3: the entries are as they were, and so are the
    // frames' contents.
    for (at, number) in [(0, 1), (1, 4), (3, 7)] {
        let leaf = figure.p0.translate(&figure.mem, page(at)).unwrap();
        let execute = Attributes::user(Protection::ReadExecute, Class::FileExecute);
        assert_eq!(leaf.attributes, execute);
        let mut byte = [0];
        crate::phys::PhysMem::read(&figure.mem, frame(number), &mut byte);
        assert_eq!(byte, [0x10 + number as u8]);
        let tag = figure.frames.state(frame(number));
        assert_eq!(tag, (State::Retained, Owner::program(1)));
    }
}

#[test]
fn a_page_that_is_only_read_goes_in_the_narrowest_form() {
    let constants = (Protection::Read, Class::FileRead);
    let mut kept = figure(constants);
    kept.retain(Variant::ReadOnlyToo);
    assert_eq!(kept.entries(), [(0, 1), (1, 4), (3, 7)]);
    let mut dropped = figure(constants);
    dropped.retain(Variant::ExecutableOnly);
    assert_eq!(dropped.entries(), [(0, 1), (1, 4)]);
    assert!(dropped.is_free_and_zero(7) && dropped.is_free_and_zero(3));
}

#[test]
fn a_page_that_was_written_before_it_became_read_only_goes() {
    // RELRO: data that the program made read-only has lost its class.
    let mut figure = figure((Protection::Read, Class::Private));
    figure.retain(Variant::ReadOnlyToo);
    assert_eq!(figure.entries(), [(0, 1), (1, 4)]);
    assert!(figure.is_free_and_zero(7));
}
