//! Endpoints on a small network in virtual time: every datagram takes 50 us, some are lost.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use super::envelope::{Envelopes, Seal};
use super::*;
use crate::rng::Rng;
use crate::time::{Instant, Micros};

mod beginnings;
mod busy;
mod closing;
mod compared;
mod disagreement;
mod endings;
mod groups;
mod hostile;
mod late;
mod lost;
mod messages;
mod probes;
mod published;
mod refused;
mod wrapping;

const FLIGHT: Micros = Micros(50);

/// Memory of a rank: buffers by number.
#[derive(Default)]
struct Buffers(Vec<Vec<u8>>);

impl Memory for Buffers {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        let from = self
            .0
            .get(buffer.0 as usize)
            .and_then(|all| all.get(offset as usize..));
        out.copy_from_slice(from.and_then(|from| from.get(..out.len())).ok_or(Gone)?);
        Ok(())
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        let to = self
            .0
            .get_mut(buffer.0 as usize)
            .and_then(|all| all.get_mut(offset as usize..));
        let to = to.and_then(|to| to.get_mut(..bytes.len())).ok_or(Gone)?;
        to.copy_from_slice(bytes);
        Ok(())
    }
}

/// The key of the job of [`Net`], as its ranks have it.
const KEY: Key = Key([3; 16]);

/// Of a rank of such a job that has sealed and opened nothing.
fn envelopes(me: Rank, size: u32) -> Envelopes {
    let key = KEY.exchange_key(JobId(1), 0);
    Envelopes::new(Seal::new(&key, JobId(1)), me, size)
}

struct Net {
    ranks: Vec<Endpoint>,
    memory: Vec<Buffers>,
    events: Vec<Vec<Event>>,
    /// Datagrams under way, by the time they arrive.
    flights: VecDeque<(Instant, usize, Vec<u8>)>,
    dead: Vec<bool>,
    loss_percent: u64,
    /// Somebody who sees every datagram, and sends what it makes of them.
    stranger: Option<hostile::Stranger>,
    rng: Rng,
    now: Instant,
}

impl Net {
    fn new(size: u32, scheme: Scheme, loss_percent: u64, seed: u64) -> Self {
        let config = |me| Config {
            job: JobId(1),
            epoch: 0,
            me: Rank(me),
            size,
            key: KEY,
            rate: 125_000_000,
            port_buffer: 0,
            leaf: 0,
            scheme,
            eager_bytes: 8192,
            seed,
        };
        Net {
            ranks: (0..size)
                .map(|me| Endpoint::new(config(me), Instant::ZERO))
                .collect(),
            memory: (0..size).map(|_| Buffers::default()).collect(),
            events: vec![Vec::new(); size as usize],
            flights: VecDeque::new(),
            dead: vec![false; size as usize],
            loss_percent,
            stranger: None,
            rng: Rng::new(seed),
            now: Instant::ZERO,
        }
    }

    fn post(&mut self, rank: u32, op: Op) -> OpId {
        let rank = rank as usize;
        self.ranks[rank]
            .post(self.now, op, &mut self.memory[rank])
            .expect("it is taken")
    }

    fn send_all(&mut self) {
        let mut out = [0; crate::MAX_DATAGRAM];
        for rank in 0..self.ranks.len() {
            if self.dead[rank] {
                continue;
            }
            while let Some((to, length)) =
                self.ranks[rank].poll_transmit(self.now, &mut out, &mut self.memory[rank])
            {
                let arrives = self.now + FLIGHT;
                if self.rng.below(100) >= self.loss_percent {
                    let flight = (arrives, to.0 as usize, out[..length].to_vec());
                    self.flights.push_back(flight);
                }
                if let Some(stranger) = &mut self.stranger {
                    let forged = stranger.answer(&out[..length], self.ranks.len());
                    let forged = forged.map(|(to, bytes)| (arrives, to, bytes));
                    self.flights.extend(forged);
                }
            }
            while let Some(event) = self.ranks[rank].poll_event() {
                self.events[rank].push(event);
            }
        }
    }

    /// Goes on until every living rank has so many events, or the time is over.
    fn run(&mut self, events: usize, most: Micros) {
        let end = self.now + most;
        loop {
            self.send_all();
            let mut living = self.events.iter().zip(&self.dead);
            if living.all(|(all, dead)| *dead || all.len() >= events) {
                return;
            }
            let timers = self.ranks.iter().zip(&self.dead);
            let timers = timers
                .filter(|(_, dead)| !**dead)
                .filter_map(|(rank, _)| rank.poll_timeout());
            let arrival = self.flights.front().map(|(at, ..)| *at);
            let next = timers.chain(arrival).min().expect("something is under way");
            self.now = next.max(self.now + Micros(1));
            assert!(self.now < end, "not done: {:?}", self.events);
            while self.flights.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, to, datagram) = self.flights.pop_front().expect("it was there");
                if !self.dead[to] {
                    self.ranks[to].handle_datagram(self.now, &datagram, &mut self.memory[to]);
                }
            }
        }
    }
}

/// A byte that tells who sends it to whom, and where in the block it is.
fn byte(from: u32, to: u32, at: u64) -> u8 {
    (u64::from(from) * 31 + u64::from(to) * 7 + at + at / 251) as u8
}

/// Buffers 0 and 1 of each rank for an exchange with these sizes, and the operation.
fn exchange(net: &mut Net, bytes: impl Fn(u32, u32) -> u64) -> Vec<Op> {
    let size = net.ranks.len() as u32;
    let layout = |me: u32, sizes: &dyn Fn(u32) -> u64| {
        let mut parts = Vec::new();
        let mut offset = u64::from(me % 3);
        for other in 0..size {
            parts.push(Part {
                offset,
                bytes: sizes(other),
            });
            offset += sizes(other);
        }
        (parts, offset)
    };
    (0..size)
        .map(|me| {
            let (send, sent) = layout(me, &|to| bytes(me, to));
            let (receive, received) = layout(me, &|from| bytes(from, me));
            let mut buffer = vec![0; sent as usize];
            for (to, part) in send.iter().enumerate() {
                for at in 0..part.bytes {
                    buffer[(part.offset + at) as usize] = byte(me, to as u32, at);
                }
            }
            net.memory[me as usize].0 = vec![buffer, vec![0; received as usize]];
            let side = |buffer, parts| Side {
                buffer: BufferId(buffer),
                layout: Layout::Parts(parts),
            };
            Op::AllToAll {
                among: Among::all(0),
                send: side(0, send),
                receive: side(1, receive),
            }
        })
        .collect()
}

fn check_received(net: &Net, ops: &[Op]) {
    for (me, op) in ops.iter().enumerate() {
        let Op::AllToAll {
            receive:
                Side {
                    layout: Layout::Parts(parts),
                    ..
                },
            ..
        } = op
        else {
            panic!("another operation");
        };
        for (from, part) in parts.iter().enumerate() {
            for at in 0..part.bytes {
                let found = net.memory[me].0[1][(part.offset + at) as usize];
                assert_eq!(
                    found,
                    byte(from as u32, me as u32, at),
                    "{from} to {me} at {at}"
                );
            }
        }
    }
}

fn assert_done(net: &Net) {
    for (rank, events) in net.events.iter().enumerate() {
        for event in events {
            assert!(
                matches!(event, Event::Done { .. }),
                "rank {rank}: {event:?}"
            );
        }
    }
}

fn run_exchange(size: u32, scheme: Scheme, loss: u64, bytes: impl Fn(u32, u32) -> u64) -> Net {
    let mut net = Net::new(size, scheme, loss, u64::from(size) + loss);
    let ops = exchange(&mut net, bytes);
    for (rank, op) in ops.iter().enumerate() {
        net.post(rank as u32, op.clone());
    }
    net.run(1, Micros::from_secs(20));
    assert_done(&net);
    check_received(&net, &ops);
    net
}

#[test]
fn blocks_of_all_lengths_come_whole() {
    for size in [1, 2, 3, 5, 8, 13] {
        for length in [0, 1, PACKET as u64, PACKET as u64 + 1, 20_000, 70_001] {
            run_exchange(size, Scheme::Default, 0, |_, _| length);
        }
        run_exchange(size, Scheme::Default, 0, |from, to| {
            u64::from(from * to) * 977 % 30_000
        });
    }
}

#[test]
fn blocks_come_whole_when_datagrams_are_lost() {
    for scheme in [
        Scheme::Default,
        Scheme::Published {
            active: Active::All,
        },
        Scheme::Published {
            active: Active::Given(3),
        },
        Scheme::Published {
            active: Active::Computed,
        },
        compared::BLIND,
        compared::BY_NUMBER,
        compared::RETRY,
        compared::LONGEST,
    ] {
        for length in [100, 5_000, 90_000] {
            run_exchange(7, scheme, 10, |_, _| length);
        }
        run_exchange(6, scheme, 30, |from, to| {
            u64::from(from * 3 + to) * 1_313 % 9_000
        });
    }
}

#[test]
fn nothing_is_kept_when_all_is_over() {
    let mut net = run_exchange(6, Scheme::Default, 5, |_, _| 9_000);
    let mut most = 1000;
    while most > 0 {
        most -= 1;
        net.send_all();
        net.now += FLIGHT;
        while let Some((_, to, datagram)) = net.flights.pop_front() {
            net.ranks[to].handle_datagram(net.now, &datagram, &mut net.memory[to]);
        }
    }
    for rank in &net.ranks {
        assert_eq!(rank.footprint(), Footprint::default());
        assert!(rank.is_drained());
    }
}

#[test]
fn who_is_ready_exchanges_with_who_is_ready() {
    let mut net = Net::new(8, Scheme::Default, 0, 1);
    let ops = exchange(&mut net, |_, _| 30_000);
    for rank in 1..8 {
        net.post(rank, ops[rank as usize].clone());
    }
    // Rank 0 comes 200 ms late; until then the others are done with each other.
    let late = Instant::from_micros(200_000);
    while net.now < late {
        net.send_all();
        net.now += FLIGHT;
        while net.flights.front().is_some_and(|(at, ..)| *at <= net.now) {
            let (_, to, datagram) = net.flights.pop_front().expect("it was there");
            net.ranks[to].handle_datagram(net.now, &datagram, &mut net.memory[to]);
        }
    }
    let received: u64 = net.ranks[1..]
        .iter()
        .map(|rank| rank.counters().packets_received)
        .sum();
    assert_eq!(received, 7 * 6 * 30_000_u64.div_ceil(PACKET as u64));
    net.post(0, ops[0].clone());
    net.run(1, Micros::from_secs(1));
    assert_done(&net);
    check_received(&net, &ops);
    assert!(net.now < late + Micros::from_millis(60), "{}", net.now);
}

#[test]
fn exchanges_follow_one_another() {
    let mut net = Net::new(5, Scheme::Default, 5, 9);
    let ops = exchange(&mut net, |from, _| u64::from(from) * 4_000);
    for round in 1..=6 {
        for (rank, op) in ops.iter().enumerate() {
            net.post(rank as u32, op.clone());
        }
        net.run(round, Micros::from_secs(10));
    }
    assert_done(&net);
    check_received(&net, &ops);
}

#[test]
fn a_barrier_is_done_when_all_have_reached_it() {
    for (size, loss) in [(1, 0), (2, 0), (3, 20), (8, 20), (13, 10)] {
        let mut net = Net::new(size, Scheme::Default, loss, 3);
        for rank in 1..size {
            net.post(
                rank,
                Op::Barrier {
                    among: Among::all(4),
                },
            );
        }
        for _ in 0..50 {
            net.send_all();
            net.now += FLIGHT;
            while let Some((_, to, datagram)) = net.flights.pop_front() {
                net.ranks[to].handle_datagram(net.now, &datagram, &mut net.memory[to]);
            }
        }
        assert!(net.events.iter().all(Vec::is_empty));
        net.post(
            0,
            Op::Barrier {
                among: Among::all(4),
            },
        );
        net.run(1, Micros::from_secs(5));
        for rank in 0..size {
            net.post(
                rank,
                Op::Barrier {
                    among: Among::all(4),
                },
            );
        }
        net.run(2, Micros::from_secs(5));
        assert_done(&net);
    }
}

#[test]
fn unequal_lengths_are_an_error() {
    for (sent, expected) in [
        (5_000, 6_000),
        (5_000, 0),
        (0, 5_000),
        (100, 200),
        (90_000, 100),
    ] {
        let mut net = Net::new(2, Scheme::Default, 0, 3);
        for memory in &mut net.memory {
            memory.0 = vec![vec![0; 100_000]; 2];
        }
        let side = |buffer, bytes: [u64; 2]| Side {
            buffer: BufferId(buffer),
            layout: Layout::Parts(
                bytes
                    .iter()
                    .map(|bytes| Part {
                        offset: 0,
                        bytes: *bytes,
                    })
                    .collect(),
            ),
        };
        net.post(
            0,
            Op::AllToAll {
                among: Among::all(0),
                send: side(0, [0, sent]),
                receive: side(1, [0, 100]),
            },
        );
        net.post(
            1,
            Op::AllToAll {
                among: Among::all(0),
                send: side(0, [100, 0]),
                receive: side(1, [expected, 0]),
            },
        );
        net.run(1, Micros::from_secs(5));
        // Who sends nothing has nothing to wait for and may be done before it hears of it.
        for rank in if sent == 0 { 1..2 } else { 0..2 } {
            let is_mismatch = matches!(
                net.events[rank][0],
                Event::Failed {
                    error: Error::SizeMismatch { .. },
                    ..
                }
            );
            assert!(is_mismatch, "{sent} {expected}: {:?}", net.events);
        }
    }
}

#[test]
fn every_rank_names_the_one_whose_blocks_have_another_length() {
    for (size, odd, loss) in [(5, 3, 0), (5, 0, 0), (8, 6, 3)] {
        for seed in 0..8 {
            let mut net = Net::new(size, Scheme::Default, loss, seed);
            for rank in 0..size {
                net.memory[rank as usize].0 = vec![vec![0; 100_000]; 2];
                let bytes = if rank == odd { 500 } else { 1_000 };
                let side = |buffer| Side {
                    buffer: BufferId(buffer),
                    layout: Layout::Equal { bytes },
                };
                let op = Op::AllToAll {
                    among: Among::all(0),
                    send: side(0),
                    receive: side(1),
                };
                net.post(rank, op);
            }
            net.run(1, Micros::from_secs(5));
            for (rank, events) in (0..).zip(&net.events) {
                let named = match events[0] {
                    Event::Failed {
                        error: Error::SizeMismatch { rank },
                        ..
                    } => rank,
                    event => panic!("rank {rank}: {event:?}"),
                };
                assert!(rank == odd || named == Rank(odd), "rank {rank}: {named}");
            }
        }
    }
}

#[test]
fn exchanges_begin_in_the_order_of_the_leaves_once_these_are_known() {
    let told = |leaf: Option<u32>| {
        let mut net = Net::new(8, compared::BLIND, 0, 1);
        net.memory[1].0 = vec![vec![0; 80_000]; 2];
        if let Some(leaf) = leaf {
            net.ranks[1].set_leaf(leaf);
        }
        let side = |buffer| Side {
            buffer: BufferId(buffer),
            layout: Layout::Equal { bytes: 10_000 },
        };
        let op = Op::AllToAll {
            among: Among::all(0),
            send: side(0),
            receive: side(1),
        };
        let now = net.now;
        net.ranks[1].post(now, op, &mut net.memory[1]).unwrap();
        let mut order = Vec::new();
        while let Some((to, packet)) = net.ranks[1].poll_packet(now, 1, &mut net.memory[1]) {
            if matches!(packet.body, Body::Data(_)) && order.last() != Some(&to.0) {
                order.push(to.0);
            }
        }
        order
    };
    let of = |leaf| {
        let order = rounds::Order::new(8, leaf);
        let targets = (0..8).map(|round| order.target(1, round));
        targets.filter(|to| *to != 1).collect::<Vec<u32>>()
    };
    assert_ne!(of(0), of(4));
    assert_eq!(told(None), of(0));
    assert_eq!(told(Some(4)), of(4));
}

#[test]
fn all_hear_of_a_rank_that_dies() {
    for late in [false, true] {
        let mut net = Net::new(9, Scheme::Default, 2, 5);
        let ops = exchange(&mut net, |_, _| 40_000);
        for (rank, op) in ops.iter().enumerate() {
            if rank != 4 || late {
                net.post(rank as u32, op.clone());
            }
        }
        net.send_all();
        net.dead[4] = true;
        net.run(1, Micros::from_secs(6));
        for (rank, events) in net.events.iter().enumerate().filter(|(rank, _)| *rank != 4) {
            let is_named = matches!(
                events[..],
                [Event::Failed {
                    error: Error::RankLost(Rank(4)),
                    ..
                }]
            );
            assert!(is_named, "rank {rank}: {events:?}");
        }
        let again = net.ranks[0].post(
            net.now,
            Op::Barrier {
                among: Among::all(0),
            },
            &mut net.memory[0],
        );
        assert_eq!(again, Err(PostError::Lost(Rank(4))));
    }
}

#[test]
fn who_waits_for_a_rank_that_ends_hears_at_once() {
    let mut net = Net::new(4, Scheme::Default, 0, 5);
    for rank in 0..3 {
        net.post(
            rank,
            Op::Barrier {
                among: Among::all(0),
            },
        );
    }
    net.send_all();
    net.ranks[3].leave(net.now, false);
    net.events[3].push(Event::Done {
        op: OpId(0),
        bytes: 0,
        peer: Rank(3),
        tag: 0,
    });
    net.run(1, Micros::from_secs(2));
    for rank in 0..3 {
        assert!(matches!(
            net.events[rank][0],
            Event::Failed {
                error: Error::RankLost(Rank(3)),
                ..
            }
        ));
    }
}

fn send(to: u32, tag: u32, buffer: u64, bytes: u64) -> Op {
    Op::Send {
        to: Rank(to),
        context: 0,
        tag,
        buffer: BufferId(buffer),
        bytes,
        is_synchronous: false,
    }
}

fn receive(from: u32, tag: u32, buffer: u64, capacity: u64) -> Op {
    Op::Receive {
        from: Some(Rank(from)),
        context: 0,
        tag: Some(tag),
        buffer: BufferId(buffer),
        capacity,
    }
}

#[test]
fn messages_are_matched_by_tag_and_in_order() {
    for loss in [0, 15] {
        let mut net = Net::new(2, Scheme::Default, loss, 11);
        let lengths = [0, 10, 1384, 1385, 60_000, 3];
        let mut rng = Rng::new(loss);
        for (number, length) in lengths.iter().enumerate() {
            let filled: Vec<u8> = (0..*length).map(|_| rng.next_u64() as u8).collect();
            assert_eq!(net.memory[0].0.len(), number);
            net.memory[0].0.push(filled);
            net.memory[1].0.push(vec![0; 70_000]);
        }
        // Half is posted before anything is sent, in another order of tags; two have the same tag.
        for number in [5, 1, 3] {
            net.post(1, receive(0, number as u32 % 4, number, 70_000));
        }
        for (number, length) in lengths.iter().enumerate() {
            net.post(0, send(1, number as u32 % 4, number as u64, *length));
        }
        net.send_all();
        for number in [0, 4, 2] {
            net.post(1, receive(0, number as u32 % 4, number, 70_000));
        }
        net.run(lengths.len(), Micros::from_secs(10));
        assert_done(&net);
        // Tags: 0: messages 0 and 4; 1: 1 and 5 (received into 5 first); 2: 2; 3: 3.
        for (sent, received) in [(0, 0), (4, 4), (1, 5), (5, 1), (2, 2), (3, 3)] {
            let sent = net.memory[0].0[sent].clone();
            assert_eq!(net.memory[1].0[received][..sent.len()], sent[..]);
        }
    }
}

#[test]
fn many_messages_nobody_waits_for_are_bounded_and_come_in_the_end() {
    let mut net = Net::new(2, Scheme::Default, 10, 2);
    net.memory[0].0 = (0..200).map(|number| vec![number as u8; 500]).collect();
    net.memory[1].0 = vec![vec![0; 500]; 200];
    for number in 0..200 {
        net.post(0, send(1, 7, number, 500));
    }
    for _ in 0..3000 {
        net.send_all();
        net.now += FLIGHT;
        while let Some((_, to, datagram)) = net.flights.pop_front() {
            net.ranks[to].handle_datagram(net.now, &datagram, &mut net.memory[to]);
        }
        for rank in &net.ranks {
            assert!(rank.footprint().eager_bytes <= 2 * 8192);
        }
    }
    for number in 0..200 {
        net.post(1, receive(0, 7, number, 500));
    }
    net.run(200, Micros::from_secs(30));
    assert_done(&net);
    for number in 0..200 {
        assert_eq!(net.memory[1].0[number], vec![number as u8; 500]);
    }
}

#[test]
fn a_message_to_oneself_needs_no_network() {
    let mut net = Net::new(1, Scheme::Default, 0, 2);
    net.memory[0].0 = vec![vec![1; 90_000], vec![2; 50], vec![0; 90_000], vec![0; 50]];
    net.post(0, send(0, 1, 0, 90_000));
    net.post(0, receive(0, 2, 3, 50));
    net.post(0, send(0, 2, 1, 50));
    net.post(0, receive(0, 1, 2, 90_000));
    net.run(4, Micros::from_secs(1));
    assert_done(&net);
    assert_eq!(net.memory[0].0[2], vec![1; 90_000]);
    assert_eq!(net.memory[0].0[3], vec![2; 50]);
}

#[test]
fn a_message_that_is_too_long_is_an_error_of_its_receive() {
    for bytes in [100, 9_000] {
        let mut net = Net::new(2, Scheme::Default, 0, 2);
        net.memory[0].0 = vec![vec![1; bytes as usize]];
        net.memory[1].0 = vec![vec![0; 50]];
        net.post(0, send(1, 1, 0, bytes));
        net.post(1, receive(0, 1, 0, 50));
        net.run(1, Micros::from_secs(1));
        assert!(matches!(net.events[0][0], Event::Done { .. }));
        assert_eq!(
            net.events[1][0],
            Event::Failed {
                op: OpId(0),
                error: Error::Truncated {
                    sent: bytes,
                    from: Rank(0),
                    tag: 1
                }
            }
        );
    }
}

#[test]
fn who_sends_to_a_dead_rank_hears_of_it() {
    let mut net = Net::new(3, Scheme::Default, 0, 2);
    net.memory[0].0 = vec![vec![1; 9_000]];
    net.memory[2].0 = vec![vec![0; 9_000]];
    net.dead[1] = true;
    net.post(0, send(1, 1, 0, 9_000));
    net.post(2, receive(1, 1, 0, 9_000));
    net.run(1, Micros::from_secs(6));
    for rank in [0, 2] {
        let error = Error::RankLost(Rank(1));
        assert_eq!(net.events[rank][0], Event::Failed { op: OpId(0), error });
    }
}

#[test]
fn memory_that_is_gone_ends_the_operation_on_both_sides() {
    let mut net = Net::new(2, Scheme::Default, 0, 2);
    net.memory[0].0 = vec![vec![1; 50_000], vec![0; 50_000]];
    net.memory[1].0 = vec![vec![1; 50_000], vec![0; 50_000]];
    let side = |buffer| Side {
        buffer: BufferId(buffer),
        layout: Layout::Equal { bytes: 25_000 },
    };
    for rank in [0, 1] {
        net.post(
            rank,
            Op::AllToAll {
                among: Among::all(0),
                send: side(0),
                receive: side(1),
            },
        );
    }
    net.memory[0].0[0].clear();
    net.run(1, Micros::from_secs(5));
    assert!(matches!(
        net.events[0][0],
        Event::Failed {
            error: Error::Gone,
            ..
        }
    ));
    assert!(matches!(net.events[1][0], Event::Failed { .. }));
}

#[test]
fn a_pull_that_is_said_twice_is_served_once() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    let op = exchange(&mut net, |_, _| 64_000).remove(0);
    net.post(0, op);
    let now = Instant::from_micros(10_000);
    let (endpoint, memory) = (&mut net.ranks[0], &mut net.memory[0]);
    let mut sent = |serial, packets| {
        let pull = message::Pull {
            serial,
            first: 0,
            packets,
            tell: true,
        };
        let block = message::BlockId::Exchange(0, 0);
        let body = Body::Control(vec![message::Item::Pull { block, pull }]);
        let from = Rank(1);
        endpoint.handle_packet(now, Packet { from, body }, None, memory);
        let all = core::iter::from_fn(|| endpoint.poll_packet(now, 64, memory));
        let data = all.filter_map(|(_, packet)| match packet.body {
            Body::Data(data) => Some(data.packets.count_ones()),
            _ => None,
        });
        data.sum::<u32>()
    };
    // The first ones went unasked.
    let unasked = sent(1, 0);
    assert!(unasked > 0);
    assert_eq!(
        (sent(2, 0b1111), sent(2, 0b1111), sent(1, 0b1111)),
        (4, 0, 0)
    );
    assert_eq!(sent(3, 0b1), 1);
}
