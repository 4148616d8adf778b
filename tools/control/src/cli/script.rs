//! Job scripts: a text with options in `#HEARTH` or `#SBATCH` lines, and one line that names the
//! program and its arguments.
//!
//! Key type: [`Script`]. Neighbour: `submit` reads options by the same definitions as the command
//! line's; those of `#HEARTH` lines go before those of `#SBATCH` lines.
//!
//! There is no shell on the nodes, so a script is not run: it is read. What only a shell could do
//! is an error that says so.
//!
//! Invariant: what is not understood is refused with its line; nothing is passed over without a
//! word.

use std::ffi::OsString;

/// Largest script in bytes: a program line may be as long as a launch block.
pub const SCRIPT_MAX_BYTES: u64 = 256 * 1024;

/// What marks a line of options.
const MARK: &str = "#HEARTH";

/// What marks one that Slurm reads, too.
const SLURM_MARK: &str = "#SBATCH";

/// Commands of shells that scripts for Slurm begin with, as often as not.
const SHELL_COMMANDS: [&str; 9] = [
    "module", "ml", "export", "cd", "source", ".", "set", "ulimit", "unset",
];

/// What a script says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// Lines of options with their numbers from 1, each in words.
    pub options: Vec<(usize, Vec<OsString>)>,
    /// The program and its arguments.
    pub command: Vec<OsString>,
    /// Variables set before the program on its line.
    pub variables: Vec<OsString>,
    /// The same of lines that Slurm reads, too.
    pub for_slurm: Vec<(usize, Vec<OsString>)>,
}

/// Why a script cannot be taken.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ScriptError {
    /// A line of options that would be too late.
    #[error("line {0}: options after the program's line; write them before it")]
    Late(usize),
    /// A second program.
    #[error(
        "line {line}: a second program after that of line {first}; a job runs one program on its \
         nodes. Submit another job for it, and let it wait with --after-ok JOB"
    )]
    Second {
        /// The line.
        line: usize,
        /// The line of the first.
        first: usize,
    },
    /// A command that only a shell knows.
    #[error(
        "line {line}: `{word}` is a command of a shell, and nodes have none; leave the line out, and use \
         --env and --chdir for variables and the directory"
    )]
    Command {
        /// The line.
        line: usize,
        /// The command.
        word: &'static str,
    },
    /// Something that needs a shell.
    #[error(
        "line {line}: {what:?} would need a shell, and nodes have none; quote it to pass it as it stands, and use --env and --input for variables and input"
    )]
    Shell {
        /// The line.
        line: usize,
        /// The character.
        what: char,
    },
    /// A quote that does not end on its line.
    #[error("line {0}: a quote that does not end")]
    Quote(usize),
    /// No program.
    #[error(
        "the script names no program; its last line is the program with its arguments, as in `./app --size 100`"
    )]
    Nothing,
}

/// Reads a script.
///
/// # Errors
/// [`ScriptError`].
pub fn parse(text: &str) -> Result<Script, ScriptError> {
    let mut script = Script::default();
    let mut first = 0;
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let number = index + 1;
        let ours = option_line(line, MARK);
        if let Some(options) = ours.or_else(|| option_line(line, SLURM_MARK)) {
            if !script.command.is_empty() {
                return Err(ScriptError::Late(number));
            }
            let lines = match ours {
                Some(_) => &mut script.options,
                None => &mut script.for_slurm,
            };
            lines.push((number, words(options, number)?));
            continue;
        }
        // A line goes on where it ends in a backslash, as in a shell.
        let mut whole = line.to_string();
        while whole.ends_with('\\') && !line.trim_start().starts_with('#') {
            whole.pop();
            match lines.next() {
                Some((_, more)) => whole.push_str(more),
                None => break,
            }
        }
        let mut found = words(&whole, number)?;
        if found.is_empty() {
            continue;
        }
        let mut commands = SHELL_COMMANDS.into_iter();
        if let Some(word) = commands.find(|command| found[0] == *command) {
            return Err(ScriptError::Command { line: number, word });
        }
        if !script.command.is_empty() {
            let line = number;
            return Err(ScriptError::Second { line, first });
        }
        first = number;
        let program = found.iter().position(|word| !is_variable(word));
        let program = program.ok_or(ScriptError::Nothing)?;
        script.command = found.split_off(program);
        script.variables = found;
    }
    if script.command.is_empty() {
        return Err(ScriptError::Nothing);
    }
    Ok(script)
}

fn option_line<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let rest = line.strip_prefix(mark)?;
    rest.is_empty()
        .then_some(rest)
        .or_else(|| rest.starts_with([' ', '\t']).then_some(rest))
}

/// `NAME=VALUE`, with a name as shells have them.
fn is_variable(word: &OsString) -> bool {
    let Some((name, _)) = word.to_str().and_then(|word| word.split_once('=')) else {
        return false;
    };
    let mut characters = name.chars();
    let first = characters.next();
    first.is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|character| character.is_ascii_alphanumeric() || character == '_')
}

/// Splits a line as a shell does: blanks, quotes, backslashes, a comment after a blank.
fn words(line: &str, number: usize) -> Result<Vec<OsString>, ScriptError> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\r' => words.extend(word.take().map(OsString::from)),
            '#' if word.is_none() => break,
            '\\' => {
                let next = characters.next().ok_or(ScriptError::Quote(number))?;
                word.get_or_insert_default().push(next);
            }
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match characters.next().ok_or(ScriptError::Quote(number))? {
                        '\'' => break,
                        inside => word.push(inside),
                    }
                }
            }
            '"' => quoted(&mut characters, word.get_or_insert_default(), number)?,
            '|' | '&' | ';' | '<' | '>' | '(' | ')' | '$' | '`' | '*' | '?' => {
                return Err(ScriptError::Shell {
                    line: number,
                    what: character,
                });
            }
            plain => word.get_or_insert_default().push(plain),
        }
    }
    words.extend(word.map(OsString::from));
    Ok(words)
}

/// The rest of a double-quoted part.
fn quoted(
    characters: &mut std::str::Chars<'_>,
    word: &mut String,
    number: usize,
) -> Result<(), ScriptError> {
    loop {
        match characters.next().ok_or(ScriptError::Quote(number))? {
            '"' => return Ok(()),
            '\\' => match characters.next().ok_or(ScriptError::Quote(number))? {
                escaped @ ('"' | '\\' | '$' | '`') => word.push(escaped),
                other => word.extend(['\\', other]),
            },
            what @ ('$' | '`') => return Err(ScriptError::Shell { line: number, what }),
            inside => word.push(inside),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Vec<OsString> {
        words.iter().map(OsString::from).collect()
    }

    #[test]
    fn options_and_the_program_are_found() {
        let script = parse(
            "#!/usr/bin/env -S hearth submit\n#HEARTH -n 4 --time-limit 10:00\n\n# a remark\n#HEARTHLY no\n\
             #HEARTH --name \"two words\"   # why\nSIZE=3 ./app --size 100 'a  b' \\\n  \"c\\\"d\" e\\ f\n",
        )
        .unwrap();
        assert_eq!(
            script.options,
            [
                (2, of(&["-n", "4", "--time-limit", "10:00"])),
                (6, of(&["--name", "two words"]))
            ]
        );
        assert_eq!(
            script.command,
            of(&["./app", "--size", "100", "a  b", "c\"d", "e f"])
        );
        assert_eq!(script.variables, of(&["SIZE=3"]));
    }

    #[test]
    fn lines_for_slurm_are_read() {
        let script =
            parse("#!/bin/sh\n#SBATCH -n 2\n#HEARTH -J a\n##SBATCH -x n0\n#SBATCH -t 5\n./app");
        let script = script.unwrap();
        let wanted = [(2, of(&["-n", "2"])), (5, of(&["-t", "5"]))];
        assert_eq!(script.for_slurm, wanted);
        assert_eq!(script.options, [(3, of(&["-J", "a"]))]);
    }

    #[test]
    fn what_needs_a_shell_is_refused_with_its_line() {
        for (text, line, what) in [
            ("./a | ./b", 1, '|'),
            ("#x\n./a > out", 2, '>'),
            ("./a $HOME", 1, '$'),
            ("./a \"$HOME\"", 1, '$'),
            ("./a *.dat", 1, '*'),
            ("./a; ./b", 1, ';'),
        ] {
            assert_eq!(
                parse(text),
                Err(ScriptError::Shell { line, what }),
                "{text}"
            );
        }
        assert_eq!(parse("./a '$HOME' \\$x '*'").unwrap().command.len(), 4);
    }

    #[test]
    fn other_mistakes_name_their_line() {
        assert_eq!(parse("./a\n#HEARTH -n 1\n"), Err(ScriptError::Late(2)));
        assert_eq!(parse("./a\n#SBATCH -n 1\n"), Err(ScriptError::Late(2)));
        let second = ScriptError::Second { line: 3, first: 1 };
        assert_eq!(parse("./a\n\n./b\n"), Err(second));
        for (text, line, word) in [
            ("module load gcc\n./a", 1, "module"),
            ("./a\ncd /b", 2, "cd"),
        ] {
            assert_eq!(parse(text), Err(ScriptError::Command { line, word }));
        }
        assert_eq!(parse("./a 'x"), Err(ScriptError::Quote(1)));
        assert_eq!(parse("./a \"x"), Err(ScriptError::Quote(1)));
        for nothing in ["", "#!/bin/sh\n", "#HEARTH -n 1", "A=1"] {
            assert_eq!(parse(nothing), Err(ScriptError::Nothing), "{nothing}");
        }
    }
}
