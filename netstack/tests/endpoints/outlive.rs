//! A job that outlives the control node: what the node keeps, what a later run of the control node
//! takes over. Loss, reordering and many nodes are the simulator's business (its scenario
//! `restart`).

use crate::jobs::{job_spec, running, write};
use crate::wire_pair::Pair;
use netstack::control;
use netstack::ids::{BootEpoch, CallId, JobId, LocalRank, NodeId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply, OFFSET_CURRENT};
use netstack::job::{AdoptedRank, JobSpec, RankLoss, StartMode};
use netstack::node;
use netstack::page::{Object, PageRequest};
use netstack::time::Micros;

const JOB: JobId = JobId(1);
const OPEN: AdoptedRank = AdoptedRank::Open { launch_on: None };

/// The calls that the control node was given, with their numbers; anything else must not have
/// happened.
fn calls(pair: &mut Pair) -> Vec<(u64, IoOp)> {
    pair.settle();
    let events = pair.take_control_events();
    let calls = events.into_iter().map(|event| match event {
        control::Event::IoCall { call, op, .. } => (call.0, op),
        other => panic!("{other:?}"),
    });
    calls.collect()
}

fn answer(pair: &mut Pair, call: u64, result: i64, data: &[u8]) {
    let data = data.to_vec();
    let reply = IoReply { result, data };
    pair.control
        .io_reply(pair.now, NodeId(3), (JOB, Rank(0)), CallId(call), reply);
}

/// The control node is started again, knows of the job, and hears its node.
fn adopted(pair: &mut Pair, rank: AdoptedRank, spec: JobSpec, begun: bool) -> Vec<control::Event> {
    pair.restart_control();
    pair.control
        .adopt(spec, begun, &[rank])
        .expect("the endpoint is new");
    pair.advance(Micros::from_secs(3));
    pair.take_control_events()
}

#[test]
fn calls_go_on_where_they_stopped_and_only_those_without_an_answer_come_again() {
    let mut pair = running();
    for text in ["one", "two", "three"] {
        let op = write(text.as_bytes());
        pair.node
            .io_submit(pair.now, JOB, LocalRank::FIRST, op)
            .expect("room");
    }
    assert_eq!(calls(&mut pair).len(), 3);
    answer(&mut pair, 1, 3, b"");
    // The answer to the third arrives, that to the second does not.
    answer(&mut pair, 3, 5, b"");
    pair.settle();
    answer(&mut pair, 2, 3, b"");
    pair.cut = true;
    pair.settle();
    let op = write(b"four");
    pair.node
        .io_submit(pair.now, JOB, LocalRank::FIRST, op)
        .expect("room");
    pair.cut = false;
    assert_eq!(pair.take_node_events().len(), 2);

    let events = adopted(&mut pair, OPEN, job_spec(1), true);
    let joined = matches!(
        events[..3],
        [
            control::Event::NodeJoined { .. },
            control::Event::Claimed { input_bytes: 0, .. },
            control::Event::Started { .. },
        ]
    );
    assert!(joined, "{events:?}");
    let again: Vec<u64> = events[3..]
        .iter()
        .map(|event| match event {
            control::Event::IoCall { call, .. } => call.0,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(again, [2, 4]);
    answer(&mut pair, 2, 3, b"");
    answer(&mut pair, 4, 4, b"");
    let exit = IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Exited(7))));
    pair.node
        .io_submit(pair.now, JOB, LocalRank::FIRST, exit.clone())
        .expect("an exit is always taken");
    assert_eq!(calls(&mut pair), [(5, exit)]);
    answer(&mut pair, 5, 0, b"");
    assert!(matches!(
        pair.take_control_events()[..],
        [control::Event::JobClosed { job: JOB }]
    ));
    pair.settle();
    pair.control
        .launch(pair.now, job_spec(2))
        .expect("the node is free");
}

#[test]
fn what_was_read_is_told_and_pages_wait() {
    let mut pair = running();
    let read = IoOp::Read {
        fd: 0,
        offset: OFFSET_CURRENT,
        size: 100,
    };
    pair.node
        .io_submit(pair.now, JOB, LocalRank::FIRST, read.clone())
        .expect("room");
    assert_eq!(calls(&mut pair).len(), 1);
    answer(&mut pair, 1, 5, b"hello");
    pair.settle();
    pair.node
        .io_submit(pair.now, JOB, LocalRank::FIRST, read)
        .expect("room");
    let ask = PageRequest {
        job: JOB,
        object: Object::Program,
        offset: 0,
        length: 4096,
        demand: true,
    };
    pair.node
        .request_pages(pair.now, ask)
        .expect("nothing else is asked for");
    pair.take_node_events();
    // Longer than a page is asked for where somebody could answer.
    pair.cut = true;
    pair.advance(Micros::from_secs(120));
    assert_eq!(pair.take_node_events(), [node::Event::ControlLost]);
    pair.cut = false;
    let events = adopted(&mut pair, OPEN, job_spec(1), true);
    let claimed =
        |event: &control::Event| matches!(event, control::Event::Claimed { input_bytes: 5, .. });
    assert!(events.iter().any(claimed), "{events:?}");
    let wanted = |event: &control::Event| matches!(event, control::Event::PageWanted(_));
    assert!(events.iter().any(wanted), "{events:?}");
    assert_eq!(pair.node.counters().page_timeouts, 0);
}

#[test]
fn a_job_that_nobody_knows_is_dropped_and_one_that_nobody_asks_for_ends_in_time() {
    let keep = netstack::join::Timing::default().keep_job;
    let mut pair = running();
    pair.cut = true;
    let begin = pair.now;
    pair.advance(Micros(keep.0 - 1_000_000));
    assert_eq!(pair.take_node_events(), [node::Event::ControlLost]);
    pair.advance(Micros::from_secs(5));
    let dropped = node::Event::Cancel {
        job: JOB,
        signal: 9,
        orphan: true,
        grace: Micros(0),
    };
    assert_eq!(pair.take_node_events(), std::slice::from_ref(&dropped));
    assert!(pair.last_node_event.saturating_since(begin) >= keep);
    // Who comes for it too late hears that it was here.
    pair.cut = false;
    let events = adopted(&mut pair, OPEN, job_spec(1), true);
    let gave_up = |event: &control::Event| {
        let reason = RankLoss::GivenUp;
        matches!(event, control::Event::RankLost { reason: of, .. } if *of == reason)
    };
    assert!(events.iter().any(gave_up), "{events:?}");

    let mut pair = running();
    pair.restart_control();
    pair.advance(Micros::from_secs(3));
    let events = pair.take_node_events();
    assert_eq!(events.last(), Some(&dropped), "{events:?}");
}

#[test]
fn a_launch_that_never_arrived_is_sent_again_to_the_same_boot_only() {
    let at_once = || JobSpec {
        start: StartMode::AtOnce,
        ..job_spec(1)
    };
    for (boot, goes_on) in [
        (Some(BootEpoch(5)), true),
        (Some(BootEpoch(4)), false),
        (None, false),
    ] {
        let mut pair = Pair::joined();
        let rank = AdoptedRank::Open { launch_on: boot };
        let events = adopted(&mut pair, rank, at_once(), false);
        let lost = |event: &control::Event| {
            let reason = RankLoss::Forgotten;
            matches!(event, control::Event::RankLost { reason: of, .. } if *of == reason)
        };
        assert_eq!(!events.iter().any(lost), goes_on, "{events:?}");
        let launched = |event: &node::Event| matches!(event, node::Event::Launch { .. });
        let events = pair.take_node_events();
        assert_eq!(events.iter().any(launched), goes_on, "{events:?}");
    }
}

#[test]
fn a_start_and_a_cancel_that_did_not_arrive_are_repeated() {
    for begun in [true, false] {
        let mut pair = Pair::joined();
        pair.control
            .launch(pair.now, job_spec(1))
            .expect("the node is up and free");
        pair.settle();
        pair.node.launch_result(pair.now, JOB, Ok(()));
        pair.settle();
        pair.take_node_events();
        let events = adopted(&mut pair, OPEN, job_spec(1), begun);
        let ready = |event: &control::Event| {
            matches!(event, control::Event::LaunchReady { waiting: 0, .. })
        };
        assert!(events.iter().any(ready), "{events:?}");
        let start = node::Event::Start { job: JOB };
        assert_eq!(pair.take_node_events().contains(&start), begun);
        pair.control.cancel(pair.now, JOB, 15, Micros(0));
        pair.settle();
        let cancel = node::Event::Cancel {
            job: JOB,
            signal: 15,
            orphan: false,
            grace: Micros(0),
        };
        assert_eq!(pair.take_node_events(), [cancel]);
    }
}

#[test]
fn a_node_that_does_not_come_back_is_given_up_and_drops_the_job_when_it_does() {
    let mut pair = running();
    pair.restart_control();
    pair.cut = true;
    let adopted = pair.control.adopt(job_spec(1), true, &[OPEN]);
    adopted.expect("the endpoint is new");
    pair.advance(Micros::from_secs(60));
    assert_eq!(pair.take_control_events(), []);
    assert!(pair.control.abandon(NodeId(3), JOB));
    assert!(!pair.control.abandon(NodeId(3), JOB));
    assert!(matches!(
        pair.take_control_events()[..],
        [control::Event::JobClosed { job: JOB }]
    ));
    pair.cut = false;
    pair.advance(Micros::from_secs(5));
    let dropped = node::Event::Cancel {
        job: JOB,
        signal: 9,
        orphan: true,
        grace: Micros(0),
    };
    assert_eq!(pair.take_node_events().last(), Some(&dropped));
}
