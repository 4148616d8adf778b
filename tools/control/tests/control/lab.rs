//! A control node (the real binary, on loopback, any free port) and fake nodes around it.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fake_node::FakeNode;
use crate::identity::Identity;

/// Longest wait for anything that should take far less.
pub const LIMIT: Duration = Duration::from_secs(60);

/// A control node and its state directory.
pub struct Lab {
    dir: tempfile::TempDir,
    control: Option<Child>,
    /// The state directory as others see it.
    state: PathBuf,
    /// A process that keeps the state directory's file system, where that is one of its own.
    holder: Option<Child>,
    /// What the shell does to become the control node: `exec` and what stands before or behind it.
    before: String,
    /// More arguments of `hearth serve`.
    pub serve_arguments: Vec<&'static str>,
    pub address: SocketAddr,
    pub http: Option<String>,
    /// Where the control node's API is to listen on TCP.
    pub http_address: String,
    pub nodes: Vec<FakeNode>,
}

/// A port that the system gives to nobody else while a control node that was killed is not started
/// again: one below those that it gives to who asks for any.
fn lasting_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id().wrapping_mul(131);
    let ports = std::iter::repeat_with(|| {
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        10_000 + (start.wrapping_add(next) % 20_000) as u16
    });
    let is_free = |port: &u16| UdpSocket::bind(("127.0.0.1", *port)).is_ok();
    let mut ports = ports.take(20_000);
    ports.find(is_free).expect("some port is free")
}

/// A folder whose name a cluster can have.
fn folder() -> tempfile::TempDir {
    let name: String = std::iter::repeat_with(fastrand::lowercase)
        .take(12)
        .collect();
    let mut folder = tempfile::Builder::new();
    let folder = folder.prefix("lab-").suffix(&name).rand_bytes(0);
    folder.tempdir().unwrap()
}

impl Lab {
    /// A control node with `count` nodes in service.
    pub fn with_nodes(count: u32) -> Self {
        let mut lab = Lab::control();
        lab.add_nodes(0..count);
        lab
    }

    /// A control node alone.
    pub fn control() -> Self {
        Lab::configured("")
    }

    /// A control node alone, with a configuration file. It takes every machine, unless that says
    /// otherwise.
    pub fn configured(config: &str) -> Self {
        Lab::started_by("exec", config)
    }

    /// A control node alone, which a shell becomes by `before`, such as `umask 0; exec`, with a
    /// configuration file.
    pub fn started_by(before: &str, config: &str) -> Self {
        let dir = folder();
        let state = dir.path().to_path_buf();
        Lab::begun(dir, state, None, before, config)
    }

    /// A control node alone, whose state directory is a disk of `bytes` of its own.
    pub fn on_small_disk(bytes: u64, config: &str) -> Self {
        let dir = folder();
        let (user, into) = match nix::unistd::geteuid().is_root() {
            true => ("--mount", "--mount"),
            false => (
                "--mount --map-root-user",
                "--mount --user --preserve-credentials",
            ),
        };
        let mount = format!("mount -t tmpfs -o size={bytes},mode=700 tmpfs \"$1\"");
        let inside = format!("{mount} && echo mounted && exec sleep 3600");
        let mut holder = Command::new("unshare")
            .args(user.split(' '))
            .args(["sh", "-c", &inside, "sh"])
            .arg(dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = [0; 8];
        let output = holder.stdout.as_mut().unwrap();
        output.read_exact(&mut said).unwrap();
        let pid = holder.id();
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let state = root.join(dir.path().strip_prefix("/").unwrap());
        let before = format!("exec nsenter --target {pid} {into} --");
        Lab::begun(dir, state, Some(holder), &before, config)
    }

    fn begun(
        dir: tempfile::TempDir,
        state: PathBuf,
        holder: Option<Child>,
        before: &str,
        config: &str,
    ) -> Self {
        let address = SocketAddr::from(([127, 0, 0, 1], lasting_port()));
        let mut lab = Lab {
            dir,
            state,
            holder,
            control: None,
            before: before.to_string(),
            serve_arguments: Vec::new(),
            address,
            http: None,
            http_address: "127.0.0.1:0".into(),
            nodes: Vec::new(),
        };
        // It takes every machine, unless the configuration says otherwise.
        let open = match config.contains("[admission]") {
            true => "",
            false => "[admission]\nmode = \"open\"\n",
        };
        std::fs::write(lab.path("config.toml"), format!("{open}{config}")).unwrap();
        lab.start_control();
        lab
    }

    /// Starts the control node, at the same port as before.
    pub fn start_control(&mut self) {
        self.spawn_control();
        let socket = self.socket();
        self.eventually("the control node answers", |_| {
            UnixStream::connect(&socket).is_ok()
        });
        let status = self.get("/v1/status");
        self.address = status["control"].as_str().unwrap().parse().unwrap();
        self.http = status["http"].as_str().map(str::to_string);
    }

    /// The unix socket of the control node.
    pub fn socket(&self) -> PathBuf {
        self.path("run/control.sock")
    }

    /// Starts the control node, and waits for nothing.
    pub fn spawn_control(&mut self) {
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.dir.path().join("log"))
            .unwrap();
        let port = self.address.port().to_string();
        let child = Command::new("sh")
            .args(["-c", &format!("{} \"$@\"", self.before), "sh"])
            .args([
                env!("CARGO_BIN_EXE_hearth"),
                "serve",
                "--no-boot",
                "--address",
                "127.0.0.1/8",
                "--http",
                &self.http_address,
            ])
            .args(["--control-port", &port, "--config"])
            .arg(self.dir.path().join("config.toml"))
            .arg("--state-dir")
            .arg(self.dir.path())
            .args(&self.serve_arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.control = Some(child);
    }

    /// Ends the control node: with SIGTERM, or as by a crash.
    pub fn stop_control(&mut self, crash: bool) {
        let Some(mut child) = self.control.take() else {
            return;
        };
        if crash {
            child.kill().unwrap();
        } else {
            signal(&child, "TERM");
        }
        let status = child.wait().unwrap();
        assert!(
            crash || status.success(),
            "control ended with {status}: {}",
            self.log()
        );
    }

    pub fn add_nodes(&mut self, numbers: std::ops::Range<u32>) {
        for node in numbers.clone() {
            self.nodes
                .push(FakeNode::start(self.identity(node, 1), self.address));
        }
        let count = numbers.end as usize;
        self.eventually("all nodes joined", |lab| lab.idle_nodes() >= count);
    }

    /// Switches on nodes that are not as the others.
    pub fn add(&mut self, identities: &[Identity]) {
        for identity in identities {
            self.nodes.push(FakeNode::start(*identity, self.address));
        }
        let count = self.nodes.len();
        self.eventually("all nodes joined", |lab| lab.idle_nodes() >= count);
    }

    pub fn identity(&self, node: u32, epoch: u64) -> Identity {
        let text = std::fs::read_to_string(self.path("secret")).unwrap();
        let secret = hearth_control::secrets::decode_hex(text.trim()).unwrap();
        let version = hearth_control::serve::version_bytes();
        Identity {
            node,
            epoch: (epoch << 32) | (u64::from(node) + 1),
            secret,
            version,
            lab_key: None,
            unscrubbed: false,
            cores: 1,
        }
    }

    pub fn idle_nodes(&self) -> usize {
        let nodes = self.json(&["nodes"]);
        nodes
            .as_array()
            .unwrap()
            .iter()
            .filter(|node| node["state"] == "idle")
            .count()
    }

    /// Waits until `holds`.
    pub fn eventually(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !holds(self) {
            assert!(
                Instant::now() < deadline,
                "waited for: {what}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the control node logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// Writes a program for fake nodes and gives its path.
    pub fn program(&self, name: &str, script: &str) -> String {
        let path = self.dir.path().join(name);
        std::fs::write(&path, script).unwrap();
        path.to_str().unwrap().to_string()
    }

    /// `hearth ARGS` on this control node, not yet started.
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hearth"));
        command.arg("--state-dir").arg(&self.state).args(args);
        command.env_remove("HEARTH_CLUSTER").stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// `hearth ARGS`, to its end.
    pub fn hearth<S: AsRef<OsStr>>(&self, args: &[S]) -> Output {
        finish(self.command(args).spawn().unwrap())
    }

    /// `hearth run OPTIONS SCRIPT`, to its end.
    pub fn run(&self, options: &[&str], script: &str) -> Output {
        finish(self.run_command(options, script).spawn().unwrap())
    }

    pub fn run_command(&self, options: &[&str], script: &str) -> Command {
        let name = format!("program-{}", hearth_name(script));
        let program = self.program(&name, script);
        let mut args = vec!["run", "--no-precheck"];
        args.extend(options);
        args.push(&program);
        self.command(&args)
    }

    /// Runs a program that succeeds and gives its report.
    pub fn report(&self, options: &[&str], program: &str) -> Value {
        let file = self.path("report.json");
        let report = format!("--report={}", file.display());
        let mut args = vec!["run", "--no-precheck", &report];
        args.extend(options);
        args.push(program);
        let output = self.hearth(&args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
    }

    /// `hearth ARGS --json`.
    pub fn json(&self, args: &[&str]) -> Value {
        let mut all = args.to_vec();
        all.push("--json");
        let output = self.hearth(&all);
        assert!(
            output.status.success(),
            "{args:?}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// GET over the unix socket, without the client under test.
    pub fn get(&self, path: &str) -> Value {
        serde_json::from_str(&self.fetch(path).1).unwrap()
    }

    /// The same: head and body as they are.
    pub fn fetch(&self, path: &str) -> (String, String) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_string(), body.to_string())
    }

    /// POST over the unix socket, without the client under test: status and body.
    pub fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        let body = body.to_string();
        let head = "Host: localhost\r\nContent-Type: application/json\r\nConnection: close";
        let length = body.len();
        // At once: an answer that needs no body may come, and the connection end, before the last
        // piece is written.
        let request =
            format!("POST {path} HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    /// Puts a file into the cache, without the client under test; its name there.
    pub fn put(&self, content: &str) -> String {
        let hash = blake3::hash(content.as_bytes()).to_hex().to_string();
        let length = content.len();
        let head = format!("PUT /v1/programs/{hash} HTTP/1.0\r\nContent-Length: {length}");
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        write!(stream, "{head}\r\n\r\n{content}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert_eq!(answer.split(' ').nth(1), Some("200"), "{answer}");
        hash
    }

    /// Whether some event has this kind and text.
    pub fn has_event(&self, kind: &str, words: &str) -> bool {
        self.json(&["events"])
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["kind"] == kind && event["text"].as_str().unwrap().contains(words))
    }

    /// State of the newest job.
    pub fn last_job(&self) -> Value {
        self.json(&["jobs"])
            .as_array()
            .unwrap()
            .last()
            .cloned()
            .unwrap_or(Value::Null)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.nodes.clear();
        if let Some(mut child) = self.control.take() {
            drop(child.kill());
            drop(child.wait());
        }
        if let Some(mut holder) = self.holder.take() {
            drop(holder.kill());
            drop(holder.wait());
        }
        if std::thread::panicking() {
            eprintln!("--- log of the control node\n{}", self.log());
        }
    }
}

/// A file name that differs for different scripts.
fn hearth_name(script: &str) -> String {
    let sum = script.bytes().fold(5381u64, |sum, byte| {
        sum.wrapping_mul(33).wrapping_add(u64::from(byte))
    });
    format!("{sum:x}")
}

/// Waits for a process within the limit.
pub fn finish(child: Child) -> Output {
    let id = child.id();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let watchdog = std::thread::spawn(move || {
        if receiver.recv_timeout(LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            drop(
                Command::new("kill")
                    .args(["-KILL", &id.to_string()])
                    .status(),
            );
        }
    });
    let output = child.wait_with_output().unwrap();
    drop(sender);
    watchdog.join().unwrap();
    output
}

/// Sends a signal by name.
pub fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Exit code, standard output and standard error of a finished command.
pub fn parts(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap_or(-1),
        text(&output.stdout),
        text(&output.stderr),
    )
}
