//! Which entries of page tables stay, by any rule, and what becomes of the frames of the others.
//!
//! Neighbours: [`super::published`] and [`super::shipped`] have the rules.
//!
//! Invariant: a frame is given back once however many entries map it, and never while one that
//! stays does.

use crate::addr::{PAGE_SIZE, PhysAddr, USER_END, VirtAddr};
use crate::frames::{Frame, FrameAllocator, State};
use crate::paging::entry::Protection;
use crate::paging::{Fate, Leaf, PageTable};
use crate::phys::PhysMem;

/// The table of which something stays.
pub(crate) struct Keep<'a> {
    pub(crate) table: PageTable,
    /// It maps nothing outside of these.
    pub(crate) ranges: &'a [Range],
    /// Most pages that stay.
    pub(crate) limit: u64,
}

/// Drops every table of `others`, and of `keep` what may not stay. `rule` says what becomes of an
/// entry of `keep` if its frames may stay, and `seen` hears of every entry and whether it stayed.
///
/// The frames' states are the marks: at first all are claimed as ordinary frames of their programs,
/// then those that may have been written become dirty, those that stay retained, and what is still
/// an ordinary frame in the end is given back. So each frame is given back at most once however
/// many entries map it, and never while one that stays does.
pub(crate) fn classify<M: PhysMem>(
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
    let other_ranges = others.iter().map(|&table| (table, ALL));
    for (table, (first, last)) in kept_ranges.chain(other_ranges) {
        table.for_each(mem, first, last, |leaf| {
            let written = leaf.dirty || leaf.attributes.protection == Protection::ReadWrite;
            for frame in frames_of(&leaf) {
                frames.take(frame);
                if written && frames.state(frame).0 != State::Dirty {
                    frames.free(Frame::from_entry(frame));
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
        keep.classify(mem, frames, range, |frames, leaf| {
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
        table.classify(mem, frames, ALL, |frames, leaf| {
            seen(&leaf, false);
            give_back(frames, &leaf);
            Fate::Remove
        });
        table.destroy(mem, frames);
    }
}

/// First address and an address of the last page.
pub(crate) type Range = (VirtAddr, VirtAddr);

/// Everything that a program can map.
pub(super) const ALL: Range = (VirtAddr::new(0), VirtAddr::new(USER_END - 1));

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
            frames.free(Frame::from_entry(frame));
        }
    }
}
