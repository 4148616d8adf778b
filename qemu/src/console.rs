//! A node's serial console, live.
//!
//! Key function: [`follow`]. Neighbours: QEMU writes the log, `hearth console` shows it.
//!
//! Invariant: watching never slows the machine: it writes to a file, not to the watcher.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use crate::{Error, Paths, is_running};

/// How often the log is looked at: quick to the eye, nothing to the machine.
const POLL: Duration = Duration::from_millis(100);
/// Bytes copied at once.
const CHUNK_BYTES: usize = 16_384;

/// Writes what a node wrote so far and then what it writes, until `keep_going` breaks or the
/// cluster is taken down.
pub fn follow(
    paths: &Paths,
    node: u32,
    output: &mut dyn Write,
    keep_going: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(), Error> {
    let path = paths.serial_log(node);
    let mut file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(Error::Spec(format!(
                "there is no serial log of n{node}: `hearth nodes` lists the nodes of this cluster"
            )));
        }
        Err(error) => return Err(Error::file("opening", path)(error)),
    };
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        let bytes = file
            .read(&mut chunk)
            .map_err(Error::file("reading", &path))?;
        if bytes > 0 {
            match output
                .write_all(&chunk[..bytes])
                .and_then(|()| output.flush())
            {
                Ok(()) => continue,
                // The watcher's pipe was closed: nobody watches any more.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(Error::file("showing", path)(error)),
            }
        }
        if keep_going().is_break() || !is_running(paths) {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

/// The last lines of a log, at most `limit_bytes` of them.
pub(crate) fn tail(path: &std::path::Path, limit_bytes: u64) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(limit_bytes)))?;
        let mut bytes = Vec::new();
        file.take(limit_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).trim().to_owned(),
        Err(error) => format!("({}: {error})", path.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_end_and_a_missing_log_says_so() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "first\nsecond\n").unwrap();
        assert_eq!(tail(&path, 7), "second");
        assert_eq!(tail(&path, 100), "first\nsecond");
        assert!(tail(&directory.path().join("none"), 10).contains("No such file"));
    }

    #[test]
    fn following_shows_what_is_there_and_ends_with_the_cluster() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path(), "lab").unwrap();
        std::fs::create_dir_all(paths.logs()).unwrap();
        std::fs::write(paths.serial_log(0), "hello").unwrap();
        let mut shown = Vec::new();
        follow(&paths, 0, &mut shown, &mut || ControlFlow::Continue(())).unwrap();
        assert_eq!(shown, b"hello");
        let missing = follow(&paths, 1, &mut shown, &mut || ControlFlow::Continue(()));
        assert!(missing.unwrap_err().to_string().contains("hearth nodes"));
    }
}
