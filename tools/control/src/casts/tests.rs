//! What a cast that is cancelled leaves: in the store, in the list of files and on the nodes.
//!
//! Nodes are netstack's own members, in virtual time; one that is deaf keeps a cast from ending at
//! once.

use std::net::Ipv4Addr;
use std::sync::Arc;

use hearth_store::{Limits, Memory, Query, Store};
use netstack::broadcast::{
    CastId, Hasher, Member, MemberConfig, MemberEvent, NoRoom, Part, Store as Blocks, Want,
};
use netstack::ids::{BootEpoch, NodeId};
use netstack::time::Micros;

use super::coming::Departure;
use super::object::Blake3;
use super::shelf::Content;
use super::*;
use crate::api::types::CastState;

/// The one cast.
const CAST: u64 = 1;
const CONTENT: &[u8] = b"not wanted any more";
const KEY: Key = Key(*b"key of the tests");
/// Of the control node; node n has the nth after it.
const PORT: u16 = 7000;
const MEMORY_BYTES: u64 = 1 << 26;
/// A datagram is on its way so long.
const STEP: Micros = Micros(50);
/// Steps until something must have happened: 5 s.
const STEPS_MOST: u32 = 100_000;

fn peer(node: Option<u32>) -> Peer {
    let port = node.map_or(PORT, |node| PORT + 1 + node as u16);
    Peer {
        addr: SocketAddrV4::new(Ipv4Addr::LOCALHOST, port),
        mac: [0; 6],
    }
}

/// What a node has.
#[derive(Default)]
struct Parts(BTreeMap<(CastId, Part), Vec<u8>>);

impl Hasher for Parts {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash {
        Blake3.subtree(first_byte, bytes, root)
    }
    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
        Blake3.merge(left, right, root)
    }
}

impl Blocks for Parts {
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let bytes = self.0.get(&(cast, part));
        bytes.is_some_and(|bytes| {
            out.copy_from_slice(&bytes[at..at + out.len()]);
            true
        })
    }
    fn write(&mut self, cast: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom> {
        self.0.insert((cast, part), bytes.to_vec());
        Ok(())
    }
}

struct Lab {
    casts: Casts,
    store: Memory,
    nodes: Vec<(Member, Parts)>,
    /// Nothing reaches these nodes, and nothing leaves them.
    deaf: Vec<u32>,
    now: Instant,
}

impl Lab {
    /// Node 0 hears, the others do not.
    fn new(nodes: u32) -> Self {
        let now = Instant::from_micros(1_000_000);
        let setup = Setup {
            me: peer(None),
            key: KEY,
            seed: 1,
            config: config::Broadcast {
                load: config::Load::Auto,
                rate: "1gbit".parse().unwrap(),
                scheme: config::Scheme::Auto,
                threshold: 0,
            },
            leaf_width: 0,
            files: Files::default(),
            next_id: CAST,
        };
        let mut casts = Casts::new(setup, now);
        let member = |node| {
            casts.node_joined(now, node, 7, peer(Some(node)), MEMORY_BYTES);
            let config = MemberConfig {
                node: NodeId(node),
                boot: BootEpoch(7),
                me: peer(Some(node)),
                control: None,
                key: KEY,
                rate: 0,
                buffers: 4,
                credit: 0,
                members: 0,
                seed: node.into(),
            };
            (Member::new(config, now), Parts::default())
        };
        Lab {
            nodes: (0..nodes).map(member).collect(),
            casts,
            store: Memory::new(Limits::default()),
            deaf: (1..nodes).collect(),
            now,
        }
    }

    /// Somebody wants the content on nodes 0 and 1.
    fn ask(&mut self, holders: &[u32]) -> Asker {
        let asker = Asker::Request(self.casts.next_request());
        let order = Order {
            what: What::File {
                name: "data".to_string(),
                job: None,
            },
            described: Arc::new(Described::of_bytes(CONTENT).unwrap()),
            content: Content::Bytes(CONTENT.into()),
            nodes: vec![0, 1],
            asker,
            holders: holders.iter().copied().collect(),
            patient: false,
            scheme: None,
            rate: None,
        };
        assert_eq!(self.casts.begin(self.now, order), Ok(CAST));
        asker
    }

    fn info(&self) -> CastInfo {
        self.casts.get(self.now, CAST, None).unwrap()
    }

    /// Everybody sends what there is to send, and control writes down what has changed.
    fn step(&mut self) {
        let mut buffer = [0; netstack::MAX_DATAGRAM];
        let mut flights: Vec<(SocketAddrV4, SocketAddrV4, Vec<u8>)> = Vec::new();
        while let Some((to, length)) = self.casts.poll_transmit(self.now, &mut buffer) {
            flights.push((peer(None).addr, to, buffer[..length].to_vec()));
        }
        for (node, (member, parts)) in (0..).zip(&mut self.nodes) {
            while let Some(event) = member.poll_event() {
                if let MemberEvent::Announced { cast, .. } = event {
                    member.accept(self.now, cast, Want::All, &mut |_| false);
                }
            }
            while let Some((to, length)) = member.poll_transmit(self.now, &mut buffer, parts) {
                let from = peer(Some(node)).addr;
                flights.push((from, to.addr, buffer[..length].to_vec()));
            }
        }
        self.now += STEP;
        let deaf = self.deaf.iter().map(|node| peer(Some(*node)).addr);
        let deaf: Vec<SocketAddrV4> = deaf.collect();
        for (from, to, bytes) in flights {
            if deaf.contains(&from) || deaf.contains(&to) {
                continue;
            }
            match to.port().checked_sub(PORT + 1) {
                None => self.casts.handle_datagram(self.now, from, &bytes),
                Some(node) => {
                    let (member, parts) = &mut self.nodes[usize::from(node)];
                    member.handle_datagram(self.now, from, &bytes, parts);
                }
            }
        }
        self.casts.settle(self.now);
        self.store.commit(&self.casts.take_changes()).unwrap();
    }

    fn until(&mut self, what: &str, has_happened: impl Fn(&Lab) -> bool) {
        for _ in 0..STEPS_MOST {
            if has_happened(self) {
                return;
            }
            self.step();
        }
        panic!("{what}: {:?}", self.info());
    }

    /// What the store has: casts that a later run of control goes on with, and names of files.
    fn written(&mut self) -> (usize, usize) {
        self.step();
        let (casts, files) = (self.store.casts().unwrap(), self.store.files().unwrap());
        (casts.len(), files.len())
    }

    /// Node 0 has it, node 1 does not answer; then the cast is cancelled.
    fn cancel_half_done(&mut self) {
        self.until("node 0 has it", |lab| lab.info().nodes_done == "n0");
        assert_eq!(self.written(), (1, 1));
        self.casts
            .cancel(self.now, CAST, "nobody wants it")
            .unwrap();
    }

    /// Who is told to let go of the content by the time at which the cast is over.
    fn let_go(&mut self) -> BTreeSet<u32> {
        let over = |lab: &Lab| lab.info().state == CastState::Cancelled;
        self.until("the cast is over", over);
        let outcomes = self.casts.take_outcomes().into_iter();
        outcomes
            .map(|outcome| match outcome {
                Outcome::Drop(node, _) => node,
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

#[test]
fn what_is_cancelled_is_written_down_no_more_whoever_leaves_it() {
    let mut lab = Lab::new(2);
    let (first, second) = (lab.ask(&[]), lab.ask(&[]));
    lab.cancel_half_done();
    assert_eq!(lab.written(), (0, 0), "control may be killed at any time");
    // It goes on ending, for two clients. What is left is written down when one leaves, unless it
    // is cancelled.
    for asker in [first, second] {
        let goes_on = lab.casts.withdraw(lab.now, CAST, asker, "it left");
        assert_eq!(goes_on, Ok(false));
        assert_eq!(lab.info().state, CastState::Running);
        assert_eq!(lab.written(), (0, 0));
    }
    lab.let_go();
    assert_eq!(lab.written(), (0, 0));
}

#[test]
fn nodes_that_have_what_is_cancelled_let_go_of_it_and_those_that_may_have_it() {
    let mut lab = Lab::new(2);
    lab.ask(&[]);
    lab.cancel_half_done();
    assert_eq!(lab.let_go(), BTreeSet::from([0, 1]));
}

#[test]
fn who_held_it_before_keeps_what_is_cancelled_and_its_name() {
    let mut lab = Lab::new(3);
    let object = Described::of_bytes(CONTENT).unwrap().object.id;
    lab.casts.files.hold(2, object, 1);
    lab.ask(&[2]);
    lab.cancel_half_done();
    assert_eq!(lab.written(), (0, 1));
    assert_eq!(lab.let_go(), BTreeSet::from([0, 1]));
    assert_eq!(lab.written(), (0, 1));
}

#[test]
fn who_wants_it_again_while_a_cancelled_cast_ends_keeps_it() {
    let mut lab = Lab::new(2);
    lab.ask(&[]);
    lab.cancel_half_done();
    let object = Described::of_bytes(CONTENT).unwrap().object.id;
    lab.casts.spare(&[0], &object);
    assert_eq!(lab.written(), (0, 1), "it has its name again");
    assert_eq!(lab.let_go(), BTreeSet::from([1]));
    assert_eq!(lab.written(), (0, 1));
}

#[test]
fn a_node_that_left_in_good_order_is_not_called_lost() {
    for (in_order, wanted) in [(true, "left in good order"), (false, "was lost")] {
        let mut lab = Lab::new(2);
        lab.ask(&[]);
        lab.until("node 0 has it", |lab| lab.info().nodes_done == "n0");
        let departure = Departure {
            forgets: true,
            returns: false,
            in_order,
        };
        lab.casts.node_gone(lab.now, 1, departure);
        lab.until("it is over", |lab| lab.info().state == CastState::Partial);
        assert_eq!(lab.info().failed[0].reason, wanted);
    }
}

#[test]
fn time_in_which_all_that_lack_it_are_away_is_no_part_of_its_rate() {
    let mut lab = Lab::new(2);
    lab.ask(&[]);
    lab.casts.under_way.get_mut(&CAST).unwrap().patient = true;
    lab.until("node 0 has it", |lab| lab.info().nodes_done == "n0");
    let gone = Departure {
        forgets: true,
        returns: false,
        in_order: true,
    };
    lab.casts.node_gone(lab.now, 1, gone);
    lab.until("it waits", |lab| lab.info().state == CastState::Waiting);
    assert_eq!(lab.info().nodes_absent, "n1");
    lab.now += Micros::from_secs(100);
    let waiting = lab.info();
    assert!(waiting.absent_ms >= 100_000.0 && waiting.absent_ms <= waiting.ms);
    lab.deaf.clear();
    lab.casts
        .node_joined(lab.now, 1, 7, peer(Some(1)), MEMORY_BYTES);
    lab.until("node 1 has it", |lab| lab.info().state == CastState::Done);
    let info = lab.info();
    assert!(info.absent_ms >= 100_000.0, "{info:?}");
    assert!(info.ms - info.absent_ms < 5_000.0, "{info:?}");
}

#[test]
fn a_silent_node_with_other_casts_may_have_waited_for_room() {
    let silent = MemberFailure::Reported(FailReason::Dead);
    for (has_another, wanted) in [
        (false, "does not answer"),
        (true, "does not answer, or waited"),
    ] {
        let mut lab = Lab::new(2);
        lab.ask(&[]);
        if has_another {
            let mut another = lab.casts.under_way[&CAST].clone();
            another.id = CAST + 1;
            lab.casts.under_way.insert(another.id, another);
        }
        lab.casts.failed(CAST, 1, silent);
        let reason = &lab.info().failed[0].reason;
        assert!(reason.starts_with(wanted), "{reason}");
        assert_eq!(reason.contains("room"), has_another);
    }
}

/// What nodes of a job read is cast to those that read it, those that come later included, and to
/// nobody once the job is over. It is no file that others could ask for.
#[test]
fn what_nodes_of_a_job_read_is_cast_to_them_while_the_job_is_there() {
    let mut lab = Lab::new(2);
    lab.deaf.clear();
    let key = (5, peer(None).addr, 1);
    let described = Arc::new(Described::of_bytes(CONTENT).unwrap());
    let content = || Some((described.clone(), Content::Bytes(CONTENT.into())));
    assert_eq!(
        lab.casts.cast_read(lab.now, key, None, &[0]),
        None,
        "which?"
    );
    let object = lab.casts.cast_read(lab.now, key, content(), &[0]).unwrap();
    assert_eq!(
        (object.id, object.bytes),
        (described.object.id, CONTENT.len() as u64)
    );
    lab.until("it is there", |lab| lab.info().state == CastState::Done);
    assert_eq!(lab.info().nodes, "n0");
    // One that comes when the first cast is over has another, from who holds it.
    assert_eq!(lab.casts.cast_read(lab.now, key, None, &[1]), Some(object));
    lab.until("it is there, too", |lab| {
        let info = lab.casts.get(lab.now, CAST + 1, None).unwrap();
        info.state == CastState::Done && info.nodes == "n1"
    });
    assert!(lab.casts.files.names_of(&object.id).is_empty());
    let events = lab.casts.take_events();
    assert!(events.is_empty(), "nobody has asked for it: {events:?}");
    lab.casts.job_over(lab.now, key.0);
    assert_eq!(lab.casts.cast_read(lab.now, key, None, &[1]), None);
}
