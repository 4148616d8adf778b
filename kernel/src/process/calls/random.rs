//! getrandom.

use hearth_abi::errno::Errno;

use super::Args;
use crate::arch;
use crate::process::current::Current;
use crate::process::ending::Stop;

/// Random bytes made between two looks at the node's own duties.
const RANDOM_STEP: usize = 256;
/// Random bytes of one call, as on Linux.
const RANDOM_MAX: u64 = 32 * 1024 * 1024 - 1;

impl Current<'_> {
    pub(super) fn getrandom(&mut self, args: Args) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        let length = length.min(RANDOM_MAX);
        let mut done = self.thread.progress.map_or(0, |progress| progress.done);
        while done < length {
            let mut bytes = [0; RANDOM_STEP];
            let step = (length - done).min(RANDOM_STEP as u64);
            let bytes = &mut bytes[..step as usize];
            arch::entropy::fill(bytes);
            let at = address.checked_add(done).ok_or(Errno::EFAULT)?;
            self.write_bytes(at, bytes)?;
            done += step;
            self.thread.progress().done = done;
            self.poll_and_check()?;
        }
        Ok(length)
    }
}
