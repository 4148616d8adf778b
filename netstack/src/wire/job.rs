//! Messages of job control.

use super::Error;
use super::field::{Reader, Writer};
use super::join::{flag, text, zero};
use crate::ids::{JobId, ProgramId, Rank};
use crate::job::{LaunchSpec, REFUSAL_TEXT_MAX, RefusalCode, launch_block};

/// COMMAND, control to node. Repeated until a COMMAND_ACK says that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Load a program.
    Launch(LaunchSpec),
    /// Start the loaded program.
    Start {
        /// Its job.
        job: JobId,
    },
    /// End a job.
    Cancel {
        /// The job.
        job: JobId,
        /// Signal to report, not 0.
        signal: u8,
        /// The control node does not know the job: drop it without a word.
        orphan: bool,
    },
}

const LAUNCH: u8 = 1;
const START: u8 = 2;
const CANCEL: u8 = 3;

impl Command {
    /// The job it is about.
    pub fn job(&self) -> JobId {
        match self {
            Command::Launch(spec) => spec.job,
            Command::Start { job } | Command::Cancel { job, .. } => *job,
        }
    }

    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            Command::Launch(spec) => {
                writer.u8(LAUNCH).u8(0).u16(0).u64(spec.job.0);
                writer.u32(spec.rank.0).u32(spec.size);
                writer.bytes(&spec.program.0).u64(spec.program_bytes);
                writer.u32(spec.launch_block_bytes).u64(spec.time_limit_us);
                writer.u64(spec.monitor_period_us).u64(spec.memory_limit);
            }
            Command::Start { job } => {
                writer.u8(START).u8(0).u16(0).u64(job.0);
            }
            Command::Cancel {
                job,
                signal,
                orphan,
            } => {
                writer
                    .u8(CANCEL)
                    .u8(*signal)
                    .u16((*orphan).into())
                    .u64(job.0);
            }
        }
    }

    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let operation = reader.u8()?;
        let signal = reader.u8()?;
        let orphan = flag(reader.u16()?.try_into().map_err(|_| Error::BadValue)?)?;
        let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
        if operation != CANCEL && (signal != 0 || orphan) {
            return Err(Error::BadValue);
        }
        let command = match operation {
            LAUNCH => Command::Launch(parse_launch(job, &mut reader)?),
            START => Command::Start { job },
            CANCEL if signal != 0 => Command::Cancel {
                job,
                signal,
                orphan,
            },
            _ => return Err(Error::BadValue),
        };
        reader.finish()?;
        Ok(command)
    }
}

fn parse_launch(job: JobId, reader: &mut Reader<'_>) -> Result<LaunchSpec, Error> {
    let spec = LaunchSpec {
        job,
        rank: Rank(reader.u32()?),
        size: reader.u32()?,
        program: ProgramId(reader.array()?),
        program_bytes: reader.u64()?,
        launch_block_bytes: reader.u32()?,
        time_limit_us: reader.u64()?,
        monitor_period_us: reader.u64()?,
        memory_limit: reader.u64()?,
    };
    if spec.rank.0 >= spec.size || spec.launch_block_bytes as usize > launch_block::MAX {
        return Err(Error::BadValue);
    }
    Ok(spec)
}

/// How a job stands at its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum JobStatus {
    /// The node has never heard of it.
    Unknown = 0,
    /// The program is being loaded.
    Loading = 1,
    /// It is loaded and can start.
    Ready = 2,
    /// It was not loaded; `code` and `text` say why.
    Refused = 3,
    /// It has the order to start, and has not ended.
    Started = 4,
    /// It has ended, or was dropped.
    Finished = 5,
}

/// COMMAND_ACK, node to control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandAck<'a> {
    /// The job.
    pub job: JobId,
    /// How it stands.
    pub status: JobStatus,
    /// The signal of the last CANCEL that arrived, 0 if none.
    pub cancel_signal: u8,
    /// Why it was refused.
    pub code: RefusalCode,
    /// The same in words, at most [`REFUSAL_TEXT_MAX`] bytes.
    pub text: &'a str,
}

impl<'a> CommandAck<'a> {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        assert!(
            self.text.len() <= REFUSAL_TEXT_MAX,
            "the refusal's text was not cut"
        );
        writer
            .u64(self.job.0)
            .u8(self.status as u8)
            .u8(self.cancel_signal);
        writer
            .u16(self.code as u16)
            .u32(0)
            .bytes(self.text.as_bytes());
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
        let status = match reader.u8()? {
            0 => JobStatus::Unknown,
            1 => JobStatus::Loading,
            2 => JobStatus::Ready,
            3 => JobStatus::Refused,
            4 => JobStatus::Started,
            5 => JobStatus::Finished,
            _ => return Err(Error::BadValue),
        };
        let cancel_signal = reader.u8()?;
        let code = RefusalCode::from_wire(reader.u16()?);
        zero(reader.u32()?.into())?;
        let text = text(reader.rest(), REFUSAL_TEXT_MAX)?;
        Ok(CommandAck {
            job,
            status,
            cancel_signal,
            code,
            text,
        })
    }
}
