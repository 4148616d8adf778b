//! A job's output on the user's terminal: by line, labelled where wanted, never mixed up.
//!
//! Key types: [`Printer`]; [`say`] for what is ours. Neighbours: `cli::run_session` feeds it frames
//! and gives it standard output and standard error.
//!
//! Invariants: bytes of one rank and stream come out in order and complete; with more than one rank
//! a line is never cut by another rank's, unless it is longer than [`LINE_MAX_BYTES`]; a last line
//! without an end stays without one, so that as many bytes come out as went in, unless it is
//! labelled.

use std::collections::BTreeMap;
use std::io::{self, Write};

/// Longest line held back until its end comes; a longer one is printed in pieces.
pub const LINE_MAX_BYTES: usize = 64 * 1024;

/// Writes text of ours to standard error; that nobody reads it is no reason to fail.
pub fn say(text: &str) {
    drop(io::stderr().write_all(text.as_bytes()));
}

/// As [`say`], with control characters replaced, each line naming its speaker.
pub fn say_line(text: impl std::fmt::Display) {
    let text = plain(&text.to_string());
    let lines: String = text
        .lines()
        .map(|line| format!("hearth: {line}\n"))
        .collect();
    say(&lines);
}

/// Whether a character changes what a terminal shows of others: control characters, and those that
/// Unicode has for formatting (general categories Cf, Zl and Zp): direction of writing, joining,
/// invisible ones, tags.
pub fn steers(character: char) -> bool {
    character.is_control()
        || matches!(
            u32::from(character),
            0xad | 0x600..=0x605
                | 0x61c
                | 0x6dd
                | 0x70f
                | 0x890..=0x891
                | 0x8e2
                | 0x180e
                | 0x200b..=0x200f
                | 0x2028..=0x202e
                | 0x2060..=0x206f
                | 0xfeff
                | 0xfff9..=0xfffb
                | 0x110bd
                | 0x110cd
                | 0x13430..=0x1343f
                | 0x1bca0..=0x1bca3
                | 0x1d173..=0x1d17a
                | 0xe0000..=0xe007f
        )
}

/// Text that others made (machines on the boot network, programs, users of the API) as it may be
/// shown on a terminal: what [`steers`] it is replaced, but line ends and tabs.
pub fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' | '\t' => character,
        other if steers(other) => char::REPLACEMENT_CHARACTER,
        other => other,
    };
    text.chars().map(shown).collect()
}

/// The same for JSON, which has control characters as numbers already: the others too, so that no
/// value changes.
pub fn plain_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '\n' | '\t' | '\r' => plain.push(character),
            other if steers(other) => {
                for unit in other.encode_utf16(&mut [0; 2]) {
                    plain += &format!("\\u{unit:04x}");
                }
            }
            other => plain.push(other),
        }
    }
    plain
}

/// `1 node`, `4 nodes`.
pub fn count(count: impl TryInto<u64>, what: &str) -> String {
    count_of(count, what, &format!("{what}s"))
}

/// `1 switch`, `4 switches`.
pub fn count_of(count: impl TryInto<u64>, one: &str, many: &str) -> String {
    match count.try_into().unwrap_or(u64::MAX) {
        1 => format!("1 {one}"),
        count => format!("{count} {many}"),
    }
}

/// Which stream of which rank.
type Key = (u32, u32);

/// Puts output together.
#[derive(Debug)]
pub struct Printer<O, E> {
    out: O,
    err: E,
    label: bool,
    /// One rank without labels: bytes pass at once, so that prompts appear.
    direct: bool,
    /// Beginnings of lines, by stream.
    partial: BTreeMap<Key, Vec<u8>>,
    /// Digits of the largest rank, to align labels.
    width: usize,
}

impl<O: Write, E: Write> Printer<O, E> {
    /// A printer for `ranks` ranks.
    pub fn new(out: O, err: E, label: bool, ranks: u32) -> Self {
        let width = ranks.saturating_sub(1).to_string().len();
        Printer {
            out,
            err,
            label,
            direct: ranks == 1 && !label,
            partial: BTreeMap::new(),
            width,
        }
    }

    /// Takes bytes that `rank` wrote to `fd` (2: standard error, else standard output).
    ///
    /// # Errors
    /// When standard output or standard error cannot be written.
    pub fn output(&mut self, rank: u32, fd: u32, data: &[u8]) -> io::Result<()> {
        if self.direct {
            self.stream(fd).write_all(data)?;
            return self.stream(fd).flush();
        }
        let mut pending = self.partial.remove(&(rank, fd)).unwrap_or_default();
        pending.extend_from_slice(data);
        let mut whole = 0;
        while let Some(length) = pending[whole..].iter().position(|&byte| byte == b'\n') {
            self.line(rank, fd, &pending[whole..=whole + length])?;
            whole += length + 1;
        }
        pending.drain(..whole);
        while pending.len() > LINE_MAX_BYTES {
            let rest = pending.split_off(LINE_MAX_BYTES);
            self.piece(rank, fd, &pending)?;
            pending = rest;
        }
        if !pending.is_empty() {
            self.partial.insert((rank, fd), pending);
        }
        self.stream(fd).flush()
    }

    /// Writes lines of ours to standard error, beside those of the ranks.
    ///
    /// # Errors
    /// When standard error cannot be written.
    pub fn say(&mut self, lines: &str) -> io::Result<()> {
        self.err.write_all(lines.as_bytes())?;
        self.err.flush()
    }

    /// Prints what is left of unfinished lines.
    ///
    /// # Errors
    /// When standard output or standard error cannot be written.
    pub fn finish(&mut self) -> io::Result<()> {
        let left = std::mem::take(&mut self.partial);
        for ((rank, fd), mut line) in left {
            if self.label {
                line.push(b'\n');
            }
            self.line(rank, fd, &line)?;
        }
        self.out.flush()?;
        self.err.flush()
    }

    fn line(&mut self, rank: u32, fd: u32, line: &[u8]) -> io::Result<()> {
        if self.label {
            let label = format!("{rank:>width$}: ", width = self.width);
            self.stream(fd).write_all(label.as_bytes())?;
        }
        self.stream(fd).write_all(line)
    }

    /// A part of a line that is too long to hold; labelled ones end here.
    fn piece(&mut self, rank: u32, fd: u32, piece: &[u8]) -> io::Result<()> {
        self.line(rank, fd, piece)?;
        if self.label {
            self.stream(fd).write_all(b"\n")
        } else {
            Ok(())
        }
    }

    fn stream(&mut self, fd: u32) -> &mut dyn Write {
        if fd == 2 {
            &mut self.err
        } else {
            &mut self.out
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(label: bool, ranks: u32, pieces: &[(u32, u32, &[u8])]) -> (String, String) {
        let mut printer = Printer::new(Vec::new(), Vec::new(), label, ranks);
        for (rank, fd, data) in pieces {
            printer.output(*rank, *fd, data).unwrap();
        }
        printer.finish().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(printer.out), text(printer.err))
    }

    #[test]
    fn lines_of_ranks_are_not_mixed() {
        let pieces: [(u32, u32, &[u8]); 5] = [
            (0, 1, b"ab"),
            (1, 1, b"xy\nz"),
            (0, 1, b"c\n"),
            (1, 2, b"e\n"),
            (1, 1, b"\n"),
        ];
        assert_eq!(
            printed(false, 2, &pieces),
            ("xy\nabc\nz\n".into(), "e\n".into())
        );
    }

    #[test]
    fn labels_are_aligned() {
        let pieces: [(u32, u32, &[u8]); 2] = [(3, 1, b"a\nb\n"), (11, 1, b"c\n")];
        assert_eq!(printed(true, 16, &pieces).0, " 3: a\n 3: b\n11: c\n");
    }

    #[test]
    fn one_is_no_plural() {
        assert_eq!(count(1_u32, "node"), "1 node");
        assert_eq!(
            (count(0_usize, "node"), count(4_u64, "node")),
            ("0 nodes".into(), "4 nodes".into())
        );
    }

    #[test]
    fn texts_of_others_cannot_steer_the_terminal() {
        assert_eq!(
            plain("a\x1b[2Jb\u{9b}c\rd\te\n"),
            "a\u{fffd}[2Jb\u{fffd}c\u{fffd}d\te\n"
        );
        assert_eq!(
            plain("a\u{202e}gnp.exe\u{2066}\u{200f}\u{2028}\u{e0041} żółć 名"),
            "a\u{fffd}gnp.exe\u{fffd}\u{fffd}\u{fffd}\u{fffd} żółć 名"
        );
        let name = "a\u{202e}b\u{e0041}c\u{1b}ż";
        let json = plain_json(&serde_json::to_string(name).unwrap());
        assert_eq!(json, "\"a\\u202eb\\udb40\\udc41c\\u001bż\"");
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), name);
    }

    #[test]
    fn last_lines_are_kept_as_they_are() {
        assert_eq!(printed(false, 1, &[(0, 1, b"no end")]).0, "no end");
        assert_eq!(printed(false, 2, &[(0, 1, b"no end")]).0, "no end");
        assert_eq!(printed(false, 2, &[(0, 1, b"a"), (1, 1, b"b")]).0, "ab");
        let pieces: [(u32, u32, &[u8]); 2] = [(0, 1, b"a"), (1, 1, b"b")];
        assert_eq!(printed(true, 2, &pieces).0, "0: a\n1: b\n");
        assert_eq!(printed(true, 2, &[(0, 1, b"no end")]).0, "0: no end\n");
    }

    #[test]
    fn one_rank_passes_at_once_whatever_the_bytes() {
        let mut printer = Printer::new(Vec::new(), Vec::new(), false, 1);
        printer.output(0, 1, b"prompt> \0\xff").unwrap();
        assert_eq!(printer.out, b"prompt> \0\xff");
    }

    #[test]
    fn an_endless_line_is_printed_in_pieces() {
        let long = vec![b'x'; 3 * LINE_MAX_BYTES + 5];
        let mut printer = Printer::new(Vec::new(), Vec::new(), false, 2);
        printer.output(0, 1, &long).unwrap();
        assert!(printer.out.len() >= 2 * LINE_MAX_BYTES);
        printer.finish().unwrap();
        assert_eq!(printer.out, long);
    }
}
