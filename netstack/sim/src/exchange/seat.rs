//! One rank of a job on a node: its endpoint, its memory, and what it has under way.
//!
//! Invariant: nothing of the protocol is here.

use std::sync::Arc;

use netstack::exchange::{
    Among, Config, Endpoint, Error, Event, Group, Op, OpId, PostError, Scheme, Side,
};
use netstack::ids::{JobId, Rank};
use netstack::time::Instant;
use netstack::wire::key::Key;

use super::memory::{RECEIVED, RankMemory, SENT};
use crate::setup::Setup;

/// See the module.
pub struct Seat {
    /// The job.
    pub job: JobId,
    /// The protocol's end.
    pub endpoint: Endpoint,
    /// The program's memory.
    pub memory: RankMemory,
    /// Where the ranks are.
    pub hosts: Arc<[u32]>,
    /// Exchanges that are done, and when the last was.
    pub done: u32,
    /// See `done`.
    pub done_at: u64,
    /// The rank that is lost, as it says, and when it said so.
    pub lost: Option<(Rank, u64)>,
    me: u32,
    /// What the program's step waits for, and how many bytes it is of where that is known.
    open: Vec<(OpId, Option<u64>)>,
    /// The step is an exchange.
    exchanges: bool,
    /// Messages that were sent to the next rank.
    messages: u64,
}

impl Seat {
    /// A rank of the exchange of all nodes.
    pub fn of_plan(setup: &Setup, me: u32) -> Seat {
        let plan = setup.exchange.as_ref().expect("the caller looked");
        let length = |from, to| plan.block_bytes(setup.seed, from, to);
        let sent: Vec<u64> = (0..setup.nodes).map(|to| length(me, to)).collect();
        let received: Vec<u64> = (0..setup.nodes).map(|from| length(from, me)).collect();
        let told = |figure: u64| if plan.untold { 0 } else { figure };
        let queue_bytes = setup.wiring.queue_bytes.min(u64::from(u32::MAX));
        let config = Config {
            job: JobId(1),
            epoch: 1,
            me: Rank(me),
            size: setup.nodes,
            key: Key(*b"simulated ranks."),
            rate: told(setup.wiring.rate / 8),
            port_buffer: told(queue_bytes) as u32,
            leaf: match plan.knows_leaves {
                true => setup.wiring.tree[0],
                false => 0,
            },
            scheme: plan.scheme,
            eager_bytes: 0,
            seed: setup.seed,
        };
        let memory = RankMemory::new(me, &sent, &received);
        let mut seat = Seat::new(config, memory, (0..setup.nodes).collect(), Instant::ZERO);
        if plan.knows_leaves {
            seat.endpoint.set_core(plan.core(setup));
        }
        seat
    }

    /// A rank of a program that was launched.
    pub fn of_program(
        (job, rank, key): (JobId, Rank, Key),
        hosts: Arc<[u32]>,
        setup: &Setup,
        now: Instant,
    ) -> Seat {
        let config = Config {
            job,
            epoch: 0,
            me: rank,
            size: hosts.len() as u32,
            key,
            rate: 0,
            port_buffer: 0,
            leaf: 0,
            scheme: Scheme::Default,
            eager_bytes: 0,
            seed: setup.seed ^ job.0,
        };
        let nothing = vec![0; hosts.len()];
        let memory = RankMemory::new(rank.0, &nothing, &nothing);
        Seat::new(config, memory, hosts, now)
    }

    /// A rank whose job has its ranks on these machines.
    pub fn new(config: Config, memory: RankMemory, hosts: Arc<[u32]>, now: Instant) -> Seat {
        Seat {
            job: config.job,
            me: config.me.0,
            endpoint: Endpoint::new(config, now),
            memory,
            hosts,
            done: 0,
            done_at: 0,
            lost: None,
            open: Vec::new(),
            exchanges: false,
            messages: 0,
        }
    }

    /// Begins an exchange among these ranks: `all` of the job or a group.
    pub fn begin_exchange(
        &mut self,
        now: Instant,
        ranks: Vec<u32>,
        all: bool,
    ) -> Result<OpId, PostError> {
        self.memory.clear();
        let (send, receive) = self.memory.layouts(&ranks);
        let group = match all {
            true => Group::All,
            false => Group::listed(ranks.into_iter().map(Rank).collect()).expect("a group"),
        };
        let side = |buffer, layout| Side { buffer, layout };
        let op = Op::AllToAll {
            among: Among {
                group,
                ..Among::all(0)
            },
            send: side(SENT, send),
            receive: side(RECEIVED, receive),
        };
        self.endpoint.post(now, op, &mut self.memory)
    }

    /// Begins an exchange with all ranks of the job, of so many bytes each; whether it could.
    pub fn begin_exchange_of(&mut self, now: Instant, bytes: u64) -> bool {
        let size = self.hosts.len();
        self.memory = RankMemory::new(self.me, &vec![bytes; size], &vec![bytes; size]);
        self.exchanges = true;
        let posted = self.begin_exchange(now, (0..size as u32).collect(), true);
        self.open = posted.iter().map(|op| (*op, None)).collect();
        posted.is_ok()
    }

    /// Sends a message to the next rank and receives one from the rank before; whether it could.
    pub fn begin_message(&mut self, now: Instant, bytes: u64) -> bool {
        let size = self.hosts.len() as u32;
        let (next, before) = ((self.me + 1) % size, (self.me + size - 1) % size);
        let number = self.messages;
        self.messages += 1;
        self.exchanges = false;
        self.memory = RankMemory::of_message(number, (self.me, next), before, bytes);
        let tag = number as u32;
        let receive = Op::Receive {
            from: Some(Rank(before)),
            context: 1,
            tag: Some(tag),
            buffer: RECEIVED,
            capacity: bytes,
        };
        let send = Op::Send {
            to: Rank(next),
            context: 1,
            tag,
            buffer: SENT,
            bytes,
            // So that its bytes are there until they are taken.
            is_synchronous: true,
        };
        self.open.clear();
        for op in [receive, send] {
            match self.endpoint.post(now, op, &mut self.memory) {
                Ok(op) => self.open.push((op, Some(bytes))),
                Err(_) => return false,
            }
        }
        true
    }

    /// Takes an event of a program's step: whether that is done now, well or not.
    ///
    /// # Errors
    /// What should not have happened.
    pub fn program_event(&mut self, event: Event) -> Result<Option<bool>, String> {
        let (Event::Done { op, .. } | Event::Failed { op, .. }) = event;
        // Of a step that failed before.
        let Some(at) = self.open.iter().position(|(open, _)| *open == op) else {
            return Ok(None);
        };
        let (_, expected) = self.open.swap_remove(at);
        let rank = self.me;
        match event {
            Event::Failed { error, .. } => match error {
                Error::RankLost(_) | Error::Withdrawn(_) => {
                    self.open.clear();
                    Ok(Some(false))
                }
                _ => Err(format!("rank {rank} of job {}: {error}", self.job)),
            },
            Event::Done { bytes, .. } => {
                if let Some(violation) = self.memory.violations.first() {
                    return Err(format!("rank {rank} of job {}: {violation}", self.job));
                }
                if expected.is_some_and(|expected| expected != bytes) {
                    return Err(format!("rank {rank} got a message of {bytes} bytes"));
                }
                let whole = self.memory.written() == self.memory.packets();
                if self.exchanges && !whole {
                    return Err(format!(
                        "rank {rank} is done and has not received everything"
                    ));
                }
                Ok(self.open.is_empty().then_some(true))
            }
        }
    }
}
