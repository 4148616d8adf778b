//! The warm programs of a node: limits, order, and what control must be told.

use alloc::vec::Vec;

use super::Retained;
use crate::addr::{PAGE_SIZE, VirtAddr};
use crate::fault;
use crate::frames::Owner;
use crate::program::{AHEAD_FRAMES_MIN, Machine};
use crate::retention::{ProgramId, Variant};

/// Warm programs a node holds at most: what one report of holdings to control is bounded by, and
/// more than the different programs a node runs in a day.
pub const WARM_MAX: usize = 64;
/// While fewer frames than this are available, warm programs are dropped: twice what reading ahead
/// wants, so that it is never cut for the sake of pages that nobody may want again.
pub const ROOM_FRAMES: u64 = fault::FRAMES_RESERVED + 2 * AHEAD_FRAMES_MIN;
/// Memory that is never filled with warm pages, at least: 4 MiB.
const NEVER_WARM_FRAMES: u64 = (4 << 20) / PAGE_SIZE;
/// Changes that wait to be told: each warm program once, and as many that were dropped since. The
/// agent takes them after every operation, so this is never reached.
const CHANGES_MAX: usize = 2 * WARM_MAX;

/// What a node holds of a program, for control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The program.
    pub program: ProgramId,
    /// Pages of it.
    pub pages: u64,
    /// Of these, pages of writable segments.
    pub pristine: u64,
}

/// What control must be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The node holds this much of the program now.
    Holds(Holding),
    /// The node holds nothing of the program any more.
    Dropped(ProgramId),
}

impl Change {
    fn program(&self) -> &ProgramId {
        match self {
            Self::Holds(holding) => &holding.program,
            Self::Dropped(program) => program,
        }
    }
}

/// The warm programs that are not running.
#[derive(Debug)]
pub struct WarmTable {
    /// In no order.
    entries: Vec<Entry>,
    /// Pages of all entries.
    pages: u64,
    /// Counts uses, the clock of the entries.
    uses: u64,
    /// The program that was taken for a launch and has not come back.
    taken: Option<ProgramId>,
    limit_pages: u64,
    changes: Vec<Change>,
}

#[derive(Debug)]
struct Entry {
    retained: Retained,
    /// When its program ended last.
    used_at: u64,
}

impl WarmTable {
    /// No warm program yet; `limit_pages` is the most pages to hold.
    pub const fn new(limit_pages: u64) -> Self {
        Self {
            entries: Vec::new(),
            pages: 0,
            uses: 0,
            taken: None,
            limit_pages,
            changes: Vec::new(),
        }
    }

    /// The limit of a node with this much memory: all but a quarter, or but 4 MiB when that is
    /// more.
    pub const fn default_limit(total_frames: u64) -> u64 {
        let quarter = total_frames / 4;
        let never = if quarter > NEVER_WARM_FRAMES {
            quarter
        } else {
            NEVER_WARM_FRAMES
        };
        total_frames.saturating_sub(never)
    }

    /// Changes the limit.
    pub fn set_limit<M: Machine>(&mut self, machine: &mut M, pages: u64) {
        self.limit_pages = pages;
        self.keep_limit(machine);
    }

    /// Takes a program out for a launch, `None` when it is not warm.
    pub fn take(&mut self, program: &ProgramId) -> Option<Retained> {
        let index = self.index(program)?;
        self.taken = Some(*program);
        Some(self.remove(index))
    }

    /// The end of a run of `program`, warm or cold, with what is kept of it: it is the most
    /// recently used now. Others are dropped when there is too much.
    pub fn restore<M: Machine>(
        &mut self,
        machine: &mut M,
        program: &ProgramId,
        retained: Option<Retained>,
    ) {
        let taken = self.taken.take_if(|taken| taken == program).is_some();
        // Of a program that ran cold beside its warm pages the newer ones stay.
        let replaced = self.drop_at(machine, self.index(program)).is_some();
        match retained {
            Some(retained) => {
                assert_eq!(retained.program(), program, "pages of another program");
                self.tell(Change::Holds(holding(&retained)));
                self.uses += 1;
                self.pages += retained.pages();
                self.entries.push(Entry {
                    retained,
                    used_at: self.uses,
                });
            }
            None if taken || replaced => self.tell(Change::Dropped(*program)),
            None => {}
        }
        self.keep_limit(machine);
    }

    /// Drops one program, or all; returns the pages. One that is running is not touched.
    pub fn drop_program<M: Machine>(
        &mut self,
        machine: &mut M,
        program: Option<&ProgramId>,
    ) -> u64 {
        match program {
            Some(program) => {
                let index = self.index(program);
                self.drop_at(machine, index).unwrap_or(0)
            }
            None => self.drop_others(machine, None),
        }
    }

    /// Drops all programs but one; returns the pages.
    pub fn drop_others<M: Machine>(&mut self, machine: &mut M, keep: Option<&ProgramId>) -> u64 {
        let mut pages = 0;
        while let Some(index) = self
            .entries
            .iter()
            .position(|entry| Some(entry.retained.program()) != keep)
        {
            pages += self.drop_at(machine, Some(index)).unwrap_or(0);
        }
        pages
    }

    /// The publication's retain message: drops every other program, and of this one what the
    /// variant does not want. Returns the pages held of it, 0 when it is not warm.
    ///
    /// The same as [`retain`](crate::retention::retain) over these tables, but that entries which
    /// may have been written went when each program ended, by the same code: private frames are
    /// scrubbed then and not when somebody asks.
    pub fn retain_only<M: Machine>(
        &mut self,
        machine: &mut M,
        program: &ProgramId,
        variant: Variant,
    ) -> u64 {
        self.drop_others(machine, Some(program));
        let Some(index) = self.index(program) else {
            return 0;
        };
        let entry = &mut self.entries[index].retained;
        let before = entry.pages();
        entry.narrow(machine, |class| variant.keeps(class));
        let now = holding(entry);
        self.pages = now.pages;
        if now.pages == 0 {
            self.drop_at(machine, Some(index));
        } else if now.pages != before {
            self.tell(Change::Holds(now));
        }
        now.pages
    }

    /// Makes room for a running program or the kernel: drops programs, least recently used first,
    /// while fewer than `least` frames are available. Returns the pages dropped.
    pub fn keep_room<M: Machine>(&mut self, machine: &mut M, least: u64) -> u64 {
        let mut pages = 0;
        while !self.entries.is_empty() && machine.with(|_, frames| frames.available()) < least {
            pages += self.drop_oldest(machine).unwrap_or(0);
        }
        pages
    }

    /// The next thing to tell control.
    pub fn next_change(&mut self) -> Option<Change> {
        (!self.changes.is_empty()).then(|| self.changes.remove(0))
    }

    /// Everything held, in no order; without the program that is running.
    pub fn holdings(&self) -> impl Iterator<Item = Holding> + '_ {
        self.entries.iter().map(|entry| holding(&entry.retained))
    }

    /// The warm program, for a look at it.
    pub fn get(&self, program: &ProgramId) -> Option<&Retained> {
        let index = self.index(program)?;
        Some(&self.entries[index].retained)
    }

    /// Discards a page of a warm program: it is not what its
    /// hash says. Returns how many were discarded; control is told.
    pub fn discard_page<M: Machine>(
        &mut self,
        machine: &mut M,
        program: &ProgramId,
        page: VirtAddr,
    ) -> u64 {
        let Some(index) = self.index(program) else {
            return 0;
        };
        let entry = &mut self.entries[index].retained;
        let pages = entry.discard_page(machine, page);
        let now = holding(entry);
        self.pages -= pages;
        match (pages, now.pages) {
            (0, _) => {}
            (_, 0) => {
                self.drop_at(machine, Some(index));
            }
            _ => self.tell(Change::Holds(now)),
        }
        pages
    }

    /// Pages held, in all.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Programs held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no program is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether frames of this owner are held: a new program must get another.
    pub fn owns(&self, owner: Owner) -> bool {
        self.entries
            .iter()
            .any(|entry| entry.retained.owner() == owner)
    }

    fn index(&self, program: &ProgramId) -> Option<usize> {
        self.entries
            .iter()
            .position(|entry| entry.retained.program() == program)
    }

    /// Drops least recently used programs while there are too many or too many pages.
    fn keep_limit<M: Machine>(&mut self, machine: &mut M) {
        while self.entries.len() > WARM_MAX || self.pages > self.limit_pages {
            if self.drop_oldest(machine).is_none() {
                return;
            }
        }
    }

    /// Drops the program that was used least recently; returns its pages, `None` when none is held.
    pub fn drop_oldest<M: Machine>(&mut self, machine: &mut M) -> Option<u64> {
        let ages = self.entries.iter().zip(0..);
        let oldest = ages.min_by_key(|(entry, _)| entry.used_at);
        let index = oldest.map(|(_, index)| index);
        self.drop_at(machine, index)
    }

    fn drop_at<M: Machine>(&mut self, machine: &mut M, index: Option<usize>) -> Option<u64> {
        let entry = self.remove(index?);
        self.tell(Change::Dropped(*entry.program()));
        Some(entry.discard(machine))
    }

    fn remove(&mut self, index: usize) -> Retained {
        let entry = self.entries.swap_remove(index);
        self.pages -= entry.retained.pages();
        entry.retained
    }

    /// Only the newest change of a program counts.
    fn tell(&mut self, change: Change) {
        self.changes
            .retain(|earlier| earlier.program() != change.program());
        assert!(self.changes.len() < CHANGES_MAX, "nobody tells control");
        self.changes.push(change);
    }
}

fn holding(entry: &Retained) -> Holding {
    Holding {
        program: *entry.program(),
        pages: entry.pages(),
        pristine: entry.data,
    }
}
