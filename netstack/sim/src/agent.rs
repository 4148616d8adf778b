//! The kernel's part on a simulated node: loads, starts and ends programs around the real
//! endpoint, and looks at the network once a heartbeat only while its program computes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use netstack::ids::{CallId, JobId, Rank, RequestId};
use netstack::io::{ExitReport, ExitStatus, IoOp, MAX_CALL_DATA, OFFSET_CURRENT, SubmitError};
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode};
use netstack::node::{Endpoint, Event};
use netstack::page::{Object, PageRequest};
use netstack::time::Instant;
use netstack::vitals::Vitals;

use crate::program::{self, Plan, Step, Stream};

/// Datagrams the receive ring holds while the program computes.
const RING: usize = 128;
/// Pieces in which a launch block is read.
const BLOCK_PIECE: u32 = 4096;

/// What a rank is doing.
#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Loading,
    Ready,
    Running,
    Exiting,
}

#[derive(Debug)]
struct Job {
    spec: LaunchSpec,
    phase: Phase,
    /// Ranges still to be asked for.
    wanted: VecDeque<PageRequest>,
    waiting: BTreeSet<RequestId>,
    block: BTreeMap<u64, Vec<u8>>,
    step: usize,
    written: u64,
    /// Bytes of the present write that are not submitted yet.
    to_write: usize,
    stdin: u64,
    reading: Option<CallId>,
    computing_until: Option<Instant>,
    /// The exit that could not be submitted yet, or was.
    status: Option<ExitStatus>,
    exit: Option<CallId>,
}

/// A running node.
#[derive(Debug)]
pub struct Agent {
    /// The node's end of the protocol.
    pub endpoint: Endpoint,
    ring: VecDeque<Vec<u8>>,
    jobs: BTreeMap<JobId, Job>,
    launched: BTreeSet<JobId>,
    started: BTreeSet<JobId>,
    booted: Instant,
    /// The node has left or is leaving.
    pub leaving: bool,
}

/// What a check found.
pub type Checked = Result<(), String>;

fn check(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

impl Agent {
    /// A node that boots now.
    pub fn new(endpoint: Endpoint, now: Instant) -> Self {
        Agent {
            endpoint,
            ring: VecDeque::new(),
            jobs: BTreeMap::new(),
            launched: BTreeSet::new(),
            started: BTreeSet::new(),
            booted: now,
            leaving: false,
        }
    }

    /// A datagram has arrived; true when the node looks at once.
    pub fn arrive(&mut self, now: Instant, datagram: Vec<u8>) -> bool {
        if self.ring.len() < RING {
            self.ring.push_back(datagram);
        }
        !self.is_computing(now)
    }

    /// The node has no job.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    fn is_computing(&self, now: Instant) -> bool {
        self.jobs
            .values()
            .any(|job| job.computing_until.is_some_and(|until| until > now))
    }

    /// When to look at the node again.
    pub fn next_wake(&self, now: Instant) -> Option<Instant> {
        let step = self
            .jobs
            .values()
            .filter_map(|job| job.computing_until)
            .min();
        let deadline = if self.is_computing(now) {
            self.endpoint.heartbeat_deadline()
        } else {
            self.endpoint.poll_timeout()
        };
        [step, deadline].into_iter().flatten().min()
    }

    /// Does everything that can be done now; datagrams go to `send`.
    pub fn run(
        &mut self,
        now: Instant,
        plans: &BTreeMap<JobId, Plan>,
        mut send: impl FnMut(&[u8]),
    ) -> Checked {
        while let Some(datagram) = self.ring.pop_front() {
            self.endpoint.handle_datagram(now, &datagram);
            self.drain(now, plans, &mut send)?;
        }
        self.drain(now, plans, &mut send)
    }

    fn drain(
        &mut self,
        now: Instant,
        plans: &BTreeMap<JobId, Plan>,
        send: &mut impl FnMut(&[u8]),
    ) -> Checked {
        let mut buffer = [0; netstack::MAX_DATAGRAM];
        loop {
            while let Some(event) = self.endpoint.poll_event() {
                self.handle(now, event, plans)?;
            }
            self.advance(now, plans)?;
            self.endpoint.set_vitals(Vitals {
                uptime_us: now.saturating_since(self.booted).as_micros(),
                job: self.jobs.keys().next().copied(),
                ..Vitals::default()
            });
            if let Some(length) = self.endpoint.poll_transmit(now, &mut buffer) {
                send(&buffer[..length]);
            } else if let Some(event) = self.endpoint.poll_event() {
                self.handle(now, event, plans)?;
            } else if self.jobs.values().all(|job| !job.can_step(now)) {
                return Ok(());
            }
        }
    }

    fn handle(&mut self, now: Instant, event: Event, plans: &BTreeMap<JobId, Plan>) -> Checked {
        match event {
            Event::Launch { spec, block } => self.launch(now, spec, block, plans),
            Event::Retain { job, .. } => {
                self.endpoint.retain_result(now, job, 0);
                Ok(())
            }
            Event::Drop { id, .. } => {
                self.endpoint.drop_result(now, id, 0, false);
                Ok(())
            }
            Event::Start { job } => self.start(job),
            Event::Cancel {
                job,
                signal,
                orphan,
            } => self.cancel(now, job, signal, orphan),
            Event::Data {
                request,
                job,
                object,
                offset,
                bytes,
            } => self.data(request, job, object, offset, bytes, plans),
            Event::PageFailed { request, job, .. } => {
                if let Some(state) = self.jobs.get_mut(&job)
                    && state.waiting.remove(&request)
                {
                    self.give_up(now, job);
                }
                Ok(())
            }
            Event::IoDone {
                job,
                call,
                result,
                data,
            } => self.io_done(job, call, result, &data),
            Event::Joined { .. }
            | Event::Refused { .. }
            | Event::ControlLost
            | Event::ControlBack => Ok(()),
            Event::Left => {
                let by_itself = std::mem::replace(&mut self.leaving, true);
                check(by_itself || self.is_idle(), || {
                    "a node that was asked to leave left its job".into()
                })
            }
        }
    }

    fn launch(
        &mut self,
        now: Instant,
        spec: LaunchSpec,
        inline: Option<Vec<u8>>,
        plans: &BTreeMap<JobId, Plan>,
    ) -> Checked {
        let job = spec.job;
        check(self.launched.insert(job), || {
            format!("job {job} was launched twice in one boot")
        })?;
        check(self.jobs.is_empty(), || {
            format!("job {job} was launched beside another")
        })?;
        let plan = plans
            .get(&job)
            .ok_or_else(|| format!("job {job} is nobody's plan"))?;
        check(spec.program == plan.program(), || {
            format!("job {job} names another program")
        })?;
        if plan.refused {
            let (code, text) = (RefusalCode::NotElf, "not an ELF file: é".repeat(40));
            self.endpoint
                .launch_result(now, job, Err(LaunchRefusal { code, text }));
            return Ok(());
        }
        let request = |object, offset, length| PageRequest {
            job,
            object,
            offset,
            length,
            demand: true,
        };
        let to_read = match inline {
            Some(_) => 0,
            None => spec.launch_block_bytes,
        };
        let pieces = (0..to_read).step_by(BLOCK_PIECE as usize);
        let mut wanted: VecDeque<_> = pieces
            .map(|offset| {
                let length = (spec.launch_block_bytes - offset).min(BLOCK_PIECE);
                request(Object::LaunchBlock, u64::from(offset), length)
            })
            .collect();
        wanted.extend(plan.load.iter().map(|(offset, length)| PageRequest {
            demand: false,
            ..request(Object::Program, *offset, *length)
        }));
        let state = Job {
            spec,
            phase: Phase::Loading,
            wanted,
            waiting: BTreeSet::new(),
            block: inline.map(|block| (0, block)).into_iter().collect(),
            step: 0,
            written: 0,
            to_write: 0,
            stdin: 0,
            reading: None,
            computing_until: None,
            status: None,
            exit: None,
        };
        self.jobs.insert(job, state);
        Ok(())
    }

    fn start(&mut self, job: JobId) -> Checked {
        check(self.started.insert(job), || {
            format!("job {job} was started twice")
        })?;
        // A job that is being cancelled may still get its start.
        if let Some(state) = self.jobs.get_mut(&job)
            && state.phase != Phase::Exiting
        {
            check(state.phase == Phase::Ready, || {
                format!("job {job} was started unready")
            })?;
            state.phase = Phase::Running;
        }
        Ok(())
    }

    fn cancel(&mut self, now: Instant, job: JobId, signal: u8, orphan: bool) -> Checked {
        let Some(state) = self.jobs.get_mut(&job) else {
            return Ok(());
        };
        if orphan {
            self.endpoint.cancel_requests(job);
            self.jobs.remove(&job);
            return Ok(());
        }
        match state.phase {
            Phase::Loading => {
                let (code, text) = (RefusalCode::Cancelled, String::from("cancelled"));
                self.endpoint.cancel_requests(job);
                self.jobs.remove(&job);
                self.endpoint
                    .launch_result(now, job, Err(LaunchRefusal { code, text }));
            }
            Phase::Ready | Phase::Running => state.end(ExitStatus::Signal(signal)),
            Phase::Exiting => {}
        }
        Ok(())
    }

    /// A page could not be had.
    fn give_up(&mut self, now: Instant, job: JobId) {
        let state = self.jobs.get_mut(&job).expect("the caller found the job");
        if state.phase == Phase::Loading {
            let (code, text) = (RefusalCode::Unreadable, String::from("no page"));
            self.endpoint.cancel_requests(job);
            self.jobs.remove(&job);
            self.endpoint
                .launch_result(now, job, Err(LaunchRefusal { code, text }));
        } else {
            state.end(ExitStatus::Failed);
        }
    }

    fn data(
        &mut self,
        request: RequestId,
        job: JobId,
        object: Object,
        offset: u64,
        bytes: Vec<u8>,
        plans: &BTreeMap<JobId, Plan>,
    ) -> Checked {
        let Some(state) = self.jobs.get_mut(&job) else {
            return Ok(());
        };
        check(state.waiting.remove(&request), || {
            format!("request {} came twice", request.0)
        })?;
        match object {
            Object::Program => {
                let file = plans[&job].file_bytes;
                check(program::is_at(Stream::File(job), offset, &bytes), || {
                    format!("job {job}: wrong bytes of the program at {offset}")
                })?;
                check(bytes.len() as u64 <= file.saturating_sub(offset), || {
                    format!("job {job}: bytes beyond the end of the program")
                })
            }
            Object::LaunchBlock => {
                state.block.insert(offset, bytes);
                Ok(())
            }
            Object::PageHashes => Err(format!("job {job}: nobody asked for page hashes")),
        }
    }

    fn io_done(&mut self, job: JobId, call: CallId, result: i64, data: &[u8]) -> Checked {
        let Some(state) = self.jobs.get_mut(&job) else {
            return Ok(());
        };
        if state.exit == Some(call) {
            self.jobs.remove(&job);
            return Ok(());
        }
        check(result >= 0, || {
            format!("job {job}: call {} failed with {result}", call.0)
        })?;
        if state.reading == Some(call) {
            state.reading = None;
            check(
                program::is_at(Stream::Input(job), state.stdin, data),
                || {
                    format!(
                        "job {job}: wrong bytes of standard input at {}",
                        state.stdin
                    )
                },
            )?;
            state.stdin += data.len() as u64;
            if data.is_empty() {
                state.step += 1;
            }
        }
        Ok(())
    }

    /// Takes every job as far as it gets without waiting.
    fn advance(&mut self, now: Instant, plans: &BTreeMap<JobId, Plan>) -> Checked {
        let endpoint = &mut self.endpoint;
        for (job, state) in &mut self.jobs {
            let plan = &plans[job];
            while state.advance(now, endpoint, plan)? {}
        }
        Ok(())
    }
}

impl Job {
    /// The program is to end with this status.
    fn end(&mut self, status: ExitStatus) {
        self.phase = Phase::Exiting;
        self.computing_until = None;
        self.status.get_or_insert(status);
    }

    fn can_step(&self, now: Instant) -> bool {
        self.computing_until.is_some_and(|until| until <= now)
    }

    /// One step; false when there is something to wait for.
    fn advance(
        &mut self,
        now: Instant,
        endpoint: &mut Endpoint,
        plan: &Plan,
    ) -> Result<bool, String> {
        while let Some(request) = self.wanted.front() {
            let Ok(id) = endpoint.request_pages(now, *request) else {
                return Ok(false);
            };
            self.wanted.pop_front();
            self.waiting.insert(id);
        }
        match self.phase {
            Phase::Loading if self.waiting.is_empty() => {
                self.check_block(plan)?;
                self.phase = Phase::Ready;
                endpoint.launch_result(now, self.spec.job, Ok(()));
                Ok(false)
            }
            Phase::Loading | Phase::Ready => Ok(false),
            Phase::Running => self.step(now, endpoint, plan),
            Phase::Exiting => self.submit_exit(now, endpoint),
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
                match endpoint.io_submit(now, job, op) {
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
                    self.reading = endpoint.io_submit(now, job, op).ok();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn submit_exit(&mut self, now: Instant, endpoint: &mut Endpoint) -> Result<bool, String> {
        if self.exit.is_none() {
            let status = self.status.expect("an ending job has a status");
            let mut report = ExitReport::new(status);
            // What the operator checks the output against.
            report.user_us = self.written;
            report.wall_us = self.stdin;
            let submitted = endpoint.io_submit(now, self.spec.job, IoOp::Exit(Box::new(report)));
            let call = submitted.map_err(|error| format!("an exit was refused: {error:?}"))?;
            self.exit = Some(call);
        }
        Ok(false)
    }
}
