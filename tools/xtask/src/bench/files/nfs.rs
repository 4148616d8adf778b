//! The same calls on Linux guests that mount a directory of nfs-ganesha, on the links that the
//! nodes have: cases `nfs/...` with the client's defaults, `nfs-best/...` with the options that
//! make it fastest.
//!
//! Key types: [`Mount`], [`Guests`]. The program is `musl-linux-files-time`, the nodes' own
//! compiled for Linux. Neighbours: [`super::ganesha`] serves; `super::super::linux` makes the
//! system.
//!
//! Invariant: where the server or a guest cannot be had every case is refused, and says why. Guests
//! mount anew before each measurement: nothing is in their memory.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::super::cluster::{Cluster, FileServer};
use super::super::links::{self, Processors};
use super::super::linux::{LEASE_SCRIPT, Linux};
use super::super::{Report, Row};
use super::ganesha::{EXPORT, Ganesha};
use super::{Bulk, CALL_BYTES, Folder, Small, WARM_UP};
use crate::workspace::Workspace;

const CLUSTER: &str = "bench-nfs";
const PROGRAM: &str = "musl-linux-files-time";
/// Memory of a guest: the system, and files of 64 MB in its cache.
const MEMORY: &str = "256M";
/// NFS 4, in the order in which they are loaded.
const MODULES: [&str; 8] = [
    "kernel/net/dns_resolver/dns_resolver.ko",
    "kernel/net/sunrpc/sunrpc.ko",
    "kernel/fs/nfs_common/grace.ko",
    "kernel/fs/lockd/lockd.ko",
    "kernel/fs/netfs/netfs.ko",
    "kernel/fs/fscache/fscache.ko",
    "kernel/fs/nfs/nfs.ko",
    "kernel/fs/nfs/nfsv4.ko",
];
/// Begin of the lines that guests print.
const MARKER: &str = "NFS-TIME";
/// Port of the server of files that say when to begin.
const GO_PORT: u16 = 8117;

/// How guests mount.
#[derive(Debug, Clone, Copy)]
pub struct Mount {
    /// Before the names of cases.
    name: &'static str,
    options: &'static str,
}

/// Four connections are the most that one link profits from. Attributes that are kept for ten
/// minutes, and files that are opened without a look at the server, are fastest and see late what
/// other machines do.
pub const MOUNTS: [Mount; 2] = [
    Mount {
        name: "nfs",
        options: "",
    },
    Mount {
        name: "nfs-best",
        options: ",nconnect=4,noatime,nocto,actimeo=600",
    },
];

impl Mount {
    /// The name of a case.
    pub fn case(&self, of_hearth: &str) -> String {
        format!("{}/{of_hearth}", self.name)
    }
}

/// What one guest says of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Said {
    seconds: f64,
    /// Calls to the server, of all kinds.
    calls: f64,
}

impl Said {
    fn parse(line: &str) -> Option<Self> {
        let (_, rest) = line.split_once(" seconds ")?;
        let mut words = rest.split_whitespace();
        let seconds = words.next()?.parse().ok()?;
        let mut calls = words.filter_map(|word| word.parse::<f64>().ok());
        let (before, after) = (calls.next()?, calls.next()?);
        Some(Self {
            seconds,
            calls: after - before,
        })
    }
}

/// Guests that do one job after another.
struct Guests {
    cluster: Cluster,
    count: usize,
    folder: Folder,
    go: tempfile::TempDir,
    next: std::cell::Cell<usize>,
    // Both are gone before the cluster is.
    _go_server: FileServer,
    _ganesha: Ganesha,
}

impl Guests {
    /// Machines that will do these jobs, in this order.
    fn up(
        workspace: &Workspace,
        count: usize,
        folder: Folder,
        mount: &Mount,
        rate: Option<&str>,
        jobs: &[String],
    ) -> Result<Self> {
        let linux = Linux::prepare(workspace.target())?;
        let program = workspace.programs().join(PROGRAM);
        let script = script(mount, jobs);
        let initrd = linux.initramfs_with(&MODULES, "nfs", &script, &[&program])?;
        let (kernel, initrd) = (linux.kernel.to_string_lossy(), initrd.to_string_lossy());
        let mut options = vec!["--memory", MEMORY, "--no-wait"];
        options.extend(["--boot-kernel", &*kernel, "--boot-initrd", &*initrd]);
        options.extend(["--boot-append", "console=ttyS0 quiet no_timer_check"]);
        options.extend(rate.iter().flat_map(|rate| ["--rate", rate]));
        let cluster = Cluster::up(workspace, CLUSTER, count, &options)?;
        let go = tempfile::tempdir().context("making a folder for the file server")?;
        let server = cluster.serve_files(go.path())?;
        let own = workspace.target().join("bench-ganesha");
        let ganesha = Ganesha::begin(&cluster, &own, &folder.0)?;
        Ok(Self {
            cluster,
            count,
            folder,
            go,
            next: std::cell::Cell::new(0),
            _go_server: server,
            _ganesha: ganesha,
        })
    }

    /// Has the guests do their next job; the slowest time, and the calls of all.
    fn job(&self) -> Result<Said> {
        let number = self.next.replace(self.next.get() + 1);
        fs::write(self.go.path().join(format!("go-{number}")), "")?;
        let marker = format!("{MARKER} {number} ");
        let lines = self
            .cluster
            .poll(self.count, &marker, |line, _| Some(line.to_owned()))?;
        let mut all = Said {
            seconds: 0.0,
            calls: 0.0,
        };
        for line in lines {
            let said = Said::parse(&line).with_context(|| format!("a guest says {line:?}"))?;
            all.seconds = all.seconds.max(said.seconds);
            all.calls += said.calls;
        }
        Ok(all)
    }
}

/// What a guest runs. Its rank is the first number of which it can make the directory.
fn script(mount: &Mount, jobs: &[String]) -> String {
    let mut script = String::from(LEASE_SCRIPT);
    script.push_str(
        "server=$($bb cat /etc/server)\n\
         mine=$($bb ip -4 -o addr show eth0 | $bb awk '{print $4}' | $bb cut -d/ -f1)\n\
         $bb mkdir -p /mnt\n\
         calls() { $bb awk '/^rpc/ {print $2}' /proc/net/rpc/nfs; }\n",
    );
    script.push_str(&format!(
        "mounted() {{ $bb mount -t nfs4 -o \
         vers=4.2,addr=$server,clientaddr=$mine{} $server:{EXPORT} /mnt; }}\n",
        mount.options
    ));
    for (number, job) in jobs.iter().enumerate() {
        script.push_str(&format!(
            "until $bb wget -q -O /dev/null http://$server:{GO_PORT}/go-{number}; do $bb sleep 0.1; \
             done\n\
             until mounted; do $bb sleep 0.5; done\n\
             if [ -z \"$RANK\" ]; then r=0; until $bb mkdir /mnt/rank.$r 2>/dev/null; do r=$((r + \
             1)); done; export RANK=$r; fi\n\
             cd /mnt\nbefore=$(calls)\n\
             said=$(/bin/{PROGRAM} {job} 2>&1)\n\
             echo {MARKER} {number} $said $before $(calls)\n\
             cd /\n$bb umount /mnt\n"
        ));
    }
    script.push_str("while :; do $bb sleep 3600; done\n");
    script
}

/// Bulk data by so many guests, as `super::measure` has it of nodes.
pub fn bulk(
    workspace: &Workspace,
    report: &mut Report,
    mount: &Mount,
    bulk: &Bulk,
    asked: &[&'static str],
) -> Result<()> {
    let cases = asked
        .iter()
        .map(|what| (mount.case(&bulk.case(what)), *what));
    let cases: Vec<(String, &str)> = cases.collect();
    let job = |what: &str, calls: u64| format!("{what} {calls} {CALL_BYTES}");
    let jobs = asked
        .iter()
        .flat_map(|what| [job(what, WARM_UP), job(what, bulk.calls)]);
    let jobs: Vec<String> = jobs.collect();
    report.progress(&format!(
        "{}: {} Linux guests: power on",
        mount.name, bulk.nodes
    ));
    let folder = Folder::new(workspace)?;
    let count = bulk.nodes as usize;
    let guests = Guests::up(workspace, count, folder, mount, Some(bulk.rate), &jobs);
    let guests = match guests {
        Ok(guests) => guests,
        Err(error) => {
            for (case, _) in &cases {
                report.row(Row::refused(case, "ratio", "ratio", format!("{error:#}")));
            }
            return Ok(());
        }
    };
    links::check(&guests.cluster, count, bulk.bits_per_second)?;
    for (case, what) in cases {
        report.progress(&case);
        super::put_bulk(&guests.folder.0, bulk, what)?;
        guests.job()?;
        super::put_bulk(&guests.folder.0, bulk, what)?;
        let processors = Processors::now()?;
        let took = guests.job()?.seconds;
        let idle = processors.idle_since()?;
        super::check_bulk(&guests.folder.0, bulk, what)?;
        let ratio = took / bulk.limit_s(what);
        let busy = links::busy(idle, ratio);
        report.row(Row::time(&case, "ratio", ratio, "ratio", None, busy));
        report.row(Row::context(&case, "seconds", took, "s"));
        report.row(Row::context(&case, "processors_idle", idle, "share"));
    }
    Ok(())
}

/// Small calls by one guest, as `super::count` has it of a node.
pub fn small(
    workspace: &Workspace,
    report: &mut Report,
    mount: &Mount,
    asked: &[&Small],
) -> Result<()> {
    let counts = |small: &Small| [WARM_UP, 0, small.count];
    let jobs = asked.iter().flat_map(|small| {
        let job = |count| format!("{} {count}", small.what);
        counts(small).map(job)
    });
    let jobs: Vec<String> = jobs.collect();
    report.progress(&format!("{}: 1 Linux guest: power on", mount.name));
    let folder = super::small_files(workspace)?;
    let guests = match Guests::up(workspace, 1, folder, mount, None, &jobs) {
        Ok(guests) => guests,
        Err(error) => {
            for small in asked {
                let case = mount.case(&small.case());
                let why = format!("{error:#}");
                report.row(Row::refused(&case, "round_trips", "round trips", why));
            }
            return Ok(());
        }
    };
    let job = || -> Result<(Said, [f64; 2])> {
        super::remove_new(&guests.folder)?;
        let before = super::datagrams(&guests.cluster)?;
        let said = guests.job()?;
        let after = super::datagrams(&guests.cluster)?;
        Ok((said, [after[0] - before[0], after[1] - before[1]]))
    };
    for small in asked {
        let case = mount.case(&small.case());
        report.progress(&case);
        job()?;
        let (none, none_sent) = job()?;
        let (all, all_sent) = job()?;
        ensure!(all.calls >= none.calls, "{case}: calls went backwards");
        let each = |all: f64, none: f64| (all - none) / small.count as f64;
        let context = |metric, value, unit| Row::context(&case, metric, value, unit);
        let calls = each(all.calls, none.calls);
        report.row(context("round_trips", calls, "round trips"));
        let [of_node, of_server] = [0, 1].map(|way| each(all_sent[way], none_sent[way]));
        report.row(context("datagrams_of_node", of_node, "packets"));
        report.row(context("datagrams_of_service", of_server, "packets"));
        let milliseconds = all.seconds / small.count as f64 * 1e3;
        report.row(context("milliseconds", milliseconds, "ms"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_says_seconds_and_calls() {
        let said = Said::parse("NFS-TIME 2 write seconds 28.5 100 164\n");
        let right = Said {
            seconds: 28.5,
            calls: 64.0,
        };
        assert_eq!(said, Some(right));
        assert_eq!(Said::parse("NFS-TIME 2 stat: No such file 1 2"), None);
    }

    #[test]
    fn each_job_of_a_guest_waits_to_be_told() {
        let jobs = ["stat 1".to_owned(), "list 2".to_owned()];
        let script = script(&MOUNTS[1], &jobs);
        assert_eq!(script.matches("until $bb wget").count(), 2);
        assert!(script.contains("nconnect=4") && script.contains("go-1"));
    }
}
