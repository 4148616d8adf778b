//! The streams of a job that `hearth run` handed in: its output to the terminal, standard input
//! to it, Ctrl-C to an end of it.
//!
//! Key types: [`Settings`], [`Outcome`], [`follow`]. Neighbours: `output` (lines and labels),
//! `client`.
//!
//! Invariants: frames are taken from the connection only as fast as they are printed, so a slow
//! reader holds the program back; signals are heard even while printing waits.

use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::run_input::Input;
use crate::api::types::{CancelRequest, Frame, JobAccepted, JobInfo, JobState};
use crate::client::{self, Client, RequestError};
use crate::output::{self, Printer};

/// Frames between the connection and the terminal.
const QUEUE_FRAMES: usize = 64;

/// Longest line of the stream: a fault report or the end of a job of thousands of ranks.
const LINE_MAX_BYTES: usize = 64 * 1024 * 1024;

/// Control sends something every five seconds; after this long it is gone.
const SILENCE_LIMIT: Duration = Duration::from_secs(30);

/// Longest path of a request, in bytes; servers take 64 KiB.
const PATH_MAX_BYTES: usize = 60_000;

/// How often it looks.
const RETURN_PAUSE: Duration = Duration::from_millis(200);

/// How output is shown.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Label lines with ranks.
    pub label: bool,
    /// Print frames as JSON.
    pub json: bool,
    /// Number of ranks; 0: not known yet.
    pub ranks: u32,
    /// Pass standard input.
    pub stdin: bool,
}

/// How following a job ended.
#[derive(Debug)]
pub enum Outcome {
    /// The job ended.
    Ended(Box<JobInfo>),
    /// The user left before; with this exit status.
    Left(u8),
}

/// What the printing thread says.
enum Printed {
    End(Box<JobInfo>),
    /// Standard output has no reader any more.
    Broken(std::io::Error),
}

/// Prints what a batch job has written, and with `follow` what it writes until it has ended. Gives the
/// job if it has.
pub async fn show(
    client: &Client,
    id: u64,
    follow: bool,
    settings: Settings,
) -> anyhow::Result<Option<Box<JobInfo>>> {
    let path = format!("/v1/jobs/{id}/output?follow={follow}");
    let output = client.send(Method::GET, &path, client::empty()).await?;
    let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
    let (report, mut printed) = mpsc::channel(2);
    std::thread::spawn(move || print(queue, &report, settings));
    let reading = tokio::spawn(read_frames(output.into_body(), move |frame| {
        let frames = frames.clone();
        async move { frames.send(frame).await }
    }));
    match printed.recv().await {
        Some(Printed::End(job)) => Ok(Some(job)),
        // A reader that has gone wants no more.
        Some(Printed::Broken(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(None),
        Some(Printed::Broken(error)) => Err(error.into()),
        None => {
            reading.await??;
            match follow {
                true => Err(RequestError::Broken("it ended early".to_string()).into()),
                false => Ok(None),
            }
        }
    }
}

/// Follows a job that was accepted to its end.
pub async fn follow(
    client: &Client,
    job: &JobAccepted,
    settings: Settings,
) -> anyhow::Result<Outcome> {
    let id = job.id;
    let nothing = BTreeMap::new();
    let output = match output_of(client, id, &nothing).await {
        Err(lost) if lost.is_gone() => match come_back(client, job, &nothing, lost).await? {
            Back::Output(output) => output,
            Back::Over(job) => return Ok(Outcome::Ended(job)),
        },
        output => output?,
    };
    let input = settings.stdin.then(|| Input::of(tokio::io::stdin()));
    let (frames, queue) = mpsc::channel(QUEUE_FRAMES);
    let (report, mut printed) = mpsc::channel(2);
    std::thread::spawn(move || print(queue, &report, settings));
    let mut reading = tokio::spawn(read_to_end(
        client.clone(),
        job.clone(),
        output,
        input,
        frames,
    ));
    let mut read: Option<Result<(), RequestError>> = None;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut asked_to_end = false;
    loop {
        let number = tokio::select! {
            _ = interrupt.recv() => 2,
            _ = terminate.recv() => 15,
            _ = hangup.recv() => 1,
            done = &mut reading, if read.is_none() => {
                read = Some(done?);
                continue;
            }
            printed = printed.recv() => {
                return match printed {
                    Some(Printed::End(job)) => Ok(Outcome::Ended(job)),
                    Some(Printed::Broken(error)) => {
                        cancel(client, id, 13, "its output has no reader any more").await;
                        if error.kind() != std::io::ErrorKind::BrokenPipe {
                            output::say_line(format_args!("cannot write the output: {error}"));
                        }
                        Ok(Outcome::Left(128 + 13))
                    }
                    None => match read {
                        Some(Err(error)) => Err(error.into()),
                        _ => Err(RequestError::Broken("it ended early".to_string()).into()),
                    },
                };
            }
        };
        if asked_to_end {
            output::say_line(format_args!(
                "leaving; job {id} is ended without waiting for it"
            ));
            return Ok(Outcome::Left(128 + number));
        }
        asked_to_end = true;
        output::say_line(format_args!(
            "ending job {id}; interrupt again to leave at once"
        ));
        let (client, number) = (client.clone(), i32::from(number));
        tokio::spawn(async move { cancel(&client, id, number, "interrupted by its user").await });
    }
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
        "the control node does not answer; job {id} goes on where it can, trying for {look_for_s} s to reach it"
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
async fn read_frames<F>(
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

/// Prints frames on a thread of its own, since writing to a terminal or pipe may wait.
fn print(mut queue: mpsc::Receiver<Frame>, report: &mpsc::Sender<Printed>, settings: Settings) {
    let mut screen = Screen::new(settings);
    while let Some(frame) = queue.blocking_recv() {
        let shown = match frame {
            Frame::End { job } => {
                let shown = screen.end(&job);
                let printed = shown.map_or_else(Printed::Broken, |()| Printed::End(job));
                drop(report.blocking_send(printed));
                return;
            }
            frame => screen.show(&frame),
        };
        if let Err(error) = shown {
            drop(report.blocking_send(Printed::Broken(error)));
            return;
        }
    }
    // The end of what there is so far, perhaps in the middle of a line.
    if let Err(error) = screen.finish() {
        drop(report.blocking_send(Printed::Broken(error)));
    }
}

/// Standard output, standard error and the progress line between them.
struct Screen {
    settings: Settings,
    printer: Option<Printer<std::io::Stdout, std::io::Stderr>>,
    progress: Option<indicatif::ProgressBar>,
}

impl Screen {
    fn new(settings: Settings) -> Self {
        let shown = !settings.json && std::io::stderr().is_terminal();
        let progress = shown.then(|| {
            let bar = indicatif::ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Screen {
            settings,
            printer: None,
            progress,
        }
    }

    fn show(&mut self, frame: &Frame) -> std::io::Result<()> {
        if self.settings.json {
            return if matches!(frame, Frame::Ping {} | Frame::Input { .. }) {
                Ok(())
            } else {
                print_json(frame)
            };
        }
        match frame {
            Frame::State {
                state,
                reason,
                nodes,
            } => {
                self.show_state(*state, reason, nodes);
                Ok(())
            }
            Frame::Output { rank, fd, data, .. } => {
                let data = STANDARD.decode(data).map_err(std::io::Error::other)?;
                self.clear_progress();
                self.printer().output(*rank, *fd, &data)
            }
            Frame::Fault { text, .. } => {
                self.clear_progress();
                self.message(text)
            }
            Frame::Notice { text } => self.message(text),
            Frame::Input { .. } | Frame::Ping {} | Frame::End { .. } => Ok(()),
        }
    }

    fn end(&mut self, job: &JobInfo) -> std::io::Result<()> {
        self.clear_progress();
        if self.settings.json {
            return print_json(&Frame::End {
                job: Box::new(job.clone()),
            });
        }
        self.printer().finish()
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.clear_progress();
        match self.settings.json {
            true => Ok(()),
            false => self.printer().finish(),
        }
    }

    fn printer(&mut self) -> &mut Printer<std::io::Stdout, std::io::Stderr> {
        let Settings { label, ranks, .. } = self.settings;
        self.printer
            .get_or_insert_with(|| Printer::new(std::io::stdout(), std::io::stderr(), label, ranks))
    }

    fn show_state(&mut self, state: JobState, reason: &str, nodes: &str) {
        if !nodes.is_empty() && self.settings.ranks == 0 {
            // The number of ranks was left to the node list.
            let named = crate::hostlist::parse(nodes).map_or(1, |nodes| nodes.len());
            self.settings.ranks = u32::try_from(named).unwrap_or(u32::MAX);
        }
        let text = match state {
            JobState::Pending if !reason.is_empty() => format!("waiting: {reason}"),
            JobState::Starting => format!("starting on {nodes}"),
            JobState::Ending => format!("ending: {reason}"),
            _ => return self.clear_progress(),
        };
        match &self.progress {
            Some(progress) => progress.set_message(output::plain(&text)),
            // Without a terminal only what may take long is worth a line.
            None if state == JobState::Pending => {
                output::say_line(format_args!("the job is {text}"))
            }
            None => {}
        }
    }

    fn clear_progress(&mut self) {
        if let Some(progress) = self.progress.take() {
            progress.finish_and_clear();
        }
    }

    /// A line of ours on standard error, after what the program has written there.
    fn message(&mut self, text: &str) -> std::io::Result<()> {
        let text = output::plain(text);
        let lines: String = text
            .lines()
            .map(|line| format!("hearth: {line}\n"))
            .collect();
        std::io::stderr().write_all(lines.as_bytes())
    }
}

fn print_json(frame: &Frame) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(frame)?;
    line.push(b'\n');
    std::io::stdout().write_all(&line)
}
