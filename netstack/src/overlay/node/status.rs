//! What a node says of its processes: how they stand, and what they keep.
//!
//! Invariant: reading changes nothing.

use super::Node;
use crate::overlay::cp::Cp;
use crate::overlay::message::{BuildEntry, Process};
use crate::overlay::metric::{Counters, OverlayMetric};
use crate::overlay::uplink::Uplink;

/// How a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessStatus {
    /// Its slot.
    pub slot: u8,
    /// Its height.
    pub height: u8,
    /// Its parent.
    pub parent: Option<Process>,
    /// Its children.
    pub children: u32,
    /// From the begin of the last tick until it was passed on, in microseconds.
    pub lag_us: u32,
    /// Ticks passed on.
    pub forwarded: u64,
}

/// What is kept at present. Without a tree there are `words` at most, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// Roles: the back end if it has a tree, and communication processes.
    pub roles: usize,
    /// Links, transfers, open ticks and values.
    pub entries: usize,
    /// Messages and values that wait to be sent.
    pub queued: usize,
    /// Streams that are known.
    pub streams: usize,
    /// Auxiliary service processes that run.
    pub auxiliary: u32,
    /// A time is set.
    pub timer: bool,
    /// What is known of links that are over and waits for a tree to be told in: no part of one that
    /// is down.
    pub words: usize,
    /// Bytes of all of this, as counted against the bounds of [`super::room`].
    pub bytes: usize,
}

impl Node {
    /// Figures since the start, in the order of [`OverlayMetric`].
    pub fn counters(&self) -> &Counters<{ OverlayMetric::COUNT }> {
        &self.counters
    }

    /// Samples submitted in this boot.
    pub fn submitted(&self) -> u64 {
        self.submitted
            + self
                .back_end
                .as_ref()
                .map_or(0, |back_end| back_end.submitted)
    }

    /// Samples that the node's processes gave up in this boot.
    pub fn given_up(&self) -> u64 {
        let back_end = self.back_end.as_ref();
        let back_end = back_end.map_or(0, |back_end| back_end.uplink.dropped);
        let cps: u64 = self.cps.values().map(Cp::dropped).sum();
        let ended = self.ended.values().map(|ended| ended.dropped);
        cps + back_end + self.dropped + ended.sum::<u64>()
    }

    /// What is kept at present.
    pub fn footprint(&self) -> Footprint {
        let mut footprint = Footprint {
            roles: self.cps.len() + usize::from(self.back_end.is_some()),
            queued: self.outbox.len(),
            entries: self.assemblies.len(),
            timer: self.poll_timeout().is_some(),
            auxiliary: self.unsettled.count_ones(),
            ..Footprint::default()
        };
        let lists = self.assemblies.values().map(|list| list.entries.capacity());
        footprint.bytes = self.outbox.bytes() + lists.sum::<usize>() * size_of::<BuildEntry>();
        footprint.words = self.words.len();
        footprint.bytes += self.words.bytes();
        for cp in self.cps.values() {
            footprint.bytes += cp.bytes();
            footprint.entries += cp.hub.kept();
            footprint.queued += cp.uplink.queued();
            footprint.streams += cp.hub.open_streams();
        }
        if let Some(back_end) = &self.back_end {
            footprint.bytes += back_end.uplink.bytes();
            footprint.queued += back_end.uplink.queued();
            footprint.streams += back_end.open_streams();
            footprint.auxiliary += back_end.running();
        }
        footprint
    }

    /// How the node's processes stand.
    pub fn status(&self) -> impl Iterator<Item = ProcessStatus> + '_ {
        let parent = |uplink: &Uplink| uplink.parent().map(|parent| parent.process);
        let back_end = self.back_end.iter().map(move |back_end| ProcessStatus {
            slot: 0,
            height: 0,
            parent: parent(&back_end.uplink),
            children: 0,
            lag_us: back_end.lag_us,
            forwarded: back_end.submitted,
        });
        let cps = self.cps.iter().map(move |(slot, cp)| ProcessStatus {
            slot: *slot,
            height: cp.hub.height(),
            parent: parent(&cp.uplink),
            children: cp.hub.children() as u32,
            lag_us: cp.hub.lag_us,
            forwarded: cp.hub.forwarded,
        });
        back_end.chain(cps)
    }
}
