//! What must hold of a run of the overlay.
//!
//! - Every back end that lives and is reached is attached before the tree is taken down.
//! - Taken down, nothing is left on any of them.
//! - The books: what back ends that live submitted is what the books say was sent. While nothing
//!   stood still, was cut off or died, every sample is stored, filtered, or was lost where it was
//!   counted: nothing is missing.
//! - What arrived is checked as it arrives, by [`super::truth`]: no row twice, no value of nobody.
//!
//! Invariant: a run that passes has its books balanced against the truth, not against themselves.

use netstack::ids::NodeId;
use netstack::overlay::Footprint;

use super::Overlay;
use crate::net::Net;
use crate::setup::Fault;

/// Longest time for which a process that dies can have kept samples: noticing, holding, three
/// levels of it.
const KEPT_NS: u64 = 8_000_000_000;

/// Back ends that live and are reached.
fn living<'a>(overlay: &Overlay, net: &'a Net) -> impl Iterator<Item = u32> + 'a {
    (overlay.plan().dedicated..net.control()).filter(|&node| net.lives(node))
}

/// Before the tree is taken down.
pub(super) fn before_down(overlay: &Overlay, net: &Net) -> Result<(), String> {
    let loose: Vec<u32> = living(overlay, net)
        .filter(|&node| {
            let machine = overlay.stations[node as usize].node.as_ref();
            !machine.is_some_and(|machine| {
                machine
                    .status()
                    .any(|status| status.slot == 0 && status.parent.is_some())
            })
        })
        .collect();
    if !loose.is_empty() {
        let roles = |node: &u32| {
            let machine = overlay.stations[*node as usize].node.as_ref();
            let status = machine.map(|machine| machine.status().collect::<Vec<_>>());
            format!("n{node} with {status:?}")
        };
        let named: Vec<String> = loose.iter().take(4).map(roles).collect();
        let (count, named) = (loose.len(), named.join(", "));
        return Err(format!("{count} back ends have no parent: {named}"));
    }
    let (attached, living) = (
        overlay
            .front
            .as_ref()
            .map_or(0, |front| front.status().back_ends),
        living(overlay, net).count() as u32,
    );
    let quiet = overlay.setup.noise.loss_ppm == 0 || overlay.is_told();
    if quiet && attached != living {
        return Err(format!(
            "the front end counts {attached} back ends, {living} live"
        ));
    }
    Ok(())
}

/// What is left of a tree on a node that lives. Words for the next tree are no part of the last
/// one.
fn left_on(overlay: &Overlay, net: &Net, node: u32) -> Option<Footprint> {
    let machine = overlay.stations[node as usize].node.as_ref()?;
    let kept = machine.footprint();
    let words = Footprint {
        words: kept.words,
        bytes: kept.bytes,
        ..Footprint::default()
    };
    let nothing = kept == words && (kept.words > 0 || kept.bytes == 0);
    (net.lives(node) && !nothing).then_some(kept)
}

/// Living nodes on which something is left.
pub(super) fn left_over(overlay: &Overlay, net: &Net) -> u32 {
    let left = |node: &u32| left_on(overlay, net, *node).is_some();
    (0..overlay.setup.nodes).filter(left).count() as u32
}

/// Something happened that can take samples with it without a trace: a node died, or one was away
/// and there is no later tree in which it could tell.
fn is_troubled(overlay: &Overlay) -> bool {
    let away = |fault: &Fault| !matches!(fault, Fault::Noise(_) | Fault::KillCp(_));
    let faults = &overlay.setup.faults;
    overlay.measures.kills > 0
        || !overlay.plan().settle && faults.iter().any(|(_, fault)| away(fault))
}

/// At the end.
pub(super) fn end(overlay: &Overlay, net: &Net) -> Result<(), String> {
    if overlay.measures.down_at.is_none() {
        return Err("the front end never said that the tree is down".into());
    }
    let left = left_over(overlay, net);
    if left > 0 {
        let what = (0..overlay.setup.nodes).find_map(|node| {
            let kept = left_on(overlay, net, node)?;
            Some(format!("n{node}: {kept:?}"))
        });
        return Err(format!(
            "{left} nodes keep something of a tree that is down: {}",
            what.unwrap_or_default()
        ));
    }
    books(overlay, net)
}

fn books(overlay: &Overlay, net: &Net) -> Result<(), String> {
    let Some(front) = &overlay.front else {
        return Err("control is off at the end".into());
    };
    let books = front.books();
    let mut sent = 0;
    let mut unknown = 0;
    for node in 0..overlay.setup.nodes {
        let station = &overlay.stations[node as usize];
        // One that has not heard of the present run of control is on nobody's books.
        let present = net.hosts[net.control() as usize].boots;
        let Some(machine) = station.node.as_ref().filter(|_| station.key_of == present) else {
            continue;
        };
        let (truth, told) = (machine.submitted(), overlay.told_of(net, node));
        sent += truth;
        unknown += truth - told.min(truth);
        if told > truth || told < truth && !is_troubled(overlay) {
            return Err(format!(
                "n{node} sent {truth} samples, the books say {told}"
            ));
        }
    }
    for (&(node, boot), &truth) in &overlay.truth.dead {
        let told = front.submitted(NodeId(node), boot);
        if told > truth {
            return Err(format!(
                "n{node} sent {truth} samples before it died, the books say {told}"
            ));
        }
        sent += truth;
        unknown += truth - told;
    }
    if books.sent + unknown != sent {
        return Err(format!(
            "{sent} samples were sent, the books say {} and lack {unknown}",
            books.sent
        ));
    }
    if !is_troubled(overlay) {
        return match (books.missing, books.unheard) {
            (0, 0) => Ok(()),
            _ => Err(format!("nobody died, and samples are missing: {books:?}")),
        };
    }
    // Those that went with processes: no more than these can have had in hand.
    let troubles = overlay.measures.kills + overlay.setup.faults.len() as u64;
    let each: u64 = (overlay.plan().specs())
        .map(|spec| KEPT_NS / 1000 / spec.period.0 + 4)
        .sum();
    let most = troubles * u64::from(overlay.setup.nodes) * each;
    if books.missing > most || books.unheard > unknown {
        return Err(format!(
            "more is missing than died ({most}), or came from nobody ({unknown}): {books:?}"
        ));
    }
    Ok(())
}
