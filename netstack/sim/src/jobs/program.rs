//! What a simulated job does. Every byte a program writes, reads or has in its file is a function
//! of who it belongs to and where it stands, so both ends can check what the network made of it.

use std::collections::BTreeSet;

use netstack::ids::{JobId, NodeId, ProgramId, Rank};
use netstack::retention::Retention;
use netstack::rng::Rng;
use netstack::time::Micros;

/// Bytes of a page.
const PAGE: u64 = netstack::page::PAGE_SIZE as u64;

/// One step of a program.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Computes without looking at the network.
    Compute(Micros),
    /// Writes so many bytes to standard output.
    Write(usize),
    /// Needs a range of its file: offset and length in bytes.
    Fault(u64, u32),
    /// Reads standard input to its end.
    ReadAll,
    /// Exchanges so many bytes with each other rank.
    Exchange(u64),
    /// Sends a message of so many bytes to the next rank, and gets one from the rank before.
    Message(u64),
}

/// A job and everything that is to happen to it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The job.
    pub job: JobId,
    /// Where its ranks go.
    pub nodes: Vec<NodeId>,
    /// Which program it runs: jobs with the same number have the same file.
    pub number: u64,
    /// Size of the program file in bytes.
    pub file_bytes: u64,
    /// Ranges read before the program is ready.
    pub load: Vec<(u64, u32)>,
    /// What it does then, on every rank.
    pub steps: Vec<Step>,
    /// Bytes of standard input for rank 0.
    pub stdin_bytes: u64,
    /// Exit code.
    pub code: u8,
    /// Not launched before this time after the start of the run.
    pub launch_at: Micros,
    /// Cancelled so long after its launch.
    pub cancel_after: Option<Micros>,
    /// Bytes a second that are taken from each rank's output; 0 for no limit.
    pub reader_rate: u64,
    /// The node cannot load it.
    pub refused: bool,
    /// What is used of earlier runs, and held after this one.
    pub retention: Retention,
    /// Nodes that hold the program get a retain message before the launch.
    pub published: bool,
    /// Starts at once where it can.
    pub hurried: bool,
}

/// How heavy the jobs of a run are.
#[derive(Clone, Copy, Debug)]
pub struct Weight {
    /// Most steps of a program.
    pub steps: u64,
    /// Largest write in bytes.
    pub write: u64,
    /// Largest file in bytes.
    pub file: u64,
    /// Longest computation.
    pub compute: Micros,
}

impl Plan {
    /// A plan drawn at random.
    pub fn random(job: JobId, nodes: Vec<NodeId>, weight: Weight, rng: &mut Rng) -> Plan {
        let file_bytes = 1 + rng.below(weight.file);
        let range = |rng: &mut Rng| {
            let page = rng.below(file_bytes.div_ceil(4096)) * 4096;
            (page, (1 + rng.below(8) as u32) * 4096)
        };
        let load = (0..rng.below(6)).map(|_| range(rng)).collect();
        let stdin_bytes = if rng.below(3) == 0 {
            rng.below(20_000)
        } else {
            0
        };
        let mut steps = Vec::new();
        for _ in 0..1 + rng.below(weight.steps) {
            steps.push(match rng.below(4) {
                0 => Step::Compute(Micros(rng.below(weight.compute.0 + 1))),
                1 | 2 => Step::Write(1 + rng.below(weight.write) as usize),
                _ => {
                    let (offset, length) = range(rng);
                    Step::Fault(offset, length)
                }
            });
        }
        if stdin_bytes > 0 {
            steps.insert(rng.below(steps.len() as u64 + 1) as usize, Step::ReadAll);
        }
        Plan {
            job,
            nodes,
            number: job.0,
            file_bytes,
            load,
            steps,
            stdin_bytes,
            code: rng.below(256) as u8,
            launch_at: Micros::ZERO,
            cancel_after: None,
            reader_rate: 0,
            refused: false,
            retention: Retention::NOTHING,
            published: false,
            hurried: false,
        }
    }

    /// The same program, launched again as another job.
    pub fn again(&self, job: JobId, nodes: Vec<NodeId>) -> Plan {
        Plan {
            job,
            nodes,
            ..self.clone()
        }
    }

    /// It may be refused because a node does not hold its program.
    pub fn may_be_cold(&self) -> bool {
        self.retention.reuse == netstack::retention::Reuse::Require
    }

    /// Pages of the file that a rank needs from first to last.
    pub fn pages(&self) -> BTreeSet<u64> {
        let faults = self.steps.iter().filter_map(|step| match step {
            Step::Fault(offset, length) => Some((*offset, *length)),
            _ => None,
        });
        let ranges = self.load.iter().copied().chain(faults);
        ranges
            .flat_map(|(offset, length)| self.pages_of(offset, length))
            .collect()
    }

    /// Pages of the file in a range.
    pub fn pages_of(&self, offset: u64, length: u32) -> std::ops::Range<u64> {
        let end = (offset + u64::from(length)).min(self.file_bytes);
        offset / PAGE..end.div_ceil(PAGE)
    }

    /// The program's identity.
    pub fn program(&self) -> ProgramId {
        program_id(self.number)
    }

    /// The launch block of a rank; its content is a function of the rank.
    pub fn launch_block(&self, rank: Rank) -> Vec<u8> {
        let arguments = [
            format!("job-{}", self.job),
            "x".repeat(rank.0 as usize % 7 * 900),
        ];
        netstack::job::launch_block::emit(rank, self.nodes.len() as u32, &arguments, &[], &[])
            .expect("a simulated launch block is small")
    }

    /// Bytes that a rank writes in all.
    pub fn output_bytes(&self) -> u64 {
        let written = self.steps.iter().map(|step| match step {
            Step::Write(bytes) => *bytes as u64,
            _ => 0,
        });
        written.sum()
    }
}

/// The identity of the program with this number.
pub fn program_id(number: u64) -> ProgramId {
    let mut id = [0x50; 32];
    id[..8].copy_from_slice(&number.to_le_bytes());
    ProgramId(id)
}

/// What a stream of bytes is.
#[derive(Clone, Copy, Debug)]
pub enum Stream {
    /// Standard output of a rank.
    Output(JobId, Rank),
    /// Standard input of a job.
    Input(JobId),
    /// The file of the program with this number.
    File(u64),
}

/// Byte `position` of a stream.
pub fn byte_at(stream: Stream, position: u64) -> u8 {
    let salt = match stream {
        Stream::Output(job, rank) => job.0.wrapping_mul(31).wrapping_add(u64::from(rank.0) << 40),
        Stream::Input(job) => job.0.wrapping_mul(37).wrapping_add(1 << 60),
        Stream::File(number) => number.wrapping_mul(41).wrapping_add(1 << 61),
    };
    let mixed = (salt ^ (position / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (8 * (position % 8))) as u8
}

/// `length` bytes of a stream from `position`.
pub fn bytes_at(stream: Stream, position: u64, length: usize) -> Vec<u8> {
    (position..position + length as u64)
        .map(|position| byte_at(stream, position))
        .collect()
}

/// Whether `bytes` are what the stream has at `position`.
pub fn is_at(stream: Stream, position: u64, bytes: &[u8]) -> bool {
    bytes
        .iter()
        .zip(position..)
        .all(|(byte, position)| *byte == byte_at(stream, position))
}
