//! Files in a program's memory: what mappings show, who owns which frame, and what Linux says about
//! the rest.

use super::*;
use crate::addr::PhysAddr;
use crate::frames::State;
use crate::objects::{Kept, ObjectId, Objects, Part, Spec};
use crate::program::tests::{Fake, Program};
use crate::retention::Policy;
use hearth_abi::linux::{map, prot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A file of 21 pages, the last of them 1,000 bytes.
const BYTES: u64 = 20 * PAGE_SIZE + 1_000;

fn contents(bytes: u64) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at / 3 + at / 4096) as u8 | 1)
        .collect()
}

/// A program that may map one file.
fn start(machine: &mut Fake) -> (Objects, Program) {
    let mut objects = Objects::new(u64::MAX);
    let id = ObjectId([3; 32]);
    let spec = Spec::new(id, BYTES, 12, Kept::File);
    objects.create(machine, spec).unwrap();
    for (number, block) in contents(BYTES).chunks(4096).enumerate() {
        let part = Part::Data(number as u32);
        objects.write(machine, &id, part, block).unwrap();
    }
    let held = objects.hold(&id).unwrap();
    let mut program = Program::start(machine, 1);
    program.memory.set_files(std::vec![objects.index(&held)]);
    (objects, program)
}

fn map(
    machine: &mut Fake,
    program: &mut Program,
    (length, offset): (u64, u64),
    protection: u64,
    flags: u64,
) -> Result<u64, Errno> {
    let request = MapRequest {
        address: 0,
        length,
        protection,
        flags,
        fd: 3,
    };
    let file = FileMap {
        file: 0,
        bytes: BYTES,
        offset,
    };
    program.memory.mmap_file(machine, request, file)
}

/// The frame behind an address, when one is mapped.
fn frame(machine: &mut Fake, program: &Program, at: u64) -> Option<PhysAddr> {
    let page = VirtAddr::new(at);
    let leaf = program.memory.table().translate(&machine.mem, page)?;
    Some(leaf.frame)
}

#[test]
fn mappings_show_the_file_from_the_same_frames() {
    let mut machine = Fake::new();
    let (objects, mut program) = start(&mut machine);
    let file = contents(BYTES);
    let before = machine.frames.usage();
    let charged = program.memory.charged();
    let shared = map(
        &mut machine,
        &mut program,
        (BYTES, 0),
        prot::READ,
        map::SHARED,
    )
    .unwrap();
    let private = map(
        &mut machine,
        &mut program,
        (BYTES, 0),
        prot::READ,
        map::PRIVATE,
    )
    .unwrap();
    for at in [shared, private] {
        let seen = program.read(&mut machine, at, BYTES as usize).unwrap();
        assert!(seen == file, "another content at {at:#x}");
        // Behind the end in the last page are zeros.
        let rest = 4096 - BYTES % 4096;
        let tail = program.read(&mut machine, at + BYTES, rest as usize);
        assert!(tail.unwrap().iter().all(|&byte| byte == 0));
    }
    let index = |page: u64| objects.page(&machine.mem, &ObjectId([3; 32]), page);
    let frames: Vec<_> = (0..21).map(index).collect();
    for (page, own) in (0..).zip(frames) {
        for at in [shared, private] {
            assert_eq!(frame(&mut machine, &program, at + page * PAGE_SIZE), own);
        }
    }
    assert_eq!(program.memory.charged(), charged, "charged for the file");
    assert_eq!(machine.frames.usage().user, before.user);
    // 16 pages come with the first touch of an aligned 64 KiB.
    assert!(program.memory.faults().held <= 6);
    machine.frames.check_tags().unwrap();
}

#[test]
fn what_is_written_is_a_copy() {
    let mut machine = Fake::new();
    let (mut objects, mut program) = start(&mut machine);
    let file = contents(BYTES);
    let both = prot::READ | prot::WRITE;
    let at = map(&mut machine, &mut program, (BYTES, 0), both, map::PRIVATE).unwrap();
    let other = map(
        &mut machine,
        &mut program,
        (BYTES, 0),
        prot::READ,
        map::SHARED,
    )
    .unwrap();
    // One page is read before it is written, one is not.
    program.read(&mut machine, at, 1).unwrap();
    let before = machine.frames.usage().user;
    for place in [5, 17 * PAGE_SIZE + 9] {
        program.write(&mut machine, at + place, b"changed").unwrap();
        let seen = program.read(&mut machine, at + place - 5, 14).unwrap();
        assert_eq!(seen[5..12], *b"changed");
        let place = place as usize;
        assert_eq!(seen[..5], file[place - 5..place]);
        assert_eq!(seen[12..], file[place + 7..place + 9]);
    }
    assert_eq!(machine.frames.usage().user, before + 2);
    let seen = program.read(&mut machine, other, BYTES as usize).unwrap();
    assert!(seen == file, "the file itself was written");
    // Dropped contents are the file's again.
    program.memory.discard(&mut machine, at, PAGE_SIZE).unwrap();
    assert_eq!(program.read(&mut machine, at + 5, 7).unwrap(), file[5..12]);
    assert_eq!(machine.frames.usage().user, before + 1);
    program.memory.munmap(&mut machine, at, BYTES).unwrap();
    program.memory.munmap(&mut machine, other, BYTES).unwrap();
    assert_eq!(machine.frames.usage().user, before);
    assert_eq!(machine.frames.usage().object, objects.pages());
    let (retained, counts) = program.memory.retire(&mut machine, &Policy::default());
    assert_eq!(counts.discarded, 0);
    assert!(retained.is_none(), "no page of the program was touched");
    machine.frames.check_tags().unwrap();
    assert_eq!(machine.frames.usage().user, 0);
    objects.drop_object(&mut machine, &ObjectId([3; 32]));
    assert_eq!(machine.frames.usage().object, 0);
}

#[test]
fn a_program_that_ends_leaves_the_file_alone() {
    let mut machine = Fake::new();
    let (objects, mut program) = start(&mut machine);
    let both = prot::READ | prot::WRITE;
    for flags in [map::SHARED, map::PRIVATE] {
        let protection = if flags == map::PRIVATE {
            both
        } else {
            prot::READ
        };
        let at = map(&mut machine, &mut program, (BYTES, 0), protection, flags).unwrap();
        program.read(&mut machine, at, BYTES as usize).unwrap();
    }
    let at = map(
        &mut machine,
        &mut program,
        (PAGE_SIZE, 0),
        both,
        map::PRIVATE,
    )
    .unwrap();
    program.write(&mut machine, at, b"mine").unwrap();
    let (retained, counts) = program.memory.retire(&mut machine, &Policy::nothing());
    assert!(retained.is_none());
    assert_eq!((counts.discarded, counts.released), (0, 1));
    machine.frames.check_tags().unwrap();
    assert_eq!(machine.frames.usage().user, 0);
    let mut bytes = std::vec![0; BYTES as usize];
    let there = objects.read_bytes(&machine.mem, &ObjectId([3; 32]), 0, &mut bytes);
    assert!(there && bytes == contents(BYTES));
}

/// A page of the program's data that was written to is kept aside as the file has it. What the
/// program maps over its copy is not the program's to give back.
#[test]
fn a_file_over_written_data_stays_the_files_own() {
    let mut machine = Fake::new();
    let (mut objects, mut program) = start(&mut machine);
    let data = 0x40_5000;
    program.write(&mut machine, data, b"mine").unwrap();
    let request = MapRequest {
        address: data,
        length: PAGE_SIZE,
        protection: prot::READ,
        flags: map::PRIVATE | map::FIXED,
        fd: 3,
    };
    let file = FileMap {
        file: 0,
        bytes: BYTES,
        offset: 0,
    };
    program
        .memory
        .mmap_file(&mut machine, request, file)
        .unwrap();
    program.read(&mut machine, data, 1).unwrap();
    let held = objects.pages();
    let (retained, counts) = program.memory.retire(&mut machine, &Policy::default());
    assert_eq!(machine.frames.usage().object, held);
    let mut bytes = std::vec![0; BYTES as usize];
    let there = objects.read_bytes(&machine.mem, &ObjectId([3; 32]), 0, &mut bytes);
    assert!(there && bytes == contents(BYTES));
    // The page of the program is kept for its next launch all the same.
    assert_eq!((counts.kept_data, counts.discarded), (1, 0));
    retained.unwrap().discard(&mut machine);
    machine.frames.check_tags().unwrap();
    objects.drop_object(&mut machine, &ObjectId([3; 32]));
    let usage = machine.frames.usage();
    assert_eq!((usage.object, usage.user, usage.retained), (0, 0, 0));
}

#[test]
fn behind_the_end_is_a_bus_error() {
    let mut machine = Fake::new();
    let (_objects, mut program) = start(&mut machine);
    let length = 23 * PAGE_SIZE;
    let at = map(
        &mut machine,
        &mut program,
        (length, 0),
        prot::READ,
        map::SHARED,
    )
    .unwrap();
    let access = |program: &mut Program, machine: &mut Fake, at| program.read(machine, at, 1);
    assert_eq!(
        access(&mut program, &mut machine, at + 21 * PAGE_SIZE - 1),
        Ok(std::vec![0])
    );
    for place in [at + 21 * PAGE_SIZE, at + length - 1] {
        assert_eq!(
            access(&mut program, &mut machine, place),
            Err(Cause::BeyondFile)
        );
    }
    assert_eq!(Cause::BeyondFile.signal().name(), "SIGBUS");
    assert!(
        Cause::BeyondFile.is_bad_address(),
        "a system call answers EFAULT"
    );
    // Wholly behind the end it is a mapping too.
    let far = (PAGE_SIZE, 64 * PAGE_SIZE);
    let at = map(&mut machine, &mut program, far, prot::READ, map::PRIVATE).unwrap();
    assert_eq!(
        access(&mut program, &mut machine, at),
        Err(Cause::BeyondFile)
    );
}

#[test]
fn protections_are_those_of_a_file_opened_for_reading() {
    let mut machine = Fake::new();
    let (_objects, mut program) = start(&mut machine);
    let both = prot::READ | prot::WRITE;
    let whole = (BYTES, 0);
    let refused = [
        (whole, both, map::SHARED, Errno::EACCES),
        (whole, both | prot::EXEC, map::PRIVATE, Errno::EACCES),
        (whole, prot::READ, 0, Errno::EINVAL),
        ((0, 0), prot::READ, map::SHARED, Errno::EINVAL),
        ((BYTES, 100), prot::READ, map::SHARED, Errno::EINVAL),
        (
            (PAGE_SIZE, 0u64.wrapping_sub(PAGE_SIZE)),
            prot::READ,
            map::SHARED,
            Errno::EOVERFLOW,
        ),
        ((u64::MAX - 100, 0), prot::READ, map::SHARED, Errno::ENOMEM),
    ];
    for (range, protection, flags, errno) in refused {
        let mapped = map(&mut machine, &mut program, range, protection, flags);
        assert_eq!(mapped, Err(errno), "{range:?} {protection} {flags}");
    }
    let shared = map(&mut machine, &mut program, whole, prot::READ, map::SHARED).unwrap();
    let memory = &mut program.memory;
    let second = shared + PAGE_SIZE;
    for at in [shared, second] {
        let changed = memory.mprotect(&mut machine, at, PAGE_SIZE, both);
        assert_eq!(changed, Err(Errno::EACCES));
    }
    let private = map(&mut machine, &mut program, whole, prot::NONE, map::PRIVATE).unwrap();
    let refused = program.read(&mut machine, private, 1);
    assert_eq!(refused, Err(Cause::Protection(Protection::None)));
    // Read first, then writable: the page is shown read-only until it is copied.
    let memory = &mut program.memory;
    memory
        .mprotect(&mut machine, private, BYTES, prot::READ)
        .unwrap();
    program.read(&mut machine, private, 100).unwrap();
    let memory = &mut program.memory;
    memory.mprotect(&mut machine, private, BYTES, both).unwrap();
    let object = frame(&mut machine, &program, private).unwrap();
    assert_eq!(machine.frames.state(object).0, State::Object);
    program.write(&mut machine, private, b"own").unwrap();
    let own = frame(&mut machine, &program, private).unwrap();
    assert_eq!(machine.frames.state(own).0, State::User);
    let memory = &mut program.memory;
    memory
        .mprotect(&mut machine, private, BYTES, prot::NONE)
        .unwrap();
    memory
        .mprotect(&mut machine, private, BYTES, prot::READ)
        .unwrap();
    let seen = program.read(&mut machine, private, 4).unwrap();
    assert_eq!(seen, [b'o', b'w', b'n', contents(4)[3]]);
    machine.frames.check_tags().unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Map {
        first: u64,
        pages: u64,
        writable: bool,
    },
    Unmap {
        first: u64,
        pages: u64,
    },
    Protect {
        first: u64,
        pages: u64,
        writable: bool,
    },
    Write {
        page: u64,
        byte: u8,
    },
    Read(u64),
    Discard(u64),
}

/// Pages of the window that mappings are made in, and where it is.
const WINDOW: u64 = 24;
const AT: u64 = 0x1000_0000;

fn step() -> impl Strategy<Value = Step> {
    let range = || (0..WINDOW, 1..8u64);
    prop_oneof![
        (range(), any::<bool>()).prop_map(|((first, pages), writable)| Step::Map {
            first,
            pages,
            writable
        }),
        range().prop_map(|(first, pages)| Step::Unmap { first, pages }),
        (range(), any::<bool>()).prop_map(|((first, pages), writable)| Step::Protect {
            first,
            pages,
            writable
        }),
        (0..WINDOW, any::<u8>()).prop_map(|(page, byte)| Step::Write { page, byte }),
        (0..WINDOW).prop_map(Step::Read),
        (0..WINDOW).prop_map(Step::Discard),
    ]
}

/// A page of the window: what is in its first byte, and whether it may be written.
type Model = BTreeMap<u64, (Option<u8>, bool)>;

fn carry_out(machine: &mut Fake, program: &mut Program, model: &mut Model, step: &Step) {
    let memory = &mut program.memory;
    let address = |page: u64| AT + page * PAGE_SIZE;
    // A mapping shows the page of the file with the same number, three pages later in it.
    let first_byte = |page: u64| contents(BYTES).get((page + 3) as usize * 4096).copied();
    let bits = |writable: &bool| prot::READ | if *writable { prot::WRITE } else { 0 };
    match step {
        Step::Map {
            first,
            pages,
            writable,
        } => {
            let request = MapRequest {
                address: address(*first),
                length: pages * PAGE_SIZE,
                protection: bits(writable),
                flags: map::PRIVATE | map::FIXED,
                fd: 3,
            };
            let file = FileMap {
                file: 0,
                bytes: BYTES,
                offset: (first + 3) * PAGE_SIZE,
            };
            memory.mmap_file(machine, request, file).unwrap();
            for page in *first..first + pages {
                model.insert(page, (first_byte(page), *writable));
            }
        }
        Step::Unmap { first, pages } => {
            memory
                .munmap(machine, address(*first), pages * PAGE_SIZE)
                .unwrap();
            model.retain(|page, _| !(*first..first + pages).contains(page));
        }
        Step::Protect {
            first,
            pages,
            writable,
        } => {
            let range = *first..first + pages;
            let covered = range.clone().all(|page| model.contains_key(&page));
            let length = pages * PAGE_SIZE;
            let done = memory.mprotect(machine, address(*first), length, bits(writable));
            assert_eq!(done.is_ok(), covered);
            if covered {
                range.for_each(|page| model.get_mut(&page).unwrap().1 = *writable);
            }
        }
        Step::Write { page, byte } => {
            let written = program.write(machine, address(*page), &[*byte]);
            match model.get_mut(page) {
                Some((content @ Some(_), true)) => {
                    assert_eq!(written, Ok(()));
                    *content = Some(*byte);
                }
                _ => assert!(written.is_err()),
            }
        }
        Step::Read(page) => {
            let read = program.read(machine, address(*page), 1).ok();
            let known = model.get(page).and_then(|(content, _)| *content);
            assert_eq!(read.map(|bytes| bytes[0]), known, "page {page}");
        }
        Step::Discard(page) => {
            memory.discard(machine, address(*page), PAGE_SIZE).unwrap();
            if let Some((content, _)) = model.get_mut(page) {
                *content = first_byte(*page);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, .. ProptestConfig::default() })]

    #[test]
    fn private_mappings_are_the_file_until_they_are_written(
        steps in proptest::collection::vec(step(), 1..80),
    ) {
        let mut machine = Fake::new();
        let (objects, mut program) = start(&mut machine);
        let mut model = Model::new();
        for step in &steps {
            carry_out(&mut machine, &mut program, &mut model, step);
            machine.frames.check_tags().unwrap();
            prop_assert_eq!(machine.frames.usage().object, objects.pages());
        }
        let mut bytes = std::vec![0; BYTES as usize];
        objects.read_bytes(&machine.mem, &ObjectId([3; 32]), 0, &mut bytes);
        prop_assert!(bytes == contents(BYTES), "a program wrote to the file");
        let (retained, _) = program.memory.retire(&mut machine, &Policy::nothing());
        prop_assert!(retained.is_none());
        prop_assert_eq!(machine.frames.usage().user, 0);
    }
}
