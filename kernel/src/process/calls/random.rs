//! getrandom.

use hearth_abi::errno::Errno;

use super::Args;
use crate::agent::services::NodeServices;
use crate::arch;
use crate::process::Process;
use crate::process::ending::Stop;

/// Random bytes made between two looks at the node's own duties.
const RANDOM_STEP: usize = 256;
/// Random bytes of one call, as on Linux.
const RANDOM_MAX: u64 = 32 * 1024 * 1024 - 1;

impl Process {
    pub(super) fn getrandom(
        &mut self,
        services: &mut dyn NodeServices,
        args: Args,
    ) -> Result<u64, Stop> {
        let [address, length, ..] = args;
        let length = length.min(RANDOM_MAX);
        let mut done = 0;
        while done < length {
            let mut bytes = [0; RANDOM_STEP];
            let step = (length - done).min(RANDOM_STEP as u64);
            let bytes = &mut bytes[..step as usize];
            arch::entropy::fill(bytes);
            let at = address.checked_add(done).ok_or(Errno::EFAULT)?;
            self.write_bytes(services, at, bytes)?;
            done += step;
            self.look_up(services)?;
        }
        Ok(length)
    }
}
