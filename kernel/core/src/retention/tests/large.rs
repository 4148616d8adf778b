//! Text in large pages: reservation, promotion, demotion, and what is kept of it.

use super::machine::{File, file};
use super::steps::{self, Spot, Step};
use super::world::World;
use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE};
use crate::fault::Access;
use crate::frames::State;
use crate::program::Memory;
use crate::retention::Policy;
use hearth_abi::linux::prot;
use proptest::prelude::*;

const FRAMES: u64 = 4096;
/// Pages of text of the program that has room for one large page of it: 0x401000 to 0x84d000.
const TEXT: u64 = 1100;
/// The pages of the large page.
const FIRST: u64 = 0x600;
const IN_LARGE: u64 = LARGE_PAGE_SIZE / PAGE_SIZE;

fn files() -> [File; 3] {
    [
        file(1, TEXT, 1, 2, 0x800, 1),
        file(2, 20, 3, 3, 0x456, 1),
        file(3, 30, 9, 8, 1, 4),
    ]
}

fn policy(large_text: bool) -> Policy {
    Policy {
        large_text,
        ..Policy::default()
    }
}

fn memory(world: &mut World) -> &mut Memory {
    &mut world.running.as_mut().unwrap().memory
}

/// Touches pages one after the other.
fn sweep(world: &mut World, first: u64, pages: u64) {
    for page in first..first + pages {
        if world.running.is_none() {
            return;
        }
        world.access(page * PAGE_SIZE + page % PAGE_SIZE, Access::Execute);
    }
}

/// Faults, tables and large pages of a run that touches all text.
fn run(world: &mut World, large: bool) -> (u64, u64, u64) {
    world.launch(0, policy(large), u64::MAX);
    sweep(world, 0x401, TEXT);
    // The kernel finds its way in a large page, too.
    world.step(&Step::KernelRead {
        spot: Spot::Page(FIRST + 77),
        offset: 5,
        length: 9000,
    });
    world.check();
    let faults = memory(world).faults();
    let of = (
        faults.file() + faults.held,
        memory(world).pages_large(),
        world.sim.frames.usage().kernel,
    );
    world.end();
    world.check();
    (of.0, of.2, of.1)
}

#[test]
fn full_text_becomes_one_large_page_and_stays_so() {
    let (mut small, mut large) = (World::new(FRAMES, files()), World::new(FRAMES, files()));
    let (cold_small, tables_small, none) = run(&mut small, false);
    let (cold_large, tables_large, one) = run(&mut large, true);
    assert_eq!((none, one), (0, 1));
    assert!(cold_large <= cold_small, "{cold_large} {cold_small}");
    assert_eq!(tables_large, tables_small - 1);
    let kept = large.warm.get(&large.files[0].id).unwrap();
    assert_eq!((kept.large(), kept.pages()), (1, TEXT));
    // Warm: no fault at all, on the large page as it was.
    let (warm, _, one) = run(&mut large, true);
    assert_eq!((warm, one), (0, 1));
}

#[test]
fn a_reservation_that_is_not_filled_is_given_back() {
    let mut world = World::new(FRAMES, files());
    world.launch(0, policy(true), u64::MAX);
    sweep(&mut world, FIRST + 5, 3);
    world.check();
    let spare = memory(&mut world).spare().count() as u64;
    assert!(spare > IN_LARGE - 64, "{spare} frames are reserved");
    world.end();
    world.check();
    world.check_clean();
    let kept = world.warm.get(&world.files[0].id).unwrap();
    assert!(kept.pages() < 64 && kept.large() == 0);
    // Nor does memory that is short keep it.
    let id = world.files[0].id;
    world.warm.drop_program(&mut world.sim, Some(&id));
    world.launch(0, policy(true), u64::MAX);
    sweep(&mut world, FIRST, 1);
    assert!(memory(&mut world).spare().count() > 0);
    world.squeeze(200);
    sweep(&mut world, 0x401, 1);
    assert_eq!(memory(&mut world).spare().count(), 0);
    world.check();
}

#[test]
fn a_part_that_changes_splits_the_page() {
    let part = Spot::Page(FIRST + 100);
    let changes = [
        Step::Protect {
            spot: part,
            pages: 3,
            prot: prot::READ | prot::WRITE,
        },
        Step::Unmap {
            spot: part,
            pages: 3,
        },
        Step::Discard {
            spot: part,
            pages: 3,
        },
        Step::Map {
            spot: part,
            pages: 3,
            prot: prot::READ,
        },
    ];
    for change in &changes {
        let mut world = World::new(FRAMES, files());
        for warm in [false, true] {
            world.launch(0, policy(true), u64::MAX);
            sweep(&mut world, FIRST, IN_LARGE);
            // Warm, three pages are missing or fetched again, one by one.
            assert_eq!(memory(&mut world).pages_large(), u64::from(!warm));
            world.step(change);
            world.check();
            assert_eq!(memory(&mut world).pages_large(), 0, "{change:?}");
            world.end();
            world.check();
            world.check_clean();
            let retained = world.sim.frames_in(State::Retained).count() as u64;
            assert_eq!(retained, IN_LARGE - 3, "{change:?}");
        }
    }
}

/// Addresses of the kernel are none of the program's, and of its large pages too.
#[test]
fn the_kernels_large_pages_are_not_split() {
    let mut world = World::new(FRAMES, files());
    world.launch(0, policy(true), u64::MAX);
    sweep(&mut world, FIRST, IN_LARGE);
    let (spot, pages) = (Spot::Kernel(1), 1);
    for step in [
        Step::Unmap { spot, pages },
        Step::Discard { spot, pages },
        Step::Protect {
            spot,
            pages,
            prot: prot::READ,
        },
        Step::Map {
            spot,
            pages,
            prot: prot::READ,
        },
    ] {
        world.step(&step);
        world.check();
        assert_eq!(memory(&mut world).pages_large(), 1, "{step:?}");
    }
    // Nor does a call that fails split the program's own.
    let spot = Spot::Page(FIRST + 7);
    let write_and_execute = prot::READ | prot::WRITE | prot::EXEC;
    world.step(&Step::Protect {
        spot,
        pages,
        prot: write_and_execute,
    });
    assert_eq!(memory(&mut world).pages_large(), 1);
    world.step(&Step::Unmap { spot, pages });
    assert_eq!(memory(&mut world).pages_large(), 0);
    world.check();
}

/// Steps of a program of which the large page is touched most.
fn step() -> impl Strategy<Value = Step> {
    let near = || (FIRST - 3..FIRST + IN_LARGE + 3).prop_map(Spot::Page);
    let pages = || prop_oneof![1u64..6, Just(IN_LARGE)];
    let prot = || {
        prop_oneof![
            Just(prot::READ),
            Just(prot::READ | prot::EXEC),
            Just(prot::READ | prot::WRITE),
            Just(prot::NONE),
        ]
    };
    let all = Spot::Page(FIRST);
    prop_oneof![
        6 => steps::step(),
        1 => (near(), pages()).prop_map(|(spot, pages)| Step::Unmap { spot, pages }),
        1 => (near(), pages()).prop_map(|(spot, pages)| Step::Discard { spot, pages }),
        1 => (near(), pages(), prot())
            .prop_map(|(spot, pages, prot)| Step::Protect { spot, pages, prot }),
        1 => prot().prop_map(move |prot| Step::Protect { spot: all, pages: IN_LARGE, prot }),
        1 => (near(), 1u8..).prop_map(|(spot, byte)| Step::Write { spot, offset: 0, byte }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn frames_have_one_program_with_large_pages_too(
        steps in proptest::collection::vec((step(), 0u64..8), 1..30)
    ) {
        let mut world = World::new(FRAMES, files());
        for (step, eighth) in &steps {
            if world.running.is_none() {
                world.launch(0, policy(true), u64::MAX);
            }
            sweep(&mut world, FIRST + eighth * IN_LARGE / 8, IN_LARGE / 4);
            world.check();
            world.step(step);
            world.check();
        }
        world.end();
        world.check();
        world.warm.drop_program(&mut world.sim, None);
        world.drop_objects();
        world.squeeze(FRAMES);
        world.check();
        world.check_clean();
        let usage = world.sim.frames.usage();
        prop_assert_eq!((usage.kernel, usage.user, usage.retained), (world.sim.kernel_frames, 0, 0));
    }
}
