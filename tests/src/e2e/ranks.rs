//! Ranks of a job talk to each other: the examples of `kernel/user` in both languages, mistakes,
//! and a rank that goes away.
//!
//! Invariant: every example compares what it computed with a serial run itself; here only its
//! verdict is looked at.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::command;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "ranks-examples-in-c",
        boot: Boot::Network,
        run: |cluster| {
            examples(cluster, "c", 4)?;
            let said = good(cluster, "ring-cpp", 4, &[])?;
            ensure!(
                said.trim_end().ends_with("4 times: ok"),
                "ring in C++ says {said:?}"
            );
            Ok(())
        },
    },
    Scenario {
        name: "ranks-examples-in-rust",
        boot: Boot::Network,
        run: |cluster| examples(cluster, "rust", 4),
    },
    Scenario {
        name: "ranks-odd-numbers",
        boot: Boot::Network,
        run: odd,
    },
    Scenario {
        name: "ranks-misuse",
        boot: Boot::Network,
        run: misuse,
    },
    Scenario {
        name: "ranks-hostile",
        boot: Boot::Network,
        run: hostile,
    },
    Scenario {
        name: "ranks-schemes",
        boot: Boot::Network,
        run: schemes,
    },
    Scenario {
        name: "ranks-that-spin",
        boot: Boot::Network,
        run: spinning,
    },
    Scenario {
        name: "ranks-of-threads",
        boot: Boot::Network,
        run: |cluster| {
            let said = good(cluster, "ranks-threads", 4, &[])?;
            ensure!(said == "ranks-threads: ok\n", "it says {said:?}");
            Ok(())
        },
    },
    Scenario {
        name: "ranks-in-groups",
        boot: Boot::Network,
        run: |cluster| {
            for scheme in ["default", "published-L=2"] {
                let setting = format!("HEARTH_EXCHANGE=scheme={scheme}");
                let program = cluster.program("ranks-groups");
                let run = ["run", "-n", "4", "--env", &setting, &program];
                let said = cluster.hearth(&run)?.expect_code(0)?.out();
                ensure!(said == "ranks-groups: ok\n", "{scheme}: it says {said:?}");
            }
            Ok(())
        },
    },
    Scenario {
        name: "ranks-probes",
        boot: Boot::Network,
        run: |cluster| {
            for ranks in [3, 4] {
                let said = good(cluster, "ranks-probes", ranks, &[])?;
                ensure!(said == "ranks-probes: ok\n", "it says {said:?}");
            }
            Ok(())
        },
    },
    Scenario {
        name: "ranks-that-end",
        boot: Boot::Network,
        run: ended,
    },
    Scenario {
        name: "ranks-that-send-and-end",
        boot: Boot::Network,
        run: |cluster| {
            // Whether the connection table or the end of the program comes first is a matter of
            // luck.
            for _ in 0..8 {
                good(cluster, "ranks-sends", 3, &[])?;
            }
            Ok(())
        },
    },
    Scenario {
        name: "ranks-told",
        boot: Boot::Network,
        run: told,
    },
    Scenario {
        name: "ranks-lost-machine",
        boot: Boot::Network,
        run: lost,
    },
    Scenario {
        name: "ranks-eight",
        boot: Boot::Direct16,
        run: |cluster| {
            examples(cluster, "c", 8)?;
            examples(cluster, "rust", 8)
        },
    },
    Scenario {
        name: "ranks-sixteen",
        boot: Boot::Direct16,
        run: |cluster| {
            examples(cluster, "c", 16)?;
            examples(cluster, "rust", 16)
        },
    },
    Scenario {
        name: "ranks-leaves",
        boot: Boot::Direct16,
        run: leaves,
    },
    Scenario {
        name: "ranks-slow-links",
        boot: Boot::Limited,
        run: limited,
    },
];

/// The programs of `kernel/user/examples`.
const EXAMPLES: [&str; 5] = ["ring", "transpose", "join", "heat", "cg"];

/// Runs one program on so many nodes; it must end well and say so.
fn good(cluster: &Cluster, program: &str, ranks: usize, arguments: &[&str]) -> Result<String> {
    let (program, ranks) = (cluster.program(program), ranks.to_string());
    let mut all = vec!["run", "-n", &ranks, &program];
    all.extend(arguments);
    let done = cluster.hearth(&all)?.expect_code(0)?;
    Ok(done.out())
}

pub fn examples(cluster: &Cluster, language: &str, ranks: usize) -> Result<()> {
    for name in EXAMPLES {
        let said = good(cluster, &format!("{name}-{language}"), ranks, &[])?;
        let wanted = format!("{name}: {ranks} ranks");
        ensure!(
            said.starts_with(&wanted) && said.trim_end().ends_with("ok"),
            "{name} in {language} on {ranks} nodes says {said:?}"
        );
    }
    Ok(())
}

/// One rank, two, three: nothing depends on a power of two, and a job of one rank is no other
/// program.
fn odd(cluster: &Cluster) -> Result<()> {
    for ranks in [1, 2, 3] {
        examples(cluster, "c", ranks)?;
    }
    // Longer than a window, and nothing at all.
    for bytes in ["0", "1", "300000"] {
        good(cluster, "ring-c", 3, &[bytes])?;
    }
    Ok(())
}

fn misuse(cluster: &Cluster) -> Result<()> {
    for ranks in [2, 4] {
        let said = good(cluster, "ranks-misuse", ranks, &[])?;
        ensure!(said.contains("every mistake has its error"), "{said}");
    }
    Ok(())
}

/// What a program should not do harms neither its node nor the next job.
fn hostile(cluster: &Cluster) -> Result<()> {
    for ranks in [2, 4] {
        let said = good(cluster, "ranks-hostile", ranks, &[])?;
        ensure!(said.contains("the node goes on"), "{said}");
        // It ends with everything outstanding, three times; then another program finds a node as
        // good as new.
        for _ in 0..3 {
            good(cluster, "ranks-hostile", ranks, &["exit"])?;
        }
        examples(cluster, "c", ranks)?;
    }
    Ok(())
}

/// Every scheme moves every byte; one that is not there is refused with a list.
fn schemes(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-time");
    let run = |setting: &str| {
        let setting = format!("HEARTH_EXCHANGE={setting}");
        let arguments = ["run", "-n", "4", "--env", &setting, &program];
        cluster.hearth(&[&arguments[..], &["exchange", "20000", "2"]].concat())
    };
    for scheme in ["default", "published", "published-L=2"] {
        run(&format!("scheme={scheme}"))?.expect_code(0)?;
    }
    run("rate=1000000000,port-buffer=100000")?.expect_code(0)?;
    // More active than there are ranks are all of them.
    run("scheme=published-L=99")?.expect_code(0)?;
    for wrong in [
        "scheme=best",
        "scheme=at-once",
        "scheme=published-L=0",
        "rate=fast",
        "rate=0",
        "leaf=3",
        "speed",
    ] {
        run(wrong)?.expect_code(2)?.expect_err("HEARTH_EXCHANGE")?;
    }
    Ok(())
}

/// A rank that waits halts its processor, unless it was told to spin.
fn spinning(cluster: &Cluster) -> Result<()> {
    // Rank 0 waits for four seconds in all.
    let awake = |how: &[&str]| -> Result<u64> {
        let before = awake_us(cluster)?;
        good(
            cluster,
            "ranks-time",
            2,
            &[&["wait", "0", "4"], how].concat(),
        )?;
        let after = awake_us(cluster)?;
        Ok(after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .max()
            .unwrap_or(0))
    };
    let (halting, spinning) = (awake(&[])?, awake(&["spin"])?);
    ensure!(
        spinning > halting + 2_000_000,
        "microseconds awake: {spinning} with spin, {halting} without"
    );
    good(cluster, "ranks-time", 2, &["latency", "0", "3", "spin"])?;
    Ok(())
}

/// For how long the processor of each node was not halted since it began, as of a heartbeat after
/// now.
fn awake_us(cluster: &Cluster) -> Result<Vec<u64>> {
    let figure = |node: &Value, name: &str| node[name].as_u64().unwrap_or(0);
    let uptime = |nodes: &[Value]| -> Vec<u64> {
        nodes.iter().map(|node| figure(node, "uptime_us")).collect()
    };
    let first = uptime(&cluster.nodes()?);
    // Two heartbeats on, so that one of them was sent after now.
    cluster.wait_for_nodes("heartbeats", Duration::from_secs(30), |nodes| {
        let mut both = uptime(nodes).into_iter().zip(&first);
        both.all(|(now, before)| now >= before + 2_000_000)
    })?;
    let nodes = cluster.nodes()?;
    let awake = |node| figure(node, "uptime_us").saturating_sub(figure(node, "idle_us"));
    Ok(nodes.iter().map(awake).collect())
}

/// A rank ends, by itself or by a signal: all others hear which.
fn ended(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-lost");
    for (mode, code) in [("exit", 0), ("abort", 134)] {
        let done = cluster
            .hearth(&["run", "--nodes", "n[0-3]", &program, mode, "1"])?
            .expect_code(code)?;
        check_told(&done.out(), 1)?;
    }
    Ok(())
}

/// One rank does not do its part in a collective operation: all others hear at once and of whom,
/// though none of them ends.
fn told(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-told");
    for (how, operation, rank, bytes) in [
        ("end", "allreduce", "3", "800"),
        ("end", "reduce", "1", "800"),
        ("end", "allreduce", "2", "80000"),
        ("end", "bcast", "2", "80000"),
        ("size", "allreduce", "3", "40000"),
        ("size", "reduce", "3", "800"),
        ("size", "bcast", "3", "40000"),
        ("size", "alltoall", "3", "1000"),
    ] {
        let arguments = ["run", "-n", "4", &program, how, operation, rank, bytes];
        let done = cluster.hearth(&arguments)?;
        let said = done.out();
        let right = said.lines().filter(|line| !line.ends_with("wrong")).count();
        let wanted = if how == "end" { 3 } else { 4 };
        ensure!(
            done.code() == 0 && right == wanted,
            "{how} {operation} {bytes}: exit {}:\n{said}",
            done.code()
        );
    }
    Ok(())
}

/// Three ranks say that they lost this one.
fn check_told(said: &str, lost: usize) -> Result<()> {
    let ending = format!("a rank is lost (hearth_named_rank says which), rank {lost}");
    let told = said.lines().filter(|line| line.ends_with(&ending)).count();
    ensure!(
        told == 3,
        "{told} of 3 ranks were told that rank {lost} is lost:\n{said}"
    );
    Ok(())
}

/// A machine stops in the middle of a job: the others hear which within seconds, before the control
/// node ends the job.
fn lost(cluster: &Cluster) -> Result<()> {
    let machine = cluster.machine_pid("n1")?;
    let program = cluster.program("ranks-lost");
    let mut job = cluster
        .command(&["run", "--nodes", "n[0-3]", &program, "hang", "1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let output = job.stdout.take().context("standard output is a pipe")?;
    let mut lines = BufReader::new(output).lines();
    let first = lines.next().context("the program said nothing")??;
    ensure!(first == "pull the plug", "{first}");
    signal(&machine, "-STOP")?;
    let said: Result<Vec<String>, _> = lines.collect();
    let status = job.wait();
    signal(&machine, "-CONT")?;
    // It went on where it was, and its job is gone.
    cluster.wait_for_nodes("n1 to be heard again", Duration::from_secs(60), |nodes| {
        nodes.iter().all(|node| node["state"] == "idle")
    })?;
    let said = said?.join("\n");
    check_told(&said, 1)?;
    for line in said.lines() {
        let seconds = line
            .split(" after ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next());
        let seconds: f64 = seconds.context("no time")?.parse()?;
        ensure!(seconds < 15.0, "told late: {line}");
    }
    // What the control node says of a job that has lost a node.
    if status?.code() != Some(123) {
        bail!("the job did not end as one that lost a node:\n{said}");
    }
    Ok(())
}

fn signal(pid: &str, name: &str) -> Result<()> {
    command::run("kill".as_ref(), &[name, pid], b"", LIMIT)?.expect_code(0)?;
    Ok(())
}

/// Ranks learn how many of them share a leaf switch, where that is the same everywhere, and
/// exchange in that order.
fn leaves(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-time");
    let log = cluster.serial_log("n4")?;
    let said = || -> Result<Vec<String>> {
        let log = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
        let lines = log.lines().map(|line| line.trim_end().to_owned());
        Ok(lines
            .filter(|line| line.contains("in the order of leaf switches"))
            .collect())
    };
    // Nodes, what the launch says, and how many of them are on each leaf switch of four. The log
    // names the order that is used.
    for (nodes, setting, leaf) in [
        ("n[0-15]", "", Some(4)),
        ("n[2-5]", "", Some(2)),
        ("n[0-4]", "", None),
        ("n[0-7]", "leaf=2", Some(2)),
        ("n[0-7]", "leaf=0", None),
    ] {
        let before = said()?.len();
        let setting = format!("HEARTH_EXCHANGE={setting}");
        let arguments = ["run", "--nodes", nodes, "--env", &setting, &program];
        cluster
            .hearth(&[&arguments[..], &["exchange", "20000", "2"]].concat())?
            .expect_code(0)?;
        let said = said()?;
        let found = &said[before..];
        let wanted = leaf.map(|leaf| format!("leaf switches of {leaf} ranks"));
        let is_right = match wanted {
            None => found.is_empty(),
            Some(wanted) => found.len() == 1 && found[0].ends_with(&wanted),
        };
        ensure!(is_right, "{nodes} {setting}: n4 says {found:?}");
    }
    Ok(())
}

/// Behind links of 20 Mbit/s: nothing collapses, and nothing is lost.
fn limited(cluster: &Cluster) -> Result<()> {
    good(cluster, "ranks-time", 4, &["exchange", "250000", "2"])?;
    good(cluster, "join-c", 4, &["20000"])?;
    Ok(())
}
