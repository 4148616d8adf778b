//! Threads: how they begin and end, and what belongs to each.
//!
//! Neighbours: `kernel_core::threads` has the table and what is a thread's flags; [`super::futex`]
//! has what they wait for each other by.
//!
//! Invariant: a thread that has ended is in no table and no queue.

use hearth_abi::errno::Errno;
use hearth_abi::linux::{self, arch_prctl};
use hearth_abi::sysno;
use kernel_core::addr::USER_END;
use kernel_core::futex::robust;
use kernel_core::program::UserSlice;
use kernel_core::threads::clone;

use super::Args;
use crate::process::current::Current;
use crate::process::ending::{Ending, Stop};
use crate::process::thread::Thread;

impl Current<'_> {
    pub(super) fn arch_prctl(&mut self, args: Args) -> Result<u64, Stop> {
        let [function, address, ..] = args;
        match function {
            arch_prctl::SET_FS | arch_prctl::SET_GS if address >= USER_END => {
                Err(Errno::EPERM.into())
            }
            arch_prctl::SET_FS => {
                self.thread.context.fs_base = address;
                Ok(0)
            }
            arch_prctl::SET_GS => {
                self.thread.context.gs_base = address;
                Ok(0)
            }
            arch_prctl::GET_FS => {
                let base = self.thread.context.fs_base;
                self.write_bytes(address, &base.to_le_bytes())?;
                Ok(0)
            }
            arch_prctl::GET_GS => {
                let base = self.thread.context.gs_base;
                self.write_bytes(address, &base.to_le_bytes())?;
                Ok(0)
            }
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// A thread more. Forks, and sets of flags that no thread library uses, are refused.
    pub(super) fn clone(&mut self, args: Args) -> Result<u64, Stop> {
        let [flags, stack, parent_tid, child_tid, tls, _] = args;
        let request = match clone::check(flags) {
            Ok(request) => request,
            Err(clone::Refusal::Fork) => return Err(self.unknown(forking(flags))),
            Err(refusal) => return Err(self.count_missing_as(refusal.errno())),
        };
        if stack >= USER_END || request.sets_tls() && tls >= USER_END {
            return Err(Errno::EPERM.into());
        }
        let word = size_of::<u32>() as u64;
        let tells_parent = request.sets_parent_tid().then_some(parent_tid);
        let tells_child = request.sets_child_tid().then_some(child_tid);
        for address in tells_parent.iter().chain(&tells_child) {
            self.make_writable(UserSlice::new(*address, word)?)?;
        }
        if !self
            .services
            .exchange()
            .has_room(size_of::<Thread>() as u64)
        {
            return Err(self.count_missing_as(Errno::EAGAIN));
        }
        let mut thread = self.thread.split();
        thread.context.rax = 0;
        if stack != 0 {
            thread.context.rsp = stack;
        }
        if request.sets_tls() {
            thread.context.fs_base = tls;
        }
        if request.clears_child_tid() {
            thread.clear_tid = child_tid;
        }
        let affinity = self.process.threads.affinity(self.thread.tid);
        let affinity = affinity.unwrap_or(self.process.threads.cores());
        let tid = self.process.start_thread(thread, affinity);
        let tid = tid.map_err(|_full| self.count_missing_as(Errno::EAGAIN))?;
        for address in tells_parent.iter().chain(&tells_child) {
            self.write_bytes(*address, &tid.number().to_le_bytes())?;
        }
        Ok(tid.number().into())
    }

    pub(super) fn set_tid_address(&mut self, address: u64) -> u64 {
        self.thread.clear_tid = address;
        self.thread.tid.number().into()
    }

    pub(super) fn set_robust_list(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        if length != robust::HEAD_BYTES as u64 {
            return Err(Errno::EINVAL.into());
        }
        self.thread.robust_list = address;
        Ok(0)
    }

    /// Of the thread itself.
    pub(super) fn get_robust_list(&mut self, args: Args) -> Result<u64, Stop> {
        let [target, head, length, ..] = args;
        if ![0, u64::from(self.thread.tid.number())].contains(&target) {
            return Err(Errno::ESRCH.into());
        }
        let list = self.thread.robust_list;
        self.write_bytes(head, &list.to_le_bytes())?;
        self.write_bytes(length, &(robust::HEAD_BYTES as u64).to_le_bytes())?;
        Ok(0)
    }

    /// Other threads of the core have their turn before this one goes on.
    pub(super) fn sched_yield(&mut self) -> Result<u64, Stop> {
        self.thread.yields = true;
        Ok(0)
    }

    /// The end of the thread: its mutexes are given up, and who joins it is woken. The process ends
    /// with its last thread.
    pub(super) fn exit(&mut self, code: u64) -> Result<u64, Stop> {
        if self.process.threads.len() == 1 {
            return Err(Ending::Exited(code as u8).into());
        }
        self.leave_robust_mutexes()?;
        if self.thread.clear_tid != 0 {
            let address = self.thread.clear_tid;
            // It may be a lock that others take at this moment. Nobody is told of what is not
            // there.
            match self.change_word(address, |_| 0) {
                Ok(_) | Err(Stop::Errno(_)) => {}
                Err(stop) => return Err(stop),
            }
            self.wake(address, 1, u32::MAX);
        }
        Err(Stop::Gone)
    }
}

/// The call that a clone stands for that makes no thread.
const fn forking(flags: u64) -> u64 {
    match flags & linux::clone::VFORK {
        0 => sysno::FORK,
        _ => sysno::VFORK,
    }
}
