//! What must hold of casts when everything has come to rest.
//!
//! What must hold at every moment is checked where it happens: by [`super::shelf`] (no block twice,
//! no wrong byte) and [`super::operator`] (nobody says that it is done and is not).
//!
//! Invariant: a run that passes has every living node with exactly what was cast, or nothing of a
//! cast that was cancelled.

use super::{Casts, table};
use crate::net::{NEVER, Net};

/// Missing nodes named in a failure.
const NAMED: usize = 8;

/// What is missing for the run to be over.
pub fn missing(casts: &Casts, net: &Net) -> String {
    let mut texts = Vec::new();
    for (plan, run) in casts.operator.runs.iter().enumerate() {
        if run.over {
            continue;
        }
        let blocks = casts.contents[plan].object.blocks();
        let lack: Vec<String> = (0..casts.setup.nodes)
            .filter(|&node| run.wanted[node as usize] && casts.lives(net, node))
            .filter(|&node| !casts.stations[node as usize].shelf.is_whole(plan))
            .map(|node| {
                let held = casts.stations[node as usize].shelf.held(plan);
                format!("n{node} has {held} of {blocks} blocks")
            })
            .collect();
        let more = match lack.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let named = lack[..lack.len().min(NAMED)].join(", ");
        texts.push(format!(
            "cast {plan} is not over ({} casts made, {}): {} nodes lack blocks: {named}{more}",
            run.casts,
            match run.id {
                Some(_) => "one under way",
                None => "none under way",
            },
            lack.len(),
        ));
    }
    texts.join("; ")
}

/// Looks ranks up at every living node that has a connection table; gives how many were. None where
/// only its length travelled.
///
/// # Errors
/// Which node finds what is not so.
pub fn tables(casts: &Casts, net: &Net) -> Result<u64, String> {
    let mut looked_up = 0;
    for (plan, cast) in casts.setup.casts.iter().enumerate() {
        let Some(count) = cast.table.filter(|_| casts.setup.real) else {
            continue;
        };
        for node in 0..casts.setup.nodes {
            let shelf = &casts.stations[node as usize].shelf;
            if !casts.lives(net, node) || !shelf.is_whole(plan) {
                continue;
            }
            let mut read = |offset, out: &mut [u8]| shelf.read_at(plan, offset, out);
            let found = table::look_up(count, casts.setup.seed, node, cast.bytes, &mut read);
            looked_up += found.map_err(|what| format!("n{node}: {what}"))?;
        }
    }
    Ok(looked_up)
}

/// What must hold at the end.
///
/// # Errors
/// What does not.
pub fn end(casts: &Casts, net: &Net) -> Result<(), String> {
    for (plan, run) in casts.operator.runs.iter().enumerate() {
        for node in 0..casts.setup.nodes {
            let station = &casts.stations[node as usize];
            if !run.wanted[node as usize] || !casts.lives(net, node) {
                continue;
            }
            if run.cancelled {
                if !station.shelf.is_whole(plan) && station.shelf.held(plan) > 0 {
                    return Err(format!("n{node} keeps a part of cast {plan}, cancelled"));
                }
                continue;
            }
            if !station.shelf.is_whole(plan) {
                return Err(format!(
                    "n{node} lacks blocks of cast {plan}, which is over"
                ));
            }
            let warm = casts.setup.casts[plan].warm.contains(&node);
            if run.complete_ns[node as usize] == NEVER && !warm {
                return Err(format!("n{node} never said that it has cast {plan}"));
            }
            if !run.told_done[node as usize] {
                return Err(format!(
                    "the source never said that n{node} has cast {plan}, which it has"
                ));
            }
        }
    }
    for (node, station) in casts.stations.iter().enumerate() {
        if station.engine.is_none() {
            continue;
        }
        if let Some(violation) = station.shelf.violations.first() {
            return Err(format!("n{node}: {violation}"));
        }
        let left = station.footprint();
        if (left.requests, left.parked, left.buffers, left.queued) != (0, 0, 0, 0) {
            return Err(format!("n{node} keeps {left:?} when all is over"));
        }
        if station.shelf.parts() > 0 && net.fabric.is_reached(node as u32) {
            return Err(format!(
                "n{node} keeps a part of an object when all is over"
            ));
        }
    }
    Ok(())
}
