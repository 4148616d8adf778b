//! The system calls: number to function.
//!
//! The numbers are those of Linux x86-64; what is not here answers ENOSYS and is counted by
//! number, which C libraries take for an old kernel and work around. docs/abi.md lists the calls,
//! `hearth_abi::missing` says in words what is not here.
//!
//! Invariant: a call either returns a value or an error in rax and the program runs on, or the
//! program ends; nothing it passes can do harm to the node.

mod buffers;
mod cast_reads;
mod channel;
mod descriptor;
mod epoll;
mod exchange;
mod file;
mod futex;
mod host;
mod lock;
mod memory;
mod metadata;
mod node_file;
mod path;
mod peer;
mod positions;
mod random;
mod ready;
mod schedule;
mod shared_memory;
mod shipped;
mod signal;
mod stream;
mod temporary;
mod thread;
mod time;
mod timer;
mod usage;
mod writes;

use hearth_abi::errno::Errno;
use hearth_abi::linux::at;
use hearth_abi::sysno;
use netstack::io::exit::MAX_UNKNOWN_CALLS;

pub(super) use memory::Copied;
pub(super) use positions::MOVING_MAX;
pub(super) use shipped::Transfer;

use super::current::Current;
use super::ending::{Ending, Stop};
use crate::monitor;

/// Number of the one process and of its first thread.
pub(super) const PID: u64 = 1;
/// The parent of a program that none has started.
const NOBODY: u64 = 0;

/// Bytes of the SYSCALL instruction.
const SYSCALL_BYTES: u64 = 2;

/// The working directory, as the register of a call has it.
const CWD: u64 = at::CWD as u64;
/// Of a call that has no flags.
const NO_FLAGS: u64 = 0;

/// Arguments of a call: rdi, rsi, rdx, r10, r8, r9.
type Args = [u64; 6];

impl Current<'_> {
    /// Carries out the system call that the thread has made. Begun `again` it goes on from its
    /// [`Progress`](crate::process::thread::Progress).
    pub(super) fn system_call(&mut self, again: bool) -> Result<(), Stop> {
        let number = self.thread.context.rax;
        if !again {
            self.thread.calls += 1;
            monitor::count_call(number);
        }
        let c = &self.thread.context;
        let args = [c.rdi, c.rsi, c.rdx, c.r10, c.r8, c.r9];
        let result = self.dispatch(number, args);
        if let Err(Stop::Wait(_)) = result {
            return result.map(|_| ());
        }
        if let Some(progress) = self.thread.progress.take() {
            self.thread.signals.stop_awaiting();
            self.leave_shipped(&progress);
        }
        // A mask of the call's own ends with it, whatever it answers.
        self.process.signals.restore_mask(&mut self.thread.signals);
        self.thread.context.rax = match result {
            Ok(value) => value,
            Err(Stop::Errno(errno)) => errno.as_return(),
            Err(Stop::Restart) if self.process.signals.restarts(&self.thread.signals) => {
                self.thread.context.rip -= SYSCALL_BYTES;
                number
            }
            Err(Stop::Restart) => Errno::EINTR.as_return(),
            Err(stop) => return Err(stop),
        };
        Ok(())
    }

    fn dispatch(&mut self, number: u64, args: Args) -> Result<u64, Stop> {
        match number {
            sysno::READ => self.read(args),
            sysno::READV => self.readv(args),
            sysno::WRITE => self.write(args),
            sysno::WRITEV => self.writev(args),
            sysno::PREAD64 => self.pread64(args),
            sysno::PREADV => self.preadv(args),
            sysno::PREADV2 => self.vector_at(args, Self::readv, Self::preadv),
            sysno::PWRITE64 => self.pwrite64(args),
            sysno::PWRITEV => self.pwritev(args),
            sysno::PWRITEV2 => self.vector_at(args, Self::writev, Self::pwritev),
            sysno::OPEN => self.open(at::CWD, args[0], args[1], args[2]),
            sysno::OPENAT => self.open(args[0] as i32, args[1], args[2], args[3]),
            sysno::CREAT => self.creat(args[0], args[1]),
            sysno::MKDIR => self.mkdir(at::CWD, args[0], args[1]),
            sysno::MKDIRAT => self.mkdir(args[0] as i32, args[1], args[2]),
            sysno::RMDIR => self.unlink(at::CWD, args[0], at::REMOVEDIR),
            sysno::UNLINK => self.unlink(at::CWD, args[0], NO_FLAGS),
            sysno::UNLINKAT => self.unlink(args[0] as i32, args[1], args[2]),
            sysno::RENAME => self.rename([CWD, args[0], CWD, args[1], NO_FLAGS, 0]),
            sysno::RENAMEAT => self.rename([args[0], args[1], args[2], args[3], NO_FLAGS, 0]),
            sysno::RENAMEAT2 => self.rename(args),
            sysno::LINK => self.link([CWD, args[0], CWD, args[1], NO_FLAGS, 0]),
            sysno::LINKAT => self.link(args),
            sysno::SYMLINK => self.symlink(args[0], at::CWD, args[1]),
            sysno::SYMLINKAT => self.symlink(args[0], args[1] as i32, args[2]),
            sysno::CHMOD => self.chmod(at::CWD, args[0], args[1]),
            sysno::FCHMODAT => self.chmod(args[0] as i32, args[1], args[2]),
            sysno::FCHMOD => self.fchmod(args[0], args[1]),
            sysno::CHOWN => self.chown(at::CWD, [args[0], args[1], args[2], NO_FLAGS]),
            sysno::LCHOWN => self.chown(at::CWD, [args[0], args[1], args[2], at::SYMLINK_NOFOLLOW]),
            sysno::FCHOWNAT => self.chown(args[0] as i32, [args[1], args[2], args[3], args[4]]),
            sysno::FCHOWN => self.fchown(args[0], args[1], args[2]),
            sysno::UTIME => self.utime(args[0], args[1]),
            sysno::UTIMES => self.utimes(at::CWD, args[0], args[1]),
            sysno::FUTIMESAT => self.utimes(args[0] as i32, args[1], args[2]),
            sysno::UTIMENSAT => self.utimensat(args),
            sysno::TRUNCATE => self.truncate(args[0], args[1]),
            sysno::FTRUNCATE => self.ftruncate(args[0], args[1]),
            sysno::FALLOCATE => self.fallocate(args),
            sysno::COPY_FILE_RANGE => self.copy_file_range(args),
            sysno::SENDFILE => self.sendfile(args),
            sysno::FLOCK => self.flock(args[0], args[1]),
            sysno::STATFS => self.statfs(args[0], args[1]),
            sysno::FSTATFS => self.fstatfs(args[0], args[1]),
            sysno::CHDIR => self.chdir(args[0]),
            sysno::FCHDIR => self.fchdir(args[0]),
            sysno::CLOSE_RANGE => self.close_range(args),
            sysno::CLOSE => self.close(args[0]),
            sysno::DUP => self.dup(args[0]),
            sysno::DUP2 => self.dup2(args),
            sysno::DUP3 => self.dup3(args),
            sysno::LSEEK => self.lseek(args),
            sysno::IOCTL => self.ioctl(args),
            sysno::FCNTL => self.fcntl(args),
            sysno::FSYNC => self.fsync(args[0], false),
            sysno::FDATASYNC => self.fsync(args[0], true),
            sysno::FADVISE64 => self.fadvise64(args[0]),
            sysno::FSTAT => self.fstat(args[0], args[1]),
            sysno::STAT => self.stat(at::CWD, [args[0], args[1], NO_FLAGS]),
            sysno::LSTAT => self.stat(at::CWD, [args[0], args[1], at::SYMLINK_NOFOLLOW]),
            sysno::NEWFSTATAT => self.stat(args[0] as i32, [args[1], args[2], args[3]]),
            sysno::STATX => self.statx(args),
            sysno::ACCESS => self.access(at::CWD, [args[0], args[1], NO_FLAGS]),
            sysno::FACCESSAT => self.access(args[0] as i32, [args[1], args[2], NO_FLAGS]),
            sysno::FACCESSAT2 => self.access(args[0] as i32, [args[1], args[2], args[3]]),
            sysno::GETDENTS64 => self.getdents64(args),
            sysno::GETCWD => self.getcwd(args),
            sysno::READLINK => self.readlink(at::CWD, [args[0], args[1], args[2]]),
            sysno::READLINKAT => self.readlink(args[0] as i32, [args[1], args[2], args[3]]),
            sysno::POLL => self.poll_call(args),
            sysno::PPOLL => self.ppoll(args),
            sysno::SELECT => self.select(args),
            sysno::PSELECT6 => self.pselect6(args),
            sysno::PIPE => self.pipe(args[0], NO_FLAGS),
            sysno::PIPE2 => self.pipe(args[0], args[1]),
            sysno::EVENTFD => self.eventfd(args[0], NO_FLAGS),
            sysno::EVENTFD2 => self.eventfd(args[0], args[1]),
            sysno::EPOLL_CREATE => self.epoll_create(args[0]),
            sysno::EPOLL_CREATE1 => self.epoll_create1(args[0]),
            sysno::EPOLL_CTL => self.epoll_ctl(args),
            sysno::EPOLL_WAIT => self.epoll_wait(args),
            sysno::EPOLL_PWAIT => self.epoll_pwait(args),
            sysno::EPOLL_PWAIT2 => self.epoll_pwait2(args),
            sysno::MMAP => self.mmap(args),
            sysno::MREMAP => self.mremap(args),
            sysno::MUNMAP => self.munmap(args),
            sysno::MPROTECT => self.mprotect(args),
            sysno::MADVISE => self.madvise(args),
            sysno::BRK => self.brk(args[0]),
            sysno::RT_SIGACTION => self.rt_sigaction(args),
            sysno::RT_SIGPROCMASK => self.rt_sigprocmask(args),
            sysno::RT_SIGPENDING => self.rt_sigpending(args),
            sysno::RT_SIGSUSPEND => self.rt_sigsuspend(args),
            sysno::RT_SIGTIMEDWAIT => self.rt_sigtimedwait(args),
            sysno::RT_SIGRETURN => self.leave_handler(),
            sysno::SIGALTSTACK => self.sigaltstack(args),
            sysno::PAUSE => self.pause(),
            sysno::ALARM => self.alarm(args[0]),
            sysno::SETITIMER => self.setitimer(args),
            sysno::GETITIMER => self.getitimer(args),
            sysno::TIMER_CREATE => self.timer_create(args),
            sysno::TIMER_SETTIME => self.timer_settime(args),
            sysno::TIMER_GETTIME => self.timer_gettime(args),
            sysno::TIMER_GETOVERRUN => self.timer_getoverrun(args[0]),
            sysno::TIMER_DELETE => self.timer_delete(args[0]),
            sysno::KILL => self.kill(args[0], args[1]),
            sysno::TKILL => self.tkill(args[0], args[1]),
            sysno::RT_SIGQUEUEINFO => self.queue_signal(args),
            sysno::TGKILL | sysno::RT_TGSIGQUEUEINFO if args[0] as i32 != PID as i32 => {
                Err(Errno::ESRCH.into())
            }
            sysno::TGKILL => self.tkill(args[1], args[2]),
            sysno::RT_TGSIGQUEUEINFO => self.queue_thread_signal([args[1], args[2], args[3]]),
            sysno::ARCH_PRCTL => self.arch_prctl(args),
            sysno::FUTEX => self.futex(args),
            sysno::GETRANDOM => self.getrandom(args),
            sysno::CLOCK_GETRES => self.clock_getres(args),
            sysno::CLOCK_GETTIME => self.clock_gettime(args),
            sysno::CLOCK_NANOSLEEP => self.clock_nanosleep(args),
            sysno::NANOSLEEP => self.nanosleep(args),
            sysno::GETTIMEOFDAY => self.gettimeofday(args),
            sysno::TIME => self.time(args[0]),
            sysno::GETRUSAGE => self.getrusage(args),
            sysno::TIMES => self.times(args[0]),
            sysno::SCHED_YIELD => self.sched_yield(),
            sysno::HEARTH_POST => self.hearth_post(args),
            sysno::HEARTH_WAIT => {
                // What other ranks have changed before they spoke is to be seen.
                self.process.files.ahead.clear();
                self.hearth_wait(args)
            }
            sysno::HEARTH_CANCEL => self.hearth_cancel(args),
            sysno::HEARTH_SELF => self.hearth_self(args),
            sysno::HEARTH_PEER => self.hearth_peer(args),
            sysno::HEARTH_COUNT => match monitor::set_counter(args[0], args[1] as i64) {
                true => Ok(0),
                false => Err(Errno::EINVAL.into()),
            },
            sysno::UNAME => self.uname(args[0]),
            sysno::SYSINFO => self.sysinfo(args[0]),
            sysno::GETRLIMIT => self.prlimit64([PID, args[0], 0, args[1]]),
            sysno::SETRLIMIT => self.prlimit64([PID, args[0], args[1], 0]),
            sysno::PRLIMIT64 => self.prlimit64([args[0], args[1], args[2], args[3]]),
            sysno::UMASK => Ok(self.process.files.set_mode_mask(args[0])),
            sysno::GETCPU => self.getcpu(args),
            sysno::SCHED_GETAFFINITY => self.sched_getaffinity(args),
            sysno::SCHED_SETAFFINITY => self.sched_setaffinity(args),
            sysno::SCHED_GET_PRIORITY_MIN => self.sched_priority_least(args[0]),
            sysno::SCHED_GET_PRIORITY_MAX => self.sched_priority_greatest(args[0]),
            sysno::SCHED_GETSCHEDULER => self.sched_getscheduler(args[0]),
            sysno::SCHED_SETSCHEDULER => self.sched_setscheduler(args),
            sysno::SCHED_GETPARAM => self.sched_getparam(args),
            sysno::SCHED_SETPARAM => self.sched_setparam(args),
            sysno::SCHED_RR_GET_INTERVAL => self.sched_rr_get_interval(args),
            sysno::MLOCK => self.mlock(args, NO_FLAGS),
            sysno::MLOCK2 => self.mlock(args, args[2]),
            sysno::MUNLOCK => self.munlock(args),
            sysno::MLOCKALL => self.mlockall(args[0]),
            sysno::MUNLOCKALL => Ok(0),
            sysno::MSYNC => self.msync(args),
            sysno::GETPPID => Ok(NOBODY),
            sysno::GETPGRP => Ok(PID),
            sysno::GETPGID | sysno::GETSID => self.group(args[0]),
            sysno::GETUID | sysno::GETEUID => Ok(self.process.files.user[0].into()),
            sysno::GETGID | sysno::GETEGID => Ok(self.process.files.user[1].into()),
            sysno::EXIT => self.exit(args[0]),
            sysno::EXIT_GROUP => Err(Ending::Exited(args[0] as u8).into()),
            sysno::CLONE => self.clone(args),
            sysno::GETPID => Ok(PID),
            sysno::GETTID => Ok(self.thread.tid.number().into()),
            sysno::SET_TID_ADDRESS => Ok(self.set_tid_address(args[0])),
            sysno::SET_ROBUST_LIST => self.set_robust_list(args),
            sysno::GET_ROBUST_LIST => self.get_robust_list(args),
            _ => Err(self.unknown(number)),
        }
    }

    /// Counts a call that the node does not have.
    fn unknown(&mut self, number: u64) -> Stop {
        self.count_missing(number);
        Errno::ENOSYS.into()
    }

    /// Counts the call of the thread, which the node does not carry out: it answers this.
    fn count_missing_as(&mut self, errno: Errno) -> Stop {
        self.count_missing(self.thread.context.rax);
        errno.into()
    }

    /// Counts a call that the node does not carry out, whatever it answers.
    fn count_missing(&mut self, number: u64) {
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        let known = &mut self.process.account.unknown;
        if let Some(entry) = known.iter_mut().find(|entry| entry.0 == number) {
            entry.1 = entry.1.saturating_add(1);
        } else if known.len() < MAX_UNKNOWN_CALLS {
            let name = sysno::name(u64::from(number)).unwrap_or("no name");
            debug!("process", "system call {number} ({name}) is not there");
            known.push((number, 1));
        }
    }
}
