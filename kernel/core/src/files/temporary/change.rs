//! What changes names, rights and times, and opening, which may make a file.
//!
//! Invariant: a change is whole or has not happened; a directory is in one directory, and never
//! below itself.

use super::blocks::Blocks;
use super::{Body, Directory, Found, Ino, Kind, Last, Name, OpenId, Temporary, Time, Who};
use crate::files::path::PATH_MAX;
use crate::program::Machine;
use hearth_abi::errno::Errno;
use hearth_abi::linux::{access, open, rename};

/// Rights of a directory in which only owners remove names, and of one that hands its group on.
const STICKY: u32 = 0o1000;
const SET_GROUP: u32 = 0o2000;
const SET_BOTH: u32 = 0o6000;

/// What open asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    /// Flags of open.
    pub flags: u64,
    /// Rights of a file that it makes.
    pub mode: u32,
}

impl Open {
    /// Whether it makes a file that has no name.
    pub fn is_nameless(&self) -> bool {
        self.flags & open::TMPFILE == open::TMPFILE
    }

    /// What open means by the last name of its path.
    pub fn last(&self, path: &[u8]) -> Last {
        let creates = self.flags & open::CREATE != 0;
        let is_new = self.flags & open::EXCLUSIVE != 0 || path.last() == Some(&b'/');
        match self.flags & open::NO_FOLLOW {
            _ if creates && is_new => Last::Name,
            0 if creates => Last::File,
            0 => Last::Target,
            _ => Last::Link,
        }
    }
}

/// What utimensat does with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// Nothing.
    Kept,
    /// It is now.
    Now,
    /// It is this.
    Given(Time),
}

/// Bits of access that flags of open need.
const fn wanted(flags: u64) -> u64 {
    let writes = flags & open::TRUNCATE != 0;
    match flags & open::ACCESS_MODE {
        open::READ_ONLY if writes => access::READ | access::WRITE,
        open::READ_ONLY => access::READ,
        open::WRITE_ONLY => access::WRITE,
        _ => access::READ | access::WRITE,
    }
}

impl Temporary {
    /// open: makes what is to be made. The file is to be closed.
    pub fn open<M: Machine>(
        &mut self,
        machine: &mut M,
        found: &Found,
        asked: Open,
        who: Who,
        now: Time,
    ) -> Result<OpenId, Errno> {
        let Open { flags, mode } = asked;
        let creates = flags & open::CREATE != 0;
        if creates && flags & open::DIRECTORY != 0 {
            return Err(Errno::EINVAL);
        }
        if asked.is_nameless() {
            return self.open_nameless(found.there()?, asked, who, now);
        }
        let ino = match found {
            Found::Name(name) if name.found.is_none() => {
                if !creates {
                    return Err(Errno::ENOENT);
                }
                if name.has_slash {
                    return Err(Errno::EISDIR);
                }
                let body = Body::File {
                    blocks: Blocks::default(),
                    bytes: 0,
                };
                let made = self.make(name, body, mode, who, now)?;
                return self.open_inode(made);
            }
            Found::Name(name) if creates && name.has_slash => return Err(Errno::EISDIR),
            found => found.there()?,
        };
        if creates && flags & open::EXCLUSIVE != 0 {
            return Err(Errno::EEXIST);
        }
        let kind = self.kind(ino);
        if flags & open::DIRECTORY != 0 && kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if flags & open::PATH != 0 {
            return self.open_inode(ino);
        }
        let wanted = wanted(flags);
        match kind {
            // It would have been followed.
            Kind::Link => return Err(Errno::ELOOP),
            Kind::Directory if creates || wanted & access::WRITE != 0 => return Err(Errno::EISDIR),
            Kind::Directory | Kind::File => {}
        }
        self.access(ino, who, wanted)?;
        let opened = self.open_inode(ino)?;
        if flags & open::TRUNCATE != 0 {
            self.set_length(machine, ino, 0, now)?;
        }
        Ok(opened)
    }

    /// A file that has no name, on the file system of a directory.
    fn open_nameless(
        &mut self,
        directory: Ino,
        Open { flags, mode }: Open,
        who: Who,
        now: Time,
    ) -> Result<OpenId, Errno> {
        if self.kind(directory) != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        if flags & open::ACCESS_MODE == open::READ_ONLY {
            return Err(Errno::EINVAL);
        }
        self.access(directory, who, access::WRITE | access::EXECUTE)?;
        let body = Body::File {
            blocks: Blocks::default(),
            bytes: 0,
        };
        let ino = self.insert(body, mode, who, now)?;
        self.open_inode(ino)
    }

    /// mkdir.
    pub fn make_directory(
        &mut self,
        found: &Found,
        mode: u32,
        who: Who,
        now: Time,
    ) -> Result<(), Errno> {
        let name = new_name(found)?;
        let mut mode = mode;
        mode |= self.get(name.directory).mode & SET_GROUP;
        let body = Body::Directory(Directory::new(name.directory));
        self.make(name, body, mode, who, now)?;
        Ok(())
    }

    /// symlink.
    pub fn make_link<M: Machine>(
        &mut self,
        machine: &mut M,
        target: &[u8],
        found: &Found,
        who: Who,
        now: Time,
    ) -> Result<(), Errno> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        // It has one frame.
        if target.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let name = new_name(found)?;
        if name.has_slash {
            return Err(Errno::ENOENT);
        }
        let mut blocks = Blocks::default();
        let frame = blocks.make(machine, &mut self.quota, 0)?;
        crate::phys::PhysMem::write(machine.mem(), frame, target);
        let bytes = target.len() as u64;
        let body = Body::Link { blocks, bytes };
        let made = self.make(name, body, 0o777, who, now);
        if made.is_err() {
            // The body is gone; its frame was counted and is found by nobody else.
            machine.with(|_, frames| frames.free(crate::frames::Frame::from_entry(frame)));
            self.quota.used -= 1;
        }
        made.map(drop)
    }

    /// link: another name for a file.
    pub fn link(&mut self, from: &Found, to: &Found, who: Who, now: Time) -> Result<(), Errno> {
        let ino = from.there()?;
        let name = new_name(to)?;
        if name.has_slash {
            return Err(Errno::ENOENT);
        }
        if self.kind(ino) == Kind::Directory {
            return Err(Errno::EPERM);
        }
        if self.get(ino).links == 0 {
            return Err(Errno::ENOENT);
        }
        self.may_change(name.directory, who)?;
        self.put_name(name.directory, &name.name, ino, now)?;
        let inode = self.get_mut(ino);
        inode.links += 1;
        inode.changed(now);
        Ok(())
    }

    /// unlink, and of a directory rmdir.
    pub fn remove<M: Machine>(
        &mut self,
        machine: &mut M,
        found: &Found,
        is_directory: bool,
        who: Who,
        now: Time,
    ) -> Result<(), Errno> {
        let name = match found {
            Found::Name(name) => name,
            Found::Directory(_) | Found::Parent(_) if !is_directory => return Err(Errno::EISDIR),
            Found::Parent(_) => return Err(Errno::ENOTEMPTY),
            Found::Directory(Ino::ROOT) => return Err(Errno::EBUSY),
            Found::Directory(_) | Found::Outside(_) => return Err(Errno::EINVAL),
        };
        let ino = name.found.ok_or(Errno::ENOENT)?;
        self.may_remove(name.directory, ino, who)?;
        match (self.kind(ino), is_directory) {
            (Kind::Directory, false) => return Err(Errno::EISDIR),
            (Kind::File | Kind::Link, is) if is || name.has_slash => return Err(Errno::ENOTDIR),
            (Kind::Directory, true) if self.directory(ino)?.len() > 0 => {
                return Err(Errno::ENOTEMPTY);
            }
            _ => {}
        }
        self.directory_mut(name.directory).remove(&name.name);
        self.names -= 1;
        self.get_mut(name.directory).modified(now);
        self.lose_name(machine, ino, name.directory, now);
        Ok(())
    }

    /// rename, renameat2.
    pub fn rename<M: Machine>(
        &mut self,
        machine: &mut M,
        [from, to]: [&Found; 2],
        flags: u64,
        who: Who,
        now: Time,
    ) -> Result<(), Errno> {
        let (Found::Name(from), Found::Name(to)) = (from, to) else {
            return Err(Errno::EBUSY);
        };
        let ino = from.found.ok_or(Errno::ENOENT)?;
        let exchanges = flags & rename::EXCHANGE != 0;
        if exchanges && flags & rename::NOREPLACE != 0 {
            return Err(Errno::EINVAL);
        }
        if to.found.is_some() && flags & rename::NOREPLACE != 0 {
            return Err(Errno::EEXIST);
        }
        if exchanges && to.found.is_none() {
            return Err(Errno::ENOENT);
        }
        let is_directory = self.kind(ino) == Kind::Directory;
        if !is_directory && (from.has_slash || to.has_slash && !exchanges) {
            return Err(Errno::ENOTDIR);
        }
        self.may_move(from, to, ino, who)?;
        if to
            .found
            .is_some_and(|other| self.is_above(other, from.directory))
        {
            return Err(match exchanges {
                true => Errno::EINVAL,
                false => Errno::ENOTEMPTY,
            });
        }
        match to.found {
            Some(other) => self.may_remove(to.directory, other, who)?,
            None => self.may_change(to.directory, who)?,
        }
        match to.found {
            // Names of one file: both stay.
            Some(other) if other == ino => return Ok(()),
            Some(other) if exchanges => {
                let back = Name {
                    found: Some(ino),
                    ..from.clone()
                };
                self.may_move(to, &back, other, who)?;
                self.directory_mut(from.directory)
                    .replace(&from.name, other);
                self.directory_mut(to.directory).replace(&to.name, ino);
                self.moved(other, to.directory, from.directory, now);
            }
            Some(other) => {
                match (is_directory, self.kind(other) == Kind::Directory) {
                    (true, false) => return Err(Errno::ENOTDIR),
                    (false, true) => return Err(Errno::EISDIR),
                    (true, true) if self.directory(other)?.len() > 0 => {
                        return Err(Errno::ENOTEMPTY);
                    }
                    _ => {}
                }
                self.directory_mut(to.directory).replace(&to.name, ino);
                self.directory_mut(from.directory).remove(&from.name);
                self.names -= 1;
                self.lose_name(machine, other, to.directory, now);
            }
            None => {
                self.put_name(to.directory, &to.name, ino, now)?;
                self.directory_mut(from.directory).remove(&from.name);
                self.names -= 1;
            }
        }
        self.moved(ino, from.directory, to.directory, now);
        self.get_mut(from.directory).modified(now);
        self.get_mut(to.directory).modified(now);
        Ok(())
    }

    /// Whether something may leave its directory for another.
    fn may_move(&self, from: &Name, to: &Name, ino: Ino, who: Who) -> Result<(), Errno> {
        self.may_remove(from.directory, ino, who)?;
        if self.kind(ino) != Kind::Directory || from.directory == to.directory {
            return Ok(());
        }
        if self.is_above(ino, to.directory) {
            return Err(Errno::EINVAL);
        }
        // What it says of the directory above changes.
        self.access(ino, who, access::WRITE)
    }

    /// Whether something is a directory, or one above it.
    fn is_above(&self, ino: Ino, directory: Ino) -> bool {
        let mut at = directory;
        // One that was removed is below nothing.
        while at != ino && at != Ino::ROOT && self.get(at).links > 0 {
            at = self.directory(at).map_or(Ino::ROOT, |at| at.parent);
        }
        at == ino
    }

    /// Something is in another directory now, or has another name.
    fn moved(&mut self, ino: Ino, from: Ino, to: Ino, now: Time) {
        let inode = self.get_mut(ino);
        inode.changed(now);
        if let Body::Directory(directory) = &mut inode.body {
            directory.parent = to;
            self.get_mut(from).links -= 1;
            self.get_mut(to).links += 1;
        }
    }

    /// chmod.
    pub fn set_mode(&mut self, ino: Ino, mode: u32, who: Who, now: Time) -> Result<(), Errno> {
        let inode = self.get_mut(ino);
        if who.user != 0 && who.user != inode.owner[0] {
            return Err(Errno::EPERM);
        }
        if inode.kind() == Kind::Link {
            return Err(Errno::EOPNOTSUPP);
        }
        inode.mode = mode & 0o7777;
        inode.changed(now);
        Ok(())
    }

    /// chown: `u32::MAX` stays what it was.
    pub fn set_owner(&mut self, ino: Ino, new: [u32; 2], who: Who, now: Time) -> Result<(), Errno> {
        let inode = self.get_mut(ino);
        let [user, group] = inode.owner;
        let is_own = who.user == user && [u32::MAX, user].contains(&new[0]);
        let may = is_own && [u32::MAX, group, who.group].contains(&new[1]);
        if who.user != 0 && !may {
            return Err(Errno::EPERM);
        }
        for (old, new) in inode.owner.iter_mut().zip(new) {
            if new != u32::MAX {
                *old = new;
            }
        }
        if inode.kind() == Kind::File {
            inode.mode &= !SET_BOTH;
        }
        inode.changed(now);
        Ok(())
    }

    /// utimensat: of the last access and of the last change.
    pub fn set_times(
        &mut self,
        ino: Ino,
        new: [NewTime; 2],
        who: Who,
        now: Time,
    ) -> Result<(), Errno> {
        let is_owner = who.user == 0 || who.user == self.get(ino).owner[0];
        match new {
            [NewTime::Kept, NewTime::Kept] => return Ok(()),
            [NewTime::Now, NewTime::Now] if !is_owner => self.access(ino, who, access::WRITE)?,
            _ if !is_owner => return Err(Errno::EPERM),
            _ => {}
        }
        let inode = self.get_mut(ino);
        for (time, new) in inode.times.iter_mut().zip(new) {
            match new {
                NewTime::Kept => {}
                NewTime::Now => *time = now,
                NewTime::Given(given) => *time = given,
            }
        }
        inode.changed(now);
        Ok(())
    }

    /// What has a new name in a directory.
    fn make(
        &mut self,
        name: &Name,
        body: Body,
        mode: u32,
        who: Who,
        now: Time,
    ) -> Result<Ino, Errno> {
        self.may_change(name.directory, who)?;
        let directory = self.get(name.directory);
        let group = match directory.mode & SET_GROUP {
            0 => who.group,
            _ => directory.owner[1],
        };
        let owner = Who { group, ..who };
        self.make_in(name.directory, &name.name, body, mode, owner, now)
    }

    pub(super) fn make_in(
        &mut self,
        directory: Ino,
        name: &[u8],
        body: Body,
        mode: u32,
        who: Who,
        now: Time,
    ) -> Result<Ino, Errno> {
        let is_directory = matches!(body, Body::Directory(_));
        let ino = self.insert(body, mode, who, now)?;
        if let Err(errno) = self.put_name(directory, name, ino, now) {
            // It has no frames.
            self.inodes[ino.0 as usize] = None;
            self.free_from = self.free_from.min(ino.0 as usize);
            self.used -= 1;
            return Err(errno);
        }
        self.get_mut(ino).links = 1 + u32::from(is_directory);
        self.get_mut(directory).links += u32::from(is_directory);
        Ok(ino)
    }

    pub(super) fn make_directory_in(
        &mut self,
        directory: Ino,
        name: &[u8],
        mode: u32,
        who: Who,
        now: Time,
    ) -> Result<Ino, Errno> {
        let body = Body::Directory(Directory::new(directory));
        self.make_in(directory, name, body, mode, who, now)
    }

    fn put_name(&mut self, to: Ino, name: &[u8], ino: Ino, now: Time) -> Result<(), Errno> {
        if self.get(to).links == 0 {
            return Err(Errno::ENOENT);
        }
        if self.names >= self.inodes_max {
            return Err(Errno::ENOSPC);
        }
        self.directory_mut(to).insert(name, ino)?;
        self.names += 1;
        self.get_mut(to).modified(now);
        Ok(())
    }

    /// A name of something is gone from a directory.
    fn lose_name<M: Machine>(&mut self, machine: &mut M, ino: Ino, from: Ino, now: Time) {
        let inode = self.get_mut(ino);
        inode.changed(now);
        match inode.body {
            Body::Directory(_) => {
                inode.links = 0;
                self.get_mut(from).links -= 1;
            }
            _ => inode.links -= 1,
        }
        self.forget_unused(machine, ino);
    }

    fn may_change(&self, directory: Ino, who: Who) -> Result<(), Errno> {
        self.access(directory, who, access::WRITE | access::EXECUTE)
    }

    /// Whether somebody may take a name of something away.
    fn may_remove(&self, directory: Ino, ino: Ino, who: Who) -> Result<(), Errno> {
        self.may_change(directory, who)?;
        let (directory, inode) = (self.get(directory), self.get(ino));
        if matches!(inode.body, Body::Outside(_)) {
            return Err(Errno::EBUSY);
        }
        let owners = [0, directory.owner[0], inode.owner[0]];
        match directory.mode & STICKY != 0 && !owners.contains(&who.user) {
            true => Err(Errno::EPERM),
            false => Ok(()),
        }
    }
}

/// The name that something new is to have: EEXIST where something has it.
fn new_name(found: &Found) -> Result<&Name, Errno> {
    match found {
        Found::Name(name) if name.found.is_none() => Ok(name),
        Found::Name(_) | Found::Directory(_) | Found::Parent(_) => Err(Errno::EEXIST),
        Found::Outside(_) => Err(Errno::EXDEV),
    }
}
