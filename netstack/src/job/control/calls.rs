//! What a running rank asks for: pages and calls.
//!
//! Invariant: a rank's calls are handed on in their order, after its start if it was started.

use crate::control::Event;
use crate::control::outbox::{Outbox, Outgoing};
use crate::ids::{CallId, JobId, LocalRank, NodeId, Rank};
use crate::io::server::Outcome;
use crate::io::{IoOp, IoReply};
use crate::job::StartMode;
use crate::job::control::{Jobs, Phase, place_mut};
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
            .and_then(|state| state.places.get(&node));
        let Some(rank) = rank.map(|place| place.first) else {
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
            fragments: read.fragments,
        })
    }

    /// A node ships a call.
    pub(crate) fn io_call(&mut self, now: Instant, node: NodeId, io: IoCall, out: &mut Outbox) {
        let IoCall {
            job,
            rank: local,
            call,
            op,
        } = io;
        let Some(place) = place_mut(&mut self.jobs, node, job) else {
            if let Some(rank) = self.closed_rank(node, job, local) {
                out.send(Outgoing::IoReply {
                    node,
                    job,
                    rank,
                    call,
                });
            } else {
                self.adopt_orphan(now, node, job);
            }
            return;
        };
        let rank = place.first.plus(local);
        let calls = place.ranks.get_mut(local.index());
        let (Some(calls), false) = (
            calls,
            // It comes again once the answer to the claim has arrived.
            matches!(place.phase, Phase::Awaited | Phase::Claiming),
        ) else {
            out.counters.stale += 1;
            return;
        };
        match calls.channel.receive(call, op) {
            Outcome::Repeated => out.send(Outgoing::IoReply {
                node,
                job,
                rank,
                call,
            }),
            Outcome::OutOfWindow => out.counters.stale += 1,
            Outcome::Taken => self.deliver(node, job, rank, out),
        }
    }

    fn deliver(&mut self, node: NodeId, job: JobId, rank: Rank, out: &mut Outbox) {
        let state = &self.jobs[&job];
        // The first call of a program whose answer to START was lost, or to a LAUNCH that starts.
        let starting = match state.places[&node].phase {
            Phase::Ready => state.start && state.cancel.is_none(),
            Phase::Launching => state.spec.start == StartMode::AtOnce,
            Phase::Awaited | Phase::Claiming | Phase::Retaining | Phase::Running => false,
        };
        if starting {
            self.started(node, job, out);
        }
        let state = self.jobs.get_mut(&job).expect("the caller found the job");
        state.update(node, |place| {
            let Some(calls) = place.calls_of(rank) else {
                return;
            };
            while let Some((call, op)) = calls.channel.next() {
                calls.exit_seen |= matches!(op, IoOp::Exit(_));
                out.event(Event::IoCall {
                    node,
                    job,
                    rank,
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
        (job, rank): (JobId, Rank),
        call: CallId,
        reply: IoReply,
        out: &mut Outbox,
    ) {
        let answer = Outgoing::IoReply {
            node,
            job,
            rank,
            call,
        };
        if let Some(place) = place_mut(&mut self.jobs, node, job) {
            let calls = place.calls_of(rank);
            let exit = calls.and_then(|calls| {
                let exit = calls.channel.reply(call, reply)?;
                calls.is_over |= exit;
                Some(exit)
            });
            let Some(exit) = exit else {
                return;
            };
            let is_over = exit && place.is_over();
            out.send(answer);
            if is_over && let Some(gone) = self.gone(node, job, out) {
                let closed = self.closed.entry(node).or_default();
                if closed.len() == CLOSED_PER_NODE {
                    closed.pop_front();
                }
                closed.push_back(gone);
            }
            return;
        }
        let closed = self.closed.get_mut(&node);
        let closed = closed.and_then(|closed| closed.iter_mut().find(|known| known.job == job));
        let channel = closed.and_then(|closed| {
            let local = rank.0.checked_sub(closed.first.0)?;
            closed.channels.get_mut(local as usize)
        });
        if channel.is_some_and(|channel| channel.reply(call, reply).is_some()) {
            out.send(answer);
        }
    }

    /// Which rank of a job that was closed on a node this is.
    fn closed_rank(&self, node: NodeId, job: JobId, local: LocalRank) -> Option<Rank> {
        let mut closed = self.closed.get(&node)?.iter();
        let closed = closed.find(|known| known.job == job)?;
        Some(closed.first.plus(local))
    }

    /// What to answer about a call; the outer None when there is nothing to say.
    pub(crate) fn io_answer(
        &self,
        node: NodeId,
        job: JobId,
        rank: Rank,
        call: CallId,
    ) -> Option<(LocalRank, Option<&IoReply>)> {
        let local = |first: Rank| rank.0.checked_sub(first.0).map(|local| local as usize);
        let (local, channel) = match self.jobs.get(&job).and_then(|job| job.places.get(&node)) {
            Some(place) => {
                let local = local(place.first)?;
                (local, &place.ranks.get(local)?.channel)
            }
            None => {
                let mut closed = self.closed.get(&node)?.iter();
                let closed = closed.find(|known| known.job == job)?;
                let local = local(closed.first)?;
                (local, closed.channels.get(local)?)
            }
        };
        Some((LocalRank(local as u16), channel.answer(call)?))
    }

    pub(super) fn is_closed(&self, node: NodeId, job: JobId) -> bool {
        let closed = self.closed.get(&node);
        closed.is_some_and(|closed| closed.iter().any(|known| known.job == job))
    }
}
