//! Placement 1, best-effort averaging: the total number of processes of each host is kept even.
//!
//! Source: the overlay method, placement by best-effort averaging, steps 1 to 4.

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

/// The same where host *i* takes at most `caps[i]` processes: who would get more gets these, and
/// the rest goes to the others. None: all caps together are less than `count`.
pub fn average_within(back_ends: &[u32], caps: &[u32], count: u32) -> Option<Vec<u32>> {
    let room: u64 = caps.iter().map(|cap| u64::from(*cap)).sum();
    if room < count.into() {
        return None;
    }
    let mut placed = vec![0; back_ends.len()];
    let mut open: Vec<usize> = (0..back_ends.len()).collect();
    let mut left = count;
    // Each round fixes a host at its cap or ends: at most as many rounds as hosts.
    loop {
        let own: Vec<u32> = open.iter().map(|&host| back_ends[host]).collect();
        let shares = average(&own, left);
        for (&host, &share) in open.iter().zip(&shares) {
            placed[host] = share.min(caps[host]);
        }
        let before = open.len();
        let full = |host: usize, share: u32| share > caps[host];
        let mut shares = shares.into_iter();
        open.retain(|&host| {
            let is_full = shares.next().is_some_and(|share| full(host, share));
            if is_full {
                left -= caps[host];
            }
            !is_full
        });
        if open.len() == before {
            return Some(placed);
        }
    }
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

    #[test]
    fn nobody_gets_more_than_its_cap() {
        let within = |caps: &[u32], count| average_within(&[1, 1, 1, 0], caps, count);
        assert_eq!(within(&[1, 1, 1, 1], 3), Some(vec![1, 1, 0, 1]));
        assert_eq!(within(&[4, 0, 1, 1], 5), Some(vec![3, 0, 1, 1]));
        assert_eq!(within(&[4, 0, 1, 1], 6), Some(vec![4, 0, 1, 1]));
        assert_eq!(within(&[4, 0, 1, 1], 7), None);
        assert_eq!(average_within(&[], &[], 0), Some(vec![]));
    }

    /// The next process goes to the host with the fewest that has room.
    fn greedily(back_ends: &[u32], caps: &[u32], count: u32) -> Vec<u32> {
        let mut totals = back_ends.to_vec();
        for _ in 0..count {
            let room =
                (0..totals.len()).filter(|&host| totals[host] - back_ends[host] < caps[host]);
            let least = room.min_by_key(|&host| totals[host]);
            totals[least.expect("there is room")] += 1;
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
            let mut greedy = greedily(&back_ends, &vec![u32::MAX; back_ends.len()], count);
            totals.sort_unstable();
            greedy.sort_unstable();
            prop_assert_eq!(totals, greedy);
        }

        #[test]
        fn with_caps_too(
            hosts in proptest::collection::vec((0_u32..8, 0_u32..5), 1..30), part in 0_u32..=100,
        ) {
            let (back_ends, caps): (Vec<u32>, Vec<u32>) = hosts.into_iter().unzip();
            let count = caps.iter().sum::<u32>() * part / 100;
            let placed = average_within(&back_ends, &caps, count).unwrap();
            prop_assert_eq!(placed.iter().sum::<u32>(), count);
            prop_assert!(placed.iter().zip(&caps).all(|(own, cap)| own <= cap));
            let totals = back_ends.iter().zip(&placed).map(|(own, more)| own + more);
            let mut totals: Vec<u32> = totals.collect();
            let mut greedy = greedily(&back_ends, &caps, count);
            totals.sort_unstable();
            greedy.sort_unstable();
            prop_assert_eq!(totals, greedy);
        }
    }
}
