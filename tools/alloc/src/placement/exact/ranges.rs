//! Sets of counts, as ranges: how many points of a switch are worth looking at.
//!
//! Key type: [`Ranges`]. Neighbour: [`super::knapsack`].
//!
//! Invariant: ranges are in order, not empty, and do not touch.

/// A set of counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Ranges {
    /// Inclusive on both sides.
    ranges: Vec<(usize, usize)>,
}

impl Ranges {
    /// One count.
    pub fn single(count: usize) -> Self {
        Ranges {
            ranges: vec![(count, count)],
        }
    }

    /// The union of ranges, in any order; those that run backwards are empty. Gaps of at most
    /// `gap` counts are filled.
    pub fn union(mut ranges: Vec<(usize, usize)>, gap: usize) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut union: Vec<(usize, usize)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match union.last_mut() {
                Some(before) if first <= before.1.saturating_add(1 + gap) => {
                    before.1 = before.1.max(last);
                }
                _ => union.push((first, last)),
            }
        }
        Ranges { ranges: union }
    }

    /// The counts of these for which a test holds.
    pub fn filter(&self, mut test: impl FnMut(usize) -> bool) -> Self {
        let mut ranges = Vec::new();
        for &(first, last) in &self.ranges {
            let mut open = None;
            for count in first..=last {
                match (test(count), open) {
                    (true, None) => open = Some(count),
                    (false, Some(from)) => {
                        ranges.push((from, count - 1));
                        open = None;
                    }
                    _ => {}
                }
            }
            ranges.extend(open.map(|from| (from, last)));
        }
        Ranges { ranges }
    }

    /// What a part must give so that it and another part, of which one of `other` is taken, come
    /// to one of these; within `least` to `most`.
    pub fn minus(&self, other: &[(usize, usize)], least: usize, most: usize) -> Self {
        let mut ranges = Vec::with_capacity(self.ranges.len() * other.len());
        for &(first, last) in &self.ranges {
            for &(other_first, other_last) in other {
                if other_first <= last {
                    let from = first.saturating_sub(other_last).max(least);
                    ranges.push((from, (last - other_first).min(most)));
                }
            }
        }
        Self::union(ranges, 0)
    }

    /// The ranges, inclusive on both sides.
    pub fn as_slice(&self) -> &[(usize, usize)] {
        &self.ranges
    }

    /// From the first to the last.
    pub fn hull(&self) -> Option<(usize, usize)> {
        Some((self.ranges.first()?.0, self.ranges.last()?.1))
    }

    /// Every count.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unions_and_differences() {
        let set = Ranges::union(vec![(7, 9), (2, 1), (0, 1), (2, 3), (12, 12)], 0);
        assert_eq!(set.as_slice(), [(0, 3), (7, 9), (12, 12)]);
        assert_eq!(set.hull(), Some((0, 12)));
        assert_eq!(
            Ranges::union(set.ranges.clone(), 2).as_slice(),
            [(0, 3), (7, 12)]
        );
        assert_eq!(
            set.filter(|count| count % 8 < 2).as_slice(),
            [(0, 1), (8, 9)]
        );
        assert_eq!(set.iter().count(), 8);
        let part = Ranges::union(vec![(10, 11)], 0).minus(&[(0, 1), (8, 20)], 0, 10);
        assert_eq!(part.as_slice(), [(0, 3), (9, 10)]);
        assert_eq!(Ranges::single(4).minus(&[(5, 9)], 0, 9), Ranges::default());
    }
}
