//! A node's log, as it travels between control and its clients.
//!
//! Neighbours: `api::nodes` serves it; `hearth console` asks.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// What `GET /v1/nodes/{node}/log` takes.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct NodeLogQuery {
    /// Number of the first line wanted; 0: all that are kept.
    #[serde(default)]
    pub from: u64,
}

/// What `GET /v1/nodes/named` takes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct NamedQuery {
    /// A list of nodes, by their own names or the site's: `n0,tux[1-3]`.
    pub list: String,
}

/// Lines of the log of a node's kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeLogPart {
    /// The lines, at most 1,024.
    pub lines: Vec<String>,
    /// Number of the line after them.
    pub next: u64,
    /// Lines from the first wanted one on that are not kept any more.
    pub forgotten: u64,
}
