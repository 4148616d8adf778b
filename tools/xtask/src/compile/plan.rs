//! The crates that a command of cargo compiles, from `cargo metadata`.
//!
//! Purpose: the denominator of the progress, and how much of the work each crate is. A *crate* is
//! one call of the compiler: a library, a program, a build script, the tests of one of them. Key
//! types: [`Metadata`] (the workspace), [`Plan`] (what one command compiles of it), [`Unit`].
//! Neighbours: [`super::progress`] strikes off what is done.
//!
//! Invariant: a plan is an estimate. A crate that is compiled twice, for build scripts and for
//! the target, stands in it once; optional packages that this command leaves out stand in it too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::limited::{self, Show};
use crate::workspace::{Workspace, output_of};

/// Loading the sources of all packages takes a minute on a slow line.
const LIMIT: Duration = Duration::from_secs(600);
/// Source of a crate of this workspace that takes as long as an average crate from elsewhere:
/// measured for `hearth` on two processors.
const BYTES_OF_AN_AVERAGE_CRATE: u64 = 16 << 10;

/// What a command compiles, by the package's identity.
#[derive(Debug, Clone, Default)]
pub struct Plan(pub BTreeMap<String, Package>);

/// One package and what is compiled of it.
#[derive(Debug, Clone, Default)]
pub struct Package {
    pub name: String,
    /// Its crates, each with its share of the work.
    pub crates: BTreeMap<Unit, u64>,
}

/// One crate of a package.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unit {
    pub kind: String,
    pub name: String,
    /// With its unit tests.
    pub has_tests: bool,
}

/// A workspace as cargo describes it.
#[derive(Deserialize)]
pub struct Metadata {
    packages: Vec<Described>,
    workspace_default_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Described {
    id: String,
    name: String,
    /// Where it comes from; nothing for a package of this workspace.
    source: Option<String>,
    targets: Vec<Target>,
}

/// As cargo describes it here and in its messages.
#[derive(Deserialize)]
pub struct Target {
    pub kind: Vec<String>,
    pub name: String,
    pub src_path: PathBuf,
    #[serde(default)]
    pub test: bool,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

/// What the arguments of a command ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Request<'a> {
    packages: Vec<&'a str>,
    only_library: bool,
    /// The programs and examples that are named; none means all programs.
    named: Vec<&'a str>,
    with_tests: bool,
}

impl Metadata {
    /// Has cargo describe a workspace, for the machine that it is compiled on.
    pub fn of(workspace: &Workspace) -> Result<Self> {
        let identity = output_of(workspace.rustc().arg("-vV"))?;
        let mut lines = identity.lines();
        let host = lines.find_map(|line| line.strip_prefix("host: "));
        let host = host.context("rustc does not say what machine it is for")?;
        let mut command = workspace.cargo();
        command.args(["metadata", "--format-version=1", "--filter-platform", host]);
        // The first time it loads the sources of all packages, and says so.
        let is_hidden = |line: &str| line.starts_with('{') || line.contains(" Downloaded ");
        let finished = limited::run(&mut command, LIMIT, Show::Except("build", is_hidden))?;
        let lines = finished.expect_success("cargo metadata")?.lines;
        let mut described = lines.iter().filter(|line| line.starts_with('{'));
        let text = described
            .next()
            .context("`cargo metadata` printed nothing")?;
        serde_json::from_str(text).context("`cargo metadata` printed something else")
    }
}

impl Plan {
    /// The plan of a command in a workspace.
    pub fn of(metadata: &Metadata, arguments: &[&str]) -> Self {
        let request = Request::parse(arguments);
        let is_root = |package: &Described| match request.packages.as_slice() {
            [] => metadata.workspace_default_members.contains(&package.id),
            names => names.contains(&package.name.as_str()),
        };
        let roots = metadata.packages.iter().filter(|package| is_root(package));
        let roots: Vec<&str> = roots.map(|package| package.id.as_str()).collect();
        let needed = needed(&metadata.resolve, &roots, &request);
        let packages = metadata.packages.iter();
        let packages = packages.filter(|package| needed.contains(&package.id.as_str()));
        let planned = packages.map(|package| {
            let is_root = roots.contains(&package.id.as_str());
            let crates = package.targets.iter();
            let crates = crates.flat_map(|target| request.units(target, is_root));
            let own = package.source.is_none();
            let crates = crates.map(|(unit, target)| (unit, if own { work(target) } else { 1 }));
            let package_crates = crates.collect();
            let planned = Package {
                name: package.name.clone(),
                crates: package_crates,
            };
            (package.id.clone(), planned)
        });
        Self(planned.collect())
    }
}

impl<'a> Request<'a> {
    fn parse(arguments: &[&'a str]) -> Self {
        let mut request = Self::default();
        let mut words = arguments.iter().take_while(|word| **word != "--");
        while let Some(word) = words.next() {
            match *word {
                "-p" | "--package" => request.packages.extend(words.next()),
                "--bin" | "--example" => request.named.extend(words.next()),
                "--lib" => request.only_library = true,
                "test" | "--all-targets" => request.with_tests = true,
                _ => {}
            }
        }
        request
    }

    /// What is compiled of a package's target.
    fn units<'t>(&self, target: &'t Target, is_root: bool) -> Vec<(Unit, &'t Target)> {
        let kind = target.kind.first().map_or("", String::as_str);
        let is_asked_for = match kind {
            "custom-build" => true,
            "bin" | "example" | "test" | "bench" if !is_root || self.only_library => false,
            "bin" | "example" if !self.named.is_empty() => {
                self.named.contains(&target.name.as_str())
            }
            "bin" => true,
            "example" | "test" => self.with_tests,
            "bench" => false,
            // A library, whatever its form.
            _ => true,
        };
        let is_tested = is_root && self.with_tests && target.test;
        let unit = |has_tests| {
            let unit = Unit {
                kind: kind.to_owned(),
                name: target.name.clone(),
                has_tests,
            };
            (unit, target)
        };
        match (is_asked_for, is_tested) {
            (false, _) => Vec::new(),
            (true, false) => vec![unit(false)],
            (true, true) if kind == "test" => vec![unit(true)],
            (true, true) => vec![unit(false), unit(true)],
        }
    }
}

/// The packages that are compiled for `roots`, these included.
fn needed<'m>(resolve: &'m Resolve, roots: &[&'m str], request: &Request) -> Vec<&'m str> {
    let nodes: BTreeMap<&str, &Node> = resolve.nodes.iter().map(|n| (n.id.as_str(), n)).collect();
    let for_tests = request.with_tests || !request.named.is_empty();
    let mut needed = roots.to_vec();
    let mut next = 0;
    while let Some(&id) = needed.get(next) {
        next += 1;
        let Some(node) = nodes.get(id) else { continue };
        for dependency in &node.deps {
            let mut kinds = dependency.dep_kinds.iter();
            let is_needed = kinds.any(|kind| match kind.kind.as_deref() {
                Some("dev") => for_tests && roots.contains(&id),
                _ => true,
            });
            if is_needed && !needed.contains(&dependency.pkg.as_str()) {
                needed.push(&dependency.pkg);
            }
        }
    }
    needed
}

/// How much of the work a crate of this workspace is, an average crate from elsewhere being 1.
fn work(target: &Target) -> u64 {
    let path = &target.src_path;
    let is = |name: &str| path.file_name().is_some_and(|file| file == name);
    let bytes = match path.parent() {
        Some(folder) if is("lib.rs") => source_bytes(folder),
        Some(folder) if is("main.rs") && !folder.join("lib.rs").exists() => source_bytes(folder),
        _ => fs::metadata(path).map_or(0, |file| file.len()),
    };
    1 + bytes / BYTES_OF_AN_AVERAGE_CRATE
}

/// Bytes of Rust below a folder, other packages apart.
fn source_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let sizes = entries.flatten().map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            let is_package = path.join("Cargo.toml").exists();
            if is_package { 0 } else { source_bytes(&path) }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            entry.metadata().map_or(0, |file| file.len())
        } else {
            0
        }
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "workspace_default_members": ["own"],
        "packages": [
            {"id": "own", "name": "own", "source": null, "targets": [
                {"kind": ["lib"], "name": "own", "src_path": "/none/lib.rs", "test": true},
                {"kind": ["bin"], "name": "tool", "src_path": "/none/tool.rs", "test": true},
                {"kind": ["example"], "name": "shown", "src_path": "/none/shown.rs"},
                {"kind": ["test"], "name": "whole", "src_path": "/none/whole.rs", "test": true}
            ]},
            {"id": "far", "name": "far", "source": "registry", "targets": [
                {"kind": ["custom-build"], "name": "build-script-build", "src_path": "/b.rs"},
                {"kind": ["lib"], "name": "far", "src_path": "/l.rs", "test": true},
                {"kind": ["bin"], "name": "far-tool", "src_path": "/t.rs", "test": true}
            ]},
            {"id": "checker", "name": "checker", "source": "registry", "targets": [
                {"kind": ["lib"], "name": "checker", "src_path": "/c.rs", "test": true}
            ]},
            {"id": "other", "name": "other", "source": null, "targets": [
                {"kind": ["lib"], "name": "other", "src_path": "/none/o.rs", "test": true}
            ]}
        ],
        "resolve": {"nodes": [
            {"id": "own", "deps": [
                {"pkg": "far", "dep_kinds": [{"kind": null}]},
                {"pkg": "checker", "dep_kinds": [{"kind": "dev"}]}
            ]},
            {"id": "far", "deps": []}, {"id": "checker", "deps": []}, {"id": "other", "deps": []}
        ]}
    }"#;

    /// The crates of a command, as `PACKAGE/KIND`, with `+` where tests are in it.
    fn crates(arguments: &[&str]) -> Vec<String> {
        let metadata = serde_json::from_str(METADATA).unwrap();
        let plan = Plan::of(&metadata, arguments);
        let named = plan.0.values().flat_map(|package| {
            let units = package.crates.keys();
            units.map(|unit| {
                let tests = if unit.has_tests { "+" } else { "" };
                format!("{}/{}{tests}", package.name, unit.kind)
            })
        });
        named.collect()
    }

    #[test]
    fn the_arguments_decide_what_is_compiled() {
        let far = ["far/custom-build", "far/lib"];
        assert_eq!(
            crates(&["build"]),
            [&far[..], &["own/bin", "own/lib"]].concat()
        );
        assert_eq!(
            crates(&["rustc", "-p", "own", "--lib", "--", "--bin"]),
            [&far[..], &["own/lib"]].concat()
        );
        assert_eq!(
            crates(&["rustc", "-p", "own", "--example", "shown"]),
            [&["checker/lib"], &far[..], &["own/example", "own/lib"]].concat()
        );
        let with_tests = ["own/bin", "own/bin+", "own/example", "own/lib", "own/lib+"];
        assert_eq!(
            crates(&["test", "--no-run"]),
            [&["checker/lib"], &far[..], &with_tests, &["own/test+"]].concat()
        );
        assert_eq!(crates(&["build", "--package", "other"]), ["other/lib"]);
    }

    #[test]
    fn the_work_of_a_crate_is_its_source_without_other_packages() {
        let root = tempfile::tempdir().unwrap();
        let large = "/".repeat(20 << 10);
        let src = root.path().join("src");
        fs::create_dir_all(src.join("inner")).unwrap();
        fs::create_dir_all(src.join("other")).unwrap();
        fs::write(src.join("lib.rs"), &large).unwrap();
        fs::write(src.join("inner/part.rs"), &large).unwrap();
        fs::write(src.join("other/lib.rs"), &large).unwrap();
        fs::write(src.join("other/Cargo.toml"), "").unwrap();
        fs::write(src.join("main.rs"), "").unwrap();
        let target = |file: &str| Target {
            kind: Vec::new(),
            name: String::new(),
            src_path: src.join(file),
            test: false,
        };
        assert_eq!(work(&target("lib.rs")), 1 + 2);
        assert_eq!(work(&target("main.rs")), 1);
        assert_eq!(work(&target("missing.rs")), 1);
    }
}
