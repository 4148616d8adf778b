//! `hearth up`, `down`, `list`, `console`, `node reset`: clusters of QEMU nodes. The work is done
//! in `hearth_qemu`.
//!
//! Key types: the options. Invariant: `supervise` runs before any thread or runtime is started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use hearth_qemu::{
    Accelerator, AcceleratorChoice, Firmware, Launcher, Paths, Progress, Rate, Record, Spec, Tree,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{Global, print_json, print_text, table};
use crate::api::types::{CancelRequest, JobState, NodeInfo, NodeState, QueuedJob};
use crate::client::Client;
use crate::output::{count, count_of};
use crate::{config, hostlist};

/// Name of a cluster that was given none.
const DEFAULT_NAME: &str = "default";
/// Jobs that `hearth down` names.
const JOBS_SHOWN: usize = 10;
/// How long it waits for jobs that it has ended: a node that does not answer does not keep a cluster up.
const JOBS_END_WITHIN: Duration = Duration::from_secs(5);

/// Rate of casts in a cluster whose links have no limit and whose configuration names none: what a few
/// emulated machines take in on a machine of a few cores. Faster, they lose what they cannot take, and it
/// is sent again.
const EMULATED_RATE: &str = "100mbit";

/// How long a node that was switched off and on may take to join: emulated firmware on a busy
/// machine takes a minute.
const RESET_LIMIT: Duration = Duration::from_secs(110);

/// Options of `hearth up`.
#[derive(Debug, Args)]
pub struct UpOptions {
    /// Number of nodes.
    #[arg(long, default_value_t = 4, value_name = "N")]
    nodes: u32,
    /// Memory of each node.
    #[arg(long, default_value = "48M", value_name = "SIZE", value_parser = hearth_qemu::parse_memory_mib)]
    memory: u32,
    /// Tree of switches, widths from the leaves up: 4x2 is four nodes on each of two leaf
    /// switches [default: one switch].
    #[arg(long, value_name = "WxW")]
    tree: Option<Tree>,
    /// Rate limit of every link in each direction, as in 50mbit [default: none].
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// Firmware that boots the nodes over the network.
    #[arg(long, value_enum, default_value_t = FirmwareChoice::Bios, conflicts_with = "direct")]
    firmware: FirmwareChoice,
    /// No network boot: QEMU places the image itself, which is faster.
    #[arg(long)]
    direct: bool,
    /// What executes the nodes' instructions: the processor (kvm), QEMU's emulation (tcg), or
    /// the processor if a probe machine runs within two seconds (auto).
    #[arg(long, default_value = "auto", value_name = "auto|kvm|tcg")]
    accel: AcceleratorChoice,
    /// Boot image [default: hearth.efi beside this program].
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// More kernel command line for the nodes.
    #[arg(long, value_name = "TEXT")]
    append: Option<String>,
    /// Address at which the HTTP API is reached from outside; port 0 takes any free one.
    #[arg(long, default_value = "127.0.0.1:0", value_name = "ADDR")]
    http: SocketAddr,
    /// Return when the machines are switched on, without waiting for the nodes to join.
    #[arg(long)]
    no_wait: bool,
    /// The machines' clocks count instructions instead of time; slow, for measurements.
    #[arg(long)]
    icount: bool,
    /// Have each machine's QEMU log what its processor does, to logs/NODE.trace in the state directory:
    /// items of QEMU's -d, as in int for interrupts and exceptions.
    #[arg(long, value_name = "ITEMS")]
    trace: Option<String>,
    #[command(flatten)]
    other: super::serve_command::OtherSystem,
    /// Stands for the option of every command, which this one refuses, so that `--help` has none.
    #[arg(long, value_name = "DIR", hide = true)]
    state_dir: Option<PathBuf>,
}

/// Which firmware.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum FirmwareChoice {
    /// SeaBIOS and iPXE.
    Bios,
    /// OVMF.
    Uefi,
}

/// Options of `hearth list`.
#[derive(Debug, Args)]
pub struct ListOptions {
    /// List the machines of one cluster instead.
    #[arg(long)]
    machines: bool,
}

/// Options of `hearth console`.
#[derive(Debug, Args)]
pub struct ConsoleOptions {
    /// The node.
    #[arg(value_name = "NODE")]
    node: String,
}

/// Options of `hearth down`.
#[derive(Debug, Args)]
pub struct DownOptions {
    /// Keep the serial logs and the logs of QEMU and control.
    #[arg(long)]
    keep_logs: bool,
    /// End jobs without asking.
    #[arg(long, short)]
    yes: bool,
}

/// Arguments of the supervisor process.
#[derive(Debug, Args)]
pub struct SuperviseOptions {
    /// The cluster.
    name: String,
}

/// Starts a cluster and, unless told otherwise, waits until all nodes have joined.
pub fn up(global: &Global, options: UpOptions) -> anyhow::Result<()> {
    if global.state_dir.is_some() {
        let text = "`hearth up` keeps its state by cluster name; use --cluster NAME instead of --state-dir";
        return Err(super::exit::Usage(text.to_string()).into());
    }
    // Before anything of its state is made, by this process or by the supervisor.
    crate::paths::make_files_private();
    let name = global
        .cluster
        .clone()
        .unwrap_or_else(|| DEFAULT_NAME.to_string());
    let paths = Paths::of_cluster(&name)?;
    if global.config.is_some() {
        // Control reads it itself; told here, an error costs no network and no processes.
        global.load_config()?;
    }
    let launcher = launcher(global, &name, &options)?;
    let wait = !options.no_wait;
    let accel = options.accel;
    let mut spec = spec(name, options)?;
    let began = Instant::now();
    let (accelerator, refusal) = hearth_qemu::choose_accelerator(accel, &spec)?;
    spec.accelerator = accelerator;
    if let Some(refusal) = refusal.filter(|_| !global.json) {
        crate::output::say_line(format_args!(
            "the nodes are emulated, not run by KVM: {refusal} (--accel tcg does not try)"
        ));
    }
    let interrupted = watch_interrupts()?;
    let mut display = Display::new(global.json);
    let result = hearth_qemu::up(&spec, &paths, &launcher, wait, &mut |progress| {
        display.show(progress);
        if interrupted.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    display.clear();
    let record = result?;
    if global.json {
        return print_json(&record);
    }
    let joined = if wait { "joined" } else { "switched on" };
    print_text(&format!(
        "cluster {}: {} {joined} after {:.1} s; HTTP API at http://{}\n",
        spec.name,
        count(spec.nodes, "node"),
        began.elapsed().as_secs_f64(),
        record.http
    ))
}

fn spec(name: String, options: UpOptions) -> anyhow::Result<Spec> {
    let image = match options.image {
        Some(image) => image,
        None => super::serve_command::default_image()?,
    };
    let firmware = match (options.direct, options.firmware) {
        (true, _) => Firmware::Direct,
        (false, FirmwareChoice::Bios) => Firmware::Bios,
        (false, FirmwareChoice::Uefi) => Firmware::Uefi,
    };
    let mut command_line = config::defaults().boot.command_line;
    if let Some(more) = &options.append {
        command_line = format!("{command_line} {more}");
    }
    Ok(Spec {
        name,
        nodes: options.nodes,
        memory_mib: options.memory,
        tree: options.tree.unwrap_or_else(|| Tree::flat(options.nodes)),
        rate: options.rate,
        firmware,
        accelerator: Accelerator::default(),
        image,
        command_line,
        instruction_clock: options.icount,
        trace: options.trace,
    })
}

/// The commands of the processes behind a cluster: this program in other roles. Their
/// configuration is the one given explicitly or the defaults: the user's own is for `serve` on
/// real hardware.
fn launcher(global: &Global, name: &str, options: &UpOptions) -> anyhow::Result<Launcher> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let config = match &global.config {
        Some(file) => std::fs::canonicalize(file)
            .with_context(|| format!("cannot read the configuration file {}", file.display()))?,
        None => PathBuf::from("/dev/null"),
    };
    let mut control: Vec<OsString> = vec![
        program.clone().into(),
        "serve".into(),
        "--config".into(),
        config.into(),
    ];
    let rate = match (&options.rate, &global.config) {
        (Some(rate), _) => Some(rate.to_string()),
        (None, Some(_)) => None,
        (None, None) => Some(EMULATED_RATE.to_string()),
    };
    if let Some(rate) = rate {
        control.extend(["--rate".into(), rate.into()]);
    }
    // Its machines are all its own.
    control.extend(["--admission".into(), "open".into()]);
    control.extend(options.other.arguments()?);
    Ok(Launcher {
        supervise: vec![program.into(), "__supervise".into(), name.into()],
        control,
        http: options.http,
    })
}

/// Becomes true at the first interrupt, hang-up or request to end.
fn watch_interrupts() -> anyhow::Result<Arc<AtomicBool>> {
    use tokio::signal::unix::{SignalKind, signal};
    let flag = Arc::new(AtomicBool::new(false));
    let set = flag.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let streams: Result<Vec<_>, _> =
        runtime.block_on(async { signals.into_iter().map(signal).collect() });
    let [mut interrupt, mut terminate, mut hangup] =
        <[_; 3]>::try_from(streams?).expect("three signals");
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            set.store(true, Ordering::Relaxed);
        });
    });
    Ok(flag)
}

/// Progress on standard error: a bar on a terminal, a line a stage elsewhere.
struct Display {
    bar: Option<indicatif::ProgressBar>,
    quiet: bool,
    stage: Option<std::mem::Discriminant<Progress>>,
}

impl Display {
    fn new(json: bool) -> Self {
        let terminal = std::io::stderr().is_terminal() && !json;
        let bar = terminal.then(|| {
            let style = indicatif::ProgressStyle::with_template("{spinner} {msg}")
                .expect("the template is sound");
            let bar = indicatif::ProgressBar::new_spinner().with_style(style);
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Display {
            bar,
            quiet: json,
            stage: None,
        }
    }

    fn show(&mut self, progress: &Progress) {
        let text = match progress {
            Progress::Preparing => "preparing".to_string(),
            Progress::Network { switches, links } => {
                format!(
                    "network: {}, {}",
                    count_of(*switches, "switch", "switches"),
                    count(*links, "link")
                )
            }
            Progress::Control => "control node answers".to_string(),
            Progress::Machines { started, total } => {
                format!("machines switched on: {started} of {total}")
            }
            Progress::Nodes { joined, total } => {
                let numbers = joined
                    .iter()
                    .filter_map(|name| hostlist::parse(name).ok())
                    .flatten();
                let mut numbers: Vec<u32> = numbers.collect();
                numbers.sort_unstable();
                format!(
                    "nodes joined: {} of {total} {}",
                    joined.len(),
                    hostlist::format(&numbers)
                )
            }
        };
        let stage = std::mem::discriminant(progress);
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None if !self.quiet && self.stage != Some(stage) => crate::output::say_line(text),
            None => {}
        }
        self.stage = Some(stage);
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// Takes a cluster down.
pub fn down(global: &Global, options: &DownOptions) -> anyhow::Result<()> {
    let paths = chosen(global)?;
    let client = Client::new(paths.control_socket());
    // Without control nothing is known of jobs, and the cluster goes all the same.
    let jobs = super::block_on(async { Ok(client.get::<Vec<QueuedJob>>("/v1/queue").await?) });
    let jobs = jobs.unwrap_or_default();
    if !jobs.is_empty() {
        may_end(&jobs, options.yes || global.json)?;
        super::block_on(end_jobs(&client, &jobs))?;
    }
    let report = hearth_qemu::down(&paths, options.keep_logs)?;
    if global.json {
        let killed = report.killed;
        let ended: Vec<u64> = jobs.iter().map(|job| job.id).collect();
        return print_json(
            &serde_json::json!({ "orderly": report.orderly, "killed": killed, "ended_jobs": ended }),
        );
    }
    if !report.orderly {
        crate::output::say_line(format_args!(
            "what a crash had left was removed ({})",
            count_of(report.killed, "process", "processes")
        ));
    }
    Ok(())
}

/// Says which jobs end with the cluster, and asks on a terminal whether that is meant.
fn may_end(jobs: &[QueuedJob], is_meant: bool) -> anyhow::Result<()> {
    let shown: Vec<String> = jobs
        .iter()
        .take(JOBS_SHOWN)
        .map(|job| format!("{} ({}, {})", job.id, job.name, job.state.word()))
        .collect();
    let more = match jobs.len().saturating_sub(JOBS_SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let text = format!(
        "{} with the cluster: {}{more}",
        match jobs.len() {
            1 => "1 job ends".to_string(),
            many => format!("{many} jobs end"),
        },
        shown.join(", ")
    );
    if is_meant || !std::io::stdin().is_terminal() {
        if !is_meant {
            crate::output::say_line(&text);
        }
        return Ok(());
    }
    crate::output::say(&format!("{text}. Take it down? [y/N] "));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    anyhow::ensure!(is_yes, "nothing was done; `hearth down --yes` does not ask");
    Ok(())
}

/// Ends jobs and waits a while, so that their clients hear of it.
async fn end_jobs(client: &Client, jobs: &[QueuedJob]) -> anyhow::Result<()> {
    let request = CancelRequest {
        signal: None,
        reason: Some("the cluster is taken down".to_string()),
    };
    // Waiting ones go first, so that none of them starts because another was ended.
    let (waiting, others): (Vec<_>, Vec<_>) =
        jobs.iter().partition(|job| job.state == JobState::Pending);
    for job in waiting.into_iter().chain(others) {
        let path = format!("/v1/jobs/{}/cancel", job.id);
        // One that has ended meanwhile is as good.
        drop(client.post::<serde_json::Value>(&path, &request).await);
    }
    let until = std::time::Instant::now() + JOBS_END_WITHIN;
    while std::time::Instant::now() < until {
        match client.get::<Vec<QueuedJob>>("/v1/queue").await {
            Ok(left) if !left.is_empty() => {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
            _ => break,
        }
    }
    Ok(())
}

/// Switches nodes off and on; with `wait` until all have joined again.
pub fn reset(global: &Global, list: &str, wait: bool) -> anyhow::Result<()> {
    let paths = chosen(global)?;
    let numbers = hostlist::parse(list)?;
    let client = Client::new(paths.control_socket());
    // Without control nothing joins, but machines can be switched all the same.
    let nodes = super::block_on(async { Ok(client.get::<Vec<NodeInfo>>("/v1/nodes").await?) });
    hearth_qemu::reset(&paths, &numbers)?;
    let jobs = nodes.as_ref().ok().map(|nodes| jobs_on(nodes, &numbers));
    if !global.json {
        let unknown = || vec!["control does not answer: which jobs ran there is not known".into()];
        let lines = jobs.as_ref().map_or_else(unknown, jobs_hit);
        lines.into_iter().for_each(crate::output::say_line);
    }
    let joined = match nodes {
        Ok(nodes) if wait => {
            let before = boots_of(&nodes, &numbers);
            super::block_on(wait_for_boots(&client, &numbers, &before))?;
            true
        }
        _ => false,
    };
    match global.json {
        true => print_json(&reset_report(&numbers, jobs.as_ref(), joined)),
        false => Ok(()),
    }
}

/// What became of nodes that were switched off and on. Which jobs they had is not known where control did not answer.
fn reset_report(
    numbers: &[u32],
    jobs: Option<&BTreeMap<u64, Vec<u32>>>,
    joined: bool,
) -> serde_json::Value {
    let names: Vec<String> = numbers.iter().copied().map(hostlist::name).collect();
    let jobs: Option<Vec<u64>> = jobs.map(|jobs| jobs.keys().copied().collect());
    serde_json::json!({ "reset": names, "jobs": jobs, "joined": joined })
}

/// The jobs that these nodes have, and on which of them each is.
fn jobs_on(nodes: &[NodeInfo], numbers: &[u32]) -> BTreeMap<u64, Vec<u32>> {
    let mut jobs: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| numbers.contains(&node.node)) {
        if let Some(job) = node.job {
            jobs.entry(job).or_default().push(node.node);
        }
    }
    jobs
}

/// What is said of jobs whose nodes were switched off, a line each.
fn jobs_hit(jobs: &BTreeMap<u64, Vec<u32>>) -> Vec<String> {
    let line = |(job, nodes): (&u64, &Vec<u32>)| {
        let nodes = hostlist::format(nodes);
        format!(
            "job {job} ran on {nodes}, now switched off; `hearth job {job}` says what becomes of it"
        )
    };
    jobs.iter().map(line).collect()
}

/// How often each of these nodes has joined; nothing where it is not in service.
fn boots_of(nodes: &[NodeInfo], numbers: &[u32]) -> Vec<(u64, bool)> {
    let of = |number: &u32| {
        let node = nodes.iter().find(|node| node.node == *number);
        let up = |node: &NodeInfo| matches!(node.state, NodeState::Idle | NodeState::Busy);
        node.map_or((0, false), |node| (node.boots, up(node)))
    };
    numbers.iter().map(of).collect()
}

/// Waits until each node has joined once more than `before`.
async fn wait_for_boots(
    client: &Client,
    numbers: &[u32],
    before: &[(u64, bool)],
) -> anyhow::Result<()> {
    let deadline = Instant::now() + RESET_LIMIT;
    loop {
        let nodes: Vec<NodeInfo> = client.get("/v1/nodes").await?;
        let now = boots_of(&nodes, numbers);
        let missing = numbers.iter().zip(before.iter().zip(&now));
        let missing: Vec<u32> = missing
            .filter(|(_, (before, now))| now.0 <= before.0 || !now.1)
            .map(|(number, _)| *number)
            .collect();
        if missing.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            bail!(
                "{} did not join within {} s; `hearth timeline` and `hearth console` show how far the boot came",
                hostlist::format(&missing),
                RESET_LIMIT.as_secs()
            );
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Shows what a node writes to its serial console, until interrupted.
pub fn console(global: &Global, options: &ConsoleOptions) -> anyhow::Result<()> {
    let paths = chosen(global)?;
    let [node] = hostlist::parse(&options.node)?[..] else {
        return Err(super::exit::Usage(format!(
            "one console at a time; {} names several nodes",
            options.node
        ))
        .into());
    };
    let mut there: Vec<u32> = Record::load(&paths)?
        .nodes
        .iter()
        .map(|node| node.node)
        .collect();
    there.sort_unstable();
    if let Some(text) = hostlist::unknown([node], &there) {
        bail!("{text}");
    }
    let mut output = std::io::stdout();
    // Who reads may go while the node writes nothing, and nothing is written that could fail.
    let mut go_on = || match has_no_reader(&std::io::stdout()) {
        true => ControlFlow::Break(()),
        false => ControlFlow::Continue(()),
    };
    Ok(hearth_qemu::console::follow(
        &paths,
        node,
        &mut output,
        &mut go_on,
    )?)
}

/// Whether nobody reads what is written there any more: a pipe whose other end is closed, a terminal that is gone.
fn has_no_reader(output: &impl AsFd) -> bool {
    // Errors and hang-ups are told without having been asked for.
    let mut output = [PollFd::new(output.as_fd(), PollFlags::empty())];
    let told = match poll(&mut output, PollTimeout::ZERO) {
        Ok(_) => output[0].revents().unwrap_or(PollFlags::empty()),
        Err(_) => return false,
    };
    told.intersects(PollFlags::POLLERR | PollFlags::POLLHUP)
}

/// Keeps a cluster; see `hearth_qemu::supervise`.
pub fn supervise(options: SuperviseOptions) -> anyhow::Result<()> {
    Ok(hearth_qemu::supervise(&Paths::of_cluster(&options.name)?)?)
}

/// Lists the clusters of this user, or the machines of one.
pub fn list(global: &Global, options: &ListOptions) -> anyhow::Result<()> {
    if options.machines {
        return list_machines(global);
    }
    let system = global.load_config()?.serve.state_dir;
    let clusters = hearth_qemu::list()?;
    let served: Vec<String> = crate::paths::running(&system)
        .into_iter()
        .map(|(name, _)| name)
        .filter(|name| !clusters.iter().any(|cluster| cluster.name == *name))
        .collect();
    if global.json {
        let mut all: Vec<serde_json::Value> = Vec::new();
        for cluster in &clusters {
            all.push(serde_json::json!({
                "name": cluster.name, "kind": "qemu", "running": cluster.running,
                "nodes": cluster.nodes, "accelerator": cluster.accelerator, "http": cluster.http,
            }));
        }
        for name in &served {
            all.push(serde_json::json!({ "name": name, "kind": "serve", "running": true }));
        }
        return print_json(&all);
    }
    let mut rows = table::new(&["CLUSTER", "KIND", "STATE", "NODES", "ACCEL", "HTTP"]);
    for cluster in &clusters {
        let state = if cluster.running {
            "up"
        } else {
            "crashed (`hearth down` removes it)"
        };
        let (nodes, accelerator) = (cluster.nodes.to_string(), cluster.accelerator.to_string());
        let http = cluster.http.to_string();
        rows.add_row([
            cluster.name.as_str(),
            "qemu",
            state,
            &nodes,
            &accelerator,
            &http,
        ]);
    }
    for name in &served {
        rows.add_row([name.as_str(), "serve", "up", "-", "-", "-"]);
    }
    print_text(&table::text(&rows))
}

fn list_machines(global: &Global) -> anyhow::Result<()> {
    let record = Record::load(&chosen(global)?)?;
    if global.json {
        return print_json(&record.nodes);
    }
    let mut rows = table::new(&[
        "NODE",
        "POWER",
        "MAC",
        "ADDRESS",
        "LEAF",
        "STARTS",
        "SERIAL_LOG",
    ]);
    for node in &record.nodes {
        rows.add_row([
            node.name.clone(),
            format!("{:?}", node.state).to_lowercase(),
            node.mac.clone(),
            node.address.to_string(),
            node.leaf.to_string(),
            node.starts.to_string(),
            node.serial_log.display().to_string(),
        ]);
    }
    print_text(&table::text(&rows))
}

/// When each machine of the cluster in `state` was switched on, by node, as far as it is known:
/// only for clusters of `hearth up`.
pub(super) fn power_on_unix_ms(state: &crate::paths::StateDir) -> Vec<(u32, u64)> {
    let path = state.path();
    let name = path.file_name().and_then(|name| name.to_str());
    let paths = name
        .zip(path.parent())
        .and_then(|(name, root)| Paths::below(root, name).ok());
    let record = paths.and_then(|paths| Record::load(&paths).ok());
    let nodes = record.map(|record| record.nodes).unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| Some((node.node, node.power_on_unix_ms?)))
        .collect()
}

/// The cluster whose state is in `dir`. Never another one: what follows can take it down.
fn in_dir(dir: &Path) -> anyhow::Result<Paths> {
    let whole = std::path::absolute(dir)?;
    let name = whole.file_name().and_then(|name| name.to_str());
    let paths = name.zip(whole.parent());
    let paths = paths.and_then(|(name, root)| Paths::below(root, name).ok());
    match paths.filter(|paths| paths.record().exists()) {
        Some(paths) => Ok(paths),
        None => bail!(
            "there is no cluster of QEMU nodes in {}; `hearth list` lists those that there are, --cluster names one",
            dir.display()
        ),
    }
}

/// The cluster a command is for: the one named by its state directory or its name, else the only one there is.
fn chosen(global: &Global) -> anyhow::Result<Paths> {
    if let Some(dir) = &global.state_dir {
        return in_dir(dir);
    }
    if let Some(name) = &global.cluster {
        return Ok(Paths::of_cluster(name)?);
    }
    let names: Vec<String> = hearth_qemu::list()?
        .into_iter()
        .map(|cluster| cluster.name)
        .collect();
    match names.as_slice() {
        [] => bail!("there is no cluster of QEMU nodes; `hearth up` starts one"),
        [name] => Ok(Paths::of_cluster(name)?),
        several => bail!(
            "there are several clusters ({}); choose one with --cluster NAME",
            several.join(", ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_is_told_by_node() {
        let jobs = BTreeMap::from([(7, vec![2, 10])]);
        let wanted = serde_json::json!({ "reset": ["n2", "n10"], "jobs": [7], "joined": true });
        assert_eq!(reset_report(&[2, 10], Some(&jobs), true), wanted);
        assert!(reset_report(&[2], None, false)["jobs"].is_null());
    }

    #[test]
    fn jobs_on_nodes_that_are_reset_are_told() {
        let node = |node: u32, job: Option<u64>| NodeInfo {
            node,
            job,
            ..NodeInfo::default()
        };
        let nodes = [
            node(0, Some(7)),
            node(1, Some(7)),
            node(2, Some(9)),
            node(3, None),
            node(4, Some(7)),
        ];
        let jobs = jobs_on(&nodes, &[1, 3, 4]);
        assert_eq!(jobs, BTreeMap::from([(7, vec![1, 4])]));
        let said = jobs_hit(&jobs);
        assert!(
            said[0].starts_with("job 7 ran on n[1,4], now switched off"),
            "{said:?}"
        );
        assert!(jobs_hit(&jobs_on(&nodes, &[3])).is_empty());
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_told_from_one_that_is_read() {
        let (reader, writer) = std::io::pipe().unwrap();
        assert!(!has_no_reader(&writer));
        drop(reader);
        assert!(has_no_reader(&writer));
        let file = tempfile::tempfile().unwrap();
        assert!(!has_no_reader(&file));
    }
}
