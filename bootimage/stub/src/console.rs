//! Messages: COM1 always, the VGA text screen after a BIOS start, the UEFI console while firmware
//! still runs.
//!
//! Only what stops a boot is printed; a boot that goes well is the kernel's to report.
//!
//! Invariant: no wait is endless, also where no serial port exists.

use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, Ordering};

/// Polls of the line status before a byte is given up: at 115,200 baud a byte takes 87 us, a poll
/// at least 0.5 us.
const POLLS_MAX: u32 = 20_000;
const COM1: u16 = 0x3f8;
const VGA_TEXT: *mut u16 = 0xb8000 as *mut u16;
const VGA_CELLS: usize = 80 * 25;

/// Where messages go besides COM1. The stub has one CPU and no interrupts.
#[unsafe(link_section = ".data")]
static SCREEN: AtomicPtr<Screen> = AtomicPtr::new(core::ptr::null_mut());

/// A second place for messages.
pub struct Screen {
    /// Prints one byte of ASCII.
    pub put: fn(&Screen, u8),
    /// For `put`: a position or an address.
    pub state: core::cell::Cell<usize>,
}

/// Sets up COM1 and remembers `screen`, which must stay valid until [`forget_screen`].
pub fn start(screen: &Screen) {
    // 115,200 baud, 8N1, FIFO on, no interrupts.
    for (register, value) in [(1, 0), (3, 0x80), (0, 1), (1, 0), (3, 3), (2, 7), (4, 3)] {
        outb(COM1 + register, value);
    }
    SCREEN.store(core::ptr::from_ref(screen).cast_mut(), Ordering::Relaxed);
}

/// From here on messages go to COM1 only: firmware's console is gone.
pub fn forget_screen() {
    SCREEN.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// A VGA text screen, from its upper left corner.
pub fn vga_screen() -> Screen {
    Screen {
        put: put_vga,
        state: core::cell::Cell::new(0),
    }
}

fn put_vga(screen: &Screen, byte: u8) {
    let cell = screen.state.get();
    let next = match byte {
        b'\n' => (cell / 80 + 1) * 80,
        b'\r' => return,
        _ => cell + 1,
    };
    if byte != b'\n' && cell < VGA_CELLS {
        // SAFETY: the text screen of a PC, mapped by the stub's own tables; `cell` is inside it.
        unsafe { VGA_TEXT.add(cell).write_volatile(0x4f00 | u16::from(byte)) };
    }
    screen.state.set(next);
}

/// Prints `message`, on one place after the other since both may be the same line, and halts.
pub fn stop(message: fmt::Arguments) -> ! {
    let outputs: [fn(u8); 2] = [put_serial, put_screen];
    for output in outputs {
        let _ = writeln!(Out(output), "\nHearth: {message}; stopped");
    }
    halt()
}

fn halt() -> ! {
    loop {
        // SAFETY: stops the CPU; nothing runs after it.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}

struct Out(fn(u8));

impl Write for Out {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                (self.0)(b'\r');
            }
            (self.0)(byte);
        }
        Ok(())
    }
}

fn put_serial(byte: u8) {
    for _ in 0..POLLS_MAX {
        if inb(COM1 + 5) & 0x20 != 0 {
            break;
        }
    }
    outb(COM1, byte);
}

fn put_screen(byte: u8) {
    let screen = SCREEN.load(Ordering::Relaxed);
    // SAFETY: null or what `start` was given, which outlives its registration.
    if let Some(screen) = unsafe { screen.as_ref() } {
        (screen.put)(screen, byte);
    }
}

fn outb(port: u16, value: u8) {
    // SAFETY: only called for COM1's registers, which touch no memory.
    unsafe {
        core::arch::asm!("out dx, al", in("dx") port, in("al") value, options(nomem, nostack));
    }
}

fn inb(port: u16) -> u8 {
    let value;
    // SAFETY: as in `outb`.
    unsafe {
        core::arch::asm!("in al, dx", out("al") value, in("dx") port, options(nomem, nostack));
    }
    value
}
