//! `hearth nodes --tree`: the fat tree with what its leaf switches' nodes do.
//!
//! Neighbours: `lists` asks control; `hearth_alloc::topology` has the same tree for placements.
//!
//! Invariant: every node that was listed is counted in exactly one line of the lowest level shown.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::{Global, print_json, print_text};
use crate::api::types::{NodeInfo, Status};
use crate::hostlist;

/// Most lines of a tree that is shown whole; in one with more, switches are folded.
const LINES_MAX: usize = 64;

/// A switch with what is below it.
#[derive(Debug, Serialize)]
struct Switch {
    /// Its place below the root, from the root down: `1.0`; empty for the root.
    switch: String,
    /// The nodes below it.
    nodes: String,
    /// How many nodes below it are in which state.
    states: BTreeMap<&'static str, u32>,
    /// Which nodes are in which state; of leaf switches.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    nodes_by_state: BTreeMap<&'static str, String>,
    /// Links to the switch above it; none for the root.
    #[serde(skip_serializing_if = "Option::is_none")]
    uplinks: Option<u32>,
    /// Jobs on nodes below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<u64>,
    /// Switches below it; none for a leaf switch.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Switch>,
}

/// Prints the tree of a control node (one switch where it has none).
pub fn print(
    global: &Global,
    status: &Status,
    nodes: &[NodeInfo],
    unfold: bool,
) -> anyhow::Result<()> {
    let widths = &status.tree;
    let mut root = root(widths, nodes);
    let levels = status.uplinks.len();
    root.children
        .iter_mut()
        .for_each(|child| child.link(&status.uplinks, levels));
    if global.json {
        return print_json(&root);
    }
    print_text(&text(&root, widths, unfold))?;
    let full = widths
        .split_last()
        .map_or(&[][..], |(_, below_root)| below_root);
    if !status.uplinks.is_empty() && status.uplinks != full {
        let each = status.uplinks.iter().zip(full);
        let each: Vec<String> = each.map(|(up, down)| format!("{up} for {down}")).collect();
        let each = each.join(", ");
        print_text(&format!(
            "\nLinks upwards for those downwards, from the leaf switches up: {each}\n"
        ))?;
    }
    Ok(())
}

impl Switch {
    /// Says how many links it and those below it have upwards, of which it is on the given level.
    fn link(&mut self, uplinks: &[u32], level: usize) {
        let Some(level) = level.checked_sub(1) else {
            return;
        };
        self.uplinks = uplinks.get(level).copied();
        self.children
            .iter_mut()
            .for_each(|child| child.link(uplinks, level));
    }
}

fn root(widths: &[u32], nodes: &[NodeInfo]) -> Switch {
    let mut sorted: Vec<&NodeInfo> = nodes.iter().collect();
    sorted.sort_by_key(|node| node.node);
    below(String::new(), widths, &sorted)
}

/// The switch called `switch` over `nodes`, with `widths` below it.
fn below(switch: String, widths: &[u32], nodes: &[&NodeInfo]) -> Switch {
    let mut states = BTreeMap::new();
    for node in nodes {
        *states.entry(node.word()).or_insert(0) += 1;
    }
    let mut jobs: Vec<u64> = nodes.iter().filter_map(|node| node.job).collect();
    jobs.sort_unstable();
    jobs.dedup();
    let numbers: Vec<u32> = nodes.iter().map(|node| node.node).collect();
    let mut nodes_by_state = BTreeMap::new();
    let mut children = Vec::new();
    match widths.split_last() {
        Some((_, lower)) if !lower.is_empty() => {
            // Nodes below one child; more than a u32 counts is all of them.
            let size: u64 = lower.iter().map(|&width| u64::from(width)).product();
            let child = |node: &NodeInfo| u64::from(node.node) / size;
            for group in nodes.chunk_by(|one, other| child(one) == child(other)) {
                let place = child(group[0]) % u64::from(widths[widths.len() - 1]);
                let name = match switch.is_empty() {
                    true => place.to_string(),
                    false => format!("{switch}.{place}"),
                };
                children.push(below(name, lower, group));
            }
        }
        _ => {
            let mut by_state: BTreeMap<&'static str, Vec<u32>> = BTreeMap::new();
            for node in nodes {
                by_state.entry(node.word()).or_default().push(node.node);
            }
            let named = by_state.into_iter();
            nodes_by_state = named
                .map(|(word, nodes)| (word, hostlist::format(&nodes)))
                .collect();
        }
    }
    Switch {
        switch,
        nodes: hostlist::format(&numbers),
        states,
        nodes_by_state,
        uplinks: None,
        jobs,
        children,
    }
}

fn text(root: &Switch, widths: &[u32], unfold: bool) -> String {
    let levels = widths.len().max(1);
    let unfold = unfold || switches(root) <= LINES_MAX;
    // The deepest level that fits; what is alike inside is one line.
    let shown = (0..levels)
        .rev()
        .find(|&depth| lines(root, depth) <= LINES_MAX);
    let shown = match unfold {
        true => levels,
        false => shown.unwrap_or(0),
    };
    let mut rows = vec![(
        "SWITCH".to_string(),
        "NODES".to_string(),
        "STATE".to_string(),
    )];
    rows_of(root, shown, unfold, 0, &mut rows);
    let width = |column: fn(&(String, String, String)) -> &String| {
        rows.iter()
            .map(|row| column(row).chars().count())
            .max()
            .unwrap_or(0)
    };
    let (first, second) = (width(|row| &row.0), width(|row| &row.1));
    let mut text = String::new();
    for (switch, nodes, state) in &rows {
        writeln!(text, "{switch:<first$}  {nodes:<second$}  {state}").expect("a string takes text");
    }
    text
}

/// Lines of the whole tree.
fn switches(switch: &Switch) -> usize {
    1 + switch.children.iter().map(switches).sum::<usize>()
}

/// Lines that the tree takes down to `depth` levels below the root.
fn lines(switch: &Switch, depth: usize) -> usize {
    match depth == 0 || alike(switch) {
        true => 1,
        false => {
            1 + switch
                .children
                .iter()
                .map(|child| lines(child, depth - 1))
                .sum::<usize>()
        }
    }
}

/// Whether one word says all about what is below: nodes without jobs in one state.
fn alike(switch: &Switch) -> bool {
    switch.states.len() == 1 && switch.jobs.len() <= 1
}

fn rows_of(
    switch: &Switch,
    depth: usize,
    unfold: bool,
    indent: usize,
    rows: &mut Vec<(String, String, String)>,
) {
    let name = match switch.switch.is_empty() {
        true => "root".to_string(),
        false => format!("{:indent$}{}", "", switch.switch, indent = indent * 2),
    };
    rows.push((name, switch.nodes.clone(), state_text(switch)));
    if depth > 0 && (unfold || !alike(switch)) {
        for child in &switch.children {
            rows_of(child, depth - 1, unfold, indent + 1, rows);
        }
    }
}

/// `2 busy n[0-1], 1 idle n3; job 7`.
fn state_text(switch: &Switch) -> String {
    let states: Vec<String> = switch
        .states
        .iter()
        .map(|(word, count)| match switch.nodes_by_state.get(word) {
            Some(nodes) if switch.states.len() > 1 => format!("{count} {word} {nodes}"),
            _ => format!("{count} {word}"),
        })
        .collect();
    let mut text = states.join(", ");
    let jobs: Vec<String> = switch.jobs.iter().map(u64::to_string).collect();
    match jobs.len() {
        0 => {}
        1 => text.push_str(&format!("; job {}", jobs[0])),
        2..=4 => text.push_str(&format!("; jobs {}", jobs.join(","))),
        many => text.push_str(&format!("; {many} jobs")),
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::{Drained, NodeState};

    fn nodes(count: u32) -> Vec<NodeInfo> {
        let node = |node| NodeInfo {
            name: hostlist::name(node),
            node,
            state: NodeState::Idle,
            ..NodeInfo::default()
        };
        (0..count).map(node).collect()
    }

    fn busy(node: &mut NodeInfo, job: u64) {
        node.state = NodeState::Busy;
        node.job = Some(job);
    }

    #[test]
    fn a_small_tree_is_shown_whole() {
        let text = text(&root(&[2, 2], &nodes(4)), &[2, 2], false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "SWITCH  NODES   STATE",
                "root    n[0-3]  4 idle",
                "  0     n[0-1]  2 idle",
                "  1     n[2-3]  2 idle",
            ]
        );
    }

    #[test]
    fn leaves_that_are_alike_are_folded_where_there_are_many() {
        let widths = [2, 2, 32];
        let mut nodes = nodes(128);
        busy(&mut nodes[5], 7);
        nodes[6].drained = Some(Drained {
            reason: "fan".into(),
            since_unix_us: 0,
            by: "eva".into(),
        });
        let text = text(&root(&widths, &nodes), &widths, false);
        let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
        assert_eq!(
            lines[..7],
            [
                "SWITCH   NODES       STATE",
                "root     n[0-127]    1 busy, 1 drained, 126 idle; job 7",
                "  0      n[0-3]      4 idle",
                "  1      n[4-7]      1 busy, 1 drained, 2 idle; job 7",
                "    1.0  n[4-5]      1 busy n5, 1 idle n4; job 7",
                "    1.1  n[6-7]      1 drained n6, 1 idle n7",
                "  2      n[8-11]     4 idle",
            ]
        );
        assert_eq!(lines.len(), 2 + 32 + 2);
    }

    #[test]
    fn a_large_tree_fits_on_a_screen_and_can_be_unfolded() {
        let widths = [4, 16, 16];
        let mut nodes = nodes(1024);
        nodes.iter_mut().step_by(3).for_each(|node| busy(node, 1));
        let tree = root(&widths, &nodes);
        assert_eq!(text(&tree, &widths, false).lines().count(), 1 + 1 + 16);
        assert_eq!(text(&tree, &widths, true).lines().count(), 1 + 1 + 16 + 256);
        let all: u32 = tree
            .children
            .iter()
            .flat_map(|child| child.states.values())
            .sum();
        assert_eq!(all, 1024);
    }

    #[test]
    fn one_switch_has_one_line() {
        let text = text(&root(&[], &nodes(3)), &[], false);
        assert_eq!(text.lines().last(), Some("root    n[0-2]  3 idle"));
    }
}
