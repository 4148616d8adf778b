//! Taking jobs in, their clients, and cancelling them.
//!
//! Neighbours: `api` hands submissions in; `queueing` has them start; `again` hands in those of an
//! earlier run of control.
//!
//! Invariant: what is accepted here can be launched: its launch block fits, and the nodes that it
//! wants are there or it waits for them.

use std::collections::{BTreeMap, BTreeSet};

use hearth_alloc::queue::{self, DEPENDENCIES_MAX, Dependency};

use super::allocator::Want;
use super::fabric::{EndBy, Fabric};
use super::kept::files::Order;
use super::lifecycle::SIGNAL_KILL;
use super::record::{Cause, Job, Submission};
use super::streams::{Sink, SinkReader, Source, SourceWriter};
use super::users::Users;
use super::{Due, JobError, Runner, SubmitError, command_line, launch_block, spec};
use crate::api::types::{AfterCondition, AfterJob, ArrayTask, JobInfo, JobState, Why};
use crate::clock;
use crate::config;
use crate::events::Severity;
use crate::hostlist;
use crate::output_files::Names;
use crate::principal::{Denied, Principal, Role};
use crate::signal;

/// Seconds a client has to read a job's output after submitting it.
const ATTACH_LIMIT_S: u64 = 30;

/// Most bytes of arguments and environments of all jobs that are not over; they stay in memory
/// until the jobs start.
const SPEC_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Longest name of a job, in bytes: that of a file.
pub(super) const NAME_MAX: usize = 255;

/// Longest time limit: a century, in seconds. What ends later is taken never to end.
pub const TIME_LIMIT_MOST_S: u64 = 36_525 * 86_400;

/// Why a job waits whose client does not read its output yet.
pub(super) const WAITS_FOR_CLIENT: &str = "the command that runs it does not read its output yet";

impl Runner {
    /// Accepts a job of whoever hands it in.
    ///
    /// # Errors
    /// [`SubmitError`].
    pub fn submit(
        &mut self,
        by: &Principal,
        now_us: u64,
        mut submission: Submission,
    ) -> Result<u64, SubmitError> {
        by.need(Role::User)?;
        submission.terms.user.clone_from(&by.name);
        submission.terms.identity.clone_from(&by.identity);
        self.check_array(by, &submission)?;
        let id = self.next_job;
        let array = task_of_array(&mut submission, id);
        self.check(&submission)?;
        let after = self.open_dependencies(&submission)?;
        self.next_job += 1;
        let terms = &submission.terms;
        let time_limit_s = submission.time_limit_s.unwrap_or(self.limits.time_limit_s);
        let info = JobInfo {
            instance: self.instance.clone(),
            id,
            name: submission.name.clone(),
            program_file: command_line::program_name(&submission.args),
            command: command_line::text(&submission.args),
            directory: command_line::kept(terms.directory.clone()),
            program: crate::secrets::encode_hex(&submission.program.hash()),
            submitted_unix_us: clock::unix_us(),
            ranks_total: submission.want.ranks,
            nodes_total: submission.want.node_count(),
            time_limit_s: (time_limit_s > 0).then_some(time_limit_s),
            cores: Some(submission.want.cores).filter(|cores| *cores > 0),
            reuse: submission.wishes.reuse,
            with: submission
                .files
                .iter()
                .map(|file| file.name.clone())
                .collect(),
            user: terms.user.clone(),
            priority: terms.priority,
            held: terms.hold,
            batch: terms.batch,
            requeue: terms.requeue,
            after,
            array,
            ..JobInfo::default()
        };
        let stdin = submission.stdin;
        let job = self.enter(now_us, info, submission, ATTACH_LIMIT_S);
        let text = spec::write(job, stdin);
        let mut record = job.record();
        record.spec = Some(text);
        self.records.push(record);
        Ok(id)
    }

    /// Refuses a task of somebody else's array, whose tasks would wait for it.
    fn check_array(&self, by: &Principal, submission: &Submission) -> Result<(), Denied> {
        let array = submission.terms.array.filter(|array| array.first > 0);
        let first = array.and_then(|array| self.get(array.first).ok());
        first.map_or(Ok(()), |job| match job.user == by.name {
            true => Ok(()),
            false => Err(Denied::NotYours {
                job: job.id,
                owner: job.user,
                name: by.name.clone(),
            }),
        })
    }

    /// Puts a job into the queue, new or of an earlier run of control.
    pub(super) fn enter(
        &mut self,
        now_us: u64,
        info: JobInfo,
        submission: Submission,
        attach_limit_s: u64,
    ) -> &mut Job {
        let id = info.id;
        if self.take_in(info, submission).is_some() {
            let limit_us = now_us + attach_limit_s * 1_000_000;
            self.deadlines.set(id, Some(limit_us));
        }
        self.enqueue(id);
        self.jobs.get_mut(&id).expect("taken in above")
    }

    /// Makes a job known; gives its number if a client has to read its output.
    pub(super) fn take_in(&mut self, mut info: JobInfo, submission: Submission) -> Option<u64> {
        let id = info.id;

        let batch = submission.terms.batch;
        self.spec_bytes += bytes_of(&submission.args, &submission.env, &submission.want);
        self.users.enter(&info.user);
        let (why, reason) = match batch {
            true => (Why::None, "the queue has not looked at it yet"),
            false => (Why::BeginTime, WAITS_FOR_CLIENT),
        };
        (info.why, info.reason) = (Some(why), reason.to_string());
        let sink = match batch {
            true if !self.restoring => Sink::kept(self.outputs.begin(id)),
            true => Sink::kept(self.outputs.go_on(id)),
            false => Sink::new(id, self.limits.output_buffer_bytes, self.wakeups.clone()),
        };
        // Once the file with what is kept is known as open: one without it is taken to be over.
        let output_files = submission.terms.output_files;
        if batch && !output_files.is_nothing() {
            self.outputs.order(Order {
                wanted: output_files.clone(),
                names: Names {
                    job: id,
                    name: info.name.clone(),
                    user: info.user.clone(),
                    array: info.array.map(|array| (array.first, array.task)),
                },
                ranks: info.ranks_total,
            });
        }
        let source = match &submission.terms.input {
            Some(input) => Source::file(input.clone()),
            None => Source::new(id, submission.stdin && !batch, self.wakeups.clone()),
        };
        let job = Job {
            info,
            want: submission.want,
            wishes: submission.wishes,
            wait: submission.wait,
            program: submission.program,
            args: submission.args,
            env: submission.env,
            identity: submission.terms.identity,
            load: submission.load.unwrap_or(self.broadcast.load),
            files: submission.files,
            mounts: submission.terms.mounts,
            bringing: false,
            awaits_program: false,
            ranks: Vec::new(),
            places: BTreeMap::new(),
            loading: 0,
            alive: 0,
            launch_blocks: Vec::new(),
            at_once: false,
            launched_us: None,
            sink,
            source,
            input: submission.terms.input,
            output_files,
            adopted: false,
            input_known: false,
            input_from: None,
            received: BTreeMap::new(),
            unread: self.restoring,
            attached: batch,
            stdin_taken: batch || !submission.stdin,
            cause: None,
            started_us: None,
            ran_before_us: 0,
            discard_output: false,
        };
        self.jobs.insert(id, job);
        (!batch).then_some(id)
    }

    /// Hands a job to the queue.
    pub(super) fn enqueue(&mut self, id: u64) {
        let queued = self.queued(id);
        self.queue.submit(queued).expect("checked before");
        self.pass_due = self.pass_due.max(Due::Soon);
    }

    /// A job as the queue sees it.
    pub(super) fn queued(&self, id: u64) -> queue::Job {
        let job = &self.jobs[&id];
        let info = &job.info;
        let after = info.after.iter().map(|after| Dependency {
            job: after.job,
            must_succeed: after.condition == AfterCondition::Ok,
        });
        queue::Job {
            user: self.users.number(&info.user),
            priority: info.priority,
            is_held: !job.may_start(),
            after: after.collect(),
            tie: job.want.tie(
                !info.crashes.is_empty(),
                self.nodes.with_fewer_cores(job.want.node_cores()),
            ),
            array: info
                .array
                .filter(|array| array.at_once > 0)
                .map(|array| queue::Array {
                    first: array.first,
                    at_once: array.at_once,
                }),
            ..queue::Job::new(
                id,
                job.want.node_count(),
                info.time_limit_s.map(|limit| limit.saturating_mul(1_000)),
                info.submitted_unix_us / 1_000,
            )
        }
    }

    fn check(&self, submission: &Submission) -> Result<(), SubmitError> {
        if self.stopping {
            return Err(SubmitError::Stopping);
        }
        let waiting = self.queue.queued_count();
        let most = self.limits.queue_max.min(queue::QUEUED_MAX);
        if waiting >= most {
            return Err(SubmitError::QueueFull(waiting));
        }
        let bytes = bytes_of(&submission.args, &submission.env, &submission.want);
        if self.spec_bytes + bytes > SPEC_BYTES_MAX {
            return Err(SubmitError::QueueBytes(self.spec_bytes));
        }
        let name = &submission.name;
        let is_name = (1..=NAME_MAX).contains(&name.len()) && !name.contains(char::is_control);
        if !is_name {
            return Err(SubmitError::BadName);
        }
        self.check_user(submission)?;
        self.check_want(&submission.want, submission.wait)?;
        if submission.time_limit_s > Some(TIME_LIMIT_MOST_S) {
            return Err(SubmitError::TimeLimit);
        }
        if submission.terms.after.len() > DEPENDENCIES_MAX {
            return Err(SubmitError::Dependencies);
        }
        if submission.terms.requeue && submission.stdin && !submission.terms.batch {
            return Err(SubmitError::RequeueWithInput);
        }
        // The last of several variables of a name is the one that ranks get.
        let environment = submission.env.iter().rev().map(Vec::as_slice);
        netstack::exchange::Settings::of(environment, submission.want.ranks)
            .map_err(SubmitError::Exchange)?;
        launch_block::check(submission)
    }

    fn check_user(&self, submission: &Submission) -> Result<(), SubmitError> {
        let user = &submission.terms.user;
        if !Users::is_name(user) {
            return Err(SubmitError::BadUser(user.clone()));
        }
        let (wanted, most) = (submission.want.node_count(), self.queueing.user_nodes_max);
        if most > 0 && wanted > most {
            return Err(SubmitError::UserNodes {
                wanted: wanted as usize,
                most: most as usize,
            });
        }
        let most = self.queueing.user_queued_max;
        if most == 0 {
            return Ok(());
        }
        let waits = |job: &&Job| job.info.state == JobState::Pending && job.info.user == *user;
        if self.jobs.values().filter(waits).count() >= most {
            let user = user.clone();
            return Err(SubmitError::UserQueue { user, most });
        }
        Ok(())
    }

    fn check_want(&self, want: &Want, wait: bool) -> Result<(), SubmitError> {
        if want.ranks == 0 {
            return Err(SubmitError::NoRanks);
        }
        if want.node_count() > want.ranks {
            return Err(SubmitError::EmptyNodes {
                ranks: want.ranks as usize,
                nodes: want.node_count() as usize,
            });
        }
        if want.most_on_node() > netstack::RANKS_PER_NODE_MAX.into() {
            return Err(SubmitError::CrowdedNodes {
                ranks: want.ranks as usize,
                nodes: want.node_count() as usize,
            });
        }
        let (wanted, places) = (want.node_count() as usize, self.nodes.places());
        let known = self.nodes.count();
        self.check_among(want, wait)?;
        let can_have = |node: &&u32| self.nodes.knows(**node) && self.nodes.has_place(**node);
        let excluded = want.without.iter().filter(can_have).count();
        if let Some(named) = &want.nodes {
            if named.len() != wanted {
                return Err(SubmitError::Mismatch {
                    ranks: wanted,
                    nodes: named.len(),
                });
            }
            if wanted > places {
                return Err(SubmitError::NoPlaces { wanted, places });
            }
            let distinct: BTreeSet<&u32> = named.iter().collect();
            if distinct.len() != named.len() {
                return Err(SubmitError::NodeTwice);
            }
            let unknown = self.nodes.unknown(named);
            if !unknown.is_empty() && !wait {
                return Err(SubmitError::UnknownNodes(hostlist::format(&unknown)));
            }
        } else if wanted > places {
            return Err(SubmitError::NoPlaces { wanted, places });
        } else if wanted > known - excluded && !wait {
            return Err(match excluded {
                0 => SubmitError::TooMany { wanted, known },
                excluded => SubmitError::TooManyExcluded {
                    wanted,
                    known,
                    excluded,
                },
            });
        }
        self.check_cores(want, wait)?;
        if want.warm_only && self.retention.mode == config::RetentionMode::Off {
            return Err(SubmitError::NothingKept);
        }
        Ok(())
    }

    /// Whether there are nodes with as many cores as a job wants; those that were not heard may be.
    fn check_cores(&self, want: &Want, wait: bool) -> Result<(), SubmitError> {
        let (wanted, all) = (want.node_cores(), self.nodes.with_place());
        let may = |node: &u32| !want.without.contains(node);
        let candidates: Vec<u32> = match &want.nodes {
            Some(named) => named.clone(),
            None => all.filter(may).collect(),
        };
        let (fit, small): (Vec<u32>, Vec<u32>) = candidates
            .iter()
            .partition(|node| self.nodes.may_have_cores(**node, wanted));
        let lacks = want.with.iter().any(|node| small.contains(node));
        if wait || !lacks && (fit.len() >= want.node_count() as usize || small.is_empty()) {
            return Ok(());
        }
        let sizes = candidates.iter().filter_map(|node| {
            let cores = self.nodes.cores(*node)?;
            Some((cores, std::cmp::Reverse(*node)))
        });
        let (most, node) = sizes.max().unwrap_or((0, std::cmp::Reverse(0)));
        Err(SubmitError::Cores {
            wanted,
            nodes: want.node_count(),
            have: fit.len(),
            largest: hostlist::name(node.0),
            most,
        })
    }

    /// Nodes that a job must and must not have.
    fn check_among(&self, want: &Want, wait: bool) -> Result<(), SubmitError> {
        let Want { with, without, .. } = want;
        if with.is_empty() && without.is_empty() {
            return Ok(());
        }
        if want.nodes.is_some() || want.warm_only {
            return Err(SubmitError::TwoLists);
        }
        if with.len() > want.node_count() as usize {
            return Err(SubmitError::MustHaveMore {
                ranks: want.node_count() as usize,
                nodes: with.len(),
            });
        }
        let distinct: BTreeSet<u32> = with.iter().copied().collect();
        if distinct.len() != with.len() {
            return Err(SubmitError::NodeTwice);
        }
        let both: Vec<u32> = distinct.intersection(without).copied().collect();
        if !both.is_empty() {
            return Err(SubmitError::InBothLists(hostlist::format(&both)));
        }
        let unknown = self.nodes.unknown(with);
        match unknown.is_empty() || wait {
            true => Ok(()),
            false => Err(SubmitError::UnknownNodes(hostlist::format(&unknown))),
        }
    }

    /// The jobs that a submission has to wait for.
    fn open_dependencies(&self, submission: &Submission) -> Result<Vec<AfterJob>, SubmitError> {
        let terms = &submission.terms;
        let mut open = Vec::new();
        for after in &terms.after {
            if self.jobs.contains_key(&after.job) {
                open.push(*after);
                continue;
            }
            let remembered = self.get(after.job).ok().map(|info| info.state);
            let state = remembered.or(terms.known_ends.get(&after.job).copied());
            let state = state.ok_or(SubmitError::UnknownDependency(after.job))?;
            if after.condition == AfterCondition::Ok && state != JobState::Completed {
                return Err(SubmitError::FailedDependency {
                    job: after.job,
                    state: state.word(),
                });
            }
        }
        Ok(open)
    }

    /// As [`Runner::attach`], for a client that has had some of the output from an earlier run of
    /// control: for ranks the last call that has arrived.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn attach_behind(
        &mut self,
        by: &Principal,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        received: BTreeMap<u32, u64>,
    ) -> Result<SinkReader, JobError> {
        let job = self.own_mut(by, id)?;
        if !job.attached && job.info.continued > 0 {
            job.received = received;
        }
        self.attach(by, now_us, fabric, id)
    }

    /// Gives out the reading end of a job's output; the job may get nodes from now on.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn attach(
        &mut self,
        by: &Principal,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
    ) -> Result<SinkReader, JobError> {
        let job = self.own_mut(by, id)?;
        if job.info.batch {
            return Err(JobError::Batch(id));
        }
        if std::mem::replace(&mut job.attached, true) {
            return Err(JobError::Taken(id));
        }
        let reader = job.sink.reader().ok_or(JobError::Batch(id))?;
        if job.info.state != JobState::Pending {
            // It went on over a restart of control; what its ranks have to say has waited.
            self.client_returned(now_us, fabric, id);
            return Ok(reader);
        }
        super::continued::tell_input(job);
        let may_start = job.may_start();
        self.deadlines.set(id, None);
        if may_start {
            self.queue.release(id);
            self.pass_due = self.pass_due.max(Due::Soon);
        }
        self.say_held_up(id);
        self.settle(now_us, fabric);
        Ok(reader)
    }

    /// Gives out the writing end of a job's standard input.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn stdin(&mut self, by: &Principal, id: u64) -> Result<SourceWriter, JobError> {
        let job = self.own_mut(by, id)?;
        if job.info.batch {
            return Err(JobError::Batch(id));
        }
        if std::mem::replace(&mut job.stdin_taken, true) {
            return Err(JobError::Taken(id));
        }
        job.source.writer().ok_or(JobError::Batch(id))
    }

    /// Ends a job with `signal`, for `reason`. Its programs get the signal and may end by
    /// themselves for `grace_s` seconds, or for as long as is configured.
    ///
    /// # Errors
    /// [`JobError`].
    pub fn cancel(
        &mut self,
        by: &Principal,
        now_us: u64,
        fabric: &mut dyn Fabric,
        id: u64,
        (signal, grace_s): (i32, Option<u64>),
        reason: &str,
    ) -> Result<(), JobError> {
        self.own_mut(by, id)?;
        let cause = Cause::Cancelled(reason.to_string());
        let by = match signal {
            SIGNAL_KILL => EndBy::at_once(signal),
            signal => EndBy {
                signal,
                ..self.term(grace_s)
            },
        };
        self.end_by(now_us, fabric, id, by, cause);
        self.settle(now_us, fabric);
        Ok(())
    }

    /// Has all ranks of a job get a signal. A job that ends may still get one.
    ///
    /// # Errors
    /// [`JobError`]: it has ended, or does not run yet.
    pub fn signal(
        &mut self,
        by: &Principal,
        fabric: &mut dyn Fabric,
        id: u64,
        signal: i32,
    ) -> Result<(), JobError> {
        let job = self.own_mut(by, id)?;
        let state = job.info.state;
        if job.started_us.is_none() || !matches!(state, JobState::Running | JobState::Ending) {
            return Err(JobError::NotRunning { id, state });
        }
        let (on_nodes, name) = (job.on_nodes(), signal::text(signal));
        fabric.signal(on_nodes, signal);
        let text = format!("job {id} gets {name}");
        self.event(Severity::Info, "job-signal", id, text);
        Ok(())
    }
}

/// The array that a job is of, and in its environment which task of it; the job will have the
/// number `id`.
fn task_of_array(submission: &mut Submission, id: u64) -> Option<ArrayTask> {
    let mut array = submission.terms.array?;
    if array.first == 0 {
        array.first = id;
    }
    // Behind what the user gives, since the last of a name counts.
    let own = [
        format!("HEARTH_ARRAY_JOB_ID={}", array.first),
        format!("HEARTH_ARRAY_TASK_ID={}", array.task),
    ];
    submission.env.extend(own.map(String::into_bytes));
    Some(array)
}

/// Bytes of a job's arguments and environment, and of the nodes that it names.
pub(super) fn bytes_of(args: &[Vec<u8>], env: &[Vec<u8>], want: &Want) -> usize {
    let strings: usize = args.iter().chain(env).map(Vec::len).sum();
    let named = want.nodes.as_ref().map_or(0, Vec::len);
    strings + (named + want.with.len() + want.without.len()) * size_of::<u32>()
}
