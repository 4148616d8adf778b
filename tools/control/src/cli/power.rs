//! `hearth node on`, `off`, `reset`, `status`: switching machines on and off.
//!
//! Key type: [`Power`] (the options). Neighbours: the control node does the work (`crate::power`).
//! A QEMU cluster whose control node does not answer is switched from here, by the same
//! `hearth_power::Power`.
//!
//! Invariant: what was not done is an error, whatever was done beside it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use clap::Args;
use hearth_power::{Action, Machine, State};

use super::{Global, exit, named, print_json, print_text, table};
use crate::api::types::{NodeInfo, NodeState, POWERED_MAX, PowerRequest, Powered};
use crate::client::Client;
use crate::hostlist;
use crate::paths::FindError;

/// How long nodes may take to join that were switched on: the firmware of a server takes minutes.
const JOIN_LIMIT: Duration = Duration::from_secs(600);

/// Options of `hearth node on` and `reset`.
#[derive(Debug, Args)]
pub struct Power {
    #[command(flatten)]
    nodes: named::List,
    /// Do not wait until they have joined.
    #[arg(long)]
    no_wait: bool,
}

/// Options of `hearth node off` and `status`.
#[derive(Debug, Args)]
pub struct Nodes {
    #[command(flatten)]
    nodes: named::List,
}

/// Switches nodes on, or off and on; waits until they have joined unless told otherwise.
pub fn on(global: &Global, action: Action, options: &Power) -> anyhow::Result<()> {
    switch(global, action, &options.nodes.whole(), !options.no_wait)
}

/// Switches nodes off.
pub fn off(global: &Global, options: &Nodes) -> anyhow::Result<()> {
    switch(global, Action::Off, &options.nodes.whole(), false)
}

/// Shows which nodes are on.
pub fn status(global: &Global, options: &Nodes) -> anyhow::Result<()> {
    let numbers = named::nodes(global, &options.nodes.whole())?;
    let powered = Switches::of(global)?.perform(Action::Status, &numbers)?;
    if global.json {
        print_json(&powered)?;
    } else {
        let mut rows = table::new(&["NODE", "POWER"]);
        for node in &powered {
            rows.add_row([node.name.as_str(), word(node.state)]);
        }
        print_text(&table::text(&rows))?;
    }
    all_done(&powered, &[])
}

fn word(state: Option<State>) -> &'static str {
    match state {
        Some(State::On) => "on",
        Some(State::Off) => "off",
        None => "?",
    }
}

fn switch(global: &Global, action: Action, list: &str, wait: bool) -> anyhow::Result<()> {
    let numbers = named::nodes(global, list)?;
    let switches = Switches::of(global)?;
    // Without control nothing joins, but machines can be switched all the same.
    let nodes = switches.nodes();
    let powered = switches.perform(action, &numbers)?;
    let is_done = |powered: &&Powered| powered.error.is_none();
    let done = powered.iter().filter(is_done);
    let done: Vec<u32> = done.map(|done| done.node).collect();
    let jobs = match action {
        Action::On => Some(BTreeMap::new()),
        _ => nodes.as_ref().map(|nodes| jobs_on(nodes, &done)),
    };
    if !global.json {
        let unknown = || vec!["control does not answer: which jobs ran there is not known".into()];
        let lines = jobs.as_ref().map_or_else(unknown, jobs_hit);
        lines.into_iter().for_each(crate::output::say_line);
    }
    let mut failure = None;
    let late = match (&switches, &nodes) {
        (Switches::Control(client), Some(nodes)) if wait => {
            // One that is there and only was to be switched on has joined.
            let is_awaited = |node: &&Powered| action == Action::Reset || !node.was_up;
            let awaited = powered.iter().filter(is_done).filter(is_awaited);
            let awaited: Vec<u32> = awaited.map(|node| node.node).collect();
            let before = boots_of(nodes, &awaited).into_iter();
            let joins = before.map(|(boots, _)| boots);
            let joins: Vec<(u32, u64)> = awaited.iter().copied().zip(joins).collect();
            let late = super::block_on(wait_for_boots(client, &joins, JOIN_LIMIT));
            // Of those that joined before control went nobody knows.
            Some(late.unwrap_or_else(|error| {
                failure = Some(error);
                awaited
            }))
        }
        _ => None,
    };
    if global.json {
        print_json(&report(action, &done, jobs.as_ref(), late.as_deref()))?;
    }
    match failure {
        Some(error) => all_done(&powered, &[]).and(Err(error)),
        None => all_done(&powered, late.as_deref().unwrap_or_default()),
    }
}

/// The errors of nodes with which it was not done, and of those that have not joined since.
fn all_done(powered: &[Powered], late: &[u32]) -> anyhow::Result<()> {
    let mut by_text: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for node in powered {
        if let Some(error) = &node.error {
            by_text.entry(error).or_default().push(node.node);
        }
    }
    let lines = by_text
        .iter()
        .map(|(error, nodes)| format!("{}: {error}", hostlist::format(nodes)));
    let mut lines: Vec<String> = lines.collect();
    if !late.is_empty() {
        lines.push(format!(
            "{} did not join within {} s; `hearth timeline` and `hearth console` show how far the boot came",
            hostlist::format(late),
            JOIN_LIMIT.as_secs()
        ));
    }
    if lines.is_empty() {
        return Ok(());
    }
    let text = lines.join("\n");
    let is_well = |node: &Powered| node.error.is_none() && !late.contains(&node.node);
    let status = match powered.iter().any(is_well) {
        true => exit::PARTLY,
        false => exit::CONTROL,
    };
    Err(exit::Failed::new(status, text).into())
}

/// Who switches the machines.
enum Switches {
    /// The control node.
    Control(Client),
    /// This process, the machines of a QEMU cluster whose control node does not answer.
    Here(hearth_power::Power),
}

impl Switches {
    fn of(global: &Global) -> anyhow::Result<Self> {
        let error = match global.client() {
            Ok(client) => return Ok(Switches::Control(client)),
            Err(error) => error,
        };
        // Only of the very cluster whose control node does not answer: never of another one.
        let silent = match error.downcast_ref::<FindError>() {
            Some(
                FindError::Starting(name) | FindError::Stopped(name) | FindError::Crashed(name),
            ) => name,
            _ => return Err(error),
        };
        match super::cluster::chosen(global) {
            Ok(paths) if paths.name() == silent && hearth_qemu::is_running(&paths) => {
                Ok(Switches::Here(hearth_power::Power::of_qemu(paths)))
            }
            _ => Err(error),
        }
    }

    /// The nodes, where control knows them.
    fn nodes(&self) -> Option<Vec<NodeInfo>> {
        match self {
            Switches::Control(client) => {
                super::block_on(async { Ok(client.get("/v1/nodes").await?) }).ok()
            }
            Switches::Here(_) => None,
        }
    }

    fn perform(&self, action: Action, numbers: &[u32]) -> anyhow::Result<Vec<Powered>> {
        let client = match self {
            Switches::Control(client) => client,
            Switches::Here(power) => {
                let machine = |node: &u32| Machine {
                    node: *node,
                    mac: None,
                };
                let machines: Vec<Machine> = numbers.iter().map(machine).collect();
                let results = numbers.iter().zip(power.perform(action, &machines));
                return Ok(results
                    .map(|(node, result)| Powered::new(*node, result, false))
                    .collect());
            }
        };
        super::block_on(async {
            let mut all = Vec::new();
            for nodes in numbers.chunks(POWERED_MAX) {
                let request = PowerRequest {
                    nodes: hostlist::format(nodes),
                    action,
                    by: String::new(),
                };
                let powered: Vec<Powered> = client.post("/v1/nodes/power", &request).await?;
                all.extend(powered);
            }
            Ok(all)
        })
    }
}

/// What became of nodes that were switched. Which jobs they had is not known where control did not
/// answer; which are `late` is where they were waited for.
fn report(
    action: Action,
    numbers: &[u32],
    jobs: Option<&BTreeMap<u64, Vec<u32>>>,
    late: Option<&[u32]>,
) -> serde_json::Value {
    let names =
        |nodes: &[u32]| -> Vec<String> { nodes.iter().copied().map(hostlist::name).collect() };
    let jobs: Option<Vec<u64>> = jobs.map(|jobs| jobs.keys().copied().collect());
    let joined = late.is_some_and(<[u32]>::is_empty);
    let late = names(late.unwrap_or_default());
    serde_json::json!({
        (action.to_string()): names(numbers), "jobs": jobs, "joined": joined, "late": late,
    })
}

/// The jobs that these nodes have, and on which of them each is.
fn jobs_on(nodes: &[NodeInfo], numbers: &[u32]) -> BTreeMap<u64, Vec<u32>> {
    let mut jobs: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| numbers.contains(&node.node)) {
        if let Some(job) = node.job {
            jobs.entry(job).or_default().push(node.node);
        }
    }
    jobs
}

/// What is said of jobs whose nodes were switched off, a line each.
fn jobs_hit(jobs: &BTreeMap<u64, Vec<u32>>) -> Vec<String> {
    let line = |(job, nodes): (&u64, &Vec<u32>)| {
        let nodes = hostlist::format(nodes);
        format!(
            "job {job} ran on {nodes}, now switched off; `hearth job {job}` says what becomes of it"
        )
    };
    jobs.iter().map(line).collect()
}

/// How often each of these nodes has joined; nothing where it is not in service.
fn boots_of(nodes: &[NodeInfo], numbers: &[u32]) -> Vec<(u64, bool)> {
    let of = |number: &u32| {
        let node = nodes.iter().find(|node| node.node == *number);
        let up = |node: &NodeInfo| matches!(node.state, NodeState::Idle | NodeState::Busy);
        node.map_or((0, false), |node| (node.boots, up(node)))
    };
    numbers.iter().map(of).collect()
}

/// Waits until each of these nodes has joined once more than before; those that have not within the
/// limit.
async fn wait_for_boots(
    client: &Client,
    awaited: &[(u32, u64)],
    limit: Duration,
) -> anyhow::Result<Vec<u32>> {
    let numbers: Vec<u32> = awaited.iter().map(|(node, _)| *node).collect();
    let deadline = Instant::now() + limit;
    loop {
        let nodes: Vec<NodeInfo> = client.get("/v1/nodes").await?;
        let now = boots_of(&nodes, &numbers);
        let missing: Vec<u32> = awaited
            .iter()
            .zip(&now)
            .filter(|((_, before), now)| now.0 <= *before || !now.1)
            .map(|((node, _), _)| *node)
            .collect();
        if missing.is_empty() || Instant::now() > deadline {
            return Ok(missing);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_told_by_node() {
        let jobs = BTreeMap::from([(7, vec![2, 10])]);
        let wanted = serde_json::json!({
            "reset": ["n2", "n10"], "jobs": [7], "joined": true, "late": [],
        });
        let told = report(Action::Reset, &[2, 10], Some(&jobs), Some(&[]));
        assert_eq!(told, wanted);
        let late = report(Action::Reset, &[2, 10], None, Some(&[10]));
        assert!(late["jobs"].is_null() && late["joined"] == false);
        assert_eq!(late["late"], serde_json::json!(["n10"]));
        assert_eq!(report(Action::On, &[2], None, None)["joined"], false);
    }

    #[test]
    fn jobs_on_nodes_that_are_reset_are_told() {
        let node = |node: u32, job: Option<u64>| NodeInfo {
            node,
            job,
            ..NodeInfo::default()
        };
        let nodes = [
            node(0, Some(7)),
            node(1, Some(7)),
            node(2, Some(9)),
            node(3, None),
            node(4, Some(7)),
        ];
        let jobs = jobs_on(&nodes, &[1, 3, 4]);
        assert_eq!(jobs, BTreeMap::from([(7, vec![1, 4])]));
        let said = jobs_hit(&jobs);
        assert!(
            said[0].starts_with("job 7 ran on n[1,4], now switched off"),
            "{said:?}"
        );
        assert!(jobs_hit(&jobs_on(&nodes, &[3])).is_empty());
    }

    #[test]
    fn what_was_not_done_is_told_once_and_fails() {
        let node = |node: u32, error: Option<&str>| Powered {
            node,
            name: hostlist::name(node),
            state: None,
            error: error.map(str::to_string),
            was_up: false,
        };
        assert!(all_done(&[node(0, None)], &[]).is_ok());
        let wrong = || [node(1, Some("no board")), node(2, Some("no board"))];
        let error = all_done(&wrong(), &[]).unwrap_err();
        assert_eq!(error.to_string(), "n[1-2]: no board");
        assert_eq!(exit::of_error(&error), exit::CONTROL);
        let [one, other] = wrong();
        let error = all_done(&[node(0, None), one, other], &[]).unwrap_err();
        assert_eq!(exit::of_error(&error), exit::PARTLY);
        // One that is late hides nothing of the others.
        let [one, _] = wrong();
        let all = [node(0, None), one, node(3, None)];
        let error = all_done(&all, &[3]).unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("n1: no board\nn3 did not join within 600 s"),
            "{text}"
        );
        assert_eq!(exit::of_error(&error), exit::PARTLY);
        assert_eq!(
            exit::of_error(&all_done(&[node(3, None)], &[3]).unwrap_err()),
            exit::CONTROL
        );
    }
}
