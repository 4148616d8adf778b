//! The lines of a node's log on their way to the control node.
//!
//! One report of lines is under way at a time and repeated until it is acknowledged, ever more
//! slowly: a log is read by people, and waits for everything else. The node keeps its lines in a
//! ring of its own, and says how many it had to let go ([`NodeLog::missed`]). A control node that
//! was started again may get the last report twice.
//!
//! Key type: [`Sender`], the node's side. The control node's side is one number in
//! [`crate::join::slot`]. Neighbours: [`crate::node::Endpoint`] asks what is due.
//!
//! Invariant: a report that was given is sent, in every session that comes, until it is
//! acknowledged.

use alloc::string::String;

use crate::rng::Rng;
use crate::time::{Instant, Micros};
use crate::transport::retry::{Backoff, FIRST};
use crate::wire::log::{NodeLog, TEXT_MAX};

/// Repetition of a report nobody has acknowledged. Nobody waits for it: it begins with twice the
/// usual wait, and is in the end as seldom as HELLO after a refusal.
const REPORT: Backoff = Backoff::new(FIRST.saturating_mul(2), Micros::from_secs(30));

/// A report that was not acknowledged.
#[derive(Debug)]
struct UnderWay {
    missed: u32,
    text: String,
    tries: u32,
    next_at: Instant,
}

/// What is told of a node's log.
#[derive(Debug, Default)]
pub(crate) struct Sender {
    /// Number of the last report made in this session.
    number: u64,
    under_way: Option<UnderWay>,
}

impl Sender {
    /// Nothing is under way: lines may be given.
    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_none()
    }

    /// Whole lines to be told, and how many are missing before them. Panics when something is
    /// under way, or with other text than a report may have.
    pub(crate) fn give(&mut self, missed: u32, text: &str) {
        assert!(self.is_idle(), "one report at a time");
        assert!(text.ends_with('\n') && text.len() <= TEXT_MAX);
        self.number += 1;
        self.under_way = Some(UnderWay {
            missed,
            text: text.into(),
            tries: 0,
            next_at: Instant::ZERO,
        });
    }

    /// The control node of the new session has not counted any report.
    pub(crate) fn new_session(&mut self) {
        self.number = u64::from(self.under_way.is_some());
        if let Some(report) = &mut self.under_way {
            (report.tries, report.next_at) = (0, Instant::ZERO);
        }
    }

    /// The control node has taken a report; false when it is not the one under way.
    pub(crate) fn acknowledged(&mut self, number: u64) -> bool {
        let is_it = number == self.number;
        self.under_way.take_if(|_| is_it).is_some()
    }

    /// When a report is to be sent.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.under_way.as_ref().map(|report| report.next_at)
    }

    /// The report that is due, and whether it is a repetition. It counts as sent.
    pub(crate) fn due(&mut self, now: Instant, rng: &mut Rng) -> Option<(NodeLog<'_>, bool)> {
        let number = self.number;
        let report = self.under_way.as_mut()?;
        if report.next_at > now {
            return None;
        }
        report.next_at = now + REPORT.wait_for_answer(report.tries, rng);
        report.tries += 1;
        let is_repeated = report.tries > 1;
        let message = NodeLog {
            number,
            missed: report.missed,
            text: &report.text,
        };
        Some((message, is_repeated))
    }
}
