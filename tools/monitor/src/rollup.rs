//! Values of a minute or an hour in four numbers.
//!
//! Invariant: merging is associative and commutative, so an hour made from its minutes is the hour
//! made from its ticks (sums are exact: `i128` holds 2^64 values of an `i64`).

use crate::METRICS_MAX;
use crate::pack::{put_varint, take_varint, unzigzag, zigzag};

/// Smallest, largest, sum and count of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rollup {
    /// The smallest value; meaningless without any.
    pub min: i64,
    /// The largest value; meaningless without any.
    pub max: i64,
    /// The sum.
    pub sum: i128,
    /// How many values; 0: no data.
    pub count: u64,
}

impl Rollup {
    /// Of no values.
    pub const EMPTY: Rollup = Rollup {
        min: i64::MAX,
        max: i64::MIN,
        sum: 0,
        count: 0,
    };

    /// Of one value.
    pub fn one(value: i64) -> Self {
        Rollup {
            min: value,
            max: value,
            sum: value.into(),
            count: 1,
        }
    }

    /// With one more value.
    pub fn add(&mut self, value: i64) {
        self.merge(&Rollup::one(value));
    }

    /// With all values of another.
    pub fn merge(&mut self, other: &Rollup) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.count += other.count;
    }
}

/// Adds `values` to `into`, which grows to their number.
pub fn add_all(into: &mut Vec<Rollup>, values: &[Option<i64>]) {
    if into.len() < values.len() {
        into.resize(values.len(), Rollup::EMPTY);
    }
    for (rollup, value) in into.iter_mut().zip(values) {
        if let Some(value) = value {
            rollup.add(*value);
        }
    }
}

/// Merges `others` into `into`, which grows to their number.
pub fn merge_all(into: &mut Vec<Rollup>, others: &[Rollup]) {
    if into.len() < others.len() {
        into.resize(others.len(), Rollup::EMPTY);
    }
    for (rollup, other) in into.iter_mut().zip(others) {
        rollup.merge(other);
    }
}

/// Appends roll-ups: for each its count, and where that is not zero its minimum, the width above
/// it, and the sum above `count` times the minimum, which is never negative.
pub fn encode(rollups: &[Rollup], out: &mut Vec<u8>) {
    put_varint(rollups.len() as u64, out);
    for rollup in rollups {
        put_varint(rollup.count, out);
        if rollup.count == 0 {
            continue;
        }
        put_varint(zigzag(rollup.min), out);
        put_varint(rollup.max.wrapping_sub(rollup.min) as u64, out);
        let above = (rollup.sum - i128::from(rollup.min) * i128::from(rollup.count)) as u128;
        put_varint(above as u64, out);
        put_varint((above >> 64) as u64, out);
    }
}

/// The reverse of [`encode`]; `None` for bytes that it did not write.
pub fn decode(mut bytes: &[u8], rollups: &mut Vec<Rollup>) -> Option<()> {
    let bytes = &mut bytes;
    let count = usize::try_from(take_varint(bytes)?).ok()?;
    if count > METRICS_MAX {
        return None;
    }
    rollups.clear();
    for _ in 0..count {
        let count = take_varint(bytes)?;
        if count == 0 {
            rollups.push(Rollup::EMPTY);
            continue;
        }
        let min = unzigzag(take_varint(bytes)?);
        let max = min.wrapping_add(take_varint(bytes)? as i64);
        let (low, high) = (take_varint(bytes)?, take_varint(bytes)?);
        let above = (u128::from(high) << 64 | u128::from(low)) as i128;
        let sum = above.checked_add(i128::from(min).checked_mul(i128::from(count))?)?;
        rollups.push(Rollup {
            min,
            max,
            sum,
            count,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(values: &[i64]) -> Rollup {
        let mut rollup = Rollup::EMPTY;
        values.iter().for_each(|&value| rollup.add(value));
        rollup
    }

    proptest! {
        #[test]
        fn parts_merge_to_the_whole(left: Vec<i64>, right: Vec<i64>) {
            let mut merged = of(&left);
            merged.merge(&of(&right));
            prop_assert_eq!(merged, of(&[left, right].concat()));
        }

        #[test]
        fn rollups_come_back(rows: Vec<Vec<i64>>) {
            let rollups: Vec<Rollup> = rows.iter().take(METRICS_MAX).map(|row| of(row)).collect();
            let (mut bytes, mut read) = (Vec::new(), Vec::new());
            encode(&rollups, &mut bytes);
            prop_assert!(decode(&bytes, &mut read).is_some());
            prop_assert_eq!(read, rollups);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, &mut Vec::new());
        }
    }
}
