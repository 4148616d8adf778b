//! `cargo xtask replay`: traces of real machines through the queue and the allocator.
//!
//! Neighbours: `tools/alloc/replay` has the program; `bench alloc` runs its other half.
//!
//! Invariant: the program is always the optimized one: a replay makes tens of thousands of
//! placements.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::workspace::Workspace;

/// Options of `cargo xtask replay`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Arguments of the replay; `--help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The command that runs one half of the program; its arguments are to be added.
pub fn command(workspace: &Workspace, half: &str) -> Command {
    let mut command = workspace.cargo();
    command.args([
        "run",
        "--quiet",
        "--release",
        "-p",
        "hearth-replay",
        "--bin",
        "hearth-replay",
        "--",
        half,
    ]);
    command
}

/// Runs the replay; its exit status is this program's.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let status = command(workspace, "replay")
        .args(&options.arguments)
        .status()
        .context("starting the replay")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
