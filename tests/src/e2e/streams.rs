//! Arguments, environment, standard streams and exit status go both ways unchanged.

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "arguments-environment-stdin",
        boot: Boot::Network,
        run: round_trip,
    },
    Scenario {
        name: "exit-status",
        boot: Boot::Network,
        run: exit_status,
    },
    Scenario {
        name: "output-is-complete",
        boot: Boot::Network,
        run: complete,
    },
    Scenario {
        name: "slow-reader",
        boot: Boot::Network,
        run: slow_reader,
    },
    Scenario {
        name: "output-under-loss",
        boot: Boot::Network,
        run: under_loss,
    },
];

fn round_trip(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("echo-all");
    let input: Vec<u8> = (0..200_000u32).map(|i| (i * 7 % 251) as u8).collect();
    let sum = input.iter().fold(5381u64, |s, b| {
        s.wrapping_mul(33).wrapping_add(u64::from(*b))
    });
    let args = [
        "run",
        "-n",
        "1",
        "--env",
        "COLOUR=deep red",
        "--env",
        "EMPTY=",
        &program,
        "--",
        "one",
        "two words",
        "",
        "--nodes",
        "ünï",
    ];
    let done = cluster
        .hearth_within(&args, &input, LIMIT)?
        .expect_code(5)?;
    let done = done
        .expect_out("arg 1 [one]\narg 2 [two words]\narg 3 []\narg 4 [--nodes]\narg 5 [ünï]\n")?
        .expect_out("env [COLOUR=deep red]\n")?
        .expect_out("env [EMPTY=]\n")?
        .expect_out("env [HEARTH_RANK=0]\n")?
        .expect_out("env [HEARTH_SIZE=1]\n")?
        .expect_out(&format!("stdin 200000 bytes, sum {sum}\n"))?
        .expect_err("echo-all: done\n")?;
    if done.out().contains("env [HOME=") || done.out().contains("env [PATH=") {
        bail!(
            "the job got environment that nobody gave it:\n{}",
            done.out()
        );
    }
    Ok(())
}

fn exit_status(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("misbehave");
    cluster
        .hearth(&["run", "-n", "3", &program, "--", "status", "42"])?
        .expect_code(42)?;
    cluster
        .hearth(&["run", "-n", "1", &program, "--", "abort"])?
        .expect_code(128 + 6)?;
    Ok(())
}

fn complete(cluster: &Cluster) -> Result<()> {
    every_line_once(cluster)
}

/// One datagram in ten is lost in each direction, by a packet filter in the cluster's namespace.
fn under_loss(cluster: &Cluster) -> Result<()> {
    const RULES: &str = "table inet loss {
        chain in { type filter hook input priority 0; udp dport 7117 numgen random mod 10 == 0 drop; }
        chain out { type filter hook output priority 0; udp sport 7117 numgen random mod 10 == 0 drop; }
    }";
    cluster
        .in_namespace(&["nft", "-f", "-"], RULES.as_bytes())?
        .expect_code(0)?;
    let outcome = every_line_once(cluster);
    cluster
        .in_namespace(&["nft", "delete", "table", "inet", "loss"], b"")?
        .expect_code(0)?;
    outcome
}

fn every_line_once(cluster: &Cluster) -> Result<()> {
    let done = cluster
        .hearth(&[
            "run",
            "-n",
            "4",
            "--label",
            &cluster.program("lines"),
            "--",
            "2000",
        ])?
        .expect_code(0)?;
    let out = done.out();
    let err = done.err();
    for rank in 0..4 {
        let label = format!("{rank}: ");
        let of = |text: &str| -> Vec<String> {
            text.lines()
                .filter_map(|l| l.trim_start().strip_prefix(&label))
                .map(str::to_owned)
                .collect()
        };
        let lines = of(&out);
        let wanted: Vec<String> = (0..2000).map(|i| format!("line {i} of 2000")).collect();
        if lines != wanted {
            bail!(
                "rank {rank}: {} lines came back, or not in order",
                lines.len()
            );
        }
        let marks = of(&err);
        if marks
            != (0..200)
                .map(|i| format!("mark {}", i * 10))
                .collect::<Vec<_>>()
        {
            bail!("rank {rank}: {} marks on standard error", marks.len());
        }
    }
    Ok(())
}

/// A reader that stops for a while slows the program down; nothing is lost and memory stays
/// bounded.
fn slow_reader(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("lines");
    let mut child = cluster
        .command(&["run", "-n", "1", &program, "--", "40000"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let Some(mut stdout) = child.stdout.take() else {
        bail!("no standard output")
    };
    std::thread::sleep(Duration::from_secs(4));
    let mut text = String::new();
    stdout.read_to_string(&mut text)?;
    let status = child.wait()?;
    let right = text
        .lines()
        .enumerate()
        .all(|(i, line)| line == format!("line {i} of 40000"));
    if !right || text.lines().count() != 40_000 || !status.success() {
        bail!(
            "{} lines came back, in order: {right}, status {status}",
            text.lines().count()
        );
    }
    Ok(())
}
