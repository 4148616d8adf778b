//! What a job's nodes are told about reuse: whether they may run it on the pages they hold, what
//! they keep of it afterwards, and whether they wait for each other.
//!
//! The publication's steps on the control node ("Retaining executable pages between launches"):
//! its step 2, the look into the node status table, is [`Fabric::warm_nodes`]; step 3, the retain
//! message before the dispatch, is [`Plan::retain`] (mode `published`); in the mode `warm` the
//! policy rides in the launch itself and saves that round trip.
//!
//! Key types: [`Wishes`] (a submission's own), [`Plan`]. Neighbours: `config::Retention` (the
//! cluster's), `jobs::lifecycle` (launches).
//!
//! Invariant: a job submitted with [`Reuse::Forbid`] neither looks for warm nodes nor runs on
//! retained pages.
//!
//! [`Fabric::warm_nodes`]: super::fabric::Fabric::warm_nodes

use std::collections::BTreeSet;

use netstack::ids::NodeId;
use netstack::job::StartMode;
use netstack::retention as protocol;

use crate::api::types::Reuse;
use crate::config::{self, RetentionMode, Verify};

/// What a submission asks for where it differs from the configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Whether held pages may, must or must not be used.
    pub reuse: Reuse,
    /// Checking of retained pages; none: as configured.
    pub verify: Option<Verify>,
    /// Most bytes of a core file of each rank; 0: none.
    pub core_bytes: u64,
}

/// How a job is launched on its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What every node is told. Its page limit is 0 here; see `limit_percent`.
    pub policy: protocol::Retention,
    /// Warm pages a node may hold, in percent of its memory; 0: the node's own default.
    pub limit_percent: u8,
    /// Nodes that get a retain message first (published mode).
    pub retain: BTreeSet<NodeId>,
    /// Whether ranks wait for the start command.
    pub start: StartMode,
}

/// Whether the status table is looked at for a job.
pub fn looks_for_warm(config: &config::Retention, wishes: &Wishes) -> bool {
    config.mode != RetentionMode::Off && wishes.reuse != Reuse::Forbid
}

/// The plan for a job on `nodes`, of which those in `warm` hold its program.
pub fn plan(
    config: &config::Retention,
    wishes: &Wishes,
    nodes: &[u32],
    warm: &BTreeSet<u32>,
) -> Plan {
    let keep = match config.mode {
        RetentionMode::Warm => protocol::Keep::Warm,
        RetentionMode::Published => protocol::Keep::Published,
        RetentionMode::Off => protocol::Keep::Nothing,
    };
    let reuse = match wishes.reuse {
        _ if config.mode == RetentionMode::Off => protocol::Reuse::Forbid,
        Reuse::Allow => protocol::Reuse::Allow,
        Reuse::Forbid => protocol::Reuse::Forbid,
        Reuse::Require => protocol::Reuse::Require,
    };
    let verify = match wishes.verify.unwrap_or(config.verify) {
        Verify::Never => protocol::Verify::Never,
        Verify::Sample => protocol::Verify::Sample,
        Verify::Always => protocol::Verify::Always,
    };
    let warm_here: BTreeSet<NodeId> = nodes
        .iter()
        .filter(|node| warm.contains(node))
        .map(|node| NodeId(*node))
        .collect();
    // Nobody is waited for where all are as fast, or where there is nobody else. A cold rank among
    // others may be late by seconds, and the others would spend them spinning for it.
    let start = if nodes.len() == 1 || warm_here.len() == nodes.len() {
        StartMode::AtOnce
    } else {
        StartMode::OnCommand
    };
    Plan {
        policy: protocol::Retention {
            reuse,
            keep,
            read_only: config.read_only,
            pristine: config.pristine,
            verify,
            limit_pages: 0,
        },
        limit_percent: config.limit_percent,
        retain: match config.mode {
            RetentionMode::Published => warm_here,
            RetentionMode::Warm | RetentionMode::Off => BTreeSet::new(),
        },
        start,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(mode: RetentionMode, reuse: Reuse, nodes: &[u32], warm: &[u32]) -> Plan {
        let config = config::Retention {
            mode,
            ..config::defaults().retention
        };
        let wishes = Wishes {
            reuse,
            ..Wishes::default()
        };
        let warm = if looks_for_warm(&config, &wishes) {
            warm.iter().copied().collect()
        } else {
            BTreeSet::new()
        };
        plan(&config, &wishes, nodes, &warm)
    }

    #[test]
    fn ranks_wait_for_each_other_only_when_some_are_cold() {
        let start = |nodes: &[u32], warm: &[u32]| {
            planned(RetentionMode::Warm, Reuse::Allow, nodes, warm).start
        };
        assert_eq!(start(&[0, 1], &[0, 1, 2]), StartMode::AtOnce);
        assert_eq!(start(&[0, 1], &[1]), StartMode::OnCommand);
        assert_eq!(start(&[3], &[]), StartMode::AtOnce);
    }

    #[test]
    fn retain_messages_go_to_warm_nodes_in_published_mode_only() {
        let retain = |mode, reuse| planned(mode, reuse, &[4, 2], &[2, 7]).retain;
        let only = |node| BTreeSet::from([NodeId(node)]);
        assert_eq!(retain(RetentionMode::Published, Reuse::Allow), only(2));
        assert_eq!(
            retain(RetentionMode::Published, Reuse::Forbid),
            BTreeSet::new()
        );
        assert_eq!(retain(RetentionMode::Warm, Reuse::Allow), BTreeSet::new());
    }

    #[test]
    fn off_means_neither_reuse_nor_keeping() {
        let plan = planned(RetentionMode::Off, Reuse::Allow, &[1, 2], &[1, 2]);
        assert_eq!(plan.policy.reuse, protocol::Reuse::Forbid);
        assert_eq!(plan.policy.keep, protocol::Keep::Nothing);
        assert_eq!(plan.start, StartMode::OnCommand);
        let wishes = Wishes {
            verify: Some(Verify::Always),
            ..Wishes::default()
        };
        let own = super::plan(
            &config::defaults().retention,
            &wishes,
            &[1],
            &BTreeSet::new(),
        );
        assert_eq!(own.policy.verify, protocol::Verify::Always);
        assert_eq!(own.policy.keep, protocol::Keep::Warm);
    }
}
