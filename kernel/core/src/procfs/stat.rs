//! `/proc/stat`: what the cores have done since the node was started. What was before the program
//! is time without work.
//!
//! Source: Linux, `fs/proc/stat.c`; times are in hundredths of a second (USER_HZ).

use core::fmt::{self, Write};

use crate::threads::Core;

/// Microseconds of a tick.
const TICK_US: u64 = 10_000;

/// Times of a core, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// In programs.
    pub user_us: u64,
    /// In the kernel.
    pub system_us: u64,
    /// Halted.
    pub idle_us: u64,
}

/// What is known of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Interrupts since the start.
    pub interrupts: u64,
    /// Changes from a thread to another.
    pub switches: u64,
    /// When it started, in seconds since 1970.
    pub started_s: u64,
    /// Threads that run or could.
    pub runnable: usize,
}

/// Writes the file; `cores` in ascending order. Fails as `out` does.
pub fn write(out: &mut impl Write, cores: &[(Core, Times)], node: &Node) -> fmt::Result {
    let mut all = Times::default();
    for (_, times) in cores {
        all.user_us += times.user_us;
        all.system_us += times.system_us;
        all.idle_us += times.idle_us;
    }
    out.write_str("cpu ")?;
    write_times(out, &all)?;
    for (core, times) in cores {
        write!(out, "cpu{}", core.number())?;
        write_times(out, times)?;
    }
    writeln!(out, "intr {}", node.interrupts)?;
    writeln!(out, "ctxt {}", node.switches)?;
    writeln!(out, "btime {}", node.started_s)?;
    writeln!(out, "procs_running {}", node.runnable)
}

/// User, nice, system, idle, and six times that a node does not have.
fn write_times(out: &mut impl Write, times: &Times) -> fmt::Result {
    let ticks = |us: u64| us / TICK_US;
    let (user, system) = (ticks(times.user_us), ticks(times.system_us));
    let idle = ticks(times.idle_us);
    writeln!(out, " {user} 0 {system} {idle} 0 0 0 0 0 0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_linux_s() {
        let times = |user_us, system_us, idle_us| Times {
            user_us,
            system_us,
            idle_us,
        };
        let core = |number| Core::new(number).unwrap();
        let cores = [
            (core(0), times(443_399_000, 113_850_000, 143_340_000)),
            (core(1), times(472_581_000, 130_330_000, 106_970_000)),
        ];
        let node = Node {
            interrupts: 1_168_510,
            switches: 1_564_275,
            started_s: 1_795_644_164,
            runnable: 8,
        };
        let mut text = String::new();
        write(&mut text, &cores, &node).unwrap();
        assert_eq!(
            text,
            "cpu  91598 0 24418 25031 0 0 0 0 0 0\n\
             cpu0 44339 0 11385 14334 0 0 0 0 0 0\n\
             cpu1 47258 0 13033 10697 0 0 0 0 0 0\n\
             intr 1168510\n\
             ctxt 1564275\n\
             btime 1795644164\n\
             procs_running 8\n"
        );
    }
}
