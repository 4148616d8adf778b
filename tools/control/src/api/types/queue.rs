//! What a job's place in the queue, its nodes and a node's being drained look like to clients.
//!
//! Neighbours: `jobs` makes them, `cli` prints them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A job that must have ended before another starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AfterJob {
    /// Its number.
    pub job: u64,
    /// How it must have ended.
    pub condition: AfterCondition,
}

/// How a job must have ended for another to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AfterCondition {
    /// In any way.
    Any,
    /// Completed: every rank exited with status 0. Else the job that waits is cancelled.
    Ok,
}

/// Which job of an array one is: jobs that were submitted together and differ by their task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ArrayTask {
    /// The number of the array's first job; 0 in a request: it is the first.
    #[serde(default)]
    pub first: u64,
    /// Its task: what tells it from the others, in `HEARTH_ARRAY_TASK_ID`.
    pub task: u32,
    /// Most jobs of the array that run at a time; 0: no bound.
    #[serde(default)]
    pub at_once: u32,
}

/// Why a job has no nodes yet, in the words of Slurm's `squeue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum Why {
    /// No scheduling pass has looked at it.
    None,
    /// There are not enough free nodes.
    Resources,
    /// Jobs before it go first.
    Priority,
    /// Jobs that it waits for have not ended.
    Dependency,
    /// Somebody holds it.
    JobHeldUser,
    /// Its user has as many jobs running as allowed.
    #[serde(rename = "QOSMaxJobsPerUserLimit")]
    UserJobs,
    /// Its user has as many nodes as allowed.
    #[serde(rename = "QOSMaxNodePerUserLimit")]
    UserNodes,
    /// As many jobs of its array run as may at a time.
    #[serde(rename = "JobArrayTaskLimit")]
    ArrayTasks,
    /// Nodes that it names are not in service.
    ReqNodeNotAvail,
    /// It wants more nodes than are in service.
    PartitionNodeLimit,
    /// Its client has not begun to read its output.
    BeginTime,
}

impl Why {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Why::None => "None",
            Why::Resources => "Resources",
            Why::Priority => "Priority",
            Why::Dependency => "Dependency",
            Why::JobHeldUser => "JobHeldUser",
            Why::UserJobs => "QOSMaxJobsPerUserLimit",
            Why::UserNodes => "QOSMaxNodePerUserLimit",
            Why::ArrayTasks => "JobArrayTaskLimit",
            Why::ReqNodeNotAvail => "ReqNodeNotAvail",
            Why::PartitionNodeLimit => "PartitionNodeLimit",
            Why::BeginTime => "BeginTime",
        }
    }
}

/// How a job got its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Placement {
    /// Sum of the hops between all pairs of its nodes.
    pub hops: i64,
    /// How it is known that no other free nodes have fewer, where it is: in the words of
    /// `hearth plan`.
    pub certificate: String,
    /// All nodes that were free when they were chosen, as a hostlist; empty where the cluster has
    /// more than 1,024 nodes.
    pub free: String,
    /// When, in microseconds since 1970; rising from decision to decision, no two the same.
    pub decision: u64,
}

/// Output of a batch job that the control node keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeptOutput {
    /// Bytes kept.
    pub bytes: u64,
    /// Bytes beyond the bound of a job, or that could not be written, and are lost.
    pub dropped_bytes: u64,
}

/// Why a node gets no jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Drained {
    /// Why, for people.
    pub reason: String,
    /// Since when, in microseconds since 1970.
    pub since_unix_us: u64,
    /// The user who drained it; `hearth` where the control node did, after repeated failures.
    pub by: String,
}
