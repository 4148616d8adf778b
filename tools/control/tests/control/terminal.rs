//! `hearth top` on a terminal: a pseudo-terminal whose other end this test holds.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::termios::{FlowArg, LocalFlags, tcflow, tcgetattr};

use crate::lab::{Lab, signal};

/// The exit status of a command, which must come within ten seconds.
fn status(child: &mut Child) -> i32 {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code().expect("it ends by itself");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("it did not end within ten seconds of the signal");
}

/// As of a connection that stalls: what the command writes goes nowhere.
#[test]
fn top_ends_by_a_signal_though_its_terminal_takes_nothing() {
    let lab = Lab::with_nodes(1);
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let ends = openpty(&size, None).unwrap();
    let terminal = || Stdio::from(ends.slave.try_clone().unwrap());
    let line_mode = |terminal: &OwnedFd| {
        let mode = tcgetattr(terminal).unwrap();
        mode.local_flags.contains(LocalFlags::ICANON)
    };
    let mut top = lab
        .command(&["top"])
        .stdin(terminal())
        .stdout(terminal())
        .stderr(terminal())
        .spawn()
        .unwrap();
    let mut screen = File::from(ends.master);
    let (mut drawn, mut bytes) = (String::new(), [0; 4_096]);
    while !drawn.contains("n0") {
        let count = screen.read(&mut bytes).unwrap();
        drawn.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    assert!(!line_mode(&ends.slave), "keys come one by one");
    tcflow(&ends.slave, FlowArg::TCOOFF).unwrap();
    // Many pictures, each of which it would draw.
    std::thread::sleep(Duration::from_secs(3));
    signal(&top, "TERM");
    assert_eq!(status(&mut top), 128 + 15);
    assert!(line_mode(&ends.slave), "the terminal is as it was");
}
