//! Which planner a cast has: the published one, or ours by the number of members and blocks.
//!
//! Key types: [`Shape`], [`ShapeKind`]. Neighbours: [`super::published`], [`super::grid`],
//! [`super::double_tree`].
//!
//! Invariant: every scheme that can be announced has a planner at every station.

use alloc::boxed::Box;

use super::double_tree::DoubleTree;
use super::message::{MemberIndex, Setup};
use super::plan::Planner;
use super::published::{self, Published};
use super::{Scheme, grid};

/// The planner of one station of a cast, small whatever the announcement says. By the published
/// scheme it only passes the announcement on: see [`published_planner`].
pub(crate) fn planner(setup: &Setup, me: MemberIndex) -> Box<dyn Planner> {
    let blocks = setup.object.blocks();
    let cold = setup.members - setup.holders.min(setup.members);
    let rotation = |rows| Box::new(grid::Rotation::new(rows, cold, setup.members, blocks, me));
    match setup.scheme {
        Scheme::Grid { n1 } => rotation(Shape::grid(cold, n1).n1),
        Scheme::DoubleTree => Box::new(DoubleTree::new(cold, blocks, me)),
        _ => rotation(cold),
    }
}

/// The planner of a station that takes part in a cast by the published scheme, which keeps a plan
/// of it all ([`published::plan_bytes`]): made when somebody has said that there is room. None for
/// other schemes, and for a plan that is too large.
pub(crate) fn published_planner(setup: &Setup, me: MemberIndex) -> Option<Box<dyn Planner>> {
    let cold = setup.members - setup.holders.min(setup.members);
    if !published::is_bounded(&setup.scheme, cold, &setup.object) {
        return None;
    }
    let published = Published::new(setup, me)?;
    Some(Box::new(published))
}

/// Kinds of schemes of the default choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeKind {
    /// See [`super::Scheme::Mesh`].
    Mesh,
    /// See [`super::Scheme::Grid`].
    Grid,
    /// See [`super::Scheme::DoubleTree`].
    DoubleTree,
}

/// A grid whose first and last blocks cost more than this part of the time for all of them gives
/// way to two trees. They are faster for little data, but one slow member delays all below it,
/// which a grid evades.
const TREES_FOR: u32 = 12;

/// The shape of a cast in the default scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Which kind.
    pub kind: ShapeKind,
    /// Members of the first layer: those the source deals to. Members `0..n1`.
    pub n1: u32,
}

impl Shape {
    /// The shape for `members` cold members and an object of `blocks` blocks.
    pub fn choose(members: u32, blocks: u32) -> Shape {
        let grid = Shape::grid(members, 0);
        // In units of the time for one block: what comes before and after the steady flow.
        let mesh_tail = members;
        let grid_tail = 2 * grid.n1;
        let trees_tail = 4 * (u32::BITS - members.leading_zeros());
        if mesh_tail <= grid_tail.max(16) {
            Shape {
                kind: ShapeKind::Mesh,
                n1: members,
            }
        } else if grid_tail > blocks / TREES_FOR && trees_tail < grid_tail {
            Shape {
                kind: ShapeKind::DoubleTree,
                n1: 2,
            }
        } else {
            grid
        }
    }

    /// The grid for so many members: as few rows as give no row more children than there are rows.
    pub fn grid(members: u32, n1: u32) -> Shape {
        let mut rows = n1;
        if n1 == 0 {
            rows = members.isqrt();
            while rows > 1 && rows * rows >= members {
                rows -= 1;
            }
            while rows * (rows + 1) < members {
                rows += 1;
            }
            // Without a column that is not full all links have the same to do.
            let even = (rows..=rows + rows / 2).find(|rows| members.is_multiple_of(*rows));
            rows = even.unwrap_or(rows);
        }
        Shape {
            kind: ShapeKind::Grid,
            n1: rows.clamp(1, members.max(1)),
        }
    }
}
