//! What a level of switches can save at most, whatever the other levels do.
//!
//! Of the numbers `k_v` of one level only their sum is given and that each is within its limits.
//! The sum of `k_v * (k_v - 1)` is convex, so it is greatest when the largest switches are filled
//! one after the other: these numbers majorize all others. Where some points must be taken
//! (`need`), each switch is filled from there, in the order of what a point saves on average, and
//! the last one counts in proportion; that is a bound which may be a little too high, never too
//! low.
//!
//! Key types: [`LevelBound`] (one level of a tree or of a part of it), [`Bounds`] (all levels of
//! the whole tree). Neighbours: [`super::knapsack`] leaves out what cannot reach the best known,
//! [`super::greedy`] is certified by meeting the bound of every level.
//!
//! Invariant: no choice of points saves more on a level than its bound.

use super::tree::Tree;

/// The bound of one set of switches of one level.
pub(super) struct LevelBound {
    /// Limits `(need, cap)`, in the order of filling.
    limits: Vec<(i64, i64)>,
    /// Points taken when the first so many switches are filled and of the others is taken what
    /// is needed.
    filled: Vec<i64>,
    /// What that saves.
    saved: Vec<i64>,
    /// Whether nothing is needed: then the bound is met by a choice.
    is_exact: bool,
}

fn pairs(count: i64) -> i64 {
    count * (count - 1)
}

impl LevelBound {
    /// Of switches with these limits.
    pub fn new(limits: impl Iterator<Item = (usize, usize)>) -> Self {
        let mut limits: Vec<(i64, i64)> = limits
            .filter(|(_, cap)| *cap > 0)
            .map(|(need, cap)| (need as i64, cap as i64))
            .collect();
        limits.sort_unstable_by_key(|(need, cap)| std::cmp::Reverse((need + cap, *cap)));
        Self::of_sorted(limits)
    }

    fn of_sorted(limits: Vec<(i64, i64)>) -> Self {
        let mut filled = limits.iter().map(|(need, _)| need).sum::<i64>();
        let mut saved = limits.iter().map(|(need, _)| pairs(*need)).sum::<i64>();
        let is_exact = filled == 0;
        let mut bound = LevelBound {
            filled: vec![filled],
            saved: vec![saved],
            is_exact,
            limits,
        };
        for (need, cap) in &bound.limits {
            filled += cap - need;
            saved += pairs(*cap) - pairs(*need);
            bound.filled.push(filled);
            bound.saved.push(saved);
        }
        bound
    }

    /// Most that `count` points save here; none when so many cannot be taken.
    pub fn most(&self, count: i64) -> Option<i64> {
        let full = self.filled.partition_point(|filled| *filled <= count);
        let full = full.checked_sub(1)?;
        self.most_from(full, count - self.filled[full], self.saved[full])
    }

    fn most_from(&self, full: usize, rest: i64, saved: i64) -> Option<i64> {
        if rest == 0 {
            return Some(saved);
        }
        let (need, cap) = *self.limits.get(full)?;
        if self.is_exact {
            return Some(saved + pairs(rest));
        }
        let more = pairs(cap) - pairs(need);
        let room = cap - need;
        Some(saved + (more * rest + room - 1) / room)
    }

    /// The same without one switch that has these limits.
    pub fn most_without(&self, (need, cap): (i64, i64), count: i64) -> Option<i64> {
        if cap == 0 {
            return self.most(count);
        }
        let key = (need + cap, cap);
        let place = self.limits.partition_point(|(n, c)| (n + c, *c) > key);
        debug_assert_eq!(self.limits[place], (need, cap));
        // As if the switch were full beside the others: those before it in the order may be
        // enough, else it is one of the full ones.
        let count_before = count + need;
        if count_before <= self.filled[place] {
            return Some(self.most(count_before)? - pairs(need));
        }
        Some(self.most(count + cap)? - pairs(cap))
    }

    /// The same without the switches that `is_out` says, by their limits, as often as it says.
    pub fn without(&self, mut out: Vec<(i64, i64)>) -> LevelBound {
        out.retain(|(_, cap)| *cap > 0);
        out.sort_unstable_by_key(|(need, cap)| std::cmp::Reverse((need + cap, *cap)));
        let mut out = out.into_iter().peekable();
        let stays = |limits: &&(i64, i64)| out.next_if(|next| next == *limits).is_none();
        Self::of_sorted(self.limits.iter().filter(stays).copied().collect())
    }

    /// Fewest points left behind on this level by a choice that meets the bound; for switches
    /// all of whose points may be taken.
    pub fn least_left(&self, count: i64) -> i64 {
        let full = self.filled.partition_point(|filled| *filled <= count) - 1;
        let rest = count - self.filled[full];
        if rest == 0 {
            return 0;
        }
        let fits = self.limits[full..].partition_point(|(_, cap)| *cap >= rest);
        self.limits[full + fits - 1].1 - rest
    }
}

/// The bounds of all levels of a tree.
pub(super) struct Bounds {
    /// Points wanted.
    pub count: i64,
    /// By level, from the leaf switches up, the root left out.
    pub levels: Vec<LevelBound>,
    /// By level: the bound for 0, 1, 2, ... points; what cannot be is very negative.
    pub tables: Vec<Vec<i64>>,
}

/// Stands for what cannot be; sums of a few stay within range.
pub(super) const NEVER: i64 = i64::MIN / 64;

impl Bounds {
    /// Of the whole tree, for `count` points.
    pub fn new(tree: &Tree, count: usize) -> Self {
        let levels: Vec<LevelBound> = (0..tree.below_root())
            .map(|level| {
                let switches = tree.levels[level].iter();
                LevelBound::new(switches.map(|switch| (switch.need, switch.cap)))
            })
            .collect();
        Bounds {
            count: count as i64,
            tables: levels.iter().map(|level| level.table(count)).collect(),
            levels,
        }
    }

    /// The most that `count` points can save on all levels together.
    pub fn most(&self) -> i64 {
        let at = self.count as usize;
        self.tables.iter().map(|table| table[at]).sum()
    }
}

impl LevelBound {
    /// The bounds for 0 to `count` points.
    pub fn table(&self, count: usize) -> Vec<i64> {
        let mut full = 0;
        let mut table = Vec::with_capacity(count + 1);
        for count in 0..=count as i64 {
            while self
                .filled
                .get(full + 1)
                .is_some_and(|filled| *filled <= count)
            {
                full += 1;
            }
            let rest = count - self.filled[full];
            let most = (rest >= 0).then(|| self.most_from(full, rest, self.saved[full]));
            table.push(most.flatten().unwrap_or(NEVER));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The best of all choices of counts within limits.
    fn best(limits: &[(usize, usize)], count: i64) -> Option<i64> {
        let Some(((need, cap), rest)) = limits.split_first() else {
            return (count == 0).then_some(0);
        };
        (*need as i64..=*cap as i64)
            .filter_map(|here| Some(pairs(here) + best(rest, count - here)?))
            .max()
    }

    #[test]
    fn bounds_are_met_without_needs_and_never_too_low_with_them() {
        let free = [(0, 3), (0, 5), (0, 1), (0, 3), (0, 0), (0, 4)];
        let needy = [(1, 3), (0, 5), (1, 1), (2, 3), (0, 0), (0, 4)];
        for (limits, is_exact) in [(free, true), (needy, false)] {
            let bound = LevelBound::new(limits.into_iter());
            let table = bound.table(18);
            for count in 0..=18 {
                let best_of_all = best(&limits, count);
                let most = bound.most(count);
                assert_eq!(most.unwrap_or(NEVER), table[count as usize]);
                assert_eq!(best_of_all.is_some(), most.is_some());
                assert!(best_of_all <= most, "{count}: {best_of_all:?} {most:?}");
                assert!(!is_exact || best_of_all == most);
                for out in 0..limits.len() {
                    let mut others = limits.to_vec();
                    let (need, cap) = others.remove(out);
                    let (need, cap) = (need as i64, cap as i64);
                    let most = bound.most_without((need, cap), count);
                    assert!(best(&others, count) <= most);
                    assert!(!is_exact || best(&others, count) == most);
                    let rest = bound.without(vec![(need, cap)]);
                    assert!(best(&others, count) <= rest.most(count));
                    assert!(!is_exact || best(&others, count) == rest.most(count));
                }
            }
        }
    }

    #[test]
    fn what_stays_behind_is_least_at_the_tightest_switch() {
        let bound = LevelBound::new([(0, 6), (0, 5), (0, 3), (0, 2)].into_iter());
        assert_eq!(bound.least_left(6), 0);
        assert_eq!(bound.least_left(2), 0);
        assert_eq!(bound.least_left(4), 1);
        assert_eq!(bound.least_left(7), 1);
        assert_eq!(bound.least_left(10), 1);
        assert_eq!(bound.least_left(9), 0);
    }
}
