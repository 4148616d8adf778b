//! Who is let into the registry: what a HELLO leads to.
//!
//! A new boot of a MAC address whose earlier boot is still heard is either a reboot or a second
//! machine. The earlier boot is probed: if it answers, the newcomer is refused; if it stays silent
//! for [`crate::join::Timing::reboot_silence`], the newcomer is welcome, and takes its place with
//! its first HEARTBEAT. The newcomer just repeats its HELLO meanwhile.

use core::net::SocketAddrV4;

use crate::control::outbox::{Outbox, Outgoing};
use crate::control::{Event, LostReason, NodeState};
use crate::ids::{BootEpoch, NodeId};
use crate::io;
use crate::join::Refusal;
use crate::join::registry::Registry;
use crate::join::rejection::{self, Standing};
use crate::join::slot::{Arrival, NEWCOMERS, Slot};
use crate::time::{Instant, Micros};
use crate::transport::retry::FIRST;
use crate::wire::datagram::{Header, Packet};
use crate::wire::join::{Hello, REFUSE_TEXT_MAX};
use crate::wire::key::{Direction, Key};

/// What an earlier boot sent before its reboot may still arrive so long after the newcomer's first
/// HELLO: three of the first time-outs.
const IN_FLIGHT: Micros = Micros(3 * FIRST.0);

/// What stands between a newcomer and its place.
enum Obstacle {
    None,
    /// Wait and see; the earlier boot was probed.
    Undecided,
    /// The earlier boot is there: it is another machine.
    AnotherMachine,
}

impl Registry {
    pub(super) fn hello(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        packet: &Packet<'_>,
        out: &mut Outbox,
    ) {
        let Header {
            node, epoch, seq, ..
        } = packet.header();
        let hello = match Hello::parse(packet.unverified_payload()) {
            Ok(hello) if epoch != BootEpoch(0) && seq != 0 => hello,
            _ => {
                out.counters.bad_payload += 1;
                return;
            }
        };
        let node_key = self.node_key(node, epoch, &hello);
        let arrival = Arrival {
            node,
            epoch,
            seq,
            from,
            hello,
            node_key,
        };
        if hello.key_id != self.config.key_id {
            self.refuse_unsealed(now, &arrival, Refusal::UnknownKeyId, out);
            return;
        }
        let lab_refused = hello.lab_key && !self.config.accept_lab_keys;
        if lab_refused
            || packet
                .open(&node_key.join_key(Direction::ToControl))
                .is_err()
        {
            out.counters.bad_tag += 1;
            self.refuse_unsealed(now, &arrival, Refusal::WrongKey, out);
            return;
        }
        if !self.machines.admits(hello.mac) {
            let text = alloc::format!("{}", Refusal::NotAdmitted);
            self.refuse(now, &arrival, Refusal::NotAdmitted, text, out);
            return;
        }
        self.admit(now, &arrival, out);
    }

    /// The key that a HELLO must be sealed with. Epoch 0 stands for a laboratory key.
    fn node_key(&self, node: NodeId, epoch: BootEpoch, hello: &Hello) -> Key {
        let epoch = if hello.lab_key { BootEpoch(0) } else { epoch };
        Key(self.config.cluster_secret).node_key(hello.key_id, hello.mac, epoch, node)
    }

    fn admit(&mut self, now: Instant, arrival: &Arrival, out: &mut Outbox) {
        let mac = arrival.hello.mac;
        if let Some(present) = self.used.used_up_by(mac, arrival.epoch) {
            let text = rejection::used_text(arrival.epoch, present);
            return self.refuse(now, arrival, Refusal::KeyUsed, text, out);
        }
        let known = self.by_mac.get(&mac).copied();
        if known == Some(arrival.node) && self.welcome_again(now, arrival, out) {
            return;
        }
        if let Some(earlier) = known {
            match self.earlier_boot(now, earlier, arrival, out) {
                Obstacle::None => {}
                Obstacle::Undecided => return,
                Obstacle::AnotherMachine => {
                    self.refuse_second(now, earlier, arrival, out);
                    return;
                }
            }
        }
        if known != Some(arrival.node) && self.is_alive(now, arrival.node) {
            let text = alloc::format!("{}", Refusal::NodeInUse);
            self.refuse(now, arrival, Refusal::NodeInUse, text, out);
            return;
        }
        if known.is_some() || self.slots.contains_key(&arrival.node) {
            return self.welcome_newcomer(now, arrival, out);
        }
        if self.slots.len() >= self.config.limits.nodes && !self.make_room() {
            let text = alloc::format!("{}", Refusal::RegistryFull);
            self.refuse(now, arrival, Refusal::RegistryFull, text, out);
            return;
        }
        let session = self.next_session();
        let slot = Slot::new(now, arrival, session);
        self.slots.insert(arrival.node, slot);
        self.by_mac.insert(arrival.hello.mac, arrival.node);
        self.watch(arrival.node);
        welcome(arrival, out);
    }

    /// Gives a boot a session with which it can show that it is there, while another has its place.
    fn welcome_newcomer(&mut self, now: Instant, arrival: &Arrival, out: &mut Outbox) {
        let (node, key) = (arrival.node, (arrival.node, arrival.epoch));
        if let Some(slot) = self.newcomers.get_mut(&key) {
            slot.said_hello(now, arrival);
            return welcome(arrival, out);
        }
        let of_node = (node, BootEpoch(0))..=(node, BootEpoch(u64::MAX));
        let others = || self.newcomers.range(of_node.clone());
        if others().count() >= NEWCOMERS {
            let oldest = others().min_by_key(|(_, slot)| slot.presence.heard_at());
            let oldest = oldest.map(|(key, _)| *key);
            oldest.and_then(|key| self.newcomers.remove(&key));
        }
        let session = self.next_session();
        self.newcomers.insert(key, Slot::new(now, arrival, session));
        welcome(arrival, out);
    }

    /// A HEARTBEAT of a newcomer has come: it takes the place of the boot before, unless that one
    /// is heard.
    pub(super) fn confirm_newcomer(&mut self, now: Instant, packet: &Packet<'_>, out: &mut Outbox) {
        let Header { node, epoch, .. } = packet.header();
        let key = (node, epoch);
        let newcomer = self.newcomers.get(&key);
        let Some(newcomer) = newcomer.filter(|slot| packet.open(&slot.receive).is_ok()) else {
            return;
        };
        let mac = newcomer.hello.mac;
        let before = [self.by_mac.get(&mac).copied(), Some(node)];
        if before
            .iter()
            .flatten()
            .any(|node| self.is_alive(now, *node))
        {
            return;
        }
        let mut newcomer = self.newcomers.remove(&key).expect("it was just found");
        for node in before.into_iter().flatten() {
            if self.slots.contains_key(&node) {
                self.lose(now, node, LostReason::Rebooted, out);
            }
            self.remove(node);
        }
        // None but those of the boots before it is older: what else waits there was recorded, or is
        // a boot before this one.
        self.newcomers
            .retain(|(other, _), slot| *other != node || slot.since > newcomer.since);
        newcomer.since = now;
        self.slots.insert(node, newcomer);
        self.by_mac.insert(mac, node);
        self.watch(node);
    }

    /// A HELLO of the boot that has the place already. False when it has to start afresh.
    fn welcome_again(&mut self, now: Instant, arrival: &Arrival, out: &mut Outbox) -> bool {
        let slot = self
            .slots
            .get_mut(&arrival.node)
            .expect("the index names known nodes");
        if slot.epoch != arrival.epoch {
            return false;
        }
        if slot.state == NodeState::Left || slot.panicked {
            // Gone for good: a boot says LEAVE or PANIC last, so this was late or replayed.
            out.counters.stale += 1;
            return true;
        }
        slot.said_hello(now, arrival);
        welcome(arrival, out);
        true
    }

    /// Another boot of the same MAC address has a place, at `earlier`.
    fn earlier_boot(
        &mut self,
        now: Instant,
        earlier: NodeId,
        arrival: &Arrival,
        out: &mut Outbox,
    ) -> Obstacle {
        let alive = self.is_alive(now, earlier);
        let slot = self
            .slots
            .get_mut(&earlier)
            .expect("the index names known nodes");
        if !alive || slot.epoch == arrival.epoch {
            return Obstacle::None;
        }
        out.send(Outgoing::Probe { node: earlier });
        match slot.candidate {
            Some((epoch, since)) if epoch == arrival.epoch => {
                if slot.presence.heard_at() > since + IN_FLIGHT {
                    Obstacle::AnotherMachine
                } else {
                    Obstacle::Undecided
                }
            }
            _ => {
                slot.candidate = Some((arrival.epoch, now));
                Obstacle::Undecided
            }
        }
    }

    fn is_alive(&self, now: Instant, node: NodeId) -> bool {
        let silence = self.config.timing.reboot_silence;
        self.slots.get(&node).is_some_and(|slot| {
            slot.state == NodeState::Up && now.saturating_since(slot.presence.heard_at()) < silence
        })
    }

    /// Forgets the node that has been gone longest; false when all are up.
    fn make_room(&mut self) -> bool {
        let gone = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.state != NodeState::Up);
        let oldest = gone
            .min_by_key(|(_, slot)| slot.since)
            .map(|(node, _)| *node);
        oldest.and_then(|node| self.remove(node)).is_some()
    }

    /// A number no other session of this cluster has had.
    fn next_session(&mut self) -> u64 {
        self.sessions += 1;
        let tag = Key(self.config.cluster_secret).mac(&[
            b"hearth session id\0",
            &self.config.control_epoch.0.to_le_bytes(),
            &self.sessions.to_le_bytes(),
        ]);
        let (head, _) = tag.split_first_chunk().expect("a tag has 16 bytes");
        u64::from_le_bytes(*head)
    }

    fn refuse_second(
        &mut self,
        now: Instant,
        earlier: NodeId,
        arrival: &Arrival,
        out: &mut Outbox,
    ) {
        let (mac, reason) = (arrival.hello.mac, Refusal::MacInUse);
        let rejected = (mac, arrival.node, reason);
        if self.rejections.is_news(now, Standing::Authentic, rejected) {
            out.event(Event::TwoNodesOneMac {
                mac,
                node: earlier,
                first: self.slots[&earlier].epoch,
                second: arrival.epoch,
                from: arrival.from,
            });
        }
        self.send_refusal(arrival, reason, alloc::format!("{reason}"), out);
    }

    fn refuse(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        reason: Refusal,
        text: alloc::string::String,
        out: &mut Outbox,
    ) {
        self.tell(now, arrival, Standing::Authentic, reason, &text, out);
        self.send_refusal(arrival, reason, text, out);
    }

    fn send_refusal(
        &mut self,
        arrival: &Arrival,
        reason: Refusal,
        text: alloc::string::String,
        out: &mut Outbox,
    ) {
        out.send(Outgoing::Refuse {
            addr: arrival.from,
            node: arrival.node,
            epoch: arrival.epoch,
            hello_seq: arrival.seq,
            reason,
            text: io::clip(&text, REFUSE_TEXT_MAX),
            key: Some(arrival.node_key.join_key(Direction::ToNode)),
        });
    }

    fn refuse_unsealed(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        reason: Refusal,
        out: &mut Outbox,
    ) {
        let registered = self.by_mac.contains_key(&arrival.hello.mac);
        let standing = if registered {
            Standing::Registered
        } else {
            Standing::Stranger
        };
        let text = alloc::format!("{reason}");
        self.tell(now, arrival, standing, reason, &text, out);
        let Arrival {
            node,
            epoch,
            seq,
            from,
            ..
        } = *arrival;
        self.hint_refusal(now, from, (node, epoch, seq), reason, out);
    }

    fn hint_refusal(
        &mut self,
        now: Instant,
        addr: SocketAddrV4,
        (node, epoch, hello_seq): (NodeId, BootEpoch, u64),
        reason: Refusal,
        out: &mut Outbox,
    ) {
        if !self.hints.take(now) {
            out.counters.rate_limited += 1;
            return;
        }
        let text = alloc::string::String::new();
        out.send(Outgoing::Refuse {
            addr,
            node,
            epoch,
            hello_seq,
            reason,
            text,
            key: None,
        });
    }

    fn tell(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        standing: Standing,
        reason: Refusal,
        text: &str,
        out: &mut Outbox,
    ) {
        let mac = arrival.hello.mac;
        let rejected = (mac, arrival.node, reason);
        if self.rejections.is_news(now, standing, rejected) {
            let (node, from) = (arrival.node, arrival.from);
            out.event(Event::Rejected {
                mac: Some(mac),
                node,
                from,
                reason,
                text: text.into(),
            });
        }
    }

    /// A datagram of another protocol version: all that can be said is no.
    pub(super) fn foreign_version(
        &mut self,
        now: Instant,
        from: SocketAddrV4,
        bytes: &[u8],
        version: u8,
        out: &mut Outbox,
    ) {
        let Some(sender) = Packet::foreign_sender(bytes) else {
            return;
        };
        let reason = Refusal::Protocol;
        let rejected = ([0; 6], sender.0, reason);
        if self.rejections.is_news(now, Standing::Stranger, rejected) {
            let text = rejection::protocol_text(version, &self.config.version);
            out.event(Event::Rejected {
                mac: None,
                node: sender.0,
                from,
                reason,
                text,
            });
        }
        self.hint_refusal(now, from, sender, reason, out);
    }
}

/// Tells a boot that it may join.
fn welcome(arrival: &Arrival, out: &mut Outbox) {
    out.send(Outgoing::Welcome {
        addr: arrival.from,
        node: arrival.node,
        epoch: arrival.epoch,
        hello_seq: arrival.seq,
    });
}
