//! Writes pictures to the files, on threads of its own.
//!
//! Key type: [`Keeper`]. One thread takes ticks in; another makes checkpoints and removes old files, so that
//! neither a disk that is slow nor a large file holds up what arrives.
//!
//! Invariant: what does not fit into the queue is counted and left out; nobody waits.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hearth_monitor::{Limits, Metric, MonitorError, Sample, Writer};

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
    fn note(&self, result: Result<(), MonitorError>) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) if trouble.take().is_some() => tracing::info!("metrics are kept again"),
            Ok(()) => {}
            Err(error) => {
                let text = error.to_string();
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
    while let Ok(shown) = ticks.recv() {
        let mut append = || {
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
            writer.append(shown.picture.at_ms, &samples).map(drop)
        };
        let result = append();
        if result.is_err() {
            state.lost.fetch_add(1, Ordering::Relaxed);
        }
        state.note(result);
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
