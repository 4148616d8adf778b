//! Refusals: which were told about recently, and the words for them.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use crate::ids::{BootEpoch, NodeId};
use crate::join::Refusal;
use crate::time::{Instant, Micros};
use crate::transport::retry::LOOKS;

/// A refusal that repeats within this time gives no further event: of a machine that is refused one
/// in each ten heartbeats.
const QUIET: Micros = Micros(10 * LOOKS.0);
/// Refusals remembered for each [`Standing`]; a flood of different ones gives no more events than
/// this in [`QUIET`].
const MAX_RECENT: usize = 256;

/// What is known about the sender of a refused datagram. Each has a table of its own, so that a
/// flood from strangers cannot silence what is told about the cluster's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It holds a key of this cluster.
    Authentic,
    /// It holds none, but names a machine of the registry.
    Registered,
    /// Anybody.
    Stranger,
}

/// Who was refused, and why.
type Rejected = ([u8; 6], NodeId, Refusal);

/// Refusals that were told about recently, by [`Standing`].
#[derive(Debug, Default)]
pub(super) struct Recent([BTreeMap<Rejected, Instant>; 3]);

impl Recent {
    /// Whether to tell about this one.
    pub(super) fn is_news(&mut self, now: Instant, standing: Standing, rejected: Rejected) -> bool {
        let quiet = |last: &Instant| now.saturating_since(*last) < QUIET;
        let recent = &mut self.0[standing as usize];
        if recent.get(&rejected).is_some_and(quiet) {
            return false;
        }
        if recent.len() >= MAX_RECENT {
            recent.retain(|_, last| quiet(last));
            if recent.len() >= MAX_RECENT {
                return false;
            }
        }
        recent.insert(rejected, now);
        true
    }
}

/// What to say about a key that belongs to an earlier boot.
pub(super) fn used_text(epoch: BootEpoch, present: BootEpoch) -> String {
    format!(
        "the key of boot {epoch} was used up when boot {present} of the same MAC address joined: \
         reboot the node; if both machines run, one MAC address is in use twice"
    )
}

/// What to say about another protocol version; `control` is the control node's software.
pub(super) fn protocol_text(node: u8, control: &[u8; 16]) -> String {
    format!(
        "the node speaks protocol version {node}, the control node (version {}) {}: boot the node \
         with the control node's own image",
        version(control),
        crate::wire::datagram::VERSION
    )
}

/// A version as text, whatever bytes it has.
fn version(bytes: &[u8; 16]) -> String {
    let text = bytes.iter().take_while(|byte| **byte != 0);
    text.map(|byte| {
        if byte.is_ascii_graphic() {
            char::from(*byte)
        } else {
            '?'
        }
    })
    .collect()
}
