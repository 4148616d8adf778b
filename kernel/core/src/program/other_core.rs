//! Tests with another core that runs the same program: between any two steps of the kernel it uses
//! every page that is mapped, and remembers where each was until it is told to forget.

use super::tests::{Fake, Program};
use super::*;
use crate::objects::{Kept, ObjectId, Objects, Part, Spec};
use crate::phys::FakeMemory;
use crate::space::{FileMap, SharedMemoryMap};
use hearth_abi::linux::{map, prot};
use std::collections::BTreeMap;
use std::vec::Vec;

struct OtherCore {
    fake: Fake,
    table: PageTable,
    /// Where it has found small pages.
    remembered: BTreeMap<VirtAddr, PhysAddr>,
    /// What pages hold; the program only touches them.
    contents: BTreeMap<u64, Vec<u8>>,
}

impl OtherCore {
    fn new(fake: Fake, program: &Program) -> Self {
        Self {
            fake,
            table: program.memory.table(),
            remembered: BTreeMap::new(),
            contents: BTreeMap::new(),
        }
    }

    /// Says what is behind an address, from the beginning of a page on.
    fn expect(&mut self, at: u64, contents: &[u8]) {
        for (page, bytes) in (at..)
            .step_by(PAGE_SIZE as usize)
            .zip(contents.chunks(4096))
        {
            self.contents.insert(page, bytes.to_vec());
        }
    }

    fn look(&mut self) {
        let (first, last) = (VirtAddr::new(0), VirtAddr::new(crate::addr::USER_END - 1));
        let mut leaves = Vec::new();
        self.table
            .for_each(&self.fake.mem, first, last, |leaf| leaves.push(leaf));
        for leaf in leaves {
            if leaf.attributes.protection == Protection::None {
                continue;
            }
            let page = leaf.page;
            let frame = *self.remembered.entry(page).or_insert(leaf.frame);
            if leaf.attributes.protection == Protection::ReadWrite {
                assert_eq!(frame, leaf.frame, "{page:?} is read in two places");
            }
            if let Some(contents) = self.contents.get(&page.as_u64()) {
                let mut seen = std::vec![0; contents.len()];
                self.fake.mem.read(leaf.frame, &mut seen);
                assert!(seen == *contents, "{page:?} is mapped without its contents");
            }
        }
    }

    fn touch(&mut self, program: &mut Program, at: u64, access: Access) -> Outcome {
        let outcome = program.memory.resolve(self, at, access);
        self.look();
        outcome
    }

    fn fetch(&mut self, program: &mut Program, at: u64, access: Access) -> Fetch {
        match self.touch(program, at, access) {
            Outcome::Fetch(fetch) => fetch,
            other => panic!("{other:?} at {at:#x}"),
        }
    }
}

impl Machine for OtherCore {
    type Mem = FakeMemory;
    fn mem(&mut self) -> &mut FakeMemory {
        self.look();
        &mut self.fake.mem
    }
    fn with<R>(&mut self, act: impl FnOnce(&mut FakeMemory, &mut FrameAllocator) -> R) -> R {
        self.look();
        self.fake.with(act)
    }
    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
        self.look();
        self.remembered
            .retain(|page, _| !(first..=last).contains(page));
    }
}

const CODE: u64 = 0x40_1136;
const DATA: u64 = 0x40_5710;
const RW: u64 = prot::READ | prot::WRITE;

/// A program with the contents of its file, and a machine of two cores.
fn start() -> (OtherCore, Program, Vec<u8>) {
    let mut fake = Fake::new();
    let program = Program::start(&mut fake, 1);
    let mut file = program.file().to_vec();
    let mut machine = OtherCore::new(fake, &program);
    machine.expect(0x40_0000, &file[..0x6000]);
    file.truncate(program.memory.image().file_bytes as usize);
    (machine, program, file)
}

fn request(pages: u64, protection: u64, flags: u64) -> MapRequest {
    MapRequest {
        address: 0,
        length: pages * PAGE_SIZE,
        protection,
        flags,
        fd: 3,
    }
}

#[test]
fn pages_that_are_fetched_are_mapped_with_their_contents() {
    let (mut machine, mut program, file) = start();
    for (at, access) in [
        (CODE, Access::Execute),
        (CODE + 0x2000, Access::Read),
        (DATA, Access::Write),
    ] {
        let fetch = machine.fetch(&mut program, at, access);
        let bytes = &file[fetch.offset as usize..][..fetch.length as usize];
        program.memory.install(&mut machine, &fetch, bytes).unwrap();
        machine.look();
    }
    assert_eq!(program.memory.aside().len(), 1);
}

#[test]
fn a_data_page_is_forgotten_by_all_before_its_copy_is_there() {
    let (mut machine, mut program, file) = start();
    let fetch = machine.fetch(&mut program, DATA, Access::Read);
    let bytes = &file[fetch.offset as usize..][..fetch.length as usize];
    program.memory.install(&mut machine, &fetch, bytes).unwrap();
    let outcome = machine.touch(&mut program, DATA, Access::Write);
    assert_eq!(outcome, Outcome::Presented);
    assert_eq!(program.memory.aside().len(), 1);
}

#[test]
fn pages_that_a_cast_has_brought_are_mapped_with_their_contents() {
    let (mut machine, mut program, file) = start();
    let mut objects = Objects::new(u64::MAX);
    let id = ObjectId(program.memory.program_id().0);
    let spec = Spec::new(id, file.len() as u64, 12, Kept::Image);
    objects.create(&mut machine.fake, spec).unwrap();
    for (number, block) in file.chunks(4096).enumerate() {
        let part = Part::Data(number as u32);
        let written = objects.write(&mut machine.fake, &id, part, block);
        written.unwrap();
    }
    for (at, access) in [(CODE, Access::Execute), (DATA, Access::Write)] {
        let fetch = machine.fetch(&mut program, at, access);
        let adopted = program.memory.adopt(&mut machine, &fetch, &mut objects);
        assert_eq!(adopted, Ok(true));
        machine.look();
    }
}

#[test]
fn pages_of_another_rank_are_mapped_with_their_contents() {
    let (mut machine, mut program, file) = start();
    let of_other = |machine: &mut OtherCore, page: u64| {
        let frames = &mut machine.fake;
        let frame = frames.with(|mem, frames| frames.alloc(mem, Owner::program(2)));
        let frame = frame.unwrap().into_entry();
        let offset = (page - 0x40_0000) as usize;
        machine.fake.mem.write(frame, &file[offset..offset + 4096]);
        frame
    };
    let frame = of_other(&mut machine, 0x40_1000);
    let fetch = machine.fetch(&mut program, CODE, Access::Execute);
    let find = |page: VirtAddr| (page.as_u64() == 0x40_1000).then_some(frame);
    let copied = program.memory.copy_pages(&mut machine, &fetch, find);
    assert_eq!(copied, Ok(true));
    machine.look();
}

#[test]
fn copies_of_files_and_shared_memory_are_mapped_with_their_contents() {
    const PAGES: u64 = 4;
    let (mut machine, mut program, _) = start();
    let bytes: Vec<u8> = (0..PAGES * PAGE_SIZE)
        .map(|at| (at / 9) as u8 | 1)
        .collect();
    let mut objects = Objects::new(u64::MAX);
    let id = ObjectId([3; 32]);
    let spec = Spec::new(id, PAGES * PAGE_SIZE, 14, Kept::File);
    objects.create(&mut machine.fake, spec).unwrap();
    let written = objects.write(&mut machine.fake, &id, Part::Data(0), &bytes);
    written.unwrap();
    let held = objects.hold(&id).unwrap();
    let memory = &mut program.memory;
    memory.set_files(std::vec![objects.index(&held)]);
    let file = FileMap {
        file: 0,
        bytes: PAGES * PAGE_SIZE,
        offset: 0,
    };
    let private = request(PAGES, RW, map::PRIVATE);
    let of_file = memory.mmap_file(&mut machine, private, file).unwrap();
    memory
        .resize_shared_memory(&mut machine, 0, PAGES * PAGE_SIZE)
        .unwrap();
    for page in 0..PAGES {
        let offset = page * PAGE_SIZE;
        let part = &bytes[offset as usize..][..4096];
        memory
            .write_shared_memory(&mut machine, 0, offset, part)
            .unwrap();
    }
    let object = SharedMemoryMap {
        object: 0,
        may_write: false,
        offset: 0,
    };
    let of_object = memory.mmap_shared_memory(&mut machine, private, object);
    for at in [of_file, of_object.unwrap()] {
        machine.expect(at, &bytes);
        // One is written to at its first touch, one after it was read.
        let written = machine.touch(&mut program, at, Access::Write);
        assert_eq!(written, Outcome::Done);
        let read = machine.touch(&mut program, at + PAGE_SIZE, Access::Read);
        assert_eq!(read, Outcome::Done);
        let written = machine.touch(&mut program, at + PAGE_SIZE, Access::Write);
        assert_eq!(written, Outcome::Done);
    }
}
