//! The I/O service: carries out what programs on nodes ask of files, as Blue Gene's I/O daemon did.
//!
//! | module | what it is |
//! |---|---|
//! | [`job`] | what a job may reach: its exports, its user |
//! | [`service`] | the socket, the channels of all ranks, a worker for each job |
//! | [`worker`] | the process that carries the calls of one job out |
//! | [`message`] | what service and worker say to each other |
//! | [`fair`] | calls that wait for a worker, rank by rank |
//!
//! Neighbours: `netstack::files` has the protocol with the nodes, the control node says which jobs
//! there are.
//!
//! Invariant: no call of a job is carried out by a process that could reach more than the job's
//! exports, or that is another user than the job's.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod fair;
pub mod job;
mod message;
pub mod service;
pub mod worker;

pub use job::{BadFiles, Export, JobFiles, User, check};
pub use service::{Cast, LINGERS_S, Read, Service, Workers};
