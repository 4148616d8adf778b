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
