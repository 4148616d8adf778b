//! Everything that depends on the processor. There is one: x86-64.
//!
//! Neighbours: the rest of the kernel calls what is re-exported here and nothing below it.

mod x86_64;

pub use x86_64::*;
