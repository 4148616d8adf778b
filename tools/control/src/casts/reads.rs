//! Files that many nodes of a job read from an I/O service: each is cast to those that do.
//!
//! Neighbours: `io_service::reads` brings them from the service. Nobody waits for such a cast: a
//! node that does not get it reads from the service.
//!
//! Invariant: what a job read is cast to nodes that the job's service named, and is kept while the
//! job is there, within [`FILES_MAX`] and [`BYTES_MAX`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddrV4;
use std::sync::Arc;

use netstack::files::CastObject;
use netstack::time::Instant;

use super::cast::{Asker, What};
use super::object::Described;
use super::shelf::Content;
use super::{Casts, Order};

/// Files of a job that are kept, for nodes that read them later; the oldest goes first.
const FILES_MAX: usize = 16;
/// Bytes of all of them on the disk: eight of the largest.
const BYTES_MAX: u64 = 4 << 30;

/// Which file: the job, its service, the number that it has there.
pub type Key = (u64, SocketAddrV4, u64);

/// A file that nodes read.
#[derive(Debug)]
struct Read {
    described: Arc<Described>,
    content: Content,
    /// Nodes that it was cast to.
    nodes: BTreeSet<u32>,
}

/// The files that nodes read.
#[derive(Debug, Default)]
pub(super) struct Reads(BTreeMap<Key, Read>);

impl Reads {
    fn bytes(&self) -> u64 {
        let reads = self.0.values();
        reads.map(|read| read.described.object.bytes).sum()
    }

    fn of(&self, job: u64) -> impl Iterator<Item = Key> + '_ {
        let keys = self.0.keys().copied();
        keys.filter(move |(of, ..)| *of == job)
    }

    /// Keeps a file; whether there is room.
    fn put(&mut self, key: Key, described: Arc<Described>, content: Content) -> bool {
        self.0.remove(&key);
        while self.of(key.0).count() >= FILES_MAX {
            let oldest = self.of(key.0).min_by_key(|(.., number)| *number);
            let oldest = oldest.expect("there are some");
            self.0.remove(&oldest);
        }
        let fits = self.bytes() + described.object.bytes <= BYTES_MAX;
        if fits {
            let nodes = BTreeSet::new();
            let read = Read {
                described,
                content,
                nodes,
            };
            self.0.insert(key, read);
        }
        fits
    }

    /// The job is over.
    pub(super) fn forget(&mut self, job: u64) {
        self.0.retain(|(of, ..), _| *of != job);
    }
}

impl Casts {
    /// Has a file cast to more nodes of its job; `content`: all of it, where it was not given
    /// before. `None`: it is not cast, and they go on reading from the service.
    pub fn cast_read(
        &mut self,
        now: Instant,
        key: Key,
        content: Option<(Arc<Described>, Content)>,
        nodes: &[u32],
    ) -> Option<CastObject> {
        let job = key.0;
        if let Some((described, content)) = content
            && !self.reads.put(key, described, content)
        {
            tracing::info!("what nodes of job {job} read is not cast: {BYTES_MAX} bytes are kept");
            return None;
        }
        let read = self.reads.0.get_mut(&key)?;
        let (described, content) = (read.described.clone(), read.content.clone());
        let up = nodes.iter().filter(|node| self.up.contains_key(node));
        let nodes: Vec<u32> = up.copied().collect();
        let holders: BTreeSet<u32> = read.nodes.clone();
        read.nodes.extend(&nodes);
        let object = CastObject {
            id: described.object.id,
            bytes: described.object.bytes,
        };
        let same = self.under_way.values().find(|cast| {
            let is_same = cast.described.object.id == object.id && cast.cancelled.is_none();
            is_same && cast.what == What::Read { job }
        });
        if let Some(id) = same.map(|cast| cast.id) {
            self.add_nodes(now, id, &nodes, false);
            return Some(object);
        }
        let order = Order {
            what: What::Read { job },
            described,
            content,
            nodes,
            asker: Asker::Job(job),
            holders,
            patient: false,
            scheme: None,
            rate: None,
        };
        match self.begin(now, order) {
            Ok(_) => Some(object),
            Err(refused) => {
                tracing::info!("what nodes of job {job} read is not cast: {refused}");
                None
            }
        }
    }
}
