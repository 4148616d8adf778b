//! The logs of the nodes' kernels, as far as they have come, for `hearth console`.
//!
//! Key type: [`NodeLogs`]. Neighbours: `netstack::control` has the lines, `control_events` puts
//! them here, `api::nodes` gives them out.
//!
//! Invariant: no more than [`NODE_BYTES`] of a node and [`ALL_BYTES`] of all nodes are kept; what
//! is kept is printable.

use std::collections::{BTreeMap, VecDeque};

use crate::api::types::NodeLogPart;

/// Kept of one node: its kernel keeps half as much.
const NODE_BYTES: usize = 32 * 1024;
/// Kept of all nodes: of the largest clusters the nodes that have spoken last.
const ALL_BYTES: usize = 64 * 1024 * 1024;
/// A line costs so much beside its text.
const LINE_BYTES: usize = 48;
/// Lines of one answer.
const PART_LINES: usize = 1_024;

/// The log of one node.
#[derive(Debug, Default)]
struct Log {
    /// The boot that has spoken last.
    boot: u64,
    lines: VecDeque<String>,
    /// What these are counted with.
    bytes: usize,
    /// Number of the line that comes next; they begin with 0 when control starts.
    next: u64,
    /// When it spoke last, in turns of all nodes.
    spoke: u64,
}

impl Log {
    fn push(&mut self, line: String) {
        self.bytes += line.len() + LINE_BYTES;
        self.lines.push_back(line);
        self.next += 1;
        while self.bytes > NODE_BYTES
            && let Some(oldest) = self.lines.pop_front()
        {
            self.bytes -= oldest.len() + LINE_BYTES;
        }
    }
}

/// The logs of all nodes.
#[derive(Debug, Default)]
pub struct NodeLogs {
    by_node: BTreeMap<u32, Log>,
    bytes: usize,
    turns: u64,
}

impl NodeLogs {
    /// Lines of a node's log have come; `missed` lines before them have not.
    pub fn push(&mut self, node: u32, boot: u64, missed: u32, text: &str) {
        self.turns += 1;
        let log = self.by_node.entry(node).or_default();
        log.spoke = self.turns;
        let before = log.bytes;
        if log.boot != boot {
            if log.boot != 0 {
                log.push("(it has booted again)".to_string());
            }
            log.boot = boot;
        }
        if missed > 0 {
            let missed = crate::output::count(missed as usize, "line");
            log.push(format!("({missed} missing)"));
        }
        text.lines().map(printable).for_each(|line| log.push(line));
        self.bytes = self.bytes + log.bytes - before;
        while self.bytes > ALL_BYTES {
            self.forget_one();
        }
    }

    /// Forgets the lines of the node that has been silent for longest.
    fn forget_one(&mut self) {
        let with_lines = self.by_node.values_mut().filter(|log| log.bytes > 0);
        if let Some(log) = with_lines.min_by_key(|log| log.spoke) {
            self.bytes -= log.bytes;
            log.bytes = 0;
            log.lines.clear();
        }
    }

    /// What is kept of a node's log from line `from` on; of a node that never spoke, nothing.
    pub fn part(&self, node: u32, from: u64) -> NodeLogPart {
        let Some(log) = self.by_node.get(&node) else {
            return NodeLogPart::default();
        };
        let first = log.next - log.lines.len() as u64;
        // Numbers of another run of control begin anew.
        let from = if from > log.next { first } else { from };
        let skipped = usize::try_from(from.saturating_sub(first)).unwrap_or(usize::MAX);
        let lines = log.lines.iter().skip(skipped).take(PART_LINES);
        let lines: Vec<String> = lines.cloned().collect();
        let begin = from.max(first);
        NodeLogPart {
            forgotten: begin - from,
            next: begin + lines.len() as u64,
            lines,
        }
    }
}

/// A line of what a node says, which a terminal must not take for commands.
fn printable(line: &str) -> String {
    let shown = |letter: char| match letter {
        '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    line.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_read_on_from_where_somebody_was() {
        let mut logs = NodeLogs::default();
        assert_eq!(logs.part(3, 0), NodeLogPart::default());
        logs.push(3, 7, 0, "one\ntwo \u{1b}[2J\n");
        let part = logs.part(3, 0);
        assert_eq!(part.lines, ["one", "two \u{fffd}[2J"]);
        assert_eq!((part.next, part.forgotten), (2, 0));
        logs.push(3, 7, 5, "three\n");
        logs.push(3, 8, 0, "four\n");
        let part = logs.part(3, part.next);
        let wanted = [
            "(5 lines missing)",
            "three",
            "(it has booted again)",
            "four",
        ];
        assert_eq!(part.lines, wanted);
        assert_eq!(logs.part(3, part.next).lines, [""; 0]);
        // Control was started again since: from the beginning.
        assert_eq!(logs.part(3, 1_000).lines.len(), 6);
        assert_eq!(logs.part(4, 0), NodeLogPart::default());
    }

    #[test]
    fn what_is_kept_has_bounds() {
        let mut logs = NodeLogs::default();
        let text = "x".repeat(99) + "\n";
        for _ in 0..1_000 {
            logs.push(0, 1, 0, &text);
        }
        let part = logs.part(0, 0);
        assert!(part.lines.len() * (99 + LINE_BYTES) <= NODE_BYTES);
        assert_eq!(part.forgotten + part.lines.len() as u64, 1_000);
        assert_eq!(part.next, 1_000);
        for node in 1..3_000 {
            for _ in 0..300 {
                logs.push(node, 1, 0, &text);
            }
            assert!(logs.bytes <= ALL_BYTES);
        }
        let sum: usize = logs.by_node.values().map(|log| log.bytes).sum();
        assert_eq!(sum, logs.bytes);
        // The one that was silent for longest has gone, and goes on where it was.
        assert!(logs.part(0, 0).lines.is_empty());
        assert_eq!(logs.part(0, 0).next, 1_000);
        logs.push(0, 1, 0, "back\n");
        assert_eq!(logs.part(0, 1_000).lines, ["back"]);
    }
}
