//! Machines that wait to be nodes, as they travel between control and its clients.
//!
//! Neighbours: `api::nodes` serves them; `hearth nodes --waiting` and `hearth node approve` ask.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A machine that wants to join and waits for approval, as `GET /v1/nodes/waiting` lists it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingMachine {
    /// MAC address.
    pub mac: String,
    /// The number that it claims, where it has a laboratory key.
    pub node: Option<u32>,
    /// When it asked first, in microseconds since 1970.
    pub since_unix_us: u64,
    /// When it asked last.
    pub asked_unix_us: u64,
}

/// What `POST /v1/nodes/approve` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApproveRequest {
    /// MAC address.
    pub mac: String,
}

/// What it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Approved {
    /// Number of the node that the machine is.
    pub node: u32,
    /// Its name.
    pub name: String,
}
