//! `cargo xtask bench files`: files of the user, read and written by ranks on real kernels in QEMU.
//! Cases `bulk-NODES/RATE/write` and `/read` are behind limited links, as a ratio to what the
//! service's link needs for the bytes; `bulk-NODES-by-2/...` have two services, each with a link of
//! its own; in `bulk-NODES/RATE/same` all nodes read one file, whose bytes count once; cases
//! `small/WHAT` count round trips, and `counted/WHAT` instructions of the node.
//! Cases `nfs/...` and `nfs-best/...` are Linux guests and nfs-ganesha ([`nfs`]).
//!
//! Key types: [`Bulk`], [`Small`]. The program `ranks-files-time` measures with the nodes' clocks.
//! Neighbours: `super::{cluster, links}`.
//!
//! Invariant: what a rank wrote is compared here, and what it reads is compared by it, to the byte;
//! a figure is given only when the limits were where they belong and the processors had something
//! left over.

mod ganesha;
mod nfs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::cluster::Cluster;
use super::links::{self, Processors};
use super::{Goal, Report, Row, ready};
use crate::workspace::Workspace;

const CLUSTER: &str = "bench-files";
/// Bytes of a call.
const CALL_BYTES: u64 = 1 << 20;
/// Calls of a job before those that count: the emulator translates what it runs for the first time.
const WARM_UP: u64 = 2;
/// Bytes of the file that is opened, read and closed, and names in the directory that is listed.
const SMALL_BYTES: usize = 4096;
const NAMES: usize = 1_000;
/// How long two heartbeats of a node may take, whose seconds are longer when the machine is busy.
const HEARTBEATS_LIMIT: Duration = Duration::from_secs(60);

/// Bulk data: so many nodes, behind links of this rate, read and write so many calls each.
#[derive(Debug, Clone, Copy)]
struct Bulk {
    nodes: u64,
    /// As `hearth up --memory` has it.
    memory: &'static str,
    /// What `ranks-files-time` does.
    whats: &'static [&'static str],
    /// I/O services; a single one is beside the control node.
    services: u64,
    /// As `hearth up --rate` has it.
    rate: &'static str,
    bits_per_second: u64,
    calls: u64,
    /// What it shall need at most, in times of what the service's link needs.
    ratio_most: f64,
}

/// All nodes read one file, which they have in memory then.
const SAME: &str = "same";
/// A file is cast that was not changed for a second.
const AT_REST: Duration = Duration::from_millis(1_100);
/// Each rank has a file of its own.
const OWN: &[&str] = &["write", "read"];

const BULKS: [Bulk; 4] = [
    Bulk {
        nodes: 1,
        memory: "64M",
        whats: OWN,
        services: 1,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        calls: 64,
        ratio_most: 1.10,
    },
    Bulk {
        nodes: 8,
        memory: "64M",
        whats: OWN,
        services: 1,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        calls: 8,
        ratio_most: 1.15,
    },
    Bulk {
        nodes: 8,
        memory: "64M",
        whats: OWN,
        services: 2,
        rate: "20mbit",
        bits_per_second: 20_000_000,
        calls: 8,
        ratio_most: 1.15,
    },
    // Sixteen emulated nodes take no more of two processors.
    Bulk {
        nodes: 16,
        memory: "192M",
        whats: &[SAME],
        services: 1,
        rate: "3mbit",
        bits_per_second: 3_000_000,
        calls: 64,
        ratio_most: 1.3,
    },
];

/// What two services are of one, at least.
const SERVICES_GOAL: Goal = Goal::AtLeast(1.9);

/// Small calls: what `ranks-files-time` is told, how often in a job, and the round trips that it
/// shall cost at most. Where fewer of them are to be waited for, the time says how many: in round
/// trips of an echo, with room for less than one more.
#[derive(Debug, Clone, Copy)]
struct Small {
    what: &'static str,
    count: u64,
    round_trips_most: f64,
    time_most: Option<f64>,
}

/// Closing what was only read is waited for by nobody, and counts here all the same. What the node
/// says besides in the meantime is less than a tenth of a round trip.
const SMALLS: [Small; 4] = [
    Small {
        what: "stat",
        count: 1_000,
        round_trips_most: 1.1,
        time_most: None,
    },
    Small {
        what: "small",
        count: 500,
        round_trips_most: 3.1,
        time_most: Some(2.5),
    },
    Small {
        what: "create",
        count: 500,
        round_trips_most: 3.1,
        time_most: None,
    },
    Small {
        what: "list",
        count: 100,
        round_trips_most: 8.0,
        time_most: None,
    },
];

impl Small {
    fn case(&self) -> String {
        format!("small/{}", self.what)
    }
}

impl Bulk {
    fn case(&self, what: &str) -> String {
        let by = match self.services {
            1 => String::new(),
            services => format!("-by-{services}"),
        };
        format!("bulk-{}{by}/{}/{what}", self.nodes, self.rate)
    }

    /// Each service has its share of the bytes.
    fn limit_s(&self, what: &str) -> f64 {
        let files = if what == SAME { 1 } else { self.nodes };
        let bytes = files * self.calls * CALL_BYTES / self.services;
        links::limit_s(bytes, self.bits_per_second)
    }
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut one_took = BTreeMap::new();
    for bulk in &BULKS {
        let wants = |what: &&str| report.wants(&bulk.case(what));
        let asked: Vec<&'static str> = bulk.whats.iter().copied().filter(wants).collect();
        if !asked.is_empty() {
            ready(workspace, report)?;
            measure(workspace, report, bulk, &asked, &mut one_took)?;
        }
    }
    let wants = |small: &&Small| report.wants(&small.case());
    let asked: Vec<&Small> = SMALLS.iter().filter(wants).collect();
    if !asked.is_empty() {
        ready(workspace, report)?;
        count(workspace, report, &asked)?;
    }
    beside(workspace, report)?;
    let wants = |small: &&Small| report.wants(&format!("counted/{}", small.what));
    let asked: Vec<&Small> = SMALLS.iter().filter(wants).collect();
    if !asked.is_empty() {
        crate::build::once(workspace)?;
        count_instructions(workspace, report, &asked)?;
    }
    Ok(())
}

/// The same by Linux guests from nfs-ganesha. It serves from one machine.
fn beside(workspace: &Workspace, report: &mut Report) -> Result<()> {
    for mount in &nfs::MOUNTS {
        for bulk in BULKS
            .iter()
            .filter(|bulk| bulk.services == 1 && bulk.whats == OWN)
        {
            let wants = |what: &&str| report.wants(&mount.case(&bulk.case(what)));
            let asked: Vec<&str> = ["write", "read"].into_iter().filter(wants).collect();
            if !asked.is_empty() {
                ready(workspace, report)?;
                nfs::bulk(workspace, report, mount, bulk, &asked)?;
            }
        }
        let wants = |small: &&Small| report.wants(&mount.case(&small.case()));
        let asked: Vec<&Small> = SMALLS.iter().filter(wants).collect();
        if !asked.is_empty() {
            ready(workspace, report)?;
            nfs::small(workspace, report, mount, &asked)?;
        }
    }
    Ok(())
}

/// A folder for the files, empty; it is gone when this is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(workspace: &Workspace) -> Result<Self> {
        let path = workspace.target().join(CLUSTER);
        if path.exists() {
            fs::remove_dir_all(&path).with_context(|| format!("clearing {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Runs `ranks-files-time` in the folder; the seconds of its slowest rank.
fn seconds(
    workspace: &Workspace,
    cluster: &Cluster,
    folder: &Path,
    nodes: u64,
    arguments: &[&str],
) -> Result<f64> {
    let program = workspace.programs().join("ranks-files-time");
    let (nodes, program) = (nodes.to_string(), program.to_string_lossy().into_owned());
    let folder = folder.to_string_lossy().into_owned();
    let mut command = vec!["run", "-n", &nodes, "-D", &folder, &program];
    command.extend(arguments);
    let said = cluster.run(&command)?;
    let line = said.lines().find_map(|line| line.split_once(" seconds "));
    let figure = line.and_then(|(_, figure)| figure.trim().parse().ok());
    figure.with_context(|| format!("ranks-files-time says {said:?}"))
}

/// `one_took` has the seconds of a single service with so many nodes: of that which was measured
/// here before, and it is told what is measured.
fn measure(
    workspace: &Workspace,
    report: &mut Report,
    bulk: &Bulk,
    asked: &[&'static str],
    one_took: &mut BTreeMap<(u64, &'static str), f64>,
) -> Result<()> {
    report.progress(&format!("{} nodes, {}: power on", bulk.nodes, bulk.rate));
    let folder = Folder::new(workspace)?;
    let services = bulk.services.to_string();
    let mut options = vec!["--direct", "--memory", bulk.memory, "--rate", bulk.rate];
    let mut machines = bulk.nodes;
    if bulk.services > 1 {
        options.extend(["--io", &services]);
        machines += bulk.services;
    }
    let cluster = Cluster::up(workspace, CLUSTER, bulk.nodes as usize, &options)?;
    links::check(&cluster, machines as usize, bulk.bits_per_second)?;
    for what in asked {
        let case = bulk.case(what);
        report.progress(&case);
        let job = |calls: u64| -> Result<f64> {
            let (calls, bytes) = (calls.to_string(), CALL_BYTES.to_string());
            let arguments = [*what, &calls, &bytes];
            seconds(workspace, &cluster, &folder.0, bulk.nodes, &arguments)
        };
        if *what == SAME {
            // One that is large would be cast in the middle of what counts.
            fs::write(bulk_file(&folder.0, 0), contents(0, WARM_UP))?;
        } else {
            put_bulk(&folder.0, bulk, what)?;
        }
        job(WARM_UP)?;
        if *what == SAME {
            fs::write(bulk_file(&folder.0, 0), contents(0, bulk.calls))?;
            std::thread::sleep(AT_REST);
        }
        let processors = Processors::now()?;
        let took = job(bulk.calls)?;
        let idle = processors.idle_since()?;
        check_bulk(&folder.0, bulk, what)?;
        let ratio = took / bulk.limit_s(what);
        let busy = links::busy(idle, ratio);
        let goal = Some(bulk.ratio_most);
        if bulk.services == 1 {
            one_took.insert((bulk.nodes, *what), took);
        } else if let Some(one) = one_took.get(&(bulk.nodes, *what)) {
            let metric = "over_one_service";
            report.row(match &busy {
                Some(why) => Row::refused(&case, metric, "ratio", why.clone()),
                None => Row::goal(&case, metric, one / took, "ratio", SERVICES_GOAL),
            });
        }
        report.row(Row::time(&case, "ratio", ratio, "ratio", goal, busy));
        report.row(Row::context(&case, "seconds", took, "s"));
        report.row(Row::context(&case, "processors_idle", idle, "share"));
    }
    cluster.down()
}

/// The files that a case begins with.
fn put_bulk(folder: &Path, bulk: &Bulk, what: &str) -> Result<()> {
    for rank in 0..bulk.nodes {
        let bytes = match what {
            "read" => contents(rank, bulk.calls),
            _ => Vec::new(),
        };
        fs::write(bulk_file(folder, rank), bytes)?;
    }
    Ok(())
}

/// # Errors
/// What was to be written is not there.
fn check_bulk(folder: &Path, bulk: &Bulk, what: &str) -> Result<()> {
    for rank in (0..bulk.nodes).filter(|_| what == "write") {
        let written = fs::read(bulk_file(folder, rank))?;
        let is_it = written == contents(rank, bulk.calls);
        ensure!(is_it, "what rank {rank} wrote is not what is there");
    }
    Ok(())
}

fn bulk_file(folder: &Path, rank: u64) -> PathBuf {
    folder.join(format!("bulk.{rank}"))
}

/// The bytes of a rank's file of so many blocks, as `ranks-files-time` has them.
fn contents(rank: u64, blocks: u64) -> Vec<u8> {
    let word = |at: u64| (rank << 40 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let words: Vec<u64> = (1..CALL_BYTES / 8).map(word).collect();
    let block = |number| std::iter::once(number).chain(words.iter().copied());
    (0..blocks)
        .flat_map(block)
        .flat_map(u64::to_le_bytes)
        .collect()
}

/// Counts the datagrams of small calls on links without limits. A job that makes none of them is
/// taken off: what remains is theirs.
fn count(workspace: &Workspace, report: &mut Report, asked: &[&Small]) -> Result<()> {
    report.progress("1 node: power on");
    let folder = small_files(workspace)?;
    let options = ["--direct", "--memory", "64M"];
    let cluster = Cluster::up(workspace, CLUSTER, 1, &options)?;
    let job = |what: &str, count: u64| -> Result<(f64, [f64; 2])> {
        remove_new(&folder)?;
        let before = datagrams(&cluster)?;
        let count = count.to_string();
        let took = seconds(workspace, &cluster, &folder.0, 1, &[what, &count])?;
        let after = datagrams(&cluster)?;
        Ok((took, [after[0] - before[0], after[1] - before[1]]))
    };
    for small in asked {
        let case = small.case();
        report.progress(&case);
        job(small.what, WARM_UP)?;
        let (_, none) = job(small.what, 0)?;
        let (took, all) = job(small.what, small.count)?;
        let ping_s = cluster.round_trip_ms()? / 1e3;
        let each = |index: usize| (all[index] - none[index]) / small.count as f64;
        // A round trip is a datagram at least, each way.
        let round_trips = each(0).min(each(1));
        let goal = Goal::AtMost(small.round_trips_most);
        let metric = "round_trips";
        report.row(Row::goal(&case, metric, round_trips, "round trips", goal));
        let context = |metric, value, unit| Row::context(&case, metric, value, unit);
        report.row(context("datagrams_of_node", each(0), "datagrams"));
        report.row(context("datagrams_of_service", each(1), "datagrams"));
        let each_s = took / small.count as f64;
        report.row(context("milliseconds", each_s * 1e3, "ms"));
        let (metric, in_pings) = ("time_in_pings", each_s / ping_s);
        report.row(match small.time_most.map(Goal::AtMost) {
            Some(goal) => Row::goal(&case, metric, in_pings, "round trips", goal),
            None => context(metric, in_pings, "round trips"),
        });
    }
    cluster.down()
}

/// What the small calls find.
fn small_files(workspace: &Workspace) -> Result<Folder> {
    let folder = Folder::new(workspace)?;
    fs::write(folder.0.join("small"), vec![b's'; SMALL_BYTES])?;
    fs::create_dir(folder.0.join("many"))?;
    for index in 0..NAMES {
        fs::write(folder.0.join(format!("many/file{index:04}")), b"")?;
    }
    Ok(folder)
}

/// Removes what those made that make files.
fn remove_new(folder: &Folder) -> Result<()> {
    for entry in fs::read_dir(&folder.0)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("new.") {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Counts instructions that the node carries out for each: its clock counts them, one a nanosecond,
/// and it says for how long its processor had something to do. A job that makes none of these calls
/// is taken off.
fn count_instructions(workspace: &Workspace, report: &mut Report, asked: &[&Small]) -> Result<()> {
    report.progress("1 node under -icount");
    let folder = small_files(workspace)?;
    let options = ["--direct", "--memory", "64M", "--icount=0"];
    let cluster = Cluster::up(workspace, CLUSTER, 1, &options)?;
    let job = |what: &str, count: u64| -> Result<f64> {
        remove_new(&folder)?;
        let before = awake_us(&cluster)?;
        seconds(
            workspace,
            &cluster,
            &folder.0,
            1,
            &[what, &count.to_string()],
        )?;
        Ok((awake_us(&cluster)? - before) * 1e3)
    };
    for small in asked {
        let case = format!("counted/{}", small.what);
        report.progress(&case);
        job(small.what, WARM_UP)?;
        let none = job(small.what, 0)?;
        let all = job(small.what, small.count)?;
        let each = (all - none) / small.count as f64;
        report.row(Row::context(&case, "on_node", each, "instructions"));
    }
    cluster.down()
}

/// For how long the node's processor was not halted since it began, as of a heartbeat after now.
fn awake_us(cluster: &Cluster) -> Result<f64> {
    let figures = || -> Result<[f64; 2]> {
        let nodes = cluster.json(&["nodes"])?;
        let node = nodes.get(0).or_else(|| nodes["nodes"].get(0));
        let node = node.context("hearth nodes --json has no node")?;
        let figure = |name: &str| {
            node[name]
                .as_f64()
                .with_context(|| format!("no {name}: {node}"))
        };
        Ok([figure("uptime_us")?, figure("idle_us")?])
    };
    let [began, _] = figures()?;
    let end = Instant::now() + HEARTBEATS_LIMIT;
    loop {
        let [uptime, idle] = figures()?;
        // One of two heartbeats was sent after now.
        if uptime >= began + 2_000_000.0 {
            return Ok(uptime - idle);
        }
        ensure!(Instant::now() < end, "the node sends no heartbeats");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Datagrams that the node has sent, and that were sent to it.
fn datagrams(cluster: &Cluster) -> Result<[f64; 2]> {
    let counters = cluster.counters()?;
    let node = counters.get("n0").context("the node's link is gone")?;
    Ok([node.received.packets as f64, node.sent.packets as f64])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_are_those_of_the_tables() {
        assert_eq!(BULKS[0].case("write"), "bulk-1/20mbit/write");
        // 64 MiB are 45,591 datagrams.
        let limit = (67_108_864.0 + 45_591.0 * 42.0) * 8.0 / 20e6;
        assert!((BULKS[0].limit_s("read") - limit).abs() < 1e-9);
        assert!((BULKS[1].limit_s("read") - limit).abs() < 1e-9);
        assert_eq!(BULKS[2].case("read"), "bulk-8-by-2/20mbit/read");
        assert!((2.0 * BULKS[2].limit_s("read") - limit).abs() < 1e-3);
    }

    #[test]
    fn files_of_ranks_differ_in_each_word_of_a_block() {
        let (zero, one) = (contents(0, 2), contents(1, 2));
        let block = CALL_BYTES as usize;
        assert_eq!(zero.len(), 2 * block);
        assert_eq!((zero[0], zero[block]), (0, 1), "the block's number");
        let mut words = zero[8..block].chunks(8).zip(one[8..block].chunks(8));
        assert!(words.all(|(a, b)| a != b));
    }
}
