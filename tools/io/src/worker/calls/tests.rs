//! Each call beside the same call of the system: one directory is changed by the worker, its twin
//! directly, and what is answered and what is there afterwards must be the same.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use netstack::files::WORKING;
use nix::errno::Errno;
use nix::unistd::lseek;

use super::*;
use crate::worker::handles::MOST;

const RANK: Rank = Rank(1);
const RDONLY: u64 = libc::O_RDONLY as u64;
const WRONLY: u64 = libc::O_WRONLY as u64;
const RDWR: u64 = libc::O_RDWR as u64;
const CREAT: u64 = libc::O_CREAT as u64;
const EXCL: u64 = libc::O_EXCL as u64;
const TRUNC: u64 = libc::O_TRUNC as u64;
const APPEND: u64 = libc::O_APPEND as u64;
const DIRECTORY: u64 = libc::O_DIRECTORY as u64;
const NOFOLLOW: u64 = libc::O_NOFOLLOW as u64;
const PATH: u64 = libc::O_PATH as u64;
const NOFOLLOW_AT: u64 = libc::AT_SYMLINK_NOFOLLOW as u64;

/// A worker's open files above a directory of their own.
struct Worker {
    handles: Handles,
    folder: tempfile::TempDir,
}

fn open_directory(path: &Path) -> File {
    File::open(path).expect("a directory")
}

impl Worker {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let own = open_directory(Path::new("/proc/self/fd"));
        let handles = Handles::new(open_directory(folder.path()).into(), 1, own.into());
        Self { handles, folder }
    }

    fn call_as(&self, rank: Rank, call: &Call) -> Result<Reply, Errno> {
        carry_out(&self.handles, (rank, 1), call, false)
    }

    fn call(&self, call: &Call) -> Result<Reply, Errno> {
        self.call_as(RANK, call)
    }

    fn open_as(&self, rank: Rank, path: &str, flags: u64) -> Result<u32, Errno> {
        let call = Call::new(Op::Open, WORKING).with_words([flags, 0o640]);
        let call = call.with_input(path.into()).with_room(200);
        let reply = self.call_as(rank, &call)?;
        Ok(u32::try_from(reply.result).expect("a handle"))
    }

    fn open(&self, path: &str, flags: u64) -> u32 {
        self.open_as(RANK, path, flags).expect("opened")
    }

    fn write(&self, handle: u32, offset: u64, bytes: &[u8]) -> Result<Reply, Errno> {
        let call = Call::new(Op::Write, handle).with_words([offset]);
        self.call(&call.with_input(bytes.to_vec()).with_room(8))
    }

    fn read(&self, handle: u32, offset: u64, room: usize) -> Result<Vec<u8>, Errno> {
        let call = Call::new(Op::Read, handle).with_words([offset]);
        self.call(&call.with_room(room)).map(|reply| reply.output)
    }
}

/// What is in a directory: kind and permissions, links, length, and what it says.
fn picture(folder: &Path) -> BTreeMap<String, (u32, u64, u64, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).expect("a directory") {
            let path = entry.expect("an entry").path();
            let metadata = path.symlink_metadata().expect("metadata");
            let says = match metadata.file_type() {
                kind if kind.is_symlink() => {
                    let target = std::fs::read_link(&path).expect("a link");
                    target.into_os_string().into_vec()
                }
                kind if kind.is_file() => std::fs::read(&path).expect("bytes"),
                _ => Vec::new(),
            };
            if metadata.is_dir() {
                folders.push(path.clone());
            }
            let name = path.strip_prefix(folder).expect("inside");
            let size = if metadata.is_dir() { 0 } else { metadata.len() };
            let seen = (metadata.mode(), metadata.nlink(), size, says);
            all.insert(name.display().to_string(), seen);
        }
    }
    all
}

type Direct = Box<dyn Fn(&File) -> Result<i64, Errno>>;

fn step(call: Call, direct: impl Fn(&File) -> Result<i64, Errno> + 'static) -> (Call, Direct) {
    (call, Box::new(direct))
}

fn unit(outcome: Result<(), Errno>) -> Result<i64, Errno> {
    outcome.map(|()| 0)
}

fn on(op: Op, words: [u64; 4], input: &str) -> Call {
    Call::new(op, WORKING)
        .with_words(words)
        .with_input(input.into())
        .with_room(4_000)
}

fn open_twin(flags: u64, path: &'static str) -> (Call, Direct) {
    step(on(Op::Open, [flags, 0o640, 0, 0], path), move |twin| {
        let flags = OFlag::from_bits_retain(flags as i32) | OFlag::O_CLOEXEC;
        openat(twin, path, flags, Mode::from_bits_truncate(0o640)).map(|_| 0)
    })
}

fn make(path: &'static str, word: u32) -> (Call, Direct) {
    let call = on(Op::MakeDirectory, [word.into(), 0, 0, 0], path);
    step(call, move |twin| {
        unit(stat::mkdirat(twin, path, Mode::from_bits_truncate(word)))
    })
}

fn remove(path: &'static str, directory: bool) -> (Call, Direct) {
    let (word, flag) = match directory {
        true => (REMOVE_DIRECTORY, UnlinkatFlags::RemoveDir),
        false => (0, UnlinkatFlags::NoRemoveDir),
    };
    step(on(Op::Remove, [word, 0, 0, 0], path), move |twin| {
        unit(unistd::unlinkat(twin, path, flag))
    })
}

fn rename(flags: u32, from: &'static str, to: &'static str) -> (Call, Direct) {
    let call = on(
        Op::Rename,
        [flags.into(), 0, 0, 0],
        &format!("{from}\0{to}"),
    );
    step(call, move |twin| {
        let flags = RenameFlags::from_bits_retain(flags);
        unit(fcntl::renameat2(twin, from, twin, to, flags))
    })
}

fn link(flags: AtFlags, from: &'static str, to: &'static str) -> (Call, Direct) {
    let words = [flags.bits() as u64, 0, 0, 0];
    step(on(Op::Link, words, &format!("{from}\0{to}")), move |twin| {
        unit(unistd::linkat(twin, from, twin, to, flags))
    })
}

fn symbolic(target: &'static str, path: &'static str) -> (Call, Direct) {
    let call = on(Op::SymbolicLink, [0; 4], &format!("{target}\0{path}"));
    step(call, move |twin| {
        unit(unistd::symlinkat(target, twin, path))
    })
}

fn set_mode(word: u32, flags: u64, path: &'static str) -> (Call, Direct) {
    let call = on(Op::ChangeMode, [word.into(), flags, 0, 0], path);
    step(call, move |twin| {
        let flags = match flags {
            0 => FchmodatFlags::FollowSymlink,
            _ => FchmodatFlags::NoFollowSymlink,
        };
        let mode = Mode::from_bits_truncate(word);
        unit(fchmodat(twin, path, mode, flags))
    })
}

fn length(bytes: u64, path: &'static str) -> (Call, Direct) {
    step(on(Op::SetLength, [bytes, 0, 0, 0], path), move |twin| {
        let directory = std::fs::read_link(format!("/proc/self/fd/{}", twin.as_raw_fd()));
        let path = directory.expect("a path").join(path);
        unit(unistd::truncate(&path, bytes as i64))
    })
}

fn may(word: i32, path: &'static str) -> (Call, Direct) {
    step(on(Op::Access, [word as u64, 0, 0, 0], path), move |twin| {
        let mode = AccessFlags::from_bits_truncate(word);
        unit(unistd::faccessat(twin, path, mode, AtFlags::AT_EACCESS))
    })
}

fn look(flags: u64, path: &'static str) -> (Call, Direct) {
    step(on(Op::Stat, [flags, 0, 0, 0], path), move |twin| {
        fstatat(twin, path, AtFlags::from_bits_truncate(flags as i32)).map(|stat| stat.st_size)
    })
}

fn read_link(path: &'static str) -> (Call, Direct) {
    step(on(Op::ReadLink, [0; 4], path), move |twin| {
        fcntl::readlinkat(twin, path).map(|target| target.len() as i64)
    })
}

fn give(user: u64, path: &'static str) -> (Call, Direct) {
    let same = u64::from(u32::MAX);
    let call = on(Op::ChangeOwner, [user, same, NOFOLLOW_AT, 0], path);
    step(call, move |twin| {
        let flags = AtFlags::AT_SYMLINK_NOFOLLOW;
        let user = owner(user).map(Uid::from_raw);
        unit(unistd::fchownat(twin, path, user, None, flags))
    })
}

/// A name that is longer than any may be.
fn long_name() -> &'static str {
    String::leak("n".repeat(256))
}

/// A path that is longer than any may be.
fn long_path() -> &'static str {
    String::leak("./".repeat(2_048) + "a")
}

fn steps() -> Vec<(Call, Direct)> {
    let own = u64::from(unistd::geteuid().as_raw());
    vec![
        make("d", 0o755),
        make("d", 0o755),
        make("d/e", 0o1770),
        make("none/e", 0o755),
        make(long_name(), 0o755),
        make(long_path(), 0o755),
        open_twin(RDWR | CREAT | EXCL, "d/a"),
        open_twin(RDWR | CREAT | EXCL, "d/a"),
        open_twin(RDWR | CREAT | TRUNC, "d/b"),
        open_twin(RDONLY, "none"),
        open_twin(RDONLY, "d/a/x"),
        open_twin(RDONLY | DIRECTORY, "d/a"),
        open_twin(RDWR, "d"),
        open_twin(WRONLY | CREAT, "d"),
        open_twin(RDONLY | CREAT, "none/x"),
        open_twin(RDONLY, long_name()),
        open_twin(RDONLY, long_path()),
        open_twin(RDONLY, "a\0b"),
        length(10, "d/a"),
        length(3, "d/a"),
        length(1 << 20, "d/b"),
        length(u64::MAX, "d/b"),
        length(5, "d"),
        length(5, "none"),
        symbolic("d/a", "s"),
        symbolic("d/a", "s"),
        symbolic("loop", "loop"),
        symbolic("nowhere", "dangling"),
        symbolic("", "empty"),
        open_twin(RDWR, "s"),
        open_twin(RDWR | NOFOLLOW, "s"),
        open_twin(PATH | NOFOLLOW, "s"),
        open_twin(RDWR, "loop"),
        open_twin(RDWR | CREAT | EXCL, "dangling"),
        open_twin(RDWR | CREAT, "dangling"),
        read_link("s"),
        read_link("d"),
        read_link("none"),
        look(0, "s"),
        look(NOFOLLOW_AT, "s"),
        look(0, "none"),
        look(0, "loop"),
        look(NOFOLLOW_AT, "loop"),
        look(0, "d/a/x"),
        look(0, long_path()),
        set_mode(0o604, 0, "d/a"),
        set_mode(0o4755, 0, "d/b"),
        set_mode(0o600, 0, "none"),
        set_mode(0o600, 0, "s"),
        set_mode(0o644, NOFOLLOW_AT, "d/b"),
        set_mode(0o644, NOFOLLOW_AT, "s"),
        give(own, "d/a"),
        give(own, "s"),
        give(own, "none"),
        may(libc::R_OK | libc::W_OK, "d/a"),
        may(libc::X_OK, "d/a"),
        may(libc::F_OK, "none"),
        may(libc::F_OK, "loop"),
        link(AtFlags::empty(), "d/a", "h"),
        link(AtFlags::empty(), "d/a", "h"),
        link(AtFlags::empty(), "d", "hd"),
        link(AtFlags::empty(), "s", "hs"),
        link(AtFlags::AT_SYMLINK_FOLLOW, "s", "hf"),
        link(AtFlags::empty(), "none", "x"),
        rename(0, "h", "d/h"),
        rename(0, "none", "x"),
        rename(0, "d", "d/e/d"),
        rename(0, "d", "d/a"),
        rename(libc::RENAME_NOREPLACE, "d/h", "d/b"),
        rename(libc::RENAME_EXCHANGE, "d/h", "s"),
        rename(libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE, "s", "d/b"),
        rename(0, "d/b", long_name()),
        remove("d", false),
        remove("d", true),
        remove("d/a", true),
        remove("none", false),
        remove("d/a", false),
        remove("d/e", true),
        remove("d/e", true),
        remove("loop", false),
        remove(".", true),
        remove("..", true),
    ]
}

#[test]
fn names_are_changed_as_the_system_changes_them() {
    stat::umask(Mode::empty());
    let worker = Worker::new();
    let twin = tempfile::tempdir().expect("a directory");
    let twin_open = open_directory(twin.path());
    for (number, (call, direct)) in steps().into_iter().enumerate() {
        let ours = worker.call(&call);
        let theirs = direct(&twin_open);
        let what = format!("step {number}: {call:?}");
        match call.op {
            Op::Open => assert_eq!(ours.map(|_| 0), theirs, "{what}"),
            Op::Stat => {
                let size = ours.map(|reply| Metadata::parse(&reply.output).expect("metadata").size);
                // A directory's size is its file system's affair.
                assert_eq!(size.map(|size| size as i64), theirs, "{what}");
            }
            _ => assert_eq!(ours.map(|reply| reply.result), theirs, "{what}"),
        }
        assert_eq!(
            picture(worker.folder.path()),
            picture(twin.path()),
            "{what}"
        );
    }
}

#[test]
fn bytes_are_where_they_were_written() {
    let worker = Worker::new();
    let handle = worker.open("f", RDWR | CREAT);
    assert_eq!(worker.write(handle, 4, b"four").unwrap().result, 4);
    assert_eq!(worker.read(handle, 0, 100).unwrap(), b"\0\0\0\0four");
    assert_eq!(worker.read(handle, 6, 1).unwrap(), b"u");
    assert_eq!(worker.read(handle, 8, 10).unwrap(), b"");
    assert_eq!(worker.read(handle, u64::MAX, 10), Err(Errno::EINVAL));
    assert_eq!(
        worker.write(handle, u64::MAX, b"x").unwrap_err(),
        Errno::EINVAL
    );
    assert_eq!(worker.read(handle, 0, 0).unwrap(), b"");
    let reader = worker.open("f", RDONLY);
    for bytes in [&b"x"[..], b""] {
        assert_eq!(worker.write(reader, 0, bytes).unwrap_err(), Errno::EBADF);
    }
    let writer = worker.open("f", WRONLY);
    for room in [1, 0] {
        assert_eq!(worker.read(writer, 0, room), Err(Errno::EBADF));
    }
    let directory = worker.open(".", RDONLY);
    assert_eq!(worker.read(directory, 0, 10), Err(Errno::EISDIR));
    let path = worker.open("f", PATH);
    assert_eq!(worker.read(path, 0, 10), Err(Errno::EBADF));
    assert_eq!(worker.write(path, 0, b"x").unwrap_err(), Errno::EBADF);
    assert_eq!(worker.read(99, 0, 10), Err(Errno::EBADF));
    // More than there is room for was never asked for.
    let mut call = Call::new(Op::Read, handle);
    call.room = MAX_TRANSFER as u32 + 1;
    assert_eq!(worker.call(&call).unwrap_err(), Errno::EINVAL);
}

#[test]
fn appends_say_where_they_ended_whoever_else_appends() {
    let worker = Worker::new();
    let (one, two) = (
        worker.open("log", WRONLY | CREAT | APPEND),
        worker.open("log", WRONLY | APPEND),
    );
    let end = |reply: Reply| u64::from_le_bytes(reply.output.try_into().expect("a position"));
    std::thread::scope(|scope| {
        for (handle, byte) in [(one, b'a'), (one, b'b'), (two, b'c'), (two, b'd')] {
            let worker = &worker;
            scope.spawn(move || {
                for _ in 0..500 {
                    let reply = worker.write(handle, 0, &[byte; 5]).expect("written");
                    let end = end(reply);
                    let file = std::fs::read(worker.folder.path().join("log")).expect("bytes");
                    let own = &file[end as usize - 5..end as usize];
                    assert_eq!(own, [byte; 5], "at {end}");
                }
            });
        }
    });
    let call = Call::new(Op::SetFlags, one).with_words([0]);
    worker.call(&call).expect("no more appending");
    let reply = worker.write(one, 0, b"start").expect("written");
    assert!(reply.output.is_empty());
    let file = std::fs::read(worker.folder.path().join("log")).expect("bytes");
    assert_eq!((&file[..5], file.len()), (&b"start"[..], 10_000));
}

#[test]
fn metadata_and_file_systems_are_what_the_system_says() {
    let worker = Worker::new();
    let handle = worker.open("f", RDWR | CREAT);
    worker.write(handle, 0, &[1; 5_000]).expect("written");
    let times = [1_000, 2_000_000_000, 5 | 999_999_999 << 32, 0];
    let path = worker.folder.path().join("f");
    for (call, expected) in [
        (on(Op::SetTimes, times, "f"), (1_000, 5, 2_000_000_000)),
        (
            Call::new(Op::SetTimes, handle).with_words([7, 0, 9 | (libc::UTIME_OMIT as u64) << 32]),
            (7, 9, 2_000_000_000),
        ),
    ] {
        worker.call(&call).expect("set");
        let there = path.metadata().expect("metadata");
        let seen = (there.atime(), there.atime_nsec(), there.mtime());
        assert_eq!(seen, expected);
        assert_eq!(there.mtime_nsec(), 999_999_999);
    }
    let wrong = on(Op::SetTimes, [0, 0, 1_000_000_000, 0], "f");
    assert_eq!(worker.call(&wrong).unwrap_err(), Errno::EINVAL);
    let there = path.metadata().expect("metadata");
    for call in [
        on(Op::Stat, [0; 4], "f"),
        Call::new(Op::Stat, handle).with_room(200),
    ] {
        let reply = worker.call(&call).expect("metadata");
        let told = Metadata::parse(&reply.output).expect("metadata");
        assert_eq!(
            (told.device, told.inode, told.mode, u64::from(told.links)),
            (there.dev(), there.ino(), there.mode(), there.nlink())
        );
        assert_eq!(
            (told.user, told.group, told.size, told.blocks),
            (there.uid(), there.gid(), there.len(), there.blocks())
        );
        assert_eq!(u64::from(told.block_size), there.blksize());
        assert_eq!(told.accessed, (there.atime(), there.atime_nsec() as u32));
        assert_eq!(told.modified, (there.mtime(), there.mtime_nsec() as u32));
        assert_eq!(told.changed, (there.ctime(), there.ctime_nsec() as u32));
    }
    let theirs = nix::sys::statvfs::statvfs(&path).expect("a file system");
    for call in [
        on(Op::StatFileSystem, [0; 4], "f"),
        Call::new(Op::StatFileSystem, handle).with_room(200),
    ] {
        let reply = worker.call(&call).expect("a file system");
        let told = FileSystem::parse(&reply.output).expect("a file system");
        assert_eq!(told.blocks[0], theirs.blocks());
        assert_eq!(told.files[0], theirs.files());
        assert_eq!(told.fragment_size, theirs.fragment_size());
        assert_eq!(told.name_max, theirs.name_max());
    }
    // Output that there is no room for is left out.
    let call = Call::new(Op::Stat, handle).with_room(10);
    assert_eq!(worker.call(&call).expect("metadata").output.len(), 10);
}

#[test]
fn open_files_change_as_paths_do() {
    let worker = Worker::new();
    let path = worker.folder.path().join("f");
    let handle = worker.open("f", RDWR | CREAT);
    let on_handle = |op, words: [u64; 3]| worker.call(&Call::new(op, handle).with_words(words));
    on_handle(Op::ChangeMode, [0o600, 0, 0]).expect("mode");
    assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o600);
    on_handle(Op::SetLength, [1 << 20, 0, 0]).expect("length");
    worker.write(handle, 1 << 19, b"data").expect("written");
    let own = path.metadata().unwrap();
    on_handle(Op::ChangeOwner, [own.uid().into(), u64::from(u32::MAX), 0]).expect("owner");
    let direct = File::open(&path).unwrap();
    for (offset, word, whence) in [
        (0, 3, Whence::SeekData),
        (1 << 19, 4, Whence::SeekHole),
        (2 << 20, 3, Whence::SeekData),
    ] {
        let ours = on_handle(Op::Seek, [offset, word, 0]).map(|reply| reply.result);
        assert_eq!(ours, lseek(&direct, offset as i64, whence), "{offset}");
    }
    assert_eq!(on_handle(Op::Seek, [0, 0, 0]).unwrap_err(), Errno::EINVAL);
    on_handle(Op::Allocate, [0, 0, 2 << 20]).expect("allocated");
    assert_eq!(path.metadata().unwrap().len(), 2 << 20);
    let keep = libc::FALLOC_FL_KEEP_SIZE as u64;
    on_handle(Op::Allocate, [keep, 0, 3 << 20]).expect("allocated");
    assert_eq!(path.metadata().unwrap().len(), 2 << 20);
    let wrong = on_handle(Op::Allocate, [0, 0, 0]).unwrap_err();
    assert_eq!(wrong, Errno::EINVAL);
    for word in [0, 1] {
        on_handle(Op::Sync, [word, 0, 0]).expect("on the disk");
    }
    let to = worker.open("copy", RDWR | CREAT);
    let mut copy = Call::new(Op::Copy, handle).with_words([1 << 19, 10, 4]);
    copy.handles[1] = to;
    assert_eq!(worker.call(&copy).expect("copied").result, 4);
    assert_eq!(worker.read(to, 10, 9).unwrap(), b"data");
    // The file is there until the last one who has it open lets go of it.
    std::fs::remove_file(&path).unwrap();
    assert_eq!(worker.read(handle, 1 << 19, 4).unwrap(), b"data");
    let gone = worker.call(&Call::new(Op::Stat, handle).with_room(200));
    assert_eq!(Metadata::parse(&gone.unwrap().output).unwrap().links, 0);
    worker.call(&Call::new(Op::Close, handle)).expect("closed");
    let again = worker.call(&Call::new(Op::Close, handle));
    assert_eq!(again.unwrap_err(), Errno::EBADF);
}

#[test]
fn a_file_without_a_name_is_a_file() {
    let worker = Worker::new();
    let flags = libc::O_TMPFILE as u64 | RDWR;
    let handle = worker.open(".", flags);
    worker.write(handle, 0, b"x").expect("written");
    assert_eq!(worker.read(handle, 0, 10).unwrap(), b"x");
    assert!(picture(worker.folder.path()).is_empty());
}

#[test]
fn directories_are_read_in_pieces_from_any_position() {
    let worker = Worker::new();
    for index in 0..300 {
        std::fs::write(worker.folder.path().join(format!("f{index}")), b"").unwrap();
    }
    let handle = worker.open(".", RDONLY | DIRECTORY);
    let list = |position: u64, room: usize| {
        let call = Call::new(Op::ReadDirectory, handle).with_words([position]);
        let reply = worker.call(&call.with_room(room))?;
        let mut names = Vec::new();
        let mut rest = &reply.output[..];
        while let Some((entry, behind)) = netstack::files::Entry::parse(rest).expect("entries") {
            names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.next));
            rest = behind;
        }
        assert_eq!(reply.result, names.len() as i64);
        Ok(names)
    };
    let mut all = Vec::new();
    let mut position = 0;
    loop {
        let piece = list(position, 1_000).unwrap();
        let Some((_, next)) = piece.last() else { break };
        position = *next;
        all.extend(piece);
        // What is made meanwhile does not move what was there.
        std::fs::write(worker.folder.path().join(format!("new{position}")), b"").unwrap();
    }
    assert_eq!(all.len(), 302);
    let (name, next) = all[100].clone();
    assert_eq!(list(next - 1, 1_000).unwrap()[0], (name, next));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 302);
    assert!(list(0, 60_000).unwrap().len() > 302);
    assert_eq!(list(0, 10), Err(Errno::EINVAL));
    let file = worker.open("f1", RDONLY);
    for (wrong, errno) in [(file, Errno::ENOTDIR), (77, Errno::EBADF)] {
        let call = Call::new(Op::ReadDirectory, wrong).with_room(1_000);
        assert_eq!(worker.call(&call).unwrap_err(), errno);
    }
    let path = worker.open(".", PATH);
    let call = Call::new(Op::ReadDirectory, path).with_room(1_000);
    assert_eq!(worker.call(&call).unwrap_err(), Errno::EBADF);
}

/// A rank that has a file open once to be read and once to be written is one owner all the same.
#[test]
fn locks_of_a_rank_are_one_owners_whichever_descriptors_it_has() {
    let worker = Worker::new();
    let theirs = worker
        .open_as(Rank(2), "file", RDWR | CREAT)
        .expect("opened");
    let lock = |rank, handle, kind: Lock, start: u64, length: u64, flags: u64| {
        let call = Call::new(Op::Lock, handle).with_words([kind as u64, start, length, flags]);
        worker.call_as(rank, &call.with_room(24))
    };
    let nothing = Ok(Reply::plain(0));
    for first in [RDONLY, WRONLY] {
        let (reads, writes) = (worker.open("file", RDONLY), worker.open("file", WRONLY));
        let (kinds, handles) = match first {
            RDONLY => ([Lock::Read, Lock::Write], [reads, writes]),
            _ => ([Lock::Write, Lock::Read], [writes, reads]),
        };
        assert_eq!(lock(RANK, handles[0], kinds[0], 0, 10, 0), nothing);
        assert_eq!(
            lock(RANK, handles[1], kinds[1], 0, 10, 0),
            nothing,
            "converted"
        );
        assert_eq!(lock(RANK, writes, Lock::Write, 20, 10, 0), nothing);
        for (handle, kind) in [(reads, Lock::Write), (writes, Lock::Read)] {
            let told = lock(RANK, handle, kind, 0, 0, LOCK_TESTS);
            assert_eq!(told, nothing, "its own are in nobody's way");
        }
        let taken = lock(Rank(2), theirs, Lock::Write, 25, 1, 0);
        assert_eq!(taken, Err(Errno::EAGAIN));
        // Freed by the one that did not lock.
        assert_eq!(lock(RANK, reads, Lock::Free, 20, 10, 0), nothing);
        assert_eq!(lock(Rank(2), theirs, Lock::Write, 25, 1, 0), nothing);
        assert_eq!(lock(Rank(2), theirs, Lock::Free, 0, 0, 0), nothing);
        let close = |handle| worker.call(&Call::new(Op::Close, handle)).expect("closed");
        close(handles[1]);
        assert_eq!(lock(Rank(2), theirs, Lock::Write, 0, 0, 0), nothing);
        assert_eq!(lock(Rank(2), theirs, Lock::Free, 0, 0, 0), nothing);
        close(handles[0]);
    }
    // Where no descriptor may do both, each does its own, and all are freed.
    let (reads, writes) = (worker.open("file", RDONLY), worker.open("file", WRONLY));
    let (one, other) = (
        worker.handles.get(RANK, reads).unwrap(),
        worker.handles.get(RANK, writes).unwrap(),
    );
    worker.handles.lock_through(RANK, &one);
    assert_eq!(lock(RANK, writes, Lock::Write, 0, 10, 0), nothing);
    assert_eq!(lock(RANK, reads, Lock::Read, 20, 10, 0), nothing);
    assert_eq!(worker.handles.lockers(RANK, other.id).len(), 2);
    assert_eq!(lock(RANK, reads, Lock::Free, 0, 0, 0), nothing);
    assert_eq!(lock(Rank(2), theirs, Lock::Write, 0, 0, 0), nothing);
}

#[test]
fn data_before_the_begin_of_a_file_is_none() {
    let worker = Worker::new();
    let handle = worker.open("file", RDWR | CREAT);
    worker.write(handle, 0, b"data").expect("written");
    let whole = File::open(worker.folder.path().join("file")).expect("opened");
    for (whence, system) in [(3, Whence::SeekData), (4, Whence::SeekHole)] {
        let call = Call::new(Op::Seek, handle).with_words([(-1_i64) as u64, whence]);
        let there = lseek(&whole, -1, system).expect_err("before the begin");
        assert_eq!(worker.call(&call).expect_err("before the begin"), there);
    }
}

#[test]
fn locks_are_a_ranks_own_and_go_with_any_close() {
    let worker = Worker::new();
    let other = Rank(2);
    let one = worker.open("f", RDWR | CREAT);
    let same = worker.open("f", RDWR);
    let theirs = worker.open_as(other, "f", RDWR).unwrap();
    let lock = |rank, handle, kind: Lock, start: u64, length: u64, test: u64| {
        let words = [kind as u64, start, length, test];
        let call = Call::new(Op::Lock, handle).with_words(words);
        worker.call_as(rank, &call.with_room(24))
    };
    lock(RANK, one, Lock::Write, 0, 10, 0).expect("locked");
    // The rank is not in its own way; another is.
    lock(RANK, same, Lock::Write, 5, 10, 0).expect("locked");
    let taken = lock(other, theirs, Lock::Read, 12, 1, 0);
    assert_eq!(taken.unwrap_err(), Errno::EAGAIN);
    let told = lock(other, theirs, Lock::Write, 3, 100, 1).unwrap().output;
    let words: Vec<u64> = told
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    assert_eq!(words, [libc::F_WRLCK as u64, 0, 15]);
    assert!(
        lock(RANK, same, Lock::Write, 0, 0, 1)
            .unwrap()
            .output
            .is_empty()
    );
    lock(other, theirs, Lock::Read, 15, 0, 0).expect("free");
    // A part is given back by another number than it was asked for.
    lock(RANK, same, Lock::Free, 0, 5, 0).expect("free");
    lock(other, theirs, Lock::Write, 0, 5, 0).expect("locked");
    // POSIX: closing any of them frees all that the rank has.
    let call = Call::new(Op::Close, same);
    worker.call(&call).expect("closed");
    lock(other, theirs, Lock::Write, 0, 0, 0).expect("locked");
    let taken = lock(RANK, one, Lock::Write, 0, 1, 0);
    assert_eq!(taken.unwrap_err(), Errno::EAGAIN);
    lock(other, theirs, Lock::Free, 0, 0, 0).expect("free");
    let reader = worker.open("f", RDONLY);
    let wrong = lock(RANK, reader, Lock::Write, 0, 1, 0);
    assert_eq!(wrong.unwrap_err(), Errno::EBADF);
    // flock is of one open file, and apart from locks of ranges.
    lock(RANK, one, Lock::WholeWrite, 0, 0, 0).expect("locked");
    lock(other, theirs, Lock::Write, 0, 0, 0).expect("locked");
    for (rank, handle) in [(other, theirs), (RANK, reader)] {
        let taken = lock(rank, handle, Lock::WholeRead, 0, 0, 0);
        assert_eq!(taken.unwrap_err(), Errno::EAGAIN);
    }
    lock(RANK, one, Lock::WholeFree, 0, 0, 0).expect("free");
    lock(other, theirs, Lock::WholeRead, 0, 0, 0).expect("locked");
    let wrong = Call::new(Op::Lock, one).with_words([6]);
    assert_eq!(worker.call(&wrong).unwrap_err(), Errno::EINVAL);
}

#[test]
fn nobody_waits_for_pipes_and_devices() {
    let worker = Worker::new();
    unistd::mkfifo(&worker.folder.path().join("pipe"), Mode::S_IRWXU).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(worker.folder.path().join("socket"));
    for (path, flags, errno) in [
        ("pipe", RDONLY, Errno::ENXIO),
        ("pipe", WRONLY, Errno::ENXIO),
        ("pipe", RDWR, Errno::ENXIO),
        ("socket", RDWR, Errno::ENXIO),
        ("/dev/null", RDWR, Errno::EACCES),
        ("/dev/tty", RDWR, Errno::EACCES),
    ] {
        let refused = worker.open_as(RANK, path, flags).unwrap_err();
        // Without a terminal there is none to be opened.
        let is_refused = refused == errno || (path == "/dev/tty" && refused == Errno::ENXIO);
        assert!(is_refused, "{path}: {refused}");
    }
    worker.open("pipe", PATH);
    drop(socket);
}

#[test]
fn a_rank_has_a_bounded_number_of_files_of_its_own() {
    let worker = Worker::new();
    let first = worker.open("f", RDWR | CREAT);
    for _ in 1..MOST {
        worker.open("f", RDONLY);
    }
    let full = worker.open_as(RANK, "new", RDWR | CREAT).unwrap_err();
    assert_eq!(full, Errno::EMFILE);
    assert!(!worker.folder.path().join("new").exists());
    // Another rank has as many, and none of these.
    let call = Call::new(Op::Read, first).with_room(1);
    let foreign = worker.call_as(Rank(2), &call).unwrap_err();
    assert_eq!(foreign, Errno::EBADF);
    worker.open_as(Rank(2), "f", RDONLY).expect("opened");
    worker.call(&Call::new(Op::Close, first)).expect("closed");
    // What fails takes no room.
    for _ in 0..10 {
        assert_eq!(worker.open_as(RANK, "none", RDONLY), Err(Errno::ENOENT));
    }
    let next = worker.open("f", RDONLY);
    assert_ne!(next, first, "a number is not given again soon");
}
