//! A frame in the hands of the kernel's code, between the allocator and an entry.
//!
//! Key type: [`Frame`], which cannot be copied. Neighbours: [`super::FrameAllocator`] gives one out
//! and takes it back, [`super::deferred`] takes it back later; page tables and indices hold
//! numbers, as the processor wants them.
//!
//! Invariant: [`Frame::from_entry`] is for who has taken the number out of the one place that had
//! it. Where that is not true the allocator's tag of the frame shows it: a frame that nobody has is
//! not freed.

use crate::addr::PhysAddr;

/// A frame that was given out and that no entry has, or has any more. It ends in an entry
/// ([`Frame::into_entry`]) or goes back ([`super::FrameAllocator::free`],
/// [`super::FrameAllocator::defer_free`]), once.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a frame that is dropped belongs to nobody and never comes back"]
pub struct Frame(PhysAddr);

impl Frame {
    /// For the allocator, which gives it out.
    pub(super) const fn given(address: PhysAddr) -> Self {
        Self(address)
    }

    /// The frame of an entry that is gone, or of another place that had its number.
    pub const fn from_entry(address: PhysAddr) -> Self {
        Self(address)
    }

    /// An entry, or another place, has its number from now on.
    pub const fn into_entry(self) -> PhysAddr {
        self.0
    }

    /// Where it lies.
    pub const fn address(&self) -> PhysAddr {
        self.0
    }
}
