//! Directions of dependencies between the crates of the workspace.
//!
//! Key constant: [`ALLOWED`]. Neighbours: `cargo metadata` says what is.
//!
//! Invariant: kernel and tools meet only through netstack, hearth-abi and built files.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Rule;
use crate::workspace::{Workspace, output_of};

/// Which crates of the workspace each crate may use.
const ALLOWED: &[(&str, &[&str])] = &[
    ("hearth-abi", &[]),
    // What programs link: it speaks the kernel's language and knows nothing else.
    ("hearth", &["hearth-abi"]),
    ("kernel-core", &["hearth-abi"]),
    ("netstack", &[]),
    // The simulated network is the fat tree of the allocator.
    ("netstack-sim", &["hearth-alloc", "netstack"]),
    ("netstack-fuzz", &["netstack"]),
    ("kernel", &["hearth-abi", "kernel-core", "netstack"]),
    ("bootstub", &["hearth-abi"]),
    // The image tool and the stub inside the image share the layout of the image.
    ("bootimage", &["bootstub", "hearth-abi"]),
    ("hearth-boot", &["netstack"]),
    // How rates are written.
    ("hearth-qemu", &["netstack"]),
    ("hearth-alloc", &[]),
    ("hearth-replay", &["hearth-alloc"]),
    ("hearth-store", &[]),
    ("hearth-monitor", &[]),
    // The machines of a QEMU cluster are switched by its supervisor.
    ("hearth-power", &["hearth-qemu"]),
    ("hearth-io", &["netstack"]),
    // The control node reads ELF files with the kernel's own loader, so that both agree on what is
    // a program; that loader is pure logic.
    (
        "hearth-control",
        &[
            "hearth-abi",
            "hearth-alloc",
            "hearth-boot",
            "hearth-io",
            "hearth-monitor",
            "hearth-power",
            "hearth-qemu",
            "hearth-store",
            // Its tests: the browser that looks at the page.
            "hearth-tests",
            "kernel-core",
            "netstack",
        ],
    ),
    ("xtask", &[]),
    ("hearth-tests", &["hearth-abi", "kernel-core", "netstack"]),
    ("hearth-test-programs", &[]),
];

/// Asks cargo for all dependencies and compares.
pub fn check(workspace: &Workspace) -> Result<Vec<Rule>> {
    let metadata = output_of(workspace.cargo().args([
        "metadata",
        "--format-version",
        "1",
        "--no-deps",
        "--offline",
    ]))?;
    let metadata: Value =
        serde_json::from_str(&metadata).context("`cargo metadata` printed no JSON")?;
    let crates = crates(&metadata).context("`cargo metadata` looks different than expected")?;
    Ok(compare(&crates))
}

/// Names of the workspace's crates and of those among their dependencies that have a path.
fn crates(metadata: &Value) -> Option<BTreeMap<String, Vec<String>>> {
    let mut crates = BTreeMap::new();
    for package in metadata["packages"].as_array()? {
        let mut uses = Vec::new();
        for dependency in package["dependencies"].as_array()? {
            if dependency["path"].is_string() {
                uses.push(dependency["name"].as_str()?.to_owned());
            }
        }
        crates.insert(package["name"].as_str()?.to_owned(), uses);
    }
    Some(crates)
}

fn compare(crates: &BTreeMap<String, Vec<String>>) -> Vec<Rule> {
    let mut unknown = Vec::new();
    let mut wrong = Vec::new();
    for (name, uses) in crates {
        let Some((_, allowed)) = ALLOWED.iter().find(|(known, _)| known == name) else {
            unknown.push(format!(
                "{name}: say in tools/xtask/src/structure/dependencies.rs what it may use"
            ));
            continue;
        };
        for used in uses {
            if !allowed.contains(&used.as_str()) {
                wrong.push(format!(
                    "{name} uses {used}; it may use: {}",
                    allowed.join(", ")
                ));
            }
        }
    }
    vec![
        Rule {
            text: "every crate has its place in the order of dependencies",
            violations: unknown,
        },
        Rule {
            text: "dependencies point in the allowed direction",
            violations: wrong,
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_uses_the_kernel_is_found() {
        let metadata = serde_json::json!({ "packages": [
            { "name": "hearth-boot", "dependencies": [
                { "name": "kernel", "path": "/x/kernel" },
                { "name": "netstack", "path": "/x/netstack" },
                { "name": "tokio" },
            ] },
            { "name": "novel", "dependencies": [] },
        ] });
        let rules = compare(&crates(&metadata).unwrap());
        assert_eq!(rules[0].violations.len(), 1);
        assert_eq!(
            rules[1].violations,
            ["hearth-boot uses kernel; it may use: netstack"]
        );
    }

    #[test]
    fn the_allowed_order_has_no_cycle() {
        // A crate is placed when all it may use is placed; a cycle would leave some over.
        let mut placed: Vec<&str> = Vec::new();
        for _ in ALLOWED {
            for (name, uses) in ALLOWED {
                if !placed.contains(name) && uses.iter().all(|used| placed.contains(used)) {
                    placed.push(name);
                }
            }
        }
        assert_eq!(placed.len(), ALLOWED.len());
    }
}
