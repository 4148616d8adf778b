//! Averaging where hosts have room for so many processes and no more.
//!
//! The published averaging ([`averaging`]) knows no such bound. Here a host that would get more
//! than it takes gets what it takes, and the rest is averaged over the others. That is still what
//! the least loaded host with room would get, one process after the other.
//!
//! Neighbour: [`super::plan`] asks.
//!
//! Invariant: nobody gets more than its cap, and all processes are placed, or none.

use alloc::vec;
use alloc::vec::Vec;

use super::super::published::averaging;

/// How many of `count` communication processes each host gets, where host *i* has `back_ends[i]`
/// back ends already and takes at most `caps[i]` processes. None: all caps together are less than
/// `count`.
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
        let shares = averaging::average(&own, left);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
