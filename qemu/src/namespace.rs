//! A network namespace of the cluster's own.
//!
//! Purpose: bridges and taps are made where they disturb nobody and need no rights on the
//! machine: root takes a network namespace, others a user namespace with it. Key function:
//! [`enter`]. Neighbours: `supervisor` calls it before anything else; [`check_host`] is called
//! outside, by `up`, so that what is missing is said at once.
//!
//! Invariant: the calling process has one thread (the kernel demands it for user namespaces).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getgid, getuid};

use crate::Error;

/// The device that makes taps.
const TUN_DEVICE: &str = "/dev/net/tun";
/// What Ubuntu 24.04 and later forbid unprivileged users by default.
const APPARMOR_RESTRICTION: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// Moves this process into a network namespace of its own, with a user namespace if need be.
pub(crate) fn enter() -> Result<(), Error> {
    let (uid, gid) = (getuid(), getgid());
    if uid.is_root() {
        match unshare(CloneFlags::CLONE_NEWNET) {
            Ok(()) => return Ok(()),
            // A container may have a root that must not do this; a user namespace may still work.
            Err(Errno::EPERM) => {}
            Err(errno) => return Err(refused(errno)),
        }
    }
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(refused)?;
    // Without `deny` the kernel lets nobody but a privileged process write the group map.
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {uid} 1")),
        ("/proc/self/gid_map", format!("0 {gid} 1")),
    ];
    for (path, text) in maps {
        fs::write(path, text).map_err(|error| {
            Error::Host(format!(
                "writing {path}: {error}; {}",
                user_namespace_advice()
            ))
        })?;
    }
    Ok(())
}

fn refused(errno: Errno) -> Error {
    Error::Host(format!(
        "this machine does not allow a network namespace ({}); {}",
        errno.desc(),
        user_namespace_advice()
    ))
}

/// What an unprivileged user's machine lacks, by its own settings; else the general way out.
pub(crate) fn user_namespace_advice() -> String {
    let setting = |path: &str| fs::read_to_string(path).map(|text| text.trim().to_owned());
    let is = |path: &str, value: &str| setting(path).is_ok_and(|text| text == value);
    if getuid().is_root() {
        "the root of this container lacks CAP_SYS_ADMIN: start the container with more rights \
         (docker run --privileged), or run this outside of it"
            .to_owned()
    } else if is(APPARMOR_RESTRICTION, "1") {
        "Ubuntu restricts user namespaces: \
         `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` allows them until the \
         next reboot; or run this with sudo"
            .to_owned()
    } else if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        "`sudo sysctl -w kernel.unprivileged_userns_clone=1` allows user namespaces until the \
         next reboot; or run this with sudo"
            .to_owned()
    } else if is("/proc/sys/user/max_user_namespaces", "0") {
        "`sudo sysctl -w user.max_user_namespaces=10000` allows user namespaces until the next \
         reboot; or run this with sudo"
            .to_owned()
    } else {
        "run this with sudo".to_owned()
    }
}

/// Looks, from outside, for what a cluster needs on this machine.
pub(crate) fn check_host() -> Result<(), Error> {
    for (program, package) in [
        ("qemu-system-x86_64", "qemu-system-x86"),
        ("ip", "iproute2"),
        ("tc", "iproute2"),
    ] {
        if find_program(program).is_none() {
            return Err(Error::Host(format!(
                "`{program}` is not installed: `cargo xtask setup` or \
                 `sudo apt-get install {package}` installs it"
            )));
        }
    }
    match fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(TUN_DEVICE)
    {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(Error::Host(format!(
            "{TUN_DEVICE} is closed to you: `sudo chmod 0666 {TUN_DEVICE}` opens it (taps made \
             with it live in the cluster's own namespace only); or run this with sudo"
        ))),
        Err(error) => Err(Error::Host(format!(
            "{TUN_DEVICE}: {error}; `sudo modprobe tun` provides it, unless this is a container \
             that was started without the device"
        ))),
    }
}

/// Looks a program up in `PATH` and in the system directories that users' paths often lack.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| Path::is_file(candidate))
}
