//! Placement 1, best-effort averaging: the total number of processes of each host is kept even.
//!
//! Source: the overlay method, placement by best-effort averaging, steps 1 to 4. A host may get any
//! number: the published form knows no bound, ours is [`super::super::shipped::capped`].

use alloc::vec;
use alloc::vec::Vec;

/// How many of `count` communication processes each host gets, where host *i* has `back_ends[i]`
/// back ends already. Without hosts nobody gets any.
pub fn average(back_ends: &[u32], count: u32) -> Vec<u32> {
    let hosts = back_ends.len();
    let mut excluded = vec![false; hosts];
    let mut left = hosts as u64;
    let mut sum: u64 = back_ends.iter().map(|own| u64::from(*own)).sum::<u64>() + u64::from(count);
    // Each round excludes a host or ends: at most as many rounds as hosts.
    while left > 0 {
        let over = |host: usize| u64::from(back_ends[host]);
        let shares = shares(&excluded, sum, left);
        let full: Vec<usize> = (0..hosts)
            .filter(|&host| !excluded[host] && over(host) > shares[host])
            .collect();
        if full.is_empty() {
            return (0..hosts)
                .map(|host| match excluded[host] {
                    true => 0,
                    false => (shares[host] - over(host)) as u32,
                })
                .collect();
        }
        for host in full {
            excluded[host] = true;
            sum -= over(host);
            left -= 1;
        }
    }
    vec![0; hosts]
}

/// What each host that is not excluded should have in total; the remainder goes to the lowest
/// indices.
fn shares(excluded: &[bool], sum: u64, left: u64) -> Vec<u64> {
    let (each, mut more) = (sum / left, sum % left);
    let share = |excluded: &bool| {
        if *excluded {
            return 0;
        }
        let one = u64::from(more > 0);
        more -= one;
        each + one
    };
    excluded.iter().map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_published_vectors() {
        assert_eq!(average(&[12, 1, 5, 0, 2], 6), [0, 2, 0, 3, 1]);
        assert_eq!(average(&[9, 1, 4, 0, 2], 8), [0, 3, 0, 4, 1]);
        assert_eq!(average(&[3, 3, 3], 4), [2, 1, 1]);
        assert_eq!(average(&[5, 0], 0), [0, 0]);
        assert_eq!(average(&[8, 2, 2, 0], 4), [0, 1, 1, 2]);
        assert_eq!(average(&[], 4), [0_u32; 0]);
    }

    /// The next process goes to the host with the fewest.
    fn greedily(back_ends: &[u32], count: u32) -> Vec<u32> {
        let mut totals = back_ends.to_vec();
        for _ in 0..count {
            let least = totals.iter_mut().min();
            *least.expect("there is a host") += 1;
        }
        totals
    }

    proptest! {
        #[test]
        fn totals_are_those_of_the_greedy_rule(
            back_ends in proptest::collection::vec(0_u32..40, 1..30), count in 0_u32..200,
        ) {
            let placed = average(&back_ends, count);
            prop_assert_eq!(placed.iter().sum::<u32>(), count);
            let mut totals: Vec<u32> =
                back_ends.iter().zip(&placed).map(|(own, more)| own + more).collect();
            let mut greedy = greedily(&back_ends, count);
            totals.sort_unstable();
            greedy.sort_unstable();
            prop_assert_eq!(totals, greedy);
        }
    }
}
