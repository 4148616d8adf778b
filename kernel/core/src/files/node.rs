//! Small files of the node itself, which every program finds: what libraries look up, and devices.
//!
//! What they hold is made when it is read: [`crate::procfs`] has the texts. The directories that
//! they seem to be in are not there.
//!
//! Invariant: none says anything of another job.

/// A file of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeFile {
    /// `/proc/self/maps`.
    Maps,
    /// `/proc/self/status`.
    Status,
    /// `/proc/cpuinfo`.
    CpuInfo,
    /// `/proc/meminfo`.
    MemInfo,
    /// `/proc/stat`.
    Stat,
    /// `/sys/devices/system/cpu/possible` and `online`.
    Cpus,
    /// `/dev/null`.
    Null,
    /// `/dev/zero`.
    Zero,
    /// `/dev/full`.
    Full,
    /// `/dev/urandom` and `/dev/random`.
    Random,
}

/// A link to the program's file, which no node has: it can be read as a link and not followed.
pub const PROGRAM_LINK: &[u8] = b"/proc/self/exe";

const PATHS: [(&[u8], NodeFile); 12] = [
    (b"/proc/self/maps", NodeFile::Maps),
    (b"/proc/self/status", NodeFile::Status),
    (b"/proc/cpuinfo", NodeFile::CpuInfo),
    (b"/proc/meminfo", NodeFile::MemInfo),
    (b"/proc/stat", NodeFile::Stat),
    (b"/sys/devices/system/cpu/possible", NodeFile::Cpus),
    (b"/sys/devices/system/cpu/online", NodeFile::Cpus),
    (b"/dev/null", NodeFile::Null),
    (b"/dev/zero", NodeFile::Zero),
    (b"/dev/full", NodeFile::Full),
    (b"/dev/urandom", NodeFile::Random),
    (b"/dev/random", NodeFile::Random),
];

impl NodeFile {
    /// The file that a path names, which must be written as above.
    pub fn at(path: &[u8]) -> Option<Self> {
        let found = PATHS.iter().find(|(name, _)| *name == path);
        found.map(|(_, file)| *file)
    }

    /// Whether it is a device, which can be written to.
    pub const fn is_device(self) -> bool {
        matches!(self, Self::Null | Self::Zero | Self::Full | Self::Random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_files() {
        assert_eq!(NodeFile::at(b"/dev/null"), Some(NodeFile::Null));
        assert!(NodeFile::Null.is_device() && !NodeFile::Maps.is_device());
        for other in [
            &b"/dev"[..],
            b"/dev/",
            b"dev/null",
            b"/dev/null/",
            b"/proc/1/maps",
        ] {
            assert_eq!(NodeFile::at(other), None);
        }
    }
}
