//! One number for what a choice is worth, in which all that counts has its place.
//!
//! Hops saved, weight of the warm points and points left behind are all sums over switches and
//! points, compared in an order that the [`super::Preference`] says. Each gets a factor so large
//! that all that comes after it together does not reach it: then comparing the sums is comparing
//! one after the other, and a best choice consists of best parts.
//!
//! Key types: [`Worth`] (the factors), [`Value`] (`i64` where all sums fit, else `i128`).
//! Neighbour: [`super::knapsack`].
//!
//! Invariant: the sums of a choice stay below [`Value::LIMIT`] in absolute value.

use std::ops::{Add, Mul, Sub};

use super::Preference;
use super::tree::{Measure, Tree};

/// An integer that holds what choices are worth.
pub(super) trait Value:
    Copy + Ord + Add<Output = Self> + Sub<Output = Self> + Mul<Output = Self> + 'static
{
    /// What no choice is worth; even with one added to it.
    const DEAD: Self;
    /// No choice is worth so much, or less than minus that.
    const LIMIT: i128;
    /// From a number below the limit.
    fn of(number: i128) -> Self;
    /// As a number of any size.
    fn wide(self) -> i128;
    /// Whether it is what a choice is worth.
    fn is_live(self) -> bool;
    /// Divided by a count of at least one, rounded up.
    fn per(self, count: usize) -> Self;
}

impl Value for i64 {
    const DEAD: i64 = -(1 << 61);
    const LIMIT: i128 = 1 << 59;

    fn of(number: i128) -> i64 {
        number as i64
    }

    fn wide(self) -> i128 {
        self.into()
    }

    fn is_live(self) -> bool {
        self > -(1 << 60)
    }

    fn per(self, count: usize) -> i64 {
        -(-self).div_euclid(count as i64)
    }
}

impl Value for i128 {
    const DEAD: i128 = -(1 << 125);
    const LIMIT: i128 = 1 << 123;

    fn of(number: i128) -> i128 {
        number
    }

    fn wide(self) -> i128 {
        self
    }

    fn is_live(self) -> bool {
        self > -(1 << 124)
    }

    fn per(self, count: usize) -> i128 {
        -(-self).div_euclid(count as i128)
    }
}

/// What is added for each hop saved, for weight, and taken off for each point left behind.
#[derive(Debug, Clone, Copy)]
pub(super) struct Worth<V> {
    pub together: V,
    pub weight: V,
    pub left: V,
}

impl Worth<i128> {
    /// The factors for a choice of `count` points of `unit` nodes each, and the highest sum that
    /// can come of them.
    pub fn new(tree: &Tree, count: usize, preference: Preference, unit: u32) -> (Self, i128) {
        let levels = tree.below_root() as i128;
        let count_wide = count as i128;
        let most_left = levels * tree.points.len() as i128;
        let most_together = levels * count_wide * (count_wide - 1).max(0);
        let heaviest = tree.points.iter().map(|point| point.weight).max();
        let most_weight = i128::from(heaviest.unwrap_or(0)) * count_wide;
        let left = 1;
        let above_left = most_left + 1;
        let (together, weight) = match preference {
            Preference::None | Preference::WarmFirst => (above_left, 0),
            Preference::HopsFirst => (above_left * (most_weight + 1), above_left),
            Preference::Weighted { milli } => {
                // Hops between nodes: the points' times the pairs of nodes of two points.
                let unit = i128::from(unit);
                let hops = 2_000 * unit * unit;
                let lambda = i128::from(milli) * (count_wide * unit - 1).max(0);
                let common = greatest_common_divisor(hops, lambda);
                (hops / common * above_left, lambda / common * above_left)
            }
        };
        let worth = Worth {
            together,
            weight,
            left,
        };
        let most = together * most_together + weight * most_weight + left * most_left;
        (worth, most)
    }

    /// The same factors as another integer.
    pub fn to<V: Value>(self) -> Worth<V> {
        Worth {
            together: V::of(self.together),
            weight: V::of(self.weight),
            left: V::of(self.left),
        }
    }
}

/// Of two numbers of which the first is not 0.
fn greatest_common_divisor(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

impl<V: Value> Worth<V> {
    /// What the use of `count` of `free` points below a switch is worth for that switch.
    pub fn of_switch(&self, count: usize, free: usize) -> V {
        if count == 0 {
            return V::of(0);
        }
        let saved = (count * (count - 1)) as i128;
        self.together * V::of(saved) - self.left * V::of((free - count) as i128)
    }

    /// What a choice is worth.
    pub fn of(&self, measure: &Measure) -> V {
        self.together * V::of(measure.together.into()) + self.weight * V::of(measure.weight.into())
            - self.left * V::of(measure.left.into())
    }
}
