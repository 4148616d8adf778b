//! `hearth console` of nodes that are no QEMU machines: the log of their kernels, as the control
//! node has it.
//!
//! Key function: [`show`]. Neighbours: `cluster` shows serial consoles of QEMU nodes; `api::nodes`
//! has the log.
//!
//! Invariant: a line is printed once.

use std::time::Duration;

use super::cluster::has_no_reader;
use super::{Global, print_json, print_text};
use crate::api::types::NodeLogPart;

/// How often control is asked for more.
const LOOKS: Duration = Duration::from_millis(500);

/// Prints what there is of a node's log, and then, with `follow`, what comes.
pub fn show(global: &Global, node: u32, follow: bool) -> anyhow::Result<()> {
    let client = global.client()?;
    super::block_on(async move {
        let mut from = 0;
        loop {
            let path = format!("/v1/nodes/{node}/log?from={from}");
            let part: NodeLogPart = client.get(&path).await?;
            // What was kept for too short a time; before the first answer nothing was missed.
            if from > 0 && part.forgotten > 0 {
                let lines = crate::output::count(part.forgotten as usize, "line");
                crate::output::say_line(format!("{lines} missing"));
            }
            for line in &part.lines {
                match global.json {
                    true => print_json(line)?,
                    false => print_text(&format!("{line}\n"))?,
                }
            }
            let is_all = part.lines.is_empty();
            from = part.next;
            if is_all && !follow {
                return Ok(());
            }
            if is_all {
                if has_no_reader(&std::io::stdout()) {
                    return Ok(());
                }
                tokio::time::sleep(LOOKS).await;
            }
        }
    })
}
