//! The monitoring overlay between real kernels: it comes up, what it counts is what happened, it
//! survives lost nodes, and nothing of it stays when it is taken down.
//!
//! Invariant: what the overlay says is compared with what came another way: reports of jobs,
//! processes of this machine.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::command;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "overlay-sixteen",
        boot: Boot::Overlay,
        run: sixteen,
    },
    Scenario {
        name: "overlay-jobs",
        boot: Boot::Overlay,
        run: jobs,
    },
    Scenario {
        name: "overlay-interrupts",
        boot: Boot::Overlay,
        run: interrupts,
    },
    Scenario {
        name: "overlay-moves",
        boot: Boot::Overlay,
        run: moves,
    },
    Scenario {
        name: "overlay-teardown",
        boot: Boot::Overlay,
        run: teardown,
    },
    Scenario {
        name: "overlay-stopped-node",
        boot: Boot::Overlay,
        run: stopped,
    },
    Scenario {
        name: "overlay-cp-loss",
        boot: Boot::Overlay,
        run: cp_loss,
    },
];

/// Nodes of the cluster.
pub const NODES: u64 = 16;
/// How often the overlay is looked at.
const POLL: Duration = Duration::from_millis(50);

/// How the overlay stands.
pub fn view(cluster: &Cluster) -> Result<Value> {
    cluster.json(&["overlay"])
}

/// Looks at the overlay until `wanted` gives something.
pub fn until<T>(
    cluster: &Cluster,
    what: &str,
    limit: Duration,
    mut wanted: impl FnMut(&Value) -> Option<T>,
) -> Result<T> {
    let end = Instant::now() + limit;
    loop {
        let view = view(cluster)?;
        if let Some(found) = wanted(&view) {
            return Ok(found);
        }
        if Instant::now() > end {
            bail!("waited {} s for {what}: {view}", limit.as_secs());
        }
        std::thread::sleep(POLL);
    }
}

/// Waits until the tree stands with every node attached, and for a tick that has all of them.
pub fn whole(cluster: &Cluster) -> Result<Value> {
    until(
        cluster,
        "a tree of all nodes",
        Duration::from_secs(60),
        |view| {
            let all = view["state"] == "standing"
                && view["attached"] == NODES
                && view["totals"]["covers"] == NODES
                && view["totals"]["attached"] == NODES;
            all.then(|| view.clone())
        },
    )
}

/// The sum of a metric over all nodes, of a tick that is later than `after` and has all of them.
fn totals_after(cluster: &Cluster, after: u64) -> Result<(u64, BTreeMap<String, f64>)> {
    until(
        cluster,
        "a later tick of all nodes",
        Duration::from_secs(30),
        |view| {
            let totals = &view["totals"];
            let tick = totals["tick"].as_u64()?;
            if tick <= after || totals["covers"] != NODES {
                return None;
            }
            let sums = totals["sums"].as_array()?.iter();
            let sums =
                sums.filter_map(|pair| Some((pair[0].as_str()?.to_string(), pair[1].as_f64()?)));
            Some((tick, sums.collect()))
        },
    )
}

/// Four processes between sixteen nodes and control, each on a node of its own with its own back
/// end below it; sums that grow by exactly what the reports of a job say.
fn sixteen(cluster: &Cluster) -> Result<()> {
    let view = whole(cluster)?;
    ensure!(
        view["cps"] == 4 && view["height"] == 2 && view["local"] == 4,
        "not four processes with their own nodes below: {view}"
    );
    let processes = view["processes"].as_array().context("no processes")?;
    ensure!(
        processes.len() == 20,
        "{} processes instead of 16 and 4",
        processes.len()
    );
    let (tick, before) = totals_after(cluster, view["totals"]["tick"].as_u64().unwrap_or(0))?;
    let report = cluster.scratch("overlay-report.json");
    let flag = format!("--report={report}");
    let program = cluster.program("hello-c");
    cluster
        .hearth(&["run", "-n", "16", &flag, &program])?
        .expect_code(0)?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&report)?)?;
    let ranks = report["ranks"].as_array().context("no ranks")?;
    // A tick that began while the job still ran does not have all of it, however long that took:
    // some later than the last that is there now.
    let (tick, _) = totals_after(cluster, tick)?;
    let (_, after) = totals_after(cluster, tick + 3)?;
    let grown = |name: &str| {
        let value = |sums: &BTreeMap<String, f64>| sums.get(name).copied();
        let grown = value(&after).zip(value(&before));
        grown
            .map(|(after, before)| (after - before) as u64)
            .with_context(|| format!("no sum of {name}"))
    };
    let said: u64 = ranks.iter().filter_map(|rank| rank["calls"].as_u64()).sum();
    let counted = grown("hearth_node_system_calls_total")?;
    ensure!(
        said > 0 && counted == said,
        "{counted} system calls by the overlay, {said} by the reports of the ranks"
    );
    for class in ["code", "readonly", "data", "zero", "stack"] {
        let said: u64 = ranks
            .iter()
            .filter_map(|rank| rank["faults"][class].as_u64())
            .sum();
        let counted = grown(&format!("hearth_node_faults_{class}_total"))?;
        ensure!(
            counted == said,
            "{counted} faults ({class}) by the overlay, {said} by the reports of the ranks"
        );
    }
    // One call each that ends the program.
    let ends = grown("hearth_call_exit_group_total")? + grown("hearth_call_exit_total")?;
    ensure!(ends == NODES, "{ends} calls of exit from {NODES} ranks");
    Ok(())
}

/// A stream of a job ends with the job, has its counters and its profile, and a job that wants
/// silence is silent.
fn jobs(cluster: &Cluster) -> Result<()> {
    whole(cluster)?;
    let count = cluster.program("count-c");
    let run = |arguments: &[&str]| -> Result<std::process::Child> {
        Ok(cluster
            .command(arguments)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()?)
    };
    let job = run(&["run", "--nodes", "n[4-6]", &count, "12"])?;
    let number = until_running(cluster)?;
    let open = |metrics: &str, filter: &str, period: &str| -> Result<u64> {
        let (job, metrics) = (number.to_string(), format!("--metrics={metrics}"));
        let arguments = [
            "overlay", "open", &metrics, "--filter", filter, "--period", period, "--job", &job,
        ];
        let opened = cluster.json(&arguments)?;
        opened["stream"].as_u64().context("no stream was opened")
    };
    let counters = "hearth_program_counter_0,hearth_program_counter_1";
    let own = open(counters, "sum", "500")?;
    let profile = open("hearth_profile_samples_total", "sum", "100")?;
    let stream = |view: &Value, stream: u64| {
        let all = view["streams"].as_array().into_iter().flatten();
        all.into_iter()
            .find(|known| known["stream"] == stream)
            .cloned()
    };
    // Each rank sets counter 1 to its rank plus 100: three ranks make 303.
    until(cluster, "the program's counters", LIMIT, |view| {
        let own = stream(view, own)?;
        let values = &own["values"];
        let all = own["covers"] == 3 && values[1]["count"] == 3 && values[1]["value"] == 303.0;
        (all && values[0]["value"].as_f64() > Some(0.0)).then_some(())
    })?;
    // By name and for each node, as page and /metrics have them.
    let end = Instant::now() + LIMIT;
    loop {
        let now = cluster.json(&["top"])?;
        let jobs = now["jobs"].as_array().into_iter().flatten();
        let mut own = jobs.filter(|job| job["id"] == number);
        let mut nodes = now["nodes"].as_array().into_iter().flatten();
        let of_n5 = nodes.any(|node| node["name"] == "n5" && node["counters"][1] == 101);
        let named = own
            .next()
            .is_some_and(|job| job["counters"] == serde_json::json!(["steps", "rank plus 100"]));
        if named && of_n5 {
            break;
        }
        ensure!(
            Instant::now() < end,
            "no counters by their names: {}",
            now["jobs"]
        );
        std::thread::sleep(POLL);
    }
    until(cluster, "samples of the program", LIMIT, |view| {
        let samples = stream(view, profile)?["values"][0]["value"].as_f64()?;
        (samples > 10.0).then_some(())
    })?;
    let output = job.wait_with_output()?;
    ensure!(output.status.success(), "{output:?}");
    until(
        cluster,
        "the streams to end with their job",
        Duration::from_secs(10),
        |view| (stream(view, own).is_none() && stream(view, profile).is_none()).then_some(()),
    )?;
    // What the program has set is there after it.
    let path = "/v1/monitor/csv?metrics=hearth_program_counter_1&level=tick&nodes=n5";
    let kept = crate::page::fetch(cluster, path)?;
    ensure!(kept.contains(",n5,101\r\n"), "{kept}");
    // So is what its stream was reduced to: of three ranks, the second counter summed.
    let ended = view(cluster)?["ended"].clone();
    let mut ended = ended.as_array().into_iter().flatten();
    let ended = ended.find(|stream| stream["stream"] == own);
    let name = ended.and_then(|stream| stream["name"].as_str());
    let name = name.context("the stream has no name in the files")?;
    for (name, row) in [(name, ",303"), ("sums", "")] {
        let path = format!("/v1/monitor/reduced?stream={name}&format=csv");
        let kept = crate::page::fetch(cluster, &path)?;
        let mut rows = kept.lines().skip(1);
        ensure!(rows.any(|kept| kept.ends_with(row)), "{name}: {kept}");
    }
    counters_of_a_quiet_job(cluster)?;
    some_nodes(cluster)?;
    quiet(cluster)
}

/// A stream of some nodes, which waits for all of them.
fn some_nodes(cluster: &Cluster) -> Result<()> {
    let opened = cluster.json(&[
        "overlay",
        "open",
        "--metrics=hearth_node_uptime_seconds",
        "--filter=min",
        "--nodes=n[1-2,9]",
        "--sync=all",
        "--hold=20",
    ])?;
    until(cluster, "three nodes", LIMIT, |view| {
        let mut streams = view["streams"].as_array().into_iter().flatten();
        let stream = streams.find(|known| known["stream"] == opened["stream"])?;
        let as_asked = stream["nodes"] == "n[1-2,9]"
            && stream["sync"] == "all"
            && stream["hold_ms"] == 20.0
            && stream["covers"] == 3;
        as_asked.then_some(())
    })?;
    let number = opened["stream"].to_string();
    cluster
        .hearth(&["overlay", "close", &number])?
        .expect_code(0)?;
    let refused = cluster.hearth(&["overlay", "open", "--metrics=1", "--sync=some"])?;
    refused.expect_err("timeout, all, none")?;
    Ok(())
}

/// The number of the job that runs.
fn until_running(cluster: &Cluster) -> Result<u64> {
    let end = Instant::now() + LIMIT;
    loop {
        let jobs = cluster.json(&["jobs", "--active"])?;
        let all = jobs.as_array().or_else(|| jobs["jobs"].as_array());
        let running = all
            .into_iter()
            .flatten()
            .find(|job| job["state"] == "running");
        if let Some(id) = running.and_then(|job| job["id"].as_u64()) {
            return Ok(id);
        }
        ensure!(Instant::now() < end, "no job runs: {jobs}");
        std::thread::sleep(POLL);
    }
}

/// What the program of a quiet job has counted is in the files once: as it was at the job's end.
fn counters_of_a_quiet_job(cluster: &Cluster) -> Result<()> {
    let count = cluster.program("count-c");
    let path = "/v1/monitor/csv?metrics=hearth_program_counter_0&level=tick&nodes=n6";
    let values = || -> Result<Vec<f64>> {
        let kept = crate::page::fetch(cluster, path)?;
        let values = kept
            .lines()
            .filter_map(|row| row.rsplit(',').next()?.parse().ok());
        Ok(values.collect())
    };
    let before = values()?;
    let done = cluster.hearth(&["run", "--quiet", "--nodes", "n6", &count, "5"])?;
    let said = String::from_utf8_lossy(&done.stdout);
    let mut words = said.split_whitespace();
    let steps: f64 = (words.by_ref().find(|word| *word == "did"))
        .and_then(|_| words.next()?.parse().ok())
        .with_context(|| format!("count-c says no number of steps: {said}"))?;
    let end = Instant::now() + LIMIT;
    loop {
        let kept = values()?;
        if kept.last() == Some(&steps) {
            ensure!(
                kept.len() == before.len() + 1,
                "a quiet job was measured before its end: {kept:?} after {before:?}"
            );
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "{steps} steps are not in the files: {kept:?}"
        );
        std::thread::sleep(POLL);
    }
}

/// Values of a node whose job wants silence do not come until its end; all others do. A process
/// between nodes and control that it hosted moves at once.
fn quiet(cluster: &Cluster) -> Result<()> {
    let spin = cluster.program("spin");
    let host = *hosts(&whole(cluster)?).first().context("no processes")?;
    let (node, neighbour) = (format!("n{host}"), format!("n{}", (host + 1) % NODES));
    let mut job = cluster
        .command(&["run", "--quiet", "--nodes", &node, &spin, "--", "15"])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let number = until_running(cluster)?.to_string();
    let metrics = "--metrics=hearth_node_system_calls_total";
    let opened = cluster.json(&["overlay", "open", metrics, "--job", &number])?;
    let began = Instant::now();
    until(cluster, "no process beside the job", LIMIT, |view| {
        let hosts = hosts(view);
        let moved = view["state"] == "standing" && !hosts.is_empty();
        (moved && !hosts.contains(&host)).then_some(())
    })?;
    let took = began.elapsed();
    ensure!(
        took < Duration::from_secs(8),
        "{node}: its process moved after {took:?}"
    );
    let age = |view: &Value, name: &str| {
        let all = view["processes"].as_array().into_iter().flatten();
        let mut found = all.into_iter().filter(|process| process["name"] == name);
        found.next().and_then(|process| process["age_ms"].as_f64())
    };
    until(
        cluster,
        "silence of one node, and of no other",
        LIMIT,
        |view| {
            let (silent, other) = (age(view, &node)?, age(view, &neighbour)?);
            (silent > 2_900.0 && other < 1_900.0).then_some(())
        },
    )?;
    ensure!(job.wait()?.success(), "the job did not end well");
    until(cluster, "the silent node to speak", LIMIT, |view| {
        (age(view, &node)? < 1_500.0).then_some(())
    })?;
    // Its own stream has the one word that it said at its end.
    until(cluster, "the job's last values", LIMIT, |view| {
        let ended = view["ended"].as_array()?.iter();
        let mut own = ended.filter(|stream| stream["stream"] == opened["stream"]);
        let value = &own.next()?["values"][0];
        (value["count"] == 1 && value["value"].as_f64() > Some(0.0)).then_some(())
    })?;
    whole(cluster).map(drop)
}

/// When nothing may be left any more.
const DOWN_WITHIN: Duration = Duration::from_secs(2);

/// The nodes that host processes between nodes and control.
fn hosts(view: &Value) -> Vec<u64> {
    let all = view["processes"].as_array().into_iter().flatten();
    let between = all.filter(|process| process["slot"].as_u64() > Some(0));
    let here = between.filter(|process| process["gone"] == false);
    here.filter_map(|process| process["node"].as_u64())
        .collect()
}

/// Interrupts of the one rank of a job by class, and its seconds, from its report.
fn interrupts_of(report: &str) -> Result<(BTreeMap<String, u64>, f64)> {
    let report: Value = serde_json::from_str(&std::fs::read_to_string(report)?)?;
    let rank = &report["ranks"][0];
    let classes = rank["interrupts"].as_object().context("no interrupts")?;
    let count = |(class, count): (&String, &Value)| Some((class.clone(), count.as_u64()?));
    let seconds = rank["wall_ms"].as_f64().context("no wall_ms")? / 1e3;
    Ok((classes.iter().filter_map(count).collect(), seconds))
}

/// A computing program is interrupted for the ticks of the period that was asked for, and for
/// nothing else: with the two streams that are always open once a second, together with the
/// heartbeat; with one of 100 ms ten times a second more.
fn interrupts(cluster: &Cluster) -> Result<()> {
    let view = whole(cluster)?;
    let hosts = hosts(&view);
    let node = (0..NODES).find(|node| !hosts.contains(node));
    let node = format!("n{}", node.context("every node hosts a process")?);
    let report = cluster.scratch("overlay-interrupts.json");
    let flag = format!("--report={report}");
    let spin = cluster.program("spin");
    let arguments = ["run", "--nodes", &node, &flag, &spin, "--", "8"];
    cluster.hearth(&arguments)?.expect_code(0)?;
    // The program measures the clock's rate for a tenth of a second, and the clock is kept in step.
    const SPUN: f64 = 7.9;
    let judge = |least: f64, most: f64| -> Result<()> {
        let (mut classes, seconds) = interrupts_of(&report)?;
        let heartbeat = classes.remove("heartbeat").unwrap_or(0) as f64;
        let monitor = classes.remove("monitor").unwrap_or(0) as f64;
        let others: u64 = classes.values().sum();
        ensure!(
            seconds >= SPUN && (heartbeat - seconds).abs() <= 2.0 && others == 0,
            "{heartbeat} heartbeat interrupts in {seconds:.1} s, others {classes:?}"
        );
        ensure!(
            (least * seconds..=most * seconds).contains(&monitor),
            "{monitor} monitor interrupts in {seconds:.1} s, not {least} to {most} a second"
        );
        println!(
            "          {node}: {heartbeat} heartbeat, {monitor} monitor interrupts in {seconds:.1} s, no others"
        );
        Ok(())
    };
    judge(0.0, 0.0)?;
    let mut job = cluster
        .command(&arguments)
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let number = until_running(cluster)?.to_string();
    let metrics = "--metrics=hearth_node_memory_used_bytes";
    let open = [
        "overlay", "open", metrics, "--period", "100", "--job", &number,
    ];
    cluster.hearth(&open)?.expect_code(0)?;
    ensure!(job.wait()?.success(), "the job failed");
    // The stream is there some seconds later than the job.
    judge(3.0, 11.0)
}

/// Processes move away from nodes that got a job, once they have had it for a while and others are
/// idle.
fn moves(cluster: &Cluster) -> Result<()> {
    let before = hosts(&whole(cluster)?);
    let nodes = format!("n{},n{}", before[0], before[1]);
    let mut job = cluster
        .command(&[
            "run",
            "--nodes",
            &nodes,
            &cluster.program("spin"),
            "--",
            "90",
        ])
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()?;
    let number = until_running(cluster)?.to_string();
    let began = Instant::now();
    let outcome = until(
        cluster,
        "processes on idle nodes only",
        Duration::from_secs(60),
        |view| {
            let now = hosts(view);
            let moved =
                now.len() == before.len() && before[..2].iter().all(|node| !now.contains(node));
            (moved && view["totals"]["covers"] == NODES).then(|| began.elapsed())
        },
    );
    cluster.hearth(&["cancel", &number])?.expect_code(0)?;
    job.wait()?;
    println!(
        "          {nodes}: without processes after {:.1} s",
        outcome?.as_secs_f64()
    );
    whole(cluster).map(drop)
}

/// Two seconds after the word nothing of the overlay is left on any node, by what each says itself
/// in its heartbeat.
fn teardown(cluster: &Cluster) -> Result<()> {
    whole(cluster)?;
    let kept = |view: &Value| -> Option<Vec<u64>> {
        let all = view["kept"].as_array()?.iter();
        all.map(|node| node["kept"].as_u64()).collect()
    };
    // Nodes say so with their heartbeats, which may be older than the tree.
    until(
        cluster,
        "a standing tree to keep something on each node",
        Duration::from_secs(10),
        |view| {
            let most = kept(view)?;
            (most.len() == NODES as usize && most.iter().all(|kept| *kept > 0)).then_some(())
        },
    )?;
    let began = Instant::now();
    cluster.hearth(&["overlay", "down"])?.expect_code(0)?;
    let mut left_over = NODES;
    until(
        cluster,
        "nothing to be left on any node",
        Duration::from_secs(20),
        |view| {
            let kept = kept(view)?;
            let left = kept.iter().filter(|kept| **kept > 0).count() as u64;
            if began.elapsed() <= DOWN_WITHIN {
                left_over = left;
            }
            (view["state"] == "down" && left == 0).then_some(())
        },
    )?;
    let took = began.elapsed();
    let ms = took.as_secs_f64() * 1e3;
    crate::figure("qemu-16/teardown", "left_over", left_over as f64, "nodes");
    crate::figure("qemu-16/teardown", "nothing_left_ms", ms, "ms");
    // Each says so at once; the machine is shared.
    ensure!(
        took < Duration::from_millis(3_500),
        "it took {took:?} until every node said that nothing is left"
    );
    let after = view(cluster)?;
    ensure!(
        after["kept_here"] == 0 && after["taken_down_ms"].as_f64() < Some(2_000.0),
        "something is left at the front end: {after}"
    );
    let books = &after["books"];
    ensure!(
        books["settled"] == true,
        "samples are missing though no process died: {books}"
    );
    println!(
        "          left after {:.2} s: nothing; books {books}",
        took.as_secs_f64()
    );
    cluster.hearth(&["overlay", "up"])?.expect_code(0)?;
    whole(cluster).map(drop)
}

/// The node of a process that has others below it, from the end: the first ones host what is needed
/// elsewhere.
pub fn a_cp(view: &Value) -> Result<(String, String)> {
    let all = view["processes"].as_array().context("no processes")?;
    let mut with_children = all.iter().rev().filter(|process| {
        process["slot"].as_u64() > Some(0)
            && process["gone"] == false
            && process["children"].as_u64() > Some(2)
    });
    let last = with_children.next().context("no process has children")?;
    let name = last["name"].as_str().context("a process without a name")?;
    let node = name.split(':').next().context("a name without a node")?;
    Ok((name.to_string(), node.to_string()))
}

/// Sends a signal to a process.
pub fn signal(pid: &str, name: &str) -> Result<()> {
    command::run("kill".as_ref(), &[name, pid], b"", LIMIT)?
        .expect_code(0)
        .map(drop)
}

/// The names of processes that are lost, and how many nodes are attached.
pub fn losses(view: &Value) -> Vec<String> {
    let all = view["losses"].as_array().into_iter().flatten();
    all.filter_map(|loss| loss["process"].as_str().map(str::to_string))
        .collect()
}

/// The last loss of a process.
fn loss_of<'a>(view: &'a Value, name: &str) -> Option<&'a Value> {
    let losses = view["losses"].as_array()?;
    losses.iter().rev().find(|loss| loss["process"] == name)
}

/// A machine that stands still for some seconds: its children move, nobody else is lost, and it
/// comes back by itself.
fn stopped(cluster: &Cluster) -> Result<()> {
    let before = whole(cluster)?;
    let (name, node) = a_cp(&before)?;
    let machine = cluster.machine_pid(&node)?;
    signal(&machine, "-STOP")?;
    std::thread::sleep(Duration::from_secs(5));
    signal(&machine, "-CONT")?;
    let after = whole(cluster)?;
    let known = losses(&before);
    let others: Vec<String> = losses(&after)
        .into_iter()
        .filter(|lost| !known.contains(lost) && !lost.starts_with(&node))
        .collect();
    ensure!(
        others.is_empty(),
        "{name} stood still, and {others:?} were lost with it"
    );
    Ok(())
}

/// A machine is killed that hosts a process with others below it: noticed in 3 s, their values come
/// again 1 s later.
fn cp_loss(cluster: &Cluster) -> Result<()> {
    let before = whole(cluster)?;
    let (name, node) = a_cp(&before)?;
    let machine = cluster.machine_pid(&node)?;
    let killed = Instant::now();
    signal(&machine, "-KILL")?;
    let detected = until(
        cluster,
        "the loss to be noticed",
        Duration::from_secs(15),
        |view| {
            let ago_ms = loss_of(view, &name)?["ago_ms"].as_f64()?;
            // A process of this name may have been lost before.
            killed
                .elapsed()
                .checked_sub(Duration::from_secs_f64(ago_ms / 1e3))
        },
    )?;
    // All others, and nobody twice.
    let rejoined = until(
        cluster,
        "the others to be attached",
        Duration::from_secs(15),
        |view| {
            let whole = view["attached"] == NODES - 1;
            (whole && view["totals"]["covers"] == NODES - 1).then(|| killed.elapsed())
        },
    )?;
    let (children, reattached_ms) = until(cluster, "its children's parents", LIMIT, |view| {
        let loss = loss_of(view, &name)?;
        Some((loss["children"].as_u64()?, loss["mended_ms"].as_f64()?))
    })?;
    let ms = |span: Duration| span.as_secs_f64() * 1e3;
    let case = "qemu-16/cp-loss";
    crate::figure(case, "detect_ms", ms(detected), "ms");
    crate::figure(case, "reattach_ms", reattached_ms, "ms");
    crate::figure(case, "whole_tick_ms", ms(rejoined - detected), "ms");
    // Its own back end went with it; the others below it are named, also those that had moved
    // already.
    let below = before["processes"].as_array().into_iter().flatten();
    let below = below.filter(|child| child["parent"] == name[..]);
    let below = below.filter(|child| child["name"] != node[..]).count() as u64;
    ensure!(
        children == below,
        "{name} had {below} children on other nodes, {children} are named"
    );
    // Five questions in three seconds; a tick lasts one more until it shows, and this machine is
    // shared.
    ensure!(
        detected < Duration::from_secs(5) && rejoined < detected + Duration::from_secs(3),
        "noticed after {detected:?}, whole again after {rejoined:?}"
    );
    cluster.hearth(&["node", "reset", &node])?.expect_code(0)?;
    whole(cluster)?;
    cluster.all_nodes_idle()
}
