//! `cargo xtask test --full`: what takes too long for every run, piece by piece.
//!
//! A part is divided into pieces of some minutes. What came of a piece is written down when it
//! ends, in `target/full.json`: a run that was interrupted goes on where it was, and several runs
//! share the pieces out (`--shard`). At the end of a run the sums are written into
//! `tests/full.json`, which is kept in the repository.
//!
//! Key types: [`Full`], [`Shard`], [`Piece`]. Neighbours: [`super`] runs parts, [`super::mutants`]
//! and the modules `fuzz`, `sim` and `package` do the work.
//!
//! Invariants: a piece that passed is not run again at the same commit. What is written down is of
//! the commit that is checked out, without other changes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::checks::Checks;
use super::schedule::{Kind, Task};
use super::{Name, Options, Part, mutants, number_of};
use crate::limited;
use crate::package;
use crate::workspace::{Workspace, output_of};

/// The sums of the last run, by part.
const RESULT: &str = "tests/full.json";
/// Below the build directory: what came of every piece.
const PIECES: &str = "full.json";
/// Seeds of a piece of the kernel's tests. Those below are in every run of the tests.
const KERNEL_SEEDS: u64 = 20;
/// Each fuzz target is run for so long.
const FUZZ_SECONDS: u32 = 600;
/// A piece of a soak, in minutes.
const SOAK_MINUTES: u64 = 15;
/// Seeds of the pieces of a soak are so far apart: none runs another's.
const SOAK_APART: u64 = 1 << 24;
/// The parts, with the number of their pieces.
const PARTS: [(Part, u32); 5] = [
    (Part::Package, 1),
    (Part::Kernel, 9),
    (Part::Fuzz, crate::fuzz::TARGETS.len() as u32),
    (Part::Soak, 8),
    (Part::Mutants, 12),
];

/// Of so many runs this one: `2/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    number: u32,
    of: u32,
}

impl Shard {
    /// A run that does everything.
    pub const WHOLE: Self = Self { number: 1, of: 1 };
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('/').and_then(|(number, of)| {
            let (number, of) = (number.parse().ok()?, of.parse().ok()?);
            (1..=of).contains(&number).then_some(Self { number, of })
        });
        parsed.ok_or_else(|| format!("`{text}` is no share: write NUMBER/OF, as in 1/3"))
    }
}

/// What came of a piece.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    part: String,
    piece: u32,
    checks: Checks,
}

/// What came of the pieces of one commit.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    commit: String,
    pieces: Vec<Piece>,
}

impl Kept {
    /// What is kept of this commit; nothing if it is another's.
    fn read(path: &Path, commit: &str) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        let kept: Self = serde_json::from_str(&text).unwrap_or_default();
        match kept.commit == commit {
            true => kept,
            false => Self {
                commit: commit.to_owned(),
                pieces: Vec::new(),
            },
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write(path, &text)
    }

    fn put(&mut self, piece: Piece) {
        self.pieces
            .retain(|other| (&other.part, other.piece) != (&piece.part, piece.piece));
        self.pieces.push(piece);
    }

    fn of(&self, part: &str) -> impl Iterator<Item = &Piece> {
        self.pieces.iter().filter(move |piece| piece.part == part)
    }

    /// The sum over the pieces of a part, and their number.
    fn sum(&self, part: &str) -> (Checks, u32) {
        let mut sum = (Checks::default(), 0);
        for piece in self.of(part) {
            sum.0.add(piece.checks.clone());
            sum.1 += 1;
        }
        sum
    }

    fn has_passed(&self, part: &str, piece: u32) -> bool {
        self.of(part)
            .any(|kept| kept.piece == piece && kept.checks.failed == 0)
    }
}

/// A part's line of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Row {
    part: String,
    commit: String,
    /// How many of its pieces were run.
    pieces: u32,
    of: u32,
    passed: u64,
    failed: u64,
}

/// A full run.
pub struct Full<'a> {
    workspace: &'a Workspace,
    commit: String,
    shard: Shard,
    kept: Mutex<Kept>,
}

impl<'a> Full<'a> {
    /// # Errors
    /// There are changes that are in no commit.
    pub fn begin(workspace: &'a Workspace, shard: Shard) -> Result<Self> {
        let git = |arguments: &[&str]| {
            let mut git = Command::new("git");
            // The result is no change.
            let result = format!(":!{RESULT}");
            git.current_dir(workspace.root()).args(arguments);
            output_of(git.args(["--", ".", &result])).context("results are kept by commit")
        };
        let changed = git(&["status", "--porcelain"])?;
        ensure!(
            changed.is_empty(),
            "results are kept by commit, and these changes are in none: commit them or set them \
             aside (`git stash -u`)\n{changed}"
        );
        let commit = git(&["log", "-1", "--format=%h", "--abbrev=12"])?;
        let kept = Kept::read(&workspace.target().join(PIECES), &commit);
        Ok(Self {
            workspace,
            commit,
            shard,
            kept: Mutex::new(kept),
        })
    }

    /// The tasks of these parts, and before them what compiles for them.
    ///
    /// # Errors
    /// None of these is divided into pieces.
    pub fn tasks<'t>(
        &'t self,
        parts: impl Iterator<Item = Part>,
        options: &'t Options,
    ) -> Result<Vec<Task<'t, Name>>> {
        let mut needs = Vec::new();
        let mut tasks = Vec::new();
        for part in parts.filter(|part| pieces(*part) > 0) {
            let needed = match &self.left(part)[..] {
                [] => Vec::new(),
                _ => part.needs(),
            };
            needs.extend_from_slice(&needed);
            tasks.push(Task {
                name: (part, Kind::Runs),
                kind: Kind::Runs,
                needs: needed,
                body: Box::new(move || self.run(part).map(Some)),
            });
        }
        ensure!(
            !tasks.is_empty(),
            "a full run has other parts: {}",
            PARTS.map(|(part, _)| part.label()).join(", ")
        );
        let compiling = Part::value_variants().iter();
        let compiling = compiling.flat_map(|part| part.tasks(self.workspace, options));
        let mut all: Vec<_> = compiling
            .filter(|task| needs.contains(&task.name))
            .collect();
        all.append(&mut tasks);
        Ok(all)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("nobody panics who has it")
    }

    /// The pieces of a part that are left to this run.
    fn left(&self, part: Part) -> Vec<u32> {
        left(&self.kept(), self.shard, part)
    }

    /// Runs what is left of a part; the sum of that and of what was run before at this commit.
    fn run(&self, part: Part) -> Result<Checks> {
        let (label, of) = (part.label(), pieces(part));
        let left = self.left(part);
        if part == Part::Mutants && !left.is_empty() {
            mutants::expect_installed(self.workspace)?;
        }
        for piece in left {
            let number = piece + 1;
            limited::say(label, &format!("piece {number} of {of}"));
            let checks = self.work(part, piece).unwrap_or_else(|error| {
                let what = format!("FAILED  piece {number}: {error:#}");
                limited::say(label, &what);
                let mut checks = Checks::default();
                checks.fail(what);
                checks
            });
            let mut kept = self.kept();
            kept.put(Piece {
                part: label.to_owned(),
                piece,
                checks,
            });
            kept.write(&self.workspace.target().join(PIECES))?;
        }
        let (sum, pieces) = self.kept().sum(label);
        limited::say(label, &format!("{pieces} of {of} pieces were run"));
        Ok(sum)
    }

    fn work(&self, part: Part, piece: u32) -> Result<Checks> {
        let workspace = self.workspace;
        match part {
            Part::Package => {
                package::container::test(&workspace.shipped())?;
                let mut checks = Checks::default();
                checks.pass();
                Ok(checks)
            }
            Part::Kernel => {
                let from = KERNEL_SEEDS * u64::from(piece + 1);
                super::kernel::run(workspace, Some(&(from..from + KERNEL_SEEDS)))
            }
            Part::Fuzz => {
                let target = crate::fuzz::TARGETS[piece as usize];
                crate::fuzz::check(workspace, &[target], FUZZ_SECONDS)
            }
            Part::Soak => soak(
                workspace,
                number_of(&self.commit) + SOAK_APART * u64::from(piece),
            ),
            Part::Mutants => mutants::run(workspace, piece, pieces(part)),
            _ => bail!("{} is no part of a full run", part.label()),
        }
    }

    /// Writes the sums of all parts of which something was run at this commit.
    pub fn end(&self) -> Result<()> {
        let kept = self.kept();
        let path = self.workspace.root().join(RESULT);
        let before = fs::read_to_string(&path).unwrap_or_default();
        write(&path, &result(&before, &kept)?)
    }
}

/// Prints the result that is kept; the sum of all parts.
pub fn tell(workspace: &Workspace) -> Result<Checks> {
    let text = fs::read_to_string(workspace.root().join(RESULT))
        .with_context(|| format!("{RESULT} is written by `cargo xtask test --full`"))?;
    println!("  part       commit        pieces  passed  failed");
    let mut totals = Checks::default();
    for row in rows_of(&text)? {
        let Row {
            part,
            commit,
            passed,
            failed,
            ..
        } = &row;
        let pieces = format!("{}/{}", row.pieces, row.of);
        println!("  {part:<9}  {commit}  {pieces:>6}  {passed:>6}  {failed:>6}");
        totals.passed += passed;
        totals.failed += failed;
    }
    Ok(totals)
}

fn pieces(part: Part) -> u32 {
    let found = PARTS.iter().find(|(other, _)| *other == part);
    found.map_or(0, |(_, pieces)| *pieces)
}

/// The pieces of a part that are left to a share. All pieces of all parts are dealt out in turn.
fn left(kept: &Kept, shard: Shard, part: Part) -> Vec<u32> {
    let before = PARTS.iter().take_while(|(other, _)| *other != part);
    let first: u32 = before.map(|(_, pieces)| *pieces).sum();
    let is_mine = |piece: &u32| (first + piece) % shard.of == shard.number - 1;
    let mine = (0..pieces(part)).filter(is_mine);
    mine.filter(|piece| !kept.has_passed(part.label(), *piece))
        .collect()
}

fn row(kept: &Kept, part: Part) -> Row {
    let (sum, run) = kept.sum(part.label());
    Row {
        part: part.label().to_owned(),
        commit: kept.commit.clone(),
        pieces: run,
        of: pieces(part),
        passed: sum.passed,
        failed: sum.failed,
    }
}

fn rows_of(text: &str) -> Result<Vec<Row>> {
    serde_json::from_str(text).with_context(|| format!("{RESULT} is no list of parts"))
}

/// The result with the sums of what is kept in the place of earlier ones; a part a line.
fn result(before: &str, kept: &Kept) -> Result<String> {
    let before = match before {
        "" => Vec::new(),
        text => rows_of(text)?,
    };
    let rows = PARTS.iter().filter_map(|(part, _)| {
        let row = row(kept, *part);
        let earlier = before.iter().find(|earlier| earlier.part == row.part);
        match row.pieces {
            0 => earlier.cloned(),
            _ => Some(row),
        }
    });
    let lines: Result<Vec<_>, _> = rows.map(|row| serde_json::to_string(&row)).collect();
    Ok(format!("[\n  {}\n]\n", lines?.join(",\n  ")))
}

/// Writes a file whole: one that is interrupted leaves the file as it was.
fn write(path: &Path, text: &str) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("writing {}", path.display()))
}

/// Runs random scenarios from this seed on.
pub fn soak(workspace: &Workspace, seed: u64) -> Result<Checks> {
    let mut command = crate::sim::command(workspace);
    let hours = SOAK_MINUTES as f64 / 60.0;
    command.args(["soak", "--hours", &hours.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    // Runs that have begun come to their end.
    let limit = Duration::from_secs(SOAK_MINUTES * 60 * 2);
    super::run_counted(&mut command, Part::Soak, limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(part: Part, piece: u32, passed: u64, failed: u64) -> Piece {
        let part = part.label().to_owned();
        let checks = Checks {
            passed,
            failed,
            what_failed: vec!["x".into(); failed as usize],
        };
        Piece {
            part,
            piece,
            checks,
        }
    }

    fn kept(commit: &str, pieces: &[Piece]) -> Kept {
        Kept {
            commit: commit.to_owned(),
            pieces: pieces.to_vec(),
        }
    }

    #[test]
    fn shares_have_every_piece_once() {
        let nothing = kept("c", &[]);
        for of in 1..=5 {
            for (part, pieces) in PARTS {
                let shards = (1..=of).map(|number| Shard { number, of });
                let lists: Vec<_> = shards.map(|shard| left(&nothing, shard, part)).collect();
                let mut all = lists.concat();
                all.sort_unstable();
                assert_eq!(all, (0..pieces).collect::<Vec<_>>());
                let sizes = lists.iter().map(Vec::len);
                let (least, most) = (sizes.clone().min(), sizes.max());
                assert!(most <= least.map(|least| least + 1), "{lists:?}");
            }
        }
        assert_eq!("2/3".parse(), Ok(Shard { number: 2, of: 3 }));
        for wrong in ["0/3", "4/3", "1", "1/0", "a/b", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_passed_is_not_run_again_at_the_same_commit_and_what_failed_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kept.json");
        let pieces = [
            piece(Part::Soak, 0, 9, 0),
            piece(Part::Soak, 2, 8, 1),
            piece(Part::Kernel, 1, 4, 0),
        ];
        kept("c", &pieces).write(&file).unwrap();
        let mut here = Kept::read(&file, "c");
        assert_eq!(left(&here, Shard::WHOLE, Part::Soak), [1, 2, 3, 4, 5, 6, 7]);
        here.put(piece(Part::Soak, 2, 9, 0));
        assert_eq!(left(&here, Shard::WHOLE, Part::Soak), [1, 3, 4, 5, 6, 7]);
        assert_eq!(here.pieces.len(), 3);
        assert_eq!(
            left(&Kept::read(&file, "d"), Shard::WHOLE, Part::Soak).len(),
            8
        );
        // Half of a file is nothing.
        fs::write(&file, "{\"commit\": \"c\", ").unwrap();
        assert_eq!(Kept::read(&file, "c"), kept("c", &[]));
    }

    #[test]
    fn the_result_sums_pieces_up_and_leaves_parts_alone_that_were_not_run() {
        let first = kept(
            "c",
            &[piece(Part::Fuzz, 0, 1, 0), piece(Part::Soak, 0, 9, 0)],
        );
        let before = result("", &first).unwrap();
        let then = kept(
            "d",
            &[piece(Part::Soak, 1, 7, 2), piece(Part::Soak, 4, 3, 0)],
        );
        let rows = rows_of(&result(&before, &then).unwrap()).unwrap();
        let [fuzz, soak] = &rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!((fuzz.part.as_str(), fuzz.commit.as_str()), ("fuzz", "c"));
        assert_eq!((soak.commit.as_str(), soak.pieces, soak.of), ("d", 2, 8));
        assert_eq!((soak.passed, soak.failed), (10, 2));
        assert!(result("no list", &then).is_err());
    }
}
