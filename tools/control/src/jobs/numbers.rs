//! Numbers of jobs, unique over the life of a cluster.
//!
//! Invariant: a number is written down as used before it is given out; when that fails (full
//! disk) control goes on and says so.

use std::path::{Path, PathBuf};

/// Counts jobs, in a file that outlives control.
#[derive(Debug)]
pub struct JobNumbers {
    path: PathBuf,
    next: u64,
    warned: bool,
}

impl JobNumbers {
    /// Continues where the file at `path` left off; from 1 without one.
    pub fn load(path: &Path) -> Self {
        let kept = std::fs::read_to_string(path)
            .ok()
            .and_then(|text| text.trim().parse().ok());
        JobNumbers {
            path: path.to_path_buf(),
            next: kept.unwrap_or(1).max(1),
            warned: false,
        }
    }

    /// The next number.
    pub fn next(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        if let Err(error) = self.save()
            && !self.warned
        {
            self.warned = true;
            let path = self.path.display();
            tracing::warn!("cannot write {path}: {error}; job numbers may repeat after a restart");
        }
        number
    }

    fn save(&self) -> std::io::Result<()> {
        let new = self.path.with_extension("new");
        std::fs::write(&new, format!("{}\n", self.next))?;
        std::fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("next-job");
        let mut numbers = JobNumbers::load(&path);
        assert_eq!((numbers.next(), numbers.next()), (1, 2));
        assert_eq!(JobNumbers::load(&path).next(), 3);
    }

    #[test]
    fn a_disk_that_cannot_be_written_does_not_stop_jobs() {
        let mut numbers = JobNumbers::load(Path::new("/nonexistent/next-job"));
        assert_eq!((numbers.next(), numbers.next()), (1, 2));
    }
}
