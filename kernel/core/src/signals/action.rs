//! What a program wants done about a signal: `struct sigaction` of the kernel.
//!
//! Source: Linux, `arch/x86/include/uapi/asm/signal.h`: handler, flags, restorer, mask, 8 bytes
//! each.

/// Bytes of the structure.
pub const ACTION_BYTES: usize = 32;

/// Flags of an action.
pub mod flag {
    /// The handler returns by the restorer: always so on x86-64.
    pub const RESTORER: u64 = 0x0400_0000;
    /// The handler runs on the alternate stack, if there is one.
    pub const ONSTACK: u64 = 0x0800_0000;
    /// Calls that the handler interrupted begin again.
    pub const RESTART: u64 = 0x1000_0000;
    /// The signal is not blocked in its handler.
    pub const NODEFER: u64 = 0x4000_0000;
    /// The handler is for one signal only.
    pub const RESETHAND: u64 = 0x8000_0000;
}

const DEFAULT: u64 = 0;
const IGNORE: u64 = 1;

/// An action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Action {
    /// Address of the handler, or what there is instead of one.
    pub handler: u64,
    /// See [`flag`].
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals that are blocked in the handler.
    pub mask: u64,
}

impl Action {
    /// From its bytes.
    pub fn from_bytes(bytes: &[u8; ACTION_BYTES]) -> Self {
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Self {
            handler: word(0),
            flags: word(8),
            restorer: word(16),
            mask: word(24),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; ACTION_BYTES] {
        let mut bytes = [0; ACTION_BYTES];
        let words = [self.handler, self.flags, self.restorer, self.mask];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Whether it is the default one.
    pub const fn is_default(&self) -> bool {
        self.handler == DEFAULT
    }

    /// Whether it is to ignore the signal.
    pub const fn is_ignore(&self) -> bool {
        self.handler == IGNORE
    }

    /// Whether there is a handler.
    pub const fn is_handler(&self) -> bool {
        !self.is_default() && !self.is_ignore()
    }

    /// Whether a flag is set.
    pub const fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }
}
