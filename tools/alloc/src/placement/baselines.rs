//! Simple algorithms that the published placement and ours are measured against.
//!
//! They choose among free units only; all else is what the others have. The replay of traces
//! compares them (`tools/alloc/replay`), and `[queue] placement` takes their names.
//!
//! Neighbour: [`super`] asks for them by [`super::Placing`].
//!
//! Invariant: each gives as many of the free units as are wanted.

use super::exact::{self, Question};

/// The nested greedy choice: not always the fewest hops. None when there are not enough units.
pub(super) fn nested_greedy(question: &Question) -> Option<Vec<u32>> {
    exact::nested_greedy(question)
}

/// Some of these numbers, in as few runs as come first.
pub(super) fn contiguous(numbers: &[u32], mut wanted: usize) -> Vec<u32> {
    let mut runs: Vec<&[u32]> = numbers.chunk_by(|a, b| a + 1 == *b).collect();
    runs.sort_by_key(|run| run.len());
    let mut chosen = Vec::with_capacity(wanted);
    while wanted > 0 {
        let tightest = runs.iter().position(|run| run.len() >= wanted);
        let run = match tightest {
            Some(tightest) => runs.remove(tightest),
            None => runs.pop().expect("there are enough"),
        };
        let here = run.len().min(wanted);
        chosen.extend(&run[..here]);
        wanted -= here;
    }
    chosen.sort_unstable();
    chosen
}

/// Any of these numbers, by a seed and the number of the job.
pub(super) fn random(mut numbers: Vec<u32>, wanted: usize, (seed, job): (u64, u64)) -> Vec<u32> {
    let mut random = Random::new(seed, job);
    for place in 0..wanted {
        let from = place + random.below(numbers.len() - place);
        numbers.swap(place, from);
    }
    numbers.truncate(wanted);
    numbers.sort_unstable();
    numbers
}

/// Numbers that depend on a seed only (splitmix64).
struct Random(u64);

impl Random {
    fn new(seed: u64, job: u64) -> Self {
        Random(seed ^ job.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ mixed >> 31) % limit as u64) as usize
    }
}
