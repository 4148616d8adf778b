//! Nodes that are switched off, reset, killed, or left in peace while they compute.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::Scenario;
use crate::cluster::{Boot, Cluster};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "quiet-while-computing",
        boot: Boot::Network,
        run: quiet,
    },
    Scenario {
        name: "node-off-and-on",
        boot: Boot::Network,
        run: off_and_on,
    },
    Scenario {
        name: "node-lost-under-a-job",
        boot: Boot::Network,
        run: lost_under_job,
    },
    Scenario {
        name: "orderly-leave",
        boot: Boot::Network,
        run: leave,
    },
    Scenario {
        name: "tables-and-json",
        boot: Boot::Network,
        run: tables,
    },
];

/// While a program computes for ten seconds the node takes only control interrupts: about one a
/// second.
fn quiet(cluster: &Cluster) -> Result<()> {
    let report = std::env::temp_dir().join(format!("hearth-quiet-{}.json", std::process::id()));
    let flag = format!("--report={}", report.display());
    cluster
        .hearth(&[
            "run",
            "--nodes",
            "n0",
            "-n",
            "1",
            &flag,
            &cluster.program("spin"),
            "--",
            "10",
        ])?
        .expect_code(0)?;
    let text = std::fs::read_to_string(&report)?;
    std::fs::remove_file(&report)?;
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let interrupts = &value["ranks"][0]["interrupts"];
    let class = |name: &str| {
        interrupts[name]
            .as_u64()
            .with_context(|| format!("no count of {name} interrupts in {text}"))
    };
    let (heartbeat, nic) = (class("heartbeat")?, class("nic")?);
    let seconds = value["ranks"][0]["wall_ms"]
        .as_f64()
        .context("no wall_ms in the report")?
        / 1000.0;
    // One heartbeat a second of the same run, the ends aside; a stalled machine makes both longer.
    if seconds < 10.0 || (heartbeat as f64 - seconds).abs() > 2.0 || nic != 0 {
        bail!(
            "{heartbeat} heartbeat and {nic} NIC interrupts in {seconds:.1} s of computing: {text}"
        );
    }
    let others: u64 = interrupts
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.as_str() != "heartbeat")
        .filter_map(|(_, count)| count.as_u64())
        .sum();
    if others != 0 {
        bail!("interrupts of other classes while computing: {interrupts}");
    }
    Ok(())
}

/// How often a node has joined since its cluster came up.
pub fn boots(cluster: &Cluster, name: &str) -> Result<u64> {
    let nodes = cluster.nodes()?;
    let node = nodes
        .iter()
        .find(|n| n["name"] == name)
        .with_context(|| format!("{name} is not listed"))?;
    node["boots"]
        .as_u64()
        .with_context(|| format!("{name} has no count of boots: {node}"))
}

/// A node is switched off and on; `leave` and others switch it in one.
fn off_and_on(cluster: &Cluster) -> Result<()> {
    let before = boots(cluster, "n3")?;
    cluster.hearth(&["node", "off", "n3"])?.expect_code(0)?;
    cluster
        .hearth(&["node", "status", "n[2-3]"])?
        .expect_code(0)?
        .expect_out("n2    on")?
        .expect_out("n3    off")?;
    cluster.hearth(&["node", "on", "n3"])?.expect_code(0)?;
    cluster.wait_for_nodes("n3 to boot again", Duration::from_secs(200), |nodes| {
        nodes.iter().any(|n| {
            n["name"] == "n3" && n["state"] == "idle" && n["boots"].as_u64() > Some(before)
        })
    })?;
    let hello = cluster.program("hello-c");
    cluster
        .hearth(&["run", "--nodes", "n3", "-n", "1", &hello])?
        .expect_code(0)?
        .expect_out("rank 0 of 1")?;
    Ok(())
}

/// A node that leaves gets no jobs until it has booted again; a job that wants it waits and says
/// so.
fn leave(cluster: &Cluster) -> Result<()> {
    let before = boots(cluster, "n1")?;
    cluster.hearth(&["node", "leave", "n1"])?.expect_code(0)?;
    cluster.wait_for_nodes("n1 to leave", Duration::from_secs(30), |nodes| {
        nodes
            .iter()
            .any(|n| n["name"] == "n1" && n["state"] == "left")
    })?;
    let hello = cluster.program("hello-c");
    let mut job = cluster
        .command(&["run", "--nodes", "n1", "-n", "1", &hello])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(3));
    if let Some(status) = job.try_wait()? {
        bail!("a job for a node that had left ended with {status} instead of waiting");
    }
    cluster.hearth(&["node", "reset", "n1"])?.expect_code(0)?;
    cluster.wait_for_nodes("n1 to boot again", Duration::from_secs(200), |nodes| {
        nodes
            .iter()
            .any(|n| n["name"] == "n1" && n["boots"].as_u64() > Some(before))
    })?;
    let output = job.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() || !text.contains("rank 0 of 1") || !said.contains("n1") {
        bail!(
            "the job that waited ended with {}: {text}{said}",
            output.status
        );
    }
    Ok(())
}

fn lost_under_job(cluster: &Cluster) -> Result<()> {
    let before = boots(cluster, "n2")?;
    let job = cluster
        .command(&[
            "run",
            "--nodes",
            "n[1-2]",
            "-n",
            "2",
            &cluster.program("spin"),
            "--",
            "100",
        ])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(3));
    cluster.hearth(&["node", "reset", "n2"])?.expect_code(0)?;
    let output = job.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() || !text.contains("n2") {
        bail!(
            "a job whose node was reset ended with {} and says: {text}",
            output.status
        );
    }
    cluster.wait_for_nodes("n2 to boot again", Duration::from_secs(200), |nodes| {
        nodes.iter().any(|n| {
            n["name"] == "n2" && n["state"] == "idle" && n["boots"].as_u64() > Some(before)
        })
    })
}

fn tables(cluster: &Cluster) -> Result<()> {
    if cluster.nodes()?.len() != 4 {
        bail!("hearth nodes --json lists {} nodes", cluster.nodes()?.len());
    }
    for command in ["nodes", "jobs", "events", "timeline"] {
        cluster.json(&[command])?;
        let text = cluster.hearth(&[command])?.expect_code(0)?.out();
        if text.lines().count() < 2 {
            bail!("hearth {command} prints no table: {text:?}");
        }
    }
    // The boot of each node left its stages with times.
    let timeline = cluster.json(&["timeline"])?.to_string();
    for stage in ["dhcp", "script", "kernel", "joined"] {
        if !timeline.to_lowercase().contains(stage) {
            bail!("the boot timeline lacks {stage}: {timeline}");
        }
    }
    Ok(())
}
