//! Where a receiver puts blocks: a file under a temporary name.
//!
//! Key types: [`Folder`] (a `netstack::broadcast::Store`), [`Incoming`] (one file).
//!
//! Invariants: bytes that were not checked are never written; a file that is there already stays as
//! it is unless [`Existing::Replace`] was asked for; whatever happens, a temporary file is renamed
//! or removed, unless the process is killed.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use netstack::broadcast::{Hash, Hasher, NoRoom, Object, Part, Store};
use netstack::ids::CastId;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, RenameFlags, renameat2};

use crate::casts::object::{Blake3, Described};

/// A file on its way into the folder.
#[derive(Debug)]
struct Incoming {
    object: Object,
    file: File,
    /// Where it is now; none once it has its name.
    temporary: Option<PathBuf>,
    place: PathBuf,
    existing: Existing,
    lists: BTreeMap<u32, Vec<u8>>,
    /// Blocks that are here, by number, and how many are not.
    here: Vec<bool>,
    missing: usize,
    /// Why a block could not be written.
    failed: Option<io::Error>,
}

/// What a folder has before anything of an object has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing of it.
    Nothing,
    /// All of it, under its name.
    All,
}

/// What becomes of a file that has the name of one that is received, and other content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// It stays, and the other is not received.
    Keep,
    /// The one that is received takes its place.
    Replace,
}

/// A folder that receives files.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    existing: Existing,
    incoming: BTreeMap<CastId, Incoming>,
}

impl Folder {
    /// The folder `path`, which there must be.
    pub fn new(path: &Path, existing: Existing) -> Self {
        Folder {
            path: path.to_path_buf(),
            existing,
            incoming: BTreeMap::new(),
        }
    }

    /// Makes room for an object under `name`, which was checked.
    ///
    /// # Errors
    /// What the system said.
    pub fn open(&mut self, cast: CastId, object: &Object, name: &str) -> io::Result<Before> {
        let place = self.path.join(name);
        if let Some((file, lists)) = find(&place, object) {
            let incoming = Incoming {
                object: object.clone(),
                file,
                temporary: None,
                place,
                existing: self.existing,
                lists,
                here: Vec::new(),
                missing: 0,
                failed: None,
            };
            self.incoming.insert(cast, incoming);
            return Ok(Before::All);
        }
        // Found out now, not when all of it has come.
        match std::fs::symlink_metadata(&place) {
            Ok(found) if !found.is_file() => {
                let text = format!("{} is there and is no file", place.display());
                return Err(io::Error::other(text));
            }
            Ok(_) if self.existing == Existing::Keep => return Err(taken(&place)),
            _ => {}
        }
        // Nobody else's, and no link that somebody has put there.
        let name = format!(
            ".{}.{:016x}.part",
            crate::secrets::encode_hex(&object.id[..8]),
            super::seed()
        );
        let temporary = self.path.join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&temporary)?;
        let blocks = object.blocks() as usize;
        let incoming = Incoming {
            object: object.clone(),
            file,
            temporary: Some(temporary),
            place,
            existing: self.existing,
            lists: BTreeMap::new(),
            here: vec![false; blocks],
            missing: blocks,
            failed: None,
        };
        // A full disk shows now, not in the middle.
        if object.bytes > 0 {
            let bytes = i64::try_from(object.bytes).map_err(io::Error::other)?;
            nix::fcntl::posix_fallocate(&incoming.file, 0, bytes)?;
        }
        self.incoming.insert(cast, incoming);
        Ok(Before::Nothing)
    }

    /// Gives a file that is complete its name; says where it is.
    ///
    /// # Errors
    /// What the system said.
    pub fn finish(&mut self, cast: CastId) -> io::Result<PathBuf> {
        let unknown = || io::Error::other("nothing is received under this number");
        let incoming = self.incoming.get_mut(&cast).ok_or_else(unknown)?;
        incoming.finish()?;
        Ok(incoming.place.clone())
    }

    /// Forgets a file; one that is not complete is removed. Gives the error that stopped it.
    pub fn forget(&mut self, cast: CastId) -> Option<io::Error> {
        self.incoming
            .remove(&cast)
            .and_then(|mut incoming| incoming.failed.take())
    }
}

/// Why a name is not given to a file that is received.
fn taken(place: &Path) -> io::Error {
    let text = format!(
        "{} is there with other content and stays; receive into another folder, have it sent under another name (`hearth send --name`), or replace it with --force",
        place.display()
    );
    io::Error::new(io::ErrorKind::AlreadyExists, text)
}

/// Renames a file to a name that no file has.
fn rename_to_free(from: &Path, to: &Path) -> io::Result<()> {
    match renameat2(AT_FDCWD, from, AT_FDCWD, to, RenameFlags::RENAME_NOREPLACE) {
        Ok(()) => Ok(()),
        Err(Errno::EEXIST) => Err(taken(to)),
        // A file system that cannot say so: somebody may make the file between the two, and loses
        // it.
        Err(Errno::EINVAL | Errno::ENOSYS | Errno::EOPNOTSUPP) => {
            if std::fs::symlink_metadata(to).is_ok() {
                return Err(taken(to));
            }
            std::fs::rename(from, to)
        }
        Err(error) => Err(error.into()),
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        if let Some(temporary) = self.temporary.take() {
            let _ = std::fs::remove_file(temporary);
        }
    }
}

/// The file at `place` and what its list blocks hold, if it is the object already.
fn find(place: &Path, object: &Object) -> Option<(File, BTreeMap<u32, Vec<u8>>)> {
    let found = std::fs::symlink_metadata(place).ok()?;
    if !found.is_file() || found.len() != object.bytes {
        return None;
    }
    let file = File::open(place).ok()?;
    let described = Described::in_blocks(&file, object.bytes, object.block_log2).ok()?;
    let list = |index| Some((index, described.lists.block(index)?.to_vec()));
    (described.object == *object).then(|| {
        let lists = (0..object.list_blocks()).filter_map(list).collect();
        (file, lists)
    })
}

impl Incoming {
    fn read(&self, part: Part, at: usize, out: &mut [u8]) -> bool {
        match part {
            Part::List(index) => {
                let list = self.lists.get(&index);
                let found = list.and_then(|list| list.get(at..)?.get(..out.len()));
                found.map(|found| out.copy_from_slice(found)).is_some()
            }
            Part::Data(index) => {
                let offset = (u64::from(index) << self.object.block_log2) + at as u64;
                self.file.read_exact_at(out, offset).is_ok()
            }
        }
    }

    /// Gives the file its name.
    fn finish(&mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            match self.existing {
                Existing::Replace => std::fs::rename(temporary, &self.place)?,
                Existing::Keep => rename_to_free(temporary, &self.place)?,
            }
            self.temporary = None;
        }
        Ok(())
    }

    /// Keeps a block; with the last one the file gets its name, so that nobody is told that all of
    /// it is here before it is.
    fn write(&mut self, part: Part, bytes: &[u8]) -> io::Result<()> {
        match part {
            Part::List(index) => drop(self.lists.insert(index, bytes.to_vec())),
            Part::Data(index) => {
                let offset = u64::from(index) << self.object.block_log2;
                self.file.write_all_at(bytes, offset)?;
            }
        }
        let block = self.object.block_of(part) as usize;
        if let Some(here) = self.here.get_mut(block).filter(|here| !**here) {
            *here = true;
            self.missing -= 1;
            if self.missing == 0 {
                self.finish()?;
            }
        }
        Ok(())
    }
}

impl Hasher for Folder {
    fn subtree(&mut self, first_byte: u64, bytes: &[u8], root: bool) -> Hash {
        Blake3.subtree(first_byte, bytes, root)
    }

    fn merge(&mut self, left: &Hash, right: &Hash, root: bool) -> Hash {
        Blake3.merge(left, right, root)
    }
}

impl Store for Folder {
    fn read(&mut self, cast: CastId, part: Part, at: usize, out: &mut [u8]) -> bool {
        let incoming = self.incoming.get(&cast);
        incoming.is_some_and(|incoming| incoming.read(part, at, out))
    }

    fn write(&mut self, cast: CastId, part: Part, bytes: &[u8]) -> Result<(), NoRoom> {
        let incoming = self.incoming.get_mut(&cast).ok_or(NoRoom)?;
        incoming.write(part, bytes).map_err(|error| {
            incoming.failed.get_or_insert(error);
            NoRoom
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_its_name_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = vec![5; 20_000];
        let object = Described::of_bytes(&bytes).unwrap().object;
        let names = || {
            let entries = std::fs::read_dir(dir.path()).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        let mut folder = Folder::new(dir.path(), Existing::Keep);
        let (first, second) = (CastId(1), CastId(2));
        assert_eq!(folder.open(first, &object, "x").unwrap(), Before::Nothing);
        assert_eq!(names().len(), 1);
        folder.forget(first);
        assert!(names().is_empty(), "{:?}", names());
        folder.open(second, &object, "x").unwrap();
        for (index, block) in (0..).zip(bytes.chunks(object.block_bytes())) {
            folder.write(second, Part::Data(index), block).unwrap();
        }
        let mut out = [0; 10];
        assert!(folder.read(second, Part::Data(1), 7, &mut out) && out == [5; 10]);
        // Whoever is told that it is complete finds it.
        assert_eq!(names(), ["x"]);
        folder.finish(second).unwrap();
        folder.forget(second);
        assert_eq!(names(), ["x"]);
        assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), bytes);
        // It is known when it comes again, and left alone.
        assert_eq!(folder.open(first, &object, "x").unwrap(), Before::All);
        folder.finish(first).unwrap();
        drop(folder);
        assert_eq!(names(), ["x"]);
    }

    #[test]
    fn a_file_that_is_there_is_replaced_only_when_that_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("x");
        let object = Described::of_bytes(b"new").unwrap().object;
        let read = || std::fs::read(&place).unwrap();
        std::fs::write(&place, "old").unwrap();
        let refused = Folder::new(dir.path(), Existing::Keep).open(CastId(1), &object, "x");
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("--force"), "{refused}");
        // One that comes meanwhile stays as well.
        std::fs::remove_file(&place).unwrap();
        let mut folder = Folder::new(dir.path(), Existing::Keep);
        folder.open(CastId(1), &object, "x").unwrap();
        std::fs::write(&place, "old").unwrap();
        assert_eq!(folder.write(CastId(1), Part::Data(0), b"new"), Err(NoRoom));
        let why = folder.forget(CastId(1)).unwrap().to_string();
        assert!(why.contains("--force") && read() == b"old", "{why}");
        let mut folder = Folder::new(dir.path(), Existing::Replace);
        folder.open(CastId(1), &object, "x").unwrap();
        folder.write(CastId(1), Part::Data(0), b"new").unwrap();
        folder.finish(CastId(1)).unwrap();
        drop(folder);
        assert_eq!(read(), b"new");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let object = Described::of_bytes(b"abc").unwrap().object;
        let mut folder = Folder::new(Path::new("/nonexistent"), Existing::Keep);
        assert!(folder.open(CastId(1), &object, "x").is_err());
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("x")).unwrap();
        let taken = Folder::new(dir.path(), Existing::Keep).open(CastId(1), &object, "x");
        assert!(taken.unwrap_err().to_string().contains("no file"));
        assert_eq!(folder.write(CastId(1), Part::Data(0), b"abc"), Err(NoRoom));
    }
}
