//! Jobs that wait for files on their nodes.
//!
//! Key type: [`Waits`]. Neighbours: `casts` says when a cast ends; the runner hears of it by
//! [`Outcome`].
//!
//! Invariant: every wait ends with one outcome, or is given up by its job.

use std::collections::{BTreeMap, BTreeSet};

use super::Outcome;
use super::cast::{Cast, Fate};
use crate::hostlist;

/// What one job waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wait {
    nodes: BTreeSet<u32>,
    casts: BTreeSet<u64>,
}

/// All waits, by job.
#[derive(Debug, Default)]
pub struct Waits {
    jobs: BTreeMap<u64, Wait>,
}

impl Waits {
    /// A job waits for casts, as far as they are for its nodes.
    pub fn add(&mut self, job: u64, nodes: &[u32], casts: BTreeSet<u64>) {
        let nodes = nodes.iter().copied().collect();
        self.jobs.insert(job, Wait { nodes, casts });
    }

    /// A job waits no more; gives the casts that it waited for.
    pub fn give_up(&mut self, job: u64) -> BTreeSet<u64> {
        let wait = self.jobs.remove(&job);
        wait.map(|wait| wait.casts).unwrap_or_default()
    }

    /// A cast is over.
    pub fn ended(&mut self, cast: &Cast, outcomes: &mut Vec<Outcome>) {
        let mut done = Vec::new();
        for (job, wait) in &mut self.jobs {
            if !wait.casts.remove(&cast.id) {
                continue;
            }
            let missing = wait
                .nodes
                .iter()
                .find_map(|node| match cast.nodes.get(node) {
                    Some(Fate::Failed(why)) => Some((*node, why.clone())),
                    Some(Fate::Coming | Fate::Absent) => {
                        let why = "did not get it before the cast was cancelled";
                        Some((*node, why.to_string()))
                    }
                    _ => None,
                });
            if let Some((node, why)) = missing {
                let text = format!("{}: {} {why}", cast.what.name(), hostlist::name(node));
                outcomes.push(Outcome::FilesFailed(*job, text));
                done.push(*job);
            } else if wait.casts.is_empty() {
                outcomes.push(Outcome::FilesHere(*job));
                done.push(*job);
            }
        }
        for job in done {
            self.jobs.remove(&job);
        }
    }
}
