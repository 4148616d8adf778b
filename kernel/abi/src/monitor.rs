//! Counters that a program adds to those of its node (`HEARTH_COUNT`).
//!
//! The call takes the number of a counter, from 0 to [`COUNTERS_MAX`] - 1, and its present value, a
//! signed number of 64 bits. It answers at once; the value goes with the next tick of a stream that
//! wants it, and only the last one does.

/// Counters that a program can have.
pub const COUNTERS_MAX: u64 = 16;
