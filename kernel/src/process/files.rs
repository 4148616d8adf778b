//! The files of a job: those that its launch names, held in the node's memory while it runs.
//!
//! Neighbours: [`super::launch`] takes them, [`super::calls`] reads them, [`super::ending`] lets
//! go; `kernel_core::{files, objects}` have names and bytes.
//!
//! Invariant: a job has no file that its launch does not name, and none of which a byte is missing;
//! what it has stays in memory until it has ended.

use alloc::string::ToString;
use alloc::vec::Vec;

use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::{
    CastFiles, Descriptors, File, Files, Opened, Origins, Place, ReadAhead, Shipped,
};
use kernel_core::objects::{FrameIndex, InUse, Kept, ObjectId};
use kernel_core::phys::PhysMem;
use netstack::files::WORKING;
use netstack::job::{LaunchRefusal, launch_block};
use netstack::time::{Instant, Micros};

use super::refusal;
use crate::mm::DirectMap;
use crate::process::services::NodeServices;
use crate::time;

/// How long a launch waits for a file that does not come nearer: the cast has its own, shorter,
/// limits, so that this one ends when it has died without a word.
const NO_PROGRESS_MAX: Micros = Micros::from_secs(10);
/// Mode bits that a program's new files do not have at first, and those that umask is about.
const MODE_MASK: u64 = 0o022;
const PERMISSIONS: u64 = 0o777;
/// Longest single wait.
const WAIT_STEP: Micros = Micros::from_secs(1);

/// The files of a job and what it has open of them.
pub(super) struct JobFiles {
    pub(super) names: Files,
    pub(super) descriptors: Descriptors,
    /// How the files that an I/O service has open are opened again.
    pub(super) origins: Origins,
    /// What was read of them beyond what the program asked for.
    pub(super) ahead: ReadAhead,
    /// Which of them are in the node's memory.
    pub(super) cast: CastFiles,
    /// What the program's file was called where the job was started, as an absolute path.
    pub(super) program: Vec<u8>,
    /// The directory that relative paths begin at.
    pub(super) working: Opened,
    /// User and group that the program is of: those of its files, or root of a node without any.
    pub(super) user: [u32; 2],
    /// Mode bits that the program wants new files not to have.
    mode_mask: u64,
    /// Where the bytes are, by number.
    indexes: Vec<FrameIndex>,
    held: Vec<InUse>,
}

impl JobFiles {
    /// The standard streams and no file.
    pub(super) fn none() -> Self {
        Self {
            names: Files::default(),
            descriptors: Descriptors::new(),
            origins: Origins::default(),
            ahead: ReadAhead::default(),
            cast: CastFiles::default(),
            program: Vec::new(),
            working: Opened::Place(Place::WORKING),
            user: [0; 2],
            mode_mask: MODE_MASK,
            indexes: Vec::new(),
            held: Vec::new(),
        }
    }

    /// The files that a launch names. Waits for those that are on their way.
    pub(super) fn take(
        services: &mut dyn NodeServices,
        files: &[launch_block::File<'_>],
    ) -> Result<Self, LaunchRefusal> {
        let mut taken = Self::none();
        let mut names = Vec::new();
        for file in files {
            let index = match file.bytes {
                0 => FrameIndex::EMPTY,
                _ => {
                    let held = hold(services, file)?;
                    let index = services.objects().index(&held);
                    taken.held.push(held);
                    index
                }
            };
            taken.indexes.push(index);
            names.push(File {
                name: file.name.to_string(),
                object: ObjectId(file.object),
                bytes: file.bytes,
            });
        }
        taken.names = Files::new(names);
        Ok(taken)
    }

    /// Has the program begin in the directory that the job's I/O service has for it, as its user.
    pub(super) fn work_at_service(&mut self, user: [u32; 2]) {
        self.user = user;
        self.working = Opened::Shipped(Shipped {
            handle: WORKING,
            run: 0,
            is_directory: true,
        });
    }

    /// Mode bits that new files are not to have.
    pub(super) fn mode_mask(&self) -> u64 {
        self.mode_mask
    }

    /// Says what the program is called.
    pub(super) fn set_program(&mut self, name: &[u8]) {
        self.program.clear();
        if name.first() != Some(&b'/') {
            self.program.extend_from_slice(Place::WORKING_PATH);
            self.program.push(b'/');
        }
        self.program.extend_from_slice(name);
    }

    /// Takes the mode bits of new files away from now on that `mask` has (umask); those before.
    pub(super) fn set_mode_mask(&mut self, mask: u64) -> u64 {
        core::mem::replace(&mut self.mode_mask, mask & PERMISSIONS)
    }

    /// Where the bytes of the files are, by number.
    pub(super) fn indexes(&self) -> &[FrameIndex] {
        &self.indexes
    }

    /// Copies bytes of a file that lie in one page of it, as many as `out` takes; returns how many,
    /// none behind its end.
    pub(super) fn read(&self, file: u16, offset: u64, out: &mut [u8; PAGE_SIZE as usize]) -> usize {
        let bytes = self.names.file(file).bytes;
        let inside = offset % PAGE_SIZE;
        let length = bytes.saturating_sub(offset).min(PAGE_SIZE - inside);
        if length == 0 {
            return 0;
        }
        let index = &self.indexes[usize::from(file)];
        let frame = index.frame(&DirectMap, offset / PAGE_SIZE);
        let frame = frame.expect("a file of a job is here to its last page");
        DirectMap.read(frame.offset(inside), &mut out[..length as usize]);
        length as usize
    }

    /// Lets go of all files; none may be mapped any more.
    pub(super) fn release(&mut self) {
        *self = Self::none();
    }
}

/// Holds a file, once all of it is here.
fn hold(
    services: &mut dyn NodeServices,
    file: &launch_block::File<'_>,
) -> Result<InUse, LaunchRefusal> {
    let id = ObjectId(file.object);
    let mut seen = None;
    let mut deadline = Instant::ZERO;
    loop {
        let objects = services.objects();
        let Some(view) = objects.find(&id) else {
            return Err(refusal::no_file(file.name));
        };
        if view.bytes != file.bytes {
            return Err(refusal::bad_block(
                "a file's length is another than that of the cast",
            ));
        }
        if view.complete {
            let held = match view.whole {
                true => objects.hold(&id),
                // An image whose pages a program has now.
                false => None,
            };
            let held = held.ok_or_else(|| refusal::no_file(file.name))?;
            // What a job may map must not be taken page by page.
            objects.keep_as(&id, Kept::File);
            return Ok(held);
        }
        let now = time::now();
        if seen != Some(view.blocks) {
            seen = Some(view.blocks);
            deadline = now + NO_PROGRESS_MAX;
        }
        if services.cancelled().is_some() {
            return Err(refusal::cancelled());
        }
        if now >= deadline {
            return Err(refusal::file_stuck(file.name, view.blocks));
        }
        services.wait(deadline.min(now + WAIT_STEP));
    }
}
