//! Streams that somebody asked for, and what came of them last.
//!
//! Key type: [`Asked`]. Neighbours: [`super::Overlay`] opens them and gives them their ticks,
//! [`super::view`] shows them.
//!
//! Invariant: what comes late is put to its own tick, and changes no later one.

use std::collections::BTreeMap;
use std::sync::Arc;

use hearth_monitor::Metric;
use netstack::ids::NodeId;
use netstack::overlay::{StreamId, StreamSpec, TickBody, TickValue};

use super::kept::{self, StreamTick};
use super::recent::{Recent, TickSoFar};

/// A stream that somebody asked for, and its newest rows or value.
#[derive(Debug, Clone)]
pub struct Asked {
    /// What it is.
    pub spec: StreamSpec,
    /// Values of nodes with the tick that they are of, for concat.
    pub rows: BTreeMap<NodeId, (u64, Vec<Option<i64>>)>,
    /// Its name, which is of this stream only.
    pub name: Arc<str>,
    /// Its name in the files, and what is stored of it there; None: nothing is.
    pub kept: Option<(Arc<str>, Arc<[Metric]>)>,
    recent: Recent,
    /// The newest tick of those that cover most.
    fullest: TickSoFar,
}

impl Asked {
    /// Numbers are given out anew some day: by the time of its opening the name is of one stream
    /// only.
    pub(super) fn new(id: StreamId, spec: StreamSpec) -> Self {
        let name = format!("stream-{}-{}", id.0, crate::clock::unix_us() / 1_000_000);
        Asked::named(name.into(), spec)
    }

    /// One that goes on under the name that it had.
    pub(super) fn named(name: Arc<str>, spec: StreamSpec) -> Self {
        Asked {
            kept: kept::columns(&spec).map(|columns| (name.clone(), columns)),
            name,
            rows: BTreeMap::new(),
            recent: Recent::new(spec.period),
            fullest: TickSoFar::default(),
            spec,
        }
    }

    /// Takes values of a tick, or what came late of one. Gives what is known of that tick for the
    /// files, if it is stored.
    ///
    /// # Errors
    /// The part is of a tick too old to be put right.
    pub(super) fn take(&mut self, value: TickValue) -> Result<Option<StreamTick>, TooLate> {
        let Some(tick) = self.recent.take(&value) else {
            return match self.kept {
                Some(_) => Err(TooLate),
                None => Ok(None),
            };
        };
        let (most, newest) = (self.fullest.covers, self.fullest.tick);
        if tick.covers > most || tick.covers == most && tick.tick >= newest {
            self.fullest.clone_from(tick);
        }
        let kept = (self.kept.as_ref()).map(|kept| kept::tick_of(kept, &self.spec, tick));
        if let TickBody::Rows(rows) = value.values {
            for row in rows {
                let known = self.rows.entry(row.node).or_default();
                if known.0 <= value.tick {
                    *known = (value.tick, row.values);
                }
            }
        }
        Ok(kept.filter(|tick| tick.covers > 0))
    }

    /// The newest tick.
    pub fn newest(&self) -> Option<&TickSoFar> {
        self.recent.newest()
    }

    /// What it came to, once it has ended: its nodes end in different ticks, and the last of these
    /// can be of a few. So the newest of those that cover most counts.
    pub fn result(&self) -> Option<&TickSoFar> {
        (self.ticks() > 0).then_some(&self.fullest)
    }

    /// Ticks that have come.
    pub fn ticks(&self) -> u64 {
        self.recent.count()
    }
}

/// A part of a tick came when later ones had taken its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooLate;
