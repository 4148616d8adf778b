//! `hearth output`: what a job that was submitted has written.
//!
//! Neighbours: `screen` prints it, `run_session` reads frames from a connection; `api::jobs` is on
//! the other side.
//!
//! Invariants: standard output carries the program's output and nothing of ours (with `--json`:
//! frames); over a restart of the control node nothing is printed twice and nothing is left out.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use hyper::Method;
use hyper::body::Incoming;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::run_session::{QUEUE_FRAMES, RETURN_PAUSE, read_frames};
use super::screen::{self, Printed, Settings};
use super::{Global, exit, run};
use crate::api::types::{Frame, JobInfo};
use crate::client::{self, Client, RequestError};

/// How long a control node that has gone is waited for: nodes keep their jobs so long unless told
/// otherwise.
const FOLLOW_LIMIT: Duration = Duration::from_secs(600);

/// The same where nobody asked to wait for anything.
const PRINT_LIMIT: Duration = Duration::from_secs(10);

/// Options of `hearth output`.
#[derive(Debug, Args)]
#[command(after_help = exit::of_a_job() + "With --follow; else 0.")]
pub struct Options {
    /// The job.
    #[arg(value_name = "JOB", value_parser = super::queue::job_number)]
    job: u64,
    /// Wait until the job has ended, print what it writes meanwhile, and end with its exit status.
    /// Goes on when the control node ends and is back within ten minutes.
    #[arg(long, short = 'f')]
    follow: bool,
    /// Begin every line of output with its rank.
    #[arg(long)]
    label: bool,
}

/// Prints the output.
pub fn main(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    let client = global.client()?;
    let id = options.job;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let ended = runtime.block_on(async {
        let job: JobInfo = client.get(&format!("/v1/jobs/{id}")).await?;
        if !job.batch {
            bail!(
                "job {id} was not queued with `hearth submit`: its output went to whoever ran it"
            );
        }
        let settings = Settings {
            label: options.label,
            json: global.json,
            ranks: job.ranks_total,
            ..Settings::default()
        };
        let kept = Follower {
            client,
            id,
            follow: options.follow,
            seen: 0,
            until: None,
        };
        show(kept, settings).await
    })?;
    match ended {
        Some(job) => {
            let status = run::tell_end(global, &job)?;
            // Without it, that the output could be printed.
            Ok(if options.follow {
                status
            } else {
                ExitCode::SUCCESS
            })
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Prints what a batch job has written, and what it writes until it has ended where that was asked
/// for. Gives the job if it has.
async fn show(mut kept: Follower, settings: Settings) -> anyhow::Result<Option<Box<JobInfo>>> {
    let output = kept.ask().await?;
    let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
    let (report, mut printed) = mpsc::channel(2);
    std::thread::spawn(move || screen::print(queue, &report, settings));
    let reading = tokio::spawn(async move { kept.read(output, frames).await });
    match printed.recv().await {
        Some(Printed::End(job)) => Ok(Some(job)),
        // A reader that has gone wants no more.
        Some(Printed::Broken(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(None),
        Some(Printed::Broken(error)) => super::written(Err(error)).map(|()| None),
        None => Ok(reading.await?.map(|()| None)?),
    }
}

/// The output of a batch job, which the control node keeps, as far as it was read.
struct Follower {
    client: Client,
    id: u64,
    follow: bool,
    /// Frames that were handed on: what is kept has them in this order for ever.
    seen: u64,
    /// Until when the control node is waited for, since it was lost and as long as nothing comes.
    until: Option<Instant>,
}

impl Follower {
    async fn ask(&self) -> Result<Incoming, RequestError> {
        let Follower {
            id, follow, seen, ..
        } = self;
        let mut path = format!("/v1/jobs/{id}/output?follow={follow}");
        if *seen > 0 {
            path.push_str(&format!("&skip={seen}"));
        }
        let output = self.client.send(Method::GET, &path, client::empty());
        Ok(output.await?.into_body())
    }

    /// Hands on what there is, and with `follow` what comes until the job has ended, also over
    /// restarts of the control node.
    async fn read(
        &mut self,
        mut output: Incoming,
        frames: mpsc::Sender<Frame>,
    ) -> Result<(), RequestError> {
        loop {
            let mut is_over = false;
            let (seen, until) = (&mut self.seen, &mut self.until);
            let read = read_frames(output, |frame| {
                *until = None;
                is_over |= matches!(frame, Frame::End { .. });
                // A ping is no part of what is kept.
                *seen += u64::from(!matches!(frame, Frame::Ping {}));
                frames.send(frame)
            });
            let read = read.await;
            if is_over || frames.is_closed() {
                return Ok(());
            }
            let lost = match read {
                Ok(()) if !self.follow => return Ok(()),
                Ok(()) => RequestError::Broken("it ended early".to_string()),
                Err(error) if error.is_gone() => error,
                Err(error) => return Err(error),
            };
            output = self.come_back(lost).await?;
        }
    }

    /// Waits for the control node to be back. One limit holds until something comes again: streams
    /// that end at once are no return.
    async fn come_back(&mut self, lost: RequestError) -> Result<Incoming, RequestError> {
        let until = self.until.unwrap_or_else(|| {
            let limit = match self.follow {
                true => FOLLOW_LIMIT,
                false => PRINT_LIMIT,
            };
            crate::output::say_line(format_args!(
                "the control node does not answer; what job {} writes is kept, trying for {} s to reach it",
                self.id,
                limit.as_secs()
            ));
            Instant::now() + limit
        });
        self.until = Some(until);
        while Instant::now() < until {
            tokio::time::sleep(RETURN_PAUSE).await;
            match self.ask().await {
                Err(error) if error.is_gone() => {}
                answer => return answer,
            }
        }
        Err(lost)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::api::types::JobState;

    /// Takes a request and gives its first line, and the connection.
    fn request(listener: &UnixListener) -> (String, UnixStream) {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = Vec::new();
        while !text.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            text.push(byte[0]);
        }
        let text = String::from_utf8(text).unwrap();
        (text.lines().next().unwrap().to_string(), stream)
    }

    fn answer(stream: &mut UnixStream, frames: &[Frame]) {
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        for frame in frames {
            let line = serde_json::to_string(frame).unwrap() + "\n";
            stream.write_all(line.as_bytes()).unwrap();
        }
    }

    fn output(text: &str) -> Frame {
        Frame::Output {
            rank: 0,
            fd: 1,
            data: text.to_string(),
            call: None,
        }
    }

    #[test]
    fn following_goes_on_where_it_was_when_the_control_node_is_back() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let path = socket.clone();
        let control = std::thread::spawn(move || {
            let (first, mut stream) = request(&listener);
            let notice = Frame::Notice {
                text: "n".to_string(),
            };
            answer(&mut stream, &[output("a"), Frame::Ping {}, notice]);
            // Killed: no end is told, and for a moment nobody is there.
            drop((stream, listener));
            std::fs::remove_file(&path).unwrap();
            std::thread::sleep(RETURN_PAUSE * 2);
            let listener = UnixListener::bind(&path).unwrap();
            // It is back before the job's node is: the stream ends without an end of the job.
            let (second, mut stream) = request(&listener);
            answer(&mut stream, &[]);
            drop(stream);
            let (third, mut stream) = request(&listener);
            let job = Box::new(run::tests::job(JobState::Completed, Some(0)));
            answer(&mut stream, &[output("b"), Frame::End { job }]);
            [first, second, third]
        });
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let seen = runtime.block_on(async {
            let mut kept = Follower {
                client: Client::new(socket),
                id: 7,
                follow: true,
                seen: 0,
                until: None,
            };
            let (frames, mut queue) = mpsc::channel(QUEUE_FRAMES);
            let output = kept.ask().await.unwrap();
            let reading = tokio::spawn(async move { kept.read(output, frames).await });
            let mut seen = Vec::new();
            while let Some(frame) = queue.recv().await {
                seen.push(match frame {
                    Frame::Output { data, .. } => data,
                    Frame::Notice { text } => text,
                    Frame::End { job } => job.state.word().to_string(),
                    Frame::Ping {} => continue,
                    other => panic!("{other:?}"),
                });
            }
            reading.await.unwrap().unwrap();
            seen
        });
        assert_eq!(seen, ["a", "n", "b", "completed"]);
        let paths = control.join().unwrap();
        assert!(
            paths[0].contains("/v1/jobs/7/output?follow=true "),
            "{paths:?}"
        );
        let again = "/v1/jobs/7/output?follow=true&skip=2 ";
        assert!(
            paths[1..].iter().all(|path| path.contains(again)),
            "{paths:?}"
        );
    }
}
