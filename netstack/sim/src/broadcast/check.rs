//! What must hold of a run: before it, and when everything has come to rest.
//!
//! What must hold at every moment is checked where it happens: by [`super::shelf`] (no block twice,
//! no wrong byte) and [`super::operator`] (nobody says that it is done and is not).
//!
//! Invariant: a run that passes has every living node with exactly what was cast, or nothing of a
//! cast that was cancelled.

use super::ranks;
use super::setup::{Fault, Payload, Setup};
use super::station::NEVER;
use super::world::World;

/// Most nodes: addresses are numbered from 10.0.1.0 on.
const NODES_MOST: u32 = 1 << 17;
/// Missing nodes named in a failure.
const NAMED: usize = 8;

/// Whether a setup makes sense.
///
/// # Errors
/// What does not.
pub fn plans(setup: &Setup) -> Result<(), String> {
    if setup.nodes == 0 || setup.nodes > NODES_MOST {
        return Err(format!("1 to {NODES_MOST} nodes"));
    }
    for plan in &setup.casts {
        if plan.rate == Some(0) {
            return Err("a cast has a rate".into());
        }
        if plan.bytes == 0 {
            return Err("a cast has 1 byte or more".into());
        }
        if (plan.members.iter().chain(&plan.warm)).any(|&node| node >= setup.nodes) {
            return Err("a member of a cast is no node".into());
        }
    }
    for (_, fault) in &setup.faults {
        let node = match *fault {
            Fault::Die(node) | Fault::Restart(node) | Fault::Corrupt(node) => node,
            Fault::Part(node, _) => node,
            Fault::Join { cast, node } => {
                if cast >= setup.casts.len() {
                    return Err("a fault names a cast that there is not".into());
                }
                node
            }
            Fault::CrashControl | Fault::RestartControl | Fault::Noise(_) => continue,
        };
        if node >= setup.nodes {
            return Err("a fault hits a node that there is not".into());
        }
    }
    Ok(())
}

/// What is missing for the run to be over.
pub fn missing(world: &World) -> String {
    let mut texts = Vec::new();
    for (plan, run) in world.operator.runs.iter().enumerate() {
        if run.over {
            continue;
        }
        let blocks = world.contents[plan].object.blocks();
        let lack: Vec<String> = (0..world.setup.nodes)
            .filter(|&node| run.wanted[node as usize] && world.lives(node))
            .filter(|&node| !world.stations[node as usize].shelf.is_whole(plan))
            .map(|node| {
                let held = world.stations[node as usize].shelf.held(plan);
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
pub fn tables(world: &World) -> Result<u64, String> {
    let mut looked_up = 0;
    for (plan, cast) in world.setup.casts.iter().enumerate() {
        let Some(count) = cast.table.filter(|_| world.setup.payload == Payload::Real) else {
            continue;
        };
        for node in 0..world.setup.nodes {
            let shelf = &world.stations[node as usize].shelf;
            if !world.lives(node) || !shelf.is_whole(plan) {
                continue;
            }
            let mut read = |offset, out: &mut [u8]| shelf.read_at(plan, offset, out);
            let found = ranks::look_up(count, world.setup.seed, node, cast.bytes, &mut read);
            looked_up += found.map_err(|what| format!("n{node}: {what}"))?;
        }
    }
    Ok(looked_up)
}

/// What must hold at the end.
///
/// # Errors
/// What does not.
pub fn end(world: &World) -> Result<(), String> {
    for (plan, run) in world.operator.runs.iter().enumerate() {
        for node in 0..world.setup.nodes {
            let station = &world.stations[node as usize];
            if !run.wanted[node as usize] || !world.lives(node) {
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
            let warm = world.setup.casts[plan].warm.contains(&node);
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
    for (node, station) in world.stations.iter().enumerate() {
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
        if station.shelf.parts() > 0 && world.fabric.part(node as u32) == 0 {
            return Err(format!(
                "n{node} keeps a part of an object when all is over"
            ));
        }
    }
    Ok(())
}
