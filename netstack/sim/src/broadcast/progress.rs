//! Tells how far a long run is, on standard error.
//!
//! Invariant: the time of the machine only decides when something is told, never what happens.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::setup::Setup;
use super::shelf::Content;
use super::station::Station;

/// Time between two lines.
const EVERY: Duration = Duration::from_secs(5);

/// What is needed to tell it.
pub struct Progress {
    wanted: bool,
    blocks: u64,
    begun: Instant,
    told: Instant,
}

impl Progress {
    /// For a run that begins now.
    pub fn new(setup: &Setup, contents: &Arc<Vec<Content>>) -> Self {
        let blocks = setup
            .casts
            .iter()
            .zip(contents.iter())
            .map(|(plan, content)| {
                (plan.members.len() - plan.warm.len()) as u64 * u64::from(content.object.blocks())
            });
        let now = Instant::now();
        Progress {
            wanted: setup.progress,
            blocks: blocks.sum(),
            begun: now,
            told: now,
        }
    }

    /// Time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Tells how far it is if it is time.
    pub fn tell(&mut self, now: u64, stations: &[Station], events: u64) {
        if !self.wanted || self.told.elapsed() < EVERY {
            return;
        }
        self.told = Instant::now();
        let stored: u64 = stations.iter().map(|station| station.shelf.stored).sum();
        eprintln!(
            "{:5.1} % of the blocks delivered, virtual time {:.6} s, {:.0} s, {events} events, {} MB",
            stored as f64 * 100.0 / self.blocks.max(1) as f64,
            now as f64 / 1e9,
            self.begun.elapsed().as_secs_f64(),
            memory_bytes() / 1_000_000,
        );
    }
}

/// Most memory that this process has had, in bytes; 0 where the system does not say.
pub fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}
