//! Shared memory objects: what a program makes in `/dev/shm`, writes to and maps.
//!
//! Neighbours: `kernel_core::files::shared_memory` has names and lengths,
//! `kernel_core::program` the frames; [`super::file`] reads them as any file.
//!
//! Invariant: names and frames are of the same objects; one that has no name, is not open and not
//! mapped is forgotten before the call returns that made it so.

use hearth_abi::errno::Errno;
use hearth_abi::linux::rename;
use kernel_core::files::{Opened, Place};
use kernel_core::space::{MapRequest, SharedMemoryMap};
use netstack::files::Op;

use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::polling::Polling;

impl Current<'_> {
    /// The shared memory object that a descriptor is.
    pub(super) fn shared_memory(&self, fd: u64) -> Option<u16> {
        match self.process.files.descriptors.get(fd).ok()?.opened {
            Opened::Place(Place::SharedMemory(object)) => Some(object),
            _ => None,
        }
    }

    /// Gives an object so many bytes.
    pub(super) fn set_shared_length(&mut self, object: u16, bytes: u64) -> Result<(), Stop> {
        let shared = &mut self.process.files.names.shared;
        shared.check_length(object, bytes)?;
        let mut machine = Polling::new(self.services);
        let memory = self.process.memory.as_mut();
        let memory = memory.expect("memory of a running program");
        memory.resize_shared_memory(&mut machine, object, bytes)?;
        shared.set_length(object, bytes);
        Ok(())
    }

    /// ftruncate, and fallocate that makes it longer at most; `refused` where the descriptor is not
    /// for writing.
    pub(super) fn resize_shared(
        &mut self,
        fd: u64,
        object: u16,
        new_length: impl FnOnce(u64) -> u64,
        refused: Errno,
    ) -> Result<u64, Stop> {
        if !self.process.files.descriptors.get(fd)?.writes() {
            return Err(refused.into());
        }
        let bytes = self.process.files.names.shared.object(object).bytes;
        self.set_shared_length(object, new_length(bytes))?;
        Ok(0)
    }

    /// Writes bytes that lie in one page of an object.
    pub(super) fn write_shared(&mut self, object: u16, at: u64, piece: &[u8]) -> Result<(), Stop> {
        let end = at.checked_add(piece.len() as u64).ok_or(Errno::ENOSPC)?;
        if end > self.process.files.names.shared.object(object).bytes {
            self.set_shared_length(object, end)?;
        }
        let memory = self.process.memory();
        memory.write_shared_memory(&mut Hardware::new(), object, at, piece)?;
        Ok(())
    }

    /// mmap of an object.
    pub(super) fn map_shared(
        &mut self,
        fd: u64,
        object: u16,
        request: MapRequest,
        offset: u64,
    ) -> Result<u64, Stop> {
        let description = *self.process.files.descriptors.get(fd)?;
        if description.is_path() {
            return Err(Errno::EBADF.into());
        }
        if !description.reads() {
            return Err(Errno::EACCES.into());
        }
        let map = SharedMemoryMap {
            object,
            may_write: description.writes(),
            offset,
        };
        let mut machine = Polling::new(self.services);
        let memory = self.process.memory();
        Ok(memory.mmap_shared_memory(&mut machine, request, map)?)
    }

    /// A call that changes something in `/dev/shm` by its path; `None` where it is not there, or
    /// the directory has no such call.
    pub(super) fn change_shared(
        &mut self,
        from: Place,
        path: &[u8],
        op: Op,
        words: [u64; 2],
    ) -> Result<Option<u64>, Stop> {
        let files = &mut self.process.files.names;
        let Some(name) = files.shared_name(from, path) else {
            return Ok(None);
        };
        let Some(object) = files.shared.named(name) else {
            return Ok(None);
        };
        match op {
            Op::Remove if words[0] != 0 => return Err(Errno::ENOTDIR.into()),
            Op::Remove => {
                files.shared.unlink(name)?;
                self.forget_shared();
            }
            Op::ChangeMode => files.shared.set_mode(object, words[0] as u32),
            Op::SetLength => self.set_shared_length(object, words[0])?,
            _ => return Ok(None),
        }
        Ok(Some(0))
    }

    /// link and rename of an object; `None` where one of the paths is of none.
    pub(super) fn change_two_shared(
        &mut self,
        op: Op,
        [from, to]: [(Place, &[u8]); 2],
        flags: u64,
    ) -> Result<Option<u64>, Stop> {
        let files = &mut self.process.files.names;
        let names = [from, to].map(|(from, path)| files.shared_name(from, path));
        let [Some(old), Some(new)] = names else {
            return Ok(None);
        };
        let object = files.shared.named(old).ok_or(Errno::ENOENT)?;
        match op {
            Op::Link => files.shared.link(object, new)?,
            _ if flags == rename::NOREPLACE && files.shared.named(new).is_some() => {
                return Err(Errno::EEXIST.into());
            }
            _ if flags & !rename::NOREPLACE != 0 => return Err(Errno::EINVAL.into()),
            _ => files.shared.rename(old, new)?,
        }
        self.forget_shared();
        Ok(Some(0))
    }

    /// Forgets objects that nothing can reach any more: to be called whenever a name, a descriptor
    /// or a mapping of one may have gone.
    pub(super) fn forget_shared(&mut self) {
        loop {
            let memory = self.process.memory.as_ref();
            let memory = memory.expect("memory of a running program");
            let files = &self.process.files;
            let is_used = |object: u16| {
                let place = Place::SharedMemory(object);
                files.descriptors.has_open(place) || memory.shows_shared_memory(object)
            };
            let mut nameless = files.names.shared.nameless();
            let Some(object) = nameless.find(|&object| !is_used(object)) else {
                return;
            };
            drop(nameless);
            let mut machine = Polling::new(self.services);
            let memory = self.process.memory();
            let cut = memory.resize_shared_memory(&mut machine, object, 0);
            cut.expect("no list grows");
            self.process.files.names.shared.forget(object);
        }
    }
}
