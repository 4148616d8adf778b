//! Replacing small files so that a crash leaves the old one or the new one, never a part.
//!
//! Neighbours: `secrets`, `nodes`. Invariant: the new content is on the disk before the name
//! points to it.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Replaces the file at `path` by one with `content` and the permission bits `mode`.
///
/// # Errors
/// What the system said; the old file is then still there.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    // The name itself; a file system that cannot do this keeps it soon enough.
    if let Some(Ok(dir)) = path.parent().map(std::fs::File::open) {
        drop(dir.sync_all());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        replace(&path, b"one", 0o600).unwrap();
        replace(&path, b"two", 0o600).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(replace(Path::new("/nonexistent/file"), b"x", 0o600).is_err());
    }
}
