//! Several ranks of a job on a node.

use netstack::ids::{NodeId, Rank};

use super::lab::Lab;
use crate::api::types::{JobState, RankEnd, RankReport};
use crate::jobs::fabric::{Call, Exit};

/// Two nodes with two ranks each: every rank's calls are its own, a node is free when its last rank
/// has ended, and a lost node takes all its ranks with it.
#[test]
fn several_ranks_share_a_node() {
    let mut lab = Lab::with_nodes(2);
    let mut submission = lab.submission(4, None);
    submission.want.places = 2;
    let (id, mut reader) = lab.submit(submission);
    let launch = lab.launch_of(id).clone();
    assert_eq!(launch.nodes, [(NodeId(0), 2), (NodeId(1), 2)]);
    assert_eq!(launch.launch_blocks.len(), 2);
    let second = netstack::job::launch_block::parse(&launch.launch_blocks[1]).unwrap();
    assert_eq!((second.rank, second.size), (Rank(2), 4));
    lab.all_ready(id);
    assert_eq!(lab.state(id), JobState::Running);
    let exit = || {
        Call::Exit(Box::new(Exit {
            end: RankEnd::Exited(0),
            report: RankReport::new(0, 0),
        }))
    };
    for rank in [3, 0, 2] {
        let data = format!("{rank}\n").into_bytes();
        let node = rank / 2;
        let by = (launch.job, Rank(rank));
        lab.call_as(node, by, Call::Write { fd: 1, data });
        lab.call_as(node, by, exit());
    }
    let info = lab.runner.get(id).unwrap();
    let ended: Vec<bool> = info.ranks.iter().map(|rank| rank.end.is_some()).collect();
    assert_eq!(ended, [true, false, true, true]);
    assert_eq!(info.ranks[3].node, "n1");
    // The second node is free, the first one is not.
    let (other, _other) = lab.running(1);
    assert_eq!(lab.launch_of(other).nodes, [(NodeId(1), 1)]);
    lab.call_as(0, (launch.job, Rank(1)), exit());
    assert_eq!(lab.state(id), JobState::Completed);
    let (output, _) = lab.drain(&mut reader);
    let written: Vec<u32> = output.iter().map(|(rank, _)| *rank).collect();
    assert_eq!(written, [3, 0, 2]);
}

/// A job that asks for more than there is is refused with a sentence.
#[test]
fn too_many_ranks_a_node_are_refused() {
    let mut lab = Lab::with_nodes(2);
    let mut refused = |ranks, places, cores| {
        let mut submission = lab.submission(ranks, None);
        (submission.want.places, submission.want.cores) = (places, cores);
        let refused = lab.hand_in(0, submission);
        refused.expect_err("it has no place").to_string()
    };
    assert!(refused(2, 4, 0).contains("smaller -N"));
    assert!(refused(130, 2, 0).contains("64 ranks at most"));
    assert!(refused(300, 3, 0).contains("larger -N"));
}
