//! How a job was called, for people: its command line and the name of its program.
//!
//! Key functions: [`text`], [`program_name`]. Neighbours: `submit` puts both into the job's record.
//!
//! Invariant: what is kept of a command line has a bound, since every job of the history has one.

use std::path::Path;

/// Longest command line and directory that are kept, in bytes; of longer ones the begin.
const KEPT_MAX: usize = 1_024;
/// What stands for the rest.
const CUT: &str = " ...";

/// The words as a shell would take them; bytes that are not UTF-8 are replaced.
pub fn text(words: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for word in words {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(&quoted(&String::from_utf8_lossy(word)));
        if text.len() > KEPT_MAX {
            break;
        }
    }
    kept(text)
}

/// As much of a text as is kept.
pub fn kept(mut text: String) -> String {
    if text.len() > KEPT_MAX {
        text.truncate(text.floor_char_boundary(KEPT_MAX - CUT.len()));
        text.push_str(CUT);
    }
    text
}

/// The file name of the program that a command line begins with.
pub fn program_name(words: &[Vec<u8>]) -> String {
    let path = words.first().map(|word| String::from_utf8_lossy(word));
    let path = path.unwrap_or_default();
    let name = Path::new(&*path).file_name().unwrap_or_default();
    let name: String = name.to_string_lossy().replace(char::is_control, "?");
    kept(name)
}

/// A word as a shell would take it.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./=:,+@%".contains(&byte);
    match !word.is_empty() && word.bytes().all(is_plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<Vec<u8>> {
        let word = |word: &&str| word.as_bytes().to_vec();
        words.iter().map(word).collect()
    }

    #[test]
    fn a_command_line_is_shown_as_a_shell_takes_it() {
        let called = words(&["./app", "--size=100", "two words", "", "it's"]);
        assert_eq!(text(&called), "./app --size=100 'two words' '' 'it'\\''s'");
        assert_eq!(program_name(&called), "app");
        assert_eq!(
            (text(&[]), program_name(&[])),
            (String::new(), String::new())
        );
    }

    #[test]
    fn a_long_one_is_cut() {
        let long = text(&words(&["app", &"\u{e9}".repeat(2_000), "last"]));
        assert!(long.len() <= KEPT_MAX && long.ends_with(CUT), "{long}");
        assert!(long.starts_with("app '\u{e9}"));
    }
}
