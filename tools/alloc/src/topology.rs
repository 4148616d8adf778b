//! The shape of a fat tree and the distances in it.
//!
//! Nodes are numbered from 0 so that the nodes below one switch are neighbours in number: the
//! first width many are on the first leaf switch, and so on, as `hearth up --tree 4x2` and the
//! personalities of nodes have it.
//!
//! Key type: [`Topology`]. Neighbour: [`crate::placement::exact`].
//!
//! Invariant: every node has a switch at every level, also nodes with numbers beyond the widths:
//! the root takes as many switches as there are.

use std::fmt;
use std::str::FromStr;

/// Most levels of switches. The personality of a node names four; more than this many would only
/// be a mistake.
pub const LEVELS_MAX: usize = 16;

/// Most nodes a tree has places for; numbers of nodes are 32 bits wide.
pub const PLACES_MAX: u64 = 1 << 32;

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
    /// Places for more nodes than numbers.
    #[error("the tree {0} has places for more than 2^32 nodes; make a level narrower")]
    TooLarge(String),
    /// Text that is no list of widths.
    #[error("{0:?} is no tree; write the widths from the leaves up, as in 4x4x4")]
    NotATree(String),
    /// More nodes than places.
    #[error(
        "{nodes} nodes do not fit into the tree {tree}, which has {places} places; add a level or \
         make one wider"
    )]
    TooManyNodes {
        /// The tree.
        tree: String,
        /// Nodes wanted.
        nodes: u64,
        /// Places of the tree.
        places: u64,
    },
    /// Uplinks for another number of levels.
    #[error(
        "uplinks for {given} levels of switches, but {needed} of the tree's levels are below the \
         root; name one number for each, from the leaves up"
    )]
    UplinkLevels {
        /// Numbers given.
        given: usize,
        /// Levels below the root.
        needed: usize,
    },
    /// A switch that is not connected upwards.
    #[error("level {0} of the tree (1 = leaf switches) has no uplink; every switch needs one")]
    NoUplink(usize),
}

/// A tree of switches with nodes at its leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// From the leaves up. The last is the root's.
    widths: Vec<u32>,
    /// Nodes below one switch of each level but the root's, from the leaves up.
    spans: Vec<u64>,
    /// Links upwards of one switch of each level but the root's, from the leaves up.
    uplinks: Vec<u32>,
    /// Nodes there are; the places after them are empty.
    nodes: u64,
}

impl Topology {
    /// The tree with these widths from the leaves up: nodes on a leaf switch, leaf switches under
    /// the switch above, and so on. Widths may differ from level to level. Every place has a
    /// node, every switch as many uplinks as downlinks, until said otherwise.
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
        let (_, below_root) = widths.split_last().ok_or(TopologyError::NoLevels)?;
        let product = |span: u64, &width: &u32| span.checked_mul(u64::from(width));
        let places = widths.iter().try_fold(1_u64, product);
        let places = places.filter(|&places| places <= PLACES_MAX);
        let nodes = places.ok_or_else(|| TopologyError::TooLarge(text(widths)))?;
        let spans = below_root.iter().scan(1_u64, |span, &width| {
            *span *= u64::from(width);
            Some(*span)
        });
        Ok(Topology {
            spans: spans.collect(),
            uplinks: below_root.to_vec(),
            widths: widths.to_vec(),
            nodes,
        })
    }

    /// One switch with all nodes on it.
    pub fn flat() -> Self {
        Topology {
            widths: vec![u32::MAX],
            spans: Vec::new(),
            uplinks: Vec::new(),
            nodes: u64::from(u32::MAX),
        }
    }

    /// The same tree with only its first `nodes` places in use.
    ///
    /// # Errors
    /// [`TopologyError::TooManyNodes`].
    pub fn with_nodes(mut self, nodes: u64) -> Result<Self, TopologyError> {
        if nodes > self.places() {
            return Err(TopologyError::TooManyNodes {
                tree: self.to_string(),
                nodes,
                places: self.places(),
            });
        }
        self.nodes = nodes;
        Ok(self)
    }

    /// The same tree with so many links upwards from one switch of each level below the root,
    /// from the leaves up.
    ///
    /// # Errors
    /// [`TopologyError::UplinkLevels`], [`TopologyError::NoUplink`].
    pub fn with_uplinks(mut self, uplinks: &[u32]) -> Result<Self, TopologyError> {
        if uplinks.len() != self.spans.len() {
            return Err(TopologyError::UplinkLevels {
                given: uplinks.len(),
                needed: self.spans.len(),
            });
        }
        if let Some(level) = uplinks.iter().position(|&links| links == 0) {
            return Err(TopologyError::NoUplink(level + 1));
        }
        self.uplinks = uplinks.to_vec();
        Ok(self)
    }

    /// Levels of switches, the root included; at least 1.
    pub fn height(&self) -> usize {
        self.spans.len() + 1
    }

    /// What is directly below one switch of each level, from the leaves up: nodes below a leaf
    /// switch, switches below the others.
    pub fn widths(&self) -> &[u32] {
        &self.widths
    }

    /// Links upwards of one switch of each level below the root, from the leaves up.
    pub fn uplinks(&self) -> &[u32] {
        &self.uplinks
    }

    /// Nodes below one switch of each level below the root, from the leaves up.
    pub fn spans(&self) -> &[u64] {
        &self.spans
    }

    /// Nodes on one leaf switch.
    pub fn leaf_width(&self) -> u32 {
        self.widths[0]
    }

    /// Nodes there are.
    pub fn nodes(&self) -> u64 {
        self.nodes
    }

    /// Places for nodes; those from [`Topology::nodes`] on are empty.
    pub fn places(&self) -> u64 {
        self.widths.iter().map(|&width| u64::from(width)).product()
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

    /// Switches crossed between nodes of two scheduling units of `unit` nodes each, numbered as
    /// nodes are; within one unit 1, which is a leaf switch. `unit` divides the leaf width.
    pub fn unit_hops(&self, unit: u32, a: u32, b: u32) -> u32 {
        debug_assert!(self.leaf_width().is_multiple_of(unit));
        self.hops(a * unit, b * unit).max(1)
    }

    /// The tree whose leaves carry scheduling units of `unit` nodes instead of nodes (the
    /// publication's reduced tree).
    ///
    /// # Panics
    /// When `unit` does not divide the leaf width.
    pub fn in_units(&self, unit: u32) -> Topology {
        if unit == 1 {
            return self.clone();
        }
        let leaf = self.leaf_width();
        assert!(
            unit > 0 && leaf.is_multiple_of(unit),
            "units of {unit} nodes do not fill leaf switches of {leaf}"
        );
        let mut reduced = self.clone();
        reduced.widths[0] /= unit;
        for span in &mut reduced.spans {
            *span /= u64::from(unit);
        }
        reduced.nodes = self.nodes / u64::from(unit);
        reduced
    }

    /// The sum of the hops between all pairs of these nodes, by counting how many of them each
    /// switch is above. `nodes` are in the order of their numbers.
    pub fn sum_of_hops(&self, nodes: &[u32]) -> i64 {
        let pairs = |count: i64| count * (count - 1) / 2;
        let count = i64::try_from(nodes.len()).expect("32-bit numbers");
        let height = i64::try_from(self.height()).expect("at most LEVELS_MAX");
        let mut sum = (2 * height - 1) * pairs(count);
        for level in 1..self.height() {
            let switch = |node: &u32| self.switch_above(*node, level);
            for group in nodes.chunk_by(|a, b| switch(a) == switch(b)) {
                sum -= 2 * pairs(i64::try_from(group.len()).expect("32-bit numbers"));
            }
        }
        sum
    }
}

fn text(widths: &[u32]) -> String {
    let widths: Vec<String> = widths.iter().map(u32::to_string).collect();
    widths.join("x")
}

/// The widths from the leaves up: `4x4x4`.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&text(&self.widths))
    }
}

/// Reads `4x4x4`.
impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(tree: &str) -> Result<Self, TopologyError> {
        if tree.trim().is_empty() {
            return Err(TopologyError::NoLevels);
        }
        let wrong = |_| TopologyError::NotATree(tree.to_owned());
        let widths: Result<Vec<u32>, _> = tree.trim().split('x').map(str::parse).collect();
        Topology::new(&widths.map_err(wrong)?)
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
        assert_eq!((tree.height(), tree.nodes()), (3, 64));
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
        assert_eq!(Topology::flat().height(), 1);
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
        let large = Topology::new(&[1 << 16, 1 << 16, 2]);
        assert!(large.unwrap_err().to_string().contains("65536x65536x2"));
        assert!(Topology::new(&[1 << 16, 1 << 16]).is_ok());
    }

    #[test]
    fn text_is_read_and_written() {
        let tree: Topology = "4x4x16".parse().unwrap();
        assert_eq!((tree.to_string(), tree.nodes()), ("4x4x16".into(), 256));
        assert_eq!("".parse::<Topology>(), Err(TopologyError::NoLevels));
        for wrong in ["4x", "x4", "4*4", "-1x4", "4 x 4", "99999999999x2"] {
            let error = wrong.parse::<Topology>().unwrap_err();
            assert_eq!(error, TopologyError::NotATree(wrong.into()));
        }
        assert_eq!("4x0".parse::<Topology>(), Err(TopologyError::NoWidth(2)));
    }

    #[test]
    fn partial_trees_and_uplinks() {
        let tree: Topology = "4x4".parse().unwrap();
        let partial = tree.clone().with_nodes(10).unwrap();
        assert_eq!((partial.nodes(), partial.places()), (10, 16));
        let error = tree.clone().with_nodes(17).unwrap_err().to_string();
        assert!(
            error.contains("17 nodes do not fit into the tree 4x4"),
            "{error}"
        );
        assert_eq!(tree.uplinks(), [4]);
        assert_eq!(tree.clone().with_uplinks(&[2]).unwrap().uplinks(), [2]);
        assert_eq!(
            tree.clone().with_uplinks(&[0]),
            Err(TopologyError::NoUplink(1))
        );
        let levels = TopologyError::UplinkLevels {
            given: 2,
            needed: 1,
        };
        assert_eq!(tree.with_uplinks(&[2, 2]), Err(levels));
    }

    #[test]
    fn units_are_a_tree_of_their_own() {
        let tree: Topology = "16x4x2".parse().unwrap();
        let units = tree.in_units(4);
        assert_eq!((units.to_string(), units.nodes()), ("4x4x2".into(), 32));
        for (a, b) in [(0, 1), (0, 4), (3, 16), (5, 31)] {
            assert_eq!(units.hops(a, b), tree.unit_hops(4, a, b));
            assert_eq!(units.hops(a, b), tree.hops(4 * a + 1, 4 * b + 3));
        }
        assert_eq!(tree.unit_hops(4, 2, 2), 1);
    }

    #[test]
    fn the_sum_of_hops_is_the_sum_over_pairs() {
        let tree: Topology = "3x2x4".parse().unwrap();
        let nodes = [0, 1, 4, 5, 7, 13, 20, 23];
        let mut sum = 0;
        for (index, a) in nodes.iter().enumerate() {
            for b in &nodes[index + 1..] {
                sum += i64::from(tree.hops(*a, *b));
            }
        }
        assert_eq!(tree.sum_of_hops(&nodes), sum);
    }
}
