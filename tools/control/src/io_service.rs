//! Files of jobs: which directories a job may see, and the services that carry its calls out.
//!
//! | module | what it is |
//! |---|---|
//! | [`joined`] | services on other machines, and what each is to be told |
//! | [`psets`] | which nodes call which service |
//! | [`reads`] | files that many nodes read at once |
//! | [`services`] | all of them, and the jobs that they know |
//!
//! Key types: [`Mounts`] (what a job was granted, kept with it), [`grant`] (what a request gets),
//! [`IoServices`]. Neighbours: `hearth_io` is the service, `control_events` says which jobs nodes
//! have.
//!
//! Invariant: a job sees no directory outside of those that the configuration exports.

pub mod joined;
mod psets;
pub mod reads;
mod services;

pub use services::{IoServices, NotJoined};

use std::path::{Component, Path, PathBuf};

use hearth_io::{Export, User};
use nix::unistd::geteuid;
use serde::{Deserialize, Serialize};

use crate::api::types::FilesRequest;
use crate::config::{self, FileService};

/// In `files.export`: the home directory of who submits a job.
const HOME: &str = "~";
/// In `files.export`: the directory in which a job is submitted.
const HERE: &str = ".";
/// Most directories that a job may ask for.
const MOUNTS_MAX: usize = 64;

/// The directories that a job sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mounts {
    /// Tells the job from one of the same number that another control node had: when it was handed
    /// in, in microseconds since 1970.
    #[serde(default)]
    pub identity: u64,
    /// Who its files are read and written as; none: the user who the control node runs as.
    #[serde(default)]
    pub user: Option<User>,
    /// The directories.
    pub exports: Vec<Export>,
    /// Where it begins, as it sees it.
    pub working: PathBuf,
}

/// Why a job does not get a directory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotGranted {
    /// The text of a mount cannot be read.
    #[error(transparent)]
    Bad(#[from] hearth_io::job::BadExport),
    /// Nothing is exported.
    #[error(
        "--mount: this control node exports no directory; set files.export in its configuration, or leave --mount out"
    )]
    NoService,
    /// The directory is outside of what is exported.
    #[error(
        "--mount {0}: it is not exported by this control node (files.export in its configuration)"
    )]
    Outside(String),
    /// There is no such directory.
    #[error("--mount {path}: {error}; name a directory that is there")]
    NotThere {
        /// Which.
        path: String,
        /// What the system says.
        error: String,
    },
    /// The system does not let the control node look as that user.
    #[error("the control node cannot look at files as the job's user: {0}; run it as root")]
    NotAllowed(String),
    /// More than there may be.
    #[error("a job may have at most {MOUNTS_MAX} mounts")]
    TooMany,
    /// No job can be served with these directories.
    #[error(transparent)]
    NotServed(#[from] hearth_io::BadFiles),
}

/// What a job gets that asks for files; `None`: it has none, since nothing is exported. It looks at
/// the disk with the eyes of `user`, and may wait for it: not for a task that others wait for.
///
/// # Errors
/// A directory that it asks for by name and does not get.
pub fn grant(
    config: &config::Files,
    request: &FilesRequest,
    user: Option<User>,
) -> Result<Option<Mounts>, NotGranted> {
    match user.clone() {
        None => grant_to(config, request, user),
        Some(other) => {
            let granted = other.looks(|| grant_to(config, request, user));
            granted.map_err(|error| NotGranted::NotAllowed(error.to_string()))?
        }
    }
}

fn grant_to(
    config: &config::Files,
    request: &FilesRequest,
    user: Option<User>,
) -> Result<Option<Mounts>, NotGranted> {
    if request.mounts.len() > MOUNTS_MAX {
        return Err(NotGranted::TooMany);
    }
    let given = |path: &str| match path {
        HOME => PathBuf::from(&request.home),
        HERE => PathBuf::from(&request.working),
        path => PathBuf::from(path),
    };
    // One that is not there now is not exported now.
    let exported = config.export.iter().map(|path| given(path));
    let exported = exported.filter(|path| path.is_absolute());
    let exported: Vec<PathBuf> = exported
        .filter_map(|path| real_path(config.service, &path).ok())
        .collect();
    if config.export.is_empty() {
        return match request.mounts.is_empty() {
            true => Ok(None),
            false => Err(NotGranted::NoService),
        };
    }
    let may = |path: &Path| exported.iter().any(|exported| path.starts_with(exported));
    let mut exports: Vec<Export> = Vec::new();
    // The home directory, or where the job is submitted, may be one of those that a node has for
    // itself: then the job begins elsewhere, as where it is not exported.
    let is_named = |path: &PathBuf| config.export.iter().any(|export| Path::new(export) == path);
    let seen = exported.iter();
    let seen = seen.filter(|path| !hearth_io::job::is_of_node(path) || is_named(path));
    let seen: Vec<&PathBuf> = seen.collect();
    for path in &seen {
        let is_root = path.parent().is_none();
        let is_inside = |other: &&PathBuf| other != path && path.starts_with(other);
        let is_there = config.service == FileService::Joined || path.is_dir();
        if !is_root && !seen.iter().any(is_inside) && is_there {
            exports.push(Export::same(path));
        }
    }
    exports.dedup();
    let mut mounts: Vec<Export> = Vec::new();
    for text in &request.mounts {
        let mut mount = Export::parse(text)?;
        let real = real_path(config.service, &mount.host);
        let real = real.map_err(|error| NotGranted::NotThere {
            path: mount.host.display().to_string(),
            error: error.to_string(),
        })?;
        if !may(&real) {
            return Err(NotGranted::Outside(mount.host.display().to_string()));
        }
        mount.host = real;
        mounts.push(mount);
    }
    // What is asked for by name takes the place of what would be there.
    exports.retain(|export| mounts.iter().all(|mount| mount.node != export.node));
    exports.append(&mut mounts);
    hearth_io::check(&exports, config.service == FileService::Own)?;
    let working = PathBuf::from(&request.working);
    let real = real_path(config.service, &working).unwrap_or_default();
    let sees = |path: &Path| exports.iter().any(|export| path.starts_with(&export.node));
    let working = [working, real].into_iter().find(|path| sees(path));
    Ok(Some(Mounts {
        identity: crate::clock::unix_us(),
        user,
        exports,
        working: working.unwrap_or_else(|| "/".into()),
    }))
}

/// The path of a directory without symbolic links, as this machine sees it. Where services on other
/// machines have the files, one that is not here is taken as it stands: they follow no link on the
/// way to an export, and refuse one that is not there.
fn real_path(service: FileService, path: &Path) -> std::io::Result<PathBuf> {
    match path.canonicalize() {
        Err(_) if service == FileService::Joined && is_plain(path) => {
            Ok(path.components().collect())
        }
        real => real,
    }
}

/// Whether a path is one from the root without `..`.
fn is_plain(path: &Path) -> bool {
    let has_parent = path.components().any(|part| part == Component::ParentDir);
    path.is_absolute() && !has_parent
}

/// Whether this process can become other users: it is root, and not only inside a user namespace.
pub fn serves_others() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let whole = ["0", "0", "4294967295"];
    geteuid().is_root() && map.split_whitespace().eq(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(home: &Path, working: &Path, mounts: &[String]) -> FilesRequest {
        FilesRequest {
            working: working.display().to_string(),
            home: home.display().to_string(),
            mounts: mounts.to_vec(),
        }
    }

    fn exporting(export: &[&str]) -> config::Files {
        config::Files {
            export: export.iter().map(|path| (*path).to_string()).collect(),
            service: FileService::Own,
        }
    }

    #[test]
    fn a_job_sees_what_is_exported_and_begins_where_it_was_submitted() {
        let home = tempfile::tempdir().unwrap();
        let work = home.path().join("work");
        std::fs::create_dir(&work).unwrap();
        let asked = request(home.path(), &work, &[]);
        let mounts = grant(&exporting(&["~", "."]), &asked, None)
            .unwrap()
            .unwrap();
        assert_eq!(mounts.exports, [Export::same(home.path())]);
        assert_eq!(mounts.working, work);
        assert_eq!(grant(&exporting(&[]), &asked, None), Ok(None));
        let elsewhere = tempfile::tempdir().unwrap();
        let asked = request(home.path(), elsewhere.path(), &[]);
        let mounts = grant(&exporting(&["~"]), &asked, None).unwrap().unwrap();
        assert_eq!(mounts.working, Path::new("/"));
    }

    #[test]
    fn a_mount_is_of_what_is_exported() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display();
        let asked = |mount: String| request(home.path(), home.path(), &[mount]);
        let config = exporting(&["."]);
        let mounts = grant(&config, &asked(format!("{path}:/data:ro")), None);
        let mounts = mounts.unwrap().unwrap();
        assert!(mounts.exports[1].read_only && mounts.exports[1].node == Path::new("/data"));
        for outside in ["/etc:/data", "/:/data"] {
            let refused = grant(&config, &asked(outside.to_string()), None);
            assert!(
                matches!(refused, Err(NotGranted::Outside(_))),
                "{refused:?}"
            );
        }
        let same = grant(&config, &asked(format!("{path}:{path}:ro")), None);
        let exports = same.unwrap().unwrap().exports;
        assert!(exports.len() == 1 && exports[0].read_only, "{exports:?}");
        std::fs::write(home.path().join("file"), b"").unwrap();
        let twice = [format!("{path}:/data"), format!("{path}:/data:ro")];
        for (mounts, words) in [
            (&[format!("{path}/file:/data")][..], "is no directory"),
            (&twice[..], "a path of its own"),
            (&[format!("{path}:/tmp")], "for itself"),
            (&[format!("{path}:/proc/self")], "for itself"),
            (&[format!("{path}:{path}/zz")], "there is no directory"),
            (&[format!("{path}/none:/data")], "--mount"),
        ] {
            let asked = request(home.path(), home.path(), mounts);
            let error = grant(&config, &asked, None).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        std::os::unix::fs::symlink("/etc", home.path().join("link")).unwrap();
        let refused = grant(&config, &asked(format!("{path}/link:/data")), None);
        assert!(matches!(refused, Err(NotGranted::Outside(_))));
        let refused = grant(&exporting(&[]), &asked("/etc:/data".to_string()), None);
        assert_eq!(refused, Err(NotGranted::NoService));
    }

    #[test]
    fn a_mount_is_seen_inside_an_export_where_there_is_a_place_for_it() {
        let home = tempfile::tempdir().unwrap();
        let inner = home.path().join("zz");
        std::fs::create_dir(&inner).unwrap();
        let path = home.path().display();
        let asked = request(home.path(), home.path(), &[format!("{path}:{path}/zz")]);
        let mounts = grant(&exporting(&["."]), &asked, None).unwrap().unwrap();
        assert_eq!(mounts.exports.len(), 2);
    }

    #[test]
    fn a_home_below_tmp_is_seen_by_a_job_that_begins_in_tmp() {
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let asked = request(home.path(), Path::new("/tmp"), &[]);
        let mounts = grant(&exporting(&["~", "."]), &asked, None).unwrap();
        let mounts = mounts.unwrap();
        assert_eq!(mounts.exports, [Export::same(home.path())]);
        assert_eq!(mounts.working, Path::new("/"));
        let path = home.path().display();
        let asked = request(home.path(), Path::new("/tmp"), &[format!("{path}:/data")]);
        assert!(grant(&exporting(&["."]), &asked, None).is_ok());
    }

    #[test]
    fn what_a_node_has_for_itself_is_not_exported() {
        let shared = Path::new("/dev/shm");
        let mut config = exporting(&["."]);
        config.service = FileService::Joined;
        // Where it was submitted by chance, and what is asked for by name.
        let asked = request(shared, shared, &[]);
        let mounts = grant(&config, &asked, None).unwrap().unwrap();
        assert!(mounts.exports.is_empty() && mounts.working == Path::new("/"));
        let asked = request(shared, shared, &["/dev/shm:/with/x".to_string()]);
        let error = grant(&config, &asked, None).unwrap_err().to_string();
        assert!(
            error.contains("for itself") && error.contains("/with/x"),
            "{error}"
        );
        let asked = request(shared, shared, &["/dev/shm:/shared".to_string()]);
        assert!(grant(&config, &asked, None).is_ok());
        config.export = vec!["/dev/shm".to_string()];
        let error = grant(&config, &request(shared, shared, &[]), None).unwrap_err();
        assert!(
            error.to_string().contains("/dev/shm: a node has"),
            "{error}"
        );
    }

    #[test]
    fn directories_of_other_machines_are_taken_as_they_stand() {
        let mut config = exporting(&["/nowhere/home"]);
        config.service = FileService::Joined;
        let home = Path::new("/nowhere/home/ada");
        let asked = request(home, home, &["/nowhere/home/ada/in:/in:ro".to_string()]);
        let mounts = grant(&config, &asked, None).unwrap().unwrap();
        let hosts: Vec<&Path> = mounts
            .exports
            .iter()
            .map(|export| export.host.as_path())
            .collect();
        assert_eq!(
            hosts,
            ["/nowhere/home", "/nowhere/home/ada/in"].map(Path::new)
        );
        assert_eq!(mounts.working, home);
        // The same directory in other words.
        for (words, working) in [
            ("/nowhere/home/", "/nowhere/home/ada"),
            ("/nowhere//home", "/nowhere/home/ada/"),
            ("/nowhere/./home/.", "/nowhere//home/./ada"),
        ] {
            config.export = vec![words.to_string()];
            let asked = request(home, Path::new(working), &[]);
            let mounts = grant(&config, &asked, None).unwrap().unwrap();
            assert_eq!(mounts.exports[0].host.to_str(), Some("/nowhere/home"));
            assert_eq!(mounts.working, home, "{words}");
        }
        config.export = vec!["/nowhere/home".to_string()];
        for outside in ["/nowhere/home/../else:/in", "/nowhere/homes:/in"] {
            let asked = request(home, home, &[outside.to_string()]);
            let refused = grant(&config, &asked, None);
            assert!(refused.is_err(), "{outside}: {refused:?}");
        }
    }

    #[test]
    fn a_mount_tells_nobody_what_is_in_directories_of_others() {
        if !serves_others() {
            return;
        }
        use std::os::unix::fs::PermissionsExt;
        let home = tempfile::tempdir().unwrap();
        let allow = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        let private = home.path().join("private");
        std::fs::create_dir_all(private.join("there")).unwrap();
        allow(home.path(), 0o755);
        allow(&private, 0o700);
        let config = exporting(&[&home.path().display().to_string()]);
        let user = |uid| User {
            uid,
            gid: uid,
            groups: vec![uid],
        };
        let answer = |path: &str, uid| {
            let mount = format!("{}:/in", private.join(path).display());
            let asked = request(home.path(), home.path(), &[mount]);
            grant(&config, &asked, Some(user(uid))).map_err(|error| {
                let text = error.to_string();
                text.split_once(": ").map(|(_, why)| why.to_string())
            })
        };
        let refused = answer("there", 3_999_999).unwrap_err();
        assert!(
            refused.as_ref().unwrap().contains("Permission denied"),
            "{refused:?}"
        );
        assert_eq!(answer("none", 3_999_999).unwrap_err(), refused);
        assert!(answer("there", 0).is_ok());
    }
}
