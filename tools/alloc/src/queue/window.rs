//! The published scheduling pass, steps 1 to 4.
//!
//! The first Njob jobs of the queue are a window, which shrinks from the end until there are
//! nodes for all of them; these are then placed, the largest first. Where the publication is
//! silent or has a trap:
//! - The window test compares nodes (Pjob with Nnode), although units are what is given out: jobs
//!   that do not fill their units can pass it and have no units. The test is made with the units
//!   that the jobs will get as well, and how often that matters is counted
//!   ([`super::Counters::windows_short_of_units`]).
//! - Starting the jobs of a window makes room for another window although nothing arrives or
//!   ends: the pass repeats until nothing more starts.
//! - Njob begins at its default with every window.
//! - A small job counts as a unit in the test, although it may find a busy unit that it fills.
//!   That keeps the test simple and never lets a job pass that has no unit.
//!
//! Key function: [`run`]. Neighbour: [`super`].
//!
//! Invariant: every job of a window that passed the test is placed.

use super::pass::Pass;
use super::{JobNumber, Reason};

/// Runs the pass.
pub(super) fn run(pass: &mut Pass, njob: usize) {
    loop {
        let window = open_window(pass, njob);
        let Some(&first) = window.first() else {
            return;
        };
        if pass.is_tied(first) {
            // Not in the publication: it starts when its nodes are free, and is waited for.
            match pass.choose(first) {
                Some(given) => start(pass, first, given),
                None => return pass.wait(first, Reason::Nodes),
            }
            continue;
        }
        let shrunk = shrink(pass, &window);
        if shrunk == 0 {
            // The publication waits here. A small job can still fill a busy unit.
            if pass.job(first).count < pass.machine.unit()
                && let Some(given) = pass.choose(first)
            {
                start(pass, first, given);
                continue;
            }
            pass.wait(first, Reason::Nodes);
            return;
        }
        let mut window = window[..shrunk].to_vec();
        // The largest first; of equals the first.
        window.sort_by_key(|number| std::cmp::Reverse(pass.job(*number).count));
        for number in window {
            let given = pass.choose(number).expect("there are units for the window");
            start(pass, number, given);
        }
    }
}

fn start(pass: &mut Pass, number: JobNumber, given: crate::placement::Given) {
    pass.candidates.retain(|other| *other != number);
    pass.start(number, given);
}

/// The first jobs of the queue whose users may have all of them; one that is tied to certain nodes
/// is alone.
fn open_window(pass: &mut Pass, njob: usize) -> Vec<JobNumber> {
    let mut window = Vec::with_capacity(njob);
    let mut place = 0;
    while window.len() < njob.max(1) && place < pass.candidates.len() {
        let number = pass.candidates[place];
        if pass.is_within_limits_beside(number, &window) {
            if pass.is_tied(number) && !window.is_empty() {
                break;
            }
            window.push(number);
            if pass.is_tied(number) {
                break;
            }
        }
        place += 1;
    }
    window
}

/// How many of the window's jobs there are nodes and units for.
fn shrink(pass: &mut Pass, window: &[JobNumber]) -> usize {
    let free_units = pass.machine.free_units();
    let nodes = free_units * pass.machine.unit() as usize;
    let sum = |jobs: &[JobNumber], of: &dyn Fn(u32) -> usize| -> usize {
        jobs.iter().map(|number| of(pass.job(*number).count)).sum()
    };
    let shrunk = |most: usize, of: &dyn Fn(u32) -> usize| {
        let fits = |jobs: &usize| sum(&window[..*jobs], of) <= most;
        (0..=window.len()).rev().find(fits).expect("no jobs fit")
    };
    let by_nodes = shrunk(nodes, &|count| count as usize);
    let by_units = shrunk(free_units, &|count| pass.machine.units_for(count));
    if by_units < by_nodes {
        pass.queue.counters.windows_short_of_units += 1;
    }
    by_units
}
