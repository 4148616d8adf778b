//! Writes pictures to the files, on threads of its own.
//!
//! Key type: [`Keeper`]. One thread takes ticks in; another makes checkpoints and removes old
//! files, so that neither a disk that is slow nor a large file holds up what arrives.
//!
//! The file of the present day is set aside when it is damaged, as that of jobs and events is, and
//! another begun, once in [`ASIDE_PERIOD_MS`] at most: a disk that damages each new one would fill
//! the log of events. That of another day is left where it is, with an event: what can be read of
//! it is shown.
//!
//! Invariant: what does not fit into the queue, cannot be written, or is older than what is there
//! already, is counted and left out; nobody waits but the end of the process, and that not for
//! long.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hearth_monitor::{Appended, Limits, Metric, MonitorError, Reduced, Sample, Writer, csv};

use super::Shown;
use super::late::{Held, Whole};
use crate::clock;
use crate::events::{Event, Severity};

/// Events that may wait for the log: one a second is taken, and there are few.
const EVENTS_MAX: usize = 64;
/// Ticks that may wait for the disk.
const WAITING_MAX: usize = 30;
/// Least time between two damaged files that are set aside, by the times of ticks.
const ASIDE_PERIOD_MS: u64 = hearth_monitor::HOUR_MS;
/// Time between two checkpoints.
const KEEP_PERIOD: Duration = Duration::from_secs(5);

/// Hands pictures to the threads; they end with it.
#[derive(Debug)]
pub struct Keeper {
    /// Nothing once [`Keeper::finish`] was called.
    waiting: Mutex<Option<SyncSender<Arc<Shown>>>>,
    /// Closed when the writing thread has ended.
    written: Mutex<Receiver<()>>,
    state: Arc<State>,
    /// Held so that the second thread ends with this.
    _ends: SyncSender<()>,
}

#[derive(Debug, Default)]
struct State {
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
    /// What people should know, for the log of events.
    events: Mutex<Vec<Event>>,
    /// Files whose damage was told.
    damaged: Mutex<BTreeSet<PathBuf>>,
    /// The tick at which a file was set aside last.
    aside_at_ms: Mutex<Option<u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    /// Says once what is wrong, and once that it is right again.
    fn note(&self, result: Result<(), String>) {
        let mut trouble = locked(&self.trouble);
        match result {
            Ok(()) if trouble.take().is_some() => {
                self.tell(
                    Severity::Info,
                    "metrics-kept",
                    "values are kept again".into(),
                );
            }
            Ok(()) => {}
            Err(text) => {
                if trouble.is_none() {
                    let told = format!("values are not kept: {text}");
                    self.tell(Severity::Error, "metrics-not-kept", told);
                }
                *trouble = Some(text);
            }
        }
    }

    fn tell(&self, severity: Severity, kind: &'static str, text: String) {
        let mut events = locked(&self.events);
        if events.len() < EVENTS_MAX {
            events.push(Event::new(severity, kind, text));
        }
    }

    /// Tells once of each file.
    fn tell_damaged(&self, path: &Path) {
        if locked(&self.damaged).insert(path.to_path_buf()) {
            let text = format!(
                "{} is damaged: of its day only what can be read is shown; other days are whole",
                path.display()
            );
            self.tell(Severity::Error, "metrics-damaged", text);
        }
    }

    /// Sets the damaged file of the day of a tick aside; whether another can be begun.
    fn set_aside(&self, at_ms: u64, path: &Path, source: &str) -> bool {
        let mut last = locked(&self.aside_at_ms);
        if last.is_some_and(|last| at_ms.abs_diff(last) < ASIDE_PERIOD_MS) {
            return false;
        }
        let Ok(aside) = hearth_store::set_aside(path) else {
            return false;
        };
        *last = Some(at_ms);
        let text = format!(
            "{} is damaged ({source}) and was set aside as {}; a new one was begun: the values of this day until now are not shown",
            path.display(),
            aside.display()
        );
        self.tell(Severity::Error, "metrics-damaged", text);
        true
    }
}

impl Keeper {
    /// Begins to keep files in `dir`.
    pub fn start(dir: &Path, limits: Limits, metrics: &[Metric]) -> Self {
        let (waiting, ticks) = sync_channel(WAITING_MAX);
        let (ends, end) = sync_channel(0);
        let state = Arc::new(State::default());
        let writer = (dir.to_path_buf(), metrics.to_vec(), state.clone());
        let (ended, written) = sync_channel(0);
        std::thread::spawn(move || {
            write(&writer.0, &writer.1, &ticks, &writer.2);
            drop(ended);
        });
        let dir = dir.to_path_buf();
        let keeping = state.clone();
        std::thread::spawn(move || keep(&dir, limits, &end, &keeping));
        Keeper {
            waiting: Mutex::new(Some(waiting)),
            written: Mutex::new(written),
            state,
            _ends: ends,
        }
    }

    /// Takes no more pictures, and waits until those that it has are written, at most for so long;
    /// whether they are in the files.
    pub fn finish(&self, limit: Duration) -> bool {
        locked(&self.waiting).take();
        let ended = locked(&self.written).recv_timeout(limit);
        ended == Err(RecvTimeoutError::Disconnected) && self.trouble().0.is_none()
    }

    /// Hands over a picture.
    pub fn keep(&self, shown: Arc<Shown>) {
        let waiting = locked(&self.waiting);
        let taken = waiting.as_ref().map(|waiting| waiting.try_send(shown));
        if taken.is_some_and(|taken| taken.is_err()) {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts ticks that never came here.
    pub fn lose_ticks(&self, ticks: u64) {
        self.state.lost.fetch_add(ticks, Ordering::Relaxed);
    }

    /// What is wrong at present, and ticks that the files lack.
    pub fn trouble(&self) -> (Option<String>, u64) {
        let trouble = locked(&self.state.trouble).clone();
        (trouble, self.state.lost.load(Ordering::Relaxed))
    }

    /// What people should know since the last call.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *locked(&self.state.events))
    }

    /// Tells of files that a question found to be damaged, of each once.
    pub fn tell_damaged(&self, paths: &[PathBuf]) {
        paths.iter().for_each(|path| self.state.tell_damaged(path));
    }
}

/// The next tick to write, with what came late of it; at the end those that still wait for that.
fn next(held: &mut Held, ticks: &Receiver<Arc<Shown>>) -> Option<Whole> {
    loop {
        if let Some(whole) = held.ready() {
            return Some(whole);
        }
        match ticks.recv() {
            Ok(shown) => held.put(shown),
            Err(_) => return held.oldest(),
        }
    }
}

fn write(dir: &Path, declared: &[Metric], ticks: &Receiver<Arc<Shown>>, state: &State) {
    let mut writer = None;
    // The newest tick that is kept.
    let mut newest_ms = 0;
    let mut held = Held::default();
    while let Some(whole) = next(&mut held, ticks) {
        let shown = &whole.shown;
        let at_ms = shown.picture.at_ms;
        let rows = whole.rows();
        let samples: Vec<Sample> = rows
            .iter()
            .map(|(node, values)| Sample {
                node: *node,
                values,
            })
            .collect();
        let append = |writer: &mut Option<Writer>| -> Result<Appended, MonitorError> {
            let writer = match writer {
                Some(writer) => writer,
                none => none.insert(Writer::open(dir, declared)?),
            };
            let appended = writer.append(at_ms, &samples)?;
            for kept in &shown.picture.streams {
                let tick = &kept.tick;
                let reduced = Reduced {
                    stream: &tick.stream,
                    metrics: &tick.columns,
                    covers: tick.covers,
                    nodes: tick.nodes,
                    values: &tick.values,
                };
                match writer.append_reduced(kept.at_ms, &reduced) {
                    // The day's file has no room for the metrics of this stream: that costs no
                    // other.
                    Err(MonitorError::TooManyMetrics(_)) => {
                        state.lost.fetch_add(1, Ordering::Relaxed);
                    }
                    stored => stored.map(drop)?,
                }
            }
            Ok(appended)
        };
        let mut appended = append(&mut writer);
        // The days that a tick touches: that before its own, and its own.
        for _ in 0..2 {
            let Err(MonitorError::Damaged { path, source, .. }) = &appended else {
                break;
            };
            if *path != Writer::file_of(dir, at_ms) {
                state.tell_damaged(path);
                if let Some(writer) = &mut writer {
                    writer.let_go(path);
                }
            } else if state.set_aside(at_ms, path, &source.to_string()) {
                writer = None;
            } else {
                break;
            }
            appended = append(&mut writer);
        }
        let result = match appended {
            Ok(appended) if appended.late > 0 => Err(late(at_ms, newest_ms)),
            Ok(_) => {
                newest_ms = at_ms;
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        if result.is_err() {
            state.lost.fetch_add(1, Ordering::Relaxed);
        }
        state.note(result);
    }
}

/// Why a tick was not taken. The same text for as long as the reason holds.
fn late(at_ms: u64, newest_ms: u64) -> String {
    match at_ms < newest_ms {
        true => format!(
            "the clock was set back; values are there until {} and go on from then",
            csv::time(newest_ms)
        ),
        false => {
            "the clock was set back: values of its time are there already, or its minute is over"
                .into()
        }
    }
}

fn keep(dir: &Path, limits: Limits, end: &Receiver<()>, state: &State) {
    while end.recv_timeout(KEEP_PERIOD) == Err(RecvTimeoutError::Timeout) {
        if !dir.exists() {
            continue;
        }
        match hearth_monitor::keep(dir, limits, clock::unix_us() / 1_000) {
            Ok(kept) => {
                for trouble in kept.troubles {
                    match &trouble {
                        MonitorError::Damaged { path, .. } => state.tell_damaged(path),
                        other => tracing::warn!("{other}"),
                    }
                }
                for path in kept.removed {
                    tracing::info!("{} was removed: [monitor] sets the bounds", path.display());
                }
            }
            Err(error) => tracing::warn!("{error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::monitor::metrics;
    use crate::monitor::picture::{Health, LateValues, NodeNow, Picture};

    fn shown(at_ms: u64) -> Arc<Shown> {
        let node = NodeNow {
            node: 3,
            health: Health::Idle,
            job: None,
            boot: 1,
            mac: String::new(),
            address: None,
            drained: None,
            values: vec![Some(7)],
            repeated: false,
            counters: Vec::new(),
        };
        let picture = Picture {
            at_ms,
            nodes: vec![node],
            ..Picture::default()
        };
        Arc::new(Shown {
            picture,
            ..Shown::default()
        })
    }

    const NOON: u64 = 20_779 * hearth_monitor::DAY_MS + 12 * hearth_monitor::HOUR_MS;

    /// Has ticks written, as one run of control does it.
    fn written(dir: &Path, ticks: Vec<Arc<Shown>>, state: &State) {
        let metrics = [Metric::gauge("used_bytes", "bytes", 1.0, ".")];
        written_as(dir, &metrics, ticks, state);
    }

    fn written_as(dir: &Path, metrics: &[Metric], ticks: Vec<Arc<Shown>>, state: &State) {
        let (sender, waiting) = std::sync::mpsc::sync_channel(ticks.len());
        ticks
            .into_iter()
            .for_each(|tick| sender.send(tick).unwrap());
        drop(sender);
        write(dir, metrics, &waiting, state);
    }

    fn told(state: &State) -> Vec<Event> {
        std::mem::take(&mut *locked(&state.events))
    }

    /// Of a node of which nothing comes the files have what control itself knows: how long it has
    /// been silent, above all.
    #[test]
    fn what_was_not_read_anew_is_not_stored_again() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = metrics::declared();
        let place = |name: &str| {
            metrics
                .iter()
                .position(|metric| metric.name == name)
                .unwrap()
        };
        let silent = place("hearth_node_heartbeat_age_seconds");
        let (busy, used) = (
            place("hearth_node_busy_ratio"),
            place("hearth_node_memory_used_bytes"),
        );
        let ticks = [
            (100_000, false),
            (1_100_000, true),
            (2_100_000, true),
            (50_000, false),
        ];
        let tick = |(second, (silent_us, repeated)): (u64, (i64, bool))| {
            let mut tick = Arc::try_unwrap(shown(NOON + second * 1_000)).unwrap();
            let node = &mut tick.picture.nodes[0];
            node.values = vec![Some(7); metrics.len()];
            node.values[silent] = Some(silent_us);
            node.repeated = repeated;
            Arc::new(tick)
        };
        let ticks = (0..).zip(ticks).map(tick).collect();
        written_as(dir.path(), &metrics, ticks, &State::default());
        let span = hearth_monitor::Span {
            from_ms: NOON,
            to_ms: NOON + 10_000,
        };
        let level = hearth_monitor::Level::Tick;
        let reader = hearth_monitor::Reader::new(dir.path());
        // Values in thousandths.
        let of = |place: usize| -> Vec<(u64, f64)> {
            let all = hearth_monitor::reader::Nodes::All;
            let mut lists = reader.by_node(&metrics[place], level, span, all).unwrap();
            let list = lists.remove(&3).unwrap();
            list.into_iter()
                .map(|(at, value)| (at - NOON, (value * 1e3).round()))
                .collect()
        };
        assert_eq!(of(used), [(0, 7e3), (3_000, 7e3)]);
        assert_eq!(of(busy).len(), 2);
        assert_eq!(
            of(silent),
            [
                (0, 100.0),
                (1_000, 1_100.0),
                (2_000, 2_100.0),
                (3_000, 50.0)
            ]
        );
    }

    /// What comes after its tick is in the files as if it had been in time, in each level once.
    #[test]
    fn what_came_late_is_stored_at_its_tick() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = metrics::declared();
        let place = metrics.len() - 1;
        let tick = |second: u64, repeated: bool, late: &[(u64, i64)]| {
            let mut tick = Arc::try_unwrap(shown(NOON + second * 1_000)).unwrap();
            let node = &mut tick.picture.nodes[0];
            node.values = vec![Some(second as i64); metrics.len()];
            node.repeated = repeated;
            let late = late.iter().map(|(second, value)| LateValues {
                at_ms: NOON + second * 1_000,
                node: 3,
                values: vec![Some(*value); metrics.len()],
            });
            tick.picture.late = late.collect();
            Arc::new(tick)
        };
        let ticks = vec![
            tick(0, false, &[]),
            tick(1, true, &[]),
            tick(2, true, &[(1, 10)]),
            tick(3, false, &[]),
            // The first has its own already.
            tick(4, true, &[(3, 99), (2, 20)]),
            tick(5, true, &[(4, 40)]),
        ];
        let state = State::default();
        written_as(dir.path(), &metrics, ticks, &state);
        assert_eq!(state.lost.load(Ordering::Relaxed), 0);
        let span = hearth_monitor::Span {
            from_ms: NOON,
            to_ms: NOON + hearth_monitor::MINUTE_MS,
        };
        let reader = hearth_monitor::Reader::new(dir.path());
        let points = |level| {
            let all = hearth_monitor::reader::Nodes::All;
            let points = reader.series(&metrics[place], level, span, all).unwrap();
            let points = points.into_iter();
            points
                .map(|point| ((point.at_ms - NOON) / 1_000, point.mean))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            points(hearth_monitor::Level::Tick),
            [(0, 0.0), (1, 10.0), (2, 20.0), (3, 3.0), (4, 40.0)]
        );
        assert_eq!(points(hearth_monitor::Level::Minute), [(0, 73.0 / 5.0)]);
    }

    /// The newest ticks wait for what comes late of them; the end of the control node must not cost
    /// them.
    #[test]
    fn what_waits_is_written_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let limits = Limits {
            days: 30,
            bytes: u64::MAX,
        };
        let metrics = [Metric::gauge("used_bytes", "bytes", 1.0, ".")];
        let keeper = Keeper::start(dir.path(), limits, &metrics);
        (0..5).for_each(|second| keeper.keep(shown(NOON + second * 1_000)));
        assert!(keeper.finish(Duration::from_secs(10)));
        let span = hearth_monitor::Span {
            from_ms: NOON,
            to_ms: NOON + 10_000,
        };
        let all = hearth_monitor::reader::Nodes::All;
        let reader = hearth_monitor::Reader::new(dir.path());
        let level = hearth_monitor::Level::Tick;
        let points = reader.series(&metrics[0], level, span, all).unwrap();
        assert_eq!(points.len(), 5);
        // What comes after the end is nobody's loss, and a second end waits for nothing.
        keeper.keep(shown(NOON + 5_000));
        assert!(keeper.finish(Duration::ZERO));
        assert_eq!(keeper.trouble(), (None, 0));
    }

    /// The roll-ups of yesterday's last hour are written just after midnight: its file is not the
    /// one that is begun anew.
    #[test]
    fn a_damaged_file_of_yesterday_stays_where_it_is() {
        const MIDNIGHT: u64 = 20_780 * hearth_monitor::DAY_MS;
        let dir = tempfile::tempdir().unwrap();
        let state = State::default();
        let (sender, waiting) = sync_channel(0);
        let path = dir.path().join("2026-11-22.metrics");
        let damaging = path.clone();
        let feeding = std::thread::spawn(move || {
            sender.send(shown(MIDNIGHT - 1_000)).unwrap();
            sender.send(shown(MIDNIGHT + 1_000)).unwrap();
            // Both are in their files now, or the one before is and this is under way in its own.
            sender.send(shown(MIDNIGHT + 2_000)).unwrap();
            // All but its first page. Somebody else has written to it: what the writer has in
            // memory is read anew.
            let other = rusqlite::Connection::open(&damaging).unwrap();
            let text = "INSERT INTO ticks VALUES (1); PRAGMA wal_checkpoint(TRUNCATE)";
            other.execute_batch(text).unwrap();
            drop(other);
            let mut bytes = std::fs::read(&damaging).unwrap();
            bytes[8_192..].fill(151);
            std::fs::write(&damaging, bytes).unwrap();
            sender.send(shown(MIDNIGHT + 8_000)).unwrap();
            sender.send(shown(MIDNIGHT + 9_000)).unwrap();
        });
        let metrics = [Metric::gauge("used_bytes", "bytes", 1.0, ".")];
        write(dir.path(), &metrics, &waiting, &state);
        feeding.join().unwrap();
        let told = told(&state);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].text.contains("of its day only what can be read"),
            "{}",
            told[0].text
        );
        assert!(path.exists() && !dir.path().join("2026-11-22.metrics.damaged").exists());
        assert_eq!(state.lost.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_second_damage_of_a_day_leaves_what_was_set_aside_first() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::default();
        let path = dir.path().join("2026-11-22.metrics");
        let aside = dir.path().join("2026-11-22.metrics.damaged");
        let damage = |byte: u8| std::fs::write(&path, [byte; 160_000]).unwrap();
        let kinds =
            || -> Vec<String> { told(&state).into_iter().map(|event| event.kind).collect() };
        damage(151);
        written(dir.path(), vec![shown(NOON)], &state);
        assert_eq!(kinds(), ["metrics-damaged"]);
        // Each new one is damaged: told once, and the first stays.
        damage(152);
        let ticks = (1..600)
            .map(|second| shown(NOON + second * 1_000))
            .collect();
        written(dir.path(), ticks, &state);
        assert_eq!(kinds(), ["metrics-not-kept"]);
        assert_eq!(std::fs::read(&aside).unwrap()[0], 151);
        assert_eq!(state.lost.load(Ordering::Relaxed), 599);
        // An hour later it is tried again.
        written(dir.path(), vec![shown(NOON + ASIDE_PERIOD_MS)], &state);
        assert_eq!(kinds(), ["metrics-damaged", "metrics-kept"]);
        assert_eq!(std::fs::read(&aside).unwrap()[0], 151);
        let second = dir.path().join("2026-11-22.metrics.damaged-2");
        assert_eq!(std::fs::read(&second).unwrap()[0], 152);
    }

    #[test]
    fn ticks_that_a_clock_costs_are_counted_and_said() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = [Metric::gauge("used_bytes", "bytes", 1.0, ".")];
        let state = State::default();
        let said = |ticks: &[u64]| {
            let (sender, waiting) = sync_channel(WAITING_MAX);
            for at_ms in ticks {
                sender.send(shown(*at_ms)).unwrap();
            }
            drop(sender);
            write(dir.path(), &metrics, &waiting, &state);
            let trouble = state.trouble.lock().unwrap().clone();
            (state.lost.load(Ordering::Relaxed), trouble)
        };
        assert_eq!(said(&[NOON, NOON + 1_000]), (0, None));
        // An hour back: three ticks are lost.
        let hour = NOON - hearth_monitor::HOUR_MS;
        let (lost, trouble) = said(&[NOON + 2_000, hour, hour + 1_000, hour + 2_000]);
        let trouble = trouble.expect("somebody says so");
        assert_eq!(lost, 3);
        assert!(trouble.contains("2026-11-22T12:00:02.000Z"), "{trouble}");
        // Past it again.
        assert_eq!(said(&[NOON + 3_000]), (3, None));
        // A day back, of which nothing is there: it goes on at once.
        assert_eq!(said(&[NOON - hearth_monitor::DAY_MS]), (3, None));
    }

    #[test]
    fn a_damaged_file_is_set_aside_with_an_event_and_another_begun() {
        let dir = tempfile::tempdir().unwrap();
        let metrics = [Metric::gauge("used_bytes", "bytes", 1.0, ".")];
        let state = State::default();
        let kept = |ticks: &[u64]| {
            let (sender, waiting) = sync_channel(WAITING_MAX);
            for at_ms in ticks {
                sender.send(shown(*at_ms)).unwrap();
            }
            drop(sender);
            write(dir.path(), &metrics, &waiting, &state);
            let span = hearth_monitor::Span {
                from_ms: NOON,
                to_ms: NOON + 60_000,
            };
            let reader = hearth_monitor::Reader::new(dir.path());
            let nodes = hearth_monitor::reader::Nodes::All;
            let level = hearth_monitor::Level::Tick;
            let points = reader.series(&metrics[0], level, span, nodes).unwrap();
            (points.len(), state.lost.load(Ordering::Relaxed))
        };
        assert_eq!(kept(&[NOON, NOON + 1_000]), (2, 0));
        let path = dir.path().join("2026-11-22.metrics");
        std::fs::write(&path, [151; 160_000]).unwrap();
        // As after a restart: the first tick is kept already.
        assert_eq!(kept(&[NOON + 2_000, NOON + 3_000]), (2, 0));
        assert!(dir.path().join("2026-11-22.metrics.damaged").exists());
        let told: Vec<Event> = std::mem::take(&mut *locked(&state.events));
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].kind, "metrics-damaged");
        assert!(
            told[0].text.contains("2026-11-22.metrics.damaged"),
            "{}",
            told[0].text
        );
        // Trouble that cannot be helped is told once, and when it is over.
        std::fs::remove_dir_all(dir.path()).unwrap();
        std::fs::write(dir.path(), "a file where the folder was").unwrap();
        let (sender, waiting) = sync_channel(WAITING_MAX);
        for second in 4..7 {
            sender.send(shown(NOON + second * 1_000)).unwrap();
        }
        drop(sender);
        write(dir.path(), &metrics, &waiting, &state);
        std::fs::remove_file(dir.path()).unwrap();
        assert_eq!(kept(&[NOON + 7_000]), (1, 3));
        let told = std::mem::take(&mut *locked(&state.events));
        let kinds: Vec<&str> = told.iter().map(|event| &*event.kind).collect();
        assert_eq!(kinds, ["metrics-not-kept", "metrics-kept"]);
    }
}
