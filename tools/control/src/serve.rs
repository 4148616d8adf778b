//! Starts the control node: state directory, secrets, sockets, boot service, tasks; and stops it.
//!
//! Key types: [`Options`], [`run`]. Neighbours: `cli::serve_command` fills in the options,
//! `control::drive` is the task that runs until the end.
//!
//! Invariant: the unix socket appears last, so whoever can connect finds everything working; one
//! control node at a time has a state directory (a lock held to the end of the process).

mod listeners;

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Extension;
use axum::extract::ConnectInfo;
use hearth_alloc::topology::Topology;
use hearth_boot::http_server;
use hearth_io::{LINGERS_S, Service, Workers};
use hearth_power::Power;
use hearth_qemu::Tree;
use netstack::broadcast::Peer;
use netstack::control as protocol;
use netstack::ids::{BootEpoch, ControlEpoch};
use netstack::time::Micros;
use netstack::wire::key::Key;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::api::{self, Api, auth, bounded};
use crate::boot::Bridge;
use crate::casts::{self, Casts};
use crate::clock::{self, Clock};
use crate::control::{self, Core, Shared};
use crate::drops::Drops;
use crate::events::{Event, EventLog, Severity};
use crate::hosts::Hosts;
use crate::io_service::{self, IoServices};
use crate::jobs::kept::{self, Outputs};
use crate::jobs::{self, Runner};
use crate::monitor::{self, Monitor};
use crate::node_logs::NodeLogs;
use crate::nodes::{Admission, Machine, NodeTable};
use crate::outgoing::Outgoing;
use crate::overlay::Overlay;
use crate::paths::StateDir;
use crate::people::People;
use crate::programs::ProgramStore;
use crate::site_tree::Network;
use crate::{config, ledger, overlay, paths, power, reading, secrets, udp};

/// Number of the cluster secret in personalities. Secrets are not rotated yet.
pub const KEY_ID: u32 = 1;

/// What was measured last is in the files within this time, or lost.
const FILES_LIMIT: Duration = Duration::from_secs(1);

/// Where the HTTP API listens on TCP.
#[derive(Debug)]
pub enum Http {
    /// Nowhere.
    None,
    /// At this address.
    Address(SocketAddr),
    /// On the listening socket that is this process's standard input.
    Stdin,
}

/// Everything `hearth serve` decides.
#[derive(Debug)]
pub struct Options {
    /// The configuration file's values, for what is not below.
    pub config: config::Config,
    /// State directory.
    pub state: StateDir,
    /// Interface of the boot service; none: no boot service (nodes have lab keys).
    pub interface: Option<String>,
    /// Address and prefix of control on it, or where to listen without a boot service.
    pub address: Option<(Ipv4Addr, u8)>,
    /// UDP port of the control protocol; 0: any.
    pub control_port: u16,
    /// TCP port of the boot service.
    pub boot_http_port: u16,
    /// The API on TCP, on loopback.
    pub http: Http,
    /// Where the API listens with TLS, for other machines.
    pub listen: Option<SocketAddr>,
    /// Boot image.
    pub image: PathBuf,
    /// Network boot firmware.
    pub firmware_dir: Option<PathBuf>,
    /// `FIRST-LAST`.
    pub range: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Fixed leases.
    pub nodes_file: Option<PathBuf>,
    /// Kernel command line.
    pub command_line: String,
    /// Beside another DHCP server.
    pub proxy_dhcp: bool,
    /// Shape of the network.
    pub network: Option<Network>,
    /// Take nodes with laboratory keys.
    pub lab_keys: bool,
    /// What machines boot instead of hearth.
    pub other: Option<hearth_boot::OtherSystem>,
}

impl Options {
    /// The tree of switches, if there is one.
    fn tree(&self) -> Option<&Tree> {
        self.network.as_ref().map(|network| &network.tree)
    }
}

/// Runs the control node until it is told to stop.
///
/// # Errors
/// What stops it from starting, and what to do about it.
pub async fn run(options: Options) -> anyhow::Result<()> {
    paths::make_files_private();
    bounded::raise_limit();
    let _lock = prepare_state(&options.state)?;
    let clock = Clock::start();
    let mut past = open_ledger(&options)?;
    let table = match &options.nodes_file {
        Some(file) => NodeTable::fixed(file)?,
        None => NodeTable::growing(past.nodes.iter().map(|row| Machine {
            mac: row.mac,
            address: None,
            node: row.node,
        })),
    };
    let table = table.admitting(Admission::of(&options.config.admission));
    let hosts = Arc::new(Hosts::of(table.names()));
    let address = control_address(&options)?;
    let listen = SocketAddrV4::new(
        address.map_or(Ipv4Addr::LOCALHOST, |(ip, _)| ip),
        options.control_port,
    );
    let socket = udp::open(listen).with_context(|| {
        format!("cannot listen at UDP {listen}; is another control node running there?")
    })?;
    let listen = udp::address(&socket)?;
    let token = secrets::token(&options.state.token())?;
    let people = Arc::new(People::new(&options.config.api.operators));
    let notices = std::mem::take(&mut past.notices);
    let instance = instance_text(past.instance);
    let checkpointer = past.checkpointer.clone();
    let shared = control_state(&options, clock, table, hosts.clone(), listen, past)?;
    let boot = start_boot_service(&options, &shared, address, listen).await?;
    let tcp = listeners::tcp_listener(&options.http)?;
    let network = match options.listen {
        None => None,
        Some(address) => Some((
            listeners::bind(address, "--listen")?,
            listeners::certificate(&options.state)?,
        )),
    };
    let status = api::types::Status {
        version: env!("CARGO_PKG_VERSION").to_string(),
        instance,
        pid: std::process::id(),
        control: listen.to_string(),
        http: tcp
            .as_ref()
            .and_then(|tcp| tcp.local_addr().ok())
            .map(|address| address.to_string()),
        listen: network
            .as_ref()
            .and_then(|(listener, _)| listener.local_addr().ok())
            .map(|address| address.to_string()),
        fingerprint: network.as_ref().map(|(_, of)| of.fingerprint.to_string()),
        interface: options.interface.clone(),
        proxy_dhcp: options.proxy_dhcp,
        tree: widths(options.tree()),
        uplinks: topology(&options)?.map_or_else(Vec::new, |tree| tree.uplinks().to_vec()),
        started_unix_us: clock::unix_us(),
        store: None,
        counters: std::collections::BTreeMap::new(),
    };
    announce(&shared, &status);
    for event in notices {
        shared.lock().events.push(event);
    }
    tokio::spawn(ledger::checkpoints(checkpointer.clone()));
    tokio::spawn(look_over(shared.clone(), options.state.store()));
    let newest_event = shared.lock().events.newest();
    let monitor = monitor(&options, &status, newest_event, hosts.clone());
    tokio::spawn(monitor::sample::run(shared.clone(), monitor.clone()));
    let switch = switch(&options, address)?;
    tokio::spawn(power::watch(shared.clone(), switch.clone()));
    let routes = api::router(Api {
        monitor: monitor.clone(),
        switch,
        shared: shared.clone(),
        boot: boot.clone(),
        status: Arc::new(status),
        clock,
        hosts,
        files: Arc::new(options.config.files.clone()),
    });
    let (unix_max, tcp_max) = bounded::limits();
    let access = auth::Access {
        shared: shared.clone(),
        people: people.clone(),
        token,
        owner: people.own_name(),
        open: true,
    };
    if let Some(tcp) = tcp {
        let who = axum::middleware::from_fn_with_state(access.clone(), auth::over_tcp);
        let routes = routes.clone().layer(who);
        bounded::little_buffer(&tcp);
        let connect = move |stream, address| {
            let (held, peer) = bounded::Held::new(stream, address);
            let routes = routes.clone().layer(Extension(ConnectInfo(peer)));
            (held, routes)
        };
        let limits = bounded::tcp_limits(tcp_max);
        tokio::spawn(http_server::serve(tcp, limits, connect));
    }
    if let Some((listener, certificate)) = network {
        let access = auth::Access {
            open: false,
            ..access
        };
        let who = axum::middleware::from_fn_with_state(access, auth::over_tcp);
        let routes = routes.clone().layer(who);
        bounded::little_buffer(&listener);
        let connect = move |stream, address| {
            let (held, peer) = bounded::Held::new(stream, address);
            let routes = routes.clone().layer(Extension(ConnectInfo(peer)));
            (certificate.accept(held), routes)
        };
        let limits = bounded::tcp_limits(tcp_max);
        tokio::spawn(http_server::serve(listener, limits, connect));
    }
    // Before anybody can know that control runs, and end it.
    let signals = Signals::install()?;
    let group = listeners::socket_group(&people, &options.config.api);
    let unix = listeners::unix_listener(&options.state, group)?;
    let unix = bounded::Bounded::new(unix, unix_max);
    let who = axum::middleware::from_fn_with_state(people, auth::at_socket);
    let routes = routes.layer(who);
    let routes = routes.into_make_service_with_connect_info::<bounded::LocalPeer>();
    tokio::spawn(async move { axum::serve(unix, routes).await });
    let left = shared.clone();
    std::thread::spawn(move || reading::run(&left));
    let reads = shared.lock().io_services.reads();
    if let Some(reads) = reads {
        let shared = Arc::downgrade(&shared);
        std::thread::spawn(move || io_service::reads::run(&shared, &reads));
    }
    let writers = Arc::new(kept::files::Writers::new(shared.outputs.clone()));
    tokio::spawn(write_files(shared.clone(), writers.clone()));
    let on_join = move |joined: control::Joined| {
        if let Some(boot) = &boot {
            // The completed record is for callers that want to show it.
            drop(boot.joined(hearth_boot::Mac(joined.mac), joined.epoch, joined.node));
        }
    };
    let stop = stop(shared.clone(), signals);
    control::drive(shared.clone(), socket, on_join, stop).await?;
    shared.lock().settle(shared.now());
    // What jobs have written last. Whoever could hear of a failure hears nothing any more.
    drop(tokio::task::spawn_blocking(move || writers.write()).await);
    ledger::checkpoint(checkpointer).await;
    if !tokio::task::spawn_blocking(move || monitor.finish(FILES_LIMIT)).await? {
        tracing::warn!(
            "the last values of the nodes were not kept: the disk has failed or took longer than {FILES_LIMIT:?}"
        );
    }
    // The socket file is the sign of a running control node.
    drop(std::fs::remove_file(options.state.socket()));
    Ok(())
}

/// The service for the files of jobs, beside the control socket: at the port behind it, so that
/// nodes find it there after a restart.
fn own_io_service(options: &Options, control: SocketAddrV4) -> anyhow::Result<Option<Service>> {
    let files = &options.config.files;
    if files.export.is_empty() || files.service == config::FileService::Joined {
        return Ok(None);
    }
    let port = match options.control_port {
        0 => 0,
        port => port
            .checked_add(1)
            .context("the control port leaves no port for files behind it")?,
    };
    let listen = SocketAddrV4::new(*control.ip(), port);
    // Also when the file that it was started from is another one by now.
    let workers = Workers {
        program: PathBuf::from("/proc/self/exe"),
        directory: &options.state.workers(),
        lingers_s: LINGERS_S,
        last_run: &options.state.io_run(),
    };
    let service = Service::start(listen, workers).with_context(|| {
        format!("cannot listen at UDP {listen} for the files of jobs; is another program there?")
    })?;
    Ok(Some(service))
}

/// How machines are switched: those of a QEMU cluster by its supervisor, whatever is configured.
fn switch(
    options: &Options,
    address: Option<(Ipv4Addr, u8)>,
) -> anyhow::Result<Arc<power::Switch>> {
    let config = &options.config.power;
    let power = match paths::qemu_paths(options.state.path()) {
        Some(paths) => Power::of_qemu(paths),
        None => Power::of(config, address.map(|(address, _)| address))?,
    };
    Ok(power::Switch::new(power, config.reset_lost_after_s))
}

/// Writes the files that users asked for; one that cannot be written is an event.
async fn write_files(shared: Arc<Shared>, writers: Arc<kept::files::Writers>) {
    let tell = |kept::files::Unwritten { job, text }| {
        let mut core = shared.lock();
        core.runner.tell_trouble(job, &text);
        let event = Event::new(Severity::Warning, "output-file", text).job(job);
        core.events.push(event);
    };
    kept::files::write(writers, tell).await;
}

/// Requests to end, from when they are installed on.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn install() -> anyhow::Result<Self> {
        let install = |kind| signal(kind).context("cannot install a signal handler");
        Ok(Signals {
            terminate: install(SignalKind::terminate())?,
            interrupt: install(SignalKind::interrupt())?,
        })
    }
}

/// Completes when the process was told to end. Jobs go on, and are found again by the next start.
async fn stop(shared: Arc<Shared>, mut signals: Signals) {
    tokio::select! {
        _ = signals.terminate.recv() => {}
        _ = signals.interrupt.recv() => {}
        () = shared.stop_asked() => {}
    }
    let mut core = shared.lock();
    core.runner.stop_starting();
    core.events.push(Event::new(
        Severity::Info,
        "control-stopped",
        "control stopped",
    ));
}

/// Has people know of damage in the store.
async fn look_over(shared: Arc<Shared>, store: PathBuf) {
    if let Some(event) = ledger::look_over(store).await {
        shared.lock().events.push(event);
    }
}

/// What shows and keeps pictures of this cluster.
fn monitor(
    options: &Options,
    status: &api::types::Status,
    newest_event: Arc<AtomicU64>,
    hosts: Arc<Hosts>,
) -> Arc<Monitor> {
    let kept = &options.config.monitor;
    let widths = options.tree().map(|tree| tree.widths().to_vec());
    Monitor::new(monitor::Setup {
        dir: Some(options.state.monitor()),
        limits: Some(hearth_monitor::Limits {
            days: kept.days,
            bytes: kept.bytes,
        }),
        tree: widths
            .unwrap_or_default()
            .into_iter()
            .map(u32::from)
            .collect(),
        cluster: paths::cluster_name(&options.state, &options.config.serve.state_dir),
        version: status.version.clone(),
        started_unix_us: status.started_unix_us,
        newest_event,
        hosts,
    })
}

fn announce(shared: &Shared, status: &api::types::Status) {
    let interface = status
        .interface
        .as_deref()
        .map(|name| format!(", boot service on {name}"));
    let text = format!(
        "control {} started at {}{}",
        status.version,
        status.control,
        interface.unwrap_or_default()
    );
    shared
        .lock()
        .events
        .push(Event::new(Severity::Info, "control-started", text));
}

/// Creates the state directory and takes its lock.
fn prepare_state(state: &StateDir) -> anyhow::Result<nix::fcntl::Flock<std::fs::File>> {
    let run = state.run();
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&run)
        .with_context(|| {
            format!(
                "cannot create {}; choose another --state-dir",
                run.display()
            )
        })?;
    take_rights_of_others(state)?;
    let lock = std::fs::File::create(state.lock())
        .with_context(|| format!("cannot write in {}", run.display()))?;
    nix::fcntl::Flock::lock(lock, nix::fcntl::FlockArg::LockExclusiveNonblock).map_err(
        |(_, error)| {
            anyhow::anyhow!(
                "another control node has {} ({error}); stop it or choose another --state-dir",
                state.path().display()
            )
        },
    )
}

/// What an earlier version has made for others to read as well is its owner's alone. Not so the
/// secret and the token: who has seen these has them, so that their owner is told (`secrets`).
fn take_rights_of_others(state: &StateDir) -> anyhow::Result<()> {
    let folders = [
        state.run(),
        state.programs(),
        state.outputs(),
        state.monitor(),
    ];
    let files = [state.events(), state.store()];
    let folders = folders.into_iter().map(|path| (path, 0o700));
    for (path, mode) in folders.chain(files.into_iter().map(|path| (path, 0o600))) {
        match std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                let text = format!("cannot make {} its owner's alone", path.display());
                return Err(error).context(text);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where control is on the boot network.
fn control_address(options: &Options) -> anyhow::Result<Option<(Ipv4Addr, u8)>> {
    match (&options.interface, options.address) {
        (_, Some(address)) => Ok(Some(address)),
        (Some(interface), None) => interface_address(interface).map(Some),
        (None, None) => Ok(None),
    }
}

/// The first IPv4 address of an interface, with its prefix length.
pub fn interface_address(interface: &str) -> anyhow::Result<(Ipv4Addr, u8)> {
    let mut known = std::collections::BTreeSet::new();
    for entry in nix::ifaddrs::getifaddrs().context("cannot list the network interfaces")? {
        known.insert(entry.interface_name.clone());
        if entry.interface_name != interface {
            continue;
        }
        let address = entry
            .address
            .as_ref()
            .and_then(|address| address.as_sockaddr_in());
        let mask = entry
            .netmask
            .as_ref()
            .and_then(|mask| mask.as_sockaddr_in());
        if let (Some(address), Some(mask)) = (address, mask) {
            let prefix = u8::try_from(mask.ip().to_bits().leading_ones()).expect("at most 32");
            return Ok((address.ip(), prefix));
        }
    }
    if known.contains(interface) {
        bail!(
            "{interface} has no IPv4 address; give it one (`ip address add 10.117.0.1/16 dev {interface}`)"
        );
    }
    let known: Vec<String> = known.into_iter().collect();
    bail!(
        "there is no interface {interface}; there are {}",
        known.join(", ")
    )
}

/// Opens the store.
fn open_ledger(options: &Options) -> anyhow::Result<ledger::Opened> {
    let config = &options.config;
    let limits = hearth_store::Limits {
        jobs: config.store.jobs_max,
        events: config.store.events_max,
        programs: config.store.programs_max,
    };
    let rows = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let wanted = ledger::Wanted {
        jobs: rows(config.jobs.history_max),
        events: rows(config.events.ring_max),
        // The store's numbers are below 2^63.
        instance: random_u64()? >> 1,
    };
    ledger::open(&options.state.store(), limits, wanted)
        .context("the control node does not start without its store")
}

fn control_state(
    options: &Options,
    clock: Clock,
    table: NodeTable,
    hosts: Arc<Hosts>,
    listen: SocketAddrV4,
    past: ledger::Opened,
) -> anyhow::Result<Arc<Shared>> {
    let secret = secrets::cluster_secret(&options.state.secret())?;
    let limits = &options.config.jobs;
    let programs = ProgramStore::open(
        &options.state.programs(),
        limits.program_cache_bytes,
        limits.program_max_bytes,
    )?;
    let random = random_u64()?;
    let peer_key = Key(random_bytes()?);
    let mut endpoint = protocol::Endpoint::new(protocol::Config {
        cluster_secret: secret.0,
        key_id: KEY_ID,
        version: version_bytes(),
        accept_lab_keys: options.lab_keys,
        control_epoch: ControlEpoch(random),
        peer_key,
        seed: random_u64()?,
        timing: netstack::join::Timing {
            keep_job: Micros::from_secs(limits.without_control_s),
            ..netstack::join::Timing::default()
        },
        limits: protocol::Limits::default(),
    });
    endpoint.admit_only(table.admitted());
    for row in past.nodes {
        let boots = row.earlier_boots.into_iter().chain(row.boot_epoch);
        boots.for_each(|boot| endpoint.remember_boot(row.mac, BootEpoch(boot)));
    }
    let path = options.state.outputs();
    let outputs = Outputs::open(&path, limits.output_max_bytes, limits.output_total_bytes)
        .with_context(|| format!("cannot keep the output of jobs in {}", path.display()))?;
    let setup = jobs::Setup {
        jobs: limits.clone(),
        queue: options.config.queue.clone(),
        retention: options.config.retention.clone(),
        broadcast: options.config.broadcast.clone(),
        topology: topology(options)?,
        places: options.network.as_ref().and_then(|of| of.places.clone()),
        outputs: outputs.clone(),
        next_job: past.next_job.max(outputs.highest() + 1),
        instance: instance_text(past.instance),
    };
    let mut runner = Runner::new(setup).context("queue.unit")?;
    for machine in table.machines() {
        runner.know_node(machine.node);
    }
    runner.restore_drained(past.drained);
    runner.remember(past.jobs);
    runner.restore(clock.now_us(), past.open, &programs);
    let kept = &options.config.events;
    let mut events = EventLog::open(&options.state.events(), kept.ring_max, kept.file_max_bytes);
    events.resume(past.events, past.next_event);
    let setup = casts::Setup {
        me: Peer {
            addr: listen,
            mac: interface_mac(*listen.ip()),
        },
        key: peer_key,
        seed: random_u64()?,
        config: options.config.broadcast.clone(),
        leaf_width: widths(options.tree()).first().copied().unwrap_or(0),
        files: past.files,
        next_id: past.next_cast,
    };
    let own = own_io_service(options, listen)?;
    let io_services = IoServices::new(&options.config.files, own);
    let now = netstack::time::Instant::from_micros(clock.now_us());
    let mut casts = Casts::new(setup, now);
    casts.resume(now, past.casts, &programs);
    let setup = overlay::Setup {
        me: Peer {
            addr: listen,
            mac: interface_mac(*listen.ip()),
        },
        key: peer_key,
        seed: random_u64()?,
        config: options.config.overlay.clone(),
        link_rate: options.config.broadcast.rate.bytes_per_second() * 8,
        hosts,
    };
    let mut overlay = Overlay::new(setup, now).map_err(anyhow::Error::msg)?;
    overlay.reopen(now, past.streams, |job| runner.present(job).is_some());
    let core = Core {
        endpoint,
        casts,
        io_services,
        runner,
        table,
        events,
        ledger: past.ledger,
        tokens: past.tokens,
        boots: std::collections::BTreeMap::new(),
        joined_unix_ms: std::collections::BTreeMap::new(),
        draining: std::collections::BTreeSet::new(),
        joined: Vec::new(),
        drops: Drops::default(),
        overlay,
        outgoing: Outgoing::default(),
        node_logs: NodeLogs::default(),
        passes: control::Passes::default(),
    };
    let shared = Shared::new(core, clock, programs, past.history, outputs);
    // What became of the jobs of the earlier run is written down before anybody asks.
    let mut core = shared.lock();
    core.write_down(now);
    core.with_runner(now, |runner, now_us, fabric| runner.adopt(now_us, fabric));
    core.settle(now);
    drop(core);
    Ok(shared)
}

/// The MAC address of the interface that has an address; zeros where it has none, as loopback.
/// Nodes of the same network send to it without asking.
fn interface_mac(address: Ipv4Addr) -> [u8; 6] {
    let Ok(found) = nix::ifaddrs::getifaddrs() else {
        return [0; 6];
    };
    let all: Vec<_> = found.collect();
    let has = |entry: &&nix::ifaddrs::InterfaceAddress| {
        let own = entry.address.as_ref().and_then(|own| own.as_sockaddr_in());
        own.is_some_and(|own| own.ip() == address)
    };
    let name = all.iter().find(has).map(|entry| &entry.interface_name);
    let macs = all
        .iter()
        .filter(|entry| Some(&entry.interface_name) == name);
    let mut macs = macs.filter_map(|entry| entry.address.as_ref()?.as_link_addr()?.addr());
    macs.next().unwrap_or_default()
}

/// The tree that jobs are placed in: the one whose places the nodes' personalities have.
fn topology(options: &Options) -> anyhow::Result<Option<Topology>> {
    let uplinks = &options.config.serve.uplinks;
    let Some(tree) = options.tree() else {
        if !uplinks.is_empty() {
            bail!(
                "serve.uplinks in the configuration needs a tree: set serve.tree, or give --tree"
            );
        }
        return Ok(None);
    };
    let topology = Topology::new(&widths(Some(tree))).with_context(|| format!("--tree {tree}"))?;
    Ok(Some(match uplinks.is_empty() {
        true => topology,
        false => topology
            .with_uplinks(uplinks)
            .with_context(|| format!("serve.uplinks in the configuration, for --tree {tree}"))?,
    }))
}

fn widths(tree: Option<&Tree>) -> Vec<u32> {
    let widths = tree.into_iter().flat_map(|tree| tree.widths());
    widths.map(|&width| width.into()).collect()
}

/// Version of this build as the protocol carries it: text, zero-padded.
pub fn version_bytes() -> [u8; 16] {
    let mut bytes = [0; 16];
    let text = env!("CARGO_PKG_VERSION").as_bytes();
    let length = text.len().min(bytes.len());
    bytes[..length].copy_from_slice(&text[..length]);
    bytes
}

/// The number of the cluster as it is told.
fn instance_text(instance: u64) -> String {
    format!("{instance:016x}")
}

fn random_u64() -> anyhow::Result<u64> {
    random_bytes().map(u64::from_le_bytes)
}

fn random_bytes<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|error| anyhow::anyhow!("the system gives no random numbers: {error}"))?;
    Ok(bytes)
}

async fn start_boot_service(
    options: &Options,
    shared: &Arc<Shared>,
    address: Option<(Ipv4Addr, u8)>,
    listen: SocketAddrV4,
) -> anyhow::Result<Option<Arc<hearth_boot::Service>>> {
    let (Some(interface), Some((ip, prefix))) = (&options.interface, address) else {
        return Ok(None);
    };
    let http = SocketAddrV4::new(ip, options.boot_http_port);
    let mut config = hearth_boot::Config::new(interface, ip, prefix, options.image.clone());
    config.http = http;
    config.command_line = options.command_line.clone();
    config.proxy_dhcp = options.proxy_dhcp;
    config.other = options.other.clone();
    config.drives = |vendor, device| kernel_core::nic::driver::driver(vendor, device).is_some();
    config.lease_file = Some(options.state.path().join("leases.json"));
    if let Some(dir) = &options.firmware_dir {
        config.firmware_dir = dir.clone();
    }
    if let Some((first, last)) = options.range {
        config.leases = hearth_boot::Leases::Range { first, last };
    }
    if options.nodes_file.is_some() {
        let core = shared.lock();
        let lease = |machine: &crate::nodes::Machine| {
            let address = machine.address?;
            let mac = hearth_boot::Mac(machine.mac);
            Some(hearth_boot::FixedLease {
                mac,
                address,
                node: machine.node,
            })
        };
        config.leases =
            hearth_boot::Leases::Fixed(core.table.machines().filter_map(lease).collect());
    }
    let bridge = Arc::new(Bridge {
        shared: shared.clone(),
        control_address: ip,
        control_port: listen.port(),
        http_port: options.boot_http_port,
        key_id: KEY_ID,
        tree: options.tree().cloned(),
    });
    let listener = tokio::net::TcpListener::bind(http).await.with_context(|| {
        format!("cannot listen at TCP {http} for nodes that boot; choose another --boot-http-port")
    })?;
    let service = hearth_boot::Service::start(config, bridge.clone(), bridge)
        .context("`hearth doctor` may know more")?;
    let service = Arc::new(service);
    tokio::spawn(service.serve_http(listener));
    Ok(Some(service))
}
