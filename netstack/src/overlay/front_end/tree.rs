//! What the front end knows of the tree: by the census where it has come, else by the plan.
//!
//! Invariant: only what it told is taken from here; it may be late, and nobody is taken down
//! because of it.

use alloc::collections::BTreeMap;

use super::{FrontEnd, FrontEndEvent, MAX_NODES, Standing};
use crate::ids::{BootEpoch, NodeId};
use crate::overlay::MAX_CPS;
use crate::overlay::message::{CensusEntry, Process};
use crate::overlay::metric::OverlayMetric;
use crate::overlay::placement::Factors;
use crate::time::Instant;

/// Processes that are known: as many as all nodes together can host.
const MAX_VIEWS: usize = MAX_NODES * (MAX_CPS as usize + 1);

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// Its parent.
    pub parent: Process,
    /// Its height.
    pub height: u8,
    /// Back ends below it.
    pub back_ends: u32,
    /// Lag of the last tick in microseconds.
    pub lag_us: u32,
    /// Its last parent lost it.
    pub gone: bool,
    /// It sends nothing until its job ends.
    pub quiet: bool,
    /// The parent that it had before, and when the front end heard of the change.
    pub before: Option<(Process, Instant)>,
    boot: BootEpoch,
    link: u32,
}

impl FrontEnd {
    /// What is known of each process, by the census.
    pub fn views(&self) -> &BTreeMap<Process, NodeView> {
        &self.views
    }

    /// Every process of the tree as far as is known: the census where it has come, else the plan.
    pub fn processes(&self) -> BTreeMap<Process, NodeView> {
        let mut all = BTreeMap::new();
        if let Some(Standing { plan, nodes, .. }) = &self.standing {
            let name = |index: u32| {
                let planned = plan.processes[index as usize];
                let node = nodes[planned.host as usize];
                let slot = planned.slot;
                Process { node, slot }
            };
            for (index, planned) in (0..).zip(&plan.processes) {
                let view = NodeView {
                    parent: planned.parent.map_or(Process::FRONT_END, name),
                    height: planned.height,
                    back_ends: 0,
                    lag_us: 0,
                    gone: false,
                    quiet: false,
                    before: None,
                    boot: BootEpoch(0),
                    link: 0,
                };
                all.insert(name(index), view);
            }
        }
        all.extend(self.views.iter().map(|(process, view)| (*process, *view)));
        all
    }

    /// The parent of a process as far as is known: by the census where it has come, else by the
    /// plan.
    pub fn parent_of(&self, process: Process) -> Option<Process> {
        match self.views.get(&process) {
            Some(view) => Some(view.parent),
            None => self.planned_parent(process),
        }
    }

    fn planned_parent(&self, process: Process) -> Option<Process> {
        let Standing {
            plan,
            nodes,
            back_end_of,
            ..
        } = self.standing.as_ref()?;
        let named = |index: u32| {
            let planned = plan.processes[index as usize];
            let node = nodes[planned.host as usize];
            let slot = planned.slot;
            Process { node, slot }
        };
        let index = match process.slot {
            0 => *back_end_of.get(&process.node)?,
            _ => (0..plan.cps).find(|index| named(*index) == process)?,
        };
        let parent = plan.processes[index as usize].parent;
        Some(parent.map_or(Process::FRONT_END, named))
    }

    /// Processes that have `parent`, or had it until `since`, with whether they still have it.
    pub fn children_of(&self, parent: Process, since: Instant) -> BTreeMap<Process, bool> {
        let all = self.processes().into_iter();
        let child = |(process, view): (Process, NodeView)| {
            let had = view
                .before
                .is_some_and(|(before, at)| before == parent && at >= since);
            let has = view.parent == parent && !view.gone;
            (has || had).then_some((process, has))
        };
        all.filter_map(child).collect()
    }

    /// Nodes that host communication processes by the plan of the standing tree.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        let standing = self.standing.iter();
        standing.flat_map(|Standing { plan, nodes, .. }| {
            let cps = &plan.processes[..plan.cps as usize];
            cps.iter().map(|planned| nodes[planned.host as usize])
        })
    }

    /// Communication processes that a node can host, by its word; 0: it is not known.
    pub fn offers(&self, node: NodeId) -> u32 {
        let known = self.nodes.get(&node);
        known.map_or(0, |known| known.hello.cps.min(MAX_CPS).into())
    }

    /// A node has no room for a process of the plan, whatever it said: the next tree has it
    /// without.
    fn note_refused(&mut self, process: Process) {
        let known = self.nodes.get_mut(&process.node);
        let room = process.slot.saturating_sub(1);
        if let Some(known) = known.filter(|known| process.slot > 0 && known.hello.cps > room) {
            known.hello.cps = room;
            self.tell(FrontEndEvent::Refused { process });
        }
    }

    /// The back end of a node is known to send nothing until its job ends.
    pub fn is_quiet(&self, node: NodeId) -> bool {
        let view = self.views.get(&Process::back_end(node));
        view.is_some_and(|view| view.quiet && !view.gone)
    }

    /// What a node is judged by from now on, in place of what it said last.
    pub fn judge(&mut self, node: NodeId, factors: Factors) {
        if let Some(known) = self.nodes.get_mut(&node) {
            known.hello.factors = factors;
        }
    }

    /// How long the last ticks took in the front end beyond its slowest child, in microseconds.
    pub fn level_us(&self) -> u64 {
        self.counters.get(OverlayMetric::Level as usize)
    }

    /// A line of the census.
    pub(super) fn note(&mut self, now: Instant, entry: &CensusEntry) {
        if entry.refused {
            return self.note_refused(entry.process);
        }
        self.keeper.note(entry);
        if entry.own || entry.earlier {
            return;
        }
        if self.views.len() >= MAX_VIEWS && !self.views.contains_key(&entry.process) {
            self.counters.add(OverlayMetric::Overflowed as usize, 1);
            return;
        }
        let known = self.views.get(&entry.process);
        let news = known.is_none_or(|view| view.boot != entry.boot || view.link <= entry.link);
        if !news {
            return;
        }
        let before = match known {
            Some(view) if view.parent != entry.parent => Some((view.parent, now)),
            Some(view) => view.before,
            // Its first parent is that of the plan.
            None => self
                .planned_parent(entry.process)
                .filter(|planned| *planned != entry.parent)
                .map(|planned| (planned, now)),
        };
        let was_gone = known
            .is_some_and(|view| view.gone && view.link == entry.link && view.boot == entry.boot);
        let view = NodeView {
            parent: entry.parent,
            height: entry.height,
            back_ends: entry.back_ends,
            lag_us: entry.lag_us,
            gone: entry.gone || was_gone,
            quiet: entry.quiet,
            before,
            boot: entry.boot,
            link: entry.link,
        };
        self.views.insert(entry.process, view);
        if entry.gone && !was_gone {
            let process = entry.process;
            self.tell(FrontEndEvent::Lost { process });
        }
    }
}
