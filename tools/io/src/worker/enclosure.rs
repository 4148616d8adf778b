//! Shutting the process in: a file tree that has the job's exports and nothing else, the job's
//! user, and no way back.
//!
//! | step | by what |
//! |---|---|
//! | nothing of the service's | all descriptors but the socket closed |
//! | nobody else's mounts | a mount namespace; with a user namespace where it is not root |
//! | no export that the user could not reach | opened as the job's user, without symbolic links |
//! | nothing but the exports | a new root in memory, exports bound into it, `pivot_root` |
//! | no other processes | what the kernel tells of itself (`/proc`, `/sys`) is covered |
//! | no devices, no set-user-id | `nodev`, `nosuid` on every mount, read again at the end |
//! | another user for good | `setgroups`, `setresgid`, `setresuid`, all three numbers |
//! | nothing left to gain | no new privileges, no capabilities, read again at the end |
//!
//! Paths are walked by descriptors and without symbolic links until the process is shut in: a user
//! may change what is below an export at any time.
//!
//! Invariant: [`enter`] either does all of it or says what it could not do.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{self, AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};
use nix::mount::{self, MntFlags, MsFlags};
use nix::sched::{self, CloneFlags};
use nix::sys::prctl;
use nix::sys::resource::{self, Resource};
use nix::sys::stat::{self, Mode};
use nix::sys::statvfs::{FsFlags, fstatvfs};
use nix::unistd::{self, Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

use crate::job::{Export, User};
use crate::message::Setup;

/// Where the new root may be made: directories that every system has.
const BASES: [&str; 2] = ["/tmp", "/dev"];
/// Where the old root is for a moment.
const OLD: &str = ".old";
/// The new root holds directories and no bytes.
const ROOT_OPTIONS: &str = "size=1m,nr_inodes=4k,mode=755";
/// What covers a file system that is not to be seen: nothing, and room for nothing.
const COVER_OPTIONS: &str = "size=4k,nr_inodes=2,mode=555";
/// File systems through which a process reaches others, or the machine.
const COVERED: [&str; 16] = [
    "proc",
    "sysfs",
    "devtmpfs",
    "devpts",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "configfs",
    "bpf",
    "pstore",
    "efivarfs",
    "fusectl",
    "binfmt_misc",
    "nsfs",
];
/// Open files of a worker: those of 64 ranks, each of which may be open once more to lock parts of
/// it.
const OPEN_FILES: u64 = 64 * 2 * 260;
/// Most mounts below one export.
const MOST_MOUNTS: usize = 256;
/// Flags that an export has whatever was asked for.
const ALWAYS: MsFlags = MsFlags::MS_NODEV.union(MsFlags::MS_NOSUID);
/// Flags of the mounts that are the worker's own.
const QUIET: MsFlags = ALWAYS.union(MsFlags::MS_NOEXEC);
/// How a directory is opened that is only to be named.
const NAMED: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);
/// What root keeps, where root is the job's user: what makes it root for files.
const OF_ROOT: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
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
    let other = setup.user.as_ref().filter(|_| uid.is_root());
    if let Some(user) = other {
        set_groups(user)?;
    }
    // Directories on the way to an export are for everybody, whatever mask the service has; the
    // files of a program have its own mask.
    stat::umask(Mode::empty());
    let base = base_for(&setup.exports);
    make_root(base, &open_exports(&setup.exports, other)?)?;
    leave_old_root(base)?;
    set_limits(uid.is_root()).map_err(said("limits"))?;
    become_user(other)?;
    verify(other)?;
    open_working(&setup.working)
}

/// Closes every descriptor but those of the three standard streams, of which the first is the
/// socket. To be called before this process has opened any.
///
/// # Errors
/// What stays open, or cannot be listed.
pub fn close_others() -> Result<(), String> {
    let said = |error: std::io::Error| format!("the list of descriptors: {error}");
    let mut others = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").map_err(said)? {
        let name = entry.map_err(said)?.file_name();
        others.extend(name.to_str().and_then(|name| name.parse::<i32>().ok()));
    }
    // The list's own is closed already.
    for descriptor in others.into_iter().filter(|descriptor| *descriptor > 2) {
        let _ = unistd::close(descriptor);
    }
    let open = fs::read_dir("/proc/self/fd").map_err(said)?.count();
    // The three, and that of this list.
    match open {
        ..=4 => Ok(()),
        _ => Err("descriptors of the service stay open".to_owned()),
    }
}

/// The directory of this process's own descriptors, by which a file that is open can be opened once
/// more, with the rights that the job's user has then. No path of a program leads there.
///
/// # Errors
/// There is none.
pub fn own_descriptors() -> Result<OwnedFd, String> {
    let own = "/proc/self/fd";
    fcntl::open(own, NAMED, Mode::empty()).map_err(|errno| format!("{own}: {errno}"))
}

/// An export whose directory is open.
struct Opened {
    export: Export,
    directory: OwnedFd,
}

/// Opens a directory without following a symbolic link.
fn open_plain(base: impl AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    open_as(base, path, NAMED)
}

fn open_as(base: impl AsFd, path: &Path, flags: OFlag) -> Result<OwnedFd, Errno> {
    let plain = ResolveFlag::RESOLVE_NO_SYMLINKS;
    openat2(base, path, OpenHow::new().flags(flags).resolve(plain))
}

/// Opens the exports before the tree changes, as the job's user: what this user cannot reach on
/// the machine is not reached by an export. Those that contain others come first. One that is not
/// there is an error that names it.
fn open_exports(exports: &[Export], user: Option<&User>) -> Result<Vec<Opened>, String> {
    let acting = |user: Option<&User>| {
        let (uid, gid) = user.map_or((0, 0), |user| (user.uid, user.gid));
        unistd::setfsgid(Gid::from_raw(gid));
        unistd::setfsuid(Uid::from_raw(uid));
        // It answers with what is set now.
        unistd::setfsuid(Uid::from_raw(u32::MAX)) == Uid::from_raw(uid)
    };
    if user.is_some() && !acting(user) {
        return Err("acting as the job's user: not permitted".to_owned());
    }
    let mut opened = Vec::new();
    for export in exports {
        let directory = open_plain(AT_FDCWD, &export.host).map_err(|errno| {
            let (name, hint) = (
                export.host.display(),
                match errno {
                    Errno::ELOOP => {
                        " (it leads through a symbolic link: give the directory itself)"
                    }
                    Errno::EACCES => " (the job's user may not go there)",
                    _ => "",
                },
            );
            format!("export {name}: {errno}{hint}")
        })?;
        opened.push(Opened {
            export: export.clone(),
            directory,
        });
    }
    if user.is_some() && !acting(None) {
        return Err("acting as root again: not permitted".to_owned());
    }
    opened.sort_by(|a, b| a.export.node.cmp(&b.export.node));
    Ok(opened)
}

fn map_user(uid: Uid, gid: Gid) -> std::io::Result<()> {
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1\n"))?;
    fs::write("/proc/self/setgroups", "deny\n")?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1\n"))
}

/// The name of an open directory for calls that take a path: it leads there whatever is renamed.
fn path_of(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

fn mount_memory(at: &Path, options: &str, flags: MsFlags) -> Result<(), Errno> {
    mount::mount(Some("tmpfs"), at, Some("tmpfs"), flags, Some(options))
}

/// Where the new root is made: an export that contains the place would bring the new root along,
/// which would be seen instead of what is there.
fn base_for(exports: &[Export]) -> &'static Path {
    let [first, other] = BASES.map(Path::new);
    match exports.iter().any(|export| first.starts_with(&export.host)) {
        true => other,
        false => first,
    }
}

/// Makes the new root at `base`, with the exports in it.
fn make_root(base: &Path, exports: &[Opened]) -> Result<(), String> {
    let none = None::<&str>;
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount::mount(none, "/", none, private, none).map_err(|errno| format!("mounts: {errno}"))?;
    mount_memory(base, ROOT_OPTIONS, QUIET)
        .map_err(|errno| format!("a root in memory: {errno}"))?;
    let root = open_plain(AT_FDCWD, base);
    let root = root.map_err(|errno| format!("{}: {errno}", base.display()))?;
    let own = device_of(&root)?;
    // For who lists `/`: what is in it is each node's own.
    fs::create_dir(base.join("tmp")).map_err(|error| format!("/tmp: {error}"))?;
    for opened in exports {
        bind((base, &root), own, opened).map_err(|why| {
            let name = opened.export.node.display();
            format!("export {name}: {why}")
        })?;
    }
    Ok(())
}

fn device_of(directory: &OwnedFd) -> Result<u64, String> {
    let stat = stat::fstat(directory).map_err(|errno| format!("the new root: {errno}"))?;
    Ok(stat.st_dev)
}

/// Binds an export into the new root. Places for it are made in the worker's `own` file system
/// only: inside another export the place has to be there.
fn bind((base, root): (&Path, &OwnedFd), own: u64, opened: &Opened) -> Result<(), String> {
    let Opened { export, directory } = opened;
    let inside = export.node.strip_prefix("/");
    let inside = inside.map_err(|_| "its path for the job must be absolute")?;
    if inside.components().any(|name| name == Component::ParentDir) {
        return Err("its path for the job has `..` in it".to_owned());
    }
    let said = |errno: Errno| errno.to_string();
    let mut place = open_plain(root, Path::new(".")).map_err(said)?;
    for name in inside.iter().map(Path::new) {
        place = match open_plain(&place, name) {
            Err(Errno::ENOENT) if own == device_of(&place)? => {
                stat::mkdirat(&place, name, Mode::from_bits_truncate(0o755)).map_err(said)?;
                open_plain(&place, name).map_err(said)?
            }
            other => other.map_err(|errno| {
                let name = name.display();
                format!(
                    "its place inside another export, at {name}: {errno}; make a directory there"
                )
            })?,
        };
    }
    let none = None::<&str>;
    let recursive = MsFlags::MS_BIND | MsFlags::MS_REC;
    mount::mount(
        Some(&path_of(directory)),
        &path_of(&place),
        none,
        recursive,
        none,
    )
    .map_err(said)?;
    let target = base.join(inside);
    let mounts = mounts_below(&target)?;
    if mounts.len() > MOST_MOUNTS {
        return Err(format!(
            "more than {MOST_MOUNTS} file systems are mounted below it"
        ));
    }
    for Mounted { point, kind } in mounts {
        let below = point.strip_prefix(base).unwrap_or(&point);
        let at = |errno: Errno| format!("{}: {errno}", Path::new("/").join(below).display());
        let any = NAMED.difference(OFlag::O_DIRECTORY);
        let there = match open_as(root, below, any) {
            // Something is mounted above it.
            Err(Errno::ENOENT | Errno::ENOTDIR) => continue,
            other => other.map_err(at)?,
        };
        let is_directory = open_plain(root, below).is_ok();
        if COVERED.contains(&kind.as_str()) && is_directory {
            mount_memory(&path_of(&there), COVER_OPTIONS, QUIET | MsFlags::MS_RDONLY)
                .map_err(at)?;
        } else {
            restrict(&there, export.read_only).map_err(at)?;
        }
    }
    Ok(())
}

/// A mount of this process's.
struct Mounted {
    point: PathBuf,
    /// The kind of its file system.
    kind: String,
}

/// The mounts at and below a directory, in the order in which they were made.
fn mounts_below(directory: &Path) -> Result<Vec<Mounted>, String> {
    let list = fs::read_to_string("/proc/self/mountinfo")
        .map_err(|error| format!("the list of mounts: {error}"))?;
    let mounts = list.lines().filter_map(|line| {
        let (fields, kind) = line.split_once(" - ")?;
        let mut fields = fields.split(' ').skip(4);
        Some(Mounted {
            point: unescape(fields.next()?),
            kind: kind.split(' ').next()?.to_owned(),
        })
    });
    Ok(mounts
        .filter(|mounted| mounted.point.starts_with(directory))
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
    OsString::from_vec(bytes).into()
}

/// Takes devices and set-user-id, and writing where asked, from a mount. What it was restricted to
/// before stays: in a user namespace it could not be taken off.
fn restrict(point: &OwnedFd, read_only: bool) -> Result<(), Errno> {
    let before = fstatvfs(point)?.flags();
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
    let none = None::<&str>;
    mount::mount(none, &path_of(point), none, flags, none)?;
    // The system says what it made of it.
    let after = fstatvfs(point)?.flags();
    let is_so = after.contains(FsFlags::ST_NODEV | FsFlags::ST_NOSUID)
        && (!read_only || after.contains(FsFlags::ST_RDONLY));
    is_so.then_some(()).ok_or(Errno::EPERM)
}

/// Makes `base` the root, without a way back, and read only but for what is mounted in it.
fn leave_old_root(base: &Path) -> Result<(), String> {
    let said = |errno: Errno| format!("the new root: {errno}");
    let old = base.join(OLD);
    fs::create_dir(&old).map_err(|error| format!("the new root: {error}"))?;
    unistd::pivot_root(base, &old).map_err(said)?;
    unistd::chdir("/").map_err(said)?;
    let old = Path::new("/").join(OLD);
    mount::umount2(&old, MntFlags::MNT_DETACH).map_err(said)?;
    fs::remove_dir(&old).map_err(|error| format!("the old root: {error}"))?;
    let flags = QUIET | MsFlags::MS_RDONLY | MsFlags::MS_REMOUNT;
    mount::mount(None::<&str>, "/", None::<&str>, flags, None::<&str>).map_err(said)
}

fn set_limits(is_root: bool) -> Result<(), Errno> {
    let (_, most) = resource::getrlimit(Resource::RLIMIT_NOFILE)?;
    // Root of a user namespace may raise no limit.
    let raised =
        is_root && resource::setrlimit(Resource::RLIMIT_NOFILE, OPEN_FILES, OPEN_FILES).is_ok();
    if !raised {
        let files = OPEN_FILES.min(most);
        resource::setrlimit(Resource::RLIMIT_NOFILE, files, files)?;
    }
    resource::setrlimit(Resource::RLIMIT_CORE, 0, 0)
}

fn set_groups(user: &User) -> Result<(), String> {
    let groups = user.groups.iter().map(|group| Gid::from_raw(*group));
    let groups: Vec<Gid> = groups.collect();
    match unistd::setgroups(&groups) {
        // In a user namespace of one user there are no other groups to set.
        Err(Errno::EPERM) if groups.len() <= 1 && user.uid == 0 => Ok(()),
        other => other.map_err(|errno| format!("the groups of the job's user: {errno}")),
    }
}

/// Becomes the job's user for good, and gives up what it could do beyond that.
fn become_user(user: Option<&User>) -> Result<(), String> {
    let said = |errno: Errno| format!("becoming the job's user: {errno}");
    if let Some(user) = user {
        let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
        unistd::setresgid(gid, gid, gid).map_err(said)?;
        unistd::setresuid(uid, uid, uid).map_err(said)?;
    }
    prctl::set_no_new_privs().map_err(said)?;
    let kept = kept_capabilities();
    let sets = CapabilitySets {
        effective: kept,
        permitted: kept,
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, sets).map_err(|errno| format!("giving up capabilities: {errno}"))?;
    prctl::set_dumpable(false).map_err(said)
}

fn kept_capabilities() -> CapabilitySet {
    match unistd::geteuid().is_root() {
        true => OF_ROOT,
        false => CapabilitySet::empty(),
    }
}

/// Reads again what was set, and tries the way back.
fn verify(user: Option<&User>) -> Result<(), String> {
    let said = |errno: Errno| format!("looking at what was set: {errno}");
    let not = |what: &str| Err(format!("{what}: it was set, and is not so"));
    let (uids, gids) = (
        unistd::getresuid().map_err(said)?,
        unistd::getresgid().map_err(said)?,
    );
    let uids = [uids.real, uids.effective, uids.saved];
    let gids = [gids.real, gids.effective, gids.saved];
    let (uid, gid) = match user {
        Some(user) => (Uid::from_raw(user.uid), Gid::from_raw(user.gid)),
        None => (uids[0], gids[0]),
    };
    if uids != [uid; 3] || gids != [gid; 3] {
        return not("the job's user");
    }
    if !uid.is_root() && unistd::setuid(Uid::from_raw(0)).is_ok() {
        return not("no way back to root");
    }
    let sets = capabilities(None).map_err(|errno| format!("capabilities: {errno}"))?;
    let kept = kept_capabilities();
    if sets.effective != kept || sets.permitted != kept || !sets.inheritable.is_empty() {
        return not("no capabilities");
    }
    if !prctl::get_no_new_privs().map_err(said)? {
        return not("no new privileges");
    }
    match Path::new("/proc/self").exists() {
        true => Err("/proc of this machine is to be seen: export no directory there".to_owned()),
        false => Ok(()),
    }
}

fn open_working(working: &Path) -> Result<OwnedFd, String> {
    fcntl::open(working, NAMED, Mode::empty()).map_err(|errno| {
        let name = working.display();
        format!(
            "the working directory {name}: {errno}; the job sees what is exported, and nothing \
             else: add it (--mount {name}:{name}, or files.export of the service)"
        )
    })
}
