//! Drops: nodes that are told to let go of a program, who waits for their answer, and what is owed
//! to nodes that are out of service and may come back with what they held.
//!
//! Key types: [`Drops`], [`Answer`]. Neighbours: `netstack::control::Endpoint::drop_program`
//! (repeats the command until the node has answered, and forgets it when the node is lost),
//! `control_events` (hands answers and nodes' comings and goings in), `api::warm` (waits).
//!
//! Invariants: every answer that is waited for comes, or its channel closes because the node is
//! silent; a node that comes back from silence is told what it was to be told, unless control was
//! restarted meanwhile, but never to let go of what a cast under way gives it.

use std::collections::{BTreeMap, BTreeSet};

use netstack::control::DropRefused;
use netstack::ids::{NodeId, ProgramId};
use netstack::time::Instant;
use tokio::sync::oneshot;

use crate::control::Core;
use crate::programs::Hash;

/// Drops owed to one node; one more stands for all its programs. As many as a node can hold.
const OWED_MAX: usize = 64;

/// What is known of a drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The node has answered.
    Done {
        /// Pages of 4 KiB that it has given up.
        pages: u32,
        /// It runs the program, and will let go of it at the end.
        in_use: bool,
    },
    /// The node has left or booted again: it holds nothing.
    Void,
}

/// Why a node was not told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotTold {
    /// It is not in service and holds nothing that would come back.
    NotUp,
    /// It is silent and held the program; it is told when it is heard again.
    Away,
    /// Too many drops wait for it.
    TooMany,
}

/// A drop that a node has not answered.
#[derive(Debug)]
struct Waiting {
    program: Option<Hash>,
    sender: oneshot::Sender<Answer>,
}

/// Drops that are not over.
#[derive(Debug, Default)]
pub struct Drops {
    /// By node and number of the command. The endpoint bounds how many a node can have.
    waiting: BTreeMap<(u32, u64), Waiting>,
    /// What silent nodes are to let go of; `None` is everything.
    owed: BTreeMap<u32, Vec<Option<Hash>>>,
}

/// Tells a node to let go of a program, or of all. The channel closes without an answer when the
/// node falls silent; it is then told when it is heard again.
///
/// # Errors
/// [`NotTold`].
pub fn ask(
    core: &mut Core,
    now: Instant,
    node: u32,
    program: Option<Hash>,
) -> Result<oneshot::Receiver<Answer>, NotTold> {
    let asked = core
        .endpoint
        .drop_program(now, NodeId(node), program.map(ProgramId));
    let id = match asked {
        Ok(id) => id,
        Err(DropRefused::TooMany) => return Err(NotTold::TooMany),
        Err(DropRefused::NotUp) if is_away(core, node, program.as_ref()) => {
            core.drops.owe(node, program);
            return Err(NotTold::Away);
        }
        Err(DropRefused::NotUp) => return Err(NotTold::NotUp),
    };
    let (sender, receiver) = oneshot::channel();
    let waiting = Waiting { program, sender };
    core.drops.waiting.insert((node, id), waiting);
    Ok(receiver)
}

/// Whether a node is out of service and would come back with a program, or a file, that it holds.
fn is_away(core: &Core, node: u32, program: Option<&Hash>) -> bool {
    let file = program.is_some_and(|object| core.casts.files.away(object).contains(&node));
    file || core.ledger.warm.is_away(node, program)
}

/// A node is in service: it is told what it is owed, unless it has booted since. What is `wanted`
/// there by casts that were under way when it came back stays: whoever began these wants it there,
/// whatever was dropped before.
pub fn node_joined(
    core: &mut Core,
    now: Instant,
    node: u32,
    same_boot: bool,
    wanted: &BTreeSet<Hash>,
) {
    let owed = core.drops.owed.remove(&node).unwrap_or_default();
    if !same_boot {
        return;
    }
    let held = || {
        let programs = core.ledger.warm.of_node(node).map(|warm| warm.program);
        programs.chain(core.casts.files.held_on(node)).collect()
    };
    for program in still_owed(owed, wanted, held) {
        // Nobody waits for the answer any more.
        drop(ask(core, now, node, program));
    }
}

/// What of `owed` a node is told to let go of while `wanted` stays; `held` says what it holds.
fn still_owed(
    owed: Vec<Option<Hash>>,
    wanted: &BTreeSet<Hash>,
    held: impl FnOnce() -> BTreeSet<Hash>,
) -> Vec<Option<Hash>> {
    if owed == [None] && !wanted.is_empty() {
        return held().difference(wanted).copied().map(Some).collect();
    }
    let stays = |program: &Option<Hash>| program.is_some_and(|object| wanted.contains(&object));
    let told = owed.into_iter().filter(|program| !stays(program));
    told.collect()
}

impl Drops {
    /// A node has answered the command `id`; gives what it has let go of, if it was one thing.
    pub fn answered(&mut self, node: u32, id: u64, pages: u32, in_use: bool) -> Option<Hash> {
        let waiting = self.waiting.remove(&(node, id))?;
        // Who does not wait any more has said so.
        let _ = waiting.sender.send(Answer::Done { pages, in_use });
        waiting.program
    }

    /// A node is out of service; `forgets`: and what it held is gone.
    pub fn node_gone(&mut self, node: u32, forgets: bool) {
        let of_node = self.waiting.range((node, 0)..=(node, u64::MAX));
        let ids: Vec<u64> = of_node.map(|((_, id), _)| *id).collect();
        for id in ids {
            let Some(waiting) = self.waiting.remove(&(node, id)) else {
                continue;
            };
            if forgets {
                let _ = waiting.sender.send(Answer::Void);
            } else {
                self.owe(node, waiting.program);
            }
        }
        if forgets {
            self.owed.remove(&node);
        }
    }

    fn owe(&mut self, node: u32, program: Option<Hash>) {
        let owed = self.owed.entry(node).or_default();
        if owed.contains(&None) || owed.contains(&program) {
            return;
        }
        if program.is_none() || owed.len() >= OWED_MAX {
            *owed = vec![None];
        } else {
            owed.push(program);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(drops: &mut Drops, node: u32, id: u64, program: u8) -> oneshot::Receiver<Answer> {
        let (sender, receiver) = oneshot::channel();
        let program = Some([program; 32]);
        drops
            .waiting
            .insert((node, id), Waiting { program, sender });
        receiver
    }

    #[test]
    fn answers_come_or_are_owed_or_void() {
        let mut drops = Drops::default();
        let mut answered = waiting(&mut drops, 1, 7, 1);
        let mut silent = waiting(&mut drops, 1, 8, 2);
        let mut void = waiting(&mut drops, 2, 7, 1);
        assert_eq!(drops.answered(1, 7, 5, false), Some([1; 32]));
        assert_eq!(drops.answered(3, 7, 5, false), None);
        let done = Answer::Done {
            pages: 5,
            in_use: false,
        };
        assert_eq!(answered.try_recv(), Ok(done));
        drops.node_gone(1, false);
        assert!(silent.try_recv().is_err());
        assert_eq!(drops.owed[&1], [Some([2; 32])]);
        drops.node_gone(2, true);
        assert_eq!(void.try_recv(), Ok(Answer::Void));
        drops.node_gone(1, true);
        assert!(drops.owed.is_empty() && drops.waiting.is_empty());
    }

    #[test]
    fn what_a_cast_gives_again_is_owed_no_more() {
        let (one, two, three) = ([1; 32], [2; 32], [3; 32]);
        let held = || BTreeSet::from([one, two, three]);
        let wanted = BTreeSet::from([two]);
        let owed = vec![Some(one), Some(two)];
        assert_eq!(still_owed(owed, &wanted, held), [Some(one)]);
        // Everything, but for what is wanted.
        let rest = still_owed(vec![None], &wanted, held);
        assert_eq!(rest, [Some(one), Some(three)]);
        assert_eq!(still_owed(vec![None], &BTreeSet::new(), held), [None]);
    }

    #[test]
    fn what_is_owed_is_bounded() {
        let mut drops = Drops::default();
        for program in 0..=OWED_MAX {
            assert_eq!(drops.owed.get(&1).map_or(0, Vec::len), program);
            drops.owe(1, Some([u8::try_from(program).unwrap(); 32]));
            drops.owe(1, Some([0; 32]));
            if program == OWED_MAX {
                assert_eq!(drops.owed[&1], [None], "everything, at last");
            }
        }
    }
}
