//! The number of the next run: greater than every one that a service at this address has used.
//!
//! Runs are numbered by the time, and so are the datagrams of a run. A clock may be set back
//! between two of them. So a file has a number that no run before has reached; a run that comes
//! near it writes a greater one first.
//!
//! Invariant: what a run may use is on the disk before it is used.

use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers that are reserved at once: those of 16 seconds, so that a service which is started often
/// is not ahead of the time by much.
const RESERVED: u64 = 1 << 24;

/// The numbers that a run may use.
#[derive(Debug)]
pub struct Runs {
    file: PathBuf,
    /// All below may be used.
    reserved: u64,
}

impl Runs {
    /// Begins a run, and gives its number. `file` has what was used before.
    ///
    /// # Errors
    /// The file is none of these, or cannot be written.
    pub fn begin(file: &Path) -> io::Result<(Self, u64)> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Self::begin_at(file, since.map_or(1, |since| since.as_micros() as u64))
    }

    fn begin_at(file: &Path, clock: u64) -> io::Result<(Self, u64)> {
        let said = |error: &dyn std::fmt::Display| {
            let text = format!(
                "{}: {error}; it has the number of the last run, and must be writable (remove it \
                 only while no job runs)",
                file.display()
            );
            io::Error::other(text)
        };
        let before = match fs::read_to_string(file) {
            Ok(text) => text.trim().parse::<u64>().map_err(|error| said(&error))?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(said(&error)),
        };
        let run = clock.max(before + 1);
        let mut runs = Self {
            file: file.to_path_buf(),
            reserved: 0,
        };
        runs.reserve(run).map_err(|error| said(&error))?;
        Ok((runs, run))
    }

    /// The run has used all numbers up to `highest`.
    ///
    /// # Errors
    /// More are needed, and cannot be written down.
    pub fn used(&mut self, highest: u64) -> io::Result<()> {
        match highest + RESERVED / 2 < self.reserved {
            true => Ok(()),
            false => self.reserve(highest),
        }
    }

    fn reserve(&mut self, highest: u64) -> io::Result<()> {
        // Also where it fails: what is asked for at each datagram shall not be tried at each.
        self.reserved = highest + RESERVED;
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{}", self.reserved)?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        File::open(directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_has_a_greater_number_whatever_the_clock_says() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made/last-run");
        let (mut runs, first) = Runs::begin_at(&file, 1_000_000_000).unwrap();
        assert_eq!(first, 1_000_000_000);
        let used = first + 3 * RESERVED;
        runs.used(used).unwrap();
        // Ten minutes back.
        let (_, second) = Runs::begin_at(&file, first - 600_000_000).unwrap();
        assert!(second > used, "{second}");
        let (_, third) = Runs::begin_at(&file, 2 * second).unwrap();
        assert_eq!(third, 2 * second, "the time, where it is ahead");
        fs::write(&file, "what\n").unwrap();
        let error = Runs::begin_at(&file, 5).unwrap_err().to_string();
        assert!(error.contains("last run"), "{error}");
    }
}
