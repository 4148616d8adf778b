//! Points in time and durations, in microseconds.
//!
//! The origin of an [`Instant`] is the caller's: boot for a kernel, start of the process for the
//! control node, zero for the simulator. Instants of two endpoints are never compared.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: microseconds since an origin that the caller chooses and keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A duration in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Instant {
    /// The origin. As a deadline it means "at once".
    pub const ZERO: Instant = Instant(0);
    /// Later than every deadline.
    pub const FAR_FUTURE: Instant = Instant(u64::MAX);

    /// The instant `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Instant(micros)
    }

    /// Microseconds since the origin.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when `earlier` is later.
    pub const fn saturating_since(self, earlier: Instant) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl Micros {
    /// No time at all.
    pub const ZERO: Micros = Micros(0);

    /// A duration of whole milliseconds; one that is too long for the type is the longest.
    pub const fn from_millis(millis: u64) -> Self {
        Micros(millis.saturating_mul(1_000))
    }

    /// A duration of whole seconds; one that is too long for the type is the longest.
    pub const fn from_secs(secs: u64) -> Self {
        Micros(secs.saturating_mul(1_000_000))
    }

    /// The number of microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// This duration without `other`, at least nothing.
    pub const fn saturating_sub(self, other: Micros) -> Self {
        Micros(self.0.saturating_sub(other.0))
    }

    /// This duration times `factor`, saturating.
    pub const fn saturating_mul(self, factor: u64) -> Self {
        Micros(self.0.saturating_mul(factor))
    }
}

impl Add<Micros> for Instant {
    type Output = Instant;
    fn add(self, after: Micros) -> Instant {
        Instant(self.0.saturating_add(after.0))
    }
}

impl Add for Micros {
    type Output = Micros;
    fn add(self, more: Micros) -> Micros {
        Micros(self.0.saturating_add(more.0))
    }
}

impl AddAssign<Micros> for Instant {
    fn add_assign(&mut self, after: Micros) {
        *self = *self + after;
    }
}

impl Sub<Micros> for Instant {
    type Output = Instant;
    fn sub(self, before: Micros) -> Instant {
        Instant(self.0.saturating_sub(before.0))
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06} s", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use std::string::ToString;

    use super::*;

    #[test]
    fn a_duration_that_is_too_long_for_the_type_is_the_longest() {
        // Times a thousand, and cut to 64 bits, this would be 384 us.
        assert_eq!(
            Micros::from_millis(18_446_744_073_709_552),
            Micros(u64::MAX)
        );
        assert_eq!(Micros::from_secs(u64::MAX), Micros(u64::MAX));
        assert_eq!(Micros::from_millis(3), Micros(3_000));
    }

    #[test]
    fn times_are_shown_in_seconds() {
        assert_eq!(Instant(12_000_034).to_string(), "12.000034");
        assert_eq!(Micros(1_500_000).to_string(), "1.500000 s");
    }
}
