//! What came out of the overlay.
//!
//! Invariant: percentiles are of all values of the run, not of samples of them.

use std::collections::BTreeMap;

use netstack::overlay::{Books, FrontEndStatus, OverlayMetric, TickValue};

use super::Overlay;
use crate::net::Net;
use crate::net::fabric::Tally;

/// Levels that are told apart.
const LEVELS: usize = 10;

/// What is measured in a run.
#[derive(Clone, Debug, Default)]
pub struct Measures {
    /// The tree as planned.
    pub status: FrontEndStatus,
    /// From the begin of building until all back ends were attached.
    pub build_us: Option<u64>,
    /// When taking down began.
    pub down_from: u64,
    /// When the front end said that it is over.
    pub down_at: Option<u64>,
    /// Nodes with something left two seconds after taking down began.
    pub left_over: u32,
    /// Nodes that died.
    pub kills: u64,
    /// Processes that the front end was told are lost.
    pub lost_told: u64,
    /// Microseconds from a tick's begin until it was passed on, by height; the front end's are the
    /// last.
    lags: [Vec<u32>; LEVELS],
    front: Vec<u32>,
    ticks: BTreeMap<u16, (u64, u64)>,
    values: u64,
    began: (u64, Tally),
    ended: (u64, Tally),
    orphans: BTreeMap<(u32, u8), u64>,
    reattached_us: Vec<u32>,
}

impl Measures {
    /// A process passed a tick on, by its own estimate so long after the tick's begin: which tells
    /// the tick.
    pub fn lag(&mut self, height: u8, now_ns: u64, estimate_us: u64, period_us: u64) {
        let now = now_ns / 1000;
        let begin = (now.saturating_sub(estimate_us) + period_us / 2) / period_us * period_us;
        let lag = now.saturating_sub(begin).min(u64::from(u32::MAX)) as u32;
        if self.began.0 > 0 && self.ended.0 == 0 {
            self.lags[usize::from(height).min(LEVELS - 1)].push(lag);
        }
    }

    /// Values arrived.
    pub fn arrived(&mut self, lag_us: u64, value: &TickValue) {
        if self.began.0 > 0 && self.ended.0 == 0 {
            self.front.push(lag_us.min(u64::from(u32::MAX)) as u32);
            let (covered, possible) = self.ticks.entry(value.stream.0).or_default();
            *covered += u64::from(value.covers);
            *possible = (*possible).max(value.tick);
        }
        self.values += 1;
    }

    /// A process lost its parent to a fault.
    pub fn orphaned(&mut self, now: u64, node: u32, slot: u8) {
        self.orphans.insert((node, slot), now);
    }

    /// A node that died waits for no parent.
    pub fn forget(&mut self, node: u32) {
        self.orphans.retain(|(other, _), _| *other != node);
    }

    /// A process found a parent.
    pub fn attached(&mut self, now: u64, node: u32, slot: u8) {
        if let Some(since) = self.orphans.remove(&(node, slot)) {
            self.reattached_us
                .push(((now - since) / 1000).min(u64::from(u32::MAX)) as u32);
        }
    }

    /// The flow is measured from now on.
    pub fn begin(&mut self, now: u64, tally: Tally) {
        self.began = (now, tally);
    }

    /// The flow has been measured.
    pub fn end(&mut self, now: u64, tally: Tally) {
        self.ended = (now, tally);
    }
}

/// Percentiles in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    /// How many there were.
    pub count: u64,
    /// The median.
    pub p50: u32,
    /// 99 of 100 are no longer.
    pub p99: u32,
    /// The longest.
    pub most: u32,
}

impl Percentiles {
    fn of(values: &[u32]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_unstable();
        let at = |share: usize| {
            sorted.get((sorted.len() * share / 100).min(sorted.len().saturating_sub(1)))
        };
        Percentiles {
            count: sorted.len() as u64,
            p50: at(50).copied().unwrap_or(0),
            p99: at(99).copied().unwrap_or(0),
            most: sorted.last().copied().unwrap_or(0),
        }
    }
}

/// What the overlay came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// Nodes.
    pub nodes: u32,
    /// The tree as planned.
    pub status: FrontEndStatus,
    /// From the begin of building until all back ends were attached; None: never all of them.
    pub build_ms: Option<f64>,
    /// From a tick's begin until it was passed on, by height from 0 (submitted) on.
    pub levels: Vec<Percentiles>,
    /// The same until the front end handed it over.
    pub front: Percentiles,
    /// Datagrams sent by a node a second, the control node's included.
    pub messages: f64,
    /// Bytes of these on the wire, preamble and gap included.
    pub bytes: f64,
    /// The books at the end.
    pub books: Books,
    /// Processes that lost their parent to a fault and found another.
    pub orphans: Percentiles,
    /// Processes that lost their parent and did not, until the end.
    pub still_orphans: u64,
    /// Parents that fell silent, as seen by children.
    pub parents_lost: u64,
    /// Milliseconds until the tree was down.
    pub down_ms: f64,
    /// Nodes with something left two seconds after taking down began.
    pub left_over: u32,
}

impl Figures {
    /// Of a run that has ended.
    pub(crate) fn of(overlay: &Overlay, net: &Net) -> Self {
        let figures = &overlay.measures;
        let seconds = figures.ended.0.saturating_sub(figures.began.0) as f64 / 1e9;
        let per = |now: u64, before: u64| {
            now.saturating_sub(before) as f64 / seconds / f64::from(net.control())
        };
        let (before, after) = (&figures.began.1, &figures.ended.1);
        let used = figures
            .lags
            .iter()
            .rposition(|lags| !lags.is_empty())
            .map_or(0, |last| last + 1);
        let down = figures.down_at.unwrap_or(net.now()) - figures.down_from;
        Figures {
            nodes: net.control(),
            status: figures.status,
            build_ms: figures.build_us.map(|us| us as f64 / 1e3),
            levels: figures.lags[..used]
                .iter()
                .map(|lags| Percentiles::of(lags))
                .collect(),
            front: Percentiles::of(&figures.front),
            messages: per(after.datagrams, before.datagrams),
            bytes: per(after.bytes, before.bytes),
            books: overlay
                .front
                .as_ref()
                .map_or(Books::default(), |front| front.books()),
            orphans: Percentiles::of(&figures.reattached_us),
            still_orphans: figures.orphans.len() as u64,
            parents_lost: overlay.total(OverlayMetric::ParentsLost),
            down_ms: down as f64 / 1e6,
            left_over: figures.left_over,
        }
    }

    /// The figures for people.
    pub(crate) fn tell(&self, row: &mut dyn FnMut(&str, String)) {
        let status = &self.status;
        row(
            "overlay",
            format!(
                "{} nodes, {} communication processes, height {}, {} of {} back ends attached locally",
                self.nodes, status.cps_planned, status.height, status.local, status.planned
            ),
        );
        let build = self
            .build_ms
            .map_or("not all attached".into(), |ms| format!("{ms:.1} ms"));
        row("tree built in", build);
        let lag = |lag: &Percentiles| {
            let (p50, p99, most, count) = (lag.p50, lag.p99, lag.most, lag.count);
            format!("p50 {p50} us, p99 {p99} us, most {most} us ({count})")
        };
        for (height, level) in self.levels.iter().enumerate() {
            match height {
                0 => row("submitted", lag(level)),
                _ => row(&format!("passed on at height {height}"), lag(level)),
            }
        }
        row("handed over", lag(&self.front));
        row(
            "a node and second",
            format!("{:.2} messages, {:.0} bytes", self.messages, self.bytes),
        );
        let books = &self.books;
        row(
            "samples",
            format!(
                "sent {} = stored {} + filtered {} + lost {} (link {}, dropped {}, died {}) - unheard {}",
                books.sent,
                books.stored,
                books.filtered,
                books.lost(),
                books.lost_link,
                books.lost_dropped,
                books.missing,
                books.unheard
            ),
        );
        if self.orphans.count + self.still_orphans > 0 {
            let orphans = &self.orphans;
            row(
                "orphans",
                format!(
                    "{}, with another parent after p50 {} ms, most {} ms; {} without",
                    orphans.count,
                    orphans.p50 / 1000,
                    orphans.most / 1000,
                    self.still_orphans
                ),
            );
        }
        row(
            "down in",
            format!(
                "{:.0} ms, {} nodes with something left after 2 s",
                self.down_ms, self.left_over
            ),
        );
    }

    /// For programs.
    pub(crate) fn json(&self) -> serde_json::Value {
        let lag = |lag: &Percentiles| serde_json::json!({"p50_us": lag.p50, "p99_us": lag.p99, "most_us": lag.most, "count": lag.count});
        let books = &self.books;
        serde_json::json!({
            "nodes": self.nodes,
            "cps": self.status.cps_planned,
            "height": self.status.height,
            "local": self.status.local,
            "build_ms": self.build_ms,
            "levels": self.levels.iter().map(lag).collect::<Vec<_>>(),
            "front_end": lag(&self.front),
            "messages_per_node_second": self.messages,
            "bytes_per_node_second": self.bytes,
            "sent": books.sent, "stored": books.stored, "filtered": books.filtered,
            "lost_link": books.lost_link, "lost_dropped": books.lost_dropped, "died": books.missing, "unheard": books.unheard,
            "reattach": lag(&self.orphans), "orphans_left": self.still_orphans, "parents_lost": self.parents_lost,
            "down_ms": self.down_ms, "left_over": self.left_over,
        })
    }
}
