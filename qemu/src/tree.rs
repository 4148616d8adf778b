//! The shape of a cluster's network: a tree of switches.
//!
//! Key type: [`Tree`]. Neighbours: `network` lays it out with bridges; the control node tells each
//! machine its place in it, emulated or not.
//!
//! Invariant: a tree has one to [`MAX_LEVELS`] levels, each at least one wide.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::Error;

/// Most levels of switches: the personality of a node has four places.
pub const MAX_LEVELS: usize = 4;

/// Widths of the tree of switches, from the leaves up: `4x2` is four nodes on each of two leaf
/// switches, which hang on one upper switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tree(Vec<u16>);

impl Tree {
    /// One switch for all nodes.
    pub fn flat(nodes: u32) -> Self {
        // More than fit are refused by `Spec::check`.
        Self(vec![u16::try_from(nodes).unwrap_or(u16::MAX).max(1)])
    }

    /// Widths from the leaves up; at least one.
    pub fn widths(&self) -> &[u16] {
        &self.0
    }

    /// Levels of switches; at least one.
    pub fn levels(&self) -> usize {
        self.0.len()
    }

    /// The index of a node at each level, from the leaves up; 0 above the top. Nodes beyond the
    /// tree's size count on at the top.
    pub fn place(&self, node: u32) -> [u16; MAX_LEVELS] {
        let mut place = [0; MAX_LEVELS];
        let mut rest = node;
        let top = self.0.len() - 1;
        for (level, (index, &width)) in place.iter_mut().zip(&self.0).enumerate() {
            let width = u32::from(width);
            let here = if level == top { rest } else { rest % width };
            *index = u16::try_from(here).unwrap_or(u16::MAX);
            rest /= width;
        }
        place
    }

    /// Nodes that fit below one switch of `level` (0 = leaf switches).
    pub(crate) fn nodes_below(&self, level: usize) -> u64 {
        self.0
            .iter()
            .take(level + 1)
            .map(|&width| u64::from(width))
            .product()
    }

    /// Switches of `level` that `nodes` nodes need.
    pub(crate) fn switches(&self, level: usize, nodes: u32) -> u32 {
        let below = self.nodes_below(level);
        u32::try_from(u64::from(nodes).div_ceil(below)).unwrap_or(u32::MAX)
    }

    /// The leaf switch of a node.
    pub(crate) fn leaf_of(&self, node: u32) -> u32 {
        node / u32::from(self.0[0])
    }

    /// The switch of `level + 1` above a switch of `level`.
    pub(crate) fn parent_of(&self, level: usize, switch: u32) -> u32 {
        switch / u32::from(self.0[level + 1])
    }
}

impl FromStr for Tree {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let width = |word: &str| word.parse().ok().filter(|&width| width > 0);
        let widths: Option<Vec<u16>> = text.split('x').map(width).collect();
        widths.filter(|widths| widths.len() <= MAX_LEVELS).map(Self).ok_or_else(|| {
            Error::Spec(format!(
                "`{text}` is no tree: write the widths from the leaves up, like 4x2 for two leaf \
                 switches of four nodes (at most {MAX_LEVELS} levels)"
            ))
        })
    }
}

impl fmt::Display for Tree {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, width) in self.0.iter().enumerate() {
            if level > 0 {
                formatter.write_str("x")?;
            }
            write!(formatter, "{width}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_counted_from_the_leaves_up() {
        let tree: Tree = "4x2x3".parse().unwrap();
        assert_eq!(tree.to_string(), "4x2x3");
        assert_eq!([0, 1, 2].map(|level| tree.switches(level, 17)), [5, 3, 1]);
        assert_eq!(tree.leaf_of(11), 2);
        assert_eq!(tree.parent_of(0, 3), 1);
        assert_eq!(tree.parent_of(1, 2), 0);
    }

    #[test]
    fn places_count_from_the_leaves_up() {
        let tree: Tree = "4x2".parse().unwrap();
        assert_eq!(tree.levels(), 2);
        assert_eq!(tree.place(0), [0, 0, 0, 0]);
        assert_eq!(tree.place(3), [3, 0, 0, 0]);
        assert_eq!(tree.place(5), [1, 1, 0, 0]);
        assert_eq!(tree.place(9), [1, 2, 0, 0]);
    }

    #[test]
    fn what_is_no_tree_is_refused_with_an_example() {
        for bad in ["", "0", "4x", "4x0", "x2", "a", "1x1x1x1x1", "70000"] {
            assert!(
                bad.parse::<Tree>().unwrap_err().to_string().contains("4x2"),
                "{bad}"
            );
        }
    }
}
