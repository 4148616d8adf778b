//! Shared memory objects: files in the node's memory that a program makes in `/dev/shm`. C
//! libraries keep named semaphores there, and `shm_open` opens them.
//!
//! Key type: [`SharedMemory`], with names, lengths and rights. Neighbours:
//! `crate::program::shared_memory` has the frames; `kernel::process::calls` forgets an object that
//! has no name any more, is not open and not mapped.
//!
//! Invariant: objects, their names and all of their bytes are bounded; an object that has a name is
//! there.

use alloc::vec::Vec;

use super::NAME_MAX;
use crate::addr::PAGE_SIZE;
use hearth_abi::errno::Errno;

/// Objects that a program may have: each named semaphore is one.
pub const OBJECTS_MAX: usize = 256;
/// Names that objects may have: a new semaphore has two for a moment.
const NAMES_MAX: usize = 2 * OBJECTS_MAX;
/// Bytes of all objects, in whole pages. The lists of their frames take 128 KiB of the
/// kernel's heap at most.
pub const BYTES_MAX: u64 = 64 << 20;

/// A shared memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Length in bytes.
    pub bytes: u64,
    /// Rights.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
}

/// The shared memory objects of a program, by number.
#[derive(Clone, Debug, Default)]
pub struct SharedMemory {
    objects: Vec<Option<Object>>,
    /// A name and whose it is. Places stay while names go, for who reads the directory.
    names: Vec<Option<(Vec<u8>, u16)>>,
    /// Objects without a name.
    nameless: u32,
}

impl SharedMemory {
    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.objects.iter().all(Option::is_none)
    }

    /// The object with a number.
    ///
    /// # Panics
    /// Where there is none.
    pub fn object(&self, number: u16) -> &Object {
        let object = self.objects[usize::from(number)].as_ref();
        object.expect("an object that is open or has a name is there")
    }

    fn object_mut(&mut self, number: u16) -> &mut Object {
        let object = self.objects[usize::from(number)].as_mut();
        object.expect("an object that is open or has a name is there")
    }

    /// Number of the object with this name.
    pub fn named(&self, name: &[u8]) -> Option<u16> {
        let mut names = self.names.iter().flatten();
        let found = names.find(|(other, _)| other == name);
        found.map(|(_, number)| *number)
    }

    /// The name at this place of the directory or the first behind it, with its place and whose it
    /// is.
    pub fn entry(&self, place: u64) -> Option<(u64, &[u8], u16)> {
        let first = usize::try_from(place).ok()?;
        let rest = self.names.iter().enumerate().skip(first);
        let mut used = rest.filter_map(|(index, name)| Some((index, name.as_ref()?)));
        let (index, (name, number)) = used.next()?;
        Some((index as u64, name, *number))
    }

    /// A new object, without a byte, with a name that none has. ENOSPC where there are too many.
    pub fn create(&mut self, name: &[u8], mode: u32) -> Result<u16, Errno> {
        let free = self.objects.iter().position(Option::is_none);
        let index = free.unwrap_or(self.objects.len());
        if index >= OBJECTS_MAX {
            return Err(Errno::ENOSPC);
        }
        if index == self.objects.len() {
            self.objects.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            self.objects.push(None);
        }
        let number = index as u16;
        self.put_name(name, number)?;
        self.objects[index] = Some(Object {
            bytes: 0,
            mode,
            links: 1,
        });
        Ok(number)
    }

    /// Another name for an object; EEXIST where it is one already.
    pub fn link(&mut self, number: u16, name: &[u8]) -> Result<(), Errno> {
        if self.named(name).is_some() {
            return Err(Errno::EEXIST);
        }
        self.put_name(name, number)?;
        self.object_mut(number).links += 1;
        Ok(())
    }

    /// Takes a name away.
    pub fn unlink(&mut self, name: &[u8]) -> Result<(), Errno> {
        let is_it = |entry: &Option<(Vec<u8>, u16)>| {
            let other = entry.as_ref().map(|(other, _)| &other[..]);
            other == Some(name)
        };
        let index = self.names.iter().position(is_it).ok_or(Errno::ENOENT)?;
        let (_, number) = self.names[index].take().expect("it was just found");
        let object = self.object_mut(number);
        object.links -= 1;
        if object.links == 0 {
            self.nameless += 1;
        }
        Ok(())
    }

    /// Gives what has one name another, in the place of what has that. Of two names of one object
    /// both stay, as POSIX says.
    pub fn rename(&mut self, from: &[u8], to: &[u8]) -> Result<(), Errno> {
        let number = self.named(from).ok_or(Errno::ENOENT)?;
        match self.named(to) {
            Some(other) if other == number => return Ok(()),
            Some(_) => self.unlink(to)?,
            None => {}
        }
        self.link(number, to)?;
        self.unlink(from)
    }

    /// Sets the rights of an object.
    pub fn set_mode(&mut self, number: u16, mode: u32) {
        self.object_mut(number).mode = mode;
    }

    /// Whether an object may have so many bytes: ENOSPC where all together would have too many.
    pub fn check_length(&self, number: u16, bytes: u64) -> Result<(), Errno> {
        let others = self.objects.iter().enumerate();
        let others = others.filter(|(index, _)| *index != usize::from(number));
        let whole = |bytes: u64| bytes.div_ceil(PAGE_SIZE) * PAGE_SIZE;
        let held: u64 = others.flat_map(|(_, o)| o).map(|o| whole(o.bytes)).sum();
        match bytes <= BYTES_MAX && held + whole(bytes) <= BYTES_MAX {
            true => Ok(()),
            false => Err(Errno::ENOSPC),
        }
    }

    /// Says how long an object is now; that was checked.
    pub fn set_length(&mut self, number: u16, bytes: u64) {
        self.object_mut(number).bytes = bytes;
    }

    /// Objects without a name, which nothing may be able to reach any more.
    pub fn nameless(&self) -> impl Iterator<Item = u16> + '_ {
        let objects = self.objects.iter().enumerate();
        let nameless = objects.filter(|(_, object)| object.is_some_and(|o| o.links == 0));
        let most = self.nameless as usize;
        nameless.take(most).map(|(index, _)| index as u16)
    }

    /// Forgets an object that has no name, is not open and not mapped; its frames are gone.
    pub fn forget(&mut self, number: u16) {
        assert_eq!(self.object(number).links, 0, "an object with a name");
        self.objects[usize::from(number)] = None;
        self.nameless -= 1;
    }

    fn put_name(&mut self, name: &[u8], number: u16) -> Result<(), Errno> {
        debug_assert!(self.named(name).is_none() && name.len() <= NAME_MAX);
        let free = self.names.iter().position(Option::is_none);
        let index = free.unwrap_or(self.names.len());
        if index >= NAMES_MAX {
            return Err(Errno::ENOSPC);
        }
        let mut own = Vec::new();
        let room = own.try_reserve_exact(name.len());
        let room = room.and_then(|()| self.names.try_reserve(1));
        room.map_err(|_| Errno::ENOMEM)?;
        own.extend_from_slice(name);
        if index == self.names.len() {
            self.names.push(None);
        }
        self.names[index] = Some((own, number));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_goes_with_its_last_name_and_user() {
        let mut shared = SharedMemory::default();
        let number = shared.create(b"sem.x", 0o600).unwrap();
        assert_eq!(shared.named(b"sem.x"), Some(number));
        shared.link(number, b"sem.y").unwrap();
        assert_eq!(shared.link(number, b"sem.y"), Err(Errno::EEXIST));
        shared.unlink(b"sem.x").unwrap();
        assert_eq!(shared.unlink(b"sem.x"), Err(Errno::ENOENT));
        assert_eq!(shared.nameless().count(), 0);
        assert_eq!(shared.entry(0), Some((1, &b"sem.y"[..], number)));
        shared.unlink(b"sem.y").unwrap();
        assert_eq!(shared.nameless().collect::<Vec<_>>(), [number]);
        // It is open or mapped: its number is no other's.
        assert_ne!(shared.create(b"sem.x", 0o600).unwrap(), number);
        shared.forget(number);
        assert_eq!(shared.nameless().count(), 0);
        assert_eq!(shared.create(b"sem.z", 0o600).unwrap(), number);
    }

    #[test]
    fn renaming_replaces_what_was_there() {
        let mut shared = SharedMemory::default();
        let first = shared.create(b"a", 0).unwrap();
        let second = shared.create(b"b", 0).unwrap();
        shared.rename(b"a", b"b").unwrap();
        assert_eq!(
            (shared.named(b"a"), shared.named(b"b")),
            (None, Some(first))
        );
        assert_eq!(shared.nameless().collect::<Vec<_>>(), [second]);
        shared.link(first, b"c").unwrap();
        shared.rename(b"b", b"c").unwrap();
        assert_eq!(shared.named(b"b"), Some(first));
        assert_eq!(shared.rename(b"none", b"c"), Err(Errno::ENOENT));
    }

    #[test]
    fn objects_and_bytes_are_bounded() {
        let mut shared = SharedMemory::default();
        for number in 0..OBJECTS_MAX {
            let name = [number as u8];
            assert_eq!(shared.create(&name, 0), Ok(number as u16));
        }
        assert_eq!(shared.create(b"more", 0), Err(Errno::ENOSPC));
        assert_eq!(shared.named(b"more"), None);
        shared.check_length(0, BYTES_MAX).unwrap();
        assert_eq!(shared.check_length(0, BYTES_MAX + 1), Err(Errno::ENOSPC));
        assert_eq!(shared.check_length(0, u64::MAX), Err(Errno::ENOSPC));
        shared.set_length(0, BYTES_MAX - 1);
        assert_eq!(shared.check_length(1, 1), Err(Errno::ENOSPC));
        shared.check_length(0, 0).unwrap();
        shared.set_length(0, BYTES_MAX - PAGE_SIZE);
        shared.check_length(1, 1).unwrap();
    }
}
