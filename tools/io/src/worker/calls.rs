//! What each call does: the same call of this system, on the same kind of file.
//!
//! Invariant: a call waits for a disk at most: not for a pipe, a device or a lock.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, PoisonError};

use netstack::files::{
    Call, FileSystem, LOCK_FROM_END, LOCK_TESTS, Lock, MAX_TRANSFER, Metadata, Op, Reply, WORKING,
};
use netstack::ids::Rank;
use nix::errno::Errno;
use nix::fcntl::{
    self, AtFlags, FallocateFlags, FcntlArg, OFlag, RenameFlags, copy_file_range, openat,
};
use nix::libc;
use nix::sys::stat::{
    self, FchmodatFlags, FileStat, Mode, SFlag, UtimensatFlags, fchmod, fchmodat, fstat, fstatat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{self, AccessFlags, Gid, Uid, UnlinkatFlags, Whence};

use super::handles::{Handles, Open};
use super::writes;

/// Flags that every open has: it neither waits nor makes a terminal ours.
const ALWAYS: OFlag = OFlag::O_CLOEXEC
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_NONBLOCK);
/// Flags that mean something to a program's own memory and signals only.
const NEVER: OFlag = OFlag::O_DIRECT.union(OFlag::O_ASYNC);
/// AT_REMOVEDIR.
const REMOVE_DIRECTORY: u64 = libc::AT_REMOVEDIR as u64;
/// An owner that is to stay (-1).
const SAME: u32 = u32::MAX;

/// Carries out a call of a rank, which has this number. `own_directory`: this thread's working
/// directory is its own.
///
/// # Errors
/// What the system answered.
pub fn carry_out(
    handles: &Handles,
    (rank, number): (Rank, u64),
    call: &Call,
    own_directory: bool,
) -> Result<Reply, Errno> {
    let room = call.room as usize;
    if room > MAX_TRANSFER {
        return Err(Errno::EINVAL);
    }
    let mut reply = carry_out_whole(handles, (rank, number), call, own_directory)?;
    // Nobody gets more than was asked for.
    reply.output.truncate(room);
    Ok(reply)
}

fn carry_out_whole(
    handles: &Handles,
    (rank, number): (Rank, u64),
    call: &Call,
    own_directory: bool,
) -> Result<Reply, Errno> {
    let open = |index: usize| handles.get(rank, call.handles[index]);
    let [first, second, third, fourth] = call.words;
    let done = |()| Reply::plain(0);
    match call.op {
        Op::Open => open_file(handles, rank, call),
        Op::Close => close(handles, rank, call.handles[0]).map(done),
        Op::Read => read(&open(0)?.file, first, call.room),
        Op::Write if fourth != 0 => writes::write_piece(&*open(0)?, number, call),
        Op::Write => write(&*open(0)?, first, &call.input),
        Op::ReadDirectory => read_directory(&*open(0)?, first, call.room),
        Op::Stat => stat_of(&*open(0)?, call).map(|stat| with_output(metadata(&stat).to_bytes())),
        Op::StatFileSystem => file_system(&*open(0)?, call),
        Op::Access => access(&*open(0)?, call).map(done),
        Op::MakeDirectory => stat::mkdirat(&open(0)?.file, path(call)?, mode(first)).map(done),
        Op::Remove => {
            let flag = match first {
                0 => UnlinkatFlags::NoRemoveDir,
                REMOVE_DIRECTORY => UnlinkatFlags::RemoveDir,
                _ => return Err(Errno::EINVAL),
            };
            unistd::unlinkat(&open(0)?.file, path(call)?, flag).map(done)
        }
        Op::Rename => {
            let (from, to) = two_paths(call)?;
            let flags = RenameFlags::from_bits_retain(first as u32);
            fcntl::renameat2(&open(0)?.file, from, &open(1)?.file, to, flags).map(done)
        }
        Op::Link => {
            let (from, to) = two_paths(call)?;
            let flags = at_flags(first);
            unistd::linkat(&open(0)?.file, from, &open(1)?.file, to, flags).map(done)
        }
        Op::SymbolicLink => {
            let (target, path) = two_paths(call)?;
            unistd::symlinkat(target, &open(0)?.file, path).map(done)
        }
        Op::ReadLink => {
            let target = fcntl::readlinkat(&open(0)?.file, path_or_none(call))?;
            let mut target = target.into_vec();
            target.truncate(call.room as usize);
            Ok(with_output(target))
        }
        Op::ChangeMode => change_mode(&*open(0)?, call).map(done),
        Op::ChangeOwner => {
            let user = owner(first).map(Uid::from_raw);
            let group = owner(second).map(Gid::from_raw);
            match call.input.is_empty() {
                true => unistd::fchown(&open(0)?.file, user, group).map(done),
                false => {
                    let flags = at_flags(third);
                    unistd::fchownat(&open(0)?.file, path(call)?, user, group, flags).map(done)
                }
            }
        }
        Op::SetTimes => set_times(&*open(0)?, call).map(done),
        Op::SetLength => set_length(&*open(0)?, first, call).map(done),
        Op::Allocate => {
            let flags = FallocateFlags::from_bits(first as i32).ok_or(Errno::EOPNOTSUPP)?;
            fcntl::fallocate(&open(0)?.file, flags, signed(second)?, signed(third)?).map(done)
        }
        Op::Sync => match first {
            0 => unistd::fsync(&open(0)?.file).map(done),
            _ => unistd::fdatasync(&open(0)?.file).map(done),
        },
        Op::Seek => {
            let whence = match second {
                3 => Whence::SeekData,
                4 => Whence::SeekHole,
                _ => return Err(Errno::EINVAL),
            };
            // A position before the begin is one without data, as ext4 and tmpfs say.
            let from = signed(first).map_err(|_| Errno::ENXIO)?;
            let position = unistd::lseek(&open(0)?.file, from, whence)?;
            Ok(Reply::plain(position))
        }
        Op::Lock => {
            let kind = Lock::from_word(first).ok_or(Errno::EINVAL)?;
            let range = [second, third];
            lock(handles, rank, &open(0)?, kind, range, fourth)
        }
        Op::Copy => copy(&open(0)?.file, &open(1)?.file, [first, second, third]),
        Op::Path => path_of(&*open(0)?, call.room, own_directory),
        Op::SetFlags => {
            let settable = OFlag::O_APPEND | OFlag::O_NONBLOCK;
            let flags = OFlag::from_bits_truncate(first as i32) & settable;
            fcntl::fcntl(&open(0)?.file, FcntlArg::F_SETFL(flags)).map(|_| Reply::plain(0))
        }
    }
}

/// A result of 0 or more bytes of output.
fn with_output(output: Vec<u8>) -> Reply {
    Reply {
        result: output.len() as i64,
        output,
    }
}

fn mode(word: u64) -> Mode {
    Mode::from_bits_truncate(word as u32)
}

fn owner(word: u64) -> Option<u32> {
    Some(word as u32).filter(|id| *id != SAME)
}

fn at_flags(word: u64) -> AtFlags {
    AtFlags::from_bits_truncate(word as i32)
}

pub(super) fn signed(word: u64) -> Result<i64, Errno> {
    i64::try_from(word).map_err(|_| Errno::EINVAL)
}

/// The path of a call that must have one.
fn path(call: &Call) -> Result<&OsStr, Errno> {
    match call.input.is_empty() {
        true => Err(Errno::ENOENT),
        false => Ok(path_or_none(call)),
    }
}

fn path_or_none(call: &Call) -> &OsStr {
    OsStr::from_bytes(&call.input)
}

fn two_paths(call: &Call) -> Result<(&OsStr, &OsStr), Errno> {
    let end = call.input.iter().position(|byte| *byte == 0);
    let (first, second) = call.input.split_at(end.ok_or(Errno::EINVAL)?);
    Ok((OsStr::from_bytes(first), OsStr::from_bytes(&second[1..])))
}

fn open_file(handles: &Handles, rank: Rank, call: &Call) -> Result<Reply, Errno> {
    let room = handles.room(rank)?;
    let directory = handles.get(rank, call.handles[0])?;
    let asked = OFlag::from_bits_retain(call.words[0] as i32);
    let mut flags = asked.difference(NEVER) | ALWAYS;
    if asked.contains(OFlag::O_PATH) {
        flags.remove(OFlag::O_NONBLOCK);
    }
    let descriptor = openat(&directory.file, path(call)?, flags, mode(call.words[1]))?;
    let stat = fstat(&descriptor)?;
    let is_path = asked.contains(OFlag::O_PATH);
    match SFlag::from_bits_truncate(stat.st_mode & SFlag::S_IFMT.bits()) {
        SFlag::S_IFREG | SFlag::S_IFDIR => {}
        _ if is_path => {}
        SFlag::S_IFCHR | SFlag::S_IFBLK => return Err(Errno::EACCES),
        // A pipe or socket of the machine is no way to anybody from a node.
        _ => return Err(Errno::ENXIO),
    }
    let handle = room.fill(descriptor, (stat.st_dev, stat.st_ino))?;
    let mut output = metadata(&stat).to_bytes();
    output.extend(handles.boot.to_le_bytes());
    Ok(Reply {
        result: handle.into(),
        output,
    })
}

fn close(handles: &Handles, rank: Rank, handle: u32) -> Result<(), Errno> {
    if handle == WORKING {
        handles.leave(rank);
        return Ok(());
    }
    let everything = range_of(libc::F_UNLCK, [0, 0], false)?;
    for locker in handles.close(rank, handle)? {
        fcntl::fcntl(&locker.file, FcntlArg::F_OFD_SETLK(&everything))?;
    }
    Ok(())
}

fn read(file: &File, offset: u64, room: u32) -> Result<Reply, Errno> {
    signed(offset)?;
    let mut output = vec![0; room as usize];
    let mut length = 0;
    loop {
        match file.read_at(&mut output[length..], offset + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(_) if length > 0 => break,
            Err(error) => return Err(errno_of(&error)),
        }
        if length == output.len() {
            break;
        }
    }
    output.truncate(length);
    Ok(with_output(output))
}

fn write(open: &Open, offset: u64, input: &[u8]) -> Result<Reply, Errno> {
    signed(offset)?;
    if is_appending(open)? {
        let (written, end) = writes::append(open, input)?;
        return Ok(Reply {
            result: written as i64,
            output: end.to_le_bytes().to_vec(),
        });
    }
    let mut written = 0;
    loop {
        match open
            .file
            .write_at(&input[written..], offset + written as u64)
        {
            Ok(0) => break,
            Ok(more) => written += more,
            Err(_) if written > 0 => break,
            Err(error) => return Err(errno_of(&error)),
        }
        if written == input.len() {
            break;
        }
    }
    Ok(Reply::plain(written as i64))
}

/// Whether what is written goes to the end.
pub(super) fn is_appending(open: &Open) -> Result<bool, Errno> {
    let flags = fcntl::fcntl(&open.file, FcntlArg::F_GETFL)?;
    Ok(OFlag::from_bits_retain(flags).contains(OFlag::O_APPEND))
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

/// Entries from a position on; they are taken down anew whenever somebody reads from the start, so
/// that positions keep their meaning.
fn read_directory(open: &Open, position: u64, room: u32) -> Result<Reply, Errno> {
    let mut listing = open.listing.lock().unwrap_or_else(PoisonError::into_inner);
    if position == 0 {
        listing.read(&open.file)?;
    }
    listing.entries(position, room as usize)
}

fn stat_of(open: &Open, call: &Call) -> Result<FileStat, Errno> {
    match call.input.is_empty() {
        true => fstat(&open.file),
        false => {
            let known = AtFlags::AT_SYMLINK_NOFOLLOW | AtFlags::AT_NO_AUTOMOUNT;
            fstatat(
                &open.file,
                path_or_none(call),
                at_flags(call.words[0]) & known,
            )
        }
    }
}

fn metadata(stat: &FileStat) -> Metadata {
    Metadata {
        device: stat.st_dev,
        inode: stat.st_ino,
        mode: stat.st_mode,
        links: stat.st_nlink as u32,
        user: stat.st_uid,
        group: stat.st_gid,
        special: stat.st_rdev,
        size: stat.st_size as u64,
        block_size: stat.st_blksize as u32,
        blocks: stat.st_blocks as u64,
        accessed: (stat.st_atime, stat.st_atime_nsec as u32),
        modified: (stat.st_mtime, stat.st_mtime_nsec as u32),
        changed: (stat.st_ctime, stat.st_ctime_nsec as u32),
    }
}

/// Opens what a call is about without more rights than to name it.
fn named(open: &Open, call: &Call) -> Result<File, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_CLOEXEC;
    Ok(openat(&open.file, path(call)?, flags, Mode::empty())?.into())
}

fn file_system(open: &Open, call: &Call) -> Result<Reply, Errno> {
    let of = |file: &File| {
        rustix::fs::fstatfs(file).map_err(|errno| Errno::from_raw(errno.raw_os_error()))
    };
    let told = match call.input.is_empty() {
        true => of(&open.file)?,
        false => of(&named(open, call)?)?,
    };
    let told = FileSystem {
        kind: told.f_type as u64,
        block_size: told.f_bsize as u64,
        blocks: [told.f_blocks, told.f_bfree, told.f_bavail],
        files: [told.f_files, told.f_ffree],
        name_max: told.f_namelen as u64,
        fragment_size: told.f_frsize as u64,
        flags: told.f_flags as u64,
    };
    Ok(with_output(told.to_bytes()))
}

fn access(open: &Open, call: &Call) -> Result<(), Errno> {
    let [mode, flags, ..] = call.words;
    let mode = AccessFlags::from_bits(mode as i32).ok_or(Errno::EINVAL)?;
    let known = AtFlags::AT_EACCESS | AtFlags::AT_SYMLINK_NOFOLLOW;
    let mut flags = at_flags(flags) & known | AtFlags::AT_EACCESS;
    if call.input.is_empty() {
        flags |= AtFlags::AT_EMPTY_PATH;
    }
    unistd::faccessat(&open.file, path_or_none(call), mode, flags)
}

fn change_mode(open: &Open, call: &Call) -> Result<(), Errno> {
    let [word, flags, ..] = call.words;
    if call.input.is_empty() {
        return fchmod(&open.file, mode(word));
    }
    if at_flags(flags).contains(AtFlags::AT_SYMLINK_NOFOLLOW) {
        // Linux has no modes of links.
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        let stat = fstatat(&open.file, path_or_none(call), flags)?;
        if stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return Err(Errno::EOPNOTSUPP);
        }
    }
    let follow = FchmodatFlags::FollowSymlink;
    fchmodat(&open.file, path_or_none(call), mode(word), follow)
}

fn set_times(open: &Open, call: &Call) -> Result<(), Errno> {
    let [accessed, modified, nanoseconds, flags] = call.words;
    let accessed = TimeSpec::new(accessed as i64, (nanoseconds as u32).into());
    let modified = TimeSpec::new(modified as i64, (nanoseconds >> 32) as i64);
    if call.input.is_empty() {
        return stat::futimens(&open.file, &accessed, &modified);
    }
    let flag = match at_flags(flags).contains(AtFlags::AT_SYMLINK_NOFOLLOW) {
        true => UtimensatFlags::NoFollowSymlink,
        false => UtimensatFlags::FollowSymlink,
    };
    stat::utimensat(&open.file, path_or_none(call), &accessed, &modified, flag)
}

fn set_length(open: &Open, length: u64, call: &Call) -> Result<(), Errno> {
    let length = signed(length)?;
    if call.input.is_empty() {
        return unistd::ftruncate(&open.file, length);
    }
    let flags = OFlag::O_WRONLY | ALWAYS;
    let file = openat(&open.file, path(call)?, flags, Mode::empty())?;
    unistd::ftruncate(file, length)
}

fn lock(
    handles: &Handles,
    rank: Rank,
    open: &Arc<Open>,
    kind: Lock,
    range: [u64; 2],
    flags: u64,
) -> Result<Reply, Errno> {
    let kind = match kind {
        Lock::WholeRead => return whole(open.file.try_lock_shared()),
        Lock::WholeWrite => return whole(open.file.try_lock()),
        Lock::WholeFree => {
            open.file.unlock().map_err(|error| errno_of(&error))?;
            return Ok(Reply::plain(0));
        }
        Lock::Read => libc::F_RDLCK,
        Lock::Write => libc::F_WRLCK,
        Lock::Free => libc::F_UNLCK,
    };
    let tests = flags & LOCK_TESTS != 0;
    let mut range = range_of(kind, range, flags & LOCK_FROM_END != 0)?;
    let wanted = match kind {
        libc::F_RDLCK => [true, false],
        libc::F_WRLCK => [false, true],
        _ => [false; 2],
    };
    let has = access_of(&open.file)?;
    if !tests && (wanted[0] && !has[0] || wanted[1] && !has[1]) {
        return Err(Errno::EBADF);
    }
    if kind == libc::F_UNLCK {
        let lockers = handles.lockers(rank, open.id);
        let none = lockers.is_empty().then_some(open);
        for locker in lockers.iter().chain(none) {
            fcntl::fcntl(&locker.file, FcntlArg::F_OFD_SETLK(&range))?;
        }
        return Ok(Reply::plain(0));
    }
    // Locks are of open file descriptions: those of different ranks, and those of a rank to
    // itself, are never the same ones.
    let does_both = |file: &File| access_of(file) == Ok([true; 2]);
    let locker = handles.locker(rank, open, does_both);
    if tests {
        fcntl::fcntl(&locker.file, FcntlArg::F_OFD_GETLK(&mut range))?;
        return Ok(match i32::from(range.l_type) {
            libc::F_UNLCK => Reply::plain(0),
            kind => {
                let told = [kind as u64, range.l_start as u64, range.l_len as u64];
                with_output(told.iter().flat_map(|word| word.to_le_bytes()).collect())
            }
        });
    }
    match fcntl::fcntl(&locker.file, FcntlArg::F_OFD_SETLK(&range)) {
        // The rank has locked the file before by one that cannot do this, and may not open one that
        // can: then its locks are in each other's way.
        Err(Errno::EBADF) => {
            handles.lock_through(rank, open);
            fcntl::fcntl(&open.file, FcntlArg::F_OFD_SETLK(&range))
        }
        other => other,
    }?;
    Ok(Reply::plain(0))
}

/// What came of a lock of a whole file.
fn whole(outcome: Result<(), std::fs::TryLockError>) -> Result<Reply, Errno> {
    match outcome {
        Ok(()) => Ok(Reply::plain(0)),
        Err(std::fs::TryLockError::WouldBlock) => Err(Errno::EAGAIN),
        Err(std::fs::TryLockError::Error(error)) => Err(errno_of(&error)),
    }
}

fn range_of(kind: i32, [start, length]: [u64; 2], from_end: bool) -> Result<libc::flock, Errno> {
    let (whence, start, length) = match from_end {
        true => (libc::SEEK_END, start as i64, length as i64),
        false => (libc::SEEK_SET, signed(start)?, signed(length)?),
    };
    Ok(libc::flock {
        l_type: kind as i16,
        l_whence: whence as i16,
        l_start: start,
        l_len: length,
        l_pid: 0,
    })
}

/// Whether a file is open to be read, and to be written.
fn access_of(file: &File) -> Result<[bool; 2], Errno> {
    let flags = fcntl::fcntl(file, FcntlArg::F_GETFL)?;
    if flags & libc::O_PATH != 0 {
        return Ok([false; 2]);
    }
    let mode = flags & libc::O_ACCMODE;
    Ok([mode != libc::O_WRONLY, mode != libc::O_RDONLY])
}

fn copy(from: &File, to: &File, [from_at, to_at, length]: [u64; 3]) -> Result<Reply, Errno> {
    let (mut from_at, mut to_at) = (signed(from_at)?, signed(to_at)?);
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(1 << 30);
    let copied = copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), length)?;
    Ok(Reply::plain(copied as i64))
}

/// The path of an open directory, from the root that the job sees.
fn path_of(open: &Open, room: u32, own_directory: bool) -> Result<Reply, Errno> {
    if !own_directory {
        return Err(Errno::ENOSYS);
    }
    unistd::fchdir(open.file.as_fd())?;
    let path = unistd::getcwd();
    unistd::chdir("/")?;
    let path = CString::new(path?.into_os_string().into_vec()).map_err(|_| Errno::EIO)?;
    match path.count_bytes() <= room as usize {
        true => Ok(with_output(path.into_bytes())),
        false => Err(Errno::ERANGE),
    }
}

#[cfg(test)]
mod tests;
