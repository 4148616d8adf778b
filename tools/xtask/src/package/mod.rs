//! `cargo xtask package`: everything a user needs in one file, for machines without Rust.
//!
//! Purpose: `target/hearth-VERSION-x86_64.tar.gz` with the outputs of `build`, MPI where it is
//! built, a README and the licences, in one folder from which it runs. Key constants: [`CONTENTS`],
//! [`BINARY_LIMIT`]. Neighbours: `build` makes what is packed; [`container`] tries it on an empty
//! Debian system.
//!
//! Invariant: a package holds what `target/hearth` holds, which is what `demo` shows. The tests use
//! programs of another profile; [`container`] runs a job with those of the package.

pub mod container;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::build;
use crate::workspace::{Workspace, output_of};

/// Name of the package and of the folder in it.
const NAME: &str = concat!("hearth-", env!("CARGO_PKG_VERSION"), "-x86_64");
/// What of `target/hearth` is in it.
const CONTENTS: [&str; 6] = [
    "hearth",
    "hearth.efi",
    "programs",
    "include",
    "lib",
    "symbols",
];
/// And where `cargo xtask build --mpi` has made it.
const MPI: &str = "mpi";
/// Where its README is in the source tree.
const README_FOLDER: &str = "tools/xtask/src/package";
/// Most bytes of `hearth`: a download, and a file that is mapped at each command.
const BINARY_LIMIT: u64 = 25 << 20;

/// Builds, and makes the package.
///
/// # Errors
/// The build failed, `hearth` is not what every machine can run, or `tar` failed.
pub fn run(workspace: &Workspace) -> Result<()> {
    build::once(workspace)?;
    let package = make(workspace)?;
    let bytes = fs::metadata(&package)
        .context("looking at the package")?
        .len();
    let mpi = match has_mpi(workspace) {
        true => "with MPI",
        false => "without MPI, which `cargo xtask build --mpi` adds",
    };
    let size = mebibytes(bytes);
    eprintln!("{}: {size:.1} MiB, {mpi}", package.display());
    Ok(())
}

/// Makes the package of what is built; returns where it is.
pub fn make(workspace: &Workspace) -> Result<PathBuf> {
    check_binary(&workspace.hearth())?;
    let package = workspace.target().join(format!("{NAME}.tar.gz"));
    let fresh = package.with_extension("new");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--file"]).arg(&fresh);
    // The same whoever packs it, in whichever order the folder lists its files.
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    // A dot at the beginning marks what is not complete.
    tar.args(["--exclude=.*", &format!("--transform=s,^,{NAME}/,")]);
    tar.arg("--directory")
        .arg(workspace.outputs())
        .args(CONTENTS);
    if has_mpi(workspace) {
        tar.arg(MPI);
    }
    let readme = workspace.root().join(README_FOLDER);
    tar.arg("--directory").arg(readme).arg("README.md");
    tar.arg("--directory").arg(workspace.root());
    output_of(tar.args(["LICENSE-MIT", "LICENSE-APACHE"]))?;
    fs::rename(&fresh, &package).with_context(|| format!("renaming {}", fresh.display()))?;
    Ok(package)
}

/// Whether MPI is built, wholly: what compiles for it comes last.
fn has_mpi(workspace: &Workspace) -> bool {
    let mpi = workspace.outputs().join(MPI);
    mpi.join("bin/mpiexec").exists() && mpi.join("COPYRIGHT").exists()
}

/// `hearth` runs on any Linux of this processor: it asks for no library.
fn check_binary(hearth: &Path) -> Result<()> {
    let bytes = fs::metadata(hearth).with_context(|| format!("looking at {}", hearth.display()))?;
    ensure!(
        bytes.len() <= BINARY_LIMIT,
        "{} has {:.1} MiB, more than {:.0}: is it stripped?",
        hearth.display(),
        mebibytes(bytes.len()),
        mebibytes(BINARY_LIMIT)
    );
    let headers = output_of(
        Command::new("readelf")
            .args(["--segments", "--dynamic"])
            .arg(hearth),
    )?;
    ensure!(
        !headers.contains("INTERP") && !headers.contains("(NEEDED)"),
        "{} is linked dynamically, and runs only where its libraries are: libc6-dev has the \
         static C library",
        hearth.display()
    );
    Ok(())
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source tree in which everything is built; `hearth` is compiled with these arguments.
    fn built(root: &Path, arguments: &[&str]) -> Workspace {
        let workspace = Workspace::at(root);
        let outputs = workspace.outputs();
        for file in [
            "hearth.efi",
            "programs/a",
            "programs/.b.new",
            "include/h.h",
            "lib/l.a",
        ] {
            let path = outputs.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::create_dir_all(outputs.join("symbols")).unwrap();
        fs::create_dir_all(root.join(README_FOLDER)).unwrap();
        for file in [
            "LICENSE-MIT",
            "LICENSE-APACHE",
            &format!("{README_FOLDER}/README.md"),
        ] {
            fs::write(root.join(file), "").unwrap();
        }
        let source = root.join("hearth.c");
        fs::write(&source, "int main(void) { return 0; }").unwrap();
        let mut compiler = Command::new("gcc");
        compiler.args(arguments).arg("-o").arg(workspace.hearth());
        output_of(compiler.arg(source)).unwrap();
        workspace
    }

    #[test]
    fn a_package_holds_complete_files_in_one_folder() {
        let root = tempfile::tempdir().unwrap();
        let workspace = built(root.path(), &["-static"]);
        let package = make(&workspace).unwrap();
        let listing = output_of(Command::new("tar").arg("-tf").arg(&package)).unwrap();
        for file in [
            "hearth",
            "hearth.efi",
            "programs/a",
            "README.md",
            "LICENSE-MIT",
        ] {
            let wanted = format!("{NAME}/{file}");
            assert!(
                listing.lines().any(|line| line == wanted),
                "{file} in {listing}"
            );
        }
        assert!(
            listing.lines().all(|line| line.starts_with(NAME)),
            "{listing}"
        );
        assert!(!listing.contains(".b.new"), "{listing}");
        assert!(!listing.contains("mpi"), "{listing}");
        // MPICH's licence wants its notice in every copy.
        for file in ["mpi/bin/mpiexec", "mpi/COPYRIGHT"] {
            let path = workspace.outputs().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let package = make(&workspace).unwrap();
        let listing = output_of(Command::new("tar").arg("-tf").arg(&package)).unwrap();
        assert!(listing.contains("/mpi/COPYRIGHT"), "{listing}");
        assert!(!package.with_extension("new").exists());
    }

    #[test]
    fn a_binary_that_needs_libraries_is_not_packed() {
        let root = tempfile::tempdir().unwrap();
        let workspace = built(root.path(), &[]);
        let error = make(&workspace).unwrap_err().to_string();
        assert!(error.contains("linked dynamically"), "{error}");
        let large = fs::File::create(workspace.hearth()).unwrap();
        large.set_len(BINARY_LIMIT + 1).unwrap();
        let error = make(&workspace).unwrap_err().to_string();
        assert!(error.contains("more than 25"), "{error}");
    }
}
