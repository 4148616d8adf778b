//! Nodes that are named on the command line: `n0,n[3-5]`, or by the host names of the site.
//!
//! Key function: [`nodes`]; [`List`] is the argument of commands that take nodes. Neighbours:
//! `hostlist` reads this system's own names; host names are known to the control node alone
//! (`crate::hosts`), which is asked for them.
//!
//! Invariant: a list without host names needs no control node.

use super::{Global, block_on, path};
use crate::client::RequestError;
use crate::hostlist::{self, ParseError};

/// Nodes as an argument, in one word or several.
#[derive(Debug, clap::Args)]
pub struct List {
    /// The nodes: n0,n[3-5].
    #[arg(value_name = "LIST", required = true)]
    nodes: Vec<String>,
}

impl List {
    /// All of them in one list.
    pub fn whole(&self) -> String {
        self.nodes.join(",")
    }
}

/// The nodes of a list, in the order written.
///
/// # Errors
/// What is wrong with the list, as far as is known: where no control node answers, what is wrong
/// with it as a list of own names.
pub fn nodes(global: &Global, list: &str) -> anyhow::Result<Vec<u32>> {
    let own = match hostlist::parse(list) {
        Err(own @ (ParseError::NotANode(_) | ParseError::Brackets(_))) => own,
        parsed => return Ok(parsed?),
    };
    let Ok(client) = global.client() else {
        return Err(own.into());
    };
    let path = path("/v1/nodes/named", &[("list", list.to_string())]);
    block_on(async move {
        match client.get(&path).await {
            Ok(nodes) => Ok(nodes),
            Err(RequestError::Refused(body)) => Err(RequestError::Refused(body).into()),
            Err(_) => Err(own.into()),
        }
    })
}

/// The same of a list that may be left out.
///
/// # Errors
/// As [`nodes`].
pub fn nodes_if(global: &Global, list: Option<&str>) -> anyhow::Result<Option<Vec<u32>>> {
    list.map(|list| nodes(global, list)).transpose()
}
