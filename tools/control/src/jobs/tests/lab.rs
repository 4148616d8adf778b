//! A runner, nodes that only record what they are told, and a store that only remembers.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use hearth_alloc::topology::Topology;
use netstack::ids::{CallId, JobId, NodeId, Rank};
use netstack::job::{AdoptedRank, StartMode};

use crate::api::types::{Frame, IoPart, JobInfo, JobState, LoadReport, RankEnd, RankReport};
use crate::casts::for_jobs::{Brought, JobFile, ProgramCast};
use crate::config;
use crate::events::Severity;
use crate::jobs::again::Stored;
use crate::jobs::allocator::{Want, WarmNodes};
use crate::jobs::continued::Ranks;
use crate::jobs::fabric::{Call, EndBy, Exit, Fabric, Launch, Reply};
use crate::jobs::kept::Outputs;
use crate::jobs::record::{Cause, Submission, Terms};
use crate::jobs::retention::Wishes;
use crate::jobs::streams::{Item, SinkReader};
use crate::jobs::{Runner, Setup, SubmitError, attempt};
use crate::principal::{Principal, Role};
use crate::programs::{Program, ProgramStore};

/// A runner whose files are in `dir`.
fn runner(config: &config::Config, dir: &Path, next_job: u64) -> Runner {
    let jobs = &config.jobs;
    let outputs = dir.join("output");
    let outputs = Outputs::open(&outputs, jobs.output_max_bytes, jobs.output_total_bytes);
    // `4x2 without 3,5`: these places are empty.
    let (tree, empty) = match config.serve.tree.split_once(" without ") {
        Some((tree, empty)) => (tree, empty),
        None => (config.serve.tree.as_str(), ""),
    };
    let topology: Option<Topology> = match tree {
        "" => None,
        tree => Some(tree.parse().unwrap()),
    };
    let empty: Vec<u32> = empty
        .split(',')
        .filter_map(|node| node.parse().ok())
        .collect();
    let places = topology.as_ref().filter(|_| !empty.is_empty());
    let places = places.map(|tree| {
        let nodes = 0..u32::try_from(tree.nodes()).unwrap();
        nodes.filter(|node| !empty.contains(node)).collect()
    });
    Runner::new(Setup {
        jobs: jobs.clone(),
        queue: config.queue.clone(),
        retention: config.retention.clone(),
        broadcast: config.broadcast.clone(),
        topology,
        places,
        outputs: outputs.unwrap(),
        next_job,
        instance: "0000000000000001".to_string(),
    })
    .unwrap()
}

/// Puts a file into the program store.
pub fn put(store: &ProgramStore, content: &[u8]) -> Program {
    let hash = *blake3::hash(content).as_bytes();
    let mut upload = store.receive("ann", hash, content.len() as u64).unwrap();
    upload.write(content).unwrap();
    upload.finish().unwrap()
}

/// Records what nodes are told.
#[derive(Debug)]
pub struct Nodes {
    /// What became of files, and what the answer is.
    pub brought: Vec<(u64, Vec<u32>, usize)>,
    pub bring: Result<Brought, String>,
    pub given_up: Vec<u64>,
    /// Programs that were cast, and what the answer is.
    pub cast: Vec<(u64, Vec<u32>, Vec<u32>)>,
    pub cast_answer: Result<LoadReport, String>,
    pub launched: Vec<Launch>,
    pub adopted: Vec<(Launch, bool, Vec<AdoptedRank>)>,
    pub abandoned: Vec<(u32, u64)>,
    /// Nodes with an adopted job that have been heard and have not answered.
    pub heard: Vec<u32>,
    pub started: Vec<u64>,
    pub cancelled: Vec<(u64, i32)>,
    /// Seconds that the last one gave.
    pub grace_s: u64,
    /// Signals that jobs were to get.
    pub signals: Vec<(u64, i32)>,
    pub replies: VecDeque<(u32, u64, Reply)>,
    pub refuse_launch: bool,
    /// The I/O service, or why there is none.
    pub io: Result<String, String>,
    /// Nodes that hold the program.
    pub warm: WarmNodes,
}

impl Fabric for Nodes {
    fn warm_nodes(&self, _program: &[u8; 32]) -> WarmNodes {
        self.warm.clone()
    }
    fn file_services(
        &self,
        _known: &[u32],
        nodes: &[(NodeId, u16)],
    ) -> Result<Vec<IoPart>, String> {
        self.io.clone().map(|service| {
            vec![IoPart {
                service,
                nodes: nodes.len() as u32,
            }]
        })
    }
    fn launch(&mut self, launch: Launch) -> Result<(), String> {
        if self.refuse_launch {
            return Err("n0 has just gone out of service".to_string());
        }
        self.launched.push(launch);
        Ok(())
    }
    fn bring(&mut self, job: JobId, nodes: &[u32], files: &[JobFile]) -> Result<Brought, String> {
        self.brought.push((job.0, nodes.to_vec(), files.len()));
        self.bring.clone()
    }
    fn give_up(&mut self, job: JobId) {
        self.given_up.push(job.0);
    }
    fn cast_program(&mut self, of: &ProgramCast<'_>) -> Result<LoadReport, String> {
        self.cast.push((of.job, of.cold.to_vec(), of.warm.to_vec()));
        self.cast_answer.clone()
    }
    fn adopt(&mut self, launch: Launch, begun: bool, ranks: &[AdoptedRank]) -> Result<(), String> {
        self.adopted.push((launch, begun, ranks.to_vec()));
        Ok(())
    }
    fn abandon(&mut self, node: NodeId, job: JobId) -> bool {
        self.abandoned.push((node.0, job.0));
        !self.heard.contains(&node.0)
    }
    fn start(&mut self, job: JobId) {
        self.started.push(job.0);
    }
    fn cancel(&mut self, job: JobId, by: EndBy) {
        self.cancelled.push((job.0, by.signal));
        self.grace_s = by.grace_us / 1_000_000;
    }
    fn signal(&mut self, job: JobId, signal: i32) {
        self.signals.push((job.0, signal));
    }
    fn reply(&mut self, node: NodeId, _by: (JobId, Rank), call: CallId, reply: Reply) {
        self.replies.push_back((node.0, call.0, reply));
    }
    fn reply_last(&mut self, node: NodeId, by: (JobId, Rank), call: CallId, reply: Reply) {
        self.reply(node, by, call, reply);
    }
}

/// A runner with its nodes, a clock and a program.
pub struct Lab {
    pub runner: Runner,
    pub nodes: Nodes,
    pub program: Program,
    pub now_us: u64,
    pub next_call: u64,
    pub config: config::Config,
    pub store: ProgramStore,
    /// Jobs that are not over, as the store has them.
    pub written: BTreeMap<u64, (JobInfo, Option<String>)>,
    /// Ends of ranks of these.
    pub rank_ends: BTreeMap<u64, Vec<RankReport>>,
    /// Attempts that are over, as nodes know them.
    pub over: Vec<JobId>,
    pub dir: tempfile::TempDir,
}

/// Somebody who may do everything.
pub fn operator() -> Principal {
    Principal::control()
}

/// A user, whose numbers the site does not know.
pub fn user(name: &str) -> Principal {
    Principal {
        name: name.to_string(),
        identity: None,
        role: Role::User,
        is_owner: false,
    }
}

impl Lab {
    /// With nodes n0, n1, ... in service.
    pub fn with_nodes(count: u32) -> Self {
        Lab::with_limits(count, config::defaults().jobs)
    }

    pub fn with_limits(count: u32, limits: config::Jobs) -> Self {
        Lab::with(count, |config| config.jobs = limits)
    }

    /// With another configuration than the default.
    pub fn with(count: u32, change: impl FnOnce(&mut config::Config)) -> Self {
        let mut config = config::defaults();
        change(&mut config);
        let dir = tempfile::tempdir().unwrap();
        let store = ProgramStore::open(&dir.path().join("programs"), 1000, 1000).unwrap();
        let program = put(&store, b"program");
        let runner = runner(&config, dir.path(), 1);
        let nodes = Nodes {
            brought: Vec::new(),
            bring: Ok(Brought::Here),
            given_up: Vec::new(),
            cast: Vec::new(),
            cast_answer: Ok(LoadReport::default()),
            launched: Vec::new(),
            adopted: Vec::new(),
            abandoned: Vec::new(),
            heard: Vec::new(),
            started: Vec::new(),
            cancelled: Vec::new(),
            grace_s: 0,
            signals: Vec::new(),
            replies: VecDeque::new(),
            refuse_launch: false,
            io: Ok("10.0.0.9:7118".to_string()),
            warm: WarmNodes::default(),
        };
        let mut lab = Lab {
            runner,
            nodes,
            program,
            now_us: 0,
            next_call: 1,
            config,
            store,
            written: BTreeMap::new(),
            rank_ends: BTreeMap::new(),
            over: Vec::new(),
            dir,
        };
        lab.join(count);
        lab
    }

    /// n0, n1, ... are in service, in a new boot.
    pub fn join(&mut self, count: u32) {
        for node in 0..count {
            self.runner
                .node_up(self.now_us, &mut self.nodes, node, true);
        }
    }

    /// Has what is to be written down written down.
    pub fn write_down(&mut self) {
        self.runner.settle(self.now_us, &mut self.nodes);
        for record in self.runner.take_records() {
            let before = self.written.remove(&record.info.id);
            if record.attempt_over {
                self.over.push(record.on_nodes);
            }
            if !record.info.state.is_final() {
                let spec = record.spec.or(before.and_then(|(_, spec)| spec));
                self.written.insert(record.info.id, (record.info, spec));
            }
        }
        for end in self.runner.take_rank_ends() {
            self.rank_ends.entry(end.job).or_default().push(end.report);
        }
        self.runner.tell_ended();
    }

    /// The control node is killed and started again; nodes join the new run.
    pub fn restart(&mut self, count: u32) {
        self.restart_unread(count);
        self.read_files();
        self.join(count);
        self.write_down();
    }

    /// What the new run does once it answers.
    pub fn read_files(&mut self) {
        for unread in self.runner.unread() {
            let read = unread.read(&self.store);
            self.runner
                .files_read(self.now_us, &mut self.nodes, unread.job, read);
        }
        self.write_down();
    }

    /// The control node is killed and started again, and has read no files yet.
    pub fn restart_unread(&mut self, count: u32) {
        self.write_down();
        let past = self.runner.list(true).into_iter();
        let past: Vec<JobInfo> = past.filter(|job| job.state.is_final()).collect();
        let next = past.iter().map(|job| job.id + 1).max().unwrap_or(1);
        let end_of = |id: u64| past.iter().find(|job| job.id == id).map(|job| job.state);
        let stored: Vec<Stored> = (self.written.clone())
            .into_iter()
            .map(|(_, (info, spec))| Stored {
                ends: info
                    .after
                    .iter()
                    .filter_map(|after| Some((after.job, Some(end_of(after.job)?))))
                    .collect(),
                ranks: Ranks {
                    nodes: crate::hostlist::parse(&info.nodes)
                        .unwrap_or_default()
                        .into_iter()
                        .map(|node| (node, Some(1)))
                        .collect(),
                    ends: self.rank_ends.get(&info.id).cloned().unwrap_or_default(),
                },
                info,
                spec,
            })
            .collect();
        let mut next_run = runner(&self.config, self.dir.path(), next);
        next_run.remember(past);
        for node in 0..count {
            next_run.know_node(node);
        }
        self.nodes.adopted.clear();
        next_run.restore(self.now_us, stored, &self.store);
        next_run.adopt(self.now_us, &mut self.nodes);
        self.runner = next_run;
        self.nodes.launched.clear();
        self.nodes.started.clear();
        self.nodes.cancelled.clear();
        self.write_down();
    }

    /// How much it matters that a job has ended, as its event says.
    pub fn severity_of_end(&mut self, id: u64) -> Severity {
        let events = self.runner.take_events();
        let mut ends = events.iter().filter(|event| event.kind == "job-ended");
        let end = ends.find(|event| event.job == Some(id));
        end.expect("its end is an event").severity
    }

    /// The nodes of a job that goes on have it, and run it.
    pub fn claim(&mut self, id: u64) {
        let find =
            |(launch, ..): &&(Launch, bool, Vec<AdoptedRank>)| attempt::number(launch.job) == id;
        let (launch, _, standing) = self.nodes.adopted.iter().find(find).unwrap().clone();
        for ((node, _), standing) in launch.nodes.iter().zip(standing) {
            if standing != AdoptedRank::Ended {
                let (runner, nodes) = (&mut self.runner, &mut self.nodes);
                runner.claimed(self.now_us, nodes, launch.job, *node, 0);
                runner.started(self.now_us, launch.job, *node);
            }
        }
        self.write_down();
    }

    /// A node of a job that goes on does not have it.
    pub fn forget(&mut self, id: u64, node: u32) {
        let job = attempt::on_nodes(id, self.runner.get(id).unwrap().restarts);
        self.runner.rank_lost(
            self.now_us,
            &mut self.nodes,
            job,
            NodeId(node),
            Cause::NodeLost("n0 booted again".to_string()),
        );
        self.write_down();
    }

    pub fn submission(&self, ranks: u32, nodes: Option<Vec<u32>>) -> Submission {
        Submission {
            name: "program".to_string(),
            program: self.program.clone(),
            args: vec![b"program".to_vec()],
            env: Vec::new(),
            want: Want {
                ranks,
                nodes,
                ..Want::default()
            },
            wishes: Wishes::default(),
            load: None,
            files: Vec::new(),
            wait: false,
            time_limit_s: None,
            stdin: false,
            terms: Terms {
                user: "ann".to_string(),
                ..Terms::default()
            },
        }
    }

    /// A batch job.
    pub fn batch(&self, ranks: u32) -> Submission {
        let mut submission = self.submission(ranks, None);
        submission.terms.batch = true;
        submission
    }

    /// Hands in a job, as the user whom it names.
    pub fn hand_in(&mut self, now_us: u64, submission: Submission) -> Result<u64, SubmitError> {
        let by = user(&submission.terms.user);
        self.runner.submit(&by, now_us, submission)
    }

    /// Hands in a batch job.
    pub fn submit_batch(&mut self, submission: Submission) -> u64 {
        let id = self.hand_in(self.now_us, submission).unwrap();
        self.write_down();
        id
    }

    /// What is kept of a batch job's output.
    pub fn kept(&self, id: u64) -> Vec<String> {
        let outputs = Outputs::open(&self.dir.path().join("output"), 1, 1).unwrap();
        let Some(mut reader) = outputs.follow(id) else {
            return Vec::new();
        };
        let items = std::iter::from_fn(|| reader.try_next());
        let texts = items.map(|item| match item {
            Item::Output { data, .. } => String::from_utf8(data).unwrap(),
            Item::Frame(Frame::Notice { text }) => text,
            Item::Frame(frame) => format!("{frame:?}"),
        });
        texts.collect()
    }

    pub fn submit(&mut self, submission: Submission) -> (u64, SinkReader) {
        let id = self.hand_in(self.now_us, submission).unwrap();
        let reader = self
            .runner
            .attach(&operator(), self.now_us, &mut self.nodes, id)
            .unwrap();
        (id, reader)
    }

    /// A job of `ranks` ranks that runs.
    pub fn running(&mut self, ranks: u32) -> (u64, SinkReader) {
        let submission = self.submission(ranks, None);
        let (id, reader) = self.submit(submission);
        self.all_ready(id);
        (id, reader)
    }

    pub fn all_ready(&mut self, id: u64) {
        let launch = self.launch_of(id).clone();
        let at_once = launch.plan.start == StartMode::AtOnce;
        for (node, _) in launch.nodes {
            if at_once {
                self.runner.started(self.now_us, launch.job, node);
            } else {
                self.runner
                    .ready(self.now_us, &mut self.nodes, launch.job, node);
            }
        }
    }

    /// The last launch of a job.
    pub fn launch_of(&self, id: u64) -> &Launch {
        let mut launches = self.nodes.launched.iter().rev();
        let adopted = self.nodes.adopted.iter().map(|(launch, ..)| launch);
        let is_its = |launch: &&Launch| attempt::number(launch.job) == id;
        let found = launches.find(is_its).or(adopted.rev().find(is_its));
        found.expect("it was launched")
    }

    /// The nodes of the last launch of a job, in the order of ranks.
    pub fn nodes_of(&self, id: u64) -> Vec<NodeId> {
        let nodes = self.launch_of(id).nodes.iter();
        nodes.map(|(node, _)| *node).collect()
    }

    /// A call of the present attempt.
    pub fn call(&mut self, node: u32, id: u64, call: Call) -> u64 {
        let job = self.launch_of(id).job;
        self.call_of(node, job, call)
    }

    /// A call of the first rank on a node.
    pub fn call_of(&mut self, node: u32, job: JobId, call: Call) -> u64 {
        let rank = self.first_on(node, job);
        self.call_as(node, (job, rank), call)
    }

    pub fn call_as(&mut self, node: u32, by: (JobId, Rank), call: Call) -> u64 {
        let number = self.next_call;
        self.next_call += 1;
        let call = (CallId(number), call);
        self.runner
            .call(self.now_us, &mut self.nodes, NodeId(node), by, call);
        self.runner.settle(self.now_us, &mut self.nodes);
        number
    }

    /// The first rank of a job on a node.
    pub fn first_on(&self, node: u32, job: JobId) -> Rank {
        let adopted = self.nodes.adopted.iter().map(|(launch, ..)| launch);
        let mut launches = self.nodes.launched.iter().chain(adopted);
        let launch = launches.find(|launch| launch.job == job);
        let nodes = launch.map_or(&[][..], |launch| &launch.nodes);
        let before = nodes.iter().take_while(|(other, _)| other.0 != node);
        Rank(before.map(|(_, ranks)| u32::from(*ranks)).sum())
    }

    pub fn write(&mut self, node: u32, id: u64, data: &[u8]) -> u64 {
        self.call(
            node,
            id,
            Call::Write {
                fd: 1,
                data: data.to_vec(),
            },
        )
    }

    pub fn exit(&mut self, node: u32, id: u64, end: RankEnd) {
        let exit = Exit {
            end,
            report: RankReport::new(9, 9),
        };
        self.call(node, id, Call::Exit(Box::new(exit)));
    }

    pub fn state(&self, id: u64) -> JobState {
        self.runner.get(id).unwrap().state
    }

    pub fn pass_s(&mut self, seconds: u64) {
        self.now_us += seconds * 1_000_000;
        self.runner.tick(self.now_us, &mut self.nodes);
    }

    /// The rest of a job's output and its end, once what happened is written down.
    pub fn drain(&mut self, reader: &mut SinkReader) -> (Vec<(u32, Vec<u8>)>, Option<JobInfo>) {
        self.write_down();
        drain(reader)
    }
}

/// The rest of a job's output and its end.
pub fn drain(reader: &mut SinkReader) -> (Vec<(u32, Vec<u8>)>, Option<JobInfo>) {
    let mut output = Vec::new();
    while let Some(item) = reader.try_next() {
        match item {
            Item::Output { rank, data, .. } => output.push((rank, data)),
            Item::Frame(Frame::End { job }) => return (output, Some(*job)),
            Item::Frame(_) => {}
        }
    }
    (output, None)
}
