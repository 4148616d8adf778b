//! Debian's packages, got without touching what the machine has installed.
//!
//! Purpose: the mirrors that the machine's own lists name, apt's options that keep it away from
//! those lists, and [`SourcePackage`]: the sources of others' programs that are built or run here,
//! pinned by their hash and kept in the cache folder of the user. Neighbours: `setup::source` (the
//! Rust library's source), `conformance` (the POSIX test suite), `build::mpi` (MPICH).
//!
//! Invariant: apt verifies lists against Debian's own keyring; a file of another hash is never
//! used.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::limited::say;
use crate::workspace::output_of;

/// Signs the package lists of every suite of Debian.
pub const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// A mirror that answers slowly is given up after so many seconds.
const TIMEOUT_SECONDS: &str = "60";

/// Sources of a package of Debian.
#[derive(Debug)]
pub struct SourcePackage {
    /// Its name.
    pub name: &'static str,
    /// The release that has it.
    pub suite: &'static str,
    /// The file with the original sources.
    pub archive: &'static str,
    /// SHA-256 of that file.
    pub sha256: &'static str,
}

impl SourcePackage {
    /// Makes a folder of the sources, where there is none with this name; its parent must exist.
    ///
    /// # Errors
    /// They are not in the cache and cannot be downloaded, or do not unpack.
    pub fn unpack(&self, folder: &Path) -> Result<()> {
        if folder.exists() {
            return Ok(());
        }
        let archive = self.archive()?;
        let new = folder.with_extension("new");
        let _ = fs::remove_dir_all(&new);
        fs::create_dir_all(&new).with_context(|| format!("making {}", new.display()))?;
        let mut command = Command::new("tar");
        command.args(["--strip-components=1", "-xf"]).arg(&archive);
        output_of(command.arg("-C").arg(&new))?;
        fs::rename(&new, folder).with_context(|| format!("making {}", folder.display()))
    }

    /// The file in the cache.
    fn archive(&self) -> Result<PathBuf> {
        let archive = cache()?.join(self.archive);
        if self.check(&archive).is_err() {
            self.download(&archive)?;
            self.check(&archive)?;
        }
        Ok(archive)
    }

    fn check(&self, archive: &Path) -> Result<()> {
        let mut command = Command::new("sha256sum");
        let hash = output_of(command.arg(archive).stderr(Stdio::null()))?;
        let is_it = hash.split_whitespace().next() == Some(self.sha256);
        ensure!(is_it, "{} is another file", archive.display());
        Ok(())
    }

    fn download(&self, archive: &Path) -> Result<()> {
        say("sources", &format!("downloading {}", self.archive));
        let cache = archive.parent().unwrap_or(archive).display();
        let mut problems = Vec::new();
        for mirror in mirrors() {
            let scratch = tempfile::tempdir().context("making a temporary directory")?;
            match self.download_from(&mirror, scratch.path()) {
                Ok(file) => {
                    fs::copy(&file, archive)
                        .with_context(|| format!("writing {}", archive.display()))?;
                    return Ok(());
                }
                Err(error) => problems.push(format!("{error:#}")),
            }
        }
        bail!(
            "the source package {} cannot be had: put {} into {cache} ({})",
            self.name,
            self.archive,
            match problems.is_empty() {
                true => "apt's sources name no Debian mirror".to_owned(),
                false => problems.join("; "),
            }
        )
    }

    fn download_from(&self, mirror: &str, scratch: &Path) -> Result<PathBuf> {
        let list = scratch.join("sources.list");
        let line = format!(
            "deb-src [signed-by={KEYRING}] {mirror} {} main\n",
            self.suite
        );
        fs::write(&list, line).context("writing an apt source list")?;
        let options = apt_options(scratch, &list)?;
        output_of(Command::new("apt-get").args(&options).arg("update"))?;
        let mut command = Command::new("apt-get");
        command.args(&options).current_dir(scratch);
        output_of(command.args(["source", "--download-only", self.name]))?;
        let file = scratch.join(self.archive);
        ensure!(file.is_file(), "{mirror} has another version");
        Ok(file)
    }
}

/// Files that are worth keeping when `target` goes.
fn cache() -> Result<PathBuf> {
    let home = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
    let folder = home.context("there is no HOME")?.join("hearth");
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Options that keep apt away from the machine's own lists and cache, with the directories that
/// they name in `scratch`.
///
/// # Errors
/// A directory cannot be made.
pub fn apt_options(scratch: &Path, list: &Path) -> Result<Vec<String>> {
    for directory in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(scratch.join(directory)).context("making apt's directories")?;
    }
    let directory = |name: &str| scratch.join(name).display().to_string();
    Ok(vec![
        "-qq".to_owned(),
        format!("-oDir::Etc::sourcelist={}", list.display()),
        "-oDir::Etc::sourceparts=/dev/null".to_owned(),
        format!("-oDir::State::Lists={}", directory("lists")),
        format!("-oDir::Cache={}", directory("cache")),
        "-oAPT::Get::List-Cleanup=0".to_owned(),
        "-oAPT::Update::Error-Mode=any".to_owned(),
        format!("-oAcquire::http::Timeout={TIMEOUT_SECONDS}"),
        format!("-oAcquire::https::Timeout={TIMEOUT_SECONDS}"),
        // The scratch directory is private to this user; apt's own user could not write to it.
        "-oAPT::Sandbox::User=".to_owned() + &current_user(),
    ])
}

fn current_user() -> String {
    output_of(Command::new("id").arg("-un")).unwrap_or_else(|_| "root".to_owned())
}

/// Mirrors of Debian itself that the machine's lists name.
pub fn mirrors() -> Vec<String> {
    mirrors_in(&source_texts())
}

/// The texts of apt's source lists, in both formats.
fn source_texts() -> Vec<String> {
    let mut paths = vec![PathBuf::from("/etc/apt/sources.list")];
    if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
        let mut more: Vec<_> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        more.sort();
        paths.extend(more);
    }
    paths
        .iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .collect()
}

/// Mirrors of Debian itself (not of its security archive, not of others) named in source lists.
fn mirrors_in(texts: &[String]) -> Vec<String> {
    let mut mirrors: Vec<String> = Vec::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let line = line.trim();
        let words: Vec<&str> = match line.strip_prefix("URIs:") {
            Some(rest) => rest.split_whitespace().collect(),
            None if line.starts_with("deb ") || line.starts_with("deb-src ") => line
                .split_whitespace()
                .find(|word| word.contains("://"))
                .into_iter()
                .collect(),
            None => Vec::new(),
        };
        for word in words {
            let mirror = word.trim_end_matches('/');
            if mirror.ends_with("/debian") && !mirrors.iter().any(|known| known == mirror) {
                mirrors.push(mirror.to_owned());
            }
        }
    }
    mirrors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_from_both_list_formats() {
        let texts = [
            "# a comment\ndeb [signed-by=/k.gpg] http://mirror.example/debian/ bookworm main\n"
                .to_owned(),
            "Types: deb\nURIs: http://mirror.example/debian http://other.example/debian\n\
             Suites: bookworm\nURIs: http://mirror.example/debian-security\n"
                .to_owned(),
            "deb https://vendor.example/apt stable main".to_owned(),
        ];
        assert_eq!(
            mirrors_in(&texts),
            [
                "http://mirror.example/debian",
                "http://other.example/debian"
            ]
        );
    }
}
