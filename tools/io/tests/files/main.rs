//! A service with its workers, asked over real sockets as a node asks it.
//!
//! | module | what |
//! |---|---|
//! | [`node`] | a rank's end, and what a test starts with |
//! | [`service`] | a job's files through the service: bulk data, names, locks, limits, deaths |
//! | [`escapes`] | attempts to reach what is not exported |
//! | [`users`] | jobs of different users |

mod escapes;
mod node;
mod service;
mod users;
