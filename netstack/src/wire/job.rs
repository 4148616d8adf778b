//! Messages of job control.

use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};

use super::Error;
use super::datagram::MAX_PAYLOAD;
use super::field::{Reader, Writer};
use super::join::{flag, text, zero};
use super::key::KEY_LEN;
use crate::RANKS_PER_NODE_MAX;
use crate::ids::{CallId, JobId, ProgramId, Rank};
use crate::job::{FileService, LaunchSpec, REFUSAL_TEXT_MAX, RefusalCode, StartMode, launch_block};
use crate::retention::{Keep, Retention, Reuse, Verify};
use crate::time::Micros;

/// COMMAND, control to node. Repeated until a COMMAND_ACK says that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Load a program.
    Launch {
        /// What to load and how.
        spec: LaunchSpec,
        /// The job's key, see [`super::key::Key::wrap_job_key`].
        wrapped_key: [u8; KEY_LEN],
        /// The node's launch block, `spec.launch_block_bytes` long and at most
        /// [`INLINE_BLOCK_MAX`]; without it the node reads it as an object.
        block: Option<&'a [u8]>,
    },
    /// Start the loaded program.
    Start {
        /// Its job.
        job: JobId,
    },
    /// End a job.
    Cancel {
        /// The job.
        job: JobId,
        /// Signal to report, not 0; with a grace the one that the program gets first.
        signal: u8,
        /// The control node does not know the job: drop it without a word.
        orphan: bool,
        /// How long the program may go on after that signal, at most [`GRACE_MAX`]; zero: it is
        /// ended at once.
        grace: Micros,
    },
    /// Before a launch: keep this program's pages and drop all others'.
    Retain {
        /// The job that is going to be launched.
        job: JobId,
        /// Its program.
        program: ProgramId,
        /// Keep read-only pages that are not executable, too.
        read_only: bool,
    },
    /// Drop what is held of a program.
    Drop {
        /// Number of the command, not 0; rises within a session.
        id: u64,
        /// The program; None: every one.
        program: Option<ProgramId>,
    },
    /// An earlier run of the control node launched this job here, and this one goes on with it.
    Claim {
        /// The job.
        job: JobId,
    },
    /// Deliver a signal to a program that has started.
    Signal {
        /// Its job.
        job: JobId,
        /// The signal, 1 to [`SIGNAL_MAX`].
        signal: u8,
        /// Number of the command, from 1, one more for each that this node gets for this job.
        number: u32,
    },
}

const LAUNCH: u8 = 1;
const START: u8 = 2;
const CANCEL: u8 = 3;
const RETAIN: u8 = 4;
const DROP: u8 = 5;
const CLAIM: u8 = 6;
const SIGNAL: u8 = 7;

/// Highest number of a signal (Linux x86-64).
pub const SIGNAL_MAX: u8 = 64;
/// Longest grace of a CANCEL: a day.
pub const GRACE_MAX: Micros = Micros::from_secs(86_400);

/// Bytes of a LAUNCH before its launch block.
pub const LAUNCH_LEN: usize = 138;
/// Largest launch block that travels in the LAUNCH itself, in bytes.
pub const INLINE_BLOCK_MAX: usize = MAX_PAYLOAD - LAUNCH_LEN;

const _: () = assert!(INLINE_BLOCK_MAX <= launch_block::MAX);

/// Flags of a LAUNCH.
const READ_ONLY: u8 = 1;
const PRISTINE: u8 = 2;
const AT_ONCE: u8 = 8;
const INLINE_BLOCK: u8 = 16;
const LAUNCH_FLAGS: u8 = READ_ONLY | PRISTINE | AT_ONCE | INLINE_BLOCK;

impl<'a> Command<'a> {
    /// The job it is about; a DROP is about none.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Command::Launch { spec, .. } => Some(spec.job),
            Command::Start { job }
            | Command::Cancel { job, .. }
            | Command::Retain { job, .. }
            | Command::Claim { job }
            | Command::Signal { job, .. } => Some(*job),
            Command::Drop { .. } => None,
        }
    }

    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            Command::Launch {
                spec,
                wrapped_key,
                block,
            } => emit_launch(spec, wrapped_key, *block, writer),
            Command::Start { job } => {
                writer.u8(START).u8(0).u16(0).u64(job.0);
            }
            Command::Cancel {
                job,
                signal,
                orphan,
                grace,
            } => {
                writer
                    .u8(CANCEL)
                    .u8(*signal)
                    .u16((*orphan).into())
                    .u64(job.0)
                    .u64(grace.0);
            }
            Command::Retain {
                job,
                program,
                read_only,
            } => {
                writer.u8(RETAIN).u8(0).u16((*read_only).into()).u64(job.0);
                writer.bytes(&program.0);
            }
            Command::Drop { id, program } => {
                writer.u8(DROP).u8(0).u16(program.is_none().into()).u64(*id);
                writer.bytes(&program.unwrap_or_default().0);
            }
            Command::Claim { job } => {
                writer.u8(CLAIM).u8(0).u16(0).u64(job.0);
            }
            Command::Signal {
                job,
                signal,
                number,
            } => {
                writer.u8(SIGNAL).u8(*signal).u16(0).u64(job.0);
                writer.u32(*number);
            }
        }
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let operation = reader.u8()?;
        let signal = reader.u8()?;
        let set = flag(reader.u16()?.try_into().map_err(|_| Error::BadValue)?)?;
        let number = reader.u64()?;
        let job = JobId::from_wire(number).ok_or(Error::BadValue)?;
        if (signal != 0) != matches!(operation, CANCEL | SIGNAL)
            || (set && matches!(operation, LAUNCH | START | CLAIM | SIGNAL))
        {
            return Err(Error::BadValue);
        }
        let command = match operation {
            LAUNCH => {
                let (spec, wrapped_key, block) = parse_launch(job, &mut reader)?;
                Command::Launch {
                    spec,
                    wrapped_key,
                    block,
                }
            }
            START => Command::Start { job },
            CANCEL => Command::Cancel {
                job,
                signal,
                orphan: set,
                grace: Micros(reader.u64()?),
            },
            RETAIN => Command::Retain {
                job,
                program: ProgramId(reader.array()?),
                read_only: set,
            },
            DROP => Command::Drop {
                id: number,
                program: match (set, ProgramId(reader.array()?)) {
                    (false, program) => Some(program),
                    (true, program) if program == ProgramId::default() => None,
                    (true, _) => return Err(Error::BadValue),
                },
            },
            CLAIM => Command::Claim { job },
            SIGNAL => Command::Signal {
                job,
                signal,
                number: reader.u32()?,
            },
            _ => return Err(Error::BadValue),
        };
        reader.finish()?;
        let possible = match command {
            Command::Cancel { orphan, grace, .. } => {
                grace <= GRACE_MAX && (grace == Micros(0) || !orphan)
            }
            Command::Signal { signal, number, .. } => signal <= SIGNAL_MAX && number > 0,
            _ => true,
        };
        possible.then_some(command).ok_or(Error::BadValue)
    }
}

/// What the address of a service is that there is not.
const NOWHERE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);

fn emit_launch(
    spec: &LaunchSpec,
    wrapped_key: &[u8; KEY_LEN],
    block: Option<&[u8]>,
    writer: &mut Writer<'_>,
) {
    writer.u8(LAUNCH).u8(0).u16(0).u64(spec.job.0);
    writer.u32(spec.rank.0).u32(spec.size);
    writer.bytes(&spec.program.0).u64(spec.program_bytes);
    writer.u32(spec.launch_block_bytes).u64(spec.time_limit_us);
    writer.u64(spec.monitor_period_us).u64(spec.memory_limit);
    let retention = &spec.retention;
    writer
        .u8(retention.reuse as u8)
        .u8(retention.keep as u8)
        .u8(retention.verify as u8);
    let flags = [
        (retention.read_only, READ_ONLY),
        (retention.pristine, PRISTINE),
        (spec.start == StartMode::AtOnce, AT_ONCE),
        (block.is_some(), INLINE_BLOCK),
    ];
    let flags = flags.iter().filter(|(set, _)| *set);
    writer.u8(flags.fold(0, |all, (_, flag)| all | flag));
    writer.u32(retention.limit_pages).u16(spec.cores);
    writer.u64(spec.core_bytes);
    let (address, user) = spec
        .files
        .map_or((NOWHERE, [0; 2]), |files| (files.address, files.user));
    writer.bytes(&address.ip().octets()).u16(address.port());
    writer.u32(user[0]).u32(user[1]).u16(spec.ranks);
    writer.bytes(wrapped_key);
    if let Some(block) = block {
        assert!(
            block.len() == spec.launch_block_bytes as usize && block.len() <= INLINE_BLOCK_MAX,
            "the launch block was not measured"
        );
        writer.bytes(block);
    }
}

fn parse_launch<'a>(
    job: JobId,
    reader: &mut Reader<'a>,
) -> Result<(LaunchSpec, [u8; KEY_LEN], Option<&'a [u8]>), Error> {
    let mut spec = LaunchSpec {
        job,
        rank: Rank(reader.u32()?),
        ranks: 0,
        size: reader.u32()?,
        program: ProgramId(reader.array()?),
        program_bytes: reader.u64()?,
        launch_block_bytes: reader.u32()?,
        time_limit_us: reader.u64()?,
        monitor_period_us: reader.u64()?,
        memory_limit: reader.u64()?,
        retention: Retention::NOTHING,
        start: StartMode::OnCommand,
        cores: 0,
        core_bytes: 0,
        files: None,
    };
    let reuse = Reuse::from_wire(reader.u8()?).ok_or(Error::BadValue)?;
    let keep = Keep::from_wire(reader.u8()?).ok_or(Error::BadValue)?;
    let verify = Verify::from_wire(reader.u8()?).ok_or(Error::BadValue)?;
    let flags = reader.u8()?;
    let is_set = |flag| flags & flag != 0;
    spec.retention = Retention {
        reuse,
        keep,
        read_only: is_set(READ_ONLY),
        pristine: is_set(PRISTINE),
        verify,
        limit_pages: reader.u32()?,
    };
    spec.cores = reader.u16()?;
    spec.core_bytes = reader.u64()?;
    let (address, port) = (reader.array::<4>()?, reader.u16()?);
    let address = SocketAddrV4::new(address.into(), port);
    let user = [reader.u32()?, reader.u32()?];
    if port != 0 {
        spec.files = Some(FileService { address, user });
    } else if (address, user) != (NOWHERE, [0; 2]) {
        return Err(Error::BadValue);
    }
    spec.ranks = reader.u16()?;
    let wrapped_key = reader.array()?;
    if is_set(AT_ONCE) {
        spec.start = StartMode::AtOnce;
    }
    let possible = (1..=RANKS_PER_NODE_MAX).contains(&spec.ranks)
        && spec.rank.0 < spec.size
        && spec.size - spec.rank.0 >= spec.ranks.into()
        && spec.launch_block_bytes as usize <= launch_block::MAX
        && flags & !LAUNCH_FLAGS == 0;
    if !possible {
        return Err(Error::BadValue);
    }
    let block = if is_set(INLINE_BLOCK) {
        Some(reader.bytes(spec.launch_block_bytes as usize)?)
    } else {
        None
    };
    Ok((spec, wrapped_key, block))
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
    /// Its RETAIN was carried out; it was not launched yet.
    Retained = 6,
}

/// In place of a status: the answer to a DROP.
const DROPPED: u8 = 7;
/// In place of a status: the answer to a CLAIM by a node that has the job.
const CLAIMED: u8 = 8;
/// Highest number of a call: what is counted on from there does not overflow.
const CALLS_MAX: u64 = 1 << 62;

/// COMMAND_ACK, node to control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAck<'a> {
    /// How a job stands.
    Job(JobAck<'a>),
    /// What a DROP came to.
    Dropped(DropAck),
    /// The node has the job that was claimed.
    Claimed(ClaimAck),
}

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobAck<'a> {
    /// The job.
    pub job: JobId,
    /// How it stands.
    pub status: JobStatus,
    /// The signal of the last CANCEL that arrived, 0 if none.
    pub cancel_signal: u8,
    /// Why it was refused.
    pub code: RefusalCode,
    /// Pages that were retained for it, 0 unless the status says so.
    pub pages: u32,
    /// Number of the last SIGNAL that arrived, 0 if none; 0 where the status is *retained*.
    pub signals: u32,
    /// Why it was refused in words, at most [`REFUSAL_TEXT_MAX`] bytes.
    pub text: &'a str,
}

/// What a DROP came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropAck {
    /// The command's number.
    pub id: u64,
    /// Pages that were given back.
    pub pages: u32,
    /// The program runs: its pages are dropped at its end.
    pub in_use: bool,
}

/// How a job stands that a later run of the control node goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimAck {
    /// The job.
    pub job: JobId,
    /// Loading, ready or started.
    pub status: JobStatus,
    /// The signal of the last CANCEL that arrived, in any run, 0 if none.
    pub cancel_signal: u8,
    /// Number of the last SIGNAL that arrived, in any run, 0 if none.
    pub signals: u32,
    /// How far the calls of each of its ranks on the node are, 1 to [`RANKS_PER_NODE_MAX`].
    pub calls: Vec<Standing>,
}

/// How far the calls of a rank are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Number of its first call that is not done; that of the next one where all are.
    pub first: CallId,
    /// Bit i: call `first` + i is done. Bit 0 is not set.
    pub done: u8,
    /// Bytes that it has read from its standard input.
    pub input_bytes: u64,
    /// Its exit is done: there are no more.
    pub is_over: bool,
}

const _: () = assert!(RANKS_PER_NODE_MAX <= u8::MAX as u16);

impl<'a> CommandAck<'a> {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        match self {
            CommandAck::Job(ack) => {
                assert!(
                    ack.text.len() <= REFUSAL_TEXT_MAX,
                    "the refusal's text was not cut"
                );
                writer
                    .u64(ack.job.0)
                    .u8(ack.status as u8)
                    .u8(ack.cancel_signal);
                writer
                    .u16(ack.code as u16)
                    .u32(match ack.status {
                        JobStatus::Retained => ack.pages,
                        _ => ack.signals,
                    })
                    .bytes(ack.text.as_bytes());
            }
            CommandAck::Dropped(ack) => {
                writer.u64(ack.id).u8(DROPPED).u8(ack.in_use.into());
                writer.u16(0).u32(ack.pages);
            }
            CommandAck::Claimed(ack) => {
                writer.u64(ack.job.0).u8(CLAIMED).u8(ack.cancel_signal);
                writer.u8(ack.status as u8).u8(ack.calls.len() as u8);
                writer.u32(ack.signals);
                for calls in &ack.calls {
                    writer.u64(calls.first.0).u64(calls.input_bytes);
                    writer.u8(calls.done | u8::from(calls.is_over));
                }
            }
        }
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let number = reader.u64()?;
        let job = JobId::from_wire(number).ok_or(Error::BadValue)?;
        let status = match reader.u8()? {
            0 => JobStatus::Unknown,
            1 => JobStatus::Loading,
            2 => JobStatus::Ready,
            3 => JobStatus::Refused,
            4 => JobStatus::Started,
            5 => JobStatus::Finished,
            6 => JobStatus::Retained,
            DROPPED => return parse_dropped(number, reader),
            CLAIMED => return parse_claimed(job, reader),
            _ => return Err(Error::BadValue),
        };
        let cancel_signal = reader.u8()?;
        let code = RefusalCode::from_wire(reader.u16()?);
        let count = reader.u32()?;
        let (pages, signals) = match status {
            JobStatus::Retained => (count, 0),
            JobStatus::Loading | JobStatus::Ready | JobStatus::Started => (0, count),
            _ => {
                zero(count.into())?;
                (0, 0)
            }
        };
        let text = text(reader.rest(), REFUSAL_TEXT_MAX)?;
        Ok(CommandAck::Job(JobAck {
            job,
            status,
            cancel_signal,
            code,
            pages,
            signals,
            text,
        }))
    }
}

fn parse_dropped<'a>(id: u64, mut reader: Reader<'_>) -> Result<CommandAck<'a>, Error> {
    let in_use = flag(reader.u8()?)?;
    zero(reader.u16()?.into())?;
    let pages = reader.u32()?;
    reader.finish()?;
    Ok(CommandAck::Dropped(DropAck { id, pages, in_use }))
}

fn parse_claimed<'a>(job: JobId, mut reader: Reader<'_>) -> Result<CommandAck<'a>, Error> {
    let cancel_signal = reader.u8()?;
    let status = match reader.u8()? {
        1 => JobStatus::Loading,
        2 => JobStatus::Ready,
        4 => JobStatus::Started,
        _ => return Err(Error::BadValue),
    };
    let ranks = u16::from(reader.u8()?);
    if !(1..=RANKS_PER_NODE_MAX).contains(&ranks) {
        return Err(Error::BadValue);
    }
    let mut ack = ClaimAck {
        job,
        status,
        cancel_signal,
        signals: reader.u32()?,
        calls: Vec::with_capacity(ranks.into()),
    };
    for _ in 0..ranks {
        let (first, input_bytes, done) = (reader.u64()?, reader.u64()?, reader.u8()?);
        // Calls count from 1, and no node lives to make so many.
        if !(1..=CALLS_MAX).contains(&first) {
            return Err(Error::BadValue);
        }
        ack.calls.push(Standing {
            first: CallId(first),
            done: done & !1,
            input_bytes,
            is_over: done & 1 != 0,
        });
    }
    reader.finish()?;
    Ok(CommandAck::Claimed(ack))
}
