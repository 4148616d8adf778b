//! Watching the cluster: a picture a second, kept in files and shown to whoever looks.
//!
//! | module | purpose |
//! |---|---|
//! | [`metrics`] | the table of what is measured |
//! | [`picture`] | the whole cluster in one instant |
//! | [`newest`] | which of a node's values are shown |
//! | [`sample`] | takes it from the control state |
//! | [`late`] | what came after the picture it belongs to, for the files |
//! | [`rates`] | what is shown: base units, counters as rates |
//! | [`last_counted`] | counters of jobs as they were last seen |
//! | [`keeping`] | writes pictures to the store, on threads of its own |
//! | [`counter_names`] | what programs call their counters |
//! | [`acknowledged`] | events that somebody has seen |
//! | [`viewers`] | places for those who watch the stream |
//!
//! Key type: [`Monitor`]. Neighbours: `api::monitor` (page, stream, queries), `hearth_monitor`
//! (files). [`Monitor::publish`] is where ticks come in, whoever takes them.
//!
//! Invariants: publishing never waits: a disk that does not keep up costs ticks in the files,
//! counted, and a slow reader of the stream gets a new picture instead of what it missed.

pub mod acknowledged;
pub mod counter_names;
pub mod keeping;
pub mod last_counted;
pub mod late;
pub mod metrics;
pub mod newest;
pub mod picture;
pub mod rates;
pub mod sample;
pub mod viewers;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use hearth_monitor::{Limits, Metric};
use tokio::sync::{Semaphore, broadcast};

use crate::events::Event;
use crate::hosts::Hosts;
use acknowledged::Acknowledged;
use keeping::Keeper;
use picture::Picture;
use rates::Rates;
use viewers::Viewers;

/// Pictures that a reader of the stream may be behind.
const BEHIND_MAX: usize = 8;
/// Questions to the files at a time.
const QUESTIONS_MAX: usize = 2;
/// Downloads of values at a time.
pub const EXPORTS_MAX: usize = 2;

/// A picture with what is shown of its values.
#[derive(Debug, Default)]
pub struct Shown {
    /// The picture.
    pub picture: Picture,
    /// Of each node of the picture, of each metric: the value in its base unit, counters as rates.
    pub values: Vec<Vec<Option<f64>>>,
    /// Share of the control datagrams of the last minute that were repetitions.
    pub loss: f64,
}

/// What a cluster is, beside its nodes.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Folder of the files; `None`: nothing is kept.
    pub dir: Option<PathBuf>,
    /// Limits of the files.
    pub limits: Option<Limits>,
    /// Widths of the fat tree from the leaves up; empty: one switch.
    pub tree: Vec<u32>,
    /// Name of the cluster.
    pub cluster: String,
    /// Version of control.
    pub version: String,
    /// Microseconds since 1970 at which control started.
    pub started_unix_us: u64,
    /// Number of the newest event; 0: there was none.
    pub newest_event: Arc<AtomicU64>,
    /// Nodes by the host names of the site.
    pub hosts: Arc<Hosts>,
}

/// Shows and keeps pictures.
#[derive(Debug)]
pub struct Monitor {
    setup: Setup,
    metrics: Vec<Metric>,
    now: RwLock<Arc<Shown>>,
    rates: Mutex<Rates>,
    ticks: broadcast::Sender<Arc<Shown>>,
    keeper: Option<Keeper>,
    /// Events that were seen by somebody.
    pub acknowledged: Acknowledged,
    /// Places for streams.
    pub viewers: Viewers,
    /// Places for questions to the files.
    pub questions: Arc<Semaphore>,
    /// Places for downloads.
    pub exports: Arc<Semaphore>,
}

impl Monitor {
    /// With the metrics of [`metrics`]; begins to keep files if there is a folder.
    pub fn new(setup: Setup) -> Arc<Self> {
        let metrics = metrics::declared();
        let limits = setup.limits.unwrap_or(Limits {
            days: 30,
            bytes: u64::MAX,
        });
        let keeper = setup
            .dir
            .as_deref()
            .map(|dir| Keeper::start(dir, limits, &metrics));
        let seen = setup.dir.as_deref().map(|dir| dir.join("acknowledged"));
        Arc::new(Monitor {
            acknowledged: Acknowledged::open(seen),
            rates: Mutex::new(Rates::new(&metrics)),
            setup,
            metrics,
            now: RwLock::default(),
            ticks: broadcast::channel(BEHIND_MAX).0,
            keeper,
            viewers: Viewers::default(),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
        })
    }

    /// Takes a picture: shows it, sends it to streams, hands it to the files.
    pub fn publish(&self, picture: Picture) {
        let shown = {
            let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::new(rates.show(picture))
        };
        *self.now.write().unwrap_or_else(PoisonError::into_inner) = shown.clone();
        if let Some(keeper) = &self.keeper {
            keeper.keep(shown.clone());
        }
        // Nobody looks: no error.
        drop(self.ticks.send(shown));
    }

    /// The newest picture.
    pub fn now(&self) -> Arc<Shown> {
        self.now
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Pictures from now on.
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<Shown>> {
        self.ticks.subscribe()
    }

    /// What is measured.
    pub fn metrics(&self) -> &[Metric] {
        &self.metrics
    }

    /// The place of a metric.
    pub fn metric(&self, name: &str) -> Option<usize> {
        self.metrics.iter().position(|metric| metric.name == name)
    }

    /// What the cluster is.
    pub fn setup(&self) -> &Setup {
        &self.setup
    }

    /// Nodes by the host names of the site.
    pub fn hosts(&self) -> &Hosts {
        &self.setup.hosts
    }

    /// Folder of the files.
    pub fn dir(&self) -> Option<&Path> {
        self.setup.dir.as_deref()
    }

    /// So many ticks of streams found no room on their way to the files.
    pub fn lose_ticks(&self, ticks: u64) {
        if let Some(keeper) = &self.keeper {
            keeper.lose_ticks(ticks);
        }
    }

    /// What people should know of the files since the last call, for the log of events.
    pub fn take_events(&self) -> Vec<Event> {
        let keeper = self.keeper.as_ref();
        keeper.map_or_else(Vec::new, Keeper::take_events)
    }

    /// Nothing is kept from now on; waits until what was published is in the files, at most for so
    /// long; whether it is.
    pub fn finish(&self, limit: Duration) -> bool {
        let keeper = self.keeper.as_ref();
        keeper.is_none_or(|keeper| keeper.finish(limit))
    }

    /// Tells of files that a question found to be damaged.
    pub fn tell_damaged(&self, paths: &[PathBuf]) {
        if let Some(keeper) = &self.keeper {
            keeper.tell_damaged(paths);
        }
    }

    /// Why nothing is kept at present, and how many ticks the files lack.
    pub fn trouble(&self) -> (Option<String>, u64) {
        self.keeper.as_ref().map_or((None, 0), Keeper::trouble)
    }
}
