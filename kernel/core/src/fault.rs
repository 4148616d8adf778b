//! The fault policy: what to do when a program touches a page that is not there for it.
//!
//! [`decide`] is a pure function of the regions, the page table's entry and the frames left; it
//! is used for page faults in ring 3 and for system calls that touch user memory alike.
//!
//! Neighbours: [`crate::space`] holds the regions, [`crate::readahead`] widens a [`FilePage`] to
//! its neighbours, [`crate::crash`] prints a [`Cause`]; `kernel::process` carries decisions out.
//!
//! Invariant: a decision never gives more than the region's protection, and never brings in a
//! page of the file as anything but that segment says.

use core::fmt;

use crate::addr::{LARGE_PAGE_SIZE, PAGE_SIZE, USER_END, VirtAddr, page_down};
use crate::loader::layout;
use crate::paging::Leaf;
use crate::paging::entry::{Attributes, Class, Protection};
use crate::signals::Info;
use crate::space::{Kind, Region, Space};
use hearth_abi::linux::Signal;

/// Frames that programs never get, 1 MiB: when a program has used up all memory the kernel's heap
/// must still grow for what the network has under way (eight page requests of 32 KiB with their
/// copies, a queue of 64 KiB), and page tables and the exit report need some.
pub const FRAMES_RESERVED: u64 = 256;

/// What the program tried to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Read data.
    Read,
    /// Write data.
    Write,
    /// Fetch an instruction.
    Execute,
}

impl Access {
    /// From the error code of a page fault (Intel SDM volume 3A, 4.7).
    pub const fn from_error_code(code: u64) -> Self {
        if code & 1 << 4 != 0 {
            Self::Execute
        } else if code & 1 << 1 != 0 {
            Self::Write
        } else {
            Self::Read
        }
    }

    /// Whether a page with this protection allows it.
    pub const fn allowed_by(self, protection: Protection) -> bool {
        match self {
            Self::Read => !matches!(protection, Protection::None),
            Self::Write => matches!(protection, Protection::ReadWrite),
            Self::Execute => matches!(protection, Protection::ReadExecute),
        }
    }
}

/// A page of the program file that must be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePage {
    /// Where it goes.
    pub page: VirtAddr,
    /// Offset in the file, a multiple of the page size.
    pub offset: u64,
    /// Bytes that come from the file, 1 to 4096; the rest of the page is zeros.
    pub bytes: u64,
    /// How to map it.
    pub attributes: Attributes,
}

/// A page of an object that is mapped, be it of the node's store or of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectPage {
    /// Where it goes.
    pub page: VirtAddr,
    /// Which of the program's files, or of its shared memory objects.
    pub file: u16,
    /// Number of the page in it.
    pub index: u64,
    /// How to map it.
    pub attributes: Attributes,
}

/// What to do about a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Fetch a page of the program file and map it.
    File(FilePage),
    /// Map a page of an object.
    Object(ObjectPage),
    /// Map a copy of a page of an object, which is about to be written.
    ObjectCopy(ObjectPage),
    /// Map a page of a shared memory object.
    SharedMemory(ObjectPage),
    /// Map a copy of a page of a shared memory object, which is about to be written.
    SharedMemoryCopy(ObjectPage),
    /// Map a page of zeros.
    ZeroFill {
        /// The page.
        page: VirtAddr,
        /// How to map it.
        attributes: Attributes,
        /// Whether it belongs to the stack.
        stack: bool,
        /// Whether all of the large page around it may be mapped at once.
        large: bool,
    },
    /// The page holds what a file holds and is about to be written: give the program a copy.
    Copy {
        /// The page.
        page: VirtAddr,
    },
    /// The page is in memory but not presented yet: give it its protection.
    Present {
        /// The page.
        page: VirtAddr,
        /// The protection to give it.
        protection: Protection,
    },
    /// The page is there with the right protection: a stale TLB entry. Invalidate it.
    Stale {
        /// The page.
        page: VirtAddr,
    },
    /// End the program.
    Kill(Cause),
}

/// Why a program was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// An address in the lowest 64 KiB.
    NullPointer,
    /// An address where nothing is.
    Unmapped,
    /// An address of the kernel or one that is not canonical.
    NotUser,
    /// The guard below the stack.
    StackOverflow,
    /// The page is there, but not for this.
    Protection(Protection),
    /// No memory left for the page.
    OutOfMemory,
    /// The page lies behind the end of the file that is mapped there.
    BeyondFile,
    /// The page could not be fetched from control.
    PageUnavailable,
    /// A CPU exception other than a page fault.
    Exception {
        /// Its vector.
        vector: u8,
    },
    /// The program sent itself the signal of this number (abort), or its timer did.
    Raised(u8),
    /// The signal of this number came from outside the program.
    Sent(u8),
    /// A signal has a handler whose frame finds no room on the stack, or is not there to return by.
    SignalFrame,
    /// Ended by control with the signal of this number.
    Cancelled(u8),
    /// The time limit is over.
    TimeLimit,
}

impl Cause {
    /// Of a signal that has no handler, with what came with it.
    pub fn of_signal(signal: u8, info: &Info) -> Self {
        match info.is_from_outside() {
            true => Self::Sent(signal),
            false => Self::Raised(signal),
        }
    }

    /// Number of the signal the user sees.
    pub const fn signal_number(self) -> u8 {
        match self {
            Self::Raised(number) | Self::Sent(number) | Self::Cancelled(number) => number,
            other => other.signal().number(),
        }
    }

    /// The signal the user sees; SIGKILL for one that has no name here, as real-time signals have
    /// none.
    pub const fn signal(self) -> Signal {
        match self {
            Self::NullPointer
            | Self::Unmapped
            | Self::NotUser
            | Self::StackOverflow
            | Self::Protection(_)
            | Self::SignalFrame => Signal::Segv,
            Self::OutOfMemory => Signal::Kill,
            Self::BeyondFile | Self::PageUnavailable => Signal::Bus,
            Self::Exception { vector } => match vector {
                0 | 16 | 19 => Signal::Fpe,
                1 | 3 => Signal::Trap,
                6 => Signal::Ill,
                17 => Signal::Bus,
                _ => Signal::Segv,
            },
            Self::Raised(number) | Self::Sent(number) | Self::Cancelled(number) => {
                match Signal::from_number(number) {
                    Some(signal) => signal,
                    None => Signal::Kill,
                }
            }
            Self::TimeLimit => Signal::Xcpu,
        }
    }

    /// Whether the program is to leave a core file where that was asked for: it is its own fault.
    pub const fn leaves_core(self) -> bool {
        match self {
            Self::Cancelled(_) | Self::TimeLimit | Self::PageUnavailable => false,
            // One without a name has no core by default.
            other => other.signal().leaves_core(),
        }
    }

    /// Whether a system call that was given the address answers EFAULT.
    pub const fn is_bad_address(self) -> bool {
        let nothing_there = matches!(self.signal(), Signal::Segv) && self.has_address();
        nothing_there || matches!(self, Self::BeyondFile)
    }

    /// Whether the address of the access belongs in the report.
    pub const fn has_address(self) -> bool {
        !matches!(
            self,
            Self::Exception { .. }
                | Self::Raised(_)
                | Self::Sent(_)
                | Self::SignalFrame
                | Self::Cancelled(_)
                | Self::TimeLimit
        )
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match *self {
            Self::NullPointer => "null pointer",
            Self::Unmapped => "nothing is mapped there",
            Self::NotUser => "not a user address",
            Self::StackOverflow => "stack overflow",
            Self::Protection(Protection::None) => "the page is protected",
            Self::Protection(Protection::Read) => "the page is read-only",
            Self::Protection(Protection::ReadWrite) => "the page is not executable",
            Self::Protection(Protection::ReadExecute) => "the page is code, it is not writable",
            Self::OutOfMemory => {
                "out of memory: the program needs more than the node has; share it among more nodes, \
                 or take nodes with more memory"
            }
            Self::BeyondFile => "behind the end of the file that is mapped there",
            Self::PageUnavailable => "a page of the program could not be fetched",
            Self::Exception { vector } => match vector {
                0 => "integer divide error",
                1 => "debug exception",
                3 => "breakpoint",
                6 => "invalid instruction",
                13 => "general protection (privileged instruction or non-canonical address)",
                16 => "x87 floating-point exception",
                17 => "misaligned access",
                19 => "SIMD floating-point exception",
                _ => return write!(f, "CPU exception {vector}"),
            },
            Self::Raised(_) => "raised by the program itself",
            Self::Sent(_) => "sent from outside the program",
            Self::SignalFrame => "no room on the stack for a signal handler, or its frame is gone",
            Self::Cancelled(_) => "cancelled",
            Self::TimeLimit => "time limit reached",
        };
        f.write_str(text)
    }
}

/// Decides about an access to `address`. `leaf` is what the page table holds for it, `frames` how
/// many frames are available.
pub fn decide(
    space: &Space,
    address: u64,
    access: Access,
    leaf: Option<Leaf>,
    frames: u64,
) -> Decision {
    let Some(region) = space.find(address) else {
        return Decision::Kill(match address {
            _ if address < layout::USER_MIN => Cause::NullPointer,
            _ if address >= USER_END => Cause::NotUser,
            _ => Cause::Unmapped,
        });
    };
    if region.kind == Kind::Guard {
        return Decision::Kill(Cause::StackOverflow);
    }
    if !access.allowed_by(region.protection) {
        return Decision::Kill(Cause::Protection(region.protection));
    }
    let page = VirtAddr::new(page_down(address));
    if let Some(leaf) = leaf {
        let protection = shown(leaf.attributes.class, region.protection);
        return match leaf.attributes.protection == protection {
            _ if !access.allowed_by(protection) => Decision::Copy { page },
            true => Decision::Stale { page },
            false => Decision::Present { page, protection },
        };
    }
    if is_beyond_file(&region, page) {
        return Decision::Kill(Cause::BeyondFile);
    }
    if frames <= FRAMES_RESERVED {
        return Decision::Kill(Cause::OutOfMemory);
    }
    if let Some(object) = object_page(&region, page) {
        return match access {
            Access::Write => Decision::ObjectCopy(object),
            Access::Read | Access::Execute => Decision::Object(object),
        };
    }
    if let Some((object, copied)) = shared_memory_page(&region, page) {
        return match copied && access == Access::Write {
            true => Decision::SharedMemoryCopy(object),
            false => Decision::SharedMemory(object),
        };
    }
    match file_page(&region, page) {
        Some(file) => Decision::File(file),
        None => Decision::ZeroFill {
            page,
            attributes: Attributes::user(region.protection, Class::Private),
            stack: region.kind == Kind::Stack,
            large: is_large(&region, page),
        },
    }
}

/// Whether the large page around a page is memory of the program's own that it may write to.
fn is_large(region: &Region, page: VirtAddr) -> bool {
    let start = page.as_u64() & !(LARGE_PAGE_SIZE - 1);
    let is_own = matches!(
        region.kind,
        Kind::Anonymous { large: true, .. } | Kind::Heap
    );
    is_own
        && region.protection == Protection::ReadWrite
        && region.start <= start
        && region.end - start >= LARGE_PAGE_SIZE
}

/// The protection that a page of this class is mapped with in a region of that protection: what
/// the file holds is never writable.
pub const fn shown(class: Class, region: Protection) -> Protection {
    match (class, region) {
        (Class::FileData | Class::Object, Protection::ReadWrite) => Protection::Read,
        (_, protection) => protection,
    }
}

/// What a page of a region takes from the file; `None` when it starts as zeros.
pub fn file_page(region: &Region, page: VirtAddr) -> Option<FilePage> {
    let Kind::File {
        shift,
        file_end,
        class,
    } = region.kind
    else {
        return None;
    };
    let at = page.as_u64();
    debug_assert!((region.start..region.end).contains(&at));
    if at >= file_end {
        return None;
    }
    // By the program header's flags, and never a page the program may write but as its copy.
    let class = match (region.protection, class) {
        (Protection::ReadWrite, Class::FileRead | Class::FileExecute) => Class::Private,
        (_, class) => class,
    };
    Some(FilePage {
        page,
        offset: at.wrapping_add(shift),
        bytes: (file_end - at).min(PAGE_SIZE),
        attributes: Attributes::user(shown(class, region.protection), class),
    })
}

/// The page of an object that a page of a region shows; `None` when the region shows none, or the
/// object ends before.
pub fn object_page(region: &Region, page: VirtAddr) -> Option<ObjectPage> {
    let Kind::Object { file, shift, .. } = region.kind else {
        return None;
    };
    let at = page.as_u64();
    debug_assert!((region.start..region.end).contains(&at));
    let protection = shown(Class::Object, region.protection);
    (!is_beyond_file(region, page)).then_some(ObjectPage {
        page,
        file,
        index: at.wrapping_add(shift) / PAGE_SIZE,
        attributes: Attributes::user(protection, Class::Object),
    })
}

/// The page of a shared memory object that a page of a region shows, be it there or not, and
/// whether what is written to it is a copy.
fn shared_memory_page(region: &Region, page: VirtAddr) -> Option<(ObjectPage, bool)> {
    let Kind::SharedMemory {
        object,
        shared,
        shift,
        ..
    } = region.kind
    else {
        return None;
    };
    // A page that is copied when it is written to is as those of files are.
    let class = match shared {
        true => Class::SharedMemory,
        false => Class::Object,
    };
    let shown = ObjectPage {
        page,
        file: object,
        index: page.as_u64().wrapping_add(shift) / PAGE_SIZE,
        attributes: Attributes::user(shown(class, region.protection), class),
    };
    Some((shown, !shared))
}

/// Whether a page of a region shows nothing because the object that is mapped there ends before.
fn is_beyond_file(region: &Region, page: VirtAddr) -> bool {
    matches!(region.kind, Kind::Object { file_end, .. } if page.as_u64() >= file_end)
}

#[cfg(test)]
mod tests;
