//! System packages: which are needed, which are missing, how to install them.
//!
//! Key type: [`Package`]. Neighbours: [`super::run`].
//!
//! Invariant: a package is asked for only when a file that is used is missing, so that a machine
//! with the same programs from elsewhere is left alone.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{find_program, run};

/// How to see that a package is there.
#[derive(Debug, Clone, Copy)]
enum Probe {
    /// A program in `PATH`.
    Program(&'static str),
    /// Any one of these files.
    File(&'static [&'static str]),
}

/// A Debian package and what it is needed for.
#[derive(Debug, Clone, Copy)]
pub struct Package {
    name: &'static str,
    purpose: &'static str,
    probe: Probe,
}

const fn program(name: &'static str, program: &'static str, purpose: &'static str) -> Package {
    Package {
        name,
        purpose,
        probe: Probe::Program(program),
    }
}

const fn file(
    name: &'static str,
    files: &'static [&'static str],
    purpose: &'static str,
) -> Package {
    Package {
        name,
        purpose,
        probe: Probe::File(files),
    }
}

const PACKAGES: &[Package] = &[
    program("qemu-system-x86", "qemu-system-x86_64", "the machines"),
    file(
        "seabios",
        &[
            "/usr/share/seabios/bios-256k.bin",
            "/usr/share/qemu/bios-256k.bin",
        ],
        "BIOS firmware of the machines",
    ),
    file(
        "ovmf",
        &[
            "/usr/share/OVMF/OVMF_CODE_4M.fd",
            "/usr/share/OVMF/OVMF_CODE.fd",
        ],
        "UEFI firmware of the machines",
    ),
    file(
        "ipxe-qemu",
        &[
            "/usr/lib/ipxe/qemu/pxe-virtio.rom",
            "/usr/share/qemu/pxe-virtio.rom",
        ],
        "network-boot firmware of the machines' network cards",
    ),
    file(
        "ipxe",
        &[
            "/usr/lib/ipxe/undionly.kpxe",
            "/usr/share/ipxe/undionly.kpxe",
        ],
        "network loader for machines whose own firmware is not iPXE",
    ),
    program("grub-common", "grub-mkrescue", "media to boot from"),
    file("grub-pc-bin", &["/usr/lib/grub/i386-pc"], "media for BIOS"),
    file(
        "grub-efi-amd64-bin",
        &["/usr/lib/grub/x86_64-efi"],
        "media for UEFI",
    ),
    program("xorriso", "xorriso", "media to boot from"),
    program("mtools", "mformat", "media to boot from"),
    program("sbsigntool", "sbsign", "boot images for Secure Boot"),
    program("openssl", "openssl", "the key of the tests of Secure Boot"),
    program("iproute2", "tc", "bridges, taps and rate limits"),
    program("nftables", "nft", "packet loss in the end-to-end tests"),
    program(
        "procps",
        "pgrep",
        "finding processes in the end-to-end tests",
    ),
    program("gdb", "gdb", "the tests that read core files"),
    program(
        "ipmitool",
        "ipmitool",
        "the tests that switch machines by IPMI",
    ),
    program("openipmi", "ipmi_sim", "the boards that they switch"),
    program("curl", "curl", "the tests that switch machines by Redfish"),
    program("gcc", "gcc", "example programs in C"),
    program("g++", "g++", "example programs in C++"),
    program("gfortran", "gfortran", "example programs in Fortran"),
    program(
        "musl-tools",
        "musl-gcc",
        "example programs with another C library",
    ),
    file(
        "libc6-dev",
        &[
            "/usr/lib/x86_64-linux-gnu/libc.a",
            "/usr/lib64/libc.a",
            "/usr/lib/libc.a",
        ],
        "static C library of the example programs",
    ),
    file(
        "busybox-static",
        &["/bin/busybox", "/usr/bin/busybox"],
        "the Linux node that `bench boot` compares with; a site's DHCP server in tests",
    ),
    program("chromium", "chromium", "the tests of the web page"),
    program(
        "cpio",
        "cpio",
        "the Linux node that `bench boot` compares with",
    ),
    file(
        "btrfs-progs",
        &["/sbin/mkfs.btrfs", "/usr/sbin/mkfs.btrfs"],
        "a file system with a quota, for a test of the I/O service",
    ),
];

/// What `bench broadcast` compares with; users need none of it.
const PEERS: &[Package] = &[
    program("udpcast", "udp-sender", "a peer of `bench broadcast`"),
    program("uftp", "uftpd", "a peer of `bench broadcast`"),
    program("mpich", "mpirun.mpich", "a peer of `bench broadcast`"),
    program(
        "libmpich-dev",
        "mpicc.mpich",
        "compiler for a peer of `bench broadcast`",
    ),
    program(
        "openmpi-bin",
        "mpirun.openmpi",
        "a peer of `bench broadcast`",
    ),
    program(
        "libopenmpi-dev",
        "mpicc.openmpi",
        "compiler for a peer of `bench broadcast`",
    ),
    program("util-linux", "nsenter", "nodes of `bench broadcast`"),
    program("hostname", "hostname", "nodes of `bench broadcast`"),
];

/// What trying the package needs; users need none of it.
const PACKAGING: &[Package] = &[program(
    "debootstrap",
    "debootstrap",
    "a minimal Debian system to try the package on",
)];

/// What only `cargo xtask test --full` needs, for its size: without it programs are left out.
const WHOLE: &[Package] = &[program("golang-go", "go", "test programs in Go")];

/// The packages of which nothing was found on this machine.
pub fn missing() -> Vec<Package> {
    missing_of(PACKAGES)
}

/// Those of them that only benchmarks need.
pub fn missing_for_benchmarks() -> Vec<Package> {
    missing_of(PEERS)
}

/// Those of them that only `cargo xtask test --only package` needs.
pub fn missing_for_packaging() -> Vec<Package> {
    missing_of(PACKAGING)
}

/// Those of them that only `cargo xtask test --full` needs.
pub fn missing_for_whole_test() -> Vec<Package> {
    missing_of(WHOLE)
}

fn missing_of(packages: &[Package]) -> Vec<Package> {
    packages
        .iter()
        .copied()
        .filter(|package| !is_present(package))
        .collect()
}

/// The packages as one line for a person.
pub fn describe(packages: &[Package]) -> String {
    let names: Vec<_> = packages.iter().map(|package| package.name).collect();
    names.join(" ")
}

/// Installs packages with apt-get, saying what and why; without apt-get, says what is needed.
pub fn install(packages: &[Package]) -> Result<()> {
    if packages.is_empty() {
        return Ok(());
    }
    let names = describe(packages);
    eprintln!("setup: needs these system packages:");
    for package in packages {
        eprintln!("    {:<18} {}", package.name, package.purpose);
    }
    if find_program("apt-get").is_none() || !Path::new("/etc/debian_version").exists() {
        bail!(
            "this is not a Debian or Ubuntu system, so the packages cannot be installed for you. \
             Install what your distribution calls the Debian packages `{names}`, then run \
             `cargo xtask setup` again"
        );
    }
    let by_hand = format!("apt-get install --no-install-recommends {names}");
    let is_root = is_root()?;
    if !is_root && find_program("sudo").is_none() {
        bail!("neither root nor sudo: have an administrator run `{by_hand}`, then run this again");
    }
    eprintln!(
        "setup: installing them with apt-get{}",
        if is_root { "" } else { " through sudo" }
    );
    let apt_get = || {
        let mut command = if is_root {
            Command::new("apt-get")
        } else {
            let mut command = Command::new("sudo");
            command
                .arg("--")
                .arg("env")
                .arg("DEBIAN_FRONTEND=noninteractive")
                .arg("apt-get");
            command
        };
        command.env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["-o", "Dpkg::Use-Pty=0", "-qq"]);
        command
    };
    // A failing update is not fatal: the lists on the machine may be good enough.
    if let Err(error) = run(apt_get().arg("update")) {
        eprintln!("setup: warning: {error:#}; going on with the package lists that are there");
    }
    let mut install = apt_get();
    install.args(["install", "--yes", "--no-install-recommends"]);
    install.args(packages.iter().map(|package| package.name));
    run(&mut install).with_context(|| {
        format!("the system packages could not be installed; try `{by_hand}` by hand")
    })?;
    let still = missing_of(packages);
    if !still.is_empty() {
        bail!(
            "apt-get reported success, but these packages' files are still not found: {}",
            describe(&still)
        );
    }
    Ok(())
}

fn is_present(package: &Package) -> bool {
    match package.probe {
        Probe::Program(name) => find_program(name).is_some(),
        Probe::File(files) => files.iter().any(|file| Path::new(file).exists()),
    }
}

fn is_root() -> Result<bool> {
    let id = crate::workspace::output_of(Command::new("id").arg("-u"))?;
    Ok(id == "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_package_is_named_once() {
        let mut names: Vec<_> = PACKAGES
            .iter()
            .chain(PEERS)
            .chain(PACKAGING)
            .map(|package| package.name)
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_missing_program_is_noticed() {
        let package = program("x", "no-such-program-of-hearth", "a test");
        assert!(!is_present(&package));
    }
}
