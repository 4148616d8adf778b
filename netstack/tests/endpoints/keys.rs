//! Keys of jobs: the nodes of a job have it, and nobody else.

use crate::jobs::{SUBMITTED_US, job_spec};
use crate::wire_pair::{PEER_KEY, Pair, SECRET};
use netstack::ids::JobId;
use netstack::job::JobSpec;
use netstack::wire::key::{Direction, Key};
use netstack::{MAX_DATAGRAM, node};

fn key_of(job: u64) -> Key {
    Key(SECRET).job_key(JobId(job), SUBMITTED_US)
}

/// The key that the node gets for a job, and all that was said to it on the way.
fn launched(pair: &mut Pair, job: u64) -> (Key, Vec<Vec<u8>>) {
    launched_as(pair, job_spec(job))
}

fn launched_as(pair: &mut Pair, spec: JobSpec) -> (Key, Vec<Vec<u8>>) {
    pair.control.launch(pair.now, spec).expect("room");
    let mut said = Vec::new();
    let mut buffer = [0; MAX_DATAGRAM];
    while let Some((_, length)) = pair.control.poll_transmit(pair.now, &mut buffer) {
        said.push(buffer[..length].to_vec());
        pair.node.handle_datagram(pair.now, &buffer[..length]);
    }
    let events = pair.take_node_events();
    let [node::Event::Launch { key, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    (*key, said)
}

#[test]
fn the_key_of_a_job_comes_with_its_launch_and_is_not_to_be_read_there() {
    let mut pair = Pair::joined();
    let (key, said) = launched(&mut pair, 7);
    assert!(key == key_of(7));
    assert!(!said.is_empty());
    for datagram in &said {
        assert!(!datagram.windows(16).any(|bytes| bytes == key.0));
    }
    // Who has the keys that all nodes share has not this one, nor does another session open it.
    let shared = [PEER_KEY, PEER_KEY.casts_key(), PEER_KEY.overlay_key()];
    for other in shared.map(|key| key.job_key(JobId(7), SUBMITTED_US)) {
        assert!(other != key);
    }
    let session = |number| pair.key().session_key(Direction::ToNode, number);
    let wrapped = session(1).wrap_job_key(JobId(7), key);
    assert!(session(1).unwrap_job_key(JobId(7), wrapped) == key);
    assert!(session(2).unwrap_job_key(JobId(7), wrapped) != key);
    assert!(session(1).unwrap_job_key(JobId(8), wrapped) != key);
}

#[test]
fn jobs_have_keys_of_their_own_which_outlive_the_control_node() {
    let mut pair = Pair::joined();
    let (first, _) = launched(&mut pair, 7);
    // Ranks that are launched by the next run talk to those of the one before.
    let mut pair = Pair::joined();
    pair.restart_control();
    pair.advance(netstack::time::Micros::from_secs(3));
    assert!(pair.node.is_joined());
    pair.take_node_events();
    assert!(launched(&mut pair, 7).0 == first);
    // Another job has another key, also where a control node whose state was restored gives it the
    // number once more.
    let mut pair = Pair::joined();
    let later = JobSpec {
        submitted_us: SUBMITTED_US + 1,
        ..job_spec(7)
    };
    assert!(launched_as(&mut pair, later).0 != first);
    let mut pair = Pair::joined();
    assert!(launched(&mut pair, 8).0 != first);
}
