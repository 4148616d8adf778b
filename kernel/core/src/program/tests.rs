//! A program's memory on fake frames: every page it sees is what its file says or zero, whatever
//! order it touches them in, and nothing is left behind.

use super::*;
use crate::addr::USER_END;
use crate::loader::synthetic::Builder;
use crate::paging::entry::Class;
use crate::phys::FakeMemory;
use hearth_abi::linux::{map, prot};
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec::Vec;

const FRAMES: u64 = 1024;

pub(super) struct Fake {
    pub(super) mem: FakeMemory,
    pub(super) frames: FrameAllocator,
    kernel: PageTable,
    invalidated: u64,
    /// Frames that could be given out when translations were forgotten last.
    available: u64,
}

impl Fake {
    pub(super) fn new() -> Self {
        Self::with(FRAMES)
    }

    /// A machine with so many frames.
    pub(super) fn with(count: u64) -> Self {
        let base = PhysAddr::new(0x10_0000);
        let mut mem = FakeMemory::new(base, count);
        let tags = Box::leak(std::vec![0; count as usize].into_boxed_slice());
        let mut frames = FrameAllocator::new(base, tags);
        frames.add_region(base, base.offset(count * PAGE_SIZE));
        let kernel = PageTable::new(&mut mem, &mut frames).unwrap();
        Self {
            mem,
            frames,
            kernel,
            invalidated: 0,
            available: 0,
        }
    }
}

impl Machine for Fake {
    type Mem = FakeMemory;
    fn mem(&mut self) -> &mut FakeMemory {
        &mut self.mem
    }
    fn with<R>(&mut self, act: impl FnOnce(&mut FakeMemory, &mut FrameAllocator) -> R) -> R {
        act(&mut self.mem, &mut self.frames)
    }
    fn invalidate(&mut self, first: VirtAddr, last: VirtAddr) {
        assert!(first <= last);
        self.invalidated += 1;
        self.available = self.frames.usage().available();
    }
}

fn named(file: &[u8], image: Image) -> super::Program {
    let id = ProgramId(*blake3::hash(file).as_bytes());
    super::Program { id, image }
}

/// A file whose bytes are told apart by their place, and its memory.
pub(super) struct Program {
    file: Vec<u8>,
    pub(super) memory: Memory,
    fetches: Vec<Fetch>,
}

impl Program {
    pub(super) fn start(machine: &mut Fake, owner: u16) -> Self {
        let builder = Builder::program();
        let mut file = builder.build();
        for (index, byte) in file.iter_mut().enumerate().skip(0x400) {
            *byte = (index / 7 + index / 4096) as u8 | 1;
        }
        let image = crate::loader::synthetic::parse(&file).unwrap();
        let owner = Owner::program(owner);
        let kernel = machine.kernel;
        let program = named(&file, image);
        let policy = Policy::default();
        let memory = Memory::new(machine, program, kernel, owner, u64::MAX, policy).unwrap();
        Self {
            file,
            memory,
            fetches: Vec::new(),
        }
    }

    pub(super) fn file(&self) -> &[u8] {
        &self.file
    }

    fn give(&mut self, machine: &mut Fake, fetch: Fetch) {
        self.fetches.push(fetch);
        let from = fetch.offset as usize;
        let bytes = self.file[from..from + fetch.length as usize].to_vec();
        self.memory.install(machine, &fetch, &bytes).unwrap();
    }

    pub(super) fn touch(
        &mut self,
        machine: &mut Fake,
        address: u64,
        access: Access,
    ) -> Result<(), Cause> {
        match self.memory.resolve(machine, address, access) {
            Outcome::Done | Outcome::Presented => Ok(()),
            Outcome::InFlight(page) => panic!("{page:?} is under way, but nothing is"),
            Outcome::Full => panic!("nothing is under way"),
            Outcome::Kill(cause) => Err(cause),
            Outcome::Fetch(fetch) => {
                self.give(machine, fetch);
                Ok(())
            }
        }
    }

    pub(super) fn read(
        &mut self,
        machine: &mut Fake,
        address: u64,
        length: usize,
    ) -> Result<Vec<u8>, Cause> {
        let mut out = std::vec![0xee; length];
        let from = UserSlice::new(address, length as u64).map_err(|_| Cause::NotUser)?;
        let mut done = 0;
        while let Err(missing) = self.memory.copy_from(machine, from, &mut out, done) {
            self.touch(machine, missing.address, Access::Read)?;
            done = missing.done;
        }
        Ok(out)
    }

    pub(super) fn write(
        &mut self,
        machine: &mut Fake,
        address: u64,
        bytes: &[u8],
    ) -> Result<(), Cause> {
        let to = UserSlice::new(address, bytes.len() as u64).map_err(|_| Cause::NotUser)?;
        let mut done = 0;
        while let Err(missing) = self.memory.copy_to(machine, to, bytes, done) {
            self.touch(machine, missing.address, Access::Write)?;
            done = missing.done;
        }
        Ok(())
    }

    fn map(&mut self, machine: &mut Fake, length: u64) -> u64 {
        let request = MapRequest {
            address: 0,
            length,
            protection: prot::READ | prot::WRITE,
            flags: map::PRIVATE | map::ANONYMOUS,
            fd: -1,
        };
        self.memory.mmap(machine, request).unwrap()
    }
}

#[test]
fn segments_hold_what_the_file_holds() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let file = program.file.clone();
    // Code, constants, data, and the zeros behind each.
    let code = program.read(&mut machine, 0x40_1000, 0x3000).unwrap();
    assert_eq!(code, &file[0x1000..0x4000]);
    let data = program.read(&mut machine, 0x40_5000, 0x4000).unwrap();
    assert_eq!(&data[..0x1000], &file[0x5000..0x6000]);
    assert!(data[0x1000..].iter().all(|&byte| byte == 0));
    // Faults in sequence were served with pages read ahead.
    let lengths: Vec<u64> = program.fetches.iter().map(|fetch| fetch.pages).collect();
    assert_eq!(lengths, [1, 2, 1]);
    let counts = program.memory.counts();
    assert_eq!((counts.asked, counts.ahead), (3, 1));
    let faults = program.memory.faults();
    assert_eq!((faults.code, faults.data, faults.zero), (2, 1, 3));
    let page = |at| {
        program
            .memory
            .table()
            .translate(&machine.mem, VirtAddr::new(at))
    };
    assert_eq!(
        page(0x40_1000).unwrap().attributes.class,
        Class::FileExecute
    );
    let data = page(0x40_5000).unwrap().attributes;
    assert_eq!(
        (data.class, data.protection),
        (Class::FileData, Protection::Read)
    );
    assert!(page(0x40_3000).unwrap().attributes.ahead);
}

#[test]
fn the_kernel_gets_no_further_than_the_program_itself() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let mut write = |address| program.write(&mut machine, address, b"12345678");
    assert_eq!(write(0), Err(Cause::NullPointer));
    assert_eq!(write(0xffff_8000_0000_0000), Err(Cause::NotUser));
    assert_eq!(write(0xffff_ffff_ffff_fffc), Err(Cause::NotUser));
    let code = Cause::Protection(Protection::ReadExecute);
    assert_eq!(write(0x40_1000), Err(code));
    // A buffer that runs out of its mapping: what lies inside was written.
    let at = 0x40_9000 - 4;
    assert_eq!(write(at), Err(Cause::Unmapped));
    assert_eq!(program.read(&mut machine, at, 4).unwrap(), b"1234");
}

#[test]
fn the_first_address_that_lacks_a_page_is_told() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    program.write(&mut machine, 0x40_5ffc, b"1234").unwrap();
    let slice = UserSlice::new(0x40_5ff0, 0x20).unwrap();
    let lacks = program.memory.lacks(&mut machine, slice, Access::Read);
    assert_eq!(lacks, Some(0x40_6000));
    program.write(&mut machine, 0x40_6000, b"5").unwrap();
    let lacks = program.memory.lacks(&mut machine, slice, Access::Write);
    assert_eq!(lacks, None);
}

#[test]
fn held_pages_are_presented_around_the_fault() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let (mut at, end) = (0x40_1000, 0x40_5000);
    while let Some(fetch) = program.memory.plan_hold(&mut machine, at, end) {
        assert!(!fetch.demand && fetch.page.as_u64() >= at);
        program.give(&mut machine, fetch);
        at = fetch.end();
    }
    assert_eq!(program.memory.counts().ahead, 4);
    let fetched = program.fetches.len();
    let file = program.file.clone();
    let code = program.read(&mut machine, 0x40_1000, 0x2345).unwrap();
    assert_eq!(code, &file[0x1000..0x3345]);
    program.read(&mut machine, 0x40_4000, 1).unwrap();
    assert_eq!(
        program.fetches.len(),
        fetched,
        "held pages were fetched again"
    );
    // One fault for the code, one for the constants: two regions in the same 64 KiB.
    assert_eq!(program.memory.faults().held, 2);
    let leaf = program
        .memory
        .table()
        .translate(&machine.mem, VirtAddr::new(0x40_2000));
    let leaf = leaf.unwrap();
    assert_eq!(leaf.attributes.protection, Protection::ReadExecute);
    assert_eq!(leaf.attributes.class, Class::FileExecute);
}

#[test]
fn memory_calls_carry_over_to_the_table() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let at = program.map(&mut machine, 0x4000);
    program.write(&mut machine, at, &[7; 0x4000]).unwrap();
    let before = machine.invalidated;
    program
        .memory
        .mprotect(&mut machine, at + 0x1000, 0x1000, prot::NONE)
        .unwrap();
    assert!(machine.invalidated > before);
    let none = Cause::Protection(Protection::None);
    assert_eq!(program.read(&mut machine, at + 0x1000, 1), Err(none));
    program
        .memory
        .mprotect(&mut machine, at + 0x1000, 0x1000, prot::READ)
        .unwrap();
    // PROT_NONE kept the contents.
    assert_eq!(program.read(&mut machine, at + 0x1000, 1).unwrap(), [7]);
    let read = Cause::Protection(Protection::Read);
    assert_eq!(program.write(&mut machine, at + 0x1000, &[8]), Err(read));
    program
        .memory
        .munmap(&mut machine, at + 0x2000, 0x1000)
        .unwrap();
    assert_eq!(
        program.read(&mut machine, at + 0x2000, 1),
        Err(Cause::Unmapped)
    );
    program
        .memory
        .discard(&mut machine, at + 0x3000, 0x1000)
        .unwrap();
    assert_eq!(program.read(&mut machine, at + 0x3000, 1).unwrap(), [0]);
    // The heap shrinks and grows again: the old contents are gone.
    let heap = program.memory.brk(&mut machine, 0);
    assert_eq!(
        program.memory.brk(&mut machine, heap + 0x2000),
        heap + 0x2000
    );
    program.write(&mut machine, heap + 0x1000, &[9]).unwrap();
    assert_eq!(
        program.memory.brk(&mut machine, heap + 0x1000),
        heap + 0x1000
    );
    assert_eq!(
        program.memory.brk(&mut machine, heap + 0x2000),
        heap + 0x2000
    );
    assert_eq!(program.read(&mut machine, heap + 0x1000, 1).unwrap(), [0]);
}

/// The leaf of a PROT_NONE page is not present, but the tables above it are: the CPU may have
/// cached the way to them, and their frames are given out again.
#[test]
fn tables_given_back_are_forgotten() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let at = program.map(&mut machine, 0x1000);
    program.write(&mut machine, at, &[7]).unwrap();
    program
        .memory
        .mprotect(&mut machine, at, 0x1000, prot::NONE)
        .unwrap();
    let kernel = machine.frames.usage().kernel;
    let before = machine.invalidated;
    program.memory.munmap(&mut machine, at, 0x1000).unwrap();
    assert!(machine.frames.usage().kernel < kernel, "no table was freed");
    assert_eq!(machine.invalidated, before + 1);
    // Nothing was there any more: nothing to forget.
    program.memory.discard(&mut machine, at, 0x1000).unwrap();
    assert_eq!(machine.invalidated, before + 1);
}

/// A mapping that fails for want of a table gives back those it made, and says so to the CPU.
#[test]
fn tables_of_a_failed_mapping_are_forgotten() {
    let mut machine = Fake::new();
    let program = Program::start(&mut machine, 1);
    let mut memory = program.memory;
    // The frame itself and two of the three tables can be had.
    let mut taken = Vec::new();
    while machine.frames.usage().available() > 3 {
        taken.push(
            machine
                .frames
                .alloc(&mut machine.mem, Owner::KERNEL)
                .unwrap(),
        );
    }
    let page = VirtAddr::new(0x7000_0000_0000);
    let attributes = Attributes::user(Protection::ReadWrite, Class::Private);
    let before = machine.invalidated;
    let frame = machine.with(|mem, frames| frames.alloc(mem, memory.owner));
    let mapped = memory.map_own(&mut machine, page, frame.unwrap(), attributes);
    assert!(!mapped);
    assert_eq!(machine.invalidated, before + 1);
    assert_eq!(machine.frames.usage().available(), 3);
    // The frame of the page is not in any table yet.
    assert_eq!(machine.available, 0, "a table was freed too early");
}

/// A frame that is given back before all cores have forgotten it is another's while they write to
/// it.
#[test]
fn frames_are_given_back_when_they_are_forgotten_and_not_before() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let at = program.map(&mut machine, 0x8000);
    let heap = program.memory.brk(&mut machine, 0);
    program.memory.brk(&mut machine, heap + 0x2000);
    type Act = fn(&mut Memory, &mut Fake, u64);
    let acts: [(u64, Act); 4] = [
        (at, |memory, machine, at| {
            memory.munmap(machine, at, 0x1000).unwrap();
        }),
        (at + 0x1000, |memory, machine, at| {
            memory.discard(machine, at, 0x1000).unwrap();
        }),
        (heap + 0x1000, |memory, machine, at| {
            memory.brk(machine, at);
        }),
        // The last page, and with it the table.
        (at + 0x2000, |memory, machine, at| {
            memory.munmap(machine, at, 0x6000).unwrap();
        }),
    ];
    for (place, act) in acts {
        program.write(&mut machine, place, &[7]).unwrap();
        let (forgotten, before) = (machine.invalidated, machine.frames.usage().available());
        act(&mut program.memory, &mut machine, place);
        assert_eq!(machine.invalidated, forgotten + 1, "{place:#x}");
        assert_eq!(machine.available, before, "{place:#x} was freed too early");
        assert!(machine.frames.usage().available() > before, "{place:#x}");
    }
}

#[test]
fn the_next_program_gets_the_same_frames_and_sees_only_zeros() {
    let mut machine = Fake::new();
    let frames_of = |machine: &mut Fake, owner| {
        let mut program = Program::start(machine, owner);
        let at = program.map(machine, 0x8_0000);
        let seen = program.read(machine, at, 0x8_0000).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0), "left over from before");
        program.write(machine, at, &[0x5a; 0x8_0000]).unwrap();
        let mut frames = Vec::new();
        let last = VirtAddr::new(USER_END - 1);
        program
            .memory
            .table()
            .for_each(&machine.mem, VirtAddr::new(0), last, |leaf| {
                frames.push(leaf.frame)
            });
        let (none, _) = program.memory.retire(machine, &Policy::nothing());
        assert!(none.is_none());
        assert_eq!(machine.frames.owned_by(Owner::program(owner)), 0);
        machine.frames.scrub(&mut machine.mem, u64::MAX);
        machine.frames.check().unwrap();
        frames
    };
    let first = frames_of(&mut machine, 1);
    let second = frames_of(&mut machine, 2);
    assert_eq!(first, second);
    assert!(first.iter().all(|&frame| machine.mem.is_zero(frame)));
    assert_eq!(machine.frames.usage().user, 0);
    assert_eq!(
        machine.frames.usage().kernel,
        1,
        "only the kernel's own table is left"
    );
}

#[test]
fn too_much_memory_ends_the_program_and_not_the_node() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let at = program.map(&mut machine, (FRAMES - 8) * PAGE_SIZE);
    let mut page = at;
    let cause = loop {
        if let Err(cause) = program.touch(&mut machine, page, Access::Write) {
            break cause;
        }
        page += PAGE_SIZE;
    };
    assert_eq!(cause, Cause::OutOfMemory);
    let left = machine.frames.usage().available();
    assert!(
        (fault::FRAMES_RESERVED - 4..=fault::FRAMES_RESERVED).contains(&left),
        "{left}"
    );
    let (none, _) = program.memory.retire(&mut machine, &Policy::nothing());
    assert!(none.is_none());
    machine.frames.check().unwrap();
    assert_eq!(machine.frames.usage().user, 0);
}

#[test]
fn a_limit_of_its_own_is_kept() {
    let mut machine = Fake::new();
    let image = crate::loader::synthetic::image();
    let kernel = machine.kernel;
    // Sixteen pages and the tables for them: of each level one.
    let limit = (16 + 4) * PAGE_SIZE;
    let program = named(&[], image);
    let owner = Owner::program(3);
    let policy = Policy::default();
    let mut memory = Memory::new(&mut machine, program, kernel, owner, limit, policy).unwrap();
    let stack = crate::loader::layout::STACK_TOP;
    for page in 1..=16 {
        let outcome = memory.resolve(&mut machine, stack - page * PAGE_SIZE, Access::Write);
        assert_eq!(outcome, Outcome::Done);
    }
    let outcome = memory.resolve(&mut machine, stack - 17 * PAGE_SIZE, Access::Write);
    assert_eq!(outcome, Outcome::Kill(Cause::OutOfMemory));
    assert_eq!(memory.pages_peak(), 16);
}

#[test]
fn a_short_answer_is_not_taken_for_a_page() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let Outcome::Fetch(fetch) = program
        .memory
        .resolve(&mut machine, 0x40_1136, Access::Execute)
    else {
        panic!("code was there");
    };
    let short = std::vec![0; fetch.length as usize - 1];
    let result = program.memory.install(&mut machine, &fetch, &short);
    assert_eq!(result, Err(Cause::PageUnavailable));
}

#[derive(Clone, Debug)]
enum Step {
    Read { at: u64, length: usize },
    Write { at: u64, length: usize, byte: u8 },
    Hold { at: u64, length: u64 },
    Discard { page: u64 },
}

const FIRST: u64 = 0x40_0000;
const LAST: u64 = 0x40_9000;

fn step() -> impl Strategy<Value = Step> {
    let at = FIRST - 0x1000..LAST + 0x1000;
    prop_oneof![
        3 => (at.clone(), 1usize..0x3000).prop_map(|(at, length)| Step::Read { at, length }),
        3 => (at.clone(), 1usize..0x3000, any::<u8>())
            .prop_map(|(at, length, byte)| Step::Write { at, length, byte }),
        1 => (at, 1u64..0x8000).prop_map(|(at, length)| Step::Hold { at, length }),
        1 => (0u64..9).prop_map(|page| Step::Discard { page }),
    ]
}

/// What the image holds at an address before any write; `None` outside.
fn original(file: &[u8], at: u64) -> Option<(u8, bool)> {
    let offset = (at - FIRST.min(at)) as usize;
    match at {
        0x40_0000..0x40_1000 => Some((file[offset], false)),
        0x40_1000..0x40_5000 => Some((file[offset], false)),
        0x40_5000..0x40_6000 => Some((file[offset], true)),
        0x40_6000..0x40_9000 => Some((0, true)),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_byte_is_as_the_file_or_the_program_says(
        steps in proptest::collection::vec(step(), 1..40)
    ) {
        let mut machine = Fake::new();
        let mut program = Program::start(&mut machine, 1);
        let file = program.file.clone();
        let mut written: BTreeMap<u64, u8> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Read { at, length } => {
                    let expected: Option<Vec<u8>> = (at..at + length as u64)
                        .map(|at| {
                            let (byte, _) = original(&file, at)?;
                            Some(written.get(&at).copied().unwrap_or(byte))
                        })
                        .collect();
                    prop_assert_eq!(program.read(&mut machine, at, length).ok(), expected);
                }
                Step::Write { at, length, byte } => {
                    let end = at + length as u64;
                    let stop = (at..end)
                        .find(|&at| !original(&file, at).is_some_and(|(_, writable)| writable));
                    let result = program.write(&mut machine, at, &std::vec![byte; length]);
                    prop_assert_eq!(result.is_ok(), stop.is_none());
                    for at in at..stop.unwrap_or(end) {
                        written.insert(at, byte);
                    }
                }
                Step::Hold { at, length } => {
                    let start = crate::addr::page_down(at);
                    while let Some(fetch) =
                        program.memory.plan_hold(&mut machine, start, start + length)
                    {
                        program.give(&mut machine, fetch);
                    }
                }
                Step::Discard { page } => {
                    let start = FIRST + page * PAGE_SIZE;
                    program.memory.discard(&mut machine, start, PAGE_SIZE).unwrap();
                    written.retain(|&at, _| at < start || at >= start + PAGE_SIZE);
                }
            }
            prop_assert_eq!(machine.frames.check(), Ok(()));
        }
        let (none, _) = program.memory.retire(&mut machine, &Policy::nothing());
    assert!(none.is_none());
        prop_assert_eq!(machine.frames.usage().user, 0);
        prop_assert_eq!(machine.frames.usage().kernel, 1);
    }
}

#[test]
fn tables_count_against_the_limit() {
    const LIMIT: u64 = 60;
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    program.memory.pages_max = LIMIT;
    // Each page needs a table of each of the two last levels.
    let request = MapRequest {
        address: 0,
        length: LIMIT << 30,
        protection: prot::READ | prot::WRITE,
        flags: map::PRIVATE | map::ANONYMOUS | map::NORESERVE,
        fd: -1,
    };
    let at = program.memory.mmap(&mut machine, request).unwrap();
    let touched = (0..LIMIT).take_while(|page| {
        let touched = program.touch(&mut machine, at + (page << 30), Access::Write);
        assert!(
            matches!(touched, Ok(()) | Err(Cause::OutOfMemory)),
            "{touched:?}"
        );
        touched.is_ok()
    });
    let touched = touched.count() as u64;
    assert!((LIMIT / 3 - 1..=LIMIT / 3).contains(&touched), "{touched}");
    let used = machine.frames.usage().user + program.memory.tables();
    assert!(used <= LIMIT + 3, "{used}");
    let (none, _) = program.memory.retire(&mut machine, &Policy::nothing());
    assert!(none.is_none());
    assert_eq!(machine.frames.usage().kernel, 1);
}

#[test]
fn a_second_launch_fetches_nothing() {
    let mut machine = Fake::new();
    let mut program = Program::start(&mut machine, 1);
    let run = |program: &mut Program, machine: &mut Fake| {
        let file = program.file.clone();
        let text = program.read(machine, 0x40_0000, 0x5000).unwrap();
        assert_eq!(text, &file[..0x5000]);
        let data = program.read(machine, 0x40_5000, 0x1000).unwrap();
        assert_eq!(data, &file[0x5000..0x6000]);
        program.write(machine, 0x40_5123, b"changed").unwrap();
        assert_eq!(program.read(machine, 0x40_5123, 7).unwrap(), b"changed");
    };
    run(&mut program, &mut machine);
    let (retained, counts) = program.memory.retire(&mut machine, &Policy::default());
    let retained = retained.unwrap();
    assert_eq!((counts.kept, counts.kept_code, counts.kept_data), (6, 3, 1));
    assert_eq!((counts.discarded, counts.released), (0, 1));
    assert_eq!(machine.frames.usage().retained, 6);
    machine.frames.scrub(&mut machine.mem, u64::MAX);
    machine.frames.check_tags().unwrap();
    let policy = Policy::default();
    program.memory = Memory::relaunch(&mut machine, retained, u64::MAX, policy);
    program.fetches.clear();
    assert_eq!(program.memory.pages_reused(), 6);
    run(&mut program, &mut machine);
    assert!(program.fetches.is_empty(), "{:?}", program.fetches);
    let faults = program.memory.faults();
    assert_eq!((faults.file(), faults.held, faults.copy), (0, 0, 1));
    let (retained, counts) = program.memory.retire(&mut machine, &Policy::nothing());
    assert!(retained.is_none());
    assert_eq!((counts.reused, counts.discarded), (6, 6));
    machine.frames.check_tags().unwrap();
    assert_eq!(machine.frames.usage().kernel, 1);
}
