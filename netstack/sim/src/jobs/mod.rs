//! Sessions and jobs: nodes join control through [`netstack::node::Endpoint`] and
//! [`netstack::control::Endpoint`], programs run on them, read pages and make calls.
//!
//! - [`plan`]: what a run is made of. [`program`]: what a simulated job computes, writes and reads;
//!   every byte is predictable.
//! - [`agent`]: the kernel's part on a node; holds programs that have ended under a limit.
//! - [`operator`]: the control node's user; holds most of the safety checks, and the node status
//!   table.
//! - [`summary`]: what came out.
//!
//! What else is on a node or on the control node hears of sessions by [`Note`] and [`Seen`].
//!
//! Key type: [`Sessions`]. Invariant: faults and checks are here, no protocol logic.

pub mod agent;
pub mod operator;
pub mod plan;
pub mod program;
pub mod summary;

use std::collections::BTreeSet;

use netstack::control::{self, Limits};
use netstack::ids::{BootEpoch, ControlEpoch, NodeId};
use netstack::join::Timing;
use netstack::personality::{self, Personality};
use netstack::rng::Rng;

use netstack::node;
use netstack::vitals::BootTimings;

use crate::net::fabric::{Train, frame_bytes};
use crate::net::{Load, Net, key, node_of, peer};
use crate::setup::Fault;
use crate::world::{Action, Checked, Service};
use agent::{Agent, Note};
use operator::{Operator, Seen, State};
use plan::Jobs;
use program::program_id;

const SECRET: [u8; 16] = *b"simulated secret";
const VERSION: [u8; 16] = *b"0.1.0\0\0\0\0\0\0\0\0\0\0\0";

/// See the module.
pub struct Sessions {
    /// By number of the node; None while it is off.
    agents: Vec<Option<Box<Agent>>>,
    /// The control node's user, with the endpoint of its present run or the last.
    pub operator: Operator,
    warm_pages: u32,
    boots: BTreeSet<(NodeId, BootEpoch)>,
    /// When all nodes were up for the first time.
    pub all_up_ns: Option<u64>,
    rng: Rng,
}

impl Sessions {
    /// Before anything has begun.
    pub fn new(net: &mut Net, jobs: &Jobs) -> Self {
        let mut rng = Rng::new(net.setup.seed);
        let endpoint = control::Endpoint::new(control_config(1, rng.next_u64()));
        let control = net.control() as usize;
        net.hosts[control].inbox_most = jobs.control_inbox;
        net.hosts[control].service_ns = jobs.control_service_ns;
        let begin = net.clock(net.control());
        let mut operator = Operator::new(endpoint, jobs.plans.clone(), rng.next_u64(), begin);
        operator.under_attack = net.setup.attack.is_on();
        Sessions {
            agents: (0..net.setup.nodes).map(|_| None).collect(),
            operator,
            warm_pages: jobs.warm_pages,
            boots: BTreeSet::new(),
            all_up_ns: None,
            rng,
        }
    }

    fn agent(&mut self, host: u32) -> Option<&mut Agent> {
        self.agents.get_mut(host as usize)?.as_deref_mut()
    }

    /// What a node has to say to the others of its services.
    pub(crate) fn note(&mut self, host: u32) -> Option<Note> {
        self.agent(host)?.notes.pop_front()
    }

    /// What the control node's services are to hear.
    pub(crate) fn seen(&mut self) -> Option<Seen> {
        self.operator.seen.pop_front()
    }

    /// A node has left, and goes off.
    pub(crate) fn has_left(&self, host: u32) -> bool {
        let agent = self.agents.get(host as usize).and_then(Option::as_deref);
        agent.is_some_and(|agent| agent.endpoint.has_left())
    }

    /// What a program's step talked about is over.
    pub(crate) fn talked(&mut self, host: u32, job: netstack::ids::JobId, is_well: bool) {
        if let Some(agent) = self.agent(host) {
            agent.talked(job, is_well);
        }
    }

    /// When a node whose program computes looks at the network next; None: it always does.
    pub(crate) fn looks_next(&self, net: &Net, host: u32) -> Option<u64> {
        let agent = self.agents.get(host as usize)?.as_deref()?;
        let at = agent.looks_next(net.clock(host))?;
        let at = net.hosts[host as usize].clock.when(at);
        Some(at.max((net.now() / 1000 + 1) * 1000))
    }

    fn agents(&self) -> impl Iterator<Item = &Agent> {
        self.agents.iter().filter_map(Option::as_deref)
    }

    /// The registry's nodes that are up are the machines that are on, none of them has kept a job
    /// that has ended, and each holds what the status table says.
    fn agrees(&self) -> bool {
        let staying = self.agents().filter(|agent| !agent.leaving).count();
        let at_ease = |agent: &Agent| agent.endpoint.is_joined() && agent.is_idle();
        staying == self.operator.up().len()
            && self.agents().all(at_ease)
            && self.strangers().is_empty()
    }

    /// Nodes that are up and hold something else than the status table says.
    fn strangers(&self) -> Vec<String> {
        let differs = |(node, epoch): &(&NodeId, &BootEpoch)| {
            let agent = self.agents[node.0 as usize].as_deref();
            agent.is_some_and(|agent| {
                let told = agent.endpoint.holdings_acked();
                !told || !self.operator.status.agrees(**node, **epoch, &agent.held())
            })
        };
        let up = self.operator.up().iter().filter(differs);
        up.map(|(node, _)| node.to_string()).collect()
    }
}

impl Service for Sessions {
    fn begin(&mut self, _net: &mut Net) {}

    fn boot(&mut self, net: &mut Net, host: u32) -> Checked {
        if host == net.control() {
            let boots = net.hosts[host as usize].boots;
            if boots > 1 {
                let config = control_config(boots, self.rng.next_u64());
                let endpoint = control::Endpoint::new(config);
                self.operator.restart(net.clock(host), endpoint);
            }
            return Ok(());
        }
        let epoch = net.boot(host);
        let node = NodeId(host);
        self.boots.insert((node, epoch));
        let mac = peer(host).mac;
        let [a, b, c, d] = peer(net.control()).addr.ip().octets();
        let personality = Personality {
            node,
            control_addr: [a, b, c, d],
            control_port: netstack::CONTROL_PORT,
            http_port: 7180,
            tree_height: 0,
            place: [0; 4],
            key_id: 1,
            key: personality::node_key(&SECRET, 1, mac, epoch, node),
            name: format!("{node}"),
        };
        let config = node::Config {
            personality,
            mac,
            boot_epoch: epoch,
            lab_key: false,
            version: VERSION,
            build_id: [0; 20],
            memory_bytes: 48 << 20,
            cores: 1,
            seed: self.rng.next_u64(),
            timings: BootTimings::default(),
        };
        let now = net.clock(host);
        let endpoint = node::Endpoint::new(config, now);
        let agent = Agent::new(endpoint, now, self.warm_pages);
        self.agents[host as usize] = Some(Box::new(agent));
        Ok(())
    }

    fn off(&mut self, _net: &mut Net, host: u32) {
        if let Some(agent) = self.agents.get_mut(host as usize) {
            *agent = None;
        }
    }

    fn inflict(&mut self, net: &mut Net, fault: Fault) -> Checked {
        let control = net.control();
        let now = net.clock(control);
        match fault {
            Fault::Leave(node) => {
                let now = net.clock(node);
                if let Some(agent) = self.agent(node) {
                    agent.leaving = true;
                    agent.endpoint.leave(now);
                    net.ask(node);
                }
            }
            Fault::AskLeave(node) if net.is_on(control) => {
                // Refused where the node is busy or away: the property is what follows otherwise.
                let _ = self.operator.endpoint.ask_to_leave(now, NodeId(node));
                net.ask(control);
            }
            Fault::Drop(node, number) if net.is_on(control) => {
                let program = (number != 0).then(|| program_id(number));
                self.operator.drop_program(now, NodeId(node), program);
                net.ask(control);
            }
            _ => {}
        }
        Ok(())
    }

    fn act(&mut self, _net: &mut Net, _action: Action) -> Checked {
        Ok(())
    }

    fn take(
        &mut self,
        net: &mut Net,
        host: u32,
        at: u64,
        (from, _, load): (u32, Train, Load),
    ) -> Checked {
        let (now, control) = (net.clock_at(host, at), net.control());
        let Load::Datagram(bytes) = load else {
            return Ok(());
        };
        if host == control {
            let endpoint = &mut self.operator.endpoint;
            endpoint.handle_datagram(now, peer(from).addr, &bytes);
        } else if let Some(agent) = self.agent(host).filter(|_| from == control) {
            agent.endpoint.handle_datagram(now, &bytes);
        }
        Ok(())
    }

    fn settle(&mut self, net: &mut Net, host: u32, at: u64) -> Checked {
        let now = net.clock_at(host, at);
        if host == net.control() {
            let boots = &self.boots;
            let existed = |node, epoch| boots.contains(&(node, epoch));
            self.operator.run(now, existed)?;
            if self.all_up_ns.is_none() && self.operator.up().len() == self.agents.len() {
                self.all_up_ns = Some(net.now());
            }
            return Ok(());
        }
        let plans = &self.operator.plans;
        match self.agents[host as usize].as_deref_mut() {
            Some(agent) => agent
                .settle(now, plans)
                .map_err(|what| format!("n{host}: {what}")),
            None => Ok(()),
        }
    }

    fn send_next(&mut self, net: &mut Net, host: u32) -> Result<bool, String> {
        let (now, control) = (net.clock(host), net.control());
        let buffer = &mut net.buffer[..];
        let sent = match self.agents.get_mut(host as usize) {
            Some(agent) => {
                let agent = agent.as_deref_mut();
                let length = agent.and_then(|agent| agent.endpoint.poll_transmit(now, buffer));
                length.map(|length| (control, length))
            }
            None => {
                let sent = self.operator.endpoint.poll_transmit(now, buffer);
                sent.map(|(to, length)| (node_of(to), length))
            }
        };
        let Some((to, length)) = sent else {
            return Ok(false);
        };
        let bytes: Box<[u8]> = net.buffer[..length].into();
        let train = Train::of(1, frame_bytes(length as u32));
        net.send(host, to, train, Load::Datagram(bytes));
        Ok(true)
    }

    fn deadline(&self, net: &Net, host: u32) -> Option<u64> {
        let due = match self.agents.get(host as usize) {
            Some(agent) => agent.as_deref()?.next_wake()?,
            None => self.operator.next_wake()?,
        };
        Some(net.hosts[host as usize].clock.when(due))
    }

    fn is_over(&self, net: &Net) -> bool {
        net.is_on(net.control()) && self.operator.is_done() && self.agrees()
    }

    fn rest_ns(&self) -> u64 {
        0
    }

    fn missing(&self, _net: &Net) -> String {
        let jobs: Vec<_> = (self.operator.plans.keys())
            .filter(|job| matches!(self.operator.state(**job), State::Waiting | State::Running))
            .map(|job| format!("{job} ({:?})", self.operator.state(*job)))
            .collect();
        let up = self.operator.up();
        let apart: Vec<_> = (0..)
            .zip(&self.agents)
            .filter(|(index, agent)| {
                let is_up = up.contains_key(&NodeId(*index));
                let joined = agent.as_ref().is_some_and(|it| it.endpoint.is_joined());
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

    fn end(&self, _net: &Net) -> Checked {
        Ok(())
    }
}

fn control_config(boot: u64, seed: u64) -> control::Config {
    control::Config {
        cluster_secret: SECRET,
        key_id: 1,
        version: VERSION,
        accept_lab_keys: false,
        control_epoch: ControlEpoch(boot),
        peer_key: key(boot),
        seed,
        timing: Timing::default(),
        limits: Limits::default(),
    }
}
