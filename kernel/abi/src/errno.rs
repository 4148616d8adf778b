//! Error numbers of the Linux x86-64 ABI that Hearth answers with.

use core::fmt;

/// An error number; a system call returns its negative.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(u16);

macro_rules! errnos {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($number);)*
        }

        impl fmt::Debug for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str(stringify!($name)),)*
                    other => write!(f, "errno {other}"),
                }
            }
        }

        impl fmt::Display for Errno {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => f.write_str($text),)*
                    other => write!(f, "error {other}"),
                }
            }
        }
    };
}

errnos! {
    EPERM = 1, "operation not permitted";
    ENOENT = 2, "no such file or directory";
    ESRCH = 3, "no such process";
    EINTR = 4, "interrupted";
    EIO = 5, "input/output error";
    ENXIO = 6, "no such address";
    E2BIG = 7, "argument list too long";
    EBADF = 9, "bad file descriptor";
    EAGAIN = 11, "try again";
    ENOMEM = 12, "out of memory";
    EACCES = 13, "permission denied";
    EFAULT = 14, "bad address";
    EBUSY = 16, "in use";
    EEXIST = 17, "exists already";
    EXDEV = 18, "on another file system";
    ENODEV = 19, "no such device";
    ENOTDIR = 20, "not a directory";
    EISDIR = 21, "is a directory";
    EINVAL = 22, "invalid argument";
    EMFILE = 24, "too many open files";
    ENOTTY = 25, "not a terminal";
    EFBIG = 27, "file too large";
    ENOSPC = 28, "no room for another";
    ESPIPE = 29, "cannot seek";
    EROFS = 30, "read-only file system";
    EPIPE = 32, "broken pipe";
    ERANGE = 34, "out of range";
    ENAMETOOLONG = 36, "name too long";
    ENOLCK = 37, "no room for another lock";
    ENOSYS = 38, "not implemented";
    ENOTEMPTY = 39, "directory not empty";
    ELOOP = 40, "too many symbolic links";
    ENODATA = 61, "no data available";
    EPROTO = 71, "the other side means something else";
    EOVERFLOW = 75, "value too large";
    EMSGSIZE = 90, "message too long";
    EOPNOTSUPP = 95, "not supported";
    ENOBUFS = 105, "no room for more";
    ETIMEDOUT = 110, "timed out";
    EHOSTDOWN = 112, "a rank is lost";
    ECANCELED = 125, "cancelled";
}

impl Errno {
    /// An error number as it came over the network; `None` outside 1..=4095.
    pub const fn from_number(number: i64) -> Option<Self> {
        if number >= 1 && number <= 4095 {
            Some(Self(number as u16))
        } else {
            None
        }
    }

    /// The number itself.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// What the system call leaves in rax.
    pub const fn as_return(self) -> u64 {
        (-(self.0 as i64)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_call_returns_the_negative() {
        assert_eq!(Errno::ENOSYS.as_return() as i64, -38);
        assert_eq!(Errno::from_number(0), None);
        assert_eq!(Errno::from_number(4096), None);
        assert_eq!(Errno::from_number(22), Some(Errno::EINVAL));
    }
}
