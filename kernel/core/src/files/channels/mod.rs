//! What threads of a program send each other through descriptors: pipes, event counters, and the
//! epolls that watch them.
//!
//! | item | what it is |
//! |---|---|
//! | [`Channels`] | those of one program |
//! | [`Pipe`], [`Counter`], [`Watches`] | a pipe, an event counter (eventfd), what an epoll watches |
//! | [`Edges`] | what has come about: for epolls that want to know of changes |
//!
//! Neighbours: [`super::Descriptors`] owns them and says what each descriptor is ready for;
//! `kernel::process::calls` moves the bytes, and has threads wait by the number of a channel.
//!
//! Invariant: a channel is there as long as a description of it is; no number is given twice; what
//! waits in pipes is at most [`PIPES_BYTES_MAX`], and a page for each pipe beyond.

mod counter;
mod pipe;
mod watches;

use alloc::vec::Vec;

use super::ready::Ready;
pub use counter::Counter;
use hearth_abi::errno::Errno;
use hearth_abi::linux::poll;
pub use pipe::{ATOMIC_BYTES, End, Pipe};
pub use watches::{EVENT_BYTES, Event, State, WATCHES_MAX, Watches};

/// Bytes that a pipe holds, as on Linux.
pub const PIPE_BYTES: usize = 64 * 1024;
/// Bytes that one holds when those there are hold [`PIPES_BYTES_MAX`], or memory is short.
pub const PIPE_BYTES_LEAST: usize = ATOMIC_BYTES;
/// Bytes that all pipes of [`PIPE_BYTES`] hold together: 16 of them.
pub const PIPES_BYTES_MAX: usize = 1024 * 1024;
/// Descriptors that all epolls of a program watch together: 48 KiB of the kernel's heap.
pub const WATCHED_MAX: usize = 1024;

/// The number of a channel, by which threads wait for it. The first are those of the standard
/// streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChannelId(pub u64);

/// The first that is not a standard stream's.
const FIRST: u64 = 3;

/// A channel.
#[derive(Clone, Debug)]
pub enum Channel {
    /// A pipe.
    Pipe(Pipe),
    /// An event counter.
    Counter(Counter),
    /// An epoll.
    Epoll(Watches),
}

/// The side of a channel that a descriptor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// An end of a pipe.
    End(End),
    /// There is only one.
    Whole,
}

/// How often something has come about at a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edges {
    /// Something can be read that could not before.
    pub read: u64,
    /// Something can be written that could not before.
    pub write: u64,
    /// An end was closed.
    pub end: u64,
}

impl Edges {
    /// Whether something has come about since `seen` for who wants that.
    pub fn is_news(&self, seen: &Self, wanted: Ready) -> bool {
        let reads = wanted.bits() & (poll::IN | poll::RDNORM) != 0;
        let writes = wanted.bits() & (poll::OUT | poll::WRNORM) != 0;
        self.end != seen.end
            || reads && self.read != seen.read
            || writes && self.write != seen.write
    }
}

/// The channels of a program.
#[derive(Clone, Debug)]
pub struct Channels {
    /// In the order of their numbers.
    list: Vec<(ChannelId, Channel)>,
    next: u64,
    /// What has come about at the standard streams: each use of one may have.
    streams: [Edges; FIRST as usize],
    /// Who does not wait for standard input was told that there is none, and none has come since.
    awaits_input: bool,
}

impl Default for Channels {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            next: FIRST,
            streams: [Edges::default(); FIRST as usize],
            awaits_input: false,
        }
    }
}

impl Channels {
    /// A channel.
    pub fn get(&self, id: ChannelId) -> Option<&Channel> {
        Some(&self.list[self.index(id)?].1)
    }

    /// A channel, to be changed.
    pub fn get_mut(&mut self, id: ChannelId) -> Option<&mut Channel> {
        let index = self.index(id)?;
        Some(&mut self.list[index].1)
    }

    /// Bytes that the next pipe may hold.
    pub fn pipe_bytes(&self) -> usize {
        let held = self.list.iter().map(|(_, channel)| match channel {
            Channel::Pipe(pipe) => pipe.capacity(),
            Channel::Counter(_) | Channel::Epoll(_) => 0,
        });
        match held.sum::<usize>() + PIPE_BYTES <= PIPES_BYTES_MAX {
            true => PIPE_BYTES,
            false => PIPE_BYTES_LEAST,
        }
    }

    /// Descriptors that all epolls watch.
    pub fn watched(&self) -> usize {
        let watched = self.list.iter().map(|(_, channel)| match channel {
            Channel::Epoll(watches) => watches.count(),
            Channel::Pipe(_) | Channel::Counter(_) => 0,
        });
        watched.sum()
    }

    /// What a side is ready for, and what has come about there. Not for an epoll, which others say
    /// that of.
    pub fn state(&self, id: ChannelId, side: Side) -> State {
        match (self.get(id), side) {
            (Some(Channel::Pipe(pipe)), Side::End(end)) => (pipe.ready(end), pipe.edges(end)),
            (Some(Channel::Counter(counter)), _) => (counter.ready(), counter.edges()),
            _ => (Ready::NONE, Edges::default()),
        }
    }

    /// What has come about at a standard stream.
    pub fn stream_edges(&self, stream: u32) -> Edges {
        self.streams[stream as usize]
    }

    /// A standard stream was used: who watches it looks again.
    pub fn used_stream(&mut self, stream: u32) {
        let edges = &mut self.streams[stream as usize];
        edges.read += 1;
        edges.write += 1;
    }

    /// Standard input has nothing now, as who does not wait for it was told; or has something
    /// again.
    pub fn set_awaits_input(&mut self, awaits: bool) {
        self.awaits_input = awaits;
    }

    /// Whether standard input has nothing that can be read at once, as far as anybody has asked.
    pub fn awaits_input(&self) -> bool {
        self.awaits_input
    }

    pub(super) fn add(&mut self, channel: Channel) -> Result<ChannelId, Errno> {
        let room = self.list.try_reserve(1);
        room.map_err(|_| Errno::ENOMEM)?;
        let id = ChannelId(self.next);
        self.next += 1;
        self.list.push((id, channel));
        Ok(id)
    }

    /// The last description of a side is no more.
    pub(super) fn close(&mut self, id: ChannelId, side: Side) {
        let Some(index) = self.index(id) else { return };
        let is_closed = match (&mut self.list[index].1, side) {
            (Channel::Pipe(pipe), Side::End(end)) => {
                pipe.close(end);
                pipe.is_closed()
            }
            _ => true,
        };
        if is_closed {
            self.list.remove(index);
        }
    }

    /// A description is no more: no epoll watches it.
    pub(super) fn forget(&mut self, description: u16) {
        for (_, channel) in &mut self.list {
            if let Channel::Epoll(watches) = channel {
                watches.forget(description);
            }
        }
    }

    fn index(&self, id: ChannelId) -> Option<usize> {
        self.list.binary_search_by_key(&id, |(id, _)| *id).ok()
    }
}
