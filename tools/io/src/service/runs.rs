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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Numbers that are reserved at once: those of 16 seconds, so that a service which is started often
/// is not ahead of the time by much.
const RESERVED: u64 = 1 << 24;

/// A file that cannot be written is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// The numbers that a run may use.
#[derive(Debug)]
pub struct Runs {
    file: PathBuf,
    /// All below may be used.
    reserved: u64,
    /// When more were asked for in vain.
    failed: Option<Instant>,
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
        let next = before.checked_add(1).filter(|next| *next < u64::MAX / 2);
        let next = next.ok_or_else(|| said(&"no number follows it"))?;
        let run = clock.max(next);
        let mut runs = Self {
            file: file.to_path_buf(),
            reserved: 0,
            failed: None,
        };
        runs.reserve(run).map_err(|error| said(&error))?;
        Ok((runs, run))
    }

    /// The run has used all numbers up to `highest`.
    ///
    /// # Errors
    /// More are needed, and cannot be written down. It is tried, and said, once in [`AGAIN`].
    pub fn used(&mut self, highest: u64) -> io::Result<()> {
        let is_waiting = (self.failed).is_some_and(|failed| failed.elapsed() < AGAIN);
        if highest + RESERVED / 2 < self.reserved || is_waiting {
            return Ok(());
        }
        let reserved = self.reserve(highest);
        self.failed = reserved.is_err().then(Instant::now);
        reserved
    }

    fn reserve(&mut self, highest: u64) -> io::Result<()> {
        let reserved = highest + RESERVED;
        let directory = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let new = self.file.with_extension("new");
        let mut file = File::create(&new)?;
        writeln!(file, "{reserved}")?;
        file.sync_all()?;
        fs::rename(&new, &self.file)?;
        File::open(directory)?.sync_all()?;
        self.reserved = reserved;
        Ok(())
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
        fs::write(&file, format!("{}\n", u64::MAX)).unwrap();
        let error = Runs::begin_at(&file, 5).unwrap_err().to_string();
        assert!(error.contains("no number follows"), "{error}");
    }

    #[test]
    fn numbers_that_could_not_be_written_down_are_not_reserved() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("made/last-run");
        let (mut runs, first) = Runs::begin_at(&file, 1_000).unwrap();
        let used = first + 3 * RESERVED;
        let new = file.with_extension("new");
        fs::create_dir(&new).unwrap();
        assert!(runs.used(used).is_err());
        assert!(runs.used(used).is_ok(), "not at each datagram");
        fs::remove_dir(&new).unwrap();
        runs.failed = None;
        runs.used(used).unwrap();
        assert!(
            fs::read_to_string(&file)
                .unwrap()
                .trim()
                .parse::<u64>()
                .unwrap()
                > used
        );
    }
}
