//! `cargo xtask sim`: the simulator, with the arguments given.
//!
//! Neighbours: `netstack/sim` has the program; `test` runs its quick check.
//!
//! Invariant: the simulator is always an optimized one: random scenarios are slow otherwise.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result};

use crate::workspace::{Mode, Workspace};

/// Options of `cargo xtask sim`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Options {
    /// Arguments of the simulator; `--help` shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// The command that runs the simulator; its arguments are to be added.
pub fn command(workspace: &Workspace) -> Command {
    let mut command = match workspace.mode() {
        Mode::Shipped => {
            let mut cargo = workspace.cargo();
            cargo.args(["run", "--quiet", "--release", "-p", "netstack-sim"]);
            cargo.args(["--bin", "hearth-sim", "--"]);
            cargo
        }
        // The tests have compiled it.
        Mode::Checked => Command::new(workspace.hosted("hearth-sim")),
    };
    // Large pages: a run with many nodes touches memory all over, and misses in the page tables
    // cost a quarter of its time (glibc 2.35 and later; others do not look).
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
    command
}

/// Runs the simulator; its exit status is this program's.
pub fn run(workspace: &Workspace, options: &Options) -> Result<ExitCode> {
    let status = command(workspace)
        .args(&options.arguments)
        .status()
        .context("starting the simulator")?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
