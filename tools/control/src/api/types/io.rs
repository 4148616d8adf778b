//! I/O services as clients see them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::io_service::joined::Counted;

/// Nodes of a job beside one another, in the order of ranks, that call one I/O service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IoPart {
    /// The address of the service.
    pub service: String,
    /// How many nodes.
    pub nodes: u32,
}

/// How an I/O service stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IoState {
    /// It serves.
    Up,
    /// It serves more than 64 nodes, which makes them slower: more services would help.
    Crowded,
    /// It is not heard. Calls of jobs that run wait for it; jobs that start call others.
    Lost,
}

/// An I/O service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IoServiceInfo {
    /// Where nodes reach it.
    pub address: String,
    /// Its machine.
    pub name: String,
    /// How it stands.
    pub state: IoState,
    /// The nodes whose jobs call it, if they start now, as a hostlist.
    pub nodes: String,
    /// How many these are.
    pub node_count: usize,
    /// Jobs with files that have nodes which call it.
    pub jobs: usize,
    /// What it has counted.
    #[serde(flatten)]
    pub counted: Counted,
    /// Microseconds since 1970 at which it joined; absent for the control node's own.
    pub since_unix_us: Option<u64>,
}
