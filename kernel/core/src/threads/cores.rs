//! Sets of cores, by the number that a core has on the node.
//!
//! Source of the text of a set: Linux, `Documentation/admin-guide/cputopology.rst`.

use core::fmt;

/// Cores that a node uses at most: as many as there are bits in a [`CoreSet`].
pub const CORES_MAX: usize = 64;

/// The number of a core on its node, below [`CORES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Core(u8);

impl Core {
    /// The core that the kernel starts on.
    pub const BOOT: Self = Self(0);

    /// The core with this number; `None` where it is not below [`CORES_MAX`].
    pub const fn new(number: usize) -> Option<Self> {
        if number < CORES_MAX {
            Some(Self(number as u8))
        } else {
            None
        }
    }

    /// Its number.
    pub const fn number(self) -> usize {
        self.0 as usize
    }
}

/// A set of cores: bit n is core n, as in the masks of sched_setaffinity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreSet(u64);

impl CoreSet {
    /// No core.
    pub const NONE: Self = Self(0);

    /// The cores whose bits are set.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The cores 0 to `count` - 1; all there can be where `count` is larger.
    pub const fn first(count: usize) -> Self {
        match count {
            0..CORES_MAX => Self((1 << count) - 1),
            _ => Self(u64::MAX),
        }
    }

    /// One core.
    pub const fn only(core: Core) -> Self {
        Self(1 << core.0)
    }

    /// Its bits.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether there is none in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether a core is in it.
    pub const fn contains(self, core: Core) -> bool {
        self.0 >> core.0 & 1 == 1
    }

    /// What is in both.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Those of this set that are not in the other.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// What is in either.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The cores, lowest number first.
    pub fn iter(self) -> impl Iterator<Item = Core> {
        let mut bits = self.0;
        core::iter::from_fn(move || {
            let core = (bits != 0).then(|| Core(bits.trailing_zeros() as u8));
            // The lowest bit that is set.
            bits &= bits.wrapping_sub(1);
            core
        })
    }
}

/// Ranges, as in `/sys/devices/system/cpu/online`: `0-3,8`.
impl fmt::Display for CoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bits = self.0;
        let mut comma = "";
        while bits != 0 {
            let first = bits.trailing_zeros();
            let last = first + (bits >> first).trailing_ones() - 1;
            match last {
                _ if last == first => write!(f, "{comma}{first}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
            // All up to the last are done, which may be bit 63.
            bits &= (u64::MAX << last) << 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_the_cores_of_its_bits() {
        let set = CoreSet::from_bits(1 << 63 | 0b101);
        let numbers: Vec<usize> = set.iter().map(Core::number).collect();
        assert_eq!(numbers, [0, 2, 63]);
        assert_eq!(set.count(), 3);
        assert!(set.contains(Core::new(2).unwrap()) && !set.contains(Core::new(1).unwrap()));
        assert_eq!(set.and(CoreSet::first(3)).bits(), 0b101);
        assert_eq!(CoreSet::first(2).or(set).count(), 4);
        assert!(set.and(CoreSet::from_bits(2)).is_empty());
    }

    #[test]
    fn there_are_64_cores_at_most() {
        assert_eq!(Core::new(CORES_MAX), None);
        assert_eq!(CoreSet::first(0), CoreSet::NONE);
        assert_eq!(CoreSet::first(63).count(), 63);
        assert_eq!(CoreSet::first(64), CoreSet::first(usize::MAX));
        let last = Core::new(CORES_MAX - 1).unwrap();
        assert_eq!(CoreSet::only(last).iter().collect::<Vec<_>>(), [last]);
    }

    #[test]
    fn a_set_is_said_in_ranges() {
        let text = |bits| CoreSet::from_bits(bits).to_string();
        assert_eq!(text(0), "");
        assert_eq!(text(1), "0");
        assert_eq!(text(0xf), "0-3");
        assert_eq!(text(0b1011_0110), "1-2,4-5,7");
        assert_eq!(text(1 << 63), "63");
        assert_eq!(text(u64::MAX), "0-63");
        assert_eq!(text(u64::MAX - 1), "1-63");
    }
}
