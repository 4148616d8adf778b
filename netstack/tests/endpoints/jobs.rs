//! One node and the control node, joined by a perfect wire with no delay: what a job leads to.
//! Loss, reordering and many nodes are the simulator's business.

use crate::wire_pair::Pair;
use netstack::control::{self, LostReason};
use netstack::ids::{CallId, JobId, LocalRank, NodeId, ProgramId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply, OFFSET_CURRENT, SubmitError};
use netstack::job::{JobSpec, LaunchRefusal, PlaceSpec, RankLoss, RefusalCode, StartMode};
use netstack::node;
use netstack::page::{Object, PageError, PageReply, PageRequest};
use netstack::retention::Retention;
use netstack::time::Micros;

/// When [`job_spec`]'s jobs were handed in.
pub const SUBMITTED_US: u64 = 1_700_000_000_000_000;

pub fn job_spec(job: u64) -> JobSpec {
    JobSpec {
        job: JobId(job),
        submitted_us: SUBMITTED_US,
        places: vec![PlaceSpec {
            node: NodeId(3),
            ranks: 1,
            launch_block: [0; 100].into(),
            retain: false,
            files: None,
        }],
        program: ProgramId([7; 32]),
        program_bytes: 100_000,
        time_limit_us: 0,
        monitor_period_us: 0,
        memory_limit: 0,
        retention: Retention::default(),
        start: StartMode::OnCommand,
        cores: 0,
        core_bytes: 0,
    }
}

/// A joined pair with job 1 loaded and started.
pub fn running() -> Pair {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, job_spec(1))
        .expect("the node is up and free");
    pair.settle();
    assert!(
        matches!(pair.take_node_events()[..], [node::Event::Launch { spec, .. }] if spec.size == 1)
    );
    pair.node.launch_result(pair.now, JobId(1), Ok(()));
    pair.settle();
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::LaunchReady { waiting: 0, .. }]),
        "{events:?}"
    );
    pair.control.start(pair.now, JobId(1));
    pair.settle();
    assert_eq!(
        pair.take_node_events(),
        [node::Event::Start { job: JobId(1) }]
    );
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::Started { .. }]),
        "{events:?}"
    );
    pair
}

pub fn write(data: &[u8]) -> IoOp {
    IoOp::Write {
        fd: 1,
        offset: OFFSET_CURRENT,
        data: data.to_vec(),
    }
}

#[test]
fn a_job_runs_and_its_output_comes_before_its_end() {
    let mut pair = running();
    for text in ["one", "two", "three"] {
        pair.node
            .io_submit(pair.now, JobId(1), LocalRank::FIRST, write(text.as_bytes()))
            .expect("there is room");
    }
    let exit = IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Exited(7))));
    pair.node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, exit.clone())
        .expect("an exit is always taken");
    assert_eq!(
        pair.node
            .io_submit(pair.now, JobId(1), LocalRank::FIRST, write(b"x")),
        Err(SubmitError::AfterExit)
    );
    pair.settle();
    let mut seen = Vec::new();
    for event in pair.take_control_events() {
        let control::Event::IoCall {
            node,
            job,
            rank: Rank(0),
            call,
            op,
        } = event
        else {
            panic!("{event:?}");
        };
        let result = if let IoOp::Write { data, .. } = &op {
            data.len() as i64
        } else {
            0
        };
        seen.push(op);
        let reply = IoReply {
            result,
            data: Vec::new(),
        };
        pair.control
            .io_reply(pair.now, node, (job, Rank(0)), call, reply);
    }
    assert_eq!(seen, [write(b"one"), write(b"two"), write(b"three"), exit]);
    assert!(matches!(
        pair.take_control_events()[..],
        [control::Event::JobClosed { .. }]
    ));
    pair.control
        .launch(pair.now, job_spec(2))
        .expect("the node is free again at once");
    pair.settle();
    let events = pair.take_node_events();
    assert_eq!(events.len(), 5, "four calls done and a launch: {events:?}");
    assert!(matches!(events[4], node::Event::Launch { spec, .. } if spec.job == JobId(2)));
    assert_eq!(
        pair.node
            .io_submit(pair.now, JobId(1), LocalRank::FIRST, write(b"x")),
        Err(SubmitError::UnknownJob)
    );
}

#[test]
fn pages_arrive_whole_and_up_to_the_end_of_the_object() {
    let mut pair = running();
    let file: Vec<u8> = (0..100_000u32).map(|i| (i / 7) as u8).collect();
    for (offset, length, expected) in [
        (0, 32_768, 32_768),
        (98_304, 4096, 1696),
        (99_999, 4096, 1),
        (200_000, 4096, 0),
    ] {
        let object = Object::Program;
        let ask = PageRequest {
            job: JobId(1),
            object,
            offset,
            length,
            demand: true,
        };
        let asked = pair
            .node
            .request_pages(pair.now, ask)
            .expect("nothing else is asked for");
        pair.settle();
        for event in pair.take_control_events() {
            let control::Event::PageWanted(wanted) = event else {
                panic!("{event:?}")
            };
            let start = (wanted.offset as usize).min(file.len());
            let end = (start + wanted.length as usize).min(file.len());
            let bytes = Ok(file[start..end].to_vec());
            pair.control
                .page_data(pair.now, PageReply { wanted, bytes });
        }
        pair.settle();
        let events = pair.take_node_events();
        let [node::Event::Data { request, bytes, .. }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!((*request, bytes.len()), (asked, expected));
        assert_eq!(
            bytes[..],
            file[(offset as usize).min(file.len())..][..expected]
        );
    }
}

#[test]
fn a_page_that_cannot_be_read_fails_with_the_reason() {
    let mut pair = running();
    let object = Object::LaunchBlock;
    let ask = PageRequest {
        job: JobId(1),
        object,
        offset: 0,
        length: 100,
        demand: true,
    };
    let asked = pair
        .node
        .request_pages(pair.now, ask)
        .expect("nothing else is asked for");
    pair.settle();
    let events = pair.take_control_events();
    let [control::Event::PageWanted(wanted)] = events[..] else {
        panic!("{events:?}")
    };
    let bytes = Err(PageError::NoSuchObject);
    pair.control
        .page_data(pair.now, PageReply { wanted, bytes });
    pair.settle();
    let reason = PageError::NoSuchObject;
    let failed = node::Event::PageFailed {
        request: asked,
        job: JobId(1),
        reason,
    };
    assert_eq!(pair.take_node_events(), [failed]);
}

#[test]
fn a_page_request_ends_when_nobody_answers() {
    let mut pair = running();
    let object = Object::Program;
    let ask = PageRequest {
        job: JobId(1),
        object,
        offset: 0,
        length: 4096,
        demand: true,
    };
    let asked = pair
        .node
        .request_pages(pair.now, ask)
        .expect("nothing else is asked for");
    let begin = pair.now;
    pair.advance(Micros::from_secs(60));
    let reason = PageError::TimedOut;
    let failed = node::Event::PageFailed {
        request: asked,
        job: JobId(1),
        reason,
    };
    assert_eq!(pair.take_node_events(), [failed]);
    assert!(pair.last_node_event.saturating_since(begin) > Micros::from_secs(10));
    assert_eq!(pair.node.counters().page_timeouts, 1);
}

#[test]
fn a_call_stays_pending_until_it_is_answered() {
    let mut pair = running();
    let read = IoOp::Read {
        fd: 0,
        offset: OFFSET_CURRENT,
        size: 10,
    };
    let call = pair
        .node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, read)
        .expect("there is room");
    pair.advance(Micros::from_secs(30));
    assert_eq!(pair.take_node_events(), []);
    assert_eq!(
        pair.take_control_events().len(),
        1,
        "the call is handed on once"
    );
    assert!(
        pair.node.counters().retransmitted < 60,
        "a pending call is asked for slowly"
    );
    let reply = IoReply {
        result: 5,
        data: b"hello".to_vec(),
    };
    pair.control
        .io_reply(pair.now, NodeId(3), (JobId(1), Rank(0)), call, reply);
    pair.settle();
    let (job, data) = (JobId(1), b"hello".to_vec());
    let done = node::Event::IoDone {
        job,
        rank: LocalRank::FIRST,
        call: CallId(1),
        result: 5,
        data,
    };
    assert_eq!(pair.take_node_events(), [done]);
}

#[test]
fn the_queue_of_calls_is_bounded_and_takes_the_exit() {
    let mut pair = running();
    let mut taken = 0;
    let full = loop {
        match pair
            .node
            .io_submit(pair.now, JobId(1), LocalRank::FIRST, write(&[b'x'; 1280]))
        {
            Ok(_) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(
        (taken, full),
        (51, SubmitError::Full),
        "51 * 1,280 bytes fit 64 KiB"
    );
    let large = pair
        .node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, write(&[0; 1281]));
    assert_eq!(large, Err(SubmitError::TooLarge));
    pair.settle();
    assert_eq!(
        pair.take_control_events().len(),
        8,
        "a window of calls is under way"
    );
    let exit = IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Signal(9))));
    pair.node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, exit)
        .expect("an exit is always taken");
}

/// The signals among what a node was told.
fn signals(pair: &mut Pair) -> Vec<u8> {
    let signal = |event| match event {
        node::Event::Signal {
            job: JobId(1),
            signal,
        } => signal,
        event => panic!("{event:?}"),
    };
    pair.take_node_events().into_iter().map(signal).collect()
}

#[test]
fn signals_reach_a_running_job_once_each_and_in_order() {
    let mut pair = running();
    for signal in [10, 12, 10] {
        pair.control.signal(pair.now, JobId(1), signal);
    }
    pair.settle();
    assert_eq!(signals(&mut pair), [10, 12, 10]);
    // One that the network loses at first.
    pair.cut = true;
    pair.control.signal(pair.now, JobId(1), 64);
    pair.settle();
    assert_eq!(signals(&mut pair), []);
    pair.cut = false;
    pair.advance(Micros::from_secs(3));
    assert_eq!(signals(&mut pair), [64]);
    // After its end there is nobody to get one, and a job that is not known gets none.
    let exit = IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Exited(0))));
    pair.node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, exit)
        .expect("an exit is always taken");
    pair.settle();
    pair.control.signal(pair.now, JobId(1), 10);
    pair.control.signal(pair.now, JobId(2), 10);
    pair.advance(Micros::from_secs(3));
    assert_eq!(signals(&mut pair), []);
}

#[test]
fn a_signal_waits_for_the_start_and_no_more_than_there_is_room_for() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, job_spec(1))
        .expect("the node is up and free");
    for number in 0..100 {
        pair.control.signal(pair.now, JobId(1), 1 + number % 64);
    }
    pair.settle();
    pair.node.launch_result(pair.now, JobId(1), Ok(()));
    pair.settle();
    pair.take_node_events();
    pair.control.start(pair.now, JobId(1));
    pair.advance(Micros::from_secs(2));
    let events = pair.take_node_events();
    assert_eq!(events[0], node::Event::Start { job: JobId(1) });
    assert_eq!(events.len(), 1 + 64, "{events:?}");
}

#[test]
fn a_cancel_brings_its_grace_and_the_job_its_cores() {
    let mut pair = Pair::joined();
    let spec = JobSpec {
        cores: 3,
        core_bytes: 1 << 20,
        ..job_spec(1)
    };
    pair.control.launch(pair.now, spec).expect("it is up");
    pair.settle();
    let events = pair.take_node_events();
    assert!(
        matches!(events[..], [node::Event::Launch { spec, .. }] if spec.cores == 3 && spec.core_bytes == 1 << 20)
    );
    let mut pair = running();
    let grace = Micros::from_secs(7);
    pair.control.cancel(pair.now, JobId(1), 15, grace);
    pair.settle();
    let cancel = node::Event::Cancel {
        job: JobId(1),
        signal: 15,
        orphan: false,
        grace,
    };
    assert_eq!(pair.take_node_events(), [cancel]);
    // It may get signals until it has ended.
    pair.control.signal(pair.now, JobId(1), 10);
    pair.settle();
    assert_eq!(signals(&mut pair), [10]);
}

#[test]
fn cancel_reaches_a_running_job_and_one_that_still_loads() {
    let mut pair = running();
    pair.control.cancel(pair.now, JobId(1), 2, Micros(0));
    pair.settle();
    let cancel = node::Event::Cancel {
        job: JobId(1),
        signal: 2,
        orphan: false,
        grace: Micros(0),
    };
    assert_eq!(pair.take_node_events(), [cancel]);
    pair.control.cancel(pair.now, JobId(1), 9, Micros(0));
    pair.settle();
    assert_eq!(
        pair.take_node_events().len(),
        1,
        "another signal is another cancel"
    );

    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, job_spec(5))
        .expect("the node is up and free");
    pair.settle();
    pair.control.cancel(pair.now, JobId(5), 15, Micros(0));
    pair.settle();
    assert_eq!(pair.take_node_events().len(), 2, "a launch and a cancel");
    let text = String::from("cancelled while loading");
    let refusal = LaunchRefusal {
        code: RefusalCode::Cancelled,
        text,
    };
    pair.node.launch_result(pair.now, JobId(5), Err(refusal));
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
}

#[test]
fn an_answer_that_was_overtaken_by_the_exit_gives_no_event() {
    let mut pair = Pair::joined();
    pair.control
        .launch(pair.now, job_spec(1))
        .expect("the node is up and free");
    pair.settle();
    pair.node.launch_result(pair.now, JobId(1), Ok(()));
    pair.settle();
    pair.control.start(pair.now, JobId(1));
    pair.deliver_to_node();
    let started = pair.take_datagrams_of_node();
    pair.control.cancel(pair.now, JobId(1), 2, Micros(0));
    pair.deliver_to_node();
    let exit = IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Signal(2))));
    pair.node
        .io_submit(pair.now, JobId(1), LocalRank::FIRST, exit)
        .expect("an exit is always taken");
    let mut late = pair.take_datagrams_of_node();
    late.reverse();
    while pair.control.poll_event().is_some() {}
    for datagram in late.iter().chain(&started) {
        pair.deliver(datagram);
    }
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::IoCall { .. }]),
        "{events:?}"
    );
}

#[test]
fn a_silent_node_is_lost_and_its_orphan_is_dropped_when_it_comes_back() {
    let mut pair = running();
    pair.cut = true;
    pair.advance(Micros::from_secs(10));
    let events = pair.take_control_events();
    let lost = matches!(
        events[..],
        [
            control::Event::NodeLost { .. },
            control::Event::RankLost { .. },
            control::Event::JobClosed { .. }
        ]
    );
    assert!(lost, "{events:?}");
    assert_eq!(pair.take_node_events(), [node::Event::ControlLost]);
    pair.vitals.job = Some(JobId(1));
    pair.node.set_vitals(pair.vitals);
    pair.cut = false;
    pair.advance(Micros::from_secs(3));
    let orphan = node::Event::Cancel {
        job: JobId(1),
        signal: 9,
        orphan: true,
        grace: Micros(0),
    };
    assert_eq!(pair.take_node_events(), [node::Event::ControlBack, orphan]);
    let events = pair.take_control_events();
    assert!(
        matches!(
            events[..],
            [control::Event::NodeJoined { rejoined: true, .. }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_node_whose_machine_was_switched_is_lost_at_once_and_once() {
    let mut pair = running();
    for _ in 0..2 {
        pair.control.switched_off(pair.now, NodeId(3));
    }
    let events = pair.take_control_events();
    let reason = LostReason::Switched;
    let lost = matches!(
        events[..],
        [
            control::Event::NodeLost { reason: why, .. },
            control::Event::RankLost { reason: RankLoss::NodeSwitched, .. },
            control::Event::JobClosed { .. }
        ] if why == reason
    );
    assert!(lost, "{events:?}");
}

#[test]
fn a_restarted_control_node_finds_its_node_again_and_the_job_is_dropped() {
    let mut pair = running();
    pair.restart_control();
    pair.advance(Micros::from_secs(3));
    let events = pair.take_node_events();
    let [
        node::Event::Joined { .. },
        node::Event::Cancel { orphan: true, .. },
    ] = events[..]
    else {
        panic!("{events:?}");
    };
    let events = pair.take_control_events();
    assert!(
        matches!(
            events[..],
            [control::Event::NodeJoined {
                rejoined: false,
                ..
            }]
        ),
        "{events:?}"
    );
}

#[test]
fn a_restarted_control_node_that_lost_count_of_its_jobs_can_use_their_numbers_again() {
    let mut pair = running();
    pair.restart_control();
    pair.advance(Micros::from_secs(3));
    pair.take_node_events();
    pair.take_control_events();
    let again = pair.control.launch(pair.now, job_spec(1));
    again.expect("the node is up and free");
    pair.settle();
    let events = pair.take_node_events();
    assert!(
        matches!(events[..], [node::Event::Launch { spec, .. }] if spec.job == JobId(1)),
        "{events:?}"
    );
}
