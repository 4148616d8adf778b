//! Retention: what RETAIN, DROP, start at once and HOLDINGS lead to on a perfect wire, and that
//! what the control node believes is what the node holds, whatever the network and the two sides
//! do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::jobs::job_spec;
use crate::wire_pair::Pair;
use netstack::control::{self, DropRefused};
use netstack::ids::{JobId, LocalRank, NodeId, ProgramId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp};
use netstack::job::{JobSpec, LaunchRefusal, RefusalCode, StartMode};
use netstack::node;
use netstack::page::{FRAGMENT, Object, PageReply, PageRequest, PageTraffic};
use netstack::retention::{CHANGES_MAX, HOLDINGS_MAX, Holding, Keep, Retention, Reuse, Verify};
use netstack::time::Micros;
use netstack::wire::job::INLINE_BLOCK_MAX;

const NODE: NodeId = NodeId(3);

fn program(number: u8) -> ProgramId {
    ProgramId([number; 32])
}

fn holding(number: u8, pages: u32) -> Holding {
    Holding {
        program: program(number),
        pages,
        pristine: pages / 4,
    }
}

fn at_once(job: u64) -> JobSpec {
    JobSpec {
        start: StartMode::AtOnce,
        ..job_spec(job)
    }
}

fn retaining(job: u64) -> JobSpec {
    let mut spec = job_spec(job);
    spec.places[0].retain = true;
    spec
}

fn exit() -> IoOp {
    IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Exited(0))))
}

/// What the control node believes after these events.
fn view(before: &mut BTreeMap<ProgramId, Holding>, events: &[control::Event]) {
    for event in events {
        if let control::Event::Holdings {
            reset,
            held,
            dropped,
            ..
        } = event
        {
            if *reset {
                before.clear();
            }
            for program in dropped {
                before.remove(program);
            }
            before.extend(held.iter().map(|holding| (holding.program, *holding)));
        }
    }
}

#[test]
fn the_policy_and_the_launch_block_come_with_the_launch() {
    for length in [28, INLINE_BLOCK_MAX, INLINE_BLOCK_MAX + 1] {
        let mut pair = Pair::joined();
        let block: Arc<[u8]> = (0..length).map(|i| i as u8).collect();
        let mut spec = at_once(1);
        spec.places[0].launch_block = block.clone();
        spec.retention = Retention {
            reuse: Reuse::Require,
            keep: Keep::Published,
            read_only: false,
            pristine: true,
            verify: Verify::Always,
            limit_pages: 99,
        };
        let retention = spec.retention;
        pair.control.launch(pair.now, spec).expect("the node is up");
        pair.settle();
        let events = pair.take_node_events();
        let [
            node::Event::Launch {
                spec, block: came, ..
            },
        ] = &events[..]
        else {
            panic!("{events:?}");
        };
        assert_eq!((spec.retention, spec.start), (retention, StartMode::AtOnce));
        assert_eq!(spec.launch_block_bytes as usize, length);
        let fits = length <= INLINE_BLOCK_MAX;
        assert_eq!(
            came.as_deref(),
            fits.then_some(&block[..]),
            "{length} bytes"
        );
    }
}

#[test]
fn a_job_that_starts_at_once_starts_once_however_often_its_answer_is_lost() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, at_once(1))
        .expect("the node is up");
    pair.settle();
    pair.node.launch_result(pair.now, JobId(1), Ok(()));
    pair.cut = true;
    pair.advance(Micros::from_millis(300));
    pair.cut = false;
    pair.advance(Micros::from_secs(5));
    let started = control::Event::Started {
        job: JobId(1),
        node: NODE,
        rank: Rank(0),
    };
    assert_eq!(pair.take_control_events(), [started]);
    let events = pair.take_node_events();
    assert!(
        matches!(events[..], [node::Event::Launch { .. }]),
        "a program that starts at once gets no start: {events:?}"
    );
}

#[test]
fn the_first_call_of_a_job_that_starts_at_once_says_that_it_runs() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, at_once(1))
        .expect("the node is up");
    pair.settle();
    pair.node.launch_result(pair.now, JobId(1), Ok(()));
    let answer = pair.take_datagrams_of_node();
    pair.node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, exit())
        .expect("there is room");
    let call = pair.take_datagrams_of_node();
    for datagram in call.iter().chain(&answer) {
        pair.deliver(datagram);
    }
    let events = pair.take_control_events();
    assert!(
        matches!(
            events[..],
            [
                control::Event::Started { .. },
                control::Event::IoCall { .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn a_job_that_starts_at_once_is_cancelled_before_and_after_its_start() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, at_once(1))
        .expect("the node is up");
    pair.settle();
    pair.control.cancel(pair.now, JobId(1), 2, Micros(0));
    pair.settle();
    let events = pair.take_node_events();
    assert!(
        matches!(
            events[..],
            [node::Event::Launch { .. }, node::Event::Cancel { .. }]
        ),
        "{events:?}"
    );
    // It was loaded already.
    pair.node.launch_result(pair.now, JobId(1), Ok(()));
    let report = ExitReport::new(ExitStatus::Signal(2));
    pair.node
        .io_submit(
            pair.now,
            JobId(1),
            LocalRank::FIRST,
            IoOp::Exit(Box::new(report)),
        )
        .expect("there is room");
    pair.settle();
    let events = pair.take_control_events();
    assert!(
        matches!(
            events[..],
            [
                control::Event::Started { .. },
                control::Event::IoCall { .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn a_node_that_holds_nothing_refuses_a_launch_that_must_be_warm() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, at_once(1))
        .expect("the node is up");
    pair.settle();
    let (code, text) = (RefusalCode::NotWarm, String::from("nothing held"));
    let refusal = LaunchRefusal { code, text };
    pair.node.launch_result(pair.now, JobId(1), Err(refusal));
    pair.settle();
    let events = pair.take_control_events();
    let [
        control::Event::LaunchRefused { code, .. },
        control::Event::JobClosed { .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(*code, RefusalCode::NotWarm);
}

#[test]
fn a_retain_message_comes_before_the_launch_and_is_answered() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, retaining(1))
        .expect("the node is up");
    pair.advance(Micros::from_secs(3));
    let retain = node::Event::Retain {
        job: JobId(1),
        program: program(7),
        read_only: true,
    };
    assert_eq!(
        pair.take_node_events(),
        [retain],
        "once, and no launch before the answer"
    );
    pair.node.retain_result(pair.now, JobId(1), 42);
    pair.settle();
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::Retained { pages: 42, .. }]),
        "{events:?}"
    );
    let events = pair.take_node_events();
    assert!(
        matches!(events[..], [node::Event::Launch { spec, .. }] if spec.job == JobId(1)),
        "{events:?}"
    );
}

#[test]
fn a_retain_message_ends_the_job_before_it() {
    let mut pair = crate::jobs::running();
    pair.cut = true;
    pair.advance(Micros::from_secs(10));
    pair.take_node_events();
    pair.take_control_events();
    pair.cut = false;
    pair.advance(Micros::from_secs(1));
    pair.control
        .launch(pair.now, retaining(2))
        .expect("the node is back and free");
    pair.settle();
    let events = pair.take_node_events();
    let orphan = |event: &node::Event| {
        matches!(
            event,
            node::Event::Cancel {
                job: JobId(1),
                orphan: true,
                ..
            }
        )
    };
    let retain = |event: &node::Event| matches!(event, node::Event::Retain { job: JobId(2), .. });
    let (first, second) = (
        events.iter().position(orphan),
        events.iter().position(retain),
    );
    assert!(first.is_some() && first < second, "{events:?}");
}

#[test]
fn a_job_cancelled_after_its_retain_message_is_never_launched() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, retaining(1))
        .expect("the node is up");
    pair.settle();
    pair.control.cancel(pair.now, JobId(1), 15, Micros(0));
    pair.settle();
    let events = pair.take_control_events();
    let [
        control::Event::LaunchRefused { code, .. },
        control::Event::JobClosed { .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(*code, RefusalCode::Cancelled);
    // The node answers too late.
    pair.node.retain_result(pair.now, JobId(1), 42);
    pair.advance(Micros::from_secs(5));
    assert_eq!(pair.take_control_events(), []);
    let events = pair.take_node_events();
    assert!(
        matches!(events[..], [node::Event::Retain { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_drop_is_carried_out_once_and_answered_until_that_arrives() {
    let mut pair = Pair::joined();
    let one = pair
        .control
        .drop_program(pair.now, NODE, Some(program(1)))
        .expect("the node is up");
    let all = pair
        .control
        .drop_program(pair.now, NODE, None)
        .expect("the node is up");
    assert!(all > one, "ids rise");
    pair.advance(Micros::from_secs(3));
    let drop_one = node::Event::Drop {
        id: one,
        program: Some(program(1)),
    };
    assert_eq!(
        pair.take_node_events(),
        [drop_one],
        "the second waits for the first"
    );
    pair.node.drop_result(pair.now, one, 12, true);
    pair.cut = true;
    pair.advance(Micros::from_secs(1));
    pair.cut = false;
    pair.advance(Micros::from_secs(2));
    let dropped = control::Event::ProgramDropped {
        node: NODE,
        id: one,
        pages: 12,
        in_use: true,
    };
    assert_eq!(pair.take_control_events(), [dropped]);
    let drop_all = node::Event::Drop {
        id: all,
        program: None,
    };
    assert_eq!(pair.take_node_events(), [drop_all]);
    // The node is lost before it answers: nobody waits any more.
    pair.cut = true;
    pair.advance(Micros::from_secs(10));
    let refused = pair.control.drop_program(pair.now, NODE, None);
    assert_eq!(refused, Err(DropRefused::NotUp));
    pair.cut = false;
    pair.node.drop_result(pair.now, all, 1, false);
    pair.advance(Micros::from_secs(3));
    let events = pair.take_control_events();
    assert!(
        matches!(
            events[..],
            [
                control::Event::NodeLost { .. },
                control::Event::NodeJoined { .. }
            ]
        ),
        "{events:?}"
    );
}

#[test]
fn drops_that_wait_are_bounded() {
    let mut pair = Pair::joined();
    pair.cut = true;
    for _ in 0..HOLDINGS_MAX {
        let asked = pair.control.drop_program(pair.now, NODE, None);
        asked.expect("there is room");
    }
    let refused = pair.control.drop_program(pair.now, NODE, None);
    assert_eq!(refused, Err(DropRefused::TooMany));
    let stranger = pair.control.drop_program(pair.now, NodeId(4), None);
    assert_eq!(stranger, Err(DropRefused::NotUp));
}

#[test]
fn a_node_says_at_once_what_it_holds_and_each_change_once() {
    let mut pair = Pair::joined();
    assert!(pair.node.holdings_acked(), "it has said that it is nothing");
    pair.node.hold(pair.now, holding(1, 100));
    assert!(!pair.node.holdings_acked());
    pair.node.hold(pair.now, holding(2, 50));
    pair.settle();
    pair.node.hold(pair.now, holding(1, 120));
    pair.node.unhold(pair.now, program(2));
    pair.node.unhold(pair.now, program(9));
    pair.settle();
    assert!(pair.node.holdings_acked());
    pair.node.hold(pair.now, holding(1, 120));
    assert!(pair.node.holdings_acked(), "nothing has changed");
    let report = |held: &[Holding], dropped: &[ProgramId]| control::Event::Holdings {
        node: NODE,
        boot_epoch: pair.epoch(),
        reset: false,
        held: held.to_vec(),
        dropped: dropped.to_vec(),
    };
    let expected = [
        report(&[holding(1, 100), holding(2, 50)], &[]),
        report(&[holding(1, 120)], &[program(2)]),
    ];
    assert_eq!(pair.take_control_events(), expected);
    let listed: Vec<Holding> = pair.node.holdings().copied().collect();
    assert_eq!(listed, [holding(1, 120)]);
}

#[test]
fn a_new_session_begins_with_everything_in_pieces() {
    let mut pair = Pair::joined();
    for number in 0..HOLDINGS_MAX as u8 {
        pair.node.hold(pair.now, holding(number, 10));
    }
    pair.settle();
    pair.take_control_events();
    pair.restart_control();
    pair.advance(Micros::from_secs(3));
    let mut events = pair.take_control_events();
    events.retain(|event| matches!(event, control::Event::Holdings { .. }));
    assert_eq!(events.len(), HOLDINGS_MAX.div_ceil(CHANGES_MAX));
    let mut held = BTreeMap::new();
    view(&mut held, &events);
    assert_eq!(held.len(), HOLDINGS_MAX);
    for (index, event) in events.iter().enumerate() {
        assert!(
            matches!(event, control::Event::Holdings { reset, .. } if *reset == (index == 0)),
            "{event:?}"
        );
    }
}

#[test]
fn programs_dropped_are_told_before_those_that_took_their_place() {
    let mut pair = Pair::joined();
    let full = HOLDINGS_MAX as u8;
    for number in 0..full {
        pair.node.hold(pair.now, holding(200 - number, 10));
    }
    pair.settle();
    let mut believed = BTreeMap::new();
    view(&mut believed, &pair.take_all_control_events());
    assert_eq!(believed.len(), HOLDINGS_MAX);
    // While the control node is away, most are replaced by others.
    pair.cut = true;
    for number in 0..60 {
        pair.node.unhold(pair.now, program(200 - number));
        pair.node.hold(pair.now, holding(number, 10));
    }
    pair.cut = false;
    pair.advance(Micros::from_secs(3));
    let events = pair.take_all_control_events();
    assert_eq!(events.len(), 120usize.div_ceil(CHANGES_MAX));
    for event in &events {
        view(&mut believed, std::slice::from_ref(event));
        assert!(
            believed.len() <= HOLDINGS_MAX,
            "{} programs",
            believed.len()
        );
    }
    let held: Vec<Holding> = pair.node.holdings().copied().collect();
    assert_eq!(believed.into_values().collect::<Vec<_>>(), held);
}

#[test]
fn with_more_changes_than_it_remembers_a_node_says_everything_anew() {
    let mut pair = Pair::joined();
    pair.node.hold(pair.now, holding(255, 5));
    pair.settle();
    let mut believed = BTreeMap::new();
    view(&mut believed, &pair.take_all_control_events());
    pair.cut = true;
    for number in 0..=250 {
        pair.node.hold(pair.now, holding(number, 10));
        pair.settle();
        pair.node.unhold(pair.now, program(number));
    }
    pair.node.hold(pair.now, holding(251, 10));
    pair.cut = false;
    pair.advance(Micros::from_secs(3));
    view(&mut believed, &pair.take_all_control_events());
    let held: Vec<Holding> = pair.node.holdings().copied().collect();
    assert_eq!(believed.into_values().collect::<Vec<_>>(), held);
}

#[test]
#[should_panic(expected = "a node holds at most 64 programs")]
fn more_programs_than_a_node_can_hold_are_a_mistake_of_the_node() {
    let mut pair = Pair::joined();
    for number in 0..=HOLDINGS_MAX as u8 {
        pair.node.hold(pair.now, holding(number, 1));
    }
}

#[test]
fn the_traffic_for_a_program_is_what_crossed_the_wire() {
    let mut pair = crate::jobs::running();
    let job = JobId(1);
    assert_eq!(pair.node.page_traffic(job), PageTraffic::default());
    let (mut up, mut down) = (0, 0);
    for object in [Object::Program, Object::LaunchBlock, Object::PageHashes] {
        let ask = PageRequest {
            job,
            object,
            offset: 0,
            length: 4096,
            demand: true,
        };
        pair.node
            .request_pages(pair.now, ask)
            .expect("nothing else is asked for");
        // The request and the answer are each lost once, and the answer comes twice.
        let counts = object == Object::Program;
        pair.take_datagrams_of_node();
        pair.advance(Micros::from_millis(400));
        // What it asks for until now is not answered.
        pair.take_control_events();
        pair.advance(Micros::from_millis(400));
        let (mut came, mut done) = (0, Vec::new());
        while done.is_empty() {
            for event in pair.take_control_events() {
                let control::Event::PageWanted(wanted) = event else {
                    panic!("{event:?}")
                };
                came += 2 * u64::from(wanted.fragments.count_ones());
                let bytes = Ok(vec![1; 4096]);
                let reply = PageReply { wanted, bytes };
                pair.control.page_data(pair.now, reply.clone());
                pair.control.page_data(pair.now, reply);
            }
            pair.advance(Micros::from_millis(100));
            done = pair.take_node_events();
        }
        assert!(matches!(done[..], [node::Event::Data { .. }]), "{done:?}");
        pair.take_control_events();
        if counts {
            let traffic = pair.node.page_traffic(job);
            assert_eq!(traffic.fragments, came);
            // Of the last fragment two bytes are missing.
            let bytes = came * FRAGMENT as u64;
            assert!((bytes - came * 2..bytes).contains(&traffic.bytes));
            assert!(traffic.requests >= 3, "{traffic:?}");
            (up, down) = (traffic.requests, traffic.fragments);
            // 42 bytes of Ethernet, IPv4 and UDP, 44 around every payload.
            let wire = up * (42 + 44 + 36) + down * (42 + 44 + 16) + traffic.bytes;
            assert_eq!(traffic.wire_bytes, wire);
        }
    }
    let traffic = pair.node.page_traffic(job);
    assert_eq!((traffic.requests, traffic.fragments), (up, down));
    assert_eq!(pair.node.page_traffic(JobId(2)), PageTraffic::default());
}
