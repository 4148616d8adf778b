//! Fragments of several buffers, asked for under one window, and asked for again when lost.
//!
//! A buffer has at most 64 fragments, so that a mask of 64 bits names any set of them. Every
//! fragment that is asked for gets a number in the order of asking. One is lost when one that was
//! asked for [`REORDERED`] numbers later has arrived (RFC 9002, section 6.1.1), or when nothing has
//! come for the length of a time-out, which then doubles (RFC 6298, section 5.5).
//!
//! Invariant: a fragment is either wanted, under way or there; the sum under way never exceeds the
//! window, but for one that may always be asked for.

use alloc::collections::{BTreeMap, VecDeque};

use super::rtt::RttEstimator;
use super::window::Window;
use crate::time::{Instant, Micros};

/// How many later ones may overtake a fragment before it counts as lost (RFC 9002).
const REORDERED: u64 = 3;
/// A request is put off until so many fragments of the window are free, or a quarter of it: one
/// small request a fragment would cost as many datagrams one way as the other.
const BATCH: u32 = 16;
/// Longest time-out.
const SLOWEST: Micros = Micros::from_secs(1);

/// A fragment under way.
#[derive(Clone, Copy, Debug)]
struct Asked<K> {
    order: u64,
    key: K,
    fragment: u8,
    /// When; `None`: it comes without having been asked for.
    at: Option<Instant>,
}

/// What is asked of one peer.
#[derive(Debug)]
pub(crate) struct Puller<K> {
    rtt: RttEstimator,
    window: Window,
    /// Fragments to be asked for, by buffer, in the order of the keys.
    wanted: BTreeMap<K, u64>,
    under_way: VecDeque<Asked<K>>,
    next_order: u64,
    /// Losses of fragments below this order have been answered by a smaller window.
    recovered: u64,
    /// Time-outs since something arrived.
    timeouts: u32,
    /// When something was last asked for while nothing was under way, or arrived.
    moved: Instant,
}

impl<K: Copy + Ord> Puller<K> {
    /// With a window of at most `most` fragments.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            rtt: RttEstimator::default(),
            window: Window::new(most),
            wanted: BTreeMap::new(),
            under_way: VecDeque::new(),
            next_order: 0,
            recovered: 0,
            timeouts: 0,
            moved: Instant::ZERO,
        }
    }

    /// Takes a round trip that something else has measured.
    pub(crate) fn sample(&mut self, rtt: Micros) {
        self.rtt.sample(rtt);
    }

    /// How long an answer may take.
    pub(crate) fn timeout(&self) -> Micros {
        self.rtt.timeout()
    }

    /// Wants these fragments of a buffer, which was not known before.
    pub(crate) fn want(&mut self, key: K, fragments: u64) {
        if fragments != 0 {
            self.wanted.insert(key, fragments);
        }
    }

    /// These fragments come without being asked for; they are asked for when they are lost.
    pub(crate) fn expect(&mut self, now: Instant, key: K, fragments: u64) {
        if self.under_way.is_empty() {
            self.moved = now;
        }
        self.ask(key, fragments, None);
    }

    fn ask(&mut self, key: K, mut fragments: u64, at: Option<Instant>) {
        while fragments != 0 {
            self.under_way.push_back(Asked {
                order: self.next_order,
                key,
                fragment: fragments.trailing_zeros() as u8,
                at,
            });
            self.next_order += 1;
            fragments &= fragments - 1;
        }
    }

    /// How many more may be under way.
    pub(crate) fn room(&self) -> u32 {
        let under_way = self.under_way.len() as u32;
        self.window.size().saturating_sub(under_way)
    }

    /// Forgets a buffer.
    pub(crate) fn forget(&mut self, key: K) {
        self.wanted.remove(&key);
        self.under_way.retain(|asked| asked.key != key);
    }

    /// A fragment has come; the caller knows whether it was there before.
    pub(crate) fn arrived(&mut self, now: Instant, key: K, fragment: u8) {
        if let Some(wanted) = self.wanted.get_mut(&key) {
            *wanted &= !(1 << fragment);
            if *wanted == 0 {
                self.wanted.remove(&key);
            }
        }
        let is_it = |asked: &Asked<K>| asked.key == key && asked.fragment == fragment;
        let Some(index) = self.under_way.iter().position(is_it) else {
            return;
        };
        let asked = self.under_way.remove(index).expect("it was just found");
        if let Some(at) = asked.at {
            self.rtt.sample(now.saturating_since(at));
        }
        self.window.arrived();
        (self.timeouts, self.moved) = (0, now);
        // What came by itself was sent before what was asked for meanwhile, and overtakes it.
        if asked.at.is_none() {
            return;
        }
        let behind = |other: &Asked<K>| other.order + REORDERED < asked.order;
        let lost = self.under_way.iter().take_while(|other| behind(other));
        let lost = lost.count();
        if lost > 0 {
            self.lose(lost);
        }
    }

    /// The oldest `count` under way are lost.
    fn lose(&mut self, count: usize) {
        let in_flight = self.under_way.len() as u32;
        for _ in 0..count {
            let Some(asked) = self.under_way.pop_front() else {
                break;
            };
            *self.wanted.entry(asked.key).or_default() |= 1 << asked.fragment;
            if asked.order >= self.recovered {
                self.window.lost(in_flight);
                self.recovered = self.next_order;
            }
        }
    }

    /// When something is to be asked for; `None` while nothing is wanted.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.batch().is_some() {
            return Some(Instant::ZERO);
        }
        (!self.under_way.is_empty()).then(|| self.moved + self.patience())
    }

    fn patience(&self) -> Micros {
        let doubled = self
            .rtt
            .timeout()
            .saturating_mul(1 << self.timeouts.min(16));
        doubled.min(SLOWEST)
    }

    /// How many fragments may be asked for now.
    fn batch(&self) -> Option<u32> {
        let wanted: u32 = self.wanted.values().map(|mask| mask.count_ones()).sum();
        let room = self.room();
        let enough = BATCH.min(self.window.size() / 4).clamp(1, wanted.max(1));
        (wanted > 0 && room >= enough).then_some(room.min(BATCH))
    }

    /// The next request: a buffer, and which fragments of it.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(K, u64)> {
        if !self.under_way.is_empty() && now >= self.moved + self.patience() {
            let in_flight = self.under_way.len();
            self.lose(in_flight);
            self.window.timed_out(in_flight as u32);
            self.timeouts = self.timeouts.saturating_add(1);
            self.moved = now;
        }
        let room = self.batch()?;
        let (&key, wanted) = self.wanted.iter_mut().next()?;
        if self.under_way.is_empty() {
            self.moved = now;
        }
        let mut asked = 0_u64;
        for _ in 0..room.min(wanted.count_ones()) {
            let fragment = wanted.trailing_zeros() as u8;
            *wanted &= *wanted - 1;
            asked |= 1 << fragment;
        }
        if *wanted == 0 {
            self.wanted.remove(&key);
        }
        self.ask(key, asked, Some(now));
        Some((key, asked))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_by_itself_says_nothing_of_what_was_asked_for() {
        let mut puller = Puller::new(64);
        let now = Instant::ZERO;
        puller.want(1, all(30));
        let asked: Vec<(u32, u64)> = std::iter::from_fn(|| puller.poll(now)).collect();
        puller.expect(now, 2, all(8));
        for fragment in 0..8 {
            puller.arrived(now, 2, fragment);
        }
        let more: Vec<(u32, u64)> = std::iter::from_fn(|| puller.poll(now)).collect();
        let masks = asked.iter().chain(&more).map(|(_, mask)| mask);
        let count: u32 = masks.clone().map(|mask| mask.count_ones()).sum();
        let once = masks.fold(0, |all, mask| all | mask).count_ones();
        assert!(!more.is_empty() && count == once, "{asked:?} {more:?}");
    }
    use crate::rng::Rng;
    use std::vec::Vec;

    fn all(fragments: u32) -> u64 {
        u64::MAX >> (64 - fragments)
    }

    /// Moves 8 buffers of 60 fragments over a link that delays by 500 us, carries a fragment in 100
    /// us, holds `queue` of them, and loses `loss` of
    /// 1,000 at random. Returns the time it took.
    fn run(loss: u64, queue: u64, seed: u64) -> (Micros, u32) {
        let mut puller = Puller::new(256);
        let mut rng = Rng::new(seed);
        for key in 0..8_u32 {
            puller.want(key, all(60));
        }
        let mut there = [0_u64; 8];
        let (mut now, mut free, mut sent) = (Instant::ZERO, Instant::ZERO, 0);
        let mut arriving: Vec<(Instant, u32, u8)> = Vec::new();
        while there.iter().any(|mask| *mask != all(60)) {
            while let Some((key, mask)) = puller.poll(now) {
                for fragment in (0..64).filter(|bit| mask >> bit & 1 == 1) {
                    sent += 1;
                    let start = free.max(now + Micros(250));
                    let waits = start.saturating_since(now + Micros(250));
                    if waits.0 > queue * 100 || rng.below(1_000) < loss {
                        continue;
                    }
                    free = start + Micros(100);
                    arriving.push((free + Micros(250), key, fragment));
                }
            }
            arriving.sort();
            let next = puller.poll_timeout();
            let first = arriving.first().map(|first| first.0);
            let Some(at) = [next, first].into_iter().flatten().min() else {
                panic!("it stands still with {there:?}");
            };
            now = now.max(at);
            while let Some(&(at, key, fragment)) = arriving.first()
                && at <= now
            {
                arriving.remove(0);
                there[key as usize] |= 1 << fragment;
                puller.arrived(now, key, fragment);
            }
            assert!(now < Instant::ZERO + Micros::from_secs(60), "too slow");
        }
        (now.saturating_since(Instant::ZERO), sent)
    }

    #[test]
    fn fills_the_link() {
        let (took, sent) = run(0, 1_000, 1);
        assert_eq!(sent, 480, "nothing is asked for twice");
        assert!(took < Micros(480 * 100 * 115 / 100), "{took:?}");
    }

    #[test]
    fn finds_the_room_of_a_short_queue() {
        let (took, sent) = run(0, 20, 1);
        assert!(sent < 600, "{sent}");
        assert!(took < Micros(480 * 100 * 2), "{took:?}");
    }

    #[test]
    fn ends_whatever_is_lost() {
        for seed in 0..50 {
            run(200, 64, seed);
            run(600, 64, seed);
        }
    }
}
