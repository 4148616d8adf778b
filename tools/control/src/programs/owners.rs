//! Who has sent a file: only they, and operators, have jobs use it. Its hash is no secret, so to
//! know that is not to have the file.
//!
//! Key type: [`Owners`]. Neighbour: `programs` asks before it gives a file out.
//!
//! A list lies beside the file, a name a line, and goes with it.
//!
//! Invariants: whoever is named has sent all of the file; a name is taken only from a whole line.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// Extension of a list's file name, after the file's hash.
const EXTENSION: &str = "owners";

/// Most users of one file; one more has the first forgotten, who sends it again.
const OWNERS_MAX: usize = 1_024;

/// Names of those who have sent a file.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Owners(BTreeSet<String>);

impl Owners {
    /// The list beside the file `program`; nobody where there is none that can be read.
    pub fn read(program: &Path) -> Self {
        let text = std::fs::read_to_string(beside(program)).unwrap_or_default();
        let whole = text.split_inclusive('\n');
        let names = whole.filter_map(|line| line.strip_suffix('\n'));
        let names = names.filter(|name| !name.is_empty()).take(OWNERS_MAX);
        Owners(names.map(str::to_string).collect())
    }

    /// Whether `name` has sent the file.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Adds somebody who has sent the file `program`, here and beside it.
    ///
    /// # Errors
    /// What the system said; they are known until control ends then.
    pub fn add(&mut self, program: &Path, name: &str) -> io::Result<()> {
        if name.is_empty() || name.contains('\n') || !self.0.insert(name.to_string()) {
            return Ok(());
        }
        if self.0.len() > OWNERS_MAX {
            let first = self.0.iter().find(|known| *known != name).cloned();
            first.map(|first| self.0.remove(&first));
        }
        let text: String = self.0.iter().flat_map(|name| [name, "\n"]).collect();
        std::fs::write(beside(program), text)
    }
}

/// Where the list of a file is.
pub fn beside(program: &Path) -> PathBuf {
    program.with_extension(EXTENSION)
}

/// Whether a path is that of a list.
pub fn is_list(path: &Path) -> bool {
    path.extension().is_some_and(|of| of == EXTENSION)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_beside_the_file_and_only_whole_ones_are_taken() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ab".repeat(32));
        let mut owners = Owners::read(&program);
        assert!(!owners.has("ann") && !owners.has(""));
        for name in ["ann", "bob", "ann", "", "two\nlines"] {
            owners.add(&program, name).unwrap();
        }
        assert_eq!(Owners::read(&program), owners);
        assert!(owners.has("ann") && owners.has("bob") && !owners.has("two"));
        // The disk was full in the middle of a name.
        std::fs::write(beside(&program), "bob\nannabe").unwrap();
        let cut = Owners::read(&program);
        assert!(cut.has("bob") && !cut.has("annabe") && !cut.has("ann"));
    }

    #[test]
    fn the_list_has_a_bound() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("ab".repeat(32));
        let mut owners = Owners::default();
        for number in 0..OWNERS_MAX + 5 {
            owners.add(&program, &format!("user-{number:05}")).unwrap();
        }
        assert_eq!(owners.0.len(), OWNERS_MAX);
        assert!(owners.has(&format!("user-{:05}", OWNERS_MAX + 4)));
        assert!(!owners.has("user-00000"));
    }
}
