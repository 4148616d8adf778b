//! What a job writes, on the terminal: its output, the progress line, and what is told of it.
//!
//! Key types: [`Settings`], [`Screen`]. Neighbours: `crate::output` (lines and labels);
//! `run_session` and `output` (the command) hand the frames on.
//!
//! Invariant: what would be said again and again is said once: a reason for waiting, a fault that
//! many ranks share.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::mpsc;

use super::faults::Faults;
use crate::api::types::{Frame, JobInfo, JobState, RankEnd};
use crate::output;
use crate::output_files::{Names, Streams, Wanted};

/// Core files of a job that are named when it ends.
const CORE_FILES_NAMED: usize = 4;

/// Signals whose default is a core file, as in Linux.
const LEAVE_CORES: [i32; 10] = [3, 4, 5, 6, 7, 8, 11, 24, 25, 31];

/// How output is shown.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Label lines with ranks.
    pub label: bool,
    /// Print frames as JSON.
    pub json: bool,
    /// Number of ranks; 0: not known yet.
    pub ranks: u32,
    /// Pass standard input.
    pub stdin: bool,
    /// Files that it goes to instead of the terminal.
    pub wanted: Wanted,
    /// What the job is called, for names of files.
    pub names: Names,
}

/// What the printing thread says.
pub enum Printed {
    /// The job has ended, and all of it is printed.
    End(Box<JobInfo>),
    /// Standard output has no reader any more.
    Broken(std::io::Error),
}

/// Prints frames on a thread of its own, since writing to a terminal or pipe may wait.
pub fn print(mut queue: mpsc::Receiver<Frame>, report: &mpsc::Sender<Printed>, settings: Settings) {
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
    streams: Option<Streams>,
    progress: Option<indicatif::ProgressBar>,
    /// Why the job waited when that was said last, without numbers.
    waited: String,
    faults: Faults,
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
            streams: None,
            progress,
            waited: String::new(),
            faults: Faults::default(),
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
                self.streams()?.output(*rank, *fd, &data)
            }
            Frame::Fault { rank, text, .. } => {
                self.clear_progress();
                match self.faults.is_news(*rank, text) {
                    true => self.message(text),
                    false => Ok(()),
                }
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
        self.streams()?.finish()?;
        self.tell_like_faults()?;
        self.tell_core_files(job)?;
        self.tell_lost_core_files(job)
    }

    /// Which core files are not there that were asked for.
    fn tell_lost_core_files(&mut self, job: &JobInfo) -> std::io::Result<()> {
        let streams = self.streams()?;
        let mut lost: Vec<String> = streams
            .lost_cores()
            .map(|(rank, error)| format!("rank {rank} left no core file: {error}"))
            .collect();
        for info in &job.ranks {
            let rank = info.rank;
            let leaves = matches!(&info.end, Some(RankEnd::Signal(by)) if LEAVE_CORES.contains(by));
            if leaves && job.state == JobState::Failed && streams.lacks_core(rank) {
                lost.push(format!(
                    "rank {rank} left no core file; a larger --core=SIZE has more room for one"
                ));
            }
        }
        let more = lost.len().saturating_sub(CORE_FILES_NAMED);
        lost.truncate(CORE_FILES_NAMED);
        if more > 0 {
            lost.push(format!("{more} more ranks left no core file"));
        }
        lost.iter().try_for_each(|line| self.message(line))
    }

    /// Where the core files are.
    fn tell_core_files(&mut self, job: &JobInfo) -> std::io::Result<()> {
        let files: Vec<String> = self
            .streams()?
            .core_files()
            .map(|(_, path)| match path.file_name() {
                Some(name) => name.to_string_lossy().into_owned(),
                None => path.display().to_string(),
            })
            .collect();
        let Some(first) = files.first() else {
            return Ok(());
        };
        let program = job.program_name();
        let more = match files.len().saturating_sub(CORE_FILES_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        self.message(&format!(
            "core files: {}{more}; `gdb {program} {first}` shows where each thread was",
            files[..files.len().min(CORE_FILES_NAMED)].join(", ")
        ))
    }

    fn finish(&mut self) -> std::io::Result<()> {
        self.clear_progress();
        if self.settings.json {
            return Ok(());
        }
        self.streams()?.finish()?;
        self.tell_like_faults()
    }

    /// Ranks that ended as another one did.
    fn tell_like_faults(&mut self) -> std::io::Result<()> {
        let lines: Vec<String> = std::mem::take(&mut self.faults).others().collect();
        lines.iter().try_for_each(|line| self.message(line))
    }

    fn streams(&mut self) -> std::io::Result<&mut Streams> {
        if self.streams.is_none() {
            let Settings {
                label,
                ranks,
                wanted,
                names,
                ..
            } = &self.settings;
            let (out, err) = (Box::new(std::io::stdout()), Box::new(std::io::stderr()));
            let streams = wanted.open(names, (*label, *ranks), out, err)?;
            self.streams = Some(streams);
        }
        Ok(self.streams.as_mut().expect("made above"))
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
            // Without a terminal only what may take long is worth a line, and the same with other
            // numbers is not.
            None if state == JobState::Pending => {
                let without_numbers: String =
                    text.chars().filter(|c| !c.is_ascii_digit()).collect();
                if self.waited != without_numbers {
                    self.waited = without_numbers;
                    output::say_line(format_args!("the job is {text}"));
                }
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
    let line = output::plain_json(&serde_json::to_string(frame)?) + "\n";
    std::io::stdout().write_all(line.as_bytes())
}
