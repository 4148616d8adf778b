//! Messages of joining and keeping in touch.

use super::Error;
use super::field::{Reader, Writer};
use super::key::KEY_LEN;
use crate::ids::{ControlEpoch, JobId};
use crate::join::{Refusal, Timing};
use crate::time::Micros;
use crate::vitals::{BootTimings, CastVitals, InterruptCounts, Vitals};

/// Longest text of a REFUSE, in bytes.
pub const REFUSE_TEXT_MAX: usize = 256;
/// Longest text of a PANIC, in bytes.
pub const PANIC_TEXT_MAX: usize = 1200;

/// HELLO, node to control, sealed with the join key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// MAC address.
    pub mac: [u8; 6],
    /// The key holds for every boot.
    pub lab_key: bool,
    /// Which cluster secret the key was derived from.
    pub key_id: u32,
    /// Version of the image.
    pub version: [u8; 16],
    /// Build id of the kernel.
    pub build_id: [u8; 20],
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Cores for programs, not 0.
    pub cores: u16,
    /// Milestones of the boot.
    pub timings: BootTimings,
    /// The run of the control node whose session the node has, 0 if none.
    pub known_control: ControlEpoch,
    /// The job the node has.
    pub job: Option<JobId>,
}

impl Hello {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer
            .bytes(&self.mac)
            .u8(self.lab_key.into())
            .u8(0)
            .u32(self.key_id);
        writer
            .bytes(&self.version)
            .bytes(&self.build_id)
            .u64(self.memory_bytes);
        writer
            .u64(self.timings.entry_to_dhcp_us)
            .u64(self.timings.entry_to_hello_us);
        writer.u64(self.timings.idle_us).u64(self.timings.stub_us);
        writer
            .u64(self.known_control.0)
            .u64(JobId::to_wire(self.job))
            .u16(self.cores);
    }

    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let mac = reader.array()?;
        let lab_key = flag(reader.u8()?)?;
        zero(reader.u8()?.into())?;
        let mut hello = Hello {
            mac,
            lab_key,
            key_id: reader.u32()?,
            version: reader.array()?,
            build_id: reader.array()?,
            memory_bytes: reader.u64()?,
            cores: 0,
            timings: BootTimings {
                entry_to_dhcp_us: reader.u64()?,
                entry_to_hello_us: reader.u64()?,
                idle_us: reader.u64()?,
                stub_us: reader.u64()?,
            },
            known_control: ControlEpoch(reader.u64()?),
            job: JobId::from_wire(reader.u64()?),
        };
        hello.cores = reader.u16()?;
        reader.finish()?;
        if hello.cores == 0 {
            return Err(Error::BadValue);
        }
        Ok(hello)
    }
}

/// WELCOME, control to node, sealed with the join key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Sequence number of the HELLO it answers.
    pub hello_seq: u64,
    /// The run of the control node.
    pub control: ControlEpoch,
    /// The session; its keys derive from it.
    pub session: u64,
    /// Intervals the node must keep.
    pub timing: Timing,
    /// Time of the control node in microseconds: nodes number what they say to one another by it.
    pub control_time_us: u64,
    /// The key of what nodes say to one another, see [`super::key::Key::wrap_peer_key`].
    pub wrapped_peer_key: [u8; KEY_LEN],
}

impl Welcome {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer
            .u64(self.hello_seq)
            .u64(self.control.0)
            .u64(self.session);
        writer
            .u64(self.timing.heartbeat.0)
            .u64(self.timing.lost_after.0);
        writer
            .u64(self.timing.reboot_silence.0)
            .u64(self.timing.keep_job.0)
            .u64(self.control_time_us)
            .bytes(&self.wrapped_peer_key);
    }

    /// Reads the payload. Intervals below a millisecond are out of range, but for how long a job is
    /// kept.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let welcome = Welcome {
            hello_seq: reader.u64()?,
            control: ControlEpoch(reader.u64()?),
            session: reader.u64()?,
            timing: Timing {
                heartbeat: Micros(reader.u64()?),
                lost_after: Micros(reader.u64()?),
                reboot_silence: Micros(reader.u64()?),
                keep_job: Micros(reader.u64()?),
            },
            control_time_us: reader.u64()?,
            wrapped_peer_key: reader.array()?,
        };
        reader.finish()?;
        let timing = welcome.timing;
        let least = timing
            .heartbeat
            .min(timing.lost_after)
            .min(timing.reboot_silence);
        if least < Micros::from_millis(1) {
            return Err(Error::BadValue);
        }
        Ok(welcome)
    }
}

/// REFUSE, control to node, sealed with the join key where the control node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refuse<'a> {
    /// Sequence number of the HELLO it answers.
    pub hello_seq: u64,
    /// Class of the reason.
    pub reason: Refusal,
    /// The reason in words, at most [`REFUSE_TEXT_MAX`] bytes; empty when unsealed.
    pub text: &'a str,
}

impl<'a> Refuse<'a> {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        assert!(
            self.text.len() <= REFUSE_TEXT_MAX,
            "the refusal's text was not cut"
        );
        writer
            .u64(self.hello_seq)
            .u8(self.reason as u8)
            .bytes(self.text.as_bytes());
    }

    /// Reads the payload.
    pub fn parse(payload: &'a [u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let hello_seq = reader.u64()?;
        let reason = Refusal::from_wire(reader.u8()?).ok_or(Error::BadValue)?;
        let text = text(reader.rest(), REFUSE_TEXT_MAX)?;
        Ok(Refuse {
            hello_seq,
            reason,
            text,
        })
    }
}

/// Writes HEARTBEAT, node to control.
///
/// `answer` is the challenge of the last [`HeartbeatAck`] that had one and was not answered, else
/// 0.
pub fn emit_heartbeat(vitals: &Vitals, answer: u64, writer: &mut Writer<'_>) {
    writer.u64(vitals.uptime_us).u64(vitals.idle_us);
    writer.u64(vitals.joined_us).u64(vitals.joined_idle_us);
    writer.u64(vitals.memory_free).u64(vitals.memory_used);
    writer.u64(JobId::to_wire(vitals.job));
    emit_interrupts(&vitals.interrupts_user, writer);
    emit_interrupts(&vitals.interrupts_idle, writer);
    writer
        .u64(vitals.casts.blocks_in)
        .u64(vitals.casts.blocks_out);
    writer
        .u64(vitals.casts.corrupt)
        .u64(vitals.casts.duplicates);
    writer.u8(vitals.unscrubbed.into()).u32(vitals.overlay_kept);
    writer.u32(vitals.hardware_errors).u64(answer);
}

/// Reads HEARTBEAT: what it says of the node, and the answer to a challenge, 0 for none.
pub fn parse_heartbeat(payload: &[u8]) -> Result<(Vitals, u64), Error> {
    let mut reader = Reader::new(payload);
    let vitals = Vitals {
        uptime_us: reader.u64()?,
        idle_us: reader.u64()?,
        joined_us: reader.u64()?,
        joined_idle_us: reader.u64()?,
        memory_free: reader.u64()?,
        memory_used: reader.u64()?,
        job: JobId::from_wire(reader.u64()?),
        interrupts_user: parse_interrupts(&mut reader)?,
        interrupts_idle: parse_interrupts(&mut reader)?,
        casts: CastVitals {
            blocks_in: reader.u64()?,
            blocks_out: reader.u64()?,
            corrupt: reader.u64()?,
            duplicates: reader.u64()?,
        },
        unscrubbed: flag(reader.u8()?)?,
        overlay_kept: reader.u32()?,
        hardware_errors: reader.u32()?,
    };
    let answer = reader.u64()?;
    reader.finish()?;
    Ok((vitals, answer))
}

/// HEARTBEAT_ACK, control to node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeartbeatAck {
    /// Sequence number of the heartbeat, 0 for a probe.
    pub heartbeat_seq: u64,
    /// The control node's time in microseconds since an origin of its own.
    pub control_time_us: u64,
    /// The node shall send a heartbeat at once.
    pub probe: bool,
    /// Which is to have this number, if it is not 0: it shows that the node is where this went.
    pub challenge: u64,
}

impl HeartbeatAck {
    /// Writes the payload.
    pub fn emit(&self, writer: &mut Writer<'_>) {
        writer
            .u64(self.heartbeat_seq)
            .u64(self.control_time_us)
            .u8(self.probe.into())
            .u64(self.challenge);
    }

    /// Reads the payload.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload);
        let ack = HeartbeatAck {
            heartbeat_seq: reader.u64()?,
            control_time_us: reader.u64()?,
            probe: flag(reader.u8()?)?,
            challenge: reader.u64()?,
        };
        reader.finish()?;
        Ok(ack)
    }
}

/// Writes RESYNC or the answer to LEAVE: the sequence number of the datagram it is about.
pub fn emit_echo(seq: u64, writer: &mut Writer<'_>) {
    writer.u64(seq);
}

/// Reads RESYNC or the answer to LEAVE.
pub fn parse_echo(payload: &[u8]) -> Result<u64, Error> {
    let mut reader = Reader::new(payload);
    let seq = reader.u64()?;
    reader.finish()?;
    Ok(seq)
}

/// Writes STAY, node to control: the job for which it stays.
pub fn emit_stay(job: JobId, writer: &mut Writer<'_>) {
    writer.u64(job.0);
}

/// Reads STAY.
pub fn parse_stay(payload: &[u8]) -> Result<JobId, Error> {
    let mut reader = Reader::new(payload);
    let job = JobId::from_wire(reader.u64()?).ok_or(Error::BadValue)?;
    reader.finish()?;
    Ok(job)
}

/// Reads PANIC, node to control: text only.
pub fn parse_panic(payload: &[u8]) -> Result<&str, Error> {
    text(payload, PANIC_TEXT_MAX)
}

pub(super) fn emit_interrupts(counts: &InterruptCounts, writer: &mut Writer<'_>) {
    writer
        .u64(counts.heartbeat)
        .u64(counts.time_limit)
        .u64(counts.monitor);
    writer.u64(counts.nic).u64(counts.cast).u64(counts.spurious);
}

pub(super) fn parse_interrupts(reader: &mut Reader<'_>) -> Result<InterruptCounts, Error> {
    Ok(InterruptCounts {
        heartbeat: reader.u64()?,
        time_limit: reader.u64()?,
        monitor: reader.u64()?,
        nic: reader.u64()?,
        cast: reader.u64()?,
        spurious: reader.u64()?,
    })
}

/// A flag on the wire is 0 or 1.
pub(crate) fn flag(raw: u8) -> Result<bool, Error> {
    match raw {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Error::BadValue),
    }
}

/// A reserved field is zero.
pub(super) fn zero(raw: u64) -> Result<(), Error> {
    if raw == 0 {
        Ok(())
    } else {
        Err(Error::BadValue)
    }
}

/// UTF-8 text of bounded length.
pub(super) fn text(bytes: &[u8], limit: usize) -> Result<&str, Error> {
    if bytes.len() > limit {
        return Err(Error::BadValue);
    }
    core::str::from_utf8(bytes).map_err(|_| Error::BadValue)
}
