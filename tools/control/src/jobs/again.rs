//! Jobs that go on although a node or the control node did not: queued again where that is wanted
//! or nothing of them has run, else ended with the reason.
//!
//! Key types: [`Stored`] (a job of an earlier run of control). Neighbours: `ledger` reads what was
//! written down; `lifecycle` ends attempts.
//!
//! What becomes of a job of an earlier run of control:
//!
//! | written down as | then |
//! |---|---|
//! | pending | it waits on, in its place |
//! | starting, all ranks together | nothing has run: it is queued again |
//! | starting, each rank by itself; running | it goes on (`continued`) |
//! | ending | it has ended as it was going to, or is queued again if it was going to; its nodes drop it |
//!
//! A job with a client waits for the client to read its output again.
//!
//! Invariant: a job keeps its number, its place in the queue and those that wait for it.

use netstack::ids::JobId;

use super::continued::Ranks;
use super::record::Job;
use super::{Runner, spec};
use crate::api::types::{AfterCondition, Frame, JobInfo, JobState};
use crate::clock;
use crate::events::Severity;
use crate::programs::ProgramStore;

/// Why jobs end that cannot go on.
const CONTROL_ENDED: &str = "the control node ended while the job was under way";

/// A job that was not over when an earlier run of control ended.
#[derive(Debug)]
pub struct Stored {
    /// What was known of it.
    pub info: JobInfo,
    /// How to launch it.
    pub spec: Option<String>,
    /// How those jobs ended that it waits for, as far as they have.
    pub ends: Vec<(u64, Option<JobState>)>,
    /// What its nodes had of it.
    pub ranks: Ranks,
}

/// What becomes of a stored job.
enum Fate {
    /// It waits.
    Waits,
    /// It waits again, for the reason given.
    Again(&'static str),
    /// It goes on where it is.
    GoesOn,
    /// It is over.
    Over(JobState, String),
}

impl Runner {
    /// Takes over what an earlier run of control left; `programs` has the files.
    pub fn restore(&mut self, now_us: u64, stored: Vec<Stored>, programs: &ProgramStore) {
        for job in &stored {
            self.next_job = self.next_job.max(job.info.id + 1);
            self.note_decision(&job.info);
        }
        // Those that others wait for come first: they have lower numbers.
        self.restoring = true;
        for job in stored {
            self.restore_one(now_us, job, programs);
        }
        self.restoring = false;
    }

    fn restore_one(&mut self, now_us: u64, stored: Stored, programs: &ProgramStore) {
        let Stored {
            mut info,
            spec,
            ends,
            ranks,
        } = stored;
        let submission = spec::read(&info, spec.as_deref(), programs);
        let can_go_on = ranks.are_those_of(&info) && self.nodes.can_adopt(ranks.open());
        let fate = match (
            &submission,
            fate(&info, self.queueing.requeue_max, can_go_on),
        ) {
            (_, over @ Fate::Over(..)) => over,
            (Err(why), _) => Fate::Over(
                JobState::Failed,
                format!("{CONTROL_ENDED}, and {why}; submit it again"),
            ),
            (Ok(_), fate) => fate,
        };
        let Ok(mut submission) = submission else {
            let Fate::Over(state, reason) = fate else {
                unreachable!("such a job is over")
            };
            return self.end_stored(info, state, reason);
        };
        let again = match fate {
            Fate::Over(state, reason) => return self.end_stored(info, state, reason),
            Fate::GoesOn => return self.continue_one(now_us, info, submission, &ranks),
            Fate::Waits => None,
            Fate::Again(why) => Some(why),
        };
        if let Err(why) = self.settle_dependencies(&mut info, &ends) {
            return self.end_stored(info, JobState::Cancelled, why);
        }
        submission.terms.after.clone_from(&info.after);
        let id = info.id;
        if again.is_some() {
            info.restarts += 1;
        }
        for gone in [&mut info.nodes, &mut info.reason] {
            gone.clear();
        }
        info.state = JobState::Pending;
        (info.started_unix_us, info.placement, info.load) = (None, None, None);
        (info.at_once, info.ends_as, info.runs_again) = (false, None, false);
        let limit_s = self.limits.return_limit_s;
        let job = self.enter(now_us, info, submission, limit_s);
        job.input_from = Some(0);
        let record = job.record();
        if let Some(why) = again {
            tell_again(job, why);
        }
        self.records.push(record);
        if let Some(why) = again {
            let text = format!("job {id} is queued again: {why}");
            self.event(Severity::Warning, "job-requeued", id, text);
        }
    }

    /// Leaves the jobs that a stored one still waits for; `ends` are those that the store knows.
    ///
    /// # Errors
    /// Why it will never start, for people.
    fn settle_dependencies(
        &self,
        info: &mut JobInfo,
        ends: &[(u64, Option<JobState>)],
    ) -> Result<(), String> {
        let mut open = Vec::new();
        for after in &info.after {
            if self.jobs.contains_key(&after.job) {
                open.push(*after);
                continue;
            }
            // It has ended just now, or before.
            let here = self.get(after.job).ok().map(|info| info.state);
            let stored = || ends.iter().find(|(job, _)| *job == after.job)?.1;
            let end = here.or_else(stored);
            if after.condition == AfterCondition::Ok && end != Some(JobState::Completed) {
                return Err(match end {
                    Some(end) => format!(
                        "job {} ended ({}), and this one was to run only if it ended well",
                        after.job,
                        end.word()
                    ),
                    None => format!(
                        "it is not known any more whether job {} ended well",
                        after.job
                    ),
                });
            }
        }
        info.after = open;
        Ok(())
    }

    /// Ends a job of an earlier run of control.
    fn end_stored(&mut self, mut info: JobInfo, state: JobState, reason: String) {
        info.state = state;
        info.reason = reason;
        (info.ends_as, info.why) = (None, None);
        info.ended_unix_us = Some(clock::unix_us());
        if info.batch {
            let bytes = self.outputs.bytes(info.id).unwrap_or(0);
            info.output.get_or_insert_default().bytes = bytes;
        }
        let text = format!("job {} ({}) {}", info.id, info.name, info.how_ended());
        self.event(Severity::Warning, "job-ended", info.id, text);
        self.records
            .push(super::record::Record::of_ended(info.clone()));
        self.keep(info);
    }

    /// Whether a job whose attempt is over runs again, and if so queues it.
    pub(super) fn run_again(&mut self, id: u64) -> bool {
        let Some(job) = self.jobs.get_mut(&id) else {
            return false;
        };
        let may = job.goes_again() && job.info.restarts < self.queueing.requeue_max;
        let may = may && !job.ranks.is_empty();
        if !may || !job.source.rewind() || job.sink.reader_gone() {
            return false;
        }
        let (_, why, _) = job.verdict();
        let mut over = job.record();
        over.attempt_over = true;
        job.begin_again();
        tell_again(job, &why);
        let again = job.record();
        over.info = again.info;
        self.records.push(over);
        self.deadlines.set(id, None);
        self.queue.withdraw(id);
        self.enqueue(id);
        let text = format!("job {id} is queued again: {why}");
        self.event(Severity::Warning, "job-requeued", id, text);
        true
    }

    /// What was decided of a job could not be written down, so its launch has not left the control
    /// node: it waits again, in its place, and that was no attempt.
    pub fn take_back(&mut self, job: JobId) {
        let Some(id) = self.present(job) else {
            return;
        };
        self.release_nodes(id);
        let job = self.jobs.get_mut(&id).expect("it is present");
        let mut over = job.record();
        over.attempt_over = true;
        job.begin_again();
        job.info.restarts -= 1;
        over.info = job.record().info;
        self.records.push(over);
        self.deadlines.set(id, None);
        self.queue.withdraw(id);
        self.enqueue(id);
        self.say_held_up(id);
    }

    /// The control node is about to end: no job starts any more. Those that run go on, those that
    /// wait do so again after the next start.
    pub fn stop_starting(&mut self) {
        self.stopping = true;
    }

    /// The jobs that have nodes, and those that wait for some.
    pub fn active(&self) -> (Vec<u64>, Vec<u64>) {
        let all = self.jobs.iter();
        let all = all.filter(|(_, job)| !job.info.state.is_final());
        let (waiting, running): (Vec<_>, Vec<_>) =
            all.partition(|(_, job)| job.info.state == JobState::Pending);
        let numbers = |jobs: Vec<(&u64, &Job)>| jobs.into_iter().map(|(id, _)| *id).collect();
        (numbers(running), numbers(waiting))
    }
}

/// Tells readers of a job's output that it begins again.
fn tell_again(job: &Job, why: &str) {
    let text = format!("queued again (restart {}): {why}", job.info.restarts);
    job.sink.frame(Frame::Notice { text });
}

/// What becomes of a job, by what was written down of it.
fn fate(info: &JobInfo, requeue_max: u32, can_go_on: bool) -> Fate {
    let may = info.restarts < requeue_max;
    match info.state {
        JobState::Pending => Fate::Waits,
        JobState::Starting if !info.at_once && may => {
            Fate::Again("the control node ended before it began")
        }
        JobState::Starting | JobState::Running if can_go_on => Fate::GoesOn,
        JobState::Starting | JobState::Running if info.requeue && may => Fate::Again(CONTROL_ENDED),
        JobState::Starting | JobState::Running if info.requeue => Fate::Over(
            JobState::Failed,
            format!(
                "{CONTROL_ENDED}; it was queued again {} times, which is the limit (queue.requeue_max)",
                info.restarts
            ),
        ),
        JobState::Ending if info.runs_again && may => Fate::Again(CONTROL_ENDED),
        JobState::Ending => {
            let state = info.ends_as.unwrap_or(JobState::Failed);
            Fate::Over(state, format!("{}; {CONTROL_ENDED}", info.reason))
        }
        _ => Fate::Over(
            JobState::Failed,
            format!("{CONTROL_ENDED}, and it is not known on which nodes; submit it again"),
        ),
    }
}
