//! Several ranks of a job on a node: their places, their cores, what they say to each other, and
//! their ends.
//!
//! Invariant: what a rank alone on its node can do is tested elsewhere; here it shares the node.

use anyhow::{Context, Result, ensure};

use crate::Scenario;
use crate::cluster::{Boot, Cluster};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "shared-places",
        boot: Boot::Cores,
        run: places,
    },
    Scenario {
        name: "shared-refusals",
        boot: Boot::Cores,
        run: refusals,
    },
    Scenario {
        name: "shared-examples",
        boot: Boot::Cores,
        run: examples,
    },
    Scenario {
        name: "shared-examples-through-sockets",
        boot: Boot::Sockets,
        run: through_sockets,
    },
    Scenario {
        name: "shared-crash",
        boot: Boot::Cores,
        run: crash,
    },
    Scenario {
        name: "shared-pages",
        boot: Boot::Cores,
        run: pages,
    },
    Scenario {
        name: "shared-spinning",
        boot: Boot::Cores,
        run: spinning,
    },
    Scenario {
        name: "shared-threads-and-files",
        boot: Boot::Cores,
        run: threads_and_files,
    },
];

/// Lines of a job's output, sorted.
fn lines(cluster: &Cluster, options: &[&str], program: &str) -> Result<Vec<String>> {
    let program = cluster.program(program);
    let run = [&["run"], options, &[&program]].concat();
    let said = cluster.hearth(&run)?.expect_code(0)?.out();
    let mut lines: Vec<String> = said.lines().map(str::to_string).collect();
    lines.sort();
    Ok(lines)
}

/// Ranks are on nodes in blocks, each on cores of its own.
fn places(cluster: &Cluster) -> Result<()> {
    let said = lines(cluster, &["-n", "4", "-N", "2", "-c", "2"], "ranks-cores")?;
    let wanted = [(0, 0), (1, 2), (2, 0), (3, 2)]
        .map(|(rank, first)| format!("rank {rank} of 4: 2 cores from {first}, 2 threads"));
    ensure!(said == wanted, "{said:?}");
    // Without -c the cores are shared out; one more rank is on the first node.
    let said = lines(cluster, &["-n", "5", "-N", "2"], "ranks-cores")?;
    let firsts: Vec<bool> = [(0, 1, 0), (1, 1, 1), (2, 1, 2), (3, 2, 0), (4, 2, 2)]
        .iter()
        .map(|(rank, cores, first)| {
            let wanted = format!("rank {rank} of 5: {cores} cores from {first}, ");
            said.iter().any(|line| line.starts_with(&wanted))
        })
        .collect();
    ensure!(firsts == [true; 5], "{said:?}");
    // One rank a node has all its cores, as ever.
    let said = lines(cluster, &["-n", "2"], "ranks-cores")?;
    ensure!(
        said[1] == "rank 1 of 2: 4 cores from 0, 4 threads",
        "{said:?}"
    );
    Ok(())
}

fn refusals(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-cores");
    for (options, why) in [
        (["-n", "8", "-N", "2", "-c", "2"], "8 cores of a node"),
        (["-n", "9", "-N", "2", "-c", "1"], "5 cores of a node"),
        (["-n", "1", "-N", "2", "-c", "1"], "smaller -N"),
    ] {
        let run = [&["run"][..], &options, &[&program]].concat();
        cluster.hearth(&run)?.expect_code(2)?.expect_err(why)?;
    }
    Ok(())
}

/// The same where the stack of each node has the datagrams of others; and a cast.
fn through_sockets(cluster: &Cluster) -> Result<()> {
    let log = std::fs::read(cluster.serial_log("n1")?)?;
    let log = String::from_utf8_lossy(&log);
    ensure!(
        log.contains("datagrams of peers go through sockets"),
        "n1 does not say which way they go: {log}"
    );
    for name in ["ring-c", "transpose-c", "ranks-groups"] {
        example(cluster, name, "8", "2")?;
    }
    let program = cluster.program("hello-c");
    let cast = cluster.json(&["cast", &program])?;
    ensure!(cast["done"] == 2, "the file is not on both nodes: {cast}");
    Ok(())
}

/// What ranks say to each other within a node and between nodes.
fn examples(cluster: &Cluster) -> Result<()> {
    for (ranks, nodes) in [("4", "1"), ("8", "2"), ("7", "2")] {
        for name in [
            "ring-c",
            "transpose-c",
            "cg-rust",
            "heat-rust",
            "ranks-groups",
        ] {
            // Its grid has two columns.
            if name == "ranks-groups" && ranks == "7" {
                continue;
            }
            example(cluster, name, ranks, nodes)?;
        }
    }
    Ok(())
}

fn example(cluster: &Cluster, name: &str, ranks: &str, nodes: &str) -> Result<()> {
    let program = cluster.program(name);
    let said = cluster
        .hearth(&["run", "-n", ranks, "-N", nodes, &program])?
        .expect_code(0)?
        .out();
    ensure!(
        said.trim_end().ends_with("ok"),
        "{name}, {ranks} ranks on {nodes} nodes: {said:?}"
    );
    Ok(())
}

/// One of the ranks of a node crashes: it leaves its core file, the others end as they want, and
/// the node takes the next job.
fn crash(cluster: &Cluster) -> Result<()> {
    let folder = cluster.scratch("shared-cores");
    std::fs::create_dir_all(&folder).context("making a folder")?;
    let program = cluster.program("core-dump");
    let run = [
        "run", "-n", "4", "-N", "2", "--core", "-D", &folder, &program, "--", "1",
    ];
    let done = cluster.hearth(&run)?;
    done.expect_code(128 + 11)?.expect_err("core.1")?;
    // A rank that ends is no loss to the others of its node, and they hear of it.
    let program = cluster.program("ranks-lost");
    let run = ["run", "-n", "4", "-N", "1", &program, "abort", "1"];
    let said = cluster.hearth(&run)?.expect_code(134)?.out();
    let told = said.lines().filter(|line| line.ends_with("rank 1")).count();
    ensure!(told == 3, "{said}");
    cluster.all_nodes_idle()
}

/// The pages of the program are fetched once for a node.
fn pages(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-cores");
    let loaded_by = |ranks: &str| -> Result<Vec<u64>> {
        let run = [
            "run", "-n", ranks, "-N", "1", "--cold", "--load", "demand", &program,
        ];
        cluster.hearth(&run)?.expect_code(0)?;
        let jobs = cluster.json(&["jobs", "--all", "--limit", "1"])?;
        let id = jobs[0]["id"].as_u64().context("no job")?.to_string();
        let job = cluster.json(&["job", &id])?;
        let ranks = job["ranks"].as_array().context("no ranks")?.iter();
        Ok(ranks
            .map(|rank| rank["loaded_bytes"].as_u64().unwrap_or(0))
            .collect())
    };
    let alone: u64 = loaded_by("1")?.iter().sum();
    let four = loaded_by("4")?;
    let all: u64 = four.iter().sum();
    // Whichever comes to a page first fetches it; what each reads ahead differs.
    ensure!(
        four.len() == 4 && alone > 0 && all < 2 * alone,
        "bytes fetched by each rank: {four:?}, and {alone} by one alone"
    );
    Ok(())
}

/// A rank that spins while it waits does not keep its neighbour, which sleeps and has pages to
/// touch, out of the kernel.
fn spinning(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-time");
    let run = [
        "run", "-n", "2", "-N", "1", "-t", "2m", &program, "wait", "0", "1", "spin",
    ];
    let said = cluster.hearth(&run)?.expect_code(0)?.out();
    ensure!(said.starts_with("wait seconds "), "{said:?}");
    Ok(())
}

fn threads_and_files(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-threads");
    let said = cluster
        .hearth(&["run", "-n", "4", "-N", "2", "-c", "2", &program])?
        .expect_code(0)?
        .out();
    ensure!(said == "ranks-threads: ok\n", "{said:?}");
    // `/tmp` is that of all ranks of a node.
    let program = cluster.program("ranks-tmp");
    let run = ["run", "-n", "6", "-N", "2", &program, "3"];
    let said = cluster.hearth(&run)?.expect_code(0)?.out();
    for line in ["3 files", "sum 60"] {
        let count = said.lines().filter(|said| *said == line).count();
        ensure!(count == 6, "{count} ranks say {line:?}:\n{said}");
    }
    ensure!(!said.contains("left over"), "{said}");
    let folder = cluster.scratch("shared-files");
    std::fs::create_dir_all(&folder).context("making a folder")?;
    let program = cluster.program("ranks-files");
    let run = ["run", "-n", "6", "-N", "2", "-D", &folder, &program];
    let said = cluster.hearth(&run)?.expect_code(0)?.out();
    let right = said.lines().filter(|line| line.ends_with(": 120")).count();
    ensure!(right == 6, "{said}");
    let log = std::fs::read_to_string(format!("{folder}/log")).context("the ranks' log")?;
    ensure!(
        log.lines().count() == 6 * 50,
        "{} lines",
        log.lines().count()
    );
    Ok(())
}
