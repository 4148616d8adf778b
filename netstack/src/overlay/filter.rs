//! Reduction: what becomes of values on their way up the tree.
//!
//! An [`Acc`] is one metric of some back ends, reduced. It begins as one back end's value
//! ([`Acc::of`]) and takes in others ([`Acc::merge`]) in any order and grouping with the same
//! result, so that it does not matter which process of the tree does it.
//!
//! Source: the filters of the overlay method: sum, min, max, avg (value and count), concat,
//! equivalence classes, histogram. Concat is no reduction: its rows are passed on, see
//! [`super::section`].
//!
//! Invariant: `count` is the number of back ends whose value is in it, in every filter.

use alloc::vec;
use alloc::vec::Vec;

use crate::ids::NodeId;

/// Most buckets of a histogram: one more than its bounds.
pub const MAX_BUCKETS: usize = 16;
/// Most equivalence classes of a metric; the values of further ones are counted together.
pub const MAX_CLASSES: usize = 16;

/// How values are reduced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// Their sum.
    Sum,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Sum and count, for the mean.
    Avg,
    /// Nothing: each back end's values arrive.
    Concat,
    /// Equal values together, with how many have them and one of these.
    Classes,
    /// How many are in each bucket: up to the first bound, above it up to the second, and so on;
    /// the last bucket has what is above all. At most 15 bounds, rising.
    Histogram(Vec<i64>),
}

impl Filter {
    /// Its number on the wire.
    pub fn code(&self) -> u8 {
        match self {
            Filter::Sum => 1,
            Filter::Min => 2,
            Filter::Max => 3,
            Filter::Avg => 4,
            Filter::Concat => 5,
            Filter::Classes => 6,
            Filter::Histogram(_) => 7,
        }
    }

    /// Bytes that one metric takes at most in a process, and on the wire.
    pub fn cost(&self) -> usize {
        match self {
            Filter::Sum | Filter::Avg => 24,
            Filter::Min | Filter::Max => 16,
            Filter::Concat => 12,
            Filter::Classes => 8 + MAX_CLASSES * 20,
            Filter::Histogram(_) => 8 + MAX_BUCKETS * 5,
        }
    }

    /// The bounds make sense.
    pub fn is_sound(&self) -> bool {
        match self {
            Filter::Histogram(bounds) => {
                (1..MAX_BUCKETS).contains(&bounds.len()) && bounds.is_sorted_by(|a, b| a < b)
            }
            _ => true,
        }
    }
}

/// Equal values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The value.
    pub value: i64,
    /// Back ends that have it.
    pub count: u32,
    /// The lowest of them.
    pub example: NodeId,
}

/// What a filter keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// A sum, for [`Filter::Sum`] and [`Filter::Avg`]: wide enough for 2^64 values.
    Total(i128),
    /// A value, for [`Filter::Min`].
    Least(i64),
    /// A value, for [`Filter::Max`].
    Most(i64),
    /// Classes by value, for [`Filter::Classes`].
    Classes {
        /// At most [`MAX_CLASSES`], by value.
        classes: Vec<Class>,
        /// Back ends with other values.
        other: u32,
    },
    /// Counts of the buckets, for [`Filter::Histogram`].
    Buckets(Vec<u32>),
}

/// One metric of some back ends. Without any (`count` 0) there is nothing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Acc {
    /// Back ends whose value is in it.
    pub count: u32,
    /// What is known of their values; None when there are none.
    pub reduced: Option<Reduced>,
}

impl Acc {
    /// One back end's value. Not for concat, whose values stay apart.
    pub fn of(filter: &Filter, node: NodeId, value: i64) -> Acc {
        let reduced = match filter {
            Filter::Sum | Filter::Avg => Reduced::Total(value.into()),
            Filter::Min => Reduced::Least(value),
            Filter::Max | Filter::Concat => Reduced::Most(value),
            Filter::Classes => Reduced::Classes {
                classes: vec![Class {
                    value,
                    count: 1,
                    example: node,
                }],
                other: 0,
            },
            Filter::Histogram(bounds) => {
                let mut buckets = vec![0; bounds.len() + 1];
                buckets[bounds.partition_point(|bound| *bound < value)] = 1;
                Reduced::Buckets(buckets)
            }
        };
        Acc {
            count: 1,
            reduced: Some(reduced),
        }
    }

    /// Takes in other back ends' values. False: they were reduced in another way, nothing is
    /// changed.
    pub fn merge(&mut self, other: Acc) -> bool {
        let Some(theirs) = other.reduced else {
            return true;
        };
        let Some(ours) = &mut self.reduced else {
            *self = Acc {
                count: other.count,
                reduced: Some(theirs),
            };
            return true;
        };
        match (ours, theirs) {
            (Reduced::Total(sum), Reduced::Total(more)) => *sum = sum.saturating_add(more),
            (Reduced::Least(least), Reduced::Least(value)) => *least = value.min(*least),
            (Reduced::Most(most), Reduced::Most(value)) => *most = value.max(*most),
            (
                Reduced::Classes { classes, other },
                Reduced::Classes {
                    classes: theirs,
                    other: theirs_other,
                },
            ) => {
                *other = other.saturating_add(theirs_other);
                merge_classes(classes, other, theirs);
            }
            (Reduced::Buckets(buckets), Reduced::Buckets(theirs))
                if buckets.len() == theirs.len() =>
            {
                for (count, more) in buckets.iter_mut().zip(theirs) {
                    *count = count.saturating_add(more);
                }
            }
            _ => return false,
        }
        self.count = self.count.saturating_add(other.count);
        true
    }

    /// The mean in millionths, of a sum; None without values or for another filter.
    pub fn mean_millionths(&self) -> Option<i128> {
        match (&self.reduced, self.count) {
            (Some(Reduced::Total(_)), 0) => None,
            (Some(Reduced::Total(sum)), count) => {
                Some(sum.saturating_mul(1_000_000) / i128::from(count))
            }
            _ => None,
        }
    }
}

/// Keeps the lowest values of both, so that no order of merging changes which are kept.
fn merge_classes(classes: &mut Vec<Class>, other: &mut u32, theirs: Vec<Class>) {
    for class in theirs {
        match classes.binary_search_by_key(&class.value, |class| class.value) {
            Ok(at) => {
                let known = &mut classes[at];
                known.count = known.count.saturating_add(class.count);
                known.example = known.example.min(class.example);
            }
            Err(at) => classes.insert(at, class),
        }
    }
    for class in classes.drain(MAX_CLASSES.min(classes.len())..) {
        *other = other.saturating_add(class.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reduce(filter: &Filter, values: &[i64]) -> Acc {
        let mut acc = Acc::default();
        for (node, value) in (0..).zip(values) {
            assert!(acc.merge(Acc::of(filter, NodeId(node), *value)));
        }
        acc
    }

    #[test]
    fn each_filter_reduces_as_it_says() {
        let values = [5, -3, 5, 9];
        let reduced = |filter| reduce(&filter, &values).reduced.unwrap();
        assert_eq!(reduced(Filter::Sum), Reduced::Total(16));
        assert_eq!(
            reduce(&Filter::Avg, &values).mean_millionths(),
            Some(4_000_000)
        );
        assert_eq!(reduced(Filter::Min), Reduced::Least(-3));
        assert_eq!(reduced(Filter::Max), Reduced::Most(9));
        let class = |value, count, example| Class {
            value,
            count,
            example: NodeId(example),
        };
        assert_eq!(
            reduced(Filter::Classes),
            Reduced::Classes {
                classes: vec![class(-3, 1, 1), class(5, 2, 0), class(9, 1, 3)],
                other: 0
            }
        );
        assert_eq!(
            reduced(Filter::Histogram(vec![0, 5])),
            Reduced::Buckets(vec![1, 2, 1])
        );
        assert_eq!(reduce(&Filter::Sum, &[]), Acc::default());
    }

    #[test]
    fn classes_beyond_the_bound_are_counted_together() {
        let values: Vec<i64> = (0..40).collect();
        let Some(Reduced::Classes { classes, other }) = reduce(&Filter::Classes, &values).reduced
        else {
            panic!("classes");
        };
        assert_eq!((classes.len(), other), (MAX_CLASSES, 24));
        assert_eq!(classes[15].value, 15);
    }

    #[test]
    fn what_does_not_fit_together_is_left_alone() {
        let mut acc = reduce(&Filter::Sum, &[1]);
        assert!(!acc.merge(reduce(&Filter::Min, &[1])));
        let mut buckets = reduce(&Filter::Histogram(vec![1]), &[1]);
        assert!(!buckets.merge(reduce(&Filter::Histogram(vec![1, 2]), &[1])));
        assert_eq!((acc.count, buckets.count), (1, 1));
        assert!(!Filter::Histogram(vec![]).is_sound());
        assert!(!Filter::Histogram(vec![2, 1]).is_sound());
        assert!(!Filter::Histogram((0..16).collect()).is_sound());
    }

    fn filters() -> impl Strategy<Value = Filter> {
        prop_oneof![
            Just(Filter::Sum),
            Just(Filter::Min),
            Just(Filter::Max),
            Just(Filter::Avg),
            Just(Filter::Classes),
            Just(Filter::Histogram(vec![-5, 0, 3, 20])),
        ]
    }

    proptest! {
        #[test]
        fn grouping_and_order_do_not_matter(
            filter in filters(), values in proptest::collection::vec(-30_i64..30, 0..60), cut in 0_usize..60,
        ) {
            let whole = reduce(&filter, &values);
            let cut = cut.min(values.len());
            // The second part first, each on its own.
            let mut second = Acc::default();
            let mut first = Acc::default();
            for (node, value) in (0..).zip(&values) {
                let acc = if (node as usize) < cut { &mut first } else { &mut second };
                prop_assert!(acc.merge(Acc::of(&filter, NodeId(node), *value)));
            }
            prop_assert!(second.merge(first));
            prop_assert_eq!(&second, &whole);
            prop_assert_eq!(whole.count as usize, values.len());
            match whole.reduced {
                Some(Reduced::Classes { classes, other }) => {
                    let counted: u32 = classes.iter().map(|class| class.count).sum();
                    prop_assert_eq!((counted + other) as usize, values.len());
                }
                Some(Reduced::Buckets(buckets)) => {
                    prop_assert_eq!(buckets.iter().sum::<u32>() as usize, values.len());
                }
                _ => {}
            }
        }
    }
}
