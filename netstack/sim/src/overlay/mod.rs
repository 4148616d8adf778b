//! The monitoring overlay: [`netstack::overlay::Node`] and [`netstack::overlay::FrontEnd`], as they
//! ship.
//!
//! - [`plan`]: what a run is made of; [`options`] reads one from a command line.
//! - [`station`]: one node and what it measures. [`truth`]: what really happened, to hold the books
//!   against.
//! - [`check`]: what must hold; [`summary`]: what came out.
//!
//! A run: nodes say hello; the front end makes the tree and opens the streams; values flow while
//! faults happen; the front end takes the tree down; what must hold is checked. With sessions the
//! tree is kept up over restarts of control, until nothing goes wrong any more and every node has a
//! parent.
//!
//! Every datagram is a real one, sealed and parsed, in the largest runs too.
//!
//! Key type: [`Overlay`]. Invariant: faults and checks are here, no protocol logic.

pub mod check;
pub mod options;
pub mod plan;
pub mod station;
pub mod summary;
pub mod truth;

use std::sync::Arc;

use netstack::ids::NodeId;
use netstack::overlay::{
    FrontEnd, FrontEndConfig, FrontEndEvent, NodeEvent, OverlayMetric, Part, Process, StreamId,
    TreeEpoch,
};
use netstack::time::Instant;

use crate::net::fabric::{Noise, Train, frame_bytes};
use crate::net::{Load, Net, key, node_of, peer};
use crate::setup::{Fault, Setup};
use crate::world::{self, Checked, Service};
use plan::{BUILD_NS, DOWN_NS, Monitoring, REST_NS, SETTLING_NS};
use station::Station;
use summary::Measures;
use truth::Truth;

/// How soon control hears heartbeats of a node that goes on.
const BACK_NS: u64 = 1_000_000_000;
/// When another tree is made after a node has refused a process.
const REFUSED_NS: u64 = 1_500_000_000;
/// How often control looks after a tree that it keeps up.
const TEND_NS: u64 = 1_000_000_000;

/// What happens because of something else.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// The tree is made.
    Build,
    /// Another tree, of the nodes that live.
    Rebuild,
    /// Control hears the heartbeats of a node again.
    Back(u32),
    /// A stream is opened.
    Open(usize),
    /// A stream is closed.
    Close(usize),
    /// The figures of the flow begin.
    Measure,
    /// The tree is taken down.
    TakeDown,
    /// Taking down should be over.
    Down,
    /// The last tree is taken down, in which nodes told what they had no tree for.
    Settled,
    /// The run is over.
    End,
    /// Control looks after the tree.
    Tend,
}

/// How far a tree is that is kept up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Things go wrong.
    Troubled,
    /// Nothing does any more: every node is to get a parent.
    Healing,
    /// It is taken down, at last.
    Ending,
}

/// See the module.
pub struct Overlay {
    pub(crate) setup: Arc<Setup>,
    /// By number of the node.
    pub stations: Vec<Station>,
    /// None while control is off.
    pub front: Option<FrontEnd>,
    /// By their places in [`Monitoring::specs`].
    streams: Vec<Option<StreamId>>,
    /// The tree is taken down to be made anew.
    replanning: bool,
    pub(crate) truth: Truth,
    pub(crate) measures: Measures,
    /// Where each process hangs, as it said last: index by node, slot.
    parents: Vec<[Option<Process>; 5]>,
    /// Ticks that each process has passed on.
    forwarded: Vec<[u64; 5]>,
    over: bool,
    phase: Phase,
}

impl Overlay {
    /// Before anything has begun.
    pub fn new(setup: &Arc<Setup>) -> Self {
        let nodes = setup.nodes as usize;
        Overlay {
            stations: (0..setup.nodes).map(Station::new).collect(),
            front: None,
            streams: Vec::new(),
            replanning: false,
            truth: Truth::default(),
            measures: Measures::default(),
            parents: vec![[None; 5]; nodes],
            forwarded: vec![[0; 5]; nodes],
            over: false,
            phase: Phase::Troubled,
            setup: Arc::clone(setup),
        }
    }

    pub(crate) fn plan(&self) -> &Monitoring {
        self.setup.overlay.as_ref().expect("there is an overlay")
    }

    /// Nodes join control before they take part, and the tree is kept up.
    pub(crate) fn is_told(&self) -> bool {
        self.setup.jobs.is_some()
    }

    /// A node has joined a run of the control node.
    pub(crate) fn joined(&mut self, net: &mut Net, node: u32, run: (u64, u64)) {
        let station = &mut self.stations[node as usize];
        if station.key_of == run.0 && station.node.is_some() {
            let now = net.clock(node);
            if let Some(machine) = &mut station.node {
                machine.rejoin(now);
            }
            return;
        }
        self.begin_roles(net, node, run);
    }

    /// What a node's back end says it submitted, as the front end has heard.
    pub(crate) fn told_of(&self, net: &Net, node: u32) -> u64 {
        let boot = net.boot(node);
        let front = self.front.as_ref();
        front.map_or(0, |front| front.submitted(NodeId(node), boot))
    }

    /// The node has roles in trees of this run of the control node, and none of another.
    fn begin_roles(&mut self, net: &mut Net, node: u32, (run, time): (u64, u64)) {
        if self.stations[node as usize].node.is_some() {
            self.forget(net, node);
        }
        let back_end = node >= self.plan().dedicated;
        let told = station::Told {
            boot: net.boot(node),
            front_end: net.control(),
            key_of: run,
            time,
            seed: self.setup.seed,
        };
        let now = net.clock(node);
        self.stations[node as usize].start(told, back_end, now);
        net.ask(node);
    }

    /// The roles of a node end.
    fn forget(&mut self, net: &Net, node: u32) {
        let station = &mut self.stations[node as usize];
        let present = net.hosts[net.control() as usize].boots;
        // What was said to an earlier run of the control node is on nobody's books.
        if let Some(machine) = station.node.take().filter(|_| station.key_of == present) {
            let dead = (node, net.boot(node));
            self.truth.dead.insert(dead, machine.submitted());
        }
        self.parents[node as usize] = [None; 5];
        self.forwarded[node as usize] = [0; 5];
        self.measures.forget(node);
    }

    fn front_event(&mut self, net: &mut Net, event: FrontEndEvent) -> Checked {
        match event {
            FrontEndEvent::Tick(value) => {
                let opened = |id: &Option<StreamId>| *id == Some(value.stream);
                let at = self.streams.iter().position(opened);
                let setup = Arc::clone(&self.setup);
                let plan = setup.overlay.as_ref().expect("there is an overlay");
                let spec = at.and_then(|at| plan.specs().nth(at));
                self.truth.take(&value, spec, plan.dedicated..setup.nodes)?;
                if let Some(spec) = spec {
                    let begin = value.tick * spec.period.0;
                    let lag = value.at.as_micros().saturating_sub(begin);
                    self.measures.arrived(lag, &value);
                }
            }
            FrontEndEvent::TreeUp { after, .. } => self.measures.build_us = Some(after.0),
            FrontEndEvent::TreeDown if self.replanning => {
                self.replanning = false;
                self.schedule(net, net.now() + 1, Action::Rebuild);
            }
            FrontEndEvent::TreeDown => {
                self.measures.down_at.get_or_insert(net.now());
            }
            // As control does: those that refuse at the same time are told together.
            FrontEndEvent::Refused { .. } => {
                let at = net.now() + REFUSED_NS;
                net.schedule(at, world::Action::Fault(Fault::Replan));
            }
            FrontEndEvent::Lost { .. } => self.measures.lost_told += 1,
            FrontEndEvent::Hello { .. } | FrontEndEvent::Closed { .. } => {}
        }
        Ok(())
    }

    fn node_events(&mut self, net: &mut Net, host: u32) {
        let index = host as usize;
        let Some(node) = &mut self.stations[index].node else {
            return;
        };
        while let Some(event) = node.poll_event() {
            match event {
                NodeEvent::Attached { slot, parent } => {
                    self.parents[index][usize::from(slot)] = Some(parent);
                    self.measures.attached(net.now(), host, slot);
                }
                NodeEvent::RoleTaken { slot, .. } => self.forwarded[index][usize::from(slot)] = 0,
                NodeEvent::RoleEnded { slot } => self.parents[index][usize::from(slot)] = None,
            }
        }
        let plan = self.setup.overlay.as_ref().expect("there is an overlay");
        let Some(period) = plan.streams.first().map(|spec| spec.period.0) else {
            return;
        };
        for status in node.status() {
            let known = &mut self.forwarded[index][usize::from(status.slot)];
            if status.forwarded > *known {
                *known = status.forwarded;
                let lag = u64::from(status.lag_us);
                self.measures.lag(status.height, net.now(), lag, period);
            }
        }
    }

    fn schedule(&self, net: &mut Net, at: u64, action: Action) {
        net.schedule(at, world::Action::Overlay(action));
    }

    fn do_action(&mut self, net: &mut Net, action: Action) -> Checked {
        let control = net.control();
        let at = net.clock(control);
        if let Action::End = action {
            self.over = true;
            return Ok(());
        }
        if let Action::Down = action {
            self.measures.left_over = check::left_over(self, net);
            return Ok(());
        }
        let Some(front) = &mut self.front else {
            return Ok(());
        };
        net.ask(control);
        match action {
            Action::Build => {
                front
                    .build(at, &self.setup.overlay.as_ref().expect("it is").layout)
                    .map_err(|error| error.to_string())?;
                self.measures.status = front.status();
                self.open_first(at)?;
            }
            Action::Rebuild => self.rebuild(net)?,
            Action::Back(node) => {
                if net.lives(node) {
                    front.welcome_back(at, NodeId(node));
                }
                // The one word that it is told may be lost: control looks every second.
                if front.away().any(|away| away == NodeId(node)) {
                    self.schedule(net, net.now() + BACK_NS, Action::Back(node));
                }
            }
            Action::Open(place) => self.open(at, place)?,
            Action::Close(stream) => {
                if let Some(stream) = self.streams[stream] {
                    front.close(at, stream);
                }
            }
            Action::Measure => self.measures.begin(net.now(), net.fabric.tally),
            Action::TakeDown => {
                check::before_down(self, net)?;
                self.take_down(net);
            }
            Action::Settled => front.take_down(at),
            Action::Tend => self.tend(net)?,
            Action::Down | Action::End => {}
        }
        Ok(())
    }

    fn take_down(&mut self, net: &Net) {
        self.measures.end(net.now(), net.fabric.tally);
        self.measures.down_from = net.now();
        if let Some(front) = &mut self.front {
            front.take_down(net.clock(net.control()));
        }
    }

    fn open_first(&mut self, at: Instant) -> Checked {
        let plan = self.plan();
        let (all, first) = (plan.specs().count(), plan.streams.len());
        self.streams = vec![None; all];
        (0..first).try_for_each(|place| self.open(at, place))
    }

    fn open(&mut self, at: Instant, place: usize) -> Checked {
        let spec = self
            .plan()
            .specs()
            .nth(place)
            .expect("it is planned")
            .clone();
        if let Some(front) = &mut self.front {
            let id = front.open(at, spec).map_err(|error| error.to_string())?;
            self.streams[place] = Some(id);
        }
        Ok(())
    }

    /// Control looks after a tree that it keeps up: makes one where there is none, and tells those
    /// that are back; when nothing goes wrong any more and all have a parent, it is taken down.
    fn tend(&mut self, net: &mut Net) -> Checked {
        let at = net.clock(net.control());
        let Some(front) = &mut self.front else {
            return Ok(());
        };
        let back = front.away().filter(|node| net.lives(node.0));
        for node in back.collect::<Vec<_>>() {
            front.welcome_back(at, node);
        }
        match self.phase {
            Phase::Ending => {}
            _ if self.replanning => {}
            _ if !front.is_standing() => self.rebuild(net)?,
            Phase::Healing if check::before_down(self, net).is_ok() => {
                self.phase = Phase::Ending;
                self.take_down(net);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes the tree down, to make another of those that live.
    fn replan(&mut self, net: &mut Net) {
        let at = net.clock(net.control());
        let Some(front) = &mut self.front else {
            return;
        };
        if front.is_standing() && !self.replanning && self.phase != Phase::Ending {
            self.replanning = true;
            front.take_down(at);
            net.ask(net.control());
        }
    }

    /// Another tree of those that live; those whose programs compute host as little as may be.
    fn rebuild(&mut self, net: &mut Net) -> Checked {
        let part = |node: u32| match net.lives(node) {
            false => Part::None,
            true if net.hosts[node as usize].look_at.is_some() => Part::BackEnd,
            true => Part::Any,
        };
        let is_told = self.is_told();
        let Some(front) = &mut self.front else {
            return Ok(());
        };
        let known: Vec<u32> = front.nodes().chain(front.away()).map(|it| it.0).collect();
        if known.iter().all(|node| part(*node) == Part::None) {
            return Ok(());
        }
        let layout = &self.setup.overlay.as_ref().expect("it is").layout;
        let at = net.clock(net.control());
        let built = front.build_among(at, layout, &mut |node| part(node.0));
        match built.map(|_| ()) {
            Err(error) if !is_told => return Err(error.to_string()),
            // Those that are left have no room for it: it is tried again.
            _ => net.ask(net.control()),
        }
        if is_told {
            self.measures.status = front.status();
        }
        Ok(())
    }

    /// A node with a communication process: the one that is number `number` in the order of nodes.
    pub(crate) fn host_of(&self, net: &Net, number: u32) -> Option<u32> {
        let mut hosts = (0..net.control()).filter(|&node| {
            let machine = self.stations[node as usize].node.as_ref();
            machine.is_some_and(|machine| machine.status().any(|status| status.slot > 0))
        });
        hosts.nth(number as usize)
    }

    /// Sum of a counter over all nodes that are on.
    pub(crate) fn total(&self, metric: OverlayMetric) -> u64 {
        let nodes = self.stations.iter().filter_map(|it| it.node.as_ref());
        nodes.map(|node| node.counters().get(metric as usize)).sum()
    }
}

impl Service for Overlay {
    fn begin(&mut self, net: &mut Net) {
        let setup = Arc::clone(&self.setup);
        let plan = setup.overlay.as_ref().expect("there is an overlay");
        let mut at = |at, action| net.schedule(at, world::Action::Overlay(action));
        let end = BUILD_NS + plan.ends_ns(&setup);
        at(BUILD_NS + 3_000_000_000, Action::Measure);
        if self.is_told() {
            net.schedule(BUILD_NS, world::Action::Tend);
            return;
        }
        at(BUILD_NS, Action::Build);
        for (place, (from, _)) in (plan.streams.len()..).zip(&plan.opens) {
            at(BUILD_NS + from, Action::Open(place));
        }
        for &(from, stream) in &plan.closes {
            at(BUILD_NS + from, Action::Close(stream));
        }
        at(end, Action::TakeDown);
        at(end + DOWN_NS, Action::Down);
        let mut over = end + DOWN_NS;
        if plan.settle {
            let quiet = Fault::Noise(Noise::default());
            net.schedule(over + 1, world::Action::Fault(quiet));
            net.schedule(over + 2, world::Action::Overlay(Action::Rebuild));
            let settled = world::Action::Overlay(Action::Settled);
            net.schedule(over + SETTLING_NS, settled);
            over += SETTLING_NS;
        }
        net.schedule(over + REST_NS, world::Action::Overlay(Action::End));
    }

    fn boot(&mut self, net: &mut Net, host: u32) -> Checked {
        let control = net.control();
        if host != control {
            self.stations[host as usize].gauges.now_us = net.now() / 1000;
            if !self.is_told() {
                let run = net.hosts[control as usize].boots;
                let time = net.clock(control).as_micros();
                self.begin_roles(net, host, (run, time));
            }
            if net.hosts[host as usize].boots > 1 {
                self.truth.restarts += 1;
            }
            return Ok(());
        }
        let boots = net.hosts[control as usize].boots;
        let config = FrontEndConfig {
            me: peer(control),
            key: key(boots),
            tree_base: TreeEpoch(boots << 32),
            seed: self.setup.seed ^ (boots - 1),
        };
        let now = net.clock(control);
        self.front = Some(FrontEnd::new(config, now));
        if self.is_told() {
            self.replanning = false;
            self.truth = Truth::default();
            self.open_first(now)?;
        }
        Ok(())
    }

    fn off(&mut self, net: &mut Net, host: u32) {
        if host == net.control() {
            self.front = None;
            return;
        }
        self.measures.kills += 1;
        let hangs =
            |parent: &Option<Process>| parent.is_some_and(|parent| parent.node == NodeId(host));
        for (child, parents) in (0_u32..).zip(&self.parents) {
            if child == host || self.stations[child as usize].node.is_none() {
                continue;
            }
            let orphans = (0_u8..).zip(parents).filter(|(_, parent)| hangs(parent));
            for (slot, _) in orphans {
                self.measures.orphaned(net.now(), child, slot);
            }
        }
        self.forget(net, host);
    }

    fn inflict(&mut self, net: &mut Net, fault: Fault) -> Checked {
        match fault {
            Fault::Continue(node) if !self.is_told() => {
                self.schedule(net, net.now() + BACK_NS, Action::Back(node));
            }
            Fault::Tight(node) => {
                if let Some(machine) = &mut self.stations[node as usize].node {
                    machine.offer(0);
                }
            }
            Fault::Replan => self.replan(net),
            Fault::Heal => self.phase = Phase::Healing,
            _ => {}
        }
        Ok(())
    }

    fn act(&mut self, net: &mut Net, action: world::Action) -> Checked {
        match action {
            world::Action::Overlay(action) => self.do_action(net, action),
            // Control looks after the tree as often as it is looked at.
            world::Action::Tend => {
                self.do_action(net, Action::Tend)?;
                net.schedule(net.now() + TEND_NS, world::Action::Tend);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        net: &mut Net,
        host: u32,
        at: u64,
        (from, _, load): (u32, Train, Load),
    ) -> Checked {
        let Load::Datagram(bytes) = load else {
            return Ok(());
        };
        let (now, from) = (net.clock_at(host, at), peer(from).addr);
        match self.stations.get_mut(host as usize) {
            Some(station) => {
                if let Some(node) = &mut station.node {
                    node.handle_datagram(now, from, &bytes);
                }
            }
            None => {
                if let Some(front) = &mut self.front {
                    front.handle_datagram(now, from, &bytes);
                }
            }
        }
        Ok(())
    }

    fn settle(&mut self, net: &mut Net, host: u32, _at: u64) -> Checked {
        if host != net.control() {
            self.node_events(net, host);
            return Ok(());
        }
        while let Some(event) = self.front.as_mut().and_then(FrontEnd::poll_event) {
            self.front_event(net, event)?;
        }
        Ok(())
    }

    fn send_next(&mut self, net: &mut Net, host: u32) -> Result<bool, String> {
        let now = net.clock(host);
        let sent = match self.stations.get_mut(host as usize) {
            Some(station) => {
                station.gauges.now_us = net.now() / 1000;
                let gauges = &mut station.gauges;
                let node = station.node.as_mut();
                node.and_then(|node| node.poll_transmit(now, &mut net.buffer[..], gauges))
            }
            None => {
                let front = self.front.as_mut();
                front.and_then(|front| front.poll_transmit(now, &mut net.buffer[..]))
            }
        };
        let Some((to, length)) = sent else {
            return Ok(false);
        };
        let bytes: Box<[u8]> = net.buffer[..length].into();
        let train = Train::of(1, frame_bytes(length as u32));
        net.send(host, node_of(to.addr), train, Load::Datagram(bytes));
        Ok(true)
    }

    fn deadline(&self, net: &Net, host: u32) -> Option<u64> {
        let due = match self.stations.get(host as usize) {
            Some(station) => station.node.as_ref()?.poll_timeout()?,
            None => self.front.as_ref()?.poll_timeout()?,
        };
        Some(net.hosts[host as usize].clock.when(due))
    }

    fn is_over(&self, net: &Net) -> bool {
        match self.is_told() {
            false => self.over,
            true => {
                let down = self.measures.down_at.is_some();
                self.phase == Phase::Ending && down && check::left_over(self, net) == 0
            }
        }
    }

    fn rest_ns(&self) -> u64 {
        0
    }

    fn missing(&self, net: &Net) -> String {
        match check::before_down(self, net) {
            Err(what) => what,
            Ok(()) => format!("the overlay is {:?}, and not down", self.phase),
        }
    }

    fn end(&self, net: &Net) -> Checked {
        check::end(self, net)
    }
}
