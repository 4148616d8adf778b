//! Which nodes hold which program: each node the last few that it ran.
//!
//! Key type: [`WarmNodes`]. Neighbour: [`crate::world`].
//!
//! Invariant: a node holds at most as many programs as it may, those it ran last.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use hearth_alloc::queue::Held;

use crate::trace::Program;

/// What the nodes hold.
pub struct WarmNodes {
    held_max: usize,
    by_node: Vec<VecDeque<Program>>,
    by_program: BTreeMap<Program, Held>,
}

impl WarmNodes {
    /// No node holds anything; each may hold so many programs.
    pub fn new(nodes: usize, held_max: usize) -> Self {
        WarmNodes {
            held_max,
            by_node: vec![VecDeque::new(); nodes],
            by_program: BTreeMap::new(),
        }
    }

    /// The nodes that hold a program.
    pub fn of(&self, program: &Program) -> Held {
        self.by_program.get(program).cloned().unwrap_or_default()
    }

    /// A program runs on these nodes; how many of them hold it already.
    pub fn run(&mut self, program: Program, nodes: &[u32]) -> usize {
        let mut warm = 0;
        for &node in nodes {
            let held = &mut self.by_node[node as usize];
            if let Some(place) = held.iter().position(|other| *other == program) {
                held.remove(place);
                warm += 1;
            }
            held.push_back(program);
            let nodes = self.by_program.entry(program).or_default();
            Rc::make_mut(nodes).insert(node);
            if held.len() > self.held_max {
                let oldest = held.pop_front().expect("more than none");
                let nodes = self.by_program.entry(oldest).or_default();
                Rc::make_mut(nodes).remove(&node);
                if nodes.is_empty() {
                    self.by_program.remove(&oldest);
                }
            }
        }
        warm
    }
}
