//! Programs of several languages run, check themselves, and keep their processor state.

use anyhow::{Result, bail};

use crate::Scenario;
use crate::cluster::{Boot, Cluster};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "hello-in-five-languages",
        boot: Boot::Network,
        run: hello,
    },
    Scenario {
        name: "compute-checks-itself",
        boot: Boot::Network,
        run: compute,
    },
    Scenario {
        name: "calls-check-themselves",
        boot: Boot::Network,
        run: calls,
    },
    Scenario {
        name: "refused-calls-are-told",
        boot: Boot::Network,
        run: refused,
    },
    Scenario {
        name: "fpu-state",
        boot: Boot::Network,
        run: fpu,
    },
    Scenario {
        name: "frames-are-scrubbed",
        boot: Boot::Network,
        run: frames,
    },
    Scenario {
        name: "unscrubbed-frames-are-seen",
        boot: Boot::Unscrubbed,
        run: unscrubbed,
    },
    Scenario {
        name: "loading-is-counted",
        boot: Boot::Network,
        run: counts,
    },
    Scenario {
        name: "uefi-hello",
        boot: Boot::Uefi,
        run: hello_one,
    },
    Scenario {
        name: "sixteen-nodes-at-once",
        boot: Boot::Direct16,
        run: sixteen,
    },
];

pub fn hello(cluster: &Cluster) -> Result<()> {
    for name in [
        "hello-c",
        "musl-hello",
        "pie-hello",
        "hello-cpp",
        "hello-fortran",
        "hello-rust",
    ] {
        let done = cluster
            .hearth(&["run", "-n", "4", &cluster.program(name)])?
            .expect_code(0)?;
        let mut lines: Vec<String> = done.out().lines().map(str::to_owned).collect();
        lines.sort();
        if lines.len() != 4 {
            bail!(
                "{name}: four ranks printed {} lines: {lines:?}",
                lines.len()
            );
        }
        for (rank, line) in lines.iter().enumerate() {
            if !line.contains(&format!("hello from {name}, rank {rank} of 4")) {
                bail!("{name}: rank {rank} printed {line:?}");
            }
        }
    }
    Ok(())
}

fn hello_one(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("hello-c");
    cluster
        .hearth(&["run", "-n", "1", &program])?
        .expect_code(0)?
        .expect_out("hello from hello-c, rank 0 of 1")?;
    Ok(())
}

fn compute(cluster: &Cluster) -> Result<()> {
    let done = cluster
        .hearth(&["run", "-n", "4", &cluster.program("compute")])?
        .expect_code(0)?;
    let good = done.out().lines().filter(|l| l.ends_with(": ok")).count();
    if good != 4 {
        bail!("{good} of 4 ranks had the right result:\n{}", done.out());
    }
    Ok(())
}

/// What C libraries and language run-times ask of the kernel.
fn calls(cluster: &Cluster) -> Result<()> {
    for name in [
        "resources",
        "musl-resources",
        "cpu-time",
        "signals",
        "musl-signals",
        "threads",
        "musl-threads",
    ] {
        cluster
            .hearth(&["run", "-n", "1", &cluster.program(name)])?
            .expect_code(0)?
            .expect_out("ok\n")?;
    }
    Ok(())
}

/// A program that ignores that its files, processes and threads were refused exits with 0: the
/// command says so.
fn refused(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ignores-refusals");
    let done = cluster
        .hearth(&["run", "-n", "2", "--no-files", &program])?
        .expect_code(0)?
        .expect_err("refused")?
        .expect_err("no service for its files")?
        .expect_err("a node runs one process")?
        .expect_err("as many threads as it may")?;
    let lines = done.err().lines().filter(|l| l.contains("refused")).count();
    if lines != 1 {
        bail!("{lines} lines about refused calls:\n{}", done.err());
    }
    Ok(())
}

fn fpu(cluster: &Cluster) -> Result<()> {
    // Twice on one node: the second run must find the initial state, not the first run's.
    for _ in 0..2 {
        let program = cluster.program("fpu");
        cluster
            .hearth(&["run", "--nodes", "n1", "-n", "1", &program])?
            .expect_code(0)?
            .expect_out("fpu: ok")?;
    }
    Ok(())
}

fn frames(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("bare-frames");
    // More than half of the node's memory, so that the second program must get frames of the first.
    cluster
        .hearth(&[
            "run", "--nodes", "n2", "-n", "1", &program, "--", "fill", "24",
        ])?
        .expect_code(0)?;
    let done = cluster.hearth(&[
        "run", "--nodes", "n2", "-n", "1", &program, "--", "scan", "24",
    ])?;
    done.expect_code(0)?
        .expect_out("bare-frames: 0 words of 3145728 are not zero")?;
    Ok(())
}

/// The scan above must be able to fail: with scrubbing switched off it finds the first program's
/// bytes.
fn unscrubbed(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("bare-frames");
    cluster
        .hearth(&["run", "-n", "1", &program, "--", "fill", "24"])?
        .expect_code(0)?;
    let done = cluster
        .hearth(&["run", "-n", "1", &program, "--", "scan", "24"])?
        .expect_code(1)?;
    if done.out().contains("bare-frames: 0 words") {
        bail!("with scrubbing off every word was zero: {}", done.out());
    }
    Ok(())
}

fn counts(cluster: &Cluster) -> Result<()> {
    let report = std::env::temp_dir().join(format!("hearth-e2e-{}.json", std::process::id()));
    let flag = format!("--report={}", report.display());
    cluster
        .hearth(&[
            "run",
            "-n",
            "2",
            "--cold",
            "--load=demand",
            &flag,
            &cluster.program("hello-c"),
        ])?
        .expect_code(0)?;
    let text = std::fs::read_to_string(&report)?;
    std::fs::remove_file(&report)?;
    let value: serde_json::Value = serde_json::from_str(&text)?;
    let ranks = value["ranks"].as_array().map_or(0, Vec::len);
    if ranks != 2 {
        bail!("the report has {ranks} ranks instead of 2: {text}");
    }
    for rank in value["ranks"].as_array().into_iter().flatten() {
        let asked = rank["pages"]["asked"].as_u64().unwrap_or(0);
        let size = std::fs::metadata(cluster.program("hello-c"))?.len() / 4096 + 1;
        // Demand paging: some pages, and never more than the file has.
        if asked == 0 || asked > size {
            bail!("{asked} pages were asked for of a file of {size}: {text}");
        }
    }
    Ok(())
}

fn sixteen(cluster: &Cluster) -> Result<()> {
    let done = cluster
        .hearth(&["run", "-n", "16", "--label", &cluster.program("hello-c")])?
        .expect_code(0)?;
    let out = done.out();
    for rank in 0..16 {
        let wanted = format!("{rank}: hello from hello-c, rank {rank} of 16");
        if out.lines().filter(|l| l.trim_start() == wanted).count() != 1 {
            bail!("no single line {wanted:?} in\n{out}");
        }
    }
    // Two jobs at once on different nodes.
    let spin = cluster.program("spin");
    let first = cluster
        .command(&["run", "--nodes", "n[0-7]", "-n", "8", &spin, "--", "3"])
        .spawn()?;
    let second = cluster.hearth(&[
        "run",
        "--nodes",
        "n[8-15]",
        "-n",
        "8",
        &cluster.program("compute"),
    ]);
    let first = first.wait_with_output()?;
    second?.expect_code(0)?;
    if !first.status.success() {
        bail!("the other job ended with {}", first.status);
    }
    Ok(())
}
