//! Accounting: sent = stored + filtered + lost.
//!
//! The unit is a **sample**: what one back end submits for one tick of one stream.
//!
//! - *Sent* is what back ends say they submitted. Each REPORT carries that count; a parent passes it on in
//!   the census, so the last word of a back end that died is known to its parent.
//! - *Stored* are values that arrived at the front end, *filtered* the samples that were reduced into one of
//!   these beyond the first.
//! - *Lost* is counted where it happens. On a link: what the child says it handed over less what arrived,
//!   told by the same REPORTs, so that no acknowledgement is needed. In a process: what it dropped for lack
//!   of a parent or of room, or because its stream had ended.
//! - What remains is on its way, or **died** with a process: that had taken it in and not passed it on.
//!
//! While no process dies, nothing may remain once the tree is down ([`Books::is_settled`]): links and processes count every
//! sample, independently of what back ends say. The simulator checks that.
//!
//! Invariant: figures only grow, so that messages about them can be lost, repeated and overtaken.

use alloc::collections::BTreeMap;

use super::message::{CensusEntry, Process, TreeEpoch};
use crate::ids::BootEpoch;

/// Boots of processes on the books: twice the largest partition planned for.
const MAX_ACCOUNTS: usize = 1 << 18;
/// Links of one process that are told apart; earlier ones are added up.
const MAX_LINKS: usize = 8;

/// The books, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// Submitted by back ends, as far as heard.
    pub sent: u64,
    /// Values that arrived.
    pub stored: u64,
    /// Reduced into values that arrived, beyond the first of each.
    pub filtered: u64,
    /// Lost on links.
    pub lost_link: u64,
    /// Given up by living processes.
    pub lost_dropped: u64,
    /// Under way; when the tree is down: died with a process.
    pub missing: u64,
    /// Arrived from back ends that died, together with their parent, before they could say that they had sent it.
    pub unheard: u64,
}

impl Books {
    /// All losses that are known, the missing included.
    pub fn lost(&self) -> u64 {
        self.lost_link + self.lost_dropped + self.missing
    }

    /// Every sample that was sent has arrived or its loss was counted, and nothing else has arrived. So it must be when a tree is
    /// down of which no process died.
    pub fn is_settled(&self) -> bool {
        self.missing == 0 && self.unheard == 0
    }
}

#[derive(Clone, Debug, Default)]
struct Account {
    submitted: u64,
    dropped: u64,
    /// Handed and received of links that are too old to be told apart.
    closed: (u64, u64),
    /// By tree and number: numbers begin anew in each tree.
    links: BTreeMap<(TreeEpoch, u32), (u64, u64)>,
}

/// Keeps the books of a front end.
#[derive(Clone, Debug, Default)]
pub struct Keeper {
    accounts: BTreeMap<(Process, BootEpoch), Account>,
    /// Samples that arrived, and values.
    arrived: u64,
    values: u64,
    /// Accounts that found no room: their figures are missing.
    refused: u64,
}

impl Keeper {
    /// Notes what a parent of this tree says of a child.
    pub fn note(&mut self, tree: TreeEpoch, entry: &CensusEntry) {
        let key = (entry.process, entry.boot);
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(&key) {
            self.refused += 1;
            return;
        }
        let account = self.accounts.entry(key).or_default();
        account.submitted = account.submitted.max(entry.submitted);
        account.dropped = account.dropped.max(entry.dropped);
        let oldest = account.links.keys().next().copied();
        let link = (tree, entry.link);
        let room = account.links.len() < MAX_LINKS || account.links.contains_key(&link);
        if let Some(oldest) = oldest
            && !room
        {
            if link < oldest {
                return;
            }
            let (handed, received) = account.links.remove(&oldest).unwrap_or_default();
            account.closed.0 += handed;
            account.closed.1 += received;
        }
        let (handed, received) = account.links.entry(link).or_default();
        *handed = entry.handed.max(*handed);
        *received = entry.received.max(*received);
    }

    /// Notes what arrived: so many values that cover so many samples.
    pub fn arrived(&mut self, values: u64, samples: u64) {
        self.values += values;
        self.arrived += samples;
    }

    /// Samples that arrived.
    pub fn samples(&self) -> u64 {
        self.arrived
    }

    /// Entries that found no room.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// What a back end says it submitted in this boot, as far as heard.
    pub fn submitted(&self, process: Process, boot: BootEpoch) -> u64 {
        self.accounts
            .get(&(process, boot))
            .map_or(0, |account| account.submitted)
    }

    /// The books; `dropped` is what the front end itself gave up.
    pub fn books(&self, dropped: u64) -> Books {
        let mut books = Books {
            stored: self.values,
            filtered: self.arrived - self.values,
            lost_dropped: dropped,
            ..Books::default()
        };
        for account in self.accounts.values() {
            books.sent += account.submitted;
            books.lost_dropped += account.dropped;
            let links = account.links.values();
            let (handed, received) =
                links.fold(account.closed, |sum, link| (sum.0 + link.0, sum.1 + link.1));
            // A child that says that it handed up less than arrived counts wrong.
            books.lost_link += handed.saturating_sub(received);
        }
        let known = self.arrived + books.lost_link + books.lost_dropped;
        books.missing = books.sent.saturating_sub(known);
        books.unheard = known.saturating_sub(books.sent);
        books
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    const TREE: TreeEpoch = TreeEpoch(7);

    fn entry(node: u32, link: u32, handed: u64, received: u64, submitted: u64) -> CensusEntry {
        CensusEntry {
            process: Process::back_end(NodeId(node)),
            boot: BootEpoch(1),
            link,
            handed,
            received,
            submitted,
            ..CensusEntry::default()
        }
    }

    #[test]
    fn figures_that_come_late_or_twice_change_nothing() {
        let mut keeper = Keeper::default();
        for entry in [
            entry(0, 1, 10, 9, 10),
            entry(0, 2, 5, 5, 16),
            entry(0, 1, 8, 8, 8),
            entry(0, 2, 5, 5, 16),
            entry(1, 1, 4, 4, 4),
        ] {
            keeper.note(TREE, &entry);
        }
        keeper.arrived(3, 17);
        let books = keeper.books(0);
        let expected = Books {
            sent: 20,
            stored: 3,
            filtered: 14,
            lost_link: 1,
            missing: 2,
            ..Books::default()
        };
        assert_eq!(books, expected);
        assert!(!books.is_settled());
        assert_eq!(books.lost(), 3);
    }

    #[test]
    fn many_links_are_added_up() {
        let mut keeper = Keeper::default();
        for link in 1..=20 {
            keeper.note(TREE, &entry(0, link, 10, 9, u64::from(link) * 10));
        }
        keeper.note(TREE, &entry(0, 1, 10, 9, 10));
        let books = keeper.books(0);
        assert_eq!((books.sent, books.lost_link), (200, 20));
    }

    #[test]
    fn the_same_link_of_another_tree_is_another_link() {
        let mut keeper = Keeper::default();
        keeper.note(TREE, &entry(0, 1, 100, 100, 100));
        keeper.note(TreeEpoch(8), &entry(0, 1, 50, 40, 150));
        keeper.arrived(140, 140);
        let books = keeper.books(0);
        assert_eq!((books.lost_link, books.sent), (10, 150));
        assert!(books.is_settled(), "{books:?}");
        // Nonsense does not bring the books down.
        keeper.note(TREE, &entry(1, 1, 0, u64::MAX, 0));
        assert_eq!(keeper.books(0).lost_link, 10);
    }

    #[test]
    fn what_nobody_said_was_sent_shows() {
        let mut keeper = Keeper::default();
        keeper.arrived(1, 5);
        let books = keeper.books(2);
        assert_eq!((books.unheard, books.missing), (7, 0));
        assert!(!books.is_settled());
    }
}
