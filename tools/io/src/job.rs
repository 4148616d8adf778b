//! What a job may reach.

use std::path::{Path, PathBuf};

use netstack::files::server::Member;
use netstack::ids::JobId;
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
    /// Whose calls they are; `None`: of the user that the service runs as.
    pub user: Option<User>,
    /// What it sees.
    pub exports: Vec<Export>,
    /// Where its programs begin, as the job sees it.
    pub working: PathBuf,
    /// Its ranks.
    pub members: Vec<Member>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
