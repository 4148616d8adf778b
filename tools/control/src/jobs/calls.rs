//! I/O calls of ranks: what they write goes to the client, what they read comes from it, and
//! their last call ends them.
//!
//! Neighbours: `control` hands calls in, `streams` says when to go on. Invariant: calls of a rank
//! are answered in order, each once; a write is answered only when the client's queue has taken
//! it.

use netstack::ids::{CallId, JobId, NodeId, Rank};
use netstack::io::CORE_FILE;

use super::Runner;
use super::fabric::{Call, Exit, Fabric, Reply};
use super::kept::CallAt;
use super::record::{self, Job};
use super::streams::Taken;
use crate::api::types::{Frame, RankEnd};
use crate::clock;
use crate::events::{Event, Severity};
use crate::signal;

/// Bad file descriptor (Linux x86-64 errno).
const EBADF: i32 = 9;
/// File too large (Linux x86-64 errno).
const EFBIG: i32 = 27;
/// Function not implemented (Linux x86-64 errno).
const ENOSYS: i32 = 38;

/// Longest fault report kept, in bytes; the kernel's are about a thousand.
const FAULT_REPORT_MAX: usize = 16 * 1024;

/// How often it is tried to write output that could not be kept, in microseconds.
const STALLED_PERIOD_US: u64 = 1_000_000;

/// Pieces of a fault report that wait for their end; half of the window of calls.
const REPORTS_HELD: usize = 4;

const _: () = assert!(REPORTS_HELD < netstack::io::WINDOW as usize);

impl Runner {
    /// A rank made a call.
    pub fn call(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        node: NodeId,
        (job, rank): (JobId, Rank),
        call: (CallId, Call),
    ) {
        let number = rank.0 as usize;
        let id = self.present(job).filter(|id| {
            let job = self.jobs.get(id);
            job.is_some_and(|job| job.ranks_on(node).contains(&number))
        });
        let Some(id) = id else {
            return self.call_of_ended_job(fabric, node, (job, rank), call);
        };
        let rank = number;
        let job = self.jobs.get_mut(&id).expect("looked up above");
        if matches!(call, (_, Call::Exit(_))) {
            job.ranks[rank].exited_us.get_or_insert(now_us);
        }
        job.ranks[rank].calls.push_back(call);
        self.serve_rank(now_us, fabric, id, rank);
    }

    /// Streams of some jobs changed: readers made room or left, input came.
    pub fn streams_changed(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        for id in self.wakeups.take() {
            let Some(job) = self.jobs.get(&id) else {
                continue;
            };
            if job.attached && job.sink.reader_gone() {
                self.end_early(
                    now_us,
                    fabric,
                    id,
                    9,
                    record::Cause::Abandoned("its client went away".to_string()),
                );
            }
            let ranks = self.jobs.get(&id).map_or(0, |job| job.ranks.len());
            for rank in 0..ranks {
                self.serve_rank(now_us, fabric, id, rank);
            }
        }
        self.settle(now_us, fabric);
    }

    /// Answers what can be answered of a rank's calls.
    pub(super) fn serve_rank(
        &mut self,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        rank: usize,
    ) {
        loop {
            let Some(job) = self.jobs.get_mut(&id) else {
                return;
            };
            // A client that is on its way back reads what comes next.
            if !job.attached && !job.discard_output && job.cause.is_none() {
                return;
            }
            let Some(reply) = next_reply(job, rank) else {
                return self.note_stalled(now_us, id);
            };
            let on_nodes = job.on_nodes();
            let of = &mut job.ranks[rank];
            let node = of.node;
            let by = (on_nodes, Rank(rank as u32));
            let (call_id, call) = of.calls.pop_front().expect("next_reply looked at it");
            let before_exit = of.calls.iter().any(|(_, call)| is_exit(call));
            match &call {
                Call::Exit(_) => fabric.reply_last(node, by, call_id, reply),
                // With the exit.
                Call::Report { .. } if before_exit => {
                    fabric.reply_last(node, by, call_id, reply);
                }
                _ => fabric.reply(node, by, call_id, reply),
            }
            match call {
                Call::Report { offset, data } => keep_report(&mut of.fault, offset, &data),
                // Its last call; the job may be over now, or another attempt.
                Call::Exit(exit) => return self.rank_exited(now_us, id, rank, *exit),
                _ => {}
            }
        }
    }

    /// A call waits. Where it waits for a disk, nobody tells when that takes it.
    fn note_stalled(&mut self, now_us: u64, id: u64) {
        let Some(why) = self.jobs.get(&id).and_then(|job| job.sink.trouble()) else {
            return;
        };
        self.stalled_until_us
            .get_or_insert(now_us.saturating_add(STALLED_PERIOD_US));
        if !self.stalled.insert(id) {
            return;
        }
        let text = format!(
            "what job {id} writes cannot be kept ({why}): it waits until it can; free some space on the control node's disk, or cancel it"
        );
        self.event(Severity::Error, "output-waits", id, text);
    }

    /// Goes on with jobs whose output could not be kept, if it can be now.
    pub(super) fn try_stalled(&mut self, now_us: u64, fabric: &mut dyn Fabric) {
        if self.stalled_until_us.is_none_or(|until| now_us < until) {
            return;
        }
        self.stalled_until_us = None;
        for id in self.stalled.clone() {
            for rank in 0..self.jobs.get(&id).map_or(0, |job| job.ranks.len()) {
                self.serve_rank(now_us, fabric, id, rank);
            }
            let job = self.jobs.get(&id);
            if job.is_some_and(|job| job.sink.trouble().is_some()) {
                continue;
            }
            self.stalled.remove(&id);
            if self.jobs.contains_key(&id) {
                let text = format!("what job {id} writes is kept again; nothing was lost");
                self.event(Severity::Info, "output-goes-on", id, text);
            }
        }
        if !self.stalled.is_empty() {
            self.stalled_until_us = Some(now_us.saturating_add(STALLED_PERIOD_US));
        }
    }

    /// A rank's last call was answered.
    fn rank_exited(&mut self, now_us: u64, id: u64, rank: usize, exit: Exit) {
        let Some(job) = self.jobs.get_mut(&id) else {
            return;
        };
        if !job.set_end(rank, exit.end) {
            return;
        }
        let on_nodes = job.on_nodes();
        let node = job.ranks[rank].node;
        let fault = String::from_utf8_lossy(&job.ranks[rank].fault);
        let mut fault = fault.trim_end().to_string();
        // The end of a rank's time is no fault of its program: where it was then is kept, and no
        // more is told.
        let is_time_up = exit.end == RankEnd::Signal(signal::XCPU);
        if is_time_up {
            fault.truncate(record::first_line(&fault).len());
        }
        let milliseconds = |at: Option<u64>| at.and_then(|at| job.since_launch_ms(at));
        let first_ms = milliseconds(job.ranks[rank].started_us);
        let exit_ms = milliseconds(job.ranks[rank].exited_us);
        let freed = clock::unix_us().max(self.last_decision + 1);
        self.last_decision = freed;
        let report = &mut job.info.ranks[rank];
        let (name, output_bytes) = (report.node.clone(), report.output_bytes);
        *report = exit.report;
        report.rank = u32::try_from(rank).expect("ranks are counted in u32");
        report.node = name;
        report.output_bytes = output_bytes;
        report.end = Some(exit.end);
        report.first_ms = first_ms;
        report.exit_ms = exit_ms;
        report.freed = Some(freed);
        let damaged = report.retained.damaged;
        if !fault.is_empty() {
            report.fault = Some(fault.clone());
        }
        if !fault.is_empty() && !is_time_up {
            let heading = format!("rank {rank} on {node} {}", record::describe_end(exit.end));
            job.sink.frame(Frame::Fault {
                rank: report.rank,
                node: node.to_string(),
                text: format!("{heading}\n{fault}"),
            });
            // Everybody reads events, and what is in a program's registers is its user's.
            let cause = record::first_line(&fault);
            let text = format!("job {id}: {heading}: {cause}");
            self.events.push(
                Event::new(Severity::Warning, "program-fault", text)
                    .job(id)
                    .node(node.0),
            );
        }
        if damaged > 0 {
            let text = format!(
                "{node}: {damaged} retained pages of {} failed their check (job {id}) and were let go; if that repeats, test the memory of {node}",
                job.info.program_name()
            );
            self.events.push(
                Event::new(Severity::Warning, "pages-damaged", text)
                    .job(id)
                    .node(node.0),
            );
        }
        if job.alive > 0 {
            // The job's own record has its ranks when it has ended, and this one's node forgets it
            // now.
            self.rank_ends.push(record::RankRecord {
                job: id,
                attempt: job.info.restarts,
                report: job.info.ranks[rank].clone(),
            });
        }
        let on_node = job.ranks_on(node);
        let is_free = job.ranks[on_node].iter().all(|rank| rank.end.is_some());
        self.note_time_limit(now_us, id, exit.end);
        if is_free {
            self.nodes.worked(node.0);
            self.free_node(node.0, on_nodes);
        }
        self.finish_if_ended(id);
    }

    /// Calls of a job that is over here: output has no reader; the exit frees the node.
    fn call_of_ended_job(
        &mut self,
        fabric: &mut dyn Fabric,
        node: NodeId,
        by: (JobId, Rank),
        (call_id, call): (CallId, Call),
    ) {
        let reply = match &call {
            Call::Write { data, .. } => Reply::Done(data.len()),
            Call::Read { .. } => Reply::Data(Vec::new()),
            Call::Report { .. } | Call::Exit(_) => Reply::Done(0),
            Call::Unknown => Reply::Error(ENOSYS),
        };
        match call {
            Call::Exit(_) => {
                fabric.reply_last(node, by, call_id, reply);
                self.free_node(node.0, by.0);
            }
            _ => fabric.reply(node, by, call_id, reply),
        }
    }
}

/// The answer to the oldest call of a rank, if it can be given now.
fn next_reply(job: &mut Job, rank: usize) -> Option<Reply> {
    let mut calls = job.ranks[rank].calls.iter();
    let ended = calls.any(|(_, call)| is_exit(call));
    let (number, call) = job.ranks[rank].calls.front()?;
    let at = CallAt {
        attempt: job.info.restarts as u16,
        call: number.0,
    };
    match call {
        Call::Write { fd, data } if *fd == 1 || *fd == 2 || *fd == CORE_FILE => {
            let bytes = data.len();
            let is_core = *fd == CORE_FILE;
            if is_core && job.ranks[rank].core_bytes + bytes as u64 > job.wishes.core_bytes {
                return Some(Reply::Error(EFBIG));
            }
            let number = u32::try_from(rank).expect("ranks are counted in u32");
            // It came to the client by the run of control before this one, and its answer was lost.
            let has_it = job
                .received
                .get(&number)
                .is_some_and(|last| at.call <= *last);
            let taken = if has_it {
                Taken::Yes
            } else if job.discard_output {
                job.sink.give_up(data.len());
                Taken::Nobody
            } else {
                job.sink.output(number, *fd, at, data)
            };
            if taken == Taken::Later {
                return None;
            }
            match is_core {
                true => job.ranks[rank].core_bytes += bytes as u64,
                false => job.info.ranks[rank].output_bytes += bytes as u64,
            }
            Some(Reply::Done(bytes))
        }
        // A program that ended while it waited for input waits no more.
        Call::Read { fd: 0, .. } if rank != 0 || ended => Some(Reply::Data(Vec::new())),
        Call::Read { fd: 0, size } => job.source.read(*size).map(Reply::Data),
        Call::Write { .. } | Call::Read { .. } => Some(Reply::Error(EBADF)),
        // A report is answered with the exit, so that a control node that is killed between the two
        // is told it once more; the node may send no more than a window of pieces without an
        // answer.
        Call::Report { .. } if !ended && job.ranks[rank].calls.len() < REPORTS_HELD => None,
        Call::Report { .. } | Call::Exit(_) => Some(Reply::Done(0)),
        Call::Unknown => Some(Reply::Error(ENOSYS)),
    }
}

fn is_exit(call: &Call) -> bool {
    matches!(call, Call::Exit(_))
}

/// Puts a part of a fault report in its place.
fn keep_report(report: &mut Vec<u8>, offset: usize, data: &[u8]) {
    let end = offset.saturating_add(data.len());
    if end > FAULT_REPORT_MAX {
        return;
    }
    if report.len() < end {
        report.resize(end, b' ');
    }
    report[offset..end].copy_from_slice(data);
}

/// Whether an end by a signal is what a time limit does.
pub(super) fn by_signal(end: RankEnd) -> bool {
    matches!(end, RankEnd::Signal(_))
}
