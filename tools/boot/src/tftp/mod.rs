//! TFTP, for the first small file and for firmware that speaks nothing else.
//!
//! Key types: [`Server`] (all transfers of one service), [`Files`] (what may be read), [`packet`]
//! (bytes), `session` (one transfer).
//!
//! RFC 1350 (protocol), 2347 (options), 2348 (blksize), 2349 (timeout, tsize), 7440 (windowsize).
//! Reading in octet mode only.
//!
//! Written here and not taken from a crate: the crates at hand own their sockets and clock, so that
//! 64 machines reading through packet loss could not be tested in virtual time; they open a task
//! and a socket per transfer without a limit on either, and report an OVMF that only asks for the
//! size as a failed transfer. The logic is a few hundred lines.
//!
//! Invariant: no clock and no socket here; all files are in memory, so a transfer never waits for
//! anything but its client.

pub mod packet;
mod server;
mod session;
#[cfg(test)]
mod tests;

pub use server::{Files, Finished, Server};
pub use session::Outcome;
