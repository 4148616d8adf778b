//! Operations that do not come to a good end: taken back, without their memory, without room, of a
//! rank that is gone. And receives from anybody.

use super::*;

impl Net {
    /// Goes on for so long, whatever happens; gives how often anybody had to look.
    pub(super) fn go_on(&mut self, time: Micros) -> u32 {
        let end = self.now + time;
        let mut looks = 0;
        loop {
            self.send_all();
            let living = self
                .ranks
                .iter()
                .zip(&self.dead)
                .filter(|(_, dead)| !**dead);
            let timers = living.filter_map(|(rank, _)| rank.poll_timeout());
            let arrival = self.flights.front().map(|(at, ..)| *at);
            let next = timers.chain(arrival).min().unwrap_or(Instant::FAR_FUTURE);
            looks += 1;
            self.now = next.max(self.now + Micros(1));
            if self.now >= end {
                self.now = end;
                return looks;
            }
            while self.flights.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, to, datagram) = self.flights.pop_front().expect("it was there");
                if !self.dead[to] {
                    self.ranks[to].handle_datagram(self.now, &datagram, &mut self.memory[to]);
                }
            }
        }
    }

    fn cancel(&mut self, rank: u32, op: OpId) {
        let rank = rank as usize;
        self.ranks[rank].cancel(self.now, op, &mut self.memory[rank]);
    }

    pub(super) fn check_nothing_is_kept(&mut self) {
        self.go_on(Micros::from_secs(2));
        for (rank, endpoint) in self.ranks.iter().enumerate() {
            assert_eq!(endpoint.footprint(), Footprint::default(), "rank {rank}");
        }
    }
}

pub(super) fn failed(op: OpId, error: Error) -> Event {
    Event::Failed { op, error }
}

fn is_done(event: &Event) -> bool {
    matches!(event, Event::Done { .. })
}

/// Two ranks with a buffer of so many bytes for each number below 200; those of rank 0 are told
/// apart.
pub(super) fn pair(bytes: usize, loss: u64) -> Net {
    let mut net = Net::new(2, Scheme::Default, loss, 7);
    net.memory[0].0 = (0..200)
        .map(|number| vec![number as u8 + 1; bytes])
        .collect();
    net.memory[1].0 = vec![vec![0; bytes]; 200];
    net
}

#[test]
fn who_receives_what_is_taken_back_hears_of_it_though_that_is_lost() {
    let mut net = pair(500_000, 0);
    let send_op = net.post(0, send(1, 1, 0, 500_000));
    let receive_op = net.post(1, receive(0, 1, 0, 500_000));
    net.go_on(Micros(400));
    net.cancel(0, send_op);
    net.send_all();
    // All that is said now is lost.
    net.flights.clear();
    net.go_on(Micros::from_secs(1));
    assert_eq!(
        net.events[1],
        [failed(receive_op, Error::Withdrawn(Rank(0)))]
    );
    assert_eq!(net.events[0], []);
    net.check_nothing_is_kept();
}

#[test]
fn what_is_taken_back_before_it_is_known_is_passed_over() {
    for (bytes, loss, known) in [
        (5_000, 0, false),
        (5_000, 0, true),
        (5_000, 30, true),
        (100, 30, false),
    ] {
        {
            let mut net = pair(bytes as usize, loss);
            // With copies of others in the way this one stays in its memory.
            for number in 10..100 {
                net.post(0, send(1, 2, number, 500.min(bytes)));
            }
            let first = net.post(0, send(1, 1, 0, bytes));
            net.post(0, send(1, 1, 1, bytes));
            if known {
                net.go_on(Micros::from_millis(50));
            }
            net.cancel(0, first);
            net.go_on(Micros::from_secs(2));
            net.post(1, receive(0, 1, 0, bytes));
            for number in 10..100 {
                net.post(1, receive(0, 2, number, bytes));
            }
            net.events[0].clear();
            net.go_on(Micros::from_secs(4));
            assert_eq!(net.events[1].len(), 91, "{bytes} {loss} {known}");
            assert!(net.events[1].iter().all(is_done));
            assert_eq!(net.memory[1].0[0], vec![2; bytes as usize]);
            net.check_nothing_is_kept();
        }
    }
}

#[test]
fn only_so_many_can_be_taken_back_before_it_is_known() {
    let mut net = pair(5_000, 0);
    let mut posted = 0;
    while let Ok(op) = net.ranks[0].post(net.now, send(1, 1, 0, 5_000), &mut net.memory[0]) {
        net.cancel(0, op);
        posted += 1;
    }
    assert_eq!(posted, tagged::MAX_WITHDRAWN);
    net.go_on(Micros::from_secs(3));
    net.post(0, send(1, 1, 1, 5_000));
    net.post(1, receive(0, 1, 1, 5_000));
    net.run(1, Micros::from_secs(1));
    assert_done(&net);
    net.check_nothing_is_kept();
}

#[test]
fn a_message_whose_memory_is_gone_is_not_delivered_as_zeros() {
    for loss in [0, 20] {
        let mut net = pair(700, loss);
        for number in 0..20 {
            net.post(0, send(1, 1, number, 700));
        }
        // More than there is room to copy: it is read when it leaves.
        let op = net.post(0, send(1, 2, 100, 700));
        net.post(0, send(1, 2, 101, 700));
        net.memory[0].0[100].clear();
        let lost = net.post(1, receive(0, 2, 100, 700));
        net.post(1, receive(0, 2, 101, 700));
        for number in 0..20 {
            net.post(1, receive(0, 1, number, 700));
        }
        net.go_on(Micros::from_secs(4));
        assert!(net.events[0].contains(&failed(op, Error::Gone)));
        let is_told = net.events[1].contains(&failed(lost, Error::Withdrawn(Rank(0))));
        assert!(is_told, "{:?}", net.events[1]);
        assert_eq!(
            net.events[1].iter().filter(|event| is_done(event)).count(),
            21
        );
        assert_eq!(net.memory[1].0[101], vec![102; 700]);
        net.check_nothing_is_kept();
    }
}

#[test]
fn messages_that_nobody_receives_do_not_hold_up_those_behind_them() {
    for loss in [0, 10] {
        let mut net = pair(1_000, loss);
        for number in 0..100 {
            net.post(0, send(1, 1, number, 1_000));
        }
        net.post(0, send(1, 2, 150, 1_000));
        net.go_on(Micros::from_millis(500));
        // The program receives the last one first, and waits for it.
        net.post(1, receive(0, 2, 150, 1_000));
        net.go_on(Micros::from_secs(2));
        assert_eq!(net.events[1].len(), 1, "loss {loss}");
        for number in 0..100 {
            net.post(1, receive(0, 1, number, 1_000));
        }
        net.go_on(Micros::from_secs(4));
        assert_eq!(net.events[1].len(), 101);
        for number in (0..100).chain([150]) {
            assert_eq!(net.memory[1].0[number], vec![number as u8 + 1; 1_000]);
        }
        net.check_nothing_is_kept();
    }
}

#[test]
fn a_barrier_that_was_taken_back_is_not_reached() {
    let mut net = Net::new(3, Scheme::Default, 0, 1);
    for _ in 0..100 {
        let op = net.post(
            1,
            Op::Barrier {
                among: Among::all(0),
            },
        );
        net.go_on(Micros(300));
        net.cancel(1, op);
    }
    for _ in 0..100 {
        net.post(
            0,
            Op::Barrier {
                among: Among::all(0),
            },
        );
        net.post(
            2,
            Op::Barrier {
                among: Among::all(0),
            },
        );
    }
    net.go_on(Micros::from_secs(2));
    // Rank 1 had said that it came, and said no more: rank 2 may be through, rank 0 cannot be.
    let told = |event: &Event| {
        let error = Error::Withdrawn(Rank(1));
        matches!(event, Event::Failed { error: found, .. } if *found == error)
    };
    assert_eq!((net.events[0].len(), net.events[2].len()), (100, 100));
    assert!(net.events[0].iter().all(told), "{:?}", net.events[0]);
    // Another context is as good as new.
    for rank in 0..3 {
        net.events[rank as usize].clear();
        net.post(
            rank,
            Op::Barrier {
                among: Among::all(1),
            },
        );
    }
    net.run(1, Micros::from_secs(1));
    assert_done(&net);
}

#[test]
fn exchanges_that_were_taken_back_are_all_remembered() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    let ops = exchange(&mut net, |_, _| 30_000);
    for _ in 0..50 {
        let op = net.post(1, ops[1].clone());
        net.cancel(1, op);
    }
    net.go_on(Micros::from_secs(1));
    for _ in 0..50 {
        net.post(0, ops[0].clone());
    }
    net.go_on(Micros::from_secs(4));
    assert_eq!(net.events[0].len(), 50);
    let error = Error::Withdrawn(Rank(1));
    let told =
        |event: &Event| matches!(event, Event::Failed { error: found, .. } if *found == error);
    assert!(net.events[0].iter().all(told), "{:?}", net.events[0]);
}

#[test]
fn an_exchange_that_failed_everywhere_is_not_talked_about_any_more() {
    for seed in 0..24 {
        let bytes = [1_000, 9_000, 100_000][seed as usize % 3];
        let mut net = Net::new(4, Scheme::Default, 0, seed);
        for rank in 0..4 {
            net.memory[rank].0 = vec![vec![0; 400_000]; 2];
        }
        for rank in 0..4 {
            let side = |buffer| Side {
                buffer: BufferId(buffer),
                layout: Layout::Equal {
                    bytes: if rank == 3 { bytes / 2 } else { bytes },
                },
            };
            let (send, receive) = (side(0), side(1));
            net.post(
                rank,
                Op::AllToAll {
                    among: Among::all(0),
                    send,
                    receive,
                },
            );
            let pause = Micros(net.rng.below(200));
            net.go_on(pause);
        }
        net.go_on(Micros::from_secs(1));
        for (rank, events) in net.events.iter().enumerate() {
            let is_told = matches!(
                events[..],
                [Event::Failed {
                    error: Error::SizeMismatch { .. },
                    ..
                }]
            );
            assert!(is_told, "rank {rank}: {events:?}");
        }
        let said = |net: &Net| -> u64 {
            let all = net.ranks.iter();
            all.map(|rank| rank.counters().control_sent).sum()
        };
        let before = said(&net);
        net.go_on(Micros::from_secs(1));
        let more = said(&net) - before;
        assert!(
            more == 0 && net.flights.is_empty(),
            "{more} datagrams more, {} under way: {bytes} bytes, seed {seed}",
            net.flights.len()
        );
        let now = net.now;
        net.ranks.iter_mut().for_each(|rank| rank.leave(now, false));
        net.go_on(Micros::from_millis(200));
        assert!(net.ranks.iter().all(|rank| rank.is_drained()));
    }
}

#[test]
fn who_needs_a_rank_that_sits_out_hears_why_and_the_next_exchange_is_as_good_as_any() {
    let fault = Rank(3);
    for error in [
        Error::SizeMismatch { rank: fault },
        Error::Withdrawn(fault),
        Error::RankLost(fault),
    ] {
        let mut net = Net::new(4, Scheme::Default, 0, 1);
        let ops = exchange(&mut net, |_, _| 30_000);
        // Rank 0 has said that it is ready before, the others do so afterwards.
        net.post(0, ops[0].clone());
        net.go_on(Micros::from_millis(20));
        net.ranks[1].sit_out(&Among::all(0), error).unwrap();
        net.go_on(Micros(150));
        assert_eq!(net.events[0], [failed(OpId(0), error)]);
        net.post(2, ops[2].clone());
        net.go_on(Micros::from_millis(50));
        assert_eq!(net.events[2], [failed(OpId(0), error)]);
        // Who is at fault in the eyes of another sees the fault in that one, and is itself not
        // lost.
        net.post(3, ops[3].clone());
        net.go_on(Micros::from_millis(50));
        let is_other = match net.events[3][..] {
            [Event::Failed { error: found, .. }] => match found {
                Error::SizeMismatch { rank } => rank != fault && error != Error::RankLost(fault),
                Error::Withdrawn(rank) => rank != fault,
                _ => false,
            },
            _ => false,
        };
        assert!(is_other, "{error:?}: {:?}", net.events[3]);
        for rank in 0..4 {
            net.events[rank as usize].clear();
            net.post(rank, ops[rank as usize].clone());
        }
        net.run(1, Micros::from_secs(1));
        assert_done(&net);
        check_received(&net, &ops);
    }
    let mut net = Net::new(3, Scheme::Default, 0, 1);
    let mut sit_out = |among: &Among, error| net.ranks[0].sit_out(among, error);
    let nobody = Error::Withdrawn(Rank(3));
    assert_eq!(sit_out(&Among::all(0), nobody), Err(PostError::BadRank));
    assert_eq!(
        sit_out(&Among::all(0), Error::Gone),
        Err(PostError::BadRank)
    );
    let error = Error::Withdrawn(Rank(0));
    assert_eq!(
        sit_out(&Among::all(MAX_CONTEXTS), error),
        Err(PostError::BadContext)
    );
}

#[test]
fn a_fault_of_a_rank_that_the_job_does_not_have_is_passed_over() {
    let mut net = Net::new(2, Scheme::Default, 0, 1);
    let ops = exchange(&mut net, |_, _| 30_000);
    net.post(0, ops[0].clone());
    let fault = message::Item::Fault {
        context: 0,
        number: 0,
        rank: Rank(2),
        why: message::Why::Withdrawn,
        bytes: None,
    };
    let packet = Packet {
        from: Rank(1),
        body: Body::Control(vec![fault]),
    };
    let now = net.now;
    net.ranks[0].handle_packet(now, packet, None, &mut net.memory[0]);
    assert_eq!(net.ranks[0].counters().bad, 1);
    net.post(1, ops[1].clone());
    net.run(1, Micros::from_secs(1));
    assert_done(&net);
}

#[test]
fn an_order_of_leaves_is_taken_where_they_divide_the_ranks() {
    let mut net = Net::new(8, Scheme::Default, 0, 1);
    let rank = &mut net.ranks[0];
    assert!(!rank.set_leaf(3) && rank.leaf().is_none());
    assert!(rank.set_leaf(4) && rank.leaf() == Some(4));
    assert!(!rank.set_leaf(4) && rank.leaf() == Some(4));
    assert!(rank.set_leaf(8) && rank.leaf().is_none());
}

#[test]
fn a_program_that_has_ended_waits_for_acknowledgements_without_looking_all_the_time() {
    let mut net = pair(1_000, 0);
    net.post(0, send(1, 1, 0, 1_000));
    net.dead[1] = true;
    net.go_on(Micros::from_millis(1));
    net.ranks[0].leave(net.now, false);
    let looks = net.go_on(Micros::from_secs(2));
    assert!(!net.ranks[0].is_drained());
    assert!(looks < 200, "{looks} looks");
}

#[test]
fn a_sender_that_falls_silent_is_not_waited_for_in_a_busy_loop() {
    let mut net = pair(900_000, 0);
    net.post(0, send(1, 1, 0, 900_000));
    net.post(1, receive(0, 1, 0, 900_000));
    net.go_on(Micros(600));
    net.dead[0] = true;
    let looks = net.go_on(Micros::from_secs(3));
    assert!(looks < 500, "{looks} looks");
    let mut late = Net::new(4, Scheme::Default, 0, 3);
    let ops = exchange(&mut late, |_, _| 200_000);
    for rank in 0..4 {
        late.post(rank, ops[rank as usize].clone());
    }
    late.go_on(Micros(900));
    late.dead[3] = true;
    let looks = late.go_on(Micros::from_secs(3));
    assert!(looks < 20_000, "{looks} looks");
}

#[test]
fn messages_sent_before_the_end_are_received_though_others_were_outstanding() {
    let mut net = pair(5_000, 0);
    net.post(0, send(1, 1, 0, 5_000));
    net.post(0, send(1, 2, 1, 100));
    let lost = net.post(1, receive(0, 1, 0, 5_000));
    net.post(1, receive(0, 2, 1, 5_000));
    net.post(
        1,
        Op::Barrier {
            among: Among::all(0),
        },
    );
    net.ranks[0].leave(net.now, false);
    net.go_on(Micros::from_secs(3));
    assert!(net.events[1].contains(&Event::Done {
        op: OpId(1),
        bytes: 100,
        peer: Rank(0),
        tag: 2
    }));
    let ended = |event: &&Event| matches!(event, Event::Failed { .. });
    assert_eq!(
        net.events[1].iter().filter(ended).count(),
        2,
        "{:?}",
        net.events[1]
    );
    assert!(
        net.events[1]
            .iter()
            .any(|event| matches!(event, Event::Failed { op, .. } if *op == lost))
    );
}

#[test]
fn a_rank_that_has_done_its_part_may_end() {
    // Blocks from ranks 1 and 2 to rank 0 only, and rank 2 is late.
    let mut net = Net::new(3, Scheme::Default, 0, 1);
    let ops = exchange(&mut net, |_, to| if to == 0 { 9_000 } else { 0 });
    net.post(0, ops[0].clone());
    net.post(1, ops[1].clone());
    net.go_on(Micros::from_millis(100));
    assert_eq!(net.events[1].len(), 1);
    net.ranks[1].leave(net.now, false);
    // Somebody asks whether it is there.
    net.ranks[0].fail(net.now, Rank(1));
    net.go_on(Micros::from_millis(100));
    assert_eq!(net.events[0], []);
    net.post(2, ops[2].clone());
    net.go_on(Micros::from_millis(300));
    assert!(
        net.events[0].iter().all(is_done) && net.events[0].len() == 1,
        "{:?}",
        net.events
    );
    check_received(&net, &ops[..1]);
    // What needs it cannot be any more.
    let barrier = net.ranks[0].post(
        net.now,
        Op::Barrier {
            among: Among::all(0),
        },
        &mut net.memory[0],
    );
    assert_eq!(barrier, Err(PostError::Lost(Rank(1))));
}

#[test]
fn the_first_rank_that_is_lost_is_named_though_others_end_because_of_it() {
    let mut net = Net::new(4, Scheme::Default, 0, 1);
    for rank in [0, 2] {
        net.post(
            rank,
            Op::Barrier {
                among: Among::all(0),
            },
        );
    }
    net.ranks[3].leave(net.now, false);
    // Rank 1 hears of nothing yet.
    net.dead[1] = true;
    net.go_on(Micros::from_millis(2_900));
    net.dead[1] = false;
    for rank in [0, 2] {
        let error = Error::RankLost(Rank(3));
        assert_eq!(net.events[rank], [failed(OpId(0), error)], "rank {rank}");
        net.ranks[rank].leave(net.now, false);
    }
    // Who comes late asks one that ended because of it.
    net.dead[3] = true;
    net.post(
        1,
        Op::Barrier {
            among: Among::all(0),
        },
    );
    net.go_on(Micros::from_secs(1));
    let named = |event: &Event| {
        matches!(
            event,
            Event::Failed {
                error: Error::RankLost(Rank(3)),
                ..
            }
        )
    };
    assert!(
        net.events[1].len() == 1 && named(&net.events[1][0]),
        "{:?}",
        net.events[1]
    );
}

/// Memory that counts what is read of it.
struct Counted(Buffers, u64);

impl Memory for Counted {
    fn read(&mut self, buffer: BufferId, offset: u64, out: &mut [u8]) -> Result<(), Gone> {
        self.1 += out.len() as u64;
        self.0.read(buffer, offset, out)
    }

    fn write(&mut self, buffer: BufferId, offset: u64, bytes: &[u8]) -> Result<(), Gone> {
        self.0.write(buffer, offset, bytes)
    }
}

#[test]
fn what_a_rank_sends_to_itself_is_copied_in_pieces() {
    const LONG: u64 = 1_000_000;
    const PIECE: u64 = 64 << 10;
    let mut net = Net::new(1, Scheme::Default, 0, 1);
    let mut endpoint = net.ranks.remove(0);
    let buffers = vec![
        vec![3; LONG as usize],
        vec![0; LONG as usize],
        vec![0; LONG as usize],
    ];
    let mut memory = Counted(Buffers(buffers), 0);
    let side = |buffer| Side {
        buffer: BufferId(buffer),
        layout: Layout::Equal { bytes: LONG },
    };
    let whole = Op::AllToAll {
        among: Among::all(0),
        send: side(0),
        receive: side(1),
    };
    let mut out = [0; crate::MAX_DATAGRAM];
    for op in [whole, send(0, 1, 0, LONG), receive(0, 1, 2, LONG)] {
        memory.1 = 0;
        endpoint
            .post(Instant::ZERO, op, &mut memory)
            .expect("it is taken");
        assert!(memory.1 <= PIECE, "{} bytes in one call", memory.1);
    }
    let mut events = Vec::new();
    for _ in 0..2 * LONG / PIECE + 4 {
        memory.1 = 0;
        assert_eq!(
            endpoint.poll_transmit(Instant::ZERO, &mut out, &mut memory),
            None
        );
        assert!(memory.1 <= PIECE, "{} bytes in one call", memory.1);
        events.extend(core::iter::from_fn(|| endpoint.poll_event()));
    }
    assert!(
        events.len() == 3 && events.iter().all(is_done),
        "{events:?}"
    );
    assert!(memory.0.0[1] == memory.0.0[0] && memory.0.0[2] == memory.0.0[0]);
    assert_eq!(endpoint.footprint(), Footprint::default());
}

#[test]
fn a_copy_that_is_cancelled_touches_nothing_more() {
    for cancelled in [0, 1] {
        let mut net = Net::new(1, Scheme::Default, 0, 1);
        net.memory[0].0 = vec![vec![3; 500_000], vec![0; 500_000]];
        let ops = [
            net.post(0, send(0, 1, 0, 500_000)),
            net.post(0, receive(0, 1, 1, 500_000)),
        ];
        net.cancel(0, ops[cancelled]);
        net.memory[0].0 = Vec::new();
        net.go_on(Micros::from_secs(1));
        let expected = match cancelled {
            0 => failed(ops[1], Error::Withdrawn(Rank(0))),
            _ => Event::Done {
                op: ops[0],
                bytes: 500_000,
                peer: Rank(0),
                tag: 1,
            },
        };
        assert_eq!(net.events[0], [expected]);
        assert_eq!(net.ranks[0].footprint(), Footprint::default());
    }
}

fn from_any(tag: Option<u32>, buffer: u64) -> Op {
    Op::Receive {
        from: None,
        context: 0,
        tag,
        buffer: BufferId(buffer),
        capacity: 5_000,
    }
}

#[test]
fn a_receive_may_take_any_sender_and_any_tag() {
    for loss in [0, 15] {
        let mut net = Net::new(4, Scheme::Default, loss, 9);
        for rank in 0..4 {
            net.memory[rank].0 = vec![vec![rank as u8; 5_000]; 12];
        }
        // One is posted before anything comes, in front of one that names its sender; the others
        // find what is there.
        let first = net.post(0, from_any(Some(7), 0));
        let named = net.post(0, receive(2, 7, 1, 5_000));
        net.post(2, send(0, 7, 0, 100));
        net.post(2, send(0, 7, 0, 200));
        net.go_on(Micros::from_secs(1));
        let done = |op, bytes, peer, tag| Event::Done {
            op,
            bytes,
            peer: Rank(peer),
            tag,
        };
        assert_eq!(
            net.events[0],
            [done(first, 100, 2, 7), done(named, 200, 2, 7)]
        );
        net.post(3, send(0, 30, 0, 5_000));
        net.go_on(Micros::from_millis(300));
        net.post(1, send(0, 10, 0, 10));
        net.post(0, send(0, 11, 11, 20));
        net.go_on(Micros::from_millis(300));
        net.events[0].clear();
        let ops: Vec<OpId> = (2..5)
            .map(|buffer| net.post(0, from_any(None, buffer)))
            .collect();
        net.go_on(Micros::from_secs(2));
        let mut found = net.events[0].clone();
        found.retain(|event| !matches!(event, Event::Done { op, .. } if !ops.contains(op)));
        found.sort_by_key(|event| match event {
            Event::Done { op, .. } | Event::Failed { op, .. } => *op,
        });
        let peers: Vec<u32> = found
            .iter()
            .map(|event| match event {
                Event::Done { peer, .. } => peer.0,
                Event::Failed { .. } => panic!("{event:?}"),
            })
            .collect();
        // In the order in which they came.
        assert_eq!(peers[0], 3, "{found:?}");
        assert_eq!(found.len(), 3);
        assert_eq!(net.memory[0].0[2][0], 3);
        // It fails for each rank that is lost, once.
        net.events[0].clear();
        let last = net.post(0, from_any(None, 5));
        net.dead[1] = true;
        net.go_on(Micros::from_secs(6));
        assert_eq!(net.events[0], [failed(last, Error::RankLost(Rank(1)))]);
        net.events[0].clear();
        let again = net.post(0, from_any(None, 5));
        net.post(2, send(0, 7, 0, 100));
        net.go_on(Micros::from_secs(1));
        assert_eq!(net.events[0], [done(again, 100, 2, 7)]);
        let now = net.now;
        for rank in [2, 3] {
            let memory = &mut net.memory[0];
            net.ranks[0].fail(now, Rank(rank));
            for _ in 0..2 {
                let found = net.ranks[0].post(now, from_any(None, 5), memory);
                match found {
                    Err(error) => assert!(matches!(error, PostError::Lost(_))),
                    // The second time; but for the last rank there is nobody left.
                    Ok(op) => {
                        assert_eq!(rank, 2);
                        net.ranks[0].cancel(now, op, memory);
                    }
                }
            }
        }
        let nobody = net.ranks[0].post(now, from_any(None, 5), &mut net.memory[0]);
        assert!(matches!(nobody, Err(PostError::Lost(_))));
    }
}

#[test]
fn a_receive_behind_more_messages_than_have_room_is_known_to_be_stuck() {
    const SENDERS: u32 = 13;
    let mut net = Net::new(SENDERS + 2, Scheme::Default, 0, 3);
    net.memory[0].0 = vec![vec![0; 5_000]];
    let wanted = net.post(0, receive(1, 8, 0, 5_000));
    let other = net.post(0, receive(SENDERS + 1, 8, 0, 5_000));
    assert!(!net.ranks[0].is_stuck(wanted));
    for rank in 1..=SENDERS {
        net.memory[rank as usize].0 = vec![vec![1; 5_000]];
        // 128 are copied, the others are outstanding.
        for _ in 0..360 {
            net.post(rank, send(0, 7, 0, 0));
        }
        net.post(rank, send(0, 8, 0, 5_000));
    }
    net.go_on(Micros::from_secs(3));
    assert!(net.events[0].is_empty(), "{:?}", net.events[0]);
    assert!(net.ranks[0].is_stuck(wanted) && !net.ranks[0].is_stuck(other));
    assert!(net.ranks[0].is_full() && !net.ranks[1].is_full());
    // Once some are received it comes.
    for _ in 0..360 {
        net.post(0, receive(1, 7, 0, 0));
        net.go_on(Micros::from_millis(2));
    }
    net.go_on(Micros::from_secs(2));
    assert!(!net.ranks[0].is_stuck(wanted));
    let is_wanted =
        |event: &Event| matches!(event, Event::Done { op, bytes: 5_000, .. } if *op == wanted);
    assert!(net.events[0].iter().any(is_wanted));
}
