//! The event loop: nodes, the control node and the network between them, in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddrV4};

use netstack::control::{self, Limits};
use netstack::ids::{BootEpoch, ControlEpoch, NodeId};
use netstack::join::Timing;
use netstack::personality::{self, Personality};
use netstack::rng::Rng;
use netstack::time::{Instant, Micros};
use netstack::vitals::BootTimings;
use netstack::wire::key::Key;
use netstack::{MAX_DATAGRAM, NODE_PORT, node};

use crate::agent::{Agent, Checked};
use crate::attacker::{Attack, Attacker};
use crate::network::{Direction, LinkParams, Network};
use crate::operator::{Operator, State};
use crate::program::{Plan, program_id};

const SECRET: [u8; 16] = *b"simulated secret";
const VERSION: [u8; 16] = *b"0.1.0\0\0\0\0\0\0\0\0\0\0\0";
/// Lines of the trace kept for the report of a failure.
const TRACE: usize = 60;

/// Something that happens to the cluster from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A node is switched on.
    Boot(usize),
    /// A node is switched off without warning.
    Crash(usize),
    /// A node leaves in good order and stays off.
    Leave(usize),
    /// The control node asks a node to leave, which it does unless it has a job.
    AskLeave(usize),
    /// The control node has a node drop the program with this number; 0: every one.
    Drop(usize, u64),
    /// A node's link is cut.
    Cut(usize),
    /// A node's link is mended.
    Mend(usize),
    /// The control node is killed.
    CrashControl,
    /// The control node starts again.
    RestartControl,
}

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Seed of everything that is drawn at random.
    pub seed: u64,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// How the links behave.
    pub links: LinkParams,
    /// What somebody on the wire does.
    pub attack: Attack,
    /// Datagrams that the control node's socket holds.
    pub control_inbox: usize,
    /// Time the control node needs for a datagram.
    pub control_service: Micros,
    /// Pages of programs that have ended that each node holds at most.
    pub warm_pages: u32,
    /// The jobs.
    pub plans: Vec<Plan>,
    /// What happens, and when.
    pub faults: Vec<(Instant, Fault)>,
    /// Everything must have come to its end by then, with all faults before.
    pub deadline: Instant,
}

/// What a run came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Digest of every datagram delivered and when.
    pub digest: u64,
    /// Virtual time at the end.
    pub ended: Instant,
    /// When all nodes were up for the first time.
    pub all_up: Option<Instant>,
    /// Datagrams handed to the network.
    pub datagrams: u64,
    /// Datagrams lost because the control node's socket was full.
    pub inbox_overflows: u64,
    /// Nodes that joined, counted by event.
    pub joins: u64,
    /// Nodes that were lost, counted by event.
    pub losses: u64,
    /// Bytes of output that arrived.
    pub output_bytes: u64,
    /// Jobs that closed.
    pub closed: usize,
    /// Ranks that went on over a restart of the control node.
    pub adopted: u64,
    /// Of the closed jobs, those that ran to their end on all ranks.
    pub completed: usize,
    /// Ranks that exited and had found pages of their program.
    pub warm_ranks: u64,
    /// Ranks that exited and had fetched no page of their program.
    pub silent_ranks: u64,
    /// Drops that nodes answered.
    pub dropped: u64,
}

/// Why a run failed, and what happened last.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is wrong.
    pub what: String,
    /// When.
    pub at: Instant,
    /// The last lines of the trace.
    pub trace: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    ToNode(usize, u64, Vec<u8>),
    ToControl(usize, Vec<u8>),
    /// What an attacker says: to a node, or to the control node from the address of one.
    Again(Direction, usize, Vec<u8>),
    WakeNode(usize, u64),
    WakeControl(u64),
    Fault(usize),
}

struct Machine {
    mac: [u8; 6],
    boots: u64,
    agent: Option<Agent>,
    /// Number of the wake-up that counts.
    wake: u64,
    wake_at: Option<Instant>,
}

/// A simulated cluster.
pub struct World {
    setup: Setup,
    now: Instant,
    queue: BinaryHeap<Reverse<(Instant, u64, What)>>,
    sequence: u64,
    rng: Rng,
    network: Network,
    attacker: Attacker,
    machines: Vec<Machine>,
    operator: Operator,
    control_is_on: bool,
    control_boots: u64,
    control_wake: u64,
    control_wake_at: Option<Instant>,
    inbox: VecDeque<(usize, Vec<u8>)>,
    inbox_overflows: u64,
    boots: BTreeSet<(NodeId, BootEpoch)>,
    faults_left: usize,
    all_up: Option<Instant>,
    digest: u64,
    trace: VecDeque<String>,
}

impl World {
    /// A cluster in which nothing has happened yet.
    pub fn new(setup: Setup) -> Self {
        let mut rng = Rng::new(setup.seed);
        let endpoint = control::Endpoint::new(control_config(1, rng.next_u64()));
        let machines = (0..setup.nodes).map(|index| {
            let [high, low] = (index as u16).to_be_bytes();
            let mac = [0x52, 0x54, 0, 7, high, low];
            Machine {
                mac,
                boots: 0,
                agent: None,
                wake: 0,
                wake_at: None,
            }
        });
        let mut world = World {
            now: Instant::ZERO,
            queue: BinaryHeap::new(),
            sequence: 0,
            network: Network::new(setup.links, setup.nodes),
            attacker: Attacker::new(setup.attack, setup.seed, setup.nodes as u32),
            machines: machines.collect(),
            operator: Operator::new(endpoint, setup.plans.clone(), rng.next_u64()),
            rng,
            control_is_on: true,
            control_boots: 1,
            control_wake: 0,
            control_wake_at: None,
            inbox: VecDeque::new(),
            inbox_overflows: 0,
            boots: BTreeSet::new(),
            faults_left: setup.faults.len(),
            all_up: None,
            digest: 0xcbf2_9ce4_8422_2325,
            trace: VecDeque::new(),
            setup,
        };
        for index in 0..world.setup.faults.len() {
            let at = world.setup.faults[index].0;
            world.schedule(at, What::Fault(index));
        }
        world.operator.under_attack = world.setup.attack.is_on();
        world.arm_control();
        world
    }

    /// Runs to the end: everything done, or the deadline passed, or a check failed.
    pub fn run(mut self) -> Result<Summary, Failure> {
        loop {
            if self.is_done() {
                return Ok(self.summary());
            }
            let Some(Reverse((at, _, what))) = self.queue.pop() else {
                return Err(self.failure("nothing will ever happen again".into()));
            };
            self.now = at;
            if at > self.setup.deadline {
                let missing = self.missing();
                return Err(self.failure(format!("not done by the deadline: {missing}")));
            }
            if let Err(what) = self.step(what) {
                return Err(self.failure(what));
            }
        }
    }

    fn schedule(&mut self, at: Instant, what: What) {
        self.sequence += 1;
        self.queue.push(Reverse((at, self.sequence, what)));
    }

    fn step(&mut self, what: What) -> Checked {
        match what {
            What::ToNode(index, boot, bytes) => {
                let machine = &mut self.machines[index];
                let Some(agent) = machine.agent.as_mut().filter(|_| machine.boots == boot) else {
                    return Ok(());
                };
                mix(&mut self.digest, self.now, &bytes);
                if agent.arrive(self.now, bytes) {
                    return self.run_node(index);
                }
                Ok(())
            }
            What::ToControl(index, bytes) => {
                if !self.control_is_on {
                    return Ok(());
                }
                mix(&mut self.digest, self.now, &bytes);
                if self.inbox.len() >= self.setup.control_inbox {
                    self.inbox_overflows += 1;
                    return Ok(());
                }
                self.inbox.push_back((index, bytes));
                if self.inbox.len() == 1 {
                    self.arm_control();
                }
                Ok(())
            }
            What::Again(Direction::Down, index, bytes) => {
                let boot = self.machines[index].boots;
                self.step(What::ToNode(index, boot, bytes))
            }
            What::Again(Direction::Up, index, bytes) => self.step(What::ToControl(index, bytes)),
            What::WakeNode(index, wake) => {
                if self.machines[index].wake == wake {
                    self.machines[index].wake_at = None;
                    return self.run_node(index);
                }
                Ok(())
            }
            What::WakeControl(wake) => {
                if self.control_wake == wake && self.control_is_on {
                    self.control_wake_at = None;
                    return self.run_control();
                }
                Ok(())
            }
            What::Fault(index) => {
                self.faults_left -= 1;
                let fault = self.setup.faults[index].1;
                self.note(|| format!("{fault:?}"));
                self.inflict(fault)
            }
        }
    }

    fn inflict(&mut self, fault: Fault) -> Checked {
        match fault {
            Fault::Boot(index) => self.boot(index),
            Fault::Crash(index) => {
                self.machines[index].agent = None;
                Ok(())
            }
            Fault::Leave(index) => {
                let now = self.now;
                if let Some(agent) = &mut self.machines[index].agent {
                    agent.leaving = true;
                    agent.endpoint.leave(now);
                    return self.run_node(index);
                }
                Ok(())
            }
            Fault::AskLeave(index) => {
                let node = NodeId(index as u32);
                // Refused where the node is busy or away: the property is what follows otherwise.
                let _ = self.operator.endpoint.ask_to_leave(self.now, node);
                self.run_control()
            }
            Fault::Drop(index, number) => {
                let node = NodeId(index as u32);
                let program = (number != 0).then(|| program_id(number));
                if self.control_is_on {
                    self.operator.drop_program(self.now, node, program);
                    return self.run_control();
                }
                Ok(())
            }
            Fault::Cut(index) => {
                self.network.set_cut(index, true);
                Ok(())
            }
            Fault::Mend(index) => {
                self.network.set_cut(index, false);
                Ok(())
            }
            Fault::CrashControl => {
                self.control_is_on = false;
                self.inbox.clear();
                Ok(())
            }
            Fault::RestartControl => {
                self.control_is_on = true;
                self.control_boots += 1;
                let seed = self.rng.next_u64();
                let config = control_config(self.control_boots, seed);
                self.operator
                    .restart(self.now, control::Endpoint::new(config));
                self.arm_control();
                Ok(())
            }
        }
    }

    fn boot(&mut self, index: usize) -> Checked {
        let epoch = BootEpoch(self.rng.next_u64() | 1);
        let machine = &mut self.machines[index];
        let node = NodeId(index as u32);
        machine.boots += 1;
        self.boots.insert((node, epoch));
        let personality = Personality {
            node,
            control_addr: [10, 117, 0, 1],
            control_port: netstack::CONTROL_PORT,
            http_port: 7180,
            tree_height: 0,
            place: [0; 4],
            key_id: 1,
            key: personality::node_key(&SECRET, 1, machine.mac, epoch, node),
            name: format!("{node}"),
        };
        let config = node::Config {
            personality,
            mac: machine.mac,
            boot_epoch: epoch,
            lab_key: false,
            version: VERSION,
            build_id: [0; 20],
            memory_bytes: 48 << 20,
            cores: 1,
            seed: epoch.0,
            timings: BootTimings::default(),
        };
        let endpoint = node::Endpoint::new(config, self.now);
        machine.agent = Some(Agent::new(endpoint, self.now, self.setup.warm_pages));
        self.run_node(index)
    }

    fn run_node(&mut self, index: usize) -> Checked {
        let machine = &mut self.machines[index];
        let Some(agent) = &mut machine.agent else {
            return Ok(());
        };
        let mut sent = Vec::new();
        let done = agent.run(self.now, &self.operator.plans, |bytes| {
            sent.push(bytes.to_vec())
        });
        let wake_at = agent
            .next_wake(self.now)
            .map(|at| at.max(self.now + Micros(1)));
        if agent.endpoint.has_left() {
            machine.agent = None;
        }
        done.map_err(|what| format!("n{index}: {what}"))?;
        for bytes in sent {
            self.send(index, Direction::Up, bytes);
        }
        let machine = &mut self.machines[index];
        if machine.agent.is_some() && wake_at != machine.wake_at {
            machine.wake += 1;
            machine.wake_at = wake_at;
            let wake = machine.wake;
            if let Some(at) = wake_at {
                self.schedule(at, What::WakeNode(index, wake));
            }
        }
        Ok(())
    }

    fn run_control(&mut self) -> Checked {
        if let Some((index, bytes)) = self.inbox.pop_front() {
            self.operator
                .endpoint
                .handle_datagram(self.now, address(index), &bytes);
        }
        let boots = &self.boots;
        let mut buffer = [0; MAX_DATAGRAM];
        let mut sent = Vec::new();
        loop {
            self.operator
                .run(self.now, |node, epoch| boots.contains(&(node, epoch)))?;
            while let Some((to, length)) =
                self.operator.endpoint.poll_transmit(self.now, &mut buffer)
            {
                sent.push((to, buffer[..length].to_vec()));
            }
            // Deadlines that passed may have given events.
            let again = self.operator.next_wake().is_some_and(|at| at <= self.now);
            if !again {
                break;
            }
        }
        self.operator
            .run(self.now, |node, epoch| boots.contains(&(node, epoch)))?;
        for (to, bytes) in sent {
            self.send(index_of(to), Direction::Down, bytes);
        }
        if self.all_up.is_none() && self.operator.up().len() == self.setup.nodes {
            self.all_up = Some(self.now);
        }
        self.arm_control();
        Ok(())
    }

    fn arm_control(&mut self) {
        if !self.control_is_on {
            return;
        }
        let service = (!self.inbox.is_empty()).then_some(self.now + self.setup.control_service);
        let wanted = self
            .operator
            .next_wake()
            .map(|at| at.max(self.now + Micros(1)));
        let Some(at) = [service, wanted].into_iter().flatten().min() else {
            return;
        };
        if self.control_wake_at == Some(at) {
            return;
        }
        self.control_wake += 1;
        self.control_wake_at = Some(at);
        let wake = self.control_wake;
        self.schedule(at, What::WakeControl(wake));
    }

    fn send(&mut self, index: usize, direction: Direction, bytes: Vec<u8>) {
        // Nobody has the address from which an attacker spoke.
        if index >= self.machines.len() {
            return;
        }
        for again in self.attacker.again(index as u32) {
            let at = self.now + Micros(again.after_ns / 1_000);
            // To a node all comes from the control node's address, or is not taken at all.
            let index = match direction {
                Direction::Up => again.from as usize,
                Direction::Down => index,
            };
            self.schedule(at, What::Again(direction, index, bytes.clone()));
        }
        let arrivals = self
            .network
            .carry(self.now, index, direction, bytes.len(), &mut self.rng);
        self.note(|| {
            let (kind, seq) = (
                bytes[3],
                u64::from_le_bytes(bytes[16..24].try_into().expect("8")),
            );
            format!(
                "{direction:?} n{index} kind {kind} seq {seq}, {} arrive",
                arrivals.len()
            )
        });
        for at in arrivals {
            let mut bytes = bytes.clone();
            self.attacker.flip(&mut bytes);
            let what = match direction {
                Direction::Up => What::ToControl(index, bytes),
                Direction::Down => What::ToNode(index, self.machines[index].boots, bytes),
            };
            self.schedule(at, what);
        }
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(format!("{} {}", self.now, line()));
    }

    /// All faults have happened, all jobs have ended, and the registry is what the cluster is.
    fn is_done(&self) -> bool {
        self.faults_left == 0 && self.control_is_on && self.operator.is_done() && self.agrees()
    }

    /// The registry's nodes that are up are the machines that are on, none of them has kept a job
    /// that has ended, and each holds what the status table says.
    fn agrees(&self) -> bool {
        let agents = || {
            self.machines
                .iter()
                .filter_map(|machine| machine.agent.as_ref())
        };
        let staying = agents().filter(|agent| !agent.leaving).count();
        staying == self.operator.up().len()
            && agents().all(|agent| agent.endpoint.is_joined() && agent.is_idle())
            && self.strangers().is_empty()
    }

    /// Nodes that are up and hold something else than the status table says.
    fn strangers(&self) -> Vec<String> {
        let differs = |(node, epoch): &(&NodeId, &BootEpoch)| {
            let agent = self.machines[node.0 as usize].agent.as_ref();
            agent.is_some_and(|agent| {
                let told = agent.endpoint.holdings_acked();
                !told || !self.operator.status.agrees(**node, **epoch, &agent.held())
            })
        };
        let up = self.operator.up().iter().filter(differs);
        up.map(|(node, _)| node.to_string()).collect()
    }

    fn missing(&self) -> String {
        let jobs: Vec<_> = (self.operator.plans.keys())
            .filter(|job| matches!(self.operator.state(**job), State::Waiting | State::Running))
            .map(|job| format!("{job} ({:?})", self.operator.state(*job)))
            .collect();
        let up = self.operator.up();
        let apart: Vec<_> = (self.machines.iter().enumerate())
            .filter(|(index, machine)| {
                let is_up = up.contains_key(&NodeId(*index as u32));
                let joined = machine
                    .agent
                    .as_ref()
                    .is_some_and(|a| a.endpoint.is_joined());
                is_up != joined
            })
            .map(|(index, _)| format!("n{index}"))
            .collect();
        format!(
            "jobs [{}], nodes not as registered [{}], holding other than stored [{}]",
            jobs.join(", "),
            apart.join(", "),
            self.strangers().join(", ")
        )
    }

    fn failure(self, what: String) -> Failure {
        Failure {
            what,
            at: self.now,
            trace: self.trace.into(),
        }
    }

    fn summary(&self) -> Summary {
        let count = |state| {
            self.operator
                .plans
                .keys()
                .filter(|job| self.operator.state(**job) == state)
                .count()
        };
        let whole = |job: &&netstack::ids::JobId| {
            self.operator.state(**job) == State::Closed && self.operator.failures(**job).is_empty()
        };
        Summary {
            digest: self.digest,
            ended: self.now,
            all_up: self.all_up,
            datagrams: self.network.tally.sent,
            inbox_overflows: self.inbox_overflows,
            joins: self.operator.joins,
            losses: self.operator.losses,
            output_bytes: self.operator.output_bytes,
            closed: count(State::Closed),
            adopted: self.operator.adopted,
            completed: self.operator.plans.keys().filter(whole).count(),
            warm_ranks: self.operator.warm_ranks,
            silent_ranks: self.operator.silent_ranks,
            dropped: self.operator.dropped,
        }
    }
}

fn control_config(boot: u64, seed: u64) -> control::Config {
    control::Config {
        cluster_secret: SECRET,
        key_id: 1,
        version: VERSION,
        accept_lab_keys: false,
        control_epoch: ControlEpoch(boot),
        peer_key: Key([boot as u8; 16]),
        seed,
        timing: Timing::default(),
        limits: Limits::default(),
    }
}

fn address(index: usize) -> SocketAddrV4 {
    let [high, low] = (index as u16 + 256).to_be_bytes();
    SocketAddrV4::new(Ipv4Addr::new(10, 117, high, low), NODE_PORT)
}

fn index_of(address: SocketAddrV4) -> usize {
    let [_, _, high, low] = address.ip().octets();
    usize::from(u16::from_be_bytes([high, low])) - 256
}

/// FNV-1a over what was delivered and when.
fn mix(digest: &mut u64, at: Instant, bytes: &[u8]) {
    for byte in at.as_micros().to_le_bytes().iter().chain(bytes) {
        *digest = (*digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
}
