//! How the end of a cast is told.
//!
//! Neighbours: `casts`, `events`. Invariant: who did not get something is named.

use super::cast::Cast;
use super::figures;
use crate::api::types::{CastInfo, CastState};
use crate::events::{Event, Severity};

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
            let us = (info.ms * 1e3) as u64;
            let figures = figures::line(info.bytes, us, (info.limit_ms * 1e3) as u64);
            let text = format!("cast {id}: {name} is on {}: {figures}", info.nodes);
            (Severity::Info, text)
        }
        CastState::Cancelled => {
            let text = format!("cast {id}: {name} was cancelled: {}", info.reason);
            (Severity::Info, text)
        }
        _ => {
            let text = format!(
                "cast {id}: {name} is on {} of {} nodes, not on {failed}",
                info.done, info.nodes_total
            );
            (Severity::Warning, text)
        }
    };
    // Every job has a table, and every cold one its program: what went well is in the job's report.
    if !cast.what.is_file() && severity == Severity::Info {
        return None;
    }
    let event = Event::new(severity, "cast-ended", text);
    Some(match job {
        Some(job) => event.job(job),
        None => event,
    })
}
