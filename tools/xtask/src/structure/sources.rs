//! Rules about source files: size, documentation, names, unsafe code, order of iteration.
//!
//! Neighbours: [`super::tokens`] takes comments and literals away before words are looked for.
//!
//! Invariant: only files that git knows or would add are judged.

use std::fs;

use anyhow::{Context, Result};

use super::tokens::code_only;
use super::{Rule, layers};
use crate::workspace::{Workspace, output_of};

/// Longest source file, in lines.
const MAX_LINES: usize = 800;
/// Widest line of a comment, in characters. Code is as rustfmt leaves it.
const MAX_COLUMNS: usize = 100;
/// Where unsafe code may be.
const UNSAFE_ALLOWED: [&str; 5] = [
    "kernel/src/arch/",
    "kernel/src/mm/",
    "kernel/src/drivers/",
    // What programs link enters the kernel and speaks C.
    "kernel/user/",
    "bootimage/stub/",
];
/// Names that say nothing about what a module is for.
const EMPTY_NAMES: [&str; 7] = [
    "common", "util", "utils", "helper", "helpers", "manager", "misc",
];
/// Single-file programs that a compiler sees alone; a comment at their top is enough.
const PROGRAMS: &str = "tests/programs/";

/// One file: its path from the root of the source tree, and its text.
struct Source {
    path: String,
    text: String,
}

/// Reads all Rust sources and applies the rules.
pub fn check(workspace: &Workspace) -> Result<Vec<Rule>> {
    let mut git = std::process::Command::new("git");
    git.current_dir(workspace.root());
    git.args([
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "--",
        "*.rs",
    ]);
    let listing = output_of(&mut git)?;
    let mut sources = Vec::new();
    for path in listing.lines() {
        let file = workspace.root().join(path);
        // Listed and already deleted: nothing to judge.
        if !file.is_file() {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| format!("reading {path}"))?;
        sources.push(Source {
            path: path.to_owned(),
            text,
        });
    }
    Ok(apply(&sources))
}

fn apply(sources: &[Source]) -> Vec<Rule> {
    let mut rules = vec![
        Rule {
            text: "no source file is longer than 800 lines: split it",
            violations: vec![],
        },
        Rule {
            text: "every module begins with its documentation (//!)",
            violations: vec![],
        },
        Rule {
            text: "module names say what they are for",
            violations: vec![],
        },
        Rule {
            text: "unsafe code stays in its modules",
            violations: vec![],
        },
        Rule {
            text: "protocol code has no HashMap (its order breaks replay)",
            violations: vec![],
        },
        Rule {
            text: "lines of comments have at most 100 columns (tables excepted)",
            violations: vec![],
        },
        Rule {
            text: layers::TEXT,
            violations: vec![],
        },
    ];
    for source in sources {
        for (rule, violation) in rules.iter_mut().zip(judge(source)) {
            rule.violations.extend(violation);
        }
        let layers = rules.last_mut().expect("the rule above");
        layers
            .violations
            .extend(layers::violations(&source.path, &source.text));
    }
    rules
}

/// What is wrong with one file, rule by rule.
fn judge(source: &Source) -> [Option<String>; 6] {
    let path = &source.path;
    let lines = source.text.lines().count();
    let code = code_only(&source.text);
    let is_program = path.starts_with(PROGRAMS);
    let name = module_name(path);
    let is_protocol = path.starts_with("netstack/src/");
    [
        (lines > MAX_LINES).then(|| format!("{path}: {lines} lines")),
        // A sibling file of tests belongs to the module beside it.
        (!is_program && name != "tests" && !is_documented(&source.text)).then(|| path.clone()),
        EMPTY_NAMES.contains(&name).then(|| path.clone()),
        UNSAFE_ALLOWED
            .iter()
            .all(|allowed| !path.starts_with(allowed))
            .then(|| first_line_with(&code, "unsafe"))
            .flatten()
            .map(|line| format!("{path}:{line}")),
        is_protocol
            .then(|| first_line_with(&code, "HashMap"))
            .flatten()
            .map(|line| format!("{path}:{line}")),
        first_wide_comment(&source.text).map(|line| format!("{path}:{line}")),
    ]
}

/// Number of the first line that is a comment and too wide.
fn first_wide_comment(text: &str) -> Option<usize> {
    let is_wide = |line: &str| {
        let words = line.trim_start().strip_prefix("//").unwrap_or_default();
        let words = words.trim_start_matches(['/', '!', ' ']);
        let could_be_wrapped = words.contains(' ') && !words.starts_with('|');
        could_be_wrapped && line.chars().count() > MAX_COLUMNS
    };
    text.lines().position(is_wide).map(|index| index + 1)
}

fn module_name(path: &str) -> &str {
    let stem = path.strip_suffix(".rs").unwrap_or(path);
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    stem.rsplit('/').next().unwrap_or(stem)
}

/// Whether documentation comes before anything but attributes of the whole file.
fn is_documented(text: &str) -> bool {
    let first = text
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty() && !line.starts_with("#!["));
    first.is_some_and(|line| line.starts_with("//!"))
}

/// Number of the first line of code that has a word of its own.
fn first_line_with(code: &str, word: &str) -> Option<usize> {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    code.lines()
        .position(|line| {
            line.split(|character| !is_word(character))
                .any(|found| found == word)
        })
        .map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<usize> {
        let source = Source {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let rules = apply(&[source]);
        (0..rules.len())
            .filter(|&rule| !rules[rule].violations.is_empty())
            .collect()
    }

    #[test]
    fn each_rule_finds_its_violation_and_no_other() {
        let good = "//! What it is.\nfn f() {}\n";
        assert_eq!(broken("qemu/src/lib.rs", good), [0; 0]);
        let long = format!("//! x\n{}", "fn f() {}\n".repeat(MAX_LINES));
        assert_eq!(broken("qemu/src/lib.rs", &long), [0]);
        assert_eq!(
            broken("qemu/src/lib.rs", "// not documentation\nfn f() {}"),
            [1]
        );
        assert_eq!(broken("qemu/src/lib.rs", "#![no_std]\n\n//! x\n"), [0; 0]);
        assert_eq!(
            broken("tests/programs/hello.rs", "// a program\nfn main() {}"),
            [0; 0]
        );
        assert_eq!(broken("qemu/src/utils/mod.rs", good), [2]);
        assert_eq!(broken("qemu/src/helpers.rs", good), [2]);
        let unsafe_code = "//! x\nfn f() {\n    unsafe { g() }\n}";
        assert_eq!(broken("qemu/src/lib.rs", unsafe_code), [3]);
        assert_eq!(broken("kernel/src/mm/map.rs", unsafe_code), [0; 0]);
        assert_eq!(
            broken("qemu/src/lib.rs", "//! x\n#![forbid(unsafe_code)]"),
            [0; 0]
        );
        assert_eq!(
            broken("qemu/src/lib.rs", "//! x\n// unsafe\nlet a = \"unsafe\";"),
            [0; 0]
        );
        let map = "//! x\nuse std::collections::HashMap;";
        assert_eq!(broken("netstack/src/join.rs", map), [4]);
        assert_eq!(broken("tools/boot/src/lib.rs", map), [0; 0]);
        let wide = "x".repeat(MAX_COLUMNS - 8);
        let comment = |text: &str| format!("//! x\n    /// {text}{wide}\nfn f() {{}}\n");
        assert_eq!(broken("qemu/src/lib.rs", &comment("a ")), [5]);
        // Nothing could wrap these.
        assert_eq!(broken("qemu/src/lib.rs", &comment("aa")), [0; 0]);
        assert_eq!(broken("qemu/src/lib.rs", &comment("| a ")), [0; 0]);
        let code = format!("//! x\nlet a = \"{wide} {wide}\";");
        assert_eq!(broken("qemu/src/lib.rs", &code), [0; 0]);
    }

    #[test]
    fn a_violation_names_file_and_line() {
        let text = "//! x\n\nfn f() { unsafe {} }";
        let source = Source {
            path: "qemu/src/a.rs".to_owned(),
            text: text.to_owned(),
        };
        assert_eq!(apply(&[source])[3].violations, ["qemu/src/a.rs:3"]);
    }
}
