//! Who is silent, who was asked, who is dead: what one side knows of another that it waits for.
//!
//! Silence is no death: the side that waits may have been deaf, or not running. So whoever is quiet
//! is asked, and is dead when it was silent for long and has not answered the last of several
//! questions in time.
//!
//! Key types: [`Patience`] says how long, [`Presence`] is what is known. Neighbours: each service
//! says what counts as a sign of life, and asks in its own words; [`crate::exchange`] has one of
//! these for each rank that it watches, [`crate::join`] one for each node and each node one for the
//! control node, [`crate::overlay`] one for each parent. Of a hub's children there is none: they
//! report by themselves, and nobody asks them.
//!
//! Source: suspicion before death as in SWIM (Das, Gupta, Motivala 2002), without its gossip; time
//! as an eventually perfect failure detector has it (Chandra, Toueg 1996).
//!
//! Invariant: nobody is dead that was not asked.

use crate::time::{Instant, Micros};

/// How long silence lasts before it is asked about, and before it is the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    quiet: Micros,
    again: Micros,
    questions: u32,
    dead: Micros,
}

impl Patience {
    /// Who is silent for `quiet` is asked, again after each `again`. It is dead after `questions`
    /// of them in vain, each with its time, and after a silence of `dead` at least.
    pub(crate) const fn new(quiet: Micros, again: Micros, questions: u32, dead: Micros) -> Self {
        Patience {
            quiet,
            again,
            questions,
            dead,
        }
    }
}

/// What is to be done about somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing: it was heard lately, or has time to answer.
    Wait,
    /// It is to be asked whether it is there.
    Ask,
    /// It is dead.
    Dead,
}

/// When somebody was heard, and how often it was asked since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Presence {
    heard: Instant,
    asked: u32,
    asked_at: Instant,
}

impl Presence {
    /// It is there now.
    pub(crate) fn new(now: Instant) -> Self {
        Presence {
            heard: now,
            asked: 0,
            asked_at: now,
        }
    }

    /// It has shown that it is there.
    pub(crate) fn heard(&mut self, now: Instant) {
        *self = Presence::new(now);
    }

    /// When it was heard last.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard
    }

    /// It was asked, and was not heard since.
    pub(crate) fn is_asked(&self) -> bool {
        self.asked > 0
    }

    /// This side was deaf for so long: that is no silence of the other.
    pub(crate) fn excuse(&mut self, time: Micros, now: Instant) {
        self.heard = (self.heard + time).min(now);
    }

    /// It is asked now.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.asked = self.asked.saturating_add(1);
        self.asked_at = now;
    }

    /// What is to be done.
    pub(crate) fn verdict(&self, now: Instant, patience: &Patience) -> Verdict {
        if now < self.deadline(patience) {
            return Verdict::Wait;
        }
        match self.dead_at(patience).is_some_and(|at| at <= now) {
            true => Verdict::Dead,
            false => Verdict::Ask,
        }
    }

    /// When it is dead unless it is heard; None as long as it was not asked often enough.
    pub(crate) fn dead_at(&self, patience: &Patience) -> Option<Instant> {
        (self.asked >= patience.questions).then_some(self.heard + patience.dead)
    }

    /// When something is to be done.
    pub(crate) fn deadline(&self, patience: &Patience) -> Instant {
        match self.asked {
            0 => self.heard + patience.quiet,
            _ => self.asked_at + patience.again,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience::new(Micros(10), Micros(5), 3, Micros(40));

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Micros(micros)
    }

    /// Asks whenever that is due, until it is dead; how often it was asked, and when it died.
    fn death(mut presence: Presence, mut now: Instant) -> (u32, Instant) {
        let mut asked = 0;
        loop {
            match presence.verdict(now, &PATIENCE) {
                Verdict::Dead => return (asked, now),
                Verdict::Ask => {
                    asked += 1;
                    presence.asked(now);
                }
                Verdict::Wait => now = presence.deadline(&PATIENCE),
            }
        }
    }

    #[test]
    fn who_is_silent_is_asked_and_then_dead() {
        // At 10, 15 .. 35.
        assert_eq!(death(Presence::new(at(0)), at(0)), (6, at(40)));
    }

    #[test]
    fn nobody_is_dead_without_having_been_asked_and_having_had_time() {
        // This side looks again after a long time.
        assert_eq!(death(Presence::new(at(0)), at(900)), (3, at(915)));
        let mut presence = Presence::new(at(0));
        presence.excuse(Micros(900), at(905));
        assert_eq!(presence.heard_at(), at(900));
        assert_eq!(presence.verdict(at(905), &PATIENCE), Verdict::Wait);
    }

    #[test]
    fn who_answers_is_asked_anew() {
        let mut presence = Presence::new(at(0));
        presence.asked(at(10));
        assert!(presence.is_asked());
        presence.heard(at(12));
        assert!(!presence.is_asked());
        assert_eq!(presence.deadline(&PATIENCE), at(22));
        assert_eq!(death(presence, at(12)), (6, at(52)));
    }
}
