//! All I/O services, and the jobs that they know.
//!
//! Key type: [`IoServices`]. Neighbours: `control_events` says which jobs nodes have; `jobs` asks
//! which service each node of a job calls, and keeps that with the job.
//!
//! Invariant: a service hears of a job's ranks on the nodes that call it, and of no others.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddrV4;
use std::sync::mpsc::Receiver;

use hearth_io::service::Problem;
use hearth_io::{Cast, JobFiles, Read, Service};
use netstack::control::Endpoint;
use netstack::files::ChannelId;
use netstack::files::server::Member;
use netstack::ids::{JobId, NodeId, Rank};
use netstack::job::FileService;
use nix::unistd::{getegid, geteuid};

use super::Mounts;
use super::joined::{self, Counted, Joined, NAME_MAX, Order, Poll, Polled, RankKey, ServedJob};
use super::psets::{self, PSET_NODES};
use crate::api::types::{IoPart, IoServiceInfo, IoState};
use crate::config;
use crate::events::{Event, Severity};
use crate::hostlist;

/// Services that may be known: four million nodes in psets.
const SERVICES_MAX: usize = 1024;
/// Problems that nobody has asked for: the oldest go first.
const PROBLEMS_MAX: usize = 1024;

/// What carries out calls on files.
#[derive(Debug)]
enum Kind {
    /// Nothing: no directory is exported.
    None,
    /// A service in this process.
    Own(Service),
    /// Those that join.
    Joined(BTreeMap<SocketAddrV4, Joined>),
}

/// The services, and the jobs that they know.
#[derive(Debug)]
pub struct IoServices {
    kind: Kind,
    jobs: BTreeMap<JobId, Served>,
    problems: VecDeque<Problem>,
    events: Vec<Event>,
}

/// A job with files.
#[derive(Debug)]
struct Served {
    mounts: Mounts,
    /// Its nodes in the order of ranks, each with how many of them it has and its service.
    places: Vec<(NodeId, u16, SocketAddrV4)>,
    /// Ranks that have ended.
    left: BTreeSet<Rank>,
}

impl Served {
    /// The channel of each rank, with its node and service.
    fn channels(&self, job: JobId) -> impl Iterator<Item = (NodeId, SocketAddrV4, ChannelId)> + '_ {
        let on = self.places.iter().flat_map(|(node, ranks, service)| {
            std::iter::repeat_n((*node, *service), (*ranks).into())
        });
        (0..)
            .map(Rank)
            .zip(on)
            .map(move |(rank, (node, service))| (node, service, ChannelId { job, rank }))
    }

    /// The ranks that `of` picks by node and service, as far as their nodes are known.
    fn members(
        &self,
        endpoint: &Endpoint,
        job: JobId,
        of: impl Fn(NodeId, SocketAddrV4) -> bool,
    ) -> Vec<Member> {
        self.channels(job)
            .filter(|(node, service, _)| of(*node, *service))
            .filter_map(|(node, _, channel)| endpoint.files_member(node, channel))
            .collect()
    }

    /// The services that it calls.
    fn services(&self) -> BTreeSet<SocketAddrV4> {
        self.places.iter().map(|(_, _, service)| *service).collect()
    }

    /// What one of its services is told.
    fn order(&self, endpoint: &Endpoint, job: JobId, service: SocketAddrV4) -> Order {
        let members = self.members(endpoint, job, |_, of| of == service);
        Order::Serve(ServedJob {
            job: job.0,
            identity: self.mounts.identity,
            user: self.mounts.user.clone(),
            exports: self.mounts.exports.clone(),
            working: self.mounts.working.clone(),
            ranks: members.into_iter().map(RankKey::from).collect(),
        })
    }
}

impl IoServices {
    /// With a service of this process, or without one.
    pub fn new(config: &config::Files, own: Option<Service>) -> Self {
        let kind = match (own, config.service) {
            (Some(service), _) => Kind::Own(service),
            (None, config::FileService::Joined) if !config.export.is_empty() => {
                Kind::Joined(BTreeMap::new())
            }
            (None, _) => Kind::None,
        };
        IoServices {
            kind,
            jobs: BTreeMap::new(),
            problems: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// Which service each of these nodes calls; `known` are the numbers of all nodes, ascending.
    ///
    /// # Errors
    /// There is none now, and what to do.
    pub fn assign(&self, known: &[u32], nodes: &[(NodeId, u16)]) -> Result<Vec<IoPart>, String> {
        let joined = match &self.kind {
            Kind::None => return Ok(Vec::new()),
            Kind::Own(service) => {
                return Ok(vec![IoPart {
                    service: service.address().to_string(),
                    nodes: nodes.len() as u32,
                }]);
            }
            Kind::Joined(joined) => joined,
        };
        let there = joined.iter().filter(|(_, joined)| joined.is_there());
        let there: Vec<SocketAddrV4> = there.map(|(address, _)| *address).collect();
        if there.is_empty() {
            return Err(
                "waits for an I/O service: `hearth io` starts one, `hearth nodes --io` lists them"
                    .to_string(),
            );
        }
        let mut parts: Vec<IoPart> = Vec::new();
        for (node, _) in nodes {
            let service = there[psets::service_of(node.0, known, there.len())].to_string();
            match parts.last_mut() {
                Some(part) if part.service == service => part.nodes += 1,
                _ => parts.push(IoPart { service, nodes: 1 }),
            }
        }
        Ok(parts)
    }

    /// Has a job served; what each of its nodes is told of its service. Nodes that are not known
    /// yet are added by [`Self::know`].
    pub fn admit(
        &mut self,
        endpoint: &Endpoint,
        job: JobId,
        nodes: &[(NodeId, u16)],
        mounts: &Mounts,
        parts: &[IoPart],
    ) -> Vec<Option<FileService>> {
        let own = match &self.kind {
            Kind::Own(service) => Some(service.address()),
            _ => None,
        };
        // What is kept with a job was written by this program.
        let of_part = |part: &IoPart| part.service.parse().ok().map(|at| (at, part.nodes));
        let told = parts.iter().filter_map(of_part);
        let told = told.flat_map(|(at, nodes)| std::iter::repeat_n(at, nodes as usize));
        let services: Vec<SocketAddrV4> = match own {
            Some(own) => nodes.iter().map(|_| own).collect(),
            None => told.collect(),
        };
        if services.len() != nodes.len() {
            return nodes.iter().map(|_| None).collect();
        }
        let user = mounts.user.as_ref().map(|user| [user.uid, user.gid]);
        let user = user.unwrap_or_else(|| [geteuid().as_raw(), getegid().as_raw()]);
        let places = nodes.iter().zip(&services);
        let served = Served {
            mounts: mounts.clone(),
            places: places
                .map(|((node, ranks), service)| (*node, *ranks, *service))
                .collect(),
            left: BTreeSet::new(),
        };
        match &mut self.kind {
            Kind::None => {}
            Kind::Own(service) => service.admit(JobFiles {
                job,
                identity: mounts.identity,
                user: mounts.user.clone(),
                exports: mounts.exports.clone(),
                working: mounts.working.clone(),
                members: served.members(endpoint, job, |_, _| true),
                refused: None,
            }),
            Kind::Joined(joined) => {
                for (address, joined) in joined_of(joined, &served) {
                    joined.push(served.order(endpoint, job, address));
                }
            }
        }
        self.jobs.insert(job, served);
        let told = services.iter().map(|address| {
            Some(FileService {
                address: *address,
                user,
            })
        });
        told.collect()
    }

    /// A node of a job is known (again).
    pub fn know(&mut self, endpoint: &Endpoint, job: JobId, node: NodeId) {
        let Some(served) = self.jobs.get(&job) else {
            return;
        };
        let members = served.members(endpoint, job, |on, _| on == node);
        match &mut self.kind {
            Kind::None => {}
            Kind::Own(service) => service.add(job, members),
            Kind::Joined(joined) => {
                let place = served.places.iter().find(|(on, _, _)| *on == node);
                if let Some(joined) = place.and_then(|(_, _, at)| joined.get_mut(at)) {
                    joined.push(Order::Add {
                        job: job.0,
                        ranks: members.into_iter().map(RankKey::from).collect(),
                    });
                }
            }
        }
    }

    /// A rank of a job has ended: what it had open is closed.
    pub fn leave(&mut self, job: JobId, rank: Rank) {
        let Some(served) = self.jobs.get_mut(&job) else {
            return;
        };
        served.left.insert(rank);
        match &mut self.kind {
            Kind::None => {}
            Kind::Own(service) => service.leave(job, rank),
            Kind::Joined(joined) => {
                let mut of = served.channels(job);
                let of = of.find(|(_, _, channel)| channel.rank == rank);
                if let Some(joined) = of.and_then(|(_, at, _)| joined.get_mut(&at)) {
                    let (job, rank) = (job.0, rank.0);
                    joined.push(Order::Leave { job, rank });
                }
            }
        }
    }

    /// Ends the service for jobs that are over, and looks which services are lost.
    pub fn keep(&mut self, is_there: impl Fn(JobId) -> bool) {
        let kind = &mut self.kind;
        self.jobs.retain(|job, served| {
            let stays = is_there(*job);
            match kind {
                _ if stays => {}
                Kind::None => {}
                Kind::Own(service) => service.close(*job),
                Kind::Joined(joined) => {
                    for (_, joined) in joined_of(joined, served) {
                        joined.push(Order::Close { job: job.0 });
                    }
                }
            }
            stays
        });
        if let Kind::Joined(joined) = kind {
            for (address, joined) in joined {
                if joined.is_news_of_loss() {
                    let text = format!(
                        "the I/O service at {address} ({}) does not ask any more; calls on files wait for it, and jobs that start now call others",
                        joined.name
                    );
                    let event = Event::new(Severity::Warning, "io-service-lost", text);
                    self.events.push(event);
                }
            }
        }
    }

    /// A service asks for orders; `begins`: the question is new, and has not waited.
    ///
    /// # Errors
    /// Why it is none.
    pub fn poll(
        &mut self,
        endpoint: &Endpoint,
        poll: &Poll,
        begins: bool,
    ) -> Result<Polled, NotJoined> {
        let Kind::Joined(all) = &mut self.kind else {
            return Err(NotJoined::NotWanted);
        };
        let address = joined::address(&poll.address).map_err(NotJoined::Bad)?;
        if poll.name.is_empty() || poll.name.len() > NAME_MAX {
            let text = format!("the name of a service has 1 to {NAME_MAX} bytes");
            return Err(NotJoined::Bad(text));
        }
        if !all.contains_key(&address) {
            if all.len() >= SERVICES_MAX {
                let jobs = &self.jobs;
                let in_use = |at: &SocketAddrV4| {
                    let mut jobs = jobs.values();
                    jobs.any(|served| served.services().contains(at))
                };
                all.retain(|at, joined| joined.is_there() || in_use(at));
            }
            if all.len() >= SERVICES_MAX {
                return Err(NotJoined::TooMany);
            }
            all.insert(address, Joined::new(poll));
            self.events.push(joined_event(address, poll, "has joined"));
        }
        let joined = all.get_mut(&address).expect("there, or made above");
        let is_another = joined.run != poll.run;
        if is_another && joined.is_asking() {
            return Err(NotJoined::Taken(address));
        }
        if begins {
            if joined.asks(poll) || is_another {
                self.events.push(joined_event(address, poll, "is back"));
            }
            for problem in poll.problems.iter().take(joined::PROBLEMS_MAX) {
                if self.problems.len() == PROBLEMS_MAX {
                    self.problems.pop_front();
                }
                self.problems.push_back(Problem {
                    job: JobId(problem.job),
                    why: problem.why.chars().take(500).collect(),
                });
            }
        }
        let taken = match is_another {
            true => 0,
            false => poll.taken,
        };
        let jobs = &self.jobs;
        Ok(joined.answer(taken, || {
            let of = jobs.iter();
            let of = of.filter(|(_, served)| served.services().contains(&address));
            let told = of.flat_map(|(job, served)| {
                let left = served.left.iter().map(|rank| Order::Leave {
                    job: job.0,
                    rank: rank.0,
                });
                std::iter::once(served.order(endpoint, *job, address)).chain(left)
            });
            told.collect()
        }))
    }

    /// The question of a service has an answer, or nobody waits for it any more.
    pub fn answered(&mut self, poll: &Poll) {
        let Kind::Joined(all) = &mut self.kind else {
            return;
        };
        let address = joined::address(&poll.address).ok();
        if let Some(joined) = address.and_then(|at| all.get_mut(&at))
            && joined.run == poll.run
        {
            joined.answered();
        }
    }

    /// The services; `known` are the numbers of all nodes, ascending.
    pub fn list(&self, known: &[u32]) -> Vec<IoServiceInfo> {
        let jobs_of = |at: SocketAddrV4| {
            let jobs = self.jobs.values();
            jobs.filter(|served| served.services().contains(&at))
                .count()
        };
        match &self.kind {
            Kind::None => Vec::new(),
            Kind::Own(service) => vec![IoServiceInfo {
                address: service.address().to_string(),
                name: "control node".to_string(),
                state: IoState::Up,
                nodes: hostlist::format(known),
                node_count: known.len(),
                jobs: jobs_of(service.address()),
                counted: Counted::from(service.counters()),
                since_unix_us: None,
            }],
            Kind::Joined(joined) => {
                let there = joined.iter().filter(|(_, joined)| joined.is_there());
                let there: Vec<&SocketAddrV4> = there.map(|(address, _)| address).collect();
                let nodes_of = |address: &SocketAddrV4| -> Vec<u32> {
                    let own = there.iter().position(|other| *other == address);
                    let is_own =
                        |node: &u32| Some(psets::service_of(*node, known, there.len())) == own;
                    known.iter().copied().filter(is_own).collect()
                };
                let info = |(address, joined): (&SocketAddrV4, &Joined)| {
                    let nodes = nodes_of(address);
                    IoServiceInfo {
                        address: address.to_string(),
                        name: joined.name.clone(),
                        state: match joined.is_there() {
                            false => IoState::Lost,
                            true if nodes.len() > PSET_NODES => IoState::Crowded,
                            true => IoState::Up,
                        },
                        nodes: hostlist::format(&nodes),
                        node_count: nodes.len(),
                        jobs: jobs_of(*address),
                        counted: joined.counted,
                        since_unix_us: Some(joined.since_unix_us),
                    }
                };
                joined.iter().map(info).collect()
            }
        }
    }

    /// Where the service of this process is.
    pub fn own_address(&self) -> Option<SocketAddrV4> {
        match &self.kind {
            Kind::Own(service) => Some(service.address()),
            _ => None,
        }
    }

    /// Files that many nodes read from the service of this process; to be asked once.
    pub fn reads(&self) -> Option<Receiver<Read>> {
        match &self.kind {
            Kind::Own(service) => service.reads(),
            _ => None,
        }
    }

    /// What has become of such a file of a job.
    pub fn tell_cast(&self, job: JobId, cast: Cast) {
        if let Kind::Own(service) = &self.kind {
            service.cast(job, cast);
        }
    }

    /// The next job whose calls cannot be carried out.
    pub fn next_problem(&mut self) -> Option<Problem> {
        match &self.kind {
            Kind::Own(service) => service.next_problem(),
            _ => self.problems.pop_front(),
        }
    }

    /// What people are to know.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }
}

/// Why a process is none of the services.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotJoined {
    /// None are wanted.
    #[error(
        "this control node takes no I/O services: in its configuration set files.service = \"joined\", and files.export"
    )]
    NotWanted,
    /// What it says of itself makes no sense.
    #[error("{0}")]
    Bad(String),
    /// Another one has the address.
    #[error("another I/O service asks for orders at {0}; end it, or choose another --listen")]
    Taken(SocketAddrV4),
    /// There are too many.
    #[error("there are {SERVICES_MAX} I/O services already")]
    TooMany,
}

fn joined_event(address: SocketAddrV4, poll: &Poll, what: &str) -> Event {
    let text = format!("the I/O service at {address} ({}) {what}", poll.name);
    Event::new(Severity::Info, "io-service-joined", text)
}

/// The services that a job calls, as far as they have joined.
fn joined_of<'a>(
    joined: &'a mut BTreeMap<SocketAddrV4, Joined>,
    served: &Served,
) -> impl Iterator<Item = (SocketAddrV4, &'a mut Joined)> {
    let called = served.services();
    let joined = joined.iter_mut();
    let of = joined.filter(move |(address, _)| called.contains(address));
    of.map(|(address, joined)| (*address, joined))
}
