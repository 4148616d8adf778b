//! I/O services of their own: processes that join the control node, each for its own nodes.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster};
use crate::command;
use crate::files;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "io-services-share-the-nodes",
        boot: Boot::Io,
        run: share_the_nodes,
    },
    Scenario {
        name: "io-services-share-files",
        boot: Boot::Io,
        run: share_files,
    },
    Scenario {
        name: "io-services-and-control-die-under-open-files",
        boot: Boot::Io,
        run: die_under_open_files,
    },
    Scenario {
        name: "io-service-joins-with-a-token",
        boot: Boot::Io,
        run: joins_with_a_token,
    },
];

/// How long services may take to join, and control to find that one is gone.
const LIMIT: Duration = Duration::from_secs(30);
/// Where the third one listens: the control node's address, and a port of its own.
const THIRD: &str = "10.117.0.1:7119";

/// The services, in the order of their addresses.
fn services(cluster: &Cluster) -> Result<Vec<Value>> {
    match cluster.json(&["nodes", "--io"])? {
        Value::Array(services) => Ok(services),
        other => bail!("hearth nodes --io --json is {other}"),
    }
}

/// Waits until each service is in one of these states, in their order.
fn wait_for(cluster: &Cluster, states: &[&str]) -> Result<Vec<Value>> {
    wait_until(cluster, &format!("{states:?}"), |has| has == states)
}

/// Waits until so many services work, whatever others there were.
pub fn wait_for_up(cluster: &Cluster, count: usize) -> Result<()> {
    let works = |has: &[&str]| has.iter().filter(|state| **state == "up").count() == count;
    wait_until(cluster, &format!("{count} up"), works)?;
    Ok(())
}

fn wait_until(
    cluster: &Cluster,
    wanted: &str,
    is_it: impl Fn(&[&str]) -> bool,
) -> Result<Vec<Value>> {
    let end = Instant::now() + LIMIT;
    loop {
        let services = services(cluster)?;
        let has: Vec<&str> = services
            .iter()
            .filter_map(|service| service["state"].as_str())
            .collect();
        if is_it(&has) {
            return Ok(services);
        }
        ensure!(Instant::now() < end, "{has:?} and not {wanted}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn share_the_nodes(cluster: &Cluster) -> Result<()> {
    let before = wait_for(cluster, &["up", "up"])?;
    let nodes = |of: &Value| of["nodes"].as_str().map(str::to_owned);
    let shared: Vec<_> = before.iter().filter_map(nodes).collect();
    ensure!(shared == ["n[0-1]", "n[2-3]"], "{shared:?}");
    // Four ranks lock and append to the same files by two services.
    files::of_several_ranks(cluster)?;
    let after = wait_for(cluster, &["up", "up"])?;
    for (before, after) in before.iter().zip(&after) {
        let calls = |of: &Value| of["calls"].as_u64().unwrap_or(0);
        ensure!(
            calls(after) >= calls(before) + 100,
            "{before} was hardly asked: {after}"
        );
    }
    let job = cluster.json(&["jobs"])?;
    let parts = job
        .as_array()
        .and_then(|jobs| jobs.last()?["io"].as_array());
    let parts = parts.with_context(|| format!("no services in {job}"))?;
    let of = |part: &Value| (part["service"].clone(), part["nodes"].as_u64());
    ensure!(
        parts.iter().map(of).collect::<Vec<_>>()
            == [
                ("10.117.0.2:7118".into(), Some(2)),
                ("10.117.0.3:7118".into(), Some(2))
            ],
        "{parts:?}"
    );
    let metrics = crate::page::fetch(cluster, "/metrics")?;
    for line in [
        "hearth_io_service_nodes{service=\"10.117.0.3:7118\"} 2",
        "hearth_io_service_up{service=\"10.117.0.2:7118\"} 1",
    ] {
        ensure!(metrics.contains(line), "{line} is not among the metrics");
    }
    Ok(())
}

/// Ranks on nodes of two services write the same file and make names in the same directory.
fn share_files(cluster: &Cluster) -> Result<()> {
    wait_for(cluster, &["up", "up"])?;
    files::shared_by_all_ranks(cluster)
}

/// The service with its worker and the control node are killed while files are open, then service
/// and worker once more while that stands still with a call. The job's node is n0, whose service is
/// the first.
fn die_under_open_files(cluster: &Cluster) -> Result<()> {
    wait_for(cluster, &["up", "up"])?;
    let kill = |pids: &[&str]| -> Result<()> {
        let command = [&["-KILL"], pids].concat();
        command::run("kill".as_ref(), &command, b"", LIMIT)?.expect_code(0)?;
        Ok(())
    };
    // At once, as with its machine: a service that lives would start another worker.
    let dies = || {
        let service = cluster.io_service_pid(0)?;
        let worker = files::worker_pid(&service)?;
        kill(&[&service, &worker])
    };
    let idle = || {
        dies()?;
        kill(&[&cluster.control_pid()?])
    };
    let stop = || files::signal_worker(&cluster.io_service_pid(0)?, "STOP");
    files::outlive(cluster, &idle, &stop, &dies)?;
    wait_for(cluster, &["up", "up"])?;
    Ok(())
}

/// A third service, as on another machine: over TLS, with a token.
fn joins_with_a_token(cluster: &Cluster) -> Result<()> {
    wait_for(cluster, &["up", "up"])?;
    let made = |role: &str| cluster.json(&["token", "create", "--role", role]);
    let user = third(cluster, &made("user")?)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&user.stderr).into_owned();
    ensure!(
        !user.status.success() && said.contains("operator"),
        "a user is an I/O service: {said}"
    );
    let mut third = third(cluster, &made("operator")?)?;
    let result = with_a_third(cluster);
    // `timeout` and `nsenter` pass it on, and what they started ends its workers.
    let pid = third.id().to_string();
    command::run("kill".as_ref(), &["-TERM", &pid], b"", LIMIT)?.expect_code(0)?;
    third.wait()?;
    result?;
    wait_for(cluster, &["lost", "up", "up"])?;
    // Its nodes are the others' again.
    files::of_several_ranks(cluster)
}

fn with_a_third(cluster: &Cluster) -> Result<()> {
    let services = wait_for(cluster, &["up", "up", "up"])?;
    ensure!(
        services[0]["address"] == THIRD && services[0]["node_count"] != 0,
        "{services:?}"
    );
    files::of_several_ranks(cluster)?;
    let asked = wait_for(cluster, &["up", "up", "up"])?;
    ensure!(asked[0]["calls"].as_u64() > Some(20), "{asked:?}");
    Ok(())
}

/// Starts a service inside the cluster's network that reaches the control node by its token.
fn third(cluster: &Cluster, token: &Value) -> Result<Child> {
    let text = |name: &str| {
        let text = token[name].as_str();
        text.with_context(|| format!("no {name} in {token}"))
    };
    let hearth: &Path = cluster.program_of_hearth();
    let mut command = Command::new("timeout");
    command.args(["--foreground", "120"]);
    command.args(cluster.namespace_command()?);
    let child = command
        .arg(hearth)
        .args(["io", "--control", "127.0.0.1:7182", "--listen", THIRD])
        .args(["--run-dir", &cluster.scratch("workers")])
        .env("HEARTH_TOKEN", text("token")?)
        .env("HEARTH_FINGERPRINT", text("fingerprint")?)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(child)
}
