//! Which call moves the position of an open file: one at a time, as on Linux.
//!
//! A call that waits between reading a position and setting it has it for itself
//! ([`Current::hold_positions`]); others wait until it is over. A call that may wait keeps to what
//! it began with ([`Current::keep_to`]), also when another thread closes the descriptor.
//!
//! Invariant: a position is held by the call of one thread, which gives it back when it ends,
//! however it ends. A call takes all that it needs at once, so that no two wait for each other.

use hearth_abi::errno::Errno;
use kernel_core::files::{Description, Held};

use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::thread::Progress;

/// Descriptions whose positions one call moves, at most.
pub(in crate::process) const MOVING_MAX: usize = 2;

impl Current<'_> {
    /// Has the positions of what these descriptors refer to until the call is over; waits while
    /// another call has one of them.
    pub(super) fn hold_positions(&mut self, fds: &[u64]) -> Result<(), Stop> {
        let holds = |progress: Progress| progress.moving[0].is_some();
        if self.thread.progress.is_some_and(holds) {
            return Ok(());
        }
        for fd in fds {
            self.await_position(*fd)?;
        }
        for (index, fd) in fds.iter().enumerate() {
            let descriptors = &mut self.process.files.descriptors;
            let held = descriptors.hold(*fd)?;
            descriptors.held(held).is_moving = true;
            self.thread.progress().moving[index] = Some(held);
        }
        Ok(())
    }

    /// What a descriptor refers to, or referred to when a call began that keeps to it.
    pub(super) fn description(&self, fd: u64) -> Result<Description, Errno> {
        let descriptors = &self.process.files.descriptors;
        match self.thread.progress.and_then(|progress| progress.held) {
            Some(held) => Ok(*descriptors.holding(held)),
            None => descriptors.get(fd).copied(),
        }
    }

    /// Keeps to what a descriptor refers to until the call is over.
    pub(super) fn keep_to(&mut self, fd: u64) -> Result<Held, Errno> {
        if let Some(held) = self.thread.progress.and_then(|progress| progress.held) {
            return Ok(held);
        }
        let held = self.process.files.descriptors.hold(fd)?;
        self.thread.progress().held = Some(held);
        Ok(held)
    }

    /// Waits while another call moves the position of what a descriptor refers to.
    pub(super) fn await_position(&mut self, fd: u64) -> Result<(), Stop> {
        match self.process.files.descriptors.get(fd)?.is_moving {
            true => Err(Stop::news()),
            false => Ok(()),
        }
    }

    /// What the call has the positions of, in the order in which it asked for them.
    pub(super) fn moving(&mut self, index: usize) -> Result<&mut Description, Errno> {
        let held = self
            .thread
            .progress
            .and_then(|progress| progress.moving[index]);
        Ok(self
            .process
            .files
            .descriptors
            .held(held.ok_or(Errno::EBADF)?))
    }

    /// Lets go of what the call has kept to. Others may move the positions that it has had.
    pub(super) fn leave_positions(&mut self, progress: &Progress) {
        if let Some(held) = progress.held {
            let gone = self.process.files.descriptors.let_go(held);
            self.let_go(gone);
        }
        for held in progress.moving.into_iter().flatten() {
            let descriptors = &mut self.process.files.descriptors;
            descriptors.held(held).is_moving = false;
            let gone = descriptors.let_go(held);
            self.let_go(gone);
            self.process.threads.wake_news();
        }
    }
}
