//! Widths of a tree in which nodes that have numbers already stand where they are wired.
//!
//! Key function: [`widths`]. Neighbours: the module above has the tree of the site.
//!
//! Invariant: in the tree that comes out, two nodes share a switch of a level exactly where they do
//! so at the site.

use std::collections::{BTreeMap, BTreeSet};

use super::{Below, SiteError, Word, collect, widen};

/// The numbers of the parts directly below each switch of a level.
type Groups = Vec<Vec<u32>>;

/// Widths from the leaves up for nodes of these numbers; the narrowest that there are.
///
/// # Errors
/// [`SiteError`]: there are none. It names the first node that is in the way.
pub(super) fn widths(
    root: &Below,
    height: usize,
    numbers: &BTreeMap<&str, u32>,
) -> Result<Vec<u32>, SiteError> {
    let mut narrowest = vec![0; height];
    widen(root, height, &mut narrowest);
    let mut leaves = Vec::new();
    let shape = shape(root, numbers, &mut leaves);
    let groups = leaves.iter().map(|(_, numbers)| numbers.clone()).collect();
    match search(&groups, &shape, &narrowest) {
        Some(widths) => Ok(widths),
        None => Err(refusal(&leaves, &narrowest)),
    }
}

/// How many switches of each level but the leaves' are below each switch of the level above; and
/// the leaf switches, with their nodes.
fn shape<'a>(
    root: &'a Below,
    numbers: &BTreeMap<&str, u32>,
    leaves: &mut Vec<(Vec<&'a Word>, Vec<u32>)>,
) -> Vec<Vec<usize>> {
    let mut shape = Vec::new();
    let mut level = vec![root];
    while matches!(level[0], Below::Switches(_)) {
        let mut next = Vec::new();
        let mut counts = Vec::new();
        for below in level {
            if let Below::Switches(parts) = below {
                counts.push(parts.len());
                next.extend(parts);
            }
        }
        shape.push(counts);
        level = next;
    }
    for leaf in level {
        let mut words = Vec::new();
        collect(leaf, &mut words);
        let of = words.iter().map(|word| numbers[&*word.text]).collect();
        leaves.push((words, of));
    }
    shape.reverse();
    shape
}

/// Widths for these groups and the levels above them.
fn search(groups: &Groups, shape: &[Vec<usize>], narrowest: &[u32]) -> Option<Vec<u32>> {
    let highest = *groups.iter().flatten().max()?;
    let Some((counts, above)) = shape.split_first() else {
        // The root: everything is below it.
        return Some(vec![narrowest[0].max(highest + 1)]);
    };
    // Wider blocks than these are fewer than the groups.
    let widest = match groups.len() - 1 {
        0 => highest + 1,
        others => highest / u32::try_from(others).expect("at most NAMES_MAX"),
    };
    (narrowest[0]..=widest).find_map(|width| {
        let blocks = blocks(groups, width)?;
        let mut blocks = blocks.into_iter();
        let above_them = counts
            .iter()
            .map(|count| blocks.by_ref().take(*count).collect());
        let mut widths = search(&above_them.collect(), above, &narrowest[1..])?;
        widths.insert(0, width);
        Some(widths)
    })
}

/// The block of each group, where each has one of its own.
fn blocks(groups: &Groups, width: u32) -> Option<Vec<u32>> {
    let mut taken = BTreeSet::new();
    let block = |group: &Vec<u32>| {
        let block = group[0] / width;
        let is_one = group.iter().all(|number| number / width == block);
        (is_one && taken.insert(block)).then_some(block)
    };
    groups.iter().map(block).collect()
}

/// Names a node whose number does not go with its switch.
fn refusal(leaves: &[(Vec<&Word>, Vec<u32>)], narrowest: &[u32]) -> SiteError {
    let width = narrowest[0];
    let text: Vec<String> = narrowest.iter().map(u32::to_string).collect();
    let what = |node: u32| {
        format!(
            "is node {node}, and each switch needs a block of numbers of its own: in a tree \
             {} the first leaf switch has n0 to n{}, the next begins with n{width}. \
             `hearth node import LIST --tree FILE` numbers the nodes so",
            text.join("x"),
            width - 1
        )
    };
    let mut taken = BTreeMap::new();
    for (leaf, (words, numbers)) in leaves.iter().enumerate() {
        for (word, node) in words.iter().zip(numbers) {
            let is_first = *node == numbers[0];
            let is_its = node / width == numbers[0] / width;
            let other = taken.insert(node / width, leaf);
            if !is_its || (is_first && other.is_some_and(|other| other != leaf)) {
                return word.wrong(what(*node));
            }
        }
    }
    // The leaf switches are as they should be, those above them are not.
    let (words, numbers) = leaves.last().expect("a tree has leaves");
    words[0].wrong(what(numbers[0]))
}
