//! The simulator at scale: cases `sim-NODES/SCHEME`, and `sim-NODES/2MB/SCHEME` for small data.
//!
//! Neighbours: `netstack-sim` runs them; `cargo xtask sim broadcast` is the same by hand. Key
//! table: [`CASES`].
//!
//! Invariant: every figure comes from a run whose checker found that each living node has all of
//! the data.

use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::{Goal, Report, Row};
use crate::workspace::Workspace;

/// Duplicates in per cent of the fragments needed: time-outs and cancels are right.
const DUPLICATES_MOST: f64 = 0.5;
/// Datagrams that find a port full where nothing is wrong: it holds the 256 KB that may wait there,
/// so nothing more can be measured to wait.
const OVERFLOWED_MOST: f64 = 0.0;
/// Nodes of the largest runs, which have bounds of their own.
const LARGE: u32 = 16_512;
/// What such a run may take on two cores.
const WALL_MOST_S: f64 = 1_800.0;
/// See [`WALL_MOST_S`].
const MEMORY_MOST_BYTES: f64 = 12e9;
/// Slow nodes to their own limit.
const SLOW_MOST: f64 = 1.05;
/// The ratio at 16,512 nodes to that at 512: the time does not depend on the number of nodes.
const SCALE_MOST: f64 = 1.05;
/// How far a scheme may be from the figure that the method page has for it, which counts the
/// headers of full datagrams only.
const PAGE_MOST: f64 = 0.05;
/// What Hearth's own headers, and datagrams that are not full because blocks are cut evenly, take
/// of every link.
const OWN_HEADERS: f64 = 1.023;
/// Bytes of an object of 1,000 blocks.
const THOUSAND_BLOCKS: &str = "8192000";

/// One run.
struct Case {
    name: &'static str,
    nodes: u32,
    /// Further arguments of the simulator.
    arguments: &'static [&'static str],
    /// Most that the last healthy node needs, to the limit.
    goal: Option<f64>,
    /// What the method page has for it.
    page: Option<f64>,
}

const fn case(name: &'static str, nodes: u32, arguments: &'static [&'static str]) -> Case {
    Case {
        name,
        nodes,
        arguments,
        goal: None,
        page: None,
    }
}

impl Case {
    const fn at_most(self, goal: f64) -> Self {
        Case {
            goal: Some(goal),
            ..self
        }
    }

    const fn with_page(self, page: f64) -> Self {
        Case {
            page: Some(page),
            ..self
        }
    }

    /// The default scheme, and no fault.
    fn is_undisturbed(&self) -> bool {
        self.name.ends_with("/default")
    }

    /// Duplicates and slow nodes have goals in the default scheme only.
    fn is_default(&self) -> bool {
        self.name
            .rsplit('/')
            .next()
            .is_some_and(|scheme| scheme.starts_with("default"))
    }
}

const LOSS: &str = "--loss=1%";
const SLOW: &str = "--slow=2%";
const DEAD: &str = "--kill=1%";
const DEATH: &str = "--kill=first-layer";
const CHUNK_FIRST: &str = "--scheme=published-chunk-first";
const NODE_FIRST: &str = "--scheme=published-node-first";
const TREE: &str = "--scheme=tree";

/// All runs, from cheap to dear.
const CASES: &[Case] = &[
    case("sim-8/default", 8, &["--bytes", THOUSAND_BLOCKS]).at_most(1.10),
    case("sim-8/table/default", 8, &["--table=1000000", "--real"]).at_most(1.10),
    case("sim-16/default", 16, &["--bytes", THOUSAND_BLOCKS]).at_most(1.10),
    case("sim-64/default", 64, &["--bytes", THOUSAND_BLOCKS]).at_most(1.10),
    case(
        "sim-64/default+warm25",
        64,
        &["--bytes", THOUSAND_BLOCKS, "--warm=25%"],
    ),
    case(
        "sim-64/default+warm50",
        64,
        &["--bytes", THOUSAND_BLOCKS, "--warm=50%"],
    ),
    case(
        "sim-64/default+warm75",
        64,
        &["--bytes", THOUSAND_BLOCKS, "--warm=75%"],
    ),
    case("sim-512/default", 512, &[]).at_most(1.10),
    case("sim-512/2MB/default", 512, &["--bytes=2MB"]).at_most(1.30),
    case("sim-1056/default", 1056, &[]).at_most(1.10),
    case("sim-1056/default+loss1", 1056, &[LOSS]).at_most(1.25),
    case("sim-1056/default+slow2", 1056, &[SLOW]).at_most(1.40),
    case("sim-1056/default+first-layer-death", 1056, &[DEATH]).at_most(1.15),
    case("sim-1056/default+dead1", 1056, &[DEAD]).at_most(1.15),
    case("sim-1056/2MB/default", 1056, &["--bytes=2MB"]).at_most(1.30),
    case("sim-1056/table/default", 1056, &["--table=1000000"]).at_most(1.10),
    case("sim-1056/published-chunk-first", 1056, &[CHUNK_FIRST]),
    case(
        "sim-1056/published-chunk-first+loss1",
        1056,
        &[CHUNK_FIRST, LOSS],
    ),
    case(
        "sim-1056/published-chunk-first+slow2",
        1056,
        &[CHUNK_FIRST, SLOW],
    ),
    case(
        "sim-1056/published-chunk-first+first-layer-death",
        1056,
        &[CHUNK_FIRST, DEATH],
    ),
    case(
        "sim-1056/published-chunk-first+dead1",
        1056,
        &[CHUNK_FIRST, DEAD],
    ),
    case("sim-1056/published-node-first", 1056, &[NODE_FIRST]),
    case(
        "sim-1056/published-node-first+loss1",
        1056,
        &[NODE_FIRST, LOSS],
    ),
    case(
        "sim-1056/published-node-first+slow2",
        1056,
        &[NODE_FIRST, SLOW],
    ),
    case(
        "sim-1056/published-node-first+first-layer-death",
        1056,
        &[NODE_FIRST, DEATH],
    ),
    case(
        "sim-1056/published-node-first+dead1",
        1056,
        &[NODE_FIRST, DEAD],
    ),
    case("sim-1056/tree", 1056, &[TREE]),
    case("sim-16512/2MB/default", 16_512, &["--bytes=2MB"]).at_most(1.30),
    case("sim-16512/default", 16_512, &[]).at_most(1.10),
    case("sim-16512/default+loss1", 16_512, &[LOSS]).at_most(1.25),
    case("sim-16512/default+slow2", 16_512, &[SLOW]).at_most(1.40),
    case("sim-16512/default+first-layer-death", 16_512, &[DEATH]).at_most(1.15),
    case("sim-16512/default+dead1", 16_512, &[DEAD]).at_most(1.15),
    case(
        "sim-16512/published-chunk-first",
        16_512,
        &[CHUNK_FIRST, "--n1=128"],
    )
    .with_page(3.58),
    case(
        "sim-16512/published-node-first",
        16_512,
        &[NODE_FIRST, "--n1=128"],
    )
    .with_page(3.44),
    case("sim-16512/tree", 16_512, &[TREE, "--n1=128"]).with_page(256.0),
];

/// Every case that was asked for.
pub fn run(workspace: &Workspace, report: &mut Report) -> Result<()> {
    let mut at_512 = None;
    for case in CASES {
        if !report.wants(case.name) {
            continue;
        }
        let figures = match simulate(workspace, report, case) {
            Ok(figures) => figures,
            Err(error) => {
                let reason = format!("{error:#}");
                report.row(Row::refused(case.name, "ratio", "ratio", reason));
                continue;
            }
        };
        let ratio = number(&figures["casts"][0], "ratio")?;
        show(report, case, ratio, &figures)?;
        if case.name == "sim-512/default" {
            at_512 = Some(ratio);
        }
        if case.name == "sim-16512/default" {
            let base = match at_512 {
                Some(base) => base,
                None => {
                    let base = CASES.iter().find(|case| case.name == "sim-512/default");
                    let figures = simulate(workspace, report, base.context("a case is gone")?)?;
                    number(&figures["casts"][0], "ratio")?
                }
            };
            let goal = Goal::AtMost(SCALE_MOST);
            report.row(Row::goal(
                case.name,
                "ratio_to_512_nodes",
                ratio / base,
                "ratio",
                goal,
            ));
        }
    }
    Ok(())
}

/// Runs a case; its figures.
fn simulate(workspace: &Workspace, report: &Report, case: &Case) -> Result<Value> {
    report.progress(&format!("{}: simulating", case.name));
    let nodes = case.nodes.to_string();
    let mut command = crate::sim::command(workspace);
    command
        .args(["broadcast", "--json", "--nodes", &nodes])
        .args(case.arguments)
        .stderr(Stdio::inherit());
    let output = command.output().context("starting the simulator")?;
    if !output.status.success() {
        bail!("{}: the simulator found an error", case.name);
    }
    serde_json::from_slice(&output.stdout).context("the simulator printed no figures")
}

/// The rows of a case.
fn show(report: &mut Report, case: &Case, ratio: f64, figures: &Value) -> Result<()> {
    let name = case.name;
    let cast = &figures["casts"][0];
    report.row(match case.goal {
        Some(most) => Row::goal(name, "ratio", ratio, "ratio", Goal::AtMost(most)),
        None => Row::context(name, "ratio", ratio, "ratio"),
    });
    if let Some(page) = case.page {
        let apart = (ratio / OWN_HEADERS / page - 1.0).abs();
        let goal = Goal::AtMost(PAGE_MOST);
        report.row(Row::goal(
            name,
            "distance_from_method_page",
            apart,
            "ratio",
            goal,
        ));
    }
    let mut context = |metric: &str, value: f64, unit: &'static str| {
        report.row(Row::context(name, metric, value, unit));
    };
    context("ratio_median", number(cast, "ratio_median")?, "ratio");
    context("limit_s", number(cast, "limit_s")?, "s");
    context(
        "control_sent_objects",
        number(figures, "source_objects")?,
        "objects",
    );
    context(
        "control_messages",
        number(figures, "control_messages")?,
        "messages",
    );
    context(
        "control_wire",
        number(figures, "control_wire_bytes")?,
        "bytes",
    );
    context(
        "messages_at_control",
        number(figures, "at_control_messages")?,
        "messages",
    );
    context(
        "port_backlog",
        number(figures, "port_backlog_bytes")?,
        "bytes",
    );
    let wall = number(figures, "wall_s")?;
    let memory = number(figures, "memory_bytes")?;
    let mut cost = |metric: &str, value: f64, unit: &'static str, most: f64| {
        report.row(match case.nodes {
            LARGE => Row::goal(name, metric, value, unit, Goal::AtMost(most)),
            _ => Row::context(name, metric, value, unit),
        });
    };
    cost("simulation_wall_s", wall, "s", WALL_MOST_S);
    cost("simulation_memory", memory, "bytes", MEMORY_MOST_BYTES);
    let duplicates = number(figures, "duplicates")? * 100.0;
    let overflowed = number(figures, "overflowed_datagrams")?;
    let slow = number(cast, "slow_ratio")?;
    let metric = "overflowed_datagrams";
    report.row(match case.is_undisturbed() {
        true => Row::goal(
            name,
            metric,
            overflowed,
            "datagrams",
            Goal::AtMost(OVERFLOWED_MOST),
        ),
        false => Row::context(name, metric, overflowed, "datagrams"),
    });
    let mut row = |metric: &str, value: f64, unit: &'static str, most: f64| {
        report.row(if case.is_default() {
            Row::goal(name, metric, value, unit, Goal::AtMost(most))
        } else {
            Row::context(name, metric, value, unit)
        });
    };
    row("duplicates", duplicates, "%", DUPLICATES_MOST);
    if slow > 0.0 {
        row("slow_nodes_to_their_limit", slow, "ratio", SLOW_MOST);
    }
    Ok(())
}

fn number(figures: &Value, name: &str) -> Result<f64> {
    figures[name]
        .as_f64()
        .with_context(|| format!("the simulator gave no {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct_and_say_how_many_nodes() {
        for (place, case) in CASES.iter().enumerate() {
            assert!(
                case.name.starts_with(&format!("sim-{}/", case.nodes)),
                "{}",
                case.name
            );
            assert!(!CASES[..place].iter().any(|other| other.name == case.name));
        }
    }

    #[test]
    fn goals_stand_with_the_default_scheme_only() {
        for case in CASES {
            assert!(case.goal.is_none() || case.is_default(), "{}", case.name);
        }
    }
}
