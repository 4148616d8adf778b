//! The parts of the boot stub that do not touch the machine: they are tested on the host, and the
//! host tool uses the same definitions when it writes an image.
//!
//! Key types: [`descriptor::Descriptor`] (what the host tool tells the stub about the image),
//! [`memory_map::MemoryMap`] (firmware's map made consistent), [`command_line::CommandLine`].
//! [`screen_info`] finds the screen that a loader has left.
//! Neighbours: the `bootstub` binary in this package (firmware entries, page tables, hand-over) and
//! the `bootimage` crate (host tool).
//!
//! Invariant: no `unsafe`, no allocation, nothing that depends on where the image is loaded.
#![no_std]
#![forbid(unsafe_code)]

pub mod command_line;
pub mod descriptor;
pub mod memory_map;
pub mod place;
pub mod screen_info;
pub mod unpack;
