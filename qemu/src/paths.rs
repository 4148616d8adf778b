//! Where a cluster's files are.
//!
//! Key type: [`Paths`]. Neighbours: every module; `tools/control` keeps its own state (secret,
//! events, programs) in the same directory.
//!
//! Invariant: everything a cluster leaves on disk is below one directory.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::spec::check_name;

/// Longest path of a unix socket that the kernel takes, in bytes (`sun_path` without its zero).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The files of one cluster, all below one state directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    name: String,
    state: PathBuf,
}

impl Paths {
    /// The state directory of a cluster: `$XDG_STATE_HOME/hearth/NAME`, else
    /// `~/.local/state/hearth/NAME`.
    pub fn of_cluster(name: &str) -> Result<Self, Error> {
        Self::below(&state_root()?, name)
    }

    /// The state directory of a cluster below another root.
    pub fn below(root: &Path, name: &str) -> Result<Self, Error> {
        check_name(name)?;
        let paths = Self {
            name: name.to_owned(),
            state: root.join(name),
        };
        let longest = paths.supervisor_socket();
        if longest.as_os_str().len() > MAX_SOCKET_PATH_BYTES {
            return Err(Error::Spec(format!(
                "{} is longer than a socket path may be ({MAX_SOCKET_PATH_BYTES} bytes): \
                 choose a shorter XDG_STATE_HOME",
                longest.display()
            )));
        }
        Ok(paths)
    }

    /// Name of the cluster.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The directory of everything.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Sockets and locks: things that only mean something while the cluster is up.
    pub fn run(&self) -> PathBuf {
        self.state.join("run")
    }

    /// Serial logs and the logs of QEMU, control and supervisor.
    pub fn logs(&self) -> PathBuf {
        self.state.join("logs")
    }

    /// What is running: see [`crate::Record`].
    pub fn record(&self) -> PathBuf {
        self.state.join("cluster.json")
    }

    /// How the supervisor starts the control node.
    pub(crate) fn launch(&self) -> PathBuf {
        self.run().join("launch.json")
    }

    /// Fixed leases, for the control node: `MAC IP NODE` a line.
    pub fn nodes_file(&self) -> PathBuf {
        self.run().join("nodes")
    }

    /// Locked as long as the supervisor lives.
    pub(crate) fn supervisor_lock(&self) -> PathBuf {
        self.run().join("supervisor.lock")
    }

    /// Requests to the supervisor.
    pub(crate) fn supervisor_socket(&self) -> PathBuf {
        self.run().join("supervisor.sock")
    }

    /// Where the control node answers.
    pub fn control_socket(&self) -> PathBuf {
        self.run().join("control.sock")
    }

    /// What a node wrote to its serial console, over all its boots.
    pub fn serial_log(&self, node: u32) -> PathBuf {
        self.logs().join(format!("n{node}.serial"))
    }

    /// What a node's QEMU itself had to say.
    pub fn qemu_log(&self, node: u32) -> PathBuf {
        self.logs().join(format!("n{node}.qemu"))
    }

    /// What a node's QEMU logs of the machine, if [`crate::Spec::trace`] asks for it.
    pub fn trace_log(&self, node: u32) -> PathBuf {
        self.logs().join(format!("n{node}.trace"))
    }

    /// Where a node's QEMU takes a debugger, if [`crate::Spec::debugged`] has it.
    pub fn debugger_socket(&self, node: u32) -> PathBuf {
        self.run().join(format!("n{node}.gdb"))
    }

    /// What an I/O service wrote.
    pub fn io_log(&self, service: u32) -> PathBuf {
        self.logs().join(format!("io{service}.log"))
    }

    /// What the control node wrote.
    pub fn control_log(&self) -> PathBuf {
        self.logs().join("control.log")
    }

    /// What the supervisor wrote.
    pub fn supervisor_log(&self) -> PathBuf {
        self.logs().join("supervisor.log")
    }

    /// A node's writable copy of the UEFI variable store.
    pub(crate) fn uefi_variables(&self, node: u32) -> PathBuf {
        self.run().join(format!("n{node}.vars"))
    }
}

/// The directory below which each cluster has its state directory.
pub fn state_root() -> Result<PathBuf, Error> {
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("hearth"))
        .ok_or_else(|| {
            Error::Host(
                "neither XDG_STATE_HOME nor HOME names a directory: set one of them".to_owned(),
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_leave_the_root_and_long_roots_are_refused() {
        let root = Path::new("/tmp/state");
        assert_eq!(
            Paths::below(root, "lab").unwrap().state(),
            Path::new("/tmp/state/lab")
        );
        assert!(Paths::below(root, "..").is_err());
        assert!(Paths::below(root, "a/b").is_err());
        let long = PathBuf::from(format!("/{}", "x".repeat(100)));
        assert!(
            Paths::below(&long, "lab")
                .unwrap_err()
                .to_string()
                .contains("XDG_STATE_HOME")
        );
    }
}
