//! Streams that somebody asked for, and what came of them last.
//!
//! Key type: [`Asked`]. Neighbours: [`super::Overlay`] opens them and gives them their ticks, [`super::view`] shows them.
//!
//! Invariant: what comes late of an older tick changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use hearth_monitor::Metric;
use netstack::ids::NodeId;
use netstack::overlay::{Acc, StreamId, StreamSpec, TickBody, TickValue};

use super::kept::{self, StreamTick};

/// A stream that somebody asked for, and its newest rows or value.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What it is.
    pub spec: StreamSpec,
    /// The last tick.
    pub tick: u64,
    /// Back ends in it.
    pub covers: u32,
    /// Ticks that have arrived.
    pub ticks: u64,
    /// Values of nodes, for concat.
    pub rows: BTreeMap<NodeId, Vec<Option<i64>>>,
    /// Reduced values.
    pub values: Vec<Acc>,
    /// Its name in the files, and what is stored of it there; None: nothing is.
    pub kept: Option<(Arc<str>, Arc<[Metric]>)>,
}

impl Asked {
    /// Numbers begin anew with control: by the time of its opening the name is of one stream only.
    pub(super) fn new(id: StreamId, spec: StreamSpec) -> Self {
        let name = format!("stream-{}-{}", id.0, crate::clock::unix_us() / 1_000_000);
        Asked {
            kept: kept::columns(&spec).map(|columns| (name.into(), columns)),
            spec,
            tick: 0,
            covers: 0,
            ticks: 0,
            rows: BTreeMap::new(),
            values: Vec::new(),
        }
    }

    /// Takes values of a tick, or what came late of the newest one. The rest of an older tick changes nothing any more.
    pub(super) fn take(&mut self, value: TickValue) {
        if value.tick < self.tick {
            return;
        }
        if value.tick > self.tick {
            (self.tick, self.covers) = (value.tick, 0);
            self.ticks += 1;
            self.values.clear();
        }
        self.covers = self.covers.saturating_add(value.covers);
        match value.values {
            TickBody::Reduced(values) if self.values.len() == values.len() => {
                for (own, more) in self.values.iter_mut().zip(values) {
                    own.merge(more);
                }
            }
            TickBody::Reduced(values) => self.values = values,
            TickBody::Rows(rows) => self
                .rows
                .extend(rows.into_iter().map(|row| (row.node, row.values))),
        }
    }

    /// What is known of the last tick, for the files.
    pub(super) fn tick_kept(&self, attached: u32) -> Option<StreamTick> {
        let (stream, columns) = self.kept.as_ref().filter(|_| self.covers > 0)?;
        Some(StreamTick {
            stream: stream.clone(),
            columns: columns.clone(),
            begin_us: self.tick.saturating_mul(self.spec.period.0),
            covers: self.covers,
            nodes: attached.max(self.covers),
            values: kept::values(&self.spec, &self.values),
        })
    }
}
