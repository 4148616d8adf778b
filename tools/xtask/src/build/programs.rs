//! The example programs: single source files of `tests/programs`, linked statically.
//!
//! Purpose: the file's name decides the compiler, so that a program is added by adding one file:
//! `musl-*.c` musl, `pie-*.c` static-PIE, `bare-*.c` without a C library, `ranks-*.c` with the
//! library of `kernel/user` ([`super::library`]), `omp-*.c`, `omp-*.cpp` and `omp-*.f90` OpenMP,
//! `sqlite-*.c` glibc with SQLite's source, other `*.c` glibc, `*.cpp`, `*.f90`, `*.rs`, `*.go`.
//! Key type: [`Recipe`]. Neighbours: the end-to-end tests and the demo run what is built here.
//!
//! Invariant: nothing is compiled again unless its source is newer than its program; a program is
//! left out only where setup does not install its compiler, and its name is said.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use crate::workspace::{Workspace, output_of};

/// How one program is compiled.
#[derive(Debug, PartialEq, Eq)]
struct Recipe {
    compiler: &'static str,
    /// Before the source file.
    arguments: &'static [&'static str],
    /// After the source file: libraries.
    libraries: &'static [&'static str],
}

const GLIBC: Recipe = Recipe {
    compiler: "gcc",
    arguments: &["-static", "-O2"],
    libraries: &["-lm"],
};
const STATIC_PIE: Recipe = Recipe {
    compiler: "gcc",
    arguments: &["-static-pie", "-O2"],
    libraries: &["-lm"],
};
const BARE: Recipe = Recipe {
    compiler: "gcc",
    arguments: &[
        "-static",
        "-O2",
        "-nostdlib",
        "-ffreestanding",
        "-fno-stack-protector",
        "-fno-tree-loop-distribute-patterns",
    ],
    libraries: &[],
};
const MUSL: Recipe = Recipe {
    compiler: "musl-gcc",
    arguments: &["-static", "-O2"],
    libraries: &["-lm"],
};
const SQLITE: Recipe = Recipe {
    compiler: "gcc",
    arguments: &[
        "-static",
        "-O1",
        "-w",
        "-DSQLITE_THREADSAFE=0",
        "-DSQLITE_OMIT_LOAD_EXTENSION",
    ],
    libraries: &["-lm"],
};
/// The crate that brings SQLite's source, and the folder in it.
const SQLITE_CRATE: (&str, &str) = ("libsqlite3-sys", "sqlite3");
const OPENMP: Recipe = Recipe {
    compiler: "gcc",
    arguments: &["-static", "-O2", "-fopenmp"],
    libraries: &["-lm"],
};
const OPENMP_FORTRAN: Recipe = Recipe {
    compiler: "gfortran",
    // gfortran's library refers to it only weakly, so that the linker leaves it out, and calls it
    // at the end of a program with threads.
    arguments: &["-static", "-O2", "-fopenmp", "-Wl,-u,pthread_mutex_destroy"],
    libraries: &[],
};
const GO: Recipe = Recipe {
    compiler: "go",
    arguments: &["build", "-trimpath", "-ldflags=-s -w"],
    libraries: &[],
};
/// Compilers that only the whole test installs, for their size: what they would compile is left out
/// where they are not.
const OPTIONAL: [&str; 1] = ["go"];
const CPLUSPLUS: Recipe = Recipe {
    compiler: "g++",
    arguments: &["-static", "-O2"],
    libraries: &["-lm"],
};
const OPENMP_CPLUSPLUS: Recipe = Recipe {
    compiler: "g++",
    arguments: &["-static", "-O2", "-fopenmp"],
    libraries: &[],
};
const FORTRAN: Recipe = Recipe {
    compiler: "gfortran",
    arguments: &["-static", "-O2"],
    libraries: &[],
};
const RUST: Recipe = Recipe {
    compiler: "rustc",
    arguments: &[
        "--edition",
        "2024",
        "-O",
        "-C",
        "target-feature=+crt-static",
        "-C",
        "strip=symbols",
    ],
    libraries: &[],
};

/// The recipe for a file name; `None` for files that are no programs (notes, headers).
fn recipe(file_name: &str) -> Option<Recipe> {
    let (stem, extension) = file_name.rsplit_once('.')?;
    match extension {
        "c" if stem.starts_with("ranks-") => None,
        "c" if stem.starts_with("musl-") => Some(MUSL),
        "c" if stem.starts_with("pie-") => Some(STATIC_PIE),
        "c" if stem.starts_with("bare-") => Some(BARE),
        "c" if stem.starts_with("omp-") => Some(OPENMP),
        "c" if stem.starts_with("sqlite-") => Some(SQLITE),
        "c" => Some(GLIBC),
        "cpp" if stem.starts_with("omp-") => Some(OPENMP_CPLUSPLUS),
        "cpp" => Some(CPLUSPLUS),
        "go" => Some(GO),
        "f90" if stem.starts_with("omp-") => Some(OPENMP_FORTRAN),
        "f90" => Some(FORTRAN),
        "rs" => Some(RUST),
        _ => None,
    }
}

/// Compiles every program whose source is newer; tries all before failing.
pub fn build(workspace: &Workspace) -> Result<()> {
    let sources = workspace.root().join("tests/programs");
    let outputs = workspace.programs();
    fs::create_dir_all(&outputs).with_context(|| format!("making {}", outputs.display()))?;
    let mut files: Vec<PathBuf> = fs::read_dir(&sources)
        .with_context(|| format!("reading {}", sources.display()))?
        .map(|entry| Ok(entry.context("reading tests/programs")?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    let mut compiled = 0;
    let mut current = 0;
    let mut failures = Vec::new();
    for source in files {
        let Some(name) = source.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        let Some(recipe) = recipe(name) else { continue };
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        let program = outputs.join(stem);
        if is_current(&program, &source) {
            current += 1;
            continue;
        }
        if OPTIONAL.contains(&recipe.compiler) && !is_installed(recipe.compiler) {
            eprintln!(
                "    {name} is left out: this machine has no {}",
                recipe.compiler
            );
            continue;
        }
        match compile(workspace, &recipe, &source, &program) {
            Ok(()) => compiled += 1,
            Err(error) => failures.push(format!("{name}: {error:#}")),
        }
    }
    eprintln!("    {compiled} compiled, {current} up to date");
    if !failures.is_empty() {
        bail!(
            "{} did not compile:\n{}",
            failures.len(),
            failures.join("\n")
        );
    }
    Ok(())
}

/// Whether there is a program of this name to be called.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether a program is as new as its source, and as those that it includes.
fn is_current(program: &Path, source: &Path) -> bool {
    let changed = |path: &Path| -> Option<SystemTime> { fs::metadata(path).ok()?.modified().ok() };
    let is_newer = match (changed(program), changed(source)) {
        (Some(program), Some(source)) => program >= source,
        _ => false,
    };
    is_newer
        && included(source)
            .iter()
            .all(|source| is_current(program, source))
}

/// Files that a C source includes from its own folder.
fn included(source: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(source).unwrap_or_default();
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("#include \"")?;
        name.split('"').next()
    });
    names.map(|name| source.with_file_name(name)).collect()
}

fn compile(workspace: &Workspace, recipe: &Recipe, source: &Path, program: &Path) -> Result<()> {
    let fresh = program.with_file_name(format!(
        ".{}.new",
        program.file_name().unwrap_or_default().to_string_lossy()
    ));
    let mut command = Command::new(recipe.compiler);
    command.current_dir(workspace.root()).args(recipe.arguments);
    if *recipe == SQLITE {
        command.arg("-I").arg(sqlite_source(workspace)?);
    }
    command
        .arg("-o")
        .arg(&fresh)
        .arg(source)
        .args(recipe.libraries);
    output_of(&mut command)?;
    fs::rename(&fresh, program).with_context(|| format!("renaming {}", fresh.display()))
}

/// The folder with SQLite's source: that which the control node's store is compiled from.
fn sqlite_source(workspace: &Workspace) -> Result<PathBuf> {
    let (name, folder) = SQLITE_CRATE;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(workspace.root());
    let listed = output_of(cargo.args(["metadata", "--format-version", "1", "--locked"]))?;
    let listed: serde_json::Value = serde_json::from_str(&listed)?;
    let mut packages = listed["packages"].as_array().into_iter().flatten();
    let package = packages.find(|package| package["name"] == name);
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let manifest = manifest.with_context(|| format!("the workspace does not use {name}"))?;
    Ok(Path::new(manifest).with_file_name(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_decides_the_compiler() {
        assert_eq!(recipe("hello.c"), Some(GLIBC));
        assert_eq!(recipe("musl-hello.c"), Some(MUSL));
        assert_eq!(recipe("pie-hello.c"), Some(STATIC_PIE));
        assert_eq!(recipe("hello.cpp"), Some(CPLUSPLUS));
        assert_eq!(recipe("hello.f90"), Some(FORTRAN));
        assert_eq!(recipe("hello.rs"), Some(RUST));
        assert_eq!(recipe("hello.go"), Some(GO));
        assert_eq!(recipe("omp-hello.c"), Some(OPENMP));
        assert_eq!(recipe("omp-hello.cpp"), Some(OPENMP_CPLUSPLUS));
        assert_eq!(recipe("omp-hello.f90"), Some(OPENMP_FORTRAN));
        assert_eq!(recipe("sqlite-hello.c"), Some(SQLITE));
        assert_eq!(recipe("README.md"), None);
        assert_eq!(recipe("ranks-hello.c"), None);
        assert_eq!(recipe("Makefile"), None);
    }

    #[test]
    fn a_program_older_than_its_source_is_not_current() {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join("a.c");
        let program = directory.path().join("a");
        fs::write(&source, "").unwrap();
        assert!(!is_current(&program, &source));
        fs::write(&program, "").unwrap();
        assert!(is_current(&program, &source));
        let later = SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::options()
            .write(true)
            .open(&source)
            .unwrap()
            .set_modified(later)
            .unwrap();
        assert!(!is_current(&program, &source));
        // What includes another is as old as that.
        let (program, source) = (
            directory.path().join("musl-a"),
            directory.path().join("musl-a.c"),
        );
        fs::write(&source, "#include \"a.c\"\n").unwrap();
        fs::write(&program, "").unwrap();
        assert!(!is_current(&program, &source));
        let latest = later + std::time::Duration::from_secs(5);
        let file = fs::File::options().write(true).open(&program).unwrap();
        file.set_modified(latest).unwrap();
        assert!(is_current(&program, &source));
    }

    #[test]
    fn compilers_are_looked_for_by_name() {
        assert!(is_installed("sh"));
        assert!(!is_installed("a-compiler-that-nobody-has"));
    }
}
