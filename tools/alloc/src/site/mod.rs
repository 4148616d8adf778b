//! A site's own tree of switches, as Slurm's topology/tree plugin has it in `topology.conf`.
//!
//! Switches may be unequal: the tree that nodes are placed in is as wide at each level as the
//! widest switch of that level, and the places that no node has stay empty. Hops depend on the
//! level of the switch that two nodes share and on nothing else, so empty places change none.
//!
//! Key types: [`Site`] (what the file says), [`Wired`] (its nodes with their places). Neighbours:
//! [`hosts`] expands lists of host names, [`fit`] finds widths for nodes that have numbers;
//! `hearth serve --tree FILE`, `hearth plan` and `hearth node import` read such files.
//!
//! Invariant: what is refused is named by its line and its word.

mod fit;
mod hosts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::topology::{LEVELS_MAX, Topology};

/// Most nodes and switches of a file, each.
pub const NAMES_MAX: usize = 65_536;

/// What is wrong with a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: `{word}` {what}")]
pub struct SiteError {
    /// The line, from 1.
    pub line: usize,
    /// The word.
    pub word: String,
    /// What is wrong with it, and what to write instead.
    pub what: String,
}

/// A name, and the line where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    line: usize,
    text: String,
}

impl Word {
    fn wrong(&self, what: impl Into<String>) -> SiteError {
        SiteError {
            line: self.line,
            word: self.text.clone(),
            what: what.into(),
        }
    }
}

/// The host names of a list: `tux[0-3,7],login1`, `r[1-2]n[01-16]`.
///
/// # Errors
/// [`SiteError`], of line 1.
pub fn host_names(list: &str) -> Result<Vec<String>, SiteError> {
    let list = Word {
        line: 1,
        text: list.to_string(),
    };
    let names = hosts::expand(&list, &mut 0)?;
    Ok(names.into_iter().map(|name| name.text).collect())
}

/// A switch: what is directly below it.
#[derive(Debug)]
struct Switch {
    name: Word,
    nodes: Vec<Word>,
    switches: Vec<Word>,
}

/// A group of nodes or of groups: a switch with all that is below it.
#[derive(Debug)]
enum Below {
    Nodes(Vec<Word>),
    Switches(Vec<Below>),
}

/// A tree of switches with named nodes.
#[derive(Debug)]
pub struct Site {
    root: Below,
    height: usize,
}

/// The nodes of a site, each with its number, which is its place in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wired {
    /// Widths of the tree from the leaves up.
    pub widths: Vec<u32>,
    /// The places that nodes have.
    pub nodes: BTreeMap<u32, String>,
}

impl Wired {
    /// Whether some place below the widest switches has no node.
    pub fn has_holes(&self) -> bool {
        let places: u64 = self.widths.iter().map(|&width| u64::from(width)).product();
        (self.nodes.len() as u64) < places
    }

    /// The tree; its places without a node are not told from the others.
    pub fn topology(&self) -> Topology {
        Topology::new(&self.widths).expect("widths of at least 1, for fewer than 2^32 places")
    }
}

impl Site {
    /// Reads a file.
    ///
    /// # Errors
    /// [`SiteError`].
    pub fn read(text: &str) -> Result<Self, SiteError> {
        let switches = switches(text)?;
        let mut by_name: BTreeMap<&str, &Switch> = BTreeMap::new();
        for switch in &switches {
            if by_name.insert(&switch.name.text, switch).is_some() {
                return Err(switch.name.wrong("is the name of two switches"));
            }
        }
        let root = root(&switches, &by_name)?;
        let mut walk = Walk {
            by_name: &by_name,
            nodes: BTreeSet::new(),
            reached: 0,
        };
        let (height, below) = walk.below(root, 1)?;
        if walk.reached < switches.len() {
            // Each has one switch above it, and they are not below the root.
            let seen = below_names(root, &by_name);
            let lost = switches
                .iter()
                .find(|switch| !seen.contains(&*switch.name.text))
                .expect("fewer were reached than there are");
            return Err(lost.name.wrong("is below itself"));
        }
        Ok(Site {
            root: below,
            height,
        })
    }

    /// The names of all nodes, in the order of their places.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let mut words = Vec::new();
        collect(&self.root, &mut words);
        words.into_iter().map(|word| word.text.as_str())
    }

    /// Gives the nodes numbers by their places: those below the first leaf switch come first, and
    /// narrow switches leave numbers out.
    ///
    /// # Errors
    /// [`SiteError`]: there are not enough numbers.
    pub fn number(&self) -> Result<Wired, SiteError> {
        let mut widths = vec![0; self.height];
        widen(&self.root, self.height, &mut widths);
        let places = widths
            .iter()
            .try_fold(1_u32, |places, width| places.checked_mul(*width));
        if places.is_none() {
            let mut words = Vec::new();
            collect(&self.root, &mut words);
            return Err(words[0].wrong("is in a tree with more than 2^32 places"));
        }
        let mut nodes = BTreeMap::new();
        give_places(&self.root, 0, self.height, &widths, &mut nodes);
        Ok(Wired { widths, nodes })
    }

    /// The tree in which each node has the number that `number` knows of its name.
    ///
    /// # Errors
    /// [`SiteError`]: a name has no number, two have the same, or a switch's numbers are not a
    /// block of their own.
    pub fn with_numbers(&self, number: impl Fn(&str) -> Option<u32>) -> Result<Wired, SiteError> {
        let mut words = Vec::new();
        collect(&self.root, &mut words);
        let (mut nodes, mut numbers) = (BTreeMap::new(), BTreeMap::new());
        for word in words {
            let node = number(&word.text).ok_or_else(|| {
                word.wrong(
                    "is no node: write n0, n1 and so on, or host names that the list of nodes \
                     (boot.nodes_file) has as its fourth words",
                )
            })?;
            if node as usize >= NAMES_MAX {
                let most = NAMES_MAX - 1;
                return Err(word.wrong(format!("is node {node}, which is above {most}")));
            }
            if let Some(other) = nodes.insert(node, word.text.clone()) {
                return Err(word.wrong(format!("is node {node}, and so is {other}")));
            }
            numbers.insert(word.text.as_str(), node);
        }
        let widths = fit::widths(&self.root, self.height, &numbers)?;
        Ok(Wired { widths, nodes })
    }
}

/// The switch above all others.
fn root<'a>(
    switches: &'a [Switch],
    by_name: &BTreeMap<&str, &'a Switch>,
) -> Result<&'a Switch, SiteError> {
    let mut above: BTreeMap<&str, &Switch> = BTreeMap::new();
    for switch in switches {
        for word in &switch.switches {
            if !by_name.contains_key(&*word.text) {
                return Err(word.wrong("is no switch: no line begins with its SwitchName="));
            }
            if let Some(other) = above.insert(&word.text, switch) {
                let other = &other.name.text;
                return Err(word.wrong(format!("is below {other} already; a tree is needed")));
            }
        }
    }
    let mut roots = switches
        .iter()
        .filter(|switch| !above.contains_key(&*switch.name.text));
    let Some(root) = roots.next() else {
        let none = Word {
            line: 1,
            text: "SwitchName".to_string(),
        };
        return Err(match switches.first() {
            Some(first) => first.name.wrong("is below itself"),
            None => none.wrong("is missing: there is no switch, as in SwitchName=s0 Nodes=n[0-3]"),
        });
    };
    match roots.next() {
        None => Ok(root),
        Some(other) => Err(other.name.wrong(format!(
            "has no switch in common with {}: name both in the Switches= of one above them",
            root.name.text
        ))),
    }
}

/// The names of a switch and all below it, which are below none of themselves.
fn below_names<'a>(root: &'a Switch, by_name: &BTreeMap<&str, &'a Switch>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open = vec![root];
    while let Some(switch) = open.pop() {
        if seen.insert(switch.name.text.as_str()) {
            open.extend(switch.switches.iter().map(|word| by_name[&*word.text]));
        }
    }
    seen
}

/// Goes down the tree.
struct Walk<'a> {
    by_name: &'a BTreeMap<&'a str, &'a Switch>,
    nodes: BTreeSet<&'a str>,
    reached: usize,
}

impl<'a> Walk<'a> {
    /// What is below a switch at so many levels below the top, and how many levels it has.
    fn below(&mut self, switch: &'a Switch, depth: usize) -> Result<(usize, Below), SiteError> {
        self.reached += 1;
        if depth > LEVELS_MAX {
            let what = format!("is more than {LEVELS_MAX} levels below the top");
            return Err(switch.name.wrong(what));
        }
        for node in &switch.nodes {
            if !self.nodes.insert(&node.text) {
                return Err(node.wrong("is on two switches"));
            }
        }
        if switch.switches.is_empty() {
            return Ok((1, Below::Nodes(switch.nodes.clone())));
        }
        let mut height = None;
        let mut parts = Vec::new();
        for word in &switch.switches {
            let (levels, below) = self.below(self.by_name[&*word.text], depth + 1)?;
            if *height.get_or_insert(levels) != levels {
                return Err(word.wrong(format!(
                    "has not as many levels of switches below it as {}: put a switch of its own \
                     between the two that are too near",
                    switch.switches[0].text
                )));
            }
            parts.push(below);
        }
        let height = height.expect("at least one") + 1;
        Ok((height, Below::Switches(parts)))
    }
}

fn collect<'a>(below: &'a Below, words: &mut Vec<&'a Word>) {
    match below {
        Below::Nodes(nodes) => words.extend(nodes),
        Below::Switches(parts) => parts.iter().for_each(|part| collect(part, words)),
    }
}

/// Makes each level as wide as its widest switch; `level` counts from 1 at the leaves.
fn widen(below: &Below, level: usize, widths: &mut [u32]) {
    let count = match below {
        Below::Nodes(nodes) => nodes.len(),
        Below::Switches(parts) => {
            parts.iter().for_each(|part| widen(part, level - 1, widths));
            parts.len()
        }
    };
    let count = u32::try_from(count).expect("at most NAMES_MAX");
    widths[level - 1] = widths[level - 1].max(count);
}

fn give_places(
    below: &Below,
    first: u32,
    level: usize,
    widths: &[u32],
    nodes: &mut BTreeMap<u32, String>,
) {
    match below {
        Below::Nodes(words) => {
            nodes.extend(
                (first..)
                    .zip(words)
                    .map(|(at, word)| (at, word.text.clone())),
            );
        }
        Below::Switches(parts) => {
            let span: u32 = widths[..level - 1].iter().product();
            for (part, index) in parts.iter().zip(0..) {
                give_places(part, first + index * span, level - 1, widths, nodes);
            }
        }
    }
}

/// The switches of a file, as they stand.
fn switches(text: &str) -> Result<Vec<Switch>, SiteError> {
    let mut switches = Vec::new();
    let (mut nodes, mut links) = (0, 0);
    for words in statements(text) {
        let switch = switch(words, &mut nodes, &mut links)?;
        if switches.len() >= NAMES_MAX {
            return Err(switch
                .name
                .wrong(format!("is one switch more than {NAMES_MAX}")));
        }
        switches.push(switch);
    }
    Ok(switches)
}

/// The words of each statement: a line, or several of which all but the last end in `\`. `#` begins
/// a comment.
fn statements(text: &str) -> Vec<Vec<Word>> {
    let mut statements: Vec<Vec<Word>> = Vec::new();
    let mut goes_on = false;
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.split('#').next().unwrap_or_default().trim_end();
        let (text, continued) = match text.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (text, false),
        };
        if !goes_on {
            statements.push(Vec::new());
        }
        goes_on = continued;
        let words = text.split_whitespace().map(|word| Word {
            line,
            text: word.to_string(),
        });
        statements.last_mut().expect("one is open").extend(words);
    }
    statements.retain(|words| !words.is_empty());
    statements
}

/// One statement. `nodes` and `links` count names over the whole file.
fn switch(words: Vec<Word>, nodes: &mut usize, links: &mut usize) -> Result<Switch, SiteError> {
    let mut name: Option<Word> = None;
    let (mut on_it, mut below) = (Vec::new(), Vec::new());
    for word in &words {
        let Some((key, value)) = word.text.split_once('=') else {
            return Err(word.wrong("is not KEY=VALUE, as in SwitchName=s0 Nodes=n[0-3]"));
        };
        let value = Word {
            line: word.line,
            text: value.to_string(),
        };
        if value.text.is_empty() {
            return Err(word.wrong("has no value"));
        }
        match key.to_ascii_lowercase().as_str() {
            "switchname" if name.is_some() => {
                return Err(word.wrong("is a second switch on this line"));
            }
            "switchname" => name = Some(value),
            "nodes" => on_it.extend(hosts::expand(&value, nodes)?),
            "switches" => below.extend(hosts::expand(&value, links)?),
            // Hops count switches, whatever their links carry.
            "linkspeed" => {}
            _ => {
                return Err(word.wrong(
                    "is not understood; SwitchName=, Nodes=, Switches= and LinkSpeed= are",
                ));
            }
        }
    }
    let name = name.ok_or_else(|| words[0].wrong("is on a line without SwitchName="))?;
    match (on_it.is_empty(), below.is_empty()) {
        (true, true) => Err(name.wrong("has neither Nodes= nor Switches=")),
        (false, false) => Err(name.wrong(
            "has both nodes and switches below it: put a switch of their own above the nodes",
        )),
        _ => Ok(Switch {
            name,
            nodes: on_it,
            switches: below,
        }),
    }
}
