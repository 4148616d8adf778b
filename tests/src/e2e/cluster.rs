//! Brings a cluster up through `hearth up`, gives scenarios its command line, takes it down.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{self, Finished};

/// The kinds of cluster that scenarios run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    /// Four nodes of 48 MiB on two leaf switches: SeaBIOS, iPXE, HTTP; under KVM where it works.
    Network,
    /// One node by UEFI PXE from OVMF.
    Uefi,
    /// Sixteen nodes of 32 MiB with `-kernel`.
    Direct16,
    /// One node that does not scrub frames, to see that the test of scrubbing can fail.
    Unscrubbed,
    /// Two nodes whose control node keeps one program warm on each, as the publication has it.
    Published,
    /// One node whose QEMU logs every interrupt and exception.
    Traced,
    /// Four nodes behind links so slow that a cast takes seconds.
    Limited,
    /// Sixteen nodes of 32 MiB that make a monitoring tree of two levels.
    Overlay,
    /// Two nodes of four cores, for several ranks each.
    Cores,
    /// The same, whose datagrams for each other go through the sockets of their network stacks.
    Sockets,
    /// Four nodes whose file calls two I/O services carry out.
    Io,
    /// Four nodes with three kinds of card, which boot by the ROMs of these.
    Cards,
}

impl Boot {
    /// Every kind, in the order in which they are brought up.
    pub const ALL: [Self; 12] = [
        Self::Network,
        Self::Uefi,
        Self::Direct16,
        Self::Unscrubbed,
        Self::Published,
        Self::Traced,
        Self::Limited,
        Self::Overlay,
        Self::Cores,
        Self::Sockets,
        Self::Io,
        Self::Cards,
    ];

    /// One line for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Network => "4 nodes, BIOS network boot, tree 2x2",
            Self::Uefi => "1 node, UEFI network boot",
            Self::Direct16 => "16 nodes of 32 MiB, direct boot, tree 4x4",
            Self::Unscrubbed => "1 node with scrubbing switched off, direct boot",
            Self::Published => "2 nodes that keep one program warm, direct boot",
            Self::Traced => "1 node of 4 cores with a log of its exceptions, direct boot",
            Self::Limited => "4 nodes behind links of 20 Mbit/s, direct boot",
            Self::Overlay => "16 nodes of 32 MiB, monitoring tree of fan-out 4, direct boot",
            Self::Cores => "2 nodes of 4 cores, direct boot",
            Self::Sockets => "2 nodes of 4 cores with hearth.net=smoltcp, direct boot",
            Self::Io => "4 nodes with two I/O services, direct boot",
            Self::Cards => "4 nodes with cards e1000, e1000e and virtio, BIOS network boot",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Network => &["--nodes", "4", "--tree", "2x2", "--memory", "48M"],
            Self::Uefi => &["--nodes", "1", "--firmware", "uefi", "--memory", "128M"],
            Self::Direct16 => &[
                "--nodes", "16", "--tree", "4x4", "--memory", "32M", "--direct",
            ],
            Self::Unscrubbed => &["--nodes", "1", "--direct", "--append", "hearth.scrub=off"],
            Self::Published => &["--nodes", "2", "--direct"],
            Self::Traced => &[
                "--nodes", "1", "--direct", "--cpus", "4", "--trace", "int", "--gdb", "n0",
            ],
            Self::Limited => &[
                "--nodes", "4", "--direct", "--memory", "96M", "--rate", "20mbit",
            ],
            Self::Overlay => &["--nodes", "16", "--direct", "--memory", "32M"],
            Self::Cores => &["--nodes", "2", "--direct", "--cpus", "4", "--memory", "96M"],
            Self::Sockets => &[
                "--nodes",
                "2",
                "--direct",
                "--cpus",
                "4",
                "--memory",
                "96M",
                "--append",
                "hearth.net=smoltcp",
            ],
            Self::Io => &["--nodes", "4", "--direct", "--io", "2"],
            Self::Cards => &["--nodes", "4", "--nic", "n0=e1000,n[1-2]=e1000e"],
        }
    }

    /// Configuration of the control node that differs from the defaults.
    fn configuration(self) -> Option<&'static str> {
        match self {
            Self::Published => Some("[retention]\nmode = \"published\"\n"),
            Self::Io => {
                Some("[files]\nexport = [\"~\", \".\"]\n[api]\nlisten = \"127.0.0.1:7182\"\n")
            }
            Self::Overlay => Some("[overlay]\nfan_out = 4\n"),
            _ => None,
        }
    }
}

/// A running cluster; it is taken down when dropped.
pub struct Cluster {
    name: String,
    hearth: PathBuf,
    programs: PathBuf,
    /// Files that a scenario or the control node needs as long as the cluster is up.
    folder: tempfile::TempDir,
    down: bool,
}

/// Longest time for one command that is not `up`: a shared, emulated machine may be ten times
/// slower than a quiet one, and a hang must still end.
pub const LIMIT: Duration = Duration::from_secs(120);
/// Longest time in seconds for a command that a scenario watches while it runs.
const LIMIT_WATCHED_S: u64 = 300;
/// Longest time for a cluster to come up; UEFI takes a minute on a busy machine.
const UP_LIMIT: Duration = Duration::from_secs(400);

impl Cluster {
    /// Starts a cluster with a name of its own. With `nic`, one of [`Boot::Cards`] has this card in
    /// all nodes.
    pub fn up(boot: Boot, nic: Option<&str>) -> Result<Self> {
        let built = built_folder()?;
        let name = format!(
            "e2e-{}-{}",
            std::process::id(),
            format!("{boot:?}").to_lowercase()
        );
        let cluster = Self {
            name,
            hearth: built.join("hearth"),
            programs: built.join("programs"),
            folder: tempfile::tempdir()?,
            down: false,
        };
        let config = cluster.scratch("hearth.toml");
        let mut args = vec!["up"];
        if let Some(text) = boot.configuration() {
            std::fs::write(&config, text)?;
            args = vec!["--config", &config, "up"];
        }
        match nic.filter(|_| boot == Boot::Cards) {
            None => args.extend(boot.arguments()),
            // QEMU has no boot ROM for it.
            Some("igb") => args.extend(["--nodes", "4", "--nic", "igb", "--direct"]),
            Some(nic) => args.extend(["--nodes", "4", "--nic", nic]),
        }
        if boot != Boot::Network {
            // Only the cluster that is brought up as a user does it takes what this machine has.
            args.extend(["--accel", "tcg"]);
        }
        let test_image = built.join("hearth-test.efi").display().to_string();
        if boot == Boot::Unscrubbed {
            // No other image can leave scrubbing out.
            args.extend(["--image", &test_image]);
        }
        let finished = cluster.hearth_within(&args, b"", UP_LIMIT)?;
        if let Err(error) = finished.expect_code(0) {
            cluster.show_state();
            return Err(error);
        }
        Ok(cluster)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Path of a built test program.
    pub fn program(&self, name: &str) -> String {
        self.programs.join(name).to_string_lossy().into_owned()
    }

    /// Path of another file that was built.
    pub fn built(&self, name: &str) -> String {
        let folder = self.programs.parent().unwrap_or(&self.programs);
        folder.join(name).to_string_lossy().into_owned()
    }

    /// Path of a file of a scenario's own; gone when the cluster is.
    pub fn scratch(&self, name: &str) -> String {
        self.folder.path().join(name).to_string_lossy().into_owned()
    }

    /// The file with what a node has written to its serial console.
    pub fn serial_log(&self, node: &str) -> Result<PathBuf> {
        let machines = self.json(&["list", "--machines"])?;
        let machines = machines.as_array().context("no list of machines")?;
        let its = machines.iter().find(|machine| machine["name"] == node);
        let log = its.and_then(|machine| machine["serial_log"].as_str());
        Ok(log
            .with_context(|| format!("{node} has no serial_log"))?
            .into())
    }

    /// `hearth ARGS` on this cluster.
    pub fn hearth<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Finished> {
        self.hearth_within(args, b"", LIMIT)
    }

    /// `hearth ARGS` on this cluster with standard input and a time limit.
    pub fn hearth_within<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: &[u8],
        limit: Duration,
    ) -> Result<Finished> {
        let mut all: Vec<OsString> = vec!["--cluster".into(), self.name.clone().into()];
        all.extend(args.iter().map(|a| a.as_ref().to_owned()));
        command::run(self.hearth.as_os_str(), &all, input, limit)
    }

    /// A command line for a scenario that watches a command while it runs; ended when it takes too
    /// long (`timeout` passes an interrupt on).
    pub fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = std::process::Command::new("timeout");
        command
            .args(["--foreground", &LIMIT_WATCHED_S.to_string()])
            .arg(&self.hearth);
        command.args(["--cluster", &self.name]).args(args);
        command
    }

    /// The process of the control node.
    pub fn control_pid(&self) -> Result<String> {
        let pattern = format!("serve.*{}", self.name);
        let found = command::run(OsStr::new("pgrep"), &["-o", "-f", &pattern], b"", LIMIT)?
            .expect_code(0)?;
        Ok(found.out().trim().to_owned())
    }

    /// The process of an I/O service.
    pub fn io_service_pid(&self, service: u32) -> Result<String> {
        let pattern = format!(
            "hearth io --state-dir .*{}.* --interface io{service}$",
            self.name
        );
        let found = command::run(OsStr::new("pgrep"), &["-o", "-f", &pattern], b"", LIMIT)?
            .expect_code(0)?;
        Ok(found.out().trim().to_owned())
    }

    /// The program that clusters are made of.
    pub fn program_of_hearth(&self) -> &Path {
        &self.hearth
    }

    /// The process of a node's machine.
    pub fn machine_pid(&self, node: &str) -> Result<String> {
        let pattern = format!("qemu-system-x86_64 -name hearth-{}-{node} ", self.name);
        let found = command::run(OsStr::new("pgrep"), &["-o", "-f", &pattern], b"", LIMIT)?
            .expect_code(0)?;
        Ok(found.out().trim().to_owned())
    }

    /// Bytes that an interface of the cluster's network has received and sent, as the host counted
    /// them: `service` is the control node's, `n3` is node 3's, seen from the switch.
    pub fn interface_bytes(&self, interface: &str) -> Result<(u64, u64)> {
        let shown = self
            .in_namespace(&["ip", "-s", "-j", "link", "show", "dev", interface], b"")?
            .expect_code(0)?;
        let value: Value = serde_json::from_slice(&shown.stdout)?;
        let bytes = |direction: &str| value[0]["stats64"][direction]["bytes"].as_u64();
        bytes("rx")
            .zip(bytes("tx"))
            .with_context(|| format!("no counters in {value}"))
    }

    /// A command inside the network namespace of the cluster.
    pub fn in_namespace(&self, args: &[&str], input: &[u8]) -> Result<Finished> {
        let mut all = self.namespace_command()?;
        let program = all.remove(0);
        all.extend(args.iter().map(|word| (*word).to_owned()));
        command::run(OsStr::new(&program), &all, input, LIMIT)
    }

    /// What stands before a command that runs inside that namespace.
    pub fn namespace_command(&self) -> Result<Vec<String>> {
        let pid = self.control_pid()?;
        let mut all = vec!["nsenter", "-t", &pid, "-n"];
        if !is_root() {
            all.extend(["-U", "--preserve-credentials"]);
        }
        Ok(all.into_iter().map(str::to_owned).collect())
    }

    /// `hearth ARGS --json`, parsed.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let mut all = args.to_vec();
        all.push("--json");
        let finished = self.hearth(&all)?.expect_code(0)?;
        serde_json::from_slice(&finished.stdout)
            .with_context(|| format!("hearth {} --json: {}", args.join(" "), finished.out()))
    }

    /// The nodes as `hearth nodes --json` lists them.
    pub fn nodes(&self) -> Result<Vec<Value>> {
        match self.json(&["nodes"])? {
            Value::Array(nodes) => Ok(nodes),
            Value::Object(mut map) => match map.remove("nodes") {
                Some(Value::Array(nodes)) => Ok(nodes),
                _ => bail!("hearth nodes --json has no list of nodes"),
            },
            other => bail!("hearth nodes --json is {other}"),
        }
    }

    /// Waits until `wanted` holds for the list of nodes.
    pub fn wait_for_nodes(
        &self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&[Value]) -> bool,
    ) -> Result<()> {
        let end = Instant::now() + limit;
        loop {
            let nodes = self.nodes()?;
            if wanted(&nodes) {
                return Ok(());
            }
            if Instant::now() > end {
                let of = |node: &Value| {
                    format!("{} {} (job {})", node["name"], node["state"], node["job"])
                };
                let nodes: Vec<String> = nodes.iter().map(of).collect();
                let (limit, nodes) = (limit.as_secs(), nodes.join(", "));
                bail!("waited {limit} s for {what}; nodes are {nodes}");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Every node is in service and holds no job: what must be true after every scenario.
    pub fn all_nodes_idle(&self) -> Result<()> {
        self.wait_for_nodes("every node idle", Duration::from_secs(30), |nodes| {
            nodes.iter().all(|n| n["state"] == "idle")
        })
    }

    /// Prints what a person would look at first.
    pub fn show_state(&self) {
        for args in [&["nodes"][..], &["jobs"], &["events"]] {
            if let Ok(finished) = self.hearth(args) {
                let text = finished.out() + &finished.err();
                let lines: Vec<&str> = text.lines().collect();
                let tail = &lines[lines.len().saturating_sub(25)..];
                println!("    --- hearth {}\n    {}", args[0], tail.join("\n    "));
            }
        }
    }

    /// Takes the cluster down and checks that it is gone.
    pub fn down(mut self) -> Result<()> {
        self.down = true;
        self.hearth(&["down"])?.expect_code(0)?;
        let leftover = command::run(OsStr::new("pgrep"), &["-f", &self.name], b"", LIMIT)?;
        if leftover.code() == 0 {
            bail!("processes of the cluster are left:\n{}", leftover.out());
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.down {
            drop(self.hearth(&["down"]));
        }
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

/// The folder that `HEARTH_OUTPUTS` names, else `target/hearth` of the workspace this binary was
/// built in.
fn built_folder() -> Result<PathBuf> {
    if let Some(folder) = std::env::var_os("HEARTH_OUTPUTS") {
        return Ok(folder.into());
    }
    let exe = std::env::current_exe()?;
    exe.ancestors()
        .map(|folder| folder.join("hearth"))
        .find(|folder| Path::new(&folder.join("hearth.efi")).exists())
        .context("no target/hearth/hearth.efi: run `cargo xtask build` first")
}
