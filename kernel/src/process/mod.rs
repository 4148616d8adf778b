//! Programs: loading, page faults, system calls.
//!
//! Neighbours: `agent::job` calls [`prepare`] and [`Prepared::run`] and reports what they return.

use alloc::string::{String, ToString};

use netstack::io::ExitReport;
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode};

use crate::agent::services::NodeServices;

/// A program that is loaded and waits for its start.
pub struct Prepared(core::convert::Infallible);

/// How a program ended.
pub struct Exit {
    /// Status and counts.
    pub report: ExitReport,
    /// Why it was ended, for the user, when it did not end by itself.
    pub text: Option<String>,
}

/// Loads the program of `spec`.
pub fn prepare(
    _spec: &LaunchSpec,
    _services: &mut dyn NodeServices,
) -> Result<Prepared, LaunchRefusal> {
    Err(LaunchRefusal {
        code: RefusalCode::Other,
        text: "this kernel has no loader".to_string(),
    })
}

impl Prepared {
    /// Runs the program to its end and gives its memory back.
    pub fn run(self, _services: &mut dyn NodeServices) -> Exit {
        match self.0 {}
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {}
}
