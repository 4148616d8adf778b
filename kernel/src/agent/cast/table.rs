//! The connection tables of jobs: where each rank of a job is reached.
//!
//! A table comes as an object that is cast to the nodes of its job, and stays in the store, compact
//! as it came, until the job ends. Source of an entry's fields: the publication's network
//! connection table (adapter address, window id, network id, logical id, mask, port id).
//!
//! Neighbours: [`super::Casts`] puts tables in, `process::calls` looks entries up.
//!
//! Invariant: a table is held by nobody but its job; when that is closed its frames are given back.

use alloc::vec::Vec;

use kernel_core::objects::{InUse, Kept, Objects};
use netstack::broadcast::table::Table;
use netstack::ids::{JobId, Rank};

use crate::exchange::PeerLookup;
use crate::mm::DirectMap;
use crate::mm::Hardware;

/// Tables that a node keeps: of the job it has, and of some that are about to be launched.
const TABLES_MAX: usize = 4;

/// A job's table in the store.
#[derive(Debug)]
struct Held {
    job: JobId,
    /// Bytes a second of the links of the job's nodes, as the control node says.
    rate: u64,
    object: InUse,
}

/// Tables by job.
#[derive(Debug, Default)]
pub struct Tables(Vec<Held>);

impl Tables {
    /// The table of a job, if it has come.
    pub fn of(&self, job: JobId) -> Option<&InUse> {
        self.find(job).map(|held| &held.object)
    }

    /// Bytes a second of the links of a job's nodes, if its table has come.
    pub fn rate(&self, job: JobId) -> Option<u64> {
        self.find(job).map(|held| held.rate)
    }

    /// How many ranks of a job share each leaf switch, if its table has come; 0: not known, or not
    /// the same everywhere.
    pub fn leaf(&self, job: JobId, objects: &Objects) -> Option<u32> {
        let id = self.of(job)?.id();
        let bytes = objects.find(id).map_or(0, |view| view.bytes);
        let mut read =
            |offset: u64, out: &mut [u8]| objects.read_bytes(&DirectMap, id, offset, out);
        Table::open(bytes, &mut read).map(|table| table.leaf().into())
    }

    fn find(&self, job: JobId) -> Option<&Held> {
        self.0.iter().find(|held| held.job == job)
    }

    /// How a rank of a job is reached: looked up in the table where it lies.
    pub fn entry(&self, job: JobId, rank: Rank, objects: &Objects) -> PeerLookup {
        let Some(held) = self.of(job) else {
            return PeerLookup::NoTable;
        };
        let id = held.id();
        let bytes = objects.find(id).map_or(0, |view| view.bytes);
        let mut read =
            |offset: u64, out: &mut [u8]| objects.read_bytes(&DirectMap, id, offset, out);
        let entry = Table::open(bytes, &mut read).and_then(|table| table.entry(rank, &mut read));
        entry.map_or(PeerLookup::NotThere, PeerLookup::Found)
    }

    /// Keeps a table; when there are too many the oldest goes of a job that nobody waits for.
    pub(super) fn put(
        &mut self,
        (job, rate): (JobId, u64),
        object: InUse,
        wanted: &dyn Fn(JobId) -> bool,
    ) {
        self.0.retain(|held| held.job != job);
        if self.0.len() >= TABLES_MAX {
            let unwanted = self.0.iter().position(|held| !wanted(held.job));
            self.0.remove(unwanted.unwrap_or(0));
        }
        self.0.push(Held { job, rate, object });
    }

    /// Gives the table of a job back.
    pub(super) fn close(&mut self, job: JobId, objects: &mut Objects) {
        let Some(index) = self.0.iter().position(|held| held.job == job) else {
            return;
        };
        let held = self.0.remove(index).object;
        let id = *held.id();
        // Another job may have the very same table, or somebody a file of the same bytes.
        let shared = self.0.iter().any(|other| *other.object.id() == id)
            || objects
                .find(&id)
                .is_some_and(|view| view.kept == Kept::File);
        drop(held);
        if !shared {
            objects.drop_object(&mut Hardware::new(), &id);
        }
    }
}
