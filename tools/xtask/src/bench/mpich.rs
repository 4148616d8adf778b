//! MPICH on the nodes of a [`Network`]: how programs are compiled for it and started.
//!
//! Neighbours: the `peers` of [`super::broadcast`] and [`super::exchange`]; docs/measuring.md lists
//! the command lines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::namespaces::{INTERFACE, Network, address};
use crate::workspace::output_of;

/// MPICH (over UCX): TCP over the limited links only.
const LINKS: &[&str] = &["UCX_TLS=tcp", "UCX_NET_DEVICES=eth0"];

/// Starts a program on every node, from node 0: add the program and its arguments. `settings` are
/// NAME=VALUE.
pub fn command(network: &Network, scratch: &Path, settings: &[&str]) -> Result<Command> {
    let shell = network.write_remote_shell(scratch)?;
    let names: Vec<String> = network
        .nodes()
        .map(|node| address(node).to_string())
        .collect();
    let mut command = network.on(0);
    command
        .args(["mpirun.mpich", "-launcher", "rsh", "-launcher-exec"])
        .arg(shell)
        .args(["-iface", INTERFACE, "-hosts", &names.join(",")])
        .args(["-ppn", "1", "-np", &names.len().to_string()]);
    for setting in LINKS.iter().chain(settings) {
        let (name, value) = setting.split_once('=').context("a setting is NAME=VALUE")?;
        command.args(["-genv", name, value]);
    }
    Ok(command)
}

/// Compiles a program, once for each folder and compiler; gives the binary.
pub fn compile(scratch: &Path, compiler: &str, name: &str, source: &str) -> Result<PathBuf> {
    let binary = scratch.join(format!("{name}.{compiler}.out"));
    if !binary.is_file() {
        let path = scratch.join(format!("{name}.c"));
        fs::write(&path, source)?;
        let mut command = Command::new(compiler);
        command.args(["-O2", "-o"]).args([&binary, &path]);
        output_of(&mut command)?;
    }
    Ok(binary)
}
