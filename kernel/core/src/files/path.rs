//! From a path to a place, by the rules of path_resolution(7).

use super::{Files, NodeFile, Place};
use hearth_abi::errno::Errno;

/// Longest path with its zero byte, as on Linux.
pub const PATH_MAX: usize = 4096;
/// Longest name in a path, as on Linux.
pub const NAME_MAX: usize = 255;
/// Where the files are.
const WITH: &[u8] = b"with";

/// Directories below `/` that every node has for itself.
const OF_NODE: [&[u8]; 4] = [WITH, b"dev", b"proc", b"sys"];

/// Whether an absolute path leads to what the node itself has, also where the job's files are
/// those of an I/O service. Only the first name counts: links and `..` are the service's affair.
pub fn is_of_node(path: &[u8]) -> bool {
    let mut names = path.split(|&byte| byte == b'/');
    let first = names.find(|name| !matches!(*name, b"" | b"."));
    path.first() == Some(&b'/') && first.is_some_and(|first| OF_NODE.contains(&first))
}

/// What is at the end of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found<'p> {
    There(Place),
    /// Nothing, in a directory that is there.
    Absent,
    /// Nothing, in the directory of shared memory objects: one may be made with this name.
    New(&'p [u8]),
}

/// Follows a path from the directory `from`; the path is without its zero byte.
pub(super) fn walk<'p>(files: &Files, from: Place, path: &'p [u8]) -> Result<Found<'p>, Errno> {
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    if path.len() >= PATH_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if let Some(file) = NodeFile::at(path) {
        return Ok(Found::There(Place::Node(file)));
    }
    let mut before = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    if before.any(|(at, _)| NodeFile::at(&path[..at]).is_some()) {
        return Err(Errno::ENOTDIR);
    }
    let in_shared = path.strip_prefix(Place::SHARED_PATH);
    let in_shared = in_shared.filter(|rest| matches!(rest.first(), None | Some(b'/')));
    let (mut at, path) = match (in_shared, path[0]) {
        (Some(rest), _) => (Found::There(Place::SharedDirectory), rest),
        (None, b'/') => (Found::There(Place::Root), path),
        (None, _) => (Found::There(from), path),
    };
    for name in path.split(|&byte| byte == b'/') {
        let place = match at {
            Found::There(place) => place,
            // `absent/` is a directory to be made; `absent/more` is in no directory.
            Found::Absent if name.is_empty() => continue,
            // What is made there is no directory.
            Found::New(_) if name.is_empty() => return Err(Errno::ENOTDIR),
            Found::Absent | Found::New(_) => return Err(Errno::ENOENT),
        };
        if !place.is_directory() {
            return Err(Errno::ENOTDIR);
        }
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        at = match (place, name) {
            (_, b"" | b".") => at,
            // The parent of `/` is itself.
            (_, b"..") => Found::There(Place::Root),
            (Place::Root, WITH) => Found::There(Place::With),
            (Place::With, name) => match files.named(name) {
                Some(number) => Found::There(Place::File(number)),
                None => Found::Absent,
            },
            (Place::SharedDirectory, name) => match files.shared.named(name) {
                Some(number) => Found::There(Place::SharedMemory(number)),
                None => Found::New(name),
            },
            _ => Found::Absent,
        };
    }
    Ok(at)
}
