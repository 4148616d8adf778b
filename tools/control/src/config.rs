//! The configuration file: one documented table, `defaults.toml`, which is the documentation, the
//! list of known keys and the defaults at once.
//!
//! Key types: [`Config`] and its sections; [`load`] merges a user's file over the defaults.
//! Neighbours: `cli` (finds the file), `serve` and `jobs` (use the values).
//!
//! Invariant: a key that `defaults.toml` does not document cannot be set; every field of
//! [`Config`] is documented there (a field missing there fails to deserialise, tested).

pub mod queue;

use std::path::{Path, PathBuf};

use netstack::broadcast::published::Policy;
use netstack::broadcast::{self, PublishedOptions};
use serde::{Deserialize, Serialize};

use crate::jobs::{SubmitError, TIME_LIMIT_MOST_S};

pub use queue::Queue;

/// The documented defaults, printed by `hearth config --show-defaults`.
pub const DEFAULTS: &str = include_str!("defaults.toml");

/// Where the configuration is looked for when `--config` is not given, after the user's own.
pub const SYSTEM_FILE: &str = "/etc/hearth/config.toml";

/// Everything that can be configured; see `defaults.toml` for the meaning of each key.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The control node's addresses and state.
    pub serve: Serve,
    /// Who may use the control node.
    pub api: Api,
    /// The boot service.
    pub boot: Boot,
    /// Which machines may join.
    pub admission: Admission,
    /// How machines are switched on and off.
    pub power: hearth_power::Config,
    /// Limits of the job runner.
    pub jobs: Jobs,
    /// Which job starts when, and where.
    pub queue: Queue,
    /// Directories that jobs see.
    pub files: Files,
    /// Programs that stay on nodes.
    pub retention: Retention,
    /// Casts: programs and files that go to many nodes at once.
    pub broadcast: Broadcast,
    /// The event log.
    pub events: Events,
    /// What is kept on disk.
    pub store: Store,
    /// What nodes counted.
    pub monitor: Monitor,
    /// How nodes' counters reach control.
    pub overlay: Overlay,
    /// Defaults of `hearth run`.
    pub run: Run,
}

/// Section `[serve]`.
/// Directories that jobs see.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Files {
    /// Which; empty: none.
    pub export: Vec<String>,
    /// What carries out the calls of jobs on them.
    pub service: FileService,
}

/// What carries out the calls of jobs on files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum FileService {
    /// The control node.
    Own,
    /// Processes that join it: `hearth io`.
    Joined,
}

#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// Interface of the boot network; empty when not set.
    pub interface: String,
    /// `A.B.C.D/P`; empty: the interface's own.
    pub address: String,
    /// UDP port of the control protocol.
    pub control_port: u16,
    /// TCP port of the boot service.
    pub boot_http_port: u16,
    /// Address of the HTTP API or `none`.
    pub http: String,
    /// Widths of the network's tree from the leaves up, as in 4x4x4; empty: one switch.
    pub tree: String,
    /// Links upwards of one switch of each level below the root, from the leaves up; empty: as many
    /// as it has downwards.
    pub uplinks: Vec<u32>,
    /// State directory.
    pub state_dir: PathBuf,
}

/// Section `[api]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Api {
    /// Group whose members may use the unix socket; empty: nobody but its user and root.
    pub group: String,
    /// Group whose members are operators; empty: none.
    pub operators: String,
    /// Address at which the API listens with TLS, or `none`.
    pub listen: String,
}

/// Section `[boot]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Boot {
    /// Boot image; empty: beside the binary.
    pub image: PathBuf,
    /// Folder of network boot firmware; empty: the distribution's places.
    pub firmware_dir: PathBuf,
    /// `FIRST-LAST`; empty: the upper half of the network.
    pub range: String,
    /// Fixed leases; empty: none.
    pub nodes_file: PathBuf,
    /// Kernel command line of the nodes.
    pub command_line: String,
    /// What a node does when its kernel panics.
    pub panic: AfterPanic,
    /// Beside another DHCP server.
    pub proxy_dhcp: bool,
}

/// Section `[admission]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Admission {
    /// Who decides.
    pub mode: AdmissionMode,
    /// MAC addresses, with `mode = "list"`.
    pub machines: Vec<hearth_boot::Mac>,
}

/// Which machines may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum AdmissionMode {
    /// Every machine.
    Open,
    /// Those that the configuration lists.
    List,
    /// Those that somebody has approved of, and those that have joined before.
    Approve,
}

/// What a node does when its kernel panics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AfterPanic {
    /// It boots again.
    Reboot,
    /// It stands still.
    Halt,
}

impl AfterPanic {
    /// A kernel command line that says so as well, unless it says something of its own.
    pub fn added_to(self, command_line: &str) -> String {
        let is_said = command_line
            .split_ascii_whitespace()
            .any(|word| word.starts_with("hearth.panic="));
        match self {
            Self::Halt if !is_said => format!("{command_line} hearth.panic=halt"),
            Self::Halt | Self::Reboot => command_line.to_string(),
        }
    }
}

/// Longest grace of a job that is to end, in seconds.
pub const GRACE_MOST_S: u64 = netstack::wire::job::GRACE_MAX.0 / 1_000_000;

/// Section `[jobs]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Jobs {
    /// Default time limit in seconds, 0 for none, a century at most.
    #[serde(deserialize_with = "time_limit")]
    pub time_limit_s: u64,
    /// Bound of the queue.
    pub queue_max: usize,
    /// Bound of the history.
    pub history_max: usize,
    /// Bound of the program cache, in bytes.
    pub program_cache_bytes: u64,
    /// Bound of one program, in bytes.
    pub program_max_bytes: u64,
    /// Bound of unread output per job, in bytes.
    pub output_buffer_bytes: usize,
    /// Bound of the output kept of a batch job, in bytes.
    pub output_max_bytes: u64,
    /// Bound of the output kept of all batch jobs, in bytes.
    pub output_total_bytes: u64,
    /// Seconds that programs get to end by themselves after SIGTERM, a day at most; 0: none.
    #[serde(deserialize_with = "grace")]
    pub grace_s: u64,
    /// Seconds that nodes get to end a job, behind that.
    pub cancel_grace_s: u64,
    /// Seconds a launch gets.
    pub launch_limit_s: u64,
    /// Seconds for which a node keeps its job without a control node that knows it.
    pub without_control_s: u64,
    /// Seconds that a restarted control node waits for nodes and clients of a job that ran.
    pub return_limit_s: u64,
}

/// Section `[retention]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Retention {
    /// What nodes keep.
    pub mode: RetentionMode,
    /// Keep read-only data, not only code.
    pub read_only: bool,
    /// Keep pristine contents of data pages.
    pub pristine: bool,
    /// Checking of pages that were kept.
    pub verify: Verify,
    /// Bound of the pages kept by a node, in percent of its memory; 0: the node's default.
    #[serde(deserialize_with = "percent")]
    pub limit_percent: u8,
}

/// What nodes keep of a program that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RetentionMode {
    /// As many programs as memory allows.
    Warm,
    /// As the publication: one program, kept on request.
    Published,
    /// Nothing.
    Off,
}

/// When the contents of kept pages are checked against the program's list of page hashes.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum, utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Verify {
    /// Never.
    Never,
    /// A few random pages after each run.
    Sample,
    /// All of them before each launch.
    Always,
}

fn time_limit<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let seconds = u64::deserialize(from)?;
    if seconds > TIME_LIMIT_MOST_S {
        let error = SubmitError::TimeLimit;
        return Err(serde::de::Error::custom(format!(
            "jobs.time_limit_s: {error}"
        )));
    }
    Ok(seconds)
}

fn grace<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let seconds = u64::deserialize(from)?;
    if seconds > GRACE_MOST_S {
        return Err(serde::de::Error::custom(format!(
            "jobs.grace_s: {seconds} seconds are too long; use 0 (none) to {GRACE_MOST_S}"
        )));
    }
    Ok(seconds)
}

fn percent<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u8, D::Error> {
    let value = i64::deserialize(from)?;
    let small = u8::try_from(value).ok().filter(|value| *value <= 100);
    small.ok_or_else(|| {
        serde::de::Error::custom(format!(
            "{value} percent of memory; use 0 (the node's default) to 100"
        ))
    })
}

/// Section `[broadcast]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Broadcast {
    /// How programs reach nodes that do not hold them.
    pub load: Load,
    /// Rate of every node's link.
    pub rate: LinkRate,
    /// How casts spread.
    pub scheme: Scheme,
    /// Smallest program that is cast, in bytes, with `load = "auto"`.
    pub threshold: u64,
}

/// How a program reaches nodes that do not hold it.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Deserialize,
    Serialize,
    clap::ValueEnum,
    utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Load {
    /// As broadcast where it pays, else by demand.
    #[default]
    Auto,
    /// All of it to all of them, together; the job starts when it is there.
    Broadcast,
    /// Page by page, as it is touched.
    Demand,
}

impl Load {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Load::Auto => "auto",
            Load::Broadcast => "broadcast",
            Load::Demand => "demand",
        }
    }
}

/// How a cast spreads from node to node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Scheme {
    /// What suits the number of nodes and the size.
    #[default]
    Auto,
    /// Rows of nodes whose heads get the data in turn.
    Grid,
    /// Every node is the head of a row.
    Mesh,
    /// Two binary trees.
    DoubleTree,
    /// As published, chunk first.
    PublishedChunkFirst,
    /// As published, node first.
    PublishedNodeFirst,
}

impl Scheme {
    /// The word for tables.
    pub fn word(self) -> &'static str {
        match self {
            Scheme::Auto => "auto",
            Scheme::Grid => "grid",
            Scheme::Mesh => "mesh",
            Scheme::DoubleTree => "double-tree",
            Scheme::PublishedChunkFirst => "published-chunk-first",
            Scheme::PublishedNodeFirst => "published-node-first",
        }
    }

    /// What the protocol calls it.
    pub fn protocol(self) -> broadcast::Scheme {
        match self {
            Scheme::Auto => broadcast::Scheme::Auto,
            Scheme::Grid => broadcast::Scheme::Grid { n1: 0 },
            Scheme::Mesh => broadcast::Scheme::Mesh,
            Scheme::DoubleTree => broadcast::Scheme::DoubleTree,
            Scheme::PublishedChunkFirst => published(Policy::ChunkFirst),
            Scheme::PublishedNodeFirst => published(Policy::NodeFirst),
        }
    }
}

fn published(policy: Policy) -> broadcast::Scheme {
    broadcast::Scheme::Published(PublishedOptions {
        policy,
        ..PublishedOptions::default()
    })
}

/// A link's rate, written as `50mbit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct LinkRate(pub hearth_qemu::Rate);

impl LinkRate {
    /// Bytes a second.
    pub fn bytes_per_second(self) -> u64 {
        self.0.bits_per_second() / 8
    }
}

impl std::str::FromStr for LinkRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = text
            .parse()
            .map_err(|error: hearth_qemu::Error| error.to_string())?;
        Ok(LinkRate(rate))
    }
}

impl TryFrom<String> for LinkRate {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LinkRate> for String {
    fn from(rate: LinkRate) -> String {
        rate.0.to_string()
    }
}

/// Section `[events]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Events {
    /// Bound of the ring in memory.
    pub ring_max: usize,
    /// Bound of each of the two files, in bytes.
    pub file_max_bytes: u64,
}

/// Section `[store]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Bound of the table of jobs that have ended.
    pub jobs_max: u64,
    /// Bound of the table of events.
    pub events_max: u64,
    /// Bound of the table of programs.
    pub programs_max: u64,
}

/// Section `[monitor]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Monitor {
    /// Days kept, the one under way included.
    pub days: u64,
    /// Bound of all files together, in bytes.
    pub bytes: u64,
}

/// Section `[overlay]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Overlay {
    /// Have nodes make a tree.
    pub enabled: bool,
    /// Most children of a process, as planned.
    pub fan_out: u32,
    /// `averaging`, `comprehensive` or a topology.
    pub placement: String,
    /// For `comprehensive`: what free cores, free memory, link speed and load count for; four
    /// numbers that sum to 1.
    pub judge_weights: String,
    /// The value of each that counts as none.
    pub judge_low: String,
    /// The value of each that counts as all there could be.
    pub judge_high: String,
    /// Nodes that host the processes between nodes and control, as a hostlist; empty: those without
    /// a job.
    pub dedicated: String,
    /// Nodes whose collector of network detail runs all the time, as a hostlist, or `all`.
    pub network: String,
    /// Nodes whose sampling profile of programs runs all the time.
    pub profile: String,
    /// Time between two ticks, in milliseconds.
    pub period_ms: u64,
}

/// Section `[run]`.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// As `--label`.
    pub label: bool,
}

/// Why the configuration could not be used. Its text has the reason in it, so none is a `source`:
/// it would be printed again.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file named on the command line, or one that exists, cannot be read.
    #[error("cannot read the configuration file {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
    /// Not TOML.
    #[error("the configuration file {path} is not valid TOML: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line and reason.
        reason: Box<toml::de::Error>,
    },
    /// A key that does not exist.
    #[error(
        "unknown key {key} in {path}; `hearth config --show-defaults` prints every key there is"
    )]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Section and key.
        key: String,
    },
    /// A value of the wrong type or out of range.
    #[error("wrong value in {path}: {reason}")]
    Value {
        /// The file.
        path: PathBuf,
        /// Which key and why.
        reason: Box<toml::de::Error>,
    },
}

/// Loads the configuration: `explicit` if given, else the first of the user's and the system's
/// file that exists, else the defaults. Returns the file used as well.
///
/// # Errors
/// [`LoadError`], which names the file and the key.
pub fn load(explicit: Option<&Path>) -> Result<(Config, Option<PathBuf>), LoadError> {
    let file = match explicit {
        Some(path) => Some(path.to_path_buf()),
        None => candidates().into_iter().find(|path| path.exists()),
    };
    let Some(path) = file else {
        return Ok((defaults(), None));
    };
    let text = std::fs::read_to_string(&path).map_err(|reason| LoadError::Read {
        path: path.clone(),
        reason,
    })?;
    Ok((merge(&text, &path)?, Some(path)))
}

/// The defaults alone.
pub fn defaults() -> Config {
    toml::from_str(DEFAULTS).expect("defaults.toml documents every field (tested)")
}

fn candidates() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    user.map(|dir| dir.join("hearth/config.toml"))
        .into_iter()
        .chain([PathBuf::from(SYSTEM_FILE)])
        .collect()
}

/// Lays the user's file `text` over the defaults.
fn merge(text: &str, path: &Path) -> Result<Config, LoadError> {
    let own: toml::Table = toml::from_str(text).map_err(|reason| LoadError::Syntax {
        path: path.into(),
        reason: Box::new(reason),
    })?;
    let mut table: toml::Table = toml::from_str(DEFAULTS).expect("defaults.toml parses (tested)");
    for (section, value) in own {
        let unknown = |key: String| LoadError::UnknownKey {
            path: path.into(),
            key,
        };
        let Some(toml::Value::Table(known)) = table.get_mut(&section) else {
            return Err(unknown(section));
        };
        let toml::Value::Table(values) = value else {
            return Err(unknown(section));
        };
        for (key, value) in values {
            match known.get_mut(&key) {
                Some(slot) => *slot = value,
                None => return Err(unknown(format!("{section}.{key}"))),
            }
        }
    }
    table.try_into().map_err(|reason| LoadError::Value {
        path: path.into(),
        reason: Box::new(reason),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(text: &str) -> Result<Config, LoadError> {
        merge(text, Path::new("test.toml"))
    }

    #[test]
    fn defaults_document_every_key() {
        let config = defaults();
        assert_eq!(config.serve.control_port, 7117);
        assert_eq!(config.jobs.queue_max, 10_000);
        // Every key is preceded by a comment.
        let mut before = "";
        for line in DEFAULTS.lines() {
            if line.contains(" = ") && !line.starts_with('#') {
                assert!(before.starts_with('#'), "{line} is not documented");
            }
            before = line;
        }
    }

    #[test]
    fn a_file_changes_what_it_names() {
        let config = merged("[serve]\ninterface = \"eth1\"\n[run]\nlabel = true\n").unwrap();
        assert_eq!(config.serve.interface, "eth1");
        assert!(config.run.label);
        assert_eq!(config.serve.control_port, 7117);
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_errors() {
        let error = merged("[serve]\ninterfaces = \"x\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("serve.interfaces") && error.contains("--show-defaults"),
            "{error}"
        );
        assert!(
            merged("[nonsense]\na = 1")
                .unwrap_err()
                .to_string()
                .contains("nonsense")
        );
        assert!(
            merged("label = true")
                .unwrap_err()
                .to_string()
                .contains("label")
        );
        let error = merged("[jobs]\ntime_limit_s = 3155760001").unwrap_err();
        assert!(
            error.to_string().contains("at most 3155760000 s"),
            "{error}"
        );
        for value in [101, 500, -1] {
            let error = merged(&format!("[retention]\nlimit_percent = {value}"));
            let error = error.unwrap_err().to_string();
            assert!(error.contains(&format!("{value} percent")), "{error}");
        }
        let error = merged("[retention]\nmode = \"always\"").unwrap_err();
        let error = format!("{:#}", anyhow::Error::from(error));
        assert_eq!(error.matches("always").count(), 1, "{error}");
        assert!(error.contains("published"), "{error}");
        let error = merged("[serve]\ncontrol_port = 70000")
            .unwrap_err()
            .to_string();
        assert!(error.contains("test.toml"), "{error}");
        let error = merged("[broadcast]\nrate = \"fast\"")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("fast") && error.contains("50mbit"),
            "{error}"
        );
        let config = merged("[broadcast]\nrate = \"50mbit\"\nload = \"demand\"").unwrap();
        assert_eq!(config.broadcast.rate.bytes_per_second(), 6_250_000);
        assert_eq!(config.broadcast.load, Load::Demand);
        assert!(matches!(merged("[serve"), Err(LoadError::Syntax { .. })));
    }
}
