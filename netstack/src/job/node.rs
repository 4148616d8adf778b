//! The node's side of job control: at most [`MAX_NODE_JOBS`] jobs, each launched, started and
//! cancelled once however often the command arrives.
//!
//! Invariant: a job id that has ended here is never launched again: the last [`FINISHED`] are
//! remembered, more than the replay window can hold commands of.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;

use crate::ids::JobId;
use crate::io::client::Client;
use crate::io::{self};
use crate::job::{LaunchRefusal, LaunchSpec, MAX_NODE_JOBS, REFUSAL_TEXT_MAX, RefusalCode};
use crate::join::window;
use crate::node::{Event, Outbox};
use crate::wire::job::{Command, CommandAck, JobStatus};

/// Ended jobs remembered. Every job took at least one command, so a repetition of a LAUNCH that
/// passes the replay window finds its job here.
const FINISHED: usize = 64;
/// Refusals whose text is kept for a repeated LAUNCH.
const REFUSED: usize = 4;
/// Answers to commands waiting to be sent; the control node repeats what got none.
const ACKS: usize = 16;

const _: () = assert!(FINISHED as u64 >= window::WINDOW);

/// One job at its node.
#[derive(Debug)]
pub(crate) struct Entry {
    status: JobStatus,
    cancel_signal: u8,
    pub(crate) io: Client,
}

/// The jobs of a node.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    entries: BTreeMap<JobId, Entry>,
    refused: VecDeque<(JobId, LaunchRefusal)>,
    finished: VecDeque<JobId>,
    acks: VecDeque<JobId>,
}

impl Jobs {
    pub(crate) fn entry(&mut self, job: JobId) -> Option<&mut Entry> {
        self.entries.get_mut(&job)
    }

    pub(crate) fn get(&self, job: JobId) -> Option<&Entry> {
        self.entries.get(&job)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (JobId, &Entry)> {
        self.entries.iter().map(|(job, entry)| (*job, entry))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (JobId, &mut Entry)> {
        self.entries.iter_mut().map(|(job, entry)| (*job, entry))
    }

    /// Carries out a command and queues the answer. Returns the job whose page requests are void.
    pub(crate) fn command(&mut self, command: &Command, out: &mut Outbox) -> Option<JobId> {
        let job = command.job();
        let mut dropped = None;
        match command {
            Command::Launch(spec) => self.launch(spec, out),
            Command::Start { .. } => {
                if let Some(entry) = self.entries.get_mut(&job)
                    && entry.status == JobStatus::Ready
                {
                    entry.status = JobStatus::Started;
                    out.push(Event::Start { job });
                }
            }
            Command::Cancel { signal, orphan, .. } => {
                dropped = self.cancel(job, *signal, *orphan, out);
            }
        }
        self.queue_ack(job);
        dropped
    }

    fn launch(&mut self, spec: &LaunchSpec, out: &mut Outbox) {
        if self.status(spec.job) != JobStatus::Unknown {
            return;
        }
        self.end_exited(out);
        if self.entries.len() >= MAX_NODE_JOBS {
            let text = String::from("the node has as many jobs as it can hold: try again later");
            self.refuse(
                spec.job,
                LaunchRefusal {
                    code: RefusalCode::Busy,
                    text,
                },
            );
            return;
        }
        let status = JobStatus::Loading;
        let entry = Entry {
            status,
            cancel_signal: 0,
            io: Client::new(),
        };
        self.entries.insert(spec.job, entry);
        out.push(Event::Launch(*spec));
    }

    /// A launch says that the control node has answered the exits of all jobs before it, even
    /// where that answer was lost.
    fn end_exited(&mut self, out: &mut Outbox) {
        let exited = |(job, entry): (&JobId, &Entry)| entry.io.exit().map(|call| (*job, call));
        while let Some((job, call)) = self.entries.iter().find_map(exited) {
            self.finish(job);
            out.push(Event::IoDone {
                job,
                call,
                result: 0,
                data: alloc::vec::Vec::new(),
            });
        }
    }

    fn cancel(&mut self, job: JobId, signal: u8, orphan: bool, out: &mut Outbox) -> Option<JobId> {
        let never_heard = self.status(job) == JobStatus::Unknown;
        match self.entries.get_mut(&job) {
            Some(_) if orphan => {
                self.finish(job);
                out.push(Event::Cancel {
                    job,
                    signal,
                    orphan,
                });
                return Some(job);
            }
            Some(entry) => {
                let news = entry.cancel_signal != signal && entry.io.exit().is_none();
                entry.cancel_signal = signal;
                if news {
                    out.push(Event::Cancel {
                        job,
                        signal,
                        orphan,
                    });
                }
            }
            // The LAUNCH may still be on its way: it must find the job ended.
            None if never_heard => self.remember(job),
            None => {}
        }
        None
    }

    pub(crate) fn launch_result(&mut self, job: JobId, result: Result<(), LaunchRefusal>) {
        let loading = self
            .entries
            .get_mut(&job)
            .filter(|entry| entry.status == JobStatus::Loading);
        let Some(entry) = loading else {
            return;
        };
        match result {
            Ok(()) => entry.status = JobStatus::Ready,
            Err(refusal) => {
                self.entries.remove(&job);
                self.refuse(job, refusal);
            }
        }
        self.queue_ack(job);
    }

    fn refuse(&mut self, job: JobId, mut refusal: LaunchRefusal) {
        refusal.text = io::clip(&refusal.text, REFUSAL_TEXT_MAX);
        if self.refused.len() == REFUSED {
            self.refused.pop_front();
        }
        self.refused.push_back((job, refusal));
        self.remember(job);
    }

    /// The job has ended: its last call is done, or it is dropped.
    pub(crate) fn finish(&mut self, job: JobId) {
        self.entries.remove(&job);
        self.remember(job);
    }

    fn remember(&mut self, job: JobId) {
        if self.finished.len() == FINISHED {
            self.finished.pop_front();
        }
        self.finished.push_back(job);
    }

    /// Drops all jobs: a new session knows none of them.
    pub(crate) fn drop_all(&mut self, out: &mut Outbox) {
        while let Some((job, _)) = self.entries.first_key_value() {
            let job = *job;
            self.finish(job);
            out.push(Event::Cancel {
                job,
                signal: 9,
                orphan: true,
            });
        }
        self.acks.clear();
    }

    fn status(&self, job: JobId) -> JobStatus {
        if let Some(entry) = self.entries.get(&job) {
            entry.status
        } else if self.refused.iter().any(|(refused, _)| *refused == job) {
            JobStatus::Refused
        } else if self.finished.contains(&job) {
            JobStatus::Finished
        } else {
            JobStatus::Unknown
        }
    }

    fn queue_ack(&mut self, job: JobId) {
        if !self.acks.contains(&job) && self.acks.len() < ACKS {
            self.acks.push_back(job);
        }
    }

    pub(crate) fn has_acks(&self) -> bool {
        !self.acks.is_empty()
    }

    /// The next answer to send.
    pub(crate) fn next_ack(&mut self) -> Option<CommandAck<'_>> {
        let job = self.acks.pop_front()?;
        let refusal = self.refused.iter().find(|(refused, _)| *refused == job);
        Some(CommandAck {
            job,
            status: self.status(job),
            cancel_signal: self
                .entries
                .get(&job)
                .map_or(0, |entry| entry.cancel_signal),
            code: refusal.map_or(RefusalCode::Other, |(_, refusal)| refusal.code),
            text: refusal.map_or("", |(_, refusal)| refusal.text.as_str()),
        })
    }
}
