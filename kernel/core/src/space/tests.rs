//! Regions against a plain model: a map from page to protection and origin.

use super::*;
use crate::loader::synthetic;
use hearth_abi::errno::Errno;
use hearth_abi::linux::{map, mremap, prot};
use proptest::prelude::*;
use std::vec::Vec;

const MEMORY: u64 = 32 << 20;
const PRIVATE: u64 = map::PRIVATE | map::ANONYMOUS;

fn space() -> Space {
    Space::new(&synthetic::image(), MEMORY, true)
}

fn request(address: u64, length: u64, protection: u64, flags: u64) -> MapRequest {
    MapRequest {
        address,
        length,
        protection,
        flags,
        fd: -1,
    }
}

#[test]
fn brk_returns_exactly_what_was_asked() {
    let mut space = space();
    let start = 0x40_9000;
    assert_eq!(space.brk(0).0, start);
    assert_eq!(space.brk(start + 0x1235).0, start + 0x1235);
    assert_eq!(space.find(start + 0x1fff).unwrap().kind, Kind::Heap);
    assert!(space.find(start + 0x2000).is_none());
    assert_eq!(space.brk(start + 0x21_0007).0, start + 0x21_0007);
    let (now, released) = space.brk(start + 1);
    assert_eq!(now, start + 1);
    let expected = Pages {
        start: start + 0x1000,
        end: start + 0x21_1000,
    };
    assert_eq!(released, expected);
    // Below the start, beyond memory, and into another mapping: the break stays.
    assert_eq!(space.brk(start - 1).0, start + 1);
    assert_eq!(space.brk(start + MEMORY + 0x2000).0, start + 1);
    assert_eq!(space.brk(u64::MAX).0, start + 1);
    let fixed = request(start + 0x10000, 0x1000, prot::READ, PRIVATE | map::FIXED);
    space.mmap(fixed).unwrap();
    assert_eq!(space.brk(start + 0x10001).0, start + 1);
    assert_eq!(space.brk(start + 0x10000).0, start + 0x10000);
}

#[test]
fn mremap_takes_what_is_one_mapping() {
    let mut space = space();
    let at = 0x10_0000_0000;
    let page = 0x1000;
    let fixed = PRIVATE | map::FIXED;
    space
        .mmap(request(at, 4 * page, prot::READ | prot::WRITE, fixed))
        .unwrap();
    space
        .mmap(request(at + 4 * page, page, prot::READ, fixed))
        .unwrap();
    let asks = |address, length, new_length, flags, new_address| RemapRequest {
        address,
        length,
        new_length,
        flags,
        new_address,
    };
    let moves = mremap::MAYMOVE | mremap::FIXED;
    for (asked, errno) in [
        (asks(at + 1, page, page, 0, 0), Errno::EINVAL),
        (asks(at, 0, page, 0, 0), Errno::EINVAL),
        (asks(at, page, 0, 0, 0), Errno::EINVAL),
        (asks(at, page, page, mremap::FIXED, 0), Errno::EINVAL),
        (asks(at, page, page, 8, 0), Errno::EINVAL),
        (asks(at, page, page, moves, at), Errno::EINVAL),
        (asks(at, page, page, moves, 0), Errno::EINVAL),
        (asks(at, page, page, moves, at + 1), Errno::EINVAL),
        (asks(at + 0x100_0000, page, page, 0, 0), Errno::EFAULT),
        (asks(at, 5 * page, 6 * page, 0, 0), Errno::EFAULT),
        (asks(at, 4 * page, 5 * page, 0, 0), Errno::ENOMEM),
        (asks(at, 4 * page, MEMORY + page, 1, 0), Errno::ENOMEM),
        // A segment of the program.
        (asks(0x40_0000, page, 2 * page, 1, 0), Errno::EINVAL),
        (asks(0x40_0000, page, page, moves, at), Errno::EINVAL),
    ] {
        assert_eq!(space.plan_remap(&asked), Err(errno), "{asked:?}");
    }
    let plan = space
        .plan_remap(&asks(at, 4 * page, 2 * page, 0, 0))
        .unwrap();
    assert_eq!((plan.address(), plan.moved()), (at, None));
    let cut = Pages {
        start: at + 2 * page,
        end: at + 4 * page,
    };
    assert_eq!(plan.cut(), cut);
    space.remap(&plan);
    assert_eq!(space.find(at).unwrap().end, at + 2 * page);
    assert!(space.find(at + 2 * page).is_none());
    assert_eq!(
        space.find(at + 4 * page).unwrap().protection,
        Protection::Read
    );
}

#[test]
fn a_mapping_of_a_file_shows_the_same_of_it_elsewhere() {
    let mut space = space();
    let file = FileMap {
        file: 2,
        bytes: 0x2800,
        offset: 0x1000,
    };
    let mapped = space.mmap_file(request(0, 0x4000, prot::READ, map::PRIVATE), file);
    let at = mapped.unwrap().address;
    let to = 0x10_0000_0000;
    let plan = space.plan_remap(&RemapRequest {
        address: at,
        length: 0x4000,
        new_length: 0x4000,
        flags: mremap::MAYMOVE | mremap::FIXED,
        new_address: to,
    });
    space.remap(&plan.unwrap());
    let found = space.find(to + 0x1000).unwrap().kind;
    let expected = Kind::Object {
        file: 2,
        shared: false,
        shift: 0x1000u64.wrapping_sub(to),
        file_end: to + 0x2000,
    };
    assert_eq!(found, expected);
    assert!(space.find(at).is_none());
}

#[test]
fn what_go_and_glibc_reserve_commits_nothing() {
    let mut space = space();
    let none = PRIVATE | map::NORESERVE;
    // A glibc arena: 128 MiB reserved, the start made usable step by step.
    let arena = space.mmap(request(0, 128 << 20, prot::NONE, none)).unwrap();
    let before = space.len();
    for step in 1..100 {
        space
            .mprotect(arena.address, step * 0x21000, prot::READ | prot::WRITE)
            .unwrap();
        assert_eq!(space.len(), before + 1, "neighbours are not joined");
    }
    // Go: a hint that is taken, then MAP_FIXED inside it.
    let hint = 0xc0_0000_0000;
    let heap = space
        .mmap(request(hint, 64 << 20, prot::NONE, PRIVATE))
        .unwrap();
    assert_eq!(heap.address, hint);
    let inside = request(
        hint,
        4 << 20,
        prot::READ | prot::WRITE,
        PRIVATE | map::FIXED,
    );
    let mapped = space.mmap(inside).unwrap();
    assert_eq!(mapped.address, hint);
    assert_eq!(
        (mapped.replaced.start, mapped.replaced.end),
        (hint, hint + (4 << 20))
    );
    // The hint is in use now: another place is found.
    let other = space
        .mmap(request(hint, 0x1000, prot::READ, PRIVATE))
        .unwrap();
    assert_ne!(other.address, hint);
    // One mapping beyond the node's memory is refused unless it is only reserved.
    let large = request(0, MEMORY + 1, prot::WRITE, PRIVATE);
    assert_eq!(space.mmap(large), Err(Errno::ENOMEM));
    let flags = PRIVATE | map::NORESERVE;
    assert!(space.mmap(MapRequest { flags, ..large }).is_ok());
}

#[test]
fn wrong_arguments_have_the_errors_of_linux() {
    let mut space = space();
    let fixed = PRIVATE | map::FIXED;
    let cases = [
        (request(0, 0, 1, PRIVATE), Errno::EINVAL),
        (request(0, 1, 1, map::ANONYMOUS), Errno::EINVAL),
        (request(0, 1, 1, map::PRIVATE), Errno::EBADF),
        (request(1, 1, 1, fixed), Errno::EINVAL),
        (request(0, 1, 1, fixed), Errno::EPERM),
        (request(layout::USER_TOP, 1, 1, fixed), Errno::ENOMEM),
        (request(0, u64::MAX, 0, PRIVATE), Errno::ENOMEM),
        (request(0, 1 << 47, 0, PRIVATE), Errno::ENOMEM),
        (request(0, 1, 6, PRIVATE), Errno::EACCES),
        (
            request(0x40_1000, 1, 1, PRIVATE | map::FIXED_NOREPLACE),
            Errno::EEXIST,
        ),
        (
            request(0x1000_1000, 1, 3, fixed | map::HUGETLB),
            Errno::EINVAL,
        ),
    ];
    for (request, error) in cases {
        assert_eq!(space.mmap(request), Err(error), "{request:?}");
    }
    let file = MapRequest {
        fd: 0,
        ..request(0, 1, 1, map::PRIVATE)
    };
    assert_eq!(space.mmap(file), Err(Errno::ENODEV));
    assert_eq!(space.munmap(0x40_1001, 1), Err(Errno::EINVAL));
    assert_eq!(space.munmap(0x40_1000, 0), Err(Errno::EINVAL));
    assert_eq!(space.mprotect(0x40_1000, 1, 7), Err(Errno::EACCES));
    assert_eq!(space.mprotect(0x80_0000, 1, 1), Err(Errno::ENOMEM));
    assert_eq!(space.mprotect(layout::MMAP_TOP, 1, 3), Err(Errno::ENOMEM));
    assert!(space.mprotect(0x40_1000, 0, 1).is_ok());
}

#[test]
fn what_a_file_held_is_not_made_writable_again() {
    let mut space = space();
    let readable = request(0, 4 * PAGE_SIZE, prot::READ, PRIVATE);
    let at = space.mmap(readable).unwrap().address;
    space.seal(at + PAGE_SIZE, PAGE_SIZE + 1).unwrap();
    let writable = prot::READ | prot::WRITE;
    for (page, may) in [(0, true), (1, false), (2, false), (3, true)] {
        let made = space.mprotect(at + page * PAGE_SIZE, PAGE_SIZE, writable);
        assert_eq!(made.err(), (!may).then_some(Errno::EACCES), "page {page}");
    }
    assert!(space.mprotect(at, 4 * PAGE_SIZE, prot::READ).is_ok());
    // What is mapped in its place is another matter.
    space.munmap(at, 4 * PAGE_SIZE).unwrap();
    let again = space.mmap(readable).unwrap().address;
    assert!(space.mprotect(again, 4 * PAGE_SIZE, writable).is_ok());
}

#[test]
fn code_that_was_made_writable_is_not_retained() {
    let mut space = space();
    space
        .mprotect(0x40_1000, 0x1000, prot::READ | prot::WRITE)
        .unwrap();
    space
        .mprotect(0x40_1000, 0x1000, prot::READ | prot::EXEC)
        .unwrap();
    let class = |space: &Space, at| match space.find(at).unwrap().kind {
        Kind::File { class, .. } => class,
        other => panic!("{other:?}"),
    };
    assert_eq!(class(&space, 0x40_1000), Class::Private);
    assert_eq!(class(&space, 0x40_2000), Class::FileExecute);
}

#[test]
fn the_table_is_bounded() {
    let mut space = space();
    let flags = PRIVATE | map::FIXED;
    let mut address = 0x1000_0000;
    let error = loop {
        if let Err(error) = space.mmap(request(address, 0x1000, prot::READ, flags)) {
            break error;
        }
        address += 0x2000;
    };
    assert_eq!(error, Errno::ENOMEM);
    assert_eq!(space.len(), REGIONS_MAX);
    // Neither a split nor a larger heap gets past the bound; removing whole regions works.
    assert_eq!(space.munmap(0x40_2000, 0x1000), Err(Errno::ENOMEM));
    assert_eq!(
        space.mprotect(0x40_2000, 0x1000, prot::READ),
        Err(Errno::ENOMEM)
    );
    assert_eq!(space.brk(0x40_9001).0, 0x40_9000);
    space.munmap(0x1000_0000, 0x3000).unwrap();
    assert_eq!(space.len(), REGIONS_MAX - 2);
}

#[derive(Clone, Debug)]
enum Step {
    Map {
        page: u64,
        pages: u64,
        protection: u64,
        fixed: bool,
    },
    Unmap {
        page: u64,
        pages: u64,
    },
    Protect {
        page: u64,
        pages: u64,
        protection: u64,
    },
    Break {
        bytes: u64,
    },
}

/// Pages around the image, the heap and free space: from 0x3f0000 on.
const FIRST: u64 = 0x3f_0000;
const COUNT: u64 = 64;

fn step() -> impl Strategy<Value = Step> {
    let page = 0..COUNT;
    let pages = 1u64..12;
    let protection = prop_oneof![Just(0u64), Just(1), Just(3), Just(5)];
    prop_oneof![
        3 => (page.clone(), pages.clone(), protection.clone(), any::<bool>()).prop_map(
            |(page, pages, protection, fixed)| Step::Map { page, pages, protection, fixed }
        ),
        2 => (page.clone(), pages.clone()).prop_map(|(page, pages)| Step::Unmap { page, pages }),
        2 => (page, pages, protection).prop_map(
            |(page, pages, protection)| Step::Protect { page, pages, protection }
        ),
        1 => (0u64..0x30000).prop_map(|bytes| Step::Break { bytes }),
    ]
}

/// What a page is, position for position: protection and origin.
type Model = std::collections::BTreeMap<u64, (Protection, Kind)>;

fn pages_of(space: &Space) -> Model {
    let mut model = Model::new();
    for region in space.regions().filter(|r| r.end < 1 << 40) {
        for page in (region.start..region.end).step_by(PAGE_SIZE as usize) {
            assert!(
                model
                    .insert(page, (region.protection, region.kind))
                    .is_none()
            );
        }
    }
    model
}

proptest! {
    #[test]
    fn agrees_with_the_model(steps in proptest::collection::vec(step(), 0..60)) {
        let mut space = space();
        let mut model = pages_of(&space);
        let mut heap_end = 0x40_9000u64;
        let at = |page: u64| FIRST + page * PAGE_SIZE;
        for step in steps {
            match step {
                Step::Map { page, pages, protection, fixed } => {
                    let flag = if fixed { map::FIXED } else { map::FIXED_NOREPLACE };
                    let wanted = request(at(page), pages * PAGE_SIZE, protection, PRIVATE | flag);
                    let range = at(page)..at(page + pages);
                    let taken = model.range(range.clone()).next().is_some();
                    let result = space.mmap(wanted);
                    if taken && !fixed {
                        prop_assert_eq!(result, Err(Errno::EEXIST));
                        continue;
                    }
                    prop_assert_eq!(!result.unwrap().replaced.is_empty(), taken);
                    let protection = calls::protection(protection).unwrap();
                    for page in range.step_by(PAGE_SIZE as usize) {
                        model.insert(page, (protection, Kind::Anonymous { large: true, sealed: false }));
                    }
                }
                Step::Unmap { page, pages } => {
                    space.munmap(at(page), pages * PAGE_SIZE).unwrap();
                    model.retain(|&found, _| found < at(page) || found >= at(page + pages));
                }
                Step::Protect { page, pages, protection } => {
                    let range: Vec<u64> =
                        (at(page)..at(page + pages)).step_by(PAGE_SIZE as usize).collect();
                    let covered = range.iter().all(|page| model.contains_key(page));
                    let result = space.mprotect(at(page), pages * PAGE_SIZE, protection);
                    prop_assert_eq!(result.is_ok(), covered);
                    let protection = calls::protection(protection).unwrap();
                    for page in range.iter().filter(|_| covered) {
                        let entry = model.get_mut(page).unwrap();
                        entry.0 = protection;
                        if let (Kind::File { class, .. }, Protection::ReadWrite) =
                            (&mut entry.1, protection)
                            && *class != Class::FileData
                        {
                            *class = Class::Private;
                        }
                    }
                }
                Step::Break { bytes } => {
                    let wanted = 0x40_9000 + bytes;
                    let (old, new) = (page_up(heap_end).unwrap(), page_up(wanted).unwrap());
                    let free = new <= old || model.range(old..new).next().is_none();
                    prop_assert_eq!(space.brk(wanted).0, if free { wanted } else { heap_end });
                    if free {
                        heap_end = wanted;
                        for page in (old..new).step_by(PAGE_SIZE as usize) {
                            model.insert(page, (Protection::ReadWrite, Kind::Heap));
                        }
                        model.retain(|&page, _| page < new || page >= old.max(new));
                    }
                }
            }
            prop_assert_eq!(&pages_of(&space), &model);
            // Neighbours that say the same are one region, except where the image put two.
            prop_assert!(space.len() <= model.len() + 2);
        }
    }
}

#[test]
fn limits_of_the_program_are_kept() {
    let mut space = space();
    let anonymous = |length, protection| request(0, length, protection, PRIVATE);
    let rw = prot::READ | prot::WRITE;
    let data: u64 = space
        .regions()
        .filter(Region::is_data)
        .map(|r| r.end - r.start)
        .sum();
    space.limits.data = data + 3 * PAGE_SIZE;
    let first = space.mmap(anonymous(2 * PAGE_SIZE, rw)).unwrap();
    assert_eq!(space.mmap(anonymous(2 * PAGE_SIZE, rw)), Err(Errno::ENOMEM));
    let quiet = space.mmap(anonymous(2 * PAGE_SIZE, prot::READ)).unwrap();
    let refused = space.mprotect(quiet.address, 2 * PAGE_SIZE, rw);
    assert_eq!(refused, Err(Errno::ENOMEM));
    let (end, _) = space.brk(0);
    assert_eq!(space.brk(end + 2 * PAGE_SIZE).0, end);
    assert_eq!(space.brk(end + PAGE_SIZE).0, end + PAGE_SIZE);
    let grow = RemapRequest {
        address: first.address,
        length: 2 * PAGE_SIZE,
        new_length: 3 * PAGE_SIZE,
        flags: 1,
        new_address: 0,
    };
    assert_eq!(space.plan_remap(&grow), Err(Errno::ENOMEM));
    // What is there may be replaced and made writable once more.
    space.mprotect(first.address, 2 * PAGE_SIZE, rw).unwrap();
    space.munmap(first.address, 2 * PAGE_SIZE).unwrap();
    space.mmap(anonymous(2 * PAGE_SIZE, rw)).unwrap();
    space.limits.all = 0;
    let refused = space.mmap(anonymous(PAGE_SIZE, prot::NONE));
    assert_eq!(refused, Err(Errno::ENOMEM));
}
