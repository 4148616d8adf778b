//! The first serial port (COM1), written with polling.
//!
//! Invariant: a port that stops taking bytes costs [`PATIENCE`] reads of its status once; then it
//! is given up, because a node must work without anybody listening.

use core::fmt;

use uart_16550::backend::PioBackend;
use uart_16550::{BaudRate, Config, Uart16550};

const COM1: u16 = 0x3f8;

/// Reads of the line status before the port is given up: about 0.1 s on hardware (1 us a port
/// read), a hundred times what a full FIFO needs at 115,200 baud.
pub const PATIENCE: u32 = 100_000;

/// An open serial port.
pub struct Port {
    uart: Uart16550<PioBackend>,
    stuck: bool,
}

impl Port {
    /// Opens COM1 at 115,200 baud, 8 bits, no parity; `None` when nothing answers there.
    pub fn open() -> Option<Self> {
        let config = Config {
            baud_rate: BaudRate::Baud115200,
            ..Config::DEFAULT
        };
        // SAFETY: COM1 is at this port on every PC and only this module touches it. Two open
        // `Port`s (the console's and the panic handler's) mix their bytes and do no other harm.
        let mut uart = unsafe { Uart16550::new_port(COM1) }.ok()?;
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
