//! Shutting the process in: a file tree that has the job's exports and nothing else, the job's
//! user, and no way back.
//!
//! | step | by what |
//! |---|---|
//! | nobody else's mounts | a mount namespace; with a user namespace where it is not root |
//! | nothing but the exports | a new root in memory, exports bound into it, `pivot_root` |
//! | no devices, no set-user-id | `nodev`, `nosuid` on every mount below an export |
//! | another user for good | `setgroups`, `setresgid`, `setresuid`, all three numbers |
//! | nothing left to gain | no new privileges, no capabilities |
//! | it dies with its service | `PR_SET_PDEATHSIG` |
//!
//! Invariant: [`enter`] either does all of it or says what it could not do.

use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{self, OFlag};
use nix::mount::{self, MntFlags, MsFlags};
use nix::sched::{self, CloneFlags};
use nix::sys::prctl;
use nix::sys::resource::{self, Resource};
use nix::sys::signal::Signal;
use nix::sys::stat::{self, Mode};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{self, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use crate::job::{Export, User};
use crate::message::Setup;

/// Where the new root is made: a directory that every system has.
const BASE: &str = "/tmp";
/// Where the old root is for a moment.
const OLD: &str = ".old";
/// The new root holds directories and no bytes.
const ROOT_OPTIONS: &str = "size=1m,mode=755";
/// Scratch files of a job.
const SCRATCH_OPTIONS: &str = "size=64m,mode=1777";
/// Open files of a worker: those of 64 ranks.
const OPEN_FILES: u64 = 64 * 260;
/// Flags that an export has whatever was asked for.
const ALWAYS: MsFlags = MsFlags::MS_NODEV.union(MsFlags::MS_NOSUID);
/// What root keeps, where root is the job's user: what makes it root for files.
const OF_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID);

/// Shuts the process in; gives the directory that programs begin in.
///
/// # Errors
/// What could not be done, in words.
pub fn enter(setup: &Setup) -> Result<OwnedFd, String> {
    let said = |what: &'static str| move |errno: Errno| format!("{what}: {errno}");
    let (uid, gid) = (unistd::geteuid(), unistd::getegid());
    if let Some(user) = &setup.user
        && !uid.is_root()
        && user.uid != uid.as_raw()
    {
        return Err(format!(
            "the service runs as user {uid} and cannot work for user {}; start it as root",
            user.uid
        ));
    }
    let mut spaces = CloneFlags::CLONE_NEWNS;
    if !uid.is_root() {
        spaces |= CloneFlags::CLONE_NEWUSER;
    }
    sched::unshare(spaces).map_err(said(
        "no mount namespace (unprivileged user namespaces may be switched off)",
    ))?;
    if !uid.is_root() {
        map_user(uid, gid).map_err(|error| format!("the user namespace's numbers: {error}"))?;
    }
    make_root(&open_exports(&setup.exports)?)?;
    leave_old_root()?;
    let limit = OPEN_FILES;
    let (_, most) = resource::getrlimit(Resource::RLIMIT_NOFILE).map_err(said("getrlimit"))?;
    let limit = if uid.is_root() {
        limit
    } else {
        limit.min(most)
    };
    resource::setrlimit(Resource::RLIMIT_NOFILE, limit, limit).map_err(said("setrlimit"))?;
    become_user(setup.user.as_ref().filter(|_| uid.is_root()))?;
    stat::umask(Mode::empty());
    open_working(&setup.working)
}

/// An export whose directory is open.
struct Opened {
    export: Export,
    directory: OwnedFd,
}

/// Opens the exports before the tree changes, as this mount namespace has them; those that contain
/// others come first. One that is not there is an error that names it.
fn open_exports(exports: &[Export]) -> Result<Vec<Opened>, String> {
    let mut opened = Vec::new();
    for export in exports {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let directory = fcntl::open(&export.host, flags, Mode::empty())
            .map_err(|errno| format!("export {}: {errno}", export.host.display()))?;
        opened.push(Opened {
            export: export.clone(),
            directory,
        });
    }
    opened.sort_by(|a, b| a.export.node.cmp(&b.export.node));
    Ok(opened)
}

fn map_user(uid: Uid, gid: Gid) -> std::io::Result<()> {
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1\n"))?;
    fs::write("/proc/self/setgroups", "deny\n")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1\n"))
}

/// Makes the new root at [`BASE`], with the exports in it.
fn make_root(exports: &[Opened]) -> Result<(), String> {
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount::mount(none, "/", none, private, none).map_err(|errno| format!("mounts: {errno}"))?;
    let quiet = ALWAYS | MsFlags::MS_NOEXEC;
    mount::mount(
        Some("tmpfs"),
        BASE,
        Some("tmpfs"),
        quiet,
        Some(ROOT_OPTIONS),
    )
    .map_err(|errno| format!("a root in memory: {errno}"))?;
    let scratch = Path::new(BASE).join("tmp");
    fs::create_dir(&scratch).map_err(|error| format!("/tmp: {error}"))?;
    mount::mount(
        Some("tmpfs"),
        &scratch,
        Some("tmpfs"),
        quiet,
        Some(SCRATCH_OPTIONS),
    )
    .map_err(|errno| format!("/tmp in memory: {errno}"))?;
    for Opened { export, directory } in exports {
        let name = export.node.display();
        let inside = export.node.strip_prefix("/").unwrap_or(&export.node);
        let target = Path::new(BASE).join(inside);
        fs::create_dir_all(&target).map_err(|error| format!("a place for {name}: {error}"))?;
        let source = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let bind = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount::mount(Some(&source), &target, none, bind, none)
            .map_err(|errno| format!("export {name}: {errno}"))?;
        for point in mounts_below(&target)? {
            restrict(&point, export.read_only)
                .map_err(|errno| format!("export {name}, {}: {errno}", point.display()))?;
        }
    }
    Ok(())
}

/// The mounts at and below a directory. A path with characters that the list escapes is passed
/// over there, and refused here.
fn mounts_below(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let list = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("the list of mounts: {error}"))?;
    let points = list.lines().filter_map(|line| line.split(' ').nth(4));
    let points = points.map(unescape);
    Ok(points
        .filter(|point| point.starts_with(directory))
        .collect())
}

/// A path of the list of mounts: blank, tab, newline and backslash are written as octal numbers.
fn unescape(text: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let octal = behind.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    use std::os::unix::ffi::OsStringExt as _;
    std::ffi::OsString::from_vec(bytes).into()
}

/// Takes devices and set-user-id, and writing where asked, from a mount. What it was restricted to
/// before stays: in a user namespace it could not be taken off.
fn restrict(point: &Path, read_only: bool) -> Result<(), Errno> {
    let before = statvfs(point)?.flags();
    let kept = [
        (FsFlags::ST_RDONLY, MsFlags::MS_RDONLY),
        (FsFlags::ST_NOEXEC, MsFlags::MS_NOEXEC),
        (FsFlags::ST_NOATIME, MsFlags::MS_NOATIME),
        (FsFlags::ST_NODIRATIME, MsFlags::MS_NODIRATIME),
        (FsFlags::ST_RELATIME, MsFlags::MS_RELATIME),
    ];
    let kept = kept.iter().filter(|(flag, _)| before.contains(*flag));
    let mut flags = kept.fold(MsFlags::empty(), |all, (_, flag)| all | *flag);
    flags |= ALWAYS | MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
    if read_only {
        flags |= MsFlags::MS_RDONLY;
    }
    mount::mount(None::<&str>, point, None::<&str>, flags, None::<&str>)
}

/// Makes [`BASE`] the root, without a way back, and read only but for what is mounted in it.
fn leave_old_root() -> Result<(), String> {
    let said = |errno: Errno| format!("the new root: {errno}");
    let old = Path::new(BASE).join(OLD);
    fs::create_dir(&old).map_err(|error| format!("the new root: {error}"))?;
    unistd::pivot_root(BASE, &old).map_err(said)?;
    unistd::chdir("/").map_err(said)?;
    let old = Path::new("/").join(OLD);
    mount::umount2(&old, MntFlags::MNT_DETACH).map_err(said)?;
    fs::remove_dir(&old).map_err(|error| format!("the old root: {error}"))?;
    let flags = ALWAYS | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY | MsFlags::MS_REMOUNT;
    mount::mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).map_err(said)
}

/// Becomes the job's user for good, and gives up what it could do beyond that.
fn become_user(user: Option<&User>) -> Result<(), String> {
    let said = |errno: Errno| format!("becoming the job's user: {errno}");
    if let Some(user) = user {
        let groups: Vec<Gid> = user
            .groups
            .iter()
            .map(|group| Gid::from_raw(*group))
            .collect();
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        // In a user namespace of one user there are no other groups to set.
        match unistd::setgroups(&groups) {
            Err(Errno::EPERM) if groups.len() <= 1 && uid == unistd::geteuid() => {}
            other => other.map_err(said)?,
        }
        unistd::setresgid(gid, gid, gid).map_err(said)?;
        unistd::setresuid(uid, uid, uid).map_err(said)?;
    }
    prctl::set_no_new_privs().map_err(said)?;
    let kept = match unistd::geteuid().is_root() {
        true => OF_ROOT,
        false => CapabilitySet::empty(),
    };
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(|errno| format!("giving up capabilities: {errno}"))?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(said)
}

fn open_working(working: &Path) -> Result<OwnedFd, String> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    fcntl::open(working, flags, Mode::empty()).map_err(|errno| {
        let name = working.display();
        format!("{name}: {errno}; the job sees what is exported (--mount, [files] export) only")
    })
}
