//! `cargo xtask`: everything a person or the continuous integration does with the source tree.
//!
//! Purpose: set a machine up, build what a user needs into `target/hearth/`, show it (`demo`),
//! test it, measure it. Key types: [`workspace::Workspace`] (where things are),
//! [`steps::Steps`] (titled, timed steps with a summary). Neighbours: the crates of this
//! workspace, which are only ever used here as commands, never linked in.
//!
//! Invariant: nothing here needs more than the hosted Rust toolchain to compile, because `setup`
//! has to run before anything else exists.

mod bench;
mod build;
mod compile;
mod conformance;
mod debian;
mod demo;
mod fuzz;
mod limited;
mod package;
mod replay;
mod setup;
mod sim;
mod steps;
mod structure;
mod test;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Tasks of the Hearth source tree.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, about)]
pub struct Arguments {
    #[command(subcommand)]
    task: Task,
}

/// One task.
#[derive(Subcommand)]
enum Task {
    /// Make this machine ready: system packages and the bare-metal Rust target
    Setup(setup::Options),
    /// Build the operator's binary, the boot image and the example programs into target/hearth/
    Build(build::Options),
    /// Everything a user needs in one file: target/hearth-VERSION-x86_64.tar.gz
    Package,
    /// Show it: boot four QEMU nodes over the network, run programs on them, take them down
    Demo(demo::Options),
    /// Test everything that must hold; the last line is the count
    Test(test::Options),
    /// Run the protocol simulator with the arguments given
    Sim(sim::Options),
    /// Fuzz what takes bytes from the network
    Fuzz(fuzz::Options),
    /// Replay a job trace with other queue policies and placements
    Replay(replay::Options),
    /// Measure: cases, figures, goals
    Bench(bench::Options),
    /// Run suites of POSIX tests on nodes, beside Linux
    Conformance(conformance::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments.task) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> anyhow::Result<ExitCode> {
    let workspace = workspace::Workspace::locate()?;
    match task {
        Task::Setup(options) => setup::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
        Task::Build(options) => build::run(&workspace, &options),
        Task::Package => package::run(&workspace).map(|()| ExitCode::SUCCESS),
        Task::Demo(options) => demo::run(&workspace, &options),
        Task::Test(options) => test::run(&workspace, &options),
        Task::Sim(options) => sim::run(&workspace, &options),
        Task::Fuzz(options) => fuzz::run(&workspace, &options),
        Task::Replay(options) => replay::run(&workspace, &options),
        Task::Conformance(options) => {
            conformance::main(&workspace, &options).map(|()| ExitCode::SUCCESS)
        }
        Task::Bench(options) => bench::run(&workspace, &options).map(|()| ExitCode::SUCCESS),
    }
}
