//! What a running rank asks for: pages and calls.
//!
//! Invariant: a rank's calls are handed on in their order, after its start if it was started.

use crate::control::Event;
use crate::control::outbox::{Outbox, Outgoing};
use crate::ids::{CallId, JobId, NodeId};
use crate::io::server::{Channel, Outcome};
use crate::io::{IoOp, IoReply};
use crate::job::StartMode;
use crate::job::control::{Jobs, Phase, rank_mut};
use crate::page::PageWanted;
use crate::time::Instant;
use crate::wire::io::IoCall;
use crate::wire::page::PageRead;

/// Channels of ended jobs kept per node, to repeat answers that were lost. A node that gets its
/// next LAUNCH takes all earlier ones for answered, so one would do.
const CLOSED_PER_NODE: usize = 4;

impl Jobs {
    /// A node asks for pages; None when it has no business to.
    pub(crate) fn page_read(
        &mut self,
        now: Instant,
        node: NodeId,
        read: &PageRead,
    ) -> Option<PageWanted> {
        let rank = self
            .jobs
            .get(&read.job)
            .and_then(|state| state.ranks.get(&node));
        let Some(rank) = rank.map(|rank| rank.rank) else {
            self.adopt_orphan(now, node, read.job);
            return None;
        };
        Some(PageWanted {
            node,
            rank,
            job: read.job,
            object: read.object,
            offset: read.offset,
            length: read.length,
            request: read.request,
            attempt: read.attempt,
            fragments: read.fragments,
        })
    }

    /// A node ships a call.
    pub(crate) fn io_call(&mut self, now: Instant, node: NodeId, io: IoCall, out: &mut Outbox) {
        let IoCall { job, call, op } = io;
        let rank = rank_mut(&mut self.jobs, node, job);
        let Some(rank) = rank else {
            if self.is_closed(node, job) {
                out.send(Outgoing::IoReply { node, job, call });
            } else {
                self.adopt_orphan(now, node, job);
            }
            return;
        };
        if matches!(rank.phase, Phase::Awaited | Phase::Claiming) {
            // It comes again once the answer to the claim has arrived.
            out.counters.stale += 1;
            return;
        }
        match rank.channel.receive(call, op) {
            Outcome::Repeated => out.send(Outgoing::IoReply { node, job, call }),
            Outcome::OutOfWindow => out.counters.stale += 1,
            Outcome::Taken => self.deliver(node, job, out),
        }
    }

    fn deliver(&mut self, node: NodeId, job: JobId, out: &mut Outbox) {
        let state = &self.jobs[&job];
        // The first call of a program whose answer to START was lost, or to a LAUNCH that starts.
        let starting = match state.ranks[&node].phase {
            Phase::Ready => state.start && state.cancel.is_none(),
            Phase::Launching => state.spec.start == StartMode::AtOnce,
            Phase::Awaited | Phase::Claiming | Phase::Retaining | Phase::Running => false,
        };
        if starting {
            self.started(node, job, out);
        }
        let state = self.jobs.get_mut(&job).expect("the caller found the job");
        state.update(node, |rank| {
            while let Some((call, op)) = rank.channel.next() {
                rank.exit_seen |= matches!(op, IoOp::Exit(_));
                out.event(Event::IoCall {
                    node,
                    job,
                    rank: rank.rank,
                    call,
                    op,
                });
            }
        });
    }

    /// The user answers a call.
    pub(crate) fn io_reply(
        &mut self,
        node: NodeId,
        job: JobId,
        call: CallId,
        reply: IoReply,
        out: &mut Outbox,
    ) {
        let rank = rank_mut(&mut self.jobs, node, job);
        if let Some(rank) = rank {
            let Some(exit) = rank.channel.reply(call, reply) else {
                return;
            };
            out.send(Outgoing::IoReply { node, job, call });
            if exit && let Some(channel) = self.gone(node, job, out) {
                let closed = self.closed.entry(node).or_default();
                if closed.len() == CLOSED_PER_NODE {
                    closed.pop_front();
                }
                closed.push_back((job, channel));
            }
            return;
        }
        if let Some(channel) = self.closed_channel(node, job)
            && channel.reply(call, reply).is_some()
        {
            out.send(Outgoing::IoReply { node, job, call });
        }
    }

    fn closed_channel(&mut self, node: NodeId, job: JobId) -> Option<&mut Channel> {
        let closed = self.closed.get_mut(&node)?;
        closed
            .iter_mut()
            .find(|(known, _)| *known == job)
            .map(|(_, channel)| channel)
    }

    /// What to answer about a call; the outer None when there is nothing to say.
    pub(crate) fn io_answer(
        &self,
        node: NodeId,
        job: JobId,
        call: CallId,
    ) -> Option<Option<&IoReply>> {
        let rank = self.jobs.get(&job).and_then(|state| state.ranks.get(&node));
        if let Some(rank) = rank {
            return rank.channel.answer(call);
        }
        let closed = self.closed.get(&node)?;
        let (_, channel) = closed.iter().find(|(known, _)| *known == job)?;
        channel.answer(call)
    }

    pub(super) fn is_closed(&self, node: NodeId, job: JobId) -> bool {
        let closed = self.closed.get(&node);
        closed.is_some_and(|closed| closed.iter().any(|(known, _)| *known == job))
    }
}
