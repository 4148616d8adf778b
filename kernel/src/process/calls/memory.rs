//! brk, mmap, mremap, munmap, mprotect, madvise.
//!
//! The calls that change a range do so in steps of a table's pages, and look at the network in
//! between when it is time ([`Polling`]): however much memory a program has, it cannot keep its
//! node from its duties. They touch each page that is in memory and each table once, however long
//! the range, and are not cut short when the program is to end.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{advice, map, mremap, prot};
use kernel_core::addr::{PAGE_SIZE, USER_END, page_up};
use kernel_core::files::temporary::Kind;
use kernel_core::files::{Opened, Place};
use kernel_core::program::UserSlice;
use kernel_core::readahead::AHEAD_IN_FLIGHT_MAX;
use kernel_core::retention::ROOM_FRAMES;
use kernel_core::space::{FileMap, MapRequest, RemapRequest};

use super::Args;
use super::buffers::Buffers;
use super::file::Stored;
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::polling::Polling;

/// A mapping that a file is copied into: where it is, and bytes that are there.
#[derive(Clone, Copy, Debug)]
pub(in crate::process) struct Copied {
    address: u64,
    bytes: u64,
}

impl Current<'_> {
    pub(super) fn brk(&mut self, wanted: u64) -> Result<u64, Stop> {
        Ok(self
            .process
            .memory()
            .brk(&mut Polling::new(self.services), wanted))
    }

    pub(super) fn mmap(&mut self, args: Args) -> Result<u64, Stop> {
        let mapped = self.map(args);
        if let Err(Stop::Wait(_)) = mapped {
            return mapped;
        }
        let copied = self.thread.progress.and_then(|progress| progress.copied);
        if let (Err(_), Some(copied)) = (&mapped, copied) {
            // A file that could not be read to its end.
            let mut machine = Polling::new(self.services);
            let memory = self.process.memory();
            memory.munmap(&mut machine, copied.address, args[1])?;
        }
        self.forget_shared();
        mapped
    }

    fn map(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, protection, flags, fd, offset] = args;
        let request = MapRequest {
            address,
            length,
            protection,
            flags,
            fd: fd as i32,
        };
        if flags & map::ANONYMOUS != 0 {
            let mut machine = Polling::new(self.services);
            return Ok(self.process.memory().mmap(&mut machine, request)?);
        }
        if let Some(shipped) = self.shipped(fd)? {
            self.check_mappable(fd, &request)?;
            return self.map_copied(shipped.is_directory, request, offset, |current, at, to| {
                let to = Buffers::whole(to.start(), to.length())?;
                current.read_shipped(fd, shipped, Some(at), to)
            });
        }
        if let Some((open, kind)) = self.temporary(fd)? {
            self.check_mappable(fd, &request)?;
            let file = Stored::Temporary(open);
            return self.map_copied(kind != Kind::File, request, offset, |current, at, to| {
                current.read_file(file, at, to)
            });
        }
        if let Some(object) = self.shared_memory(fd) {
            return self.map_shared(fd, object, request, offset);
        }
        let file = self.mappable(fd)?;
        let file = FileMap {
            file,
            bytes: self.process.files.names.file(file).bytes,
            offset,
        };
        let mut machine = Polling::new(self.services);
        Ok(self
            .process
            .memory()
            .mmap_file(&mut machine, request, file)?)
    }

    /// Maps a file that others may write to: what it holds now is copied in by `read` from an
    /// offset on, so that what is written to it later is not seen, as POSIX leaves open. It is of
    /// the file that the descriptor had at first, also when another thread closes that. What is
    /// written to a shared mapping would have to reach the file, which it does not: ENODEV.
    fn map_copied(
        &mut self,
        is_directory: bool,
        request: MapRequest,
        offset: u64,
        read: impl Fn(&mut Self, u64, UserSlice) -> Result<u64, Stop>,
    ) -> Result<u64, Stop> {
        let is_shared = request.flags & (map::SHARED | map::PRIVATE) != map::PRIVATE;
        if is_shared && request.protection & prot::WRITE != 0 {
            return Err(self.count_missing_as(Errno::ENODEV));
        }
        if is_directory {
            return Err(Errno::ENODEV.into());
        }
        if !offset.is_multiple_of(PAGE_SIZE) || i64::try_from(offset).is_err() {
            return Err(Errno::EINVAL.into());
        }
        self.keep_to(u64::from(request.fd as u32))?;
        let begun = self.thread.progress.and_then(|progress| progress.copied);
        let Copied { address, mut bytes } = match begun {
            Some(copied) => copied,
            None => Copied {
                address: self.map_for_copy(&request)?,
                bytes: 0,
            },
        };
        // A read that is cut short by an error tells of it when it is asked for the rest.
        while bytes < request.length {
            self.thread.progress().copied = Some(Copied { address, bytes });
            let to = UserSlice::new(address, request.length)?.after(bytes);
            match read(self, offset + bytes, to)? {
                0 => break,
                more => bytes += more,
            }
        }
        let mut machine = Polling::new(self.services);
        let memory = self.process.memory();
        memory.mprotect(&mut machine, address, request.length, request.protection)?;
        if is_shared {
            memory.seal(address, request.length)?;
        }
        if request.flags & map::FIXED == 0 || address == request.address {
            return Ok(address);
        }
        let into_place = RemapRequest {
            address,
            length: request.length,
            new_length: request.length,
            flags: mremap::MAYMOVE | mremap::FIXED,
            new_address: request.address,
        };
        Ok(memory.mremap(&mut machine, &into_place)?)
    }

    /// Maps memory that a file is to be copied into: in its place, or elsewhere where something is
    /// at the fixed address, which stays until all of the file is there.
    fn map_for_copy(&mut self, request: &MapRequest) -> Result<u64, Errno> {
        let whole = MapRequest {
            protection: prot::READ | prot::WRITE,
            flags: request.flags & !map::SHARED | map::PRIVATE | map::ANONYMOUS,
            ..*request
        };
        let machine = &mut Polling::new(self.services);
        let memory = self.process.memory();
        let bytes = page_up(request.length).unwrap_or(u64::MAX);
        let overlaps = |start: u64, end: u64| {
            start < request.address.saturating_add(bytes) && request.address < end
        };
        let mut regions = memory.space().regions();
        let is_used = regions.any(|region| overlaps(region.start, region.end));
        drop(regions);
        if request.flags & map::FIXED == 0 || !is_used {
            return memory.mmap(machine, whole);
        }
        let beside = MapRequest {
            address: 0,
            flags: whole.flags & !map::FIXED,
            ..whole
        };
        // Of three in different places one does not overlap it.
        let mut in_the_way = [None; 2];
        let mut found = memory.mmap(machine, beside);
        for place in &mut in_the_way {
            if let Ok(address) = found
                && overlaps(address, address.saturating_add(bytes))
            {
                *place = Some(address);
                found = memory.mmap(machine, beside);
            }
        }
        for address in in_the_way.into_iter().flatten() {
            memory.munmap(machine, address, request.length)?;
        }
        found
    }

    /// The file that a descriptor can map.
    fn mappable(&self, fd: u64) -> Result<u16, Errno> {
        let description = self.process.files.descriptors.get(fd)?;
        match description.opened {
            Opened::Place(_) if description.is_path() => Err(Errno::EBADF),
            Opened::Place(Place::File(number)) => Ok(number),
            Opened::Stream(_)
            | Opened::Channel(..)
            | Opened::Place(_)
            | Opened::Shipped(_)
            | Opened::Temporary(..) => Err(Errno::ENODEV),
        }
    }

    /// Whether a descriptor may map what is copied, as it was opened: EACCES where it may not.
    fn check_mappable(&self, fd: u64, request: &MapRequest) -> Result<(), Errno> {
        let description = self.description(fd)?;
        let is_shared = request.flags & (map::SHARED | map::PRIVATE) != map::PRIVATE;
        let stores = is_shared && request.protection & prot::WRITE != 0;
        match description {
            description if description.is_path() => Err(Errno::EBADF),
            description if !description.reads() => Err(Errno::EACCES),
            description if stores && !description.writes() => Err(Errno::EACCES),
            _ => Ok(()),
        }
    }

    pub(super) fn munmap(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        let mut machine = Polling::new(self.services);
        self.process
            .memory()
            .munmap(&mut machine, address, length)?;
        self.forget_shared();
        Ok(0)
    }

    pub(super) fn mprotect(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, protection, ..] = args;
        let mut machine = Polling::new(self.services);
        self.process
            .memory()
            .mprotect(&mut machine, address, length, protection)?;
        Ok(0)
    }

    pub(super) fn mremap(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, new_length, flags, new_address, _] = args;
        let request = RemapRequest {
            address,
            length,
            new_length,
            flags,
            new_address,
        };
        let mut machine = Polling::new(self.services);
        let address = self.process.memory().mremap(&mut machine, &request)?;
        self.forget_shared();
        Ok(address)
    }

    /// WILLNEED fetches what the program file has for the range and memory has room for;
    /// DONTNEED and FREE drop contents. Advice that may be passed over is: large pages are used
    /// wherever they can be.
    pub(super) fn madvise(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, advice, ..] = args;
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL.into());
        }
        match advice {
            advice::WILL_NEED => {
                let end = page_up(length).and_then(|length| address.checked_add(length));
                let end = end.filter(|&end| end <= USER_END);
                let end = end.ok_or(Errno::ENOMEM)?;
                self.hold(address, end)?;
                Ok(0)
            }
            advice::DO_NOT_NEED | advice::FREE => {
                let mut machine = Polling::new(self.services);
                let memory = self.process.memory();
                if advice == advice::FREE {
                    memory.space().check_anonymous(address, length)?;
                }
                memory.discard(&mut machine, address, length)?;
                Ok(0)
            }
            advice::NORMAL
            | advice::RANDOM
            | advice::SEQUENTIAL
            | advice::DO_NOT_FORK
            | advice::DO_FORK
            | advice::DO_NOT_DUMP
            | advice::DO_DUMP
            | advice::COLD
            | advice::HUGE_PAGE
            | advice::NO_HUGE_PAGE => Ok(0),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Asks for all pages of the file in a range, several requests at a time. The last ones are
    /// still under way when this returns: a touch waits for its own.
    fn hold(&mut self, start: u64, end: u64) -> Result<(), Stop> {
        loop {
            self.process
                .await_requests(self.services, AHEAD_IN_FLIGHT_MAX - 1)?;
            self.services.keep_room(ROOM_FRAMES);
            let at = self.thread.progress().done.max(start);
            let planned = self.process.memory();
            let planned = planned.plan_hold(&mut Hardware::new(), at, end);
            let Some(fetch) = planned else { break };
            self.process.ask(self.services, fetch);
            self.thread.progress().done = fetch.end();
            self.poll_and_check()?;
        }
        self.poll();
        Ok(())
    }
}
