//! epoll: the calls; `kernel_core::files` has what is watched, and what is told.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{epoll, open};
use kernel_core::files::channels::{EVENT_BYTES, Event, WATCHES_MAX};
use kernel_core::program::UserSlice;
use netstack::time::{Instant, Micros};

use super::Args;
use super::signal::deadline_in;
use crate::process::current::Current;
use crate::process::ending::Stop;

impl Current<'_> {
    /// epoll_create: the size is only to be more than none.
    pub(super) fn epoll_create(&mut self, size: u64) -> Result<u64, Stop> {
        match size as i32 {
            ..=0 => Err(Errno::EINVAL.into()),
            _ => self.epoll_create1(0),
        }
    }

    pub(super) fn epoll_create1(&mut self, flags: u64) -> Result<u64, Stop> {
        if flags & !open::CLOEXEC != 0 {
            return Err(Errno::EINVAL.into());
        }
        Ok(self.process.files.descriptors.open_epoll(flags)?)
    }

    pub(super) fn epoll_ctl(&mut self, args: Args) -> Result<u64, Stop> {
        let [epoll_fd, command, fd, address, ..] = args;
        let command = u64::from(command as u32);
        let event = match command {
            epoll::DEL => Event { bits: 0, data: 0 },
            _ => Event::from_bytes(&self.read_array(address)?),
        };
        let descriptors = &mut self.process.files.descriptors;
        descriptors.watch(epoll_fd, command, fd, event)?;
        // Who waits already is to hear of what is ready already.
        let id = descriptors.epoll(epoll_fd)?;
        self.process.wake_channel(id);
        Ok(0)
    }

    pub(super) fn epoll_wait(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, events, most, timeout_ms, ..] = args;
        let span = u64::try_from(timeout_ms as i32).ok();
        let deadline = self
            .thread
            .deadline(|| deadline_in(span.map(Micros::from_millis)));
        self.epoll_until(fd, events, most, deadline)
    }

    pub(super) fn epoll_pwait(&mut self, args: Args) -> Result<u64, Stop> {
        let [.., mask, mask_bytes] = args;
        if mask != 0 {
            self.take_mask(mask, mask_bytes)?;
        }
        self.epoll_wait(args)
    }

    /// The same with a `struct timespec` for a time-out.
    pub(super) fn epoll_pwait2(&mut self, args: Args) -> Result<u64, Stop> {
        let [fd, events, most, timeout, mask, mask_bytes] = args;
        let span = self.read_timeout(timeout)?;
        let deadline = self.thread.deadline(|| deadline_in(span));
        if mask != 0 {
            self.take_mask(mask, mask_bytes)?;
        }
        self.epoll_until(fd, events, most, deadline)
    }

    fn epoll_until(
        &mut self,
        fd: u64,
        events: u64,
        most: u64,
        deadline: Instant,
    ) -> Result<u64, Stop> {
        let most = match usize::try_from(most as i32) {
            Ok(most) if most > 0 => most.min(WATCHES_MAX),
            _ => return Err(Errno::EINVAL.into()),
        };
        let id = self.process.files.descriptors.epoll(fd)?;
        if !self.process.files.descriptors.has_told(id) {
            self.wait_until_ready(deadline)?;
            return Ok(0);
        }
        // What is told once must arrive.
        let room = UserSlice::new(events, (most * EVENT_BYTES) as u64)?;
        self.make_writable(room)?;
        let told = self.process.files.descriptors.take_told(id, most);
        for (event, at) in told.iter().zip((events..).step_by(EVENT_BYTES)) {
            self.write_bytes(at, &event.to_bytes())?;
        }
        Ok(told.len() as u64)
    }
}
