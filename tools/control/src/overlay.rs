//! The front end of the monitoring overlay: has the nodes build their tree, opens streams, keeps
//! the newest values.
//!
//! Key types: [`Overlay`], beside the endpoint and the casts behind the lock of `control`;
//! [`view::View`], how it stands, for the API. Neighbours: `netstack::overlay::FrontEnd` decides,
//! `monitor::sample` takes the values for its pictures.
//!
//! Invariant: nothing here waits and nobody waits for it: without a tree, pictures have what
//! heartbeats say.

mod asked;
mod calls;
pub mod catalogue;
pub mod kept;
pub mod late;
pub mod layout;
mod loads;
mod opened;
mod recent;
mod totals;
pub mod view;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::sync::Arc;

use hearth_store::Batch;
use netstack::broadcast::Peer;
use netstack::control::{self as protocol, NodeState};
use netstack::ids::{JobId, NodeId};
use netstack::overlay::fixed::Fixed;
use netstack::overlay::placement::{Layout, Policy, Topology};
use netstack::overlay::{
    Filter, FrontEnd, FrontEndConfig, FrontEndEvent, MetricId, NetworkMetric, NodeMetric, Part,
    Process, ProfileMetric, Reduced, Row, Scope, StreamId, StreamSpec, TickBody, TickValue,
    TreeEpoch,
};
use netstack::time::{Instant, Micros};
use netstack::wire::key::Key;

use crate::config;
use crate::events::{Event, Severity};
use crate::hosts::Hosts;
use crate::output::{count, count_of};
use crate::principal::Operator;

pub use asked::Asked;
use kept::StreamTick;
use layout::{nodes_of, ranges};
pub use totals::Totals;
use view::Delay;

/// A node's values count as present for so long, or for two and a half periods if that is longer.
const FRESH: Micros = Micros::from_millis(2_500);
/// No node has said hello for so long: those that will come with the others have.
const SETTLED: Micros = Micros::from_millis(1_500);
/// A tree that nodes have outgrown is made anew, but not sooner than this after the last.
const REBUILD_AFTER: Micros = Micros::from_secs(15);
/// A tree whose processes got jobs beside them is made anew, but not sooner than this after the
/// last.
const REPLAN_AFTER: Micros = Micros::from_secs(30);
/// How long such a job has been there by then: short ones are not worth it.
const DISTURBED_FOR: Micros = Micros::from_secs(3);
/// One whose processes are on the node of a job that asked for silence is made anew as soon as
/// that, if others can host them.
const QUIET_AFTER: Micros = Micros::from_secs(2);
/// How often it is looked whether there are such.
const LOOK_EVERY: Micros = Micros::from_secs(1);
/// A child that moved so shortly before its parent's loss was told did so because of it.
const LOSS_TOLD_WITHIN: Micros = Micros::from_secs(5);
/// How soon a layout that is not possible now is tried again.
const RETRY: Micros = Micros::from_secs(5);
/// Losses that are remembered.
const LOSSES_MAX: usize = 64;
/// Streams that ended and are remembered.
const ENDED_MAX: usize = 16;
/// Name of the stream of sums over all nodes in the files.
pub const SUMS: &str = "sums";
/// Ticks whose delays are remembered: five minutes of seconds.
const DELAYS_MAX: usize = 300;
/// Every node's own counts of these calls come once in so many periods.
const CALLS_EVERY: u64 = 10;
/// System calls whose number of all nodes together is asked for.
const CALLS: [u64; 40] = [
    0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 19, 20, 28, 35, 39, 60, 72, 79, 96, 158,
    186, 201, 202, 217, 218, 228, 230, 231, 257, 262, 318, 4098, 4099, 4101,
];

/// What it needs to start.
#[derive(Debug)]
pub struct Setup {
    /// Where control is reached.
    pub me: Peer,
    /// The key that nodes share.
    pub key: Key,
    /// Seed of its random choices.
    pub seed: u64,
    /// Section `[overlay]`.
    pub config: config::Overlay,
    /// Rate of every node's link, in bits a second: section `[broadcast]`.
    pub link_rate: u64,
    /// Nodes by the host names of the site.
    pub hosts: Arc<Hosts>,
}

/// What a node sent last.
#[derive(Debug, Clone, Default)]
pub struct NodeRow {
    /// When it arrived.
    pub at: Instant,
    /// Its tick.
    pub tick: u64,
    /// Values in the order of [`NodeMetric::DEFS`].
    pub values: Vec<Option<i64>>,
}

/// A process that was lost.
#[derive(Debug, Clone)]
pub struct Loss {
    /// It.
    pub process: Process,
    /// When the front end heard of it.
    pub at: Instant,
    /// Those of its children that have no other parent yet.
    orphans: BTreeSet<Process>,
    /// All that it was the parent of on other nodes, those that had noticed before the front end
    /// did included.
    pub children: usize,
    /// When the last of them had another parent.
    pub mended: Option<Instant>,
}

/// A collector that runs all the time on some nodes, and its newest values.
#[derive(Debug, Clone)]
pub struct Collector {
    stream: StreamId,
    /// Its metrics, in the order of the values.
    pub metrics: Vec<MetricId>,
    /// Values by node.
    pub rows: BTreeMap<NodeId, NodeRow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for nodes.
    Collecting,
    /// A tree stands.
    Standing,
    /// It is taken down, to be made anew.
    Renewing,
    /// It was taken down because somebody wanted that.
    Down,
}

/// See the module.
#[derive(Debug)]
pub struct Overlay {
    front: FrontEnd,
    config: config::Overlay,
    hosts: Arc<Hosts>,
    layout: Layout,
    state: State,
    hello_at: Instant,
    built_at: Instant,
    try_at: Instant,
    /// Why a tree could not be made last, as it was told: once, though it is tried again and again.
    not_built: Option<String>,
    /// Nodes that the standing tree was made of.
    planned: usize,
    /// Since when nodes with jobs host processes though others could.
    disturbed_at: Option<Instant>,
    /// A node had no room for a process of the standing tree.
    refused: bool,
    /// What nodes are judged by, and the rate of their links in Gbit/s.
    loads: loads::Loads,
    link: Fixed,
    look_at: Instant,
    /// Nodes that host communication processes before all others: section `[overlay]`.
    dedicated: BTreeSet<u32>,
    rows_stream: Option<StreamId>,
    totals_stream: Option<StreamId>,
    calls_stream: Option<StreamId>,
    calls: calls::Calls,
    /// Streams of collectors that the configuration triggers.
    collectors: Vec<Collector>,
    asked: BTreeMap<StreamId, Asked>,
    /// Jobs that are over, and when their streams are closed.
    ending: Vec<(Instant, JobId)>,
    /// The last streams that ended with their jobs or were closed, with their last values.
    ended: VecDeque<(StreamId, Asked)>,
    rows: BTreeMap<NodeId, NodeRow>,
    late: late::LateRows,
    totals: totals::Gathering,
    /// What is stored of the sums, and their last ticks.
    sums: (Arc<str>, Arc<[hearth_monitor::Metric]>),
    sums_recent: recent::Recent,
    /// Ticks of streams that wait for the files.
    kept: kept::Waiting,
    losses: VecDeque<Loss>,
    delays: VecDeque<Delay>,
    up_after: Option<Micros>,
    down_after: Option<(Instant, Option<Instant>)>,
    events: Vec<Event>,
    /// What the store is to know: streams that were opened and that have ended.
    changes: Batch,
}

/// Keeps the newest values of each node.
fn keep_rows(known: &mut BTreeMap<NodeId, NodeRow>, now: Instant, tick: u64, rows: Vec<Row>) {
    for row in rows {
        let known = known.entry(row.node).or_default();
        if known.tick <= tick {
            *known = NodeRow {
                at: now,
                tick,
                values: row.values,
            };
        }
    }
}

impl Overlay {
    /// A front end that waits for nodes.
    ///
    /// # Errors
    /// What is wrong with the configuration.
    pub fn new(setup: Setup, now: Instant) -> Result<Self, String> {
        let layout = layout::of(&setup.config)?;
        let front = FrontEnd::new(
            FrontEndConfig {
                me: setup.me,
                key: setup.key,
                // Seconds since 1970 rise over restarts; far fewer trees are made in one second.
                tree_base: TreeEpoch((crate::clock::unix_us() / 1_000_000) << 16),
                seed: setup.seed,
            },
            now,
        );
        let mut overlay = Overlay {
            front,
            layout,
            state: State::Collecting,
            hello_at: now,
            built_at: now,
            try_at: now,
            not_built: None,
            planned: 0,
            disturbed_at: None,
            refused: false,
            loads: loads::Loads::default(),
            link: loads::gbits(setup.link_rate),
            look_at: now,
            dedicated: nodes_of(&setup.hosts, "overlay.dedicated", &setup.config.dedicated)?,
            rows_stream: None,
            totals_stream: None,
            calls_stream: None,
            calls: calls::Calls::default(),
            collectors: Vec::new(),
            asked: BTreeMap::new(),
            ending: Vec::new(),
            ended: VecDeque::new(),
            rows: BTreeMap::new(),
            late: late::LateRows::default(),
            totals: totals::Gathering::default(),
            sums: (SUMS.into(), Arc::new([])),
            sums_recent: recent::Recent::new(Micros::from_millis(setup.config.period_ms)),
            kept: kept::Waiting::default(),
            losses: VecDeque::new(),
            delays: VecDeque::new(),
            up_after: None,
            down_after: None,
            events: Vec::new(),
            changes: Batch::default(),
            config: setup.config,
            hosts: setup.hosts,
        };
        if !overlay.config.enabled {
            // Nodes ask who is there; they are told to be silent.
            overlay.front.stay_down();
        }
        overlay.open_own(now);
        overlay.open_collectors(now)?;
        Ok(overlay)
    }

    /// The streams that are always open: values of all nodes one by one, sums over all, and now and
    /// then each node's counts of system calls.
    fn open_own(&mut self, now: Instant) {
        let period = Micros::from_millis(self.config.period_ms);
        let of_node = NodeMetric::DEFS.iter().map(|def| def.id);
        let of_program =
            (0..MetricId::PROGRAM as u16).map(|index| MetricId(MetricId::FIRST_PROGRAM + index));
        let rows = StreamSpec::new(of_node.chain(of_program).collect(), Filter::Concat, period);
        let calls = CALLS.iter().filter_map(|call| MetricId::of_call(*call));
        let calls: Vec<MetricId> = calls.collect();
        let own = [
            NodeMetric::SystemCalls,
            NodeMetric::FramesReceived,
            NodeMetric::FramesSent,
            NodeMetric::BytesReceived,
            NodeMetric::BytesSent,
            NodeMetric::RetransmissionsControl,
            NodeMetric::MemoryUsed,
            NodeMetric::TimeUser,
            NodeMetric::FaultsCode,
            NodeMetric::FaultsReadonly,
            NodeMetric::FaultsData,
            NodeMetric::FaultsZero,
            NodeMetric::FaultsStack,
        ];
        let metrics = own.iter().map(|metric| metric.id());
        let metrics = metrics.chain(calls.iter().copied()).collect();
        let totals = StreamSpec::new(metrics, Filter::Sum, period);
        let apart = Micros(period.0 * CALLS_EVERY);
        let each = StreamSpec::new(calls.clone(), Filter::Concat, apart);
        // They are within all bounds: tested.
        self.rows_stream = self.front.open(now, rows).ok();
        self.sums.1 = kept::columns(&totals).unwrap_or_else(|| Arc::new([]));
        self.totals_stream = self.front.open(now, totals).ok();
        self.calls_stream = self.front.open(now, each).ok();
        self.calls = calls::Calls::new(calls);
    }

    /// The streams of collectors that the configuration triggers.
    fn open_collectors(&mut self, now: Instant) -> Result<(), String> {
        let network = NetworkMetric::DEFS.iter().map(|def| def.id).collect();
        let profile = 0..ProfileMetric::Buckets as u16 + ProfileMetric::BUCKETS as u16;
        let profile = profile.map(|index| MetricId(ProfileMetric::FIRST + index));
        let wanted: [(&str, String, Vec<MetricId>); 2] = [
            ("overlay.network", self.config.network.clone(), network),
            (
                "overlay.profile",
                self.config.profile.clone(),
                profile.collect(),
            ),
        ];
        for (key, nodes, metrics) in wanted {
            let scope = match nodes.as_str() {
                "" => continue,
                "all" => Scope::All,
                list => Scope::Nodes(ranges(&nodes_of(&self.hosts, key, list)?)),
            };
            let period = Micros::from_millis(self.config.period_ms);
            let spec = StreamSpec {
                scope,
                ..StreamSpec::new(metrics.clone(), Filter::Concat, period)
            };
            let stream = self.front.open(now, spec);
            let stream = stream.map_err(|error| format!("{key}: {error}"))?;
            self.collectors.push(Collector {
                stream,
                metrics,
                rows: BTreeMap::new(),
            });
        }
        Ok(())
    }

    /// Collectors that the configuration triggers.
    pub fn collectors(&self) -> &[Collector] {
        &self.collectors
    }

    /// Sums over all nodes.
    pub fn totals(&self) -> &Totals {
        self.totals.shown()
    }

    /// System calls of all nodes together, by name. None goes back while control runs.
    pub fn calls(&self) -> impl Iterator<Item = (MetricId, i128)> + '_ {
        self.calls.sums()
    }

    /// Time between two ticks of every node's counts of system calls.
    fn calls_period(&self) -> u64 {
        Micros::from_millis(self.config.period_ms).as_micros() * CALLS_EVERY
    }

    /// Takes a datagram of the overlay.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        self.front.handle_datagram(now, from, datagram);
    }

    /// The next datagram to send, and where to.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(SocketAddrV4, usize)> {
        let (peer, length) = self.front.poll_transmit(now, out)?;
        Some((peer.addr, length))
    }

    /// When to act next.
    pub fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        let own = match self.state {
            State::Collecting if self.config.enabled && self.front.nodes().next().is_some() => {
                Some((self.hello_at + SETTLED).max(self.try_at))
            }
            State::Standing if self.refused => Some(self.built_at + SETTLED),
            State::Standing if self.is_outgrown() => {
                Some((self.built_at + REBUILD_AFTER).max(self.hello_at + SETTLED))
            }
            _ => None,
        };
        let ending = self.ending.iter().map(|(at, _)| *at).min();
        let own = [own, ending].into_iter().flatten().min();
        let own = own.map(|at| at.max(now + Micros(1)));
        [own, self.front.poll_timeout()].into_iter().flatten().min()
    }

    /// What is to be told to people.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Acts on what has happened and on what is due.
    pub fn settle(&mut self, now: Instant, endpoint: &protocol::Endpoint) {
        while let Some(event) = self.front.poll_event() {
            self.take(now, event);
        }
        self.end_streams(now);
        self.mend_losses(now);
        let looks = now >= self.look_at;
        if looks {
            self.look_at = now + LOOK_EVERY;
            let back = |node: &NodeId| self.part(endpoint, *node) != Part::None;
            let back: Vec<NodeId> = self.front.away().filter(back).collect();
            back.into_iter()
                .for_each(|node| self.front.welcome_back(now, node));
            if matches!(self.layout.policy, Policy::Comprehensive(_)) {
                let vitals = endpoint
                    .nodes()
                    .map(|status| (status.node, status.cores, status.vitals));
                self.loads.look(vitals);
            }
        }
        match self.state {
            State::Collecting => self.build(now, endpoint),
            State::Standing if self.refused && now >= self.built_at + SETTLED => self.renew(now),
            State::Standing
                if self.is_outgrown()
                    && now >= self.built_at + REBUILD_AFTER
                    && now >= self.hello_at + SETTLED =>
            {
                self.renew(now);
            }
            State::Standing if looks && now >= self.built_at + QUIET_AFTER => {
                self.look_after_jobs(now, endpoint);
            }
            _ => {}
        }
    }

    /// Makes another tree when nodes with jobs host processes and others could: at once where a job
    /// asked for silence.
    fn look_after_jobs(&mut self, now: Instant, endpoint: &protocol::Endpoint) {
        if !self.is_disturbed(endpoint) {
            self.disturbed_at = None;
            return;
        }
        let since = *self.disturbed_at.get_or_insert(now);
        let lasts = now >= since + DISTURBED_FOR && now >= self.built_at + REPLAN_AFTER;
        if lasts || self.front.hosts().any(|node| self.front.is_quiet(node)) {
            self.renew(now);
        }
    }

    /// Takes the tree down, to make another.
    fn renew(&mut self, now: Instant) {
        self.state = State::Renewing;
        self.disturbed_at = None;
        self.refused = false;
        self.front.take_down(now);
    }

    /// What a node may be in a tree that is made now.
    fn part(&self, endpoint: &protocol::Endpoint, node: NodeId) -> Part {
        let status = endpoint.node(node);
        let Some(status) = status.filter(|status| status.state == NodeState::Up) else {
            return Part::None;
        };
        let at_ease = match self.dedicated.is_empty() {
            true => status.vitals.job.is_none(),
            false => self.dedicated.contains(&node.0),
        };
        match at_ease {
            true => Part::Any,
            false => Part::BackEnd,
        }
    }

    /// Processes run beside jobs, and nodes that are at ease could host all of them.
    fn is_disturbed(&self, endpoint: &protocol::Endpoint) -> bool {
        let at_ease = |node: &NodeId| self.part(endpoint, *node) == Part::Any;
        let busy = |node: NodeId| self.part(endpoint, node) == Part::BackEnd;
        if matches!(self.layout.policy, Policy::Given(Topology::Explicit(_)))
            || !self.front.hosts().any(busy)
        {
            return false;
        }
        let room = self.front.nodes().filter(at_ease);
        let room: u32 = room.map(|node| self.front.offers(node)).sum();
        room >= self.front.status().cps_planned
    }

    /// Nodes have come that the tree was not made for, and it has more than one level or should
    /// have.
    fn is_outgrown(&self) -> bool {
        let nodes = self.front.nodes().count();
        nodes > self.layout.fan_out as usize && nodes > self.planned + self.planned / 4
    }

    fn build(&mut self, now: Instant, endpoint: &protocol::Endpoint) {
        let settled = now >= self.hello_at + SETTLED && now >= self.try_at;
        if !self.config.enabled || !settled || self.front.nodes().next().is_none() {
            return;
        }
        self.try_at = now + RETRY;
        let parts = self
            .front
            .nodes()
            .map(|node| (node, self.part(endpoint, node)));
        let parts: BTreeMap<NodeId, Part> = parts.collect();
        for node in parts.keys() {
            if let Some(factors) = self.loads.factors(*node, self.link) {
                self.front.judge(*node, factors);
            }
        }
        let part = &mut |node: NodeId| parts.get(&node).copied().unwrap_or(Part::None);
        match self.front.build_among(now, &self.layout, part) {
            Ok(_) => {
                self.state = State::Standing;
                self.built_at = now;
                self.up_after = None;
                self.not_built = None;
                self.planned = self.front.nodes().count();
            }
            Err(error) => {
                let text = format!("the monitoring tree cannot be built: {error}");
                if self.not_built.as_ref() != Some(&text) {
                    self.not_built = Some(text.clone());
                    self.tell(Severity::Warning, "overlay-not-built", text);
                }
            }
        }
    }

    fn tell(&mut self, severity: Severity, kind: &str, text: String) {
        self.events.push(Event::new(severity, kind, text));
    }

    fn take(&mut self, now: Instant, event: FrontEndEvent) {
        match event {
            FrontEndEvent::Hello { node, boot } => {
                self.hello_at = now;
                let tick = now.as_micros() / self.calls_period();
                self.calls.hello(node, boot, tick);
            }
            FrontEndEvent::TreeUp { after, back_ends } => {
                self.up_after = Some(after);
                let status = self.front.status();
                let text = format!(
                    "the monitoring tree stands: {}, {} between them and control, {}, {:.1} ms",
                    count(back_ends, "node"),
                    count_of(status.cps_planned, "process", "processes"),
                    count(status.height, "level"),
                    after.as_micros() as f64 / 1e3
                );
                self.tell(Severity::Info, "overlay-up", text);
            }
            FrontEndEvent::Tick(value) => self.take_tick(now, value),
            FrontEndEvent::Refused { process } => {
                self.refused = true;
                let text = format!(
                    "{} has no memory for {process}, a process of the monitoring tree that it had room for before: another tree is made in which it hosts at most {}",
                    process.node,
                    process.slot.saturating_sub(1)
                );
                self.tell(Severity::Warning, "overlay-refused", text);
            }
            FrontEndEvent::Lost { process } => self.lost(now, process),
            FrontEndEvent::Closed { stream } => {
                let ended = self.asked.remove(&stream);
                if ended.is_some() {
                    self.changes.end_stream(stream.0);
                }
                if let Some(ended) = ended.filter(|asked| asked.ticks() > 0) {
                    if self.ended.len() == ENDED_MAX {
                        self.ended.pop_front();
                    }
                    self.ended.push_back((stream, ended));
                }
            }
            FrontEndEvent::TreeDown => {
                if let Some((_, over)) = &mut self.down_after {
                    *over = Some(now);
                }
                match self.state {
                    State::Renewing => {
                        self.state = State::Collecting;
                        self.try_at = now;
                    }
                    // The next tree goes on where this one ended; without one there are no values.
                    _ => self.rows.clear(),
                }
                self.losses.clear();
            }
        }
    }

    fn take_tick(&mut self, now: Instant, value: TickValue) {
        let stream = Some(value.stream);
        let period = Micros::from_millis(self.config.period_ms).as_micros();
        if stream == self.totals_stream {
            let begin = value.tick.saturating_mul(period);
            if self.delays.len() == DELAYS_MAX {
                self.delays.pop_front();
            }
            self.delays.push_back(Delay {
                tick: value.tick,
                covers: value.covers,
                attached: value.attached,
                handed_us: now.as_micros().saturating_sub(begin),
                level_us: self.front.level_us(),
            });
            self.take_totals(&value);
        } else if stream == self.rows_stream {
            let TickBody::Rows(rows) = value.values else {
                return;
            };
            let begin = Instant::from_micros(value.tick.saturating_mul(period));
            self.late.keep(now, begin, value.tick, &rows);
            keep_rows(&mut self.rows, now, value.tick, rows);
        } else if stream == self.calls_stream {
            if let TickBody::Rows(rows) = &value.values {
                self.calls.take(value.tick, rows);
            }
        } else if let Some(collector) =
            (self.collectors.iter_mut()).find(|collector| collector.stream == value.stream)
        {
            if let TickBody::Rows(rows) = value.values {
                keep_rows(&mut collector.rows, now, value.tick, rows);
            }
        } else if let Some(asked) = self.asked.get_mut(&value.stream) {
            match asked.take(value) {
                Ok(Some(tick)) => self.kept.put(tick),
                Ok(None) => {}
                Err(asked::TooLate) => self.kept.lose(),
            }
        }
    }

    /// Ticks of streams for the files, and how many found no room since the last call.
    pub fn take_kept(&mut self) -> (Vec<StreamTick>, u64) {
        self.kept.take()
    }

    /// A picture is taken at `now`: rows that came since the last one for those before.
    pub fn take_late(&mut self, now: Instant) -> Vec<late::LateRow> {
        self.late.take(now)
    }

    fn take_totals(&mut self, value: &TickValue) {
        let TickBody::Reduced(accs) = &value.values else {
            return;
        };
        let streams = self.front.streams();
        let Some(spec) = self.totals_stream.and_then(|stream| streams.get(&stream)) else {
            return;
        };
        let sum = |acc: &netstack::overlay::Acc| match acc.reduced {
            Some(Reduced::Total(sum)) => Some(sum),
            _ => None,
        };
        let sums = spec.metrics.iter().zip(accs);
        match self.sums_recent.take(value) {
            Some(tick) => self.kept.put(kept::tick_of(&self.sums, spec, tick)),
            None => self.kept.lose(),
        }
        self.totals.take(Totals {
            tick: value.tick,
            covers: value.covers,
            attached: value.attached,
            sums: sums
                .filter_map(|(metric, acc)| Some((*metric, sum(acc)?)))
                .collect(),
        });
    }

    fn lost(&mut self, now: Instant, process: Process) {
        let since =
            Instant::from_micros(now.as_micros().saturating_sub(LOSS_TOLD_WITHIN.as_micros()));
        let children = self.front.children_of(process, since).into_iter();
        let mut children: BTreeMap<Process, bool> = children.collect();
        children.retain(|child, _| child.node != process.node);
        let still = |(child, has): (&Process, &bool)| has.then_some(*child);
        let orphans: BTreeSet<Process> = children.iter().filter_map(still).collect();
        let children = children.len();
        if process.slot > 0 {
            let text = format!(
                "the monitoring tree lost {process}, the parent of {} on other nodes",
                count_of(children, "process", "processes")
            );
            self.tell(Severity::Warning, "overlay-lost", text);
        }
        if self.losses.len() == LOSSES_MAX {
            self.losses.pop_front();
        }
        self.losses.push_back(Loss {
            process,
            at: now,
            orphans,
            children,
            mended: None,
        });
    }

    /// Which children of lost processes have another parent now.
    fn mend_losses(&mut self, now: Instant) {
        let front = &self.front;
        let mut told = Vec::new();
        for loss in self.losses.iter_mut().filter(|loss| loss.mended.is_none()) {
            let lost = loss.process;
            loss.orphans.retain(|orphan| {
                let gone = front.views().get(orphan).is_some_and(|view| view.gone);
                !gone && front.parent_of(*orphan) == Some(lost)
            });
            if loss.orphans.is_empty() {
                loss.mended = Some(now);
                if loss.children > 0 {
                    told.push(format!(
                        "{} below {lost}: all have other parents, {:.1} ms after its loss was told",
                        count_of(loss.children, "process", "processes"),
                        now.saturating_since(loss.at).as_micros() as f64 / 1e3
                    ));
                }
            }
        }
        for text in told {
            self.tell(Severity::Info, "overlay-mended", text);
        }
    }

    /// A node's newest values, while they are fresh.
    pub fn values(&self, node: u32, now: Instant) -> Option<&NodeRow> {
        let row = self.rows.get(&NodeId(node));
        row.filter(|row| self.is_fresh(row, now))
    }

    /// Values are shown as present.
    pub fn is_fresh(&self, row: &NodeRow, now: Instant) -> bool {
        let periods = Micros::from_millis(self.config.period_ms * 5 / 2);
        now.saturating_since(row.at) <= FRESH.max(periods)
    }

    /// Microseconds since the tick of a node's newest values began: they are as old as that.
    pub fn age_us(&self, row: &NodeRow, now: Instant) -> u64 {
        let period = Micros::from_millis(self.config.period_ms).as_micros();
        (now.as_micros()).saturating_sub(row.tick.saturating_mul(period))
    }

    /// Takes the tree down, until [`Self::bring_up`].
    pub fn take_down(&mut self, _: &Operator<'_>, now: Instant) {
        if self.state != State::Down {
            let text = "somebody has the monitoring tree taken down: values come with the heartbeats until `hearth overlay up`";
            self.tell(Severity::Info, "overlay-down", text.into());
        }
        self.state = State::Down;
        self.down_after = Some((now, (!self.front.is_standing()).then_some(now)));
        self.front.take_down(now);
    }

    /// Has a tree made again.
    pub fn bring_up(&mut self, _: &Operator<'_>, now: Instant) {
        if self.state == State::Down {
            self.down_after = None;
            self.state = match self.front.is_standing() {
                true => State::Renewing,
                false => State::Collecting,
            };
            self.try_at = now;
            let text = "somebody has the monitoring tree made again";
            self.tell(Severity::Info, "overlay-wanted", text.into());
        }
    }
}

#[cfg(test)]
mod tests;
