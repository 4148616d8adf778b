//! What the endpoints do with input that is not what it should be: count it, and go on.

use crate::wire_pair::{PEER_KEY, Pair, node_config};
use netstack::MAX_DATAGRAM;
use netstack::control::Event;
use netstack::ids::{BootEpoch, JobId, NodeId, ProgramId, Rank};
use netstack::job::{JobSpec, LaunchSpec, PlaceSpec, StartMode};
use netstack::join::Refusal;
use netstack::node::Event as NodeEvent;
use netstack::retention::{Holding, Retention};
use netstack::time::Micros;
use netstack::wire::datagram::{self, Header, Kind, Packet};
use netstack::wire::job::Command;
use netstack::wire::join::Welcome;
use netstack::wire::key::{Direction, Key};
use netstack::wire::retention::Holdings;
use proptest::collection::vec;
use proptest::prelude::*;

const KINDS: [Kind; 20] = [
    Kind::Hello,
    Kind::Welcome,
    Kind::Refuse,
    Kind::Heartbeat,
    Kind::HeartbeatAck,
    Kind::Leave,
    Kind::Resync,
    Kind::Panic,
    Kind::AskLeave,
    Kind::Stay,
    Kind::Command,
    Kind::CommandAck,
    Kind::Holdings,
    Kind::HoldingsAck,
    Kind::PageRead,
    Kind::PageData,
    Kind::IoCall,
    Kind::IoReply,
    Kind::NodeLog,
    Kind::NodeLogAck,
];

/// A joined pair and its session keys, to node and to control.
fn joined_with_keys() -> (Pair, Key, Key) {
    let mut pair = Pair::new();
    let hello = pair.first_datagram();
    pair.deliver(&hello);
    let mut out = [0; MAX_DATAGRAM];
    let (_, length) = pair
        .control
        .poll_transmit(pair.now, &mut out)
        .expect("it says WELCOME");
    let packet = Packet::new_checked(&out[..length]).expect("it is well-formed");
    let payload = packet
        .open(&pair.key().join_key(Direction::ToNode))
        .expect("it is sealed");
    let session = Welcome::parse(payload).expect("it is a WELCOME").session;
    pair.node.handle_datagram(pair.now, &out[..length]);
    pair.settle();
    assert!(pair.node.is_joined());
    let keys = [Direction::ToNode, Direction::ToControl]
        .map(|direction| pair.key().session_key(direction, session));
    (pair, keys[0], keys[1])
}

/// The pair still does its work: a job launches.
fn assert_works(pair: &mut Pair) {
    pair.take_node_events();
    while pair.control.poll_event().is_some() {}
    pair.advance(Micros::from_secs(2));
    assert!(pair.node.is_joined());
    let spec = JobSpec {
        job: JobId(u64::MAX),
        submitted_us: u64::MAX,
        places: vec![PlaceSpec {
            node: NodeId(3),
            ranks: 1,
            launch_block: [].into(),
            retain: false,
            files: None,
        }],
        program: ProgramId([0; 32]),
        program_bytes: 0,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
        retention: Retention::default(),
        start: StartMode::OnCommand,
        cores: 0,
        core_bytes: 0,
    };
    pair.control
        .launch(pair.now, spec)
        .expect("the node is up and free");
    pair.settle();
    let launches = pair.take_node_events();
    assert!(
        launches
            .iter()
            .any(|event| matches!(event, netstack::node::Event::Launch { .. })),
        "{launches:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_disturb_nothing(inputs in vec(vec(any::<u8>(), 0..300), 1..40)) {
        let (mut pair, _, _) = joined_with_keys();
        for input in &inputs {
            pair.deliver(input);
            pair.node.handle_datagram(pair.now, input);
        }
        let refused = pair.node.counters();
        let counted = refused.bad_length + refused.bad_magic + refused.bad_version + refused.bad_kind;
        prop_assert_eq!(counted, inputs.len() as u64);
        assert_works(&mut pair);
    }

    #[test]
    fn forged_and_mutated_datagrams_disturb_nothing(
        forged in vec((0..KINDS.len(), any::<u64>(), any::<bool>(), vec(any::<u8>(), 0..120)), 1..40),
        flips in vec((any::<prop::sample::Index>(), 0..8u32), 1..40),
    ) {
        let (mut pair, _, _) = joined_with_keys();
        let mut out = [0; MAX_DATAGRAM];
        for (kind, seq, sealed, content) in &forged {
            let header =
                Header { kind: KINDS[*kind], node: NodeId(3), epoch: BootEpoch(5), seq: *seq };
            let wrong = Key([0xee; 16]);
            let length = datagram::emit(header, sealed.then_some(&wrong), &mut out, |writer| {
                writer.bytes(content);
            });
            pair.deliver(&out[..length]);
            pair.node.handle_datagram(pair.now, &out[..length]);
        }
        let hello = pair.node_config();
        let hello = netstack::node::Endpoint::new(hello, pair.now).poll_transmit(pair.now, &mut out);
        let length = hello.expect("a new node says HELLO");
        for (index, bit) in &flips {
            let mut bytes = out[..length].to_vec();
            bytes[index.index(length)] ^= 1 << bit;
            pair.deliver(&bytes);
        }
        // A flipped bit may name another cluster key or protocol version; nobody joins by it.
        while let Some(event) = pair.control.poll_event() {
            let harmless = matches!(&event, Event::Rejected { .. } | Event::Holdings { .. })
                || matches!(&event, Event::NodeJoined { status, .. } if status.epoch == BootEpoch(5));
            prop_assert!(harmless, "{:?}", event);
        }
        assert_works(&mut pair);
    }

    /// Even the holder of the keys cannot make the other side panic.
    #[test]
    fn authentic_nonsense_panics_nobody(
        messages in vec((0..KINDS.len(), vec(any::<u8>(), 0..1300)), 1..60),
        small in vec((0..KINDS.len(), vec(0..4u8, 0..70)), 1..200),
    ) {
        let (mut pair, to_node, to_control) = joined_with_keys();
        let mut out = [0; MAX_DATAGRAM];
        for (seq, (kind, content)) in messages.iter().chain(&small).enumerate() {
            let seq = 1000 + seq as u64;
            let header = Header { kind: KINDS[*kind], node: NodeId(3), epoch: BootEpoch(5), seq };
            let fill = |writer: &mut netstack::wire::field::Writer<'_>| {
                writer.bytes(content);
            };
            let length = datagram::emit(header, Some(&to_control), &mut out, fill);
            pair.deliver(&out[..length]);
            let length = datagram::emit(header, Some(&to_node), &mut out, fill);
            pair.node.handle_datagram(pair.now, &out[..length]);
            pair.settle();
            while pair.control.poll_event().is_some() {}
        }
        pair.advance(Micros::from_secs(30));
    }
}

#[test]
fn a_replayed_datagram_is_counted_and_ignored() {
    let mut pair = Pair::joined();
    pair.now += Micros::from_secs(2);
    let mut out = [0; MAX_DATAGRAM];
    let length = pair
        .node
        .poll_transmit(pair.now, &mut out)
        .expect("a heartbeat is due");
    for _ in 0..3 {
        pair.deliver(&out[..length]);
    }
    assert_eq!(pair.control.counters().replayed, 2);
}

#[test]
fn a_session_recorded_before_a_restart_of_control_cannot_be_replayed_after_it() {
    let mut pair = Pair::new();
    let mut recorded = vec![pair.first_datagram()];
    pair.deliver(&recorded[0].clone());
    pair.settle();
    for _ in 0..20 {
        pair.now += Micros::from_secs(1);
        let mut out = [0; MAX_DATAGRAM];
        while let Some(length) = pair.node.poll_transmit(pair.now, &mut out) {
            recorded.push(out[..length].to_vec());
            pair.deliver(&out[..length]);
        }
        pair.settle();
    }
    // The node is switched off, control restarts, and somebody plays the record.
    pair.restart_control();
    for datagram in &recorded {
        pair.deliver(datagram);
    }
    assert!(pair.control.poll_event().is_none(), "nobody has joined");
    // The node itself is back with another boot: nothing stands in its way.
    pair.reboot(BootEpoch(6));
    pair.settle();
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [Event::NodeJoined { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_replayed_welcome_changes_nothing() {
    let mut pair = Pair::new();
    let hello = pair.first_datagram();
    pair.deliver(&hello);
    let mut out = [0; MAX_DATAGRAM];
    let (_, length) = pair
        .control
        .poll_transmit(pair.now, &mut out)
        .expect("it says WELCOME");
    let welcome = out[..length].to_vec();
    pair.node.handle_datagram(pair.now, &welcome);
    pair.settle();
    // Another run of the control node, so another session.
    pair.restart_control();
    pair.advance(Micros::from_secs(3));
    assert!(pair.node.is_joined());
    pair.take_node_events();
    let stale = pair.node.counters().stale;
    pair.node.handle_datagram(pair.now, &welcome);
    pair.advance(Micros::from_secs(10));
    assert_eq!(pair.node.counters().stale, stale + 1);
    assert_eq!(pair.take_node_events(), []);
    // Neither does it while the node says HELLO again.
    pair.restart_control();
    pair.now += Micros::from_secs(2);
    pair.settle();
    pair.node.handle_datagram(pair.now, &welcome);
    pair.advance(Micros::from_secs(3));
    let events = pair.take_node_events();
    let joined = |event: &netstack::node::Event| match *event {
        netstack::node::Event::Joined {
            control, peer_key, ..
        } => Some((control.0, peer_key)),
        _ => None,
    };
    let mut newest_key = PEER_KEY;
    newest_key.0[0] += 2;
    let joined: Vec<_> = events.iter().map(joined).collect();
    assert!(joined == [Some((3, newest_key))], "{events:?}");
}

fn launch_of_nothing() -> LaunchSpec {
    LaunchSpec {
        job: JobId(1),
        rank: Rank(0),
        ranks: 1,
        size: 1,
        program: ProgramId([0; 32]),
        program_bytes: 0,
        launch_block_bytes: 0,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
        retention: Retention::default(),
        start: StartMode::OnCommand,
        cores: 0,
        core_bytes: 0,
        files: None,
    }
}

#[test]
fn a_launch_that_was_overtaken_by_a_later_one_is_not_taken() {
    let (mut pair, to_node, _) = joined_with_keys();
    let mut out = [0; MAX_DATAGRAM];
    let mut send = |pair: &mut Pair, seq, job| {
        let spec = LaunchSpec {
            job: JobId(job),
            ..launch_of_nothing()
        };
        let command = Command::Launch {
            spec,
            wrapped_key: [0; 16],
            block: None,
        };
        let header = Header {
            kind: Kind::Command,
            node: NodeId(3),
            epoch: BootEpoch(5),
            seq,
        };
        let length = datagram::emit(header, Some(&to_node), &mut out, |w| command.emit(w));
        pair.node.handle_datagram(pair.now, &out[..length]);
    };
    let launched = |pair: &mut Pair| -> Vec<JobId> {
        let events = pair.take_node_events().into_iter();
        let launch = |event| match event {
            netstack::node::Event::Launch { spec, .. } => Some(spec.job),
            _ => None,
        };
        events.filter_map(launch).collect()
    };
    pair.take_node_events();
    send(&mut pair, 1001, 9);
    assert_eq!(launched(&mut pair), [JobId(9)]);
    send(&mut pair, 1000, 8);
    assert_eq!(launched(&mut pair), []);
    // Control does not know either job: it tells the node to drop the one it has, and that one
    // is not launched again either.
    send(&mut pair, 1002, 9);
    assert_eq!(launched(&mut pair), []);
    send(&mut pair, 1003, 10);
    assert_eq!(launched(&mut pair), [JobId(10)]);
}

#[test]
fn a_retain_message_that_was_overtaken_or_comes_late_changes_nothing() {
    let (mut pair, to_node, _) = joined_with_keys();
    let program = ProgramId([7; 32]);
    let mut out = [0; MAX_DATAGRAM];
    let mut send = |pair: &mut Pair, seq, command: Command<'_>| {
        let header = Header {
            kind: Kind::Command,
            node: NodeId(3),
            epoch: BootEpoch(5),
            seq,
        };
        let length = datagram::emit(header, Some(&to_node), &mut out, |w| command.emit(w));
        pair.node.handle_datagram(pair.now, &out[..length]);
        // What the control node makes of the answers is another matter.
        let events = std::iter::from_fn(|| pair.node.poll_event());
        let events = events.filter(|event| !matches!(event, NodeEvent::Joined { .. }));
        events.collect::<Vec<_>>()
    };
    let retain = |job| Command::Retain {
        job: JobId(job),
        program,
        read_only: true,
    };
    let launch = |job| {
        let spec = LaunchSpec {
            job: JobId(job),
            ..launch_of_nothing()
        };
        Command::Launch {
            spec,
            wrapped_key: [0; 16],
            block: None,
        }
    };
    pair.take_node_events();
    let events = send(&mut pair, 1002, retain(9));
    assert!(matches!(
        events[..],
        [NodeEvent::Retain { job: JobId(9), .. }]
    ));
    assert_eq!(send(&mut pair, 1003, retain(9)), [], "repeated");
    assert_eq!(send(&mut pair, 1000, retain(8)), [], "overtaken");
    assert_eq!(send(&mut pair, 1001, launch(8)), [], "overtaken");
    pair.node.retain_result(pair.now, JobId(9), 12);
    assert_eq!(send(&mut pair, 1004, retain(9)), [], "answered");
    let events = send(&mut pair, 1005, launch(9));
    assert!(matches!(events[..], [NodeEvent::Launch { spec, .. }] if spec.job == JobId(9)));
    assert_eq!(send(&mut pair, 1006, retain(9)), [], "launched");
    let signal = 9;
    let cancel = Command::Cancel {
        job: JobId(9),
        signal,
        orphan: true,
        grace: Micros(0),
    };
    assert_eq!(send(&mut pair, 1007, cancel).len(), 1);
    assert_eq!(send(&mut pair, 1008, retain(9)), [], "over");
}

#[test]
fn reports_of_what_a_node_holds_are_taken_in_their_turn() {
    let (mut pair, _, to_control) = joined_with_keys();
    while pair.control.poll_event().is_some() {}
    let mut out = [0; MAX_DATAGRAM];
    // The join took report 1.
    for (seq, number, taken) in [(1001, 3, false), (1002, 2, true), (1003, 2, false)] {
        let report = Holdings {
            number,
            reset: false,
            held: Vec::new(),
            dropped: vec![ProgramId([1; 32])],
        };
        let header = Header {
            kind: Kind::Holdings,
            node: NodeId(3),
            epoch: BootEpoch(5),
            seq,
        };
        let length = datagram::emit(header, Some(&to_control), &mut out, |w| report.emit(w));
        pair.deliver(&out[..length]);
        let events = pair.take_control_events();
        assert_eq!(
            events.len(),
            usize::from(taken),
            "report {number}: {events:?}"
        );
        let answered = pair.control.poll_transmit(pair.now, &mut out).is_some();
        assert_eq!(answered, number == 2, "report {number}");
    }
}

#[test]
fn an_acknowledgement_is_not_sent_in_another_session() {
    let mut pair = Pair::joined();
    let holding = Holding {
        program: ProgramId([1; 32]),
        pages: 1,
        pristine: 0,
    };
    pair.node.hold(pair.now, holding);
    let reports = pair.take_datagrams_of_node();
    let mut out = [0; MAX_DATAGRAM];
    pair.now += Micros::from_secs(3);
    pair.reboot(BootEpoch(6));
    let hello = pair.first_datagram();
    pair.deliver(&hello);
    let (_, length) = pair.control.poll_transmit(pair.now, &mut out).unwrap();
    pair.node.handle_datagram(pair.now, &out[..length]);
    let heartbeat = pair.first_datagram();
    // Before the control node gets to send anything, another boot has the node's place.
    for datagram in reports {
        pair.deliver(&datagram);
    }
    pair.now += Micros::from_secs(3);
    pair.deliver(&heartbeat);
    let mut kinds = Vec::new();
    while let Some((_, length)) = pair.control.poll_transmit(pair.now, &mut out) {
        let packet = Packet::new_checked(&out[..length]).expect("it is well-formed");
        kinds.push(packet.header().kind);
    }
    assert_eq!(kinds, [Kind::HeartbeatAck]);
}

#[test]
fn a_recorded_hello_evicts_nobody_and_the_live_boot_is_never_refused() {
    for (boots, restarts, comes_first) in [
        (1, false, false),
        (1, true, false),
        (1, true, true),
        (12, false, false),
        (12, true, false),
        (12, true, true),
    ] {
        let mut pair = Pair::joined();
        let recorded = {
            pair.reboot(BootEpoch(70));
            let hello = pair.first_datagram();
            pair.deliver(&hello);
            pair.advance(Micros::from_secs(6));
            hello
        };
        for boot in 0..boots {
            pair.reboot(BootEpoch(100 + boot));
            pair.advance(Micros::from_secs(6));
        }
        if restarts {
            pair.restart_control();
        }
        if !comes_first {
            pair.advance(Micros::from_secs(3));
        }
        pair.take_control_events();
        pair.take_node_events();
        // The node stands still, and somebody says the HELLO of its earlier boot again and again.
        let mut out = [0; MAX_DATAGRAM];
        for _ in 0..13 {
            pair.now += Micros::from_millis(300);
            pair.deliver(&recorded);
            while pair.control.poll_transmit(pair.now, &mut out).is_some() {}
        }
        pair.advance(Micros::from_secs(5));
        let case = (boots, restarts, comes_first);
        let events = pair.take_control_events();
        let is_lost = |event: &Event| matches!(event, Event::NodeLost { .. });
        assert!(!events.iter().any(is_lost), "{case:?}: {events:?}");
        let is_refused = |event: &NodeEvent| matches!(event, NodeEvent::Refused { .. });
        let told = pair.take_node_events();
        assert!(!told.iter().any(is_refused), "{case:?}: {told:?}");
        assert!(pair.node.is_joined(), "{case:?}");
        let present = pair.control.node(NodeId(3)).map(|status| status.epoch);
        assert_eq!(present, Some(pair.epoch()), "{case:?}");
    }
}

#[test]
fn boots_that_were_used_are_remembered_over_a_restart_of_control() {
    let mut pair = Pair::joined();
    pair.reboot(BootEpoch(70));
    let recorded = pair.first_datagram();
    pair.deliver(&recorded);
    pair.advance(Micros::from_secs(6));
    pair.reboot(BootEpoch(71));
    pair.advance(Micros::from_secs(6));
    let mac = pair.mac();
    let mut boots: Vec<BootEpoch> = pair.control.earlier_boots(mac).collect();
    assert_eq!(boots.last(), Some(&BootEpoch(70)));
    boots.push(pair.epoch());
    pair.restart_control();
    for boot in boots {
        pair.control.remember_boot(mac, boot);
    }
    // Nobody else has said anything yet.
    pair.deliver(&recorded);
    let events = pair.take_control_events();
    assert!(
        matches!(
            &events[..],
            [Event::Rejected {
                reason: Refusal::KeyUsed,
                ..
            }]
        ),
        "{events:?}"
    );
    pair.advance(Micros::from_secs(6));
    assert!(pair.node.is_joined());
    let present = pair.control.node(NodeId(3)).map(|status| status.epoch);
    assert_eq!(present, Some(BootEpoch(71)));
}

#[test]
fn hints_to_unknown_senders_are_limited() {
    let mut pair = Pair::with(|_| {}, |config| config.limits.hints_per_second = 10);
    let mut out = [0; MAX_DATAGRAM];
    for seq in 1..=1000 {
        let header = Header {
            kind: Kind::Heartbeat,
            node: NodeId(3),
            epoch: BootEpoch(5),
            seq,
        };
        let length = datagram::emit(header, None, &mut out, |_| {});
        pair.deliver(&out[..length]);
    }
    let mut hints = 0;
    while let Some((_, length)) = pair.control.poll_transmit(pair.now, &mut out) {
        assert!(
            length <= 52,
            "a hint is no longer than what caused it, plus an echo"
        );
        hints += 1;
    }
    assert_eq!(hints, 10);
    assert_eq!(pair.control.counters().rate_limited, 990);
}

/// A HELLO of machine `mac` as node `node`, sealed with this cluster's key or with nonsense.
fn hello(mac: [u8; 6], node: u32, authentic: bool) -> Vec<u8> {
    let mut config = node_config(BootEpoch(1 + u64::from(node)));
    config.mac = mac;
    config.personality.node = NodeId(node);
    config.personality.key = if authentic {
        let secret = &crate::wire_pair::SECRET;
        netstack::personality::node_key(secret, 1, mac, config.boot_epoch, NodeId(node))
    } else {
        Key([0xee; 16])
    };
    let now = netstack::time::Instant::ZERO;
    let mut out = [0; MAX_DATAGRAM];
    let length = netstack::node::Endpoint::new(config, now).poll_transmit(now, &mut out);
    out[..length.expect("a node says HELLO")].to_vec()
}

#[test]
fn a_flood_of_strangers_silences_nobody_of_the_cluster() {
    let mut pair = Pair::joined();
    pair.control.admit_only(Some([pair.mac()].into()));
    for stranger in 0..2_000u32 {
        let [a, b, c, d] = stranger.to_be_bytes();
        pair.deliver(&hello([2, 0, a, b, c, d], 1_000 + stranger, false));
    }
    let events = pair.take_control_events();
    assert_eq!(events.len(), 256, "a flood gives no flood of events");
    // A machine with a key that is not admitted, and somebody who names a known machine.
    pair.deliver(&hello([2, 1, 0, 0, 0, 0], 77, true));
    pair.deliver(&hello(pair.mac(), 3, false));
    let events = pair.take_control_events();
    let reasons: Vec<_> = events
        .iter()
        .map(|event| match event {
            Event::Rejected { reason, .. } => *reason,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(reasons, [Refusal::NotAdmitted, Refusal::WrongKey]);
}

#[test]
fn resync_hints_are_heeded_once_a_second() {
    let mut pair = Pair::joined();
    let before = pair.node.counters().sent;
    let mut out = [0; MAX_DATAGRAM];
    for _ in 0..100 {
        let header = Header {
            kind: Kind::Resync,
            node: NodeId(3),
            epoch: BootEpoch(5),
            seq: 0,
        };
        let length = datagram::emit(header, None, &mut out, |writer| {
            writer.u64(1);
        });
        pair.node.handle_datagram(pair.now, &out[..length]);
    }
    pair.advance(Micros::from_millis(300));
    assert!(
        pair.node.counters().sent - before <= 2,
        "one HELLO and its confirmation"
    );
    assert!(pair.node.is_joined());
    assert_eq!(pair.take_node_events(), []);
}

#[test]
fn a_full_registry_refuses_and_makes_room_for_the_living() {
    let mut pair = Pair::with(|_| {}, |config| config.limits.nodes = 1);
    pair.settle();
    let mut other = node_config(BootEpoch(8));
    other.mac[5] = 4;
    other.personality.node = NodeId(4);
    other.personality.key = netstack::personality::node_key(
        &crate::wire_pair::SECRET,
        1,
        other.mac,
        other.boot_epoch,
        NodeId(4),
    );
    let mut second = netstack::node::Endpoint::new(other, pair.now);
    let events = pair.run_beside(&mut second, Micros::from_secs(3));
    assert!(
        matches!(
            &events[0],
            netstack::node::Event::Refused {
                reason: netstack::join::Refusal::RegistryFull,
                ..
            }
        ),
        "{events:?}"
    );
    pair.node.leave(pair.now);
    let events = pair.run_beside(&mut second, Micros::from_secs(40));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, netstack::node::Event::Joined { .. })),
        "{events:?}"
    );
}
