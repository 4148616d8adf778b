//! One rank on a simulated node: its program from launch to exit.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use netstack::ids::{CallId, LocalRank, Rank, RequestId};
use netstack::io::{ExitReport, ExitStatus, IoOp, MAX_CALL_DATA, OFFSET_CURRENT, SubmitError};
use netstack::job::{LaunchSpec, StartMode};
use netstack::node::Endpoint;
use netstack::page::{Object, PageRequest};
use netstack::retention::{Holding, Keep};
use netstack::time::Instant;

use super::Note;
use super::warm::{Pages, WarmTable};
use crate::jobs::program::{self, Plan, Step, Stream};
use crate::world::{Checked, check};

/// What a rank is doing.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Loading,
    Ready,
    Running,
    Exiting,
}

/// What a program's step says to the other ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Talk {
    /// Nothing.
    Silent,
    /// An exchange or a message of so many bytes is to begin.
    Wanted(u64, bool),
    /// It is under way.
    UnderWay,
    /// It is done, well or not.
    Done(bool),
    /// The program has ended, which the other services are to hear.
    Ending,
    /// They have heard it.
    Ended,
}

/// A rank and its program.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) spec: LaunchSpec,
    pub(super) phase: Phase,
    /// Ranges still to be asked for.
    pub(super) wanted: VecDeque<PageRequest>,
    pub(super) waiting: BTreeSet<RequestId>,
    pub(super) block: BTreeMap<u64, Vec<u8>>,
    pub(super) step: usize,
    pub(super) written: u64,
    /// Bytes of the present write that are not submitted yet.
    pub(super) to_write: usize,
    pub(super) stdin: u64,
    pub(super) reading: Option<CallId>,
    pub(super) computing_until: Option<Instant>,
    /// The exit that could not be submitted yet, or was.
    pub(super) status: Option<ExitStatus>,
    pub(super) exit: Option<CallId>,
    pub(super) talk: Talk,
    /// Pages of the program in memory.
    pub(super) pages: Pages,
    /// How many of them were there at the launch; none: it was cold.
    pub(super) reused: Option<usize>,
    /// What it leaves is not held.
    pub(super) doomed: bool,
    /// Its pages were given to the table of warm programs, or back.
    pub(super) retired: bool,
}

impl Job {
    /// The program is to end with this status.
    pub(super) fn end(&mut self, status: ExitStatus) {
        self.phase = Phase::Exiting;
        self.computing_until = None;
        self.status.get_or_insert(status);
    }

    /// What the other services are to hear.
    pub(super) fn note(&mut self) -> Option<Note> {
        match self.talk {
            Talk::Wanted(bytes, is_message) => {
                self.talk = Talk::UnderWay;
                Some(Note::Talk { bytes, is_message })
            }
            Talk::Ending => {
                self.talk = Talk::Ended;
                let is_well = matches!(self.status, Some(ExitStatus::Exited(_)));
                Some(Note::Ended { is_well })
            }
            _ => None,
        }
    }

    /// What the step said is done, well or not.
    pub(super) fn talked(&mut self, is_well: bool) {
        if self.talk == Talk::UnderWay {
            self.talk = Talk::Done(is_well);
        }
    }

    pub(super) fn can_step(&self, now: Instant) -> bool {
        self.computing_until.is_some_and(|until| until <= now)
    }

    /// One step; false when there is something to wait for.
    pub(super) fn advance(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        warm: &mut WarmTable,
        plan: &Plan,
    ) -> Result<bool, String> {
        while let Some(request) = self.wanted.front() {
            if self.is_present(request, plan) {
                self.wanted.pop_front();
                continue;
            }
            let Ok(id) = endpoint.request_pages(now, *request) else {
                return Ok(false);
            };
            self.wanted.pop_front();
            self.waiting.insert(id);
        }
        match self.phase {
            Phase::Loading if self.waiting.is_empty() => {
                self.check_block(plan)?;
                endpoint.launch_result(now, self.spec.job, Ok(()));
                let at_once = self.spec.start == StartMode::AtOnce;
                self.phase = if at_once {
                    Phase::Running
                } else {
                    Phase::Ready
                };
                Ok(at_once)
            }
            Phase::Loading | Phase::Ready => Ok(false),
            Phase::Running => self.step(now, endpoint, plan),
            Phase::Exiting => self.submit_exit(now, endpoint, warm),
        }
    }

    /// A range of the program that need not be fetched.
    fn is_present(&self, request: &PageRequest, plan: &Plan) -> bool {
        let mut pages = plan.pages_of(request.offset, request.length);
        request.object == Object::Program && pages.all(|page| self.pages.contains(&page))
    }

    /// The program has ended, whichever way: its pages go to the table of warm programs, or back.
    pub(super) fn retire(&mut self, now: Instant, endpoint: &mut Endpoint, warm: &mut WarmTable) {
        if std::mem::replace(&mut self.retired, true) {
            return;
        }
        let (program, retention) = (self.spec.program, self.spec.retention);
        let pages = std::mem::take(&mut self.pages);
        if self.doomed || retention.keep == Keep::Nothing || pages.is_empty() {
            endpoint.unhold(now, program);
            return;
        }
        let holding = Holding {
            program,
            pages: pages.len() as u32,
            pristine: 0,
        };
        let evicted = warm.put(program, pages, retention.limit_pages);
        for other in &evicted {
            endpoint.unhold(now, *other);
        }
        if !evicted.contains(&program) {
            endpoint.hold(now, holding);
        }
    }

    fn check_block(&self, plan: &Plan) -> Checked {
        let block: Vec<u8> = self.block.values().flatten().copied().collect();
        let rank = self.spec.rank;
        let parsed = netstack::job::launch_block::parse(&block);
        let parsed = parsed.map_err(|error| format!("launch block of rank {rank}: {error}"))?;
        check(
            parsed.rank == rank && block == plan.launch_block(rank),
            || format!("rank {rank} of job {} has another's launch block", plan.job),
        )
    }

    fn step(&mut self, now: Instant, endpoint: &mut Endpoint, plan: &Plan) -> Result<bool, String> {
        if self.computing_until.is_some_and(|until| until > now) || !self.waiting.is_empty() {
            return Ok(false);
        }
        let job = self.spec.job;
        let Some(step) = plan.steps.get(self.step) else {
            self.end(ExitStatus::Exited(plan.code));
            return Ok(true);
        };
        match *step {
            Step::Compute(time) => {
                if self.computing_until.take().is_none() {
                    self.computing_until = Some(now + time);
                    return Ok(time.0 == 0);
                }
                self.step += 1;
            }
            Step::Write(bytes) => {
                if self.to_write == 0 {
                    self.to_write = bytes;
                }
                let piece = self.to_write.min(MAX_CALL_DATA);
                let data =
                    program::bytes_at(Stream::Output(job, self.spec.rank), self.written, piece);
                let op = IoOp::Write {
                    fd: 1,
                    offset: OFFSET_CURRENT,
                    data,
                };
                match endpoint.io_submit(now, job, LocalRank::FIRST, op) {
                    Ok(_) => {}
                    Err(SubmitError::Full) => return Ok(false),
                    Err(error) => return Err(format!("job {job}: a write was refused: {error:?}")),
                }
                self.written += piece as u64;
                self.to_write -= piece;
                if self.to_write == 0 {
                    self.step += 1;
                }
            }
            Step::Fault(offset, length) => {
                let object = Object::Program;
                let demand = true;
                self.wanted.push_back(PageRequest {
                    job,
                    object,
                    offset,
                    length,
                    demand,
                });
                self.step += 1;
            }
            Step::Exchange(_) | Step::Message(_) if plan.nodes.len() == 1 => self.step += 1,
            Step::Exchange(bytes) | Step::Message(bytes) => match self.talk {
                Talk::Done(true) => {
                    self.talk = Talk::Silent;
                    self.step += 1;
                }
                Talk::Done(false) => self.end(ExitStatus::Failed),
                Talk::Silent => {
                    let is_message = matches!(step, Step::Message(_));
                    self.talk = Talk::Wanted(bytes, is_message);
                    return Ok(false);
                }
                _ => return Ok(false),
            },
            Step::ReadAll => {
                if self.spec.rank != Rank(0) {
                    self.step += 1;
                    return Ok(true);
                }
                if self.reading.is_none() {
                    let op = IoOp::Read {
                        fd: 0,
                        offset: OFFSET_CURRENT,
                        size: 1000,
                    };
                    self.reading = endpoint.io_submit(now, job, LocalRank::FIRST, op).ok();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn submit_exit(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        warm: &mut WarmTable,
    ) -> Result<bool, String> {
        if self.exit.is_none() {
            self.talk = Talk::Ending;
            let status = self.status.expect("an ending job has a status");
            let mut report = ExitReport::new(status);
            // What the operator checks the output against.
            report.user_us = self.written;
            report.wall_us = self.stdin;
            self.retire(now, endpoint, warm);
            let traffic = endpoint.page_traffic(self.spec.job);
            report.warm = self.reused.is_some();
            report.pages_reused = self.reused.unwrap_or(0) as u64;
            report.program_requests = traffic.requests;
            report.program_fragments = traffic.fragments;
            report.program_wire_bytes = traffic.wire_bytes;
            report.bytes_loaded = traffic.bytes;
            let submitted = endpoint.io_submit(
                now,
                self.spec.job,
                LocalRank::FIRST,
                IoOp::Exit(Box::new(report)),
            );
            let call = submitted.map_err(|error| format!("an exit was refused: {error:?}"))?;
            self.exit = Some(call);
        }
        Ok(false)
    }
}
