//! `hearth`: see the library for everything.

fn main() -> std::process::ExitCode {
    // Before anything starts a thread: it changes whose process this is.
    if std::env::args().nth(1).as_deref() == Some(hearth_io::worker::COMMAND) {
        return hearth_io::worker::main().into();
    }
    hearth_control::cli::main()
}
