//! Jobs that wait for files on their nodes.
//!
//! Key type: [`Waits`]. Neighbours: `casts` says how its casts get on; the runner hears of it by
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

    /// A cast got further, or is `over`. Who joined it waits for nobody else's nodes. Gives the
    /// jobs that wait in vain, with the other casts that they waited for.
    pub fn heard(
        &mut self,
        cast: &Cast,
        over: bool,
        outcomes: &mut Vec<Outcome>,
    ) -> Vec<(u64, BTreeSet<u64>)> {
        let mut vain = Vec::new();
        let mut done = Vec::new();
        for (job, wait) in &mut self.jobs {
            if !wait.casts.contains(&cast.id) {
                continue;
            }
            let fates = || wait.nodes.iter().map(|node| (node, cast.nodes.get(node)));
            let failed = fates().find_map(|(node, fate)| match fate {
                Some(Fate::Failed(why)) => Some((*node, why.clone())),
                _ => None,
            });
            let awaited = fates().find_map(|(node, fate)| match fate {
                Some(Fate::Coming | Fate::Absent) => Some(*node),
                _ => None,
            });
            let cancelled = "did not get it before the cast was cancelled";
            let cancelled = awaited.map(|node| (node, cancelled.to_string()));
            if let Some((node, why)) = failed.or(cancelled.filter(|_| over)) {
                let text = format!("{}: {} {why}", cast.what.name(), hostlist::name(node));
                outcomes.push(Outcome::FilesFailed(*job, text));
                vain.push((*job, std::mem::take(&mut wait.casts)));
                done.push(*job);
            } else if awaited.is_none() {
                wait.casts.remove(&cast.id);
                if wait.casts.is_empty() {
                    outcomes.push(Outcome::FilesHere(*job));
                    done.push(*job);
                }
            }
        }
        for job in done {
            self.jobs.remove(&job);
        }
        vain
    }
}
