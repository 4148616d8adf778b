//! Counts of what an endpoint received, sent and refused, by kind.
//!
//! Bad input is never an error to the caller of an endpoint: it is counted here.

use crate::wire::Error;

/// Counts since the endpoint was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Datagrams received, whatever they were.
    pub received: u64,
    /// Datagrams handed out for sending.
    pub sent: u64,
    /// Of these, repeats because an answer did not come in time.
    pub retransmitted: u64,
    /// Received: shorter than a header and tag, or with a length that does not fit.
    pub bad_length: u64,
    /// Received: not Hearth's magic number.
    pub bad_magic: u64,
    /// Received: another protocol version.
    pub bad_version: u64,
    /// Received: a kind that does not exist or goes the other way.
    pub bad_kind: u64,
    /// Received: an authentication tag that does not match.
    pub bad_tag: u64,
    /// Received: seen before, or older than the window.
    pub replayed: u64,
    /// Received: authentic, but the payload does not parse.
    pub bad_payload: u64,
    /// Received: for another node, boot or session than this one.
    pub misdirected: u64,
    /// Received: well-formed but of no use (an answer to nothing, a repeat).
    pub stale: u64,
    /// Received from a node or session that is not known.
    pub unknown_peer: u64,
    /// Not taken because a table or queue was full; the other side tries again.
    pub overloaded: u64,
    /// Hints and refusals not sent because of their rate limit.
    pub rate_limited: u64,
    /// Page requests given up.
    pub page_timeouts: u64,
}

impl Counters {
    /// Counts a datagram whose envelope is wrong.
    pub(crate) fn count_envelope(&mut self, error: Error) {
        let count = match error {
            Error::Truncated | Error::TrailingBytes | Error::BadValue => &mut self.bad_length,
            Error::BadMagic => &mut self.bad_magic,
            Error::BadVersion(_) => &mut self.bad_version,
            Error::BadKind(_) => &mut self.bad_kind,
            Error::BadTag => &mut self.bad_tag,
            Error::Replayed => &mut self.replayed,
        };
        *count += 1;
    }
}
