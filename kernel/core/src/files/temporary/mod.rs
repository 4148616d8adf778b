//! `/tmp`: files in the node's memory that the ranks of a job make, for themselves and for each
//! other on this node. They are gone with the job.
//!
//! | item | what it is |
//! |---|---|
//! | [`Temporary`] | all files of a job, and who has which open |
//! | [`Found`], [`walk`](Temporary::walk) | from a path to a name in a directory |
//! | `change` | making, removing, renaming, rights and times |
//! | `content` | bytes |
//! | [`RangeLock`] | locks, which keep ranks apart |
//!
//! Directories that an I/O service has below `/tmp` are in the tree as places where a path leaves
//! it ([`Found::Outside`]).
//!
//! Neighbours: `kernel::process::calls` carries out the calls, `agent::node` has the one instance.
//!
//! Invariant: an inode is there as long as it has a name or is open, and no longer; inodes, names
//! and frames are bounded ([`Temporary::join`]).

mod blocks;
mod change;
mod content;
mod directory;
mod locks;
mod walk;

use alloc::boxed::Box;
use alloc::vec::Vec;

pub use self::blocks::ROOM_FRAMES;
use self::blocks::{Blocks, Quota};
pub use self::change::{NewTime, Open};
pub use self::content::PUNCH_HOLE;
use self::directory::Directory;
use self::locks::Locks;
pub use self::locks::{GROWTH_BYTES as LOCK_BYTES, RangeLock};
pub use self::walk::{Found, Last, Name, is_temporary};
use super::stat::Metadata;
use crate::addr::PAGE_SIZE;
use crate::program::Machine;
use hearth_abi::errno::Errno;
use hearth_abi::linux::{access, mode};

/// Inodes and names at most, whatever the memory.
const INODES_MAX: u64 = 16 * 1024;
/// Frames of the node for each inode at least: inodes are on the kernel's heap, which is a part of
/// the memory.
const FRAMES_PER_INODE: u64 = 16;
/// The share of the node's memory that files may take, as of Linux's tmpfs.
const MEMORY_PART: u64 = 2;
/// The device that stat tells of.
const DEVICE: u64 = 2;
/// What Linux's tmpfs says a directory entry takes.
const ENTRY_BYTES: u64 = 20;
/// What stat calls `/tmp` itself.
pub const ROOT_NUMBER: u64 = 1;
const SECTORS_PER_PAGE: u64 = PAGE_SIZE / 512;

/// Number of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ino(u32);

impl Ino {
    /// `/tmp`.
    pub const ROOT: Self = Self(0);
}

/// Number of an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OpenId(u32);

/// A process of the job on this node, which locks are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(pub u16);

/// Who asks: user and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// User; 0 may do everything.
    pub user: u32,
    /// First group.
    pub group: u32,
}

/// Seconds since 1970, and nanoseconds.
pub type Time = (i64, u32);

#[derive(Debug)]
enum Body {
    File {
        blocks: Blocks,
        bytes: u64,
    },
    Directory(Directory),
    /// A symbolic link, with what it leads to in a page.
    Link {
        blocks: Blocks,
        bytes: u64,
    },
    /// A directory of the I/O service, with its path.
    Outside(Box<[u8]>),
}

#[derive(Debug)]
struct Inode {
    /// What stat calls it: no other one ever had the number.
    number: u64,
    mode: u32,
    links: u32,
    owner: [u32; 2],
    times: [Time; 3],
    /// Open files and working directories that are this.
    opens: u32,
    locks: Locks,
    body: Body,
}

impl Inode {
    fn accessed(&mut self, now: Time) {
        let [accessed, modified, changed] = self.times;
        // As a Linux file system that is mounted with relatime.
        if accessed <= modified || accessed <= changed {
            self.times[0] = now;
        }
    }

    fn modified(&mut self, now: Time) {
        (self.times[1], self.times[2]) = (now, now);
    }

    fn changed(&mut self, now: Time) {
        self.times[2] = now;
    }

    fn kind(&self) -> Kind {
        match self.body {
            Body::File { .. } => Kind::File,
            Body::Directory(_) | Body::Outside(_) => Kind::Directory,
            Body::Link { .. } => Kind::Link,
        }
    }

    /// Whether somebody may do what these bits of access say.
    fn allows(&self, who: Who, wanted: u64) -> bool {
        if who.user == 0 {
            let runs = self.kind() == Kind::Directory || self.mode & 0o111 != 0;
            return wanted & access::EXECUTE == 0 || runs;
        }
        let [user, group] = self.owner;
        let shift = match (user == who.user, group == who.group) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        let granted = u64::from(self.mode >> shift & 0o7);
        wanted & !granted == 0
    }

    fn check(&self, who: Who, wanted: u64) -> Result<(), Errno> {
        self.allows(who, wanted).then_some(()).ok_or(Errno::EACCES)
    }
}

/// What an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
}

impl Kind {
    /// Its bits in a mode.
    pub(super) const fn bits(self) -> u32 {
        match self {
            Self::File => mode::REGULAR,
            Self::Directory => mode::DIRECTORY,
            Self::Link => mode::LINK,
        }
    }
}

/// What statfs tells: in frames and inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Frames that files may have.
    pub frames: u64,
    /// Of these, those that can still be had.
    pub frames_free: u64,
    /// Inodes that there may be.
    pub inodes: u64,
    /// Of these, those that can still be had.
    pub inodes_free: u64,
}

/// The files of a job.
#[derive(Debug, Default)]
pub struct Temporary {
    /// None: no rank is there, and no file.
    inodes: Vec<Option<Box<Inode>>>,
    /// No inode with a lower number is free.
    free_from: usize,
    used: u64,
    names: u64,
    inodes_max: u64,
    next_number: u64,
    opens: Vec<Option<Ino>>,
    quota: Quota,
    /// Processes of the job that have not left.
    processes: u16,
    /// All of `/tmp` is the I/O service's.
    is_outside: bool,
}

impl Temporary {
    /// A process of the job has begun. The first one finds `/tmp` empty; `frames` is what the node
    /// has.
    pub fn join(&mut self, frames: u64, now: Time) {
        self.processes += 1;
        if self.processes > 1 {
            return;
        }
        self.quota.most = frames / MEMORY_PART;
        self.inodes_max = (frames / FRAMES_PER_INODE).min(INODES_MAX);
        let root = Body::Directory(Directory::new(Ino::ROOT));
        let who = Who { user: 0, group: 0 };
        let made = self.insert(root, 0o1777, who, now);
        // The heap has as little as that.
        let root = made.expect("the first inode");
        let root = self.get_mut(root);
        (root.number, root.links) = (ROOT_NUMBER, 2);
    }

    /// A process has ended and has nothing open any more. With the last one all files go.
    pub fn leave<M: Machine>(&mut self, machine: &mut M) {
        self.processes -= 1;
        if self.processes > 0 {
            return;
        }
        for index in 0..self.inodes.len() {
            if let Some(mut inode) = self.inodes[index].take()
                && let Body::File { blocks, .. } | Body::Link { blocks, .. } = &mut inode.body
            {
                blocks.clear(machine, &mut self.quota, 0, u64::MAX);
                machine.pause();
            }
        }
        assert_eq!(self.quota.used, 0, "frames of no file");
        *self = Self::default();
    }

    /// Frames that the files have.
    pub fn frames(&self) -> u64 {
        self.quota.used
    }

    /// Bytes of the heap that one more open file may take, of those that are there.
    pub fn open_bytes(&self) -> u64 {
        // A list that is full becomes twice as long.
        3 * ((self.opens.len() + 8) * size_of::<Option<Ino>>()) as u64
    }

    /// Bytes of the heap that one more file may take.
    pub fn growth_bytes(&self) -> u64 {
        // A list that is full becomes twice as long.
        let lists = size_of::<Option<Box<Inode>>>() + Directory::ENTRY_BYTES;
        size_of::<Inode>() as u64 + 512 + 2 * (self.used.max(self.names) + 8) * lists as u64
    }

    /// A directory of the I/O service is in the place of this one: all of `/tmp`, or something
    /// below it. Nothing comes of a path that is none below `/tmp`.
    pub fn set_outside(&mut self, path: &[u8], now: Time) {
        let below = path.strip_prefix(walk::PATH);
        let Some(below) = below.filter(|below| matches!(below.first(), None | Some(b'/'))) else {
            return;
        };
        let names = below.split(|byte| *byte == b'/');
        let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
        let Some((last, before)) = names.split_last() else {
            self.is_outside = true;
            return;
        };
        // Another rank has made it, or there is one below it: then this one has no room.
        let mut at = Ino::ROOT;
        let root = Who { user: 0, group: 0 };
        for name in before {
            // Inside of a directory of the service everything is the service's.
            let Ok(directory) = self.directory(at) else {
                return;
            };
            let found = directory.find(name);
            let made = || self.make_directory_in(at, name, 0o755, root, now);
            match found.map_or_else(made, Ok) {
                Ok(below) => at = below,
                Err(_) => return,
            }
        }
        let is_free = |directory: &Directory| directory.find(last).is_none();
        if self.directory(at).is_ok_and(is_free) {
            let _ = self.make_in(at, last, Body::Outside(path.into()), 0o755, root, now);
        }
    }

    /// Whether all of `/tmp` is the I/O service's.
    pub fn is_outside(&self) -> bool {
        self.is_outside
    }

    /// What is known of an inode.
    pub fn metadata(&self, ino: Ino) -> Metadata {
        let inode = self.get(ino);
        let (bytes, sectors) = match &inode.body {
            Body::File { blocks, bytes } | Body::Link { blocks, bytes } => {
                (*bytes, blocks.pages() * SECTORS_PER_PAGE)
            }
            Body::Directory(directory) => (ENTRY_BYTES * (directory.len() as u64 + 2), 0),
            Body::Outside(_) => (0, 0),
        };
        Metadata {
            device: DEVICE,
            inode: inode.number,
            mode: inode.kind().bits() | inode.mode,
            links: inode.links,
            owner: inode.owner,
            special: 0,
            bytes,
            block: PAGE_SIZE,
            sectors,
            times: inode.times,
        }
    }

    /// What an inode is.
    pub fn kind(&self, ino: Ino) -> Kind {
        self.get(ino).kind()
    }

    /// Whether somebody may do what these bits of access say.
    pub fn access(&self, ino: Ino, who: Who, wanted: u64) -> Result<(), Errno> {
        self.get(ino).check(who, wanted)
    }

    /// How much room there is.
    pub fn room<M: Machine>(&self, machine: &mut M) -> Room {
        Room {
            frames: self.quota.most,
            frames_free: self.quota.left(machine),
            inodes: self.inodes_max,
            inodes_free: self.inodes_max - self.used,
        }
    }

    /// What an open file is.
    ///
    /// # Panics
    /// Where it is not open.
    pub fn opened(&self, open: OpenId) -> Ino {
        let ino = self.opens.get(open.0 as usize).copied().flatten();
        ino.expect("an open file that a descriptor refers to")
    }

    /// One more open file.
    pub fn open_inode(&mut self, ino: Ino) -> Result<OpenId, Errno> {
        let free = self.opens.iter().position(Option::is_none);
        let index = free.unwrap_or(self.opens.len());
        if index == self.opens.len() {
            self.opens.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.opens.push(None);
        }
        self.opens[index] = Some(ino);
        self.get_mut(ino).opens += 1;
        Ok(OpenId(index as u32))
    }

    /// A process has closed an open file, with the last descriptor of it.
    pub fn close<M: Machine>(&mut self, machine: &mut M, process: Process, open: OpenId) {
        let ino = self.opened(open);
        self.opens[open.0 as usize] = None;
        let inode = self.get_mut(ino);
        inode.locks.close(process, open);
        inode.opens -= 1;
        self.forget_unused(machine, ino);
    }

    /// What keeps a process from locking a range of an open file.
    pub fn lock_conflict(
        &self,
        process: Process,
        open: OpenId,
        lock: RangeLock,
    ) -> Option<RangeLock> {
        self.get(self.opened(open)).locks.conflict(process, lock)
    }

    /// Locks a range of an open file for a process; EAGAIN where another one has it.
    pub fn lock(&mut self, process: Process, open: OpenId, lock: RangeLock) -> Result<(), Errno> {
        let ino = self.opened(open);
        self.get_mut(ino).locks.lock(process, lock)
    }

    /// Frees a range that a process may have locked.
    pub fn unlock(
        &mut self,
        process: Process,
        open: OpenId,
        (start, end): (u64, u64),
    ) -> Result<(), Errno> {
        let ino = self.opened(open);
        self.get_mut(ino).locks.unlock(process, start, end)
    }

    /// Locks all of a file for an open file of it, alone or with others; EAGAIN where it cannot be.
    pub fn lock_whole(&mut self, open: OpenId, exclusive: bool) -> Result<(), Errno> {
        let ino = self.opened(open);
        self.get_mut(ino).locks.lock_whole(open, exclusive)
    }

    /// Frees what [`Self::lock_whole`] has locked.
    pub fn unlock_whole(&mut self, open: OpenId) {
        let ino = self.opened(open);
        self.get_mut(ino).locks.unlock_whole(open);
    }

    fn get(&self, ino: Ino) -> &Inode {
        let inode = self.inodes.get(ino.0 as usize).and_then(Option::as_ref);
        inode.expect("an inode that has a name or is open")
    }

    fn get_mut(&mut self, ino: Ino) -> &mut Inode {
        let inode = self.inodes.get_mut(ino.0 as usize);
        let inode = inode.and_then(Option::as_mut);
        inode.expect("an inode that has a name or is open")
    }

    fn directory(&self, ino: Ino) -> Result<&Directory, Errno> {
        match &self.get(ino).body {
            Body::Directory(directory) => Ok(directory),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn directory_mut(&mut self, ino: Ino) -> &mut Directory {
        match &mut self.get_mut(ino).body {
            Body::Directory(directory) => directory,
            _ => unreachable!("it was a directory before"),
        }
    }

    /// A new inode without a name.
    fn insert(&mut self, body: Body, mode: u32, who: Who, now: Time) -> Result<Ino, Errno> {
        if self.used >= self.inodes_max {
            return Err(Errno::ENOSPC);
        }
        let rest = self.inodes.iter().skip(self.free_from);
        let free = rest.take_while(|inode| inode.is_some()).count();
        let index = self.free_from + free;
        if index == self.inodes.len() {
            self.inodes.try_reserve(1).map_err(|_| Errno::ENOSPC)?;
            self.inodes.push(None);
        }
        self.next_number += 1;
        self.inodes[index] = Some(Box::new(Inode {
            number: self.next_number,
            mode: mode & 0o7777,
            links: 0,
            owner: [who.user, who.group],
            times: [now; 3],
            opens: 0,
            locks: Locks::default(),
            body,
        }));
        self.free_from = index + 1;
        self.used += 1;
        Ok(Ino(index as u32))
    }

    /// Forgets an inode that has no name and is not open.
    fn forget_unused<M: Machine>(&mut self, machine: &mut M, ino: Ino) {
        let inode = self.get_mut(ino);
        if inode.links > 0 || inode.opens > 0 {
            return;
        }
        let index = ino.0 as usize;
        let inode = self.inodes[index].take().expect("it was just there");
        if let Body::File { mut blocks, .. } | Body::Link { mut blocks, .. } = inode.body {
            blocks.clear(machine, &mut self.quota, 0, u64::MAX);
        }
        self.free_from = self.free_from.min(index);
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests;
