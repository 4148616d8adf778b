//! What can go wrong.

use core::fmt;

use hearth_abi::errno::Errno;
use hearth_abi::exchange::{Status, Why};

/// Why an operation did not do what was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// This rank has ended or its node is gone. Operations that need it fail, now and later; others
    /// go on.
    Lost(u32),
    /// A message did not fit the receive.
    TooLong {
        /// Its bytes.
        bytes: u64,
        /// Whose it was.
        rank: u32,
        /// Its tag.
        tag: u32,
    },
    /// This rank sends another number of bytes than is expected of it, names another group, or
    /// calls an exchange where this one calls a barrier.
    Mismatch(u32),
    /// This rank has taken back its part of the operation, or unmapped it.
    Withdrawn(u32),
    /// A buffer is not the program's memory, or was unmapped before the operation had finished.
    BadAddress,
    /// An argument makes no sense: a rank that the job does not have, lengths that do not fit the
    /// buffers.
    Invalid,
    /// The job's connection table has not come: the ranks cannot reach each other.
    NoTable,
    /// Too many operations are outstanding: wait for some. Of a receive: so many messages wait here
    /// that the one it is for has no room: receive some.
    TooMany,
    /// Too many contexts were used for exchanges and barriers: use one of these again.
    TooManyContexts,
    /// The operation was cancelled.
    Cancelled,
    /// There is no memory for a temporary buffer.
    NoMemory,
    /// The program does not run on a Hearth node.
    NotHearth,
    /// Another error number.
    Other(i32),
}

/// Error numbers that have a meaning of their own here, with the error.
const NUMBERS: [(Errno, Error); 8] = [
    (Errno::EFAULT, Error::BadAddress),
    (Errno::EINVAL, Error::Invalid),
    (Errno::ENODATA, Error::NoTable),
    (Errno::ENOBUFS, Error::TooMany),
    (Errno::ENOSPC, Error::TooManyContexts),
    (Errno::ECANCELED, Error::Cancelled),
    (Errno::ENOMEM, Error::NoMemory),
    (Errno::ENOSYS, Error::NotHearth),
];

impl Error {
    /// The error that a call returns as this number.
    pub(crate) fn of_number(number: i32) -> Self {
        let known = NUMBERS
            .iter()
            .find(|(errno, _)| i32::from(errno.number()) == number);
        known.map_or(Self::Other(number), |(_, error)| *error)
    }

    /// The error that a status tells.
    pub(crate) fn of_status(status: &Status) -> Self {
        let is = |errno: Errno| -status.error == i32::from(errno.number());
        if is(Errno::EHOSTDOWN) {
            Self::Lost(status.rank)
        } else if is(Errno::EMSGSIZE) {
            Self::TooLong {
                bytes: status.bytes,
                rank: status.rank,
                tag: status.tag,
            }
        } else if is(Errno::EPROTO) {
            Self::Mismatch(status.rank)
        } else if is(Errno::ECANCELED) {
            Self::Withdrawn(status.rank)
        } else {
            Self::of_number(-status.error)
        }
    }

    /// What the others of an operation of all ranks are told when this rank, `me`, has this error:
    /// why it cannot go on, and the rank at fault.
    pub(crate) fn reason(self, me: u32) -> (Why, u32) {
        match self {
            Self::Lost(rank) => (Why::Lost, rank),
            Self::Mismatch(rank) => (Why::Length, rank),
            Self::Withdrawn(rank) => (Why::Withdrawn, rank),
            _ => (Why::Withdrawn, me),
        }
    }

    /// The error for which another rank cannot go on.
    pub(crate) fn of_reason(why: Why, rank: u32) -> Self {
        match why {
            Why::Lost => Self::Lost(rank),
            Why::Length => Self::Mismatch(rank),
            Why::Withdrawn => Self::Withdrawn(rank),
        }
    }

    /// Its number, as in `hearth.h` but positive.
    pub fn number(self) -> i32 {
        let errno = match self {
            Self::Lost(_) => Errno::EHOSTDOWN,
            Self::TooLong { .. } => Errno::EMSGSIZE,
            Self::Mismatch(_) => Errno::EPROTO,
            Self::Withdrawn(_) => Errno::ECANCELED,
            Self::Other(number) => return number,
            other => {
                let known = NUMBERS.iter().find(|(_, error)| *error == other);
                known.map_or(Errno::EIO, |(errno, _)| *errno)
            }
        };
        errno.number().into()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(rank) => write!(f, "rank {rank} is lost"),
            Self::TooLong { bytes, rank, .. } => {
                write!(
                    f,
                    "a message of {bytes} bytes of rank {rank} does not fit the receive"
                )
            }
            Self::Mismatch(rank) => {
                write!(
                    f,
                    "rank {rank} sends another number of bytes than expected, or takes part in \
                     something else"
                )
            }
            Self::Withdrawn(rank) => write!(f, "rank {rank} has taken back its part"),
            Self::BadAddress => f.write_str("a buffer is not the program's memory"),
            Self::Invalid => f.write_str("invalid argument"),
            Self::NoTable => f.write_str("the job's connection table has not come"),
            Self::TooMany => {
                f.write_str("too many operations are outstanding, or too many messages wait here")
            }
            Self::TooManyContexts => f.write_str(
                "too many contexts were used for exchanges and barriers: use one of these again",
            ),
            Self::Cancelled => f.write_str("cancelled"),
            Self::NoMemory => f.write_str("no memory for a temporary buffer"),
            Self::NotHearth => f.write_str(
                "this is no Hearth node: run the program with `hearth run -n RANKS ./program`",
            ),
            Self::Other(number) => write!(f, "error {number}"),
        }
    }
}

impl core::error::Error for Error {}
