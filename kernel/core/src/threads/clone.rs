//! What a call of clone asks for: a thread, or something that a node does not do.
//!
//! C libraries make threads with one set of flags each, and a node knows these sets only, as CNK
//! did: six flags that say that all is shared, and up to five about where the new tid is written
//! and where the thread has its own data. glibc sets SETTLS, PARENT_SETTID and CHILD_CLEARTID,
//! musl DETACHED, too, Go SETTLS alone.

use hearth_abi::errno::Errno;
use hearth_abi::linux::clone::*;

/// What makes a thread of it.
const REQUIRED: u64 = VM | FS | FILES | SIGHAND | THREAD | SYSVSEM;
/// What may be set besides.
const OPTIONAL: u64 = SETTLS | PARENT_SETTID | CHILD_CLEARTID | CHILD_SETTID | DETACHED;

/// A new thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    flags: u32,
}

/// What a node does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another process: fork, vfork, posix_spawn.
    Fork,
    /// A thread that does not share everything with the others.
    Flags,
}

impl Refusal {
    /// What the call answers.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Fork => Errno::ENOSYS,
            Self::Flags => Errno::EINVAL,
        }
    }
}

/// What the flags of a call, its first argument, ask for.
pub const fn check(flags: u64) -> Result<Request, Refusal> {
    // The call does not see the upper half.
    let flags = flags as u32;
    let bits = flags as u64;
    if bits & THREAD == 0 {
        return Err(Refusal::Fork);
    }
    if bits & REQUIRED != REQUIRED || bits & !(REQUIRED | OPTIONAL) != 0 {
        return Err(Refusal::Flags);
    }
    Ok(Request { flags })
}

impl Request {
    /// Whether the fifth argument is the base of FS; else the thread has its maker's.
    pub const fn sets_tls(self) -> bool {
        self.has(SETTLS)
    }

    /// Whether the tid is written to where the third argument says.
    pub const fn sets_parent_tid(self) -> bool {
        self.has(PARENT_SETTID)
    }

    /// Whether the tid is written to where the fourth argument says.
    pub const fn sets_child_tid(self) -> bool {
        self.has(CHILD_SETTID)
    }

    /// Whether the word that the fourth argument says is zeroed and woken when the thread ends.
    pub const fn clears_child_tid(self) -> bool {
        self.has(CHILD_CLEARTID)
    }

    const fn has(self, flag: u64) -> bool {
        self.flags as u64 & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GO: u64 = 0x50f00;
    const GLIBC: u64 = 0x3d_0f00;
    const MUSL: u64 = 0x7d_0f00;
    const CHLD: u64 = 17;

    #[test]
    fn libraries_make_threads() {
        assert_eq!(GO, VM | FS | FILES | SIGHAND | THREAD | SYSVSEM);
        assert_eq!(GLIBC, GO | SETTLS | PARENT_SETTID | CHILD_CLEARTID);
        assert_eq!(MUSL, GLIBC | DETACHED);
        let of = |flags| {
            let request = check(flags).unwrap();
            let tids = [request.sets_parent_tid(), request.sets_child_tid()];
            (request.sets_tls(), tids, request.clears_child_tid())
        };
        assert_eq!(of(GO), (false, [false, false], false));
        assert_eq!(of(GO | SETTLS), (true, [false, false], false));
        assert_eq!(of(GLIBC), (true, [true, false], true));
        assert_eq!(of(MUSL), of(GLIBC));
        assert_eq!(of(GO | CHILD_SETTID), (false, [false, true], false));
        assert_eq!(of(GLIBC | 1 << 32), of(GLIBC));
    }

    #[test]
    fn a_process_is_said_to_be_one() {
        let fork = CHILD_SETTID | CHILD_CLEARTID | CHLD;
        for flags in [0, CHLD, fork, VFORK | VM | CHLD, VM | VFORK, GO & !THREAD] {
            assert_eq!(check(flags), Err(Refusal::Fork), "{flags:#x}");
        }
        assert_eq!(Refusal::Fork.errno(), Errno::ENOSYS);
    }

    #[test]
    fn a_thread_shares_everything() {
        for flag in [VM, FS, FILES, SIGHAND, SYSVSEM] {
            assert_eq!(check(GLIBC & !flag), Err(Refusal::Flags), "{flag:#x}");
        }
        // PTRACE, VFORK, PARENT, NEWNS, UNTRACED, NEWPID, IO, a signal at its end.
        for flag in [
            0x2000,
            VFORK,
            0x8000,
            0x2_0000,
            0x80_0000,
            0x2000_0000,
            0x8000_0000,
            CHLD,
        ] {
            assert_eq!(check(GLIBC | flag), Err(Refusal::Flags), "{flag:#x}");
        }
        assert_eq!(Refusal::Flags.errno(), Errno::EINVAL);
    }
}
