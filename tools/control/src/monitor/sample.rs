//! Takes a picture of the control state every second.
//!
//! Key types: [`Sampler`], [`run`]. Neighbours: [`super::metrics`] says which values,
//! [`super::Monitor`] gets the picture.
//!
//! Invariant: the lock is held to copy what is shown, once a second, however many look.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use netstack::control::{NodeState, NodeStatus};
use netstack::ids::JobId;
use netstack::overlay::MetricId;
use netstack::time::Instant;

use super::Monitor;
use super::counter_names::Names;
use super::last_counted::{self, LastCounted};
use super::late::Lacking;
use super::metrics::{self, Known};
use super::newest::Newest;
use super::picture::{
    Counted, EVENTS_MAX, Further, Health, JOBS_MAX, JobNow, KeptTick, LateValues, NodeNow, Picture,
    SLOW_AFTER_US, STALE_AFTER_US,
};
use crate::api::types::{IoServiceInfo, IoState, JobInfo, JobState};
use crate::clock;
use crate::control::{Core, Shared};
use crate::events::mac_text;
use crate::hostlist;
use crate::jobs::attempt;
use crate::overlay::kept::StreamTick;
use crate::overlay::late::LateRow;
use crate::overlay::{NodeRow, catalogue};

/// Time between two pictures, in microseconds.
const PERIOD_US: u64 = 1_000_000;
/// A picture is taken so long after the begin of a tick of the overlay, which begin with the
/// seconds of control's clock: a tick is handed over after at most the hold of each level.
const AFTER_TICK_US: u64 = 160_000;
/// A clock that differs by more was set.
const CLOCK_SET_US: u64 = 500_000;
/// Jobs that are over and still shown.
const ENDED_MAX: usize = 100;
/// Jobs that may begin and end between two pictures and still be seen.
const NEW_MAX: u64 = 200;

/// What must be known from one picture to the next.
#[derive(Debug, Default)]
pub struct Sampler {
    /// By node: boot, time up and time idle of the last two different heartbeats' first, and the
    /// busy share that came of them.
    before: BTreeMap<u32, Before>,
    newest: Newest,
    counted: LastCounted,
    lacking: Lacking,
    /// By node: what the program of a job had counted at its end, where the next row of the node
    /// came before the next picture.
    last_words: BTreeMap<u32, (JobId, Vec<Option<i64>>)>,
    /// As the nodes know them.
    ended: VecDeque<(JobId, JobNow)>,
    /// Jobs that were not over in the last picture.
    active: Vec<u64>,
    /// Highest number of a job seen.
    last_job: u64,
    /// When control's clock began, in microseconds since 1970.
    zero_us: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Before {
    boot: u64,
    uptime_us: u64,
    idle_us: u64,
    busy_ppm: Option<i64>,
}

/// Publishes a picture every second, for as long as the process lives.
pub async fn run(shared: Arc<Shared>, monitor: Arc<Monitor>) {
    let mut sampler = Sampler::begin(&shared.lock());
    let mut names = Names::default();
    loop {
        let now = shared.now();
        let told = monitor.take_events();
        let mut picture = {
            let mut core = shared.lock();
            told.into_iter().for_each(|event| core.events.push(event));
            let (streams, lost) = core.overlay.take_kept();
            monitor.lose_ticks(lost);
            let late = core.overlay.take_late(now);
            let late = sampler.put_late(&core, late);
            let mut picture = sampler.picture(&core, now);
            sampler.lacking.remember(now, &picture);
            picture.late = late;
            // Not the time before the lock was had: both clocks are read at once.
            picture.streams = sampler.dated(streams, shared.now());
            picture
        };
        names.put(&mut picture.jobs);
        // Names of new programs come with the next picture: nobody waits for a file.
        if names.lack(&picture.jobs) {
            let (jobs, files) = (picture.jobs.clone(), shared.clone());
            let learnt = tokio::task::spawn_blocking(move || {
                names.learn(&jobs, &files.programs);
                names
            });
            monitor.publish(picture);
            names = learnt.await.unwrap_or_default();
        } else {
            monitor.publish(picture);
        }
        // By then a tick of the overlay has come that began with the second.
        let past = (now.as_micros() + PERIOD_US - AFTER_TICK_US) % PERIOD_US;
        tokio::time::sleep(Duration::from_micros(PERIOD_US - past)).await;
    }
}

/// Why a node gets no jobs.
fn drained(core: &Core, node: u32) -> Option<String> {
    core.runner
        .drained(node)
        .map(|drained| drained.reason.clone())
}

/// Counts of system calls of all nodes together, and values of collectors that some nodes run.
fn further(core: &Core, now: Instant) -> Vec<Further> {
    let mut further = Vec::new();
    let mut add = |metric: MetricId, values: Vec<(Option<u32>, i128)>| {
        let Some(described) = catalogue::described(metric).filter(|_| !values.is_empty()) else {
            return;
        };
        let values = values.into_iter();
        further.push(Further {
            values: values
                .map(|(node, value)| {
                    let of = node.map(|node| ("node", hostlist::name(node)));
                    (of, described.in_base_units(value as f64))
                })
                .collect(),
            name: described.name.clone(),
            counter: described.counter,
            unit: described.unit.to_string(),
            help: described.help.clone(),
        });
    };
    for (metric, sum) in core.overlay.calls() {
        add(metric, vec![(None, sum)]);
    }
    for collector in core.overlay.collectors() {
        for (place, metric) in collector.metrics.iter().enumerate() {
            let fresh = collector
                .rows
                .iter()
                .filter(|(_, row)| core.overlay.is_fresh(row, now));
            let value = |(node, row): (&netstack::ids::NodeId, &NodeRow)| {
                let value = row.values.get(place).copied().flatten()?;
                Some((Some(node.0), i128::from(value)))
            };
            add(*metric, fresh.filter_map(value).collect());
        }
    }
    further.extend(io_services(core));
    further
}

/// What is known of I/O services.
fn io_services(core: &Core) -> Vec<Further> {
    let services = core.io_services.list(&core.known_nodes());
    if services.is_empty() {
        return Vec::new();
    }
    let metric = |name: &str, counter, unit: &str, help: &str, value: fn(&IoServiceInfo) -> f64| {
        let values = services.iter().map(|service| {
            let of = ("service", service.address.clone());
            (Some(of), value(service))
        });
        Further {
            name: name.to_string(),
            counter,
            unit: unit.to_string(),
            help: help.to_string(),
            values: values.collect(),
        }
    };
    vec![
        metric(
            "hearth_io_service_up",
            false,
            "",
            "1 for an I/O service that is heard.",
            |service| f64::from(u8::from(service.state != IoState::Lost)),
        ),
        metric(
            "hearth_io_service_nodes",
            false,
            "",
            "Nodes whose jobs call the I/O service.",
            |service| service.node_count as f64,
        ),
        metric(
            "hearth_io_service_calls_total",
            true,
            "",
            "Calls on files.",
            |service| service.counted.calls as f64,
        ),
        metric(
            "hearth_io_service_received_bytes_total",
            true,
            "bytes",
            "Bytes that came with calls on files.",
            |service| service.counted.received_bytes as f64,
        ),
        metric(
            "hearth_io_service_sent_bytes_total",
            true,
            "bytes",
            "Bytes that went with replies to calls on files.",
            |service| service.counted.sent_bytes as f64,
        ),
    ]
}

impl Sampler {
    /// With the jobs that memory remembers.
    pub fn begin(core: &Core) -> Self {
        let mut sampler = Sampler::default();
        for info in core.runner.list(true) {
            sampler.last_job = sampler.last_job.max(info.id);
            if info.state.is_final() {
                sampler.keep_ended(&info);
            }
        }
        sampler
    }

    /// What came late, put to the pictures that lack it. Before the next picture, so that it is not
    /// new there.
    fn put_late(&mut self, core: &Core, late: Vec<LateRow>) -> Vec<LateValues> {
        let in_service = |late: &LateRow| {
            let status = core.endpoint.node(late.node)?;
            (late.row.at >= status.since).then_some(status.epoch.0)
        };
        self.last_words.clear();
        let put = |late: LateRow| {
            let boot = in_service(&late)?;
            let shows = |of: JobId| core.runner.present(of);
            let put = self.lacking.put(&late, boot, &mut self.newest, shows);
            if let (None, Some((of, counters))) = (&put, last_counted::in_row(&late.row.values)) {
                let counters = counters.to_vec();
                self.last_words.insert(late.node.0, (of, counters));
            }
            put
        };
        late.into_iter().filter_map(put).collect()
    }

    /// Ticks with the time at which they began: the same for all parts of a tick, and for each
    /// clock that control is set to.
    fn dated(&mut self, ticks: Vec<StreamTick>, now: Instant) -> Vec<KeptTick> {
        let zero_us = clock::unix_us().saturating_sub(now.as_micros());
        if zero_us.abs_diff(self.zero_us) > CLOCK_SET_US {
            self.zero_us = zero_us;
        }
        let at_ms = |tick: &StreamTick| self.zero_us.saturating_add(tick.begin_us) / 1_000;
        let ticks = ticks.into_iter();
        ticks
            .map(|tick| KeptTick {
                at_ms: at_ms(&tick),
                tick,
            })
            .collect()
    }

    fn keep_ended(&mut self, info: &JobInfo) {
        let last = attempt::on_nodes(info.id, info.restarts);
        let job = JobNow {
            counted: self.counted.of(last),
            ..JobNow::from(info)
        };
        if self.ended.len() == ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended.push_back((last, job));
    }

    /// The last word of a job comes after its end; then some of its nodes may have another job
    /// already, and are not counted again.
    fn count_ended(&mut self) {
        let ranks = |counted: &[Counted]| counted.iter().map(|one| one.ranks).sum::<usize>();
        for (last, job) in &mut self.ended {
            let counted = self.counted.of(*last);
            if ranks(&counted) >= ranks(&job.counted) {
                job.counted = counted;
            }
        }
    }

    /// The picture of now.
    pub fn picture(&mut self, core: &Core, now: Instant) -> Picture {
        let counters = core.endpoint.counters();
        let events: Vec<_> = core.events.since(0).collect();
        let newest = events.len().saturating_sub(EVENTS_MAX);
        let events = events[newest..]
            .iter()
            .map(|event| (*event).clone())
            .collect();
        let at_us = clock::unix_us();
        let (nodes, age_us) = self.nodes(core, now);
        let (jobs, active_jobs) = self.jobs(core);
        Picture {
            at_ms: at_us / 1_000,
            nodes,
            read_ms: age_us.map(|age| at_us.saturating_sub(age) / 1_000),
            further: further(core, now),
            streams: Vec::new(),
            late: Vec::new(),
            jobs,
            active_jobs,
            events,
            sent: counters.sent,
            repeated: counters.retransmitted,
        }
    }

    fn jobs(&mut self, core: &Core) -> (Vec<JobNow>, usize) {
        let newest = core.runner.jobs().map(|info| info.id).max().unwrap_or(0);
        // Jobs that were active, and jobs that came and went since the last picture. Numbers
        // ascend, so the first unknown one ends it.
        let mut gone: Vec<u64> = std::mem::take(&mut self.active);
        for id in self.last_job + 1..=self.last_job + NEW_MAX {
            if id > newest && core.runner.get(id).is_err() {
                break;
            }
            gone.push(id);
            self.last_job = id;
        }
        self.last_job = self.last_job.max(newest);
        for id in gone {
            if let Ok(info) = core.runner.get(id)
                && info.state.is_final()
            {
                self.keep_ended(&info);
            }
        }
        self.count_ended();
        self.active = core.runner.jobs().map(|info| info.id).collect();
        // What runs comes before what waits when there is not room for all.
        let room = JOBS_MAX - self.ended.len();
        let waits = |info: &&JobInfo| info.state == JobState::Pending;
        let running = core.runner.jobs().filter(|info| !waits(info));
        let shown = running.chain(core.runner.jobs().filter(waits)).take(room);
        let ended = self.ended.iter().map(|(_, job)| job.clone());
        let mut jobs: Vec<JobNow> = ended.chain(shown.map(JobNow::from)).collect();
        jobs.sort_by_key(|job| job.id);
        (jobs, self.active.len())
    }

    /// The nodes, and the age in microseconds of the oldest values that came through the overlay.
    fn nodes(&mut self, core: &Core, now: Instant) -> (Vec<NodeNow>, Option<u64>) {
        let mut warm: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
        for row in core.ledger.warm.iter() {
            let (programs, pages) = warm.entry(row.node).or_default();
            *programs += 1;
            *pages += u64::from(row.pages);
        }
        let absent = |machine: &crate::nodes::Machine| NodeNow {
            node: machine.node,
            health: Health::Absent,
            job: None,
            boot: 0,
            mac: mac_text(machine.mac),
            address: machine.address.map(|address| address.to_string()),
            drained: drained(core, machine.node),
            values: Vec::new(),
            repeated: false,
            counters: Vec::new(),
        };
        let listed = core
            .table
            .machines()
            .map(|machine| (machine.node, absent(machine)));
        let mut nodes: BTreeMap<u32, NodeNow> = listed.collect();
        let mut oldest = None;
        for status in core.endpoint.nodes() {
            let kept = warm.get(&status.node.0).copied().unwrap_or_default();
            let (node, age) = self.node(core, &status, now, kept);
            nodes.insert(status.node.0, node);
            oldest = oldest.max(age);
        }
        for node in nodes.values_mut() {
            if node.health == Health::Absent && core.runner.awaits(node.node) {
                node.health = Health::Awaited;
                node.job = core.runner.job_of(node.node);
            }
        }
        self.before.retain(|node, _| nodes.contains_key(node));
        self.counted.retain(|node| nodes.contains_key(&node));
        self.newest.retain(|node| nodes.contains_key(&node));
        (nodes.into_values().collect(), oldest)
    }

    fn node(
        &mut self,
        core: &Core,
        status: &NodeStatus,
        now: Instant,
        warm: (u64, u64),
    ) -> (NodeNow, Option<u64>) {
        let node = status.node.0;
        let job = core.runner.job_of(node);
        let silent_us = now
            .as_micros()
            .saturating_sub(status.last_heard.as_micros());
        let health = match status.state {
            NodeState::Joining => Health::Absent,
            NodeState::Lost => Health::Lost,
            NodeState::Left => Health::Left,
            NodeState::Up if silent_us > STALE_AFTER_US => Health::Stale,
            NodeState::Up if silent_us > SLOW_AFTER_US => Health::Slow,
            NodeState::Up if job.is_some() => Health::Busy,
            NodeState::Up => Health::Idle,
        };
        let present = matches!(health, Health::Idle | Health::Busy | Health::Slow);
        let known = Known {
            busy_ppm: self.busy(node, status),
            silent_us,
            has_job: job.is_some(),
            warm_programs: warm.0,
            warm_pages: warm.1,
            cores: status.cores,
        };
        // What came before it was in service is of the boot before.
        let in_service = |row: &&NodeRow| present && row.at >= status.since;
        let row = core.overlay.values(node, now).filter(in_service);
        let values = row.map(|row| &row.values[..]);
        let last_word = self.last_words.get(&node);
        let last_word = last_word.map(|(of, counters)| (*of, &counters[..]));
        let counters = values.and_then(last_counted::in_row).or(last_word);
        if let Some((of, counters)) = counters {
            self.counted.take(node, of, counters);
        }
        // A row can be of the job before, or of an earlier attempt of this one. The last word of a
        // job comes after its end.
        let shows = |of: JobId| job.is_none() || core.runner.present(of) == job;
        let counters = counters.filter(|(of, _)| shows(*of));
        let mut of_node = || {
            let row = values.and_then(metrics::row);
            let heartbeat = metrics::heartbeat(&status.vitals);
            self.newest.of(node, status.epoch.0, row, heartbeat)
        };
        let counters = counters.map_or_else(Vec::new, |(_, counters)| counters.to_vec());
        let shown = NodeNow {
            node,
            health,
            job: job.filter(|_| status.state == NodeState::Up),
            boot: status.epoch.0,
            mac: mac_text(status.mac),
            address: Some(status.addr.to_string()),
            drained: drained(core, node),
            values: match present {
                true => metrics::values(&known, of_node(), &counters),
                false => Vec::new(),
            },
            repeated: !self.newest.is_new(node),
            counters,
        };
        (shown, row.map(|row| core.overlay.age_us(row, now)))
    }

    /// Parts in a million of the time between the last two heartbeats that the node was not halted.
    fn busy(&mut self, node: u32, status: &NodeStatus) -> Option<i64> {
        let vitals = &status.vitals;
        let before = self.before.entry(node).or_default();
        if before.boot != status.epoch.0 || vitals.uptime_us < before.uptime_us {
            *before = Before {
                boot: status.epoch.0,
                uptime_us: vitals.uptime_us,
                idle_us: vitals.idle_us,
                busy_ppm: None,
            };
        }
        let up = vitals.uptime_us - before.uptime_us;
        if up > 0 {
            let idle = vitals.idle_us.saturating_sub(before.idle_us).min(up);
            let ppm = u128::from(up - idle) * 1_000_000 / u128::from(up);
            *before = Before {
                boot: before.boot,
                uptime_us: vitals.uptime_us,
                idle_us: vitals.idle_us,
                busy_ppm: i64::try_from(ppm).ok(),
            };
        }
        before.busy_ppm
    }
}
