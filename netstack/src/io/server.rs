//! The control side of function-shipped I/O: one rank's channel.
//!
//! Invariant: every call is handed on exactly once, in the order of its number. The replies of
//! the last [`WINDOW`] calls are kept: a node that sends call n has the replies of all calls up
//! to n - [`WINDOW`].

use alloc::collections::{BTreeMap, BTreeSet};

use crate::ids::CallId;
use crate::io::{IoOp, IoReply, WINDOW};
use crate::wire::job::Standing;

/// What a received call came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It is new; hand on what [`Channel::next`] gives.
    Taken,
    /// It was here before: say so, or repeat its reply.
    Repeated,
    /// Its number is impossible.
    OutOfWindow,
}

/// One rank's calls at the control node.
#[derive(Debug)]
pub(crate) struct Channel {
    /// Number of the next call to hand on.
    next: u64,
    /// Calls that arrived before their turn.
    early: BTreeMap<u64, IoOp>,
    /// Calls handed on; the reply once there is one.
    replies: BTreeMap<u64, Option<IoReply>>,
    /// Calls from `next` on that an earlier run of the control node has answered; fewer than a
    /// window.
    done_before: BTreeSet<u64>,
    exit: Option<u64>,
}

impl Channel {
    pub(crate) fn new() -> Self {
        Channel {
            next: 1,
            early: BTreeMap::new(),
            replies: BTreeMap::new(),
            done_before: BTreeSet::new(),
            exit: None,
        }
    }

    /// The channel of a rank that an earlier run of the control node has served, whose node says
    /// how far its calls are.
    pub(crate) fn resumed(calls: &Standing) -> Self {
        let Standing { first, done, .. } = *calls;
        let is_done = |index: &u64| done >> index & 1 == 1;
        let behind = (0..u64::from(WINDOW)).filter(is_done);
        Channel {
            next: first.0,
            done_before: behind.map(|index| first.0.saturating_add(index)).collect(),
            ..Channel::new()
        }
    }

    pub(crate) fn receive(&mut self, call: CallId, op: IoOp) -> Outcome {
        self.pass_done();
        let number = call.0;
        if number < self.next {
            let kept = self.replies.contains_key(&number);
            return if kept {
                Outcome::Repeated
            } else {
                Outcome::OutOfWindow
            };
        }
        // The lowest call without a reply bounds what a correct node can send.
        let unanswered = self.replies.iter().find(|(_, reply)| reply.is_none());
        let lowest = unanswered.map_or(self.next, |(number, _)| *number);
        if number - lowest >= u64::from(WINDOW) || self.exit.is_some() {
            return Outcome::OutOfWindow;
        }
        if self.early.insert(number, op).is_some() {
            return Outcome::Repeated;
        }
        Outcome::Taken
    }

    /// Goes past calls that nobody will make again.
    fn pass_done(&mut self) {
        while self.done_before.remove(&self.next) {
            self.next += 1;
        }
    }

    /// The next call to hand on.
    pub(crate) fn next(&mut self) -> Option<(CallId, IoOp)> {
        self.pass_done();
        let op = self.early.remove(&self.next)?;
        let number = self.next;
        self.next += 1;
        self.replies.insert(number, None);
        if matches!(op, IoOp::Exit(_)) {
            self.exit = Some(number);
            self.early.clear();
        }
        while let Some((oldest, _)) = self.replies.first_key_value()
            && number - oldest >= u64::from(WINDOW)
        {
            self.replies.pop_first();
        }
        Some((CallId(number), op))
    }

    /// Stores a reply; false when the call is not waiting for one. True for the exit's.
    pub(crate) fn reply(&mut self, call: CallId, reply: IoReply) -> Option<bool> {
        let slot = self
            .replies
            .get_mut(&call.0)
            .filter(|slot| slot.is_none())?;
        *slot = Some(reply);
        Some(self.exit == Some(call.0))
    }

    /// What to answer about a call that was here; the outer None when there is nothing to say.
    pub(crate) fn answer(&self, call: CallId) -> Option<Option<&IoReply>> {
        if self.early.contains_key(&call.0) {
            return Some(None);
        }
        self.replies.get(&call.0).map(Option::as_ref)
    }
}
