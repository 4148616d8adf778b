//! What was read of files beyond what the program asked for: a file that is read in small pieces
//! one after another is asked for [`BYTES`] at a time.
//!
//! Ranks see each other's changes by three rules. What was read is not kept longer than
//! [`FRESH_US`]. All of it goes when the rank changes, locks or synchronises something, and when it
//! hears from another rank. The end of a file is never kept.
//!
//! Invariant: at most [`MOST`] files have something here, and of each at most [`BYTES`].

use alloc::vec::Vec;

use super::Shipped;

/// Bytes of a read ahead: what one call of the service brings.
pub const BYTES: usize = 64 * 1024;
/// Files that are read so at a time: one that reads more of them in turn gains nothing.
const MOST: usize = 4;
/// How old what is kept may be, in microseconds: as long as file systems of networks are without
/// news of a change (Linux's NFS, acregmin: 3 s).
pub(super) const FRESH_US: u64 = 1_000_000;

#[derive(Clone, Debug)]
struct Kept {
    file: Shipped,
    /// Where the last read has ended, and `bytes` begin.
    at: u64,
    bytes: Vec<u8>,
    /// How many of them the program has.
    taken: usize,
    read_at_us: u64,
}

impl Kept {
    fn discard(&mut self) {
        (self.bytes, self.taken) = (Vec::new(), 0);
    }
}

/// What was read ahead, of the file that was read last at the end.
#[derive(Clone, Debug, Default)]
pub struct ReadAhead {
    files: Vec<Kept>,
    /// How often somebody may have changed something.
    changes: u64,
}

impl ReadAhead {
    fn position(&self, file: Shipped) -> Option<usize> {
        self.files.iter().position(|kept| kept.file == file)
    }

    /// What is here of a file from `at` on.
    pub fn bytes(&self, file: Shipped, at: u64, now_us: u64) -> &[u8] {
        let kept = self.files.iter().find(|kept| kept.file == file);
        match kept {
            Some(kept) if kept.at == at && now_us < kept.read_at_us + FRESH_US => {
                &kept.bytes[kept.taken..]
            }
            _ => &[],
        }
    }

    /// Whether a read at `at` goes on where the last one has ended.
    pub fn goes_on(&self, file: Shipped, at: u64) -> bool {
        self.files
            .iter()
            .any(|kept| kept.file == file && kept.at == at)
    }

    /// The program has so many bytes of what is here.
    pub fn take(&mut self, file: Shipped, bytes: usize) {
        if let Some(index) = self.position(file) {
            let kept = &mut self.files[index];
            kept.taken = (kept.taken + bytes).min(kept.bytes.len());
            kept.at += bytes as u64;
            if kept.taken == kept.bytes.len() {
                kept.discard();
            }
        }
    }

    /// A read has ended at `at`, and has brought these bytes beyond.
    pub fn keep(&mut self, file: Shipped, at: u64, bytes: Vec<u8>, now_us: u64) {
        self.forget(file);
        if self.files.len() == MOST {
            self.files.remove(0);
        }
        self.files.push(Kept {
            file,
            at,
            bytes,
            taken: 0,
            read_at_us: now_us,
        });
    }

    /// A file is closed.
    pub fn forget(&mut self, file: Shipped) {
        if let Some(index) = self.position(file) {
            self.files.remove(index);
        }
    }

    /// Nothing that is here of a file counts any more.
    pub fn discard(&mut self, file: Shipped) {
        if let Some(index) = self.position(file) {
            self.files[index].discard();
        }
    }

    /// Somebody may have changed something: nothing that is here counts any more, nor what was
    /// asked for before.
    pub fn clear(&mut self) {
        self.changes += 1;
        self.files.iter_mut().for_each(Kept::discard);
    }

    /// A number that is another after each [`Self::clear`].
    pub fn changes(&self) -> u64 {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn file(handle: u32) -> Shipped {
        Shipped {
            handle,
            run: 1,
            is_directory: false,
        }
    }

    #[test]
    fn a_file_is_read_on_from_what_is_here() {
        let mut ahead = ReadAhead::default();
        assert!(!ahead.goes_on(file(1), 0));
        ahead.keep(file(1), 10, b"abcdef".to_vec(), 5);
        assert!(ahead.goes_on(file(1), 10) && !ahead.goes_on(file(1), 0));
        assert_eq!(ahead.bytes(file(1), 10, 6), b"abcdef");
        assert_eq!(ahead.bytes(file(1), 11, 6), b"", "another place");
        assert_eq!(ahead.bytes(file(2), 10, 6), b"", "another file");
        ahead.take(file(1), 4);
        assert_eq!(ahead.bytes(file(1), 14, 6), b"ef");
        assert_eq!(ahead.bytes(file(1), 14, 5 + FRESH_US), b"", "too old");
        ahead.take(file(1), 2);
        assert!(ahead.goes_on(file(1), 16));
        assert_eq!(ahead.bytes(file(1), 16, 6), b"");
    }

    #[test]
    fn a_change_leaves_nothing_but_where_reads_have_ended() {
        let mut ahead = ReadAhead::default();
        ahead.keep(file(1), 10, b"abc".to_vec(), 5);
        let before = ahead.changes();
        ahead.clear();
        assert_ne!(ahead.changes(), before);
        assert_eq!(ahead.bytes(file(1), 10, 5), b"");
        assert!(ahead.goes_on(file(1), 10));
        ahead.forget(file(1));
        assert!(!ahead.goes_on(file(1), 10));
    }

    #[test]
    fn few_files_have_something_here() {
        let mut ahead = ReadAhead::default();
        for handle in 1..=9 {
            ahead.keep(file(handle), 1, b"x".to_vec(), 0);
            ahead.keep(file(handle), 2, b"y".to_vec(), 0);
        }
        let there = (1..=9).filter(|handle| ahead.goes_on(file(*handle), 2));
        assert!(there.eq(6..=9));
        assert_eq!(ahead.files.len(), MOST);
    }
}
