//! The streams of a job that `hearth run` handed in: its output to the terminal, standard input
//! to it, Ctrl-C to an end of it.
//!
//! Key types: [`Outcome`], [`follow`]. Neighbours: `screen` (prints the frames), `client`; `output`
//! follows batch jobs by the same frames.
//!
//! Invariants: frames are taken from the connection only as fast as they are printed, so a slow
//! reader holds the program back; signals are heard even while printing waits.

use std::collections::BTreeMap;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::exit;
use super::run_input::Input;
use super::screen::{self, Printed, Settings};
use crate::api::types::{CancelRequest, Frame, JobAccepted, JobInfo};
use crate::client::{self, Client, RequestError};
use crate::output;

/// Frames between the connection and the terminal.
pub(super) const QUEUE_FRAMES: usize = 64;

/// Longest line of the stream: a fault report or the end of a job of thousands of ranks.
const LINE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Control sends something every five seconds; after this long it is gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// Longest path of a request, in bytes; servers take 64 KiB.
const PATH_MAX_BYTES: usize = 60_000;

/// How often a client that has lost its control node looks for the next one.
pub(super) const RETURN_PAUSE: Duration = Duration::from_millis(200);

/// How following a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// The job ended.
    Ended(Box<JobInfo>),
    /// The user left before; with this exit status.
    Left(u8),
}

/// The signals that ask a command to end. They are heard from before a job is handed in, so that
/// none meets a command that has a job and does not know what to do with it.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    /// Hears them from now on.
    pub fn new() -> std::io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The number of the next one.
    pub async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 2,
            _ = self.terminate.recv() => 15,
            _ = self.hangup.recv() => 1,
        }
    }
}

/// The output of a job that was just accepted; it may be over already.
async fn first_output(client: &Client, job: &JobAccepted) -> anyhow::Result<Back> {
    let nothing = BTreeMap::new();
    match output_of(client, job.id, &nothing).await {
        Err(lost) if lost.is_gone() => Ok(come_back(client, job, &nothing, lost).await?),
        output => Ok(Back::Output(output?)),
    }
}

/// Follows a job that was accepted to its end.
pub async fn follow(
    client: &Client,
    job: &JobAccepted,
    settings: Settings,
    mut signals: Signals,
) -> anyhow::Result<Outcome> {
    let id = job.id;
    let first = tokio::select! {
        first = first_output(client, job) => first?,
        number = signals.next() => {
            tokio::select! {
                () = cancel(client, id, number.into(), "interrupted by its user") => {}
                // Interrupted again: the job is ended when nobody asks for its output.
                _ = signals.next() => {}
            }
            return Ok(Outcome::Left(exit::by_signal(number)));
        }
    };
    let output = match first {
        Back::Output(output) => output,
        Back::Over(job) => return Ok(Outcome::Ended(job)),
    };
    let input = settings.stdin.then(|| Input::of(tokio::io::stdin()));
    let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
    let (report, mut printed) = mpsc::channel(2);
    std::thread::spawn(move || screen::print(queue, &report, settings));
    let mut reading = tokio::spawn(read_to_end(
        client.clone(),
        job.clone(),
        output,
        input,
        frames,
    ));
    let mut read: Option<Result<(), RequestError>> = None;
    let mut asked_to_end = false;
    loop {
        let number = tokio::select! {
            number = signals.next() => number,
            done = &mut reading, if read.is_none() => {
                read = Some(done?);
                continue;
            }
            printed = printed.recv() => {
                return match printed {
                    Some(Printed::End(job)) => Ok(Outcome::Ended(job)),
                    Some(Printed::Broken(error)) => no_output(client, id, &error).await,
                    None => match read {
                        Some(Err(error)) => Err(error.into()),
                        _ => Err(RequestError::Broken("it ended early".to_string()).into()),
                    },
                };
            }
        };
        if asked_to_end {
            output::say_line(format_args!(
                "leaving; job {id} is being ended, which is not waited for"
            ));
            return Ok(Outcome::Left(exit::by_signal(number)));
        }
        asked_to_end = true;
        output::say_line(format_args!(
            "ending job {id}; interrupt again to leave at once"
        ));
        let (client, number) = (client.clone(), i32::from(number));
        tokio::spawn(async move { cancel(&client, id, number, "interrupted by its user").await });
    }
}

/// Ends a job whose output cannot be written. A reader that has gone is no error, as in a pipe.
async fn no_output(client: &Client, id: u64, error: &std::io::Error) -> anyhow::Result<Outcome> {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        cancel(client, id, 13, "its output has no reader any more").await;
        return Ok(Outcome::Left(exit::by_signal(13)));
    }
    cancel(client, id, 15, "its output cannot be written").await;
    let text = format!("cannot write the output of job {id}: {error}");
    Err(exit::Failed::new(exit::CONTROL, text).into())
}

/// The output of a job with a client.
async fn output_of(
    client: &Client,
    id: u64,
    received: &BTreeMap<u32, u64>,
) -> Result<Incoming, RequestError> {
    let mut path = format!("/v1/jobs/{id}/output");
    for (place, (rank, call)) in received.iter().enumerate() {
        // Of ranks that find no room, as of tens of thousands, a window of calls may come twice.
        if path.len() < PATH_MAX_BYTES {
            let before = if place == 0 { "?received=" } else { "," };
            path.push_str(&format!("{before}{rank}:{call}"));
        }
    }
    let output = client.send(Method::GET, &path, client::empty()).await?;
    Ok(output.into_body())
}

/// Hands on frames until the job has ended, also over restarts of the control node.
async fn read_to_end(
    client: Client,
    job: JobAccepted,
    mut output: Incoming,
    mut input: Option<Input>,
    frames: mpsc::Sender<Frame>,
) -> Result<(), RequestError> {
    let id = job.id;
    if let Some(input) = &mut input {
        input.send(&client, id, 0);
    }
    let mut received = BTreeMap::new();
    loop {
        let mut has_ended = false;
        let mut too_old = false;
        let read = read_frames(output, |frame| {
            has_ended |= matches!(frame, Frame::End { .. });
            if let Frame::Output {
                rank,
                call: Some(call),
                ..
            } = &frame
            {
                received.insert(*rank, *call);
            }
            if let (Frame::Input { from }, Some(input)) = (&frame, &mut input) {
                too_old |= !input.send(&client, id, *from);
            }
            frames.send(frame)
        });
        let read = read.await;
        if has_ended || frames.is_closed() {
            return Ok(());
        }
        if too_old {
            cancel(&client, id, 15, "what its client had sent is lost").await;
        }
        let broken = match read {
            Ok(()) => RequestError::Broken("it ended early".to_string()),
            Err(error) if error.is_gone() => error,
            Err(error) => return Err(error),
        };
        output = match come_back(&client, &job, &received, broken).await? {
            Back::Output(output) => output,
            Back::Over(job) => {
                drop(frames.send(Frame::End { job }).await);
                return Ok(());
            }
        };
    }
}

/// What a client finds that has lost its control node.
enum Back {
    /// The job goes on, or waits on.
    Output(Incoming),
    /// It ended meanwhile.
    Over(Box<JobInfo>),
}

/// Waits for the control node to be back, and for the job there.
async fn come_back(
    client: &Client,
    job: &JobAccepted,
    received: &BTreeMap<u32, u64>,
    lost: RequestError,
) -> Result<Back, RequestError> {
    let JobAccepted { id, look_for_s } = job;
    output::say_line(format_args!(
        "the control node does not answer; job {id} keeps running on its nodes; trying for {look_for_s} s to reach the control node"
    ));
    let until = tokio::time::Instant::now() + Duration::from_secs(*look_for_s);
    while tokio::time::Instant::now() < until {
        match output_of(client, *id, received).await {
            Ok(output) => return Ok(Back::Output(output)),
            Err(error) if error.is_gone() => {}
            Err(error) => match error.code() {
                // Of this very client, whose connection broke: the job is about to end.
                Some("stream-taken") => {}
                Some("job-ended") => {
                    let job = client.get(&format!("/v1/jobs/{id}")).await?;
                    return Ok(Back::Over(Box::new(job)));
                }
                _ => return Err(error),
            },
        }
        tokio::time::sleep(RETURN_PAUSE).await;
    }
    Err(lost)
}

async fn cancel(client: &Client, id: u64, signal: i32, reason: &str) {
    let request = CancelRequest {
        signal: Some(signal),
        grace_s: None,
        reason: Some(reason.to_string()),
    };
    let path = format!("/v1/jobs/{id}/cancel");
    let answer: Result<serde_json::Value, RequestError> = client.post(&path, &request).await;
    if let Err(error) = answer
        && error.code() != Some("job-ended")
    {
        output::say_line(format_args!("job {id} could not be ended: {error}"));
    }
}

/// Cuts the stream into frames and hands them on, as long as somebody takes them.
pub(super) async fn read_frames<F>(
    mut body: Incoming,
    mut hand_on: impl FnMut(Frame) -> F,
) -> Result<(), RequestError>
where
    F: Future<Output = Result<(), mpsc::error::SendError<Frame>>>,
{
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        let piece = match tokio::time::timeout(SILENCE_LIMIT, body.frame()).await {
            Err(_) => {
                return Err(RequestError::Broken(
                    "nothing was heard for 30 s".to_string(),
                ));
            }
            Ok(None) => return Ok(()),
            Ok(Some(piece)) => piece.map_err(|error| RequestError::Broken(error.to_string()))?,
        };
        let Ok(data) = piece.into_data() else {
            continue;
        };
        buffer.extend_from_slice(&data);
        let mut start = 0;
        while let Some(length) = buffer[start..].iter().position(|&byte| byte == b'\n') {
            let frame = serde_json::from_slice(&buffer[start..start + length])
                .map_err(|error| RequestError::Answer(error.to_string()))?;
            start += length + 1;
            if hand_on(frame).await.is_err() {
                return Ok(());
            }
        }
        buffer.drain(..start);
        if buffer.len() > LINE_MAX_BYTES {
            return Err(RequestError::Answer(
                "a line of the output stream has no end".to_string(),
            ));
        }
    }
}
