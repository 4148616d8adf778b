//! Mutants: whether tests notice when the code is changed.
//!
//! `tests/mutants.txt` lists changes of the code. cargo-mutants makes one after the other and runs
//! the tests of the package that it is in. A change that is listed as caught must be: a test fails,
//! or runs out of time.
//!
//! Key type: [`Mutant`]. Neighbours: [`super::full`] runs some of them at a time; [`kernel`] makes
//! changes that only a kernel with several cores, or a certain test, can notice.
//!
//! Invariant: a mutant of which cargo-mutants says nothing has failed.

pub mod kernel;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::checks::Checks;
use crate::limited::{self, Show};
use crate::workspace::{Workspace, describe};

/// What stands before lines of these tests.
const LABEL: &str = "mutants";
/// The list of mutants.
const LIST: &str = "tests/mutants.txt";
/// The folders of the packages whose mutants are in the list.
const PACKAGES: [(&str, &str); 3] = [
    ("kernel/core/", "kernel-core"),
    ("netstack/", "netstack"),
    ("tools/alloc/", "hearth-alloc"),
];
/// Tests of a mutant that do not end: on a quiet machine all of a package's take some seconds.
const TEST_LIMIT_S: u64 = 300;
/// Compiling a package with its tests.
const BUILD_LIMIT_S: u64 = 900;
/// For property tests: the same cases in each run, no search for a smaller case when one fails, and
/// no case that one mutant leaves behind for the next.
const SETTINGS: [(&str, &str); 3] = [
    ("PROPTEST_RNG_SEED", "1"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    ("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "true"),
];
/// Statuses of cargo-mutants: all were caught, some were missed, some ran out of time.
const STATUSES: [i32; 3] = [0, 2, 3];

/// What came of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// A test failed.
    Caught,
    /// The tests did not end.
    TimedOut,
    /// It does not compile.
    Unviable,
    /// All tests passed.
    Missed,
}

/// A change of the code.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mutant {
    /// As cargo-mutants calls it, without line and column: these change with the code around it.
    name: String,
    /// What the list says of it.
    expected: Fate,
}

/// Runs one of so many parts of the list.
pub fn run(workspace: &Workspace, part: u32, parts: u32) -> Result<Checks> {
    expect_installed(workspace)?;
    let text = fs::read_to_string(workspace.root().join(LIST))
        .with_context(|| format!("reading {LIST}"))?;
    let mutants = parse(&text)?;
    let mutants = share(&mutants, part as usize, parts as usize);
    // Without a file cargo-mutants would take all that there are.
    ensure!(
        !mutants.is_empty(),
        "part {} of {parts} has nothing to run: {LIST} has fewer lines",
        part + 1
    );
    let output = workspace.target().join("mutants").join(part.to_string());
    fs::create_dir_all(&output).with_context(|| format!("making {}", output.display()))?;
    let mut command = command(workspace, mutants, &output)?;
    let each = TEST_LIMIT_S + BUILD_LIMIT_S;
    // The tests are run without a change first.
    let limit = Duration::from_secs(each * (mutants.len() as u64 + 1));
    let name = describe(&command);
    let name = name.split(" --file").next().unwrap_or_default();
    let finished = limited::run(&mut command, limit, Show::All(LABEL))?;
    let status = finished.status;
    ensure!(
        status.code().is_some_and(|code| STATUSES.contains(&code)),
        "`{name}` failed ({status}); {} has its logs",
        output.display()
    );
    let fates = fates(&output.join("mutants.out"))?;
    Ok(judge(mutants, &fates))
}

/// One of so many parts of a list. They differ by one at most, and are empty only where there are
/// more parts than items.
fn share<T>(list: &[T], part: usize, parts: usize) -> &[T] {
    let from = |part: usize| part * list.len() / parts;
    &list[from(part)..from(part + 1)]
}

/// # Errors
/// cargo-mutants is not installed.
pub fn expect_installed(workspace: &Workspace) -> Result<()> {
    let mut command = workspace.cargo();
    let version = command.args(["mutants", "--version"]).output();
    ensure!(
        version.is_ok_and(|output| output.status.success()),
        "cargo-mutants is not installed: `cargo install --locked cargo-mutants`"
    );
    Ok(())
}

fn command(workspace: &Workspace, mutants: &[Mutant], output: &Path) -> Result<Command> {
    let mut command = workspace.cargo();
    command.args(["mutants", "--no-shuffle", "--colors", "never"]);
    command.args(["--timeout", &TEST_LIMIT_S.to_string()]);
    command.args(["--build-timeout", &BUILD_LIMIT_S.to_string()]);
    command.arg("--output").arg(output);
    for (folder, package) in PACKAGES {
        if mutants.iter().any(|mutant| mutant.name.starts_with(folder)) {
            command.args(["--package", package]);
        }
    }
    for mutant in mutants {
        let (file, change) = mutant.parts()?;
        // cargo-mutants 27.1 takes mutants of another kind by their file alone: some come on top.
        command.args(["--file", file, "--re", &pattern(file, change)]);
    }
    // It compiles a copy of the source tree: what is outside of the tree is compiled once for all.
    let target = workspace.target().join("mutants/target");
    command.env("CARGO_TARGET_DIR", target).envs(SETTINGS);
    Ok(command)
}

impl Mutant {
    /// Its file and what changes there.
    fn parts(&self) -> Result<(&str, &str)> {
        let parts = self.name.split_once(": ");
        parts.with_context(|| format!("{LIST}: `{}` is no `FILE: CHANGE`", self.name))
    }
}

/// The regular expression of a mutant's full name, with any line and column.
fn pattern(file: &str, change: &str) -> String {
    format!(r"^{}:\d+:\d+: {}$", escaped(file), escaped(change))
}

/// The text as a regular expression that matches nothing else.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if character.is_ascii_punctuation() && !"_<>".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

/// Lines of a word, what is expected, and a mutant; comments begin with `#`.
fn parse(text: &str) -> Result<Vec<Mutant>> {
    let lines = text.lines().enumerate();
    let mutants = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    mutants
        .map(|(number, line)| {
            let (word, name) = line.split_once(' ').unwrap_or((line, ""));
            let expected = match word {
                "caught" => Fate::Caught,
                "unviable" => Fate::Unviable,
                "missed" => Fate::Missed,
                _ => bail!(
                    "{LIST}:{}: a line begins with caught, missed or unviable",
                    number + 1
                ),
            };
            Ok(Mutant {
                name: name.trim().to_owned(),
                expected,
            })
        })
        .collect()
}

/// What came of which mutant, from the files that cargo-mutants leaves.
fn fates(folder: &Path) -> Result<BTreeMap<String, Fate>> {
    let mut fates = BTreeMap::new();
    for (file, fate) in [
        ("caught.txt", Fate::Caught),
        ("timeout.txt", Fate::TimedOut),
        ("unviable.txt", Fate::Unviable),
        ("missed.txt", Fate::Missed),
    ] {
        let path = folder.join(file);
        let text =
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        fates.extend(text.lines().map(|line| (without_place(line), fate)));
    }
    Ok(fates)
}

/// `FILE:LINE:COLUMN: CHANGE` as `FILE: CHANGE`.
fn without_place(name: &str) -> String {
    let (place, change) = name.split_once(": ").unwrap_or((name, ""));
    let file = place.split(':').next().unwrap_or_default();
    format!("{file}: {change}")
}

fn judge(mutants: &[Mutant], fates: &BTreeMap<String, Fate>) -> Checks {
    let mut checks = Checks::default();
    let mut counts: BTreeMap<Fate, u64> = BTreeMap::new();
    for Mutant { name, expected } in mutants {
        let fate = fates.get(name).copied();
        if let Some(fate) = fate {
            *counts.entry(fate).or_default() += 1;
        }
        let complaint = match (fate, expected) {
            (None, _) => Some("is not in the code: put another in its place"),
            (Some(Fate::Missed), Fate::Caught | Fate::Unviable) => Some("is missed"),
            (Some(Fate::Unviable), Fate::Caught | Fate::Missed) => {
                Some("does not compile: put another in its place, or say so in the list")
            }
            _ => None,
        };
        match complaint {
            None => checks.pass(),
            Some(complaint) => {
                let what = format!("FAILED  {name}: {complaint}");
                limited::say(LABEL, &what);
                checks.fail(what);
            }
        }
    }
    let count = |fate| counts.get(&fate).copied().unwrap_or(0);
    limited::say(
        LABEL,
        &format!(
            "{} caught, {} out of time, {} missed, {} do not compile",
            count(Fate::Caught),
            count(Fate::TimedOut),
            count(Fate::Missed),
            count(Fate::Unviable)
        ),
    );
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALLS: &str = "a/b.rs: replace <impl X for &'a Y>::f -> (u8, i8) with (0, 1)";

    #[test]
    fn a_mutant_is_known_wherever_it_stands_in_its_file() {
        let list = parse(&format!("# all\n\ncaught {CALLS}\nmissed c.rs: delete !\n")).unwrap();
        let fates_of = |list: &[Mutant]| list.iter().map(|one| one.expected).collect::<Vec<_>>();
        assert_eq!(fates_of(&list), [Fate::Caught, Fate::Missed]);
        assert_eq!(list[0].name, CALLS);
        let (file, change) = list[1].parts().unwrap();
        assert_eq!(pattern(file, change), r"^c\.rs:\d+:\d+: delete \!$");
        let placed = CALLS.replacen("a/b.rs:", "a/b.rs:17:4:", 1);
        assert_eq!(without_place(&placed), CALLS);
        let error = parse("\ncought x").unwrap_err().to_string();
        assert!(error.contains("mutants.txt:2"), "{error}");
    }

    #[test]
    fn parts_of_a_list_are_of_one_size_or_nearly() {
        for length in [0, 5, 12, 120, 121, 125] {
            let list: Vec<u32> = (0..length).collect();
            let parts: Vec<_> = (0..12).map(|part| share(&list, part, 12)).collect();
            assert_eq!(parts.concat(), list);
            let sizes = parts.iter().map(|part| part.len());
            let (least, most) = (sizes.clone().min(), sizes.max());
            assert!(most <= least.map(|least| least + 1), "{parts:?}");
        }
    }

    #[test]
    fn a_mutant_fails_when_it_is_missed_or_gone_but_not_when_the_list_says_so() {
        let mutant = |name: &str, expected| Mutant {
            name: name.into(),
            expected,
        };
        let list = [
            mutant("a", Fate::Caught),
            mutant("b", Fate::Caught),
            mutant("c", Fate::Caught),
            mutant("d", Fate::Missed),
            mutant("e", Fate::Missed),
            mutant("f", Fate::Unviable),
            mutant("g", Fate::Caught),
        ];
        let fates = [
            ("a", Fate::Caught),
            ("b", Fate::TimedOut),
            ("c", Fate::Missed),
            ("d", Fate::Missed),
            ("e", Fate::Caught),
            ("f", Fate::Unviable),
        ];
        let fates = fates.map(|(name, fate)| (name.to_owned(), fate));
        let checks = judge(&list, &BTreeMap::from(fates));
        assert_eq!((checks.passed, checks.failed), (5, 2));
    }
}
