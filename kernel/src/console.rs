//! The console: log lines with a level and a time stamp, to the serial port and into a ring, and to
//! the screen that firmware has left where there is no serial port.
//!
//! Use the macros `error!`, `warn!`, `info!`, `debug!`: first the subsystem, then a format string.
//! A line reads `[   0.012345] info  net: text`.
//!
//! Neighbours: `arch::serial` drives the port, `drivers::framebuffer` the screen; `panic` prints
//! the tail of the ring, `agent::node` tells control what is in it. Which lines are shown is
//! `hearth.console=`, which are kept `hearth.log=` (`kernel_core::cmdline`).
//!
//! Invariant: writing never waits longer than `arch::serial::PATIENCE` for the port, never
//! allocates and never panics; a line that comes while the console is in use is dropped.

use core::fmt::{self, Write};

use hearth_abi::handoff::Framebuffer;
use kernel_core::cmdline::{CommandLine, Console, Level};
use kernel_core::logring::{Cursor, LogRing, Read};
use kernel_core::screen::Screen;
use spin::Mutex;

use crate::arch::serial::Port;
use crate::drivers::framebuffer::{self, Memory};

/// Logs what an operator must act on.
#[macro_export]
macro_rules! error {
    ($subsystem:expr, $($text:tt)*) => {
        $crate::console::log(::kernel_core::cmdline::Level::Error, $subsystem, format_args!($($text)*))
    };
}

/// Logs what may explain a later error.
#[macro_export]
macro_rules! warn {
    ($subsystem:expr, $($text:tt)*) => {
        $crate::console::log(::kernel_core::cmdline::Level::Warn, $subsystem, format_args!($($text)*))
    };
}

/// Logs the milestones of a node's life.
#[macro_export]
macro_rules! info {
    ($subsystem:expr, $($text:tt)*) => {
        $crate::console::log(::kernel_core::cmdline::Level::Info, $subsystem, format_args!($($text)*))
    };
}

/// Logs details for a developer.
#[macro_export]
macro_rules! debug {
    ($subsystem:expr, $($text:tt)*) => {
        $crate::console::log(::kernel_core::cmdline::Level::Debug, $subsystem, format_args!($($text)*))
    };
}

/// Bytes of the log that are written again on a port or a screen that comes later.
const EARLY_MAX: usize = 2048;

struct State {
    port: Option<Port>,
    screen: Option<Screen<Memory>>,
    show: Level,
    keep: Level,
    ring: LogRing,
}

static STATE: Mutex<State> = Mutex::new(State {
    port: None,
    screen: None,
    show: Level::Info,
    keep: Level::Debug,
    ring: LogRing::new(),
});

/// Opens the first serial port, if there is one.
pub fn init() {
    STATE.lock().port = Port::open();
}

/// Goes to the serial port that firmware's console uses, with what was logged so far. What
/// [`Port::moved`] wants of the place holds here, too.
pub fn move_to(place: u16, baud: Option<u32>) {
    let mut state = STATE.lock();
    let Some(mut port) = Port::moved(place, baud) else {
        return;
    };
    repeat(&state.ring, &mut port);
    state.port = Some(port);
}

/// Goes to the screen that firmware has left as well, where there is no serial port or `console`
/// says so. Needs the kernel's own page tables.
pub fn show(console: Console, screen: Option<&Framebuffer>) {
    let has_port = STATE.lock().port.is_some();
    let Some(screen) = screen.filter(|_| !has_port || console == Console::Screen) else {
        return;
    };
    if let Err(unusable) = framebuffer::map(screen) {
        warn!("boot", "no console on the screen: {unusable}");
        return;
    }
    let mut state = STATE.lock();
    state.screen = framebuffer::open();
    let state = &mut *state;
    if let Some(screen) = &mut state.screen {
        repeat(&state.ring, screen);
    }
}

/// Writes what was logged so far.
fn repeat(ring: &LogRing, out: &mut dyn Write) {
    let mut log = [0; EARLY_MAX];
    let length = ring.tail(&mut log);
    for chunk in log[..length].utf8_chunks() {
        // Neither a port nor a screen ever fails.
        let _ = out.write_str(chunk.valid());
    }
}

/// Applies `hearth.console=` and `hearth.log=`.
pub fn configure(options: &CommandLine) {
    let mut state = STATE.lock();
    if options.console == Console::None {
        state.port = None;
    }
    state.show = options.console_level;
    state.keep = options.log.max(options.console_level);
}

/// Writes one line; use the macros.
pub fn log(level: Level, subsystem: &str, text: fmt::Arguments<'_>) {
    let micros = crate::time::now().as_micros();
    let Some(mut state) = STATE.try_lock() else {
        return;
    };
    if level > state.keep {
        return;
    }
    let shown = level <= state.show;
    let state = &mut *state;
    let mut out = Output {
        ring: &mut state.ring,
        port: state.port.as_mut().filter(|_| shown),
        screen: state.screen.as_mut().filter(|_| shown),
    };
    // Output never fails.
    let _ = writeln!(
        out,
        "[{:4}.{:06}] {:5} {subsystem}: {text}",
        micros / 1_000_000,
        micros % 1_000_000,
        level.name()
    );
}

/// Writes text to the port only, whatever the level: for the markers of tests.
#[cfg(feature = "ktest")]
pub fn raw(text: fmt::Arguments<'_>) {
    if let Some(port) = STATE.try_lock().as_mut().and_then(|s| s.port.as_mut()) {
        // A port never fails.
        let _ = port.write_fmt(text);
    }
}

/// Whether [`next_lines`] has something for this reader.
pub fn has_more(cursor: &Cursor) -> bool {
    STATE
        .try_lock()
        .is_some_and(|state| state.ring.has_more(cursor))
}

/// Copies the next lines of the ring after `cursor` to `out`.
pub fn next_lines(cursor: &mut Cursor, out: &mut [u8]) -> Read {
    let state = STATE.try_lock();
    state.map_or(Read::default(), |state| state.ring.read(cursor, out))
}

/// Copies the newest whole lines of the ring to `out`; returns how many bytes, none when the
/// console was in use when the kernel panicked.
pub fn tail(out: &mut [u8]) -> usize {
    STATE.try_lock().map_or(0, |state| state.ring.tail(out))
}

struct Output<'a> {
    ring: &'a mut LogRing,
    port: Option<&'a mut Port>,
    screen: Option<&'a mut Screen<Memory>>,
}

impl Write for Output<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.ring.write(text.as_bytes());
        if let Some(screen) = &mut self.screen {
            screen.write_str(text)?;
        }
        match &mut self.port {
            Some(port) => port.write_str(text),
            None => Ok(()),
        }
    }
}
