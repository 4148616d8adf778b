//! Why nodes are not in service, and how they come back, for jobs and casts that wait for them.
//!
//! Key function: [`told`]. Neighbours: `nodes` knows why, `allocator` puts it behind what a job
//! needs.
//!
//! Invariant: a text has one part for each reason, however many nodes there are, and few parts for
//! drained nodes.

use std::collections::BTreeMap;

use super::nodes::Nodes;
use crate::{hostlist, output};

/// Longest list of nodes in a text, in bytes: each job that waits for them names it.
const LIST_MAX: usize = 200;

/// Most reasons for drained nodes in a text: control's own name the job or node, and so may differ
/// on each node.
const REASONS_MAX: usize = 4;

/// What stands for the reasons beyond them.
const OTHER_REASONS: &str = "other reasons, which `hearth nodes --json` has";

/// Why a node is not in service, in the order in which it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Absence {
    /// Somebody asked it to leave.
    Left,
    /// Nothing is heard of it any more.
    Lost,
    /// It has not joined in this run of control.
    Unheard,
    /// Somebody drained it, or control did after failures.
    Drained,
    /// It ends a job that is over for control.
    Stuck,
}

/// Why those of `which` that are not in service are not, and what brings them back; empty where all
/// are. `awaited`: control has just started, and those that it has not heard are about to be.
pub(super) fn told(nodes: &Nodes, which: impl Iterator<Item = u32>, awaited: bool) -> String {
    let mut absent: BTreeMap<(Absence, &str), Vec<u32>> = BTreeMap::new();
    let mut reasons = 0;
    for node in which {
        let Some(why) = nodes.absence(node) else {
            continue;
        };
        let mut reason = "";
        if why == Absence::Drained {
            reason = nodes.drained(node).map_or("", |drained| &drained.reason);
            let is_new = !absent.contains_key(&(why, reason));
            if is_new && reasons == REASONS_MAX {
                reason = OTHER_REASONS;
            } else if is_new {
                reasons += 1;
            }
        }
        absent.entry((why, reason)).or_default().push(node);
    }
    let parts = absent
        .iter()
        .map(|((why, reason), absent)| part(*why, absent, reason, awaited));
    parts.collect::<Vec<String>>().join("; ")
}

/// What is said of the nodes with one reason; `drained` is why they are, if they are.
fn part(why: Absence, nodes: &[u32], drained: &str, awaited: bool) -> String {
    let list = hostlist::format(nodes);
    // What is too long to be named is too long to be typed.
    let (who, list) = match list.len() <= LIST_MAX {
        true => (list.clone(), list),
        false => (output::count(nodes.len(), "node"), "LIST".to_string()),
    };
    let (is, has, its, them) = match nodes.len() {
        1 => ("is", "has", "its power switch", "it"),
        _ => ("are", "have", "their power switches", "them"),
    };
    let start = |again: &str| {
        let verb = match nodes.len() {
            1 => "starts",
            _ => "start",
        };
        format!("`hearth node reset {list}` or {its} {verb} {them}{again}")
    };
    match why {
        Absence::Left => format!("{who} left in good order, {}", start(" again")),
        Absence::Lost => format!(
            "{who} {is} lost and may join again by {them_self}, {}",
            start(" again"),
            them_self = match nodes.len() {
                1 => "itself",
                _ => "themselves",
            }
        ),
        Absence::Unheard if awaited => format!("{who} {has} not been heard yet"),
        Absence::Unheard => format!("{who} {has} not joined, {}", start("")),
        Absence::Drained => format!(
            "{who} {is} drained ({drained}), `hearth resume {list}` gives {them} jobs again"
        ),
        Absence::Stuck => format!("{who} still {has} to end an earlier job"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::Drained;

    fn all(nodes: &Nodes, awaited: bool) -> String {
        told(nodes, nodes.with_place(), awaited)
    }

    #[test]
    fn each_reason_is_told_once_with_what_helps() {
        let mut nodes = Nodes::new(None, None, 1).unwrap();
        (0..8).for_each(|node| nodes.set_up(node, true));
        assert_eq!(all(&nodes, false), "");
        for node in [1, 2, 3] {
            nodes.set_up(node, false);
        }
        nodes.note_left(2);
        nodes.note_left(3);
        nodes.know(9);
        let drained = Drained {
            reason: "fan".to_string(),
            since_unix_us: 1,
            by: "root".to_string(),
        };
        nodes.set_drained(5, Some(drained));
        assert_eq!(
            all(&nodes, false),
            "n[2-3] left in good order, `hearth node reset n[2-3]` or their power switches start them again; \
             n1 is lost and may join again by itself, `hearth node reset n1` or its power switch starts it again; \
             n9 has not joined, `hearth node reset n9` or its power switch starts it; \
             n5 is drained (fan), `hearth resume n5` gives it jobs again"
        );
        // Nobody is to reset nodes that are about to be heard.
        assert!(all(&nodes, true).contains("n9 has not been heard yet; n5"));
        // One that joins again has not left any more.
        nodes.set_up(2, true);
        nodes.set_up(2, false);
        let text = all(&nodes, false);
        assert!(text.starts_with("n3 left in good order"), "{text}");
        assert!(text.contains("n[1-2] are lost"), "{text}");
    }

    #[test]
    fn who_is_lost_after_it_was_asked_to_leave_is_lost() {
        let mut nodes = Nodes::new(None, None, 1).unwrap();
        nodes.set_up(1, true);
        for _ in ["asked to leave", "has left"] {
            nodes.note_left(1);
            nodes.set_up(1, false);
            assert!(all(&nodes, false).starts_with("n1 left in good order"));
        }
        nodes.set_up(1, true);
        nodes.note_left(1);
        nodes.set_up(1, false);
        // Silent, or its kernel panicked.
        nodes.set_up(1, false);
        assert!(all(&nodes, false).starts_with("n1 is lost"));
    }

    #[test]
    fn drained_nodes_are_told_by_reason_and_only_while_they_are_up() {
        let mut nodes = Nodes::new(None, None, 1).unwrap();
        (0..12).for_each(|node| nodes.set_up(node, true));
        let drain = |nodes: &mut Nodes, node: u32, reason: &str| {
            let drained = Drained {
                reason: reason.to_string(),
                since_unix_us: 1,
                by: "root".to_string(),
            };
            nodes.set_drained(node, Some(drained));
        };
        for (node, reason) in [(1, "fan"), (2, "disk"), (3, "fan")] {
            drain(&mut nodes, node, reason);
        }
        assert_eq!(
            all(&nodes, false),
            "n2 is drained (disk), `hearth resume n2` gives it jobs again; \
             n[1,3] are drained (fan), `hearth resume n[1,3]` gives them jobs again"
        );
        nodes.note_left(2);
        nodes.set_up(2, false);
        nodes.set_up(3, false);
        let text = all(&nodes, false);
        assert!(text.starts_with("n2 left in good order"), "{text}");
        assert!(
            text.contains("n3 is lost") && !text.contains("disk"),
            "{text}"
        );
        assert!(text.contains("n1 is drained (fan)"), "{text}");
        for node in 4..12 {
            drain(&mut nodes, node, &format!("job {node} failed"));
        }
        let text = all(&nodes, false);
        assert!(text.contains("n6 is drained (job 6 failed)"), "{text}");
        assert!(
            text.contains("n[7-11] are drained (other reasons"),
            "{text}"
        );
    }

    #[test]
    fn a_long_list_is_a_number() {
        let mut nodes = Nodes::new(None, None, 1).unwrap();
        (0..400).for_each(|node| nodes.know(node * 2));
        let text = all(&nodes, false);
        assert!(text.starts_with("400 nodes have not joined"), "{text}");
        assert!(text.contains("reset LIST") && text.len() < 200, "{text}");
    }
}
