//! Messages of function-shipped I/O.

use alloc::boxed::Box;
use alloc::vec::Vec;

use super::Error;
use super::field::{Reader, Writer};
use super::join::{emit_interrupts, parse_interrupts, zero};
use crate::RANKS_PER_NODE_MAX;
use crate::ids::{CallId, JobId, LocalRank};
use crate::io::exit::MAX_UNKNOWN_CALLS;
use crate::io::{ExitReport, ExitStatus, IoOp, MAX_CALL_DATA};

/// IO_CALL, node to control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoCall {
    /// The job.
    pub job: JobId,
    /// Which of its ranks on the node calls.
    pub rank: LocalRank,
    /// Number of the call, from 1.
    pub call: CallId,
    /// What to do.
    pub op: IoOp,
}

const WRITE: u8 = 1;
const READ: u8 = 2;
const REPORT: u8 = 3;
const EXIT: u8 = 4;

/// Writes the payload of an IO_CALL.
pub fn emit_call(
    (job, rank): (JobId, LocalRank),
    call: CallId,
    op: &IoOp,
    writer: &mut Writer<'_>,
) {
    let code = match op {
        IoOp::Write { .. } => WRITE,
        IoOp::Read { .. } => READ,
        IoOp::Report { .. } => REPORT,
        IoOp::Exit(_) => EXIT,
    };
    writer.u64(job.0).u64(call.0).u8(code).u8(0).u16(rank.0);
    match op {
        IoOp::Write { fd, offset, data } => {
            assert!(
                data.len() <= MAX_CALL_DATA,
                "a call was not checked on submission"
            );
            writer.u32(*fd).u64(*offset).bytes(data);
        }
        IoOp::Read { fd, offset, size } => {
            writer.u32(*fd).u64(*offset).u32(*size);
        }
        IoOp::Report { offset, data } => {
            assert!(
                data.len() <= MAX_CALL_DATA,
                "a call was not checked on submission"
            );
            writer.u32(*offset).bytes(data);
        }
        IoOp::Exit(report) => emit_exit(report, writer),
    }
}

impl IoCall {
    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
        let call = CallId(reader.u64()?);
        let code = reader.u8()?;
        zero(reader.u8()?.into())?;
        let rank = local_rank(reader.u16()?)?;
        let op = match code {
            WRITE => IoOp::Write {
                fd: reader.u32()?,
                offset: reader.u64()?,
                data: data(&mut reader)?,
            },
            READ => IoOp::Read {
                fd: reader.u32()?,
                offset: reader.u64()?,
                size: reader.u32()?,
            },
            REPORT => IoOp::Report {
                offset: reader.u32()?,
                data: data(&mut reader)?,
            },
            EXIT => IoOp::Exit(Box::new(parse_exit(&mut reader)?)),
            _ => return Err(Error::BadValue),
        };
        reader.finish()?;
        let oversized = matches!(op, IoOp::Read { size, .. } if size as usize > MAX_CALL_DATA);
        if oversized || call.0 == 0 {
            return Err(Error::BadValue);
        }
        Ok(IoCall {
            job,
            rank,
            call,
            op,
        })
    }
}

fn local_rank(raw: u16) -> Result<LocalRank, Error> {
    match raw < RANKS_PER_NODE_MAX {
        true => Ok(LocalRank(raw)),
        false => Err(Error::BadValue),
    }
}

fn data(reader: &mut Reader<'_>) -> Result<Vec<u8>, Error> {
    let data = reader.rest();
    if data.len() > MAX_CALL_DATA {
        return Err(Error::BadValue);
    }
    Ok(data.to_vec())
}

fn emit_exit(report: &ExitReport, writer: &mut Writer<'_>) {
    assert!(
        report.unknown_calls.len() <= MAX_UNKNOWN_CALLS,
        "a call was not checked"
    );
    let (class, value) = match report.status {
        ExitStatus::Exited(code) => (0, code),
        ExitStatus::Signal(signal) => (1, signal),
        ExitStatus::Failed => (2, 0),
    };
    writer
        .u8(class)
        .u8(value)
        .u8(report.unknown_calls.len() as u8)
        .u8(report.warm.into());
    for count in exit_counts(report) {
        writer.u64(count);
    }
    emit_interrupts(&report.interrupts_user, writer);
    emit_interrupts(&report.interrupts_idle, writer);
    for (number, count) in &report.unknown_calls {
        writer.u32(*number).u32(*count);
    }
}

/// The plain counts of a report in their order on the wire.
fn exit_counts(report: &ExitReport) -> [u64; 35] {
    [
        report.user_us,
        report.wall_us,
        report.system_calls,
        report.faults_code,
        report.faults_readonly,
        report.faults_data,
        report.faults_zero,
        report.faults_stack,
        report.faults_held,
        report.faults_copy,
        report.pages_asked,
        report.pages_read_ahead,
        report.pages_read_ahead_used,
        report.bytes_loaded,
        report.frames_peak,
        report.frames_scrubbed,
        report.pages_reused,
        report.pages_kept,
        report.pages_discarded,
        report.pages_damaged,
        report.table_pages,
        report.pages_large,
        report.program_requests,
        report.program_fragments,
        report.program_wire_bytes,
        report.launch_us,
        report.first_us,
        report.first_counts,
        report.exit_counts,
        report.pages_from_cast,
        report.faults_from_cast,
        report.faults_awaited,
        report.messages_sent,
        report.message_bytes,
        report.exchanges,
    ]
}

fn parse_exit(reader: &mut Reader<'_>) -> Result<ExitReport, Error> {
    let class = reader.u8()?;
    let value = reader.u8()?;
    let unknown = usize::from(reader.u8()?);
    let warm = super::join::flag(reader.u8()?)?;
    let status = match (class, value) {
        (0, code) => ExitStatus::Exited(code),
        (1, signal) => ExitStatus::Signal(signal),
        (2, 0) => ExitStatus::Failed,
        _ => return Err(Error::BadValue),
    };
    if unknown > MAX_UNKNOWN_CALLS {
        return Err(Error::BadValue);
    }
    let mut report = ExitReport {
        status,
        warm,
        user_us: reader.u64()?,
        wall_us: reader.u64()?,
        system_calls: reader.u64()?,
        faults_code: reader.u64()?,
        faults_readonly: reader.u64()?,
        faults_data: reader.u64()?,
        faults_zero: reader.u64()?,
        faults_stack: reader.u64()?,
        faults_held: reader.u64()?,
        faults_copy: reader.u64()?,
        pages_asked: reader.u64()?,
        pages_read_ahead: reader.u64()?,
        pages_read_ahead_used: reader.u64()?,
        bytes_loaded: reader.u64()?,
        frames_peak: reader.u64()?,
        frames_scrubbed: reader.u64()?,
        pages_reused: reader.u64()?,
        pages_kept: reader.u64()?,
        pages_discarded: reader.u64()?,
        pages_damaged: reader.u64()?,
        table_pages: reader.u64()?,
        pages_large: reader.u64()?,
        program_requests: reader.u64()?,
        program_fragments: reader.u64()?,
        program_wire_bytes: reader.u64()?,
        launch_us: reader.u64()?,
        first_us: reader.u64()?,
        first_counts: reader.u64()?,
        exit_counts: reader.u64()?,
        pages_from_cast: reader.u64()?,
        faults_from_cast: reader.u64()?,
        faults_awaited: reader.u64()?,
        messages_sent: reader.u64()?,
        message_bytes: reader.u64()?,
        exchanges: reader.u64()?,
        interrupts_user: parse_interrupts(reader)?,
        interrupts_idle: parse_interrupts(reader)?,
        unknown_calls: Vec::with_capacity(unknown),
    };
    for _ in 0..unknown {
        report.unknown_calls.push((reader.u32()?, reader.u32()?));
    }
    Ok(report)
}

/// IO_REPLY, control to node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoReply<'a> {
    /// The job.
    pub job: JobId,
    /// Which of its ranks on the node has called.
    pub rank: LocalRank,
    /// The call.
    pub call: CallId,
    /// The answer; None while it is pending (in hand, do not repeat soon).
    pub done: Option<Done<'a>>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done<'a> {
    /// Bytes written or read, or a negated errno.
    pub result: i64,
    /// Bytes read.
    pub data: &'a [u8],
}

impl<'a> IoReply<'a> {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer
            .u64(self.job.0)
            .u64(self.call.0)
            .u8(self.done.is_some().into())
            .u8(0)
            .u16(self.rank.0);
        if let Some(done) = self.done {
            assert!(done.data.len() <= MAX_CALL_DATA, "a reply was not checked");
            writer.i64(done.result).bytes(done.data);
        }
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
        let call = CallId(reader.u64()?);
        let is_done = super::join::flag(reader.u8()?)?;
        zero(reader.u8()?.into())?;
        let rank = local_rank(reader.u16()?)?;
        let done = if is_done {
            let result = reader.i64()?;
            let data = reader.rest();
            if data.len() > MAX_CALL_DATA {
                return Err(Error::BadValue);
            }
            Some(Done { result, data })
        } else {
            None
        };
        reader.finish()?;
        if call.0 == 0 {
            return Err(Error::BadValue);
        }
        Ok(IoReply {
            job,
            rank,
            call,
            done,
        })
    }
}
