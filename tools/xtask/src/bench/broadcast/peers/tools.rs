//! The programs that are compared: how each is started so that every receiver gets one file.
//!
//! Key types: [`Tool`], [`Started`]. Neighbours: `super` measures what is started here;
//! docs/measuring.md lists the command lines.
//!
//! Each peer is measured as it comes and with the best settings that were found for these links.
//! Invariant: a receiver's file gets the name [`FILE`] in its folder when it is complete, not
//! before.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::super::super::mpich;
use super::super::super::namespaces::{INTERFACE, Network, address};

/// Name of a complete file in a receiver's folder.
pub const FILE: &str = "file";
/// Where Hearth's receivers listen.
const HEARTH_PORT: u16 = 7117;
/// Rate that makes Hearth's endpoint fill a limited link: it counts 38 bytes of Ethernet a datagram
/// (preamble, header, checksum, gap), the limiter 14; 50 Mbit/s times 1,460 / 1,436.
const HEARTH_RATE: &str = "50800kbit";
/// What a sender paces itself to on a limited link of 50 Mbit/s when it wants a figure, in kbit/s
/// of IP packets.
const PACED_KBIT: &str = "49500";
/// The same where links are as fast as they go.
const UNPACED_KBIT: &str = "400000";
/// Open MPI: a chain through all ranks in segments; of 8, 16, 32 and 64 KiB this was the fastest.
const OPEN_MPI_CHAIN: &[&str] = &[
    "coll_tuned_use_dynamic_rules=1",
    "coll_tuned_bcast_algorithm=3",
    "coll_tuned_bcast_algorithm_segmentsize=8192",
];
/// Open MPI: TCP over the limited links only, and ranks that share two processors let each other
/// run.
const OPEN_MPI_LINKS: &[&str] = &[
    "pml=ob1",
    "btl=tcp,self",
    "btl_tcp_if_include=eth0",
    "oob_tcp_if_include=eth0",
    "mpi_yield_when_idle=1",
];
/// MPICH: a pipelined ring; its other pipelined tree as a chain is as fast.
const MPICH_RING: &[&str] = &[
    "MPIR_CVAR_BCAST_INTRA_ALGORITHM=nb",
    "MPIR_CVAR_IBCAST_INTRA_ALGORITHM=tsp_ring",
    "MPIR_CVAR_IBCAST_RING_CHUNK_SIZE=16384",
];

/// A program with its settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// `hearth send`, `hearth receive`.
    Hearth,
    Udpcast(Settings),
    Uftp(Settings),
    Mpich(Settings),
    OpenMpi(Settings),
}

/// What a peer is told beyond what it needs to work at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settings {
    /// The best that was found for these links.
    Tuned,
    /// Nothing.
    Defaults,
}

/// Processes of one distribution.
pub struct Started {
    /// It is over when these have ended.
    pub foreground: Vec<Child>,
    /// Services that stay, and are ended afterwards.
    pub services: Vec<Child>,
}

impl Drop for Started {
    fn drop(&mut self) {
        for child in self.foreground.iter_mut().chain(&mut self.services) {
            // It may have ended by itself.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// What a distribution is made of.
pub struct Job<'a> {
    pub network: &'a Network,
    /// Whether links are limited: a sender that wants a rate gets the link's.
    pub is_limited: bool,
    /// The file to send, named [`FILE`].
    pub file: &'a Path,
    /// Receiver R's folder is R in here.
    pub folder: &'a Path,
    /// Scratch of one network: programs and scripts.
    pub scratch: &'a Path,
    pub hearth: &'a Path,
}

impl Tool {
    /// All, ours first.
    pub const ALL: [Tool; 9] = [
        Self::Hearth,
        Self::Udpcast(Settings::Tuned),
        Self::Udpcast(Settings::Defaults),
        Self::Uftp(Settings::Tuned),
        Self::Uftp(Settings::Defaults),
        Self::Mpich(Settings::Tuned),
        Self::Mpich(Settings::Defaults),
        Self::OpenMpi(Settings::Tuned),
        Self::OpenMpi(Settings::Defaults),
    ];

    /// Its name in cases.
    pub fn name(self) -> String {
        let (name, settings) = match self {
            Self::Hearth => ("hearth", Settings::Tuned),
            Self::Udpcast(settings) => ("udpcast", settings),
            Self::Uftp(settings) => ("uftp", settings),
            Self::Mpich(settings) => ("mpich", settings),
            Self::OpenMpi(settings) => ("openmpi", settings),
        };
        match settings {
            Settings::Tuned => name.to_owned(),
            Settings::Defaults => format!("{name}-defaults"),
        }
    }

    /// Whether it is compared in every respect; settings as they come are only shown.
    pub fn is_compared(self) -> bool {
        !self.name().ends_with("-defaults")
    }

    /// What must be done once before it is started on a network.
    pub fn prepare(self, job: &Job) -> Result<()> {
        match self {
            Self::Hearth => prepare_hearth(job),
            Self::Mpich(_) => compile(job, "mpicc.mpich").map(drop),
            Self::OpenMpi(_) => compile(job, "mpicc.openmpi").map(drop),
            Self::Udpcast(_) | Self::Uftp(_) => Ok(()),
        }
    }

    /// Starts it everywhere.
    pub fn start(self, job: &Job) -> Result<Started> {
        match self {
            Self::Hearth => hearth(job),
            Self::Udpcast(settings) => udpcast(job, settings),
            Self::Uftp(settings) => uftp(job, settings),
            Self::Mpich(settings) => mpich(job, settings),
            Self::OpenMpi(settings) => open_mpi(job, settings),
        }
    }
}

fn spawn(job: &Job, log: &str, command: &mut Command) -> Result<Child> {
    let path = job.scratch.join(format!("{log}.log"));
    let log = fs::File::create(&path)?;
    command
        .env("HOME", job.scratch)
        .env("TMPDIR", job.scratch)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting nsenter; `cargo xtask setup` installs it (util-linux)")
}

/// What a process of the last distribution said.
pub fn said(scratch: &Path, log: &str) -> String {
    fs::read_to_string(scratch.join(format!("{log}.log"))).unwrap_or_default()
}

fn prepare_hearth(job: &Job) -> Result<()> {
    for command in ["send", "receive"] {
        let help = Command::new(job.hearth)
            .args([command, "--help"])
            .output()
            .with_context(|| {
                format!(
                    "starting {}; `cargo xtask build` makes it",
                    job.hearth.display()
                )
            })?;
        ensure!(
            help.status.success(),
            "{} has no command {command}: build it with `cargo xtask build`",
            job.hearth.display()
        );
    }
    fs::write(
        job.scratch.join("key"),
        "0123456789abcdef0123456789abcdef\n",
    )?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(job.scratch.join("key"), mode)?;
    Ok(())
}

fn hearth(job: &Job) -> Result<Started> {
    let key = job.scratch.join("key");
    let mut foreground = Vec::new();
    let mut addresses = Vec::new();
    for receiver in job.network.receivers() {
        let listen = format!("{}:{HEARTH_PORT}", address(receiver));
        let mut command = job.network.on(receiver);
        command
            .arg(job.hearth)
            .args(["receive", "--count", "1", "--listen", &listen, "--key-file"])
            .arg(&key)
            .arg("--dir")
            .arg(job.folder.join(receiver.to_string()));
        foreground.push(spawn(job, &format!("receiver-{receiver}"), &mut command)?);
        addresses.push(listen);
    }
    let mut command = job.network.on(0);
    command
        .arg(job.hearth)
        .arg("send")
        .arg(job.file)
        .args(["--to", &addresses.join(","), "--key-file"])
        .arg(&key)
        .args([
            "--rate",
            if job.is_limited {
                HEARTH_RATE
            } else {
                "400mbit"
            },
        ]);
    foreground.push(spawn(job, "sender", &mut command)?);
    Ok(Started {
        foreground,
        services: Vec::new(),
    })
}

/// udpcast (multicast): tuned, the sender looks for receivers every 20 ms and does not wait for an
/// acknowledgement before the next slice, and receivers do not stay half a second after the end.
fn udpcast(job: &Job, settings: Settings) -> Result<Started> {
    let (sender, receiver): (&[&str], &str) = match settings {
        Settings::Tuned => (
            &["--rexmit-hello-interval", "20", "--full-duplex"],
            "--exit-wait 10",
        ),
        Settings::Defaults => (&[], ""),
    };
    let mut foreground = Vec::new();
    for node in job.network.receivers() {
        let folder = job.folder.join(node.to_string());
        let mut command = job.network.on(node);
        command.current_dir(&folder).args(["sh", "-c"]).arg(format!(
            "udp-receiver --nokbd --nosync --interface {INTERFACE} {receiver} --file incoming && mv incoming {FILE}"
        ));
        foreground.push(spawn(job, &format!("receiver-{node}"), &mut command)?);
    }
    let count = foreground.len().to_string();
    let mut command = job.network.on(0);
    command
        .args(["udp-sender", "--nokbd", "--interface", INTERFACE])
        .args(["--min-receivers", &count])
        .args(sender)
        .arg("--file")
        .arg(job.file);
    foreground.push(spawn(job, "sender", &mut command)?);
    Ok(Started {
        foreground,
        services: Vec::new(),
    })
}

/// UFTP (multicast): it needs the rate in any case (its default is 1 Mbit/s); tuned, it also gets
/// larger blocks. A first estimate of the round trip nearer the truth (`-r`) makes it wait longer
/// as often as shorter.
fn uftp(job: &Job, settings: Settings) -> Result<Started> {
    let tuned: &[&str] = match settings {
        Settings::Tuned => &["-b", "1440"],
        Settings::Defaults => &[],
    };
    let mut services = Vec::new();
    let mut hosts = Vec::new();
    for node in job.network.receivers() {
        let folder = job.folder.join(node.to_string());
        let incoming = folder.join("incoming");
        fs::create_dir(&incoming)?;
        let id = format!("0x{node:x}");
        let mut command = job.network.on(node);
        command
            .args(["uftpd", "-d", "-I", INTERFACE, "-U", &id, "-D"])
            .arg(&folder)
            .arg("-T")
            .arg(&incoming);
        services.push(spawn(job, &format!("receiver-{node}"), &mut command)?);
        hosts.push(id);
    }
    let rate = if job.is_limited {
        PACED_KBIT
    } else {
        UNPACED_KBIT
    };
    let mut command = job.network.on(0);
    command
        .current_dir(job.file.parent().context("a file in no folder")?)
        .args(["uftp", "-I", INTERFACE, "-R", rate])
        .args(tuned)
        .args(["-H", &hosts.join(","), FILE]);
    Ok(Started {
        foreground: vec![spawn(job, "sender", &mut command)?],
        services,
    })
}

fn hosts(job: &Job, suffix: &str) -> (String, String) {
    let names: Vec<String> = std::iter::once(0)
        .chain(job.network.receivers())
        .map(|node| format!("{}{suffix}", address(node)))
        .collect();
    (names.join(","), names.len().to_string())
}

fn open_mpi(job: &Job, settings: Settings) -> Result<Started> {
    let shell = job.network.write_remote_shell(job.scratch)?;
    let (hosts, ranks) = hosts(job, ":1");
    let mut command = job.network.on(0);
    command
        .args(["mpirun.openmpi", "--allow-run-as-root", "--bind-to", "none"])
        .args(["--host", &hosts, "-np", &ranks, "--mca", "plm_rsh_agent"])
        .arg(shell);
    let tuned = match settings {
        Settings::Tuned => OPEN_MPI_CHAIN,
        Settings::Defaults => &[],
    };
    for setting in OPEN_MPI_LINKS.iter().chain(tuned) {
        let (name, value) = setting.split_once('=').context("a setting is NAME=VALUE")?;
        command.args(["--mca", name, value]);
    }
    command
        .arg(compile(job, "mpicc.openmpi")?)
        .args([job.file, job.folder]);
    Ok(Started {
        foreground: vec![spawn(job, "sender", &mut command)?],
        services: Vec::new(),
    })
}

/// MPICH: `leave`, because MPI_Finalize over UCX's TCP does not return in Debian 12's version;
/// mpirun then ends in error.
fn mpich(job: &Job, settings: Settings) -> Result<Started> {
    let tuned: &[&str] = match settings {
        Settings::Tuned => MPICH_RING,
        Settings::Defaults => &[],
    };
    let mut command = mpich::command(job.network, job.scratch, tuned)?;
    command
        .arg(compile(job, "mpicc.mpich")?)
        .args([job.file, job.folder])
        .arg("leave");
    Ok(Started {
        foreground: vec![spawn(job, "sender", &mut command)?],
        services: Vec::new(),
    })
}

fn compile(job: &Job, compiler: &str) -> Result<PathBuf> {
    let source = include_str!("mpi-broadcast.c");
    mpich::compile(job.scratch, compiler, "mpi-broadcast", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_has_a_name_of_its_own() {
        let mut names: Vec<String> = Tool::ALL.iter().map(|tool| tool.name()).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), Tool::ALL.len());
        assert_eq!(
            Tool::ALL.iter().filter(|tool| tool.is_compared()).count(),
            5
        );
    }
}
