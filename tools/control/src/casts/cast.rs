//! One cast: what, to whom, how far.
//!
//! Key types: [`Cast`], [`What`], [`Fate`], [`Asker`]. Neighbour: `casts` moves it on.
//!
//! Invariant: a cast is over when no node is [`Fate::Coming`] or [`Fate::Absent`] and the source
//! knows nothing of it any more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use netstack::broadcast::Progress;
use netstack::ids::CastId;

use super::figures;
use super::object::Described;
use super::shelf::Content;
use crate::api::types::{CastFailure, CastInfo, CastKind, CastState, LoadReport};
use crate::config::{Load, Scheme};
use crate::{hostlist, secrets};

/// What is cast, and for whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// A file, by name.
    File {
        /// Its name.
        name: String,
        /// It is cast for this job alone.
        job: Option<u64>,
    },
    /// The program of a job.
    Program {
        /// Its name.
        name: String,
        /// The job.
        job: u64,
        /// How the job wanted to be loaded.
        wanted: Load,
    },
    /// The connection table of a job.
    Table {
        /// The job.
        job: u64,
    },
    /// A file of an I/O service that nodes of a job read.
    Read {
        /// The job.
        job: u64,
    },
}

impl What {
    /// The job it is for.
    pub fn job(&self) -> Option<u64> {
        match self {
            What::File { job, .. } => *job,
            What::Program { job, .. } | What::Table { job } | What::Read { job } => Some(*job),
        }
    }

    /// Whether it is a file.
    pub fn is_file(&self) -> bool {
        matches!(self, What::File { .. })
    }

    /// For people.
    pub fn name(&self) -> String {
        match self {
            What::File { name, .. } | What::Program { name, .. } => name.clone(),
            What::Table { job } => format!("connection table of job {job}"),
            What::Read { job } => format!("what nodes of job {job} read"),
        }
    }

    fn kind(&self) -> CastKind {
        match self {
            What::File { .. } => CastKind::File,
            What::Program { .. } => CastKind::Program,
            What::Table { .. } => CastKind::Table,
            What::Read { .. } => CastKind::Read,
        }
    }
}

/// What became of it on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The node is not in service and waited for.
    Absent,
    /// It is on its way.
    Coming,
    /// It is there.
    Done,
    /// It was there before.
    Held,
    /// It will not be there, because.
    Failed(String),
}

/// A cast.
#[derive(Debug, Clone)]
pub struct Cast {
    /// Its number, for people.
    pub id: u64,
    /// Its number at the source, while that knows it.
    pub wire: Option<CastId>,
    /// What it is.
    pub what: What,
    /// The content's hashes.
    pub described: Arc<Described>,
    /// The content is a file of an earlier run of control that has not been read: its hashes are
    /// not known, and it is not announced.
    pub unread: bool,
    /// Where the content is.
    pub content: Content,
    /// How it spreads.
    pub scheme: Scheme,
    /// Bytes a second.
    pub rate: u64,
    /// The nodes that are to have it.
    pub nodes: BTreeMap<u32, Fate>,
    /// Further nodes that hold it and serve it.
    pub helpers: Vec<u32>,
    /// How far it is at the source.
    pub progress: Progress,
    /// Blocks and bytes that were sent when the source had it before.
    pub sent_before: (u64, u64),
    /// Blocks that arrived damaged.
    pub corrupt: u64,
    /// Microseconds of the control clock at which it began.
    pub began_us: u64,
    /// ... at which the last node had it.
    pub done_us: Option<u64>,
    /// Microseconds since 1970 at which it began.
    pub began_unix_us: u64,
    /// Microseconds that it took under an earlier run of control; what was sent then is not known.
    pub earlier_us: Option<u64>,
    /// Nodes that are not in service are waited for.
    pub patient: bool,
    /// Microseconds of the control clock until which nodes are waited for before it is announced.
    pub holds_until_us: Option<u64>,
    /// Nodes that booted again in the middle and have not joined yet: microseconds of the control
    /// clock until which they are waited for.
    pub returning: BTreeMap<u32, u64>,
    /// Why it was cancelled.
    pub cancelled: Option<String>,
    /// Who wants it, and on which nodes.
    pub askers: BTreeMap<Asker, BTreeSet<u32>>,
    /// Nodes that get it though nobody wants it there any more; they let go of it at the end.
    pub unwanted: BTreeSet<u32>,
    /// Nodes on which somebody else wants it since it was cancelled; they do not let go of it.
    pub spared: BTreeSet<u32>,
    /// Time in which all that lacked it were out of service.
    pub idle: Idle,
    /// Nodes that have a part in as many casts as they take; they join as soon as they have room.
    pub held_up: BTreeSet<u32>,
}

/// Time in which a cast has nobody to send to, in microseconds of the control clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct Idle {
    /// Such times that are over, together.
    us: u64,
    /// Since when it has nobody now.
    since_us: Option<u64>,
    /// All of it before the last node had the content.
    until_done_us: u64,
}

/// Who wants a content cast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asker {
    /// A client, by the number of its request.
    Request(u64),
    /// A job.
    Job(u64),
    /// Whoever asked an earlier run of control: that is not written down.
    Earlier,
    /// Those that have it already, where there are too many to keep each.
    Served,
}

impl Cast {
    /// Nodes with this fate.
    pub fn those(&self, which: impl Fn(&Fate) -> bool) -> Vec<u32> {
        let nodes = self.nodes.iter().filter(|(_, fate)| which(fate));
        nodes.map(|(node, _)| *node).collect()
    }

    /// Nodes that have it.
    pub fn having(&self) -> Vec<u32> {
        self.those(|fate| matches!(fate, Fate::Done | Fate::Held))
    }

    /// Whether a node has a part in it.
    pub fn involves(&self, node: u32) -> bool {
        self.nodes.contains_key(&node) || self.helpers.contains(&node)
    }

    /// Whether nobody is waited for.
    pub fn is_settled(&self) -> bool {
        self.nodes
            .values()
            .all(|fate| !matches!(fate, Fate::Coming | Fate::Absent))
    }

    /// How it stands.
    pub fn state(&self) -> CastState {
        if self.cancelled.is_some() && self.wire.is_none() {
            return CastState::Cancelled;
        }
        if self.wire.is_some() {
            return CastState::Running;
        }
        if !self.is_settled() {
            return CastState::Waiting;
        }
        match self.having().len() {
            all if all == self.nodes.len() => CastState::Done,
            0 => CastState::Failed,
            _ => CastState::Partial,
        }
    }

    /// Counts the time in which it has nobody to send to; to be called whenever fates have changed.
    pub fn count_idle(&mut self, now_us: u64) {
        let any = |which: Fate| self.nodes.values().any(|fate| *fate == which);
        let is_idle = self.wire.is_none() && any(Fate::Absent) && !any(Fate::Coming);
        match (is_idle, self.idle.since_us) {
            (true, None) => self.idle.since_us = Some(now_us),
            (false, Some(since_us)) => {
                self.idle.us += now_us.saturating_sub(since_us);
                self.idle.since_us = None;
            }
            _ => {}
        }
    }

    /// A node has the content now.
    pub fn note_done(&mut self, now_us: u64) {
        self.count_idle(now_us);
        self.done_us = Some(now_us);
        self.idle.until_done_us = self.idle.us;
    }

    /// Microseconds of [`Cast::us`] in which it had nobody to send to.
    fn idle_us(&self, now_us: u64) -> u64 {
        if self.is_settled() && self.done_us.is_some() {
            return self.idle.until_done_us;
        }
        let since = self.idle.since_us;
        self.idle.us + since.map_or(0, |since_us| now_us.saturating_sub(since_us))
    }

    /// Microseconds from its begin to `now_us`, or until the last node had it.
    fn us(&self, now_us: u64) -> u64 {
        let over = self.is_settled().then_some(self.done_us).flatten();
        over.unwrap_or(now_us).saturating_sub(self.began_us) + self.earlier_us.unwrap_or(0)
    }

    fn sent(&self) -> (u64, u64) {
        (
            self.sent_before.0 + self.progress.blocks_sent,
            self.sent_before.1 + self.progress.bytes_sent,
        )
    }

    /// Bytes that the nodes that are done had from one another: all that control did not send.
    fn bytes_from_nodes(&self) -> u64 {
        let done = self.those(|fate| *fate == Fate::Done).len() as u64;
        (done * self.described.object.bytes).saturating_sub(self.sent().1)
    }

    /// All of it for clients.
    pub fn info(&self, now_us: u64) -> CastInfo {
        let object = &self.described.object;
        let limit_us = figures::limit_us(object.bytes, self.rate);
        let (us, idle_us) = (self.us(now_us), self.idle_us(now_us));
        let having = self.having();
        let failed = self.nodes.iter().filter_map(|(node, fate)| match fate {
            Fate::Failed(reason) => Some(CastFailure {
                node: hostlist::name(*node),
                reason: reason.clone(),
            }),
            _ => None,
        });
        let state = self.state();
        let nodes: Vec<u32> = self.nodes.keys().copied().collect();
        let moved = self.nodes.values().any(|fate| *fate == Fate::Done);
        CastInfo {
            id: self.id,
            kind: self.what.kind(),
            name: self.what.name(),
            object: secrets::encode_hex(&object.id),
            bytes: object.bytes,
            state,
            reason: self.cancelled.clone().unwrap_or_default(),
            job: self.what.job(),
            scheme: self.scheme,
            rate: self.rate,
            nodes: hostlist::format(&nodes),
            nodes_total: nodes.len(),
            done: having.len(),
            held: self.those(|fate| *fate == Fate::Held).len(),
            nodes_done: hostlist::format(&having),
            nodes_absent: hostlist::format(&self.those(|fate| *fate == Fate::Absent)),
            // Who knows the nodes says it.
            absent_why: String::new(),
            failed: failed.collect(),
            began_unix_us: self.began_unix_us,
            resumed: self.earlier_us.is_some(),
            ms: us as f64 / 1e3,
            absent_ms: idle_us as f64 / 1e3,
            limit_ms: limit_us as f64 / 1e3,
            ratio: (state.is_final() && moved && limit_us > 0)
                .then(|| us.saturating_sub(idle_us) as f64 / limit_us as f64),
            blocks: object.blocks(),
            blocks_sent: self.sent().0,
            bytes_sent: self.sent().1,
            bytes_from_nodes: self.bytes_from_nodes(),
            corrupt: self.corrupt,
        }
    }

    /// How it stands for one who asked for it: over as soon as each of its own nodes has it or
    /// never will, whatever others wait for. What was sent is that of all. All of it for whoever is
    /// not known, or alone.
    pub fn info_for(&self, asker: Option<Asker>, now_us: u64) -> CastInfo {
        let own = asker.and_then(|asker| self.askers.get(&asker));
        let Some(own) = own.filter(|_| self.askers.len() > 1) else {
            return self.info(now_us);
        };
        let mut part = self.clone();
        part.nodes.retain(|node, _| own.contains(node));
        if part.is_settled() {
            part.wire = None;
        }
        CastInfo {
            bytes_from_nodes: self.bytes_from_nodes(),
            ..part.info(now_us)
        }
    }

    /// What the job that it is for is told, if it is a job's program.
    pub fn load_report(&self, now_us: u64) -> Option<(u64, LoadReport)> {
        let What::Program { job, wanted, .. } = &self.what else {
            return None;
        };
        let object = &self.described.object;
        let cold = self.those(|fate| *fate != Fate::Held).len();
        let report = LoadReport {
            mode: Load::Broadcast.word().to_string(),
            wanted: *wanted,
            reason: String::new(),
            cast: Some(self.id),
            cold,
            holders: self.nodes.len() - cold + self.helpers.len(),
            done: self.those(|fate| *fate == Fate::Done).len(),
            blocks: object.blocks(),
            blocks_sent: self.sent().0,
            bytes_sent: self.sent().1,
            bytes_from_nodes: self.bytes_from_nodes(),
            ms: self.us(now_us) as f64 / 1e3,
            limit_ms: figures::limit_us(object.bytes, self.rate) as f64 / 1e3,
        };
        Some((*job, report))
    }
}
