//! Large pages: when a program gets them, and that it sees the same memory with and without.

use super::super::tests::{Fake, Program};
use super::*;
use crate::fault::Access;
use crate::program::UserSlice;
use crate::retention::Policy;
use crate::space::{MapRequest, RemapRequest};
use hearth_abi::linux::{map, mremap, prot};
use proptest::prelude::*;
use std::collections::BTreeMap;

/// 64 MiB.
const FRAMES: u64 = 16_384;
const AT: u64 = 0x10_0000_0000;
const MIB: u64 = 1 << 20;

fn request(address: u64, length: u64, flags: u64) -> MapRequest {
    MapRequest {
        address,
        length,
        protection: prot::READ | prot::WRITE,
        flags: map::PRIVATE | map::ANONYMOUS | flags,
        fd: -1,
    }
}

fn write(fake: &mut Fake, program: &mut Program, address: u64, byte: u8) {
    program.touch(fake, address, Access::Write).unwrap();
    let to = UserSlice::new(address, 1).unwrap();
    program.memory.copy_to(fake, to, &[byte], 0).unwrap();
}

fn read(fake: &mut Fake, program: &mut Program, address: u64) -> u8 {
    program.read(fake, address, 1).unwrap()[0]
}

fn retired(fake: &mut Fake, program: Program) {
    let policy = Policy {
        keep: false,
        ..Policy::default()
    };
    let (kept, _) = program.memory.retire(fake, &policy);
    assert!(kept.is_none());
    assert_eq!(fake.frames.usage().user, 0);
    fake.frames.check().unwrap();
}

#[test]
fn a_first_touch_maps_two_mebibytes_where_all_of_them_are_the_programs() {
    let mut fake = Fake::with(FRAMES);
    let mut program = Program::start(&mut fake, 1);
    // Neither its beginning nor its end are at a multiple.
    let fixed = request(AT + MIB, 4 * MIB, map::FIXED);
    program.memory.mmap(&mut fake, fixed).unwrap();
    let before = program.memory.faults().zero;
    for at in [AT + MIB, AT + 2 * MIB, AT + 3 * MIB, AT + 4 * MIB] {
        write(&mut fake, &mut program, at, 7);
    }
    assert_eq!(program.memory.pages_large(), 1);
    assert_eq!(
        program.memory.faults().zero - before,
        3,
        "one for both in the middle"
    );
    for (at, byte) in [
        (AT + 2 * MIB, 7),
        (AT + 2 * MIB + 4096, 0),
        (AT + 4 * MIB - 1, 0),
    ] {
        assert_eq!(read(&mut fake, &mut program, at), byte);
    }
    retired(&mut fake, program);
}

#[test]
fn what_is_mapped_without_an_address_begins_at_a_multiple_and_stacks_stay_small() {
    let mut fake = Fake::with(FRAMES);
    let mut program = Program::start(&mut fake, 1);
    for (length, flags, large) in [
        (3 * MIB, 0, 1),
        (4096, 0, 1),
        (8 * MIB, map::STACK, 1),
        (4096, map::HUGETLB, 2),
    ] {
        let mapped = program.memory.mmap(&mut fake, request(0, length, flags));
        let at = mapped.unwrap();
        assert!(length < 2 * MIB && flags == 0 || at.is_multiple_of(LARGE_PAGE_SIZE));
        write(&mut fake, &mut program, at, 1);
        assert_eq!(
            program.memory.pages_large(),
            large,
            "{length:#x} {flags:#x}"
        );
    }
    let odd = request(AT + 4096, MIB, map::HUGETLB | map::FIXED);
    assert_eq!(program.memory.mmap(&mut fake, odd), Err(Errno::EINVAL));
    retired(&mut fake, program);
}

#[test]
fn half_of_the_memory_stays_for_small_pages_and_a_limit_holds() {
    let mut fake = Fake::with(FRAMES);
    let mut program = Program::start(&mut fake, 1);
    let whole = request(AT, 48 * MIB, map::FIXED);
    program.memory.mmap(&mut fake, whole).unwrap();
    for index in 0..24 {
        write(&mut fake, &mut program, AT + index * 2 * MIB, 1);
    }
    let large = program.memory.pages_large();
    assert!((14..=16).contains(&large), "{large} of 16");
    // What is given back can be had again.
    program.memory.munmap(&mut fake, AT, 48 * MIB).unwrap();
    assert_eq!(program.memory.pages_large(), 0);
    let whole = request(AT, 4 * MIB, map::FIXED);
    program.memory.mmap(&mut fake, whole).unwrap();
    write(&mut fake, &mut program, AT, 1);
    assert_eq!(program.memory.pages_large(), 1);
    assert_eq!(read(&mut fake, &mut program, AT + MIB), 0, "scrubbed");
    retired(&mut fake, program);
}

#[derive(Clone, Debug)]
enum Step {
    Write(u64, u8),
    Unmap(u64, u64),
    Discard(u64, u64),
    Protect(u64, u64, bool),
    Move(u64, u64),
}

fn step() -> impl Strategy<Value = Step> {
    // Pages of the 8 MiB that the steps are about.
    let page = || 0..2048_u64;
    let length = || prop_oneof![1..8_u64, Just(512), 500..530_u64, 1000..1100_u64];
    prop_oneof![
        5 => (page(), 1..=255_u8).prop_map(|(page, byte)| Step::Write(page, byte)),
        1 => (page(), length()).prop_map(|(page, pages)| Step::Unmap(page, pages)),
        1 => (page(), length()).prop_map(|(page, pages)| Step::Discard(page, pages)),
        1 => (page(), length(), any::<bool>()).prop_map(|(p, n, on)| Step::Protect(p, n, on)),
        1 => (page(), length()).prop_map(|(page, pages)| Step::Move(page, pages)),
    ]
}

proptest! {
    /// Whatever is unmapped, dropped, protected and moved in between: a page holds what was written
    /// to it last, or zeros; and nothing is lost.
    #[test]
    fn a_program_sees_the_same_memory(steps in prop::collection::vec(step(), 1..40)) {
        let mut fake = Fake::with(FRAMES);
        let mut program = Program::start(&mut fake, 1);
        let at = |page: u64| AT + page * PAGE_SIZE;
        let map_again = |fake: &mut Fake, program: &mut Program, page: u64, pages: u64| {
            let again = request(at(page), pages * PAGE_SIZE, map::FIXED);
            program.memory.mmap(fake, again).unwrap();
        };
        map_again(&mut fake, &mut program, 0, 4096);
        let mut model: BTreeMap<u64, u8> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Write(page, byte) => {
                    write(&mut fake, &mut program, at(page), byte);
                    model.insert(page, byte);
                }
                Step::Unmap(page, pages) => {
                    let length = pages * PAGE_SIZE;
                    program.memory.munmap(&mut fake, at(page), length).unwrap();
                    map_again(&mut fake, &mut program, page, pages);
                    model.retain(|&found, _| found < page || found >= page + pages);
                }
                Step::Discard(page, pages) => {
                    let length = pages * PAGE_SIZE;
                    program.memory.discard(&mut fake, at(page), length).unwrap();
                    model.retain(|&found, _| found < page || found >= page + pages);
                }
                Step::Protect(page, pages, on) => {
                    let (read, all) = (prot::READ, prot::READ | prot::WRITE);
                    let length = pages * PAGE_SIZE;
                    let changed = program.memory.mprotect(&mut fake, at(page), length, read);
                    changed.unwrap();
                    if on {
                        prop_assert!(program.touch(&mut fake, at(page), Access::Write).is_err());
                    }
                    let changed = program.memory.mprotect(&mut fake, at(page), length, all);
                    changed.unwrap();
                }
                Step::Move(page, pages) => {
                    // To another place of another alignment, and back.
                    let there = at(10_000) + PAGE_SIZE;
                    let length = pages * PAGE_SIZE;
                    for (from, to) in [(at(page), there), (there, at(page))] {
                        let moves = RemapRequest {
                            address: from,
                            length,
                            new_length: length,
                            flags: mremap::MAYMOVE | mremap::FIXED,
                            new_address: to,
                        };
                        program.memory.mremap(&mut fake, &moves).unwrap();
                    }
                }
            }
        }
        for page in 0..4096 {
            let byte = model.get(&page).copied().unwrap_or(0);
            // Only what was written costs a page.
            if byte != 0 || page % 97 == 0 {
                prop_assert_eq!(read(&mut fake, &mut program, at(page)), byte, "page {}", page);
            }
        }
        retired(&mut fake, program);
    }
}
