//! One node and the control node, joined by a perfect wire with no delay: joining, leaving, being
//! refused, and finding one another again.

use std::collections::BTreeSet;

use crate::jobs::{job_spec, running};
use crate::wire_pair::{PEER_KEY, Pair, SECRET};
use netstack::control::{self, KeyRefused, LeaveRefused};
use netstack::ids::{BootEpoch, JobId, LocalRank, NodeId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply};
use netstack::job::LaunchError;
use netstack::join::Refusal;
use netstack::node;
use netstack::time::Micros;
use netstack::wire::datagram;

#[test]
fn a_node_joins_and_its_key_is_used() {
    let mut pair = Pair::new();
    let key = pair
        .control
        .issue_key(pair.now, pair.mac(), pair.epoch(), NodeId(3));
    assert_eq!(key, Ok(pair.key()));
    pair.settle();
    assert!(matches!(
        pair.take_node_events()[..],
        [node::Event::Joined {
            peer_key: PEER_KEY,
            ..
        }]
    ));
    let events = pair.take_control_events();
    let [
        control::Event::NodeJoined {
            status,
            rejoined: false,
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!((status.node, status.memory_bytes), (NodeId(3), 48 << 20));
    assert_eq!(status.cores, 4);
    let again = pair
        .control
        .issue_key(pair.now, pair.mac(), pair.epoch(), NodeId(3));
    assert_eq!(again, Err(KeyRefused::Used));
    assert!(matches!(
        pair.take_control_events()[..],
        [control::Event::KeyReused { .. }]
    ));
    assert_eq!(pair.control.counters().bad_tag, 0);
}

#[test]
fn a_control_node_that_was_not_scheduled_loses_nobody() {
    let mut pair = Pair::joined();
    let mut unread = Vec::new();
    for _ in 0..20 {
        pair.now += Micros::from_secs(1);
        unread.extend(pair.take_datagrams_of_node());
    }
    // It wakes up after 20 s and looks at its timers first.
    pair.deliver_to_node();
    for datagram in &unread {
        pair.deliver(datagram);
    }
    pair.advance(Micros::from_secs(5));
    assert!(pair.take_control_events().is_empty());
}

#[test]
fn a_node_leaves_in_good_order() {
    let mut pair = Pair::joined();
    pair.node.leave(pair.now);
    pair.settle();
    assert_eq!(pair.take_node_events(), [node::Event::Left]);
    assert!(matches!(
        pair.take_control_events()[..],
        [control::Event::NodeLeft { .. }]
    ));
    assert_eq!(pair.node.poll_timeout(), None);
    pair.advance(Micros::from_secs(20));
    assert!(
        pair.take_control_events().is_empty(),
        "a node that left is not lost"
    );
}

#[test]
fn a_node_leaves_when_it_is_asked_to() {
    let mut pair = Pair::joined();
    // What gets lost is repeated, and asking twice is asking once.
    pair.cut = true;
    for _ in 0..2 {
        pair.control
            .ask_to_leave(pair.now, NodeId(3))
            .expect("the node is up and free");
        pair.advance(Micros::from_secs(1));
    }
    let refused = pair.control.launch(pair.now, job_spec(1));
    assert_eq!(refused, Err(LaunchError::NodeNotUp(NodeId(3))));
    pair.cut = false;
    pair.advance(Micros::from_secs(3));
    assert_eq!(pair.take_node_events(), [node::Event::Left]);
    assert!(pair.node.has_left());
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::NodeLeft { .. }]),
        "{events:?}"
    );
    pair.advance(Micros::from_secs(20));
    assert!(pair.take_control_events().is_empty(), "nothing is repeated");
    let again = pair.control.ask_to_leave(pair.now, NodeId(3));
    assert_eq!(again, Err(LeaveRefused::NotUp));
}

#[test]
fn a_node_with_a_job_stays() {
    let mut pair = running();
    let busy = pair.control.ask_to_leave(pair.now, NodeId(3));
    assert_eq!(busy, Err(LeaveRefused::Busy(JobId(1))));
    assert!(pair.control.node(NodeId(3)).is_some());
    // The control node does not know of the job, as one that was started again a moment ago.
    pair.restart_control();
    pair.advance(Micros::from_secs(3));
    pair.take_node_events();
    pair.take_control_events();
    assert!(pair.node.is_joined());
    pair.advance(Micros::from_secs(3));
    pair.control
        .ask_to_leave(pair.now, NodeId(3))
        .expect("the job was dropped");
    pair.settle();
    assert_eq!(pair.take_node_events(), [node::Event::Left]);
}

#[test]
fn a_node_whose_exit_was_not_answered_yet_says_that_it_stays() {
    let mut pair = running();
    let exit = IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Exited(0))));
    pair.node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, exit)
        .expect("there is room");
    pair.settle();
    let call = pair
        .take_control_events()
        .into_iter()
        .find_map(|event| match event {
            control::Event::IoCall { call, .. } => Some(call),
            _ => None,
        });
    let reply = IoReply {
        result: 0,
        data: Vec::new(),
    };
    pair.cut = true;
    pair.control.io_reply(
        pair.now,
        NodeId(3),
        (JobId(1), Rank(0)),
        call.expect("the exit arrived"),
        reply,
    );
    pair.settle();
    pair.take_control_events();
    pair.cut = false;
    // To the control node the job is over.
    pair.control
        .ask_to_leave(pair.now, NodeId(3))
        .expect("the node is up and free");
    pair.settle();
    let stays = control::Event::NodeStays {
        node: NodeId(3),
        job: Some(JobId(1)),
    };
    assert_eq!(pair.take_control_events(), [stays]);
    assert!(!pair.node.has_left());
    pair.advance(Micros::from_secs(3));
    pair.control
        .ask_to_leave(pair.now, NodeId(3))
        .expect("the node is up and free");
    pair.settle();
    assert!(pair.node.has_left());
}

#[test]
fn errors_of_hardware_are_events_once() {
    let mut pair = Pair::joined();
    let mut said = |errors| {
        pair.vitals.hardware_errors = errors;
        pair.node.set_vitals(pair.vitals);
        pair.advance(Micros::from_secs(5));
        pair.take_control_events()
    };
    let event = |count| control::Event::HardwareErrors {
        node: NodeId(3),
        count,
    };
    assert_eq!(said(0), []);
    assert_eq!(said(2), [event(2)]);
    assert_eq!(said(2), []);
    assert_eq!(said(3), [event(1)]);
}

#[test]
fn a_node_that_does_not_answer_stays() {
    let mut pair = Pair::joined();
    pair.control
        .ask_to_leave(pair.now, NodeId(3))
        .expect("the node is up and free");
    pair.cut = true;
    pair.advance(Micros::from_secs(30));
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::NodeLost { .. }]),
        "a node that is lost is not asked any more: {events:?}"
    );
}

#[test]
fn a_panic_is_told_without_the_endpoint() {
    let mut pair = running();
    let reporter = pair.node.panic_reporter().expect("the node has joined");
    for attempt in 0..2 {
        let mut out = [0; netstack::MAX_DATAGRAM];
        let length = reporter.datagram(attempt, &"é".repeat(1000), &mut out);
        pair.deliver(&out[..length]);
    }
    let events = pair.take_control_events();
    let [
        control::Event::NodePanic { text, .. },
        control::Event::NodeLost { .. },
        control::Event::RankLost { .. },
        control::Event::JobClosed { .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(text.len(), 1200);
}

#[test]
fn wrong_keys_and_lab_keys_are_refused_with_an_event() {
    type Change = fn(&mut node::Config);
    let cases: [(&str, Refusal, Change); 3] = [
        ("key", Refusal::WrongKey, |config| {
            config.personality.key.0[0] ^= 1
        }),
        ("key id", Refusal::UnknownKeyId, |config| {
            config.personality.key_id = 9
        }),
        ("lab key", Refusal::WrongKey, |config| config.lab_key = true),
    ];
    for (what, expected, change) in cases {
        let mut pair = Pair::with(change, |_| {});
        pair.advance(Micros::from_secs(5));
        let events = pair.take_control_events();
        let [
            control::Event::Rejected {
                reason,
                mac: Some(_),
                ..
            },
        ] = &events[..]
        else {
            panic!("{what}: {events:?}");
        };
        assert_eq!(*reason, expected, "{what}");
        let events = pair.take_node_events();
        assert!(
            matches!(&events[0], node::Event::Refused { reason, .. } if *reason == expected),
            "{what}: {events:?}"
        );
        assert!(events.len() < 4, "{what}: a refused node slows down");
    }
}

#[test]
fn a_node_of_another_software_version_joins() {
    let mut pair = Pair::with(|config| config.version[0] = b'9', |_| {});
    pair.settle();
    let events = pair.take_control_events();
    assert!(
        matches!(&events[..], [control::Event::NodeJoined { status, .. }] if status.version[0] == b'9'),
        "{events:?}"
    );
}

#[test]
fn a_machine_joins_when_it_is_admitted() {
    let mut pair = Pair::with(|_| {}, |_| {});
    pair.control.admit_only(Some(BTreeSet::new()));
    pair.advance(Micros::from_secs(5));
    let events = pair.take_control_events();
    let [control::Event::Rejected { reason, text, .. }, ..] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(*reason, Refusal::NotAdmitted);
    assert!(text.contains("hearth node approve"), "{text}");
    let events = pair.take_node_events();
    assert!(
        events.iter().all(|event| matches!(
            event,
            node::Event::Refused {
                reason: Refusal::NotAdmitted,
                authentic: true,
                ..
            }
        )),
        "{events:?}"
    );
    // It asks on, and joins by itself as soon as it may.
    pair.control.admit(pair.mac());
    pair.advance(Micros::from_secs(60));
    let events = pair.take_control_events();
    assert!(
        matches!(&events[..], [control::Event::NodeJoined { .. }]),
        "{events:?}"
    );
}

#[test]
fn another_protocol_version_is_refused_both_ways() {
    let mut pair = Pair::new();
    let mut hello = pair.first_datagram();
    let other = datagram::VERSION + 1;
    hello[2] = other;
    pair.deliver(&hello);
    let events = pair.take_control_events();
    assert!(
        matches!(
            &events[..],
            [control::Event::Rejected {
                reason: Refusal::Protocol,
                text,
                ..
            }] if text.contains(&format!("protocol version {other}")) && text.contains("(version ")
        ),
        "{events:?}"
    );
    pair.settle();
    let events = pair.take_node_events();
    assert!(
        matches!(
            &events[..],
            [node::Event::Refused {
                reason: Refusal::Protocol,
                authentic: false,
                ..
            }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_lab_key_holds_for_every_boot_where_it_is_allowed() {
    let change = |config: &mut node::Config| {
        config.lab_key = true;
        let (mac, node) = (config.mac, config.personality.node);
        config.personality.key =
            netstack::personality::node_key(&SECRET, 1, mac, BootEpoch(0), node);
    };
    let mut pair = Pair::with(change, |config| config.accept_lab_keys = true);
    pair.settle();
    assert!(matches!(
        pair.take_control_events()[..],
        [control::Event::NodeJoined { .. }]
    ));
}

#[test]
fn a_reboot_takes_the_place_of_the_boot_before_and_its_key_is_used_up() {
    let mut pair = Pair::joined();
    let first = pair.node_config();
    pair.reboot(BootEpoch(77));
    pair.advance(Micros::from_secs(6));
    let events = pair.take_control_events();
    let [
        control::Event::NodeLost {
            epoch: BootEpoch(5),
            ..
        },
        control::Event::NodeJoined { .. },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert!(pair.node.is_joined());
    // The first boot again, as an attacker would who recorded its key.
    pair.take_node_events();
    pair.node = node::Endpoint::new(first, pair.now);
    pair.settle();
    let events = pair.take_control_events();
    assert!(
        matches!(
            &events[..],
            [control::Event::Rejected {
                reason: Refusal::KeyUsed,
                ..
            }]
        ),
        "{events:?}"
    );
}

#[test]
fn the_second_machine_with_one_mac_is_refused_and_the_first_stays() {
    let mut pair = Pair::joined();
    let mut second = pair.second_machine(BootEpoch(99), NodeId(3));
    let refused = pair.run_beside(&mut second, Micros::from_secs(8));
    let events = pair.take_control_events();
    let [
        control::Event::TwoNodesOneMac {
            first: BootEpoch(5),
            second: BootEpoch(99),
            ..
        },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    assert!(
        matches!(
            &refused[0],
            node::Event::Refused {
                reason: Refusal::MacInUse,
                ..
            }
        ),
        "{refused:?}"
    );
    assert!(pair.node.is_joined());
    assert_eq!(pair.take_node_events(), []);
}

#[test]
fn a_node_that_was_not_running_asks_before_it_takes_the_control_node_for_lost() {
    let mut pair = Pair::joined();
    pair.take_node_events();
    pair.now += Micros::from_secs(20);
    pair.settle();
    assert_eq!(pair.take_node_events(), []);
    pair.cut = true;
    pair.advance(Micros::from_secs(20));
    assert_eq!(pair.take_node_events(), [node::Event::ControlLost]);
}
