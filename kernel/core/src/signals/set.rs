//! Sets of signals: bit n - 1 is signal n.

use hearth_abi::linux::Signal;

/// Signals are numbered from 1 to this.
pub const SIGNAL_MAX: u64 = 64;
/// First of the signals of which several may wait, each with a value.
pub const REAL_TIME_MIN: u64 = 32;

/// The set of one signal.
pub const fn bit(signal: Signal) -> u64 {
    1 << (signal.number() - 1)
}

/// What cannot be caught, blocked or ignored.
pub const ABSOLUTE: u64 = bit(Signal::Kill) | bit(Signal::Stop);
/// What does nothing unless there is a handler.
pub const IGNORED_BY_DEFAULT: u64 =
    bit(Signal::Chld) | bit(Signal::Cont) | bit(Signal::Urg) | bit(Signal::Winch);
/// What faults raise goes first.
const OF_FAULTS: u64 = bit(Signal::Segv)
    | bit(Signal::Bus)
    | bit(Signal::Ill)
    | bit(Signal::Trap)
    | bit(Signal::Fpe)
    | bit(Signal::Sys);

/// The signal of a set that goes first: the lowest number of those that faults raise, then the
/// lowest number.
pub const fn first(set: u64) -> Option<u8> {
    let set = match set & OF_FAULTS {
        0 => set,
        of_faults => of_faults,
    };
    match set {
        0 => None,
        _ => Some(set.trailing_zeros() as u8 + 1),
    }
}
