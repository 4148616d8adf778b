//! How much memory a communication process may hold: one mebibyte, in shares.
//!
//! Each kind of thing that grows with what others send has a share, and is refused beyond it:
//! values are counted as dropped, messages and entries as overflowed, lists of a subtree as not
//! answered. Shares do not lend to each other, so that no kind can crowd out another.
//!
//! | share | what |
//! |---|---|
//! | [`CHILD_BYTES`] for each of [`MAX_CHILDREN`] | links to children |
//! | [`TICKS_BYTES`] | open ticks and what was taken from them and not passed on yet |
//! | [`PENDING_BYTES`] | values that wait for a parent |
//! | [`CENSUS_BYTES`] | figures that wait to be told |
//! | [`WORDS_BYTES`] | figures of roles that ended, of all of the node together, which wait for the next tree |
//! | [`SUBTREE_BYTES`] | the list of what is to be built below |
//! | [`OUTBOX_BYTES`] | messages on their way out, of all processes of the node together |
//! | [`STREAM_BYTES`] for each stream that is remembered | specifications |
//!
//! Invariant: what is counted here is never less than what is held, heap blocks included
//! (`kernel/src/ktest/monitoring.rs` compares with the kernel's heap).

use core::mem::size_of;

use super::filter::{Acc, Class, Filter, MAX_CLASSES};
use super::message::{BuildEntry, CensusEntry, CensusKey, Message, Packet};
use super::section::{MAX_SECTION, Row};
use super::stream::{MAX_STREAMS, StreamSpec};
use super::{MAX_CHILDREN, MAX_CPS};
use crate::broadcast::Peer;

/// Most that a communication process may hold.
pub const MAX_CP_BYTES: usize = 1024 * 1024;

/// What a block of the heap takes beyond its size, at most.
const BLOCK: usize = 32;
/// A map's or queue's places are at least this share in use, inverted: blocks double, nodes split.
const SLACK: usize = 2;

/// A link to a child, with the streams that it knows.
pub const CHILD_BYTES: usize = 640;
/// Open ticks of all streams together.
pub const TICKS_BYTES: usize = 136 * 1024;
/// Sections that wait for a parent.
pub const MAX_PENDING: usize = 128;
/// Bytes of these.
pub const PENDING_BYTES: usize = MAX_PENDING * (MAX_SECTION + BLOCK);
/// Nodes of the largest subtree: a sixteenth of 16,384.
const SUBTREE_NODES: usize = 1_024;
/// Entries of the census that wait: of the back ends of a subtree, and of the own children.
pub const MAX_CENSUS: usize = SUBTREE_NODES + MAX_CHILDREN;
/// Bytes of these.
pub const CENSUS_BYTES: usize = MAX_CENSUS * SLACK * size_of::<(CensusKey, CensusEntry)>();
/// Words of roles that ended: of each of a node's own links, and of the children of a process that
/// ended before it could tell.
pub const MAX_WORDS: usize = 128;
/// Bytes of these.
pub const WORDS_BYTES: usize = MAX_WORDS * SLACK * size_of::<(CensusKey, CensusEntry)>();
/// Longest list of a subtree: of each node a back end, and all the processes that it can host.
pub const MAX_SUBTREE: usize = SUBTREE_NODES * (MAX_CPS as usize + 1);
/// Bytes of it.
pub const SUBTREE_BYTES: usize = MAX_SUBTREE * SLACK * size_of::<BuildEntry>();
/// Messages that wait to be sent by a node.
pub const OUTBOX_BYTES: usize = 128 * 1024;
/// A stream that is remembered.
pub const STREAM_BYTES: usize = 512;

const _: () = assert!(
    MAX_CHILDREN * CHILD_BYTES
        + TICKS_BYTES
        + PENDING_BYTES
        + CENSUS_BYTES
        + WORDS_BYTES
        + SUBTREE_BYTES
        + OUTBOX_BYTES
        + 2 * MAX_STREAMS * STREAM_BYTES
        <= MAX_CP_BYTES
);

/// Bytes that a tick of a stream takes from its opening on, whatever comes.
pub(super) fn tick_bytes(spec: &StreamSpec, itself: usize) -> usize {
    let of_each = match &spec.filter {
        Filter::Concat => return itself + BLOCK,
        Filter::Sum | Filter::Avg | Filter::Min | Filter::Max => 0,
        // One above the bound while two are merged, and blocks double.
        Filter::Classes => 2 * MAX_CLASSES * size_of::<Class>() + BLOCK,
        Filter::Histogram(bounds) => (bounds.len() + 1) * size_of::<u32>() + BLOCK,
    };
    itself + BLOCK + spec.metrics.len() * (size_of::<Acc>() + of_each)
}

/// Bytes that a row takes.
pub(super) fn row_bytes(row: &Row) -> usize {
    SLACK * size_of::<Row>() + row.values.capacity() * size_of::<Option<i64>>() + BLOCK
}

/// Bytes that a message takes while it waits to be sent.
pub(super) fn message_bytes(message: &Message) -> usize {
    use super::message::Candidate;
    let lists = match message {
        Message::Report { sections, .. } => sections.capacity(),
        Message::Build(build) => build.entries.capacity() * size_of::<BuildEntry>(),
        Message::Census { entries, .. } => entries.capacity() * size_of::<CensusEntry>(),
        Message::Stream {
            spec: Some(spec), ..
        } => STREAM_BYTES.min(spec.metrics.capacity() * 2 + 16 * size_of::<u64>() * 2),
        Message::HelloAck { candidates, .. } => candidates.capacity() * size_of::<Candidate>(),
        Message::AttachAck(ack) => ack.kin.capacity() * size_of::<Candidate>(),
        Message::Beat(beat) => {
            (beat.kin.capacity() + beat.siblings.capacity()) * size_of::<Candidate>()
        }
        _ => 0,
    };
    SLACK * size_of::<(Peer, Packet)>() + lists + BLOCK
}

#[cfg(test)]
mod tests {
    use super::super::message::Process;
    use super::*;

    #[test]
    fn a_child_fits_its_share() {
        // A map's node, the streams that it knows, and what these blocks take.
        let known = 2 * MAX_STREAMS * size_of::<(super::super::StreamId, u32)>();
        let child = SLACK * (size_of::<Process>() + super::super::hub::CHILD_SIZE) + known + BLOCK;
        assert!(child <= CHILD_BYTES, "{child} bytes");
    }
}
