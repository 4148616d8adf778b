//! What the registry sends: WELCOME, REFUSE, RESYNC and the answers to heartbeats and LEAVE.

use core::net::SocketAddrV4;

use crate::control::outbox::Outgoing;
use crate::ids::{BootEpoch, JobId, NodeId};
use crate::join::registry::Registry;
use crate::time::Instant;
use crate::wire::datagram::{self, Header, Kind};
use crate::wire::field::Writer;
use crate::wire::join::{self, HeartbeatAck, Refuse, Welcome};
use crate::wire::key::{Direction, KEY_LEN, Key};

/// A datagram's length, and where it goes.
type Sent = Option<(SocketAddrV4, usize)>;

impl Registry {
    /// Writes a session's message to a node; None when the node is gone meanwhile.
    pub(crate) fn seal(
        &mut self,
        node: NodeId,
        kind: Kind,
        out: &mut [u8],
        payload: impl FnOnce(&mut Writer<'_>),
    ) -> Sent {
        let slot = self.slots.get_mut(&node)?;
        let header = slot.next_header(node, kind);
        let length = datagram::emit(header, Some(&slot.transmit), out, payload);
        Some((slot.path.addr(), length))
    }

    /// The key of a job for the session of one of its nodes; None when the node is gone meanwhile.
    pub(crate) fn wrap_job_key(
        &self,
        node: NodeId,
        job: JobId,
        submitted_us: u64,
    ) -> Option<[u8; KEY_LEN]> {
        let slot = self.slots.get(&node)?;
        let key = Key(self.config.cluster_secret).job_key(job, submitted_us);
        Some(slot.transmit.wrap_job_key(job, key))
    }

    /// Writes a message about joining; None when its node is gone meanwhile, or when the message
    /// is about something else.
    pub(crate) fn emit(&mut self, now: Instant, datagram: &Outgoing, out: &mut [u8]) -> Sent {
        match datagram {
            Outgoing::Resync {
                addr,
                node,
                epoch,
                seq,
            } => {
                let header = unnumbered(Kind::Resync, *node, *epoch);
                let length = datagram::emit(header, None, out, |w| join::emit_echo(*seq, w));
                Some((*addr, length))
            }
            Outgoing::Refuse {
                addr,
                node,
                epoch,
                hello_seq,
                reason,
                text,
                key,
            } => {
                let header = unnumbered(Kind::Refuse, *node, *epoch);
                // To an unknown address go as few bytes as possible.
                let text = if key.is_some() { text.as_str() } else { "" };
                let (hello_seq, reason) = (*hello_seq, *reason);
                let refuse = Refuse {
                    hello_seq,
                    reason,
                    text,
                };
                let length = datagram::emit(header, key.as_ref(), out, |w| refuse.emit(w));
                Some((*addr, length))
            }
            Outgoing::Welcome {
                addr,
                node,
                epoch,
                hello_seq,
            } => Some((
                *addr,
                self.emit_welcome(now, (*node, *epoch), *hello_seq, out)?,
            )),
            Outgoing::Ack { node, seq } => self.emit_ack(now, *node, *seq, 0, out),
            Outgoing::Probe { node } => self.emit_ack(now, *node, 0, 0, out),
            Outgoing::Challenge {
                node,
                addr,
                challenge,
            } => {
                let (_, length) = self.emit_ack(now, *node, 0, *challenge, out)?;
                Some((*addr, length))
            }
            Outgoing::LeaveAck { node, seq } => {
                self.seal(*node, Kind::Leave, out, |w| join::emit_echo(*seq, w))
            }
            Outgoing::AskLeave { node } => self.seal(*node, Kind::AskLeave, out, |_| {}),
            Outgoing::HoldingsAck {
                node,
                session,
                number,
            } => {
                // Reports are counted within a session: in another one it would be a lie.
                self.slots
                    .get(node)
                    .filter(|slot| slot.session == *session)?;
                self.seal(*node, Kind::HoldingsAck, out, |w| {
                    join::emit_echo(*number, w);
                })
            }
            Outgoing::LogAck {
                node,
                session,
                number,
            } => {
                self.slots
                    .get(node)
                    .filter(|slot| slot.session == *session)?;
                self.seal(*node, Kind::NodeLogAck, out, |w| {
                    join::emit_echo(*number, w);
                })
            }
            Outgoing::Command { .. } | Outgoing::Drop { .. } | Outgoing::IoReply { .. } => None,
        }
    }

    fn emit_welcome(
        &mut self,
        now: Instant,
        (node, epoch): (NodeId, BootEpoch),
        hello_seq: u64,
        out: &mut [u8],
    ) -> Option<usize> {
        let present = self.slots.get_mut(&node).filter(|slot| slot.epoch == epoch);
        let slot = match present {
            Some(slot) => slot,
            None => self.newcomers.get_mut(&(node, epoch))?,
        };
        let key = slot.node_key.join_key(Direction::ToNode);
        let (control, session) = (self.config.control_epoch, slot.session);
        let welcome = Welcome {
            hello_seq,
            control,
            session,
            timing: self.config.timing,
            control_time_us: now.as_micros(),
            wrapped_peer_key: key.wrap_peer_key(control, session, self.config.peer_key),
        };
        let header = slot.next_header(node, Kind::Welcome);
        Some(datagram::emit(header, Some(&key), out, |w| welcome.emit(w)))
    }

    /// HEARTBEAT_ACK; `heartbeat_seq` 0 is a probe.
    fn emit_ack(
        &mut self,
        now: Instant,
        node: NodeId,
        heartbeat_seq: u64,
        challenge: u64,
        out: &mut [u8],
    ) -> Sent {
        let ack = HeartbeatAck {
            heartbeat_seq,
            control_time_us: now.as_micros(),
            probe: heartbeat_seq == 0,
            challenge,
        };
        self.seal(node, Kind::HeartbeatAck, out, |w| ack.emit(w))
    }
}

/// The header of a message outside every session.
fn unnumbered(kind: Kind, node: NodeId, epoch: BootEpoch) -> Header {
    Header {
        kind,
        node,
        epoch,
        seq: 0,
    }
}
