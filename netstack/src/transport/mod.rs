//! Bytes of one peer, asked for under credit: what every service that moves more than a datagram
//! is made of.
//!
//! | module | what it is | source |
//! |---|---|---|
//! | [`rtt`] | round-trip time and time-out | RFC 6298 |
//! | [`window`] | congestion window, in fragments | RFC 5681 |
//! | [`pacer`] | what is sent, held to a rate | token bucket, Turner 1986 |
//! | [`pull`] | fragments that are asked for, lost and asked for again | RFC 9002 |
//! | [`retry`] | what is said again until it is answered: doubling waits, probes | RFC 9002 |
//! | [`liveness`] | who is silent, who was asked, who is dead | SWIM, Das et al. 2002 |
//!
//! Who wants bytes asks for them, so that there is one congestion control, at the receiver, for
//! either direction. Neighbours: [`crate::files`] and [`crate::page`] are adapters over it, as
//! are the messages of [`crate::exchange`].
//!
//! Invariant: nothing here knows what the bytes are, or how a datagram is written.

pub(crate) mod liveness;
pub(crate) mod pacer;
pub(crate) mod pull;
pub(crate) mod retry;
pub(crate) mod rtt;
pub(crate) mod window;
