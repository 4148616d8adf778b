//! How many communication processes each host gets, and which leaf of the tree each back end
//! attaches to: pure functions.
//!
//! - [`published`]: the method as published: averaging, comprehensive evaluation, attachment.
//! - [`shipped`]: the tree that the front end builds by these, and what Hearth adds.
//!
//! Invariant: nothing here knows a datagram or a clock; equal input gives equal output.

pub mod published;
pub mod shipped;

pub use published::attachment::{Attachment, attach};
pub use published::averaging::average;
pub use published::comprehensive::{
    FACTOR_NAMES, Factors, FuzzyConfig, FuzzyError, HostFactors, Judged, evaluate, judge,
};
pub use shipped::plan::{Host, Layout, Plan, PlanError, Planned, Policy};
pub use shipped::topology::{Topology, TopologyError};
