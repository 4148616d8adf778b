//! The descriptors of a program: small numbers for open files, as Linux gives them.
//!
//! A descriptor refers to a *description*, which has the position; dup makes two descriptors of one
//! description. The standard streams are descriptions too, so that they can be copied and closed.
//! What is behind pipes, event counters and epolls is in [`Channels`], which goes with the last
//! description of it.
//!
//! Invariant: a description is there as long as a descriptor refers to it, or a call under way
//! holds it ([`Held`]), and no longer; there are at most [`DESCRIPTORS_MAX`] descriptors, and as
//! many descriptions beside those that calls hold.

use alloc::vec::Vec;

use super::Place;
use super::channels::{Channel, ChannelId, Channels, Counter, End, Pipe, Side, State, Watches};
use super::temporary::{Kind, OpenId};
use hearth_abi::errno::Errno;
use hearth_abi::linux::{open, seek};

/// Descriptors of a program: what Linux gives one by default is 1,024, of which no program measured
/// used more than 40. The table takes 16 KiB of the kernel's heap when it is full.
pub const DESCRIPTORS_MAX: usize = 256;

/// What a description is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Standard input, output or error: 0, 1 or 2.
    Stream(u32),
    /// A file or a directory.
    Place(Place),
    /// A pipe, an event counter or an epoll.
    Channel(ChannelId, Side),
    /// A file or a directory that an I/O service has open.
    Shipped(Shipped),
    /// What is open in `/tmp`.
    Temporary(OpenId, Kind),
}

/// An open file of an I/O service, as it was opened at first; [`super::Origins`] says how it is
/// open now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// The service's number for it.
    pub handle: u32,
    /// The run of the service that knows the number.
    pub run: u64,
    /// It is a directory.
    pub is_directory: bool,
}

impl Opened {
    /// The number by which threads wait for it.
    pub const fn channel(self) -> Option<ChannelId> {
        match self {
            Self::Stream(stream) => Some(ChannelId(stream as u64)),
            Self::Channel(id, _) => Some(id),
            Self::Place(_) | Self::Shipped(_) | Self::Temporary(..) => None,
        }
    }
}

/// An open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Description {
    /// Of what.
    pub opened: Opened,
    /// Next byte of a file; next entry of a directory.
    pub position: u64,
    /// Flags that fcntl answers with.
    pub status: u64,
    /// A call that moves the position is under way.
    pub is_moving: bool,
    /// Descriptors that refer to it, and calls that hold it.
    references: u32,
}

/// That a call under way uses a description, whatever becomes of its descriptors meanwhile. To be
/// given back ([`Descriptors::let_go`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held(u16);

impl Description {
    /// Whether it names something and no more (`O_PATH`).
    pub const fn is_path(&self) -> bool {
        self.status & open::PATH != 0
    }

    /// Whether it may be read by it.
    pub const fn reads(&self) -> bool {
        self.status & open::ACCESS_MODE != open::WRITE_ONLY
    }

    /// Whether it may be written by it.
    pub const fn writes(&self) -> bool {
        self.status & open::ACCESS_MODE != open::READ_ONLY
    }

    /// Whether what is written goes to the end (`O_APPEND`).
    pub const fn appends(&self) -> bool {
        self.status & open::APPEND != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    description: u16,
    close_on_exec: bool,
}

/// The descriptors of one program.
#[derive(Clone, Debug)]
pub struct Descriptors {
    slots: Vec<Option<Slot>>,
    /// No new descriptor has this number or a higher one.
    limit: usize,
    descriptions: Vec<Option<Description>>,
    /// What is behind those that are channels.
    pub channels: Channels,
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

impl Descriptors {
    /// The standard streams as 0, 1 and 2.
    pub fn new() -> Self {
        let slot = |description| {
            Some(Slot {
                description,
                close_on_exec: false,
            })
        };
        let stream = |number| {
            let status = match number {
                0 => open::READ_ONLY,
                _ => open::WRITE_ONLY,
            };
            Some(Description {
                opened: Opened::Stream(number),
                position: 0,
                status,
                is_moving: false,
                references: 1,
            })
        };
        Self {
            slots: (0..3).map(slot).collect(),
            limit: DESCRIPTORS_MAX,
            descriptions: (0..3).map(stream).collect(),
            channels: Channels::default(),
        }
    }

    /// No new descriptor has this number or a higher one from now on; those that there are stay.
    pub fn set_limit(&mut self, limit: usize) {
        self.limit = limit.min(DESCRIPTORS_MAX);
    }

    /// What a descriptor refers to. Of the register only the lower half counts: descriptors are
    /// ints.
    pub fn get(&self, fd: u64) -> Result<&Description, Errno> {
        let slot = self.slot(fd)?;
        let description = &self.descriptions[usize::from(slot.description)];
        Ok(description.as_ref().expect("it is referred to"))
    }

    /// What a descriptor refers to, to be changed.
    pub fn get_mut(&mut self, fd: u64) -> Result<&mut Description, Errno> {
        let slot = self.slot(fd)?;
        let description = &mut self.descriptions[usize::from(slot.description)];
        Ok(description.as_mut().expect("it is referred to"))
    }

    /// The standard stream that a descriptor refers to; EBADF when it is none.
    pub fn stream(&self, fd: u64) -> Result<u32, Errno> {
        match self.get(fd)?.opened {
            Opened::Stream(number) => Ok(number),
            Opened::Place(_) | Opened::Channel(..) | Opened::Shipped(_) | Opened::Temporary(..) => {
                Err(Errno::EBADF)
            }
        }
    }

    /// Opens a place with flags of open: the lowest descriptor that is free.
    pub fn open(&mut self, place: Place, flags: u64) -> Result<u64, Errno> {
        self.reserve(1)?;
        let kept = open::ACCESS_MODE | open::APPEND | open::NONBLOCK;
        let kept = kept | open::DIRECTORY | open::PATH;
        let status = (flags & kept) | open::LARGEFILE;
        Ok(self.add(Opened::Place(place), status, flags))
    }

    /// Whether any descriptor refers to a place.
    pub fn has_open(&self, place: Place) -> bool {
        self.opened().any(|opened| opened == Opened::Place(place))
    }

    /// Opens a file that an I/O service has opened with these flags.
    pub fn open_shipped(&mut self, shipped: Shipped, flags: u64) -> Result<u64, Errno> {
        self.open_elsewhere(Opened::Shipped(shipped), flags)
    }

    /// Opens what was opened in `/tmp` with these flags.
    pub fn open_temporary(&mut self, open: OpenId, kind: Kind, flags: u64) -> Result<u64, Errno> {
        self.open_elsewhere(Opened::Temporary(open, kind), flags)
    }

    fn open_elsewhere(&mut self, opened: Opened, flags: u64) -> Result<u64, Errno> {
        self.reserve(1)?;
        let kept = open::ACCESS_MODE | open::APPEND | open::NONBLOCK | open::PATH;
        let status = (flags & kept) | open::LARGEFILE;
        Ok(self.add(opened, status, flags))
    }

    /// All that is open, each once however many descriptors refer to it.
    pub fn opened(&self) -> impl Iterator<Item = Opened> + '_ {
        let descriptions = self.descriptions.iter().flatten();
        descriptions.map(|description| description.opened)
    }

    /// Makes sure that one more can be opened.
    pub fn make_room(&mut self) -> Result<(), Errno> {
        self.reserve(1)
    }

    /// A pipe with flags of open, which holds so many bytes: where they come out, where they go in.
    pub fn open_pipe(&mut self, flags: u64, capacity: usize) -> Result<[u64; 2], Errno> {
        self.reserve(2)?;
        let id = self.channels.add(Channel::Pipe(Pipe::new(capacity)?))?;
        let ends = [(End::Read, open::READ_ONLY), (End::Write, open::WRITE_ONLY)];
        Ok(ends.map(|(end, access)| {
            let opened = Opened::Channel(id, Side::End(end));
            self.add(opened, access | flags & open::NONBLOCK, flags)
        }))
    }

    /// An event counter with flags of open.
    pub fn open_counter(&mut self, counter: Counter, flags: u64) -> Result<u64, Errno> {
        self.open_whole(Channel::Counter(counter), flags)
    }

    /// An epoll with flags of open.
    pub fn open_epoll(&mut self, flags: u64) -> Result<u64, Errno> {
        self.open_whole(Channel::Epoll(Watches::default()), flags)
    }

    fn open_whole(&mut self, channel: Channel, flags: u64) -> Result<u64, Errno> {
        self.reserve(1)?;
        let id = self.channels.add(channel)?;
        let status = open::READ_WRITE | flags & open::NONBLOCK;
        Ok(self.add(Opened::Channel(id, Side::Whole), status, flags))
    }

    /// Makes sure that so many descriptions can be added.
    fn reserve(&mut self, count: usize) -> Result<(), Errno> {
        let mut end = 0;
        for _ in 0..count {
            end = self.free_from(end)? + 1;
        }
        let more = end.saturating_sub(self.slots.len());
        let room = self.slots.try_reserve(more);
        let room = room.and_then(|()| self.descriptions.try_reserve(count));
        room.map_err(|_| Errno::ENOMEM)
    }

    /// The lowest free descriptor, for a new description; there is room ([`Self::reserve`]).
    fn add(&mut self, opened: Opened, status: u64, flags: u64) -> u64 {
        let description = Some(Description {
            opened,
            position: 0,
            status,
            is_moving: false,
            references: 1,
        });
        let index = match self.descriptions.iter().position(Option::is_none) {
            Some(index) => {
                self.descriptions[index] = description;
                index
            }
            None => {
                self.descriptions.push(description);
                self.descriptions.len() - 1
            }
        };
        let slot = Slot {
            description: index as u16,
            close_on_exec: flags & open::CLOEXEC != 0,
        };
        let fd = self.free_from(0).expect("a number was looked for");
        self.put(fd, slot).expect("room was looked for");
        fd as u64
    }

    /// Closes a descriptor. Says what is not open any more by that.
    pub fn close(&mut self, fd: u64) -> Result<Option<Opened>, Errno> {
        let slot = self.slot(fd)?;
        self.slots[fd as u32 as usize] = None;
        Ok(self.refer_less(slot.description))
    }

    /// Holds what a descriptor refers to, for a call under way.
    pub fn hold(&mut self, fd: u64) -> Result<Held, Errno> {
        let slot = self.slot(fd)?;
        self.get_mut(fd)?.references += 1;
        Ok(Held(slot.description))
    }

    /// Holds once more what a call holds already.
    pub fn hold_again(&mut self, held: Held) -> Held {
        self.held(held).references += 1;
        held
    }

    /// What a call holds.
    pub fn holding(&self, held: Held) -> &Description {
        let description = self.descriptions[usize::from(held.0)].as_ref();
        description.expect("it is held")
    }

    /// What a call holds, to be changed.
    pub fn held(&mut self, held: Held) -> &mut Description {
        let description = self.descriptions[usize::from(held.0)].as_mut();
        description.expect("it is held")
    }

    /// A call does not use any more what it held. Says what is not open any more by that.
    pub fn let_go(&mut self, held: Held) -> Option<Opened> {
        self.refer_less(held.0)
    }

    fn refer_less(&mut self, index: u16) -> Option<Opened> {
        let place = &mut self.descriptions[usize::from(index)];
        let description = place.as_mut().expect("it is referred to");
        description.references -= 1;
        if description.references > 0 {
            return None;
        }
        let opened = description.opened;
        *place = None;
        self.channels.forget(index);
        if let Opened::Channel(id, side) = opened {
            self.channels.close(id, side);
        }
        Some(opened)
    }

    /// The lowest free descriptor from `least` on for what `fd` refers to (dup, fcntl).
    pub fn copy(&mut self, fd: u64, least: u64, close_on_exec: bool) -> Result<u64, Errno> {
        let slot = self.slot(fd)?;
        let least = least as u32 as usize;
        if least >= self.limit {
            return Err(Errno::EINVAL);
        }
        let to = self.free_from(least)?;
        self.refer(to, slot, close_on_exec)
    }

    /// Makes `to` refer to what `fd` refers to, closing what it was (dup2, dup3). Says what is not
    /// open any more by that.
    pub fn copy_to(
        &mut self,
        fd: u64,
        to: u64,
        close_on_exec: bool,
    ) -> Result<(u64, Option<Opened>), Errno> {
        let slot = self.slot(fd)?;
        let to = to as u32 as usize;
        if to >= self.limit {
            return Err(Errno::EBADF);
        }
        if to == fd as u32 as usize {
            return Ok((to as u64, None));
        }
        // What `fd` refers to is another descriptor's too and stays.
        let closed = match self.slot(to as u64) {
            Ok(_) => self.close(to as u64)?,
            Err(_) => None,
        };
        Ok((self.refer(to, slot, close_on_exec)?, closed))
    }

    /// Whether a descriptor would be closed by execve.
    pub fn close_on_exec(&self, fd: u64) -> Result<bool, Errno> {
        Ok(self.slot(fd)?.close_on_exec)
    }

    /// Says whether a descriptor would be closed by execve.
    pub fn set_close_on_exec(&mut self, fd: u64, close: bool) -> Result<(), Errno> {
        self.slot(fd)?;
        let slot = &mut self.slots[fd as u32 as usize];
        slot.as_mut().expect("it was just there").close_on_exec = close;
        Ok(())
    }

    /// lseek; `bytes` is the length of what is open.
    pub fn seek(&mut self, fd: u64, offset: u64, whence: u64, bytes: u64) -> Result<u64, Errno> {
        let description = self.get_mut(fd)?;
        let place = match description.opened {
            Opened::Stream(_)
            | Opened::Channel(..)
            | Opened::Shipped(_)
            | Opened::Temporary(..) => {
                return Err(Errno::ESPIPE);
            }
            Opened::Place(_) if description.is_path() => return Err(Errno::EBADF),
            Opened::Place(place) => place,
        };
        let offset = offset as i64;
        let base = match (whence, place.is_directory()) {
            (seek::SET, _) => 0,
            (seek::CUR, _) => description.position,
            (seek::END, false) => bytes,
            // All of a file is data, up to the hole that its end is.
            (seek::DATA | seek::HOLE, false) => {
                let inside = u64::try_from(offset).is_ok_and(|offset| offset < bytes);
                match (inside, whence) {
                    (false, _) => return Err(Errno::ENXIO),
                    (true, seek::DATA) => 0,
                    (true, _) => bytes - offset as u64,
                }
            }
            _ => return Err(Errno::EINVAL),
        };
        let position = base.checked_add_signed(offset).ok_or(Errno::EINVAL)?;
        if i64::try_from(position).is_err() {
            return Err(Errno::EINVAL);
        }
        description.position = position;
        Ok(position)
    }

    /// The number of the description that a descriptor refers to.
    pub(super) fn description(&self, fd: u64) -> Result<u16, Errno> {
        Ok(self.slot(fd)?.description)
    }

    /// What a description is ready for, and what has come about there.
    pub(super) fn state_of(&self, description: u16) -> State {
        let description = self.descriptions[usize::from(description)].as_ref();
        description.map_or_else(State::default, |description| self.state(description.opened))
    }

    fn slot(&self, fd: u64) -> Result<Slot, Errno> {
        let slot = self.slots.get(fd as u32 as usize).copied().flatten();
        slot.ok_or(Errno::EBADF)
    }

    /// The lowest free number from `least` on.
    fn free_from(&self, least: usize) -> Result<usize, Errno> {
        let free = |&fd: &usize| self.slots.get(fd).is_none_or(Option::is_none);
        let fd = (least..self.limit).find(free);
        fd.ok_or(Errno::EMFILE)
    }

    fn refer(&mut self, to: usize, slot: Slot, close_on_exec: bool) -> Result<u64, Errno> {
        let slot = Slot {
            close_on_exec,
            ..slot
        };
        self.put(to, slot)?;
        let description = &mut self.descriptions[usize::from(slot.description)];
        description.as_mut().expect("it is referred to").references += 1;
        Ok(to as u64)
    }

    fn put(&mut self, fd: usize, slot: Slot) -> Result<(), Errno> {
        if fd >= self.slots.len() {
            let more = fd + 1 - self.slots.len();
            self.slots.try_reserve(more).map_err(|_| Errno::ENOMEM)?;
            self.slots.resize(fd + 1, None);
        }
        self.slots[fd] = Some(slot);
        Ok(())
    }
}
