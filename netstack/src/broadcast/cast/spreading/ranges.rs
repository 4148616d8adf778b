//! Sets of members' numbers, as few ranges as there are gaps.

use alloc::vec::Vec;

use crate::broadcast::message::Range;

/// Ranges of members, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RangeSet(Vec<Range>);

impl RangeSet {
    pub(super) fn insert(&mut self, range: Range) {
        // The first range that ends at or behind the new one's start, neighbours included.
        let from = self
            .0
            .partition_point(|kept| kept.last.saturating_add(1) < range.first);
        let mut merged = range;
        let mut to = from;
        while let Some(kept) = self.0.get(to)
            && kept.first <= range.last.saturating_add(1)
        {
            merged.first = merged.first.min(kept.first);
            merged.last = merged.last.max(kept.last);
            to += 1;
        }
        self.0.splice(from..to, [merged]);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out so many ranges at most, from the first on.
    pub(super) fn take(&mut self, most: usize) -> Vec<Range> {
        let most = most.min(self.0.len());
        self.0.drain(..most).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_merge() {
        let range = |first, last| Range { first, last };
        let mut set = RangeSet::default();
        for member in [5, 1, 9, 3, 2, 4, 5] {
            set.insert(range(member, member));
        }
        assert_eq!(set.0, [range(1, 5), range(9, 9)]);
        set.insert(range(0, 20));
        assert_eq!(set.0, [range(0, 20)]);
    }
}
