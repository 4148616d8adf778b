//! The connection tables of jobs: where each rank of a job is reached.
//!
//! A table comes as an object that is cast to the nodes of its job, and stays in the store, compact
//! as it came, until the job ends. Source of an entry's fields: the publication's network connection
//! table (adapter address, window id, network id, logical id, mask, port id).
//!
//! Neighbours: [`super::Casts`] puts tables in, `process::calls` looks entries up.
//!
//! Invariant: a table is held by nobody but its job; when that is closed its frames are given back.

use alloc::vec::Vec;

use kernel_core::objects::{InUse, Kept, Objects};
use netstack::broadcast::table::Table;
use netstack::ids::{JobId, Rank};

use crate::agent::services::PeerLookup;
use crate::mm::DirectMap;
use crate::process::Hardware;

/// Tables that a node keeps: of the job it has, and of some that are about to be launched.
const TABLES_MAX: usize = 4;

/// Tables by job.
#[derive(Debug, Default)]
pub struct Tables(Vec<(JobId, InUse)>);

impl Tables {
    /// The table of a job, if it has come.
    pub fn of(&self, job: JobId) -> Option<&InUse> {
        let found = self.0.iter().find(|(of, _)| *of == job);
        found.map(|(_, held)| held)
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
    pub(super) fn put(&mut self, job: JobId, held: InUse, wanted: &dyn Fn(JobId) -> bool) {
        self.0.retain(|(of, _)| *of != job);
        if self.0.len() >= TABLES_MAX {
            let unwanted = self.0.iter().position(|(of, _)| !wanted(*of));
            self.0.remove(unwanted.unwrap_or(0));
        }
        self.0.push((job, held));
    }

    /// Gives the table of a job back.
    pub(super) fn close(&mut self, job: JobId, objects: &mut Objects) {
        let Some(index) = self.0.iter().position(|(of, _)| *of == job) else {
            return;
        };
        let (_, held) = self.0.remove(index);
        let id = *held.id();
        // Another job may have the very same table, or somebody a file of the same bytes.
        let shared = self.0.iter().any(|(_, other)| *other.id() == id)
            || objects
                .find(&id)
                .is_some_and(|view| view.kept == Kept::File);
        drop(held);
        if !shared {
            objects.drop_object(&mut Hardware::new(), &id);
        }
    }
}
