//! Numbers, structures and errors that the kernel shares with its loader and with programs.
//!
//! Neighbours: the boot stub fills in [`handoff`]; the kernel answers system calls with [`errno`].
//!
//! Invariant: nothing here has behaviour that depends on the machine; every field has a fixed
//! width.
#![no_std]
#![forbid(unsafe_code)]

pub mod errno;
pub mod exchange;
pub mod handoff;
pub mod linux;
pub mod missing;
pub mod monitor;
pub mod peer;
pub mod resources;
pub mod sysno;
