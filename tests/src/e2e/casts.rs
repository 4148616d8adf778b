//! Casts: programs, files and connection tables that reach all nodes of a job in little more than
//! one copy.
//!
//! Key type: [`CastFile`]. Neighbours: [`crate::cast_failures`] has what goes wrong during a cast;
//! counters of the interfaces are the witness for what moved.
//!
//! Invariant: a scenario that counts bytes also runs what it is compared with, so that it can fail.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster};
use crate::launched::Launched;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "cast-and-drop",
        boot: Boot::Limited,
        run: cast_and_drop,
    },
    Scenario {
        name: "broadcast-launch",
        boot: Boot::Limited,
        run: broadcast_launch,
    },
    Scenario {
        name: "demand-during-broadcast",
        boot: Boot::Limited,
        run: demand_during_broadcast,
    },
    Scenario {
        name: "warm-nodes-serve",
        boot: Boot::Limited,
        run: warm_nodes_serve,
    },
    Scenario {
        name: "files-of-programs",
        boot: Boot::Limited,
        run: files_of_programs,
    },
    Scenario {
        name: "connection-table",
        boot: Boot::Limited,
        run: connection_table,
    },
    Scenario {
        name: "published-casts",
        boot: Boot::Limited,
        run: published,
    },
    Scenario {
        name: "casts-at-once",
        boot: Boot::Limited,
        run: at_once,
    },
];

/// Nodes of the cluster.
const NODES: u64 = 4;
/// 16 MiB of text, all of which is executed with the argument 100.
const TEXT: &str = "musl-bigtext";
/// Control sends each block once; headers, the announcement, repetitions and the job's own traffic
/// come to less than this beyond it, in copies of the object.
const ONE_COPY_MOST: f64 = 1.4;

/// A file of a scenario's own, different from all others.
pub struct CastFile {
    /// Where it is.
    pub path: String,
    /// Its last part.
    pub name: String,
    bytes: u64,
}

impl CastFile {
    /// Writes a file whose bytes do not repeat.
    pub fn write(cluster: &Cluster, name: &str, bytes: u64, seed: u64) -> Result<Self> {
        let path = cluster.scratch(name);
        let mut content = vec![0; bytes as usize];
        fastrand::Rng::with_seed(seed).fill(&mut content);
        fs::write(&path, content)?;
        Ok(Self {
            path,
            name: name.to_owned(),
            bytes,
        })
    }

    /// The nodes that hold it, as control knows.
    pub fn holders(&self, cluster: &Cluster) -> Result<String> {
        let listed = cluster.json(&["casts"])?;
        let files = listed["files"]
            .as_array()
            .with_context(|| format!("no files in {listed}"))?;
        let found = files.iter().find(|file| file["name"] == self.name.as_str());
        let nodes = found.and_then(|file| file["nodes"].as_str());
        Ok(nodes.unwrap_or_default().to_owned())
    }

    /// Casts it to all nodes, which must succeed; what control says of it.
    pub fn cast(&self, cluster: &Cluster, flags: &[&str]) -> Result<Value> {
        let done = cluster.json(&[&["cast", self.path.as_str()], flags].concat())?;
        ensure!(
            done["done"] == NODES && done["bytes"] == self.bytes,
            "not every node has {}: {done}",
            self.name
        );
        ensure!(
            self.holders(cluster)? == "n[0-3]",
            "{} is held by {:?} after {done}",
            self.name,
            self.holders(cluster)?
        );
        Ok(done)
    }

    /// Has all nodes drop it.
    pub fn drop_everywhere(&self, cluster: &Cluster) -> Result<()> {
        cluster
            .hearth(&["casts", "drop", &self.name])?
            .expect_code(0)?;
        let left = self.holders(cluster)?;
        ensure!(left.is_empty(), "{} is still held by {left}", self.name);
        Ok(())
    }
}

/// What the control node has put on its link.
pub fn control_bytes(cluster: &Cluster) -> Result<u64> {
    Ok(cluster.interface_bytes("service")?.1)
}

/// Copies of `bytes` that the control node has sent while `action` ran.
fn copies(cluster: &Cluster, bytes: u64, action: impl FnOnce() -> Result<()>) -> Result<f64> {
    let before = control_bytes(cluster)?;
    action()?;
    Ok((control_bytes(cluster)? - before) as f64 / bytes as f64)
}

/// A file reaches all nodes in about one copy from control, is listed, and is gone after a drop.
pub fn cast_and_drop(cluster: &Cluster) -> Result<()> {
    const BYTES: u64 = 4_000_000;
    let file = CastFile::write(cluster, "cast-and-drop", BYTES, 1)?;
    let sent = copies(cluster, BYTES, || file.cast(cluster, &[]).map(drop))?;
    ensure!(sent < ONE_COPY_MOST, "control sent {sent:.2} copies");
    // It is there: nothing moves.
    let again = copies(cluster, BYTES, || file.cast(cluster, &[]).map(drop))?;
    ensure!(again < 0.1, "the second cast sent {again:.2} copies");
    file.drop_everywhere(cluster)?;
    // The comparison: a cast to each node, of which no other node is left to help the next.
    let each = copies(cluster, BYTES, || {
        (0..NODES).try_for_each(|node| {
            let node = format!("n{node}");
            cluster.json(&["cast", &file.path, &node])?;
            file.drop_everywhere(cluster)
        })
    })?;
    ensure!(
        each > NODES as f64 * 0.95,
        "control sent {each:.2} copies to four nodes"
    );
    println!("          copies from control: {sent:.2}, to each {each:.2}");
    Ok(())
}

/// A cold launch on four nodes: no page of the program is asked for, control sends about one copy,
/// output and exit status are right.
fn broadcast_launch(cluster: &Cluster) -> Result<()> {
    let program = cluster.program(TEXT);
    let bytes = fs::metadata(&program)?.len();
    let flags = ["-n", "4", "--cold", "--load=broadcast"];
    let mut launched = None;
    let sent = copies(cluster, bytes, || {
        launched = Some(Launched::good(cluster, &flags, &program, &["100"])?);
        Ok(())
    })?;
    let launched = launched.context("it did not run")?;
    ensure!(
        launched.finished.out().matches(": ok").count() == NODES as usize,
        "four ranks printed {:?}",
        launched.finished.out()
    );
    ensure!(
        launched.sum("/wire/requests")? == 0,
        "pages were asked for: {}",
        launched.report()
    );
    ensure!(
        launched.sum("/cast/pages")? > 0,
        "no page came by the cast: {}",
        launched.report()
    );
    ensure!(sent < ONE_COPY_MOST, "control sent {sent:.2} copies");
    // What came stays: the next launch moves nothing.
    Launched::good(cluster, &["-n", "4"], &program, &["100"])?.expect_warm("after a broadcast")?;
    // The comparison: pages on demand.
    let demand = ["-n", "4", "--cold", "--load=demand"];
    let asked = copies(cluster, bytes, || {
        Launched::good(cluster, &demand, &program, &["100"]).map(drop)
    })?;
    ensure!(
        asked > NODES as f64 * 0.95,
        "four nodes asked for {asked:.2} copies"
    );
    println!("          copies from control: {sent:.2} by broadcast, {asked:.2} on demand");
    let misbehave = cluster.program("misbehave");
    let ended = Launched::run(cluster, &flags, &misbehave, &["status", "7"])?;
    ensure!(
        ended.finished.code() == 7,
        "exit code {}: {}",
        ended.finished.code(),
        ended.finished.err()
    );
    cluster
        .hearth(&["drop", &program])?
        .expect_code(0)
        .map(drop)
}

/// With the default, four cold nodes get a cast and start while it runs: faults are served from
/// what has come.
fn demand_during_broadcast(cluster: &Cluster) -> Result<()> {
    let program = cluster.program(TEXT);
    let launched = Launched::good(cluster, &["-n", "4", "--cold"], &program, &["5"])?;
    ensure!(
        launched.finished.out().matches(": ok").count() == NODES as usize,
        "four ranks printed {:?}",
        launched.finished.out()
    );
    ensure!(
        launched.report()["load"]["mode"] == "broadcast",
        "the default on four cold nodes: {}",
        launched.report()
    );
    ensure!(
        launched.sum("/cast/faults")? > 0,
        "no fault was served from the cast: {}",
        launched.report()
    );
    cluster
        .hearth(&["drop", &program])?
        .expect_code(0)
        .map(drop)
}

/// The more nodes are warm, the less the control node sends to the cold ones.
fn warm_nodes_serve(cluster: &Cluster) -> Result<()> {
    let program = cluster.program(TEXT);
    let bytes = fs::metadata(&program)?.len();
    let mut sent = Vec::new();
    // Control drops only what it knows.
    Launched::good(cluster, &["-n", "1"], &program, &["5"])?;
    for warm in 0..NODES as usize {
        cluster.hearth(&["drop", &program])?.expect_code(0)?;
        if warm > 0 {
            let nodes = format!("n[0-{}]", warm - 1);
            let flags = ["--nodes", &nodes, "--load=broadcast"];
            Launched::good(cluster, &flags, &program, &["100"])?;
        }
        let flags = ["--nodes", "n[0-3]", "--load=broadcast"];
        sent.push(copies(cluster, bytes, || {
            let launched = Launched::good(cluster, &flags, &program, &["100"])?;
            let found: Vec<bool> = launched.warm()?;
            ensure!(
                (0..NODES as usize).all(|node| found[node] == (node < warm)),
                "{warm} nodes were to be warm: {found:?}"
            );
            Ok(())
        })?);
    }
    println!("          copies from control with 0, 1, 2, 3 of 4 nodes warm: {sent:.2?}");
    ensure!(
        sent.windows(2).all(|pair| pair[1] < pair[0]),
        "control sent {sent:.2?} copies with 0 to 3 warm nodes"
    );
    ensure!(
        sent[3] < 0.5,
        "three warm nodes left {:.2} copies to control",
        sent[3]
    );
    cluster
        .hearth(&["drop", &program])?
        .expect_code(0)
        .map(drop)
}

/// A file that was cast, and one that `run --with` casts, as programs of four languages and
/// libraries see it; without `--with` there is none, and a file that no node has is named with what
/// to do.
fn files_of_programs(cluster: &Cluster) -> Result<()> {
    // Not a whole number of pages, and not of blocks.
    const BYTES: u64 = 1_234_567;
    const SEED: u32 = 77;
    let content: Vec<u8> = (0..BYTES as u32)
        .map(|at| (at.wrapping_mul(2_654_435_761).wrapping_add(SEED) >> 13) as u8)
        .collect();
    let file = CastFile {
        path: cluster.scratch("input"),
        name: "input".to_owned(),
        bytes: BYTES,
    };
    fs::write(&file.path, content)?;
    let words = [file.name.clone(), BYTES.to_string(), SEED.to_string()];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let run = |flags: &[&str], program: &str| {
        let program = cluster.program(program);
        cluster.hearth(&[&["run", "-n", "4"], flags, &[&program, "--"], &words].concat())
    };
    // First cast by the run itself, then found there, then by name only.
    let before = control_bytes(cluster)?;
    run(&["--with", &file.path], "with-c")?.expect_code(0)?;
    let first = control_bytes(cluster)? - before;
    file.cast(cluster, &[])?;
    for program in ["with-c", "musl-with", "with-cpp", "with-rust"] {
        let before = control_bytes(cluster)?;
        run(&["--with", &file.path, "--load=demand"], program)
            .and_then(|done| done.expect_code(0))
            .with_context(|| program.to_owned())?;
        let sent = control_bytes(cluster)? - before;
        // The program itself may go to each node, headers included; the file may not.
        let program_bytes = fs::metadata(cluster.program(program))?.len();
        let most = NODES * program_bytes * 12 / 10 + BYTES / 2;
        println!("          {program}: control sent {sent} bytes, {first} with the file");
        ensure!(
            sent < most,
            "{program}: control sent {sent} bytes, though all nodes hold the file"
        );
    }
    // Without it the program finds nothing.
    let without = run(&[], "with-c")?;
    ensure!(
        without.code() != 0,
        "a file is there without --with: {}",
        without.out()
    );
    file.drop_everywhere(cluster)?;
    let missing = run(&["--with", "/no/such/input"], "with-c")?;
    ensure!(missing.code() != 0, "a file that is nowhere was found");
    missing.expect_err("/no/such/input").map(drop)
}

/// Every rank sees every rank: node, address, port and MAC as control lists them, and a logical id
/// of its own.
fn connection_table(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("peers");
    let done = cluster
        .hearth(&["run", "--nodes", "n[0-3]", &program])?
        .expect_code(0)?;
    let nodes = cluster.nodes()?;
    let mut ids = std::collections::BTreeSet::new();
    for (rank, node) in nodes.iter().enumerate() {
        let text = |field: &str| -> Result<String> {
            let text = node[field].as_str();
            Ok(text
                .with_context(|| format!("a node has no {field}: {node}"))?
                .to_lowercase())
        };
        // With or without the port.
        let address = text("address")?;
        let host = address.split(':').next().unwrap_or_default().to_owned();
        let start = format!(
            "sees rank {rank}: node {rank}, {host}:{},",
            netstack::NODE_PORT
        );
        let mac = format!("mac {},", text("mac")?);
        let out = done.out();
        let lines: Vec<&str> = out.lines().filter(|line| line.contains(&start)).collect();
        ensure!(
            lines.len() == nodes.len() && lines.iter().all(|line| line.contains(&mac)),
            "{start} {mac} is not what all ranks see:\n{out}"
        );
        let rest = lines[0].split("logical ").nth(1).unwrap_or_default();
        ids.extend(rest.split(',').next().map(str::to_owned));
    }
    ensure!(
        ids.len() == nodes.len(),
        "logical ids are not distinct: {ids:?}"
    );
    // A job of one rank has nobody to talk to.
    cluster
        .hearth(&["run", "-n", "1", &program])?
        .expect_code(0)?
        .expect_out("no table")
        .map(drop)
}

/// The published scheme on real kernels, both policies.
fn published(cluster: &Cluster) -> Result<()> {
    const BYTES: u64 = 2_000_000;
    for (seed, scheme) in ["published-chunk-first", "published-node-first"]
        .into_iter()
        .enumerate()
    {
        let file = CastFile::write(cluster, scheme, BYTES, 10 + seed as u64)?;
        let done = file.cast(cluster, &["--scheme", scheme])?;
        println!("          {scheme}: {} ms", done["ms"]);
        file.drop_everywhere(cluster)?;
    }
    Ok(())
}

/// Three casts at once share the link; each node has all three.
fn at_once(cluster: &Cluster) -> Result<()> {
    const BYTES: u64 = 2_000_000;
    let files: Vec<CastFile> = (0..3)
        .map(|index| CastFile::write(cluster, &format!("at-once-{index}"), BYTES, 20 + index))
        .collect::<Result<_>>()?;
    let mut casts: Vec<Value> = Vec::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = files
            .iter()
            .map(|file| scope.spawn(|| file.cast(cluster, &[])))
            .collect();
        for thread in threads {
            let done = thread
                .join()
                .map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            casts.push(done);
        }
        anyhow::Ok(())
    })?;
    let times: Vec<f64> = casts
        .iter()
        .filter_map(|cast| cast["ms"].as_f64())
        .collect();
    println!("          three casts at once: {times:.0?} ms");
    ensure!(times.len() == 3, "no times in {casts:?}");
    // Shared fairly, all end at about the same time: none has waited until another was done.
    let (first, last) = times
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(least, most), &ms| {
            (least.min(ms), most.max(ms))
        });
    ensure!(
        first * 2.0 > last,
        "one cast had the link to itself: {times:.0?} ms"
    );
    files
        .iter()
        .try_for_each(|file| file.drop_everywhere(cluster))
}
