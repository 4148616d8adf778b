//! Building: each process tells the children to be what is below them, all at once.
//!
//! A list goes in parts of [`BUILD_ENTRIES`]; a few are under way at a time, and the answer names
//! the part that is wanted next. A child that does not answer is given up: its own children find a
//! place through the front end, which they ask when nobody invites them. Of one that refuses the
//! front end is told: it makes another tree.

use alloc::vec::Vec;

use super::Hub;
use crate::overlay::message::{
    BUILD_ENTRIES, Build, BuildEntry, Candidate, CensusEntry, Message, Process,
};
use crate::overlay::metric::OverlayMetric;
use crate::overlay::uplink::Io;
use crate::overlay::{RETRY_FIRST, RETRY_SLOWEST};
use crate::time::Instant;
use crate::transport::retry::Backoff;

/// Parts under way to one child, each a datagram: less than the initial window of RFC 6928.
const WINDOW: u16 = 8;
/// Attempts without an answer: some five seconds, which is twice the time after which a child is
/// lost.
const TRIES: u32 = 7;
const AGAIN: Backoff = Backoff::new(RETRY_FIRST, RETRY_SLOWEST);

/// A child to be, and the list that it gets.
#[derive(Clone, Debug)]
pub(in crate::overlay) struct Transfer {
    child: BuildEntry,
    /// Whom it is to attach to.
    parent: Candidate,
    entries: Vec<BuildEntry>,
    /// The part it wants next, and the one that is sent next.
    wanted: u16,
    sent: u16,
    tries: u32,
    at: Instant,
}

impl Transfer {
    pub fn child(&self) -> Process {
        self.child.process
    }

    fn parts(&self) -> u16 {
        self.entries.len().div_ceil(BUILD_ENTRIES).max(1) as u16
    }

    /// Bytes of the list.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<BuildEntry>() + size_of::<Transfer>()
    }

    pub fn is_done(&self) -> bool {
        self.wanted >= self.parts()
    }

    pub fn deadline(&self) -> Instant {
        self.at
    }
}

impl Hub {
    /// Builds what is below: a list in pre-order, cut into the subtrees of the children.
    pub fn build(&mut self, io: &mut Io<'_>, me: Candidate, entries: Vec<BuildEntry>) {
        let mut entries = entries.into_iter().peekable();
        while let Some(child) = entries.next() {
            let mut below = Vec::new();
            while let Some(entry) = entries.next_if(|entry| entry.depth > 1) {
                below.push(BuildEntry {
                    depth: entry.depth - 1,
                    ..entry
                });
            }
            self.invite(io, me, child, below);
        }
    }

    /// Tells one process to be to attach to `parent`.
    pub fn invite(
        &mut self,
        io: &mut Io<'_>,
        parent: Candidate,
        child: BuildEntry,
        entries: Vec<BuildEntry>,
    ) {
        self.transfers
            .retain(|transfer| transfer.child() != child.process);
        self.transfers.push(Transfer {
            child,
            parent,
            entries,
            wanted: 0,
            sent: 0,
            tries: 0,
            at: io.now,
        });
    }

    /// A child answers.
    pub fn build_ack(&mut self, io: &mut Io<'_>, process: Process, next: u16, refused: bool) {
        let found = self
            .transfers
            .iter_mut()
            .find(|transfer| transfer.child() == process);
        let Some(transfer) = found else {
            return;
        };
        if refused {
            io.count(OverlayMetric::Refused, 1);
            self.transfers
                .retain(|transfer| transfer.child() != process);
            let entry = CensusEntry {
                process,
                parent: self.me,
                refused: true,
                ..CensusEntry::default()
            };
            return self.tell_of(io, entry);
        }
        if next > transfer.wanted {
            transfer.wanted = next.min(transfer.parts());
            transfer.sent = transfer.sent.max(transfer.wanted);
            transfer.tries = 0;
            transfer.at = io.now;
        }
        self.transfers.retain(|transfer| !transfer.is_done());
    }

    pub(super) fn continue_transfers(&mut self, io: &mut Io<'_>) {
        let me = self.me;
        self.transfers.retain_mut(|transfer| {
            if transfer.at > io.now {
                return true;
            }
            if transfer.tries >= TRIES {
                io.count(OverlayMetric::Unbuilt, 1);
                return false;
            }
            // Nothing came since the last round: everything under way is sent again.
            if transfer.tries > 0 {
                transfer.sent = transfer.wanted;
            }
            let end = transfer.parts().min(transfer.wanted + WINDOW);
            for part in transfer.sent..end {
                let begin = usize::from(part) * BUILD_ENTRIES;
                let chunk = transfer.entries.iter().skip(begin).take(BUILD_ENTRIES);
                let build = Build {
                    parent: transfer.parent,
                    height: transfer.child.height,
                    part,
                    parts: transfer.parts(),
                    entries: chunk.copied().collect(),
                };
                let to = (transfer.child.process, transfer.child.peer);
                io.send(me, to, Message::Build(build));
            }
            transfer.sent = end;
            transfer.at = io.now + AGAIN.wait_for_answer(transfer.tries, io.rng);
            transfer.tries += 1;
            true
        });
    }
}
