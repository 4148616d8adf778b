//! Documents are short lines of plain text that say what is.
//!
//! Purpose: the README's length, the width of lines, and no history in documents: neither dates nor
//! what something was before, which git knows. Neighbours: [`super::links`] and
//! [`super::commands`] check what documents name.
//!
//! Decisions (`docs/adr/`) have a date and say what they replace: of them only the width is looked
//! at.
//!
//! Invariant: tables, headings, blocks and a line of a single word are as wide as they are: nothing
//! could wrap them.

use std::fs;

use anyhow::{Context, Result};

use super::Rule;
use super::commands::documents;
use crate::workspace::Workspace;

/// Longest README, in lines.
const README_MAX_LINES: usize = 120;
/// Widest line, in characters.
const MAX_COLUMNS: usize = 100;
/// Where decisions are kept.
const DECISIONS: &str = "docs/adr/";
/// Phrases of a diary.
const DIARY: [&str; 5] = [
    "(before ",
    "| before |",
    "earlier engine",
    "before the last change",
    "was tried",
];

/// Reads all documents and applies the rules.
pub fn check(workspace: &Workspace) -> Result<Vec<Rule>> {
    let mut rules = [
        "the README has at most 120 lines: move what is longer into docs/",
        "lines of documents have at most 100 columns (tables and blocks excepted)",
        "documents have no dates outside of examples: history is git's",
        "documents say what is, not what was before",
    ]
    .map(|text| Rule {
        text,
        violations: vec![],
    });
    for document in documents(workspace)?
        .into_iter()
        .chain(decisions(workspace)?)
    {
        let path = workspace.root().join(&document);
        let text = fs::read_to_string(path).with_context(|| format!("reading {document}"))?;
        let [long, wide, dated, diary] = &mut rules;
        let lines = text.lines().count();
        if document == "README.md" && lines > README_MAX_LINES {
            long.violations.push(format!("{document}: {lines} lines"));
        }
        for (number, line) in prose(&text) {
            let place = format!("{document}:{number}");
            let columns = line.chars().count();
            if columns > MAX_COLUMNS && can_be_wrapped(line) {
                wide.violations.push(format!("{place}: {columns} columns"));
            }
            if document.starts_with(DECISIONS) {
                continue;
            }
            if has_date(line) {
                dated.violations.push(place.clone());
            }
            if let Some(phrase) = DIARY.iter().find(|phrase| line.contains(**phrase)) {
                diary.violations.push(format!("{place}: {phrase:?}"));
            }
        }
    }
    Ok(rules.into())
}

/// The records of decisions.
fn decisions(workspace: &Workspace) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(workspace.root().join(DECISIONS)).context("reading docs/adr/")?;
    for entry in entries {
        let name = entry.context("reading docs/adr/")?.file_name();
        found.push(format!("{DECISIONS}{}", name.to_string_lossy()));
    }
    found.sort();
    Ok(found)
}

/// The lines of a document that are no blocks, with their numbers from 1.
fn prose(document: &str) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    let mut fenced = false;
    let mut after_blank = true;
    let mut in_block = false;
    for (index, line) in document.lines().enumerate() {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        // An indented line after a blank one begins a block; behind text it continues a list.
        in_block = line.starts_with("    ") && (after_blank || in_block);
        after_blank = line.trim().is_empty();
        if !fenced && !is_fence && !in_block {
            lines.push((index + 1, line));
        }
    }
    lines
}

fn can_be_wrapped(line: &str) -> bool {
    let is_single_word = !line.trim_start_matches(['-', ' ']).contains(' ');
    !line.starts_with(['|', '#']) && !is_single_word
}

/// Whether `2026-11-21` or the like stands outside of code spans.
fn has_date(line: &str) -> bool {
    // Code spans are every second part between backquotes.
    line.split('`').step_by(2).any(|text| {
        text.as_bytes().windows(10).any(|ten| {
            ten.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_finds_its_violation_and_no_other() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        fs::create_dir_all(root.path().join(DECISIONS)).unwrap();
        let decision = "Status: accepted, 2026-11-21. It takes 1.03 (before 1.07).";
        fs::write(root.path().join("docs/adr/0001-x.md"), decision).unwrap();
        fs::write(root.path().join("ARCHITECTURE.md"), "").unwrap();
        let broken = |text: &str| {
            fs::write(root.path().join("README.md"), text).unwrap();
            let rules = check(&workspace).unwrap();
            let broken = (0..rules.len()).filter(|&rule| !rules[rule].violations.is_empty());
            broken.collect::<Vec<usize>>()
        };
        let wide = "word ".repeat(30);
        assert_eq!(broken("One idea a sentence.\n"), [0; 0]);
        assert_eq!(broken(&"x\n".repeat(README_MAX_LINES + 1)), [0]);
        assert_eq!(broken(&wide), [1]);
        assert_eq!(broken(&format!("- item\n    {wide}")), [1]);
        assert_eq!(broken("Measured on 2026-11-21."), [2]);
        assert_eq!(broken("It takes 1.03 (before 1.07)."), [3]);
        // What nothing could wrap, and examples.
        for text in [
            format!("| {wide} |"),
            format!("text\n\n    {wide}\n"),
            format!("```\n{wide}\n```\n"),
            "x".repeat(MAX_COLUMNS + 1),
            "Write `2026-11-21`.".to_owned(),
        ] {
            assert_eq!(broken(&text), [0; 0], "{text}");
        }
    }
}
