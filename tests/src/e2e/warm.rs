//! Programs that are launched again find their code where it was: when they must, and when they
//! must not.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster};
use crate::launched::Launched;
use crate::nodes::boots;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "warm-relaunch",
        boot: Boot::Network,
        run: relaunch,
    },
    Scenario {
        name: "warm-by-content-not-by-name",
        boot: Boot::Network,
        run: content,
    },
    Scenario {
        name: "warm-and-cold-nodes-mixed",
        boot: Boot::Network,
        run: mixed,
    },
    Scenario {
        name: "warm-dropped-by-hand",
        boot: Boot::Network,
        run: dropped,
    },
    Scenario {
        name: "warm-after-bad-ends",
        boot: Boot::Network,
        run: bad_ends,
    },
    Scenario {
        name: "warm-gives-way-to-a-job",
        boot: Boot::Network,
        run: pressure,
    },
    Scenario {
        name: "warm-gone-with-a-reset",
        boot: Boot::Network,
        run: reset,
    },
    Scenario {
        name: "warm-as-published",
        boot: Boot::Published,
        run: published,
    },
];

/// Lines of a job's output, in an order of their own.
fn lines(launched: &Launched) -> Vec<String> {
    let mut lines: Vec<String> = launched.finished.out().lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Four nodes, programs of five languages and two libraries: cold, then warm with the same output.
fn relaunch(cluster: &Cluster) -> Result<()> {
    for (name, arguments) in [
        ("musl-hello", &[][..]),
        ("hello-c", &[]),
        ("pie-hello", &[]),
        ("hello-cpp", &[]),
        ("hello-fortran", &[]),
        ("hello-rust", &[]),
        ("compute", &[]),
        ("musl-bigtext", &["5"]),
    ] {
        let program = cluster.program(name);
        let flags = ["-n", "4", "--cold"];
        let cold = Launched::good(cluster, &flags, &program, arguments)?;
        cold.expect_cold(name)?;
        for _ in 0..2 {
            let warm = Launched::good(cluster, &["-n", "4"], &program, arguments)?;
            warm.expect_warm(name)?;
            ensure!(
                lines(&warm) == lines(&cold),
                "{name}: warm it printed {:?}, cold {:?}",
                lines(&warm),
                lines(&cold)
            );
        }
    }
    Ok(())
}

/// The same file under another name is warm, a changed file under the same name is cold.
fn content(cluster: &Cluster) -> Result<()> {
    let flags = ["--nodes", "n1"];
    Launched::good(cluster, &flags, &cluster.program("hello-c"), &[])?;
    let other = cluster.scratch("another-name");
    std::fs::copy(cluster.program("hello-c"), &other)?;
    Launched::good(cluster, &flags, &other, &[])?.expect_warm("another name")?;
    // The words that it prints are in its read-only data: old pages would show.
    let mut bytes = std::fs::read(&other)?;
    let word = b"hello from";
    let at = bytes
        .windows(word.len())
        .position(|window| window == word)
        .context("the program does not have its words in it")?;
    bytes[at..at + 5].copy_from_slice(b"HELLO");
    std::fs::write(&other, bytes)?;
    let changed = Launched::good(cluster, &flags, &other, &[])?;
    changed.expect_cold("a changed file")?;
    let out = changed.finished.out();
    ensure!(
        out.starts_with("HELLO from"),
        "the changed file printed {out:?}"
    );
    // The first file is a program of its own, and still there.
    Launched::good(cluster, &flags, &cluster.program("hello-c"), &[])?
        .expect_warm("the first file after the changed one")
}

/// Warm and cold nodes in one job; what the flags forbid.
fn mixed(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("hello-cpp");
    cluster.hearth(&["drop", "--all"])?.expect_code(0)?;
    // A node that holds the program comes first among equals, wherever it stands in the list.
    Launched::good(cluster, &["--nodes", "n3"], &program, &[])?.expect_cold("on n3")?;
    wait_for_holders(cluster, "hello-cpp", "n3")?;
    Launched::good(cluster, &["-n", "1"], &program, &[])?
        .expect_warm("a node of control's choice")?;
    cluster.hearth(&["drop", &program])?.expect_code(0)?;
    Launched::good(cluster, &["--nodes", "n[0-1]"], &program, &[])?.expect_cold("first")?;
    wait_for_holders(cluster, "hello-cpp", "n[0-1]")?;
    let few = cluster.hearth(&["run", "-n", "4", "--warm-only", &program])?;
    if few.code() == 0 {
        bail!("--warm-only on four nodes ran although two are warm");
    }
    few.expect_err("warm")?;
    let both = Launched::good(cluster, &["--nodes", "n[0-3]"], &program, &[])?;
    ensure!(
        both.warm()? == [true, true, false, false],
        "two warm and two cold nodes were {:?}: {}",
        both.warm()?,
        both.report()
    );
    ensure!(
        lines(&both).len() == 4,
        "four ranks printed {:?}",
        lines(&both)
    );
    wait_for_holders(cluster, "hello-cpp", "n[0-3]")?;
    Launched::good(cluster, &["-n", "4", "--warm-only"], &program, &[])?
        .expect_warm("--warm-only")?;
    Launched::good(cluster, &["-n", "4", "--cold"], &program, &[])?.expect_cold("--cold")?;
    // What --cold brought in anew is kept.
    Launched::good(cluster, &["-n", "4"], &program, &[])?.expect_warm("after --cold")
}

/// The nodes on which control believes a program to be warm.
fn holders(cluster: &Cluster, name: &str) -> Result<String> {
    let programs = cluster.json(&["programs"])?;
    let listed = match &programs {
        Value::Array(list) => list,
        other => bail!("hearth programs --json is {other}"),
    };
    let program = listed.iter().find(|program| program["name"] == name);
    let nodes = program.and_then(|program| program["nodes"].as_str());
    Ok(nodes.unwrap_or_default().to_owned())
}

/// Waits until control believes that exactly these nodes hold a program: they report by themselves.
fn wait_for_holders(cluster: &Cluster, name: &str, wanted: &str) -> Result<()> {
    let mut nodes = String::new();
    for _ in 0..100 {
        nodes = holders(cluster, name)?;
        if nodes == wanted {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("{name} is warm on {nodes:?} instead of {wanted:?} after 10 s")
}

fn dropped(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("hello-fortran");
    Launched::good(cluster, &["-n", "4"], &program, &[])?;
    wait_for_holders(cluster, "hello-fortran", "n[0-3]")?;
    cluster
        .hearth(&["drop", &program, "n[1-2]"])?
        .expect_code(0)?;
    wait_for_holders(cluster, "hello-fortran", "n[0,3]")?;
    let mixed = Launched::good(cluster, &["--nodes", "n[0-3]"], &program, &[])?;
    ensure!(
        mixed.warm()? == [true, false, false, true],
        "after a drop on n1 and n2: {:?}",
        mixed.warm()?
    );
    cluster.hearth(&["drop", &program])?.expect_code(0)?;
    wait_for_holders(cluster, "hello-fortran", "")?;
    Launched::good(cluster, &["-n", "4"], &program, &[])?.expect_cold("after a drop everywhere")
}

/// Killed in the middle, by its own fault, for want of memory: what stays is right.
fn bad_ends(cluster: &Cluster) -> Result<()> {
    let flags = ["--nodes", "n2"];
    let program = cluster.program("musl-bigtext");
    let rounds = ["100", "1000000"];
    let killed = Launched::run(
        cluster,
        &["--nodes", "n2", "--cold", "--time-limit", "1s"],
        &program,
        &rounds,
    )?;
    ensure!(
        killed.finished.code() == 124,
        "the time limit ended it with {}",
        killed.finished.code()
    );
    let again = Launched::good(cluster, &flags, &program, &["100"])?;
    ensure!(
        again.warm()? == [true],
        "cold after it was killed: {}",
        again.report()
    );
    ensure!(
        again.finished.out().contains(": ok"),
        "after it was killed: {}",
        again.finished.out()
    );
    Launched::good(cluster, &flags, &program, &["100"])?.expect_warm("all of it")?;

    let program = cluster.program("misbehave");
    for (how, code) in [
        ("null", 139),
        ("write-text", 139),
        ("exec-data", 139),
        ("stack", 139),
        ("illegal", 132),
        ("abort", 134),
        ("memory", 137),
    ] {
        let bad = Launched::run(cluster, &flags, &program, &[how])?;
        ensure!(
            bad.finished.code() == code,
            "misbehave {how} ended with {}",
            bad.finished.code()
        );
        let good = Launched::run(cluster, &flags, &program, &["status", "7"])?;
        ensure!(
            good.finished.code() == 7 && good.finished.out().contains("misbehave: status"),
            "after {how}: exit code {}: {}",
            good.finished.code(),
            good.finished.out()
        );
    }
    // Everything that these paths need has been there: now nothing is fetched.
    let last = Launched::run(cluster, &flags, &program, &["status", "7"])?;
    last.expect_warm("misbehave")
}

/// Memory that a running job wants comes from warm programs.
fn pressure(cluster: &Cluster) -> Result<()> {
    let flags = ["--nodes", "n3"];
    let text = cluster.program("musl-bigtext");
    Launched::good(cluster, &flags, &text, &["100"])?;
    Launched::good(cluster, &flags, &text, &["100"])?.expect_warm("before")?;
    // 16 MiB of text and this do not fit into 48 MiB together with the kernel.
    let greedy = cluster.program("bare-frames");
    let filled = Launched::good(cluster, &flags, &greedy, &["fill", "34"])?;
    ensure!(
        !filled.finished.err().contains("memory"),
        "the job lost: {}",
        filled.finished.err()
    );
    wait_for_holders_without(cluster, "musl-bigtext", "n3")?;
    let after = Launched::good(cluster, &flags, &text, &["100"])?;
    after.expect_cold("after a job took the memory")?;
    Launched::good(cluster, &flags, &text, &["100"])?.expect_warm("once more")
}

/// Waits until control believes that a node does not hold a program.
fn wait_for_holders_without(cluster: &Cluster, name: &str, node: &str) -> Result<()> {
    let flags = ["nodes"];
    for _ in 0..100 {
        let nodes = cluster.json(&flags)?;
        let listed = nodes.as_array().context("no list of nodes")?;
        let found = listed
            .iter()
            .find(|entry| entry["name"] == node)
            .with_context(|| format!("{node} is not listed"))?;
        let warm = found["warm"]
            .as_array()
            .with_context(|| format!("{node} has no list of warm programs: {found}"))?;
        if !warm.iter().any(|program| program["name"] == name) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("{name} is still warm on {node} after 10 s")
}

/// A node that was reset holds nothing, and control knows it.
fn reset(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("hello-rust");
    Launched::good(cluster, &["-n", "4"], &program, &[])?;
    wait_for_holders(cluster, "hello-rust", "n[0-3]")?;
    let before = boots(cluster, "n0")?;
    cluster.hearth(&["node", "reset", "n0"])?.expect_code(0)?;
    cluster.wait_for_nodes("n0 to boot again", Duration::from_secs(200), |nodes| {
        nodes.iter().any(|n| {
            n["name"] == "n0" && n["state"] == "idle" && n["boots"].as_u64() > Some(before)
        })
    })?;
    wait_for_holders(cluster, "hello-rust", "n[1-3]")?;
    let mixed = Launched::good(cluster, &["--nodes", "n[0-3]"], &program, &[])?;
    ensure!(
        mixed.warm()? == [false, true, true, true],
        "after a reset of n0: {:?}",
        mixed.warm()?
    );
    Ok(())
}

/// One program is retained; the launch of another drops it.
fn published(cluster: &Cluster) -> Result<()> {
    let flags = ["-n", "2"];
    let (one, other) = (cluster.program("hello-c"), cluster.program("hello-rust"));
    Launched::good(cluster, &flags, &one, &[])?.expect_cold("first")?;
    Launched::good(cluster, &flags, &one, &[])?.expect_warm("second")?;
    Launched::good(cluster, &flags, &other, &[])?.expect_cold("another program")?;
    Launched::good(cluster, &flags, &other, &[])?.expect_warm("another program again")?;
    let back = Launched::good(cluster, &flags, &one, &[])?;
    back.expect_cold("the first one after the other")?;
    // One node is warm for each: a job on both is warm where its program ran last.
    Launched::good(cluster, &["--nodes", "n0"], &other, &[])?;
    let mixed = Launched::good(cluster, &["--nodes", "n[0-1]"], &one, &[])?;
    ensure!(
        mixed.warm()? == [false, true],
        "n0 ran another program last, n1 this one: {:?}",
        mixed.warm()?
    );
    Ok(())
}
