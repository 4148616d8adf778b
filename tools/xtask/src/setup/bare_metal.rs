//! The bare-metal target: `core`, `alloc` and `compiler_builtins` for `x86_64-unknown-none`.
//!
//! Purpose: rustup provides them where it can download; where it cannot (and says so by
//! `RUSTUP_AUTO_INSTALL=0`), they are compiled once from the compiler's own source package
//! ([`super::source`]). Key type: [`Compiler`]. Neighbours: [`super::run`].
//!
//! Invariant: the target's folder never holds two copies of one crate (rustc refuses every build
//! then, E0464): a new set is made beside it and put in its place as a whole.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::source;
use crate::workspace::{BARE_METAL_TARGET, Workspace, output_of, run};

/// The crates that make up the target.
const SYSROOT_CRATES: [&str; 3] = ["core", "alloc", "compiler_builtins"];
/// Written beside crates that were compiled on this machine; holds `rustc -vV` of their compiler.
const STAMP_NAME: &str = "hearth-sysroot.txt";

/// The compiler in use and where it looks for the bare-metal target.
#[derive(Debug, Clone)]
pub struct Compiler {
    /// Release, like `1.95.0`.
    pub release: String,
    /// All of `rustc -vV`.
    pub identity: String,
    /// Where rustc looks for the target's crates.
    pub target_libdir: PathBuf,
}

impl Compiler {
    /// From the output of `rustc -vV` and `rustc --print target-libdir`.
    pub fn parse(identity: &str, target_libdir: String) -> Result<Self> {
        let release = identity
            .lines()
            .find_map(|line| line.strip_prefix("release: "))
            .context("`rustc -vV` names no release")?;
        Ok(Self {
            release: release.trim().to_owned(),
            identity: identity.to_owned(),
            target_libdir: PathBuf::from(target_libdir),
        })
    }

    /// Whether the target's crates are there and, if they were compiled here, by this compiler.
    pub fn target_is_present(&self) -> bool {
        SYSROOT_CRATES
            .iter()
            .all(|name| count_crate(&self.target_libdir, name) == 1)
            && match fs::read_to_string(self.target_libdir.join(STAMP_NAME)) {
                Ok(stamp) => stamp.trim_end() == self.identity,
                Err(_) => true,
            }
    }

    /// Compiles an empty crate for the target: the one proof that counts.
    pub fn target_works(&self, workspace: &Workspace) -> Result<()> {
        ensure!(
            self.target_is_present(),
            "no crates in {}",
            self.target_libdir.display()
        );
        let directory = tempfile::tempdir().context("making a temporary directory")?;
        let source = directory.path().join("probe.rs");
        fs::write(&source, "#![no_std]\nextern crate alloc;\n").context("writing a probe crate")?;
        output_of(
            workspace
                .rustc()
                .args([
                    "--crate-type",
                    "rlib",
                    "--edition",
                    "2024",
                    "--target",
                    BARE_METAL_TARGET,
                ])
                .args(["-C", "panic=abort", "-o"])
                .arg(directory.path().join("libprobe.rlib"))
                .arg(&source),
        )?;
        Ok(())
    }
}

/// Makes the bare-metal target usable, by the first way that works.
pub fn provide(workspace: &Workspace, compiler: &Compiler) -> Result<()> {
    let problem = match compiler.target_works(workspace) {
        Ok(()) => return Ok(()),
        Err(problem) => problem,
    };
    eprintln!("setup: the target {BARE_METAL_TARGET} is not ready ({problem:#})");
    if rustup_may_download() {
        eprintln!("setup: adding it with rustup");
        match run(workspace_command(workspace, "rustup").args(["target", "add", BARE_METAL_TARGET]))
            .and_then(|()| compiler.target_works(workspace))
        {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("setup: rustup could not: {error:#}"),
        }
    }
    build_from_source(workspace, compiler).with_context(|| {
        format!(
            "the bare-metal target could not be made ready. With access to rustup's servers, run \
             `rustup target add {BARE_METAL_TARGET}`; without, see that apt-get can reach a Debian \
             mirror that has rust-src {}",
            compiler.release
        )
    })?;
    compiler
        .target_works(workspace)
        .context("the crates just compiled do not work")
}

/// rustup is there and was not told to stay off the network.
fn rustup_may_download() -> bool {
    std::env::var_os("RUSTUP_AUTO_INSTALL").is_none_or(|value| value != "0")
        && crate::workspace::find_program("rustup").is_some()
}

fn workspace_command(workspace: &Workspace, program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace.root());
    command
}

/// Compiles the target's crates from the compiler's source and puts them where rustc looks.
fn build_from_source(workspace: &Workspace, compiler: &Compiler) -> Result<()> {
    let sysroot = PathBuf::from(output_of(workspace.rustc().args(["--print", "sysroot"]))?);
    source::provide(&sysroot, compiler)?;
    eprintln!("setup: compiling core and alloc for {BARE_METAL_TARGET} (about half a minute)");
    let directory = tempfile::tempdir().context("making a temporary directory")?;
    let deps = compile(workspace, directory.path())?;
    let libdir = &compiler.target_libdir;
    let parent = libdir
        .parent()
        .context("the target's folder has no parent")?;
    let fresh = parent.join("lib.hearth-new");
    remove_directory(&fresh)?;
    fs::create_dir_all(&fresh).with_context(|| {
        format!(
            "making {}: the Rust toolchain must be writable for you",
            fresh.display()
        )
    })?;
    for name in SYSROOT_CRATES {
        let found = files_of_crate(&deps, name);
        let [file] = found.as_slice() else {
            bail!(
                "the compilation left {} copies of {name}, expected one",
                found.len()
            );
        };
        let name = file
            .file_name()
            .context("a compiled crate has no file name")?;
        fs::copy(file, fresh.join(name)).with_context(|| format!("copying {}", file.display()))?;
    }
    fs::write(fresh.join(STAMP_NAME), &compiler.identity).context("writing the stamp")?;
    remove_directory(libdir)?;
    fs::rename(&fresh, libdir)
        .with_context(|| format!("renaming {} to {}", fresh.display(), libdir.display()))
}

/// Compiles an empty crate together with the crates it stands on; returns the folder they are in.
fn compile(workspace: &Workspace, directory: &Path) -> Result<PathBuf> {
    fs::create_dir(directory.join("src")).context("making a probe crate")?;
    fs::write(directory.join("src/lib.rs"), "#![no_std]\n").context("writing a probe crate")?;
    // A workspace of its own, wherever the temporary directory is.
    let manifest = "[package]\nname = \"probe\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\
                    [workspace]\n[profile.release]\npanic = \"abort\"\n";
    fs::write(directory.join("Cargo.toml"), manifest).context("writing a probe crate")?;
    let mut cargo = workspace.cargo();
    cargo
        .current_dir(directory)
        // Building the standard library is not yet a stable feature of cargo; the compiler and
        // its source are of exactly the same version.
        .env("RUSTC_BOOTSTRAP", "1")
        // Bitcode, so that a profile with link-time optimization can use these crates too.
        .env("RUSTFLAGS", "-C embed-bitcode=yes")
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .args(["build", "--release", "--target", BARE_METAL_TARGET])
        .arg("-Zbuild-std=core,alloc,compiler_builtins")
        .arg("-Zbuild-std-features=compiler-builtins-mem")
        .stdin(Stdio::null());
    run(&mut cargo)?;
    Ok(directory
        .join("target")
        .join(BARE_METAL_TARGET)
        .join("release/deps"))
}

fn remove_directory(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("removing {}", path.display())),
    }
}

fn count_crate(directory: &Path, name: &str) -> usize {
    files_of_crate(directory, name).len()
}

/// The `lib<name>-<hash>.rlib` files in a folder.
fn files_of_crate(directory: &Path, name: &str) -> Vec<PathBuf> {
    let prefix = format!("lib{name}-");
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "rlib")
                && path
                    .file_name()
                    .is_some_and(|file| file.to_string_lossy().starts_with(&prefix))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler(libdir: &Path) -> Compiler {
        let identity = "rustc 1.95.0 (59807616e 2026-04-14)\nrelease: 1.95.0";
        Compiler::parse(identity, libdir.display().to_string()).unwrap()
    }

    #[test]
    fn the_release_is_taken_from_the_verbose_version() {
        assert_eq!(compiler(Path::new("/x")).release, "1.95.0");
        assert!(Compiler::parse("rustc 1.95.0", String::new()).is_err());
    }

    #[test]
    fn two_copies_or_another_compilers_crates_are_not_accepted() {
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path());
        assert!(!compiler.target_is_present());
        for name in SYSROOT_CRATES {
            fs::write(directory.path().join(format!("lib{name}-1.rlib")), "").unwrap();
        }
        assert!(compiler.target_is_present());
        fs::write(directory.path().join(STAMP_NAME), "rustc 1.94.0").unwrap();
        assert!(!compiler.target_is_present());
        fs::write(directory.path().join(STAMP_NAME), &compiler.identity).unwrap();
        assert!(compiler.target_is_present());
        fs::write(directory.path().join("libcore-2.rlib"), "").unwrap();
        assert!(!compiler.target_is_present());
    }
}
