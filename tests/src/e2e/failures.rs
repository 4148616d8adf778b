//! What goes wrong is reported and leaves the node in service.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::nodes::boots;

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "faulting-programs",
        boot: Boot::Network,
        run: faults,
    },
    Scenario {
        name: "files-that-are-no-programs",
        boot: Boot::Network,
        run: bad_files,
    },
    Scenario {
        name: "wrong-flags",
        boot: Boot::Network,
        run: wrong_flags,
    },
    Scenario {
        name: "cancel-and-time-limit",
        boot: Boot::Network,
        run: cancel,
    },
    Scenario {
        name: "signals-and-grace",
        boot: Boot::Network,
        run: signals,
    },
];

/// How a program misbehaves, the signal it must be ended by, and a word its report must have.
const FAULTS: &[(&str, i32, &str)] = &[
    ("null", 11, "SIGSEGV"),
    ("write-text", 11, "SIGSEGV"),
    ("exec-data", 11, "SIGSEGV"),
    ("kernel", 11, "SIGSEGV"),
    ("stack", 11, "SIGSEGV"),
    ("illegal", 4, "SIGILL"),
    ("divide", 8, "SIGFPE"),
    ("gp", 11, "SIGSEGV"),
    ("hlt", 11, "SIGSEGV"),
];

fn faults(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("misbehave");
    for &(how, signal, name) in FAULTS {
        let done = cluster.hearth(&["run", "--nodes", "n1", "-n", "1", &program, "--", how])?;
        let done = done
            .expect_code(128 + signal)
            .and_then(|d| d.expect_out(&format!("misbehave: {how}")))
            .and_then(|d| d.expect_err(name))
            .and_then(|d| d.expect_err("rip"));
        if let Err(error) = done {
            bail!("misbehave {how}: {error:#}");
        }
    }
    cluster
        .hearth(&["run", "--nodes", "n1", "-n", "1", &program, "--", "memory"])?
        .expect_code(128 + 9)?
        .expect_err("memory")?;
    cluster
        .hearth(&["run", "--nodes", "n1", "-n", "1", &program, "--", "badptr"])?
        .expect_code(0)?
        .expect_out("EFAULT")?;
    let events = cluster.hearth(&["events"])?.expect_code(0)?;
    events.expect_out("SIGILL")?;
    Ok(())
}

/// Bad files with a word that the message must have, and a way to make each.
fn bad_files(cluster: &Cluster) -> Result<()> {
    let folder = std::env::temp_dir().join(format!("hearth-bad-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let good = std::fs::read(cluster.program("hello-c"))?;
    let mut other_machine = good.clone();
    other_machine[18] = 0xb7; // EM_AARCH64
    let mut lying = good.clone();
    // The first program header's file size says more than the file has.
    lying[64 + 32..64 + 40].copy_from_slice(&0x7fff_ffff_u64.to_le_bytes());
    let cases: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "script",
            b"#!/bin/sh\necho hello\n".to_vec(),
            "hearth submit",
        ),
        ("empty", Vec::new(), "ELF"),
        ("machine", other_machine, "machine"),
        ("truncated", good[..good.len() / 2].to_vec(), "truncated"),
        ("lying", lying, "segment"),
    ];
    for (name, bytes, word) in cases {
        let path = folder.join(name);
        std::fs::write(&path, bytes)?;
        let path = path.to_string_lossy().into_owned();
        // Once stopped by the control node, once by the node itself.
        for extra in [&[][..], &["--no-precheck"]] {
            let mut args = vec!["run", "--nodes", "n2", "-n", "1"];
            args.extend(extra);
            args.push(&path);
            let done = cluster.hearth(&args)?;
            if done.code() == 0 {
                bail!("{name}: a bad file ran");
            }
            let text = done.err().to_lowercase();
            if !text.contains(&word.to_lowercase()) {
                bail!("{name} {extra:?}: the message lacks {word:?}: {text}");
            }
        }
    }
    // A dynamically linked program: the message says how to link it statically.
    let done = cluster.hearth(&["run", "-n", "1", "/bin/ls"])?;
    if done.code() == 0 {
        bail!("a dynamically linked program ran");
    }
    done.expect_err("-static")?;
    // And when control does not look, the node refuses it.
    let done = cluster.hearth(&["run", "-n", "1", "--no-precheck", "/bin/ls"])?;
    done.expect_code(126)?.expect_err("-static")?;
    mutated(cluster, &good, &folder)?;
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

/// Fifty mutated programs on one node: each ends somehow, and the node stays.
fn mutated(cluster: &Cluster, good: &[u8], folder: &std::path::Path) -> Result<()> {
    const COUNT: u64 = 50;
    let mut random = fastrand::Rng::with_seed(1);
    let mut next = move || random.u64(..);
    let before = boots(cluster, "n3")?;
    let mut codes = std::collections::BTreeMap::new();
    for index in 0..COUNT {
        let mut bytes = good.to_vec();
        for _ in 0..1 + next() % 4 {
            // Half of them in the headers, half anywhere.
            let range = if index % 2 == 0 {
                64 + 10 * 56
            } else {
                bytes.len() as u64
            };
            let at = (next() % range) as usize;
            bytes[at] = next() as u8;
        }
        let path = folder.join(format!("mutated-{index}"));
        std::fs::write(&path, bytes)?;
        let path = path.to_string_lossy().into_owned();
        let args = [
            "run",
            "--nodes",
            "n3",
            "-n",
            "1",
            "--no-precheck",
            "--time-limit",
            "5s",
            &path,
        ];
        let done = cluster.hearth_within(&args, b"", LIMIT)?;
        *codes.entry(done.code()).or_insert(0) += 1;
    }
    println!("          {COUNT} mutated programs, count by exit code: {codes:?}");
    if boots(cluster, "n3")? != before {
        bail!("node n3 booted again under the mutated programs");
    }
    let hello = cluster.program("hello-c");
    cluster
        .hearth(&["run", "--nodes", "n3", "-n", "1", &hello])?
        .expect_code(0)?
        .expect_out("rank 0 of 1")?;
    Ok(())
}

fn wrong_flags(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("hello-c");
    cluster
        .hearth(&["run", "-n", "9999", &program])?
        .expect_err("nodes")
        .and_then(nonzero)?;
    cluster
        .hearth(&["run", "--nodes", "n77", &program])?
        .expect_err("n77")
        .and_then(nonzero)?;
    cluster
        .hearth(&["run", "-n", "0", &program])
        .and_then(nonzero)?;
    cluster
        .hearth(&["run", "-n", "1", "/no/such/program"])?
        .expect_err("/no/such/program")
        .and_then(nonzero)?;
    cluster
        .hearth(&["cancel", "999999"])?
        .expect_err("999999")
        .and_then(nonzero)?;
    cluster.hearth(&["run", "--frobnicate"]).and_then(nonzero)?;
    Ok(())
}

fn nonzero(done: crate::command::Finished) -> Result<()> {
    if done.code() == 0 {
        bail!(
            "exit code 0 for a command that cannot be done: {}",
            done.err()
        );
    }
    Ok(())
}

fn cancel(cluster: &Cluster) -> Result<()> {
    let spin = cluster.program("spin");
    let began = Instant::now();
    let done = cluster.hearth(&["run", "-n", "2", "--time-limit", "2s", &spin, "--", "60"])?;
    done.expect_code(124)?.expect_err("time limit")?;
    if began.elapsed() > Duration::from_secs(30) {
        bail!("the time limit of 2 s took {:?}", began.elapsed());
    }
    // Ctrl-C: an interrupt to the command ends the job, and the command says so.
    let child = cluster
        .command(&["run", "-n", "2", &spin, "--", "60"])
        .stdout(std::process::Stdio::null())
        .spawn()?;
    std::thread::sleep(Duration::from_secs(3));
    let pid = child.id().to_string();
    let began = Instant::now();
    crate::command::run("kill".as_ref(), &["-INT", &pid], b"", LIMIT)?.expect_code(0)?;
    let output = child.wait_with_output()?;
    if output.status.success() || began.elapsed() > Duration::from_secs(20) {
        bail!(
            "after an interrupt: status {}, {:?}",
            output.status,
            began.elapsed()
        );
    }
    Ok(())
}

/// A job that was submitted; its number.
fn submitted(cluster: &Cluster, options: &[&str], how: &str) -> Result<String> {
    let program = cluster.program("saves-state");
    let mut args = vec!["submit", "--parsable"];
    args.extend(options);
    args.extend([&program, how]);
    let done = cluster.hearth(&args)?.expect_code(0)?;
    Ok(done.out().trim().to_string())
}

/// Waits until what a job has written has a line so often.
fn await_lines(cluster: &Cluster, job: &str, line: &str, count: usize) -> Result<()> {
    let until = Instant::now() + LIMIT;
    loop {
        let written = cluster.hearth(&["output", job])?.out();
        if written.matches(line).count() == count {
            return Ok(());
        }
        if Instant::now() > until {
            bail!("job {job} wrote {written:?}, not {count} times {line:?}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Waits for the end of a job; its state, its exit status and why.
fn ended(cluster: &Cluster, job: &str) -> Result<(String, i64, String)> {
    let until = Instant::now() + LIMIT;
    loop {
        let info = cluster.json(&["job", job])?;
        if let Some(status) = info["exit_status"].as_i64() {
            let word = |name: &str| info[name].as_str().unwrap_or_default().to_string();
            return Ok((word("state"), status, word("reason")));
        }
        if Instant::now() > until {
            bail!("job {job} does not end: {info}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Signals reach programs that compute and that wait; a job that is cancelled, or whose time is up,
/// may save its state, and is killed if it takes too long.
fn signals(cluster: &Cluster) -> Result<()> {
    for how in ["compute", "wait"] {
        let job = submitted(cluster, &["-n", "2"], how)?;
        await_lines(cluster, &job, "ready", 2)?;
        let signal = ["signal", &job, "USR1"];
        cluster.hearth(&signal)?.expect_code(0)?;
        await_lines(cluster, &job, "goes on", 2)?;
        cluster.hearth(&["cancel", &job])?.expect_code(0)?;
        let (state, status, reason) = ended(cluster, &job)?;
        if (&*state, status) != ("cancelled", 7) || !reason.contains("cancelled") {
            bail!("{how}: {state}, {status}, {reason}");
        }
        await_lines(cluster, &job, "saved", 2)?;
    }
    let job = submitted(cluster, &[], "deaf")?;
    await_lines(cluster, &job, "ready", 1)?;
    let began = Instant::now();
    let cancel = ["cancel", "--grace", "3s", &job];
    cluster.hearth(&cancel)?.expect_code(0)?;
    let (state, status, _) = ended(cluster, &job)?;
    if (&*state, status) != ("cancelled", 137) || began.elapsed() < Duration::from_secs(3) {
        bail!("deaf: {state}, {status} after {:?}", began.elapsed());
    }
    // Without a handler it ends at once, and nobody wants to know where it was.
    let spin = cluster.program("spin");
    let args = ["submit", "--parsable", &spin, "60"];
    let done = cluster.hearth(&args)?.expect_code(0)?;
    let job = done.out().trim().to_string();
    await_lines(cluster, &job, "computing", 1)?;
    cluster.hearth(&["cancel", &job])?.expect_code(0)?;
    let (state, status, reason) = ended(cluster, &job)?;
    let faults = cluster.hearth(&["events", "--job", &job])?.out();
    if (&*state, status) != ("cancelled", 143) || faults.contains("program-fault") {
        bail!("spin: {state}, {status}, {reason}; {faults}");
    }
    let job = submitted(cluster, &["-t", "2s"], "compute")?;
    let (state, status, _) = ended(cluster, &job)?;
    if (&*state, status) != ("time-limit", 124) {
        bail!("time limit: {state}, {status}");
    }
    await_lines(cluster, &job, "saved", 1)
}
