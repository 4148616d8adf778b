//! Some nodes and a front end on a network without faults: each step of the method does what it
//! says. Faults and scale are the simulator's (`netstack-sim`, `overlay`).

mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::vec;
use std::vec::Vec;

use core::net::{Ipv4Addr, SocketAddrV4};

use super::message::Hello;
use super::placement::{Layout, Policy, Topology};
use super::*;
use crate::MAX_DATAGRAM;
use crate::broadcast::Peer;
use crate::ids::{BootEpoch, JobId, NodeId};
use crate::time::Instant;
use crate::wire::envelope::Envelopes;
use crate::wire::key::Key;

const FRONT_END: u32 = 9_999;
const LATENCY: u64 = 50;

fn peer(node: u32) -> Peer {
    Peer {
        addr: SocketAddrV4::new(Ipv4Addr::from(0x0a00_0000 + node), 7118),
        mac: [0; 6],
    }
}

/// Of a node that has sealed and opened nothing.
fn envelopes(node: u32, now: Instant) -> Envelopes {
    let key = Key(*b"the overlay test").overlay_key();
    Envelopes::new(&key, peer(node).addr, now)
}

/// Reads `1000 * node + metric`, except metric 7, which only even nodes have.
struct Fake {
    node: u32,
    triggered: Vec<(u8, bool)>,
    /// Values that were asked for.
    reads: usize,
}

impl Collector for Fake {
    fn read(&mut self, metric: MetricId) -> Option<i64> {
        self.reads += 1;
        (metric.0 != 7 || self.node.is_multiple_of(2))
            .then(|| i64::from(self.node * 1000) + i64::from(metric.0))
    }

    fn trigger(&mut self, kind: u8, on: bool) {
        self.triggered.push((kind, on));
    }
}

struct Net {
    now: u64,
    front: FrontEnd,
    nodes: Vec<(Node, Fake)>,
    flights: BTreeMap<(u64, u64), (u32, u32, Vec<u8>)>,
    sent: u64,
    /// Nodes that are gone: nothing reaches them, and they do nothing.
    dead: BTreeSet<u32>,
    events: Vec<FrontEndEvent>,
}

impl Net {
    fn new(count: u32) -> Net {
        let key = Key(*b"the overlay test");
        let node = |node: u32| {
            let hello = Hello {
                back_end: true,
                cps: 2,
                auxiliary: 0b10,
                job: None,
                factors: [10, 50, 20, 0].map(fixed::Fixed::whole),
            };
            let config = NodeConfig {
                node: NodeId(node),
                boot: BootEpoch(7),
                me: peer(node),
                front_end: peer(FRONT_END),
                key,
                hello,
                seed: node.into(),
            };
            let fake = Fake {
                node,
                triggered: Vec::new(),
                reads: 0,
            };
            (Node::new(config, Instant::ZERO), fake)
        };
        let config = FrontEndConfig {
            me: peer(FRONT_END),
            key,
            tree_base: TreeEpoch(1 << 32),
            seed: 1,
        };
        Net {
            now: 0,
            front: FrontEnd::new(config, Instant::ZERO),
            nodes: (0..count).map(node).collect(),
            flights: BTreeMap::new(),
            sent: 0,
            dead: BTreeSet::new(),
            events: Vec::new(),
        }
    }

    /// A tree of two levels, with a leaf for each four back ends.
    fn built(count: u32) -> Net {
        let mut net = Net::new(count);
        net.run(1_500_000);
        let layout = Layout {
            policy: Policy::Averaging,
            fan_out: 4,
        };
        net.front
            .build(Instant::from_micros(net.now), &layout)
            .unwrap();
        net.run(500_000);
        net
    }

    fn run(&mut self, micros: u64) {
        let until = self.now + micros;
        loop {
            self.drain();
            let flight = self.flights.keys().next().map(|key| key.0);
            let timers = self
                .nodes
                .iter()
                .filter(|(_, fake)| !self.dead.contains(&fake.node))
                .filter_map(|(node, _)| node.poll_timeout());
            let timer = timers
                .chain(self.front.poll_timeout())
                .min()
                .map(Instant::as_micros);
            let timer = timer.map(|at| at.max(self.now + 1));
            let next = flight.into_iter().chain(timer).min().unwrap_or(u64::MAX);
            if next > until {
                self.now = until;
                return;
            }
            self.now = next;
            let now = Instant::from_micros(next);
            while let Some(entry) = self.flights.first_entry()
                && entry.key().0 <= next
            {
                let (from, to, bytes) = entry.remove();
                match to {
                    to if self.dead.contains(&to) => {}
                    FRONT_END => self.front.handle_datagram(now, peer(from).addr, &bytes),
                    to => self.nodes[to as usize]
                        .0
                        .handle_datagram(now, peer(from).addr, &bytes),
                }
            }
        }
    }

    fn drain(&mut self) {
        let now = Instant::from_micros(self.now);
        let mut out = [0; MAX_DATAGRAM];
        for index in 0..=self.nodes.len() {
            let from = if index == self.nodes.len() {
                FRONT_END
            } else {
                index as u32
            };
            loop {
                if self.dead.contains(&from) {
                    break;
                }
                let sent = match self.nodes.get_mut(index) {
                    Some((node, fake)) => node.poll_transmit(now, &mut out, fake),
                    None => self.front.poll_transmit(now, &mut out),
                };
                let Some((to, length)) = sent else {
                    break;
                };
                self.sent += 1;
                let to = to.addr.ip().to_bits() - 0x0a00_0000;
                let key = (self.now + LATENCY, self.sent);
                self.flights.insert(key, (from, to, out[..length].to_vec()));
            }
        }
        while let Some(event) = self.front.poll_event() {
            self.events.push(event);
        }
    }

    fn open(&mut self, spec: StreamSpec) -> StreamId {
        self.front
            .open(Instant::from_micros(self.now), spec)
            .unwrap()
    }

    fn ticks(&self, stream: StreamId) -> Vec<&TickValue> {
        let mut ticks = Vec::new();
        for event in &self.events {
            if let FrontEndEvent::Tick(value) = event
                && value.stream == stream
            {
                ticks.push(value);
            }
        }
        ticks
    }
}

fn second(metrics: &[u16], filter: Filter) -> StreamSpec {
    let metrics = metrics.iter().map(|metric| MetricId(*metric)).collect();
    StreamSpec::new(metrics, filter, Micros::from_secs(1))
}

#[test]
fn nodes_form_a_tree_and_their_sum_arrives() {
    let mut net = Net::built(20);
    let up = net
        .events
        .iter()
        .any(|event| matches!(event, FrontEndEvent::TreeUp { back_ends: 20, .. }));
    assert!(up, "{:?}", net.front.status());
    let status = net.front.status();
    assert_eq!((status.back_ends, status.cps, status.height), (20, 7, 3));
    let sum = net.open(second(&[1, 7], Filter::Sum));
    let rows = net.open(second(&[1], Filter::Concat));
    net.run(4_000_000);
    for value in net.ticks(sum) {
        assert_eq!((value.covers, value.attached), (20, 20));
        let TickBody::Reduced(accs) = &value.values else {
            panic!("reduced")
        };
        let total: i128 = (0..20).map(|node| node * 1000).sum();
        assert_eq!(
            accs[0],
            Acc {
                count: 20,
                reduced: Some(Reduced::Total(total + 20))
            }
        );
        assert_eq!(accs[1].count, 10, "odd nodes do not have it");
        let late = value.at.as_micros() - value.tick * 1_000_000;
        assert!(late < STAGGER.0 + 1_000, "{late} us after the tick's begin");
    }
    assert!((3..=4).contains(&net.ticks(sum).len()));
    let nodes: Vec<u32> = (net.ticks(rows).iter())
        .filter_map(|value| match &value.values {
            TickBody::Rows(rows) => Some(rows.iter().map(|row| row.node.0)),
            TickBody::Reduced(_) => None,
        })
        .flatten()
        .collect();
    assert_eq!(nodes.len() % 20, 0);
    assert!((0..20).all(|node| nodes.contains(&node)));
    let books = net.front.books();
    assert_eq!(books.lost(), 0, "{books:?}");
}

/// When the sixteen nodes of a tree with four leaves read their values of a tick, from its begin
/// on, in order.
fn turns(net: &mut Net, spec: StreamSpec) -> Vec<u64> {
    let period = spec.period.0;
    let stream = net.open(spec);
    net.run(4_000_000);
    let ticks = net.ticks(stream);
    // One that is over by now.
    let wanted = ticks.last().unwrap().tick - 1;
    let tick = ticks.iter().filter(|value| value.tick == wanted);
    let rows = tick.flat_map(|value| match &value.values {
        TickBody::Rows(rows) => rows.clone(),
        TickBody::Reduced(_) => panic!("rows"),
    });
    // All clocks are one here.
    let mut turns: Vec<u64> = rows.map(|row| row.node_time_us % period).collect();
    turns.sort_unstable();
    turns
}

#[test]
fn back_ends_take_turns_whoever_their_parent_is() {
    let mut net = Net::built(16);
    let slow = turns(&mut net, second(&[1], Filter::Concat));
    assert_eq!(slow.len(), 16);
    assert!(slow[15] <= STAGGER.0, "{slow:?}");
    assert!(slow[15] - slow[0] > STAGGER.0 * 7 / 10, "{slow:?}");
    // In any sixteenth of the round no more than two of sixteen.
    let crowd = |from: u64| {
        let round = from..from + STAGGER.0 / 16;
        slow.iter().filter(|at| round.contains(at)).count()
    };
    assert!(slow.iter().all(|from| crowd(*from) <= 2), "{slow:?}");
    // Where the hold is short, turns are.
    let period = Micros::from_millis(10);
    let quick = StreamSpec {
        period,
        hold: period,
        ..second(&[1], Filter::Concat)
    };
    let quick = turns(&mut net, quick);
    assert_eq!(quick.len(), 16);
    assert!(quick[15] <= period.0 / STAGGERS_A_HOLD, "{quick:?}");
}

#[test]
fn a_given_tree_is_built_as_given() {
    let mut net = Net::new(6);
    net.run(1_500_000);
    let text = "explicit\nfe => n0:1 n3:1\nn0:1 => n1:1 n1:2";
    let layout = Layout {
        policy: Policy::Given(Topology::parse(text).unwrap()),
        fan_out: 4,
    };
    net.front
        .build(Instant::from_micros(net.now), &layout)
        .unwrap();
    net.run(500_000);
    let parent = |net: &Net, node: usize, slot| {
        let status = net.nodes[node]
            .0
            .status()
            .find(|status| status.slot == slot);
        status
            .and_then(|status| status.parent)
            .map(|parent| std::format!("{parent}"))
    };
    assert_eq!(parent(&net, 0, 1).as_deref(), Some("fe"));
    assert_eq!(parent(&net, 1, 1).as_deref(), Some("n0:1"));
    assert_eq!(parent(&net, 1, 2).as_deref(), Some("n0:1"));
    assert_eq!(
        parent(&net, 3, 0).as_deref(),
        Some("n3:1"),
        "the same host first"
    );
    assert_eq!(net.front.status().local, 2);
    let standing = net
        .front
        .build(Instant::from_micros(net.now), &layout)
        .unwrap_err();
    assert_eq!(standing, BuildError::Standing);
}

#[test]
fn taken_down_nothing_is_left() {
    let mut net = Net::built(20);
    net.open(second(&[1, 0x4100], Filter::Max));
    net.run(3_000_000);
    assert!(
        net.nodes
            .iter()
            .all(|(_, fake)| fake.triggered == [(1, true)])
    );
    net.front.take_down(Instant::from_micros(net.now));
    net.run(2_000_000);
    assert_eq!(net.events.last(), Some(&FrontEndEvent::TreeDown));
    assert!(net.front.processes().is_empty());
    for (node, fake) in &net.nodes {
        // What it handed up on its last links, for the next tree: no part of this one.
        let kept = node.footprint();
        let words = Footprint {
            words: kept.words,
            bytes: kept.bytes,
            ..Footprint::default()
        };
        assert_eq!(kept, words, "n{}", fake.node);
        assert!((1..=3).contains(&kept.words), "n{}: {kept:?}", fake.node);
        assert_eq!(fake.triggered, [(1, true), (1, false)]);
    }
    let books = net.front.books();
    assert!(
        books.sent > 0 && books.is_settled() && books.lost() == 0,
        "{books:?}"
    );
    let sent = net.sent;
    net.run(60_000_000);
    assert_eq!(net.sent, sent, "nobody says anything any more");
    // The next tree has a higher number, and nobody has to be started for it.
    let layout = Layout {
        policy: Policy::Averaging,
        fan_out: 8,
    };
    net.front
        .build(Instant::from_micros(net.now), &layout)
        .unwrap();
    net.run(500_000);
    assert_eq!(net.front.status().back_ends, 20);
    // What a link of this tree loses is counted as that, whatever links of the same number the last
    // tree had.
    for _ in 0..2 {
        net.run(1_000_000 - net.now % 1_000_000);
        for _ in 0..=STAGGER.0 / 40 {
            net.run(40);
            net.flights.clear();
        }
    }
    net.run(1_000_000);
    net.front.take_down(Instant::from_micros(net.now));
    net.run(2_000_000);
    let books = net.front.books();
    assert!(books.is_settled() && books.lost_link > 0, "{books:?}");
}

#[test]
fn a_later_tree_reaches_those_below_a_process_that_is_gone() {
    let mut net = Net::built(20);
    net.front.take_down(Instant::from_micros(net.now));
    net.run(2_000_000);
    let layout = Layout {
        policy: Policy::Averaging,
        fan_out: 4,
    };
    // The first node hosts processes, and is dead though the front end does not know it yet.
    net.dead.insert(0);
    net.front
        .build(Instant::from_micros(net.now), &layout)
        .unwrap();
    net.run(40_000_000);
    assert_eq!(net.front.status().back_ends, 19, "{:?}", net.front.status());
}

#[test]
fn only_the_front_end_is_obeyed() {
    let mut net = Net::built(4);
    let stranger = |message| message::Packet {
        from: Process::FRONT_END,
        boot: BootEpoch(1),
        mac: [0; 6],
        to_slot: 0,
        tree: TreeEpoch(u64::MAX),
        message,
    };
    let down = message::Message::HelloAck {
        state: message::TreeState::Down,
        candidates: Vec::new(),
    };
    let build = message::Message::Build(message::Build {
        parent: Candidate {
            process: Process::back_end(NodeId(3)),
            peer: peer(3),
            height: 4,
            room: 1,
        },
        height: 0,
        part: 0,
        parts: 1,
        entries: Vec::new(),
    });
    let mut out = [0; MAX_DATAGRAM];
    for message in [down, build] {
        let now = Instant::from_micros(net.now);
        let mut third = envelopes(3, now);
        let to = peer(0).addr;
        let length = wire::emit(&mut third, now, to, &stranger(message), &mut out);
        net.nodes[0]
            .0
            .handle_datagram(now, peer(3).addr, &out[..length]);
    }
    net.run(3_000_000);
    assert_eq!(net.front.status().back_ends, 4);
    assert!(
        net.nodes[0]
            .0
            .status()
            .all(|status| status.parent.is_some())
    );
}

#[test]
fn a_leaf_of_quiet_nodes_is_not_waited_for() {
    let mut net = Net::built(20);
    let stream = net.open(second(&[1], Filter::Sum));
    net.run(2_000_000);
    let leaf = net.nodes[0].0.status().find(|status| status.slot == 0);
    let leaf = leaf.and_then(|status| status.parent).unwrap();
    let now = Instant::from_micros(net.now);
    let below = |node: &Node| {
        let mut own = node.status();
        own.any(|status| status.slot == 0 && status.parent == Some(leaf))
    };
    let mut quiet = 0;
    for (node, fake) in &mut net.nodes {
        if below(node) {
            node.set_job(now, Some(JobId(1)), true, fake);
            quiet += 1;
        }
    }
    net.run(3_000_000);
    let mark = net.ticks(stream).len();
    net.run(3_000_000);
    let status = net.front.status();
    assert_eq!((status.back_ends, status.quiet), (20, quiet));
    let ticks = net.ticks(stream);
    assert!(ticks.len() >= mark + 2);
    for value in &ticks[mark..] {
        let late = value.at.as_micros() - value.tick * 1_000_000;
        assert_eq!((value.covers, value.attached), (20 - quiet, 20 - quiet));
        assert!(late < STAGGER.0 + 1_000, "{late} us after the tick's begin");
    }
}

#[test]
fn what_is_triggered_is_stopped_however_the_role_ends() {
    let mut net = Net::built(4);
    net.open(second(&[1, 0x4100], Filter::Max));
    net.run(3_000_000);
    // The word itself is lost; the node hears of it when it asks.
    let now = Instant::from_micros(net.now);
    let (node, fake) = &mut net.nodes[0];
    assert_eq!(fake.triggered, [(1, true)]);
    let down = message::Packet {
        from: Process::FRONT_END,
        boot: BootEpoch(1),
        mac: [0; 6],
        to_slot: 0,
        tree: TreeEpoch((1 << 32) + 1),
        message: message::Message::HelloAck {
            state: message::TreeState::Down,
            candidates: Vec::new(),
        },
    };
    let mut out = [0; MAX_DATAGRAM];
    let mut front = envelopes(FRONT_END, now);
    let length = wire::emit(&mut front, now, peer(0).addr, &down, &mut out);
    node.handle_datagram(now, peer(FRONT_END).addr, &out[..length]);
    assert_eq!(node.footprint().auxiliary, 1);
    net.run(1_000);
    assert_eq!(net.nodes[0].1.triggered, [(1, true), (1, false)]);
    assert_eq!(net.nodes[0].0.footprint().auxiliary, 0);
}

#[test]
fn a_job_has_a_stream_of_its_own_which_ends_with_it() {
    let mut net = Net::built(12);
    let job = JobId(5);
    let spec = StreamSpec {
        scope: Scope::Job(job),
        ..second(&[1], Filter::Avg)
    };
    let stream = net.open(spec);
    net.run(2_000_000);
    assert!(net.ticks(stream).is_empty(), "nobody has the job");
    let set = |net: &mut Net, job| {
        let now = Instant::from_micros(net.now);
        for (node, fake) in &mut net.nodes[3..7] {
            node.set_job(now, job, false, fake);
        }
    };
    set(&mut net, Some(job));
    net.run(3_000_000);
    set(&mut net, None);
    net.run(1_000_000);
    let now = Instant::from_micros(net.now);
    net.front.job_ended(now, job);
    assert!(net.front.streams().is_empty());
    net.run(3_000_000);
    let ticks = net.ticks(stream);
    assert!((3..=4).contains(&ticks.len()), "{} ticks", ticks.len());
    assert!(ticks.iter().all(|value| value.covers == 4));
    assert!(
        net.nodes
            .iter()
            .all(|(node, _)| node.footprint().streams == 0)
    );
}

#[test]
fn a_quiet_job_speaks_once_at_its_end() {
    let mut net = Net::built(4);
    let stream = net.open(second(&[1], Filter::Concat));
    net.run(2_000_000);
    let now = Instant::from_micros(net.now);
    let (node, fake) = &mut net.nodes[2];
    node.set_job(now, Some(JobId(1)), false, fake);
    net.run(1_500_000);
    // The program begins in a tick that the node had no time for.
    net.dead.insert(2);
    net.run(1_000_000);
    net.dead.remove(&2);
    let now = Instant::from_micros(net.now);
    let (node, fake) = &mut net.nodes[2];
    let reads = fake.reads;
    node.set_job(now, Some(JobId(1)), true, fake);
    net.run(500_000);
    let before = (
        net.nodes[2].0.counters().get(OverlayMetric::Sent as usize),
        net.ticks(stream).len(),
    );
    net.run(10_000_000);
    let sent = net.nodes[2].0.counters().get(OverlayMetric::Sent as usize);
    assert_eq!(sent, before.0, "the node is silent");
    assert_eq!(net.nodes[2].1.reads, reads, "and is not measured");
    let now = Instant::from_micros(net.now);
    assert!(
        net.ticks(stream).len() >= before.1 + 9,
        "nobody waits for it"
    );
    let mark = net.events.len();
    let (node, fake) = &mut net.nodes[2];
    node.set_job(now, None, false, fake);
    net.run(300_000);
    let spoken = net.events[mark..].iter().any(|event| match event {
        FrontEndEvent::Tick(TickValue {
            values: TickBody::Rows(rows),
            ..
        }) => rows.iter().any(|row| row.node.0 == 2),
        _ => false,
    });
    assert!(spoken, "it was not heard at its end");
    assert!(
        net.front.views().values().all(|view| !view.gone),
        "and never taken for lost"
    );
}

/// A node that does not look while the tree is taken down has values in hand, and is in the next
/// tree at once.
#[test]
fn what_a_node_missed_of_a_take_down_is_told_in_the_next_tree() {
    let mut net = Net::built(20);
    net.open(StreamSpec {
        sync: Sync::WaitAll,
        ..second(&[1], Filter::Sum)
    });
    net.run(2_500_000);
    // A process, whose children send to it, and a child of another.
    let away = [0, 19];
    net.dead.extend(away);
    net.run(1_200_000);
    net.front.take_down(Instant::from_micros(net.now));
    net.run(1_500_000);
    assert_eq!(net.events.last(), Some(&FrontEndEvent::TreeDown));
    net.dead.clear();
    let layout = Layout {
        policy: Policy::Averaging,
        fan_out: 4,
    };
    let now = Instant::from_micros(net.now);
    net.front.build(now, &layout).unwrap();
    net.run(5_000_000);
    net.front.take_down(Instant::from_micros(net.now));
    net.run(2_000_000);
    let books = net.front.books();
    let sent: u64 = net.nodes.iter().map(|(node, _)| node.submitted()).sum();
    assert_eq!(books.sent, sent, "{books:?}");
    assert!(books.is_settled() && books.lost() > 0, "{books:?}");
}

/// A node that said that it has room for processes, and has none when they come.
#[test]
fn a_process_that_is_refused_is_told_and_the_next_tree_does_without_its_node() {
    let mut net = Net::new(20);
    net.run(1_500_000);
    let layout = Layout {
        policy: Policy::Averaging,
        fan_out: 4,
    };
    let now = |net: &Net| Instant::from_micros(net.now);
    let hosted = |net: &Net| -> BTreeSet<NodeId> { net.front.hosts().collect() };
    net.front.build(now(&net), &layout).unwrap();
    // One right below the front end, and one below another process.
    let planned = net.front.processes().into_iter();
    let inner = planned.filter(|(process, _)| process.slot > 0);
    let inner: Vec<(Process, Process)> = inner
        .map(|(process, view)| (process, view.parent))
        .collect();
    let below_front_end = |(_, parent): &&(Process, Process)| *parent == Process::FRONT_END;
    let high = inner.iter().rfind(below_front_end).unwrap().0;
    let mut low = inner.iter().filter(|of| !below_front_end(of));
    let low = low.rfind(|(_, parent)| *parent != high).unwrap().0;
    let tight: BTreeSet<Process> = [high, low].into();
    for process in &tight {
        net.nodes[process.node.0 as usize].0.offer(0);
    }
    net.run(1_000_000);
    let refused = net.events.iter().filter_map(|event| match event {
        FrontEndEvent::Refused { process } => Some(*process),
        _ => None,
    });
    let refused: Vec<Process> = refused.collect();
    assert_eq!(refused.len(), refused.iter().collect::<BTreeSet<_>>().len());
    let wanted: BTreeSet<NodeId> = tight.iter().map(|process| process.node).collect();
    assert!(hosted(&net).is_superset(&wanted));
    assert_eq!(
        refused
            .iter()
            .map(|process| process.node)
            .collect::<BTreeSet<_>>(),
        wanted
    );
    assert_eq!(net.front.offers(high.node), 0);
    net.front.take_down(now(&net));
    net.run(2_000_000);
    net.front.build(now(&net), &layout).unwrap();
    net.run(1_000_000);
    assert!(hosted(&net).is_disjoint(&wanted));
    assert_eq!(net.front.status().back_ends, 20);
}

#[test]
fn a_node_under_another_key_is_not_heard() {
    let mut net = Net::built(4);
    let (node, fake) = &mut net.nodes[0];
    node.set_key(Instant::from_micros(net.now), Key([1; 16]), fake);
    net.run(5_000_000);
    assert!(net.front.counters().get(OverlayMetric::Bad as usize) > 0);
    assert_eq!(net.nodes[0].0.footprint().roles, 0);
    assert_eq!(net.front.status().back_ends, 3, "it was given up");
}

#[test]
fn a_late_node_finds_its_place() {
    let mut net = Net::built(20);
    let late = Net::new(21).nodes.pop().unwrap();
    net.nodes.push(late);
    net.run(3_000_000);
    assert_eq!(net.nodes[20].0.status().count(), 1);
    assert!(
        net.nodes[20]
            .0
            .status()
            .all(|status| status.parent.is_some())
    );
    assert_eq!(net.front.status().back_ends, 21);
}

#[test]
fn streams_are_bounded() {
    let mut net = Net::new(1);
    for _ in 0..stream::MAX_STREAMS {
        net.open(second(&[1], Filter::Sum));
    }
    let full = net.front.open(Instant::ZERO, second(&[1], Filter::Sum));
    assert_eq!(full, Err(StreamError::Full));
    let first = *net.front.streams().keys().next().unwrap();
    net.front.close(Instant::ZERO, first);
    net.open(second(&[1], Filter::Sum));
    assert_eq!(vec![first], [StreamId(1)]);
}
