//! Clusters that benchmarks bring up through `hearth up`, ask for figures, and take down.
//!
//! Key types: [`Cluster`], [`FileServer`] (files for Linux nodes). Neighbours: `boot`, `launch`.
//!
//! Invariant: a cluster and its server are gone when their value is, however a benchmark ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::workspace::Workspace;

/// How long machines may take; a machine under other load is ten times slower than a quiet one.
const LIMIT: Duration = Duration::from_secs(400);
/// Where a [`FileServer`] listens inside the namespace of its cluster.
const FILE_SERVER_PORT: u16 = 8117;
/// Round trips of which the median is taken.
const PINGS: usize = 20;

/// A running cluster; it is taken down when dropped.
pub struct Cluster {
    hearth: PathBuf,
    name: &'static str,
    down: bool,
}

impl Cluster {
    /// Brings `count` nodes up, with more options of `hearth up`.
    pub fn up(
        workspace: &Workspace,
        name: &'static str,
        count: usize,
        extra: &[&str],
    ) -> Result<Self> {
        let cluster = Self {
            hearth: workspace.hearth(),
            name,
            down: false,
        };
        let count = count.to_string();
        // Figures are those of emulated machines, on every machine.
        let mut args = vec!["up", "--nodes", &count, "--accel", "tcg"];
        args.extend(extra);
        cluster.run(&args)?;
        Ok(cluster)
    }

    /// `hearth ARGS` on this cluster; what it printed.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = Command::new("timeout")
            .arg(LIMIT.as_secs().to_string())
            .arg(&self.hearth)
            .args(["--cluster", self.name])
            .args(args)
            .stdin(Stdio::null())
            .output()
            .with_context(|| {
                format!(
                    "starting {}; `cargo xtask build` makes it",
                    self.hearth.display()
                )
            })?;
        if !output.status.success() {
            bail!(
                "hearth {}: {}{}",
                args.join(" "),
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// `hearth ARGS --json`, parsed.
    pub fn json(&self, args: &[&str]) -> Result<Value> {
        let text = self.run(&[args, &["--json"]].concat())?;
        Ok(serde_json::from_str(&text)?)
    }

    fn machines(&self) -> Result<Vec<Value>> {
        match self.json(&["list", "--machines"])? {
            Value::Array(machines) => Ok(machines),
            other => bail!("hearth list --machines --json is {other}"),
        }
    }

    /// Waits until each machine's serial log has a line with `marker`; `take` gets that line and
    /// the milliseconds from power-on to the moment it was seen (polled every 10 ms).
    pub fn poll<T>(
        &self,
        count: usize,
        marker: &str,
        take: impl Fn(&str, f64) -> Option<T>,
    ) -> Result<Vec<T>> {
        let machines = self.machines()?;
        ensure!(
            machines.len() == count,
            "{} machines are listed instead of {count}",
            machines.len()
        );
        let end = Instant::now() + LIMIT;
        let mut found: Vec<Option<T>> = (0..count).map(|_| None).collect();
        while found.iter().any(Option::is_none) {
            if Instant::now() > end {
                bail!(
                    "after {} s not every machine has printed {marker:?}",
                    LIMIT.as_secs()
                );
            }
            for (slot, machine) in found
                .iter_mut()
                .zip(&machines)
                .filter(|(slot, _)| slot.is_none())
            {
                let log = machine["serial_log"].as_str().context("no serial_log")?;
                let power_on = machine["power_on_unix_ms"]
                    .as_f64()
                    .context("no power_on_unix_ms")?;
                let text =
                    String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
                // Only whole lines: the figures stand behind the marker.
                if let Some(line) = text
                    .split_inclusive('\n')
                    .find(|l| l.contains(marker) && l.ends_with('\n'))
                {
                    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1000.0;
                    *slot = take(line, now - power_on);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(found.into_iter().flatten().collect())
    }

    /// A process in the cluster's network namespace.
    fn inside(&self) -> Result<u64> {
        self.machines()?
            .iter()
            .find_map(|machine| machine["process"]["pid"].as_u64())
            .context("hearth list --machines --json names no process of a machine")
    }

    /// What each interface of the cluster's network has received and sent, as the host counted it.
    pub fn counters(&self) -> Result<BTreeMap<String, Counters>> {
        let text = std::fs::read_to_string(format!("/proc/{}/net/dev", self.inside()?))?;
        Ok(parse_counters(&text))
    }

    /// What limits the links: one object of `tc -j qdisc show` for each end of each.
    pub fn link_limits(&self) -> Result<Vec<Value>> {
        let output = self
            .in_namespace()?
            .args(["tc", "-j", "-s", "qdisc", "show"])
            .output()
            .context("starting nsenter and tc; `cargo xtask setup` installs them")?;
        let all: Vec<Value> = serde_json::from_slice(&output.stdout).context("tc -j qdisc show")?;
        Ok(all
            .into_iter()
            .filter(|limit| limit["kind"] == "tbf")
            .collect())
    }

    /// A command inside the cluster's network namespace.
    pub fn in_namespace(&self) -> Result<Command> {
        let pid = self.inside()?;
        let mut command = Command::new("nsenter");
        command.args(["-t", &pid.to_string(), "-n"]);
        if !nix::unistd::getuid().is_root() {
            command.args(["-U", "--preserve-credentials"]);
        }
        Ok(command)
    }

    /// Median round trip from the control node to the first node and back, in milliseconds (ICMP
    /// echo).
    pub fn round_trip_ms(&self) -> Result<f64> {
        let machines = self.machines()?;
        let address = machines
            .first()
            .and_then(|machine| machine["address"].as_str())
            .context("hearth list --machines --json names no address")?;
        let output = self
            .in_namespace()?
            .args(["busybox", "ping", "-i", "0.1", "-c", &PINGS.to_string()])
            .arg(address)
            .output()
            .context("starting nsenter and busybox; `cargo xtask setup` installs them")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut times: Vec<f64> = text
            .lines()
            .filter_map(|line| line.split("time=").nth(1)?.split(' ').next()?.parse().ok())
            .collect();
        ensure!(
            times.len() * 2 > PINGS,
            "only {} of {PINGS} echo requests to {address} were answered: {text}",
            times.len()
        );
        times.sort_by(f64::total_cmp);
        Ok(times[times.len() / 2])
    }

    /// Serves the files of a folder to the nodes, by HTTP.
    pub fn serve_files(&self, folder: &Path) -> Result<FileServer> {
        let child = self
            .in_namespace()?
            .args(["busybox", "httpd", "-f", "-p"])
            .arg(FILE_SERVER_PORT.to_string())
            .arg("-h")
            .arg(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("starting nsenter and busybox; `cargo xtask setup` installs them")?;
        Ok(FileServer(child))
    }

    /// Takes the cluster down.
    pub fn down(mut self) -> Result<()> {
        self.down = true;
        self.run(&["down"]).map(drop)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if !self.down {
            drop(self.run(&["down"]));
        }
    }
}

/// An HTTP server inside a cluster's namespace; ended when dropped.
pub struct FileServer(Child);

impl Drop for FileServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an interface has moved one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moved {
    /// Bytes.
    pub bytes: u64,
    /// Packets.
    pub packets: u64,
}

/// What an interface has moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// From the machine that is behind it.
    pub received: Moved,
    /// To that machine.
    pub sent: Moved,
}

/// Reads `/proc/net/dev`.
fn parse_counters(text: &str) -> BTreeMap<String, Counters> {
    text.lines()
        .filter_map(|line| {
            let (name, counters) = line.split_once(':')?;
            let counter = |index| counters.split_whitespace().nth(index)?.parse().ok();
            let moved = |first: usize| {
                Some(Moved {
                    bytes: counter(first)?,
                    packets: counter(first + 1)?,
                })
            };
            let counters = Counters {
                received: moved(0)?,
                sent: moved(8)?,
            };
            Some((name.trim().to_owned(), counters))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_interface() {
        let text = "Inter-| Receive\n face |bytes\n  n0: 70 1 0 0 0 0 0 0 900 3 0 0 0 0 0 0\n";
        let all = parse_counters(text);
        let moved = |bytes, packets| Moved { bytes, packets };
        let counters = Counters {
            received: moved(70, 1),
            sent: moved(900, 3),
        };
        assert_eq!(all.get("n0"), Some(&counters));
        assert_eq!(all.len(), 1);
    }
}
