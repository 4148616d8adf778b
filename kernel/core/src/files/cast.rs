//! Which files of an I/O service the program reads from the node's memory, because a broadcast has
//! brought them to many nodes.
//!
//! The service says so in answer to a read, and that answer counts as long as bytes that were read
//! ahead do ([`super::ReadAhead`]): [`FRESH_US`] at most, and until the rank changes something or
//! hears from another one. Then the next read asks the service again.
//!
//! Invariant: a file that the service said nothing of for so long is not read from here; at most
//! [`MOST`] files are known.

use alloc::vec::Vec;

use super::Shipped;
use super::ahead::FRESH_US;
use crate::objects::ObjectId;

/// Files that are known at a time: one that is not is asked for by the next read.
const MOST: usize = 16;

/// What a file is in the node's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CastFile {
    /// The object.
    pub id: ObjectId,
    /// Its length in bytes.
    pub bytes: u64,
}

#[derive(Clone, Debug)]
struct Known {
    file: Shipped,
    /// `None`: the object does not come, or is gone.
    object: Option<CastFile>,
    said_at_us: u64,
    changes: u64,
    /// Where the last read of it has ended.
    ends_at: Option<u64>,
}

/// The files that are known.
#[derive(Clone, Debug, Default)]
pub struct CastFiles(Vec<Known>);

impl CastFiles {
    fn find(&self, file: Shipped) -> Option<&Known> {
        self.0.iter().find(|known| known.file == file)
    }

    /// The service said that a file is this object, when so many changes were known
    /// ([`super::ReadAhead::changes`]).
    pub fn put(&mut self, file: Shipped, object: CastFile, now_us: u64, changes: u64) {
        self.insert(Known {
            file,
            object: Some(object),
            said_at_us: now_us,
            changes,
            ends_at: self.find(file).and_then(|known| known.ends_at),
        });
    }

    /// A file is read from the service from now on.
    pub fn refuse(&mut self, file: Shipped) {
        self.insert(Known {
            file,
            object: None,
            said_at_us: 0,
            changes: 0,
            ends_at: None,
        });
    }

    /// What a file is now, as far as that counts.
    pub fn object(&self, file: Shipped, now_us: u64, changes: u64) -> Option<CastFile> {
        let known = self.find(file)?;
        let counts = known.changes == changes && now_us < known.said_at_us + FRESH_US;
        known.object.filter(|_| counts)
    }

    /// Whether the service may answer a read by naming an object.
    pub fn takes(&self, file: Shipped) -> bool {
        self.find(file).is_none_or(|known| known.object.is_some())
    }

    /// A read of a file has ended here.
    pub fn read_to(&mut self, file: Shipped, at: u64) {
        if let Some(known) = self.0.iter_mut().find(|known| known.file == file) {
            known.ends_at = Some(at);
        }
    }

    /// Whether a read from `at` on is not known to be elsewhere than where the last one has ended.
    pub fn goes_on(&self, file: Shipped, at: u64) -> bool {
        let ends_at = self.find(file).and_then(|known| known.ends_at);
        ends_at.is_none_or(|end| end == at)
    }

    /// A file is closed.
    pub fn forget(&mut self, file: Shipped) {
        self.0.retain(|known| known.file != file);
    }

    fn insert(&mut self, new: Known) {
        self.forget(new.file);
        if self.0.len() == MOST {
            self.0.remove(0);
        }
        self.0.push(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: CastFile = CastFile {
        id: ObjectId([3; 32]),
        bytes: 9,
    };

    const fn file(handle: u32) -> Shipped {
        Shipped {
            handle,
            run: 1,
            is_directory: false,
        }
    }

    #[test]
    fn what_the_service_said_counts_for_a_while_and_until_something_changes() {
        let mut files = CastFiles::default();
        assert!(files.takes(file(1)));
        files.put(file(1), OBJECT, 10, 4);
        assert_eq!(files.object(file(1), 11, 4), Some(OBJECT));
        assert_eq!(files.object(file(1), 11, 5), None, "a change");
        assert_eq!(files.object(file(1), 10 + FRESH_US, 4), None, "too old");
        assert_eq!(files.object(file(2), 11, 4), None, "another file");
        assert!(files.takes(file(1)), "it is asked for again");
        assert!(files.goes_on(file(1), 7));
        files.read_to(file(1), 3);
        files.put(file(1), OBJECT, 12, 5);
        assert!(files.goes_on(file(1), 3) && !files.goes_on(file(1), 7));
        files.refuse(file(1));
        assert!(!files.takes(file(1)));
        assert_eq!(files.object(file(1), 11, 4), None);
        files.forget(file(1));
        assert!(files.takes(file(1)));
    }

    #[test]
    fn few_files_are_known() {
        let mut files = CastFiles::default();
        for handle in 1..=40 {
            files.put(file(handle), OBJECT, 0, 0);
            files.put(file(handle), OBJECT, 0, 0);
        }
        let known = (1..=40).filter(|handle| files.object(file(*handle), 1, 0).is_some());
        assert!(known.eq(25..=40));
    }
}
