//! Casts: what goes to many nodes at once - files, programs of jobs, connection tables.
//!
//! | module | purpose |
//! |---|---|
//! | [`object`] | a file and the hashes of its blocks |
//! | [`shelf`] | where the source reads what it sends |
//! | [`cast`] | one cast: what, to whom, how far |
//! | [`files`] | names of files, and which node holds which |
//! | [`order`] | what is asked of casts, and what comes of it |
//! | [`announcing`] | casts go to the source, to nodes that have room |
//! | [`asking`] | who wants a cast, and leaves it |
//! | [`coming`] | nodes that come and go while casts are under way |
//! | [`resume`] | casts of an earlier run of control |
//! | [`ending`] | how the end of a cast is told |
//! | [`for_jobs`] | what jobs have cast |
//! | [`waits`] | jobs that wait for files |
//! | [`figures`] | what a cast is measured by |
//! | [`reads`] | files that many nodes of a job read |
//!
//! Key types: [`Casts`], [`Order`], [`Outcome`]. Neighbours: `netstack::broadcast::Source` (all
//! protocol), `control` (drives it, on the endpoint's socket), `control_events` (nodes that come
//! and go), `api::casts`, the job runner through its fabric.
//!
//! Invariants: every cast ends, or waits for nodes that it was told to wait for; a content has one
//! cast at a time, but for those of jobs; who is cast a file holds it or is named with the reason;
//! a cast that was cancelled leaves nothing on the nodes that did not hold it before.

mod announcing;
mod asking;
pub mod cast;
pub mod coming;
mod ending;
pub mod figures;
pub mod files;
pub mod for_jobs;
pub mod object;
pub mod order;
pub mod reads;
mod resume;
pub mod shelf;
#[cfg(test)]
mod tests;
mod waits;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;

use hearth_store::{Batch, CastRow};
use netstack::broadcast::{
    FailReason, MemberFailure, Peer, Progress, Source, SourceConfig, SourceEvent,
};
use netstack::ids::BootEpoch;
use netstack::time::Instant;
use netstack::wire::key::Key;
use tokio::sync::watch;

use crate::api::types::CastInfo;
use crate::config;
use crate::events::{Event, Severity};
use crate::hosted::{self, send};
use crate::programs::{Hash, short_id};
use crate::{clock, hostlist};
use cast::{Asker, Cast, Fate, Idle, What};
use ending::Ended;
use files::{Files, NotNamed};
use object::Described;
pub use order::{NotUnderWay, Order, Outcome, Refused};
use shelf::Shelf;
use waits::Waits;

/// Casts that have ended and are still shown.
const ENDED_MAX: usize = 64;

/// Casts that are not over, those that wait for nodes included: the source's own bound.
const CASTS_MAX: usize = 64;

/// A node in service.
#[derive(Debug, Clone, Copy)]
struct Up {
    peer: Peer,
    boot: BootEpoch,
    memory_bytes: u64,
}

/// All casts.
#[derive(Debug)]
pub struct Casts {
    source: Source,
    shelf: Shelf,
    config: config::Broadcast,
    under_way: BTreeMap<u64, Cast>,
    ended: VecDeque<Ended>,
    /// Names and holders of files.
    pub files: Files,
    waits: Waits,
    reads: reads::Reads,
    up: BTreeMap<u32, Up>,
    /// Nodes that left in good order and have not come back.
    left: BTreeSet<u32>,
    /// Nodes on each leaf switch; 0: there is no tree.
    leaf_width: u32,
    next_id: u64,
    next_wire: u64,
    next_request: u64,
    /// The first of this run.
    first_request: u64,
    /// Casts of which jobs are to hear at the next settling.
    stirred: BTreeSet<u64>,
    outcomes: Vec<Outcome>,
    events: Vec<Event>,
    batch: Batch,
    version: watch::Sender<u64>,
}

/// What [`Casts::new`] needs to know.
#[derive(Debug)]
pub struct Setup {
    /// Where control is reached.
    pub me: Peer,
    /// The key of this run.
    pub key: Key,
    /// For random choices.
    pub seed: u64,
    /// Section `[broadcast]`.
    pub config: config::Broadcast,
    /// Nodes on each leaf switch of the network's tree; 0: there is none.
    pub leaf_width: u32,
    /// Files as the store knows them.
    pub files: Files,
    /// Number of the next cast.
    pub next_id: u64,
}

impl Casts {
    /// No casts yet.
    pub fn new(setup: Setup, now: Instant) -> Self {
        let limits = netstack::broadcast::Limits {
            casts: CASTS_MAX,
            ..Default::default()
        };
        let first_request = (clock::unix_us() / 1_000_000) << 20;
        let source = SourceConfig {
            me: setup.me,
            key: setup.key,
            rate: setup.config.rate.bytes_per_second(),
            seed: setup.seed,
            limits,
        };
        Casts {
            source: Source::new(source, now),
            shelf: Shelf::default(),
            config: setup.config,
            under_way: BTreeMap::new(),
            ended: VecDeque::new(),
            files: setup.files,
            waits: Waits::default(),
            reads: reads::Reads::default(),
            up: BTreeMap::new(),
            left: BTreeSet::new(),
            leaf_width: setup.leaf_width,
            next_id: setup.next_id,
            // Rises over restarts, which the store need not know of.
            next_wire: (clock::unix_us() / 1_000_000) << 20,
            next_request: first_request,
            first_request,
            stirred: BTreeSet::new(),
            outcomes: Vec::new(),
            events: Vec::new(),
            batch: Batch::default(),
            version: watch::Sender::new(0),
        }
    }

    /// Bytes a second of a node's link, as configured.
    pub fn rate(&self) -> u64 {
        self.config.rate.bytes_per_second()
    }

    /// Section `[broadcast]`.
    pub fn config(&self) -> &config::Broadcast {
        &self.config
    }

    /// Begins a cast, or adds nodes to the one of the same file that is under way; gives its
    /// number.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn begin(&mut self, now: Instant, mut order: Order) -> Result<u64, Refused> {
        self.check(&order)?;
        let object = order.described.object.clone();
        let same = self.under_way.values().find(|cast| {
            order.what.is_file()
                && cast.what.is_file()
                && cast.described.object.id == object.id
                && cast.cancelled.is_none()
        });
        let same = same.map(|cast| cast.id);
        match same.and_then(|id| self.under_way.get(&id)) {
            Some(cast) => cast.can_be_joined(&order)?,
            None if self.under_way.len() >= CASTS_MAX => {
                return Err(Refused::TooMany(self.under_way.len()));
            }
            None => {}
        }
        if let What::File { name, job } = &mut order.what {
            match self.name(name, &object.id, object.bytes) {
                // A job finds its file by its content: an older one of that name may stay.
                Err(Refused::NameTaken { .. }) if job.is_some() => {
                    *name = another_name(name, &object.id);
                    self.name(name, &object.id, object.bytes)?;
                }
                named => named?,
            }
            self.spare(&order.nodes, &object.id);
        }
        if let Some(id) = same {
            self.join(now, id, &order);
            return Ok(id);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.batch.number_casts_from(self.next_id);
        let held = |node: &u32| order.holders.contains(node);
        let fate = |node: &u32| match self.up.contains_key(node) {
            _ if held(node) => Fate::Held,
            true => Fate::Coming,
            false => Fate::Absent,
        };
        let nodes: BTreeMap<u32, Fate> =
            order.nodes.iter().map(|node| (*node, fate(node))).collect();
        let others = order.holders.iter().copied();
        let others: Vec<u32> = others.filter(|node| !nodes.contains_key(node)).collect();
        let helpers = announcing::helpers(&others, id);
        let cast = Cast {
            id,
            wire: None,
            what: order.what,
            described: order.described,
            unread: false,
            content: order.content,
            scheme: order.scheme.unwrap_or(self.config.scheme),
            rate: order.rate.unwrap_or(self.rate()),
            nodes,
            helpers,
            progress: Progress::default(),
            sent_before: (0, 0),
            corrupt: 0,
            began_us: now.as_micros(),
            done_us: None,
            began_unix_us: clock::unix_us(),
            earlier_us: None,
            patient: order.patient,
            holds_until_us: None,
            returning: BTreeMap::new(),
            cancelled: None,
            askers: BTreeMap::from([(order.asker, order.nodes.iter().copied().collect())]),
            unwanted: BTreeSet::new(),
            spared: BTreeSet::new(),
            idle: Idle::default(),
            held_up: BTreeSet::new(),
        };
        if let What::File { name, .. } = &cast.what {
            let nodes: Vec<u32> = cast.nodes.keys().copied().collect();
            let text = format!(
                "cast {id}: {name} ({} bytes) to {}",
                object.bytes,
                hostlist::format(&nodes)
            );
            self.events
                .push(Event::new(Severity::Info, "cast-started", text));
        }
        self.under_way.insert(id, cast);
        self.write_down(id);
        if let Err(error) = self.announce(now, id) {
            self.under_way.remove(&id);
            self.batch.end_cast(id);
            self.tidy();
            return Err(Refused::Protocol(error.to_string()));
        }
        self.end_if_settled(now, id);
        self.changed();
        Ok(id)
    }

    fn check(&self, order: &Order) -> Result<(), Refused> {
        if order.nodes.is_empty() {
            return Err(Refused::NoNodes);
        }
        let absent: Vec<u32> = order
            .nodes
            .iter()
            .copied()
            .filter(|node| !self.up.contains_key(node))
            .collect();
        if !absent.is_empty() && !order.patient {
            return Err(Refused::NotUp(hostlist::format(&sorted(absent))));
        }
        let bytes = order.described.object.bytes;
        for node in order.nodes.iter().filter(|_| order.what.is_file()) {
            if let Some(up) = self.up.get(node).filter(|up| up.memory_bytes / 2 < bytes) {
                return Err(Refused::TooLarge {
                    bytes,
                    node: hostlist::name(*node),
                    memory: up.memory_bytes,
                });
            }
        }
        Ok(())
    }

    fn name(&mut self, name: &str, object: &Hash, bytes: u64) -> Result<(), Refused> {
        hosted::check_name(name)?;
        // A name whose file nobody holds any more is free.
        self.tidy();
        self.files
            .name(name, *object, bytes, clock::unix_us())
            .map_err(|error| match error {
                NotNamed::TooMany => Refused::TooManyNames,
                NotNamed::Taken(other) => {
                    let holders: Vec<u32> = self.files.holders(&other).into_iter().collect();
                    let on = match holders.is_empty() {
                        true => String::new(),
                        false => format!(", on {}", hostlist::format(&holders)),
                    };
                    Refused::NameTaken {
                        name: name.to_string(),
                        id: short_id(&other),
                        on,
                    }
                }
            })
    }

    fn add_nodes(&mut self, now: Instant, id: u64, nodes: &[u32], patient: bool) {
        let Some(cast) = self.under_way.get_mut(&id) else {
            return;
        };
        cast.patient |= patient;
        let object = cast.described.object.id;
        let mut joining = Vec::new();
        for node in nodes {
            let up = self.up.get(node);
            let fate = match up {
                _ if self.files.holds(*node, &object) => Fate::Held,
                Some(_) => Fate::Coming,
                None => Fate::Absent,
            };
            let known = cast.nodes.get(node);
            if known.is_some_and(|known| !matches!(known, Fate::Failed(_))) {
                continue;
            }
            cast.nodes.insert(*node, fate.clone());
            joining.extend((fate == Fate::Coming).then_some(*node));
        }
        if cast.wire.is_some() {
            joining
                .into_iter()
                .for_each(|node| self.join_source(now, id, node));
        }
        // Where it waited for others alone, these are here.
        self.announce_late(now, id);
        self.write_down(id);
        self.changed();
    }

    /// Writes a file's cast down, so that a later run of control goes on with it.
    fn write_down(&mut self, id: u64) {
        let Some(cast) = self.under_way.get(&id) else {
            return;
        };
        let What::File { name, job: None } = &cast.what else {
            return;
        };
        if cast.cancelled.is_some() {
            // The next run would cast it on.
            return;
        }
        let nodes: Vec<u32> = cast.nodes.keys().copied().collect();
        self.batch.put_cast(CastRow {
            id,
            name: name.clone(),
            object: cast.described.object.id,
            nodes: hostlist::format(&nodes),
            scheme: cast.scheme.word().to_string(),
            rate: cast.rate,
            patient: cast.patient,
            began_unix_us: cast.began_unix_us,
        });
    }

    /// Ends a cast before its time.
    ///
    /// # Errors
    /// There is no such cast, or it is over.
    pub fn cancel(&mut self, now: Instant, id: u64, why: &str) -> Result<(), NotUnderWay> {
        let Some(cast) = self.under_way.get_mut(&id) else {
            return Err(match self.ended.iter().any(|ended| ended.info.id == id) {
                true => NotUnderWay::Ended(id),
                false => NotUnderWay::Unknown(id),
            });
        };
        if cast.cancelled.is_none() {
            cast.cancelled = Some(why.to_string());
            let wire = cast.wire;
            self.forget_cancelled(id);
            match wire {
                Some(wire) => self.source.cancel(now, wire),
                None => self.end(now, id),
            }
            self.changed();
        }
        Ok(())
    }

    /// Takes a datagram of a cast.
    pub fn handle_datagram(&mut self, now: Instant, from: SocketAddrV4, datagram: &[u8]) {
        self.source
            .handle_datagram(now, from, datagram, &mut self.shelf);
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut [u8]) -> Option<(SocketAddrV4, usize)> {
        let sent = self.source.poll_transmit(now, out, &mut self.shelf);
        sent.map(|(to, length)| (to.addr, length))
    }

    /// When there is something to do without other cause.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let casts = self.under_way.values();
        let waits =
            casts.flat_map(|cast| cast.holds_until_us.iter().chain(cast.returning.values()));
        let waits = waits.min().copied().map(Instant::from_micros);
        [self.source.poll_timeout(), waits]
            .into_iter()
            .flatten()
            .min()
    }

    /// Acts on what the source says and on what is due.
    pub fn settle(&mut self, now: Instant) {
        while let Some(event) = self.source.poll_event() {
            self.handle(now, event);
        }
        let due = |cast: &&Cast| {
            cast.holds_until_us
                .is_some_and(|until| until <= now.as_micros())
        };
        let due: Vec<u64> = self
            .under_way
            .values()
            .filter(due)
            .map(|cast| cast.id)
            .collect();
        for id in due {
            if let Some(cast) = self.under_way.get_mut(&id) {
                cast.holds_until_us = None;
                let patient = cast.patient;
                for fate in cast.nodes.values_mut() {
                    if *fate == Fate::Absent && !patient {
                        let why = "did not come back after the control node was started again";
                        *fate = Fate::Failed(why.to_string());
                    }
                }
            }
            self.announce_late(now, id);
            self.end_if_settled(now, id);
            self.changed();
        }
        self.give_up_returning(now);
        for cast in self.under_way.values_mut() {
            cast.count_idle(now.as_micros());
        }
        for id in std::mem::take(&mut self.stirred) {
            self.tell_job(now, id, false);
            self.hear(now, id);
        }
    }

    fn handle(&mut self, now: Instant, event: SourceEvent) {
        let wire = match &event {
            SourceEvent::Progress { cast, .. }
            | SourceEvent::MemberDone { cast, .. }
            | SourceEvent::MemberFailed { cast, .. }
            | SourceEvent::CorruptSender { cast, .. }
            | SourceEvent::Finished { cast, .. } => *cast,
        };
        let cast = self.under_way.values_mut();
        let Some(cast) = cast.into_iter().find(|cast| cast.wire == Some(wire)) else {
            return;
        };
        let id = cast.id;
        // A job hears of each step, not of each node that has it: that would be the square of their
        // number.
        if !matches!(event, SourceEvent::MemberDone { .. }) {
            self.stirred.insert(id);
        }
        match event {
            SourceEvent::Progress { progress, .. } => cast.progress = progress,
            SourceEvent::MemberDone { node, .. } => {
                let fate = cast.nodes.get_mut(&node.0);
                if let Some(fate) = fate.filter(|fate| **fate != Fate::Held) {
                    *fate = Fate::Done;
                    cast.note_done(now.as_micros());
                    if cast.what.is_file() {
                        let object = cast.described.object.id;
                        self.files.hold(node.0, object, clock::unix_us());
                    }
                }
            }
            SourceEvent::MemberFailed { node, reason, .. } => self.failed(id, node.0, reason),
            SourceEvent::CorruptSender { node, count, .. } => {
                cast.corrupt += u64::from(count);
                let who = node.map_or("the control node".to_string(), |node| node.to_string());
                let text = format!(
                    "cast {id}: {who} sent {count} damaged blocks of {}, which were fetched again; if that repeats, test its memory",
                    cast.what.name()
                );
                let event = Event::new(Severity::Warning, "cast-corrupt", text);
                self.events.push(match node {
                    Some(node) => event.node(node.0),
                    None => event,
                });
            }
            SourceEvent::Finished { .. } => self.finished(now, id),
        }
        self.changed();
    }

    fn failed(&mut self, id: u64, node: u32, reason: MemberFailure) {
        let mut others = self.under_way.values().filter(|cast| cast.id != id);
        let has_others = others.any(|cast| cast.wire.is_some() && cast.involves(node));
        let Some(cast) = self.under_way.get_mut(&id) else {
            return;
        };
        let awaited = cast.patient || cast.returning.contains_key(&node);
        let patient = awaited && reason == MemberFailure::Lost;
        let (name, nodes) = (cast.what.name(), cast.nodes.len());
        let Some(fate) = cast.nodes.get_mut(&node) else {
            return;
        };
        // A helper that does not want to help is no loss; and what one has, it has.
        if *fate != Fate::Coming {
            return;
        }
        if patient {
            *fate = Fate::Absent;
            return;
        }
        let why = match reason {
            MemberFailure::Reported(FailReason::NoRoom) => {
                let memory = self.up.get(&node).map_or(0, |up| up.memory_bytes);
                format!(
                    "has no room for {} bytes beside the casts under way (files may take half of its memory of {memory} bytes, and {} are taken; `hearth casts drop` lets go of files), or none for the addresses of {nodes} nodes",
                    cast.described.object.bytes,
                    self.files.bytes_on(node),
                )
            }
            // A node without room beside its other casts is silent, too, until one of them is over.
            MemberFailure::Reported(FailReason::Dead) if has_others => {
                "does not answer, or waited too long for room beside other casts; cast it again when `hearth casts` has none of them any more".to_string()
            }
            MemberFailure::Lost if self.left.contains(&node) => "left in good order".to_string(),
            reason => send::describe(reason).to_string(),
        };
        *fate = Fate::Failed(why.clone());
        // What is read from the service instead is no loss.
        let is_loss = !matches!(cast.what, What::Read { .. });
        if is_loss && reason != MemberFailure::Cancelled {
            let text = format!("cast {id}: {} {why} ({name})", hostlist::name(node));
            let event = Event::new(Severity::Warning, "cast-node-failed", text);
            self.events.push(event.node(node));
        }
    }

    /// The source is through with a cast.
    fn finished(&mut self, now: Instant, id: u64) {
        let Some(cast) = self.under_way.get_mut(&id) else {
            return;
        };
        if let Some(wire) = cast.wire.take() {
            self.shelf.remove(wire);
        }
        cast.held_up.clear();
        let progress = std::mem::take(&mut cast.progress);
        cast.sent_before.0 += progress.blocks_sent;
        cast.sent_before.1 += progress.bytes_sent;
        if cast.cancelled.is_some() {
            self.end(now, id);
        } else {
            // Nodes that came while it was ending.
            self.announce_late(now, id);
            self.end_if_settled(now, id);
        }
        self.announce_next(now);
    }

    /// A cast whose nodes' fates have changed perhaps.
    fn end_if_settled(&mut self, now: Instant, id: u64) {
        self.stirred.insert(id);
        let over = |cast: &Cast| cast.wire.is_none() && cast.is_settled();
        if self.under_way.get(&id).is_some_and(over) {
            self.end(now, id);
        }
    }

    fn end(&mut self, now: Instant, id: u64) {
        self.tell_job(now, id, true);
        let Some(cast) = self.under_way.remove(&id) else {
            return;
        };
        if let Some(wire) = cast.wire {
            self.shelf.remove(wire);
        }
        let info = cast.info(now.as_micros());
        if cast.what.is_file() {
            self.batch.end_cast(id);
            let object = cast.described.object.id;
            let mut letting_go = Vec::from_iter(cast.unwanted.iter().copied());
            if cast.cancelled.is_some() {
                // Also those that may have got all of it without having been heard.
                let fates = |fate: &Fate| !matches!(fate, Fate::Held | Fate::Absent);
                letting_go.extend(cast.those(fates));
                letting_go.retain(|node| !cast.spared.contains(node));
            }
            let drops = letting_go
                .into_iter()
                .map(|node| Outcome::Drop(node, object));
            self.outcomes.extend(drops);
        }
        if let Some(event) = ending::event(&cast, &info) {
            self.events.push(event);
        }
        let vain = self.waits.heard(&cast, true, &mut self.outcomes);
        if self.ended.len() >= ENDED_MAX {
            self.ended.pop_front();
        }
        self.ended
            .push_back(Ended::of(&cast, info, now.as_micros()));
        self.tidy();
        self.take_back(now, vain);
        self.changed();
    }

    /// Tells a job how the cast of its program stands.
    fn tell_job(&mut self, now: Instant, id: u64, over: bool) {
        let cast = self.under_way.get(&id);
        let report = cast.and_then(|cast| cast.load_report(now.as_micros()));
        if let Some((job, report)) = report {
            let report = Box::new(report);
            self.outcomes.push(Outcome::Load { job, report, over });
        }
    }

    /// A cast of this content is under way.
    fn is_wanted(&self, object: &Hash) -> bool {
        let mut casts = self.under_way.values();
        casts.any(|cast| cast.described.object.id == *object)
    }

    fn tidy(&mut self) {
        let casts = &self.under_way;
        let wanted = |object: &Hash| {
            casts
                .values()
                .any(|cast| cast.described.object.id == *object)
        };
        self.files.tidy(wanted);
    }

    fn changed(&self) {
        self.version.send_modify(|version| *version += 1);
    }

    /// Changes whenever something here does.
    pub fn watch(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// One cast; where it is known who asks, as far as it is for them.
    pub fn get(&self, now: Instant, id: u64, asker: Option<Asker>) -> Option<CastInfo> {
        if let Some(cast) = self.under_way.get(&id) {
            return Some(cast.info_for(asker, now.as_micros()));
        }
        let mut ended = self.ended.iter();
        let ended = ended.find(|ended| ended.info.id == id);
        ended.map(|ended| ended.info_for(asker).clone())
    }

    /// Casts that are under way and the last that ended, by number.
    pub fn list(&self, now: Instant) -> Vec<CastInfo> {
        let running = self
            .under_way
            .values()
            .map(|cast| cast.info(now.as_micros()));
        let ended = self.ended.iter().map(|ended| ended.info.clone());
        let mut list: Vec<CastInfo> = ended.chain(running).collect();
        list.sort_by_key(|cast| cast.id);
        list
    }

    /// Nodes in service.
    pub fn nodes_up(&self) -> Vec<u32> {
        self.up.keys().copied().collect()
    }

    /// Where a node is reached, if it is in service.
    pub fn peer(&self, node: u32) -> Option<Peer> {
        self.up.get(&node).map(|up| up.peer)
    }

    /// What jobs and nodes are to be told since the last call.
    pub fn take_outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }

    /// Events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Changes since the last call, to be written down.
    pub fn take_changes(&mut self) -> Batch {
        let mut batch = self.files.take_changes();
        batch.append(&mut self.batch);
        batch
    }

    /// Figures of the source.
    pub fn counters(&self) -> &netstack::broadcast::CastCounters {
        self.source.counters()
    }
}

/// `data.bin@a41f03c29be0`, for a file whose name another one has.
fn another_name(name: &str, object: &Hash) -> String {
    let id = short_id(object);
    let long = format!("{name}@{id}");
    match hosted::check_name(&long) {
        Ok(()) => long,
        Err(_) => id,
    }
}

fn sorted(mut nodes: Vec<u32>) -> Vec<u32> {
    nodes.sort_unstable();
    nodes
}
