//! Wire formats: bytes become a `Repr` here, once, and nobody behind this edge sees raw bytes.
//!
//! - [`field`]: bounds-checked reading and writing of fixed-width fields.
//! - [`key`]: SipHash-2-4-128 keys and how each is derived from the one above it.
//! - [`tag`]: the tag of bulk data that is sealed packet by packet.
//! - [`window`]: which numbers were seen, for everything that is sealed.
//! - [`datagram`]: the envelope of every message, its checked view and its seal.
//! - [`envelope`]: numbers of datagrams between peers, and who may open them.
//! - [`join`], [`job`], [`retention`], [`page`], [`io`], [`log`]: the payloads.
//!
//! Invariant: no input, however malformed, panics or is read beyond its end.

pub mod datagram;
pub mod envelope;
pub mod field;
pub mod io;
pub mod job;
pub mod join;
pub mod key;
pub mod log;
pub mod page;
pub mod retention;
pub mod tag;
pub mod window;

/// Why bytes were not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Shorter than its fixed part or than a length it announces.
    Truncated,
    /// Longer than its content: bytes follow that no field claims.
    TrailingBytes,
    /// The magic number is not Hearth's.
    BadMagic,
    /// A protocol or format version this build does not speak.
    BadVersion(u8),
    /// A message kind that does not exist or does not go in this direction.
    BadKind(u8),
    /// The authentication tag does not match.
    BadTag,
    /// A field has a value outside its range.
    BadValue,
    /// Authentic, and seen before or too old to tell.
    Replayed,
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Error::Truncated => f.write_str("truncated"),
            Error::TrailingBytes => f.write_str("bytes after the last field"),
            Error::BadMagic => f.write_str("not a Hearth datagram"),
            Error::BadVersion(version) => write!(f, "version {version} is not known here"),
            Error::BadKind(kind) => write!(f, "message kind {kind} is not expected here"),
            Error::BadTag => f.write_str("authentication tag does not match"),
            Error::BadValue => f.write_str("a field is out of range"),
            Error::Replayed => f.write_str("seen before, or older than the replay window"),
        }
    }
}

impl core::error::Error for Error {}
