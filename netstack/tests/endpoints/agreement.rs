//! One node that holds programs and a control node that believes what it is told, on a wire that
//! loses, repeats and reorders at will, through restarts of either side: what the control node
//! believes has been true, never goes back in time, and is true once all has arrived.

use std::collections::{BTreeMap, BTreeSet};

use crate::jobs::job_spec;
use crate::wire_pair::{ADDR, control_config, node_config};
use netstack::ids::{BootEpoch, JobId, LocalRank, NodeId, ProgramId, Rank};
use netstack::io::{ExitReport, ExitStatus, IoOp, IoReply};
use netstack::job::{JobSpec, LaunchRefusal, LaunchSpec, RankLoss, RefusalCode, StartMode};
use netstack::retention::Holding;
use netstack::time::{Instant, Micros};
use netstack::{MAX_DATAGRAM, control, node};
use proptest::collection::vec;
use proptest::prelude::*;

const NODE: NodeId = NodeId(3);
/// Programs of a run: few enough that one report has room for all.
const PROGRAMS: u8 = 6;
/// Datagrams on their way in one direction; more are lost.
const WIRE: usize = 100;

type Held = BTreeMap<ProgramId, Holding>;

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// The datagram at this place of the wire arrives; twice if so.
    Deliver(Way, prop::sample::Index, bool),
    Lose(Way, prop::sample::Index),
    Pass(u64),
    /// The node does what it has to do.
    Work,
    Hold(u8, u32),
    Unhold(u8),
    Drop(Option<u8>),
    Launch {
        program: u8,
        retain: bool,
        at_once: bool,
    },
    Cancel,
    /// The job launched last is to get this signal.
    Signal(u8),
    RestartControl,
    Reboot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Up,
    Down,
}

fn step() -> impl Strategy<Value = Step> {
    let way = || prop_oneof![Just(Way::Up), Just(Way::Down)];
    let index = any::<prop::sample::Index>;
    prop_oneof![
        40 => (way(), index(), any::<bool>()).prop_map(|(way, at, twice)| Step::Deliver(way, at, twice)),
        8 => (way(), index()).prop_map(|(way, at)| Step::Lose(way, at)),
        12 => (1..800u64).prop_map(Step::Pass),
        12 => Just(Step::Work),
        4 => (0..PROGRAMS, 1..100u32).prop_map(|(number, pages)| Step::Hold(number, pages)),
        2 => (0..PROGRAMS).prop_map(Step::Unhold),
        4 => proptest::option::weighted(0.8, 0..PROGRAMS).prop_map(Step::Drop),
        10 => (0..PROGRAMS, any::<bool>(), any::<bool>())
            .prop_map(|(program, retain, at_once)| Step::Launch { program, retain, at_once }),
        2 => Just(Step::Cancel),
        8 => (1..=64u8).prop_map(Step::Signal),
        1 => Just(Step::RestartControl),
        1 => Just(Step::Reboot),
    ]
}

fn program(number: u8) -> ProgramId {
    ProgramId([number; 32])
}

/// What the node owes an answer to.
enum Debt {
    Retain(JobId, u32),
    Drop(u64, u32, bool),
    Launch(JobId),
}

/// The kernel of a node, in few words.
#[derive(Default)]
struct Machine {
    held: Held,
    /// Every state that `held` was in, in order.
    past: Vec<Held>,
    job: Option<LaunchSpec>,
    running: bool,
    exiting: bool,
    /// What the program that runs leaves is not held.
    doomed: bool,
    debts: Vec<Debt>,
    launched: BTreeSet<JobId>,
    retained: BTreeSet<JobId>,
    /// Signals that the program has got.
    signals: Vec<u8>,
    /// Of this session.
    last_drop: u64,
}

/// What the control node remembers of a job.
#[derive(Default)]
struct Record {
    retain: bool,
    at_once: bool,
    retained: bool,
    ready: bool,
    started: bool,
    ended: bool,
}

struct Lab {
    now: Instant,
    node: node::Endpoint,
    machine: Machine,
    epoch: BootEpoch,
    control: control::Endpoint,
    controls: u64,
    /// The control node's view, kept over its restarts: a boot, and what it holds.
    believed: (BootEpoch, Held),
    /// How far in the machine's past the view is.
    position: usize,
    jobs: BTreeMap<JobId, Record>,
    /// What each job was to get, also before a restart of the control node.
    signals: BTreeMap<JobId, Vec<u8>>,
    next_job: u64,
    drops: BTreeSet<u64>,
    wires: [Vec<Vec<u8>>; 2],
}

impl Lab {
    fn new() -> Self {
        let now = Instant::from_micros(1_000_000);
        let epoch = BootEpoch(5);
        let mut lab = Lab {
            now,
            node: node::Endpoint::new(node_config(epoch), now),
            machine: Machine::default(),
            epoch,
            control: control::Endpoint::new(control_config()),
            controls: 1,
            believed: (BootEpoch(0), Held::new()),
            position: 0,
            jobs: BTreeMap::new(),
            signals: BTreeMap::new(),
            next_job: 1,
            drops: BTreeSet::new(),
            wires: [Vec::new(), Vec::new()],
        };
        lab.remember();
        lab.calm();
        lab
    }

    fn remember(&mut self) {
        self.machine.past.push(self.machine.held.clone());
    }

    fn hold(&mut self, program: ProgramId, pages: u32) {
        let holding = Holding {
            program,
            pages,
            pristine: 0,
        };
        self.machine.held.insert(program, holding);
        self.node.hold(self.now, holding);
        self.remember();
    }

    /// Gives back what is held of a program; its pages.
    fn unhold(&mut self, program: ProgramId) -> u32 {
        let held = self.machine.held.remove(&program);
        self.node.unhold(self.now, program);
        self.remember();
        held.map_or(0, |holding| holding.pages)
    }

    fn unhold_all_but(&mut self, kept: Option<ProgramId>) -> u32 {
        let others: Vec<ProgramId> = (self.machine.held.keys().copied())
            .filter(|program| Some(*program) != kept)
            .collect();
        others.into_iter().map(|program| self.unhold(program)).sum()
    }

    fn carry_out(&mut self, step: &Step) {
        match *step {
            Step::Deliver(way, at, twice) => {
                let wire = &mut self.wires[way as usize];
                if !wire.is_empty() {
                    let datagram = wire.remove(at.index(wire.len()));
                    if twice {
                        wire.push(datagram.clone());
                    }
                    self.deliver(way, &datagram);
                }
            }
            Step::Lose(way, at) => {
                let wire = &mut self.wires[way as usize];
                if !wire.is_empty() {
                    wire.remove(at.index(wire.len()));
                }
            }
            Step::Pass(millis) => self.now += Micros::from_millis(millis),
            Step::Work => self.work(),
            Step::Hold(number, pages) => self.hold(program(number), pages),
            Step::Unhold(number) => drop(self.unhold(program(number))),
            Step::Drop(number) => {
                let asked = self
                    .control
                    .drop_program(self.now, NODE, number.map(program));
                self.drops.extend(asked.ok());
            }
            Step::Launch {
                program: number,
                retain,
                at_once,
            } => self.launch(program(number), retain, at_once),
            Step::Cancel => {
                if let Some((job, _)) = self.jobs.last_key_value() {
                    self.control.cancel(self.now, *job, 15, Micros::ZERO);
                }
            }
            Step::Signal(signal) => {
                if let Some((job, _)) = self.jobs.last_key_value() {
                    self.control.signal(self.now, *job, signal);
                    self.signals.entry(*job).or_default().push(signal);
                }
            }
            Step::RestartControl => {
                self.controls += 1;
                let mut config = control_config();
                config.control_epoch.0 = self.controls;
                self.control = control::Endpoint::new(config);
                self.jobs.clear();
                self.drops.clear();
            }
            Step::Reboot => {
                self.epoch.0 += 1;
                self.node = node::Endpoint::new(node_config(self.epoch), self.now);
                self.machine = Machine::default();
                self.remember();
            }
        }
        self.pump();
    }

    fn deliver(&mut self, way: Way, datagram: &[u8]) {
        match way {
            Way::Up => self.control.handle_datagram(self.now, ADDR, datagram),
            Way::Down => self.node.handle_datagram(self.now, datagram),
        }
        self.pump();
    }

    /// Both sides do what is due; what they send goes on the wires.
    fn pump(&mut self) {
        let mut buffer = [0; MAX_DATAGRAM];
        loop {
            while let Some(event) = self.node.poll_event() {
                self.node_event(event);
            }
            while let Some(event) = self.control.poll_event() {
                self.control_event(event);
            }
            let up = self.node.poll_transmit(self.now, &mut buffer);
            if let Some(length) = up {
                self.wires[Way::Up as usize].push(buffer[..length].to_vec());
            }
            let down = self.control.poll_transmit(self.now, &mut buffer);
            if let Some((_, length)) = down {
                self.wires[Way::Down as usize].push(buffer[..length].to_vec());
            }
            if up.is_none() && down.is_none() {
                break;
            }
        }
        for wire in &mut self.wires {
            let excess = wire.len().saturating_sub(WIRE);
            wire.drain(..excess);
        }
    }

    fn launch(&mut self, program: ProgramId, retain: bool, at_once: bool) {
        let mut spec = JobSpec {
            program,
            start: match at_once {
                true => StartMode::AtOnce,
                false => StartMode::OnCommand,
            },
            ..job_spec(self.next_job)
        };
        spec.places[0].retain = retain;
        if self.control.launch(self.now, spec).is_ok() {
            let record = Record {
                retain,
                at_once,
                ..Record::default()
            };
            self.jobs.insert(JobId(self.next_job), record);
            self.next_job += 1;
        }
    }

    /// The node pays its debts and its program ends.
    fn work(&mut self) {
        for debt in std::mem::take(&mut self.machine.debts) {
            match debt {
                Debt::Retain(job, pages) => self.node.retain_result(self.now, job, pages),
                Debt::Drop(id, pages, in_use) => self.node.drop_result(self.now, id, pages, in_use),
                Debt::Launch(job) => {
                    self.node.launch_result(self.now, job, Ok(()));
                    let present = self.machine.job.filter(|spec| spec.job == job);
                    self.machine.running |=
                        present.is_some_and(|spec| spec.start == StartMode::AtOnce);
                }
            }
        }
        let present = self.machine.job.is_some();
        if present && self.machine.running && !self.machine.exiting {
            self.end(ExitStatus::Exited(0));
        }
    }

    fn end(&mut self, status: ExitStatus) {
        let spec = self.machine.job.expect("a program ends");
        self.machine.exiting = true;
        let exit = IoOp::Exit(Box::new(ExitReport::new(status)));
        self.node
            .io_submit(self.now, spec.job, LocalRank::FIRST, exit)
            .expect("an exit is always taken");
        self.leave(&spec);
    }

    /// The program has ended: its pages stay.
    fn leave(&mut self, spec: &LaunchSpec) {
        if std::mem::take(&mut self.machine.doomed) {
            self.unhold(spec.program);
        } else {
            self.hold(spec.program, 1 + spec.job.0 as u32);
        }
    }

    fn node_event(&mut self, event: node::Event) {
        match event {
            node::Event::Joined { .. } => self.machine.last_drop = 0,
            node::Event::Launch { spec, .. } => {
                assert!(self.machine.job.is_none(), "one job at a time");
                assert!(self.machine.launched.insert(spec.job), "launched twice");
                self.machine.job = Some(spec);
                self.machine.signals.clear();
                (self.machine.running, self.machine.exiting) = (false, false);
                self.machine.debts.push(Debt::Launch(spec.job));
            }
            node::Event::Retain { job, program, .. } => {
                assert!(self.machine.job.is_none(), "retained beside a job");
                assert!(!self.machine.launched.contains(&job), "retained too late");
                assert!(self.machine.retained.insert(job), "retained twice");
                self.unhold_all_but(Some(program));
                let held = self.machine.held.get(&program);
                let pages = held.map_or(0, |holding| holding.pages);
                self.machine.debts.push(Debt::Retain(job, pages));
            }
            node::Event::Drop { id, program } => {
                assert!(id > self.machine.last_drop, "dropped twice or backwards");
                self.machine.last_drop = id;
                let running = self.machine.job.filter(|_| !self.machine.exiting);
                let in_use = running
                    .is_some_and(|spec| program.is_none_or(|program| program == spec.program));
                self.machine.doomed |= in_use;
                let pages = match program {
                    Some(program) => self.unhold(program),
                    None => self.unhold_all_but(None),
                };
                self.machine.debts.push(Debt::Drop(id, pages, in_use));
            }
            node::Event::Start { job } => {
                let present = self.machine.job.map(|spec| spec.job);
                self.machine.running |= present == Some(job);
            }
            node::Event::Cancel {
                job,
                signal,
                orphan,
                ..
            } => self.cancel(job, signal, orphan),
            node::Event::Signal { job, signal } => {
                let present = self.machine.job.map(|spec| spec.job);
                assert_eq!(present, Some(job), "a signal for a job that is not here");
                assert!(self.machine.running && !self.machine.exiting);
                self.machine.signals.push(signal);
                let (got, sent) = (&self.machine.signals, &self.signals[&job]);
                assert_eq!(got[..], sent[..got.len()], "each once and in order");
            }
            node::Event::IoDone { job, .. } => {
                let present = self.machine.job.filter(|spec| spec.job != job);
                self.machine.job = present;
            }
            _ => {}
        }
    }

    fn cancel(&mut self, job: JobId, signal: u8, orphan: bool) {
        let Some(spec) = self.machine.job.filter(|spec| spec.job == job) else {
            return;
        };
        let is_launch = |debt: &Debt| matches!(debt, Debt::Launch(of) if *of == job);
        let loading = self.machine.debts.iter().any(is_launch);
        self.machine.debts.retain(|debt| !is_launch(debt));
        if orphan {
            if !self.machine.exiting {
                self.leave(&spec);
            }
            self.machine.job = None;
        } else if loading {
            let (code, text) = (RefusalCode::Cancelled, String::new());
            let refusal = LaunchRefusal { code, text };
            self.node.launch_result(self.now, job, Err(refusal));
            self.machine.job = None;
        } else if !self.machine.exiting {
            self.end(ExitStatus::Signal(signal));
        }
    }

    fn record(&mut self, job: JobId) -> &mut Record {
        let record = self
            .jobs
            .get_mut(&job)
            .expect("only launched jobs are told of");
        assert!(!record.ended, "job {job} goes on after its end");
        record
    }

    /// Another boot holds nothing of what the one before held.
    fn joined(&mut self, epoch: BootEpoch) {
        if self.believed.0 != epoch {
            self.believed = (epoch, Held::new());
            self.position = 0;
        }
    }

    fn control_event(&mut self, event: control::Event) {
        match event {
            control::Event::NodeJoined { status, .. } => self.joined(status.epoch),
            control::Event::NodeLost { .. } => self.drops.clear(),
            control::Event::Holdings {
                boot_epoch,
                reset,
                held,
                dropped,
                ..
            } => {
                assert_eq!(boot_epoch, self.believed.0, "a boot that has not joined");
                let believed = &mut self.believed.1;
                if reset {
                    believed.clear();
                }
                believed.retain(|program, _| !dropped.contains(program));
                believed.extend(held.iter().map(|holding| (holding.program, *holding)));
                if boot_epoch == self.epoch {
                    let later = &self.machine.past[self.position..];
                    let found = later.iter().position(|state| *state == self.believed.1);
                    self.position += found.expect("it was so, and not before what is known");
                }
            }
            control::Event::ProgramDropped { id, .. } => {
                assert!(self.drops.remove(&id), "nobody asked for that");
            }
            control::Event::Retained { job, .. } => {
                let record = self.record(job);
                assert!(record.retain && !record.retained && !record.ready && !record.started);
                record.retained = true;
            }
            control::Event::LaunchReady { job, waiting, .. } => {
                let record = self.record(job);
                assert!(!record.at_once && !record.ready && record.retain == record.retained);
                record.ready = true;
                assert_eq!(waiting, 0, "there is one rank");
                self.control.start(self.now, job);
            }
            control::Event::Started { job, .. } => {
                let record = self.record(job);
                assert!(!record.started, "started twice");
                assert!(record.at_once || record.ready);
                record.started = true;
            }
            control::Event::IoCall {
                node, job, call, ..
            } => {
                let record = self.record(job);
                assert!(record.started || !record.at_once, "a call before the start");
                record.ended = true;
                let reply = IoReply {
                    result: 0,
                    data: Vec::new(),
                };
                self.control
                    .io_reply(self.now, node, (job, Rank(0)), call, reply);
            }
            control::Event::LaunchRefused { job, .. } => self.record(job).ended = true,
            control::Event::RankLost { job, reason, .. } => {
                assert_ne!(reason, RankLoss::Forgotten, "no node forgets its job");
                self.record(job).ended = true;
            }
            control::Event::JobClosed { job } => {
                let record = self.jobs.remove(&job);
                assert!(record.is_some_and(|record| record.ended));
            }
            _ => {}
        }
    }

    /// Everything that is on its way arrives, and so does what follows from it.
    fn calm(&mut self) {
        for _ in 0..1_200 {
            self.now += Micros::from_millis(50);
            self.pump();
            for way in [Way::Up, Way::Down] {
                for datagram in std::mem::take(&mut self.wires[way as usize]) {
                    self.deliver(way, &datagram);
                }
            }
            self.work();
            self.pump();
        }
        assert!(self.node.is_joined());
        assert!(self.node.holdings_acked());
        assert_eq!(self.believed, (self.epoch, self.machine.held.clone()));
        assert!(self.jobs.is_empty(), "a job never ends");
        assert!(self.drops.is_empty(), "a drop is never answered");
        assert!(self.machine.job.is_none(), "the node kept a job");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_control_node_believes_what_was_true_and_in_the_end_what_is(
        steps in vec(step(), 0..300),
    ) {
        let mut lab = Lab::new();
        for step in &steps {
            lab.carry_out(step);
        }
        lab.calm();
    }
}
