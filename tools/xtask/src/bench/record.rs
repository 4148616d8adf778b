//! The figures that are kept: docs/benchmarks.json, and docs/benchmarks.md made of it.
//!
//! Purpose: a figure is written down with the commit and the machine that it was measured with.
//! Key types: [`Record`], [`Kept`]. Neighbours: [`super::run`] hands over what it measured, and the
//! structure test compares the two files.
//!
//! Invariant: docs/benchmarks.md is [`Record::page`] of docs/benchmarks.json, to the byte. A row
//! that is measured again replaces the one of the same benchmark, case and metric.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::structure::Rule;
use crate::workspace::{Workspace, output_of};

use super::Row;

/// Where the figures are kept.
const DATA: &str = "docs/benchmarks.json";
/// Where people read them.
const PAGE: &str = "docs/benchmarks.md";

const HEAD: &str = "\
# Benchmarks

This page is made of `docs/benchmarks.json` by `cargo xtask bench --write`; do not edit it.
`cargo xtask bench NAME --write` measures, keeps the figures in that file and makes the page anew.
[measuring.md](measuring.md) says what each benchmark measures, and how.

Each row has the commit that recorded it and the machine that it was measured on. A ratio compares
two things that were measured in the same run, on the same machine. Times are those of that machine.
";

/// One figure that is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    bench: String,
    case: String,
    metric: String,
    /// The figure; `None` where it could not be measured fairly.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<f64>,
    /// Why there is no figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    unit: String,
    /// As `<= 1.2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    goal: Option<String>,
    commit: String,
    machine: String,
}

/// All figures that are kept, ordered by benchmark, as they were measured within it.
#[derive(Debug, Default)]
pub struct Record {
    rows: Vec<Kept>,
}

impl Record {
    /// Reads what is kept.
    pub fn read(workspace: &Workspace) -> Result<Self> {
        let path = workspace.root().join(DATA);
        let text = fs::read_to_string(path).with_context(|| format!("reading {DATA}"))?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Result<Self> {
        let rows = serde_json::from_str(text)
            .with_context(|| format!("{DATA} is no list of rows, as bench/record.rs has them"))?;
        Ok(Self { rows })
    }

    /// Takes measured rows in, in the place of those that were measured before.
    pub fn take(&mut self, workspace: &Workspace, bench: &str, rows: &[Row]) -> Result<()> {
        let (commit, machine) = (commit(workspace)?, machine());
        for row in rows {
            self.put(Kept {
                bench: bench.to_owned(),
                case: row.case.clone(),
                metric: row.metric.clone(),
                value: row.value.as_ref().ok().copied(),
                refused: row.value.as_ref().err().cloned(),
                unit: row.unit.to_owned(),
                goal: row.goal.map(|goal| goal.to_string()),
                commit: commit.clone(),
                machine: machine.clone(),
            });
        }
        Ok(())
    }

    fn put(&mut self, row: Kept) {
        let is_same = |kept: &Kept| {
            (&kept.bench, &kept.case, &kept.metric) == (&row.bench, &row.case, &row.metric)
        };
        match self.rows.iter().position(is_same) {
            Some(place) => self.rows[place] = row,
            None => {
                self.rows.push(row);
                // Within a benchmark they stay in their order.
                self.rows.sort_by(|one, other| one.bench.cmp(&other.bench));
            }
        }
    }

    /// Writes both files.
    pub fn write(&self, workspace: &Workspace) -> Result<()> {
        let write = |file: &str, text: String| {
            fs::write(workspace.root().join(file), text).with_context(|| format!("writing {file}"))
        };
        write(DATA, self.data()?)?;
        write(PAGE, self.page())
    }

    /// The data, one row a line, so that a change shows which figures it changes.
    fn data(&self) -> Result<String> {
        let rows = self.rows.iter().map(serde_json::to_string);
        let rows: Vec<String> = rows.collect::<Result<_, _>>()?;
        Ok(format!("[\n{}\n]\n", rows.join(",\n")))
    }

    /// The page: a table for each benchmark.
    fn page(&self) -> String {
        let mut page = HEAD.to_owned();
        let mut bench = "";
        for row in &self.rows {
            if row.bench != bench {
                bench = &row.bench;
                let _ = write!(
                    page,
                    "\n## {bench}\n\n\
                     | case | metric | value | unit | goal | commit | machine |\n\
                     | --- | --- | ---: | --- | --- | --- | --- |\n"
                );
            }
            let value = match (row.value, &row.refused) {
                (Some(value), _) => grouped(value),
                (None, Some(reason)) => format!("refused: {reason}"),
                (None, None) => "-".to_owned(),
            };
            let goal = match (&row.goal, row.meets_goal()) {
                (Some(goal), Some(false)) => format!("{goal}, missed"),
                (Some(goal), _) => goal.clone(),
                (None, _) => String::new(),
            };
            let _ = writeln!(
                page,
                "| {} | {} | {value} | {} | {goal} | {} | {} |",
                row.case, row.metric, row.unit, row.commit, row.machine
            );
        }
        page
    }
}

impl Kept {
    fn meets_goal(&self) -> Option<bool> {
        let (sign, limit) = self.goal.as_deref()?.split_once(' ')?;
        let (value, limit) = (self.value?, limit.parse::<f64>().ok()?);
        Some(match sign {
            ">=" => value >= limit,
            _ => value <= limit,
        })
    }
}

/// The structure test's rule: the page is what the data say.
pub fn check(workspace: &Workspace) -> Result<Rule> {
    let page = fs::read_to_string(workspace.root().join(PAGE))
        .with_context(|| format!("reading {PAGE}"))?;
    let is_made = Record::read(workspace)?.page() == page;
    let violation = || format!("{PAGE}: run `cargo xtask bench --write`");
    Ok(Rule {
        text: "docs/benchmarks.md is what docs/benchmarks.json says",
        violations: (!is_made).then(violation).into_iter().collect(),
    })
}

/// The commit that is measured; a plus sign says that files differed from it.
fn commit(workspace: &Workspace) -> Result<String> {
    let git = |arguments: &[&str]| {
        let mut git = Command::new("git");
        output_of(git.current_dir(workspace.root()).args(arguments))
    };
    let commit = git(&["rev-parse", "--short=7", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    let mark = if changed.is_empty() { "" } else { "+" };
    Ok(format!("{commit}{mark}"))
}

/// What of the machine a figure depends on most.
fn machine() -> String {
    match std::thread::available_parallelism() {
        Ok(processors) => format!("{processors} processors"),
        Err(_) => "processors not known".to_owned(),
    }
}

/// A number with commas between thousands, with at most three digits behind the point.
fn grouped(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let (sign, digits) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut groups = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            groups.push(',');
        }
        groups.push(digit);
    }
    // What is too small for three digits is no zero.
    if value != 0.0 && text.trim_start_matches('-') == "0" {
        return format!("{value}");
    }
    format!("{sign}{groups}{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bench: &str, case: &str, value: f64) -> Kept {
        Kept {
            bench: bench.to_owned(),
            case: case.to_owned(),
            metric: "ratio".to_owned(),
            value: Some(value),
            refused: None,
            unit: "ratio".to_owned(),
            goal: Some("<= 1.2".to_owned()),
            commit: "0123456".to_owned(),
            machine: "2 processors".to_owned(),
        }
    }

    #[test]
    fn a_figure_that_is_measured_again_replaces_the_old_one() {
        let mut record = Record::default();
        for (bench, case, value) in [
            ("call", "a", 1.0),
            ("boot", "a", 2.0),
            ("call", "b", 3.0),
            ("call", "a", 4.0),
        ] {
            record.put(row(bench, case, value));
        }
        let kept = |row: &Kept| (row.bench.clone(), row.case.clone(), row.value);
        let rows: Vec<_> = record.rows.iter().map(kept).collect();
        let wanted = [("boot", "a", 2.0), ("call", "a", 4.0), ("call", "b", 3.0)];
        let wanted =
            wanted.map(|(bench, case, value)| (bench.to_owned(), case.to_owned(), Some(value)));
        assert_eq!(rows, wanted);
        let again = Record::parse(&record.data().unwrap()).unwrap();
        assert_eq!(again.rows, record.rows);
    }

    #[test]
    fn the_page_says_what_misses_its_goal() {
        let mut record = Record::default();
        record.put(row("call", "a", 1.25));
        record.put(row("call", "b", 1.0));
        let mut refused = row("call", "c", 0.0);
        (refused.value, refused.refused) = (None, Some("too busy".to_owned()));
        record.put(refused);
        let page = record.page();
        for line in [
            "| a | ratio | 1.25 | ratio | <= 1.2, missed | 0123456 | 2 processors |",
            "| b | ratio | 1 | ratio | <= 1.2 | 0123456 | 2 processors |",
            "| c | ratio | refused: too busy | ratio | <= 1.2 | 0123456 | 2 processors |",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }

    #[test]
    fn a_page_that_was_edited_is_found() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        fs::create_dir(root.path().join("docs")).unwrap();
        let mut record = Record::default();
        record.put(row("call", "a", 1.0));
        record.write(&workspace).unwrap();
        assert!(check(&workspace).unwrap().violations.is_empty());
        let page = root.path().join(PAGE);
        let text = fs::read_to_string(&page)
            .unwrap()
            .replace("| 1 |", "| 0.9 |");
        fs::write(&page, text).unwrap();
        assert_eq!(check(&workspace).unwrap().violations.len(), 1);
    }

    #[test]
    fn numbers_are_grouped() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.0321, "0.032"),
            (0.00004, "0.00004"),
            (704_512.0, "704,512"),
            (-1_234.5, "-1,234.5"),
            (4_697_758.0, "4,697,758"),
        ] {
            assert_eq!(grouped(value), text);
        }
    }
}
