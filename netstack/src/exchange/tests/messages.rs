//! Messages as MPI wants them: synchronous sends, receives of any rank's that outlive the others.

use super::endings::{failed, pair};
use super::*;

fn synchronous(to: u32, tag: u32, buffer: u64, bytes: u64) -> Op {
    Op::Send {
        to: Rank(to),
        context: 0,
        tag,
        buffer: BufferId(buffer),
        bytes,
        is_synchronous: true,
    }
}

fn from_any(buffer: u64) -> Op {
    Op::Receive {
        from: None,
        context: 0,
        tag: None,
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

#[test]
fn a_synchronous_send_is_done_when_its_receive_is_posted_and_not_before() {
    for loss in [0, 15] {
        for bytes in [0, 1, SHORT as u64, 60_000] {
            for to in [0, 1] {
                let mut net = pair(60_000, loss);
                let sent = net.post(0, synchronous(to, 4, 0, bytes));
                net.go_on(Micros::from_secs(1));
                assert_eq!(net.events[0], [], "{bytes} bytes to {to}");
                // A shorter one that is none may pass it, since it has another tag.
                let other = net.post(0, send(to, 5, 0, 10));
                net.go_on(Micros::from_secs(1));
                assert_eq!(net.events[0], [done(other, 10, to, 5)]);
                let received = net.post(to, receive(0, 4, 1, 60_000));
                net.go_on(Micros::from_secs(1));
                assert!(net.events[0].contains(&done(sent, bytes, to, 4)));
                assert!(net.events[to as usize].contains(&done(received, bytes, 0, 4)));
                net.post(to, receive(0, 5, 1, 60_000));
                net.go_on(Micros::from_secs(1));
                net.check_nothing_is_kept();
            }
        }
    }
}

#[test]
fn a_synchronous_send_that_is_taken_back_or_does_not_fit_ends() {
    let mut net = pair(60_000, 0);
    let sent = net.post(0, synchronous(1, 4, 0, 100));
    net.go_on(Micros::from_millis(50));
    let now = net.now;
    net.ranks[0].cancel(now, sent, &mut net.memory[0]);
    net.go_on(Micros::from_millis(50));
    let sent = net.post(0, synchronous(1, 4, 0, 200));
    let received = net.post(1, receive(0, 4, 1, 150));
    net.go_on(Micros::from_secs(1));
    assert_eq!(net.events[0], [done(sent, 200, 1, 4)]);
    let (sent, from, tag) = (200, Rank(0), 4);
    let error = Error::Truncated { sent, from, tag };
    assert_eq!(net.events[1], [failed(received, error)]);
    net.check_nothing_is_kept();
    // Its receiver ends without having received it.
    net.events[0].clear();
    let sent = net.post(0, synchronous(1, 4, 0, 100));
    net.go_on(Micros::from_millis(50));
    let now = net.now;
    net.ranks[1].leave(now, true);
    net.go_on(Micros::from_secs(3));
    assert_eq!(net.events[0], [failed(sent, Error::RankLost(Rank(1)))]);
}

#[test]
fn a_receive_of_any_rank_goes_on_when_others_end_well() {
    for loss in [0, 10] {
        let mut net = Net::new(4, Scheme::Default, loss, 3);
        for rank in 0..4 {
            net.memory[rank].0 = vec![vec![rank as u8; 60_000]; 3];
        }
        let any = net.post(0, from_any(1));
        net.go_on(Micros::from_secs(1));
        for rank in [1, 3] {
            let now = net.now;
            net.ranks[rank].leave(now, true);
        }
        net.go_on(Micros::from_secs(8));
        assert_eq!(net.events[0], [], "{loss} %");
        let second = net.post(0, from_any(2));
        net.post(2, send(0, 7, 0, 60_000));
        net.go_on(Micros::from_secs(1));
        assert_eq!(net.events[0], [done(any, 60_000, 2, 7)]);
        assert_eq!(net.memory[0].0[1], vec![2; 60_000]);
        // When the last of the others has ended nothing can come.
        let now = net.now;
        net.ranks[2].leave(now, true);
        net.go_on(Micros::from_secs(3));
        assert_eq!(
            net.events[0][1..],
            [failed(second, Error::RankLost(Rank(2)))]
        );
        let now = net.now;
        let third = net.ranks[0].post(now, from_any(2), &mut net.memory[0]);
        assert!(matches!(third, Err(PostError::Lost(_))));
    }
}

#[test]
fn what_a_rank_sent_before_it_ended_well_is_received_by_whoever_takes_any() {
    for seed in 0..20 {
        let mut net = Net::new(3, Scheme::Default, 30, seed);
        for rank in 0..3 {
            net.memory[rank].0 = vec![vec![rank as u8; 60_000]; 3];
        }
        for tag in 0..3 {
            net.post(1, send(0, tag, 0, 100));
        }
        let now = net.now;
        net.ranks[1].leave(now, true);
        net.go_on(Micros::from_millis(seed));
        let ops: Vec<OpId> = (0..3).map(|_| net.post(0, from_any(1))).collect();
        net.go_on(Micros::from_secs(3));
        let expected: Vec<Event> = (0..)
            .zip(ops)
            .map(|(tag, op)| done(op, 100, 1, tag))
            .collect();
        assert_eq!(net.events[0], expected, "seed {seed}");
    }
}

#[test]
fn a_receive_of_any_rank_fails_when_one_ends_with_an_error() {
    let mut net = Net::new(3, Scheme::Default, 0, 3);
    net.memory[0].0 = vec![vec![0; 60_000]; 3];
    let any = net.post(0, from_any(1));
    let now = net.now;
    net.ranks[1].leave(now, true);
    net.go_on(Micros::from_secs(2));
    net.ranks[2].leave(net.now, false);
    net.go_on(Micros::from_secs(2));
    assert_eq!(net.events[0], [failed(any, Error::RankLost(Rank(2)))]);
}

/// Sends without an operation, as long as there is room.
fn forgotten(net: &mut Net, rank: usize, to: u32, tag: u32, bytes: u64) -> Result<(), PostError> {
    let what = (BufferId(0), bytes);
    let whereto = (Rank(to), 0, tag);
    net.ranks[rank].send_forgotten(net.now, whereto, what, &mut net.memory[rank])
}

#[test]
fn a_forgotten_message_arrives_once_and_is_told_to_nobody_but_its_receiver() {
    for (loss, to) in [(0, 0), (0, 1), (30, 1)] {
        for bytes in [0, 8, SHORT as u64] {
            let mut net = pair(60_000, loss);
            // Its memory may change as soon as it is sent.
            net.memory[0].0[0][..8].fill(7);
            forgotten(&mut net, 0, to, 1, bytes).expect("there is room");
            net.memory[0].0[0][..8].fill(9);
            let received = net.post(to, receive(0, 1, 1, 60_000));
            forgotten(&mut net, 0, to, 2, bytes).expect("there is room");
            net.go_on(Micros::from_secs(3));
            let second = net.post(to, receive(0, 2, 1, 60_000));
            net.go_on(Micros::from_secs(3));
            let wanted = [done(received, bytes, 0, 1), done(second, bytes, 0, 2)];
            assert_eq!(net.events[to as usize], wanted, "{loss} %, {bytes} bytes");
            assert_eq!(net.events[1 - to as usize], []);
            if bytes > 0 {
                assert_eq!(net.memory[to as usize].0[1][..8], [9; 8]);
            }
            net.check_nothing_is_kept();
        }
    }
}

#[test]
fn forgotten_messages_are_bounded_and_go_on_when_others_have_arrived() {
    for (loss, to) in [(0, 0), (0, 1), (10, 1)] {
        let mut net = pair(60_000, loss);
        let (mut sent, mut received) = (0, 0);
        while forgotten(&mut net, 0, to, sent, 1000).is_ok() {
            sent += 1;
        }
        // What a rank keeps of others is as much again.
        assert!((1..=8).contains(&sent), "{sent} are kept without any limit");
        assert_eq!(
            forgotten(&mut net, 0, to, sent, 1000),
            Err(PostError::NoRoom)
        );
        while received < 100 {
            let op = net.post(to, receive(0, received, 1, 60_000));
            net.go_on(Micros::from_secs(1));
            assert_eq!(
                net.events[to as usize].pop(),
                Some(done(op, 1000, 0, received))
            );
            received += 1;
            while sent < 100 && forgotten(&mut net, 0, to, sent, 1000).is_ok() {
                sent += 1;
            }
        }
        net.check_nothing_is_kept();
    }
}

#[test]
fn a_forgotten_message_outlives_its_program_and_one_that_makes_no_sense_is_refused() {
    let mut net = pair(60_000, 20);
    forgotten(&mut net, 0, 1, 1, 500).expect("there is room");
    let now = net.now;
    net.ranks[0].leave(now, true);
    net.memory[0].0.clear();
    let received = net.post(1, receive(0, 1, 1, 60_000));
    net.go_on(Micros::from_secs(3));
    assert_eq!(net.events[1], [done(received, 500, 0, 1)]);

    let mut net = pair(60_000, 0);
    let long = forgotten(&mut net, 0, 1, 1, SHORT as u64 + 1);
    assert_eq!(long, Err(PostError::TooLong));
    assert_eq!(
        forgotten(&mut net, 0, 2, 1, 8),
        Err(PostError::BadRank),
        "of two ranks"
    );
    let now = net.now;
    net.ranks[1].leave(now, false);
    net.post(0, receive(1, 1, 1, 60_000));
    net.go_on(Micros::from_secs(3));
    let lost = Err(PostError::Lost(Rank(1)));
    assert_eq!(forgotten(&mut net, 0, 1, 1, 8), lost);
    net.memory[0].0.clear();
    assert_eq!(forgotten(&mut net, 0, 0, 1, 8), Err(PostError::Gone));
}
