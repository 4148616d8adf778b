//! From a path to a name in a directory, by the rules of path_resolution(7).

use alloc::vec::Vec;

use super::{Body, Ino, Kind, Temporary, Who};
use crate::files::path::{NAME_MAX, PATH_MAX};
use crate::phys::PhysMem;
use hearth_abi::errno::Errno;
use hearth_abi::linux::access;

/// Where the files are.
pub(super) const PATH: &[u8] = b"/tmp";
/// Symbolic links that a path may lead through, as on Linux.
const LINKS_MAX: usize = 40;

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The directory.
    pub directory: Ino,
    /// The name.
    pub name: Vec<u8>,
    /// The path ends in a slash: what has the name must be a directory.
    pub has_slash: bool,
    /// What has the name.
    pub found: Option<Ino>,
}

/// What a call means by the last name of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Last {
    /// The name, which is to be made, taken away or changed.
    Name,
    /// What has the name, a symbolic link too; what that leads to where a slash is behind it.
    Link,
    /// What has the name, or what that leads to.
    Target,
    /// The same, where a file is made if there is nothing: no slash may be behind its name.
    File,
}

/// An entry of a directory: its position, name, inode number and kind.
pub type Entry<'a> = (u64, &'a [u8], u64, Kind);

/// Where a path leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// To a name, which something may have.
    Name(Name),
    /// To a directory without saying its name: by `.` or as the root.
    Directory(Ino),
    /// The same by `..`.
    Parent(Ino),
    /// Out of here, by this absolute path.
    Outside(Vec<u8>),
}

impl Found {
    /// What is there; ENOENT where there is nothing. Not for [`Found::Outside`].
    pub fn there(&self) -> Result<Ino, Errno> {
        match self {
            Self::Name(name) => name.found.ok_or(Errno::ENOENT),
            Self::Directory(ino) | Self::Parent(ino) => Ok(*ino),
            Self::Outside(_) => Err(Errno::ENOENT),
        }
    }
}

/// Whether an absolute path leads to the files here. Only the first name counts.
pub fn is_temporary(path: &[u8]) -> bool {
    let mut names = path.split(|&byte| byte == b'/');
    let first = names.find(|name| !matches!(*name, b"" | b"."));
    path.first() == Some(&b'/') && first == Some(&PATH[1..])
}

impl Temporary {
    /// Follows a path from a directory here; an absolute one is from `/`.
    pub fn walk(
        &self,
        mem: &impl PhysMem,
        from: Ino,
        path: &[u8],
        last: Last,
        who: Who,
    ) -> Result<Found, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        // `None` is `/`.
        let mut at = Some(from).filter(|_| path[0] != b'/');
        let mut rest = path.to_vec();
        let (mut links, mut is_parent) = (0, false);
        loop {
            if rest.len() >= PATH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let begin = rest.iter().position(|byte| *byte != b'/');
            let Some(begin) = begin else {
                return Ok(match at {
                    Some(at) if is_parent => Found::Parent(at),
                    Some(at) => Found::Directory(at),
                    None => Found::Outside(b"/".to_vec()),
                });
            };
            let names = &rest[begin..];
            let end = names.iter().position(|byte| *byte == b'/');
            let (name, behind) = names.split_at(end.unwrap_or(names.len()));
            let kept = behind.len();
            let is_last = behind.iter().all(|byte| *byte == b'/');
            is_parent = name == b"..";
            let Some(directory) = at else {
                match name {
                    b"." | b".." => {}
                    name if name == &PATH[1..] => at = Some(Ino::ROOT),
                    _ => {
                        rest.drain(..begin);
                        rest.insert(0, b'/');
                        return Ok(Found::Outside(rest));
                    }
                }
                rest.drain(..rest.len() - kept);
                continue;
            };
            let inside = self.directory(directory)?;
            self.get(directory).check(who, access::EXECUTE)?;
            if name.len() > NAME_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            let is_named = !matches!(name, b"." | b"..");
            if last == Last::File && is_last && !behind.is_empty() && is_named {
                return Err(Errno::EISDIR);
            }
            let found = match name {
                b"." => Some(directory),
                // Of a directory that was removed the one above may be gone, too.
                b".." if self.get(directory).links == 0 => return Err(Errno::ENOENT),
                b".." => {
                    at = (directory != Ino::ROOT).then_some(inside.parent);
                    rest.drain(..rest.len() - kept);
                    continue;
                }
                name => inside.find(name),
            };
            let has_slash = !behind.is_empty();
            let follows = match last {
                Last::Name => false,
                Last::Link => has_slash,
                Last::Target | Last::File => true,
            };
            match found.map(|ino| (ino, &self.get(ino).body)) {
                None if !is_last => return Err(Errno::ENOENT),
                Some((_, Body::Outside(path))) => {
                    let path = [path, behind].concat();
                    return Ok(Found::Outside(path));
                }
                Some((ino, Body::Link { .. })) if !is_last || follows => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(Errno::ELOOP);
                    }
                    let mut target = self.link_target(mem, ino)?;
                    if target[0] == b'/' {
                        at = None;
                    }
                    target.extend_from_slice(behind);
                    rest = target;
                }
                Some((_, Body::File { .. })) if !is_last || has_slash && last != Last::Name => {
                    return Err(Errno::ENOTDIR);
                }
                Some((ino, Body::Directory(_))) if !is_last || name == b"." => {
                    at = Some(ino);
                    rest.drain(..rest.len() - kept);
                }
                _ => {
                    return Ok(Found::Name(Name {
                        directory,
                        name: name.to_vec(),
                        has_slash,
                        found,
                    }));
                }
            }
        }
    }

    /// The path of a directory. ENOENT where it has no name any more; ENAMETOOLONG where it is as
    /// deep as nobody can name it.
    pub fn path(&self, mut at: Ino) -> Result<Vec<u8>, Errno> {
        let (mut names, mut bytes) = (Vec::new(), PATH.len());
        while at != Ino::ROOT {
            if self.get(at).links == 0 {
                return Err(Errno::ENOENT);
            }
            let parent = self.directory(at)?.parent;
            let name = self.directory(parent)?.name_of(at).ok_or(Errno::ENOENT)?;
            bytes += 1 + name.len();
            if bytes >= PATH_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            names.push(name);
            at = parent;
        }
        let mut path = PATH.to_vec();
        for name in names.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Ok(path)
    }

    /// What a link leads to.
    pub fn link_target(&self, mem: &impl PhysMem, ino: Ino) -> Result<Vec<u8>, Errno> {
        let Body::Link { blocks, bytes } = &self.get(ino).body else {
            return Err(Errno::EINVAL);
        };
        let mut target = alloc::vec![0; *bytes as usize];
        let frame = blocks.frame(mem, 0).expect("a link leads somewhere");
        mem.read(frame, &mut target);
        Ok(target)
    }

    /// The entry of a directory at a position or the first behind it. `.` and `..` come first.
    pub fn entry(&self, ino: Ino, position: u64) -> Result<Option<Entry<'_>>, Errno> {
        let directory = self.directory(ino)?;
        if self.get(ino).links == 0 {
            return Err(Errno::ENOENT);
        }
        let (position, name, ino): (u64, &[u8], Ino) = match position {
            0 => (0, b".", ino),
            1 => (1, b"..", directory.parent),
            position => match directory.from(position) {
                Some(entry) => entry,
                None => return Ok(None),
            },
        };
        let inode = self.get(ino);
        Ok(Some((position, name, inode.number, inode.kind())))
    }
}
