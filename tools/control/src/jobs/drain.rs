//! Nodes for the queue: joining, leaving, drained by people and after repeated failures.
//!
//! Neighbours: `control_events` says what nodes do; `nodes` keeps it; `lifecycle` deals with the
//! job of a node that is lost.
//!
//! Invariant: a drained node gets no job; the one it has goes on to its end.

use super::fabric::Fabric;
use super::nodes::NodeError;
use super::record::Cause;
use super::users::Users;
use super::{Due, Runner};
use crate::api::types::Drained;
use crate::clock;
use crate::config::queue::Passes;
use crate::events::{Event, Severity};
use crate::hostlist;
use crate::principal::Principal;

/// Who drains nodes after failures.
const CONTROL: &str = "hearth";
/// Panics of a node's kernel after which it gets no jobs, and the time in which they count: a job
/// that makes kernels panic does so on one node twice at most, so it is the node.
const NODE_PANICS_MAX: usize = 3;
const NODE_PANICS_WITHIN_US: u64 = 600_000_000;

/// Why a job ends whose node went without leave.
fn crashed(reason: String, panicked: bool) -> Cause {
    Cause::NodeCrashed { reason, panicked }
}

impl Runner {
    /// A node that is about to be up has so many cores.
    pub fn node_has_cores(&mut self, node: u32, cores: u16) {
        self.nodes.set_cores(node, cores);
    }

    /// A node joined. `fresh` says that it has booted since it was last heard of.
    pub fn node_up(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32, fresh: bool) {
        // A job of an earlier run of control is not known to be lost yet: its node is asked.
        if fresh && self.nodes.job_of(node).is_some() && !self.is_awaited(node) {
            let reason = format!("{} booted again", hostlist::name(node));
            self.lose_node(now_us, fabric, node, crashed(reason, false));
        }
        self.heard(node, fresh);
        if !self.nodes.has_place(node) {
            let name = hostlist::name(node);
            let places = crate::output::count(self.nodes.places(), "place");
            let text = format!(
                "{name} gets no jobs: the tree of the network has {places}, and none is {name}'s; \
                 correct serve.tree"
            );
            self.events
                .push(Event::new(Severity::Warning, "node-without-place", text).node(node));
        }
        self.nodes.set_up(node, true);
        self.nodes_changed();
        self.settle(now_us, fabric);
    }

    /// A node is not heard of any more, or only its next boot is.
    pub fn node_down(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32, reason: &str) {
        self.lose_node(now_us, fabric, node, crashed(reason.to_string(), false));
        self.nodes_changed();
        self.settle(now_us, fabric);
    }

    /// A node leaves since somebody asked it to.
    pub fn node_left(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32, reason: &str) {
        self.nodes.note_left(node);
        self.lose_node(now_us, fabric, node, Cause::NodeLost(reason.to_string()));
        self.nodes_changed();
        self.settle(now_us, fabric);
    }

    /// A node that fell silent under jobs has not crashed, unless it is heard in a `fresh` boot.
    fn heard(&mut self, node: u32, fresh: bool) {
        let open = self
            .jobs
            .values_mut()
            .filter(|job| !job.info.state.is_final());
        for job in open {
            let is_news = match fresh {
                true => job.note_booted(node),
                false => job.note_heard_again(node),
            };
            if is_news {
                self.records.push(job.record());
            }
        }
    }

    /// Gives nodes no more jobs; those that they have go on. A node that is drained already keeps
    /// the time and gets the reason.
    ///
    /// # Errors
    /// [`NodeError`]; nothing has changed then.
    pub fn drain(&mut self, by: &Principal, nodes: &[u32], reason: &str) -> Result<(), NodeError> {
        let operator = by.operator()?;
        let by = operator.name();
        self.nodes.check(nodes, Some(reason))?;
        if !Users::is_name(by) {
            let shown = by.chars().take(64).collect();
            return Err(NodeError::By(shown));
        }
        for node in nodes {
            self.set_drained(*node, reason.trim(), by);
        }
        self.nodes_changed();
        Ok(())
    }

    /// Gives drained nodes jobs again.
    ///
    /// # Errors
    /// [`NodeError`]; nothing has changed then.
    pub fn resume(&mut self, by: &Principal, nodes: &[u32]) -> Result<(), NodeError> {
        by.operator()?;
        self.nodes.check(nodes, None)?;
        for node in nodes {
            self.nodes.set_drained(*node, None);
            self.drains.insert(*node, None);
            let text = format!("{} gets jobs again", hostlist::name(*node));
            self.events
                .push(Event::new(Severity::Info, "node-resumed", text).node(*node));
        }
        self.nodes_changed();
        Ok(())
    }

    /// Why a node gets no jobs, if it is drained. One that still has a job is draining.
    pub fn drained(&self, node: u32) -> Option<&Drained> {
        self.nodes.drained(node)
    }

    /// Nodes that were drained in an earlier run of control.
    pub fn restore_drained(&mut self, drained: impl IntoIterator<Item = (u32, Drained)>) {
        for (node, drained) in drained {
            self.nodes.set_drained(node, Some(drained));
        }
    }

    /// A job has failed because of a node; too often in a row, and it is drained.
    pub(super) fn node_failed(&mut self, node: u32, what: &str) {
        let failures = self.nodes.failed(node);
        let most = self.queueing.drain_after_failures;
        if most == 0 || failures < most || self.nodes.drained(node).is_some() {
            return;
        }
        let reason = match failures {
            1 => format!("a job failed on it: {what}"),
            _ => format!("{failures} jobs in a row failed on it, the last: {what}"),
        };
        let reason: String = reason.chars().take(200).collect();
        self.set_drained(node, &reason, CONTROL);
    }

    /// The kernel of a node has panicked; it boots again by itself. Too often within a while, and
    /// it gets no jobs.
    pub fn node_panicked(&mut self, now_us: u64, fabric: &mut dyn Fabric, node: u32) {
        let reason = format!("{} was lost (its kernel panicked)", hostlist::name(node));
        self.lose_node(now_us, fabric, node, crashed(reason, true));
        let panics = self.nodes.panicked(node, now_us, NODE_PANICS_WITHIN_US);
        if panics < NODE_PANICS_MAX || self.nodes.drained(node).is_some() {
            return;
        }
        let minutes = NODE_PANICS_WITHIN_US / 60_000_000;
        let name = hostlist::name(node);
        let reason = format!(
            "its kernel panicked {panics} times within {minutes} minutes: `hearth events` and `hearth console {name}` say why"
        );
        self.set_drained(node, &reason, CONTROL);
    }

    fn set_drained(&mut self, node: u32, reason: &str, by: &str) {
        let since = self
            .nodes
            .drained(node)
            .map(|drained| drained.since_unix_us);
        let drained = Drained {
            reason: reason.to_string(),
            since_unix_us: since.unwrap_or_else(clock::unix_us),
            by: by.to_string(),
        };
        let name = hostlist::name(node);
        let text =
            format!("{name} gets no jobs ({by}: {reason}); `hearth resume {name}` ends that");
        let severity = match by {
            CONTROL => Severity::Error,
            _ => Severity::Info,
        };
        self.events
            .push(Event::new(severity, "node-drained", text).node(node));
        self.drains.insert(node, Some(drained.clone()));
        self.nodes.set_drained(node, Some(drained));
    }

    /// A pass is due since nodes have come or gone, unless passes are as published.
    pub(super) fn nodes_changed(&mut self) {
        if self.queueing.passes == Passes::Every {
            self.pass_due = Due::Now;
        }
    }
}
