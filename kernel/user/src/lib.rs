//! How the ranks of a job talk: messages, collective operations, time.
//!
//! A job on Hearth is one program on several nodes, one *rank* on each. [`World`] says which of
//! them this is and moves data between them:
//!
//! ```no_run
//! use hearth::{Combine, World};
//!
//! fn main() -> Result<(), hearth::Error> {
//!     let world = World::new()?;
//!     let mut sum = [f64::from(world.rank())];
//!     world.all_reduce(Combine::Sum, &mut sum)?;
//!     println!("rank {} of {}: {}", world.rank(), world.size(), sum[0]);
//!     Ok(())
//! }
//! ```
//!
//! The node's kernel carries out sends, receives, all-to-all exchanges and barriers (docs/abi.md);
//! broadcast, reductions, gather and scatter are made of these here, because adding floating-point
//! numbers is no business of a kernel (docs/adr/0025-exchange-calls.md).
//!
//! | module | purpose |
//! |---|---|
//! | [`World`] (`world`) | who we are, send and receive, barrier, time |
//! | [`Scope`] (`scope`) | operations that go on while the program computes |
//! | [`Message`], [`Found`] (`message`) | messages that are looked at before they are received |
//! | `collective` | all-to-all, broadcast, gather, scatter, reductions |
//! | [`Data`], [`Number`] (`data`) | what can be sent, what can be reduced |
//! | [`Error`] (`error`) | what can go wrong |
//! | [`counters!`] (`names`) | what a program calls its counters |
//! | `call` | the system calls |
//! | `c` | the functions of `hearth.h`, with the feature `c` |
//!
//! Invariant: no function returns while the kernel may still touch memory that the caller has lent
//! to it, but inside a [`Scope`], which does not end before that.
#![cfg_attr(not(test), no_std)]
#![warn(missing_docs)]

extern crate alloc;

#[cfg(feature = "c")]
mod c;
#[cfg(not(test))]
mod call;
#[cfg(test)]
#[path = "fake.rs"]
mod call;
mod collective;
mod data;
mod error;
mod message;
mod names;
mod scope;
mod world;

pub use collective::Group;
pub use data::{Combine, Data, Number};
pub use error::Error;
pub use message::{Found, Message};
pub use scope::{Request, Scope};
pub use world::{Received, World};

/// What operations give.
pub type Result<T> = core::result::Result<T, Error>;

#[cfg(test)]
mod tests;
