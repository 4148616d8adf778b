//! Asking nodes to leave: [`Farewells`] remembers who was asked and repeats it.
//!
//! ASK_LEAVE is repeated until the node's LEAVE arrives (which is answered as ever), its STAY (it
//! has a job), or the limit; a node that is asked gets no new job meanwhile. To a node that is
//! leaving already a repetition means nothing, so asking twice does no more than asking once.
//!
//! Neighbours: `control::Endpoint` asks and hears the answers, `join::node` is the other side.
//!
//! Invariant: only nodes that are up are in the table, so it is no larger than the registry.

use alloc::collections::BTreeMap;

use crate::control::Event;
use crate::control::outbox::{Outbox, Outgoing};
use crate::ids::NodeId;
use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::retry::{Backoff, FIRST, LOOKS};

/// Time between two ASK_LEAVE: a node that computes hears each twice at first, and one in two looks
/// in the end.
const REPEAT: Backoff = Backoff::new(Micros(2 * FIRST.0), Micros(2 * LOOKS.0));
/// ASK_LEAVEs sent before giving up: some 12 seconds, twice the silence after which a node is lost.
const TRIES: u32 = 9;

#[derive(Debug)]
struct Asked {
    tries: u32,
    next_at: Instant,
}

/// The nodes that have been asked to leave and have not answered.
#[derive(Debug, Default)]
pub(crate) struct Farewells {
    asked: BTreeMap<NodeId, Asked>,
}

impl Farewells {
    /// Asks a node that is up, unless it has been.
    pub(crate) fn ask(&mut self, now: Instant, node: NodeId) {
        self.asked.entry(node).or_insert(Asked {
            tries: 0,
            next_at: now,
        });
    }

    /// The node was asked and has not answered.
    pub(crate) fn is_asked(&self, node: NodeId) -> bool {
        self.asked.contains_key(&node)
    }

    /// The node has answered, or is gone; whether it had been asked.
    pub(crate) fn settle(&mut self, node: NodeId) -> bool {
        self.asked.remove(&node).is_some()
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.next_at).min()
    }

    /// Repeats what is due; a node that was asked often enough stays.
    pub(crate) fn handle_timeouts(&mut self, now: Instant, rng: &mut Rng, out: &mut Outbox) {
        self.asked.retain(|&node, asked| {
            if asked.next_at > now {
                return true;
            }
            if asked.tries == TRIES {
                out.event(Event::NodeStays { node, job: None });
                return false;
            }
            out.counters.retransmitted += u64::from(asked.tries > 0);
            asked.next_at = now + REPEAT.wait(asked.tries, rng);
            asked.tries += 1;
            out.send(Outgoing::AskLeave { node });
            true
        });
    }
}
