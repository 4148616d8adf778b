//! Going on with casts of an earlier run of the control node.
//!
//! Neighbours: `ledger` (what was written down of them), `programs` (where their bytes are, if they
//! are still there). Nodes keep what they have, so only the rest is sent.
//!
//! Invariants: a cast that cannot go on is an event and is forgotten; a start waits for no file to
//! be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hearth_store::CastRow;
use netstack::broadcast::Progress;
use netstack::time::Instant;

use super::Casts;
use super::cast::{Asker, Cast, Fate, Idle, What};
use super::object::Described;
use super::shelf::Content;
use crate::events::{Event, Severity};
use crate::programs::{Program, ProgramStore};
use crate::{clock, hostlist};

/// How long a cast that an earlier run of control had begun waits for its nodes before it goes on
/// with those that are there, in microseconds: nodes are heard again within seconds.
const RESUME_PATIENCE_US: u64 = 5_000_000;

impl Casts {
    /// Goes on with casts that an earlier run of control had begun, as far as their files are still
    /// in the cache. They are announced once these have been read ([`Casts::file_read`]).
    pub fn resume(&mut self, now: Instant, rows: Vec<CastRow>, programs: &ProgramStore) {
        for row in rows {
            let found = programs.unread(&row.object);
            let described = found.as_ref().map(|file| file.bytes());
            let described = described.and_then(|size| Described::unread(row.object, size).ok());
            let (Some(file), Some(described)) = (found, described) else {
                self.tell_gone(&row.name);
                self.batch.end_cast(row.id);
                continue;
            };
            let Ok(nodes) = hostlist::parse(&row.nodes) else {
                self.batch.end_cast(row.id);
                continue;
            };
            let scheme = serde_json::from_value(serde_json::Value::String(row.scheme));
            let cast = Cast {
                id: row.id,
                wire: None,
                what: What::File {
                    name: row.name,
                    job: None,
                },
                described: described.into(),
                unread: true,
                content: Content::Cached(file),
                scheme: scheme.unwrap_or(self.config.scheme),
                rate: if row.rate == 0 { self.rate() } else { row.rate },
                askers: BTreeMap::from([(Asker::Earlier, nodes.iter().copied().collect())]),
                nodes: nodes.into_iter().map(|node| (node, Fate::Absent)).collect(),
                helpers: Vec::new(),
                progress: Progress::default(),
                sent_before: (0, 0),
                corrupt: 0,
                began_us: now.as_micros(),
                done_us: None,
                began_unix_us: row.began_unix_us,
                earlier_us: Some(clock::unix_us().saturating_sub(row.began_unix_us)),
                patient: row.patient,
                holds_until_us: Some(now.as_micros() + RESUME_PATIENCE_US),
                returning: BTreeMap::new(),
                cancelled: None,
                unwanted: BTreeSet::new(),
                spared: BTreeSet::new(),
                idle: Idle::default(),
                held_up: BTreeSet::new(),
            };
            self.under_way.insert(row.id, cast);
        }
    }

    /// Casts whose files have to be read before they go on.
    pub fn unread(&self) -> Vec<(u64, Program)> {
        let casts = self.under_way.values().filter(|cast| cast.unread);
        let file = |cast: &Cast| match &cast.content {
            Content::Cached(file) => Some((cast.id, file.clone())),
            Content::File(_) | Content::Bytes(_) => None,
        };
        casts.filter_map(file).collect()
    }

    /// The file of such a cast has been read; nothing, where it cannot be.
    pub fn file_read(&mut self, now: Instant, id: u64, described: Option<Arc<Described>>) {
        let Some(cast) = self.under_way.get_mut(&id).filter(|cast| cast.unread) else {
            return;
        };
        cast.unread = false;
        let name = cast.what.name();
        match described {
            Some(described) => {
                cast.described = described;
                if cast.cancelled.is_none() && cast.holds_until_us.is_none() {
                    self.announce_late(now, id);
                }
            }
            None => {
                self.tell_gone(&name);
                // It may have been cancelled meanwhile, which is as good.
                let _ = self.cancel(now, id, "its bytes are not here any more");
            }
        }
        self.end_if_settled(now, id);
        self.changed();
    }

    fn tell_gone(&mut self, name: &str) {
        let text = format!(
            "the cast of {name} ended with the earlier control node, and its bytes are not here any more; cast it again"
        );
        self.events
            .push(Event::new(Severity::Warning, "cast-ended", text));
    }
}
