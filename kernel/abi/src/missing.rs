//! What a node does not do for a program, in words: for the error of a program that made such a
//! call and then failed.
//!
//! Key function: [`why`]. Neighbours: `process::calls` in the kernel counts these calls by number,
//! the control node puts the words into the end of the job.
//!
//! Invariant: the one place where a lack has words; a call that the kernel learns leaves it.

use crate::sysno::*;

/// Of a call that has no words of its own.
pub const OTHER: &str = "a node does not have this call";

/// What a node lacks for a call that it does not carry out; `None` for calls that programs do
/// without: those that C libraries make at the start and in passing.
pub const fn why(call: u64) -> Option<&'static str> {
    Some(match call {
        CLONE3 | RSEQ | PRCTL | MEMBARRIER => return None,
        FORK | VFORK => "a node runs one process: a program cannot start another",
        CLONE => "the program has as many threads as it may, or wants one that does not share all",
        EXECVE | EXECVEAT => "a program cannot start another; `hearth run` starts programs",
        OPEN | OPENAT | OPENAT2 | CREAT | TRUNCATE | FTRUNCATE | FALLOCATE | MKDIR | MKDIRAT
        | RMDIR | UNLINK | UNLINKAT | RENAME | RENAMEAT | RENAMEAT2 | LINK | LINKAT | SYMLINK
        | SYMLINKAT | CHMOD | FCHMOD | FCHMODAT | CHOWN | FCHOWN | LCHOWN | FCHOWNAT | UTIME
        | UTIMES | UTIMENSAT | FUTIMESAT | MEMFD_CREATE => {
            "the job has no service for its files, which are read only: files.export of the control node names what jobs see"
        }
        MKNOD | MKNODAT => "pipes and devices cannot be made in files of a job",
        MMAP => "a file cannot be mapped to be shared and written: write it with pwrite",
        SOCKET | SOCKETPAIR | CONNECT | ACCEPT | ACCEPT4 | BIND | LISTEN | SENDTO | RECVFROM
        | SENDMSG | RECVMSG => "there are no sockets: ranks talk to each other through hearth.h",
        WAIT4 | WAITID | SETSID | SETPGID => "a node runs one process",
        SETITIMER => "setitimer has ITIMER_REAL alone: timers of processor time are not there",
        TIMERFD_CREATE => "timers send signals (timer_create), or time-outs end waits (poll)",
        SIGNALFD | SIGNALFD4 => "signals go to handlers and to sigtimedwait, not to descriptors",
        SHMGET | SHMAT | SEMGET | MSGGET | MQ_OPEN => "a node runs one process: nothing is shared",
        FUTEX => "futexes that lend their priority (PI) are not there",
        _ => OTHER,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysno;

    #[test]
    fn what_programs_miss_has_words() {
        assert!(why(sysno::FORK).unwrap().contains("one process"));
        let socket = why(sysno::SOCKET).unwrap();
        assert!(socket.contains("sockets") && socket.contains("hearth.h"));
        assert!(why(sysno::OPENAT).unwrap().contains("read only"));
        assert_eq!(why(sysno::INOTIFY_INIT1), Some(OTHER));
    }

    #[test]
    fn what_every_c_program_calls_is_no_reason_to_fail() {
        for call in [sysno::CLONE3, sysno::RSEQ, sysno::MEMBARRIER] {
            assert_eq!(why(call), None);
        }
    }
}
