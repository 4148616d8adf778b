//! Who runs this process, by name.
//!
//! `hearth` is linked statically, and such a program cannot load the modules by which a system may
//! know its users (LDAP, sssd): the system's own `id` is asked.

use std::process::Command;
use std::sync::OnceLock;

/// Name of the user; a number where the system knows no name.
pub fn name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| known().unwrap_or_else(|| nix::unistd::getuid().to_string()))
        .clone()
}

fn known() -> Option<String> {
    let output = Command::new("id").arg("-un").output().ok()?;
    let name = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !name.is_empty()).then_some(name)
}
