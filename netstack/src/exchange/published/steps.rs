//! The published method at a rank: what it does as told by the master, and at rank 0 the master.
//!
//! A rank tells the master that its local part is finished. When the active queue is full the
//! master tells each active rank the targets of its queue; the rank sends to one after the other
//! and says when all have their blocks; when all active ranks have said so, the next step begins. A
//! rank whose blocks have all come says so, at once where it has none: it need not be told of
//! further steps, and is done when the master knows.
//!
//! What is said is said again until the other side is heard: a rank repeats its report until the
//! master names a target or answers it, the master names the targets of a step until their sender
//! reports. A master that has not begun the exchange keeps what it hears, in order.
//!
//! Ranks are called by their places in the group here, on the wire too where the master names one.
//!
//! Neighbours: [`super::schedule`] says who is active, `alltoall` sends the blocks.
//!
//! Invariant: a rank sends only what it was told to, a target once; nobody waits for the master
//! without saying so again.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::super::group::{Members, Together};
use super::super::io::Io;
use super::super::liveness::{COMPUTES, MAX_WATCHED};
use super::super::message::{ALL_STEPS, Item};
use super::schedule::{Next, Schedule};
use crate::ids::Rank;
use crate::time::{Instant, Micros};
use crate::transport::retry::Backoff;

/// The place of the rank that is the master.
pub(in crate::exchange) const MASTER: Rank = Rank(0);
/// Longest wait until something is said again that may be lost, unless an answer takes longer: well
/// below the time for which an endpoint answers after its last operation.
const LONGEST_WAIT: Micros = Micros::from_millis(10);
/// The same while a rank waits for its turn: to hear of a master that has failed. A master that
/// computes is asked twice until it looks.
const TURN_WAIT: Micros = Micros(COMPUTES.0 / 2);

/// Ranks that the master speaks to at once while it waits for them: as many as are watched.
const ASKED_AT_ONCE: usize = MAX_WATCHED;

/// See the module.
#[derive(Debug)]
pub(in crate::exchange) struct Steps {
    context: u16,
    number: u32,
    members: Members,
    signature: u32,
    /// The step that is carried out; 0 before the first.
    step: u32,
    /// Its targets, as far as they are known.
    targets: Vec<Option<Rank>>,
    /// Of these, how many have their block.
    served: usize,
    /// The master was heard.
    heard: bool,
    /// All blocks of this rank have come.
    is_done: bool,
    /// The master knows that, or nobody waits for its word any more.
    is_known: bool,
    master: Option<Master>,
    again_at: Instant,
    /// Times that it was said since something new was.
    said: u32,
}

#[derive(Debug)]
struct Master {
    schedule: Schedule,
    step: u32,
    /// Senders of this step that are not done, and their targets.
    pending: Vec<(Rank, Vec<Rank>)>,
    /// By rank: all its blocks have come. How many ranks that are not.
    is_done: Vec<bool>,
    left: u32,
    /// The next round waits for ranks that have not finished their local part, and whose turn it is
    /// to be spoken to.
    is_waiting: bool,
    asked: usize,
    /// All steps are done.
    is_over: bool,
}

impl Steps {
    /// At the beginning of an exchange of these ranks with `length` active (0: all), of which this
    /// one has blocks to send or not. `reports`: what the master has heard of it.
    pub(in crate::exchange) fn new(
        (context, number): (u16, u32),
        (members, length): (Members, u32),
        has_blocks: bool,
        reports: Vec<(Rank, u32)>,
        io: &mut Io<'_>,
    ) -> Self {
        let size = members.size();
        let master = (members.me() == MASTER.0).then(|| Master {
            schedule: Schedule::new(size, length),
            step: 0,
            pending: Vec::new(),
            is_done: alloc::vec![false; size as usize],
            left: size,
            is_waiting: false,
            asked: 0,
            is_over: false,
        });
        let mut steps = Steps {
            context,
            number,
            signature: members.signature(Together::Exchange),
            members,
            step: 0,
            targets: Vec::new(),
            served: 0,
            heard: false,
            is_done: !has_blocks,
            is_known: false,
            master,
            again_at: Instant::ZERO,
            said: 0,
        };
        for (rank, step) in reports {
            if let Some(place) = steps.members.place(rank) {
                steps.master_hears(Rank(place), step, io);
            }
        }
        steps.report_anew(0, io);
        steps
    }

    fn say_again_later(&mut self, io: &mut Io<'_>) {
        let longest = match self.master.is_none() && self.heard && !self.is_done {
            true => TURN_WAIT,
            false => LONGEST_WAIT.max(io.credit.wait()),
        };
        self.again_at = io.now + Backoff::new(io.credit.wait(), longest).after(self.said);
        self.said = self.said.saturating_add(1);
    }

    /// Tells the master that so many steps are done, or that all blocks of this rank have come.
    fn report(&mut self, step: u32, io: &mut Io<'_>) {
        let step = if self.is_done { ALL_STEPS } else { step };
        if self.master.is_some() {
            return self.master_hears(MASTER, step, io);
        }
        let item = Item::ToMaster {
            context: self.context,
            number: self.number,
            step,
            signature: self.signature,
        };
        io.outbox.push(self.members.rank(MASTER.0), item);
    }

    /// The same, with something that the master has not heard yet.
    fn report_anew(&mut self, step: u32, io: &mut Io<'_>) {
        if self.master.is_none() {
            self.said = 0;
            self.say_again_later(io);
        }
        self.report(step, io);
    }

    /// The master hears that a rank has finished its local part (step 0), this step, or all that it
    /// has to send.
    pub(in crate::exchange) fn master_hears(&mut self, from: Rank, step: u32, io: &mut Io<'_>) {
        let id = (self.context, self.number);
        let Some(master) = &mut self.master else {
            return;
        };
        let is_new = master.schedule.finish(from);
        // Who says again that it is ready has heard nothing; who is done waits for the answer.
        if from != MASTER && (step == ALL_STEPS || step == 0 && !is_new) {
            let to = self.members.rank(from.0);
            io.outbox.push(to, answer(id, step, self.signature));
        }
        if step == ALL_STEPS && !core::mem::replace(&mut master.is_done[from.0 as usize], true) {
            master.left -= 1;
        }
        if step == ALL_STEPS || step == master.step {
            master.pending.retain(|(rank, _)| *rank != from);
        }
        self.master_goes_on(io);
    }

    /// Begins the next step if all are done with this one.
    fn master_goes_on(&mut self, io: &mut Io<'_>) {
        while let Some(master) = self.master.as_mut().filter(|master| !master.is_over) {
            if master.left == 0 {
                master.pending.clear();
                master.is_waiting = false;
                master.is_over = true;
            }
            if !master.pending.is_empty() {
                return;
            }
            match master.schedule.next_step() {
                Next::Step(step) => {
                    master.is_waiting = false;
                    master.step += 1;
                    let is_done = &master.is_done;
                    master.pending = step
                        .into_iter()
                        .filter(|(rank, targets)| !targets.is_empty() && !is_done[rank.0 as usize])
                        .collect();
                    self.said = 0;
                    self.tell_senders(io);
                }
                Next::Wait => {
                    if !core::mem::replace(&mut master.is_waiting, true) {
                        self.again_at = io.now + TURN_WAIT;
                    }
                    return;
                }
                Next::Over => master.is_over = true,
            }
        }
    }

    /// Tells the senders of this step that are not done whom to send to.
    fn tell_senders(&mut self, io: &mut Io<'_>) {
        let Some(master) = &self.master else {
            return;
        };
        let mut own = Vec::new();
        for (sender, targets) in &master.pending {
            for (place, to) in targets.iter().enumerate() {
                let told = (master.step, place as u16, targets.len() as u16, *to);
                if *sender == MASTER {
                    own.push(told);
                    continue;
                }
                let item = Item::FromMaster {
                    context: self.context,
                    number: self.number,
                    step: told.0,
                    place: told.1,
                    count: told.2,
                    to: *to,
                    signature: self.signature,
                };
                io.outbox.push(self.members.rank(sender.0), item);
            }
        }
        self.say_again_later(io);
        for told in own {
            self.told(told, io);
        }
    }

    /// This rank is told a target (step, place, targets in all, rank), or that the master has heard
    /// it.
    pub(in crate::exchange) fn told(
        &mut self,
        (step, place, count, to): (u32, u16, u16, Rank),
        io: &mut Io<'_>,
    ) {
        self.heard = true;
        if step == ALL_STEPS {
            self.is_known |= self.is_done;
            return;
        }
        if step < self.step || place >= count {
            return;
        }
        if step > self.step {
            self.step = step;
            self.targets = alloc::vec![None; count.into()];
            self.served = 0;
        }
        let is_served = self.served == self.targets.len();
        if let Some(target) = self.targets.get_mut(usize::from(place)) {
            *target = Some(to);
        }
        if is_served || self.is_done {
            // The master has not heard of it.
            self.report(step, io);
        }
    }

    /// The next target that has no block yet, if the one before it has.
    pub(in crate::exchange) fn target(&self) -> Option<Rank> {
        self.targets.get(self.served).copied().flatten()
    }

    /// The target has its block, or there is none for it.
    pub(in crate::exchange) fn target_served(&mut self, io: &mut Io<'_>) {
        self.served += 1;
        if self.served == self.targets.len() {
            self.report_anew(self.step, io);
        }
    }

    /// All blocks of this rank have come.
    pub(in crate::exchange) fn all_served(&mut self, io: &mut Io<'_>) {
        if !core::mem::replace(&mut self.is_done, true) {
            self.report_anew(ALL_STEPS, io);
        }
    }

    /// A rank is lost, or the master. Who has sent all needs nothing more of that.
    pub(in crate::exchange) fn lost(&mut self, is_master: bool, io: &mut Io<'_>) {
        self.is_known |= is_master && self.is_done;
        // The exchange may have failed at the master because of it.
        self.said = 0;
        self.again_at = self.again_at.min(io.now + io.credit.wait());
    }

    /// At the master all steps are done; other ranks are done with the method when it knows that
    /// they are.
    pub(in crate::exchange) fn is_over(&self) -> bool {
        (self.master.as_ref()).map_or(self.is_known, |master| master.is_over)
    }

    /// The method cannot go on without this rank.
    pub(in crate::exchange) fn needs(&self, rank: Rank) -> bool {
        match &self.master {
            Some(master) => !master.is_over && !master.is_done[rank.0 as usize],
            None => rank == MASTER && !self.is_done,
        }
    }

    /// It is not over, and waits to hear of this rank, or from it: also a rank that has sent all
    /// waits for the master to know.
    pub(in crate::exchange) fn awaits(&self, rank: Rank) -> bool {
        match &self.master {
            _ if self.is_over() => false,
            Some(master) => rank != MASTER && !master.is_done[rank.0 as usize],
            None => rank == MASTER,
        }
    }

    /// Whom it waits for: at the master those from this rank on that are not done, at most so many;
    /// else the master.
    pub(in crate::exchange) fn waits_for(&self, start: u32, most: usize) -> Vec<Rank> {
        match &self.master {
            _ if self.is_over() => Vec::new(),
            Some(master) => {
                let size = master.is_done.len() as u32;
                let ranks = (start..size).chain(0..start.min(size)).map(Rank);
                ranks.filter(|rank| self.awaits(*rank)).take(most).collect()
            }
            None => alloc::vec![MASTER],
        }
    }

    /// When something is said again.
    pub(in crate::exchange) fn deadline(&self) -> Instant {
        let waits = match &self.master {
            Some(master) => master.is_waiting || !master.pending.is_empty(),
            None => !self.is_known && (self.is_done || self.target().is_none()),
        };
        match waits {
            true => self.again_at,
            false => Instant::FAR_FUTURE,
        }
    }

    /// Says again what is due.
    pub(in crate::exchange) fn tick(&mut self, io: &mut Io<'_>) {
        if self.deadline() > io.now {
            return;
        }
        if self.master.as_ref().is_some_and(|master| master.is_waiting) {
            self.ask_unfinished(io);
        } else if self.master.is_some() {
            self.tell_senders(io);
        } else {
            // Not a step of which targets are still to be heard.
            let is_served = self.served == self.targets.len();
            self.report(self.step - u32::from(!is_served), io);
            self.say_again_later(io);
        }
    }

    /// The master waits for ranks to finish their local part. Nothing shows that one does not take
    /// part, and nobody but the master need ask it anything: so each is spoken to in turn, and one
    /// that has failed says so.
    fn ask_unfinished(&mut self, io: &mut Io<'_>) {
        let id = (self.context, self.number);
        let Some(master) = &mut self.master else {
            return;
        };
        let asked: Vec<Rank> = master.schedule.unfinished().collect();
        let first = master.asked % asked.len().max(1);
        let in_turn = asked.iter().cycle().skip(first);
        for rank in in_turn.take(ASKED_AT_ONCE.min(asked.len())) {
            io.outbox
                .push(self.members.rank(rank.0), answer(id, 0, self.signature));
        }
        master.asked = first + ASKED_AT_ONCE;
        self.again_at = io.now + TURN_WAIT;
    }
}

/// What the master answers to a report.
pub(in crate::exchange) fn answer(
    (context, number): (u16, u32),
    step: u32,
    signature: u32,
) -> Item {
    Item::FromMaster {
        context,
        number,
        step,
        place: 0,
        count: 0,
        to: MASTER,
        signature,
    }
}

/// What the master heard of exchanges that it has not begun.
#[derive(Debug, Default)]
pub(in crate::exchange) struct EarlyReports {
    /// By context, number and rank: the last report and what it is of, behind its place in the
    /// order of the first ones.
    reports: BTreeMap<(u16, u32, Rank), (u64, u32, u32)>,
    next: u64,
}

impl EarlyReports {
    /// Keeps a report, while there are fewer than `most`; false when there is no room.
    pub(in crate::exchange) fn keep(
        &mut self,
        (context, number): (u16, u32),
        from: Rank,
        (step, signature): (u32, u32),
        most: usize,
    ) -> bool {
        let key = (context, number, from);
        if self.reports.len() >= most && !self.reports.contains_key(&key) {
            return false;
        }
        let place = self.next;
        self.next += 1;
        let new = (place, step, signature);
        let report = self.reports.entry(key).or_insert(new);
        (report.1, report.2) = (report.1.max(step), signature);
        true
    }

    /// Takes the reports of an exchange, in order: whose each is, the step, what it is of.
    pub(in crate::exchange) fn take(
        &mut self,
        (context, number): (u16, u32),
    ) -> Vec<(Rank, u32, u32)> {
        let keys = (context, number, Rank(0))..=(context, number, Rank(u32::MAX));
        let of_it = self.reports.range(keys);
        let mut taken: Vec<_> = of_it.map(|(key, report)| (*report, key.2)).collect();
        taken.sort_unstable();
        for (_, rank) in &taken {
            self.reports.remove(&(context, number, *rank));
        }
        let reports = taken.into_iter();
        let report = |((_, step, signature), rank)| (rank, step, signature);
        reports.map(report).collect()
    }

    /// Forgets all; gives the ranks that wait.
    pub(in crate::exchange) fn clear(&mut self) -> Vec<Rank> {
        let reports = core::mem::take(&mut self.reports);
        reports.into_keys().map(|(.., rank)| rank).collect()
    }
}
