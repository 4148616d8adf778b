//! Files of jobs of an earlier run of control: they are in the cache, and read after the start, so
//! that nobody waits for control because of them.
//!
//! Key type: [`Unread`]. Neighbours: `again` and `continued` take such jobs over, `reading` reads.
//!
//! Invariant: nothing is given out of a file of which it is not known whether it is what its name
//! says: until then a job that waits gets no nodes, and one that runs waits for its pages and its
//! input.

use super::fabric::Fabric;
use super::record::{Cause, Job};
use super::{Due, Runner};
use crate::api::types::JobState;
use crate::programs::{Program, ProgramStore};

/// The files of one job.
#[derive(Debug)]
pub struct Unread {
    /// The job.
    pub job: u64,
    program: Program,
    input: Option<Program>,
    /// What it finds under `/with`.
    files: Vec<Program>,
}

impl Unread {
    fn of(job: &Job) -> Self {
        let files = job.files.iter();
        Unread {
            job: job.info.id,
            program: job.program.clone(),
            input: job.input.clone(),
            files: files.filter_map(|file| file.content.clone()).collect(),
        }
    }

    /// Reads them: not for a task that others wait for.
    ///
    /// # Errors
    /// Why the job cannot run with them, for people.
    pub fn read(&self, programs: &ProgramStore) -> Result<(), String> {
        let needed = [
            (Some(&self.program), "its program"),
            (self.input.as_ref(), "the file with its standard input"),
        ];
        for (file, what) in needed {
            let checked = file.map_or(Ok(()), |file| programs.check(file));
            checked.map_err(|why| format!("{what} {why}; submit it again"))?;
        }
        let is_sound = |file: &&Program| programs.check(file).is_ok();
        for file in self.files.iter().filter(is_sound) {
            // Without that it is cast no more; the launch says so where it is needed.
            drop(file.describe());
        }
        Ok(())
    }

    /// Makes what nodes check pages against at the end of a run.
    pub fn make_page_hashes(&self) {
        if self.program.make_page_hashes().is_err() {
            tracing::warn!("the program of job {} cannot be read", self.job);
        }
    }
}

impl Runner {
    /// What is to be read for jobs that are not over: for those that run first, then as they stand
    /// in the queue.
    pub fn unread(&self) -> Vec<Unread> {
        let with_nodes = self.jobs.iter();
        let with_nodes = with_nodes.filter(|(_, job)| job.info.state != JobState::Pending);
        let ids = with_nodes.map(|(id, _)| *id).chain(self.queue_order());
        let jobs = ids.filter_map(|id| self.jobs.get(&id));
        jobs.filter(|job| job.unread).map(Unread::of).collect()
    }

    /// The files of a job have been read, or cannot be.
    pub fn files_read(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        read: Result<(), String>,
    ) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        job.unread = false;
        match read {
            Err(why) => self.end_early(now_us, fabric, id, 15, Cause::NotLaunched(why)),
            Ok(()) if job.info.state != JobState::Pending => {
                for rank in 0..job.ranks.len() {
                    self.serve_rank(now_us, fabric, id, rank);
                }
            }
            Ok(()) => {
                if job.may_start() {
                    self.queue.release(id);
                }
                self.pass_due = self.pass_due.max(Due::Soon);
            }
        }
        self.settle(now_us, fabric);
    }
}
