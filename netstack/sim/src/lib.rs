//! Deterministic discrete-event simulator: the real endpoints of `netstack` on simulated links,
//! in virtual time.
//!
//! - [`network`]: links with latency, rate, loss, reordering, duplication and partitions.
//! - [`program`]: what a simulated job computes, writes and reads; every byte is predictable.
//! - [`agent`]: the kernel's part on a node, around [`netstack::node::Endpoint`]; holds programs
//!   that have ended under a limit.
//! - [`operator`]: the control node's user, around [`netstack::control::Endpoint`]; holds most of
//!   the safety checks, and the node status table.
//! - [`world`]: the event loop that ties them together, crashes and restarts included.
//! - [`scenario`]: named runs, each a function of its seed and number of nodes.
//! - [`exchange`]: all-to-all exchanges at scale, on the same network as casts.
//! - [`broadcast`]: casts at scale, on a network of its own: fat tree, finite queues, trains of
//!   datagrams.
//! - [`overlay`]: the monitoring overlay at scale, on the same network.
//! - [`baselines`]: what the methods are compared with there.
//! - [`attacker`]: who says datagrams again and flips bits, in all of these.
//! - [`check`]: what every change has to pass: random scenarios by seed, and goals.
//! - [`air`]: what is under way on that network. [`digest`]: what two runs of one setup share.
//!   [`seeds`]: several runs of one of these.
//!
//! A failing run is one seed: its report names the command that replays it.
//!
//! Invariant: a run is a function of its scenario, seed and number of nodes; two runs give the
//! same digest.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod agent;
pub mod air;
pub mod attacker;
pub mod baselines;
pub mod broadcast;
pub mod check;
pub mod digest;
pub mod exchange;
pub mod network;
pub mod operator;
pub mod overlay;
pub mod program;
pub mod scenario;
pub mod seeds;
pub mod world;
