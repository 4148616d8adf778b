//! Drops under way: nodes that were told to let go of a program, and who waits for their answer.
//!
//! Key types: [`Drops`], [`Answer`]. Neighbours: `netstack::control::Endpoint::drop_program`
//! (repeats the command until the node has answered), `control_events` (hands answers in),
//! `api::warm` (waits).
//!
//! Invariant: every answer that is waited for comes, or its channel closes because the node is
//! gone; how long to wait is the waiting side's business.

use std::collections::BTreeMap;

use netstack::control::DropRefused;
use netstack::ids::{NodeId, ProgramId};
use netstack::time::Instant;
use tokio::sync::oneshot;

use crate::control::Core;

/// What a node says about a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Pages of 4 KiB that it has given up.
    pub pages: u32,
    /// It runs the program, and will let go of it at the end.
    pub in_use: bool,
}

/// Answers waited for. The endpoint bounds how many commands a node can have.
#[derive(Debug, Default)]
pub struct Drops {
    waiting: BTreeMap<(u32, u64), oneshot::Sender<Answer>>,
}

/// Tells a node to let go of a program, or of all. The channel closes without an answer when the
/// node is lost.
///
/// # Errors
/// The endpoint's.
pub fn ask(
    core: &mut Core,
    now: Instant,
    node: u32,
    program: Option<[u8; 32]>,
) -> Result<oneshot::Receiver<Answer>, DropRefused> {
    let program = program.map(ProgramId);
    let id = core.endpoint.drop_program(now, NodeId(node), program)?;
    let (sender, receiver) = oneshot::channel();
    core.drops.waiting.insert((node, id), sender);
    Ok(receiver)
}

impl Drops {
    /// A node has answered the command `id`.
    pub fn answered(&mut self, node: u32, id: u64, answer: Answer) {
        if let Some(waiting) = self.waiting.remove(&(node, id)) {
            // Who does not wait any more has said so.
            let _ = waiting.send(answer);
        }
    }

    /// A node is gone, and what it held with it.
    pub fn node_gone(&mut self, node: u32) {
        self.waiting.retain(|(of, _), _| *of != node);
    }
}
