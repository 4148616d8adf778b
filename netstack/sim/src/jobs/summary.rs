//! What sessions and jobs came to.

use netstack::ids::JobId;
use serde_json::{Value, json};

use super::Sessions;
use super::operator::State;
use crate::net::Net;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// When all nodes were up for the first time, in nanoseconds.
    pub all_up_ns: Option<u64>,
    /// Datagrams handed to the network.
    pub datagrams: u64,
    /// Nodes that joined, counted by event.
    pub joins: u64,
    /// Nodes that were lost, counted by event.
    pub losses: u64,
    /// Bytes of output that arrived.
    pub output_bytes: u64,
    /// Jobs that closed.
    pub closed: usize,
    /// Ranks that went on over a restart of the control node.
    pub adopted: u64,
    /// Of the closed jobs, those that ran to their end on all ranks.
    pub completed: usize,
    /// Ranks that exited and had found pages of their program.
    pub warm_ranks: u64,
    /// Ranks that exited and had fetched no page of their program.
    pub silent_ranks: u64,
    /// Drops that nodes answered.
    pub dropped: u64,
}

impl Figures {
    /// Of a run that has ended.
    pub(crate) fn of(sessions: &Sessions, net: &Net) -> Self {
        let operator = &sessions.operator;
        let closed = |job: &&JobId| operator.state(**job) == State::Closed;
        let whole = |job: &&JobId| closed(job) && operator.failures(**job).is_empty();
        Figures {
            all_up_ns: sessions.all_up_ns,
            datagrams: net.fabric.tally.datagrams,
            joins: operator.joins,
            losses: operator.losses,
            output_bytes: operator.output_bytes,
            closed: operator.plans.keys().filter(closed).count(),
            adopted: operator.adopted,
            completed: operator.plans.keys().filter(whole).count(),
            warm_ranks: operator.warm_ranks,
            silent_ranks: operator.silent_ranks,
            dropped: operator.dropped,
        }
    }

    /// The figures for programs.
    pub(crate) fn json(&self) -> Value {
        json!({
            "all_up_s": self.all_up_ns.map(|ns| ns as f64 / 1e9),
            "joins": self.joins,
            "losses": self.losses,
            "output_bytes": self.output_bytes,
            "jobs_closed": self.closed,
            "jobs_completed": self.completed,
            "adopted_ranks": self.adopted,
            "warm_ranks": self.warm_ranks,
            "silent_ranks": self.silent_ranks,
            "dropped_programs": self.dropped,
        })
    }

    /// The figures for people.
    pub(crate) fn tell(&self, row: &mut dyn FnMut(&str, String)) {
        let up = self.all_up_ns.map_or("never".into(), |ns| {
            format!("after {:.6} s", ns as f64 / 1e9)
        });
        row("all nodes up", up);
        row(
            "nodes joined, lost",
            format!("{}, {}", self.joins, self.losses),
        );
        row(
            "jobs closed, to their end",
            format!("{}, {}", self.closed, self.completed),
        );
        row("bytes of output", self.output_bytes.to_string());
        row(
            "ranks adopted, warm, silent",
            format!(
                "{}, {}, {}",
                self.adopted, self.warm_ranks, self.silent_ranks
            ),
        );
    }
}
