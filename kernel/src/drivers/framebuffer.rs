//! The screen that UEFI firmware has left.
//!
//! Key functions: [`map`], [`open`]. Neighbours: the boot stub has found it, `kernel_core::screen`
//! draws text, `console` and `panic` print.
//!
//! Invariant: only memory that firmware's mode has, and that is no RAM, is written to.

use core::fmt;
use core::ptr::NonNull;

use hearth_abi::handoff::Framebuffer;
use kernel_core::addr::{PAGE_SIZE, PhysAddr};
use kernel_core::frames::State;
use kernel_core::screen::{Layout, PIXEL_BYTES, Pixels, Screen};
use spin::Once;
use volatile::VolatilePtr;

use crate::mm;

static MAPPED: Once<Mapped> = Once::new();

/// A screen in the kernel's address space.
#[derive(Clone, Copy)]
struct Mapped {
    base: NonNull<u32>,
    layout: Layout,
}

// SAFETY: the memory is mapped for good, and every access is one volatile store; two screens mix
// their characters and do no other harm.
unsafe impl Send for Mapped {}
// SAFETY: as above; there is no access through a shared reference.
unsafe impl Sync for Mapped {}

/// Why a screen is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// It is too small, or its numbers cannot be.
    Layout,
    /// It is where memory is.
    Memory,
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Layout => "it is too small for text, or firmware says nonsense of it",
            Self::Memory => "firmware says that it is where memory is",
        })
    }
}

/// Maps the screen. Once it has been, it can be opened.
///
/// # Errors
/// [`Unusable`].
pub fn map(screen: &Framebuffer) -> Result<(), Unusable> {
    let layout = Layout::of(screen).ok_or(Unusable::Layout)?;
    let bytes = layout.bytes() as u64;
    let start = PhysAddr::try_new(screen.address).ok_or(Unusable::Layout)?;
    let end =
        PhysAddr::try_new(screen.address.saturating_add(bytes - 1)).ok_or(Unusable::Layout)?;
    if !start.is_aligned(PIXEL_BYTES as u64) {
        return Err(Unusable::Layout);
    }
    let frames = (start.frame_number()..=end.frame_number()).map(|n| PhysAddr::new(n * PAGE_SIZE));
    let is_memory = |frame| mm::frames().state(frame).0 != State::Absent;
    if frames.into_iter().any(is_memory) {
        return Err(Unusable::Memory);
    }
    MAPPED.call_once(|| Mapped {
        base: mm::map_mmio(start, bytes).cast(),
        layout,
    });
    Ok(())
}

/// The screen, black; `None` where [`map`] has not found one.
pub fn open() -> Option<Screen<Memory>> {
    let mapped = *MAPPED.get()?;
    Some(Screen::new(Memory(mapped), mapped.layout))
}

/// The memory of the screen.
pub struct Memory(Mapped);

impl Pixels for Memory {
    fn set(&mut self, place: usize, colour: u32) {
        let mapped = &self.0;
        assert!(place < mapped.layout.bytes() / PIXEL_BYTES, "no such pixel");
        // SAFETY: the pixel lies in what was mapped for the layout, aligned as the whole is, and no
        // reference to it is ever made.
        unsafe { VolatilePtr::new(mapped.base.add(place)) }.write(colour);
    }
}
