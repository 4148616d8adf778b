//! The receiving end of a block: which packets are there, which were asked for, which are asked for again.
//!
//! Only a span of packets behind the first that is missing is known one by one, so a block of any length takes the same few
//! words. A packet counts as lost when one that was asked for later has come (a pair of ranks uses one path, which
//! keeps the order), when the sender says that it sent everything, or when nothing came for a while.
//!
//! Neighbours: [`super::alltoall`] and [`super::letters`] have one of these for each block they receive;
//! [`super::grants`] is the other end.
//!
//! Invariant: a packet is taken once, and no more is asked for than the caller allows.

use super::credit::{PATIENT_TRIES, Waits};
use crate::time::{Instant, Micros};

/// Packets that are known one by one.
const SPAN: u32 = 128;
/// Most times that the wait for a silent sender doubles.
const MAX_DOUBLINGS: u8 = PATIENT_TRIES + 6;

/// What is asked for: serial number, number of the first packet, and which from there.
pub(super) type Pull = (u16, u32, u64);

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
    /// When a packet from here on comes, all that were asked for before it and are missing are lost.
    marker: u32,
    serial: u16,
    /// All of it is sent unasked.
    pushed: bool,
    /// The last packet or pull.
    at: Instant,
    /// The last packet, or the pull before which nothing was under way.
    came_at: Instant,
    doublings: u8,
    /// Nothing is asked for before.
    retry_at: Instant,
}

impl Inbound {
    /// A block of so many packets, of which `pushed` come unasked.
    pub(super) fn new(packets: u32, pushed: u32, now: Instant) -> Self {
        let mut inbound = Inbound {
            packets,
            base: 0,
            got: 0,
            asked: 0,
            again: 0,
            next: 0,
            marker: 0,
            serial: 0,
            pushed: pushed >= packets,
            at: now,
            came_at: now,
            doublings: 0,
            retry_at: Instant::ZERO,
        };
        inbound.next = pushed.min(packets).min(SPAN);
        inbound.asked = ones(inbound.next);
        inbound
    }

    /// Packets under way that were asked for.
    pub(super) fn outstanding(&self) -> u32 {
        if self.pushed {
            0
        } else {
            self.asked.count_ones()
        }
    }

    /// Packets that could be asked for.
    pub(super) fn wants(&self, now: Instant) -> u32 {
        if self.pushed || now < self.retry_at {
            return self.again_now(now).count_ones();
        }
        let end = self.packets.min(self.base + SPAN);
        self.again.count_ones() + end.saturating_sub(self.next)
    }

    fn again_now(&self, now: Instant) -> u128 {
        if now < self.retry_at { 0 } else { self.again }
    }

    /// Some packet was lost and is asked for before anything else.
    pub(super) fn has_lost(&self, now: Instant) -> bool {
        self.again_now(now) != 0
    }

    /// It has its whole window and wants more: until when others wait for it, if its sender is not slow.
    pub(super) fn holds_until(&self, now: Instant, slow: Micros) -> Option<Instant> {
        let until = self.came_at + slow;
        (self.outstanding() > 0 && self.wants(now) > 0 && until > now).then_some(until)
    }

    /// Everything is there.
    pub(super) fn is_complete(&self) -> bool {
        self.base == self.packets
    }

    /// Asks for at most `most` packets, the lowest first; gives how many of them for another time.
    pub(super) fn ask(&mut self, now: Instant, most: u32) -> Option<(Pull, u32)> {
        let most = most.min(self.wants(now));
        if most == 0 {
            return None;
        }
        let repeated = self.again != 0;
        let before = self.asked;
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
            } else if self.pushed || self.base + bit != self.next || self.next == self.packets {
                continue;
            } else {
                self.next += 1;
            }
            self.asked |= one;
            mask |= 1 << (bit - start);
        }
        if repeated {
            self.marker = self.next;
        }
        self.serial = self.serial.wrapping_add(1);
        if before == 0 {
            self.came_at = now;
        }
        self.at = now;
        Some(((self.serial, self.base + start, mask), again))
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
        self.got |= one;
        self.asked &= !one;
        self.again &= !one;
        (self.at, self.came_at) = (now, now);
        self.doublings = 0;
        self.retry_at = Instant::ZERO;
        if number >= self.next {
            // It came unasked: those before it that were not asked for either are to be.
            self.again |= (one - 1) & !ones(self.next - self.base);
            self.next = number + 1;
        }
        if number >= self.marker {
            let lost = self.asked & (one - 1);
            self.again |= lost;
            self.asked &= !lost;
        }
        self.slide();
        true
    }

    /// The sender has sent all that was asked for up to this pull.
    pub(super) fn served(&mut self, serial: u16) {
        if serial == self.serial {
            self.pushed = false;
            self.again |= self.asked;
            self.asked = 0;
            self.marker = self.next;
        }
    }

    /// When the sender has been silent for too long. None: nothing is under way.
    pub(super) fn deadline(&self, waits: Waits) -> Option<Instant> {
        if self.asked == 0 {
            return (self.again != 0 && self.retry_at > self.at).then_some(self.retry_at);
        }
        Some(waits.due(self.at, self.doublings))
    }

    /// The deadline has passed: what was asked for is asked for again, the second time and later only after a while,
    /// in which others have the credit.
    pub(super) fn time_out(&mut self, now: Instant, waits: Waits) {
        if self.asked == 0 {
            return;
        }
        self.pushed = false;
        self.again |= self.asked;
        self.asked = 0;
        self.marker = self.next;
        if self.doublings >= PATIENT_TRIES {
            self.retry_at = waits.due(now, self.doublings);
        }
        self.doublings = (self.doublings + 1).min(MAX_DOUBLINGS);
        self.at = now;
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
            let new = ones(end - self.base) & !ones(self.next.max(self.base) - self.base);
            self.asked |= new;
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
            longest: Micros(micros),
        }
    }

    #[test]
    fn a_gap_is_asked_for_again_once() {
        let mut inbound = Inbound::new(40, 0, NOW);
        let ((_, first, mask), _) = inbound.ask(NOW, 16).unwrap();
        assert_eq!((first, mask), (0, 0xffff));
        for number in [0, 1, 2, 4, 5] {
            assert!(inbound.take(NOW, number));
        }
        assert!(inbound.has_lost(NOW));
        let ((_, first, mask), again) = inbound.ask(NOW, 1).unwrap();
        assert_eq!((first, mask, again), (3, 1, 1));
        // What was under way then does not count as a sign that it was lost again.
        assert!(inbound.take(NOW, 6) && !inbound.has_lost(NOW));
        assert!(!inbound.take(NOW, 6));
        // What was asked for afterwards does.
        let ((_, first, _), _) = inbound.ask(NOW, 4).unwrap();
        assert_eq!(first, 16);
        assert!(inbound.take(NOW, 16) && inbound.has_lost(NOW));
    }

    #[test]
    fn a_silent_sender_is_asked_less_and_less() {
        let wait = waits(100);
        let mut inbound = Inbound::new(4, 0, NOW);
        let mut now = NOW;
        for _ in 0..=PATIENT_TRIES {
            inbound.ask(now, 9).unwrap();
            assert_eq!(inbound.deadline(wait), Some(now + Micros(100)));
            now += Micros(100);
            inbound.time_out(now, wait);
        }
        // From now on others have the credit for a while, which doubles.
        assert_eq!((inbound.outstanding(), inbound.wants(now)), (0, 0));
        assert_eq!(inbound.deadline(wait), Some(now + Micros(100)));
        now += Micros(100);
        inbound.ask(now, 9).unwrap();
        assert_eq!(inbound.deadline(wait), Some(now + Micros(200)));
    }

    #[test]
    fn a_block_that_is_pushed_needs_no_pull() {
        let mut inbound = Inbound::new(300, 300, NOW);
        assert_eq!(inbound.wants(NOW), 0);
        for number in 0..300 {
            assert_eq!(inbound.outstanding(), 0);
            assert!(inbound.take(NOW, number), "{number}");
        }
        assert!(inbound.is_complete());
    }

    proptest! {
        #[test]
        fn every_packet_comes_in_the_end(packets in 1u32..500, pushed in 0u32..64, seed: u64, window in 1u32..64) {
            let mut rng = crate::rng::Rng::new(seed);
            let mut inbound = Inbound::new(packets, pushed, NOW);
            let mut taken = alloc::vec![0; packets as usize];
            let mut flying: alloc::collections::VecDeque<u32> = (0..pushed.min(packets)).collect();
            let mut now = NOW;
            for _ in 0..100_000 {
                if inbound.is_complete() {
                    break;
                }
                let most = window.saturating_sub(inbound.outstanding());
                if let Some(((_, first, mask), _)) = inbound.ask(now, most) {
                    flying.extend((0..64).filter(|bit| mask >> bit & 1 == 1).map(|bit| first + bit));
                }
                prop_assert!(inbound.outstanding() <= window.max(pushed));
                match flying.pop_front() {
                    Some(_) if rng.below(5) == 0 => {}
                    Some(number) => taken[number as usize] += u32::from(inbound.take(now, number)),
                    None => {
                        let Some(at) = inbound.deadline(waits(10)) else { continue };
                        now = at;
                        inbound.time_out(now, waits(10));
                    }
                }
            }
            prop_assert!(inbound.is_complete());
            prop_assert!(taken.iter().all(|count| *count == 1));
        }
    }
}
