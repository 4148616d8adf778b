//! The shape of a fat tree and the distances in it.
//!
//! Nodes are numbered from 0 so that the nodes below one switch are neighbours in number: the
//! first width many are on the first leaf switch, and so on, as `hearth up --tree 4x2` and the
//! personalities of nodes have it.
//!
//! Key type: [`Topology`]. Neighbour: [`crate::exact`].
//!
//! Invariant: every node has a switch at every level, also nodes with numbers beyond the widths:
//! the root takes as many switches as there are.

/// Most levels of switches. The personality of a node names four; more than this many would only
/// be a mistake.
pub const LEVELS_MAX: usize = 16;

/// Why there is no such tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// No level at all.
    #[error(
        "a tree has at least one level of switches; name the widths from the leaves up, as in 4x2"
    )]
    NoLevels,
    /// More than [`LEVELS_MAX`] levels.
    #[error("{0} levels of switches; at most {LEVELS_MAX} are possible")]
    TooManyLevels(usize),
    /// A switch with nothing below it.
    #[error("level {0} of the tree (1 = leaf switches) is 0 wide; every width is 1 or more")]
    NoWidth(usize),
}

/// A tree of switches with nodes at its leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Nodes below one switch of each level but the root's, from the leaves up.
    spans: Vec<u64>,
}

impl Topology {
    /// The tree with these widths from the leaves up: nodes on a leaf switch, leaf switches under
    /// the switch above, and so on. Widths may differ from level to level.
    ///
    /// # Errors
    /// [`TopologyError`].
    pub fn new(widths: &[u32]) -> Result<Self, TopologyError> {
        if widths.len() > LEVELS_MAX {
            return Err(TopologyError::TooManyLevels(widths.len()));
        }
        if let Some(level) = widths.iter().position(|&width| width == 0) {
            return Err(TopologyError::NoWidth(level + 1));
        }
        // The root's width does not matter: there is one root.
        let (_, below_root) = widths.split_last().ok_or(TopologyError::NoLevels)?;
        let spans = below_root.iter().scan(1_u64, |span, &width| {
            *span = span.saturating_mul(u64::from(width));
            Some(*span)
        });
        Ok(Topology {
            spans: spans.collect(),
        })
    }

    /// One switch with all nodes on it.
    pub fn flat() -> Self {
        Topology { spans: Vec::new() }
    }

    /// Levels of switches, the root included; at least 1.
    pub fn height(&self) -> usize {
        self.spans.len() + 1
    }

    /// The number of the switch of `level` above a node, counted within its level. Level 1 is
    /// the leaf switches, level [`Topology::height`] the root.
    ///
    /// # Panics
    /// When there is no such level.
    pub fn switch_above(&self, node: u32, level: usize) -> u64 {
        assert!(
            (1..=self.height()).contains(&level),
            "levels are 1 to {}",
            self.height()
        );
        match self.spans.get(level - 1) {
            Some(span) => u64::from(node) / span,
            None => 0,
        }
    }

    /// Switches crossed between two nodes: `2h - 1`, where `h` is the level of the lowest switch
    /// above both; 0 between a node and itself. (The publication's "hops".)
    pub fn hops(&self, a: u32, b: u32) -> u32 {
        if a == b {
            return 0;
        }
        let common = (1..=self.height())
            .find(|&level| self.switch_above(a, level) == self.switch_above(b, level))
            .expect("the root is above all");
        2 * u32::try_from(common).expect("at most LEVELS_MAX") - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_publications_machine() {
        // 64 nodes, height 3, width 4, numbered from 1 there. Nodes 1 and 63 cross five routers:
        // 200, 100, 000, 103, 233 (it prints 203 for the last).
        let tree = Topology::new(&[4, 4, 4]).unwrap();
        assert_eq!(tree.height(), 3);
        assert_eq!(tree.hops(0, 1), 1);
        assert_eq!(tree.hops(0, 4), 3);
        assert_eq!(tree.hops(0, 62), 5);
        let path = [1, 2, 3].map(|level| tree.switch_above(62, level));
        assert_eq!(path, [15, 3, 0]);
    }

    #[test]
    fn widths_may_differ_and_nodes_beyond_them_count_on_at_the_root() {
        let tree = Topology::new(&[2, 3]).unwrap();
        assert_eq!((tree.hops(0, 1), tree.hops(1, 2)), (1, 3));
        assert_eq!((tree.hops(5, 6), tree.hops(6, 7)), (3, 1));
        assert_eq!(Topology::flat(), Topology::new(&[9]).unwrap());
        assert_eq!(Topology::flat().hops(3, 4_000_000_000), 1);
        assert_eq!(tree.hops(5, 5), 0);
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        assert_eq!(Topology::new(&[]), Err(TopologyError::NoLevels));
        assert_eq!(Topology::new(&[4, 0]), Err(TopologyError::NoWidth(2)));
        assert_eq!(
            Topology::new(&[1; 17]),
            Err(TopologyError::TooManyLevels(17))
        );
    }
}
