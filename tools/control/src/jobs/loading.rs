//! How a job's files and program get to its nodes: files first, then the launch, and with it the
//! program to the nodes that do not hold it.
//!
//! Neighbours: `lifecycle` gives a job its nodes and calls [`Runner::launch_here`]; the fabric
//! casts; `casts` tells how it goes.
//!
//! Invariants: no node is told to launch a job before it holds the job's files; whatever becomes of
//! a cast of the program, the job starts: what does not come is loaded by demand.

use std::collections::BTreeSet;

use netstack::ids::JobId;
use netstack::job::StartMode;

use super::fabric::{Fabric, Launch};
use super::lifecycle::set_state;
use super::record::Cause;
use super::{Runner, retention};
use crate::api::types::{Frame, JobState, LoadReport, RankEnd, Reuse};
use crate::casts::for_jobs::{Brought, JobFile, ProgramCast};
use crate::config::Load;

/// Cold nodes from which on `auto` casts: a single one gets everything from the control node in
/// either way, and by demand it gets less.
const AUTO_NODES: usize = 2;

/// Why a program is not cast that nodes hold and must not use.
const HELD_BUT_COLD: &str =
    "nodes hold it that are to run it --cold; `hearth drop` it first to have it cast anew";

/// How a program reaches the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Every node holds it.
    Held,
    /// Page by page.
    Demand,
    /// All of it together.
    Broadcast,
}

fn way(wanted: Load, cold: usize, bytes: u64, threshold: u64) -> Way {
    match wanted {
        _ if cold == 0 => Way::Held,
        Load::Demand => Way::Demand,
        Load::Auto if cold < AUTO_NODES || bytes <= threshold => Way::Demand,
        Load::Auto | Load::Broadcast => Way::Broadcast,
    }
}

impl Runner {
    /// A job has its nodes: brings its files there, and launches it when they are there.
    pub(super) fn bring(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let nodes = job.node_numbers();
        let brought = match job.files.is_empty() {
            true => Ok(Brought::Here),
            false => fabric.bring(job.on_nodes(), &nodes, &job.files),
        };
        match brought {
            Ok(Brought::Here) => self.launch_here(now_us, fabric, id),
            Ok(Brought::Coming) => {
                job.bringing = true;
                // The casts have limits of their own.
                self.deadlines.set(id, None);
                let names: Vec<&str> = job.files.iter().map(|file| &file.name[..]).collect();
                let reason = format!("waits for {} to be cast", names.join(", "));
                set_state(job, JobState::Starting, &reason);
                let record = job.record();
                self.records.push(record);
            }
            Err(reason) => self.not_launched(now_us, fabric, id, Cause::NotLaunched(reason)),
        }
    }

    /// All files of a job are on its nodes.
    pub fn files_here(&mut self, now_us: u64, fabric: &mut dyn Fabric, job: JobId) {
        let Some(id) = self.present(job) else {
            return;
        };
        if self.held_up.is_some() {
            self.start_due.insert(id);
            return;
        }
        let job = self.jobs.get_mut(&id).expect("it is present");
        if std::mem::take(&mut job.bringing) {
            self.launch_here(now_us, fabric, id);
        }
    }

    /// The file of a job that a node says, in these words, it does not have.
    pub fn missing_file(&self, job: JobId, text: &str) -> Option<[u8; 32]> {
        let job = self.jobs.get(&self.present(job)?)?;
        let named = |file: &&JobFile| text.starts_with(&format!("file {} is not", file.name));
        job.files.iter().find(named).map(|file| file.object)
    }

    /// A job does not get its files.
    pub fn files_failed(&mut self, now_us: u64, fabric: &mut dyn Fabric, job: JobId, why: &str) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        if std::mem::take(&mut job.bringing) {
            self.not_launched(now_us, fabric, id, Cause::NotLaunched(why.to_string()));
            self.settle(now_us, fabric);
        }
    }

    /// The launch of a job has not left the control node: it was cancelled before, or for this
    /// reason.
    pub fn not_sent(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        job: JobId,
        reason: Option<String>,
    ) {
        let Some(id) = self.present(job) else {
            return;
        };
        self.jobs.get_mut(&id).expect("it is present").launched_us = None;
        match reason {
            Some(reason) => self.not_launched(now_us, fabric, id, Cause::NodeFailed(reason)),
            None => {
                self.release_nodes(id);
                self.finish_if_ended(id);
            }
        }
        self.settle(now_us, fabric);
    }

    /// No node was told anything of a job: it ends, and they are free.
    pub(super) fn not_launched(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        cause: Cause,
    ) {
        self.release_nodes(id);
        self.end_early(now_us, fabric, id, 15, cause);
    }

    /// Takes a job's nodes away that have not been told of it.
    pub(super) fn release_nodes(&mut self, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        for rank in 0..job.ranks.len() {
            job.set_end(rank, RankEnd::NotStarted);
        }
        let on_nodes = job.on_nodes();
        let nodes = job.node_numbers();
        for node in nodes {
            self.free_node(node, on_nodes);
        }
    }

    /// Says which I/O service each node of a job calls; false where there is none now. Then the job
    /// waits for one, as long as a launch may take, and is launched when one has joined.
    fn has_file_services(&mut self, now_us: u64, fabric: &dyn Fabric, id: u64) -> bool {
        let Some(job) = self.jobs.get_mut(&id).filter(|job| job.mounts.is_some()) else {
            return true;
        };
        let known: Vec<u32> = self.nodes.numbers().collect();
        match fabric.file_services(&known, &job.nodes()) {
            Ok(parts) => {
                job.info.io = parts;
                true
            }
            Err(why) => {
                if job.info.reason != why {
                    set_state(job, JobState::Starting, &why);
                    let record = job.record();
                    self.records.push(record);
                    let limit_us = self.limits.launch_limit_s * 1_000_000;
                    self.deadlines.set(id, Some(now_us + limit_us));
                }
                job.bringing = true;
                self.start_due.insert(id);
                false
            }
        }
    }

    /// Launches a job on its nodes, its files being there.
    pub(super) fn launch_here(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        if !self.has_file_services(now_us, fabric, id) {
            return;
        }
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        let nodes = job.node_numbers();
        let warm = match retention::looks_for_warm(&self.retention, &job.wishes) {
            true => fabric.warm_nodes(&job.program.hash()).held,
            false => BTreeSet::new(),
        };
        let mut plan = retention::plan(&self.retention, &job.wishes, &nodes, &warm);
        let (held, cold): (Vec<u32>, Vec<u32>) = nodes.iter().partition(|node| warm.contains(node));
        let way = way(
            job.load,
            cold.len(),
            job.program.bytes(),
            self.broadcast.threshold,
        );
        let mut report = LoadReport {
            mode: match way {
                Way::Held => "none".to_string(),
                Way::Demand | Way::Broadcast => Load::Demand.word().to_string(),
            },
            wanted: job.load,
            cold: cold.len(),
            ..LoadReport::default()
        };
        // Nodes that hold the program would serve it, and let go of it a moment later for the
        // launch.
        let unwanted = way == Way::Broadcast && job.wishes.reuse == Reuse::Forbid && {
            let holders = fabric.warm_nodes(&job.program.hash()).held;
            nodes.iter().any(|node| holders.contains(node))
        };
        if unwanted {
            report.reason = HELD_BUT_COLD.to_string();
            if job.load == Load::Broadcast {
                let text = format!("the program is loaded by demand: {HELD_BUT_COLD}");
                job.sink.frame(Frame::Notice { text });
            }
        } else if way == Way::Broadcast {
            let cast = fabric.cast_program(&ProgramCast {
                job: job.on_nodes().0,
                name: job.info.program_name(),
                wanted: job.load,
                program: &job.program,
                cold: &cold,
                warm: &held,
            });
            match cast {
                Ok(begun) => {
                    report = begun;
                    if job.load == Load::Broadcast {
                        plan.start = StartMode::OnCommand;
                        job.awaits_program = true;
                    }
                }
                Err(why) => {
                    let text =
                        format!("the program is loaded by demand: it cannot be cast ({why})");
                    job.sink.frame(Frame::Notice { text });
                    report.reason = why;
                }
            }
        }
        job.info.load = Some(report);
        let time_limit_us = self.limit_on_nodes(&self.jobs[&id]);
        let job = self.jobs.get_mut(&id).expect("looked up above");
        job.at_once = plan.start == StartMode::AtOnce;
        job.info.at_once = job.at_once;
        job.launched_us = Some(now_us);
        let limit_us = self.limits.launch_limit_s * 1_000_000;
        self.deadlines.set(id, Some(now_us + limit_us));
        set_state(job, JobState::Starting, "");
        let record = job.record();
        self.records.push(record);
        let launched = fabric.launch(Launch {
            job: job.on_nodes(),
            submitted_us: job.info.submitted_unix_us,
            nodes: job.nodes(),
            program: job.program.hash(),
            program_bytes: job.program.bytes(),
            launch_blocks: job.launch_blocks.clone(),
            time_limit_us,
            cores: job.want.cores,
            core_bytes: job.wishes.core_bytes,
            mounts: job.mounts.clone(),
            io: job.info.io.clone(),
            plan,
        });
        if let Err(reason) = launched {
            // Nothing was said to any node, so nothing can have run.
            job.launched_us = None;
            self.not_launched(now_us, fabric, id, Cause::NodeFailed(reason));
        }
    }

    /// The cast of a job's program has got further; `over`: as far as it goes.
    pub fn loaded(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        job: JobId,
        mut report: LoadReport,
        over: bool,
    ) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        let before = job.info.load.take().unwrap_or_default();
        let moved = (before.done, before.bytes_sent, before.bytes_from_nodes)
            != (report.done, report.bytes_sent, report.bytes_from_nodes);
        let missing = report.cold.saturating_sub(report.done);
        if over && missing > 0 && job.cause.is_none() {
            report.reason = format!(
                "{missing} of {} did not get it by the cast",
                crate::output::count(report.cold, "node")
            );
            let text = format!("{}: they load it by demand", report.reason);
            job.sink.frame(Frame::Notice { text });
        }
        job.info.load = Some(report);
        if over {
            self.start_without_waiting(now_us, fabric, id);
        } else if moved && job.awaits_program && job.info.state == JobState::Starting {
            let limit_us = self.limits.launch_limit_s * 1_000_000;
            self.deadlines.set(id, Some(now_us + limit_us));
        }
    }

    /// Whatever is missing of a job's program is loaded by demand.
    pub(super) fn start_without_waiting(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if std::mem::take(&mut job.awaits_program)
            && job.info.state == JobState::Starting
            && job.loading == 0
        {
            self.start_all(now_us, fabric, id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_casts_what_is_not_small_to_several_cold_nodes() {
        let threshold = 1000;
        let auto = |cold, bytes| way(Load::Auto, cold, bytes, threshold);
        assert_eq!(auto(0, 5000), Way::Held);
        assert_eq!(auto(1, 5000), Way::Demand);
        assert_eq!(auto(2, 1000), Way::Demand);
        assert_eq!(auto(2, 1001), Way::Broadcast);
        assert_eq!(way(Load::Broadcast, 1, 10, threshold), Way::Broadcast);
        assert_eq!(way(Load::Broadcast, 0, 5000, threshold), Way::Held);
        assert_eq!(way(Load::Demand, 9, 5000, threshold), Way::Demand);
    }
}
