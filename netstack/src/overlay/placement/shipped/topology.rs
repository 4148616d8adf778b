//! Placement 3: a given tree.
//!
//! ```text
//! # A comment ends with its line. One of these three:
//! k-ary 4 2            2 levels of communication processes, 4 under each parent
//! balanced 16x32       16 under the front end, 32 under each of these
//! explicit             then a line for each parent; fe is the front end, n3:1 process 1 on node n3
//! fe => n0:1 n1:1
//! n0:1 => n2:1 n2:2
//! ```
//!
//! Source: the overlay method's topology configuration; the forms are those that tree-based overlay
//! networks commonly take.
//!
//! Invariant: a [`Topology`] that was read is a tree: each process has one parent, and all hang
//! from the front end.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use crate::ids::NodeId;
use crate::overlay::MAX_CPS;

/// Most communication processes of a tree.
pub const PROCESSES_MOST: u64 = 65_536;
/// Most levels of communication processes.
pub const LEVELS_MOST: usize = 6;

/// A communication process by node and number on it, from 1.
pub type Named = (NodeId, u8);

/// A tree of communication processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// So many children under each process of a level, from the front end down. Placement says
    /// where.
    Balanced(Vec<u32>),
    /// Each process with its parent (None: the front end), parents before their children.
    Explicit(Vec<(Named, Option<Named>)>),
}

/// What is wrong with a topology file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyError {
    /// Number of the line, from 1; 0 for the file as a whole.
    pub line: u32,
    /// What is wrong there.
    pub what: TopologyFault,
}

/// See [`TopologyError`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TopologyFault {
    /// Nothing but comments.
    Empty,
    /// The first word is none of the three forms.
    Form(String),
    /// A number is missing, is 0 or has other letters.
    Number(String),
    /// More levels than there may be.
    TooDeep,
    /// More processes than there may be.
    TooLarge,
    /// More on the line, or more lines, than the form has.
    Trailing(String),
    /// A line of the explicit form without `=>`.
    NoArrow,
    /// Not `fe` or `n3:1`.
    Name(String),
    /// This process has a parent already.
    TwoParents(String),
    /// The children of this one were given already.
    TwiceParent(String),
    /// No way leads from the front end to this process.
    Unreachable(String),
}

impl fmt::Display for TopologyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        match &self.what {
            TopologyFault::Empty => {
                f.write_str("no topology: begin with k-ary, balanced or explicit")
            }
            TopologyFault::Form(word) => {
                write!(
                    f,
                    "no form is called {word}: begin with k-ary, balanced or explicit"
                )
            }
            TopologyFault::Number(word) => {
                write!(f, "a whole number from 1 is needed in place of \"{word}\"")
            }
            TopologyFault::TooDeep => {
                write!(f, "more than {LEVELS_MOST} levels: take a larger fan-out")
            }
            TopologyFault::TooLarge => {
                write!(
                    f,
                    "more than {PROCESSES_MOST} communication processes: take fewer"
                )
            }
            TopologyFault::Trailing(word) => {
                write!(f, "nothing is expected at \"{word}\": remove it")
            }
            TopologyFault::NoArrow => f.write_str("a parent, =>, and its children are needed"),
            TopologyFault::Name(word) => write!(
                f,
                "\"{word}\" is no process: write n3:1 for process 1 (to {MAX_CPS}) on node n3, or fe on the left"
            ),
            TopologyFault::TwoParents(name) => {
                write!(f, "{name} has a parent already: name it as a child once")
            }
            TopologyFault::TwiceParent(name) => {
                write!(
                    f,
                    "the children of {name} were given already: put them on one line"
                )
            }
            TopologyFault::Unreachable(name) => write!(
                f,
                "no way leads from fe to {name}: name it as a child of a process that hangs from fe"
            ),
        }
    }
}

impl core::error::Error for TopologyError {}

impl Topology {
    /// Reads a topology file.
    ///
    /// # Errors
    /// The line and what is wrong with it.
    pub fn parse(text: &str) -> Result<Topology, TopologyError> {
        let lines = (1..).zip(text.lines());
        let mut lines = lines
            .map(|(number, line)| (number, line.split('#').next().unwrap_or("").trim()))
            .filter(|(_, line)| !line.is_empty());
        let error = |line, what| TopologyError { line, what };
        let (number, first) = lines.next().ok_or(error(0, TopologyFault::Empty))?;
        let mut words = first.split_whitespace();
        let form = words.next().unwrap_or("");
        let topology = match form {
            "k-ary" => {
                let fan_out = whole(words.next(), number)?;
                let levels = whole(words.next(), number)?;
                if levels as usize > LEVELS_MOST {
                    return Err(error(number, TopologyFault::TooDeep));
                }
                balanced(vec![fan_out; levels as usize], number)?
            }
            "balanced" => {
                let widths: Result<Vec<u32>, _> = (words.next().unwrap_or(""))
                    .split('x')
                    .map(|word| whole(Some(word), number))
                    .collect();
                balanced(widths?, number)?
            }
            "explicit" => {
                if let Some(word) = words.next() {
                    return Err(error(number, TopologyFault::Trailing(word.to_string())));
                }
                return explicit(lines);
            }
            other => return Err(error(number, TopologyFault::Form(other.to_string()))),
        };
        if let Some(word) = words.next() {
            return Err(error(number, TopologyFault::Trailing(word.to_string())));
        }
        match lines.next() {
            Some((number, line)) => Err(error(number, TopologyFault::Trailing(line.to_string()))),
            None => Ok(topology),
        }
    }
}

fn whole(word: Option<&str>, line: u32) -> Result<u32, TopologyError> {
    let word = word.unwrap_or("");
    match word.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(TopologyError {
            line,
            what: TopologyFault::Number(word.to_string()),
        }),
    }
}

fn balanced(widths: Vec<u32>, line: u32) -> Result<Topology, TopologyError> {
    let error = |what| Err(TopologyError { line, what });
    if widths.len() > LEVELS_MOST {
        return error(TopologyFault::TooDeep);
    }
    let (mut level, mut total) = (1_u64, 0_u64);
    for width in &widths {
        level = level.saturating_mul(u64::from(*width));
        total = total.saturating_add(level);
    }
    if total > PROCESSES_MOST {
        return error(TopologyFault::TooLarge);
    }
    Ok(Topology::Balanced(widths))
}

/// `n3:1`.
fn named(word: &str, line: u32) -> Result<Named, TopologyError> {
    let parts = word.strip_prefix('n').and_then(|rest| rest.split_once(':'));
    let parsed = parts.and_then(|(node, slot)| {
        let (node, slot) = (node.parse().ok()?, slot.parse().ok()?);
        (1..=MAX_CPS)
            .contains(&slot)
            .then_some((NodeId(node), slot))
    });
    parsed.ok_or(TopologyError {
        line,
        what: TopologyFault::Name(word.to_string()),
    })
}

fn explicit<'a>(lines: impl Iterator<Item = (u32, &'a str)>) -> Result<Topology, TopologyError> {
    let mut children: BTreeMap<Option<Named>, (u32, Vec<Named>)> = BTreeMap::new();
    let mut placed: BTreeSet<Named> = BTreeSet::new();
    for (line, text) in lines {
        let error = |what| Err(TopologyError { line, what });
        let Some((left, right)) = text.split_once("=>") else {
            return error(TopologyFault::NoArrow);
        };
        let left = left.trim();
        let parent = match left {
            "fe" => None,
            name => Some(named(name, line)?),
        };
        if children.contains_key(&parent) {
            return error(TopologyFault::TwiceParent(left.to_string()));
        }
        let mut below = Vec::new();
        for word in right.split_whitespace() {
            let child = named(word, line)?;
            if !placed.insert(child) {
                return error(TopologyFault::TwoParents(word.to_string()));
            }
            if placed.len() as u64 > PROCESSES_MOST {
                return error(TopologyFault::TooLarge);
            }
            below.push(child);
        }
        if below.is_empty() {
            return error(TopologyFault::NoArrow);
        }
        children.insert(parent, (line, below));
    }
    let mut edges = Vec::new();
    let mut level: Vec<Option<Named>> = vec![None];
    // Each process is a child once, so this ends.
    for depth in 0.. {
        let mut next = Vec::new();
        for parent in level {
            for child in children
                .remove(&parent)
                .into_iter()
                .flat_map(|(_, below)| below)
            {
                edges.push((child, parent));
                next.push(Some(child));
            }
        }
        if next.is_empty() {
            break;
        }
        if depth >= LEVELS_MOST {
            let what = TopologyFault::TooDeep;
            return Err(TopologyError { line: 0, what });
        }
        level = next;
    }
    if let Some((Some((node, slot)), (line, _))) = children.into_iter().next() {
        let what = TopologyFault::Unreachable(alloc::format!("{node}:{slot}"));
        return Err(TopologyError { line, what });
    }
    if edges.is_empty() {
        let what = TopologyFault::Empty;
        return Err(TopologyError { line: 0, what });
    }
    Ok(Topology::Explicit(edges))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms() {
        let read = |text| Topology::parse(text).unwrap();
        assert_eq!(read("k-ary 4 2"), Topology::Balanced(vec![4, 4]));
        assert_eq!(
            read("# two\n\nbalanced 16x32 # wide\n"),
            Topology::Balanced(vec![16, 32])
        );
        let text = "explicit\nn0:1 => n2:1 n2:2\nfe => n0:1 n1:1\n";
        let name = |node, slot| (NodeId(node), slot);
        assert_eq!(
            read(text),
            Topology::Explicit(vec![
                (name(0, 1), None),
                (name(1, 1), None),
                (name(2, 1), Some(name(0, 1))),
                (name(2, 2), Some(name(0, 1))),
            ])
        );
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        let cases = [
            ("", "no topology"),
            ("tree 4", "line 1: no form is called tree"),
            ("k-ary 4", "line 1: a whole number"),
            ("k-ary 4 7", "more than 6 levels"),
            ("k-ary 0 2", "in place of \"0\""),
            ("k-ary 4 2 1", "nothing is expected at \"1\""),
            ("balanced 4y4", "in place of \"4y4\""),
            ("balanced 4x4\n\nmore", "line 3: nothing is expected"),
            ("balanced 4096x4096", "more than 65536"),
            ("explicit", "no topology"),
            ("explicit\nfe n0:1", "line 2: a parent, =>,"),
            ("explicit\nfe =>", "line 2: a parent, =>,"),
            ("explicit\nfe => n0", "\"n0\" is no process"),
            ("explicit\nfe => n0:9", "\"n0:9\" is no process"),
            ("explicit\nfe => n0:1 n0:1", "n0:1 has a parent already"),
            (
                "explicit\nfe => n0:1\nfe => n1:1",
                "the children of fe were given",
            ),
            (
                "explicit\nfe => n0:1\nn1:1 => n2:1",
                "line 3: no way leads from fe to n1:1",
            ),
            (
                "explicit\nfe => n0:1\nn1:1 => n2:1\nn2:1 => n1:1",
                "no way leads from fe to n1:1",
            ),
        ];
        for (text, expected) in cases {
            let error = Topology::parse(text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "(k-ary|balanced|explicit|fe|n[0-9]:[0-9]|=>|[0-9]|x|\n|#| ){0,40}") {
            let _ = Topology::parse(&text);
        }
    }
}
