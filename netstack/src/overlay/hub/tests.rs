//! What a hub keeps so that it need not look at all children, held against a look at all of them.

use super::*;
use crate::ids::NodeId;
use crate::overlay::filter::Filter;
use crate::overlay::message::TreeEpoch;
use crate::overlay::metric::{Counters, MetricId};
use crate::overlay::outbox::Outbox;
use crate::overlay::stream::{StreamId, StreamSpec};
use crate::rng::Rng;

/// Children that come and go; some have a place, some do not.
const NODES: u64 = 12;

/// A hub with children that do what they like.
struct Bench {
    now: Instant,
    hub: Hub,
    clock: Clock,
    outbox: Outbox,
    /// What the hub draws, and what its children do.
    rng: Rng,
    chance: Rng,
    counters: Counters<{ OverlayMetric::COUNT }>,
    /// The last link of each child.
    links: BTreeMap<Process, u32>,
    streams: u16,
}

macro_rules! io {
    ($bench:ident) => {
        Io {
            now: $bench.now,
            me: peer(0),
            boot: BootEpoch(1),
            tree: TreeEpoch(1),
            outbox: &mut $bench.outbox,
            rng: &mut $bench.rng,
            counters: &mut $bench.counters,
        }
    };
}

fn peer(node: u32) -> Peer {
    Peer {
        addr: core::net::SocketAddrV4::new(core::net::Ipv4Addr::from(0x0a00_0000 + node), 7118),
        mac: [0; 6],
    }
}

fn process(node: u64) -> Process {
    // Every third is a communication process.
    Process {
        node: NodeId(node as u32 + 1),
        slot: u8::from(node.is_multiple_of(3)),
    }
}

impl Bench {
    fn new(seed: u64) -> Bench {
        let (mut outbox, mut rng) = (Outbox::new(usize::MAX), Rng::new(seed));
        let (mut counters, now) = (Counters::new(), Instant::from_micros(1));
        let me = Process {
            node: NodeId(0),
            slot: 1,
        };
        let mut io = Io {
            now,
            me: peer(0),
            boot: BootEpoch(1),
            tree: TreeEpoch(1),
            outbox: &mut outbox,
            rng: &mut rng,
            counters: &mut counters,
        };
        let hub = Hub::new(me, 2, Room::OF_CP, &mut io);
        Bench {
            now,
            hub,
            clock: Clock::front_end(),
            outbox,
            rng,
            chance: Rng::new(seed ^ 0x5eed),
            counters,
            links: BTreeMap::new(),
            streams: 0,
        }
    }

    fn standing(&mut self, child: Process) -> Standing {
        let link = self.links[&child];
        let quiet = child.slot == 0 && self.chance.below(4) == 0;
        let many = |rng: &mut Rng| rng.below(u64::from(u32::MAX)) as u32;
        let (back_ends, quiet_below, cps) = match child.slot {
            0 => (u32::from(!quiet), u32::from(quiet), 0),
            // Nothing that a child can say overflows.
            _ => (
                many(&mut self.chance),
                many(&mut self.chance),
                many(&mut self.chance),
            ),
        };
        Standing {
            link,
            quiet,
            back_ends,
            quiet_below,
            cps,
            ..Standing::default()
        }
    }

    fn attach(&mut self, child: Process) {
        let link = self.links.get(&child).map_or(1, |link| link + 1);
        self.links.insert(child, link);
        let attach = Attach {
            link,
            height: child.slot,
            room: 3,
            quiet: self.chance.below(5) == 0,
            moved: self.chance.below(2) == 0,
            time: 0,
        };
        let from = (child, BootEpoch(1), peer(child.node.0));
        self.hub
            .attach(&mut io!(self), from, attach, &self.clock, true);
    }

    fn report(&mut self, child: Process) {
        let standing = self.standing(child);
        let from = (child, BootEpoch(1), peer(child.node.0));
        let said = (standing, &[][..]);
        self.hub.report(&mut io!(self), from, said, &self.clock);
    }

    fn set_stream(&mut self) {
        let closing = self.streams > 3 && self.chance.below(2) == 0;
        let second = Micros::from_secs(1);
        let (id, version, spec) = match closing {
            true => (1 + self.chance.below(self.streams.into()) as u16, 2, None),
            false => {
                self.streams += 1;
                let spec = StreamSpec::new([MetricId(1)].into(), Filter::Sum, second);
                (self.streams, 1, Some(spec))
            }
        };
        self.hub.set_stream(self.now, StreamId(id), version, spec);
    }

    /// What the hub has sent is answered, or lost.
    fn deliver(&mut self) {
        while let Some((to, packet)) = self.outbox.pop_front() {
            let Message::Stream { id, version, .. } = packet.message else {
                continue;
            };
            let to = process(u64::from(to.addr.ip().to_bits() - 0x0a00_0001));
            if version > 0 && self.chance.below(3) > 0 {
                self.hub.stream_ack(&mut io!(self), to, id, version);
            }
        }
    }

    fn turn(&mut self) {
        let child = process(self.chance.below(NODES));
        match self.chance.below(12) {
            0 | 1 => self.attach(child),
            2 => self.set_stream(),
            3..=8 if self.links.contains_key(&child) => self.report(child),
            _ => {}
        }
        self.now += Micros(self.chance.below(700_000));
        let clock = self.clock.clone();
        self.hub.tick(&mut io!(self), &clock);
        self.deliver();
    }

    /// What the hub believes, and what a look at all children gives.
    fn check(&self) {
        let hub = &self.hub;
        let mut sums = Sums::default();
        hub.children
            .values()
            .for_each(|child| sums.add(&child.standing));
        let of = |sums: Sums| (sums.back_ends, sums.quiet, sums.cps);
        assert_eq!(of(hub.sums), of(sums));
        let deadline = hub.deadline(Instant::FAR_FUTURE);
        for (process, child) in &hub.children {
            if child.must_report() {
                assert!(hub.heard_floor <= child.heard_at, "{process}");
                let lost_at = child.heard_at + patience() + Micros(1);
                assert!(deadline <= lost_at, "{process} would be waited for");
            }
            if hub.lacks_stream(child) {
                assert!(!hub.all_know, "{process} lacks a stream");
                assert!(deadline <= child.tell_at, "{process} would not be told");
            }
        }
    }
}

#[test]
fn what_is_kept_is_what_a_look_at_all_children_gives() {
    for seed in 0..40 {
        let mut bench = Bench::new(seed);
        for _ in 0..400 {
            bench.turn();
            bench.check();
        }
        // Losses, streams and children were all there.
        let lost = bench.counters.get(OverlayMetric::ChildrenLost as usize);
        assert!(lost > 0 && bench.streams > 3, "seed {seed}");
    }
}

#[test]
fn a_silent_child_is_lost_when_its_time_is_up_and_the_others_stay() {
    let mut bench = Bench::new(1);
    let (silent, other) = (process(1), process(2));
    bench.attach(silent);
    bench.attach(other);
    let heard_at = bench.now;
    let lost_at = heard_at + patience() + Micros(1);
    while bench.now < lost_at {
        assert!(bench.hub.has_child(silent), "at {:?}", bench.now);
        bench.now = (bench.now + Micros::from_millis(300)).min(lost_at);
        // Whatever else it says, it speaks.
        let standing = Standing {
            link: 1,
            back_ends: 1,
            ..Standing::default()
        };
        let from = (other, BootEpoch(1), peer(other.node.0));
        let said = (standing, &[][..]);
        bench.hub.report(&mut io!(bench), from, said, &bench.clock);
        let clock = bench.clock.clone();
        bench.hub.tick(&mut io!(bench), &clock);
    }
    assert!(!bench.hub.has_child(silent) && bench.hub.has_child(other));
    assert_eq!(bench.hub.below().back_ends, 1);
}

#[test]
fn a_child_that_falls_silent_is_lost_where_nothing_else_wakes_the_hub() {
    let mut bench = Bench::new(1);
    let child = process(1);
    let attach = Attach {
        link: 1,
        height: 0,
        room: 3,
        quiet: false,
        moved: false,
        time: 0,
    };
    let from = (child, BootEpoch(1), peer(child.node.0));
    (bench.hub).attach(&mut io!(bench), from, attach, &bench.clock, true);
    let lost_at = bench.now + patience() + Micros(1);
    while bench.hub.has_child(child) {
        bench.now = bench.hub.deadline(Instant::FAR_FUTURE);
        assert!(bench.now <= lost_at, "it is kept at {:?}", bench.now);
        let clock = bench.clock.clone();
        bench.hub.tick(&mut io!(bench), &clock);
        bench.hub.entries.clear();
    }
    assert_eq!(bench.now, lost_at);
}

#[test]
fn a_child_that_comes_later_is_told_of_streams_that_all_others_know() {
    let mut bench = Bench::new(2);
    bench.attach(process(1));
    bench.set_stream();
    let clock = bench.clock.clone();
    bench.hub.tick(&mut io!(bench), &clock);
    bench
        .hub
        .stream_ack(&mut io!(bench), process(1), StreamId(1), 1);
    bench.hub.tick(&mut io!(bench), &clock);
    assert!(bench.hub.all_know);
    while bench.outbox.pop_front().is_some() {}
    bench.attach(process(2));
    assert!(bench.hub.deadline(Instant::FAR_FUTURE) <= bench.now);
    bench.hub.tick(&mut io!(bench), &clock);
    let mut told = Vec::new();
    while let Some((to, packet)) = bench.outbox.pop_front() {
        if let Message::Stream { id, .. } = packet.message {
            told.push((to, id));
        }
    }
    assert_eq!(told, [(peer(process(2).node.0), StreamId(1))]);
}
