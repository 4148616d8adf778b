//! Calls that the nodes have no reply to, by rank and number: each is carried out once, also when
//! it comes again by another service, which knows nothing of it.
//!
//! Invariant: a call that changes something, or opens something, is carried out once. One that does
//! neither may be carried out again, and nothing is kept of it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use netstack::files::{Op, Reply};
use netstack::ids::Rank;

/// What is to be done about a call that has come.
#[derive(Debug, PartialEq, Eq)]
pub enum Coming {
    /// It is to be carried out.
    New,
    /// It is being carried out: its reply will be sent.
    UnderWay,
    /// It has been carried out.
    Done(Reply),
    /// The node has its reply.
    Over,
}

/// The calls of all ranks of a job.
#[derive(Debug, Default)]
pub struct Known(Mutex<HashMap<Rank, Calls>>);

#[derive(Debug, Default)]
struct Calls {
    done: u64,
    /// `None`: under way.
    replies: BTreeMap<u64, Option<Reply>>,
}

impl Known {
    fn ranks(&self) -> MutexGuard<'_, HashMap<Rank, Calls>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call has come; the node has the replies of all below `done`.
    pub fn begin(&self, rank: Rank, number: u64, done: u64) -> Coming {
        let mut ranks = self.ranks();
        let calls = ranks.entry(rank).or_default();
        if done > calls.done {
            calls.done = done;
            calls.replies = calls.replies.split_off(&done);
        }
        if number < calls.done {
            return Coming::Over;
        }
        match calls.replies.get(&number) {
            Some(None) => Coming::UnderWay,
            Some(Some(reply)) => Coming::Done(reply.clone()),
            None => {
                calls.replies.insert(number, None);
                Coming::New
            }
        }
    }

    /// A call has been carried out.
    pub fn end(&self, rank: Rank, number: u64, op: Op, reply: &Reply) {
        let mut ranks = self.ranks();
        let Some(calls) = ranks.get_mut(&rank) else {
            return;
        };
        if is_repeatable(op) {
            calls.replies.remove(&number);
        } else if let Some(kept) = calls.replies.get_mut(&number) {
            *kept = Some(reply.clone());
        }
    }
}

/// Whether a call leaves everything as it was. fsync does not: it tells of an error once.
fn is_repeatable(op: Op) -> bool {
    match op {
        Op::Read
        | Op::ReadDirectory
        | Op::Stat
        | Op::StatFileSystem
        | Op::Access
        | Op::ReadLink
        | Op::Seek
        | Op::Path => true,
        Op::Open
        | Op::Close
        | Op::Write
        | Op::MakeDirectory
        | Op::Remove
        | Op::Rename
        | Op::Link
        | Op::SymbolicLink
        | Op::ChangeMode
        | Op::ChangeOwner
        | Op::SetTimes
        | Op::SetLength
        | Op::Allocate
        | Op::Sync
        | Op::Lock
        | Op::Copy
        | Op::SetFlags => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_something_is_carried_out_once_and_nothing_else_is_kept() {
        let known = Known::default();
        let rank = Rank(3);
        assert_eq!(known.begin(rank, 1, 1), Coming::New);
        assert_eq!(known.begin(rank, 1, 1), Coming::UnderWay);
        known.end(rank, 1, Op::Write, &Reply::plain(7));
        assert_eq!(known.begin(rank, 1, 1), Coming::Done(Reply::plain(7)));
        assert_eq!(known.begin(Rank(4), 1, 1), Coming::New, "another rank's");
        assert_eq!(known.begin(rank, 2, 1), Coming::New);
        known.end(rank, 2, Op::Read, &Reply::plain(9));
        assert_eq!(known.begin(rank, 2, 1), Coming::New, "read once more");
        // The node has the first one's reply.
        assert_eq!(known.begin(rank, 3, 2), Coming::New);
        assert_eq!(known.begin(rank, 1, 1), Coming::Over);
        assert_eq!(known.ranks()[&rank].replies.len(), 2);
    }
}
