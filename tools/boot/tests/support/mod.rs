//! A network namespace for a test: the test runs itself again inside one.
//!
//! Needs `unshare`, `nsenter` and `ip`, and either root or unprivileged user namespaces.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Which part of a test this process plays.
const ROLE: &str = "HEARTH_NETNS_ROLE";

/// The role this process was started in; `None` for the outermost one.
pub fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

/// A process that is ended when the test is, however it ends.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Waits for a successful end.
    pub fn finish(mut self, limit: Duration) {
        let begin = Instant::now();
        loop {
            match self.0.try_wait().expect("the process can be waited for") {
                Some(status) => {
                    assert!(status.success(), "{status}");
                    return;
                }
                None if begin.elapsed() < limit => std::thread::sleep(Duration::from_millis(20)),
                None => panic!("not done after {limit:?}"),
            }
        }
    }
}

/// Runs one test of this binary again in another role, through `wrapper` (a command and its first
/// arguments).
pub fn again(wrapper: &[&str], test: &str, role: &str) -> Running {
    let executable = std::env::current_exe().expect("this binary has a path");
    let child = Command::new(wrapper[0])
        .args(&wrapper[1..])
        .arg(executable)
        .args([
            "--ignored",
            "--exact",
            test,
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, role)
        .stdin(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("{} does not start: {error}", wrapper[0]));
    Running(child)
}

/// Runs a test inside a fresh user and network namespace.
pub fn in_namespace(test: &str, role: &str, limit: Duration) {
    again(&["unshare", "-rn", "--kill-child"], test, role).finish(limit);
}

/// Another network namespace, which lasts as long as its process.
pub fn namespace() -> Running {
    let holder = Command::new("unshare")
        .args(["-n", "sleep", "600"])
        .stdin(Stdio::null())
        .spawn();
    let holder = Running(holder.expect("unshare starts"));
    let pid = holder.0.id();
    let own = std::fs::read_link("/proc/self/ns/net").expect("this process has a namespace");
    let begin = Instant::now();
    let is_own = || std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|ns| ns == own);
    while is_own() {
        assert!(begin.elapsed() < Duration::from_secs(60), "unshare hangs");
        std::thread::sleep(Duration::from_millis(5));
    }
    holder
}

/// Runs a command that must succeed.
pub fn run(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let status = Command::new(words[0]).args(&words[1..]).status();
    let status = status.unwrap_or_else(|error| panic!("{line}: {error}"));
    assert!(status.success(), "{line}: {status}");
}

/// Duplicate address detection would keep a fresh interface silent for two seconds.
pub fn no_address_detection(interface: &str) {
    let path = format!("/proc/sys/net/ipv6/conf/{interface}/accept_dad");
    std::fs::write(path, "0").expect("IPv6 is enabled");
}
