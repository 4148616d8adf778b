//! IPMI 2.0 over the network (RMCP+, `lanplus`), by `ipmitool`.
//!
//! Key type: [`Ipmi`]. Neighbours: `program` runs it.
//!
//! Invariant: ipmitool gets the password in its environment (`-E`), which only its own user may
//! read.

use std::process::Command;
use std::time::Duration;

use crate::config::Account;
use crate::{Action, Config, Error, Machine, State, Template, program};

/// The program.
const IPMITOOL: &str = "ipmitool";

/// Boards that speak IPMI.
#[derive(Debug, Clone)]
pub(crate) struct Ipmi {
    bmc: Template,
    account: Account,
    options: Vec<String>,
}

impl Ipmi {
    /// As configured.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub fn of(config: &Config) -> Result<Self, Error> {
        Ok(Ipmi {
            bmc: config.bmc.clone(),
            account: Account::of(config, "ipmi")?,
            options: config.ipmitool_options.clone(),
        })
    }

    /// Does it with a machine.
    ///
    /// # Errors
    /// [`Error`].
    pub fn perform(
        &self,
        action: Action,
        machine: &Machine,
        limit: Duration,
    ) -> Result<State, Error> {
        let power = |word| self.chassis_power(word, machine, limit);
        match action {
            Action::Status => status(&power("status")?),
            Action::On => power("on").map(|_| State::On),
            Action::Off => power("off").map(|_| State::Off),
            // A board refuses to reset what is off.
            Action::Reset => match status(&power("status")?)? {
                State::On => power("reset").map(|_| State::On),
                State::Off => power("on").map(|_| State::On),
            },
        }
    }

    fn chassis_power(
        &self,
        word: &str,
        machine: &Machine,
        limit: Duration,
    ) -> Result<String, Error> {
        let mut command = Command::new(IPMITOOL);
        command
            .args(["-I", "lanplus", "-H", &self.bmc.expand(machine, None)?])
            .args(["-U", &self.account.user, "-E"])
            .args(&self.options)
            .args(["chassis", "power", word])
            .env("IPMI_PASSWORD", self.account.password()?);
        program::run(command, b"", limit)?.success()
    }
}

/// What `chassis power status` prints.
fn status(text: &str) -> Result<State, Error> {
    match text.trim().to_ascii_lowercase().as_str() {
        "chassis power is on" => Ok(State::On),
        "chassis power is off" => Ok(State::Off),
        _ => Err(Error::answer(
            IPMITOOL,
            text,
            "`chassis power status` says whether power is on or off",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ipmitool_prints_is_understood() {
        assert_eq!(status("Chassis Power is on\n").unwrap(), State::On);
        assert_eq!(status("Chassis Power is off\n").unwrap(), State::Off);
        assert!(status("Chassis Power is unknown").is_err());
    }
}
