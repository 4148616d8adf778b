//! Walks: down to one entry, and over all leaves of a range.

use super::{ENTRIES, Leaf, MapError, PageSize, PageTable, TableSource, leaf_of, set_protection};
use crate::addr::{LARGE_PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::paging::entry::{Attributes, Entry, Protection};
use crate::phys::PhysMem;

impl PageTable {
    /// Address of the entry for `page` at `leaf_level`, making tables on the way.
    pub(super) fn entry_for_map<M: PhysMem>(
        self,
        mem: &mut M,
        tables: &mut impl TableSource<M>,
        page: VirtAddr,
        leaf_level: u8,
    ) -> Result<PhysAddr, MapError> {
        let mut table = self.root;
        let mut level = 4;
        while level > leaf_level {
            let at = table.offset(page.table_index(level) * 8);
            let entry = Entry::from_bits(mem.read_u64(at));
            table = if !entry.is_used() {
                let Some(next) = tables.alloc_table(mem) else {
                    self.prune(mem, tables, page);
                    return Err(MapError::OutOfFrames);
                };
                mem.write_u64(at, Entry::table(next, page.is_user()).bits());
                next
            } else if entry.is_leaf(level) {
                return Err(MapError::AlreadyMapped);
            } else {
                entry.table_address()
            };
            level -= 1;
        }
        Ok(table.offset(page.table_index(leaf_level) * 8))
    }

    /// Address and size of the leaf entry that maps `address`.
    pub(super) fn find(
        self,
        mem: &impl PhysMem,
        address: VirtAddr,
    ) -> Option<(PhysAddr, PageSize)> {
        let mut table = self.root;
        for level in (1..=4).rev() {
            let at = table.offset(address.table_index(level) * 8);
            let entry = Entry::from_bits(mem.read_u64(at));
            if !entry.is_used() {
                return None;
            }
            if entry.is_leaf(level) {
                return Some((at, size_at(level)));
            }
            table = entry.table_address();
        }
        unreachable!("level 1 holds only leaves")
    }

    /// Address of the entry that points to the last table on the way to `page`, and that table;
    /// `None` when there is none.
    pub(super) fn last_table(
        self,
        mem: &impl PhysMem,
        page: VirtAddr,
    ) -> Option<(PhysAddr, PhysAddr)> {
        let (mut at, mut table) = (self.root, self.root);
        for level in (2..=4).rev() {
            at = table.offset(page.table_index(level) * 8);
            let entry = Entry::from_bits(mem.read_u64(at));
            if !entry.is_used() || entry.is_leaf(level) {
                return None;
            }
            table = entry.table_address();
        }
        Some((at, table))
    }

    /// Whether there is a table of the last level on the way to `page`: small pages are mapped
    /// around it.
    pub fn has_last_table(self, mem: &impl PhysMem, page: VirtAddr) -> bool {
        self.last_table(mem, page).is_some()
    }

    /// Removes all leaves that lie between `first` and `last` (an address inside the last page),
    /// calls `removed` with `tables` for each, and gives back tables that became empty. A large
    /// page that only partly lies in the range is a broken invariant of the caller.
    ///
    /// Returns whether the CPU may remember something that is gone: a leaf that was present, or a
    /// table. If so, and the table is active, the caller invalidates before anybody gets a frame:
    /// the CPU caches the way to a table, too, and would read whatever its frame holds next as
    /// entries (Intel SDM volume 3A, 4.10.3 and 4.10.4).
    #[must_use = "the CPU may remember what was removed"]
    pub fn unmap_range<M: PhysMem, T: TableSource<M>>(
        self,
        mem: &mut M,
        tables: &mut T,
        first: VirtAddr,
        last: VirtAddr,
        mut removed: impl FnMut(&mut T, Leaf),
    ) -> bool {
        let mut remembered = false;
        let mut note = |tables: &mut T, met: Met| {
            match met {
                Met::Leaf(leaf) => {
                    remembered |= leaf.attributes.protection != Protection::None;
                    removed(tables, leaf);
                }
                Met::Emptied => remembered = true,
            }
            Fate::Remove
        };
        classify(mem, tables, self.root, 4, (0, first, last), &mut note);
        remembered
    }

    /// Looks at every leaf between `first` and `last` in rising order and does with it as `fate`
    /// says; tables that became empty are given back. When the table is active the caller
    /// invalidates the range before anybody gets a frame.
    pub fn classify<M: PhysMem, T: TableSource<M>>(
        self,
        mem: &mut M,
        tables: &mut T,
        (first, last): (VirtAddr, VirtAddr),
        mut fate: impl FnMut(&mut T, Leaf) -> Fate,
    ) {
        let mut judge = |tables: &mut T, met: Met| match met {
            Met::Leaf(leaf) => fate(tables, leaf),
            Met::Emptied => Fate::Remove,
        };
        classify(mem, tables, self.root, 4, (0, first, last), &mut judge);
    }

    /// Number of tables of the lower half, the root included. Walks them.
    pub fn tables(self, mem: &impl PhysMem) -> u64 {
        1 + tables_below(mem, self.root, 4)
    }

    /// Calls `visit` for every leaf between `first` and `last` in rising order.
    pub fn for_each(
        self,
        mem: &impl PhysMem,
        first: VirtAddr,
        last: VirtAddr,
        mut visit: impl FnMut(Leaf),
    ) {
        let mut go_on = |leaf| {
            visit(leaf);
            true
        };
        scan(mem, self.root, 4, (0, first, last), &mut go_on);
    }

    /// Calls `visit` for leaves between `first` and `last` in rising order until it says `false`.
    pub fn visit_while(
        self,
        mem: &impl PhysMem,
        first: VirtAddr,
        last: VirtAddr,
        mut visit: impl FnMut(Leaf) -> bool,
    ) {
        scan(mem, self.root, 4, (0, first, last), &mut visit);
    }

    /// Changes the protection of leaves between `first` and `last`: `change` says to what, or
    /// `None` to leave one as it is.
    pub fn protect_range(
        self,
        mem: &mut impl PhysMem,
        first: VirtAddr,
        last: VirtAddr,
        mut change: impl FnMut(Leaf) -> Option<Protection>,
    ) {
        alter(mem, self.root, 4, (0, first, last), &mut change);
    }

    /// The first part of a range of the lower half that maps anything, for walks in steps: it lies
    /// in one table of the last level, or is a large page. What is before it maps nothing.
    pub fn next_part(
        self,
        mem: &impl PhysMem,
        first: VirtAddr,
        last: VirtAddr,
    ) -> Option<(VirtAddr, VirtAddr)> {
        let start = used_from(mem, self.root, 4, (0, first, last))?;
        let start = start.max(first.as_u64());
        let end = (start | (LARGE_PAGE_SIZE - 1)).min(last.as_u64());
        Some((VirtAddr::new(start), VirtAddr::new(end)))
    }

    /// Gives back the tables of the lower half and the root. All user leaves must be gone, and the
    /// table must not be active: loading another root has made the CPU forget it.
    pub fn destroy<M: PhysMem>(self, mem: &mut M, tables: &mut impl TableSource<M>) {
        let last = VirtAddr::new(USER_END - 1);
        let _ = self.unmap_range(mem, tables, VirtAddr::new(0), last, |_, leaf| {
            panic!("page table given back while it maps {:?}", leaf.page)
        });
        tables.free_table(self.root);
    }

    /// Gives back tables on the way to `page` that were made for a mapping that then failed; the
    /// caller of `map` invalidates, as its documentation says.
    fn prune<M: PhysMem>(self, mem: &mut M, tables: &mut impl TableSource<M>, page: VirtAddr) {
        classify(mem, tables, self.root, 4, (0, page, page), &mut |_, _| {
            Fate::Remove
        });
    }
}

const fn size_at(level: u8) -> PageSize {
    match level {
        1 => PageSize::Small,
        2 => PageSize::Large,
        3 => PageSize::Huge,
        _ => panic!("the root of a page table holds a leaf"),
    }
}

/// Bytes that one entry of a table at `level` covers.
const fn span(level: u8) -> u64 {
    1 << (12 + 9 * (level as u32 - 1))
}

/// Indices of a table at `level` that starts at `base` which the range touches.
fn indices(
    base: u64,
    level: u8,
    first: VirtAddr,
    last: VirtAddr,
) -> core::ops::RangeInclusive<u64> {
    let end = base + (span(level) * ENTRIES - 1).min(u64::MAX - base);
    let from = first.as_u64().max(base);
    let to = last.as_u64().min(end);
    if from > to {
        return core::ops::RangeInclusive::new(1, 0);
    }
    VirtAddr::new(from).table_index(level)..=VirtAddr::new(to).table_index(level)
}

/// Virtual address where entry `index` of a table begins; sign-extended below the root.
fn entry_base(base: u64, level: u8, index: u64) -> u64 {
    let address = base + index * span(level);
    match level == 4 && index >= super::KERNEL_FIRST {
        true => address | 0xffff_0000_0000_0000,
        false => address,
    }
}

fn root_indices(first: VirtAddr, last: VirtAddr) -> core::ops::RangeInclusive<u64> {
    first.table_index(4)..=last.table_index(4)
}

/// What becomes of a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is removed.
    Remove,
    /// It stays as it is.
    Keep,
    /// It stays with these attributes, as if nobody had used it yet.
    Become(Attributes),
}

/// What a walk met.
enum Met {
    /// A leaf, whose fate is asked for.
    Leaf(Leaf),
    /// A table that became empty and was given back.
    Emptied,
}

/// Base of a table and the range asked for.
type Range = (u64, VirtAddr, VirtAddr);

/// Changes or removes leaves below one table; returns whether the table is now empty.
fn classify<M: PhysMem, T: TableSource<M>>(
    mem: &mut M,
    tables: &mut T,
    table: PhysAddr,
    level: u8,
    (base, first, last): Range,
    judge: &mut impl FnMut(&mut T, Met) -> Fate,
) -> bool {
    let range = match level {
        4 => root_indices(first, last),
        _ => indices(base, level, first, last),
    };
    let whole = range == (0..=ENTRIES - 1);
    let mut left = false;
    for index in range {
        let at = table.offset(index * 8);
        let entry = Entry::from_bits(mem.read_u64(at));
        if !entry.is_used() {
            continue;
        }
        let start = entry_base(base, level, index);
        if entry.is_leaf(level) {
            let leaf = leaf_of(entry, VirtAddr::new(start), size_at(level));
            let inside = start >= first.as_u64() && start + (span(level) - 1) <= last.as_u64();
            // `last` may be any address inside the last small page.
            assert!(inside || level == 1, "range cuts a large page");
            match judge(tables, Met::Leaf(leaf)) {
                Fate::Keep => left = true,
                Fate::Remove => mem.write_u64(at, 0),
                Fate::Become(attributes) => {
                    left = true;
                    let fresh = Entry::leaf(leaf.frame, leaf.size, attributes);
                    mem.write_u64(at, fresh.bits());
                }
            }
            continue;
        }
        let next = entry.table_address();
        let empty = classify(mem, tables, next, level - 1, (start, first, last), judge);
        let shared = level == 4 && index >= super::KERNEL_FIRST;
        if empty && !shared {
            mem.write_u64(at, 0);
            tables.free_table(next);
            judge(tables, Met::Emptied);
        } else {
            left = true;
        }
    }
    let is_zero = |index| mem.read_u64(table.offset(index * 8)) == 0;
    level != 4 && !left && (whole || (0..ENTRIES).all(is_zero))
}

fn tables_below(mem: &impl PhysMem, table: PhysAddr, level: u8) -> u64 {
    let indices = match level {
        4 => 0..super::KERNEL_FIRST,
        _ => 0..ENTRIES,
    };
    indices
        .map(|index| Entry::from_bits(mem.read_u64(table.offset(index * 8))))
        .filter(|entry| entry.is_used() && !entry.is_leaf(level))
        .map(|entry| match level {
            2 => 1,
            _ => 1 + tables_below(mem, entry.table_address(), level - 1),
        })
        .sum()
}

/// Where the first entry of level 2 begins that is used, in a range below one table of a level
/// above.
fn used_from(
    mem: &impl PhysMem,
    table: PhysAddr,
    level: u8,
    (base, first, last): Range,
) -> Option<u64> {
    let mut range = match level {
        4 => root_indices(first, last),
        _ => indices(base, level, first, last),
    };
    range.find_map(|index| {
        let entry = Entry::from_bits(mem.read_u64(table.offset(index * 8)));
        let start = entry_base(base, level, index);
        match level {
            _ if !entry.is_used() => None,
            2 => Some(start),
            _ => used_from(mem, entry.table_address(), level - 1, (start, first, last)),
        }
    })
}

/// Visits leaves below one table; returns whether all were wanted.
fn scan(
    mem: &impl PhysMem,
    table: PhysAddr,
    level: u8,
    (base, first, last): Range,
    visit: &mut impl FnMut(Leaf) -> bool,
) -> bool {
    let range = match level {
        4 => root_indices(first, last),
        _ => indices(base, level, first, last),
    };
    for index in range {
        let entry = Entry::from_bits(mem.read_u64(table.offset(index * 8)));
        if !entry.is_used() {
            continue;
        }
        let start = entry_base(base, level, index);
        let go_on = match entry.is_leaf(level) {
            true => visit(leaf_of(entry, VirtAddr::new(start), size_at(level))),
            false => {
                let next = entry.table_address();
                scan(mem, next, level - 1, (start, first, last), visit)
            }
        };
        if !go_on {
            return false;
        }
    }
    true
}

fn alter(
    mem: &mut impl PhysMem,
    table: PhysAddr,
    level: u8,
    (base, first, last): Range,
    change: &mut impl FnMut(Leaf) -> Option<Protection>,
) {
    let range = match level {
        4 => root_indices(first, last),
        _ => indices(base, level, first, last),
    };
    for index in range {
        let at = table.offset(index * 8);
        let entry = Entry::from_bits(mem.read_u64(at));
        if !entry.is_used() {
            continue;
        }
        let start = entry_base(base, level, index);
        if entry.is_leaf(level) {
            let leaf = leaf_of(entry, VirtAddr::new(start), size_at(level));
            if let Some(protection) = change(leaf) {
                set_protection(mem, at, protection);
            }
        } else {
            let next = entry.table_address();
            alter(mem, next, level - 1, (start, first, last), change);
        }
    }
}
