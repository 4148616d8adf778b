//! The published placement: which units of a fat tree a job gets.
//!
//! Source: the Chinese patent on parallel job scheduling on a fat tree, National University of
//! Defense Technology, 2019 (`docs/methods.md`).
//!
//! Its steps, and where they are:
//!
//! | step | what | where |
//! |---|---|---|
//! | units | the nodes of a leaf switch make scheduling units; units are free, busy or allocated | [`unit_size`], [`crate::machine::UnitState`] |
//! | 1, 2 | the first jobs of the queue for which there are nodes: the window | `queue::window` |
//! | 3 | of these the largest first | `queue::window` |
//! | 4, u > 1 | of all sets of u free units one with the fewest hops between all pairs | [`super::exact::choose`] without a preference |
//! | 4, u = 1, whole | one free unit | the same |
//! | 4, u = 1, a part | a busy unit whose free nodes are exactly as many, else a free one | [`may_enter`] |
//!
//! *Published*: all of these. *Ours*, where the publication is silent: the size of units on wide
//! leaf switches, which set it is of several with equally few hops (the one that leaves the least
//! behind), which unit is the one that is partly used. The minimum of step 4 is found as
//! [`super::exact`] finds it, because trying all sets takes for ever: the sum of hops is the
//! published one, the way to it is not. Why Hearth's default goes further is said there and in
//! `docs/allocation.md`.
//!
//! Neighbours: [`super`] chooses by these rules for [`super::Placing::Published`].
//!
//! Invariant: a small job never enters a busy unit that it does not fill.

use crate::machine::Machine;
use crate::topology::Topology;

/// Nodes up to which a machine has the smaller units.
const SMALL_MACHINE: u64 = 4_096;
/// Largest unit of such a machine.
const SMALL_UNIT: u32 = 4;
/// Largest unit of others.
const LARGE_UNIT: u32 = 8;

/// Nodes in a scheduling unit. The publication: all nodes of a leaf switch, where a leaf has at
/// most 4 (in a machine of up to 4,096 nodes) or 8 (in a larger one). For wider leaf switches its
/// formula is not available; ours is the largest divisor of the leaf width that is not above that
/// limit, which is 1 for a prime width.
pub fn unit_size(topology: &Topology) -> u32 {
    let most = if topology.nodes() <= SMALL_MACHINE {
        SMALL_UNIT
    } else {
        LARGE_UNIT
    };
    let leaf = topology.leaf_width();
    let divides = |unit: &u32| leaf.is_multiple_of(*unit);
    (1..=most).rev().find(divides).expect("1 divides")
}

/// Whether some busy unit is there that a job of fewer nodes than a unit fills.
pub(super) fn has_busy_unit(machine: &Machine, count: u32) -> bool {
    machine.has_busy_unit_of(count)
}

/// A job of fewer nodes than a unit may have a part of one that it fills.
pub(super) fn may_enter(free: u32, count: u32) -> bool {
    free == count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_size_rule() {
        let of = |tree: &str| unit_size(&tree.parse().unwrap());
        assert_eq!([of("4x4x4"), of("3x8"), of("1x9")], [4, 3, 1]);
        // Larger machines.
        assert_eq!([of("8x32x32"), of("6x32x32"), of("4x32x64")], [8, 6, 4]);
        // Wider leaves: ours.
        assert_eq!(
            [of("16x16x16"), of("6x4"), of("7x4"), of("9x4")],
            [4, 3, 1, 3]
        );
        assert_eq!([of("32x32x32"), of("12x32x32"), of("11x32x32")], [8, 6, 1]);
    }
}
