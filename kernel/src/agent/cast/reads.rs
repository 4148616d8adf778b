//! Files of I/O services that ranks of a job read, and that a cast has brought because many nodes
//! do.
//!
//! Neighbours: [`super::Casts`] notes them, `process::calls::cast_reads` reads them.
//!
//! Invariant: such a file is in the store while its job is on the node, and no longer, unless it
//! was cast as something else too; each of them gives way to a program that needs the memory.

use alloc::vec::Vec;

use kernel_core::objects::{Kept, OBJECTS_MAX, ObjectId, Objects};
use netstack::ids::JobId;

use crate::mm::Hardware;

/// The objects, and the jobs that they were cast for.
#[derive(Debug, Default)]
pub struct Reads(Vec<(JobId, ObjectId)>);

impl Reads {
    /// An object was cast for ranks of this job.
    pub(super) fn put(&mut self, job: JobId, id: ObjectId, objects: &Objects) {
        if self.0.len() >= OBJECTS_MAX {
            // Those that gave way meanwhile: no more can be in the store.
            self.0.retain(|(_, id)| objects.find(id).is_some());
        }
        if !self.0.contains(&(job, id)) {
            self.0.push((job, id));
        }
    }

    /// Whether an object was cast for ranks of a job, and for nothing else.
    pub(super) fn has(&self, id: &ObjectId) -> bool {
        self.0.iter().any(|(_, read)| read == id)
    }

    /// An object was cast as something else: it stays when the jobs end.
    pub(super) fn forget(&mut self, id: &ObjectId) {
        self.0.retain(|(_, read)| read != id);
    }

    /// The job has ended: what was cast for it alone goes.
    pub(super) fn close(&mut self, job: JobId, objects: &mut Objects) {
        let all = core::mem::take(&mut self.0);
        let (gone, stays): (Vec<_>, Vec<_>) = all.into_iter().partition(|(of, _)| *of == job);
        self.0 = stays;
        for (_, id) in gone {
            let view = objects.find(&id);
            // Somebody may have cast a file of the same bytes.
            let is_file = view.is_some_and(|view| view.kept == Kept::File);
            if !is_file && !self.has(&id) {
                objects.drop_object(&mut Hardware::new(), &id);
            }
        }
    }
}
