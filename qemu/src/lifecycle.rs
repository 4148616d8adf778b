//! Bringing clusters up and taking them down, from outside.
//!
//! Key functions: [`up`], [`down`], [`reset`], [`list`]. Key types: [`Launcher`], [`Progress`].
//! Neighbours: `supervisor` is the other side; `tools/control` has the commands.
//!
//! Invariant: a failed [`up`] leaves nothing but its logs behind, an interrupted one not even
//! those, except when only nodes are missing: then the cluster stays, to be looked at.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::paths::state_root;
use crate::request::{Request, ask};
use crate::supervisor::{Stage, remove_if_there};
use crate::{
    Accelerator, Error, Firmware, Paths, ProcessId, Record, Spec, console, control_socket, machine,
    namespace, request,
};

/// How often progress is told and an interruption noticed.
const TICK: Duration = Duration::from_millis(250);
/// Everything is started within this time, also on a machine under load.
const START_LIMIT: Duration = Duration::from_secs(180);
/// Nodes boot within this time, and so much longer for each of them: emulated machines share few
/// processors, and under other load boots take ten times as long.
const JOIN_LIMIT: Duration = Duration::from_secs(240);
const JOIN_LIMIT_PER_NODE: Duration = Duration::from_secs(20);
/// Another `up` prepares within this time.
const PREPARE_LIMIT: Duration = Duration::from_secs(60);
/// A supervisor that was told to stop, or a process that was killed, is gone within this time.
const END_LIMIT: Duration = Duration::from_secs(15);
/// How much of a log goes into an error.
const TAIL_BYTES: u64 = 2_000;
/// Nodes that are named when they did not join; more help nobody.
const MAX_NAMED_NODES: usize = 8;

/// Which executables a cluster is made of.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Launcher {
    /// The whole command whose process calls [`crate::supervise`] for this cluster.
    pub supervise: Vec<OsString>,
    /// The command of the control node, to which `--interface`, `--address`, `--state-dir`,
    /// `--http-fd 0`, `--image`, `--nodes-file` and `--tree` are added.
    pub control: Vec<OsString>,
    /// The command of an I/O service, to which `--state-dir`, `--listen` and `--interface` are
    /// added.
    #[serde(default)]
    pub io: Vec<OsString>,
    /// Where control's HTTP listener shall listen, outside the cluster; port 0 takes a free one.
    pub http: SocketAddr,
}

impl Launcher {
    pub(crate) fn load(paths: &Paths) -> Result<Self, Error> {
        let path = paths.launch();
        let bytes = fs::read(&path).map_err(Error::file("reading", &path))?;
        serde_json::from_slice(&bytes).map_err(|error| Error::file("reading", path)(error.into()))
    }

    fn save(&self, paths: &Paths) -> Result<(), Error> {
        let path = paths.launch();
        let bytes = serde_json::to_vec(self)
            .map_err(|error| Error::file("writing", &path)(error.into()))?;
        fs::write(&path, bytes).map_err(Error::file("writing", path))
    }
}

/// How far a cluster has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Files are written, the supervisor starts.
    Preparing,
    /// Switches and links are made.
    Network { switches: u32, links: u32 },
    /// The control node answers.
    Control,
    /// So many machines are switched on.
    Machines { started: u32, total: u32 },
    /// So many nodes have joined; the names of those that have.
    Nodes { joined: Vec<String>, total: u32 },
}

/// Brings a cluster up. With `wait` it returns when all nodes have joined, else when all machines
/// are switched on. `progress` is called whenever something happened and at least four times a
/// second; when it breaks, the cluster is taken down again.
pub fn up(
    spec: &Spec,
    paths: &Paths,
    launcher: &Launcher,
    wait: bool,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<Record, Error> {
    spec.check()?;
    namespace::check_host()?;
    if spec.firmware == Firmware::Uefi {
        machine::find_uefi()?;
    }
    spec.cards.check_qemu(spec.nodes)?;
    start(spec, paths, launcher, progress)?;
    if wait {
        match wait_for_nodes(spec, paths, progress) {
            Err(error @ (Error::Interrupted { .. } | Error::Refused(_))) => {
                down(paths, false)?;
                return Err(error);
            }
            result => result?,
        }
    }
    Record::load(paths)
}

/// Starts a cluster; what a failure has left of it is removed before another `up` can prepare.
fn start(
    spec: &Spec,
    paths: &Paths,
    launcher: &Launcher,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let _preparing = lock_root(paths)?;
    if is_running(paths) {
        return Err(Error::AlreadyUp(paths.name().to_owned()));
    }
    if paths.record().exists() {
        // What a crash left.
        down(paths, false)?;
    }
    let fresh = holds_only_logs(paths);
    let result = launch(spec, paths, launcher, progress);
    if let Err(error) = &result {
        // The first error is the one to tell; logs of a failure stay, to be read.
        let keep_logs = !matches!(error, Error::Interrupted { .. });
        let _ = clean_up(paths, fresh, keep_logs);
    }
    result
}

/// Whether the state directory of a cluster is not there, or only logs of an earlier one are.
fn holds_only_logs(paths: &Paths) -> bool {
    let Ok(entries) = fs::read_dir(paths.state()) else {
        return true;
    };
    entries.flatten().all(|entry| entry.path() == paths.logs())
}

/// Ends and removes what a failed start has left. Where the directory was not `fresh`, only what
/// [`up`] itself makes goes: a control node of `hearth serve` may keep its own state there.
fn clean_up(paths: &Paths, fresh: bool, keep_logs: bool) -> Result<(), Error> {
    end_processes(paths)?;
    if fresh {
        return remove_files(paths.state(), keep_logs.then(|| paths.logs()).as_deref());
    }
    let own = [
        paths.record(),
        paths.launch(),
        paths.nodes_file(),
        paths.supervisor_socket(),
        paths.supervisor_lock(),
    ];
    own.iter().try_for_each(|path| remove_if_there(path))
}

/// Prepares the files, starts the supervisor and follows its report.
fn launch(
    spec: &Spec,
    paths: &Paths,
    launcher: &Launcher,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let listener = TcpListener::bind(launcher.http).map_err(|error| {
        Error::Host(format!(
            "listening on {}: {error}; choose another address",
            launcher.http
        ))
    })?;
    let http = listener.local_addr().map_err(|source| Error::Socket {
        operation: "asking for the listener's port",
        source,
    })?;
    prepare(spec, paths, launcher, http)?;
    if progress(&Progress::Preparing).is_break() {
        return Err(Error::Interrupted {
            detail: String::new(),
        });
    }
    let Some((program, arguments)) = launcher.supervise.split_first() else {
        return Err(Error::Spec(
            "no command was given to start the supervisor".to_owned(),
        ));
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::piped())
        .stderr(machine::append(&paths.supervisor_log())?)
        .spawn()
        .map_err(|source| Error::Start {
            program: program.to_string_lossy().into_owned(),
            source,
        })?;
    let result = follow_start(&mut child, paths, progress);
    if result.is_err() {
        // It may have ended by itself; either way it is gone afterwards.
        let _ = child.kill();
        let _ = child.wait();
    }
    result
}

/// Makes the state directory with what the supervisor and control read.
fn prepare(spec: &Spec, paths: &Paths, launcher: &Launcher, http: SocketAddr) -> Result<(), Error> {
    for directory in [paths.state().to_path_buf(), paths.run(), paths.logs()] {
        // Only the owner: the secret of the cluster and the sockets are in here.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(Error::file("making", directory))?;
    }
    launcher.save(paths)?;
    let nodes: String = (0..spec.nodes)
        .map(|node| {
            format!(
                "{} {} {node}\n",
                Spec::node_mac(node),
                Spec::node_address(node)
            )
        })
        .collect();
    fs::write(paths.nodes_file(), nodes).map_err(Error::file("writing", paths.nodes_file()))?;
    for node in 0..spec.nodes {
        // The logs of a node are there from the start, and start empty.
        for log in [paths.serial_log(node), paths.qemu_log(node)] {
            File::create(&log).map_err(Error::file("making", log))?;
        }
    }
    for log in [paths.control_log(), paths.supervisor_log()] {
        File::create(&log).map_err(Error::file("making", log))?;
    }
    let image = fs::canonicalize(&spec.image).map_err(Error::file("finding", &spec.image))?;
    let spec = Spec {
        image,
        ..spec.clone()
    };
    Record::new(spec, http, paths).save(paths)
}

/// Follows a supervisor's report to its end.
fn follow_start(
    child: &mut Child,
    paths: &Paths,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let stages = read_stages(child.stdout.take());
    let deadline = Instant::now() + START_LIMIT;
    let mut last = Progress::Preparing;
    loop {
        match stages.recv_timeout(TICK) {
            Ok(Stage::Running) => return Ok(()),
            Ok(Stage::Failed { message }) => return Err(Error::Supervisor(message)),
            Ok(Stage::Network { switches, links }) => last = Progress::Network { switches, links },
            Ok(Stage::Control) => last = Progress::Control,
            Ok(Stage::Machines { started, total }) => last = Progress::Machines { started, total },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                let log = paths.supervisor_log();
                let tail = console::tail(&log, TAIL_BYTES);
                return Err(Error::Ended {
                    what: "the supervisor".to_owned(),
                    log,
                    tail,
                });
            }
        }
        if progress(&last).is_break() {
            return Err(Error::Interrupted {
                detail: String::new(),
            });
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout {
                what: "the start of the cluster".to_owned(),
                limit_seconds: START_LIMIT.as_secs(),
                detail: format!("; see {}", paths.supervisor_log().display()),
            });
        }
    }
}

/// Reads report lines in a thread of its own, which ends with the report.
fn read_stages(output: Option<ChildStdout>) -> mpsc::Receiver<Stage> {
    let (sender, receiver) = mpsc::channel();
    if let Some(output) = output {
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { break };
                let Ok(stage) = serde_json::from_str::<Stage>(&line) else {
                    break;
                };
                let is_last = matches!(stage, Stage::Running | Stage::Failed { .. });
                if sender.send(stage).is_err() || is_last {
                    break;
                }
            }
        });
    }
    receiver
}

/// Waits until control says that all nodes are in service.
fn wait_for_nodes(
    spec: &Spec,
    paths: &Paths,
    progress: &mut dyn FnMut(&Progress) -> ControlFlow<()>,
) -> Result<(), Error> {
    let limit = JOIN_LIMIT + JOIN_LIMIT_PER_NODE * spec.nodes;
    let deadline = Instant::now() + limit;
    let mut joined = Vec::new();
    loop {
        // A control node that does not answer now may do so next time; the limit stands.
        if let Ok(names) = control_socket::joined(&paths.control_socket()) {
            joined = names;
        }
        let told = Progress::Nodes {
            joined: joined.clone(),
            total: spec.nodes,
        };
        if progress(&told).is_break() {
            let detail = describe_missing(&Record::load(paths)?, &joined);
            return Err(Error::Interrupted { detail });
        }
        if joined.len() >= usize::try_from(spec.nodes).unwrap_or(usize::MAX) {
            return Ok(());
        }
        if let Ok(Some(why)) = control_socket::refused(&paths.control_socket()) {
            return Err(Error::Refused(why));
        }
        let record = Record::load(paths)?;
        if let Some(node) = record.nodes.iter().find(|node| node.ended.is_some()) {
            let status = node.ended.clone().unwrap_or_default();
            let log = node.serial_log.clone();
            let mut tail = console::tail(&log, TAIL_BYTES);
            tail.push_str(&format!(
                "\n{}",
                console::tail(&paths.qemu_log(node.node), TAIL_BYTES)
            ));
            let what = format!("the machine of {} ({status})", node.name);
            return Err(Error::Ended { what, log, tail });
        }
        if !is_running(paths) {
            let log = paths.supervisor_log();
            let tail = console::tail(&log, TAIL_BYTES);
            return Err(Error::Ended {
                what: "the supervisor".to_owned(),
                log,
                tail,
            });
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout {
                what: format!("joining of all {} nodes", spec.nodes),
                limit_seconds: limit.as_secs(),
                detail: describe_missing(&record, &joined),
            });
        }
        std::thread::sleep(TICK);
    }
}

/// The nodes that did not join, each with the last line of its console.
fn describe_missing(record: &Record, joined: &[String]) -> String {
    let missing: Vec<_> = record
        .nodes
        .iter()
        .filter(|node| !joined.contains(&node.name))
        .collect();
    let mut text = format!(
        "; {} missing (`hearth timeline` shows how far they came):",
        missing.len()
    );
    for node in missing.iter().take(MAX_NAMED_NODES) {
        let tail = console::tail(&node.serial_log, TAIL_BYTES);
        let line = tail.lines().last().unwrap_or("(nothing on its console)");
        text.push_str(&format!("\n  {}: {line}", node.name));
    }
    text
}

/// What [`down`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DownReport {
    /// Whether the supervisor answered and ended everything itself.
    pub orderly: bool,
    /// Processes that had to be killed because they outlived it.
    pub killed: u32,
}

/// Takes a cluster down and removes its files; `keep_logs` leaves the `logs` directory.
/// Works as well on what a crash left.
pub fn down(paths: &Paths, keep_logs: bool) -> Result<DownReport, Error> {
    if !paths.record().exists() && !paths.run().exists() {
        if paths.logs().is_dir() && !keep_logs {
            // Kept by an earlier call.
            fs::remove_dir_all(paths.state()).map_err(Error::file("removing", paths.state()))?;
        }
        return Err(Error::NotUp(paths.name().to_owned()));
    }
    let report = end_processes(paths)?;
    remove_files(paths.state(), keep_logs.then(|| paths.logs()).as_deref())?;
    Ok(report)
}

/// Ends every process of a cluster, in good order if possible.
fn end_processes(paths: &Paths) -> Result<DownReport, Error> {
    let orderly = is_running(paths) && ask(paths, &Request::Stop).is_ok();
    let mut killed = 0;
    let record = match Record::load(paths) {
        Ok(record) => record,
        Err(Error::NotUp(_)) => return Ok(DownReport { orderly, killed }),
        Err(error) => return Err(error),
    };
    let mut processes = record.processes();
    if orderly && let Some(supervisor) = record.supervisor {
        supervisor.wait_for_end(END_LIMIT);
    }
    // The supervisor comes first: what it started dies with it.
    processes.try_for_each(|process| {
        let failed = Error::file("ending process", process.pid.to_string());
        if process.signal(Signal::SIGKILL).map_err(failed)? {
            killed += 1;
        }
        if process.wait_for_end(END_LIMIT) {
            return Ok(());
        }
        Err(Error::Timeout {
            what: format!("the end of process {}", process.pid),
            limit_seconds: END_LIMIT.as_secs(),
            detail: String::new(),
        })
    })?;
    Ok(DownReport { orderly, killed })
}

/// Removes a state directory, except for one of its entries.
fn remove_files(state: &Path, keep: Option<&Path>) -> Result<(), Error> {
    let Some(keep) = keep else {
        return match fs::remove_dir_all(state) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(Error::file("removing", state)(error))
            }
            _ => Ok(()),
        };
    };
    for entry in fs::read_dir(state).map_err(Error::file("reading", state))? {
        let path = entry.map_err(Error::file("reading", state))?.path();
        if path == keep {
            continue;
        }
        let removed = if path.is_dir() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.map_err(Error::file("removing", path))?;
    }
    Ok(())
}

/// Switches nodes off and on again; returns when their machines have started.
pub fn reset(paths: &Paths, nodes: &[u32]) -> Result<(), Error> {
    ask_running(
        paths,
        &Request::Reset {
            nodes: nodes.to_vec(),
        },
    )
}

/// Switches nodes on that are off; returns when their machines have started.
pub fn power_on(paths: &Paths, nodes: &[u32]) -> Result<(), Error> {
    ask_running(
        paths,
        &Request::PowerOn {
            nodes: nodes.to_vec(),
        },
    )
}

/// Switches nodes off, as by pulling the plug.
pub fn power_off(paths: &Paths, nodes: &[u32]) -> Result<(), Error> {
    ask_running(
        paths,
        &Request::PowerOff {
            nodes: nodes.to_vec(),
        },
    )
}

/// Ends the control node and starts it again; the machines run on.
pub fn restart_control(paths: &Paths) -> Result<(), Error> {
    ask_running(paths, &Request::RestartControl)
}

/// Starts the control node of a cluster whose machines run on without one: it was stopped, or
/// crashed too often. Returns whether there was one to start.
pub fn start_control(paths: &Paths) -> Result<bool, Error> {
    if !is_running(paths) {
        return Ok(false);
    }
    // Where the whole cluster is being started, its control node is none that was stopped.
    let _preparing = lock_root(paths)?;
    if !is_running(paths)
        || Record::load(paths)?
            .control
            .is_some_and(ProcessId::is_alive)
    {
        return Ok(false);
    }
    ask(paths, &Request::StartControl).map(|()| true)
}

fn ask_running(paths: &Paths, request: &Request) -> Result<(), Error> {
    if !is_running(paths) {
        return Err(Error::NotUp(paths.name().to_owned()));
    }
    request::ask(paths, request)
}

/// Whether a cluster's supervisor lives.
pub fn is_running(paths: &Paths) -> bool {
    match File::open(paths.supervisor_lock()) {
        Ok(file) => matches!(file.try_lock(), Err(TryLockError::WouldBlock)),
        Err(_) => false,
    }
}

/// Serializes preparations: two `up` of one name must not mix their files. The lock is on the
/// directory of all clusters, so that no file is left for it.
fn lock_root(paths: &Paths) -> Result<File, Error> {
    let root = paths.state().parent().unwrap_or(paths.state());
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(root)
        .map_err(Error::file("making", root))?;
    let directory = File::open(root).map_err(Error::file("opening", root))?;
    let deadline = Instant::now() + PREPARE_LIMIT;
    loop {
        match directory.try_lock() {
            Ok(()) => return Ok(directory),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(TICK);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Timeout {
                    what: "the end of another `hearth up`'s preparations".to_owned(),
                    limit_seconds: PREPARE_LIMIT.as_secs(),
                    detail: String::new(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(Error::file("locking", root)(error)),
        }
    }
}

/// One cluster in a list.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    pub name: String,
    /// Whether it is up; otherwise a crash left it, and [`down`] removes it.
    pub running: bool,
    pub nodes: u32,
    /// What executes the machines' instructions.
    pub accelerator: Accelerator,
    pub http: SocketAddr,
}

/// The clusters of this user, by name.
pub fn list() -> Result<Vec<Summary>, Error> {
    let root = state_root()?;
    let entries = match fs::read_dir(&root) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("reading", root)(error)),
    };
    let mut clusters = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        // Anything else in this directory is not ours to judge.
        let Some(Ok(paths)) = name.to_str().map(|name| Paths::below(&root, name)) else {
            continue;
        };
        let Ok(record) = Record::load(&paths) else {
            continue;
        };
        clusters.push(Summary {
            name: paths.name().to_owned(),
            running: is_running(&paths),
            nodes: record.spec.nodes,
            accelerator: record.spec.accelerator,
            http: record.http,
        });
    }
    clusters.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(clusters)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails_to_start(paths: &Paths, control: &str) -> Error {
        let spec = Spec::example(paths.name(), 1, "1");
        // In the supervisor's place: it leaves its files as one that is killed does.
        let supervise = format!(
            "touch {0}/supervisor.sock {0}/supervisor.lock; {control}",
            paths.run().display()
        );
        let launcher = Launcher {
            supervise: vec!["sh".into(), "-c".into(), supervise.into()],
            control: Vec::new(),
            io: Vec::new(),
            http: "127.0.0.1:0".parse().unwrap(),
        };
        start(&spec, paths, &launcher, &mut |_| ControlFlow::Continue(())).unwrap_err()
    }

    #[test]
    fn a_failed_start_leaves_only_its_logs() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path(), "lab").unwrap();
        let failed = r#"echo '{"stage":"failed","message":"no luck"}'"#;
        for _ in 0..2 {
            let error = fails_to_start(&paths, failed);
            assert_eq!(error.to_string(), "no luck");
            assert!(holds_only_logs(&paths));
            assert!(paths.supervisor_log().exists());
        }
        assert!(matches!(down(&paths, false), Err(Error::NotUp(_))));
        assert!(!paths.state().exists());
    }

    #[test]
    fn a_failed_start_spares_the_state_of_another_control_node() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path(), "lab").unwrap();
        fs::create_dir_all(paths.run()).unwrap();
        let (store, lock) = (
            paths.state().join("hearth.db"),
            paths.run().join("control.lock"),
        );
        fs::write(&store, "").unwrap();
        fs::write(&lock, "").unwrap();
        fails_to_start(&paths, "exit 1");
        assert!(store.exists() && lock.exists());
        assert!(!paths.record().exists() && !paths.supervisor_socket().exists());
    }
}
