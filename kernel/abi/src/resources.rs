//! What a program hears of its machine and of what it has used: the structures of sysinfo,
//! getrusage, times and getrlimit, as bytes.
//!
//! Key types: [`Host`], [`Usage`], [`Limits`]. Neighbours: `process::calls` in the kernel fills
//! them in. Source of the layouts: Linux, `include/uapi/linux/{sysinfo,resource,times}.h`.
//!
//! Invariant: every byte of a structure is written, those without a meaning here as zeros.

use crate::errno::Errno;

/// Ticks of times(2) in a second, which the auxiliary vector tells programs, too.
pub const TICKS_PER_SECOND: u64 = 100;
const MICROS_PER_SECOND: u64 = 1_000_000;
const MICROS_PER_TICK: u64 = MICROS_PER_SECOND / TICKS_PER_SECOND;
/// A load of 1 as sysinfo writes it.
const LOAD_ONE: u64 = 1 << 16;

/// Bytes of `struct sysinfo`.
pub const SYSINFO_BYTES: usize = 112;
/// Bytes of `struct rusage`.
pub const RUSAGE_BYTES: usize = 144;
/// Bytes of `struct tms`.
pub const TMS_BYTES: usize = 32;
/// Bytes of `struct rlimit`.
pub const RLIMIT_BYTES: usize = 16;

/// Writes words in a row.
fn words<const BYTES: usize>(words: &[u64]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Seconds since it booted.
    pub uptime_s: u64,
    /// Bytes of memory that programs can get, and those that are free now.
    pub memory_bytes: u64,
    /// See above.
    pub free_bytes: u64,
}

impl Host {
    /// `struct sysinfo`: one program runs, there is no swap, sizes are in bytes.
    pub fn sysinfo(&self) -> [u8; SYSINFO_BYTES] {
        const PROCESSES: u64 = 1;
        const UNIT: u64 = 1;
        let mut all = [0; SYSINFO_BYTES / 8];
        all[0] = self.uptime_s;
        all[1..4].fill(LOAD_ONE);
        all[4] = self.memory_bytes;
        all[5] = self.free_bytes;
        all[10] = PROCESSES;
        all[13] = UNIT;
        words(&all)
    }
}

/// What a program has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Microseconds in ring 3.
    pub user_us: u64,
    /// Microseconds of the kernel while it did not sleep.
    pub system_us: u64,
    /// Most memory at once, in KiB.
    pub peak_kib: u64,
    /// Page faults that waited for nothing, and those that fetched a page of the file.
    pub faults_minor: u64,
    /// See above.
    pub faults_major: u64,
}

impl Usage {
    /// Microseconds of the processor.
    pub const fn cpu_us(&self) -> u64 {
        self.user_us.saturating_add(self.system_us)
    }

    /// `struct rusage`.
    pub fn rusage(&self) -> [u8; RUSAGE_BYTES] {
        words(&[
            self.user_us / MICROS_PER_SECOND,
            self.user_us % MICROS_PER_SECOND,
            self.system_us / MICROS_PER_SECOND,
            self.system_us % MICROS_PER_SECOND,
            self.peak_kib,
            0,
            0,
            0,
            self.faults_minor,
            self.faults_major,
        ])
    }

    /// `struct tms`: there are no children.
    pub fn tms(&self) -> [u8; TMS_BYTES] {
        words(&[
            self.user_us / MICROS_PER_TICK,
            self.system_us / MICROS_PER_TICK,
        ])
    }
}

/// Microseconds as ticks of times(2).
pub const fn ticks(micros: u64) -> u64 {
    micros / MICROS_PER_TICK
}

/// No limit.
pub const UNLIMITED: u64 = u64::MAX;

/// The limits that getrlimit tells: those that the node keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the stack.
    pub stack_bytes: u64,
    /// Bytes of memory that the program can get.
    pub memory_bytes: u64,
    /// Descriptors.
    pub descriptors: u64,
    /// Signals that wait for the program.
    pub signals: u64,
}

impl Limits {
    /// The limit of a resource by its number; `None` where there is no such resource. It is the
    /// soft limit and the hard one, until the program has lowered them ([`Lowered`]).
    pub const fn of(&self, resource: u64) -> Option<u64> {
        const ALONE: u64 = 1;
        Some(match resource {
            // RLIMIT_STACK, RLIMIT_RSS, RLIMIT_NPROC, RLIMIT_NOFILE, RLIMIT_SIGPENDING.
            3 => self.stack_bytes,
            5 => self.memory_bytes,
            6 => ALONE,
            7 => self.descriptors,
            11 => self.signals,
            // RLIMIT_CORE, RLIMIT_MSGQUEUE, RLIMIT_NICE, RLIMIT_RTPRIO: there is none of it.
            4 | 12 | 13 | 14 => 0,
            // RLIMIT_CPU, FSIZE, DATA, MEMLOCK, AS, LOCKS, RTTIME.
            0 | 1 | 2 | 8 | 9 | 10 | 15 => UNLIMITED,
            _ => return None,
        })
    }
}

/// Resources whose limits a program can lower: those that are kept then, and that of the stack,
/// which programs lower to have more room for others.
pub const DATA: u64 = 2;
const STACK: u64 = 3;
/// See above: descriptors.
pub const DESCRIPTORS: u64 = 7;
/// See above: memory that is mapped.
pub const ADDRESS_SPACE: u64 = 9;
const RESOURCES: usize = 16;

/// Limits that a program has lowered, soft and hard, by their numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lowered([Option<[u64; 2]>; RESOURCES]);

impl Lowered {
    /// The soft and the hard limit of a resource; `None` where there is no such resource.
    pub fn of(&self, resource: u64, limits: &Limits) -> Option<[u64; 2]> {
        let limit = limits.of(resource)?;
        Some(self.0[resource as usize].unwrap_or([limit; 2]))
    }

    /// Sets the soft and the hard limit of a resource: EPERM where the hard one would rise, or
    /// where a limit that the node does not keep would change.
    pub fn set(
        &mut self,
        resource: u64,
        [soft, hard]: [u64; 2],
        limits: &Limits,
    ) -> Result<(), Errno> {
        let before = self.of(resource, limits).ok_or(Errno::EINVAL)?;
        if soft > hard {
            return Err(Errno::EINVAL);
        }
        let can_change = matches!(resource, DATA | STACK | DESCRIPTORS | ADDRESS_SPACE);
        if hard > before[1] || !can_change && [soft, hard] != before {
            return Err(Errno::EPERM);
        }
        self.0[resource as usize] = Some([soft, hard]);
        Ok(())
    }
}

/// `struct rlimit` of a soft and a hard limit.
pub fn rlimit(limits: [u64; 2]) -> [u8; RLIMIT_BYTES] {
    words(&limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }

    #[test]
    fn sysinfo_is_linux_s() {
        let host = Host {
            uptime_s: 77,
            memory_bytes: 48 << 20,
            free_bytes: 40 << 20,
        };
        let bytes = host.sysinfo();
        let fields = [0, 8, 32, 40, 56].map(|at| word(&bytes, at));
        assert_eq!(fields, [77, LOAD_ONE, 48 << 20, 40 << 20, 0]);
        // Processes are a 16-bit number, the unit one of 32 bits behind two words.
        assert_eq!(bytes[80..82], [1, 0]);
        assert_eq!(bytes[104..108], [1, 0, 0, 0]);
    }

    #[test]
    fn usage_counts_in_seconds_and_ticks() {
        let usage = Usage {
            user_us: 2_500_001,
            system_us: 70_000,
            peak_kib: 400,
            faults_minor: 5,
            faults_major: 6,
        };
        let bytes = usage.rusage();
        let fields = [0, 8, 16, 24, 32, 64, 72].map(|at| word(&bytes, at));
        assert_eq!(fields, [2, 500_001, 0, 70_000, 400, 5, 6]);
        let bytes = usage.tms();
        assert_eq!([0, 8, 16, 24].map(|at| word(&bytes, at)), [250, 7, 0, 0]);
        assert_eq!(usage.cpu_us(), 2_570_001);
        assert_eq!(ticks(1_234_567), 123);
    }

    #[test]
    fn limits_are_those_of_the_node() {
        let limits = Limits {
            stack_bytes: 8 << 20,
            memory_bytes: 40 << 20,
            descriptors: 256,
            signals: 128,
        };
        let known = [3, 4, 5, 6, 7, 11].map(|resource| limits.of(resource));
        assert_eq!(known, [8 << 20, 0, 40 << 20, 1, 256, 128].map(Some));
        assert_eq!(limits.of(9), Some(UNLIMITED));
        assert_eq!(limits.of(16), None);
        assert_eq!(rlimit([6, 7])[8], 7);
    }

    #[test]
    fn limits_are_lowered_and_not_raised() {
        let limits = Limits {
            stack_bytes: 8 << 20,
            memory_bytes: 1 << 30,
            descriptors: 256,
            signals: 128,
        };
        let mut lowered = Lowered::default();
        assert_eq!(lowered.of(DESCRIPTORS, &limits), Some([256, 256]));
        assert_eq!(lowered.set(DESCRIPTORS, [42, 100], &limits), Ok(()));
        assert_eq!(lowered.of(DESCRIPTORS, &limits), Some([42, 100]));
        assert_eq!(lowered.set(DESCRIPTORS, [100, 100], &limits), Ok(()));
        let refused = lowered.set(DESCRIPTORS, [100, 101], &limits);
        assert_eq!(refused, Err(Errno::EPERM));
        let refused = lowered.set(DESCRIPTORS, [101, 100], &limits);
        assert_eq!(refused, Err(Errno::EINVAL));
        // One that nobody would keep, but for what it is already.
        assert_eq!(lowered.set(0, [1, 1], &limits), Err(Errno::EPERM));
        assert_eq!(lowered.set(0, [UNLIMITED; 2], &limits), Ok(()));
        assert_eq!(lowered.set(16, [0, 0], &limits), Err(Errno::EINVAL));
    }
}
