//! Casts and the files that nodes hold.
//!
//! Key types: [`CastRequest`], [`CastInfo`] (one cast), [`FileInfo`] (one file), [`LoadReport`]
//! (how a job's program reached its nodes). Neighbours: `api::casts`, `cli::casts`, `crate::casts`.
//!
//! Invariant: as for all of `api::types`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::config::{LinkRate, Load, Scheme};

/// What `POST /v1/casts` takes; the file must have been PUT before, as a program is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CastRequest {
    /// Name of the file on the nodes.
    pub name: String,
    /// BLAKE3 hash of its content, in hexadecimal.
    pub object: String,
    /// Hostlist; absent: all nodes in service.
    #[serde(default)]
    pub nodes: Option<String>,
    /// How it spreads; absent: as configured.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "auto")]
    pub scheme: Option<Scheme>,
    /// Most that control and each node send of it a second; absent: as configured.
    #[serde(default)]
    #[schema(value_type = Option<String>, example = "50mbit")]
    pub rate: Option<LinkRate>,
    /// Wait for nodes that are not in service, instead of refusing.
    #[serde(default)]
    pub wait: bool,
}

/// What `POST /v1/casts` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CastAccepted {
    /// The cast's number.
    pub id: u64,
    /// The request's, to take it back with: others may have asked for the same cast.
    pub request: u64,
}

/// Parameters of `POST /v1/casts/ID/cancel`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CastCancelRequest {
    /// Who or what wanted it.
    #[serde(default)]
    pub reason: Option<String>,
    /// The request that is not wanted any more, as it was answered: the cast goes on if others
    /// asked for it, too. Absent: it ends for all.
    #[serde(default)]
    pub request: Option<u64>,
}

/// What `POST /v1/casts/ID/cancel` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CastCancelled {
    /// It goes on, for others.
    pub goes_on: bool,
}

/// What is cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CastKind {
    /// A file, for the nodes' memory.
    File,
    /// The program of a job.
    Program,
    /// The connection table of a job.
    Table,
    /// A file that many nodes of a job read from an I/O service.
    Read,
}

impl CastKind {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            CastKind::File => "file",
            CastKind::Program => "program",
            CastKind::Table => "table",
            CastKind::Read => "read",
        }
    }
}

/// How a cast stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CastState {
    /// Waits for nodes that are not in service, or for other casts to the same nodes to end.
    Waiting,
    /// Is under way.
    Running,
    /// All nodes have it.
    Done,
    /// Some nodes do not.
    Partial,
    /// No node has it.
    Failed,
    /// Was cancelled.
    Cancelled,
}

impl CastState {
    /// Whether nothing more will happen.
    pub fn is_final(self) -> bool {
        !matches!(self, CastState::Waiting | CastState::Running)
    }

    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            CastState::Waiting => "waiting",
            CastState::Running => "running",
            CastState::Done => "done",
            CastState::Partial => "partial",
            CastState::Failed => "failed",
            CastState::Cancelled => "cancelled",
        }
    }
}

/// A node that does not get what is cast.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CastFailure {
    /// The node.
    pub node: String,
    /// Why, for people.
    pub reason: String,
}

/// One cast, as `GET /v1/casts/ID` answers it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CastInfo {
    /// Its number.
    pub id: u64,
    /// What is cast.
    pub kind: CastKind,
    /// Name of the file or program.
    pub name: String,
    /// BLAKE3 hash of the content, in hexadecimal.
    pub object: String,
    /// Its size.
    pub bytes: u64,
    /// How it stands.
    pub state: CastState,
    /// Why it was cancelled.
    pub reason: String,
    /// The job it is for, if it is for one.
    pub job: Option<u64>,
    /// How it spreads.
    #[schema(value_type = String, example = "grid")]
    pub scheme: Scheme,
    /// Most bytes that control and each node send of it a second.
    pub rate: u64,
    /// The nodes that are to have it, as a hostlist.
    pub nodes: String,
    /// How many these are.
    pub nodes_total: usize,
    /// Of these, the ones that have it.
    pub done: usize,
    /// Of these, the ones that had it before.
    pub held: usize,
    /// Nodes that have it, as a hostlist.
    pub nodes_done: String,
    /// Nodes that are waited for, not being in service, as a hostlist.
    pub nodes_absent: String,
    /// Why these are out of service, and what brings them back.
    #[serde(default)]
    pub absent_why: String,
    /// Nodes that will not have it.
    pub failed: Vec<CastFailure>,
    /// Microseconds since 1970 at which it began.
    pub began_unix_us: u64,
    /// The control node was started again meanwhile: what it sent before is in none of these
    /// counts.
    #[serde(default)]
    pub resumed: bool,
    /// Milliseconds from its begin until now, or until the last node had it.
    pub ms: f64,
    /// Milliseconds of these in which all nodes that lacked it were out of service.
    #[serde(default)]
    pub absent_ms: f64,
    /// Milliseconds that one link needs for the data once.
    pub limit_ms: f64,
    /// The time without that absence as a multiple of it, once it is done; none where nothing had
    /// to be brought.
    pub ratio: Option<f64>,
    /// Blocks of the content.
    pub blocks: u32,
    /// Blocks that control sent, repeats included.
    pub blocks_sent: u64,
    /// Bytes of content that control sent, repeats included.
    pub bytes_sent: u64,
    /// Bytes that the nodes that are done had from one another.
    pub bytes_from_nodes: u64,
    /// Blocks that arrived damaged.
    pub corrupt: u64,
}

/// A file that nodes hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileInfo {
    /// Its name.
    pub name: String,
    /// BLAKE3 hash of the content, in hexadecimal.
    pub object: String,
    /// Its size.
    pub bytes: u64,
    /// Nodes in service that hold it, as a hostlist.
    pub nodes: String,
    /// How many these are.
    pub nodes_total: usize,
    /// Nodes that are silent and held it when they were last heard, as a hostlist.
    pub nodes_away: String,
    /// Microseconds since 1970 at which it was cast first.
    pub cast_unix_us: u64,
}

/// What `GET /v1/casts` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CastsInfo {
    /// Files that nodes hold, by name.
    pub files: Vec<FileInfo>,
    /// Casts that are under way and the last ones that ended, by number.
    pub casts: Vec<CastInfo>,
}

/// What `POST /v1/casts/drop` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileDropRequest {
    /// A file's name, id, or beginning of its id.
    pub file: String,
    /// Hostlist; absent: all nodes that hold it.
    #[serde(default)]
    pub nodes: Option<String>,
}

/// What casts have moved through a node since its boot, in blocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeCasts {
    /// Received, checked and kept.
    pub blocks_in: u64,
    /// Passed on to other nodes.
    pub blocks_out: u64,
    /// Received and not what their hash says.
    pub corrupt: u64,
    /// Datagrams received that were there already.
    pub duplicates: u64,
}

/// A file that a job finds under `/with`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WithFile {
    /// Its name there.
    pub name: String,
    /// BLAKE3 hash of its content, in hexadecimal; absent: the file that was cast under the name.
    #[serde(default)]
    pub object: Option<String>,
}

/// How the program of a job reached the nodes that did not hold it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default)]
pub struct LoadReport {
    /// `broadcast`, `demand`, or `none` where every node held it.
    pub mode: String,
    /// What was asked for.
    pub wanted: Load,
    /// Why it is not what was asked for; empty when it is.
    pub reason: String,
    /// The cast, if there was one.
    pub cast: Option<u64>,
    /// Nodes that did not hold the program.
    pub cold: usize,
    /// Nodes that held it and served it.
    pub holders: usize,
    /// Nodes that got all of it from the cast.
    pub done: usize,
    /// Blocks of the program.
    pub blocks: u32,
    /// Blocks that control sent, repeats included.
    pub blocks_sent: u64,
    /// Bytes that control sent, repeats included.
    pub bytes_sent: u64,
    /// Bytes that nodes had from one another.
    pub bytes_from_nodes: u64,
    /// Milliseconds until the last node had it, or until now.
    pub ms: f64,
    /// Milliseconds that one link needs for it once.
    pub limit_ms: f64,
}
