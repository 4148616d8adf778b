//! The back end: reads the node's metrics at each tick of each stream it takes part in, and submits
//! them.
//!
//! Auxiliary service processes are further collectors of the node: the back end starts one when a
//! stream wants a metric of its range, and stops it when none does any more.
//!
//! Invariant: a tick is sampled once at most, whatever trees come and go and however the estimate
//! of the overlay's time changes; ticks that passed while the node did something else are not made
//! up.

use alloc::vec::Vec;

use super::filter::{Acc, Filter};
use super::message::Standing;
use super::metric::MetricId;
use super::metric::OverlayMetric;
use super::node::Collector;
use super::section::{self, Row};
use super::stream::{MAX_STREAMS, Scope, StreamId, StreamSpec};
use super::uplink::{Io, Uplink};
use super::{STAGGER, STAGGERS_A_HOLD};
use crate::ids::{JobId, NodeId};
use crate::time::{Instant, Micros};

/// Metrics of one kind of auxiliary service process.
const AUXILIARY_METRICS: u16 = 256;
/// Kinds of auxiliary service processes.
pub(super) const AUXILIARY_KINDS: u16 = 32;
/// Closed streams that are remembered, so that a late word does not open them again.
const MAX_REMEMBERED: usize = 2 * MAX_STREAMS;

#[derive(Clone, Debug)]
struct Stream {
    id: StreamId,
    version: u32,
    spec: Option<StreamSpec>,
    /// The next tick that may be sampled; 0: it was just heard of.
    next: u64,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct BackEnd {
    node: NodeId,
    pub uplink: Uplink,
    streams: Vec<Stream>,
    job: Option<JobId>,
    /// The job wants silence.
    pub quiet: bool,
    pub submitted: u64,
    /// The begins of all ticks that were sampled in this boot are before this overlay time, in
    /// microseconds. In a new tree the present may seem to be earlier: its estimate is made anew.
    pub sampled_to: u64,
    /// From the begin of the last tick until it was sampled.
    pub lag_us: u32,
    auxiliary: u32,
    running: u32,
    /// When the tree was taken down here.
    pub taken_at: Option<Instant>,
}

impl BackEnd {
    pub fn new(node: NodeId, uplink: Uplink, auxiliary: u32) -> Self {
        BackEnd {
            node,
            uplink,
            streams: Vec::new(),
            job: None,
            quiet: false,
            submitted: 0,
            sampled_to: 0,
            lag_us: 0,
            auxiliary,
            running: 0,
            taken_at: None,
        }
    }

    pub fn standing(&self) -> Standing {
        Standing {
            quiet: self.quiet,
            back_ends: u32::from(!self.quiet),
            quiet_below: self.quiet.into(),
            submitted: self.submitted,
            dropped: self.uplink.dropped,
            lag_us: self.lag_us,
            ..Standing::default()
        }
    }

    /// The node has this job already.
    pub fn adopt_job(&mut self, job: Option<JobId>, quiet: bool) {
        (self.job, self.quiet) = (job, quiet);
    }

    /// How long after the begin of a tick this back end acts on it: the same for all streams, so
    /// that they share an interrupt of a program that computes.
    fn stagger(&self) -> u64 {
        let specs = self.streams.iter().flat_map(|stream| &stream.spec);
        let hold = specs.map(|spec| spec.hold.0 / STAGGERS_A_HOLD).min();
        let round = hold.map_or(STAGGER, |hold| STAGGER.min(Micros(hold)));
        self.uplink.turn(round).0
    }

    /// Number of streams that are open.
    pub fn open_streams(&self) -> usize {
        self.streams
            .iter()
            .filter(|stream| stream.spec.is_some())
            .count()
    }

    /// Hears of a stream. False: it cannot be taken now.
    pub fn set_stream(&mut self, id: StreamId, version: u32, spec: Option<StreamSpec>) -> bool {
        if version == 0 {
            self.streams.retain(|stream| stream.id != id);
            return true;
        }
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.id == id) {
            if stream.version < version {
                (stream.version, stream.spec) = (version, spec);
            }
            return true;
        }
        if self.streams.len() >= MAX_REMEMBERED {
            let closed = self.streams.iter().position(|stream| stream.spec.is_none());
            match closed {
                Some(at) => drop(self.streams.remove(at)),
                None => return false,
            }
        }
        self.streams.push(Stream {
            id,
            version,
            spec,
            next: 0,
        });
        true
    }

    pub fn clear_streams(&mut self) {
        self.streams.clear();
    }

    /// The node has this job now. One that wanted silence speaks once, at its end: not even its
    /// begin is measured, when its program may be at work already.
    pub fn set_job(
        &mut self,
        io: &mut Io<'_>,
        job: Option<JobId>,
        quiet: bool,
        collector: &mut dyn Collector,
    ) {
        if self.job == job && self.quiet == quiet {
            return;
        }
        let begins_in_silence = quiet && (self.job.is_none() || self.job == job);
        self.quiet = false;
        if !begins_in_silence {
            self.sample(io, collector, true);
        }
        (self.job, self.quiet) = (job, quiet);
        if let Some(overlay) = self.uplink.clock.overlay(io.now) {
            for stream in &mut self.streams {
                let period = stream.spec.as_ref().map_or(1, |spec| spec.period.0);
                stream.next = stream.next.max(overlay / period + 1);
            }
        }
    }

    /// Samples what is due; `now_or_never`: all that was not sampled in this tick.
    pub fn sample(&mut self, io: &mut Io<'_>, collector: &mut dyn Collector, now_or_never: bool) {
        let Some(overlay) = self.uplink.clock.overlay(io.now) else {
            return;
        };
        self.trigger(collector);
        if self.quiet || self.taken_at.is_some() {
            return;
        }
        let stagger = match now_or_never {
            true => 0,
            false => self.stagger(),
        };
        for at in 0..self.streams.len() {
            let stream = &mut self.streams[at];
            let Some(spec) = &stream.spec else {
                continue;
            };
            let period = spec.period.0;
            let mut tick = overlay.saturating_sub(stagger) / period;
            if !spec.scope.includes(self.node, self.job) {
                continue;
            }
            // A stream that was just heard of begins with the next whole tick, whenever this node's
            // turn is: it may have been sampled in an earlier tree.
            if stream.next == 0 {
                let present = if now_or_never {
                    0
                } else {
                    overlay.saturating_add(1)
                };
                stream.next = self.sampled_to.max(present).div_ceil(period);
            }
            // The last values of a job go with the tick that would have been next: its streams end
            // with it.
            if now_or_never && matches!(spec.scope, Scope::Job(_)) {
                tick = tick.max(stream.next);
            }
            if tick < stream.next {
                continue;
            }
            stream.next = tick + 1;
            let begin = tick.saturating_mul(period);
            // One that was taken early is the last of its stream.
            let until = begin.min(overlay).saturating_add(1);
            self.sampled_to = self.sampled_to.max(until);
            self.lag_us = overlay.saturating_sub(begin).min(u64::from(u32::MAX)) as u32;
            let (node, id) = (self.node, stream.id);
            let counters = &*io.counters;
            let values = spec.metrics.iter().map(|metric| {
                let own = counters.read(OverlayMetric::FIRST, *metric);
                own.or_else(|| collector.read(*metric))
            });
            self.submitted += 1;
            let uplink = &mut self.uplink;
            if spec.filter == Filter::Concat {
                let row = Row {
                    node,
                    node_time_us: io.now.as_micros(),
                    values: values.collect(),
                };
                let metrics = spec.metrics.len() as u8;
                uplink.push(section::encode_rows(
                    (id, tick),
                    metrics,
                    &mut alloc::vec![row],
                    true,
                ));
            } else {
                let of = |value| Acc::of(&spec.filter, node, value);
                let accs: Vec<Acc> = values
                    .map(|value| value.map_or_else(Acc::default, of))
                    .collect();
                section::encode_reduced((id, tick, 1), &spec.filter, &accs, &mut |section| {
                    uplink.push(section)
                });
            }
        }
    }

    /// Starts and stops auxiliary service processes.
    fn trigger(&mut self, collector: &mut dyn Collector) {
        if self.auxiliary == 0 {
            return;
        }
        let mut wanted = 0_u32;
        if self.taken_at.is_none() {
            let specs = self
                .streams
                .iter()
                .filter_map(|stream| stream.spec.as_ref());
            for spec in specs.filter(|spec| spec.scope.includes(self.node, self.job)) {
                for metric in &spec.metrics {
                    wanted |= auxiliary_of(*metric).map_or(0, |kind| 1 << kind);
                }
            }
        }
        let wanted = wanted & self.auxiliary;
        if wanted == self.running {
            return;
        }
        for kind in 0..AUXILIARY_KINDS as u8 {
            let bit = 1 << kind;
            if (wanted ^ self.running) & bit != 0 {
                collector.trigger(kind, wanted & bit != 0);
            }
        }
        self.running = wanted;
    }

    /// The role ends: nothing keeps running. Without the collector, those that do are given: they
    /// are to be stopped.
    pub fn stop(&mut self, now: Instant, collector: Option<&mut dyn Collector>) -> u32 {
        self.taken_at.get_or_insert(now);
        if let Some(collector) = collector {
            self.trigger(collector);
        }
        self.running
    }

    /// The first tick not before `after` of the streams of this node whose period is in `periods`.
    pub fn next_tick(&self, after: Instant, periods: core::ops::Range<u64>) -> Option<Instant> {
        if self.quiet || self.taken_at.is_some() {
            return None;
        }
        let clock = &self.uplink.clock;
        let overlay = clock.overlay(after)?;
        let stagger = self.stagger();
        let specs = self.streams.iter().filter_map(|stream| {
            let spec = stream.spec.as_ref()?;
            let takes_part = spec.scope.includes(self.node, self.job);
            (takes_part && periods.contains(&spec.period.0)).then_some((spec.period.0, stream.next))
        });
        let dues = specs.map(|(period, next)| {
            let tick = overlay.saturating_sub(stagger).div_ceil(period).max(next);
            tick.saturating_mul(period).saturating_add(stagger)
        });
        dues.min().and_then(|due| clock.local(due))
    }

    /// Auxiliary service processes that run.
    pub fn running(&self) -> u32 {
        self.running.count_ones()
    }

    /// When to act next.
    pub fn deadline(&self) -> Instant {
        let mut at = self.uplink.deadline();
        if self.quiet || self.taken_at.is_some() {
            return at;
        }
        let stagger = self.stagger();
        for stream in &self.streams {
            let Some(spec) = &stream.spec else {
                continue;
            };
            if spec.scope.includes(self.node, self.job) {
                let due = stream
                    .next
                    .saturating_mul(spec.period.0)
                    .saturating_add(stagger);
                at = at.min(self.uplink.clock.local(due).unwrap_or(Instant::FAR_FUTURE));
            }
        }
        at
    }
}

/// The kind of auxiliary service process that has a metric.
fn auxiliary_of(metric: MetricId) -> Option<u8> {
    let beyond = metric.0.checked_sub(MetricId::FIRST_AUXILIARY)?;
    let kind = beyond / AUXILIARY_METRICS;
    (kind < AUXILIARY_KINDS).then_some(kind as u8)
}
