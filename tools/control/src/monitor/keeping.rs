//! Writes pictures to the files, on threads of its own.
//!
//! Key type: [`Keeper`]. One thread takes ticks in; another makes checkpoints and removes old files, so that
//! neither a disk that is slow nor a large file holds up what arrives.
//!
//! Invariant: what does not fit into the queue, cannot be written, or is older than what is there already, is counted
//! and left out; nobody waits.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hearth_monitor::{Appended, Limits, Metric, MonitorError, Sample, Writer, csv};

use super::Shown;
use crate::clock;

/// Ticks that may wait for the disk.
const WAITING_MAX: usize = 30;
/// Time between two checkpoints.
const KEEP_PERIOD: Duration = Duration::from_secs(5);

/// Hands pictures to the threads; they end with it.
#[derive(Debug)]
pub struct Keeper {
    waiting: SyncSender<Arc<Shown>>,
    state: Arc<State>,
    /// Held so that the second thread ends with this.
    _ends: SyncSender<()>,
}

#[derive(Debug, Default)]
struct State {
    lost: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl State {
    /// Says once what is wrong, and once that it is right again.
    fn note(&self, result: Result<(), String>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) if trouble.take().is_some() => tracing::info!("metrics are kept again"),
            Ok(()) => {}
            Err(text) => {
                if trouble.as_ref() != Some(&text) {
                    tracing::warn!("metrics are not kept: {text}");
                }
                *trouble = Some(text);
            }
        }
    }
}

impl Keeper {
    /// Begins to keep files in `dir`.
    pub fn start(dir: &Path, limits: Limits, metrics: &[Metric]) -> Self {
        let (waiting, ticks) = sync_channel(WAITING_MAX);
        let (ends, end) = sync_channel(0);
        let state = Arc::new(State::default());
        let writer = (dir.to_path_buf(), metrics.to_vec(), state.clone());
        std::thread::spawn(move || write(&writer.0, &writer.1, &ticks, &writer.2));
        let dir = dir.to_path_buf();
        std::thread::spawn(move || keep(&dir, limits, &end));
        Keeper {
            waiting,
            state,
            _ends: ends,
        }
    }

    /// Hands over a picture.
    pub fn keep(&self, shown: Arc<Shown>) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.waiting.try_send(shown)
        {
            self.state.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What is wrong at present, and ticks that the files lack.
    pub fn trouble(&self) -> (Option<String>, u64) {
        let trouble = self
            .state
            .trouble
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        (trouble.clone(), self.state.lost.load(Ordering::Relaxed))
    }
}

fn write(dir: &Path, metrics: &[Metric], ticks: &Receiver<Arc<Shown>>, state: &State) {
    let mut writer = None;
    // The newest tick that is kept.
    let mut newest_ms = 0;
    while let Ok(shown) = ticks.recv() {
        let at_ms = shown.picture.at_ms;
        let mut append = || -> Result<Appended, MonitorError> {
            let writer = match &mut writer {
                Some(writer) => writer,
                none => none.insert(Writer::open(dir, metrics)?),
            };
            let nodes = shown
                .picture
                .nodes
                .iter()
                .filter(|node| !node.values.is_empty());
            let samples: Vec<Sample> = nodes
                .map(|node| Sample {
                    node: node.node,
                    values: &node.values,
                })
                .collect();
            writer.append(at_ms, &samples)
        };
        let result = match append() {
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

fn keep(dir: &Path, limits: Limits, end: &Receiver<()>) {
    use std::sync::mpsc::RecvTimeoutError::Timeout;
    while end.recv_timeout(KEEP_PERIOD) == Err(Timeout) {
        if !dir.exists() {
            continue;
        }
        match hearth_monitor::keep(dir, limits, clock::unix_us() / 1_000) {
            Ok(kept) => {
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
    use crate::monitor::picture::{Health, NodeNow, Picture};

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
        const NOON: u64 = 20_779 * hearth_monitor::DAY_MS + 12 * hearth_monitor::HOUR_MS;
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
}
