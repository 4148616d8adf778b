//! The user of the simulated control node: begins casts, hears how they go, and does what a control
//! service does when nodes come late, fail or are lost, or when it was restarted itself.
//!
//! Key types: [`Operator`], [`CastRun`]. Neighbours: [`super::Casts`] calls it with the events of
//! all engines.
//!
//! Invariant: a cast is over only when the source said so and every living member has the object,
//! or when it was cancelled.

use std::sync::Arc;

use netstack::broadcast::{
    CastId, CastSpec, FailReason, MemberEvent, MemberFailure, Part, Purpose, Scheme, SourceEvent,
    Want,
};
use netstack::ids::NodeId;

use super::plan::CastPlan;
use super::shelf::Content;
use super::{Action, Casts};
use crate::net::{NEVER, Net, peer};
use crate::setup::{Fault, Setup};
use crate::world;

/// Time from a node's failure or restart until the control node has it join again.
const REJOIN_NS: u64 = 100_000_000;
/// Times that a cast is begun anew for members that did not get it.
const RECASTS: u32 = 8;
/// Times that a node is told again to join the same cast.
const REJOINS: u32 = 8;

/// One planned cast, over all casts that were made for it.
#[derive(Debug)]
pub struct CastRun {
    /// The number it has now.
    pub id: Option<CastId>,
    /// Its time has come.
    pub due: bool,
    /// Casts that were made for it.
    pub casts: u32,
    /// Nodes that should have it: a bit for each.
    pub wanted: Vec<bool>,
    /// When each node had everything first, in nanoseconds.
    pub complete_ns: Vec<u64>,
    /// Nodes of which the source said that they are done.
    pub told_done: Vec<bool>,
    /// The boot of each node that the source was told of last.
    pub known_boots: Vec<u64>,
    /// Nodes of which the source said that they will not finish, and how often.
    pub told_failed: Vec<u32>,
    /// Nodes of which the source said that they have no room for it.
    pub refused: u32,
    /// Blocks that came with wrong bytes, by sender.
    pub corrupt: Vec<(Option<u32>, u32)>,
    /// It was cancelled.
    pub cancelled: bool,
    /// When the source said that it has finished.
    pub finished_ns: Option<u64>,
    /// Nothing is left to do.
    pub over: bool,
}

/// The control node's user.
pub struct Operator {
    /// The casts in the order of the plans.
    pub runs: Vec<CastRun>,
    /// All casts that were made, latest last, and the plan each was for.
    ids: Vec<(CastId, usize)>,
    next_id: u64,
    /// What share of each cast's blocks the nodes had when a node first had all of one.
    pub shares: Vec<f64>,
}

impl Operator {
    /// Before anything has begun.
    pub fn new(setup: &Setup, contents: &Arc<Vec<Content>>) -> Self {
        debug_assert_eq!(setup.casts.len(), contents.len());
        let nodes = setup.nodes as usize;
        let runs = setup.casts.iter().map(|plan| {
            let mut wanted = vec![false; nodes];
            for &node in &plan.members {
                wanted[node as usize] = true;
            }
            CastRun {
                id: None,
                due: false,
                casts: 0,
                wanted,
                complete_ns: vec![NEVER; nodes],
                told_done: vec![false; nodes],
                known_boots: vec![0; nodes],
                told_failed: vec![0; nodes],
                refused: 0,
                corrupt: Vec::new(),
                cancelled: false,
                finished_ns: None,
                over: false,
            }
        });
        Operator {
            runs: runs.collect(),
            ids: Vec::new(),
            next_id: 1,
            shares: Vec::new(),
        }
    }

    /// The plan that a cast was made for.
    pub fn plan_of(&self, cast: CastId) -> Option<usize> {
        let found = self.ids.iter().rev().find(|&&(id, _)| id == cast);
        found.map(|&(_, plan)| plan)
    }

    /// Whether all casts are over.
    pub fn is_over(&self) -> bool {
        self.runs.iter().all(|run| run.over)
    }

    /// The control node is killed.
    pub fn crash(&mut self) {
        for run in &mut self.runs {
            run.id = None;
            // Its nodes drop a cast of the run before: there is nothing to go on with.
            run.over |= run.cancelled;
        }
        // Numbers rise over restarts.
        self.next_id = (self.next_id | 0xf_ffff) + 1;
    }

    fn new_id(&mut self, plan: usize) -> CastId {
        let id = CastId(self.next_id);
        self.next_id += 1;
        self.ids.push((id, plan));
        self.runs[plan].id = Some(id);
        self.runs[plan].casts += 1;
        id
    }
}

impl Casts {
    /// Takes the events of a node, which happened at `at`.
    pub(super) fn member_events(&mut self, net: &Net, node: u32, at: u64) -> Result<(), String> {
        let now = net.clock_at(node, at);
        loop {
            let station = &mut self.stations[node as usize];
            let Some(member) = station.member() else {
                return Ok(());
            };
            let Some(event) = member.poll_event() else {
                break;
            };
            match event {
                MemberEvent::Stored { .. } => {}
                MemberEvent::Announced { cast, object, .. } => {
                    let Some(plan) = self.operator.plan_of(cast) else {
                        return Err(format!("n{node} heard of {cast:?}, which there is not"));
                    };
                    let expected = &self.contents[plan].object;
                    if object != *expected {
                        return Err(format!("n{node} heard of another object for {cast:?}"));
                    }
                    let super::station::Station { engine, shelf, .. } = station;
                    shelf.open(cast, plan);
                    let Some(super::station::Engine::Member(member)) = engine else {
                        return Ok(());
                    };
                    member.accept(now, cast, Want::All, &mut |part: Part| {
                        shelf.has(plan, expected.block_of(part))
                    });
                }
                MemberEvent::Complete { cast } => {
                    let plan = self.operator.plan_of(cast).expect("announced");
                    if !station.shelf.is_whole(plan) {
                        return Err(format!(
                            "n{node} says that {cast:?} is complete and lacks blocks"
                        ));
                    }
                    if self.operator.shares.is_empty() {
                        self.operator.shares = self.shares();
                    }
                    let first = &mut self.operator.runs[plan].complete_ns[node as usize];
                    *first = (*first).min(at);
                }
                MemberEvent::Ended { cast, .. } => station.shelf.close(cast),
                MemberEvent::Failed { cast, .. } => station.shelf.close(cast),
            }
        }
        match self.stations[node as usize].shelf.violations.first() {
            Some(violation) => Err(format!("n{node}: {violation}")),
            None => Ok(()),
        }
    }

    /// Takes the events of the control node.
    pub(super) fn source_events(&mut self, net: &mut Net) -> Result<(), String> {
        let control = net.control() as usize;
        loop {
            let Some(source) = self.stations[control].source() else {
                return Ok(());
            };
            let Some(event) = source.poll_event() else {
                return Ok(());
            };
            match event {
                SourceEvent::Progress { .. } => {}
                SourceEvent::MemberDone { cast, node } => {
                    let Some(plan) = self.operator.plan_of(cast) else {
                        return Err(format!("{cast:?} is unknown, says {node}"));
                    };
                    let station = &self.stations[node.0 as usize];
                    // What a boot had that is over is believed until the operator says that there
                    // is another.
                    let is_known = self.operator.runs[plan].known_boots[node.0 as usize]
                        == net.hosts[node.0 as usize].boots;
                    if station.engine.is_some() && is_known && !station.shelf.is_whole(plan) {
                        return Err(format!("{node} is done with {cast:?} but lacks blocks"));
                    }
                    self.operator.runs[plan].told_done[node.0 as usize] = true;
                }
                SourceEvent::MemberFailed { cast, node, reason } => {
                    let alive = self.lives(net, node.0) && self.is_untroubled(net, node.0);
                    let plan = self.operator.plan_of(cast).ok_or("unknown cast")?;
                    let bounded = self.setup.members_most(node.0) > 0;
                    if bounded && reason == MemberFailure::Reported(FailReason::NoRoom) {
                        // It is told to whoever wants it there, and not tried again.
                        self.operator.runs[plan].wanted[node.0 as usize] = false;
                        self.operator.runs[plan].refused += 1;
                        continue;
                    }
                    if alive && matches!(reason, MemberFailure::Reported(_)) {
                        return Err(format!("{node} was given up ({reason:?}) and lives"));
                    }
                    let run = &mut self.operator.runs[plan];
                    run.told_failed[node.0 as usize] += 1;
                    let tries = run.told_failed[node.0 as usize];
                    if self.lives(net, node.0)
                        && !self.operator.runs[plan].cancelled
                        && tries <= REJOINS
                    {
                        net.schedule(
                            net.now() + REJOIN_NS,
                            world::Action::Cast(Action::Join(plan, node.0)),
                        );
                    }
                }
                SourceEvent::CorruptSender { cast, node, count } => {
                    let plan = self.operator.plan_of(cast).ok_or("unknown cast")?;
                    let node = node.map(|node| node.0);
                    self.operator.runs[plan].corrupt.push((node, count));
                }
                SourceEvent::Finished { cast, .. } => self.finished(net, cast)?,
            }
        }
    }

    /// What share of each cast's blocks its members have.
    fn shares(&self) -> Vec<f64> {
        if self.setup.casts.len() < 2 {
            return vec![1.0];
        }
        let share = |(plan, cast): (usize, &CastPlan)| {
            let blocks = f64::from(self.contents[plan].object.blocks()) * cast.members.len() as f64;
            let held = |&node: &u32| f64::from(self.stations[node as usize].shelf.held(plan));
            cast.members.iter().map(held).sum::<f64>() / blocks
        };
        self.setup.casts.iter().enumerate().map(share).collect()
    }

    /// Whether a node is on and can be reached, as far as control knows.
    pub(super) fn lives(&self, net: &Net, node: u32) -> bool {
        match self.is_told() {
            true => self.up[node as usize],
            false => self.stations[node as usize].engine.is_some() && net.lives(node),
        }
    }

    /// Whether nothing ever befell a node, and no part of the network was cut off (whoever is cut
    /// off takes others for dead), so that giving it up is a fault of the engine.
    fn is_untroubled(&self, net: &Net, node: u32) -> bool {
        let cuts = |fault: &Fault| {
            matches!(
                fault,
                Fault::Part(..) | Fault::Mute(..) | Fault::CrashControl | Fault::Stop(_)
            )
        };
        if self.is_told() {
            return false;
        }
        let mut faults = self.setup.faults.iter();
        net.hosts[node as usize].boots == 1 && !faults.any(|(_, fault)| cuts(fault))
    }

    /// Nodes that should have an object and can be reached.
    fn members_of(&self, net: &Net, plan: usize) -> Vec<u32> {
        let wanted = &self.operator.runs[plan].wanted;
        (0..self.setup.nodes)
            .filter(|&node| wanted[node as usize] && self.lives(net, node))
            .collect()
    }

    /// Whether everybody who can have an object has it.
    pub(super) fn is_everywhere(&self, net: &Net, plan: usize) -> bool {
        (self.members_of(net, plan).iter())
            .all(|&node| self.stations[node as usize].shelf.is_whole(plan))
    }

    fn finished(&mut self, net: &mut Net, cast: CastId) -> Result<(), String> {
        let plan = self.operator.plan_of(cast).ok_or("unknown cast")?;
        let now = net.now();
        let run = &mut self.operator.runs[plan];
        if run.id != Some(cast) {
            return Ok(());
        }
        run.id = None;
        if run.cancelled {
            run.finished_ns = Some(now);
            run.over = true;
        } else if self.is_everywhere(net, plan) {
            let run = &mut self.operator.runs[plan];
            run.finished_ns = Some(now);
            run.over = true;
        } else {
            self.begin_cast(net, plan)?;
        }
        Ok(())
    }

    /// Does what is due.
    pub(super) fn operate(&mut self, net: &mut Net, action: Action) -> Result<(), String> {
        let control = net.control();
        let now = net.clock(control);
        match action {
            Action::Cast(plan) => {
                self.operator.runs[plan].due = true;
                self.begin_cast(net, plan)?;
            }
            Action::Cancel(plan) => {
                let run = &mut self.operator.runs[plan];
                if run.over {
                    return Ok(());
                }
                run.cancelled = true;
                let id = run.id;
                match (id, self.stations[control as usize].source()) {
                    (Some(id), Some(source)) => source.cancel(now, id),
                    // The control node is off: there is nothing to begin again.
                    _ => self.operator.runs[plan].over = true,
                }
            }
            Action::Missed(node, boots) => {
                let station = &self.stations[node as usize];
                let gone = station.engine.is_none() && net.hosts[node as usize].boots == boots;
                if let (true, Some(source)) = (gone, self.stations[control as usize].source()) {
                    source.lost(now, NodeId(node));
                }
            }
            Action::Join(plan, node) => {
                self.operator.runs[plan].wanted[node as usize] = true;
                let id = self.operator.runs[plan].id;
                let run = &self.operator.runs[plan];
                // What has not begun will have it among its members.
                if run.cancelled || !run.due || !self.lives(net, node) {
                    return Ok(());
                }
                if self.stations[node as usize].shelf.is_whole(plan) && id.is_none() {
                    // The node says so itself when it is back.
                    self.operator.runs[plan].told_done[node as usize] = true;
                    return Ok(());
                }
                let boots = net.hosts[node as usize].boots;
                self.operator.runs[plan].known_boots[node as usize] = boots;
                let boot = net.boot(node);
                match (id, self.stations[control as usize].source()) {
                    (Some(id), Some(source)) => {
                        let joins = source.join(now, id, NodeId(node), (peer(node), boot));
                        // It says so itself, as above; else there is another cast for it.
                        if !joins && self.stations[node as usize].shelf.is_whole(plan) {
                            self.operator.runs[plan].told_done[node as usize] = true;
                        }
                    }
                    (None, Some(_)) => self.begin_cast(net, plan)?,
                    (_, None) => {}
                }
            }
            Action::Hear(_) | Action::Lapse(..) => {
                unreachable!("of nodes, not of control")
            }
        }
        net.ask(control);
        Ok(())
    }

    /// Begins a cast for a plan, also anew: for members that did not get it.
    fn begin_cast(&mut self, net: &mut Net, plan: usize) -> Result<(), String> {
        let control = net.control();
        if self.operator.runs[plan].cancelled || self.stations[control as usize].engine.is_none() {
            return Ok(());
        }
        let again = self.operator.runs[plan].casts > 0;
        let most = match self.is_told() {
            false => RECASTS,
            // After each fault nodes may come one after the other.
            true => (self.setup.faults.len() as u32 + RECASTS) * self.setup.nodes,
        };
        if self.operator.runs[plan].casts > most {
            return Err(format!("cast {plan} was begun {most} times in vain"));
        }
        let mut members: Vec<(NodeId, netstack::broadcast::Peer, bool)> = Vec::new();
        for &node in &self.setup.casts[plan].members {
            let warm = self.setup.casts[plan].warm.contains(&node) && !again;
            if self.lives(net, node) || !again {
                members.push((NodeId(node), peer(node), warm));
            }
        }
        for node in self.members_of(net, plan) {
            if !members.iter().any(|&(member, ..)| member.0 == node) {
                members.push((NodeId(node), peer(node), false));
            }
        }
        if members.is_empty() {
            self.operator.runs[plan].over = true;
            return Ok(());
        }
        let scheme = match self.setup.casts[plan].scheme.clone() {
            // Nodes may have died since it was chosen.
            Scheme::Grid { n1 } if n1 as usize > members.len() => Scheme::Auto,
            scheme => scheme,
        };
        for (node, ..) in &members {
            let node = node.0 as usize;
            self.operator.runs[plan].known_boots[node] = net.hosts[node].boots;
        }
        let now = net.clock(control);
        self.operator.runs[plan].over = false;
        let id = self.operator.new_id(plan);
        let spec = CastSpec {
            id,
            object: self.contents[plan].object.clone(),
            purpose: Purpose::File {
                name: format!("cast-{plan}"),
            },
            job: None,
            members,
            scheme,
            rate: self.setup.casts[plan].rate.unwrap_or(0) / 8,
        };
        let station = &mut self.stations[control as usize];
        station.shelf.open(id, plan);
        let source = station.source().expect("it is on");
        source
            .cast(now, spec)
            .map_err(|error| format!("cast {plan}: {error}"))?;
        net.ask(control);
        Ok(())
    }

    /// The control node is back: everything that is not over begins anew.
    pub(super) fn recast(&mut self, net: &mut Net) -> Result<(), String> {
        for plan in 0..self.operator.runs.len() {
            let run = &self.operator.runs[plan];
            // A node drops what it has of a cancelled cast when it hears of the new run.
            if run.due && !run.over {
                self.begin_cast(net, plan)?;
            }
        }
        Ok(())
    }

    /// A node is back: it joins what it should have.
    pub(super) fn rejoin(&mut self, net: &mut Net, node: u32) {
        for plan in 0..self.operator.runs.len() {
            let run = &self.operator.runs[plan];
            if run.wanted[node as usize] && run.due && !run.cancelled {
                net.schedule(
                    net.now() + REJOIN_NS,
                    world::Action::Cast(Action::Join(plan, node)),
                );
            }
        }
    }
}
