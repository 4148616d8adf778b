//! Casts under which something goes wrong: a node is reset, control is killed, the user cancels,
//! somebody lies.
//!
//! Neighbours: [`crate::casts`] has the casts that go well, [`crate::forge`] the liar.
//!
//! Invariant: each scenario makes sure that the cast was under way when it struck.

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::casts::{CastFile, control_bytes};
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::nodes::boots;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "node-reset-during-cast",
        boot: Boot::Limited,
        run: node_reset,
    },
    Scenario {
        name: "control-killed-during-cast",
        boot: Boot::Limited,
        run: control_killed,
    },
    Scenario {
        name: "cancelled-cast",
        boot: Boot::Limited,
        run: cancelled,
    },
    Scenario {
        name: "forged-data",
        boot: Boot::Limited,
        run: forged,
    },
];

/// More than four seconds on these links.
const BYTES: u64 = 10_000_000;
/// A node boots and joins within this time also on a busy machine.
const REJOIN_LIMIT: Duration = Duration::from_secs(200);
/// What control sends for a cast that has nothing left to send, and for its heartbeats meanwhile.
const SILENCE_BYTES: u64 = 200_000;

/// A cast that runs while the scenario does something.
struct Running(Option<Child>);

impl Running {
    fn start(cluster: &Cluster, file: &CastFile) -> Result<Self> {
        let child = cluster
            .command(&["cast", &file.path, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Self(Some(child)))
    }

    /// Waits for the end of the command: its exit code, and what it said.
    fn end(mut self) -> Result<(Option<i32>, Value, String)> {
        let child = self.0.take().context("it ended already")?;
        let output = child.wait_with_output()?;
        let said = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.code(), said, error))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// The cast of a file that is under way, as control lists it.
fn under_way(cluster: &Cluster, file: &CastFile) -> Result<Option<Value>> {
    let listed = cluster.json(&["casts"])?;
    let casts = listed["casts"]
        .as_array()
        .with_context(|| format!("no casts in {listed}"))?;
    let is_it = |cast: &&Value| cast["name"] == file.name.as_str() && cast["done"] != 4;
    Ok(casts.iter().find(is_it).cloned())
}

/// Waits until control has sent about a quarter of the file, and makes sure that no node has all of
/// it.
fn await_middle(cluster: &Cluster, file: &CastFile) -> Result<Value> {
    let (before, began) = (control_bytes(cluster)?, Instant::now());
    while control_bytes(cluster)? - before < BYTES / 4 {
        ensure!(
            began.elapsed() < Duration::from_secs(60),
            "the cast does not begin"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let middle = under_way(cluster, file)?.context("the cast was over before its middle")?;
    ensure!(middle["done"] == 0, "some node has it already: {middle}");
    Ok(middle)
}

/// Waits until control knows these nodes to hold a file.
fn await_holders(cluster: &Cluster, file: &CastFile, wanted: &str, limit: Duration) -> Result<()> {
    let end = Instant::now() + limit;
    loop {
        let holders = file.holders(cluster)?;
        if holders == wanted {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{} is held by {holders:?} instead of {wanted:?}; casts are {}",
            file.name,
            cluster.json(&["casts"])?
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Events that name a node and contain a word.
fn has_event(cluster: &Cluster, word: &str, node: &str) -> Result<bool> {
    let events = cluster.json(&["events"])?;
    let list = events
        .as_array()
        .with_context(|| format!("no list of events: {events}"))?;
    Ok(list
        .iter()
        .map(Value::to_string)
        .any(|event| event.contains(word) && event.contains(node)))
}

/// The plug of a node is pulled in the middle: the others have the file soon, it is reported, and
/// the node gets it after it has booted again.
fn node_reset(cluster: &Cluster) -> Result<()> {
    let file = CastFile::write(cluster, "node-reset", BYTES, 30)?;
    let before = boots(cluster, "n2")?;
    let running = Running::start(cluster, &file)?;
    await_middle(cluster, &file)?;
    cluster.hearth(&["node", "reset", "n2"])?.expect_code(0)?;
    let began = Instant::now();
    let mut others = None;
    let deadline = began + REJOIN_LIMIT;
    loop {
        let holders = file.holders(cluster)?;
        if others.is_none() && (holders == "n[0-1,3]" || holders == "n[0-3]") {
            others = Some(began.elapsed());
        }
        if holders == "n[0-3]" {
            break;
        }
        ensure!(
            Instant::now() < deadline,
            "{} is held by {holders:?}: {}",
            file.name,
            cluster.json(&["casts"])?
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let others = others.context("no moment at which the others had it")?;
    println!(
        "          the others had it {:.1} s after the reset, the node itself after {:.1} s",
        others.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );
    ensure!(
        others < Duration::from_secs(30),
        "the others waited {others:?} for a dead node"
    );
    ensure!(
        boots(cluster, "n2")? > before,
        "n2 has the file and has not booted again"
    );
    ensure!(
        has_event(cluster, "cast", "n2")? || has_event(cluster, "lost", "n2")?,
        "no event says that n2 was lost"
    );
    let (_, said, error) = running.end()?;
    ensure!(
        said != Value::Null || error.contains("n2"),
        "the command said neither result nor n2: {error}"
    );
    file.drop_everywhere(cluster)
}

/// Control is killed in the middle and comes back: it goes on with the cast, and what nodes hold
/// does not move again.
fn control_killed(cluster: &Cluster) -> Result<()> {
    let file = CastFile::write(cluster, "control-killed", BYTES, 31)?;
    let running = Running::start(cluster, &file)?;
    await_middle(cluster, &file)?;
    let pid = cluster.control_pid()?;
    let before = control_bytes(cluster)?;
    crate::command::run("kill".as_ref(), &["-KILL", &pid], b"", LIMIT)?.expect_code(0)?;
    cluster.wait_for_nodes("all nodes after the kill", REJOIN_LIMIT, |nodes| {
        nodes.len() == 4 && nodes.iter().all(|node| node["state"] == "idle")
    })?;
    ensure!(cluster.control_pid()? != pid, "control was not killed");
    await_holders(cluster, &file, "n[0-3]", REJOIN_LIMIT)?;
    let sent = (control_bytes(cluster)? - before) as f64 / BYTES as f64;
    println!("          after the kill control sent {sent:.2} copies");
    ensure!(
        sent < 0.95,
        "{sent:.2} copies: what the nodes had before was sent again"
    );
    let (code, said, error) = running.end()?;
    ensure!(
        code == Some(0) || error.contains("control"),
        "the command said neither result nor why: {code:?} {said} {error}"
    );
    file.drop_everywhere(cluster)
}

/// Interrupted in the middle: nothing is held, no memory is lost, the link falls silent.
fn cancelled(cluster: &Cluster) -> Result<()> {
    let used = |nodes: &[Value]| -> Option<Vec<u64>> {
        nodes
            .iter()
            .map(|node| node["memory_used_bytes"].as_u64())
            .collect()
    };
    let before = used(&cluster.nodes()?).context("nodes do not say what memory they use")?;
    let file = CastFile::write(cluster, "cancelled", BYTES, 32)?;
    let running = Running::start(cluster, &file)?;
    await_middle(cluster, &file)?;
    let pid = running.0.as_ref().context("no command")?.id().to_string();
    crate::command::run("kill".as_ref(), &["-INT", &pid], b"", LIMIT)?.expect_code(0)?;
    let (code, _, error) = running.end()?;
    ensure!(code == Some(130), "exit code {code:?}: {error}");
    await_holders(cluster, &file, "", Duration::from_secs(10))?;
    cluster.wait_for_nodes("the memory back", Duration::from_secs(30), |nodes| {
        used(nodes).is_some_and(|now| now.iter().zip(&before).all(|(now, before)| now <= before))
    })?;
    let silence = control_bytes(cluster)?;
    std::thread::sleep(Duration::from_secs(3));
    let sent = control_bytes(cluster)? - silence;
    ensure!(
        sent < SILENCE_BYTES,
        "control sent {sent} bytes after the end"
    );
    // And it can be cast again.
    file.cast(cluster, &[])?;
    file.drop_everywhere(cluster)
}

/// Somebody sends wrong data in the name of a member: it costs blocks once more, everybody has the
/// file, and nobody is blamed.
fn forged(cluster: &Cluster) -> Result<()> {
    let file = CastFile::write(cluster, "forged", BYTES, 33)?;
    let address = |node: usize| -> Result<std::net::Ipv4Addr> {
        let nodes = cluster.nodes()?;
        let text = nodes
            .get(node)
            .and_then(|node| node["address"].as_str())
            .with_context(|| format!("no address of node {node}"))?;
        // With or without the port.
        let host = text.split(':').next().unwrap_or_default();
        host.parse()
            .with_context(|| format!("{text} is no address"))
    };
    let (from, to) = (address(1)?, address(0)?);
    let corrupt = |nodes: &[Value]| nodes.first()?["casts"]["corrupt"].as_u64();
    let before = corrupt(&cluster.nodes()?).context("n0 does not say what it found wrong")?;
    let running = Running::start(cluster, &file)?;
    await_middle(cluster, &file)?;
    let lies = crate::forge::forge(cluster, from, to, 3)?;
    let (code, said, error) = running.end()?;
    if code != Some(0) {
        bail!("exit code {code:?}: {said} {error}");
    }
    println!(
        "          {lies} lies, {} corrupt blocks, {} ms",
        said["corrupt"], said["ms"]
    );
    ensure!(
        file.holders(cluster)? == "n[0-3]",
        "not every node has it: {said}"
    );
    cluster.wait_for_nodes(
        "a block that n0 found wrong",
        Duration::from_secs(10),
        |nodes| corrupt(nodes).is_some_and(|now| now > before),
    )?;
    ensure!(
        !has_event(cluster, "corrupt", "n1")?,
        "n1 is blamed for what another sent in its name"
    );
    file.drop_everywhere(cluster)
}
