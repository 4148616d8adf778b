//! Shared memory objects in a program's memory: what mappings show each other, and what frames are
//! counted and given back.

use super::*;
use crate::program::tests::{Fake, Program};
use crate::retention::Policy;
use crate::space::RemapRequest;
use hearth_abi::linux::{map, mremap, prot};

const RW: u64 = prot::READ | prot::WRITE;
const PAGES: u64 = 6;

/// A program with an object of [`PAGES`] pages.
fn start(machine: &mut Fake) -> Program {
    let mut program = Program::start(machine, 1);
    let memory = &mut program.memory;
    memory
        .resize_shared_memory(machine, 0, PAGES * PAGE_SIZE)
        .unwrap();
    program
}

fn map(
    machine: &mut Fake,
    program: &mut Program,
    (protection, flags): (u64, u64),
    may_write: bool,
) -> Result<u64, Errno> {
    let request = MapRequest {
        address: 0,
        length: PAGES * PAGE_SIZE,
        protection,
        flags,
        fd: 3,
    };
    let shown = SharedMemoryMap {
        object: 0,
        may_write,
        offset: 0,
    };
    program.memory.mmap_shared_memory(machine, request, shown)
}

/// All frames of the program are back.
fn ends(mut machine: Fake, program: Program) {
    let (none, _) = program.memory.retire(&mut machine, &Policy::nothing());
    assert!(none.is_none());
    assert_eq!(machine.frames.usage().user, 0);
    assert_eq!(machine.frames.usage().kernel, 1);
    machine.frames.check().unwrap();
}

#[test]
fn mappings_and_calls_see_what_each_other_writes() {
    let mut machine = Fake::new();
    let mut program = start(&mut machine);
    let first = map(&mut machine, &mut program, (RW, map::SHARED), true).unwrap();
    let second = map(&mut machine, &mut program, (RW, map::SHARED), true).unwrap();
    let before = program.memory.charged().0;
    program.write(&mut machine, first + 4094, b"both").unwrap();
    assert_eq!(
        program.read(&mut machine, second + 4094, 4).unwrap(),
        b"both"
    );
    program.write(&mut machine, second + 5000, b"back").unwrap();
    assert_eq!(
        program.read(&mut machine, first + 5000, 4).unwrap(),
        b"back"
    );
    // Two pages, however many mappings show them.
    assert_eq!(program.memory.charged().0, before + 2);
    let memory = &mut program.memory;
    let mut out = [0; 4];
    memory.read_shared_memory(&mut machine, 0, 5000, &mut out);
    assert_eq!(&out, b"back");
    memory
        .write_shared_memory(&mut machine, 0, 5 * PAGE_SIZE, b"call")
        .unwrap();
    let last = first + 5 * PAGE_SIZE;
    assert_eq!(program.read(&mut machine, last, 4).unwrap(), b"call");
    let memory = &mut program.memory;
    memory
        .munmap(&mut machine, first, PAGES * PAGE_SIZE)
        .unwrap();
    assert!(memory.shows_shared_memory(0));
    memory
        .munmap(&mut machine, second, PAGES * PAGE_SIZE)
        .unwrap();
    assert!(!memory.shows_shared_memory(0));
    assert_eq!(memory.charged().0, before + 3);
    let third = map(&mut machine, &mut program, (prot::READ, map::SHARED), false).unwrap();
    assert_eq!(
        program.read(&mut machine, third + 5000, 4).unwrap(),
        b"back"
    );
    ends(machine, program);
}

#[test]
fn a_private_mapping_is_a_copy_once_written() {
    let mut machine = Fake::new();
    let mut program = start(&mut machine);
    let shared = map(&mut machine, &mut program, (RW, map::SHARED), true).unwrap();
    let private = map(&mut machine, &mut program, (RW, map::PRIVATE), false).unwrap();
    program.write(&mut machine, shared, b"one").unwrap();
    assert_eq!(program.read(&mut machine, private, 3).unwrap(), b"one");
    program.write(&mut machine, private, b"own").unwrap();
    // One that was never read before it is written to.
    program
        .write(&mut machine, shared + PAGE_SIZE, b"two")
        .unwrap();
    program
        .write(&mut machine, private + PAGE_SIZE, b"T")
        .unwrap();
    assert_eq!(program.read(&mut machine, shared, 3).unwrap(), b"one");
    assert_eq!(
        program.read(&mut machine, private + PAGE_SIZE, 3).unwrap(),
        b"Two"
    );
    assert_eq!(
        program.read(&mut machine, shared + PAGE_SIZE, 3).unwrap(),
        b"two"
    );
    ends(machine, program);
}

#[test]
fn what_was_opened_to_be_read_is_never_writable() {
    let mut machine = Fake::new();
    let mut program = start(&mut machine);
    let refused = map(&mut machine, &mut program, (RW, map::SHARED), false);
    assert_eq!(refused, Err(Errno::EACCES));
    let at = map(&mut machine, &mut program, (prot::READ, map::SHARED), false).unwrap();
    let length = PAGES * PAGE_SIZE;
    let refused = program.memory.mprotect(&mut machine, at, length, RW);
    assert_eq!(refused, Err(Errno::EACCES));
    let at = map(&mut machine, &mut program, (prot::READ, map::SHARED), true).unwrap();
    assert!(program.write(&mut machine, at, b"x").is_err());
    program.read(&mut machine, at, 1).unwrap();
    program
        .memory
        .mprotect(&mut machine, at, length, RW)
        .unwrap();
    program.write(&mut machine, at, b"x").unwrap();
    program
        .memory
        .mprotect(&mut machine, at, length, prot::NONE)
        .unwrap();
    program
        .memory
        .mprotect(&mut machine, at, length, RW)
        .unwrap();
    program.write(&mut machine, at + 1, b"y").unwrap();
    let mut out = [0; 2];
    program
        .memory
        .read_shared_memory(&mut machine, 0, 0, &mut out);
    assert_eq!(&out, b"xy");
    ends(machine, program);
}

#[test]
fn an_object_that_is_cut_goes_from_its_mappings() {
    let mut machine = Fake::new();
    let mut program = start(&mut machine);
    let at = map(&mut machine, &mut program, (RW, map::SHARED), true).unwrap();
    let private = map(&mut machine, &mut program, (RW, map::PRIVATE), true).unwrap();
    for page in 0..PAGES {
        program
            .write(&mut machine, at + page * PAGE_SIZE, b"abcd")
            .unwrap();
    }
    let behind = private + 4 * PAGE_SIZE;
    program.write(&mut machine, behind, b"copy").unwrap();
    let user = machine.frames.usage().user;
    let cut = 2 * PAGE_SIZE + 2;
    program
        .memory
        .resize_shared_memory(&mut machine, 0, cut)
        .unwrap();
    assert_eq!(machine.frames.usage().user, user - 4);
    for gone in [at + 3 * PAGE_SIZE, behind] {
        let cause = program.write(&mut machine, gone, b"x").unwrap_err();
        assert_eq!(cause, Cause::BeyondFile);
    }
    let whole = PAGES * PAGE_SIZE;
    program
        .memory
        .resize_shared_memory(&mut machine, 0, whole)
        .unwrap();
    let found = program.read(&mut machine, at + 2 * PAGE_SIZE, 4).unwrap();
    assert_eq!(found, b"ab\0\0");
    assert_eq!(
        program.read(&mut machine, at + 5 * PAGE_SIZE, 4).unwrap(),
        [0; 4]
    );
    ends(machine, program);
}

#[test]
fn words_meet_wherever_they_are_mapped() {
    let mut machine = Fake::new();
    let mut program = start(&mut machine);
    let first = map(&mut machine, &mut program, (RW, map::SHARED), true).unwrap();
    let second = map(&mut machine, &mut program, (RW, map::SHARED), true).unwrap();
    let private = map(&mut machine, &mut program, (RW, map::PRIVATE), true).unwrap();
    let word = |program: &Program, at| program.memory.space().word(at);
    assert_eq!(word(&program, first + 4100), word(&program, second + 4100));
    assert_ne!(word(&program, first + 4100), word(&program, second + 4104));
    assert_eq!(word(&program, private), private);
    let request = RemapRequest {
        address: first + PAGE_SIZE,
        length: PAGE_SIZE,
        new_length: PAGE_SIZE,
        flags: mremap::MAYMOVE | mremap::FIXED,
        new_address: 0x20_0000_0000,
    };
    program.write(&mut machine, first + 4100, b"moved").unwrap();
    let moved = program.memory.mremap(&mut machine, &request).unwrap();
    assert_eq!(word(&program, moved + 4), word(&program, second + 4100));
    assert_eq!(program.read(&mut machine, moved + 4, 5).unwrap(), b"moved");
    ends(machine, program);
}
