//! A set of block or member numbers as a bitmap.

use alloc::vec::Vec;

/// Numbers below a bound, one bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bitmap {
    words: Vec<u64>,
    length: u32,
    ones: u32,
}

impl Bitmap {
    /// The empty set of numbers below `length`.
    pub fn new(length: u32) -> Self {
        Bitmap {
            words: alloc::vec![0; length.div_ceil(64) as usize],
            length,
            ones: 0,
        }
    }

    /// All numbers below `length`.
    pub fn full(length: u32) -> Self {
        let mut bitmap = Self::new(length);
        bitmap.words.fill(u64::MAX);
        if let Some(last) = bitmap.words.last_mut()
            && !length.is_multiple_of(64)
        {
            *last = (1 << (length % 64)) - 1;
        }
        bitmap.ones = length;
        bitmap
    }

    /// The number is in the set; false beyond the bound.
    pub fn contains(&self, number: u32) -> bool {
        let word = self.words.get(number as usize / 64);
        word.is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Adds a number; false if it was there or is beyond the bound.
    pub fn insert(&mut self, number: u32) -> bool {
        if number >= self.length {
            return false;
        }
        let word = &mut self.words[number as usize / 64];
        let new = *word >> (number % 64) & 1 == 0;
        *word |= 1 << (number % 64);
        self.ones += u32::from(new);
        new
    }

    /// Takes a number out; false if it was not there.
    pub fn remove(&mut self, number: u32) -> bool {
        let was = self.contains(number);
        if was {
            self.words[number as usize / 64] &= !(1 << (number % 64));
            self.ones -= 1;
        }
        was
    }

    /// Raises the bound by one; the new number is not in the set.
    pub fn grow(&mut self) {
        if self.length.is_multiple_of(64) {
            self.words.push(0);
        }
        self.length += 1;
    }

    /// Numbers in the set.
    pub fn count(&self) -> u32 {
        self.ones
    }

    /// The bound.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// Every number below the bound is in the set.
    pub fn is_full(&self) -> bool {
        self.ones == self.length
    }

    /// The first number from `start` on that is not in the set.
    pub fn next_missing(&self, start: u32) -> Option<u32> {
        let mut at = start as usize / 64;
        let mut word = !*self.words.get(at)? & (u64::MAX << (start % 64));
        while word == 0 {
            at += 1;
            word = !*self.words.get(at)?;
        }
        let number = at as u32 * 64 + word.trailing_zeros();
        (number < self.length).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_sets_have_no_missing_numbers() {
        for length in [0, 1, 63, 64, 65, 200] {
            let full = Bitmap::full(length);
            assert!(full.is_full());
            assert_eq!(full.next_missing(0), None);
            let mut grown = Bitmap::new(length);
            for number in 0..length {
                assert_eq!(grown.next_missing(0), Some(number));
                assert!(grown.insert(number) && !grown.insert(number));
            }
            assert!(!grown.insert(length));
            assert_eq!(grown, full);
        }
    }
}
