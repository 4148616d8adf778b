//! Links and paths in the documentation lead somewhere.
//!
//! Purpose: every relative link of a Markdown file, and every path of this source tree that one
//! names in a code span, exists. Key type: [`Named`]. Neighbours: [`super::commands`] does the
//! same for commands.
//!
//! Invariant: what is built (`target/...`) or is a pattern (`*`, `...`) is not looked for.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Rule;
use crate::workspace::{Workspace, output_of};

/// Where a path in a code span begins when it is one of this source tree.
const FOLDERS: [&str; 7] = [
    "kernel/",
    "bootimage/",
    "netstack/",
    "tools/",
    "qemu/",
    "tests/",
    "docs/",
];

/// Something a document names.
#[derive(Debug, PartialEq, Eq)]
enum Named<'a> {
    /// Relative to the document.
    Link(&'a str),
    /// Relative to the root of the source tree.
    Path(&'a str),
}

/// Looks for all links and paths of all documents that git knows or would add.
pub fn check(workspace: &Workspace) -> Result<Vec<Rule>> {
    let mut git = std::process::Command::new("git");
    git.current_dir(workspace.root());
    git.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        "*.md",
    ]);
    let mut missing = Vec::new();
    for document in output_of(&mut git)?.lines() {
        let path = workspace.root().join(document);
        if !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(&path).with_context(|| format!("reading {document}"))?;
        let folder = path.parent().unwrap_or(workspace.root());
        missing.extend(
            dangling(&text, folder, workspace.root())
                .into_iter()
                .map(|target| format!("{document}: {target}")),
        );
    }
    Ok(vec![Rule {
        text: "links and paths in the documentation exist",
        violations: missing,
    }])
}

/// What a document names that does not exist.
fn dangling(document: &str, folder: &Path, root: &Path) -> Vec<String> {
    let exists = |named: &Named| match named {
        Named::Link(target) => folder.join(target).exists(),
        Named::Path(path) => root.join(path).exists(),
    };
    let missing = named(document).into_iter().filter(|named| !exists(named));
    missing
        .map(|(Named::Link(text) | Named::Path(text))| text.to_owned())
        .collect()
}

fn named(document: &str) -> Vec<Named<'_>> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        // Blocks show commands and files, not links.
        if fenced || line.starts_with("    ") {
            continue;
        }
        // Code spans are every second part between backquotes.
        let spans = line.split('`').skip(1).step_by(2);
        found.extend(spans.filter_map(path_in_span).map(Named::Path));
        found.extend(links(line).map(Named::Link));
    }
    found
}

/// Targets of the links of a line that are files: no addresses, no places within a document.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| {
        let target = rest.split(')').next()?;
        let file = target.split('#').next()?;
        (!file.is_empty() && !file.contains("://") && !file.starts_with("mailto:")).then_some(file)
    })
}

fn path_in_span(span: &str) -> Option<&str> {
    let is_path = FOLDERS.iter().any(|folder| span.starts_with(folder))
        && span
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c))
        && !span.contains("...");
    is_path.then_some(span)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_exist_is_found() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs/adr")).unwrap();
        fs::write(root.path().join("docs/abi.md"), "").unwrap();
        let document = "[abi](abi.md#calls), [`gone`](gone.md), [web](https://x.example/y.md), \
                        [here](#part), [up](../docs/adr/)\n`docs/adr/` `docs/none/` `tests/*.c` \
                        `cargo test`\n    [block](no.md) `docs/no/`\n";
        let missing = dangling(document, &root.path().join("docs"), root.path());
        assert_eq!(missing, ["gone.md", "docs/none/"]);
    }
}
