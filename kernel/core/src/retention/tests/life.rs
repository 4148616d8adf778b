//! Whole lives of programs, in any order: cold and warm launches, what programs do to their memory,
//! ends of every kind, eviction and drops. After each step everything that is in memory is compared
//! with what should be there, and every frame has one program.

use super::machine::{file, touch};
use super::steps::{Spot, Step, step};
use super::world::World;
use crate::addr::PAGE_SIZE;
use crate::fault::Access;
use crate::paging::entry::Class;
use crate::phys::PhysMem;
use crate::program::Fetch;
use crate::retention::Policy;
use proptest::prelude::*;
use std::collections::BTreeSet;

const FRAMES: u64 = 1024;
/// Pages of the images and around them.
const IMAGE: std::ops::Range<u64> = 0x3ff..0x43f;

fn world() -> World {
    let files = [
        file(1, 3, 1, 2, PAGE_SIZE, 2),
        file(2, 20, 3, 3, 0x456, 1),
        file(3, 30, 9, 8, 1, 4),
    ];
    World::new(FRAMES, files)
}

/// A program is launched on data pages of an earlier run and keeps nothing of this one: what it
/// came with is its own once it writes, also after it dropped the copy.
#[test]
fn a_page_that_came_warm_is_never_writable() {
    let mut world = world();
    let at = Spot::Image {
        segment: 3,
        index: 1,
        from_end: false,
    };
    let (offset, pages) = (9, 1);
    for keep in [true, false, false] {
        let policy = Policy {
            keep,
            ..Policy::default()
        };
        let steps = [
            Step::Launch {
                file: 0,
                policy,
                limit: u64::MAX,
            },
            Step::Touch {
                spot: at,
                offset,
                access: Access::Read,
            },
            Step::Write {
                spot: at,
                offset,
                byte: 7,
            },
            Step::Discard { spot: at, pages },
            Step::Touch {
                spot: at,
                offset,
                access: Access::Read,
            },
            Step::Write {
                spot: at,
                offset,
                byte: 8,
            },
            Step::End,
        ];
        for step in &steps {
            world.step(step);
            world.check();
        }
    }
}

/// What a program has reserved and kept aside counts for its limit, and goes before the program
/// does.
#[test]
fn a_limit_holds_for_what_is_kept_aside() {
    let mut world = world();
    let limit = 13 * PAGE_SIZE;
    world.launch(2, Policy::default(), limit);
    // Eight pages of data, each with its copy, are more than thirteen.
    for page in 0..8 {
        let spot = Spot::Page(0x428 + page);
        world.step(&Step::Write {
            spot,
            offset: 0,
            byte: 1,
        });
        world.check();
        let running = world.running.as_ref().expect("the limit was not reached");
        assert!(running.memory.pages_peak() <= 13);
        assert!(running.memory.charged().0 <= 13);
    }
    world.end();
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn frames_have_one_program_and_hold_what_they_should(
        steps in proptest::collection::vec(step(), 1..160)
    ) {
        let mut world = world();
        for step in &steps {
            world.step(step);
            world.check();
        }
        world.end();
        world.check();
        world.check_clean();
        world.warm.drop_program(&mut world.sim, None);
        world.drop_objects();
        world.squeeze(FRAMES);
        world.check();
        world.check_clean();
        let usage = world.sim.frames.usage();
        prop_assert_eq!((usage.kernel, usage.user, usage.retained), (world.sim.kernel_frames, 0, 0));
    }

    /// The goal of it all: what was touched once is there at the next launch.
    #[test]
    fn a_warm_launch_that_touches_the_same_pages_fetches_nothing(
        which in 0usize..3,
        touches in proptest::collection::vec((IMAGE, 0usize..3), 1..60),
        others in proptest::collection::vec(0usize..3, 0..3),
    ) {
        let mut world = world();
        let mut files = BTreeSet::new();
        let mut rounds = std::vec![which];
        rounds.extend(others);
        rounds.push(which);
        for file in rounds {
            let warm = !files.insert(file);
            world.launch(file, Policy::default(), u64::MAX);
            let running = world.running.as_mut().unwrap();
            let (mut fetched, mut code) = (0, 0);
            for &(page, access) in &touches {
                let access = [Access::Read, Access::Write, Access::Execute][access];
                let at = page * PAGE_SIZE + 7;
                let before = running.memory.faults();
                let mut count = |_: &Fetch| fetched += 1;
                let (sim, file) = (&mut world.sim, &world.files[file]);
                let memory = &mut running.memory;
                let place = touch(sim, memory, file, &mut running.under_way, (at, access), &mut count);
                if let (Ok(place), Access::Write) = (place, access) {
                    sim.mem.write(place, &[9]);
                    running.write(file, at, 9);
                }
                let after = running.memory.faults();
                let text = file.image.segment_at(at).is_some_and(|s| s.class == Class::FileExecute);
                // Also not one that needs no fetch.
                code += u64::from(text && before != after && place.is_ok());
            }
            if warm {
                prop_assert_eq!((fetched, code), (0, 0));
                let faults = running.memory.faults();
                prop_assert_eq!((faults.file(), faults.held), (0, 0));
            }
            world.check();
            world.end();
            world.check();
        }
    }
}
