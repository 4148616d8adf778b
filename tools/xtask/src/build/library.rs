//! Programs' side: `libhearth.a` and `hearth.h` for C and C++, and the example programs of
//! `kernel/user`.
//!
//! Purpose: what a program needs to talk to its other ranks, in `target/hearth/lib` and
//! `target/hearth/include`; each example as `NAME-c`, `NAME-cpp` or `NAME-rust` among the other
//! programs; and the test programs that need it or a crate: `ranks-*.c`, and those of
//! `tests/crates`. Neighbours: [`super::programs`] compiles programs that need no library.
//!
//! Invariant: examples in C and C++ are compiled against the copies that users get.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::compile;
use crate::workspace::{Workspace, output_of};

/// The programs of tests of which the libraries come as crates.
const TESTS: &str = "hearth-test-programs";
/// The crate, and cargo's profile for the library of it.
const CRATE: &str = "hearth";
const PROFILE: &str = "program";

/// Builds the library and puts it and its header into their places.
pub fn build(workspace: &Workspace) -> Result<()> {
    let mut arguments = vec!["rustc", "--package", CRATE, "--lib"];
    arguments.extend(["--features", "c", "--profile", PROFILE]);
    arguments.extend(["--crate-type", "staticlib"]);
    compile::run(workspace, &arguments)?;
    let built = workspace.target().join(PROFILE).join("libhearth.a");
    let header = workspace.root().join("kernel/user/include/hearth.h");
    for (from, to) in [
        (built, library(workspace).join("libhearth.a")),
        (header, include(workspace).join("hearth.h")),
    ] {
        put(&from, &to)?;
    }
    Ok(())
}

/// Compiles the examples in all three languages, and those of the tests.
pub fn examples(workspace: &Workspace) -> Result<()> {
    let outputs = workspace.programs();
    fs::create_dir_all(&outputs).with_context(|| format!("making {}", outputs.display()))?;
    let sources = workspace.root().join("kernel/user/examples");
    let mut in_c: Vec<(PathBuf, String)> = files(&sources.join("c"), "c")?
        .into_iter()
        .map(|source| (source.clone(), format!("{}-c", stem(&source))))
        .collect();
    for source in files(&workspace.root().join("tests/programs"), "c")? {
        let name = stem(&source);
        if name.starts_with("ranks-") {
            in_c.push((source, name));
        }
    }
    let in_c = in_c.into_iter().map(|(source, name)| ("gcc", source, name));
    let in_cplusplus = files(&sources.join("cpp"), "cpp")?.into_iter();
    let in_cplusplus = in_cplusplus.map(|source| {
        let name = format!("{}-cpp", stem(&source));
        ("g++", source, name)
    });
    for (compiler, source, name) in in_c.chain(in_cplusplus) {
        let fresh = outputs.join(format!(".{name}.new"));
        let mut command = Command::new(compiler);
        command.args(["-static", "-O2", "-Wall", "-Wextra", "-I"]);
        command.arg(include(workspace)).arg("-o").arg(&fresh);
        command.arg(&source).arg("-L").arg(library(workspace));
        output_of(command.args(["-lhearth", "-lm"]))?;
        let program = outputs.join(name);
        fs::rename(&fresh, &program).with_context(|| format!("renaming {}", fresh.display()))?;
    }
    let of_tests = workspace.root().join("tests/crates/examples");
    for (package, sources, suffix) in [(CRATE, sources, "-rust"), (TESTS, of_tests, "")] {
        for source in files(&sources, "rs")? {
            let name = stem(&source);
            let mut arguments = vec!["rustc", "--profile", workspace.profile()];
            arguments.extend(["--package", package, "--example", &name, "--"]);
            arguments.extend(["-C", "target-feature=+crt-static", "-C", "strip=symbols"]);
            compile::run(workspace, &arguments)?;
            let built = workspace.hosted(&format!("examples/{name}"));
            put(&built, &outputs.join(format!("{name}{suffix}")))?;
        }
    }
    Ok(())
}

/// Where users find the library.
fn library(workspace: &Workspace) -> PathBuf {
    workspace.outputs().join("lib")
}

/// Where users find the header.
fn include(workspace: &Workspace) -> PathBuf {
    workspace.outputs().join("include")
}

/// Copies a file to a place whose folder may not be there yet.
fn put(from: &Path, to: &Path) -> Result<()> {
    let folder = to.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let fresh = to.with_extension("new");
    fs::copy(from, &fresh).with_context(|| format!("copying {}", from.display()))?;
    super::replace(&fresh, to)
}

/// The files of a folder with this extension, in order.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let reading = || format!("reading {}", folder.display());
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(reading)? {
        let path = entry.with_context(reading)?.path();
        if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn stem(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}
