//! Deterministic discrete-event simulator: the real endpoints of `netstack` on simulated links,
//! in virtual time.
//!
//! - [`net`]: machines and the network between them, and what goes wrong on it.
//! - [`world`]: the one event loop; what is on a machine is a [`world::Service`] of it.
//! - [`jobs`]: sessions and jobs. [`casts`]: casts. [`exchange`]: exchanges and messages between
//!   ranks. [`overlay`]: the monitoring overlay. Each alone at scale, or all on one cluster.
//! - [`setup`]: what a run is made of, faults included: one set of options, of which [`options`]
//!   reads those of the network from a command line. [`summary`]: what came out.
//! - [`random`]: scenarios drawn from a seed. [`scenario`]: named ones of sessions and jobs.
//! - [`check`]: what every change has to pass: random scenarios, and goals.
//! - [`baselines`]: what the methods are compared with.
//!
//! A failing run is one seed: its report names the command that replays it.
//!
//! Invariant: a run is a function of its scenario, seed and number of nodes; two runs give the
//! same digest.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod baselines;
pub mod casts;
pub mod check;
pub mod exchange;
pub mod jobs;
pub mod net;
pub mod options;
pub mod overlay;
pub mod random;
pub mod scenario;
pub mod setup;
pub mod summary;
pub mod world;
