//! Waiting for descriptors: poll, select and their variants with a signal mask.
//!
//! What is ready is `kernel_core::files::ready`'s to say; here the sets are copied and the time-out
//! is kept, by which programs sleep when nothing is ready.

use hearth_abi::errno::Errno;
use kernel_core::files::ready::{Ready, SET_BITS, Set, Sets};
use kernel_core::program::UserSlice;
use kernel_core::threads::Wait;
use netstack::time::{Instant, Micros};

use super::Args;
use super::signal::deadline_in;
use super::time::MICROS_PER_SECOND;
use crate::process::current::Current;
use crate::process::ending::Stop;
use crate::process::thread::Pause;
use crate::time;

/// Descriptors in one poll.
const POLL_MAX: u64 = 256;
/// Bytes of `struct pollfd`, and where the answer stands in it.
const POLL_BYTES: u64 = 8;
const POLL_ANSWER_AT: u64 = 6;

impl Current<'_> {
    pub(super) fn poll_call(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, count, timeout_ms, ..] = args;
        let span = u64::try_from(timeout_ms as i32).ok();
        let deadline = self
            .thread
            .deadline(|| deadline_in(span.map(Micros::from_millis)));
        self.poll_until(address, count, deadline)
    }

    pub(super) fn ppoll(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, count, timeout, mask, mask_bytes, _] = args;
        let span = self.read_timeout(timeout)?;
        let deadline = self.thread.deadline(|| deadline_in(span));
        if mask != 0 {
            self.take_mask(mask, mask_bytes)?;
        }
        let result = self.poll_until(address, count, deadline);
        if matches!(result, Err(Stop::Wait(_))) {
            return result;
        }
        self.write_rest(timeout, deadline, 1000)?;
        result
    }

    pub(super) fn select(&mut self, args: Args) -> Result<u64, Stop> {
        let [count, read, write, except, timeout, ..] = args;
        let span = match timeout {
            0 => None,
            address => Some(self.read_timeval(address)?),
        };
        let deadline = self.thread.deadline(|| deadline_in(span));
        let result = self.select_until(count, [read, write, except], deadline);
        if matches!(result, Err(Stop::Wait(_))) {
            return result;
        }
        self.write_rest(timeout, deadline, 1)?;
        result
    }

    pub(super) fn pselect6(&mut self, args: Args) -> Result<u64, Stop> {
        let [count, read, write, except, timeout, mask] = args;
        let span = self.read_timeout(timeout)?;
        let deadline = self.thread.deadline(|| deadline_in(span));
        if mask != 0 {
            // The mask and its size are a structure: six arguments are all that a call has.
            let words: [u8; 16] = self.read_array(mask)?;
            let word =
                |at: usize| u64::from_le_bytes(words[at..at + 8].try_into().expect("eight bytes"));
            if word(0) != 0 {
                self.take_mask(word(0), word(8))?;
            }
        }
        let result = self.select_until(count, [read, write, except], deadline);
        if matches!(result, Err(Stop::Wait(_))) {
            return result;
        }
        self.write_rest(timeout, deadline, 1000)?;
        result
    }

    /// Looks at each entry of a poll; waits until `deadline` when nothing is ready.
    fn poll_until(&mut self, address: u64, count: u64, deadline: Instant) -> Result<u64, Stop> {
        if count > POLL_MAX {
            return Err(Errno::EINVAL.into());
        }
        let mut found = 0;
        for index in 0..count {
            let at = address.checked_add(index * POLL_BYTES);
            let at = at.ok_or(Errno::EFAULT)?;
            let entry: [u8; POLL_BYTES as usize] = self.read_array(at)?;
            let fd = i32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let wanted = u16::from_le_bytes([entry[4], entry[5]]);
            let returned = match fd {
                ..0 => 0,
                _ => {
                    let ready = self.process.files.descriptors.ready(fd as u64);
                    let ready = ready.unwrap_or(Ready::INVALID);
                    ready.among(Ready::from_bits(wanted.into())).bits() as u16
                }
            };
            found += u64::from(returned != 0);
            self.write_bytes(at + POLL_ANSWER_AT, &returned.to_le_bytes())?;
        }
        if found == 0 {
            self.wait_until_ready(deadline)?;
        }
        Ok(found)
    }

    /// Answers the sets of a select, those for reading, for writing and for exceptions, where they
    /// are given; waits until `deadline` when nothing is ready.
    fn select_until(
        &mut self,
        count: u64,
        addresses: [u64; 3],
        deadline: Instant,
    ) -> Result<u64, Stop> {
        let count = u64::try_from(count as i32).map_err(|_| Errno::EINVAL)?;
        // No descriptor has a higher number.
        let count = count.min(SET_BITS);
        let length = Set::bytes(count);
        let mut asked = Sets::default();
        for (set, address) in asked.0.iter_mut().zip(addresses) {
            if address != 0 {
                let mut bytes = [0; Set::bytes(SET_BITS)];
                let from = UserSlice::new(address, length as u64)?;
                self.read_user(from, &mut bytes[..length])?;
                *set = Set::from_bytes(&bytes, count);
            }
        }
        let (sets, found) = self.process.files.descriptors.select(&asked)?;
        if found == 0 {
            self.wait_until_ready(deadline)?;
        }
        for (set, address) in sets.0.iter().zip(addresses) {
            if address != 0 {
                self.write_bytes(address, &set.to_bytes()[..length])?;
            }
        }
        Ok(found)
    }

    /// Waits for a change of anything that may be ready then; nothing where `deadline` is over.
    pub(super) fn wait_until_ready(&mut self, deadline: Instant) -> Result<(), Stop> {
        if time::now() >= deadline {
            return Ok(());
        }
        if self.is_signal_due() {
            return Err(Errno::EINTR.into());
        }
        Err(Stop::Wait(Pause {
            on: Wait::AnyChannel,
            until: deadline,
        }))
    }

    /// A `struct timespec`, when one is given.
    pub(super) fn read_timeout(&mut self, address: u64) -> Result<Option<Micros>, Stop> {
        match address {
            0 => Ok(None),
            address => Ok(Some(self.read_span(address)?)),
        }
    }

    /// Writes what is left of a time-out, as Linux does, its second word in units of so many a
    /// microsecond; nothing where it may not be written.
    fn write_rest(&mut self, address: u64, deadline: Instant, units: u64) -> Result<(), Stop> {
        if address == 0 {
            return Ok(());
        }
        let left = deadline.saturating_since(time::now()).as_micros();
        let (seconds, rest) = (left / MICROS_PER_SECOND, left % MICROS_PER_SECOND);
        match self.write_pair(address, seconds, rest * units) {
            Ok(_) | Err(Stop::Errno(_) | Stop::Wait(_)) => Ok(()),
            Err(stop) => Err(stop),
        }
    }
}
