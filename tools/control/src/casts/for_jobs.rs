//! What jobs have cast: their files before the launch, their program with it, their connection
//! table after it.
//!
//! Neighbour: the runner's fabric in `control_events` calls these.

use std::collections::BTreeSet;
use std::net::SocketAddrV4;

use netstack::broadcast::{Peer, table};
use netstack::exchange::rounds;
use netstack::ids::{LocalRank, NodeId};
use netstack::time::Instant;

use super::cast::{Asker, What};
use super::shelf::Content;
use super::{Casts, Order, sorted};
use crate::api::types::LoadReport;
use crate::config::Load;
use crate::hostlist;
use crate::programs::{Hash, Program};

/// The network's number in connection tables: the prefix of networks that are not routed.
const LOCAL_NETWORK: u64 = 0xfe80 << 48;

/// A file that a job finds under `/with`.
#[derive(Debug, Clone)]
pub struct JobFile {
    /// Its name there.
    pub name: String,
    /// BLAKE3 hash of its content.
    pub object: Hash,
    /// Its size.
    pub bytes: u64,
    /// Its bytes, if the control node has them.
    pub content: Option<Program>,
}

/// The program of a job that is to be cast.
#[derive(Debug)]
pub struct ProgramCast<'a> {
    /// The job.
    pub job: u64,
    /// The program's name.
    pub name: &'a str,
    /// How the job wanted to be loaded.
    pub wanted: Load,
    /// The program.
    pub program: &'a Program,
    /// Nodes of the job that do not hold it.
    pub cold: &'a [u32],
    /// Nodes of the job that do.
    pub warm: &'a [u32],
}

/// Where a job's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Brought {
    /// On all its nodes.
    Here,
    /// On their way; an outcome follows.
    Coming,
}

impl Casts {
    /// Has the files of a job cast to those of its nodes that lack them.
    ///
    /// # Errors
    /// For people.
    pub fn bring(
        &mut self,
        now: Instant,
        job: u64,
        nodes: &[u32],
        files: &[JobFile],
    ) -> Result<Brought, String> {
        let mut casts = BTreeSet::new();
        for file in files {
            if let Err(text) = self.bring_one(now, job, nodes, file, &mut casts) {
                self.take_back(now, vec![(job, casts)]);
                return Err(text);
            }
        }
        if casts.is_empty() {
            return Ok(Brought::Here);
        }
        self.waits.add(job, nodes, casts.clone());
        for id in casts {
            self.hear(now, id);
        }
        Ok(Brought::Coming)
    }

    fn bring_one(
        &mut self,
        now: Instant,
        job: u64,
        nodes: &[u32],
        file: &JobFile,
        casts: &mut BTreeSet<u64>,
    ) -> Result<(), String> {
        let missing: Vec<u32> = nodes
            .iter()
            .copied()
            .filter(|node| {
                // Where a cast has just brought it, the job joins that cast, so that nobody else
                // can take it back.
                let given = self.is_given(*node, &file.object);
                given || !self.files.holds(*node, &file.object)
            })
            .collect();
        self.spare(nodes, &file.object);
        if missing.is_empty() {
            return Ok(());
        }
        let lacking = || hostlist::format(&sorted(missing.clone()));
        let content = file.content.clone();
        let described = content.as_ref().and_then(Program::described);
        let (Some(content), Some(described)) = (content, described) else {
            return Err(format!(
                "{} not on {}, and the control node does not have its bytes any more; give the file's path with --with, or cast it to them first",
                file.name,
                lacking()
            ));
        };
        let order = Order {
            what: What::File {
                name: file.name.clone(),
                job: Some(job),
            },
            described,
            content: Content::Cached(content),
            holders: self.files.holders(&file.object),
            nodes: missing.clone(),
            asker: Asker::Job(job),
            patient: false,
            scheme: None,
            rate: None,
        };
        let id = self
            .begin(now, order)
            .map_err(|refused| format!("{}: {refused}", file.name))?;
        // A cast to nobody is over at once.
        if self.under_way.contains_key(&id) {
            casts.insert(id);
        }
        Ok(())
    }

    /// A job waits for its files no more: what was cast for it alone is cancelled.
    pub fn give_up(&mut self, now: Instant, job: u64) {
        let casts = self.waits.give_up(job);
        self.take_back(now, vec![(job, casts)]);
    }

    /// Has the program of a job cast to its cold nodes; its warm ones and `holders` serve it.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn cast_program(
        &mut self,
        now: Instant,
        of: &ProgramCast<'_>,
        holders: BTreeSet<u32>,
    ) -> Result<LoadReport, String> {
        let described = of.program.described();
        let described = described.ok_or("its blocks are not hashed yet")?;
        let order = Order {
            what: What::Program {
                name: of.name.to_string(),
                job: of.job,
                wanted: of.wanted,
            },
            described,
            content: Content::Cached(of.program.clone()),
            nodes: of.cold.iter().chain(of.warm).copied().collect(),
            asker: Asker::Job(of.job),
            holders,
            patient: false,
            scheme: None,
            rate: None,
        };
        let id = self
            .begin(now, order)
            .map_err(|refused| refused.to_string())?;
        let cast = self.under_way.get(&id);
        let report = cast.and_then(|cast| cast.load_report(now.as_micros()));
        let (_, report) = report.ok_or("nothing was to be cast")?;
        Ok(report)
    }

    /// Has the connection table of a job cast to its nodes; `ranks` are the nodes of its ranks.
    pub fn cast_table(&mut self, now: Instant, job: u64, ranks: &[u32]) {
        let mut entries: Vec<table::Entry> = Vec::new();
        for node in ranks {
            let before = entries.last().filter(|before| before.node.0 == *node);
            let local = before.map_or(0, |before| before.window as u16 + 1);
            let Some(peer) = self.peer(*node) else {
                return;
            };
            entries.push(entry(*node, peer, LocalRank(local)));
        }
        // More ranks than a table can have are no job's.
        let Ok(bytes) = table::encode(&entries, self.ranks_of_a_leaf(ranks)) else {
            return;
        };
        let mut nodes = ranks.to_vec();
        nodes.dedup();
        let Ok(described) = super::Described::of_bytes(&bytes) else {
            return;
        };
        let order = Order {
            what: What::Table { job },
            described: described.into(),
            content: Content::Bytes(bytes.into()),
            nodes,
            asker: Asker::Job(job),
            holders: BTreeSet::new(),
            patient: false,
            scheme: None,
            rate: None,
        };
        // A job does without its table: its programs are told that there is none.
        if let Err(refused) = self.begin(now, order) {
            tracing::warn!("connection table of job {job}: {refused}");
        }
    }

    /// How many of these ranks share each leaf switch of the network's tree, where that is the same
    /// everywhere.
    fn ranks_of_a_leaf(&self, nodes: &[u32]) -> u16 {
        let switch = |node: &u32| node.checked_div(self.leaf_width).unwrap_or(0);
        let switches: Vec<u32> = nodes.iter().map(switch).collect();
        u16::try_from(rounds::ranks_of_a_leaf(&switches)).unwrap_or(0)
    }

    /// A job is over: what is on its way for it is not needed.
    pub fn job_over(&mut self, now: Instant, job: u64) {
        self.give_up(now, job);
        self.reads.forget(job);
        let own = self
            .under_way
            .values()
            .filter(|cast| cast.what.job() == Some(job));
        let own: Vec<u64> = own
            .filter(|cast| !cast.what.is_file())
            .map(|cast| cast.id)
            .collect();
        for id in own {
            let _ = self.cancel(now, id, "its job has ended");
        }
    }
}

/// A rank as the connection table of a job has it. An adapter of Ethernet has a window for each
/// rank of its node, which is a port of UDP, no mask and one port; its place on the network is its
/// node number, which is never 0.
fn entry(node: u32, peer: Peer, local: LocalRank) -> table::Entry {
    table::Entry {
        node: NodeId(node),
        addr: SocketAddrV4::new(*peer.addr.ip(), peer.addr.port() + local.0),
        mac: peer.mac,
        window: local.0.into(),
        network: LOCAL_NETWORK,
        logical: u16::try_from(node + 1).unwrap_or(u16::MAX),
        lid_mask: 0,
        port_id: 1,
    }
}
