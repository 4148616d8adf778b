//! The program store of control: program files by their BLAKE3 hash, on disk, bounded.
//!
//! Key types: [`ProgramStore`], [`Upload`] (a file being received), [`page_list`] (the list of
//! page hashes beside each file), [`owners`] (who has sent each). Neighbours: `api::programs`
//! (PUT), `jobs` (reads pages of a program while it runs).
//!
//! Invariants: a file appears under its name only when all of it is there and its hash is that
//! name; what an earlier run left is given out only once its hash was found to be its name; nobody
//! is given a file by its hash who has not sent it, but for operators; a program in use by a job is
//! never evicted, and none for a file that has not arrived; the files never grow over their bound
//! (their lists of page hashes add a 128th, those of their owners less, uploads under way as much
//! again at most), nor their number over [`FILES_MAX`]; a file is open only while somebody uses it.

mod owners;
mod page_list;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

pub use page_list::NoList;

use crate::casts::object::{DescribeError, Described};
use crate::principal::{Principal, Role};
use owners::Owners;

/// The name of a program: the BLAKE3 hash of its file.
pub type Hash = [u8; 32];

/// Digits of a program's id that people are shown; what `hearth drop` takes may be shorter.
const SHORT_DIGITS: usize = 12;

/// The beginning of a program's id, for people.
pub fn short_id(hash: &Hash) -> String {
    let mut digits = crate::secrets::encode_hex(hash);
    digits.truncate(SHORT_DIGITS);
    digits
}

/// Why a program was not taken.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system said no.
    #[error("the program cache cannot be used: {operation} {path}: {source}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The bytes are not what the name says.
    #[error(
        "the file arrived damaged, or changed while it was read: its BLAKE3 hash is {found}, not {wanted}; send it again, a file that others write to as a copy"
    )]
    WrongHash {
        /// The hash in the request.
        wanted: String,
        /// The hash of the bytes.
        found: String,
    },
    /// Over the bound for one program.
    #[error("the program is larger than jobs.program_max_bytes = {limit}")]
    TooLarge {
        /// The bound, in bytes.
        limit: u64,
    },
    /// More bytes than were announced.
    #[error("the program is longer than the {promised} bytes announced; send its true size")]
    Longer {
        /// Size announced.
        promised: u64,
    },
    /// Everything in the cache is in use.
    #[error(
        "the program cache is full of programs in use (jobs.program_cache_bytes = {limit}); wait for a job to end"
    )]
    Full {
        /// The bound, in bytes.
        limit: u64,
    },
}

/// Why nothing of a program in the store is given out.
#[derive(Debug, thiserror::Error)]
pub enum Unsound {
    /// Its content is not what its name says.
    #[error("was damaged in the control node's cache")]
    Damaged,
    /// The disk did not give its content this time.
    #[error("cannot be read from the control node's cache: {0}")]
    Unreadable(std::io::Error),
}

/// A program that is in the store, open for reading; keeps it from eviction while it lives.
#[derive(Debug, Clone)]
pub struct Program {
    hash: Hash,
    bytes: u64,
    file: Arc<File>,
    page_hashes: Arc<page_list::PageList>,
    described: Arc<OnceLock<Arc<Described>>>,
    sound: Arc<Sound>,
}

impl Program {
    /// Its name.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether its content is what its name says; nothing while that is not known
    /// ([`ProgramStore::unread`]), and then nothing of it is given out. Never waits.
    pub fn is_sound(&self) -> Option<bool> {
        self.sound.known.get().copied()
    }

    /// Reads up to `length` bytes at `offset`; shorter only at the end of the file.
    ///
    /// # Errors
    /// What the system said.
    pub fn read_at(&self, offset: u64, length: usize) -> std::io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt;
        let left = self.bytes.saturating_sub(offset);
        let mut bytes = vec![0; length.min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.file.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    /// Reads exactly `out` at `offset`.
    ///
    /// # Errors
    /// What the system said.
    pub fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        use std::os::unix::fs::FileExt;
        self.file.read_exact_at(out, offset)
    }

    /// How its blocks are checked when it is cast. Reads the whole file the first time: not for a
    /// task that others wait for.
    ///
    /// # Errors
    /// [`DescribeError`].
    pub fn describe(&self) -> Result<Arc<Described>, DescribeError> {
        if let Some(described) = self.described.get() {
            return Ok(described.clone());
        }
        let described = Arc::new(Described::of_file(&self.file, self.bytes)?);
        Ok(self.described.get_or_init(|| described).clone())
    }

    /// What [`Program::describe`] has made; never waits.
    pub fn described(&self) -> Option<Arc<Described>> {
        self.described.get().cloned()
    }

    /// The list of the hashes of its pages, 32 bytes each, as nodes get it; never waits.
    ///
    /// # Errors
    /// [`NoList`]: [`Program::make_page_hashes`] has not been called or has not ended, or it
    /// failed.
    pub fn page_hashes(&self) -> Result<&[u8], NoList> {
        self.page_hashes.get()
    }

    /// Makes that list if there is none. Reads the whole file: not for a task that others wait for.
    ///
    /// # Errors
    /// [`NoList::Unreadable`].
    pub fn make_page_hashes(&self) -> Result<&[u8], NoList> {
        self.page_hashes.make(self)
    }
}

/// Most files in the store: what a folder and a start are quick with, far more than clusters use in
/// a day.
pub const FILES_MAX: usize = 16_384;

/// Whether the hash of a file is its name.
#[derive(Debug, Default)]
struct Sound {
    /// Once somebody has read it.
    known: OnceLock<bool>,
    /// Held by who reads it, so that others who want to know wait for him.
    reading: Mutex<()>,
}

/// A program that is in the store, whether or not somebody uses it.
#[derive(Debug)]
struct Entry {
    bytes: u64,
    /// Of those that use it.
    file: Weak<File>,
    page_hashes: Arc<page_list::PageList>,
    described: Arc<OnceLock<Arc<Described>>>,
    sound: Arc<Sound>,
    owners: Owners,
    last_used: u64,
}

impl Entry {
    fn is_idle(&self) -> bool {
        self.file.strong_count() == 0
    }
}

#[derive(Debug, Default)]
struct Index {
    entries: BTreeMap<Hash, Entry>,
    total_bytes: u64,
    /// Promised to uploads under way.
    reserved_bytes: u64,
    uses: u64,
}

/// The store; cheap to clone, safe to use from several tasks.
#[derive(Debug, Clone)]
pub struct ProgramStore {
    dir: PathBuf,
    cache_bytes: u64,
    program_max_bytes: u64,
    index: Arc<Mutex<Index>>,
}

impl ProgramStore {
    /// Opens the store in `dir`, creating it, and dropping half-received files of an earlier run.
    /// No file is read: that happens when it is used.
    ///
    /// # Errors
    /// [`StoreError::File`].
    pub fn open(dir: &Path, cache_bytes: u64, program_max_bytes: u64) -> Result<Self, StoreError> {
        let failed = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |source| StoreError::File {
                operation,
                path,
                source,
            }
        };
        std::fs::create_dir_all(dir).map_err(failed("create", dir))?;
        let store = ProgramStore {
            dir: dir.to_path_buf(),
            cache_bytes,
            program_max_bytes,
            index: Arc::default(),
        };
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir)
            .map_err(failed("list", dir))?
            .flatten()
        {
            let path = entry.path();
            let age = entry.metadata().map(|data| data.mtime()).unwrap_or(0);
            let hash = path
                .file_name()
                .and_then(|name| crate::secrets::decode_hex(name.to_str()?));
            // Without its program a list is of no use.
            if page_list::is_list(&path) || owners::is_list(&path) {
                // Looked at when its program is used.
                let program = path.with_extension("");
                if !program.exists() {
                    drop(std::fs::remove_file(&path));
                }
                continue;
            }
            match hash {
                Some(hash) => found.push((age, hash, path)),
                _ => drop(std::fs::remove_file(&path)),
            }
        }
        found.sort();
        for (_, hash, path) in found {
            let bytes = std::fs::metadata(&path).map_err(failed("read", &path))?;
            let mut index = store.index();
            let entry = (Weak::new(), Sound::default());
            store.insert(&mut index, hash, bytes.len(), entry);
        }
        Ok(store)
    }

    /// The program `hash`, if it is here and sound. Reads the whole file when it is used for the
    /// first time after a restart: tasks that others wait for ask [`ProgramStore::find`].
    pub fn get(&self, hash: &Hash) -> Option<Program> {
        let program = self.unread(hash)?;
        self.check(&program).is_ok().then_some(program)
    }

    /// Finds out whether the content of a program is what its name says. Reads the whole file the
    /// first time: not for a task that others wait for. What is damaged is removed.
    ///
    /// # Errors
    /// [`Unsound`]: it is not, or that cannot be known.
    pub fn check(&self, program: &Program) -> Result<(), Unsound> {
        let (hash, sound) = (&program.hash, &program.sound);
        let _reading = sound.reading.lock().expect("no panic while held");
        let id = short_id(hash);
        let is_sound = match sound.known.get() {
            Some(known) => *known,
            None => match hash_of(&program.file) {
                Ok(found) => *sound.known.get_or_init(|| found == *hash),
                // The disk may be able to read it next time.
                Err(error) => {
                    tracing::warn!("file {id} in the cache cannot be read: {error}");
                    return Err(Unsound::Unreadable(error));
                }
            },
        };
        if !is_sound {
            let mut index = self.index();
            let is_same = |entry: &Entry| Arc::ptr_eq(&entry.sound, sound);
            if index.entries.get(hash).is_some_and(is_same) {
                tracing::warn!("file {id} in the cache is damaged and was removed");
                self.remove(&mut index, hash);
            }
            return Err(Unsound::Damaged);
        }
        Ok(())
    }

    /// Whether `by` has sent the file `hash`, or is an operator.
    pub fn is_theirs(&self, by: &Principal, hash: &Hash) -> bool {
        let index = self.index();
        let sent = |entry: &Entry| entry.owners.has(&by.name);
        by.role == Role::Operator || index.entries.get(hash).is_some_and(sent)
    }

    /// The program `hash` for `by`, if they may use it: see [`ProgramStore::is_theirs`] and
    /// [`ProgramStore::find`].
    pub async fn find_for(&self, by: &Principal, hash: &Hash) -> Option<Program> {
        match self.is_theirs(by, hash) {
            true => self.find(hash).await,
            false => None,
        }
    }

    /// The program `hash`, as [`ProgramStore::get`] finds it, on a thread that may wait for the
    /// disk.
    pub async fn find(&self, hash: &Hash) -> Option<Program> {
        let (store, hash) = (self.clone(), *hash);
        crate::blocking::run(move || store.get(&hash)).await
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().expect("no panic while held")
    }

    /// The program `hash`, if it is here; whether it is sound is not known before
    /// [`ProgramStore::check`]. Reads nothing.
    pub fn unread(&self, hash: &Hash) -> Option<Program> {
        let mut index = self.index();
        index.uses += 1;
        let uses = index.uses;
        let entry = index.entries.get_mut(hash)?;
        entry.last_used = uses;
        let opened = || match File::open(self.path_of(hash)) {
            Ok(file) => Some(Arc::new(file)),
            Err(error) => {
                let id = short_id(hash);
                tracing::warn!("program {id} is in the cache and cannot be opened: {error}");
                None
            }
        };
        let file = entry.file.upgrade().or_else(opened)?;
        entry.file = Arc::downgrade(&file);
        Some(Program {
            hash: *hash,
            bytes: entry.bytes,
            file,
            page_hashes: entry.page_hashes.clone(),
            described: entry.described.clone(),
            sound: entry.sound.clone(),
        })
    }

    /// Begins to receive the program `hash` of `bytes` bytes from `owner`, if there can be room for
    /// it.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], [`StoreError::Full`], [`StoreError::File`].
    pub fn receive(&self, owner: &str, hash: Hash, bytes: u64) -> Result<Upload, StoreError> {
        if bytes > self.program_max_bytes {
            return Err(StoreError::TooLarge {
                limit: self.program_max_bytes,
            });
        }
        self.reserve(bytes)?;
        let file = tempfile_in(&self.dir).map_err(|source| {
            self.index().reserved_bytes -= bytes;
            let path = self.dir.clone();
            StoreError::File {
                operation: "create a file in",
                path,
                source,
            }
        })?;
        Ok(Upload {
            store: self.clone(),
            owner: owner.to_string(),
            hash,
            hasher: blake3::Hasher::new(),
            reserved: bytes,
            received: 0,
            path: file.0,
            file: Some(file.1),
        })
    }

    fn insert(
        &self,
        index: &mut Index,
        hash: Hash,
        bytes: u64,
        (file, sound): (Weak<File>, Sound),
    ) {
        index.uses += 1;
        let entry = Entry {
            bytes,
            file,
            page_hashes: Arc::new(page_list::PageList::beside(&self.path_of(&hash))),
            described: Arc::default(),
            sound: Arc::new(sound),
            owners: Owners::read(&self.path_of(&hash)),
            last_used: index.uses,
        };
        if let Some(before) = index.entries.insert(hash, entry) {
            index.total_bytes -= before.bytes;
            let now = index.entries.get_mut(&hash).expect("inserted above");
            // Those too whom the disk did not take.
            now.owners = before.owners;
        }
        index.total_bytes += bytes;
    }

    /// Reserves `bytes`, if what is in use and other uploads leave so much. Nothing is evicted yet:
    /// what was announced may never arrive.
    fn reserve(&self, bytes: u64) -> Result<(), StoreError> {
        let mut index = self.index();
        let used = index.entries.values().filter(|entry| !entry.is_idle());
        let (count, used) = used.fold((0, 0), |(count, sum), entry| (count + 1, sum + entry.bytes));
        if used + index.reserved_bytes + bytes > self.cache_bytes || count >= FILES_MAX {
            return Err(StoreError::Full {
                limit: self.cache_bytes,
            });
        }
        index.reserved_bytes += bytes;
        Ok(())
    }

    /// Evicts programs not in use, the ones not used for longest first, until a file of `bytes`
    /// fits.
    fn make_room(&self, index: &mut Index, bytes: u64) -> Result<(), StoreError> {
        while index.total_bytes + bytes > self.cache_bytes || index.entries.len() >= FILES_MAX {
            let idle = index.entries.iter().filter(|(_, entry)| entry.is_idle());
            let oldest = idle.min_by_key(|(_, entry)| entry.last_used);
            let Some(hash) = oldest.map(|(hash, _)| *hash) else {
                return Err(StoreError::Full {
                    limit: self.cache_bytes,
                });
            };
            self.remove(index, &hash);
        }
        Ok(())
    }

    /// Makes room for a file that has arrived, and puts it there: others that end at that moment
    /// wait, so that they find no room that is taken.
    fn take_in(&self, upload: &Upload) -> Result<Arc<File>, StoreError> {
        let place = self.path_of(&upload.hash);
        let failed = |operation| {
            let path = place.clone();
            move |source| StoreError::File {
                operation,
                path,
                source,
            }
        };
        let mut index = self.index();
        self.make_room(&mut index, upload.received)?;
        std::fs::rename(&upload.path, &place).map_err(failed("rename to"))?;
        let file = Arc::new(File::open(&place).map_err(failed("open"))?);
        let bytes = file.metadata().map_err(failed("read"))?.len();
        let sound = Sound {
            known: OnceLock::from(true),
            ..Sound::default()
        };
        let entry = (Arc::downgrade(&file), sound);
        self.insert(&mut index, upload.hash, bytes, entry);
        let entry = index.entries.get_mut(&upload.hash).expect("inserted above");
        if let Err(error) = entry.owners.add(&place, &upload.owner) {
            let id = short_id(&upload.hash);
            tracing::warn!("who has sent file {id} cannot be written down: {error}");
        }
        Ok(file)
    }

    fn remove(&self, index: &mut Index, hash: &Hash) {
        if let Some(entry) = index.entries.remove(hash) {
            index.total_bytes -= entry.bytes;
        }
        let path = self.path_of(hash);
        let _ = std::fs::remove_file(page_list::beside(&path));
        let _ = std::fs::remove_file(owners::beside(&path));
        let _ = std::fs::remove_file(path);
    }

    fn path_of(&self, hash: &Hash) -> PathBuf {
        self.dir.join(crate::secrets::encode_hex(hash))
    }
}

/// A program being received; dropped unfinished, it leaves nothing behind.
#[derive(Debug)]
pub struct Upload {
    store: ProgramStore,
    owner: String,
    hash: Hash,
    hasher: blake3::Hasher,
    reserved: u64,
    received: u64,
    path: PathBuf,
    file: Option<File>,
}

impl Upload {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`], [`StoreError::File`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.received += bytes.len() as u64;
        if self.received > self.reserved {
            return Err(StoreError::Longer {
                promised: self.reserved,
            });
        }
        self.hasher.update(bytes);
        let failed = |source| StoreError::File {
            operation: "write",
            path: self.path.clone(),
            source,
        };
        self.file
            .as_mut()
            .expect("open until finished")
            .write_all(bytes)
            .map_err(failed)
    }

    /// Checks the hash and puts the program in the store.
    ///
    /// # Errors
    /// [`StoreError::WrongHash`], [`StoreError::Full`], [`StoreError::File`].
    pub fn finish(mut self) -> Result<Program, StoreError> {
        let found = self.hasher.finalize();
        if found != blake3::Hash::from_bytes(self.hash) {
            return Err(StoreError::WrongHash {
                wanted: crate::secrets::encode_hex(&self.hash),
                found: found.to_hex().to_string(),
            });
        }
        drop(self.file.take());
        let file = self.store.take_in(&self)?;
        // Open as long as the caller has it.
        let program = self.store.get(&self.hash);
        drop(file);
        program.ok_or(StoreError::Full {
            limit: self.store.cache_bytes,
        })
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.store.index().reserved_bytes -= self.reserved;
        // After `finish` the file has moved and this finds nothing.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The BLAKE3 hash of a file.
///
/// # Errors
/// It cannot be read, or is no file: a pipe could be read once, and might never end.
pub fn hash_of_file(path: &Path) -> std::io::Result<Hash> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a file"));
    }
    hash_of(&File::open(path)?)
}

/// The BLAKE3 hash of an open file, wherever others read it.
fn hash_of(file: &File) -> std::io::Result<Hash> {
    use std::os::unix::fs::FileExt;
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut at = 0;
    loop {
        let length = file.read_at(&mut buffer, at)?;
        if length == 0 {
            return Ok(*hasher.finalize().as_bytes());
        }
        hasher.update(&buffer[..length]);
        at += length as u64;
    }
}

/// A new file with a name of its own in `dir`.
fn tempfile_in(dir: &Path) -> std::io::Result<(PathBuf, File)> {
    static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let path = dir.join(format!("upload-{}-{number}", std::process::id()));
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&path)?;
    Ok((path, file))
}

#[cfg(test)]
mod tests;
