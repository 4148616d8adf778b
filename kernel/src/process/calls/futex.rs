//! futex: what threads wait for each other by.
//!
//! Neighbours: `kernel_core::futex` has the queues and what each command means.
//!
//! Invariant: a word is compared and its waiter queued without another call in between; a thread
//! is in a queue only while it waits.

use hearth_abi::errno::Errno;
use kernel_core::addr::PhysAddr;
use kernel_core::fault::Access;
use kernel_core::futex::robust::{self, Mutex, Step, Walk};
use kernel_core::futex::{Command, Timeout, check_address};
use kernel_core::program::UserSlice;
use netstack::time::Instant;

use super::Args;
use super::signal::deadline_in;
use super::time::{MONOTONIC, REALTIME};
use crate::mm;
use crate::mm::Hardware;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::time;

/// Bytes of a word.
const WORD_BYTES: u64 = 4;
/// Every waiter meets this mask.
const ANY: u32 = u32::MAX;

impl Current<'_> {
    pub(super) fn futex(&mut self, args: Args) -> Result<u64, Stop> {
        let [word, op, value, second_value, second, third_value] = args;
        let command = Command::parse(op, value, second_value, third_value);
        let command = command.map_err(|errno| match errno {
            Errno::ENOSYS => self.unknown(hearth_abi::sysno::FUTEX),
            errno => errno.into(),
        })?;
        check_word(word)?;
        match command {
            Command::Wait {
                expected,
                bitset,
                timeout,
            } => {
                let deadline = match second_value {
                    0 => Instant::FAR_FUTURE,
                    address => self.futex_deadline(address, timeout)?,
                };
                self.futex_wait(word, (expected, bitset), deadline, second_value == 0)
            }
            Command::Wake { count, bitset } => Ok(self.wake(word, count, bitset)),
            Command::Requeue {
                wake,
                requeue,
                expected,
            } => {
                check_word(second)?;
                if let Some(expected) = expected {
                    self.compare(word, expected)?;
                }
                let words = [word, second].map(|word| self.meeting_place(word));
                let process = &mut *self.process;
                let threads = &mut process.threads;
                let counts = (wake, requeue);
                let moved = process.futexes.requeue(words[0], words[1], counts, |tid| {
                    threads.wake(tid);
                });
                Ok(moved.into())
            }
            Command::WakeOp {
                wake,
                wake_second,
                op,
            } => {
                check_word(second)?;
                let old = self.change_word(second, |old| op.changed(old))?;
                let mut woken = self.wake(word, wake, ANY);
                if op.wakes_second(old) {
                    woken += self.wake(second, wake_second, ANY);
                }
                Ok(woken)
            }
        }
    }

    /// When a wait is over.
    fn futex_deadline(&mut self, address: u64, timeout: Timeout) -> Result<Instant, Stop> {
        // Once it waits nothing of the call is read again.
        if let Some(until) = self.thread.progress().until {
            return Ok(until);
        }
        let span = self.read_span(address)?;
        let at = match timeout {
            Timeout::Span => deadline_in(Some(span)),
            Timeout::Monotonic => self.deadline_at(MONOTONIC, span),
            Timeout::RealTime => self.deadline_at(REALTIME, span),
        };
        Ok(self.thread.deadline(|| at))
    }

    fn futex_wait(
        &mut self,
        word: u64,
        (expected, bitset): (u32, u32),
        deadline: Instant,
        is_endless: bool,
    ) -> Result<u64, Stop> {
        let tid = self.thread.tid;
        if !self.thread.progress().begun {
            self.compare(word, expected)?;
            let place = self.meeting_place(word);
            self.process.futexes.wait(place, tid, bitset);
            self.thread.progress().begun = true;
        } else if !self.process.futexes.holds(tid) {
            return Ok(0);
        }
        let is_over = time::now() >= deadline;
        if !is_over && !self.is_signal_due() {
            return Err(Stop::wake_at(deadline));
        }
        self.process.futexes.cancel(tid);
        match is_over {
            true => Err(Errno::ETIMEDOUT.into()),
            // With a time-out it would begin anew.
            false if is_endless => Err(Stop::Restart),
            false => Err(Errno::EINTR.into()),
        }
    }

    /// EAGAIN where a word has another value.
    fn compare(&mut self, word: u64, expected: u32) -> Result<(), Stop> {
        match self.read_word(word)? == expected {
            true => Ok(()),
            false => Err(Errno::EAGAIN.into()),
        }
    }

    /// Wakes the first `count` threads that wait for a word with a bit of `bitset`; how many.
    pub(super) fn wake(&mut self, word: u64, count: u32, bitset: u32) -> u64 {
        let word = self.meeting_place(word);
        let process = &mut *self.process;
        let threads = &mut process.threads;
        let woken = process.futexes.wake(word, count, bitset, |tid| {
            threads.wake(tid);
        });
        woken.into()
    }

    /// Where those meet who wait for a word: its address, unless it is in a shared memory object,
    /// which may be mapped more than once.
    fn meeting_place(&mut self, word: u64) -> u64 {
        match self.process.files.names.shared.is_empty() {
            true => word,
            false => self.process.memory().space().word(word),
        }
    }

    /// Reads a word in one step: other cores change it meanwhile.
    fn read_word(&mut self, word: u64) -> Result<u32, Stop> {
        Ok(mm::read_word(self.word_place(word, Access::Read)?))
    }

    /// Changes a word in one step for all cores; the value that it had. EFAULT for one that is not
    /// aligned.
    pub(super) fn change_word(
        &mut self,
        word: u64,
        change: impl Fn(u32) -> u32,
    ) -> Result<u32, Stop> {
        let place = self.word_place(word, Access::Write)?;
        Ok(mm::change_word(place, change))
    }

    /// Where an aligned word lies, which is brought in for this access.
    fn word_place(&mut self, word: u64, access: Access) -> Result<PhysAddr, Stop> {
        let slice = UserSlice::new(word, WORD_BYTES)?;
        if !word.is_multiple_of(WORD_BYTES) {
            return Err(Errno::EFAULT.into());
        }
        loop {
            let memory = self.process.memory();
            if let Some(place) = memory.place(&mut Hardware::new(), slice, access) {
                return Ok(place);
            }
            let process = &mut *self.process;
            process.fault_for_kernel(self.services, word, access)?;
        }
    }

    /// The robust mutexes that the thread has are marked as left by a dead owner, and of each that
    /// somebody waits for one is woken. A list that cannot be read ends where it cannot.
    pub(super) fn leave_robust_mutexes(&mut self) -> Result<(), Stop> {
        if self.thread.robust_list == 0 {
            return Ok(());
        }
        let list = self.thread.robust_list;
        let Some(head) = there(self.read_array::<{ robust::HEAD_BYTES }>(list))? else {
            return Ok(());
        };
        // Begun anew it finds what it has left before as another's.
        let mut walk = Walk::new(list, &head);
        loop {
            match walk.step() {
                Step::Done => return Ok(()),
                Step::Read(address) => {
                    let word = there(self.read_array(address))?;
                    walk.read(word.map(u64::from_le_bytes));
                }
                Step::Mutex(mutex) => {
                    let left = there(self.leave_mutex(&mutex))?;
                    walk.looked_at(left.is_some());
                }
            }
        }
    }

    fn leave_mutex(&mut self, mutex: &Mutex) -> Result<(), Stop> {
        let tid = self.thread.tid;
        let old = self.change_word(mutex.address, |old| {
            mutex.after_death(old, tid).new.unwrap_or(old)
        })?;
        if mutex.after_death(old, tid).wakes {
            self.wake(mutex.address, 1, ANY);
        }
        Ok(())
    }
}

/// `None` for what a bad address is the error of.
fn there<T>(result: Result<T, Stop>) -> Result<Option<T>, Stop> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Stop::Errno(_)) => Ok(None),
        Err(stop) => Err(stop),
    }
}

/// A word of a program's is aligned.
fn check_word(word: u64) -> Result<(), Stop> {
    UserSlice::new(word, WORD_BYTES)?;
    Ok(check_address(word)?)
}
