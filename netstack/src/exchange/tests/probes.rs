//! Probes: what they find and what they leave, messages that are claimed, and many operations at
//! once.

use super::endings::{failed, pair};
use super::*;

fn probe(from: Option<u32>, tag: Option<u32>, claims: bool, waits: bool) -> Op {
    Op::Probe {
        from: from.map(Rank),
        context: 0,
        tag,
        claims,
        waits,
    }
}

fn take(claim: OpId, buffer: u64) -> Op {
    Op::ReceiveClaimed {
        claim,
        buffer: BufferId(buffer),
        capacity: 60_000,
    }
}

fn done(op: OpId, bytes: u64, peer: u32, tag: u32) -> Event {
    Event::Done {
        op,
        bytes,
        peer: Rank(peer),
        tag,
    }
}

fn try_post(net: &mut Net, rank: usize, op: Op) -> Result<OpId, PostError> {
    net.ranks[rank].post(net.now, op, &mut net.memory[rank])
}

#[test]
fn a_probe_finds_what_a_receive_would_take_and_leaves_it() {
    for loss in [0, 15] {
        for bytes in [0, 700, 60_000] {
            let mut net = pair(60_000, loss);
            let none = try_post(&mut net, 1, probe(Some(0), Some(4), false, false));
            assert_eq!(none, Err(PostError::NoMessage));
            let ours = net.post(1, probe(None, Some(4), false, true));
            let other = net.post(1, probe(Some(0), Some(5), false, true));
            // What a posted receive takes no probe sees.
            let received = net.post(1, receive(0, 4, 1, 60_000));
            net.post(0, send(1, 4, 0, bytes));
            net.go_on(Micros::from_secs(1));
            assert_eq!(
                net.events[1],
                [done(received, bytes, 0, 4)],
                "{bytes} bytes"
            );
            net.post(0, send(1, 4, 0, bytes));
            net.go_on(Micros::from_secs(1));
            assert_eq!(net.events[1][1..], [done(ours, bytes, 0, 4)]);
            let again = net.post(1, probe(Some(0), None, false, false));
            let received = net.post(1, receive(0, 4, 1, 60_000));
            net.go_on(Micros::from_secs(1));
            let both = [done(again, bytes, 0, 4), done(received, bytes, 0, 4)];
            assert_eq!(net.events[1][2..], both);
            let none = try_post(&mut net, 1, probe(None, None, false, false));
            assert_eq!(none, Err(PostError::NoMessage));
            let (now, memory) = (net.now, &mut net.memory[1]);
            net.ranks[1].cancel(now, other, memory);
            net.check_nothing_is_kept();
        }
    }
}

#[test]
fn a_claimed_message_is_for_its_receive_alone() {
    for loss in [0, 15] {
        for bytes in [0, 700, 60_000] {
            let mut net = pair(60_000, loss);
            let waiting = net.post(1, probe(Some(0), None, true, true));
            for tag in [4, 4, 6] {
                net.post(0, send(1, tag, 0, bytes));
            }
            net.go_on(Micros::from_secs(1));
            assert_eq!(net.events[1], [done(waiting, bytes, 0, 4)]);
            let second = net.post(1, probe(None, Some(4), true, false));
            let third = try_post(&mut net, 1, probe(None, Some(4), true, false));
            assert_eq!(third, Err(PostError::NoMessage));
            // Who takes any finds the one that is nobody's.
            let any = net.post(1, receive(0, 6, 2, 60_000));
            let late = net.post(1, receive(0, 4, 2, 60_000));
            net.go_on(Micros::from_secs(1));
            assert!(net.events[1].contains(&done(any, bytes, 0, 6)));
            // One that is let go meets the receive that waits.
            let (now, memory) = (net.now, &mut net.memory[1]);
            net.ranks[1].cancel(now, second, memory);
            net.memory[1].0[1].fill(99);
            let first = net.post(1, take(waiting, 1));
            net.go_on(Micros::from_secs(1));
            assert!(net.events[1].contains(&done(late, bytes, 0, 4)));
            assert!(net.events[1].contains(&done(first, bytes, 0, 4)));
            assert!(net.memory[1].0[1][..bytes as usize] == net.memory[0].0[0][..bytes as usize]);
            let gone = try_post(&mut net, 1, take(waiting, 1));
            assert_eq!(gone, Err(PostError::NoClaim));
            net.check_nothing_is_kept();
        }
    }
}

#[test]
fn a_claim_that_is_let_go_waits_in_its_old_place() {
    let mut net = pair(60_000, 0);
    for bytes in [10, 20, 30] {
        net.post(0, send(1, 4, 0, bytes));
    }
    net.go_on(Micros::from_millis(50));
    let claim = net.post(1, probe(Some(0), Some(4), true, false));
    let (now, memory) = (net.now, &mut net.memory[1]);
    net.ranks[1].cancel(now, claim, memory);
    net.go_on(Micros::from_millis(1));
    net.events[1].clear();
    let ops: Vec<OpId> = (0..3)
        .map(|_| net.post(1, receive(0, 4, 1, 60_000)))
        .collect();
    net.go_on(Micros::from_millis(50));
    let expected: Vec<Event> = [10, 20, 30]
        .into_iter()
        .zip(ops)
        .map(|(bytes, op)| done(op, bytes, 0, 4))
        .collect();
    assert_eq!(net.events[1], expected);
}

#[test]
fn a_claimed_message_whose_sender_takes_it_back_or_is_lost_does_not_come() {
    let mut net = pair(60_000, 0);
    let sent = net.post(0, send(1, 4, 0, 60_000));
    net.post(0, send(1, 5, 0, 60_000));
    net.post(0, send(1, 6, 0, 100));
    net.go_on(Micros::from_millis(50));
    let claims: Vec<OpId> = (4..7)
        .map(|tag| net.post(1, probe(Some(0), Some(tag), true, false)))
        .collect();
    let (now, memory) = (net.now, &mut net.memory[0]);
    net.ranks[0].cancel(now, sent, memory);
    net.go_on(Micros::from_millis(50));
    net.events[1].clear();
    let back = net.post(1, take(claims[0], 1));
    net.go_on(Micros::from_millis(50));
    assert_eq!(net.events[1], [failed(back, Error::Withdrawn(Rank(0)))]);
    let now = net.now;
    net.ranks[1].fail(now, Rank(0));
    let lost = try_post(&mut net, 1, take(claims[1], 1));
    assert_eq!(lost, Err(PostError::Lost(Rank(0))));
    // What is here is received.
    let here = net.post(1, take(claims[2], 1));
    assert_eq!(net.events[1].len(), 1);
    net.go_on(Micros::from_millis(1));
    assert_eq!(net.events[1][1..], [done(here, 100, 0, 6)]);
}

#[test]
fn a_probe_ends_when_its_rank_is_lost() {
    let mut net = Net::new(3, Scheme::Default, 0, 5);
    let ops = [Some(1), None].map(|from| net.post(0, probe(from, None, true, true)));
    let now = net.now;
    net.ranks[1].leave(now, true);
    net.go_on(Micros::from_secs(3));
    assert_eq!(net.events[0], [failed(ops[0], Error::RankLost(Rank(1)))]);
    let now = net.now;
    net.ranks[2].leave(now, false);
    net.go_on(Micros::from_secs(3));
    assert_eq!(
        net.events[0][1..],
        [failed(ops[1], Error::RankLost(Rank(2)))]
    );
    assert_eq!(net.ranks[0].footprint().ops, 0);
}

/// As many operations as may be outstanding, at both ends: every message is received, whichever end
/// comes first, and in whatever order.
#[test]
fn as_many_operations_as_may_be_are_outstanding() {
    for (bytes, receives_first) in [(8, true), (8, false), (1_500, true)] {
        let mut net = pair(3_000, 0);
        let all = MAX_OPS as u32;
        let tag = |at: u32| at.wrapping_mul(0x9e37) & 0xffff;
        let (mut sends, mut receives) = (Vec::new(), Vec::new());
        if receives_first {
            receives.extend((0..all).map(|at| net.post(1, receive(0, at, 1, 3_000))));
            assert_eq!(
                try_post(&mut net, 1, receive(0, 0, 1, 10)),
                Err(PostError::Full)
            );
        }
        // 128 are copied.
        let copied = if bytes == 8 { 8192 / (64 + 8) } else { 0 };
        for at in 0..all + copied {
            sends.extend(try_post(
                &mut net,
                0,
                send(1, tag(at) | at & !0xffff, 0, bytes),
            ));
        }
        assert_eq!(sends.len() as u32, all + copied, "{bytes} bytes");
        assert_eq!(
            try_post(&mut net, 0, send(1, 0, 0, bytes)),
            Err(PostError::Full)
        );
        net.go_on(Micros::from_secs(1));
        if !receives_first {
            receives.extend((0..all).map(|at| net.post(1, receive(0, at, 1, 3_000))));
        }
        net.go_on(Micros::from_secs(60));
        assert_eq!(
            net.events[1].len(),
            receives.len(),
            "{bytes} bytes, {receives_first}"
        );
        assert_done(&net);
        assert_eq!(net.ranks[1].footprint().ops, 0);
    }
}

/// Goes on until something holds; it must within a minute.
fn until(net: &mut Net, holds: impl Fn(&Net) -> bool) {
    for _ in 0..600 {
        if holds(net) {
            return;
        }
        net.go_on(Micros::from_millis(100));
    }
    panic!("it does not come");
}

/// More messages that nobody receives than a rank has room for by itself: with memory of the
/// program they wait there, and one behind them is seen.
#[test]
fn messages_that_wait_find_room_in_memory_of_the_program() {
    const MANY: u32 = 6_000;
    const TOLD: u32 = 7;
    for (loss, bytes) in [(0, 0), (0, 300), (10, 1_000)] {
        let mut net = pair(5_000, loss);
        net.memory[1].0.push(vec![0; MANY as usize * 1_100]);
        let given = net.memory[1].0.len() as u64 - 1;
        let wanted = net.post(1, receive(0, u32::MAX, 1, 5_000));
        for tag in 0..MANY {
            net.memory[0].0[0][..4].copy_from_slice(&tag.to_le_bytes());
            // What is not copied is taken from memory later.
            let buffer = if tag < TOLD { 0 } else { 1 };
            net.post(0, send(1, tag, buffer, bytes));
        }
        net.post(0, send(1, u32::MAX, 1, 5_000));
        until(&mut net, |net| net.ranks[1].is_stuck(wanted));
        let length = net.memory[1].0[given as usize].len() as u64;
        net.ranks[1].add_room(BufferId(given), length, 1 << 16);
        until(&mut net, |net| !net.events[1].is_empty());
        assert_eq!(net.events[1], [done(wanted, 5_000, 0, u32::MAX)]);
        net.events[1].clear();
        net.memory[0].0[1].fill(77);
        // In another order than they came in.
        for tag in (0..MANY).rev() {
            // A buffer each for the first ones, whose bytes tell them apart.
            let buffer = if tag < TOLD { 3 + u64::from(tag) } else { 2 };
            net.post(1, receive(0, tag, buffer, 5_000));
        }
        until(&mut net, |net| {
            net.events[1].len() as u32 == MANY && net.ranks[0].footprint().ops == 0
        });
        assert_done(&net);
        for tag in (0..TOLD).filter(|_| bytes >= 4) {
            let received = &net.memory[1].0[3 + tag as usize];
            assert_eq!(received[..4], tag.to_le_bytes(), "{bytes} bytes");
        }
        net.check_nothing_is_kept();
        assert!(!net.ranks[1].is_full());
    }
}
