//! Programs that nodes hold for their next launch, and letting go of them.
//!
//! Key types: [`WarmProgram`] (on one node), [`ProgramInfo`] (on all), [`DropRequest`],
//! [`DropAnswer`]. Neighbours: `api::warm`, `cli::programs`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A program that a node holds for its next launch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WarmProgram {
    /// Program id, in hexadecimal.
    pub program: String,
    /// Its name at its last launch, if that is known.
    pub name: Option<String>,
    /// Pages of 4 KiB held, the pristine ones included.
    pub pages: u32,
    /// Of these, pristine contents of data pages.
    pub pristine: u32,
    /// Microseconds since 1970 since when.
    pub since_unix_us: u64,
}

/// One program, as `GET /v1/programs` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProgramInfo {
    /// Program id: BLAKE3 hash of the file, in hexadecimal.
    pub program: String,
    /// Its name at its last launch.
    pub name: String,
    /// All names it was launched under, the last one first.
    pub names: Vec<String>,
    /// Size of its file, in bytes.
    pub bytes: u64,
    /// Nodes in service that hold it, as a hostlist.
    pub nodes: String,
    /// How many these are.
    pub nodes_total: usize,
    /// Pages of 4 KiB that they hold, together.
    pub pages: u64,
    /// Launches on nodes, one for each rank that ran.
    pub launches: u64,
    /// Of these, the ones on a node that held it.
    pub hits: u64,
    /// Microseconds since 1970 of its last launch; nothing before the first.
    pub last_used_unix_us: Option<u64>,
}

/// What `POST /v1/drop` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DropRequest {
    /// A program's name, id, or beginning of its id; absent: all programs.
    #[serde(default)]
    pub program: Option<String>,
    /// Hostlist; absent: all nodes that hold it.
    #[serde(default)]
    pub nodes: Option<String>,
}

/// What became of a drop on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum DropOutcome {
    /// It holds it no longer.
    Dropped,
    /// It did not hold it.
    NotHeld,
    /// It runs it just now and will let go of it at the end.
    Running,
    /// It is not in service and holds nothing, now or when it is back.
    NotUp,
    /// It is silent, and held it when it was last heard: it is told when it is heard again.
    Away,
    /// It did not answer in time; it goes on being asked.
    NoAnswer,
    /// It was not asked, because too many drops wait for it.
    TooMany,
}

impl DropOutcome {
    /// Whether the node will not hold the program any more, now or after its job.
    pub fn is_certain(self) -> bool {
        !matches!(
            self,
            DropOutcome::Away | DropOutcome::NoAnswer | DropOutcome::TooMany
        )
    }

    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            DropOutcome::Dropped => "dropped",
            DropOutcome::NotHeld => "not-held",
            DropOutcome::Running => "running",
            DropOutcome::NotUp => "not-up",
            DropOutcome::Away => "away",
            DropOutcome::NoAnswer => "no-answer",
            DropOutcome::TooMany => "too-many",
        }
    }
}

/// One node's line of [`DropAnswer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DroppedOn {
    /// The node.
    pub node: String,
    /// What became of it.
    pub outcome: DropOutcome,
    /// Pages of 4 KiB that were given up.
    pub pages: u32,
}

/// What `POST /v1/drop` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DropAnswer {
    /// Program id, in hexadecimal; nothing when all were meant.
    pub program: Option<String>,
    /// Its name, if that is known.
    pub name: Option<String>,
    /// The nodes asked, by number.
    pub nodes: Vec<DroppedOn>,
}
