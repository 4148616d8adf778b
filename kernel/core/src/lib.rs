//! Kernel logic that needs no hardware: it is the same code on a node and in a test on the host.
//!
//! | module | what it decides | who uses it |
//! |---|---|---|
//! | [`addr`], [`phys`] | address newtypes, access to physical memory as a trait with a fake | everything below |
//! | [`frames`] | who owns which frame, and that no frame changes owner unscrubbed | `kernel::mm` |
//! | [`paging`] | x86-64 page tables, W^X by construction | `kernel::mm` |
//! | [`cmdline`], [`logring`] | command line, the last lines of the log | `kernel::main`, console, panic |
//! | [`interrupts`] | interrupts counted by class | `kernel::arch` |
//!
//! Invariant: no `unsafe`, no clock, no randomness, no device; every table has a named bound.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod addr;
pub mod cmdline;
pub mod frames;
pub mod interrupts;
pub mod logring;
pub mod paging;
pub mod phys;
