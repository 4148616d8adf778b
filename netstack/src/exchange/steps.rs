//! The published method at a rank: what it does as told by the master, and at rank 0 the master.
//!
//! A rank tells the master that its local part is finished. When the active queue is full the master tells each active
//! rank the targets of its queue; the rank sends to one after the other and says when all have their blocks; when
//! all active ranks have said so, the next step begins. What is lost is said again.
//!
//! Neighbours: [`super::published`] has the schedule, [`super::alltoall`] sends the blocks.
//!
//! Invariant: a rank sends only what it was told to, a target once.

use alloc::vec::Vec;

use super::alltoall::Io;
use super::message::Item;
use super::published::Schedule;
use crate::ids::Rank;
use crate::time::{Instant, Micros};

/// The rank that is the master.
pub(super) const MASTER: Rank = Rank(0);
/// Longest wait until something is said again.
const LONGEST_WAIT: Micros = Micros::from_millis(50);

/// See the module.
#[derive(Debug)]
pub(super) struct Steps {
    context: u16,
    number: u32,
    /// The step that is carried out; 0 before the first.
    step: u32,
    /// Its targets, as far as they are known.
    targets: Vec<Option<Rank>>,
    /// Of these, how many have their block.
    served: usize,
    /// Something was heard of the exchange: the master need not be told again that the local part is finished.
    heard: bool,
    master: Option<Master>,
    again_at: Instant,
    wait: Micros,
}

#[derive(Debug)]
struct Master {
    /// Ranks in the order in which they finished their local part.
    finished: Vec<Rank>,
    is_finished: Vec<bool>,
    length: u32,
    schedule: Option<Schedule>,
    step: u32,
    /// Senders of this step that are not done, and their targets.
    pending: Vec<(Rank, Vec<Rank>)>,
    /// All steps are done.
    is_over: bool,
}

impl Steps {
    /// At the beginning of an exchange of `size` ranks with `length` active (0: all).
    pub(super) fn new(
        (context, number): (u16, u32),
        size: u32,
        length: u32,
        io: &mut Io<'_>,
    ) -> Self {
        let master = (io.me == MASTER).then(|| Master {
            finished: Vec::new(),
            is_finished: alloc::vec![false; size as usize],
            length,
            schedule: None,
            step: 0,
            pending: Vec::new(),
            is_over: false,
        });
        let mut steps = Steps {
            context,
            number,
            step: 0,
            targets: Vec::new(),
            served: 0,
            heard: false,
            master,
            again_at: Instant::ZERO,
            wait: io.credit.wait(),
        };
        steps.tell_master(0, io);
        steps.say_again_later(io);
        steps
    }

    fn say_again_later(&mut self, io: &mut Io<'_>) {
        self.again_at = io.now + self.wait;
        self.wait = self.wait.saturating_mul(2).min(LONGEST_WAIT);
    }

    fn tell_master(&mut self, step: u32, io: &mut Io<'_>) {
        if io.me == MASTER {
            return self.master_hears(MASTER, step, io);
        }
        let item = Item::ToMaster {
            context: self.context,
            number: self.number,
            step,
        };
        io.outbox.push(MASTER, item);
    }

    /// The master hears that a rank has finished its local part (step 0), or this step.
    pub(super) fn master_hears(&mut self, from: Rank, step: u32, io: &mut Io<'_>) {
        let Some(master) = &mut self.master else {
            return;
        };
        if step == 0 {
            let is_new = !core::mem::replace(&mut master.is_finished[from.0 as usize], true);
            if is_new {
                master.finished.push(from);
            }
            let size = master.is_finished.len();
            let length = if master.length == 0 {
                size
            } else {
                size.min(master.length as usize)
            };
            if master.schedule.is_none() && master.finished.len() >= length {
                let late = (0..size as u32)
                    .map(Rank)
                    .filter(|rank| !master.is_finished[rank.0 as usize]);
                let order = master.finished.iter().copied().chain(late).collect();
                master.schedule = Some(Schedule::new(order, master.length));
                self.master_goes_on(io);
            }
        } else if step == master.step {
            master.pending.retain(|(rank, _)| *rank != from);
            self.master_goes_on(io);
        }
    }

    /// Begins the next step if all are done with this one.
    fn master_goes_on(&mut self, io: &mut Io<'_>) {
        while let Some(master) = &mut self.master {
            let Some(schedule) = master
                .schedule
                .as_mut()
                .filter(|_| master.pending.is_empty())
            else {
                return;
            };
            let Some(step) = schedule.next_step() else {
                master.is_over = true;
                return;
            };
            master.step += 1;
            master.pending = step
                .into_iter()
                .filter(|(_, targets)| !targets.is_empty())
                .collect();
            self.wait = io.credit.wait();
            self.tell_senders(io);
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
                };
                io.outbox.push(*sender, item);
            }
        }
        self.say_again_later(io);
        for told in own {
            self.told(told, io);
        }
    }

    /// This rank is told a target (step, place, targets in all, rank).
    pub(super) fn told(
        &mut self,
        (step, place, count, to): (u32, u16, u16, Rank),
        io: &mut Io<'_>,
    ) {
        self.heard = true;
        if step < self.step || place >= count {
            return;
        }
        if step > self.step {
            self.step = step;
            self.targets = alloc::vec![None; count.into()];
            self.served = 0;
        }
        let is_done = self.served == self.targets.len();
        if let Some(target) = self.targets.get_mut(usize::from(place)) {
            *target = Some(to);
        }
        if is_done {
            // The master has not heard of it.
            self.tell_master(step, io);
        }
    }

    /// Something of the exchange came.
    pub(super) fn heard(&mut self) {
        self.heard = true;
    }

    /// The next target that has no block yet, if the one before it has.
    pub(super) fn target(&self) -> Option<Rank> {
        self.targets.get(self.served).copied().flatten()
    }

    /// The target has its block, or there is none for it.
    pub(super) fn target_served(&mut self, io: &mut Io<'_>) {
        self.served += 1;
        if self.served == self.targets.len() {
            self.tell_master(self.step, io);
        }
    }

    /// Nothing is left to do for the master; other ranks need not know.
    pub(super) fn is_over(&self) -> bool {
        self.master.as_ref().is_none_or(|master| master.is_over)
    }

    /// When something is said again.
    pub(super) fn deadline(&self) -> Instant {
        match &self.master {
            Some(master) if !master.pending.is_empty() => self.again_at,
            None if !self.heard => self.again_at,
            _ => Instant::FAR_FUTURE,
        }
    }

    /// Says again what is due.
    pub(super) fn tick(&mut self, io: &mut Io<'_>) {
        if self.deadline() > io.now {
            return;
        }
        if self.master.is_some() {
            self.tell_senders(io);
        } else {
            self.tell_master(0, io);
            self.say_again_later(io);
        }
    }
}
