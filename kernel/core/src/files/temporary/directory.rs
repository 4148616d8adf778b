//! The names of one directory, in the order in which they were made, which is that of a list of it,
//! and in the order of their bytes, by which one is found.
//!
//! Invariant: a name is in both orders, once; who reads the directory while names come and go sees
//! each that is there all the time exactly once.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Ino;
use hearth_abi::errno::Errno;

/// Positions of a list before the first name: those of `.` and `..`.
const FIRST: u64 = 2;

#[derive(Debug)]
struct Entry {
    position: u64,
    name: Box<[u8]>,
    ino: Ino,
}

/// A directory.
#[derive(Debug)]
pub(super) struct Directory {
    /// That it is in; itself where it is the root.
    pub(super) parent: Ino,
    /// By position.
    entries: Vec<Entry>,
    /// Positions, by name.
    names: Vec<u64>,
    next: u64,
}

impl Directory {
    /// Bytes of the lists for each name.
    pub(super) const ENTRY_BYTES: usize = size_of::<Entry>() + size_of::<u64>();

    pub(super) const fn new(parent: Ino) -> Self {
        Self {
            parent,
            entries: Vec::new(),
            names: Vec::new(),
            next: FIRST,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    fn at(&self, position: u64) -> Result<usize, usize> {
        self.entries
            .binary_search_by_key(&position, |entry| entry.position)
    }

    fn entry(&self, position: u64) -> &Entry {
        let index = self.at(position).expect("a name is in both orders");
        &self.entries[index]
    }

    fn place(&self, name: &[u8]) -> Result<usize, usize> {
        self.names
            .binary_search_by(|position| (*self.entry(*position).name).cmp(name))
    }

    /// What has this name.
    pub(super) fn find(&self, name: &[u8]) -> Option<Ino> {
        let place = self.place(name).ok()?;
        Some(self.entry(self.names[place]).ino)
    }

    /// The name of something in here.
    pub(super) fn name_of(&self, ino: Ino) -> Option<&[u8]> {
        let entry = self.entries.iter().find(|entry| entry.ino == ino)?;
        Some(&entry.name)
    }

    /// A new name, which nothing has. ENOSPC where the heap has no room for it.
    pub(super) fn insert(&mut self, name: &[u8], ino: Ino) -> Result<(), Errno> {
        let place = self.place(name).expect_err("nothing has the name");
        let mut own = Vec::new();
        let room = own.try_reserve_exact(name.len());
        let room = room.and_then(|()| self.entries.try_reserve(1));
        let room = room.and_then(|()| self.names.try_reserve(1));
        room.map_err(|_| Errno::ENOSPC)?;
        own.extend_from_slice(name);
        self.entries.push(Entry {
            position: self.next,
            name: own.into_boxed_slice(),
            ino,
        });
        self.names.insert(place, self.next);
        self.next += 1;
        Ok(())
    }

    /// Takes a name away; what had it.
    pub(super) fn remove(&mut self, name: &[u8]) -> Option<Ino> {
        let place = self.place(name).ok()?;
        let position = self.names.remove(place);
        let index = self.at(position).expect("a name is in both orders");
        Some(self.entries.remove(index).ino)
    }

    /// Gives a name to something else; what had it.
    pub(super) fn replace(&mut self, name: &[u8], ino: Ino) -> Option<Ino> {
        let place = self.place(name).ok()?;
        let index = self.at(self.names[place]).expect("in both orders");
        Some(core::mem::replace(&mut self.entries[index].ino, ino))
    }

    /// The first name at a position or behind it, with its position and what has it.
    pub(super) fn from(&self, position: u64) -> Option<(u64, &[u8], Ino)> {
        let (Ok(index) | Err(index)) = self.at(position);
        let entry = self.entries.get(index)?;
        Some((entry.position, &entry.name, entry.ino))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn a_list_goes_on_where_it_was_whatever_comes_and_goes() {
        let mut directory = Directory::new(Ino::ROOT);
        for (number, name) in [b"d", b"b", b"a", b"c"].into_iter().enumerate() {
            directory.insert(name, Ino(number as u32 + 1)).unwrap();
        }
        let (first, name, _) = directory.from(0).unwrap();
        assert_eq!((first, name), (FIRST, &b"d"[..]));
        assert_eq!(directory.remove(b"d"), Some(Ino(1)));
        assert_eq!(directory.remove(b"d"), None);
        directory.insert(b"d", Ino(9)).unwrap();
        let mut seen = Vec::new();
        let mut position = first + 1;
        while let Some((at, name, _)) = directory.from(position) {
            seen.push(name[0]);
            position = at + 1;
        }
        assert_eq!(seen, b"bacd");
        assert_eq!(directory.find(b"a"), Some(Ino(3)));
        assert_eq!(directory.find(b"e"), None);
        assert_eq!(directory.replace(b"a", Ino(5)), Some(Ino(3)));
        assert_eq!(directory.name_of(Ino(5)), Some(&b"a"[..]));
    }
}
