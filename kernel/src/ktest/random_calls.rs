//! Programs of random system calls: whatever they do to their memory, to the files that they were
//! given, in contexts and to other ranks, the node survives them, accounts for every frame and runs
//! the next program.
//!
//! A *seed* is so many programs of [`TABLE_CALLS`] calls each as make [`CALLS_A_SEED`], all from
//! one generator, so that one that was found goes wrong again: `hearth.test=random-calls:SEED` runs
//! one seed, `random-calls:FROM-TO` several.
//!
//! Neighbours: `program` and `exchange` have hostile programs of their own, each for its part
//! alone; here the parts meet.
//!
//! Invariant: what a program does depends on its seed and nothing else, but for those of threads,
//! whose calls meet as the emulated cores come.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use hearth_abi::exchange::{OPERATION_BYTES, Operation};
use hearth_abi::linux::{map, mremap, open, prot};
use hearth_abi::sysno;
use kernel_core::addr::USER_END;
use kernel_core::loader::layout;
use netstack::exchange::{Among, Op};
use netstack::ids::Rank;
use netstack::retention::{Keep, Retention};
use netstack::rng::Rng;
use netstack::time::Micros;

use super::control::FakeControl;
use super::fake_ranks::{FakeRanks, KEY};
use super::files::MAPPED;
use super::program::{file_with, hello_world};
use super::{Outcome, check};
use crate::arch::test_programs::{
    self, PROGRAM_BSS_PAGES as BSS_PAGES, PROGRAM_DATA as DATA, TABLE_CALLS, TABLE_WORDS,
};
use crate::console;
use crate::mm::Hardware;
use crate::mm::{self, DirectMap};
use crate::process;
use crate::time;

/// Calls of one seed.
const CALLS_A_SEED: u64 = 100_000;
/// Seeds of a run that names none.
const SEEDS: (u64, u64) = (0, 10);
/// The same where four threads make the calls, in real time.
const CALLS_OF_THREADS: u64 = 16_000;
const SEEDS_OF_THREADS: (u64, u64) = (0, 3);
const TIME_LIMIT_OF_THREADS_US: u64 = 30_000;
const PAGE: u64 = 4096;
/// Pages of the table of calls, and of the data behind it that calls play with.
const TABLE_PAGES: u64 = 4;
const DATA_PAGES: u64 = 4;
/// Pages of the window that is mapped and unmapped.
const WINDOW_PAGES: u64 = 24;
/// Operations of exchanges that a program may post.
const OPERATIONS: u64 = 24;
/// The file that programs are given.
const FILE_BYTES: u64 = 3 * PAGE + 100;
const FILE_PATH: &[u8] = b"/with/f\0";
/// Virtual time that a program has: most calls that block are ended by it.
const TIME_LIMIT_US: u64 = 100_000;

/// Calls that end the program.
const NOT_RANDOM: [u64; 5] = [
    sysno::EXIT,
    sysno::EXIT_GROUP,
    sysno::KILL,
    sysno::TKILL,
    sysno::TGKILL,
];
/// Calls that the node has. Each must have succeeded in a run, but for those that only ever fail.
const CALLS: [u64; 115] = [
    sysno::READ,
    sysno::READV,
    sysno::WRITE,
    sysno::WRITEV,
    sysno::PREAD64,
    sysno::PREADV,
    sysno::PWRITE64,
    sysno::PWRITEV,
    sysno::OPEN,
    sysno::OPENAT,
    sysno::CREAT,
    sysno::CLOSE,
    sysno::DUP,
    sysno::DUP2,
    sysno::DUP3,
    sysno::LSEEK,
    sysno::IOCTL,
    sysno::FCNTL,
    sysno::FSYNC,
    sysno::FDATASYNC,
    sysno::FADVISE64,
    sysno::FSTAT,
    sysno::STAT,
    sysno::LSTAT,
    sysno::NEWFSTATAT,
    sysno::STATX,
    sysno::ACCESS,
    sysno::FACCESSAT,
    sysno::FACCESSAT2,
    sysno::GETDENTS64,
    sysno::GETCWD,
    sysno::READLINK,
    sysno::READLINKAT,
    sysno::POLL,
    sysno::PPOLL,
    sysno::SELECT,
    sysno::PSELECT6,
    sysno::PIPE,
    sysno::PIPE2,
    sysno::EVENTFD,
    sysno::EVENTFD2,
    sysno::EPOLL_CREATE,
    sysno::EPOLL_CREATE1,
    sysno::EPOLL_CTL,
    sysno::EPOLL_WAIT,
    sysno::EPOLL_PWAIT,
    sysno::MMAP,
    sysno::MREMAP,
    sysno::MUNMAP,
    sysno::MPROTECT,
    sysno::MADVISE,
    sysno::BRK,
    sysno::RT_SIGACTION,
    sysno::RT_SIGPROCMASK,
    sysno::RT_SIGPENDING,
    sysno::RT_SIGSUSPEND,
    sysno::RT_SIGTIMEDWAIT,
    sysno::RT_SIGQUEUEINFO,
    sysno::RT_TGSIGQUEUEINFO,
    sysno::SIGALTSTACK,
    sysno::PAUSE,
    sysno::ALARM,
    sysno::SETITIMER,
    sysno::GETITIMER,
    sysno::ARCH_PRCTL,
    sysno::FUTEX,
    sysno::GETRANDOM,
    sysno::CLOCK_GETRES,
    sysno::CLOCK_GETTIME,
    sysno::CLOCK_NANOSLEEP,
    sysno::NANOSLEEP,
    sysno::GETTIMEOFDAY,
    sysno::TIME,
    sysno::GETRUSAGE,
    sysno::TIMES,
    sysno::SCHED_YIELD,
    sysno::HEARTH_POST,
    sysno::HEARTH_WAIT,
    sysno::HEARTH_CANCEL,
    sysno::HEARTH_SELF,
    sysno::HEARTH_PEER,
    sysno::HEARTH_COUNT,
    sysno::SYSINFO,
    sysno::GETRLIMIT,
    sysno::SETRLIMIT,
    sysno::PRLIMIT64,
    sysno::UMASK,
    sysno::GETCPU,
    sysno::SCHED_GETAFFINITY,
    sysno::SCHED_SETAFFINITY,
    sysno::SCHED_GET_PRIORITY_MIN,
    sysno::SCHED_GET_PRIORITY_MAX,
    sysno::SCHED_GETSCHEDULER,
    sysno::SCHED_SETSCHEDULER,
    sysno::SCHED_GETPARAM,
    sysno::SCHED_SETPARAM,
    sysno::SCHED_RR_GET_INTERVAL,
    sysno::MLOCK,
    sysno::MLOCK2,
    sysno::MUNLOCK,
    sysno::MLOCKALL,
    sysno::MUNLOCKALL,
    sysno::MSYNC,
    sysno::GETPGRP,
    sysno::GETPGID,
    sysno::GETSID,
    sysno::GETPPID,
    sysno::UNAME,
    sysno::GETUID,
    sysno::GETEUID,
    sysno::GETGID,
    sysno::GETEGID,
    sysno::GETPID,
    sysno::GETTID,
    sysno::SET_TID_ADDRESS,
];
/// Of these only ever fail: files are read only, no path is a link, nothing is a terminal; nobody
/// has sent the signal that is waited for.
const ALWAYS_FAIL: [u64; 9] = [
    sysno::PWRITE64,
    sysno::PWRITEV,
    sysno::CREAT,
    sysno::READLINK,
    sysno::READLINKAT,
    sysno::IOCTL,
    sysno::PAUSE,
    sysno::RT_SIGSUSPEND,
    sysno::RT_SIGTIMEDWAIT,
];
/// Calls about memory: the dangerous ones.
const MEMORY: [u64; 7] = [
    sysno::MMAP,
    sysno::MMAP,
    sysno::MREMAP,
    sysno::MUNMAP,
    sysno::MPROTECT,
    sysno::MADVISE,
    sysno::BRK,
];
/// Calls by which the kernel reads or writes the program's memory, and so touches it.
const TOUCHES: [u64; 6] = [
    sysno::GETRANDOM,
    sysno::READ,
    sysno::PREAD64,
    sysno::WRITE,
    sysno::FSTAT,
    sysno::HEARTH_SELF,
];
const EXCHANGES: [u64; 4] = [
    sysno::HEARTH_POST,
    sysno::HEARTH_POST,
    sysno::HEARTH_WAIT,
    sysno::HEARTH_CANCEL,
];

/// Makes the calls of programs.
struct Generator {
    rng: Rng,
}

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        self.rng.below(bound)
    }

    fn one_of(&mut self, list: &[u64]) -> u64 {
        list[self.below(list.len() as u64) as usize]
    }

    /// Anything, likely on the edge of something.
    fn edge(&mut self) -> u64 {
        let random = self.rng.next_u64();
        match random >> 60 {
            0 => random % 8,
            1 => (random % 8).wrapping_neg(),
            2 => DATA + random % 0x2_0000,
            3 => layout::STACK_TOP - random % 0x1_0000,
            4 => layout::MMAP_TOP - random % 0x10 * PAGE,
            5 => USER_END - random % 0x2000,
            6 => mm::layout::PHYSICAL_MAP + random % 0x10_0000,
            7 => 1 << (random % 64),
            8 => random % 0x4000,
            9 => random % 0x100 * PAGE,
            _ => random,
        }
    }

    /// The start of a page that calls meet again and again; now and then one that the program
    /// needs.
    fn page(&mut self) -> u64 {
        let data = DATA + TABLE_PAGES * PAGE;
        match self.below(100) {
            0..40 => data + self.below(DATA_PAGES) * PAGE,
            40..55 => data + (DATA_PAGES + self.below(BSS_PAGES)) * PAGE,
            55..96 => MAPPED + self.below(WINDOW_PAGES) * PAGE,
            96 => DATA + (TABLE_PAGES + DATA_PAGES + BSS_PAGES - 1) * PAGE,
            97 => DATA - PAGE,
            98 => layout::STACK_TOP - (1 + self.below(4)) * PAGE,
            _ => self.edge(),
        }
    }

    fn address(&mut self) -> u64 {
        self.page().wrapping_add(self.below(PAGE))
    }

    fn descriptor(&mut self) -> u64 {
        match self.below(8) {
            0 => 0,
            1 => 1,
            2 => self.edge(),
            _ => 3 + self.below(4),
        }
    }

    fn operation(&mut self) -> Operation {
        let kind = self.below(5) as u16;
        let flags = match self.below(3) {
            0 => self.below(16) as u16,
            _ => 0,
        };
        Operation {
            kind,
            flags,
            rank: self.below(3) as u32,
            context: self.below(4) as u32,
            tag: self.below(3) as u32,
            send: self.address(),
            send_bytes: self.below(0x3000),
            receive: self.address(),
            receive_bytes: self.below(0x3000),
            // A list that lies anywhere, now and then with this rank in it.
            group_size: self.below(9).saturating_sub(6) as u32,
            group: self.below(9).saturating_sub(7) * self.address(),
            number: self.below(9).saturating_sub(6) as u32,
            ..Operation::default()
        }
    }

    /// A call: its number and its arguments.
    fn call(&mut self) -> [u64; TABLE_WORDS] {
        let number = match self.below(16) {
            0..5 => self.one_of(&MEMORY),
            5..9 => self.one_of(&TOUCHES),
            9..12 => self.one_of(&EXCHANGES),
            12..15 => self.one_of(&CALLS),
            _ => self.below(460),
        };
        let number = match NOT_RANDOM.contains(&number) {
            true => sysno::GETPID,
            false => number,
        };
        let mut call = [number, 0, 0, 0, 0, 0, 0];
        for word in &mut call[1..] {
            *word = self.edge();
        }
        // Most calls make some sense, one in eight makes none.
        if self.below(8) > 0 {
            self.sense(number, &mut call[1..]);
        }
        call
    }

    /// Gives a call arguments that may be right.
    fn sense(&mut self, number: u64, arguments: &mut [u64]) {
        let pages = (1 + self.below(6)) * PAGE;
        let protection = self.one_of(&[
            prot::READ | prot::WRITE,
            prot::READ | prot::WRITE,
            prot::READ,
            prot::NONE,
            prot::READ | prot::EXEC,
        ]);
        let path = DATA + TABLE_CALLS * TABLE_WORDS as u64 * 8;
        let sensible = match number {
            sysno::MMAP => {
                let (anonymous, fd) = match self.below(2) {
                    0 => (map::ANONYMOUS, u64::MAX),
                    _ => (0, 3 + self.below(2)),
                };
                let shared = self.below(8) == 0;
                let kind = if shared { map::SHARED } else { map::PRIVATE };
                let offset = self.below(4) * PAGE;
                [
                    self.page(),
                    pages,
                    protection,
                    kind | anonymous | map::FIXED,
                    fd,
                    offset,
                ]
            }
            sysno::MREMAP => {
                let flags = self.one_of(&[0, mremap::MAYMOVE, mremap::MAYMOVE | mremap::FIXED]);
                let length = (1 + self.below(6)) * PAGE;
                [self.page(), pages, length, flags, self.page(), 0]
            }
            sysno::PIPE => [self.address(), 0, 0, 0, 0, 0],
            sysno::PIPE2 => [self.address(), open::NONBLOCK, 0, 0, 0, 0],
            sysno::EVENTFD | sysno::EVENTFD2 => {
                let flags = open::NONBLOCK | self.below(2);
                [self.below(3), flags, 0, 0, 0, 0]
            }
            sysno::EPOLL_CREATE => [1, 0, 0, 0, 0, 0],
            sysno::EPOLL_CREATE1 => [0; 6],
            sysno::EPOLL_CTL => {
                let command = 1 + self.below(3);
                let event = self.address();
                [self.descriptor(), command, self.descriptor(), event, 0, 0]
            }
            sysno::EPOLL_WAIT | sysno::EPOLL_PWAIT => {
                let (events, most) = (self.address(), 1 + self.below(5));
                [self.descriptor(), events, most, self.below(2), 0, 0]
            }
            sysno::MUNMAP => [self.page(), pages, 0, 0, 0, 0],
            sysno::MPROTECT => [self.page(), pages, protection, 0, 0, 0],
            // MADV_DONTNEED.
            sysno::MADVISE => [self.page(), pages, 4, 0, 0, 0],
            sysno::BRK => {
                let end = DATA + (TABLE_PAGES + DATA_PAGES + BSS_PAGES) * PAGE;
                [end + self.below(0x2_0000), 0, 0, 0, 0, 0]
            }
            sysno::GETRANDOM => [self.address(), self.below(0x3000), 0, 0, 0, 0],
            sysno::HEARTH_SELF | sysno::TIME | sysno::UNAME | sysno::TIMES | sysno::SYSINFO => {
                [self.address(), 0, 0, 0, 0, 0]
            }
            sysno::GETRUSAGE | sysno::CLOCK_GETRES => [self.below(2), self.address(), 0, 0, 0, 0],
            sysno::GETCPU => [self.address(), self.address(), 0, 0, 0, 0],
            // RLIMIT_CORE is zero, as most words here are.
            sysno::GETRLIMIT | sysno::SETRLIMIT => [4, self.address() & !7, 0, 0, 0, 0],
            sysno::PRLIMIT64 => [0, self.below(16), 0, self.address(), 0, 0],
            sysno::SCHED_SETAFFINITY => [0, 8, DATA + self.below(PAGE), 0, 0, 0],
            sysno::READ | sysno::WRITE | sysno::FSTAT | sysno::GETDENTS64 | sysno::PREAD64 => {
                let at = self.below(2 * PAGE);
                [
                    self.descriptor(),
                    self.address(),
                    self.below(0x3000),
                    at,
                    0,
                    0,
                ]
            }
            sysno::READV | sysno::WRITEV | sysno::PREADV => [
                self.descriptor(),
                self.address() & !7,
                self.below(3),
                0,
                0,
                0,
            ],
            sysno::OPEN | sysno::STAT | sysno::LSTAT | sysno::ACCESS => {
                let at = if number == sysno::OPEN || number == sysno::ACCESS {
                    0
                } else {
                    self.address()
                };
                [path, at, 0, 0, 0, 0]
            }
            sysno::OPENAT | sysno::FACCESSAT | sysno::FACCESSAT2 => {
                [hearth_abi::linux::at::CWD as u64, path, 0, 0, 0, 0]
            }
            sysno::NEWFSTATAT | sysno::STATX => {
                let at = self.address();
                [
                    hearth_abi::linux::at::CWD as u64,
                    path,
                    if number == sysno::STATX { 0 } else { at },
                    0,
                    at,
                    0,
                ]
            }
            sysno::CLOSE | sysno::DUP | sysno::LSEEK | sysno::FSYNC | sysno::FDATASYNC => {
                [self.descriptor(), self.below(PAGE), self.below(3), 0, 0, 0]
            }
            sysno::DUP2 | sysno::DUP3 | sysno::FCNTL | sysno::FADVISE64 => {
                [self.descriptor(), 4 + self.below(4), 0, 0, 0, 0]
            }
            sysno::GETCWD => [self.address(), 64, 0, 0, 0, 0],
            sysno::POLL => [self.address() & !7, self.below(3), self.below(2), 0, 0, 0],
            sysno::PPOLL => [self.address() & !7, self.below(3), MAPPED, 0, 0, 0],
            sysno::SELECT | sysno::PSELECT6 => [
                self.below(3),
                self.address() & !7,
                self.address() & !7,
                0,
                MAPPED,
                0,
            ],
            sysno::RT_SIGACTION => [1 + self.below(31), 0, self.address() & !7, 8, 0, 0],
            sysno::RT_SIGPROCMASK => [self.below(3), 0, self.address() & !7, 8, 0, 0],
            sysno::RT_SIGPENDING => [self.address() & !7, 8, 0, 0, 0, 0],
            sysno::RT_SIGSUSPEND => [self.address() & !7, 8, 0, 0, 0, 0],
            sysno::RT_SIGTIMEDWAIT => [self.address() & !7, 0, MAPPED, 8, 0, 0],
            // Signal 0 asks whether it could be done: others end most programs.
            sysno::RT_SIGQUEUEINFO => [1, 0, self.address(), 0, 0, 0],
            sysno::RT_TGSIGQUEUEINFO => [1, 1, 0, self.address(), 0, 0],
            sysno::SIGALTSTACK => [0, self.address() & !7, 0, 0, 0, 0],
            sysno::ALARM => [self.below(2), 0, 0, 0, 0, 0],
            sysno::SETITIMER => [0, MAPPED, self.address(), 0, 0, 0],
            sysno::GETITIMER => [self.below(3), self.address(), 0, 0, 0, 0],
            // ARCH_GET_FS.
            sysno::ARCH_PRCTL => [0x1003, self.address() & !7, 0, 0, 0, 0],
            // FUTEX_WAIT on what is hardly there, and FUTEX_WAKE.
            sysno::FUTEX => [
                self.address() & !3,
                self.below(2) + 128,
                self.below(9),
                0,
                0,
                0,
            ],
            sysno::CLOCK_GETTIME => [self.below(2), self.address() & !7, 0, 0, 0, 0],
            sysno::NANOSLEEP => [MAPPED, 0, 0, 0, 0, 0],
            sysno::CLOCK_NANOSLEEP => [self.below(2), 0, MAPPED, 0, 0, 0],
            sysno::GETTIMEOFDAY => [self.address() & !7, 0, 0, 0, 0, 0],
            sysno::SCHED_GETAFFINITY => [0, 8, self.address() & !7, 0, 0, 0],
            sysno::SCHED_GET_PRIORITY_MIN | sysno::SCHED_GET_PRIORITY_MAX => {
                [self.below(6), 0, 0, 0, 0, 0]
            }
            sysno::SCHED_GETSCHEDULER | sysno::GETPGID | sysno::GETSID => [0; 6],
            // Fresh pages are zeros: priority 0.
            sysno::SCHED_SETSCHEDULER => [0, 0, MAPPED, 0, 0, 0],
            sysno::SCHED_SETPARAM => [0, MAPPED, 0, 0, 0, 0],
            sysno::SCHED_GETPARAM | sysno::SCHED_RR_GET_INTERVAL => [0, self.address(), 0, 0, 0, 0],
            sysno::MLOCK | sysno::MLOCK2 | sysno::MUNLOCK | sysno::MSYNC => {
                [self.page(), PAGE, 0, 0, 0, 0]
            }
            sysno::MLOCKALL => [1 + self.below(3), 0, 0, 0, 0, 0],
            sysno::HEARTH_POST => {
                let operations = DATA + TABLE_PAGES * PAGE;
                let at = operations + self.below(OPERATIONS) * OPERATION_BYTES as u64;
                [at, OPERATION_BYTES as u64, 0, 0, 0, 0]
            }
            sysno::HEARTH_WAIT => {
                let (list, status) = (self.address() & !7, self.address() & !7);
                [
                    list,
                    self.below(3),
                    status,
                    self.below(4),
                    self.below(900),
                    0,
                ]
            }
            sysno::HEARTH_CANCEL => [self.below(40), 0, 0, 0, 0, 0],
            sysno::HEARTH_PEER => [self.below(2), self.address() & !7, 0, 0, 0, 0],
            sysno::HEARTH_COUNT => [self.below(16), self.edge(), 0, 0, 0, 0],
            _ => return,
        };
        arguments.copy_from_slice(&sensible);
    }

    /// The data of a program: the table of its calls, the path of its file, and operations.
    fn data(&mut self) -> Vec<u8> {
        let mut data = Vec::new();
        let add = |data: &mut Vec<u8>, words: &[u64]| {
            data.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        };
        let path = DATA + TABLE_CALLS * TABLE_WORDS as u64 * 8;
        add(&mut data, &[sysno::OPEN, path, 0, 0, 0, 0, 0]);
        for _ in 1..TABLE_CALLS {
            let call = self.call();
            add(&mut data, &call);
        }
        data.extend_from_slice(FILE_PATH);
        data.resize((TABLE_PAGES * PAGE) as usize, 0);
        for _ in 0..OPERATIONS {
            let operation = self.operation();
            data.extend_from_slice(&operation.to_bytes());
        }
        data.resize(((TABLE_PAGES + DATA_PAGES) * PAGE) as usize, 0x5a);
        data
    }
}

/// What became of the calls of one number.
#[derive(Clone, Copy, Default)]
struct Count {
    made: u64,
    succeeded: u64,
    blocked: u64,
}

/// By number.
type Counts = BTreeMap<u64, Count>;

/// One program of a seed, warm or cold as it comes.
fn program(
    generator: &mut Generator,
    code: &[u8],
    time_limit_us: u64,
    counts: &mut Counts,
) -> Result<u64, String> {
    let data = generator.data();
    let numbers: Vec<u64> = data
        .chunks_exact(TABLE_WORDS * 8)
        .take(TABLE_CALLS as usize)
        .map(|call| u64::from_le_bytes(call[..8].try_into().unwrap_or_default()))
        .collect();
    let given: Vec<u8> = (0..FILE_BYTES).map(|at| at as u8 ^ 0x5a).collect();
    let mut control = FakeControl::new(file_with(code, &data, 1));
    control.set_size(2);
    let job = control.spec().job;
    control.exchange.launched(job, KEY);
    control.ranks = Some(FakeRanks::new(2, time::now()));
    control.record_only = Some(2);
    control.retention = Retention {
        keep: Keep::Warm,
        read_only: true,
        pristine: true,
        ..Retention::NOTHING
    };
    let id = control.give_file("f", &given, false);
    control.time_limit_us = time_limit_us;
    control.input = vec![7; 20_000];
    let ranks = control.ranks.as_mut().ok_or("no other ranks")?;
    for tag in 0..2u32 {
        let bytes = 500 + 3_000 * u64::from(tag);
        let buffer = ranks.buffer(1, vec![tag as u8; bytes as usize]);
        let send = Op::Send {
            to: Rank(0),
            context: 0,
            tag,
            buffer,
            bytes,
            is_synchronous: false,
        };
        ranks.plan(time::now() + Micros(u64::from(tag) * 500), 1, send);
        let barrier = Op::Barrier {
            among: Among::all(tag),
        };
        ranks.plan(time::now() + Micros(1_000), 1, barrier);
    }
    let launch = control.launch();
    let prepared = process::prepare(&launch, &mut control).map_err(|why| format!("{why:?}"))?;
    let exit = prepared.run_alone(&mut control);
    mm::frames().check()?;
    let mut there = vec![0; given.len()];
    let whole = control.objects.read_bytes(&DirectMap, &id, 0, &mut there);
    check!(whole && there == given, "a program wrote to a file");
    mm::frames().check_tags()?;
    // A call that waits several times has blocked once.
    control.blocked.dedup();
    for made in &control.blocked {
        let number = made.checked_sub(1).and_then(|at| numbers.get(at as usize));
        if let Some(number) = number {
            counts.entry(*number).or_default().blocked += 1;
        }
    }
    // One that came to its end has told what each call gave.
    let told = control.output(2);
    let table = TABLE_CALLS as usize * TABLE_WORDS * 8;
    if let Some(start) = told.len().checked_sub(table)
        && exit.report.status == netstack::io::ExitStatus::Exited(0)
    {
        let results = told[start..].chunks_exact(TABLE_WORDS * 8);
        for (number, call) in numbers.iter().zip(results) {
            let value = i64::from_le_bytes(call[..8].try_into().unwrap_or_default());
            let entry = counts.entry(*number).or_default();
            entry.made += 1;
            entry.succeeded += u64::from(!(-4095..0).contains(&value));
        }
    }
    control.objects.drop_object(&mut Hardware::new(), &id);
    control.warm.drop_program(&mut Hardware::new(), None);
    Ok(exit.report.system_calls)
}

/// Runs seeds, see the module.
pub fn seeds() -> Outcome {
    let (first, last) = super::range().unwrap_or(SEEDS);
    let mut counts = Counts::new();
    for seed in first..last {
        console::raw(format_args!("seed {seed}\n"));
        let mut generator = Generator {
            rng: Rng::new(seed ^ 0x9e37_79b9_7f4a_7c15),
        };
        let (mut calls, mut programs) = (0, 0);
        while calls < CALLS_A_SEED {
            // Programs that end early count for what they did.
            let code = test_programs::call_table_told();
            let made = program(&mut generator, code, TIME_LIMIT_US, &mut counts)
                .map_err(|why| format!("seed {seed}, program {programs}: {why}"))?;
            calls += made.max(1);
            programs += 1;
        }
        hello_world().map_err(|why| format!("after seed {seed}: {why}"))?;
        info!("test", "seed {seed}: {calls} calls by {programs} programs");
    }
    let mut missing = Vec::new();
    for number in CALLS {
        let Count {
            made,
            succeeded,
            blocked,
        } = counts.get(&number).copied().unwrap_or_default();
        let name = sysno::name(number).unwrap_or("?");
        info!(
            "test",
            "{name:20} {made:8} made {succeeded:8} succeeded {blocked:8} blocked"
        );
        if succeeded == 0 && !ALWAYS_FAIL.contains(&number) {
            missing.push(name);
        }
    }
    check!(missing.is_empty(), "never succeeded: {missing:?}");
    Ok(())
}

/// Four threads on as many cores make the calls of each program: they meet in the table of pages,
/// in descriptors, in signals and in operations with other ranks.
pub fn seeds_by_threads() -> Outcome {
    let (first, last) = super::range().unwrap_or(SEEDS_OF_THREADS);
    let code = test_programs::call_table_by_threads();
    for seed in first..last {
        console::raw(format_args!("seed {seed}\n"));
        let mut generator = Generator {
            rng: Rng::new(seed ^ 0x517c_c1b7_2722_0a95),
        };
        let (mut calls, mut programs) = (0, 0);
        while calls < CALLS_OF_THREADS {
            let limit_us = TIME_LIMIT_OF_THREADS_US;
            let made = program(&mut generator, code, limit_us, &mut Counts::new())
                .map_err(|why| format!("seed {seed}, program {programs}: {why}"))?;
            calls += made.max(1);
            programs += 1;
        }
        hello_world().map_err(|why| format!("after seed {seed}: {why}"))?;
        info!("test", "seed {seed}: {calls} calls by {programs} programs");
    }
    Ok(())
}
