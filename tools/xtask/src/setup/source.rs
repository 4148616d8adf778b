//! The Rust library's source, of exactly the compiler's version, from a Debian mirror.
//!
//! Purpose: machines that reach only a Debian mirror get `rust-src` from there without installing
//! it. Key function: [`provide`]. Neighbours: [`super::bare_metal`], [`crate::debian`].
//!
//! Invariant: apt verifies the package against Debian's own keyring; a source of another version
//! than the compiler's is never used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::bare_metal::Compiler;
use crate::debian::{KEYRING, apt_options, mirrors};
use crate::workspace::{find_program, output_of, run};

/// Where Debian keeps compilers newer than a release's own, in the order tried.
const SUITES: [&str; 4] = ["trixie-backports", "trixie", "forky", "sid"];
/// Written beside a source tree that was put there by this module; holds the release.
const STAMP_NAME: &str = "hearth-source.txt";

/// Makes sure that the library's source is in the sysroot, where cargo looks for it.
pub fn provide(sysroot: &Path, compiler: &Compiler) -> Result<()> {
    let parent = sysroot.join("lib/rustlib/src/rust");
    let library = parent.join("library");
    let from_rustup = fs::read_to_string(sysroot.join("lib/rustlib/components"))
        .is_ok_and(|components| components.lines().any(|line| line.trim() == "rust-src"));
    let stamp = fs::read_to_string(library.join(STAMP_NAME)).unwrap_or_default();
    if library.join("core/src/lib.rs").is_file()
        && (from_rustup || stamp.trim() == compiler.release)
    {
        return Ok(());
    }
    for program in ["apt-get", "apt-cache", "dpkg"] {
        ensure!(
            find_program(program).is_some(),
            "`{program}` is not on this machine"
        );
    }
    let mirrors = mirrors();
    ensure!(!mirrors.is_empty(), "apt's sources name no Debian mirror");
    ensure!(Path::new(KEYRING).is_file(), "{KEYRING} is missing");
    let scratch = tempfile::tempdir().context("making a temporary directory")?;
    let package = fetch(scratch.path(), &mirrors, &compiler.release)?;
    let unpacked = scratch.path().join("unpacked");
    run(Command::new("dpkg").arg("-x").arg(&package).arg(&unpacked))?;
    let found = find_library(&unpacked)?;
    fs::create_dir_all(&parent).with_context(|| {
        format!(
            "making {}: the Rust toolchain must be writable for you",
            parent.display()
        )
    })?;
    let fresh = parent.join("library.hearth-new");
    for old in [&fresh, &library] {
        if old.symlink_metadata().is_ok() {
            fs::remove_dir_all(old).with_context(|| format!("removing {}", old.display()))?;
        }
    }
    run(Command::new("cp").arg("-R").arg(&found).arg(&fresh))?;
    fs::write(fresh.join(STAMP_NAME), &compiler.release).context("writing the stamp")?;
    fs::rename(&fresh, &library).with_context(|| format!("renaming {}", fresh.display()))
}

/// Downloads the `rust-src` package of a release; returns its path.
fn fetch(scratch: &Path, mirrors: &[String], release: &str) -> Result<PathBuf> {
    fs::create_dir_all(scratch.join("download")).context("making a directory")?;
    let mut problems = Vec::new();
    for mirror in mirrors {
        for suite in SUITES {
            eprintln!("setup: looking for rust-src {release} in {suite} of {mirror}");
            match fetch_from(scratch, mirror, suite, release) {
                Ok(package) => return Ok(package),
                Err(error) => problems.push(format!("{suite}: {error:#}")),
            }
        }
    }
    bail!(
        "no source package of release {release} was found: {}",
        problems.join("; ")
    )
}

fn fetch_from(scratch: &Path, mirror: &str, suite: &str, release: &str) -> Result<PathBuf> {
    let list = scratch.join("sources.list");
    fs::write(
        &list,
        format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n"),
    )
    .context("writing an apt source list")?;
    let options = apt_options(scratch, &list)?;
    output_of(Command::new("apt-get").args(&options).arg("update"))?;
    let listing = output_of(
        Command::new("apt-cache")
            .args(&options)
            .args(["madison", "rust-src"]),
    )?;
    let version = matching_version(&listing, release)
        .with_context(|| format!("it has no rust-src of release {release}"))?;
    let download = scratch.join("download");
    output_of(
        Command::new("apt-get")
            .args(&options)
            .arg("download")
            .arg(format!("rust-src={version}"))
            .current_dir(&download),
    )?;
    let mut entries = fs::read_dir(&download).context("reading the download directory")?;
    let entry = entries.next().context("apt-get downloaded nothing")?;
    Ok(entry.context("reading the download directory")?.path())
}

/// The version among `apt-cache madison` lines that is of the wanted release.
fn matching_version(listing: &str, release: &str) -> Option<String> {
    listing.lines().find_map(|line| {
        let version = line.split('|').nth(1)?.trim();
        let upstream = version.split_once(':').map_or(version, |(_, rest)| rest);
        let rest = upstream.strip_prefix(release)?;
        // `1.95.0` must match neither `1.95.01` nor a beta of it.
        let is_release = rest.starts_with(['+', '-']) || rest.is_empty();
        is_release.then(|| version.to_owned())
    })
}

/// The `library` folder inside an unpacked `rust-src` package.
fn find_library(unpacked: &Path) -> Result<PathBuf> {
    let sources = unpacked.join("usr/src");
    let entries =
        fs::read_dir(&sources).with_context(|| format!("reading {}", sources.display()))?;
    for entry in entries {
        let library = entry
            .context("reading the unpacked package")?
            .path()
            .join("library");
        if library.join("core/src/lib.rs").is_file() {
            return Ok(library);
        }
    }
    bail!("the source package holds no library/core")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_release_matches() {
        let listing = " rust-src | 1.96.0+dfsg1-1 | http://m sid/main amd64 Packages\n \
                        rust-src | 1.95.0+dfsg1-2~bpo13+1 | http://m b/main amd64 Packages";
        assert_eq!(
            matching_version(listing, "1.95.0").as_deref(),
            Some("1.95.0+dfsg1-2~bpo13+1")
        );
        assert_eq!(matching_version(listing, "1.9"), None);
        assert_eq!(
            matching_version("rust-src | 1.95.0~beta.3+dfsg1-1 | x", "1.95.0"),
            None
        );
    }
}
