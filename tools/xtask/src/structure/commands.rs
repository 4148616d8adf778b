//! Commands in the documentation exist as they are written.
//!
//! Purpose: every `cargo xtask ...` and `hearth ...` in README and manuals is looked up: the
//! subcommand and each option must be in the real program's own help. Key type: [`Mention`].
//! Neighbours: the built `hearth`, and clap's description of xtask itself.
//!
//! Invariant: a document without any command fails too: then the search is broken.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::CommandFactory;

use super::Rule;
use crate::limited::{self, Show};
use crate::workspace::Workspace;

/// Documents that must mention commands at all.
const MUST_MENTION: [&str; 2] = ["README.md", "docs/operating.md"];
/// Printing help takes no longer, on a machine under load either.
const HELP_LIMIT: Duration = Duration::from_secs(30);
/// Levels of subcommands: `hearth node reset`.
const MAX_DEPTH: usize = 3;

/// Commands that pass all their arguments on to a program of its own.
const PASSED_ON: [(&str, &str); 2] = [("xtask", "sim"), ("xtask", "replay")];

/// A command in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mention {
    /// `hearth` or `xtask`.
    program: &'static str,
    /// Words after the program, up to what a user's own program gets.
    words: Vec<String>,
}

/// Looks all mentioned commands up.
pub fn check(workspace: &Workspace) -> Result<Vec<Rule>> {
    let mut missing = Vec::new();
    let mut silent = Vec::new();
    let mut helps = Helps {
        workspace,
        texts: BTreeMap::new(),
    };
    for document in documents(workspace)? {
        let path = workspace.root().join(&document);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {document}"))?;
        let mentions = mentions(&text);
        if mentions.is_empty() && MUST_MENTION.contains(&document.as_str()) {
            silent.push(document.clone());
        }
        for mention in &mentions {
            for problem in helps.problems(mention)? {
                missing.push(format!("{document}: {problem}"));
            }
        }
    }
    Ok(vec![
        Rule {
            text: "commands in the documentation exist",
            violations: missing,
        },
        Rule {
            text: "README and manual show commands",
            violations: silent,
        },
    ])
}

/// The documents whose commands people type: at the root and directly in docs/.
pub(super) fn documents(workspace: &Workspace) -> Result<Vec<String>> {
    let mut documents = vec!["README.md".to_owned(), "ARCHITECTURE.md".to_owned()];
    for entry in fs::read_dir(workspace.root().join("docs")).context("reading docs/")? {
        let name = entry.context("reading docs/")?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".md") {
            documents.push(format!("docs/{name}"));
        }
    }
    documents.sort();
    Ok(documents)
}

/// All commands in code blocks (indented or fenced) and code spans of a document.
fn mentions(document: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced || line.starts_with("    ") {
            found.extend(parse_line(line));
        } else {
            // Code spans are every second part between backquotes.
            found.extend(line.split('`').skip(1).step_by(2).flat_map(parse_line));
        }
    }
    found
}

/// The commands of one line, which may be several separated as in a shell.
fn parse_line(line: &str) -> Vec<Mention> {
    let line = line.split(" #").next().unwrap_or(line);
    line.split([';', '|', '&'])
        .filter_map(parse_command)
        .collect()
}

fn parse_command(text: &str) -> Option<Mention> {
    let mut words = text.split_whitespace().map(str::to_owned).peekable();
    let mut first = words.next()?;
    while matches!(first.as_str(), "$" | "sudo") || first.contains('=') {
        first = words.next()?;
    }
    let program = match first.as_str() {
        "hearth" | "target/hearth/hearth" => "hearth",
        "cargo" if words.next()? == "xtask" => "xtask",
        _ => return None,
    };
    // What looks like a file is the user's own program; the words after it are its own.
    let words = words.take_while(|word| !word.contains(['/', '<', '>']) && word != "--");
    Some(Mention {
        program,
        words: words.collect(),
    })
}

/// Help texts of commands, asked for once each.
struct Helps<'a> {
    workspace: &'a Workspace,
    texts: BTreeMap<(&'static str, Vec<String>), Option<String>>,
}

impl Helps<'_> {
    fn problems(&mut self, mention: &Mention) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let mut path: Vec<String> = Vec::new();
        let root = self
            .text(mention.program, &path)?
            .context("a program without help")?;
        let mut text = root.clone();
        let mut words = mention.words.iter();
        while let Some(word) = words.next() {
            if PASSED_ON.contains(&(mention.program, path.join(" ").as_str())) {
                break;
            }
            if let Some(option) = option_name(word) {
                match takes_value(&text, option).or_else(|| takes_value(&root, option)) {
                    None => problems.push(format!(
                        "`{} {}` has no option {option}",
                        mention.program,
                        path.join(" ")
                    )),
                    Some(takes_value) if takes_value && !word.contains('=') => drop(words.next()),
                    Some(_) => {}
                }
            } else if path.len() < MAX_DEPTH && has_subcommands(&text) {
                if is_placeholder(word) {
                    break;
                }
                path.push(word.clone());
                match self.text(mention.program, &path)? {
                    Some(found) => text = found,
                    None => {
                        problems.push(format!(
                            "there is no command `{} {}`",
                            mention.program,
                            path.join(" ")
                        ));
                        break;
                    }
                }
            }
        }
        Ok(problems)
    }

    /// The help of a command; `None` when there is no such command.
    fn text(&mut self, program: &'static str, path: &[String]) -> Result<Option<String>> {
        let key = (program, path.to_vec());
        if let Some(text) = self.texts.get(&key) {
            return Ok(text.clone());
        }
        let text = match program {
            "xtask" => own_help(path),
            _ => hearth_help(self.workspace, path)?,
        };
        self.texts.insert(key, text.clone());
        Ok(text)
    }
}

fn own_help(path: &[String]) -> Option<String> {
    let mut command = crate::Arguments::command();
    for word in path {
        command = command.find_subcommand(word)?.clone();
    }
    Some(command.render_long_help().to_string())
}

fn hearth_help(workspace: &Workspace, path: &[String]) -> Result<Option<String>> {
    let mut command = Command::new(workspace.hearth());
    command.args(path).arg("--help");
    let finished = limited::run(&mut command, HELP_LIMIT, Show::Nothing)?;
    Ok(finished.status.success().then(|| finished.lines.join("\n")))
}

/// The option of a word like `--tree`, `--report=FILE` or `-n`.
fn option_name(word: &str) -> Option<&str> {
    let is_option = word.len() > 1 && word.starts_with('-');
    is_option.then(|| word.split('=').next().unwrap_or(word))
}

/// Whether an option takes a value, by a help text; `None` when it is not in there.
fn takes_value(help: &str, option: &str) -> Option<bool> {
    help.lines()
        .map(str::trim)
        .filter(|line| line.starts_with('-'))
        .find_map(|line| {
            // The options of a line end where its explanation begins, after two spaces.
            let options = line.split("  ").next().unwrap_or(line);
            let mut words = options.split([',', ' ', '=', '[']).map(str::trim);
            words
                .any(|word| word == option)
                .then(|| options.contains('<'))
        })
}

fn has_subcommands(help: &str) -> bool {
    help.lines().any(|line| line.trim() == "Commands:")
}

/// `COMMAND`, `[options]`, `...`: the document speaks of any command.
fn is_placeholder(word: &str) -> bool {
    word.starts_with(['[', '.', '<']) || word.chars().all(|character| character.is_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn commands_are_found_in_blocks_and_spans() {
        let document = "Say `hearth nodes --json` and `other`.\n\n    cargo xtask demo   # shows\n\
            \n    hearth down; hearth --cluster b down\n```\nhearth run -n 2 ./app --size 1\n```\n\
            hearth is no command here";
        let found = mentions(document);
        let expected = [
            ("hearth", "nodes --json"),
            ("xtask", "demo"),
            ("hearth", "down"),
            ("hearth", "--cluster b down"),
            ("hearth", "run -n 2"),
        ];
        let expected: Vec<_> = expected
            .map(|(program, text)| Mention {
                program,
                words: words(text),
            })
            .into_iter()
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn options_are_read_from_help_texts() {
        let help = "Usage: x\n\nOptions:\n  -n, --ranks <RANKS>  How many --fake\n      --json\n  \
                    -h, --help   Print help\n      --report[=<FILE>]  Report";
        assert_eq!(takes_value(help, "-n"), Some(true));
        assert_eq!(takes_value(help, "--json"), Some(false));
        assert_eq!(takes_value(help, "--report"), Some(true));
        assert_eq!(takes_value(help, "--fake"), None);
    }

    #[test]
    fn what_xtask_lacks_is_found() {
        let root = tempfile::tempdir().unwrap();
        let workspace = Workspace::at(root.path());
        let mut helps = Helps {
            workspace: &workspace,
            texts: BTreeMap::new(),
        };
        let mut problems = |text: &str| {
            helps
                .problems(&Mention {
                    program: "xtask",
                    words: words(text),
                })
                .unwrap()
        };
        assert!(problems("build").is_empty());
        assert!(problems("build --only image").is_empty());
        assert!(problems("COMMAND --help").is_empty());
        assert!(problems("sim run --seed 7").is_empty());
        assert_eq!(problems("fly"), ["there is no command `xtask fly`"]);
        assert_eq!(
            problems("build --fast"),
            ["`xtask build` has no option --fast"]
        );
    }
}
