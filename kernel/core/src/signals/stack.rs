//! The alternate stack of signal handlers: `stack_t`.

use hearth_abi::errno::Errno;

/// Bytes of the structure: address, flags, size.
pub const STACK_BYTES: usize = 24;
/// Smallest alternate stack (MINSIGSTKSZ).
pub const STACK_MIN: u64 = 2048;

const ON_STACK: u32 = 1;
const DISABLED: u32 = 2;
/// The stack is switched off while a handler runs on it.
const AUTODISARM: u32 = 1 << 31;

/// An alternate stack, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AltStack {
    start: u64,
    size: u64,
    flags: u32,
}

impl AltStack {
    /// No alternate stack.
    pub const NONE: Self = Self {
        start: 0,
        size: 0,
        flags: DISABLED,
    };

    /// From its bytes; fails when it makes no sense or is too small.
    pub fn from_bytes(bytes: &[u8; STACK_BYTES]) -> Result<Self, Errno> {
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let flags = word(8) as u32;
        match flags & !AUTODISARM {
            DISABLED => Ok(Self::NONE),
            // As on Linux: programs write back what they have read.
            0 | ON_STACK if word(16) < STACK_MIN => Err(Errno::ENOMEM),
            0 | ON_STACK => Ok(Self {
                start: word(0),
                size: word(16),
                flags: flags & AUTODISARM,
            }),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Its bytes, for a program with this stack pointer.
    pub fn to_bytes(&self, pointer: u64) -> [u8; STACK_BYTES] {
        let now = if self.holds(pointer) { ON_STACK } else { 0 };
        let mut bytes = [0; STACK_BYTES];
        let words = [self.start, u64::from(self.flags | now), self.size];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether a program with this stack pointer runs on it.
    pub const fn holds(&self, pointer: u64) -> bool {
        let on = pointer > self.start && pointer - self.start <= self.size;
        on && self.flags & (DISABLED | AUTODISARM) == 0
    }

    /// Its end, where a handler begins; `None` when there is none.
    pub const fn top(&self) -> Option<u64> {
        match self.flags & DISABLED {
            0 => self.start.checked_add(self.size),
            _ => None,
        }
    }

    /// Its first address.
    pub const fn start(&self) -> u64 {
        self.start
    }

    /// What there is of it while a handler runs on it.
    pub const fn in_handler(self) -> Self {
        match self.flags & AUTODISARM {
            0 => self,
            _ => Self::NONE,
        }
    }
}
