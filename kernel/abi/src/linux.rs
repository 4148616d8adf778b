//! Constants of the Linux x86-64 ABI: protections, mappings, auxiliary vector, signals.

/// Protections of mmap and mprotect.
pub mod prot {
    /// Pages may not be touched.
    pub const NONE: u64 = 0;
    /// Pages may be read.
    pub const READ: u64 = 1;
    /// Pages may be written.
    pub const WRITE: u64 = 2;
    /// Pages may be executed.
    pub const EXEC: u64 = 4;
    /// Every bit that has a meaning here.
    pub const ALL: u64 = READ | WRITE | EXEC;
}

/// Flags of mmap.
pub mod map {
    /// Changes are seen by others.
    pub const SHARED: u64 = 0x01;
    /// Changes are the caller's own.
    pub const PRIVATE: u64 = 0x02;
    /// Exactly at the address given, whatever is there.
    pub const FIXED: u64 = 0x10;
    /// Not backed by a file.
    pub const ANONYMOUS: u64 = 0x20;
    /// Reserve addresses, not memory.
    pub const NORESERVE: u64 = 0x4000;
    /// Large pages wanted.
    pub const HUGETLB: u64 = 0x4_0000;
    /// For a thread's stack.
    pub const STACK: u64 = 0x2_0000;
    /// Exactly at the address given, an error when something is there.
    pub const FIXED_NOREPLACE: u64 = 0x10_0000;
}

/// Flags of mremap.
pub mod mremap {
    /// The mapping may get another address.
    pub const MAYMOVE: u64 = 1;
    /// It gets exactly the address given, whatever is there.
    pub const FIXED: u64 = 2;
}

/// Advice of madvise.
pub mod advice {
    /// Nothing special, and two kinds of access.
    pub const NORMAL: u64 = 0;
    /// Pages are touched in no order.
    pub const RANDOM: u64 = 1;
    /// Pages are touched in their order.
    pub const SEQUENTIAL: u64 = 2;
    /// Contents are wanted soon.
    pub const WILL_NEED: u64 = 3;
    /// Contents are not wanted any more.
    pub const DO_NOT_NEED: u64 = 4;
    /// Contents may be dropped when memory is short.
    pub const FREE: u64 = 8;
    /// Not for a child process, and for it again.
    pub const DO_NOT_FORK: u64 = 10;
    /// See [`DO_NOT_FORK`].
    pub const DO_FORK: u64 = 11;
    /// Not in a core file, and in it again.
    pub const DO_NOT_DUMP: u64 = 16;
    /// See [`DO_NOT_DUMP`].
    pub const DO_DUMP: u64 = 17;
    /// Not used for some time.
    pub const COLD: u64 = 20;
    /// Large pages are wanted, or not.
    pub const HUGE_PAGE: u64 = 14;
    /// See [`HUGE_PAGE`].
    pub const NO_HUGE_PAGE: u64 = 15;
}

/// What poll, select and epoll say of a descriptor.
pub mod poll {
    /// A read would not wait.
    pub const IN: u32 = 0x1;
    /// Something urgent can be read.
    pub const PRI: u32 = 0x2;
    /// A write would not wait.
    pub const OUT: u32 = 0x4;
    /// Nobody reads what is written.
    pub const ERR: u32 = 0x8;
    /// Nobody writes what is read.
    pub const HUP: u32 = 0x10;
    /// There is no such descriptor.
    pub const NVAL: u32 = 0x20;
    /// The same as [`IN`].
    pub const RDNORM: u32 = 0x40;
    /// The same as [`OUT`].
    pub const WRNORM: u32 = 0x100;
}

/// Commands of epoll, and flags beside the bits of [`poll`].
pub mod epoll {
    /// Has a descriptor watched.
    pub const ADD: u64 = 1;
    /// Has it watched no more.
    pub const DEL: u64 = 2;
    /// Has it watched for something else.
    pub const MOD: u64 = 3;
    /// Told once, until it is changed.
    pub const ONESHOT: u32 = 1 << 30;
    /// Told when something has come about, not as long as it is so.
    pub const EDGE: u32 = 1 << 31;
}

/// Flags of eventfd2 beside those of open.
pub mod eventfd {
    /// A read takes one, not all.
    pub const SEMAPHORE: u64 = 1;
}

/// Flags of open, and what fcntl says of a description.
pub mod open {
    /// How it may be used: read only, write only, both.
    pub const ACCESS_MODE: u64 = 0o3;
    /// Only to be read.
    pub const READ_ONLY: u64 = 0o0;
    /// Only to be written.
    pub const WRITE_ONLY: u64 = 0o1;
    /// Both.
    pub const READ_WRITE: u64 = 0o2;
    /// Made when it is not there.
    pub const CREATE: u64 = 0o100;
    /// An error when it is there.
    pub const EXCLUSIVE: u64 = 0o200;
    /// Emptied.
    pub const TRUNCATE: u64 = 0o1000;
    /// Written at its end.
    pub const APPEND: u64 = 0o2000;
    /// Does not wait.
    pub const NONBLOCK: u64 = 0o4000;
    /// An error when it is none.
    pub const DIRECTORY: u64 = 0o20_0000;
    /// An error when it is a symbolic link.
    pub const NO_FOLLOW: u64 = 0o40_0000;
    /// Not kept over execve.
    pub const CLOEXEC: u64 = 0o200_0000;
    /// Names it, and no more.
    pub const PATH: u64 = 0o1000_0000;
    /// A file without a name, with [`DIRECTORY`].
    pub const TMPFILE: u64 = 0o2000_0000;
    /// A large file may be opened: always so.
    pub const LARGEFILE: u64 = 0o10_0000;
}

/// Descriptor and flags of calls with a path.
pub mod at {
    /// The working directory.
    pub const CWD: i32 = -100;
    /// The descriptor itself when the path is empty.
    pub const EMPTY_PATH: u64 = 0x1000;
    /// Not through a symbolic link.
    pub const SYMLINK_NOFOLLOW: u64 = 0x100;
    /// Automounts are left alone.
    pub const NO_AUTOMOUNT: u64 = 0x800;
    /// By the effective user.
    pub const EACCESS: u64 = 0x200;
    /// How fresh what statx says must be.
    pub const STATX_SYNC: u64 = 0x6000;
    /// unlinkat: a directory.
    pub const REMOVEDIR: u64 = 0x200;
    /// linkat: what a link leads to.
    pub const SYMLINK_FOLLOW: u64 = 0x400;
}

/// What access asks about.
pub mod access {
    /// Execution, or passing through a directory.
    pub const EXECUTE: u64 = 1;
    /// Writing.
    pub const WRITE: u64 = 2;
    /// Reading.
    pub const READ: u64 = 4;
}

/// Flags of renameat2.
pub mod rename {
    /// Nothing is replaced.
    pub const NOREPLACE: u64 = 1;
    /// Both change places.
    pub const EXCHANGE: u64 = 2;
    /// All that a node knows.
    pub const ALL: u64 = NOREPLACE | EXCHANGE;
}

/// Operations of flock.
pub mod flock {
    /// Others may have it, too.
    pub const SHARED: u64 = 1;
    /// Nobody else has it.
    pub const EXCLUSIVE: u64 = 2;
    /// EAGAIN instead of a wait.
    pub const NONBLOCK: u64 = 4;
    /// It is given back.
    pub const UNLOCK: u64 = 8;
}

/// From where lseek counts.
pub mod seek {
    /// From the start.
    pub const SET: u64 = 0;
    /// From where the description is.
    pub const CUR: u64 = 1;
    /// From the end.
    pub const END: u64 = 2;
    /// To the next data.
    pub const DATA: u64 = 3;
    /// To the next hole.
    pub const HOLE: u64 = 4;
}

/// Commands of ioctl.
pub mod ioctl {
    /// Bytes that can be read at once.
    pub const FIONREAD: u32 = 0x541b;
    /// Whether calls wait.
    pub const FIONBIO: u32 = 0x5421;
}

/// Commands of fcntl.
pub mod fcntl {
    /// A copy of the descriptor.
    pub const DUPFD: u64 = 0;
    /// Flags of the descriptor.
    pub const GETFD: u64 = 1;
    /// Sets them.
    pub const SETFD: u64 = 2;
    /// Flags of the description.
    pub const GETFL: u64 = 3;
    /// Sets them.
    pub const SETFL: u64 = 4;
    /// The lock that stands in the way of one.
    pub const GETLK: u64 = 5;
    /// Sets a lock.
    pub const SETLK: u64 = 6;
    /// Sets a lock, waiting for it.
    pub const SETLKW: u64 = 7;
    /// A copy that is not kept over execve.
    pub const DUPFD_CLOEXEC: u64 = 1030;
    /// Flag of a descriptor: not kept over execve.
    pub const FD_CLOEXEC: u64 = 1;
}

/// Types of files.
pub mod mode {
    /// The bits that are the type.
    pub const KIND: u32 = 0o17_0000;
    /// A pipe.
    pub const PIPE: u32 = 0o01_0000;
    /// A character device.
    pub const CHARACTER: u32 = 0o02_0000;
    /// A directory.
    pub const DIRECTORY: u32 = 0o04_0000;
    /// A regular file.
    pub const REGULAR: u32 = 0o10_0000;
    /// A symbolic link.
    pub const LINK: u32 = 0o12_0000;
}

/// Types of the auxiliary vector.
pub mod auxv {
    /// End of the vector.
    pub const NULL: u64 = 0;
    /// Address of the program headers.
    pub const PHDR: u64 = 3;
    /// Bytes per program header.
    pub const PHENT: u64 = 4;
    /// Number of program headers.
    pub const PHNUM: u64 = 5;
    /// Bytes per page.
    pub const PAGESZ: u64 = 6;
    /// Load address of the interpreter: 0, there is none.
    pub const BASE: u64 = 7;
    /// Flags.
    pub const FLAGS: u64 = 8;
    /// Entry point of the program.
    pub const ENTRY: u64 = 9;
    /// Real user.
    pub const UID: u64 = 11;
    /// Effective user.
    pub const EUID: u64 = 12;
    /// Real group.
    pub const GID: u64 = 13;
    /// Effective group.
    pub const EGID: u64 = 14;
    /// CPU features: CPUID.1:EDX.
    pub const HWCAP: u64 = 16;
    /// Ticks per second of times(2).
    pub const CLKTCK: u64 = 17;
    /// Whether to be careful with the environment: 0.
    pub const SECURE: u64 = 23;
    /// Address of 16 random bytes.
    pub const RANDOM: u64 = 25;
    /// Address of the program's path.
    pub const EXECFN: u64 = 31;
}

/// Functions of arch_prctl.
pub mod arch_prctl {
    /// Set the base of GS.
    pub const SET_GS: u64 = 0x1001;
    /// Set the base of FS.
    pub const SET_FS: u64 = 0x1002;
    /// Read the base of FS.
    pub const GET_FS: u64 = 0x1003;
    /// Read the base of GS.
    pub const GET_GS: u64 = 0x1004;
}

/// Flags of clone.
pub mod clone {
    /// The signal that a process sends its parent when it ends.
    pub const SIGNAL: u64 = 0xff;
    /// The same memory.
    pub const VM: u64 = 0x100;
    /// The same working directory.
    pub const FS: u64 = 0x200;
    /// The same descriptors.
    pub const FILES: u64 = 0x400;
    /// The same actions of signals.
    pub const SIGHAND: u64 = 0x800;
    /// The caller waits until the new one is gone or has another program.
    pub const VFORK: u64 = 0x4000;
    /// A thread of the same process.
    pub const THREAD: u64 = 0x1_0000;
    /// The same undo list of System V semaphores.
    pub const SYSVSEM: u64 = 0x4_0000;
    /// The base of FS is given.
    pub const SETTLS: u64 = 0x8_0000;
    /// The tid is written for the caller.
    pub const PARENT_SETTID: u64 = 0x10_0000;
    /// A word is zeroed and woken when the thread ends.
    pub const CHILD_CLEARTID: u64 = 0x20_0000;
    /// Means nothing any more; musl sets it.
    pub const DETACHED: u64 = 0x40_0000;
    /// The tid is written for the new thread.
    pub const CHILD_SETTID: u64 = 0x100_0000;
}

/// What uname writes: six texts.
pub mod utsname {
    /// Bytes of a text, the zero at its end included.
    pub const FIELD: usize = 65;
    /// Bytes of all.
    pub const BYTES: usize = 6 * FIELD;
    /// The Linux whose numbers and structures these are, for C libraries that look: older ones
    /// refuse to start where it is too old.
    const RELEASE: &str = "6.1.0-hearth";

    /// What uname writes on the node called `name`, under this version of Hearth. Texts that are
    /// too long are cut.
    pub fn of(name: &str, version: &str) -> [u8; BYTES] {
        let mut all = [0; BYTES];
        let texts = ["Linux", name, RELEASE, version, "x86_64", "(none)"];
        for (field, text) in all.chunks_exact_mut(FIELD).zip(texts) {
            let length = text.len().min(FIELD - 1);
            field[..length].copy_from_slice(&text.as_bytes()[..length]);
        }
        all
    }
}

/// Commands of futex, the bits beside them, and what a word holds.
pub mod futex {
    /// Wait until woken while the word holds a value.
    pub const WAIT: u64 = 0;
    /// Wake waiters.
    pub const WAKE: u64 = 1;
    /// Wake waiters, and have others wait at a second word.
    pub const REQUEUE: u64 = 3;
    /// The same while the word holds a value.
    pub const CMP_REQUEUE: u64 = 4;
    /// Change a second word, wake waiters, and those of the second by what it held.
    pub const WAKE_OP: u64 = 5;
    /// Wait with a mask and an absolute time.
    pub const WAIT_BITSET: u64 = 9;
    /// Wake with a mask.
    pub const WAKE_BITSET: u64 = 10;
    /// The word is used by this process only.
    pub const PRIVATE: u64 = 0x80;
    /// An absolute time is one of real time.
    pub const CLOCK_REALTIME: u64 = 0x100;
    /// A mask that any other meets.
    pub const BITSET_ANY: u32 = u32::MAX;

    /// In the word of a mutex: the thread that has it.
    pub const TID_MASK: u32 = 0x3fff_ffff;
    /// In the word of a mutex: the thread that had it ended without giving it back.
    pub const OWNER_DIED: u32 = 0x4000_0000;
    /// In the word of a mutex: threads wait for it.
    pub const WAITERS: u32 = 0x8000_0000;
    /// Bytes of the head of a list of robust mutexes: next, offset of the word, pending.
    pub const ROBUST_HEAD_BYTES: u64 = 24;
    /// Entries of such a list that are looked at.
    pub const ROBUST_LIST_LIMIT: u32 = 2048;
}

/// A signal that ends a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// The terminal is gone.
    Hup = 1,
    /// Interrupted from the terminal.
    Int = 2,
    /// Quit from the terminal.
    Quit = 3,
    /// Instruction the CPU does not know or allow.
    Ill = 4,
    /// Breakpoint or single step.
    Trap = 5,
    /// abort(3), or the job was aborted.
    Abrt = 6,
    /// A page of the program could not be had.
    Bus = 7,
    /// Divide error or floating-point exception.
    Fpe = 8,
    /// Ended from outside, or out of memory.
    Kill = 9,
    /// First of two signals for the program's own use.
    Usr1 = 10,
    /// Memory the program may not touch.
    Segv = 11,
    /// Second of two signals for the program's own use.
    Usr2 = 12,
    /// Nobody reads what it writes.
    Pipe = 13,
    /// Its alarm clock rang.
    Alrm = 14,
    /// Asked to end.
    Term = 15,
    /// A fault of the coprocessor's stack.
    Stkflt = 16,
    /// A child has ended.
    Chld = 17,
    /// May go on.
    Cont = 18,
    /// Must stop.
    Stop = 19,
    /// Stopped from the terminal.
    Tstp = 20,
    /// Reads from the terminal in the background.
    Ttin = 21,
    /// Writes to the terminal in the background.
    Ttou = 22,
    /// Urgent data.
    Urg = 23,
    /// Time limit reached.
    Xcpu = 24,
    /// A file grew too large.
    Xfsz = 25,
    /// A timer of its processor time.
    Vtalrm = 26,
    /// A timer for profiles.
    Prof = 27,
    /// The window has another size.
    Winch = 28,
    /// Input or output is possible.
    Io = 29,
    /// Power fails.
    Pwr = 30,
    /// A system call that is not allowed.
    Sys = 31,
}

impl Signal {
    /// Number of the signal.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Name as a shell prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hup => "SIGHUP",
            Self::Int => "SIGINT",
            Self::Quit => "SIGQUIT",
            Self::Ill => "SIGILL",
            Self::Trap => "SIGTRAP",
            Self::Abrt => "SIGABRT",
            Self::Bus => "SIGBUS",
            Self::Fpe => "SIGFPE",
            Self::Kill => "SIGKILL",
            Self::Usr1 => "SIGUSR1",
            Self::Segv => "SIGSEGV",
            Self::Usr2 => "SIGUSR2",
            Self::Pipe => "SIGPIPE",
            Self::Alrm => "SIGALRM",
            Self::Term => "SIGTERM",
            Self::Stkflt => "SIGSTKFLT",
            Self::Chld => "SIGCHLD",
            Self::Cont => "SIGCONT",
            Self::Stop => "SIGSTOP",
            Self::Tstp => "SIGTSTP",
            Self::Ttin => "SIGTTIN",
            Self::Ttou => "SIGTTOU",
            Self::Urg => "SIGURG",
            Self::Xcpu => "SIGXCPU",
            Self::Xfsz => "SIGXFSZ",
            Self::Vtalrm => "SIGVTALRM",
            Self::Prof => "SIGPROF",
            Self::Winch => "SIGWINCH",
            Self::Io => "SIGIO",
            Self::Pwr => "SIGPWR",
            Self::Sys => "SIGSYS",
        }
    }

    /// Whether a program that it ends leaves a core file where that was asked for (signal(7)).
    pub const fn leaves_core(self) -> bool {
        matches!(
            self,
            Self::Quit
                | Self::Ill
                | Self::Trap
                | Self::Abrt
                | Self::Bus
                | Self::Fpe
                | Self::Segv
                | Self::Xcpu
                | Self::Xfsz
                | Self::Sys
        )
    }

    /// Signal with a number, when it is one that a program can be ended with here.
    pub const fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::Hup,
            2 => Self::Int,
            3 => Self::Quit,
            4 => Self::Ill,
            5 => Self::Trap,
            6 => Self::Abrt,
            7 => Self::Bus,
            8 => Self::Fpe,
            9 => Self::Kill,
            10 => Self::Usr1,
            11 => Self::Segv,
            12 => Self::Usr2,
            13 => Self::Pipe,
            14 => Self::Alrm,
            15 => Self::Term,
            16 => Self::Stkflt,
            17 => Self::Chld,
            18 => Self::Cont,
            19 => Self::Stop,
            20 => Self::Tstp,
            21 => Self::Ttin,
            22 => Self::Ttou,
            23 => Self::Urg,
            24 => Self::Xcpu,
            25 => Self::Xfsz,
            26 => Self::Vtalrm,
            27 => Self::Prof,
            28 => Self::Winch,
            29 => Self::Io,
            30 => Self::Pwr,
            31 => Self::Sys,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    extern crate alloc;

    use super::utsname;

    #[test]
    fn uname_names_the_node() {
        let all = utsname::of("n17", "1.2.3");
        let text = |index: usize| {
            let field = &all[index * utsname::FIELD..][..utsname::FIELD];
            let end = field.iter().position(|byte| *byte == 0).unwrap();
            core::str::from_utf8(&field[..end]).unwrap()
        };
        assert_eq!([text(0), text(1), text(4)], ["Linux", "n17", "x86_64"]);
        assert!(text(2).starts_with("6."), "{}", text(2));
        assert_eq!(text(3), "1.2.3");
    }

    #[test]
    fn a_name_that_is_too_long_for_uname_is_cut() {
        let name = alloc::string::String::from("n").repeat(100);
        let all = utsname::of(&name, "1");
        assert_eq!(all[utsname::FIELD..][..64], name.as_bytes()[..64]);
        assert_eq!(all[2 * utsname::FIELD - 1], 0);
    }
}
