//! Runs a program within a time limit.
//!
//! Key function: [`run`]. Neighbours: `ipmi`, `redfish` and the site's command use it.
//!
//! Invariants: after the limit the program and its children are killed; of what it says, at most
//! [`KEPT_BYTES`] of each stream are kept; a child that it leaves behind holds nobody up.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::Error;
use crate::error::short;

/// What is kept of each stream of a program.
const KEPT_BYTES: usize = 64 * 1024;

/// How often it is looked whether a program has ended that says nothing.
const LOOKS_MS: u16 = 20;

/// A program that ended.
pub(crate) struct Finished {
    program: String,
    pub status: ExitStatus,
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Finished {
    /// Its standard output, if it ended well.
    ///
    /// # Errors
    /// [`Error::Failed`] with what it said.
    pub fn success(self) -> Result<String, Error> {
        match self.status.success() {
            true => Ok(String::from_utf8_lossy(&self.out).into_owned()),
            false => Err(self.failure()),
        }
    }

    /// It failed, with what it said of it.
    pub fn failure(self) -> Error {
        let said = [&self.err, &self.out]
            .into_iter()
            .map(|text| short(&String::from_utf8_lossy(text)))
            .find(|text| !text.is_empty());
        Error::Failed {
            program: self.program,
            text: said.unwrap_or_else(|| self.status.to_string()),
        }
    }
}

/// Runs a program with `input` as its standard input, which has room in a pipe.
///
/// # Errors
/// [`Error::Start`], [`Error::TimedOut`].
pub(crate) fn run(mut command: Command, input: &[u8], limit: Duration) -> Result<Finished, Error> {
    let deadline = Instant::now() + limit;
    let program = command.get_program().to_string_lossy().into_owned();
    let failed = |source| Error::Start {
        program: program.clone(),
        source,
    };
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // Its children end with it.
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    if let Some(mut stdin) = child.stdin.take() {
        // One that does not read it may have ended, which its status says.
        let _ = stdin.write_all(input);
    }
    let listened = listen(&program, &mut child, deadline);
    if !matches!(listened, Ok(Some(_))) {
        // Of a child that has not been waited for, the number is nobody else's.
        let group = Pid::from_raw(i32::try_from(child.id()).expect("a process has such a number"));
        let _ = killpg(group, Signal::SIGKILL);
        let _ = child.wait();
    }
    let finished = listened.map_err(failed)?;
    finished.ok_or(Error::TimedOut { program, limit })
}

/// What a child says until it ends; nothing where it has not by the deadline.
fn listen(
    program: &str,
    child: &mut Child,
    deadline: Instant,
) -> std::io::Result<Option<Finished>> {
    let mut stdout = child.stdout.take().expect("it is a pipe");
    let mut stderr = child.stderr.take().expect("it is a pipe");
    for stream in [stdout.as_fd(), stderr.as_fd()] {
        fcntl(stream, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    }
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (mut out_ended, mut err_ended) = (false, false);
    loop {
        let status = child.try_wait()?;
        // After its end, once more: what it said last.
        out_ended = out_ended || take(&mut stdout, &mut out);
        err_ended = err_ended || take(&mut stderr, &mut err);
        if let Some(status) = status {
            return Ok(Some(Finished {
                program: program.to_owned(),
                status,
                out,
                err,
            }));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        let streams = [(out_ended, stdout.as_fd()), (err_ended, stderr.as_fd())];
        let mut open: Vec<PollFd> = streams
            .iter()
            .filter(|(has_ended, _)| !has_ended)
            .map(|(_, stream)| PollFd::new(*stream, PollFlags::POLLIN))
            .collect();
        // However that ends, the next turn looks again.
        let _ = poll(&mut open, PollTimeout::from(LOOKS_MS));
    }
}

/// Takes what a stream has; whether it has ended.
fn take(stream: &mut impl Read, kept: &mut Vec<u8>) -> bool {
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return true,
            Ok(count) => {
                let room = KEPT_BYTES.saturating_sub(kept.len());
                kept.extend_from_slice(&piece[..count.min(room)]);
                if room == 0 {
                    // It says too much; others have their turn.
                    return false;
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str, limit_ms: u64) -> Result<Finished, Error> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        run(command, b"hello", Duration::from_millis(limit_ms))
    }

    #[test]
    fn what_a_program_says_is_its_answer_or_its_error() {
        let said = sh("cat; echo more", 5_000).unwrap().success().unwrap();
        assert_eq!(said, "hellomore\n");
        let error = sh("echo out; echo 'no\n board' >&2; exit 3", 5_000);
        let error = error.unwrap().success().unwrap_err().to_string();
        assert_eq!(error, "sh failed: no board");
        let error = sh("exit 3", 5_000).unwrap().success().unwrap_err();
        assert!(error.to_string().contains("3"), "{error}");
        let error = run(
            Command::new("/no/such/program"),
            b"",
            Duration::from_secs(1),
        );
        let error = error.err().unwrap().to_string();
        assert!(error.contains("is it installed"), "{error}");
    }

    #[test]
    fn a_program_that_does_not_end_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let script = format!("(sleep 1; touch {}) & sleep 60", mark.display());
        let begun = Instant::now();
        let error = sh(&script, 200).err().unwrap();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::thread::sleep(Duration::from_millis(1_200));
        assert!(!mark.exists(), "its child lives on");
    }

    #[test]
    fn one_that_says_too_much_or_leaves_a_child_holds_nobody_up() {
        let error = sh("yes", 300).err().unwrap();
        assert!(matches!(error, Error::TimedOut { .. }), "{error}");
        let begun = Instant::now();
        let said = sh("sleep 3 & echo on", 2_500).unwrap().success().unwrap();
        assert_eq!(said, "on\n");
        assert!(begun.elapsed() < Duration::from_secs(2));
    }
}
