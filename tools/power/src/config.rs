//! Section `[power]` of the configuration; `defaults.toml` of `hearth-control` explains each key.
//!
//! Key types: [`Config`], [`Method`]. Neighbours: `ipmi` and `redfish` take what they need.

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Error, Template};

/// Longest time limit: longer than any board takes.
const TIME_LIMIT_MAX_S: u64 = 600;

/// Section `[power]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How machines are switched.
    pub method: Method,
    /// Name or address of the board that manages a machine.
    pub bmc: Template,
    /// Its user.
    pub user: String,
    /// The file with that user's password.
    pub password_file: PathBuf,
    /// Further arguments of ipmitool.
    pub ipmitool_options: Vec<String>,
    /// Path of the machine in Redfish; empty: the board's only one.
    pub redfish_system: Template,
    /// Whether the board's certificate is checked.
    pub check_certificate: bool,
    /// Who signs these certificates; empty: the system's own authorities.
    pub ca_file: PathBuf,
    /// The site's command and its arguments.
    pub command: Vec<Template>,
    /// Limit of one request or command, in seconds.
    #[serde(deserialize_with = "time_limit")]
    pub time_limit_s: u64,
    /// A node that is lost for so long is reset; 0: never.
    pub reset_lost_after_s: u64,
}

/// How machines are switched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Not at all, or by the supervisor of a QEMU cluster.
    None,
    /// IPMI 2.0 over the network, by `ipmitool`.
    Ipmi,
    /// Redfish, by `curl`.
    Redfish,
    /// Wake-on-LAN, which only switches on.
    Wake,
    /// The site's command.
    Command,
}

fn time_limit<'a, D: serde::Deserializer<'a>>(from: D) -> Result<u64, D::Error> {
    let seconds = u64::deserialize(from)?;
    match (1..=TIME_LIMIT_MAX_S).contains(&seconds) {
        true => Ok(seconds),
        false => Err(serde::de::Error::custom(format!(
            "power.time_limit_s is 1 to {TIME_LIMIT_MAX_S}"
        ))),
    }
}

/// Who a board takes orders from.
#[derive(Debug, Clone)]
pub(crate) struct Account {
    /// The user.
    pub user: String,
    password_file: PathBuf,
}

impl Account {
    /// The account that `method` needs.
    ///
    /// # Errors
    /// [`Error::Incomplete`].
    pub fn of(config: &Config, method: &'static str) -> Result<Self, Error> {
        let needed = [
            (config.bmc.is_empty(), "bmc"),
            (config.user.is_empty(), "user"),
            (config.password_file.as_os_str().is_empty(), "password_file"),
        ];
        match needed.iter().find(|(is_missing, _)| *is_missing) {
            Some((_, key)) => Err(Error::Incomplete(method, key)),
            None => Ok(Account {
                user: config.user.clone(),
                password_file: config.password_file.clone(),
            }),
        }
    }

    /// The password: the first line of its file, which nobody else may read. It is read each time,
    /// so that a new one needs no new start.
    ///
    /// # Errors
    /// [`Error::Password`].
    pub fn password(&self) -> Result<String, Error> {
        let path = &self.password_file;
        let wrong = |what: String| Error::Password {
            path: path.clone(),
            what,
        };
        let about = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
        if about.mode() & 0o077 != 0 {
            let what = format!("others may read it; `chmod 600 {}`", path.display());
            return Err(wrong(what));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let password = text.lines().next().unwrap_or_default();
        match password.is_empty() {
            true => Err(wrong("its first line is empty".to_owned())),
            false => Ok(password.to_owned()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A configuration with nothing set but these boards and this password file.
    pub fn config(method: Method, bmc: &str, password_file: PathBuf) -> Config {
        Config {
            method,
            bmc: Template::try_from(bmc.to_owned()).unwrap(),
            user: "admin".to_owned(),
            password_file,
            ipmitool_options: Vec::new(),
            redfish_system: Template::default(),
            check_certificate: true,
            ca_file: PathBuf::new(),
            command: Vec::new(),
            time_limit_s: 5,
            reset_lost_after_s: 0,
        }
    }

    #[test]
    fn a_password_that_others_can_read_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("password");
        let account = Account::of(&config(Method::Ipmi, "b", path.clone()), "ipmi").unwrap();
        assert!(account.password().is_err(), "there is none");
        std::fs::write(&path, "secret\nmore\n").unwrap();
        for (mode, is_right) in [(0o644, false), (0o600, true)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            match account.password() {
                Ok(password) => assert!(is_right && password == "secret"),
                Err(error) => assert!(!is_right && error.to_string().contains("chmod 600")),
            }
        }
    }

    #[test]
    fn what_a_method_needs_is_told_at_the_start() {
        let mut config = config(Method::Redfish, "", "/p".into());
        let error = |config: &Config| Account::of(config, "redfish").unwrap_err().to_string();
        assert!(error(&config).contains("power.bmc"));
        config.bmc = Template::try_from("b".to_owned()).unwrap();
        config.user.clear();
        assert!(error(&config).contains("power.user"));
    }
}
