//! What the queue looks like to clients, and what changes a job's place in it.
//!
//! Key types: [`QueuedJob`] (a row of `hearth queue`), [`DrainRequest`]. Neighbours: `api::queue`
//! serves them, `cli::queue` and `cli::tree` print them; `queue` has what the job runner knows.
//!
//! Invariant: as for all of `api::types`. A row has what a table shows and nothing that grows with
//! the job's ranks, since ten thousand of them are one answer.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{JobInfo, JobState, Why};

/// A job that is not over, as `GET /v1/queue` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueuedJob {
    /// Its number.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// What it does.
    pub state: JobState,
    /// Why it has no nodes, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<Why>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Higher goes first.
    pub priority: i32,
    /// Number of nodes, one rank on each.
    pub nodes_total: u32,
    /// Its nodes as a hostlist, in rank order; empty before allocation.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nodes: String,
    /// Microseconds since 1970 at which it was submitted.
    pub submitted_unix_us: u64,
    /// ... at which it began to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_unix_us: Option<u64>,
    /// ... at which it starts at the latest, where the queue has reserved that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_start_unix_us: Option<u64>,
    /// Time limit in seconds, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit_s: Option<u64>,
}

impl From<&JobInfo> for QueuedJob {
    fn from(job: &JobInfo) -> Self {
        QueuedJob {
            id: job.id,
            name: job.name.clone(),
            user: job.user.clone(),
            state: job.state,
            why: job.why,
            reason: job.reason.clone(),
            priority: job.priority,
            nodes_total: job.node_count(),
            nodes: job.nodes.clone(),
            submitted_unix_us: job.submitted_unix_us,
            started_unix_us: job.started_unix_us,
            expected_start_unix_us: job.expected_start_unix_us,
            time_limit_s: job.time_limit_s,
        }
    }
}

/// What `POST /v1/jobs/{id}/priority` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PriorityRequest {
    /// Higher goes first.
    pub priority: i32,
}

/// What `POST /v1/nodes/drain` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DrainRequest {
    /// Hostlist.
    pub nodes: String,
    /// Why, for people.
    pub reason: String,
    /// Who wants it, who has to be whoever asks; absent: just that.
    #[serde(default)]
    pub by: String,
}

/// What `POST /v1/nodes/resume` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResumeRequest {
    /// Hostlist.
    pub nodes: String,
}
