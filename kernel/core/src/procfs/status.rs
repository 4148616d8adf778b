//! `/proc/self/status`: what a process is, and how much memory it has.
//!
//! Source: Linux, `fs/proc/array.c` (`proc_pid_status`) and `fs/proc/task_mmu.c` (`task_mem`).

use core::fmt::{self, Write};

use crate::threads::CoreSet;

/// Bytes of a name that are said (TASK_COMM_LEN, without the zero).
const NAME_BYTES: usize = 15;

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status<'a> {
    /// Name of its program, without a path.
    pub name: &'a str,
    /// Its number.
    pub pid: u32,
    /// User and group that it is of.
    pub user: [u32; 2],
    /// Threads that live.
    pub threads: usize,
    /// Bytes of its regions.
    pub size_bytes: u64,
    /// Bytes of memory that it has, the most it ever had.
    pub peak_bytes: u64,
    /// Bytes of memory that it has now.
    pub resident_bytes: u64,
    /// Cores on which the thread that asks may be.
    pub affinity: CoreSet,
    /// Cores of the node.
    pub cores: usize,
}

/// Writes the file. Fails as `out` does.
pub fn write(out: &mut impl Write, status: &Status<'_>) -> fmt::Result {
    let Status { pid, threads, .. } = status;
    out.write_str("Name:\t")?;
    write_name(out, status.name)?;
    writeln!(out, "\nState:\tR (running)\nTgid:\t{pid}\nPid:\t{pid}")?;
    writeln!(out, "PPid:\t0\nTracerPid:\t0")?;
    for (name, number) in ["Uid", "Gid"].into_iter().zip(status.user) {
        writeln!(out, "{name}:\t{number}\t{number}\t{number}\t{number}")?;
    }
    for (name, bytes) in [
        ("VmSize", status.size_bytes),
        ("VmHWM", status.peak_bytes),
        ("VmRSS", status.resident_bytes),
    ] {
        writeln!(out, "{name}:\t{:8} kB", bytes / 1024)?;
    }
    writeln!(out, "Threads:\t{threads}")?;
    out.write_str("Cpus_allowed:\t")?;
    write_mask(out, status.affinity.bits(), status.cores)?;
    writeln!(out, "\nCpus_allowed_list:\t{}", status.affinity)
}

/// The start of a name, one line of it.
fn write_name(out: &mut impl Write, name: &str) -> fmt::Result {
    let mut room = NAME_BYTES;
    for character in name.chars() {
        let Some(rest) = room.checked_sub(character.len_utf8()) else {
            break;
        };
        room = rest;
        match character {
            '\n' => out.write_str("\\n")?,
            '\\' => out.write_str("\\\\")?,
            other => out.write_char(other)?,
        }
    }
    Ok(())
}

/// A mask with as many digits as cores need, a comma between groups of 32.
fn write_mask(out: &mut impl Write, bits: u64, cores: usize) -> fmt::Result {
    let digits = |cores: usize| cores.clamp(1, 32).div_ceil(4);
    if cores > 32 {
        let width = digits(cores - 32);
        write!(out, "{:0width$x},", bits >> 32)?;
    }
    let width = digits(cores);
    write!(out, "{:0width$x}", bits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: Status<'_> = Status {
        name: "head",
        pid: 5508,
        user: [1000, 50],
        threads: 3,
        size_bytes: 2928 << 10,
        peak_bytes: 1700 << 10,
        resident_bytes: 1620 << 10,
        affinity: CoreSet::from_bits(3),
        cores: 2,
    };

    fn text(status: &Status<'_>) -> String {
        let mut text = String::new();
        write(&mut text, status).unwrap();
        text
    }

    #[test]
    fn lines_are_linux_s() {
        assert_eq!(
            text(&STATUS),
            "Name:\thead\n\
             State:\tR (running)\n\
             Tgid:\t5508\n\
             Pid:\t5508\n\
             PPid:\t0\n\
             TracerPid:\t0\n\
             Uid:\t1000\t1000\t1000\t1000\n\
             Gid:\t50\t50\t50\t50\n\
             VmSize:\t    2928 kB\n\
             VmHWM:\t    1700 kB\n\
             VmRSS:\t    1620 kB\n\
             Threads:\t3\n\
             Cpus_allowed:\t3\n\
             Cpus_allowed_list:\t0-1\n"
        );
    }

    #[test]
    fn a_name_is_cut_and_stays_in_its_line() {
        let of = |name| {
            let text = text(&Status { name, ..STATUS });
            text.lines().next().unwrap().to_string()
        };
        assert_eq!(of("a-program-with-a-long-name"), "Name:\ta-program-with-");
        assert_eq!(of("a\nb\\c"), "Name:\ta\\nb\\\\c");
        assert_eq!(of("0123456789abcdé"), "Name:\t0123456789abcd");
    }

    #[test]
    fn a_mask_has_the_digits_of_its_cores() {
        let of = |bits, cores| {
            let mut text = String::new();
            write_mask(&mut text, bits, cores).unwrap();
            text
        };
        assert_eq!(of(1, 1), "1");
        assert_eq!(of(5, 4), "5");
        assert_eq!(of(1, 6), "01");
        assert_eq!(of(0xff, 32), "000000ff");
        assert_eq!(of(1 << 33, 34), "2,00000000");
        assert_eq!(of(u64::MAX, 64), "ffffffff,ffffffff");
    }
}
