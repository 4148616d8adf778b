//! Retention as Hearth ships it: frames are clean when a program ends, and many programs stay.
//!
//! The method's page is at [`super::published`]. What is different here, and why (ADR 15):
//!
//! | published | here | why |
//! |---|---|---|
//! | a retain message before the launch | at the end of each run ([`Policy`]) | a node never holds what a program wrote; a warm launch needs no message |
//! | one program, the last | as many as memory allows ([`WarmTable`]) | programs alternate |
//! | data comes over the network again | pages of writable segments are kept as the file has them, and copied on the first write ([`Class::FileData`]) | a warm launch fetches nothing |
//! | entries as they are | the segment's flags and the page's own history must agree ([`Policy`]) | pages that became read-only after they were written never stay |
//! | nodes keep pages for themselves | others that lack them get them ([`Resident`]) | a warm node is a holder in a broadcast |
//!
//! | item | what it is |
//! |---|---|
//! | [`Policy`] | what one launch wants kept |
//! | [`Retained`] | one program's table between two launches, a *warm* program |
//! | [`WarmTable`] | all of them: limits, who goes first, what control must be told |
//! | [`Resident`] | pages of the file in a table, for others that lack them |
//!
//! Neighbours: `program::Memory::retire` ends a program's memory here, `Memory::relaunch` starts it
//! again; [`crate::pagehash`] checks a page before it is trusted again.
//!
//! Invariant: a warm program is in the [`WarmTable`] or running, never both, and no other program
//! maps any of its frames.

mod resident;
mod retained;
mod warm;

pub use resident::Resident;
pub use retained::{KeptPage, Retained};
pub use warm::{Change, Holding, ROOM_FRAMES, WARM_MAX, WarmTable};

use super::published::Variant;
use crate::loader::Image;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::paging::{Fate, Leaf};
use crate::{fault, readahead};

/// What a launch wants kept when the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Anything at all.
    pub keep: bool,
    /// Which pages that are only read.
    pub variant: Variant,
    /// Pages of writable segments as the file has them, with [`Variant::ReadOnlyToo`].
    pub pristine: bool,
    /// Most pages to keep.
    pub limit_pages: u64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            keep: true,
            variant: Variant::default(),
            pristine: true,
            limit_pages: u64::MAX,
        }
    }
}

impl Policy {
    /// Keeps nothing.
    pub const fn nothing() -> Self {
        Self {
            keep: false,
            variant: Variant::ReadOnlyToo,
            pristine: false,
            limit_pages: 0,
        }
    }

    /// What becomes of an entry of a program that has ended in its warm table. The segment decides,
    /// by the flags in the file, and the page's own history must agree: its class is lost with the
    /// first chance to write to it.
    pub(crate) fn fate(&self, image: &Image, leaf: &Leaf) -> Fate {
        match self.keeps(image, leaf) {
            Some(attributes) => Fate::Become(attributes),
            None => Fate::Remove,
        }
    }

    fn keeps(&self, image: &Image, leaf: &Leaf) -> Option<Attributes> {
        let class = leaf.attributes.class;
        let written = leaf.dirty || leaf.attributes.protection == Protection::ReadWrite;
        if !self.keep || written || !self.variant.keeps(class) {
            return None;
        }
        if class == Class::FileData && !self.pristine {
            return None;
        }
        let segment = image.segment_at(leaf.page.as_u64())?;
        let of_file = leaf.page.as_u64() < segment.file_end;
        (of_file && segment.class == class)
            .then(|| Attributes::user(fault::shown(class, segment.protection), class))
    }
}

/// What became of a program's pages when it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetireCounts {
    /// Pages the program was launched on.
    pub reused: u64,
    /// Pages kept, in all.
    pub kept: u64,
    /// Of these, pages of executable segments.
    pub kept_code: u64,
    /// Of these, pages of segments that are only read.
    pub kept_readonly: u64,
    /// Of these, pages of writable segments as the file has them.
    pub kept_data: u64,
    /// Pages of the file that were in memory and are not kept.
    pub discarded: u64,
    /// Private frames given back.
    pub released: u64,
    /// Frames of the page table when the program ended.
    pub tables: u64,
    /// Pages asked for and read ahead in this run.
    pub readahead: readahead::Counts,
}
