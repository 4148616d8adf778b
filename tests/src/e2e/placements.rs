//! Whether jobs were placed as well as possible and no node was given out twice, from the records
//! of jobs.
//!
//! Key types: [`Fabric`] (a tree of two levels), [`Placed`] (one job on its nodes). Neighbour:
//! [`jobs`](crate::jobs).
//!
//! Control numbers what it does: each decision, and each moment at which a node was free again, has
//! a number above all before it. So what overlaps what is a matter of order, and of no clock.
//!
//! Invariant: nothing here comes from the allocator: hops are counted pair by pair, and the best
//! placement is found by trying every way to split a job over the leaf switches.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// A tree of two levels: leaf switches under one root.
#[derive(Debug, Clone, Copy)]
pub struct Fabric {
    /// Nodes on a leaf switch.
    pub leaf_nodes: u32,
    /// Leaf switches.
    pub leaves: u32,
}

/// One placement of one job.
#[derive(Debug, Clone)]
pub struct Placed {
    /// The job.
    pub job: u64,
    /// Its place in the order of decisions.
    pub decision: u64,
    /// Nodes that were free then.
    pub free: BTreeSet<u32>,
    /// Those it got, in rank order.
    pub nodes: Vec<u32>,
    /// What control says the sum of hops is.
    pub hops: u64,
    /// Where in that order each of its nodes was free again; only of those whose ranks ended by
    /// themselves.
    pub freed: BTreeMap<u32, u64>,
}

impl Placed {
    /// Reads the text of an event `job-placed`, of which there is one for each attempt of a job:
    /// `job ID placed on LIST, ... (optimal); free: LIST, hops: N, decision: N`.
    pub fn of_event(text: &str) -> Result<Placed> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let word = |key: &str| {
            let at = words.iter().position(|word| *word == key);
            let value = at.and_then(|at| words.get(at + 1));
            let value = value.map(|value| value.trim_end_matches(','));
            value.with_context(|| format!("no {key:?} in {text:?}"))
        };
        let number = |key: &str| -> Result<u64> { Ok(word(key)?.parse()?) };
        Ok(Placed {
            job: number("job")?,
            decision: number("decision:")?,
            free: node_list(word("free:")?)?.into_iter().collect(),
            nodes: node_list(word("on")?)?,
            hops: number("hops:")?,
            freed: BTreeMap::new(),
        })
    }

    /// Adds when its nodes were free again, if `job`, as `hearth jobs N --json` has it, is of this
    /// attempt.
    pub fn add_freed(&mut self, job: &Value) -> Result<()> {
        if job["placement"]["decision"].as_u64() != Some(self.decision) {
            return Ok(());
        }
        for rank in job["ranks"].as_array().into_iter().flatten() {
            if let (Some(node), Some(freed)) = (rank["node"].as_str(), rank["freed"].as_u64()) {
                self.freed.insert(one_node(node)?, freed);
            }
        }
        Ok(())
    }
}

impl Fabric {
    /// Switches crossed between two nodes.
    fn hops(self, one: u32, other: u32) -> u64 {
        match one / self.leaf_nodes == other / self.leaf_nodes {
            true => 1,
            false => 3,
        }
    }

    /// Switches crossed between all pairs of `nodes`.
    fn sum(self, nodes: &[u32]) -> u64 {
        let others = |(index, one): (usize, &u32)| -> u64 {
            nodes[index + 1..]
                .iter()
                .map(|other| self.hops(*one, *other))
                .sum()
        };
        nodes.iter().enumerate().map(others).sum()
    }

    /// The smallest sum that `count` of the `free` nodes can have: every split over the leaf
    /// switches is tried.
    fn best(self, free: &BTreeSet<u32>, count: usize) -> Option<u64> {
        let on_leaf = |leaf| {
            free.iter()
                .filter(|node| **node / self.leaf_nodes == leaf)
                .count()
        };
        let room: Vec<usize> = (0..self.leaves).map(on_leaf).collect();
        let mut best = None;
        let mut split = vec![0; room.len()];
        loop {
            if split.iter().sum::<usize>() == count {
                let within: usize = split
                    .iter()
                    .map(|part| part * part.saturating_sub(1) / 2)
                    .sum();
                let pairs = count * count.saturating_sub(1) / 2;
                let sum = (within + 3 * (pairs - within)) as u64;
                best = Some(best.map_or(sum, |best: u64| best.min(sum)));
            }
            // The next split, counted like a number whose digits have bounds of their own.
            let Some(digit) = (0..split.len()).find(|&leaf| split[leaf] < room[leaf]) else {
                return best;
            };
            split[digit] += 1;
            split[..digit].fill(0);
        }
    }

    /// Whether a placement is one of the free nodes, as large as it should be, and the best there
    /// was. A job that begins again may avoid nodes of its attempts `before`, which have crashed
    /// under it.
    pub fn check(self, placed: &Placed, count: usize, before: &BTreeSet<u32>) -> Result<()> {
        let job = placed.job;
        let distinct: BTreeSet<u32> = placed.nodes.iter().copied().collect();
        ensure!(
            distinct.len() == count && placed.nodes.len() == count,
            "job {job} wanted {count} nodes and got {:?}",
            placed.nodes
        );
        ensure!(
            distinct.is_subset(&placed.free),
            "job {job} got {:?} of which {:?} were free",
            placed.nodes,
            placed.free
        );
        let sum = self.sum(&placed.nodes);
        let best = self.best(&placed.free, count);
        let others = placed.free.difference(before).copied().collect();
        let avoids = !before.is_disjoint(&placed.free);
        let least = self.best(&others, count).filter(|_| avoids);
        let is_best = Some(sum) == best || least.is_some_and(|least| sum <= least);
        ensure!(
            sum == placed.hops && is_best,
            "job {job} on {:?}: {sum} hops, {} by its record, {best:?} possible with {:?} free",
            placed.nodes,
            placed.hops,
            placed.free
        );
        Ok(())
    }
}

/// Fails when a node counted as free, or was given out, while another job had it.
pub fn no_node_twice(placed: &[Placed]) -> Result<()> {
    for later in placed {
        for earlier in placed
            .iter()
            .filter(|earlier| earlier.decision < later.decision)
        {
            for (node, freed) in &earlier.freed {
                if *freed > later.decision && later.free.contains(node) {
                    bail!(
                        "n{node} counted as free for job {} at {}, but job {} had it until {freed}",
                        later.job,
                        later.decision,
                        earlier.job
                    );
                }
            }
        }
    }
    let decisions: BTreeSet<u64> = placed.iter().map(|placed| placed.decision).collect();
    ensure!(
        decisions.len() == placed.len(),
        "two decisions have one number"
    );
    Ok(())
}

/// Fails when a node was not counted as free although no job had it. Only for nodes that are in
/// service throughout.
pub fn no_node_forgotten(placed: &[Placed], nodes: u32) -> Result<()> {
    for later in placed {
        for node in (0..nodes).filter(|node| !later.free.contains(node)) {
            let had = placed.iter().any(|earlier| {
                let until = earlier.freed.get(&node).copied().unwrap_or(u64::MAX);
                earlier.decision < later.decision
                    && earlier.nodes.contains(&node)
                    && until > later.decision
            });
            ensure!(
                had,
                "n{node} did not count as free for job {} at {}, and no job had it",
                later.job,
                later.decision
            );
        }
    }
    Ok(())
}

/// Node numbers of a hostlist, in its order.
pub fn node_list(list: &str) -> Result<Vec<u32>> {
    let body = list.replace(['n', '[', ']'], "");
    let mut nodes = Vec::new();
    for part in body.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        nodes.extend(one_node(first)?..=one_node(last)?);
    }
    Ok(nodes)
}

fn one_node(name: &str) -> Result<u32> {
    let number = name.trim().trim_start_matches('n').parse();
    number.with_context(|| format!("{name:?} is no node"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FABRIC: Fabric = Fabric {
        leaf_nodes: 4,
        leaves: 4,
    };

    /// Decisions between that for a job and the end of its ranks.
    const RUN: u64 = 10;

    fn placed(job: u64, decision: u64, free: &str, nodes: &str) -> Placed {
        let nodes = node_list(nodes).unwrap();
        Placed {
            job,
            decision,
            free: node_list(free).unwrap().into_iter().collect(),
            hops: FABRIC.sum(&nodes),
            freed: nodes.iter().map(|node| (*node, decision + RUN)).collect(),
            nodes,
        }
    }

    #[test]
    fn the_best_is_the_least_over_all_sets() {
        // Against every set of nodes, one by one.
        for seed in 1..200_u32 {
            let bits = seed.wrapping_mul(0x9e37_79b9) >> 16;
            let free: BTreeSet<u32> = (0..16).filter(|node| bits >> node & 1 == 1).collect();
            let free_list: Vec<u32> = free.iter().copied().collect();
            for count in 0..=free.len() {
                let sets =
                    (0..1_u32 << free.len()).filter(|set| set.count_ones() as usize == count);
                let sum = |set: u32| {
                    let members = free_list.iter().enumerate();
                    let chosen = members.filter(|(index, _)| set >> index & 1 == 1);
                    FABRIC.sum(&chosen.map(|(_, node)| *node).collect::<Vec<_>>())
                };
                let least = sets.map(sum).min();
                assert_eq!(FABRIC.best(&free, count), least, "{free:?} {count}");
                if free.len() > 10 {
                    break;
                }
            }
            assert_eq!(FABRIC.best(&free, free.len() + 1), None);
        }
    }

    #[test]
    fn events_and_lists_are_read() {
        let text = "job 7 placed again on n[2,0-1], one leaf switch (optimal); free: n[0-3],n9, hops: 3, decision: 55";
        let placed = Placed::of_event(text).unwrap();
        assert_eq!((placed.job, placed.decision, placed.hops), (7, 55, 3));
        assert_eq!(placed.nodes, [2, 0, 1]);
        assert_eq!(placed.free, BTreeSet::from([0, 1, 2, 3, 9]));
        assert!(Placed::of_event("job 7 placed on n0").is_err());
        assert!(node_list("m3").is_err());
    }

    #[test]
    fn a_placement_that_is_not_the_best_is_found() {
        let none = BTreeSet::new();
        FABRIC
            .check(&placed(1, 0, "n[0-3,8]", "n[0-1]"), 2, &none)
            .unwrap();
        assert!(
            FABRIC
                .check(&placed(1, 0, "n[0-3,8]", "n[0,8]"), 2, &none)
                .is_err()
        );
        assert!(
            FABRIC
                .check(&placed(1, 0, "n[0-3,8]", "n[4-5]"), 2, &none)
                .is_err()
        );
        assert!(
            FABRIC
                .check(&placed(1, 0, "n[0-3,8]", "n[0-1]"), 3, &none)
                .is_err()
        );
        // n5 has crashed under it, n8 has not.
        let again = placed(1, 0, "n[0,4-5]", "n[0,4]");
        assert!(FABRIC.check(&again, 2, &BTreeSet::from([8])).is_err());
        FABRIC.check(&again, 2, &BTreeSet::from([5])).unwrap();
    }

    #[test]
    fn a_node_given_out_twice_or_forgotten_is_found() {
        let first = placed(1, 100, "n[0-15]", "n[0-3]");
        let good = placed(2, 105, "n[4-15]", "n[4-5]");
        let twice = placed(3, 106, "n[3,6-15]", "n[6-7]");
        no_node_twice(&[first.clone(), good.clone()]).unwrap();
        assert!(no_node_twice(&[first.clone(), good.clone(), twice]).is_err());
        // One decision after the end is enough, one before it is too early.
        let [after, before] = [111, 109].map(|at| placed(6, at, "n[0-15]", "n[0-3]"));
        no_node_twice(&[first.clone(), after]).unwrap();
        assert!(no_node_twice(&[first.clone(), before]).is_err());
        no_node_forgotten(&[first.clone(), good.clone()], 16).unwrap();
        let forgotten = placed(4, 107, "n[6-14]", "n[6-7]");
        assert!(no_node_forgotten(&[first, good, forgotten], 16).is_err());
    }
}
