//! The number by which nodes know a job: that of the job and of its attempt.
//!
//! A job that is queued again is another one to the nodes: they launch no job twice, and what is
//! left of the attempt before must not be taken for it. Its first attempt has the job's own number.
//!
//! Neighbours: the runner names jobs to nodes by [`on_nodes`]; what they say of one is looked at by
//! [`number`] and compared with the present attempt.

use netstack::ids::JobId;

/// Bits of the job's own number; those above count its attempts.
const NUMBER_BITS: u32 = 48;

/// The job as nodes know it, after `restarts` restarts.
pub fn on_nodes(id: u64, restarts: u32) -> JobId {
    JobId(id | u64::from(restarts) << NUMBER_BITS)
}

/// The number of the job that nodes know so.
pub fn number(job: JobId) -> u64 {
    job.0 & ((1 << NUMBER_BITS) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_told_apart_and_belong_to_one_job() {
        assert_eq!(on_nodes(7, 0), JobId(7));
        assert_ne!(on_nodes(7, 1), on_nodes(7, 2));
        assert_eq!(number(on_nodes(7, 3)), 7);
    }
}
