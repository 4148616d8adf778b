//! The store against a plain model: contents, counts of frames, who goes and who stays.

use super::*;
use crate::addr::VirtAddr;
use crate::frames::State;
use crate::pagehash::HASH_BYTES;
use crate::phys::FakeMemory;
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

/// Enough for [`ROOM_FRAMES`] and some objects.
const FRAMES: u64 = ROOM_FRAMES + 160;

struct Fake {
    mem: FakeMemory,
    frames: FrameAllocator,
}

impl Fake {
    fn new(count: u64) -> Self {
        let base = PhysAddr::new(0x10_0000);
        let tags = Box::leak(vec![0; count as usize].into_boxed_slice());
        let mut frames = FrameAllocator::new(base, tags);
        frames.add_region(base, base.offset(count * PAGE_SIZE));
        Self {
            mem: FakeMemory::new(base, count),
            frames,
        }
    }

    fn check(&self, objects: &Objects) {
        self.frames.check_tags().unwrap();
        assert_eq!(self.frames.usage().object, objects.pages());
        assert!(objects.pages() <= objects.limit_pages);
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
    fn invalidate(&mut self, _: VirtAddr, _: VirtAddr) {
        panic!("nothing of the store is mapped by it");
    }
}

fn id(number: u8) -> ObjectId {
    ObjectId([number; HASH_BYTES])
}

fn contents(number: u8, bytes: u64) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at / 5 + at / 4096) as u8 ^ number)
        .collect()
}

fn block(data: &[u8], log2: u8, number: u32) -> &[u8] {
    let start = (number as usize) << log2;
    &data[start..data.len().min(start + (1 << log2))]
}

/// Brings a whole object in.
fn fill(machine: &mut Fake, objects: &mut Objects, number: u8, bytes: u64, kept: Kept) -> Vec<u8> {
    let data = contents(number, bytes);
    let spec = Spec::new(id(number), bytes, 13, kept);
    objects.create(machine, spec).unwrap();
    for index in 0..bytes.div_ceil(1 << 13) as u32 {
        let part = Part::Data(index);
        objects
            .write(machine, &id(number), part, block(&data, 13, index))
            .unwrap();
    }
    data
}

#[test]
fn an_object_is_what_arrived_block_by_block() {
    let mut machine = Fake::new(FRAMES);
    let mut objects = Objects::new(u64::MAX);
    let data = contents(1, 20_000);
    let spec = Spec::new(id(1), 20_000, 13, Kept::File);
    objects.create(&mut machine, spec).unwrap();
    assert_eq!(objects.create(&mut machine, spec), Err(Refused::Exists));
    let mut out = [0; 10_000];
    for (index, there) in [(2, 1), (0, 2), (1, 3)] {
        let read = objects.read_bytes(&machine.mem, &id(1), 5_000, &mut out);
        assert!(!read, "not all of it is here");
        let bytes = block(&data, 13, index);
        let part = Part::Data(index);
        assert_eq!(
            objects.write(&mut machine, &id(1), part, &bytes[1..]),
            Err(WriteError::NoSuchPart)
        );
        for _ in 0..2 {
            objects.write(&mut machine, &id(1), part, bytes).unwrap();
        }
        assert_eq!(objects.find(&id(1)).unwrap().blocks, there);
        machine.check(&objects);
    }
    let view = objects.find(&id(1)).unwrap();
    assert!(view.complete && view.whole && !view.in_use);
    assert!(objects.read_bytes(&machine.mem, &id(1), 5_000, &mut out));
    assert_eq!(out, data[5_000..15_000]);
    assert!(!objects.read_bytes(&machine.mem, &id(1), 10_001, &mut out));
    assert!(!objects.read_bytes(&machine.mem, &id(1), u64::MAX, &mut out));
    let no_block = Part::Data(3);
    assert_eq!(
        objects.write(&mut machine, &id(1), no_block, &[0]),
        Err(WriteError::NoSuchPart)
    );
    // What follows the end in the last page is zero, as a mapping shows it.
    let last = objects.page(&machine.mem, &id(1), 4).unwrap();
    let mut tail = [1; 4096 - 20_000 % 4096];
    machine.mem.read(last.offset(20_000 % 4096), &mut tail);
    assert!(tail.iter().all(|&byte| byte == 0));
    assert_eq!(objects.page(&machine.mem, &id(1), 5), None);
}

#[test]
fn lists_of_hashes_are_kept_with_it() {
    let mut machine = Fake::new(ROOM_FRAMES + 400);
    let mut objects = Objects::new(u64::MAX);
    // Blocks of one page, 300 of them: a whole list and one of 44 hashes.
    let bytes = 300 * 4096 - 1;
    let spec = Spec::new(id(1), bytes, 12, Kept::Image);
    objects.create(&mut machine, spec).unwrap();
    let lists = contents(9, 300 * 32);
    let pieces = [(0, &lists[..8192]), (1, &lists[8192..])];
    for (number, piece) in pieces {
        let part = Part::List(number);
        assert!(!objects.has(&id(1), part));
        objects.write(&mut machine, &id(1), part, piece).unwrap();
        let mut out = [0; 100];
        assert!(objects.read(&machine.mem, &id(1), part, 1_000, &mut out));
        assert_eq!(out, piece[1_000..1_100]);
        let behind = piece.len() - 99;
        assert!(!objects.read(&machine.mem, &id(1), part, behind, &mut out));
    }
    assert!(!objects.has(&id(1), Part::List(2)));
    assert_eq!(objects.find(&id(1)).unwrap().blocks, 0);
    assert_eq!(objects.pages(), 3);
    machine.check(&objects);
    assert_eq!(objects.drop_object(&mut machine, &id(1)).pages, 3);
    let usage = machine.frames.usage();
    assert_eq!((usage.object, usage.kernel), (0, 0));
}

#[test]
fn images_go_for_others_and_files_stay() {
    let mut machine = Fake::new(FRAMES);
    let mut objects = Objects::new(u64::MAX);
    fill(&mut machine, &mut objects, 1, 40 * 4096, Kept::Image);
    fill(&mut machine, &mut objects, 2, 40 * 4096, Kept::Image);
    fill(&mut machine, &mut objects, 3, 40 * 4096, Kept::File);
    // The first is used again: now the second is the oldest.
    drop(objects.hold(&id(1)));
    fill(&mut machine, &mut objects, 4, 70 * 4096, Kept::File);
    assert!(objects.find(&id(1)).is_some() && objects.find(&id(2)).is_none());
    machine.check(&objects);
    let held = objects.hold(&id(1)).unwrap();
    let spec = Spec::new(id(5), 30 * 4096, 13, Kept::File);
    let Err(Refused::NoRoom(room)) = objects.create(&mut machine, spec) else {
        panic!("the only image is in use");
    };
    assert_eq!(room.needed_bytes, (30 + 1 + 1) * 4096);
    assert!(room.available_bytes < room.needed_bytes);
    drop(held);
    objects.create(&mut machine, spec).unwrap();
    assert!(objects.find(&id(1)).is_none());
    assert_eq!(objects.file_bytes(), 110 * 4096);
    machine.check(&objects);
    // What is promised to the fifth is not given to a sixth.
    let spec = Spec::new(id(6), 16 * 4096, 13, Kept::File);
    let refused = objects.create(&mut machine, spec);
    assert!(matches!(refused, Err(Refused::NoRoom(_))), "{refused:?}");
}

#[test]
fn a_limit_holds_for_all_together() {
    let mut machine = Fake::new(FRAMES);
    let mut objects = Objects::new(50);
    fill(&mut machine, &mut objects, 1, 40 * 4096, Kept::File);
    let spec = Spec::new(id(2), 20 * 4096, 13, Kept::File);
    let Err(Refused::NoRoom(room)) = objects.create(&mut machine, spec) else {
        panic!("more than the limit was taken");
    };
    assert_eq!(room.available_bytes, 10 * 4096);
    let spec = Spec::new(id(2), u64::MAX, 13, Kept::File);
    assert_eq!(objects.create(&mut machine, spec), Err(Refused::BadShape));
    let spec = Spec::new(id(2), 1, 17, Kept::File);
    assert_eq!(objects.create(&mut machine, spec), Err(Refused::BadShape));
}

#[test]
fn what_is_in_use_goes_when_it_is_not() {
    let mut machine = Fake::new(FRAMES);
    let mut objects = Objects::new(u64::MAX);
    let data = fill(&mut machine, &mut objects, 1, 9_000, Kept::File);
    let held = objects.hold(&id(1)).unwrap();
    let second = held.clone();
    let dropped = objects.drop_object(&mut machine, &id(1));
    assert_eq!((dropped.pages, dropped.in_use), (0, true));
    assert_eq!(objects.len(), 1);
    assert!(objects.hold(&id(1)).is_none(), "it is about to go");
    drop(held);
    assert_eq!(objects.sweep(&mut machine), 0);
    let mut out = vec![0; 9_000];
    let index = objects.index(&second);
    assert!(copy_out(&machine.mem, &index, 0, 0, &mut out));
    assert_eq!(out, data);
    drop(second);
    assert_eq!(objects.sweep(&mut machine), 3);
    assert!(objects.is_empty());
    machine.check(&objects);
    let scrubbed = machine.frames.scrub(&mut machine.mem, 100);
    assert!(scrubbed >= 3);
    assert!((0..3).all(|page| machine.mem.is_zero(PhysAddr::new(0x10_0000 + page * 4096))));
}

#[test]
fn pages_of_an_image_can_be_taken_and_those_of_a_file_not() {
    let mut machine = Fake::new(FRAMES);
    let mut objects = Objects::new(u64::MAX);
    fill(&mut machine, &mut objects, 1, 20_000, Kept::Image);
    let frame = objects.take(&mut machine.mem, &id(1), 1).unwrap();
    assert_eq!(machine.frames.state(frame.address()).0, State::Object);
    machine.frames.free(frame);
    machine.check(&objects);
    let view = objects.find(&id(1)).unwrap();
    assert!(view.complete && !view.whole);
    let mut out = [0; 8192];
    let part = Part::Data(0);
    assert!(!objects.read(&machine.mem, &id(1), part, 0, &mut out));
    assert_eq!(objects.take(&mut machine.mem, &id(1), 1), None);
    // A later cast brings it again.
    let data = contents(1, 20_000);
    let again = objects.write(&mut machine, &id(1), part, block(&data, 13, 0));
    assert!(again.is_ok() && objects.find(&id(1)).unwrap().whole);
    assert!(objects.read(&machine.mem, &id(1), part, 0, &mut out));
    assert_eq!(out, data[..8192]);
    objects.keep_as(&id(1), Kept::File);
    assert_eq!(objects.take(&mut machine.mem, &id(1), 0), None);
    assert_eq!(objects.drop_object(&mut machine, &id(1)).pages, 5);
    machine.check(&objects);
}

#[test]
fn memory_that_is_used_up_stops_an_object_half_way() {
    let mut machine = Fake::new(FRAMES);
    let mut objects = Objects::new(u64::MAX);
    let spec = Spec::new(id(1), 100 * 4096, 13, Kept::File);
    objects.create(&mut machine, spec).unwrap();
    // A program takes everything meanwhile.
    let owner = crate::frames::Owner::program(1);
    let mut taken = Vec::new();
    while machine.frames.usage().available() > ROOM_FRAMES / 2 + 2 {
        taken.push(machine.frames.alloc(&mut machine.mem, owner).unwrap());
    }
    let data = contents(1, 100 * 4096);
    let mut written = 0;
    for index in 0..50 {
        let bytes = block(&data, 13, index);
        match objects.write(&mut machine, &id(1), Part::Data(index), bytes) {
            Ok(()) => written += 1,
            Err(WriteError::NoRoom(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
        machine.check(&objects);
    }
    assert!((1..3).contains(&written), "{written} blocks");
    machine.check(&objects);
    for frame in taken {
        machine.frames.free(frame);
    }
    for index in written..50 {
        let bytes = block(&data, 13, index);
        objects
            .write(&mut machine, &id(1), Part::Data(index), bytes)
            .unwrap();
    }
    let mut out = vec![0; data.len()];
    assert!(objects.read_bytes(&machine.mem, &id(1), 0, &mut out));
    assert_eq!(out, data);
    machine.check(&objects);
}

#[derive(Clone, Debug)]
enum Step {
    Create { number: u8, bytes: u64, file: bool },
    Write { number: u8, block: u32 },
    Hold(u8),
    LetGo(usize),
    Drop(u8),
    Sweep,
    KeepRoom,
    Take { number: u8, page: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let number = || 0..4u8;
    prop_oneof![
        1 => (number(), 0..200_000u64, any::<bool>())
            .prop_map(|(number, bytes, file)| Step::Create { number, bytes, file }),
        12 => (number(), 0..50u32).prop_map(|(number, block)| Step::Write { number, block }),
        1 => number().prop_map(Step::Hold),
        1 => (0..4usize).prop_map(Step::LetGo),
        1 => number().prop_map(Step::Drop),
        1 => Just(Step::Sweep),
        1 => Just(Step::KeepRoom),
        2 => (number(), 0..50u64).prop_map(|(number, page)| Step::Take { number, page }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, .. ProptestConfig::default() })]

    #[test]
    fn frames_add_up_and_bytes_are_right_whatever_happens(
        steps in proptest::collection::vec(step(), 1..120), log2 in 12..=14u8,
    ) {
        let mut machine = Fake::new(FRAMES);
        let mut objects = Objects::new(120);
        let mut held: Vec<InUse> = Vec::new();
        // What the model knows: bytes of each object, and its pages that were taken.
        let mut taken: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Create { number, bytes, file } => {
                    let kept = if file { Kept::File } else { Kept::Image };
                    let spec = Spec::new(id(number), bytes, log2, kept);
                    if objects.create(&mut machine, spec).is_ok() {
                        taken.insert(number, Vec::new());
                    }
                }
                Step::Write { number, block: index } => {
                    let Some(view) = objects.find(&id(number)) else { continue };
                    let data = contents(number, view.bytes);
                    if (index as usize) << log2 >= data.len() {
                        continue;
                    }
                    let bytes = block(&data, log2, index);
                    objects.write(&mut machine, &id(number), Part::Data(index), bytes).unwrap();
                    let block_of = |page: &u64| (page * PAGE_SIZE) >> log2;
                    let taken = taken.get_mut(&number).unwrap();
                    taken.retain(|page| block_of(page) != u64::from(index));
                }
                Step::Hold(number) => held.extend(objects.hold(&id(number))),
                Step::LetGo(index) if index < held.len() => drop(held.swap_remove(index)),
                Step::LetGo(_) => {}
                Step::Drop(number) => {
                    let used = held.iter().any(|held| *held.id() == id(number));
                    let dropped = objects.drop_object(&mut machine, &id(number));
                    prop_assert!(dropped.in_use <= used);
                }
                Step::Sweep => {
                    objects.sweep(&mut machine);
                }
                Step::KeepRoom => {
                    objects.keep_room(&mut machine, ROOM_FRAMES);
                }
                Step::Take { number, page } => {
                    if let Some(frame) = objects.take(&mut machine.mem, &id(number), page) {
                        machine.frames.free(frame);
                        taken.get_mut(&number).unwrap().push(page);
                    }
                }
            }
            machine.check(&objects);
            for held in &held {
                prop_assert!(objects.find(held.id()).is_some(), "held and gone");
            }
            for (ObjectId(name), view) in objects.iter() {
                let data = contents(name[0], view.bytes);
                for page in 0..view.bytes.div_ceil(PAGE_SIZE) {
                    let Some(frame) = objects.page(&machine.mem, &ObjectId(name), page) else {
                        continue;
                    };
                    let start = (page * PAGE_SIZE) as usize;
                    let length = (data.len() - start).min(PAGE_SIZE as usize);
                    let mut out = vec![0; length];
                    machine.mem.read(frame, &mut out);
                    prop_assert_eq!(&out[..], &data[start..start + length]);
                    prop_assert!(!taken[&name[0]].contains(&page));
                }
            }
        }
        drop(held);
        for number in 0..4 {
            objects.drop_object(&mut machine, &id(number));
        }
        machine.check(&objects);
        let usage = machine.frames.usage();
        prop_assert_eq!((usage.object, usage.kernel), (0, 0));
    }
}
