//! SQLite on a node, while what carries out its calls on files is killed: what it said that it had
//! committed is there, and the database is whole.
//!
//! Key type: [`Sqlite`], a run of the program `sqlite-kills`. Neighbours: [`crate::io_services`],
//! [`crate::files`].

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::Scenario;
use crate::cluster::{Boot, Cluster};
use crate::command;
use crate::files;
use crate::io_services;

pub const SCENARIOS: &[Scenario] = &[Scenario {
    name: "files-of-sqlite-outlive-kills",
    boot: Boot::Io,
    run: outlives_kills,
}];

/// What is killed under SQLite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// The process that carries out the job's calls.
    Worker,
    Service,
    Control,
    /// The node on which SQLite runs: another one goes on with the database.
    Node,
}

/// One after the other, and again.
const TURNS: [Killed; 5] = [
    Killed::Worker,
    Killed::Control,
    Killed::Service,
    Killed::Node,
    Killed::Service,
];
/// Kills, and in a long run; lines that SQLite prints between two, each of five commits.
const KILLS: usize = 5;
const LONG_KILLS: usize = 50;
const LINES_BETWEEN: usize = 4;
/// A control node that dies oftener in so long is left for a person: that many kills go before a
/// wait.
const CONTROL_KILLS: usize = 3;
const CONTROL_WITHIN: Duration = Duration::from_secs(62);
/// Nodes of the service whose processes are killed.
const NODES: [&str; 2] = ["n0", "n1"];
const LIMIT: Duration = Duration::from_secs(30);
const BOOT_LIMIT: Duration = Duration::from_secs(200);

/// The program at work.
struct Sqlite<'a> {
    cluster: &'a Cluster,
    folder: PathBuf,
    client: Child,
    said: BufReader<ChildStdout>,
    /// Rows that it said were committed.
    committed: u64,
}

impl<'a> Sqlite<'a> {
    /// Begins with an empty database.
    fn begin(cluster: &'a Cluster, node: &str) -> Result<Self> {
        let folder = files::folder(cluster, "sqlite")?;
        let (client, said) = start(cluster, &folder, node, 0)?;
        Ok(Self {
            cluster,
            folder,
            client,
            said,
            committed: 0,
        })
    }

    /// Waits for the next line; whether it came, and was of commits.
    fn commits(&mut self) -> Result<bool> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        let committed = line.strip_prefix("committed ");
        let Some(committed) = committed else {
            ensure!(line.is_empty(), "after {} rows: {line:?}", self.committed);
            return Ok(false);
        };
        self.committed = committed.trim().parse()?;
        Ok(true)
    }

    fn commits_so_many(&mut self, lines: usize) -> Result<()> {
        for _ in 0..lines {
            ensure!(self.commits()?, "it ended after {} rows", self.committed);
        }
        Ok(())
    }

    /// Ends the machine of its node, and goes on with the same database on another.
    fn moves(&mut self, from: &str, to: &str) -> Result<()> {
        let reset = ["node", "reset", from, "--no-wait"];
        self.cluster.hearth(&reset)?.expect_code(0)?;
        while self.commits()? {}
        let status = self.client.wait()?;
        ensure!(!status.success(), "it ended well with its node: {status}");
        (self.client, self.said) = start(self.cluster, &self.folder, to, self.committed)?;
        Ok(())
    }

    /// Has it end and look at all rows; how often it had to open the database again.
    fn end(mut self) -> Result<u32> {
        self.commits_so_many(1)?;
        std::fs::write(self.folder.join("stop"), "")?;
        let mut rest = String::new();
        self.said.read_to_string(&mut rest)?;
        let status = self.client.wait()?;
        let lines: Vec<&str> = rest
            .lines()
            .filter(|line| !line.starts_with("committed "))
            .collect();
        ensure!(status.success(), "{status}: {rest}");
        let ["integrity: ok", "rows: whole", reopened] = lines[..] else {
            bail!("{rest}");
        };
        let number = reopened.strip_prefix("reopened: ");
        number
            .and_then(|number| number.parse().ok())
            .context(rest.clone())
    }
}

fn start(
    cluster: &Cluster,
    folder: &std::path::Path,
    node: &str,
    committed: u64,
) -> Result<(Child, BufReader<ChildStdout>)> {
    let (program, committed) = (cluster.program("sqlite-kills"), committed.to_string());
    let folder = folder.to_string_lossy();
    let command = ["run", "--nodes", node, "-n", "1", "-D", &folder, &program];
    let mut client = cluster
        .command(&[&command[..], &[&committed]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let said = client.stdout.take().context("no standard output")?;
    Ok((client, BufReader::new(said)))
}

/// SQLite commits on a node while `happens` is done, so many times; the number of times that it had
/// to open the database again.
pub fn commit_meanwhile(
    cluster: &Cluster,
    times: usize,
    happens: &dyn Fn(usize) -> Result<()>,
) -> Result<u32> {
    let mut sqlite = Sqlite::begin(cluster, NODES[0])?;
    for time in 0..times {
        sqlite.commits_so_many(LINES_BETWEEN)?;
        happens(time)?;
    }
    sqlite.end()
}

fn outlives_kills(cluster: &Cluster) -> Result<()> {
    io_services::wait_for_up(cluster, 2)?;
    let kills = match crate::is_long() {
        true => LONG_KILLS,
        false => KILLS,
    };
    let kill = |pid: String| -> Result<()> {
        command::run("kill".as_ref(), &["-KILL", &pid], b"", LIMIT)?.expect_code(0)?;
        Ok(())
    };
    let mut sqlite = Sqlite::begin(cluster, NODES[0])?;
    let (mut moves, mut of_control) = (0, 0);
    let mut last_of_control = Instant::now();
    for turn in 0..kills {
        sqlite.commits_so_many(LINES_BETWEEN)?;
        match TURNS[turn % TURNS.len()] {
            Killed::Worker => kill_worker(cluster)?,
            Killed::Service => kill(cluster.io_service_pid(0)?)?,
            Killed::Control => {
                if of_control > 0 && of_control % CONTROL_KILLS == 0 {
                    let rest = CONTROL_WITHIN.saturating_sub(last_of_control.elapsed());
                    std::thread::sleep(rest);
                }
                of_control += 1;
                last_of_control = Instant::now();
                kill(cluster.control_pid()?)?;
            }
            Killed::Node => {
                sqlite.moves(NODES[moves % 2], NODES[(moves + 1) % 2])?;
                moves += 1;
            }
        }
    }
    let committed = sqlite.committed;
    let reopened = sqlite.end()?;
    println!(
        "          {kills} kills, {moves} of them of its node, {committed} commits; the last \
         run opened it again {reopened} times"
    );
    io_services::wait_for_up(cluster, 2)?;
    cluster.wait_for_nodes("all nodes after the kills", BOOT_LIMIT, |nodes| {
        nodes.iter().all(|node| node["state"] == "idle")
    })
}

/// Kills the process that carries out the calls of these nodes, and waits until another one does.
/// The program feels it when it holds a lock or a call is under way.
fn kill_worker(cluster: &Cluster) -> Result<()> {
    let service = cluster.io_service_pid(0)?;
    let before = files::worker_pid(&service)?;
    command::run("kill".as_ref(), &["-KILL", &before], b"", LIMIT)?.expect_code(0)?;
    let end = Instant::now() + LIMIT;
    while files::find_worker(&service)?.is_none_or(|worker| worker == before) {
        ensure!(Instant::now() < end, "no worker after {before}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
