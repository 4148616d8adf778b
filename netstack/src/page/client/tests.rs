//! Page requests over a network that loses, repeats and delays.

use std::collections::BTreeSet;

use super::*;
use crate::page::PAGE_SIZE;
use crate::rng::Rng;
use crate::wire::page::fragment_length;

/// One way to the control node.
const DELAY: Micros = Micros(250);
/// A fragment takes so long on the link.
const CARRY: Micros = Micros(100);

/// What the network does, in parts of 1,000.
#[derive(Clone, Copy, Default)]
struct Network {
    lost: u64,
    doubled: u64,
    /// Longest time that a fragment is late.
    late: Micros,
    /// Longest time that it takes to read what a request asks for.
    read: Micros,
}

/// A fragment on its way: when it arrives, and which.
type Coming = (Instant, RequestId, u8, u32);

struct Pair {
    client: PageClient,
    counters: Counters,
    network: Network,
    rng: Rng,
    now: Instant,
    free: Instant,
    object: Vec<u8>,
    coming: BTreeSet<Coming>,
    events: Vec<Event>,
    /// Requests in the order in which they were sent.
    sent: Vec<PageRead>,
}

impl Pair {
    fn new(network: Network, seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        Pair {
            client: PageClient::new(),
            counters: Counters::default(),
            network,
            now: Instant::ZERO,
            free: Instant::ZERO,
            object: (0..300_000).map(|_| rng.next_u64() as u8).collect(),
            coming: BTreeSet::new(),
            events: Vec::new(),
            sent: Vec::new(),
            rng,
        }
    }

    fn ask(&mut self, offset: u64, length: u32, demand: bool) -> RequestId {
        let spec = PageRequest {
            job: JobId(1),
            object: Object::Program,
            offset,
            length,
            demand,
        };
        self.client.request(spec).expect("there is room")
    }

    /// Sends what is due. The control node answers each request with the fragments that it names.
    fn send(&mut self) {
        let events = &mut self.events;
        while let Some(read) =
            (self.client).poll(self.now, &mut self.counters, |event| events.push(event))
        {
            self.sent.push(read);
            if self.rng.below(1_000) < self.network.lost {
                continue;
            }
            let left = self.object.len() as u64 - read.offset.min(self.object.len() as u64);
            let available = left.min(read.length.into()) as u32;
            // Of a range beyond the end of the object it says at least that it is empty.
            let there = match available {
                0 => 1,
                available => read.fragments & fragment_mask(available),
            };
            let mut read_at = self.now + DELAY + Micros(self.rng.below(self.network.read.0 + 1));
            for index in (0..32).filter(|index| there >> index & 1 == 1) {
                let copies = 1 + u32::from(self.rng.below(1_000) < self.network.doubled);
                for _ in 0..copies {
                    // Where requests are read side by side, none waits for the link.
                    let free = match self.network.read.0 {
                        0 => &mut self.free,
                        _ => &mut read_at,
                    };
                    *free = (*free).max(self.now + DELAY) + CARRY;
                    let late = Micros(self.rng.below(self.network.late.0 + 1));
                    if self.rng.below(1_000) >= self.network.lost {
                        let at = *free + DELAY + late;
                        self.coming.insert((at, read.request, index, available));
                    }
                }
            }
        }
    }

    fn arrive(&mut self, (at, request, index, available): Coming) {
        self.now = self.now.max(at);
        let read = self.sent.iter().find(|read| read.request == request);
        let offset = read.expect("it was asked for").offset as usize;
        let length = fragment_length(available, index).expect("it is one");
        let data = match length {
            0 => &[],
            length => &self.object[offset + usize::from(index) * FRAGMENT..][..length],
        };
        let content = Content::Fragment {
            index,
            available,
            data,
        };
        let answer = PageData { request, content };
        let events = &mut self.events;
        (self.client).receive(self.now, &answer, |event| events.push(event));
    }

    /// Goes on until nothing is asked for any more.
    fn run(&mut self) {
        loop {
            self.send();
            let first = self.coming.first().map(|first| first.0);
            let due = self.client.poll_timeout();
            let Some(at) = [first, due].into_iter().flatten().min() else {
                return;
            };
            assert!(at < Instant::ZERO + Micros::from_secs(600), "it never ends");
            self.now = self.now.max(at);
            if first == Some(at)
                && let Some(coming) = self.coming.pop_first()
            {
                self.arrive(coming);
            }
        }
    }

    /// The requests that have ended with the right bytes.
    fn done(&mut self) -> Vec<RequestId> {
        let events = core::mem::take(&mut self.events);
        let done = events.into_iter().map(|event| match event {
            Event::Data {
                request,
                offset,
                bytes,
                ..
            } => {
                let start = self.object.len().min(offset as usize);
                assert_eq!(bytes[..], self.object[start..start + bytes.len()]);
                request
            }
            other => panic!("{other:?}"),
        });
        done.collect()
    }
}

#[test]
fn a_full_set_of_requests_fills_the_link_and_asks_for_nothing_twice() {
    let mut pair = Pair::new(Network::default(), 1);
    for part in 0..8 {
        pair.ask(part * u64::from(MAX_REQUEST), MAX_REQUEST, false);
    }
    pair.run();
    assert_eq!(pair.done().len(), 8);
    assert_eq!(pair.counters.retransmitted, 0);
    // A datagram up for eight that come down.
    assert!(pair.sent.len() <= 8 * 24 / 8, "{}", pair.sent.len());
    let took = pair.now.saturating_since(Instant::ZERO);
    assert!(took.0 < 8 * 24 * CARRY.0 * 115 / 100, "{took:?}");
}

#[test]
fn requests_that_are_answered_out_of_turn_are_not_lost() {
    let network = Network {
        read: Micros::from_millis(2),
        ..Network::default()
    };
    let mut pair = Pair::new(network, 1);
    for part in 0..8 {
        pair.ask(part * u64::from(MAX_REQUEST), MAX_REQUEST, false);
    }
    pair.run();
    assert_eq!(pair.done().len(), 8);
    assert_eq!(pair.counters.retransmitted, 0);
}

#[test]
fn what_is_lost_doubled_or_late_ends_whole() {
    for seed in 0..60 {
        let network = Network {
            lost: [0, 10, 200, 500][seed as usize % 4],
            doubled: [0, 300][seed as usize / 4 % 2],
            late: Micros([0, 400, 5_000][seed as usize % 3]),
            read: Micros([0, 2_000][seed as usize % 2]),
        };
        let mut pair = Pair::new(network, seed);
        let asked: Vec<RequestId> = (0..8)
            .map(|part| pair.ask(part * 48_000, 10_000 + part as u32 * 3_000, part % 3 == 0))
            .collect();
        // Of the last but one there is a part, of the last nothing.
        pair.run();
        let mut done = pair.done();
        done.sort();
        assert_eq!(done, asked, "seed {seed}");
        assert_eq!(pair.client.in_flight(), 0);
    }
}

#[test]
fn one_lost_fragment_costs_a_round_trip_and_no_time_out() {
    for lost in [0, 5, 22] {
        let mut pair = Pair::new(Network::default(), 1);
        // The round trip is known.
        pair.ask(0, PAGE_SIZE, true);
        pair.run();
        let begin = pair.now;
        pair.ask(100_000, MAX_REQUEST, true);
        pair.send();
        let coming = pair.coming.iter().find(|coming| coming.2 == lost).copied();
        match coming {
            Some(coming) => pair.coming.remove(&coming),
            // It is not in the first window.
            None => pair.client.poll_timeout().is_some(),
        };
        pair.run();
        assert_eq!(pair.done().len(), 2);
        let took = pair.now.saturating_since(begin);
        assert!(took < Micros::from_millis(10), "fragment {lost}: {took:?}");
    }
}

#[test]
fn who_waits_comes_before_what_is_read_ahead() {
    let mut pair = Pair::new(Network::default(), 1);
    for part in 0..6 {
        pair.ask(part * u64::from(MAX_REQUEST), MAX_REQUEST, false);
    }
    pair.send();
    let waits = pair.ask(250_000, PAGE_SIZE, true);
    pair.run();
    let place = pair.done().iter().position(|done| *done == waits);
    assert_eq!(place, Some(0), "it passes all that had not been asked for");
}

#[test]
fn a_silent_control_node_is_asked_ever_less_often_and_given_up() {
    let mut pair = Pair::new(
        Network {
            lost: 1_000,
            ..Network::default()
        },
        1,
    );
    let asked = pair.ask(0, MAX_REQUEST, true);
    pair.run();
    let [
        Event::PageFailed {
            request,
            reason: PageError::TimedOut,
            ..
        },
    ] = pair.events[..]
    else {
        panic!("{:?}", pair.events);
    };
    assert_eq!((request, pair.counters.page_timeouts), (asked, 1));
    assert_eq!(pair.now, Instant::ZERO + SILENCE);
    // 10 at once, then 2 each: after 100 ms, doubling to a second.
    assert!((10..=30).contains(&pair.sent.len()), "{}", pair.sent.len());
}

#[test]
fn without_a_control_node_requests_wait_and_then_begin_anew() {
    let mut pair = Pair::new(Network::default(), 1);
    pair.ask(0, MAX_REQUEST, true);
    pair.send();
    pair.coming.clear();
    pair.client.set_waiting(true);
    pair.run();
    assert!(pair.events.is_empty() && pair.client.in_flight() == 0);
    pair.now += Micros::from_secs(100);
    pair.free = pair.now;
    pair.client.set_waiting(false);
    pair.run();
    assert_eq!(pair.done().len(), 1);
}

#[test]
fn fragments_that_contradict_each_other_or_answer_nothing_change_nothing() {
    let mut pair = Pair::new(Network::default(), 1);
    let asked = pair.ask(0, 2 * PAGE_SIZE, true);
    pair.send();
    let mut take = |request, index, available| {
        let data = [0xee; FRAGMENT];
        let length = fragment_length(available, index).expect("it is one");
        let content = Content::Fragment {
            index,
            available,
            data: &data[..length],
        };
        let answer = PageData { request, content };
        (pair.client).receive(pair.now, &answer, |event| panic!("{event:?}"))
    };
    // More than was asked for, another request, another end of the object than before.
    assert!(!take(asked, 6, 3 * PAGE_SIZE));
    assert!(!take(RequestId(77), 0, PAGE_SIZE));
    assert!(take(asked, 5, 2 * PAGE_SIZE));
    assert!(!take(asked, 0, 2 * PAGE_SIZE - 1));
    assert!(!take(asked, 5, 2 * PAGE_SIZE));
    // The other fragments come as they are.
    pair.coming.retain(|coming| coming.2 != 5);
    pair.object[5 * FRAGMENT..2 * PAGE_SIZE as usize].fill(0xee);
    pair.run();
    assert_eq!(pair.done(), [asked]);
}

#[test]
fn a_cancelled_job_leaves_the_window_to_others() {
    let mut pair = Pair::new(Network::default(), 1);
    for part in 0..8 {
        pair.ask(part * u64::from(MAX_REQUEST), MAX_REQUEST, false);
    }
    pair.send();
    assert_ne!(pair.client.in_flight(), 0);
    pair.client.cancel(JobId(1));
    assert_eq!(pair.client.in_flight(), 0);
    pair.run();
    assert!(pair.events.is_empty());
}
