//! `hearth node ...`, `drain`, `resume`: what is done with single nodes.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{Global, exit, named, power};
use crate::api::types::{
    ApproveRequest, Approved, Done, DrainRequest, NodeInfo, NodeState, ResumeRequest,
};
use crate::client::Client;
use crate::hostlist;
use crate::node_lists::{self, Format};
use crate::nodes::NODES_MAX;
use crate::site_tree;

/// So much of a list of machines is read: a line of some hundred bytes for each of the most nodes.
const LIST_MAX_BYTES: u64 = 16 * 1024 * 1024;

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
    /// Switch nodes on and wait until they have joined [config: power.method].
    On(power::Power),
    /// Switch nodes off, as by pulling the plug: a job that they have loses them.
    Off(power::Nodes),
    /// Switch nodes off and on again and wait until they have joined.
    Reset(power::Power),
    /// Show which machines are on, as they say themselves.
    Status(power::Nodes),
    /// Ask nodes to leave the cluster and halt; a node that has a job stays. `hearth node reset`
    /// brings it back.
    Leave(named::List),
    /// Approve machines that wait to be nodes: `hearth nodes --waiting` lists them.
    Approve {
        /// Their MAC addresses.
        #[arg(value_name = "MAC", required = true)]
        machines: Vec<hearth_boot::Mac>,
    },
    /// Make the file for boot.nodes_file of a list that there is already, and print it.
    Import {
        /// The list: a table in CSV, a dhcpd.conf, or Warewulf's nodes.conf.
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// How it is written [default: by its name: *.csv, dhcpd*, nodes.conf].
        #[arg(long, value_name = "FORMAT")]
        format: Option<Format>,
        /// Number the nodes by their places in this tree of switches, as in Slurm's topology.conf.
        #[arg(long, value_name = "FILE")]
        tree: Option<PathBuf>,
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
    #[command(flatten)]
    nodes: named::List,
    /// Why, for whoever finds them drained.
    #[arg(short = 'r', long, value_name = "TEXT")]
    reason: String,
}

/// Options of `hearth resume`.
#[derive(Debug, Args)]
pub struct ResumeOptions {
    #[command(flatten)]
    nodes: named::List,
}

/// Has nodes get no more jobs.
pub fn drain(global: &Global, options: &DrainOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let request = DrainRequest {
        nodes: options.nodes.whole(),
        reason: options.reason.clone(),
        by: String::new(),
    };
    change(global, client, "/v1/nodes/drain", &request.nodes, &request)
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
        nodes: options.nodes.whole(),
    };
    change(global, client, "/v1/nodes/resume", &request.nodes, &request)
}

/// Does it.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    match options.action {
        Action::On(options) => power::on(global, hearth_power::Action::On, &options),
        Action::Off(options) => power::off(global, &options),
        Action::Reset(options) => power::on(global, hearth_power::Action::Reset, &options),
        Action::Status(options) => power::status(global, &options),
        Action::Leave(nodes) => leave(global, &nodes.whole()),
        Action::Approve { machines } => approve(global, &machines),
        Action::Import { file, format, tree } => import(global, &file, format, tree.as_deref()),
        Action::Key { node, mac } => key(global, node, mac),
    }
}

/// Prints the file of nodes that a site's own list comes to.
fn import(
    global: &Global,
    path: &Path,
    format: Option<Format>,
    tree: Option<&Path>,
) -> anyhow::Result<()> {
    let shown = path.display();
    let by_name = || Format::of_file(path.file_name()?.to_str()?);
    let format = format.or_else(by_name).ok_or_else(|| {
        exit::Failed::usage(format!(
            "what is {shown}? Say --format csv, dhcpd or warewulf"
        ))
    })?;
    let read = || {
        let mut text = String::new();
        let list = std::fs::File::open(path)?;
        list.take(LIST_MAX_BYTES).read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    let text = read().with_context(|| format!("cannot read {shown}"))?;
    let tree = tree.map(|tree| site_tree::read(tree, |site| Ok(site.number()?)));
    let tree = tree.transpose()?;
    let nodes = node_lists::read(format, &text).and_then(|entries| match &tree {
        Some(tree) => node_lists::numbered_by(entries, tree),
        None => node_lists::numbered(entries),
    });
    let nodes = nodes.with_context(|| format!("{shown}"))?;
    match global.json {
        true => super::print_json(&nodes),
        false => super::print_text(&node_lists::file(&nodes)),
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
    let wanted = named::nodes(global, list)?;
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
