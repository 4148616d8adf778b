//! `hearth node ...`, `drain`, `resume`: what is done with single nodes.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::Global;
use crate::api::types::{
    ApproveRequest, Approved, Done, DrainRequest, NodeInfo, NodeState, ResumeRequest,
};
use crate::client::Client;
use crate::hostlist;
use crate::nodes::NODES_MAX;

/// How long nodes may take to leave: longer than control goes on asking.
const LEAVE_PATIENCE: Duration = Duration::from_secs(20);
/// How often control is asked whether they have.
const LEAVE_PERIOD: Duration = Duration::from_millis(100);

/// Options of `hearth node`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Switch QEMU nodes off and on again and wait until they have joined.
    Reset {
        /// The nodes: n0,n[3-5].
        #[arg(value_name = "LIST")]
        nodes: String,
        /// Do not wait until they have joined.
        #[arg(long)]
        no_wait: bool,
    },
    /// Ask nodes to leave the cluster and halt; a node that has a job stays. Resetting the machine
    /// brings it back.
    Leave {
        /// The nodes: n0,n[3-5].
        #[arg(value_name = "LIST")]
        nodes: String,
    },
    /// Approve machines that wait to be nodes: `hearth nodes --waiting` lists them.
    Approve {
        /// Their MAC addresses.
        #[arg(value_name = "MAC", required = true)]
        machines: Vec<hearth_boot::Mac>,
    },
    /// Make a laboratory key: kernel options for a node that boots without the boot service.
    Key {
        /// Number of the node, from 0 on.
        #[arg(value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(..NODES_MAX as i64))]
        node: u32,
        /// Its MAC address.
        #[arg(value_name = "MAC")]
        mac: hearth_boot::Mac,
    },
}

/// Options of `hearth drain`.
#[derive(Debug, Args)]
pub struct DrainOptions {
    /// The nodes: n0,n[3-5].
    #[arg(value_name = "LIST")]
    nodes: String,
    /// Why, for whoever finds them drained.
    #[arg(short = 'r', long, value_name = "TEXT")]
    reason: String,
}

/// Options of `hearth resume`.
#[derive(Debug, Args)]
pub struct ResumeOptions {
    /// The nodes: n0,n[3-5].
    #[arg(value_name = "LIST")]
    nodes: String,
}

/// Has nodes get no more jobs.
pub fn drain(global: &Global, options: &DrainOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let request = DrainRequest {
        nodes: options.nodes.clone(),
        reason: options.reason.clone(),
        by: crate::user::name(),
    };
    change(global, client, "/v1/nodes/drain", &options.nodes, &request)
}

/// Changes something about nodes; says with `--json` of which.
fn change(
    global: &Global,
    client: Client,
    path: &str,
    nodes: &str,
    request: &impl serde::Serialize,
) -> anyhow::Result<()> {
    super::block_on(async move {
        let _: Done = client.post(path, request).await?;
        Ok(())
    })?;
    if global.json {
        super::print_json(&serde_json::json!({ "nodes": nodes }))?;
    }
    Ok(())
}

/// Has drained nodes get jobs again.
pub fn resume(global: &Global, options: &ResumeOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let request = ResumeRequest {
        nodes: options.nodes.clone(),
    };
    change(global, client, "/v1/nodes/resume", &options.nodes, &request)
}

/// Does it.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    match options.action {
        Action::Reset { nodes, no_wait } => super::cluster::reset(global, &nodes, !no_wait),
        Action::Leave { nodes } => leave(global, &nodes),
        Action::Approve { machines } => approve(global, &machines),
        Action::Key { node, mac } => key(global, node, mac),
    }
}

/// Approves of machines one after the other, as far as that goes.
fn approve(global: &Global, machines: &[hearth_boot::Mac]) -> anyhow::Result<()> {
    let client = global.client()?;
    let mut approved: Vec<Approved> = Vec::new();
    let failed = super::block_on(async {
        for mac in machines {
            let request = ApproveRequest {
                mac: mac.to_string(),
            };
            match client.post("/v1/nodes/approve", &request).await {
                Ok(answer) => approved.push(answer),
                Err(error) => return Ok(Some(error)),
            }
        }
        Ok(None)
    })?;
    if global.json {
        super::print_json(&approved)?;
    } else {
        for (mac, approved) in machines.iter().zip(&approved) {
            super::print_text(&format!("{mac} is {} when it joins\n", approved.name))?;
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

/// Asks the nodes and waits until each has left or said that it stays.
fn leave(global: &Global, list: &str) -> anyhow::Result<()> {
    let wanted = hostlist::parse(list)?;
    let client = global.client()?;
    let (left, failed) = super::block_on(async move {
        let (mut asked, mut failed) = (Vec::new(), Vec::new());
        for node in wanted {
            let path = format!("/v1/nodes/{node}/leave");
            match client.post::<serde_json::Value>(&path, &()).await {
                Ok(_) => asked.push(node),
                Err(error) => failed.push(error.to_string()),
            }
        }
        let mut left = Vec::new();
        let deadline = std::time::Instant::now() + LEAVE_PATIENCE;
        while !asked.is_empty() && std::time::Instant::now() < deadline {
            tokio::time::sleep(LEAVE_PERIOD).await;
            let nodes: Vec<NodeInfo> = client.get("/v1/nodes").await?;
            asked.retain(|number| {
                let state = nodes.iter().find(|node| node.node == *number);
                let gone = state.is_some_and(|node| node.state == NodeState::Left);
                if gone {
                    left.push(hostlist::name(*number));
                }
                !gone
            });
        }
        failed.extend(asked.into_iter().map(|node| {
            let name = hostlist::name(node);
            format!("{name} has not left; `hearth events --node {name}` says why")
        }));
        Ok((left, failed))
    })?;
    if global.json {
        super::print_json(&serde_json::json!({ "left": left, "failed": failed }))?;
    } else if !left.is_empty() {
        super::print_text(&format!("left: {}\n", left.join(",")))?;
    }
    match failed.is_empty() {
        true => Ok(()),
        false => anyhow::bail!("{}", failed.join("\n")),
    }
}

/// Makes a laboratory key, in hexadecimal. It needs the cluster secret, so only who may read the
/// state directory can make one. The control node takes it only with `serve --lab-keys`.
pub(super) fn lab_key(global: &Global, node: u32, mac: hearth_boot::Mac) -> anyhow::Result<String> {
    let state = match &global.state_dir {
        Some(dir) => crate::paths::StateDir::new(dir),
        None => global.find()?,
    };
    let secret = crate::secrets::cluster_secret(&state.secret())?;
    let key = netstack::personality::node_key(
        &secret.0,
        crate::serve::KEY_ID,
        mac.0,
        netstack::ids::BootEpoch(0),
        netstack::ids::NodeId(node),
    );
    Ok(crate::secrets::encode_hex(&key.0))
}

fn key(global: &Global, node: u32, mac: hearth_boot::Mac) -> anyhow::Result<()> {
    let key = lab_key(global, node, mac)?;
    if global.json {
        return super::print_json(&serde_json::json!({ "node": node, "mac": mac, "key": key }));
    }
    super::print_text(&format!("hearth.node={node} hearth.key={key}\n"))
}
