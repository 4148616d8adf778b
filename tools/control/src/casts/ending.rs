//! How the end of a cast is told, and what is remembered of it.
//!
//! Neighbours: `casts`, `events`. Invariants: who did not get something is named; what was
//! cancelled is written down no more.

use std::collections::BTreeMap;

use super::cast::{Asker, Cast, Fate, What};
use super::{Casts, figures};
use crate::api::types::{CastInfo, CastState};
use crate::events::{Event, Severity};
use crate::output;

/// What people are told of a cast that is over: for one that is part of a job only what went wrong.
pub fn event(cast: &Cast, info: &CastInfo) -> Option<Event> {
    let (id, name) = (cast.id, &info.name);
    let job = cast.what.job();
    let failed: Vec<&str> = info
        .failed
        .iter()
        .map(|failure| &failure.node[..])
        .collect();
    let failed = failed.join(", ");
    let (severity, text) = match info.state {
        CastState::Done => {
            let text = match figures::of_cast(info) {
                Some(figures) => format!("cast {id}: {name} is on {}: {figures}", info.nodes),
                None => format!("cast {id}: {name} was on {} already", info.nodes),
            };
            (Severity::Info, text)
        }
        CastState::Cancelled => {
            let text = format!("cast {id}: {name} was cancelled: {}", info.reason);
            (Severity::Info, text)
        }
        _ => {
            let text = format!(
                "cast {id}: {name} is on {} of {}, not on {failed}",
                info.done,
                output::count(info.nodes_total, "node")
            );
            (Severity::Warning, text)
        }
    };
    // Every job has a table, and every cold one its program: what went well is in the job's report.
    // What nodes read they have from the service where it does not come.
    let is_read = matches!(cast.what, What::Read { .. });
    if is_read || !cast.what.is_file() && severity == Severity::Info {
        return None;
    }
    let event = Event::new(severity, "cast-ended", text);
    Some(match job {
        Some(job) => event.job(job),
        None => event,
    })
}

impl Casts {
    /// What was cancelled is not gone on with by a later run of control, should this one end before
    /// the cast has. Where nobody else holds the content its names go, too: nodes that are heard
    /// again let go of what has none.
    pub(super) fn forget_cancelled(&mut self, id: u64) {
        let Some(cast) = self.under_way.get(&id).filter(|cast| cast.what.is_file()) else {
            return;
        };
        self.batch.end_cast(id);
        let object = cast.described.object.id;
        let given = |node: &u32| {
            let brought = matches!(cast.nodes.get(node), Some(Fate::Done | Fate::Failed(_)));
            brought || cast.unwanted.contains(node)
        };
        let holders = self.files.holders(&object);
        if holders.union(&self.files.away(&object)).all(given) {
            self.files.unname(&object);
        }
    }
}

/// A cast that is over.
#[derive(Debug)]
pub struct Ended {
    /// All of it.
    pub info: CastInfo,
    /// As far as it was for each client, where it was not for one alone.
    parts: BTreeMap<Asker, CastInfo>,
}

impl Ended {
    /// What is kept of a cast.
    pub fn of(cast: &Cast, info: CastInfo, now_us: u64) -> Self {
        let clients = cast.askers.keys().copied();
        let clients = clients.filter(|asker| matches!(asker, Asker::Request(_)));
        let parts = match cast.askers.len() {
            0 | 1 => BTreeMap::new(),
            _ => clients
                .map(|asker| (asker, cast.info_for(Some(asker), now_us)))
                .collect(),
        };
        Ended { info, parts }
    }

    /// How it ended for one who asked for it.
    pub fn info_for(&self, asker: Option<Asker>) -> &CastInfo {
        let part = asker.and_then(|asker| self.parts.get(&asker));
        part.unwrap_or(&self.info)
    }
}
