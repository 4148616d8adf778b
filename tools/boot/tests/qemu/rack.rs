//! The control node of a rack, run as a user runs it, on a bridge to which one machine is plugged.
//!
//! Key type: [`Rack`]. Where a site has a DHCP server of its own, that one is busybox's, in a
//! network namespace of its own at the same bridge ([`Site`]).
//!
//! Invariant: everything here ends with the test.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::{MAC, Machine, Started};
use crate::support::{self, Running};

/// Firmware under emulation on a machine with other work takes minutes.
pub const LIMIT: Duration = Duration::from_secs(300);
const CONTROL: &str = "10.117.0.1";

/// Runs `test` again in a namespace, where it is `here`.
pub fn in_namespace(test: &str, here: impl FnOnce()) {
    match support::role().as_deref() {
        None => support::in_namespace(test, "rack", 2 * LIMIT),
        Some(_) => here(),
    }
}

/// A control node and a bridge with a tap for a machine.
pub struct Rack {
    folder: tempfile::TempDir,
    _control: Running,
}

impl Rack {
    /// `hearth serve` with these options, on a fresh bridge.
    pub fn new(options: &[&str]) -> Rack {
        Rack::configured("", options)
    }

    /// The same with a configuration.
    pub fn configured(configuration: &str, options: &[&str]) -> Rack {
        support::run("ip link set lo up");
        support::run("ip link add br0 type bridge stp_state 0 forward_delay 0");
        support::no_address_detection("br0");
        support::run(&format!("ip address add {CONTROL}/16 dev br0"));
        support::run("ip tuntap add tap0 mode tap");
        support::run("ip link set tap0 master br0 up");
        support::run("ip link set br0 up");
        let folder = tempfile::tempdir().expect("a folder for the test");
        std::fs::write(folder.path().join("hearth.toml"), configuration)
            .expect("it can be written");
        let mut serve = hearth_in(folder.path());
        serve.args(["serve", "--interface", "br0", "--admission", "open"]);
        serve.args(["--http", "none"]).args(options);
        serve.stdin(Stdio::null());
        let control = Running(serve.spawn().expect("hearth starts"));
        let rack = Rack {
            folder,
            _control: control,
        };
        let socket = rack.file("state/run/control.sock");
        let begin = Instant::now();
        while !socket.exists() {
            assert!(begin.elapsed() < LIMIT, "control does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        rack
    }

    /// A file of this test.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder for them.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A `hearth` command, for a test that does something while it runs.
    pub fn command<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Command {
        let mut command = hearth_in(self.folder.path());
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// What a `hearth` command prints; it must succeed.
    pub fn hearth<S: AsRef<OsStr>>(&self, arguments: &[S]) -> String {
        let output = self.command(arguments).output();
        let output = output.expect("hearth starts");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{}: {said}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The boot of the machine, as `hearth timeline --json` has it, once it was heard of.
    pub fn boot(&self) -> Option<serde_json::Value> {
        let timeline = self.hearth(&["timeline", "--json"]);
        let records: serde_json::Value = serde_json::from_str(&timeline).expect("JSON");
        let mut records = records.as_array().expect("a list").iter();
        records.find(|record| record["mac"] == MAC).cloned()
    }

    /// Switches a machine on.
    pub fn start(&self, machine: Machine) -> Started {
        machine.start(self.file("console"))
    }

    /// Switches a machine on and waits until it is a node that runs in one boot from power-on.
    /// Returns the boot and what the machine wrote; the machine is off then.
    pub fn joins(&self, machine: Machine) -> (serde_json::Value, String) {
        let (boot, machine) = self.runs(machine);
        (boot, machine.console())
    }

    /// The same with a machine that stays on.
    pub fn runs(&self, machine: Machine) -> (serde_json::Value, Started) {
        let mut machine = self.start(machine);
        let boot = self.await_join(&mut machine, |_| true);
        (boot, machine)
    }

    /// Waits until a machine has joined, in a boot that is wanted.
    pub fn await_join(
        &self,
        machine: &mut Started,
        is_wanted: impl Fn(&serde_json::Value) -> bool,
    ) -> serde_json::Value {
        let begin = Instant::now();
        loop {
            let boot = self.boot().filter(|boot| has_stage(boot, "joined"));
            if let Some(boot) = boot.filter(&is_wanted) {
                println!("joined after {:?}", begin.elapsed());
                return boot;
            }
            let late = begin.elapsed() > LIMIT;
            if machine.is_off() || late {
                let timeline = self.hearth(&["timeline"]);
                panic!("it did not join\n{timeline}\n{}", machine.console());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Whether a boot has reached a stage.
pub fn has_stage(boot: &serde_json::Value, stage: &str) -> bool {
    let mut stages = boot["stages"].as_array().expect("a list").iter();
    stages.any(|reached| reached["stage"] == stage)
}

fn hearth_in(folder: &Path) -> Command {
    let mut command = Command::new(crate::output("hearth"));
    command.arg("--state-dir").arg(folder.join("state"));
    command.arg("--config").arg(folder.join("hearth.toml"));
    command
}

/// The site's own DHCP server, which knows nothing of boot files and personalities.
pub struct Site {
    _namespace: Running,
    _server: Running,
}

impl Site {
    /// Plugs it into the bridge of a rack.
    pub fn new(rack: &Rack) -> Site {
        let namespace = support::namespace();
        let pid = namespace.0.id();
        let inside = format!("nsenter -t {pid} -n");
        support::run("ip link add site0 type veth peer name site1");
        support::run(&format!("ip link set site1 netns {pid}"));
        support::run("ip link set site0 master br0 up");
        support::run(&format!("{inside} ip address add 10.117.0.2/16 dev site1"));
        support::run(&format!("{inside} ip link set site1 up"));
        let file = |name: &str| rack.file(name).display().to_string();
        let settings = format!(
            "start 10.117.9.1\nend 10.117.9.99\ninterface site1\noption subnet 255.255.0.0\n\
             option lease 3600\nlease_file {}\npidfile {}\n",
            file("site.leases"),
            file("site.pid"),
        );
        std::fs::write(rack.file("site.leases"), "").expect("it can be written");
        std::fs::write(rack.file("site.conf"), settings).expect("it can be written");
        let server = Command::new("nsenter")
            .args(["-t", &pid.to_string(), "-n"])
            .args(["busybox", "udhcpd", "-f", &file("site.conf")])
            .stdin(Stdio::null())
            .spawn();
        Site {
            _namespace: namespace,
            _server: Running(server.expect("nsenter starts")),
        }
    }
}
