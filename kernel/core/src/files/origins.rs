//! Files that an I/O service has open for the program: which they are, and how they are opened
//! again when the service has died.
//!
//! A description keeps the handle that the service gave at first ([`Shipped`]), and
//! [`Origins::handle`] says by which one the file is open now. One that is open in no run of the
//! service that lasts is opened again by its path ([`Origins::begin`], [`Origins::end`]).
//!
//! Invariant: a file counts as the same one only where device and inode are the same, no lock of it
//! is lost, and, if it was changed since it was synchronised last, the service's machine has not
//! booted since: what it had in memory would be gone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use hearth_abi::errno::Errno;
use hearth_abi::linux::open;

use super::{PATH_MAX, Shipped};

/// Flags by which open changes something, which it does once.
const ONCE: u64 = open::CREATE | open::EXCLUSIVE | open::TRUNCATE;

/// Which file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device that it is on.
    pub device: u64,
    /// Its number there.
    pub inode: u64,
    /// The boot of the service's machine.
    pub boot: u64,
}

impl Identity {
    fn is_file(&self, other: &Self) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }
}

/// A call that opens a file again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opening {
    /// The number of the call.
    pub number: u64,
    /// The run of the service that it was made to.
    pub run: u64,
}

#[derive(Clone, Debug)]
struct Origin {
    /// From the directory that the program began in; `None`: not known.
    path: Option<Vec<u8>>,
    flags: u64,
    identity: Identity,
    /// By which handle it is open, and in which run.
    handle: u32,
    run: u64,
    /// It was changed since it was synchronised.
    is_changed: bool,
    /// Changes that have begun or ended, and writes that are under way.
    changes: u64,
    writes: u32,
    /// Parts of it are locked, or the whole.
    locks: [bool; 2],
    opening: Option<Opening>,
    is_lost: bool,
    /// The run in which its entries were taken down, as positions in it count them.
    listed_in: u64,
}

/// The files that an I/O service has open for a program.
#[derive(Clone, Debug, Default)]
pub struct Origins {
    files: BTreeMap<(u64, u32), Origin>,
}

const fn key(shipped: Shipped) -> (u64, u32) {
    (shipped.run, shipped.handle)
}

impl Origins {
    /// A file was opened with these flags, by a path that [`Self::path`] gave.
    pub fn insert(
        &mut self,
        shipped: Shipped,
        path: Option<Vec<u8>>,
        flags: u64,
        identity: Identity,
    ) {
        let origin = Origin {
            path,
            flags: flags & !(ONCE | open::CLOEXEC),
            identity,
            handle: shipped.handle,
            run: shipped.run,
            is_changed: false,
            changes: 0,
            writes: 0,
            locks: [false; 2],
            opening: None,
            is_lost: false,
            listed_in: shipped.run,
        };
        self.files.insert(key(shipped), origin);
    }

    /// The path of what is at `path` below an open directory (`None`: below the directory that the
    /// program began in), from where the program began. `None` where it is not known or too long.
    pub fn path(&self, below: Option<Shipped>, path: &[u8]) -> Option<Vec<u8>> {
        let mut whole = match below {
            Some(directory) if path.first() != Some(&b'/') => {
                let mut whole = self.files.get(&key(directory))?.path.clone()?;
                whole.push(b'/');
                whole
            }
            _ => Vec::new(),
        };
        whole.extend_from_slice(path);
        (whole.len() < PATH_MAX).then_some(whole)
    }

    /// Whether it is the directory `/`, below which there is what is the node's own, too.
    pub fn is_root(&self, shipped: Shipped) -> bool {
        let path = self
            .files
            .get(&key(shipped))
            .and_then(|origin| origin.path.as_ref());
        path.is_some_and(|path| {
            path.first() == Some(&b'/') && path.iter().all(|byte| *byte == b'/')
        })
    }

    /// The handle by which a file is open in this run; `None` where it is in none.
    ///
    /// # Errors
    /// EIO where it cannot be opened again.
    pub fn handle(&self, shipped: Shipped, run: u64) -> Result<Option<u32>, Errno> {
        let origin = self.files.get(&key(shipped)).ok_or(Errno::EIO)?;
        match (origin.is_lost, origin.run == run) {
            (true, _) => Err(Errno::EIO),
            (false, is_open) => Ok(is_open.then_some(origin.handle)),
        }
    }

    /// The call by which it is being opened again.
    pub fn opening(&self, shipped: Shipped) -> Option<Opening> {
        self.files.get(&key(shipped))?.opening
    }

    /// Flags and path by which a file is to be opened again.
    ///
    /// # Errors
    /// EIO where it cannot be.
    pub fn begin(&mut self, shipped: Shipped) -> Result<(u64, &[u8]), Errno> {
        let origin = self.files.get(&key(shipped)).ok_or(Errno::EIO)?;
        let same = |other: &&Origin| other.identity.is_file(&origin.identity);
        let is_locked = self.files.values().filter(same).any(Origin::is_locked);
        let origin = self.files.get_mut(&key(shipped)).ok_or(Errno::EIO)?;
        match &origin.path {
            Some(path) if !is_locked => Ok((origin.flags, path)),
            _ => {
                origin.is_lost = true;
                Err(Errno::EIO)
            }
        }
    }

    /// This call opens it again.
    pub fn begun(&mut self, shipped: Shipped, opening: Opening) {
        if let Some(origin) = self.files.get_mut(&key(shipped)) {
            origin.opening = Some(opening);
        }
    }

    /// The call that was to open a file again has ended: what it has opened, in which run, and by
    /// which handle; `None`: it has failed for good.
    ///
    /// # Errors
    /// EIO where it is another file, or may lack what was written.
    pub fn end(
        &mut self,
        shipped: Shipped,
        opened: Option<(u32, u64, Identity)>,
    ) -> Result<(), Errno> {
        let origin = self.files.get_mut(&key(shipped)).ok_or(Errno::EIO)?;
        origin.opening = None;
        if let Some((handle, run, identity)) = opened
            && origin.identity.is_file(&identity)
            && (!origin.is_changed || origin.identity.boot == identity.boot)
        {
            (origin.handle, origin.run) = (handle, run);
            origin.identity = identity;
            return Ok(());
        }
        origin.is_lost = true;
        Err(Errno::EIO)
    }

    /// The call that was to open a file again has to be made once more.
    pub fn again(&mut self, shipped: Shipped) {
        if let Some(origin) = self.files.get_mut(&key(shipped)) {
            origin.opening = None;
        }
    }

    /// A file is closed: what it was open by, and in which run. POSIX: the program's locks of parts
    /// of it are gone with that.
    pub fn remove(&mut self, shipped: Shipped) -> Option<(u32, u64)> {
        let gone = self.files.remove(&key(shipped))?;
        for origin in self.files.values_mut() {
            if origin.identity.is_file(&gone.identity) {
                origin.locks[0] = false;
            }
        }
        Some((gone.handle, gone.run))
    }

    /// A file is changed.
    pub fn change(&mut self, shipped: Shipped) {
        if let Some(origin) = self.files.get_mut(&key(shipped)) {
            origin.is_changed = true;
            origin.changes += 1;
        }
    }

    /// A write to a file begins. It counts as under way until [`Self::end_write`].
    pub fn begin_write(&mut self, shipped: Shipped) {
        self.change(shipped);
        if let Some(origin) = self.files.get_mut(&key(shipped)) {
            origin.writes += 1;
        }
    }

    /// A write to a file has ended.
    pub fn end_write(&mut self, shipped: Shipped) {
        self.change(shipped);
        if let Some(origin) = self.files.get_mut(&key(shipped)) {
            origin.writes -= 1;
        }
    }

    /// How often a file was changed: for [`Self::synchronise`].
    pub fn changes(&self, shipped: Shipped) -> u64 {
        self.files
            .get(&key(shipped))
            .map_or(0, |origin| origin.changes)
    }

    /// A file has been synchronised that had so many changes when that began. What was written
    /// meanwhile may not have been.
    pub fn synchronise(&mut self, shipped: Shipped, changes: u64) {
        if let Some(origin) = self.files.get_mut(&key(shipped))
            && (origin.changes, origin.writes) == (changes, 0)
        {
            origin.is_changed = false;
        }
    }

    /// Parts of a file, or the whole of it, are locked, or nothing of it is any more.
    pub fn lock(&mut self, shipped: Shipped, whole: bool, is_locked: bool) {
        let Some(origin) = self.files.get(&key(shipped)) else {
            return;
        };
        let identity = origin.identity;
        if whole {
            if let Some(origin) = self.files.get_mut(&key(shipped)) {
                origin.locks[1] = is_locked;
            }
            return;
        }
        // Locks of parts are the program's, whichever descriptor they were asked for by.
        for (name, origin) in &mut self.files {
            if origin.identity.is_file(&identity) {
                origin.locks[0] = is_locked && *name == key(shipped);
            }
        }
    }

    /// A directory is read on from this position.
    ///
    /// # Errors
    /// EIO where another run of the service counted the entries before it.
    pub fn list(&mut self, shipped: Shipped, position: u64) -> Result<(), Errno> {
        let origin = self.files.get_mut(&key(shipped)).ok_or(Errno::EIO)?;
        if position == 0 {
            origin.listed_in = origin.run;
        }
        match origin.listed_in == origin.run {
            true => Ok(()),
            false => Err(Errno::EIO),
        }
    }

    /// Flags of open that a file has from now on (`F_SETFL`), of those in `settable`.
    pub fn set_flags(&mut self, shipped: Shipped, settable: u64, flags: u64) {
        if let Some(origin) = self.files.get_mut(&key(shipped)) {
            origin.flags = (origin.flags & !settable) | (flags & settable);
        }
    }
}

impl Origin {
    fn is_locked(&self) -> bool {
        self.locks[0] || self.locks[1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Shipped = shipped(5, 1);
    const FILE: Identity = Identity {
        device: 1,
        inode: 77,
        boot: 9,
    };

    const fn shipped(handle: u32, run: u64) -> Shipped {
        Shipped {
            handle,
            run,
            is_directory: false,
        }
    }

    fn opened() -> Origins {
        let mut origins = Origins::default();
        let flags = open::CREATE | open::TRUNCATE | open::APPEND | 1;
        origins.insert(FIRST, Some(b"data".to_vec()), flags, FILE);
        origins
    }

    fn open_again(origins: &mut Origins, identity: Identity) -> Result<Option<u32>, Errno> {
        assert_eq!(origins.handle(FIRST, 2), Ok(None));
        origins.begin(FIRST)?;
        origins.begun(FIRST, Opening { number: 3, run: 2 });
        origins.end(FIRST, Some((8, 2, identity)))?;
        origins.handle(FIRST, 2)
    }

    #[test]
    fn the_same_file_is_opened_again_and_nothing_is_made_or_cut() {
        let mut origins = opened();
        assert_eq!(origins.handle(FIRST, 1), Ok(Some(5)));
        let (flags, path) = origins.begin(FIRST).unwrap();
        assert_eq!((flags, path), (open::APPEND | 1, &b"data"[..]));
        assert_eq!(open_again(&mut origins, FILE), Ok(Some(8)));
        assert_eq!(origins.opening(FIRST), None);
        assert_eq!(origins.list(FIRST, 40), Err(Errno::EIO));
        assert_eq!(
            (origins.list(FIRST, 0), origins.list(FIRST, 40)),
            (Ok(()), Ok(()))
        );
        assert_eq!(origins.remove(FIRST), Some((8, 2)));
        assert_eq!(origins.handle(FIRST, 2), Err(Errno::EIO));
    }

    #[test]
    fn another_file_of_that_name_is_not_it() {
        let mut origins = opened();
        let other = Identity { inode: 78, ..FILE };
        assert_eq!(open_again(&mut origins, other), Err(Errno::EIO));
        assert_eq!(origins.handle(FIRST, 1), Err(Errno::EIO), "lost for good");
    }

    #[test]
    fn what_a_boot_may_have_lost_is_lost() {
        let booted = Identity { boot: 10, ..FILE };
        for (changes, synchronises, expected) in [
            (false, false, Ok(Some(8))),
            (true, false, Err(Errno::EIO)),
            (true, true, Ok(Some(8))),
        ] {
            let mut origins = opened();
            if changes {
                origins.change(FIRST);
            }
            if synchronises {
                origins.synchronise(FIRST, origins.changes(FIRST));
            }
            assert_eq!(open_again(&mut origins, booted), expected);
        }
        let mut origins = opened();
        origins.change(FIRST);
        assert_eq!(open_again(&mut origins, FILE), Ok(Some(8)));
    }

    #[test]
    fn what_is_written_while_a_file_is_synchronised_is_not() {
        let booted = Identity { boot: 10, ..FILE };
        // A write is under way when fsync begins, and ends: before that, meanwhile, or behind it.
        for ends_at in 0..3 {
            let mut origins = opened();
            origins.begin_write(FIRST);
            if ends_at == 0 {
                origins.end_write(FIRST);
            }
            let changes = origins.changes(FIRST);
            if ends_at == 1 {
                origins.end_write(FIRST);
            }
            origins.synchronise(FIRST, changes);
            let is_lost = open_again(&mut origins.clone(), booted) == Err(Errno::EIO);
            assert_eq!(is_lost, ends_at > 0);
            if ends_at == 2 {
                origins.end_write(FIRST);
                assert_eq!(open_again(&mut origins, booted), Err(Errno::EIO));
            }
        }
        // It begins meanwhile.
        let mut origins = opened();
        let changes = origins.changes(FIRST);
        origins.begin_write(FIRST);
        origins.end_write(FIRST);
        origins.synchronise(FIRST, changes);
        assert_eq!(open_again(&mut origins, booted), Err(Errno::EIO));
    }

    #[test]
    fn what_was_locked_by_any_descriptor_is_lost() {
        for whole in [false, true] {
            let mut origins = opened();
            let second = shipped(6, 1);
            origins.insert(second, Some(b"./data".to_vec()), 0, FILE);
            origins.lock(second, whole, true);
            let mut freed = origins.clone();
            assert_eq!(open_again(&mut origins, FILE), Err(Errno::EIO));
            // Locks of parts are freed by any of them.
            freed.lock(if whole { second } else { FIRST }, whole, false);
            assert_eq!(open_again(&mut freed, FILE), Ok(Some(8)));
        }
        let mut origins = opened();
        origins.insert(shipped(6, 1), None, 0, FILE);
        origins.lock(FIRST, false, true);
        origins.remove(shipped(6, 1));
        assert_eq!(open_again(&mut origins, FILE), Ok(Some(8)));
    }

    #[test]
    fn paths_go_from_where_the_program_began() {
        let mut origins = opened();
        let directory = shipped(7, 1);
        assert_eq!(origins.path(None, b"a/b"), Some(b"a/b".to_vec()));
        origins.insert(directory, Some(b"a/b".to_vec()), 0, FILE);
        assert_eq!(origins.path(Some(directory), b"c"), Some(b"a/b/c".to_vec()));
        assert_eq!(origins.path(Some(directory), b"/c"), Some(b"/c".to_vec()));
        assert_eq!(origins.path(Some(shipped(99, 1)), b"c"), None);
        assert_eq!(origins.path(None, &[b'x'; PATH_MAX]), None);
        origins.insert(shipped(8, 1), None, 0, FILE);
        assert_eq!(origins.begin(shipped(8, 1)), Err(Errno::EIO), "no path");
    }
}
