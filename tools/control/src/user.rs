//! Who runs this process, by name.

/// Name of the user; a number where the system knows no name.
pub fn name() -> String {
    let uid = nix::unistd::getuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        _ => uid.to_string(),
    }
}
