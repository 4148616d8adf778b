//! Kernel logic that needs no hardware: it is the same code on a node and in a test on the host.
//!
//! | module | what it decides | who uses it |
//! |---|---|---|
//! | [`addr`], [`phys`] | address newtypes, access to physical memory as a trait with a fake | everything below |
//! | [`frames`] | who owns which frame, and that no frame changes owner unscrubbed | `kernel::mm` |
//! | [`paging`] | x86-64 page tables, W^X by construction | `kernel::mm` |
//! | [`cmdline`], [`logring`] | command line, the last lines of the log | `kernel::main`, console, panic |
//! | [`loader`], [`stack`] | what an ELF file asks for, what a program finds at entry | `kernel::process` |
//! | [`space`], [`fault`], [`readahead`] | regions of a program, what a page fault means | `kernel::process` |
//! | [`retention`], [`pagehash`] | pages that stay for the next launch, and how they are checked | `kernel::process` |
//! | [`objects`] | files and images in the node's memory, known by their hash | `kernel::{agent, process}` |
//! | [`program`] | the memory of a program: carries those decisions out on frames and tables | `kernel::process` |
//! | [`files`] | `/with`: paths, descriptors, what stat says | `kernel::process` |
//! | [`signals`] | actions, mask, which signal is next, frames of handlers | `kernel::process` |
//! | [`threads`] | threads of a process: where each is, which runs next | `kernel::process` |
//! | [`futex`] | who waits at which word, what the futex call asks, robust mutexes | `kernel::process` |
//! | [`procfs`] | what files of `/proc` and `/sys` say | `kernel::process` |
//! | [`crash`] | the report about a program that was ended | `kernel::process` |
//! | [`core_dump`] | what a core file holds, and in which order | `kernel::process` |
//! | [`nic`] | rings of network cards, Intel's one-gigabit family, which card is used | `kernel::{drivers, net}` |
//! | [`screen`] | text on a framebuffer | `kernel::console`, panic |
//! | [`random`] | random numbers from what is fed to a keyed generator | `kernel::arch` |
//! | [`interrupts`] | interrupts counted by class | `kernel::arch` |
//! | [`acpi`] | what firmware's tables say about the machine | `kernel::platform` |
//! | [`apic`] | modes and registers of a local APIC | `kernel::arch` |
//! | [`clock`] | how fast the time-stamp counter runs, from what was read | `kernel::arch` |
//! | [`machine_check`] | what hardware found wrong with itself | `kernel::arch` |
//! | [`pci`] | which functions a machine has, and how they are silenced | `kernel::drivers` |
//!
//! Invariant: no `unsafe`, no clock, no randomness, no device; every table has a named bound.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod acpi;
pub mod addr;
pub mod apic;
pub mod clock;
pub mod cmdline;
pub mod core_dump;
pub mod crash;
pub mod fault;
pub mod files;
pub mod frames;
pub mod futex;
pub mod interrupts;
pub mod loader;
pub mod logring;
pub mod machine_check;
pub mod nic;
pub mod objects;
pub mod pagehash;
pub mod paging;
pub mod pci;
pub mod phys;
pub mod procfs;
pub mod program;
pub mod random;
pub mod readahead;
pub mod retention;
pub mod screen;
pub mod signals;
pub mod space;
pub mod stack;
pub mod threads;
