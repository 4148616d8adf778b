//! The files a program finds: `/with/NAME` for each file its launch named, and small ones of the
//! node.
//!
//! | item | what it is |
//! |---|---|
//! | [`Files`] | the names, and what a path leads to |
//! | [`Descriptors`] | the program's open files, with the standard streams among them |
//! | [`NodeFile`] | the small files of the node |
//! | [`Origins`] | how files of an I/O service are opened again |
//! | [`ReadAhead`] | what was read of them beyond what the program asked for |
//! | [`CastFiles`] | which of them are in the node's memory |
//! | [`shared_memory`] | shared memory objects: what a program makes in `/dev/shm` |
//! | [`temporary`] | what the ranks of a job make in `/tmp` |
//! | [`channels`] | pipes, event counters and epolls |
//! | [`ready`] | what poll, select and epoll say of them |
//! | [`stat`] | what stat, statx and getdents64 say, as bytes |
//!
//! There are three directories, `/`, `/with` and `/dev/shm`. The program works in `/with`, so that
//! one which opens its input by a bare name finds it. What was there before the program is there to
//! be read and not to be written. What is written to a pipe or to a shared memory object is for the
//! program itself.
//!
//! Neighbours: `kernel::process::files` fills [`Files`] from the launch block,
//! `kernel::process::calls` answers the program's calls with this; the bytes are in
//! [`crate::objects`].
//!
//! Invariant: a path leads nowhere but to these; no answer depends on what other jobs have.

mod ahead;
mod cast;
pub mod channels;
mod descriptors;
mod epoll;
mod node;
mod origins;
mod path;
pub mod ready;
pub mod shared_memory;
pub mod stat;
pub mod temporary;

use alloc::string::String;
use alloc::vec::Vec;

use crate::objects::ObjectId;
pub use ahead::{BYTES as AHEAD_BYTES, ReadAhead};
pub use cast::{CastFile, CastFiles};
pub use channels::ChannelId;
pub use descriptors::{DESCRIPTORS_MAX, Description, Descriptors, Held, Opened, Shipped};
use hearth_abi::errno::Errno;
use hearth_abi::linux::{access, open};
pub use node::{NodeFile, PROGRAM_LINK};
pub use origins::{Identity, Opening, Origins};
pub use path::{NAME_MAX, PATH_MAX, is_of_node};
pub use shared_memory::SharedMemory;

/// A file that the launch named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its name in `/with`.
    pub name: String,
    /// What it holds.
    pub object: ObjectId,
    /// Its length in bytes.
    pub bytes: u64,
}

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `/`.
    Root,
    /// `/with`.
    With,
    /// The file with this number.
    File(u16),
    /// A file of the node.
    Node(NodeFile),
    /// `/dev/shm`.
    SharedDirectory,
    /// The shared memory object with this number.
    SharedMemory(u16),
}

impl Place {
    /// The working directory of a program without an I/O service, and its path.
    pub const WORKING: Self = Self::With;
    /// See [`Place::WORKING`].
    pub const WORKING_PATH: &[u8] = b"/with";
    /// The directory of shared memory objects.
    pub const SHARED_PATH: &[u8] = b"/dev/shm";

    /// Whether it is a device of the node.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Node(file) if file.is_device())
    }

    /// Whether it is a directory.
    pub const fn is_directory(self) -> bool {
        matches!(self, Self::Root | Self::With | Self::SharedDirectory)
    }

    /// Whether it is of the shared memory, which the program may change.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::SharedDirectory | Self::SharedMemory(_))
    }
}

/// The files of a program, by number.
#[derive(Clone, Debug, Default)]
pub struct Files {
    list: Vec<File>,
    /// What the program has made in `/dev/shm`.
    pub shared: SharedMemory,
}

impl Files {
    /// These files. Their names differ, and have neither `/` nor zero bytes: the launch block was
    /// read so.
    pub fn new(list: Vec<File>) -> Self {
        assert!(list.len() <= usize::from(u16::MAX), "too many files");
        let shared = SharedMemory::default();
        Self { list, shared }
    }

    /// The file with a number that [`Files::resolve`] gave.
    pub fn file(&self, number: u16) -> &File {
        &self.list[usize::from(number)]
    }

    /// All files in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &File> + '_ {
        self.list.iter()
    }

    /// What a path leads to from the directory `from`.
    pub fn resolve(&self, from: Place, path: &[u8]) -> Result<Place, Errno> {
        match path::walk(self, from, path)? {
            path::Found::There(place) => Ok(place),
            path::Found::Absent | path::Found::New(_) => Err(Errno::ENOENT),
        }
    }

    /// The name that a path has for a shared memory object, be it there or not; `None` where it
    /// leads to anything else.
    pub fn shared_name<'p>(&self, from: Place, path: &'p [u8]) -> Option<&'p [u8]> {
        match path::walk(self, from, path).ok()? {
            path::Found::New(name) => Some(name),
            path::Found::There(Place::SharedMemory(_)) => {
                path.split(|&byte| byte == b'/').next_back()
            }
            path::Found::There(_) | path::Found::Absent => None,
        }
    }

    /// What open answers: as on a file system that is mounted to be read only, but for shared
    /// memory objects, which it makes with the rights `mode`.
    pub fn open(
        &mut self,
        from: Place,
        path: &[u8],
        flags: u64,
        mode: u32,
    ) -> Result<Place, Errno> {
        let creates = flags & open::CREATE != 0;
        let found = path::walk(self, from, path)?;
        let place = match found {
            path::Found::There(_) if creates && flags & open::EXCLUSIVE != 0 => {
                return Err(Errno::EEXIST);
            }
            path::Found::There(place) => place,
            path::Found::New(_) if creates && flags & open::DIRECTORY != 0 => {
                return Err(Errno::EINVAL);
            }
            path::Found::New(name) if creates => {
                return Ok(Place::SharedMemory(self.shared.create(name, mode)?));
            }
            path::Found::Absent if creates => return Err(Errno::EROFS),
            path::Found::Absent | path::Found::New(_) => return Err(Errno::ENOENT),
        };
        if flags & open::PATH != 0 {
            return match !place.is_directory() && flags & open::DIRECTORY != 0 {
                true => Err(Errno::ENOTDIR),
                false => Ok(place),
            };
        }
        let writes = flags & open::ACCESS_MODE != open::READ_ONLY || flags & open::TRUNCATE != 0;
        let no_name = flags & open::TMPFILE != 0;
        match place.is_directory() {
            false if flags & open::DIRECTORY != 0 => Err(Errno::ENOTDIR),
            true if no_name => Err(Errno::EROFS),
            true if writes || creates => Err(Errno::EISDIR),
            false if writes && !place.is_device() && !place.is_shared() => Err(Errno::EROFS),
            _ => Ok(place),
        }
    }

    /// What access answers about a place: everything may be read, directories be passed. The
    /// program's user may do with its shared memory objects what it wants to.
    pub fn access(place: Place, mode: u64) -> Result<(), Errno> {
        if mode & !(access::READ | access::WRITE | access::EXECUTE) != 0 {
            return Err(Errno::EINVAL);
        }
        if mode & access::WRITE != 0 && !place.is_device() && !place.is_shared() {
            return Err(Errno::EROFS);
        }
        match mode & access::EXECUTE != 0 && !place.is_directory() {
            true => Err(Errno::EACCES),
            false => Ok(()),
        }
    }

    /// Number of the file with this name.
    fn named(&self, name: &[u8]) -> Option<u16> {
        let named = |file: &File| file.name.as_bytes() == name;
        let index = self.list.iter().position(named)?;
        Some(index as u16)
    }
}

#[cfg(test)]
mod tests;
