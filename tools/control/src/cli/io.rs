//! `hearth io`: carries out the calls of jobs on files, for the nodes that the control node gives
//! it. And `hearth nodes --io`, which lists who does.
//!
//! Key function: [`main`]. Neighbours: `hearth_io` is the service, `api::io` answers,
//! `io_service::joined` has what is said.
//!
//! Invariant: a job is served as long as the control node has it, also while that does not answer.

use std::collections::BTreeSet;
use std::net::{SocketAddrV4, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use hearth_io::{JobFiles, LINGERS_S, Service, Workers};
use netstack::files::server::Member;
use netstack::ids::{JobId, NodeId, Rank};
use netstack::wire::key::Key;
use nix::unistd::geteuid;
use socket2::{Domain, Socket, Type};
use tokio::signal::unix::{SignalKind, signal};

use super::{Global, block_on, io_reads, print_json, print_text, serve_command, table};
use crate::api::types::{IoServiceInfo, IoState};
use crate::client::{Client, RequestError};
use crate::io_service::joined::{
    self, Counted, JobProblem, NAME_MAX, Order, Orders, POLL, PROBLEMS_MAX, Poll, RankKey,
};
use crate::io_service::serves_others;
use crate::paths::StateDir;
use crate::secrets;

/// UDP port, where none is given.
const PORT: u16 = 7118;
/// How often it looks for problems while it waits for orders.
const PROBLEM_LOOKS: Duration = Duration::from_millis(20);
/// How long a control node that is gone, or one that does not answer, is left alone.
const PAUSE: Duration = Duration::from_millis(500);
/// A question that has no answer by then has none: its connection is dead.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

/// Options of `hearth io`.
#[derive(Debug, Args)]
#[command(after_help = "\
The control node wants services where its configuration has files.service = \"joined\", and says in files.export which
directories jobs see: under the same paths on each machine with a service. Needs an operator's token
(`hearth token create --role operator`). Run it as root, so that it can be the users of jobs; as another user it serves
that user's jobs alone. On SIGTERM it ends. The processes that carry calls out wait two minutes for the next one:
when that is started in time, calls go on and nothing fails. Under systemd set KillMode=process, or they are ended
with it.")]
pub struct Options {
    /// The control node, at the address of its `hearth serve --listen`; the same as --host.
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["host", "cluster", "state_dir"])]
    control: Option<String>,
    /// Where nodes reach this service: an IPv4 address of this machine in their network, and a UDP
    /// port [default port: 7118].
    #[arg(long, value_name = "A.B.C.D[:PORT]", value_parser = listen)]
    listen: SocketAddrV4,
    /// Send and receive by this network interface only.
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Where the processes listen that carry calls out, of this user alone [default: by the
    /// address, in /run/hearth-io for root and in $XDG_RUNTIME_DIR for others]. If it is given, the
    /// number of the last run is kept there, too; else in /var/lib/hearth-io for root and in
    /// $XDG_STATE_HOME for others.
    #[arg(long, value_name = "DIR")]
    run_dir: Option<PathBuf>,
}

/// Where the workers of a service at this address listen.
fn run_dir(listen: SocketAddrV4, state_dir: Option<&Path>) -> PathBuf {
    let base = match state_dir {
        Some(state) => StateDir::new(state).workers(),
        None if geteuid().is_root() => PathBuf::from("/run/hearth-io"),
        None => match std::env::var_os("XDG_RUNTIME_DIR") {
            Some(run) if !run.is_empty() => PathBuf::from(run).join("hearth-io"),
            _ => std::env::temp_dir().join(format!("hearth-io-{}", geteuid())),
        },
    };
    base.join(listen.to_string())
}

/// The file that has the number of the last run of a service at this address.
fn last_run(listen: SocketAddrV4, state_dir: Option<&Path>) -> PathBuf {
    let of_user = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty());
    let base = match state_dir {
        Some(state) => state.join("io"),
        None if geteuid().is_root() => PathBuf::from("/var/lib/hearth-io"),
        None => match (of_user("XDG_STATE_HOME"), of_user("HOME")) {
            (Some(state), _) => PathBuf::from(state).join("hearth-io"),
            (None, Some(home)) => PathBuf::from(home).join(".local/state/hearth-io"),
            (None, None) => run_dir(listen, None),
        },
    };
    base.join(format!("last-run-{listen}"))
}

fn listen(text: &str) -> Result<SocketAddrV4, String> {
    let with_port = match text.contains(':') {
        true => text.to_string(),
        false => format!("{text}:{PORT}"),
    };
    joined::address(&with_port)
}

/// Serves until it is told to end.
///
/// # Errors
/// What it cannot do at its start, or what the control node refuses.
pub fn main(global: &Global, options: Options) -> anyhow::Result<()> {
    serve_command::start_logging();
    let mut global = global.clone();
    if options.control.is_some() {
        (global.cluster, global.state_dir) = (None, None);
        global.host = options.control;
    }
    let client = global.client()?;
    let socket = open(options.listen, options.interface.as_deref())?;
    // Also when the file that it was started from is another one by now.
    let program = PathBuf::from("/proc/self/exe");
    let state_dir = global.state_dir.as_deref();
    let last_run = match &options.run_dir {
        Some(directory) => directory.join("last-run"),
        None => last_run(options.listen, state_dir),
    };
    let directory = options
        .run_dir
        .unwrap_or_else(|| run_dir(options.listen, state_dir));
    let workers = Workers {
        program,
        directory: &directory,
        lingers_s: LINGERS_S,
        last_run: &last_run,
    };
    let service = Service::start_on(socket, workers).context("cannot start the I/O service")?;
    let service = Arc::new(service);
    let mut joins = Joins::new(service.clone(), options.listen)?;
    block_on(async move {
        io_reads::start(client.clone(), service, options.listen);
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        tokio::select! {
            ended = joins.serve(&client) => ended,
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        }
    })
}

fn open(listen: SocketAddrV4, interface: Option<&str>) -> anyhow::Result<UdpSocket> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None)?;
    if let Some(interface) = interface {
        socket
            .bind_device(Some(interface.as_bytes()))
            .with_context(|| format!("cannot use the interface {interface}"))?;
    }
    socket.bind(&listen.into()).with_context(|| {
        format!("cannot listen at UDP {listen}; is it an address of this machine, and free?")
    })?;
    Ok(socket.into())
}

/// A service that has joined a control node.
struct Joins {
    service: Arc<Service>,
    poll: Poll,
    jobs: BTreeSet<JobId>,
    /// The control node does not answer, and that has been said.
    told_gone: bool,
}

impl Joins {
    fn new(service: Arc<Service>, listen: SocketAddrV4) -> anyhow::Result<Self> {
        let mut run = [0; 8];
        getrandom::fill(&mut run)
            .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut name = name.trim().to_string();
        if name.is_empty() || name.len() > NAME_MAX {
            name = listen.ip().to_string();
        }
        Ok(Joins {
            service,
            poll: Poll {
                name,
                address: listen.to_string(),
                // JSON has numbers of 53 bits.
                run: u64::from_le_bytes(run) >> 11,
                ..Poll::default()
            },
            jobs: BTreeSet::new(),
            told_gone: false,
        })
    }

    /// Does what the control node says, until it refuses.
    async fn serve(&mut self, client: &Client) -> anyhow::Result<()> {
        loop {
            self.poll.counted = Counted::from(self.service.counters());
            while self.poll.problems.len() < PROBLEMS_MAX
                && let Some(problem) = self.service.next_problem()
            {
                self.poll.problems.push(JobProblem {
                    job: problem.job.0,
                    why: problem.why,
                });
            }
            let asks = client.post::<Orders>("/v1/io/poll", &self.poll);
            let asks = tokio::time::timeout(POLL + ANSWERED_WITHIN, asks);
            let may_tell = self.poll.problems.len() < PROBLEMS_MAX;
            let answer = tokio::select! {
                answer = asks => answer,
                // It is for a job that may end in a moment. What was asked is asked again.
                () = has_problem(&self.service), if may_tell => continue,
            };
            match answer {
                Ok(Ok(orders)) => {
                    if std::mem::take(&mut self.told_gone) || self.poll.taken == 0 {
                        tracing::info!(
                            "the control node answers; serving at {}",
                            self.poll.address
                        );
                    }
                    self.poll.problems.clear();
                    self.obey(orders)?;
                }
                Ok(Err(error)) if !is_passing(&error) => return Err(error.into()),
                Ok(Err(error)) => self.wait(&error.to_string()).await,
                Err(_) => self.wait("the control node does not answer").await,
            }
        }
    }

    async fn wait(&mut self, why: &str) {
        if !std::mem::replace(&mut self.told_gone, true) {
            tracing::warn!("{why}; jobs are served meanwhile");
        }
        tokio::time::sleep(PAUSE).await;
    }

    fn obey(&mut self, orders: Orders) -> anyhow::Result<()> {
        if orders.whole {
            let served = orders.orders.iter().filter_map(|order| match order {
                Order::Serve(job) => Some(JobId(job.job)),
                _ => None,
            });
            let served: BTreeSet<JobId> = served.collect();
            self.jobs.retain(|job| served.contains(job));
            self.service.close_others(served);
        }
        for order in orders.orders {
            match order {
                Order::Serve(job) => {
                    let id = JobId(job.job);
                    // A control node that is not root serves the user who it is, whom it calls by
                    // no number: on this machine that may be another.
                    let refused = (job.user.is_none() && serves_others()).then(|| {
                        "the control node does not run as root and names no user; start this I/O service as the user who it runs as".to_string()
                    });
                    self.service.admit(JobFiles {
                        job: id,
                        identity: job.identity,
                        user: job.user,
                        exports: job.exports,
                        working: job.working,
                        members: members(job.ranks)?,
                        refused,
                    });
                    self.jobs.insert(id);
                }
                Order::Add { job, ranks } => self.service.add(JobId(job), members(ranks)?),
                Order::Leave { job, rank } => self.service.leave(JobId(job), Rank(rank)),
                Order::Close { job } => {
                    self.service.close(JobId(job));
                    self.jobs.remove(&JobId(job));
                }
            }
        }
        self.poll.taken = orders.taken;
        Ok(())
    }
}

/// Waits until there is a problem to tell.
async fn has_problem(service: &Service) {
    while !service.has_problem() {
        tokio::time::sleep(PROBLEM_LOOKS).await;
    }
}

/// Whether it may be otherwise in a moment.
fn is_passing(error: &RequestError) -> bool {
    error.is_gone() || matches!(error.code(), Some("address-taken" | "internal"))
}

fn members(ranks: Vec<RankKey>) -> anyhow::Result<Vec<Member>> {
    let member = |of: RankKey| {
        let key = secrets::decode_hex(&of.key)
            .map(Key)
            .filter(|key| !key.is_zero());
        let Some(key) = key else {
            bail!("the control node sent a key that is none; is it of another version?")
        };
        let address = of.address.parse().with_context(|| {
            format!(
                "the control node says that a node is at {:?}; is it of another version?",
                of.address
            )
        })?;
        Ok(Member {
            rank: Rank(of.rank),
            node: NodeId(of.node),
            address,
            key,
        })
    };
    ranks.into_iter().map(member).collect()
}

/// Prints the services.
pub(super) fn list(global: &Global, client: &Client) -> anyhow::Result<()> {
    let services: Vec<IoServiceInfo> = block_on(async { Ok(client.get("/v1/io").await?) })?;
    if global.json {
        return print_json(&services);
    }
    let mut rows = table::new(&[
        "SERVICE", "MACHINE", "STATE", "NODES", "COUNT", "JOBS", "CALLS", "READ", "WRITTEN",
    ]);
    for service in &services {
        let state = match service.state {
            IoState::Up => "up",
            IoState::Crowded => "crowded",
            IoState::Lost => "lost",
        };
        let nodes = Some(service.nodes.clone()).filter(|nodes| !nodes.is_empty());
        rows.add_row([
            service.address.clone(),
            table::name(&service.name),
            state.to_string(),
            table::or_dash(nodes),
            service.node_count.to_string(),
            service.jobs.to_string(),
            service.counted.calls.to_string(),
            table::mebibytes(service.counted.sent_bytes),
            table::mebibytes(service.counted.received_bytes),
        ]);
    }
    print_text(&table::text(&rows))
}
