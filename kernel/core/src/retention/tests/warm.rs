//! The table of warm programs: limits, who goes first, and what control is told.

use super::machine::{File, Sim, file};
use super::world::World;
use crate::addr::PAGE_SIZE;
use crate::fault::Access;
use crate::frames::Owner;
use crate::program::Memory;
use crate::retention::{Change, Policy, ProgramId, ROOM_FRAMES, Variant, WARM_MAX, WarmTable};
use std::vec::Vec;

const FRAMES: u64 = 2048;

fn files() -> [File; 3] {
    [1, 2, 3].map(|number| file(number, 20, 3, 3, PAGE_SIZE, 1))
}

/// A world in which program `file` has run and touched `pages` of its text.
fn run(world: &mut World, file: usize, pages: u64) {
    world.launch(file, Policy::default(), u64::MAX);
    for page in 0..pages {
        world.access((0x401 + page) * PAGE_SIZE, Access::Execute);
    }
    world.end();
    world.check();
}

fn held(world: &World) -> Vec<u64> {
    let pages = |file: &File| world.warm.get(&file.id).map_or(0, |entry| entry.pages());
    world.files.iter().map(pages).collect()
}

#[test]
fn the_least_recently_used_goes_first() {
    let mut world = World::new(FRAMES, files());
    for file in [0, 1, 2, 0] {
        run(&mut world, file, 10);
    }
    let all = held(&world);
    assert!(all.iter().all(|&pages| pages >= 10));
    // Program 1 was used longest ago.
    world.warm.set_limit(&mut world.sim, world.warm.pages() - 1);
    assert_eq!(held(&world), [all[0], 0, all[2]]);
    world.check();
    // Memory that is wanted: as many go as it takes, in the same order.
    world.squeeze(ROOM_FRAMES - 5);
    assert_eq!(world.warm.keep_room(&mut world.sim, ROOM_FRAMES), all[2]);
    assert_eq!(held(&world), [all[0], 0, 0]);
    assert_eq!(world.warm.keep_room(&mut world.sim, ROOM_FRAMES), 0);
    world.check();
    // One that does not fit by itself is not held.
    world.warm.set_limit(&mut world.sim, 3);
    assert_eq!(held(&world), [0, 0, 0]);
    run(&mut world, 1, 10);
    assert_eq!(held(&world), [0, 0, 0]);
}

#[test]
fn a_retain_message_leaves_one_program() {
    let mut world = World::new(FRAMES, files());
    for file in [0, 1, 2] {
        run(&mut world, file, 10);
    }
    let id = world.files[1].id;
    let pages = held(&world)[1];
    let variant = Variant::ReadOnlyToo;
    let now = world.warm.retain_only(&mut world.sim, &id, variant);
    assert_eq!((now, held(&world)), (pages, std::vec![0, pages, 0]));
    world.check();
    // Of a program that is not there nothing can be retained, and what is there goes.
    let other = world.files[2].id;
    assert_eq!(world.warm.retain_only(&mut world.sim, &other, variant), 0);
    assert!(world.warm.is_empty());
    world.check();
}

#[test]
fn a_program_that_runs_cannot_be_dropped_under_it() {
    let mut world = World::new(FRAMES, files());
    run(&mut world, 0, 10);
    let id = world.files[0].id;
    world.launch(0, Policy::default(), u64::MAX);
    assert_eq!(world.warm.drop_program(&mut world.sim, Some(&id)), 0);
    assert_eq!(world.warm.drop_program(&mut world.sim, None), 0);
    let owner = world.running.as_ref().unwrap().memory.owner();
    assert!(!world.warm.owns(owner));
    world.check();
    world.end();
    assert!(world.warm.owns(owner));
    world.check();
    // Control is told when a run leaves nothing of what was there.
    world.launch(0, Policy::nothing(), u64::MAX);
    world.end();
    assert_eq!(world.warm.next_change(), Some(Change::Dropped(id)));
    assert_eq!(world.warm.next_change(), None);
}

#[test]
fn the_table_is_bounded() {
    let mut sim = Sim::new(FRAMES);
    let mut warm = WarmTable::new(FRAMES);
    let file = file(1, 3, 1, 2, PAGE_SIZE, 2);
    let mut last = ProgramId([0; 32]);
    for number in 0..2 * WARM_MAX {
        let mut program = file.program();
        last = ProgramId([number as u8; 32]);
        program.id = last;
        let owner = Owner::program(1 + number as u16);
        let (kernel, policy) = (sim.kernel, Policy::default());
        let memory = Memory::new(&mut sim, program, kernel, owner, u64::MAX, policy);
        let mut memory = memory.unwrap();
        let fetch = memory.plan_hold(&mut sim, 0x40_1000, 0x40_2000).unwrap();
        memory.install(&mut sim, &fetch, file.read(&fetch)).unwrap();
        let (retained, _) = memory.retire(&mut sim, &policy);
        warm.restore(&mut sim, &last, retained);
        // One that was never asked for is told together with those that went.
        while number % 40 == 39 && warm.next_change().is_some() {}
    }
    assert_eq!((warm.len(), warm.pages()), (WARM_MAX, WARM_MAX as u64));
    assert!(warm.get(&last).is_some());
    assert!(warm.get(&ProgramId([0; 32])).is_none());
    assert_eq!(warm.drop_program(&mut sim, None), WARM_MAX as u64);
    sim.frames.check_tags().unwrap();
}

#[test]
fn the_default_limit_leaves_a_quarter() {
    assert_eq!(WarmTable::default_limit(8192), 6144);
    // 4 MiB where that is more, and nothing where there is no more.
    assert_eq!(WarmTable::default_limit(2048), 1024);
    assert_eq!(WarmTable::default_limit(1000), 0);
}
