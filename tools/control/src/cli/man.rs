//! `hearth man` and `hearth completions`: pages and completions made from the same definitions as
//! `--help`.
//!
//! Neighbours: `clap_mangen` and `clap_complete` write them; [`exit`] has the statuses.
//!
//! Invariant: nothing about an option is written here.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use super::{Global, exit, print_json, print_text};

/// Name of the command and of its pages.
const NAME: &str = "hearth";

/// Files that all commands have to do with.
const FILES: &[(&str, &str)] = &[
    (
        "~/.config/hearth/config.toml, /etc/hearth/config.toml",
        "configuration; `hearth config` shows it",
    ),
    (
        "/var/lib/hearth, $XDG_STATE_HOME/hearth/CLUSTER",
        "state of a service, of a cluster of `hearth up`",
    ),
];

/// Options of `hearth man`.
#[derive(Debug, Args)]
#[command(after_help = "\
  hearth man | man -l -                    the page of `hearth`
  hearth man --of run | man -l -           the page of a command
  hearth man ~/.local/share/man/man1       all pages, where `man hearth-run` finds them")]
pub struct ManOptions {
    /// Write a page for each command into this directory, which is made if it is not there, instead
    /// of printing one.
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print the page of this command: run, or "node reset" [default: hearth itself].
    #[arg(long, value_name = "COMMAND", conflicts_with = "dir")]
    of: Option<String>,
}

/// Options of `hearth completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
  hearth completions bash > ~/.local/share/bash-completion/completions/hearth
  hearth completions zsh > ~/.zfunc/_hearth            (with fpath+=~/.zfunc before compinit)
  hearth completions fish > ~/.config/fish/completions/hearth.fish")]
pub struct CompletionsOptions {
    /// The shell.
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Prints a page, or writes all.
pub fn man(global: &Global, command: Command, options: &ManOptions) -> anyhow::Result<()> {
    let command = built(command);
    if let Some(dir) = &options.dir {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut written = Vec::new();
        write_pages(&command, dir, &mut written)?;
        return match global.json {
            true => print_json(&written),
            false => print_text(&format!(
                "{} in {}\n",
                crate::output::count(written.len(), "page"),
                dir.display()
            )),
        };
    }
    let mut wanted = &command;
    for word in options.of.iter().flat_map(|of| of.split_whitespace()) {
        wanted = wanted
            .get_subcommands()
            .find(|command| command.get_name() == word && !command.is_hide_set())
            .ok_or_else(|| {
                exit::Usage(format!(
                    "there is no command {word:?}; `hearth --help` lists the commands"
                ))
            })?;
    }
    print_text(&page(wanted)?)
}

/// Prints the completions for a shell.
pub fn completions(mut command: Command, options: &CompletionsOptions) -> anyhow::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(options.shell, &mut command, NAME, &mut text);
    print_text(&String::from_utf8(text)?)
}

/// With the full names of all commands, without `help` in each.
fn built(command: Command) -> Command {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    command
}

fn write_pages(command: &Command, dir: &Path, written: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for command in command
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        write_pages(command, dir, written)?;
    }
    let path = dir.join(Man::new(command.clone()).get_filename());
    std::fs::write(&path, page(command)?)
        .with_context(|| format!("cannot write {}", path.display()))?;
    written.push(path);
    Ok(())
}

/// One page.
fn page(command: &Command) -> anyhow::Result<String> {
    let man = Man::new(command.clone())
        .source(format!("hearth {}", env!("CARGO_PKG_VERSION")))
        .manual("Hearth");
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    let mut roff = Roff::new();
    if let Some(notes) = command.get_after_help() {
        // As it stands in --help, line by line.
        roff.control("SH", ["NOTES"]).control("nf", []);
        for line in notes.to_string().lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
    }
    entries(&mut roff, "EXIT STATUS", exit::TABLE);
    entries(&mut roff, "FILES", FILES);
    if command.get_name() != NAME {
        roff.control("SH", ["SEE ALSO"])
            .text([bold(NAME), roman("(1)")]);
    }
    roff.to_writer(&mut out)?;
    out.flush()?;
    Ok(String::from_utf8(out)?)
}

/// A section with words and what they mean.
fn entries<W: ToString>(roff: &mut Roff, title: &str, entries: &[(W, &str)]) {
    roff.control("SH", [title]);
    for (word, meaning) in entries {
        roff.control("TP", []);
        roff.text([bold(word.to_string())]).text([roman(*meaning)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;
    use std::process::{Command as Process, Stdio};

    fn fed(program: &str, arguments: &[&str], input: &str) -> Option<std::process::Output> {
        let mut child = Process::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_string();
        let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
        let output = child.wait_with_output().unwrap();
        feeder.join().unwrap().unwrap();
        Some(output)
    }

    fn all_commands(command: &Command, found: &mut Vec<Command>) {
        found.push(command.clone());
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        shown.for_each(|command| all_commands(command, found));
    }

    #[test]
    fn each_page_has_every_option_and_no_error_of_form() {
        let mut found = Vec::new();
        all_commands(&built(super::super::Cli::command()), &mut found);
        assert!(found.len() > 25, "{} commands", found.len());
        let mut all = String::new();
        for command in &found {
            let page = page(command).unwrap();
            assert!(
                page.contains(".SH NAME") && page.contains(".SH \"EXIT STATUS\""),
                "{page}"
            );
            for argument in command
                .get_arguments()
                .filter(|argument| !argument.is_hide_set())
            {
                let Some(long) = argument.get_long() else {
                    continue;
                };
                // Roff writes a hyphen that stays one as \-.
                let long = format!("\\-\\-{}", long.replace('-', "\\-"));
                assert!(page.contains(&long), "{}: {long}", command.get_name());
            }
            assert!(!page.contains("__supervise"), "{}", command.get_name());
            all.push_str(&page);
        }
        // groff complains about macros and requests that do not exist. Where it is not installed
        // there is nothing to ask.
        if let Some(output) = fed("groff", &["-man", "-Tutf8", "-ww", "-z"], &all) {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(output.status.success() && text.is_empty(), "{text}");
        }
    }

    fn completions_for(shell: Shell) -> String {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut super::super::Cli::command(), NAME, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn completions_know_the_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let text = completions_for(shell);
            for word in ["submit", "completions", "time-limit", "reset"] {
                assert!(text.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn bash_takes_its_completions_and_completes_by_them() {
        let script = completions_for(Shell::Bash)
            + "\nCOMP_WORDS=(hearth subm); COMP_CWORD=1; _hearth hearth subm hearth; echo \"${COMPREPLY[*]}\"\n";
        let output = fed("bash", &["--norc", "-s"], &script).expect("bash is everywhere");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "submit\n");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        for (shell, program, check) in [(Shell::Zsh, "zsh", "-n"), (Shell::Fish, "fish", "-n")] {
            if let Some(output) = fed(program, &[check, "/dev/stdin"], &completions_for(shell)) {
                assert!(output.status.success(), "{program}: {output:?}");
            }
        }
    }
}
