//! Fragments of several buffers, asked for under one window, and asked for again when lost.
//!
//! A buffer has at most 64 fragments, so that a mask of 64 bits names any set of them. Every
//! fragment that is asked for gets a number in the order of asking, in which they come
//! ([`Arrival`]). One is lost
//! - when one that was asked for [`REORDERED`] numbers later has come (RFC 9002, section 6.1.1), or
//!   twice as many each time that one was not lost but only overtaken (as RFC 4653 and Linux do),
//! - when any later one has come, and it is late by an eighth of a round trip (section 6.1.2); of
//!   another request, where these do not keep the order, it is late after a time-out,
//! - when nothing has come for the length of a time-out, which then doubles (RFC 6298, section
//!   5.5).
//!
//! Buffers are asked for in the order of their keys: what is urgent has a low one.
//!
//! Invariant: a fragment is either wanted, under way or there; the sum under way never exceeds the
//! window, but for one that may always be asked for.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use super::retry::{Backoff, LOOKS, REORDERED};
use super::rtt::RttEstimator;
use super::window::Window;
use crate::time::{Instant, Micros};

/// A request is put off until the window has room for so many fragments, or a quarter of it, or all
/// that is wanted of the buffer: one small request a fragment would cost as many datagrams one way
/// as the other. It is sixteen, so that they are one datagram in seventeen at most.
pub(crate) const BATCH: u32 = 16;
/// Longest time-out: whoever computes looks as often.
const SLOWEST: Micros = LOOKS;

/// Which fragments come in the order in which they were asked for, unless the network changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// All.
    OfAll,
    /// Those of a request: each is read when it comes, and one may take longer than another.
    OfRequest,
}

/// A fragment under way.
#[derive(Clone, Copy, Debug)]
struct Asked<K> {
    order: u64,
    /// The first of its request.
    request: u64,
    key: K,
    fragment: u8,
    at: Instant,
    why: Why,
    /// The latest that has come before it, of those that come after it; 0: none.
    passed_by: u64,
}

/// Why a fragment is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    /// It was asked for, once: when it arrives is a sample of the round trip.
    Asked,
    /// It was asked for before: nobody knows which request it answers (Karn).
    Again,
    /// It comes without having been asked for.
    ByItself,
}

/// Fragments of a buffer that are to be asked for.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    fragments: u64,
    /// Those that were lost.
    again: u64,
}

/// What is asked of one peer.
#[derive(Debug)]
pub(crate) struct Puller<K> {
    keeps: Arrival,
    rtt: RttEstimator,
    window: Window,
    /// Fragments to be asked for, by buffer, in the order of the keys.
    wanted: BTreeMap<K, Wanted>,
    /// In the order of asking.
    under_way: VecDeque<Asked<K>>,
    next_order: u64,
    /// The latest that has arrived of those that were asked for.
    newest: u64,
    /// By how many later ones a fragment is overtaken when it counts as lost.
    reordered: u64,
    /// Losses of fragments up to this order have been answered by a smaller window.
    recovered: u64,
    /// Time-outs since something arrived.
    timeouts: u32,
    /// When something was last asked for while nothing was under way, or arrived.
    moved: Instant,
}

impl<K: Copy + Ord> Puller<K> {
    /// With a window of at most `most` fragments.
    pub(crate) fn new(most: u32, keeps: Arrival) -> Self {
        Self {
            keeps,
            rtt: RttEstimator::of_control(),
            window: Window::new(most),
            wanted: BTreeMap::new(),
            under_way: VecDeque::new(),
            next_order: 0,
            newest: 0,
            reordered: REORDERED,
            recovered: 0,
            timeouts: 0,
            moved: Instant::ZERO,
        }
    }

    /// From now on the window is at most `most` fragments.
    pub(crate) fn set_most(&mut self, most: u32) {
        self.window.set_most(most);
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
            let again = 0;
            self.wanted.insert(key, Wanted { fragments, again });
        }
    }

    /// These fragments come without being asked for; they are asked for when they are lost.
    pub(crate) fn expect(&mut self, now: Instant, key: K, fragments: u64) {
        if self.under_way.is_empty() {
            self.moved = now;
        }
        let request = self.next_order + 1;
        for fragment in bits(fragments) {
            self.ask(now, key, fragment, (request, Why::ByItself));
        }
    }

    fn ask(&mut self, at: Instant, key: K, fragment: u8, (request, why): (u64, Why)) {
        self.next_order += 1;
        let order = self.next_order;
        let asked = Asked {
            order,
            request,
            key,
            fragment,
            at,
            why,
            passed_by: 0,
        };
        self.under_way.push_back(asked);
    }

    /// Fragments under way.
    pub(crate) fn under_way(&self) -> u32 {
        self.under_way.len() as u32
    }

    /// How many more may be under way.
    pub(crate) fn room(&self) -> u32 {
        self.window.size().saturating_sub(self.under_way())
    }

    /// Forgets a buffer.
    pub(crate) fn forget(&mut self, key: K) {
        self.forget_fragments(key, u64::MAX);
    }

    /// Forgets these fragments of a buffer.
    pub(crate) fn forget_fragments(&mut self, key: K, fragments: u64) {
        self.not_wanted(key, fragments);
        let is_it = |asked: &Asked<K>| asked.key == key && fragments >> asked.fragment & 1 == 1;
        self.under_way.retain(|asked| !is_it(asked));
    }

    fn not_wanted(&mut self, key: K, fragments: u64) {
        if let Some(wanted) = self.wanted.get_mut(&key) {
            wanted.fragments &= !fragments;
            if wanted.fragments == 0 {
                self.wanted.remove(&key);
            }
        }
    }

    /// A fragment has come; the caller knows whether it was there before.
    pub(crate) fn arrived(&mut self, now: Instant, key: K, fragment: u8) {
        let wanted = self.wanted.get(&key).copied().unwrap_or_default();
        let is_early = wanted.again & wanted.fragments & 1 << fragment != 0;
        self.not_wanted(key, 1 << fragment);
        let is_it = |asked: &Asked<K>| asked.key == key && asked.fragment == fragment;
        let Some(index) = self.under_way.iter().position(is_it) else {
            return self.overtaken_only(is_early);
        };
        let asked = self.under_way.remove(index).expect("it was just found");
        let is_soon = now.saturating_since(asked.at) < self.rtt.shortest();
        self.overtaken_only(asked.why == Why::Again && is_soon);
        if asked.why == Why::Asked {
            self.rtt.sample(now.saturating_since(asked.at));
        }
        self.window.arrived();
        (self.timeouts, self.moved) = (0, now);
        // What came by itself was sent before what was asked for meanwhile, and overtakes it.
        if asked.why != Why::ByItself {
            self.newest = self.newest.max(asked.order);
            if self.is_overtaken() {
                self.overtake(&asked);
                self.lose_late(now);
            }
        }
    }

    /// One that counted as lost has come before it could have come again.
    fn overtaken_only(&mut self, is_so: bool) {
        if is_so {
            self.reordered = (2 * self.reordered).min(u64::from(self.window.most()));
            self.window.not_lost();
        }
    }

    /// A later one than the first under way has come.
    fn is_overtaken(&self) -> bool {
        let first = self.under_way.front();
        first.is_some_and(|first| first.order < self.newest)
    }

    /// This one has come before those that were asked for earlier.
    fn overtake(&mut self, came: &Asked<K>) {
        let earlier = self.under_way.iter_mut();
        for asked in earlier.take_while(|asked| asked.order < came.order) {
            if self.keeps == Arrival::OfAll || asked.request == came.request {
                asked.passed_by = asked.passed_by.max(came.order);
            }
        }
    }

    /// When one counts as lost, if it does not come; none while it has its turn.
    fn lost_at(&self, asked: &Asked<K>) -> Option<Instant> {
        match asked.passed_by {
            by if by >= asked.order + self.reordered => Some(Instant::ZERO),
            0 if asked.order < self.newest => Some(asked.at + self.rtt.timeout()),
            0 => None,
            _ => Some(asked.at + self.rtt.loss_delay()),
        }
    }

    fn lose_late(&mut self, now: Instant) {
        let is_late = |asked: &Asked<K>| self.lost_at(asked).is_some_and(|at| at <= now);
        let late: Vec<u64> = (self.under_way.iter())
            .filter_map(|asked| is_late(asked).then_some(asked.order))
            .collect();
        if !late.is_empty() {
            self.lose(|asked| late.binary_search(&asked.order).is_ok());
        }
    }

    /// Those under way of which this is true are lost.
    fn lose(&mut self, is_lost: impl Fn(&Asked<K>) -> bool) {
        let in_flight = self.under_way.len() as u32;
        let (mut last, wanted) = (0, &mut self.wanted);
        self.under_way.retain(|asked| {
            let is_lost = is_lost(asked);
            if is_lost {
                let wanted = wanted.entry(asked.key).or_default();
                wanted.fragments |= 1 << asked.fragment;
                wanted.again |= 1 << asked.fragment;
                last = last.max(asked.order);
            }
            !is_lost
        });
        if last > self.recovered {
            self.window.lost(in_flight);
            self.recovered = self.next_order;
        }
    }

    /// When something is to be asked for; `None` while nothing is wanted.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        if self.batch().is_some() {
            return Some(Instant::ZERO);
        }
        let late = match self.is_overtaken() {
            true => (self.under_way.iter())
                .filter_map(|asked| self.lost_at(asked))
                .min(),
            false => None,
        };
        let timeout = (!self.under_way.is_empty()).then(|| self.moved + self.patience());
        late.into_iter().chain(timeout).min()
    }

    fn patience(&self) -> Micros {
        Backoff::new(self.rtt.timeout(), SLOWEST).after(self.timeouts)
    }

    /// How many fragments of the next buffer may be asked for now.
    fn batch(&self) -> Option<u32> {
        let (_, wanted) = self.wanted.first_key_value()?;
        let room = self.room();
        let all = wanted.fragments.count_ones();
        let enough = BATCH.min(self.window.size() / 4).clamp(1, all);
        (room >= enough).then_some(room.min(all))
    }

    /// The next request: a buffer, and which fragments of it.
    pub(crate) fn poll(&mut self, now: Instant) -> Option<(K, u64)> {
        if self.is_overtaken() {
            self.lose_late(now);
        }
        if !self.under_way.is_empty() && now >= self.moved + self.patience() {
            let in_flight = self.under_way();
            self.lose(|_| true);
            self.window.timed_out(in_flight);
            self.timeouts = self.timeouts.saturating_add(1);
            self.moved = now;
        }
        let count = self.batch()?;
        let (&key, &wanted) = self.wanted.first_key_value()?;
        if self.under_way.is_empty() {
            self.moved = now;
        }
        let (mut asked, request) = (0, self.next_order + 1);
        for fragment in bits(wanted.fragments).take(count as usize) {
            let why = match wanted.again >> fragment & 1 {
                0 => Why::Asked,
                _ => Why::Again,
            };
            self.ask(now, key, fragment, (request, why));
            asked |= 1 << fragment;
        }
        self.not_wanted(key, asked);
        Some((key, asked))
    }
}

/// The fragments that a mask names.
fn bits(mut mask: u64) -> impl Iterator<Item = u8> {
    core::iter::from_fn(move || {
        let fragment = mask.trailing_zeros();
        mask &= mask.checked_sub(1)?;
        Some(fragment as u8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_by_itself_says_nothing_of_what_was_asked_for() {
        let mut puller = Puller::new(64, Arrival::OfAll);
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
    #[test]
    fn what_is_only_overtaken_counts_as_lost_but_once() {
        let mut puller = Puller::new(256, Arrival::OfAll);
        let mut now = Instant::ZERO;
        puller.want(1, all(60));
        let mut asked_of = [0; 60];
        let mut lost = Vec::new();
        while let Some((_, mask)) = puller.poll(now) {
            let asked: Vec<u8> = (0..60).filter(|bit| mask >> bit & 1 == 1).collect();
            asked
                .iter()
                .for_each(|bit| asked_of[usize::from(*bit)] += 1);
            now += Micros(1_000);
            // Four later ones come before the first.
            let order = asked.iter().skip(1).take(4).chain(asked.first());
            for fragment in order.chain(asked.iter().skip(5)) {
                puller.arrived(now, 1, *fragment);
            }
            lost.push(puller.reordered);
        }
        assert_eq!(puller.reordered, 2 * REORDERED, "{lost:?}");
        assert_eq!(asked_of, [1; 60]);
        assert!(puller.window.size() >= 40, "{}", puller.window.size());
    }

    use crate::rng::Rng;

    fn all(fragments: u32) -> u64 {
        u64::MAX >> (64 - fragments)
    }

    /// Moves 8 buffers of 60 fragments over a link that delays by 500 us, carries a fragment in 100
    /// us, holds `queue` of them, and loses `loss` of
    /// 1,000 at random. Returns the time it took.
    fn run(loss: u64, queue: u64, seed: u64) -> (Micros, u32) {
        let mut puller = Puller::new(256, Arrival::OfAll);
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
