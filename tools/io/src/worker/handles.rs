//! The open files of a job's ranks, by number.
//!
//! Invariant: a rank reaches its own open files and no other's; it has at most [`MOST`].

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use netstack::files::WORKING;
use netstack::ids::Rank;
use nix::errno::Errno;

/// Open files of a rank: one for each descriptor that it can have, and its working directory.
const MOST: usize = 257;

/// An open file.
#[derive(Debug)]
pub struct Open {
    /// Its descriptor.
    pub file: File,
    /// Of a directory: its entries, as they were when it was read from the start.
    pub entries: Mutex<Vec<Name>>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// Number of the file.
    pub inode: u64,
    /// Its kind, `DT_REG` and the like.
    pub kind: u8,
    /// Its name.
    pub name: Vec<u8>,
}

/// The open files of all ranks of a job.
#[derive(Debug)]
pub struct Handles {
    working: Arc<Open>,
    open: Mutex<HashMap<Rank, Ranks>>,
}

#[derive(Debug, Default)]
struct Ranks {
    next: u32,
    files: HashMap<u32, Arc<Open>>,
}

impl Open {
    fn new(descriptor: OwnedFd) -> Arc<Self> {
        Arc::new(Self {
            file: File::from(descriptor),
            entries: Mutex::default(),
        })
    }
}

impl Handles {
    /// With the directory that programs begin in.
    pub fn new(working: OwnedFd) -> Self {
        Self {
            working: Open::new(working),
            open: Mutex::default(),
        }
    }

    fn ranks(&self) -> MutexGuard<'_, HashMap<Rank, Ranks>> {
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
        let open = ranks.get(&rank).and_then(|ranks| ranks.files.get(&handle));
        open.cloned().ok_or(Errno::EBADF)
    }

    /// Whether a rank may open one more.
    ///
    /// # Errors
    /// EMFILE where it may not.
    pub fn has_room(&self, rank: Rank) -> Result<(), Errno> {
        let ranks = self.ranks();
        let count = ranks.get(&rank).map_or(0, |ranks| ranks.files.len());
        if count < MOST {
            Ok(())
        } else {
            Err(Errno::EMFILE)
        }
    }

    /// Gives a file a number, which no other of the rank's has had before it.
    pub fn add(&self, rank: Rank, descriptor: OwnedFd) -> u32 {
        let mut ranks = self.ranks();
        let ranks = ranks.entry(rank).or_default();
        loop {
            ranks.next = ranks.next.wrapping_add(1);
            if ranks.next != WORKING && !ranks.files.contains_key(&ranks.next) {
                break;
            }
        }
        ranks.files.insert(ranks.next, Open::new(descriptor));
        ranks.next
    }

    /// Gives a number back. The file is closed when the last call that uses it has ended.
    ///
    /// # Errors
    /// EBADF where the rank does not have it.
    pub fn close(&self, rank: Rank, handle: u32) -> Result<(), Errno> {
        let mut ranks = self.ranks();
        let closed = ranks
            .get_mut(&rank)
            .and_then(|ranks| ranks.files.remove(&handle));
        drop(ranks);
        closed.map(drop).ok_or(Errno::EBADF)
    }
}
