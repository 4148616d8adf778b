//! Jobs that go on over a restart of the control node: their nodes kept them running, and are asked
//! for them; their clients come back for the output.
//!
//! ```text
//! restored: every rank without an end is awaited
//!   -> its node has it (claimed), or never heard of it and starts it: it goes on
//!   -> its node does not have it, has booted, or does not come back in time: as after a lost node
//! ```
//!
//! Neighbours: `again` says which jobs go on, the fabric asks the nodes, `lifecycle` and `calls` go
//! on with what they say.
//!
//! Invariants: a node counts as having the job from the first moment of the new run, so nobody else
//! gets it; nothing of a rank's calls is answered before its client is back.

use hearth_alloc::queue;
use netstack::ids::{BootEpoch, JobId, NodeId};
use netstack::job::{AdoptedRank, StartMode};

use super::fabric::{Fabric, Launch};
use super::record::{Cause, Job, Submission};
use super::{Runner, launch_block, retention};
use crate::api::types::{Frame, JobInfo, JobState, RankReport};
use crate::clock;
use crate::events::Severity;

/// What is known of the ranks of a job that an earlier run of control launched.
#[derive(Debug, Clone, Default)]
pub struct Ranks {
    /// The node of each rank, with the boot that was up when that run ended.
    pub nodes: Vec<(u32, Option<u64>)>,
    /// Reports of the ranks that had ended.
    pub ends: Vec<RankReport>,
}

impl Ranks {
    /// Nodes of the ranks that have not ended; one with several may come more than once.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> + '_ {
        let has_ended = |rank: usize| {
            let its = |end: &&RankReport| end.rank as usize == rank && end.end.is_some();
            self.ends.iter().any(|end| its(&end))
        };
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(move |(rank, _)| !has_ended(*rank))
            .map(|(_, (node, _))| *node)
    }

    /// Whether a job can go on with them.
    pub(super) fn are_those_of(&self, info: &JobInfo) -> bool {
        let wanted = info.ranks_total as usize;
        self.nodes.len() == wanted && self.ends.len() < wanted
    }
}

impl Runner {
    /// Puts a job that runs on its nodes into its place.
    pub(super) fn continue_one(
        &mut self,
        now_us: u64,
        mut info: JobInfo,
        submission: Submission,
        ranks: &Ranks,
    ) {
        let id = info.id;
        let is_first = info.continued == 0;
        info.continued += 1;
        let (state, reason) = (info.state, std::mem::take(&mut info.reason));
        self.take_in(info, submission);
        let job = self.jobs.get_mut(&id).expect("taken in above");
        let nodes: Vec<u32> = ranks.nodes.iter().map(|(node, _)| *node).collect();
        job.place(&nodes);
        (job.info.state, job.info.reason, job.info.why) = (state, reason, None);
        job.adopted = true;
        job.at_once = job.info.at_once;
        // How many cores the nodes have is not known yet.
        job.make_launch_blocks(Some(job.want.cores).filter(|cores| *cores > 0));
        for report in &ranks.ends {
            let (Some(end), rank) = (report.end, report.rank as usize) else {
                continue;
            };
            if rank < nodes.len() {
                job.set_ready(rank);
                job.set_end(rank, end);
                job.info.ranks[rank] = report.clone();
            }
        }
        let mut open = Vec::new();
        for rank in job.ranks.iter_mut().filter(|rank| rank.end.is_none()) {
            rank.awaited = true;
            open.push(rank.node.0);
        }
        open.dedup();
        let started_unix_us = job.info.started_unix_us;
        if let (JobState::Running, Some(started)) = (state, started_unix_us) {
            job.started_us = Some(now_us);
            job.ran_before_us = clock::unix_us().saturating_sub(started);
        }
        self.nodes.adopt(id, &open);
        let queued: queue::Job = self.queued(id);
        let started_ms = started_unix_us.unwrap_or_else(clock::unix_us) / 1_000;
        self.queue.adopt(&queued, started_ms);
        let mut ranks = ranks.clone();
        // The boots are those that the run which launched it has seen last, and of no later run;
        // and a rank that is launched now has another key to talk to the others with than they
        // have.
        if !is_first || ranks.nodes.len() > 1 {
            ranks.nodes.iter_mut().for_each(|(_, boot)| *boot = None);
        }
        self.adopted.push((id, ranks));
        // Before anything is asked: that this has been tried counts in the next run.
        let job = self.jobs.get_mut(&id).expect("taken in above");
        let record = job.record();
        self.records.push(record);
    }

    /// Asks the nodes of jobs that go on for them.
    pub fn adopt(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        // From now on, however long it took to read what the earlier run has left.
        let limit_us = now_us + self.limits.return_limit_s * 1_000_000;
        self.awaiting_until_us = Some(limit_us);
        for (id, ranks) in std::mem::take(&mut self.adopted) {
            self.deadlines.set(id, Some(limit_us));
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            // Where each rank begins by itself, one that has not begun may be told to: once, so the
            // store must know that this was tried.
            let may = job.at_once && self.held_up.is_none();
            let launch_on = |boot: Option<u64>| boot.map(BootEpoch).filter(|_| may);
            let standing = job.ranks.iter().zip(&ranks.nodes);
            let standing: Vec<AdoptedRank> = standing
                .map(|(rank, (_, boot))| match rank.end {
                    Some(_) => AdoptedRank::Ended,
                    None => AdoptedRank::Open {
                        launch_on: launch_on(*boot),
                    },
                })
                .collect();
            let launch = self.launch_of(job);
            let begun = job.info.state == JobState::Running;
            if let Err(reason) = fabric.adopt(launch, begun, &standing) {
                self.not_launched(now_us, fabric, id, Cause::NodeFailed(reason));
            }
        }
    }

    /// What nodes are told that have not heard of a job that is under way.
    fn launch_of(&self, job: &Job) -> Launch {
        let nodes = job.node_numbers();
        let mut plan = retention::plan(&self.retention, &job.wishes, &nodes, &Default::default());
        plan.start = match job.at_once {
            true => StartMode::AtOnce,
            false => StartMode::OnCommand,
        };
        Launch {
            job: job.on_nodes(),
            submitted_us: job.info.submitted_unix_us,
            nodes: job.nodes(),
            program: job.program.hash(),
            program_bytes: job.program.bytes(),
            launch_blocks: job.launch_blocks.clone(),
            time_limit_us: self.limit_on_nodes(job),
            cores: job.want.cores,
            core_bytes: job.wishes.core_bytes,
            mounts: job.mounts.clone(),
            io: job.info.io.clone(),
            plan,
        }
    }

    /// The node of an adopted rank has it; so much of its standard input has been read.
    pub fn claimed(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        job: JobId,
        node: NodeId,
        input_bytes: u64,
    ) {
        let Some(id) = self.present(job) else {
            return;
        };
        let job = self.jobs.get_mut(&id).expect("it is present");
        let ranks = job.ranks_on(node);
        if ranks.contains(&0) {
            job.source.resume(input_bytes);
            job.input_from = Some(input_bytes);
            job.input_known = true;
            tell_input(job);
        }
        for rank in ranks {
            self.rank_returned(now_us, id, rank);
        }
        self.settle(now_us, fabric);
    }

    /// A rank that was awaited goes on, or has begun.
    pub(super) fn rank_returned(&mut self, now_us: u64, id: u64, rank: usize) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        // One that begins only now has read nothing.
        let begins = rank == 0 && job.adopted && job.ranks[rank].started_us.is_some();
        if begins && !std::mem::replace(&mut job.input_known, true) {
            job.input_from = Some(0);
            tell_input(job);
        }
        let was_awaited = std::mem::take(&mut job.ranks[rank].awaited);
        if !was_awaited || job.is_awaited() {
            return;
        }
        let text = format!(
            "job {id} ({}) goes on with a restarted control node",
            job.info.name
        );
        // With it the ranks' connection table is cast once more, where the first cast was cut off.
        let record = job.record();
        self.records.push(record);
        self.event(Severity::Info, "job-continued", id, text);
        self.limit_again(now_us, id);
    }

    /// Nodes and client of a job are back: its usual limits hold.
    fn limit_again(&mut self, now_us: u64, id: u64) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let is_under_way = matches!(job.info.state, JobState::Starting | JobState::Running);
        if !is_under_way || !job.attached || job.is_awaited() {
            return;
        }
        if job.loading > 0 {
            let limit_us = self.limits.launch_limit_s * 1_000_000;
            self.deadlines.set(id, Some(now_us + limit_us));
        } else {
            self.deadlines.set(id, None);
            self.limit_time(id);
        }
    }

    /// The client of a job that goes on reads its output again.
    pub(super) fn client_returned(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        tell_input(job);
        let ranks = job.ranks.len();
        self.limit_again(now_us, id);
        for rank in 0..ranks {
            self.serve_rank(now_us, fabric, id, rank);
        }
        self.settle(now_us, fabric);
    }

    /// Nodes of a job have not come back in time.
    pub(super) fn lose_awaited(&mut self, now_us: u64, fabric: &mut dyn Fabric, id: u64) {
        let limit = self.limits.return_limit_s;
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        let on_nodes = job.on_nodes();
        let away = job.ranks.iter();
        let mut away: Vec<NodeId> = away
            .filter(|rank| rank.awaited && rank.end.is_none())
            .map(|rank| rank.node)
            .collect();
        away.dedup();
        for node in away {
            if !fabric.abandon(node, on_nodes) {
                // It is there and has not answered yet: it has as long as a launch has.
                let ranks = self.jobs.get(&id).map(|job| job.ranks_on(node));
                for rank in ranks.unwrap_or_default() {
                    self.rank_returned(now_us, id, rank);
                }
                continue;
            }
            self.free_node(node.0, on_nodes);
            let reason = format!(
                "{node} did not come back within {limit} s of the control node's restart (jobs.return_limit_s)"
            );
            self.lose_rank(now_us, fabric, on_nodes, node, Cause::NodeLost(reason));
        }
    }

    /// Whether a node is asked for a job that it had before control was started again.
    pub(super) fn is_awaited(&self, node: u32) -> bool {
        let job = self.nodes.job_of(node).and_then(|id| self.jobs.get(&id));
        job.is_some_and(|job| {
            let mut ranks = job.ranks[job.ranks_on(NodeId(node))].iter();
            ranks.any(|rank| rank.awaited && rank.end.is_none())
        })
    }
}

/// Tells a client that is back from where on its standard input is wanted.
pub(super) fn tell_input(job: &mut Job) {
    if job.attached
        && !job.stdin_taken
        && let Some(from) = job.input_from.take()
    {
        job.sink.frame(Frame::Input { from });
    }
}

impl Job {
    /// Makes what its ranks are given at their start: a block for each node, which names the first
    /// of its ranks.
    pub(super) fn make_launch_blocks(&mut self, threads: Option<u16>) {
        let size = self.want.ranks;
        let mut first = 0;
        let blocks = self.nodes().into_iter().map(|(node, ranks)| {
            let place = launch_block::Place {
                job: self.info.id,
                rank: first,
                size,
                node: node.0,
                threads,
            };
            first += u32::from(ranks);
            let block = launch_block::emit(
                place,
                &self.args,
                &self.env,
                &self.files,
                self.mounts.as_ref(),
            );
            block.expect("checked at submission").into()
        });
        self.launch_blocks = blocks.collect();
    }
}
