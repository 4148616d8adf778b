//! Who the node is before anybody told it: random boot epoch, and what the command line fixes.
//!
//! Key types: [`Identity`]. Neighbours: `kernel_core::cmdline` parses the words, `net::dhcp` brings
//! the personality where the command line has none.
//!
//! Invariant: the boot epoch differs between two boots of a machine; keys are given per epoch.

use alloc::format;

use kernel_core::cmdline::CommandLine;
use netstack::ids::NodeId;
use netstack::personality::{Personality, TREE_LEVELS};
use netstack::wire::key::Key;
use smoltcp::wire::{Ipv4Address, Ipv4Cidr};

use crate::boot::BootFacts;
use crate::net;

/// Which cluster secret a key on the command line was made from: the first and only one that a
/// control node has (`hearth node key`).
const LAB_KEY_ID: u32 = 1;
/// Port of the boot service's HTTP server when no personality names it.
const HTTP_PORT: u16 = 7180;

/// What a node knows about itself at the start.
#[derive(Debug)]
pub struct Identity {
    /// This boot's random number.
    pub boot_epoch: u64,
    /// The personality, when the command line has all of it.
    pub fixed: Option<Personality>,
}

impl Identity {
    /// Draws the boot epoch and reads `hearth.control`, `hearth.node` and `hearth.key`.
    pub fn new(options: &CommandLine) -> Self {
        Self {
            boot_epoch: crate::arch::entropy::random_u64(),
            fixed: fixed_personality(options),
        }
    }

    /// What the network stack is to do.
    pub fn network(&self, boot: &'static BootFacts) -> net::Config {
        let address = boot.options.ip.as_ref().map(|fixed| {
            (
                Ipv4Cidr::new(Ipv4Address::from(fixed.address), fixed.prefix),
                fixed.gateway.map(Ipv4Address::from),
            )
        });
        if address.is_some() && self.fixed.is_none() {
            error!(
                "agent",
                "hearth.ip= switches DHCP off, so hearth.control=, hearth.node= and hearth.key= \
                 must be given too; using DHCP"
            );
        }
        net::Config {
            address: address.filter(|_| self.fixed.is_some()),
            wants_personality: self.fixed.is_none(),
            version: boot.version_text(),
            boot_epoch: self.boot_epoch,
            peers: boot.options.peers,
        }
    }
}

fn fixed_personality(options: &CommandLine) -> Option<Personality> {
    let (Some((control, port)), Some(node), Some(key)) =
        (options.control, options.node, options.key)
    else {
        if options.node.is_some() || options.key.is_some() {
            warn!(
                "agent",
                "hearth.node= and hearth.key= count only together with hearth.control=; asking DHCP"
            );
        }
        return None;
    };
    Some(Personality {
        node: NodeId(node),
        control_addr: control,
        control_port: port,
        http_port: HTTP_PORT,
        tree_height: 0,
        place: [0; TREE_LEVELS],
        key_id: LAB_KEY_ID,
        key: Key(key),
        name: format!("n{node}"),
    })
}
