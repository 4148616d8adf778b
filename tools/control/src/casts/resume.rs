//! Going on with casts of an earlier run of the control node.
//!
//! Neighbours: `ledger` (what was written down of them), `programs` (where their bytes are, if they are
//! still there). Nodes keep what they have, so only the rest is sent.
//!
//! Invariant: a cast that cannot go on is an event and is forgotten.

use std::collections::{BTreeMap, BTreeSet};

use hearth_store::CastRow;
use netstack::broadcast::Progress;
use netstack::time::Instant;

use super::Casts;
use super::cast::{Asker, Cast, Fate, Idle, What};
use super::shelf::Content;
use crate::events::{Event, Severity};
use crate::programs::ProgramStore;
use crate::{clock, hostlist};

/// How long a cast that an earlier run of control had begun waits for its nodes before it goes on with
/// those that are there, in microseconds: nodes are heard again within seconds.
const RESUME_PATIENCE_US: u64 = 5_000_000;

impl Casts {
    /// Goes on with casts that an earlier run of control had begun, as far as their files are still in
    /// the cache.
    pub fn resume(&mut self, now: Instant, rows: Vec<CastRow>, programs: &ProgramStore) {
        for row in rows {
            let found = programs.get(&row.object);
            let described = found.as_ref().and_then(|file| file.describe().ok());
            let (Some(file), Some(described)) = (found, described) else {
                let text = format!(
                    "the cast of {} ended with the earlier control node, and its bytes are not here any more; cast it again",
                    row.name
                );
                self.events
                    .push(Event::new(Severity::Warning, "cast-ended", text));
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
                described,
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
}
