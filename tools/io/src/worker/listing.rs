//! The entries of a directory, as they were when somebody began to read it.
//!
//! Invariant: all lists of a job together take at most [`MOST_BYTES`].

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use netstack::files::{Entry, Reply};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::libc;
use nix::unistd::{Whence, lseek};

/// Bytes of all lists of a job: those of 256 directories with 20,000 entries each.
pub const MOST_BYTES: usize = 256 << 20;
/// Bytes of an entry beside its name, at most.
const ENTRY_BYTES: usize = 64;

/// Bytes that lists of a job take.
pub type Budget = AtomicUsize;

/// An entry: its name ends at `end`, and begins where that of the one before it ends.
#[derive(Clone, Copy, Debug)]
struct Name {
    inode: u64,
    end: usize,
    kind: u8,
}

/// The entries of a directory.
#[derive(Debug)]
pub struct Listing {
    names: Vec<Name>,
    text: Vec<u8>,
    taken: usize,
    budget: Arc<Budget>,
}

impl Listing {
    /// Without entries.
    pub fn new(budget: &Arc<Budget>) -> Self {
        Self {
            names: Vec::new(),
            text: Vec::new(),
            taken: 0,
            budget: Arc::clone(budget),
        }
    }

    /// Takes the entries down anew. `directory` is used by nobody else meanwhile.
    ///
    /// # Errors
    /// What the system answered; ENOMEM when the lists of the job are too long together.
    pub fn read(&mut self, directory: &File) -> Result<(), Errno> {
        self.clear();
        let flags = nix::fcntl::fcntl(directory, nix::fcntl::FcntlArg::F_GETFL)?;
        if OFlag::from_bits_retain(flags).contains(OFlag::O_PATH) {
            return Err(Errno::EBADF);
        }
        let own = directory.try_clone().map_err(|error| {
            let number = error.raw_os_error();
            number.map_or(Errno::EIO, Errno::from_raw)
        })?;
        let mut entries = nix::dir::Dir::from_fd(own.into())?;
        // What stood before is a position of this description, too.
        lseek(directory, 0, Whence::SeekSet)?;
        for entry in entries.iter() {
            let entry = entry.inspect_err(|_| self.clear())?;
            let name = entry.file_name().to_bytes();
            self.take(ENTRY_BYTES + name.len())?;
            self.text.extend_from_slice(name);
            self.names.push(Name {
                inode: entry.ino(),
                end: self.text.len(),
                kind: entry.file_type().map_or(libc::DT_UNKNOWN, kind_of),
            });
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> Result<(), Errno> {
        let before = self.budget.fetch_add(bytes, Ordering::Relaxed);
        self.taken += bytes;
        if before + bytes > MOST_BYTES {
            self.clear();
            return Err(Errno::ENOMEM);
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.budget.fetch_sub(self.taken, Ordering::Relaxed);
        self.taken = 0;
        self.names = Vec::new();
        self.text = Vec::new();
    }

    /// The entries from a position on, as many as fit.
    ///
    /// # Errors
    /// EINVAL when the first does not fit.
    pub fn entries(&self, position: u64, room: usize) -> Result<Reply, Errno> {
        let start = usize::try_from(position).unwrap_or(usize::MAX);
        let mut output = Vec::new();
        let mut fitted = 0;
        for (index, name) in self.names.iter().enumerate().skip(start) {
            let begin = index
                .checked_sub(1)
                .map_or(0, |before| self.names[before].end);
            let entry = Entry {
                inode: name.inode,
                next: index as u64 + 1,
                kind: name.kind,
                name: &self.text[begin..name.end],
            };
            if !entry.append(room, &mut output) {
                if fitted == 0 {
                    return Err(Errno::EINVAL);
                }
                break;
            }
            fitted += 1;
        }
        Ok(Reply {
            result: fitted,
            output,
        })
    }
}

impl Drop for Listing {
    fn drop(&mut self) {
        self.clear();
    }
}

fn kind_of(kind: nix::dir::Type) -> u8 {
    use nix::dir::Type;
    match kind {
        Type::Fifo => libc::DT_FIFO,
        Type::CharacterDevice => libc::DT_CHR,
        Type::Directory => libc::DT_DIR,
        Type::BlockDevice => libc::DT_BLK,
        Type::File => libc::DT_REG,
        Type::Symlink => libc::DT_LNK,
        Type::Socket => libc::DT_SOCK,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_give_back_what_they_took() {
        let budget = Arc::<Budget>::default();
        let folder = tempfile::tempdir().unwrap();
        for index in 0..100 {
            std::fs::write(folder.path().join(format!("file{index}")), b"").unwrap();
        }
        let directory = File::open(folder.path()).unwrap();
        let mut listing = Listing::new(&budget);
        listing.read(&directory).unwrap();
        assert_eq!(listing.entries(0, 1 << 16).unwrap().result, 102);
        assert_eq!(listing.entries(100, 1 << 16).unwrap().result, 2);
        assert_eq!(listing.entries(102, 1 << 16).unwrap().result, 0);
        assert_eq!(listing.entries(0, 10).unwrap_err(), Errno::EINVAL);
        let taken = budget.load(Ordering::Relaxed);
        listing.read(&directory).unwrap();
        assert_eq!(budget.load(Ordering::Relaxed), taken);
        budget.store(MOST_BYTES, Ordering::Relaxed);
        let mut other = Listing::new(&budget);
        assert_eq!(other.read(&directory).unwrap_err(), Errno::ENOMEM);
        assert_eq!(budget.load(Ordering::Relaxed), MOST_BYTES);
        budget.store(taken, Ordering::Relaxed);
        drop((listing, other));
        assert_eq!(budget.load(Ordering::Relaxed), 0);
    }
}
