//! Job traces in the Standard Workload Format: one job a line, 18 numbers, -1 for what is not
//! known; lines that begin with a semicolon are comments.
//!
//! A job that ran for longer than it had asked for is taken to have asked for that: machines give
//! some time for starting and ending, and to end such jobs early would make the load lighter than
//! it was.
//!
//! Key types: [`Trace`], [`TraceJob`]. Neighbour: [`crate::world`].
//!
//! Invariant: jobs stand in the order of their submission, each with at least one node and one
//! second; what cannot be replayed is counted, not dropped silently.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Largest trace that is read, unpacked, in bytes: some million jobs.
const BYTES_MAX: u64 = 1 << 30;
/// Longest time in a trace, and latest, in seconds: 136 years. Sums over all jobs of a trace stay
/// below 2^64.
const TIME_MAX: u64 = 1 << 32;
/// The first two bytes of a gzip file.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Places of the fields that are used, from 0.
mod field {
    pub const NUMBER: usize = 0;
    pub const SUBMIT: usize = 1;
    pub const RUN: usize = 3;
    pub const USED: usize = 4;
    pub const REQUESTED: usize = 7;
    pub const TIME: usize = 8;
    pub const USER: usize = 11;
    pub const PROGRAM: usize = 13;
    /// Fields that every job needs.
    pub const LEAST: usize = 9;
}

/// What makes two jobs runs of one program: user and executable where the trace knows it, else
/// user, size and time asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Program {
    user: i64,
    program: Result<i64, (u32, u64)>,
}

/// A job of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceJob {
    /// Its number in the trace.
    pub number: u64,
    /// Seconds.
    pub submit: u64,
    /// How long it runs, in seconds.
    pub run: u64,
    /// How long it may run, in seconds.
    pub walltime: u64,
    /// Nodes (the trace's processors).
    pub count: u32,
    /// What it runs.
    pub program: Program,
}

/// The jobs of a machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trace {
    /// In the order of their submission.
    pub jobs: Vec<TraceJob>,
    /// Jobs without nodes or time: they never ran.
    pub empty: usize,
}

/// Reads a trace, packed with gzip or not.
///
/// # Errors
/// The file cannot be read, is too large, or a line is no job; says which line.
pub fn read(path: &Path) -> Result<Trace> {
    let open = || format!("reading the trace {}", path.display());
    let file = std::fs::File::open(path).with_context(open)?;
    let mut file = std::io::BufReader::new(file);
    let mut first = Vec::new();
    file.by_ref()
        .take(2)
        .read_to_end(&mut first)
        .with_context(open)?;
    let rest = first.as_slice().chain(file);
    let mut text = String::new();
    let size = if first == GZIP {
        let unpacked = flate2::read::MultiGzDecoder::new(rest);
        unpacked.take(BYTES_MAX).read_to_string(&mut text)
    } else {
        rest.take(BYTES_MAX).read_to_string(&mut text)
    };
    if size.with_context(open)? as u64 == BYTES_MAX {
        bail!(
            "the trace {} is larger than {BYTES_MAX} bytes; cut it",
            path.display()
        );
    }
    parse(&text).with_context(open)
}

/// Reads the text of a trace.
///
/// # Errors
/// A line is no job; says which.
pub fn parse(text: &str) -> Result<Trace> {
    let mut trace = Trace::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with(';') {
            continue;
        }
        let job = parse_line(line).with_context(|| format!("line {}: {line:?}", index + 1))?;
        match job {
            Some(job) => trace.jobs.push(job),
            None => trace.empty += 1,
        }
    }
    if trace.jobs.is_empty() {
        bail!("there is no job in it; a trace has one job a line, in Standard Workload Format");
    }
    trace.jobs.sort_by_key(|job| (job.submit, job.number));
    Ok(trace)
}

fn parse_line(line: &str) -> Result<Option<TraceJob>> {
    let numbers: Result<Vec<f64>, _> = line.split_whitespace().map(str::parse).collect();
    let Ok(numbers) = numbers else {
        bail!("a job is a line of numbers, in Standard Workload Format");
    };
    if numbers.len() < field::LEAST {
        bail!("a job has 18 numbers, at least the first {}", field::LEAST);
    }
    let get = |place: usize| numbers.get(place).copied().unwrap_or(-1.0) as i64;
    let known = |place: usize| Some(get(place)).filter(|number| *number > 0);
    let count = known(field::REQUESTED).or(known(field::USED));
    let (Some(count), Some(run)) = (count, known(field::RUN)) else {
        return Ok(None);
    };
    let run = run as u64;
    let submit = get(field::SUBMIT).max(0) as u64;
    let longest = run.max(submit).max(get(field::TIME).max(0) as u64);
    if longest > TIME_MAX {
        bail!(
            "{longest} s is more than {TIME_MAX} s, the most for a time in a trace; correct the line or leave it out"
        );
    }
    let walltime = known(field::TIME).map_or(run, |time| time as u64);
    let count = u32::try_from(count).context("a machine has less than 2^32 nodes")?;
    let program = known(field::PROGRAM).ok_or((count, walltime));
    Ok(Some(TraceJob {
        number: get(field::NUMBER).max(0) as u64,
        submit,
        run,
        walltime: walltime.max(run),
        count,
        program: Program {
            user: get(field::USER),
            program,
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_read() {
        let text = "; a comment\n\n\
            2 50 9 100 8 -1 -1 16 90 -1 1 7 1 3 0 0 -1 -1\n\
            1 40 9 20 8 -1 -1 -1 -1 -1 1 7 1 -1 0 0 -1 -1\n\
            3 60 0 0 4 -1 -1 4 60 -1 5 7 1 3 0 0 -1 -1\n";
        let trace = parse(text).unwrap();
        assert_eq!((trace.jobs.len(), trace.empty), (2, 1));
        let [first, second] = &trace.jobs[..] else {
            panic!()
        };
        assert_eq!(
            (first.number, first.count, first.run, first.walltime),
            (1, 8, 20, 20)
        );
        assert_eq!(first.program.program, Err((8, 20)));
        // It asked for 90 seconds and had 100.
        assert_eq!((second.count, second.run, second.walltime), (16, 100, 100));
        assert_eq!(second.program.program, Ok(3));
    }

    #[test]
    fn what_is_no_trace_is_refused() {
        let error = |text: &str| format!("{:#}", parse(text).unwrap_err());
        assert!(error("1 2 3").contains("line 1") && error("1 2 3").contains("18 numbers"));
        assert!(error("; only comments").contains("no job"));
        assert!(error("1 2 3 4 5 6 7 8 9\na b").contains("line 2"));
        for line in [
            "1 0 0 1e18 4 -1 -1 4 60",
            "1 1e18 0 9 4 -1 -1 4 60",
            "1 0 0 9 4 -1 -1 4 1e18",
        ] {
            assert!(error(line).contains("4294967296 s, the most"), "{line}");
        }
    }
}
