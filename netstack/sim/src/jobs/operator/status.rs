//! What the control node has stored of its nodes: the boot each was in, and what it held. Survives
//! the control node, as a database does.

use std::collections::BTreeMap;

use netstack::ids::{BootEpoch, NodeId, ProgramId};
use netstack::retention::Holding;

use crate::world::Checked;

/// What a node holds, by its own word.
#[derive(Debug)]
struct Status {
    epoch: BootEpoch,
    held: BTreeMap<ProgramId, u32>,
}

/// The node status table.
#[derive(Debug, Default)]
pub struct StatusTable {
    nodes: BTreeMap<NodeId, Status>,
}

impl StatusTable {
    /// A node has joined: another boot holds nothing of what the one before held.
    pub fn joined(&mut self, node: NodeId, epoch: BootEpoch) {
        let known = self.nodes.get(&node);
        if known.is_none_or(|status| status.epoch != epoch) {
            let held = BTreeMap::new();
            self.nodes.insert(node, Status { epoch, held });
        }
    }

    /// A node says what has changed.
    pub fn report(
        &mut self,
        node: NodeId,
        epoch: BootEpoch,
        reset: bool,
        held: &[Holding],
        dropped: &[ProgramId],
    ) -> Checked {
        let status = self.nodes.get_mut(&node);
        let status = status
            .filter(|status| status.epoch == epoch)
            .ok_or_else(|| format!("{node} holds programs in a boot that has not joined"))?;
        if reset {
            status.held.clear();
        }
        status.held.retain(|program, _| !dropped.contains(program));
        let held = held.iter();
        status
            .held
            .extend(held.map(|holding| (holding.program, holding.pages)));
        Ok(())
    }

    /// Whether a node holds a program.
    pub fn is_warm(&self, node: NodeId, program: ProgramId) -> bool {
        let status = self.nodes.get(&node);
        status.is_some_and(|status| status.held.contains_key(&program))
    }

    /// Whether this is what is stored of a boot of a node.
    pub fn agrees(&self, node: NodeId, epoch: BootEpoch, held: &BTreeMap<ProgramId, u32>) -> bool {
        let status = self.nodes.get(&node);
        status.is_some_and(|status| status.epoch == epoch && status.held == *held)
    }
}
