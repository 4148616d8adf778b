//! Redfish: the board's HTTP API, by `curl`.
//!
//! Key type: [`Redfish`]. Source: DMTF DSP0266 (protocol) and DSP2046 (`ComputerSystem`).
//! Neighbours: `program` runs curl.
//!
//! Invariants: curl gets the password on its standard input, as a line of its configuration; it
//! goes to the board's own address and nowhere else.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::config::Account;
use crate::error::short;
use crate::{Action, Config, Error, Machine, State, Template, program};

/// The program.
const CURL: &str = "curl";

/// What curl ends with when it does not trust a certificate.
const UNTRUSTED: i32 = 60;

/// The collection of a board's machines.
const SYSTEMS: &str = "/redfish/v1/Systems";

/// The action that switches a machine.
const RESET: &str = "#ComputerSystem.Reset";

/// Boards that speak Redfish.
#[derive(Debug, Clone)]
pub(crate) struct Redfish {
    bmc: Template,
    system: Template,
    account: Account,
    check_certificate: bool,
    ca_file: PathBuf,
}

impl Redfish {
    /// As configured.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub fn of(config: &Config) -> Result<Self, Error> {
        Ok(Redfish {
            bmc: config.bmc.clone(),
            system: config.redfish_system.clone(),
            account: Account::of(config, "redfish")?,
            check_certificate: config.check_certificate,
            ca_file: config.ca_file.clone(),
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
        let bmc = self.bmc.expand(machine, None)?;
        let board = Board {
            redfish: self,
            url: match bmc.contains("://") {
                true => bmc,
                false => format!("https://{bmc}"),
            },
            limit,
        };
        let path = match self.system.is_empty() {
            true => board.only_system()?,
            false => board.path_in(&self.system.expand(machine, None)?.into())?,
        };
        let system = board.get(&path)?;
        let state = board.state(&system)?;
        let (reset_type, then) = match (action, state) {
            (Action::Status, state) => return Ok(state),
            (Action::On, State::On) | (Action::Off, State::Off) => return Ok(state),
            (Action::On | Action::Reset, State::Off) => ("On", State::On),
            (Action::Off, State::On) => ("ForceOff", State::Off),
            (Action::Reset, State::On) => ("ForceRestart", State::On),
        };
        let target = board.path_in(&system["Actions"][RESET]["target"])?;
        let body = json!({ "ResetType": reset_type }).to_string();
        board.request(&target, Some(&body)).map(|_| then)
    }
}

/// One board.
struct Board<'a> {
    redfish: &'a Redfish,
    /// Without a path.
    url: String,
    limit: Duration,
}

impl Board<'_> {
    /// The path of the only machine that it manages.
    fn only_system(&self) -> Result<String, Error> {
        let systems = self.get(SYSTEMS)?;
        match systems["Members"].as_array().map(Vec::as_slice) {
            Some([only]) => self.path_in(&only["@odata.id"]),
            _ => Err(self.not_understood(
                &systems,
                "it manages one machine, or power.redfish_system says which is the node's",
            )),
        }
    }

    fn state(&self, system: &Value) -> Result<State, Error> {
        match system["PowerState"].as_str() {
            Some("On" | "PoweringOn") => Ok(State::On),
            Some("Off" | "PoweringOff") => Ok(State::Off),
            _ => Err(self.not_understood(system, "a ComputerSystem has a PowerState, On or Off")),
        }
    }

    /// A path that the board or the configuration names. It is appended to the board's address, and
    /// must not become a part of the host's name.
    fn path_in(&self, value: &Value) -> Result<String, Error> {
        match value.as_str().filter(|path| path.starts_with('/')) {
            Some(path) => Ok(path.to_owned()),
            None => Err(self.not_understood(value, "it names paths that begin with /")),
        }
    }

    fn get(&self, path: &str) -> Result<Value, Error> {
        let text = self.request(path, None)?;
        serde_json::from_str(&text)
            .map_err(|_| Error::answer(&self.url, &text, "Redfish answers in JSON"))
    }

    /// The answer to a request: a POST with `body`, else a GET.
    fn request(&self, path: &str, body: Option<&str>) -> Result<String, Error> {
        let mut command = Command::new(CURL);
        // `-q`: not what a user has in ~/.curlrc.
        command
            .args(["-q", "--globoff", "--silent", "--show-error"])
            .args(["--config", "-"])
            .args(["--proto", "=http,https", "--write-out", "\n%{http_code}"]);
        if !self.redfish.check_certificate {
            command.arg("--insecure");
        }
        if !self.redfish.ca_file.as_os_str().is_empty() {
            command.arg("--cacert").arg(&self.redfish.ca_file);
        }
        let account = &self.redfish.account;
        let user = format!("{}:{}", account.user, account.password()?);
        let mut config = line("url", &format!("{}{path}", self.url)) + &line("user", &user);
        if body.is_none() {
            // To another host curl takes no password along.
            command.args(["--location", "--max-redirs", "2"]);
        }
        if let Some(body) = body {
            config += &line("header", "Content-Type: application/json");
            config += &line("data", body);
        }
        let finished = program::run(command, config.as_bytes(), self.limit)?;
        if finished.status.code() == Some(UNTRUSTED) {
            return Err(Error::Untrusted(self.url.clone()));
        }
        let said = finished.success()?;
        let (text, status) = said.rsplit_once('\n').unwrap_or(("", &said));
        let status = status.trim().parse().unwrap_or(0);
        match status {
            200..=299 => Ok(text.to_owned()),
            401 | 403 => Err(self.refused(
                status,
                "power.user and power.password_file are not right for it",
            )),
            404 => Err(self.refused(
                status,
                &format!("there is no {path}; see power.redfish_system"),
            )),
            _ => Err(self.refused(status, text)),
        }
    }

    fn refused(&self, status: u16, text: &str) -> Error {
        Error::Refused {
            board: self.url.clone(),
            status,
            text: short(text),
        }
    }

    fn not_understood(&self, value: &Value, wanted: &'static str) -> Error {
        Error::answer(&self.url, &value.to_string(), wanted)
    }
}

/// A line of curl's configuration: the value in quotes.
fn line(key: &str, value: &str) -> String {
    let mut quoted = String::new();
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            other => quoted.push(other),
        }
    }
    format!("{key} = \"{quoted}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_one_value_of_curls_configuration_whatever_is_in_it() {
        let text = line("user", "admin:a\"b\\c\nurl = x");
        assert_eq!(text, "user = \"admin:a\\\"b\\\\c\\nurl = x\"\n");
    }
}
