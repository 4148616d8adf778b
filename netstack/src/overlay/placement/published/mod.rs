//! The published placement of a tree overlay: how many communication processes each host gets, and
//! which leaf each back end attaches to.
//!
//! Source: Chinese patent publication CN 103051509 A, 2013 (`docs/methods.md`).
//!
//! Its steps that are decided here:
//!
//! | step | what | where |
//! |---|---|---|
//! | placement 1 | best-effort averaging: the number of processes of each host is kept even; who has more than that already gets none | [`averaging`] |
//! | placement 2 | comprehensive evaluation: hosts are judged by free cores, free memory, link speed and load; shares by score | [`comprehensive`] |
//! | attachment | fan-out = back ends div leaves, one more for a remainder; the same host first, then the least loaded leaf | [`attachment`] |
//!
//! The rest of the method (building the tree, collecting, filtering, storing, taking down) is the
//! overlay itself: [`crate::overlay`].
//!
//! *Published*: averaging and attachment whole; that placement 2 is a fuzzy comprehensive
//! evaluation, its weights and bounds. *Ours*: the formulas of placement 2, which are not
//! available. They are the standard method: membership, weighted average, score, largest remainder,
//! and caps. All numbers are [`crate::overlay::fixed`], so that every system gets the same tree.
//!
//! Neighbour: [`super::shipped`] makes a whole tree by these.
//!
//! Invariant: nothing here knows how much room a host has but [`comprehensive`], which is told.

pub mod attachment;
pub mod averaging;
pub mod comprehensive;
