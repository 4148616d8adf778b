//! A queue of jobs that nobody waits for, on 16 nodes as 4x4: all of them run, each on the best
//! nodes that were free, none on a node that another has. Once in peace, and once while the control
//! node is killed and nodes are reset. And jobs that run while it is killed, which they do not
//! notice.
//!
//! Neighbour: [`placements`](crate::placements) judges.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::Scenario;
use crate::cluster::{Boot, Cluster, LIMIT};
use crate::placements::{Fabric, Placed, no_node_forgotten, no_node_twice};

pub const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "sixty-jobs-queued",
        boot: Boot::Direct16,
        run: in_peace,
    },
    Scenario {
        name: "sixty-jobs-under-kills",
        boot: Boot::Direct16,
        run: under_kills,
    },
    Scenario {
        name: "jobs-outlive-control",
        boot: Boot::Network,
        run: outlive,
    },
];

/// The tree of the cluster.
const FABRIC: Fabric = Fabric {
    leaf_nodes: 4,
    leaves: 4,
};
/// Jobs of a run.
const JOBS: usize = 60;
/// Longest time for all of them.
const ALL_LIMIT: Duration = Duration::from_secs(240);
/// Nodes that are reset under jobs.
const RESET: [u32; 2] = [5, 10];
/// How often the jobs are looked at.
const PERIOD: Duration = Duration::from_millis(250);

/// Jobs handed in.
struct Run<'a> {
    cluster: &'a Cluster,
    /// Numbers with sizes.
    jobs: BTreeMap<u64, usize>,
}

impl<'a> Run<'a> {
    /// Hands the jobs in: sizes 1 to 16, most of them small; half of them end at once, the others
    /// compute for one of three `times`, in seconds.
    fn submit(cluster: &'a Cluster, seed: u32, times: [&str; 3], options: &[&str]) -> Result<Self> {
        let mut random = seed;
        let mut next = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % below
        };
        let mut jobs = BTreeMap::new();
        for index in 0..JOBS {
            // Each size comes up at least once.
            let size = match index % 4 {
                0 => index / 4 + 1,
                _ => 1 + next(6) as usize,
            };
            let ranks = size.to_string();
            let seconds = times[next(3) as usize];
            let (program, arguments) = match next(2) {
                0 => (cluster.program("hello-c"), vec![]),
                _ => (cluster.program("spin"), vec![seconds]),
            };
            let mut args = vec!["submit", "--parsable", "-n", &ranks, "-t", "60s"];
            args.extend(options);
            args.push(&program);
            args.extend(arguments);
            let done = cluster.hearth(&args)?.expect_code(0)?;
            let id = done.out().trim().parse();
            jobs.insert(id.with_context(|| done.out())?, size);
        }
        ensure!(jobs.len() == JOBS, "{} numbers for {JOBS} jobs", jobs.len());
        Ok(Run { cluster, jobs })
    }

    /// Looks at the jobs; gives those that have ended.
    fn look(&self) -> Result<Vec<Value>> {
        let limit = (2 * JOBS).to_string();
        let listed = self.cluster.json(&["jobs", "--limit", &limit])?;
        let mut ended = Vec::new();
        for job in listed.as_array().context("no list of jobs")? {
            if !job["id"]
                .as_u64()
                .is_some_and(|id| self.jobs.contains_key(&id))
            {
                continue;
            }
            if !job["ended_unix_us"].is_null() {
                ended.push(job.clone());
            }
        }
        Ok(ended)
    }

    /// Waits until `count` jobs have ended.
    fn wait_for(&self, count: usize, end: Instant) -> Result<Vec<Value>> {
        loop {
            let ended = self.look()?;
            if ended.len() >= count {
                return Ok(ended);
            }
            if Instant::now() > end {
                let queue = self.cluster.hearth(&["queue"])?.out();
                bail!(
                    "{} of {JOBS} jobs ended in time; the queue is\n{queue}",
                    ended.len()
                );
            }
            std::thread::sleep(PERIOD);
        }
    }

    /// Checks that all jobs completed, with all their ranks, and that each attempt had the best
    /// nodes there were and shared none; one that begins again may avoid those of its nodes that
    /// were `reset`. Gives the placements of all attempts.
    fn judge(&self, ended: &[Value], reset: &[u32]) -> Result<Vec<Placed>> {
        for job in ended {
            let id = job["id"].as_u64().context("a job without a number")?;
            let size = self.jobs[&id];
            let ranks = job["ranks"].as_array().map_or(0, Vec::len);
            ensure!(
                job["state"] == "completed" && job["exit_status"] == 0 && ranks == size,
                "job {id} of {size} ranks did not complete: {job}"
            );
            let written = job["output"]["bytes"].as_u64();
            ensure!(
                written.is_some_and(|bytes| bytes > 0),
                "job {id} wrote nothing: {job}"
            );
        }
        let attempts = self.attempts(ended)?;
        for placed in &attempts {
            let before = attempts
                .iter()
                .filter(|other| other.job == placed.job && other.decision < placed.decision)
                .flat_map(|other| other.nodes.iter().copied())
                .filter(|node| reset.contains(node));
            FABRIC.check(placed, self.jobs[&placed.job], &before.collect())?;
        }
        no_node_twice(&attempts)?;
        let among_others = |placed: &&Placed| placed.nodes.len() > 1 && placed.free.len() < 16;
        println!(
            "          {} placements checked, {} of several nodes while others had some",
            attempts.len(),
            attempts.iter().filter(among_others).count()
        );
        Ok(attempts)
    }

    /// Every attempt of every job, from the event log, with its end where the job's record has it.
    fn attempts(&self, ended: &[Value]) -> Result<Vec<Placed>> {
        let events = self.cluster.json(&["events", "--all"])?;
        let events = events.as_array().context("no list of events")?;
        let mut attempts = Vec::new();
        for event in events.iter().filter(|event| event["kind"] == "job-placed") {
            let placed = Placed::of_event(event["text"].as_str().unwrap_or_default())?;
            if self.jobs.contains_key(&placed.job) {
                attempts.push(placed);
            }
        }
        let placed: BTreeSet<u64> = attempts.iter().map(|placed| placed.job).collect();
        ensure!(
            placed.len() == JOBS,
            "{} of {JOBS} jobs have a placement among the events",
            placed.len()
        );
        for placed in &mut attempts {
            for job in ended {
                placed.add_freed(job)?;
            }
        }
        Ok(attempts)
    }
}

fn in_peace(cluster: &Cluster) -> Result<()> {
    let end = Instant::now() + ALL_LIMIT;
    let run = Run::submit(cluster, 7, ["0.2", "0.5", "1.0"], &[])?;
    let ended = run.wait_for(JOBS, end)?;
    let all = run.judge(&ended, &[])?;
    ensure!(all.len() == JOBS, "{} placements of {JOBS} jobs", all.len());
    no_node_forgotten(&all, FABRIC.leaf_nodes * FABRIC.leaves)?;
    // What they wrote is there, from every rank.
    let hello = ended
        .iter()
        .find(|job| job["name"] == "hello-c" && job["ranks_total"].as_u64() > Some(4));
    let hello = hello.context("no large job of hello-c")?;
    let (id, size) = (
        hello["id"].to_string(),
        hello["ranks_total"].as_u64().unwrap_or(0),
    );
    let mut done = cluster
        .hearth(&["output", "--follow", &id])?
        .expect_code(0)?;
    for rank in 0..size {
        done = done.expect_out(&format!("rank {rank} of {size}"))?;
    }
    Ok(())
}

fn under_kills(cluster: &Cluster) -> Result<()> {
    let end = Instant::now() + ALL_LIMIT;
    let run = Run::submit(cluster, 11, ["1.0", "2.0", "4.0"], &["--requeue"])?;
    for (ended, node) in [(10, RESET[0]), (30, RESET[1])] {
        run.wait_for(ended, end)?;
        let pid = cluster.control_pid()?;
        crate::command::run("kill".as_ref(), &["-KILL", &pid], b"", LIMIT)?.expect_code(0)?;
        run.wait_for(ended + 5, end)?;
        cluster
            .hearth(&["node", "reset", &format!("n{node}"), "--no-wait"])?
            .expect_code(0)?;
    }
    let ended = run.wait_for(JOBS, end)?;
    run.judge(&ended, &RESET)?;
    // Else the kills met nothing, and this was the other scenario.
    let again = ended
        .iter()
        .filter(|job| job["restarts"].as_u64() > Some(0))
        .count();
    let went_on = ended
        .iter()
        .filter(|job| job["continued"].as_u64() > Some(0))
        .count();
    println!(
        "          {went_on} jobs went on over a kill of control, {again} ran again after a reset"
    );
    ensure!(went_on > 0, "nothing was under way when control was killed");
    Ok(())
}

/// Turns of half a second of the job that outlives the control node and has a client. Each takes a
/// byte of input, so that it cannot end early.
const TURNS: usize = 24;
/// Turns of the one without: nothing holds it up, and control must come back twice before it ends,
/// on a busy machine too.
const BATCH_TURNS: usize = 48;

/// Two jobs of two ranks, one with a client and one without, run while control is stopped and
/// started, and then killed. They go on: each line of output is there once and in its place, what
/// the client sends arrives byte by byte, the ranks go on talking and reading pages, and the exit
/// status counts. Neither runs twice.
fn outlive(cluster: &Cluster) -> Result<()> {
    let program = cluster.program("ranks-outlive");
    let (turns, typed) = (TURNS.to_string(), "abcdefghijklmnopqrstuvwxyz");
    let batch_turns = BATCH_TURNS.to_string();
    let submit = [
        "submit",
        "--parsable",
        "-n",
        "2",
        &program,
        &batch_turns,
        "3",
    ];
    let done = cluster.hearth(&submit)?.expect_code(0)?;
    let batch = done.out().trim().to_string();
    let mut client = cluster.command(&["run", "-n", "2", &program, &turns, "4"]);
    client.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut client = client.stderr(Stdio::piped()).spawn()?;
    let mut input = client.stdin.take().context("its input")?;
    input.write_all(&typed.as_bytes()[..4])?;
    let running = |continued: u64| -> Result<bool> {
        let jobs = cluster.json(&["jobs"])?;
        let jobs = jobs.as_array().context("no list of jobs")?.iter();
        let goes_on = |job: &&Value| {
            job["state"] == "running" && job["continued"].as_u64() == Some(continued)
        };
        Ok(jobs.filter(goes_on).count() == 2)
    };
    let begun = |count: usize| -> Result<bool> {
        let written = cluster.hearth(&["output", &batch])?.out();
        Ok(written.lines().count() >= count)
    };
    wait("both run", || Ok(running(0)? && begun(4)?))?;
    for round in [1, 2_usize] {
        match round {
            // In order it stays stopped until somebody starts it.
            1 => {
                cluster.hearth(&["stop"])?.expect_code(0)?;
                cluster.hearth(&["up"])?.expect_code(0)?;
            }
            _ => {
                let pid = cluster.control_pid()?;
                crate::command::run("kill".as_ref(), &["-KILL", &pid], b"", LIMIT)?
                    .expect_code(0)?;
            }
        }
        wait("both go on", || {
            Ok(running(round as u64)? && begun(4 + 8 * round)?)
        })?;
        input.write_all(&typed.as_bytes()[4 * round..][..4])?;
    }
    input.write_all(&typed.as_bytes()[12..TURNS])?;
    drop(input);
    let done = client.wait_with_output()?;
    let (out, err) = (
        String::from_utf8(done.stdout)?,
        String::from_utf8(done.stderr)?,
    );
    ensure!(
        done.status.code() == Some(4),
        "{:?}: {out}{err}",
        done.status
    );
    let lines = |rank: usize, turns: usize, typed: &str| -> Vec<String> {
        let typed = typed.chars().chain(std::iter::repeat('-'));
        let turns = (0..turns).zip(typed);
        turns
            .map(|(turn, typed)| format!("rank {rank} turn {turn} {typed}"))
            .collect()
    };
    let check = |what: &str, out: &str, turns: usize, typed: &str| -> Result<()> {
        for rank in 0..2 {
            let mine = format!("rank {rank} ");
            let of_rank = out.lines().filter_map(|line| {
                // With labels or without.
                let begin = line.find(&mine)?;
                Some(line[begin..].to_string())
            });
            let seen: Vec<String> = of_rank.collect();
            let wanted = lines(rank, turns, if rank == 0 { typed } else { "" });
            ensure!(
                seen == wanted,
                "{what}, rank {rank}: {seen:?}\n{out}\n{err}"
            );
        }
        Ok(())
    };
    check("the client", &out, TURNS, typed)?;
    let written = cluster.hearth(&["output", "--follow", &batch])?;
    check("the batch job", &written.out(), BATCH_TURNS, "")?;
    let jobs = cluster.json(&["jobs", "--all", "--limit", "2"])?;
    for (job, status) in jobs
        .as_array()
        .context("no list of jobs")?
        .iter()
        .zip([3, 4])
    {
        let stands = (&job["exit_status"], &job["restarts"], &job["continued"]);
        ensure!(stands == (&status.into(), &0.into(), &2.into()), "{job}");
    }
    Ok(())
}

/// Waits until something is so.
fn wait(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + LIMIT;
    while !is_so().unwrap_or(false) {
        ensure!(Instant::now() < end, "waited for: {what}");
        std::thread::sleep(PERIOD);
    }
    Ok(())
}
