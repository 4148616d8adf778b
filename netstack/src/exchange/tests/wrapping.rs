//! Numbers of operations have 24 bits and come round again; numbers of datagrams never do. So what
//! was recorded of an operation is nothing to the one that has its number later, and no key has to
//! end for that (ADR 40).

use super::*;
use crate::exchange::message::NUMBER_MASK;

const BYTES: u64 = 20_000;

/// Lets all ranks come to so many events; gives every datagram that they said.
fn finish(net: &mut Net, events: usize) -> Vec<(usize, Vec<u8>)> {
    let mut said = Vec::new();
    for _ in 0..100_000 {
        net.send_all();
        if net.events.iter().all(|all| all.len() >= events) {
            return said;
        }
        net.now += FLIGHT;
        while let Some((_, to, datagram)) = net.flights.pop_front() {
            net.ranks[to].handle_datagram(net.now, &datagram, &mut net.memory[to]);
            said.push((to, datagram));
        }
    }
    panic!("it does not end");
}

fn send_again(net: &mut Net, said: &[(usize, Vec<u8>)]) {
    for (to, datagram) in said {
        net.ranks[*to].handle_datagram(net.now, datagram, &mut net.memory[*to]);
    }
}

fn post_all(net: &mut Net, ops: &[Op], wanted: u32) {
    for (rank, op) in ops.iter().enumerate() {
        let Op::AllToAll { send, receive, .. } = op.clone() else {
            panic!("another operation");
        };
        let among = Among {
            number: wanted,
            ..Among::all(0)
        };
        let op = Op::AllToAll {
            among,
            send,
            receive,
        };
        net.post(rank as u32, op);
    }
}

#[test]
fn a_number_that_comes_round_again_takes_nothing_of_before() {
    let mut net = Net::new(3, Scheme::Default, 0, 7);
    let ops = exchange(&mut net, |_, _| BYTES);
    let mut events = 1;
    post_all(&mut net, &ops, 1);
    let old = finish(&mut net, events);
    check_received(&net, &ops);
    assert!(old.len() > 6 * (BYTES as usize / PACKET));
    // All the way round, in steps of less than half of it; 0 is the next.
    let quarter = (NUMBER_MASK + 1) / 4;
    for number in [quarter, 2 * quarter, 3 * quarter, NUMBER_MASK, 0] {
        events += 1;
        post_all(&mut net, &ops, number);
        finish(&mut net, events);
    }
    // Other bytes this time, under the number of the first: whatever is said again comes first.
    for memory in &mut net.memory {
        memory.0[0].fill(0xbb);
        memory.0[1].fill(0);
    }
    let replayed = |net: &Net| -> u64 {
        let ranks = net.ranks.iter();
        ranks.map(|rank| rank.counters().replayed).sum()
    };
    let before = replayed(&net);
    send_again(&mut net, &old);
    post_all(&mut net, &ops, 0);
    send_again(&mut net, &old);
    events += 1;
    finish(&mut net, events);
    send_again(&mut net, &old);
    assert_eq!(replayed(&net), before + 3 * old.len() as u64);
    assert_done(&net);
    for (me, memory) in net.memory.iter().enumerate() {
        let received = &memory.0[1][me % 3..];
        assert!(received.iter().all(|byte| *byte == 0xbb), "rank {me}");
    }
}
