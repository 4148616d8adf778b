//! What is running, on disk: `cluster.json`.
//!
//! Key types: [`Record`], [`NodeRecord`]. Neighbours: `supervisor` writes it, `lifecycle` and the
//! operator's tools read it.
//!
//! Invariant: the file is replaced as a whole; a reader sees an old record or a new one.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{Error, Paths, ProcessId, Spec};

/// Everything known about a cluster that is up.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    pub spec: Spec,
    /// Where the control node's HTTP listener is reached from outside.
    pub http: SocketAddr,
    /// The process that keeps the cluster; `None` before it has started.
    pub supervisor: Option<ProcessId>,
    /// The control node.
    pub control: Option<ProcessId>,
    /// The control node ended in good order, since somebody wanted that: it is started again by
    /// [`crate::start_control`] and not by itself.
    #[serde(default)]
    pub control_stopped: bool,
    /// The I/O services; none in a place whose process has ended and is not started again yet.
    #[serde(default)]
    pub io_services: Vec<Option<ProcessId>>,
    pub nodes: Vec<NodeRecord>,
}

/// One machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Number of the node; its name is `n` and the number.
    pub node: u32,
    pub name: String,
    pub mac: String,
    pub address: Ipv4Addr,
    /// Leaf switch it is plugged into.
    pub leaf: u32,
    pub state: MachineState,
    /// Its QEMU, while on.
    pub process: Option<ProcessId>,
    /// When it was last switched on, in milliseconds since 1970-01-01 UTC.
    pub power_on_unix_ms: Option<u64>,
    /// How often it was switched on.
    pub starts: u32,
    /// How its QEMU ended, when that was not asked for.
    pub ended: Option<String>,
    pub serial_log: PathBuf,
    /// Where a debugger finds it, if it may.
    #[serde(default)]
    pub debugger: Option<PathBuf>,
}

/// Whether a machine is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    On,
    Off,
}

impl Record {
    /// A cluster of which nothing runs yet.
    pub fn new(spec: Spec, http: SocketAddr, paths: &Paths) -> Self {
        let nodes = (0..spec.nodes)
            .map(|node| NodeRecord {
                node,
                name: format!("n{node}"),
                mac: Spec::node_mac(node),
                address: Spec::node_address(node),
                leaf: spec.tree.leaf_of(node),
                state: MachineState::Off,
                process: None,
                power_on_unix_ms: None,
                starts: 0,
                ended: None,
                serial_log: paths.serial_log(node),
                debugger: spec
                    .debugged
                    .contains(&node)
                    .then(|| paths.debugger_socket(node)),
            })
            .collect();
        let spec_io = spec.io_services as usize;
        Self {
            spec,
            http,
            supervisor: None,
            control: None,
            control_stopped: false,
            io_services: vec![None; spec_io],
            nodes,
        }
    }

    /// Reads the record of a cluster; [`Error::NotUp`] when there is none.
    pub fn load(paths: &Paths) -> Result<Self, Error> {
        let path = paths.record();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(Error::NotUp(paths.name().to_owned()));
            }
            Err(error) => return Err(Error::file("reading", path)(error)),
        };
        serde_json::from_slice(&bytes).map_err(|error| Error::file("reading", path)(error.into()))
    }

    /// Replaces the record on disk.
    pub fn save(&self, paths: &Paths) -> Result<(), Error> {
        let path = paths.record();
        let fresh = path.with_extension("json.new");
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::file("writing", &path)(error.into()))?;
        bytes.push(b'\n');
        fs::write(&fresh, bytes).map_err(Error::file("writing", &fresh))?;
        fs::rename(&fresh, &path).map_err(Error::file("replacing", path))
    }

    /// All processes of the cluster, the supervisor first.
    pub fn processes(&self) -> impl Iterator<Item = ProcessId> + '_ {
        let nodes = self.nodes.iter().filter_map(|node| node.process);
        let io_services = self.io_services.iter().flatten().copied();
        let services = self.supervisor.into_iter().chain(self.control);
        services.chain(io_services).chain(nodes)
    }
}
