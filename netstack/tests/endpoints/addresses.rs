//! Where a node is: what comes from another address changes nothing until that has proved itself,
//! and makes the control node send it little.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::wire_pair::{ADDR, Pair, node_config};
use netstack::ids::{BootEpoch, NodeId};
use netstack::time::Micros;
use netstack::wire::datagram::{self, Kind};
use netstack::{MAX_DATAGRAM, NODE_PORT, control, node};

const OTHER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(10, 117, 9, 9), NODE_PORT);
const STEP: Micros = Micros::from_millis(20);

fn addr(pair: &Pair) -> SocketAddrV4 {
    let status = pair.control.node(NodeId(3)).expect("it has joined");
    assert_eq!(status.state, control::NodeState::Up);
    status.addr
}

/// Lets time pass: what the node says comes to the control node from each of these addresses, in
/// this order. The node gets what goes to an address where `hears` says so. Gives what went to
/// [`OTHER`].
fn run(
    pair: &mut Pair,
    time: Micros,
    from: &[SocketAddrV4],
    hears: impl Fn(SocketAddrV4) -> bool,
) -> Vec<Vec<u8>> {
    let mut buffer = [0; MAX_DATAGRAM];
    let mut others = Vec::new();
    let end = pair.now + time;
    while pair.now < end {
        while let Some(length) = pair.node.poll_transmit(pair.now, &mut buffer) {
            for from in from {
                pair.control
                    .handle_datagram(pair.now, *from, &buffer[..length]);
            }
        }
        while let Some((to, length)) = pair.control.poll_transmit(pair.now, &mut buffer) {
            if to == OTHER {
                others.push(buffer[..length].to_vec());
            }
            if hears(to) {
                pair.node.handle_datagram(pair.now, &buffer[..length]);
            }
        }
        pair.now += STEP;
    }
    others
}

#[test]
fn an_address_that_has_changed_is_taken_after_a_challenge() {
    let mut pair = Pair::joined();
    run(&mut pair, Micros::from_secs(2), &[ADDR], |to| to == ADDR);
    // At first it is only asked, where it says that it is.
    let said = run(&mut pair, Micros::from_millis(1_500), &[OTHER], |_| false);
    assert!(!said.is_empty());
    let kind = |datagram: &Vec<u8>| {
        datagram::Packet::new_checked(datagram)
            .unwrap()
            .header()
            .kind
    };
    assert!(
        said.iter()
            .all(|datagram| kind(datagram) == Kind::HeartbeatAck)
    );
    assert_eq!(addr(&pair), ADDR);
    // Who does not hear the challenge cannot answer.
    run(&mut pair, Micros::from_secs(4), &[OTHER], |to| to == ADDR);
    assert_eq!(addr(&pair), ADDR);
    // The node itself is soon where it is.
    run(&mut pair, Micros::from_secs(3), &[OTHER], |to| to == OTHER);
    assert_eq!(addr(&pair), OTHER);
    assert!(pair.node.is_joined());
    let lost = |event: &node::Event| matches!(event, node::Event::Joined { .. });
    assert!(
        !pair.take_node_events().iter().any(lost),
        "the session goes on"
    );
}

#[test]
fn who_copies_what_a_node_says_does_not_get_what_is_for_it() {
    let mut pair = Pair::joined();
    // Each copy is there first, and challenges are handed on to the node.
    let copies = run(&mut pair, Micros::from_secs(30), &[OTHER, ADDR], |_| true);
    assert_eq!(addr(&pair), ADDR);
    assert!(copies.len() <= 31, "a challenge a second: {}", copies.len());
}

#[test]
fn a_hello_that_is_sent_on_moves_nobody() {
    let mut pair = Pair::joined();
    pair.restart_control();
    // The next HELLO is caught, and sent on from elsewhere, after the node has joined.
    run(&mut pair, Micros::from_secs(4), &[ADDR], |to| to == ADDR);
    assert_eq!(addr(&pair), ADDR);
    let mut again = node::Endpoint::new(pair.node_config(), pair.now);
    let mut buffer = [0; MAX_DATAGRAM];
    for _ in 0..200 {
        // Of the same boot, with numbers above all that were said.
        if let Some(length) = again.poll_transmit(pair.now, &mut buffer) {
            pair.control
                .handle_datagram(pair.now, OTHER, &buffer[..length]);
        }
        run(&mut pair, Micros::from_millis(100), &[ADDR], |to| {
            to == ADDR
        });
    }
    assert_eq!(addr(&pair), ADDR);
}

/// What strangers may send, and what comes back to them: at most three times as much (RFC 9000,
/// section 8).
#[test]
fn nobody_who_is_not_known_gets_more_than_three_times_what_came() {
    let mut pair = Pair::joined();
    let mut samples = pair.take_datagrams_of_node();
    pair.now += Micros::from_secs(2);
    samples.extend(pair.take_datagrams_of_node());
    let mut buffer = [0; MAX_DATAGRAM];
    // HELLOs: of this boot, of the next, of other nodes, with a wrong key.
    for change in 0..4 {
        let mut config = node_config(BootEpoch(5 + u64::from(change == 1)));
        match change {
            2 => config.personality.node = NodeId(4),
            3 => config.personality.key.0[0] ^= 1,
            _ => {}
        }
        let mut endpoint = node::Endpoint::new(config, pair.now);
        let length = endpoint.poll_transmit(pair.now, &mut buffer).unwrap();
        samples.push(buffer[..length].to_vec());
    }
    // Of all of them: another version, another kind, another node, cut short, changed.
    let mut all = Vec::new();
    for sample in samples {
        for (place, value) in [(2, 77), (3, 4), (3, 33), (4, 9), (8, 9), (40, 1)] {
            let mut changed = sample.clone();
            if let Some(byte) = changed.get_mut(place) {
                *byte = value;
            }
            all.push(changed);
        }
        all.extend([24, 28, 44].map(|length| sample[..length].to_vec()));
        all.push(sample);
    }
    let mut answered = 0;
    for (host, datagram) in (1..).zip(all) {
        let stranger = SocketAddrV4::new(Ipv4Addr::new(172, 16, 0, host), 9);
        let (mut sent, mut came) = (0, 0);
        for _ in 0..3 {
            came += datagram.len();
            pair.control.handle_datagram(pair.now, stranger, &datagram);
            for _ in 0..50 {
                while let Some((to, length)) = pair.control.poll_transmit(pair.now, &mut buffer) {
                    sent += if to == stranger { length } else { 0 };
                }
                pair.now += Micros::from_millis(10);
            }
        }
        assert!(sent <= 3 * came, "{sent} bytes for {came}: {datagram:?}");
        answered += u32::from(sent > 0);
    }
    assert!(answered > 5, "{answered} were answered");
}
