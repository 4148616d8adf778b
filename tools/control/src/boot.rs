//! What the boot service asks of control: a personality for each boot, and where to report.
//!
//! Key types: [`Bridge`]. Neighbours: `hearth_boot::Service` calls it; `control::Shared` answers.
//!
//! Invariant: the boot service is never called while the control state is locked, because it may
//! be calling here.

use std::net::Ipv4Addr;
use std::sync::Arc;

use hearth_boot::{BootRecord, Mac, Personalities, Refused, Stage, TimelineSink};
use hearth_qemu::Tree;
use netstack::ids::{BootEpoch, NodeId};
use netstack::personality::{Personality, TREE_LEVELS};

use crate::control::Shared;
use crate::events::{Event, Severity};
use crate::hostlist;

/// Answers the boot service from the control state.
#[derive(Debug)]
pub struct Bridge {
    /// The control state.
    pub shared: Arc<Shared>,
    /// Address that nodes find control at.
    pub control_address: Ipv4Addr,
    /// UDP port of the control protocol.
    pub control_port: u16,
    /// TCP port of the boot service's HTTP server.
    pub http_port: u16,
    /// Number of the cluster secret.
    pub key_id: u32,
    /// Shape of the network, if it was given.
    pub tree: Option<Tree>,
}

impl Personalities for Bridge {
    fn personality(&self, mac: Mac, boot_epoch: u64, _ip: Ipv4Addr) -> Result<Vec<u8>, Refused> {
        let refused = |reason: String| Refused { reason };
        let mut core = self.shared.lock();
        let node = core
            .table
            .number(mac.0)
            .map_err(|error| refused(error.to_string()))?;
        let now = self.shared.now();
        let key = core
            .endpoint
            .issue_key(now, mac.0, BootEpoch(boot_epoch), NodeId(node))
            .map_err(|error| refused(format!("no key for this boot ({error:?}): boot again")))?;
        drop(core);
        // The endpoint may have an event about it.
        self.shared.kick();
        let (height, place) = match &self.tree {
            Some(tree) => (tree.levels(), tree.place(node)),
            None => (0, [0; TREE_LEVELS]),
        };
        let personality = Personality {
            node: NodeId(node),
            control_addr: self.control_address.octets(),
            control_port: self.control_port,
            http_port: self.http_port,
            tree_height: u8::try_from(height).expect("at most MAX_LEVELS"),
            place,
            key_id: self.key_id,
            key,
            name: hostlist::name(node),
        };
        personality
            .emit()
            .map_err(|error| refused(format!("personality: {error:?}")))
    }
}

impl TimelineSink for Bridge {
    fn stage(&self, stage: Stage, record: &BootRecord) {
        tracing::debug!("{} reached {stage}", record.mac);
    }

    fn event(&self, event: &hearth_boot::Event) {
        let severity = match event.severity() {
            hearth_boot::Severity::Info => Severity::Info,
            hearth_boot::Severity::Warning => Severity::Warning,
            hearth_boot::Severity::Error => Severity::Error,
        };
        // The tag that serde gives the variant is the event's stable name.
        let name = serde_json::to_value(event)
            .ok()
            .and_then(|value| Some(value.get("event")?.as_str()?.replace('_', "-")))
            .unwrap_or_default();
        let mut kept = Event::new(severity, &format!("boot-{name}"), event.to_string());
        kept.mac = event.mac().map(|mac| mac.to_string());
        self.shared.lock().events.push(kept);
    }
}
