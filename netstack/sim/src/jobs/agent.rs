//! The kernel's part on a simulated node: loads, starts and ends programs around the real
//! endpoint, holds pages of those that have ended, and looks at the network once a heartbeat only
//! while its program computes.

mod job;
pub mod warm;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use netstack::ids::{CallId, JobId, ProgramId, Rank, RequestId};
use netstack::io::ExitStatus;
use netstack::job::{LaunchRefusal, LaunchSpec, RefusalCode, StartMode};
use netstack::node::{Endpoint, Event};
use netstack::page::{Object, PageRequest};
use netstack::retention::{Keep, Reuse};
use netstack::time::Instant;
use netstack::vitals::Vitals;
use netstack::wire::key::Key;

use super::program::{self, Plan, Stream};
use crate::world::{Checked, check};
use job::{Job, Phase, Talk};
use warm::WarmTable;

/// Pieces in which a launch block is read.
const BLOCK_PIECE: u32 = 4096;

/// A running node.
#[derive(Debug)]
pub struct Agent {
    /// The node's end of the protocol.
    pub endpoint: Endpoint,
    /// What the node's other services are to hear.
    pub notes: VecDeque<Note>,
    jobs: BTreeMap<JobId, Job>,
    launched: BTreeSet<JobId>,
    started: BTreeSet<JobId>,
    retained: BTreeSet<JobId>,
    /// The newest DROP of this session.
    last_drop: u64,
    warm: WarmTable,
    booted: Instant,
    /// The node has left or is leaving.
    pub leaving: bool,
}

/// What a node's other services are to hear.
#[derive(Clone, Copy, Debug)]
pub enum Note {
    /// The node has joined control.
    Joined {
        /// The run of the control node, from 1 on.
        run: u64,
        /// Its time in microseconds.
        time_us: u64,
    },
    /// A job was launched here.
    Launched {
        /// The job.
        job: JobId,
        /// Its rank here.
        rank: Rank,
        /// The key of what its ranks say.
        key: Key,
    },
    /// A program exchanges so many bytes with each other rank, or sends a message of so many.
    Talk {
        /// How many.
        bytes: u64,
        /// It is a message.
        is_message: bool,
    },
    /// A program ended.
    Ended {
        /// By itself, and without an error.
        is_well: bool,
    },
}

impl Agent {
    /// A node that boots now and holds at most so many pages of programs that have ended.
    pub fn new(endpoint: Endpoint, now: Instant, warm_pages: u32) -> Self {
        Agent {
            endpoint,
            notes: VecDeque::new(),
            jobs: BTreeMap::new(),
            launched: BTreeSet::new(),
            started: BTreeSet::new(),
            retained: BTreeSet::new(),
            last_drop: 0,
            warm: WarmTable::new(warm_pages),
            booted: now,
            leaving: false,
        }
    }

    /// The node has no job.
    pub fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The programs it holds, with their pages.
    pub fn held(&self) -> BTreeMap<ProgramId, u32> {
        self.warm.held()
    }

    fn is_computing(&self, now: Instant) -> bool {
        self.jobs
            .values()
            .any(|job| job.computing_until.is_some_and(|until| until > now))
    }

    /// When a node whose program computes looks at the network next; None: it always does.
    pub fn looks_next(&self, now: Instant) -> Option<Instant> {
        if !self.is_computing(now) {
            return None;
        }
        [self.next_step(), self.endpoint.heartbeat_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn next_step(&self) -> Option<Instant> {
        let jobs = self.jobs.values();
        jobs.filter_map(|job| job.computing_until).min()
    }

    /// When a node that looks wants to be asked again.
    pub fn next_wake(&self) -> Option<Instant> {
        [self.next_step(), self.endpoint.poll_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Does everything that can be done now but sending.
    pub fn settle(&mut self, now: Instant, plans: &BTreeMap<JobId, Plan>) -> Checked {
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
            match self.endpoint.poll_event() {
                Some(event) => self.handle(now, event, plans)?,
                None if self.jobs.values().all(|job| !job.can_step(now)) => return Ok(()),
                None => {}
            }
        }
    }

    /// What a program's step talked about is over.
    pub fn talked(&mut self, job: JobId, is_well: bool) {
        if let Some(state) = self.jobs.get_mut(&job) {
            state.talked(is_well);
        }
    }

    fn handle(&mut self, now: Instant, event: Event, plans: &BTreeMap<JobId, Plan>) -> Checked {
        match event {
            Event::Launch { spec, key, block } => self.launch(now, (spec, key), block, plans),
            Event::Retain { job, program, .. } => self.retain(now, job, program),
            Event::Drop { id, program } => self.drop_program(now, id, program),
            Event::Start { job } => self.start(job),
            Event::Cancel {
                job,
                signal,
                orphan,
                ..
            } => self.cancel(now, job, signal, orphan),
            Event::Signal { job, .. } => Err(format!("job {job} gets a signal nobody sent")),
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
                ..
            } => self.io_done(job, call, result, &data),
            Event::Joined {
                control, time_us, ..
            } => {
                let run = control.0;
                self.notes.push_back(Note::Joined { run, time_us });
                self.last_drop = 0;
                Ok(())
            }
            Event::Refused { .. } | Event::ControlLost | Event::ControlBack => Ok(()),
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
        (spec, key): (LaunchSpec, Key),
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
        let held = self.take_warm(now, &spec);
        if held.is_none() && spec.retention.reuse == Reuse::Require {
            let (code, text) = (RefusalCode::NotWarm, String::from("nothing is held of it"));
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
        let rank = spec.rank;
        self.notes.push_back(Note::Launched { job, rank, key });
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
            talk: Talk::Silent,
            reused: held.as_ref().map(BTreeSet::len),
            pages: held.unwrap_or_default(),
            doomed: false,
            retired: false,
        };
        self.jobs.insert(job, state);
        Ok(())
    }

    /// What may be used of earlier runs; the published method forgets all other programs.
    fn take_warm(&mut self, now: Instant, spec: &LaunchSpec) -> Option<warm::Pages> {
        if spec.retention.keep == Keep::Published {
            self.give_back(now, self.warm.others(Some(spec.program)));
        }
        if spec.retention.reuse == Reuse::Forbid {
            self.give_back(now, vec![spec.program]);
        }
        self.warm.take(spec.program)
    }

    /// Drops what is held of these programs; their pages.
    fn give_back(&mut self, now: Instant, programs: Vec<ProgramId>) -> u32 {
        let mut pages = 0;
        for program in programs {
            if let Some(held) = self.warm.take(program) {
                pages += held.len() as u32;
                self.endpoint.unhold(now, program);
            }
        }
        pages
    }

    fn retain(&mut self, now: Instant, job: JobId, program: ProgramId) -> Checked {
        check(self.retained.insert(job), || {
            format!("job {job} was retained for twice in one boot")
        })?;
        check(
            !self.launched.contains(&job) && self.jobs.is_empty(),
            || format!("job {job} was retained for too late or beside another"),
        )?;
        self.give_back(now, self.warm.others(Some(program)));
        let pages = self.held().get(&program).copied().unwrap_or(0);
        self.endpoint.retain_result(now, job, pages);
        Ok(())
    }

    fn drop_program(&mut self, now: Instant, id: u64, program: Option<ProgramId>) -> Checked {
        check(id > self.last_drop, || {
            format!("drop {id} came after {}", self.last_drop)
        })?;
        self.last_drop = id;
        let mut in_use = false;
        for job in self.jobs.values_mut() {
            let meant = program.is_none_or(|program| program == job.spec.program);
            if meant && !job.retired {
                (job.doomed, in_use) = (true, true);
            }
        }
        let meant = program.map_or_else(|| self.warm.others(None), |program| vec![program]);
        let pages = self.give_back(now, meant);
        self.endpoint.drop_result(now, id, pages, in_use);
        Ok(())
    }

    /// The job is over without an exit.
    fn remove(&mut self, now: Instant, job: JobId) {
        if let Some(mut state) = self.jobs.remove(&job) {
            self.notes.push_back(Note::Ended { is_well: false });
            self.endpoint.cancel_requests(job);
            state.retire(now, &mut self.endpoint, &mut self.warm);
        }
    }

    fn start(&mut self, job: JobId) -> Checked {
        check(self.started.insert(job), || {
            format!("job {job} was started twice")
        })?;
        // A job that is being cancelled may still get its start.
        if let Some(state) = self.jobs.get_mut(&job)
            && state.phase != Phase::Exiting
        {
            let waits = state.phase == Phase::Ready && state.spec.start == StartMode::OnCommand;
            check(waits, || format!("job {job} was started unready"))?;
            state.phase = Phase::Running;
        }
        Ok(())
    }

    fn cancel(&mut self, now: Instant, job: JobId, signal: u8, orphan: bool) -> Checked {
        let Some(state) = self.jobs.get_mut(&job) else {
            return Ok(());
        };
        if orphan {
            self.remove(now, job);
            return Ok(());
        }
        match state.phase {
            Phase::Loading => {
                let (code, text) = (RefusalCode::Cancelled, String::from("cancelled"));
                self.remove(now, job);
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
            self.remove(now, job);
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
                let plan = &plans[&job];
                let (file, stream) = (plan.file_bytes, Stream::File(plan.number));
                state
                    .pages
                    .extend(plan.pages_of(offset, bytes.len() as u32));
                check(program::is_at(stream, offset, &bytes), || {
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
        let (endpoint, warm) = (&mut self.endpoint, &mut self.warm);
        for (job, state) in &mut self.jobs {
            let plan = &plans[job];
            while state.advance(now, endpoint, warm, plan)? {}
            self.notes.extend(state.note());
        }
        Ok(())
    }
}
