//! The worker alone, for tests; `hearth` has it as a command of its own.

use std::process::ExitCode;

fn main() -> ExitCode {
    hearth_io::worker::main().into()
}
