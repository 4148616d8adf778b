//! Real firmware and real boot loaders start the real image, each in a network namespace of its
//! own.
//!
//! | module | what it tries |
//! |---|---|
//! | [`loading`] | the boot service alone: from power-on to the kernel's first lines |
//! | [`joining`] | machines started as a rack's are, from power-on to a node that has joined |
//! | [`media`] | GRUB, USB sticks and CDs |
//! | [`screen`] | a machine without a serial port |
//! | [`secure_boot`] | signed images |
//! | [`on_request`] | what takes long, or downloads something; each network card |
//!
//! The last ones run control and the command line as users have them ([`rack`]) beside a machine of
//! QEMU's ([`machine`], [`monitor`]). Run by `cargo xtask test`; by hand `cargo xtask build`, then
//! `cargo test -p hearth-boot --test qemu -- --ignored`, or, with a name behind it, those with that
//! name.
//!
//! Invariant: success is what happens, never how long it takes; the times are printed.

mod joining;
mod loading;
mod machine;
mod media;
mod monitor;
mod on_request;
mod rack;
mod screen;
mod secure_boot;
#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};

/// What was built, in the folder that `HEARTH_OUTPUTS` names.
fn output(name: &str) -> PathBuf {
    let built = std::env::var_os("HEARTH_OUTPUTS")
        .map(PathBuf::from)
        .unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/hearth"));
    let file = built.join(name);
    let shown = file.display();
    assert!(file.exists(), "{shown} is missing: cargo xtask build");
    file
}
