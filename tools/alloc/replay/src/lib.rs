//! Replays of what a machine did: its jobs again, with another queue policy and another placement.
//!
//! | module | purpose |
//! |---|---|
//! | [`trace`] | reads the Standard Workload Format |
//! | [`warm`] | which nodes hold which program |
//! | [`world`] | the discrete-event replay and its figures |
//! | [`speed`] | the CPU time of decisions on large machines |
//!
//! Neighbours: `hearth-alloc` decides everything; `cargo xtask replay` and `cargo xtask bench
//! alloc` run this.
//!
//! Invariant: a replay depends on its trace and options only.

pub mod speed;
pub mod trace;
pub mod warm;
pub mod world;
