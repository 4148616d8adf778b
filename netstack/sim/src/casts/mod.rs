//! Casts: [`netstack::broadcast::Member`] on nodes and [`netstack::broadcast::Source`] on the
//! control node, as they ship.
//!
//! - [`plan`]: what a cast of a run is made of; [`options`] reads some from a command line
//!   ([`published`] what the published scheme leaves open).
//! - [`station`]: one engine and its memory; [`operator`]: the control node's user.
//! - [`shelf`] and [`content`]: what is cast, and what each node has of it; [`table`]: a job's
//!   connection table.
//! - [`check`]: what must hold; [`summary`]: what came out.
//!
//! Small runs send real datagrams with real bytes; in large ones the payload is virtual, and the
//! fragments of a block travel as one event with a bitmap, while loss and room in queues are still
//! decided for every datagram.
//!
//! Without sessions nodes know the key from the start, and control hears of what befalls them after
//! the times that sessions take for it.
//!
//! Key type: [`Casts`]. Invariant: faults and checks are here, no protocol logic.

pub mod check;
pub mod content;
pub mod operator;
pub mod options;
pub mod plan;
pub mod published;
pub mod shelf;
pub mod station;
pub mod summary;
pub mod table;

use std::sync::Arc;

use netstack::broadcast::Message;
use netstack::rng::Rng;

use crate::net::fabric::Train;
use crate::net::{Load, Net, key};
use crate::setup::{Fault, Setup};
use crate::world::{self, Checked, Service};
use operator::Operator;
use shelf::Content;
use station::{MemberSetup, Station};
use summary::Traffic;

/// Until when after a restart of the control node its nodes have heard of it.
const HEARS_NS: u64 = 50_000_000;
/// After what time without a heartbeat the control node takes a node for dead.
const HEARTBEATS_NS: u64 = 3_000_000_000;
/// How long a node keeps what it has of casts of an earlier run of the control node, as its kernel
/// does.
const LAPSE_NS: u64 = 60_000_000_000;
/// Virtual time after the end of the last cast for everything to come to rest.
const REST_NS: u64 = 120_000_000_000;

/// What happens because of something else.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// A cast begins.
    Cast(usize),
    /// A cast is cancelled.
    Cancel(usize),
    /// The control node misses the heartbeats of a node, unless it was on again since.
    Missed(u32, u64),
    /// The control node has a node join a cast.
    Join(usize, u32),
    /// A node hears of the control node's new run.
    Hear(u32),
    /// A node gives up what it has of casts of an earlier run, unless it has started again since.
    Lapse(u32, u64),
}

/// See the module.
pub struct Casts {
    pub(crate) setup: Arc<Setup>,
    /// What is cast.
    pub contents: Arc<Vec<Content>>,
    /// By number of the machine.
    pub stations: Vec<Station>,
    /// The control node's user.
    pub operator: Operator,
    /// What was sent.
    pub traffic: Traffic,
    /// Nodes that control sees, where they join it.
    up: Vec<bool>,
}

impl Casts {
    /// Before anything has begun.
    ///
    /// # Errors
    /// A text that says which object cannot be.
    pub fn new(setup: &Arc<Setup>) -> Result<Self, String> {
        let contents = Arc::new(content::make_all(setup)?);
        let stations = (0..=setup.nodes).map(|_| Station::new(&contents));
        Ok(Casts {
            setup: Arc::clone(setup),
            stations: stations.collect(),
            operator: Operator::new(setup, &contents),
            contents,
            traffic: Traffic::default(),
            up: vec![setup.jobs.is_none(); setup.nodes as usize],
        })
    }

    /// Blocks that are stored, of all that nodes lack at the begin, in per cent.
    pub fn delivered_percent(&self) -> f64 {
        let plans = self.setup.casts.iter().zip(self.contents.iter());
        let lacking = plans.map(|(plan, content)| {
            (plan.members.len() - plan.warm.len()) as u64 * u64::from(content.object.blocks())
        });
        let stored: u64 = self.stations.iter().map(|it| it.shelf.stored).sum();
        stored as f64 * 100.0 / lacking.sum::<u64>().max(1) as f64
    }

    /// Nodes join control before they take part.
    fn is_told(&self) -> bool {
        self.setup.jobs.is_some()
    }

    /// A node has joined a run of the control node, at this time there in microseconds.
    pub fn joined(&mut self, net: &mut Net, node: u32, run: (u64, u64)) {
        match self.stations[node as usize].engine {
            None => self.boot_member(net, node, run),
            Some(_) => self.hear_of_control(net, node, run),
        }
        net.ask(node);
    }

    /// The present run of the control node, and what time it is there.
    fn present(net: &Net) -> (u64, u64) {
        let control = net.control();
        let run = net.hosts[control as usize].boots;
        (run, net.clock(control).as_micros())
    }

    /// The card of a node may interrupt its program.
    pub fn is_active(&self, host: u32) -> bool {
        match self.stations.get(host as usize).map(|it| &it.engine) {
            Some(Some(station::Engine::Member(member))) => member.is_active(),
            _ => false,
        }
    }

    /// Control sees that a node has joined.
    pub fn came(&mut self, net: &mut Net, node: u32) {
        self.up[node as usize] = true;
        for run in &mut self.operator.runs {
            run.told_failed[node as usize] = 0;
        }
        self.rejoin(net, node);
    }

    /// Control takes a node for gone.
    pub fn lost(&mut self, net: &mut Net, node: u32) {
        let (control, now) = (net.control(), net.clock(net.control()));
        self.up[node as usize] = false;
        if let Some(source) = self.stations[control as usize].source() {
            source.lost(now, netstack::ids::NodeId(node));
            net.ask(control);
        }
    }

    fn boot_member(&mut self, net: &Net, node: u32, (run, time): (u64, u64)) {
        let setup = MemberSetup {
            control: net.control(),
            boot: net.boot(node),
            key: key(run),
            time,
            buffers: self.setup.buffers,
            members: self.setup.members_most(node),
            seed: self.setup.seed,
        };
        let now = net.clock(node);
        let station = &mut self.stations[node as usize];
        station.boot_member(&self.contents, node, setup, now);
        station.key_of = run;
    }

    fn boot_source(&mut self, net: &Net) {
        let control = net.control();
        let (now, boots) = (net.clock(control), net.hosts[control as usize].boots);
        let (rate, seed) = (self.setup.wiring.rate / 8, self.setup.seed);
        let station = &mut self.stations[control as usize];
        station.boot_source(control, key(boots), rate, seed ^ boots, now);
        for plan in 0..self.setup.casts.len() {
            station.shelf.fill(plan);
        }
    }

    /// A node hears of a run of the control node and gets its key.
    fn hear_of_control(&mut self, net: &mut Net, node: u32, (run, time): (u64, u64)) {
        let now = net.clock(node);
        let station = &mut self.stations[node as usize];
        if std::mem::replace(&mut station.key_of, run) == run {
            return;
        }
        if let Some(member) = station.member() {
            member.set_key(now, key(run));
            member.begin_at(now, time);
            station.shelf.forget_casts();
        }
        for plan in 0..self.operator.runs.len() {
            if self.operator.runs[plan].cancelled {
                self.stations[node as usize].shelf.drop_part(plan);
            }
        }
        // A cast of the new run goes on with what is here, if its announcement comes before it is
        // cancelled.
        let boots = net.hosts[node as usize].boots;
        let lapse = Action::Lapse(node, boots);
        net.schedule(net.now() + LAPSE_NS, world::Action::Cast(lapse));
        if !self.is_told() {
            self.rejoin(net, node);
        }
    }

    fn do_action(&mut self, net: &mut Net, action: Action) -> Checked {
        match action {
            Action::Hear(node) if self.lives(net, node) => {
                self.hear_of_control(net, node, Self::present(net));
            }
            Action::Hear(_) => {}
            Action::Lapse(node, boots) => {
                let station = &mut self.stations[node as usize];
                if station.engine.is_some() && net.hosts[node as usize].boots == boots {
                    station.shelf.lapse();
                }
            }
            other => self.operate(net, other)?,
        }
        Ok(())
    }
}

impl Service for Casts {
    fn begin(&mut self, net: &mut Net) {
        let setup = Arc::clone(&self.setup);
        for (number, plan) in setup.casts.iter().enumerate() {
            for &node in &plan.warm {
                self.stations[node as usize].shelf.fill(number);
            }
            let begin = Action::Cast(number);
            net.schedule(plan.at_ns, world::Action::Cast(begin));
            if let Some(at) = plan.cancel_ns {
                net.schedule(at, world::Action::Cast(Action::Cancel(number)));
            }
        }
    }

    fn boot(&mut self, net: &mut Net, host: u32) -> Checked {
        let is_first = net.hosts[host as usize].boots == 1;
        if host != net.control() {
            if !self.is_told() {
                self.boot_member(net, host, Self::present(net));
            }
            if !is_first && !self.is_told() {
                self.rejoin(net, host);
            }
            return Ok(());
        }
        self.boot_source(net);
        let is_told = self.is_told();
        self.up.fill(!is_told);
        if is_first {
            return Ok(());
        }
        if !self.is_told() {
            let mut rng = Rng::new(self.setup.seed ^ net.now());
            for node in 0..self.setup.nodes {
                let at = net.now() + rng.below(HEARS_NS);
                net.schedule(at, world::Action::Cast(Action::Hear(node)));
            }
        }
        self.recast(net)
    }

    fn off(&mut self, net: &mut Net, host: u32) {
        self.stations[host as usize].engine = None;
        if host == net.control() {
            self.operator.crash();
        } else if !self.is_told() {
            let missed = Action::Missed(host, net.hosts[host as usize].boots);
            net.schedule(net.now() + HEARTBEATS_NS, world::Action::Cast(missed));
        }
    }

    fn inflict(&mut self, net: &mut Net, fault: Fault) -> Checked {
        match fault {
            Fault::Join { cast, node } => self.operate(net, Action::Join(cast, node))?,
            Fault::Part(node, 0) | Fault::Mend(node) if !self.is_told() => {
                self.rejoin(net, node);
                self.do_action(net, Action::Hear(node))?;
            }
            Fault::Corrupt(node) => self.stations[node as usize].shelf.corrupt = true,
            _ => {}
        }
        Ok(())
    }

    fn act(&mut self, net: &mut Net, action: world::Action) -> Checked {
        match action {
            world::Action::Cast(action) => self.do_action(net, action),
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        net: &mut Net,
        host: u32,
        at: u64,
        (from, train, mut load): (u32, Train, Load),
    ) -> Checked {
        let delivered = self.traffic.delivered_fragments;
        let station = &mut self.stations[host as usize];
        if station.engine.is_none() {
            return Ok(());
        }
        match &mut load {
            Load::Cast(packet) => {
                if let Message::Data { fragments, .. } = &mut packet.message {
                    *fragments = train.datagrams;
                    self.traffic.delivered_fragments += u64::from(fragments.count_ones());
                }
            }
            Load::Datagram(bytes) => {
                let is_data = summary::data_payload(bytes).is_some();
                self.traffic.delivered_fragments += u64::from(is_data);
            }
            Load::Exchange(_) => {}
        }
        if host == net.control() && self.traffic.delivered_fragments == delivered {
            self.traffic.count_at_control();
        }
        station.handle(net.clock_at(host, at), crate::net::peer(from).addr, load);
        Ok(())
    }

    fn settle(&mut self, net: &mut Net, host: u32, at: u64) -> Checked {
        match host == net.control() {
            true => self.source_events(net),
            false => self.member_events(net, host, at),
        }
    }

    fn send_next(&mut self, net: &mut Net, host: u32) -> Result<bool, String> {
        let from_control = host == net.control();
        let now = net.clock(host);
        let station = &mut self.stations[host as usize];
        let (to, train, load) = if self.setup.real {
            let Some((to, length)) = station.poll_datagram(now, &mut net.buffer[..]) else {
                return Ok(false);
            };
            let bytes = &net.buffer[..length];
            let train = self.traffic.charge_datagram(from_control, bytes);
            (to, train, Load::Datagram(bytes.into()))
        } else {
            let Some((to, packet)) = station.poll_message(now) else {
                return Ok(false);
            };
            let plan = self.operator.plan_of(packet.cast);
            let object = plan.map(|plan| &self.contents[plan].object);
            let train = self.traffic.charge(from_control, &packet, object);
            (to, train, Load::Cast(packet))
        };
        net.send(host, crate::net::node_of(to.addr), train, load);
        Ok(true)
    }

    fn deadline(&self, net: &Net, host: u32) -> Option<u64> {
        let due = self.stations[host as usize].poll_timeout()?;
        Some(net.hosts[host as usize].clock.when(due))
    }

    fn is_over(&self, _net: &Net) -> bool {
        self.operator.is_over()
    }

    fn rest_ns(&self) -> u64 {
        REST_NS
    }

    fn missing(&self, net: &Net) -> String {
        check::missing(self, net)
    }

    fn end(&self, net: &Net) -> Checked {
        check::end(self, net)
    }
}
