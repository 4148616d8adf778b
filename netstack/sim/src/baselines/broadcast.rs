//! Casts of whole objects, without a swap: down a tree of two layers, or from control to each node.
//!
//! Both are the published method with one chunk, which is passed on when it is whole; nothing is
//! left to swap then. So the engine needs nothing for them.
//!
//! Neighbours: [`crate::casts`] reads their names from a command line, [`crate::random`] draws them
//! from a seed.
//!
//! Invariant: every node gets the object from one other.

use netstack::broadcast::published::header::Sizes;
use netstack::broadcast::{PublishedOptions, Scheme};

/// The scheme with this name; `fan_out` is that of the tree. None: there is none.
pub fn parse(name: &str, fan_out: u32) -> Option<Scheme> {
    match name {
        "tree" => Some(tree(fan_out)),
        "direct" => Some(direct()),
        _ => None,
    }
}

/// The whole object down a tree of two layers, in which nodes have so many children; 0: as many as
/// there are nodes in the first layer, about.
pub fn tree(fan_out: u32) -> Scheme {
    whole(fan_out, 2)
}

/// Everything from control to each node.
pub fn direct() -> Scheme {
    whole(0, 1)
}

fn whole(fan_out: u32, layers: u8) -> Scheme {
    Scheme::Published(PublishedOptions {
        fan_out,
        layers,
        sizes: Some(Sizes::Equal(1)),
        ..PublishedOptions::default()
    })
}
