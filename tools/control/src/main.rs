//! `hearth`: see the library for everything.

fn main() -> std::process::ExitCode {
    hearth_control::cli::main()
}
