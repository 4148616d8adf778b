//! `cargo xtask setup`: makes a fresh machine ready.
//!
//! Purpose: system packages ([`packages`]) and the bare-metal Rust target ([`bare_metal`]).
//! Key type: [`Stamp`], the record of the last complete set-up. Neighbours: `build`, `test` and
//! `demo` call [`run`] first.
//!
//! Invariant: when everything is there, nothing is downloaded, installed or compiled, and no
//! network is needed.

mod bare_metal;
mod packages;
mod source;

use std::fs;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::workspace::{Workspace, output_of};

/// Options of `cargo xtask setup`.
#[derive(Debug, Default, clap::Args)]
pub struct Options {
    /// Only say what is missing; change nothing, and fail if something is
    #[arg(long)]
    check: bool,
    /// Also the programs that benchmarks compare with; a benchmark that needs them installs them by
    /// itself
    #[arg(long)]
    benchmarks: bool,
}

/// Raised when a later version of this program needs more from a machine than before.
const SETUP_VERSION: u32 = 1;

/// What the last complete set-up was for.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    setup_version: u32,
    rustc: String,
}

/// Makes the machine ready; does nothing when it is.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let rustc = output_of(workspace.rustc().arg("-vV")).context(
        "Rust is not installed or not at the pinned version: \
         install rustup (https://rustup.rs), then run this again",
    )?;
    let compiler = bare_metal::Compiler::parse(
        &rustc,
        output_of(workspace.rustc().args([
            "--print",
            "target-libdir",
            "--target",
            crate::workspace::BARE_METAL_TARGET,
        ]))?,
    )?;
    let stamp = Stamp {
        setup_version: SETUP_VERSION,
        rustc,
    };
    let stamp_path = workspace.outputs().join("setup.json");
    let mut missing = packages::missing();
    if options.benchmarks {
        missing.extend(packages::missing_for_benchmarks());
    }
    let stamped = fs::read(&stamp_path)
        .ok()
        .and_then(|bytes| serde_json::from_slice::<Stamp>(&bytes).ok())
        .is_some_and(|found| found == stamp);
    if missing.is_empty() && stamped && compiler.target_is_present() {
        eprintln!("setup: everything is there");
        return Ok(());
    }
    if options.check {
        let target_works = compiler.target_works(workspace);
        anyhow::ensure!(
            missing.is_empty(),
            "missing: {}",
            packages::describe(&missing)
        );
        target_works.context("the bare-metal target is not ready: run `cargo xtask setup`")?;
        eprintln!("setup: everything is there");
        return Ok(());
    }
    fs::create_dir_all(workspace.outputs())
        .with_context(|| format!("making {}", workspace.outputs().display()))?;
    let lock_path = workspace.outputs().join("setup.lock");
    let lock =
        fs::File::create(&lock_path).with_context(|| format!("making {}", lock_path.display()))?;
    lock.lock()
        .context("waiting for another `cargo xtask setup` to end")?;

    packages::install(&missing)?;
    bare_metal::provide(workspace, &compiler)?;
    let text = serde_json::to_vec_pretty(&stamp).context("writing the set-up stamp")?;
    fs::write(&stamp_path, text).with_context(|| format!("writing {}", stamp_path.display()))?;
    eprintln!("setup: done");
    Ok(())
}

/// Installs the programs that benchmarks compare with, saying so, unless they are there.
pub fn for_benchmarks() -> Result<()> {
    packages::install(&packages::missing_for_benchmarks())
}

/// Installs what only the whole test needs, saying so, unless it is there.
pub fn for_whole_test() -> Result<()> {
    packages::install(&packages::missing_for_whole_test())
}

/// Installs what makes a minimal Debian system, saying so, unless it is there.
pub fn for_packaging() -> Result<()> {
    packages::install(&packages::missing_for_packaging())
}
