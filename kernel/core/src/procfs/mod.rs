//! What files of `/proc` and `/sys` say, as programs and libraries read them.
//!
//! | file | function | who reads it |
//! |---|---|---|
//! | `/proc/self/maps` | [`maps::write`] | Rust, garbage collectors, tools that unwind stacks |
//! | `/proc/self/status` | [`status::write`] | programs that report their memory |
//! | `/proc/cpuinfo` | [`cpuinfo::write`] | numerical libraries |
//! | `/proc/meminfo` | [`meminfo::write`] | glibc (memory of the machine), libraries that size caches |
//! | `/proc/stat` | [`stat::write`] | glibc (number of cores) |
//! | `/sys/devices/system/cpu/{possible,online}` | [`cpus`] | glibc, libgomp |
//!
//! Each takes what is known and writes text. A line that Linux has and a node knows nothing of is
//! left out. Source: Linux, `Documentation/filesystems/proc.rst` and `fs/proc/`.
//!
//! Neighbours: `kernel::process` has the files and finds the figures.

pub mod cpuinfo;
pub mod maps;
pub mod meminfo;
pub mod stat;
pub mod status;

use alloc::string::String;

use crate::threads::CoreSet;

/// What the files about cores say: `0-3`.
pub fn cpus(cores: CoreSet) -> String {
    alloc::format!("{cores}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_said_as_linux_does() {
        assert_eq!(cpus(CoreSet::first(1)), "0\n");
        assert_eq!(cpus(CoreSet::first(4)), "0-3\n");
        assert_eq!(cpus(CoreSet::from_bits(0b1101)), "0,2-3\n");
    }
}
