//! A job's files through the service.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hearth_io::{Export, Service};
use netstack::files::{
    Call, Entry, LOCK_FROM_END, Lock, MAX_TRANSFER, Metadata, NOT_CARRIED_OUT, Op, WORKING,
};
use netstack::ids::Rank;

use super::node::{
    APPEND, CREAT, EAGAIN, EBADF, EDQUOT, EFBIG, EINVAL, EIO, EMFILE, ENOENT, ENOSPC, EROFS, EXCL,
    JOB, LINGERS_S, Node, RDONLY, RDWR, WORKER, files, service, service_at, service_of,
};

#[test]
fn what_a_job_writes_is_in_the_directory_and_nowhere_else() {
    let inside = tempfile::tempdir().expect("a directory");
    let outside = tempfile::tempdir().expect("a directory");
    std::fs::write(outside.path().join("secret"), b"secret").expect("written");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);

    let handle = node.open_ok("out.dat", RDWR | CREAT | EXCL);
    assert_eq!(node.write(handle, 0, b"hello files"), 11);
    let on_disk = std::fs::read(inside.path().join("out.dat")).expect("there");
    assert_eq!(on_disk, b"hello files");
    assert_eq!(node.read(handle, 6, 100).output, b"files");
    assert_eq!(node.open("none", RDONLY), ENOENT);

    // The rest of the machine is not there.
    let secret = outside.path().join("secret");
    assert_eq!(node.open(&secret.to_string_lossy(), RDONLY), ENOENT);
    let up = format!("{}{}", "../".repeat(40), secret.display());
    assert_eq!(node.open(&up, RDONLY), ENOENT);
    std::os::unix::fs::symlink(&secret, inside.path().join("link")).expect("a link");
    assert_eq!(node.open("link", RDONLY), ENOENT);
    for path in [
        "/etc/passwd",
        "/proc/self/root",
        "/proc/1/environ",
        "/dev/sda",
        "/dev/null",
    ] {
        assert_eq!(node.open(path, RDONLY), ENOENT, "{path}");
    }
    assert_eq!(node.open("/new", RDWR | CREAT), EROFS);
    // `/tmp` is the nodes' own.
    assert_eq!(node.open("/tmp/scratch", RDWR | CREAT), EROFS);
    let link = Call::new(Op::Link, WORKING).with_input(b"out.dat\0/tmp/hard".to_vec());
    assert_eq!(node.call(link).result, EROFS);

    let reply = node.call(Call::new(Op::Path, WORKING).with_room(4_000));
    assert_eq!(reply.output, inside.path().as_os_str().as_encoded_bytes());
}

#[test]
fn a_rank_that_has_ended_holds_nothing() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let (mut first, mut second) = (Node::new(&service, 0), Node::new(&service, 1));
    let lock = |handle, kind| Call::new(Op::Lock, handle).with_words([kind as u64, 0, 10, 0]);
    let one = first.open_ok("file", RDWR | CREAT);
    let two = second.open_ok("file", RDWR);
    for kind in [Lock::Write, Lock::WholeWrite] {
        assert_eq!(first.call(lock(one, kind)).result, 0);
        assert_eq!(second.call(lock(two, kind)).result, EAGAIN);
    }
    service.leave(JOB, Rank(0));
    let begun = Instant::now();
    for kind in [Lock::Write, Lock::WholeWrite] {
        while second.call(lock(two, kind)).result == EAGAIN {
            assert!(begun.elapsed() < Duration::from_secs(20), "{kind:?}");
        }
    }
    assert_eq!(first.read(one, 0, 10).result, EBADF);
    assert!(first.open("file", RDWR) < 0);
}

#[test]
fn bulk_data_goes_both_ways_unharmed() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    let handle = node.open_ok("bulk", RDWR | CREAT);
    let whole: Vec<u8> = (0..16_u32 << 20)
        .map(|at| (at * 31 + (at >> 9)) as u8)
        .collect();
    for (index, piece) in whole.chunks(MAX_TRANSFER).enumerate() {
        let written = node.write(handle, (index * MAX_TRANSFER) as u64, piece);
        assert_eq!(written, piece.len() as i64);
    }
    let path = inside.path().join("bulk");
    assert!(std::fs::read(&path).expect("there") == whole);
    for (index, piece) in whole.chunks(MAX_TRANSFER).enumerate() {
        let reply = node.read(handle, (index * MAX_TRANSFER) as u64, MAX_TRANSFER);
        assert!(reply.output == piece);
    }
    assert_eq!(node.read(handle, whole.len() as u64, 10).result, 0);
}

#[test]
fn what_is_appended_is_there_once_whatever_is_lost() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut expected = Vec::new();
    for (rank, loses_each) in [(0, 5), (1, 11)] {
        let mut node = Node::new(&service, rank);
        node.loses_each = loses_each;
        let handle = node.open_ok("log", RDWR | CREAT | APPEND);
        for index in 0..40_u32 {
            // Some fit a datagram, some are pulled.
            let bytes = vec![index as u8; (index as usize % 5) * 900 + 1];
            expected.extend_from_slice(&bytes);
            let call = Call::new(Op::Write, handle).with_input(bytes);
            let reply = node.call(call.with_room(8));
            assert_eq!(reply.output, (expected.len() as u64).to_le_bytes());
        }
    }
    let log = std::fs::read(inside.path().join("log")).expect("there");
    assert!(log == expected);
}

#[test]
fn names_change_as_on_linux() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    assert_eq!(node.plain(Op::MakeDirectory, [0o755, 0, 0, 0], "d"), 0);
    let handle = node.open_ok("d/a", RDWR | CREAT);
    assert_eq!(node.write(handle, 0, b"12345"), 5);
    let rename = Call::new(Op::Rename, WORKING).with_input(b"d/a\0d/b".to_vec());
    assert_eq!(node.call(rename).result, 0);
    assert!(inside.path().join("d/b").exists());
    assert_eq!(node.plain(Op::SetLength, [2, 0, 0, 0], "d/b"), 0);
    let stat = Call::new(Op::Stat, WORKING).with_input(b"d/b".to_vec());
    let reply = node.call(stat.with_room(200));
    let metadata = Metadata::parse(&reply.output).expect("metadata");
    assert_eq!((metadata.size, metadata.mode & 0o777), (2, 0o644));
    let link = Call::new(Op::SymbolicLink, WORKING).with_input(b"b\0d/s".to_vec());
    assert_eq!(node.call(link).result, 0);
    let read = Call::new(Op::ReadLink, WORKING).with_input(b"d/s".to_vec());
    assert_eq!(node.call(read.with_room(100)).output, b"b");
    let directory = node.open_ok("d", RDONLY);
    let list = Call::new(Op::ReadDirectory, directory).with_room(4_000);
    let reply = node.call(list);
    let mut names = Vec::new();
    let mut rest = &reply.output[..];
    while let Some((entry, behind)) = Entry::parse(rest).expect("entries") {
        names.push(String::from_utf8_lossy(entry.name).into_owned());
        rest = behind;
    }
    names.sort();
    assert_eq!(names, [".", "..", "b", "s"]);
    assert_eq!(node.plain(Op::Remove, [0, 0, 0, 0], "d/s"), 0);
    assert_eq!(node.plain(Op::Remove, [0, 0, 0, 0], "d/b"), 0);
    assert_eq!(node.plain(Op::Remove, [0x200, 0, 0, 0], "d"), 0);
    assert!(!inside.path().join("d").exists());
    // The file was open, and is there until it is closed.
    assert_eq!(node.read(handle, 0, 10).output, b"12");
    assert_eq!(node.call(Call::new(Op::Close, handle)).result, 0);
    assert_eq!(node.call(Call::new(Op::Close, handle)).result, EBADF);
}

#[test]
fn ranks_lock_each_other_out_and_append_in_turn() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let (mut first, mut second) = (Node::new(&service, 0), Node::new(&service, 1));
    let one = first.open_ok("shared", RDWR | CREAT | APPEND);
    let two = second.open_ok("shared", RDWR | APPEND);
    let lock = |handle, kind: Lock| Call::new(Op::Lock, handle).with_words([kind as u64, 0, 10, 0]);
    assert_eq!(first.call(lock(one, Lock::Write)).result, 0);
    assert_eq!(second.call(lock(two, Lock::Write)).result, EAGAIN);
    let test = Call::new(Op::Lock, two).with_words([Lock::Write as u64, 0, 5, 1]);
    assert_eq!(second.call(test.with_room(24)).output.len(), 24);
    // Counted from the end of a file of 20 bytes, the last ten of them are free.
    assert_eq!(
        second
            .call(Call::new(Op::SetLength, two).with_words([20]))
            .result,
        0
    );
    let from_end = |start: i64, length: i64| {
        let words = [
            Lock::Write as u64,
            start as u64,
            length as u64,
            LOCK_FROM_END,
        ];
        Call::new(Op::Lock, two).with_words(words)
    };
    assert_eq!(second.call(from_end(-10, 0)).result, 0);
    assert_eq!(second.call(from_end(-10, -1)).result, EAGAIN);
    assert_eq!(second.call(from_end(-21, 1)).result, EINVAL);
    assert_eq!(second.call(Call::new(Op::SetLength, two)).result, 0);
    assert_eq!(first.call(Call::new(Op::Close, one)).result, 0);
    assert_eq!(second.call(lock(two, Lock::Write)).result, 0);
    let append = |text: &[u8]| {
        let call = Call::new(Op::Write, two).with_input(text.to_vec());
        call.with_room(8)
    };
    assert_eq!(second.call(append(b"abc")).output, 3_u64.to_le_bytes());
    assert_eq!(second.call(append(b"de")).output, 5_u64.to_le_bytes());
    // A handle is its rank's own.
    assert_eq!(first.read(two, 0, 1).result, EBADF);
}

#[test]
fn a_read_only_export_and_one_that_is_not_there() {
    let inside = tempfile::tempdir().expect("a directory");
    std::fs::write(inside.path().join("in"), b"in").expect("written");
    let service = service();
    let export = Export {
        host: inside.path().into(),
        node: "/data".into(),
        read_only: true,
    };
    service.admit(files(vec![export], Path::new("/data")));
    let mut node = Node::new(&service, 0);
    assert_eq!(node.open("new", RDWR | CREAT), EROFS);
    let handle = node.open_ok("/data/in", RDONLY);
    assert_eq!(node.read(handle, 0, 10).output, b"in");

    service.admit(files(
        vec![Export::same("/none/at/all")],
        Path::new("/none/at/all"),
    ));
    let mut node = Node::new(&service, 0);
    assert_eq!(node.open("in", RDONLY), EIO);
    let problem = service.next_problem().expect("told");
    assert!(problem.why.contains("/none/at/all"), "{}", problem.why);
}

/// A service whose workers say which process they are, in this file.
fn service_with_pid(folder: &Path) -> (Service, PathBuf) {
    let (script, pid) = (folder.join("worker"), folder.join("pid"));
    let text = format!(
        "#!/bin/sh\necho $$ > {}\nexec {WORKER} \"$@\"\n",
        pid.display()
    );
    std::fs::write(&script, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("set");
    (service_of(script), pid)
}

/// Kills the worker whose number is in this file.
fn kill(pid: &Path) {
    let worker = std::fs::read_to_string(pid).expect("a worker");
    let worker = nix::unistd::Pid::from_raw(worker.trim().parse().expect("a number"));
    nix::sys::signal::kill(worker, nix::sys::signal::Signal::SIGKILL).expect("killed");
}

#[test]
fn a_worker_that_dies_costs_what_was_open_and_another_serves_on() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (service, pid) = service_with_pid(beside.path());
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let (mut node, mut other) = (Node::new(&service, 0), Node::new(&service, 1));
    let handle = node.open_ok("f", RDWR | CREAT);
    assert_eq!(node.write(handle, 0, b"before"), 6);
    other.open_ok("g", RDWR | CREAT);
    kill(&pid);
    let run = node.run();
    // Either it was given to the worker, or the service knew of its death.
    let result = node.read(handle, 0, 6).result;
    assert!([EIO, NOT_CARRIED_OUT].contains(&result), "{result}");
    let problem = service.next_problem().expect("told");
    assert!(problem.job == JOB && problem.why.contains("ended"));
    // A second after the first began another one may; the call waits for it. What was open is of
    // the run before, and is none of this one: the node knows that, and asks for none of it.
    let again = node.open_ok("f", RDWR);
    assert!(node.run() > run);
    assert_eq!(node.read(again, 0, 10).output, b"before");
    // Who made no call meanwhile hears of it at its next one, which nobody carries out.
    assert_eq!(other.open("g", RDWR), NOT_CARRIED_OUT);
    other.open_ok("g", RDWR);
}

#[test]
fn a_worker_ends_with_its_job_and_when_no_service_comes() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (service, pid) = service_with_pid(beside.path());
    let worker = || {
        let text = std::fs::read_to_string(&pid).expect("a worker");
        PathBuf::from(format!("/proc/{}/stat", text.trim()))
    };
    // One that has ended and that nobody has asked about is a zombie.
    let runs =
        |worker: &Path| std::fs::read_to_string(worker).is_ok_and(|stat| !stat.contains(") Z "));
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    Node::new(&service, 0).open_ok("f", RDWR | CREAT);
    let first = worker();
    assert!(runs(&first));
    service.close(JOB);
    let begun = Instant::now();
    while runs(&first) {
        assert!(begun.elapsed() < Duration::from_secs(5), "it stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    Node::new(&service, 0).open_ok("f", RDWR | CREAT);
    let second = worker();
    drop(service);
    assert!(runs(&second));
    let begun = Instant::now();
    while runs(&second) {
        assert!(
            begun.elapsed() < Duration::from_secs(4 * LINGERS_S),
            "stays"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A job ends while its service is away: the next one ends its worker, and no other.
#[test]
fn a_worker_whose_job_ended_meanwhile_ends_with_the_next_service() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let service = service_at(0, WORKER.into(), beside.path());
    let port = service.address().port();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    let handle = node.open_ok("f", RDWR | CREAT);
    let lock = Call::new(Op::Lock, handle).with_words([Lock::Write as u64, 0, 10, 0]);
    assert_eq!(node.call(lock).result, 0);
    drop(service);
    let workers = beside.path().join("workers");
    let is_left = || std::fs::read_dir(&workers).expect("there").count() > 0;
    assert!(is_left(), "a socket for the next service");
    let service = service_at(port, WORKER.into(), beside.path());
    service.close_others([JOB].into());
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    assert_eq!(
        node.call(Call::new(Op::Read, handle).with_room(1)).result,
        0
    );
    drop(service);
    let service = service_at(port, WORKER.into(), beside.path());
    let begun = Instant::now();
    service.close_others([].into());
    while is_left() {
        assert!(begun.elapsed() < Duration::from_secs(1), "it stays");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Services come and go at one address, in the middle of calls: nothing fails, each line is there
/// once, and what was open, locked or has no name any more is as it was.
#[test]
fn nothing_happens_when_another_service_takes_over() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let begin = |port| {
        let service = service_at(port, WORKER.into(), beside.path());
        let mut files = files(vec![Export::same(inside.path())], inside.path());
        // As a control node does that is started again: its nodes are known later.
        let members = std::mem::take(&mut files.members);
        service.admit(files);
        service.add(JOB, members);
        service
    };
    let mut service = begin(0);
    let port = service.address().port();
    let (mut node, mut other) = (Node::new(&service, 0), Node::new(&service, 1));
    let log = node.open_ok("log", RDWR | CREAT | EXCL | APPEND);
    let nameless = node.open_ok("nameless", RDWR | CREAT);
    let bulk = vec![9; MAX_TRANSFER];
    assert_eq!(node.write(nameless, 0, &bulk), bulk.len() as i64);
    assert_eq!(node.plain(Op::Remove, [0; 4], "nameless"), 0);
    let lock = |handle| Call::new(Op::Lock, handle).with_words([Lock::Write as u64, 0, 10, 0]);
    assert_eq!(node.call(lock(log)).result, 0);
    let run = node.run();
    let mut expected = Vec::new();
    for round in 0..12_usize {
        // What fits a datagram and what does not, one that opens, and one that reads much.
        let line = vec![round as u8; round * 700 + 1];
        expected.extend_from_slice(&line);
        let write = Call::new(Op::Write, log).with_input(line).with_room(8);
        let made = Call::new(Op::MakeDirectory, WORKING).with_words([0o755]);
        let read = Call::new(Op::Read, nameless).with_room(MAX_TRANSFER);
        let calls = [
            write,
            made.with_input(format!("d{round}").into_bytes()),
            read,
        ];
        let numbers = calls.map(|call| node.submit(call));
        for _ in 0..round % 4 {
            node.step();
        }
        drop(service);
        service = begin(port);
        let replies = numbers.map(|number| node.finish(number));
        assert_eq!(replies[0].output, (expected.len() as u64).to_le_bytes());
        assert_eq!(replies[1].result, 0, "the second of two would be EEXIST");
        assert!(replies[2].output == bulk);
    }
    assert_eq!(node.run(), run);
    let theirs = other.open_ok("log", RDWR);
    assert_eq!(other.call(lock(theirs)).result, EAGAIN);
    let log = std::fs::read(inside.path().join("log")).expect("there");
    assert!(log == expected);
    assert_eq!(service.next_problem(), None);
}

#[test]
fn a_worker_that_dies_while_no_service_is_there_is_told() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let (first, pid) = service_with_pid(beside.path());
    first.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&first, 0);
    let port = first.address().port();
    node.open_ok("f", RDWR | CREAT);
    drop(first);
    kill(&pid);
    let directory = beside.path().join("another");
    let second = service_at(port, WORKER.into(), &directory);
    second.admit(files(vec![Export::same(inside.path())], inside.path()));
    let first_call = node.open("f", RDWR);
    assert!([EIO, NOT_CARRIED_OUT].contains(&first_call), "{first_call}");
    let problem = second.next_problem().expect("told");
    assert!(problem.job == JOB && problem.why.contains("while its service was away"));
    node.open_ok("f", RDWR);
    assert_eq!(second.next_problem(), None, "told twice");
}

#[test]
fn a_full_disk_is_an_errno_and_what_was_written_stays() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let disk = inside.path().join("disk");
    std::fs::create_dir(&disk).expect("made");
    let mount = format!("mount -t tmpfs -o size=1m none {}", disk.display());
    let service = service_within(beside.path(), &mount);
    service.admit(files(vec![Export::same(inside.path())], &disk));
    let mut node = Node::new(&service, 0);
    let handle = node.open_ok("full", RDWR | CREAT);
    assert_eq!(node.write(handle, 0, b"first"), 5);
    let piece = vec![7; MAX_TRANSFER];
    let mut offset = 5;
    let refused = loop {
        match node.write(handle, offset, &piece) {
            written @ 1.. => offset += written as u64,
            refused => break refused,
        }
    };
    assert_eq!(refused, ENOSPC);
    assert!(offset > 900 << 10 && offset <= 1 << 20, "{offset}");
    let more = Call::new(Op::Allocate, handle).with_words([0, 0, 2 << 20]);
    assert_eq!(node.call(more).result, ENOSPC);
    assert_eq!(node.read(handle, 0, 5).output, b"first");
    assert_eq!(node.read(handle, offset - 3, 5).output, [7; 3]);
    // A name takes no page, and what is removed makes room.
    assert_eq!(node.plain(Op::Remove, [0; 4], "full"), 0);
    assert_eq!(node.call(Call::new(Op::Close, handle)).result, 0);
    let handle = node.open_ok("again", RDWR | CREAT);
    assert_eq!(node.write(handle, 0, &piece), MAX_TRANSFER as i64);
    assert_eq!(service.next_problem(), None);
}

#[test]
fn a_write_that_fills_the_disk_leaves_what_it_reports() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let disk = inside.path().join("disk");
    std::fs::create_dir(&disk).expect("made");
    let mount = format!("mount -t tmpfs -o size=1m none {}", disk.display());
    let service = service_within(beside.path(), &mount);
    service.admit(files(vec![Export::same(inside.path())], &disk));
    let mut node = Node::new(&service, 0);
    for flags in [0, APPEND] {
        let full = node.open_ok("full", RDWR | CREAT);
        let room = 600 << 10;
        let more = Call::new(Op::Allocate, full).with_words([0, 0, room]);
        assert_eq!(node.call(more).result, 0);
        // Pieces are lost, so that they are carried out in another order than they were made.
        node.loses_each = 7;
        let handle = node.open_ok("f", RDWR | CREAT | flags);
        let (pieces, bytes) = (10, MAX_TRANSFER as u64);
        let mut first = 0;
        let piece = |first, index| {
            let at = index * bytes;
            let call = Call::new(Op::Write, handle).with_words([at, first, at, pieces * bytes]);
            let call = call.with_input(vec![index as u8 + 1; MAX_TRANSFER]);
            call.with_room(16)
        };
        let mut numbers = Vec::new();
        for index in 0..pieces {
            let number = node.submit(piece(first, index));
            first = if first == 0 { number } else { first };
            numbers.push(number);
        }
        let mut written = 0;
        let mut refused = false;
        for number in numbers {
            let reply = node.finish(number);
            let word = reply.output.first_chunk().expect("a number");
            written = written.max(u64::from_le_bytes(*word));
            refused |= reply.result == ENOSPC;
            assert!([0, ENOSPC].contains(&reply.result), "{}", reply.result);
        }
        node.loses_each = 0;
        assert!(refused && written > 0 && written < pieces * bytes);
        let length = node.call(Call::new(Op::Seek, handle).with_words([0, 4]));
        assert_eq!(
            length.result as u64, written,
            "a hole, or more than was said"
        );
        let last = node.read(handle, written - 1, 9).output;
        assert_eq!(last, [((written - 1) / bytes) as u8 + 1]);
        for (name, handle) in [("f", handle), ("full", full)] {
            assert_eq!(node.plain(Op::Remove, [0; 4], name), 0);
            assert_eq!(node.call(Call::new(Op::Close, handle)).result, 0);
        }
    }
}

#[test]
fn a_quota_is_an_errno() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let disk = inside.path().join("disk");
    std::fs::create_dir(&disk).expect("made");
    let options = "size=8m,usrquota,usrquota_block_hardlimit=1m";
    let mount = format!("mount -t tmpfs -o {options} none {}", disk.display());
    let service = service_within(beside.path(), &mount);
    service.admit(files(vec![Export::same(inside.path())], &disk));
    let mut node = Node::new(&service, 0);
    let handle = match node.open("f", RDWR | CREAT) {
        // Linux has it from 6.6 on, if it is built in, and not for everybody.
        EIO => return eprintln!("left out: no quota on this system's tmpfs"),
        opened => u32::try_from(opened).expect("opened"),
    };
    let piece = vec![7; MAX_TRANSFER];
    let writes = (0..32).map(|at| node.write(handle, at * MAX_TRANSFER as u64, &piece));
    let refused = writes.into_iter().find(|written| *written < 0);
    assert_eq!(refused, Some(EDQUOT));
}

/// A file system of a megabyte in a file, mounted here; the kernel may know no other quota than
/// that of btrfs.
struct Btrfs(tempfile::TempDir);

impl Btrfs {
    /// Nothing where a command fails: this user is not root, or the programs are not here.
    fn with_quota() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a directory");
        let made = Self(folder);
        let script = "set -e; truncate -s 128M disk; mkfs.btrfs -q -M disk; mkdir mounted; \
                      mount -o loop disk mounted; chmod 777 mounted; btrfs quota enable mounted; \
                      btrfs qgroup limit 1m mounted";
        let done = made.run(script);
        done.then_some(made)
    }

    fn run(&self, script: &str) -> bool {
        let mut shell = std::process::Command::new("sh");
        let shell = shell.args(["-c", script]).current_dir(self.0.path());
        let output = shell.output().expect("a shell");
        output.status.success()
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // It may not have been mounted.
        let _ = self.run("umount -l mounted");
    }
}

#[test]
fn a_quota_of_btrfs_is_an_errno() {
    let Some(disk) = Btrfs::with_quota() else {
        return eprintln!("left out: it needs root, btrfs-progs, and btrfs in the kernel");
    };
    let mounted = disk.0.path().join("mounted");
    let service = service();
    service.admit(files(vec![Export::same(&mounted)], &mounted));
    let mut node = Node::new(&service, 0);
    let handle = node.open_ok("f", RDWR | CREAT);
    assert_eq!(node.write(handle, 0, b"first"), 5);
    assert_eq!(node.call(Call::new(Op::Sync, handle)).result, 0);
    let piece = vec![7; MAX_TRANSFER];
    let at = |turn: u64| 5 + turn * MAX_TRANSFER as u64;
    let writes = (0..32).map(|turn| node.write(handle, at(turn), &piece));
    let refused = writes.into_iter().find(|written| *written < 0);
    assert_eq!(refused, Some(EDQUOT));
    assert_eq!(node.read(handle, 0, 5).output, b"first");
}

#[test]
fn a_limit_of_file_sizes_is_an_errno_and_no_end() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    // In units of 512 bytes.
    let service = service_within(beside.path(), "ulimit -f 8");
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    let handle = node.open_ok("f", RDWR | CREAT);
    assert_eq!(node.write(handle, 0, &[7; 8192]), 4096, "as much as fits");
    assert_eq!(node.write(handle, 4096, b"x"), EFBIG);
    let longer = Call::new(Op::SetLength, handle).with_words([1 << 20]);
    assert_eq!(node.call(longer).result, EFBIG);
    assert_eq!(node.read(handle, 4095, 5).output, [7]);
    assert_eq!(service.next_problem(), None);
}

#[test]
fn a_service_out_of_descriptors_is_an_errno_and_serves_on() {
    let (inside, beside) = (
        tempfile::tempdir().expect("a directory"),
        tempfile::tempdir().expect("a directory"),
    );
    let service = service_within(beside.path(), "ulimit -n 40");
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    let first = node.open_ok("f", RDWR | CREAT);
    let opened: Vec<i64> = (0..60).map(|_| node.open("f", RDWR)).collect();
    let most = opened.iter().position(|result| *result < 0).expect("full");
    assert!((10..40).contains(&most), "{most} files");
    assert!(opened[most..].iter().all(|result| *result == EMFILE));
    assert_eq!(node.open("new", RDWR | CREAT), EMFILE);
    assert!(!inside.path().join("new").exists());
    // What is open is as it was, and what is closed makes room.
    assert_eq!(node.write(first, 0, b"still"), 5);
    let last = u32::try_from(opened[0]).expect("a handle");
    assert_eq!(node.call(Call::new(Op::Close, last)).result, 0);
    node.open_ok("new", RDWR | CREAT);
    assert_eq!(service.next_problem(), None);
}

/// A service whose workers begin after a command of the shell, in mount and user namespaces of
/// their own, where root of the machine has nothing to say.
fn service_within(folder: &Path, command: &str) -> Service {
    let script = folder.join("worker");
    let text = format!(
        "#!/bin/sh -e\n[ -n \"$INSIDE\" ] || exec env INSIDE=1 unshare -rm \"$0\" \"$@\"\n\
         {command}\nexec {WORKER} \"$@\"\n"
    );
    std::fs::write(&script, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("set");
    service_of(script)
}

#[test]
fn a_rank_has_a_bounded_number_of_open_files() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    let opened = (0..300).map(|_| node.open("f", RDWR | CREAT));
    let opened: Vec<i64> = opened.collect();
    assert_eq!(opened.iter().position(|result| *result < 0), Some(257));
    assert!(opened[257..].iter().all(|result| *result == EMFILE));
    let last = u32::try_from(opened[0]).expect("a handle");
    assert_eq!(node.call(Call::new(Op::Close, last)).result, 0);
    node.open_ok("f", RDWR);
}
