//! QEMU's monitor: what is done to a machine from outside while it runs.
//!
//! Key type: [`Monitor`]. The protocol is QMP: a line of JSON each way.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// QEMU answers within this time, also on a machine with other work.
const LIMIT: Duration = Duration::from_secs(60);

/// A connection to the monitor of a machine.
pub struct Monitor {
    stream: UnixStream,
    lines: Lines<BufReader<UnixStream>>,
}

impl Monitor {
    /// To the one that listens at this socket.
    pub fn connect(socket: &Path) -> Monitor {
        let stream = UnixStream::connect(socket).expect("QEMU listens");
        let limited = stream.set_read_timeout(Some(LIMIT));
        let lines = limited.and_then(|()| stream.try_clone());
        let lines = BufReader::new(lines.expect("a socket")).lines();
        let mut monitor = Monitor { stream, lines };
        monitor.answer();
        monitor.execute("qmp_capabilities", json!({}));
        monitor
    }

    /// Has QEMU do something, which must succeed.
    pub fn execute(&mut self, command: &str, arguments: Value) {
        let line = json!({ "execute": command, "arguments": arguments });
        writeln!(self.stream, "{line}").expect("QEMU reads");
        self.answer();
    }

    /// Pulls the cable of the machine's card, or plugs it in again: the card sees it.
    pub fn set_link(&mut self, is_up: bool) {
        self.execute("set_link", json!({ "name": "n0", "up": is_up }));
    }

    /// Resets the machine, as its button does.
    pub fn reset(&mut self) {
        // Else it would be switched off: a reset by the guest is an end for every other test.
        self.execute("set-action", json!({ "reboot": "reset" }));
        self.execute("system_reset", json!({}));
    }

    /// Waits for an answer; events are passed over.
    fn answer(&mut self) {
        loop {
            let line = self.lines.next().expect("QEMU answers").expect("text");
            assert!(!line.contains("\"error\""), "{line}");
            if line.contains("\"return\"") || line.contains("\"QMP\"") {
                return;
            }
        }
    }
}
