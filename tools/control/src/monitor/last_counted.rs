//! What the programs of jobs had counted when they were last seen.
//!
//! Key type: [`LastCounted`]. Neighbours: [`super::sample`] tells it of each node and asks at the
//! end of a job; [`super::picture::Counted`] adds the nodes up.
//!
//! Invariant: an attempt of a job is a job of its own here. What a rank of an earlier attempt has
//! counted is in no sum of a later one, though both have one number to people.

use std::collections::BTreeMap;

use netstack::ids::JobId;
use netstack::overlay::NodeMetric;

use super::picture::Counted;

/// By node: the job, as the node knows it, and what its program had counted when it was last seen
/// there.
#[derive(Debug, Default)]
pub struct LastCounted {
    by_node: BTreeMap<u32, (JobId, Vec<Option<i64>>)>,
}

/// The counters in a row of the overlay, and the job, as the node knows it, whose program has set
/// them; `None`: no job, or nothing was set.
pub fn in_row(row: &[Option<i64>]) -> Option<(JobId, &[Option<i64>])> {
    let job = row.get(NodeMetric::Job as usize).copied().flatten()?;
    let job = u64::try_from(job).ok().filter(|job| *job > 0)?;
    let counters = row.get(NodeMetric::COUNT..)?;
    let is_set = counters.iter().any(Option::is_some);
    is_set.then_some((JobId(job), counters))
}

impl LastCounted {
    /// A node's program has counted so far.
    pub fn take(&mut self, node: u32, job: JobId, counters: &[Option<i64>]) {
        self.by_node.insert(node, (job, counters.to_vec()));
    }

    /// The counters of one attempt of a job, of all its nodes together.
    pub fn of(&self, job: JobId) -> Vec<Counted> {
        let own = self.by_node.values().filter(|(of, _)| *of == job);
        Counted::of(own.map(|(_, counters)| &counters[..]))
    }

    /// Forgets all nodes that are not `known`.
    pub fn retain(&mut self, known: impl Fn(u32) -> bool) {
        self.by_node.retain(|node, _| known(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::attempt;

    /// A row of a node whose rank has set its first counter.
    fn row(job: JobId, value: i64) -> Vec<Option<i64>> {
        let mut row = vec![Some(1); NodeMetric::COUNT];
        row[NodeMetric::Job as usize] = Some(job.0 as i64);
        row.extend([Some(value), None]);
        row
    }

    #[test]
    fn what_a_lost_rank_had_counted_is_not_in_the_next_attempt() {
        let mut last = LastCounted::default();
        let mut see = |node, job, value| {
            let row = row(job, value);
            let (of, counters) = in_row(&row).unwrap();
            assert_eq!(of, job);
            last.take(node, of, counters);
        };
        let (first, second) = (attempt::on_nodes(7, 0), attempt::on_nodes(7, 1));
        // On n0 and n1, until n1 is lost, which stays listed; then on n0 and n2.
        see(0, first, 100);
        see(1, first, 900);
        see(0, second, 10);
        see(2, second, 30);
        let counted = last.of(second);
        assert_eq!(counted.len(), 1);
        let Counted {
            ranks,
            least,
            sum,
            most,
            ..
        } = counted[0];
        assert_eq!((ranks, least, sum, most), (2, 10, 40, 30));
        assert_eq!(last.of(first)[0].sum, 900);
        last.retain(|node| node != 2);
        assert_eq!(last.of(second)[0].sum, 10);
    }

    #[test]
    fn a_row_without_a_job_or_counters_has_none() {
        let counted = row(JobId(7), 1);
        assert!(in_row(&counted).is_some());
        assert_eq!(in_row(&counted[..NodeMetric::COUNT]), None);
        assert_eq!(in_row(&row(JobId(0), 1)), None);
        assert_eq!(in_row(&[]), None);
    }
}
