//! The process that keeps a cluster: it lives in the cluster's namespace, starts everything there
//! and answers requests until it is told to stop.
//!
//! Key function: [`supervise`]. Key types: [`Stage`] (what it reports while starting),
//! [`Supervisor`]. Neighbours: `lifecycle::up` starts it and reads its report; `machine`,
//! `network`, `namespace` do the parts.
//!
//! Standard input is the control node's TCP listener, made outside the namespace; it is handed on
//! as control's standard input, which keeps file descriptors out of unsafe hands. Standard output
//! is the report.
//!
//! Invariant: one thread, because children are tied to the life of the thread that started them.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::lifecycle::Launcher;
use crate::request::{self, Reply, Request};
use crate::{
    Error, Firmware, MachineState, Paths, ProcessId, Record, Spec, console, control_socket,
    machine, namespace, network,
};

/// Another supervisor holds the lock longer than this, a look at it does not.
const LOCK_LIMIT: Duration = Duration::from_secs(2);
/// How often ended children are looked for.
const CHILD_POLL_MS: u16 = 250;
/// The control node opens its socket within this time, also on a machine under load.
const CONTROL_START_LIMIT: Duration = Duration::from_secs(60);
/// How long a control node may take to end in good order.
const CONTROL_STOP_LIMIT: Duration = Duration::from_secs(5);
/// A control node that crashes is started again so often; then it is left for a person.
const MAX_CONTROL_RESTARTS: u32 = 3;
/// Crashes that lie further apart are counted anew.
const CONTROL_RESTARTS_WITHIN: Duration = Duration::from_secs(60);
/// An I/O service ends its workers first.
const IO_STOP_LIMIT: Duration = Duration::from_secs(5);
/// Between two starts of an I/O service there is as much.
const IO_STARTS_APART: Duration = Duration::from_secs(1);
/// A machine that resets itself, because its kernel panicked, is started again so often within this
/// time; then it stays off.
const MAX_MACHINE_RESETS: usize = 3;
const MACHINE_RESETS_WITHIN: Duration = Duration::from_secs(600);
/// A client of the supervisor sends its request within this time.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);
/// How much of a log goes into an error.
const TAIL_BYTES: u64 = 2_000;
/// A disk with less space than that is full: a control node cannot begin its store there.
const FULL_BELOW_BYTES: u64 = 256 * 1024;

/// What a supervisor reports while it starts: one JSON line each.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "stage", rename_all = "kebab-case")]
pub(crate) enum Stage {
    /// Switches and links are made.
    Network { switches: u32, links: u32 },
    /// The control node answers.
    Control,
    /// So many machines are switched on.
    Machines { started: u32, total: u32 },
    /// Everything is started; nothing follows.
    Running,
    /// Starting failed; nothing follows.
    Failed { message: String },
}

/// Brings a prepared cluster up and keeps it until it is told to stop. Returns when it is down.
///
/// To be called by a process that was started for this purpose alone, before it has threads.
pub fn supervise(paths: &Paths) -> Result<(), Error> {
    // A terminal's Ctrl-C and hang-up are not for us. Fails when we lead a session already.
    let _ = nix::unistd::setsid();
    let result = Supervisor::start(paths);
    match result {
        Ok(mut supervisor) => {
            report(&Stage::Running);
            supervisor.serve()
        }
        Err(error) => {
            report(&Stage::Failed {
                message: error.to_string(),
            });
            Err(error)
        }
    }
}

/// Tells `up`; when it has gone away, nobody needs to know.
fn report(stage: &Stage) {
    let mut output = io::stdout().lock();
    let _ = request::write_line(&mut output, stage).and_then(|()| output.flush());
}

/// Writes a line to the supervisor's own log, which is its standard error.
fn log(text: &str) {
    let seconds = unix_ms() / 1_000;
    let _ = writeln!(io::stderr(), "{seconds} {text}");
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The process of an I/O service.
#[derive(Default)]
struct IoService {
    child: Option<Child>,
    started_at: Option<Instant>,
}

struct Supervisor {
    paths: Paths,
    record: Record,
    launcher: Launcher,
    requests: UnixListener,
    control: Option<Child>,
    control_restarts: u32,
    control_ended_at: Option<Instant>,
    io_services: Vec<IoService>,
    machines: Vec<Option<Child>>,
    /// When each machine has reset itself lately.
    resets: Vec<Vec<Instant>>,
    /// Held as long as this process lives: others see by it that the cluster is up.
    _lock: File,
}

impl Supervisor {
    fn start(paths: &Paths) -> Result<Self, Error> {
        let lock_path = paths.supervisor_lock();
        let lock = File::create(&lock_path).map_err(Error::file("making", &lock_path))?;
        take_lock(&lock, paths)?;
        let mut record = Record::load(paths)?;
        let launcher = Launcher::load(paths)?;
        record.supervisor = ProcessId::of(std::process::id());
        record.save(paths)?;
        let requests = listen(paths)?;

        namespace::enter()?;
        let layout = network::layout(&record.spec);
        network::apply(&layout)?;
        report(&Stage::Network {
            switches: layout.switches,
            links: layout.links,
        });

        let io_services = (0..record.spec.io_services).map(|_| IoService::default());
        let machines = record.nodes.iter().map(|_| None).collect();
        let resets = record.nodes.iter().map(|_| Vec::new()).collect();
        let mut supervisor = Self {
            paths: paths.clone(),
            record,
            launcher,
            requests,
            control: None,
            control_restarts: 0,
            control_ended_at: None,
            io_services: io_services.collect(),
            machines,
            resets,
            _lock: lock,
        };
        supervisor.start_control()?;
        supervisor.look_after_io_services();
        report(&Stage::Control);
        let total = supervisor.record.spec.nodes;
        for node in 0..total {
            supervisor.power_on(node)?;
            report(&Stage::Machines {
                started: node + 1,
                total,
            });
        }
        Ok(supervisor)
    }

    /// Starts the control node and waits until its socket answers.
    fn start_control(&mut self) -> Result<(), Error> {
        let arguments = control_arguments(&self.record.spec, &self.paths, &self.launcher);
        let Some((program, arguments)) = arguments.split_first() else {
            return Err(Error::Spec(
                "no command was given to start the control node".to_owned(),
            ));
        };
        let log_path = self.paths.control_log();
        let mut child = machine::dying_with_parent(program)
            .args(arguments)
            // The TCP listener.
            .stdin(Stdio::inherit())
            .stdout(machine::append(&log_path)?)
            .stderr(machine::append(&log_path)?)
            .spawn()
            .map_err(|source| Error::Start {
                program: program.to_string_lossy().into_owned(),
                source,
            })?;
        self.record.control = ProcessId::of(child.id());
        self.record.control_stopped = false;
        self.record.save(&self.paths)?;
        let deadline = Instant::now() + CONTROL_START_LIMIT;
        let socket = self.paths.control_socket();
        let result = loop {
            if control_socket::is_ready(&socket) {
                break Ok(());
            }
            let ended = child
                .try_wait()
                .map_err(Error::file("waiting for", program))?;
            let tail = || tail_of_log(&log_path);
            if let Some(status) = ended {
                let what = format!("the control node ({status})");
                break Err(Error::Ended {
                    what,
                    log: log_path.clone(),
                    tail: tail(),
                });
            }
            if Instant::now() >= deadline {
                break Err(Error::Timeout {
                    what: "the control node's start".to_owned(),
                    limit_seconds: CONTROL_START_LIMIT.as_secs(),
                    detail: format!("; the end of {}:\n{}", log_path.display(), tail()),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        self.control = Some(child);
        result
    }

    fn stop_control(&mut self) -> Result<(), Error> {
        if let Some(mut child) = self.control.take() {
            end(&mut child, self.record.control, CONTROL_STOP_LIMIT)?;
        }
        self.record.control = None;
        remove_if_there(&self.paths.control_socket())
    }

    fn power_on(&mut self, node: u32) -> Result<(), Error> {
        let child = machine::start(&self.record.spec, &self.paths, node)?;
        let (record, slot) = self.slot(node)?;
        record.process = ProcessId::of(child.id());
        record.power_on_unix_ms = Some(unix_ms());
        record.starts += 1;
        record.state = MachineState::On;
        record.ended = None;
        *slot = Some(child);
        self.record.save(&self.paths)
    }

    fn power_off(&mut self, node: u32) -> Result<(), Error> {
        let (record, slot) = self.slot(node)?;
        if let Some(mut child) = slot.take() {
            end(&mut child, None, Duration::ZERO)?;
        }
        record.process = None;
        record.state = MachineState::Off;
        record.ended = None;
        self.record.save(&self.paths)
    }

    fn slot(&mut self, node: u32) -> Result<(&mut crate::NodeRecord, &mut Option<Child>), Error> {
        let index = usize::try_from(node).unwrap_or(usize::MAX);
        match (
            self.record.nodes.get_mut(index),
            self.machines.get_mut(index),
        ) {
            (Some(record), Some(slot)) => Ok((record, slot)),
            _ => Err(Error::Spec(format!(
                "there is no node n{node}: this cluster has n0 to n{}",
                self.record.spec.nodes - 1
            ))),
        }
    }

    /// Answers requests and looks after children until told to stop.
    fn serve(&mut self) -> Result<(), Error> {
        loop {
            let mut watched = [PollFd::new(self.requests.as_fd(), PollFlags::POLLIN)];
            match poll(&mut watched, PollTimeout::from(CHILD_POLL_MS)) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => {
                    let operation = "waiting for requests";
                    return Err(Error::Socket {
                        operation,
                        source: errno.into(),
                    });
                }
            }
            self.look_after_machines();
            self.look_after_control();
            self.look_after_io_services();
            match self.requests.accept() {
                Ok((stream, _)) => {
                    if self.answer(stream) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => log(&format!("accepting a request: {error}")),
            }
        }
    }

    /// Answers one client; returns whether everything was ended.
    fn answer(&mut self, mut stream: UnixStream) -> bool {
        let read = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_read_timeout(Some(REQUEST_LIMIT)))
            .and_then(|()| stream.set_write_timeout(Some(REQUEST_LIMIT)))
            .and_then(|()| request::read_line::<Request>(&mut stream));
        let request = match read {
            Ok(request) => request,
            // A mere connection asks nothing: somebody looks whether we are here.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return false,
            Err(error) => {
                log(&format!("a request could not be read: {error}"));
                return false;
            }
        };
        log(&format!("{request:?}"));
        let result = self.perform(&request);
        let reply = Reply {
            error: result.err().map(|error| error.to_string()),
        };
        if let Some(error) = &reply.error {
            log(&format!("failed: {error}"));
        }
        if let Err(error) = request::write_line(&mut stream, &reply) {
            log(&format!("a reply could not be sent: {error}"));
        }
        request == Request::Stop
    }

    fn perform(&mut self, request: &Request) -> Result<(), Error> {
        match request {
            Request::Reset { nodes } => {
                self.check_nodes(nodes)?;
                for &node in nodes {
                    self.resets[node as usize].clear();
                    self.power_off(node)?;
                    self.power_on(node)?;
                }
                Ok(())
            }
            Request::PowerOn { nodes } => {
                self.check_nodes(nodes)?;
                for &node in nodes {
                    self.resets[node as usize].clear();
                    if self.machines[node as usize].is_none() {
                        self.power_on(node)?;
                    }
                }
                Ok(())
            }
            Request::PowerOff { nodes } => {
                self.check_nodes(nodes)?;
                nodes.iter().try_for_each(|&node| self.power_off(node))
            }
            Request::RestartControl => {
                self.stop_control()?;
                self.start_control()
            }
            Request::StartControl => {
                // It may have ended since it was last looked at: who asks has seen it end.
                self.look_after_control();
                if self.control.is_some() {
                    return Err(Error::AlreadyUp(self.paths.name().to_owned()));
                }
                self.control_restarts = 0;
                remove_if_there(&self.paths.control_socket())?;
                self.start_control()
            }
            Request::Stop => {
                for node in 0..self.record.spec.nodes {
                    self.power_off(node)?;
                }
                for (service, place) in self
                    .io_services
                    .iter_mut()
                    .zip(&mut self.record.io_services)
                {
                    if let Some(mut child) = service.child.take() {
                        end(&mut child, place.take(), IO_STOP_LIMIT)?;
                    }
                }
                self.stop_control()?;
                remove_if_there(&self.paths.supervisor_socket())
            }
        }
    }

    /// All or nothing: a slip in a list changes nothing.
    fn check_nodes(&mut self, nodes: &[u32]) -> Result<(), Error> {
        nodes
            .iter()
            .try_for_each(|&node| self.slot(node).map(|_| ()))
    }

    /// Notes machines that ended unasked, and starts those again that have reset themselves.
    fn look_after_machines(&mut self) {
        let mut changed = false;
        let mut again = Vec::new();
        let all = self.record.nodes.iter_mut().zip(&mut self.machines);
        for ((node, (record, slot)), resets) in (0..).zip(all).zip(&mut self.resets) {
            let Some(status) = has_ended(slot) else {
                continue;
            };
            log(&format!("the machine of {} ended: {status}", record.name));
            record.process = None;
            record.state = MachineState::Off;
            record.ended = Some(status.to_string());
            changed = true;
            // QEMU ends well when its guest resets (`-no-reboot`).
            if status.success() {
                resets.retain(|at: &Instant| at.elapsed() < MACHINE_RESETS_WITHIN);
                resets.push(Instant::now());
                if resets.len() < MAX_MACHINE_RESETS {
                    again.push(node);
                    continue;
                }
                let text = format!(
                    "it reset itself {} times within {} minutes and stays off: `hearth console {}` shows why, `hearth node reset {}` starts it",
                    resets.len(),
                    MACHINE_RESETS_WITHIN.as_secs() / 60,
                    record.name,
                    record.name
                );
                log(&text);
                record.ended = Some(text);
            }
        }
        if changed {
            self.save_or_log();
        }
        for node in again {
            match self.power_on(node) {
                Ok(()) => log(&format!("n{node} was started again")),
                Err(error) => log(&format!("n{node} did not start again: {error}")),
            }
        }
    }

    /// Starts I/O services that do not run: at the begin, and when one has ended.
    fn look_after_io_services(&mut self) {
        let mut changed = false;
        let places = self
            .io_services
            .iter_mut()
            .zip(&mut self.record.io_services);
        for (number, (service, place)) in (0..).zip(places) {
            if let Some(status) = has_ended(&mut service.child) {
                log(&format!("I/O service {number} ended: {status}"));
                *place = None;
                changed = true;
            }
            let is_early = |at: Instant| at.elapsed() < IO_STARTS_APART;
            if service.child.is_some() || service.started_at.is_some_and(is_early) {
                continue;
            }
            service.started_at = Some(Instant::now());
            match start_io_service(&self.launcher, &self.paths, number) {
                Ok(child) => {
                    *place = ProcessId::of(child.id());
                    service.child = Some(child);
                }
                Err(error) => log(&format!("I/O service {number} did not start: {error}")),
            }
            changed = true;
        }
        if changed {
            self.save_or_log();
        }
    }

    /// Notes that the control node has ended, and starts one again that has crashed.
    fn look_after_control(&mut self) {
        let Some(status) = has_ended(&mut self.control) else {
            return;
        };
        self.record.control = None;
        // It ends well only where somebody asked it to.
        self.record.control_stopped = status.success();
        self.save_or_log();
        match status.success() {
            true => log("the control node was stopped; `hearth up` starts it again"),
            false => self.replace_control(status),
        }
    }

    /// Starts a control node again that has crashed, unless it does so too often.
    fn replace_control(&mut self, status: ExitStatus) {
        log(&format!("the control node crashed: {status}"));
        let before = self.control_ended_at.replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() > CONTROL_RESTARTS_WITHIN) {
            self.control_restarts = 0;
        }
        if self.control_restarts == MAX_CONTROL_RESTARTS {
            let within = CONTROL_RESTARTS_WITHIN.as_secs();
            log(&format!(
                "it is not started again: it crashed {MAX_CONTROL_RESTARTS} times before, each within {within} s of the last; its log says why, and `hearth up` starts it again"
            ));
            return;
        }
        self.control_restarts += 1;
        let removed = remove_if_there(&self.paths.control_socket());
        match removed.and_then(|()| self.start_control()) {
            Ok(()) => log("the control node was started again"),
            Err(error) => log(&format!("the control node did not start again: {error}")),
        }
    }

    /// Saves the record. A full disk must not end the machines: they run on, and the next change
    /// tries again.
    fn save_or_log(&self) {
        if let Err(error) = self.record.save(&self.paths) {
            log(&format!("the record could not be saved: {error}"));
        }
    }
}

/// Takes the lock that says that the cluster is up. Others take it for an instant to look whether
/// it is taken, so one failure means nothing yet.
fn take_lock(lock: &File, paths: &Paths) -> Result<(), Error> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => return Err(Error::AlreadyUp(paths.name().to_owned())),
            Err(TryLockError::Error(error)) => {
                return Err(Error::file("locking", paths.supervisor_lock())(error));
            }
        }
    }
}

/// Opens the socket for requests. Who holds the lock is the only supervisor, so a socket that is
/// there is a dead one's; one that answers all the same is nobody's to remove.
fn listen(paths: &Paths) -> Result<UnixListener, Error> {
    let socket = paths.supervisor_socket();
    if UnixStream::connect(&socket).is_ok() {
        return Err(Error::AlreadyUp(paths.name().to_owned()));
    }
    remove_if_there(&socket)?;
    let requests = UnixListener::bind(&socket).map_err(Error::file("listening on", &socket))?;
    requests
        .set_nonblocking(true)
        .map_err(Error::file("listening on", socket))?;
    Ok(requests)
}

/// Takes a child that has ended out of its place.
fn has_ended(slot: &mut Option<Child>) -> Option<ExitStatus> {
    let status = slot.as_mut()?.try_wait().ok().flatten()?;
    *slot = None;
    Some(status)
}

/// Ends a child: asks first if there is time, then kills; returns when it is gone.
fn end(child: &mut Child, process: Option<ProcessId>, limit: Duration) -> Result<(), Error> {
    let waiting = Error::file("ending process", child.id().to_string());
    if let Some(process) = process
        && !limit.is_zero()
    {
        // Whatever comes of asking, killing follows.
        let _ = process.signal(Signal::SIGTERM);
        process.wait_for_end(limit);
    }
    child
        .kill()
        .and_then(|()| child.wait())
        .map(|_| ())
        .map_err(waiting)
}

/// The end of a log, behind that there is no space where that is so: then the log cannot say it.
fn tail_of_log(log: &Path) -> String {
    let tail = console::tail(log, TAIL_BYTES);
    let folder = log.parent().unwrap_or(log);
    let left = nix::sys::statvfs::statvfs(folder)
        .map(|disk| disk.blocks_available() * disk.fragment_size());
    match left {
        Ok(left) if left < FULL_BELOW_BYTES => format!(
            "no space is left on the disk of {}: make room, or set XDG_STATE_HOME to a folder on another\n{tail}",
            folder.display()
        ),
        _ => tail,
    }
}

/// Removes a file; that it is not there is no failure.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("removing", path)(error))
        }
        _ => Ok(()),
    }
}

/// Starts an I/O service.
fn start_io_service(launcher: &Launcher, paths: &Paths, number: u32) -> Result<Child, Error> {
    let Some((program, arguments)) = launcher.io.split_first() else {
        return Err(Error::Spec(
            "no command was given to start an I/O service".to_owned(),
        ));
    };
    let log = paths.io_log(number);
    machine::dying_with_parent(program)
        .args(arguments)
        .arg("--state-dir")
        .arg(paths.state())
        .arg("--listen")
        .arg(Spec::io_service_address(number).to_string())
        .arg("--interface")
        .arg(network::io_interface(number))
        .stdin(Stdio::null())
        .stdout(machine::append(&log)?)
        .stderr(machine::append(&log)?)
        .spawn()
        .map_err(|source| Error::Start {
            program: program.to_string_lossy().into_owned(),
            source,
        })
}

/// The command of the control node: the caller's, and what only this crate knows.
fn control_arguments(spec: &Spec, paths: &Paths, launcher: &Launcher) -> Vec<std::ffi::OsString> {
    let (address, prefix) = Spec::CONTROL_ADDRESS;
    let mut list = launcher.control.clone();
    let mut add = |option: &str, value: std::ffi::OsString| {
        list.push(option.into());
        list.push(value);
    };
    add("--interface", network::SERVICE_INTERFACE.into());
    add("--address", format!("{address}/{prefix}").into());
    add("--state-dir", paths.state().into());
    add("--http-fd", "0".into());
    add("--image", spec.image.clone().into());
    add("--nodes-file", paths.nodes_file().into());
    add("--tree", spec.tree.to_string().into());
    if spec.firmware != Firmware::Direct && !spec.command_line.is_empty() {
        add("--command-line", spec.command_line.clone().into());
    }
    list
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_dead_supervisors_socket_is_replaced_and_a_living_ones_is_not() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path(), "lab").unwrap();
        fs::create_dir_all(paths.run()).unwrap();
        let first = listen(&paths).unwrap();
        assert!(matches!(listen(&paths), Err(Error::AlreadyUp(_))));
        drop(first);
        assert!(paths.supervisor_socket().exists());
        listen(&paths).unwrap();
    }

    /// `hearth up` right after `hearth stop`: the control node has ended, and the supervisor has
    /// not looked at it since.
    #[test]
    fn a_control_node_that_ended_unseen_is_not_up_already() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::below(root.path(), "lab").unwrap();
        for folder in [paths.run(), paths.logs()] {
            fs::create_dir_all(folder).unwrap();
        }
        let child = |program: &str| machine::dying_with_parent(program).spawn().unwrap();
        let control = child("true");
        let process = ProcessId::of(control.id()).unwrap();
        let http = "127.0.0.1:1".parse().unwrap();
        let mut record = Record::new(Spec::example("lab", 1, "1"), http, &paths);
        record.control = Some(process);
        let mut supervisor = Supervisor {
            record,
            launcher: Launcher {
                supervise: Vec::new(),
                control: vec!["false".into()],
                io: Vec::new(),
                http,
            },
            requests: listen(&paths).unwrap(),
            control: Some(control),
            control_restarts: 0,
            control_ended_at: None,
            io_services: Vec::new(),
            machines: vec![None],
            resets: vec![Vec::new()],
            _lock: File::create(paths.supervisor_lock()).unwrap(),
            paths,
        };
        assert!(process.wait_for_end(Duration::from_secs(60)));
        let started = supervisor.perform(&Request::StartControl);
        // It was started, and ended as `false` does.
        assert!(matches!(started, Err(Error::Ended { .. })), "{started:?}");

        supervisor.control = Command::new("sleep").arg("60").spawn().ok();
        let started = supervisor.perform(&Request::StartControl);
        assert!(matches!(started, Err(Error::AlreadyUp(_))), "{started:?}");
        let mut left = supervisor.control.take().unwrap();
        left.kill().and_then(|()| left.wait()).unwrap();
    }
}
