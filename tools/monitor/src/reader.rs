//! Queries. The same while values arrive and years later: what is not rolled up yet is rolled up on
//! the way.
//!
//! Key types: [`Reader`], [`Span`], [`Level`], [`Point`]. A question reads the coarsest level that
//! gives it enough points: ticks, minutes, or hours.
//!
//! Invariants: a reader changes nothing; a missing file is a gap and no error; a row that cannot be
//! decoded is skipped and counted ([`Reader::unreadable`]); a damaged file costs what cannot be
//! read of it and nothing of other days ([`Reader::damaged`]); an answer has at most [`VALUES_MAX`]
//! values; no snapshot of a file is held while a visitor looks at rows.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::day::{self, Day, Table, failed};
use crate::metric::Kind;
use crate::rollup::Rollup;
use crate::{DAY_MS, HOUR_MS, MINUTE_MS, Metric, MonitorError, csv, pack, rollup, rows};

/// Most values of an answer that is kept in memory, of all nodes together: [`Reader::series`] and
/// [`Reader::by_node`]. 16 bytes each.
pub const VALUES_MAX: usize = 1_000_000;

/// Instants from one on and before another, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The first.
    pub from_ms: u64,
    /// The end.
    pub to_ms: u64,
}

/// How fine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Every tick.
    Tick,
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
}

impl Level {
    /// Milliseconds between two points; a tick is taken as a second.
    pub fn step_ms(self) -> u64 {
        match self {
            Level::Tick => 1_000,
            Level::Minute => MINUTE_MS,
            Level::Hour => HOUR_MS,
        }
    }

    /// The finest level of which `span` has at most `points` points; the coarsest where none has.
    pub fn within(span: Span, points: u64) -> Level {
        let length = span.to_ms.saturating_sub(span.from_ms);
        let fits = |level: &Level| length / level.step_ms() <= points;
        let levels = [Level::Tick, Level::Minute];
        levels.into_iter().find(fits).unwrap_or(Level::Hour)
    }

    /// Its word: `tick`, `minute`, `hour`.
    pub fn word(self) -> &'static str {
        match self {
            Level::Tick => "tick",
            Level::Minute => "minute",
            Level::Hour => "hour",
        }
    }
}

/// Values of some nodes in one step, in the metric's base unit; a counter as a rate a second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Point {
    /// Beginning of the step, in milliseconds since 1970.
    pub at_ms: u64,
    /// The smallest value of any node.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The mean over nodes and ticks.
    pub mean: f64,
    /// Nodes that it covers.
    pub nodes: u32,
}

/// Which nodes a question is about.
#[derive(Debug, Clone, Copy)]
pub enum Nodes<'a> {
    /// All.
    All,
    /// These, ascending.
    Only(&'a [u32]),
}

impl Nodes<'_> {
    pub(crate) fn has(&self, node: u32) -> bool {
        match self {
            Nodes::All => true,
            Nodes::Only(nodes) => nodes.binary_search(&node).is_ok(),
        }
    }
}

/// What a node showed at an instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ShownAt {
    /// Time of its newest row with any of the metrics asked for, in milliseconds since 1970.
    pub at_ms: u64,
    /// The last value of each metric asked for, in their order, in base units; counters as rates a
    /// second.
    pub values: Vec<Option<f64>>,
}

/// Reads the files of one folder.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    pub(crate) unreadable: Cell<u64>,
    damaged: RefCell<Vec<PathBuf>>,
    pub(crate) values_max: usize,
}

/// What a visitor gets for each node and step: time, node, a roll-up for each metric asked for. It
/// says whether to go on.
type Visit<'a> = dyn FnMut(u64, u32, &[Rollup]) -> ControlFlow<()> + 'a;

impl Reader {
    /// Of the folder `dir`, which may be empty or missing still.
    pub fn new(dir: &Path) -> Self {
        Reader {
            dir: dir.to_path_buf(),
            unreadable: Cell::new(0),
            damaged: RefCell::default(),
            values_max: VALUES_MAX,
        }
    }

    /// With another bound than [`VALUES_MAX`].
    #[must_use]
    pub fn at_most(self, values: usize) -> Self {
        Reader {
            values_max: values,
            ..self
        }
    }

    /// Rows found so far that could not be decoded.
    pub fn unreadable(&self) -> u64 {
        self.unreadable.get()
    }

    /// Files found so far that are damaged: an answer lacks what could not be read of them.
    pub fn damaged(&self) -> Vec<PathBuf> {
        self.damaged.borrow().clone()
    }

    /// What a file gave; `None` from where on it is damaged, which is remembered.
    pub(crate) fn sound<T>(
        &self,
        given: Result<T, MonitorError>,
    ) -> Result<Option<T>, MonitorError> {
        match given {
            Ok(given) => Ok(Some(given)),
            Err(MonitorError::Damaged { path, .. }) => {
                let mut damaged = self.damaged.borrow_mut();
                if !damaged.contains(&path) {
                    damaged.push(path);
                }
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The metrics of a span: of each name the newest declaration.
    ///
    /// # Errors
    /// [`MonitorError`], here and below.
    pub fn metrics(&self, span: Span) -> Result<Vec<Metric>, MonitorError> {
        let mut found: Vec<Metric> = Vec::new();
        for day in self.days(span)? {
            for metric in self.sound(day.metrics())?.unwrap_or_default() {
                match found.iter_mut().find(|known| known.name == metric.name) {
                    Some(known) => *known = metric,
                    None => found.push(metric),
                }
            }
        }
        Ok(found)
    }

    /// Calls `visit` for each node and step of `span` that has data, by time, within a step by
    /// node, with the roll-ups of `metrics`, until it says to stop; a metric without data there has
    /// an empty one. With no metrics, each row that there is counts as data. The steps of days are
    /// those of UTC. `visit` may take its time: nothing waits for it.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn visit(
        &self,
        level: Level,
        span: Span,
        nodes: Nodes,
        metrics: &[Metric],
        visit: &mut Visit,
    ) -> Result<(), MonitorError> {
        for day in self.days(span)? {
            let Some(known) = self.sound(day.metrics())? else {
                continue;
            };
            let place = |metric: &Metric| {
                known.iter().rposition(|known| {
                    known.name == metric.name
                        && known.kind == metric.kind
                        && known.scale.to_bits() == metric.scale.to_bits()
                })
            };
            let places: Vec<Option<usize>> = metrics.iter().map(place).collect();
            let ask = Ask {
                day: &day,
                nodes,
                places: &places,
                from: span.from_ms.saturating_sub(day.began_ms),
                to: (span.to_ms - day.began_ms).min(DAY_MS),
                unreadable: &self.unreadable,
            };
            let flow = self.sound(ask.visit(level, visit))?;
            if flow.is_some_and(|flow| flow.is_break()) {
                break;
            }
        }
        Ok(())
    }

    /// One metric over time, all `nodes` together: a counter as the rate of each node, from step to
    /// step. A node that booted again in between gives no rate for that step.
    ///
    /// # Errors
    /// [`MonitorError`]; [`MonitorError::TooMuch`] for more than [`VALUES_MAX`] points.
    pub fn series(
        &self,
        metric: &Metric,
        level: Level,
        span: Span,
        nodes: Nodes,
    ) -> Result<Vec<Point>, MonitorError> {
        let mut gather = Gather::default();
        let mut rates = Rates::default();
        let wider = widened(metric, level, span);
        let (metrics, counter) = ([metric.clone()], metric.kind == Kind::Counter);
        self.visit(level, wider, nodes, &metrics, &mut |at, node, rollups| {
            let rollup = &rollups[0];
            if counter {
                if let Some(rate) = rates.rate(at, node, rollup, level)
                    && at >= span.from_ms
                {
                    let rate = csv::scaled(rate, metric.scale);
                    gather.add(at, rate, rate, rate, 1.0);
                }
            } else if rollup.count > 0 {
                let scale = |value: i64| csv::scaled(value as f64, metric.scale);
                let sum = csv::scaled(rollup.sum as f64, metric.scale);
                gather.add(
                    at,
                    scale(rollup.min),
                    scale(rollup.max),
                    sum,
                    rollup.count as f64,
                );
            }
            go_on_if(gather.points.len() <= self.values_max)
        })?;
        self.bounded(gather.points.len())?;
        Ok(gather.finish())
    }

    /// One metric of every node over time: for small charts. Values as in [`Reader::series`],
    /// means.
    ///
    /// # Errors
    /// [`MonitorError`]; [`MonitorError::TooMuch`] for more than [`VALUES_MAX`] values.
    pub fn by_node(
        &self,
        metric: &Metric,
        level: Level,
        span: Span,
        nodes: Nodes,
    ) -> Result<BTreeMap<u32, Vec<(u64, f64)>>, MonitorError> {
        let mut lists: BTreeMap<u32, Vec<(u64, f64)>> = BTreeMap::new();
        let mut count = 0;
        let mut rates = Rates::default();
        let metrics = [metric.clone()];
        let wider = widened(metric, level, span);
        self.visit(level, wider, nodes, &metrics, &mut |at, node, rollups| {
            let rollup = &rollups[0];
            let value = match metric.kind {
                Kind::Counter => rates.rate(at, node, rollup, level),
                Kind::Gauge => (rollup.count > 0).then(|| rollup.sum as f64 / rollup.count as f64),
            };
            if let Some(value) = value
                && at >= span.from_ms
            {
                let list = lists.entry(node).or_default();
                list.push((at, csv::scaled(value, metric.scale)));
                count += 1;
            }
            go_on_if(count <= self.values_max)
        })?;
        self.bounded(count)?;
        Ok(lists)
    }

    /// What nodes showed last at or before `at_ms`, not more than `age_ms` before. Nodes without a
    /// row in this time are left out.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn shown_at(
        &self,
        at_ms: u64,
        age_ms: u64,
        metrics: &[Metric],
        nodes: Nodes,
    ) -> Result<BTreeMap<u32, ShownAt>, MonitorError> {
        let level = Level::Tick;
        let span = Span {
            from_ms: at_ms.saturating_sub(age_ms),
            to_ms: at_ms.saturating_add(1),
        };
        let mut rates: Vec<Rates> = metrics.iter().map(|_| Rates::default()).collect();
        let mut found: BTreeMap<u32, ShownAt> = BTreeMap::new();
        self.visit(level, span, nodes, metrics, &mut |at, node, rollups| {
            let shown = found.entry(node).or_default();
            shown.at_ms = at;
            shown.values.resize(metrics.len(), None);
            for (place, (metric, rollup)) in metrics.iter().zip(rollups).enumerate() {
                let value = match metric.kind {
                    Kind::Counter => rates[place].rate(at, node, rollup, level),
                    Kind::Gauge => (rollup.count > 0).then_some(rollup.max as f64),
                };
                if let Some(value) = value {
                    shown.values[place] = Some(csv::scaled(value, metric.scale));
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// Those of `nodes`, ascending, of which `span` has anything at all. Whole hours are looked at
    /// as hours, the rest as minutes, and what is left as ticks: a long span costs little more than
    /// a short one.
    ///
    /// # Errors
    /// [`MonitorError`].
    pub fn kept(&self, span: Span, nodes: &[u32]) -> Result<BTreeSet<u32>, MonitorError> {
        let mut missing: BTreeSet<u32> = nodes.iter().copied().collect();
        self.find(Level::Hour, span, &mut missing)?;
        let mut kept: BTreeSet<u32> = nodes.iter().copied().collect();
        kept.retain(|node| !missing.contains(node));
        Ok(kept)
    }

    /// Takes the nodes out of `missing` of which `span` has something; steps of `level` first.
    fn find(
        &self,
        level: Level,
        span: Span,
        missing: &mut BTreeSet<u32>,
    ) -> Result<(), MonitorError> {
        if missing.is_empty() || span.to_ms <= span.from_ms {
            return Ok(());
        }
        let (step, finer) = match level {
            Level::Hour => (HOUR_MS, Some(Level::Minute)),
            Level::Minute => (MINUTE_MS, Some(Level::Tick)),
            Level::Tick => (1, None),
        };
        let whole = Span {
            from_ms: span.from_ms.div_ceil(step).saturating_mul(step),
            to_ms: span.to_ms - span.to_ms % step,
        };
        if whole.from_ms >= whole.to_ms {
            return finer.map_or(Ok(()), |finer| self.find(finer, span, missing));
        }
        let wanted: Vec<u32> = missing.iter().copied().collect();
        self.visit(
            level,
            whole,
            Nodes::Only(&wanted),
            &[],
            &mut |_, node, _| {
                missing.remove(&node);
                go_on_if(!missing.is_empty())
            },
        )?;
        let Some(finer) = finer else {
            return Ok(());
        };
        for (from_ms, to_ms) in [(span.from_ms, whole.from_ms), (whole.to_ms, span.to_ms)] {
            self.find(finer, Span { from_ms, to_ms }, missing)?;
        }
        Ok(())
    }

    pub(crate) fn bounded(&self, values: usize) -> Result<(), MonitorError> {
        match values > self.values_max {
            true => Err(MonitorError::TooMuch(self.values_max)),
            false => Ok(()),
        }
    }

    /// The files of a span, the oldest first.
    pub(crate) fn days(&self, span: Span) -> Result<Vec<Day>, MonitorError> {
        if span.to_ms <= span.from_ms || !self.dir.exists() {
            return Ok(Vec::new());
        }
        let (first, last) = (day::day_of(span.from_ms), day::day_of(span.to_ms - 1));
        let mut days = Vec::new();
        // By what is there, so that a span of a thousand years costs nothing.
        for (number, _) in day::days_in(&self.dir)? {
            if (first..=last).contains(&number) {
                days.extend(self.sound(Day::open(&self.dir, number))?.flatten());
            }
        }
        Ok(days)
    }
}

/// A question to one file; times are milliseconds of its day.
struct Ask<'a> {
    day: &'a Day,
    nodes: Nodes<'a>,
    places: &'a [Option<usize>],
    from: u64,
    to: u64,
    unreadable: &'a Cell<u64>,
}

impl Ask<'_> {
    fn visit(&self, level: Level, visit: &mut Visit) -> Result<ControlFlow<()>, MonitorError> {
        let (table, coarse, fine) = match level {
            Level::Tick => return self.ticks(visit).map_err(failed("read", &self.day.path)),
            Level::Minute => (Table::Minutes, MINUTE_MS, Level::Tick),
            Level::Hour => (Table::Hours, HOUR_MS, Level::Minute),
        };
        let closed = |table, coarse| {
            let last = self.day.last_time(table);
            last.map(|last| last.map_or(0, |time| (time + 1) * coarse))
        };
        // An hour that was closed by a clock that was ahead for a while goes on: its minutes say
        // so.
        let closed =
            closed(table, coarse)?.min(closed(Table::Minutes, MINUTE_MS)? / coarse * coarse);
        // What is rolled up meanwhile comes from the finer level, once.
        let rolled = Ask {
            to: self.to.min(closed),
            ..*self
        };
        let flow = rolled.rolled(table, coarse, visit);
        if flow.map_err(failed("read", &self.day.path))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        // The rest is not rolled up yet: from the finer level, a step at a time.
        let rest = Ask {
            from: self.from.max(closed),
            ..*self
        };
        if rest.from >= rest.to {
            return Ok(ControlFlow::Continue(()));
        }
        let mut under_way: BTreeMap<u32, Vec<Rollup>> = BTreeMap::new();
        let mut step = 0;
        let began = self.day.began_ms;
        let flow = rest.visit(fine, &mut |at, node, rollups| {
            let now = (at - began) / coarse;
            if now != step {
                for (node, rolled) in std::mem::take(&mut under_way) {
                    visit(began + step * coarse, node, &rolled)?;
                }
                step = now;
            }
            rollup::merge_all(under_way.entry(node).or_default(), rollups);
            ControlFlow::Continue(())
        })?;
        if flow.is_break() {
            return Ok(flow);
        }
        for (node, rolled) in under_way {
            if visit(began + step * coarse, node, &rolled).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn rolled(
        &self,
        table: Table,
        step: u64,
        visit: &mut Visit,
    ) -> rusqlite::Result<ControlFlow<()>> {
        let times = self.from.div_ceil(step)..self.to.div_ceil(step);
        let mut all = Vec::new();
        rows::visit(
            self.day,
            table,
            times,
            self.nodes,
            &mut |time, node, packed| {
                if rollup::decode(packed, &mut all).is_none() {
                    self.unreadable.set(self.unreadable.get() + 1);
                    return ControlFlow::Continue(());
                }
                let pick = |place: &Option<usize>| {
                    place
                        .and_then(|place| all.get(place).copied())
                        .unwrap_or(Rollup::EMPTY)
                };
                let picked: Vec<Rollup> = self.places.iter().map(pick).collect();
                match any_data(&picked) {
                    true => visit(self.day.began_ms + time * step, node, &picked),
                    false => ControlFlow::Continue(()),
                }
            },
        )
    }

    fn ticks(&self, visit: &mut Visit) -> rusqlite::Result<ControlFlow<()>> {
        let minute = self.from - self.from % MINUTE_MS;
        let mut bases: BTreeMap<u32, (u64, Vec<i64>)> = BTreeMap::new();
        let mut values = Vec::new();
        let times = minute..self.to;
        rows::visit(
            self.day,
            Table::Samples,
            times,
            self.nodes,
            &mut |at, node, packed| {
                let (last, base) = bases.entry(node).or_default();
                // A row that continues one of another minute would be nonsense.
                if *last != at / MINUTE_MS {
                    base.clear();
                    *last = at / MINUTE_MS;
                }
                if pack::decode(packed, base, &mut values).is_none() {
                    self.unreadable.set(self.unreadable.get() + 1);
                    return ControlFlow::Continue(());
                }
                if at < self.from {
                    return ControlFlow::Continue(());
                }
                let pick = |place: &Option<usize>| {
                    let value = place.and_then(|place| *values.get(place)?);
                    value.map_or(Rollup::EMPTY, Rollup::one)
                };
                let picked: Vec<Rollup> = self.places.iter().map(pick).collect();
                match any_data(&picked) {
                    true => visit(self.day.began_ms + at, node, &picked),
                    false => ControlFlow::Continue(()),
                }
            },
        )
    }
}

/// Whether a row is visited: it has values of what was asked for, or nothing in particular was.
fn any_data(picked: &[Rollup]) -> bool {
    picked.is_empty() || picked.iter().any(|rollup| rollup.count > 0)
}

fn go_on_if(so: bool) -> ControlFlow<()> {
    match so {
        true => ControlFlow::Continue(()),
        false => ControlFlow::Break(()),
    }
}

/// The span to read: a rate needs the step before.
fn widened(metric: &Metric, level: Level, span: Span) -> Span {
    let before = match metric.kind {
        Kind::Counter => level.step_ms(),
        Kind::Gauge => 0,
    };
    Span {
        from_ms: span.from_ms.saturating_sub(before),
        ..span
    }
}

/// Rates of counters from one step to the next.
#[derive(Default)]
struct Rates {
    before: BTreeMap<u32, (u64, i64)>,
}

impl Rates {
    /// Growth a second since the step before, in stored units; `None` for the first step, after a
    /// gap of more than two steps, and when the counter began anew.
    fn rate(&mut self, at: u64, node: u32, rollup: &Rollup, level: Level) -> Option<f64> {
        if rollup.count == 0 {
            return None;
        }
        let (before, value) = self.before.insert(node, (at, rollup.max))?;
        let apart = at.saturating_sub(before);
        if apart == 0 || apart > 2 * level.step_ms() || rollup.min < value {
            return None;
        }
        Some((rollup.max - value) as f64 * 1_000.0 / apart as f64)
    }
}

/// Points under way; rows come by time.
#[derive(Default)]
struct Gather {
    points: Vec<Point>,
    sum: f64,
    count: f64,
}

impl Gather {
    fn add(&mut self, at_ms: u64, min: f64, max: f64, sum: f64, count: f64) {
        if self.points.last().is_none_or(|last| last.at_ms != at_ms) {
            self.close();
            self.points.push(Point {
                at_ms,
                min,
                max,
                mean: 0.0,
                nodes: 0,
            });
        }
        let last = self.points.last_mut().expect("pushed above");
        last.min = last.min.min(min);
        last.max = last.max.max(max);
        last.nodes += 1;
        self.sum += sum;
        self.count += count;
    }

    fn close(&mut self) {
        if let Some(last) = self.points.last_mut() {
            last.mean = self.sum / self.count;
        }
        (self.sum, self.count) = (0.0, 0.0);
    }

    fn finish(mut self) -> Vec<Point> {
        self.close();
        self.points
    }
}
