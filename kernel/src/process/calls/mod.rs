//! The system calls: number to function.
//!
//! The numbers are those of Linux x86-64; what is not here answers ENOSYS and is counted by
//! number, which C libraries take for an old kernel and work around. docs/abi.md lists the calls,
//! `hearth_abi::missing` says in words what is not here.
//!
//! Invariant: a call either returns a value or an error in rax and the program runs on, or the
//! program ends; nothing it passes can do harm to the node.

mod descriptor;
mod exchange;
mod file;
mod host;
mod memory;
mod peer;
mod random;
mod ready;
mod signal;
mod stream;
mod thread;
mod time;
mod usage;

use hearth_abi::errno::Errno;
use hearth_abi::linux::at;
use hearth_abi::sysno;
use netstack::io::exit::MAX_UNKNOWN_CALLS;

use super::Process;
use super::ending::{Ending, Stop};
use crate::agent::services::NodeServices;
use crate::monitor;

/// Number of the one process and of its one thread.
const PID: u64 = 1;
/// The parent of a program that none has started.
const NOBODY: u64 = 0;
/// The user and group every program runs as.
const ROOT: u64 = 0;

/// Bytes of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;

/// Of a call that has no flags.
const NO_FLAGS: u64 = 0;

/// Arguments of a call: rdi, rsi, rdx, r10, r8, r9.
type Args = [u64; 6];

impl Process {
    /// Carries out the system call that the program has made.
    pub(super) fn system_call(&mut self, services: &mut dyn NodeServices) -> Result<(), Ending> {
        self.account.system_calls += 1;
        let number = self.context.rax;
        monitor::count_call(number);
        // First what costs a program most when it is slow; no signal becomes due by it.
        if let sysno::GETPID | sysno::GETTID | sysno::SET_TID_ADDRESS = number {
            self.context.rax = PID;
            return Ok(());
        }
        let c = &self.context;
        let args = [c.rdi, c.rsi, c.rdx, c.r10, c.r8, c.r9];
        self.context.rax = match self.dispatch(services, number, args) {
            Ok(value) => value,
            Err(Stop::Errno(errno)) => errno.as_return(),
            Err(Stop::Restart) if self.signals.restarts() => {
                self.context.rip -= SYSCALL_BYTES;
                number
            }
            Err(Stop::Restart) => Errno::EINTR.as_return(),
            Err(Stop::Ending(ending)) => return Err(ending),
            Err(Stop::Cause(cause)) => return Err(Ending::killed(cause)),
        };
        self.deliver(services)
    }

    fn dispatch(
        &mut self,
        services: &mut dyn NodeServices,
        number: u64,
        args: Args,
    ) -> Result<u64, Stop> {
        match number {
            sysno::READ => self.read(services, args),
            sysno::READV => self.readv(services, args),
            sysno::WRITE => self.write(services, args),
            sysno::WRITEV => self.writev(services, args),
            sysno::PREAD64 => self.pread64(services, args),
            sysno::PREADV => self.preadv(services, args),
            sysno::PWRITE64 | sysno::PWRITEV => self.pwrite(args[0]),
            sysno::OPEN => self.open(services, at::CWD, args[0], args[1]),
            sysno::OPENAT => self.open(services, args[0] as i32, args[1], args[2]),
            sysno::CREAT => self.creat(services, args[0]),
            sysno::CLOSE => self.close(args[0]),
            sysno::DUP => self.dup(args[0]),
            sysno::DUP2 => self.dup2(args),
            sysno::DUP3 => self.dup3(args),
            sysno::LSEEK => self.lseek(args),
            sysno::IOCTL => self.ioctl(args[0]),
            sysno::FCNTL => self.fcntl(services, args),
            sysno::FSYNC | sysno::FDATASYNC => self.fsync(args[0]),
            sysno::FADVISE64 => self.fadvise64(args[0]),
            sysno::FSTAT => self.fstat(services, args[0], args[1]),
            sysno::STAT | sysno::LSTAT => {
                self.stat(services, at::CWD, [args[0], args[1], NO_FLAGS])
            }
            sysno::NEWFSTATAT => self.stat(services, args[0] as i32, [args[1], args[2], args[3]]),
            sysno::STATX => self.statx(services, args),
            sysno::ACCESS => self.access(services, at::CWD, [args[0], args[1], NO_FLAGS]),
            sysno::FACCESSAT => self.access(services, args[0] as i32, [args[1], args[2], NO_FLAGS]),
            sysno::FACCESSAT2 => self.access(services, args[0] as i32, [args[1], args[2], args[3]]),
            sysno::GETDENTS64 => self.getdents64(services, args),
            sysno::GETCWD => self.getcwd(services, args),
            sysno::READLINK => self.readlink(services, at::CWD, args[0]),
            sysno::READLINKAT => self.readlink(services, args[0] as i32, args[1]),
            sysno::POLL => self.poll(services, args),
            sysno::PPOLL => self.ppoll(services, args),
            sysno::SELECT => self.select(services, args),
            sysno::PSELECT6 => self.pselect6(services, args),
            sysno::MMAP => self.mmap(services, args),
            sysno::MUNMAP => self.munmap(services, args),
            sysno::MPROTECT => self.mprotect(services, args),
            sysno::MADVISE => self.madvise(services, args),
            sysno::BRK => self.brk(services, args[0]),
            sysno::RT_SIGACTION => self.rt_sigaction(services, args),
            sysno::RT_SIGPROCMASK => self.rt_sigprocmask(services, args),
            sysno::RT_SIGPENDING => self.rt_sigpending(services, args),
            sysno::RT_SIGSUSPEND => self.rt_sigsuspend(services, args),
            sysno::RT_SIGTIMEDWAIT => self.rt_sigtimedwait(services, args),
            sysno::RT_SIGRETURN => self.leave_handler(services),
            sysno::SIGALTSTACK => self.sigaltstack(services, args),
            sysno::PAUSE => self.pause(services),
            sysno::ALARM => self.alarm(args[0]),
            sysno::SETITIMER => self.setitimer(services, args),
            sysno::GETITIMER => self.getitimer(services, args),
            sysno::KILL => self.kill(args[0], args[1]),
            sysno::TKILL => self.tkill(args[0], args[1]),
            sysno::RT_SIGQUEUEINFO => self.queue_signal(services, [args[0], args[1], args[2]]),
            sysno::TGKILL | sysno::RT_TGSIGQUEUEINFO if args[0] as i32 != PID as i32 => {
                Err(Errno::ESRCH.into())
            }
            sysno::TGKILL => self.tkill(args[1], args[2]),
            sysno::RT_TGSIGQUEUEINFO => self.queue_signal(services, [args[1], args[2], args[3]]),
            sysno::ARCH_PRCTL => self.arch_prctl(services, args),
            sysno::FUTEX => self.futex(services, args),
            sysno::GETRANDOM => self.getrandom(services, args),
            sysno::CLOCK_GETRES => self.clock_getres(services, args),
            sysno::CLOCK_GETTIME => self.clock_gettime(services, args),
            sysno::CLOCK_NANOSLEEP => self.clock_nanosleep(services, args),
            sysno::NANOSLEEP => self.nanosleep(services, args),
            sysno::GETTIMEOFDAY => self.gettimeofday(services, args),
            sysno::TIME => self.time(services, args[0]),
            sysno::GETRUSAGE => self.getrusage(services, args),
            sysno::TIMES => self.times(services, args[0]),
            sysno::SCHED_YIELD => Ok(0),
            sysno::HEARTH_POST => self.hearth_post(services, args),
            sysno::HEARTH_WAIT => self.hearth_wait(services, args),
            sysno::HEARTH_CANCEL => self.hearth_cancel(services, args),
            sysno::HEARTH_SELF => self.hearth_self(services, args),
            sysno::HEARTH_PEER => self.hearth_peer(services, args),
            sysno::HEARTH_COUNT => match monitor::set_counter(args[0], args[1] as i64) {
                true => Ok(0),
                false => Err(Errno::EINVAL.into()),
            },
            sysno::UNAME => self.uname(services, args[0]),
            sysno::SYSINFO => self.sysinfo(services, args[0]),
            sysno::GETRLIMIT => self.prlimit64(services, [PID, args[0], 0, args[1]]),
            sysno::SETRLIMIT => self.prlimit64(services, [PID, args[0], args[1], 0]),
            sysno::PRLIMIT64 => self.prlimit64(services, [args[0], args[1], args[2], args[3]]),
            sysno::UMASK => Ok(self.files.set_mode_mask(args[0])),
            sysno::GETCPU => self.getcpu(services, args),
            sysno::SCHED_GETAFFINITY => self.sched_getaffinity(services, args),
            sysno::SCHED_SETAFFINITY => self.sched_setaffinity(services, args),
            sysno::GETPPID => Ok(NOBODY),
            sysno::GETUID | sysno::GETEUID | sysno::GETGID | sysno::GETEGID => Ok(ROOT),
            sysno::EXIT | sysno::EXIT_GROUP => Err(Ending::Exited(args[0] as u8).into()),
            // Anything but ENOSYS would break pthread_create.
            sysno::CLONE => Err(self.unknown(thread::cloning(args[0]))),
            _ => Err(self.unknown(number)),
        }
    }

    /// Counts a call that the node does not have.
    fn unknown(&mut self, number: u64) -> Stop {
        self.count_missing(number);
        Errno::ENOSYS.into()
    }

    /// Counts a call that the node does not carry out, whatever it answers.
    fn count_missing(&mut self, number: u64) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let known = &mut self.account.unknown;
        if let Some(entry) = known.iter_mut().find(|entry| entry.0 == number) {
            entry.1 = entry.1.saturating_add(1);
        } else if known.len() < MAX_UNKNOWN_CALLS {
            let name = sysno::name(u64::from(number)).unwrap_or("no name");
            debug!("process", "system call {number} ({name}) is not there");
            known.push((number, 1));
        }
    }
}
