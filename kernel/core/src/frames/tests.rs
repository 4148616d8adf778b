//! The allocator against a plain model: a list of frames with owner and contents.

use super::*;
use crate::phys::FakeMemory;
use proptest::prelude::*;
use std::boxed::Box;
use std::collections::BTreeMap;
use std::vec;
use std::vec::Vec;

const BASE: u64 = 0x10_0000;
const FRAMES: u64 = 48;

fn allocator() -> (FrameAllocator, FakeMemory) {
    let base = PhysAddr::new(BASE);
    let tags = Box::leak(vec![0; FRAMES as usize].into_boxed_slice());
    let mut frames = FrameAllocator::new(base, tags);
    // A hole of four frames, and ends that are not at frame boundaries.
    assert_eq!(frames.add_region(base.offset(1), base.offset(0x8fff)), 7);
    assert_eq!(
        frames.add_region(base.offset(0xc000), base.offset(FRAMES * PAGE_SIZE)),
        36
    );
    (frames, FakeMemory::new(base, FRAMES))
}

/// Where a new frame lies.
fn alloc(frames: &mut FrameAllocator, mem: &mut FakeMemory, owner: Owner) -> Option<PhysAddr> {
    frames.alloc(mem, owner).map(Frame::into_entry)
}

#[test]
fn memory_that_was_never_added_is_never_given_out() {
    let (mut frames, mut mem) = allocator();
    let mut seen = std::vec::Vec::new();
    while let Some(frame) = alloc(&mut frames, &mut mem, Owner::KERNEL) {
        assert!(mem.is_zero(frame));
        seen.push((frame.as_u64() - BASE) / PAGE_SIZE);
    }
    let expected: std::vec::Vec<u64> = (1..8).chain(12..48).collect();
    assert_eq!(seen, expected);
    assert_eq!(frames.counters().refused, 1);
    assert_eq!(
        frames.state(PhysAddr::new(BASE)),
        (State::Absent, Owner::KERNEL)
    );
    frames.check().unwrap();
}

#[test]
fn the_next_program_gets_the_same_frame_and_sees_zeros() {
    let (mut frames, mut mem) = allocator();
    let first = alloc(&mut frames, &mut mem, Owner::program(1)).unwrap();
    mem.fill(first, 0x5a);
    frames.free(Frame::from_entry(first));
    assert_eq!(frames.state(first).0, State::Dirty);
    assert_eq!(frames.scrub(&mut mem, u64::MAX), 1);
    assert_eq!(frames.state(first).0, State::Free);
    let second = alloc(&mut frames, &mut mem, Owner::program(2)).unwrap();
    assert_eq!(second, first);
    assert!(mem.is_zero(second));
    assert_eq!(frames.owned_by(Owner::program(2)), 1);
    assert_eq!(frames.counters().reused, 1);
}

#[test]
fn without_scrubbing_the_old_contents_are_seen() {
    let (mut frames, mut mem) = allocator();
    frames.disable_scrubbing_for_test();
    let first = alloc(&mut frames, &mut mem, Owner::program(1)).unwrap();
    mem.fill(first, 0x5a);
    frames.free(Frame::from_entry(first));
    let second = alloc(&mut frames, &mut mem, Owner::program(2)).unwrap();
    assert_eq!(second, first);
    assert!(!mem.is_zero(second));
    // What the kernel takes for itself is cleared all the same.
    frames.free(Frame::from_entry(second));
    let table = alloc(&mut frames, &mut mem, Owner::KERNEL).unwrap();
    assert_eq!(table, first);
    assert!(mem.is_zero(table));
}

#[test]
#[should_panic(expected = "freed while Dirty")]
fn freeing_twice_is_a_broken_invariant() {
    let (mut frames, mut mem) = allocator();
    let frame = alloc(&mut frames, &mut mem, Owner::KERNEL).unwrap();
    frames.free(Frame::from_entry(frame));
    frames.free(Frame::from_entry(frame));
}

#[test]
fn a_frame_that_is_kept_counts_for_whoever_has_it() {
    let (mut frames, mut mem) = allocator();
    let owner = Owner::program(7);
    let kept = [(); 3].map(|()| alloc(&mut frames, &mut mem, owner).unwrap());
    kept.iter().for_each(|&frame| frames.retain(frame));
    assert_eq!(frames.state(kept[0]), (State::Retained, owner));
    assert_eq!((frames.usage().user, frames.usage().retained), (0, 3));
    assert_eq!(frames.owned_by(owner), 3);
    // A launch takes all of them at once, and gives one up while it runs.
    frames.borrow(3);
    assert_eq!((frames.usage().user, frames.usage().retained), (3, 0));
    assert!(frames.take(kept[1]) && !frames.take(kept[1]));
    frames.free(Frame::from_entry(kept[1]));
    frames.check_tags().unwrap();
    // Its end keeps one and gives one back.
    assert!(frames.take(kept[0]) && frames.take(kept[2]));
    frames.retain(kept[0]);
    frames.free(Frame::from_entry(kept[2]));
    frames.discard(kept[0]);
    let counters = frames.counters();
    assert_eq!(
        (counters.retained, counters.borrowed, counters.discarded),
        (4, 3, 1)
    );
    assert_eq!(frames.usage().dirty, 3);
    frames.check_tags().unwrap();
}

#[test]
#[should_panic(expected = "freed while Retained")]
fn a_frame_that_is_kept_is_not_simply_freed() {
    let (mut frames, mut mem) = allocator();
    let frame = alloc(&mut frames, &mut mem, Owner::program(1)).unwrap();
    frames.retain(frame);
    frames.free(Frame::from_entry(frame));
}

#[test]
#[should_panic(expected = "belongs to no running program")]
fn a_frame_that_nobody_runs_on_is_not_claimed() {
    let (mut frames, mut mem) = allocator();
    let frame = alloc(&mut frames, &mut mem, Owner::program(1)).unwrap();
    frames.retain(frame);
    frames.take(frame);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc { owner: u16 },
    Contiguous { count: u64, align: u64 },
    Free { pick: usize },
    Retain { pick: usize },
    Discard { pick: usize },
    Scrub { limit: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u16..4).prop_map(|owner| Step::Alloc { owner }),
        1 => (1u64..6, 0u32..4).prop_map(|(count, shift)| Step::Contiguous {
            count,
            align: PAGE_SIZE << shift
        }),
        4 => any::<usize>().prop_map(|pick| Step::Free { pick }),
        3 => any::<usize>().prop_map(|pick| Step::Retain { pick }),
        1 => any::<usize>().prop_map(|pick| Step::Discard { pick }),
        1 => (0u64..8).prop_map(|limit| Step::Scrub { limit }),
    ]
}

/// Frames that are held, by address, with the byte their owner filled them with.
type Model = BTreeMap<PhysAddr, Owner>;

fn take(model: &mut Model, mem: &mut FakeMemory, frame: PhysAddr, owner: Owner) {
    assert!(mem.is_zero(frame), "{frame:?} not zero");
    assert!(
        model.insert(frame, owner).is_none(),
        "{frame:?} given out twice"
    );
    mem.fill(frame, 0x77);
}

/// Whether `count` frames in a row that nobody holds exist at a multiple of `align`.
fn has_run(model: &Model, count: u64, align: u64) -> bool {
    let managed = |index: u64| (1..8).contains(&index) || (12..48).contains(&index);
    let free = |index: u64| {
        let frame = PhysAddr::new(BASE + index * PAGE_SIZE);
        managed(index) && !model.contains_key(&frame)
    };
    (0..FRAMES).any(|start| {
        (BASE + start * PAGE_SIZE).is_multiple_of(align) && (start..start + count).all(free)
    })
}

proptest! {
    #[test]
    fn agrees_with_the_model(steps in proptest::collection::vec(step(), 0..200)) {
        let (mut frames, mut mem) = allocator();
        let mut model = Model::new();
        for step in steps {
            match step {
                Step::Alloc { owner } => {
                    let owner = Owner(owner);
                    match alloc(&mut frames, &mut mem, owner) {
                        Some(frame) => take(&mut model, &mut mem, frame, owner),
                        None => prop_assert_eq!(model.len(), 43),
                    }
                }
                Step::Contiguous { count, align } => {
                    let expected = has_run(&model, count, align);
                    let run = frames.alloc_contiguous(&mut mem, count, align, Owner::KERNEL);
                    prop_assert_eq!(run.is_some(), expected);
                    for index in 0..run.map_or(0, |_| count) {
                        let frame = run.unwrap().offset(index * PAGE_SIZE);
                        take(&mut model, &mut mem, frame, Owner::KERNEL);
                    }
                }
                Step::Free { pick } => {
                    if let Some(&frame) = model.keys().nth(pick % model.len().max(1)) {
                        if frames.state(frame).0 == State::Retained {
                            // Of a program that is launched and at once gives it up.
                            frames.borrow(1);
                            prop_assert!(frames.take(frame));
                        }
                        frames.free(Frame::from_entry(frame));
                        model.remove(&frame);
                    }
                }
                Step::Retain { pick } => {
                    let user = |frame: &&PhysAddr| frames.state(**frame).0 == State::User;
                    let users: Vec<PhysAddr> = model.keys().filter(user).copied().collect();
                    if let Some(&frame) = users.get(pick % users.len().max(1)) {
                        frames.retain(frame);
                        prop_assert_eq!(frames.state(frame), (State::Retained, model[&frame]));
                    }
                }
                Step::Discard { pick } => {
                    let kept = |frame: &&PhysAddr| frames.state(**frame).0 == State::Retained;
                    let kept: Vec<PhysAddr> = model.keys().filter(kept).copied().collect();
                    if let Some(&frame) = kept.get(pick % kept.len().max(1)) {
                        frames.discard(frame);
                        model.remove(&frame);
                    }
                }
                Step::Scrub { limit } => {
                    let dirty = frames.usage().dirty;
                    prop_assert_eq!(frames.scrub(&mut mem, limit), limit.min(dirty));
                }
            }
            prop_assert_eq!(frames.check_tags(), Ok(()));
            let usage = frames.usage();
            let held = usage.kernel + usage.user + usage.retained + usage.object;
            prop_assert_eq!(held, model.len() as u64);
        }
        for (&frame, &owner) in &model {
            prop_assert_eq!(frames.state(frame).1, owner);
        }
    }
}

/// What is zeroed without the allocator is what it gives out next, one frame or a row.
#[test]
fn frames_are_zeroed_ahead() {
    let (mut frames, mut mem) = allocator();
    let owner = Owner::program(1);
    // One that somebody has used.
    let used = alloc(&mut frames, &mut mem, owner).unwrap();
    mem.fill(used, 7);
    frames.free(Frame::from_entry(used));
    assert!(!frames.is_next_zeroed(1));
    let aside = frames.take_unzeroed(1).unwrap();
    assert_eq!(aside, used);
    assert_eq!(frames.check_tags(), Ok(()));
    let other = alloc(&mut frames, &mut mem, owner).unwrap();
    assert_ne!(other, aside, "what is aside is nobody else's");
    mem.zero_frame(aside);
    frames.give_zeroed(aside, 1);
    assert!(frames.is_next_zeroed(1) && frames.take_unzeroed(1).is_none());
    assert_eq!(frames.check_tags(), Ok(()));
    // It is not zeroed again.
    mem.fill(aside, 9);
    assert_eq!(alloc(&mut frames, &mut mem, owner), Some(aside));
    assert!(!mem.is_zero(aside));
    let row = frames.take_unzeroed(4).unwrap();
    assert!(row.is_aligned(4 * PAGE_SIZE));
    frames.give_zeroed(row, 4);
    assert!(frames.is_next_zeroed(4));
    let given = frames.alloc_contiguous(&mut mem, 4, 4 * PAGE_SIZE, owner);
    assert_eq!(given, Some(row));
    assert_eq!(frames.check_tags(), Ok(()));
}
