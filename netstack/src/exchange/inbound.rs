//! The receiving end of a block: which packets are there, which were asked for, which are asked for
//! again.
//!
//! Only a span of packets behind the first that is missing is known one by one, so a block of any
//! length takes the same few words. A pair of ranks uses one path, which keeps the order, and a
//! sender sends the lowest number first of what it was asked for. So a packet counts as lost when a
//! higher one has come that was asked for with the same pull or a later one, or when the sender
//! says that it has sent all that it was asked for. The pull that asks for the end of a block,
//! where its caller says so, and a question after silence want to be told that. Nothing is asked
//! for again because of silence alone: what waits at a busy sender would come twice.
//!
//! Neighbours: [`super::alltoall`] and [`super::tagged`] have one of these for each block they
//! receive; [`super::grants`] is the other end.
//!
//! Invariant: a packet is taken once, and no more is asked for than the caller allows.

use super::credit::Waits;
use super::grants::SPAN;
use super::message::Pull;
use crate::time::{Instant, Micros};

/// So often the wait has doubled for the sender of a short block that is missing: it may be many
/// receivers that ask it.
const MISSING_DOUBLINGS: u8 = 2;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Inbound {
    packets: u32,
    /// The first that is missing; bit 0 of the masks.
    base: u32,
    got: u128,
    /// Asked for, or sent unasked, and not there.
    asked: u128,
    /// To be asked for again.
    again: u128,
    /// The first that was never asked for.
    next: u32,
    /// Pull that each packet was last asked for with, by its number modulo the span; 0: it comes
    /// unasked.
    asked_with: [u16; SPAN as usize],
    serial: u16,
    /// All of it is sent unasked.
    pushed: bool,
    /// The last packet, answer, pull or question.
    at: Instant,
    /// Its sender was silent for too long: it is busy with others, or gone. Others have its credit
    /// meanwhile.
    silent: bool,
    doublings: u8,
}

impl Inbound {
    /// A block of so many packets, of which `pushed` come unasked.
    pub(super) fn new(packets: u32, pushed: u32, now: Instant) -> Self {
        let next = pushed.min(packets).min(SPAN);
        Inbound {
            packets,
            base: 0,
            got: 0,
            asked: ones(next),
            again: 0,
            next,
            asked_with: [0; SPAN as usize],
            serial: 0,
            pushed: pushed >= packets,
            at: now,
            silent: false,
            doublings: 0,
        }
    }

    /// A short block that should have come unasked, and is asked for.
    pub(super) fn missing(packets: u32, now: Instant) -> Self {
        Inbound {
            // The pull wants an answer, and if that is lost the sender asks by itself; or it has
            // not begun.
            doublings: MISSING_DOUBLINGS,
            ..Self::new(packets, 0, now)
        }
    }

    /// Packets under way that were asked for; none while the sender is silent.
    pub(super) fn outstanding(&self) -> u32 {
        if self.pushed || self.silent {
            0
        } else {
            self.asked.count_ones()
        }
    }

    /// Packets that could be asked for.
    pub(super) fn wants(&self) -> u32 {
        if self.pushed || self.silent {
            return self.again.count_ones();
        }
        let end = self.packets.min(self.base + SPAN);
        self.again.count_ones() + end.saturating_sub(self.next)
    }

    /// Others have the credit of this sender, because it is silent since a short while: it was not
    /// asked why yet.
    pub(super) fn lends(&self) -> bool {
        self.silent && self.doublings == 0
    }

    /// Some packet was lost and is asked for before anything else.
    pub(super) fn has_lost(&self) -> bool {
        self.again != 0
    }

    /// Everything is there.
    pub(super) fn is_complete(&self) -> bool {
        self.base == self.packets
    }

    /// Asks for at most `most` packets, the lowest first; gives how many of them for another time.
    /// `end_told`: the pull that asks for the end of the block wants to be told when all is sent.
    /// Else a question after silence finds out that the end was lost.
    pub(super) fn ask(&mut self, now: Instant, most: u32, end_told: bool) -> Option<(Pull, u32)> {
        let most = most.min(self.wants());
        if most == 0 {
            return None;
        }
        let serial = self.next_serial();
        let start = match self.again {
            0 => self.next - self.base,
            again => again.trailing_zeros(),
        };
        let end = (start + 64).min(SPAN);
        let mut mask = 0_u64;
        let mut again = 0;
        for bit in start..end {
            if mask.count_ones() == most {
                break;
            }
            let one = 1_u128 << bit;
            if self.again & one != 0 {
                self.again &= !one;
                again += 1;
            } else if self.pushed
                || self.silent
                || self.base + bit != self.next
                || self.next == self.packets
            {
                continue;
            } else {
                self.next += 1;
            }
            self.asked |= one;
            self.asked_with[((self.base + bit) % SPAN) as usize] = serial;
            mask |= 1 << (bit - start);
        }
        self.at = now;
        let pull = Pull {
            serial,
            first: self.base + start,
            packets: mask,
            // Nothing that is asked for later tells that one of these is lost.
            tell: end_told && self.next == self.packets && self.again == 0,
        };
        Some((pull, again))
    }

    fn next_serial(&mut self) -> u16 {
        self.serial = self.serial.wrapping_add(1);
        self.serial
    }

    /// A packet has come. False: it was there already, or cannot be taken now.
    pub(super) fn take(&mut self, now: Instant, number: u32) -> bool {
        let Some(bit) = number.checked_sub(self.base).filter(|bit| *bit < SPAN) else {
            return false;
        };
        let one = 1_u128 << bit;
        if number >= self.packets || self.got & one != 0 {
            return false;
        }
        self.heard(now);
        let was_asked = self.asked & one != 0;
        self.got |= one;
        self.asked &= !one;
        self.again &= !one;
        if number >= self.next {
            // It came unasked: those before it that were not asked for either are to be.
            self.again |= (one - 1) & !ones(self.next - self.base);
            self.next = number + 1;
        }
        if was_asked {
            self.lose(one - 1, self.asked_with[(number % SPAN) as usize]);
        }
        self.slide();
        true
    }

    /// Those of these that were asked for with this pull or one before are lost.
    fn lose(&mut self, these: u128, serial: u16) {
        let mut left = self.asked & these;
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            let with = self.asked_with[((self.base + bit) % SPAN) as usize];
            // Serial numbers wrap.
            if serial.wrapping_sub(with) < 1 << 15 {
                self.asked &= !(1 << bit);
                self.again |= 1 << bit;
            }
        }
    }

    fn heard(&mut self, now: Instant) {
        self.at = now;
        self.silent = false;
        self.doublings = 0;
    }

    /// The sender has sent all that was asked for up to this pull.
    pub(super) fn served(&mut self, now: Instant, serial: u16) {
        if self.serial.wrapping_sub(serial) >= 1 << 15 {
            return;
        }
        self.heard(now);
        self.pushed = false;
        self.lose(u128::MAX, serial);
    }

    /// When the sender has been silent for too long. None: nothing is under way.
    pub(super) fn deadline(&self, waits: Waits) -> Option<Instant> {
        let due = waits.due(self.at, self.doublings);
        let quiet = match self.silent || self.pushed {
            true => due,
            false => self.at.max(waits.came_at) + waits.quiet,
        };
        (self.asked != 0).then(|| due.min(quiet))
    }

    /// The deadline has passed. Others have the credit of this sender until it is heard; later it
    /// is asked to tell when it has sent all.
    pub(super) fn time_out(&mut self, now: Instant, waits: Waits) -> Option<Pull> {
        self.silent = true;
        if now < waits.due(self.at, self.doublings) {
            return None;
        }
        self.doublings = self.doublings.saturating_add(1);
        Some(self.question(now))
    }

    /// The sender says that it waits. It is asked whether it has sent all, where it could have done
    /// so.
    pub(super) fn prompted(&mut self, now: Instant, round_trip: Micros) -> Option<Pull> {
        let is_owed = self.asked != 0 && now >= self.at + round_trip;
        is_owed.then(|| self.question(now))
    }

    /// The sender says that all of a short block was sent before. What was asked for just now may
    /// have passed it.
    pub(super) fn sent_before(&mut self, now: Instant, round_trip: Micros) {
        if self.pushed || now >= self.at + round_trip {
            self.served(now, self.serial);
        }
    }

    fn question(&mut self, now: Instant) -> Pull {
        self.at = now;
        Pull {
            serial: self.next_serial(),
            first: self.base,
            packets: 0,
            tell: true,
        }
    }

    fn slide(&mut self) {
        let by = self.got.trailing_ones();
        if by == 0 {
            return;
        }
        self.base += by;
        for mask in [&mut self.got, &mut self.asked, &mut self.again] {
            *mask = mask.checked_shr(by).unwrap_or(0);
        }
        if self.pushed {
            let end = self.packets.min(self.base + SPAN);
            let from = self.next.max(self.base);
            self.asked |= ones(end - self.base) & !ones(from - self.base);
            for number in from..end {
                self.asked_with[(number % SPAN) as usize] = 0;
            }
            self.next = self.next.max(end);
        }
    }
}

/// The lowest `count` bits.
fn ones(count: u32) -> u128 {
    match count {
        128.. => u128::MAX,
        count => (1 << count) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOW: Instant = Instant::ZERO;

    fn waits(micros: u64) -> Waits {
        Waits {
            came_at: NOW,
            quiet: Micros(micros / 2),
            busy: Micros(micros),
            first: Micros(micros),
            longest: Micros(3 * micros),
        }
    }

    #[test]
    fn a_gap_is_asked_for_again_once() {
        let mut inbound = Inbound::new(40, 0, NOW);
        let (pull, _) = inbound.ask(NOW, 16, true).unwrap();
        assert_eq!((pull.first, pull.packets, pull.tell), (0, 0xffff, false));
        for number in [0, 1, 2, 4, 5] {
            assert!(inbound.take(NOW, number));
        }
        assert!(inbound.has_lost());
        let (pull, again) = inbound.ask(NOW, 1, true).unwrap();
        assert_eq!((pull.first, pull.packets, again), (3, 1, 1));
        // What was asked for before is no sign that it was lost again, but that another is.
        assert!(inbound.take(NOW, 6) && !inbound.has_lost());
        assert!(!inbound.take(NOW, 6));
        assert!(inbound.take(NOW, 8));
        let (pull, again) = inbound.ask(NOW, 1, true).unwrap();
        assert_eq!((pull.first, pull.packets, again), (7, 1, 1));
        // What was asked for afterwards is.
        let (pull, _) = inbound.ask(NOW, 4, true).unwrap();
        assert_eq!(pull.first, 16);
        assert!(inbound.take(NOW, 16));
        let (pull, again) = inbound.ask(NOW, 64, true).unwrap();
        assert_eq!((pull.first, again), (3, 9));
    }

    #[test]
    fn the_end_of_a_block_is_lost_when_its_sender_says_that_it_sent_it() {
        let mut inbound = Inbound::new(10, 0, NOW);
        let (pull, _) = inbound.ask(NOW, 10, true).unwrap();
        assert!(pull.tell);
        for number in [0, 1, 2, 4, 5, 6] {
            inbound.take(NOW, number);
        }
        let (repeat, _) = inbound.ask(NOW, 10, true).unwrap();
        assert_eq!((repeat.first, repeat.packets, repeat.tell), (3, 1, true));
        // The first pull is served: 3 was asked for since.
        inbound.served(NOW, pull.serial);
        let (end, again) = inbound.ask(NOW, 10, true).unwrap();
        assert_eq!((end.first, end.packets, again), (7, 0b111, 3));
        inbound.served(NOW, repeat.serial);
        assert_eq!(inbound.ask(NOW, 10, true).unwrap().0.first, 3);
        // An answer to what was never asked changes nothing.
        inbound.served(NOW, 99);
        assert!(!inbound.has_lost());
    }

    #[test]
    fn a_silent_sender_is_asked_less_and_less_and_gives_up_its_credit() {
        let wait = waits(100);
        let mut inbound = Inbound::new(4, 0, NOW);
        inbound.ask(NOW, 9, true).unwrap();
        assert_eq!(inbound.deadline(wait), Some(NOW + Micros(50)));
        assert_eq!(inbound.time_out(NOW + Micros(50), wait), None);
        assert_eq!(inbound.outstanding(), 0);
        let mut now = NOW + Micros(100);
        for next in [200, 300, 300, 300] {
            assert_eq!(inbound.deadline(wait), Some(now));
            let question = inbound.time_out(now, wait).unwrap();
            assert_eq!((question.packets, question.tell), (0, true));
            assert_eq!((inbound.outstanding(), inbound.wants()), (0, 0));
            now += Micros(next);
        }
        assert!(inbound.take(now, 0));
        assert_eq!(inbound.outstanding(), 3);
        assert_eq!(inbound.deadline(wait), Some(now + Micros(50)));
    }

    #[test]
    fn a_sender_that_waits_is_asked_what_became_of_the_pull() {
        let mut inbound = Inbound::new(4, 0, NOW);
        let round_trip = Micros(20);
        assert_eq!(inbound.prompted(NOW + Micros(99), round_trip), None);
        let (pull, _) = inbound.ask(NOW, 4, true).unwrap();
        // It may just have passed the pull.
        assert_eq!(inbound.prompted(NOW + Micros(19), round_trip), None);
        let question = inbound.prompted(NOW + Micros(20), round_trip).unwrap();
        assert_eq!((question.packets, question.tell), (0, true));
        assert!(question.serial > pull.serial);
        inbound.served(NOW + Micros(40), question.serial);
        assert_eq!(inbound.ask(NOW, 4, true).unwrap().0.packets, 0b1111);
    }

    #[test]
    fn what_a_sender_says_it_has_sent_and_is_not_there_is_asked_for() {
        let round_trip = Micros(20);
        let mut inbound = Inbound::new(3, 3, NOW);
        inbound.take(NOW, 1);
        inbound.sent_before(NOW, round_trip);
        let (pull, again) = inbound.ask(NOW, 9, true).unwrap();
        assert_eq!((pull.first, pull.packets, again), (0, 0b101, 2));
        // It said so before the pull was there.
        inbound.sent_before(NOW + Micros(19), round_trip);
        assert!(!inbound.has_lost());
        inbound.sent_before(NOW + Micros(20), round_trip);
        assert!(inbound.has_lost());
    }

    #[test]
    fn a_block_that_is_pushed_needs_no_pull() {
        let mut inbound = Inbound::new(300, 300, NOW);
        assert_eq!(inbound.wants(), 0);
        for number in 0..300 {
            assert_eq!(inbound.outstanding(), 0);
            assert!(inbound.take(NOW, number), "{number}");
        }
        assert!(inbound.is_complete());
    }

    proptest! {
        #[test]
        fn every_packet_comes_in_the_end(packets in 1u32..500, pushed in 0u32..64, seed: u64, window in 1u32..64, end_told: bool) {
            let mut rng = crate::rng::Rng::new(seed);
            let mut inbound = Inbound::new(packets, pushed, NOW);
            let mut taken = alloc::vec![0; packets as usize];
            // What the sender has to send, and what it has to say after that.
            let mut waiting: alloc::collections::BTreeSet<u32> = (0..pushed.min(packets)).collect();
            let mut tell = None;
            let mut now = NOW;
            for _ in 0..100_000 {
                if inbound.is_complete() {
                    break;
                }
                let most = window.saturating_sub(inbound.outstanding());
                let mut pull = inbound.ask(now, most, end_told).map(|(pull, _)| pull);
                prop_assert!(inbound.outstanding() <= window.max(pushed));
                if pull.is_none() && waiting.is_empty() && let Some(at) = inbound.deadline(waits(10)) {
                    now = at;
                    pull = inbound.time_out(now, waits(10));
                }
                if let Some(pull) = pull.filter(|_| rng.below(5) > 0) {
                    waiting.extend((0..64).filter(|bit| pull.packets >> bit & 1 == 1).map(|bit| pull.first + bit));
                    tell = pull.tell.then_some(pull.serial).or(tell);
                }
                match waiting.pop_first() {
                    Some(_) if rng.below(5) == 0 => {}
                    Some(number) => taken[number as usize] += u32::from(inbound.take(now, number)),
                    None => {}
                }
                if let Some(serial) = tell.take_if(|_| waiting.is_empty()) && rng.below(5) > 0 {
                    inbound.served(now, serial);
                }
            }
            prop_assert!(inbound.is_complete());
            prop_assert!(taken.iter().all(|count| *count == 1));
        }
    }
}
