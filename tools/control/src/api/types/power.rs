//! Switching nodes on and off, as it travels between control and its clients.
//!
//! Neighbours: `api::nodes` serves it; `hearth node on`, `off`, `reset` and `status` ask.

use hearth_power::{Action, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Most nodes of one request: it is answered once all of them have, which takes minutes where none
/// does.
pub const POWERED_MAX: usize = 256;

/// What `POST /v1/nodes/power` takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PowerRequest {
    /// Hostlist, of at most 256 nodes.
    pub nodes: String,
    /// `on`, `off`, `reset` or `status`.
    #[schema(value_type = String)]
    pub action: Action,
    /// Who wants it, who has to be whoever asks; absent: just that.
    #[serde(default)]
    pub by: String,
}

/// What became of one node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Powered {
    /// Its number.
    pub node: u32,
    /// Its name.
    pub name: String,
    /// `on` or `off`, as its machine says or as it was told.
    #[schema(value_type = Option<String>)]
    pub state: Option<State>,
    /// Why it is not known, or why nothing was done.
    pub error: Option<String>,
    /// It was in service before, in a boot that was not switched off.
    #[serde(default)]
    pub was_up: bool,
}

impl Powered {
    /// A node, and what its machine answered.
    pub fn new(node: u32, result: Result<State, hearth_power::Error>, was_up: bool) -> Self {
        let name = crate::hostlist::name(node);
        let (state, error) = match result {
            Ok(state) => (Some(state), None),
            Err(error) => (None, Some(error.to_string())),
        };
        Powered {
            node,
            name,
            state,
            error,
            was_up,
        }
    }
}
