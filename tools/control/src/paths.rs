//! Where a cluster's state lies, and which clusters of this user are running.
//!
//! Key types: [`StateDir`] (names of the files inside), [`find`] (the control socket a command
//! talks to). Neighbours: `cli` (`--cluster`, `--state-dir`), `serve` (creates the directory);
//! `hearth up` keeps its own files in the same directory.
//!
//! Invariant: only control writes below `run/` and the files named here; nothing here is created
//! by asking.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The state directory of one control node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory at `path`; nothing is created.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        StateDir(path.into())
    }

    /// The directory of the cluster `name` of this user: `$XDG_STATE_HOME/hearth/NAME`.
    pub fn of_cluster(name: &str) -> Self {
        StateDir(clusters_dir().join(name))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Sockets and locks, gone after a reboot without loss.
    pub fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// The unix socket of the control API.
    pub fn socket(&self) -> PathBuf {
        self.run().join("control.sock")
    }

    /// Held locked by the running control node.
    pub fn lock(&self) -> PathBuf {
        self.run().join("control.lock")
    }

    /// The cluster secret, mode 0600.
    pub fn secret(&self) -> PathBuf {
        self.0.join("secret")
    }

    /// The bearer token of the HTTP API, mode 0600.
    pub fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    /// The event log, one JSON object a line.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// Cached programs, named by their BLAKE3 hash.
    pub fn programs(&self) -> PathBuf {
        self.0.join("programs")
    }

    /// The store: machines, warm programs, programs, jobs, events.
    pub fn store(&self) -> PathBuf {
        self.0.join("hearth.db")
    }
}

/// Where this user's clusters lie: `$XDG_STATE_HOME/hearth`, else `~/.local/state/hearth`.
pub fn clusters_dir() -> PathBuf {
    std::env::var_os("XDG_STATE_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("hearth")
}

/// Why no control node was found.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FindError {
    /// Nothing runs here.
    #[error("no cluster is running; start one with `hearth up` or `hearth serve`")]
    None,
    /// The one asked for does not run.
    #[error("the cluster {0:?} is not running; running now: {1}")]
    NotRunning(String, String),
    /// No control node answers in the given directory.
    #[error("no control node answers at {0}; is `hearth serve` running with this --state-dir?")]
    NoAnswer(PathBuf),
    /// More than one runs and none was chosen.
    #[error("several clusters are running ({0}); choose one with --cluster NAME")]
    Several(String),
    /// A name that could leave the directory of clusters.
    #[error("{0:?} is not a cluster name; use letters, digits, '-' and '_', at most 32 of them")]
    BadName(String),
}

/// Longest cluster name: it is part of interface names and of a socket path of 107 bytes.
pub const CLUSTER_NAME_MAX: usize = 32;

/// Checks a cluster name.
///
/// # Errors
/// [`FindError::BadName`].
pub fn check_name(name: &str) -> Result<(), FindError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if name.is_empty()
        || name.len() > CLUSTER_NAME_MAX
        || name.starts_with('-')
        || !name.bytes().all(good)
    {
        return Err(FindError::BadName(name.to_string()));
    }
    Ok(())
}

/// Finds the control node a command talks to: the given state directory, the named cluster, or
/// the only one running among this user's clusters and `system` (the service's directory).
///
/// # Errors
/// [`FindError`], which lists the running clusters where that helps.
pub fn find(
    state_dir: Option<&Path>,
    cluster: Option<&str>,
    system: &Path,
) -> Result<StateDir, FindError> {
    if let Some(path) = state_dir {
        let dir = StateDir::new(path);
        return if answers(&dir) {
            Ok(dir)
        } else {
            Err(FindError::NoAnswer(dir.socket()))
        };
    }
    let list = |running: &[(String, StateDir)]| {
        let names: Vec<&str> = running.iter().map(|(name, _)| name.as_str()).collect();
        if names.is_empty() {
            "none".to_string()
        } else {
            names.join(", ")
        }
    };
    if let Some(name) = cluster {
        check_name(name)?;
        let dir = StateDir::of_cluster(name);
        if answers(&dir) {
            return Ok(dir);
        }
        return Err(FindError::NotRunning(
            name.to_string(),
            list(&running(system)),
        ));
    }
    let mut running = running(system);
    match running.len() {
        0 => Err(FindError::None),
        1 => Ok(running.remove(0).1),
        _ => Err(FindError::Several(list(&running))),
    }
}

/// The control nodes that answer: this user's clusters by name, then the service as `system`.
pub fn running(system: &Path) -> Vec<(String, StateDir)> {
    let mut found = Vec::new();
    if let Ok(entries) = std::fs::read_dir(clusters_dir()) {
        for entry in entries.flatten() {
            let dir = StateDir::new(entry.path());
            if answers(&dir) {
                found.push((entry.file_name().to_string_lossy().into_owned(), dir));
            }
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let service = StateDir::new(system);
    if !found.iter().any(|(_, dir)| *dir == service) && answers(&service) {
        found.push(("system".to_string(), service));
    }
    found
}

fn answers(dir: &StateDir) -> bool {
    UnixStream::connect(dir.socket()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn names_stay_inside_their_directory() {
        assert!(check_name("lab-2_x").is_ok());
        for bad in ["", "..", "a/b", "-x", &"x".repeat(33), "a b"] {
            assert_eq!(check_name(bad), Err(FindError::BadName(bad.to_string())));
        }
    }

    #[test]
    fn a_directory_answers_only_while_somebody_listens() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        std::fs::create_dir(state.run()).unwrap();
        let wanted = find(Some(dir.path()), None, Path::new("/nonexistent"));
        assert_eq!(wanted, Err(FindError::NoAnswer(state.socket())));
        let listener = UnixListener::bind(state.socket()).unwrap();
        assert_eq!(
            find(Some(dir.path()), None, Path::new("/nonexistent")),
            Ok(state.clone())
        );
        drop(listener);
        assert!(find(Some(dir.path()), None, Path::new("/nonexistent")).is_err());
    }
}
