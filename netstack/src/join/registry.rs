//! The control node's side of joining: the registry of nodes and its timers.
//!
//! ```text
//!  HELLO           HEARTBEAT           silence, PANIC
//! -------> Joining ----------> Up ----------------------> Lost
//!             | silence        | LEAVE       HEARTBEAT      |
//!             v                v       <--------------------+
//!         (forgotten)         Left
//! ```
//!
//! A session's keys derive from a number that is new for every entry of the registry, so nothing
//! recorded in an earlier session can be replayed in this one. HELLO can be replayed. So a boot
//! that says HELLO where another has the place is a *newcomer*: it gets a session, and the place
//! with its first HEARTBEAT in that session, which nobody can have recorded.
//!
//! Invariant: a datagram that was not authenticated changes no entry, and a HELLO none but that of
//! its own boot.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use core::net::SocketAddrV4;

use crate::control::outbox::{HintBudget, Outbox, Outgoing};
use crate::control::{Config, Event, LostReason, NodeState, NodeStatus};
use crate::files::ChannelId;
use crate::files::server::Member;
use crate::ids::{BootEpoch, NodeId};
use crate::job::RankLoss;
use crate::join::boots::UsedBoots;
use crate::join::machines::Machines;
use crate::join::slot::Slot;
use crate::time::Instant;
use crate::transport::liveness::Verdict;
use crate::wire::Error;
use crate::wire::datagram::{Header, Kind, Packet};
use crate::wire::join;
use crate::wire::log::NodeLog;
use crate::wire::retention::Holdings;

/// A datagram of a node that is up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) node: NodeId,
    pub(crate) kind: Kind,
    pub(crate) payload: &'a [u8],
}

/// The registry of nodes.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(super) config: Config,
    pub(super) slots: BTreeMap<NodeId, Slot>,
    pub(super) by_mac: BTreeMap<[u8; 6], NodeId>,
    /// Boots that want a place which another boot has: at most [`super::slot::NEWCOMERS`] a node.
    pub(super) newcomers: BTreeMap<(NodeId, BootEpoch), Slot>,
    /// When a slot that is joining or up has to be looked at; one entry each.
    pub(super) silence: BTreeSet<(Instant, NodeId)>,
    pub(super) sessions: u64,
    pub(super) rejections: super::rejection::Recent,
    pub(super) hints: HintBudget,
    pub(crate) machines: Machines,
    pub(crate) used: UsedBoots,
}

impl Registry {
    pub(crate) fn new(config: Config) -> Self {
        Registry {
            hints: HintBudget::new(config.limits.hints_per_second),
            used: UsedBoots::new(config.limits.nodes),
            config,
            slots: BTreeMap::new(),
            by_mac: BTreeMap::new(),
            newcomers: BTreeMap::new(),
            silence: BTreeSet::new(),
            sessions: 0,
            rejections: super::rejection::Recent::default(),
            machines: Machines::default(),
        }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// The boot's key was seen in use.
    pub(crate) fn is_used(&self, mac: [u8; 6], epoch: BootEpoch) -> bool {
        let slot = self.by_mac.get(&mac).and_then(|node| self.slots.get(node));
        slot.is_some_and(|slot| slot.epoch == epoch) || self.used.contains(mac, epoch)
    }

    /// The boot of a node.
    pub(crate) fn boot(&self, node: NodeId) -> Option<BootEpoch> {
        Some(self.slots.get(&node)?.epoch)
    }

    pub(crate) fn is_up(&self, node: NodeId) -> bool {
        self.slots
            .get(&node)
            .is_some_and(|slot| slot.state == NodeState::Up)
    }

    pub(crate) fn statuses(&self) -> impl Iterator<Item = NodeStatus> + '_ {
        self.slots.iter().map(|(node, slot)| slot.status(*node))
    }

    pub(crate) fn status(&self, node: NodeId) -> Option<NodeStatus> {
        self.slots.get(&node).map(|slot| slot.status(node))
    }

    /// What an I/O service must know of a rank on a node to serve it; `None` while nothing is known
    /// of the node.
    pub(crate) fn files_member(&self, node: NodeId, channel: ChannelId) -> Option<Member> {
        let slot = self.slots.get(&node)?;
        Some(Member {
            rank: channel.rank,
            node,
            address: slot.path.addr(),
            key: slot.node_key.files_key(channel.job, channel.rank),
        })
    }

    /// Takes a datagram and returns what is left for others to do.
    pub(crate) fn receive<'a>(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        bytes: &'a [u8],
        out: &mut Outbox,
    ) -> Option<Message<'a>> {
        let packet = match Packet::new_checked(bytes) {
            Ok(packet) => packet,
            Err(error) => {
                out.counters.count_envelope(error);
                if let Error::BadVersion(version) = error {
                    self.foreign_version(now, from, bytes, version, out);
                }
                return None;
            }
        };
        match packet.header().kind {
            Kind::Hello => {
                self.hello(now, from, &packet, out);
                None
            }
            Kind::Welcome
            | Kind::Refuse
            | Kind::Resync
            | Kind::HeartbeatAck
            | Kind::AskLeave
            | Kind::Command
            | Kind::HoldingsAck
            | Kind::NodeLogAck
            | Kind::PageData
            | Kind::IoReply => {
                out.counters.bad_kind += 1;
                None
            }
            _ => self.in_session(now, from, &packet, out),
        }
    }

    fn in_session<'a>(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: &Packet<'a>,
        out: &mut Outbox,
    ) -> Option<Message<'a>> {
        let Header {
            kind,
            node,
            epoch,
            seq,
        } = packet.header();
        if kind == Kind::Heartbeat {
            self.confirm_newcomer(now, packet, out);
        }
        let slot = self.slots.get_mut(&node).filter(|slot| slot.epoch == epoch);
        let Some(slot) = slot else {
            out.counters.unknown_peer += 1;
            self.hint(now, from, packet.header(), out);
            return None;
        };
        let Ok(payload) = packet.open(&slot.receive) else {
            // The node may have a session of an earlier run of this control node.
            out.counters.bad_tag += 1;
            self.hint(now, from, packet.header(), out);
            return None;
        };
        // What comes again says nothing, but shows where the node is heard.
        if slot.path.came(now, from) {
            // Nobody without the key can tell, and it is another one each time.
            let parts = [&b"hearth path\0\0\0\0\0"[..], &slot.next_seq.to_le_bytes()];
            let [challenge @ .., _, _, _, _, _, _, _, _] = slot.transmit.mac(&parts);
            let challenge = u64::from_le_bytes(challenge).max(1);
            slot.path.ask(now, from, challenge);
            out.send(Outgoing::Challenge {
                node,
                addr: from,
                challenge,
            });
        }
        if !slot.window.accept(seq) {
            out.counters.replayed += 1;
            return None;
        }
        slot.presence.heard(now);
        match kind {
            Kind::Heartbeat => self.heartbeat(now, (node, from), seq, payload, out),
            Kind::Leave => {
                self.leave(now, node, seq, payload, out);
                return None;
            }
            Kind::Panic => {
                self.panic(now, node, payload, out);
                return None;
            }
            _ => {}
        }
        let slot = self.slots.get(&node)?;
        if slot.state != NodeState::Up {
            out.counters.stale += 1;
            return None;
        }
        Some(Message {
            node,
            kind,
            payload,
        })
    }

    fn hint(&mut self, now: Instant, addr: SocketAddrV4, header: Header, out: &mut Outbox) {
        if self.hints.take(now) {
            let Header {
                node, epoch, seq, ..
            } = header;
            out.send(Outgoing::Resync {
                addr,
                node,
                epoch,
                seq,
            });
        } else {
            out.counters.rate_limited += 1;
        }
    }

    fn heartbeat(
        &mut self,
        now: Instant,
        (node, from): (NodeId, SocketAddrV4),
        seq: u64,
        payload: &[u8],
        out: &mut Outbox,
    ) {
        let Ok((vitals, answer)) = join::parse_heartbeat(payload) else {
            out.counters.bad_payload += 1;
            return;
        };
        let silence = self.config.timing.reboot_silence;
        let slot = self.slots.get_mut(&node).expect("the caller found it");
        slot.path.answered(now, from, answer, silence);
        match slot.state {
            NodeState::Left => return,
            NodeState::Lost if slot.panicked => return,
            _ => {}
        }
        if seq > slot.vitals_seq {
            slot.vitals_seq = seq;
            let before = core::mem::replace(&mut slot.vitals, vitals);
            let count = vitals
                .hardware_errors
                .saturating_sub(before.hardware_errors);
            if count > 0 {
                out.event(Event::HardwareErrors { node, count });
            }
        }
        out.send(Outgoing::Ack { node, seq });
        if slot.state == NodeState::Up {
            return;
        }
        slot.enter(NodeState::Up, now);
        let rejoined = core::mem::replace(&mut slot.was_up, true);
        self.used.joined(slot.hello.mac, slot.epoch);
        out.event(Event::NodeJoined {
            status: Box::new(slot.status(node)),
            rejoined,
        });
        self.watch(node);
    }

    /// A node says what it holds. A report is taken once and in its turn; one that comes again was
    /// not heard to be acknowledged.
    pub(crate) fn holdings(&mut self, node: NodeId, report: Holdings, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(&node) else {
            return;
        };
        let Holdings {
            number,
            reset,
            held,
            dropped,
        } = report;
        if number > slot.report.saturating_add(1) {
            // Made before the one that should come next was acknowledged.
            out.counters.stale += 1;
            return;
        }
        out.send(Outgoing::HoldingsAck {
            node,
            session: slot.session,
            number,
        });
        if number <= slot.report {
            out.counters.stale += 1;
            return;
        }
        slot.report = number;
        out.event(Event::Holdings {
            node,
            boot_epoch: slot.epoch,
            reset,
            held,
            dropped,
        });
    }

    /// Lines of a node's log, each report once.
    pub(crate) fn log_lines(&mut self, node: NodeId, report: &NodeLog<'_>, out: &mut Outbox) {
        let Some(slot) = self.slots.get_mut(&node) else {
            return;
        };
        if report.number > slot.log.saturating_add(1) {
            // Made before the one that should come next was acknowledged.
            out.counters.stale += 1;
            return;
        }
        out.send(Outgoing::LogAck {
            node,
            session: slot.session,
            number: report.number,
        });
        if report.number <= slot.log {
            out.counters.stale += 1;
            return;
        }
        slot.log = report.number;
        out.event(Event::LogLines {
            node,
            boot_epoch: slot.epoch,
            missed: report.missed,
            text: report.text.into(),
        });
    }

    fn leave(&mut self, now: Instant, node: NodeId, seq: u64, payload: &[u8], out: &mut Outbox) {
        if !payload.is_empty() {
            out.counters.bad_payload += 1;
            return;
        }
        out.send(Outgoing::LeaveAck { node, seq });
        let slot = self.slots.get_mut(&node).expect("the caller found it");
        if slot.state == NodeState::Left {
            return;
        }
        let was_up = slot.state == NodeState::Up;
        slot.enter(NodeState::Left, now);
        let epoch = slot.epoch;
        self.unwatch(node);
        if was_up {
            out.event(Event::NodeLeft { node, epoch });
            out.lost.push_back((node, RankLoss::NodeLeft));
        }
    }

    fn panic(&mut self, now: Instant, node: NodeId, payload: &[u8], out: &mut Outbox) {
        let Ok(text) = join::parse_panic(payload) else {
            out.counters.bad_payload += 1;
            return;
        };
        let slot = self.slots.get_mut(&node).expect("the caller found it");
        if core::mem::replace(&mut slot.panicked, true) {
            return;
        }
        out.event(Event::NodePanic {
            node,
            text: text.into(),
        });
        self.lose(now, node, LostReason::Panicked, out);
    }

    /// A node that was up is lost (also tells about its jobs).
    pub(crate) fn lose(
        &mut self,
        now: Instant,
        node: NodeId,
        reason: LostReason,
        out: &mut Outbox,
    ) {
        self.unwatch(node);
        let slot = self
            .slots
            .get_mut(&node)
            .expect("only known nodes get lost");
        let was_up = slot.state == NodeState::Up;
        slot.enter(NodeState::Lost, now);
        if !was_up {
            return;
        }
        let (epoch, last_heard) = (slot.epoch, slot.presence.heard_at());
        out.event(Event::NodeLost {
            node,
            epoch,
            reason,
            last_heard,
        });
        out.lost.push_back((
            node,
            match reason {
                LostReason::Silent => RankLoss::NodeSilent,
                LostReason::Rebooted => RankLoss::NodeRebooted,
                LostReason::Panicked => RankLoss::NodePanicked,
                LostReason::Switched => RankLoss::NodeSwitched,
            },
        ));
    }

    /// Sets the silence timer of a slot.
    pub(super) fn watch(&mut self, node: NodeId) {
        self.unwatch(node);
        let slot = self
            .slots
            .get_mut(&node)
            .expect("only known nodes are watched");
        let due = slot.presence.deadline(&self.config.timing.patience());
        slot.watched = Some(due);
        self.silence.insert((due, node));
    }

    pub(super) fn unwatch(&mut self, node: NodeId) {
        let watched = self
            .slots
            .get_mut(&node)
            .and_then(|slot| slot.watched.take());
        if let Some(due) = watched {
            self.silence.remove(&(due, node));
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.silence.first().map(|(due, _)| *due)
    }

    /// Acts on silence.
    pub(crate) fn handle_timeouts(&mut self, now: Instant, out: &mut Outbox) {
        while let Some((due, node)) = self.silence.first().copied()
            && due <= now
        {
            let slot = self.slots.get_mut(&node);
            let slot = slot.expect("only known nodes are watched");
            let patience = self.config.timing.patience();
            match slot.presence.verdict(now, &patience) {
                Verdict::Wait => self.watch(node),
                // It may be this side that was deaf: a control node that was not scheduled finds
                // its timers expired before it has read what arrived meanwhile.
                Verdict::Ask => {
                    slot.presence.asked(now);
                    self.watch(node);
                    out.send(Outgoing::Probe { node });
                }
                Verdict::Dead if slot.state == NodeState::Joining => drop(self.remove(node)),
                Verdict::Dead => self.lose(now, node, LostReason::Silent, out),
            }
        }
    }

    /// Removes a slot and returns it.
    pub(super) fn remove(&mut self, node: NodeId) -> Option<Slot> {
        self.unwatch(node);
        let slot = self.slots.remove(&node)?;
        self.by_mac.remove(&slot.hello.mac);
        Some(slot)
    }
}
