//! Several ranks of a job on one node: launched and started together, their calls apart, and the
//! node's job over when the last has ended.

use crate::jobs::{job_spec, write};
use crate::wire_pair::Pair;
use netstack::control;
use netstack::ids::{BootEpoch, CallId, JobId, LocalRank, NodeId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply, SubmitError};
use netstack::job::{AdoptedRank, JobSpec, LaunchError, RankLoss};
use netstack::time::Micros;
use netstack::{RANKS_PER_NODE_MAX, node};

const JOB: JobId = JobId(1);
const NODE: NodeId = NodeId(3);

fn spec(ranks: u16) -> JobSpec {
    let mut spec = job_spec(1);
    spec.places[0].ranks = ranks;
    spec
}

/// A joined pair whose node runs so many ranks.
fn running(ranks: u16) -> Pair {
    let mut pair = Pair::joined();
    pair.control.launch(pair.now, spec(ranks)).expect("room");
    pair.settle();
    let events = pair.take_node_events();
    let [node::Event::Launch { spec, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(
        (spec.rank, spec.ranks, spec.size),
        (Rank(0), ranks, ranks.into())
    );
    pair.node.launch_result(pair.now, JOB, Ok(()));
    pair.settle();
    pair.control.start(pair.now, JOB);
    pair.settle();
    pair.take_node_events();
    pair.take_control_events();
    pair
}

fn exit(status: u8) -> IoOp {
    IoOp::Exit(Box::new(ExitReport::new(ExitStatus::Exited(status))))
}

fn submit(pair: &mut Pair, rank: u16, op: IoOp) {
    let taken = pair.node.io_submit(pair.now, JOB, LocalRank(rank), op);
    taken.expect("there is room");
}

/// The calls that the control node was given: rank, number, operation.
fn calls(pair: &mut Pair) -> Vec<(u32, u64, IoOp)> {
    pair.settle();
    let events = pair.take_control_events();
    let calls = events.into_iter().map(|event| match event {
        control::Event::IoCall { rank, call, op, .. } => (rank.0, call.0, op),
        other => panic!("{other:?}"),
    });
    calls.collect()
}

fn answer(pair: &mut Pair, rank: u32, call: u64) {
    let data = Vec::new();
    let reply = IoReply { result: 0, data };
    pair.control
        .io_reply(pair.now, NODE, (JOB, Rank(rank)), CallId(call), reply);
    pair.settle();
}

/// The ranks whose calls were done at the node.
fn done(pair: &mut Pair) -> Vec<u16> {
    let events = pair.take_node_events();
    let done = events.into_iter().map(|event| match event {
        node::Event::IoDone { rank, .. } => rank.0,
        other => panic!("{other:?}"),
    });
    done.collect()
}

#[test]
fn each_rank_has_calls_of_its_own_and_the_last_to_end_ends_the_job() {
    let mut pair = running(3);
    submit(&mut pair, 2, write(b"two"));
    submit(&mut pair, 0, write(b"zero"));
    submit(&mut pair, 2, exit(7));
    let mut seen = calls(&mut pair);
    seen.sort_by_key(|(rank, call, _)| (*rank, *call));
    assert_eq!(
        seen,
        [
            (0, 1, write(b"zero")),
            (2, 1, write(b"two")),
            (2, 2, exit(7))
        ]
    );
    // One that nobody answers holds no other rank back.
    answer(&mut pair, 2, 1);
    answer(&mut pair, 2, 2);
    assert_eq!(done(&mut pair), [2, 2]);
    assert_eq!(
        pair.node
            .io_submit(pair.now, JOB, LocalRank(2), write(b"x")),
        Err(SubmitError::AfterExit)
    );
    let busy = pair.control.launch(pair.now, job_spec(2));
    assert_eq!(busy, Err(LaunchError::NodeBusy(NODE)));
    submit(&mut pair, 1, exit(0));
    submit(&mut pair, 0, exit(0));
    assert_eq!(calls(&mut pair).len(), 2);
    for (rank, call) in [(1, 1), (0, 1), (0, 2)] {
        assert!(pair.node.has_job(JOB));
        answer(&mut pair, rank, call);
    }
    assert!(!pair.node.has_job(JOB));
    assert_eq!(done(&mut pair), [1, 0, 0]);
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::JobClosed { job: JOB }]),
        "{events:?}"
    );
    pair.control
        .launch(pair.now, job_spec(2))
        .expect("free again");
}

#[test]
fn an_exit_whose_answer_was_lost_is_answered_again() {
    let mut pair = running(2);
    for rank in [0, 1] {
        submit(&mut pair, rank, exit(0));
    }
    assert_eq!(calls(&mut pair).len(), 2);
    pair.cut = true;
    answer(&mut pair, 0, 1);
    answer(&mut pair, 1, 1);
    let events = pair.take_control_events();
    assert!(
        matches!(events[..], [control::Event::JobClosed { .. }]),
        "{events:?}"
    );
    pair.cut = false;
    pair.advance(Micros::from_secs(3));
    let mut done = done(&mut pair);
    done.sort_unstable();
    assert_eq!(done, [0, 1]);
    assert!(!pair.node.has_job(JOB));
}

#[test]
fn commands_are_for_all_ranks_of_a_node() {
    let mut pair = running(2);
    pair.control.signal(pair.now, JOB, 10);
    pair.control.cancel(pair.now, JOB, 15, Micros::from_secs(1));
    pair.settle();
    let events = pair.take_node_events();
    assert!(
        matches!(events[..], [node::Event::Cancel { signal: 15, .. }]),
        "{events:?}"
    );
    // The ranks that have not ended are lost with their node; the others have ended as they said.
    submit(&mut pair, 1, exit(0));
    assert_eq!(calls(&mut pair), [(1, 1, exit(0))]);
    pair.cut = true;
    pair.advance(Micros::from_secs(60));
    let events = pair.take_all_control_events();
    let lost = |event: &control::Event| match event {
        control::Event::RankLost { rank, reason, .. } => Some((rank.0, *reason)),
        _ => None,
    };
    let lost: Vec<_> = events.iter().filter_map(lost).collect();
    assert_eq!(lost, [(0, RankLoss::NodeSilent)]);
}

#[test]
fn ranks_that_have_ended_are_not_waited_for_by_another_run_of_control() {
    let mut pair = running(3);
    submit(&mut pair, 0, exit(0));
    submit(&mut pair, 1, exit(0));
    submit(&mut pair, 2, write(b"two"));
    assert_eq!(calls(&mut pair).len(), 3);
    answer(&mut pair, 0, 1);
    assert_eq!(done(&mut pair), [0]);
    // The end of rank 1 was written down, and its answer got lost.
    pair.restart_control();
    let open = AdoptedRank::Open {
        launch_on: Some(BootEpoch(1)),
    };
    let ranks = [AdoptedRank::Ended, AdoptedRank::Ended, open];
    pair.control.adopt(spec(3), true, &ranks).expect("new");
    pair.advance(Micros::from_secs(3));
    let events = pair.take_control_events();
    let again: Vec<(u32, u64)> = events
        .iter()
        .filter_map(|event| match event {
            control::Event::IoCall { rank, call, .. } => Some((rank.0, call.0)),
            control::Event::RankLost { .. } => panic!("{event:?}"),
            _ => None,
        })
        .collect();
    assert_eq!(again, [(1, 1), (2, 1)]);
    answer(&mut pair, 1, 1);
    answer(&mut pair, 2, 1);
    submit(&mut pair, 2, exit(0));
    assert_eq!(calls(&mut pair), [(2, 2, exit(0))]);
    answer(&mut pair, 2, 2);
    assert!(!pair.node.has_job(JOB));
}

#[test]
fn more_ranks_than_a_node_may_have_are_refused() {
    let mut pair = Pair::joined();
    for ranks in [0, RANKS_PER_NODE_MAX + 1] {
        let refused = pair.control.launch(pair.now, spec(ranks));
        assert_eq!(refused, Err(LaunchError::BadSize), "{ranks}");
    }
    let most = pair.control.launch(pair.now, spec(RANKS_PER_NODE_MAX));
    assert_eq!(most, Ok(()));
}
