//! `hearth node ...`: what is done with single nodes.

use clap::{Args, Subcommand};

use super::Global;

/// Options of `hearth node`.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Switch QEMU nodes off and on again.
    Reset {
        /// The nodes: n0,n[3-5].
        #[arg(value_name = "LIST")]
        nodes: String,
    },
    /// Make a laboratory key: kernel options for a node that boots without the boot service.
    Key {
        /// Number of the node.
        #[arg(value_name = "NUMBER")]
        node: u32,
        /// Its MAC address.
        #[arg(value_name = "MAC")]
        mac: hearth_boot::Mac,
    },
}

/// Does it.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    match options.action {
        Action::Reset { nodes } => super::cluster::reset(global, &nodes),
        Action::Key { node, mac } => key(global, node, mac),
    }
}

/// The key needs the cluster secret, so only who may read the state directory can make one. The
/// control node takes it only with `serve --lab-keys`.
fn key(global: &Global, node: u32, mac: hearth_boot::Mac) -> anyhow::Result<()> {
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
    let key = crate::secrets::encode_hex(&key.0);
    if global.json {
        return super::print_json(&serde_json::json!({ "node": node, "mac": mac, "key": key }));
    }
    super::print_text(&format!("hearth.node={node} hearth.key={key}\n"))
}
