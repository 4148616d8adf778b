//! What the control node's endpoint needs to know.

use crate::ids::ControlEpoch;
use crate::join::Timing;
use crate::wire::key::Key;

/// What an endpoint needs to know about its cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// The secret all node keys are derived from; kept over restarts.
    pub cluster_secret: [u8; 16],
    /// Number of that secret, as given out in personalities.
    pub key_id: u32,
    /// Version of this build, zero-padded text, to be named where somebody speaks another version
    /// of the protocol.
    pub version: [u8; 16],
    /// Take keys that hold for every boot, as given on kernel command lines.
    pub accept_lab_keys: bool,
    /// Random number of this run; must differ from all earlier ones.
    pub control_epoch: ControlEpoch,
    /// Random key of this run for what nodes say to one another; every node gets it with its
    /// WELCOME.
    pub peer_key: Key,
    /// Seed of the jitter.
    pub seed: u64,
    /// Intervals to prescribe.
    pub timing: Timing,
    /// Bounds of the tables.
    pub limits: Limits,
}

/// Bounds of an endpoint's tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Nodes in the registry, up or not. Default 32,768: two racks more than the largest
    /// simulated cluster of 16,512.
    pub nodes: usize,
    /// Jobs that have not ended. Default 4,096.
    pub jobs: usize,
    /// Bytes of page data waiting to be sent; more is dropped, the nodes ask again. Default
    /// 32 MiB: every one of 1,024 nodes can have a full request waiting.
    pub page_bytes: usize,
    /// RESYNC hints and unauthenticated refusals a second. Default 4,000: a restarted control
    /// node finds 4,000 nodes again within one heartbeat.
    pub hints_per_second: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            nodes: 32_768,
            jobs: 4_096,
            page_bytes: 32 << 20,
            hints_per_second: 4_000,
        }
    }
}
