//! The serial port of the console, written with polling: COM1, or where firmware has its own.
//!
//! Invariant: a port that stops taking bytes costs [`PATIENCE`] reads of its status once; then it
//! is given up, because a node must work without anybody listening.

use core::fmt;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use uart_16550::backend::PioBackend;
use uart_16550::{BaudRate, Config, Uart16550};

const COM1: u16 = 0x3f8;
const BAUD: u32 = 115_200;

/// Where the console's port is and how fast, also for a panic.
static PLACE: AtomicU16 = AtomicU16::new(COM1);
/// See [`PLACE`].
static SPEED: AtomicU32 = AtomicU32::new(BAUD);

/// Reads of the line status before the port is given up: about 0.1 s on hardware (1 us a port
/// read), a hundred times what a full FIFO needs at 115,200 baud.
pub const PATIENCE: u32 = 100_000;

/// An open serial port.
pub struct Port {
    uart: Uart16550<PioBackend>,
    stuck: bool,
}

impl Port {
    /// Opens the console's port, with 8 bits and no parity: COM1 at 115,200 baud, unless
    /// [`Self::moved`] had another one. `None` when nothing answers there.
    pub fn open() -> Option<Self> {
        Self::open_at(PLACE.load(Ordering::Relaxed), SPEED.load(Ordering::Relaxed))
    }

    /// Opens the port at `place`, which is the console's from now on; `None` when it is already, or
    /// nothing answers there.
    ///
    /// `place` must be where firmware's tables say that a 16550 is.
    pub fn moved(place: u16, baud: Option<u32>) -> Option<Self> {
        let speed = baud.unwrap_or(BAUD);
        let now = (PLACE.load(Ordering::Relaxed), SPEED.load(Ordering::Relaxed));
        if now == (place, speed) {
            return None;
        }
        let port = Self::open_at(place, speed)?;
        PLACE.store(place, Ordering::Relaxed);
        SPEED.store(speed, Ordering::Relaxed);
        Some(port)
    }

    fn open_at(place: u16, baud: u32) -> Option<Self> {
        let config = Config {
            baud_rate: BaudRate::from_integer(baud),
            ..Config::DEFAULT
        };
        // SAFETY: COM1 is at its port on every PC, another port is one that firmware's tables name,
        // and only this module touches it. Two open `Port`s (the console's and the panic handler's)
        // mix their bytes and do no other harm.
        let mut uart = unsafe { Uart16550::new_port(place) }.ok()?;
        uart.init(config).ok()?;
        Some(Self { uart, stuck: false })
    }

    fn send(&mut self, mut bytes: &[u8]) {
        let mut waited = 0;
        while !bytes.is_empty() && !self.stuck {
            let sent = self.uart.send_bytes(bytes);
            bytes = &bytes[sent..];
            if sent == 0 {
                waited += 1;
                self.stuck = waited > PATIENCE;
                core::hint::spin_loop();
            }
        }
    }
}

impl fmt::Write for Port {
    /// Writes text; a line feed becomes carriage return and line feed. Never fails.
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for line in text.split_inclusive('\n') {
            match line.strip_suffix('\n') {
                Some(line) => {
                    self.send(line.as_bytes());
                    self.send(b"\r\n");
                }
                None => self.send(line.as_bytes()),
            }
        }
        Ok(())
    }
}
