//! System-call numbers of the Linux x86-64 ABI that the kernel knows by name, and its own, which
//! begin at 4096: far above those that Linux has.
//!
//! Everything else is answered ENOSYS and counted by number.

macro_rules! calls {
    ($($name:ident = $number:literal;)*) => {
        $(#[doc = stringify!($name)] pub const $name: u64 = $number;)*

        /// Name of a call in lower case, for reports; `None` when the kernel has no name for it.
        pub const fn name(number: u64) -> Option<&'static str> {
            match number {
                $($number => Some(stringify!($name)),)*
                _ => None,
            }
        }
    };
}

calls! {
    READ = 0;
    WRITE = 1;
    OPEN = 2;
    CLOSE = 3;
    STAT = 4;
    FSTAT = 5;
    LSTAT = 6;
    POLL = 7;
    LSEEK = 8;
    MMAP = 9;
    MPROTECT = 10;
    MUNMAP = 11;
    BRK = 12;
    RT_SIGACTION = 13;
    RT_SIGPROCMASK = 14;
    RT_SIGRETURN = 15;
    IOCTL = 16;
    PREAD64 = 17;
    PWRITE64 = 18;
    READV = 19;
    WRITEV = 20;
    ACCESS = 21;
    SCHED_YIELD = 24;
    MREMAP = 25;
    MADVISE = 28;
    DUP = 32;
    DUP2 = 33;
    NANOSLEEP = 35;
    GETPID = 39;
    CLONE = 56;
    FORK = 57;
    VFORK = 58;
    EXECVE = 59;
    EXIT = 60;
    KILL = 62;
    UNAME = 63;
    FCNTL = 72;
    FSYNC = 74;
    FDATASYNC = 75;
    GETCWD = 79;
    CREAT = 85;
    READLINK = 89;
    GETTIMEOFDAY = 96;
    GETRUSAGE = 98;
    GETUID = 102;
    GETGID = 104;
    GETEUID = 107;
    GETEGID = 108;
    GETPPID = 110;
    SIGALTSTACK = 131;
    PRCTL = 157;
    ARCH_PRCTL = 158;
    GETTID = 186;
    TKILL = 200;
    TIME = 201;
    FUTEX = 202;
    SCHED_GETAFFINITY = 204;
    GETDENTS64 = 217;
    SET_TID_ADDRESS = 218;
    FADVISE64 = 221;
    CLOCK_GETTIME = 228;
    CLOCK_GETRES = 229;
    CLOCK_NANOSLEEP = 230;
    EXIT_GROUP = 231;
    TGKILL = 234;
    OPENAT = 257;
    NEWFSTATAT = 262;
    READLINKAT = 267;
    FACCESSAT = 269;
    SET_ROBUST_LIST = 273;
    DUP3 = 292;
    PREADV = 295;
    PWRITEV = 296;
    PRLIMIT64 = 302;
    GETRANDOM = 318;
    STATX = 332;
    RSEQ = 334;
    CLONE3 = 435;
    FACCESSAT2 = 439;
    HEARTH_PEER = 4096;
    HEARTH_SELF = 4097;
    HEARTH_POST = 4098;
    HEARTH_WAIT = 4099;
    HEARTH_CANCEL = 4100;
    HEARTH_COUNT = 4101;
}
