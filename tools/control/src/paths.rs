//! Where a cluster's state lies, and which clusters of this user are running.
//!
//! Key types: [`StateDir`] (names of the files inside), [`find`] (the control socket a command
//! talks to; [`find_patiently`] waits for one that is being started). Neighbours: `cli`
//! (`--cluster`, `--state-dir`), `serve` (creates the directory); `hearth up` keeps its own files
//! in the same directory.
//!
//! Invariant: only control writes below `run/` and the files named here; nothing here is created
//! by asking.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hearth_qemu::{CLUSTER_NAMES, is_cluster_name};

/// How long a command waits for a control node that its supervisor is starting; that takes a
/// second or so.
pub const START_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked for meanwhile.
const START_PERIOD: Duration = Duration::from_millis(100);

/// Has this process and those that it starts make files for their owner alone, and readable by him,
/// whatever the umask was: most of a state directory is nobody else's affair.
pub fn make_files_private() {
    use nix::sys::stat::{Mode, umask};
    umask(Mode::S_IRWXG | Mode::S_IRWXO);
}

/// Name of the service's cluster among those of users.
const SYSTEM: &str = "system";

/// The state directory of one control node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// The directory at `path`; nothing is created.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        StateDir(path.into())
    }

    /// The directory of the cluster `name` of this user: `$XDG_STATE_HOME/hearth/NAME`.
    pub fn of_cluster(name: &str) -> Self {
        StateDir(clusters_dir().join(name))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Sockets and locks, gone after a reboot without loss.
    pub fn run(&self) -> PathBuf {
        self.0.join("run")
    }

    /// The unix socket of the control API.
    pub fn socket(&self) -> PathBuf {
        self.run().join("control.sock")
    }

    /// Held locked by the running control node.
    pub fn lock(&self) -> PathBuf {
        self.run().join("control.lock")
    }

    /// Where the processes listen that carry out the file calls of jobs, each under the number of
    /// its job.
    pub fn workers(&self) -> PathBuf {
        self.run().join("workers")
    }

    /// The number of the last run of the control node's I/O service.
    pub fn io_run(&self) -> PathBuf {
        self.0.join("io-run")
    }

    /// The cluster secret, mode 0600.
    pub fn secret(&self) -> PathBuf {
        self.0.join("secret")
    }

    /// The bearer token of the HTTP API, mode 0600.
    pub fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    /// The certificate of the API with TLS.
    pub fn certificate(&self) -> PathBuf {
        self.0.join("tls.der")
    }

    /// Its key, mode 0600.
    pub fn certificate_key(&self) -> PathBuf {
        self.0.join("tls.key")
    }

    /// The event log, one JSON object a line.
    pub fn events(&self) -> PathBuf {
        self.0.join("events.jsonl")
    }

    /// Cached programs, named by their BLAKE3 hash.
    pub fn programs(&self) -> PathBuf {
        self.0.join("programs")
    }

    /// Output of batch jobs, a file for each.
    pub fn outputs(&self) -> PathBuf {
        self.0.join("output")
    }

    /// The store: machines, warm programs, programs, jobs, events.
    pub fn store(&self) -> PathBuf {
        self.0.join("hearth.db")
    }

    /// Folder of what nodes counted, a file a day.
    pub fn monitor(&self) -> PathBuf {
        self.0.join("monitor")
    }
}

/// Where this user's clusters lie: `$XDG_STATE_HOME/hearth`, else `~/.local/state/hearth`.
pub fn clusters_dir() -> PathBuf {
    std::env::var_os("XDG_STATE_HOME")
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/state")))
        .unwrap_or_else(|| PathBuf::from("/var/lib"))
        .join("hearth")
}

/// Where the token for control nodes elsewhere is, unless somebody says otherwise:
/// `$XDG_CONFIG_HOME/hearth/token`, else `~/.config/hearth/token`.
pub fn token_file() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let home = || Some(PathBuf::from(set("HOME")?).join(".config"));
    let folder = set("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home);
    folder.unwrap_or_default().join("hearth/token")
}

/// Why no control node was found.
#[derive(Debug, Clone, thiserror::Error, PartialEq, Eq)]
pub enum FindError {
    /// Nothing runs here.
    #[error("no cluster is running; start one with `hearth up` or `hearth serve`")]
    None,
    /// The one asked for does not run.
    #[error("the cluster {0:?} is not running; running now: {1}")]
    NotRunning(String, String),
    /// Its supervisor lives, its control node does not answer.
    #[error(
        "the control node of cluster {0:?} does not answer; its supervisor starts it again when it \
         has ended: try again in a moment, or `hearth --cluster {0} down` and `up`"
    )]
    Starting(String),
    /// Its machines run on without a control node, which somebody has stopped.
    #[error(
        "the control node of cluster {0:?} was stopped; `hearth --cluster {0} up` starts it again"
    )]
    Stopped(String),
    /// Its supervisor has ended without `hearth down`.
    #[error(
        "cluster {0:?} has crashed: its supervisor has ended; `hearth --cluster {0} down` removes \
         what is left of it, `hearth --cluster {0} up` starts it anew"
    )]
    Crashed(String),
    /// One that answered has gone.
    #[error("the control node that answered at {0} has ended and is not back")]
    Ended(PathBuf),
    /// No control node answers in the given directory.
    #[error("no control node answers at {0}; is `hearth serve` running with this --state-dir?")]
    NoAnswer(PathBuf),
    /// The system does not let this user ask it.
    #[error(
        "{} is closed to {user}: a control node serves root, the user it runs as, and where root runs it the members of the group api.group (by default `hearth`); ask its operator to add you (`usermod -aG hearth {user}`), log in again, or use a token (--host)", path.display()
    )]
    Closed {
        /// The socket.
        path: PathBuf,
        /// Who asks.
        user: String,
    },
    /// More than one runs and none was chosen.
    #[error("several clusters are running ({0}); choose one with --cluster NAME")]
    Several(String),
    /// A name that could leave the directory of clusters.
    #[error("`{0}` is no cluster name: use {names}", names = CLUSTER_NAMES)]
    BadName(String),
}

/// Checks a cluster name.
///
/// # Errors
/// [`FindError::BadName`].
pub fn check_name(name: &str) -> Result<(), FindError> {
    match is_cluster_name(name) {
        true => Ok(()),
        false => Err(FindError::BadName(name.to_string())),
    }
}

/// How a state directory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// A control node answers.
    Answers,
    /// None does, but the supervisor of a QEMU cluster lives.
    Starting,
    /// None does, and the supervisor of a QEMU cluster leaves it at that: somebody wanted it.
    Stopped,
    /// The supervisor of a QEMU cluster has ended and left its files.
    Crashed,
    /// The system does not let this user ask.
    Closed,
    /// Neither runs.
    Absent,
}

fn standing(dir: &StateDir) -> Standing {
    match UnixStream::connect(dir.socket()) {
        Ok(_) => return Standing::Answers,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Standing::Closed;
        }
        Err(_) => {}
    }
    let root = dir.path().parent().unwrap_or(Path::new(""));
    match hearth_qemu::Paths::below(root, &name_of(dir)) {
        Ok(paths) if hearth_qemu::is_running(&paths) => {
            match hearth_qemu::Record::load(&paths).is_ok_and(|record| record.control_stopped) {
                true => Standing::Stopped,
                false => Standing::Starting,
            }
        }
        Ok(paths) if paths.record().exists() => Standing::Crashed,
        _ => Standing::Absent,
    }
}

fn name_of(dir: &StateDir) -> String {
    let name = dir.path().file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The directory if its control node answers, else why not; `absent` where nothing runs there.
fn answering(dir: StateDir, absent: impl FnOnce() -> FindError) -> Result<StateDir, FindError> {
    match standing(&dir) {
        Standing::Answers => Ok(dir),
        Standing::Starting => Err(FindError::Starting(name_of(&dir))),
        Standing::Stopped => Err(FindError::Stopped(name_of(&dir))),
        Standing::Crashed => Err(FindError::Crashed(name_of(&dir))),
        Standing::Closed => Err(closed(&dir)),
        Standing::Absent => Err(absent()),
    }
}

fn closed(dir: &StateDir) -> FindError {
    FindError::Closed {
        path: dir.socket(),
        user: crate::user::name(),
    }
}

/// Finds the control node a command talks to: the given state directory, the named cluster, or
/// the only one running among this user's clusters and `system` (the service's directory).
///
/// # Errors
/// [`FindError`], which lists the running clusters where that helps.
pub fn find(
    state_dir: Option<&Path>,
    cluster: Option<&str>,
    system: &Path,
) -> Result<StateDir, FindError> {
    if let Some(path) = state_dir {
        let dir = StateDir::new(path);
        let socket = dir.socket();
        return answering(dir, || FindError::NoAnswer(socket));
    }
    find_below(&clusters_dir(), cluster, system)
}

/// The paths of the cluster of QEMU nodes whose state is in `dir`, if it is one's.
pub fn qemu_paths(dir: &Path) -> Option<hearth_qemu::Paths> {
    let name = dir.file_name().and_then(|name| name.to_str())?;
    let paths = hearth_qemu::Paths::below(dir.parent()?, name).ok()?;
    paths.record().exists().then_some(paths)
}

/// As [`find`], but waits `limit` for a control node that is being started.
///
/// # Errors
/// [`FindError`].
pub fn find_patiently(
    state_dir: Option<&Path>,
    cluster: Option<&str>,
    system: &Path,
    limit: Duration,
) -> Result<StateDir, FindError> {
    let deadline = Instant::now() + limit;
    loop {
        match find(state_dir, cluster, system) {
            Err(FindError::Starting(_)) if Instant::now() < deadline => {
                std::thread::sleep(START_PERIOD);
            }
            result => return result,
        }
    }
}

/// Waits `limit` for the control node of `dir`, which answered before, to answer again.
///
/// # Errors
/// [`FindError`]; at once where nobody will start it again.
pub fn wait_for_return(dir: &StateDir, limit: Duration) -> Result<(), FindError> {
    let deadline = Instant::now() + limit;
    loop {
        let result = answering(dir.clone(), || FindError::Ended(dir.socket()));
        let hopeless = matches!(result, Err(FindError::Crashed(_))) || !dir.path().exists();
        if result.is_ok() || hopeless || Instant::now() >= deadline {
            return result.map(|_| ());
        }
        std::thread::sleep(START_PERIOD);
    }
}

fn find_below(root: &Path, cluster: Option<&str>, system: &Path) -> Result<StateDir, FindError> {
    let all = known(root, system);
    let up: Vec<_> = all
        .iter()
        .filter(|(_, _, standing)| matches!(standing, Standing::Answers | Standing::Starting))
        .collect();
    let list = || {
        let names: Vec<&str> = up.iter().map(|(name, ..)| name.as_str()).collect();
        if names.is_empty() {
            "none".to_string()
        } else {
            names.join(", ")
        }
    };
    if let Some(name) = cluster {
        check_name(name)?;
        let dir = StateDir::new(root.join(name));
        return answering(dir, || FindError::NotRunning(name.to_string(), list()));
    }
    match up.as_slice() {
        [(_, dir, Standing::Answers)] => Ok(dir.clone()),
        [(name, ..)] => Err(FindError::Starting(name.clone())),
        [] => {
            let is = |wanted| all.iter().find(move |(_, _, standing)| *standing == wanted);
            let stopped = is(Standing::Stopped).map(|(name, ..)| FindError::Stopped(name.clone()));
            let crashed = || {
                let (name, ..) = is(Standing::Crashed)?;
                Some(FindError::Crashed(name.clone()))
            };
            let closed = || is(Standing::Closed).map(|(_, dir, _)| closed(dir));
            let other = stopped.or_else(crashed).or_else(closed);
            Err(other.unwrap_or(FindError::None))
        }
        _ => Err(FindError::Several(list())),
    }
}

/// What people call the cluster of a state directory: the service's is `system`.
pub fn cluster_name(dir: &StateDir, system: &Path) -> String {
    if dir.path() == system {
        return SYSTEM.to_string();
    }
    name_of(dir)
}

/// The control nodes that answer: this user's clusters by name, then the service as `system`.
pub fn running(system: &Path) -> Vec<(String, StateDir)> {
    let known = known(&clusters_dir(), system).into_iter();
    known
        .filter(|(_, _, standing)| *standing == Standing::Answers)
        .map(|(name, dir, _)| (name, dir))
        .collect()
}

/// The state directories below `root` by name, then the service's as `system` if it runs.
fn known(root: &Path, system: &Path) -> Vec<(String, StateDir, Standing)> {
    let mut found = Vec::new();
    if let Ok(entries) = std::fs::read_dir(root) {
        for entry in entries.flatten() {
            let dir = StateDir::new(entry.path());
            let standing = standing(&dir);
            found.push((name_of(&dir), dir, standing));
        }
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let service = StateDir::new(system);
    let standing = standing(&service);
    let runs = matches!(standing, Standing::Answers | Standing::Closed);
    if runs && !found.iter().any(|(_, dir, _)| *dir == service) {
        found.push((SYSTEM.to_string(), service, standing));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_cluster_has_one_rule_for_its_name_however_it_was_started() {
        for name in ["lab-2_x", "Lab", "", "..", "a/b", "-x", "a b"] {
            let own = check_name(name).map_err(|error| error.to_string());
            let qemu = hearth_qemu::Paths::below(Path::new("/tmp"), name);
            let qemu = qemu.map(|_| ()).map_err(|error| error.to_string());
            assert_eq!(own, qemu, "{name:?}");
        }
    }

    #[test]
    fn a_directory_answers_only_while_somebody_listens() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::new(dir.path());
        std::fs::create_dir(state.run()).unwrap();
        let wanted = find(Some(dir.path()), None, Path::new("/nonexistent"));
        assert_eq!(wanted, Err(FindError::NoAnswer(state.socket())));
        let listener = UnixListener::bind(state.socket()).unwrap();
        assert_eq!(
            find(Some(dir.path()), None, Path::new("/nonexistent")),
            Ok(state.clone())
        );
        drop(listener);
        assert!(find(Some(dir.path()), None, Path::new("/nonexistent")).is_err());
    }
    /// A QEMU cluster as its files show it; its supervisor lives as long as the lock is held.
    fn cluster(root: &Path, name: &str) -> (StateDir, std::fs::File) {
        let dir = StateDir::new(root.join(name));
        std::fs::create_dir_all(dir.run()).unwrap();
        std::fs::write(dir.path().join("cluster.json"), "{}").unwrap();
        let lock = std::fs::File::create(dir.run().join("supervisor.lock")).unwrap();
        lock.lock().unwrap();
        (dir, lock)
    }

    /// As its supervisor writes it down.
    fn stop_cluster(dir: &StateDir) {
        let paths = hearth_qemu::Paths::below(dir.path().parent().unwrap(), &name_of(dir)).unwrap();
        let spec = hearth_qemu::Spec {
            name: name_of(dir),
            nodes: 1,
            memory_mib: 48,
            cpus: 1,
            tree: hearth_qemu::Tree::flat(1),
            rate: None,
            firmware: hearth_qemu::Firmware::Direct,
            accelerator: hearth_qemu::Accelerator::Tcg,
            cards: hearth_qemu::Cards::default(),
            image: "/dev/null".into(),
            command_line: String::new(),
            instruction_shift: None,
            trace: None,
            io_services: 0,
            debugged: Vec::new(),
        };
        let http = "127.0.0.1:1".parse().unwrap();
        let mut record = hearth_qemu::Record::new(spec, http, &paths);
        record.control_stopped = true;
        record.save(&paths).unwrap();
    }

    #[test]
    fn starting_crashed_and_absent_clusters_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let find = |cluster| find_below(root.path(), cluster, Path::new("/nonexistent"));
        assert_eq!(find(None), Err(FindError::None));
        let (dir, lock) = cluster(root.path(), "lab");
        let starting = Err(FindError::Starting("lab".to_string()));
        assert_eq!(
            (find(None), find(Some("lab"))),
            (starting.clone(), starting)
        );
        let listener = UnixListener::bind(dir.socket()).unwrap();
        assert_eq!(find(None), Ok(dir.clone()));
        assert_eq!(
            find(Some("other")),
            Err(FindError::NotRunning(
                "other".to_string(),
                "lab".to_string()
            ))
        );
        drop(listener);
        // Nobody starts it again by himself, so nobody waits.
        stop_cluster(&dir);
        let stopped = FindError::Stopped("lab".to_string());
        assert!(stopped.to_string().contains("hearth --cluster lab up"));
        assert_eq!(find(Some("lab")), Err(stopped.clone()));
        assert_eq!(find(None), Err(stopped));
        drop(lock);
        let crashed = FindError::Crashed("lab".to_string());
        let text = crashed.to_string();
        assert!(text.contains("hearth --cluster lab down"), "{text}");
        assert_eq!(find(Some("lab")), Err(crashed.clone()));
        assert_eq!(find(None), Err(crashed));
    }

    #[test]
    fn a_control_node_that_starts_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let (dir, lock) = cluster(root.path(), "lab");
        let wait = |limit| {
            let found = find_patiently(Some(dir.path()), None, Path::new("/nonexistent"), limit);
            assert_eq!(wait_for_return(&dir, limit).is_ok(), found.is_ok());
            found
        };
        let starting = Err(FindError::Starting("lab".to_string()));
        assert_eq!(wait(Duration::from_millis(1)), starting);
        let socket = dir.socket();
        let start = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            UnixListener::bind(socket).unwrap()
        });
        assert_eq!(wait(Duration::from_secs(60)), Ok(dir.clone()));
        drop((start.join().unwrap(), lock));
        // Nobody starts it again, so nobody waits.
        let began = Instant::now();
        let crashed = Err(FindError::Crashed("lab".to_string()));
        assert_eq!(wait(Duration::from_secs(60)), crashed);
        std::fs::remove_dir_all(dir.path()).unwrap();
        let ended = Err(FindError::Ended(dir.socket()));
        assert_eq!(wait_for_return(&dir, Duration::from_secs(60)), ended);
        assert!(began.elapsed() < Duration::from_secs(30));
    }
}
