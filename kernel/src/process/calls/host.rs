//! What a program hears of the machine that it runs on.

use hearth_abi::linux::utsname;

use crate::agent::services::NodeServices;
use crate::process::Process;
use crate::process::ending::Stop;

impl Process {
    /// The host is the node, by its name.
    pub(super) fn uname(
        &mut self,
        services: &mut dyn NodeServices,
        address: u64,
    ) -> Result<u64, Stop> {
        let host = utsname::of(services.name(), env!("CARGO_PKG_VERSION"));
        self.write_bytes(services, address, &host)?;
        Ok(0)
    }
}
