//! Pipes and event counters: the calls that make them, and reads and writes.
//!
//! Neighbours: `kernel_core::files::channels` has their states, [`super::ready`] waits for several
//! of them, [`super::epoll`] watches them.
//!
//! Invariant: whoever changes a channel wakes those that wait for it before the lock is open again.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{Signal, eventfd, open};
use kernel_core::addr::PAGE_SIZE;
use kernel_core::files::channels::{
    ATOMIC_BYTES, Channel, Counter, End, PIPE_BYTES_LEAST, Pipe, Side,
};
use kernel_core::files::{ChannelId, Opened};
use kernel_core::program::UserSlice;
use kernel_core::signals::{Info, code};
use kernel_core::threads::Wait;
use netstack::time::Instant;

use super::PID;
use super::buffers::Buffers;
use crate::process::Process;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::thread::Pause;

/// Bytes of two descriptors.
const PAIR_BYTES: u64 = 8;
/// Bytes of the value of a counter.
const VALUE_BYTES: u64 = 8;

/// What a descriptor is of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Of {
    id: ChannelId,
    side: Side,
    /// A call that cannot be carried out answers EAGAIN.
    never_waits: bool,
}

impl Current<'_> {
    /// pipe and pipe2.
    pub(super) fn pipe(&mut self, address: u64, flags: u64) -> Result<u64, Stop> {
        if flags & !(open::CLOEXEC | open::NONBLOCK) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let to = UserSlice::new(address, PAIR_BYTES)?;
        self.make_writable(to)?;
        let bytes = self.process.files.descriptors.channels.pipe_bytes();
        let exchange = self.services.exchange();
        let mut sizes = [bytes, PIPE_BYTES_LEAST].into_iter();
        let bytes = sizes.find(|bytes| exchange.has_room(*bytes as u64));
        let bytes = bytes.ok_or(Errno::ENOMEM)?;
        let [read, write] = self.process.files.descriptors.open_pipe(flags, bytes)?;
        self.write_user(to, &(read | write << 32).to_le_bytes())?;
        Ok(0)
    }

    /// eventfd and eventfd2.
    pub(super) fn eventfd(&mut self, value: u64, flags: u64) -> Result<u64, Stop> {
        if flags & !(open::CLOEXEC | open::NONBLOCK | eventfd::SEMAPHORE) != 0 {
            return Err(Errno::EINVAL.into());
        }
        let counter = Counter::new(value as u32, flags & eventfd::SEMAPHORE != 0);
        Ok(self
            .process
            .files
            .descriptors
            .open_counter(counter, flags)?)
    }

    /// What a descriptor is of these; `None` where it is something else.
    pub(super) fn channel(&self, fd: u64) -> Result<Option<Of>, Errno> {
        if self.transfer().is_some() {
            return Ok(None);
        }
        let description = self.description(fd)?;
        Ok(match description.opened {
            Opened::Channel(id, side) => Some(Of {
                id,
                side,
                never_waits: description.status & open::NONBLOCK != 0,
            }),
            Opened::Stream(_) | Opened::Place(_) | Opened::Shipped(_) | Opened::Temporary(..) => {
                None
            }
        })
    }

    pub(super) fn read_channel(&mut self, of: Of, to: Buffers) -> Result<u64, Stop> {
        self.check_still(of.id)?;
        match (self.contents(of.id)?, of.side) {
            (Channel::Pipe(_), Side::End(End::Read)) => self.read_pipe(of, to),
            (Channel::Pipe(_), _) => Err(Errno::EBADF.into()),
            (Channel::Counter(_), _) => self.read_counter(of, to),
            (Channel::Epoll(_), _) => Err(Errno::EINVAL.into()),
        }
    }

    pub(super) fn write_channel(&mut self, of: Of, from: Buffers) -> Result<u64, Stop> {
        self.check_still(of.id)?;
        match (self.contents(of.id)?, of.side) {
            (Channel::Pipe(_), Side::End(End::Write)) => self.write_pipe(of, from),
            (Channel::Pipe(_), _) => Err(Errno::EBADF.into()),
            (Channel::Counter(_), _) => self.write_counter(of, from),
            (Channel::Epoll(_), _) => Err(Errno::EINVAL.into()),
        }
    }

    fn read_pipe(&mut self, of: Of, to: Buffers) -> Result<u64, Stop> {
        let wanted = self.bytes_of(to)?;
        if wanted == 0 {
            return Ok(0);
        }
        let readable = match self.pipe_of(of.id)?.readable() {
            Err(_) => return Err(self.not_now(of)),
            Ok(readable) => wanted.min(readable as u64),
        };
        let readable = self.make_room(to, 0, readable)?;
        let mut done = 0;
        while done < readable {
            let mut piece = [0; PAGE_SIZE as usize];
            let piece = &mut piece[..(readable - done).min(PAGE_SIZE) as usize];
            self.pipe_of(of.id)?.peek(done as usize, piece);
            self.scatter(to, done, piece)?;
            done += piece.len() as u64;
        }
        self.pipe_of(of.id)?.consume(done as usize);
        self.process.wake_channel(of.id);
        Ok(done)
    }

    fn write_pipe(&mut self, of: Of, from: Buffers) -> Result<u64, Stop> {
        let bytes = self.bytes_of(from)?;
        let together = bytes <= ATOMIC_BYTES as u64;
        // Ends: a pipe that nobody empties meanwhile is full.
        while self.written() < bytes {
            let done = self.written();
            let mut piece = [0; ATOMIC_BYTES];
            let piece = &mut piece[..(bytes - done).min(ATOMIC_BYTES as u64) as usize];
            match self.gather(from, done, piece) {
                Err(Stop::Errno(_)) if done > 0 => break,
                other => other?,
            }
            match self.pipe_of(of.id)?.write(piece, together) {
                Ok(taken) => {
                    self.thread.progress().done += taken as u64;
                    self.process.wake_channel(of.id);
                }
                Err(Errno::EAGAIN) => match self.not_now(of) {
                    Stop::Errno(_) | Stop::Restart if done > 0 => break,
                    stop => return Err(stop),
                },
                Err(errno) => {
                    self.raise_broken_pipe();
                    match done {
                        0 => return Err(errno.into()),
                        _ => break,
                    }
                }
            }
        }
        Ok(self.written())
    }

    fn read_counter(&mut self, of: Of, to: Buffers) -> Result<u64, Stop> {
        if self.bytes_of(to)? < VALUE_BYTES {
            return Err(Errno::EINVAL.into());
        }
        if self.make_room(to, 0, VALUE_BYTES)? < VALUE_BYTES {
            return Err(Errno::EFAULT.into());
        }
        match self.counter_of(of.id)?.read() {
            Ok(value) => {
                self.process.wake_channel(of.id);
                self.scatter(to, 0, &value.to_le_bytes())?;
                Ok(VALUE_BYTES)
            }
            Err(_) => Err(self.not_now(of)),
        }
    }

    fn write_counter(&mut self, of: Of, from: Buffers) -> Result<u64, Stop> {
        if self.bytes_of(from)? < VALUE_BYTES {
            return Err(Errno::EINVAL.into());
        }
        let mut value = [0; VALUE_BYTES as usize];
        self.gather(from, 0, &mut value)?;
        match self.counter_of(of.id)?.write(u64::from_le_bytes(value)) {
            Ok(()) => {
                self.process.wake_channel(of.id);
                Ok(VALUE_BYTES)
            }
            Err(Errno::EAGAIN) => Err(self.not_now(of)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The answer of a call that cannot be carried out before somebody changes the channel.
    fn not_now(&mut self, of: Of) -> Stop {
        if of.never_waits {
            return Errno::EAGAIN.into();
        }
        if self.is_signal_due() {
            return Stop::Restart;
        }
        self.thread.progress().channel = Some(of.id);
        Stop::Wait(Pause {
            on: Wait::Channel(of.id.0),
            until: Instant::FAR_FUTURE,
        })
    }

    /// EBADF where the descriptor that the thread waits for was closed meanwhile, and its number
    /// given to another.
    fn check_still(&self, id: ChannelId) -> Result<(), Errno> {
        let waited = self.thread.progress.and_then(|progress| progress.channel);
        match waited.is_none_or(|waited| waited == id) {
            true => Ok(()),
            false => Err(Errno::EBADF),
        }
    }

    /// SIGPIPE, for the thread that writes.
    fn raise_broken_pipe(&mut self) {
        let info = Info::sent(code::USER, PID);
        let signals = &self.process.signals;
        // One that waits already counts for both.
        let _ = signals.send_to(&mut self.thread.signals, Signal::Pipe.number().into(), info);
    }

    fn contents(&mut self, id: ChannelId) -> Result<&mut Channel, Errno> {
        let channels = &mut self.process.files.descriptors.channels;
        channels.get_mut(id).ok_or(Errno::EBADF)
    }

    fn pipe_of(&mut self, id: ChannelId) -> Result<&mut Pipe, Errno> {
        match self.contents(id)? {
            Channel::Pipe(pipe) => Ok(pipe),
            _ => Err(Errno::EBADF),
        }
    }

    fn counter_of(&mut self, id: ChannelId) -> Result<&mut Counter, Errno> {
        match self.contents(id)? {
            Channel::Counter(counter) => Ok(counter),
            _ => Err(Errno::EBADF),
        }
    }
}

impl Process {
    /// Something has come about at a channel.
    pub(super) fn wake_channel(&mut self, id: ChannelId) {
        self.threads.wake_channel(id.0);
    }
}
