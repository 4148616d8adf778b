//! What a futex call asks for.
//!
//! Whether the word is private to the process makes no difference: there is no fork, so that only
//! threads of one process see it.
//!
//! Source: Linux, `kernel/futex/syscalls.c` (`do_futex`) and `kernel/futex/waitwake.c`
//! (`futex_atomic_op_inuser`); FUTEX_WAIT by real time is refused since version 5.13.

use hearth_abi::errno::Errno;
use hearth_abi::linux::futex;

/// By which clock a wait ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// A span from the call on.
    Span,
    /// A time of the monotonic clock.
    Monotonic,
    /// A time of day.
    RealTime,
}

/// A futex call. Its first address is that of "the word", the other one that of "the second word".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Wait while the word holds a value.
    Wait {
        /// The value.
        expected: u32,
        /// Met by wakers with a bit in common; not 0.
        bitset: u32,
        /// What the time means, where one is given.
        timeout: Timeout,
    },
    /// Wake waiters of the word.
    Wake {
        /// How many at most; at least 1.
        count: u32,
        /// Meets waiters with a bit in common; not 0.
        bitset: u32,
    },
    /// Wake waiters of the word, and have others wait at the second one. The answer is how many
    /// were either.
    Requeue {
        /// How many are woken at most.
        wake: u32,
        /// How many go on waiting there at most.
        requeue: u32,
        /// The value that the word must hold, if it must: else the answer is EAGAIN.
        expected: Option<u32>,
    },
    /// Change the second word, wake waiters of the word, and of the second where what it held
    /// compares. The answer is how many were woken.
    WakeOp {
        /// How many of the word are woken at most; at least 1.
        wake: u32,
        /// How many of the second word are woken at most; at least 1.
        wake_second: u32,
        /// The change and the comparison.
        op: WakeOp,
    },
}

impl Command {
    /// From the words of the call. `second` is its fourth, `third` its sixth. PI mutexes and what
    /// Linux does not know are ENOSYS.
    pub fn parse(op: u64, value: u64, second: u64, third: u64) -> Result<Self, Errno> {
        // The call takes int and u32 and does not see the upper halves.
        let (op, value, second, third) = (op as u32, value as u32, second as u32, third as u32);
        let is_real_time = has(op, futex::CLOCK_REALTIME);
        let command = u64::from(op) & !(futex::PRIVATE | futex::CLOCK_REALTIME);
        if is_real_time && command != futex::WAIT_BITSET {
            return Err(Errno::ENOSYS);
        }
        Ok(match command {
            futex::WAIT => Self::Wait {
                expected: value,
                bitset: futex::BITSET_ANY,
                timeout: Timeout::Span,
            },
            futex::WAIT_BITSET => Self::Wait {
                expected: value,
                bitset: some(third)?,
                timeout: match is_real_time {
                    true => Timeout::RealTime,
                    false => Timeout::Monotonic,
                },
            },
            futex::WAKE => Self::Wake {
                count: one_at_least(value),
                bitset: futex::BITSET_ANY,
            },
            futex::WAKE_BITSET => Self::Wake {
                count: one_at_least(value),
                bitset: some(third)?,
            },
            futex::REQUEUE | futex::CMP_REQUEUE => Self::Requeue {
                wake: not_negative(value)?,
                requeue: not_negative(second)?,
                expected: (command == futex::CMP_REQUEUE).then_some(third),
            },
            futex::WAKE_OP => Self::WakeOp {
                wake: one_at_least(value),
                wake_second: one_at_least(second),
                op: WakeOp::parse(third)?,
            },
            _ => return Err(Errno::ENOSYS),
        })
    }

    /// Whether the fourth word of the call is the address of a time, or 0.
    pub const fn has_timeout(&self) -> bool {
        matches!(self, Self::Wait { .. })
    }
}

/// Whether a word can lie at an address: EINVAL unless that is a multiple of 4.
pub const fn check_address(address: u64) -> Result<(), Errno> {
    match address % 4 {
        0 => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

fn has(op: u32, flag: u64) -> bool {
    u64::from(op) & flag != 0
}

/// A mask without a bit meets nobody.
fn some(bitset: u32) -> Result<u32, Errno> {
    match bitset {
        0 => Err(Errno::EINVAL),
        _ => Ok(bitset),
    }
}

/// Linux counts after it has woken one: 0 and negative numbers are 1.
fn one_at_least(count: u32) -> u32 {
    (count as i32).max(1) as u32
}

fn not_negative(count: u32) -> Result<u32, Errno> {
    match count as i32 {
        0.. => Ok(count),
        _ => Err(Errno::EINVAL),
    }
}

/// How FUTEX_WAKE_OP changes the second word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Set,
    Add,
    Or,
    AndNot,
    Xor,
}

/// How FUTEX_WAKE_OP compares what the second word held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compare {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The operation of FUTEX_WAKE_OP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeOp {
    change: Change,
    with: i32,
    compare: Compare,
    to: i32,
}

impl WakeOp {
    /// From the call's last word; ENOSYS for what there is not. Linux finds out about an unknown
    /// comparison after it has changed the word, here nothing is changed.
    fn parse(encoded: u32) -> Result<Self, Errno> {
        let change = match encoded >> 28 & 7 {
            0 => Change::Set,
            1 => Change::Add,
            2 => Change::Or,
            3 => Change::AndNot,
            4 => Change::Xor,
            _ => return Err(Errno::ENOSYS),
        };
        let compare = match encoded >> 24 & 15 {
            0 => Compare::Equal,
            1 => Compare::NotEqual,
            2 => Compare::Less,
            3 => Compare::LessOrEqual,
            4 => Compare::Greater,
            5 => Compare::GreaterOrEqual,
            _ => return Err(Errno::ENOSYS),
        };
        let is_shift = encoded >> 31 == 1;
        let with = signed_12(encoded >> 12);
        Ok(Self {
            change,
            with: match is_shift {
                // Numbers that are too large count by their lowest bits, as on Linux.
                true => 1i32.wrapping_shl(with as u32),
                false => with,
            },
            compare,
            to: signed_12(encoded),
        })
    }

    /// What the second word holds afterwards. To be done atomically.
    pub const fn changed(&self, old: u32) -> u32 {
        let with = self.with as u32;
        match self.change {
            Change::Set => with,
            Change::Add => old.wrapping_add(with),
            Change::Or => old | with,
            Change::AndNot => old & !with,
            Change::Xor => old ^ with,
        }
    }

    /// Whether waiters of the second word are woken where it held `old`.
    pub const fn wakes_second(&self, old: u32) -> bool {
        let old = old as i32;
        match self.compare {
            Compare::Equal => old == self.to,
            Compare::NotEqual => old != self.to,
            Compare::Less => old < self.to,
            Compare::LessOrEqual => old <= self.to,
            Compare::Greater => old > self.to,
            Compare::GreaterOrEqual => old >= self.to,
        }
    }
}

/// The lowest 12 bits, a signed number.
const fn signed_12(bits: u32) -> i32 {
    (bits << 20) as i32 >> 20
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRIVATE: u64 = futex::PRIVATE;
    const REAL_TIME: u64 = futex::CLOCK_REALTIME;
    const MINUS_1: u64 = u32::MAX as u64;

    #[test]
    fn waits_say_what_their_time_means() {
        let wait = |bitset, timeout| {
            Ok(Command::Wait {
                expected: 7,
                bitset,
                timeout,
            })
        };
        for flag in [0, PRIVATE] {
            let parse = |op, third| Command::parse(op | flag, 7, 0x1000, third);
            assert_eq!(parse(0, 0), wait(u32::MAX, Timeout::Span));
            assert_eq!(parse(9, 6), wait(6, Timeout::Monotonic));
            assert_eq!(parse(9 | REAL_TIME, 6), wait(6, Timeout::RealTime));
            assert_eq!(parse(9, 0), Err(Errno::EINVAL));
            assert!(parse(0, 0).unwrap().has_timeout());
        }
        // Upper halves of the registers are not looked at.
        let noise = 0xffff_ffff_0000_0000;
        assert_eq!(
            Command::parse(noise, 7 | noise, 0, noise),
            wait(u32::MAX, Timeout::Span)
        );
    }

    #[test]
    fn real_time_is_for_absolute_waits_only() {
        for command in [0, 1, 3, 4, 5, 10] {
            let parsed = Command::parse(command | REAL_TIME, 1, 1, 1);
            assert_eq!(parsed, Err(Errno::ENOSYS), "{command}");
        }
    }

    #[test]
    fn what_there_is_not_is_enosys() {
        // FD, the commands of PI mutexes, and what nobody knows.
        for command in [2, 6, 7, 8, 11, 12, 13, 14, 0x7f, 0x200, 1 << 31] {
            for flag in [0, PRIVATE] {
                let parsed = Command::parse(command | flag, 1, 1, 1);
                assert_eq!(parsed, Err(Errno::ENOSYS), "{command}");
            }
        }
    }

    #[test]
    fn a_wake_wakes_one_at_least() {
        for (value, count) in [
            (0, 1),
            (1, 1),
            (5, 5),
            (MINUS_1, 1),
            (i32::MAX as u64, i32::MAX as u32),
        ] {
            let bitset = futex::BITSET_ANY;
            let wake = Command::Wake { count, bitset };
            assert_eq!(Command::parse(1, value, 0, 0), Ok(wake));
        }
        assert_eq!(
            Command::parse(10 | PRIVATE, 3, 0, 4),
            Ok(Command::Wake {
                count: 3,
                bitset: 4
            })
        );
        assert_eq!(Command::parse(10, 3, 0, 0), Err(Errno::EINVAL));
    }

    #[test]
    fn a_requeue_takes_no_negative_counts() {
        let requeue = |expected| {
            Ok(Command::Requeue {
                wake: 0,
                requeue: i32::MAX as u32,
                expected,
            })
        };
        let most = i32::MAX as u64;
        assert_eq!(Command::parse(3, 0, most, 9), requeue(None));
        assert_eq!(Command::parse(4, 0, most, 9), requeue(Some(9)));
        for command in [3, 4] {
            assert_eq!(Command::parse(command, MINUS_1, 1, 9), Err(Errno::EINVAL));
            assert_eq!(Command::parse(command, 1, MINUS_1, 9), Err(Errno::EINVAL));
        }
    }

    /// As the macro FUTEX_OP of linux/futex.h.
    fn encoded(op: u32, oparg: i32, cmp: u32, cmparg: i32) -> u32 {
        op << 28 | cmp << 24 | (oparg as u32 & 0xfff) << 12 | cmparg as u32 & 0xfff
    }

    #[test]
    fn wake_op_changes_and_compares() {
        let op = |op, oparg| WakeOp::parse(encoded(op, oparg, 0, 0)).unwrap();
        assert_eq!(op(0, 5).changed(9), 5);
        assert_eq!(op(0, -1).changed(9), u32::MAX);
        assert_eq!(op(1, -2).changed(1), u32::MAX);
        assert_eq!(op(2, 6).changed(9), 15);
        assert_eq!(op(3, 8).changed(9), 1);
        assert_eq!(op(4, 3).changed(9), 10);
        // FUTEX_OP_OPARG_SHIFT.
        assert_eq!(op(8, 31).changed(9), 1 << 31);
        assert_eq!(op(8 | 2, 33).changed(0), 2);

        let compare = |cmp, old: i32| {
            let op = WakeOp::parse(encoded(0, 0, cmp, -3)).unwrap();
            op.wakes_second(old as u32)
        };
        let of = |cmp| [-4, -3, 7].map(|old| compare(cmp, old));
        assert_eq!(of(0), [false, true, false]);
        assert_eq!(of(1), [true, false, true]);
        assert_eq!(of(2), [true, false, false]);
        assert_eq!(of(3), [true, true, false]);
        assert_eq!(of(4), [false, false, true]);
        assert_eq!(of(5), [false, true, true]);
    }

    #[test]
    fn wake_op_as_glibc_and_musl_s_older_condition_variables_use_it() {
        // FUTEX_OP_CLEAR_WAKE_IF_GT_ONE: set to 0, wake where it was more than 1.
        let parsed = Command::parse(5 | PRIVATE, 1, 1, 4 << 24 | 1);
        let Ok(Command::WakeOp {
            wake: 1,
            wake_second: 1,
            op,
        }) = parsed
        else {
            panic!("{parsed:?}");
        };
        assert_eq!(op.changed(2), 0);
        assert!(op.wakes_second(2) && !op.wakes_second(1));
        assert_eq!(Command::parse(5, 1, 1, 5 << 28), Err(Errno::ENOSYS));
        assert_eq!(Command::parse(5, 1, 1, 6 << 24), Err(Errno::ENOSYS));
    }

    #[test]
    fn words_are_aligned() {
        assert_eq!(check_address(0x1004), Ok(()));
        for address in [1, 2, 3, 0x1007] {
            assert_eq!(check_address(address), Err(Errno::EINVAL));
        }
    }
}
