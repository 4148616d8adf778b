//! `cargo xtask test --full`: what takes too long for every run, piece by piece.
//!
//! A part is divided into pieces of some minutes. What came of a piece is written down when it
//! ends, in `target/full.json`: a run that was interrupted goes on where it was, and several runs
//! share the pieces out (`--shard`), one after the other or at once. At the end of a run the sums
//! are written into `tests/full.json`, which is kept in the repository.
//!
//! Key types: [`Full`], [`Shard`], [`Piece`]. Neighbours: [`super`] runs parts, [`super::mutants`]
//! and the modules `fuzz`, `sim` and `package` do the work.
//!
//! Invariants: a piece that passed is not run again at the same commit, and one that counted no
//! check has not passed. What is written down of a piece names the commit that was checked out,
//! without other changes, from its beginning to its end. Both files change under one lock, and what
//! others have written meanwhile is read before.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
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
/// Below the build directory: what came of every piece, and the file that whoever changes a result
/// has locked.
const PIECES: &str = "full.json";
const LOCK: &str = "full.lock";
/// Pieces of so many commits are kept: those of the last ones of which something was run.
const COMMITS_MOST: usize = 8;
/// Seeds of a piece of the kernel's tests. Those below are in every run of the tests.
const KERNEL_SEEDS: u64 = 20;
/// Each fuzz target is run for so long.
const FUZZ_SECONDS: u32 = 600;
/// A piece of a soak, in minutes.
const SOAK_MINUTES: u64 = 15;
/// Seeds of the pieces of a soak are so far apart: none runs another's.
const SOAK_APART: u64 = 1 << 24;
/// The network cards that machines of QEMU's can have (`hearth_qemu::Card`), each a piece of the
/// end-to-end scenarios and one of the boot tests.
const CARDS: [&str; 5] = ["virtio", "e1000", "e1000e", "igb", "rtl8139"];
/// The boot tests of the cards, by name; a card's name follows.
const TESTS_OF_CARDS: &str = "on_request::cards::";
/// The end-to-end scenarios that can be had with each card, by name.
const SCENARIOS_OF_CARDS: &str = "cards-";
/// The end-to-end scenarios that do more in a long run, by name.
const SCENARIOS_OF_FILES: &str = "files-";
/// The parts, with the number of their pieces.
const PARTS: [(Part, u32); 10] = [
    (Part::Conformance, crate::conformance::PIECES),
    (Part::Mpi, crate::conformance::MPI_PIECES),
    (Part::Package, 1),
    (Part::Qemu, CARDS.len() as u32 + 1),
    (Part::EndToEnd, CARDS.len() as u32 + 1),
    (Part::Kernel, 9),
    (Part::Fuzz, crate::fuzz::TARGETS.len() as u32),
    (Part::Soak, 8),
    (Part::Mutants, 12),
    (Part::KernelMutants, 1),
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

/// What came of a piece at a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Piece {
    commit: String,
    part: String,
    piece: u32,
    checks: Checks,
}

impl Piece {
    fn key(&self) -> (&str, &str, u32) {
        (&self.commit, &self.part, self.piece)
    }
}

/// What came of pieces, in the order in which they ended.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    pieces: Vec<Piece>,
}

impl Kept {
    /// What is kept in a file; nothing if it is not whole.
    fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self)?;
        write(path, &text)
    }

    fn put(&mut self, piece: Piece) {
        self.pieces.retain(|other| other.key() != piece.key());
        self.pieces.push(piece);
        let mut newest: Vec<String> = Vec::new();
        for Piece { commit, .. } in self.pieces.iter().rev() {
            if !newest.contains(commit) && newest.len() < COMMITS_MOST {
                newest.push(commit.clone());
            }
        }
        self.pieces.retain(|piece| newest.contains(&piece.commit));
    }

    /// The pieces of a part that were run at a commit.
    fn of<'a>(&'a self, commit: &'a str, part: &'a str) -> impl Iterator<Item = &'a Piece> {
        let pieces = self.pieces.iter();
        pieces.filter(move |piece| piece.commit == commit && piece.part == part)
    }

    /// The sum over the pieces of a part, and their number.
    fn sum(&self, commit: &str, part: &str) -> (Checks, u32) {
        let mut sum = (Checks::default(), 0);
        for piece in self.of(commit, part) {
            sum.0.add(piece.checks.clone());
            sum.1 += 1;
        }
        sum
    }

    fn has_passed(&self, commit: &str, part: &str, piece: u32) -> bool {
        let mut kept = self.of(commit, part);
        let has_passed = |checks: &Checks| checks.failed == 0 && checks.passed > 0;
        kept.any(|kept| kept.piece == piece && has_passed(&kept.checks))
    }
}

/// The files with the results, for several runs at once.
struct Results {
    pieces: PathBuf,
    sums: PathBuf,
    lock: PathBuf,
}

impl Results {
    fn of(workspace: &Workspace) -> Self {
        Self {
            pieces: workspace.target().join(PIECES),
            sums: workspace.root().join(RESULT),
            lock: workspace.target().join(LOCK),
        }
    }

    /// Waits until no other run changes a result; none does until the file is closed.
    fn locked(&self) -> Result<File> {
        let opened = File::create(&self.lock);
        let locked = opened.and_then(|file| file.lock().map(|()| file));
        locked.with_context(|| format!("locking {}", self.lock.display()))
    }

    fn read(&self) -> Kept {
        Kept::read(&self.pieces)
    }

    /// Adds what came of a piece to what all runs have kept.
    fn put(&self, piece: Piece) -> Result<()> {
        let _locked = self.locked()?;
        let mut kept = self.read();
        kept.put(piece);
        kept.write(&self.pieces)
    }

    /// Writes the sums of all parts of which something was run at this commit.
    fn write_sums(&self, commit: &str) -> Result<()> {
        let _locked = self.locked()?;
        let before = fs::read_to_string(&self.sums).unwrap_or_default();
        write(&self.sums, &result(&before, &self.read(), commit)?)
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
    results: Results,
}

impl<'a> Full<'a> {
    /// # Errors
    /// There are changes that are in no commit.
    pub fn begin(workspace: &'a Workspace, shard: Shard) -> Result<Self> {
        let results = Results::of(workspace);
        let commit = commit(workspace)?;
        Ok(Self {
            workspace,
            commit,
            shard,
            results,
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

    /// The pieces of a part that are left to this run.
    fn left(&self, part: Part) -> Vec<u32> {
        left(&self.results.read(), &self.commit, self.shard, part)
    }

    /// Runs what is left of a part; the sum of all that was run of it at this commit.
    fn run(&self, part: Part) -> Result<Checks> {
        let (label, of) = (part.label(), pieces(part));
        let left = self.left(part);
        if part == Part::Mutants && !left.is_empty() {
            mutants::expect_installed(self.workspace)?;
        }
        for piece in left {
            let number = piece + 1;
            // Another run may have done it meanwhile.
            if !self.left(part).contains(&piece) {
                continue;
            }
            if let Some(card) = card_of(part, piece)
                && !super::kernel::has_card(card)?
            {
                let text = format!("not run: piece {number} of {of}, this QEMU has no {card}");
                limited::say(label, &text);
                continue;
            }
            limited::say(label, &format!("piece {number} of {of}"));
            let done = self.work(part, piece).and_then(expect_some);
            let checks = done.unwrap_or_else(|error| {
                let what = format!("FAILED  piece {number}: {error:#}");
                limited::say(label, &what);
                let mut checks = Checks::default();
                checks.fail(what);
                checks
            });
            let now = commit(self.workspace)?;
            ensure!(
                now == self.commit,
                "{now} is checked out, and this run is of {}: piece {number} does not count",
                self.commit
            );
            self.results.put(Piece {
                commit: now,
                part: label.to_owned(),
                piece,
                checks,
            })?;
        }
        let (sum, pieces) = self.results.read().sum(&self.commit, label);
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
            Part::Qemu => match card_of(part, piece) {
                None => super::qemu(workspace, &[super::ON_REQUEST], &[TESTS_OF_CARDS]),
                Some(card) => super::qemu(workspace, &[&format!("{TESTS_OF_CARDS}{card}::")], &[]),
            },
            Part::Conformance => crate::conformance::check_piece(workspace, piece),
            Part::Mpi => {
                crate::build::mpi::build(workspace)?;
                crate::conformance::check_mpi_piece(workspace, piece)
            }
            Part::EndToEnd => match card_of(part, piece) {
                None => super::end_to_end(workspace, &["--long", SCENARIOS_OF_FILES]),
                Some(card) => super::end_to_end(workspace, &["--nic", card, SCENARIOS_OF_CARDS]),
            },
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
            Part::KernelMutants => mutants::kernel::run(workspace),
            _ => bail!("{} is no part of a full run", part.label()),
        }
    }

    /// Writes the sums of all parts of which something was run at this commit.
    ///
    /// # Errors
    /// A file cannot be locked or written, or holds no such sums.
    pub fn end(&self) -> Result<()> {
        self.results.write_sums(&self.commit)
    }
}

/// The commit that is checked out.
///
/// # Errors
/// There are changes that are in none, or there is no git.
fn commit(workspace: &Workspace) -> Result<String> {
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
        "results are kept by commit, and these changes are in none: commit them or set them aside \
         (`git stash -u`)\n{changed}"
    );
    git(&["log", "-1", "--format=%h", "--abbrev=12"])
}

/// # Errors
/// Nothing was counted: nothing has passed.
fn expect_some(checks: Checks) -> Result<Checks> {
    ensure!(checks.passed + checks.failed > 0, "it ran nothing");
    Ok(checks)
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

/// The network card that a piece is about.
fn card_of(part: Part, piece: u32) -> Option<&'static str> {
    let card = match part {
        // The first piece is what else is run on request.
        Part::Qemu | Part::EndToEnd => piece.checked_sub(1)?,
        _ => return None,
    };
    CARDS.get(card as usize).copied()
}

/// The pieces of a part that are left to a share. All pieces of all parts are dealt out in turn.
fn left(kept: &Kept, commit: &str, shard: Shard, part: Part) -> Vec<u32> {
    let before = PARTS.iter().take_while(|(other, _)| *other != part);
    let first: u32 = before.map(|(_, pieces)| *pieces).sum();
    let is_mine = |piece: &u32| (first + piece) % shard.of == shard.number - 1;
    let mine = (0..pieces(part)).filter(is_mine);
    mine.filter(|piece| !kept.has_passed(commit, part.label(), *piece))
        .collect()
}

fn row(kept: &Kept, commit: &str, part: Part) -> Row {
    let (sum, run) = kept.sum(commit, part.label());
    Row {
        part: part.label().to_owned(),
        commit: commit.to_owned(),
        pieces: run,
        of: pieces(part),
        passed: sum.passed,
        failed: sum.failed,
    }
}

fn rows_of(text: &str) -> Result<Vec<Row>> {
    serde_json::from_str(text).with_context(|| format!("{RESULT} is no list of parts"))
}

/// The result with the sums of what is kept of this commit in the place of earlier ones; a part a
/// line.
fn result(before: &str, kept: &Kept, commit: &str) -> Result<String> {
    let before = match before {
        "" => Vec::new(),
        text => rows_of(text)?,
    };
    let rows = PARTS.iter().filter_map(|(part, _)| {
        let row = row(kept, commit, *part);
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
mod tests;
