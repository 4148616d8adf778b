//! Node names and hostlists: `n0`, `n[0-3,7]`, in the notation of Slurm and LLNL's hostlist.
//!
//! Key functions: [`parse`] (text to indices, in the order written, no doubles) and [`format`]
//! (indices to the shortest text). Neighbours: the command line, the API and every table that
//! names nodes; [`crate::hosts`] reads lists with a site's host names.
//!
//! Invariant: `parse(format(x)) == x` for every sorted list without doubles.

/// Most nodes one hostlist may name: the largest cluster the protocols are simulated with has
/// 16,512, and a list like `n[0-4000000000]` must not eat the machine's memory.
pub const MAX_NODES_IN_LIST: usize = 65_536;

/// Why a hostlist was not understood.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ParseError {
    /// Some part is not `nI`, `I`, `n[...]` or a range.
    #[error("{0:?} is not a node name; write nodes as n0, n[0-3,7] or n0,n2")]
    NotANode(String),
    /// A range runs backwards.
    #[error("the range {0}-{1} runs backwards; write {1}-{0}")]
    Backwards(u32, u32),
    /// A bracket is missing or out of place.
    #[error("the brackets in {0:?} do not match; write n[0-3,7]")]
    Brackets(String),
    /// A node is named twice.
    #[error("n{0} is named twice; name each node once")]
    Twice(u32),
    /// The list names nothing.
    #[error("the node list is empty; write nodes as n0, n[0-3,7] or n0,n2")]
    Empty,
    /// More than [`MAX_NODES_IN_LIST`] names.
    #[error("the node list names more than {MAX_NODES_IN_LIST} nodes")]
    TooMany,
    /// No machine in the list of nodes has this host name.
    #[error(
        "there is no node {0}{1}; write nodes as n0, n[0-3,7], or by the host names in boot.nodes_file"
    )]
    NoHost(String, String),
    /// A list of host names is written wrongly.
    #[error("the host names {0}")]
    Hosts(String),
}

/// Parses a hostlist into node indices, in the order written.
///
/// # Errors
/// [`ParseError`] says which part was not understood and how to write it.
pub fn parse(text: &str) -> Result<Vec<u32>, ParseError> {
    parse_items(text, own)
}

/// Parses the items of a list by `read`.
pub(crate) fn parse_items(
    text: &str,
    read: impl Fn(&str) -> Result<Vec<u32>, ParseError>,
) -> Result<Vec<u32>, ParseError> {
    let mut nodes = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for item in split_outside_brackets(text)? {
        for node in read(item)? {
            if !seen.insert(node) {
                return Err(ParseError::Twice(node));
            }
            nodes.push(node);
        }
        if nodes.len() > MAX_NODES_IN_LIST {
            return Err(ParseError::TooMany);
        }
    }
    if nodes.is_empty() {
        Err(ParseError::Empty)
    } else {
        Ok(nodes)
    }
}

/// The nodes of an item that names them as this system does.
pub(crate) fn own(item: &str) -> Result<Vec<u32>, ParseError> {
    let body = item.strip_prefix('n').unwrap_or(item);
    let ranges = match body.strip_prefix('[') {
        Some(rest) => rest
            .strip_suffix(']')
            .ok_or_else(|| ParseError::Brackets(item.to_string()))?,
        None => body,
    };
    let mut nodes = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = parse_range(range.trim(), item)?;
        if (last - first) as usize >= MAX_NODES_IN_LIST {
            return Err(ParseError::TooMany);
        }
        nodes.extend(first..=last);
        if nodes.len() > MAX_NODES_IN_LIST {
            return Err(ParseError::TooMany);
        }
    }
    Ok(nodes)
}

/// Writes sorted node indices in the shortest form: `n3`, `n[0-3,7]`; empty for no nodes.
pub fn format(nodes: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &node in nodes {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(node) => *last = node,
            _ => ranges.push((node, node)),
        }
    }
    let text: Vec<String> = ranges
        .iter()
        .map(|&(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    match ranges.as_slice() {
        [] => String::new(),
        [(first, last)] if first == last => format!("n{first}"),
        _ => format!("n[{}]", text.join(",")),
    }
}

/// Most ranges of nodes that an error names.
const RANGES_SAID: usize = 16;

/// The same for an error: of many ranges the first ones, and `, ...`.
fn format_some(nodes: &[u32]) -> String {
    let text = format(nodes);
    match text.match_indices(',').nth(RANGES_SAID - 1) {
        Some((at, _)) => format!("{},...]", &text[..at]),
        None => text,
    }
}

/// Why some of the nodes that somebody named cannot be meant: there are no such ones among `known`,
/// which is sorted. None: there are.
pub fn unknown(wanted: impl IntoIterator<Item = u32>, known: &[u32]) -> Option<String> {
    let missing = wanted.into_iter();
    let mut missing: Vec<u32> = missing
        .filter(|node| known.binary_search(node).is_err())
        .collect();
    if missing.is_empty() {
        return None;
    }
    missing.sort_unstable();
    let there = match known {
        [] => "no node has come yet".to_string(),
        [only] => format!("there is {} alone", name(*only)),
        known => format!("there are {}", format_some(known)),
    };
    let verb = match missing.len() {
        1 => "is no node",
        _ => "are no nodes",
    };
    let missing = format_some(&missing);
    Some(format!("there {verb} {missing}; {there} (`hearth nodes`)"))
}

/// The name of one node.
pub fn name(node: u32) -> String {
    format!("n{node}")
}

/// The parts of a list, which commas outside of brackets part.
///
/// # Errors
/// The brackets do not match.
pub fn split_outside_brackets(text: &str) -> Result<Vec<&str>, ParseError> {
    let mut items = Vec::new();
    let (mut start, mut inside) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            '[' if !inside => inside = true,
            ']' if inside => inside = false,
            '[' | ']' => return Err(ParseError::Brackets(text.to_string())),
            ',' if !inside => {
                items.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err(ParseError::Brackets(text.to_string()));
    }
    items.push(text[start..].trim());
    items.retain(|item| !item.is_empty());
    Ok(items)
}

fn parse_range(range: &str, item: &str) -> Result<(u32, u32), ParseError> {
    let number = |text: &str| {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { text.parse().ok() } else { None };
        value.ok_or_else(|| ParseError::NotANode(item.to_string()))
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if first > last {
        Err(ParseError::Backwards(first, last))
    } else {
        Ok((first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_in_the_order_written() {
        assert_eq!(parse("n3"), Ok(vec![3]));
        assert_eq!(parse("n[0-3,7]"), Ok(vec![0, 1, 2, 3, 7]));
        assert_eq!(parse("n5, n[1-2]"), Ok(vec![5, 1, 2]));
        assert_eq!(parse("0-2,9"), Ok(vec![0, 1, 2, 9]));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse(""), Err(ParseError::Empty));
        assert_eq!(parse("n5,n[1-2],n1"), Err(ParseError::Twice(1)));
        assert_eq!(parse("node1"), Err(ParseError::NotANode("node1".into())));
        assert_eq!(parse("n-1"), Err(ParseError::NotANode("n-1".into())));
        assert_eq!(parse("n[3-1]"), Err(ParseError::Backwards(3, 1)));
        assert_eq!(parse("n[1-3"), Err(ParseError::Brackets("n[1-3".into())));
        assert_eq!(parse("n[0-4000000000]"), Err(ParseError::TooMany));
        assert_eq!(parse("n[1x]"), Err(ParseError::NotANode("n[1x]".into())));
    }

    #[test]
    fn nodes_that_are_not_there_are_named_with_those_that_are() {
        assert_eq!(unknown([1, 0], &[0, 1]), None);
        assert_eq!(
            unknown([7, 1, 6], &[0, 1]).unwrap(),
            "there are no nodes n[6-7]; there are n[0-1] (`hearth nodes`)"
        );
        assert!(unknown([7], &[]).unwrap().contains("no node has come yet"));
        let one = unknown([7], &[0]).unwrap();
        assert!(one.contains("no node n7; there is n0 alone ("), "{one}");
        let odd: Vec<u32> = (0..5_000).map(|node| node * 2 + 1).collect();
        let text = unknown((0..5_000).map(|node| node * 2), &odd).unwrap();
        assert!(text.len() < 200 && text.contains("n[1,3,"), "{text}");
    }

    #[test]
    fn format_is_the_inverse() {
        for list in [
            vec![],
            vec![4],
            vec![0, 1, 2, 3, 7],
            vec![1, 3, 5],
            vec![0, 9, 10],
        ] {
            let text = format(&list);
            if !list.is_empty() {
                assert_eq!(parse(&text), Ok(list), "{text}");
            }
        }
        assert_eq!(format(&[0, 1, 2, 3, 7]), "n[0-3,7]");
    }
}
