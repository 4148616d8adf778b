//! The report about a program that was ended: what the user sees at the terminal.
//!
//! Neighbours: `kernel::process` fills in a [`CrashReport`], netstack carries its text, which is
//! why it is bounded by [`REPORT_BYTES_MAX`].

use alloc::string::String;
use core::fmt::{self, Write};

use crate::fault::{Access, Cause};
use crate::space::{Region, Space};
use hearth_abi::linux::Signal;

/// Longest report in bytes: what fits in one datagram beside the counters.
pub const REPORT_BYTES_MAX: usize = 1200;

/// The general registers of the program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

/// Why and where a program was ended.
#[derive(Clone, Copy, Debug)]
pub struct CrashReport<'a> {
    /// Why.
    pub cause: Cause,
    /// The access, when memory was the reason.
    pub access: Option<(u64, Access)>,
    /// Registers at that moment.
    pub registers: Registers,
    /// The program's regions.
    pub space: &'a Space,
    /// Bytes of the node's memory that files hold, for a program that had too little.
    pub file_bytes: u64,
}

impl CrashReport<'_> {
    /// The text, at most [`REPORT_BYTES_MAX`] bytes, whole lines: a headline, the registers, and
    /// as many regions as fit, those around the address and the instruction first.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.head(&mut text);
        if let Cause::Sent(_) = self.cause {
            // Where the program was then tells nothing of why.
            return text;
        }
        let mut chosen = alloc::vec::Vec::new();
        let total = self.space.len();
        let mut room = REPORT_BYTES_MAX.saturating_sub(text.len() + FOOTER_BYTES);
        for (_, line) in self.region_lines() {
            if line.1.len() > room {
                break;
            }
            room -= line.1.len();
            chosen.push(line);
        }
        chosen.sort_by_key(|line| line.0);
        for (_, line) in &chosen {
            text.push_str(line);
        }
        if chosen.len() < total {
            let _ = writeln!(text, "  ... and {} more regions", total - chosen.len());
        }
        debug_assert!(text.len() <= REPORT_BYTES_MAX);
        text
    }

    fn head(&self, out: &mut String) -> fmt::Result {
        let r = &self.registers;
        let number = self.cause.signal_number();
        match Signal::from_number(number) {
            Some(signal) => write!(out, "{}: {}", signal.name(), self.cause)?,
            None => write!(out, "signal {number}: {}", self.cause)?,
        }
        if let (Some((address, access)), true) = (self.access, self.cause.has_address()) {
            let verb = match access {
                Access::Read => "reading",
                Access::Write => "writing",
                Access::Execute => "executing",
            };
            write!(out, ", {verb} address {address:#x}")?;
        }
        if let Cause::Sent(_) = self.cause {
            return writeln!(out);
        }
        writeln!(out, ", rip {:#x}", r.rip)?;
        if self.cause == Cause::OutOfMemory && self.file_bytes > 0 {
            let kib = self.file_bytes / 1024;
            writeln!(
                out,
                "  files that were cast hold {kib} KiB of this node's memory: `hearth casts drop` frees them"
            )?;
        }
        let rows = [
            [("rax", r.rax), ("rbx", r.rbx), ("rcx", r.rcx)],
            [("rdx", r.rdx), ("rsi", r.rsi), ("rdi", r.rdi)],
            [("rbp", r.rbp), ("rsp", r.rsp), ("r8 ", r.r8)],
            [("r9 ", r.r9), ("r10", r.r10), ("r11", r.r11)],
            [("r12", r.r12), ("r13", r.r13), ("r14", r.r14)],
            [("r15", r.r15), ("rip", r.rip), ("flg", r.rflags)],
        ];
        for row in rows {
            for (name, value) in row {
                write!(out, "  {name} {value:016x}")?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// A line for every region, with the order in which they matter: (distance, (start, line)).
    fn region_lines(&self) -> alloc::vec::Vec<(u64, (u64, String))> {
        let address = self.access.map(|(address, _)| address);
        let mut lines: alloc::vec::Vec<_> = self
            .space
            .regions()
            .map(|region| {
                let holds = |at: u64| (region.start..region.end).contains(&at);
                let mut line = String::new();
                let _ = write!(line, "  {region}");
                for (name, at) in [
                    ("rip", Some(self.registers.rip)),
                    ("rsp", Some(self.registers.rsp)),
                    ("address", address),
                ] {
                    if at.is_some_and(holds) {
                        let _ = write!(line, " <- {name}");
                    }
                }
                line.push('\n');
                let near = address.map_or(u64::MAX, |at| distance(&region, at));
                let distance = near
                    .min(distance(&region, self.registers.rip))
                    .min(distance(&region, self.registers.rsp));
                (distance, (region.start, line))
            })
            .collect();
        lines.sort_by_key(|line| line.0);
        lines
    }
}

/// Room kept for the line that says how many regions were left out.
const FOOTER_BYTES: usize = 32;

/// Bytes from `at` to the region, 0 inside.
fn distance(region: &Region, at: u64) -> u64 {
    if at < region.start {
        region.start - at
    } else if at >= region.end {
        at - region.end + 1
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::synthetic;
    use crate::signals::{Info, code};
    use crate::space::MapRequest;
    use hearth_abi::linux::{map, prot};

    fn report(space: &Space, cause: Cause, address: u64) -> String {
        let registers = Registers {
            rip: 0x40_1136,
            rsp: 0x7fff_ffff_e000,
            ..Registers::default()
        };
        let access = Some((address, Access::Write));
        CrashReport {
            cause,
            access,
            registers,
            space,
            file_bytes: 3 << 20,
        }
        .text()
    }

    #[test]
    fn a_signal_without_a_name_is_said_by_its_number() {
        let space = Space::new(&synthetic::image(), 32 << 20, true);
        let head = |number| report(&space, Cause::Raised(number), 0);
        assert!(head(6).starts_with("SIGABRT: raised by the program itself, rip"));
        assert!(head(40).starts_with("signal 40: raised by the program itself, rip"));
    }

    #[test]
    fn a_signal_from_outside_is_one_line() {
        let space = Space::new(&synthetic::image(), 32 << 20, true);
        let text = report(&space, Cause::Sent(9), 0);
        assert_eq!(text, "SIGKILL: sent from outside the program\n");
        let of = |info| Cause::of_signal(15, &info);
        assert_eq!(of(Info::OUTSIDE), Cause::Sent(15));
        assert_eq!(of(Info::KERNEL), Cause::Raised(15));
        assert_eq!(of(Info::sent(code::USER, 1)), Cause::Raised(15));
    }

    #[test]
    fn says_what_files_hold_when_memory_was_short() {
        let space = Space::new(&synthetic::image(), 32 << 20, true);
        let text = report(&space, Cause::OutOfMemory, 0x40_5000);
        let second = text.lines().nth(1).unwrap();
        assert!(
            second.contains("3072 KiB") && second.contains("hearth casts drop"),
            "{text}"
        );
        let text = report(&space, Cause::Unmapped, 0x40_5000);
        assert!(!text.contains("hearth casts"), "{text}");
    }

    #[test]
    fn says_what_where_and_in_which_region() {
        let space = Space::new(&synthetic::image(), 32 << 20, true);
        let text = report(&space, Cause::NullPointer, 8);
        let first = text.lines().next().unwrap();
        assert_eq!(
            first,
            "SIGSEGV: null pointer, writing address 0x8, rip 0x401136"
        );
        assert!(text.contains("r-x program+0x1000 <- rip"), "{text}");
        assert!(text.contains("rw- stack <- rsp"), "{text}");
        let text = report(&space, Cause::Exception { vector: 0 }, 8);
        assert!(text.starts_with("SIGFPE: integer divide error, rip 0x401136\n"));
    }

    #[test]
    fn stays_within_its_bound_with_many_regions() {
        let mut space = Space::new(&synthetic::image(), 32 << 20, true);
        for index in 0..200 {
            let request = MapRequest {
                address: 0x1000_0000 + index * 0x3000,
                length: 0x1000,
                protection: prot::READ,
                flags: map::PRIVATE | map::ANONYMOUS | map::FIXED,
                fd: -1,
            };
            space.mmap(request).unwrap();
        }
        let text = report(&space, Cause::Unmapped, 0x1000_5000);
        assert!(text.len() <= REPORT_BYTES_MAX && text.len() > 1000);
        assert!(text.contains("more regions"), "{text}");
        assert!(text.contains("<- rip"), "{text}");
        assert!(text.contains("000010003000-"), "{text}");
    }
}
