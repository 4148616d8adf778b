//! The programs a simulated node holds: their pages under a limit, least recently used dropped
//! first. The plain counterpart of the kernel's warm table.

use std::collections::{BTreeMap, BTreeSet};

use netstack::ids::ProgramId;
use netstack::retention::HOLDINGS_MAX;

/// Pages of a program's file, by number.
pub type Pages = BTreeSet<u64>;

#[derive(Debug)]
struct Entry {
    pages: Pages,
    last_use: u64,
}

/// Programs that have ended here. One that runs is not in the table, so nothing can evict it.
#[derive(Debug)]
pub struct WarmTable {
    limit_pages: usize,
    uses: u64,
    entries: BTreeMap<ProgramId, Entry>,
}

impl WarmTable {
    /// An empty table; `limit_pages` is the node's own limit.
    pub fn new(limit_pages: u32) -> Self {
        WarmTable {
            limit_pages: limit_pages as usize,
            uses: 0,
            entries: BTreeMap::new(),
        }
    }

    /// Every program held and its number of pages.
    pub fn held(&self) -> BTreeMap<ProgramId, u32> {
        let entries = self.entries.iter();
        entries
            .map(|(program, entry)| (*program, entry.pages.len() as u32))
            .collect()
    }

    /// Takes a program out, to run it or to drop it.
    pub fn take(&mut self, program: ProgramId) -> Option<Pages> {
        self.entries.remove(&program).map(|entry| entry.pages)
    }

    /// Programs held but this one.
    pub fn others(&self, program: Option<ProgramId>) -> Vec<ProgramId> {
        let programs = self.entries.keys().copied();
        programs.filter(|other| Some(*other) != program).collect()
    }

    /// Puts a program in and returns those that have to go for it, itself included if it is too
    /// large. `limit_pages` 0 stands for the node's own limit.
    pub fn put(&mut self, program: ProgramId, pages: Pages, limit_pages: u32) -> Vec<ProgramId> {
        self.uses += 1;
        let last_use = self.uses;
        self.entries.insert(program, Entry { pages, last_use });
        let limit = match limit_pages {
            0 => self.limit_pages,
            pages => self.limit_pages.min(pages as usize),
        };
        let mut evicted = Vec::new();
        while self.pages() > limit || self.entries.len() > HOLDINGS_MAX {
            let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.last_use);
            let Some(oldest) = oldest.map(|(program, _)| *program) else {
                break;
            };
            self.entries.remove(&oldest);
            evicted.push(oldest);
        }
        evicted
    }

    fn pages(&self) -> usize {
        self.entries.values().map(|entry| entry.pages.len()).sum()
    }
}
