//! `hearth nodes`, `jobs`, `events`, `timeline`: ask control, print a table or JSON.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;

use super::{Global, block_on, io, named, print_json, print_text, table};
use crate::api::PAGE_MAX;
use crate::api::types::{BootTimeline, JobInfo, NodeInfo, NodeState, Status, WaitingMachine};
use crate::client::{Client, RequestError};
use crate::events::Event;
use crate::{clock, hostlist, paths};

/// How often `events --follow` asks.
const FOLLOW_PERIOD: Duration = Duration::from_millis(500);

/// How long it waits for a control node that has ended to come back.
const FOLLOW_LIMIT: Duration = Duration::from_secs(15);

/// Events asked for at a time by `events --all`.
const EVENTS_PAGE: u32 = 1000;

/// Options of `hearth nodes`.
#[derive(Debug, Args)]
pub struct NodesOptions {
    /// Only these nodes.
    #[arg(value_name = "LIST")]
    nodes: Option<String>,
    /// Show which programs each node has kept for their next launch.
    #[arg(long)]
    warm: bool,
    /// Show the tree that the nodes are in, with the state of each leaf switch. In one that is too
    /// large for a screen, switches whose nodes are alike are folded into a line.
    #[arg(long, conflicts_with = "warm")]
    tree: bool,
    /// Show the whole tree, however large it is.
    #[arg(long, requires = "tree")]
    unfold: bool,
    /// List the machines instead that want to join and wait for `hearth node approve`.
    #[arg(long, conflicts_with_all = ["nodes", "warm", "tree"])]
    waiting: bool,
    /// List the I/O services instead, and the nodes whose jobs call each.
    #[arg(long, conflicts_with_all = ["nodes", "warm", "tree", "waiting"])]
    io: bool,
}

/// Options of `hearth jobs`.
#[derive(Debug, Args)]
pub struct JobsOptions {
    /// Only these jobs, with what each of their ranks did.
    #[arg(value_name = "JOB", value_parser = super::queue::job_number)]
    jobs: Vec<u64>,
    /// Only jobs that have not ended.
    #[arg(long)]
    active: bool,
    /// Jobs that have ended too (this is the default; kept for scripts).
    #[arg(long, conflicts_with = "active")]
    all: bool,
    /// List at most so many, the newest.
    #[arg(
        long,
        default_value_t = 1000,
        value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..),
        conflicts_with = "jobs"
    )]
    limit: u32,
    /// Only jobs with smaller numbers, to go back page by page.
    #[arg(long, value_name = "JOB", conflicts_with_all = ["jobs", "active"], value_parser = super::queue::job_number)]
    before: Option<u64>,
}

/// Options of `hearth events`.
#[derive(Debug, Args)]
pub struct EventsOptions {
    /// Keep printing new events.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Only events of this job.
    #[arg(long, value_name = "JOB", value_parser = super::queue::job_number)]
    job: Option<u64>,
    /// Only events of these nodes.
    #[arg(long, value_name = "LIST")]
    node: Option<String>,
    /// From as far back as the store goes, not only the newest.
    #[arg(long, conflicts_with = "follow")]
    all: bool,
    /// Only events with a number above this.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
    /// Only events since this time, of those that are listed: 2026-11-21, 2026-11-21T08:30 (UTC),
    /// or so long ago: 90m, 12h, 7d.
    #[arg(short = 'S', long, value_name = "TIME", value_parser = super::queue::time)]
    since: Option<u64>,
}

/// Options of `hearth timeline`.
#[derive(Debug, Args)]
pub struct TimelineOptions {
    /// Only these machines: MAC addresses or node names.
    #[arg(value_name = "MACHINE")]
    machines: Vec<String>,
}

/// Prints the nodes.
pub fn nodes(global: &Global, options: &NodesOptions) -> anyhow::Result<()> {
    let (client, state) = global.reach()?;
    if options.waiting {
        return waiting(global, &client);
    }
    if options.io {
        return io::list(global, &client);
    }
    let client_again = client.clone();
    let mut nodes: Vec<NodeInfo> = block_on(async move { Ok(client.get("/v1/nodes").await?) })?;
    let powered = state.as_ref().map(super::cluster::power_on_unix_ms);
    for (number, at) in powered.unwrap_or_default() {
        let node = nodes.iter_mut().find(|node| node.node == number);
        if let Some(node) = node {
            node.power_on_unix_ms = Some(at);
        }
    }
    if let Some(list) = &options.nodes {
        let wanted = named::nodes(global, list)?;
        there_are(&wanted, &nodes)?;
        nodes.retain(|node| wanted.contains(&node.node));
    }
    if options.tree {
        let client = client_again;
        let status: Status = block_on(async move { Ok(client.get("/v1/status").await?) })?;
        return super::tree::print(global, &status, &nodes, options.unfold);
    }
    if global.json {
        return print_json(&nodes);
    }
    let now = clock::unix_us();
    // A site without host names has no use for a column of dashes.
    let has_hosts = nodes.iter().any(|node| node.host.is_some());
    let host = ["HOST"].into_iter().filter(|_| has_hosts);
    let headings = ["NODE"].into_iter().chain(host).chain([
        "STATE",
        "JOB",
        "CORES",
        "MEMORY",
        "USED",
        "SINCE",
        "BOOTS",
        "KERNEL_MS",
        "WARM",
        "PAGES",
        "ADDRESS",
        "MAC",
    ]);
    let mut rows = table::new(&Vec::from_iter(headings));
    for node in &nodes {
        let pages: u64 = node.warm.iter().map(|warm| u64::from(warm.pages)).sum();
        let since = node
            .since_unix_us
            .map(|since| clock::span(now.saturating_sub(since) / 1_000_000));
        let host = table::or_dash(node.host.clone());
        let host = [host].into_iter().filter(|_| has_hosts);
        rows.add_row([node.name.clone()].into_iter().chain(host).chain([
            marked_state(node),
            table::or_dash(node.job),
            table::or_dash(node.cores),
            table::or_dash(node.memory_bytes.map(table::mebibytes)),
            table::or_dash(node.memory_used_bytes.map(table::mebibytes)),
            table::or_dash(since),
            // Of a node that was not heard yet nothing is known, not even that it is there.
            table::or_dash(Some(node.boots).filter(|_| node.state != NodeState::Awaited)),
            table::or_dash(node.kernel_ms.map(|ms| format!("{ms:.0}"))),
            node.warm.len().to_string(),
            pages.to_string(),
            table::or_dash(node.address.clone()),
            node.mac.clone(),
        ]));
    }
    print_text(&table::text(&rows))?;
    if options.warm {
        print_text(&format!("\n{}", warm_text(&nodes, now)))?;
    }
    Ok(())
}

/// Prints the machines that wait for approval.
fn waiting(global: &Global, client: &Client) -> anyhow::Result<()> {
    let machines: Vec<WaitingMachine> =
        block_on(async { Ok(client.get("/v1/nodes/waiting").await?) })?;
    if global.json {
        return print_json(&machines);
    }
    let now = clock::unix_us();
    let ago = |at_us: u64| clock::span(now.saturating_sub(at_us) / 1_000_000);
    let mut rows = table::new(&["MAC", "CLAIMS", "WAITS", "ASKED_AGO"]);
    for machine in &machines {
        rows.add_row([
            machine.mac.clone(),
            table::or_dash(machine.node.map(hostlist::name)),
            ago(machine.since_unix_us),
            ago(machine.asked_unix_us),
        ]);
    }
    print_text(&table::text(&rows))
}

/// Refuses nodes that are not among those that control has.
fn there_are(wanted: &[u32], nodes: &[NodeInfo]) -> anyhow::Result<()> {
    let mut known: Vec<u32> = nodes.iter().map(|node| node.node).collect();
    known.sort_unstable();
    match hostlist::unknown(wanted.iter().copied(), &known) {
        None => Ok(()),
        Some(text) => bail!("{text}"),
    }
}

/// What each node holds, a line a program.
fn warm_text(nodes: &[NodeInfo], now_us: u64) -> String {
    let mut rows = table::new(&["NODE", "PROGRAM", "NAME", "PAGES", "PRISTINE", "HELD_FOR"]);
    for node in nodes {
        for warm in &node.warm {
            let held_us = now_us.saturating_sub(warm.since_unix_us);
            rows.add_row([
                node.name.clone(),
                table::program_id(&warm.program),
                table::name(warm.name.as_deref().unwrap_or_default()),
                warm.pages.to_string(),
                warm.pristine.to_string(),
                clock::span(held_us / 1_000_000),
            ]);
        }
    }
    table::text(&rows)
}

/// The state, with a mark where programs of other users' jobs can leave traces.
fn marked_state(node: &NodeInfo) -> String {
    let mark = if node.unscrubbed {
        ", not scrubbing"
    } else {
        ""
    };
    format!("{}{mark}", node.word())
}

/// Prints the jobs.
pub fn jobs(global: &Global, options: &JobsOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let jobs: Vec<JobInfo> = block_on(async move {
        if options.jobs.is_empty() {
            return Ok(listed(&client, options).await?);
        }
        let mut jobs = Vec::new();
        for id in &options.jobs {
            jobs.push(client.get(&format!("/v1/jobs/{id}")).await?);
        }
        Ok(jobs)
    })?;
    if global.json {
        return print_json(&jobs);
    }
    let now = clock::unix_us();
    let mut rows = table::new(&[
        "JOB", "NAME", "STATE", "RANKS", "TIME", "EXIT", "NODES", "REASON",
    ]);
    for job in &jobs {
        let ran = job.started_unix_us.map(|started| {
            let end = job.ended_unix_us.unwrap_or(now);
            clock::span(end.saturating_sub(started) / 1_000_000)
        });
        let nodes = if job.nodes.is_empty() {
            "-"
        } else {
            &job.nodes
        };
        rows.add_row([
            job.id.to_string(),
            table::name(&job.name),
            job.state.word().to_string(),
            job.ranks_total.to_string(),
            table::or_dash(ran),
            table::or_dash(job.exit_status),
            nodes.to_string(),
            job.reason.clone(),
        ]);
    }
    print_text(&table::text(&rows))?;
    // Jobs asked for by number are shown with what their ranks did.
    for job in jobs.iter().filter(|_| !options.jobs.is_empty()) {
        if !job.ranks.is_empty() {
            print_text(&format!("\n{}", super::report::text(job)))?;
        }
        print_faults(job)?;
    }
    Ok(())
}

/// What ended ranks that were ended by a fault.
pub fn print_faults(job: &JobInfo) -> anyhow::Result<()> {
    let mut faults = super::faults::Faults::default();
    for rank in &job.ranks {
        if let Some(fault) = &rank.fault
            && faults.is_news(rank.rank, fault)
        {
            let text = crate::output::plain(fault);
            print_text(&format!("\nrank {} on {}:\n{text}\n", rank.rank, rank.node))?;
        }
    }
    for line in faults.others() {
        print_text(&format!("\n{}\n", crate::output::plain(&line)))?;
    }
    Ok(())
}

async fn listed(client: &Client, options: &JobsOptions) -> Result<Vec<JobInfo>, RequestError> {
    if options.active {
        return newest_jobs(client, "/v1/jobs?all=false", u32::MAX, None).await;
    }
    newest_jobs(client, "/v1/jobs?all=true", options.limit, options.before).await
}

/// The newest `limit` jobs with numbers below `before`, by number, in as many answers as that
/// takes.
pub async fn newest_jobs(
    client: &Client,
    path: &str,
    limit: u32,
    before: Option<u64>,
) -> Result<Vec<JobInfo>, RequestError> {
    let (mut left, mut before) = (limit, before);
    let mut pages: Vec<Vec<JobInfo>> = Vec::new();
    loop {
        let size = left.min(PAGE_MAX);
        let below = before.map(|before| format!("&before={before}"));
        let below = below.unwrap_or_default();
        let page: Vec<JobInfo> = client.get(&format!("{path}&limit={size}{below}")).await?;
        left = left.saturating_sub(u32::try_from(page.len()).unwrap_or(u32::MAX));
        // Fewer than were asked for: an answer ends at so many bytes, too.
        let is_last = left == 0 || page.is_empty();
        before = page.first().map(|job| job.id).or(before);
        pages.push(page);
        if is_last {
            return Ok(pages.into_iter().rev().flatten().collect());
        }
    }
}

/// Prints events, and with `--follow` goes on doing so.
pub fn events(global: &Global, options: &EventsOptions) -> anyhow::Result<()> {
    let (client, state) = global.reach()?;
    let nodes = named::nodes_if(global, options.node.as_deref())?;
    let names: Option<Vec<String>> = nodes
        .as_ref()
        .map(|nodes| nodes.iter().copied().map(hostlist::name).collect());
    let wanted = |event: &Event| {
        let node = event.node.as_ref();
        options.job.is_none_or(|job| event.job == Some(job))
            && options
                .since
                .is_none_or(|since| event.time_unix_us >= since)
            && names
                .as_ref()
                .is_none_or(|names| node.is_some_and(|node| names.contains(node)))
    };
    block_on(async {
        let mut after = options.after;
        let mut events = if options.all {
            all_events(&client, &mut after).await?
        } else {
            new_events(&client, &mut after).await?
        };
        events.retain(wanted);
        if events.is_empty() && !options.follow {
            // Of what is not there nothing can have happened.
            if let Some(nodes) = &nodes {
                let there: Vec<NodeInfo> = client.get("/v1/nodes").await?;
                there_are(nodes, &there)?;
            }
            if let Some(job) = options.job {
                let _: JobInfo = client.get(&format!("/v1/jobs/{job}")).await?;
            }
        }
        match (global.json, options.follow) {
            (true, false) => return print_json(&events),
            (true, true) => {}
            (false, _) => print_text("TIME                  LEVEL    EVENT               TEXT\n")?,
        }
        let mut answered = Instant::now();
        loop {
            for event in &events {
                print_event(event, global.json)?;
            }
            if !options.follow {
                return Ok(());
            }
            tokio::time::sleep(FOLLOW_PERIOD).await;
            events = match new_events(&client, &mut after).await {
                Ok(events) => {
                    answered = Instant::now();
                    events
                }
                // A restart: what happened meanwhile is asked for then.
                Err(error) if is_gone(&error) && answered.elapsed() < FOLLOW_LIMIT => {
                    if let Some(state) = &state {
                        paths::wait_for_return(state, FOLLOW_LIMIT)?;
                    }
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            events.retain(wanted);
        }
    })
}

fn is_gone(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<RequestError>();
    error.is_some_and(RequestError::is_gone)
}

/// Every event after `after` that is kept anywhere.
async fn all_events(client: &Client, after: &mut u64) -> anyhow::Result<Vec<Event>> {
    let mut all = Vec::new();
    loop {
        let path = format!("/v1/events?after={after}&limit={EVENTS_PAGE}");
        let mut events: Vec<Event> = client.get(&path).await?;
        let Some(last) = events.last() else {
            return Ok(all);
        };
        *after = last.seq;
        all.append(&mut events);
    }
}

async fn new_events(client: &Client, after: &mut u64) -> anyhow::Result<Vec<Event>> {
    let events: Vec<Event> = client.get(&format!("/v1/events?after={after}")).await?;
    *after = events.last().map_or(*after, |event| event.seq);
    Ok(events)
}

fn print_event(event: &Event, json: bool) -> anyhow::Result<()> {
    if json {
        let json = serde_json::to_string(event)? + "\n";
        return print_text(&crate::output::plain_json(&json));
    }
    let severity = format!("{:?}", event.severity).to_lowercase();
    let time = clock::rfc3339(event.time_unix_us);
    // Further lines of a report stand below the first, indented.
    let text = crate::output::plain(&event.text).replace('\n', "\n    ");
    print_text(&format!(
        "{time}  {severity:<7}  {:<18}  {text}\n",
        event.kind
    ))
}

/// Prints how far each machine's boot came, and when.
pub fn timeline(global: &Global, options: &TimelineOptions) -> anyhow::Result<()> {
    let client = global.client()?;
    let mut boots: Vec<BootTimeline> =
        block_on(async move { Ok(client.get("/v1/timeline").await?) })?;
    if !options.machines.is_empty() {
        // A host name of the site stands for its node; what is no name may be a MAC address.
        let nodes_of = |name: &String| named::nodes(global, name).unwrap_or_default();
        let meant: Vec<(&String, Vec<String>)> = (options.machines.iter())
            .map(|name| {
                (
                    name,
                    nodes_of(name).into_iter().map(hostlist::name).collect(),
                )
            })
            .collect();
        let is_meant = |boot: &BootTimeline, (name, nodes): &(&String, Vec<String>)| {
            let is_node = |node: &String| nodes.contains(node);
            boot.mac.eq_ignore_ascii_case(name) || boot.node.as_ref().is_some_and(is_node)
        };
        let is_unknown = |one: &&(_, _)| !boots.iter().any(|boot| is_meant(boot, one));
        if let Some((unknown, _)) = meant.iter().find(is_unknown) {
            bail!("{unknown} has not been seen booting; without arguments all machines are shown");
        }
        boots.retain(|boot| meant.iter().any(|one| is_meant(boot, one)));
    }
    if global.json {
        return print_json(&boots);
    }
    let stages = hearth_boot::Stage::ALL.map(|stage| stage.to_string());
    let mut headings = vec![
        "MAC".to_string(),
        "NODE".into(),
        "FIRMWARE".into(),
        "BEGAN".into(),
    ];
    headings.extend(stages.iter().map(|stage| stage.to_uppercase()));
    headings.push("TROUBLE".to_string());
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let mut rows = table::new(&headings);
    for boot in &boots {
        let mut row = vec![
            boot.mac.clone(),
            table::or_dash(boot.node.clone()),
            table::or_dash(boot.firmware.clone()),
            clock::rfc3339(boot.began_unix_ms * 1000),
        ];
        for name in &stages {
            let stage = boot.stages.iter().find(|stage| stage.stage == *name);
            row.push(table::or_dash(
                stage.map(|stage| format!("{:.0}ms", stage.after_ms)),
            ));
        }
        row.push(table::or_dash(boot.trouble.clone()));
        rows.add_row(row);
    }
    print_text(&table::text(&rows)).context("printing the timeline")
}
