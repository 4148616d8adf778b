//! The published method: a retain message leaves one program's table, and of that only what nobody
//! can have written.
//!
//! Source: Chinese patent publication CN 101051302 A, 2007; the same method in US 8,429,218 B2,
//! 2013 (`docs/methods.md`).
//!
//! Its steps on the compute node, on a retain message for program P:
//!
//! | step | what | where |
//! |---|---|---|
//! | 1 | every other page table is dropped, its frames scrubbed and freed | [`retain`], `others` |
//! | 2 | of P's table: writable or invalid entries go, and the contents of their frames; executable ones stay as they are; read-only ones stay in the description and go in the narrowest claim | [`retain`], `keep`; [`Variant`] |
//! | 3 | the next launch of P runs on this table; all else comes over the network by demand paging | `program::Memory::relaunch` |
//!
//! Its steps on the control node (a table with the last program of each node; nodes that are warm
//! get the message before the launch) are `netstack::retention` and the control node's job runner,
//! with `[retention] mode = "published"`.
//!
//! *Published*: steps 1 to 3, and both variants. *Ours*, where the publication is silent: what may
//! have been written is told by all entries of all tables, not by one entry's flags alone; a large
//! page stays only if all of its frames may. [`super::shipped`] says what Hearth does instead, and
//! why.
//!
//! Neighbour: `classify` does the work for both forms.
//!
//! Invariant: what stays is untouched; what goes is given out only once it is scrubbed.

use super::classify::{ALL, Keep, classify};
use crate::addr::PAGE_SIZE;
use crate::frames::FrameAllocator;
use crate::paging::entry::Class;
use crate::paging::{Fate, Leaf, PageTable};
use crate::phys::PhysMem;

/// The two forms of the publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Variant {
    /// Executable pages, and read-only ones too: its description, and the default.
    #[default]
    ReadOnlyToo,
    /// Executable pages only: its narrowest claim.
    ExecutableOnly,
}

impl Variant {
    /// Whether a page of this origin may stay.
    pub const fn keeps(self, class: Class) -> bool {
        match class {
            Class::Private | Class::Object | Class::SharedMemory => false,
            Class::FileExecute => true,
            Class::FileRead | Class::FileData => matches!(self, Self::ReadOnlyToo),
        }
    }
}

/// What [`retain`] did, in 4 KiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classified {
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
/// Source: the publication, on the compute node, steps 1 and 2. All frames must belong to programs
/// that have ended, and the tables must not be active.
pub fn retain<M: PhysMem>(
    mem: &mut M,
    frames: &mut FrameAllocator,
    others: &[PageTable],
    keep: PageTable,
    variant: Variant,
) -> Classified {
    let rule = |leaf: &Leaf| match variant.keeps(leaf.attributes.class) {
        true => Fate::Keep,
        false => Fate::Remove,
    };
    let mut classified = Classified {
        dropped: others.len() as u64,
        ..Classified::default()
    };
    let count = |leaf: &Leaf, kept: bool| {
        let pages = leaf.size.bytes() / PAGE_SIZE;
        match kept {
            true => classified.kept += pages,
            false => classified.removed += pages,
        }
    };
    let keep = Keep {
        table: keep,
        ranges: &[ALL],
        limit: u64::MAX,
    };
    classify(mem, frames, others, &keep, rule, count);
    classified
}
