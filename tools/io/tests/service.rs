//! A service with its workers, asked over real sockets as a node asks it.

use std::net::{Ipv4Addr, SocketAddrV4, UdpSocket};
use std::path::Path;
use std::time::{Duration, Instant};

use hearth_io::{Export, JobFiles, Service};
use netstack::MAX_DATAGRAM;
use netstack::files::client::{Client, Config};
use netstack::files::server::Member;
use netstack::files::{Call, ChannelId, Entry, Lock, MAX_TRANSFER, Metadata, Op, Reply, WORKING};
use netstack::ids::{BootEpoch, JobId, NodeId, Rank};
use netstack::time::Instant as NetInstant;
use netstack::wire::key::Key;

const JOB: JobId = JobId(5);
const LIMIT: Duration = Duration::from_secs(60);
const RDONLY: u64 = 0;
const RDWR: u64 = 2;
const CREAT: u64 = 0o100;
const EXCL: u64 = 0o200;
const APPEND: u64 = 0o2000;
const ENOENT: i64 = -2;
const EIO: i64 = -5;
const EBADF: i64 = -9;
const EAGAIN: i64 = -11;
const EXDEV: i64 = -18;
const EROFS: i64 = -30;

fn key(rank: u32) -> Key {
    Key([rank as u8 + 1; 16])
}

fn service() -> Service {
    let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);
    let program = env!("CARGO_BIN_EXE_hearth-io-worker");
    Service::start(listen, program.into()).expect("a service")
}

fn files(exports: Vec<Export>, working: &Path) -> JobFiles {
    let member = |rank| Member {
        rank: Rank(rank),
        node: NodeId(rank),
        key: key(rank),
    };
    JobFiles {
        job: JOB,
        user: None,
        exports,
        working: working.into(),
        members: (0..2).map(member).collect(),
    }
}

/// A rank's end.
struct Node {
    client: Client,
    socket: UdpSocket,
    started: Instant,
}

impl Node {
    fn new(service: &Service, rank: u32) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        socket.connect(service.address()).expect("connected");
        let config = Config {
            channel: ChannelId {
                job: JOB,
                rank: Rank(rank),
            },
            node: NodeId(rank),
            boot: BootEpoch(9),
            key: key(rank),
        };
        Self {
            client: Client::new(config),
            socket,
            started: Instant::now(),
        }
    }

    fn now(&self) -> NetInstant {
        NetInstant::from_micros(self.started.elapsed().as_micros() as u64)
    }

    fn step(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        while let Some(length) = self.client.poll_transmit(self.now(), &mut buffer) {
            self.socket.send(&buffer[..length]).expect("sent");
        }
        let wait = Some(Duration::from_millis(5));
        self.socket.set_read_timeout(wait).expect("a time-out");
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let now = self.now();
            self.client.handle_datagram(now, &buffer[..length]);
            self.socket.set_nonblocking(true).expect("set");
        }
        self.socket.set_nonblocking(false).expect("set");
    }

    fn call(&mut self, call: Call) -> Reply {
        let number = self.client.submit(self.now(), call).expect("room");
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LIMIT, "no reply");
            if let Some(completion) = self.client.poll_event() {
                assert_eq!(completion.number, number);
                return completion.reply;
            }
            self.step();
        }
    }

    fn open(&mut self, path: &str, flags: u64) -> i64 {
        let call = Call::new(Op::Open, WORKING).with_words([flags, 0o644]);
        self.call(call.with_input(path.into()).with_room(1_000))
            .result
    }

    fn open_ok(&mut self, path: &str, flags: u64) -> u32 {
        u32::try_from(self.open(path, flags)).expect("opened")
    }

    fn write(&mut self, handle: u32, offset: u64, bytes: &[u8]) -> i64 {
        let call = Call::new(Op::Write, handle).with_words([offset]);
        self.call(call.with_input(bytes.to_vec())).result
    }

    fn read(&mut self, handle: u32, offset: u64, room: usize) -> Reply {
        let call = Call::new(Op::Read, handle).with_words([offset]);
        self.call(call.with_room(room))
    }

    fn plain(&mut self, op: Op, words: [u64; 4], path: &str) -> i64 {
        let call = Call::new(op, WORKING).with_words(words);
        self.call(call.with_input(path.into()).with_room(4_000))
            .result
    }
}

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
    // It may write to its scratch directory, which ends with it.
    let scratch = node.open_ok("/tmp/scratch", RDWR | CREAT);
    assert_eq!(node.write(scratch, 0, b"x"), 1);
    assert!(!Path::new("/tmp/scratch").exists());
    let link = Call::new(Op::Link, WORKING).with_input(b"/tmp/scratch\0hard".to_vec());
    assert_eq!(node.call(link).result, EXDEV);

    let reply = node.call(Call::new(Op::Path, WORKING).with_room(4_000));
    assert_eq!(reply.output, inside.path().as_os_str().as_encoded_bytes());
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

#[test]
fn a_worker_that_dies_costs_its_calls_and_another_serves_on() {
    let inside = tempfile::tempdir().expect("a directory");
    let service = service();
    service.admit(files(vec![Export::same(inside.path())], inside.path()));
    let mut node = Node::new(&service, 0);
    let handle = node.open_ok("f", RDWR | CREAT);
    let own = std::process::id();
    // Threads start workers: their children are theirs.
    let tasks = std::fs::read_dir(format!("/proc/{own}/task")).expect("tasks");
    let mut killed = 0;
    for task in tasks.flatten() {
        let list = std::fs::read_to_string(task.path().join("children")).unwrap_or_default();
        for pid in list.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let root = format!("/proc/{pid}/root");
            let target = format!("{root}{}", inside.path().join("f").display());
            // One that another test is starting still sees everything.
            let is_shut_in = !Path::new(&format!("{root}/etc")).exists();
            if is_shut_in && Path::new(&target).exists() {
                let pid = nix::unistd::Pid::from_raw(pid);
                nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).expect("killed");
                killed += 1;
            }
        }
    }
    assert_eq!(killed, 1, "the worker was found by what it sees");
    std::thread::sleep(Duration::from_millis(1_200));
    let failed = node.read(handle, 0, 1).result;
    assert!([EIO, EBADF].contains(&failed), "{failed}");
    std::thread::sleep(Duration::from_millis(1_200));
    let handle = node.open_ok("f", RDWR);
    assert_eq!(node.write(handle, 0, b"again"), 5);
}
