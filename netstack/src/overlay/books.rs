//! Accounting: sent = stored + filtered + lost.
//!
//! The unit is a **sample**: what one back end submits for one tick of one stream.
//!
//! - *Sent* is what back ends say they submitted. Each REPORT carries that count; a parent passes
//!   it on in the census, so the last word of a back end that died is known to its parent.
//! - *Stored* are values that arrived at the front end, *filtered* the samples that were reduced
//!   into one of these beyond the first.
//! - *Lost* is counted where it happens. On a link: what the child says it handed over less what
//!   arrived, told by the same REPORTs, so that no acknowledgement is needed; when the link is
//!   over, by the last word of either end, which a node keeps until it has a tree to tell it in. In
//!   a process: what it dropped for lack of a parent or of room, because its stream had ended, or
//!   because it ended itself.
//! - What remains is on its way, or **died** with a process: that had taken it in and not passed it
//!   on.
//!
//! While no process dies, nothing may remain once the tree is down ([`Books::is_settled`]): links
//! and processes count every sample, independently of what back ends say. The simulator checks
//! that.
//!
//! Invariant: figures only grow, so that messages about them can be lost, repeated and overtaken.

use alloc::collections::BTreeMap;

use super::message::{CensusEntry, Process};
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
    /// Arrived from back ends that died, together with their parent, before they could say that
    /// they had sent it.
    pub unheard: u64,
}

impl Books {
    /// All losses that are known, the missing included.
    pub fn lost(&self) -> u64 {
        self.lost_link + self.lost_dropped + self.missing
    }

    /// Every sample that was sent has arrived or its loss was counted, and nothing else has
    /// arrived. So it must be when a tree is down of which no process died.
    pub fn is_settled(&self) -> bool {
        self.missing == 0 && self.unheard == 0
    }
}

/// Of one link: what its parent said, and its child.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// By one word of the parent, so that one belongs to the other.
    handed: u64,
    received: u64,
    /// What was received is final.
    ended: bool,
    /// What the child handed up in all, once the link is over.
    own: u64,
}

impl Link {
    /// A parent that died may have received what it told nobody of: then only its own word counts.
    /// A child that says that it handed up less than arrived counts wrong.
    fn lost(&self) -> u64 {
        let handed = match self.ended {
            true => self.handed.max(self.own),
            false => self.handed,
        };
        handed.saturating_sub(self.received)
    }
}

#[derive(Clone, Debug, Default)]
struct Account {
    submitted: u64,
    dropped: u64,
    /// Lost on links that are too old to be told apart.
    closed: u64,
    /// By number: in a boot none comes twice.
    links: BTreeMap<u32, Link>,
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
    /// Notes what a parent says of a child, or a child of its link.
    pub fn note(&mut self, entry: &CensusEntry) {
        let key = (entry.process, entry.boot);
        if self.accounts.len() >= MAX_ACCOUNTS && !self.accounts.contains_key(&key) {
            self.refused += 1;
            return;
        }
        let account = self.accounts.entry(key).or_default();
        account.submitted = account.submitted.max(entry.submitted);
        account.dropped = account.dropped.max(entry.dropped);
        let oldest = account.links.keys().next().copied();
        let link = entry.link;
        let room = account.links.len() < MAX_LINKS || account.links.contains_key(&link);
        if let Some(oldest) = oldest
            && !room
        {
            if link < oldest {
                return;
            }
            let closed = account.links.remove(&oldest).unwrap_or_default();
            account.closed += closed.lost();
        }
        let link = account.links.entry(link).or_default();
        if entry.own {
            link.own = link.own.max(entry.handed);
            return;
        }
        link.ended |= entry.gone || entry.last;
        link.handed = link.handed.max(entry.handed);
        link.received = link.received.max(entry.received);
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
            books.lost_link += account.closed;
            books.lost_link += account.links.values().map(Link::lost).sum::<u64>();
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
            keeper.note(&entry);
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
            keeper.note(&entry(0, link, 10, 9, u64::from(link) * 10));
        }
        keeper.note(&entry(0, 1, 10, 9, 10));
        let books = keeper.books(0);
        assert_eq!((books.sent, books.lost_link), (200, 20));
    }

    #[test]
    fn what_a_child_says_of_a_link_that_is_over_counts_when_its_parent_has_said_its_last() {
        let mut keeper = Keeper::default();
        let own = CensusEntry {
            own: true,
            ..entry(0, 1, 12, 0, 12)
        };
        keeper.note(&entry(0, 1, 10, 9, 10));
        keeper.note(&own);
        // The parent may have received the last two, and passed them on.
        keeper.arrived(1, 9);
        assert_eq!(keeper.books(0).lost_link, 1);
        assert_eq!(keeper.books(0).missing, 2);
        for (gone, last) in [(true, false), (false, true)] {
            let mut keeper = keeper.clone();
            let ended = CensusEntry {
                gone,
                last,
                ..entry(0, 1, 10, 9, 10)
            };
            keeper.note(&ended);
            assert_eq!(keeper.books(0).lost_link, 3);
            assert!(keeper.books(0).is_settled());
        }
    }

    #[test]
    fn links_of_a_later_tree_are_further_links() {
        let mut keeper = Keeper::default();
        keeper.note(&entry(0, 1, 100, 100, 100));
        keeper.note(&entry(0, 2, 50, 40, 150));
        keeper.arrived(140, 140);
        let books = keeper.books(0);
        assert_eq!((books.lost_link, books.sent), (10, 150));
        assert!(books.is_settled(), "{books:?}");
        // Nonsense does not bring the books down.
        keeper.note(&entry(1, 1, 0, u64::MAX, 0));
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
