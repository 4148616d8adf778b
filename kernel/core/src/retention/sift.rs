//! The publication's steps 1 and 2 on the compute node, as a function over page tables.

use super::Variant;
use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::frames::{FrameAllocator, State};
use crate::paging::entry::Protection;
use crate::paging::{Fate, Leaf, PageTable};
use crate::phys::PhysMem;

/// What [`retain`] did, in 4 KiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sifted {
    /// Pages whose entries stay.
    pub kept: u64,
    /// Pages whose entries are gone, in all tables.
    pub removed: u64,
    /// Tables dropped.
    pub dropped: u64,
}

/// A retain message: drops every table of `others`, and of `keep` every entry that is writable,
/// holds a page that may have been written, or is not wanted by `variant`; the other entries stay
/// untouched. Frames that no entry of `keep` maps any more are dirty when this returns: they are
/// given out, or seen as free, only once they are scrubbed.
///
/// What may have been written is what any entry of any table maps writable or has written through,
/// and a page whose class was lost by it ([`crate::paging::entry::Class`]). A large page stays only
/// if all of its frames may.
///
/// Source: the publication on retaining executable pages, on the compute node, steps 1 and 2. All
/// frames must belong to programs that have ended, and the tables must not be active.
pub fn retain<M: PhysMem>(
    mem: &mut M,
    frames: &mut FrameAllocator,
    others: &[PageTable],
    keep: PageTable,
    variant: Variant,
) -> Sifted {
    let rule = |leaf: &Leaf| match variant.keeps(leaf.attributes.class) {
        true => Fate::Keep,
        false => Fate::Remove,
    };
    let mut sifted = Sifted {
        dropped: others.len() as u64,
        ..Sifted::default()
    };
    let count = |leaf: &Leaf, kept: bool| {
        let pages = leaf.size.bytes() / PAGE_SIZE;
        match kept {
            true => sifted.kept += pages,
            false => sifted.removed += pages,
        }
    };
    let keep = Keep {
        table: keep,
        ranges: &[(FIRST, LAST)],
        limit: u64::MAX,
    };
    sift(mem, frames, others, &keep, rule, count);
    sifted
}

/// The table of which something stays.
pub(crate) struct Keep<'a> {
    pub(crate) table: PageTable,
    /// It maps nothing outside of these.
    pub(crate) ranges: &'a [Range],
    /// Most pages that stay.
    pub(crate) limit: u64,
}

/// [`retain`] with any rule: `rule` says what becomes of an entry of `keep` if its frames may stay,
/// and `seen` hears of every entry and whether it stayed.
///
/// The frames' states are the marks: at first all are claimed as ordinary frames of their programs,
/// then those that may have been written become dirty, those that stay retained, and what is still
/// an ordinary frame in the end is given back. So each frame is given back at most once however
/// many entries map it, and never while one that stays does.
pub(crate) fn sift<M: PhysMem>(
    mem: &mut M,
    frames: &mut FrameAllocator,
    others: &[PageTable],
    keep: &Keep<'_>,
    rule: impl Fn(&Leaf) -> Fate,
    mut seen: impl FnMut(&Leaf, bool),
) {
    let &Keep {
        table: keep,
        ranges,
        limit,
    } = keep;
    let kept_ranges = ranges.iter().map(|&range| (keep, range));
    let other_ranges = others.iter().map(|&table| (table, (FIRST, LAST)));
    for (table, (first, last)) in kept_ranges.chain(other_ranges) {
        table.for_each(mem, first, last, |leaf| {
            let written = leaf.dirty || leaf.attributes.protection == Protection::ReadWrite;
            for frame in frames_of(&leaf) {
                frames.claim(frame);
                if written && frames.state(frame).0 != State::Dirty {
                    frames.free(frame);
                }
            }
        });
    }
    let mut kept = 0;
    for &(first, last) in ranges {
        keep.for_each(mem, first, last, |leaf| {
            let pages = leaf.size.bytes() / PAGE_SIZE;
            let unwritten = |frame| frames.state(frame).0 != State::Dirty;
            let wanted = rule(&leaf) != Fate::Remove && kept + pages <= limit;
            if !wanted || !frames_of(&leaf).all(unwritten) {
                return;
            }
            kept += pages;
            for frame in frames_of(&leaf) {
                if frames.state(frame).0 == State::User {
                    frames.retain(frame);
                }
            }
        });
    }
    for &range in ranges {
        keep.sift(mem, frames, range, |frames, leaf| {
            let retained = |frame| frames.state(frame).0 == State::Retained;
            let fate = match frames_of(&leaf).all(retained) {
                true => rule(&leaf),
                false => Fate::Remove,
            };
            seen(&leaf, fate != Fate::Remove);
            if fate == Fate::Remove {
                give_back(frames, &leaf);
            }
            fate
        });
    }
    for table in others {
        table.sift(mem, frames, (FIRST, LAST), |frames, leaf| {
            seen(&leaf, false);
            give_back(frames, &leaf);
            Fate::Remove
        });
        table.destroy(mem, frames);
    }
}

/// First address and an address of the last page.
pub(crate) type Range = (VirtAddr, VirtAddr);

const FIRST: VirtAddr = VirtAddr::new(0);
const LAST: VirtAddr = VirtAddr::new(USER_END - 1);

/// The frames behind a leaf.
pub(crate) fn frames_of(leaf: &Leaf) -> impl Iterator<Item = PhysAddr> + use<> {
    let first = leaf.frame;
    (0..leaf.size.bytes())
        .step_by(PAGE_SIZE as usize)
        .map(move |offset| first.offset(offset))
}

/// Gives back frames that nothing keeps and nobody has given back yet.
fn give_back(frames: &mut FrameAllocator, leaf: &Leaf) {
    for frame in frames_of(leaf) {
        if frames.state(frame).0 == State::User {
            frames.free(frame);
        }
    }
}
