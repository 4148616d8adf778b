//! The hosted endpoint beside other programs that give one file to many receivers.
//!
//! Cases are `peers-RECEIVERS/PROGRAM` and `peers-RECEIVERS/PROGRAM+slow1` (one receiver's link at
//! a tenth); the file has 4 MB, links have 50 Mbit/s in both directions. Neighbours: [`namespaces`]
//! makes the links, [`tools`] starts the programs.
//!
//! Key type: [`Run`]. The clock starts before the first process is started and stops when the
//! programs have ended and every receiver's file is whole and has been compared. Invariant: a file
//! that differs is an error, never a figure.

mod tools;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::links::{PORT_BUFFER_BYTES, limit_s};
use super::super::namespaces::{self, Network, Traffic};
use super::super::{Goal, Report, Row, median, ready};
use super::{RATIO_MOST, payload};
use crate::setup;
use crate::workspace::Workspace;
use tools::{FILE, Job, Started, Tool};

const RECEIVERS: [usize; 2] = [8, 16];
const FILE_BYTES: u64 = 4_000_000;
const RATE: u64 = 50_000_000;
/// The link of the slow receiver.
const SLOW_RATE: u64 = 5_000_000;
/// Runs of which medians are taken.
const RUNS: usize = 5;
/// The same beside a slow receiver, each as long as ten others.
const SLOW_RUNS: usize = 3;
/// How much later the other receivers may be done because of the slow one.
const OTHERS_MOST: f64 = 1.10;
/// A distribution that takes longer has failed; the slowest known takes 12 s.
const RUN_LIMIT: Duration = Duration::from_secs(60);
/// Programs may take so long to end after the last file is there.
const END_LIMIT: Duration = Duration::from_secs(10);
/// How often files and counters are looked at.
const POLL: Duration = Duration::from_millis(3);
/// A link may be so much faster or slower than it was limited to.
const RATE_TOLERANCE: f64 = 0.02;
/// Without limits the data must take at most this part of the time with them, else processors were
/// the bottleneck.
const UNLIMITED_MOST: f64 = 0.5;
/// Port of the check of links.
const CHECK_PORT: &str = "7118";

/// One distribution.
#[derive(Debug, Clone)]
struct Run {
    /// From before the start of the first process to all files compared, in seconds.
    whole_s: f64,
    /// When each receiver's file was there, the slow one's last.
    complete_s: Vec<f64>,
    /// From the first percent on the sender's link to the last byte on each receiver's, or what the
    /// program measured.
    data_s: f64,
    /// Bytes on the sender's link, as charged.
    sent_bytes: f64,
}

/// The nodes of one kind: how many, and which is slow.
struct Bench<'a> {
    workspace: &'a Workspace,
    file: &'a Path,
    receivers: usize,
    /// Whole commands, data phases and last completions, by program.
    normal: BTreeMap<String, Typical>,
}

/// Medians of several runs.
#[derive(Debug, Clone, Copy)]
struct Typical {
    whole_s: f64,
    data_s: f64,
    last_s: f64,
}

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let any = RECEIVERS.iter().any(|&count| {
        wants_links(report, count) || Tool::ALL.iter().any(|&tool| wants(report, count, tool))
    });
    if !any {
        return Ok(());
    }
    setup::for_benchmarks()?;
    ready(workspace, report)?;
    let home = tempfile::tempdir().context("making a folder for the file")?;
    let file = home.path().join(FILE);
    fs::write(&file, payload(FILE_BYTES))?;
    for receivers in RECEIVERS {
        let mut bench = Bench {
            workspace,
            file: &file,
            receivers,
            normal: BTreeMap::new(),
        };
        bench.normal(report)?;
        bench.slow(report)?;
        bench.compare(report);
    }
    Ok(())
}

fn case(receivers: usize, tool: Tool) -> String {
    format!("peers-{receivers}/{}", tool.name())
}

fn slow_case(receivers: usize, tool: Tool) -> String {
    format!("{}+slow1", case(receivers, tool))
}

fn wants(report: &Report, receivers: usize, tool: Tool) -> bool {
    report.wants(&case(receivers, tool)) || wants_slow(report, receivers, tool)
}

fn wants_slow(report: &Report, receivers: usize, tool: Tool) -> bool {
    tool.is_compared() && report.wants(&slow_case(receivers, tool))
}

fn wants_links(report: &Report, receivers: usize) -> bool {
    report.wants(&format!("peers-{receivers}/links"))
}

impl Bench<'_> {
    fn normal(&mut self, report: &mut Report) -> Result<()> {
        let limited = Network::make(self.receivers, PORT_BUFFER_BYTES, |_| Some(RATE))?;
        let free = Network::make(self.receivers, PORT_BUFFER_BYTES, |_| None)?;
        let scratch = tempfile::tempdir()?;
        if wants_links(report, self.receivers) {
            self.links(report, &limited)?;
        }
        for tool in Tool::ALL {
            if !wants(report, self.receivers, tool) {
                continue;
            }
            let case = case(self.receivers, tool);
            report.progress(&case);
            let mut runs = Vec::new();
            let outcome = self.runs(tool, &limited, true, scratch.path(), RUNS, &mut runs);
            if let Err(error) = outcome {
                report.row(Row::refused(&case, "ratio", "ratio", format!("{error:#}")));
                continue;
            }
            let mut unlimited = Vec::new();
            let without = self.runs(tool, &free, false, scratch.path(), 1, &mut unlimited);
            if let Err(error) = &without {
                report.progress(&format!("{case} on links without limits: {error:#}"));
            }
            if report.wants(&case) {
                self.rows(report, tool, &runs, unlimited.first());
            }
            self.normal.insert(tool.name(), typical(&runs));
        }
        Ok(())
    }

    fn rows(&self, report: &mut Report, tool: Tool, runs: &[Run], unlimited: Option<&Run>) {
        let case = case(self.receivers, tool);
        let limit = limit_s(FILE_BYTES, RATE);
        let middle = typical(runs);
        let context = |metric, value, unit| Row::context(&case, metric, value, unit);
        let free = unlimited.map(|run| run.data_s);
        let ratio = middle.whole_s / limit;
        let busy = match free {
            Some(data_s) if data_s <= middle.data_s * UNLIMITED_MOST => None,
            Some(data_s) => Some(format!(
                "the processors are the bottleneck: {data_s:.2} s on links without limits, {:.2} s with them, ratio {ratio:.2}",
                middle.data_s
            )),
            None => Some(
                "it does not work on links without limits, so what the processors cost is unknown"
                    .into(),
            ),
        };
        let most = (tool == Tool::Hearth).then_some(RATIO_MOST);
        let fair = busy.is_none();
        report.row(Row::time(&case, "ratio", ratio, "ratio", most, busy));
        if fair {
            report.row(context("data_ratio", middle.data_s / limit, "ratio"));
        }
        report.row(context("whole_s", middle.whole_s, "s"));
        let best = runs
            .iter()
            .map(|run| run.whole_s)
            .fold(f64::INFINITY, f64::min);
        report.row(context("whole_least_s", best, "s"));
        let worst = runs.iter().map(|run| run.whole_s).fold(0.0, f64::max);
        report.row(context("whole_most_s", worst, "s"));
        report.row(context("data_s", middle.data_s, "s"));
        if let Some(run) = unlimited {
            report.row(context("unlimited_whole_s", run.whole_s, "s"));
            report.row(context("unlimited_data_s", run.data_s, "s"));
        }
        let sent = median(runs.iter().map(|run| run.sent_bytes));
        let copies = sent / (limit * RATE as f64 / 8.0);
        report.row(context("sender_copies", copies, "copies"));
    }

    /// One receiver behind a slow link: what it costs the others.
    fn slow(&mut self, report: &mut Report) -> Result<()> {
        if !Tool::ALL
            .iter()
            .any(|&tool| wants_slow(report, self.receivers, tool))
        {
            return Ok(());
        }
        let last = self.receivers;
        let network = Network::make(last, PORT_BUFFER_BYTES, |node| {
            Some(if node == last { SLOW_RATE } else { RATE })
        })?;
        let scratch = tempfile::tempdir()?;
        for tool in Tool::ALL {
            if !wants_slow(report, self.receivers, tool) {
                continue;
            }
            let case = slow_case(self.receivers, tool);
            report.progress(&case);
            let Some(normal) = self.normal.get(&tool.name()).copied() else {
                let reason = "it failed without the slow receiver".to_owned();
                report.row(Row::refused(&case, "others_ratio", "ratio", reason));
                continue;
            };
            let mut runs = Vec::new();
            let outcome = self.runs(tool, &network, true, scratch.path(), SLOW_RUNS, &mut runs);
            if let Err(error) = outcome {
                let reason = format!("{error:#}");
                report.row(Row::refused(&case, "others_ratio", "ratio", reason));
                continue;
            }
            let others = median(runs.iter().map(|run| {
                run.complete_s[..run.complete_s.len() - 1]
                    .iter()
                    .copied()
                    .fold(0.0, f64::max)
            }));
            let slowest = median(runs.iter().filter_map(|run| run.complete_s.last().copied()));
            let ratio = others / normal.last_s;
            report.row(if tool == Tool::Hearth {
                Row::goal(
                    &case,
                    "others_ratio",
                    ratio,
                    "ratio",
                    Goal::AtMost(OTHERS_MOST),
                )
            } else {
                Row::context(&case, "others_ratio", ratio, "ratio")
            });
            report.row(Row::context(&case, "others_s", others, "s"));
            let own = slowest / limit_s(FILE_BYTES, SLOW_RATE);
            report.row(Row::context(&case, "slow_ratio", own, "ratio"));
        }
        Ok(())
    }

    /// Hearth beside each peer: its whole command to theirs.
    fn compare(&self, report: &mut Report) {
        let Some(hearth) = self.normal.get(&Tool::Hearth.name()).copied() else {
            return;
        };
        let case = case(self.receivers, Tool::Hearth);
        if !report.wants(&case) {
            return;
        }
        for tool in Tool::ALL.into_iter().filter(|&tool| tool != Tool::Hearth) {
            let Some(peer) = self.normal.get(&tool.name()) else {
                continue;
            };
            let whole = format!("whole_of_{}", tool.name());
            let ratio = hearth.whole_s / peer.whole_s;
            report.row(Row::goal(&case, &whole, ratio, "ratio", Goal::AtMost(1.0)));
            let data = format!("data_of_{}", tool.name());
            report.row(Row::context(
                &case,
                &data,
                hearth.data_s / peer.data_s,
                "ratio",
            ));
        }
    }

    fn runs(
        &self,
        tool: Tool,
        network: &Network,
        is_limited: bool,
        scratch: &Path,
        count: usize,
        runs: &mut Vec<Run>,
    ) -> Result<()> {
        let hearth = self.workspace.hearth();
        for _ in 0..count {
            let folder = tempfile::tempdir().context("making folders for receivers")?;
            for receiver in network.receivers() {
                fs::create_dir(folder.path().join(receiver.to_string()))?;
            }
            let job = Job {
                network,
                is_limited,
                file: self.file,
                folder: folder.path(),
                scratch,
                hearth: &hearth,
            };
            tool.prepare(&job)?;
            runs.push(distribute(tool, &job)?);
        }
        Ok(())
    }

    /// Every node sends to the next one at once: each link carries its rate in both directions, and
    /// no more.
    fn links(&self, report: &mut Report, network: &Network) -> Result<()> {
        let case = format!("peers-{}/links", self.receivers);
        let nodes = self.receivers + 1;
        let mut children = Started {
            foreground: Vec::new(),
            services: Vec::new(),
        };
        // busybox's nc ends with its input, so the listeners' stays open.
        let open = std::process::Stdio::piped;
        let null = std::process::Stdio::null;
        for node in 0..nodes {
            let mut listen = network.on(node);
            listen.args(["busybox", "nc", "-l", "-p", CHECK_PORT]);
            children
                .services
                .push(listen.stdin(open()).stdout(null()).spawn()?);
        }
        std::thread::sleep(Duration::from_millis(200));
        for node in 0..nodes {
            let next = namespaces::address((node + 1) % nodes).to_string();
            let mut send = network.on(node);
            send.args(["busybox", "nc", &next, CHECK_PORT]);
            let input = fs::File::open(self.file)?;
            children.foreground.push(send.stdin(input).spawn()?);
        }
        let (mut begin, mut end) = (None, None);
        let deadline = Instant::now() + RUN_LIMIT;
        let base = network.traffic()?;
        while end.is_none() {
            ensure!(Instant::now() < deadline, "the links carried nothing");
            let carried: Vec<Traffic> = since(&network.traffic()?, &base);
            let least = |of: fn(&Traffic) -> u64| carried.iter().map(of).min().unwrap_or(0);
            let least = least(|t| t.sent_bytes).min(least(|t| t.received_bytes));
            let now = Instant::now();
            if begin.is_none() && least > FILE_BYTES / 10 {
                begin = Some((now, carried));
            } else if least > FILE_BYTES * 8 / 10 {
                end = Some((now, carried));
            }
            std::thread::sleep(POLL);
        }
        let (Some((begin, first)), Some((end, last))) = (begin, end) else {
            bail!("the links carried nothing");
        };
        let seconds = (end - begin).as_secs_f64();
        let rates: Vec<f64> = since(&last, &first)
            .iter()
            .flat_map(|traffic| [traffic.sent_bytes, traffic.received_bytes])
            .map(|bytes| bytes as f64 * 8.0 / seconds / RATE as f64)
            .collect();
        let least = rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = rates.iter().copied().fold(0.0, f64::max);
        report.row(Row::context(&case, "rate_least", least, "of the limit"));
        report.row(Row::goal(
            &case,
            "rate_most",
            most,
            "of the limit",
            Goal::AtMost(1.0 + RATE_TOLERANCE),
        ));
        Ok(())
    }
}

fn typical(runs: &[Run]) -> Typical {
    Typical {
        whole_s: median(runs.iter().map(|run| run.whole_s)),
        data_s: median(runs.iter().map(|run| run.data_s)),
        last_s: median(
            runs.iter()
                .map(|run| run.complete_s.iter().copied().fold(0.0, f64::max)),
        ),
    }
}

fn since(now: &[Traffic], base: &[Traffic]) -> Vec<Traffic> {
    now.iter()
        .zip(base)
        .map(|(now, base)| Traffic {
            sent_bytes: now.sent_bytes - base.sent_bytes,
            received_bytes: now.received_bytes - base.received_bytes,
        })
        .collect()
}

/// Runs one distribution from start to end and checks what came.
fn distribute(tool: Tool, job: &Job) -> Result<Run> {
    let files: Vec<_> = job
        .network
        .receivers()
        .map(|receiver| job.folder.join(receiver.to_string()).join(FILE))
        .collect();
    let base = job.network.traffic()?;
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(job.network, &base, &is_over, began));
        let outcome = (|| {
            let mut started = tool.start(job)?;
            let complete_s = await_files(&files, began)?;
            await_end(&mut started)?;
            let want = fs::read(job.file)?;
            for file in &files {
                let got = fs::read(file).with_context(|| file.display().to_string())?;
                ensure!(
                    got == want,
                    "{} brought another file than was sent",
                    tool.name()
                );
            }
            Ok((complete_s, began.elapsed().as_secs_f64()))
        })();
        is_over.store(true, Ordering::Relaxed);
        let watched = watch
            .join()
            .map_err(|_| anyhow::anyhow!("the thread that reads counters panicked"))??;
        let (complete_s, whole_s) = outcome.with_context(|| {
            let said = tools::said(job.scratch, "sender");
            let tail: Vec<&str> = said.lines().rev().take(3).collect();
            format!("{}: it said last: {}", tool.name(), tail.join(" | "))
        })?;
        let measured = tools::said(job.scratch, "sender")
            .lines()
            .find_map(|line| line.strip_prefix("data_s=")?.parse().ok());
        Ok(Run {
            whole_s,
            complete_s,
            data_s: measured.or(watched.data_s).with_context(|| {
                format!("{}: the links carried less than the file", tool.name())
            })?,
            sent_bytes: watched.sent_bytes,
        })
    })
}

/// What the links' counters say of a distribution.
struct Watched {
    data_s: Option<f64>,
    sent_bytes: f64,
}

/// Looks at the counters until it is over. The data phase ends when each receiver's link has
/// carried the file in full datagrams, less half a percent for what larger segments save: a little
/// early for programs that had to repeat some.
fn watch(
    network: &Network,
    base: &[Traffic],
    is_over: &AtomicBool,
    began: Instant,
) -> Result<Watched> {
    let whole = (limit_s(FILE_BYTES, RATE) * RATE as f64 / 8.0 * 0.995) as u64;
    let (mut begin, mut end) = (None, None);
    loop {
        let last = is_over.load(Ordering::Relaxed);
        let carried = since(&network.traffic()?, base);
        let now = began.elapsed().as_secs_f64();
        let sent_bytes = carried.first().map_or(0, |sender| sender.sent_bytes);
        if begin.is_none() && sent_bytes > FILE_BYTES / 100 {
            begin = Some(now);
        }
        if end.is_none() && carried[1..].iter().all(|link| link.received_bytes >= whole) {
            end = Some(now);
        }
        if last {
            return Ok(Watched {
                data_s: begin.zip(end).map(|(begin, end)| end - begin),
                sent_bytes: sent_bytes as f64,
            });
        }
        std::thread::sleep(POLL);
    }
}

fn await_files(files: &[std::path::PathBuf], began: Instant) -> Result<Vec<f64>> {
    let mut complete_s = vec![None; files.len()];
    loop {
        for (slot, file) in complete_s.iter_mut().zip(files) {
            if slot.is_none() && file.exists() {
                *slot = Some(began.elapsed().as_secs_f64());
            }
        }
        if let Some(all) = complete_s.iter().copied().collect::<Option<Vec<f64>>>() {
            return Ok(all);
        }
        let missing = complete_s.iter().filter(|slot| slot.is_none()).count();
        ensure!(
            began.elapsed() < RUN_LIMIT,
            "after {} s {missing} receivers had no file",
            RUN_LIMIT.as_secs()
        );
        std::thread::sleep(POLL);
    }
}

/// Waits for the programs' end; their exit status is not asked for: what counts is what the
/// receivers have.
fn await_end(started: &mut Started) -> Result<()> {
    let deadline = Instant::now() + END_LIMIT;
    for child in &mut started.foreground {
        while child.try_wait()?.is_none() {
            ensure!(
                Instant::now() < deadline,
                "all files were there, but after {} s a program had not ended",
                END_LIMIT.as_secs()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_peers_tuned_settings_are_run_beside_a_slow_receiver() {
        let slow: Vec<String> = Tool::ALL
            .into_iter()
            .filter(|tool| tool.is_compared())
            .map(|tool| slow_case(8, tool))
            .collect();
        assert_eq!(slow[0], "peers-8/hearth+slow1");
        assert_eq!(slow.len(), 5);
    }
}
