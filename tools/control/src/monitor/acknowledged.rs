//! Events that somebody has seen and marked as such, for everybody who looks.
//!
//! Key type: [`Acknowledged`]. Invariant: bounded: the ones with the smallest numbers go first; a
//! disk that is full costs the memory of a restart, nothing else.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use crate::durable;
use crate::principal::Operator;

/// Most numbers kept; the page shows [`super::picture::EVENTS_MAX`] events.
const KEPT_MAX: usize = 4_096;

/// Numbers of events.
#[derive(Debug)]
pub struct Acknowledged {
    path: Option<PathBuf>,
    numbers: Mutex<BTreeSet<u64>>,
}

impl Acknowledged {
    /// Those of earlier runs in `path`; `None`: they are forgotten at the end.
    pub fn open(path: Option<PathBuf>) -> Self {
        let text = path
            .as_ref()
            .and_then(|path| std::fs::read_to_string(path).ok());
        let numbers = text.unwrap_or_default();
        let numbers = numbers
            .split_whitespace()
            .filter_map(|word| word.parse().ok());
        Acknowledged {
            numbers: Mutex::new(numbers.collect()),
            path,
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<u64> {
        let numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.iter().copied().collect()
    }

    /// Adds some and writes them down.
    ///
    /// # Errors
    /// What the system said; they are kept in memory then.
    pub fn add(&self, _: &Operator<'_>, seen: &[u64]) -> std::io::Result<()> {
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.extend(seen);
        while numbers.len() > KEPT_MAX {
            numbers.pop_first();
        }
        let Some(path) = &self.path else {
            return Ok(());
        };
        if let Some(dir) = path.parent() {
            std::fs::create_dir_all(dir)?;
        }
        let words: Vec<String> = numbers.iter().map(u64::to_string).collect();
        durable::replace(path, words.join("\n").as_bytes(), 0o600)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Principal;

    #[test]
    fn what_was_seen_stays_seen_and_is_bounded() {
        let control = Principal::control();
        let operator = control.operator().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("monitor/acknowledged");
        let seen = Acknowledged::open(Some(path.clone()));
        seen.add(&operator, &[3, 1]).unwrap();
        assert_eq!(Acknowledged::open(Some(path.clone())).all(), [1, 3]);
        let many: Vec<u64> = (0..2 * KEPT_MAX as u64).collect();
        seen.add(&operator, &many).unwrap();
        let kept = Acknowledged::open(Some(path)).all();
        assert_eq!((kept.len(), kept[0]), (KEPT_MAX, KEPT_MAX as u64));
    }
}
