//! What the nodes ask for: pages and calls, carried out at the reader's pace and checked.

use netstack::ids::{CallId, JobId, NodeId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply, WINDOW};
use netstack::page::{Object, PageError, PageReply, PageWanted};
use netstack::time::{Instant, Micros};

use super::{Operator, Outcome, Task};
use crate::jobs::program::{self, Plan, Step, Stream};
use crate::world::{Checked, check};

/// Longest time the store takes to find a page.
const PAGE_DELAY: Micros = Micros::from_millis(2);

impl Operator {
    pub(super) fn page_wanted(&mut self, now: Instant, wanted: PageWanted) -> Checked {
        let plan = self
            .plans
            .get(&wanted.job)
            .ok_or("a page of an unknown job is wanted")?;
        let bytes = match wanted.object {
            Object::Program => {
                let left = plan.file_bytes.saturating_sub(wanted.offset);
                let length = left.min(wanted.length.into()) as usize;
                let file = Stream::File(plan.number);
                Ok(program::bytes_at(file, wanted.offset, length))
            }
            Object::PageHashes => Err(PageError::NoSuchObject),
            Object::LaunchBlock => {
                let block = plan.launch_block(wanted.rank);
                let start = block.len().min(wanted.offset as usize);
                let end = block.len().min(start + wanted.length as usize);
                block
                    .get(start..end)
                    .map(<[u8]>::to_vec)
                    .ok_or(PageError::Unreadable)
            }
        };
        let delay = Micros(self.rng.below(PAGE_DELAY.0));
        self.later(now + delay, Task::Page(PageReply { wanted, bytes }));
        Ok(())
    }

    pub(super) fn io_call(
        &mut self,
        now: Instant,
        node: NodeId,
        job: JobId,
        rank: Rank,
        call: CallId,
        op: IoOp,
    ) -> Checked {
        let plan = self
            .plans
            .get(&job)
            .ok_or("a call of an unknown job")?
            .clone();
        check(plan.nodes[rank.0 as usize] == node, || {
            format!("{node} is not rank {rank}")
        })?;
        let at_once = self.records[&job].at_once;
        let state = self.rank(job, rank)?;
        check(state.started || !at_once, || {
            format!("rank {rank} of job {job} calls before its start")
        })?;
        if call.0 <= state.known_calls && call.0 > state.again {
            // The run before this one has carried it out, and its reply was lost with it: so says
            // what was written down. A read brings the same bytes once more.
            state.again = call.0;
            state.unanswered += 1;
            let repeated = match op {
                IoOp::Write { data, .. } => reply(data.len() as u64, Vec::new()),
                IoOp::Read { .. } => self.carry_out(now, &plan, rank, op)?.1,
                IoOp::Report { .. } | IoOp::Exit(_) => {
                    return Err(format!("rank {rank} of job {job} ends again"));
                }
            };
            self.later(now, Task::Reply(node, job, rank, call, repeated));
            return Ok(());
        }
        check(call.0 == state.last_call + 1, || {
            format!(
                "rank {rank} of job {job}: call {} after {}",
                call.0, state.last_call
            )
        })?;
        check(!state.exit_seen, || {
            format!("rank {rank} of job {job} calls after its exit")
        })?;
        state.last_call = call.0;
        state.unanswered += 1;
        check(state.unanswered <= WINDOW, || {
            format!("job {job}: the window is not kept")
        })?;
        let (at, reply) = self.carry_out(now, &plan, rank, op)?;
        self.later(at, Task::Reply(node, job, rank, call, reply));
        Ok(())
    }

    /// Carries out a call: its reply, and when the rank's reader is ready to give it.
    fn carry_out(
        &mut self,
        now: Instant,
        plan: &Plan,
        rank: Rank,
        op: IoOp,
    ) -> Result<(Instant, IoReply), String> {
        let job = plan.job;
        let state = self.rank(job, rank)?;
        match op {
            IoOp::Write { data, .. } => {
                let position = state.output;
                check(
                    program::is_at(Stream::Output(job, rank), position, &data),
                    || format!("rank {rank} of job {job}: wrong output at {position}"),
                )?;
                let length = data.len() as u64;
                state.output += length;
                let taken = (length * 1_000_000)
                    .checked_div(plan.reader_rate)
                    .unwrap_or(0);
                state.reader_free_at = state.reader_free_at.max(now) + Micros(taken);
                let at = state.reader_free_at;
                self.output_bytes += length;
                Ok((at, reply(length, Vec::new())))
            }
            IoOp::Read { size, .. } => {
                let left = plan.stdin_bytes - state.stdin;
                let length = left.min(size.into()).min(700);
                let data = program::bytes_at(Stream::Input(job), state.stdin, length as usize);
                state.stdin += length;
                let at = now + Micros(self.rng.below(5_000));
                Ok((at, reply(length, data)))
            }
            IoOp::Report { .. } => Err(format!("job {job} reports a fault")),
            IoOp::Exit(report) => {
                state.exit_seen = true;
                let at = state.reader_free_at.max(now);
                self.check_exit(plan, rank, &report)?;
                self.warm_ranks += u64::from(report.warm);
                self.silent_ranks += u64::from(report.program_requests == 0);
                self.ended(now, job, rank, Outcome::Exit(report.status))?;
                Ok((at, reply(0, Vec::new())))
            }
        }
    }

    /// Nothing is missing when a program has ended.
    fn check_exit(&self, plan: &Plan, rank: Rank, report: &ExitReport) -> Checked {
        let (job, state) = (plan.job, &self.records[&plan.job].ranks[&rank]);
        let all_held = report.pages_reused == plan.pages().len() as u64;
        check(
            !(report.warm && all_held) || report.program_requests == 0,
            || format!("rank {rank} of job {job} fetched what its node held"),
        )?;
        check(state.output == report.user_us, || {
            let (arrived, written) = (state.output, report.user_us);
            format!("rank {rank} of job {job} wrote {written} bytes, {arrived} arrived")
        })?;
        match report.status {
            ExitStatus::Exited(code) => {
                let read = plan.steps.iter().any(|step| matches!(step, Step::ReadAll));
                let stdin = if read && rank == Rank(0) {
                    plan.stdin_bytes
                } else {
                    0
                };
                let complete = state.output == plan.output_bytes()
                    && report.wall_us == stdin
                    && code == plan.code;
                check(complete, || {
                    format!("rank {rank} of job {job} ended before its end")
                })
            }
            ExitStatus::Signal(_) => check(self.records[&job].cancelled, || {
                format!("job {job} was ended by a signal nobody sent")
            }),
            // A page that did not come within the limit: the network was cut for that long.
            ExitStatus::Failed => Ok(()),
        }
    }
}

fn reply(length: u64, data: Vec<u8>) -> IoReply {
    let result = length as i64;
    IoReply { result, data }
}
