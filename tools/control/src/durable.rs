//! Replacing small files so that a crash leaves the old one or the new one, never a part.
//!
//! Neighbours: `secrets`, `nodes`. Invariant: the new content is on the disk before the name
//! points to it.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

/// Replaces the file at `path` by one with `content` and the permission bits `mode`.
///
/// # Errors
/// What the system said; the old file is then still there.
pub fn replace(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let new = path.with_extension("new");
    let _ = std::fs::remove_file(&new);
    write_new(&new, content, mode)?;
    std::fs::rename(&new, path)?;
    keep_name(path);
    Ok(())
}

/// Makes the file at `path` with `content` and the permission bits `mode`; false where there is
/// one, which stays as it is. Of several processes that do this at once one makes the file, and the
/// others find it whole; where the file system has no second names for a file (FAT, some network
/// ones) they can find the beginning of it for a moment. FAT does not keep `mode` either: all its
/// files have that of the mount, 0755 unless it is mounted with umask=077.
///
/// # Errors
/// What the system said.
pub fn create(path: &Path, content: &[u8], mode: u32) -> std::io::Result<bool> {
    create_by(path, content, mode, |new, path| {
        std::fs::hard_link(new, path)
    })
}

fn create_by(
    path: &Path,
    content: &[u8],
    mode: u32,
    link: impl Fn(&Path, &Path) -> std::io::Result<()>,
) -> std::io::Result<bool> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let new = path.with_extension(format!("new-{}-{number}", std::process::id()));
    // Of a process that was killed and had the same number.
    let _ = std::fs::remove_file(&new);
    write_new(&new, content, mode)?;
    // A second name, unlike a new one, never takes the place of a file.
    let linked = link(&new, path);
    let _ = std::fs::remove_file(&new);
    match linked {
        Ok(()) => {
            keep_name(path);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        // File systems say that they have no second names in different words. What else is wrong is
        // wrong here, too.
        Err(_) => match write_new(path, content, mode) {
            Ok(()) => {
                keep_name(path);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
        },
    }
}

/// Writes a file that there is not; leaves none behind where that fails.
fn write_new(path: &Path, content: &[u8], mode: u32) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(mode).open(path)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        let _ = std::fs::remove_file(path);
    }
    written
}

/// The name itself on the disk; a file system that cannot do this keeps it soon enough.
fn keep_name(path: &Path) {
    if let Some(Ok(dir)) = path.parent().map(std::fs::File::open) {
        drop(dir.sync_all());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_file_is_made_once_where_files_have_one_name() {
        let no_links = |_: &Path, _: &Path| Err(std::io::Error::from(ErrorKind::PermissionDenied));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        for _ in 0..20 {
            let made: Vec<u8> = std::thread::scope(|scope| {
                let one = |number: u8| {
                    let path = &path;
                    scope.spawn(move || {
                        let made = create_by(path, &[number; 40], 0o600, no_links).unwrap();
                        made.then_some(number)
                    })
                };
                let all: Vec<_> = (0..4).map(one).collect();
                all.into_iter()
                    .filter_map(|each| each.join().unwrap())
                    .collect()
            });
            assert_eq!(made.len(), 1);
            assert_eq!(std::fs::read(&path).unwrap(), [made[0]; 40]);
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
            std::fs::remove_file(&path).unwrap();
        }
    }

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
