//! Paths, descriptors and structures, against what Linux does.

use super::*;
use hearth_abi::linux::{mode, seek};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::string::ToString;
use std::vec;

fn files(names: &[&str]) -> Files {
    let file = |(number, name): (u8, &&str)| File {
        name: name.to_string(),
        object: ObjectId([number + 10; 32]),
        bytes: 1000 * (u64::from(number) + 1),
    };
    Files::new((0..).zip(names).map(file).collect())
}

#[test]
fn paths_lead_to_the_files_and_nowhere_else() {
    let files = files(&["mesh", "in put"]);
    let long_name = ["/with/", &"n".repeat(256)].concat();
    let long_path = "/".repeat(4096);
    let cases: &[(&str, Result<Place, Errno>)] = &[
        ("/with/mesh", Ok(Place::File(0))),
        ("/with/in put", Ok(Place::File(1))),
        ("with/mesh", Ok(Place::File(0))),
        ("//with///mesh", Ok(Place::File(0))),
        ("/with/./mesh", Ok(Place::File(0))),
        ("/../with/../../with/mesh", Ok(Place::File(0))),
        ("/", Ok(Place::Root)),
        (".", Ok(Place::Root)),
        ("..", Ok(Place::Root)),
        ("/with", Ok(Place::With)),
        ("/with/", Ok(Place::With)),
        ("/with/.", Ok(Place::With)),
        ("", Err(Errno::ENOENT)),
        ("/mesh", Err(Errno::ENOENT)),
        ("mesh", Err(Errno::ENOENT)),
        ("/with/mes", Err(Errno::ENOENT)),
        ("/with/mesh2", Err(Errno::ENOENT)),
        ("/etc/passwd", Err(Errno::ENOENT)),
        ("/with/none/", Err(Errno::ENOENT)),
        ("/with/none/..", Err(Errno::ENOENT)),
        ("/with/mesh/", Err(Errno::ENOTDIR)),
        ("/with/mesh/.", Err(Errno::ENOTDIR)),
        ("/with/mesh/../mesh", Err(Errno::ENOTDIR)),
        (&long_name, Err(Errno::ENAMETOOLONG)),
        (&long_path, Err(Errno::ENAMETOOLONG)),
        (&long_path[1..], Ok(Place::Root)),
    ];
    for (path, place) in cases {
        assert_eq!(
            files.resolve(Place::Root, path.as_bytes()),
            *place,
            "{path}"
        );
    }
    let from_with = |path: &str| files.resolve(Place::With, path.as_bytes());
    assert_eq!(from_with("mesh"), Ok(Place::File(0)));
    assert_eq!(from_with("/mesh"), Err(Errno::ENOENT));
    assert_eq!(from_with(".."), Ok(Place::Root));
}

#[test]
fn what_would_write_is_refused_as_on_a_read_only_file_system() {
    let mut files = files(&["mesh"]);
    const WRITE: u64 = open::WRITE_ONLY;
    const CREATE: u64 = open::CREATE;
    const EXCLUSIVE: u64 = open::CREATE | open::EXCLUSIVE;
    const TMPFILE: u64 = open::TMPFILE | open::DIRECTORY;
    let file = Ok(Place::File(0));
    let cases = [
        ("/with/mesh", 0, file),
        ("/with/mesh", open::CLOEXEC | open::LARGEFILE, file),
        ("/with/mesh", CREATE, file),
        ("/with/mesh", WRITE, Err(Errno::EROFS)),
        ("/with/mesh", 2, Err(Errno::EROFS)),
        ("/with/mesh", open::TRUNCATE, Err(Errno::EROFS)),
        ("/with/mesh", EXCLUSIVE, Err(Errno::EEXIST)),
        ("/with/mesh", open::DIRECTORY, Err(Errno::ENOTDIR)),
        ("/with/mesh", open::PATH, file),
        (
            "/with/mesh",
            open::PATH | open::DIRECTORY,
            Err(Errno::ENOTDIR),
        ),
        ("/with", open::PATH | open::DIRECTORY, Ok(Place::With)),
        ("/with/none", 0, Err(Errno::ENOENT)),
        ("/with/none", CREATE | WRITE, Err(Errno::EROFS)),
        ("/none", CREATE | WRITE, Err(Errno::EROFS)),
        ("/tmp/none", CREATE | WRITE, Err(Errno::ENOENT)),
        ("/with", 0, Ok(Place::With)),
        ("/with", open::DIRECTORY, Ok(Place::With)),
        ("/with", WRITE, Err(Errno::EISDIR)),
        ("/with", CREATE, Err(Errno::EISDIR)),
        ("/", TMPFILE | WRITE, Err(Errno::EROFS)),
    ];
    for (path, flags, answer) in cases {
        let opened = files.open(Place::Root, path.as_bytes(), flags, 0);
        assert_eq!(opened, answer, "{path} {flags:#o}");
    }
    assert_eq!(Files::access(Place::File(0), access::READ), Ok(()));
    assert_eq!(Files::access(Place::File(0), 0), Ok(()));
    assert_eq!(Files::access(Place::With, access::EXECUTE), Ok(()));
    let refused = [
        (access::WRITE, Errno::EROFS),
        (access::EXECUTE, Errno::EACCES),
        (8, Errno::EINVAL),
    ];
    for (mode, errno) in refused {
        assert_eq!(Files::access(Place::File(0), mode), Err(errno));
    }
}

#[test]
fn descriptors_are_the_lowest_that_are_free() {
    let mut table = Descriptors::new();
    let place = Place::File(0);
    assert_eq!(table.open(place, 0), Ok(3));
    assert_eq!(table.open(place, open::CLOEXEC), Ok(4));
    assert_eq!(table.close_on_exec(4), Ok(true));
    table.close(0).unwrap();
    assert_eq!(table.get(0), Err(Errno::EBADF));
    assert_eq!(table.open(place, 0), Ok(0));
    assert_eq!(table.copy(1, 10, false), Ok(10));
    assert_eq!(table.stream(10), Ok(1));
    assert_eq!(
        table.copy(3, DESCRIPTORS_MAX as u64, false),
        Err(Errno::EINVAL)
    );
    assert_eq!(
        table.copy_to(3, DESCRIPTORS_MAX as u64, false),
        Err(Errno::EBADF)
    );
    assert_eq!(table.copy_to(99, 3, false), Err(Errno::EBADF));
    assert_eq!(table.stream(3), Err(Errno::EBADF));
    // Only the lower half of the register is a descriptor.
    assert!(table.get(0xffff_ffff_0000_0003).is_ok());
    assert_eq!(table.get(u64::MAX), Err(Errno::EBADF));
    let mut opened = 0;
    while table.open(place, 0).is_ok() {
        opened += 1;
    }
    assert_eq!(table.open(place, 0), Err(Errno::EMFILE));
    assert_eq!(opened, DESCRIPTORS_MAX - 6);
    table.close(77).unwrap();
    assert_eq!(table.open(place, 0), Ok(77));
}

#[test]
fn what_a_call_holds_outlives_its_descriptors() {
    let mut table = Descriptors::new();
    let place = Place::File(0);
    let fd = table.open(place, 0).unwrap();
    let held = table.hold(fd).unwrap();
    let copy = table.copy(fd, 0, false).unwrap();
    assert_eq!(table.close(fd), Ok(None));
    // The number is another file's now, and the copy shares the position.
    assert_eq!(table.open(Place::File(1), 0), Ok(fd));
    table.held(held).position = 7;
    assert_eq!(table.get(fd).unwrap().position, 0);
    assert_eq!(table.get(copy).unwrap().position, 7);
    assert_eq!(table.close(copy), Ok(None));
    assert_eq!(table.let_go(held), Some(Opened::Place(place)));
    assert_eq!(table.close(fd), Ok(Some(Opened::Place(Place::File(1)))));
    assert_eq!(table.hold(fd), Err(Errno::EBADF));
}

#[test]
fn copies_share_a_position() {
    let mut table = Descriptors::new();
    let fd = table.open(Place::File(0), 0).unwrap();
    let copy = table.copy(fd, 0, true).unwrap();
    assert_eq!(table.seek(fd, 10, seek::SET, 100), Ok(10));
    assert_eq!(table.seek(copy, 5, seek::CUR, 100), Ok(15));
    assert_eq!(table.get(fd).unwrap().position, 15);
    assert_eq!(table.copy_to(copy, copy, false), Ok((copy, None)));
    table.close(fd).unwrap();
    assert_eq!(table.get(copy).unwrap().position, 15);
    // What dup2 replaces is closed: of a description with one descriptor nothing is left.
    let other = table.open(Place::With, 0).unwrap();
    assert_eq!(
        table.copy_to(copy, other, false).map(|copy| copy.0),
        Ok(other)
    );
    assert_eq!(table.get(other).unwrap().position, 15);
    assert_eq!(table.copy_to(1, other, false).map(|copy| copy.0), Ok(other));
    assert_eq!(table.stream(other), Ok(1));
}

#[test]
fn seeks_are_those_of_a_file_without_holes() {
    let mut table = Descriptors::new();
    let fd = table.open(Place::File(0), 0).unwrap();
    let minus = |n: i64| (-n) as u64;
    let cases = [
        (0, seek::END, Ok(1000)),
        (minus(1000), seek::END, Ok(0)),
        (minus(1001), seek::END, Err(Errno::EINVAL)),
        (5000, seek::SET, Ok(5000)),
        (minus(1), seek::SET, Err(Errno::EINVAL)),
        (i64::MAX as u64, seek::CUR, Err(Errno::EINVAL)),
        (minus(4000), seek::CUR, Ok(1000)),
        (999, seek::DATA, Ok(999)),
        (1000, seek::DATA, Err(Errno::ENXIO)),
        (minus(1), seek::DATA, Err(Errno::ENXIO)),
        (0, seek::HOLE, Ok(1000)),
        (1000, seek::HOLE, Err(Errno::ENXIO)),
        (0, 5, Err(Errno::EINVAL)),
    ];
    for (offset, whence, answer) in cases {
        assert_eq!(
            table.seek(fd, offset, whence, 1000),
            answer,
            "{offset} {whence}"
        );
    }
    assert_eq!(table.seek(1, 0, seek::CUR, 0), Err(Errno::ESPIPE));
    assert_eq!(table.seek(9, 0, seek::CUR, 0), Err(Errno::EBADF));
    let directory = table.open(Place::With, 0).unwrap();
    assert_eq!(table.seek(directory, 2, seek::SET, 0), Ok(2));
    assert_eq!(table.seek(directory, 0, seek::END, 0), Err(Errno::EINVAL));
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

#[test]
fn stat_says_what_linux_would() {
    let files = files(&["mesh", "other"]);
    let file = files.metadata(Opened::Place(Place::File(1)));
    let stat = file.stat();
    assert_eq!((word(&stat, 48), half(&stat, 24)), (2000, 0o100_444));
    // Four sectors of 512 bytes, one name, the superuser's.
    assert_eq!((word(&stat, 64), word(&stat, 16)), (4, 1));
    assert_eq!((half(&stat, 28), half(&stat, 32)), (0, 0));
    let statx = file.statx();
    assert_eq!((word(&statx, 40), half(&statx, 28)), (2000, 0o100_444));
    assert_eq!(word(&statx, 32), word(&stat, 8), "two inode numbers");
    assert_eq!(half(&statx, 0) & 0x7ff, 0x7ff);
    assert_eq!(u64::from(half(&statx, 140)), word(&stat, 0));
    let again = files.metadata(Opened::Place(Place::File(1)));
    assert_eq!(again, file);
    assert_ne!(
        files.metadata(Opened::Place(Place::File(0))).inode,
        file.inode
    );
    let directory = files.metadata(Opened::Place(Place::With)).stat();
    assert_eq!(half(&directory, 24), 0o40_555);
    let stream = files.metadata(Opened::Stream(1)).stat();
    assert_eq!((half(&stream, 24), word(&stream, 8)), (0o10_600, 2));
}

/// Names in a buffer of getdents64.
fn names(bytes: &[u8]) -> vec::Vec<(String, u8)> {
    let mut rest = bytes;
    let mut names = vec::Vec::new();
    while !rest.is_empty() {
        let length = u16::from_le_bytes([rest[16], rest[17]]) as usize;
        let name = rest[19..].split(|&byte| byte == 0).next().unwrap();
        names.push((String::from_utf8(name.to_vec()).unwrap(), rest[18]));
        rest = &rest[length..];
    }
    names
}

#[test]
fn directories_list_what_is_there() {
    let all = files(&["mesh", "a much longer name than that"]);
    let mut out = [0xaa; 512];
    let (written, next) = all.entries(Place::With, 0, &mut out);
    let expected = [
        (".", 4),
        ("..", 4),
        ("mesh", 8),
        ("a much longer name than that", 8),
    ];
    let expected = expected.map(|(name, kind)| (name.to_string(), kind));
    assert_eq!(names(&out[..written]), expected);
    assert_eq!(
        (next, all.entries(Place::With, next, &mut out)),
        (4, (0, 4))
    );
    // Piece by piece it is the same.
    let (mut seen, mut at) = (vec::Vec::new(), 0);
    loop {
        let (written, next) = all.entries(Place::With, at, &mut out[..56]);
        if written == 0 {
            break;
        }
        seen.extend(names(&out[..written]));
        at = next;
    }
    assert_eq!(seen, expected);
    // No room for the next is told apart from the end.
    assert_eq!(all.entries(Place::With, 3, &mut out[..40]), (0, 3));
    assert!(all.has_entry(Place::With, 3) && !all.has_entry(Place::With, 4));
    let (written, _) = files(&[]).entries(Place::Root, 0, &mut out);
    let root: vec::Vec<_> = names(&out[..written])
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(root, [".", "..", "with", "tmp"]);
}

#[derive(Clone, Debug)]
enum Step {
    Open(u16),
    Close(u64),
    Copy { fd: u64, least: u64 },
    CopyTo { fd: u64, to: u64 },
    Seek { fd: u64, to: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let fd = || 0..12u64;
    prop_oneof![
        (0..3u16).prop_map(Step::Open),
        fd().prop_map(Step::Close),
        (fd(), fd()).prop_map(|(fd, least)| Step::Copy { fd, least }),
        (fd(), fd()).prop_map(|(fd, to)| Step::CopyTo { fd, to }),
        (fd(), 0..1000u64).prop_map(|(fd, to)| Step::Seek { fd, to }),
    ]
}

proptest! {
    #[test]
    fn descriptors_agree_with_a_plain_model(
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut table = Descriptors::new();
        // The model: descriptor to description, description to what is open and where.
        let mut model: BTreeMap<u64, usize> = (0..3).map(|fd| (fd, fd as usize)).collect();
        let mut open: vec::Vec<(Opened, u64)> = (0..3).map(|n| (Opened::Stream(n), 0)).collect();
        let lowest = |model: &BTreeMap<u64, usize>, from: u64| {
            (from..).find(|fd| !model.contains_key(fd)).unwrap()
        };
        for step in steps {
            match step {
                Step::Open(number) => {
                    let place = Place::File(number);
                    let fd = lowest(&model, 0);
                    prop_assert_eq!(table.open(place, 0), Ok(fd));
                    model.insert(fd, open.len());
                    open.push((Opened::Place(place), 0));
                }
                Step::Close(fd) => {
                    prop_assert_eq!(table.close(fd).is_ok(), model.remove(&fd).is_some());
                }
                Step::Copy { fd, least } => {
                    let to = lowest(&model, least);
                    let copied = table.copy(fd, least, false);
                    match model.get(&fd).copied() {
                        Some(index) => {
                            prop_assert_eq!(copied, Ok(to));
                            model.insert(to, index);
                        }
                        None => prop_assert_eq!(copied, Err(Errno::EBADF)),
                    }
                }
                Step::CopyTo { fd, to } => {
                    let copied = table.copy_to(fd, to, false);
                    match model.get(&fd).copied() {
                        Some(index) => {
                            prop_assert_eq!(copied.map(|copied| copied.0), Ok(to));
                            model.insert(to, index);
                        }
                        None => prop_assert_eq!(copied, Err(Errno::EBADF)),
                    }
                }
                Step::Seek { fd, to } => {
                    let sought = table.seek(fd, to, seek::SET, 10);
                    match model.get(&fd).map(|&index| &mut open[index]) {
                        Some((Opened::Place(_), position)) => {
                            prop_assert_eq!(sought, Ok(to));
                            *position = to;
                        }
                        Some(_) => prop_assert_eq!(sought, Err(Errno::ESPIPE)),
                        None => prop_assert_eq!(sought, Err(Errno::EBADF)),
                    }
                }
            }
            for fd in 0..40 {
                let known = model.get(&fd).map(|&index| open[index]);
                let found = table.get(fd).ok().map(|d| (d.opened, d.position));
                prop_assert_eq!(found, known, "descriptor {}", fd);
            }
        }
    }

    #[test]
    fn no_path_panics(path in proptest::collection::vec(any::<u8>(), 0..80), flags: u64) {
        let mut files = files(&["mesh"]);
        for from in [Place::Root, Place::With] {
            let _ = files.resolve(from, &path);
            let _ = files.open(from, &path, flags, 0);
        }
    }
}

#[test]
fn shared_memory_objects_are_made_opened_and_listed() {
    let mut files = files(&[]);
    const MAKE: u64 = open::CREATE | open::READ_WRITE;
    let mut open = |path: &str, flags| files.open(Place::With, path.as_bytes(), flags, 0o640);
    assert_eq!(open("/dev/shm/a", open::READ_WRITE), Err(Errno::ENOENT));
    let made = open("/dev/shm/a", MAKE);
    assert_eq!(made, Ok(Place::SharedMemory(0)));
    assert_eq!(open("/dev/shm//a", open::READ_WRITE), made);
    assert_eq!(
        open("/dev/shm/a", MAKE | open::EXCLUSIVE),
        Err(Errno::EEXIST)
    );
    assert_eq!(open("/dev/shm/a/b", MAKE), Err(Errno::ENOTDIR));
    assert_eq!(open("/dev/shm/b/c", MAKE), Err(Errno::ENOENT));
    assert_eq!(open("/dev/shm/b/", MAKE), Err(Errno::ENOTDIR));
    assert_eq!(open("/dev/shm", MAKE), Err(Errno::EISDIR));
    assert_eq!(open("/dev/shmem", MAKE), Err(Errno::ENOENT));
    assert_eq!(open("/dev/shm", 0), Ok(Place::SharedDirectory));
    assert_eq!(open("/dev/null/x", MAKE), Err(Errno::ENOTDIR));
    let long = ["/dev/shm/", &"n".repeat(256)].concat();
    assert_eq!(open(&long, MAKE), Err(Errno::ENAMETOOLONG));
    let from = |path: &str| files.resolve(Place::SharedDirectory, path.as_bytes());
    assert_eq!(from("a"), made);
    let object = files.metadata(Opened::Place(Place::SharedMemory(0)));
    assert_eq!(object.mode, mode::REGULAR | 0o640);
    assert_eq!(object.links, 1);
    let mut out = [0; 200];
    let (written, next) = files.entries(Place::SharedDirectory, 2, &mut out);
    assert_eq!((written, next), (24, 3));
    assert!(!files.has_entry(Place::SharedDirectory, 3));
    assert_eq!(
        files.shared_name(Place::With, b"/dev/shm/x"),
        Some(&b"x"[..])
    );
    assert_eq!(
        files.shared_name(Place::With, b"/dev/shm/a"),
        Some(&b"a"[..])
    );
    assert_eq!(files.shared_name(Place::With, b"/dev/shm"), None);
    assert_eq!(files.shared_name(Place::With, b"/with/x"), None);
}

#[test]
fn the_node_keeps_a_few_paths_for_itself() {
    let of_node: [&[u8]; 5] = [
        b"/with",
        b"/with/a",
        b"//dev/null",
        b"/./proc/self/maps",
        b"/sys/",
    ];
    for path in of_node {
        assert!(is_of_node(path), "{path:?}");
    }
    let others: [&[u8]; 6] = [b"/", b"with/a", b"/without", b"/home/dev", b"", b"/../with"];
    for path in others {
        assert!(!is_of_node(path), "{path:?}");
    }
}

#[test]
fn stat_says_all_that_a_service_told() {
    let metadata = stat::Metadata {
        device: 0xfd_0102,
        inode: 77,
        mode: mode::REGULAR | 0o640,
        links: 3,
        owner: [1_000, 1_001],
        special: 0,
        bytes: 5_000_000_000,
        block: 4_096,
        sectors: 17,
        times: [(-5, 1), (1 << 33, 2), (3, 999_999_999)],
    };
    let stat = metadata.stat();
    let word = |at: usize| u64::from_le_bytes(stat[at..at + 8].try_into().unwrap());
    let half = |at: usize| u32::from_le_bytes(stat[at..at + 4].try_into().unwrap());
    assert_eq!([word(0), word(8), word(16)], [0xfd_0102, 77, 3]);
    assert_eq!(
        [half(24), half(28), half(32)],
        [metadata.mode, 1_000, 1_001]
    );
    assert_eq!([word(48), word(56), word(64)], [5_000_000_000, 4_096, 17]);
    assert_eq!([word(72) as i64, word(80) as i64], [-5, 1]);
    assert_eq!(
        [word(88), word(96), word(104), word(112)],
        [1 << 33, 2, 3, 999_999_999]
    );
    let statx = metadata.statx();
    let half = |at: usize| u32::from_le_bytes(statx[at..at + 4].try_into().unwrap());
    assert_eq!(
        [half(20), half(24), half(28)],
        [1_000, 1_001, metadata.mode]
    );
    assert_eq!([half(136), half(140)], [0xd01, 0xf02]);
}
