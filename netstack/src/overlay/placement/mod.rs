//! How many communication processes each host gets, and which leaf of the tree each back end
//! attaches to: pure functions.
//!
//! - [`averaging`]: the number of processes a host is kept even.
//! - [`fuzzy`]: hosts are judged by free cores, memory, link and load.
//! - [`topology`]: a given tree instead.
//! - [`attachment`]: back ends to leaves, the same host first.
//! - [`plan`]: all of it together: the tree that the front end builds.
//!
//! Invariant: nothing here knows a datagram or a clock; equal input gives equal output.

pub mod attachment;
pub mod averaging;
pub mod fuzzy;
pub mod plan;
pub mod topology;

pub use attachment::{Attachment, attach};
pub use averaging::average;
pub use fuzzy::{Factors, FuzzyConfig, FuzzyError, HostFactors, Judged, evaluate, judge};
pub use plan::{Host, Layout, Plan, PlanError, Planned, Policy};
pub use topology::{Topology, TopologyError};
