//! `hearth up`, `list`, `console`: clusters of QEMU nodes. The work is done in `hearth_qemu`.
//!
//! Key types: the options. Invariant: `supervise` runs before any thread or runtime is started.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use hearth_qemu::{
    Accelerator, AcceleratorChoice, Cards, Firmware, Launcher, Paths, Rate, Record, Spec, Tree,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::up_progress::Display;
use super::{Global, exit, named, node_log, print_json, print_text, table};
use crate::output::count;
use crate::paths::qemu_paths;
use crate::{clock, config, hostlist};

/// Name of a cluster that was given none.
const DEFAULT_NAME: &str = "default";

/// Rate of casts in a cluster whose links have no limit and whose configuration names none: what a
/// few emulated machines take in on a machine of a few cores. Faster, they lose what they cannot
/// take, and it is sent again.
const EMULATED_RATE: &str = "100mbit";

/// Time limit of jobs that name none, where no configuration says otherwise: the queue can let
/// short jobs go first only where it knows when those that run will have ended.
const TIME_LIMIT_S: u64 = 3600;
/// What jobs see of this machine, where no configuration says otherwise: the home of who submits
/// them, and the directory where that is done.
const EXPORTED: [&str; 2] = ["~", "."];

/// Options of `hearth up`.
#[derive(Debug, Args)]
pub struct UpOptions {
    /// Number of nodes.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Memory of each node.
    #[arg(long, default_value = "48M", value_name = "SIZE", value_parser = hearth_qemu::parse_memory_mib)]
    memory: u32,
    /// Processors of each node.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(hearth_qemu::MAX_CPUS)))]
    cpus: u32,
    /// Tree of switches, widths from the leaves up: 4x2 is four nodes on each of two leaf
    /// switches [default: one switch].
    #[arg(long, value_name = "WxW")]
    tree: Option<Tree>,
    /// Rate limit of every link in each direction, as in 50mbit [default: none].
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    /// End jobs that name no time limit after so long; 0: never [default: 1h; with --config, its
    /// jobs.time_limit_s].
    #[arg(long, value_name = "TIME", value_parser = super::job_options::time_limit)]
    time_limit: Option<u64>,
    /// Firmware that boots the nodes over the network.
    #[arg(long, value_enum, default_value_t = FirmwareChoice::Bios, conflicts_with = "direct")]
    firmware: FirmwareChoice,
    /// I/O services that carry out the calls of jobs on files, each with a link of its own; 0: the
    /// control node does.
    #[arg(long, default_value_t = 0, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(hearth_qemu::MAX_IO_SERVICES)))]
    io: u32,
    /// Network card of the nodes, or of each: virtio, e1000, e1000e, igb or rtl8139, as in e1000e
    /// or n0=e1000,n[1-2]=e1000e.
    #[arg(long, default_value = "virtio", value_name = "CARD", value_parser = super::up_cards::parse)]
    nic: Cards,
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
    /// Let a debugger stop and read the kernels of these nodes: n0,n[2-3]. The command that does it
    /// is printed.
    #[arg(long, value_name = "LIST", value_parser = debugged, help_heading = super::MEASUREMENTS)]
    gdb: Option<Debugged>,
    /// The machines' clocks count instructions instead of time; slow, for measurements. An
    /// instruction takes 2 to the power of SHIFT nanoseconds, 1 where none is given.
    #[arg(long, value_name = "SHIFT", num_args = 0..=1, default_missing_value = "0",
        value_parser = clap::value_parser!(u8).range(0..=10), require_equals = true,
        help_heading = super::MEASUREMENTS)]
    icount: Option<u8>,
    /// Have each machine's QEMU log what its processor does, to logs/NODE.trace in the state
    /// directory: items of QEMU's -d, as in int for interrupts and exceptions.
    #[arg(long, value_name = "ITEMS", help_heading = super::MEASUREMENTS)]
    trace: Option<String>,
    #[command(flatten)]
    other: super::serve_command::OtherSystem,
    /// Stands for the option of every command, which this one refuses, so that `--help` has none.
    #[arg(long, value_name = "DIR", hide = true)]
    state_dir: Option<PathBuf>,
}

/// The nodes of `--gdb`.
#[derive(Debug, Clone)]
struct Debugged(Vec<u32>);

fn debugged(text: &str) -> Result<Debugged, String> {
    let nodes = crate::hostlist::parse(text).map_err(|error| error.to_string())?;
    Ok(Debugged(nodes))
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
    /// Go on with what it logs until interrupted; the console of a QEMU node goes on in any case.
    #[arg(short, long)]
    follow: bool,
}

/// Arguments of the supervisor process.
#[derive(Debug, Args)]
pub struct SuperviseOptions {
    /// The cluster.
    name: String,
}

/// Starts a cluster and, unless told otherwise, waits until all nodes have joined.
pub fn up(global: &Global, options: UpOptions) -> anyhow::Result<()> {
    global.here()?;
    if global.state_dir.is_some() {
        let text = "`hearth up` keeps its state by cluster name; use --cluster NAME instead of --state-dir";
        return Err(exit::Usage(text.to_string()).into());
    }
    // Before anything of its state is made, by this process or by the supervisor.
    crate::paths::make_files_private();
    let name = global
        .cluster
        .clone()
        .unwrap_or_else(|| DEFAULT_NAME.to_string());
    let paths = Paths::of_cluster(&name)?;
    if hearth_qemu::start_control(&paths)? {
        return told_started(global, &paths);
    }
    let configured = match &global.config {
        // Control reads it itself; told here, an error costs no network and no processes.
        Some(file) => {
            let config = global.load_config()?;
            has_use_for(options.io, file, &config.files)?;
            config.jobs.time_limit_s
        }
        None => TIME_LIMIT_S,
    };
    let time_limit_s = options.time_limit.unwrap_or(configured);
    let launcher = launcher(global, &name, &options, time_limit_s)?;
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
        match interrupted.load(Ordering::Relaxed) {
            0 => ControlFlow::Continue(()),
            _ => ControlFlow::Break(()),
        }
    });
    display.finish();
    let record = result.map_err(|error| by_signal(error, interrupted.load(Ordering::Relaxed)))?;
    if global.json {
        return print_json(&record);
    }
    let joined = if wait { "joined" } else { "switched on" };
    print_text(&format!(
        "cluster {}: {} {joined} after {:.1} s; HTTP API at http://{}\n{}\n",
        spec.name,
        count(spec.nodes, "node"),
        began.elapsed().as_secs_f64(),
        record.http,
        time_limit_text(time_limit_s)
    ))?;
    match spec.debugged.is_empty() {
        true => Ok(()),
        false => print_text(&debugger_lines(&spec, &paths)),
    }
}

/// That there are files for so many I/O services: the control node takes none without.
fn has_use_for(services: u32, file: &Path, files: &config::Files) -> Result<(), exit::Usage> {
    if services == 0 || !files.export.is_empty() {
        return Ok(());
    }
    Err(exit::Usage(format!(
        "--io {services}: with {} jobs see no directory, so that there is nothing to serve; add [files] with export = [\"~\", \".\"] to it, or leave --io out",
        file.display()
    )))
}

/// Where the kernel of a node lies: its file says where from that address on.
const KERNEL_BASE: u64 = 0xffff_ffff_8000_0000;

/// How each node is debugged. The kernel with its symbols lies beside the boot image.
fn debugger_lines(spec: &Spec, paths: &Paths) -> String {
    let image = std::path::absolute(&spec.image).unwrap_or_else(|_| spec.image.clone());
    let symbols = image.with_file_name("symbols").join("kernel");
    let line = |node: &u32| {
        format!(
            "debug n{node}: gdb -ex 'symbol-file {} -o {KERNEL_BASE:#x}' -ex 'target remote {}'\n",
            symbols.display(),
            paths.debugger_socket(*node).display()
        )
    };
    spec.debugged.iter().map(line).collect()
}

/// Says that only the control node was missing.
fn told_started(global: &Global, paths: &Paths) -> anyhow::Result<()> {
    let record = Record::load(paths)?;
    if global.json {
        return print_json(&record);
    }
    print_text(&format!(
        "cluster {}: the control node was started again, with {} and all options as before; HTTP API at http://{}\n",
        paths.name(),
        count(record.spec.nodes, "node"),
        record.http
    ))
}

/// What becomes of jobs that name no time limit.
fn time_limit_text(time_limit_s: u64) -> String {
    match time_limit_s {
        0 => "jobs have no time limit unless they name one (-t)".to_string(),
        seconds => format!(
            "jobs end after {} unless they name another time limit (-t)",
            clock::in_words(seconds)
        ),
    }
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
        cpus: options.cpus,
        tree: options.tree.unwrap_or_else(|| Tree::flat(options.nodes)),
        rate: options.rate,
        firmware,
        accelerator: Accelerator::default(),
        cards: options.nic,
        image,
        command_line,
        instruction_shift: options.icount,
        trace: options.trace,
        io_services: options.io,
        debugged: options.gdb.map_or_else(Vec::new, |Debugged(nodes)| nodes),
    })
}

/// The commands of the processes behind a cluster: this program in other roles. Their
/// configuration is the one given explicitly or the defaults: the user's own is for `serve` on
/// real hardware.
fn launcher(
    global: &Global,
    name: &str,
    options: &UpOptions,
    time_limit_s: u64,
) -> anyhow::Result<Launcher> {
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
    control.extend(["--time-limit".into(), format!("{time_limit_s}s").into()]);
    if global.config.is_none() {
        let exported = EXPORTED.iter().flat_map(|word| ["--export", word]);
        control.extend(exported.map(Into::into));
    }
    if options.io > 0 {
        control.extend(["--file-service".into(), "joined".into()]);
    }
    let io = vec![program.clone().into(), "io".into()];
    // Its machines are all its own.
    control.extend(["--admission".into(), "open".into()]);
    control.extend(options.other.arguments()?);
    Ok(Launcher {
        supervise: vec![program.into(), "__supervise".into(), name.into()],
        control,
        io,
        http: options.http,
    })
}

/// The error of a start that failed: of one that was interrupted, with the status that says by
/// which signal.
fn by_signal(error: hearth_qemu::Error, signal: u8) -> anyhow::Error {
    match error {
        hearth_qemu::Error::Interrupted { .. } => {
            exit::Failed::new(exit::by_signal(signal), error).into()
        }
        error => error.into(),
    }
}

/// Becomes the number of the first interrupt, hang-up or request to end; 0 before.
fn watch_interrupts() -> anyhow::Result<Arc<AtomicU8>> {
    use tokio::signal::unix::{SignalKind, signal};
    let flag = Arc::new(AtomicU8::new(0));
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
            let number = tokio::select! {
                _ = interrupt.recv() => 2,
                _ = terminate.recv() => 15,
                _ = hangup.recv() => 1,
            };
            set.store(number, Ordering::Relaxed);
        });
    });
    Ok(flag)
}

/// Shows what a QEMU node writes to its serial console, until interrupted; of other nodes what they
/// have told control of their log.
pub fn console(global: &Global, options: &ConsoleOptions) -> anyhow::Result<()> {
    let [node] = named::nodes(global, &options.node)?[..] else {
        return Err(exit::Usage(format!(
            "one console at a time; {} names several nodes",
            options.node
        ))
        .into());
    };
    // A service's nodes have no file, and a cluster's have one also while its control node stands
    // still.
    let paths = match global.find() {
        _ if global.host.is_some() => return node_log::show(global, node, options.follow),
        Ok(state) => match qemu_paths(state.path()) {
            Some(paths) => paths,
            None => return node_log::show(global, node, options.follow),
        },
        Err(_) => chosen(global)?,
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

/// Whether nobody reads what is written there any more: a pipe whose other end is closed, a
/// terminal that is gone.
pub(super) fn has_no_reader(output: &impl AsFd) -> bool {
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
    global.here()?;
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
    let record = qemu_paths(state.path()).and_then(|paths| Record::load(&paths).ok());
    let nodes = record.map(|record| record.nodes).unwrap_or_default();
    nodes
        .iter()
        .filter_map(|node| Some((node.node, node.power_on_unix_ms?)))
        .collect()
}

/// The command that starts the control node of `state` again.
pub(super) fn starts_control(state: &crate::paths::StateDir) -> String {
    match qemu_paths(state.path()).filter(hearth_qemu::is_running) {
        Some(paths) => format!("`hearth --cluster {} up`", paths.name()),
        None => "`hearth serve`".to_string(),
    }
}

/// The cluster whose state is in `dir`. Never another one: what follows can take it down.
fn in_dir(dir: &Path) -> anyhow::Result<Paths> {
    let whole = std::path::absolute(dir)?;
    match qemu_paths(&whole) {
        Some(paths) => Ok(paths),
        None => bail!(
            "there is no cluster of QEMU nodes in {}; `hearth list` lists those that there are, --cluster names one",
            dir.display()
        ),
    }
}

/// The cluster a command is for: the one named by its state directory or its name, else the only
/// one there is.
pub(super) fn chosen(global: &Global) -> anyhow::Result<Paths> {
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
    fn an_interrupted_start_has_the_status_of_its_signal() {
        let interrupted = || hearth_qemu::Error::Interrupted {
            detail: String::new(),
        };
        for (signal, status) in [(2, 130), (15, 143)] {
            let error = by_signal(interrupted(), signal);
            assert_eq!(exit::of_error(&error), status);
            assert!(error.to_string().contains("taken down again"), "{error}");
        }
        let other = by_signal(hearth_qemu::Error::Host("no".to_string()), 0);
        assert_eq!(exit::of_error(&other), exit::CONTROL);
    }

    #[test]
    fn services_without_files_are_refused_before_anything_starts() {
        let file = Path::new("c.toml");
        let mut files = config::defaults().files;
        assert!(has_use_for(0, file, &files).is_ok());
        let text = has_use_for(1, file, &files).unwrap_err().to_string();
        assert!(text.contains("c.toml") && text.contains("export"), "{text}");
        files.export = vec!["~".to_string()];
        assert!(has_use_for(1, file, &files).is_ok());
    }

    #[test]
    fn up_says_when_jobs_end_that_name_no_limit() {
        let hour = "jobs end after 1 h unless they name another time limit (-t)";
        assert_eq!(time_limit_text(TIME_LIMIT_S), hour);
        assert!(time_limit_text(0).contains("no time limit"));
    }

    #[test]
    fn up_gives_its_control_node_a_time_limit() {
        use clap::Parser;
        let words = ["hearth", "up", "--image", "hearth.efi"];
        let cli = super::super::Cli::parse_from(words);
        let super::super::Command::Up(options) = cli.command else {
            panic!("{words:?} is up");
        };
        let launcher = launcher(&cli.global, "a", &options, TIME_LIMIT_S).unwrap();
        let mut words = launcher.control.windows(2);
        assert!(words.any(|pair| pair == ["--time-limit", "3600s"]));
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
