//! The allocator against a plain tree knapsack, on states too large for trying all sets: only
//! there do whole parts of the tree have one table, and are counts left out that cannot be part
//! of the answer.
//!
//! The checker shares no code with the crate: one table for each switch, each child merged into
//! it for every count, and values compared as lists.

use hearth_alloc::placement::exact::{self, Certificate, Point, Preference, Question};
use hearth_alloc::topology::Topology;

/// What a choice is worth, the first number first; more is better.
type Value = [i64; 3];

struct Case<'a> {
    widths: &'a [u32],
    count: usize,
    preference: Preference,
}

impl Case<'_> {
    fn value(&self, together: i64, weight: i64, left: i64) -> Value {
        match self.preference {
            Preference::None => [together, -left, 0],
            Preference::HopsFirst => [together, weight, -left],
            Preference::WarmFirst => [weight, together, -left],
            Preference::Weighted { milli } => {
                let others = self.count as i64 - 1;
                [
                    2_000 * together + i64::from(milli) * others * weight,
                    -left,
                    0,
                ]
            }
        }
    }

    /// The best choices of 0, 1, 2, ... of these points, which are below one switch of `level`.
    fn best(&self, level: usize, points: &[Point]) -> Vec<Option<Value>> {
        let is_root = level == self.widths.len();
        let mut table: Vec<Option<Value>> = vec![Some([0; 3])];
        if level == 0 {
            assert_eq!(points.len(), 1, "one point in its place");
            let weight = self.value(0, points[0].weight.into(), 0);
            return vec![Some([0; 3]), Some(weight)];
        }
        let span: u32 = self.widths[..level - 1].iter().product();
        let same = |a: &Point, b: &Point| a.number / span == b.number / span;
        for child in points.chunk_by(same) {
            let below = self.best(level - 1, child);
            let most = (table.len() + below.len() - 2).min(self.count);
            let mut sums = vec![None; most + 1];
            for (a, worth) in table.iter().enumerate() {
                for (b, other) in below.iter().enumerate().take(most + 1 - a.min(most + 1)) {
                    let (Some(worth), Some(other)) = (worth, other) else {
                        continue;
                    };
                    let sum = [0, 1, 2].map(|place| worth[place] + other[place]);
                    sums[a + b] = sums[a + b].max(Some(sum));
                }
            }
            table = sums;
        }
        if !is_root {
            for (count, value) in table.iter_mut().enumerate().skip(1) {
                let count = count as i64;
                let term = self.value(count * (count - 1), 0, points.len() as i64 - count);
                *value = value.map(|value| [0, 1, 2].map(|place| value[place] + term[place]));
            }
        }
        table
    }
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 >> 33) ^ (self.0 >> 13);
        (mixed % u64::from(limit)) as u32
    }
}

/// Free points: what jobs of many sizes left, which are runs, and scattered ones.
fn free(numbers: &mut Numbers, places: u32, weight_max: u32) -> Vec<Point> {
    let mut is_free = vec![true; places as usize];
    let busy = numbers.below(90) * places / 100;
    let run_max = [1, 4, 16, 64, 200][numbers.below(5) as usize];
    let mut taken = 0;
    while taken < busy {
        let first = numbers.below(places);
        let run = 1 + numbers.below(run_max);
        for place in first..(first + run).min(places) {
            taken += u32::from(std::mem::take(&mut is_free[place as usize]));
        }
    }
    let is_warm_run = numbers.below(2) == 0;
    let mut weight = 0;
    let points = (0..places).filter(|place| is_free[*place as usize]);
    points
        .map(|number| {
            if !is_warm_run || number % 32 == 0 {
                weight = numbers.below(weight_max + 1);
            }
            Point { number, weight }
        })
        .collect()
}

#[test]
fn large_states_agree_with_a_plain_knapsack() {
    let trees: [&[u32]; 9] = [
        &[4, 4, 4, 4],
        &[16, 8, 6],
        &[1, 6, 7, 9],
        &[8, 80],
        &[3, 3, 3, 3, 3, 3],
        &[64, 4, 3],
        &[2, 20, 20],
        &[8, 1, 8, 8],
        &[32, 3, 8],
    ];
    let mut numbers = Numbers(7);
    let mut by_knapsack = 0;
    for round in 0..1_800 {
        let widths = trees[round % trees.len()];
        let weight_max = [0, 1, 1, 4][round / 9 % 4];
        let preference = match round % 5 {
            0 => Preference::None,
            1 => Preference::HopsFirst,
            2 => Preference::WarmFirst,
            _ => Preference::Weighted {
                milli: 25 * numbers.below(120),
            },
        };
        let free = free(&mut numbers, widths.iter().product(), weight_max);
        let most = free.len() as u32;
        let most = if numbers.below(3) > 0 { most / 3 } else { most };
        let count = 1 + numbers.below(most) as usize;
        let topology = Topology::new(widths).unwrap();
        let question = Question {
            topology: &topology,
            free: &free,
            count,
            preference,
            unit: 1,
        };
        let choice = exact::choose(&question).unwrap();
        by_knapsack += usize::from(choice.certificate == Certificate::Knapsack);
        let case = Case {
            widths,
            count,
            preference,
        };
        let height = widths.len() as i64;
        let pairs = (count * (count - 1) / 2) as i64;
        let together = (2 * height - 1) * pairs - choice.hops;
        let found = case.value(together, choice.weight, choice.left_behind);
        let best = case.best(widths.len(), &free)[count].unwrap();
        assert_eq!(
            found,
            best,
            "round {round}: {count} of {} in {topology}, {preference:?}, {}",
            free.len(),
            choice.certificate
        );
    }
    println!("{by_knapsack} of 1,800 by the knapsack");
    assert!(by_knapsack > 750, "{by_knapsack}");
}
