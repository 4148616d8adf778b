//! Runs a command with input, collects its output, and ends it when its time is up.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// What a finished command left.
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// Everything it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to standard error.
    pub stderr: Vec<u8>,
}

impl Finished {
    /// Exit code; a command ended by a signal counts as 128 + its number.
    pub fn code(&self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        self.status
            .code()
            .unwrap_or_else(|| 128 + self.status.signal().unwrap_or(0))
    }

    /// Standard output as text.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// An error that shows everything unless the exit code is `code`.
    pub fn expect_code(self, code: i32) -> Result<Self> {
        if self.code() != code {
            bail!(
                "exit code {} instead of {code}\n--- standard output\n{}--- standard error\n{}",
                self.code(),
                shorten(&self.out()),
                shorten(&self.err())
            );
        }
        Ok(self)
    }

    /// An error that shows everything unless standard output contains `text`.
    pub fn expect_out(self, text: &str) -> Result<Self> {
        if !self.out().contains(text) {
            bail!(
                "standard output lacks {text:?}:\n{}--- standard error\n{}",
                shorten(&self.out()),
                shorten(&self.err())
            );
        }
        Ok(self)
    }

    /// An error that shows everything unless standard error contains `text`.
    pub fn expect_err(self, text: &str) -> Result<Self> {
        if !self.err().contains(text) {
            bail!(
                "standard error lacks {text:?}:\n{}--- standard output\n{}",
                shorten(&self.err()),
                shorten(&self.out())
            );
        }
        Ok(self)
    }
}

fn shorten(text: &str) -> String {
    const MOST: usize = 4000;
    match text.char_indices().nth(MOST) {
        Some((at, _)) => format!("{}... ({} bytes in all)\n", &text[..at], text.len()),
        None => text.to_owned(),
    }
}

/// Runs `program` with `args`, feeds it `input`, and fails when it takes longer than `limit`.
pub fn run<S: AsRef<OsStr>>(
    program: &OsStr,
    args: &[S],
    input: &[u8],
    limit: Duration,
) -> Result<Finished> {
    let name = program.to_string_lossy().into_owned();
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {name}; `cargo xtask build` makes it"))?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    let mut stdout = child.stdout.take().context("no standard output")?;
    let mut stderr = child.stderr.take().context("no standard error")?;
    let input = input.to_vec();
    // A program that does not read its input closes the pipe; that is not this test's business.
    thread::spawn(move || drop(stdin.write_all(&input)));
    let collect_out = thread::spawn(move || {
        let mut bytes = Vec::new();
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let collect_err = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let end = Instant::now() + limit;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if Instant::now() >= end {
            child.kill()?;
            child.wait()?;
            let words: Vec<String> = args
                .iter()
                .map(|a| a.as_ref().to_string_lossy().into_owned())
                .collect();
            bail!(
                "{name} {} did not end within {} s",
                words.join(" "),
                limit.as_secs()
            );
        }
        thread::sleep(Duration::from_millis(10));
    };
    let panicked = |_| anyhow::anyhow!("a reader thread panicked");
    let stdout = collect_out.join().map_err(panicked)??;
    let stderr = collect_err.join().map_err(panicked)??;
    Ok(Finished {
        status,
        stdout,
        stderr,
    })
}
