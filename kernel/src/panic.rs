//! Last words: what is printed and sent when the kernel's own invariant is broken.
//!
//! Prints message, place, registers, return addresses (offsets into the kernel's ELF file, for
//! `addr2line -e`) and the end of the log to the serial port and the screen, where the log goes to
//! one, tells control through
//! `agent::report_panic`, and starts the machine anew, so that a node is not lost until somebody
//! walks up to it (`hearth.panic=halt` has it stand still instead; a test leaves QEMU with the exit
//! code for failure).
//!
//! Neighbours: `arch::trap` calls [`exception`] for a fault in ring 0.
//!
//! Invariant: never returns, never allocates, takes no lock it could wait for; a panic while
//! reporting one reports nothing more.

use core::fmt::{self, Write};
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use kernel_core::screen::Screen;
use netstack::time::Micros;

use crate::arch::serial::Port;
use crate::arch::{self, trap::TrapFrame};
use crate::drivers::framebuffer::{self, Memory};
use crate::{console, mm};

/// Longest report to control in bytes: fits one datagram with room to spare.
const REPORT_MAX: usize = 900;
/// Bytes of the log printed again with the report: about 25 lines.
const TAIL_MAX: usize = 2048;
/// Return addresses printed.
const CALLS_MAX: usize = 32;

/// Time between the report and the reset: a machine that panics as soon as it boots must not keep
/// its boot service busy.
const RESET_AFTER: Micros = Micros::from_secs(2);
/// Looks at the clock at most, for a panic before it is set up: a few seconds on any machine.
const LOOKS_MAX: u32 = 1 << 26;

static DEPTH: AtomicU32 = AtomicU32::new(0);
/// Whether the machine is started anew.
static REBOOTS: AtomicBool = AtomicBool::new(true);

/// Says whether a panic starts the machine anew, which it does until somebody says otherwise.
pub fn set_reboots(reboots: bool) {
    REBOOTS.store(reboots, Ordering::Relaxed);
}

/// What comes after a report.
fn end() -> ! {
    if arch::leaves_when_done() {
        arch::fail();
    }
    if !REBOOTS.load(Ordering::Relaxed) {
        arch::halt();
    }
    let until = crate::time::now() + RESET_AFTER;
    for _ in 0..LOOKS_MAX {
        if crate::time::now() >= until {
            break;
        }
        core::hint::spin_loop();
    }
    arch::reset()
}

#[panic_handler]
fn on_panic(info: &PanicInfo<'_>) -> ! {
    let rsp = arch::stack_pointer();
    finish(enter(), format_args!("{info}"), rsp, None)
}

/// A CPU exception in ring 0 that nobody expected.
pub fn exception(frame: &TrapFrame) -> ! {
    let what = format_args!("{}", frame.name());
    finish(enter(), what, frame.rsp, Some(frame))
}

/// Where a report goes.
struct Paper {
    port: Option<Port>,
    screen: Option<Screen<Memory>>,
}

impl Write for Paper {
    /// Never fails: neither does a port or a screen.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Some(port) = &mut self.port {
            port.write_str(text)?;
        }
        match &mut self.screen {
            Some(screen) => screen.write_str(text),
            None => Ok(()),
        }
    }
}

/// Opens a port and a screen of its own: the console's may be locked by what panicked, or switched
/// off.
fn enter() -> Paper {
    arch::disable_interrupts();
    arch::cores::stop_others();
    let is_first = DEPTH.fetch_add(1, Ordering::Relaxed) == 0;
    let mut paper = Paper {
        port: Port::open(),
        screen: None,
    };
    if !is_first {
        let _ = writeln!(paper, "panic while reporting a panic");
        end();
    }
    paper.screen = framebuffer::open();
    paper
}

fn finish(mut paper: Paper, what: fmt::Arguments<'_>, rsp: u64, frame: Option<&TrapFrame>) -> ! {
    // Paper never fails.
    let _ = print(&mut paper, what, rsp, frame);
    let mut report = Report::new();
    // What does not fit is cut.
    let _ = write!(report, "{what}");
    if let Some(frame) = frame {
        let _ = write!(report, " at rip {:#x}", frame.rip);
    }
    crate::agent::report_panic(report.text());
    end()
}

fn print(
    paper: &mut Paper,
    what: fmt::Arguments<'_>,
    rsp: u64,
    frame: Option<&TrapFrame>,
) -> fmt::Result {
    writeln!(
        paper,
        "\n=== Hearth kernel panic at {} s",
        crate::time::now()
    )?;
    writeln!(paper, "{what}")?;
    if let Some(frame) = frame {
        writeln!(paper, "{frame}")?;
    }
    writeln!(paper, "{}", arch::ControlRegisters::read())?;
    write!(paper, "rsp {rsp:#x}, code called from image +")?;
    for address in mm::return_addresses(rsp).take(CALLS_MAX) {
        write!(paper, " {:#x}", address - mm::layout::KERNEL_IMAGE)?;
    }
    writeln!(paper)?;
    let mut tail = [0; TAIL_MAX];
    let length = console::tail(&mut tail);
    writeln!(paper, "=== last log lines")?;
    for chunk in tail[..length].utf8_chunks() {
        paper.write_str(chunk.valid())?;
    }
    writeln!(paper, "=== end of report")
}

/// Text of bounded length; what does not fit is cut.
struct Report {
    bytes: [u8; REPORT_MAX],
    length: usize,
}

impl Report {
    const fn new() -> Self {
        Self {
            bytes: [0; REPORT_MAX],
            length: 0,
        }
    }

    fn text(&self) -> &str {
        // `write_str` cuts at character boundaries only.
        core::str::from_utf8(&self.bytes[..self.length]).unwrap_or("")
    }
}

impl Write for Report {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = text.floor_char_boundary(REPORT_MAX - self.length);
        self.bytes[self.length..self.length + end].copy_from_slice(&text.as_bytes()[..end]);
        self.length += end;
        Ok(())
    }
}
