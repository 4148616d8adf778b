//! Taking down: the word goes down, and comes up again when everything below has ended.
//!
//! A process answers TAKE_DOWN when all its children have, or time is up; when its last ticks and
//! figures are with its parent. It stays for [`LINGER`] to answer those that did not hear it.

use super::Hub;
use crate::ids::BootEpoch;
use crate::overlay::LINGER;
use crate::overlay::message::{Message, Process, Standing};
use crate::overlay::uplink::Io;
use crate::time::{Instant, Micros};

/// How soon the word is repeated: eight times while those below are waited for.
const AGAIN: Micros = Micros(PATIENCE.0 / 8);
/// How long a process waits for those below it, for each level.
const PATIENCE: Micros = Micros::from_millis(350);
/// How long a process stays at most whose parent does not ask again.
const GIVE_UP: Micros = Micros::from_millis(1_900);

/// How far it is.
#[derive(Clone, Copy, Debug)]
pub(in crate::overlay) struct Leaving {
    again_at: Instant,
    /// All children are down, or were given up.
    pub below_down: bool,
    /// When the last word of it was heard, once it has answered.
    answered_at: Option<Instant>,
    deadline: Instant,
    /// When it ends though its parent never asked for its answer: the parent has waited as long as
    /// it does.
    give_up_at: Instant,
}

impl Leaving {
    pub fn deadline(&self) -> Instant {
        match (self.below_down, self.answered_at) {
            (_, Some(at)) => at + LINGER,
            (true, None) => self.give_up_at,
            (false, None) => self.again_at.min(self.deadline),
        }
    }

    /// It has answered, and nobody asked again for a while; or nobody ever asked.
    pub fn is_over(&self, now: Instant) -> bool {
        let answered = self
            .answered_at
            .is_some_and(|at| now.saturating_since(at) >= LINGER);
        answered || self.give_up_at <= now
    }

    /// Notes that the answer was sent.
    pub fn answered(&mut self, now: Instant) {
        self.answered_at = Some(now);
    }
}

impl Hub {
    /// Begins, once.
    pub fn take_down(&mut self, io: &mut Io<'_>) {
        if self.leaving.is_none() {
            self.transfers.clear();
            let height = u64::from(self.height);
            let patience = |levels| PATIENCE.saturating_mul(levels);
            self.leaving = Some(Leaving {
                again_at: io.now,
                below_down: false,
                answered_at: None,
                deadline: io.now + patience(height),
                give_up_at: io.now + GIVE_UP.min(patience(height + 1) + LINGER),
            });
        }
    }

    /// A child is down.
    pub fn taken(&mut self, process: Process, boot: BootEpoch, standing: Standing) {
        let own =
            |child: &&mut super::Child| child.boot == boot && child.standing.link == standing.link;
        if let Some(child) = self.children.get_mut(&process).filter(own)
            && self.leaving.is_some()
        {
            super::hear(child, standing, &mut self.sums);
            child.taken = true;
        }
    }

    pub(super) fn continue_leaving(&mut self, io: &mut Io<'_>) {
        let Some(leaving) = &mut self.leaving else {
            return;
        };
        if leaving.below_down {
            return;
        }
        if self.children.values().all(|child| child.taken) || leaving.deadline <= io.now {
            leaving.below_down = true;
            self.flush_all();
            self.take_census();
            return;
        }
        if leaving.again_at <= io.now {
            leaving.again_at = io.now + AGAIN;
            let me = self.me;
            for (process, child) in self.children.iter().filter(|(_, child)| !child.taken) {
                io.send(me, (*process, child.peer), Message::TakeDown);
            }
        }
    }
}
