//! What was said to somebody and is not answered: when it is said again.
//!
//! [`Backoff`] is the wait between two times: it doubles up to a limit. [`Unanswered`] is what one
//! peer has not answered of numbered messages. Each message gets a number in the order of saying.
//! One is lost when one that was said [`REORDERED`] numbers later was answered (RFC 9002, section
//! 6.1.1), and said again as the window has room. When nothing was answered for the length of a
//! time-out, the first is said again as a probe, whatever the window, and the time-out doubles
//! (sections 6.2 and 7.5): the answer to that shows what else was lost. But nobody knows which time
//! it answers: who was busy answers all that was said at once. So those that it passes are lost
//! after the time that RFC 9002 gives what was overtaken (section 6.1.2), if they are not answered
//! by then. Only a loss makes the window smaller (RFC 5681): who is silent may be busy.
//!
//! Source: the randomised exponential back-off of Ethernet (Metcalfe, Boggs 1976), with a bound;
//! RFC 9002.
//!
//! Invariant: whatever is not answered has a time at which it, or one before it, is said again.

use alloc::collections::{BTreeMap, BTreeSet};

use super::rtt::{INITIAL, LONGEST, RttEstimator};
use super::window::Window;
use crate::rng::Rng;
use crate::time::{Instant, Micros};

/// How many later ones may be answered before a message counts as lost (RFC 9002, section 6.1.1:
/// kPacketThreshold).
pub(super) const REORDERED: u64 = 3;

/// The first wait where no round trip is known: three of those that are assumed, as RFC 9002's
/// first time-out (section 6.2.2: kInitialRtt and four times half of it).
pub(crate) const FIRST: Micros = Micros(3 * INITIAL.0);
/// A node that computes looks at its network once in a heartbeat: to say something more often than
/// that is in vain.
pub(crate) const LOOKS: Micros = Micros::from_secs(1);

const _: () = assert!(LONGEST.0 == 2 * LOOKS.0);

/// A doubling wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Micros,
    slowest: Micros,
}

impl Backoff {
    /// What nodes and the control node say to each other, and nothing is known of the path.
    pub(crate) const OF_SESSION: Backoff = Backoff::new(FIRST, LOOKS);

    /// Waits `first` after the first attempt, then doubles up to `slowest`.
    pub(crate) const fn new(first: Micros, slowest: Micros) -> Self {
        Backoff { first, slowest }
    }

    /// The wait after `repeats` earlier waits: the same for all, where few wait for one.
    pub(crate) fn after(self, repeats: u32) -> Micros {
        let doubled = self.first.saturating_mul(1 << repeats.min(32));
        doubled.min(self.slowest)
    }

    /// Half to one and a half times the doubled wait, so that many do not repeat at the same
    /// moment.
    pub(crate) fn wait(self, repeats: u32, rng: &mut Rng) -> Micros {
        rng.jitter(self.after(repeats))
    }

    /// The same, but never shorter than the first: where `first` is the time an answer takes, so
    /// that a shorter wait would repeat every attempt.
    pub(crate) fn wait_for_answer(self, repeats: u32, rng: &mut Rng) -> Micros {
        self.wait(repeats, rng).max(self.first)
    }
}

/// A message that was said.
#[derive(Clone, Copy, Debug)]
struct Said {
    order: u64,
    at: Instant,
    /// It was said before: nobody knows which time is answered (Karn).
    again: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Unanswered {
    rtt: RttEstimator,
    window: Window,
    slowest: Micros,
    said: BTreeMap<u64, Said>,
    /// Those that are lost, and not said again.
    lost: BTreeSet<u64>,
    next_order: u64,
    /// Losses of messages up to this order have been answered by a smaller window.
    recovered: u64,
    /// The last order of those that were said again and answered, and when what it passed is lost.
    doubted: Option<(u64, Instant)>,
    /// Time-outs since something was answered.
    timeouts: u32,
    /// When something was answered, said again, or said while nothing waited for its answer.
    moved: Instant,
}

impl Unanswered {
    /// At most `most` messages, and no wait longer than `slowest`.
    pub(crate) fn new(rtt: RttEstimator, most: u32, slowest: Micros) -> Self {
        Unanswered {
            rtt,
            window: Window::new(most),
            slowest,
            said: BTreeMap::new(),
            lost: BTreeSet::new(),
            next_order: 0,
            recovered: 0,
            doubted: None,
            timeouts: 0,
            moved: Instant::ZERO,
        }
    }

    /// Another message may be said.
    pub(crate) fn has_room(&self) -> bool {
        self.lost.is_empty() && self.said.len() < self.window.size() as usize
    }

    /// A message is said.
    pub(crate) fn say(&mut self, now: Instant, number: u64) {
        if self.said.is_empty() {
            (self.timeouts, self.moved) = (0, now);
        }
        self.next_order += 1;
        let again = self.lost.remove(&number) || self.said.contains_key(&number);
        let said = Said {
            order: self.next_order,
            at: now,
            again,
        };
        self.said.insert(number, said);
    }

    /// A message is answered; others may be lost.
    pub(crate) fn answered(&mut self, now: Instant, number: u64) {
        self.lost.remove(&number);
        let Some(answered) = self.said.remove(&number) else {
            return;
        };
        self.window.arrived();
        (self.timeouts, self.moved) = (0, now);
        if answered.again {
            let (order, at) = self.doubted.unwrap_or((0, now + self.rtt.late_by()));
            self.doubted = Some((order.max(answered.order), at));
        } else {
            self.rtt.sample(now.saturating_since(answered.at));
            self.passed_by(answered.order, self.said.len() as u32 + 1);
        }
        if self.said.is_empty() {
            self.doubted = None;
        }
    }

    /// What was said long before is lost; so many were under way.
    fn passed_by(&mut self, order: u64, in_flight: u32) {
        let mut last = 0;
        self.said.retain(|number, said| {
            let is_lost = said.order + REORDERED <= order;
            if is_lost {
                self.lost.insert(*number);
                last = last.max(said.order);
            }
            !is_lost
        });
        if last > self.recovered {
            self.window.lost(in_flight);
            self.recovered = self.next_order;
        }
    }

    /// A lost message that is said again now, if the window has room for one.
    pub(crate) fn say_again(&mut self, now: Instant) -> Option<u64> {
        if self.said.len() >= self.window.size() as usize {
            return None;
        }
        let number = *self.lost.first()?;
        self.say(now, number);
        Some(number)
    }

    /// No message needs an answer any more.
    pub(crate) fn clear(&mut self) {
        self.said.clear();
        self.lost.clear();
        self.doubted = None;
    }

    /// When [`Self::poll`] has something to say.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let wait = Backoff::new(self.rtt.timeout(), self.slowest).after(self.timeouts);
        let waits = !self.said.is_empty() || !self.lost.is_empty();
        let due = waits.then(|| self.moved + wait);
        let doubted = self
            .doubted
            .map(|(_, at)| at)
            .filter(|_| !self.said.is_empty());
        due.into_iter().chain(doubted).min()
    }

    /// The message to say again now: one that is lost, or the first, if nothing was answered for
    /// too long.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<u64> {
        if let Some((order, _)) = self.doubted.take_if(|(_, at)| *at <= now) {
            self.passed_by(order, self.said.len() as u32);
            return self.say_again(now);
        }
        if self.poll_timeout().is_none_or(|at| now < at) {
            return None;
        }
        let said = self.said.keys().next();
        let number = *said.into_iter().chain(self.lost.first()).min()?;
        let timeouts = self.timeouts.saturating_add(1);
        self.say(now, number);
        (self.timeouts, self.moved) = (timeouts, now);
        Some(number)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::vec::Vec;

    use super::*;

    #[test]
    fn doubles_up_to_its_limit_and_spreads() {
        let backoff = Backoff::new(Micros(100), Micros(1_000));
        let mut rng = Rng::new(1);
        for (repeats, middle) in [(0, 100), (1, 200), (3, 800), (4, 1_000), (u32::MAX, 1_000)] {
            assert_eq!(backoff.after(repeats), Micros(middle));
            let waits: Vec<u64> = (0..200)
                .map(|_| backoff.wait(repeats, &mut rng).0)
                .collect();
            let (least, most) = (waits.iter().min(), waits.iter().max());
            let (least, most) = (*least.expect("200 waits"), *most.expect("200 waits"));
            assert!(
                (middle / 2..middle * 6 / 10).contains(&least),
                "{repeats}: {least}"
            );
            assert!(
                (middle * 14 / 10..=middle * 3 / 2).contains(&most),
                "{repeats}: {most}"
            );
            let answered = backoff.wait_for_answer(repeats, &mut rng);
            assert!(answered >= Micros(100));
        }
    }

    const SLOWEST: Micros = Micros::from_millis(200);

    fn unanswered() -> Unanswered {
        Unanswered::new(RttEstimator::of_peer(Micros(500)), 32, SLOWEST)
    }

    #[test]
    fn who_is_silent_is_probed_with_the_first_ever_less_often() {
        let mut unanswered = unanswered();
        for number in 0..10 {
            assert!(unanswered.has_room());
            unanswered.say(Instant::ZERO, number);
        }
        assert!(!unanswered.has_room());
        let mut waits = Vec::new();
        let mut last = Instant::ZERO;
        for _ in 0..12 {
            let at = unanswered
                .poll_timeout()
                .expect("something is not answered");
            assert_eq!(unanswered.poll(at), Some(0));
            assert_eq!(unanswered.poll(at), None);
            waits.push(at.saturating_since(last));
            last = at;
        }
        assert_eq!(waits[1], waits[0].saturating_mul(2));
        assert_eq!(waits[11], SLOWEST);
        // It answers the probe, and nothing else: what was said long before is lost, and said again
        // as the window has room.
        unanswered.answered(last, 0);
        assert_eq!(unanswered.say_again(last), None);
        last = unanswered.poll_timeout().expect("nine are not answered");
        assert_eq!(unanswered.poll(last), Some(1));
        let again: Vec<u64> = std::iter::from_fn(|| unanswered.say_again(last)).collect();
        assert_eq!(again, [2, 3, 4]);
        for number in 1..10 {
            unanswered.answered(last, number);
            while unanswered.say_again(last).is_some() {}
        }
        assert_eq!(unanswered.poll_timeout(), None);
        unanswered.say(last, 10);
        let next = unanswered.poll_timeout().expect("they are not answered");
        assert!(next.saturating_since(last) < SLOWEST);
    }

    #[test]
    fn who_was_busy_and_answers_all_at_once_has_lost_nothing() {
        let mut unanswered = unanswered();
        let (mut now, mut next) = (Instant::ZERO, 0);
        for _ in 0..10 {
            let first = next;
            while unanswered.has_room() {
                unanswered.say(now, next);
                next += 1;
            }
            let end = now + Micros::from_secs(1);
            while let Some(at) = unanswered.poll_timeout().filter(|at| *at < end) {
                assert_eq!(unanswered.poll(at), Some(first));
            }
            now = end;
            (first..next).for_each(|number| unanswered.answered(now, number));
            assert_eq!(unanswered.poll_timeout(), None);
        }
        assert_eq!(unanswered.window.size(), 32);
    }

    #[test]
    fn one_that_three_later_ones_pass_is_lost_and_makes_the_window_smaller_once() {
        let mut unanswered = unanswered();
        for number in 0..10 {
            unanswered.say(Instant::ZERO, number);
        }
        let now = Instant::ZERO + Micros(100);
        unanswered.answered(now, 2);
        assert!(unanswered.lost.is_empty());
        for lost in [0, 1] {
            unanswered.answered(now, lost + 3);
            assert!(unanswered.lost.contains(&lost));
        }
        assert_eq!(unanswered.window.size(), 4);
        for number in [5, 6, 7, 8, 9] {
            unanswered.answered(now, number);
        }
        assert!(unanswered.window.size() >= 4);
        let again: Vec<u64> = std::iter::from_fn(|| unanswered.say_again(now)).collect();
        assert_eq!(again, [0, 1]);
    }

    #[test]
    fn everything_is_answered_in_the_end_and_not_much_is_said_in_vain() {
        for seed in 0..50 {
            let mut rng = Rng::new(seed);
            let loss = [0, 20, 300][seed as usize % 3];
            let mut unanswered = unanswered();
            let (mut now, mut next, mut count) = (Instant::ZERO, 0_u64, 0);
            let mut answers: BTreeMap<(Instant, u64), ()> = BTreeMap::new();
            let mut done = BTreeSet::new();
            let mut again: Vec<u64> = Vec::new();
            while done.len() < 200 {
                while next < 200 && unanswered.has_room() {
                    unanswered.say(now, next);
                    again.push(next);
                    next += 1;
                }
                again.extend(unanswered.poll(now));
                while let Some(number) = unanswered.say_again(now) {
                    again.push(number);
                }
                for number in again.drain(..) {
                    count += 1;
                    if rng.below(1_000) >= loss {
                        let at = now + Micros(100);
                        answers.insert((at, count << 32 | number), ());
                    }
                }
                let first = answers.first_key_value().map(|((at, _), ())| *at);
                let due = [first, unanswered.poll_timeout()].into_iter().flatten();
                now = now.max(due.min().expect("something is to come"));
                while let Some(entry) = answers.first_entry()
                    && entry.key().0 <= now
                {
                    let number = entry.remove_entry().0.1 & u64::from(u32::MAX);
                    done.insert(number);
                    unanswered.answered(now, number);
                }
                assert!(now < Instant::ZERO + Micros::from_secs(20), "seed {seed}");
            }
            assert!(loss > 0 || count == 200, "seed {seed}: {count}");
            assert!(count < 200 * 1_000 / (1_000 - loss) * 14 / 10, "{count}");
        }
    }
}
