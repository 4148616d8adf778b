//! The scripted programs of the fake node.
//!
//! A program is a text file, one command a line: `out TEXT`, `err TEXT`, `lines N`, `args`, `cat`
//! (standard input to standard output), `exit N`, `signal N`, `fault TEXT` (a `|`
//! ends a line of it), `wait` (until
//! cancelled), `pause` (until the test says so), `refuse TEXT` (at launch), `evict` (let go of all
//! other programs, as for want of memory), `damage` (report a page that failed its check), `with
//! NAME` (the first line of that file under `/with`), `cores` (how many the launch allows), `on N
//! COMMAND` (the handler of signal N), `nothing`; `rank R COMMAND` is for one rank only.

use std::collections::{BTreeMap, VecDeque};

use netstack::ids::{CallId, RequestId};
use netstack::io::{ExitReport, ExitStatus, IoOp, MAX_CALL_DATA, OFFSET_CURRENT};
use netstack::job::{LaunchSpec, launch_block};
use netstack::time::Instant;

/// A program on its way from launch to exit.
pub struct Run {
    pub spec: LaunchSpec,
    pub program: Vec<u8>,
    pub block: Vec<u8>,
    pub asked: Option<RequestId>,
    pub phase: Phase,
    /// Commands to carry out.
    pub script: VecDeque<String>,
    /// Calls to submit.
    pub calls: VecDeque<IoOp>,
    /// The read that `cat` waits for.
    pub reading: Option<CallId>,
    pub exited: bool,
    /// It runs on what the node held.
    pub warm: bool,
    /// What it leaves is not kept.
    pub dropped: bool,
    pub damaged: u64,
    /// First line of each file under `/with`.
    pub files: BTreeMap<String, String>,
    /// What is to be done when a signal comes.
    handlers: BTreeMap<u8, String>,
    /// It has been cancelled, and may go on until then.
    pub kill_at: Option<Instant>,
}

#[derive(PartialEq, Eq, Clone, Copy)]
pub enum Phase {
    Loading,
    Ready,
    Running,
}

impl Run {
    /// A program that is loaded from now on: its file and launch block as far as the node has them.
    pub fn new(spec: LaunchSpec, file: Option<Vec<u8>>, block: Option<Vec<u8>>) -> Self {
        Run {
            spec,
            warm: file.is_some(),
            program: file.unwrap_or_default(),
            block: block.unwrap_or_default(),
            asked: None,
            phase: Phase::Loading,
            script: VecDeque::new(),
            calls: VecDeque::new(),
            reading: None,
            exited: false,
            dropped: false,
            damaged: 0,
            files: BTreeMap::new(),
            handlers: BTreeMap::new(),
            kill_at: None,
        }
    }

    /// A signal comes: its handler goes first, and without one it ends the program.
    pub fn deliver(&mut self, signal: u8) {
        // A program that has begun has set the handlers that it sets first: who sends a signal once
        // the job runs meets them.
        while let Some(handler) = self
            .script
            .front()
            .and_then(|line| line.strip_prefix("on "))
        {
            let (signal, command) = handler.split_once(' ').unwrap();
            let (signal, command) = (signal.parse().unwrap(), command.to_string());
            self.handlers.insert(signal, command);
            self.script.pop_front();
        }
        match self.handlers.get(&signal) {
            Some(command) if !self.exited => self.script.push_front(command.clone()),
            _ => self.end(signal),
        }
    }

    /// Ends the program by a signal, whatever it does.
    pub fn end(&mut self, signal: u8) {
        if self.exited {
            return;
        }
        self.script.clear();
        self.calls.clear();
        self.reading = None;
        self.kill_at = None;
        self.phase = Phase::Running;
        self.script.push_back(format!("signal {signal}"));
    }

    /// Turns the next command into calls; says whether there is anything to do.
    pub fn next_command(&mut self) -> bool {
        let line = self
            .script
            .front()
            .cloned()
            .unwrap_or_else(|| "exit 0".to_string());
        let (command, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let mut done = true;
        match command {
            "out" => self
                .calls
                .push_back(write(1, format!("{argument}\n").into_bytes())),
            "err" => self
                .calls
                .push_back(write(2, format!("{argument}\n").into_bytes())),
            "lines" => {
                // One write a piece: a long one is asked for as the remaining count.
                let left: u32 = argument.parse().unwrap();
                let text = format!("line {left}\n");
                self.calls.push_back(write(1, text.into_bytes()));
                if left > 1 {
                    self.script[0] = format!("lines {}", left - 1);
                    done = false;
                }
            }
            "with" => {
                let text = self.files.get(argument).map_or("no such file", |text| text);
                self.calls
                    .push_back(write(1, format!("{text}\n").into_bytes()));
            }
            "on" => {
                let (signal, command) = argument.split_once(' ').unwrap();
                let signal = signal.parse().unwrap();
                self.handlers.insert(signal, command.to_string());
            }
            "nothing" => {}
            "cores" => {
                let text = format!("cores {}\n", self.spec.cores);
                self.calls.push_back(write(1, text.into_bytes()));
            }
            "args" => self.print_args(),
            "cat" => {
                let size = u32::try_from(MAX_CALL_DATA).unwrap();
                self.calls.push_back(IoOp::Read {
                    fd: 0,
                    offset: OFFSET_CURRENT,
                    size,
                });
                done = false;
            }
            "wait" => return false,
            "damage" => self.damaged += 1,
            "fault" => {
                let data = argument.replace('|', "\n").into_bytes();
                self.calls.push_back(IoOp::Report { offset: 0, data });
                self.exit(ExitStatus::Signal(11));
            }
            "signal" => self.exit(ExitStatus::Signal(argument.parse().unwrap())),
            "exit" => self.exit(ExitStatus::Exited(argument.parse().unwrap())),
            other => panic!("{other:?} is not a command of the fake node"),
        }
        if done {
            self.script.pop_front();
        }
        true
    }

    fn exit(&mut self, status: ExitStatus) {
        let mut report = ExitReport::new(status);
        report.pages_asked = 3;
        report.interrupts_user.heartbeat = 2;
        report.unknown_calls = vec![(57, 1)];
        report.warm = self.warm;
        report.pages_damaged = self.damaged;
        report.faults_zero = 5;
        report.faults_stack = 1;
        if self.warm {
            report.pages_reused = pages(&self.program).into();
        } else {
            report.faults_code = pages(&self.program).into();
            report.program_requests = 1;
            report.program_fragments = 2;
            report.program_wire_bytes = 100 + self.program.len() as u64;
        }
        self.calls.push_back(IoOp::Exit(Box::new(report)));
        self.exited = true;
    }

    fn print_args(&mut self) {
        let block = launch_block::parse(&self.block).unwrap();
        let mut text = Vec::new();
        for (word, strings) in [("arg", &block.argv), ("env", &block.envp)] {
            for string in strings {
                text.extend_from_slice(format!("{word} [").as_bytes());
                text.extend_from_slice(string);
                text.extend_from_slice(b"]\n");
            }
        }
        for piece in text.chunks(MAX_CALL_DATA) {
            self.calls.push_back(write(1, piece.to_vec()));
        }
    }
}

pub fn write(fd: u32, data: Vec<u8>) -> IoOp {
    IoOp::Write {
        fd,
        offset: OFFSET_CURRENT,
        data,
    }
}

/// Pages of 4 KiB.
pub fn pages(file: &[u8]) -> u32 {
    u32::try_from(file.len().div_ceil(4096)).unwrap()
}
