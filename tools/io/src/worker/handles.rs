//! The open files of a job's ranks, by number.
//!
//! Invariant: a rank reaches its own open files and no other's; it has at most [`MOST`].

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netstack::files::WORKING;
use netstack::ids::Rank;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use super::listing::{Budget, Listing};
use super::writes::Writes;

/// Open files of a rank: one for each descriptor that it can have, and its working directory.
pub const MOST: usize = 257;

/// Which file it is: its device, and its number there.
pub type FileId = (u64, u64);

/// An open file.
#[derive(Debug)]
pub struct Open {
    /// Its descriptor.
    pub file: File,
    /// Which file it is.
    pub id: FileId,
    /// Of a directory: its entries, as they were when it was read from the start.
    pub listing: Mutex<Listing>,
    /// Who appends has this: where a write ended is read behind it.
    pub appending: Mutex<()>,
    /// Writes of which some pieces are not here yet.
    pub writes: Writes,
}

impl Open {
    fn new(file: File, id: FileId, budget: &Arc<Budget>) -> Self {
        Self {
            file,
            id,
            listing: Mutex::new(Listing::new(budget)),
            appending: Mutex::default(),
            writes: Writes::default(),
        }
    }
}

/// The open files of all ranks of a job.
#[derive(Debug)]
pub struct Handles {
    /// A number that is another after each boot of this machine.
    pub boot: u64,
    working: Arc<Open>,
    /// The directory of this process's own descriptors, by their numbers.
    descriptors: OwnedFd,
    budget: Arc<Budget>,
    open: Mutex<HashMap<Rank, Files>>,
}

#[derive(Debug, Default)]
struct Files {
    last: u32,
    /// Files that are being opened.
    opening: usize,
    files: HashMap<u32, Arc<Open>>,
    /// The rank makes no calls any more.
    is_over: bool,
    /// Through which open files the rank locks parts of a file that it has locked: one that reads
    /// and writes, or those that there are where the rank may have no such one.
    lockers: HashMap<FileId, Vec<Arc<Open>>>,
}

/// Room for one more open file of a rank.
#[derive(Debug)]
pub struct Room<'a> {
    handles: &'a Handles,
    rank: Rank,
}

impl Handles {
    /// With the directory that programs begin in, in this boot of the machine, and the directory of
    /// this process's own descriptors.
    pub fn new(working: OwnedFd, boot: u64, descriptors: OwnedFd) -> Self {
        let budget = Arc::<Budget>::default();
        let working = Open::new(working.into(), (0, 0), &budget);
        Self {
            boot,
            working: Arc::new(working),
            descriptors,
            budget,
            open: Mutex::default(),
        }
    }

    fn ranks(&self) -> MutexGuard<'_, HashMap<Rank, Files>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a rank has under a number.
    ///
    /// # Errors
    /// EBADF where it has nothing.
    pub fn get(&self, rank: Rank, handle: u32) -> Result<Arc<Open>, Errno> {
        if handle == WORKING {
            return Ok(Arc::clone(&self.working));
        }
        let ranks = self.ranks();
        let open = ranks.get(&rank).and_then(|rank| rank.files.get(&handle));
        open.cloned().ok_or(Errno::EBADF)
    }

    /// Room for a file that a rank is about to open.
    ///
    /// # Errors
    /// EMFILE where it has no more.
    pub fn room(&self, rank: Rank) -> Result<Room<'_>, Errno> {
        let mut ranks = self.ranks();
        let files = ranks.entry(rank).or_default();
        if files.is_over {
            return Err(Errno::ESRCH);
        }
        if files.files.len() + files.opening >= MOST {
            return Err(Errno::EMFILE);
        }
        files.opening += 1;
        Ok(Room {
            handles: self,
            rank,
        })
    }

    /// The rank has ended: all that it has open is closed, and its locks are free, as soon as the
    /// calls end that it has under way. It opens nothing any more.
    pub fn leave(&self, rank: Rank) {
        let left = {
            let mut ranks = self.ranks();
            let files = ranks.entry(rank).or_default();
            files.is_over = true;
            files.lockers.clear();
            std::mem::take(&mut files.files)
        };
        // Without the lock: the last use of a file may have to wait for a disk.
        drop(left);
    }

    /// Gives a number back. The file is closed when the last call that uses it has ended. POSIX:
    /// all locks that the rank has of parts of this file are free, whichever number they were
    /// asked for by.
    ///
    /// # Errors
    /// EBADF where the rank does not have it.
    pub fn close(&self, rank: Rank, handle: u32) -> Result<Vec<Arc<Open>>, Errno> {
        let mut ranks = self.ranks();
        let files = ranks.get_mut(&rank).ok_or(Errno::EBADF)?;
        let closed = files.files.remove(&handle).ok_or(Errno::EBADF)?;
        Ok(files.lockers.remove(&closed.id).unwrap_or_default())
    }

    /// Ranks that have this file open.
    pub fn ranks_with(&self, id: FileId) -> Vec<Rank> {
        let ranks = self.ranks();
        let has = |files: &Files| files.files.values().any(|open| open.id == id);
        let with = ranks.iter().filter(|(_, files)| has(files));
        with.map(|(rank, _)| *rank).collect()
    }

    /// The open file through which a rank locks parts of the file that it has here: locks of one
    /// rank are then never in each other's way. It is the one that was used before, or one that
    /// reads and writes, as `does_both` says; for that the file is opened once more where the rank
    /// may write and read it. Else it is this one.
    pub fn locker(
        &self,
        rank: Rank,
        open: &Arc<Open>,
        does_both: impl Fn(&File) -> bool,
    ) -> Arc<Open> {
        if let Some(locker) = self.lockers(rank, open.id).first() {
            return Arc::clone(locker);
        }
        let locker = match does_both(&open.file) {
            true => Arc::clone(open),
            false => {
                let other = self.opened(rank, open.id, does_both);
                let other = other.or_else(|| self.open_again(open).map(Arc::new));
                other.unwrap_or_else(|| Arc::clone(open))
            }
        };
        self.lock_through(rank, &locker)
    }

    /// One of the files that a rank has open.
    fn opened(&self, rank: Rank, id: FileId, is_it: impl Fn(&File) -> bool) -> Option<Arc<Open>> {
        let ranks = self.ranks();
        let mut files = ranks.get(&rank)?.files.values();
        let found = files.find(|open| open.id == id && is_it(&open.file));
        found.cloned()
    }

    /// The same file, to be read and written. `None` where the job's user may not, or there are no
    /// descriptors left.
    fn open_again(&self, open: &Open) -> Option<Open> {
        let name = open.file.as_raw_fd().to_string();
        let flags = OFlag::O_RDWR | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
        let again = openat(&self.descriptors, name.as_str(), flags, Mode::empty()).ok()?;
        Some(Open::new(again.into(), open.id, &self.budget))
    }

    /// The rank locks parts of a file through this, too; gives the first one.
    pub fn lock_through(&self, rank: Rank, locker: &Arc<Open>) -> Arc<Open> {
        let mut ranks = self.ranks();
        let files = ranks.entry(rank).or_default();
        // A lock of a rank that has ended goes with the call that asks for it.
        if files.is_over {
            return Arc::clone(locker);
        }
        let lockers = files.lockers.entry(locker.id).or_default();
        if !lockers.iter().any(|known| Arc::ptr_eq(known, locker)) {
            lockers.push(Arc::clone(locker));
        }
        Arc::clone(&lockers[0])
    }

    /// Through which open files a rank has locked parts of a file.
    pub fn lockers(&self, rank: Rank, id: FileId) -> Vec<Arc<Open>> {
        let ranks = self.ranks();
        let lockers = ranks.get(&rank).and_then(|files| files.lockers.get(&id));
        lockers.cloned().unwrap_or_default()
    }
}

impl Room<'_> {
    /// Gives the file a number, which no other of the rank's has had before it.
    ///
    /// # Errors
    /// ESRCH where the rank has ended meanwhile: the file is closed.
    pub fn fill(self, descriptor: OwnedFd, id: FileId) -> Result<u32, Errno> {
        let mut ranks = self.handles.ranks();
        let files = ranks.entry(self.rank).or_default();
        if files.is_over {
            drop(ranks);
            return Err(Errno::ESRCH);
        }
        loop {
            files.last = files.last.wrapping_add(1);
            if files.last != WORKING && !files.files.contains_key(&files.last) {
                break;
            }
        }
        let open = Open::new(descriptor.into(), id, &self.handles.budget);
        files.files.insert(files.last, Arc::new(open));
        let handle = files.last;
        // Before this gives the room back, for which it locks again.
        drop(ranks);
        Ok(handle)
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if let Some(files) = self.handles.ranks().get_mut(&self.rank) {
            files.opening -= 1;
        }
    }
}
