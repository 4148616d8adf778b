//! What a job may reach.

use std::path::{Path, PathBuf};

use netstack::files::server::Member;
use netstack::ids::JobId;
use nix::unistd;
use rustix::fs::Gid;
use rustix::thread::set_thread_groups;
use serde::{Deserialize, Serialize};

/// Who a job's files are read and written as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// User number.
    pub uid: u32,
    /// First group.
    pub gid: u32,
    /// Other groups.
    pub groups: Vec<u32>,
}

impl User {
    /// Looks at files with this user's eyes: in a thread of its own that has the user's rights to
    /// files, and no other. For root, who may be anybody.
    ///
    /// # Errors
    /// Where this process may not be that user.
    pub fn looks<R: Send>(&self, look: impl FnOnce() -> R + Send) -> std::io::Result<R> {
        let become_user = || {
            let groups: Vec<_> = self
                .groups
                .iter()
                .map(|group| Gid::from_raw(*group))
                .collect();
            set_thread_groups(&groups)?;
            unistd::setfsgid(self.gid.into());
            unistd::setfsuid(self.uid.into());
            // Each answers with what is set now.
            let gid = unistd::setfsgid(u32::MAX.into());
            let uid = unistd::setfsuid(u32::MAX.into());
            match (uid, gid) == (self.uid.into(), self.gid.into()) {
                true => Ok(()),
                false => Err(std::io::Error::from(std::io::ErrorKind::PermissionDenied)),
            }
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new();
            let looking = thread.spawn_scoped(scope, || become_user().map(|()| look()))?;
            looking
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

/// A directory that a job sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// Where it is on the machine of the service, an absolute path.
    pub host: PathBuf,
    /// Where the job sees it, an absolute path without `.` and `..`.
    pub node: PathBuf,
    /// It cannot be written.
    pub read_only: bool,
}

impl Export {
    /// A directory under the same path, to be read and written.
    pub fn same(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        Self {
            host: path.clone(),
            node: path,
            read_only: false,
        }
    }

    /// Reads `HOST:NODE`, `HOST:NODE:ro`, or `PATH` for both.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, BadExport> {
        let bad = |why| BadExport {
            text: text.to_owned(),
            why,
        };
        let mut parts = text.split(':');
        let host = parts.next().unwrap_or_default();
        let (node, option) = (parts.next().unwrap_or(host), parts.next());
        let read_only = match (option, parts.next()) {
            (None, _) => false,
            (Some("ro"), None) => true,
            _ => return Err(bad("after the second colon only `ro` may follow")),
        };
        let is_plain = |path: &str| {
            let names = Path::new(path).components();
            names.clone().count() > 1
                && !names
                    .clone()
                    .any(|name| name == std::path::Component::ParentDir)
        };
        if !host.starts_with('/') || !node.starts_with('/') || !is_plain(node) {
            return Err(bad("both paths must be absolute, and not `/` on the node"));
        }
        Ok(Self {
            host: host.into(),
            node: node.into(),
            read_only,
        })
    }
}

/// Directories below `/` that every node has for itself (`kernel/core/src/files/path.rs`): what is
/// exported there no program would see.
const OF_NODE: [&str; 4] = ["with", "dev", "proc", "sys"];

/// Whether a path is one that every node has for itself. What is below `/tmp` may be an export.
pub fn is_of_node(path: &Path) -> bool {
    if path == Path::new("/tmp") {
        return true;
    }
    let inside = path.strip_prefix("/").ok();
    let first = inside.and_then(|inside| inside.components().next());
    first.is_some_and(|first| OF_NODE.iter().any(|own| first.as_os_str() == *own))
}

/// Most exports of a job.
pub const MOST_EXPORTS: usize = 128;

/// Looks whether a job can be served with these exports, before it has nodes: what a worker finds
/// later is told when the first call fails. With `here` it looks at the disk, and may wait for it.
///
/// # Errors
/// What is wrong, and what to do.
pub fn check(exports: &[Export], here: bool) -> Result<(), BadFiles> {
    if exports.len() > MOST_EXPORTS {
        return Err(BadFiles::TooMany);
    }
    if let Some(export) = exports.iter().find(|export| is_of_node(&export.node)) {
        return Err(BadFiles::OfNode(export.node.clone()));
    }
    for (index, export) in exports.iter().enumerate() {
        if here {
            let metadata = export.host.metadata();
            let found = metadata.map_err(|error| BadFiles::NotThere {
                host: export.host.clone(),
                error: error.to_string(),
            })?;
            if !found.is_dir() {
                return Err(BadFiles::NoDirectory(export.host.clone()));
            }
        }
        let before = &exports[..index];
        if before.iter().any(|other| other.node == export.node) {
            return Err(BadFiles::Twice(export.node.clone()));
        }
        if here && let Some(place) = missing_place(exports, export) {
            return Err(BadFiles::NoPlace {
                node: export.node.clone(),
                place,
            });
        }
    }
    Ok(())
}

/// Where a directory has to be for an export that is to be seen inside another one, if there is
/// none.
fn missing_place(exports: &[Export], export: &Export) -> Option<PathBuf> {
    let around = exports
        .iter()
        .filter(|other| other.node != export.node && export.node.starts_with(&other.node));
    let around = around.max_by_key(|other| other.node.components().count())?;
    let place = around
        .host
        .join(export.node.strip_prefix(&around.node).ok()?);
    // A link there would be followed nowhere.
    let is_there = place.symlink_metadata().is_ok_and(|data| data.is_dir());
    (!is_there).then_some(place)
}

/// Files with which no job can be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadFiles {
    /// More exports than there may be.
    #[error("a job sees at most {MOST_EXPORTS} directories; export what contains them")]
    TooMany,
    /// There is nothing.
    #[error("{}: {error}; make the directory, or leave it out", host.display())]
    NotThere {
        /// What is not there.
        host: PathBuf,
        /// What the system says.
        error: String,
    },
    /// It is a file.
    #[error("{} is no directory; name the directory that it is in", .0.display())]
    NoDirectory(PathBuf),
    /// The node has something else there.
    #[error(
        "{}: a node has /with, /dev, /proc, /sys and /tmp for itself, and a job would not see it; \
         give it another path there (--mount HOST:NODE)",
        .0.display()
    )]
    OfNode(PathBuf),
    /// It is to be seen inside another export, which has no directory of that name.
    #[error(
        "{}: there is no directory {} to see it at, inside another export; make it, or give the \
         mount a path of its own (--mount HOST:NODE)",
        node.display(),
        place.display()
    )]
    NoPlace {
        /// Where a job would see it.
        node: PathBuf,
        /// The directory that is missing.
        place: PathBuf,
    },
    /// Two exports have one place.
    #[error("two directories are to be seen at {}; give each a path of its own", .0.display())]
    Twice(PathBuf),
}

/// A text that names no export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text}: {why}; give HOST:NODE or HOST:NODE:ro, as in /data/set1:/data:ro")]
pub struct BadExport {
    text: String,
    why: &'static str,
}

/// The files of a job.
#[derive(Clone, Debug)]
pub struct JobFiles {
    /// The job.
    pub job: JobId,
    /// Tells it from a job of the same number that another control node had.
    pub identity: u64,
    /// Whose calls they are; `None`: of the user that the service runs as.
    pub user: Option<User>,
    /// What it sees.
    pub exports: Vec<Export>,
    /// Where its programs begin, as the job sees it.
    pub working: PathBuf,
    /// Its ranks.
    pub members: Vec<Member>,
    /// Why this service does not carry out its calls: each fails with EIO, and the reason is told.
    pub refused: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_served_is_said_beforehand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::write(path.join("file"), b"").unwrap();
        let own = Export::same(path);
        let at = |host: PathBuf, node: &str| Export {
            host,
            node: node.into(),
            read_only: true,
        };
        assert_eq!(check(std::slice::from_ref(&own), true), Ok(()));
        for fine in ["/device/x", "/data/dev", "/tmp/x"] {
            assert_eq!(check(&[at(path.into(), fine)], true), Ok(()), "{fine}");
        }
        for (exports, words) in [
            (vec![at(path.join("none"), "/data")], "make the directory"),
            (vec![at(path.join("file"), "/data")], "is no directory"),
            (vec![own.clone(), own.clone()], "a path of its own"),
            (vec![at(path.into(), "/dev/x")], "for itself"),
            (vec![at(path.into(), "/with")], "for itself"),
            (vec![at(path.into(), "/./proc/a")], "for itself"),
            (vec![at(path.into(), "//sys/a")], "for itself"),
            (vec![own.clone(); MOST_EXPORTS + 1], "at most 128"),
        ] {
            let error = check(&exports, true).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn exports_are_read() {
        let both = Export::parse("/home/ada").unwrap();
        assert_eq!(both, Export::same("/home/ada"));
        let other = Export::parse("/data/1:/data:ro").unwrap();
        assert_eq!((other.host, other.node), ("/data/1".into(), "/data".into()));
        assert!(other.read_only);
        for bad in [
            "",
            "data",
            "/data:data",
            "/data:/",
            "/a:/b:rw",
            "/a:/b:ro:x",
            "/a:/b/../c",
        ] {
            assert!(Export::parse(bad).is_err(), "{bad}");
        }
    }
}
