//! The node's side of retention: what it holds and has told, and the DROP it was given last.
//!
//! Invariant: what differs between [`Ledger::held`] and what the control node has acknowledged is
//! in the report under way or among the changes that wait for the next one.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::ids::ProgramId;
use crate::node::{Event, Outbox};
use crate::retention::{CHANGES_MAX, HOLDINGS_MAX, Holding};
use crate::rng::Rng;
use crate::time::Instant;
use crate::transport::retry::Backoff;
use crate::wire::job::DropAck;
use crate::wire::retention::Holdings;

/// Repetition of a report nobody has acknowledged.
const REPORT: Backoff = Backoff::OF_SESSION;
/// Changes that may wait for a report: all programs held, and as many that were dropped. With more
/// the control node is told everything anew.
const WAITING_MAX: usize = 2 * HOLDINGS_MAX;

/// A report that was sent and not acknowledged.
#[derive(Debug)]
struct Report {
    message: Holdings,
    tries: u32,
    next_at: Instant,
}

/// What a node holds, and how much of that the control node knows.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    held: BTreeMap<ProgramId, Holding>,
    /// Programs of which the control node does not know the present state, nor is being told.
    changed: BTreeSet<ProgramId>,
    /// The control node is to forget what it was told before.
    reset: bool,
    /// Number of the last report made in this session.
    number: u64,
    under_way: Option<Report>,
}

impl Ledger {
    /// Panics when it is one program more than [`HOLDINGS_MAX`].
    pub(crate) fn hold(&mut self, holding: Holding) {
        let before = self.held.insert(holding.program, holding);
        assert!(
            self.held.len() <= HOLDINGS_MAX,
            "a node holds at most {HOLDINGS_MAX} programs"
        );
        if before != Some(holding) {
            self.change(holding.program);
        }
    }

    pub(crate) fn unhold(&mut self, program: ProgramId) {
        if self.held.remove(&program).is_some() {
            self.change(program);
        }
    }

    pub(crate) fn held(&self) -> impl Iterator<Item = &Holding> + '_ {
        self.held.values()
    }

    /// The control node has acknowledged all of it.
    pub(crate) fn is_told(&self) -> bool {
        self.under_way.is_none() && !self.reset && self.changed.is_empty()
    }

    fn change(&mut self, program: ProgramId) {
        self.changed.insert(program);
        if self.changed.len() > WAITING_MAX {
            self.tell_all();
        }
    }

    fn tell_all(&mut self) {
        self.reset = true;
        self.changed = self.held.keys().copied().collect();
    }

    /// The control node of the new session knows nothing.
    pub(crate) fn new_session(&mut self) {
        self.number = 0;
        self.under_way = None;
        self.tell_all();
    }

    /// The control node has taken a report; false when it is not the one under way.
    pub(crate) fn acknowledged(&mut self, number: u64) -> bool {
        let taken = self
            .under_way
            .take_if(|report| report.message.number == number);
        taken.is_some()
    }

    /// When the next report is to be sent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match &self.under_way {
            Some(report) => Some(report.next_at),
            None => (self.reset || !self.changed.is_empty()).then_some(Instant::ZERO),
        }
    }

    /// The report that is due, and whether it is a repetition. It counts as sent.
    pub(crate) fn due(&mut self, now: Instant, rng: &mut Rng) -> Option<(&Holdings, bool)> {
        if self.deadline()? > now {
            return None;
        }
        if self.under_way.is_none() {
            let message = self.next_report();
            self.under_way = Some(Report {
                message,
                tries: 0,
                next_at: now,
            });
        }
        let report = self.under_way.as_mut()?;
        report.next_at = now + REPORT.wait_for_answer(report.tries, rng);
        let repeated = report.tries > 0;
        report.tries = report.tries.saturating_add(1);
        Some((&report.message, repeated))
    }

    /// Programs dropped come before those held, so that the control node never counts more than
    /// [`HOLDINGS_MAX`].
    fn next_report(&mut self) -> Holdings {
        self.number += 1;
        let reset = core::mem::take(&mut self.reset);
        if reset {
            // There is nothing to take back.
            self.changed
                .retain(|program| self.held.contains_key(program));
        }
        let is_held = |program: &&ProgramId| self.held.contains_key(*program);
        let dropped = self.changed.iter().filter(|program| !is_held(program));
        let dropped: Vec<ProgramId> = dropped.take(CHANGES_MAX).copied().collect();
        let held = self
            .changed
            .iter()
            .filter_map(|program| self.held.get(program));
        let held: Vec<Holding> = held.take(CHANGES_MAX - dropped.len()).copied().collect();
        for program in dropped
            .iter()
            .chain(held.iter().map(|holding| &holding.program))
        {
            self.changed.remove(program);
        }
        Holdings {
            number: self.number,
            reset,
            held,
            dropped,
        }
    }
}

/// The DROP that was taken last in this session.
#[derive(Debug, Default)]
pub(crate) struct Drops {
    newest: u64,
    done: Option<DropAck>,
    /// The answer is to be sent.
    answer: bool,
}

impl Drops {
    /// Carries out a DROP, once.
    pub(crate) fn command(&mut self, id: u64, program: Option<ProgramId>, out: &mut Outbox) {
        if id > self.newest {
            self.newest = id;
            self.done = None;
            self.answer = false;
            out.push(Event::Drop { id, program });
        } else if id == self.newest {
            // Without a result yet the control node asks again.
            self.answer = self.done.is_some();
        } else {
            out.counters.stale += 1;
        }
    }

    /// The node has carried it out.
    pub(crate) fn result(&mut self, ack: DropAck) {
        if ack.id == self.newest && self.done.is_none() {
            self.done = Some(ack);
            self.answer = true;
        }
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.answer
    }

    /// The answer to send.
    pub(crate) fn next_answer(&mut self) -> Option<DropAck> {
        let answer = core::mem::take(&mut self.answer);
        self.done.filter(|_| answer)
    }

    /// A new session counts afresh.
    pub(crate) fn new_session(&mut self) {
        *self = Drops::default();
    }
}
