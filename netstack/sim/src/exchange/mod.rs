//! All-to-all exchanges and messages between the ranks of jobs: [`netstack::exchange::Endpoint`],
//! as it ships.
//!
//! - [`plan`]: what an exchange of all nodes is made of; [`options`] reads one from a command line.
//! - [`seat`]: one rank of a job on a node. [`memory`]: the memory of a rank, which checks that
//!   every packet of every block is written once, and in small runs every byte.
//! - [`summary`]: what came out.
//!
//! Small runs send real datagrams with real bytes; in large ones several packets of a block travel
//! as one event, while loss and room in queues are decided for every datagram.
//!
//! Without sessions all nodes are the ranks of one job from the start. With them a launch gives a
//! node its seat, and programs say what it does.
//!
//! Key type: [`Exchanges`]. Invariant: faults and checks are here, no protocol logic.

pub mod memory;
pub mod options;
pub mod plan;
pub mod seat;
pub mod summary;

use std::sync::Arc;

use netstack::exchange::message::Data;
use netstack::exchange::wire::DATA_OVERHEAD;
use netstack::exchange::{Body, Error, Event, Footprint, PACKET};
use netstack::ids::{JobId, Rank};
use netstack::wire::datagram::Kind;

use crate::net::fabric::Train;
use crate::net::{Load, Net};
use crate::setup::{Fault, Setup};
use crate::world::{Action, Checked, Service, check};
use seat::Seat;
use summary::Traffic;

/// Virtual time after the end for everything to come to rest.
const REST_NS: u64 = 2_000_000_000;
/// A rank that dies is named by all others within this time.
const LOST_NS: u64 = 8_000_000_000;
/// Packets that travel as one event, where bytes are not real.
const TRAIN: u32 = 4;
/// Ranks of jobs that are over which a node still answers for.
const ENDED_MOST: usize = 8;

/// What a rank of a job has done of its program's step.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// The node.
    pub host: u32,
    /// The job.
    pub job: JobId,
    /// All of it is done; else some of it failed.
    pub is_well: bool,
}

/// See the module.
pub struct Exchanges {
    pub(crate) setup: Arc<Setup>,
    /// The rank that each node has; in the order of nodes.
    pub seats: Vec<Option<Box<Seat>>>,
    /// Those of jobs that are over there.
    ended: Vec<Vec<Seat>>,
    /// What was sent.
    pub traffic: Traffic,
    /// Operations of programs that are done.
    pub steps: u64,
    /// Steps of programs that failed.
    pub failures: u64,
    /// Ranks that have not died, and of these such that are done or have named a lost one.
    living: u32,
    finished: u32,
    /// What programs are to hear.
    pub(crate) news: Vec<Done>,
}

impl Exchanges {
    /// Before anything has begun.
    pub fn new(setup: &Arc<Setup>) -> Self {
        let nodes = setup.nodes as usize;
        Exchanges {
            seats: (0..nodes).map(|_| None).collect(),
            ended: (0..nodes).map(|_| Vec::new()).collect(),
            traffic: Traffic::default(),
            steps: 0,
            failures: 0,
            living: 0,
            finished: 0,
            news: Vec::new(),
            setup: Arc::clone(setup),
        }
    }

    /// The program of a node has ended, `is_well` by itself and without an error: ranks that wait
    /// for it hear that, and those that missed an answer may still ask for it.
    pub(crate) fn close(&mut self, net: &Net, host: u32, is_well: bool) {
        let Some(mut seat) = self.seats[host as usize].take() else {
            return;
        };
        seat.memory.take_away();
        seat.endpoint.leave(net.clock(host), is_well);
        let ended = &mut self.ended[host as usize];
        ended.push(*seat);
        if ended.len() > ENDED_MOST {
            ended.remove(0);
        }
    }

    /// The card of a node may interrupt its program.
    pub(crate) fn is_active(&self, host: u32) -> bool {
        let seat = self.seats.get(host as usize).and_then(Option::as_ref);
        seat.is_some_and(|seat| seat.endpoint.is_active())
    }

    /// A program begins a step: an exchange of so many bytes with each other rank, or a message of
    /// so many to the next one.
    pub(crate) fn begin_step(&mut self, net: &mut Net, host: u32, bytes: u64, is_message: bool) {
        let now = net.clock(host);
        if let Some(seat) = &mut self.seats[host as usize] {
            let begun = match is_message {
                true => seat.begin_message(now, bytes),
                false => seat.begin_exchange_of(now, bytes),
            };
            if !begun {
                let job = seat.job;
                self.report(host, job, false);
            }
            net.ask(host);
        }
    }

    fn report(&mut self, host: u32, job: JobId, is_well: bool) {
        self.steps += u64::from(is_well);
        self.failures += u64::from(!is_well);
        self.news.push(Done { host, job, is_well });
    }

    /// A rank of the exchange of all nodes begins.
    fn begin_planned(&mut self, net: &mut Net, rank: u32) -> Checked {
        let now = net.clock(rank);
        let Some(plan) = self.setup.exchange.as_ref().filter(|_| net.is_on(rank)) else {
            return Ok(());
        };
        let group = plan.group_of(rank, self.setup.nodes);
        let seat = self.seats[rank as usize].as_mut().expect("it is on");
        if let Err(error) = seat.begin_exchange(now, group, plan.groups == 1) {
            let lost = dead(&self.setup).next().map_or(rank, |(_, dead)| dead);
            check(
                error == netstack::exchange::PostError::Lost(Rank(lost)),
                || format!("rank {rank} cannot begin: {error:?}"),
            )?;
            seat.lost = Some((Rank(lost), net.now()));
            self.finished += 1;
        }
        net.ask(rank);
        Ok(())
    }

    fn seat_event(&mut self, net: &mut Net, host: u32, event: Event) -> Checked {
        let seat = self.seats[host as usize].as_mut().expect("the caller's");
        let Some(plan) = &self.setup.exchange else {
            let job = seat.job;
            match seat.program_event(event)? {
                None => {}
                Some(is_well) => self.report(host, job, is_well),
            }
            return Ok(());
        };
        match event {
            Event::Done { .. } => {
                check(seat.memory.written() == seat.memory.packets(), || {
                    format!("rank {host} is done and has not received everything")
                })?;
                seat.done += 1;
                seat.done_at = net.now();
                if seat.done == plan.times {
                    self.finished += 1;
                } else {
                    net.schedule(net.now(), Action::Begin(host));
                }
            }
            Event::Failed {
                error: Error::RankLost(lost),
                ..
            } => {
                seat.lost = Some((lost, net.now()));
                self.finished += 1;
            }
            Event::Failed { error, .. } => return Err(format!("rank {host}: {error}")),
        }
        Ok(())
    }

    /// What packets of a block take of a link.
    fn data_wire(net: &Net, data: &Data) -> u32 {
        let full = data.packets.count_ones() - 1;
        let frame = |bytes: usize| net.fabric.frame((bytes + DATA_OVERHEAD) as u32);
        full * frame(PACKET) + frame(data.tail.into())
    }

    /// Sends the next of a seat; false when it has none.
    fn send_of(traffic: &mut Traffic, net: &mut Net, host: u32, seat: &mut Seat) -> bool {
        let now = net.clock(host);
        let (endpoint, memory) = (&mut seat.endpoint, &mut seat.memory);
        let (to, train, load) = if net.setup.real {
            let polled = endpoint.poll_transmit(now, &mut net.buffer[..], memory);
            let Some((to, length)) = polled else {
                return false;
            };
            let bytes: Box<[u8]> = net.buffer[..length].into();
            let is_data = bytes[3] == Kind::ExchangeData as u8;
            let wire = net.fabric.frame(length as u32);
            let train = traffic.charge(is_data, 1, wire);
            (to, train, Load::Datagram(bytes))
        } else {
            let Some((to, packet)) = endpoint.poll_packet(now, TRAIN, memory) else {
                return false;
            };
            let (packets, wire) = match &packet.body {
                Body::Data(data) => (data.packets, Self::data_wire(net, data)),
                _ => (1, net.fabric.frame(packet.wire_bytes() as u32)),
            };
            let is_data = matches!(packet.body, Body::Data(_));
            let train = traffic.charge(is_data, packets, wire);
            (to, train, Load::Exchange(packet))
        };
        let to = seat.hosts[to.0 as usize];
        net.send(host, to, train, load);
        true
    }
}

/// Nodes that die, and when.
pub(crate) fn dead(setup: &Setup) -> impl Iterator<Item = (u64, u32)> + '_ {
    setup.faults.iter().filter_map(|(at, fault)| match fault {
        Fault::Die(node) => Some((*at, *node)),
        _ => None,
    })
}

/// Ranks of jobs may be gone, or silent for so long that they count as gone.
fn is_troubled(setup: &Setup) -> bool {
    let mut plans = setup.jobs.iter().flat_map(|jobs| &jobs.plans);
    let is_harmless = |fault: &Fault| {
        matches!(
            fault,
            Fault::Heal
                | Fault::Drop(..)
                | Fault::Noise(_)
                | Fault::Corrupt(_)
                | Fault::Join { .. }
                | Fault::Tight(_)
                | Fault::Replan
        )
    };
    plans.any(|plan| plan.refused || plan.cancel_after.is_some() || plan.may_be_cold())
        || setup.faults.iter().any(|(_, fault)| !is_harmless(fault))
}

impl Service for Exchanges {
    fn begin(&mut self, net: &mut Net) {
        if let Some(plan) = &self.setup.exchange {
            for rank in 0..self.setup.nodes {
                let is_late = plan.late.contains(&rank);
                let at = if is_late { plan.late_ns } else { 0 };
                net.schedule(at, Action::Begin(rank));
            }
        }
    }

    fn boot(&mut self, net: &mut Net, host: u32) -> Checked {
        // A rank that has died is none any more, whatever its node does.
        let is_first = net.hosts[host as usize].boots == 1;
        if host != net.control() && self.setup.exchange.is_some() && is_first {
            let seat = Seat::of_plan(&self.setup, host);
            self.seats[host as usize] = Some(Box::new(seat));
            self.living += 1;
        }
        Ok(())
    }

    fn off(&mut self, net: &mut Net, host: u32) {
        if host == net.control() {
            return;
        }
        if let (Some(plan), Some(seat)) = (&self.setup.exchange, &self.seats[host as usize]) {
            // Only the living are waited for, so only they count.
            if net.hosts[host as usize].boots == 1 {
                let is_done = seat.done == plan.times || seat.lost.is_some();
                self.finished -= u32::from(is_done);
                self.living -= 1;
            }
            return;
        }
        self.seats[host as usize] = None;
        self.ended[host as usize].clear();
    }

    fn inflict(&mut self, _net: &mut Net, _fault: Fault) -> Checked {
        Ok(())
    }

    fn act(&mut self, net: &mut Net, action: Action) -> Checked {
        match action {
            Action::Begin(rank) => self.begin_planned(net, rank),
            _ => Ok(()),
        }
    }

    fn take(
        &mut self,
        net: &mut Net,
        host: u32,
        at: u64,
        (_, train, load): (u32, Train, Load),
    ) -> Checked {
        let now = net.clock_at(host, at);
        let Some(present) = self.seats.get_mut(host as usize) else {
            return Ok(());
        };
        match load {
            Load::Datagram(bytes) => {
                let ended = &mut self.ended[host as usize];
                let mut seats = present.iter_mut().map(|it| &mut **it).chain(ended);
                // One that is of another job does not open it.
                seats.find_map(|seat| seat.endpoint.handle_datagram(now, &bytes, &mut seat.memory));
            }
            Load::Exchange(mut packet) => {
                if let Body::Data(data) = &mut packet.body {
                    keep(data, train.datagrams);
                }
                if let Some(seat) = present {
                    let memory = &mut seat.memory;
                    seat.endpoint.handle_packet(now, packet, None, memory);
                }
            }
            Load::Cast(_) => {}
        }
        Ok(())
    }

    fn settle(&mut self, net: &mut Net, host: u32, _at: u64) -> Checked {
        while let Some(Some(seat)) = self.seats.get_mut(host as usize)
            && let Some(event) = seat.endpoint.poll_event()
        {
            self.seat_event(net, host, event)?;
        }
        Ok(())
    }

    fn send_next(&mut self, net: &mut Net, host: u32) -> Result<bool, String> {
        let Some(present) = self.seats.get_mut(host as usize) else {
            return Ok(false);
        };
        let ended = &mut self.ended[host as usize];
        let mut seats = present.iter_mut().map(|it| &mut **it).chain(ended);
        let traffic = &mut self.traffic;
        Ok(seats.any(|seat| Self::send_of(traffic, net, host, seat)))
    }

    fn deadline(&self, net: &Net, host: u32) -> Option<u64> {
        let present = self.seats.get(host as usize)?;
        let present = present.iter().map(|it| &**it);
        let seats = present.chain(&self.ended[host as usize]);
        let due = seats
            .filter_map(|seat| seat.endpoint.poll_timeout())
            .min()?;
        Some(net.hosts[host as usize].clock.when(due))
    }

    fn is_over(&self, _net: &Net) -> bool {
        self.setup.exchange.is_none() || self.finished >= self.living
    }

    fn rest_ns(&self) -> u64 {
        match self.setup.exchange {
            Some(_) => REST_NS,
            None => 0,
        }
    }

    fn missing(&self, net: &Net) -> String {
        let times = self.setup.exchange.as_ref().map_or(0, |plan| plan.times);
        let seats = (0..).zip(&self.seats).filter_map(|(rank, seat)| {
            let seat = seat.as_ref().filter(|_| net.is_on(rank))?;
            Some((rank, seat))
        });
        let missing = seats.filter(|(_, seat)| seat.done < times && seat.lost.is_none());
        let texts = missing.take(8).map(|(rank, seat)| {
            let (written, packets) = (seat.memory.written(), seat.memory.packets());
            format!("rank {rank} has {written} of {packets} packets; ")
        });
        texts.collect()
    }

    fn end(&self, net: &Net) -> Checked {
        let ended = self.ended.iter().flatten();
        if let Some(seat) = ended
            .into_iter()
            .find(|seat| !seat.memory.violations.is_empty())
        {
            let violation = &seat.memory.violations[0];
            return Err(format!("after the end of job {}: {violation}", seat.job));
        }
        if self.setup.exchange.is_none() {
            // A rank may only be missed where one was gone for a while.
            return check(self.failures == 0 || is_troubled(&self.setup), || {
                format!(
                    "{} exchanges or messages failed without a cause",
                    self.failures
                )
            });
        }
        for (rank, seat) in (0..).zip(&self.seats) {
            let Some(seat) = seat else {
                continue;
            };
            if let Some(violation) = seat.memory.violations.first() {
                return Err(format!("rank {rank}: {violation}"));
            }
            if !net.is_on(rank) || net.hosts[rank as usize].boots > 1 {
                continue;
            }
            match seat.lost {
                None => check(seat.memory.written() == seat.memory.packets(), || {
                    format!("rank {rank} is done and has not received everything")
                })?,
                Some((lost, at)) => {
                    let death = dead(&self.setup).find(|(_, dead)| *dead == lost.0);
                    let Some((died_at, _)) = death else {
                        return Err(format!(
                            "rank {rank} says that rank {lost} is lost, which lives"
                        ));
                    };
                    check(at <= died_at + LOST_NS, || {
                        let took = at - died_at;
                        format!("rank {rank} took {took} ns to say that rank {lost} is lost")
                    })?;
                }
            }
            let kept = seat.endpoint.footprint();
            check(kept == Footprint::default(), || {
                format!("rank {rank} keeps {kept:?} when all is over")
            })?;
        }
        Ok(())
    }
}

/// Takes the packets out that did not come.
fn keep(data: &mut Data, packets: u64) {
    let lost_last = packets.leading_zeros() != data.packets.leading_zeros();
    data.packets = packets;
    if lost_last {
        data.tail = PACKET as u16;
        data.is_last = false;
    }
}
