//! Calls with a path: where it leads, and what is done there.
//!
//! A path leads to what the node has for itself (`kernel_core::files`), which is read only, to
//! `/tmp` ([`super::temporary`]), or to the files of the job's I/O service, which carries the call
//! out ([`super::shipped`]). A job without one has the node's alone.
//!
//! Neighbours: [`super::metadata`] tells what is known of a file.
//!
//! Invariant: what is here decides by the first name of a path, and by nothing behind it, whose
//! affair it is; what the service's paths lead to is the service's to say, and what leads out of
//! `/tmp` is said there.

use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::{access, at, open, rename};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::temporary::{Found, Ino, Kind, Last, Open, is_temporary};
use kernel_core::files::{Opened, PATH_MAX, PROGRAM_LINK, Place, Shipped, is_of_node};
use kernel_core::program::UserSlice;
use netstack::files::{Call, Op, Reply, WORKING};

use super::Args;
use super::shipped::{OPENED_LEN, identity_of, paths, result_of};
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time;

/// Largest piece of a path that is read at once: most are shorter.
const PATH_PIECE: u64 = 256;
/// Permissions of a mode.
const MODE_BITS: u64 = 0o7777;
/// utimensat: now, and as it was.
pub(super) const TIME_NOW: u32 = (1 << 30) - 1;
pub(super) const TIME_OMIT: u32 = (1 << 30) - 2;
const NANOSECONDS_PER_MICROSECOND: u64 = 1_000;

/// Where a path leads.
enum Where {
    /// On the node itself, from this directory.
    Node(Place),
    /// At the I/O service, from this directory.
    Service(u32),
    /// In `/tmp`.
    Temporary(Found),
}

/// What a path, or a descriptor, means to a call that asks about it.
pub(super) enum Named {
    /// This, on the node.
    Node(Opened),
    /// What this call of the service is about: handle and path.
    Service(u32, Vec<u8>),
    /// This, in `/tmp`.
    Temporary(Ino),
}

impl Current<'_> {
    pub(super) fn open(
        &mut self,
        directory: i32,
        path: u64,
        flags: u64,
        mode: u64,
    ) -> Result<u64, Stop> {
        let mut path = self.read_path(path)?;
        let mode = mode & MODE_BITS & !self.process.files.mode_mask();
        let asked = Open {
            flags,
            mode: mode as u32,
        };
        let last = asked.last(&path);
        let handle = match self.place_of(directory, &mut path, last)? {
            Where::Node(from) => return self.open_here(from, &path, flags, mode),
            Where::Temporary(found) => return self.open_temporary(&found, asked),
            Where::Service(handle) => handle,
        };
        self.process.files.descriptors.make_room()?;
        let (run, reply) = self.ship_in_run(|| {
            Call::new(Op::Open, handle)
                .with_words([flags & !open::CLOEXEC, mode])
                .with_input(path.clone())
                .with_room(OPENED_LEN)
        })?;
        match result_of(&reply) {
            // What a job was given by name is found by its bare name, as without a service.
            Err(Errno::ENOENT) if is_bare(&path) && flags & open::CREATE == 0 => {
                let files = &mut self.process.files.names;
                let place = files.open(Place::With, &path, flags, 0)?;
                Ok(self.process.files.descriptors.open(place, flags)?)
            }
            Err(errno) => Err(errno.into()),
            Ok(handle) => {
                let origin = (directory, &path[..], flags);
                let shipped = self.shipped_as(handle, run, &reply, origin)?;
                let opened = self.process.files.descriptors.open_shipped(shipped, flags);
                // Another thread may have taken the last descriptor meanwhile.
                if opened.is_err() {
                    self.let_go(Some(Opened::Shipped(shipped)));
                }
                Ok(opened?)
            }
        }
    }

    /// What the service has opened in this run, by directory, path and flags.
    fn shipped_as(
        &mut self,
        handle: u64,
        run: u64,
        reply: &Reply,
        (directory, path, flags): (i32, &[u8], u64),
    ) -> Result<Shipped, Errno> {
        let (metadata, identity) = identity_of(reply).ok_or(Errno::EIO)?;
        let kind = metadata.mode & hearth_abi::linux::mode::KIND;
        let shipped = Shipped {
            handle: u32::try_from(handle).map_err(|_| Errno::EIO)?,
            run,
            is_directory: kind == hearth_abi::linux::mode::DIRECTORY,
        };
        let files = &mut self.process.files;
        let below = match directory {
            at::CWD => Some(files.working),
            fd => {
                let description = files.descriptors.get(fd as u32 as u64);
                description.ok().map(|description| description.opened)
            }
        };
        // A directory that another thread has closed meanwhile is nowhere.
        let path = match below {
            Some(Opened::Shipped(below)) => {
                let below = (below.handle != WORKING).then_some(below);
                files.origins.path(below, path)
            }
            _ if path.first() == Some(&b'/') => files.origins.path(None, path),
            _ => None,
        };
        files.origins.insert(shipped, path, flags, identity);
        Ok(shipped)
    }

    fn open_here(&mut self, from: Place, path: &[u8], flags: u64, mode: u64) -> Result<u64, Stop> {
        self.process.files.descriptors.make_room()?;
        let place = self
            .process
            .files
            .names
            .open(from, path, flags, mode as u32);
        // Answered as by a file system that is mounted read only, and told as what is missing. A
        // file that is not there and is not to be made is the program's own affair.
        let is_missing = match place {
            Err(Errno::EROFS) => flags & (open::ACCESS_MODE | open::CREATE) != 0,
            Err(Errno::ENOENT) => flags & open::CREATE != 0,
            _ => false,
        };
        if is_missing {
            self.count_missing(self.thread.context.rax);
        }
        let place = place?;
        if let Place::SharedMemory(object) = place
            && flags & open::TRUNCATE != 0
        {
            self.set_shared_length(object, 0)?;
        }
        Ok(self.process.files.descriptors.open(place, flags)?)
    }

    pub(super) fn creat(&mut self, path: u64, mode: u64) -> Result<u64, Stop> {
        let flags = open::CREATE | open::WRITE_ONLY | open::TRUNCATE;
        self.open(at::CWD, path, flags, mode)
    }

    pub(super) fn mkdir(&mut self, directory: i32, path: u64, mode: u64) -> Result<u64, Stop> {
        let mode = mode & MODE_BITS & !self.process.files.mode_mask();
        self.change(directory, path, Op::MakeDirectory, [mode, 0], Change::Makes)
    }

    /// unlink, rmdir and unlinkat.
    pub(super) fn unlink(&mut self, directory: i32, path: u64, flags: u64) -> Result<u64, Stop> {
        if flags & !at::REMOVEDIR != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.change(directory, path, Op::Remove, [flags, 0], Change::Needs)
    }

    /// chmod and fchmodat; of a descriptor fchmod.
    pub(super) fn chmod(&mut self, directory: i32, path: u64, mode: u64) -> Result<u64, Stop> {
        let words = [mode & MODE_BITS, 0];
        self.change(directory, path, Op::ChangeMode, words, Change::Needs)
    }

    pub(super) fn fchmod(&mut self, fd: u64, mode: u64) -> Result<u64, Stop> {
        if let Some(object) = self.shared_memory(fd) {
            let shared = &mut self.process.files.names.shared;
            shared.set_mode(object, (mode & MODE_BITS) as u32);
            return Ok(0);
        }
        self.change_open(fd, Op::ChangeMode, [mode & MODE_BITS, 0, 0, 0])
    }

    /// chown, lchown and fchownat.
    pub(super) fn chown(
        &mut self,
        directory: i32,
        [path, user, group, flags]: [u64; 4],
    ) -> Result<u64, Stop> {
        if flags & !(at::EMPTY_PATH | at::SYMLINK_NOFOLLOW) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let owner = |id: u64| u64::from(id as u32);
        let words = [owner(user), owner(group), flags, 0];
        let named = self.named(directory, path, flags)?;
        self.change_named(named, Op::ChangeOwner, words)
    }

    pub(super) fn fchown(&mut self, fd: u64, user: u64, group: u64) -> Result<u64, Stop> {
        let owner = |id: u64| u64::from(id as u32);
        self.change_open(fd, Op::ChangeOwner, [owner(user), owner(group), 0, 0])
    }

    pub(super) fn truncate(&mut self, path: u64, length: u64) -> Result<u64, Stop> {
        if i64::try_from(length).is_err() {
            return Err(Errno::EINVAL.into());
        }
        self.change(at::CWD, path, Op::SetLength, [length, 0], Change::Needs)
    }

    /// utimensat: without a path, of a descriptor.
    pub(super) fn utimensat(&mut self, args: Args) -> Result<u64, Stop> {
        let [directory, path, times, flags, ..] = args;
        if flags & !(at::EMPTY_PATH | at::SYMLINK_NOFOLLOW) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let mut stamps = [[0, TIME_NOW.into()]; 2];
        if times != 0 {
            stamps = self.read_pairs(times)?;
        }
        self.set_times(directory as i32, path, stamps, flags)
    }

    /// utime: whole seconds.
    pub(super) fn utime(&mut self, path: u64, times: u64) -> Result<u64, Stop> {
        let mut stamps = [[0, TIME_NOW.into()]; 2];
        if times != 0 {
            let [seconds] = self.read_pairs::<1>(times)?;
            stamps = seconds.map(|seconds| [seconds, 0]);
        }
        self.set_times(at::CWD, path, stamps, 0)
    }

    /// utimes and futimesat: microseconds.
    pub(super) fn utimes(&mut self, directory: i32, path: u64, times: u64) -> Result<u64, Stop> {
        let mut stamps = [[0, TIME_NOW.into()]; 2];
        if times != 0 {
            stamps = self.read_pairs(times)?;
            for [_, fraction] in &mut stamps {
                if *fraction >= 1_000_000 {
                    return Err(Errno::EINVAL.into());
                }
                *fraction *= NANOSECONDS_PER_MICROSECOND;
            }
        }
        self.set_times(directory, path, stamps, 0)
    }

    fn read_pairs<const N: usize>(&mut self, address: u64) -> Result<[[u64; 2]; N], Stop> {
        let mut pairs = [[0; 2]; N];
        for (index, pair) in pairs.iter_mut().enumerate() {
            let at = address.checked_add(16 * index as u64);
            let bytes: [u8; 16] = self.read_array(at.ok_or(Errno::EFAULT)?)?;
            for (word, bytes) in pair.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            }
        }
        Ok(pairs)
    }

    fn set_times(
        &mut self,
        directory: i32,
        path: u64,
        [accessed, modified]: [[u64; 2]; 2],
        flags: u64,
    ) -> Result<u64, Stop> {
        let half = |nanoseconds: u64| u32::try_from(nanoseconds).map(u64::from);
        let nanoseconds = half(accessed[1]).and_then(|low| Ok(low | half(modified[1])? << 32));
        let nanoseconds = nanoseconds.map_err(|_| Errno::EINVAL)?;
        let words = [accessed[0], modified[0], nanoseconds, flags];
        let named = match path {
            0 => self.named_by_descriptor(directory as u32 as u64)?,
            _ => self.named(directory, path, flags)?,
        };
        self.change_named(named, Op::SetTimes, words)
    }

    /// rename, renameat and renameat2.
    pub(super) fn rename(&mut self, args: Args) -> Result<u64, Stop> {
        let [from, path, to, new, flags, _] = args;
        if flags & !rename::ALL != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.change_two(Op::Rename, [from, path, to, new], flags)
    }

    /// link and linkat.
    pub(super) fn link(&mut self, args: Args) -> Result<u64, Stop> {
        let [from, path, to, new, flags, _] = args;
        if flags & !at::SYMLINK_FOLLOW != 0 {
            return Err(Errno::EINVAL.into());
        }
        self.change_two(Op::Link, [from, path, to, new], flags)
    }

    fn change_two(
        &mut self,
        op: Op,
        [from, path, to, new]: [u64; 4],
        flags: u64,
    ) -> Result<u64, Stop> {
        let (mut path, mut new) = (self.read_path(path)?, self.read_path(new)?);
        let last = match (op, flags & at::SYMLINK_FOLLOW) {
            (Op::Rename, _) => Last::Name,
            (_, 0) => Last::Link,
            _ => Last::Target,
        };
        let first = self.place_of(from as i32, &mut path, last)?;
        if let Where::Temporary(found) = &first
            && op == Op::Link
        {
            found.there()?;
        }
        match [first, self.place_of(to as i32, &mut new, Last::Name)?] {
            [Where::Temporary(from), Where::Temporary(to)] => {
                self.check_growth()?;
                let (who, now) = (self.who(), time::of_files());
                let files = self.services.temporary();
                match op {
                    Op::Link => files.link(&from, &to, who, now)?,
                    _ => {
                        let machine = &mut Hardware::new();
                        files.rename(machine, [&from, &to], flags, who, now)?;
                    }
                }
                Ok(0)
            }
            [Where::Service(first), Where::Service(second)] => {
                let reply = self.ship(|| {
                    let call = Call::new(op, first).with_words([flags]);
                    Call {
                        handles: [first, second],
                        ..call.with_input(paths(&path, &new))
                    }
                })?;
                Ok(result_of(&reply)?)
            }
            [Where::Node(from), Where::Node(to)] => {
                let places = [(from, &path[..]), (to, &new[..])];
                if let Some(done) = self.change_two_shared(op, places, flags)? {
                    return Ok(done);
                }
                self.process.files.names.resolve(from, &path)?;
                Err(self.read_only())
            }
            _ => Err(Errno::EXDEV.into()),
        }
    }

    /// symlink and symlinkat.
    pub(super) fn symlink(&mut self, target: u64, directory: i32, path: u64) -> Result<u64, Stop> {
        let (target, mut path) = (self.read_path(target)?, self.read_path(path)?);
        match self.place_of(directory, &mut path, Last::Name)? {
            Where::Temporary(found) => {
                self.check_growth()?;
                self.services
                    .keep_room(kernel_core::files::temporary::ROOM_FRAMES);
                let (who, now) = (self.who(), time::of_files());
                let files = self.services.temporary();
                files.make_link(&mut Hardware::new(), &target, &found, who, now)?;
                Ok(0)
            }
            Where::Service(handle) => {
                let input = || paths(&target, &path);
                let reply =
                    self.ship(|| Call::new(Op::SymbolicLink, handle).with_input(input()))?;
                Ok(result_of(&reply)?)
            }
            Where::Node(_) => Err(self.read_only()),
        }
    }

    /// Of the node's own there is one link, to the program.
    pub(super) fn readlink(
        &mut self,
        directory: i32,
        [path, address, length]: [u64; 3],
    ) -> Result<u64, Stop> {
        let length = usize::try_from(length as i32).ok();
        let length = length.filter(|length| *length > 0).ok_or(Errno::EINVAL)?;
        let target = match self.read_path(path)? {
            path if path == PROGRAM_LINK => self.process.files.program.clone(),
            _ => match self.named(directory, path, at::EMPTY_PATH | at::SYMLINK_NOFOLLOW)? {
                Named::Node(_) => return Err(Errno::EINVAL.into()),
                Named::Temporary(ino) => {
                    let files = self.services.temporary();
                    files.link_target(Hardware::new().memory(), ino)?
                }
                Named::Service(handle, path) => {
                    let room = length.min(PATH_MAX);
                    let reply = self.ship(|| {
                        let call = Call::new(Op::ReadLink, handle);
                        call.with_input(path).with_room(room)
                    })?;
                    result_of(&reply)?;
                    reply.output
                }
            },
        };
        let taken = target.len().min(length);
        self.write_bytes(address, &target[..taken])?;
        Ok(taken as u64)
    }

    pub(super) fn chdir(&mut self, path: u64) -> Result<u64, Stop> {
        match self.named(at::CWD, path, 0)? {
            Named::Node(opened) => self.work_in(opened),
            Named::Service(handle, path) => self.work_in_service(handle, at::CWD, &path),
            Named::Temporary(ino) => self.work_in_temporary(ino),
        }
    }

    pub(super) fn fchdir(&mut self, fd: u64) -> Result<u64, Stop> {
        let opened = self.process.files.descriptors.get(fd)?.opened;
        match self.shipped(fd)? {
            // The descriptor may be closed and the directory stays.
            Some(shipped) => self.work_in_service(shipped.handle, fd as i32, b"."),
            None => match opened {
                Opened::Temporary(open, _) => {
                    let ino = self.services.temporary().opened(open);
                    self.work_in_temporary(ino)
                }
                opened => self.work_in(opened),
            },
        }
    }

    fn work_in_service(&mut self, handle: u32, directory: i32, path: &[u8]) -> Result<u64, Stop> {
        let flags = open::PATH | open::DIRECTORY;
        let (run, reply) = self.ship_in_run(|| {
            Call::new(Op::Open, handle)
                .with_words([flags])
                .with_input(path.to_vec())
                .with_room(OPENED_LEN)
        })?;
        let handle = result_of(&reply)?;
        let shipped = self.shipped_as(handle, run, &reply, (directory, path, flags))?;
        self.work_in(Opened::Shipped(shipped))
    }

    fn work_in_temporary(&mut self, ino: Ino) -> Result<u64, Stop> {
        let who = self.who();
        let files = self.services.temporary();
        let kind = files.kind(ino);
        if kind != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        files.access(ino, who, access::EXECUTE)?;
        let open = files.open_inode(ino)?;
        self.work_in(Opened::Temporary(open, kind))
    }

    fn work_in(&mut self, opened: Opened) -> Result<u64, Stop> {
        match opened {
            Opened::Place(place) if !place.is_directory() => return Err(Errno::ENOTDIR.into()),
            Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => {}
            Opened::Stream(_) | Opened::Channel(..) => return Err(Errno::ENOTDIR.into()),
        }
        let before = core::mem::replace(&mut self.process.files.working, opened);
        let is_own = !matches!(before, Opened::Shipped(shipped) if shipped.handle == WORKING);
        self.let_go(is_own.then_some(before));
        Ok(0)
    }

    pub(super) fn getcwd(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        let mut path = match self.process.files.working {
            Opened::Place(Place::Root) => b"/".to_vec(),
            Opened::Place(Place::SharedDirectory) => Place::SHARED_PATH.to_vec(),
            Opened::Temporary(open, _) => {
                let files = self.services.temporary();
                files.path(files.opened(open))?
            }
            Opened::Shipped(shipped) => {
                let handle = self.current(shipped)?.handle;
                let reply = self.ship(|| Call::new(Op::Path, handle).with_room(PATH_MAX))?;
                result_of(&reply)?;
                reply.output
            }
            _ => Place::WORKING_PATH.to_vec(),
        };
        path.push(0);
        if length < path.len() as u64 {
            return Err(Errno::ERANGE.into());
        }
        self.write_bytes(address, &path)?;
        Ok(path.len() as u64)
    }

    /// A call that changes something by its path.
    fn change(
        &mut self,
        directory: i32,
        path: u64,
        op: Op,
        [first, second]: [u64; 2],
        change: Change,
    ) -> Result<u64, Stop> {
        let mut path = self.read_path(path)?;
        if path.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        let last = match op {
            Op::MakeDirectory | Op::Remove => Last::Name,
            _ => Last::Target,
        };
        match self.place_of(directory, &mut path, last)? {
            Where::Temporary(found) => self.change_name_temporary(&found, op, first),
            Where::Service(handle) => {
                self.change_named(Named::Service(handle, path), op, [first, second, 0, 0])
            }
            Where::Node(from) => {
                if let Some(done) = self.change_shared(from, &path, op, [first, second])? {
                    return Ok(done);
                }
                match (self.process.files.names.resolve(from, &path), change) {
                    (Ok(_), Change::Makes) => return Err(Errno::EEXIST.into()),
                    (Err(Errno::ENOENT), Change::Makes) => {}
                    (resolved, _) => {
                        resolved?;
                    }
                }
                Err(self.read_only())
            }
        }
    }

    /// A call that changes something that is there.
    fn change_named(&mut self, named: Named, op: Op, words: [u64; 4]) -> Result<u64, Stop> {
        match named {
            Named::Service(handle, path) => {
                let call = || Call::new(op, handle).with_words(words).with_input(path);
                let reply = self.ship(call)?;
                Ok(result_of(&reply)?)
            }
            Named::Temporary(ino) => self.change_temporary(ino, op, words),
            Named::Node(_) => Err(self.read_only()),
        }
    }

    /// A call that changes what a descriptor refers to.
    pub(super) fn change_open(&mut self, fd: u64, op: Op, words: [u64; 4]) -> Result<u64, Stop> {
        let named = self.named_by_descriptor(fd)?;
        if matches!(named, Named::Temporary(_)) && self.process.files.descriptors.get(fd)?.is_path()
        {
            return Err(Errno::EBADF.into());
        }
        if op == Op::Sync {
            return self.synchronise(fd, named, words);
        }
        self.changed(fd);
        let value = self.change_named(named, op, words)?;
        self.changed(fd);
        Ok(value)
    }

    /// fsync and fdatasync. What is written meanwhile counts as not synchronised.
    fn synchronise(&mut self, fd: u64, named: Named, words: [u64; 4]) -> Result<u64, Stop> {
        let Opened::Shipped(file) = self.process.files.descriptors.get(fd)?.opened else {
            return self.change_named(named, Op::Sync, words);
        };
        let before = self.process.files.origins.changes(file);
        let before = *self.thread.progress().changes.get_or_insert(before);
        let value = self.change_named(named, Op::Sync, words)?;
        self.process.files.origins.synchronise(file, before);
        Ok(value)
    }

    pub(super) fn named_by_descriptor(&mut self, fd: u64) -> Result<Named, Stop> {
        let opened = self.process.files.descriptors.get(fd)?.opened;
        Ok(match (self.shipped(fd)?, opened) {
            (Some(shipped), _) => Named::Service(shipped.handle, Vec::new()),
            (None, Opened::Temporary(open, _)) => {
                Named::Temporary(self.services.temporary().opened(open))
            }
            (None, opened) => Named::Node(opened),
        })
    }

    /// What the node has cannot be changed: the program misses an I/O service.
    fn read_only(&mut self) -> Stop {
        self.count_missing_as(Errno::EROFS)
    }

    /// What a path, or with an empty one a descriptor, means to a call that asks about it.
    pub(super) fn named(&mut self, directory: i32, path: u64, flags: u64) -> Result<Named, Stop> {
        let mut path = self.read_path(path)?;
        if path.is_empty() && flags & at::EMPTY_PATH != 0 {
            if directory != at::CWD {
                return self.named_by_descriptor(directory as u32 as u64);
            }
            return Ok(match self.process.files.working {
                Opened::Shipped(shipped) => {
                    Named::Service(self.current(shipped)?.handle, Vec::new())
                }
                Opened::Temporary(open, _) => {
                    Named::Temporary(self.services.temporary().opened(open))
                }
                here => Named::Node(here),
            });
        }
        let last = match flags & at::SYMLINK_NOFOLLOW {
            0 => Last::Target,
            _ => Last::Link,
        };
        match self.place_of(directory, &mut path, last)? {
            Where::Temporary(found) => Ok(Named::Temporary(found.there()?)),
            Where::Service(_) if path.is_empty() => Err(Errno::ENOENT.into()),
            Where::Service(handle) => Ok(Named::Service(handle, path)),
            Where::Node(from) => {
                let place = self.process.files.names.resolve(from, &path)?;
                Ok(Named::Node(Opened::Place(place)))
            }
        }
    }

    /// Whose a path is, and where it begins. One that leads out of `/tmp` is another one then.
    fn place_of(&mut self, directory: i32, path: &mut Vec<u8>, last: Last) -> Result<Where, Stop> {
        let mut from = match (path.first(), directory) {
            (Some(b'/'), _) => None,
            (_, at::CWD) => Some(self.process.files.working),
            (_, fd) => Some(self.process.files.descriptors.get(fd as u32 as u64)?.opened),
        };
        let is_root = match from {
            Some(Opened::Shipped(shipped)) => self.process.files.origins.is_root(shipped),
            from => from == Some(Opened::Place(Place::Root)),
        };
        if is_root && !path.is_empty() {
            path.insert(0, b'/');
            from = None;
        }
        let files = self.services.temporary();
        let begins = match from {
            None if is_temporary(path) && !files.is_outside() => Some(Ino::ROOT),
            Some(Opened::Temporary(open, _)) => Some(files.opened(open)),
            _ => None,
        };
        if let Some(begins) = begins {
            let who = self.who();
            let files = self.services.temporary();
            match files.walk(Hardware::new().memory(), begins, path, last, who)? {
                Found::Outside(outside) => (*path, from) = (outside, None),
                found => return Ok(Where::Temporary(found)),
            }
        }
        match from {
            None if self.ships() && !is_of_node(path) => Ok(Where::Service(WORKING)),
            None => Ok(Where::Node(Place::Root)),
            Some(Opened::Place(place)) if place.is_directory() => Ok(Where::Node(place)),
            Some(Opened::Shipped(shipped)) if shipped.is_directory => {
                Ok(Where::Service(self.current(shipped)?.handle))
            }
            Some(_) => Err(Errno::ENOTDIR.into()),
        }
    }

    /// A path of the program, without its zero byte.
    fn read_path(&mut self, address: u64) -> Result<Vec<u8>, Stop> {
        let mut path = Vec::new();
        while path.len() < PATH_MAX {
            let at = address
                .checked_add(path.len() as u64)
                .ok_or(Errno::EFAULT)?;
            // Not into a page that the path does not reach.
            let length = (PAGE_SIZE - at % PAGE_SIZE).min(PATH_PIECE);
            let mut piece = [0; PATH_PIECE as usize];
            let piece = &mut piece[..length as usize];
            self.read_user(UserSlice::new(at, length)?, piece)?;
            match piece.iter().position(|&byte| byte == 0) {
                Some(end) => {
                    path.extend_from_slice(&piece[..end]);
                    // The last piece may end beyond the limit.
                    return match path.len() < PATH_MAX {
                        true => Ok(path),
                        false => Err(Errno::ENAMETOOLONG.into()),
                    };
                }
                None => path.extend_from_slice(piece),
            }
        }
        Err(Errno::ENAMETOOLONG.into())
    }
}

/// What a change does with its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// It makes something there.
    Makes,
    /// It needs what is there.
    Needs,
}

/// Whether a path is a single name.
pub(super) fn is_bare(path: &[u8]) -> bool {
    !path.is_empty() && !path.contains(&b'/')
}
