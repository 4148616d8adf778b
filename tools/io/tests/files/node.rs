//! A rank's end, and what a test starts with.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use hearth_io::{Export, JobFiles, Service, Workers};
use netstack::MAX_DATAGRAM;
use netstack::files::client::{Client, Config};
use netstack::files::server::Member;
use netstack::files::{Call, ChannelId, Op, Reply, WORKING};
use netstack::ids::{BootEpoch, JobId, NodeId, Rank};
use netstack::time::Instant as NetInstant;
use netstack::wire::key::Key;

pub const JOB: JobId = JobId(5);
const LIMIT: Duration = Duration::from_secs(60);
/// How long workers wait for another service.
pub const LINGERS_S: u64 = 5;
pub const RDONLY: u64 = 0;
pub const RDWR: u64 = 2;
pub const CREAT: u64 = 0o100;
pub const EXCL: u64 = 0o200;
pub const TRUNC: u64 = 0o1000;
pub const APPEND: u64 = 0o2000;
pub const DIRECTORY: u64 = 0o20_0000;
pub const NOFOLLOW: u64 = 0o40_0000;
pub const PATH: u64 = 0o1000_0000;
pub const TMPFILE: u64 = 0o2000_0000 | DIRECTORY;
pub const EPERM: i64 = -1;
pub const ENOENT: i64 = -2;
pub const EIO: i64 = -5;
pub const EBADF: i64 = -9;
pub const EAGAIN: i64 = -11;
pub const EACCES: i64 = -13;
pub const EXDEV: i64 = -18;
pub const EINVAL: i64 = -22;
pub const EMFILE: i64 = -24;
pub const EFBIG: i64 = -27;
pub const ENOSPC: i64 = -28;
pub const EROFS: i64 = -30;
pub const EDQUOT: i64 = -122;

fn key(rank: u32) -> Key {
    Key([rank as u8 + 1; 16])
}

/// The program that workers are.
pub const WORKER: &str = env!("CARGO_BIN_EXE_hearth-io-worker");

pub fn service() -> Service {
    service_of(WORKER.into())
}

/// A service whose workers are started by this program, and end with it.
pub fn service_of(program: PathBuf) -> Service {
    static SERVICES: AtomicU32 = AtomicU32::new(0);
    let number = SERVICES.fetch_add(1, Ordering::Relaxed);
    let name = format!("services-{}-{number}", std::process::id());
    service_at(
        0,
        program,
        &Path::new(env!("CARGO_TARGET_TMPDIR")).join(name),
    )
}

/// A service at a port, whose workers listen in this directory.
pub fn service_at(port: u16, program: PathBuf, directory: &Path) -> Service {
    let listen = SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
    // As the control node's is: what a job sees of its exports must not depend on it.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o077));
    let workers = Workers {
        program,
        directory: &directory.join("workers"),
        lingers_s: LINGERS_S,
        last_run: &directory.join("last-run"),
    };
    Service::start(listen, workers).expect("a service")
}

/// The socket of a rank's node: one for each test, which has a thread of its own.
fn socket(rank: u32) -> UdpSocket {
    thread_local! {
        static SOCKETS: RefCell<BTreeMap<u32, UdpSocket>> = RefCell::default();
    }
    let bind = || UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
    SOCKETS.with_borrow_mut(|sockets| {
        let socket = sockets.entry(rank).or_insert_with(bind);
        socket.try_clone().expect("the same socket")
    })
}

fn address(rank: u32) -> SocketAddrV4 {
    match socket(rank).local_addr() {
        Ok(SocketAddr::V4(address)) => address,
        other => panic!("{other:?}"),
    }
}

/// The files of [`JOB`], with two ranks.
pub fn files(exports: Vec<Export>, working: &Path) -> JobFiles {
    let member = |rank| Member {
        rank: Rank(rank),
        node: NodeId(rank),
        address: address(rank),
        key: key(rank),
    };
    JobFiles {
        job: JOB,
        identity: 1,
        user: None,
        exports,
        working: working.into(),
        members: (0..2).map(member).collect(),
        refused: None,
    }
}

/// A rank's end.
pub struct Node {
    client: Client,
    socket: UdpSocket,
    started: Instant,
    completed: BTreeMap<u64, Reply>,
    /// Every so many datagrams, of both directions, are lost; 0: none.
    pub loses_each: u64,
    passed: u64,
}

impl Node {
    pub fn new(service: &Service, rank: u32) -> Self {
        Self::of(service, JOB, rank)
    }

    pub fn of(service: &Service, job: JobId, rank: u32) -> Self {
        let socket = socket(rank);
        socket.connect(service.address()).expect("connected");
        let config = Config {
            channel: ChannelId {
                job,
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
            completed: BTreeMap::new(),
            loses_each: 0,
            passed: 0,
        }
    }

    fn now(&self) -> NetInstant {
        NetInstant::from_micros(self.started.elapsed().as_micros() as u64)
    }

    fn is_lost(&mut self) -> bool {
        self.passed += 1;
        self.loses_each != 0 && self.passed.is_multiple_of(self.loses_each)
    }

    /// What is due, each way.
    pub fn step(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        while let Some(length) = self.client.poll_transmit(self.now(), &mut buffer) {
            if !self.is_lost() {
                // Refused: no service is there.
                let _ = self.socket.send(&buffer[..length]);
            }
        }
        let wait = Some(Duration::from_millis(5));
        self.socket.set_read_timeout(wait).expect("a time-out");
        while let Ok(length) = self.socket.recv(&mut buffer) {
            let now = self.now();
            if !self.is_lost() {
                self.client.handle_datagram(now, &buffer[..length]);
            }
            self.socket.set_nonblocking(true).expect("set");
        }
        self.socket.set_nonblocking(false).expect("set");
    }

    pub fn run(&self) -> u64 {
        self.client.run()
    }

    pub fn call(&mut self, call: Call) -> Reply {
        let number = self.submit(call);
        self.finish(number)
    }

    /// Makes a call, of which nothing is sent yet.
    pub fn submit(&mut self, call: Call) -> u64 {
        self.client.submit(self.now(), call).expect("room")
    }

    /// Waits for the reply to a call.
    pub fn finish(&mut self, number: u64) -> Reply {
        let begun = Instant::now();
        loop {
            assert!(begun.elapsed() < LIMIT, "no reply");
            while let Some(completion) = self.client.poll_event() {
                self.completed.insert(completion.number, completion.reply);
            }
            if let Some(reply) = self.completed.remove(&number) {
                return reply;
            }
            self.step();
        }
    }

    pub fn open(&mut self, path: &str, flags: u64) -> i64 {
        let call = Call::new(Op::Open, WORKING).with_words([flags, 0o644]);
        self.call(call.with_input(path.into()).with_room(1_000))
            .result
    }

    pub fn open_ok(&mut self, path: &str, flags: u64) -> u32 {
        u32::try_from(self.open(path, flags)).expect("opened")
    }

    pub fn write(&mut self, handle: u32, offset: u64, bytes: &[u8]) -> i64 {
        let call = Call::new(Op::Write, handle).with_words([offset]);
        self.call(call.with_input(bytes.to_vec())).result
    }

    pub fn read(&mut self, handle: u32, offset: u64, room: usize) -> Reply {
        let call = Call::new(Op::Read, handle).with_words([offset]);
        self.call(call.with_room(room))
    }

    pub fn plain(&mut self, op: Op, words: [u64; 4], path: &str) -> i64 {
        let call = Call::new(op, WORKING).with_words(words);
        self.call(call.with_input(path.into()).with_room(4_000))
            .result
    }
}
